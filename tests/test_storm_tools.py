"""What the storm is made of: it counts what it says, notices what is wrong, and shows how to see it again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from scenes import make_agent
from storm_scenarios import SCENARIOS

from trio_agent import Agent, MessageEnd, UserMessage, tool
from trio_agent.testing import (
    Call,
    Checkpoints,
    Disturbance,
    Hang,
    Hook,
    Model,
    ModelMismatch,
    Moment,
    Planted,
    Response,
    Scenario,
    ScriptedProvider,
    Stage,
    call,
    disturb_everywhere,
    every_checkpoint,
    finish,
    play,
    run_virtually,
    script,
    storm,
    text,
)
from trio_agent.testing._scenario_expected import expected
from trio_agent.testing.strategies import scenarios, search

NAMES: dict[str, Any] = {cls.__name__: cls for cls in (Call, Disturbance, Hook, Moment, Response, Scenario)}


# The explorer


def three_checkpoints(found: list[str]) -> Callable[[Checkpoints], None]:
    """A program without an agent: three checkpoints in an application's function."""

    async def work() -> None:
        for _ in range(3):
            await trio.lowlevel.checkpoint()

    def run_once(checkpoints: Checkpoints) -> None:
        async def main() -> None:
            with (
                trio.CancelScope() as scope,
                checkpoints.watching(abort=lambda: found.append("abort"), cancel=scope.cancel),
            ):
                await work()
                return
            found.append("cancelled")

        try:
            run_virtually(main, instruments=[checkpoints])
        except (Planted, KeyboardInterrupt) as exc:
            found.append(type(exc).__name__)

    return run_once


def test_each_checkpoint_is_disturbed_once_in_each_way() -> None:
    """Three checkpoints and five kinds of disturbance are fifteen runs, and each does what its name says."""
    found: list[str] = []
    exploration = every_checkpoint(three_checkpoints(found))
    assert exploration.checkpoints == 3
    assert exploration.runs == {"abort": 3, "cancel": 3, "ctrl_c": 3, "interrupt": 3, "error": 3}
    assert str(exploration) == "3 checkpoints, 15 runs (3 abort, 3 cancel, 3 ctrl_c, 3 interrupt, 3 error)"
    assert found.count("abort") == 3
    assert found.count("Planted") == 3
    assert found.count("KeyboardInterrupt") >= 5  # the last Ctrl-C may come when the program is over
    assert found.count("cancelled") == 3


def test_a_sample_draws_so_many_places_of_each_kind() -> None:
    """With a sample of one there is one run of each kind."""
    assert set(every_checkpoint(three_checkpoints([]), sample=1).runs.values()) == {1}


def test_a_failure_says_where_the_disturbance_was() -> None:
    """What fails carries the disturbance, the task and the line."""

    async def here(checkpoints: Checkpoints) -> None:
        aborted: list[bool] = []
        with checkpoints.watching(abort=lambda: aborted.append(True), cancel=lambda: None):
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
        assert not aborted, "noticed"

    with pytest.raises(AssertionError, match="noticed") as info:
        every_checkpoint(lambda checkpoints: run_virtually(lambda: here(checkpoints), instruments=[checkpoints]))
    assert "Disturbance(kind='abort', place=0)" in info.value.__notes__[0]
    assert "test_storm_tools.py" in info.value.__notes__[0]


def test_a_program_that_is_not_deterministic_is_noticed() -> None:
    """A place that does not come again is a failure, not a run that passes."""
    runs: list[int] = []

    async def main(checkpoints: Checkpoints) -> None:
        runs.append(1)
        with checkpoints.watching(abort=lambda: None, cancel=lambda: None):
            for _ in range(5 if len(runs) == 1 else 1):
                await trio.lowlevel.checkpoint()

    with pytest.raises(AssertionError, match="not deterministic"):
        every_checkpoint(lambda checkpoints: run_virtually(lambda: main(checkpoints), instruments=[checkpoints]))


def test_an_application_explores_its_own_agent_in_a_few_lines() -> None:
    """An agent of one's own is disturbed at every checkpoint of a prompt."""

    @tool
    async def look() -> str:
        """Look."""
        await trio.sleep(1)
        return "seen"

    def make() -> Agent:
        return Agent(
            ScriptedProvider([call("c1", "look"), finish("tool_use")], ["ok", finish()]), model="m", tools=[look]
        )

    found = disturb_everywhere(make)
    assert found.checkpoints > 5
    assert found.runs == {"abort": found.checkpoints, "cancel": found.checkpoints, "ctrl_c": found.checkpoints}
    assert sum(disturb_everywhere(make, sample=2).runs.values()) == 6


def test_where_the_exploration_failed_is_said() -> None:
    """What fails behind a disturbance carries a note with its kind, its task and its place."""

    @tool
    async def look() -> str:
        """Look."""
        try:
            await trio.sleep(1)
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await trio.Event().wait()
            raise AssertionError("nobody sets it") from None
        return "seen"

    def make() -> Agent:
        return Agent(
            ScriptedProvider([call("c1", "look"), finish("tool_use")], ["ok", finish()]), model="m", tools=[look]
        )

    with pytest.raises(Hang) as caught:
        disturb_everywhere(make)
    assert any("abort" in note and "tool look" in note for note in caught.value.__notes__)


# Hangs


def test_a_hang_is_a_failure_with_the_list_of_what_was_blocked() -> None:
    """Whatever shields there are, the virtual deadline ends it, and names each task and where it waits."""

    async def wait_for_nobody() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_nobody, name="the one that hangs")

    with pytest.raises(Hang, match=r"the one that hangs: test_storm_tools\.py:\d+ wait_for_nobody"):
        run_virtually(main, seconds=100)


def test_what_main_raises_leaves_bare() -> None:
    """No group is put around an exception, and a value is given back."""

    async def main(fails: bool) -> int:
        await trio.sleep(5)
        if fails:
            raise ValueError("bare")
        return 3

    assert run_virtually(lambda: main(False)) == 3
    with pytest.raises(ValueError, match="bare"):
        run_virtually(lambda: main(True))


def test_one_seed_is_one_schedule() -> None:
    """The same seed gives the same order of tasks, and some other seed another one."""

    async def main() -> tuple[int, ...]:
        order: list[int] = []

        async def note(number: int) -> None:
            await trio.lowlevel.checkpoint()
            order.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(note, number)
        return tuple(order)

    assert len({run_virtually(main, seed=7) for _ in range(5)}) == 1
    assert len({run_virtually(main, seed=seed) for seed in range(10)}) > 1


# Scenarios as text


@settings(max_examples=100)
@given(scenarios())
def test_a_scenario_prints_as_itself(scenario: Scenario) -> None:
    """What is printed makes the same scenario again, whatever was drawn."""
    assert eval(repr(scenario), NAMES) == scenario


def test_a_failure_is_shown_as_a_test_that_can_be_pasted() -> None:
    """The note of a failed example is a test that fails in the same way."""

    def refuse(stage: Stage) -> None:
        raise AssertionError("refused")

    scenario = Scenario((Response(("a",), calls=(Call("writes", spelling="link"),)),), (Moment("turn_end", "steers"),))
    with pytest.raises(AssertionError, match="refused") as info:
        play(scenario, seed=5, disturbance=Disturbance("abort", 3), checks=[refuse])
    pasted = info.value.__notes__[0].removeprefix("to see it again:\n\n")
    assert pasted == script(scenario, seed=5, disturbance=Disturbance("abort", 3))
    played: list[Any] = []
    names: dict[str, Any] = {}
    exec(pasted, names)
    names["play"] = lambda *args, **options: played.append((args, options))
    names["test_a_scenario_of_the_storm"]()
    assert played == [((scenario,), {"seed": 5, "disturbance": Disturbance("abort", 3)})]


def test_a_failure_shrinks_to_what_matters() -> None:
    """Of all that was drawn the one call remains that makes the difference."""

    def test(scenario: Scenario, seed: int, disturbance: Disturbance | None) -> None:
        assert not any(call.does == "serial" for response in scenario.replies for call in response.calls)

    found = search(test, seed=1, examples=100)
    assert found is not None
    assert found.scenario == Scenario((Response(calls=(Call("serial"),)),))


# What is noticed


def test_the_model_notices_a_history_that_does_not_follow_from_the_trace() -> None:
    """A message that the agent holds and nobody told is a mismatch."""
    agent, _ = make_agent(ScriptedProvider())
    model = Model(agent)
    model.history.append(UserMessage("never told"))
    with pytest.raises(ModelMismatch, match="idle: messages"):
        model.idle()


async def test_the_model_notices_a_message_that_is_not_what_its_updates_said() -> None:
    """L4: an end with another text than its updates is a mismatch at that event."""
    agent, _ = make_agent(ScriptedProvider([text("he", "llo"), finish()]))
    model = Model(agent)
    problems: list[str] = []

    def listen(event: Any) -> None:
        if isinstance(event, MessageEnd) and event.message.role == "assistant":
            event = MessageEnd(attrs.evolve(event.message, content="something else"))
        try:
            model(event)
        except ModelMismatch as exc:
            problems.append(str(exc))

    agent.subscribe(listen)
    await agent.prompt("go")
    assert problems[0].startswith("L4: the message's content: the agent has ['something else']")


async def test_the_model_follows_queues_that_are_used_through_it() -> None:
    """Queued, withdrawn and cleared messages are where the model says."""
    agent, _ = make_agent(ScriptedProvider(["ok", finish()], ["ok", finish()], ["ok", finish()]))
    model = Model(agent)
    agent.subscribe(model)
    model.withdraw(model.steer("not said"))
    model.steer("said first")
    model.follow_up_with("said last")
    await agent.prompt("go")
    model.idle()
    assert [message.text for message in model.said if isinstance(message, UserMessage)] == [
        "said first",
        "go",
        "said last",
    ]
    model.steer("cleared")
    model.clear_queues()
    model.idle()


def test_a_scenario_that_comes_to_something_else_than_its_reading_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sequential reading of the scenario decides, not the run."""
    other = expected(Scenario((Response(("another",)),)))
    monkeypatch.setattr("trio_agent.testing._scenario_checks.expected", lambda scenario: other)
    with pytest.raises(AssertionError, match="history: came"):
        play(Scenario((Response(("this",)),)))


def test_most_named_scenarios_have_a_sequential_reading() -> None:
    """The prediction is no empty promise: it is made for more than half of them."""
    read = [name for name, scenario in SCENARIOS.items() if expected(scenario) is not None]
    assert len(read) > len(SCENARIOS) / 2


# The long run


def test_search_finds_the_smallest_that_fails() -> None:
    """What is given is the example in its smallest form, with what it raised; None if nothing fails."""

    def test(scenario: Scenario, seed: int, disturbance: Disturbance | None) -> None:
        assert not scenario.replies, "a reply"

    found = search(test, seed=1, examples=20)
    assert found is not None
    assert (found.scenario, found.seed, found.disturbance) == (Scenario((Response(),)), 0, None)
    assert "a reply" in str(found.exception)
    assert search(lambda scenario, seed, disturbance: None, seed=1, examples=5) is None


def test_the_long_run_writes_each_failure_once_as_a_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two rounds that fail in the same way leave one file, whose test fails again; the exit code says so."""

    def broken(scenario: Scenario, *, seed: int, disturbance: Disturbance | None) -> None:
        raise AssertionError("broken")

    monkeypatch.setattr(storm, "play", broken)
    monkeypatch.setattr(storm, "_ROUND", 5)
    times = iter([0.0, 0.0, 1.0, 61.0, 61.0])
    monkeypatch.setattr(storm, "now", lambda: next(times))
    assert storm.main(["--minutes", "1", "--seed", "3", "--out", str(tmp_path)]) == 1
    (written,) = tmp_path.iterdir()
    assert written.name == "test_storm_3.py"
    assert "scenario = Scenario()" in written.read_text("utf-8")
    assert "1 different failures" in capsys.readouterr().out


@pytest.mark.exhaustive
def test_the_long_run_is_a_command(tmp_path: Path) -> None:
    """`python -m trio_agent.testing.storm` goes for as long as it is told, and ends well where nothing fails."""
    command = [
        sys.executable,
        "-m",
        "trio_agent.testing.storm",
        "--minutes",
        "0.02",
        "--seed",
        "1",
        "--out",
        str(tmp_path),
    ]
    done = subprocess.run([*command, "--out", str(tmp_path)], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 different failures" in done.stdout
