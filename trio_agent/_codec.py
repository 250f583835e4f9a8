"""Messages and events to JSON and back, without loss.

Here lives the one table that says how each class looks as JSON (section 6 of the specification), read in both
directions. What a single field may hold is in `_codec_fields.py`; files and sockets are others' business.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, get_args

import attrs

from . import _events as ev
from . import _messages as msg
from ._chunks import TextDelta, ThinkingDelta
from ._codec_fields import (
    Field,
    Read,
    all_of,
    base64_bytes,
    flag,
    integer,
    json_object,
    json_value,
    number,
    optional,
    or_null,
    present,
    read_fields,
    text,
    word,
    write_base64,
    write_fields,
    wrong,
)
from ._json import JSONValue, dumps, loads

Encodable: TypeAlias = ev.Event | msg.Message | ev.Delta | msg.Block

# Surrogates, which UTF-8 cannot carry, and what other readers than ours may take for the end of a line.
_UNSAFE: Final = re.compile("[\ud800-\udfff\x85\u2028\u2029]")


def encode(value: Encodable) -> dict[str, Any]:
    """The JSON object of an event, a message, a delta or a content block, as section 6 of the specification has it.

    The result belongs to the caller. A string in it may hold lone surrogates, as the value does: `encode_line`
    makes text of it that is valid UTF-8. A call's `arguments` are null where their text is not JSON, or holds a
    number or a nesting that Python cannot; `raw` has the text then. Raises `TypeError` for any other value.
    """
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        raise TypeError(f"{type(value).__name__} has no JSON form; encode an event, a message, a delta or a block")
    return encoder(value)


def encode_line(value: Encodable) -> str:
    """The same as one line of text, without the newline, and always valid as UTF-8.

    Lone surrogates are escaped. Two in a row that make a pair are read back as the character that they mean.
    """
    return escape(dumps(encode(value)))


def escape(json_text: str) -> str:
    """Escape what JSON text may hold and a line of UTF-8 may not, or had better not."""
    return json_text if json_text.isascii() else _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text)


def decode(data: Mapping[str, Any]) -> Encodable:
    """What `encode` made an object of. Fields that this version does not know are passed over.

    Raises `ValueError` that names the JSON path of what is missing or wrong. An event from JSON carries no view of
    its message: `MessageUpdate.message` is None.
    """
    fields = json_object(data, "")
    value: Encodable = _read(fields, "", "role" if "role" in fields and "type" not in fields else "type")
    return value


def decode_line(line: str | bytes) -> Encodable:
    """The same from a line of text. Raises `ValueError` for what is not JSON, not UTF-8 or not one of ours."""
    try:
        data = loads(line.decode() if isinstance(line, bytes) else line)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    return decode(data)


# -- parts that several classes share -----------------------------------------------------------------------------


def _one(*classes: type) -> Read:
    """One object of these classes."""

    def read(value: Any, path: str) -> Any:
        found = _read(value, path, _NAMES[classes[0]][0])
        if isinstance(found, classes):
            return found
        return wrong(path, f"one of {', '.join([_NAMES[cls][1] for cls in classes])}", _NAMES[type(found)][1])

    return read


def _encode_all(values: Sequence[Encodable]) -> list[dict[str, Any]]:
    return [encode(value) for value in values]


def _read_usage(value: Any, path: str) -> msg.Usage:
    return msg.NO_USAGE if value is None else msg.Usage(**read_fields(_USAGE, json_object(value, path), path))


def _write_usage(usage: msg.Usage) -> dict[str, Any]:
    return write_fields(_USAGE, usage, {})


def _read_error(value: Any, path: str) -> ev.ErrorInfo:
    return ev.ErrorInfo(**read_fields(_ERROR, json_object(value, path), path))


def _write_error(error: ev.ErrorInfo) -> dict[str, Any]:
    return write_fields(_ERROR, error, {})


_USAGE: Final = tuple([optional(field.name, integer) for field in attrs.fields(msg.Usage)])
_ERROR: Final = (Field("kind", text), Field("message", text), optional("status", integer))
_USER_BLOCKS: Final = all_of(_one(msg.Text, msg.Image))
_RESULT: Final = _one(msg.ToolResultMessage)

_SIGNATURE: Final = present("signature")
_ARGUMENTS: Final = (Field("arguments", or_null(json_value)), present("raw"), _SIGNATURE)
_INDEX: Final = Field("index", integer)
_TEXT: Final = Field("text", text)
_TURN: Final = Field("turn", integer)
_ATTEMPT: Final = Field("attempt", integer)
_CALL: Final = (Field("tool_call_id", text), Field("tool_name", text))
_IS_ERROR: Final = Field("is_error", flag)
_CONTENT: Final = Field("content", _USER_BLOCKS, _encode_all)
_MESSAGE: Final = Field("message", _one(*get_args(msg.Message)), encode)
_SPENT: Final = Field("usage", _read_usage, _write_usage, default=msg.NO_USAGE)
_ERROR_TEXT: Final = optional("error", text)
_TOKENS: Final = optional("tokens", integer)
_TIME: Final = Field("time", number, default=0.0)

# -- the table: a class, the tag that says it, and its fields -----------------------------------------------------

_Row: TypeAlias = tuple[type, str, str, tuple[Field, ...]]
_TABLE: Final[tuple[_Row, ...]] = (
    (msg.Text, "type", "text", (_TEXT, _SIGNATURE)),
    (msg.Thinking, "type", "thinking", (_TEXT, _SIGNATURE, present("redacted"))),
    (msg.Image, "type", "image", (Field("data", base64_bytes, write_base64), Field("media_type", text))),
    (msg.ToolCall, "type", "tool_call", (Field("id", text), Field("name", text), *_ARGUMENTS)),
    (TextDelta, "type", "text_delta", (_INDEX, _TEXT)),
    (ThinkingDelta, "type", "thinking_delta", (_INDEX, _TEXT)),
    (
        ev.ToolCallFragment,
        "type",
        "tool_call_delta",
        (_INDEX, Field("id", text), Field("name", text), Field("json", text)),
    ),
    (msg.UserMessage, "role", "user", (_CONTENT,)),
    (
        msg.AssistantMessage,
        "role",
        "assistant",
        (
            Field("content", all_of(_one(msg.Text, msg.Thinking, msg.ToolCall)), _encode_all),
            Field("stop_reason", or_null(word(*get_args(msg.StopReason)))),
            _SPENT,
            optional("error_message", text),
            present("model"),
            present("provider"),
            present("response_id"),
        ),
    ),
    (msg.ToolResultMessage, "role", "tool_result", (*_CALL, _IS_ERROR, _CONTENT, present("details", json_value))),
    (msg.CustomMessage, "role", "custom", (Field("kind", text), Field("payload", json_value))),
    (ev.AgentStart, "type", "agent_start", (_TIME,)),
    (ev.TurnStart, "type", "turn_start", (_TURN, _TIME)),
    (ev.MessageStart, "type", "message_start", (_MESSAGE, _TIME)),
    (
        ev.MessageUpdate,
        "type",
        "message_update",
        (Field("delta", _one(TextDelta, ThinkingDelta, ev.ToolCallFragment), encode), _TIME),
    ),
    (ev.MessageEnd, "type", "message_end", (_MESSAGE, _TIME)),
    (ev.ToolExecutionStart, "type", "tool_execution_start", (*_CALL, *_ARGUMENTS, _TIME)),
    (
        ev.ToolExecutionUpdate,
        "type",
        "tool_execution_update",
        (*_CALL, Field("partial", _USER_BLOCKS, _encode_all), _TIME),
    ),
    (
        ev.ToolExecutionEnd,
        "type",
        "tool_execution_end",
        (*_CALL, _IS_ERROR, Field("result", _RESULT, encode), _TIME),
    ),
    (
        ev.TurnEnd,
        "type",
        "turn_end",
        (
            _TURN,
            Field("message", _one(msg.AssistantMessage), encode),
            Field("tool_results", all_of(_RESULT), _encode_all, default=()),
            _TIME,
        ),
    ),
    (
        ev.RetryStart,
        "type",
        "retry_start",
        (
            _ATTEMPT,
            Field("max_attempts", integer),
            Field("delay", number),
            Field("error", _read_error, _write_error),
            _TIME,
        ),
    ),
    (ev.RetryEnd, "type", "retry_end", (_ATTEMPT, Field("outcome", word("resumed", "aborted", "failed")), _TIME)),
    (
        ev.CompactionStart,
        "type",
        "compaction_start",
        (Field("reason", word("threshold", "overflow")), _TOKENS, _TIME),
    ),
    (
        ev.CompactionEnd,
        "type",
        "compaction_end",
        (
            Field("outcome", word("compacted", "aborted", "failed")),
            optional("summary", _one(*get_args(msg.Message)), encode),
            optional("first_kept", integer),
            _TOKENS,
            _ERROR_TEXT,
            _TIME,
        ),
    ),
    (
        ev.AgentEnd,
        "type",
        "agent_end",
        (
            Field("outcome", word(*get_args(ev.Outcome))),
            optional("reason", text),
            Field("turns", integer, default=0),
            _SPENT,
            _ERROR_TEXT,
            _TIME,
        ),
    ),
)

# -- the table at work --------------------------------------------------------------------------------------------


def _arguments(call: msg.ToolCall) -> dict[str, JSONValue]:
    """The fields `arguments`, `raw` and `signature` of a call."""
    arguments: JSONValue = None
    canonical = False
    try:
        arguments = loads(call.raw)
        # Eight levels more than the event around it will have, so that whoever writes the event can.
        canonical = dumps([[[[[[[[arguments]]]]]]]])[8:-8] == call.raw
    except (ValueError, RecursionError):
        arguments = None  # not JSON, an infinite number such as 1e400, or nested too deeply
    found: dict[str, JSONValue] = {"arguments": arguments}
    if not canonical:
        found["raw"] = call.raw
    if call.signature is not None:
        found["signature"] = call.signature
    return found


def _encode_call(call: msg.ToolCall) -> dict[str, Any]:
    return {"type": "tool_call", "id": call.id, "name": call.name, **_arguments(call)}


def _encode_tool_start(event: ev.ToolExecutionStart) -> dict[str, Any]:
    call = event.call
    ours = {"type": "tool_execution_start", "tool_call_id": call.id, "tool_name": call.name}
    return {**ours, **_arguments(call), "time": event.time}


def _encode_update(event: ev.MessageUpdate) -> dict[str, Any]:
    return {"type": "message_update", "delta": encode(event.delta), "time": event.time}


def _encode_text_delta(delta: TextDelta) -> dict[str, Any]:
    return {"type": "text_delta", "index": delta.index, "text": delta.text}


def _encoder(row: _Row) -> Callable[[Any], dict[str, Any]]:
    _, key, tag, fields = row
    return lambda value: write_fields(fields, value, {key: tag})


# Some of the table by hand: calls for their `raw`, updates because they are most of a trace.
_ENCODERS: Final[dict[type, Callable[[Any], dict[str, Any]]]] = {
    **{row[0]: _encoder(row) for row in _TABLE},
    msg.ToolCall: _encode_call,
    ev.ToolExecutionStart: _encode_tool_start,
    ev.MessageUpdate: _encode_update,
    TextDelta: _encode_text_delta,
}


def _make_call(
    _path: str, *, id: str, name: str, arguments: JSONValue, raw: str | None, signature: str | None
) -> msg.ToolCall:
    kept = dumps(arguments) if raw is None else raw
    return msg.ToolCall(id, name, raw=kept, signature=signature)


def _make_tool_start(
    path: str, *, tool_call_id: str, tool_name: str, time: float, **rest: Any
) -> ev.ToolExecutionStart:
    return ev.ToolExecutionStart(_make_call(path, id=tool_call_id, name=tool_name, **rest), time=time)


def _make_tool_end(path: str, *, result: msg.ToolResultMessage, time: float, **said: Any) -> ev.ToolExecutionEnd:
    """The event holds the result alone, so what the object says beside it must be what the result says."""
    for name, value in said.items():
        held = getattr(result, name)
        if value != held:
            wrong(f"{path}.{name}" if path else name, f"{held!r} as in the result", value)
    return ev.ToolExecutionEnd(result, time=time)


_MAKERS: Final[dict[type, Callable[..., Any]]] = {
    msg.ToolCall: _make_call,
    ev.ToolExecutionStart: _make_tool_start,
    ev.ToolExecutionEnd: _make_tool_end,
}
_NAMES: Final = {cls: (key, tag) for cls, key, tag, _ in _TABLE}
_BY_TAG: Final[dict[str, dict[str, tuple[type, tuple[Field, ...]]]]] = {
    by: {tag: (cls, fields) for cls, key, tag, fields in _TABLE if key == by} for by in ("type", "role")
}


def _read(value: Any, path: str, key: str) -> Any:
    data = json_object(value, path)
    inner = f"{path}.{key}" if path else key
    if key not in data:
        advice = "" if path else "; an event or a block has a type, a message a role"
        raise ValueError(f"{inner}: is missing{advice}")
    tag = data[key]
    row = _BY_TAG[key].get(tag) if isinstance(tag, str) else None
    if row is None:
        wrong(inner, f"a known {key}", tag)
    cls, fields = row
    found = read_fields(fields, data, path)
    maker = _MAKERS.get(cls)
    return cls(**found) if maker is None else maker(path, **found)
