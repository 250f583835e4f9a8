"""The tools that look around: `list_dir`, `find_files`, `grep`.

Here lives what the model is told. The walk is in `_workspace.py`; the search in texts runs in a process of its own,
which can be ended whatever the pattern does, and what it claims to have found is read again before it is shown.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import trio

from .. import Tool, tool
from ._text import detect
from ._walk import walk
from ._workspace import Place, Workspace, WorkspacePath, as_workspace, kind_of, open_file
from ._writing import TEMPORARY

_LISTED: Final = 500
_FOUND: Final = 500
_MATCHES: Final = 200
_LINE_SHOWN: Final = 300
_SKIPPED: Final = frozenset({".git", "node_modules", "__pycache__", ".venv"})
_SEARCHER: Final = Path(__file__).with_name("_searcher.py")
_OUTPUT: Final = 8 * 1024 * 1024  # bytes of what a search says
_CONFIRMED: Final = 16 * 1024 * 1024

_HAS_PROC: Final = os.path.exists("/proc/self/fd")

_FOLDER_PATH: Final = "where the folder is, relative to the workspace"


def list_dir(workspace: WorkspacePath) -> Tool:
    """A tool that lists a folder."""
    space = as_workspace(workspace)

    def list_dir(
        path: Annotated[str, _FOLDER_PATH] = ".",
        offset: Annotated[int, "the entry to begin with, counted from 1"] = 1,
    ) -> str:
        """List what is in a folder: folders end in a slash, links show where they lead."""
        if offset < 1:
            raise ValueError("offset counts from 1")
        with space.place(path) as place:
            entries = _listed(place)
        if offset > 1 and offset > len(entries):
            raise ValueError(f"the folder has fewer than {offset} entries")
        shown = entries[offset - 1 :][:_LISTED]
        left = len(entries) - (offset - 1) - len(shown)
        more = f"\n[{left} entries are left; go on with offset {offset + len(shown)}]" if left > 0 else ""
        return "\n".join(shown) + more or "(the folder is empty)"

    return tool(list_dir)


def _listed(place: Place) -> list[str]:
    try:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        folder = os.open(place.name, flags, dir_fd=place.folder)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no folder {place.shown!r}") from None
    except NotADirectoryError:
        raise NotADirectoryError(f"{place.shown!r} is no folder; read_file reads it") from None
    try:
        return [_entry(folder, name) for name in sorted(os.listdir(folder)) if not TEMPORARY.fullmatch(name)]
    finally:
        os.close(folder)


def _entry(folder: int, name: str) -> str:
    shown = name.encode(errors="surrogateescape").decode(errors="backslashreplace").replace("\n", "\\n")
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            return f"{shown}/"
        if stat.S_ISREG(status.st_mode):
            return f"{shown} ({status.st_size} bytes)"
        if stat.S_ISLNK(status.st_mode):
            return f"{shown} -> {os.readlink(name, dir_fd=folder)}"
        return f"{shown} ({kind_of(status.st_mode)})"
    except OSError:  # gone since, or not to be looked at
        return shown


def find_files(workspace: WorkspacePath) -> Tool:
    """A tool that finds files by their names."""
    space = as_workspace(workspace)

    def find_files(
        pattern: Annotated[str, "such as `*.py` (in any folder) or `src/**/test_*.py`; `**` is any number of folders"],
        path: Annotated[str, _FOLDER_PATH] = ".",
    ) -> str:
        """Find files by name. Folders of version control and of generated files are left out."""
        found = list(_found(space, path, pattern))
        shown = found[:_FOUND]
        more = "\n[there are more; give a narrower pattern or path]" if len(found) > _FOUND else ""
        return "\n".join(shown) + more or "(no file has such a name)"

    return tool(find_files)


def _found(space: Workspace, path: str, pattern: str) -> Iterator[str]:
    matches = re.compile(translated(pattern)).fullmatch
    count = 0
    with space.place(path) as place:
        prefix = "" if place.shown == "." else f"{place.shown}/"
        for entry in walk(place, _SKIPPED):
            if not entry.is_folder and matches(entry.path) and not TEMPORARY.fullmatch(entry.name):
                yield prefix + entry.path
                count += 1
                if count > _FOUND:
                    return


def translated(pattern: str) -> str:
    """A pattern for paths as a regular expression. Without a slash it is for names in any folder."""
    if "/" not in pattern:
        pattern = f"**/{pattern}"
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^]/]+\])", pattern.removeprefix("./"))
    return "".join([_PATTERNS.get(part) or _class(part) or re.escape(part) for part in parts])


_PATTERNS: Final = {"**/": "(?:[^/]*/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def _class(part: str) -> str | None:
    if not (part.startswith("[") and part.endswith("]")):
        return None
    inner = part[1:-1].replace("\\", "\\\\").replace("[", "\\[")
    return f"[^/{inner[1:]}]" if inner[0] in "!^" and len(inner) > 1 else f"[{inner}]"


def grep(workspace: WorkspacePath) -> Tool:
    """A tool that finds lines by what is in them: with ripgrep where it is installed, else with Python's own `re`."""
    space = as_workspace(workspace)

    @trio.lowlevel.enable_ki_protection
    async def grep(
        pattern: Annotated[str, "a regular expression"],
        path: Annotated[str, "the folder or file to search in, relative to the workspace"] = ".",
        glob: Annotated[str | None, "only files of such names, such as `*.py`"] = None,
        ignore_case: bool = False,
    ) -> str:
        """Find the lines of text files that match a regular expression. Links are not followed."""
        return await _grep(space, path, [pattern, glob or "", "i" if ignore_case else ""])

    return tool(timeout=60)(grep)


async def _grep(space: Workspace, path: str, what: list[str]) -> str:
    with space.place(path) as place:
        status = place.status()
        if status is None:
            raise FileNotFoundError(f"there is nothing at {place.shown!r}")
        if not stat.S_ISDIR(status.st_mode):
            os.close(open_file(place))  # or say why not
        output, is_whole = await _searched(space, place, what)
        above = place.shown.removesuffix(place.name) if place.name != "." else f"{place.shown}/"
    lines = await trio.to_thread.run_sync(lambda: list(islice(_confirmed(space, above, output), _MATCHES + 1)))
    if not lines:
        return "(no line matches)" if is_whole else "(too much was found to be shown; give a narrower pattern)"
    more = f"\n[there are more; only the first {len(lines[:_MATCHES])} are shown]"
    return "\n".join(lines[:_MATCHES]) + (more if len(lines) > _MATCHES or not is_whole else "")


async def _searched(space: Workspace, place: Place, what: list[str]) -> tuple[bytes, bool]:
    """What the search process says, and whether that is all. It begins in the folder that we hold open."""
    process = await trio.lowlevel.open_process(
        _command(place.name, *what),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=f"/proc/self/fd/{place.folder}" if _HAS_PROC else space.path / os.path.dirname(place.shown),
        env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors = bytearray(), bytearray()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_read_bounded, process.stdout, output, process)
            nursery.start_soon(_read_bounded, process.stderr, errors, process)
        await process.wait()
    finally:
        process.kill()
        with trio.move_on_after(5, shield=True):
            await process.wait()
            await process.stdout.aclose()
            await process.stderr.aclose()
    if not output and errors:
        raise ValueError(errors.decode(errors="replace").strip()[:1000])
    return bytes(output), len(output) < _OUTPUT


@trio.lowlevel.enable_ki_protection
async def _read_bounded(stream: Any, into: bytearray, process: trio.Process) -> None:
    async for piece in stream:
        into += piece
        if len(into) >= _OUTPUT:
            process.kill()
            return


def _command(name: str, pattern: str, glob: str, flags: str) -> list[str]:
    ripgrep = shutil.which("rg")
    target = name if name == "." else f"./{name}"
    if ripgrep is None:
        match = translated(glob) if glob else ""
        return [sys.executable, "-I", str(_SEARCHER), pattern, match, flags, target, *sorted(_SKIPPED)]
    options = ["--json", "--no-config", "--no-ignore", "--hidden", "--sort=path", f"--max-count={_MATCHES + 1}"]
    options += [f"--glob={glob}"] if glob else []
    options += [f"--glob=!{skipped}" for skipped in sorted(_SKIPPED)]
    options += ["--ignore-case"] if "i" in flags else []
    return [ripgrep, *options, f"--regexp={pattern}", "--", target]


def _confirmed(space: Workspace, above: str, output: bytes) -> Iterator[str]:
    """What was found, each line read again on a way that cannot be led outside: a link may have come meanwhile."""
    for said in output.split(b"\n")[:-1]:
        found: Any = json.loads(said)
        if found["type"] != "match":
            continue
        data = found["data"]
        path = os.path.normpath(above + os.fsdecode(_bytes_of(data["path"])))
        line = _bytes_of(data["lines"])
        if _is_there(space, path, line, data["absolute_offset"]):
            words = line.decode(errors="backslashreplace").rstrip("\r\n")
            cut = words[:_LINE_SHOWN] + ("…" if len(words) > _LINE_SHOWN else "")
            yield f"{path}:{data['line_number']}: {cut}"


def _bytes_of(said: dict[str, str]) -> bytes:
    return base64.b64decode(said["bytes"]) if "bytes" in said else said["text"].encode()


def _is_there(space: Workspace, path: str, line: bytes, offset: int) -> bool:
    try:
        with space.place(path) as place, open(open_file(place), "rb") as file:
            if os.pread(file.fileno(), len(line), offset) == line:
                return True
            data = file.read(_CONFIRMED)  # perhaps text in another encoding, which the search has seen as UTF-8
            return line.decode() in detect(data).decode(data)
    except (OSError, ValueError):
        return False
