"""How each class looks as JSON: one table, read in both directions.

Here lives the table of section 6 of the specification, and the walk over it. What a single field may hold is in
`_codec_fields.py`, the public face in `_codec.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, get_args

import attrs

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
from ._events import (
    AgentEnd,
    AgentStart,
    CompactionEnd,
    CompactionStart,
    ErrorInfo,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    Outcome,
    RetryEnd,
    RetryStart,
    ToolCallFragment,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnStart,
)
from ._json import JSONValue, dumps, loads
from ._messages import (
    NO_USAGE,
    AssistantMessage,
    CustomMessage,
    Image,
    Message,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)


def write(value: object) -> dict[str, Any]:
    """The JSON object of a value. Raises `TypeError` for what the table does not have."""
    writer = WRITERS.get(type(value))
    if writer is None:
        raise TypeError(f"{type(value).__name__} has no JSON form; encode an event, a message, a delta or a block")
    return writer(value)


# -- parts that several classes share -----------------------------------------------------------------------------


def _one(*classes: type) -> Read:
    """One object of these classes."""

    def read_one(value: Any, path: str) -> Any:
        found = read(value, path, _NAMES[classes[0]][0])
        if isinstance(found, classes):
            return found
        return wrong(path, f"one of {', '.join([_NAMES[cls][1] for cls in classes])}", _NAMES[type(found)][1])

    return read_one


def _write_all(values: Sequence[Any]) -> list[dict[str, Any]]:
    return [write(value) for value in values]


def _read_usage(value: Any, path: str) -> Usage:
    return NO_USAGE if value is None else Usage(**read_fields(_USAGE, json_object(value, path), path))


def _write_usage(usage: Usage) -> dict[str, Any]:
    return write_fields(_USAGE, usage, {})


def _read_error(value: Any, path: str) -> ErrorInfo:
    return ErrorInfo(**read_fields(_ERROR, json_object(value, path), path))


def _write_error(error: ErrorInfo) -> dict[str, Any]:
    return write_fields(_ERROR, error, {})


_USAGE: Final = tuple([optional(field.name, integer) for field in attrs.fields(Usage)])
_ERROR: Final = (Field("kind", text), Field("message", text), optional("status", integer))
_USER_BLOCKS: Final = all_of(_one(Text, Image))
_RESULT: Final = _one(ToolResultMessage)

_SIGNATURE: Final = present("signature")
_ARGUMENTS: Final = (Field("arguments", or_null(json_value)), present("raw"), _SIGNATURE)
_INDEX: Final = Field("index", integer)
_TEXT: Final = Field("text", text)
_TURN: Final = Field("turn", integer)
_ATTEMPT: Final = Field("attempt", integer)
_CALL: Final = (Field("tool_call_id", text), Field("tool_name", text))
_IS_ERROR: Final = Field("is_error", flag)
_CONTENT: Final = Field("content", _USER_BLOCKS, _write_all)
_MESSAGE: Final = Field("message", _one(*get_args(Message)), write)
_SPENT: Final = Field("usage", _read_usage, _write_usage, default=NO_USAGE)
_ERROR_TEXT: Final = optional("error", text)
_TOKENS: Final = optional("tokens", integer)
_TIME: Final = Field("time", number, default=0.0)

# -- the table: a class, the tag that says it, and its fields -----------------------------------------------------

_Row: TypeAlias = tuple[type, str, str, tuple[Field, ...]]
_TABLE: Final[tuple[_Row, ...]] = (
    (Text, "type", "text", (_TEXT, _SIGNATURE)),
    (Thinking, "type", "thinking", (_TEXT, _SIGNATURE, present("redacted"))),
    (Image, "type", "image", (Field("data", base64_bytes, write_base64), Field("media_type", text))),
    (ToolCall, "type", "tool_call", (Field("id", text), Field("name", text), *_ARGUMENTS)),
    (TextDelta, "type", "text_delta", (_INDEX, _TEXT)),
    (ThinkingDelta, "type", "thinking_delta", (_INDEX, _TEXT)),
    (
        ToolCallFragment,
        "type",
        "tool_call_delta",
        (_INDEX, Field("id", text), Field("name", text), Field("json", text)),
    ),
    (UserMessage, "role", "user", (_CONTENT,)),
    (
        AssistantMessage,
        "role",
        "assistant",
        (
            Field("content", all_of(_one(Text, Thinking, ToolCall)), _write_all),
            Field("stop_reason", or_null(word(*get_args(StopReason)))),
            _SPENT,
            optional("error_message", text),
            present("model"),
            present("provider"),
            present("response_id"),
        ),
    ),
    (ToolResultMessage, "role", "tool_result", (*_CALL, _IS_ERROR, _CONTENT, present("details", json_value))),
    (CustomMessage, "role", "custom", (Field("kind", text), Field("payload", json_value))),
    (AgentStart, "type", "agent_start", (_TIME,)),
    (TurnStart, "type", "turn_start", (_TURN, _TIME)),
    (MessageStart, "type", "message_start", (_MESSAGE, _TIME)),
    (
        MessageUpdate,
        "type",
        "message_update",
        (Field("delta", _one(TextDelta, ThinkingDelta, ToolCallFragment), write), _TIME),
    ),
    (MessageEnd, "type", "message_end", (_MESSAGE, _TIME)),
    (ToolExecutionStart, "type", "tool_execution_start", (*_CALL, *_ARGUMENTS, _TIME)),
    (
        ToolExecutionUpdate,
        "type",
        "tool_execution_update",
        (*_CALL, Field("partial", _USER_BLOCKS, _write_all), _TIME),
    ),
    (
        ToolExecutionEnd,
        "type",
        "tool_execution_end",
        (*_CALL, _IS_ERROR, Field("result", _RESULT, write), _TIME),
    ),
    (
        TurnEnd,
        "type",
        "turn_end",
        (
            _TURN,
            Field("message", _one(AssistantMessage), write),
            Field("tool_results", all_of(_RESULT), _write_all, default=()),
            _TIME,
        ),
    ),
    (
        RetryStart,
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
    (RetryEnd, "type", "retry_end", (_ATTEMPT, Field("outcome", word("resumed", "aborted", "failed")), _TIME)),
    (
        CompactionStart,
        "type",
        "compaction_start",
        (Field("reason", word("threshold", "overflow")), _TOKENS, _TIME),
    ),
    (
        CompactionEnd,
        "type",
        "compaction_end",
        (
            Field("outcome", word("compacted", "aborted", "failed")),
            optional("summary", _one(*get_args(Message)), write),
            optional("first_kept", integer),
            _TOKENS,
            _ERROR_TEXT,
            _TIME,
        ),
    ),
    (
        AgentEnd,
        "type",
        "agent_end",
        (
            Field("outcome", word(*get_args(Outcome))),
            optional("reason", text),
            Field("turns", integer, default=0),
            _SPENT,
            _ERROR_TEXT,
            _TIME,
        ),
    ),
)

# -- the table at work --------------------------------------------------------------------------------------------


def _arguments(call: ToolCall) -> dict[str, JSONValue]:
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


def _write_call(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_call", "id": call.id, "name": call.name, **_arguments(call)}


def _write_tool_start(event: ToolExecutionStart) -> dict[str, Any]:
    call = event.call
    ours = {"type": "tool_execution_start", "tool_call_id": call.id, "tool_name": call.name}
    return {**ours, **_arguments(call), "time": event.time}


def _write_update(event: MessageUpdate) -> dict[str, Any]:
    return {"type": "message_update", "delta": write(event.delta), "time": event.time}


def _write_text_delta(delta: TextDelta) -> dict[str, Any]:
    return {"type": "text_delta", "index": delta.index, "text": delta.text}


def _writer(row: _Row) -> Callable[[Any], dict[str, Any]]:
    _, key, tag, fields = row
    return lambda value: write_fields(fields, value, {key: tag})


# Some of the table by hand: calls for their `raw`, updates because they are most of a trace.
WRITERS: Final[dict[type, Callable[[Any], dict[str, Any]]]] = {
    **{row[0]: _writer(row) for row in _TABLE},
    ToolCall: _write_call,
    ToolExecutionStart: _write_tool_start,
    MessageUpdate: _write_update,
    TextDelta: _write_text_delta,
}


def _make_call(
    _path: str, *, id: str, name: str, arguments: JSONValue, raw: str | None, signature: str | None
) -> ToolCall:
    kept = dumps(arguments) if raw is None else raw
    return ToolCall(id, name, raw=kept, signature=signature)


def _make_tool_start(path: str, *, tool_call_id: str, tool_name: str, time: float, **rest: Any) -> ToolExecutionStart:
    return ToolExecutionStart(_make_call(path, id=tool_call_id, name=tool_name, **rest), time=time)


def _make_tool_end(path: str, *, result: ToolResultMessage, time: float, **said: Any) -> ToolExecutionEnd:
    """The event holds the result alone, so what the object says beside it must be what the result says."""
    for name, value in said.items():
        held = getattr(result, name)
        if value != held:
            wrong(f"{path}.{name}" if path else name, f"{held!r} as in the result", value)
    return ToolExecutionEnd(result, time=time)


_MAKERS: Final[dict[type, Callable[..., Any]]] = {
    ToolCall: _make_call,
    ToolExecutionStart: _make_tool_start,
    ToolExecutionEnd: _make_tool_end,
}
_NAMES: Final = {cls: (key, tag) for cls, key, tag, _ in _TABLE}
_BY_TAG: Final[dict[str, dict[str, tuple[type, tuple[Field, ...]]]]] = {
    by: {tag: (cls, fields) for cls, key, tag, fields in _TABLE if key == by} for by in ("type", "role")
}


def read(value: Any, path: str, key: str) -> Any:
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
