"""The tools of a scenario: one for each way in which a tool can behave.

Here live the fakes that the kernel runs. They find the example that they belong to by a context variable, so that their
schemas are made only once. What they write down is in `_scenario_bench.py`.
"""

from __future__ import annotations

from typing import Any, Final

import trio

from .._agent import Agent
from .._chunks import Finish, TextDelta, ToolCallStart
from .._provider import Send
from .._request import ModelRequest
from .._tool_context import ToolContext
from .._tools import Tool, tool
from ._scenario_bench import bench, work


@tool
async def returns(key: str, seconds: float = 0.0) -> str:
    """Answer."""
    with bench.get().at_work(key):
        await work(seconds)
        return bench.get().answer(key)


@tool
async def raises(key: str, seconds: float = 0.0) -> str:
    """Raise."""
    with bench.get().at_work(key):
        await work(seconds)
        raise ValueError(f"{key} went wrong")


@tool
async def hangs(key: str) -> str:
    """Never return."""
    with bench.get().at_work(key):
        await trio.sleep_forever()
    raise AssertionError("unreachable")


@tool
async def swallows(key: str) -> str:
    """Return when cancelled."""
    with bench.get().at_work(key):
        try:
            await trio.sleep_forever()
        except trio.Cancelled:  # noqa: ASYNC103  # this is what the example is about
            return "swallowed"  # noqa: ASYNC104
    raise AssertionError("unreachable")


@tool
async def wraps(key: str) -> str:
    """Raise something else when cancelled."""
    with bench.get().at_work(key):
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            raise RuntimeError(f"{key} was cancelled, it says") from None  # noqa: ASYNC104  # what the example is about
    raise AssertionError("unreachable")


@tool
async def nursery(key: str, seconds: float = 0.0) -> str:
    """Answer, with two tasks."""
    with bench.get().at_work(key):
        async with trio.open_nursery() as own:
            own.start_soon(work, seconds)
            own.start_soon(work, seconds)
        return bench.get().answer(key)


@tool
async def torn(key: str) -> str:
    """Have two tasks, one of which raises when it is cancelled."""

    async def fail() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError(f"{key} could not clean up")

    with bench.get().at_work(key):
        async with trio.open_nursery() as own:
            own.start_soon(fail)
            await trio.sleep_forever()
        raise AssertionError("unreachable")


@tool
async def updates(key: str, context: ToolContext, seconds: float = 0.0) -> str:
    """Report twice, then answer."""
    with bench.get().at_work(key):
        await context.update(f"{key}: a half")
        await work(seconds)
        await context.update(f"{key}: nearly")
        return bench.get().answer(key)


@tool
async def late(key: str, context: ToolContext, seconds: float = 0.0) -> str:
    """Answer, and report afterwards."""

    async def report() -> None:
        await trio.sleep(seconds + 1)
        await context.update(f"{key}: too late")

    with bench.get().at_work(key):
        bench.get().background.start_soon(report)
        await work(seconds)
        return bench.get().answer(key)


@tool(serial=True)
async def serial(key: str, seconds: float = 0.0) -> str:
    """Answer, alone."""
    own = bench.get()
    if own.running:
        own.faults.append(f"T2: the serial {key} ran beside {own.running[0]}")
    with own.at_work(key):
        own.serial.append(key)
        try:
            await work(seconds)
        finally:
            own.serial.remove(key)
        return own.answer(key)


@tool(writes=("path",))
async def writes(key: str, path: str, seconds: float = 0.0) -> str:
    """Append to a file."""
    with bench.get().at_work(key):
        await bench.get().append(key, path, seconds)
        return bench.get().answer(key)


@tool
async def locks(key: str, path: str, context: ToolContext, seconds: float = 0.0) -> str:
    """Append to a file that is locked only now."""
    with bench.get().at_work(key):
        async with context.lock_files(path):
            await bench.get().append(key, path, seconds)
        return bench.get().answer(key)


@tool
async def agent(key: str, seconds: float = 0.0) -> str:
    """Let another agent answer."""
    own = bench.get()

    async def provider(request: ModelRequest, send: Send) -> None:
        await work(seconds)
        if len(request.messages) == 1:
            await send(TextDelta(0, "I look"))
            await send(ToolCallStart(1, "inner", "look"))
            await send(Finish("tool_use"))
        else:
            await send(TextDelta(0, f"answer of {key}"))
            await send(Finish("stop"))

    @tool
    async def look() -> str:
        """Look."""
        await work(seconds)
        return "seen"

    with own.at_work(key):
        inner = Agent(provider, model="inner", tools=[look], file_locks=own.locks)
        events: list[Any] = []
        own.inner_events.append(events)
        inner.subscribe(events.append)
        result = await inner.prompt("look")
        own.returned[key] = result.text or f"it ended {result.outcome}"
        return own.returned[key]


@tool
async def unusable(key: str) -> object:
    """Answer with something that no model can be shown."""
    with bench.get().at_work(key):
        await work(0)
        return object()


@tool(timeout=2)
async def times_out(key: str) -> str:
    """Take too long."""
    with bench.get().at_work(key):
        await trio.sleep_forever()
    raise AssertionError("unreachable")


@tool
async def aborts(key: str, seconds: float = 0.0) -> str:
    """Abort the run around it."""
    with bench.get().at_work(key):
        await work(seconds)
        bench.get().agent.abort("said a tool")
        return "aborted it"


@tool
async def steers(key: str, seconds: float = 0.0) -> str:
    """Say something at the next turn boundary."""
    with bench.get().at_work(key):
        await work(seconds)
        bench.get().steer(f"steered by {key}")
        return bench.get().answer(key)


@tool
async def invalid(key: str, number: int) -> str:
    """Be called with arguments that do not fit."""
    with bench.get().at_work(key):
        bench.get().faults.append(f"T5: {key} ran with {number!r}")
        await work(0)
        return bench.get().answer(key)


TOOLS: Final[tuple[Tool, ...]] = (
    returns,
    raises,
    hangs,
    swallows,
    wraps,
    nursery,
    torn,
    updates,
    late,
    serial,
    writes,
    locks,
    agent,
    unusable,
    times_out,
    aborts,
    steers,
    invalid,
)
