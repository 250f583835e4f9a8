"""The seeded bugs as values: read from the TOML files beside this module, and what a patch changes.

Here lives nothing that runs a test; that is in `trial.py`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import attrs

HERE = Path(__file__).parent
TESTS = HERE.parent
PACKAGE = TESTS.parent / "trio_agent"


class DoesNotApplyError(Exception):
    """The snippet that a patch replaces is not there, or more than once."""


@attrs.frozen
class SeededBug:
    """One patch: in `file` of the package, `old` becomes `new`. `why` is the mistake; `tests` are likely to notice."""

    name: str
    rules: tuple[str, ...] = attrs.field(converter=tuple)
    file: str
    old: str
    new: str
    why: str
    tests: tuple[str, ...] = attrs.field(converter=tuple)
    area: str

    def patched(self, source: str) -> str:
        """The source with the mistake in it. Raises `DoesNotApplyError`."""
        found = source.count(self.old)
        if found != 1:
            raise DoesNotApplyError(f"{self.name}: its snippet occurs {found} times in {self.file}, not once")
        return source.replace(self.old, self.new)


def load() -> list[SeededBug]:
    """All of them, in the order of the files and within each file."""
    return [bug for file in sorted(HERE.glob("*.toml")) for bug in _read(file)]


def _read(file: Path) -> Iterator[SeededBug]:
    for entry in tomllib.loads(file.read_text(encoding="utf-8"))["bug"]:
        yield SeededBug(**entry, area=file.stem)


def compiled_form(source: str) -> tuple[Any, ...]:
    """What of a module is left once comments, docstrings, assertions and line numbers are taken away."""
    return _form(compile(source, "module", "exec", dont_inherit=True, optimize=2))


def _form(code: CodeType) -> tuple[Any, ...]:
    constants = [_form(c) if isinstance(c, CodeType) else (type(c).__name__, repr(c)) for c in code.co_consts]
    return (code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_exceptiontable, tuple(constants))
