"""`agent.stream()`: the caller's own block reads the events of a run."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from scenes import assert_settled, deterministic, make_agent, on, trio_run
from tour import LAST, TOUR, At, Tour, assert_sendable, at_each_kind, closing, raising, tasks

from trio_agent import AgentBusyError, AgentEnd, Event, ReentrantCallError, tool
from trio_agent.testing import ScriptedProvider, call, finish, sleep, stall, text


class LeftError(Exception):
    """How a block was left."""


def by_break() -> bool:
    return True


def by_exception() -> bool:
    raise LeftError


def by_interrupt() -> bool:
    raise KeyboardInterrupt


async def read(tour: Tour, k: int, leave: Callable[[], bool]) -> Any:
    """Read the tour's events, and leave the block at event `k`. Gives the stream and what the block raised."""
    seen = 0
    stream = tour.agent.stream("go")
    try:
        async with stream as events:
            async for _ in events:
                if seen == k and leave():
                    break
                seen += 1
    except BaseException as exc:  # whatever it is, the test looks at it
        return stream, exc
    return stream, None


async def until(events: Any, type: str) -> None:
    """Read up to the next event of a type."""
    while (await anext(events)).type != type:
        pass


async def test_the_block_gets_every_event_and_then_the_result() -> None:
    """The iterator gives what a subscriber gets, ends behind agent_end, and `result` is the run's."""
    agent, recorder = make_agent(ScriptedProvider([text("he", "llo"), finish()]))
    seen = []
    async with agent.stream("go") as events:
        async for event in events:
            seen.append(event)
        assert events.result.text == "hello"
    assert seen == recorder.events
    assert isinstance(seen[-1], AgentEnd)
    assert_settled(recorder)


async def test_the_run_waits_for_the_block() -> None:
    """Each event is handed over before the run goes on: a slow block slows the run, and is ahead of nothing."""
    agent, recorder = make_agent(ScriptedProvider([text("a", "b", "c"), finish()]))
    async with agent.stream("go") as events:
        count = 0
        async for _ in events:
            count += 1
            await trio.sleep(1)
            assert len(recorder.events) == count
    assert_settled(recorder)


async def test_the_result_is_refused_until_the_run_is_over() -> None:
    """`result` raises while the run goes on."""
    agent, _ = make_agent(ScriptedProvider([text("hi"), finish()]))
    async with agent.stream("go") as events:
        with pytest.raises(RuntimeError, match="not over yet"):
            _ = events.result


@pytest.mark.parametrize("first", ["after an update", "at once"])
async def test_leaving_early_aborts_the_run_and_waits_for_it(first: str) -> None:
    """Leaving the block early aborts the run; behind the block the agent is idle and the result is there."""
    agent, recorder = make_agent(ScriptedProvider([text("he"), stall()]))
    async with agent.stream("go") as events:
        if first == "after an update":
            await until(events, "message_update")
    assert events.result.outcome == "aborted"
    assert events.result.reason == "the stream was left"
    assert_settled(recorder)


async def test_an_exception_of_the_block_leaves_it_bare() -> None:
    """What the block raises comes out as it is, with no group around it, once the run has settled."""
    agent, recorder = make_agent(ScriptedProvider([text("he"), stall()]))
    with pytest.raises(KeyError, match="mine"):
        async with agent.stream("go") as events:
            await until(events, "message_update")
            raise KeyError("mine")
    assert events.result.outcome == "aborted"
    assert_settled(recorder)


async def test_cancelling_the_block_settles_the_run() -> None:
    """A time-out around the block ends both; Cancelled reaches its scope, bare."""
    agent, recorder = make_agent(ScriptedProvider([text("he"), stall()]))
    with trio.move_on_after(2) as scope:
        async with agent.stream("go") as events:
            async for _ in events:
                pass
    assert scope.cancelled_caught
    assert recorder.events[-1].outcome == "aborted"
    assert_settled(recorder)


async def test_the_block_counts_as_inside_the_run() -> None:
    """From the block, and from tasks of it, waiting for the run is refused (A6); steering is welcome."""
    agent, recorder = make_agent(ScriptedProvider([text("a"), sleep(1), finish()], [text("b"), finish()]))
    refused: list[BaseException] = []

    async def wait() -> None:
        try:
            await agent.wait_for_idle()
        except ReentrantCallError as exc:
            refused.append(exc)

    async with agent.stream("go") as events:
        async for event in events:
            if event.type == "turn_start" and not refused:
                await wait()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(wait)
                with pytest.raises(ReentrantCallError):
                    await agent.prompt("again")
                agent.steer("more")
    assert len(refused) == 2
    assert events.result.text == "b"
    assert_settled(recorder)


async def test_a_stream_of_a_busy_agent_is_refused_at_its_entry() -> None:
    """While a run is in progress stream() raises, and the run goes on."""
    agent, recorder = make_agent(ScriptedProvider([text("he"), sleep(5), finish()]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.sleep(1)
        with pytest.raises(AgentBusyError):
            async with agent.stream("again"):
                pytest.fail("entered")
    assert recorder.events[-1].outcome == "completed"
    assert_settled(recorder)


@pytest.mark.parametrize("value", ["", "  ", []])
def test_a_stream_of_nothing_is_refused_when_it_is_made(value: Any) -> None:
    """The input is looked at before anything begins."""
    agent, _ = make_agent(ScriptedProvider())
    with pytest.raises(ValueError, match=r"nothing to say|blank"):
        agent.stream(value)


async def test_a_stream_is_entered_once() -> None:
    """A second entry raises, and names what to do."""
    agent, _ = make_agent(ScriptedProvider([text("hi"), finish()]))
    stream = agent.stream("go")
    async with stream as events:
        async for _ in events:
            pass
    with pytest.raises(RuntimeError, match="entered once"):
        async with stream:
            pytest.fail("entered")


async def test_a_failing_subscriber_beside_the_block_ends_the_iteration_with_the_error() -> None:
    """A run that fails is told to its end; the result says why."""
    agent, recorder = make_agent(ScriptedProvider([text("hi"), finish()]))

    def fails(event: Any) -> None:
        if event.type == "message_update":
            raise ValueError("boom")

    agent.subscribe(fails)
    async with agent.stream("go") as events:
        types = [event.type async for event in events]
    assert types[-1] == "agent_end"
    assert isinstance(events.result.error, ValueError)
    assert_settled(recorder)


async def test_B162_dropping_the_iterator_leaves_nothing_to_collect() -> None:
    """The iterator is no generator: dropped in the middle it leaves no warning and no task behind."""
    agent, recorder = make_agent(ScriptedProvider([text("he"), stall()]))
    async with agent.stream("go") as events:
        iterator = aiter(events)
        await anext(iterator)
        del iterator
        gc.collect()
    assert_settled(recorder)


@at_each_kind
@pytest.mark.parametrize("leave", [by_break, by_exception, by_interrupt], ids=lambda leave: leave.__name__)
async def test_leaving_at_any_event_aborts_there_and_waits(k: int, leave: Callable[[], bool]) -> None:
    """Left at any event, by `break` or by an exception, the run is aborted right there; behind the block it is idle."""
    tour = Tour()
    before = tasks()
    stream, left = await read(tour, k, leave)
    assert type(left) is {by_break: type(None), by_exception: LeftError, by_interrupt: KeyboardInterrupt}[leave]
    assert tour.cut_lines(k) == TOUR[: k + 1] + closing(k, "aborted")
    assert stream.result.outcome == ("completed" if k == LAST else "aborted")
    assert_settled(tour.recorder)
    assert_sendable(tour.agent.state.messages)
    assert tasks() == before


@at_each_kind
async def test_a_time_out_around_the_block_at_any_event(k: int) -> None:
    """The scope around the block is cancelled at any event: the run is settled, `Cancelled` reaches its scope."""
    tour = Tour()
    before = tasks()
    with trio.CancelScope() as scope:
        async with tour.agent.stream("go") as events:
            for _ in range(k + 1):
                await anext(events)
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert tour.cut_lines(k) == TOUR[: k + 1] + closing(k, "aborted")
    assert tour.lines[: k + 1] == TOUR[: k + 1]
    assert_settled(tour.recorder)
    assert tasks() == before


@at_each_kind
async def test_an_abort_by_the_block_is_read_to_the_end(k: int) -> None:
    """A block that aborts at any event and reads on gets the closing events, and the result behind them."""
    tour = Tour()
    seen: list[Event] = []
    async with tour.agent.stream("go") as events:
        async for event in events:
            seen.append(event)
            if len(seen) == k + 1:
                tour.agent.abort("enough")
    assert seen == tour.recorder.events
    assert tour.cut_lines(k) == TOUR[: k + 1] + closing(k, "aborted")
    assert events.result.outcome == ("completed" if k == LAST else "aborted")
    assert_settled(tour.recorder)


@at_each_kind
async def test_an_interrupt_in_the_run_waits_for_the_end_of_the_block(k: int) -> None:
    """An interrupt in a subscriber settles the run while the block reads on, and leaves bare at the block's end."""
    tour = Tour()
    tour.agent.subscribe(At(k, raising(KeyboardInterrupt)))
    seen: list[Event] = []
    with pytest.raises(KeyboardInterrupt):
        async with tour.agent.stream("go") as events:
            async for event in events:
                seen.append(event)
    assert seen == tour.recorder.events
    assert tour.cut_lines(k) == TOUR[: k + 1] + closing(k, "aborted")
    assert_settled(tour.recorder)


async def test_the_blocks_own_exception_wins_over_what_went_wrong_in_the_run() -> None:
    """When the run fails, or is interrupted, and the block raises, the block's exception leaves, bare."""
    agent, recorder = make_agent(ScriptedProvider([text("he"), stall()]))
    on(agent, "message_end", lambda event: raising(KeyboardInterrupt)(), nth=2)
    with pytest.raises(LeftError) as caught:
        async with agent.stream("go") as events:
            await until(events, "message_update")
            raise LeftError
    assert not isinstance(caught.value.__context__, trio.Cancelled)
    assert_settled(recorder)


async def test_leaving_waits_for_the_other_subscribers() -> None:
    """What another subscriber still awaits when the block is left is awaited, within the grace period."""
    agent, recorder = make_agent(ScriptedProvider([text("he"), stall()]))
    written: list[str] = []

    async def writes(event: Event) -> None:
        await trio.sleep(0.1)
        written.append(event.type)

    agent.subscribe(writes)
    async with agent.stream("go") as events:
        async for event in events:
            if event.type == "message_update":
                break
    assert written == recorder.types
    assert_settled(recorder)


async def test_a_block_that_is_busy_when_the_run_is_aborted_loses_no_event() -> None:
    """A block that takes longer than the grace period over one event does not hold up an abort, and reads the rest
    after it.
    """
    agent, recorder = make_agent(ScriptedProvider([text("he"), stall()]), grace=8)
    seen: list[Event] = []
    ended: list[float] = []

    async def abort() -> None:
        await trio.sleep(1)
        agent.abort("enough")

    on(agent, "agent_end", lambda event: ended.append(trio.current_time()))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(abort)
        async with agent.stream("go") as events:
            async for event in events:
                seen.append(event)
                if event.type == "message_update":
                    await trio.sleep(100)
    assert ended[0] <= 9
    assert seen == recorder.events
    assert events.result.outcome == "aborted"
    assert_settled(recorder)


async def test_a_time_out_around_one_step_loses_no_event() -> None:
    """Giving up the wait for one event and asking again later gives every event, in order."""
    agent, recorder = make_agent(ScriptedProvider([sleep(3), text("he"), sleep(3), finish()]))
    seen: list[Event] = []
    given_up = 0
    async with agent.stream("go") as events:
        while True:
            event = None
            with trio.move_on_after(1):
                try:
                    event = await anext(events)
                except StopAsyncIteration:
                    break
            if event is None:
                given_up += 1
            else:
                seen.append(event)
    assert seen == recorder.events
    assert given_up >= 4
    assert_settled(recorder)


async def test_tasks_of_the_block_may_read_and_steer() -> None:
    """The block may hand the iterator to a task of its own, and steer the run meanwhile."""
    agent, recorder = make_agent(ScriptedProvider([text("a"), finish()], [text("b"), finish()]))
    seen: list[Event] = []

    async with agent.stream("go") as events:

        async def reads() -> None:
            async for event in events:
                seen.append(event)
                if event.type == "message_update" and len(seen) < 10:
                    agent.steer("more")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(reads)
    assert seen == recorder.events
    assert events.result.text == "b"
    assert_settled(recorder)


async def test_a_task_of_the_block_that_fails_leaves_as_trio_has_it() -> None:
    """A nursery inside the block raises its group as ever; the stream adds nothing to it."""
    agent, recorder = make_agent(ScriptedProvider([text("a"), stall()]))

    async def fails() -> None:
        raise LeftError

    with pytest.raises(ExceptionGroup) as caught:
        async with agent.stream("go"), trio.open_nursery() as nursery:
            nursery.start_soon(fails)
    assert [type(exc) for exc in caught.value.exceptions] == [LeftError]
    assert_settled(recorder)


async def test_a_stream_inside_a_tool_is_aborted_with_the_outer_run() -> None:
    """A tool that streams another agent: aborting the outer run settles the inner one, lawfully (A7)."""
    inner, inside = make_agent(ScriptedProvider([text("he"), stall()]))

    @tool
    async def delegate() -> str:
        """Let another agent do it."""
        async with inner.stream("inner") as events:
            async for _ in events:
                pass
        raise AssertionError("nobody ended it")

    outer, outside = make_agent(ScriptedProvider([call("c1", "delegate"), finish("tool_use")]), tools=[delegate])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outer.prompt, "go")
        await trio.sleep(1)
        outer.abort()
    assert inside.lines[-1].startswith("agent_end aborted")
    assert_settled(inside)
    assert_settled(outside)


async def test_two_streams_of_two_agents_inside_each_other() -> None:
    """Blocks nest: leaving the inner one aborts the inner run alone."""
    one, first = make_agent(ScriptedProvider([text("a"), finish()]))
    two, second = make_agent(ScriptedProvider([text("b"), stall()]))
    async with one.stream("go") as outer:
        async for event in outer:
            if event.type == "message_update":
                async with two.stream("go") as inner:
                    async for other in inner:
                        if other.type == "message_update":
                            break
    assert (outer.result.outcome, inner.result.outcome) == ("completed", "aborted")
    assert_settled(first)
    assert_settled(second)


async def test_B162_leaving_early_does_not_disturb_the_scopes_of_the_caller() -> None:
    """Behind a block that was left early, scopes, nurseries and another stream of the same agent work as before."""
    agent, recorder = make_agent(ScriptedProvider([text("a"), stall()], [text("b"), finish()]))
    async with trio.open_nursery() as nursery:
        with trio.move_on_after(100) as scope:
            async with agent.stream("go") as events:
                async for event in events:
                    if event.type == "message_update":
                        break
            async with agent.stream("again") as events:
                async for _ in events:
                    pass
        nursery.start_soon(trio.lowlevel.checkpoint)
    assert not scope.cancelled_caught
    assert events.result.text == "b"
    gc.collect()
    assert_settled(recorder)


async def test_B162_a_stream_that_is_never_entered_leaves_nothing() -> None:
    """A stream that was made and dropped has begun nothing."""
    agent, recorder = make_agent(ScriptedProvider([text("a"), finish()]))
    agent.stream("go")
    gc.collect()
    assert recorder.events == []
    assert (await agent.prompt("now")).text == "a"
    assert_settled(recorder)


def test_a_stream_may_be_made_outside_of_any_run() -> None:
    """`stream()` is sync and begins nothing: it may be made before `trio.run`, and entered inside of it."""
    agent, recorder = make_agent(ScriptedProvider([text("a"), finish()]))
    stream = agent.stream("go")

    async def main() -> str:
        async with stream as events:
            async for _ in events:
                pass
        return events.result.text

    assert trio_run(main) == "a"
    assert_settled(recorder)


@pytest.mark.parametrize("other", ["stream", "prompt"])
def test_of_two_that_begin_at_once_one_runs_and_the_other_is_refused(other: str) -> None:
    """Two tasks begin in the same moment, in whatever order Trio runs them: one run, and a bare `AgentBusyError`."""
    for seed in range(12):
        agent, recorder = make_agent(ScriptedProvider([text("a"), finish()], [text("never asked"), finish()]))
        outcomes: list[str] = []
        entered: list[str] = []

        async def streams(agent: Any = agent, entered: list[str] = entered) -> str:
            async with agent.stream("go") as events:
                entered.append("a block")
                types = [event.type async for event in events]
            return f"{types[0]} to {types[-1]}: {events.result.text}"

        async def prompts(agent: Any = agent) -> str:
            return f"agent_start to agent_end: {(await agent.prompt('go')).text}"

        async def begins(run: Callable[[], Awaitable[str]], outcomes: list[str] = outcomes) -> None:
            try:
                outcomes.append(await run())
            except AgentBusyError:
                outcomes.append("refused")

        async def main(first: Any = streams, second: Any = streams if other == "stream" else prompts) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(begins, first)
                nursery.start_soon(begins, second)

        with deterministic(seed):
            trio_run(main)
        assert sorted(outcomes) == ["agent_start to agent_end: a", "refused"]
        assert len(entered) <= 1, "the block of the one that is refused is not entered"
        assert recorder.types.count("agent_start") == 1
        assert_settled(recorder)


async def test_F7_an_interrupt_of_the_run_is_not_lost_to_an_exception_of_the_block() -> None:
    """What the block raises leaves it bare, and says that a KeyboardInterrupt had left the run."""

    @tool
    async def interrupted() -> str:
        """Raise as Ctrl-C would."""
        raise KeyboardInterrupt

    agent, recorder = make_agent(ScriptedProvider([call("c1", "interrupted"), finish("tool_use")]), tools=[interrupted])
    with pytest.raises(KeyError) as caught:
        async with agent.stream("go") as events:
            async for _ in events:
                pass
            raise KeyError("the block's")
    assert caught.value.__notes__ == ["the run of the stream was left by KeyboardInterrupt"]
    assert_settled(recorder)
