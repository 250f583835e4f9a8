"""What the kernel costs, by counting: calls into the package, steps of tasks, memory. Nothing in here measures time.

The bounds are what was counted, plus a tenth. Who gets under one by a design lowers it; who exceeds one has put work
on a path that every delta, turn or call takes. Coroutines count once for each time they go on. The two versions of
Python differ a little, as since 3.12 a comprehension is no call.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio

import trio_agent
from trio_agent import (
    Agent,
    AssistantMessage,
    Event,
    Finish,
    MessageUpdate,
    ModelRequest,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    ToolResultMessage,
    TurnStart,
    UserMessage,
    tool,
)

PACKAGE = os.path.dirname(trio_agent.__file__) + os.sep
Send = Callable[[Any], Awaitable[None]]


class Calls:
    """How often a function of the package was called or a coroutine of it went on."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def counted(self) -> Iterator[Calls]:
        before = sys.getprofile()
        sys.setprofile(self._profile)
        try:
            yield self
        finally:
            sys.setprofile(before)

    def _profile(self, frame: Any, event: str, _arg: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):  # pragma: no cover - runs untraced
            self.count += 1


class Steps(trio.abc.Instrument):
    """How often a task was run, and how many tasks were started."""

    def __init__(self) -> None:
        self.steps = 0
        self.tasks = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps += 1

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.tasks += 1


@tool
async def noop() -> str:
    """Do nothing, with a checkpoint."""
    await trio.lowlevel.checkpoint()
    return "done"


async def ignore(_event: Event) -> None:
    """An async subscriber, as most are."""


def tool_turns(turns: int) -> Callable[[ModelRequest, Send], Awaitable[None]]:
    asked = 0

    async def provider(request: ModelRequest, send: Send) -> None:
        nonlocal asked
        asked += 1
        await send(TextDelta(0, "abcd"))
        if asked < turns:
            await send(ToolCallStart(1, f"c{asked}", "noop"))
            await send(ToolCallDelta(1, "{}"))
        await send(Finish("tool_use" if asked < turns else "stop"))

    return provider


def one_text(deltas: int) -> Callable[[ModelRequest, Send], Awaitable[None]]:
    async def provider(request: ModelRequest, send: Send) -> None:
        for _ in range(deltas):
            await send(TextDelta(0, "abcd"))
        await send(Finish("stop"))

    return provider


def many_calls(calls: int) -> Callable[[ModelRequest, Send], Awaitable[None]]:
    async def provider(request: ModelRequest, send: Send) -> None:
        if isinstance(request.messages[-1], ToolResultMessage):
            await send(TextDelta(0, "abcd"))
            await send(Finish("stop"))
            return
        for at in range(calls):
            await send(ToolCallStart(at, f"c{at}", "noop"))
            await send(ToolCallDelta(at, "{}"))
        await send(Finish("tool_use"))

    return provider


def agent_of(provider: Any) -> Agent:
    agent = Agent(provider, model="m", tools=[noop])
    agent.subscribe(ignore)
    return agent


MAKERS = {"delta": one_text, "turn": tool_turns, "call": many_calls}


async def counts(unit: str, size: int) -> tuple[int, int, int]:
    """Calls, task steps and tasks of a whole run."""
    agent, calls, steps = agent_of(MAKERS[unit](size)), Calls(), Steps()
    trio.lowlevel.add_instrument(steps)
    try:
        with calls.counted():
            result = await agent.prompt("go")
    finally:
        trio.lowlevel.remove_instrument(steps)
    assert result.outcome == "completed"
    return calls.count, steps.steps, steps.tasks


async def per_unit(unit: str, small: int, large: int) -> tuple[float, float, float]:
    """Calls, task steps and tasks of one unit: a longer run less a shorter one, by their difference in size."""
    await counts(unit, small)  # so that what is made at first use is nobody's cost
    shorter, longer = await counts(unit, small), await counts(unit, large)
    calls, steps, tasks = [(b - a) / (large - small) for a, b in zip(shorter, longer, strict=True)]
    return calls, steps, tasks


@pytest.mark.parametrize(
    ("unit", "small", "large", "calls", "steps", "tasks"),
    [
        ("delta", 640, 6400, 6.7, 0.01, 0),
        ("turn", 20, 120, 250, 5, 0),
        ("call", 20, 120, 114, 2.1, 1),
    ],
)
async def test_a_unit_of_work_costs_no_more_than_this(
    unit: str, small: int, large: int, calls: float, steps: float, tasks: float
) -> None:
    """A delta, a turn and a call each take so many calls into the package, task steps and new tasks."""
    counted = await per_unit(unit, small, large)
    assert counted[0] <= calls, f"{counted[0]:.1f} calls for a {unit}"
    assert counted[1] <= steps, f"{counted[1]:.2f} task steps for a {unit}"
    assert counted[2] <= tasks, f"{counted[2]:.2f} new tasks for a {unit}"


async def test_a_short_run_costs_no_more_than_this() -> None:
    """A run of five turns, with all that it takes to begin and to end."""
    await counts("turn", 5)
    calls, steps, tasks = await counts("turn", 5)
    assert (calls <= 1215, steps <= 28, tasks <= 3) == (True, True, True), (calls, steps, tasks)


async def test_a_run_costs_the_same_among_many() -> None:
    """What a run costs does not depend on how many others are under way."""

    async def calls_among(others: int) -> float:
        calls = Calls()
        with calls.counted():
            async with trio.open_nursery() as nursery:
                for _ in range(others):
                    nursery.start_soon(agent_of(tool_turns(3)).prompt, "go")
        return calls.count / others

    await calls_among(2)
    few, many = await calls_among(10), await calls_among(200)
    assert many <= few * 1.01


async def test_a_turn_costs_the_same_however_long_the_run() -> None:
    """The calls of a turn around the two thousandth are those of one around the fiftieth."""
    agent, calls, at_turn = agent_of(tool_turns(2000)), Calls(), [0] * 2001

    def note(event: Event) -> None:
        if isinstance(event, TurnStart):
            at_turn[event.turn] = calls.count

    agent.subscribe(note)
    with calls.counted():
        await agent.prompt("go")
    assert at_turn[1999] - at_turn[1949] == at_turn[99] - at_turn[49]


async def test_a_turn_needs_no_memory_in_proportion_to_the_history() -> None:
    """Nothing copies the history: what a turn needs for a moment is as much at the end of a run as at its beginning."""
    agent, needed = agent_of(tool_turns(2000)), []

    def note(event: Event) -> None:
        if isinstance(event, TurnStart):
            now, peak = tracemalloc.get_traced_memory()
            needed.append(peak - now)
            tracemalloc.reset_peak()

    agent.subscribe(note)
    with traced():
        await agent.prompt("go")
    # The median, as in some turns a list has grown out of its place and is moved.
    early, late = statistics.median(needed[50:100]), statistics.median(needed[1950:2000])
    assert late <= early + 2_000, (early, late)  # a copy of the list alone would be 48,000 bytes


async def test_a_delta_keeps_no_memory_but_its_own() -> None:
    """A message of many deltas takes memory in proportion to them, whatever subscribers are told of it."""

    async def kept(deltas: int) -> float:
        agent = agent_of(one_text(deltas))
        peak = 0

        def note(event: Event) -> None:
            nonlocal peak
            if isinstance(event, MessageUpdate):
                peak = tracemalloc.get_traced_memory()[0]

        agent.subscribe(note)
        with traced():
            await agent.prompt("go")
        return peak / deltas

    assert await kept(20_000) <= await kept(5_000) * 1.1


async def test_the_state_costs_the_same_however_long_the_history() -> None:
    """A look at `agent.state` takes as many calls and as much memory for 6,000 messages as for 3."""

    def cost(messages: int) -> tuple[int, int]:
        history = [UserMessage("hi"), *[AssistantMessage("hello")] * (messages - 1)]
        agent, calls = Agent(one_text(1), model="m", messages=history), Calls()
        assert len(agent.state.messages) == messages
        with calls.counted():
            _ = agent.state
        with traced():
            before = tracemalloc.get_traced_memory()[0]
            _ = agent.state
            return calls.count, tracemalloc.get_traced_memory()[1] - before

    cost(3)
    (calls, memory), (few, little) = cost(6000), cost(3)
    assert calls == few
    assert memory <= little + 100  # a number that is no small one


@contextmanager
def traced() -> Iterator[None]:
    """Memory is counted inside, and only by what is done there: no collection runs by itself."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()
        gc.enable()
