"""Cases of topic 15 that concern Trio itself: groups, generators, context variables, Ctrl-C."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from scenes import assert_settled, make_agent

from trio_agent import Agent, Hooks, tool
from trio_agent._codec import decode_line
from trio_agent.testing import ScriptedProvider, call, check_trace, finish, stall, text

variable: ContextVar[str] = ContextVar("variable", default="unset")


# B160


async def test_B160_an_exception_of_the_users_own_stays_plain() -> None:
    """Around a run `except ValueError` works: nothing of the kernel wraps what the user's code raises."""
    agent, recorder = make_agent(ScriptedProvider([text("hi"), finish()]))
    with pytest.raises(ValueError, match="mine") as caught:
        async with agent.stream("go") as events:
            async for _ in events:
                raise ValueError("mine")
    assert not isinstance(caught.value.__context__, trio.Cancelled)
    assert_settled(recorder)


@pytest.mark.parametrize("wrong", [123, None, object(), [123]])
async def test_B160_a_wrong_argument_is_a_plain_type_error(wrong: Any) -> None:
    """prompt() of what is no message raises TypeError at the call, before any event."""
    agent, recorder = make_agent(ScriptedProvider())
    with pytest.raises(TypeError, match="prompt"):
        await agent.prompt(wrong)
    assert recorder.events == []


async def test_B160_two_failures_at_once_are_one_and_a_note() -> None:
    """When two things fail at once, one is the run's error and the other is kept; neither leaves as a group."""

    @tool
    async def both() -> str:
        """Fail twice at once."""

        async def one(text: str) -> None:
            raise ValueError(text)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, "first")
            nursery.start_soon(one, "second")
        return "never"

    def fails(event: Any) -> None:
        if event.type == "tool_execution_end":
            raise KeyError("subscriber")

    agent, recorder = make_agent(ScriptedProvider([call("c1", "both"), finish("tool_use")]), tools=[both])
    agent.subscribe(fails)
    agent.subscribe(lambda event: fails(event))
    result = await agent.prompt("go")
    assert isinstance(result.error, KeyError)
    assert any(isinstance(exc, KeyError) for exc in result.suppressed)
    assert "2 failures" in recorder.lines_of("tool_execution_end")[0]
    assert_settled(recorder)


# B162


def test_B162_a_generator_function_as_provider_is_refused_at_construction() -> None:
    """A provider written as an async generator is a TypeError that says what to write instead."""

    async def provider(request: Any, send: Any) -> Any:
        yield "chunk"

    with pytest.raises(TypeError, match="await send"):
        Agent(provider, model="m")


async def test_B162_a_providers_cleaning_up_runs_before_idle_in_its_own_task() -> None:
    """Aborted in the middle, a provider's `finally` has run, shielded wait included, before the agent is idle."""
    cleaned: list[trio.lowlevel.Task] = []
    tasks: list[trio.lowlevel.Task] = []

    async def provider(request: Any, send: Any) -> None:
        tasks.append(trio.lowlevel.current_task())
        try:
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(1, shield=True):
                await trio.sleep(0.5)
            cleaned.append(trio.lowlevel.current_task())

    agent, recorder = make_agent(provider)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.sleep(1)
        agent.abort()
        await agent.wait_for_idle()
        assert cleaned == tasks
    gc.collect()
    assert_settled(recorder)


# B167


@pytest.mark.real_time
async def test_B167_everybody_sees_the_context_of_the_prompts_caller() -> None:
    """Provider, hooks, tools and subscribers see the caller's context variables; a tool's change stays its own."""
    seen: dict[str, str] = {}

    @tool
    async def one() -> str:
        """Set the variable."""
        seen["tool"] = variable.get()
        variable.set("changed by a tool")
        return "x"

    @tool(serial=True)
    async def two() -> str:
        """Look at it."""
        seen["sibling"] = variable.get()
        return "x"

    @tool
    def threaded() -> str:
        """Look at it from a thread."""
        seen["thread"] = variable.get()
        return "x"

    scripted = ScriptedProvider(
        [call("c1", "one"), call("c2", "two"), call("c3", "threaded"), finish("tool_use")], [text("ok"), finish()]
    )

    async def provider(request: Any, send: Any) -> None:
        seen["provider"] = variable.get()
        await scripted(request, send)

    async def before(found: Any, context: Any) -> None:
        seen["async hook"] = variable.get()

    def after(result: Any) -> None:
        seen["sync hook"] = variable.get()

    agent, recorder = make_agent(
        provider, tools=[one, two, threaded], hooks=Hooks(before_tool_call=before, transform_context=None)
    )
    agent.configure(hooks=Hooks(before_tool_call=before, should_stop_after_turn=lambda state: after(state) or False))
    agent.subscribe(lambda event: seen.__setitem__("subscriber", variable.get()))
    variable.set("the caller's")
    await agent.prompt("go")
    assert set(seen.values()) == {"the caller's"}
    assert set(seen) == {"tool", "sibling", "thread", "provider", "async hook", "sync hook", "subscriber"}
    assert_settled(recorder)


# B168

SCRIPT = """
import subprocess, sys
import trio
import trio.testing
from trio_agent import Agent, tool
from trio_agent._codec import encode_line
from trio_agent.testing import ScriptedProvider, call, finish, text

@tool
async def shell() -> str:
    "Run a command that takes long."
    process = await trio.lowlevel.open_process(["sleep", "63"])
    try:
        print("pid", process.pid, flush=True)
        await process.wait()
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
    return "done"

async def slow(event):
    if SLOW and event.type == "message_end" and getattr(event.message, "stop_reason", None) == "aborted":
        print("settling", flush=True)
        await trio.sleep(60)

async def main():
    agent = Agent(ScriptedProvider([call("c1", "shell"), finish("tool_use")]), model="m", tools=[shell], grace=GRACE)
    with open(sys.argv[1], "w") as log:
        agent.subscribe(lambda event: print(encode_line(event), file=log, flush=True))
        agent.subscribe(slow)
        await agent.prompt("go")

try:
    trio.run(main)
except KeyboardInterrupt as exc:
    print("bare", flush=True)
except BaseExceptionGroup as exc:
    print("group", flush=True)
"""


def start(tmp_path: Path, *, slow: bool, grace: float) -> tuple[subprocess.Popen[str], Path, int]:
    script, log = tmp_path / "script.py", tmp_path / "log.jsonl"
    script.write_text(f"SLOW, GRACE = {slow}, {grace}\n" + textwrap.dedent(SCRIPT))
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(
        [sys.executable, "-W", "error", str(script), str(log)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert process.stdout is not None
    return process, log, int(process.stdout.readline().split()[1])


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_B168_one_ctrl_c_settles_the_run_and_leaves_bare(tmp_path: Path) -> None:
    """One SIGINT: the child process is gone, the call is answered, the log is lawful, KeyboardInterrupt leaves bare."""
    process, log, pid = start(tmp_path, slow=False, grace=5)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert time.monotonic() - began < 7
    assert output.splitlines()[-1] == "bare"
    assert "ignored" not in errors
    assert not is_alive(pid)
    events = [decode_line(line) for line in log.read_text().splitlines()]
    assert check_trace(events, complete=True) == []  # type: ignore[arg-type]
    results = [event for event in events if getattr(event, "type", "") == "tool_execution_end"]
    assert [result.is_error for result in results] == [True]  # type: ignore[union-attr]


def test_B168_a_second_ctrl_c_during_settling_ends_at_once(tmp_path: Path) -> None:
    """A second SIGINT while a subscriber holds up the settling ends the process at once; the log can be read."""
    process, log, pid = start(tmp_path, slow=True, grace=50)
    assert process.stdout is not None
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "settling\n"
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert time.monotonic() - began < 5
    assert output.splitlines()[-1] == "bare"
    assert "ignored" not in errors
    assert not is_alive(pid)
    assert all(decode_line(line) for line in log.read_text().splitlines())


async def test_B162_abort_while_a_provider_waits_leaves_no_task() -> None:
    """Behind idle the only tasks are those that were there before."""
    agent, recorder = make_agent(ScriptedProvider([text("he"), stall()]))
    before = len(trio.lowlevel.current_root_task().child_nurseries[0].child_tasks)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.sleep(1)
        agent.abort()
        await agent.wait_for_idle()
        await trio.testing.wait_all_tasks_blocked()
        assert not nursery.child_tasks
    assert len(trio.lowlevel.current_root_task().child_nurseries[0].child_tasks) == before  # type: ignore[union-attr]
    assert_settled(recorder)
