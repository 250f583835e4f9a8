"""The storm notices what is wrong: each of its own checks fails where the kernel, or what runs in it, breaks a rule."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import trio
from scenes import make_agent

from trio_agent import Agent, ToolExecutionEnd, ToolResultMessage, tool
from trio_agent._validation import SchemaArguments
from trio_agent.testing import (
    Call,
    Checkpoints,
    Disturbance,
    Hang,
    Hook,
    Model,
    ModelMismatch,
    Moment,
    Response,
    Scenario,
    ScriptedProvider,
    call,
    disturb_everywhere,
    finish,
    play,
    run_virtually,
    storm,
)
from trio_agent.testing._scenario_checks import check_everybody_saw_it, check_tools
from trio_agent.testing._scenario_tools import TOOLS

BY_NAME = {one.name: one for one in TOOLS}
HOOKS = ("transform_context", "convert_to_llm", "before_tool_call", "after_tool_result", "should_stop_after_turn")


@pytest.fixture
def told_by_fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all checks only that of what the fakes noticed themselves."""
    monkeypatch.setattr("trio_agent.testing._scenario_play.CHECKS", (check_tools,))


def changed(name: str, **fields: object) -> Sequence[Any]:
    """The tools, one of them with other fields."""
    other = copy.copy(BY_NAME[name])
    for field, value in fields.items():
        object.__setattr__(other, field, value)
    return [other if one.name == name else one for one in TOOLS]


# What fakes notice


@pytest.mark.parametrize(
    ("name", "fields", "calls", "fault"),
    [
        ("serial", {"serial": False}, ("returns", "serial"), "T2: k1 ran beside the serial k2"),
        ("serial", {"serial": False}, ("serial", "returns"), "T2: the serial k1 ran beside k2"),
        ("writes", {"_paths": None}, ("writes", "writes"), "T8: k1 writes while k2 does"),
        ("invalid", {"_arguments": SchemaArguments({"type": "object"}, False)}, ("invalid",), "T5: k1 ran with 'many'"),
    ],
)
def test_tools_notice_what_they_must_not_see(
    told_by_fakes: None,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    fields: dict[str, object],
    calls: Sequence[Any],
    fault: str,
) -> None:
    """A barrier that is none, a file that is not locked, arguments that were not validated: the tool itself says so."""
    monkeypatch.setattr("trio_agent.testing._scenario_play.TOOLS", changed(name, **fields))
    scenario = Scenario((Response(calls=tuple([Call(does, 1.0) for does in calls])),))
    with pytest.raises(AssertionError, match=fault):
        play(scenario)


@pytest.mark.parametrize(
    ("event", "fault"),
    [
        ("turn_start", "A2: a request began after the abort"),
        ("tool_execution_start", "A2: tool k1 began after the abort"),
        ("compaction_start", "A2: a compaction began after the abort"),
        *[
            ("turn_start" if name != HOOKS[3] else "tool_execution_start", f"A2: the hook {name} began")
            for name in HOOKS
        ],
    ],
)
def test_fakes_notice_that_something_begins_behind_an_abort(
    told_by_fakes: None, monkeypatch: pytest.MonkeyPatch, event: Any, fault: str
) -> None:
    """An abort that stops nothing is found out by whatever begins behind it: request, tool, compaction, each hook."""
    monkeypatch.setattr(Agent, "abort", lambda self, reason=None: None)
    scenario = Scenario(
        replies=(Response(("a",), calls=(Call(),)), Response(("b",))),
        moments=(Moment(event, "aborts"),),
        hooks=tuple([Hook(name, "passes") for name in HOOKS]),  # type: ignore[arg-type]
        compaction="works",
        compacts_at=1,
    )
    with pytest.raises(AssertionError, match=fault):
        play(scenario)


def test_a_subscriber_notices_that_a_prompt_inside_the_run_is_not_refused(
    told_by_fakes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A6: an agent that takes two prompts at once is found out."""
    prompt = Agent.prompt

    async def welcoming(self: Agent, message: Any) -> Any:
        return None if message == "inside" else await prompt(self, message)

    monkeypatch.setattr(Agent, "prompt", welcoming)
    with pytest.raises(AssertionError, match="A6: a prompt inside the run was not refused"):
        play(Scenario(moments=(Moment("turn_start", "prompts"),)))


# What is compared


def test_subscribers_that_saw_something_else_are_noticed() -> None:
    """L5: one event less, or another one in its place, is named."""
    stage = play(Scenario())
    seen = stage.listeners[1].events
    last = seen.pop()
    with pytest.raises(AssertionError, match=r"L5: one subscriber saw \d+ events, another \d+"):
        check_everybody_saw_it(stage)
    seen.append(attrs.evolve(last, turns=77))
    with pytest.raises(AssertionError, match=r"L5: event \d+ is AgentEnd.*turns=77.* for one subscriber"):
        check_everybody_saw_it(stage)


async def test_the_model_notices_the_end_of_a_call_that_was_never_started() -> None:
    """T3: each end has its start."""
    model = Model(make_agent(ScriptedProvider())[0])
    with pytest.raises(ModelMismatch, match="T3: the end of a call that was started"):
        model(ToolExecutionEnd(ToolResultMessage("a", "read", "x")))


async def test_the_model_knows_that_what_was_said_cannot_be_taken_back() -> None:
    """A message that has come is not in a queue, and withdrawing it changes nothing."""
    agent, _ = make_agent(ScriptedProvider(["ok", finish()]))
    model = Model(agent)
    agent.subscribe(model)
    id = model.steer("said")
    await agent.prompt("go")
    model.withdraw(id)
    assert model.taken_back == []
    model.idle()


# What scenarios may say


@pytest.mark.parametrize(
    ("response", "said"),
    [
        (Response(where="in"), "so"),
        (Response(("x",), where="after"), "x"),
        (Response(where="in", fails="overloaded"), "done"),
    ],
)
def test_a_response_without_a_failure_stands_wherever_it_would_have_failed(response: Response, said: str) -> None:
    """What comes in the stream is said, and the sequential reading knows it; where it fails the next reply stands."""
    stage = play(Scenario((response, Response(("done",)))))
    assert [result.text for result in stage.results] == [said]


def test_a_scope_that_is_cancelled_before_a_stream_begins_leaves_no_event() -> None:
    """A5: the first prompt tells nothing, and the next one works."""
    counted: list[int] = []
    cancelled = Disturbance("cancel", 0)
    play(Scenario(entry="stream"), disturbance=cancelled, checks=[lambda stage: counted.append(len(stage.events))])
    assert counted == [0]


# The explorer


def exploring(main: Callable[[], Any]) -> Checkpoints:
    checkpoints = Checkpoints()

    async def watched() -> None:
        with checkpoints.watching(abort=lambda: None, cancel=lambda: None):
            await main()

    run_virtually(watched, instruments=[checkpoints])
    return checkpoints


def test_a_task_that_runs_nothing_but_a_function_of_trios_has_a_place() -> None:
    """Nothing of the program's waits there, so that nothing can be raised; it can be aborted and cancelled."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 1)

    places = [place for place in exploring(main).places if place.where == "(in functions of Trio alone)"]
    assert places
    assert {place.task for place in places} == {"trio.sleep"}
    assert {place.allows("abort") for place in places} == {True}
    assert {place.allows("error") for place in places} == {place.allows("interrupt") for place in places} == {False}


def test_a_hang_names_tasks_that_run_nothing_but_a_function_of_trios() -> None:
    """A task that only sleeps is in the list too."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)

    with pytest.raises(Hang, match=r"trio\.sleep_forever: \(in functions of Trio alone\)"):
        run_virtually(main, seconds=10)


def test_an_interrupt_of_the_agents_own_is_no_disturbance() -> None:
    """A tool that raises `KeyboardInterrupt` by itself ends the exploration: nobody planted that."""

    @tool
    async def quits() -> str:
        """Quit."""
        raise KeyboardInterrupt

    def make() -> Agent:
        return Agent(ScriptedProvider([call("c1", "quits"), finish("tool_use")]), model="m", tools=[quits])

    with pytest.raises(KeyboardInterrupt):
        disturb_everywhere(make)


# The long run


def test_a_long_run_in_which_nothing_fails_ends_well(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rounds of fresh seeds until the time is over, no file, and exit code 0."""
    seeds: list[int] = []

    def searched(test: object, *, seed: int, examples: int) -> None:
        seeds.append(seed)

    monkeypatch.setattr(storm, "search", searched)
    times = iter([0.0, 0.0, 30.0, 60.0, 60.0])
    monkeypatch.setattr(storm, "now", lambda: next(times))
    assert storm.main(["--minutes", "1", "--seed", "7", "--out", str(tmp_path)]) == 0
    assert seeds == [7, 8]
    assert list(tmp_path.iterdir()) == []
    assert "0 different failures" in capsys.readouterr().out
