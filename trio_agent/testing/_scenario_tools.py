"""The tools of a scenario: one for each way in which a tool can behave.

Here live the fakes that the kernel runs, and what each of them wrote down. They find the example that they belong to by a
context variable, so that their schemas are made only once. What has to hold of what they did is in `_scenario_checks.py`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from .._agent import Agent
from .._chunks import Finish, TextDelta, ToolCallStart
from .._file_locks import FileLocks
from .._provider import Send
from .._request import ModelRequest
from .._tool_context import ToolContext
from .._tools import Tool, tool


@attrs.define
class Bench:
    """What the tools of one example share: what they did, and where their late reports come from."""

    agent: Agent
    locks: FileLocks
    background: trio.Nursery
    file: Path
    steer: Callable[[str], object]
    begun: list[str] = attrs.field(factory=list[str])
    returned: dict[str, str] = attrs.field(factory=dict[str, str])
    asked: list[str] = attrs.field(factory=list[str])  # every call, in call order
    wrote: list[str] = attrs.field(factory=list[str])
    writing: list[str] = attrs.field(factory=list[str])
    serial: list[str] = attrs.field(factory=list[str])  # the serial calls under way
    running: list[str] = attrs.field(factory=list[str])
    faults: list[str] = attrs.field(factory=list[str])
    inner_events: list[list[Any]] = attrs.field(factory=list[list[Any]])
    closed: bool = False  # from here on nothing may begin (A2)

    @contextmanager
    def at_work(self, key: str) -> Iterator[None]:
        """A tool is running."""
        if self.closed:
            self.faults.append(f"A2: tool {key} began after the abort")
        if self.serial:
            self.faults.append(f"T2: {key} ran beside the serial {self.serial[0]}")
        self.begun.append(key)
        self.running.append(key)
        try:
            yield
        finally:
            self.running.remove(key)

    def answer(self, key: str) -> str:
        self.returned[key] = f"answer of {key}"
        return self.returned[key]

    async def append(self, key: str, path: str, seconds: float) -> None:
        """Read, wait, write: two of these at once lose a line."""
        if self.writing:
            self.faults.append(f"T8: {key} writes while {self.writing[0]} does")
        self.writing.append(key)
        try:
            lines = Path(path).read_text("utf-8")
            await work(seconds)
            Path(path).write_text(f"{lines}{key}\n", "utf-8")
            self.wrote.append(key)
        finally:
            self.writing.remove(key)


bench: Final[ContextVar[Bench]] = ContextVar("trio_agent.testing bench")


class Directory:
    """One file under four names, for as long as the process lives."""

    _made: tempfile.TemporaryDirectory[str] | None = None

    @classmethod
    def file(cls) -> Path:
        """The file, empty."""
        if cls._made is None:
            cls._made = tempfile.TemporaryDirectory(prefix="trio-agent-storm-")
            root = Path(cls._made.name)
            (root / "sub").mkdir()
            (root / "plain").write_text("", "utf-8")
            (root / "link").symlink_to(root / "plain")
            (root / "hard").hardlink_to(root / "plain")
        file = Path(cls._made.name) / "plain"
        file.write_text("", "utf-8")
        return file


def spelled(file: Path, spelling: str) -> str:
    return str(file.parent / "sub" / ".." / "plain") if spelling == "dotted" else str(file.parent / spelling)


async def work(seconds: float) -> None:
    if seconds:
        await trio.sleep(seconds)
    else:
        await trio.lowlevel.checkpoint()


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


@tool
async def swallows(key: str) -> str:
    """Return when cancelled."""
    with bench.get().at_work(key):
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            return "swallowed"  # noqa: ASYNC104  # this is what the example is about


@tool
async def wraps(key: str) -> str:
    """Raise something else when cancelled."""
    with bench.get().at_work(key):
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            raise RuntimeError(f"{key} was cancelled, it says") from None  # noqa: ASYNC104  # what the example is about


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
        if result.outcome == "completed":
            own.returned[key] = result.text
        return result.text


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
    bench.get().faults.append(f"T5: {key} ran with {number!r}")
    return "never"


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
