"""What turns, messages and the end of a run may say.

Here live clauses about content: numbers, texts, stop reasons, outcomes. Calls are in `_judge_calls.py`, retries and
compactions in `_judge_attempts.py`, and the order of events is data in `_judge_order.py`.
"""

from __future__ import annotations

from typing import Final

from .._events import (
    AgentEnd,
    MessageEnd,
    MessageStart,
    TurnEnd,
    TurnStart,
)
from .._messages import AssistantMessage, ToolResultMessage
from ._judge_memory import FAILURES, Memory
from ._judge_register import Register
from ._judge_stream import shows_later

REGISTER: Final = Register()

# -- turns --------------------------------------------------------------------------------------------------------


@REGISTER.on("L2", TurnStart)
def _turns_are_counted(memory: Memory, event: TurnStart) -> str | None:
    wanted = memory.turns + 1
    return None if event.turn == wanted else f"this is turn {wanted} of the run, not {event.turn}"


@REGISTER.on("F1", TurnStart)
def _one_closing_turn(memory: Memory, _event: TurnStart) -> str | None:
    return "the run has had its closing message" if memory.closings else None


@REGISTER.on("L2", TurnEnd)
def _turn_end_names_its_turn(memory: Memory, event: TurnEnd) -> str | None:
    return None if event.turn == memory.turn else f"turn {memory.turn} is open, not turn {event.turn}"


@REGISTER.on("L2", TurnEnd)
def _turn_end_has_the_standing_message(memory: Memory, event: TurnEnd) -> str | None:
    same = memory.standing is None or event.message == memory.standing
    return None if same else "it carries another message than the one that stands"


@REGISTER.on("T4", TurnEnd)
def _turn_end_has_the_results(memory: Memory, event: TurnEnd) -> str | None:
    if memory.standing is None or list(event.tool_results) == memory.answers:
        return None
    return "its results are not those whose messages came in this turn"


# -- messages -----------------------------------------------------------------------------------------------------


@REGISTER.on("L4", MessageStart)
def _an_answer_starts_empty(_memory: Memory, event: MessageStart) -> str | None:
    message = event.message
    full = isinstance(message, AssistantMessage) and bool(message.content)
    return "it holds what no update has told yet" if full else None


@REGISTER.on("L3", MessageEnd)
def _a_whole_message_stays(memory: Memory, event: MessageEnd) -> str | None:
    if isinstance(event.message, AssistantMessage | ToolResultMessage) or event.message == memory.open:
        return None
    return "it is not the message that started"


@REGISTER.on("L3", MessageEnd)
def _an_ended_answer_says_why(_memory: Memory, event: MessageEnd) -> str | None:
    message = event.message
    open_end = isinstance(message, AssistantMessage) and message.stop_reason is None
    return "it has no stop reason" if open_end else None


@REGISTER.on("L4", MessageEnd)
def _an_answer_is_what_was_told(memory: Memory, event: MessageEnd) -> str | None:
    message = event.message
    return memory.said.differs_from(message.content) if isinstance(message, AssistantMessage) else None


@REGISTER.on("L4", MessageEnd)
def _an_update_shows_what_was_then(memory: Memory, event: MessageEnd) -> str | None:
    first = memory.said.first
    if not isinstance(event.message, AssistantMessage) or first is None:
        return None
    view = first.message
    changed = view is not None and shows_later(first.delta, view)
    return "its first update, read now, shows what came later" if changed else None


@REGISTER.on("T7", MessageEnd)
def _call_ids_are_unique(memory: Memory, event: MessageEnd) -> str | None:
    if not isinstance(event.message, AssistantMessage):
        return None
    seen: set[str] = set()
    for call in event.message.tool_calls:
        used = memory.used.get(call.id)
        if not call.id:
            return f"a call of {call.name} has no id"
        if call.id in seen or (used is not None and (memory.one_history or used.run == memory.run)):
            return f"the call id {call.id} is in history already"
        seen.add(call.id)
    return None


@REGISTER.on("F1", MessageEnd)
def _a_failure_says_why(_memory: Memory, event: MessageEnd) -> str | None:
    message = event.message
    mute = isinstance(message, AssistantMessage) and message.stop_reason in FAILURES and message.error_message is None
    return "it ended in failure without an error_message" if mute else None


def _is_success(event: MessageEnd) -> bool:
    return isinstance(event.message, AssistantMessage) and event.message.stop_reason not in FAILURES


def _must_close(rule: str, because: str) -> None:
    def clause(memory: Memory, event: MessageEnd) -> str | None:
        return because if memory.must_close == rule and _is_success(event) else None

    REGISTER.on(rule, MessageEnd)(clause)


_must_close("A2", "the run was aborted before, so only a closing message may come")
_must_close("F1", "the run failed before, so only a closing message may come")
_must_close("F9", "the compaction after an overflow failed, so only a closing message may come")

# -- the end of a run ---------------------------------------------------------------------------------------------


@REGISTER.on("F1", AgentEnd)
def _a_failed_run_has_a_closing_message(memory: Memory, event: AgentEnd) -> str | None:
    closed = memory.last is None or memory.last.stop_reason in FAILURES
    return None if closed or event.outcome not in FAILURES else "the run has no closing message"


@REGISTER.on("F10", AgentEnd)
def _the_outcome_is_the_closing_messages(memory: Memory, event: AgentEnd) -> str | None:
    last = memory.last
    if last is None or last.stop_reason not in FAILURES or last.stop_reason == event.outcome:
        return None
    return f"the closing message says {last.stop_reason}"


@REGISTER.on("A8", AgentEnd)
def _a_run_completes_when_the_model_stops(memory: Memory, event: AgentEnd) -> str | None:
    last = memory.last
    if event.outcome != "completed" or last is None or last.stop_reason in FAILURES:
        return None
    if last.tool_calls:
        return "the model asked for tools, so it has not stopped"
    return "the answer was cut, so the reason is length" if last.stop_reason == "length" != event.reason else None


@REGISTER.on("L2", AgentEnd)
def _turns_are_counted_to_the_end(memory: Memory, event: AgentEnd) -> str | None:
    # A closing turn may be left out of the count: the specification leaves it out of the limits' (A8).
    closing = memory.last is not None and memory.last.stop_reason in FAILURES
    wanted = (memory.turns, memory.turns - 1) if closing else (memory.turns,)
    return None if event.turns in wanted else f"the run had {memory.turns} turns, not {event.turns}"
