"""A terminal for a program under test: a real pseudo-terminal, and a screen that shows what a person would see.

Here live the program's start, keys, and waiting for what is on the screen. What should be there is the tests' business.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyte

# The terminal becomes the program's own, so that /dev/tty and signals are as they are for people.
# As a terminal starts a program, whatever signals whoever runs the tests ignores (`nohup` does the hang-up).
_START = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.SIG_DFL)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
_SECONDS = 30
ENTER, TAB, ALT_UP = "\r", "\t", "\x1b\x1b[A"
CTRL_C, CTRL_D, CTRL_J, CTRL_Z = "\x03", "\x04", "\n", "\x1a"


class Terminal:
    """A program on a terminal. The program is told `columns`; the screen is wider, so that too long a line shows."""

    def __init__(self, process: subprocess.Popen[bytes], master: int, columns: int, rows: int) -> None:
        self.process = process
        self.master = master
        self.columns = columns
        self.raw = b""  # every byte that the program wrote
        self._screen = pyte.HistoryScreen(max(columns, 160), rows, history=5000, ratio=1)
        self._stream = pyte.ByteStream(self._screen)

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def say(self, text: str) -> None:
        self.press(text + ENTER)

    @property
    def screen(self) -> str:
        """What is in the window now."""
        return "\n".join([line.rstrip() for line in self._screen.display]).rstrip()

    @property
    def everything(self) -> str:
        """What has scrolled out of the window, and the window."""
        rows = [
            "".join([row[column].data for column in range(self._screen.columns)]).rstrip()
            for row in self._screen.history.top
        ]
        return "\n".join([*rows, self.screen])

    def wait(self, *texts: str, gone: str | None = None, within: float = _SECONDS) -> str:
        """Read until all these texts are there, the last one in the window, and one is gone from it."""

        def is_there() -> bool:
            everything = self.everything
            return all(text in everything for text in texts) and (gone is None or gone not in self.screen)

        self.wait_until(is_there, f"{texts} there and {gone!r} gone", within)
        return self.screen

    def wait_until(self, is_so: Callable[[], bool], what: str, within: float = _SECONDS) -> None:
        deadline = time.monotonic() + within
        while not is_so():
            assert time.monotonic() < deadline, f"not so: {what}\n{self.everything}"
            goes_on = self._read(0.05) or self.process.poll() is None
            assert goes_on or is_so(), (
                f"the program ended with {self.process.returncode}; not so: {what}\n{self.everything}"
            )

    def end(self, within: float = _SECONDS) -> int:
        """Read until the program has ended; gives its exit code."""
        deadline = time.monotonic() + within
        while self.process.poll() is None:
            left = deadline - time.monotonic()
            assert left > 0, f"it does not end\n{self.everything}"
            self._read(min(left, 0.05))
        all(iter(lambda: self._read(0.05), False))  # until nothing comes any more
        return self.process.returncode

    def settings(self) -> list[Any]:
        """How the terminal is set: whether it echoes, and so on."""
        return termios.tcgetattr(self.master)

    def _read(self, seconds: float) -> bool:
        """Read what comes within so long. False if nothing came, or nothing more will."""
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        piece = os.read(self.master, 65536)  # we have the other end open too, so that this does not fail
        self.raw += piece
        self._stream.feed(piece)
        return bool(piece)


@contextmanager
def on_terminal(
    arguments: list[str], folder: Path, *, columns: int = 100, rows: int = 40, **environment: str
) -> Generator[Terminal]:
    """Run a program on a terminal of that size. It is killed in the end, if it has not ended by itself."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", _START, *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=folder,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": "", **environment},
        start_new_session=True,
    )
    terminal = Terminal(process, master, columns, rows)
    try:
        yield terminal
    finally:
        process.kill()
        process.wait()
        os.close(slave)
        os.close(terminal.master)
