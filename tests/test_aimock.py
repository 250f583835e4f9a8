"""Whole runs against aimock, which plays scripted agent loops on every API and keeps a journal of what it was asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.counterparts import Counterpart, aimock, no_node
from tests.counterparts_runs import AIMOCK_PATHS, ANSWER, APIS, FIRST, LOOP, SECOND, journal, loop_over, run_over
from trio_agent import AssistantMessage, MessageUpdate, Thinking, ToolExecutionEnd, ToolExecutionStart

pytestmark = [
    pytest.mark.counterpart,
    pytest.mark.real_time,
    pytest.mark.skipif(no_node() is not None, reason=no_node() or ""),
]


@pytest.fixture
def service() -> Iterator[Counterpart]:
    """A service of one test: how often each of its answers was given is kept in it."""
    with aimock(LOOP) as running:
        yield running


def conversation(entry: dict[str, Any]) -> list[str]:
    """The request as aimock understood it, in a line per call, per result and per text."""
    lines: list[str] = []
    for message in entry["body"]["messages"]:
        if message["content"]:
            said = message["content"].removeprefix('{"output":"').removesuffix('"}')  # Gemini's results are objects
            lines.append(f"{message['role']}: {said}")
        for call in message.get("tool_calls", ()):
            lines.append(f"{call['function']['name']} {' '.join(json.loads(call['function']['arguments']).values())}")
    return lines


def ids(entry: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The ids of the calls in a request, and those that its results name, in their order."""
    messages = entry["body"]["messages"]
    calls = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    return calls, [message["tool_call_id"] for message in messages if message["role"] == "tool"]


ASKED = ["user: Compare the weather and the time."]
FIRST_TURN = [
    *ASKED,
    "assistant: Let me look that up.",
    "get_weather Paris",
    "get_weather Rome",
    "get_time CET",
    "tool: 21 degrees and sunny in Paris",
    "tool: 21 degrees and sunny in Rome",
    "tool: twelve o'clock in CET",
]
SECOND_TURN = [
    *FIRST_TURN,
    "get_time EET",
    "get_weather Oslo",
    "tool: twelve o'clock in EET",
    "tool: 21 degrees and sunny in Oslo",
]


@pytest.mark.parametrize("api", APIS)
async def test_a_loop_with_parallel_calls(service: Counterpart, api: str) -> None:
    """Three calls at once, a failure, two calls at once, an answer: and the journal holds just these requests."""
    ran = (await loop_over(service, api)).lawful()
    assert (ran.result.outcome, ran.result.text, ran.retried) == ("completed", ANSWER, ["overloaded"])
    calls = [f"{name} {value}" for name, _, value in (*FIRST, *SECOND)]
    assert (sorted(ran.called[:3]), sorted(ran.called[3:])) == (sorted(calls[:3]), sorted(calls[3:]))
    entries = await journal(service)
    assert [entry["response"]["status"] for entry in entries] == [200, 503, 200, 200]
    assert [conversation(entry) for entry in entries] == [ASKED, FIRST_TURN, FIRST_TURN, SECOND_TURN]
    for entry in entries:
        called, answered = ids(entry)
        assert called == answered
        # Gemini's calls need no ids: there aimock names them by their places within a message.
        assert api == "Gemini" or len(set(called)) == len(called)


@pytest.mark.parametrize("api", APIS)
async def test_the_loop_as_the_application_sees_it(service: Counterpart, api: str) -> None:
    """The calls of a turn begin in their order before any of them ends, thinking is kept, and all comes in pieces."""
    ran = await loop_over(service, api)
    kinds = (ToolExecutionStart, ToolExecutionEnd)
    marks = "".join(["<" if isinstance(event, kinds[0]) else ">" for event in ran.events if isinstance(event, kinds)])
    assert marks == "<<<>>>" + "<<>>"
    answers = [message for message in ran.result.messages if isinstance(message, AssistantMessage)]
    assert [answer.stop_reason for answer in answers] == ["tool_use", "tool_use", "stop"]
    assert [len(answer.tool_calls) for answer in answers] == [3, 2, 0]
    thoughts = ["".join([block.text for block in answer.content if isinstance(block, Thinking)]) for answer in answers]
    assert thoughts == ["Two cities and a zone to look up.", "One of each is left.", ""]
    assert len([event for event in ran.events if isinstance(event, MessageUpdate)]) > 30


@pytest.mark.parametrize("api", APIS)
async def test_what_was_not_scripted_is_refused(service: Counterpart, api: str) -> None:
    """A question that the script does not know ends the run as the error that the service gives, asked once."""
    ran = (await run_over(service.url + AIMOCK_PATHS[api], api, "Sing.")).lawful()
    assert ran.result.outcome == "error"
    assert len(await journal(service)) == len(ran.retried) + 1
