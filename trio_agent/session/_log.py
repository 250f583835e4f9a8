"""The log that is the history: a subscriber that appends, and the only writer of its file.

Here lives the writing. Reading is in `_load.py`, new files made of messages in `_save.py`.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import trio

from .. import (
    AgentEnd,
    AgentStart,
    CompactionEnd,
    CompactionStart,
    Event,
    MessageEnd,
    RetryEnd,
    RetryStart,
    ToolExecutionEnd,
    ToolResultMessage,
    TurnStart,
)
from ._load import check_is_session, load_session
from ._lock import lock_session
from ._rebuild import Session
from ._records import header_line, line_of

# What history needs. A result is written when its call ends, which is before history takes it: a kill loses none.
_HISTORY: Final = (
    AgentStart,
    TurnStart,
    MessageEnd,
    ToolExecutionEnd,
    RetryStart,
    RetryEnd,
    CompactionStart,
    CompactionEnd,
    AgentEnd,
)


class SessionLog:
    """Appends a conversation to a JSONL file: `agent.subscribe(log)`.

        with SessionLog("talk.jsonl") as log:
            agent = Agent(provider, model="m", messages=log.load().messages)
            agent.subscribe(log)

    A line is whole and with the operating system when the subscriber returns, so it outlives the process; with
    `fsync` it is on the disk, and outlives the machine. Once the agent is idle, the file is its history. With `trace`
    every event is written, also those that history does not need.

    A failed write raises `OSError`, which fails the run; what could not be written is kept, and tried again with the
    next event and at `close`. One log is for one agent; `Agent.reset` is not an event, so begin another file with it.

    Raises `SessionLockedError` where another log has the file open, `SessionVersionError`, `NotASessionError` rather
    than writing into anything else, and `OSError`.
    """

    def __init__(self, path: str | os.PathLike[str], *, fsync: bool = False, trace: bool = False) -> None:
        self.path = Path(os.path.realpath(path))
        self._fsync = fsync
        self._trace = trace
        self._pending = bytearray()
        self._descriptor = -1
        self._lock = lock_session(self.path)
        try:
            self._open()
        except BaseException:
            self._let_go()
            raise

    def load(self) -> Session:
        """What the file holds now: `load_session` while nobody else can write it. Blocks."""
        return load_session(self.path)

    # A Ctrl-C in here would cost the event, or write a part of a line twice.
    @trio.lowlevel.enable_ki_protection
    def __call__(self, event: Event) -> Coroutine[Any, Any, None] | None:
        """Write an event, before anything is awaited. With `fsync`, give what is awaited until it is on the disk."""
        if not self._is_wanted(event):
            return None
        self._append(line_of(event))
        return trio.to_thread.run_sync(self.sync) if self._fsync else None

    def sync(self) -> None:
        """Bring all that was written to the disk. Blocks; raises `OSError`."""
        os.fsync(self._descriptor)

    @trio.lowlevel.enable_ki_protection
    def close(self) -> None:
        """Write what is left and let others write. Does nothing the second time. Raises `OSError`."""
        if self._descriptor < 0:
            return
        try:
            self._append(b"")
            if self._fsync:
                self.sync()
        finally:
            self._let_go()

    def __enter__(self) -> SessionLog:
        return self

    @trio.lowlevel.enable_ki_protection
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<SessionLog {str(self.path)!r}{'' if self._descriptor >= 0 else ', closed'}>"

    def _is_wanted(self, event: Event) -> bool:
        if self._trace:
            return True
        if not isinstance(event, _HISTORY):
            return False
        return not (isinstance(event, MessageEnd) and isinstance(event.message, ToolResultMessage))

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        self._descriptor = os.open(self.path, flags, 0o600)  # conversations are private
        begun = check_is_session(self.path)
        if not self._ends_whole():
            # What was torn off stays, on a line of its own; a record that lacks its newline alone is whole again.
            self._pending += b"\n"
        if not begun:
            self._append(header_line())
            if self._fsync:
                self.sync()
                _sync_folder(self.path.parent)

    def _ends_whole(self) -> bool:
        size = os.fstat(self._descriptor).st_size
        if size == 0:
            return True
        os.lseek(self._descriptor, size - 1, os.SEEK_SET)
        return os.read(self._descriptor, 1) == b"\n"

    def _append(self, line: bytes) -> None:
        if self._descriptor < 0:
            raise ValueError(f"the log of {self.path} is closed; unsubscribe it before closing, or open another")
        self._pending += line
        while self._pending:
            # After a part was written, the next attempt goes on where it ended: the line becomes whole then.
            written = os.write(self._descriptor, self._pending)
            del self._pending[:written]

    def _let_go(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        try:
            if descriptor >= 0:
                os.close(descriptor)
        finally:
            self._lock.release()


def _sync_folder(folder: Path) -> None:
    """Bring a new name to the disk, where the system has that."""
    if os.name == "nt":  # pragma: no cover - no other system refuses
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
