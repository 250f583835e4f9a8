"""Writes to stdout without holding up the event loop, and notices when nobody reads any more.

Here lives bytes' way out. What is written is decided in `_lines.py` and `_story.py`.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
from collections.abc import Callable

import trio


class Output:
    """Stdout, each write complete when it returns.

    Once a write has failed, as when the reader of a pipe is gone, `failure` says how, and further ones do nothing.
    """

    def __init__(self, descriptor: int) -> None:
        self.failure: OSError | None = None
        self._descriptor = descriptor
        self._turn = threading.Lock()
        self._when_closed: Callable[[], object] | None = None

    def when_closed(self, callback: Callable[[], object]) -> None:
        """Call this once, from the event loop, when a write fails."""
        self._when_closed = callback

    async def write(self, data: bytes) -> None:
        """Write in a thread: a slow reader must not stop the clock, nor Ctrl-C. Cancelled, it may yet be written."""
        if self.failure is not None:
            await trio.lowlevel.checkpoint()
            return
        try:
            await trio.to_thread.run_sync(self._write_all, data, abandon_on_cancel=True)
        except OSError as error:
            self.failure = error
            if self._when_closed is not None:
                self._when_closed()

    def _write_all(self, data: bytes) -> None:
        with self._turn:
            view = memoryview(data)
            while view:
                try:
                    view = view[os.write(self._descriptor, view) :]
                except BlockingIOError:  # the pipe was made non-blocking by whoever shares it
                    select.select([], [self._descriptor], [])


def stdout(*, exclusive: bool) -> Output:
    """The process's stdout. With `exclusive` everything else that is printed there goes to stderr from now on."""
    sys.stdout.flush()
    descriptor = os.dup(1)
    if exclusive:
        os.dup2(2, 1)
    return Output(descriptor)


def leave_stdout_alone() -> None:
    """Keep the interpreter from complaining, when it ends, about a stdout whose reader is gone."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
