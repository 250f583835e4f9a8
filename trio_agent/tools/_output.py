"""What a command says: bounded in memory, safe to show, the whole of it in a file where it is long.

Here live the collector and the cleaning of text. Processes are in `_shell.py`.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import tempfile
from typing import IO, Final

_HEAD: Final = 16_000  # bytes
_TAIL: Final = 24_000
_FILE: Final = 64 * 1024 * 1024
_SHOWN_LIVE: Final = 2_000

# Sequences of terminals: CSI, strings (OSC, DCS, ...) with their end, and two-character escapes.
_SEQUENCES: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])|\x9b[0-?]*[ -/]*[@-~]"
)
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def safe(text: str) -> str:
    """Text without terminal sequences; other control characters as visible ones."""
    text = _SEQUENCES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub(lambda found: chr(0x2400 + ord(found[0])) if found[0] < " " else "\ufffd", text)


class Output:
    """Collects bytes: the head and the tail in memory; once there is more, all of it in a file, up to a bound."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._head = bytearray()
        self._tail = bytearray()
        self._file: IO[bytes] | None = None
        self.size = 0
        self.path: str | None = None

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        room = _HEAD - len(self._head)
        if room > 0:
            self._head += piece[:room]
            piece = piece[room:]
        if piece:
            self._spool(piece)
            self._tail += piece
            if len(self._tail) > 2 * _TAIL:
                del self._tail[:-_TAIL]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def left_out(self) -> int:
        """How many bytes between head and tail are not shown."""
        return self.size - len(self._head) - min(len(self._tail), _TAIL)

    def text(self) -> str:
        """Head and tail, and between them what is left out and where it is."""
        left_out = self.left_out
        if not left_out:
            return safe((self._head + self._tail[-_TAIL:]).decode(errors="replace"))
        place = f"; the first {min(self.size, _FILE)} are in {self.path}" if self.path else ""
        head = _without_half_a_character(bytes(self._head))
        tail = _from_a_character_on(bytes(self._tail[-_TAIL:]))
        return f"{safe(head)}\n[… {left_out} of {self.size} bytes are left out here{place} …]\n{safe(tail)}"

    def latest(self) -> str:
        """The end of it, for people who watch."""
        last = bytes(self._tail[-_SHOWN_LIVE:]) if self._tail else bytes(self._head[-_SHOWN_LIVE:])
        if self._tail and len(last) < _SHOWN_LIVE:
            last = bytes(self._head[len(last) - _SHOWN_LIVE :]) + last
        whole = len(last) == self.size
        return safe(_without_half_a_character(last if whole else _from_a_character_on(last).encode(errors="replace")))

    def _spool(self, piece: bytes) -> None:
        """Write on to the file. A disk that is full costs the file and not the command."""
        with contextlib.suppress(OSError):
            if self._file is None:
                descriptor, self.path = tempfile.mkstemp(prefix="output-", suffix=".txt", dir=self._folder)
                self._file = os.fdopen(descriptor, "wb")
                self._file.write(self._head)
            room = _FILE - self._file.tell()
            if room > 0:
                self._file.write(piece[:room])


def _without_half_a_character(data: bytes) -> str:
    return codecs.getincrementaldecoder("utf-8")(errors="replace").decode(data)


def _from_a_character_on(data: bytes) -> str:
    start = next((at for at in range(min(4, len(data))) if data[at] & 0xC0 != 0x80), 0)
    return data[start:].decode(errors="replace")
