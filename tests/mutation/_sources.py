"""Code from a source text in place of a file's: for a module not yet imported, and for a function that is in use."""

from __future__ import annotations

import importlib.abc
import importlib.util
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType


class Overlay(importlib.abc.MetaPathFinder):
    """Put in front of `sys.meta_path`, gives one module another source than its file has."""

    def __init__(self, name: str, path: Path, source: str) -> None:
        self.name = name
        self._path = str(path)
        self._source = source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        loader = _SourceLoader(fullname, self._path, self._source)
        return importlib.util.spec_from_file_location(fullname, self._path, loader=loader)


class _SourceLoader(SourceFileLoader):
    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self._text = source

    def get_code(self, fullname: str) -> CodeType:  # of the text alone: nothing is looked up or left in a cache
        return compile(self._text, self.path, "exec", dont_inherit=True)


def function_at(module: ModuleType, name: str | None) -> FunctionType | None:
    """The plain function or method of that qualified name, if there is one."""
    found: object = module
    for part in name.split(".") if name else ():
        found = vars(found).get(part)
    return found if isinstance(found, FunctionType) and found.__code__.co_qualname == name else None


def code_of(source: str, path: Path, name: str | None) -> CodeType:
    """The code of a function in a source. The last one, where overloads come before it."""
    return [code for code in _codes(compile(source, str(path), "exec", dont_inherit=True)) if code.co_qualname == name][
        -1
    ]


def _codes(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _codes(inner)
