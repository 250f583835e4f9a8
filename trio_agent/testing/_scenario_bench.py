"""What the tools of one example share, and the file that they write.

Here lives what tools did, written down by themselves, and the faults that only they can see: what ran beside what. The
tools are in `_scenario_tools.py`; what has to hold of what they did is in `_scenario_checks.py`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from .._agent import Agent
from .._file_locks import FileLocks


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
    def at_work(self, key: str) -> Generator[None]:
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
