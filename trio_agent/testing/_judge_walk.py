"""The judge's walk over a trace: name the event, ask the tables, ask the clauses, remember.

Here lives the one loop that puts the judge's data to work. Order is in `_judge_order.py`, content in the clauses that
`_judge_register.py` files, queues and phases in `_judge_outside.py`; the public face is `_judge.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from .._codec import decode, decode_line
from .._events import (
    AgentEnd,
    AgentStart,
    Event,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnStart,
)
from .._messages import AssistantMessage, Message, ToolResultMessage
from ._judge_attempts import REGISTER as ATTEMPTS
from ._judge_calls import REGISTER as CALLS
from ._judge_memory import FAILURES, Doubt, Memory
from ._judge_messages import REGISTER as MESSAGES
from ._judge_order import (
    ADRIFT,
    ANSWERING,
    BETWEEN,
    CALLED,
    CLOSED,
    DONE,
    ENDED,
    IDLE,
    INJECTING,
    ORDER,
    RECOVERY,
    RESULTING,
    RUN,
    TOOLS,
    TURN,
    Place,
    broken_rule,
    kind_of,
    may_come,
)
from ._judge_outside import PhaseWord, judge_phase, judge_queues
from ._judge_register import Clause, OnlyIfAborted, Register
from ._render import render_event, render_message

# An event, its JSON object, or its JSON line.
Told: TypeAlias = Event | Mapping[str, Any] | str | bytes

CLAUSES: Final = Register(MESSAGES, CALLS, ATTEMPTS)


@attrs.frozen
class Violation:
    """A broken rule.

    `rule` names it as the specification does; `index` counts the events of the trace from 0, and is the length of the
    trace where its end came too early. `came` is the event as `render` shows it, `expected` what could have come there,
    as far as the order is concerned. `about` is the call, the message or the turn in question. `text` says it all.
    """

    rule: str
    index: int
    came: str
    expected: tuple[str, ...]
    about: str | None
    text: str

    def __str__(self) -> str:
        return f"{self.rule} at event {self.index}: {self.text}"


@attrs.define
class Judge:
    """The walk. `feed` gives what is wrong with an event; behind an unlawful one it goes on as well as it can."""

    memory: Memory
    phase: Callable[[], PhaseWord] | None = None
    steered: Sequence[Message] | None = None
    followed_up: Sequence[Message] | None = None
    place: Place = IDLE
    back: Place = TURN  # where to go on behind a user or tool-result message

    def feed(self, told: Told) -> list[Violation]:
        """Judge one event. Raises `ValueError` or `TypeError` for what is none."""
        memory = self.memory
        if type(told) is MessageUpdate and self.place is ANSWERING and self.phase is None:
            memory.index += 1  # most of a trace goes this way: test_the_judge_is_fast
            said = memory.said
            if said.first is None:
                said.first = told
            said.add(told.delta)
            return []
        return self._feed(event_of(told))

    def finish(self, waiting: Sequence[Message], *, complete: bool) -> list[Violation]:
        """What is wrong with the end of the trace, and with the queues if their log was given."""
        found: list[Violation] = []
        if complete and self.place != IDLE:
            rule = "L1" if "agent_end" in ORDER[self.place] else broken_rule(self.place, "agent_end")
            expected = may_come(self.place)
            text = f"the trace ended {self.place}; could have come: {', '.join(expected)}"
            found.append(Violation(rule, self.memory.index, "the end", expected, f"run {self.memory.run}", text))
        if self.steered is not None or self.followed_up is not None:
            settled = complete or self.place == IDLE
            findings = judge_queues(self.memory.deliveries, self.steered or (), self.followed_up or (), waiting)
            for rule, message, index, text in findings:
                if index is not None or settled:
                    at = self.memory.index if index is None else index
                    came = "the end" if index is None else f"message_start {message.role}"
                    shown = render_message(message)
                    found.append(Violation(rule, at, came, (), shown, f"{shown} {text}"))
        return found

    def _feed(self, event: Event) -> list[Violation]:
        kind = kind_of(event, self.memory)
        found = self._ask(event, kind)
        target = ORDER[self.place].get(kind)
        if target is None:
            target = self._after_a_breach(event, kind)
        if isinstance(event, MessageUpdate):
            self.memory.said.first = self.memory.said.first or event
            self.memory.said.add(event.delta)
        self.memory.apply(event)
        self._move(kind, target)
        self.memory.index += 1
        return found

    def _ask(self, event: Event, kind: str) -> list[Violation]:
        """What is wrong with an event, before anything has taken it in."""
        wrong: list[tuple[str, str]] = []
        clauses: Iterable[tuple[str, Clause]] = ()
        if self.phase is not None:
            wrong += judge_phase(event, self.phase())
        if kind not in ORDER[self.place]:
            wrong.append(self._breach(event, kind))
        elif self.place != ADRIFT or kind == "turn_end":
            clauses = CLAUSES.about(type(event))
        for rule, clause in clauses:
            answer = clause(self.memory, event)
            if isinstance(answer, OnlyIfAborted):
                doubt = Doubt(rule, self.memory.index, render_event(event), about(event, self.memory), answer.text)
                self.memory.doubts.append(doubt)
            elif answer is not None:
                wrong.append((rule, answer))
        found = self._held_doubts(event)
        if wrong:
            came, expected, of = render_event(event), may_come(self.place), about(event, self.memory)
            if wrong[-1][0] in ("F2", "T3", "T4"):
                of = self.memory.next_to_answer() or of
            found += [Violation(rule, self.memory.index, came, expected, of, f"{came}: {text}") for rule, text in wrong]
        return found

    def _breach(self, event: Event, kind: str) -> tuple[str, str]:
        """Which rule an event breaks that may not come here, and how."""
        call_id = getattr(event, "tool_call_id", None)
        if call_id is not None and self.memory.is_from_an_earlier_run(call_id):
            return "L1", f"call {call_id} is one of an earlier run, which has ended"
        return broken_rule(
            self.place, kind
        ), f"it came {self.place}; could have come: {', '.join(may_come(self.place))}"

    def _held_doubts(self, event: Event) -> list[Violation]:
        """The findings that waited for the end of the run, if it was neither aborted nor failed."""
        if not isinstance(event, AgentEnd):
            return []
        doubts = () if event.outcome in FAILURES else self.memory.doubts
        return [
            Violation(
                held.rule,
                held.index,
                held.came,
                (),
                held.about,
                f"{held.came}: {held.text}, and the run was not aborted",
            )
            for held in doubts
        ]

    def _after_a_breach(self, event: Event, kind: str) -> Place:
        """Where to go on behind an event that may not come here. What is missing before it is taken for granted."""
        if self.place == IDLE and kind == "turn_start":
            self.memory.apply(AgentStart())
        if self.place in _BEFORE_A_TURN and kind in ORDER[TURN]:
            self.memory.apply(TurnStart(self.memory.turns + 1))
            return ORDER[TURN][kind]
        if self.place == IDLE and kind not in ("agent_start", "turn_start"):
            return IDLE
        if kind == "message_update" and _ANSWER_STARTS in ORDER[self.place]:
            self.memory.apply(MessageStart(AssistantMessage((), None)))
            return ANSWERING
        if self.place == ANSWERING and isinstance(event, ToolExecutionStart):
            known = event.tool_call_id in self.memory.used
            return ANSWERING if known else ADRIFT  # the message's end is missing, and its calls with it
        if self.place == CALLED and isinstance(event, ToolExecutionEnd) and event.tool_call_id in self.memory.position:
            return ORDER[TOOLS][kind]
        if self.place == ENDED and kind in ORDER[RESULTING]:
            return ORDER[RESULTING][kind]
        return RECOVERY.get(kind, self.place)

    def _move(self, kind: str, target: Place) -> None:
        """Go on at a place; behind a whole message that should not have come, where it came."""
        if target in _WHOLE:
            if self.place == ANSWERING:
                self.back = ADRIFT
            elif self.place not in _WHOLE:
                self.back = TURN if self.place in _BEFORE_A_TURN else self.place
        elif self.place in _WHOLE and kind in _ENDS_A_WHOLE_MESSAGE and (target == TURN or self.back != ENDED):
            target = self.back
        elif target == CALLED and not self.memory.can_tell_calls_apart():
            target = ADRIFT
        self.place = target


_ANSWER_STARTS: Final = "message_start assistant"
_WHOLE: Final = (INJECTING, RESULTING)
_BEFORE_A_TURN: Final = (RUN, BETWEEN, CLOSED, DONE)
_ENDS_A_WHOLE_MESSAGE: Final = (*ORDER[INJECTING], *ORDER[RESULTING])


def event_of(told: Told) -> Event:
    """The event that somebody told: as it is, or as JSON."""
    if isinstance(told, str | bytes):
        value: object = decode_line(told)
    elif isinstance(told, Mapping):
        value = decode(told)
    else:
        value = told
    if not isinstance(value, Event):
        raise TypeError(
            f"{type(value).__name__} is no event; the judge takes an event, its JSON object or its JSON line"
        )
    return value


def about(event: Event, memory: Memory) -> str:
    """The call, the message or the turn that an event is about."""
    if isinstance(event, MessageStart | MessageEnd):
        message = event.message
        return message.tool_call_id if isinstance(message, ToolResultMessage) else f"{message.role} message"
    if isinstance(event, MessageUpdate):
        return "assistant message"
    if isinstance(event, ToolExecutionStart | ToolExecutionUpdate | ToolExecutionEnd):
        return event.tool_call_id
    return f"run {memory.run}" if isinstance(event, AgentStart | AgentEnd) else f"turn {memory.turn}"
