"""Arguments of a function call that arrive by JSON path, a value or a piece of one at a time.

Here lives the putting together alone. What it is a part of is in `_gemini_reader.py`. Nothing waits.
"""

from __future__ import annotations

import itertools
import re
from typing import Any, Final

from .._errors import ProviderError
from ._bounds import Bounds
from ._fragments import encode_json
from ._json_values import list_of, object_of, objects_of, text_of

_STEP: Final = re.compile(r"\.?([^.\[\]'\"]+)|\[(\d+)\]|\[(?:'([^']*)'|\"([^\"]*)\")\]")


class PathArguments:
    """Collects values by path. Raises `ProviderError("protocol", …)` for a path that leads nowhere or out of bounds."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._root: dict[str, Any] = {}
        self._size = 0

    def take(self, pieces: Any) -> None:
        for piece in objects_of(pieces):
            steps = _steps(text_of(piece.get("jsonPath")))
            if not steps or len(steps) > self._bounds.nesting:
                raise _lost(piece.get("jsonPath"))
            self._size += sum(len(text) for text in (text_of(piece.get("stringValue")), *map(str, steps)))
            if self._size > self._bounds.arguments:
                limit = self._bounds.arguments
                raise ProviderError("protocol", f"the arguments of a tool call exceed {limit} characters")
            self._put(steps, piece)

    def json(self, given: dict[str, Any]) -> str:
        """The arguments as JSON, on top of those that came as a whole."""
        return encode_json({**given, **self._root}).decode()

    def _put(self, steps: list[str | int], piece: dict[str, Any]) -> None:
        place: Any = self._root
        for step, following in itertools.pairwise(steps):
            place = _at(place, step, [] if isinstance(following, int) else {}, piece)
        last = steps[-1]
        if "stringValue" in piece:
            before = _at(place, last, "", piece)
            place[last] = (before if isinstance(before, str) else "") + text_of(piece["stringValue"])
        else:
            _at(place, last, None, piece)
            place[last] = piece.get("numberValue", piece.get("boolValue"))


def _at(place: Any, step: str | int, new: Any, piece: dict[str, Any]) -> Any:
    """What is in a place, or `new`, put there. A list grows by one at a time, whatever a server says."""
    if isinstance(place, dict) and isinstance(step, str):
        return object_of(place).setdefault(step, new)
    if isinstance(place, list) and isinstance(step, int):
        items = list_of(place)
        if step == len(items):
            items.append(new)
        if step < len(items):
            return items[step]
    raise _lost(piece.get("jsonPath"))


def _steps(path: str) -> list[str | int]:
    """The steps of `$.a.b[0]['c']`; none where it is no such path."""
    found: list[str | int] = []
    at = 1 if path.startswith("$") else 0
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            return []
        name, index, single, double = step.groups()
        found.append(
            int(index[:9]) if index is not None else next(text for text in (name, single, double) if text is not None)
        )
        at = step.end()
    return found


def _lost(path: Any) -> ProviderError:
    return ProviderError("protocol", f"the server sent a part of a tool call's arguments for {str(path)[:80]!r}")
