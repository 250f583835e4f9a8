"""Looks into JSON that a stranger sent: each gives the value if it is of the kind, else nothing of that kind.

Here live the few accessors that all readers share, so that no reader can trip over a null, a list or a
string where it expected an object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def object_of(value: Any) -> dict[str, Any]:
    """The object, or an empty one."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    """The list, or an empty one."""
    # mypy knows what pyright does not: that a list of Any is what is left.
    return cast("list[Any]", value) if isinstance(value, list) else []  # type: ignore[redundant-cast]


def objects_of(value: Any) -> list[dict[str, Any]]:
    """The objects in the list; what is none is left out."""
    return [cast(dict[str, Any], item) for item in list_of(value) if isinstance(item, dict)]


def text_of(value: Any) -> str:
    """The text, or an empty one."""
    return value if isinstance(value, str) else ""


def count_of(source: Mapping[str, Any], *keys: str) -> int | None:
    """The first of these that is a whole number and not negative."""
    for key in keys:
        value = source.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None
