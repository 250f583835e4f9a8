"""What comes in the very moment in which something else ends, brought about by waiting rather than by chance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio
from scenes import assert_settled, make_agent, on

from trio_agent import Block, Event, HookContext, Hooks, ToolCall, ToolContext, ToolResultMessage, tool
from trio_agent.testing import ScriptedProvider, call, finish


async def test_F5_a_hook_that_answers_within_its_time_is_listened_to() -> None:
    """With a time-out for hooks, those that answer before it block a call and replace a result as they do without."""

    @tool
    async def echo(v: str) -> str:
        """Say it again."""
        return v

    async def ask(asked: ToolCall, context: HookContext) -> Any:
        await trio.sleep(4)
        return Block("no") if asked.id == "c1" else None

    async def look(result: ToolResultMessage) -> str:
        await trio.sleep(4)
        return f"{result.text}, as was seen"

    provider = ScriptedProvider(
        [call("c1", "echo", {"v": "a"}), call("c2", "echo", {"v": "b"}), finish("tool_use")], ["done", finish()]
    )
    hooks = Hooks(before_tool_call=ask, after_tool_result=look, timeout=5)
    agent, recorder = make_agent(provider, tools=[echo], hooks=hooks)
    assert (await agent.prompt("go")).suppressed == ()
    assert trio.current_time() == 12
    assert recorder.lines_of("tool_execution_end") == [
        'tool_execution_end c1 error "echo was not run, because it was blocked: no"',
        'tool_execution_end c2 ok "b, as was seen"',
    ]
    assert_settled(recorder)


async def test_A4_a_report_that_the_abort_overtakes_keeps_nobody() -> None:
    """A tool that shields itself while it reports goes on once the run is being closed, and nobody is told of that."""
    went_on: list[float] = []

    @tool
    async def early(context: ToolContext) -> str:
        """Report."""
        await context.update("early")
        raise AssertionError("the abort comes first")

    @tool
    async def late(context: ToolContext) -> str:
        """Report while the first report is being handled."""
        await trio.sleep(1)
        with trio.CancelScope(shield=True):
            await context.update("late")
        went_on.append(trio.current_time())
        return "done"

    async def slow(event: Event) -> None:
        await trio.sleep(3)

    agent, recorder = make_agent(
        ScriptedProvider([call("c1", "early"), call("c2", "late"), finish()]), tools=[early, late]
    )
    on(agent, "tool_execution_update", slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.sleep(2)
        agent.abort()
    assert went_on == [3]
    assert recorder.lines_of("tool_execution_update") == ['tool_execution_update c1 "early"']
    assert_settled(recorder)


async def test_T8_a_call_that_is_cut_off_while_it_waits_for_a_file_leaves_no_slot_taken(tmp_path: Path) -> None:
    """It had given its slot to others, and gives none back a second time: the next run has as many as before."""
    path = str(tmp_path / "x")

    @tool(writes=("path",))
    async def hold(path: str) -> str:
        """Hold the file."""
        await trio.sleep_forever()
        raise AssertionError("nobody wakes it")

    @tool
    async def late(path: str, context: ToolContext) -> str:
        """Want the file."""
        async with context.lock_files(path):
            raise AssertionError("it is held")

    @tool
    async def work() -> str:
        """Work for a second."""
        await trio.sleep(1)
        return "done"

    provider = ScriptedProvider(
        [call("c1", "hold", {"path": path}), call("c2", "late", {"path": path}), finish("tool_use")],
        [*[call(f"d{n}", "work") for n in range(4)], finish("tool_use")],
        ["done", finish()],
    )
    agent, recorder = make_agent(provider, tools=[hold, late, work], max_parallel_tools=2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.sleep(1)
        agent.abort()
    assert_settled(recorder)
    began = trio.current_time()
    assert (await agent.prompt("go on")).outcome == "completed"
    assert trio.current_time() - began == 2, "four calls, two at a time"
    assert_settled(recorder)


async def test_A2_a_call_that_is_given_its_slot_in_the_moment_of_the_abort_does_not_begin() -> None:
    """The slot comes from a call whose result makes a hook abort: the other call has it then, and runs no line."""
    ran: list[str] = []

    @tool
    async def work(v: str) -> str:
        """Note it."""
        ran.append(v)
        return v

    def enough(result: ToolResultMessage) -> None:
        agent.abort("enough")

    provider = ScriptedProvider([call("c1", "work", {"v": "a"}), call("c2", "work", {"v": "b"}), finish("tool_use")])
    agent, recorder = make_agent(provider, tools=[work], max_parallel_tools=1, hooks=Hooks(after_tool_result=enough))
    assert (await agent.prompt("go")).outcome == "aborted"
    assert len(ran) == 1
    assert_settled(recorder)
