"""The lifecycle core alone: its tables enumerated, and what it takes held against the grammar of the specification.

The grammar is stated here a second time, as a generator and as a regular expression: whatever the first makes the core
takes, and whatever the core takes the second matches.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

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
    Phase,
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
from trio_agent._closing import next_closing_event
from trio_agent._lifecycle import PHASES, TABLE, Lifecycle, Position, kind_of

# -- the grammar of section 2, over one letter for each kind of event ------------------------------------------------

LETTERS = {
    "agent_start": "A",
    "turn_start": "T",
    "injected_start": "i",
    "injected_end": "I",
    "answer_start": "m",
    "message_update": "u",
    "answer_end": "M",
    "answer_failed": "F",
    "retry_start": "r",
    "retry_end": "R",
    "compaction_start": "c",
    "compaction_end": "C",
    "tool_execution_start": "s",
    "tool_execution_update": "p",
    "tool_execution_end": "e",
    "result_start": "x",
    "result_end": "X",
    "turn_end": "t",
    "agent_end": "Z",
}
ATTEMPT = "mu*F"  # one that does not stand has failed
ANSWER = f"(?:(?:{ATTEMPT})?(?:rR|cC))*(?:{ATTEMPT}|mu*M[spe]*(?:xX)*)"
RUN = re.compile(f"A(?:T(?:iI)*{ANSWER}t)+Z")


def assert_lawful_run(events: list[Event]) -> None:
    """The grammar, and what it cannot say: each call starts, ends and is answered once, in order (T1, T3, T4)."""
    letters = "".join([LETTERS[kind_of(event)] for event in events])
    assert RUN.fullmatch(letters), letters
    calls: list[str] = []
    started: list[str] = []
    ended: dict[str, ToolResultMessage] = {}
    answered: list[Message] = []
    for event in events:
        if isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
            sendable = event.message.stop_reason not in ("error", "aborted")
            calls = [call.id for call in event.message.tool_calls] if sendable else []
            started, ended, answered = [], {}, []
        elif isinstance(event, ToolExecutionStart):
            started.append(event.tool_call_id)
            assert started == calls[: len(started)]
        elif isinstance(event, ToolExecutionUpdate):
            assert event.tool_call_id in started
            assert event.tool_call_id not in ended
        elif isinstance(event, ToolExecutionEnd):
            assert event.tool_call_id in started
            assert event.tool_call_id not in ended
            ended[event.tool_call_id] = event.result
        elif isinstance(event, MessageStart) and isinstance(event.message, ToolResultMessage):
            assert set(ended) == set(calls)
            answered.append(event.message)
        elif isinstance(event, TurnEnd):
            assert len(answered) == len(calls)
            assert all(message is ended[call] for message, call in zip(answered, calls, strict=True))


# -- a core that is told of what it takes ---------------------------------------------------------------------------


def result_of(call: ToolCall) -> ToolResultMessage:
    return ToolResultMessage(call.id, call.name, f"result of {call.id}")


class Told:
    """A core and what it took; also what a run would say if it were closed now."""

    def __init__(self, prompt: tuple[Message, ...] = ()) -> None:
        self.core = Lifecycle()
        self.events: list[Event] = []
        self._prompt = list(prompt)
        self._carried = False

    def feed(self, event: Event) -> None:
        self.core.feed(event)
        self.events.append(event)
        if isinstance(event, MessageStart) and self._prompt and event.message is self._prompt[0]:
            del self._prompt[0]
        if isinstance(event, RetryEnd | CompactionEnd):
            self.core.enter_turn()  # as the kernel does, once the event has been delivered

    def closed(self) -> list[Event]:
        """The whole trace if the run were cut off here. Changes nothing."""
        ahead = copy.copy(self)
        ahead.core = copy.copy(self.core)
        ahead.core.ended = dict(self.core.ended)
        ahead.events = list(self.events)
        ahead._prompt = list(self._prompt)
        while (event := next_closing_event(ahead.core, ahead)) is not None:
            ahead.feed(event)
            if isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
                ahead._carried = True
            assert len(ahead.events) < len(self.events) + 100
        return ahead.events

    # What the closing events say (`trio_agent._closing.Material`)

    def unsent(self) -> Message | None:
        return self._prompt[0] if self._prompt else None

    def partial(self) -> AssistantMessage:
        return AssistantMessage((), "error", error_message="boom")

    def closing(self) -> AssistantMessage | None:
        return None if self._carried else AssistantMessage((), "error", error_message="boom")

    def result(self, call: ToolCall) -> ToolResultMessage:
        return result_of(call)

    def retry_end(self) -> RetryEnd:
        return RetryEnd(1, "failed")

    def compaction_end(self) -> CompactionEnd:
        return CompactionEnd("failed", error="boom")

    def agent_end(self) -> AgentEnd:
        return AgentEnd("error", error="boom", turns=self.core.turn)


def snapshot(core: Lifecycle) -> dict[str, Any]:
    return {name: copy.copy(getattr(core, name)) for name in Lifecycle.__slots__}


def takes(core: Lifecycle, event: Event) -> bool:
    ahead = copy.copy(core)
    ahead.ended = dict(core.ended)
    try:
        ahead.feed(event)
    except LifecycleError:
        return False
    return True


# -- lawful runs, made from the grammar ------------------------------------------------------------------------------

OVERLOADED = ErrorInfo("overloaded", "busy", 529)


@st.composite
def lawful_runs(draw: st.DrawFn) -> list[Event]:
    """A run as the grammar makes it: whatever it allows, in any order and number that it allows."""
    events: list[Event] = [AgentStart()]
    turns = draw(st.integers(1, 3))
    for turn in range(1, turns + 1):
        events.append(TurnStart(turn))
        for kind in draw(st.lists(st.sampled_from(["user", "custom"]), max_size=2)):
            message = UserMessage("hi") if kind == "user" else CustomMessage("note", turn)
            events += [MessageStart(message), MessageEnd(message)]
        for before in draw(st.lists(st.sampled_from(["retry", "compaction"]), max_size=2)):
            if draw(st.booleans()):
                events += draw(attempts("error"))
            events += (
                [RetryStart(1, 4, 1.0, OVERLOADED), RetryEnd(1, "resumed")]
                if before == "retry"
                else [CompactionStart("overflow"), CompactionEnd("compacted", UserMessage("summary"), 1)]
            )
        reason = draw(st.sampled_from(["stop", "length", "tool_use", "error", "aborted"]))
        calls = [ToolCall(f"c{turn}{n}", "echo") for n in range(draw(st.integers(0, 3)))]
        events += draw(attempts(reason, calls))
        ended: Any = events[-1]
        if reason in ("error", "aborted"):
            calls = []
        results = {call.id: result_of(call) for call in calls}
        events += draw(executions(calls, results))
        for result in results.values():
            events += [MessageStart(result), MessageEnd(result)]
        events.append(TurnEnd(turn, ended.message, tuple(results.values())))
    events.append(AgentEnd("completed", turns=turns))
    return events


@st.composite
def attempts(draw: st.DrawFn, reason: Any, calls: list[ToolCall] | None = None) -> list[Event]:
    updates = draw(st.integers(0, 2))
    message = AssistantMessage([Text("ha" * updates), *(calls or ())], reason)
    return [
        MessageStart(AssistantMessage((), None)),
        *[MessageUpdate(TextDelta(0, "ha")) for _ in range(updates)],
        MessageEnd(message),
    ]


@st.composite
def executions(draw: st.DrawFn, calls: list[ToolCall], results: dict[str, ToolResultMessage]) -> list[Event]:
    """Starts in the order of the calls; updates and ends as they come."""
    events: list[Event] = []
    waiting, running = list(calls), list[ToolCall]()
    while waiting or running:
        if waiting and (not running or draw(st.booleans())):
            running.append(waiting.pop(0))
            events.append(ToolExecutionStart(running[-1]))
        else:
            call = draw(st.sampled_from(running))
            if draw(st.booleans()):
                events.append(ToolExecutionUpdate(call.id, call.name, ()))
            else:
                running.remove(call)
                events.append(ToolExecutionEnd(results[call.id]))
    return events


# -- every event that one could think of, here and now ----------------------------------------------------------------

STRANGER = ToolCall("stranger", "echo")


def candidates(core: Lifecycle) -> Iterator[Event]:
    """Lawful and unlawful events, close to what the core holds: the right one, its equal twin, its neighbours."""
    yield from (AgentStart(), AgentEnd("completed"))
    yield from (TurnStart(core.turn + 1), TurnStart(core.turn), TurnStart(core.turn + 2))
    calls = [ToolCall(f"c{core.turn}{n}", "echo") for n in range(2)]
    for message in (UserMessage("hi"), CustomMessage("note"), AssistantMessage((), None), core.open_message):
        if message is not None:
            yield from (MessageStart(message), MessageEnd(message))
    if core.open_message is not None:
        yield MessageEnd(copy.copy(core.open_message))
    yield MessageUpdate(TextDelta(0, "ha"))
    for reason in ("stop", "length", "tool_use", "error", "aborted"):
        yield MessageEnd(AssistantMessage(calls, reason))
        yield MessageEnd(AssistantMessage("ha", reason))
    for call in (*core.calls, STRANGER):
        yield ToolExecutionStart(call)
        yield ToolExecutionUpdate(call.id, call.name, ())
        yield ToolExecutionEnd(result_of(call))
        yield MessageStart(result_of(call))
        if call.id in core.ended:
            yield MessageStart(core.ended[call.id])
            yield MessageEnd(core.ended[call.id])
    if core.standing is not None:
        yield from (TurnEnd(core.turn, core.standing), TurnEnd(core.turn + 1, core.standing))
    yield TurnEnd(core.turn, AssistantMessage("another"))
    yield from (RetryStart(1, 4, 1.0, OVERLOADED), RetryEnd(1, "resumed"))
    yield from (CompactionStart("threshold"), CompactionEnd("failed"))


# -- the tables -----------------------------------------------------------------------------------------------------


def test_every_position_has_a_row_and_every_kind_of_event_a_place() -> None:
    """The table is complete: a row for each position, and each kind of event is lawful somewhere."""
    assert set(TABLE) == set(Position)
    assert {kind for row in TABLE.values() for kind in row} == set(LETTERS)


def test_every_position_is_reached_and_left() -> None:
    """Each position can be reached from idle, and from each one a run can be brought to its end."""

    def reachable(start: Position) -> set[Position]:
        found, ahead = {start}, [start]
        while ahead:
            for target in TABLE[ahead.pop()].values():
                if target not in found:
                    found.add(target)
                    ahead.append(target)
        return found

    assert reachable(Position.IDLE) == set(Position)
    assert all(Position.ENDED in reachable(position) for position in Position)


def test_L1_nothing_is_lawful_behind_agent_end_and_nothing_leads_back_to_idle() -> None:
    """`agent_end` is a run's last event: no event follows it, and only the end of the run itself leads to idle."""
    assert TABLE[Position.ENDED] == {}
    assert Position.IDLE not in {target for row in TABLE.values() for target in row.values()}
    assert {kind for row in TABLE.values() for kind, target in row.items() if target is Position.ENDED} == {"agent_end"}


@pytest.mark.parametrize("position", [Position.INJECTING, Position.STREAMING, Position.RESULT])
def test_L3_inside_a_message_only_its_updates_and_its_end_are_lawful(position: Position) -> None:
    """No other event lies inside a message, and only assistant messages have updates."""
    inside = {
        Position.INJECTING: {"injected_end"},
        Position.STREAMING: {"message_update", "answer_end", "answer_failed"},
        Position.RESULT: {"result_end"},
    }
    assert set(TABLE[position]) == inside[position]


def test_P1_the_phases_have_exactly_these_transitions() -> None:
    """idle -> turn -> idle, turn -> compaction -> turn, turn -> retry -> turn: these are all the transitions."""
    assert {(old.value, new.value) for old, new in PHASES} == {
        ("idle", "turn"),
        ("turn", "idle"),
        ("turn", "compaction"),
        ("compaction", "turn"),
        ("turn", "retry"),
        ("retry", "turn"),
    }


@pytest.mark.parametrize(
    ("position", "event"),
    [(Position.RETRYING, CompactionStart("threshold")), (Position.COMPACTING, RetryStart(1, 4, 1.0, OVERLOADED))],
)
def test_P1_a_phase_is_not_left_for_another_wait(position: Position, event: Event) -> None:
    """There is no way from retry to compaction or back: the core raises and changes nothing."""
    told = Told()
    for before in (AgentStart(), TurnStart(1)):
        told.feed(before)
    told.core.feed(RetryStart(1, 4, 1.0, OVERLOADED) if position is Position.RETRYING else CompactionStart("threshold"))
    told.core.feed(RetryEnd(1, "resumed") if position is Position.RETRYING else CompactionEnd("failed"))
    before_it = snapshot(told.core)
    with pytest.raises(LifecycleError, match="P1: there is no way from phase"):
        told.core.feed(event)
    assert snapshot(told.core) == before_it


def test_P3_retry_and_compaction_are_the_phases_of_their_own_events_and_end_with_them() -> None:
    """From a start to its end inclusive the phase is the wait's; whatever is left of it is turn."""
    core = Lifecycle()
    phases = [core.phase]

    def feed(event: Event) -> None:
        core.feed(event)
        phases.append(core.phase)

    for before in (AgentStart(), TurnStart(1), RetryStart(1, 4, 1.0, OVERLOADED), RetryEnd(1, "resumed")):
        feed(before)
    core.enter_turn()
    phases.append(core.phase)
    for event in (CompactionStart("overflow"), CompactionEnd("failed"), MessageStart(AssistantMessage((), None))):
        feed(event)
    words = "idle turn turn retry retry turn compaction compaction turn"
    assert [phase.value for phase in phases] == words.split()


def test_a_refusal_names_the_rule_the_place_and_what_is_lawful_there() -> None:
    """An unlawful event raises an error that quotes the rule and says what could have come instead."""
    core = Lifecycle()
    core.feed(AgentStart())
    with pytest.raises(
        LifecycleError, match=r"^L1: agent_end cannot come when the run is started; lawful here: turn_start$"
    ):
        core.feed(AgentEnd("completed"))
    core.feed(TurnStart(1))
    with pytest.raises(LifecycleError, match=r"^L2: turn_end cannot come"):
        core.feed(TurnEnd(1, AssistantMessage("x")))
    assert core.position is Position.OPEN


def test_an_answer_without_a_stop_reason_is_refused() -> None:
    """An assistant message ends with a stop reason, or it has not ended."""
    core = Lifecycle()
    for event in (AgentStart(), TurnStart(1), MessageStart(AssistantMessage((), None))):
        core.feed(event)
    with pytest.raises(LifecycleError, match="L3"):
        core.feed(MessageEnd(AssistantMessage("ha", None)))
    assert core.position is Position.STREAMING


def test_a_run_that_has_not_ended_cannot_be_called_idle() -> None:
    """Only behind `agent_end` does the phase become idle in the ordinary way; the last resort works from anywhere."""
    core = Lifecycle()
    core.feed(AgentStart())
    with pytest.raises(LifecycleError):
        core.end()
    assert core.phase.value == "turn"
    core.abandon()
    assert core.phase.value == "idle"
    core.feed(AgentStart())


@pytest.mark.parametrize("position", list(Position))
def test_every_kind_of_event_is_lawful_exactly_where_the_table_says(position: Position) -> None:
    """Enumerated: at each position, each kind that the table does not list raises and changes nothing."""
    told = shortest_way_to(position)
    unlawful = {event for event in candidates(told.core) if kind_of(event) not in TABLE[position]}
    assert unlawful
    for event in unlawful:
        before = snapshot(told.core)
        with pytest.raises(LifecycleError):
            told.core.feed(event)
        assert snapshot(told.core) == before
    lawful = {kind_of(event) for event in candidates(told.core) if takes(told.core, event)}
    assert lawful <= set(TABLE[position])
    if position is not Position.TOOLS:  # there the facts decide as well, which no table holds
        assert lawful == set(TABLE[position])


def shortest_way_to(position: Position) -> Told:
    """A core that has been brought to a position with as few events as can be, by trying."""
    ahead = [Told()]
    while ahead:
        told = ahead.pop(0)
        if told.core.position is position:
            return told
        for event in candidates(told.core):
            if takes(told.core, event):
                further = copy.copy(told)
                further.core = copy.copy(told.core)
                further.core.ended = dict(told.core.ended)
                further.events = list(told.events)
                further.feed(event)
                ahead.append(further)
    raise AssertionError(f"there is no way to {position}")


# -- the core and the grammar ------------------------------------------------------------------------------------------


@given(lawful_runs())
def test_the_core_takes_every_run_that_the_grammar_makes(events: list[Event]) -> None:
    """Nothing lawful is refused."""
    told = Told()
    for event in events:
        told.feed(event)
        assert told.core.phase is not Phase.IDLE
    assert told.core.position is Position.ENDED
    told.core.end()
    assert told.core.phase is Phase.IDLE
    assert_lawful_run(events)


@given(lawful_runs(), st.data())
def test_from_any_lawful_prefix_the_closing_events_complete_a_lawful_run(
    events: list[Event], data: st.DataObject
) -> None:
    """However far a run has come, there is a lawful way to `agent_end`, and it leaves what was told as it was."""
    cut = data.draw(st.integers(1, len(events)))
    told = Told()
    for event in events[:cut]:
        told.feed(event)
    whole = told.closed()
    assert whole[:cut] == events[:cut]
    assert_lawful_run(whole)


def test_closing_tells_the_rest_of_a_prompt_before_the_closing_message() -> None:
    """F1: a prompt whose messages had not been emitted yet is emitted before the closing message."""
    told = Told(prompt=(UserMessage("a"), UserMessage("b")))
    told.feed(AgentStart())
    letters = "".join([LETTERS[kind_of(event)] for event in told.closed()])
    assert letters == "ATiIiImFtZ"


@settings(max_examples=60, stateful_step_count=30)
class LifecycleMachine(RuleBasedStateMachine):
    """Lawful events move the core, unlawful ones raise and change nothing, and closing always works."""

    def __init__(self) -> None:
        super().__init__()
        self.told = Told()

    @initialize()
    def begin(self) -> None:
        self.told.feed(AgentStart())

    @precondition(lambda self: self.told.core.position is not Position.ENDED)
    @rule(data=st.data())
    def lawful(self, data: st.DataObject) -> None:
        events = [event for event in candidates(self.told.core) if takes(self.told.core, event)]
        self.told.feed(data.draw(st.sampled_from(events)))

    @rule(data=st.data())
    def unlawful(self, data: st.DataObject) -> None:
        core = self.told.core
        event = data.draw(st.sampled_from([event for event in candidates(core) if not takes(core, event)]))
        before = snapshot(core)
        with pytest.raises(LifecycleError):
            core.feed(event)
        assert snapshot(core) == before

    @invariant()
    def can_be_closed(self) -> None:
        assert_lawful_run(self.told.closed())


TestLifecycleMachine = LifecycleMachine.TestCase
