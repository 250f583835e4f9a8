"""How the tests talk about runs: a recorder of events, tools that behave, and runs of their own for property tests.

Here lives vocabulary for tests only; what users of the package may want too is in `trio_agent.testing`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import trio
import trio.testing

from trio_agent import (
    Agent,
    AgentState,
    AssistantMessage,
    Event,
    Message,
    MessageEnd,
    Provider,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResultMessage,
)
from trio_agent.testing import check_trace, render

T = TypeVar("T")


class Recorder:
    """A subscriber that keeps every event, and the state as it was shown with it."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.events: list[Event] = []
        self.states: list[AgentState] = []
        agent.subscribe(self)

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self.states.append(self.agent.state)

    @property
    def lines(self) -> list[str]:
        return render(self.events)

    def lines_of(self, *types: str) -> list[str]:
        return [line for line, event in zip(self.lines, self.events, strict=True) if event.type in types]

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.events]

    def assert_lawful(self) -> None:
        violations = check_trace(self.events)
        assert not violations, "\n".join(map(str, violations))


def make_agent(provider: Provider, **options: Any) -> tuple[Agent, Recorder]:
    """An agent and its recorder."""
    agent = Agent(provider, model="m", **options)
    return agent, Recorder(agent)


def on(agent: Agent, type: str, do: Callable[[Any], object], *, nth: int = 1) -> None:
    """Do something at the n-th event of a type; await it if it is awaitable."""
    seen = 0

    def listener(event: Event) -> object:
        nonlocal seen
        if event.type == type:
            seen += 1
            if seen == nth:
                return do(event)
        return None

    agent.subscribe(listener)


def assert_idle(agent: Agent) -> None:
    """P4, as far as it can be seen from outside."""
    state = agent.state
    assert state.phase.value == "idle"
    assert not state.is_streaming
    assert state.streaming_message is None
    assert state.pending_tool_calls == ()
    assert state.pending_file_writes == ()


def assert_settled(recorder: Recorder) -> None:
    """What holds behind every run: the agent is idle (P4), and what it told was lawful."""
    assert_idle(recorder.agent)
    recorder.assert_lawful()


def said(messages: Iterable[Message]) -> list[str]:
    """Messages as the lines that `render` makes of their ends: `user "hi"`, `tool_result c1 ok "x"`."""
    return [line.removeprefix("message_end ") for line in render([MessageEnd(message) for message in messages])]


def executions(events: Iterable[Event]) -> list[str]:
    """What was told of tool calls, in order: `start a`, `update a`, `end a`."""
    told = (ToolExecutionStart, ToolExecutionUpdate, ToolExecutionEnd)
    return [f"{e.type.removeprefix('tool_execution_')} {e.tool_call_id}" for e in events if isinstance(e, told)]


def assert_paired(messages: Iterable[Message]) -> None:
    """I1: each call has exactly one result, directly behind its message, in call order; no result lacks a call."""
    awaited: list[str] = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            assert awaited, f"the result of {message.tool_call_id} has no call in front of it"
            assert message.tool_call_id == awaited.pop(0)
        else:
            assert not awaited, f"no results for {awaited}"
            awaited = [call.id for call in message.tool_calls] if isinstance(message, AssistantMessage) else []
    assert not awaited, f"no results for {awaited}"


def trio_run(main: Callable[[], Awaitable[T]], seconds: float = 10_000) -> T:
    """A `trio.run` of its own under a clock that jumps, for property tests: a hang is a failure."""

    async def bounded() -> T:
        with trio.fail_after(seconds):
            return await main()

    return trio.run(bounded, clock=trio.testing.MockClock(autojump_threshold=0))


@contextmanager
def deterministic(seed: int = 0) -> Iterator[None]:
    """One seed, one schedule: Trio shuffles runnable tasks, and can be seeded in private only, as its own tests do."""
    run: Any = trio._core._run
    allowed, run._ALLOW_DETERMINISTIC_SCHEDULING = run._ALLOW_DETERMINISTIC_SCHEDULING, True
    state = run._r.getstate()
    run._r.seed(seed)
    try:
        yield
    finally:
        run._ALLOW_DETERMINISTIC_SCHEDULING = allowed
        run._r.setstate(state)
