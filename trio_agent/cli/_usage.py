"""What the user got wrong, and how any failure becomes one line.

Here live the exception and the wording. Exit codes are decided in `trio_agent.__main__` and `_run.py`.
"""

from __future__ import annotations

import sys
from typing import Final

from .._errors import ProviderError
from .._failures import describe

_LONGEST: Final = 500


class UsageError(Exception):
    """The command line, or something that it names, cannot be used. The text is one line (exit code 2)."""


def one_line(text: str) -> str:
    """The text without line breaks and control characters, cut where nobody would read on."""
    line = " ".join("".join([char if char.isprintable() else " " for char in text]).split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def worded(error: BaseException) -> str:
    """What an exception says; with its type, where the text was not written for this package's users."""
    ours = type(error).__module__.partition(".")[0] == __name__.partition(".")[0]
    return str(error) if ours and not isinstance(error, ProviderError) else describe(error)


def complain(kind: str, text: str) -> None:
    """One line on stderr: `trio-agent: KIND: TEXT`."""
    print(f"trio-agent: {kind}: {one_line(text)}", file=sys.stderr, flush=True)
