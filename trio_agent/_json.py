"""JSON values that cannot change: kept as text, decoded afresh for whoever looks.

Here lives the one way in which this package freezes and thaws JSON. Nothing here knows what the JSON
means: messages and events go to JSON in `_codec.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn, TypeAlias

# A JSON value as `json.loads` gives it. `Any`, because a recursive alias helps no caller.
JSONValue: TypeAlias = Any

_BLANK: Final = " \t\r\n"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_encode: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_decode: Final = json.JSONDecoder(parse_constant=_refuse_constant).decode


def dumps(value: JSONValue) -> str:
    """The canonical text of a JSON value: no white space, characters as they are, no NaN.

    Raises `TypeError` or `ValueError` for what JSON cannot say, `RecursionError` for endless nesting.
    """
    return _encode(value)


def loads(text: str) -> JSONValue:
    """Decode JSON text. Raises `ValueError` for anything else, NaN and Infinity included."""
    try:
        return _decode(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def loads_or_none(text: str) -> JSONValue:
    """Decode JSON text, or give None where it is none."""
    try:
        return loads(text)
    except ValueError:
        return None


def is_canonical(text: str) -> bool:
    """Whether `dumps` of what the text says is the text itself."""
    try:
        return dumps(loads(text)) == text
    except ValueError:
        return False


def arguments_text(arguments: Mapping[str, Any] | None, raw: str | None) -> str:
    """The text of a call's arguments, where blank and `null` mean that there are none."""
    text = dumps(dict(arguments or {})) if raw is None else raw
    stripped = text.strip(_BLANK)
    return "{}" if stripped in ("", "null") else text
