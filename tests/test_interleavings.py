"""One scenario in every interleaving: a stream, two tools, an awaited and a sync subscriber, and something that goes
wrong.

The invariants are looked at after every event, not only at the end. Abort anywhere, outside cancellation anywhere and a
subscriber that fails at event k are exhausted; Hypothesis draws longer mixtures, and the scheduler's seed with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import assert_idle, deterministic, trio_run

from trio_agent import (
    Agent,
    AssistantMessage,
    Event,
    MessageEnd,
    RunResult,
    ToolExecutionEnd,
    ToolResultMessage,
    tool,
)
from trio_agent.testing import Choose, Conductor, ScriptedProvider, TraceChecker, call, do, explore, finish, text

ANSWERS = {"c1": "one", "c2": "two"}


class Invariants:
    """A sync subscriber that holds the state shown at each event against the trace so far."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.events: list[Event] = []
        self.checker = TraceChecker()
        self.pending: list[str] = []
        self.history: list[Any] = []

    def __call__(self, event: Event) -> None:
        self.checker(event)
        self.events.append(event)
        if event.type == "tool_execution_start":
            self.pending.append(event.tool_call_id)
        elif event.type == "tool_execution_end":
            self.pending.remove(event.tool_call_id)
        elif event.type == "message_end":
            self.history.append(event.message)
        state = self.agent.state
        assert list(state.messages) == self.history, "L6: history grows at message_end"
        assert list(state.pending_tool_calls) == self.pending
        assert state.phase.value == "turn", "P2: turn lasts from agent_start to agent_end"
        if event.type == "message_update":
            assert state.is_streaming
            assert event.message == state.streaming_message
        if event.type in ("message_end", "turn_end", "agent_end"):
            assert not state.is_streaming
            assert state.streaming_message is None


class Scene:
    """The agent, its gated fakes, and what each of them did."""

    def __init__(self, choose: Choose) -> None:
        self.conductor = conductor = Conductor(choose)
        self.returned: dict[str, str] = {}
        self.handled: list[Event] = []
        self.begun: list[str] = []
        self.cut: list[str] = []

        @tool
        async def work(id: str) -> str:
            """Wait at a gate, then answer."""
            self.begun.append(id)
            await conductor.gate(f"tool {id}")
            self.returned[id] = ANSWERS[id]
            return ANSWERS[id]

        async def slow_subscriber(event: Event) -> None:
            if event.type in ("message_update", "tool_execution_end", "agent_end"):
                try:
                    await conductor.gate("subscriber")
                except trio.Cancelled:
                    self.cut.append(event.type)
                    raise
            self.handled.append(event)

        self.provider = ScriptedProvider(
            [
                text("he"),
                do(lambda: conductor.gate("stream")),
                text("llo"),
                call("c1", "work", {"id": "c1"}),
                call("c2", "work", {"id": "c2"}),
                finish("tool_use"),
            ],
            [text("ok"), finish()],
        )
        self.agent = Agent(self.provider, model="m", tools=[work])
        self.agent.subscribe(slow_subscriber)
        self.seen = Invariants(self.agent)
        self.agent.subscribe(self.seen)

    def check(self, result: RunResult | None) -> None:
        """What has to hold at the end, whatever happened."""
        events = self.seen.events
        self.seen.checker.finish()
        assert_idle(self.agent)
        assert [event.type for event in events].count("agent_end") == 1
        assert events[-1].type == "agent_end"
        assert self.handled == events, "A3: no subscriber was cut, and none missed an event"
        assert not self.cut
        for event in events:
            if isinstance(event, ToolExecutionEnd) and not event.is_error:
                assert event.result.text == self.returned[event.tool_call_id]
        self.check_sendable()
        if result is not None:
            assert result.outcome == events[-1].outcome

    def check_sendable(self) -> None:
        messages = list(self.agent.state.messages)
        for place, message in enumerate(messages):
            if isinstance(message, AssistantMessage) and message.stop_reason not in ("error", "aborted"):
                following = messages[place + 1 : place + 1 + len(message.tool_calls)]
                answers = [m.tool_call_id for m in following if isinstance(m, ToolResultMessage)]
                assert answers == [made.id for made in message.tool_calls], "F2: each call has its result behind it"


def run_scene(choose: Choose, prepare: Callable[[Scene], None] = lambda scene: None, *, outside: bool = False) -> Scene:
    """Play the scene once. With `outside` the scope around the prompt may be cancelled at any moment."""
    scenes: list[Scene] = []

    async def main() -> None:
        scene = Scene(choose)
        scenes.append(scene)
        prepare(scene)
        scope = trio.CancelScope()
        if outside:
            scene.conductor.action("cancel", scope.cancel)

        async def body() -> RunResult | None:
            with scope:
                return await scene.agent.prompt("go")
            return None

        result = await scene.conductor.conduct(body)
        assert scope.cancelled_caught == (result is None)
        scene.check(result)

    with deterministic():
        trio_run(main)
    return scenes[0]


def test_the_undisturbed_scene_is_exhausted_and_always_comes_to_the_same_history() -> None:
    """Whatever the interleaving of stream, tools and subscriber, history is the same; only the order of ends varies."""
    histories, ends = set(), set()

    def run_once(choose: Choose) -> None:
        scene = run_scene(choose)
        histories.add(tuple(scene.agent.state.messages))
        ends.add(tuple(e.tool_call_id for e in scene.seen.events if isinstance(e, ToolExecutionEnd)))

    found = explore(run_once)
    print(f"undisturbed: {found}")
    assert found.exhausted
    assert len(histories) == 1
    assert ends == {("c1", "c2"), ("c2", "c1")}


def test_abort_anywhere_is_exhausted() -> None:
    """An abort at any standstill settles the run lawfully, and no tool begins a line behind it."""
    outcomes = set()

    def run_once(choose: Choose) -> None:
        def prepare(scene: Scene) -> None:
            def abort() -> None:
                scene.agent.abort("now")
                begun = scene.begun[:]
                scene.agent.subscribe(lambda event: None if scene.begun == begun else pytest.fail("A2: a tool began"))

            scene.conductor.action("abort", abort)

        scene = run_scene(choose, prepare)
        outcomes.add(scene.seen.events[-1].outcome)

    found = explore(run_once)
    print(f"abort anywhere: {found}")
    assert found.exhausted
    assert outcomes == {"completed", "aborted"}


def test_outside_cancellation_anywhere_is_exhausted() -> None:
    """Cancelling the scope around prompt() at any standstill settles the run, and reaches exactly that scope, bare."""
    found = explore(lambda choose: run_scene(choose, outside=True))
    print(f"outside cancellation anywhere: {found}")
    assert found.exhausted


@pytest.mark.parametrize("k", range(34))
def test_a_subscriber_that_fails_at_event_k(k: int) -> None:
    """A subscriber that raises at event k fails the run once; everybody else sees a lawful trace to its end."""

    def run_once(choose: Choose) -> None:
        count = 0

        def failing(event: Event) -> None:
            nonlocal count
            count += 1
            if count == k + 1:
                raise RuntimeError(f"event {k}: {event.type}")

        scene = run_scene(choose, lambda scene: scene.agent.subscribe(failing) and None)
        last = scene.seen.events[-1]
        if count > k and scene.seen.events[k].type != "agent_end":
            assert last.outcome == "error"
            assert f"event {k}:" in last.error
        else:
            assert last.outcome == "completed"

    found = explore(run_once, limit=60)
    assert found.schedules >= 1


@settings(max_examples=150)
@given(data=st.data(), seed=st.integers(0, 2**16))
def test_mixtures_drawn_by_hypothesis(data: st.DataObject, seed: int) -> None:
    """Abort, outside cancellation and a failing subscriber, all at once, at drawn moments, keep every rule."""
    k = data.draw(st.integers(0, 40), label="a subscriber fails at")

    def prepare(scene: Scene) -> None:
        count = 0

        def failing(event: Event) -> None:
            nonlocal count
            count += 1
            if count == k:
                raise RuntimeError("drawn")

        scene.agent.subscribe(failing)
        if data.draw(st.booleans(), label="may abort"):
            scene.conductor.action("abort", scene.agent.abort, times=2)

    def choose(names: Any) -> str:
        return data.draw(st.sampled_from(names), label="next")

    with deterministic(seed):
        run_scene(choose, prepare, outside=data.draw(st.booleans(), label="may cancel"))


def test_results_come_in_call_order_whatever_the_order_of_ends() -> None:
    """T4: the tool-result messages stand in the order of the calls in all interleavings."""

    def run_once(choose: Choose) -> None:
        scene = run_scene(choose)
        results = [
            e.message.tool_call_id
            for e in scene.seen.events
            if isinstance(e, MessageEnd) and isinstance(e.message, ToolResultMessage)
        ]
        assert results == ["c1", "c2"]

    assert explore(run_once).exhausted
