"""F8, sentence by sentence: when a request is sent again, after how long, and what becomes of the failed attempt."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from scenes import Recorder, assert_settled, make_agent, on, said

from trio_agent import (
    Hooks,
    ModelRequest,
    Phase,
    ProviderError,
    RetryPolicy,
    Send,
    TextDelta,
    tool,
)
from trio_agent.testing import ScriptedProvider, call, finish, stall, text, thinking, usage

STEADY = RetryPolicy(jitter=False)
RETRYABLE = ["rate_limit", "overloaded", "server", "network", "timeout"]
FINAL = ["authentication", "invalid_request", "content_filter", "protocol", "context_overflow"]


def busy(**options: Any) -> ProviderError:
    return ProviderError("overloaded", "busy", **options)


@tool
async def answers() -> str:
    """Answer at once."""
    return "fine"


def waits(recorder: Recorder) -> list[float]:
    """How long each retry really waited, on the run's own clock."""
    starts = [event.time for event in recorder.events if event.type == "retry_start"]
    ends = [event.time for event in recorder.events if event.type == "retry_end"]
    return [end - start for start, end in zip(starts, ends, strict=True)]


@pytest.mark.parametrize("kind", RETRYABLE)
async def test_F8_what_the_provider_marks_retryable_is_tried_again_in_the_same_turn(kind: Any) -> None:
    """An error that is marked retryable is tried again after a wait, in the same turn."""
    agent, recorder = make_agent(
        ScriptedProvider([ProviderError(kind, "not now")], ["ok", finish()]),
        retry=RetryPolicy(base_delay=2, jitter=False),
    )
    result = await agent.prompt("hi")
    assert recorder.lines == [
        "agent_start",
        "turn_start 1",
        "message_start user",
        'message_end user "hi"',
        f"retry_start 1/4 {kind}",
        "retry_end 1 resumed",
        "message_start assistant",
        'message_update "ok"',
        'message_end assistant stop "ok"',
        "turn_end 1",
        "agent_end completed",
    ]
    assert waits(recorder) == [2]
    assert (result.outcome, result.suppressed, agent.state.error_message) == ("completed", (), None)
    assert_settled(recorder)


@pytest.mark.parametrize(
    "failure",
    [*[ProviderError(kind, "no") for kind in FINAL], busy(retryable=False), ValueError("no"), TimeoutError("no")],  # type: ignore[arg-type]
    ids=lambda failure: getattr(failure, "kind", type(failure).__name__),
)
async def test_F8_what_is_not_marked_retryable_fails_the_run_at_once(failure: Exception) -> None:
    """Any other error, and any exception that is no `ProviderError`, is not tried again."""
    provider = ScriptedProvider([failure])
    agent, recorder = make_agent(provider)
    result = await agent.prompt("hi")
    assert (result.outcome, result.error) == ("error", failure)
    assert len(provider.requests) == 1
    assert recorder.lines_of("retry_start") == []
    assert_settled(recorder)


async def test_F8_a_provider_may_mark_any_kind_retryable() -> None:
    """The mark decides, not the kind."""
    failure = ProviderError("content_filter", "try again", retryable=True)
    agent, recorder = make_agent(ScriptedProvider([failure], ["ok", finish()]))
    result = await agent.prompt("hi")
    assert result.outcome == "completed"
    assert_settled(recorder)


async def test_F8_the_wait_doubles_up_to_its_bound() -> None:
    """Without jitter the waits are the base delay, doubled each time, and never more than `max_delay`."""
    failures = [[busy()] for _ in range(6)]
    agent, recorder = make_agent(
        ScriptedProvider(*failures, ["ok", finish()]),
        retry=RetryPolicy(max_attempts=7, base_delay=1.5, max_delay=20, jitter=False),
    )
    await agent.prompt("hi")
    assert waits(recorder) == pytest.approx([1.5, 3, 6, 12, 20, 20])
    assert [event.delay for event in recorder.events if event.type == "retry_start"] == [1.5, 3, 6, 12, 20, 20]
    assert_settled(recorder)


@given(failed=st.integers(1, 2_000), seed=st.integers(0, 2**32))
def test_F8_full_jitter_draws_from_all_of_the_wait(failed: int, seed: int) -> None:
    """With jitter a wait lies between nothing and what it would be without, however often it failed."""
    random.seed(seed)
    policy = RetryPolicy(max_attempts=3_000, base_delay=1, max_delay=64)
    delay = policy.delay(failed, busy())
    assert delay is not None
    assert 0 <= delay <= min(64, 2.0 ** min(failed - 1, 10))


def test_F8_full_jitter_spreads_evenly() -> None:
    """With jitter the waits fill the whole range: both halves, and both ends of it."""
    random.seed(7)
    policy = RetryPolicy(base_delay=100, max_delay=100)
    delays = [policy.delay(1, busy()) or 0.0 for _ in range(2_000)]
    assert 45 < sum(delays) / len(delays) < 55
    assert min(delays) < 5
    assert max(delays) > 95


@pytest.mark.parametrize("jitter", [False, True])
async def test_F8_retry_after_is_honoured(jitter: bool) -> None:
    """What the service asks for is waited for exactly, whatever the doubling and the jitter would have said."""
    agent, recorder = make_agent(
        ScriptedProvider([busy(retry_after=37)], [busy(retry_after=0)], ["ok", finish()]),
        retry=RetryPolicy(jitter=jitter),
    )
    await agent.prompt("hi")
    assert waits(recorder) == pytest.approx([37, 0])
    assert_settled(recorder)


async def test_F8_a_service_that_asks_for_longer_than_we_wait_fails_the_run() -> None:
    """A `Retry-After` beyond `max_retry_after` fails the run at once instead of waiting less than was asked for."""
    provider = ScriptedProvider([busy(retry_after=121)])
    agent, recorder = make_agent(provider)
    result = await agent.prompt("hi")
    assert (result.outcome, result.reason) == ("error", "overloaded")
    assert recorder.events[-1].time == 0
    assert_settled(recorder)


@pytest.mark.parametrize("most", [1, 2, 5])
async def test_F8_at_most_so_many_attempts(most: int) -> None:
    """After `max_attempts` requests the run fails with the last error; the first request counts."""
    failures = [busy() for _ in range(most)]
    provider = ScriptedProvider(*[[failure] for failure in failures])
    agent, recorder = make_agent(provider, retry=RetryPolicy(max_attempts=most))
    result = await agent.prompt("hi")
    assert (result.outcome, result.error) == ("error", failures[-1])
    assert len(provider.requests) == most
    assert len(recorder.lines_of("retry_start")) == most - 1
    assert_settled(recorder)


async def test_F8_the_same_request_is_sent_again() -> None:
    """A retry sends the very request of the failed attempt: hooks are not asked again, and `configure` has to wait."""
    asked: list[str] = []

    def transform(messages: Any) -> Any:
        asked.append("transform_context")
        return messages

    def convert(messages: Any) -> Any:
        asked.append("convert_to_llm")
        return messages

    provider = ScriptedProvider(["half", busy()], [busy()], ["ok", finish()])
    agent, recorder = make_agent(provider, hooks=Hooks(transform_context=transform, convert_to_llm=convert))
    on(agent, "retry_start", lambda event: agent.configure(model="other", system_prompt="new"))
    on(agent, "retry_start", lambda event: agent.steer("meanwhile"))
    await agent.prompt("hi")
    assert provider.requests[1] is provider.requests[0]
    assert provider.requests[2] is provider.requests[0]
    assert asked == ["transform_context", "convert_to_llm"] * 2, (
        "once for the turn, once for that of the steered message"
    )
    assert_settled(recorder)


async def test_F8_a_failed_attempt_that_had_begun_ends_with_error_and_leaves_history() -> None:
    """A failed attempt that had begun to stream ends with `stop_reason` `error`, and leaves history at
    `retry_start`.
    """
    agent, recorder = make_agent(ScriptedProvider([thinking("hm"), text("half"), busy()], ["whole", finish()]))
    result = await agent.prompt("hi")
    failed = 'message_end assistant error thinking "hm" "half" !overloaded: busy'
    at = recorder.lines.index(failed)
    assert recorder.lines[at + 1] == "retry_start 1/4 overloaded"
    assert said(recorder.states[at].messages) == ['user "hi"', failed.removeprefix("message_end ")]
    assert recorder.states[at].error_message == "overloaded: busy"
    assert said(recorder.states[at + 1].messages) == ['user "hi"']
    assert recorder.states[at + 1].error_message is None
    assert said(agent.state.messages) == said(result.messages) == ['user "hi"', 'assistant stop "whole"']
    assert_settled(recorder)


async def test_F8_an_attempt_that_failed_before_its_first_chunk_has_no_message() -> None:
    """An attempt that failed before its first chunk emits no message at all."""
    agent, recorder = make_agent(ScriptedProvider([usage_only_then_fail()], ["ok", finish()]))
    await agent.prompt("hi")
    assert recorder.lines_of("message_start") == ["message_start user", "message_start assistant"]
    assert_settled(recorder)


def usage_only_then_fail() -> ProviderError:
    return ProviderError("network", "connection refused")


async def test_F8_the_calls_of_a_failed_attempt_never_run() -> None:
    """Calls of a failed attempt get no tool events and never run; the next attempt may use their ids."""
    agent, recorder = make_agent(
        ScriptedProvider(
            [call("c1", "answers"), busy()], [call("c1", "answers"), finish("tool_use")], ["done", finish()]
        ),
        tools=[answers],
    )
    await agent.prompt("hi")
    assert recorder.lines_of("tool_execution_start", "tool_execution_end") == [
        "tool_execution_start c1 answers {}",
        'tool_execution_end c1 ok "fine"',
    ]
    assert "message_end assistant error c1:answers !overloaded: busy" in recorder.lines
    assert_settled(recorder)


async def test_F8_an_attempt_that_fails_behind_its_end_marker_stands() -> None:
    """A retryable error that comes behind the end marker is no failed attempt (F6): nothing is sent again."""
    provider = ScriptedProvider(["ok", finish(), busy()])
    agent, recorder = make_agent(provider)
    result = await agent.prompt("hi")
    assert result.outcome == "completed"
    assert recorder.lines_of("retry_start") == []
    assert_settled(recorder)


async def test_F8_the_count_is_per_turn() -> None:
    """Each turn has all its attempts: what a turn before it used up does not count."""
    agent, recorder = make_agent(
        ScriptedProvider(
            [busy()], [busy()], [call("c1", "answers"), finish("tool_use")], [busy()], [busy()], ["done", finish()]
        ),
        tools=[answers],
        retry=RetryPolicy(max_attempts=3),
    )
    result = await agent.prompt("hi")
    assert result.outcome == "completed"
    assert recorder.lines_of("retry_start") == ["retry_start 1/3 overloaded", "retry_start 2/3 overloaded"] * 2
    assert_settled(recorder)


async def test_F8_usage_of_failed_attempts_counts() -> None:
    """What a failed attempt was billed for counts in the run's usage."""
    agent, recorder = make_agent(
        ScriptedProvider([text("half"), usage(input=10, output=1), busy()], ["ok", usage(input=10, output=2), finish()])
    )
    result = await agent.prompt("hi")
    assert (result.usage.input, result.usage.output) == (20, 3)
    assert recorder.events[-1].usage == result.usage  # type: ignore[union-attr]
    assert_settled(recorder)


@pytest.mark.parametrize("cut", ["fails", "aborts"])
async def test_F8_a_cut_at_the_message_end_of_a_failed_attempt_ends_the_retrying(cut: str) -> None:
    """A failure or an abort at the `message_end` of a failed attempt ends the retrying: the attempt stands."""
    provider = ScriptedProvider(["half", busy()])
    agent, recorder = make_agent(provider)

    def stop(event: Any) -> None:
        if cut == "aborts":
            agent.abort("enough")
        else:
            raise ValueError("full")

    on(agent, "message_end", stop, nth=2)
    result = await agent.prompt("hi")
    word = "aborted" if cut == "aborts" else "error"
    assert result.outcome == word
    assert [line.partition(" !")[0] for line in recorder.lines[-7:]] == [
        'message_end assistant error "half"',
        "turn_end 1",
        "turn_start 2",
        "message_start assistant",
        f"message_end assistant {word}",
        "turn_end 2",
        "agent_end aborted enough" if cut == "aborts" else "agent_end error",
    ]
    assert recorder.lines_of("retry_start") == []
    assert len(provider.requests) == 1
    assert said(agent.state.messages)[1] == 'assistant error "half" !overloaded: busy'
    assert_settled(recorder)


@pytest.mark.parametrize("event", ["retry_start", "retry_end"])
@pytest.mark.parametrize("cut", ["fails", "aborts"])
async def test_F8_a_cut_around_the_wait_sends_nothing_again(event: str, cut: str) -> None:
    """A failure or an abort at `retry_start` or `retry_end`: the wait ends there, nothing is sent, the turn closes."""
    provider = ScriptedProvider([busy()])
    agent, recorder = make_agent(provider, retry=STEADY)

    def stop(_: Any) -> None:
        if cut == "aborts":
            agent.abort()
        else:
            raise ValueError("full")

    on(agent, event, stop)
    await agent.prompt("hi")
    word = {"fails": "failed", "aborts": "aborted"}[cut]
    ended = f"retry_end 1 {word}" if event == "retry_start" else "retry_end 1 resumed"
    assert recorder.lines[5] == ended
    assert recorder.events[-1].time == (0 if event == "retry_start" else 1)
    assert len(provider.requests) == 1
    assert recorder.lines[-2] == "turn_end 1"
    assert_settled(recorder)


async def test_F8_an_abort_ends_the_wait_at_once() -> None:
    """An abort in the middle of a wait ends it there and then, in phase retry."""
    agent, recorder = make_agent(ScriptedProvider([busy(retry_after=100)]))
    phases: list[Phase] = []
    async with trio.open_nursery() as nursery:

        async def abort() -> None:
            await trio.sleep(30)
            phases.append(agent.state.phase)
            agent.abort()

        nursery.start_soon(abort)
        result = await agent.prompt("hi")
    assert phases == [Phase.RETRY]
    assert recorder.events[-1].time == pytest.approx(30)
    assert (result.outcome, recorder.lines[5]) == ("aborted", "retry_end 1 aborted")
    assert_settled(recorder)


async def test_F8_the_provider_of_a_failed_attempt_is_over_before_the_next_begins() -> None:
    """No two attempts overlap: the provider has returned or raised, its connection closed, before it is asked again."""
    order: list[str] = []

    async def provider(request: ModelRequest, send: Send) -> None:
        order.append("begun")
        try:
            await send(TextDelta(0, "half"))
            await trio.sleep(1)
            raise busy()
        finally:
            order.append("over")

    agent, recorder = make_agent(provider, retry=RetryPolicy(max_attempts=3, base_delay=0))
    await agent.prompt("hi")
    assert order == ["begun", "over"] * 3
    assert_settled(recorder)


async def test_F8_a_protocol_failure_in_the_stream_is_tried_again_only_if_marked() -> None:
    """What the kernel finds wrong with a stream is a `protocol` error, which is not retryable."""
    provider = ScriptedProvider(["half", finish("nonsense"), stall()])
    agent, recorder = make_agent(provider)
    result = await agent.prompt("hi")
    assert (result.reason, len(provider.requests)) == ("protocol", 1)
    assert_settled(recorder)
