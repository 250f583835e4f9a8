"""The text of a tool call's arguments while it grows: how deep it is, and whether it is complete.

Here lives the one scanner that the wires share. It does not check the JSON; that is the kernel's business.
"""

from __future__ import annotations

import re
from typing import Final

_IN_STRING: Final = re.compile(r'["\\]')
_OUTSIDE: Final = re.compile(r'["{}\[\]]')


class JSONProgress:
    """Linear in the text, whatever the fragments. `complete` turns true when the outermost bracket closes."""

    __slots__ = ("_escaped", "_in_string", "complete", "deepest", "depth")

    def __init__(self) -> None:
        self.depth = 0
        self.deepest = 0
        self.complete = False
        self._in_string = False
        self._escaped: bool = False

    def feed(self, text: str) -> None:
        at = 1 if self._escaped and text else 0
        self._escaped = self._escaped and not text
        while at < len(text):
            mark = (_IN_STRING if self._in_string else _OUTSIDE).search(text, at)
            if mark is None:
                return
            at = mark.end()
            character = mark.group()
            if character == '"':
                self._in_string = not self._in_string
            elif character == "\\":
                self._escaped = at == len(text)
                at += 1
            elif character in "{[":
                self.depth += 1
                self.deepest = max(self.deepest, self.depth)
            else:
                self.depth -= 1
                self.complete = self.complete or self.depth <= 0
