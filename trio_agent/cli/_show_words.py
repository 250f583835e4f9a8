"""How each thing in a log is shown: one piece of text, safe for any terminal, and its style.

Here lives the wording of `trio-agent show`. What is shown when is decided in `_show.py`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from .._events import AgentEnd, CompactionEnd, CompactionStart, RetryStart, ToolExecutionUpdate
from .._json import dumps
from .._messages import (
    AssistantMessage,
    CustomMessage,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserBlock,
    UserMessage,
)
from ._log import visible
from ._spans_words import spent

Piece: TypeAlias = tuple[str, str]

_LINES: Final = 12  # of a text, unless all of it is wanted
_LENGTH: Final = 2_000
_GUTTER: Final = 10
_ALWAYS: Final = ("run", "message", "tool call")


class Words:
    """With `full`, texts are shown whole, and what tools reported while they ran is shown too."""

    def __init__(self, *, full: bool) -> None:
        self._full = full

    def header(self, version: int) -> Piece:
        return f"session, format {version}", "dim"

    def problem(self, line: int, text: str) -> Piece:
        return self._piece(f"! line {line}: {text}", None, "red", clip=True)

    def run(self, number: int) -> Piece:
        return f"\n== run {number} ==", "bold"

    def turn(self, number: int, time: float) -> Piece:
        return self._piece(f"-- turn {number} --", time, "dim")

    def user(self, message: Message, time: float | None) -> Piece:
        content = message.content if isinstance(message, UserMessage) else ()
        return self._piece(f"user: {self._content(content)}", time, "bold")

    def custom(self, message: Message, time: float | None) -> Piece:
        kind, payload = (message.kind, dumps(message.payload)) if isinstance(message, CustomMessage) else ("", "")
        return self._piece(f"{kind}: {payload}", time, "blue")

    def answer(self, block: Text, time: float | None) -> Piece:
        return self._piece(f"assistant: {block.text}", time, "")

    def thinking(self, block: Thinking, time: float | None) -> Piece:
        text = block.text if block.redacted is None else "(not shown by the provider)"
        return self._piece(f"thinking: {text}", time, "dim italic")

    def call(self, call: ToolCall, time: float | None) -> Piece:
        return self._piece(f"→ {call.name} {call.raw}", time, "cyan")

    def answered(self, message: AssistantMessage, time: float | None) -> Iterator[Piece]:
        """How an answer ended, if there is more to say than that it did."""
        if message.stop_reason in ("error", "aborted", "length", None):
            why = "" if message.error_message is None else f": {message.error_message}"
            style = "yellow" if message.stop_reason in ("aborted", "length") else "red"
            yield self._piece(f"✗ the answer ended with {message.stop_reason or 'nothing'}{why}", time, style)
        if tokens := spent(message.usage):
            yield self._piece(", ".join([tokens, *([message.model] if message.model else [])]), None, "dim")

    def result(self, result: ToolResultMessage, time: float | None, took: float | None, *, alone: bool) -> Piece:
        mark, style = ("✗", "red") if result.is_error else ("✓", "green")
        which = "" if alone else f" [{result.tool_call_id}]"
        seconds = "" if took is None else f" ({took:.2f} s)"
        return self._piece(f"{mark} {result.tool_name}{which}{seconds}: {self._content(result.content)}", time, style)

    def update(self, event: ToolExecutionUpdate) -> Iterator[Piece]:
        if self._full:
            yield self._piece(f"  {event.tool_name}: {self._content(event.partial)}", event.time, "dim")

    def unanswered(self, call: ToolCall) -> Piece:
        return self._piece(f"! {call.name} [{call.id}] has no result in the log", None, "red")

    def retry(self, event: RetryStart) -> Piece:
        error = f"{event.error.kind}: {event.error.message}"
        told = f"… {error}; attempt {event.attempt} of {event.max_attempts}, again in {event.delay:.3g} s"
        return self._piece(told, event.time, "yellow")

    def note(self, text: str, time: float) -> Piece:
        return self._piece(f"… {text}", time, "yellow")

    def compaction(self, event: CompactionStart) -> Piece:
        tokens = "" if event.tokens is None else f", {event.tokens} tokens"
        return self._piece(f"… shortening the conversation ({event.reason}{tokens})", event.time, "yellow")

    def compacted(self, event: CompactionEnd) -> Iterator[Piece]:
        if event.outcome != "compacted":
            why = "" if event.error is None else f": {event.error}"
            yield self.note(f"that {'failed' if event.outcome == 'failed' else 'was aborted'}{why}", event.time)
            return
        tokens = "" if event.tokens is None else f", {event.tokens} tokens now"
        yield self.note(f"shortened: message {event.first_kept} and later are kept{tokens}", event.time)
        if isinstance(event.summary, UserMessage | AssistantMessage):
            yield self._piece(f"summary: {event.summary.text}", None, "yellow")

    def end(self, event: AgentEnd) -> Piece:
        reason = "" if event.reason is None else f" ({event.reason})"
        error = "" if event.error is None or event.error == event.reason else f": {event.error}"
        turns = f"{event.turns} turn{'' if event.turns == 1 else 's'}"
        tokens = [spent(event.usage)] if spent(event.usage) else []
        style = {"completed": "bold green", "stopped": "bold", "aborted": "bold yellow"}.get(event.outcome, "bold red")
        return self._piece(" · ".join([f"{event.outcome}{reason}{error}", turns, *tokens]), event.time, style)

    def torn(self, text: str) -> Piece:
        where = f"behind: {text}" if text else "before its first word"
        return self._piece(f"! an answer was cut off {where}", None, "red")

    def unfinished(self) -> Piece:
        return self._piece("! the run has no end in the log", None, "red")

    def totals(self, counts: Mapping[str, int], problems: int, first: int) -> Piece:
        names = (*_ALWAYS, "failed call", "retry", "compaction")
        told = [_count(counts.get(name, 0), name) for name in names if name in _ALWAYS or counts.get(name, 0)]
        if problems:
            told.append(f"{_count(problems, 'bad line')}, the first is line {first}")
        return f"\n{', '.join(told)}", "red" if problems else "dim"

    def _content(self, content: tuple[UserBlock, ...]) -> str:
        return "\n".join(
            [f"[{b.media_type}, {len(b.data)} bytes]" if isinstance(b, Image) else b.text for b in content]
        )

    def _piece(self, text: str, time: float | None, style: str, *, clip: bool = False) -> Piece:
        """The text behind the time, its further lines indented likewise."""
        gutter = "" if time is None else f"{time:.2f}"
        shown = _clipped(text) if clip or not self._full else text
        lines = visible(shown).rstrip("\n").split("\n")
        indent = "\n" + " " * (_GUTTER + 2)
        return f"{gutter:>{_GUTTER - 2}}  {indent.join(lines)}", style


def _clipped(text: str) -> str:
    head = text[:_LENGTH]
    lines = head.split("\n")
    if len(lines) <= _LINES and len(head) == len(text):
        return text
    shown = "\n".join(lines[:_LINES])
    return f"{shown}…\n({len(text) - len(shown)} more characters; --full shows them)"


def _count(number: int, what: str) -> str:
    if number == 1:
        return f"1 {what}"
    return f"{number} {what.removesuffix('y')}ies" if what == "retry" else f"{number} {what}s"
