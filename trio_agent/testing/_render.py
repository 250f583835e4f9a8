"""Events as short lines, for tests to assert and people to read.

Here lives the format of the lines and nothing else: no judgement, no colours, no files. JSON is in `_codec.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from .._chunks import TextDelta, ThinkingDelta
from .._codec import decode, escape
from .._events import (
    AgentEnd,
    AgentStart,
    CompactionEnd,
    CompactionStart,
    Event,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    RetryEnd,
    RetryStart,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnStart,
)
from .._json import dumps
from .._messages import AssistantMessage, Block, CustomMessage, Image, Message, Text, Thinking, ToolResultMessage

CLIP: Final = 60


def render(events: Iterable[Event | Mapping[str, Any]], *, clip: int = CLIP) -> list[str]:
    r"""One short line per event; works on live events and on their JSON objects.

        agent_start
        turn_start 1
        message_start user                                  the role; for a tool result also its call id,
        message_start tool_result c1                        for an application's own message its kind
        message_end user "hi" [image/png 120 bytes]         what it holds, block by block
        message_update "he"
        message_update thinking "hm"
        message_update call c1 read "{\"pa"
        message_end assistant tool_use thinking "hm" "hello" c1:read
        message_end assistant error "par" !boom             the stop reason, the blocks, ! and the error message
        message_end tool_result c1 ok "text"                ok or error, then what it holds
        message_end custom note {"k":1}
        tool_execution_start c1 read {"path":"a"}           the arguments' text as the model gave it
        tool_execution_update c1 "x"
        tool_execution_end c1 error "text"
        turn_end 1
        retry_start 1/4 overloaded                          the failed attempt of how many, and its kind of failure
        retry_end 1 resumed
        compaction_start threshold
        compaction_end compacted
        agent_end completed                                 the outcome, and the reason if there is one

    Texts are quoted as in JSON, so that each event stays on one line; those of more than `clip` characters end in `…`.
    Redacted thinking shows as `thinking redacted`. Times, usage and signatures are left out.
    """
    return [render_event(event, clip=clip) for event in events]


def render_event(event: Event | Mapping[str, Any], *, clip: int = CLIP) -> str:
    """The line of one event. Raises `TypeError` or `ValueError` for what is no event."""
    known = cast("Event", decode(event) if isinstance(event, Mapping) else event)
    line = _LINES.get(type(known))
    if line is None:
        raise TypeError(f"{type(known).__name__} is no event; render events or their JSON objects")
    return " ".join([known.type, *line(known, clip)])


def render_message(message: Message, *, clip: int = CLIP) -> str:
    """What a message's `message_end` line says behind the event's name."""
    return " ".join(_message(message, clip))


def _plain(text: str, clip: int) -> str:
    """A text without quotes, on one line."""
    return _quoted(text, clip)[1:-1]


def _quoted(text: str, clip: int) -> str:
    return escape(dumps(text if len(text) <= clip else text[:clip] + "…"))


def _json(text: str, clip: int) -> str:
    """JSON text as it came, on one line."""
    shown = text if len(text) <= clip else text[:clip] + "…"
    return escape(shown) if shown.isprintable() else _plain(shown, clip + 1)


def _blocks(content: Sequence[Block], clip: int) -> list[str]:
    return [_block(block, clip) for block in content]


def _block(block: Block, clip: int) -> str:
    if isinstance(block, Text):
        return _quoted(block.text, clip)
    if isinstance(block, Thinking):
        return "thinking redacted" if block.redacted is not None else f"thinking {_quoted(block.text, clip)}"
    if isinstance(block, Image):
        return f"[{_plain(block.media_type, clip)} {len(block.data)} bytes]"
    return f"{_plain(block.id, clip)}:{_plain(block.name, clip)}"


def _delta(event: MessageUpdate, clip: int) -> list[str]:
    delta = event.delta
    if isinstance(delta, TextDelta):
        return [_quoted(delta.text, clip)]
    if isinstance(delta, ThinkingDelta):
        return ["thinking", _quoted(delta.text, clip)]
    return ["call", _plain(delta.id, clip), _plain(delta.name, clip), _quoted(delta.json, clip)]


def _start(event: MessageStart, clip: int) -> list[str]:
    message = event.message
    if isinstance(message, ToolResultMessage):
        return [message.role, _plain(message.tool_call_id, clip)]
    return [message.role, _plain(message.kind, clip)] if isinstance(message, CustomMessage) else [message.role]


def _message(message: Message, clip: int) -> list[str]:
    if isinstance(message, AssistantMessage):
        error = [] if message.error_message is None else [f"!{_plain(message.error_message, clip)}"]
        return [message.role, message.stop_reason or "streaming", *_blocks(message.content, clip), *error]
    if isinstance(message, ToolResultMessage):
        return [message.role, *_result(message, clip)]
    if isinstance(message, CustomMessage):
        return [message.role, _plain(message.kind, clip), _json(dumps(message.payload), clip)]
    return [message.role, *_blocks(message.content, clip)]


def _result(result: ToolResultMessage, clip: int) -> list[str]:
    verdict = "error" if result.is_error else "ok"
    return [_plain(result.tool_call_id, clip), verdict, *_blocks(result.content, clip)]


def _tool_start(event: ToolExecutionStart, clip: int) -> list[str]:
    return [_plain(event.call.id, clip), _plain(event.call.name, clip), _json(event.call.raw, clip)]


def _tool_update(event: ToolExecutionUpdate, clip: int) -> list[str]:
    return [_plain(event.tool_call_id, clip), *_blocks(event.partial, clip)]


def _agent_end(event: AgentEnd, clip: int) -> list[str]:
    return [event.outcome] if event.reason is None else [event.outcome, _plain(event.reason, clip)]


_LINES: Final[dict[type, Callable[[Any, int], list[str]]]] = {
    AgentStart: lambda _event, _clip: [],
    TurnStart: lambda event, _clip: [str(event.turn)],
    MessageStart: _start,
    MessageUpdate: _delta,
    MessageEnd: lambda event, clip: _message(event.message, clip),
    ToolExecutionStart: _tool_start,
    ToolExecutionUpdate: _tool_update,
    ToolExecutionEnd: lambda event, clip: _result(event.result, clip),
    TurnEnd: lambda event, _clip: [str(event.turn)],
    RetryStart: lambda event, clip: [f"{event.attempt}/{event.max_attempts}", _plain(event.error.kind, clip)],
    RetryEnd: lambda event, _clip: [str(event.attempt), event.outcome],
    CompactionStart: lambda event, _clip: [event.reason],
    CompactionEnd: lambda event, _clip: [event.outcome],
    AgentEnd: _agent_end,
}
