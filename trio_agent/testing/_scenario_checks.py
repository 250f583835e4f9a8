"""What has to hold behind every scenario, whatever went wrong in it.

Here live the invariants, one function each, over the stage that was left. None of them knows what the scenario was
about; what in particular must come of one is the prediction in `_model.py` and the business of a test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from .._events import AgentEnd, AgentStart, Event, MessageStart, ToolExecutionEnd, ToolExecutionStart
from .._json import loads
from .._messages import AssistantMessage, Message, ToolResultMessage, UserMessage
from ._judge import check_trace
from ._scenario_expected import Expected, expected, told
from ._scenario_stage import Stage


def check_lawful(stage: Stage) -> None:
    """The judge has nothing to say, of this run's trace and of those of agents inside its tools."""
    model = stage.model
    if stage.is_cut_short:
        for events in _runs(stage.events):
            assert check_trace(events, one_history=False) == []
        return
    violations = check_trace(
        stage.events,
        complete=True,
        phases=stage.listeners[0].phases,
        steered=[message for name, message in model.queued if name == "steer"],
        followed_up=[message for name, message in model.queued if name == "follow_up"],
        waiting=[*model.taken_back, *model.steering, *model.follow_up],
        serial_tools=["serial"],
    )
    for events in stage.bench.inner_events:
        violations += check_trace(events, complete=True)
    assert not violations, "\n".join(map(str, violations))


def _runs(events: Sequence[Event]) -> list[list[Event]]:
    runs: list[list[Event]] = []
    for event in events:
        if isinstance(event, AgentStart):
            runs.append([])
        runs[-1].append(event)
    return runs


def check_idle(stage: Stage) -> None:
    """P4."""
    state = stage.agent.state
    assert state.phase.value == "idle", state.phase
    assert not state.is_streaming, "P4: is_streaming"
    assert state.streaming_message is None, "P4: streaming_message"
    assert state.pending_tool_calls == (), f"P4: {state.pending_tool_calls}"
    assert state.pending_file_writes == (), f"P4: {state.pending_file_writes}"
    assert not stage.bench.running, f"P4: {stage.bench.running} still run"
    locks = stage.bench.locks.statistics()
    assert (locks.held, locks.waiting) == (0, 0), f"P4: {locks}"


def check_sendable(stage: Stage) -> None:
    """F2: each call of a message that stands has exactly one result, directly behind it, in order."""
    if stage.is_cut_short:
        return  # the default convert_to_llm mends it
    awaited: list[str] = []
    for message in stage.agent.state.messages:
        if isinstance(message, ToolResultMessage):
            assert awaited, f"F2: the result of {message.tool_call_id} has no call in front of it"
            assert message.tool_call_id == awaited.pop(0), "F2: results are not in call order"
        else:
            assert not awaited, f"F2: no results for {awaited}"
            awaited = _calls_to_answer(message)
    assert not awaited, f"F2: no results for {awaited}"


def _calls_to_answer(message: Message) -> list[str]:
    if not isinstance(message, AssistantMessage) or message.stop_reason in ("error", "aborted"):
        return []
    return [call.id for call in message.tool_calls]


def check_everybody_saw_it(stage: Stage) -> None:
    """L5, F3: every subscriber got every event, in the one order; a late one everything from then on."""
    if stage.is_cut_short:
        return
    for listener in stage.listeners[1:]:
        assert listener.events == stage.events, _first_difference(listener.events, stage.events)
    for listener in stage.late_listeners:
        wanted = stage.events[len(stage.events) - len(listener.events) :]
        assert listener.events == wanted, _first_difference(listener.events, wanted)


def _first_difference(ours: Sequence[Event], theirs: Sequence[Event]) -> str:
    for at, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one != other:
            return f"L5: event {at} is {one} for one subscriber and {other} for another"
    return f"L5: one subscriber saw {len(ours)} events, another {len(theirs)}"


def check_result(stage: Stage) -> None:
    """The result, the last event and the state say the same; nothing but an interrupt leaves `prompt()`, and bare."""
    ends = [event for event in stage.events if isinstance(event, AgentEnd)]
    for exc in stage.raised:
        assert type(exc) is KeyboardInterrupt, f"F1, F7: {exc!r} left prompt()"
    assert len(stage.raised) <= stage.interrupts, f"F7: {stage.raised} of {stage.interrupts}"
    if stage.raised or stage.scope.cancelled_caught:
        return  # there is no result
    assert stage.results, "prompt() gave nothing"
    result, end = stage.results[-1], ends[-1]
    assert (result.outcome, result.reason, result.usage) == (end.outcome, end.reason, end.usage)
    assert (result.outcome == "error") == (result.error is not None), f"{result.outcome} with {result.error!r}"
    messages = list(stage.agent.state.messages)
    if not stage.model.compacted:
        assert list(result.messages) == messages[len(messages) - len(result.messages) :]


def check_cancellation(stage: Stage) -> None:
    """A5: a cancelled scope gets its `Cancelled`, and no other does."""
    called, caught = stage.scope.cancel_called, stage.scope.cancelled_caught
    assert called or not caught
    if called and not stage.raised:
        assert caught, "A5: prompt() swallowed a cancellation"


def check_prompt_was_said(stage: Stage) -> None:
    """F1: what the user said is said once in every run that began, and not at all if its run did not begin."""
    if stage.scenario.entry == "resume" or stage.is_cut_short:
        return
    started = [event.message for event in stage.events if isinstance(event, MessageStart)]
    begun = sum(event.type == "agent_start" for event in stage.events)
    said = [sum(other is message for other in started) for message in stage.prompts]
    assert max(said) <= 1, f"F1: the prompts were said so often: {said}"
    assert sum(said) == begun, f"F1: {begun} runs began, and said {sum(said)} prompts"


def check_queues(stage: Stage) -> None:
    """Q2: each queued message was said once, or waits, or was taken back."""
    model = stage.model
    if stage.is_cut_short:
        return
    for _, message in model.queued:
        places = (model.said, model.steering, model.follow_up, model.taken_back)
        count = sum(other is message for place in places for other in place)
        assert count == 1, f"Q2: {message} is in {count} places"
    assert [id(m) for m in stage.agent.state.steering_queue] == [id(m) for m in model.steering]


def check_tools(stage: Stage) -> None:
    """T5: what the ends say is what the tools returned; a call that did not begin says nothing of success."""
    keys: dict[str, str] = {}
    replaced = any(hook.name == "after_tool_result" for hook in stage.scenario.hooks)
    for event in stage.events:
        if isinstance(event, ToolExecutionStart):
            arguments = loads(event.call.raw)
            keys[event.tool_call_id] = arguments["key"] if isinstance(arguments, dict) else ""
        elif isinstance(event, ToolExecutionEnd) and not event.is_error and not replaced:
            key = keys[event.tool_call_id]
            assert event.tool_name not in ("aborts", "swallows"), "A2: an outcome that came behind the abort was kept"
            assert event.result.text == stage.bench.returned.get(key), f"T4: {event.result.text}"
            assert key in stage.bench.begun, f"T4: {key} succeeded and never began"
    assert not stage.bench.faults, "\n".join(stage.bench.faults)


def check_files(stage: Stage) -> None:
    """T8: the file holds every write that was made, once; those that were declared, in call order."""
    own = stage.bench
    lines = own.file.read_text("utf-8").split()
    assert lines == own.wrote, f"T8: the file holds {lines}, written were {own.wrote}"
    declared = [key for key in lines if key in own.asked]
    wanted = [key for key in own.asked if key in declared]
    assert declared == wanted, f"T8: written in the order {declared}, asked for in the order {wanted}"


def check_expected(stage: Stage) -> None:
    """What came is what the sequential reading of the scenario comes to, where there is one."""
    wanted = None if stage.struck_at is not None else expected(stage.scenario)
    if wanted is None:
        return
    shown = Expected(
        told(stage.agent.state.messages),
        [(result.outcome, result.reason) for result in stage.results],
        [message.text for message in stage.agent.state.steering_queue if isinstance(message, UserMessage)],
        [message.text for message in stage.agent.state.follow_up_queue if isinstance(message, UserMessage)],
        stage.requests,
        len(stage.bench.wrote),
    )
    for field in attrs.fields(Expected):
        came, read = getattr(shown, field.name), getattr(wanted, field.name)
        assert came == read, f"{field.name}: came {came}, and read in sequence it must be {read}"


def check_disturbed(stage: Stage) -> None:
    """What the rules say that the disturbance must come to, wherever it happened."""
    if stage.struck_by == "abort":
        _check_abort(stage)
    elif stage.struck_by == "cancel":
        assert stage.any_cancelled or stage.raised, "A5: the scope around prompt() did not get its cancellation"
    elif stage.struck_by in ("ctrl_c", "interrupt"):
        assert any(type(exc) is KeyboardInterrupt for exc in stage.raised), (
            "F7: KeyboardInterrupt did not leave prompt()"
        )


def _check_abort(stage: Stage) -> None:
    """A1, A2, F10: the run ends aborted, unless something else had decided before, or the run was not under way."""
    outcome = _outcome_of_struck_run(stage)
    if outcome is None or stage.struck_idle or _had_ended(stage) or stage.struck_decided:
        return
    assert outcome == "aborted", f"A2: the run ended {outcome} behind an abort"


def _had_ended(stage: Stage) -> bool:
    """Whether `agent_end` of the struck run had been told by then, or nothing of it yet."""
    assert stage.struck_at is not None
    return bool(stage.struck_at) and isinstance(stage.events[stage.struck_at - 1], AgentEnd)


def _outcome_of_struck_run(stage: Stage) -> str | None:
    """How the run ended in which the disturbance was; None if there was none."""
    assert stage.struck_at is not None
    events = stage.events
    inside = stage.struck_at > 0 and not isinstance(events[stage.struck_at - 1], AgentEnd)
    ends = [event for event in events[max(0, stage.struck_at - 1) :] if isinstance(event, AgentEnd)]
    started = inside or any(isinstance(event, AgentStart) for event in events[stage.struck_at :])
    return ends[0].outcome if started and ends else None


CHECKS: Final[tuple[Callable[[Stage], object], ...]] = (
    check_lawful,
    check_idle,
    check_sendable,
    check_everybody_saw_it,
    check_result,
    check_cancellation,
    check_prompt_was_said,
    check_queues,
    check_tools,
    check_files,
    check_expected,
    check_disturbed,
)


async def check_next_prompt(stage: Stage) -> None:
    """Whatever happened, the agent works on: prompts are answered until the queues are empty, and all is told."""
    stage.calm = True
    stage.bench.closed = False
    for number in range(12):
        result = await stage.agent.prompt(UserMessage(f"next {number + 1}"))
        assert result.outcome in ("completed", "stopped"), f"the next prompt: {result.outcome}, {result.error!r}"
        stage.model.idle()
        if not (stage.model.steering or stage.model.follow_up):
            break
    check_sendable(stage)
    check_idle(stage)
    check_everybody_saw_it(stage)
    check_queues(stage)
