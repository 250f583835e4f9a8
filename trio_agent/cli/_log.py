"""Logs that commands look at: a session file or a trace, read line by line, and where what they make of it goes.

Here lives the opening, the recognising, and the telling of bad lines. What a line of a session says is decided in
`trio_agent.session`; what is made of a log, in the module of each command.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, NoReturn, TypeAlias

import attrs

from .._events import Event
from .._messages import Message
from ..session import SessionVersionError
from ..session._records import BadLineError, Header, read_record
from ._output import leave_stdout_alone
from ._usage import UsageError, complain

# A line with several large images still fits; what is longer is damage.
LONGEST_LINE: Final = 256 * 1024 * 1024
_BAD_LINES_AT_THE_START: Final = 100  # behind so many without a good one, nobody would take the file for a log
_BLANK: Final = b" \t\r\0"
_BOM: Final = b"\xef\xbb\xbf"


@attrs.frozen
class BadLine:
    """A line, or a part of it, that could not be used."""

    text: str


@attrs.frozen
class Entry:
    """What one line says. `line` counts from 1."""

    line: int
    value: Header | Event | Message | BadLine


Read: TypeAlias = Callable[[BinaryIO], Iterable[Entry]]


class LogParser(argparse.ArgumentParser):
    """A parser for a command over one LOG, whose errors are one line, raised and not printed."""

    def __init__(self, command: str, description: str) -> None:
        super().__init__(prog=f"trio-agent {command}", description=description)
        self.add_argument("log", metavar="LOG", help="a session file, or a trace of `run --json`; - reads stdin")

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")

    def add_output(self) -> None:
        self.add_argument("-o", "--output", metavar="FILE", default=None, help="where it goes (default: stdout)")


@contextmanager
def opened(log: str) -> Generator[BinaryIO]:
    """The bytes of a LOG; of stdin for `-`. Raises `UsageError` where there is no such file."""
    with open_log(log) as file:
        yield file


def open_log(log: str) -> BinaryIO:
    """The same, to be closed by the caller."""
    try:
        # Of stdin a copy: a thread that is left reading it must not hold what the interpreter closes when it ends.
        return os.fdopen(os.dup(0), "rb") if log == "-" else Path(log).open("rb")
    except (OSError, ValueError) as error:
        raise UsageError(f"{log}: {_reason(error)}") from None


def read_log(file: BinaryIO, name: str, *, longest_line: int = LONGEST_LINE) -> Iterator[Entry]:
    """Each line that says something, and each that cannot be used, as it is read.

    Raises `UsageError`, which names the file, for a format of a later version, and for what is neither a session nor
    a trace: an empty file, or one whose first lines all say nothing.
    """
    held: list[Entry] = []  # bad lines, until one shows that the file is a log
    known = False
    try:
        for entry in _entries(file, longest_line):
            if known:
                yield entry
                continue
            known = not isinstance(entry.value, BadLine)
            held.append(entry)
            if known:
                yield from held
            elif len(held) >= _BAD_LINES_AT_THE_START:
                break
    except SessionVersionError as error:
        raise UsageError(f"{name}: {error}") from None
    except OSError as error:
        raise UsageError(f"{name}: {_reason(error)}") from None
    if not known:
        raise UsageError(f"{name} is neither a session nor a trace: {_why(held)}")


def _entries(file: BinaryIO, longest: int) -> Iterator[Entry]:
    number = 0
    while data := file.readline(longest):
        number += 1
        if number == 1:
            data = data.removeprefix(_BOM)
        ended = data.endswith(b"\n")
        if not ended and len(data) >= longest:
            yield Entry(number, BadLine(f"{len(data) + _skip(file)} bytes, which is too long for a record"))
            continue
        if b"\0" in data:
            yield Entry(number, BadLine(f"{data.count(0)} NUL bytes, as a crash of the machine leaves them"))
        if text := data.removesuffix(b"\n").strip(_BLANK):
            yield Entry(number, _value(text, ended=ended))


def _value(text: bytes, *, ended: bool) -> Header | Event | Message | BadLine:
    try:
        return read_record(text)
    except BadLineError as error:
        return BadLine(f"{'' if ended else 'torn off, '}{error}")


def _skip(file: BinaryIO) -> int:
    """Pass over the rest of a line, and give its size."""
    size = 0
    while (more := file.readline(1 << 20)) and not more.endswith(b"\n"):
        size += len(more)
    return size + max(len(more) - 1, 0)


def _why(held: list[Entry]) -> str:
    if not held:
        return "it is empty"
    first = held[0]
    return f"line {first.line}: {first.value.text if isinstance(first.value, BadLine) else first.value}"


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def events_of(entries: Iterable[Entry], name: str) -> Iterator[Event]:
    """The events of a log. Bad lines are told on stderr, one line each; messages that stand alone are passed over."""
    for entry in entries:
        if isinstance(entry.value, BadLine):
            complain("warning", f"{name}: line {entry.line}: {entry.value.text}")
        elif isinstance(entry.value, Event):
            yield entry.value


def write_output(chunks: Iterable[str], output: str | None, log: str) -> None:
    """Write text to a file, or to stdout where none is named. Raises `UsageError` rather than write over the log."""
    if output is None or output == "-":
        write_stdout(chunks)
        return
    if log != "-" and os.path.exists(output) and os.path.samefile(output, log):
        raise UsageError(f"{output} is the log itself; name another file to write to")
    try:
        with open(output, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(chunks)
    except (OSError, ValueError) as error:
        raise UsageError(f"{output} cannot be written: {_reason(error)}") from None


def write_stdout(chunks: Iterable[str]) -> None:
    """Write text, as far as anybody reads it: a reader that has seen enough, such as `head`, is no failure."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        for chunk in chunks:
            sys.stdout.write(chunk.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        leave_stdout_alone()


class _Visible(dict[int, str]):
    """For `str.translate`: what could steer a terminal, as an escape that can be read."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        self[code] = shown = char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        return shown


# Line breaks and tabs stay, and the two joiners that words and emoji of many scripts are written with.
_VISIBLE: Final = _Visible({9: "\t", 10: "\n", 0x200C: "\u200c", 0x200D: "\u200d"})


def visible(text: str) -> str:
    """The text, safe for a terminal: control characters and direction overrides are shown, not obeyed."""
    return text if text.isprintable() else text.replace("\r\n", "\n").translate(_VISIBLE)
