"""The judge: finds each broken rule, and nothing in what is lawful, the kernel's own traces included."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import make_agent, trio_run

from trio_agent import (
    AgentEnd,
    AgentStart,
    AssistantMessage,
    Event,
    LifecycleError,
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
    encode,
    tool,
)
from trio_agent._codec import encode_line
from trio_agent._events import ErrorInfo
from trio_agent._lifecycle import Lifecycle
from trio_agent.cli._check import check
from trio_agent.cli._explain import explain
from trio_agent.testing import ScriptedProvider, TraceChecker, call, check_trace, finish, text
from trio_agent.testing._judge import LifecycleViolation
from trio_agent.testing._rule_examples import EXAMPLES, explain_rule
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


def walk(data: st.DataObject) -> Iterator[Event]:
    """A random walk over events: mostly what the kernel's tables allow, now and then what they do not."""
    core = Lifecycle()
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
        try:
            core.feed(event)
        except LifecycleError:
            return
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
    for event in walk(data):
        told.append(event)
        try:
            core.feed(event)
        except LifecycleError:
            found = check_trace(told, one_history=False)
            assert found, "the kernel refuses the last event, and the judge does not"
            return
        if core.position.value == "ended":
            core.end()


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


def test_check_of_a_missing_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is not there is one clear line, exit code 2."""
    assert check([str(tmp_path / "none.jsonl")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


# What is known about the recordings of another kernel (traces/README.md says what each does).
FINDINGS = {
    "a17-length-truncated-tool-calls": {"T4"},
    "a19-duplicate-call-ids": {"T7"},
    "a63-provider-iterator-throws-midstream": {"L3"},
    "b30-13-listener-throws-agent_end": {"L1"},
    "b55-sibling-leaks-into-next-run": {"F2", "L1"},
    "c02-provider-double-start": {"L3"},
    "c06-listener-during-sibling-preflight": {"F2"},
}
CLEAN = [
    "a01-plain-prompt",
    "a11-parallel-completion-order",
    "a47-steer-and-followup-priority",
    "b02-abort-streaming-uncooperative",
]


@pytest.mark.parametrize(("name", "rules"), FINDINGS.items())
def test_the_judge_finds_what_is_known_of_another_kernel(
    name: str, rules: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """In recordings of another kernel the judge finds the faults that the recordings were made to show."""
    assert check(["--dialect", "pi", "--json", str(TRACES / f"{name}.jsonl")]) == 1
    assert {json.loads(line)["rule"] for line in capsys.readouterr().out.splitlines()} == rules


@pytest.mark.parametrize("name", CLEAN)
def test_the_judge_finds_nothing_in_lawful_recordings(name: str) -> None:
    """Ordinary runs of another kernel are lawful here too."""
    assert check(["--dialect", "pi", str(TRACES / f"{name}.jsonl")]) == 0


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
