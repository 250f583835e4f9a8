"""The judge: finds each broken rule, and nothing in what is lawful, the kernel's own traces included."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import make_agent, on, trio_run

from trio_agent import (
    AgentEnd,
    AgentStart,
    AssistantMessage,
    Event,
    LifecycleError,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ProviderError,
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
    encode,
    tool,
)
from trio_agent._codec import encode_line
from trio_agent._events import ErrorInfo
from trio_agent._lifecycle import Lifecycle
from trio_agent.cli._check import check
from trio_agent.cli._explain import explain
from trio_agent.cli._usage import UsageError
from trio_agent.session import save_session
from trio_agent.testing import LifecycleViolation, ScriptedProvider, TraceChecker, call, check_trace, finish, text
from trio_agent.testing._dialects import DIALECTS
from trio_agent.testing._judge_order import ADRIFT, BREACHES, IDLE, ORDER, broken_rule, may_come
from trio_agent.testing._judge_walk import CLAUSES
from trio_agent.testing._rule_examples import EXAMPLES, explain_rule, rules_table
from trio_agent.testing._rules import RULES

TRACES = Path(__file__).parent / "traces"


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_lawful_example_of_each_rule_is_lawful(name: str) -> None:
    """The judge finds nothing in the trace that keeps the rule."""
    assert EXAMPLES[name].judge(lawful=True) == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_unlawful_example_of_each_rule_breaks_exactly_that_rule(name: str) -> None:
    """The judge finds the rule in the trace that breaks it, and no other rule."""
    assert {violation.rule for violation in EXAMPLES[name].judge(lawful=False)} == {name}


@pytest.mark.parametrize("name", [rule.name for rule in RULES])
def test_each_rule_can_be_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`trio-agent explain` prints each rule in full, by its name."""
    assert explain([name.lower()]) == 0
    assert capsys.readouterr().out.startswith(f"{name}  ")
    assert explain_rule(name)


def real_trace() -> list[Event]:
    """What the kernel tells of a run with two calls and a second turn."""

    @tool
    async def echo(v: str) -> str:
        """Say it again."""
        return v

    async def main() -> list[Event]:
        provider = ScriptedProvider(
            [text("he", "llo"), call("a", "echo", {"v": "1"}), call("b", "echo", {"v": "2"}), finish("tool_use")],
            [text("done"), finish()],
        )
        agent, recorder = make_agent(provider, tools=[echo])
        await agent.prompt("go")
        return recorder.events

    return trio_run(main)


def test_a_trace_of_the_kernel_is_lawful_live_as_objects_and_as_lines() -> None:
    """Live events, their JSON objects and their JSON lines are judged alike."""
    events = real_trace()
    for told in (events, [encode(event) for event in events], [encode_line(event) for event in events]):
        assert check_trace(told, complete=True) == []


def test_any_prefix_of_a_lawful_run_is_lawful_and_not_complete() -> None:
    """A beginning of a run is lawful; told that it is whole, the judge says that the run is open."""
    events = real_trace()
    for length in range(1, len(events)):
        assert check_trace(events[:length]) == []
        assert check_trace(events[:length], complete=True)


def test_several_runs_in_one_trace_are_judged_one_behind_the_other() -> None:
    """Runs may follow each other; a call id that comes again is a breach only within one history."""
    events = real_trace()
    assert check_trace([*events, *events], one_history=False) == []
    assert {violation.rule for violation in check_trace([*events, *events])} == {"T7"}


def test_the_checker_raises_at_the_first_unlawful_event() -> None:
    """As a subscriber the judge raises, with the rule, the index, what came and what could have come."""
    checker = TraceChecker()
    checker(AgentStart())
    with pytest.raises(LifecycleViolation) as caught:
        checker(AgentEnd("completed"))
    violation = caught.value.violation
    assert (violation.rule, violation.index, violation.came) == ("L2", 1, "agent_end completed")
    assert "turn_start" in violation.expected


def walk(data: st.DataObject, core: Lifecycle) -> Iterator[Event]:
    """A random walk over events, each of which the caller feeds to the core: mostly what the kernel's tables allow, now
    and then what they do not.
    """
    ids = iter(range(10_000))
    made: dict[str, Any] = {"open": None}
    for _ in range(data.draw(st.integers(1, 25))):
        candidates = list(candidate_events(core, made, ids))
        lawful = [event for event in candidates if accepts(core, event)]
        pool = lawful if lawful and data.draw(st.integers(0, 14)) else candidates
        event = data.draw(st.sampled_from(pool))
        if isinstance(event, MessageStart):
            made["open"] = event.message
        yield event
        if core.position.value == "ended":
            core.end()


def accepts(core: Lifecycle, event: Event) -> bool:
    import copy

    ahead = copy.copy(core)
    ahead.ended = dict(core.ended)
    try:
        ahead.feed(event)
    except LifecycleError:
        return False
    return True


def candidate_events(core: Lifecycle, made: dict[str, Any], ids: Iterator[int]) -> Iterator[Event]:
    yield AgentStart()
    yield TurnStart(core.turn + 1)
    yield MessageStart(UserMessage("u"))
    yield MessageStart(AssistantMessage((), None))
    is_open = made["open"]
    if isinstance(is_open, UserMessage | ToolResultMessage):
        yield MessageEnd(is_open)
    else:
        yield MessageEnd(AssistantMessage((), "stop"))
        yield MessageEnd(AssistantMessage([ToolCall(f"c{next(ids)}", "read") for _ in range(2)], "tool_use"))
        yield MessageEnd(AssistantMessage((), "error", error_message="e"))
    for known in core.calls:
        result = core.ended.get(known.id) or ToolResultMessage(known.id, known.name, "r")
        yield ToolExecutionStart(known)
        yield ToolExecutionUpdate(known.id, known.name, (Text("x"),))
        yield ToolExecutionEnd(result)
        yield MessageStart(result)
    if core.standing is not None:
        yield TurnEnd(core.turn, core.standing, tuple([core.ended[c.id] for c in core.calls if c.id in core.ended]))
    yield RetryStart(1, 4, 0.0, ErrorInfo("overloaded", "busy"))
    yield RetryEnd(1, "resumed")
    outcome = "error" if core.standing is not None and core.standing.stop_reason == "error" else "completed"
    yield AgentEnd(outcome, None, core.turn)


@settings(max_examples=400)
@given(data=st.data())
def test_what_the_kernel_refuses_the_judge_finds(data: st.DataObject) -> None:
    """On random walks the judge, stated apart, flags every event that the kernel's own tables refuse."""
    core = Lifecycle()
    told: list[Event] = []
    for event in walk(data, core):
        told.append(event)
        try:
            core.feed(event)
        except LifecycleError:
            found = check_trace(told, one_history=False)
            assert found, "the kernel refuses the last event, and the judge does not"
            return


def test_the_judge_is_fast() -> None:
    """It judges 200,000 streamed events a second or more."""
    message = AssistantMessage((), None)
    count = 100_000
    updates: list[Event] = [MessageUpdate(TextDelta(0, "abcd")) for _ in range(count)]
    start: list[Event] = [AgentStart(), TurnStart(1), MessageStart(message)]
    best = min(_seconds(lambda: check_trace([*start, *updates])) for _ in range(3))
    assert count / best > 200_000


def _seconds(fn: Callable[[], object]) -> float:
    began = time.process_time()
    fn()
    return time.process_time() - began


# The command line


def write_trace(path: Path, events: list[Event]) -> str:
    path.write_text("".join(f"{encode_line(event)}\n" for event in events), "utf-8")
    return str(path)


def test_check_of_a_lawful_file_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A lawful file gives exit code 0 and a summary."""
    events = real_trace()
    assert check([write_trace(tmp_path / "a.jsonl", events)]) == 0
    assert capsys.readouterr().out == f"1 file, {len(events)} events, 0 violations\n"


def test_check_of_an_unlawful_file_names_rule_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unlawful file gives exit code 1 and a line for each violation."""
    events = real_trace()
    file = write_trace(tmp_path / "a.jsonl", [*events, TurnStart(3)])
    assert check([file]) == 1
    line, summary = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{file}:{len(events) + 1}: L1 at event {len(events)}:")
    assert summary.endswith(", 1 violation (L1)")


def test_check_as_json_has_an_object_per_violation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --json there is nothing but one object per violation."""
    assert check(["--json", write_trace(tmp_path / "a.jsonl", [AgentEnd("completed")])]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["rule"] == "L1"


@pytest.mark.parametrize("content", ["{", '{"type":"no_such_event"}\n', '{"role":"user","content":[]}\n'])
def test_check_of_what_is_no_trace_says_where(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that cannot be read gives exit code 2 and names the line."""
    (tmp_path / "bad.jsonl").write_text(content)
    assert check([str(tmp_path / "bad.jsonl")]) == 2
    assert "line 1" in capsys.readouterr().err


def test_check_of_a_session_says_what_it_wants_instead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A session lacks the events that history does not need, so that nothing could be said about their order."""
    save_session(tmp_path / "talk.jsonl", [UserMessage("hi")])
    assert check([str(tmp_path / "talk.jsonl")]) == 2
    assert "a session, which leaves out" in capsys.readouterr().err


def test_check_of_a_missing_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is not there is one clear line, exit code 2."""
    assert check([str(tmp_path / "none.jsonl")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_check_of_an_open_run_is_lawful_unless_the_file_is_said_to_be_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A beginning of a run is lawful; with --complete what is left open is a fault, at the last line."""
    file = write_trace(tmp_path / "a.jsonl", real_trace()[:3])
    assert check([file]) == 0
    assert check(["--complete", file]) == 1
    assert f"{file}:3: L3 at event 3: the trace ended inside a user message" in capsys.readouterr().out


def test_check_of_runs_with_histories_of_their_own(tmp_path: Path) -> None:
    """Call ids that come again in a later run are a fault of one conversation, not of separate runs."""
    file = write_trace(tmp_path / "a.jsonl", [*real_trace(), *real_trace()])
    assert check([file]) == 1
    assert check(["--separate-runs", file]) == 0


def test_check_reads_stdin_and_what_editors_add(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`-` is stdin; a byte order mark, blank lines, CRLF and other ends of lines within the JSON are no faults."""
    lines = [encode_line(event) for event in real_trace()]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    assert check(["-"]) == 0
    raw = lines[0] + "\r\n\n" + '{"type":"turn_start","turn":1,"note":"a\u2028b\x85c"}\r\n'
    (tmp_path / "bom.jsonl").write_text("\ufeff" + raw, "utf-8", newline="")
    assert check([str(tmp_path / "bom.jsonl")]) == 0
    assert "1 file, 2 events" in capsys.readouterr().out


def test_check_of_several_files_reports_all_that_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that cannot be read hides nothing that was found in the others; the exit code is 2."""
    faulty = write_trace(tmp_path / "faulty.jsonl", [AgentEnd("completed")])
    (tmp_path / "torn.jsonl").write_bytes(b'{"type":"agent_start"}\n\xff')
    assert check([str(tmp_path / "torn.jsonl"), faulty]) == 2
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "1 file, 1 event, 1 violation (L1)"
    assert "torn.jsonl: 'utf-8' codec can't decode byte 0xff" in err


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("{", "line 1: not JSON"),
        ("[]", "line 1: no record of pi-agent-core; each is an object with a kind"),
        ('{"kind":"event","type":"message_start","message":{"role":"assistant","stop":"why"}}', "KeyError 'why'"),
        ('{"kind":"event","type":"tool_execution_start"}', "line 1: no event of pi-agent-core: KeyError 'id'"),
        (
            '{"kind":"event","type":"turn_end","message":{"role":"user"},"toolResults":[]}',
            "ends with an assistant message",
        ),
    ],
)
def test_check_of_what_is_no_recording_says_where(
    line: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the other dialect too, what cannot be read names its line."""
    (tmp_path / "bad.jsonl").write_text(line)
    assert check(["--dialect", "pi", str(tmp_path / "bad.jsonl")]) == 2
    assert text in capsys.readouterr().err


def recorded(*records: dict[str, Any]) -> list[Event]:
    """What a recording of the other kernel says in our events."""
    lines = [json.dumps({"kind": "event", **record}) for record in records]
    return [event for _, event in DIALECTS["pi"](lines)]


def test_the_results_of_a_recorded_turn_are_those_that_were_told() -> None:
    """In the turn's own order; one that was never told is empty. A run that asked for tools at last was stopped."""
    asking = {"role": "assistant", "stop": "toolUse", "calls": ["a", "b"]}
    told = [{"role": "toolResult", "id": call_id, "isError": False, "text": f"of {call_id}"} for call_id in "ab"]
    events = recorded(
        {"type": "agent_start"},
        {"type": "turn_start"},
        *[
            {"type": kind, "message": message}
            for message in (asking, *told)
            for kind in ("message_start", "message_end")
        ],
        {"type": "turn_end", "message": asking, "toolResults": ["b", "never", "a"]},
        {"type": "agent_end"},
    )
    (turn,) = [event for event in events if isinstance(event, TurnEnd)]
    assert [(result.tool_call_id, result.text) for result in turn.tool_results] == [
        ("b", "of b"),
        ("never", ""),
        ("a", "of a"),
    ]
    assert events[-1] == AgentEnd("stopped", None, 1)


def test_a_recorded_run_without_a_turn_completed() -> None:
    """Where nothing was asked nothing failed."""
    assert recorded({"type": "agent_start"}, {"type": "agent_end"}) == [AgentStart(), AgentEnd("completed", None, 0)]


# What the judge finds in the recordings of another kernel (traces/README.md says what each shows): rules, and lines.
FINDINGS = {
    "a13-mixed-one-sequential-tool": [("T1", 12), ("T4", 13), ("T1", 18), ("T4", 19)],
    "a17-length-truncated-tool-calls": [("T4", 11)],
    "a19-duplicate-call-ids": [("T7", 8)],
    "a31-prepareNextTurn-throws": [("L2", 16)],
    "a63-provider-iterator-throws-midstream": [("L3", 10)],
    "b06-abort-sequential-mid-batch": [("T4", 14), ("T4", 18)],
    "b30-05-listener-throws-message_update": [("L3", 21)],
    "b30-07-listener-throws-tool_execution_start": [("F2", 10)],
    "b30-09-listener-throws-tool_execution_end": [("F2", 14)],
    "b30-11-listener-throws-message_end-toolResult": [("L2", 16)],
    "b30-13-listener-throws-agent_end": [("L1", 26), ("L1", 27), ("L1", 28), ("L1", 29)],
    "b51-listener-throws-then-throws-in-failure": [("L2", 9)],
    "b55-sibling-leaks-into-next-run": [("F2", 16), ("L1", 32), ("L1", 34)],
    "c02-provider-double-start": [("L3", 8)],
    "c06-listener-during-sibling-preflight": [("F2", 11)],
}
# Recordings whose run never ends: what the judge finds besides where it is told that they are whole.
OPEN = {
    "a67-provider-promise-never-resolves": "L2",
    "b51-listener-throws-then-throws-in-failure": "L3",
    "b59-wait-idle-in-listener": "L1",
    "b71-low-level-loop-failure": "L2",
}


@pytest.mark.parametrize("name", sorted(file.stem for file in TRACES.glob("*.jsonl")))
def test_the_judge_finds_what_is_known_of_another_kernel(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In recordings of another kernel the judge finds the faults that were read there by hand, and no others."""
    known = FINDINGS.get(name, [])
    assert check(["--dialect", "pi", "--json", str(TRACES / f"{name}.jsonl")]) == (1 if known else 0)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(violation["rule"], violation["line"]) for violation in found] == known
    check(["--dialect", "pi", "--json", "--complete", str(TRACES / f"{name}.jsonl")])
    complete = [json.loads(line)["rule"] for line in capsys.readouterr().out.splitlines()]
    assert complete[len(found) :] == ([OPEN[name]] if name in OPEN else [])


def test_every_rule_that_the_judge_knows_has_an_example() -> None:
    """No rule is judged that `trio-agent explain` cannot show, and each rule that has an example exists."""
    judged = CLAUSES.rules() | {rule for _, _, rule in BREACHES} | {"P1", "P2", "P3", "Q1", "Q2", "Q3"}
    assert judged == set(EXAMPLES)
    assert judged <= {rule.name for rule in RULES}


def test_the_rules_are_those_of_the_specification_in_its_order() -> None:
    """L1 to A8, none missing; the table for the README has a row for each."""
    counts = {"L": 6, "T": 8, "Q": 5, "P": 4, "F": 10, "A": 8}
    names = [f"{letter}{number}" for letter, count in counts.items() for number in range(1, count + 1)]
    assert [rule.name for rule in RULES] == names
    rows = rules_table().splitlines()
    assert [row.split(" | ")[0] for row in rows[2:]] == [f"| {name}" for name in names]


def test_the_tables_lead_from_the_start_to_every_place() -> None:
    """Each place of the judge's tables is reached and led on from; what may not come somewhere breaks a known rule."""
    reached, ahead = {IDLE}, [IDLE]
    while ahead:
        for place in ORDER[ahead.pop()].values():
            if place not in reached:
                reached.add(place)
                ahead.append(place)
    assert reached == set(ORDER) - {ADRIFT}
    kinds = {kind for ways in ORDER.values() for kind in ways}
    for place, ways in ORDER.items():
        assert may_come(place)
        for kind in kinds - set(ways):
            assert broken_rule(place, kind) in EXAMPLES


def test_explain_of_an_unknown_rule_names_those_that_exist() -> None:
    """A name that no rule has is a usage error; no name lists all rules."""
    with pytest.raises(UsageError, match="there is no rule 'Z9'; the rules are L1, L2"):
        explain(["Z9"])


def test_explain_without_a_name_lists_the_rules(capsys: pytest.CaptureFixture[str]) -> None:
    """One line per rule: its name and its title."""
    assert explain([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [rule.name for rule in RULES]


def test_an_explanation_marks_what_is_unlawful() -> None:
    """The rule in full, two traces as short lines, a mark at the event in question, and the finding."""
    lines = explain_rule("T3").splitlines()
    assert lines[0] == "T3  Each start has one end"
    assert '  > tool_execution_end b ok "what b found"' in lines
    assert lines[-1].endswith("call b has ended already")
    assert explain_rule("T2").endswith("The judge sees it where it is told more: serial_tools.")
    assert explain_rule("T8").endswith("it is about more than the order and content of events.")


async def test_a_checker_finds_nothing_in_a_live_run_whose_phases_and_queues_it_knows() -> None:
    """Subscribed with the phase, the history and what is steered, it judges a run with a retry and a message."""
    provider = ScriptedProvider(
        [text("he"), ProviderError("overloaded", "busy")], [text("ok"), finish()], [text("2"), finish()]
    )
    agent, _ = make_agent(provider)
    steered = [UserMessage("and now?")]
    checker = TraceChecker(history=(), phase=lambda: agent.state.phase, steered=steered)
    agent.subscribe(checker)
    on(agent, "retry_start", lambda event: agent.steer(steered[0]))
    result = await agent.prompt("go")
    checker.finish()
    assert (result.outcome, result.text, checker.violations) == ("completed", "2", [])


async def test_a_checker_as_subscriber_fails_the_run_that_it_finds_unlawful() -> None:
    """Subscribed late, in the middle of a run, the checker sees an unlawful beginning and fails the run."""
    agent, _ = make_agent(ScriptedProvider([text("hi"), finish()]))

    def late(event: Event) -> None:
        if event.type == "turn_start":
            agent.subscribe(TraceChecker())

    agent.subscribe(late)
    result = await agent.prompt("go")
    assert result.outcome == "error"
    assert isinstance(result.error, LifecycleViolation)
    await trio.lowlevel.checkpoint()


def test_a_repeated_call_id_is_found_in_a_message() -> None:
    """T7 is judged within one message too."""
    message = AssistantMessage([ToolCall("x", "t"), ToolCall("x", "t")], "tool_use")
    found = check_trace([AgentStart(), TurnStart(1), MessageStart(AssistantMessage((), None)), MessageEnd(message)])
    assert "T7" in {violation.rule for violation in found}
