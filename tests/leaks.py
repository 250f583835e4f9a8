"""Ten thousand runs of mixed outcomes in one process leave no more behind than the first thousand of them.

    python -m tests.leaks [--runs N]

Here live the runs and the counting. The runs end in every way there is: completed, stopped, failed by a provider, a
hook or a subscriber, aborted, cancelled from outside, timed out; with tools that return, raise, hang, use threads, lock
files and run agents of their own, and, where the system has it, processes.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import trio

from trio_agent import (
    Agent,
    Block,
    Event,
    Finish,
    Hooks,
    Limits,
    MessageUpdate,
    ModelRequest,
    ProviderError,
    RetryPolicy,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    ToolContext,
    ToolExecutionStart,
    tool,
)
from trio_agent._file_locks import current_file_locks
from trio_agent.testing import TraceChecker

Send = Callable[[Any], Awaitable[None]]


@attrs.frozen
class Left:
    """What a process holds between two runs.

    Memory in blocks of Python's allocator, not in bytes: a table of the interpreter's own that doubles once would be
    two million of these.
    """

    blocks: int
    files: int
    tasks: int
    threads: int
    locks: int
    children: int

    def grown(self, since: Left) -> dict[str, int]:
        """In what it has grown, beyond the noise of a process that has been used: 2,000 blocks, nothing else."""
        names = [field.name for field in attrs.fields(Left)]
        growth = {name: getattr(self, name) - getattr(since, name) for name in names}
        return {name: by for name, by in growth.items() if by > (2_000 if name == "blocks" else 0)}


async def left() -> Left:
    await _abandoned_threads_end()
    for _ in range(3):
        await trio.lowlevel.checkpoint()
    gc.collect()
    locks = current_file_locks().statistics()
    stats = trio.lowlevel.current_statistics()
    return Left(
        sys.getallocatedblocks(),
        len(os.listdir("/proc/self/fd")),
        stats.tasks_living,
        _busy_threads(),
        locks.held + locks.waiting,
        _children(),
    )


async def _abandoned_threads_end() -> None:
    """Give threads that an abort or a timeout has left behind a second: these end by themselves, a leaked one does not.

    Without it, what is counted is how soon the system schedules them:
    test_a_thread_that_is_about_to_end_is_not_left_behind
    """
    with trio.move_on_after(1):
        while _busy_threads() > 1:
            await trio.sleep(0.001)


def _busy_threads() -> int:
    """Threads but Trio's own, which wait a while for more work and then end."""
    return sum("Trio thread" not in thread.name for thread in threading.enumerate())


def _children() -> int:
    return sum(len(Path(task, "children").read_text().split()) for task in Path("/proc/self/task").iterdir())


# Tools


@tool
async def adds(a: int, b: int) -> int:
    """Add."""
    await trio.lowlevel.checkpoint()
    return a + b


@tool
async def fails() -> str:
    """Fail."""
    raise ValueError("no")


@tool
async def hangs(context: ToolContext) -> str:
    """Say so, and hang."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        await context.update("hanging")
    raise AssertionError("nobody wakes it")


@tool
def blocks(context: ToolContext) -> str:
    """Work in a thread, and report from there."""
    context.update("working")
    return threading.current_thread().name


@tool(timeout=0.001)
def stays() -> str:
    """Stay in its thread for longer than anybody waits."""
    time.sleep(0.01)
    return "late"


@tool(writes=("path",))
async def writes(path: str) -> str:
    """Write a file."""
    await trio.Path(path).write_text("x")
    return "written"


@tool
async def asks(context: ToolContext) -> str:
    """Run an agent."""
    result = await agent_of(answers()).prompt("inside")
    return result.text


@tool
async def spawns() -> str:
    """Run a process, which an abort ends."""
    await trio.run_process(["sleep", "60"])
    raise AssertionError("an abort comes first")


TOOLS = (adds, fails, hangs, blocks, stays, writes, asks, spawns)


# Providers


def answers(*replies: list[Any]) -> Callable[[ModelRequest, Send], Awaitable[None]]:
    """Send the replies, one for each request, then a text; an exception in a reply is raised."""
    rest = list(replies)

    async def provider(request: ModelRequest, send: Send) -> None:
        for chunk in rest.pop(0) if rest else [TextDelta(0, "done"), Finish("stop")]:
            if isinstance(chunk, Exception):
                raise chunk
            await send(chunk)

    return provider


async def streams_on(request: ModelRequest, send: Send) -> None:
    """Send text until somebody stops it."""
    while True:
        await send(TextDelta(0, "more "))
        await trio.lowlevel.checkpoint()


def calls(*wanted: tuple[str, str]) -> list[Any]:
    chunks: list[Any] = []
    for at, (name, arguments) in enumerate(wanted):
        chunks += [ToolCallStart(at, f"c{at}", name), ToolCallDelta(at, arguments)]
    return [*chunks, Finish("tool_use")]


def agent_of(provider: Any, **options: Any) -> Agent:
    agent = Agent(provider, model="m", tools=TOOLS, retry=RetryPolicy(base_delay=0), **options)
    agent.subscribe(TraceChecker())
    return agent


# Runs, each with the outcome that it is to have


async def plain(_folder: Path) -> str:
    return (await agent_of(answers()).prompt("hi")).outcome


async def tools(_folder: Path) -> str:
    script = answers(calls(("adds", '{"a":1,"b":2}'), ("fails", "{}"), ("nobody", "{}"), ("adds", "{")))
    return (await agent_of(script).prompt("hi")).outcome


async def limited(_folder: Path) -> str:
    return (await agent_of(answers(calls(("fails", "{}"))), limits=Limits(max_turns=1)).prompt("hi")).outcome


async def retried(_folder: Path) -> str:
    overloaded = ProviderError("overloaded", "later")
    return (await agent_of(answers([overloaded], [TextDelta(0, "a"), overloaded])).prompt("hi")).outcome


async def provider_fails(_folder: Path) -> str:
    return (await agent_of(answers([TextDelta(0, "a"), ValueError("no")])).prompt("hi")).outcome


async def unusable(_folder: Path) -> str:
    return (await agent_of(answers([TextDelta(0, "a"), ToolCallDelta(7, "{}")])).prompt("hi")).outcome


async def without_end(_folder: Path) -> str:
    return (await agent_of(answers([TextDelta(0, "a")])).prompt("hi")).outcome


async def hook_blocks(_folder: Path) -> str:
    hooks = Hooks(before_tool_call=lambda call: Block("no"))
    return (await agent_of(answers(calls(("adds", '{"a":1,"b":2}'))), hooks=hooks).prompt("hi")).outcome


async def hook_fails(_folder: Path) -> str:
    async def stop(_state: object) -> bool:
        raise ValueError("no")

    return (await agent_of(answers(), hooks=Hooks(should_stop_after_turn=stop)).prompt("hi")).outcome


async def subscriber_fails(_folder: Path) -> str:
    agent = agent_of(answers())

    async def listener(event: Event) -> None:
        if isinstance(event, MessageUpdate):
            raise ValueError("no")

    agent.subscribe(listener)
    return (await agent.prompt("hi")).outcome


async def aborted_at(agent: Agent, kind: type[Event]) -> str:
    agent.subscribe(lambda event: agent.abort() if isinstance(event, kind) else None)
    return (await agent.prompt("hi")).outcome


async def aborted_in_tool(_folder: Path) -> str:
    return await aborted_at(agent_of(answers(calls(("hangs", "{}"), ("blocks", "{}")))), ToolExecutionStart)


async def aborted_in_update(_folder: Path) -> str:
    agent = agent_of(answers(calls(("hangs", "{}"))))
    agent.subscribe(lambda event: agent.abort() if event.type == "tool_execution_update" else None)
    return (await agent.prompt("hi")).outcome


async def aborted_in_stream(_folder: Path) -> str:
    return await aborted_at(agent_of(streams_on), MessageUpdate)


async def cancelled(_folder: Path) -> str:
    agent = agent_of(streams_on)
    with trio.CancelScope() as scope:
        agent.subscribe(lambda event: scope.cancel() if isinstance(event, MessageUpdate) else None)
        await agent.prompt("hi")
    return "cancelled" if scope.cancelled_caught else "not cancelled"


async def timed_out(_folder: Path) -> str:
    with trio.move_on_after(0.002) as scope:
        await agent_of(answers(calls(("hangs", "{}")))).prompt("hi")
    return "cancelled" if scope.cancelled_caught else "not cancelled"


async def threads(_folder: Path) -> str:
    return (await agent_of(answers(calls(("blocks", "{}"), ("blocks", "{}")))).prompt("hi")).outcome


async def left_thread(_folder: Path) -> str:
    return (await agent_of(answers(calls(("stays", "{}")))).prompt("hi")).outcome


async def files(folder: Path) -> str:
    one, two = ['{"path":"%s"}' % (folder / name) for name in ("one", "./one")]  # braces
    return (await agent_of(answers(calls(("writes", one), ("writes", two), ("writes", one)))).prompt("hi")).outcome


async def nested(_folder: Path) -> str:
    return (await agent_of(answers(calls(("asks", "{}"), ("asks", "{}")))).prompt("hi")).outcome


async def steered(_folder: Path) -> str:
    agent = agent_of(answers())
    agent.steer("first")
    agent.follow_up("last")
    return (await agent.prompt("hi")).outcome


async def stream_left(_folder: Path) -> str:
    agent = agent_of(streams_on)
    async with agent.stream("hi") as events:
        async for event in events:
            if isinstance(event, MessageUpdate):
                break
    return events.result.outcome


async def process(_folder: Path) -> str:
    agent = agent_of(answers(calls(("spawns", "{}"))))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_abort_soon, agent)
        return (await agent.prompt("hi")).outcome


async def _abort_soon(agent: Agent) -> None:
    await trio.sleep(0.004)
    agent.abort()


RUNS: dict[Callable[[Path], Awaitable[str]], str] = {
    plain: "completed",
    tools: "completed",
    limited: "stopped",
    retried: "completed",
    provider_fails: "error",
    unusable: "error",
    without_end: "error",
    hook_blocks: "completed",
    hook_fails: "error",
    subscriber_fails: "error",
    aborted_in_tool: "aborted",
    aborted_in_update: "aborted",
    aborted_in_stream: "aborted",
    cancelled: "cancelled",
    timed_out: "cancelled",
    threads: "completed",
    left_thread: "completed",
    files: "completed",
    nested: "completed",
    steered: "completed",
    stream_left: "aborted",
    process: "aborted",
}


async def mixed(runs: int, warm_up: int, seed: int = 0) -> tuple[Left, Left, Counter[str]]:
    """What is left after `warm_up` runs and after all of them, and how often there was which outcome."""
    draw, outcomes, early = random.Random(seed), Counter[str](), None
    with TemporaryDirectory() as folder:
        for number in range(1, runs + 1):
            run = draw.choice(list(RUNS))
            outcome = await run(Path(folder))
            assert outcome == RUNS[run], f"{run.__name__} ended {outcome}"
            outcomes[outcome] += 1
            if number == warm_up:
                early = await left()
        assert early is not None
        return early, await left(), outcomes


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.leaks")
    parser.add_argument("--runs", type=int, default=10_000)
    runs = parser.parse_args(arguments).runs
    early, late, outcomes = trio.run(mixed, runs, max(runs // 10, 1))
    print(f"{runs} runs: {', '.join(f'{count} {outcome}' for outcome, count in outcomes.most_common())}")
    for when, held in ((max(runs // 10, 1), early), (runs, late)):
        print(f"after {when:>6,}: " + ", ".join(f"{value:,} {name}" for name, value in attrs.asdict(held).items()))
    grown = late.grown(early)
    print(f"grown: {grown or 'nothing'}")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
