"""A1 to A5 and A7, sentence by sentence: abort, outside cancellation, the grace period, and an agent inside a tool.

Threads are in `test_threads.py`, the guards of A6 in `test_rules_guards.py`, interrupts in `test_rules_interrupts.py`.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from scenes import Recorder, assert_idle, assert_settled, deterministic, make_agent, on, said, trio_run
from tour import (
    LAST,
    MOMENTS,
    TOLD_BY,
    TOUR,
    At,
    Tour,
    assert_sendable,
    at_each_event,
    at_each_kind,
    at_each_moment,
    closing,
    tasks,
)

from trio_agent import (
    Agent,
    Event,
    Finish,
    Hooks,
    ModelRequest,
    RunResult,
    Send,
    TextDelta,
    ToolContext,
    ToolResultMessage,
    tool,
)
from trio_agent.testing import ScriptedProvider, call, finish, stall, text, thinking

GRACE = 8.0  # seconds; halves stay exact


@tool
async def waits() -> str:
    """Wait for ever."""
    await trio.sleep_forever()
    raise AssertionError("nobody wakes it")


@tool
async def answers() -> str:
    """Answer at once."""
    return "fine"


@asynccontextmanager
async def running(agent: Agent, input: str = "go") -> AsyncIterator[list[RunResult]]:
    """The run in a task of its own; the block goes on at once, and is left when the run has settled."""
    results: list[RunResult] = []

    async def run() -> None:
        results.append(await agent.prompt(input))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        yield results


def results_of(result: RunResult) -> list[str]:
    return [message.text for message in result.messages if isinstance(message, ToolResultMessage)]


# A1


def test_A1_abort_is_sync_and_does_nothing_when_idle() -> None:
    """`abort` is a plain function, callable outside of any `trio.run` while the agent is idle, and does nothing
    then.
    """
    agent, recorder = make_agent(ScriptedProvider())
    assert not inspect.iscoroutinefunction(agent.abort)
    agent.abort()
    agent.abort("why")
    assert recorder.events == []
    assert_idle(agent)


async def test_A1_an_abort_while_idle_is_not_remembered() -> None:
    """An abort before a run, or after one, does not touch the next."""
    agent, recorder = make_agent(ScriptedProvider(["one", finish()], ["two", finish()]))
    agent.abort("early")
    assert (await agent.prompt("a")).outcome == "completed"
    agent.abort("between")
    assert (await agent.prompt("b")).outcome == "completed"
    assert_settled(recorder)


async def test_A1_an_abort_belongs_to_one_run() -> None:
    """A run that was aborted, at any time up to its `agent_end`, leaves nothing for the next."""
    agent, recorder = make_agent(ScriptedProvider(["half", stall()], ["whole", finish()]))
    on(agent, "message_update", lambda event: agent.abort())
    on(agent, "agent_end", lambda event: agent.abort("again"))
    assert (await agent.prompt("a")).outcome == "aborted"
    assert (await agent.prompt("b")).outcome == "completed"
    assert_settled(recorder)


async def test_A1_an_abort_before_the_task_of_the_run_has_begun_finds_no_run() -> None:
    """A task that will call `prompt()` has not called it yet: there is no run to abort."""
    agent, recorder = make_agent(ScriptedProvider(["ok", finish()]))
    async with running(agent) as results:
        agent.abort()
    assert results[0].outcome == "completed"
    assert_settled(recorder)


@at_each_moment
async def test_A1_abort_can_be_called_any_number_of_times(moment: str) -> None:
    """Of many aborts the first counts, its reason included."""
    tour = Tour()
    async with running(tour.agent) as results:
        await trio.sleep(MOMENTS[moment])
        for reason in ("first", "second", None):
            tour.agent.abort(reason)
    assert (results[0].outcome, results[0].reason) == ("aborted", "first")
    assert tour.lines[-1] == "agent_end aborted first"
    assert_settled(tour.recorder)


@pytest.mark.parametrize(
    "hook", ["transform_context", "convert_to_llm", "before_tool_call", "after_tool_result", "should_stop_after_turn"]
)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_A1_abort_can_be_called_from_a_hook(hook: str, is_async: bool) -> None:
    """A hook may abort its run; what it gives is not acted on, and nothing begins behind it."""
    begun: list[str] = []

    def now(given: Any, *_: Any) -> Any:
        agent.abort("from the hook")
        return given if hook in ("transform_context", "convert_to_llm") else None

    async def later(given: Any, *_: Any) -> Any:
        return now(given)

    @tool
    async def notes() -> str:
        """Note."""
        begun.append("tool")
        return "fine"

    async def provider(request: ModelRequest, send: Send) -> None:
        begun.append("request")
        await script(request, send)

    script = ScriptedProvider([call("c1", "notes"), finish("tool_use")], ["done", finish()])
    agent, recorder = make_agent(provider, tools=[notes], hooks=Hooks(**{hook: later if is_async else now}))
    result = await agent.prompt("hi")
    assert (result.outcome, result.reason) == ("aborted", "from the hook")
    expected = {"transform_context": 0, "convert_to_llm": 0, "before_tool_call": 1}
    assert len(begun) == expected.get(hook, 2)
    assert_settled(recorder)
    assert_sendable(agent.state.messages)


async def test_A1_abort_can_be_called_from_a_tool() -> None:
    """A tool may abort its own run: it is cancelled at its next wait, and its call says that it was cut off."""

    @tool
    async def aborts() -> str:
        """Abort."""
        agent.abort("from the tool")
        await trio.sleep(1)
        raise AssertionError("it was not cancelled")

    agent, recorder = make_agent(ScriptedProvider([call("c1", "aborts"), finish("tool_use")]), tools=[aborts])
    result = await agent.prompt("hi")
    assert (result.outcome, result.reason) == ("aborted", "from the tool")
    assert "Cut off" in results_of(result)[0]
    assert_settled(recorder)


async def test_A1_abort_can_be_called_from_a_provider() -> None:
    """A provider may abort the run that asks it; what it sends afterwards is dropped."""

    async def provider(request: ModelRequest, send: Send) -> None:
        await send(TextDelta(0, "told"))
        await trio.sleep(1)
        agent.abort("from the provider")
        await send(TextDelta(0, "dropped"))
        raise AssertionError("it was not cancelled")

    agent, recorder = make_agent(provider)
    result = await agent.prompt("hi")
    assert (result.outcome, result.text) == ("aborted", "told")
    assert_settled(recorder)


async def test_A1_abort_can_be_called_from_a_system_task() -> None:
    """A task that is nobody's child may abort."""
    tour = Tour()

    async def elsewhere() -> None:
        await trio.sleep(6.5)
        tour.agent.abort("from elsewhere")

    trio.lowlevel.spawn_system_task(elsewhere)
    result = await tour.agent.prompt("go")
    assert result.reason == "from elsewhere"
    assert_settled(tour.recorder)


# A2: every event, every phase


@at_each_event
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_A2_after_an_abort_at_any_event_nothing_begins_and_the_run_closes(k: int, is_async: bool) -> None:
    """From an abort at any event on no request, tool, hook or compaction begins; the run closes on the shortest way."""
    tour = Tour()
    begun: list[int] = []

    def abort() -> None:
        tour.agent.abort("enough")
        begun.append(len(tour.begun))

    tour.agent.subscribe(At(k, abort, is_async=is_async))
    behind = Recorder(tour.agent)
    before = tasks()
    result = await tour.agent.prompt("go")
    assert tour.cut_lines(k) == TOUR[: k + 1] + closing(k, "aborted")
    assert behind.lines == tour.lines
    assert len(tour.begun) == begun[0], f"begun after the abort: {tour.begun[begun[0] :]}"
    expected = ("completed", None) if k == LAST else ("aborted", "enough")
    assert (result.outcome, result.reason, result.error, result.suppressed) == (*expected, None, ())
    assert_settled(tour.recorder)
    assert_sendable(tour.agent.state.messages)
    assert tasks() == before


@at_each_event
async def test_A2_an_abort_from_another_task_while_any_event_is_told(k: int) -> None:
    """An abort by a sibling task while a subscriber is still busy with any event comes to the same."""
    tour = Tour()
    busy, go_on = trio.Event(), trio.Event()

    async def is_busy() -> None:
        busy.set()
        await go_on.wait()

    tour.agent.subscribe(At(k, is_busy, is_async=True))
    async with running(tour.agent) as results:
        await busy.wait()
        tour.agent.abort("enough")
        begun = len(tour.begun)
        await trio.testing.wait_all_tasks_blocked()
        go_on.set()
    assert tour.cut_lines(k) == TOUR[: k + 1] + closing(k, "aborted")
    assert len(tour.begun) == begun
    assert results[0].outcome == ("completed" if k == LAST else "aborted")
    assert_settled(tour.recorder)
    assert_sendable(tour.agent.state.messages)


@at_each_moment
async def test_A2_an_abort_between_events_ends_what_runs_at_once(moment: str) -> None:
    """In every phase, whatever runs is cancelled there and then, and the run closes at that very time."""
    tour = Tour()
    before = tasks()
    async with running(tour.agent) as results:
        await trio.sleep(MOMENTS[moment])
        tour.agent.abort()
    told = TOLD_BY[moment]
    assert tour.cut_lines(told) == TOUR[: told + 1] + closing(told, "aborted")
    assert tour.recorder.events[-1].time == pytest.approx(MOMENTS[moment])
    assert (results[0].outcome, results[0].reason) == ("aborted", None)
    assert_settled(tour.recorder)
    assert_sendable(tour.agent.state.messages)
    assert tasks() == before


async def never(*_: Any) -> Any:
    await trio.sleep_forever()


# Ways of waiting that the tour does not have: what the agent is made of.
ELSEWHERE: dict[str, Callable[[], tuple[ScriptedProvider, dict[str, Any]]]] = {
    "behind the end marker": lambda: (ScriptedProvider([text("hello"), finish(), stall()]), {}),
    "in transform_context": lambda: (ScriptedProvider(), {"hooks": Hooks(transform_context=never)}),
    "in convert_to_llm": lambda: (ScriptedProvider(), {"hooks": Hooks(convert_to_llm=never)}),
    "in before_tool_call": lambda: (ScriptedProvider(_call("waits")), {"hooks": Hooks(before_tool_call=never)}),
    "in after_tool_result": lambda: (ScriptedProvider(_call("answers")), {"hooks": Hooks(after_tool_result=never)}),
    "in should_stop_after_turn": lambda: (
        ScriptedProvider([text("hi"), finish()]),
        {"hooks": Hooks(should_stop_after_turn=never)},
    ),
    "waiting for a slot": lambda: (
        ScriptedProvider([call("c1", "waits"), call("c2", "waits"), finish("tool_use")]),
        {"max_parallel_tools": 1},
    ),
}


def _call(name: str) -> list[Any]:
    return [call("c1", name), finish("tool_use")]


@pytest.mark.parametrize("where", ELSEWHERE)
@pytest.mark.parametrize("how", ["abort", "cancel"])
async def test_A2_A5_a_run_that_waits_anywhere_else_is_ended_at_once(where: str, how: str) -> None:
    """In hooks, behind the end marker and before a slot, too, an abort or a cancellation ends the wait there and
    then.
    """
    provider, options = ELSEWHERE[where]()
    agent, recorder = make_agent(provider, tools=[waits, answers], **options)
    scope = trio.CancelScope()
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            with scope:
                await agent.prompt("go")

        nursery.start_soon(run)
        await trio.sleep(1)
        assert agent.state.phase.value == "turn"
        agent.abort() if how == "abort" else scope.cancel()
    assert trio.current_time() == 1
    assert scope.cancelled_caught is (how == "cancel")
    assert recorder.lines[-1].startswith("agent_end aborted")
    assert_settled(recorder)
    assert_sendable(agent.state.messages)
    answered = [m.text for m in agent.state.messages if isinstance(m, ToolResultMessage) and "fine" in m.text]
    assert len(answered) == (where == "in after_tool_result"), "what a tool had answered is told all the same"


# A2: its words


async def test_A2_work_is_cancelled_without_a_checkpoint_of_its_own() -> None:
    """A provider that never reaches a checkpoint of its own is stopped too: its message is what had been told."""
    sent: list[int] = []

    async def provider(request: ModelRequest, send: Send) -> None:
        for n in range(100_000):
            await send(TextDelta(0, f"{n} "))
            sent.append(n)
        raise AssertionError("it was not cancelled")

    agent, recorder = make_agent(provider)
    on(agent, "message_update", lambda event: agent.abort(), nth=3)
    result = await agent.prompt("hi")
    assert (result.outcome, result.text) == ("aborted", "0 1 2 ")
    assert len(sent) < 1_000
    assert_settled(recorder)


async def test_A2_a_whole_run_without_a_checkpoint_notices_an_abort() -> None:
    """Provider, tool, hook and subscribers that never reach a checkpoint: an abort ends the run at its event all the
    same.
    """

    @tool
    async def instant() -> str:
        """Answer without waiting."""
        return "fine"

    for nth in range(1, 9):
        provider = ScriptedProvider(
            *[[text("a", "b"), call(f"c{n}", "instant"), finish("tool_use")] for n in range(3)],
            ["done", finish()],
            checkpoints=False,
        )
        agent, recorder = make_agent(
            provider, tools=[instant], hooks=Hooks(before_tool_call=lambda call, context: None)
        )
        on(agent, "message_end", lambda event, agent=agent: agent.abort(), nth=nth)  # type: ignore[misc]
        result = await agent.prompt("hi")
        assert result.outcome == "aborted"
        assert len(provider.requests) == nth // 2
        assert_settled(recorder)
        assert_sendable(agent.state.messages)


async def test_A2_a_message_half_streamed_ends_with_aborted() -> None:
    """A message that was streaming ends `aborted` with what had arrived, and is the closing message."""
    agent, recorder = make_agent(
        ScriptedProvider([thinking("hm"), text("hal", "f"), call("c1", "answers", '{"a":', cut=3), stall()]),
        tools=[answers],
    )
    async with running(agent):
        await trio.testing.wait_all_tasks_blocked()
        agent.abort("enough")
    assert recorder.lines[-3:] == [
        'message_end assistant aborted thinking "hm" "half" c1:answers !aborted: enough',
        "turn_end 1",
        "agent_end aborted enough",
    ]
    assert recorder.lines_of("tool_execution_start") == []
    assert_settled(recorder)


async def test_A2_calls_under_way_say_so_and_quote_their_last_update() -> None:
    """A call under way gets an error result that says that it was cut off, and quotes its last update if there was
    one.
    """

    @tool
    async def reports(times: int, context: ToolContext) -> str:
        """Report."""
        for n in range(times):
            await context.update(f"step {n} of many")
        await trio.sleep_forever()
        raise AssertionError("nobody wakes it")

    agent, recorder = make_agent(
        ScriptedProvider(
            [call("c1", "reports", {"times": 3}), call("c2", "reports", {"times": 0}), finish("tool_use")]
        ),
        tools=[reports],
    )
    async with running(agent) as results:
        await trio.testing.wait_all_tasks_blocked()
        agent.abort()
    quoting, silent = results_of(results[0])
    assert "abort" in quoting
    assert "step 2 of many" in quoting
    assert "step 1" not in quoting
    assert "abort" in silent
    assert "step" not in silent
    assert_settled(recorder)


async def test_A2_calls_not_begun_say_so() -> None:
    """A call that had not begun, behind a barrier or not even prepared, gets an error result saying that."""

    @tool(serial=True)
    async def alone() -> str:
        """Run alone."""
        await trio.sleep_forever()
        raise AssertionError("nobody wakes it")

    agent, recorder = make_agent(
        ScriptedProvider([call("c1", "alone"), call("c2", "answers"), finish("tool_use")]), tools=[alone, answers]
    )
    async with running(agent) as results:
        await trio.testing.wait_all_tasks_blocked()
        agent.abort()
    first, second = results_of(results[0])
    assert first.startswith("Cut off")
    assert second.startswith("Not run")
    assert_settled(recorder)


async def test_A2_a_call_whose_outcome_was_recorded_before_the_abort_keeps_its_result() -> None:
    """Two calls end at once; an abort at the end event of the first: the second keeps the result that it came to."""
    gate = trio.Event()

    @tool
    async def ends(n: int) -> str:
        """End."""
        await gate.wait()
        return f"result {n}"

    agent, recorder = make_agent(
        ScriptedProvider([call("c1", "ends", {"n": 1}), call("c2", "ends", {"n": 2}), finish("tool_use")]), tools=[ends]
    )

    async def abort_a_little_later(event: Event) -> None:
        await trio.testing.wait_all_tasks_blocked()
        agent.abort()

    on(agent, "tool_execution_end", abort_a_little_later)
    async with running(agent) as results:
        await trio.testing.wait_all_tasks_blocked()
        gate.set()
    assert results_of(results[0]) == ["result 1", "result 2"]
    assert results[0].outcome == "aborted"
    assert_settled(recorder)


async def test_A2_a_tool_that_had_been_woken_but_not_begun_never_runs_a_line() -> None:
    """An abort between the waking of a tool's task and its first step: not a line of the tool runs."""
    woken: list[str] = []

    @tool
    async def notes() -> str:
        """Note."""
        raise AssertionError("it ran")

    class AbortAtWaking(trio.abc.Instrument):
        def task_scheduled(self, task: trio.lowlevel.Task) -> None:
            if task.name.startswith("tool"):
                woken.append(task.name)
                agent.abort()

    agent, recorder = make_agent(ScriptedProvider([call("c1", "notes"), finish("tool_use")]), tools=[notes])
    instrument = AbortAtWaking()
    trio.lowlevel.add_instrument(instrument)
    result = await agent.prompt("hi")
    trio.lowlevel.remove_instrument(instrument)
    assert len(woken) == 1
    assert results_of(result)[0].startswith("Not run")
    assert_settled(recorder)


@pytest.mark.parametrize("who", ["tool", "provider", "hook"])
async def test_A2_the_run_is_closed_after_its_work_has_ended(who: str) -> None:
    """Nothing of the closing is told before the work that was cut off has cleaned up: a file that it wrote is whole."""
    order: list[str] = []

    async def cleans_up(*_: Any) -> Any:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            order.append("cleaned up")

    @tool
    async def writes() -> str:
        """Write."""
        await cleans_up()
        raise AssertionError("nobody wakes it")

    agent, recorder = make_agent(
        cleans_up if who == "provider" else ScriptedProvider(_call("writes")),
        tools=[writes],
        hooks=Hooks(before_tool_call=cleans_up) if who == "hook" else None,
    )
    async with running(agent):
        await trio.sleep(5)
        agent.subscribe(lambda event: order.append(event.type))
        agent.abort()
    assert order[0] == "cleaned up"
    assert order[-1] == "agent_end"
    assert recorder.events[-1].time == 6
    assert_settled(recorder)


async def test_A2_an_abort_during_the_delivery_of_agent_end_changes_no_outcome() -> None:
    """While `agent_end` is delivered the outcome stands; the abort only bounds what subscribers still take."""
    agent, recorder = make_agent(ScriptedProvider(["ok", finish()]), grace=GRACE)

    async def abort_and_hang(event: Event) -> None:
        agent.abort("late")
        await trio.sleep_forever()

    on(agent, "agent_end", abort_and_hang)
    result = await agent.prompt("hi")
    assert (result.outcome, result.reason) == ("completed", None)
    assert recorder.events[-1].time == 0
    assert trio.current_time() == pytest.approx(GRACE / 2)
    assert recorder.lines[-1] == "agent_end completed"
    assert_settled(recorder)


# A3


class Slow:
    """A subscriber that takes its time at some events, and notes when it was called and how it ended."""

    def __init__(self, seconds: float, *types: str) -> None:
        self.seconds = seconds
        self.types = types
        self.log: list[tuple[str, float, str, float]] = []

    async def __call__(self, event: Event) -> None:
        if event.type not in self.types:
            return
        began, ended = trio.current_time(), "cut"
        try:
            await trio.sleep(self.seconds)
            ended = "done"
        finally:
            self.log.append((event.type, began, ended, trio.current_time()))


async def test_A3_abort_does_not_cancel_a_subscriber() -> None:
    """A subscriber that is in the middle of an event when the run is aborted handles it to its end."""
    agent, recorder = make_agent(ScriptedProvider(["half", stall()]), grace=GRACE)
    slow = Slow(2, "message_update", "message_end", "agent_end")
    agent.subscribe(slow)
    async with running(agent):
        await trio.sleep(3)  # one second into the update: the user's message took two
        agent.abort()
    assert [(type, began, ended) for type, began, ended, _ in slow.log] == [
        ("message_end", 0, "done"),
        ("message_update", 2, "done"),
        ("message_end", 4, "done"),
        ("agent_end", 6, "done"),
    ]
    assert_settled(recorder)


async def test_A3_a_subscriber_that_hangs_is_cut_after_half_of_what_is_left(caplog: pytest.LogCaptureFixture) -> None:
    """Three subscribers hang at one event: cut after a half, a quarter and an eighth of the grace period, and
    reported.
    """
    agent, recorder = make_agent(ScriptedProvider(["half", stall()]), grace=GRACE)
    hanging = [Slow(float("inf"), "message_update") for _ in range(3)]
    for one in hanging:
        agent.subscribe(one)
    behind = Recorder(agent)
    async with running(agent) as results:
        await trio.sleep(10)
        aborted = trio.current_time()
        agent.abort()
    assert [(ended, at - aborted) for one in hanging for _, _, ended, at in one.log] == [
        ("cut", pytest.approx(4)),
        ("cut", pytest.approx(6)),
        ("cut", pytest.approx(7)),
    ]
    assert behind.lines == recorder.lines, "those behind it still got everything"
    assert [type(failure) for failure in results[0].suppressed] == [TimeoutError] * 3
    assert all("message_update" in str(failure) for failure in results[0].suppressed)
    assert len([record for record in caplog.records if "did not return" in record.message]) == 3
    assert results[0].outcome == "aborted"
    assert trio.current_time() - aborted == pytest.approx(7)
    assert_settled(recorder)


@at_each_kind
async def test_A3_abort_brings_prompt_back_within_the_grace_period_whatever_hangs(k: int) -> None:
    """Two subscribers hang at every event from any one on: the run is back within the grace period, everybody was
    told all.
    """
    tour = Tour(grace=GRACE)
    hangs = trio.Event()

    async def hang() -> None:
        hangs.set()
        await trio.sleep_forever()

    hanging = [At(k, hang, is_async=True, onwards=True) for _ in range(2)]
    for one in hanging:
        tour.agent.subscribe(one)
    behind = Recorder(tour.agent)
    async with running(tour.agent):
        await hangs.wait()
        aborted = trio.current_time()
        tour.agent.abort()
    assert trio.current_time() - aborted <= GRACE + 1e-6
    assert tour.cut_lines(k) == TOUR[: k + 1] + closing(k, "aborted")
    assert behind.lines == tour.lines == hanging[0].seen == hanging[1].seen
    assert_settled(tour.recorder)


async def test_A3_after_the_deadline_every_subscriber_is_still_called_but_its_first_wait_raises() -> None:
    """With the grace period used up, each subscriber still runs up to its first wait, which is cancelled."""
    agent, recorder = make_agent(ScriptedProvider(["half", stall()]), grace=GRACE)
    began: list[str] = []
    went_on: list[str] = []

    async def stubborn(event: Event) -> None:
        if event.type == "message_update":
            with trio.CancelScope(shield=True):
                await trio.sleep(100)

    async def waits_once(event: Event) -> None:
        began.append(event.type)
        await trio.lowlevel.checkpoint()
        went_on.append(event.type)

    agent.subscribe(stubborn)
    agent.subscribe(waits_once)
    async with running(agent):
        await trio.sleep(1)
        agent.abort()
    assert trio.current_time() >= 100
    assert began == recorder.types
    assert went_on == ["agent_start", "turn_start", "message_start", "message_end", "message_start"]
    assert_settled(recorder)


async def test_A3_a_grace_period_of_nothing() -> None:
    """With `grace=0` an abort lets no subscriber wait, and still tells everybody everything."""
    agent, recorder = make_agent(ScriptedProvider(["half", stall()]), grace=0)
    slow = Slow(1, "message_end", "turn_end", "agent_end")
    agent.subscribe(slow)
    behind = Recorder(agent)
    async with running(agent):
        await trio.sleep(2)
        agent.abort()
    assert [(type, ended) for type, _, ended, _ in slow.log] == [
        ("message_end", "done"),
        ("message_end", "cut"),
        ("turn_end", "cut"),
        ("agent_end", "cut"),
    ]
    assert behind.lines == recorder.lines
    assert recorder.events[-1].time == pytest.approx(2)
    assert_settled(recorder)


@pytest.mark.parametrize("what", ["another abort", "an outside cancellation", "an interrupt"])
async def test_A3_nothing_extends_the_deadline(what: str) -> None:
    """One absolute deadline from the first abort on: what comes three seconds later moves it not at all."""
    agent, recorder = make_agent(ScriptedProvider(["half", stall()]), grace=GRACE)
    hanging = [Slow(float("inf"), "message_update", "turn_end") for _ in range(2)]
    for one in hanging:
        agent.subscribe(one)
    if what == "an interrupt":

        def interrupt(event: Event) -> None:
            raise KeyboardInterrupt

        on(agent, "message_update", interrupt)
    scope = trio.CancelScope()
    async with trio.open_nursery() as nursery:

        async def meddle() -> None:
            await trio.sleep(10)
            agent.abort()
            await trio.sleep(3)
            if what == "another abort":
                agent.abort()
            elif what == "an outside cancellation":
                scope.cancel()

        nursery.start_soon(meddle)
        with scope:
            try:
                await agent.prompt("hi")
            except KeyboardInterrupt:
                assert what == "an interrupt"
    assert [(type, ended, at) for one in hanging for type, _, ended, at in one.log] == [
        ("message_update", "cut", pytest.approx(14)),
        ("turn_end", "cut", pytest.approx(17)),
        ("message_update", "cut", pytest.approx(16)),
        ("turn_end", "cut", pytest.approx(17.5)),
    ]
    assert_settled(recorder)


async def test_A3_a_failed_run_waits_for_its_subscribers_until_it_is_aborted() -> None:
    """A failure arms no deadline; an abort while the failed run settles does, and keeps the outcome."""
    agent, recorder = make_agent(ScriptedProvider([ValueError("boom")]), grace=GRACE)
    agent.subscribe(Slow(float("inf"), "turn_end"))
    async with running(agent) as results:
        await trio.sleep(1_000)
        assert not results
        agent.abort()
    assert trio.current_time() == pytest.approx(1_004)
    assert results[0].outcome == "error"
    assert_settled(recorder)


async def test_A3_a_subscribers_own_scopes_work_while_the_run_is_aborted() -> None:
    """A subscriber's own time-outs work during settlement as they do elsewhere."""
    agent, recorder = make_agent(ScriptedProvider(["half", stall()]), grace=GRACE)
    order: list[str] = []

    async def careful(event: Event) -> None:
        with trio.move_on_after(0.25):
            await trio.sleep_forever()
        order.append(event.type)

    agent.subscribe(careful)
    async with running(agent):
        await trio.sleep(3)
        agent.abort()
    assert order == recorder.types
    assert_settled(recorder)


async def test_A3_scopes_of_a_provider_do_not_reach_into_subscribers() -> None:
    """A time-out that a provider holds around `send` never cuts a subscriber of what it sent."""
    cut: list[bool] = []

    async def provider(request: ModelRequest, send: Send) -> None:
        with trio.move_on_after(1) as scope:
            for n in range(1_000):
                await send(TextDelta(0, f"{n} "))
            raise AssertionError("its time-out is for nothing")
        cut.append(scope.cancelled_caught)
        await send(Finish("stop"))

    agent, recorder = make_agent(provider)
    slow = Slow(5, "message_update", "message_start")
    agent.subscribe(slow)
    result = await agent.prompt("hi")
    assert cut == [True], "the provider was behind a slow subscriber, and its own time-out is its own"
    assert {ended for _, _, ended, _ in slow.log} == {"done"}
    assert result.outcome == "completed"
    assert_settled(recorder)


async def test_A3_scopes_of_a_tool_do_not_reach_into_subscribers() -> None:
    """A time-out that a tool holds around an update, or has been given, never cuts a subscriber of the update."""

    @tool
    async def impatient(context: ToolContext) -> str:
        """Report, impatiently."""
        with trio.move_on_after(1):
            await context.update("half")
        return f"went on at {trio.current_time():g}"

    agent, recorder = make_agent(
        ScriptedProvider([call("c1", "impatient"), finish("tool_use")], ["ok", finish()]), tools=[impatient]
    )
    slow = Slow(5, "tool_execution_update")
    agent.subscribe(slow)
    began = trio.current_time()
    result = await agent.prompt("hi")
    assert [ended for _, _, ended, _ in slow.log] == ["done"]
    assert results_of(result) == [f"went on at {began + 1:g}"]
    assert_settled(recorder)


# A4: async code


async def test_A4_a_tool_that_swallows_its_cancellation_changes_nothing() -> None:
    """A tool that swallows `Cancelled` and returns: the call says that it was cut off, and the run does not go on."""

    @tool
    async def stubborn() -> str:
        """Swallow."""
        with contextlib.suppress(trio.Cancelled):  # that is the fault that is tested
            await trio.sleep_forever()
        return "I did it all the same"

    provider = ScriptedProvider([call("c1", "stubborn"), finish("tool_use")])
    agent, recorder = make_agent(provider, tools=[stubborn])
    async with running(agent) as results:
        await trio.sleep(1)
        agent.abort()
    assert results[0].outcome == "aborted"
    assert results_of(results[0])[0].startswith("Cut off")
    assert len(provider.requests) == 1
    assert_settled(recorder)


async def test_A4_a_provider_that_swallows_its_cancellation_changes_nothing() -> None:
    """A provider that swallows `Cancelled` and finishes its answer: what it sends is dropped, its calls do not run."""

    async def stubborn(request: ModelRequest, send: Send) -> None:
        await send(TextDelta(0, "half"))
        with contextlib.suppress(trio.Cancelled):  # that is the fault that is tested
            await trio.sleep_forever()
        with contextlib.suppress(trio.Cancelled):  # that is the fault that is tested
            await send(TextDelta(0, " and the rest"))
        await trio.lowlevel.cancel_shielded_checkpoint()

    agent, recorder = make_agent(stubborn)
    async with running(agent) as results:
        await trio.sleep(1)
        agent.abort()
    assert (results[0].outcome, results[0].text) == ("aborted", "half")
    assert_settled(recorder)


@pytest.mark.parametrize("hook", ["transform_context", "before_tool_call", "should_stop_after_turn"])
async def test_A4_a_hook_that_swallows_its_cancellation_changes_nothing(hook: str) -> None:
    """A hook that swallows `Cancelled` and answers: nothing that it allowed begins."""

    async def stubborn(given: Any, *_: Any) -> Any:
        with contextlib.suppress(trio.Cancelled):  # that is the fault that is tested
            await trio.sleep_forever()
        return given if hook == "transform_context" else None

    @tool
    async def notes() -> str:
        """Note."""
        raise AssertionError("it ran")

    calls = [] if hook == "should_stop_after_turn" else [call("c1", "notes")]
    provider = ScriptedProvider([*calls, "ok", finish()])
    agent, recorder = make_agent(provider, tools=[notes], hooks=Hooks(**{hook: stubborn}))
    async with running(agent) as results:
        await trio.sleep(1)
        agent.abort()
    assert results[0].outcome == "aborted"
    assert not any("it ran" in text for text in results_of(results[0]))
    assert len(provider.requests) == (0 if hook == "transform_context" else 1)
    assert_settled(recorder)


async def test_A4_a_tool_with_a_nursery_that_fails_while_being_cancelled_raises_nothing_out_of_the_run() -> None:
    """A tool whose own task raises while the tool is cancelled: an aborted run, the failure kept, no group anywhere."""

    @tool
    async def fans_out() -> str:
        """Fan out."""

        async def cleans_up_badly() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("cleaning up failed")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cleans_up_badly)
            nursery.start_soon(trio.sleep_forever)
        raise AssertionError("the nursery let it on")

    agent, recorder = make_agent(ScriptedProvider([call("c1", "fans_out"), finish("tool_use")]), tools=[fans_out])
    before = tasks()
    async with running(agent) as results:
        await trio.sleep(1)
        agent.abort()
    assert results[0].outcome == "aborted"
    assert results_of(results[0])[0].startswith("Cut off")
    assert "cleaning up failed" in str([str(leaf) for failure in results[0].suppressed for leaf in leaves(failure)])
    assert tasks() == before
    assert_settled(recorder)


def leaves(failure: BaseException) -> list[BaseException]:
    if isinstance(failure, BaseExceptionGroup):
        return [leaf for inner in failure.exceptions for leaf in leaves(inner)]
    return [failure]


class TimedLog(logging.Handler):
    """Keeps what was logged, and when on Trio's clock."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[float, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((trio.current_time(), record.getMessage()))


@pytest.mark.parametrize("who", ["tool", "provider", "hook"])
async def test_A4_async_code_that_refuses_to_end_is_logged_by_name_when_the_grace_period_is_over(who: str) -> None:
    """What shields itself from an abort cannot be left behind: when the grace period is over it is logged, by its
    name.
    """

    async def refuses(*_: Any) -> Any:
        with trio.CancelScope(shield=True):
            await trio.sleep(30)
        return None

    @tool
    async def unstoppable() -> str:
        """Refuse."""
        await refuses()
        return "late"

    script = ScriptedProvider([call("c1", "unstoppable"), finish("tool_use")])
    agent, recorder = make_agent(
        refuses if who == "provider" else script,
        tools=[unstoppable],
        hooks=Hooks(before_tool_call=refuses) if who == "hook" else None,
        grace=GRACE,
    )
    log = TimedLog()
    logging.getLogger("trio_agent").addHandler(log)
    try:
        async with running(agent) as results:
            await trio.sleep(1)
            agent.abort()
    finally:
        logging.getLogger("trio_agent").removeHandler(log)
    name = {"tool": "unstoppable", "provider": "provider", "hook": "before_tool_call"}[who]
    assert [(at, name in line) for at, line in log.lines if "refuse" in line] == [(pytest.approx(1 + GRACE), True)]
    assert recorder.events[-1].type == "agent_end"
    assert recorder.events[-1].time <= 1 + GRACE, "the events did not wait for it"
    assert trio.current_time() == pytest.approx(30), "but the run could not end before it did"
    assert results[0].outcome == "aborted"
    assert_settled(recorder)


# A5


def deadline(scope: trio.CancelScope, nursery: trio.Nursery, after: float) -> None:
    scope.deadline = trio.current_time() + after


def from_another_task(scope: trio.CancelScope, nursery: trio.Nursery, after: float) -> None:
    async def cancel() -> None:
        await trio.sleep(after)
        scope.cancel()

    nursery.start_soon(cancel)


def the_nursery(scope: trio.CancelScope, nursery: trio.Nursery, after: float) -> None:
    async def cancel() -> None:
        await trio.sleep(after)
        nursery.cancel_scope.cancel()

    nursery.start_soon(cancel)


@at_each_moment
@pytest.mark.parametrize("how", [deadline, from_another_task, the_nursery], ids=lambda how: how.__name__)
async def test_A5_cancelling_the_scope_around_prompt_settles_and_goes_on(moment: str, how: Callable[..., None]) -> None:
    """In every phase and however it is cancelled: as an abort does, and then a bare `Cancelled` goes on to its
    scope.
    """
    tour = Tour()
    left: list[BaseException] = []
    before = tasks()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            how(scope, nursery, MOMENTS[moment])
            try:
                await tour.agent.prompt("go")
            except BaseException as exc:
                left.append(exc)
                raise
    assert scope.cancelled_caught or how is the_nursery
    assert [type(exc) for exc in left] == [trio.Cancelled]
    told = TOLD_BY[moment]
    assert tour.cut_lines(told) == TOUR[: told + 1] + closing(told, "aborted")
    assert tour.lines[-1] == "agent_end aborted cancelled"
    assert tour.recorder.events[-1].time == pytest.approx(MOMENTS[moment])
    assert_settled(tour.recorder)
    assert_sendable(tour.agent.state.messages)
    assert tasks() == before


@at_each_event
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_A5_a_scope_cancelled_by_a_subscriber_at_any_event(k: int, is_async: bool) -> None:
    """A subscriber that cancels the scope around the run, at any event: settled like an abort there, then
    `Cancelled`.
    """
    tour = Tour()
    left: list[BaseException] = []
    with trio.CancelScope() as scope:
        tour.agent.subscribe(At(k, scope.cancel, is_async=is_async))
        try:
            await tour.agent.prompt("go")
        except BaseException as exc:
            left.append(exc)
            raise
    assert scope.cancelled_caught
    assert [type(exc) for exc in left] == [trio.Cancelled]
    # The run hears of an outside cancellation through a task of its own, so it may get a wait further.
    ways = [at for at in range(k, len(TOUR)) if tour.cut_lines(at) == TOUR[: at + 1] + closing(at, "aborted")]
    assert ways, "it closes on the shortest way from where it was"
    assert tour.recorder.events[-1].time == pytest.approx(tour.recorder.events[k].time)
    assert_settled(tour.recorder)
    assert_sendable(tour.agent.state.messages)


@at_each_event
async def test_A5_a_scope_cancelled_from_another_task_while_any_event_is_told(k: int) -> None:
    """The scope around the run is cancelled while a subscriber is busy with any event: the run closes right behind
    it.
    """
    tour = Tour()
    busy, go_on = trio.Event(), trio.Event()

    async def is_busy() -> None:
        busy.set()
        await go_on.wait()

    tour.agent.subscribe(At(k, is_busy, is_async=True))
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def cancel() -> None:
                await busy.wait()
                scope.cancel()
                with trio.CancelScope(shield=True):
                    await trio.testing.wait_all_tasks_blocked()
                go_on.set()

            nursery.start_soon(cancel)
            await tour.agent.prompt("go")
    assert scope.cancelled_caught
    assert tour.cut_lines(k) == TOUR[: k + 1] + closing(k, "aborted")
    assert_settled(tour.recorder)
    assert_sendable(tour.agent.state.messages)


@pytest.mark.parametrize("k", [4, 9, 18, 20, 31])
def test_A5_an_outside_cancellation_is_known_for_one_in_whatever_order_the_tasks_run(k: int) -> None:
    """Whichever of its tasks hears of the cancellation first, the run ends `aborted`, and nothing is taken for a
    failure.
    """
    for seed in range(12):
        tour = Tour()

        async def main(tour: Tour = tour) -> None:
            with trio.CancelScope() as scope:
                tour.agent.subscribe(At(k, scope.cancel, is_async=True))
                await tour.agent.prompt("go")

        with deterministic(seed):
            trio_run(main)
        assert tour.lines[-1] == "agent_end aborted cancelled"
        assert_settled(tour.recorder)


@pytest.mark.parametrize("how", ["raises", "returns"])
def test_A5_a_provider_that_makes_something_else_of_an_outside_cancellation_is_not_the_cause(how: str) -> None:
    """A provider that turns its `Cancelled` into a failure, or swallows it: `aborted`, in whatever order tasks run."""
    for seed in range(20):
        cancel = trio.CancelScope()

        async def provider(request: ModelRequest, send: Send) -> None:
            await send(TextDelta(0, "ok"))
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                if how == "raises":
                    raise ValueError("cleaning up failed") from None

        async def cancels(event: Event, cancel: trio.CancelScope = cancel) -> None:
            await trio.testing.wait_all_tasks_blocked()  # the provider waits by then
            cancel.cancel()
            await trio.lowlevel.checkpoint()  # the run's own task is as runnable as those that are cancelled

        agent, recorder = make_agent(provider)
        on(agent, "message_update", cancels)

        async def main(agent: Agent = agent, cancel: trio.CancelScope = cancel) -> None:
            with cancel:
                await agent.prompt("go")

        with deterministic(seed):
            trio_run(main)
        assert cancel.cancelled_caught
        assert recorder.lines[-1] == "agent_end aborted cancelled"
        assert_settled(recorder)


@pytest.mark.parametrize("entry", ["prompt", "resume", "stream"])
async def test_A5_in_a_scope_that_is_cancelled_already_no_event_is_told(entry: str) -> None:
    """`prompt()`, `resume()` and `stream()` in a cancelled scope raise `Cancelled` and tell nothing."""
    agent, recorder = make_agent(ScriptedProvider())
    agent.steer("something to resume with")
    with trio.CancelScope() as scope:
        scope.cancel()
        if entry == "prompt":
            await agent.prompt("hi")
        elif entry == "resume":
            await agent.resume()
        else:
            async with agent.stream("hi"):
                raise AssertionError("the block was entered")
    assert scope.cancelled_caught
    assert recorder.events == []
    assert_idle(agent)


async def test_A5_a_cancellation_is_never_turned_into_a_result() -> None:
    """A run that is cancelled returns nothing, also when it had all but ended."""
    agent, recorder = make_agent(ScriptedProvider(["ok", finish()]))
    with trio.CancelScope() as scope:
        on(agent, "agent_end", lambda event: scope.cancel())
        await agent.prompt("hi")
        raise AssertionError("it returned a result")
    assert scope.cancelled_caught
    assert recorder.lines[-1] == "agent_end completed"
    assert_settled(recorder)


@at_each_moment
@pytest.mark.parametrize("first", ["abort", "cancel"])
async def test_A5_if_both_happen_the_outer_scope_wins(moment: str, first: str) -> None:
    """Abort and outside cancellation in the same moment, in either order: `Cancelled` goes on, and the trace is
    lawful.
    """
    tour = Tour()
    scope = trio.CancelScope()

    async def both() -> None:
        await trio.sleep(MOMENTS[moment])
        for what in ("abort", "cancel") if first == "abort" else ("cancel", "abort"):
            if what == "abort":
                tour.agent.abort("enough")
            else:
                scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(both)
        with scope:
            await tour.agent.prompt("go")
            raise AssertionError("it returned a result")
    assert scope.cancelled_caught
    assert tour.lines[-1].startswith("agent_end aborted")
    assert_settled(tour.recorder)
    assert_sendable(tour.agent.state.messages)


async def test_A5_a_cancellation_during_the_settlement_of_an_abort_goes_on_after_it() -> None:
    """An aborted run that is cancelled while it settles finishes settling, and then lets `Cancelled` go on."""
    agent, recorder = make_agent(ScriptedProvider(["half", stall()]), grace=GRACE)
    slow = Slow(2, "turn_end")
    agent.subscribe(slow)
    scope = trio.CancelScope()
    on(agent, "message_update", lambda event: agent.abort("enough"))
    on(agent, "turn_end", lambda event: scope.cancel())
    with scope:
        await agent.prompt("hi")
        raise AssertionError("it returned a result")
    assert recorder.lines[-1] == "agent_end aborted enough"
    assert [ended for _, _, ended, _ in slow.log] == ["done"]
    assert_settled(recorder)


async def test_A5_cancelling_bounds_what_hangs_as_an_abort_does() -> None:
    """A subscriber that hangs is cut after half of the grace period that an outside cancellation began."""
    agent, recorder = make_agent(ScriptedProvider(["half", stall()]), grace=GRACE)
    agent.subscribe(Slow(float("inf"), "message_update"))
    with trio.move_on_after(10) as scope:
        await agent.prompt("hi")
    assert scope.cancelled_caught
    assert trio.current_time() == pytest.approx(14)
    assert_settled(recorder)


async def test_A5_a_cancellation_goes_to_the_scope_that_asked_for_it_and_no_further() -> None:
    """Of several scopes around a run the one that was cancelled catches, and the code behind it goes on."""
    agent, recorder = make_agent(ScriptedProvider(["half", stall()]))
    with trio.CancelScope() as outer:
        with trio.CancelScope() as middle, trio.CancelScope() as inner:
            on(agent, "message_update", lambda event: middle.cancel())
            await agent.prompt("hi")
        await trio.lowlevel.checkpoint()
    assert (outer.cancelled_caught, middle.cancelled_caught, inner.cancelled_caught) == (False, True, False)
    assert_settled(recorder)


async def test_A5_a_scope_that_a_tool_left_open_reaches_no_later_call() -> None:
    """A scope that a tool entered and never left is cancelled later: nobody else's work is cut by that."""
    left_open = trio.CancelScope()

    @tool
    async def leaves_it_open() -> str:
        """Enter a scope by hand."""
        left_open.__enter__()
        return "returned"

    @tool
    async def works() -> str:
        """Work while that scope is cancelled."""
        left_open.cancel()
        await trio.sleep(1)
        return "worked"

    script = ScriptedProvider(_call("leaves_it_open"), [call("c2", "works"), finish("tool_use")], ["done", finish()])
    agent, recorder = make_agent(script, tools=[leaves_it_open, works])
    result = await agent.prompt("go")
    assert results_of(result) == ["returned", "worked"]
    assert (result.outcome, result.text) == ("completed", "done")
    assert_settled(recorder)


@pytest.mark.parametrize("how", ["cancelled while it works on", "returns", "raises"])
async def test_T5_a_scope_that_a_tool_left_open_ends_no_run(how: str) -> None:
    """A scope that a tool left open cancels the tool's own task: that call fails or has answered, its sibling works."""
    scopes: list[trio.CancelScope] = []

    @tool
    async def careless() -> str:
        """Leave a scope open, as an async generator does that is not read to its end."""
        scopes.append(trio.CancelScope())
        scopes[0].__enter__()
        scopes[0].cancel()
        if how == "raises":
            raise ValueError("no luck")
        if how == "cancelled while it works on":
            await trio.sleep(1)
        return "returned"

    @tool
    async def works() -> str:
        """Work beside it."""
        await trio.sleep(2)
        return "worked"

    script = ScriptedProvider([call("c1", "careless"), call("c2", "works"), finish("tool_use")], ["done", finish()])
    agent, recorder = make_agent(script, tools=[careless, works])
    result = await agent.prompt("go")
    answers = {
        "cancelled while it works on": "careless failed: a cancel scope that the tool had left open was cancelled",
        "returns": "returned",
        "raises": "careless failed: ValueError: no luck",
    }
    assert results_of(result) == [answers[how], "worked"]
    assert (result.outcome, result.text) == ("completed", "done")
    assert_settled(recorder)


async def test_F1_a_scope_that_a_provider_left_open_raises_nothing_out_of_the_run() -> None:
    """A provider that enters a scope and never leaves it may fail its run, but no exception leaves `prompt()`."""

    async def provider(request: ModelRequest, send: Send) -> None:
        await send(TextDelta(0, "ok"))
        await send(Finish("stop"))
        trio.CancelScope().__enter__()

    agent, recorder = make_agent(provider)
    result = await agent.prompt("go")
    assert result.outcome in ("completed", "error")
    assert_settled(recorder)


async def test_A5_the_agent_can_be_used_after_a_cancellation() -> None:
    """A run that was cancelled leaves an agent that runs again, from a history that can be sent."""
    agent, recorder = make_agent(
        ScriptedProvider([call("c1", "waits"), finish("tool_use")], ["fine", finish()]), tools=[waits]
    )
    with trio.move_on_after(1):
        await agent.prompt("one")
    result = await agent.prompt("two")
    assert (result.outcome, result.text) == ("completed", "fine")
    assert_settled(recorder)
    assert_sendable(agent.state.messages)


# A7


class Nest:
    """An agent whose tool runs another agent, and so on; the innermost one's provider stalls."""

    def __init__(self, depth: int, *, grace: Sequence[float]) -> None:
        self.outcomes: list[RunResult] = []
        self.agents: list[Agent] = []
        self.recorders: list[Recorder] = []
        self._make(depth, list(grace))

    def _make(self, depth: int, grace: list[float]) -> Agent:
        if depth == 0:
            provider, tools = ScriptedProvider(["half", stall()]), []
        else:
            inner = self._make(depth - 1, grace[1:])

            @tool
            async def ask() -> str:
                """Ask another agent."""
                result = await inner.prompt("and you?")
                self.outcomes.append(result)
                return result.text or result.outcome

            provider = ScriptedProvider([call("c1", "ask"), finish("tool_use")], ["done", finish()])
            tools = [ask]
        agent, recorder = make_agent(provider, tools=tools, grace=grace[0])
        self.agents.insert(0, agent)
        self.recorders.insert(0, recorder)
        return agent


async def test_A7_a_tool_may_run_another_agent() -> None:
    """An agent inside a tool runs to its end, and its answer is the tool's."""
    inner, inner_recorder = make_agent(ScriptedProvider(["forty-two", finish()]))

    @tool
    async def ask() -> str:
        """Ask another agent."""
        return (await inner.prompt("what is it?")).text

    outer, recorder = make_agent(
        ScriptedProvider([call("c1", "ask"), finish("tool_use")], ["it is forty-two", finish()]), tools=[ask]
    )
    result = await outer.prompt("what?")
    assert results_of(result) == ["forty-two"]
    assert result.outcome == "completed"
    assert_settled(recorder)
    assert_settled(inner_recorder)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("how", ["abort", "cancel"])
async def test_A7_aborting_the_outer_run_aborts_the_inner_one(depth: int, how: str) -> None:
    """Aborting or cancelling the outermost run aborts every one inside it through Trio's own cancellation; all are
    lawful.
    """
    nest = Nest(depth, grace=[GRACE] * 4)
    before = tasks()
    scope = trio.CancelScope()
    async with trio.open_nursery() as nursery:

        async def stop() -> None:
            await trio.sleep(1)
            if how == "abort":
                nest.agents[0].abort("enough")
            else:
                scope.cancel()

        nursery.start_soon(stop)
        with scope:
            result = await nest.agents[0].prompt("hi")
            assert result.outcome == "aborted"
    assert nest.outcomes == [], "the inner prompt() returned to nobody: its Cancelled went on"
    assert [recorder.lines[-1] for recorder in nest.recorders] == [
        "agent_end aborted enough" if how == "abort" else "agent_end aborted cancelled",
        *["agent_end aborted cancelled"] * depth,
    ]
    assert said(nest.agents[-1].state.messages)[-1].startswith('assistant aborted "half"')
    for recorder in nest.recorders:
        assert_settled(recorder)
        assert_sendable(recorder.agent.state.messages)
    assert tasks() == before


async def test_A7_aborting_the_inner_run_lets_the_outer_one_go_on() -> None:
    """Aborting the inner run alone gives the tool an aborted result, and the outer run goes on with it."""
    nest = Nest(1, grace=[GRACE, GRACE])
    async with running(nest.agents[0]) as results:
        await trio.sleep(1)
        nest.agents[1].abort("not you")
    assert (nest.outcomes[0].outcome, nest.outcomes[0].reason) == ("aborted", "not you")
    assert (results[0].outcome, results[0].text) == ("completed", "done")
    for recorder in nest.recorders:
        assert_settled(recorder)


@pytest.mark.parametrize(
    ("depth", "grace", "halves"),
    [
        (1, [8, 8], [4]),
        (1, [8, 2], [2]),
        (1, [8, 100], [4]),
        (2, [8, 8, 8], [4, 2]),
        (3, [8, 100, 100, 100], [4, 2, 1]),
        (2, [8, 1, 100], [1, 0.5]),
    ],
)
def test_A7_the_inner_grace_period_is_at_most_half_of_what_the_outer_has_left(
    depth: int, grace: list[float], halves: list[float]
) -> None:
    """A subscriber of the innermost run that hangs is cut after half of the innermost grace period, halved at each
    level.
    """
    for seed in range(6):
        nest = Nest(depth, grace=grace)
        hanging = Slow(float("inf"), "message_update")
        nest.agents[-1].subscribe(hanging)

        async def main(nest: Nest = nest) -> float:
            async with running(nest.agents[0]):
                await trio.sleep(10)
                nest.agents[0].abort()
            return trio.current_time()

        with deterministic(seed):
            ended = trio_run(main)
        assert [(how, at) for _, _, how, at in hanging.log] == [("cut", pytest.approx(10 + halves[-1] / 2))]
        assert ended <= 10 + grace[0]
        for recorder in nest.recorders:
            assert_settled(recorder)


async def test_A7_the_inner_grace_period_is_bounded_when_the_inner_run_alone_is_aborted() -> None:
    """The outer run, not aborted, has its whole grace period left: the inner one gets at most half of that."""
    nest = Nest(1, grace=[8, 100])
    hanging = Slow(float("inf"), "message_update")
    nest.agents[1].subscribe(hanging)
    async with running(nest.agents[0]):
        await trio.sleep(10)
        nest.agents[1].abort()
    assert [(ended, at) for _, _, ended, at in hanging.log] == [("cut", pytest.approx(12))]
    for recorder in nest.recorders:
        assert_settled(recorder)


async def test_A7_an_inner_abort_that_came_first_is_bounded_anew_by_the_outer_one() -> None:
    """The inner run settles already when the outer one is aborted: both are back within the outer grace period."""
    nest = Nest(1, grace=[8, 100])
    hanging = [Slow(float("inf"), "message_update", "turn_end", "agent_end") for _ in range(3)]
    for one in hanging:
        nest.agents[1].subscribe(one)
    async with running(nest.agents[0]):
        await trio.sleep(10)
        nest.agents[1].abort()
        await trio.sleep(1)
        nest.agents[0].abort()
    assert trio.current_time() <= 11 + 8
    for recorder in nest.recorders:
        assert_settled(recorder)


async def test_A7_an_agent_inside_a_subscriber_is_on_the_outer_runs_time_too() -> None:
    """An agent that a subscriber runs is cut with the subscriber, and settles within what the outer run has left."""
    inner, inner_recorder = make_agent(ScriptedProvider(["half", stall()]), grace=100)
    hanging = Slow(float("inf"), "turn_end")
    inner.subscribe(hanging)
    outer, recorder = make_agent(ScriptedProvider(["ok", stall()]), grace=GRACE)

    async def ask(event: Event) -> None:
        await inner.prompt("and you?")

    on(outer, "message_update", ask)
    async with running(outer) as results:
        await trio.sleep(10)
        outer.abort()
    assert [(ended, at) for _, _, ended, at in hanging.log] == [("cut", pytest.approx(10 + 4 + 1))]
    assert trio.current_time() <= 10 + GRACE
    assert results[0].outcome == "aborted"
    assert_settled(recorder)
    assert_settled(inner_recorder)


async def test_A7_two_agents_in_two_tools_are_both_aborted() -> None:
    """Parallel calls that each run an agent: an abort of the outer run settles both."""
    inner = [make_agent(ScriptedProvider(["half", stall()])) for _ in range(2)]

    @tool
    async def ask(n: int) -> str:
        """Ask another agent."""
        return (await inner[n][0].prompt("and you?")).text

    outer, recorder = make_agent(
        ScriptedProvider([call("c1", "ask", {"n": 0}), call("c2", "ask", {"n": 1}), finish("tool_use")]), tools=[ask]
    )
    async with running(outer) as results:
        await trio.sleep(1)
        outer.abort()
    assert results[0].outcome == "aborted"
    for _, inner_recorder in inner:
        assert inner_recorder.lines[-1] == "agent_end aborted cancelled"
        assert_settled(inner_recorder)
    assert_settled(recorder)
