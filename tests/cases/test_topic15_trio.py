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
from trio_agent.session import SessionLog
from trio_agent.testing import ScriptedProvider, call, check_trace, finish, stall, text

variable: ContextVar[str] = ContextVar("variable", default="unset")


# B160


async def test_B160_an_exception_of_the_users_own_stays_plain() -> None:
    """Around a run `except ValueError` works: nothing of the kernel wraps what the user's code raises."""
    agent, recorder = make_agent(ScriptedProvider([text("hi"), finish()]))
    with pytest.raises(ValueError, match="mine") as caught:
        async with agent.stream("go") as events:
            await anext(events)
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
        raise AssertionError("the nursery let it on")

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


def test_B160_a_log_where_none_can_be_is_a_plain_error(tmp_path: Path) -> None:
    """Opening a log below what is no directory raises the operating system's own error, bare."""
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(OSError, match="file") as caught:
        SessionLog(tmp_path / "file" / "talk.jsonl")
    assert not isinstance(caught.value, BaseExceptionGroup)


async def test_B160_what_a_provider_raises_on_entry_stays_plain() -> None:
    """A provider that cannot be opened raises before there is an agent; the exception is its own."""

    class Unreachable:
        async def __aenter__(self) -> Any:
            raise ConnectionError("mine")

        async def __aexit__(self, *_: object) -> None:
            raise AssertionError("it was never entered")

    with pytest.raises(ConnectionError, match="mine"):
        async with Unreachable():
            pytest.fail("entered")


async def test_B160_raise_for_error_raises_what_failed_the_run_bare() -> None:
    """`result.raise_for_error()` gives back the very exception that failed the run, so `except ValueError` works."""
    agent, recorder = make_agent(ScriptedProvider([text("hi"), ValueError("mine")]))
    result = await agent.prompt("go")
    with pytest.raises(ValueError, match="mine") as caught:
        result.raise_for_error()
    assert caught.value is result.error
    assert not isinstance(caught.value.__context__, trio.Cancelled)
    assert_settled(recorder)


# B162


def test_B162_a_generator_function_as_provider_is_refused_at_construction() -> None:
    """A provider written as an async generator is a TypeError that says what to write instead."""

    async def provider(request: Any, send: Any) -> Any:
        yield "chunk"  # pragma: no cover - only looked at

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


async def test_B167_it_is_the_caller_of_prompt_who_counts() -> None:
    """Everybody sees the value of the task that calls `prompt()`, not of who made the agent or subscribed to it."""
    seen: list[str] = []

    async def provider(request: Any, send: Any) -> None:
        seen.append(variable.get())
        await scripted(request, send)

    scripted = ScriptedProvider([text("a"), finish()], [text("b"), finish()])
    variable.set("who made it")
    agent, recorder = make_agent(provider)
    agent.subscribe(lambda event: seen.append(variable.get()))

    async def prompts(value: str) -> None:
        variable.set(value)
        await agent.prompt("go")

    for value in ("one", "two"):
        seen.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(prompts, value)
        assert set(seen) == {value}
    assert variable.get() == "who made it"
    assert_settled(recorder)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_B167_a_token_can_be_reset_where_it_was_made(is_async: bool) -> None:
    """A hook, a tool and a subscriber may set a variable and reset it with its token; nothing is left of it."""
    done: list[str] = []

    def set_and_reset(who: str) -> None:
        token = variable.set(who)
        variable.reset(token)
        done.append(who)

    async def later(who: str) -> None:
        token = variable.set(who)
        await trio.lowlevel.checkpoint()
        variable.reset(token)
        done.append(who)

    use = later if is_async else set_and_reset

    @tool
    async def works() -> str:
        """Use a variable."""
        await later("tool")
        return "x"

    agent, recorder = make_agent(
        ScriptedProvider([call("c1", "works"), finish("tool_use")], [text("ok"), finish()]),
        tools=[works],
        hooks=Hooks(
            before_tool_call=lambda call, context: use("before"),
            after_tool_result=lambda result: use("after"),
            should_stop_after_turn=lambda state: use("stop"),
        ),
    )
    agent.subscribe(lambda event: use("subscriber"))
    result = await agent.prompt("go")
    assert result.outcome == "completed"
    assert result.suppressed == ()
    assert set(done) == {"tool", "before", "after", "stop", "subscriber"}
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
        if CHILD:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(agent.prompt, "go")
        else:
            await agent.prompt("go")

try:
    trio.run(main)
except KeyboardInterrupt as exc:
    print("bare", flush=True)
except BaseExceptionGroup as exc:
    def leaves(exc):
        return [leaf for inner in exc.exceptions for leaf in leaves(inner)] if hasattr(exc, "exceptions") else [exc]
    print("group of", *[type(leaf).__name__ for leaf in leaves(exc)], flush=True)
"""


def start(tmp_path: Path, *, slow: bool, grace: float, child: bool = False) -> tuple[subprocess.Popen[str], Path, int]:
    script, log = tmp_path / "script.py", tmp_path / "log.jsonl"
    script.write_text(f"SLOW, GRACE, CHILD = {slow}, {grace}, {child}\n" + textwrap.dedent(SCRIPT))
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


def assert_gone(pid: int) -> None:
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("child", [False, True], ids=["in the main task", "in a child task"])
def test_B168_one_ctrl_c_settles_the_run_and_leaves_bare(tmp_path: Path, child: bool) -> None:
    """One SIGINT: the child process is gone, the call is answered, the log is lawful, KeyboardInterrupt leaves
    alone.
    """
    process, log, pid = start(tmp_path, slow=False, grace=5, child=child)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert time.monotonic() - began < 7
    assert output.splitlines()[-1] == ("group of KeyboardInterrupt" if child else "bare")
    assert "ignored" not in errors
    assert_gone(pid)
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
    assert_gone(pid)
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
