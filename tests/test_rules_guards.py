"""A6, sentence by sentence: who may call what while a run is in progress, and what is said to who may not.

Sync tools, whose threads reach the run in ways of their own, are in `test_threads.py`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from scenes import assert_idle, assert_settled, make_agent, on, said
from tour import TOUR, At, Tour, at_each_event, at_each_kind

from trio_agent import (
    Agent,
    AgentBusyError,
    Compaction,
    Event,
    ForeignRunError,
    Hooks,
    ModelRequest,
    ReentrantCallError,
    RunResult,
    Send,
    ToolContext,
    UserMessage,
    tool,
)
from trio_agent.testing import ScriptedProvider, call, finish, stall, text

Entry = Callable[[Agent], Awaitable[Any]]


async def prompt(agent: Agent) -> None:
    await agent.prompt("me too")


async def resume(agent: Agent) -> None:
    await agent.resume()


async def stream(agent: Agent) -> None:
    async with agent.stream("me too"):
        raise AssertionError("it was let in")


async def wait_for_idle(agent: Agent) -> None:
    await agent.wait_for_idle()


RUNNING_ENTRIES: list[Entry] = [prompt, resume, stream]
ENTRIES: list[Entry] = [*RUNNING_ENTRIES, wait_for_idle]
by_name = {"ids": lambda entry: entry.__name__}


@asynccontextmanager
async def running(agent: Agent) -> AsyncIterator[list[RunResult]]:
    """The agent in the middle of a run of its own; aborted behind the block."""
    results: list[RunResult] = []

    async def run() -> None:
        results.append(await agent.prompt("go"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        yield results
        agent.abort()


# prompt() and resume() while a run is in progress


@pytest.mark.parametrize("entry", RUNNING_ENTRIES, **by_name)
async def test_A6_prompt_and_resume_while_a_run_is_in_progress_raise_and_name_the_way(entry: Entry) -> None:
    """From another task: `AgentBusyError`, at once, whose text names `steer` and `follow_up`; the run goes on
    untouched.
    """
    agent, recorder = make_agent(ScriptedProvider(["half", stall()]))
    async with running(agent):
        told = len(recorder.events)
        said_so = pytest.raises(AgentBusyError, match=r"steer\(\).*follow_up\(\)")
        with said_so as caught, trio.testing.assert_no_checkpoints():
            await entry(agent)
        assert not isinstance(caught.value, ReentrantCallError)
        assert len(recorder.events) == told
    assert_settled(recorder)


async def test_A6_reset_while_a_run_is_in_progress_raises() -> None:
    """`reset()` is for an idle agent: during a run it raises and changes nothing."""
    agent, recorder = make_agent(ScriptedProvider(["half", stall()]))
    async with running(agent):
        with pytest.raises(AgentBusyError):
            agent.reset()
        assert said(agent.state.messages) == ['user "go"']
    assert_settled(recorder)


async def test_A6_of_two_tasks_that_prompt_at_once_one_runs() -> None:
    """Two tasks call `prompt()` in the same moment: one runs, the other is told that the agent is busy."""
    agent, recorder = make_agent(ScriptedProvider(["ok", finish()]))
    outcomes: list[str] = []

    async def one() -> None:
        try:
            outcomes.append((await agent.prompt("go")).outcome)
        except AgentBusyError:
            outcomes.append("busy")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(one)
        nursery.start_soon(one)
    assert sorted(outcomes) == ["busy", "completed"]
    assert_settled(recorder)


# From inside


@at_each_event
async def test_A6_from_a_subscriber_every_entry_raises_at_every_event(k: int) -> None:
    """From a subscriber, at any event: `ReentrantCallError`. Who catches it changes nothing of the run."""
    tour = Tour()
    raised: list[str] = []

    async def try_all() -> None:
        for entry in ENTRIES:
            with pytest.raises(ReentrantCallError):
                await entry(tour.agent)
            raised.append(entry.__name__)

    tour.agent.subscribe(At(k, try_all, is_async=True))
    result = await tour.agent.prompt("go")
    assert len(raised) == len(ENTRIES)
    assert result.outcome == "completed"
    assert tour.lines == TOUR
    assert_settled(tour.recorder)


@pytest.mark.parametrize("entry", ENTRIES, **by_name)
async def test_A6_a_subscriber_that_does_not_catch_it_fails_the_run(entry: Entry) -> None:
    """A guard's error that a subscriber lets pass is its failure: the run ends with `error`, which says why."""
    agent, recorder = make_agent(ScriptedProvider(["half", stall()]))
    on(agent, "message_update", lambda event: entry(agent))
    result = await agent.prompt("go")
    assert isinstance(result.error, ReentrantCallError)
    assert "inside" in (agent.state.error_message or "")
    assert_settled(recorder)


async def test_A6_the_text_for_insiders_names_the_way_as_well() -> None:
    """`ReentrantCallError` is an `AgentBusyError` that names `steer` and `follow_up` too."""
    agent, recorder = make_agent(ScriptedProvider(["half", finish()]))
    on(agent, "turn_start", lambda event: agent.prompt("again"))
    result = await agent.prompt("go")
    assert isinstance(result.error, AgentBusyError)
    assert "steer()" in str(result.error)
    assert "follow_up()" in str(result.error)
    assert_settled(recorder)


async def through_nothing(work: Callable[[], Awaitable[None]]) -> None:
    await work()


async def through_a_task_of_its_own(work: Callable[[], Awaitable[None]]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)


async def through_nursery_start(work: Callable[[], Awaitable[None]]) -> None:
    async def started(task_status: trio.TaskStatus[None]) -> None:
        await work()
        task_status.started()

    async with trio.open_nursery() as nursery:
        await nursery.start(started)


ROUTES = [through_nothing, through_a_task_of_its_own, through_nursery_start]


class Asking:
    """A run in which each of its parts calls the entries of its own agent, and notes what that came to."""

    def __init__(self, route: Callable[..., Awaitable[None]]) -> None:
        self.route = route
        self.heard: dict[str, list[str]] = {}
        self.agent: Agent

    async def ask(self, who: str) -> None:
        async def all_entries() -> None:
            heard = self.heard.setdefault(who, [])
            for entry in ENTRIES:
                try:
                    await entry(self.agent)
                except ReentrantCallError:
                    heard.append("reentrant")

        if who not in self.heard:
            await self.route(all_entries)


@pytest.mark.parametrize("route", ROUTES, **by_name)
async def test_A6_every_part_of_the_run_is_inside_it(route: Callable[..., Awaitable[None]]) -> None:
    """Provider, tool, each hook, subscriber and compaction policy, and tasks that they wait for, are inside the run."""
    asking = Asking(route)
    script = ScriptedProvider([call("c1", "asks"), finish("tool_use")], ["done", finish()])

    async def provider(request: ModelRequest, send: Send) -> None:
        await asking.ask("provider")
        await script(request, send)

    @tool
    async def asks() -> str:
        """Ask."""
        await asking.ask("tool")
        return "asked"

    def hook(name: str) -> Any:
        async def asks(given: Any, *_: Any) -> Any:
            await asking.ask(name)
            return given if name in ("transform_context", "convert_to_llm") else None

        return asks

    class Policy:
        def threshold(self, state: Any) -> bool:
            return "policy" not in asking.heard

        async def compact(self, messages: Any, reason: str) -> Compaction:
            await asking.ask("policy")
            return Compaction(UserMessage("summary"), 1)

    names = ["transform_context", "convert_to_llm", "before_tool_call", "after_tool_result", "should_stop_after_turn"]
    asking.agent, recorder = make_agent(
        provider, tools=[asks], hooks=Hooks(**{name: hook(name) for name in names}), compaction=Policy()
    )
    asking.agent.subscribe(lambda event: asking.ask("subscriber"))
    asking.agent.subscribe(lambda event: asking.ask("observer"), observer=True)
    result = await asking.agent.prompt("go")
    assert result.outcome == "completed"
    everyone = {*names, "provider", "tool", "policy", "subscriber", "observer"}
    assert asking.heard == dict.fromkeys(everyone, ["reentrant"] * len(ENTRIES))
    assert_settled(recorder)


async def test_A6_a_prompt_inside_agent_end_is_refused() -> None:
    """While `agent_end` is delivered the run is still in progress: a prompt is refused, and works once it is idle."""
    agent, recorder = make_agent(ScriptedProvider(["one", finish()], ["two", finish()]))
    heard: list[type] = []

    async def again(event: Event) -> None:
        try:
            await agent.prompt("again")
        except AgentBusyError as exc:
            heard.append(type(exc))

    with agent.subscribe(lambda event: again(event) if event.type == "agent_end" else None):
        await agent.prompt("go")
    assert heard == [ReentrantCallError]
    assert (await agent.prompt("now")).text == "two"
    assert_settled(recorder)


async def test_A6_two_agents_that_call_each_other_are_noticed() -> None:
    """An agent inside a tool whose own tool prompts the outer agent is refused: the outer one waits for it."""
    heard: list[str] = []

    @tool
    async def ask_outer() -> str:
        """Ask the outer agent."""
        for entry in ENTRIES:
            with pytest.raises(ReentrantCallError):
                await entry(outer)
            heard.append(entry.__name__)
        return "refused"

    inner, inner_recorder = make_agent(
        ScriptedProvider([call("c1", "ask_outer"), finish("tool_use")], ["no luck", finish()]), tools=[ask_outer]
    )

    @tool
    async def ask_inner() -> str:
        """Ask the inner agent."""
        await inner.wait_for_idle()
        return (await inner.prompt("ask back")).text

    outer, recorder = make_agent(
        ScriptedProvider([call("c1", "ask_inner"), finish("tool_use")], ["done", finish()]), tools=[ask_inner]
    )
    result = await outer.prompt("go")
    assert len(heard) == len(ENTRIES)
    assert result.outcome == "completed"
    assert_settled(recorder)
    assert_settled(inner_recorder)


# From inside a stream's block


@pytest.mark.parametrize("entry", ENTRIES, **by_name)
@pytest.mark.parametrize("route", ROUTES, **by_name)
async def test_A6_a_streams_block_is_inside_the_run(entry: Entry, route: Callable[..., Awaitable[None]]) -> None:
    """The run waits for the block that reads its events: from there every entry raises, and the run completes."""
    agent, recorder = make_agent(ScriptedProvider(["ok", finish()]))
    raised: list[type] = []

    async def try_it() -> None:
        try:
            await entry(agent)
        except ReentrantCallError as exc:
            raised.append(type(exc))

    async with agent.stream("go") as events:
        async for event in events:
            if event.type == "message_update":
                await route(try_it)
    assert raised == [ReentrantCallError]
    assert events.result.outcome == "completed"
    assert_settled(recorder)


async def test_A6_a_streams_block_is_inside_from_its_first_line() -> None:
    """Before the first event has been read, too, the block is inside the run."""
    agent, recorder = make_agent(ScriptedProvider(["ok", finish()]))
    async with agent.stream("go") as events:
        with pytest.raises(ReentrantCallError):
            await agent.wait_for_idle()
        with pytest.raises(ReentrantCallError):
            await agent.prompt("again")
        async for _ in events:
            pass
    assert_settled(recorder)


async def test_A6_behind_the_last_event_of_a_stream_the_agent_is_idle() -> None:
    """Once the iterator has ended the run is over: the block may wait for idle, and prompt again."""
    agent, recorder = make_agent(ScriptedProvider(["one", finish()], ["two", finish()]))
    async with agent.stream("go") as events:
        async for _ in events:
            pass
        await agent.wait_for_idle()
        assert (await agent.prompt("again")).text == "two"
    assert_settled(recorder)


# Not from inside


async def test_A6_a_task_beside_the_run_is_not_inside_it() -> None:
    """A task in a nursery around `prompt()` may wait for idle, wherever `prompt()` is called in that nursery."""
    agent, recorder = make_agent(ScriptedProvider(["ok", stall()]))
    order: list[str] = []

    async def beside() -> None:
        await trio.testing.wait_all_tasks_blocked()
        agent.abort()
        await agent.wait_for_idle()
        order.append("idle")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(beside)
        await agent.prompt("go")  # in the very task that holds the nursery
        order.append("returned")
    assert sorted(order) == ["idle", "returned"]
    assert_settled(recorder)


async def test_A6_a_background_task_that_a_tool_started_elsewhere_is_not_inside() -> None:
    """A tool that starts a task in the application's nursery has started somebody who may wait for idle."""
    order: list[str] = []
    async with trio.open_nursery() as applications:

        async def background() -> None:
            with pytest.raises(AgentBusyError) as caught:
                await agent.prompt("too early")
            assert not isinstance(caught.value, ReentrantCallError)
            await agent.wait_for_idle()
            order.append("idle")

        @tool
        async def starts() -> str:
            """Start something."""
            applications.start_soon(background)
            await trio.testing.wait_all_tasks_blocked()
            return "started"

        agent, recorder = make_agent(
            ScriptedProvider([call("c1", "starts"), finish("tool_use")], ["done", finish()]), tools=[starts]
        )
        on(agent, "agent_end", lambda event: order.append("agent_end"))
        await agent.prompt("go")
    assert order == ["agent_end", "idle"]
    assert_settled(recorder)


async def test_A6_wait_for_idle_waits_for_the_run_that_is_in_progress_and_no_longer() -> None:
    """It returns when the run that it found is over, also if the next has begun by then; with no run, at once."""
    agent, recorder = make_agent(ScriptedProvider(["one", finish()], ["two", stall()]))
    await agent.wait_for_idle()
    with trio.testing.assert_checkpoints():
        await agent.wait_for_idle()
    order: list[str] = []

    async def waits_for_it() -> None:
        await agent.wait_for_idle()
        order.append("first is over")

    async with trio.open_nursery() as nursery:
        on(agent, "agent_start", lambda event: nursery.start_soon(waits_for_it))
        await agent.prompt("one")
        with trio.move_on_after(5):
            await agent.prompt("two")
        order.append("second is over")
    assert order == ["first is over", "second is over"]
    assert_settled(recorder)


async def test_A6_wait_for_idle_can_be_cancelled() -> None:
    """Giving up waiting for idle does nothing to the run."""
    agent, recorder = make_agent(ScriptedProvider(["half", stall()]))
    async with running(agent):
        with trio.move_on_after(1) as scope:
            await agent.wait_for_idle()
        assert scope.cancelled_caught
        assert agent.state.phase.value == "turn"
    assert_settled(recorder)


# What is welcome


@at_each_kind
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_A6_the_sync_calls_are_welcome_inside_at_every_event(k: int, is_async: bool) -> None:
    """`steer`, `follow_up`, `withdraw`, `clear_queues`, `subscribe` and `configure` work from a subscriber at any
    event.
    """
    tour = Tour()

    def call_all() -> None:
        agent = tour.agent
        assert agent.withdraw(agent.steer("now"))
        assert agent.withdraw(agent.follow_up("later"))
        agent.steer("now")
        agent.follow_up("later")
        assert said(agent.clear_queues()) == ['user "now"', 'user "later"']
        with agent.subscribe(print):
            pass
        agent.configure(model="m")
        assert agent.state.messages is not None

    subscriber = At(k, call_all, is_async=is_async)
    tour.agent.subscribe(subscriber)
    result = await tour.agent.prompt("go")
    assert subscriber.done == 1
    assert result.outcome == "completed"
    assert tour.lines == TOUR
    assert_settled(tour.recorder)


async def test_A6_the_sync_calls_are_welcome_in_hooks_and_tools() -> None:
    """A tool and a hook may steer, follow up, subscribe, configure and abort."""
    seen: list[str] = []

    @tool
    async def speaks() -> str:
        """Say something."""
        agent.steer("from the tool")
        agent.subscribe(lambda event: seen.append(event.type))
        agent.configure(system_prompt="changed by the tool")
        return "said"

    def before(call: Any, context: Any) -> None:
        agent.follow_up("from the hook")

    provider = ScriptedProvider([call("c1", "speaks"), finish("tool_use")], ["one", finish()], ["two", finish()])
    agent, recorder = make_agent(provider, tools=[speaks], hooks=Hooks(before_tool_call=before))
    on(agent, "message_end", lambda event: agent.abort("by a subscriber"), nth=6)
    result = await agent.prompt("go")
    assert [line for line in said(agent.state.messages) if line.startswith("user")] == [
        'user "go"',
        'user "from the tool"',
        'user "from the hook"',
    ]
    assert provider.requests[1].system_prompt == "changed by the tool"
    assert seen[0] == "tool_execution_end"
    assert (result.outcome, result.reason) == ("aborted", "by a subscriber")
    assert_settled(recorder)


# Other threads, other runs


FOREIGN: dict[str, Callable[[Agent], object]] = {
    "abort": lambda agent: agent.abort(),
    "steer": lambda agent: agent.steer("x"),
    "follow_up": lambda agent: agent.follow_up("x"),
    "withdraw": lambda agent: agent.withdraw("q1"),
    "clear_queues": lambda agent: agent.clear_queues(),
    "subscribe": lambda agent: agent.subscribe(print),
    "configure": lambda agent: agent.configure(model="x"),
    "reset": lambda agent: agent.reset(),
}


def in_a_thread(fn: Callable[[], object]) -> BaseException | None:
    """Call `fn` in a plain thread, while this one waits; gives what it raised."""
    raised: list[BaseException] = []

    def body() -> None:
        try:
            fn()
        except BaseException as exc:
            raised.append(exc)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    return raised[0] if raised else None


@pytest.mark.parametrize("name", FOREIGN)
async def test_A6_a_call_from_another_thread_raises_and_names_the_way(name: str) -> None:
    """During a run, a sync call from a plain thread raises `ForeignRunError`, which names `trio.from_thread`."""
    agent, recorder = make_agent(ScriptedProvider(["half", stall()]))
    async with running(agent):
        before = agent.state
        raised = in_a_thread(lambda: FOREIGN[name](agent))
        assert type(raised) is ForeignRunError
        assert "trio.from_thread.run_sync" in str(raised)
        assert name in str(raised)
        assert agent.state == before
    assert_settled(recorder)


@pytest.mark.parametrize("name", FOREIGN)
async def test_A6_a_call_from_another_trio_run_raises_and_names_the_way(name: str) -> None:
    """During a run, a sync call from another `trio.run` raises `ForeignRunError` as well."""
    agent, recorder = make_agent(ScriptedProvider(["half", stall()]))

    async def elsewhere() -> None:
        await trio.lowlevel.checkpoint()
        FOREIGN[name](agent)

    async with running(agent):
        raised = in_a_thread(lambda: trio.run(elsewhere))
        assert type(raised) is ForeignRunError
        assert "another trio.run" in str(raised)
    assert_settled(recorder)


@pytest.mark.parametrize("entry", ENTRIES, **by_name)
async def test_A6_an_entry_from_another_trio_run_raises_and_names_the_way(entry: Entry) -> None:
    """`prompt`, `resume`, `stream` and `wait_for_idle` from another `trio.run` raise `ForeignRunError` during a run."""
    agent, recorder = make_agent(ScriptedProvider(["half", stall()]))
    async with running(agent):
        raised = in_a_thread(lambda: trio.run(entry, agent))
        assert type(raised) is ForeignRunError
        assert "trio.from_thread.run" in str(raised)
    assert_settled(recorder)


@pytest.mark.parametrize("entry", ENTRIES, **by_name)
async def test_A6_an_entry_from_another_event_loop_raises(entry: Entry) -> None:
    """Awaited under asyncio in another thread during a run, an entry raises `ForeignRunError`, not something
    obscure.
    """
    agent, recorder = make_agent(ScriptedProvider(["half", stall()]))

    async def elsewhere() -> None:
        await entry(agent)

    async with running(agent):
        assert type(in_a_thread(lambda: asyncio.run(elsewhere()))) is ForeignRunError
    assert_settled(recorder)


async def test_A6_unsubscribing_from_another_thread_raises() -> None:
    """During a run, unsubscribing from a plain thread raises, and the listener stays subscribed."""
    agent, recorder = make_agent(ScriptedProvider(["half", stall()]))
    seen: list[str] = []
    unsubscribe = agent.subscribe(lambda event: seen.append(event.type))
    async with running(agent):
        assert type(in_a_thread(unsubscribe)) is ForeignRunError
    assert seen == recorder.types
    assert_settled(recorder)


async def test_A6_state_can_be_looked_at_from_anywhere() -> None:
    """A snapshot is frozen: looking at it from another thread does no harm, and is allowed."""
    agent, recorder = make_agent(ScriptedProvider(["half", stall()]))
    looked: list[Any] = []
    async with running(agent):
        assert in_a_thread(lambda: looked.append(agent.state)) is None
        assert looked[0] == agent.state
    assert_settled(recorder)


def test_A6_an_idle_agent_belongs_to_nobody() -> None:
    """Between runs an agent may be used by any thread and any `trio.run`, one after the other."""
    agent, recorder = make_agent(ScriptedProvider(["one", finish()], ["two", finish()], ["three", finish()]))

    async def main() -> str:
        with trio.fail_after(60):
            return (await agent.prompt("go")).text

    assert trio.run(main) == "one"
    for fn in (agent.abort, agent.clear_queues, agent.reset, lambda: agent.configure(model="other")):
        assert in_a_thread(fn) is None
    texts: list[str] = []
    assert in_a_thread(lambda: texts.append(trio.run(main))) is None
    agent.steer("from nowhere")
    texts.append(trio.run(main))
    assert texts == ["two", "three"]
    assert_idle(agent)
    recorder.assert_lawful()


def test_A6_an_idle_agent_can_be_made_anywhere() -> None:
    """An agent is made, configured and subscribed to outside of any `trio.run`."""

    @tool
    def work() -> None: ...

    agent = Agent(ScriptedProvider(["ok", finish()]), model="m", tools=[work])
    agent.subscribe(print)
    agent.configure(reasoning="high")
    agent.follow_up("later")
    assert_idle(agent)


@pytest.mark.real_time
async def test_A6_the_way_that_is_named_works() -> None:
    """`trio.from_thread.run_sync(agent.abort, ...)` from a thread of Trio's reaches the run."""
    agent, recorder = make_agent(ScriptedProvider([stall()]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.testing.wait_all_tasks_blocked()
        await trio.to_thread.run_sync(lambda: trio.from_thread.run_sync(agent.abort, "from a thread"))
    assert recorder.lines[-1] == "agent_end aborted from a thread"
    assert_settled(recorder)


@pytest.mark.real_time
async def test_A6_the_context_of_a_sync_tool_in_the_trio_thread_blocks_nothing() -> None:
    """Used late from a task it drops its update (T3); used there while the call is under way it raises."""
    kept: list[ToolContext] = []

    @tool
    def work(context: ToolContext) -> str:
        """Keep the context, and misuse it."""
        kept.append(context)
        trio.from_thread.run_sync(context.update, "in the wrong thread")
        raise AssertionError("it was let through")

    provider = ScriptedProvider([call("c1", "work"), finish("tool_use")], [text("ok"), finish()])
    agent, recorder = make_agent(provider, tools=[work])
    assert (await agent.prompt("go")).outcome == "completed"
    (result,) = [event.result for event in recorder.events if event.type == "tool_execution_end"]
    assert "Trio thread" in result.text
    assert not recorder.lines_of("tool_execution_update")
    await kept[0].update("late")
    with pytest.raises(RuntimeError, match="the call is over"):
        kept[0].run_in_task(agent.wait_for_idle)
    assert_settled(recorder)
