"""`agent.stream()`: the caller's own block reads the events of a run."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import trio
from scenes import assert_settled, make_agent

from trio_agent import AgentBusyError, AgentEnd, ReentrantCallError
from trio_agent.testing import ScriptedProvider, finish, sleep, stall, text


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


@pytest.mark.parametrize("first", ["break", "return at once"])
async def test_leaving_early_aborts_the_run_and_waits_for_it(first: str) -> None:
    """Leaving the block early aborts the run; behind the block the agent is idle and the result is there."""
    agent, recorder = make_agent(ScriptedProvider([text("he"), stall()]))
    async with agent.stream("go") as events:
        if first == "break":
            async for event in events:
                if event.type == "message_update":
                    break
    assert events.result.outcome == "aborted"
    assert events.result.reason == "the stream was left"
    assert_settled(recorder)


async def test_an_exception_of_the_block_leaves_it_bare() -> None:
    """What the block raises comes out as it is, with no group around it, once the run has settled."""
    agent, recorder = make_agent(ScriptedProvider([text("he"), stall()]))
    with pytest.raises(KeyError, match="mine"):
        async with agent.stream("go") as events:
            async for event in events:
                if event.type == "message_update":
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
