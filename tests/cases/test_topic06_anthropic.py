"""Topic 6: quirks of Anthropic's Messages API, as others have met them, through the whole agent.

What B071 says of this API is here too: heartbeats, events and blocks that no reader knows yet.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.test_anthropic import BYE, START, begin, end, ending, more, text_block
from tests.wire_agent import RETRY, agent_over
from tests.wire_files import delta, named, played
from trio_agent import (
    AssistantMessage,
    Hooks,
    Message,
    RunResult,
    Text,
    Thinking,
    ToolCall,
    UserMessage,
    decode,
    encode,
)
from trio_agent._errors import ProviderError
from trio_agent._events import MessageEnd, MessageStart
from trio_agent._messages import Usage
from trio_agent.providers import Anthropic, OpenAIChat


def error(kind: str) -> bytes:
    return named("error", {"error": {"type": kind, "message": "busy"}})


def call(index: int, call_id: str, name: str = "f", arguments: str = "{}") -> bytes:
    start = begin(index, type="tool_use", id=call_id, name=name, input={})
    return start + more(index, "input_json_delta", partial_json=arguments) + end(index)


def error_of(result: RunResult) -> ProviderError:
    assert isinstance(result.error, ProviderError)
    return result.error


async def test_b071_what_no_reader_knows_yet_is_passed_over() -> None:
    """B071: pings, future events and blocks of an unknown kind are skipped, shift no index and are not replayed."""
    unknown = (
        begin(0, type="new_block", foo=1) + more(0, "new_delta", bar=2) + more(0, "text_delta", text="no") + end(0)
    )
    pieces = [START, named("ping", {}), named("some_future_event", {"x": 1}), unknown, text_block(1, "yes")]
    async with agent_over(Anthropic, [*pieces, ending("end_turn")], BYE) as (agent, service, _):
        assert (await agent.prompt("go")).text == "yes"
        await agent.prompt("on")
    assert service.requests[1]["messages"][1]["content"] == [{"type": "text", "text": "yes"}]


@pytest.mark.parametrize(
    "dead",
    [[error("overloaded_error")], [START, named("ping", {}), error("overloaded_error")], [error("rate_limit_error")]],
    ids=["first", "behind a ping", "rate limit"],
)
async def test_b075_overloaded_inside_a_good_answer(dead: list[bytes]) -> None:
    """B075 a, b: an error in the stream is tried again like its status, and the dead attempt leaves no open message."""
    async with agent_over(Anthropic, dead, BYE, retry=RETRY) as (agent, service, _):
        starts, ends = 0, 0

        def count(event: Any) -> None:
            nonlocal starts, ends
            starts += isinstance(event, MessageStart)
            ends += isinstance(event, MessageEnd)

        agent.subscribe(count)
        assert (await agent.prompt("go")).text == "bye"
        assert (len(service.requests), starts) == (2, ends)
        assert service.requests[0] == service.requests[1]


async def test_b075_overloaded_behind_text() -> None:
    """B075 c: text before the error is never glued to that of the next attempt; without one it is kept."""
    dead = [START, begin(0, type="text"), more(0, "text_delta", text="half"), error("overloaded_error")]
    async with agent_over(Anthropic, dead, BYE, retry=RETRY) as (agent, _, _):
        result = await agent.prompt("go")
        assert (result.text, [message.role for message in result.messages]) == ("bye", ["user", "assistant"])
    async with agent_over(Anthropic, dead) as (agent, _, _):
        result = await agent.prompt("go")
        assert (result.outcome, result.text, error_of(result).kind) == ("error", "half", "overloaded")


async def test_b075_an_invalid_request_is_not_tried_again() -> None:
    """B075 d: what no second attempt cures gets none."""
    async with agent_over(Anthropic, [error("invalid_request_error")], retry=RETRY) as (agent, service, _):
        assert error_of(await agent.prompt("go")).kind == "invalid_request"
    assert len(service.requests) == 1


async def test_b076_a_body_that_ends_without_message_stop() -> None:
    """B076: a clean end of the body in the middle of arguments is an error; the call is not run and not replayed."""
    cut = [
        START,
        begin(0, type="tool_use", id="t1", name="w", input={}),
        more(0, "input_json_delta", partial_json='{"p"'),
    ]
    async with agent_over(Anthropic, cut, BYE) as (agent, service, ran):
        result = await agent.prompt("go")
        assert (result.outcome, error_of(result).kind, ran.calls) == ("error", "network", [])
        assert (await agent.prompt("on")).text == "bye"
    assert [message["role"] for message in service.requests[1]["messages"]] == ["user"]


async def test_b076_even_behind_the_stop_reason() -> None:
    """B076: the stop reason is not the end; what ends the answer is `message_stop`."""
    reason = named("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}})
    answer = await played(Anthropic, [START, text_block(0, "a"), reason])
    assert (answer.failed().kind, answer.failed().retryable) == ("network", True)


async def test_b077_an_empty_text_block_does_not_go_back() -> None:
    """B077: an empty text beside a call is no block of the message and of no request."""
    pieces = [START, begin(0, type="text", text="") + end(0), call(1, "t1"), ending("tool_use")]
    async with agent_over(Anthropic, pieces, BYE) as (agent, service, _):
        assert (await agent.prompt("go")).text == "bye"
    assert [block["type"] for block in service.requests[1]["messages"][1]["content"]] == ["tool_use"]


async def test_b078_white_space_is_no_block() -> None:
    """B078: blank texts of the model, of tools, of the system prompt and of users are in no request."""
    first = [START, text_block(0, "\n"), call(1, "t1", "w"), ending("tool_use")]
    second = [START, text_block(0, "\n"), ending("end_turn")]
    earlier = [UserMessage("  "), AssistantMessage([Text("\t")]), UserMessage(""), AssistantMessage("so?")]
    async with agent_over(Anthropic, first, second, BYE, messages=earlier) as (agent, service, _):
        with pytest.raises(ValueError, match="blank"):
            await agent.prompt("  ")
        await agent.prompt("go")
        await agent.prompt("on")
    for request in service.requests:
        assert "system" not in request
        roles = [message["role"] for message in request["messages"]]
        assert roles == (["user", "assistant"] * 3)[: len(roles)]
        for message in request["messages"]:
            for block in message["content"]:
                texts = [block, *block.get("content", [])]
                assert all(part["text"].strip() for part in texts if "text" in part)
    [result] = service.requests[1]["messages"][-1]["content"]
    assert (result["type"], result["content"][0]["text"]) == ("tool_result", "(no output)")


async def test_b080_users_in_a_row_are_one_message() -> None:
    """B080: what users say in a row is one message, in order; history keeps them apart."""
    async with agent_over(Anthropic, [error("invalid_request_error")], BYE, BYE) as (agent, service, _):
        await agent.prompt("one")
        await agent.prompt("two")
        [message] = service.requests[1]["messages"]
        assert [block["text"] for block in message["content"]] == ["one", "two"]
        agent.steer("steered")
        await agent.prompt("three")
        assert [block["text"] for block in service.requests[2]["messages"][2]["content"]] == ["steered", "three"]
        assert [message.role for message in agent.state.messages].count("user") == 4


async def test_b080_results_come_before_what_was_steered() -> None:
    """B080: results and a message steered meanwhile are one user message, the results first."""
    async with agent_over(Anthropic, [START, call(0, "t1"), ending("tool_use")], BYE) as (agent, service, ran):
        ran.delays[0] = 5.0
        agent.subscribe(lambda event: agent.steer("faster") if event.type == "tool_execution_start" else None)
        assert (await agent.prompt("go")).text == "bye"
    [_, _, results] = service.requests[1]["messages"]
    assert [block["type"] for block in results["content"]] == ["tool_result", "text"]
    assert results["content"][1]["text"] == "faster"


SIGNED = [
    START,
    begin(0, type="thinking", thinking="", signature="") + more(0, "thinking_delta", thinking="one"),
    more(0, "signature_delta", signature="a") + end(0),
    begin(1, type="redacted_thinking", data="QUJD") + end(1),
    begin(2, type="thinking", thinking="", signature="") + more(2, "thinking_delta", thinking="two"),
    more(2, "signature_delta", signature="b") + end(2),
    text_block(3, "text"),
    call(4, "t1"),
    ending("tool_use"),
]
REPLAYED = [
    {"type": "thinking", "thinking": "one", "signature": "a"},
    {"type": "redacted_thinking", "data": "QUJD"},
    {"type": "thinking", "thinking": "two", "signature": "b"},
    {"type": "text", "text": "text"},
    {"type": "tool_use", "id": "t1", "name": "f", "input": {}},
]


async def test_b084_thinking_goes_back_in_its_order() -> None:
    """B084: signed, opaque and signed thinking, text and call go back as the same five blocks, data untouched."""
    async with agent_over(Anthropic, SIGNED, BYE, model="x") as (agent, service, _):
        await agent.prompt("go")
        history = agent.state.messages
    assert service.requests[1]["messages"][1]["content"] == REPLAYED
    from_log: list[Message] = [decode(encode(message)) for message in history]
    async with agent_over(Anthropic, BYE, model="x", messages=from_log) as (agent, service, _):
        await agent.prompt("on")
    assert service.requests[0]["messages"][1]["content"] == REPLAYED


async def test_b084_thinking_stays_here_while_another_provider_answers() -> None:
    """B084: another provider gets none of it, and it comes back unchanged with its own."""
    async with agent_over(Anthropic, SIGNED, BYE, model="x") as (agent, _, _):
        await agent.prompt("go")
        history = agent.state.messages
    chat = [delta({"content": "other"}, "stop"), b"data: [DONE]\n\n"]
    async with agent_over(OpenAIChat, chat, model="y", messages=history) as (agent, service, _):
        await agent.prompt("on")
        history = agent.state.messages
    assert not any(secret in str(service.requests[0]) for secret in ("QUJD", "one", "signature"))
    async with agent_over(Anthropic, BYE, model="x", messages=history) as (agent, service, _):
        await agent.prompt("back")
    assert service.requests[0]["messages"][1]["content"] == REPLAYED


@pytest.mark.parametrize(
    ("reason", "wanted"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("refusal", "content_filter"),
        ("pause_turn", "protocol"),
        ("brand_new_reason", "protocol"),
    ],
)
async def test_b085_every_stop_reason_counts(reason: str, wanted: str) -> None:
    """B085: a cut, a refused, a paused and an unknown end are told apart, and none of them is a stop."""
    answer = await played(Anthropic, [START, text_block(0, "text"), ending(reason)])
    assert answer.message.text == "text"
    if answer.error is None:
        assert answer.message.stop_reason == wanted
    else:
        assert (answer.error.kind, answer.error.retryable) == (wanted, False)
        assert reason in answer.error.message or wanted == "content_filter"


async def test_b086_cumulative_counts_are_not_added() -> None:
    """B086: the counts of the end replace those of the start; cached tokens are told apart and counted once."""
    first = {"input_tokens": 7, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 30, "output_tokens": 1}
    start = named("message_start", {"message": {"id": "m", "model": "x", "content": [], "usage": first}})
    last = named("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {**first, "output_tokens": 21}})
    answer = await played(Anthropic, [start, text_block(0, "a"), last, named("message_stop", {})])
    usage = answer.clean().usage
    assert usage == Usage(7, 21, 90, 30, total=148)
    assert (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0) == 127


@pytest.mark.parametrize("change", ["call", "result", "order"])
async def test_b088_a_result_without_its_call(change: str) -> None:
    """B088: whatever a hook takes out or moves, calls and results pair up on the wire, and history stays as it was."""

    def transform(messages: list[Message]) -> list[Message]:
        if change == "order":
            return [messages[0], *messages[1:2], *reversed(messages[2:])]
        unwanted = AssistantMessage if change == "call" else "tool_result"
        return [message for message in messages if not (message.role == unwanted or type(message) is unwanted)]

    calls = [START, call(0, "t1"), call(1, "t2"), ending("tool_use")]
    hooks = Hooks(transform_context=transform)
    async with agent_over(Anthropic, calls, BYE, hooks=hooks) as (agent, service, _):
        assert (await agent.prompt("go")).text == "bye"
        assert [message.role for message in agent.state.messages] == (
            ["user", "assistant", "tool_result", "tool_result", "assistant"]
        )
    made = [
        block["id"] for message in service.requests[1]["messages"] for block in message["content"] if "input" in block
    ]
    got = [
        block["tool_use_id"]
        for message in service.requests[1]["messages"]
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    assert made == got == ([] if change == "call" else ["t1", "t2"])


async def test_what_was_kept_of_the_answer_is_what_the_blocks_say() -> None:
    """The message behind the cases above: its blocks, in order."""
    answer = await played(Anthropic, SIGNED)
    assert answer.clean().content == (
        Thinking("one", "a"),
        Thinking("", redacted="QUJD"),
        Thinking("two", "b"),
        Text("text"),
        ToolCall("t1", "f", {}),
    )
