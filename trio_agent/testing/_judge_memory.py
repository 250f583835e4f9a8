"""What the judge remembers of a trace: the run, the turn, the message and the calls that are open.

Here lives the one thing that changes while a trace is read, and how each event changes it. Nothing in here judges: the
order is in `_judge_order.py`, the clauses are filed by `_judge_register.py`. What is closed is forgotten, but for ids.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import attrs

from .._events import (
    CompactionEnd,
    CompactionStart,
    Event,
    MessageEnd,
    MessageStart,
    RetryStart,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
)
from .._messages import AssistantMessage, Message, ToolCall, ToolResultMessage
from ._judge_stream import Said

FAILURES: Final = ("error", "aborted")


@attrs.define
class Used:
    """Where in history a call and its result stand. Indexes mean nothing where the length of history is unknown."""

    run: int
    at: int
    answered_at: int | None = None


@attrs.frozen
class Doubt:
    """A finding that holds only if the run turns out neither to have failed nor to have been aborted."""

    rule: str
    index: int
    came: str
    about: str | None
    text: str


@attrs.frozen
class Delivery:
    """A message that was put in, and what had come before it."""

    message: Message
    index: int
    first_turn: bool
    behind_calls: bool


@attrs.define
class Memory:
    """The state of the judge, constant in size for each open item.

    `length` is that of history, None where nobody told what lay before the trace. `used` holds the ids of the calls in
    history: an id stays an open item until it leaves history.
    """

    length: int | None = None
    one_history: bool = True
    serial: Collection[str] = ()
    keeps_deliveries: bool = False
    used: dict[str, Used] = attrs.Factory(dict[str, Used])
    deliveries: list[Delivery] = attrs.Factory(list[Delivery])
    index: int = 0
    # the run
    run: int = 0
    turns: int = 0
    last: AssistantMessage | None = None
    closings: int = 0
    barren: bool = False  # a compaction at the threshold failed, and no turn has succeeded since
    doubts: list[Doubt] = attrs.Factory(list[Doubt])
    # the turn
    turn: int = 0
    standing: AssistantMessage | None = None
    retries: int = 0
    waiting: int = 0
    thresholds: int = 0
    overflows: int = 0
    shortening: str = ""
    must_close: str | None = None  # the rule that asks for a closing message
    # the message
    open: Message | None = None
    said: Said = attrs.Factory(Said)
    # the calls
    calls: tuple[ToolCall, ...] = ()
    position: dict[str, int] = attrs.Factory(dict[str, int])
    started: int = 0
    running: set[str] = attrs.Factory(set[str])
    ended: dict[str, ToolResultMessage] = attrs.Factory(dict[str, ToolResultMessage])
    answers: list[ToolResultMessage] = attrs.Factory(list[ToolResultMessage])
    answered: set[str] = attrs.Factory(set[str])

    def take_history(self, messages: Iterable[Message]) -> None:
        """Begin with a history that is known, so that its length and its calls are."""
        self.length = 0
        for message in messages:
            self._hold(message)
        self.standing = None
        self._take_calls(())

    # -- what the tables and clauses ask

    def can_tell_calls_apart(self) -> bool:
        return len(self.position) == len(self.calls)

    def ends_last(self, call_id: str) -> bool:
        """Whether the end of this call leaves no call of the message to end."""
        return call_id in self.position and call_id not in self.ended and len(self.ended) + 1 == len(self.calls)

    def answers_last(self) -> bool:
        """Whether every call is answered once the open tool result has ended."""
        return len(self.answered) + 1 >= len(self.calls)

    def next_to_answer(self) -> str | None:
        return next((call.id for call in self.calls if call.id not in self.answered), None)

    def is_from_an_earlier_run(self, call_id: str) -> bool:
        used = self.used.get(call_id)
        return call_id not in self.position and used is not None and used.run < self.run

    # -- what events change

    def apply(self, event: Event) -> None:
        """Take an event in, lawful or not; of an unlawful one whatever makes sense."""
        change = getattr(self, f"_{event.type}", None)
        if change is not None:
            change(event)

    def _agent_start(self, _event: Event) -> None:
        self.run += 1
        self.turns = self.closings = 0
        self.last = None
        self.doubts = []
        self._begin_turn(0)
        if not self.one_history:
            self.barren = False

    def _turn_start(self, event: TurnStart) -> None:
        if self.standing is not None:
            self._end_turn(self.standing)
        self.turns += 1
        behind = self.last
        self._begin_turn(event.turn)
        if behind is not None and behind.stop_reason == "error":
            self.closings += 1
            self.must_close = "F1"

    def _begin_turn(self, turn: int) -> None:
        self.turn = turn
        self.standing = self.open = self.must_close = None
        self.retries = self.thresholds = self.overflows = 0
        self._take_calls(())

    def _take_calls(self, calls: tuple[ToolCall, ...]) -> None:
        self.calls = calls
        self.position = {call.id: at for at, call in enumerate(calls)}
        self.started = 0
        self.running = set()
        self.ended = {}
        self.answers = []
        self.answered = set()

    def _message_start(self, event: MessageStart) -> None:
        if self.open is not None and not isinstance(self.open, AssistantMessage):
            self._hold(self.open)  # its end is missing; it is whole all the same
        self.open = event.message
        if isinstance(event.message, AssistantMessage):
            self.said = Said()
        elif self.keeps_deliveries and not isinstance(event.message, ToolResultMessage):
            behind_calls = self.last is not None and bool(self.last.tool_calls)
            self.deliveries.append(Delivery(event.message, self.index, self.turns <= 1, behind_calls))

    def _message_end(self, event: MessageEnd) -> None:
        self.open = None
        self._hold(event.message)

    def _hold(self, message: Message) -> None:
        at = -1 if self.length is None else self.length
        if self.length is not None:
            self.length += 1
        if isinstance(message, AssistantMessage):
            self._hold_answer(message, at)
        elif isinstance(message, ToolResultMessage):
            self.answers.append(message)
            if message.tool_call_id in self.position:
                self.answered.add(message.tool_call_id)
                used = self.used.get(message.tool_call_id)
                if used is not None:
                    used.answered_at = at

    def _hold_answer(self, message: AssistantMessage, at: int) -> None:
        self.standing = message
        self.must_close = None
        calls = message.tool_calls
        for call in calls:
            self.used[call.id] = Used(self.run, at)
        self._take_calls(() if message.stop_reason in FAILURES else calls)

    def _tool_execution_start(self, event: ToolExecutionStart) -> None:
        at = self.position.get(event.tool_call_id)
        if at is not None and event.tool_call_id not in self.ended:
            self.running.add(event.tool_call_id)
            self.started = max(self.started, at + 1)

    def _tool_execution_end(self, event: ToolExecutionEnd) -> None:
        at = self.position.get(event.tool_call_id)
        if at is not None:
            self.running.discard(event.tool_call_id)
            self.started = max(self.started, at + 1)
            self.ended.setdefault(event.tool_call_id, event.result)

    def _turn_end(self, event: TurnEnd) -> None:
        self._end_turn(event.message)

    def _end_turn(self, message: AssistantMessage) -> None:
        self.last = message
        self.standing = self.open = None
        self.barren = self.barren and message.stop_reason in FAILURES
        self._take_calls(())

    def _retry_start(self, event: RetryStart) -> None:
        self._retract()
        self.retries += 1
        self.waiting = event.attempt

    def _retry_end(self, event: Event) -> None:
        outcome = getattr(event, "outcome", None)
        self.must_close = {"aborted": "A2", "failed": "F1"}.get(str(outcome))

    def _compaction_start(self, event: CompactionStart) -> None:
        self._retract()
        self.shortening = event.reason
        if event.reason == "overflow":
            self.overflows += 1
        else:
            self.thresholds += 1

    def _compaction_end(self, event: CompactionEnd) -> None:
        if event.outcome == "compacted":
            self._shorten(event.first_kept or 0)
        elif event.outcome == "aborted":
            self.must_close = "A2"
        elif self.shortening == "overflow":
            self.must_close = "F9"
        else:
            self.barren = True

    def _retract(self) -> None:
        """A failed attempt leaves history, and its calls with it."""
        if self.standing is None:
            return
        for call in self.standing.tool_calls:
            self.used.pop(call.id, None)
        if self.length is not None:
            self.length -= 1
        self.standing = None
        self._take_calls(())

    def _shorten(self, first_kept: int) -> None:
        """History is now the summary and what came from `first_kept` on."""
        if self.length is None:
            self.used.clear()  # nobody knows which calls are left
            return
        self.length = 1 + max(0, self.length - first_kept)
        kept = {call_id: used for call_id, used in self.used.items() if used.at >= first_kept}
        for used in kept.values():
            used.at += 1 - first_kept
            if used.answered_at is not None:
                used.answered_at += 1 - first_kept
        self.used = kept
