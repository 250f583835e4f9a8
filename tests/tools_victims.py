"""A process that edits files until it is killed, and the loop that kills it. Used by test_tools_files.py.

Run as a program: `python tools_victims.py FOLDER ROUNDS SEED`. Ends with status 0 and a line of figures.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from trio_agent.tools import Workspace
from trio_agent.tools._writing import Replacement, remove_litter


def content(number: int) -> bytes:
    return f"version {number:09}\n".encode() * 20_000


def is_whole(data: bytes) -> bool:
    line = data[:18]
    return line.startswith(b"version ") and data == line * 20_000


def victim(folder: Path, numbers: Iterable[int]) -> None:
    """Replace a file again and again, as the tools do it. In one thread: a fork must not have others."""
    space = Workspace(folder)
    for number in numbers:
        with space.place("sub/file.txt") as place, Replacement(place, content(number)) as replacement:
            replacement.commit()
        if number == 1:
            os.write(1, b".")


def kill_once(folder: Path, after: float) -> None:
    ear, mouth = os.pipe()
    pid = os.fork()
    if pid == 0:  # pragma: no cover - it is killed
        try:
            os.dup2(mouth, 1)
            victim(folder, itertools.count(1))
        finally:
            os._exit(70)
    os.close(mouth)
    os.read(ear, 1)
    time.sleep(after)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(ear)
    assert os.WTERMSIG(status) == signal.SIGKILL, f"the victim ended by itself: {status}"


def main(folder: Path, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    (folder / "sub").mkdir()
    (folder / "sub/file.txt").write_bytes(content(0))
    litter = 0
    for _ in range(rounds):
        kill_once(folder, chance.random() * 0.02)
        assert is_whole((folder / "sub/file.txt").read_bytes()), "a torn file"
        litter += remove_litter(Workspace(folder))
        assert os.listdir(folder / "sub") == ["file.txt"], "litter is left"
    print(f"{rounds} kills, no torn file; {litter} temporary files were found and taken away")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
