"""What a SIGKILL at any moment leaves of a session: everything that a subscriber had handled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from session_victims import check, victim

from trio_agent.session import load_session

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the loop forks its victims"),
]

VICTIMS = Path(__file__).with_name("session_victims.py")


def kill_in_a_loop(path: Path, rounds: int, seconds: float) -> str:
    done = subprocess.run(
        [sys.executable, str(VICTIMS), str(path), str(rounds), "7"],
        capture_output=True,
        text=True,
        timeout=seconds,
        cwd=VICTIMS.parent.parent,
        env={**os.environ, "PYTHONPATH": str(VICTIMS.parent.parent)},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_a_kill_loses_nothing_that_a_subscriber_had_handled(tmp_path: Path) -> None:
    """25 kills, each of a process that goes on with what the one before left: all handled messages are there."""
    assert "none lost" in kill_in_a_loop(tmp_path / "s.jsonl", 25, 60)


def test_a_victim_that_nobody_kills_is_whole(tmp_path: Path) -> None:
    """What the loop of kills asks of a session holds for one that was left in peace, also when it is gone on with."""
    path = tmp_path / "s.jsonl"
    path.touch()
    before: list[str] = []
    for _ in range(2):
        with (tmp_path / "told").open("w+b") as told:
            victim(path, told.fileno(), ["on"] * 3)
            told.seek(0)
            handled = told.read().decode().splitlines()
        assert len(handled) > 6
        before = check(path, before, handled)
    assert load_session(path).interrupted == ()


@pytest.mark.exhaustive
def test_five_hundred_kills_lose_nothing(tmp_path: Path) -> None:
    """Five hundred kills at random moments: nothing that a subscriber had handled is lost."""
    assert "500 kills" in kill_in_a_loop(tmp_path / "s.jsonl", 500, 600)
