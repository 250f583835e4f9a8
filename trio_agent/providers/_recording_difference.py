"""Where a request differs from the one that was recorded, in words.

Here lives the comparing of JSON values. How a request becomes one is in `_recording_format.py`.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from .._codec import escape
from .._json import dumps, loads
from .._request import ModelRequest
from ._json_values import list_of, object_of
from ._recording_format import encode_request

_ABSENT: Final = object()
_SHOWN: Final = 60
_Difference: TypeAlias = tuple[str, Any, Any]


def difference(recorded: Any, request: ModelRequest) -> str | None:
    """Where the request is not as it was recorded, in words, or None."""
    came = loads(escape(dumps(encode_request(request))))  # surrogates as a recording has them
    found = _first_difference(recorded, came, "")
    if found is None:
        return None
    path, was, now = found
    start = _differs_at(was, now)
    return f"{path or 'the request'}: recorded {_shown(was, start)}, came {_shown(now, start)}"


def _first_difference(recorded: object, came: object, path: str) -> _Difference | None:
    kinds = type(recorded), type(came)
    if kinds == (dict, dict):
        was, now = object_of(recorded), object_of(came)
        for key in {**was, **now}:
            inner = f"{path}.{key}" if path else key
            if (found := _first_difference(was.get(key, _ABSENT), now.get(key, _ABSENT), inner)) is not None:
                return found
        return None
    if kinds == (list, list):
        old, new = list_of(recorded), list_of(came)
        for at in range(max(len(old), len(new))):
            pair = [items[at] if at < len(items) else _ABSENT for items in (old, new)]
            if (found := _first_difference(pair[0], pair[1], f"{path}[{at}]")) is not None:
                return found
        return None
    # In Python true is 1.
    return None if recorded == came and (bool in kinds) == (kinds == (bool, bool)) else (path, recorded, came)


def _differs_at(was: Any, now: Any) -> int:
    """Where two texts part, or 0."""
    if not (isinstance(was, str) and isinstance(now, str)):
        return 0
    return next(
        (at for at, (one, other) in enumerate(zip(was, now, strict=False)) if one != other), min(len(was), len(now))
    )


def _shown(value: Any, start: int) -> str:
    """The value as JSON, or of a long text what is around the place where it differs."""
    if value is _ABSENT:
        return "nothing"
    if not isinstance(value, str):
        text = dumps(value)
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    begin = max(0, start - _SHOWN // 3)
    if len(value) <= _SHOWN:
        begin = 0
    end = begin + _SHOWN
    return f"{'…' if begin else ''}{dumps(value[begin:end])}{'…' if end < len(value) else ''}"
