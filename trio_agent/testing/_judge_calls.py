"""What the events and results of tool calls may say.

Here live clauses about T1 to T6: which call may start, report, end and be answered. That call ids are unique is judged
where the message ends, in `_judge_messages.py`.
"""

from __future__ import annotations

from typing import Final

from .._events import (
    MessageEnd,
    MessageStart,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
)
from .._messages import ToolResultMessage
from ._judge_memory import Memory
from ._judge_register import OnlyIfAborted, Register

REGISTER: Final = Register()

# -- calls --------------------------------------------------------------------------------------------------------


@REGISTER.on("T1", ToolExecutionStart)
def _calls_start_in_their_order(memory: Memory, event: ToolExecutionStart) -> str | None:
    at = memory.position.get(event.tool_call_id)
    if at is None:
        return f"the message has no call {event.tool_call_id}"
    if event.tool_call_id in memory.running or event.tool_call_id in memory.ended:
        return f"call {event.tool_call_id} has started already"
    return f"call {memory.calls[memory.started].id} comes first in the message" if at > memory.started else None


@REGISTER.on("T1", ToolExecutionStart)
def _a_start_shows_the_models_arguments(memory: Memory, event: ToolExecutionStart) -> str | None:
    at = memory.position.get(event.tool_call_id)
    if at is None:
        return None
    call = memory.calls[at]
    same = (call.name, call.raw) == (event.call.name, event.call.raw)
    return None if same else "name or arguments are not those of the message"


@REGISTER.on("T3", ToolExecutionUpdate, ToolExecutionEnd)
def _a_call_runs_between_start_and_end(memory: Memory, event: ToolExecutionUpdate | ToolExecutionEnd) -> str | None:
    call_id = event.tool_call_id
    if call_id in memory.running:
        name = memory.calls[memory.position[call_id]].name
        return None if event.tool_name == name else f"call {call_id} is one of {name}, not of {event.tool_name}"
    if call_id in memory.ended:
        return f"call {call_id} has ended already"
    return f"call {call_id} has not started" if call_id in memory.position else f"the message has no call {call_id}"


@REGISTER.on("T6", ToolExecutionUpdate)
def _a_cut_call_reports_nothing(memory: Memory, _event: ToolExecutionUpdate) -> str | None:
    return "the message ended with length, so its calls are not executed" if _is_cut(memory) else None


@REGISTER.on("T6", ToolExecutionEnd)
def _a_cut_call_fails(memory: Memory, event: ToolExecutionEnd) -> str | None:
    cut = _is_cut(memory) and not event.is_error
    return "the message ended with length, so each call ends in an error" if cut else None


@REGISTER.on("T1", ToolExecutionUpdate)
def _execution_waits_for_preparation(memory: Memory, event: ToolExecutionUpdate) -> str | None:
    return None if _is_cut(memory) or event.tool_call_id not in memory.running else _unprepared(memory)


@REGISTER.on("T1", ToolExecutionEnd)
def _an_early_end_is_a_refusal(memory: Memory, event: ToolExecutionEnd) -> str | OnlyIfAborted | None:
    """Before all calls have started, only the one in preparation may end, refused; any other if the run was aborted."""
    waiting = _unprepared(memory)
    if waiting is None or event.tool_call_id not in memory.running or _is_cut(memory):
        return None
    if not event.is_error:
        return waiting
    in_preparation = memory.position[event.tool_call_id] == memory.started - 1
    return None if in_preparation else OnlyIfAborted(waiting)


@REGISTER.on("T2", ToolExecutionUpdate, ToolExecutionEnd)
def _a_serial_call_is_a_barrier(
    memory: Memory, event: ToolExecutionUpdate | ToolExecutionEnd
) -> str | OnlyIfAborted | None:
    if not memory.serial or event.tool_call_id not in memory.running or _unprepared(memory) is not None:
        return None
    at = memory.position[event.tool_call_id]
    if isinstance(event, ToolExecutionEnd) and event.is_error and at == len(memory.calls) - 1:
        return None  # perhaps refused in preparation, which is over only now: its end is no execution's (T1)
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


@REGISTER.on("T4", MessageStart)
def _results_come_in_the_order_of_the_calls(memory: Memory, event: MessageStart) -> str | None:
    if not isinstance(event.message, ToolResultMessage):
        return None
    wanted = memory.next_to_answer()
    came = event.message.tool_call_id
    return None if came == wanted else f"the result of call {wanted} comes next, not that of {came}"


@REGISTER.on("T4", MessageStart)
def _a_result_is_what_the_end_carried(memory: Memory, event: MessageStart) -> str | None:
    if not isinstance(event.message, ToolResultMessage):
        return None
    ended = memory.ended.get(event.message.tool_call_id)
    same = ended is None or ended == event.message
    return None if same else f"it is not the result that the end of call {event.message.tool_call_id} carried"


@REGISTER.on("T4", MessageEnd)
def _a_result_stays(memory: Memory, event: MessageEnd) -> str | None:
    if not isinstance(event.message, ToolResultMessage) or event.message == memory.open:
        return None
    return "it is not the message that started"
