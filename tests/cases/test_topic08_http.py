"""Topic 8: HTTP errors, retry and back-off, as others have met them, through the whole agent over a real connection."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from email.utils import formatdate
from typing import Any

import pytest
import trio

from tests.wire_files import DONE, compact, delta
from tests.wire_server import STALL, Reply, Request, memory_server
from trio_agent import Agent, ProviderError, RetryPolicy, RunResult
from trio_agent.providers import OpenAIChat

GOOD = Reply([delta({"content": "a"}, "stop"), DONE])
STEADY = RetryPolicy(max_attempts=10, base_delay=2, max_delay=30, jitter=False, max_retry_after=120)


def refusal(status: int, body: bytes = b"", **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply([body] if body else [], status=status, headers={"content-type": "application/json", **named})


async def run_over(replies: Sequence[Reply], retry: RetryPolicy = STEADY) -> tuple[RunResult, list[float]]:
    """The result of a prompt to a service that answers so, and the seconds between its requests."""
    times: list[float] = []
    left = iter(replies)

    def answer(request: Request) -> Reply:
        times.append(trio.current_time())
        return next(left)

    async with memory_server(answer) as (_, client):
        agent = Agent(OpenAIChat(base_url="http://h.test/v1", client=client), model="m", retry=retry)
        result = await agent.prompt("go")
    return result, [later - earlier for earlier, later in itertools.pairwise(times)]


def error_of(result: RunResult) -> ProviderError:
    assert isinstance(result.error, ProviderError)
    return result.error


@pytest.mark.parametrize(
    ("value", "wait"),
    [("2", 2.0), ("in five seconds", 5.0), ("-0000", 5.0), ("past", 2.0), ("abc", 2.0), ("", 2.0)],
)
async def test_b100_retry_after_as_a_date(value: str, wait: float) -> None:
    """B100: seconds, a date, and a date without a zone are waited for; what is over or none means our own back-off."""
    at = time.time() + (5 if wait == 5.0 else -60)
    dates = {
        "in five seconds": formatdate(at, usegmt=True),
        "-0000": formatdate(at),
        "past": formatdate(at, usegmt=True),
    }
    result, waits = await run_over([refusal(429, retry_after=dates.get(value, value)), GOOD])
    assert result.text == "a"
    # A date counts in whole seconds, and the real clock goes on in between.
    assert waits[0] == (pytest.approx(wait, abs=1.2) if value in dates and wait == 5.0 else wait)


async def test_b102_a_longer_wait_than_we_are_willing_to() -> None:
    """B102: beyond the cap the run fails at once and says how long; below it the wait is exactly what was asked for."""
    result, waits = await run_over([refusal(429, retry_after="600")])
    assert (result.outcome, waits) == ("error", [])
    assert error_of(result).retry_after == 600
    result, waits = await run_over([refusal(429, retry_after="90"), GOOD])
    assert (result.text, waits) == ("a", [90.0])


async def test_b102_a_wait_can_be_aborted() -> None:
    """B102: a run that waits as it was asked to ends at once when it is aborted."""
    async with memory_server([refusal(429, retry_after="90")]) as (server, client), trio.open_nursery() as nursery:
        agent = Agent(OpenAIChat(base_url="http://h.test/v1", client=client), model="m", retry=STEADY)
        nursery.start_soon(agent.prompt, "go")
        await trio.sleep(10)
        agent.abort()
        await agent.wait_for_idle()
        assert trio.current_time() < 11
        assert len(server.requests) == 1


async def test_b103_backoff_has_a_ceiling_and_starts_anew_after_a_success() -> None:
    """B103: waits double up to the ceiling, attempts are counted, and a later turn begins at the base delay."""
    result, waits = await run_over([refusal(503)] * 10)
    assert waits == [2, 4, 8, 16, 30, 30, 30, 30, 30]
    assert error_of(result).kind == "overloaded"
    replies = iter([refusal(503), GOOD, refusal(503), GOOD])
    async with memory_server(lambda request: next(replies)) as (_, client):
        agent = Agent(OpenAIChat(base_url="http://h.test/v1", client=client), model="m", retry=STEADY)
        for _ in range(2):
            start = trio.current_time()
            assert (await agent.prompt("go")).text == "a"
            assert trio.current_time() - start == 2


NO_CREDIT = {"error": {"code": "insufficient_quota", "type": "insufficient_quota", "message": "You have no credit"}}


@pytest.mark.parametrize("status", [429, 401, 403, 404, 400, 402, 405, 422])
async def test_b104_what_no_waiting_cures_is_asked_once(status: int) -> None:
    """B104: an empty account and every refusal of the request itself get one request, and the message says why."""
    body: dict[str, Any] = NO_CREDIT if status == 429 else {"error": {"message": "because of this"}}
    result, waits = await run_over([refusal(status, compact(body))])
    assert (result.outcome, waits) == ("error", [])
    assert body["error"]["message"] in error_of(result).message
    assert error_of(result).status == status


PAGE = b"<html><body><h1>Too big</h1></body></html>"


@pytest.mark.parametrize("status", [413, 502, 504])
@pytest.mark.parametrize(
    "body",
    [PAGE, b"", "<h1>zu groß für uns</h1>".encode("latin-1"), b"<p>" + b"x" * 2_000_000],
    ids=["page", "empty", "latin-1", "2 MB"],
)
async def test_b106_a_page_instead_of_json(status: int, body: bytes) -> None:
    """B106: the status alone decides, the message is short, 502 and 504 are retried and 413 is not."""
    reply = Reply([body] if body else [], status=status, headers={"content-type": "text/html"})
    result, waits = await run_over([reply, GOOD], RetryPolicy(jitter=False))
    if status == 413:
        error = error_of(result)
        assert (error.kind, error.status, waits) == ("context_overflow", 413, [])
        assert "shorten the conversation" in error.message
        assert len(error.message) < 500
        assert "<" not in error.message
    else:
        assert (result.text, waits) == ("a", [1.0])


async def test_b106_a_400_in_the_clothes_of_a_stream() -> None:
    """B106: a 400 with the content type of a stream is a 400."""
    reply = Reply([b'data: {"error":{"message":"no such thing"}}\n\n'], status=400)
    result, waits = await run_over([reply])
    assert (error_of(result).kind, error_of(result).status, waits) == ("invalid_request", 400, [])
    assert "no such thing" in error_of(result).message


async def test_b106_reading_an_error_body_can_be_aborted() -> None:
    """B106: an abort during an error's body ends the run at once and hangs up."""
    async with memory_server([Reply([b"<html>", STALL], status=502)]) as (server, client):
        agent = Agent(OpenAIChat(base_url="http://h.test/v1", client=client), model="m")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.prompt, "go")
            await trio.sleep(1)
            agent.abort()
        assert trio.current_time() < 2
        await trio.testing.wait_all_tasks_blocked()
        assert (server.disconnects, server.active) == (1, 0)
