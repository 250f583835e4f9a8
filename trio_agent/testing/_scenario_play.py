"""Plays a scenario: one agent with fakes that do what the scenario says, in a `trio.run` of its own.

Here live the setting up, the entry and what happens from outside. The fakes are in `_scenario_fakes.py` and
`_scenario_moments.py`, what has to hold is in `_scenario_checks.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress

import trio

from .._agent import Agent
from .._file_locks import FileLocks
from .._messages import UserMessage
from .._policies import Limits, RetryPolicy
from .._provider import Send
from .._request import ModelRequest
from ._checkpoints import Checkpoints, Disturbance, Planted
from ._model import Model
from ._scenario import Scenario, script
from ._scenario_bench import Bench, Directory, bench
from ._scenario_checks import CHECKS, check_next_prompt
from ._scenario_clock import run_virtually
from ._scenario_fakes import KeepLast, make_hooks, reply
from ._scenario_moments import subscribe
from ._scenario_stage import Listener, Stage
from ._scenario_tools import TOOLS


def play(
    scenario: Scenario,
    *,
    seed: int = 0,
    disturbance: Disturbance | None = None,
    checkpoints: Checkpoints | None = None,
    checks: Sequence[Callable[[Stage], object]] = (),
) -> Stage:
    """Play a scenario and check all that has to hold; give what was left, for further checks.

    `seed` chooses the schedule. What is raised carries the scenario as a note, as a test that can be pasted.
    """
    instrument = checkpoints or Checkpoints(disturbance)
    stages: list[Stage] = []

    async def main() -> None:
        failures: list[Exception] = []
        living = trio.lowlevel.current_statistics().tasks_living
        async with trio.open_nursery() as background:
            try:
                stage = set_up(scenario, background)
                stages.append(stage)
                await _run(stage, instrument)
                for check in (*CHECKS, *checks):
                    check(stage)
                await check_next_prompt(stage)
            except Exception as exc:  # raised again below, outside of the nursery, so that no group hides it
                failures.append(exc)
            background.cancel_scope.cancel()
        if failures:
            raise failures[0]
        left = trio.lowlevel.current_statistics().tasks_living - living
        assert left == 0, f"P4: {left} tasks are left"

    try:
        with _quiet():
            run_virtually(main, seed=seed, instruments=[instrument])
    except BaseException as exc:
        told = script(scenario, seed=seed, disturbance=instrument.disturbance)
        exc.add_note(f"to see it again:\n\n{told}")
        raise
    return stages[0]


@contextmanager
def _quiet() -> Generator[None]:
    """What goes wrong in a scenario is meant to; the kernel need not log it."""
    logger = logging.getLogger("trio_agent")
    disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = disabled


def set_up(scenario: Scenario, background: trio.Nursery) -> Stage:
    made: list[Stage] = []

    async def provider(_request: ModelRequest, send: Send) -> None:
        await reply(made[0], send)

    locks = FileLocks()
    agent = Agent(
        provider,
        model="m",
        tools=TOOLS,
        hooks=make_hooks(scenario, made),
        retry=RetryPolicy(scenario.max_attempts, jitter=False),
        compaction=KeepLast(made, scenario) if scenario.compaction else None,
        limits=Limits(scenario.max_turns, scenario.max_tool_calls, scenario.max_total_tokens),
        steering_mode=scenario.steering_mode,
        follow_up_mode=scenario.follow_up_mode,
        max_parallel_tools=scenario.max_parallel_tools,
        file_locks=locks,
        projection_failure=scenario.projection_failure,
    )
    model = Model(agent)
    listeners = [Listener(False, agent=agent), Listener(True), Listener(False)]
    tools = Bench(agent, locks, background, Directory.file(), model.steer)
    stage = Stage(scenario, agent, model, tools, trio.CancelScope(), listeners)
    made.append(stage)
    bench.set(stage.bench)
    agent.subscribe(listeners[0])
    agent.subscribe(model)
    for moment in scenario.moments:
        subscribe(stage, moment)
    for listener in listeners[1:]:
        agent.subscribe(listener)
    for text in scenario.steered:
        stage.queued_ids.append(model.steer(text))
    for text in scenario.followed_up:
        stage.queued_ids.append(model.follow_up_with(text))
    return stage


async def _run(stage: Stage, checkpoints: Checkpoints) -> None:
    """Enter as the scenario says, as often as it says; keep what came of it."""
    for number in range(stage.scenario.prompts):
        text = UserMessage("go" if number == 0 else f"go {number + 1}")
        stage.scope = trio.CancelScope()
        stage.bench.closed = False
        stage.interrupts_of_run = 0
        watched = checkpoints.watching(abort=stage.abort, cancel=stage.scope.cancel, on_strike=stage.on_strike)
        try:
            with watched, stage.scope:
                await _enter(stage, text)
        except (Exception, KeyboardInterrupt) as exc:
            stage.raised.append(exc)
        if stage.interrupts > len(stage.raised):
            await _take_interrupt(stage)
        stage.any_cancelled |= stage.scope.cancelled_caught
        if stage.events:
            stage.model.idle()


async def _take_interrupt(stage: Stage) -> None:
    """A second Ctrl-C may come when the first has left `prompt()` already."""
    try:
        await trio.lowlevel.checkpoint()
    except KeyboardInterrupt as exc:
        stage.raised.append(exc)


async def _enter(stage: Stage, message: UserMessage) -> None:
    scenario = stage.scenario
    with _timer(stage, scenario.abort_after, stage.abort), _timer(stage, scenario.cancel_after, stage.scope.cancel):
        if scenario.entry == "resume" and not stage.results:
            stage.model.steer(message)
            stage.results.append(await stage.agent.resume())
            await _last_checkpoint()
            return
        stage.prompts.append(message)
        if scenario.entry in ("prompt", "resume"):
            stage.results.append(await stage.agent.prompt(message))
        else:
            await _read(stage, message)
        await _last_checkpoint()


async def _last_checkpoint() -> None:
    """Where a Ctrl-C shows that came too late for `prompt()`. What is planted here is nobody's."""
    with suppress(Planted):
        await trio.lowlevel.checkpoint()


async def _read(stage: Stage, message: UserMessage) -> None:
    count = 0
    async with stage.agent.stream(message) as events:
        async for _ in events:
            count += 1
            if stage.scenario.entry == "leave_stream" and count == 4:
                break
    stage.results.append(events.result)


@contextmanager
def _timer(stage: Stage, seconds: float | None, do: Callable[[], object]) -> Generator[None]:
    """Do something from outside after so many seconds, unless the run is over by then."""
    if seconds is None:
        yield
        return
    over = trio.CancelScope()

    async def wait() -> None:
        with over:
            await trio.sleep(seconds)
            do()

    stage.bench.background.start_soon(wait)
    try:
        yield
    finally:
        over.cancel()
