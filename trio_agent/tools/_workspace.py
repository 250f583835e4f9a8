"""The one folder that tools may touch, held by its descriptor: whatever a path says, it leads nowhere else.

Here lives the walk from the workspace to a file. Each step is opened relative to the directory before it and follows
no link by itself: links are read and walked the same way, and `..` goes back along descriptors that are held already.
So nothing that is swapped in between check and use leads outside.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Generator
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

WorkspacePath: TypeAlias = "str | os.PathLike[str] | Workspace"

_LONGEST: Final = 4096
_LINKS: Final = 40
FOLDER: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | os.O_CLOEXEC


class PathError(ValueError):
    """A path that the tools do not follow. The text is for the model."""


class Place(NamedTuple):
    """Where a file is or would be: the descriptor of its folder, its name there, and how that reads."""

    folder: int
    name: str
    shown: str

    def status(self) -> os.stat_result | None:
        """What is there, links not followed; None for nothing."""
        try:
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None


class Workspace:
    """A folder that tools are confined to, and what they have seen of its files.

    Made once and given to several tools, it lets the writers notice files that changed since they were read. Holds a
    descriptor until it is collected. Raises `OSError` for what is no folder, `RuntimeError` on systems that cannot
    open files relative to a folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.descriptor = -1
        if os.open not in os.supports_dir_fd:
            raise RuntimeError("trio_agent.tools needs a system that opens files relative to a folder, such as Linux")
        self.path: Final = Path(os.path.realpath(path))
        self._given = os.path.abspath(path)
        self.seen: Final[dict[str, bytes]] = {}
        self.descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)

    def __repr__(self) -> str:
        return f"Workspace({str(self.path)!r})"

    def lock_path(self, path: str) -> str:
        """The path as the kernel's file locks take it: relative to the workspace, not to the working directory."""
        return os.path.join(self.path, path)

    @contextlib.contextmanager
    def place(self, path: str, *, make_folders: bool = False) -> Generator[Place]:
        """Walk to where a path leads, links followed within the workspace; the file itself need not exist.

        `.` is the workspace itself, as the name `.` in it. Raises `PathError`, and `OSError` for what is on the way.
        """
        walk = _Walk(self, path, make_folders)
        try:
            yield walk.to(self._parts(path))
        finally:
            walk.close()

    def _parts(self, path: str) -> list[str]:
        _check(path)
        if not path.startswith("/"):
            return path.split("/")
        inside = self.within(path)
        if inside is None:
            raise PathError(f"{path!r} lies outside of the workspace; give a path relative to it")
        return inside.split("/")

    def within(self, path: str) -> str | None:
        """An absolute path relative to the workspace, by its spelling; None for one that begins elsewhere."""
        for root in (str(self.path), self._given):
            if path == root:
                return "."
            prefix = root if root.endswith("/") else root + "/"
            if path.startswith(prefix):
                return path[len(prefix) :]
        return None


def as_workspace(workspace: WorkspacePath) -> Workspace:
    return workspace if isinstance(workspace, Workspace) else Workspace(workspace)


def _check(path: str) -> None:
    if not path:
        raise PathError("the path is empty; `.` is the workspace itself")
    if "\0" in path:
        raise PathError("the path contains a NUL character, which no file name can")
    if path.startswith("~"):
        raise PathError(f"{path[:80]!r}: `~` is not expanded; give a path relative to the workspace")
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        raise PathError("the path contains characters that no file name can") from None
    if len(encoded) > _LONGEST:
        raise PathError(f"the path is {len(encoded)} bytes long; {_LONGEST} is the most that can be opened")
    if any(len(part) > 255 for part in encoded.split(b"/")):
        raise PathError("a name in the path is longer than 255 bytes, which is the most that a file name can be")


class _Walk:
    """One walk. Holds a descriptor for each folder on the way, for `..`, until it is closed."""

    def __init__(self, workspace: Workspace, path: str, make_folders: bool) -> None:
        self._workspace = workspace
        self._path = path
        self._make = make_folders
        self._folders: list[tuple[int, str]] = []
        self._links = 0

    def close(self) -> None:
        for descriptor, _ in self._folders:
            os.close(descriptor)
        self._folders.clear()

    def to(self, parts: list[str]) -> Place:
        ahead = parts[::-1]
        while ahead:
            part = ahead.pop()
            is_last = not any(rest not in ("", ".") for rest in ahead)
            must_be_folder = is_last and bool(ahead)  # a trailing slash
            if part in ("", "."):
                continue
            if part == "..":
                self._back()
                continue
            link = self._link(part)
            if link is not None:
                ahead += self._followed(link)
            elif is_last and not must_be_folder:
                return self._here(part)
            else:
                self._enter(part)
        return self._here(".")

    @property
    def _folder(self) -> int:
        return self._folders[-1][0] if self._folders else self._workspace.descriptor

    def _here(self, name: str) -> Place:
        shown = "/".join([folder for _, folder in self._folders] + ([] if name == "." else [name]))
        return Place(self._folder, name, shown or ".")

    def _back(self) -> None:
        if not self._folders:
            raise self._outside()
        os.close(self._folders.pop()[0])

    def _link(self, name: str) -> str | None:
        """Where a link leads; None for anything else, and for nothing."""
        try:
            return os.readlink(name, dir_fd=self._folder)
        except OSError:
            return None

    def _followed(self, target: str) -> list[str]:
        self._links += 1
        if self._links > _LINKS:
            raise PathError(f"{self._path!r} leads through more than {_LINKS} symbolic links")
        if target.startswith("/"):
            inside = self._workspace.within(target)
            if inside is None:
                raise self._outside()
            self.close()
            target = inside
        return target.split("/")[::-1]

    def _enter(self, name: str) -> None:
        try:
            descriptor = os.open(name, FOLDER, dir_fd=self._folder)
        except FileNotFoundError:
            if not self._make:
                raise FileNotFoundError(f"{self._path!r}: there is no {name!r} in {self._here('.').shown!r}") from None
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=self._folder)
            descriptor = os.open(name, FOLDER, dir_fd=self._folder)
        except NotADirectoryError:
            raise NotADirectoryError(f"{self._path!r}: {self._here(name).shown!r} is no folder") from None
        self._folders.append((descriptor, name))

    def _outside(self) -> PathError:
        return PathError(f"{self._path!r} leads outside of the workspace; give a path that stays in it")


def open_file(place: Place) -> int:
    """A descriptor to read a regular file. Raises `PathError` for folders, devices and pipes, in words for the model.

    Looks before it opens, as opening a device may do something, and again afterwards.
    """
    status = place.status()
    if status is None:
        raise FileNotFoundError(f"there is no file {place.shown!r}")
    _refuse_unless_file(place.shown, status)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(place.name, flags, dir_fd=place.folder)
    try:
        _refuse_unless_file(place.shown, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_unless_file(shown: str, status: os.stat_result) -> None:
    kind = kind_of(status.st_mode)
    if kind == "folder":
        raise PathError(f"{shown!r} is a folder; list_dir shows what is in it")
    if kind != "file":
        raise PathError(f"{shown!r} is a {kind}, which is not read or written")


def kind_of(mode: int) -> str:
    """What something is, in a word."""
    for test, kind in _KINDS:
        if test(mode):
            return kind
    return "special file"


_KINDS: Final = (
    (stat.S_ISREG, "file"),
    (stat.S_ISDIR, "folder"),
    (stat.S_ISLNK, "symbolic link"),
    (stat.S_ISFIFO, "named pipe"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISCHR, "device"),
    (stat.S_ISBLK, "device"),
)
