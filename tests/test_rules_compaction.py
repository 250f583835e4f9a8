"""F9, sentence by sentence: when history is compacted, what its events say, and what a failure of it means.

The summarising policy's own decisions are in `test_compaction_policy.py`; here the policies are fakes.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import Any

import pytest
import trio
from scenes import Recorder, assert_settled, make_agent, on, said
from tour import assert_sendable

from trio_agent import (
    AgentState,
    AssistantMessage,
    Compaction,
    CompactionEnd,
    CustomMessage,
    Event,
    Finish,
    Hooks,
    Message,
    MessageEnd,
    ModelRequest,
    Phase,
    ProviderError,
    Send,
    SummarizingCompaction,
    TextDelta,
    ToolCall,
    ToolResultMessage,
    Usage,
    UsageReport,
    UserMessage,
    tool,
)
from trio_agent.testing import ScriptedProvider, call, finish, stall, text

OVERFLOW = ProviderError("context_overflow", "too long")
SUMMARY = UserMessage("summary")
LONG: list[Message] = [UserMessage("a"), AssistantMessage("b"), UserMessage("c"), AssistantMessage("d")]


@tool
async def answers() -> str:
    """Answer at once."""
    return "fine"


class Policy:
    """A policy that a test tells what to do: at which counts of messages it is due, and what compacting comes to."""

    def __init__(
        self,
        *,
        over: int = 1_000_000,
        keep: int = 1,
        failing: BaseException | None = None,
        seconds: float = 0,
        spent: Usage | None = None,
        summary: Message = SUMMARY,
    ) -> None:
        self.over = over
        self.keep = keep
        self.failing = failing
        self.seconds = seconds
        self.spent = spent
        self.summary = summary
        self.reasons: list[str] = []
        self.given: list[list[str]] = []

    def tokens(self, state: AgentState) -> int:
        return len(state.messages)

    def threshold(self, state: AgentState) -> bool:
        return len(state.messages) > self.over

    async def compact(self, messages: Sequence[Message], reason: str) -> Compaction:
        self.reasons.append(reason)
        self.given.append(said(messages))
        await trio.sleep(self.seconds)
        if self.failing is not None:
            raise self.failing
        first_kept = max(1, len(messages) - self.keep)
        return Compaction(self.summary, first_kept, *([] if self.spent is None else [self.spent]))


def rebuilt(history: Sequence[Message], events: Sequence[Event]) -> list[Message]:
    """History as a log makes it of the events alone (L6, F9)."""
    messages = list(history)
    for at, event in enumerate(events):
        if isinstance(event, MessageEnd):
            messages.append(event.message)
        elif event.type in ("retry_start", "compaction_start"):
            behind = events[at - 1]
            if isinstance(behind, MessageEnd) and isinstance(behind.message, AssistantMessage):
                messages.pop()
        elif isinstance(event, CompactionEnd) and event.outcome == "compacted":
            assert event.summary is not None
            messages = [event.summary, *messages[event.first_kept :]]
    return messages


# When


async def test_F9_history_is_compacted_when_the_context_nears_the_window() -> None:
    """When the policy's threshold is reached, history is compacted before the turn's request is built."""
    provider = ScriptedProvider(["ok", finish()])
    policy = Policy(over=3)
    agent, recorder = make_agent(provider, messages=LONG, compaction=policy)
    result = await agent.prompt("hi")
    assert recorder.lines == [
        "agent_start",
        "turn_start 1",
        "message_start user",
        'message_end user "hi"',
        "compaction_start threshold",
        "compaction_end compacted",
        "message_start assistant",
        'message_update "ok"',
        'message_end assistant stop "ok"',
        "turn_end 1",
        "agent_end completed",
    ]
    assert said(provider.requests[0].messages) == ['user "summary"', 'user "hi"']
    assert said(agent.state.messages) == ['user "summary"', 'user "hi"', 'assistant stop "ok"']
    assert said(result.messages) == ['user "hi"', 'assistant stop "ok"']
    assert_settled(recorder)


async def test_F9_nothing_is_compacted_below_the_threshold() -> None:
    """A history below the threshold is left alone."""
    agent, recorder = make_agent(ScriptedProvider(["ok", finish()]), messages=LONG, compaction=Policy())
    await agent.prompt("hi")
    assert recorder.lines_of("compaction_start") == []
    assert_settled(recorder)


@pytest.mark.parametrize("begun", [[], [text("half")], [call("c1", "answers")]], ids=["no chunk", "text", "a call"])
async def test_F9_history_is_compacted_when_the_provider_says_that_it_overflowed(begun: list[Any]) -> None:
    """After a context overflow history is compacted and the turn's request is built anew; the failed attempt is
    gone.
    """
    provider = ScriptedProvider([*begun, OVERFLOW], ["ok", finish()])
    agent, recorder = make_agent(provider, messages=LONG, compaction=Policy(), tools=[answers])
    result = await agent.prompt("hi")
    assert result.outcome == "completed"
    assert recorder.lines_of("compaction_start", "compaction_end", "turn_start", "retry_start") == [
        "turn_start 1",
        "compaction_start overflow",
        "compaction_end compacted",
    ]
    assert said(provider.requests[1].messages) == ['user "summary"', 'user "hi"']
    assert said(agent.state.messages) == ['user "summary"', 'user "hi"', 'assistant stop "ok"']
    assert recorder.lines_of("tool_execution_start") == []
    assert_settled(recorder)


async def test_F9_an_overflow_is_compacted_at_most_once_per_turn() -> None:
    """A second overflow in the same turn fails the run with it."""
    provider = ScriptedProvider([OVERFLOW], [OVERFLOW])
    policy = Policy()
    agent, recorder = make_agent(provider, messages=LONG, compaction=policy)
    result = await agent.prompt("hi")
    assert (result.outcome, result.error, result.reason) == ("error", OVERFLOW, "context_overflow")
    assert policy.reasons == ["overflow"]
    assert_settled(recorder)


async def test_F9_each_turn_may_compact_an_overflow() -> None:
    """At most once per turn, not per run: the next turn may compact again."""
    provider = ScriptedProvider([OVERFLOW], [call("c1", "answers"), finish("tool_use")], [OVERFLOW], ["done", finish()])
    policy = Policy(keep=2)
    agent, recorder = make_agent(provider, messages=LONG, compaction=policy, tools=[answers])
    result = await agent.prompt("hi")
    assert result.outcome == "completed"
    assert policy.reasons == ["overflow", "overflow"]
    assert_settled(recorder)


async def test_F9_an_overflow_without_a_policy_fails_the_run() -> None:
    """Without a policy an overflow is an error like any other that is not retryable."""
    agent, recorder = make_agent(ScriptedProvider([OVERFLOW]), messages=LONG)
    result = await agent.prompt("hi")
    assert (result.outcome, result.error) == ("error", OVERFLOW)
    assert recorder.lines_of("compaction_start") == []
    assert_settled(recorder)


async def test_F9_a_threshold_compaction_and_an_overflow_may_come_in_one_turn() -> None:
    """The provider's own window may be smaller than the policy's: an overflow behind a compaction is compacted once
    more.
    """
    provider = ScriptedProvider([OVERFLOW], ["ok", finish()])
    policy = Policy(over=4, keep=3)
    agent, recorder = make_agent(provider, messages=LONG, compaction=policy)
    result = await agent.prompt("hi")
    assert policy.reasons == ["threshold", "overflow"]
    assert result.outcome == "completed"
    assert_settled(recorder)


# A call and its result


WITH_CALLS: list[Message] = [
    UserMessage("a"),
    AssistantMessage([ToolCall("c1", "answers"), ToolCall("c2", "answers")], "tool_use"),
    ToolResultMessage("c1", "answers", "fine"),
    ToolResultMessage("c2", "answers", "fine"),
    AssistantMessage("done"),
]


@pytest.mark.parametrize("keep", range(1, 6))
@pytest.mark.parametrize("reason", ["threshold", "overflow"])
async def test_F9_a_call_and_its_result_are_never_parted(keep: int, reason: str) -> None:
    """A policy that would keep a result without its call is refused, whatever it keeps: every request is sendable."""
    provider = ScriptedProvider(*([[OVERFLOW]] if reason == "overflow" else []), ["ok", finish()])
    policy = Policy(over=5 if reason == "threshold" else 99, keep=keep)
    agent, recorder = make_agent(provider, messages=WITH_CALLS, compaction=policy, tools=[answers])
    result = await agent.prompt("hi")
    parts = keep in (3, 4)
    assert recorder.lines_of("compaction_end") == [f"compaction_end {'failed' if parts else 'compacted'}"]
    assert result.outcome == ("error" if parts and reason == "overflow" else "completed")
    for request in provider.requests:
        assert_sendable(request.messages)
    assert_sendable(agent.state.messages)
    assert_settled(recorder)


@pytest.mark.parametrize(
    "made",
    [None, "summary", Compaction(SUMMARY, 0), Compaction(SUMMARY, 6), Compaction(SUMMARY, -1), Compaction("text", 1)],  # type: ignore[arg-type]
    ids=[
        "None",
        "a text",
        "first_kept 0",
        "first_kept behind the end",
        "first_kept -1",
        "a summary that is no message",
    ],
)
async def test_F9_an_unusable_answer_of_the_policy_is_a_failed_compaction(made: Any) -> None:
    """What is no compaction of that history changes nothing: it is reported, and the run goes on uncompacted."""

    class Wrong(Policy):
        async def compact(self, messages: Sequence[Message], reason: str) -> Compaction:
            return made  # type: ignore[no-any-return]

    provider = ScriptedProvider(["ok", finish()])
    agent, recorder = make_agent(provider, messages=LONG, compaction=Wrong(over=1))
    result = await agent.prompt("hi")
    assert recorder.lines_of("compaction_end") == ["compaction_end failed"]
    assert len(result.suppressed) == 1
    assert len(provider.requests[0].messages) == 5
    assert_settled(recorder)


# Failures


async def test_F9_a_compaction_at_the_threshold_that_fails_is_reported_and_the_run_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A compaction at the threshold that fails is told, logged and kept; the request goes out uncompacted."""
    boom = ValueError("no summary")
    provider = ScriptedProvider(["ok", finish()])
    agent, recorder = make_agent(provider, messages=LONG, compaction=Policy(over=1, failing=boom))
    with caplog.at_level(logging.ERROR, "trio_agent"):
        result = await agent.prompt("hi")
    end = next(event for event in recorder.events if isinstance(event, CompactionEnd))
    assert (end.outcome, end.error, end.summary, end.first_kept) == ("failed", "ValueError: no summary", None, None)
    assert (result.outcome, result.suppressed) == ("completed", (boom,))
    assert "no summary" in caplog.text
    assert len(provider.requests[0].messages) == 5
    assert_settled(recorder)


async def test_F9_a_compaction_after_an_overflow_that_fails_fails_the_run_with_the_overflow() -> None:
    """If the compaction after an overflow fails, the run fails with the overflow; why it failed is kept."""
    boom = ValueError("no summary")
    agent, recorder = make_agent(ScriptedProvider(["half", OVERFLOW]), messages=LONG, compaction=Policy(failing=boom))
    result = await agent.prompt("hi")
    assert (result.outcome, result.error, result.suppressed) == ("error", OVERFLOW, (boom,))
    assert result.reason == "context_overflow"
    assert [line.partition(" !")[0] for line in recorder.lines[-6:]] == [
        "compaction_start overflow",
        "compaction_end failed",
        "message_start assistant",
        "message_end assistant error",
        "turn_end 1",
        "agent_end error context_overflow",
    ]
    assert_settled(recorder)


async def test_F9_a_policy_that_cannot_tell_whether_it_is_time_is_passed_over() -> None:
    """A `threshold` or `tokens` that raises is logged and kept; the run goes on as if there were no need."""

    class Confused(Policy):
        def tokens(self, state: AgentState) -> int:
            raise ValueError("tokens")

        def threshold(self, state: AgentState) -> bool:
            raise ValueError("threshold")

    agent, recorder = make_agent(ScriptedProvider([OVERFLOW], ["ok", finish()]), messages=LONG, compaction=Confused())
    result = await agent.prompt("hi")
    assert result.outcome == "completed"
    assert {str(failure) for failure in result.suppressed} == {"tokens", "threshold"}
    assert_settled(recorder)


async def test_F9_one_that_did_not_get_below_the_threshold_is_not_tried_again_until_a_turn_has_succeeded() -> None:
    """A compaction that left the context above the threshold is not tried again in that turn, nor in a run that
    fails.
    """
    provider = ScriptedProvider(
        [ProviderError("server", "down", retryable=False)],
        [ProviderError("server", "down", retryable=False)],
        ["ok", finish()],
        ["ok", finish()],
    )
    policy = Policy(over=1, keep=2)
    agent, recorder = make_agent(provider, messages=LONG, compaction=policy)
    await agent.prompt("one")
    assert policy.reasons == ["threshold"]
    await agent.prompt("two")
    assert policy.reasons == ["threshold"], "no turn has succeeded since"
    await agent.prompt("three")
    assert policy.reasons == ["threshold"], "looked at before the turn that succeeds"
    await agent.prompt("four")
    assert policy.reasons == ["threshold", "threshold"]
    assert_settled(recorder)


async def test_F9_one_that_failed_is_not_tried_again_until_a_turn_has_succeeded_either() -> None:
    """A failed compaction did not get below the threshold: an overflow right behind it fails the run."""
    policy = Policy(over=1, failing=ValueError("no"))
    agent, recorder = make_agent(ScriptedProvider([OVERFLOW]), messages=LONG, compaction=policy)
    result = await agent.prompt("hi")
    assert (policy.reasons, result.error) == (["threshold"], OVERFLOW)
    assert_settled(recorder)


# Where it lies


async def test_F9_compaction_begins_before_transform_context() -> None:
    """The hooks see the compacted history; after an overflow they are asked again."""
    seen: list[list[str]] = []

    def transform(messages: list[Message]) -> list[Message]:
        seen.append(said(messages))
        return messages

    provider = ScriptedProvider([OVERFLOW], ["ok", finish()])
    agent, recorder = make_agent(
        provider, messages=LONG, compaction=Policy(over=4, keep=3), hooks=Hooks(transform_context=transform)
    )
    await agent.prompt("hi")
    assert seen == [
        ['user "summary"', 'user "c"', 'assistant stop "d"', 'user "hi"'],
        ['user "summary"', 'user "c"', 'assistant stop "d"', 'user "hi"'],
    ]
    assert_settled(recorder)


async def test_F9_it_begins_from_phase_turn_only_and_goes_back_to_it() -> None:
    """Phase compaction lies between phases turn, also behind a retry: the phase is turn again before it begins."""
    provider = ScriptedProvider([ProviderError("server", "x")], [OVERFLOW], ["ok", finish()])
    agent, recorder = make_agent(provider, messages=LONG, compaction=Policy())
    await agent.prompt("hi")
    phases = [
        (event.type, state.phase)
        for event, state in zip(recorder.events, recorder.states, strict=True)
        if event.type.startswith(("retry", "compaction")) or state.phase is not Phase.TURN
    ]
    assert phases == [
        ("retry_start", Phase.RETRY),
        ("retry_end", Phase.RETRY),
        ("compaction_start", Phase.COMPACTION),
        ("compaction_end", Phase.COMPACTION),
    ]
    assert_settled(recorder)


async def test_F9_its_own_request_emits_no_message_events_and_counts_in_usage() -> None:
    """The request for a summary tells nothing of its own, and what it cost is in the run's and the agent's usage."""

    async def summarises(request: ModelRequest, send: Send) -> None:
        await send(TextDelta(0, "S"))
        await send(UsageReport(Usage(input=100, output=10)))
        await send(Finish("stop"))

    policy = SummarizingCompaction(summarises, model="small", window=400, keep_recent=20)
    history = [UserMessage("word " * 400), AssistantMessage("yes"), UserMessage("and"), AssistantMessage("so")]
    provider = ScriptedProvider([text("ok"), UsageReport(Usage(input=7, output=1)), finish()])
    agent, recorder = make_agent(provider, messages=history, compaction=policy)
    result = await agent.prompt("hi")
    assert recorder.lines_of("compaction_end") == ["compaction_end compacted"]
    assert recorder.lines_of("message_start") == ["message_start user", "message_start assistant"]
    asked = result.usage.input or 0
    assert asked > 7
    assert asked % 100 == 7, "the summary took requests of 100 tokens each"
    assert agent.state.usage == result.usage == recorder.events[-1].usage  # type: ignore[union-attr]
    assert_settled(recorder)


async def test_F9_what_a_failed_compaction_cost_counts_as_well() -> None:
    """A compaction whose request was answered with nothing has cost what it cost."""

    async def says_nothing(request: ModelRequest, send: Send) -> None:
        await send(UsageReport(Usage(input=100, output=10)))
        await send(Finish("stop"))

    policy = SummarizingCompaction(says_nothing, model="small", window=400, keep_recent=20)
    history = [UserMessage("word " * 400), AssistantMessage("yes"), UserMessage("and"), AssistantMessage("so")]
    provider = ScriptedProvider([text("ok"), UsageReport(Usage(input=7, output=1)), finish()])
    agent, recorder = make_agent(provider, messages=history, compaction=policy)
    result = await agent.prompt("hi")
    assert recorder.lines_of("compaction_end") == ["compaction_end failed"]
    assert (result.usage.input, result.usage.output) == (107, 11)
    assert_settled(recorder)


# Abort


@pytest.mark.parametrize("reason", ["threshold", "overflow"])
async def test_F9_abort_ends_it_at_once(reason: str) -> None:
    """An abort while a summary is being made ends it there and then; history is as it was."""
    provider = ScriptedProvider(*([[OVERFLOW]] if reason == "overflow" else []))
    policy = Policy(over=4 if reason == "threshold" else 99, seconds=1_000)
    agent, recorder = make_agent(provider, messages=LONG, compaction=policy)
    async with trio.open_nursery() as nursery:

        async def abort() -> None:
            await trio.sleep(30)
            assert agent.state.phase is Phase.COMPACTION
            agent.abort("enough")

        nursery.start_soon(abort)
        result = await agent.prompt("hi")
    assert recorder.events[-1].time == pytest.approx(30)
    assert recorder.lines_of("compaction_start", "compaction_end") == [
        f"compaction_start {reason}",
        "compaction_end aborted",
    ]
    assert (result.outcome, result.reason) == ("aborted", "enough")
    assert said(agent.state.messages) == [*said(LONG), 'user "hi"', "assistant aborted !aborted: enough"]
    assert_settled(recorder)


async def test_F9_a_summary_that_comes_in_spite_of_an_abort_changes_nothing() -> None:
    """A policy that swallows its cancellation and returns a summary has not compacted anything."""

    class Stubborn(Policy):
        async def compact(self, messages: Sequence[Message], reason: str) -> Compaction:
            with contextlib.suppress(trio.Cancelled):  # that is the fault that is tested
                await trio.sleep_forever()
            return Compaction(SUMMARY, 3)

    agent, recorder = make_agent(ScriptedProvider(), messages=LONG, compaction=Stubborn(over=1))
    async with trio.open_nursery() as nursery:

        async def abort() -> None:
            await trio.sleep(1)
            agent.abort()

        nursery.start_soon(abort)
        await agent.prompt("hi")
    assert recorder.lines_of("compaction_end") == ["compaction_end aborted"]
    assert said(agent.state.messages)[:4] == said(LONG)
    assert_settled(recorder)


@pytest.mark.parametrize("event", ["compaction_start", "compaction_end"])
@pytest.mark.parametrize("reason", ["threshold", "overflow"])
async def test_F9_a_failure_around_it_sends_nothing(event: str, reason: str) -> None:
    """A subscriber that fails at either event of a compaction ends the run there; no summary is asked for behind the
    start.
    """
    provider = ScriptedProvider(*([[OVERFLOW]] if reason == "overflow" else []))
    policy = Policy(over=4 if reason == "threshold" else 99)
    agent, recorder = make_agent(provider, messages=LONG, compaction=policy)

    def full(_: Any) -> None:
        raise ValueError("full")

    on(agent, event, full)
    result = await agent.prompt("hi")
    assert result.outcome == "error"
    assert policy.reasons == ([] if event == "compaction_start" else [reason])
    assert recorder.lines_of("compaction_end") == [
        f"compaction_end {'failed' if event == 'compaction_start' else 'compacted'}"
    ]
    assert_settled(recorder)


# What the events say


@pytest.mark.parametrize("summary", [SUMMARY, CustomMessage("summary", {"of": 3})], ids=["user", "custom"])
@pytest.mark.parametrize("keep", [1, 2, 3])
@pytest.mark.parametrize("begun", [[], [text("half")]], ids=["before the first chunk", "in the stream"])
async def test_F9_compaction_end_says_what_replaced_what(summary: Message, keep: int, begun: list[Any]) -> None:
    """From the events alone a log can rebuild history: the summary, and the index of the first message kept."""
    provider = ScriptedProvider([*begun, OVERFLOW], [call("c1", "answers"), finish("tool_use")], ["done", finish()])
    agent, recorder = make_agent(
        provider, messages=LONG, compaction=Policy(over=5, keep=keep, summary=summary), tools=[answers]
    )
    await agent.prompt("hi")
    ends = [event for event in recorder.events if isinstance(event, CompactionEnd)]
    assert next(end.outcome for end in ends) == "compacted"
    assert ends[0].summary is summary
    assert ends[0].first_kept == 5 - keep
    assert rebuilt(LONG, recorder.events) == list(agent.state.messages)
    assert_settled(recorder)


async def test_F9_the_events_say_how_large_the_context_was_and_is() -> None:
    """`compaction_start` and `compaction_end` tell the policy's count of tokens, before and after."""
    agent, recorder = make_agent(ScriptedProvider(["ok", finish()]), messages=LONG, compaction=Policy(over=4))
    await agent.prompt("hi")
    assert [event.tokens for event in recorder.events if event.type.startswith("compaction")] == [5, 2]  # type: ignore[union-attr]
    assert_settled(recorder)


async def test_F9_history_changes_at_compaction_end() -> None:
    """Subscribers of `compaction_start` still see the old history, those of `compaction_end` the new one."""
    agent, recorder = make_agent(
        ScriptedProvider(["ok", finish()]), messages=LONG, compaction=Policy(over=4, seconds=1)
    )
    await agent.prompt("hi")
    assert lengths(recorder, "compaction_start") == [5]
    assert lengths(recorder, "compaction_end") == [2]
    assert_settled(recorder)


def lengths(recorder: Recorder, type: str) -> list[int]:
    return [len(s.messages) for e, s in zip(recorder.events, recorder.states, strict=True) if e.type == type]


async def test_F9_what_is_queued_meanwhile_waits_for_the_turn_boundary() -> None:
    """A message steered during a compaction neither ends it nor is lost: it enters at the next turn boundary."""
    policy = Policy(over=4, seconds=5)
    provider = ScriptedProvider(["ok", finish()], ["and that", finish()])
    agent, recorder = make_agent(provider, messages=LONG, compaction=policy)
    on(agent, "compaction_start", lambda event: agent.steer("meanwhile"))
    result = await agent.prompt("hi")
    assert result.outcome == "completed"
    assert said(agent.state.messages) == [
        'user "summary"',
        'user "hi"',
        'assistant stop "ok"',
        'user "meanwhile"',
        'assistant stop "and that"',
    ]
    assert_settled(recorder)


async def test_F9_a_run_that_is_cancelled_while_it_compacts_is_lawful() -> None:
    """Cancelling the scope around a run in phase compaction ends the compaction, and settles."""
    agent, recorder = make_agent(ScriptedProvider([stall()]), messages=LONG, compaction=Policy(over=4, seconds=1_000))
    with trio.move_on_after(5) as scope:
        await agent.prompt("hi")
    assert scope.cancelled_caught
    assert recorder.lines_of("compaction_end") == ["compaction_end aborted"]
    assert_settled(recorder)
