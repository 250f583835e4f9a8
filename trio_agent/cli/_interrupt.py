"""Ctrl-C: the first asks the program to end in order, the second ends it at once.

Here lives the signal's handler, which replaces Python's and thereby Trio's: a `KeyboardInterrupt` in the middle of
anything would be no order.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

import trio

ABORTED = 130


class Interrupt:
    """What Ctrl-C does at the moment. `happened` says whether there was one."""

    def __init__(self) -> None:
        self.happened = False
        self._token: trio.lowlevel.TrioToken | None = None
        self._first: Callable[[], object] | None = None

    @contextmanager
    def installed(self) -> Generator[None]:
        """Take the signal over; not where the program was started with Ctrl-C ignored, as in a script's background."""
        before = signal.getsignal(signal.SIGINT)
        if before == signal.SIG_IGN:
            yield
            return
        signal.signal(signal.SIGINT, self._on_signal)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def calls(self, first: Callable[[], object]) -> None:
        """From now on the first Ctrl-C calls this, in the running `trio.run`."""
        self._token = trio.lowlevel.current_trio_token()
        self._first = first

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.happened:
            os._exit(ABORTED)
        self.happened = True
        if self._token is None:
            raise KeyboardInterrupt
        try:
            self._token.run_sync_soon(self._act)
        except trio.RunFinishedError:
            raise KeyboardInterrupt from None

    def _act(self) -> None:
        assert self._first is not None
        self._first()
