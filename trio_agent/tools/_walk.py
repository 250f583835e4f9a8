"""Everything under a folder, found on a way that no link leads astray.

Here lives the walk down. The walk to a folder is in `_workspace.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from ._workspace import FOLDER, Place


class Found(NamedTuple):
    """Something under a folder: its path from there, its folder's descriptor, its name, and what it is."""

    path: str
    folder: int
    name: str
    is_folder: bool
    is_file: bool


def walk(place: Place, skipped: frozenset[str] = frozenset()) -> Iterator[Found]:
    """Everything under a folder, by name, links not followed; what may not be looked into is passed over.

    A folder's own entries come before what is in its subfolders. Holds one descriptor for each level.
    """
    root = os.open(place.name, FOLDER, dir_fd=place.folder)
    levels: list[tuple[int, Iterator[Found]]] = []
    try:
        entries = _entries(root, "", skipped)
        levels.append((root, iter([entry for entry in entries if entry.is_folder])))
        yield from entries
        while levels:
            descriptor, folders = levels[-1]
            folder = next(folders, None)
            if folder is None:
                os.close(levels.pop()[0])
                continue
            try:
                inner = os.open(folder.name, FOLDER, dir_fd=descriptor)
            except OSError:
                continue
            entries = _entries(inner, folder.path + "/", skipped)
            levels.append((inner, iter([entry for entry in entries if entry.is_folder])))
            yield from entries
    finally:
        for descriptor, _ in levels:
            os.close(descriptor)


def _entries(descriptor: int, prefix: str, skipped: frozenset[str]) -> list[Found]:
    try:
        with os.scandir(descriptor) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
        return []
    return [
        Found(
            prefix + entry.name,
            descriptor,
            entry.name,
            entry.is_dir(follow_symlinks=False),
            entry.is_file(follow_symlinks=False),
        )
        for entry in entries
        if entry.name not in skipped
    ]
