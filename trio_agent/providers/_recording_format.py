"""What a line of a recording says.

Here live plain functions between values and JSON. Who records and who replays is in `_recording.py`, and where a
request differs from the recorded one in `_recording_difference.py`.

A recording is JSON Lines: a header with the version; for each request a line that says what was asked, one for each
chunk with the seconds since the request, and one for its end. Requests that ran at the same time are told apart by
their number. Texts are JSON strings; one in which two halves of a surrogate pair stand side by side, which JSON would
make one character of, is an array of strings.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias, cast

import attrs

from .._chunks import (
    BlockEnd,
    Chunk,
    Finish,
    RedactedThinking,
    ResponseInfo,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)
from .._codec import encode, escape
from .._errors import ProviderError
from .._json import dumps, loads
from .._messages import Message, Usage
from .._request import ModelRequest
from ._json_values import list_of

VERSION: Final = 1
_TYPE: Final = "recording"
_CHUNKS: Final[dict[str, type[Any]]] = {
    "text_delta": TextDelta,
    "thinking_delta": ThinkingDelta,
    "tool_call_start": ToolCallStart,
    "tool_call_delta": ToolCallDelta,
    "block_end": BlockEnd,
    "redacted_thinking": RedactedThinking,
    "response_info": ResponseInfo,
    "usage_report": UsageReport,
    "finish": Finish,
}
_TAGS: Final = {cls: tag for tag, cls in _CHUNKS.items()}
_FIELDS: Final = {cls: tuple([field.name for field in attrs.fields(cls)]) for cls in (*_CHUNKS.values(), Usage)}
_BETWEEN_HALVES: Final = re.compile("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")
Fields: TypeAlias = dict[str, Any]


class RecordingError(ValueError):
    """The file is no recording that this version can read. The text says which line and why."""


@attrs.frozen
class End:
    """How a request ended that was not cut short, and the seconds that it took."""

    time: float
    error: Exception | None


@attrs.define
class Take:
    """A request as it was recorded. `end` is None where it was cancelled, or its recording was cut off."""

    asked: Any
    chunks: list[tuple[float, Chunk]] = attrs.field(factory=list[tuple[float, Chunk]])
    end: End | None = None


# -- writing ------------------------------------------------------------------------------------------------------


def header(provider: str | None) -> Fields:
    return {"type": _TYPE, "version": VERSION, "provider": provider}


def as_line(record: Fields) -> str:
    """The record as one line that is valid UTF-8. Raises `TypeError` or `ValueError` for what JSON cannot say."""
    return escape(dumps(record)) + "\n"


def encode_request(request: ModelRequest) -> Fields:
    """What was asked, without what a model never sees. Of extra headers only the names: they may hold keys."""
    settings = request.settings
    named = {name: getattr(settings, name) for name in ("temperature", "top_p", "max_output_tokens", "seed")}
    return {
        "model": request.model,
        "system_prompt": request.system_prompt,
        "messages": [_encode_message(message) for message in request.messages],
        "tools": [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters, "strict": tool.strict}
            for tool in request.tools
        ],
        "reasoning": request.reasoning,
        "settings": {
            **named,
            "stop": list(settings.stop),
            "tool_choice": settings.tool_choice,
            "parallel_tool_calls": settings.parallel_tool_calls,
            "extra_body": settings.extra_body,
            "extra_headers": sorted(settings.extra_headers),
        },
    }


def _encode_message(message: Message) -> Fields:
    fields = encode(message)
    fields.pop("details", None)
    return fields


def encode_chunk(chunk: Chunk) -> Fields:
    """Raises `TypeError` for what is no chunk."""
    tag = _TAGS.get(type(chunk))
    if tag is None:
        raise TypeError(f"{type(chunk).__name__} is no chunk; see trio_agent's chunk classes")
    return {"type": tag, **_encode_fields(chunk)}


def _encode_fields(value: object) -> Fields:
    found: Fields = {}
    for name in _FIELDS[type(value)]:
        held = getattr(value, name)
        if isinstance(held, str):
            pieces = _BETWEEN_HALVES.split(held)
            found[name] = held if len(pieces) == 1 else pieces
        else:
            found[name] = _encode_fields(held) if isinstance(held, Usage) else held
    return found


def encode_error(error: Exception) -> Fields:
    """A `ProviderError` with all its fields; of any other exception the type and the text."""
    if not isinstance(error, ProviderError):
        return {"type": type(error).__name__, "message": str(error)}
    after = error.retry_after
    return {
        "kind": error.kind,
        "message": error.message,
        "retryable": error.retryable,
        "retry_after": after if after is None or math.isfinite(after) else None,
        "status": error.status,
    }


# -- reading ------------------------------------------------------------------------------------------------------


def read_recording(data: bytes) -> tuple[str | None, list[Take]]:
    """The provider's name, and the requests in their order. A last line that was torn off is passed over."""
    provider: str | None = None
    takes: dict[Any, Take] = {}
    for place, (number, record) in enumerate(_records(data)):
        try:
            if place == 0:
                provider = _read_header(record)
            else:
                _read_into(takes, record)
        except (KeyError, TypeError, ValueError) as error:
            words = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise RecordingError(f"line {number}: {words}") from None
    return provider, list(takes.values())


def _records(data: bytes) -> Iterator[tuple[int, Fields]]:
    lines = data.split(b"\n")
    if not data.strip():
        raise RecordingError("the file is empty")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = loads(line.decode())
        except ValueError:
            if number == len(lines) > 1:  # without its newline: whoever wrote it was stopped meanwhile
                return
            raise RecordingError(f"line {number}: not JSON; is this a recording?") from None
        if not isinstance(record, dict):
            raise RecordingError(f"line {number}: not a JSON object; is this a recording?")
        yield number, cast("Fields", record)


def _read_header(record: Fields) -> str | None:
    if record.get("type") != _TYPE:
        raise ValueError(f"the file does not begin as a recording does, with the type {_TYPE!r}")
    version = record["version"]
    if not isinstance(version, int) or version > VERSION:
        raise ValueError(f"the recording has version {version!r}, and this trio_agent reads up to {VERSION}; update it")
    name = record.get("provider")
    return name if isinstance(name, str) else None


def _read_into(takes: dict[Any, Take], record: Fields) -> None:
    kind, number = record["type"], record["request"]
    if kind == "request":
        if number in takes:
            raise ValueError(f"request {number} begins a second time")
        takes[number] = Take(record["asked"])
    elif number not in takes:
        raise ValueError(f"request {number} goes on without having begun")
    elif kind == "chunk":
        takes[number].chunks.append((float(record["time"]), decode_chunk(record["chunk"])))
    elif kind == "end":
        takes[number].end = _read_end(record)
    else:
        raise ValueError(f"{kind!r} is no type of record that this version knows")


def _read_end(record: Fields) -> End | None:
    outcome = record["outcome"]
    if outcome not in ("done", "failed", "cut_short"):
        raise ValueError(f"{outcome!r} is no outcome that this version knows")
    if outcome == "cut_short":
        return None
    return End(float(record["time"]), decode_error(record["error"]) if outcome == "failed" else None)


def decode_chunk(fields: Fields) -> Chunk:
    """The inverse of `encode_chunk`. Raises `TypeError` or `ValueError`."""
    cls = _CHUNKS.get(fields["type"])
    if cls is None:
        raise ValueError(f"{fields['type']!r} is no type of chunk that this version knows")
    found = _decode_fields(cls, fields)
    if cls is UsageReport:
        found["usage"] = Usage(**_decode_fields(Usage, found["usage"]))
    chunk: Chunk = cls(**found)
    return chunk


def _decode_fields(cls: type, fields: Fields) -> Fields:
    found = {name: fields[name] for name in _FIELDS[cls] if name in fields}
    return {name: "".join(list_of(value)) if isinstance(value, list) else value for name, value in found.items()}


def decode_error(fields: Fields) -> Exception:
    """The inverse of `encode_error`, as far as there is one: what was no `ProviderError` becomes a `RuntimeError`."""
    if "kind" not in fields:
        return RuntimeError(f"{fields.get('type')}: {fields.get('message')}")
    return ProviderError(*[fields.get(name) for name in ("kind", "message", "retryable", "retry_after", "status")])  # type: ignore[arg-type]
