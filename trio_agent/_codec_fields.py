"""What a field of a JSON object may hold, and how it is read and written: the alphabet of `_codec.py`.

Here live plain readers and writers of single values, and the walk over an object's fields. Which class has which
fields is the table in `_codec.py`. Every reader gets the JSON path of its value, for the error that names it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, TypeAlias, cast

import attrs

from ._json import dumps

Read: TypeAlias = Callable[[Any, str], Any]
Write: TypeAlias = Callable[[Any], Any]

REQUIRED: Final = object()
_ENGLISH: Final[dict[type, str]] = {dict: "an object", list: "an array", type(None): "null"}


def wrong(path: str, wanted: str, value: object) -> NoReturn:
    """Raise the `ValueError` that says where, what was expected, and what came."""
    if isinstance(value, str):
        came = repr(value) if len(value) <= 40 else f"a string of {len(value)} characters"
    else:
        came = _ENGLISH.get(type(value)) or repr(value)[:40]
    raise ValueError(f"{path or 'the value'}: expected {wanted}, got {came}")


def text(value: Any, path: str) -> str:
    return value if isinstance(value, str) else wrong(path, "a string", value)


def integer(value: Any, path: str) -> int:
    return value if type(value) is int else wrong(path, "an integer", value)


def number(value: Any, path: str) -> float:
    if type(value) is not int and type(value) is not float:
        wrong(path, "a number", value)
    try:
        return float(value)
    except OverflowError:
        return wrong(path, "a number that a float can hold", type(value).__name__)


def flag(value: Any, path: str) -> bool:
    return value if type(value) is bool else wrong(path, "true or false", value)


def json_value(value: Any, path: str) -> Any:
    try:
        dumps(value)
    except (TypeError, ValueError, RecursionError):
        wrong(path, "a JSON value", value)
    return value


def json_object(value: Any, path: str) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else wrong(path, "an object", value)


def base64_bytes(value: Any, path: str) -> bytes:
    try:
        return base64.b64decode(text(value, path).encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return wrong(path, "base64", value)


def write_base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def word(*known: str) -> Read:
    def read(value: Any, path: str) -> str:
        if isinstance(value, str) and value in known:
            return value
        return wrong(path, f"one of {', '.join(known)}", value)

    return read


def or_null(read: Read) -> Read:
    return lambda value, path: None if value is None else read(value, path)


def all_of(read: Read) -> Read:
    """An array whose items are read so; becomes a tuple."""

    def read_all(value: Any, path: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            wrong(path, "an array", value)
        items = cast("Sequence[Any]", value)
        return tuple([read(item, f"{path}[{at}]") for at, item in enumerate(items)])

    return read_all


@attrs.frozen
class Field:
    """A field: its name in JSON and in the class, how its value is read and written, and whether it may be missing."""

    name: str
    read: Read
    write: Write | None = None
    default: Any = REQUIRED
    only_where_present: bool = False  # left out where it is None


def optional(name: str, read: Read, write: Write | None = None) -> Field:
    """A field that may be null, and is null where it is missing."""
    if write is None:
        return Field(name, or_null(read), default=None)
    return Field(name, or_null(read), lambda value: None if value is None else write(value), default=None)


def present(name: str, read: Read = text) -> Field:
    """A field that is written only where there is something to write."""
    return Field(name, or_null(read), default=None, only_where_present=True)


def read_fields(fields: Sequence[Field], data: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The values of an object's fields. Fields that are not asked for are passed over."""
    found: dict[str, Any] = {}
    for field in fields:
        given = data.get(field.name, field.default)
        inner = f"{path}.{field.name}" if path else field.name
        if given is REQUIRED:
            raise ValueError(f"{inner}: is missing")
        found[field.name] = given if given is field.default else field.read(given, inner)
    return found


def write_fields(fields: Sequence[Field], value: object, into: dict[str, Any]) -> dict[str, Any]:
    """Put the values of a class's fields into an object."""
    for field in fields:
        held = getattr(value, field.name)
        if held is None and field.only_where_present:
            continue
        into[field.name] = held if field.write is None else field.write(held)
    return into
