"""Nothing is left behind by runs, however they end. `python -m tests.leaks` does the same with ten thousand."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TextIO

import pytest
import trio

from tests import leaks
from trio_agent import Agent

pytestmark = pytest.mark.real_time


@pytest.fixture
def unlogged(caplog: pytest.LogCaptureFixture) -> None:
    """Pytest keeps what is logged, with its tracebacks."""
    caplog.set_level(logging.CRITICAL + 1, "trio_agent")


async def test_runs_of_every_outcome_leave_nothing_behind(unlogged: None) -> None:
    """After 900 runs there are as many files, tasks, threads, locks and processes as after 300, and as much memory."""
    early, late, outcomes = await leaks.mixed(900, 300)
    assert late.grown(early) == {}
    assert set(outcomes) == {"completed", "stopped", "error", "aborted", "cancelled"}


@pytest.mark.parametrize("what", ["blocks", "files"])
async def test_what_is_left_behind_is_noticed(what: str, unlogged: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind of run that keeps thirty objects or a file open each time is found out."""
    kept: list[object] = []

    async def leaking(folder: Path) -> str:
        kept.append([object() for _ in range(30)] if what == "blocks" else (folder / "kept").open("w"))
        return "completed"

    runs: dict[Callable[[Path], Awaitable[str]], str] = {leaking: "completed"}
    monkeypatch.setattr(leaks, "RUNS", runs)
    early, late, _ = await leaks.mixed(300, 100)
    for one in kept:
        if hasattr(one, "close"):
            one.close()
    assert what in late.grown(early)


async def test_tasks_and_children_are_counted() -> None:
    """A task or a child process that goes on is part of what is left."""
    before = await leaks.left()
    async with trio.open_nursery() as nursery:
        child = await nursery.start(trio.run_process, ["sleep", "60"])
        during = await leaks.left()
        child.kill()
        nursery.cancel_scope.cancel()
    assert {name for name in during.grown(before) if name != "files"} >= {"tasks", "children"}


@pytest.mark.parametrize("goes_on", [False, True])
async def test_a_thread_that_is_about_to_end_is_not_left_behind(goes_on: bool) -> None:
    """A thread that an abort has left may need a moment to end; one that does not end is counted."""
    before, started, end = await leaks.left(), trio.Event(), threading.Event()
    token = trio.lowlevel.current_trio_token()

    def stay() -> None:
        token.run_sync_soon(started.set)
        end.wait(60 if goes_on else 0.3)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(trio.to_thread.run_sync, stay, abandon_on_cancel=True))
        await started.wait()
        nursery.cancel_scope.cancel()
    after = await leaks.left()
    end.set()
    assert after.grown(before).get("threads", 0) == goes_on


@pytest.mark.parametrize("leaking", [False, True])
def test_the_command_says_what_has_grown(
    leaking: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It tells the outcomes, and what was held early and late; the exit code is 1 where more is held."""
    kept: list[TextIO] = []

    async def run(folder: Path) -> str:
        if leaking:
            kept.append((folder / "kept").open("w"))
        return await leaks.plain(folder)

    runs: dict[Callable[[Path], Awaitable[str]], str] = {run: "completed"}
    monkeypatch.setattr(leaks, "RUNS", runs)
    assert leaks.main(["--runs", "100"]) == leaking
    for file in kept:
        file.close()
    outcomes, early, late, grown = capsys.readouterr().out.splitlines()
    assert outcomes == "100 runs: 100 completed"
    assert early.startswith("after     10: ")
    assert late.startswith("after    100: ")
    assert ("'files': 90" in grown) == leaking
    assert (grown == "grown: nothing") == (not leaking)


async def _prompted(agent: Agent) -> None:
    await agent.prompt("hi")


async def _streamed(agent: Agent) -> None:
    async with agent.stream("hi") as events:
        async for _ in events:
            pass


@pytest.mark.parametrize("way", [_prompted, _streamed])
async def test_an_agent_is_freed_without_the_garbage_collector(way: Callable[[Agent], Awaitable[None]]) -> None:
    """Once nobody holds an agent, it and its history are gone at once: nothing of a run that is over refers back."""

    async def run() -> weakref.ref[Agent]:
        provider = leaks.answers(leaks.calls(("adds", '{"a":1,"b":2}'), ("fails", "{}")))
        agent = leaks.agent_of(provider)
        await way(agent)
        return weakref.ref(agent)

    await run()
    gc.collect()
    gc.disable()
    try:
        gone = [await run() for _ in range(10)]
        left, found = [agent() for agent in gone], gc.collect()
    finally:
        gc.enable()
    assert left == [None] * 10
    assert found < 10  # of ten runs
