"""The programs behind the tools: the supervisor of commands, the searcher, and what is collected of their output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tool_calls import run_call

from trio_agent.tools import _searcher as searcher
from trio_agent.tools import _shell, bash
from trio_agent.tools import _supervisor as supervisor
from trio_agent.tools._output import Output

pytestmark = pytest.mark.real_time


# The supervisor


def test_a_system_without_subreapers_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only Linux makes a process the parent of orphans; elsewhere nothing is asked of the system."""
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not supervisor.become_subreaper()


def test_without_a_subreaper_the_group_is_ended() -> None:
    """Where descendants cannot be found, those in the command's group are counted as one, and ended."""
    with subprocess.Popen(["sh", "-c", "sleep 61 & wait"], start_new_session=True) as shell:
        tree = supervisor.Tree(shell, is_whole=False)
        assert tree.alive() == 1
        assert tree.end(5) == 1
        assert tree.alive() == 0
        assert tree.end(5) == 0
    assert shell.returncode == -signal.SIGTERM


def test_a_process_that_has_just_ended_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends between the list of processes and the look at it is no descendant; the others are found."""
    listing = os.listdir
    monkeypatch.setattr(os, "listdir", lambda place: ["999999999", *listing(place)])
    with subprocess.Popen(["sleep", "62"]) as child:
        assert child.pid in supervisor.descendants()
        child.kill()


async def test_a_supervisor_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not end its command in time is ended itself, and the call says that it timed out."""
    monkeypatch.setattr(_shell, "_SLACK", 0.1)
    command = "echo $PPID; kill -STOP $PPID"
    result = await run_call([bash(tmp_path, grace=0.1)], "bash", command=command, timeout=0.5)
    assert "timed out after 0.5 s" in result.text
    assert result.is_error
    stopped = int(result.text.split()[0])
    assert not Path(f"/proc/{stopped}").exists()


async def test_a_signal_without_a_name_is_said_by_its_number(tmp_path: Path) -> None:
    """A real-time signal ends a command like any other."""
    result = await run_call([bash(tmp_path)], "bash", command="kill -40 $$")
    assert "ended by signal 40 (unknown)" in result.text


# Output


@pytest.mark.parametrize("size", [100, 2_000, 16_000, 16_100, 60_000])
def test_the_latest_output_is_its_end(tmp_path: Path, size: int) -> None:
    """The last two thousand bytes are shown live, also where they are partly in the head and partly in the tail."""
    said = "".join(f"{number:05}\n" for number in range(size // 6 + 1))[:size]
    output = Output(str(tmp_path))
    for at in range(0, size, 700):
        output.add(said[at : at + 700].encode())
    assert output.latest() == said[-2_000:]
    output.close()


# The searcher


def test_the_searcher_passes_over_what_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that is gone since it was found costs nothing of the rest."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b").write_text("word\n")
    finding = searcher.files_under

    def found(target: str, skipped: set[str]) -> list[str]:
        return ["./a", *finding(target, skipped)]

    monkeypatch.setattr(searcher, "files_under", found)
    assert searcher.main("w.rd", "", "", ".") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert '"./b"' in line


def test_the_searcher_refuses_what_is_no_pattern(capsys: pytest.CaptureFixture[str]) -> None:
    """A pattern that cannot be compiled is an error with Python's own words, and status 2."""
    assert searcher.main("(", "", "", ".") == 2
    assert "'(' is no regular expression: missing )" in capsys.readouterr().err
