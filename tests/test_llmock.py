"""Whole runs against llmock, which breaks its answers as services do, and judges what our client makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from tests.counterparts import Counterpart, llmock
from tests.counterparts_runs import (
    APIS,
    CALL,
    FAULTS,
    LLMOCK_PATHS,
    RETRY,
    Ran,
    requests,
    reset,
    run_over,
    script,
    survive,
    verdict,
)
from trio_agent import AssistantMessage, MessageEnd, RetryEnd, RetryStart, ToolExecutionEnd

pytestmark = [pytest.mark.counterpart, pytest.mark.real_time]

KINDS = {
    "429": "rate_limit",
    "529": "overloaded",
    "truncate": "network",
    "disconnect": "network",
    "malformed": "protocol",
    "stall": "timeout",
}
STREAM_FAULTS = ["truncate", "disconnect", "malformed", "stall"]
TEXT = "Mock response from mock-model."
QUESTION = "What is the weather in Paris?"
CLEAN: dict[str, Any] = {"passed": True, "errors": 0, "warnings": 0, "findings": []}


@pytest.fixture(scope="module")
def service() -> Iterator[Counterpart]:
    with llmock() as running:
        yield running


def clean(calls: int, attempts: int, faults: int) -> dict[str, Any]:
    return {**CLEAN, "calls": calls, "attempts": attempts, "faults_injected": faults}


def roles(ran: Ran) -> list[str]:
    return [message.role for message in ran.result.messages]


async def asked(service: Counterpart, api: str, *behaviours: dict[str, Any], **options: Any) -> Ran:
    """A run against a service that is told to behave so."""
    await reset(service)
    if behaviours:
        await script(service, *behaviours)
    return await run_over(service.url + LLMOCK_PATHS[api], api, QUESTION, **options)


@pytest.mark.parametrize("api", APIS)
async def test_a_run_without_a_fault(service: Counterpart, api: str) -> None:
    """A call, its result and an answer, with usage, and nothing to complain of."""
    ran = (await asked(service, api)).lawful()
    assert (ran.result.outcome, ran.result.text) == ("completed", TEXT)
    assert ran.called == ["get_weather mock-city"]
    assert roles(ran) == ["user", "assistant", "tool_result", "assistant"]
    assert ran.result.usage.total
    assert await verdict(service) == clean(2, 2, 0)


@pytest.mark.parametrize("place", ["call", "answer"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("api", APIS)
async def test_a_fault_is_survived(service: Counterpart, api: str, fault: str, place: str) -> None:
    """Refused, overloaded, cut short, cut off, garbled or silent, in the call or in the answer: tried again, once."""
    ran, judged = await survive(service, api, fault, place)
    ran.lawful()
    assert judged == clean(2, 3, 1)
    assert ran.retried == [KINDS[fault]]
    assert (ran.result.outcome, ran.result.text, ran.result.error) == ("completed", TEXT, None)
    assert len(ran.called) == 1
    # What had come of the failed attempt was told, and is not kept (F8).
    assert roles(ran) == ["user", "assistant", "tool_result", "assistant"]
    ends = [event.message for event in ran.events if isinstance(event, MessageEnd)]
    reasons = [message.stop_reason for message in ends if isinstance(message, AssistantMessage)]
    assert reasons.count("error") == (fault in STREAM_FAULTS)
    bodies = [request["fingerprint"] for request in await requests(service)]
    first = 0 if place == "call" else 1
    assert bodies[first] == bodies[first + 1]
    assert len(set(bodies)) == 2


@pytest.mark.parametrize("api", APIS)
async def test_a_wait_that_is_asked_for_is_kept(service: Counterpart, api: str) -> None:
    """A quarter of a second is waited for, and not the whole one to which HTTP's own header rounds it up."""
    ran, judged = await survive(service, api, "429", "call")
    assert [event.delay for event in ran.events if isinstance(event, RetryStart)] == [0.25]
    assert judged == clean(2, 3, 1)


@pytest.mark.parametrize("api", APIS)
async def test_all_faults_in_a_row_are_survived(service: Counterpart, api: str) -> None:
    """Six failures of one request, each another one, and then its answer: the waits grow and the judge agrees."""
    retry = attrs.evolve(RETRY, max_attempts=7, base_delay=0.02)
    ran = (await asked(service, api, *FAULTS.values(), *[CALL] * 5, retry=retry)).lawful()
    assert ran.retried == list(KINDS.values())
    assert [event.outcome for event in ran.events if isinstance(event, RetryEnd)] == ["resumed"] * 6
    assert (ran.result.outcome, ran.result.text) == ("completed", TEXT)
    assert await verdict(service) == clean(2, 8, 6)


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        ({"status": 400}, "invalid_request"),
        ({"status": 401}, "authentication"),
        ({"status": 403}, "authentication"),
        ({"status": 404}, "invalid_request"),
        ({"status": 422}, "invalid_request"),
        ({"status": 413}, "context_overflow"),
        ({"status": 400, "message": "prompt is too long: 210000 tokens > 200000 maximum"}, "context_overflow"),
    ],
    ids=["400", "401", "403", "404", "422", "413", "overflow"],
)
@pytest.mark.parametrize("api", APIS)
async def test_what_no_retry_cures_is_asked_once(
    service: Counterpart, api: str, refusal: dict[str, Any], kind: str
) -> None:
    """A refusal for good ends the run at the first request, as the error that it is."""
    ran = (await asked(service, api, {"type": "fail", **refusal})).lawful()
    assert (ran.result.outcome, ran.error.kind, ran.error.retryable) == ("error", kind, False)
    assert ran.error.status == refusal["status"]
    assert roles(ran) == ["user", "assistant"]
    assert await verdict(service) == clean(1, 1, 1)


DOWN = {
    408: "timeout",
    409: "server",
    500: "server",
    502: "server",
    503: "overloaded",
    504: "server",
    529: "overloaded",
}
GOOGLES_WORDS = {502: "overloaded"}  # its body says UNAVAILABLE


@pytest.mark.parametrize("status", DOWN)
@pytest.mark.parametrize("api", APIS)
async def test_a_service_that_stays_down_is_given_up(service: Counterpart, api: str, status: int) -> None:
    """As many attempts as the policy allows, ever further apart, and then the error that was the last."""
    kind = GOOGLES_WORDS.get(status, DOWN[status]) if api == "Gemini" else DOWN[status]
    down = {"type": "fail", "status": status, "times": None, "retry_after": 0}
    ran = (await asked(service, api, down)).lawful()
    assert (ran.result.outcome, ran.error.kind, ran.error.status) == ("error", kind, status)
    assert ran.retried == [kind] * 3
    delays = [event.delay for event in ran.events if isinstance(event, RetryStart)]
    assert delays == [0.06, 0.12, 0.24]
    assert await verdict(service) == clean(1, 4, 4)


# It sees requests only, and takes the last one for an answer that was used. That it was not, the run's outcome says.
SUSPECTED = {
    "truncate": ["truncated_stream_accepted"],
    "disconnect": [],
    "malformed": ["malformed_chunk_ignored"],
    "stall": [],
}


@pytest.mark.parametrize("fault", STREAM_FAULTS)
@pytest.mark.parametrize("api", APIS)
async def test_an_answer_that_always_breaks_is_an_error(service: Counterpart, api: str, fault: str) -> None:
    """No half of an answer passes for one, however often it comes; its calls do not run."""
    broken = {**FAULTS[fault], "times": None}
    ran = (
        await asked(service, api, broken, {**CALL, "times": None}, retry=attrs.evolve(RETRY, max_attempts=2))
    ).lawful()
    assert (ran.result.outcome, ran.error.kind) == ("error", KINDS[fault])
    assert ran.retried == [KINDS[fault]]
    assert ran.called == []
    judged = await verdict(service)
    assert [finding["code"] for finding in judged["findings"]] == SUSPECTED[fault]
    assert (judged["attempts"], judged["faults_injected"]) == (2, 2)


@pytest.mark.parametrize("kind", ["malformed_arguments", "unknown_tool"])
@pytest.mark.parametrize("api", APIS)
async def test_a_call_that_makes_no_sense_gets_an_error_result(service: Counterpart, api: str, kind: str) -> None:
    """Arguments that are cut in half, or a tool that nobody offered: the model is told, and the run goes on (T5)."""
    ran = (await asked(service, api, {"type": "tool_fault", "kind": kind})).lawful()
    assert (ran.result.outcome, ran.result.text) == ("completed", TEXT)
    assert ran.called == []
    assert [event.is_error for event in ran.events if isinstance(event, ToolExecutionEnd)] == [True]
    assert await verdict(service) == clean(2, 2, 0)
