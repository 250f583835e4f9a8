"""What decides about a run, by itself: the lifecycle's table in full, each of its refusals, each way to the end.

That lawful runs are taken and others are not is in test_lifecycle_tables.py; here is in which words.
"""

from __future__ import annotations

import pytest

from trio_agent import (
    AgentEnd,
    AgentStart,
    AssistantMessage,
    CompactionEnd,
    CompactionStart,
    CustomMessage,
    ErrorInfo,
    Event,
    LifecycleError,
    Message,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    RetryEnd,
    RetryStart,
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
from trio_agent._closing import closing_events, next_closing_event
from trio_agent._lifecycle import PHASES, TABLE, Lifecycle, Phase, Position, kind_of

# -- lifecycle ---------------------------------------------------------------------------------------------------

# From where, by which events, to where: section 2 and 3 of the specification, written down once more.
WAYS = """
idle: agent_start=started
started: turn_start=open
open: injected_start=injecting, answer_start=streaming, retry_start=retrying, compaction_start=compacting
injecting: injected_end=open
asking: answer_start=streaming, retry_start=retrying, compaction_start=compacting
streaming: message_update=streaming, answer_end=tools, answer_failed=failed
failed: retry_start=retrying, compaction_start=compacting, turn_end=turn over
tools: tool_execution_start=tools, tool_execution_update=tools, tool_execution_end=tools, result_start=result, \
turn_end=turn over
result: result_end=tools
turn over: turn_start=open, agent_end=ended
retrying: retry_end=asking
compacting: compaction_end=asking
ended:
"""


def test_the_table_has_exactly_these_ways() -> None:
    """Every position, in the order of its declaration, with every event that is lawful there and where it leads."""
    lines = [
        f"{position.value}: {', '.join([f'{kind}={to.value}' for kind, to in TABLE[position].items()])}".strip()
        for position in Position
    ]
    assert lines == WAYS.split("\n")[1:-1]
    assert [phase.value for phase in Phase] == ["idle", "turn", "compaction", "retry"]
    assert len(PHASES) == 6


CALL, OTHER = ToolCall("c1", "echo"), ToolCall("c2", "echo")
USER, ANSWER = UserMessage("hi"), AssistantMessage([CALL, OTHER], "tool_use")
RESULT, OTHERS = ToolResultMessage("c1", "echo", "a"), ToolResultMessage("c2", "echo", "b")
FAILED = AssistantMessage([CALL], "error", error_message="boom")
TWIN = AssistantMessage([CALL, OTHER], "tool_use")  # equal to the answer, but another
IN_ORDER = "results come in the order of the calls, each the one that its end carried"
OVERLOADED = ErrorInfo("overloaded", "busy", 529)
OPENED: list[Event] = [AgentStart(), TurnStart(1)]
STREAMING: list[Event] = [*OPENED, MessageStart(AssistantMessage((), None))]
ASKED: list[Event] = [*STREAMING, MessageEnd(ANSWER)]
RUNNING: list[Event] = [*ASKED, ToolExecutionStart(CALL)]
RAN: list[Event] = [*RUNNING, ToolExecutionStart(OTHER), ToolExecutionEnd(OTHERS), ToolExecutionEnd(RESULT)]
TOLD: list[Event] = [*RAN, MessageStart(RESULT), MessageEnd(RESULT)]


def fed(events: list[Event]) -> Lifecycle:
    core = Lifecycle()
    for event in events:
        core.feed(event)
        if isinstance(event, RetryEnd | CompactionEnd):
            core.enter_turn()
    return core


@pytest.mark.parametrize(
    ("before", "event", "words"),
    [
        ([], AgentEnd("completed"), "L1: agent_end cannot come when the run is idle; lawful here: agent_start"),
        (OPENED, AgentStart(), "L1: agent_start cannot come when the run is open"),
        (OPENED, TurnStart(2), "L2: turn_start cannot come when the run is open"),
        (OPENED, TurnEnd(1, ANSWER), "L2: turn_end cannot come when the run is open"),
        (OPENED, MessageUpdate(TextDelta(0, "x")), "L3: message_update cannot come when the run is open"),
        (OPENED, MessageEnd(USER), "L3: injected_end cannot come when the run is open"),
        (OPENED, MessageEnd(CustomMessage("k")), "L3: injected_end cannot come when the run is open"),
        (OPENED, MessageEnd(ANSWER), "L3: answer_end cannot come when the run is open"),
        (OPENED, MessageEnd(AssistantMessage("", "aborted")), "L3: answer_failed cannot come when the run is open"),
        (OPENED, ToolExecutionStart(CALL), "T1: tool_execution_start cannot come when the run is open"),
        (OPENED, ToolExecutionUpdate("c1", "echo", ()), "T3: tool_execution_update cannot come when the run is open"),
        (OPENED, ToolExecutionEnd(RESULT), "T3: tool_execution_end cannot come when the run is open"),
        (OPENED, MessageStart(RESULT), "T4: result_start cannot come when the run is open"),
        (OPENED, MessageEnd(RESULT), "T4: result_end cannot come when the run is open"),
        (OPENED, RetryEnd(1, "resumed"), "F8: retry_end cannot come when the run is open"),
        (OPENED, CompactionEnd("failed"), "F9: compaction_end cannot come when the run is open"),
        (STREAMING, RetryStart(1, 4, 1.0, OVERLOADED), "F8: retry_start cannot come when the run is streaming"),
        (STREAMING, CompactionStart("overflow"), "F9: compaction_start cannot come when the run is streaming"),
        ([AgentStart()], TurnStart(2), "L2: turn 2 cannot follow turn 0"),
        ([AgentStart()], TurnStart(0), "L2: turn 0 cannot follow turn 0"),
        (
            [*OPENED, MessageStart(USER)],
            MessageEnd(UserMessage("hi")),
            "L3: this is the end of another message than the one that is open",
        ),
        (
            STREAMING,
            MessageEnd(AssistantMessage("x", None)),
            "L3: an assistant message ends with a stop reason",
        ),
        (ASKED, ToolExecutionStart(OTHER), "T1: call 'c2' is not the next one of its message"),
        (RAN, ToolExecutionStart(CALL), "T1: call 'c1' is not the next one of its message"),
        (ASKED, ToolExecutionUpdate("c1", "echo", ()), "T3: call 'c1' is not running"),
        (RUNNING, ToolExecutionUpdate("c2", "echo", ()), "T3: call 'c2' is not running"),
        (RUNNING, ToolExecutionEnd(OTHERS), "T3: call 'c2' is not running"),
        (RAN, ToolExecutionEnd(RESULT), "T3: call 'c1' is not running"),
        (RAN, ToolExecutionUpdate("c9", "echo", ()), "T3: call 'c9' is not running"),
        (RUNNING, MessageStart(RESULT), "T4: results come after the last end"),
        (RAN, MessageStart(OTHERS), f"T4: {IN_ORDER}"),
        (RAN, MessageStart(ToolResultMessage("c1", "echo", "a")), f"T4: {IN_ORDER}"),
        (TOLD, MessageStart(RESULT), f"T4: {IN_ORDER}"),
        ([*TOLD, MessageStart(OTHERS), MessageEnd(OTHERS)], MessageStart(OTHERS), f"T4: {IN_ORDER}"),
        (
            [*RAN, MessageStart(RESULT)],
            MessageEnd(OTHERS),
            "L3: this is the end of another message than the one that is open",
        ),
        (TOLD, TurnEnd(1, ANSWER), "T4: a turn ends after the results of all its calls"),
        (TOLD, TurnEnd(2, ANSWER), "L2: this is the end of another turn than the one that is open"),
        (TOLD, TurnEnd(1, TWIN), "L2: this is the end of another turn than the one that is open"),
    ],
)
def test_each_refusal_names_its_rule(before: list[Event], event: Event, words: str) -> None:
    """An event that the table or the facts beside it refuse is told with its rule, and nothing has changed."""
    core = fed(before)
    with pytest.raises(LifecycleError) as refused:
        core.feed(event)
    assert str(refused.value).startswith(words)
    assert refused.value.rule == words.split(":")[0]
    assert {name: getattr(core, name) for name in Lifecycle.__slots__} == {
        name: getattr(fed(before), name) for name in Lifecycle.__slots__
    }


def test_P1_a_way_between_phases_that_is_none_is_told_with_both() -> None:
    """A wait is left to a turn before another one begins; the refusal names the phases."""
    core = Lifecycle()
    for event in (*OPENED, RetryStart(1, 4, 1.0, OVERLOADED), RetryEnd(1, "resumed")):
        core.feed(event)
    with pytest.raises(LifecycleError, match=r"^P1: there is no way from phase retry to phase compaction$") as refused:
        core.feed(CompactionStart("overflow"))
    assert refused.value.rule == "P1"
    assert (core.phase, core.position) == (Phase.RETRY, Position.ASKING)


def test_P1_idle_cannot_enter_a_turn_but_turn_can() -> None:
    """Entering the turn ends a wait and changes nothing in a turn; only a run that has ended is left by `end`."""
    core = fed(OPENED)
    core.enter_turn()
    assert core.phase is Phase.TURN
    with pytest.raises(LifecycleError) as refused:
        core.end()
    assert str(refused.value).startswith("L3: idle cannot come when the run is open; lawful here: injected_start, ")


def test_P2_behind_the_last_event_only_idle_may_follow() -> None:
    """At its end a run takes nothing, and says so; then it is as it was before the first run."""
    core = fed([*STREAMING, MessageEnd(FAILED), TurnEnd(1, FAILED), AgentEnd("error")])
    with pytest.raises(
        LifecycleError, match=r"^L2: turn_start cannot come when the run is ended; lawful here: nothing$"
    ):
        core.feed(TurnStart(2))
    core.end()
    fresh = Lifecycle()
    assert {name: getattr(core, name) for name in Lifecycle.__slots__} == {
        name: getattr(fresh, name) for name in Lifecycle.__slots__
    }
    assert (fresh.phase, fresh.position, fresh.turn, fresh.open_message, fresh.standing) == (
        *(Phase.IDLE, Position.IDLE),
        *(0, None, None),
    )
    assert (fresh.calls, fresh.started, fresh.ended, fresh.results) == ((), 0, {}, 0)


def test_T6_the_calls_of_an_answer_that_failed_are_none() -> None:
    """An answer that ended `error` or `aborted` stands, but asks for nothing."""
    core = fed([*STREAMING, MessageEnd(FAILED)])
    assert (core.standing, core.calls, core.position, core.open_message) == (FAILED, (), Position.FAILED, None)
    assert core.is_running("c1") is False


def test_a_new_turn_forgets_the_turn_before() -> None:
    """What stood, what was called and what came of it belong to one turn."""
    core = fed([*TOLD, MessageStart(OTHERS), MessageEnd(OTHERS), TurnEnd(1, ANSWER, (RESULT, OTHERS)), TurnStart(2)])
    assert (core.turn, core.standing, core.calls, core.started, core.ended, core.results) == (2, None, (), 0, {}, 0)
    assert core.open_message is None


def test_a_call_is_running_between_its_start_and_its_end() -> None:
    """A call that has not started, or has ended, or is of no message, does not run."""
    core = fed(RUNNING)
    assert [core.is_running(call_id) for call_id in ("c1", "c2", "c9")] == [True, False, False]
    assert not fed(RAN).is_running("c1")
    assert not fed(OPENED).is_running("c1")


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (MessageStart(CustomMessage("k")), "injected_start"),
        (MessageStart(RESULT), "result_start"),
        (MessageStart(ANSWER), "answer_start"),
        (MessageEnd(USER), "injected_end"),
        (MessageEnd(CustomMessage("k")), "injected_end"),
        (MessageEnd(RESULT), "result_end"),
        (MessageEnd(FAILED), "answer_failed"),
        (MessageEnd(AssistantMessage("", "aborted")), "answer_failed"),
        (MessageEnd(AssistantMessage("", None)), "answer_end"),
        (AgentStart(), "agent_start"),
    ],
)
def test_a_message_is_of_a_kind_by_its_role_and_its_end(event: Event, kind: str) -> None:
    """Starts and ends of messages go by role, an answer's end also by whether it failed; other events by their type."""
    assert kind_of(event) == kind


# -- closing -----------------------------------------------------------------------------------------------------

PARTIAL = AssistantMessage("so far", "aborted", error_message="why")
CLOSING = AssistantMessage((), "error", error_message="why")


class Rest:
    """What a run that is cut off still has to say."""

    def __init__(self, *unsent: Message, carried: bool = False) -> None:
        self.waiting = list(unsent)
        self.carried = carried

    def unsent(self) -> Message | None:
        return self.waiting[0] if self.waiting else None

    def partial(self) -> AssistantMessage:
        return PARTIAL

    def closing(self) -> AssistantMessage | None:
        return None if self.carried else CLOSING

    def result(self, call: ToolCall) -> ToolResultMessage:
        return {"c1": RESULT, "c2": OTHERS}[call.id]

    def retry_end(self) -> RetryEnd:
        return RetryEnd(1, "aborted")

    def compaction_end(self) -> CompactionEnd:
        return CompactionEnd("aborted")

    def agent_end(self) -> AgentEnd:
        return AgentEnd("error", error="why")


def rest_of(before: list[Event], rest: Rest) -> list[Event]:
    """The closing events behind these, each of them taken by the core."""
    core, events = fed(before), list[Event]()
    for event in closing_events(core, rest):
        core.feed(event)
        events.append(event)
        if isinstance(event, MessageStart) and event.message in rest.waiting:
            rest.waiting.remove(event.message)
        if isinstance(event, MessageEnd) and event.message in (PARTIAL, CLOSING):
            rest.carried = True
        if isinstance(event, RetryEnd | CompactionEnd):
            core.enter_turn()
    assert core.position is Position.ENDED
    return events


def said(message: Message) -> list[Event]:
    return [MessageStart(message), MessageEnd(message)]


END = AgentEnd("error", error="why")
ENDING: list[Event] = [*said(CLOSING), TurnEnd(1, CLOSING), END]
WAITING: list[Event] = [*OPENED, RetryStart(1, 4, 1.0, OVERLOADED)]


@pytest.mark.parametrize(
    ("before", "rest", "events"),
    [
        ([], Rest(), None),
        ([AgentStart()], Rest(USER), [TurnStart(1), *said(USER), *ENDING]),
        ([AgentStart()], Rest(), [TurnStart(1), *ENDING]),
        (OPENED, Rest(USER), [*said(USER), *ENDING]),
        ([*OPENED, MessageStart(USER)], Rest(), [MessageEnd(USER), *ENDING]),
        (OPENED, Rest(carried=True), [*said(PARTIAL), TurnEnd(1, PARTIAL), END]),
        (STREAMING, Rest(), [MessageEnd(PARTIAL), TurnEnd(1, PARTIAL), END]),
        ([*STREAMING, MessageEnd(FAILED)], Rest(carried=True), [TurnEnd(1, FAILED), END]),
        (WAITING, Rest(), [RetryEnd(1, "aborted"), *ENDING]),
        ([*WAITING, RetryEnd(1, "resumed")], Rest(), ENDING),
        ([*OPENED, CompactionStart("overflow")], Rest(), [CompactionEnd("aborted"), *ENDING]),
        (
            RUNNING,
            Rest(carried=True),
            [
                *[ToolExecutionStart(OTHER), ToolExecutionEnd(RESULT), ToolExecutionEnd(OTHERS)],
                *[*said(RESULT), *said(OTHERS), TurnEnd(1, ANSWER, (RESULT, OTHERS)), END],
            ],
        ),
        (
            [*RAN, MessageStart(RESULT)],
            Rest(),
            [
                *[MessageEnd(RESULT), *said(OTHERS), TurnEnd(1, ANSWER, (RESULT, OTHERS))],
                *[TurnStart(2), *said(CLOSING), TurnEnd(2, CLOSING), END],
            ],
        ),
    ],
)
def test_F1_a_run_is_closed_on_the_shortest_way(before: list[Event], rest: Rest, events: list[Event] | None) -> None:
    """What is open is ended, what was asked for is answered, the reason is carried once, and then the run ends."""
    if events is None:
        assert list(closing_events(fed(before), rest)) == []
    else:
        assert rest_of(before, rest) == events


def test_F1_behind_a_wait_nothing_is_injected() -> None:
    """Where only the request may follow, a prompt that was not told waits for the next turn."""
    core = fed([*WAITING, RetryEnd(1, "resumed")])
    assert next_closing_event(core, Rest(USER)) == MessageStart(CLOSING)
