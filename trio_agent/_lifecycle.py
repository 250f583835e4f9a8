"""When an event is lawful, which phase that is, and how to close a run from anywhere.

Here lives every decision about order, as tables first. Nothing in here waits, delivers or touches
history: `feed` looks at one event and advances, or raises and changes nothing. The README's state
diagram is drawn from `TABLE` and `PHASES`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, TypeAlias

from ._errors import LifecycleError
from ._events import (
    Event,
    MessageEnd,
    MessageStart,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnStart,
)
from ._messages import AssistantMessage, Message, ToolCall, ToolResultMessage


class Phase(Enum):
    """What an agent is doing (P1). RETRY is the wait before a request is sent again, not the sending (P3)."""

    IDLE = "idle"
    TURN = "turn"
    COMPACTION = "compaction"
    RETRY = "retry"


class Position(Enum):
    """Where a run stands between two events."""

    IDLE = "idle"  # no run
    STARTED = "started"  # after agent_start
    OPEN = "open"  # in a turn: messages may be injected, the request may be sent
    INJECTING = "injecting"  # inside an injected message
    ASKING = "asking"  # after a retry or a compaction: only the request may follow
    STREAMING = "streaming"  # inside an assistant message
    FAILED = "failed"  # after an assistant message that ended `error` or `aborted`
    TOOLS = "tools"  # after the standing message: its calls, then their results
    RESULT = "result"  # inside a tool-result message
    TURN_OVER = "turn over"  # after turn_end
    RETRYING = "retrying"
    COMPACTING = "compacting"
    ENDED = "ended"  # after agent_end: nothing may follow (L1)


# The kinds that the tables speak of. A message's kind depends on its role, its end also on its stop reason.
TABLE: Final[dict[Position, dict[str, Position]]] = {
    Position.IDLE: {"agent_start": Position.STARTED},
    Position.STARTED: {"turn_start": Position.OPEN},
    Position.OPEN: {
        "injected_start": Position.INJECTING,
        "answer_start": Position.STREAMING,
        "retry_start": Position.RETRYING,
        "compaction_start": Position.COMPACTING,
    },
    Position.INJECTING: {"injected_end": Position.OPEN},
    Position.ASKING: {
        "answer_start": Position.STREAMING,
        "retry_start": Position.RETRYING,
        "compaction_start": Position.COMPACTING,
    },
    Position.STREAMING: {
        "message_update": Position.STREAMING,
        "answer_end": Position.TOOLS,
        "answer_failed": Position.FAILED,
    },
    Position.FAILED: {
        "retry_start": Position.RETRYING,
        "compaction_start": Position.COMPACTING,
        "turn_end": Position.TURN_OVER,
    },
    Position.RETRYING: {"retry_end": Position.ASKING},
    Position.COMPACTING: {"compaction_end": Position.ASKING},
    Position.TOOLS: {
        "tool_execution_start": Position.TOOLS,
        "tool_execution_update": Position.TOOLS,
        "tool_execution_end": Position.TOOLS,
        "result_start": Position.RESULT,
        "turn_end": Position.TURN_OVER,
    },
    Position.RESULT: {"result_end": Position.TOOLS},
    Position.TURN_OVER: {"turn_start": Position.OPEN, "agent_end": Position.ENDED},
    Position.ENDED: {},
}

# P1: these are all the transitions between phases.
PHASES: Final[frozenset[tuple[Phase, Phase]]] = frozenset(
    {
        (Phase.IDLE, Phase.TURN),
        (Phase.TURN, Phase.IDLE),
        (Phase.TURN, Phase.COMPACTION),
        (Phase.COMPACTION, Phase.TURN),
        (Phase.TURN, Phase.RETRY),
        (Phase.RETRY, Phase.TURN),
    }
)

# P3: the phase while an event of this kind is delivered; any other kind is delivered in TURN.
_PHASE_OF: Final[dict[str, Phase]] = {
    "retry_start": Phase.RETRY,
    "retry_end": Phase.RETRY,
    "compaction_start": Phase.COMPACTION,
    "compaction_end": Phase.COMPACTION,
}

_RULE_OF: Final[dict[str, str]] = {
    "agent_start": "L1",
    "agent_end": "L1",
    "turn_start": "L2",
    "turn_end": "L2",
    "tool_execution_start": "T1",
    "tool_execution_update": "T3",
    "tool_execution_end": "T3",
    "result_start": "T4",
    "result_end": "T4",
    "retry_start": "F8",
    "retry_end": "F8",
    "compaction_start": "F9",
    "compaction_end": "F9",
}

_START_KIND: Final[dict[str, str]] = {
    "user": "injected_start",
    "custom": "injected_start",
    "assistant": "answer_start",
    "tool_result": "result_start",
}
_END_KIND: Final = {"user": "injected_end", "custom": "injected_end", "tool_result": "result_end"}
_UNSENDABLE: Final = ("error", "aborted")


def kind_of(event: Event) -> str:
    """The word of the tables for an event."""
    if event.type == "message_start":
        return _START_KIND[event.message.role]
    return _end_kind(event.message) if event.type == "message_end" else event.type


def _end_kind(message: Message) -> str:
    if message.role == "assistant":
        return "answer_failed" if message.stop_reason in _UNSENDABLE else "answer_end"
    return _END_KIND[message.role]


# Of a turn without calls, which has none to write down: an idle agent needs no dictionaries of its own.
_NO_PLACES: Final[dict[str, int]] = {}
_NONE_ENDED: Final[dict[str, ToolResultMessage]] = {}


class Lifecycle:
    """One agent's place in the tables, and the few facts that the tables cannot hold.

    Between `feed` of `agent_start` and `end` the phase is never IDLE.
    """

    __slots__ = (
        "_places",
        "_ways",
        "calls",
        "ended",
        "open_message",
        "phase",
        "position",
        "results",
        "standing",
        "started",
        "turn",
    )

    def __init__(self) -> None:
        self.phase = Phase.IDLE
        self._clear()

    def _clear(self) -> None:
        self.position = Position.IDLE
        self._ways = _IDLE_STEPS  # of the position; kept, because an Enum is hashed in Python
        self.turn = 0
        self.open_message: Message | None = None
        self.open_turn()

    def open_turn(self) -> None:
        """Forget the turn before."""
        self.standing: AssistantMessage | None = None
        self.calls: tuple[ToolCall, ...] = ()
        self._places = _NO_PLACES
        self.started = 0  # how many of the calls have started, in their order (T1)
        self.ended = _NONE_ENDED
        self.results = 0  # how many result messages are complete, in the order of the calls (T4)

    def feed(self, event: Event) -> None:
        """Advance by one event, or raise `LifecycleError` and change nothing."""
        kind: str = event.type  # and on as in `kind_of`: every event comes by here
        if kind == "message_start":
            kind = _START_KIND[event.message.role]  # type: ignore[union-attr]  # mypy sees no literal in `kind`
        elif kind == "message_end":
            kind = _end_kind(event.message)  # type: ignore[union-attr, arg-type]
        step = self._ways.get(kind)
        if step is None:
            raise self._refusal(kind)
        target, phase, check, ways = step
        if phase is not self.phase:
            self._check_phase(phase)
        if check is not None:
            check(self, event)
        self.position, self.phase, self._ways = target, phase, ways

    def enter_turn(self) -> None:
        """Leave RETRY or COMPACTION, once their end has been delivered (P3)."""
        self._check_phase(Phase.TURN)
        self.phase = Phase.TURN

    def end(self) -> None:
        """Go idle, once the last subscriber of `agent_end` has returned (P2)."""
        if self.position is not Position.ENDED:
            raise self._refusal("idle")
        self.abandon()

    def abandon(self) -> None:
        """Go idle from anywhere: the last resort after a second Ctrl-C (F7, P4)."""
        self.phase = Phase.IDLE
        self._clear()

    def stand(self, message: AssistantMessage) -> None:
        """Take an assistant message as the turn's; its calls are what the tools' events must be about."""
        self.open_message = None
        self.standing = message
        self.calls = () if message.stop_reason in _UNSENDABLE else message.tool_calls
        if self.calls:
            self._places = {call.id: place for place, call in enumerate(self.calls)}
            self.ended = {}

    def is_running(self, call_id: str) -> bool:
        """Whether a call has started and not ended."""
        place = self._places.get(call_id)
        return place is not None and place < self.started and call_id not in self.ended

    def _check_phase(self, phase: Phase) -> None:
        if phase is not self.phase and (self.phase, phase) not in PHASES:
            raise LifecycleError("P1", f"there is no way from phase {self.phase.value} to phase {phase.value}")

    def _refusal(self, kind: str) -> LifecycleError:
        lawful = ", ".join(TABLE[self.position]) or "nothing"
        return LifecycleError(
            _RULE_OF.get(kind, "L3"), f"{kind} cannot come when the run is {self.position.value}; lawful here: {lawful}"
        )


def _check_turn_start(core: Lifecycle, event: TurnStart) -> None:
    turn = event.turn
    if turn != core.turn + 1:
        raise LifecycleError("L2", f"turn {turn} cannot follow turn {core.turn}")
    core.turn = turn
    core.open_turn()


def _check_message_start(core: Lifecycle, event: MessageStart) -> None:
    core.open_message = event.message


def _check_injected_end(core: Lifecycle, event: MessageEnd) -> None:
    if event.message is not core.open_message:
        raise LifecycleError("L3", "this is the end of another message than the one that is open")
    core.open_message = None


def _check_answer_end(core: Lifecycle, event: MessageEnd) -> None:
    message: Any = event.message  # an AssistantMessage, says the kind
    if message.stop_reason is None:
        raise LifecycleError("L3", "an assistant message ends with a stop reason")
    core.stand(message)


def _check_tool_start(core: Lifecycle, event: ToolExecutionStart) -> None:
    call = event.call
    if core.started >= len(core.calls) or core.calls[core.started].id != call.id:
        raise LifecycleError("T1", f"call {call.id!r} is not the next one of its message")
    core.started += 1


def _require_open(core: Lifecycle, call_id: str) -> None:
    if not core.is_running(call_id):
        raise LifecycleError("T3", f"call {call_id!r} is not running")


def _check_tool_update(core: Lifecycle, event: ToolExecutionUpdate) -> None:
    _require_open(core, event.tool_call_id)


def _check_tool_end(core: Lifecycle, event: ToolExecutionEnd) -> None:
    result = event.result
    _require_open(core, result.tool_call_id)
    core.ended[result.tool_call_id] = result


def _check_result_start(core: Lifecycle, event: MessageStart) -> None:
    message = event.message
    if len(core.ended) < len(core.calls):
        raise LifecycleError("T4", "results come after the last end")
    if core.results >= len(core.calls) or core.ended[core.calls[core.results].id] is not message:
        raise LifecycleError("T4", "results come in the order of the calls, each the one that its end carried")
    core.open_message = message


def _check_result_end(core: Lifecycle, event: MessageEnd) -> None:
    _check_injected_end(core, event)
    core.results += 1


def _check_turn_end(core: Lifecycle, end: TurnEnd) -> None:
    if end.turn != core.turn or end.message is not core.standing:
        raise LifecycleError("L2", "this is the end of another turn than the one that is open")
    if core.results < len(core.calls):
        raise LifecycleError("T4", "a turn ends after the results of all its calls")


_Check: TypeAlias = Callable[[Lifecycle, Any], None]  # of an event of its kind
_CHECKS: Final[dict[str, _Check]] = {
    "turn_start": _check_turn_start,
    "injected_start": _check_message_start,
    "injected_end": _check_injected_end,
    "answer_start": _check_message_start,
    "answer_end": _check_answer_end,
    "answer_failed": _check_answer_end,
    "tool_execution_start": _check_tool_start,
    "tool_execution_update": _check_tool_update,
    "tool_execution_end": _check_tool_end,
    "result_start": _check_result_start,
    "result_end": _check_result_end,
    "turn_end": _check_turn_end,
}

# The tables in one look-up: where an event leads, in which phase it is delivered, what is checked about it, and the
# steps from there on.
_Steps: TypeAlias = dict[str, tuple[Position, Phase, _Check | None, "_Steps"]]
_STEPS: Final[dict[Position, _Steps]] = {position: {} for position in TABLE}
for _position, _ways in TABLE.items():
    for _kind, _target in _ways.items():
        _phase = _PHASE_OF.get(_kind, Phase.TURN)
        _STEPS[_position][_kind] = (_target, _phase, _CHECKS.get(_kind), _STEPS[_target])
_IDLE_STEPS: Final = _STEPS[Position.IDLE]
