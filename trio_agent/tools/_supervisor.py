"""A program: runs one shell command, and ends everything that it started. Imports nothing of this package.

Here lives what stands between the tool and the shell. On Linux it is the subreaper of all descendants, so that who
left the group or lost its parent is still found. It ends them when the command is over, and when its standard input
is closed: by a time-out, an abort, or the death of the process that started it.

Its output is the command's; on standard error it says in one line of JSON how the command ended.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time

_PR_SET_CHILD_SUBREAPER = 36
_GIVE_UP = 3.0  # seconds after KILL for what cannot be killed, such as a process of another user


def become_subreaper() -> bool:
    """Have orphaned descendants become children of this process. False where the system has no such thing."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    done: int = ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return done == 0


def descendants() -> list[int]:
    """The living processes below this one, by the parents that /proc names."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent = file.read().rpartition(b") ")[2].split()[:2]
            except OSError:
                continue
            if state not in (b"Z", b"X"):
                children.setdefault(int(parent), []).append(int(name))
    found: list[int] = []
    ahead = [os.getpid()]
    while ahead:
        below = children.get(ahead.pop(), [])
        found += below
        ahead += below
    return found


def reap(shell: subprocess.Popen[bytes]) -> None:
    """Collect whatever has ended, the shell through its own object."""
    shell.poll()
    while shell.returncode is not None:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


class Tree:
    """All that the command has started."""

    def __init__(self, shell: subprocess.Popen[bytes], is_whole: bool) -> None:
        self._shell = shell
        self._is_whole = is_whole

    def alive(self) -> int:
        reap(self._shell)
        if self._is_whole:
            return len(descendants())
        try:
            os.killpg(self._shell.pid, 0)
        except OSError:
            return 0
        return 1

    def send(self, number: int) -> None:
        """Signal every process of the tree, those that left the group too."""
        for kill, target in [(os.killpg, self._shell.pid), *[(os.kill, pid) for pid in self._rest()]]:
            try:
                kill(target, number)
            except OSError:  # it is gone, or another user's
                continue

    def _rest(self) -> list[int]:
        return descendants() if self._is_whole else []

    def end(self, grace: float) -> int:
        """TERM, then after `grace` seconds KILL. How many there were; gives up on what cannot be killed."""
        count = self.alive()
        if not count:
            return 0
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)  # what is stopped hears no TERM
        self._wait(grace)
        until = time.monotonic() + _GIVE_UP
        while self.alive() and time.monotonic() < until:
            self.send(signal.SIGKILL)
            self._wait(0.05)
        return count

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        pause = 0.001
        while self.alive() and time.monotonic() < until:
            time.sleep(pause)
            pause = min(pause * 2, 0.02)


def wait_for(shell: subprocess.Popen[bytes]) -> bool:
    """Wait until the shell has ended; False if standard input was closed before."""
    ended, heard = os.pipe()
    os.set_blocking(heard, False)
    signal.set_wakeup_fd(heard)
    while shell.poll() is None:
        ready, _, _ = select.select([0, ended], [], [], 1)
        if 0 in ready and not os.read(0, 64):
            return False
        if ended in ready:
            os.read(ended, 512)
    return True


def main(shell_path: str, command: str, grace: str, leftover_grace: str) -> None:
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    is_whole = become_subreaper()
    shell = subprocess.Popen(
        [shell_path, "-c", command],
        stdin=subprocess.DEVNULL,
        stderr=1,
        start_new_session=True,
    )
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # not before, or the shell would inherit it
        signal.signal(number, signal.SIG_IGN)
    in_time = wait_for(shell)
    code = shell.returncode
    left = Tree(shell, is_whole).end(float(leftover_grace if in_time else grace))
    os.write(2, json.dumps({"code": code if in_time else None, "left": left}).encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
