"""The tools that read and write one file: `read_file`, `write_file`, `edit_file`.

Here lives what the model is told. How a path is followed is in `_workspace.py`, how a file is replaced in
`_writing.py`, what an edit means in `_edits.py`.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Annotated, Any, Final

import attrs
import trio

from .. import Image, Tool, ToolResult, tool
from ._edits import Edit, EditError, apply_edits, diff
from ._text import UTF8, BinaryError, Format, detect, image_type, is_all_crlf, lf
from ._workspace import Place, Workspace, WorkspacePath, as_workspace, open_file
from ._writing import ChangedError, Replacement, digest, read_whole

_EDITABLE: Final = 16 * 1024 * 1024  # bytes
_SHOWN: Final = 50_000  # characters at once
_PIECE: Final = 1_000_000  # characters of a line that are held at once
_LARGEST_IMAGE: Final = 5 * 1024 * 1024  # what services take
_SAMPLE: Final = 65_536

_PATH: Final = "where the file is, relative to the workspace"


def read_file(workspace: WorkspacePath) -> Tool:
    """A tool that reads text in pieces, and images as images."""
    space = as_workspace(workspace)

    def read_file(
        path: Annotated[str, _PATH],
        offset: Annotated[int, "the line to begin with, counted from 1"] = 1,
        limit: Annotated[int, "how many lines at most"] = 2000,
        column: Annotated[int, "the character of that line to begin with, counted from 1"] = 1,
    ) -> Any:
        """Read a text file, or look at an image. Of a long file a part is shown, with how to go on."""
        if offset < 1 or limit < 1 or column < 1:
            raise ValueError("offset, limit and column count from 1")
        with space.place(path) as place, open(open_file(place), "rb") as file:
            return _shown(space, place, file, (offset, limit, column))

    return tool(read_file)


def _shown(space: Workspace, place: Place, file: io.BufferedReader, part: tuple[int, int, int]) -> Any:
    size = os.fstat(file.fileno()).st_size
    sample = file.read(_SAMPLE)
    kind = image_type(sample)
    if kind is not None:
        if size > _LARGEST_IMAGE:
            raise ValueError(f"{place.shown!r} is an image of {size} bytes; {_LARGEST_IMAGE} is the most to look at")
        return [f"{place.shown}: {kind}, {size} bytes", Image(sample + file.read(_LARGEST_IMAGE), kind)]
    whole = sample + file.read(_EDITABLE - len(sample)) if size <= _EDITABLE else None
    try:
        form = detect(sample if whole is None else whole)
    except BinaryError as error:
        raise BinaryError(f"{place.shown!r} ({size} bytes) is no text: {error}") from None
    if whole is not None:
        space.seen[place.shown] = digest(whole)
    source: Any = file if whole is None else io.BytesIO(whole)
    source.seek(len(form.mark))
    with io.TextIOWrapper(source, form.encoding, errors="replace", newline="\n") as text:
        shown = _part(text, *part, count=whole is not None)
    note = "" if form.encoding in ("utf-8", "ascii") else f"[the file is {form.name}]\n"
    return note + shown


def _part(text: io.TextIOWrapper, offset: int, limit: int, column: int, *, count: bool) -> str:
    """Some lines of a text, and how to go on. `count`: say also how many lines there are."""
    line = _skip_to(text, offset)
    if line is None and offset > 1:
        raise ValueError(f"the file has fewer than {offset} lines")
    pieces: list[str] = []
    room = _SHOWN
    number = offset
    while line is not None and number < offset + limit:
        start = column - 1 if number == offset else 0
        if len(line) - start > room or start >= len(line) or not _is_whole(line):
            if pieces:
                break
            return _part_of_line(text, line, number, start)
        pieces.append(line[start:])
        room -= len(line) - start
        number += 1
        line = _line(text)
    shown = lf("".join(pieces))
    if line is None:
        return shown or "(the file is empty)"
    left = f", {_lines_left(text)} lines are left" if count else ""
    gap = "" if shown.endswith("\n") else "\n"
    return f"{shown}{gap}[lines {offset} to {number - 1}{left}; go on with offset {number}]"


def _line(text: io.TextIOWrapper) -> str | None:
    """The next line, or so much of it that the rest cannot be shown at once; None at the end."""
    return text.readline(_PIECE) or None


def _is_whole(line: str) -> bool:
    return line.endswith("\n") or len(line) < _PIECE


def _skip_to(text: io.TextIOWrapper, offset: int) -> str | None:
    line = _line(text)
    for _ in range(offset - 1):
        while line is not None and not line.endswith("\n"):
            line = _line(text)
        line = _line(text) if line is not None else None
    return line


def _part_of_line(text: io.TextIOWrapper, line: str, number: int, start: int) -> str:
    """A piece of a line that is too long, wherever in it."""
    passed = 0
    while len(line) <= start - passed and not _is_whole(line):
        passed += len(line)
        line = _line(text) or ""
    piece = (line + ("" if _is_whole(line) else text.readline(_SHOWN)))[start - passed :]
    if len(piece) <= _SHOWN:
        more = f"[go on with offset {number + 1}]" if piece.endswith("\n") and text.read(1) else ""
        return piece + more or f"(line {number} has fewer than {start + 1} characters)"
    piece = piece[:_SHOWN]
    after = start + len(piece) + 1
    return f"{piece}\n[a part of line {number}, which is long; go on with offset {number}, column {after}]"


def _lines_left(text: io.TextIOWrapper) -> int:
    left, last = 1, "\n"
    while piece := text.read(1 << 16):
        left += piece.count("\n")
        last = piece
    return left if last.endswith("\n") else left + 1


# Writing


@attrs.frozen
class _Written:
    """A replacement that is ready, and what to say of it once it is committed."""

    replacement: Replacement
    shown: str
    new: bytes
    words: str
    diff: str


def write_file(workspace: WorkspacePath) -> Tool:
    """A tool that makes a file or replaces a whole one."""
    space = as_workspace(workspace)

    @trio.lowlevel.enable_ki_protection
    async def write_file(
        path: Annotated[str, _PATH],
        content: Annotated[str, "the whole new text of the file"],
    ) -> ToolResult:
        """Make a text file, with the folders on the way, or replace a whole one. To change a part, use edit_file."""
        return await _write(space, lambda: _prepared_write(space, path, content))

    return tool(writes=lambda given: space.lock_path(given["path"]))(write_file)


def edit_file(workspace: WorkspacePath) -> Tool:
    """A tool that makes several replacements in a file, all or none."""
    space = as_workspace(workspace)

    @trio.lowlevel.enable_ki_protection
    async def edit_file(
        path: Annotated[str, _PATH],
        edits: Annotated[
            list[Edit],
            "replacements, all searched for in the file as it is now: old_text exactly as it stands there, found once "
            "(or with replace_all any number of times), and the new_text for it",
        ],
    ) -> ToolResult:
        """Change parts of a text file: several replacements at once, all of them or none."""
        return await _write(space, lambda: _prepared_edit(space, path, edits))

    return tool(writes=lambda given: space.lock_path(given["path"]))(edit_file)


async def _write(space: Workspace, prepare: Callable[[], _Written]) -> ToolResult:
    """Prepare in a thread, then commit and answer in one step: an abort comes before both or behind both."""
    written = await trio.to_thread.run_sync(prepare)
    with written.replacement as replacement:
        await trio.lowlevel.checkpoint_if_cancelled()
        replacement.commit()
    space.seen[written.shown] = digest(written.new)
    return ToolResult(written.words, {"path": written.shown, "diff": written.diff})


def _prepared_write(space: Workspace, path: str, content: str) -> _Written:
    with space.place(path, make_folders=True) as place:
        old = read_whole(place, _EDITABLE)
        _refuse_stale(space, place, old)
        form, before = _as_far_as_text(old)
        text = content
        if before is not None and is_all_crlf(before):
            text = lf(content).replace("\n", "\r\n")
        new = form.encode(text.removeprefix("\ufeff") if form.mark else text)
        replacement = Replacement(place, new)
        verb = "made" if old is None else "replaced"
        words = f"{verb} {place.shown} ({len(new)} bytes){_about_links(replacement)}"
        return _Written(replacement, place.shown, new, words, diff(before or "", text, place.shown))


def _as_far_as_text(old: bytes | None) -> tuple[Format, str | None]:
    """The form of a file that is replaced, and its text; what is no text is replaced by UTF-8."""
    if old is None:
        return UTF8, None
    try:
        form = detect(old)
        return form, form.decode(old)
    except ValueError:
        return UTF8, None


def _prepared_edit(space: Workspace, path: str, edits: list[Edit]) -> _Written:
    with space.place(path) as place:
        old = read_whole(place, _EDITABLE)
        if old is None:
            raise FileNotFoundError(f"there is no file {place.shown!r}; write_file makes one")
        _refuse_stale(space, place, old)
        form, before = _exact_text(place, old)
        try:
            after = apply_edits(before, edits)
        except EditError as error:
            raise EditError(f"{place.shown} was not changed: {error}") from None
        new = form.encode(after)
        replacement = Replacement(place, new)
        count = f"{len(edits)} edits" if len(edits) != 1 else "1 edit"
        words = f"made {count} in {place.shown}{_about_links(replacement)}"
        return _Written(replacement, place.shown, new, words, diff(before, after, place.shown))


def _exact_text(place: Place, data: bytes) -> tuple[Format, str]:
    """The text of a file, which its form gives back byte for byte."""
    try:
        form = detect(data)
        text = form.decode(data)
    except ValueError as error:
        raise BinaryError(f"{place.shown!r} cannot be edited as text: {error}") from None
    if form.encode(text) != data:
        raise BinaryError(f"{place.shown!r} cannot be edited as {form.name}: bytes that are not touched would change")
    return form, text


def _refuse_stale(space: Workspace, place: Place, now: bytes | None) -> None:
    seen = space.seen.get(place.shown)
    if seen is not None and (now is None or digest(now) != seen):
        raise ChangedError(f"{place.shown!r} has changed since it was read or written here; read it again")


def _about_links(replacement: Replacement) -> str:
    more = replacement.links - 1
    return f"; {more} other names of the same file (hard links) still have the old content" if more > 0 else ""
