"""A program: finds lines with Python's own `re`, and says so as ripgrep does in JSON. Imports nothing of this package.

Here lives what `grep` runs where ripgrep is not installed. In a process of its own, as a pattern may take for ever.
"""

from __future__ import annotations

import json
import os
import re
import sys

_LARGEST = 64 * 1024 * 1024


def files_under(target: str, skipped: set[str]) -> list[str]:
    """The regular files at or under a path, links left out."""
    if not os.path.isdir(target):
        return [target]
    found: list[str] = []
    for folder, folders, names in os.walk(target):
        folders[:] = sorted(set(folders) - skipped)
        paths = [os.path.join(folder, name) for name in sorted(names)]
        found += [path for path in paths if not os.path.islink(path) and os.path.isfile(path)]
    return found


def matches_in(path: str, pattern: re.Pattern[str]) -> list[dict[str, object]]:
    """The lines of a text file that match, as ripgrep says them."""
    with open(path, "rb") as file:
        data = file.read(_LARGEST)
    if b"\0" in data:
        return []
    found: list[dict[str, object]] = []
    offset = 0
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n"), 1):
        text = line.decode(errors="surrogateescape")
        if pattern.search(text.rstrip("\r")):
            shown = {"text": text} if _is_utf8(line) else {"bytes": _base64(line)}
            where = {"text": path} if _is_utf8(os.fsencode(path)) else {"bytes": _base64(os.fsencode(path))}
            found.append({"path": where, "lines": shown, "line_number": number, "absolute_offset": offset})
        offset += len(line) + 1
    return found


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _base64(data: bytes) -> str:
    import base64

    return base64.b64encode(data).decode()


def main(pattern: str, names: str, flags: str, target: str, *skipped: str) -> int:
    try:
        wanted = re.compile(pattern, re.IGNORECASE if "i" in flags else 0)
    except re.error as error:
        print(f"{pattern!r} is no regular expression: {error}", file=sys.stderr)  # noqa: T201  # a program
        return 2
    is_named = re.compile(names).fullmatch if names else None
    for path in files_under(target, set(skipped)):
        if is_named is not None and not is_named(os.path.relpath(path, ".")):
            continue
        try:
            for match in matches_in(path, wanted):
                print(json.dumps({"type": "match", "data": match}), flush=True)  # noqa: T201  # a program
        except OSError:
            continue
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
