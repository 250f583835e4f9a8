"""The child process that serves a model: started, asked whether it is ready, stopped, and mourned.

Here lives the parent's side of that process; the child's is `_local_server.py`. Nothing in here knows what a request
is.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any, Final, TypeVar

import attrs
import trio

from .._errors import ProviderError
from ._local_model import LocalModelError

E = TypeVar("E", bound=Exception)

_SERVER: Final = Path(__file__).with_name("_local_server.py")
_STOP_GRACE: Final = 2.0  # seconds from asking the child to end to killing it
_DYING: Final = 1.0  # seconds; a moment passes between the server's last connection and its end
_REPORT_LIMIT: Final = 65_536  # bytes; a report is one short line
_LOG_QUOTED: Final = 4_000  # bytes of the log's end
_REASON: Final = re.compile(r"error loading model: (.+)")


@attrs.frozen
class Child:
    """The process, and what it reported. `context` is in tokens; `knows_tools` is what the model's template says."""

    process: trio.Process
    url: str
    context: int
    knows_tools: bool
    _log: IO[bytes]

    async def explained(self, error: ProviderError) -> ProviderError:
        """A failure to reach the server, or that it is gone, if that is why: no retry will bring it back."""
        with trio.move_on_after(_DYING):
            await self.process.wait()
        status = self.process.poll()
        if status is None:
            return error
        text = f"the server of the local model ended with status {status}"
        gone = _with_log(lambda text: ProviderError("server", text, retryable=False), text, self._log)
        gone.__cause__ = error
        return gone


@asynccontextmanager
async def running(
    model: Path, *, context: int | None, threads: int | None, key: str, startup_timeout: float
) -> AsyncGenerator[Child]:
    """A child that answers requests under `key`; it is stopped, and waited for, when the block is left.

    Raises `LocalModelError` when it cannot be started in so many seconds.
    """
    # A file, not a pipe: nobody has to drain it, so that no task of ours runs beside the caller's block. Appending,
    # for the child shares our place in it, and reading moves that.
    with tempfile.TemporaryFile("a+b") as log:
        process = await trio.lowlevel.open_process(
            # -P: the folder it is started in stays off the import path.
            [sys.executable, "-P", str(_SERVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.fileno(),
            start_new_session=True,  # a Ctrl-C at the terminal is for us; the run still needs its model to settle
        )
        try:
            settings = {
                "model": str(model),
                "name": model.stem,
                "context": context,
                "threads": threads or max(1, _processors() // 2),
                "key": key,
            }
            report: dict[str, Any] | None = None
            with trio.move_on_after(startup_timeout):
                report = await _ask(process, settings)
            if report is None:
                raise LocalModelError(
                    f"the model {model} was not ready after {startup_timeout:g} s; allow more (startup_timeout)"
                )
            if "url" not in report:
                why = report.get("error") or f"its server ended with status {await process.wait()}"
                raise _with_log(LocalModelError, f"the model {model} cannot be started: {why}", log)
            yield Child(process, report["url"], report["context"], report["tools"], log)
        finally:
            with trio.move_on_after(3 * _STOP_GRACE, shield=True):
                await _stop(process)


def _processors() -> int:
    # llama.cpp's threads wait for each other without sleeping: with one more than there are processors free, each
    # token takes ten times as long. Half of them leaves room for this process and its tools.
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


async def _ask(process: trio.Process, settings: dict[str, Any]) -> dict[str, Any]:
    """Tell the child what to run and wait for its report; empty, when it ended without one."""
    stdin, stdout = _pipes(process)
    line = b""
    try:
        await stdin.send_all(json.dumps(settings).encode() + b"\n")
        while not line.endswith(b"\n") and len(line) < _REPORT_LIMIT:
            more = await stdout.receive_some()
            if not more:
                return {}
            line += more
    except trio.BrokenResourceError:
        return {}
    report: dict[str, Any] = json.loads(line)
    return report


async def _stop(process: trio.Process) -> None:
    """End the child and wait for it."""
    if process.poll() is None:
        process.terminate()
    with trio.move_on_after(_STOP_GRACE):
        await process.wait()
    if process.poll() is None:
        process.kill()
        # No process outlives that signal, unless the machine is stuck: then we are not.
        with trio.move_on_after(_STOP_GRACE):
            await process.wait()
    for stream in _pipes(process):
        await stream.aclose()


def _pipes(process: trio.Process) -> tuple[trio.abc.SendStream, trio.abc.ReceiveStream]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


def _with_log(make: Callable[[str], E], text: str, log: IO[bytes]) -> E:
    """An error that quotes the log: in its text the line that says most, in a note the end as it is."""
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - _LOG_QUOTED))
    end = log.read().decode("utf-8", "replace").strip()
    reasons = _REASON.findall(end) or end.splitlines()[-1:]
    error = make(f"{text} ({reasons[0]})" if reasons else text)
    if end:
        error.add_note(f"the end of the server's log:\n{end}")
    return error
