"""Mutants of a module: mutmut's mutations of it, each as the whole mutated source and as a short difference.

Nothing is written to disk, and nothing runs here. Unlike `mutmut run`, this also mutates what is outside of functions:
the tables, which hold most decisions of the modules that are tested so. What only a type checker reads is left alone.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mutmut.mutation.file_mutation import create_mutations


@dataclass(frozen=True)
class Mutant:
    """One change of one module.

    `function` is the qualified name of the innermost function or class around it, or `<module>`; `target` that of the
    outermost function, if nothing but its body differs.
    """

    file: str
    function: str
    diff: str
    source: str
    target: str | None

    @property
    def key(self) -> tuple[str, str, str]:
        return self.file, self.function, self.diff


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every mutant of a source file, in the order of the file. Two may have the same key, where lines repeat."""
    original = path.read_text(encoding="utf-8")
    lines = original.splitlines()
    tree = ast.parse(original)
    meaning = _meaning(original)
    module, mutations, _, _ = create_mutations(str(path), original)
    for mutation in mutations:
        source = module.deep_replace(mutation.original_node, mutation.mutated_node).code
        if _meaning(source) == meaning:
            continue
        diff = list(difflib.unified_diff(lines, source.splitlines(), n=0, lineterm=""))[2:]
        at = int(diff[0].split()[1].lstrip("-").split(",")[0])
        changed = [f"{line[0]} {line[1:].strip()}" for line in diff if line[0] in "-+"]
        around = list(_around(tree, at))
        target = next((name for node, name in around if not isinstance(node, ast.ClassDef)), None)
        if target is not None and _without_body(original, target) != _without_body(source, target):
            target = None
        yield Mutant(path.name, around[-1][1] if around else "<module>", "\n".join(changed), source, target)


class _Untyped(ast.NodeTransformer):
    """Takes out what has no effect when it runs: the type in a `cast`, aliases of types, type variables.

    An alias of a `Literal` stays: its words may be looked up with `get_args`.
    """

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        is_cast = isinstance(node.func, ast.Name) and node.func.id == "cast" and len(node.args) == 2
        return node.args[1] if is_cast else node

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        self.generic_visit(node)
        return None if ast.unparse(node.targets[0]) == "T" else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        self.generic_visit(node)
        is_alias = isinstance(node.annotation, ast.Name) and node.annotation.id == "TypeAlias"
        is_literal = isinstance(node.value, ast.Subscript) and ast.unparse(node.value.value) == "Literal"
        return None if is_alias and not is_literal else node


def _meaning(source: str) -> str:
    return ast.dump(_Untyped().visit(ast.parse(source)))


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _around(node: ast.AST, line: int, prefix: str = "") -> Iterator[tuple[_Definition, str]]:
    """The functions and classes around a line with their qualified names, from the outermost to the innermost."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Definition) and child.lineno <= line <= (child.end_lineno or child.lineno):
            yield child, prefix + child.name
            yield from _around(child, line, f"{prefix}{child.name}.")


def _without_body(source: str, function: str) -> str:
    tree = ast.parse(source)
    for node, name in _definitions(tree):
        if name == function:
            node.body = []
    return ast.dump(tree)


def _definitions(node: ast.AST, prefix: str = "") -> Iterator[tuple[_Definition, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Definition):
            yield child, prefix + child.name
            yield from _definitions(child, f"{prefix}{child.name}.")
