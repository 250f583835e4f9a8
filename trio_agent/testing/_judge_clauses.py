"""What an event may say at its place: one clause a function, filed under the rule and the event that it is about.

Here live the sentences of the judge about content. A clause looks at an event that came in lawful order, before the memory
takes it in, and gives what is wrong with it, or None. The order itself is data in `_judge_order.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import attrs

from .._events import (
    AgentEnd,
    CompactionEnd,
    CompactionStart,
    MessageEnd,
    MessageStart,
    RetryEnd,
    RetryStart,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnStart,
)
from .._messages import AssistantMessage, ToolResultMessage
from ._judge_memory import FAILURES, Memory
from ._judge_stream import shows_later


@attrs.frozen
class OnlyIfAborted:
    """What is wrong with an event unless the run turns out to have failed or to have been aborted."""

    text: str


Clause: TypeAlias = Callable[[Memory, Any], str | OnlyIfAborted | None]

CLAUSES: Final[dict[type, list[tuple[str, Clause]]]] = {}


def _on(rule: str, *events: type) -> Callable[[Clause], Clause]:
    def file(clause: Clause) -> Clause:
        for event in events:
            CLAUSES.setdefault(event, []).append((rule, clause))
        return clause

    return file


# -- turns --------------------------------------------------------------------------------------------------------


@_on("L2", TurnStart)
def _turns_are_counted(memory: Memory, event: TurnStart) -> str | None:
    wanted = memory.turns + 1
    return None if event.turn == wanted else f"this is turn {wanted} of the run, not {event.turn}"


@_on("F1", TurnStart)
def _one_closing_turn(memory: Memory, _event: TurnStart) -> str | None:
    return "the run has had its closing message" if memory.closings else None


@_on("L2", TurnEnd)
def _turn_end_names_its_turn(memory: Memory, event: TurnEnd) -> str | None:
    return None if event.turn == memory.turn else f"turn {memory.turn} is open, not turn {event.turn}"


@_on("L2", TurnEnd)
def _turn_end_has_the_standing_message(memory: Memory, event: TurnEnd) -> str | None:
    same = memory.standing is None or event.message == memory.standing
    return None if same else "it carries another message than the one that stands"


@_on("T4", TurnEnd)
def _turn_end_has_the_results(memory: Memory, event: TurnEnd) -> str | None:
    if memory.standing is None or list(event.tool_results) == memory.answers:
        return None
    return "its results are not those whose messages came in this turn"


# -- messages -----------------------------------------------------------------------------------------------------


@_on("L4", MessageStart)
def _an_answer_starts_empty(_memory: Memory, event: MessageStart) -> str | None:
    message = event.message
    full = isinstance(message, AssistantMessage) and bool(message.content)
    return "it holds what no update has told yet" if full else None


@_on("L3", MessageEnd)
def _a_whole_message_stays(memory: Memory, event: MessageEnd) -> str | None:
    if isinstance(event.message, AssistantMessage | ToolResultMessage) or event.message == memory.open:
        return None
    return "it is not the message that started"


@_on("L3", MessageEnd)
def _an_ended_answer_says_why(_memory: Memory, event: MessageEnd) -> str | None:
    message = event.message
    open_end = isinstance(message, AssistantMessage) and message.stop_reason is None
    return "it has no stop reason" if open_end else None


@_on("L4", MessageEnd)
def _an_answer_is_what_was_told(memory: Memory, event: MessageEnd) -> str | None:
    message = event.message
    return memory.said.differs_from(message.content) if isinstance(message, AssistantMessage) else None


@_on("L4", MessageEnd)
def _an_update_shows_what_was_then(memory: Memory, event: MessageEnd) -> str | None:
    first = memory.said.first
    if not isinstance(event.message, AssistantMessage) or first is None:
        return None
    view = first.message
    changed = view is not None and shows_later(first.delta, view)
    return "its first update, read now, shows what came later" if changed else None


@_on("T7", MessageEnd)
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


@_on("F1", MessageEnd)
def _a_failure_says_why(_memory: Memory, event: MessageEnd) -> str | None:
    message = event.message
    mute = isinstance(message, AssistantMessage) and message.stop_reason in FAILURES and message.error_message is None
    return "it ended in failure without an error_message" if mute else None


@_on("Q1", MessageEnd)
def _a_request_has_a_reason(memory: Memory, event: MessageEnd) -> str | None:
    return _needs_a_reason(memory) if _is_success(event) else None


@_on("Q1", RetryStart, CompactionStart)
def _an_attempt_has_a_reason(memory: Memory, _event: object) -> str | None:
    return _needs_a_reason(memory)


def _needs_a_reason(memory: Memory) -> str | None:
    if memory.reasoned:
        return None
    return "the model was asked again with no results and no message to answer; the run should have ended"


def _is_success(event: MessageEnd) -> bool:
    return isinstance(event.message, AssistantMessage) and event.message.stop_reason not in FAILURES


def _must_close(rule: str, because: str) -> None:
    def clause(memory: Memory, event: MessageEnd) -> str | None:
        return because if memory.must_close == rule and _is_success(event) else None

    _on(rule, MessageEnd)(clause)


_must_close("A2", "the run was aborted before, so only a closing message may come")
_must_close("F1", "the run failed before, so only a closing message may come")
_must_close("F9", "the compaction after an overflow failed, so only a closing message may come")

# -- calls --------------------------------------------------------------------------------------------------------


@_on("T1", ToolExecutionStart)
def _calls_start_in_their_order(memory: Memory, event: ToolExecutionStart) -> str | None:
    at = memory.position.get(event.tool_call_id)
    if at is None:
        return f"the message has no call {event.tool_call_id}"
    if event.tool_call_id in memory.running or event.tool_call_id in memory.ended:
        return f"call {event.tool_call_id} has started already"
    return f"call {memory.calls[memory.started].id} comes first in the message" if at > memory.started else None


@_on("T1", ToolExecutionStart)
def _a_start_shows_the_models_arguments(memory: Memory, event: ToolExecutionStart) -> str | None:
    at = memory.position.get(event.tool_call_id)
    if at is None:
        return None
    call = memory.calls[at]
    same = (call.name, call.raw) == (event.call.name, event.call.raw)
    return None if same else "name or arguments are not those of the message"


@_on("T3", ToolExecutionUpdate, ToolExecutionEnd)
def _a_call_runs_between_start_and_end(memory: Memory, event: ToolExecutionUpdate | ToolExecutionEnd) -> str | None:
    call_id = event.tool_call_id
    if call_id in memory.running:
        name = memory.calls[memory.position[call_id]].name
        return None if event.tool_name == name else f"call {call_id} is one of {name}, not of {event.tool_name}"
    if call_id in memory.ended:
        return f"call {call_id} has ended already"
    return f"call {call_id} has not started" if call_id in memory.position else f"the message has no call {call_id}"


@_on("T6", ToolExecutionUpdate)
def _a_cut_call_reports_nothing(memory: Memory, _event: ToolExecutionUpdate) -> str | None:
    return "the message ended with length, so its calls are not executed" if _is_cut(memory) else None


@_on("T6", ToolExecutionEnd)
def _a_cut_call_fails(memory: Memory, event: ToolExecutionEnd) -> str | None:
    cut = _is_cut(memory) and not event.is_error
    return "the message ended with length, so each call ends in an error" if cut else None


@_on("T1", ToolExecutionUpdate)
def _execution_waits_for_preparation(memory: Memory, event: ToolExecutionUpdate) -> str | None:
    return None if _is_cut(memory) or event.tool_call_id not in memory.running else _unprepared(memory)


@_on("T1", ToolExecutionEnd)
def _an_early_end_is_a_refusal(memory: Memory, event: ToolExecutionEnd) -> str | OnlyIfAborted | None:
    """Before all calls have started, only the call in preparation may end, refused; any other if the run was aborted."""
    waiting = _unprepared(memory)
    if waiting is None or event.tool_call_id not in memory.running or _is_cut(memory):
        return None
    if not event.is_error:
        return waiting
    in_preparation = memory.position[event.tool_call_id] == memory.started - 1
    return None if in_preparation else OnlyIfAborted(waiting)


@_on("T2", ToolExecutionUpdate, ToolExecutionEnd)
def _a_serial_call_is_a_barrier(
    memory: Memory, event: ToolExecutionUpdate | ToolExecutionEnd
) -> str | OnlyIfAborted | None:
    if not memory.serial or event.tool_call_id not in memory.running or _unprepared(memory) is not None:
        return None
    at = memory.position[event.tool_call_id]
    alone = event.tool_name in memory.serial
    earlier = [
        call for call in memory.calls[:at] if call.id in memory.running and (alone or call.name in memory.serial)
    ]
    if not earlier:
        return None
    text = f"call {earlier[0].id} has not ended yet, and {'this one' if alone else 'that one'} is serial"
    return OnlyIfAborted(text) if isinstance(event, ToolExecutionEnd) and event.is_error else text


def _unprepared(memory: Memory) -> str | None:
    if memory.started == len(memory.calls):
        return None
    return f"call {memory.calls[memory.started].id} has not been prepared yet"


def _is_cut(memory: Memory) -> bool:
    return memory.standing is not None and memory.standing.stop_reason == "length"


@_on("T4", MessageStart)
def _results_come_in_the_order_of_the_calls(memory: Memory, event: MessageStart) -> str | None:
    if not isinstance(event.message, ToolResultMessage):
        return None
    wanted = memory.next_to_answer()
    came = event.message.tool_call_id
    return None if came == wanted else f"the result of call {wanted} comes next, not that of {came}"


@_on("T4", MessageStart)
def _a_result_is_what_the_end_carried(memory: Memory, event: MessageStart) -> str | None:
    if not isinstance(event.message, ToolResultMessage):
        return None
    ended = memory.ended.get(event.message.tool_call_id)
    same = ended is None or ended == event.message
    return None if same else f"it is not the result that the end of call {event.message.tool_call_id} carried"


@_on("T4", MessageEnd)
def _a_result_stays(memory: Memory, event: MessageEnd) -> str | None:
    if not isinstance(event.message, ToolResultMessage) or event.message == memory.open:
        return None
    return "it is not the message that started"


# -- retries and compactions --------------------------------------------------------------------------------------


@_on("F8", RetryStart)
def _attempts_are_counted(memory: Memory, event: RetryStart) -> str | None:
    # An attempt that a compaction followed may count among the failed ones or not: the rule does not say.
    wanted = {memory.retries + 1, memory.retries + memory.overflows + 1}
    return None if event.attempt in wanted else f"this is failed attempt {min(wanted)} of the turn, not {event.attempt}"


@_on("F8", RetryStart)
def _attempts_are_bounded(_memory: Memory, event: RetryStart) -> str | None:
    if event.attempt < event.max_attempts:
        return None
    return f"attempt {event.attempt} of at most {event.max_attempts} failed, so no other may follow"


@_on("F8", RetryStart)
def _a_wait_is_a_time(_memory: Memory, event: RetryStart) -> str | None:
    return None if event.delay >= 0 else f"nobody can wait {event.delay} seconds"


@_on("F8", RetryEnd)
def _a_wait_ends_that_began(memory: Memory, event: RetryEnd) -> str | None:
    return None if event.attempt == memory.waiting else f"the wait is that of attempt {memory.waiting}"


@_on("F9", CompactionStart)
def _compactions_are_bounded(memory: Memory, event: CompactionStart) -> str | None:
    if event.reason == "overflow":
        return "the turn has had a compaction after an overflow" if memory.overflows else None
    if memory.thresholds:
        return "the turn has had a compaction at the threshold"
    return "one at the threshold failed, and no turn has succeeded since" if memory.barren else None


@_on("F9", CompactionEnd)
def _a_compaction_says_what_replaced_what(_memory: Memory, event: CompactionEnd) -> str | None:
    given = (event.summary is not None, event.first_kept is not None)
    if event.outcome == "compacted":
        return None if all(given) else "it does not say what replaced what"
    return "nothing was replaced, yet it says what by" if any(given) else None


@_on("F9", CompactionEnd)
def _a_compaction_parts_no_call_from_its_result(memory: Memory, event: CompactionEnd) -> str | None:
    kept = event.first_kept
    if kept is None or event.outcome != "compacted":
        return None
    if kept < 0 or (memory.length is not None and kept > memory.length):
        return f"history has no message {kept}"
    if memory.length is None:
        return None
    parted = [
        call_id
        for call_id, used in memory.used.items()
        if used.answered_at is not None and used.at < kept <= used.answered_at
    ]
    return f"it parts call {parted[0]} from its result" if parted else None


# -- the end of a run ---------------------------------------------------------------------------------------------


@_on("F1", AgentEnd)
def _a_failed_run_has_a_closing_message(memory: Memory, event: AgentEnd) -> str | None:
    closed = memory.last is None or memory.last.stop_reason in FAILURES
    return None if closed or event.outcome not in FAILURES else "the run has no closing message"


@_on("F10", AgentEnd)
def _the_outcome_is_the_closing_messages(memory: Memory, event: AgentEnd) -> str | None:
    last = memory.last
    if last is None or last.stop_reason not in FAILURES or last.stop_reason == event.outcome:
        return None
    return f"the closing message says {last.stop_reason}"


@_on("A8", AgentEnd)
def _a_run_completes_when_the_model_stops(memory: Memory, event: AgentEnd) -> str | None:
    last = memory.last
    if event.outcome != "completed" or last is None or last.stop_reason in FAILURES:
        return None
    if last.tool_calls:
        return "the model asked for tools, so it has not stopped"
    return "the answer was cut, so the reason is length" if last.stop_reason == "length" != event.reason else None


@_on("L2", AgentEnd)
def _turns_are_counted_to_the_end(memory: Memory, event: AgentEnd) -> str | None:
    # A closing turn may be left out of the count: the specification leaves it out of the limits' (A8).
    closing = memory.last is not None and memory.last.stop_reason in FAILURES
    wanted = (memory.turns, memory.turns - 1) if closing else (memory.turns,)
    return None if event.turns in wanted else f"the run had {memory.turns} turns, not {event.turns}"
