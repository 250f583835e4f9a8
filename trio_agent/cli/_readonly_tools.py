"""The tools that the command line brings: `list_dir` and `read_file`, which change nothing and leave one folder alone.

Here lives their confinement too: a path is resolved, symbolic links and `..` included, and must lie in the workspace.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from .._tools import Tool

_LISTED: Final = 500  # entries of a folder
_CHOICES: Final = 400  # paths that a schema lists
_SKIPPED: Final = frozenset({"__pycache__", "node_modules"})


def read_only_tools(workspace: Path, *, limit: int = 24_000, list_choices: bool = False) -> tuple[Tool, ...]:
    """The two tools, confined to a folder. `limit` is in characters: `read_file` gives at most so many at once.

    With `list_choices` the schemas list the paths that there are, for a model that would make up others.
    """
    root = Path(os.path.realpath(workspace))
    folders, files = _choices(root) if list_choices else ([], [])

    def list_dir(arguments: dict[str, Any]) -> str:
        return _list_dir(root, arguments["path"])

    def read_file(arguments: dict[str, Any]) -> str:
        return _read_file(root, arguments["path"], arguments.get("first_line", 1), limit)

    return (
        Tool(
            name="list_dir",
            description="List the files in a folder.",
            parameters=_parameters(path=_path("where the folder is, relative to the workspace", folders)),
            execute=list_dir,
        ),
        Tool(
            name="read_file",
            description="Read a text file.",
            parameters=_parameters(
                path=_path("where the file is, relative to the workspace", files),
                first_line={"type": "integer", "minimum": 1, "description": "the line to begin with; 1 by default"},
            ),
            execute=read_file,
        ),
    )


def _parameters(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": ["path"], "additionalProperties": False}


def _path(description: str, choices: list[str]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "description": description}
    return {**schema, "enum": choices} if choices else schema


def _inside(root: Path, path: str) -> Path:
    """The real place of a path. Raises `ValueError` for one outside of the workspace."""
    try:
        real = Path(os.path.realpath(root / path))
    except ValueError as error:  # a NUL in it
        raise ValueError(f"{path!r} is no path: {error}") from None
    if not real.is_relative_to(root):
        raise ValueError(f"{path!r} lies outside of the workspace; give a path relative to it")
    return real


def _list_dir(root: Path, path: str) -> str:
    with os.scandir(_inside(root, path)) as entries:
        names = sorted([f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries])
    if len(names) > _LISTED:
        names[_LISTED:] = [f"… and {len(names) - _LISTED} more"]
    return "\n".join(names) or "(the folder is empty)"


def _read_file(root: Path, path: str, first_line: int, limit: int) -> str:
    def open_regular(real: str, flags: int) -> int:
        # Not to be led elsewhere by a link that came meanwhile, and not to wait for who would write to a named pipe.
        descriptor = os.open(real, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise ValueError(f"{path!r} is no file; list_dir shows what is in a folder")
        return descriptor

    with open(_inside(root, path), encoding="utf-8", errors="replace", newline="", opener=open_regular) as file:
        skipped = all(_skip_line(file, limit) for _ in range(first_line - 1))
        text = file.read(limit + 1) if skipped else ""
    if not text and first_line > 1:
        raise ValueError(f"{path!r} has no line {first_line}")
    if "\0" in text:
        raise ValueError(f"{path!r} is no text file")
    return text if len(text) <= limit else _cut(text[:limit], first_line)


def _skip_line(file: Any, limit: int) -> bool:
    """Read on to the next line, in bounded pieces; False at the end of the file."""
    piece = file.readline(limit)
    while piece and not piece.endswith("\n"):
        more = file.readline(limit)
        if not more:
            return False
        piece = more
    return bool(piece)


def _cut(text: str, first_line: int) -> str:
    """What fits, up to the end of a line if there is one, and how to read on."""
    whole, newline, _rest = text.rpartition("\n")
    if not newline:
        return f"{text}\n[cut here; the line is longer than can be shown]"
    following = first_line + len(whole.split("\n"))
    return f"{whole}\n[more follows; read on with first_line {following}]"


def _choices(root: Path) -> tuple[list[str], list[str]]:
    """Folders and files of the workspace, the near ones first, hidden and generated ones left out."""
    folders: list[str] = ["."]
    files: list[str] = []
    for entry in _walk(root):
        kind = folders if entry.is_dir(follow_symlinks=False) else files
        if len(kind) < _CHOICES:
            kind.append(os.path.relpath(entry.path, root))
        if len(folders) >= _CHOICES and len(files) >= _CHOICES:
            break
    return sorted(folders), sorted(files)


def _walk(root: Path) -> Iterator[os.DirEntry[str]]:
    waiting = deque([str(root)])
    for _ in range(_CHOICES):
        if not waiting:
            return
        try:
            with os.scandir(waiting.popleft()) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:  # a folder that may not be looked into offers nothing
            continue
        for entry in entries:
            if entry.name in _SKIPPED or entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                if os.path.exists(os.path.join(entry.path, "pyvenv.cfg")):
                    continue
                waiting.append(entry.path)
                yield entry
            elif entry.is_file(follow_symlinks=False):
                yield entry
