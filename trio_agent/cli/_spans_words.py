"""What spans say about themselves beside their times: short texts, on one line each, of bounded length.

Here lives the wording. Which span says what is decided in `_spans_walk.py`. Pure.
"""

from __future__ import annotations

from typing import Final

from .._events import AgentEnd
from .._json import dumps
from .._messages import AssistantMessage, CustomMessage, ToolResultMessage, Usage, UserMessage, joined_text
from ._usage import one_line

_SHOWN: Final = 200

Notes = list[tuple[str, str]]


def cut_short(text: str, length: int = _SHOWN) -> str:
    """The beginning of a text, on one line. Takes no longer for a long text."""
    line = one_line(text[: 2 * length])
    return line if len(line) <= length and len(text) <= 2 * length else f"{line[: length - 1]}…"


def message_text(message: UserMessage | CustomMessage) -> str:
    if isinstance(message, UserMessage):
        return cut_short(joined_text(message.content)) or "(no text)"
    return cut_short(f"{message.kind} {dumps(message.payload)}")


def answer_notes(message: AssistantMessage) -> Notes:
    notes: Notes = []
    if text := cut_short(message.text):
        notes.append(("text", text))
    if calls := message.tool_calls:
        notes.append(("calls", cut_short(", ".join([call.name for call in calls]))))
    notes += usage_notes(message.usage)
    if message.error_message is not None:
        notes.append(("error", cut_short(message.error_message)))
    return notes


def tool_notes(result: ToolResultMessage, updates: int) -> Notes:
    notes: Notes = [("call", cut_short(result.tool_call_id))]
    if updates:
        notes.append(("updates", str(updates)))
    return [*notes, ("result", cut_short(result.text) or "(no text)")]


def run_notes(end: AgentEnd) -> Notes:
    notes: Notes = [("turns", str(end.turns)), *usage_notes(end.usage)]
    told = (("reason", end.reason), ("error", end.error))
    return [*notes, *[(name, cut_short(value)) for name, value in told if value is not None]]


def usage_notes(usage: Usage) -> Notes:
    """The tokens, where they are known."""
    if usage.known_total is None:
        return []
    counts = (
        ("in", usage.input),
        ("out", usage.output),
        ("cache read", usage.cache_read),
        ("cache write", usage.cache_write),
        ("reasoning", usage.reasoning),
    )
    parts = [f"{count:,} {name}" for name, count in counts if count is not None]
    known = f" ({', '.join(parts)})" if parts else ""
    return [("tokens", f"{usage.known_total:,}{known}")]


def spent(usage: Usage) -> str:
    """The tokens as part of a sentence; empty where nothing is known."""
    return "".join(
        [text.replace(" (", " tokens (") if " (" in text else f"{text} tokens" for _, text in usage_notes(usage)]
    )
