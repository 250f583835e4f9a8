"""From the records of a session to a history that can be sent. Pure: no files, no Trio.

Here lives what each record changes, in step with the kernel's own state, and the repair of what is missing. The
same records always give the same messages, so that a repair need not be written down.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from .. import (
    AgentEnd,
    AgentStart,
    AssistantMessage,
    CompactionEnd,
    CompactionStart,
    Message,
    MessageEnd,
    RetryStart,
    ToolCall,
    ToolExecutionEnd,
    ToolResultMessage,
    TurnStart,
)
from ._records import Record

# What a model reads where a process ended in the middle of a call. It must not take the work for undone, nor for done.
PROCESS_ENDED: Final = "no result: the process ended while this call was pending; it may have partly run"

_CUT: Final = ("error", "aborted", None)


@attrs.frozen
class Problem:
    """Something in a session file that could not be used as it stands. `line` counts from 1."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


@attrs.frozen
class Session:
    """What a session file came to.

    `messages` can be given to `Agent(messages=...)`: each call has its result, also those that were pending when
    the process ended; `interrupted` has the ids of these. `unfinished`: the last run has no end. `problems`
    says what was passed over; it is still in the file.
    """

    path: Path
    messages: tuple[Message, ...] = attrs.field(repr=lambda messages: f"<{len(messages)} messages>")
    problems: tuple[Problem, ...] = ()
    interrupted: tuple[str, ...] = ()
    unfinished: bool = False


class Rebuild:
    """Takes the records one by one; `finish` gives what they came to."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.problems: list[Problem] = []
        self.unfinished = False
        self._interrupted: list[str] = []
        self._open: Sequence[ToolCall] = ()  # calls of the last message that wait for results
        self._results: dict[str, ToolResultMessage] = {}  # theirs, as far as they came
        self._attempt = False  # the last message is an answer that a retry would take back
        self._lost = 0  # lines since the last compaction that may have been messages

    def report(self, line: int, text: str) -> None:
        """A line that could not be used."""
        self.note(line, text)
        self._lost += 1

    def note(self, line: int, text: str) -> None:
        """Something that is wrong with a line, and costs no message."""
        self.problems.append(Problem(line, text))

    def add(self, line: int, record: Record) -> None:
        """The next record. Those that change no history are passed over."""
        if isinstance(record, MessageEnd):
            self._add_message(line, record.message)
        elif isinstance(record, ToolExecutionEnd):
            self._add_result(line, record.result)
        elif isinstance(record, AgentStart | TurnStart):
            self._close()
            self._attempt = False
            self.unfinished = True
        elif isinstance(record, AgentEnd):
            self._close()
            self.unfinished = False
        elif isinstance(record, RetryStart | CompactionStart):
            self._retract()
        elif isinstance(record, CompactionEnd):
            self._compact(record)
        elif hasattr(record, "role"):  # a message alone, as others may write them
            self._add_message(line, record)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    def finish(self, path: Path) -> Session:
        """The session. Calls that are still open get their stand-ins."""
        self._close()
        return Session(path, tuple(self.messages), tuple(self.problems), tuple(self._interrupted), self.unfinished)

    def _add_message(self, line: int, message: Message) -> None:
        if isinstance(message, ToolResultMessage):
            self._add_result(line, message)
            return
        self._close()
        self.messages.append(message)
        self._attempt = isinstance(message, AssistantMessage) and message.stop_reason in _CUT
        if isinstance(message, AssistantMessage) and not self._attempt:
            self._open = message.tool_calls

    def _add_result(self, line: int, result: ToolResultMessage) -> None:
        """Keep a result for its call. It is told twice: when the call ends, and when history takes it."""
        if any(call.id == result.tool_call_id for call in self._open):
            self._results[result.tool_call_id] = result
        else:
            self.note(line, f"the result of the call {result.tool_call_id!r}, which is not there")

    def _close(self) -> None:
        """Put the results of the open calls behind their message, in call order; make up what is missing."""
        for call in self._open:
            result = self._results.get(call.id)
            if result is None:
                self._interrupted.append(call.id)
                result = ToolResultMessage(call.id, call.name, PROCESS_ENDED, is_error=True)
            self.messages.append(result)
        self._open = ()
        self._results = {}

    def _retract(self) -> None:
        self._close()
        if self._attempt:
            self.messages.pop()
            self._attempt = False

    def _compact(self, end: CompactionEnd) -> None:
        self._close()
        if end.outcome != "compacted" or end.summary is None or end.first_kept is None:
            return
        # Where lines were lost, the index points too far: keep rather more, and never a result without its call.
        first = min(max(0, end.first_kept - self._lost), len(self.messages))
        while 0 < first < len(self.messages) and isinstance(self.messages[first], ToolResultMessage):
            first -= 1
        self.messages = [end.summary, *self.messages[first:]]
        self._attempt = False
        self._lost = 0
