"""How the command line writes to stdout: all of it, however slow the reader is, and what it says when there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from trio_agent.__main__ import main
from trio_agent.cli._output import Output

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).parent.parent


async def test_a_pipe_that_does_not_block_gets_all_of_it() -> None:
    """Whoever shares the pipe may have made it so: what does not fit at once is written when there is room."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    data = bytes(range(256)) * 4_096  # more than a pipe holds
    read = bytearray()

    def read_all() -> None:
        while piece := os.read(reader, 65_536):
            read.extend(piece)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, read_all)
        await Output(writer).write(data)
        os.close(writer)
    os.close(reader)
    assert read == data


@pytest.mark.parametrize("told", [True, False])
async def test_a_reader_that_is_gone_is_noticed_once(told: bool) -> None:
    """The first write that fails says why and tells who wants to know; further ones do nothing."""
    reader, writer = os.pipe()
    os.close(reader)
    output = Output(writer)
    calls: list[str] = []
    if told:
        output.when_closed(lambda: calls.append("closed"))
    await output.write(b"one")
    failure = output.failure
    assert isinstance(failure, BrokenPipeError)
    await output.write(b"two")
    os.close(writer)
    assert output.failure is failure
    assert calls == ["closed"] * told


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_standard_stream_is_no_failure(closed: str) -> None:
    """A command whose input or output the shell has closed does its work, and says nothing where nobody listens."""
    command = f'"{sys.executable}" -m trio_agent explain L1 {closed}'
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("L1") is (">&-" not in closed.replace("2>&-", ""))


def test_a_session_that_is_no_file_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """A path without a name of a file is said in one line."""
    assert main(["run", "--session", "/", "hi"]) == 2
    assert "cannot be opened" in capsys.readouterr().err
