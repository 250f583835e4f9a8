"""`trio-agent replay`: a run in its own time, at any speed, and out of it at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from log_files import a_run, write_trace

from trio_agent import (
    AgentEnd,
    AgentStart,
    AssistantMessage,
    CompactionEnd,
    CompactionStart,
    Event,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    Thinking,
    ThinkingDelta,
    TurnStart,
)
from trio_agent.__main__ import main
from trio_agent.cli._output import Output
from trio_agent.cli._pen import Pen
from trio_agent.cli._replay import UNTIMED, Pace, Teller, completed
from trio_agent.session._log import _HISTORY

ROOT = Path(__file__).parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


class Watch(Pen):
    """Notes when each line was written."""

    def __init__(self) -> None:
        self.lines: list[tuple[float, str]] = []
        self._line = ""
        self._start = trio.current_time()

    def write(self, text: str, style: str = "") -> None:
        self._line += text
        while "\n" in self._line:
            line, _, self._line = self._line.partition("\n")
            self.lines.append((round(trio.current_time() - self._start, 3), line))


class Shelf(Output):
    """An output without a descriptor."""

    def __init__(self) -> None:
        super().__init__(-1)
        self.data = b""

    async def write(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.data += data


async def told(events: Sequence[Event], pace: Pace) -> tuple[list[tuple[float, str]], str]:
    watch, shelf = Watch(), Shelf()
    await Teller(shelf, watch, pace).tell(iter(events))
    return watch.lines, shelf.data.decode()


async def test_a_trace_is_told_in_its_own_time() -> None:
    """Each line comes when it came: prompt, retry, compaction, calls, results, the end."""
    lines, answer = await told(a_run(), Pace())
    assert [at for at, _ in lines] == [0.0, 1.0, 3.5, 5.5, 6.0, 6.0, 6.5, 7.0, 8.0, 8.0, 10.0]
    assert answer == "looking\nhalf\n"
    assert lines[0][1].startswith("» hello")
    assert lines[-2][1] == "» and b"
    assert lines[-1][1].startswith("aborted (enough) · 2 turns")


async def test_at_twice_the_speed_it_takes_half_the_time() -> None:
    """`--speed 2`."""
    lines, _ = await told(a_run(), Pace(speed=2))
    assert lines[-1][0] == 5.0


async def test_at_speed_0_it_takes_no_time() -> None:
    """`--speed 0`."""
    lines, _ = await told(a_run(), Pace(speed=0))
    assert {at for at, _ in lines} == {0.0}


async def test_no_pause_is_longer_than_the_longest_that_is_wanted() -> None:
    """`--max-pause 0.5` cuts the waits, and leaves shorter ones as they are."""
    lines, _ = await told(a_run(), Pace(max_pause=0.5))
    assert [at for at, _ in lines] == [0.0, 0.5, 1.5, 3.0, 3.5, 3.5, 4.0, 4.5, 5.0, 5.0, 6.0]


async def test_several_runs_are_told_one_after_the_other() -> None:
    """The clock of each begins at 0."""
    lines, _ = await told([*a_run(), *a_run()], Pace())
    assert lines[-1][0] == 20.0


async def test_a_log_without_times_takes_a_moment_for_each_event() -> None:
    """So that one sees it happen."""
    events: list[Event] = [AgentStart(), TurnStart(1), AgentEnd("stopped")]
    lines, _ = await told(events, Pace())
    assert lines == [(round(3 * UNTIMED, 3), "stopped · 0 turns · tokens unknown · 0.0 s")]


async def test_a_session_is_told_with_what_it_leaves_out() -> None:
    """Its answers and calls come with their messages."""
    kept = [event for event in a_run() if isinstance(event, _HISTORY)]
    lines, answer = await told(list(completed(kept)), Pace())
    assert answer == "looking\nhalf\n"
    assert [line for at, line in lines if at == 6.0][:2] == ["hm", '→ read {"path":"a.txt"}']
    assert [at for at, line in lines if line.startswith("✓ read")] == [8.0]


def test_a_trace_stays_as_it_is() -> None:
    """It has all of its events already."""
    assert list(completed(a_run())) == a_run()


async def test_a_cancelled_replay_ends_at_once() -> None:
    """In the middle of a wait."""
    with trio.move_on_after(1.5) as scope:
        await told(a_run(), Pace())
    assert scope.cancelled_caught


@pytest.mark.real_time
@pytest.mark.parametrize("source", ["file", "stdin"])
def test_ctrl_c_ends_it_with_130(tmp_path: Path, source: str) -> None:
    """Also while it waits for more from a pipe."""
    events = a_run()
    log = write_trace(tmp_path / "run.jsonl", events if source == "file" else events[:12])
    arguments = [str(log), "--speed", "0.001"] if source == "file" else ["-", "--speed", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "trio_agent", "replay", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    assert process.stdin is not None
    assert process.stderr is not None
    try:
        if source == "stdin":
            process.stdin.write(log.read_bytes())
            process.stdin.flush()
        assert process.stderr.readline().startswith("» hello".encode())
        time.sleep(0.2)  # it waits now, whatever it waits for
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert b"Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.real_time
def test_the_whole_command_prints_the_answer_on_stdout_and_the_story_on_stderr(tmp_path: Path) -> None:
    """As `trio-agent run` did, plain over pipes, without a control character of the model's or the tools'."""
    log = write_trace(tmp_path / "run.jsonl", [*a_run(), *[e for e in a_run() if isinstance(e, MessageEnd)][:1]])
    log.write_bytes(log.read_bytes() + b"garbage\n")
    command = [sys.executable, "-m", "trio_agent", "replay", str(log), "--speed", "0"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, timeout=60)
    assert done.returncode == 0
    assert done.stdout == b"looking\nhalf\n"
    assert b"aborted (enough)" in done.stderr
    assert f"line {len(a_run()) + 2}: not JSON".encode() in done.stderr
    assert b"\x1b" not in done.stderr + done.stdout


@pytest.mark.real_time
def test_a_reader_that_goes_away_ends_it(tmp_path: Path) -> None:
    """One line says so; the exit code is 1."""
    log = write_trace(tmp_path / "run.jsonl", a_run())
    process = subprocess.Popen(
        [sys.executable, "-m", "trio_agent", "replay", str(log), "--speed", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    err = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(20) == 1
    assert err.endswith("trio-agent: error: stdout cannot be written to (Broken pipe), so the replay was ended\n")


async def test_a_compaction_that_failed_and_thoughts_without_an_answer_are_told() -> None:
    """The line of the thoughts ends where the message does, and the failure is said in one line."""
    thinking = AssistantMessage([Thinking("hm")], "stop")
    events: list[Event] = [
        AgentStart(),
        TurnStart(1),
        CompactionStart("threshold"),
        CompactionEnd("failed", error="no\nmodel", time=1.0),
        MessageStart(AssistantMessage((), None), time=1.0),
        MessageUpdate(ThinkingDelta(0, "hm"), time=1.0),
        MessageEnd(thinking, time=2.0),
        AgentEnd("completed", None, 1, time=2.0),
    ]
    lines, answer = await told(events, Pace())
    assert lines == [
        (0.0, "… shortening the conversation"),
        (1.0, "… that failed: no model"),
        (2.0, "hm"),
        (2.0, "completed · 1 turn · tokens unknown · 2.0 s"),
    ]
    assert answer == ""


@pytest.mark.parametrize("option", [["--speed", "-1"], ["--speed", "fast"], ["--max-pause", "inf"]])
def test_a_number_that_is_none_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: list[str]
) -> None:
    """Exit code 2 and one line."""
    assert main(["replay", str(tmp_path / "x"), *option]) == 2
    assert capsys.readouterr().err.count("\n") == 1
