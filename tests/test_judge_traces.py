"""The judge on random lawful traces, in which it finds nothing, and on those traces changed, in which it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import get_args

import attrs
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import event as note
from hypothesis import strategies as st
from lawful_traces import dropped, harmless, lawful_traces, repeated, swapped

from trio_agent import (
    AgentEnd,
    AgentStart,
    AssistantMessage,
    CompactionEnd,
    Event,
    LifecycleError,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    RetryEnd,
    RetryStart,
    Text,
    TextDelta,
    ToolExecutionEnd,
    ToolResultMessage,
    TurnEnd,
    TurnStart,
    encode,
)
from trio_agent._codec import encode_line
from trio_agent._events import Outcome
from trio_agent._lifecycle import Lifecycle, Position
from trio_agent._messages import StopReason
from trio_agent.testing import check_trace

MUTATIONS: dict[str, Callable[[Sequence[Event], int], list[Event]]] = {
    "swap": swapped,
    "drop": dropped,
    "repeat": repeated,
}


@settings(max_examples=200)
@given(trace=lawful_traces())
def test_a_lawful_trace_is_lawful_whole_and_in_any_beginning(trace: list[Event]) -> None:
    """The judge finds nothing in it, nor in any prefix, whether or not it knows what history was."""
    assert check_trace(trace, complete=True) == []
    assert check_trace(trace, complete=True, history=()) == []
    for length in range(0, len(trace), 7):
        assert check_trace(trace[:length]) == []


def feed(core: Lifecycle, event: Event) -> None:
    """Feed the kernel's tables as the kernel does."""
    core.feed(event)
    if isinstance(event, RetryEnd | CompactionEnd):
        core.enter_turn()
    if core.position is Position.ENDED:
        core.end()


@settings(max_examples=200)
@given(trace=lawful_traces())
def test_the_kernel_allows_what_the_specification_does(trace: list[Event]) -> None:
    """The kernel's own tables refuse no event of a lawful trace."""
    core = Lifecycle()
    for event in trace:
        feed(core, event)


@pytest.mark.parametrize("how", MUTATIONS)
@settings(max_examples=150)
@given(trace=lawful_traces())
def test_a_changed_trace_is_unlawful_unless_the_change_is_harmless(how: str, trace: list[Event]) -> None:
    """Swapping two neighbours, dropping or repeating one event breaks a rule; the harmless kinds alone break none."""
    for at in range(len(trace) - (how == "swap")):
        mutated = MUTATIONS[how](trace, at)
        reason = harmless(trace, mutated, how, at)
        note(f"{how}: {reason or 'unlawful'}")
        found = check_trace(mutated, complete=True)
        assert bool(found) == (reason is None), f"{how} at {at}: {reason or 'unlawful'}, found {found}"


def test_two_equal_events_that_change_places_are_no_change() -> None:
    """Of what is harmless this is the plainest, and too seldom to be drawn each time."""
    answer = AssistantMessage("aa", "stop")
    update = MessageUpdate(TextDelta(0, "a"))
    body = [MessageStart(AssistantMessage((), None)), update, update, MessageEnd(answer)]
    trace = [AgentStart(), TurnStart(1), *body, TurnEnd(1, answer), AgentEnd("completed", None, 1)]
    assert harmless(trace, swapped(trace, 3), "swap", 3) == "nothing changed"
    assert check_trace(swapped(trace, 3), complete=True) == []


@settings(max_examples=150)
@given(data=st.data())
def test_what_the_kernel_refuses_in_a_changed_trace_the_judge_finds_by_then(data: st.DataObject) -> None:
    """Where the kernel's tables refuse an event of a changed trace, the judge has found a breach by then."""
    trace = data.draw(lawful_traces())
    how = data.draw(st.sampled_from(sorted(MUTATIONS)))
    at = data.draw(st.integers(0, len(trace) - 2))
    core = Lifecycle()
    mutated = MUTATIONS[how](trace, at)
    for index, event in enumerate(mutated):
        try:
            feed(core, event)
        except LifecycleError:
            assert check_trace(mutated[: index + 1])
            return


@settings(max_examples=100)
@given(data=st.data())
def test_live_events_objects_and_lines_are_judged_alike(data: st.DataObject) -> None:
    """The same findings, to the letter, whatever form a trace has, lawful or not."""
    trace = data.draw(lawful_traces())
    if data.draw(st.booleans()):
        how = data.draw(st.sampled_from(sorted(MUTATIONS)))
        trace = MUTATIONS[how](trace, data.draw(st.integers(0, len(trace) - 2)))
    found = check_trace(trace)
    assert check_trace([encode(event) for event in trace]) == found
    assert check_trace([encode_line(event) for event in trace]) == found
    assert check_trace([encode_line(event).encode() for event in trace]) == found


@settings(max_examples=100)
@given(trace=lawful_traces())
def test_runs_with_histories_of_their_own_may_use_ids_again(trace: list[Event]) -> None:
    """The same trace twice is lawful where each run has a history of its own."""
    assert check_trace([*trace, *trace], one_history=False) == []


def tampered(event: Event) -> Event | None:
    """The event with a lie in it that the rest of the trace gives away, or None if there is none to tell."""
    if isinstance(event, MessageEnd):
        message = event.message
        if isinstance(message, AssistantMessage):
            return attrs.evolve(event, message=attrs.evolve(message, content=(*message.content, Text("x"))))
        return MessageEnd(ToolResultMessage("c", "t", "x") if isinstance(message, ToolResultMessage) else CALLER)
    if isinstance(event, TurnStart | TurnEnd):
        return attrs.evolve(event, turn=event.turn + 1)
    if isinstance(event, AgentEnd):
        outcome = "completed" if event.outcome in ("error", "aborted") else "error"
        return attrs.evolve(event, outcome=outcome)
    if isinstance(event, ToolExecutionEnd):
        return ToolExecutionEnd(ToolResultMessage(event.tool_call_id, event.tool_name, "x", event.is_error))
    if isinstance(event, RetryStart):
        return attrs.evolve(event, attempt=event.attempt + 5)
    if isinstance(event, CompactionEnd) and event.outcome == "compacted":
        return attrs.evolve(event, summary=None)
    return None


CALLER = MessageEnd(AssistantMessage()).message


@settings(max_examples=300)
@given(data=st.data())
def test_a_lie_in_an_event_is_found(data: st.DataObject) -> None:
    """Another text, number, result or outcome than the rest of the trace tells breaks a rule."""
    trace = data.draw(lawful_traces())
    lies = [(at, lie) for at, event in enumerate(trace) if (lie := tampered(event)) is not None]
    at, lie = data.draw(st.sampled_from(lies))
    assert check_trace([*trace[:at], lie, *trace[at + 1 :]], complete=True), lie


KINDS: dict[str, Callable[[Event], bool]] = {
    **{cls.type: (lambda event, cls=cls: isinstance(event, cls)) for cls in get_args(Event)},
    **{
        f"retry_end {word}": (lambda event, word=word: event == RetryEnd(1, word))
        for word in ("resumed", "aborted", "failed")
    },
    **{
        f"compaction_end {word}": (lambda event, word=word: isinstance(event, CompactionEnd) and event.outcome == word)
        for word in ("compacted", "aborted", "failed")
    },
    **{
        f"agent_end {word}": (lambda event, word=word: isinstance(event, AgentEnd) and event.outcome == word)
        for word in get_args(Outcome)
    },
    **{
        f"message_end {word}": (
            lambda event, word=word: getattr(getattr(event, "message", 0), "stop_reason", 0) == word
        )
        for word in get_args(StopReason)
    },
}


FIRST_FOUND = settings(max_examples=5000, phases=[Phase.generate])


@pytest.mark.parametrize("kind", KINDS)
def test_the_generator_makes_every_kind_of_event(kind: str) -> None:
    """Each event, and each way in which waits, compactions, messages and runs end, occurs in some generated trace."""
    is_it = KINDS[kind]
    assert find(lawful_traces(), lambda trace: any(is_it(event) for event in trace), settings=FIRST_FOUND)
