"""The judge on what events say: one small trace for each sentence that it can say, and its lawful neighbours."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import pytest

from trio_agent import (
    AgentEnd,
    AgentStart,
    AssistantMessage,
    CompactionEnd,
    CompactionStart,
    CustomMessage,
    Event,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    Phase,
    RetryEnd,
    RetryStart,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResultMessage,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from trio_agent._codec import encode_line
from trio_agent._events import Delta, ErrorInfo, ToolCallFragment
from trio_agent.testing import LifecycleViolation, TraceChecker, Violation, check_trace

# -- traces in few words ------------------------------------------------------------------------------------------

Part = Event | Sequence[Event]
EMPTY = AssistantMessage((), None)


def flat(*parts: Part) -> list[Event]:
    return [event for part in parts for event in (part if isinstance(part, list | tuple) else [part])]  # type: ignore[misc]


def run(*parts: Part, outcome: str = "completed", reason: str | None = None) -> list[Event]:
    events = flat(*parts)
    turns = sum(isinstance(event, TurnStart) for event in events)
    return [AgentStart(), *events, AgentEnd(outcome, reason, turns)]  # type: ignore[arg-type]


def turn(number: int, *parts: Part) -> list[Event]:
    events = flat(*parts)
    ends = [event.message for event in events if isinstance(event, MessageEnd)]
    standing = [message for message in ends if isinstance(message, AssistantMessage)][-1]
    results = tuple([message for message in ends if isinstance(message, ToolResultMessage)])
    return [TurnStart(number), *events, TurnEnd(number, standing, results)]


def said(message: Any) -> list[Event]:
    return [MessageStart(message), MessageEnd(message)]


def user(text: str = "hi") -> list[Event]:
    return said(UserMessage(text))


def streamed(message: AssistantMessage, *deltas: Delta) -> list[Event]:
    return [MessageStart(EMPTY), *[MessageUpdate(delta) for delta in deltas], MessageEnd(message)]


def answer(text: str = "ok", stop: str = "stop") -> list[Event]:
    return streamed(AssistantMessage(text, stop), TextDelta(0, text))  # type: ignore[arg-type]


def failed(stop: str = "error") -> list[Event]:
    return streamed(AssistantMessage((), stop, error_message="broke"))  # type: ignore[arg-type]


def asked(*ids: str, stop: str = "tool_use", name: str = "read") -> list[Event]:
    calls = [ToolCall(call_id, name) for call_id in ids]
    fragments = [ToolCallFragment(at, call.id, call.name, "") for at, call in enumerate(calls)]
    return streamed(AssistantMessage(calls, stop), *fragments)  # type: ignore[arg-type]


def start(call_id: str, name: str = "read") -> Event:
    return ToolExecutionStart(ToolCall(call_id, name))


def update(call_id: str, name: str = "read") -> Event:
    return ToolExecutionUpdate(call_id, name, (Text("…"),))


def result(call_id: str, *, error: bool = False) -> ToolResultMessage:
    return ToolResultMessage(call_id, "read", f"of {call_id}", error)


def end(call_id: str, *, error: bool = False) -> Event:
    return ToolExecutionEnd(result(call_id, error=error))


def ran(*ids: str) -> list[Event]:
    results = [event for call_id in ids for event in said(result(call_id))]
    return [*[start(call_id) for call_id in ids], *[end(call_id) for call_id in ids], *results]


def retry(attempt: int = 1, outcome: str = "resumed", most: int = 4, delay: float = 1.0) -> list[Event]:
    error = ErrorInfo("overloaded", "busy", 529)
    return [RetryStart(attempt, most, delay, error), RetryEnd(attempt, outcome)]  # type: ignore[arg-type]


def compaction(kept: int | None, reason: str = "threshold", outcome: str = "compacted") -> list[Event]:
    summary = None if kept is None else UserMessage("so far")
    return [CompactionStart(reason), CompactionEnd(outcome, summary, kept)]  # type: ignore[arg-type]


DONE = turn(2, answer())
FOUND = turn(1, user(), asked("a"), ran("a"))


def with_calls(*events: Part) -> list[Event]:
    """A run with calls a, b and c in its first turn."""
    return run(turn(1, user(), asked("a", "b", "c"), *events), DONE)


RESULTS = [event for call_id in "abc" for event in said(result(call_id))]
STARTS = [start("a"), start("b"), start("c")]


# -- each sentence -------------------------------------------------------------------------------------------------


class Aliased:
    """What an update must not hold: a view that shows what the message became."""

    def message_at(self, _length: int) -> AssistantMessage:
        return AssistantMessage("he and more", None)


LATE_ERRORS = [event for call_id in "abc" for event in said(result(call_id, error=call_id == "a"))]
ABORTED_IN_PREPARATION = [
    *[start("a"), start("b"), end("a", error=True), start("c"), end("b", error=True), end("c", error=True)],
    *[event for call_id in "abc" for event in said(result(call_id, error=True))],
]

# A name, the trace, the rule and the index of what is found, and some of its text.
FAULTS: list[tuple[str, list[Event], str, int, str]] = [
    ("a turn is skipped", run(turn(2, user(), answer())), "L2", 1, "this is turn 1 of the run, not 2"),
    (
        "turn_end of another turn",
        [AgentStart(), TurnStart(1), *answer(), TurnEnd(2, AssistantMessage("ok"))],
        "L2",
        5,
        "turn 1 is open, not turn 2",
    ),
    (
        "turn_end with another message",
        [AgentStart(), TurnStart(1), *answer(), TurnEnd(1, AssistantMessage("other"))],
        "L2",
        5,
        "another message than the one that stands",
    ),
    (
        "turns miscounted",
        [*run(turn(1, answer()))[:-1], AgentEnd("completed", None, 2)],
        "L2",
        6,
        "the run had 1 turns, not 2",
    ),
    ("no turn", run(), "L2", 1, "before the first turn; could have come: turn_start"),
    ("two beginnings", [AgentStart(), AgentStart()], "L1", 1, "before the first turn"),
    ("two ends", [*run(turn(1, answer())), AgentEnd("completed", None, 1)], "L1", 7, "outside of any run"),
    (
        "a user message that changes",
        run(turn(1, MessageStart(UserMessage("a")), MessageEnd(UserMessage("b")), answer())),
        "L3",
        3,
        "not the message that started",
    ),
    (
        "an answer that does not say why it ended",
        run(turn(1, streamed(EMPTY))),
        "L3",
        3,
        "no stop reason",
    ),
    (
        "an update of a user message",
        run(turn(1, user()[0], MessageUpdate(TextDelta(0, "x")), user()[1], answer())),
        "L3",
        3,
        "inside a user message",
    ),
    (
        "an end without a start",
        run(turn(1, answer()[1:])),
        "L3",
        2,
        "at the beginning of a turn; could have come: message_start user, message_start assistant",
    ),
    (
        "an answer that starts full",
        run(turn(1, MessageStart(AssistantMessage("ok", None)), MessageUpdate(TextDelta(0, "ok")), answer()[-1])),
        "L4",
        2,
        "what no update has told yet",
    ),
    (
        "another text",
        run(turn(1, streamed(AssistantMessage("hello"), TextDelta(0, "he"), TextDelta(0, "lo")))),
        "L4",
        5,
        'block 0: the updates told text "helo", the message has "hello"',
    ),
    (
        "a text that nobody told",
        run(turn(1, streamed(AssistantMessage([Text("a"), Text("b")]), TextDelta(0, "a")))),
        "L4",
        4,
        "the updates told 1 block, the message has 2",
    ),
    (
        "blocks in another order",
        run(turn(1, streamed(AssistantMessage([Text("b"), Text("a")]), TextDelta(0, "a"), TextDelta(1, "b")))),
        "L4",
        5,
        'block 0: the updates told text "a", the message has "b"',
    ),
    (
        "thinking told as text",
        run(turn(1, streamed(AssistantMessage([Text("a")]), ThinkingDelta(0, "a")))),
        "L4",
        4,
        "the updates told thinking, the message has text",
    ),
    (
        "two kinds in one block",
        run(turn(1, streamed(AssistantMessage("ab"), TextDelta(0, "a"), ThinkingDelta(0, "b")))),
        "L4",
        5,
        'told text "a"',
    ),
    (
        "other arguments",
        [
            AgentStart(),
            TurnStart(1),
            *streamed(
                AssistantMessage([ToolCall("a", "read", {"n": 1})], "tool_use"), ToolCallFragment(0, "a", "read", "{}")
            ),
        ],
        "L4",
        4,
        'the updates told arguments "{}", the message has "{"n":1}"',
    ),
    (
        "another call",
        [
            AgentStart(),
            TurnStart(1),
            *streamed(AssistantMessage([ToolCall("b", "read")], "tool_use"), ToolCallFragment(0, "a", "read", "")),
        ],
        "L4",
        4,
        "the updates told call a of read, the message has b of read",
    ),
    (
        "an update that shows what came later",
        run(
            turn(
                1,
                MessageStart(EMPTY),
                MessageUpdate(TextDelta(0, "he"), view=Aliased(), length=1),
                MessageUpdate(TextDelta(0, " and more")),
                MessageEnd(AssistantMessage("he and more")),
            )
        ),
        "L4",
        5,
        "its first update, read now, shows what came later",
    ),
    (
        "another tool's start",
        with_calls(start("a", "write"), *STARTS[1:], end("a"), end("b"), end("c"), RESULTS),
        "T1",
        9,
        "name or arguments are not those of the message",
    ),
    ("an unknown start", with_calls(start("x"), ran("a", "b", "c")), "T1", 9, "the message has no call x"),
    (
        "a second start",
        with_calls(start("a"), start("a"), *STARTS[1:], end("a"), end("b"), end("c"), RESULTS),
        "T1",
        10,
        "call a has started already",
    ),
    (
        "a report before all calls are prepared",
        with_calls(start("a"), update("a"), *STARTS[1:], end("a"), end("b"), end("c"), RESULTS),
        "T1",
        10,
        "call b has not been prepared yet",
    ),
    (
        "an answer before all calls are prepared",
        with_calls(start("a"), end("a"), *STARTS[1:], end("b"), end("c"), RESULTS),
        "T1",
        10,
        "call b has not been prepared yet",
    ),
    (
        "an early failure of a call that was not in preparation",
        with_calls(start("a"), start("b"), end("a", error=True), start("c"), end("b"), end("c"), LATE_ERRORS),
        "T1",
        11,
        "call c has not been prepared yet, and the run was not aborted",
    ),
    ("an end of nothing", with_calls(STARTS, end("x"), end("a"), end("b"), end("c"), RESULTS), "T3", 12, "no call x"),
    (
        "a report behind the end",
        with_calls(STARTS, end("a"), update("a"), end("b"), end("c"), RESULTS),
        "T3",
        13,
        "call a has ended already",
    ),
    (
        "a report of another tool",
        with_calls(STARTS, update("a", "write"), end("a"), end("b"), end("c"), RESULTS),
        "T3",
        12,
        "call a is one of read, not of write",
    ),
    ("no end", with_calls(STARTS, end("a"), end("b")), "T3", 14, "while calls are under way"),
    ("no results", with_calls(STARTS, end("a"), end("b"), end("c")), "T4", 15, "behind the end of all calls"),
    (
        "a result before the last end",
        with_calls(STARTS, end("a"), said(result("a")), end("b"), end("c"), RESULTS[2:]),
        "T4",
        13,
        "while calls are under way",
    ),
    (
        "another result than the end's",
        with_calls(STARTS, end("a"), end("b"), end("c"), said(result("a", error=True)), RESULTS[2:]),
        "T4",
        15,
        "not the result that the end of call a carried",
    ),
    (
        "a result that changes",
        with_calls(STARTS, end("a"), end("b"), end("c"), RESULTS[0], MessageEnd(result("a", error=True)), RESULTS[2:]),
        "T4",
        16,
        "not the message that started",
    ),
    (
        "turn_end without the results",
        [
            *run(FOUND)[:-2],
            TurnEnd(1, AssistantMessage([ToolCall("a", "read")], "tool_use"), ()),
            AgentEnd("stopped", None, 1),
        ],
        "T4",
        11,
        "not those whose messages came",
    ),
    (
        "a report of a call that was cut",
        run(
            turn(
                1,
                asked("a", stop="length"),
                start("a"),
                update("a"),
                end("a", error=True),
                said(result("a", error=True)),
            ),
            DONE,
        ),
        "T6",
        6,
        "its calls are not executed",
    ),
    (
        "a call of a failed message",
        run(
            turn(
                1,
                streamed(
                    AssistantMessage([ToolCall("a", "read")], "error", error_message="broke"),
                    ToolCallFragment(0, "a", "read", "{}"),
                ),
                start("a"),
            ),
            outcome="error",
        ),
        "T6",
        5,
        "behind an answer that failed",
    ),
    ("a call without an id", [AgentStart(), TurnStart(1), *asked("")], "T7", 4, "a call of read has no id"),
    (
        "one id twice in a message",
        run(turn(1, asked("a", "a"), ran("a")), DONE),
        "T7",
        5,
        "the call id a is in history already",
    ),
    (
        "a message between the answer and the turn's end",
        run(turn(1, answer(), user())),
        "Q1",
        5,
        "behind an answer without calls; could have come: turn_end",
    ),
    (
        "a failure without words",
        run(turn(1, streamed(AssistantMessage((), "error"))), outcome="error"),
        "F1",
        3,
        "without an error_message",
    ),
    (
        "a turn behind the abort",
        run(turn(1, failed("aborted")), DONE, outcome="completed"),
        "F1",
        5,
        "behind a turn that was aborted",
    ),
    (
        "an answer behind the failure",
        run(turn(1, failed()), DONE),
        "F1",
        8,
        "the run failed before, so only a closing message may come",
    ),
    (
        "a message behind the failure",
        run(turn(1, failed()), turn(2, user(), failed()), outcome="error"),
        "F1",
        6,
        "before the closing message",
    ),
    (
        "two closing turns",
        run(turn(1, failed()), turn(2, failed()), turn(3, failed()), outcome="error"),
        "F1",
        9,
        "the run has had its closing message",
    ),
    (
        "an answer behind a failed wait",
        run(turn(1, user(), retry(1, "failed"), answer())),
        "F1",
        8,
        "only a closing message may come",
    ),
    (
        "an aborted run without a closing message",
        run(turn(1, answer()), outcome="aborted"),
        "F1",
        6,
        "the run has no closing message",
    ),
    (
        "a turn that ends with calls unanswered",
        run(turn(1, asked("a")), DONE),
        "F2",
        5,
        "behind an answer with calls; could have come: tool_execution_start",
    ),
    ("attempts miscounted", run(turn(1, retry(2), answer())), "F8", 2, "this is failed attempt 1 of the turn, not 2"),
    ("too many attempts", run(turn(1, retry(1, most=1), answer())), "F8", 2, "attempt 1 of at most 1 failed"),
    ("a wait back in time", run(turn(1, retry(delay=-1.0), answer())), "F8", 2, "nobody can wait -1.0 seconds"),
    (
        "the end of another wait",
        run(turn(1, retry(1)[0], RetryEnd(2, "resumed"), answer())),
        "F8",
        3,
        "the wait is that of attempt 1",
    ),
    (
        "an event in the wait",
        run(turn(1, retry()[0], user(), retry()[1], answer())),
        "F8",
        3,
        "in the wait before a retry",
    ),
    (
        "an answer that is tried again",
        run(turn(1, answer(), retry(), answer())),
        "F8",
        5,
        "behind an answer without calls",
    ),
    (
        "two overflows",
        run(turn(1, compaction(0, "overflow"), compaction(0, "overflow"), answer())),
        "F9",
        4,
        "the turn has had a compaction after an overflow",
    ),
    (
        "two compactions",
        run(turn(1, compaction(0), compaction(0), answer())),
        "F9",
        4,
        "has had a compaction at the threshold",
    ),
    (
        "a compaction that failed, tried again too early",
        [
            *run(turn(1, compaction(None, outcome="failed"), failed()), outcome="error"),
            *run(turn(1, compaction(0), answer())),
        ],
        "F9",
        10,
        "one at the threshold failed, and no turn has succeeded since",
    ),
    (
        "a compaction at the threshold behind a failed attempt",
        run(turn(1, failed(), compaction(0), answer())),
        "F9",
        4,
        "behind an answer that failed",
    ),
    (
        "a compaction that says too little",
        run(turn(1, compaction(None), answer())),
        "F9",
        3,
        "it does not say what replaced what",
    ),
    (
        "a failed compaction that replaced something",
        run(turn(1, compaction(0, outcome="failed"), answer())),
        "F9",
        3,
        "nothing was replaced, yet it says what by",
    ),
    ("a message before history", run(turn(1, compaction(-1), answer())), "F9", 3, "history has no message -1"),
    (
        "an answer behind an overflow that stayed",
        run(turn(1, compaction(None, "overflow", "failed"), answer())),
        "F9",
        6,
        "the compaction after an overflow failed",
    ),
    (
        "an answer behind a compaction that was aborted",
        run(turn(1, compaction(None, outcome="aborted"), answer())),
        "A2",
        6,
        "the run was aborted before",
    ),
    (
        "a failed run that says completed",
        run(turn(1, failed())),
        "F10",
        5,
        "the closing message says error",
    ),
    (
        "a cut answer without its reason",
        run(turn(1, answer(stop="length"))),
        "A8",
        6,
        "the reason is length",
    ),
]


@pytest.mark.parametrize(
    ("trace", "rule", "index", "text"), [fault[1:] for fault in FAULTS], ids=[f[0] for f in FAULTS]
)
def test_a_fault_is_found_at_its_event_and_nothing_else(trace: list[Event], rule: str, index: int, text: str) -> None:
    """One fault gives one finding: its rule, its event, and words that say what is wrong."""
    found = check_trace(trace)
    assert [(violation.rule, violation.index) for violation in found] == [(rule, index)], [str(one) for one in found]
    assert text in found[0].text


LAWFUL: dict[str, list[Event]] = {
    "an application's message": run(turn(1, said(CustomMessage("note", 1)), answer())),
    "nothing new, as resume has it": run(turn(1, answer())),
    "empty text and thinking count for nothing": run(
        turn(
            1,
            streamed(
                AssistantMessage([Thinking("", redacted="x"), Text("a"), Text("")]), TextDelta(3, ""), TextDelta(5, "a")
            ),
        )
    ),
    "blank arguments are {}": run(
        turn(
            1,
            streamed(
                AssistantMessage([ToolCall("a", "read", raw=" \n"), ToolCall("b", "read", raw="null")], "tool_use"),
                *[ToolCallFragment(0, "a", "read", part) for part in ("", " ", "\n")],
                *[ToolCallFragment(1, "b", "read", part) for part in ("nu", "ll")],
            ),
            ran("a", "b"),
        ),
        outcome="stopped",
    ),
    "calls under stop run": run(turn(1, asked("a", stop="stop"), ran("a")), DONE),
    "a refusal ends before the next start": with_calls(
        start("a"), end("a", error=True), *STARTS[1:], end("c"), end("b"), LATE_ERRORS
    ),
    "an abort in the preparation ends any call": run(
        turn(1, user(), asked("a", "b", "c"), ABORTED_IN_PREPARATION), turn(2, failed("aborted")), outcome="aborted"
    ),
    "calls of a cut message, one behind the other or not": run(
        turn(
            1,
            asked("a", "b", stop="length"),
            [start("a"), start("b"), end("b", error=True), end("a", error=True)],
            [event for call_id in "ab" for event in said(result(call_id, error=True))],
        ),
        DONE,
    ),
    "a failed attempt's ids may come again": run(
        turn(
            1,
            streamed(
                AssistantMessage([ToolCall("a", "read")], "error", error_message="x"),
                ToolCallFragment(0, "a", "read", ""),
            ),
            retry(),
            asked("a"),
            ran("a"),
        ),
        outcome="stopped",
    ),
    "an attempt counts from one in each turn": run(
        turn(1, user(), retry(1), retry(2), asked("a"), ran("a")), turn(2, retry(1), answer())
    ),
    "an overflow may count as a failed attempt": run(turn(1, failed(), compaction(0, "overflow"), retry(2), answer())),
    "or not": run(turn(1, failed(), compaction(0, "overflow"), retry(1), answer())),
    "a compaction that failed at the threshold changes nothing": run(
        turn(1, compaction(None, outcome="failed"), answer())
    ),
    "and may be tried again when a turn has succeeded": [
        *run(turn(1, compaction(None, outcome="failed"), answer())),
        *run(turn(1, compaction(0), answer())),
    ],
    "a failed attempt stands, and the run was aborted behind it": run(
        turn(1, failed()), turn(2, failed("aborted")), outcome="aborted"
    ),
    "a closing turn may be left out of the count": [
        *run(turn(1, answer()), turn(2, failed()))[:-1],
        AgentEnd("error", None, 1),
    ],
    "an abort in the wait": run(turn(1, retry(1, "aborted"), failed("aborted")), outcome="aborted"),
    "an abort in a compaction after an overflow": run(
        turn(1, failed(), compaction(None, "overflow", "aborted"), failed("aborted")), outcome="aborted"
    ),
    "a cut answer": run(turn(1, answer(stop="length")), reason="length"),
    "tool_use without calls": run(turn(1, answer(stop="tool_use"))),
}


@pytest.mark.parametrize("name", LAWFUL)
def test_what_is_seldom_but_lawful_is_lawful(name: str) -> None:
    """The neighbours of the faults above: nothing is found in them."""
    assert [str(violation) for violation in check_trace(LAWFUL[name], complete=True)] == []


# -- what a violation says -----------------------------------------------------------------------------------------


def test_a_violation_says_what_came_what_could_have_and_about_what() -> None:
    """Rule, index, event, alternatives and the call or message in question, each in a field of its own."""
    (violation,) = check_trace(with_calls(STARTS, end("a"), end("a"), end("b"), end("c"), RESULTS))
    assert violation == Violation(
        "T3",
        13,
        'tool_execution_end a ok "of a"',
        ("tool_execution_start", "tool_execution_update", "tool_execution_end"),
        "a",
        'tool_execution_end a ok "of a": call a has ended already',
    )
    assert str(violation) == f"T3 at event 13: {violation.text}"
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        violation.rule = "T4"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("trace", "about"),
    [
        (run(turn(1, answer(), user())), "user message"),
        (run(turn(1, answer(), answer())), "assistant message"),
        (with_calls(STARTS, end("a"), end("b"), end("c"), RESULTS[2:]), "a"),
        ([AgentStart(), TurnStart(1), *asked("a"), *failed()], "a"),
        (run(turn(1, retry(2), answer())), "turn 1"),
        ([*run(turn(1, answer())), AgentEnd("completed")], "run 1"),
        ([AgentStart(), MessageUpdate(TextDelta(0, "x"))], "assistant message"),
    ],
)
def test_a_violation_is_about_a_call_a_message_a_turn_or_a_run(trace: list[Event], about: str) -> None:
    """`about` names the thing that a reader would look for."""
    assert check_trace(trace)[0].about == about


def test_a_late_event_of_an_earlier_run_is_told_apart() -> None:
    """A call's event inside a later run breaks L1, by the name of its call, and disturbs nothing of that run."""
    first = run(FOUND, outcome="stopped")
    second = run(turn(1, user(), answer()))
    second.insert(5, update("a"))
    (violation,) = check_trace([*first, *second])
    assert (violation.rule, violation.index, violation.about) == ("L1", len(first) + 5, "a")


@pytest.mark.parametrize(
    ("at", "rule"),
    [(1, "L2"), (2, "L3"), (3, "L3"), (4, "L3"), (6, "L3"), (7, "T3"), (9, "L3"), (10, "L3"), (11, "L2"), (12, "L2")],
)
def test_one_missing_event_gives_one_finding(at: int, rule: str) -> None:
    """The judge takes what is missing for granted and goes on, so one fault is not many."""
    trace = run(FOUND, DONE)
    del trace[at]
    assert [violation.rule for violation in check_trace(trace)] == [rule]


# -- told more -----------------------------------------------------------------------------------------------------

KEPT = turn(2, compaction(2), answer())


def test_a_known_history_lets_the_judge_follow_ids_and_compactions() -> None:
    """Ids of the history before are taken; a compaction drops those that it did not keep; its index must exist."""
    before = [UserMessage("u"), AssistantMessage([ToolCall("old", "read")], "tool_use"), result("old")]
    uses_old = turn(1, user(), asked("old"), ran("old"))
    assert [v.rule for v in check_trace(run(uses_old, DONE), history=before)] == ["T7"]
    shortened = turn(1, user(), compaction(3), asked("old"), ran("old"))
    assert check_trace(run(shortened, DONE), history=before) == []
    kept = turn(1, user(), compaction(1), asked("old"), ran("old"))
    assert [v.rule for v in check_trace(run(kept, DONE), history=before)] == ["T7"]
    parted = turn(1, user(), compaction(2), answer())
    assert [v.rule for v in check_trace(run(parted), history=before)] == ["F9"]
    beyond = turn(1, user(), compaction(5), answer())
    assert [v.rule for v in check_trace(run(beyond), history=before)] == ["F9"]


def test_after_a_compaction_the_indexes_count_from_the_summary() -> None:
    """Behind a compaction history is the summary and what was kept; the next one is judged against that."""
    first = turn(1, user(), asked("a"), ran("a"))
    second = turn(2, compaction(1), asked("b"), ran("b"))  # summary, a, result, b, result
    parts_b = run(first, second, turn(3, compaction(4), answer()))
    assert [v.text.partition(": ")[2] for v in check_trace(parts_b, history=())] == ["it parts call b from its result"]
    parts_a = run(first, second, turn(3, compaction(2), answer()))
    assert [v.text.partition(": ")[2] for v in check_trace(parts_a, history=())] == ["it parts call a from its result"]
    assert check_trace(run(first, second, turn(3, compaction(3), answer())), history=()) == []


def test_serial_tools_are_barriers() -> None:
    """No call reports or succeeds before an earlier serial one has ended, and no serial one before any earlier one."""
    early = with_calls(STARTS, update("b"), end("a"), end("b"), end("c"), RESULTS)
    assert [(v.rule, v.index) for v in check_trace(early, serial_tools=["read"])] == [("T2", 12)]
    assert check_trace(early, serial_tools=["write"]) == []
    failing = [event for call_id in "abc" for event in said(result(call_id, error=call_id == "b"))]
    gave_up = with_calls(STARTS, end("b", error=True), end("a"), end("c"), failing)
    assert [(v.rule, v.index) for v in check_trace(gave_up, serial_tools=["read"])] == [("T2", 12)]
    aborted = [*gave_up[:-6], *turn(2, failed("aborted")), AgentEnd("aborted", None, 2)]
    assert check_trace(aborted, serial_tools=["read"], complete=True) == []


def queue_findings(trace: list[Event], **log: Any) -> list[tuple[str, int]]:
    return [(violation.rule, violation.index) for violation in check_trace(trace, **log)]


ONE, TWO = UserMessage("one"), UserMessage("two")
TOLD = run(turn(1, user(), answer()), turn(2, said(ONE), answer()), turn(3, said(TWO), answer()))


def test_a_queued_message_comes_once_or_waits() -> None:
    """With the log of what was queued: lost, never queued, twice, and waiting are told apart (Q2)."""
    assert queue_findings(TOLD, steered=[ONE, TWO]) == []
    assert queue_findings(TOLD, steered=[ONE], followed_up=[TWO]) == []
    assert queue_findings(TOLD, steered=[ONE]) == [("Q2", 16)]
    lost = UserMessage("lost")
    assert queue_findings(TOLD, steered=[ONE, lost], followed_up=[TWO]) == [("Q2", len(TOLD))]
    assert queue_findings(TOLD, steered=[ONE, lost], followed_up=[TWO], waiting=[lost]) == []
    assert queue_findings(TOLD, steered=[ONE, TWO], waiting=[TWO]) == [("Q2", 16)]
    assert queue_findings(TOLD, steered=[ONE, TWO, ONE]) == [("Q2", len(TOLD))]
    assert queue_findings(TOLD, steered=[ONE, TWO, ONE], waiting=[ONE]) == []


def test_a_message_is_not_lost_while_the_run_goes_on() -> None:
    """In the middle of a run what has not come may still come; at its end it is lost."""
    assert queue_findings(TOLD[:10], steered=[ONE, TWO]) == []
    assert [rule for rule, _ in queue_findings(TOLD[:10], steered=[ONE, TWO], complete=True)] == ["L3", "Q2"]


def test_queues_keep_their_order_and_follow_ups_wait_for_the_end() -> None:
    """A later message before an earlier one of its queue (Q3); a follow-up while results wait for an answer (Q1)."""
    assert queue_findings(TOLD, steered=[TWO, ONE]) == [("Q3", 9)]
    early = run(FOUND, turn(2, said(ONE), answer()))
    assert queue_findings(early, followed_up=[ONE]) == [("Q1", 13)]
    assert queue_findings(early, steered=[ONE]) == []


def test_prompts_need_no_queue() -> None:
    """In a run's first turn a message that nobody queued is a prompt; one that was queued counts as delivered."""
    assert queue_findings(run(turn(1, said(ONE), user(), answer())), steered=[ONE]) == []


def test_phases_are_judged_at_each_event() -> None:
    """The phase may be given as the enum or its name; a wrong one names what it should be."""
    trace = run(turn(1, user(), retry(), compaction(0), answer()))
    right = [Phase.TURN] * 4 + [Phase.RETRY] * 2 + [Phase.COMPACTION] * 2 + [Phase.TURN] * 5
    assert check_trace(trace, phases=right) == []
    assert check_trace(trace, phases=[phase.value for phase in right]) == []
    wrong = [*right[:9], Phase.RETRY, *right[10:]]
    (violation,) = check_trace(trace, phases=wrong)
    assert (violation.rule, violation.index, violation.came) == ("P3", 9, 'message_update "ok"')
    with pytest.raises(ValueError, match="fewer phases than events"):
        check_trace(trace, phases=right[:3])


# -- the subscriber ------------------------------------------------------------------------------------------------


def test_a_checker_looks_at_the_phase_itself() -> None:
    """`phase` is asked at each event."""
    phases = iter(["turn", "idle"])
    checker = TraceChecker(phase=lambda: next(phases))
    checker(AgentStart())
    with pytest.raises(LifecycleViolation, match="P2 at event 1: turn_start 1: the phase is idle, not turn"):
        checker(TurnStart(1))


def test_a_checker_raises_at_each_unlawful_event_and_keeps_them() -> None:
    """It goes on behind the first one; `violations` has all."""
    checker = TraceChecker()
    for event in [AgentStart(), TurnStart(1), *user()]:
        checker(event)
    for _ in range(2):
        with pytest.raises(LifecycleViolation):
            checker(AgentStart())
    assert [violation.index for violation in checker.violations] == [4, 5]


def test_finish_says_whether_the_trace_is_whole_and_the_queues_are_settled() -> None:
    """An open run, and a message that was queued and never came, are found at the end; the log may grow meanwhile."""
    steered: list[Any] = []
    checker = TraceChecker(steered=steered)
    trace = run(turn(1, user(), answer()))
    for event in trace[:-1]:
        checker(event)
    with pytest.raises(
        LifecycleViolation,
        match="L1 at event 8: the trace ended between two turns; could have come: turn_start, agent_end",
    ):
        checker.finish()
    checker(trace[-1])
    checker.finish()
    steered.append(ONE)
    with pytest.raises(LifecycleViolation, match='Q2 at event 9: user "one" was steered and never came'):
        checker.finish()
    checker.finish(waiting=[ONE])


@pytest.mark.parametrize(
    ("length", "rule"),
    [(1, "L2"), (2, "L2"), (3, "L3"), (5, "L3"), (7, "F2"), (8, "T3"), (9, "T4"), (10, "L3"), (11, "L2"), (12, "L1")],
)
def test_the_rule_of_a_trace_that_breaks_off_is_that_of_what_is_open(length: int, rule: str) -> None:
    """The innermost thing that is open names the rule."""
    assert [violation.rule for violation in check_trace(run(FOUND, DONE)[:length], complete=True)] == [rule]


def test_what_is_no_event_is_an_error_of_the_caller() -> None:
    """Values, objects and lines that are no events raise; they are no findings."""
    with pytest.raises(TypeError, match="int is no event; the judge takes an event, its JSON object or its JSON line"):
        check_trace([5])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="UserMessage is no event"):
        check_trace([{"role": "user", "content": []}])
    with pytest.raises(ValueError, match="not JSON"):
        check_trace(["{"])


# -- size ----------------------------------------------------------------------------------------------------------


def test_a_pair_of_surrogates_may_be_parted_by_two_deltas() -> None:
    """JSON joins what two deltas parted; the judge takes both spellings for the same text."""
    trace = run(turn(1, streamed(AssistantMessage("\ud83d\ude00"), TextDelta(0, "\ud83d"), TextDelta(0, "\ude00"))))
    assert check_trace(trace) == []
    assert check_trace([encode_line(event) for event in trace]) == []


def test_a_difference_in_a_long_message_is_found() -> None:
    """However many updates there are, each counts; the finding shows the beginning and the lengths."""
    parts = [f"{number} " for number in range(1000)]
    told = [TextDelta(0, part) for part in parts]
    assert check_trace(run(turn(1, streamed(AssistantMessage("".join(parts)), *told)))) == []
    parts[700] = "seven hundred "
    (violation,) = check_trace(run(turn(1, streamed(AssistantMessage("".join(parts)), *told))))
    assert violation.rule == "L4"
    assert '…" (3890 characters), the message has "' in violation.text


def endless(updates: int) -> Iterator[Event]:
    yield from (AgentStart(), TurnStart(1), MessageStart(EMPTY))
    for number in range(updates):
        yield MessageUpdate(TextDelta(0, f"{number:0100}"))


def test_a_message_of_any_length_costs_the_judge_the_same() -> None:
    """Memory for an open message does not grow with its text."""
    check_trace(endless(100))
    tracemalloc.start()
    try:
        check_trace(endless(20_000))  # two million characters
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200_000


def test_turns_that_are_over_cost_nothing_but_their_ids() -> None:
    """A thousand turns of a run leave the ids of their calls, and nothing else."""
    checker = TraceChecker()
    checker(AgentStart())
    for number in range(1, 1001):
        for event in turn(number, asked(f"c{number}"), ran(f"c{number}")):
            checker(event)
    memory = checker._judge.memory
    assert len(memory.used) == 1000
    assert (memory.calls, memory.ended, memory.answers, memory.position, memory.doubts) == ((), {}, [], {}, [])


def test_a_message_inside_an_answer_is_a_breach_of_its_own_and_the_answer_goes_on() -> None:
    """The judge says so once, and then takes the rest as it comes."""
    inside = [MessageStart(EMPTY), MessageUpdate(TextDelta(0, "o")), *user(), MessageUpdate(TextDelta(0, "k"))]
    standing = AssistantMessage("ok", "stop")
    trace = run([TurnStart(1), *user(), *inside, MessageEnd(standing), TurnEnd(1, standing)])
    assert [(v.rule, v.index) for v in check_trace(trace)] == [("L3", 6)]


def test_calls_that_never_ran_keep_their_ids_as_long_as_history_has_them() -> None:
    """T7: behind a compaction that kept an aborted message its call's id is taken; behind one that dropped it, free."""
    call = ToolCall("a", "read")
    cut = streamed(AssistantMessage([call], "aborted", error_message="enough"), ToolCallFragment(0, "a", "read", ""))
    first = run(turn(1, user(), cut), outcome="aborted")
    kept, dropped = (run(turn(1, user(), compaction(at), asked("a"), ran("a")), DONE) for at in (1, 2))
    assert [v.rule for v in check_trace([*first, *kept], history=())] == ["T7"]
    assert check_trace([*first, *dropped], history=()) == []


def test_a_compaction_that_ends_while_calls_are_under_way_is_a_breach_of_F9() -> None:
    """Where nobody knows the history, it may have dropped the calls: what follows is judged against the order alone."""
    trace = with_calls(STARTS, compaction(1)[1:], [end(call_id) for call_id in "abc"], RESULTS)
    found = check_trace(trace)
    assert (found[0].rule, found[0].index) == ("F9", 12)
    assert {violation.rule for violation in found} == {"F9", "T3", "T4", "L2"}


def test_with_the_log_of_one_queue_alone_the_other_may_wait_for_what_it_likes() -> None:
    """What waits and is not in the log that was given is nobody's to judge."""
    assert queue_findings(TOLD, steered=[ONE, TWO], waiting=[UserMessage("a follow-up")]) == []
