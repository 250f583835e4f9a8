"""Rule A6: who may call what while a run is in progress."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio
from scenes import Recorder, assert_settled, make_agent, on

from trio_agent import (
    Agent,
    AgentBusyError,
    Event,
    ForeignRunError,
    Hooks,
    ReentrantCallError,
    ToolContext,
    tool,
)
from trio_agent.testing import ScriptedProvider, call, finish, stall, text

CALLS: dict[str, Callable[[Agent], Any]] = {
    "prompt": lambda agent: agent.prompt("again"),
    "resume": lambda agent: agent.resume(),
    "wait_for_idle": lambda agent: agent.wait_for_idle(),
}


async def attempt(agent: Agent, name: str, caught: list[BaseException]) -> None:
    try:
        await CALLS[name](agent)
    except RuntimeError as exc:
        caught.append(exc)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("place", ["subscriber", "hook", "tool", "task of a tool", "provider"])
async def test_A6_from_inside_the_run_waiting_calls_are_refused_as_reentrant(place: str, name: str) -> None:
    """A call from inside that would wait for its own run raises ReentrantCallError, and the run goes on."""
    caught: list[BaseException] = []

    @tool
    async def work() -> str:
        """Call from the tool, or from a task of its own."""
        if place == "tool":
            await attempt(agent, name, caught)
        if place == "task of a tool":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(attempt, agent, name, caught)
        return "x"

    async def hook(found: Any, context: Any) -> None:
        if place == "hook":
            await attempt(agent, name, caught)

    scripted = ScriptedProvider([call("c1", "work"), finish("tool_use")], [text("ok"), finish()])

    async def provider(request: Any, send: Any) -> None:
        if place == "provider" and not caught:
            await attempt(agent, name, caught)
        await scripted(request, send)

    async def subscriber(event: Event) -> None:
        if place == "subscriber" and event.type == "turn_start" and not caught:
            await attempt(agent, name, caught)

    agent, recorder = make_agent(provider, tools=[work], hooks=Hooks(before_tool_call=hook))
    agent.subscribe(subscriber)
    assert (await agent.prompt("go")).outcome == "completed"
    assert [type(exc) for exc in caught] == [ReentrantCallError]
    if name != "wait_for_idle":
        assert "steer" in str(caught[0])
        assert "follow_up" in str(caught[0])
    assert_settled(recorder)


@pytest.mark.parametrize("name", ["prompt", "resume"])
async def test_A6_from_another_task_a_second_run_is_refused_as_busy(name: str) -> None:
    """A sibling's call during a run raises AgentBusyError, touches nothing, and names steer and follow_up."""
    caught: list[BaseException] = []
    agent, recorder = make_agent(ScriptedProvider([stall()]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.sleep(1)
        before = list(recorder.events)
        await attempt(agent, name, caught)
        assert [type(exc) for exc in caught] == [AgentBusyError]
        assert "steer" in str(caught[0])
        assert recorder.events == before
        agent.abort()
    assert_settled(recorder)


async def test_A6_wait_for_idle_from_a_sibling_waits() -> None:
    """A sibling in a nursery around the prompt is no insider: wait_for_idle() waits, and returns."""
    agent, recorder = make_agent(ScriptedProvider([text("hi"), finish()]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.sleep(0)
        await agent.wait_for_idle()
        assert recorder.types[-1] == "agent_end"
    await agent.wait_for_idle()


async def test_A6_a_background_task_started_from_a_tool_is_no_insider() -> None:
    """A task that a tool starts in the application's nursery may wait for the run that it came from."""
    waited: list[str] = []
    async with trio.open_nursery() as application:

        async def wait() -> None:
            await agent.wait_for_idle()
            waited.append(agent.state.phase.value)

        @tool
        async def start() -> str:
            """Start a background task."""
            application.start_soon(wait)
            return "started"

        agent, recorder = make_agent(
            ScriptedProvider([call("c1", "start"), finish("tool_use")], [text("ok"), finish()]), tools=[start]
        )
        assert (await agent.prompt("go")).outcome == "completed"
    assert waited == ["idle"]
    assert_settled(recorder)


async def test_A6_two_prompts_in_the_same_tick() -> None:
    """Of two prompts started at once exactly one runs; the other raises, and leaves no trace."""
    agent, recorder = make_agent(ScriptedProvider([text("hi"), finish()]))
    caught: list[BaseException] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(attempt, agent, "prompt", caught)
        nursery.start_soon(attempt, agent, "prompt", caught)
    assert [type(exc) for exc in caught] == [AgentBusyError]
    assert recorder.types.count("agent_start") == 1
    assert_settled(recorder)


async def test_A6_abort_steer_follow_up_subscribe_and_configure_are_welcome_inside() -> None:
    """Calls that do not wait are welcome from a subscriber."""
    agent, recorder = make_agent(ScriptedProvider([text("a"), finish()], [text("b"), finish()], [stall()]))
    late: list[str] = []

    def everything(event: Event) -> None:
        agent.steer("s")
        agent.follow_up("f")
        agent.subscribe(lambda event: late.append(event.type))
        agent.configure(system_prompt="new")

    on(agent, "turn_start", everything)
    on(agent, "turn_start", lambda event: agent.abort(), nth=3)
    result = await agent.prompt("go")
    assert result.outcome == "aborted"
    assert late[0] == "message_start"
    assert agent.state.system_prompt == "new"
    assert_settled(recorder)


SYNC_CALLS: dict[str, Callable[[Agent], Any]] = {
    "abort": lambda agent: agent.abort(),
    "steer": lambda agent: agent.steer("x"),
    "follow_up": lambda agent: agent.follow_up("x"),
    "configure": lambda agent: agent.configure(model="n"),
    "subscribe": lambda agent: agent.subscribe(print),
    "withdraw": lambda agent: agent.withdraw("q"),
    "clear_queues": lambda agent: agent.clear_queues(),
    "reset": lambda agent: agent.reset(),
}


@pytest.mark.real_time
@pytest.mark.parametrize("where", ["thread", "trio.run in a thread"])
@pytest.mark.parametrize("name", SYNC_CALLS)
async def test_A6_from_another_thread_or_another_run_calls_are_refused(name: str, where: str) -> None:
    """While a run is in progress calls from elsewhere raise ForeignRunError, and name the way to do it."""
    agent, recorder = make_agent(ScriptedProvider([stall()]))
    caught: list[BaseException] = []

    def elsewhere() -> None:
        async def main() -> None:
            SYNC_CALLS[name](agent)

        try:
            trio.run(main) if where != "thread" else SYNC_CALLS[name](agent)
        except ForeignRunError as exc:
            caught.append(exc)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        while not recorder.events:
            await trio.sleep(0.01)
        thread = threading.Thread(target=elsewhere)
        thread.start()
        await trio.to_thread.run_sync(thread.join)
        assert len(caught) == 1
        assert "trio.from_thread.run_sync" in str(caught[0])
        agent.abort()
    assert_settled(recorder)


@pytest.mark.real_time
async def test_A6_the_way_that_is_named_works() -> None:
    """trio.from_thread.run_sync(agent.abort) from a thread ends the run."""
    agent, recorder = make_agent(ScriptedProvider([stall()]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        while not recorder.events:
            await trio.sleep(0.01)
        await trio.to_thread.run_sync(lambda: trio.from_thread.run_sync(agent.abort, "from a thread"))
    assert recorder.events[-1].reason == "from a thread"
    assert_settled(recorder)


def test_A6_an_idle_agent_belongs_to_nobody() -> None:
    """An agent may be used in one trio.run after the other, and spoken to outside of any."""
    agent = Agent(ScriptedProvider([text("a"), finish()], [text("b"), finish()]), model="m")
    recorder = Recorder(agent)
    agent.steer("said before")
    trio.run(agent.prompt, "one")
    agent.configure(model="n")
    trio.run(agent.prompt, "two")
    assert agent.state.model == "n"
    assert_settled(recorder)


@pytest.mark.real_time
async def test_A6_a_sync_tool_reaches_its_run_through_its_context() -> None:
    """From its thread a sync tool reports, locks a file and runs another agent in the tool's own task."""
    inner, inside = make_agent(ScriptedProvider([text("inner"), finish()]))

    @tool
    def work(path: str, context: ToolContext) -> str:
        """Use the context from a thread."""
        context.update("half")
        with context.lock_files(path):
            held.append(context.state.pending_file_writes)
        result = context.run_in_task(inner.prompt, "go")
        return f"{result.text} {context.call_id} {context.aborting}"

    held: list[Any] = []
    provider = ScriptedProvider([call("c1", "work", {"path": "a.txt"}), finish("tool_use")], [text("ok"), finish()])
    agent, recorder = make_agent(provider, tools=[work])
    assert (await agent.prompt("go")).outcome == "completed"
    assert recorder.lines_of("tool_execution_update", "tool_execution_end") == [
        'tool_execution_update c1 "half"',
        'tool_execution_end c1 ok "inner c1 False"',
    ]
    assert len(held[0]) == 1
    assert_settled(inside)
    assert_settled(recorder)


@pytest.mark.real_time
async def test_A6_a_deadlock_through_a_bare_from_thread_is_still_noticed() -> None:
    """A sync tool that waits for its own run through trio.from_thread is refused rather than left to hang."""

    @tool
    def work() -> str:
        """Wait for oneself."""
        trio.from_thread.run(agent.wait_for_idle)
        return "never"

    provider = ScriptedProvider([call("c1", "work"), finish("tool_use")], [text("ok"), finish()])
    agent, recorder = make_agent(provider, tools=[work])
    assert (await agent.prompt("go")).outcome == "completed"
    assert "ReentrantCallError" in recorder.lines_of("tool_execution_end")[0]
    assert_settled(recorder)
