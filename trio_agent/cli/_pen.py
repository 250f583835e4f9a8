"""Lines on stderr, coloured by rich where a person looks on and rich is there.

Here lives the only use of rich. Without it, or into a pipe or a file, the same lines come plain.
"""

from __future__ import annotations

import contextlib
import sys
from abc import ABC, abstractmethod


class Pen(ABC):
    """Where the story of a run is written. Styles are rich's.

    What cannot be written is dropped: the story is not the work, and a run does not fail because nobody reads it.
    """

    @abstractmethod
    def write(self, text: str, style: str = "") -> None:
        """Write text without ending the line."""

    def line(self, text: str, style: str = "") -> None:
        self.write(text, style)
        self.write("\n")


class PlainPen(Pen):
    def write(self, text: str, style: str = "") -> None:
        del style
        with contextlib.suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()


class RichPen(Pen):
    def __init__(self) -> None:
        from rich.console import Console
        from rich.text import Text

        self._text = Text
        self._console = Console(stderr=True, soft_wrap=True)

    def write(self, text: str, style: str = "") -> None:
        with contextlib.suppress(OSError):
            self._console.print(self._text(text, style), end="")


def pen() -> Pen:
    if sys.stderr.isatty():
        with contextlib.suppress(ModuleNotFoundError):
            return RichPen()
    return PlainPen()
