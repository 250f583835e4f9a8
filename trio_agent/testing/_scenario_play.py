"""Plays a scenario: one agent with fakes that do what the scenario says, in a `trio.run` of its own.

Here live the provider, the hooks, the subscribers and the moments. What has to hold at the end is in
`_scenario_checks.py`; where something goes wrong from outside is chosen in `_checkpoints.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import attrs
import trio

from .._agent import Agent
from .._chunks import Finish, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallStart, UsageReport
from .._errors import AgentBusyError, ProviderError
from .._events import Event
from .._file_locks import FileLocks
from .._hooks import Block, Hooks, Replace
from .._json import dumps
from .._messages import Message, Usage, UserMessage
from .._policies import Compaction, Limits, RetryPolicy
from .._provider import Send
from .._request import ModelRequest
from .._result import RunResult
from .._state import AgentState
from ._checkpoints import Checkpoints, Disturbance
from ._model import Model
from ._scenario import Call, Hook, Moment, Response, Scenario, script
from ._scenario_clock import run_virtually
from ._scenario_tools import TOOLS, Bench, Directory, bench, spelled, work

PLAIN: Final = Response(("ok",))
MEANT: Final = "this failure is part of the scenario"


@attrs.define
class Listener:
    """A subscriber that only listens."""

    is_async: bool
    events: list[Event] = attrs.field(factory=list[Event])
    phases: list[str] = attrs.field(factory=list[str])
    agent: Agent | None = None

    def __call__(self, event: Event) -> Awaitable[None] | None:
        self.events.append(event)
        if self.agent is not None:
            self.phases.append(self.agent.state.phase.value)
        return trio.lowlevel.checkpoint() if self.is_async else None


@attrs.define(eq=False)
class Stage:
    """One example while it is played, and what is known of it afterwards."""

    scenario: Scenario
    agent: Agent
    model: Model
    bench: Bench
    scope: trio.CancelScope
    listeners: list[Listener]
    calm: bool = False  # from here on nothing goes wrong any more
    requests: int = 0
    keys: int = 0
    prompts: list[UserMessage] = attrs.field(factory=list[UserMessage])
    results: list[RunResult] = attrs.field(factory=list[RunResult])
    raised: list[BaseException] = attrs.field(factory=list[BaseException])
    queued_ids: list[str] = attrs.field(factory=list[str])
    late_listeners: list[Listener] = attrs.field(factory=list[Listener])
    struck_at: int | None = None  # how many events there were at the disturbance
    struck_idle: bool = False
    struck_decided: bool = False  # something had stopped the run already
    any_cancelled: bool = False

    @property
    def events(self) -> list[Event]:
        return self.listeners[0].events

    def on_strike(self) -> None:
        self.struck_at = len(self.events)
        self.struck_idle = self.agent.state.phase.value == "idle"
        run: Any = self.agent._run  # pyright: ignore[reportPrivateUsage]  # there is no public way to see it so early
        self.struck_decided = run is not None and run.stopping

    def abort(self) -> None:
        """From outside. No tool may begin behind this."""
        self.agent.abort("from outside")
        if not self.struck_idle:
            self.bench.closed = True


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
    from ._scenario_checks import CHECKS, check_next_prompt  # noqa: PLC0415  # they know the stage

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
def _quiet() -> Iterator[None]:
    """What goes wrong in a scenario is meant to; the kernel need not log it."""
    logger = logging.getLogger("trio_agent")
    disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = disabled


# The whole


def set_up(scenario: Scenario, background: trio.Nursery) -> Stage:
    made: list[Stage] = []

    async def provider(request: ModelRequest, send: Send) -> None:
        await _reply(made[0], request, send)

    locks = FileLocks()
    agent = Agent(
        provider,
        model="m",
        tools=TOOLS,
        hooks=_hooks(scenario, made),
        retry=RetryPolicy(scenario.max_attempts, jitter=False),
        compaction=_Compaction(made, scenario) if scenario.compaction else None,
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
        _subscribe(stage, moment)
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
        watched = checkpoints.watching(abort=stage.abort, cancel=stage.scope.cancel, on_strike=stage.on_strike)
        try:
            with watched, stage.scope:
                await _enter(stage, text)
        except (Exception, KeyboardInterrupt) as exc:
            stage.raised.append(exc)
        stage.any_cancelled |= stage.scope.cancelled_caught
        if stage.events:
            stage.model.idle()


async def _enter(stage: Stage, message: UserMessage) -> None:
    scenario = stage.scenario
    with _timer(stage, scenario.abort_after, stage.abort), _timer(stage, scenario.cancel_after, stage.scope.cancel):
        if scenario.entry == "resume" and not stage.results:
            stage.model.steer(message)
            stage.results.append(await stage.agent.resume())
            await trio.lowlevel.checkpoint()  # a Ctrl-C that came last shows here
            return
        stage.prompts.append(message)
        if scenario.entry in ("prompt", "resume"):
            stage.results.append(await stage.agent.prompt(message))
        else:
            await _read(stage, message)
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
def _timer(stage: Stage, seconds: float | None, do: Callable[[], object]) -> Iterator[None]:
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


# The provider


async def _reply(stage: Stage, request: ModelRequest, send: Send) -> None:
    if stage.bench.closed:
        stage.bench.faults.append("A2: a request began after the abort")
    number, stage.requests = stage.requests, stage.requests + 1
    replies = stage.scenario.replies
    reply = replies[number] if number < len(replies) and not stage.calm else PLAIN
    await work(reply.seconds)
    if reply.where == "before":
        await _fail(stage, reply, send)
    if reply.where == "in" and not (reply.text or reply.thinking):
        await _pause(reply)
        await send(TextDelta(0, "so"))
    for piece in reply.thinking:
        await _pause(reply)
        await send(ThinkingDelta(0, piece))
    for piece in reply.text:
        await _pause(reply)
        await send(TextDelta(1 if reply.thinking else 0, piece))
    if reply.where == "in":
        await _fail(stage, reply, send)
    for at, call in enumerate(reply.calls):
        await _call(stage, reply, call, at + 2, send)
    await send(UsageReport(Usage(input=10, output=1)))
    behind_the_end = reply.fails in ("bug", "more")
    if reply.where == "after" and not behind_the_end:
        await _fail(stage, reply, send)
        if reply.fails == "nothing":
            return
    await _pause(reply)
    await send(Finish(reply.ends or ("tool_use" if reply.calls else "stop")))
    if reply.where == "after":
        await _fail(stage, reply, send)


async def _pause(reply: Response) -> None:
    if reply.checkpoints:
        await trio.lowlevel.checkpoint()


async def _fail(stage: Stage, reply: Response, send: Send) -> None:
    kind: Any = reply.fails
    if kind == "bug":
        raise RuntimeError(MEANT)
    if kind == "more":
        await send(Finish("stop"))
        await send(TextDelta(0, "more"))
    elif kind == "stall":
        await trio.sleep_forever()
    elif kind == "swallow":
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            await send(TextDelta(0, "never mind"))  # noqa: ASYNC102, ASYNC104  # this is what the example is about
    elif kind == "hurt":
        try:
            await trio.sleep_forever()
        finally:
            raise RuntimeError(MEANT)
    elif kind and kind != "nothing":
        raise ProviderError(kind, MEANT)


async def _call(stage: Stage, reply: Response, call: Call, index: int, send: Send) -> None:
    stage.keys += 1
    key = f"k{stage.keys}"
    arguments: dict[str, Any] = {"key": key}
    if call.does in ("writes", "locks"):
        arguments["path"] = spelled(stage.bench.file, call.spelling)
        if call.does == "writes":
            stage.bench.asked.append(key)
    if call.does in ("returns", "raises", "nursery", "updates", "late", "serial", "writes", "locks", "agent"):
        arguments["seconds"] = call.seconds
    if call.does == "invalid":
        arguments["number"] = "many"
    id = {"given": f"c{stage.keys}", "missing": None, "repeated": "c1"}[reply.ids]
    raw = dumps(arguments)
    await _pause(reply)
    await send(ToolCallStart(index, id, call.does))
    await send(ToolCallDelta(index, raw[:7]))
    await _pause(reply)
    await send(ToolCallDelta(index, raw[7:]))


# Hooks and compaction


def _hooks(scenario: Scenario, made: list[Stage]) -> Hooks | None:
    if not scenario.hooks:
        return None
    return Hooks(timeout=scenario.hook_timeout, **{hook.name: _hook(hook, made) for hook in scenario.hooks})


def _hook(hook: Hook, made: list[Stage]) -> Callable[..., Any]:
    given_back = hook.name in ("transform_context", "convert_to_llm")

    def value(given: Any) -> Any:
        if hook.does == "blocks" and hook.name == "before_tool_call":
            return Block("not today")
        if hook.does == "replaces" and hook.name == "before_tool_call":
            return Replace({**given.arguments, "seconds": 1.0})
        if hook.does == "replaces" and hook.name == "after_tool_result":
            return "replaced"
        if hook.does == "stops" and hook.name == "should_stop_after_turn":
            return True
        if hook.name == "convert_to_llm":
            return [message for message in given if message.role != "custom"]
        return given if given_back else None

    async def wait(given: Any) -> Any:
        if not made[0].calm and hook.does == "hangs":
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        return value(given)

    def run(given: Any) -> Any:
        stage = made[0]
        if stage.bench.closed:
            stage.bench.faults.append(f"A2: the hook {hook.name} began after the abort")
        if hook.does in ("waits", "hangs"):
            return wait(given)
        if hook.does == "raises" and not stage.calm:
            raise RuntimeError(MEANT)
        return value(given)

    return run


@attrs.define
class _Compaction:
    """Keeps the last message, and what it must not part from it."""

    made: list[Stage]
    scenario: Scenario

    def threshold(self, state: AgentState) -> bool:
        at = self.scenario.compacts_at
        return at is not None and len(state.messages) >= at and not self.made[0].calm

    async def compact(self, messages: Sequence[Message], reason: str) -> Compaction:
        stage = self.made[0]
        if stage.bench.closed:
            stage.bench.faults.append("A2: a compaction began after the abort")
        await trio.lowlevel.checkpoint()
        if self.scenario.compaction == "hangs":
            await trio.sleep_forever()
        if self.scenario.compaction == "raises":
            raise RuntimeError(MEANT)
        kept = len(messages) - 1
        while kept > 1 and messages[kept].role != "user":
            kept -= 1
        kept = 1 if self.scenario.compaction == "useless" else max(1, kept)
        return Compaction(UserMessage("summary"), kept)


# Moments


def _subscribe(stage: Stage, moment: Moment) -> None:
    seen = 0
    unsubscribe: list[Callable[[], None]] = []

    def listener(event: Event) -> Any:
        nonlocal seen
        if event.type != moment.event or stage.calm:
            return None
        seen += 1
        if seen != moment.nth:
            return None
        if moment.is_async or moment.does in ("waits", "hangs", "prompts"):
            return later()
        _do(stage, moment, unsubscribe[0])
        return None

    async def later() -> None:
        await trio.lowlevel.checkpoint()
        if moment.does == "waits":
            await trio.sleep(3)
        elif moment.does == "hangs":
            stage.agent.abort("a subscriber hangs")
            await trio.sleep_forever()
        elif moment.does == "prompts":
            await _prompt_inside(stage)
        else:
            _do(stage, moment, unsubscribe[0])

    unsubscribe.append(stage.agent.subscribe(listener, observer=moment.does == "observer_raises"))


def _do(stage: Stage, moment: Moment, unsubscribe: Callable[[], None]) -> None:
    model = stage.model
    if moment.does in ("raises", "observer_raises"):
        raise RuntimeError(f"{MEANT}, at {moment.event}")
    if moment.does == "interrupts":
        raise KeyboardInterrupt
    if moment.does == "aborts":
        stage.agent.abort("said a subscriber")
        stage.bench.closed = True
    elif moment.does == "cancels":
        stage.scope.cancel()
    elif moment.does == "steers":
        stage.queued_ids.append(model.steer(f"steered at {moment.event} {moment.nth}"))
    elif moment.does == "follows_up":
        stage.queued_ids.append(model.follow_up_with(f"followed up at {moment.event} {moment.nth}"))
    elif moment.does == "withdraws":
        if stage.queued_ids:
            model.withdraw(stage.queued_ids[-1])
    elif moment.does == "clears":
        model.clear_queues()
    elif moment.does == "configures":
        stage.agent.configure(model="m2", system_prompt="changed")
    elif moment.does == "subscribes":
        late = Listener(True)
        stage.late_listeners.append(late)
        stage.agent.subscribe(late)
    else:
        unsubscribe()


async def _prompt_inside(stage: Stage) -> None:
    try:
        await stage.agent.prompt("inside")
    except AgentBusyError:
        return
    stage.bench.faults.append("A6: a prompt inside the run was not refused")
