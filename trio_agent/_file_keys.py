"""Which file does a path mean? The keys that two spellings of one file have in common.

Here lives what a path is worth as a lock's key: links, directories on the way, hard links, letter case, Unicode
forms, files that are not there yet. Nothing here is kept locked, opened, created or changed.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from string import ascii_letters, ascii_lowercase, ascii_uppercase
from typing import NamedTuple, TypeAlias

Key: TypeAlias = str | tuple[int, int] | tuple[int, int, str]
StrPath: TypeAlias = str | os.PathLike[str]

# Whether names in this directory that differ only in letter case are the same name. Given its path and its stat.
IgnoresCase: TypeAlias = Callable[[str, os.stat_result], bool]

# No system call takes a longer path. Resolving one takes time that grows with the square of its length.
_LONGEST_PATH = 32_767 if os.name == "nt" else 4_096
_SWAP_CASE = str.maketrans(ascii_letters, ascii_uppercase + ascii_lowercase)
_ENTRIES_LOOKED_AT = 64
_DIRECTORIES_KEPT = 4_096


class Keys(NamedTuple):
    """The keys of some paths, each with the path it came from.

    `linked` says that some file has several names (hard links), so that another path may have become one of them
    unnoticed.
    """

    by_path: Mapping[Key, str]
    linked: bool


def absolute_path(path: StrPath) -> str:
    """The path as the keys are made of it: absolute, nothing resolved yet. ValueError if it can name no file."""
    text = os.fsdecode(path)
    if not text:
        raise ValueError("the path is empty; name a file")
    if "\0" in text:
        raise ValueError(f"the path {text[:200]!r} contains a NUL character, which no file name can")
    if len(text) > _LONGEST_PATH:
        raise ValueError(f"the path is {len(text)} characters long; {_LONGEST_PATH} is the most that can be opened")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise ValueError(f"the path {text[:200]!r} contains characters that no file name can") from None
    return os.path.join(os.getcwd(), text)


class FileKeys:
    """Finds the keys that the files of some paths have now. Two paths to one file have a key in common.

    Each file has its resolved path, its name within its directory as the disk knows that (which may be spelled
    anyhow, or be mounted twice) and, if it exists, its inode. A symbolic link at the end of a path counts as a file
    of its own as well, since a writer may replace it.

    Limits: names that differ only in Unicode normalisation count as one everywhere. In directories that ignore case,
    Unicode's idea of case counts, which is at least as wide as a file system's. A file below a directory that is made
    only later is not recognised through a second mount.
    """

    def __init__(self, ignores_case: IgnoresCase | None = None) -> None:
        self._ignores_case = CaseProbe() if ignores_case is None else ignores_case
        # Resolving the directory is most of the work. Its inode says whether it is still the same one; were it renamed
        # since, the inode would also do in place of the path.
        self._resolved: dict[str, tuple[os.stat_result, str]] = {}

    def of(self, paths: Iterable[str]) -> Keys:
        """Takes absolute paths. Never raises for what it finds on the disk."""
        by_path: dict[Key, str] = {}
        linked = False
        for path in paths:
            names, status = self._look_up(path)
            by_path.update(dict.fromkeys(names, path))
            if status is not None:
                by_path[status.st_dev, status.st_ino] = path
                linked = linked or (status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode))
        return Keys(by_path, linked)

    def _look_up(self, path: str) -> tuple[list[Key], os.stat_result | None]:
        if os.path.basename(path) in ("", os.curdir, os.pardir):
            path = _resolved(path)
        names = self._names(path)
        try:
            status = os.lstat(path)
        except OSError:
            return names, None
        if not stat.S_ISLNK(status.st_mode):
            return names, status
        return names + self._names(_resolved(path)), _status(path)

    def _names(self, path: str) -> list[Key]:
        """What the entry in a directory that the path ends at is called, whatever is there."""
        directory, rest = os.path.split(path)
        status = _status(directory)
        if status is not None:
            directory = self._resolve(directory, status)
        else:
            directory, rest, status = _nearest_directory(_resolved(path))
        name, rest = _composed(os.path.join(directory, rest)), _composed(rest)
        if status is None:  # pragma: no cover - only a drive that is not there has no directory that is
            return [name]
        if not self._ignores_case(directory, status):
            return [name, (status.st_dev, status.st_ino, rest)]
        # The path without case as well, for directories that a writer may make on the way.
        return [name, _caseless(name), (status.st_dev, status.st_ino, _caseless(rest))]

    def _resolve(self, directory: str, status: os.stat_result) -> str:
        known = self._resolved.get(directory)
        if known is not None and os.path.samestat(known[0], status):
            return known[1]
        if len(self._resolved) >= _DIRECTORIES_KEPT:
            self._resolved.clear()
        resolved = _resolved(directory)
        self._resolved[directory] = status, resolved
        return resolved


def _resolved(path: str) -> str:
    # Not abspath: `link/../x` lies beside the directory that the link leads to.
    try:
        return os.path.realpath(path)
    except (OSError, RecursionError):  # a link that may not be read, a chain of a thousand links: nobody can open it
        return os.path.normpath(path)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _nearest_directory(path: str) -> tuple[str, str, os.stat_result | None]:
    """The last directory on the way that exists, and the way on from there."""
    directory, rest = os.path.split(path)
    while (status := _status(directory)) is None and directory != os.path.dirname(directory):
        directory, leaf = os.path.split(directory)
        rest = os.path.join(leaf, rest)
    return directory, rest, status


def _composed(name: str) -> str:
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def _caseless(name: str) -> str:
    return _composed(name.casefold())


class CaseProbe:
    """Finds out which directories ignore letter case, by looking up what they hold under another case.

    Creates nothing. What a directory's contents told is kept, by its inode. An empty directory is taken to be
    like the one it lies in, and a mount point without entries as the operating system's usual.
    """

    def __init__(self, lstat: Callable[[str], os.stat_result] = os.lstat) -> None:
        self._lstat = lstat
        self._known: dict[tuple[int, int], bool] = {}

    def __call__(self, directory: str, status: os.stat_result) -> bool:
        inode = status.st_dev, status.st_ino
        known = self._known.get(inode)
        if known is None:
            known = self._told_by_entries(directory)
            if known is None:
                return self._told_by_surroundings(directory, status)
            if len(self._known) >= _DIRECTORIES_KEPT:
                self._known.clear()
            self._known[inode] = known
        return known

    def _told_by_entries(self, directory: str) -> bool | None:
        try:
            with os.scandir(directory) as entries:
                answers = (self._is_found_in_other_case(entry.path) for entry in islice(entries, _ENTRIES_LOOKED_AT))
                return next((answer for answer in answers if answer is not None), None)
        except OSError:
            return None

    def _told_by_surroundings(self, directory: str, status: os.stat_result) -> bool:
        above = _status(os.path.dirname(directory))
        if above is not None and above.st_dev == status.st_dev:
            answer = self._is_found_in_other_case(directory)
            if answer is not None:
                return answer
        return sys.platform in ("darwin", "win32")

    def _is_found_in_other_case(self, path: str) -> bool | None:
        """None if this name cannot tell."""
        directory, leaf = os.path.split(path)
        other = leaf.translate(_SWAP_CASE)
        if other == leaf:
            return None
        try:
            here = self._lstat(path)
        except OSError:
            return None
        if here.st_nlink > 1 and not stat.S_ISDIR(here.st_mode):
            return None  # The other case may be a hard link of its own.
        try:
            return os.path.samestat(here, self._lstat(os.path.join(directory, other)))
        except OSError as error:
            return False if error.errno == errno.ENOENT else None
