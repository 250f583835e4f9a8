"""A recording as spans: on random lawful traces, whole, cut off and damaged, and on traces made by hand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from log_files import timed_traces

from trio_agent import (
    AgentEnd,
    AgentStart,
    AssistantMessage,
    CompactionEnd,
    CompactionStart,
    ErrorInfo,
    Event,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    RetryEnd,
    RetryStart,
    Text,
    TextDelta,
    ToolCall,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResultMessage,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from trio_agent.cli._spans import Recording, Span, in_lanes
from trio_agent.cli._spans_walk import recording_of
from trio_agent.session._log import _HISTORY


def check(recording: Recording, events: Sequence[Event]) -> None:
    """What holds for any events."""
    spans = recording.spans
    assert recording.events == len(events)
    assert sum(span.events for span in spans) + recording.history == len(events)
    for place, span in enumerate(spans):
        assert 0 <= span.first <= span.last < len(events)
        assert 0 <= span.start <= span.end <= recording.duration
        assert span.cut == (span.outcome is None)
        assert span.token is None or span.start <= span.token <= span.end
        assert all(span.start <= at <= span.end for at in span.updates)
        if span.kind == "run":
            assert span.parent is None
            continue
        assert span.parent is not None
        assert span.parent < place, "a span stands behind the one around it"
        around = spans[span.parent]
        assert around.kind == "run" if span.kind == "turn" else around.kind in ("run", "turn")
        assert around.first <= span.first <= span.last <= around.last
        assert around.start <= span.start <= span.end <= around.end
    for kind in ("run", "turn", "request"):
        for one, other in itertools.pairwise(recording.of(kind)):
            assert one.last <= other.first, f"a {kind} begins before the one before it has ended"
    for lane in in_lanes(recording.of("tool")):
        assert all(one.last < other.first for one, other in itertools.pairwise(lane))


@given(timed_traces())
def test_a_whole_trace_comes_to_nested_spans_of_which_none_is_cut(events: list[Event]) -> None:
    """Every event of a lawful trace is told by one span, and each span has an end that the trace told."""
    recording = recording_of(events)
    check(recording, events)
    assert not [span for span in recording.spans if span.cut or span.inferred]
    assert recording.history == 0
    for kind, event in (("run", AgentStart), ("turn", TurnStart), ("tool", ToolExecutionStart), ("retry", RetryStart)):
        assert len(recording.of(kind)) == sum(isinstance(one, event) for one in events)
    answers = [event for event in events if isinstance(event, MessageStart) and event.message.role == "assistant"]
    assert len(recording.of("request")) >= len(answers)


@given(timed_traces(), st.data())
def test_a_run_that_is_cut_off_has_its_open_spans_closed_at_the_end_and_marked(
    events: list[Event], data: st.DataObject
) -> None:
    """Cut a trace anywhere: what was open there ends there, and what had ended is as it was."""
    whole = recording_of(events)
    length = data.draw(st.integers(0, len(events)))
    recording = recording_of(events[:length])
    check(recording, events[:length])
    ended = {(span.kind, span.first, span.last) for span in whole.spans if span.last < length}
    for span in recording.spans:
        assert span.cut != ((span.kind, span.first, span.last) in ended) or span.kind == "request"
        assert not span.cut or span.last == length - 1
    # Of a request that had not begun to stream, nothing is known before it failed.
    assert ended <= {(span.kind, span.first, span.last) for span in recording.spans}


@given(timed_traces(), st.data())
def test_whatever_lines_are_missing_the_spans_are_nested(events: list[Event], data: st.DataObject) -> None:
    """Damage of any kind costs no more than what was lost: nothing fails, every event that is there is told."""
    kept = data.draw(st.lists(st.booleans(), min_size=len(events), max_size=len(events)))
    left = [event for event, keep in zip(events, kept, strict=True) if keep]
    check(recording_of(left), left)


@given(timed_traces())
def test_what_a_session_keeps_has_the_same_runs_turns_and_calls(events: list[Event]) -> None:
    """A session has no starts of messages and calls; their ends, and all outcomes, are those of the trace."""
    kept = [event for event in events if isinstance(event, _HISTORY)]
    recording, whole = recording_of(kept), recording_of(events)
    check(recording, kept)
    assert not [span for span in recording.spans if span.cut]

    def told(spans: Sequence[Span]) -> list[tuple[str, str, str | None]]:
        return [(span.kind, span.name, span.outcome) for span in spans if span.kind != "tool"]

    assert told(recording.spans) == told(whole.spans)

    def ended(recording: Recording) -> list[tuple[str, str | None, float]]:
        return sorted((s.name, s.outcome, s.end if whole.timed else 0) for s in recording.of("tool"))

    assert ended(recording) == ended(whole)


# -- by hand ------------------------------------------------------------------------------------------------------

CALLS = AssistantMessage([ToolCall("a", "read", {}), ToolCall("b", "read", {})], "tool_use")
EMPTY = AssistantMessage((), None)
DONE = AssistantMessage("done", "stop", model="m")


def result(call_id: str, *, error: bool = False) -> ToolResultMessage:
    return ToolResultMessage(call_id, "read", "text", error)


def turn(number: int, *events: Event) -> list[Event]:
    return [TurnStart(number, time=events[0].time), *events, TurnEnd(number, DONE, time=events[-1].time)]


def answer(start: float, message: AssistantMessage, end: float) -> list[Event]:
    delta = MessageUpdate(TextDelta(0, "x"), time=start)
    return [MessageStart(EMPTY, time=start), delta, MessageEnd(message, time=end)]


def test_a_request_begins_behind_what_it_answers_and_has_the_time_of_its_first_token() -> None:
    """The wait for the first token is from the user's message to the first of the answer."""
    said = UserMessage("hi")
    events = [MessageStart(said, time=1.0), MessageEnd(said, time=1.0), *answer(3.0, DONE, 4.0)]
    recording = recording_of([AgentStart(), *turn(1, *events), AgentEnd("completed", time=4.0)])
    (request,) = recording.of("request")
    assert (request.name, request.start, request.token, request.end, request.outcome) == ("m", 1.0, 3.0, 4.0, "stop")
    assert [(mark.kind, mark.at, mark.text) for mark in recording.marks] == [("prompt", 1.0, "hi")]


def test_a_request_that_failed_before_it_streamed_has_a_span_without_a_token() -> None:
    """The failure at `retry_start` ends it; the request behind the wait is another."""
    error = ErrorInfo("overloaded", "busy")
    retry = [RetryStart(1, 4, 2.0, error, time=1.0), RetryEnd(1, "resumed", time=3.0)]
    recording = recording_of([AgentStart(), *turn(1, *retry, *answer(5.0, DONE, 6.0)), AgentEnd("completed", time=6.0)])
    told = [(span.start, span.token, span.end, span.outcome, span.failed) for span in recording.of("request")]
    assert told == [(1.0, None, 1.0, "overloaded", True), (3.0, 5.0, 6.0, "stop", False)]
    (wait,) = recording.of("retry")
    assert (wait.name, wait.start, wait.end, wait.outcome) == ("retry 1 of 4", 1.0, 3.0, "resumed")


def test_calls_that_run_side_by_side_have_lanes_of_their_own() -> None:
    """A lane is used again by a call that starts when the one before it has ended."""
    events = [
        *answer(1.0, CALLS, 1.0),
        ToolExecutionStart(ToolCall("a", "read", {}), time=1.0),
        ToolExecutionStart(ToolCall("b", "read", {}), time=1.0),
        ToolExecutionEnd(result("a"), time=2.0),
        ToolExecutionStart(ToolCall("c", "read", {}), time=2.5),
        ToolExecutionEnd(result("b", error=True), time=3.0),
        ToolExecutionEnd(result("c"), time=4.0),
    ]
    recording = recording_of([AgentStart(), *turn(1, *events), AgentEnd("completed", time=4.0)])
    lanes = in_lanes(recording.of("tool"))
    assert [[(s.start, s.end, s.outcome) for s in lane] for lane in lanes] == [
        [(1.0, 2.0, "ok"), (2.5, 4.0, "ok")],
        [(1.0, 3.0, "error")],
    ]


def test_an_abort_is_marked_where_the_run_first_said_so_with_the_reason_of_its_end() -> None:
    """A wait that was aborted tells it before the closing message does."""
    closing = AssistantMessage((), "aborted", error_message="enough")
    events = [
        RetryStart(1, 4, 9.0, ErrorInfo("server", "500"), time=1.0),
        RetryEnd(1, "aborted", time=2.0),
        MessageStart(EMPTY, time=2.5),
        MessageEnd(closing, time=2.5),
    ]
    recording = recording_of([AgentStart(), *turn(1, *events), AgentEnd("aborted", "enough", time=3.0)])
    assert [(mark.kind, mark.at, mark.text) for mark in recording.marks] == [("abort", 2.0, "enough")]
    assert [(span.outcome, span.failed) for span in recording.of("run")] == [("aborted", True)]


def test_a_message_from_a_queue_is_told_from_a_prompt() -> None:
    """What enters in the first turn of a run is its prompt; later it was queued."""
    said = UserMessage("more")
    entered = [MessageStart(said), MessageEnd(said)]
    recording = recording_of(
        [AgentStart(), *turn(1, *entered, *answer(0, DONE, 0)), *turn(2, *entered), AgentEnd("completed")]
    )
    assert [mark.kind for mark in recording.marks] == ["prompt", "queued"]


def test_runs_follow_each_other_and_a_process_that_died_leaves_a_run_that_is_cut() -> None:
    """A run that another one follows without an end is cut where the log has its last event."""
    recording = recording_of([AgentStart(), TurnStart(1, time=2.0), AgentStart(), AgentEnd("stopped", time=1.0)])
    assert [(s.start, s.end, s.cut) for s in recording.of("run")] == [(0, 2.0, True), (2.0, 3.0, False)]
    assert [(s.start, s.end, s.cut) for s in recording.of("turn")] == [(2.0, 2.0, True)]


def test_without_times_an_event_is_the_unit() -> None:
    """A log that has no times is drawn by the order of its events."""
    recording = recording_of([AgentStart(), *turn(1, *answer(0, DONE, 0)), AgentEnd("completed")])
    assert not recording.timed
    assert recording.duration == 6
    assert [(s.kind, s.start, s.end) for s in recording.spans] == [("run", 0, 6), ("turn", 1, 5), ("request", 1, 4)]


def test_a_clock_that_goes_backwards_or_nowhere_moves_nothing_back() -> None:
    """Times of a damaged log are taken as far as they go forward."""
    times = [0.0, 5.0, 2.0, float("inf"), -1.0]
    recording = recording_of([AgentStart(), *[TurnStart(n, time=time) for n, time in enumerate(times)]])
    assert recording.duration == 5.0
    assert [span.start for span in recording.of("turn")] == [0.0, 5.0, 5.0, 5.0, 5.0]


def test_a_late_update_that_no_kernel_dropped_is_marked_and_belongs_to_no_call() -> None:
    """Rule T3 drops them silently, so only another's trace has one."""
    update = ToolExecutionUpdate("a", "read", (Text("late"),), time=3.0)
    events = [
        *answer(1.0, CALLS, 1.0),
        ToolExecutionStart(ToolCall("a", "read", {}), time=1.0),
        ToolExecutionEnd(result("a"), time=2.0),
        update,
    ]
    recording = recording_of([AgentStart(), *turn(1, *events), AgentEnd("completed", time=4.0)])
    assert [(mark.kind, mark.at) for mark in recording.marks] == [("late update", 3.0)]
    assert [(span.end, span.updates) for span in recording.of("tool")] == [(2.0, ())]


def test_a_trace_that_begins_in_the_middle_begins_there() -> None:
    """The end of a file, as `tail` gives it, starts at time 0 with a run whose start is not in the log."""
    recording = recording_of([ToolExecutionEnd(result("a"), time=70.0), AgentEnd("completed", time=71.0)])
    assert [(s.kind, s.start, s.end, s.inferred) for s in recording.spans] == [
        ("run", 0.0, 1.0, True),
        ("tool", 0.0, 0.0, True),
    ]


def test_messages_outside_any_run_are_history() -> None:
    """A session that was made of messages has them, and no run."""
    recording = recording_of([MessageEnd(UserMessage("hi")), MessageEnd(DONE)])
    assert recording.history == 2
    assert recording.spans == ()


def test_a_compaction_says_what_it_came_to() -> None:
    """One that failed is a failure, with its error; its request is none of the turn's."""
    events = [
        CompactionStart("threshold", 90, time=1.0),
        CompactionEnd("failed", error="no", time=2.0),
        *answer(3.0, DONE, 4.0),
    ]
    recording = recording_of([AgentStart(), *turn(1, *events), AgentEnd("completed", time=4.0)])
    (wait,) = recording.of("compaction")
    assert (wait.name, wait.start, wait.end, wait.failed) == ("compaction (threshold)", 1.0, 2.0, True)
    assert dict(wait.notes) == {"tokens before": "90", "error": "no"}
    assert [(span.start, span.end) for span in recording.of("request")] == [(2.0, 4.0)]
