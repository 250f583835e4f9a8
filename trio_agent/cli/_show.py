"""`trio-agent show LOG`: a session or a trace, as people read it.

Here lives the command and the order of what is shown. The words are in `_show_words.py`, the reading in `_log.py`.
A log is shown as it is read, in memory for one turn of it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from .._chunks import TextDelta
from .._events import (
    AgentEnd,
    AgentStart,
    CompactionEnd,
    CompactionStart,
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
from .._messages import AssistantMessage, CustomMessage, Message, Text, Thinking, ToolCall, ToolResultMessage
from ..session._records import Header
from ._log import BadLine, Entry, LogParser, opened, read_log, write_stdout
from ._show_words import Piece, Words


def show(argv: Sequence[str]) -> int:
    """Print a log. Bad lines are shown where they are, and counted at the end."""
    parser = LogParser("show", "Show what is in a session file or a trace.")
    parser.add_argument("--full", action="store_true", help="long texts whole, and what tools reported underway")
    options = parser.parse_args(argv)
    with opened(options.log) as file:
        pieces = Reader(Words(full=options.full)).read(read_log(file, options.log))
        _print(pieces)
    return 0


def _print(pieces: Iterable[Piece]) -> None:
    """In colours where a person looks on and rich is there; else plain."""
    if sys.stdout.isatty():
        with suppress(ModuleNotFoundError):
            from rich.console import Console
            from rich.text import Text as Styled

            console = Console(highlight=False)
            for text, style in pieces:
                console.print(Styled(text, style))
            return
    write_stdout(f"{text}\n" for text, _ in pieces)


class Reader:
    """Goes through the entries of a log and says of each what there is to show."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._counts: Counter[str] = Counter()
        self._problems = 0
        self._first_problem = 0
        self._run_open = False
        self._streamed: list[str] | None = None  # what arrived of the message that is open
        self._calls: dict[str, tuple[ToolCall, float | None]] = {}  # that wait for results, and when they started
        self._answered: set[str] = set()  # results that were shown, and come again as messages

    def read(self, entries: Iterable[Entry]) -> Iterator[Piece]:
        for entry in entries:
            value = entry.value
            if isinstance(value, BadLine):
                self._problems += 1
                self._first_problem = self._first_problem or entry.line
                yield self._words.problem(entry.line, value.text)
            elif isinstance(value, Header):
                yield self._words.header(value.version)
            elif (step := _STEPS.get(type(value))) is not None:
                yield from step(self, value)
            elif not hasattr(value, "type"):  # a message alone, as others write them
                yield from self._message(value, None)  # pyright: ignore[reportArgumentType]
        yield from self._cut()
        yield self._words.totals(self._counts, self._problems, self._first_problem)

    def agent_start(self, _event: AgentStart) -> Iterator[Piece]:
        yield from self._cut()
        self._run_open = True
        self._counts["run"] += 1
        yield self._words.run(self._counts["run"])

    def turn_start(self, event: TurnStart) -> Iterator[Piece]:
        yield from self._unanswered()
        self._counts["turn"] += 1
        yield self._words.turn(event.turn, event.time)

    def message_start(self, event: MessageStart) -> Iterator[Piece]:
        self._streamed = [] if isinstance(event.message, AssistantMessage) else None
        return iter(())

    def message_update(self, event: MessageUpdate) -> Iterator[Piece]:
        if self._streamed is None:
            self._streamed = []
        if isinstance(event.delta, TextDelta):
            self._streamed.append(event.delta.text)
        return iter(())

    def message_end(self, event: MessageEnd) -> Iterator[Piece]:
        self._streamed = None
        return self._message(event.message, event.time)

    def tool_start(self, event: ToolExecutionStart) -> Iterator[Piece]:
        if event.tool_call_id not in self._calls:
            self._counts["tool call"] += 1
            yield self._words.call(event.call, event.time)
        self._calls[event.tool_call_id] = (event.call, event.time)

    def tool_update(self, event: ToolExecutionUpdate) -> Iterator[Piece]:
        yield from self._words.update(event)

    def tool_end(self, event: ToolExecutionEnd) -> Iterator[Piece]:
        self._answered.add(event.tool_call_id)
        yield from self._result(event.result, event.time)

    def retry_start(self, event: RetryStart) -> Iterator[Piece]:
        yield from self._left_open()
        self._counts["retry"] += 1
        self._calls.clear()  # those of an attempt that failed never run
        yield self._words.retry(event)

    def retry_end(self, event: RetryEnd) -> Iterator[Piece]:
        if event.outcome != "resumed":
            yield self._words.note(f"the wait was {event.outcome}", event.time)

    def compaction_start(self, event: CompactionStart) -> Iterator[Piece]:
        self._counts["compaction"] += 1
        yield self._words.compaction(event)

    def compaction_end(self, event: CompactionEnd) -> Iterator[Piece]:
        yield from self._words.compacted(event)

    def agent_end(self, event: AgentEnd) -> Iterator[Piece]:
        yield from self._unanswered()
        self._run_open = False
        self._answered.clear()
        yield self._words.end(event)

    def _message(self, message: Message, time: float | None) -> Iterator[Piece]:
        if isinstance(message, ToolResultMessage):
            if message.tool_call_id in self._answered:
                self._answered.discard(message.tool_call_id)
            else:
                yield from self._result(message, time)
            return
        self._counts["message"] += 1
        if not isinstance(message, AssistantMessage):
            yield from self._unanswered()
            custom = isinstance(message, CustomMessage)
            yield self._words.custom(message, time) if custom else self._words.user(message, time)
            return
        for block in message.content:
            if isinstance(block, Text):
                yield self._words.answer(block, time)
            elif isinstance(block, Thinking):
                yield self._words.thinking(block, time)
            else:
                yield self._words.call(block, time)
        yield from self._words.answered(message, time)
        self._counts["tool call"] += len(message.tool_calls)
        if message.stop_reason not in _FAILED:
            self._calls.update({call.id: (call, None) for call in message.tool_calls})

    def _result(self, result: ToolResultMessage, time: float | None) -> Iterator[Piece]:
        _, start = self._calls.pop(result.tool_call_id, (None, None))
        self._counts["failed call"] += result.is_error
        took = None if start is None or time is None else time - start
        yield self._words.result(result, time, took, alone=not self._calls)

    def _left_open(self) -> Iterator[Piece]:
        if self._streamed is not None:
            yield self._words.torn("".join(self._streamed))
        self._streamed = None

    def _unanswered(self) -> Iterator[Piece]:
        for call, _ in self._calls.values():
            yield self._words.unanswered(call)
        self._calls.clear()

    def _cut(self) -> Iterator[Piece]:
        """The log ends, or another run begins: what is open was cut off."""
        yield from self._left_open()
        yield from self._unanswered()
        if self._run_open:
            yield self._words.unfinished()
        self._run_open = False
        self._answered.clear()


_FAILED: Final = ("error", "aborted", None)
_STEPS: Final[dict[type, Callable[[Reader, Any], Iterator[Piece]]]] = {
    AgentStart: Reader.agent_start,
    TurnStart: Reader.turn_start,
    MessageStart: Reader.message_start,
    MessageUpdate: Reader.message_update,
    MessageEnd: Reader.message_end,
    ToolExecutionStart: Reader.tool_start,
    ToolExecutionUpdate: Reader.tool_update,
    ToolExecutionEnd: Reader.tool_end,
    RetryStart: Reader.retry_start,
    RetryEnd: Reader.retry_end,
    CompactionStart: Reader.compaction_start,
    CompactionEnd: Reader.compaction_end,
    AgentEnd: Reader.agent_end,
}
