"""Files replaced whole or not at all: a temporary file in the same folder, synced, then renamed over the old one.

Here live the two halves of a write. `prepare` may take its time, in a thread; `commit` decides, in one step of
the Trio thread without a checkpoint, so that a call which is reported as aborted has changed nothing, and one that
changed something is reported as done (test_stress_of_parallel_edits).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import stat
from types import TracebackType
from typing import Final

from ._walk import walk
from ._workspace import PathError, Place, Workspace, kind_of, open_file

_PREFIX: Final = ".trio-agent-"
TEMPORARY: Final = re.compile(r"\.trio-agent-[0-9a-f]{16}\.tmp")


class ChangedError(ValueError):
    """Somebody else has changed a file. The text is for the model."""


def digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def read_whole(place: Place, limit: int) -> bytes | None:
    """All bytes of a file; None where there is none. Raises `PathError` for what is none or too large, `OSError`."""
    try:
        descriptor = open_file(place)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise PathError(f"{place.shown!r} has more than {limit} bytes, which is too large to be edited or replaced")
    return data


class Replacement:
    """A file's new content, ready under a temporary name. Commit it, or leave the block and it is gone."""

    def __init__(self, place: Place, data: bytes) -> None:
        self._place = place
        # A descriptor of its own: the walk that led here may be over when this is committed.
        self._folder = os.dup(place.folder)
        self._name = f"{_PREFIX}{secrets.token_hex(8)}.tmp"
        self._descriptor = -1
        try:
            self._old = place.status()
            if self._old is not None:
                _refuse_what_cannot_be_kept(place, self._old)
            self._write(data)
        except BaseException:
            self.close()
            raise

    def _write(self, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self._name, flags, 0o666, dir_fd=self._folder)
        # Says that its writer lives: `remove_litter` takes what nobody holds.
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]
        if self._old is not None:
            _keep(self._descriptor, self._old, self._place)
        os.fsync(self._descriptor)

    @property
    def links(self) -> int:
        """How many names the old file has."""
        return 1 if self._old is None else self._old.st_nlink

    def commit(self) -> None:
        """Put the new content in the old one's place, durably. No checkpoint; blocks for the disk.

        Raises `ChangedError` where the file is not the one that was there at first, and `OSError`.
        """
        now = self._place._replace(folder=self._folder).status()
        if _identity(now) != _identity(self._old):
            raise ChangedError(f"{self._place.shown!r} was changed by somebody else meanwhile; read it again")
        os.rename(self._name, self._place.name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        os.close(self._descriptor)
        self._descriptor = -1
        with contextlib.suppress(OSError):  # it is there; some file systems cannot sync a folder
            os.fsync(self._folder)

    def close(self) -> None:
        """Take away what was not committed."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.unlink(self._name, dir_fd=self._folder)
            os.close(self._descriptor)
            self._descriptor = -1
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def __enter__(self) -> Replacement:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _identity(status: os.stat_result | None) -> tuple[int, ...] | None:
    if status is None:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode


def _refuse_what_cannot_be_kept(place: Place, old: os.stat_result) -> None:
    if not stat.S_ISREG(old.st_mode):
        raise PathError(f"{place.shown!r} is a {kind_of(old.st_mode)}, which is not read or written")
    if not old.st_mode & 0o222:
        raise PathError(f"{place.shown!r} is read-only (mode {stat.S_IMODE(old.st_mode):o}); it was left alone")


def _keep(descriptor: int, old: os.stat_result, place: Place) -> None:
    """Give the new file the owner, mode and extended attributes of the old one."""
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(descriptor, old.st_uid, old.st_gid)
        except PermissionError:
            raise PathError(f"{place.shown!r} belongs to another user; replacing it would change its owner") from None
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))  # after chown, which clears set-user-id bits
    if hasattr(os, "listxattr"):
        _copy_attributes(open_file(place), descriptor)


def _copy_attributes(source: int, target: int) -> None:
    try:
        with contextlib.suppress(OSError):  # a file system without them, or one that refuses some
            for name in os.listxattr(source):
                with contextlib.suppress(OSError):
                    os.setxattr(target, name, os.getxattr(source, name))
    finally:
        os.close(source)


def remove_litter(workspace: Workspace) -> int:
    """Take away the temporary files of writers that were killed; how many there were. Blocks."""
    removed = 0
    for found in walk(Place(workspace.descriptor, ".", ".")):
        if found.is_file and TEMPORARY.fullmatch(found.name) and _is_orphan(found.folder, found.name):
            with contextlib.suppress(OSError):
                os.unlink(found.name, dir_fd=found.folder)
                removed += 1
    return removed


def _is_orphan(folder: int, name: str) -> bool:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
