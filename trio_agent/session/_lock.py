"""One writer per session file, also across processes, and who it is.

Here lives the lock beside the file. It goes with its process, however that ends.
"""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any, Protocol

from ._errors import SessionLockedError


class Lock(Protocol):
    """What of filelock's locks is used here."""

    def release(self, force: bool = False) -> None: ...


def lock_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def lock_session(path: Path) -> Lock:
    """Lock the file at a resolved path, at once. Raises `SessionLockedError` that names the holder, and `OSError`."""
    try:
        import filelock
    except ModuleNotFoundError as error:
        if error.name != "filelock":
            raise
        text = "filelock is not installed; it comes with the extra `session`: pip install 'trio-agent[session]'"
        raise ModuleNotFoundError(text, name="filelock") from None
    place = lock_path(path)
    # `on_acquired` writes through the locked descriptor: nobody else's words are overwritten.
    lock = filelock.FileLock(place, timeout=0, thread_local=False, on_acquired=_sign)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise SessionLockedError(
            f"{path} is being written by {_holder(place)}; end that one, or go on from a fork of the session"
        ) from None
    return lock


def _sign(descriptor: int) -> None:
    words = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S %z")}
    os.ftruncate(descriptor, 0)
    os.write(descriptor, json.dumps(words).encode())


def _holder(place: Path) -> str:
    try:
        said: Any = json.loads(place.read_text("utf-8"))
        where = "" if said["host"] == socket.gethostname() else f" on {said['host']}"
        own = " (this process)" if said["pid"] == os.getpid() and not where else ""
        return f"process {said['pid']}{own}{where}, since {said['since']}"
    except (OSError, ValueError, LookupError, TypeError):  # it is about to sign, or a system that locks reading too
        return "another process"
