"""Rules A1 to A5 and A7: abort, cancellation from outside, the grace period, agents inside tools."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import trio
from scenes import Recorder, assert_paired, assert_settled, make_agent, on

from trio_agent import (
    Agent,
    AssistantMessage,
    Compaction,
    Event,
    Hooks,
    ProviderError,
    RetryPolicy,
    RunResult,
    ToolContext,
    ToolResultMessage,
    UserMessage,
    tool,
)
from trio_agent.testing import ScriptedProvider, call, finish, stall, text

BUSY = ProviderError("overloaded", "busy")


@tool
async def hang() -> str:
    """Wait for ever."""
    await trio.sleep_forever()
    return "never"


@tool
async def echo(v: str) -> str:
    """Say it again."""
    return v


class Shorten:
    """A compaction that takes ten seconds."""

    def threshold(self, state: Any) -> bool:
        return len(state.messages) > 1

    async def compact(self, messages: Any, reason: str) -> Compaction:
        await trio.sleep(10)
        return Compaction(UserMessage("summary"), len(messages))


def asks_for(*names: str) -> list[Any]:
    return [text("let me"), *[call(f"c{at}", name) for at, name in enumerate(names, 1)], finish("tool_use")]


async def hook_that_hangs(*args: Any) -> None:
    await trio.sleep_forever()


# One way into each phase of a run in which it waits: what the agent is made of.
PHASES: dict[str, Callable[[], tuple[ScriptedProvider, dict[str, Any]]]] = {
    "before the first chunk": lambda: (ScriptedProvider([stall()]), {}),
    "mid text": lambda: (ScriptedProvider([text("he", "llo"), stall()]), {}),
    "mid arguments": lambda: (ScriptedProvider([call("c1", "hang", '{"a":', cut=2), stall()]), {}),
    "behind the end marker": lambda: (ScriptedProvider([text("hello"), finish(), stall()]), {}),
    "tools": lambda: (ScriptedProvider(asks_for("hang", "hang")), {"tools": [hang]}),
    "transform_context": lambda: (ScriptedProvider(), {"hooks": Hooks(transform_context=hook_that_hangs)}),
    "before_tool_call": lambda: (
        ScriptedProvider(asks_for("hang")),
        {"tools": [hang], "hooks": Hooks(before_tool_call=hook_that_hangs)},
    ),
    "after_tool_result": lambda: (
        ScriptedProvider([call("c1", "echo", {"v": "x"}), finish("tool_use")]),
        {"tools": [echo], "hooks": Hooks(after_tool_result=hook_that_hangs)},
    ),
    "should_stop_after_turn": lambda: (
        ScriptedProvider([text("hi"), finish()]),
        {"hooks": Hooks(should_stop_after_turn=hook_that_hangs)},
    ),
    "retry": lambda: (ScriptedProvider([BUSY]), {"retry": RetryPolicy(base_delay=100, jitter=False)}),
    "compaction": lambda: (ScriptedProvider(), {"compaction": Shorten(), "messages": [UserMessage("old")]}),
}


def made(phase: str) -> tuple[Agent, Recorder]:
    provider, options = PHASES[phase]()
    return make_agent(provider, **options)


def check_aborted(recorder: Recorder) -> None:
    assert_settled(recorder)
    assert recorder.types.count("agent_end") == 1
    assert recorder.events[-1].outcome == "aborted"
    last = recorder.agent.state.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert last.stop_reason == "aborted"
    assert_paired([m for m in recorder.agent.state.messages if m is not last or not last.tool_calls])


# A1


async def test_A1_abort_when_idle_does_nothing_and_is_not_remembered() -> None:
    """abort() of an idle agent does nothing, and none is remembered for the next run."""
    agent, recorder = make_agent(ScriptedProvider([text("hi"), finish()]))
    agent.abort("nobody")
    agent.abort()
    assert (await agent.prompt("go")).outcome == "completed"
    agent.abort()
    assert_settled(recorder)


@pytest.mark.parametrize("phase", PHASES)
async def test_A1_abort_works_in_every_phase_any_number_of_times(phase: str) -> None:
    """Wherever a run waits, abort() ends it at once, once, however often it is called."""
    agent, recorder = made(phase)
    async with trio.open_nursery() as nursery:
        results: list[RunResult] = []

        async def go() -> None:
            results.append(await agent.prompt("go"))

        nursery.start_soon(go)
        await trio.sleep(1)
        began = trio.current_time()
        for _ in range(3):
            agent.abort("enough")
        await agent.wait_for_idle()
    assert trio.current_time() == began
    assert (results[0].outcome, results[0].reason) == ("aborted", "enough")
    check_aborted(recorder)


async def test_A1_an_aborted_run_leaves_the_next_one_alone() -> None:
    """The run after an aborted one completes."""
    agent, recorder = make_agent(ScriptedProvider([text("he"), stall()], [text("hi"), finish()]))
    on(agent, "message_update", lambda event: agent.abort())
    assert (await agent.prompt("one")).outcome == "aborted"
    assert (await agent.prompt("two")).outcome == "completed"
    assert_settled(recorder)


# A2


@pytest.mark.parametrize("at", ["agent_start", "turn_start", "message_start", "message_end"])
async def test_A2_after_abort_no_request_begins(at: str) -> None:
    """An abort before the request means that there is none; the prompt is in history all the same."""
    provider = ScriptedProvider([text("never"), finish()])
    agent, recorder = make_agent(provider)
    on(agent, at, lambda event: agent.abort())
    assert (await agent.prompt("go")).outcome == "aborted"
    assert provider.requests == []
    assert recorder.lines_of("message_end") == [
        'message_end user "go"',
        "message_end assistant aborted !aborted",
    ]
    check_aborted(recorder)


async def test_A2_a_message_half_streamed_ends_aborted_with_what_had_arrived() -> None:
    """The message that was streaming becomes the closing message."""
    agent, recorder = make_agent(ScriptedProvider([text("Hel", "lo"), stall()]))
    on(agent, "message_update", lambda event: agent.abort("stop"), nth=2)
    await agent.prompt("go")
    assert recorder.lines[-3:] == [
        'message_end assistant aborted "Hello" !aborted: stop',
        "turn_end 1",
        "agent_end aborted stop",
    ]
    check_aborted(recorder)


async def test_A2_calls_under_way_or_not_begun_say_so_and_a_recorded_outcome_stays() -> None:
    """Of three calls one was done, one ran, one had not begun: each result says which it was."""
    ran: list[str] = []

    @tool
    async def reports(context: ToolContext) -> str:
        """Report once, then hang."""
        await context.update("half way")
        await trio.sleep_forever()
        return "never"

    @tool(serial=True)
    async def later() -> str:
        """Must not run."""
        ran.append("later")
        return "x"

    provider = ScriptedProvider(
        [call("c1", "echo", {"v": "A"}), call("c2", "reports"), call("c3", "later"), finish("tool_use")]
    )
    agent, recorder = make_agent(provider, tools=[echo, reports, later])
    on(agent, "tool_execution_update", lambda event: agent.abort())
    await agent.prompt("go")
    one, two, three = [m for m in agent.state.messages if isinstance(m, ToolResultMessage)]
    assert (one.text, one.is_error) == ("A", False)
    assert two.is_error
    assert "aborted" in two.text
    assert "half way" in two.text
    assert three.is_error
    assert "Not run" in three.text
    assert ran == []
    check_aborted(recorder)


async def test_A2_a_tool_that_was_spawned_but_not_begun_never_runs_a_line() -> None:
    """Tools are spawned behind the last start; an abort before they are scheduled keeps them from beginning."""
    begun: list[bool] = []

    @tool
    async def work() -> str:
        """Note whether the run was being aborted when it began."""
        begun.append(recorder.agent.state.phase.value == "turn" and aborted[0])
        return "x"

    aborted = [False]
    agent, recorder = make_agent(ScriptedProvider(asks_for("work", "work")), tools=[work])
    async with trio.open_nursery() as nursery:

        def abort() -> None:
            aborted[0] = True
            agent.abort()

        def abort_soon(event: Event) -> None:
            trio.lowlevel.current_trio_token().run_sync_soon(abort)

        on(agent, "tool_execution_start", abort_soon, nth=2)
        nursery.start_soon(agent.prompt, "go")
    assert True not in begun
    check_aborted(recorder)


async def test_A2_abort_during_the_delivery_of_agent_end_changes_no_outcome() -> None:
    """Behind agent_end the outcome stands."""
    agent, recorder = make_agent(ScriptedProvider([text("hi"), finish()]))
    on(agent, "agent_end", lambda event: agent.abort())
    assert (await agent.prompt("go")).outcome == "completed"
    assert_settled(recorder)


async def test_A2_a_provider_that_never_reaches_a_checkpoint_is_stopped_all_the_same() -> None:
    """The run asks its own abort state between events; nothing of a provider that never blocks comes behind it."""
    provider = ScriptedProvider([*[text("x")] * 500, finish()], checkpoints=False)
    agent, recorder = make_agent(provider)
    on(agent, "message_update", lambda event: agent.abort(), nth=3)
    await agent.prompt("go")
    assert recorder.types.count("message_update") == 3
    check_aborted(recorder)


async def test_A2_a_tool_that_swallows_its_cancellation_changes_nothing() -> None:
    """Async code that swallows Cancelled and returns gets the result of an aborted call all the same (A4)."""

    @tool
    async def stubborn() -> str:
        """Swallow."""
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            return "I did it"
        return "never"

    agent, recorder = make_agent(ScriptedProvider(asks_for("stubborn")), tools=[stubborn])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.sleep(1)
        agent.abort()
    (result,) = [m for m in agent.state.messages if isinstance(m, ToolResultMessage)]
    assert result.is_error
    assert "I did it" not in result.text
    check_aborted(recorder)


# A3


async def test_A3_abort_does_not_cancel_a_subscriber() -> None:
    """What was emitted is handled: a subscriber that needs two seconds gets them."""
    handled: list[str] = []

    async def slow(event: Event) -> None:
        await trio.sleep(2 if event.type == "message_update" else 0)
        handled.append(event.type)

    agent, recorder = make_agent(ScriptedProvider([text("he"), stall()]))
    agent.subscribe(slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.sleep(1)
        agent.abort()
    assert handled == recorder.types
    check_aborted(recorder)


async def test_A3_a_subscriber_that_hangs_is_cut_after_half_of_what_is_left_and_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With five seconds of grace a hanging subscriber is cut after 2.5, the next one after 1.25, and so on."""
    cut: list[float] = []

    async def hangs(event: Event) -> None:
        if event.type != "message_update":
            return
        began = trio.current_time()
        try:
            await trio.sleep_forever()
        finally:
            cut.append(trio.current_time() - began)

    agent, _ = make_agent(ScriptedProvider([text("he"), stall()]))
    on(agent, "message_update", lambda event: agent.abort())
    agent.subscribe(hangs)
    agent.subscribe(lambda event: hangs(event))
    after = Recorder(agent)
    began = trio.current_time()
    result = await agent.prompt("go")
    assert cut == [pytest.approx(2.5), pytest.approx(1.25)]
    assert trio.current_time() - began == pytest.approx(3.75)
    assert after.types[-1] == "agent_end", "those behind one that hangs still get every event"
    assert len(result.suppressed) == 2
    assert "did not return" in caplog.text
    assert_settled(after)


async def test_A3_prompt_comes_back_within_the_grace_period_whatever_hangs() -> None:
    """A subscriber that hangs at every event: every event still reaches everybody, and prompt() is back in time."""

    async def hangs(event: Event) -> None:
        if event.type not in ("agent_start", "turn_start") or agent.state.error_message:
            await trio.sleep_forever()

    agent, recorder = make_agent(ScriptedProvider([text("he"), stall()]), grace=4.0)
    agent.subscribe(hangs)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.sleep(1)
        began = trio.current_time()
        agent.abort()
        await agent.wait_for_idle()
    assert trio.current_time() - began <= 4.0
    check_aborted(recorder)


async def test_A3_without_any_grace_left_every_subscriber_is_still_called_and_its_first_wait_raises() -> None:
    """With a grace of 0 seconds the sync part of every subscriber runs; its first wait raises."""
    called: list[str] = []
    waited: list[str] = []

    async def waits(event: Event) -> None:
        called.append(event.type)
        await trio.lowlevel.checkpoint()
        waited.append(event.type)

    agent, recorder = make_agent(ScriptedProvider([text("he"), stall()]), grace=0)
    on(agent, "message_update", lambda event: agent.abort())
    agent.subscribe(waits)
    await agent.prompt("go")
    assert called == recorder.types
    assert waited[-1] == "message_start"
    check_aborted(recorder)


async def test_A3_the_deadline_is_absolute_and_extended_by_nothing() -> None:
    """A second abort, later, does not move the deadline of the first."""

    async def hangs(event: Event) -> None:
        if event.type in ("message_end", "turn_end", "agent_end") and recorder.types.count("message_update"):
            await trio.sleep_forever()

    agent, recorder = make_agent(ScriptedProvider([text("he"), stall()]))
    agent.subscribe(hangs)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.sleep(1)
        began = trio.current_time()
        agent.abort()
        await trio.sleep(2)
        agent.abort()
        await agent.wait_for_idle()
    assert trio.current_time() - began <= 5.0
    check_aborted(recorder)


async def test_A3_scopes_of_a_provider_do_not_reach_into_subscribers() -> None:
    """A provider's own time-out around `send` cuts the provider, never a subscriber."""
    handled: list[str] = []

    async def provider(request: Any, send: Any) -> None:
        from trio_agent import Finish, TextDelta

        with trio.move_on_after(1):
            for _ in range(200):
                await send(TextDelta(0, "x"))
        await send(Finish("stop"))

    async def slow(event: Event) -> None:
        await trio.sleep(0.1)
        handled.append(event.type)

    agent, recorder = make_agent(provider)
    agent.subscribe(slow)
    assert (await agent.prompt("go")).outcome == "completed"
    assert handled == recorder.types
    assert_settled(recorder)


# A4


@pytest.mark.real_time
async def test_A4_a_thread_that_cannot_be_stopped_is_left_behind_and_its_answer_dropped() -> None:
    """abort() does not wait for a thread; what the thread returns later is dropped."""
    release = threading.Event()

    @tool
    def blocks() -> str:
        """Block in a thread."""
        release.wait(30)
        return "too late"

    agent, recorder = make_agent(ScriptedProvider(asks_for("blocks")), tools=[blocks])
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.prompt, "go")
            while not recorder.lines_of("tool_execution_start"):
                await trio.sleep(0.01)
            await trio.sleep(0.05)
            began = time.monotonic()
            agent.abort()
            await agent.wait_for_idle()
        assert time.monotonic() - began < 2
    finally:
        release.set()
    (result,) = [m for m in agent.state.messages if isinstance(m, ToolResultMessage)]
    assert result.is_error
    assert "too late" not in result.text
    check_aborted(recorder)


@pytest.mark.real_time
async def test_A4_when_all_threads_are_left_behind_further_sync_calls_get_an_error_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With every thread for tools left behind a sync tool is refused, and told why; async tools go on."""
    from trio_agent import _threads

    monkeypatch.setattr(_threads, "THREADS", 1)
    release = threading.Event()

    @tool(timeout=0.05)
    def blocks() -> str:
        """Block in a thread."""
        release.wait(30)
        return "too late"

    provider = ScriptedProvider(
        asks_for("blocks"),
        [call("d1", "blocks"), call("d2", "echo", {"v": "x"}), finish("tool_use")],
        [text("ok"), finish()],
    )
    agent, recorder = make_agent(provider, tools=[blocks, echo])
    try:
        await agent.prompt("go")
    finally:
        release.set()
    first, second, third = [m for m in agent.state.messages if isinstance(m, ToolResultMessage)]
    assert "timed out" in first.text
    assert "left behind" in second.text
    assert third.text == "x"
    assert_settled(recorder)


async def test_A4_code_that_refuses_to_end_is_waited_for_and_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A shielded tool cannot be left behind in Trio: its events come in time, its name is logged, it is waited for."""

    @tool
    async def refuses() -> str:
        """Shield."""
        with trio.CancelScope(shield=True):
            await trio.sleep(60)
        return "at last"

    agent, recorder = make_agent(ScriptedProvider(asks_for("refuses")), tools=[refuses])
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.sleep(1)
        agent.abort()
    assert trio.current_time() - began == pytest.approx(60)
    assert recorder.events[-1].time <= 6
    assert "refuses" in "".join(record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)
    check_aborted(recorder)


# A5


@pytest.mark.parametrize("phase", PHASES)
async def test_A5_outside_cancellation_settles_like_abort_and_reaches_its_scope(phase: str) -> None:
    """Wherever a run waits, cancelling the scope around prompt() settles it; Cancelled goes on to that scope, bare."""
    agent, recorder = made(phase)
    leaving: list[BaseException] = []
    with trio.move_on_after(1) as scope:
        try:
            await agent.prompt("go")
        except BaseException as exc:
            leaving.append(exc)
            raise
    assert scope.cancelled_caught
    assert [type(exc) for exc in leaving] == [trio.Cancelled]
    assert recorder.events[-1].reason == "cancelled"
    check_aborted(recorder)


async def test_A5_in_a_cancelled_scope_prompt_raises_with_no_event() -> None:
    """A prompt in a scope that is cancelled already changes nothing."""
    provider = ScriptedProvider([text("hi"), finish()])
    agent, recorder = make_agent(provider)
    with trio.CancelScope() as scope:
        scope.cancel()
        await agent.prompt("go")
    assert scope.cancelled_caught
    assert recorder.events == []
    assert provider.requests == []
    assert len(agent.state.messages) == 0
    assert (await agent.prompt("go")).outcome == "completed"


async def test_A5_if_both_happen_the_outer_scope_wins() -> None:
    """Abort, then outside cancellation while the run settles: the outcome stays, and Cancelled goes on."""

    async def slow(event: Event) -> None:
        await trio.sleep(1 if event.type == "turn_end" else 0)

    agent, recorder = make_agent(ScriptedProvider([text("he"), stall()]))
    agent.subscribe(slow)
    on(agent, "message_update", lambda event: agent.abort("first"))
    with trio.move_on_after(0.5) as scope:
        await agent.prompt("go")
    assert scope.cancelled_caught
    assert recorder.events[-1].reason == "first"
    check_aborted(recorder)


async def test_A5_a_cancelled_nursery_around_the_prompt_is_no_failure() -> None:
    """Cancelling the nursery that the prompt runs in raises no group of failures."""
    agent, recorder = make_agent(ScriptedProvider([text("he"), stall()]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    check_aborted(recorder)


@pytest.mark.parametrize("nth", range(1, 12))
async def test_A5_outside_cancellation_at_every_event(nth: int) -> None:
    """Cancelled by a subscriber at the n-th event, the run settles lawfully, and everybody sees its end."""
    provider = ScriptedProvider(
        [text("a"), call("c1", "echo", {"v": "x"}), finish("tool_use")], [text("done"), finish()]
    )
    agent, recorder = make_agent(provider, tools=[echo])
    seen = 0
    with trio.CancelScope() as scope:

        def cancel(event: Event) -> None:
            nonlocal seen
            seen += 1
            if seen == nth:
                scope.cancel()

        agent.subscribe(cancel)
        await agent.prompt("go")
    assert scope.cancelled_caught
    assert recorder.types[-1] == "agent_end"
    assert_settled(recorder)


# A7


def nested(inner: Agent) -> Any:
    @tool
    async def delegate() -> str:
        """Let another agent do it."""
        return (await inner.prompt("inner")).outcome

    return delegate


async def test_A7_aborting_the_outer_run_aborts_the_inner_one_lawfully() -> None:
    """The inner run of an agent inside a tool ends aborted too, and its trace is lawful."""
    inner, inside = make_agent(ScriptedProvider([text("he"), stall()]))
    outer, outside = make_agent(ScriptedProvider(asks_for("delegate")), tools=[nested(inner)])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outer.prompt, "go")
        await trio.sleep(1)
        outer.abort()
    check_aborted(inside)
    check_aborted(outside)


async def test_A7_the_inner_run_completes_undisturbed() -> None:
    """Undisturbed, an agent inside a tool is a tool like any other."""
    inner, inside = make_agent(ScriptedProvider([text("hi"), finish()]))
    outer, outside = make_agent(ScriptedProvider(asks_for("delegate"), [text("ok"), finish()]), tools=[nested(inner)])
    assert (await outer.prompt("go")).outcome == "completed"
    assert "completed" in outside.lines_of("tool_execution_end")[0]
    assert_settled(inside)
    assert_settled(outside)


@pytest.mark.parametrize("cancel", ["abort", "outside"])
async def test_A7_the_inner_grace_period_is_at_most_half_of_what_the_outer_has_left(cancel: str) -> None:
    """A subscriber of the inner run that hangs is cut within half of the outer run's grace period."""

    async def hangs(event: Event) -> None:
        if event.type in ("message_end", "turn_end", "agent_end") and inside.types.count("message_update"):
            await trio.sleep_forever()

    inner, inside = make_agent(ScriptedProvider([text("he"), stall()]))
    inner.subscribe(hangs)
    outer, outside = make_agent(ScriptedProvider(asks_for("delegate")), tools=[nested(inner)], grace=4.0)
    ended: list[float] = []

    async def go() -> None:
        with trio.CancelScope() as scope:
            scopes.append(scope)
            await outer.prompt("go")
        ended.append(trio.current_time())

    scopes: list[trio.CancelScope] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(go)
        await trio.sleep(1)
        began = trio.current_time()
        outer.abort() if cancel == "abort" else scopes[0].cancel()
        await inner.wait_for_idle()
        assert trio.current_time() - began <= 2.0
    assert ended[0] - began <= 4.0
    check_aborted(inside)
    check_aborted(outside)


async def test_A7_an_inner_abort_of_its_own_has_its_own_grace_period() -> None:
    """Only what the outer run has left bounds the inner one; an abort of the inner agent alone concerns it alone."""
    inner, inside = make_agent(ScriptedProvider([text("he"), stall()]))
    on(inner, "message_update", lambda event: inner.abort())
    outer, outside = make_agent(ScriptedProvider(asks_for("delegate"), [text("ok"), finish()]), tools=[nested(inner)])
    assert (await outer.prompt("go")).outcome == "completed"
    check_aborted(inside)
    assert_settled(outside)
