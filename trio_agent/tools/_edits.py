"""Replacements in a text: several at once, all or none, and in words why not.

Here live plain functions on text. Line ends are looked through when old text is searched for, and what replaces it
takes those of the place. Bytes are in `_text.py`, files in `_writing.py`.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Sequence
from typing import Final, NamedTuple, TypedDict

from ._text import is_all_crlf, lf

_NEAR: Final = 3
_LINES_COMPARED: Final = 20_000
_DIFF_LIMIT: Final = 100_000


class _Edit(TypedDict):
    old_text: str
    new_text: str


class Edit(_Edit, total=False):
    """One replacement. `replace_all`: every occurrence, not just the only one."""

    replace_all: bool


class EditError(ValueError):
    """Why the edits were not made. The text is for the model; nothing was changed."""


class _Span(NamedTuple):
    """A place in the text with LF line ends, and what comes there."""

    start: int
    end: int
    new: str
    edit: int


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """The text with every edit made, each searched for in the text as it was. Raises `EditError`."""
    if not edits:
        raise EditError("there are no edits")
    plain = lf(text)
    spans: list[_Span] = []
    for number, edit in enumerate(edits, 1):
        spans += _spans_of(plain, edit, number, len(edits))
    spans.sort()
    for before, after in itertools.pairwise(spans):
        if after.start < before.end:
            raise EditError(
                f"edits {before.edit} and {after.edit} overlap in line {_line_at(plain, after.start)}; "
                "make one edit of the two"
            )
    return _replaced(text, plain, spans)


def _spans_of(plain: str, edit: Edit, number: int, count: int) -> list[_Span]:
    old, new = lf(edit["old_text"]), lf(edit["new_text"])
    which = f"edit {number}: " if count > 1 else ""
    if not old:
        raise EditError(f"{which}old_text is empty; write_file makes a new file or replaces a whole one")
    if old == new:
        raise EditError(f"{which}old_text and new_text are the same")
    found = _occurrences(plain, old)
    if not found:
        raise EditError(f"{which}old_text was not found. {_nearest(plain, old)}")
    if edit.get("replace_all"):
        return [_Span(at, at + len(old), new, number) for at in _apart(found, len(old))]
    if len(found) > 1:
        lines = [str(_line_at(plain, at)) for at in found[:10]]
        more = " …" if len(found) > 10 else ""
        raise EditError(
            f"{which}old_text is not unique: it was found {len(found)} times, in lines {', '.join(lines)}{more}; "
            "give more of the lines around it, or replace_all"
        )
    return [_Span(found[0], found[0] + len(old), new, number)]


def _occurrences(text: str, old: str) -> list[int]:
    """Where a text begins in another, also where the places overlap."""
    found: list[int] = []
    at = text.find(old)
    while at >= 0:
        found.append(at)
        at = text.find(old, at + 1)
    return found


def _apart(found: Sequence[int], length: int) -> list[int]:
    kept: list[int] = []
    for at in found:
        if not kept or at >= kept[-1] + length:
            kept.append(at)
    return kept


def _line_at(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _nearest(plain: str, old: str) -> str:
    """What in the text is like what was not found, with line numbers."""
    spaced = re.search(r"\s+".join(map(re.escape, old.split())), plain) if len(old) < 2000 and old.split() else None
    if spaced is not None:
        return f"Line {_line_at(plain, spaced.start())} has the same words with other white space: {spaced[0][:300]!r}"
    lines = plain.split("\n")[:_LINES_COMPARED]
    wanted = max(old.split("\n"), key=len)[:500]
    near = difflib.get_close_matches(wanted, {line[:500] for line in lines if line.strip()}, n=_NEAR, cutoff=0.5)
    if not near:
        return "No line is like it; read the file again."
    said = [f"line {next(n for n, line in enumerate(lines, 1) if line[:500] == one)}: {one[:200]!r}" for one in near]
    return f"Nearest to {wanted[:80]!r}: {'; '.join(said)}"


# Line ends


def _replaced(text: str, plain: str, spans: Sequence[_Span]) -> str:
    """Put the spans, which are those of the plain text, into the text itself."""
    places = _Places(text)
    fallback = "\r\n" if is_all_crlf(text) else "\n"
    pieces: list[str] = []
    done = 0
    for span in spans:
        start, end = _narrowed(plain, span)
        here, there = places.of(span.start + start), places.of(span.end - end)
        pieces.append(text[done:here])
        new = span.new[start : len(span.new) - end]
        pieces.append(_with_ends(text, here, there, new, fallback))
        done = there
    pieces.append(text[done:])
    return "".join(pieces)


def _narrowed(plain: str, span: _Span) -> tuple[int, int]:
    """How many characters of old and new are the same at the start and at the end: those are not touched."""
    old, new = plain[span.start : span.end], span.new
    most = min(len(old), len(new))
    start = 0
    while start < most and old[start] == new[start]:
        start += 1
    end = 0
    while end < most - start and old[-1 - end] == new[-1 - end]:
        end += 1
    return start, end


class _Places:
    """From places in the text with LF to those in the text itself, asked for in ascending order."""

    def __init__(self, text: str) -> None:
        self._pairs = (found.start() for found in re.finditer("\r\n", text))
        self._next = next(self._pairs, None)
        self._passed = 0

    def of(self, at: int) -> int:
        while self._next is not None and self._next < at + self._passed:
            self._passed += 1
            self._next = next(self._pairs, None)
        return at + self._passed


def _with_ends(text: str, start: int, end: int, new: str, fallback: str) -> str:
    """New text with the line ends of what it replaces, line by line; beyond that, those of the lines around."""
    if "\n" not in new:
        return new
    old_ends = re.findall("\r?\n", text[start:end])
    around = old_ends[-1] if old_ends else _end_near(text, start, end) or fallback
    pieces = new.split("\n")
    ends = (old_ends + [around] * len(pieces))[: len(pieces) - 1]
    return "".join([piece + line_end for piece, line_end in zip(pieces, [*ends, ""], strict=True)])


def _end_near(text: str, start: int, end: int) -> str | None:
    behind = text.find("\n", end)
    at = behind if behind >= 0 else text.rfind("\n", 0, start)
    if at < 0:
        return None
    return "\r\n" if text[at - 1 : at] == "\r" else "\n"


def diff(old: str, new: str, name: str) -> str:
    """A unified diff for people, cut where it is very long."""
    lines = difflib.unified_diff(
        lf(old).splitlines(keepends=True), lf(new).splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    text = "".join([line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines])
    return text if len(text) <= _DIFF_LIMIT else text[:_DIFF_LIMIT] + "\n[cut here]\n"
