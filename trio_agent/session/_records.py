"""What a line of a session file says: the header, an event, a message, or something that is reported.

Here lives the format and its version. The order of the records, and the history that they make, is the business of
`_rebuild.py`.

A session file is JSON Lines: a header, then the events that change history, as section 6 of the specification has
them. A file without a header is read too, so that any trace is a session.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import Any, Final, TypeAlias, cast

import attrs

from .. import Event, Message, decode, encode
from ._errors import SessionVersionError

VERSION: Final = 1
_HEADER_TYPE: Final = "session"
_PARTS: Final = frozenset({"text", "thinking", "image", "tool_call", "text_delta", "thinking_delta", "tool_call_delta"})
_SHOWN: Final = 60


@attrs.frozen
class Header:
    """The first record of a file: the version of its format, and what else whoever wrote it had to say."""

    version: int


Record: TypeAlias = Header | Event | Message


class BadLineError(ValueError):
    """A line says nothing that can be used. The text says why."""


def header_line(**more: object) -> bytes:
    """A header for a new file."""
    created = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    return _as_line({"type": _HEADER_TYPE, "version": VERSION, "created": created, **more})


def line_of(value: Event | Message) -> bytes:
    """A record as one line of valid UTF-8, with its newline."""
    return _as_line(encode(value))


def _as_line(data: dict[str, Any]) -> bytes:
    try:
        return (json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n").encode()
    except UnicodeEncodeError:  # a lone surrogate, which only an escape can carry
        return (json.dumps(data, allow_nan=False, separators=(",", ":")) + "\n").encode()


def read_record(data: bytes) -> Record:
    """What a line says. Raises `BadLineError`, and `SessionVersionError` for a header of a later version."""
    fields = _fields(data)
    kind = fields.get("type")
    if kind == _HEADER_TYPE:
        return _header(fields)
    if kind in _PARTS:
        raise BadLineError(f"a content block or delta ({kind}) that belongs to nothing")
    try:
        return cast("Event | Message", decode(fields))
    except (ValueError, TypeError, RecursionError) as error:
        raise BadLineError(f"no record that this version knows: {error}") from None


def _fields(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data.decode(), parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise BadLineError(f"not UTF-8 at byte {error.start}: {_shown(data)}") from None
    except RecursionError:
        raise BadLineError(f"nested too deeply: {_shown(data)}") from None
    except ValueError as error:
        raise BadLineError(f"not JSON ({error}): {_shown(data)}") from None
    if not isinstance(value, dict):
        raise BadLineError(f"not a JSON object: {_shown(data)}")
    return cast("dict[str, Any]", value)


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _header(fields: dict[str, Any]) -> Header:
    version = fields.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise BadLineError(f"a header whose version is {version!r}, not a number from 1 on")
    if version > VERSION:
        raise SessionVersionError(
            f"the session has format {version}, and this version of trio_agent reads up to {VERSION}; update trio_agent"
        )
    return Header(version)


def _shown(data: bytes) -> str:
    text = data[:_SHOWN].decode(errors="backslashreplace")
    return repr(text) + ("…" if len(data) > _SHOWN else "")
