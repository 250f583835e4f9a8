"""F7, sentence by sentence: `KeyboardInterrupt`, `SystemExit` and the like, and a stray `Cancelled`.

A real SIGINT is in `cases/test_topic15_trio.py`, interrupts out of threads in `test_threads.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from scenes import Recorder, assert_idle, assert_settled, make_agent, on, said
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
    closing,
    raising,
    tasks,
)

from trio_agent import AgentState, Compaction, Finish, Hooks, ModelRequest, Send, ToolContext, UserMessage, tool
from trio_agent.testing import ScriptedProvider, call, finish, stall


class Evacuate(BaseException):
    """No `Exception`, and nobody's."""


INTERRUPTS = [KeyboardInterrupt, SystemExit, Evacuate]
each_interrupt = pytest.mark.parametrize("kind", INTERRUPTS, ids=lambda kind: kind.__name__)


async def leaving(work: Callable[[], Any]) -> BaseException:
    """What leaves `await work()`, caught in the very task that called it, so that nothing wraps it."""
    try:
        await work()
    except BaseException as exc:  # whatever it is, the test looks at it
        return exc
    raise AssertionError("nothing was raised")


@at_each_event
@pytest.mark.parametrize("how", ["sync", "async", "observer"])
async def test_F7_an_interrupt_in_a_subscriber_settles_as_if_aborted(k: int, how: str) -> None:
    """An interrupt at any event: the run settles as if aborted, then that very exception leaves `prompt()`, bare."""
    tour, interrupt = Tour(), KeyboardInterrupt("stop")
    tour.agent.subscribe(At(k, raising(interrupt), is_async=how == "async"), observer=how == "observer")
    behind = Recorder(tour.agent)
    before = tasks()
    assert await leaving(lambda: tour.agent.prompt("go")) is interrupt
    assert tour.cut_lines(k) == TOUR[: k + 1] + closing(k, "aborted")
    assert behind.lines == tour.lines
    assert tour.lines[-1] == ("agent_end completed" if k == LAST else "agent_end aborted KeyboardInterrupt")
    assert_settled(tour.recorder)
    assert_sendable(tour.agent.state.messages)
    assert tasks() == before


@at_each_event
async def test_F7_a_second_interrupt_skips_what_is_left_but_the_reset(k: int) -> None:
    """A subscriber that is interrupted at every event from one on: the second ends the settlement, and the agent is
    idle.
    """
    tour = Tour()
    tour.agent.subscribe(At(k, raising(KeyboardInterrupt), onwards=True))
    before = tasks()
    left = await leaving(lambda: tour.agent.prompt("go"))
    assert type(left) is KeyboardInterrupt
    assert tour.cut_lines(k) == TOUR[: k + 1] + closing(k, "aborted")[:1]
    assert_idle(tour.agent)
    assert tasks() == before


@at_each_kind
async def test_F7_after_a_second_interrupt_the_next_run_is_sendable(k: int) -> None:
    """History that a second interrupt left without an end is still one that a provider accepts."""
    tour = Tour()
    with tour.agent.subscribe(At(k, raising(KeyboardInterrupt), onwards=True)):
        await leaving(lambda: tour.agent.prompt("go"))
    requests: list[ModelRequest] = []

    async def next_provider(request: ModelRequest, send: Send) -> None:
        requests.append(request)
        await send(Finish("stop"))

    again, recorder = make_agent(next_provider, messages=tour.agent.state.messages)
    result = await again.prompt("next")
    assert result.outcome == "completed"
    assert_sendable(requests[0].messages)
    assert_settled(recorder)


async def test_F7_the_agent_can_be_used_after_a_second_interrupt() -> None:
    """The very agent whose settlement was skipped runs again, lawfully."""
    agent, recorder = make_agent(ScriptedProvider(["half", stall()], ["fine", finish()]))
    with agent.subscribe(At(4, raising(KeyboardInterrupt), onwards=True)):
        await leaving(lambda: agent.prompt("one"))
    recorder.events.clear()
    result = await agent.prompt("two")
    assert (result.outcome, result.text) == ("completed", "fine")
    assert recorder.lines[0] == "agent_start"
    assert_idle(agent)


@each_interrupt
@pytest.mark.parametrize("moment", MOMENTS)
async def test_F7_an_interrupt_in_the_work_of_the_run_settles_as_if_aborted(
    kind: type[BaseException], moment: str
) -> None:
    """Whatever interrupts the provider, a tool or the compaction, at any moment: settled as if aborted, and bare."""
    tour, interrupt = Tour(), kind("stop")

    async def interrupt_the_work() -> None:
        await trio.sleep(MOMENTS[moment])
        for who in ("provider", "tool work", "tool rest", "compaction"):
            tour.trip(who, interrupt)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(interrupt_the_work)
        assert await leaving(lambda: tour.agent.prompt("go")) is interrupt
    told = TOLD_BY[moment]
    if moment == "waiting before a retry":  # nothing of it runs then: the next request is interrupted
        told = 8
    assert tour.cut_lines(told) == TOUR[: told + 1] + closing(told, "aborted")
    assert tour.lines[-1] == f"agent_end aborted {kind.__name__}"
    assert_settled(tour.recorder)
    assert_sendable(tour.agent.state.messages)


@each_interrupt
@pytest.mark.parametrize(
    "hook",
    ["transform_context", "convert_to_llm", "before_tool_call", "after_tool_result", "should_stop_after_turn"],
)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_F7_an_interrupt_in_a_hook(kind: type[BaseException], hook: str, is_async: bool) -> None:
    """Whatever interrupts a hook, sync or async, is no failure of the hook: the run settles and it leaves bare."""
    interrupt = kind("stop")

    def now(*_: Any) -> Any:
        raise interrupt

    async def later(*_: Any) -> Any:
        await trio.lowlevel.checkpoint()
        raise interrupt

    @tool
    async def answers() -> str:
        """Answer."""
        return "fine"

    provider = ScriptedProvider([call("c1", "answers"), finish("tool_use")], ["done", finish()])
    agent, recorder = make_agent(provider, tools=[answers], hooks=Hooks(**{hook: later if is_async else now}))
    assert await leaving(lambda: agent.prompt("hi")) is interrupt
    assert recorder.lines[-1] == f"agent_end aborted {kind.__name__}"
    assert_settled(recorder)
    assert_sendable(agent.state.messages)


class Policy:
    """A compaction policy that is interrupted, or does as it is told."""

    def __init__(self, where: str, exc: BaseException) -> None:
        self.where = where
        self.exc = exc

    def _look(self, where: str) -> None:
        if where == self.where:
            raise self.exc

    def threshold(self, state: AgentState) -> bool:
        self._look("threshold")
        return True

    def tokens(self, state: AgentState) -> int:
        self._look("tokens")
        return 7

    async def compact(self, messages: Any, reason: str) -> Compaction:
        await trio.lowlevel.checkpoint()
        self._look("compact")
        return Compaction(UserMessage("summary"), 1)


@each_interrupt
@pytest.mark.parametrize("where", ["threshold", "tokens", "compact"])
async def test_F7_an_interrupt_in_a_compaction_policy(kind: type[BaseException], where: str) -> None:
    """Whatever interrupts a compaction policy leaves `prompt()` bare, once the run has settled as if aborted."""
    interrupt = kind("stop")
    agent, recorder = make_agent(ScriptedProvider(), compaction=Policy(where, interrupt))
    assert await leaving(lambda: agent.prompt("hi")) is interrupt
    assert recorder.lines[-1] == f"agent_end aborted {kind.__name__}"
    assert_settled(recorder)


async def test_F7_an_interrupt_inside_a_group_of_a_tool_leaves_alone() -> None:
    """A tool with tasks of its own, one failing and one interrupted: the interrupt leaves bare, the failure is kept."""
    interrupt = KeyboardInterrupt("stop")

    @tool
    async def fans_out() -> str:
        """Fan out."""

        async def fails() -> None:
            raise ValueError("a sibling")

        async def interrupted() -> None:
            raise interrupt

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails)
            nursery.start_soon(interrupted)
        raise AssertionError("the nursery let it on")

    agent, recorder = make_agent(ScriptedProvider([call("c1", "fans_out"), finish("tool_use")]), tools=[fans_out])
    assert await leaving(lambda: agent.prompt("hi")) is interrupt
    assert recorder.lines[-1] == "agent_end aborted KeyboardInterrupt"
    assert_settled(recorder)
    assert_sendable(agent.state.messages)


async def test_F7_two_tools_interrupted_at_once_leave_one_interrupt() -> None:
    """Two tools interrupted in the same moment: one of the two interrupts leaves, bare."""
    both = trio.Event()

    @tool
    async def interrupted(n: int) -> str:
        """Be interrupted."""
        await both.wait()
        raise KeyboardInterrupt(n)

    script = ScriptedProvider(
        [call("c1", "interrupted", {"n": 1}), call("c2", "interrupted", {"n": 2}), finish("tool_use")]
    )
    agent, recorder = make_agent(script, tools=[interrupted])
    async with trio.open_nursery() as nursery:

        async def set_off() -> None:
            await trio.testing.wait_all_tasks_blocked()
            both.set()

        nursery.start_soon(set_off)
        assert type(await leaving(lambda: agent.prompt("hi"))) is KeyboardInterrupt
    assert_settled(recorder)
    assert_sendable(agent.state.messages)


async def test_F7_an_interrupt_in_what_a_tool_awaits_of_the_run() -> None:
    """A subscriber interrupted at a tool's update settles the run; the tool that waits for the update is cancelled."""
    left: list[str] = []

    @tool
    async def reports(context: ToolContext) -> str:
        """Report."""
        try:
            await context.update("half")
        finally:
            left.append("the tool was let go")
        raise AssertionError("it was not cancelled")

    agent, recorder = make_agent(ScriptedProvider([call("c1", "reports"), finish("tool_use")]), tools=[reports])
    on(agent, "tool_execution_update", lambda event: raising(KeyboardInterrupt)())
    assert type(await leaving(lambda: agent.prompt("hi"))) is KeyboardInterrupt
    assert left == ["the tool was let go"]
    assert_settled(recorder)


async def test_F7_an_interrupt_keeps_no_group_and_no_cancellation_behind_it() -> None:
    """What leaves has no `Cancelled` for its context: the traceback shows the interrupt, not how the run settled."""
    agent, _ = make_agent(ScriptedProvider(["hello", stall()]))
    on(agent, "message_update", lambda event: raising(KeyboardInterrupt)())
    left = await leaving(lambda: agent.prompt("hi"))
    assert left.__cause__ is None
    assert left.__suppress_context__ or not isinstance(left.__context__, trio.Cancelled | BaseExceptionGroup)


async def test_F7_an_interrupt_wins_over_a_failure_before_it() -> None:
    """A run that has failed already and is interrupted while it settles: the trace says error, the interrupt leaves."""
    agent, recorder = make_agent(ScriptedProvider([ValueError("first")]))
    on(agent, "turn_end", lambda event: raising(KeyboardInterrupt)())
    assert type(await leaving(lambda: agent.prompt("hi"))) is KeyboardInterrupt
    assert recorder.lines[-1] == "agent_end error"
    assert_settled(recorder)


async def test_F7_an_interrupt_wins_over_an_outside_cancellation() -> None:
    """An interrupt in a run that is being cancelled from outside leaves `prompt()`; the cancellation does not hide
    it.
    """
    agent, recorder = make_agent(ScriptedProvider(["hello", stall()]))
    scope = trio.CancelScope()

    def both(event: Any) -> None:
        scope.cancel()
        raise KeyboardInterrupt

    on(agent, "message_update", both)
    with scope:
        assert type(await leaving(lambda: agent.prompt("hi"))) is KeyboardInterrupt
    assert_settled(recorder)


async def test_F7_an_interrupt_arms_the_grace_period() -> None:
    """As if aborted: a subscriber that hangs after an interrupt is cut within the grace period."""
    agent, recorder = make_agent(ScriptedProvider(["hello", stall()]), grace=8)
    on(agent, "message_update", lambda event: raising(KeyboardInterrupt)())
    on(agent, "message_end", lambda event: trio.sleep_forever(), nth=2)
    began = trio.current_time()
    await leaving(lambda: agent.prompt("hi"))
    assert trio.current_time() - began == pytest.approx(4)
    assert_settled(recorder)


# A stray Cancelled


async def stray() -> trio.Cancelled:
    """A `Cancelled` that somebody kept, of a scope that is long gone."""
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.sleep_forever()
        except trio.Cancelled as exc:  # that is the fault that is tested
            kept = exc
    return kept


@at_each_kind
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_F7_a_stray_cancelled_in_a_subscriber_is_an_ordinary_failure(k: int, is_async: bool) -> None:
    """A `Cancelled`, saved and raised again with no scope cancelled, fails the run like any other exception."""
    tour, kept = Tour(), await stray()
    tour.agent.subscribe(At(k, raising(kept), is_async=is_async))
    result = await tour.agent.prompt("go")
    assert tour.cut_lines(k) == TOUR[: k + 1] + closing(k, "error")
    assert result.outcome == ("completed" if k == LAST else "error")
    assert_settled(tour.recorder)


@pytest.mark.parametrize("who", ["provider", "tool work", "tool rest", "compaction"])
async def test_F7_a_stray_cancelled_in_the_work_of_the_run_is_an_ordinary_failure(who: str) -> None:
    """A stray `Cancelled` of a provider fails the run; of a tool it is an error result; of a compaction it is
    reported.
    """
    tour = Tour()
    tour.trip(who, await stray())
    result = await tour.agent.prompt("go")
    assert result.outcome == ("error" if who == "provider" else "completed")
    if who.startswith("tool"):
        assert sum(" error " in line for line in tour.recorder.lines_of("tool_execution_end")) == 1
    if who == "compaction":
        assert "compaction_end failed" in tour.lines
    assert_settled(tour.recorder)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("hook", "outcome"),
    [
        ("transform_context", "completed"),
        ("convert_to_llm", "completed"),
        ("before_tool_call", "completed"),
        ("after_tool_result", "completed"),
        ("should_stop_after_turn", "error"),
    ],
)
async def test_F7_a_stray_cancelled_in_a_hook_is_an_ordinary_failure(hook: str, outcome: str, is_async: bool) -> None:
    """A stray `Cancelled` of a hook, sync or async, counts as what any exception of that hook counts as."""
    kept = await stray()

    def now(*_: Any) -> Any:
        raise kept

    async def later(*_: Any) -> Any:
        raise kept

    @tool
    async def answers() -> str:
        """Answer."""
        return "fine"

    provider = ScriptedProvider([call("c1", "answers"), finish("tool_use")], ["done", finish()])
    agent, recorder = make_agent(provider, tools=[answers], hooks=Hooks(**{hook: later if is_async else now}))
    result = await agent.prompt("hi")
    assert result.outcome == outcome
    assert_settled(recorder)


@pytest.mark.parametrize("where", ["threshold", "tokens", "compact"])
async def test_F7_a_stray_cancelled_in_a_compaction_policy_is_an_ordinary_failure(where: str) -> None:
    """A stray `Cancelled` of a compaction policy is reported, and the run goes on."""
    agent, recorder = make_agent(ScriptedProvider(["done", finish()]), compaction=Policy(where, await stray()))
    result = await agent.prompt("hi")
    assert result.outcome == "completed"
    assert result.suppressed
    assert_settled(recorder)


async def test_F7_a_stray_cancelled_while_the_run_is_aborted_changes_nothing() -> None:
    """A subscriber that raises a stray `Cancelled` during the closing events of an abort changes no outcome."""
    agent, recorder = make_agent(ScriptedProvider(["hello", stall()]))
    kept = await stray()
    on(agent, "message_update", lambda event: agent.abort("enough"))
    on(agent, "message_end", lambda event: raising(kept)(), nth=2)
    on(agent, "turn_end", lambda event: raising(kept)())
    result = await agent.prompt("hi")
    assert (result.outcome, result.reason) == ("aborted", "enough")
    assert len(result.suppressed) == 2
    assert said(agent.state.messages)[-1] == 'assistant aborted "hello" !aborted: enough'
    assert_settled(recorder)
