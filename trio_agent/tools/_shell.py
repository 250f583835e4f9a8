"""The tool that runs shell commands, and ends all that they start. It is confined by nothing but the system's rights.

Here lives the tool's side: time, abort, output, and what the model is told. The processes are the business of
`_supervisor.py`, which each command has one of.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import trio

from .. import Tool, ToolContext, ToolResult, tool
from ._output import Output
from ._workspace import Workspace, WorkspacePath, as_workspace

_SUPERVISOR: Final = Path(__file__).with_name("_supervisor.py")
_LEFTOVER_GRACE: Final = 0.5  # seconds for what a command that has ended leaves running
_SLACK: Final = 4.0  # seconds for the supervisor beyond the grace: it gives up on what cannot be killed before
_UPDATES: Final = 0.25  # seconds between updates at first; each pause is longer, up to twenty times that
_SECRET: Final = re.compile(r"(?i)key|token|secret|passw|credential|auth|cookie|session_?id")
_HARMLESS: Final = frozenset({"SSH_AUTH_SOCK", "KEYBOARD", "XAUTHORITY"})


def shell_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Environment variables without those that are named like keys, tokens and passwords."""
    return {name: value for name, value in environment.items() if name in _HARMLESS or not _SECRET.search(name)}


def bash(
    workspace: WorkspacePath,
    *,
    timeout: float = 120,
    longest_timeout: float = 600,
    grace: float = 2.0,
    environment: Mapping[str, str] | None = None,
) -> Tool:
    """A tool that runs a command in bash (or sh) with the workspace as working directory; it can reach everything.

    A command has `timeout` seconds, or as many as the model asks for, up to `longest_timeout`. Time-out and abort end
    all that it has started: TERM, then KILL after `grace` seconds; so does the end of the command for what it leaves
    running. On Linux that includes processes that left the group; elsewhere the group alone. `environment` defaults
    to `shell_environment()`. The tool is serial: commands and edits of one message take effect in order.

    Output beyond some ten thousand characters is in a file, which is there until the tool is dropped.
    """
    space = as_workspace(workspace)
    folder = tempfile.mkdtemp(prefix="trio-agent-bash-")
    given = shell_environment() if environment is None else dict(environment)
    default, most = timeout, longest_timeout

    @trio.lowlevel.enable_ki_protection
    async def bash(
        command: Annotated[str, "what bash is to run, in the workspace; it has no standard input"],
        context: ToolContext,
        timeout: Annotated[float | None, "how many seconds it may take"] = None,  # noqa: ASYNC109  # the model's to give
    ) -> ToolResult:
        """Run a shell command. What it still has running when it ends is ended with it."""
        if "\0" in command:
            raise ValueError("the command contains a NUL character")
        seconds = min(default if timeout is None else timeout, most)
        if not seconds > 0:
            raise ValueError("timeout is a positive number of seconds")
        output = Output(folder)
        try:
            return await _Command(space, given, grace, output).run(command, context, seconds)
        finally:
            output.close()

    made = tool(serial=True)(bash)
    weakref.finalize(made, shutil.rmtree, folder, ignore_errors=True)
    return made


class _Command:
    """One command, from its start to the last of its processes."""

    def __init__(self, space: Workspace, environment: dict[str, str], grace: float, output: Output) -> None:
        self._space = space
        self._environment = environment
        self._grace = grace
        self._output = output
        self._report = bytearray()

    async def run(self, command: str, context: ToolContext, seconds: float) -> ToolResult:
        process = await self._start(command)
        in_time = False
        try:
            with trio.move_on_after(seconds):
                await self._attend(process, context)
                in_time = True
        finally:
            with trio.CancelScope(shield=True):
                await self._end(process)
        return self._result(in_time, seconds)

    async def _start(self, command: str) -> trio.Process:
        pinned = f"/proc/self/fd/{self._space.descriptor}"
        shell = shutil.which("bash") or "/bin/sh"
        arguments = [shell, command, str(self._grace), str(_LEFTOVER_GRACE)]
        return await trio.lowlevel.open_process(
            [sys.executable, "-I", "-S", str(_SUPERVISOR), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=pinned if _HAS_PROC else self._space.path,
            env=self._environment,
            start_new_session=True,
        )

    async def _attend(self, process: trio.Process, context: ToolContext) -> None:
        """Read what it says until it, and all that it has started, is over."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell, context)
            await self._read_all(process)
            nursery.cancel_scope.cancel()

    @trio.lowlevel.enable_ki_protection
    async def _read_all(self, process: trio.Process) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read, process.stderr, self._report.extend)
            nursery.start_soon(self._read, process.stdout, self._output.add)
            await process.wait()
            # What could not be ended may hold the pipe: what is in it by now is all that is waited for.
            nursery.cancel_scope.deadline = trio.current_time() + 1

    @trio.lowlevel.enable_ki_protection
    async def _read(self, stream: Any, take: Any) -> None:
        async for piece in stream:
            take(piece)

    async def _end(self, process: trio.Process) -> None:
        """Close its standard input, on which the supervisor ends everything, and read what is left.

        A supervisor that does not end is killed. Takes a second longer than its time at most.
        """
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        with trio.move_on_after(self._grace + _SLACK):
            await process.stdin.aclose()
            await self._read_all(process)
        process.kill()  # does nothing to one that has ended
        with trio.move_on_after(1):
            await process.wait()
        await process.stdout.aclose()
        await process.stderr.aclose()

    @trio.lowlevel.enable_ki_protection
    async def _tell(self, context: ToolContext) -> None:
        """Say what has come, at ever longer intervals."""
        pause, told = _UPDATES, 0
        while True:
            await trio.sleep(pause)
            if self._output.size > told:
                told = self._output.size
                await context.update(self._output.latest())
                pause = min(pause * 1.25, 20 * _UPDATES)

    def _result(self, in_time: bool, seconds: float) -> ToolResult:
        said = self._ending()
        code: int | None = said.get("code")
        left: int = said.get("left", 0)
        notes: list[str] = []
        if not in_time:
            notes.append(f"timed out after {seconds:g} s; everything it had started was ended")
        elif code is None:
            notes.append("it was lost: its supervisor was ended from outside")
        elif code < 0:
            notes.append(f"ended by signal {-code} ({_signal_name(-code)})")
        else:
            notes.append(f"exit code {code}")
        if in_time and left:
            notes.append(f"{left} processes that it left running were ended")
        text = self._output.text()
        shown = text if text.strip() else "(no output)"
        gap = "" if shown.endswith("\n") else "\n"
        details = {
            "exit_code": code if code is not None and code >= 0 else None,
            "signal": -code if code is not None and code < 0 else None,
            "timed_out": not in_time,
            "size": self._output.size,
            "file": self._output.path,
        }
        return ToolResult(f"{shown}{gap}[{'; '.join(notes)}]", details, is_error=not in_time or code is None)

    def _ending(self) -> dict[str, Any]:
        try:
            ending: dict[str, Any] = json.loads(self._report)
            return ending
        except ValueError:
            return {}


_HAS_PROC: Final = os.path.exists("/proc/self/fd")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
