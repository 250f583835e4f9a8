"""The context of a tool, used in unusual ways: locks without a block, updates from elsewhere.

The usual ways are in `test_rules_tools.py`, those of threads in `test_threads.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from scenes import assert_settled, executions, make_agent, on, said

from trio_agent import Agent, AgentInternalError, FileLocks, ModelRequest, Send, TextDelta, Tool, ToolContext, tool
from trio_agent._errors import ToolDefinitionError
from trio_agent._file_locks import FileLockStatistics
from trio_agent.testing import ScriptedProvider, call, finish

Body = Callable[[ToolContext], Awaitable[str]]


def tool_of(body: Body, **options: Any) -> Tool:
    """A tool called `work` of this body, which takes no arguments."""

    async def work(ctx: ToolContext) -> str:
        return await body(ctx)

    return tool(**options)(work)


async def run_of(body: Body, *, locks: FileLocks | None = None, **options: Any) -> str:
    """Let a run call the tool once; gives what its result says."""
    provider = ScriptedProvider([call("c1", "work"), finish()], ["done", finish()])
    agent, recorder = make_agent(provider, tools=[tool_of(body)], file_locks=locks, **options)
    result = await agent.prompt("go")
    assert result.outcome == "completed", result.error
    assert_settled(recorder)
    return said(result.messages)[2].removeprefix("tool_result c1 ")


# Locks


async def test_T8_a_lock_can_be_awaited_and_given_back_by_hand(tmp_path: Path) -> None:
    """Between the two it excludes others; giving back twice is once, and the lock can be had again."""
    locks = FileLocks()
    held: list[int] = []

    async def body(ctx: ToolContext) -> str:
        lock = await ctx.lock_files(tmp_path / "f")
        held.append(locks.statistics().held)
        lock.release()
        lock.release()
        held.append(locks.statistics().held)
        async with ctx.lock_files(tmp_path / "f"):
            lock.release()
            held.append(locks.statistics().held)
        return "ok"

    assert await run_of(body, locks=locks) == 'ok "ok"'
    assert held == [1, 0, 1]


async def test_T8_a_lock_that_was_awaited_ends_with_a_plain_block(tmp_path: Path) -> None:
    """`with await context.lock_files(path):` is as good as `async with`."""
    locks = FileLocks()
    held: list[int] = []

    async def body(ctx: ToolContext) -> str:
        with await ctx.lock_files(tmp_path / "f"):
            held.append(locks.statistics().held)
        held.append(locks.statistics().held)
        return "ok"

    assert await run_of(body, locks=locks) == 'ok "ok"'
    assert held == [1, 0]


async def test_T8_a_plain_block_in_an_async_tool_is_refused(tmp_path: Path) -> None:
    """It could not wait for the file; the words say what can."""

    async def body(ctx: ToolContext) -> str:
        with pytest.raises(RuntimeError) as refused, ctx.lock_files(tmp_path / "f"):
            raise AssertionError("it was let in")
        return str(refused.value)

    assert await run_of(body) == 'ok "in an async tool, use `async with context.lock_files(...)`"'


async def test_T8_a_lock_that_outlives_its_call_has_been_given_back(tmp_path: Path) -> None:
    """Its call's end has done that; giving it back again takes it from nobody who has it by then."""
    locks = FileLocks()
    kept: list[Any] = []

    async def body(ctx: ToolContext) -> str:
        kept.append(await ctx.lock_files(tmp_path / "f"))
        return "ok"

    assert await run_of(body, locks=locks) == 'ok "ok"'
    assert locks.statistics() == FileLockStatistics(held=0, waiting=0, keys=0)
    async with locks.hold([tmp_path / "f"]):
        kept[0].release()
        assert locks.statistics().held == 1


async def test_T8_a_refused_lock_gives_the_call_its_slot_again(tmp_path: Path) -> None:
    """An agent inside a tool that holds the file: its own tool is refused, and goes on, alone in its slot as before."""
    path = tmp_path / "f"
    log: list[str] = []

    async def inner(ctx: ToolContext) -> str:
        try:
            async with ctx.lock_files(path):
                raise AssertionError("it was let in")
        except RuntimeError:
            log.append(f"refused {ctx.call_id}")
        await trio.sleep(1)
        log.append(f"done {ctx.call_id}")
        return "refused"

    async def outer(ctx: ToolContext) -> str:
        provider = ScriptedProvider([call("i1", "work"), call("i2", "work"), finish()], ["done", finish()])
        agent, recorder = make_agent(provider, tools=[tool_of(inner)], max_parallel_tools=1)
        async with ctx.lock_files(path):
            await agent.prompt("go")
        assert_settled(recorder)
        return "ok"

    assert await run_of(outer, max_parallel_tools=1) == 'ok "ok"'
    whose = [line.split()[1] for line in log]
    assert sorted(whose) == ["i1", "i1", "i2", "i2"]
    assert (whose[0], whose[2]) == (whose[1], whose[3]), "the two calls were in the one slot together"


# Updates


async def test_T3_a_subscriber_may_report_for_a_tool() -> None:
    """It would wait for itself, so it goes on at once; what it said is told behind the event that it is at."""
    contexts: list[ToolContext] = []

    async def body(ctx: ToolContext) -> str:
        contexts.append(ctx)
        await ctx.update("from the tool")
        await trio.sleep(1)
        return "ok"

    provider = ScriptedProvider([call("c1", "work"), finish()], ["done", finish()])
    agent, recorder = make_agent(provider, tools=[tool_of(body)])
    on(agent, "tool_execution_update", lambda _: contexts[0].update("from a subscriber"))
    result = await agent.prompt("go")
    assert result.outcome == "completed", result.error
    assert executions(recorder.events) == ["start c1", "update c1", "update c1", "end c1"]
    assert [line.split(" ", 2)[2] for line in recorder.lines_of("tool_execution_update")] == [
        '"from the tool"',
        '"from a subscriber"',
    ]
    assert_settled(recorder)


async def test_T3_an_update_that_nobody_hears_is_waited_for_no_longer() -> None:
    """Without any subscriber a tool goes on as soon as the run has come by, and its update is nowhere."""

    async def body(ctx: ToolContext) -> str:
        for step in range(3):
            await ctx.update(f"step {step}")
        return "ok"

    provider = ScriptedProvider([call("c1", "work"), finish()], ["done", finish()])
    agent = Agent(provider, model="m", tools=[tool_of(body)])
    result = await agent.prompt("go")
    assert result.text == "done"
    assert said(result.messages)[2] == 'tool_result c1 ok "ok"'


# Requests


async def test_A2_what_a_shielded_provider_sends_when_the_run_is_stopping_is_dropped() -> None:
    """It may finish what it has begun; nothing of that is told."""
    sent: list[str] = []

    async def provider(request: ModelRequest, send: Send) -> None:
        await send(TextDelta(0, "told"))
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
            await send(TextDelta(0, " dropped"))
            sent.append("later")

    agent, recorder = make_agent(provider)
    on(agent, "message_update", lambda _: agent.abort())
    result = await agent.prompt("hi")
    assert sent == ["later"]
    assert (result.outcome, result.text) == ("aborted", "told")
    assert_settled(recorder)


async def test_F1_a_tool_whose_types_are_never_defined_fails_the_run_before_anything_is_sent() -> None:
    """What an annotation names may be defined after the tool, so it is looked for at the first request."""

    @tool
    async def later(value: Undefined) -> str:  # type: ignore[name-defined]  # noqa: F821
        raise AssertionError("it was called")

    provider = ScriptedProvider(["never", finish()])
    agent, recorder = make_agent(provider, tools=[later])
    result = await agent.prompt("hi")
    assert isinstance(result.error, ToolDefinitionError)
    assert not isinstance(result.error, AgentInternalError)
    assert (result.outcome, provider.requests) == ("error", [])
    assert "Undefined" in str(result.error)
    assert (agent.state.error_message or "").startswith("a tool cannot be described to the model: ")
    assert_settled(recorder)
