"""Sync tools, each in a thread of its own: how they reach their run (A6), and how they are left behind (A4, T8).

Real threads, so these run on the real clock; none of them sleeps: each waits for what it needs.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from scenes import assert_settled, make_agent, on, said
from tour import assert_sendable

from trio_agent import Agent, Event, ReentrantCallError, RunResult, ToolContext, ToolResultMessage, tool
from trio_agent._threads import THREADS, current_pool
from trio_agent.testing import ScriptedProvider, call, finish, stall, text

pytestmark = pytest.mark.real_time


class Stage:
    """A thread that has begun and waits until it may end."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.over = threading.Event()

    def stand(self) -> None:
        """In the thread: wait, at most half a minute, so that a failing test does not hang."""
        self.begun.set()
        self.may_end.wait(30)

    async def wait_begun(self) -> None:
        assert await trio.to_thread.run_sync(self.begun.wait, 30)

    async def end(self) -> None:
        """Let it end, and wait until it has."""
        self.may_end.set()
        assert await trio.to_thread.run_sync(self.over.wait, 30)
        await nobody_left_behind()


async def nobody_left_behind() -> None:
    while current_pool().left_behind:
        await trio.lowlevel.checkpoint()


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Nothing outlives the test: the thread is let go whatever happens."""
    made = Stage()
    yield made
    made.may_end.set()


@asynccontextmanager
async def running(agent: Agent) -> AsyncIterator[list[RunResult]]:
    results: list[RunResult] = []

    async def run() -> None:
        results.append(await agent.prompt("go"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        yield results


def asking(*calls: Any, then: str = "done") -> ScriptedProvider:
    return ScriptedProvider([*calls, finish("tool_use")], [then, finish()])


def results_of(result: RunResult) -> list[str]:
    return [message.text for message in result.messages if isinstance(message, ToolResultMessage)]


# A6: the way through the context


async def test_A6_a_sync_tool_reaches_its_run_through_its_context(tmp_path: Path) -> None:
    """From its thread a sync tool looks at the state, reports, locks files and runs another agent in the tool's own
    task.
    """
    inner, inside = make_agent(ScriptedProvider(["inner", finish()]))
    seen: list[Any] = []

    @tool
    def work(path: str, context: ToolContext) -> str:
        """Use all of the context."""
        seen.append(threading.current_thread() is threading.main_thread())
        seen.append(context.state.pending_tool_calls)
        context.update("half")
        with context.lock_files(path):
            seen.append([Path(held).name for held in context.state.pending_file_writes])
        seen.append(context.state.pending_file_writes)
        result = context.run_in_task(inner.prompt, "go")
        return f"{result.text} {context.call_id} {context.tool_name} {context.aborting}"

    agent, recorder = make_agent(asking(call("c1", "work", {"path": str(tmp_path / "a.txt")})), tools=[work])
    assert (await agent.prompt("go")).outcome == "completed"
    assert seen == [False, ("c1",), ["a.txt"], ()]
    assert recorder.lines_of("tool_execution_update", "tool_execution_end") == [
        'tool_execution_update c1 "half"',
        'tool_execution_end c1 ok "inner c1 work False"',
    ]
    assert_settled(inside)
    assert_settled(recorder)


async def test_A6_an_update_from_a_thread_has_been_told_when_it_returns() -> None:
    """`context.update` in a sync tool returns when every subscriber has handled the update."""
    order: list[str] = []

    @tool
    def work(context: ToolContext) -> str:
        """Report twice."""
        for n in (1, 2):
            context.update(f"step {n}")
            order.append(f"returned {n}")
        return "done"

    agent, recorder = make_agent(asking(call("c1", "work")), tools=[work])

    async def handles(event: Event) -> None:
        if event.type == "tool_execution_update":
            await trio.testing.wait_all_tasks_blocked()
            order.append("handled")

    agent.subscribe(handles)
    await agent.prompt("go")
    assert order == ["handled", "returned 1", "handled", "returned 2"]
    assert_settled(recorder)


async def test_A6_threads_of_the_tools_own_reach_the_run_as_well() -> None:
    """More threads than anybody would start may report at the same time: no update is lost, none waits for ever."""
    many = 120
    about_to: list[int] = []

    async def wait_for_all(event: Event) -> None:
        while len(about_to) < many:
            await trio.sleep(0.001)
        await trio.sleep(0.05)  # real time, so that all of them are really waiting; without it the test still holds

    @tool
    def work(context: ToolContext) -> str:
        """Report from many threads."""

        def report(n: int) -> None:
            about_to.append(n)
            context.update(f"step {n}")

        threads = [threading.Thread(target=report, args=[n]) for n in range(many)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return "done"

    agent, recorder = make_agent(asking(call("c1", "work")), tools=[work])
    on(agent, "tool_execution_update", wait_for_all)
    await agent.prompt("go")
    told = recorder.lines_of("tool_execution_update")
    assert sorted(told) == sorted(f'tool_execution_update c1 "step {n}"' for n in range(many))
    assert_settled(recorder)


async def test_A6_what_a_sync_tool_runs_in_its_task_is_inside_the_run() -> None:
    """`run_in_task` of an entry of its own agent raises in the thread, rather than waiting for itself."""
    raised: list[type] = []

    @tool
    def work(context: ToolContext) -> str:
        """Ask its own agent."""
        for entry in (lambda: agent.prompt("again"), agent.resume, agent.wait_for_idle):
            try:
                context.run_in_task(entry)
            except ReentrantCallError as exc:
                raised.append(type(exc))
        return "refused"

    agent, recorder = make_agent(asking(call("c1", "work")), tools=[work])
    result = await agent.prompt("go")
    assert raised == [ReentrantCallError] * 3
    assert results_of(result) == ["refused"]
    assert_settled(recorder)


@pytest.mark.parametrize("entry", ["prompt", "resume", "wait_for_idle"])
async def test_A6_a_deadlock_through_a_bare_from_thread_is_still_noticed(entry: str) -> None:
    """`trio.from_thread.run` of an entry of its own agent is refused too, although it runs outside of the tool's
    task.
    """

    @tool
    def work() -> str:
        """Ask its own agent, past the context."""
        calls = {"prompt": lambda: agent.prompt("again"), "resume": agent.resume, "wait_for_idle": agent.wait_for_idle}
        trio.from_thread.run(calls[entry])
        raise AssertionError("it was let in")

    agent, recorder = make_agent(asking(call("c1", "work")), tools=[work])
    result = await agent.prompt("go")
    assert "ReentrantCallError" in results_of(result)[0]
    assert_settled(recorder)


async def test_A6_sync_calls_through_a_bare_from_thread_are_welcome() -> None:
    """`trio.from_thread.run_sync(agent.steer, ...)` from a sync tool reaches the run; called bare, it is refused."""
    refused: list[str] = []

    @tool
    def work() -> str:
        """Steer from the thread."""
        try:
            agent.steer("bare")
        except RuntimeError as exc:
            refused.append(str(exc))
        trio.from_thread.run_sync(agent.steer, "through trio")
        return "steered"

    agent, recorder = make_agent(asking(call("c1", "work")), tools=[work])
    await agent.prompt("go")
    assert 'user "through trio"' in said(agent.state.messages)
    assert len(refused) == 1
    assert "from_thread.run_sync" in refused[0]
    assert_settled(recorder)


async def test_A6_run_in_task_is_for_sync_tools() -> None:
    """An async tool that calls `run_in_task` is told to await the function itself."""

    @tool
    async def work(context: ToolContext) -> str:
        """Use the wrong way."""
        context.run_in_task(trio.lowlevel.checkpoint)
        raise AssertionError("it was let through")

    agent, recorder = make_agent(asking(call("c1", "work")), tools=[work])
    result = await agent.prompt("go")
    assert "awaits the function itself" in results_of(result)[0]
    assert_settled(recorder)


async def test_A1_abort_can_be_called_from_a_thread_of_trios() -> None:
    """A sync tool may abort its own run through `trio.from_thread`; it is left behind, and ends by itself."""

    @tool
    def work() -> str:
        """Abort."""
        trio.from_thread.run_sync(agent.abort, "from the thread")
        return "too late"

    agent, recorder = make_agent(asking(call("c1", "work")), tools=[work])
    result = await agent.prompt("go")
    assert (result.outcome, result.reason) == ("aborted", "from the thread")
    assert_settled(recorder)


async def test_sync_tools_run_in_parallel() -> None:
    """Two sync calls of one message run at the same time, each in its thread."""
    both = threading.Barrier(2)

    @tool
    def meets() -> str:
        """Meet the other one."""
        both.wait(30)
        return "met"

    agent, recorder = make_agent(asking(call("c1", "meets"), call("c2", "meets")), tools=[meets])
    result = await agent.prompt("go")
    assert results_of(result) == ["met", "met"]
    assert_settled(recorder)


# Failures and interrupts out of threads


async def test_F1_an_exception_in_a_thread_is_an_error_result() -> None:
    """What a sync tool raises is its call's error result, groups included; the run goes on."""

    @tool
    def fails(several: bool) -> str:
        """Fail."""
        if several:
            raise ExceptionGroup("two", [ValueError("left"), KeyError("right")])
        raise ValueError("alone")

    agent, recorder = make_agent(
        asking(call("c1", "fails", {"several": False}), call("c2", "fails", {"several": True})), tools=[fails]
    )
    result = await agent.prompt("go")
    assert result.outcome == "completed"
    alone, several = results_of(result)
    assert "alone" in alone
    assert "left" in several
    assert "right" in several
    assert_settled(recorder)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
async def test_F7_an_interrupt_out_of_a_thread_leaves_bare(kind: type[BaseException]) -> None:
    """`SystemExit` or `KeyboardInterrupt` raised in a sync tool settles the run and leaves `prompt()` bare."""

    @tool
    def exits() -> str:
        """Exit."""
        raise kind("stop")

    agent, recorder = make_agent(asking(call("c1", "exits")), tools=[exits])
    left: list[type] = []
    try:
        await agent.prompt("go")
    except BaseException as exc:  # whatever it is, the test looks at it
        left.append(type(exc))
    assert left == [kind]
    assert recorder.lines[-1] == f"agent_end aborted {kind.__name__}"
    assert_settled(recorder)
    assert_sendable(agent.state.messages)


# A4: left behind


@pytest.mark.parametrize("how", ["abort", "cancel"])
async def test_A4_a_thread_that_cannot_be_stopped_is_left_behind(stage: Stage, how: str) -> None:
    """At an abort the run does not wait for a thread: it is left behind and counted, and what it returns is dropped."""

    @tool
    def blocks(context: ToolContext) -> str:
        """Block, then try everything that is too late."""
        context.update("begun")
        stage.stand()
        late.append(context.aborting)
        context.update("late")
        try:
            context.run_in_task(trio.lowlevel.checkpoint)
        except RuntimeError as exc:
            late.append(str(exc))
        stage.over.set()
        return "too late"

    late: list[Any] = []
    agent, recorder = make_agent(ScriptedProvider([call("c1", "blocks"), finish("tool_use")]), tools=[blocks])
    scope = trio.CancelScope()
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            with scope:
                await agent.prompt("go")

        nursery.start_soon(run)
        await stage.wait_begun()
        assert current_pool().left_behind == 0
        agent.abort() if how == "abort" else scope.cancel()
        await agent.wait_for_idle()
        assert not stage.over.is_set()
        assert current_pool().left_behind == 1
        told = recorder.lines
        await stage.end()
    assert recorder.lines == told, "what it returned and reported later is dropped"
    assert current_pool().left_behind == 0
    assert late[0] is True
    assert "over" in late[1]
    results = [message.text for message in agent.state.messages if isinstance(message, ToolResultMessage)]
    assert results[0].startswith("Cut off")
    assert "begun" in results[0]
    assert_settled(recorder)


async def test_A4_a_thread_is_left_behind_at_its_time_out(stage: Stage) -> None:
    """At its time-out a thread is left behind as well: the call is an error result, and the run goes on without it."""

    @tool(timeout=0.05)
    def blocks() -> str:
        """Block."""
        stage.stand()
        stage.over.set()
        return "too late"

    agent, recorder = make_agent(asking(call("c1", "blocks")), tools=[blocks])
    result = await agent.prompt("go")
    assert "timed out after 0.05 s" in results_of(result)[0]
    assert result.outcome == "completed"
    assert current_pool().left_behind == 1
    await stage.end()
    assert "too late" not in results_of(result)[0]
    assert_settled(recorder)


async def test_A4_when_all_threads_are_left_behind_further_sync_calls_fail_at_once(stage: Stage) -> None:
    """With every thread for tools left behind a sync call gets an error result at once; when they have ended, it
    runs.
    """

    @tool(timeout=0.05)
    def blocks() -> str:
        """Block."""
        stage.stand()
        return "too late"

    @tool
    def answers() -> str:
        """Answer."""
        return "fine"

    @tool
    async def answers_async() -> str:
        """Answer."""
        return "fine as well"

    provider = ScriptedProvider(
        [*[call(f"b{n}", "blocks") for n in range(THREADS)], finish("tool_use")],
        [call("c1", "answers"), call("c2", "answers_async"), finish("tool_use")],
        [text("done"), finish()],
        [call("d1", "answers"), finish("tool_use")],
        [text("done"), finish()],
    )
    agent, recorder = make_agent(provider, tools=[blocks, answers, answers_async])
    result = await agent.prompt("go")
    assert current_pool().left_behind == THREADS
    refused, served = results_of(result)[-2:]
    assert "left behind" in refused
    assert served == "fine as well"
    stage.may_end.set()
    await nobody_left_behind()
    assert results_of(await agent.prompt("again")) == ["fine"]
    assert_settled(recorder)


async def test_A4_a_call_that_waits_for_a_thread_is_aborted_like_any_other(stage: Stage) -> None:
    """With all threads busy a further sync call waits for one; an abort ends that wait, and nothing of it runs."""

    @tool
    def blocks() -> str:
        """Block."""
        stage.stand()
        return "too late"

    @tool
    def notes() -> str:
        """Note."""
        raise AssertionError("it ran")

    provider = ScriptedProvider(
        [*[call(f"b{n}", "blocks") for n in range(THREADS)], finish("tool_use")],
        [call("c1", "notes"), finish("tool_use")],
    )
    busy, _ = make_agent(provider, tools=[blocks])
    waiting, recorder = make_agent(ScriptedProvider([call("c1", "notes"), finish("tool_use")]), tools=[notes])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(busy.prompt, "go")
        while current_pool().slots.available_tokens:
            await trio.sleep(0)
        nursery.start_soon(waiting.prompt, "go")
        while current_pool().slots.statistics().tasks_waiting == 0:
            await trio.sleep(0)
        waiting.abort()
        await waiting.wait_for_idle()
        busy.abort()
    (text,) = [event.result.text for event in recorder.events if event.type == "tool_execution_end"]
    assert "aborted" in text
    assert_settled(recorder)


async def test_T8_a_thread_left_behind_keeps_its_lock_until_it_ends(stage: Stage, tmp_path: Path) -> None:
    """A file that a thread left behind writes stays locked, for other agents too, until that thread ends."""
    path = tmp_path / "shared.txt"

    @tool(writes="path", timeout=0.05)
    def writes_slowly(path: str) -> str:
        """Write in a thread that hangs."""
        stage.stand()
        Path(path).write_text("slow")
        stage.over.set()
        return "too late"

    @tool(writes="path")
    async def writes(path: str) -> str:
        """Write."""
        order.append(f"over: {stage.over.is_set()}")
        return "written"

    order: list[str] = []
    one, first = make_agent(asking(call("c1", "writes_slowly", {"path": str(path)})), tools=[writes_slowly])
    two, second = make_agent(asking(call("c1", "writes", {"path": str(path)})), tools=[writes])
    await one.prompt("go")
    async with running(two) as results:
        await trio.testing.wait_all_tasks_blocked()
        assert order == []
        assert two.state.pending_file_writes
        await stage.end()
    assert order == ["over: True"]
    assert results_of(results[0]) == ["written"]
    assert_settled(first)
    assert_settled(second)


async def test_T8_a_lock_taken_in_a_thread_left_behind_is_kept_too(stage: Stage, tmp_path: Path) -> None:
    """The same for a lock that the thread took at run time: leaving its `with` gives it back."""
    path = str(tmp_path / "shared.txt")

    @tool(timeout=0.2)
    def holds(context: ToolContext) -> str:
        """Hold a lock in a thread that hangs."""
        with context.lock_files(path):
            stage.stand()
        stage.over.set()
        return "too late"

    @tool(writes="path")
    async def writes(path: str) -> str:
        """Write."""
        order.append(f"over: {stage.over.is_set()}")
        return "written"

    order: list[str] = []
    one, first = make_agent(asking(call("c1", "holds")), tools=[holds])
    two, second = make_agent(asking(call("c1", "writes", {"path": path})), tools=[writes])
    await one.prompt("go")
    async with running(two):
        await trio.testing.wait_all_tasks_blocked()
        assert order == []
        await stage.end()
    assert order == ["over: True"]
    assert_settled(first)
    assert_settled(second)


async def test_A7_an_agent_that_a_sync_tool_runs_is_aborted_with_the_outer_run() -> None:
    """Aborting the outer run cancels what `run_in_task` runs; the thread is told so, and ends."""
    ended: list[str] = []
    over = threading.Event()
    inner, inside = make_agent(ScriptedProvider(["half", stall()]))

    @tool
    def delegate(context: ToolContext) -> str:
        """Let another agent do it."""
        try:
            return str(context.run_in_task(inner.prompt, "go").text)
        except RuntimeError as exc:
            ended.append(str(exc))
            raise
        finally:
            over.set()

    outer, outside = make_agent(ScriptedProvider([call("c1", "delegate"), finish("tool_use")]), tools=[delegate])
    streaming = trio.Event()
    on(inner, "message_update", lambda event: streaming.set())
    async with running(outer) as results:
        await streaming.wait()
        outer.abort()
    assert await trio.to_thread.run_sync(over.wait, 30)
    assert results[0].outcome == "aborted"
    assert inside.lines[-1] == "agent_end aborted cancelled"
    assert len(ended) == 1
    assert_settled(inside)
    assert_settled(outside)


def test_A4_a_thread_may_outlive_the_whole_trio_run() -> None:
    """A thread left behind that ends after `trio.run` has returned disturbs nobody: no error, no warning."""
    stage = Stage()
    undisturbed: list[bool] = []

    @tool
    def blocks(context: ToolContext) -> str:
        """Block."""
        stage.stand()
        try:
            context.update("late")
            undisturbed.append(True)
        finally:
            stage.over.set()
        return "too late"

    agent, recorder = make_agent(ScriptedProvider([call("c1", "blocks"), finish("tool_use")]), tools=[blocks])

    async def main() -> None:
        with trio.fail_after(60):
            async with running(agent):
                await stage.wait_begun()
                agent.abort()

    trio.run(main)
    try:
        assert not stage.over.is_set()
    finally:
        stage.may_end.set()
    assert stage.over.wait(30)
    assert undisturbed == [True]
    assert_settled(recorder)


@pytest.mark.real_time
async def test_A4_a_call_that_waits_for_a_thread_is_told_when_the_last_one_is_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two calls and one thread: when the first is left behind, the second gets its error at once and does not wait."""
    from trio_agent import _threads

    monkeypatch.setattr(_threads, "THREADS", 1)
    release = threading.Event()

    @tool(timeout=0.05)
    def blocks() -> str:
        """Block in a thread."""
        release.wait(30)
        return "too late"

    provider = ScriptedProvider([call("c1", "blocks"), call("c2", "blocks"), finish("tool_use")], ["ok", finish()])
    agent, recorder = make_agent(provider, tools=[blocks])
    try:
        await agent.prompt("go")
    finally:
        release.set()
    texts = sorted(event.result.text for event in recorder.events if event.type == "tool_execution_end")
    assert any("left behind" in text for text in texts)
    assert any("timed out" in text for text in texts)
    assert_settled(recorder)


async def test_P4_a_call_that_is_over_cannot_lock_files_any_more() -> None:
    """A task that a tool left running elsewhere is refused when it asks for a lock behind the call's end."""
    refused: list[BaseException] = []
    async with trio.open_nursery() as application:

        async def late(context: ToolContext) -> None:
            await trio.sleep(1)
            try:
                async with context.lock_files("late.txt"):
                    pytest.fail("locked")
            except RuntimeError as exc:
                refused.append(exc)

        @tool
        async def start(context: ToolContext) -> str:
            """Leave something running."""
            application.start_soon(late, context)
            return "started"

        provider = ScriptedProvider([call("c1", "start"), finish("tool_use")], ["ok", finish()])
        agent, recorder = make_agent(provider, tools=[start])
        await agent.prompt("go")
    assert "is over" in str(refused[0])
    assert_settled(recorder)
