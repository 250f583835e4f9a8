"""What a conversation looks like: lines that stay, above, and lines that still change, below them.

Here lives what each event changes on the screen, as rich's renderables. No terminal, no thread, no Trio: how lines
get onto a screen is in `_chat_screen.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
from rich.console import RenderableType
from rich.text import Text

from .._chunks import TextDelta, ThinkingDelta
from .._events import (
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
    TurnStart,
)
from .._messages import AssistantMessage, ToolCall, UserMessage, joined_text
from ._chat_blocks import Kind, tool_block, user_words
from ._chat_markdown import Growing
from ._chat_paint import Painter, markdown
from ._chat_text import call_words, excerpt, seconds, shown

_UPDATE_LINES: Final = 3
_TALL: Final = 200  # lines of a block that grows; beyond, its end is shown as plain text until it is whole
_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


@attrs.define
class _Running:
    """A tool call on its way."""

    call: ToolCall
    since: float
    latest: str = ""


@attrs.frozen
class _Phase:
    """What is going on, since when; `until` is when a wait is over."""

    words: str
    since: float
    until: float | None = None


class View:
    """Takes events and notes. `now` is a clock's seconds, the same clock's everywhere."""

    def __init__(self) -> None:
        self.queue: Sequence[tuple[str, str]] = ()
        self._above: list[tuple[Kind, RenderableType]] = []
        self._last: Kind | None = None
        self._label = ""  # how the next message of the user's came in
        self._text = Growing()
        self._thinking = ""
        self._call: tuple[str, int] | None = None  # the call that is being written, and the size of its arguments
        self._running: dict[str, _Running] = {}
        self._phase: _Phase | None = None

    @property
    def busy(self) -> bool:
        """Whether the lines below change by time alone."""
        return self._phase is not None

    # What happens

    def take(self, event: Event, now: float) -> None:
        match event:
            case MessageUpdate():
                self._grow(event, now)
            case MessageStart(message=UserMessage() as message):
                self.add("user", user_words(message, self._label))
                self._label = ""
            case MessageEnd(message=AssistantMessage() as message):
                self._end_answer(message)
                self._phase = _Phase("working", now)
            case ToolExecutionStart() | ToolExecutionUpdate() | ToolExecutionEnd():
                self._take_tool(event, now)
            case TurnStart():
                self._phase = _Phase("waiting for the model", now)
            case RetryStart() | RetryEnd() | CompactionStart() | CompactionEnd():
                self._take_pause(event, now)
            case _:
                pass

    def idle(self) -> None:
        """The run is over, or has not begun."""
        self._phase = None
        self._running.clear()

    def working(self, words: str, now: float) -> None:
        """Say what is going on, until an event says something else."""
        self._phase = _Phase(words, now)

    def label(self, text: str) -> None:
        """Say beside the next message of the user's how it came in."""
        self._label = text

    def note(self, text: str, style: str = "dim") -> None:
        self.add("note", Text(shown(text), style))

    def add(self, kind: Kind, block: RenderableType) -> None:
        """Something that stays. While an answer grows, it comes above the block that is not finished."""
        self._above.append((kind, block))

    def _grow(self, event: MessageUpdate, now: float) -> None:
        match event.delta:
            case TextDelta(text=text):
                self._settle_thinking()
                self._text.add(text)
                self._phase = self._since("answering", now)
            case ThinkingDelta(text=text):
                self._settle_text()
                self._thinking += text
                self._phase = self._since("thinking", now)
            case fragment:
                self._settle_answer()
                written = self._call[1] if self._call is not None and self._call[0] == fragment.name else 0
                self._call = (fragment.name, written + len(fragment.json))
                self._phase = self._since("calling a tool", now)

    def _since(self, words: str, now: float) -> _Phase:
        phase = self._phase
        return phase if phase is not None and phase.words == words else _Phase(words, now)

    def _end_answer(self, message: AssistantMessage) -> None:
        self._settle_answer()
        self._call = None
        if message.error_message and message.stop_reason == "error":
            self.note(f"✗ {excerpt(message.error_message, 500)}", "red")
        elif message.stop_reason == "length":
            self.note("… cut off: the longest answer that the model may give", "yellow")

    def _settle_answer(self) -> None:
        self._settle_thinking()
        self._settle_text()

    def _settle_text(self) -> None:
        if text := self._text.finished().strip("\n"):
            self._above.append(("answer", markdown(text)))

    def _settle_thinking(self) -> None:
        if text := shown(self._thinking).strip():
            self._above.append(("thinking", Text(text, "dim italic")))
        self._thinking = ""

    def _take_tool(self, event: ToolExecutionStart | ToolExecutionUpdate | ToolExecutionEnd, now: float) -> None:
        self._phase = self._since("running tools", now)
        match event:
            case ToolExecutionStart(call=call):
                self._running[call.id] = _Running(call, now)
            case ToolExecutionUpdate(tool_call_id=id, partial=partial):
                if id in self._running:
                    self._running[id].latest = shown(joined_text(partial))
            case _:
                result = event.result
                running = self._running.pop(result.tool_call_id, None)
                words = call_words(running.call) if running is not None else ""
                self.add("tool", tool_block(result, words, now - running.since if running is not None else None))

    def _take_pause(self, event: RetryStart | RetryEnd | CompactionStart | CompactionEnd, now: float) -> None:
        match event:
            case RetryStart(error=error):
                self.note(f"… {error.kind}: {excerpt(error.message, 300)}", "yellow")
                words = f"retrying (attempt {event.attempt + 1} of {event.max_attempts})"
                self._phase = _Phase(words, now, now + event.delay)
            case CompactionStart():
                size = "" if event.tokens is None else f" of {event.tokens:,} tokens"
                self._phase = _Phase(f"compacting the conversation{size}", now)
            case CompactionEnd(outcome=outcome):
                size = "" if event.tokens is None else f"; now {event.tokens:,} tokens"
                why = "" if event.error is None else f": {excerpt(event.error, 300)}"
                self.note(f"… compaction: {outcome}{size}{why}", "yellow")
                self._phase = _Phase("waiting for the model", now)
            case _:
                self._phase = _Phase("waiting for the model", now)

    # What is seen

    def above(self, painter: Painter, width: int) -> list[str]:
        """The lines that have come to stay since the last call."""
        if text := self._text.settled().strip("\n"):
            self._above.append(("answer", markdown(text)))
        lines: list[str] = []
        for kind, block in self._above:
            painted = painter.lines(block, width)
            if painted and self._last is not None and not (kind == self._last and kind in ("tool", "note")):
                lines.append("")
            lines += painted
            self._last = kind if painted else self._last
        self._above.clear()
        return lines

    def below(self, painter: Painter, width: int, height: int, now: float) -> list[str]:
        """The lines that still change, at most so many: the newest text, tools, the queue, the phase."""
        status = [line for block in self._status(now) for line in painter.lines(block, width)[:1]][:height]
        answer = self._growing(painter, width)
        tail = answer[-max(1, height - len(status) - 2) :]
        gap = [] if self._last is None and not tail else [""]
        return [*(["", *tail] if tail else []), *gap, *status][-height:]

    def _growing(self, painter: Painter, width: int) -> list[str]:
        if self._thinking.strip():
            return painter.lines(Text(_end_of(shown(self._thinking)), "dim italic"), width)
        text = shown(self._text.rest)
        if text.count("\n") > _TALL or len(text) > 100 * _TALL:
            return painter.lines(Text(_end_of(text)), width)
        return painter.lines(markdown(text), width) if text.strip() else []

    def _status(self, now: float) -> list[Text]:
        spinner = _SPINNER[int(now * 10) % len(_SPINNER)]
        lines: list[Text] = []
        if self._call is not None:
            name, size = self._call
            lines.append(Text(f"… {shown(name)}" + (f" ({size:,} characters)" if size > 80 else ""), "cyan"))
        for one in self._running.values():
            lines.append(_cropped(f"{spinner} {one.call.name} {excerpt(call_words(one.call), 200)}", "cyan"))
            latest = [line for line in one.latest.split("\n") if line.strip()]
            lines += [_cropped(f"  {line}", "dim") for line in latest[-_UPDATE_LINES:]]
        if self._phase is not None:
            phase = self._phase
            passed = f"in {max(0, round(phase.until - now))} s" if phase.until else seconds(now - phase.since)
            lines.append(_cropped(f"{spinner} {phase.words} {passed}", "yellow"))
        lines += [_cropped(f"↳ {kind}: {excerpt(text, 200)}", "magenta") for kind, text in self.queue]
        return lines


def _cropped(text: str, style: str) -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _end_of(text: str) -> str:
    return "\n".join(text[-100 * _TALL :].split("\n")[-_TALL:])
