"""A run as people read it: the answer on stdout while it streams, and the story of the run on stderr.

Here lives one subscriber and its wording. Control characters of a model or a tool never reach the terminal.
"""

from __future__ import annotations

import sys
from typing import Final

from .._chunks import TextDelta, ThinkingDelta
from .._events import (
    AgentEnd,
    CompactionEnd,
    CompactionStart,
    Event,
    MessageEnd,
    MessageUpdate,
    RetryStart,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
)
from .._messages import AssistantMessage, Usage, joined_text
from .._result import RunResult
from ._output import Output
from ._pen import Pen
from ._usage import one_line

_SHOWN: Final = 100  # characters of a result
_KEPT: Final = "\n\t"


class Story:
    """Tells a run. `end` tells how it ended; call it with the result."""

    def __init__(self, output: Output, pen: Pen) -> None:
        self._output = output
        self._pen = pen
        self._started: dict[str, float] = {}
        self._thinking = False
        self._line_open = False
        self._last: AgentEnd | None = None

    async def __call__(self, event: Event) -> None:
        match event:
            case MessageUpdate(delta=TextDelta(text=text)):
                await self._answer(text)
            case MessageUpdate(delta=ThinkingDelta(text=text)):
                self._thinking = True
                self._pen.write(_printable(text), "dim")
            case MessageEnd(message=AssistantMessage()):
                await self._end_lines()
            case AgentEnd():
                self._last = event
            case _:
                self._note(event)

    def _note(self, event: Event) -> None:
        match event:
            case ToolExecutionStart():
                self._started[event.tool_call_id] = event.time
                self._pen.line(f"→ {one_line(event.tool_name)} {one_line(event.call.raw)}", "cyan")
            case ToolExecutionUpdate():
                self._pen.line(f"  {one_line(event.tool_name)}: {_excerpt(joined_text(event.partial))}", "dim")
            case ToolExecutionEnd():
                seconds = event.time - self._started.pop(event.tool_call_id, event.time)
                mark, style = ("✗", "red") if event.is_error else ("✓", "green")
                self._pen.line(
                    f"{mark} {one_line(event.tool_name)} {_excerpt(event.result.text)} ({seconds:.1f} s)", style
                )
            case RetryStart():
                self._pen.line(
                    f"… {one_line(event.error.kind)}: {one_line(event.error.message)}; again in {event.delay:.1f} s",
                    "yellow",
                )
            case CompactionStart():
                self._pen.line("… shortening the conversation", "yellow")
            case CompactionEnd(outcome="failed"):
                self._pen.line(f"… that failed: {one_line(event.error or '')}", "yellow")
            case _:
                pass

    def end(self, result: RunResult) -> None:
        """Outcome, turns, tokens, seconds."""
        parts: list[str] = [
            result.outcome if result.reason is None else f"{result.outcome} ({one_line(result.reason)})"
        ]
        assert self._last is not None, "a run with a result has told its end"
        turns = self._last.turns
        parts += [f"{turns} turn{'' if turns == 1 else 's'}", _tokens(result.usage), f"{self._last.time:.1f} s"]
        self._pen.line(
            " · ".join(parts), {"completed": "bold green", "stopped": "bold"}.get(result.outcome, "bold red")
        )

    async def _answer(self, text: str) -> None:
        if self._thinking:
            self._thinking = False
            self._pen.line("")
        if shown := _printable(text):
            self._line_open = not shown.endswith("\n")
            await self._output.write(shown.encode(sys.stdout.encoding, "replace"))

    async def _end_lines(self) -> None:
        if self._thinking:
            self._thinking = False
            self._pen.line("")
        if self._line_open:
            self._line_open = False
            await self._output.write(b"\n")


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join([char for char in text if char.isprintable() or char in _KEPT])


def _excerpt(text: str) -> str:
    lines = text.splitlines()
    line = one_line(text)
    if len(line) <= _SHOWN:
        return line
    return f"{line[: _SHOWN - 1]}… ({len(lines)} line{'' if len(lines) == 1 else 's'})"


def _tokens(usage: Usage) -> str:
    if usage.total is None:
        return "tokens unknown"
    known = [f"{count} {name}" for count, name in ((_sum(usage), "in"), (usage.output, "out")) if count is not None]
    return f"{usage.total} tokens" + (f" ({', '.join(known)})" if known else "")


def _sum(usage: Usage) -> int | None:
    counts = [count for count in (usage.input, usage.cache_read, usage.cache_write) if count is not None]
    return sum(counts) if counts else None
