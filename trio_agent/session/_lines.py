"""The lines of a file, whatever is in it: in bounded memory, by bytes, without changing a byte.

Here lives the reading alone. What a line means is in `_records.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

# A line with several large images still fits; what is longer is no record of ours but damage.
LONGEST_LINE: Final = 256 * 1024 * 1024


class Line(NamedTuple):
    """One line. `data` has no newline, and is None where the line was too long to be looked at."""

    number: int
    data: bytes | None
    size: int
    ended: bool


def lines_of(path: Path, longest: int = LONGEST_LINE) -> Iterator[Line]:
    """Each line of a file, split at newlines only. Raises `OSError`."""
    number = 0
    with path.open("rb") as file:
        while data := file.readline(longest):
            number += 1
            if data.endswith(b"\n"):
                yield Line(number, data[:-1], len(data) - 1, True)
            elif len(data) < longest:
                yield Line(number, data, len(data), False)
            else:
                size = len(data)
                while (more := file.readline(1 << 20)) and not more.endswith(b"\n"):
                    size += len(more)
                ended = more.endswith(b"\n")
                yield Line(number, None, size + max(len(more) - 1, 0), ended)
