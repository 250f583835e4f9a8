"""Who may call what: policies for the hook `before_tool_call`.

Here live three of them: one that lets nothing change, one that knows patterns, one that asks a person. Each is a
hook, or makes one: `Hooks(before_tool_call=allow(["read_file", "bash(git status)"], otherwise=ask()))`.
"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import re
from collections.abc import Awaitable, Callable, Generator, Iterable
from typing import Any, Final, TypeAlias, cast

import trio

from .. import Block, HookContext, Replace, ToolCall
from ._output import safe
from ._search import translated

Verdict: TypeAlias = Block | Replace | None
Policy: TypeAlias = Callable[[ToolCall, HookContext], Verdict | Awaitable[Verdict]]

_READERS: Final = frozenset({"read_file", "list_dir", "find_files", "grep"})
_SHOWN: Final = 4000
# What makes one command several, or more than it seems. Blanks and quotes alone do not.
_SHELL: Final = re.compile(r"[;&|<>`$(){}\\\n\r]")
_RULE: Final = re.compile(r"(\*|[A-Za-z0-9_-]+)(?:\((.*)\))?", re.DOTALL)


def read_only(*more: str) -> Policy:
    """Let through the tools of this package that change nothing, and those named; block every other."""
    allowed = _READERS | set(more)

    def before_tool_call(call: ToolCall, _context: HookContext) -> Verdict:
        return None if call.name in allowed else Block("only tools that change nothing may be used now")

    return before_tool_call


def allow(rules: Iterable[str], *, otherwise: Policy | None = None) -> Policy:
    """Let through what a rule names; ask `otherwise` about the rest, or block it.

    A rule is `tool`, or `tool(pattern)` for calls whose `path` or `command` is as the pattern says. Paths are
    compared as they are spelled, `..` resolved, with `*`, `?`, `[...]` and `**` as in `find_files`. In a command `*`
    stands for anything but what would begin another command or a redirection; without `*` it must be the same text.
    `*` as the tool is any tool. Raises `ValueError` for what is no rule.
    """
    parsed = [_rule(rule) for rule in rules]

    def before_tool_call(call: ToolCall, context: HookContext) -> Verdict | Awaitable[Verdict]:
        if any(name in ("*", call.name) and _fits(pattern, call) for name, pattern in parsed):
            return None
        if otherwise is not None:
            return otherwise(call, context)
        return Block("no rule of the application allows this call")

    return before_tool_call


def _rule(rule: str) -> tuple[str, str | None]:
    found = _RULE.fullmatch(rule.strip())
    if found is None:
        raise ValueError(f"{rule!r} is no rule; write `tool` or `tool(pattern)`")
    return found[1], found[2]


def _fits(pattern: str | None, call: ToolCall) -> bool:
    if pattern is None:
        return True
    arguments = call.arguments
    given = cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {}
    path, command = given.get("path"), given.get("command")
    if isinstance(command, str):
        return command == pattern or (not _SHELL.search(command) and _is_like(pattern, command))
    if isinstance(path, str):
        plain = posixpath.normpath(path)
        inside = not plain.startswith(("/", "..", "~"))
        return inside and re.fullmatch(translated(pattern), plain, re.DOTALL) is not None
    return False


def _is_like(pattern: str, command: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), command) is not None


# Asking a person


def ask(*, terminal: str | os.PathLike[str] = "/dev/tty") -> Policy:
    """Ask on the terminal about each call: yes, no with a reason for the model, or always.

    `always` is for this tool, or this very command, as long as the hook lives. An abort ends the question. Where
    there is no terminal, or it is closed, the call is blocked. Several agents ask one after the other.
    """
    always: set[tuple[str, str | None]] = set()
    turn = trio.Lock()

    async def before_tool_call(call: ToolCall, _context: HookContext) -> Verdict:
        arguments = call.arguments
        given = cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {}
        kind = (call.name, given.get("command"))
        async with turn:
            if kind in always:
                return None
            try:
                answer = await _answer(terminal, _question(call, given))
            except OSError as error:
                return Block(f"nobody can be asked whether it may run: {error.strerror or error}")
        if answer.lower() in ("a", "always"):
            always.add(kind)
            return None
        if answer.lower() in ("y", "yes"):
            return None
        return Block("the user said no" + (f": {answer}" if answer.lower() not in ("", "n", "no") else ""))

    return before_tool_call


def _question(call: ToolCall, given: dict[str, Any]) -> str:
    """The call, so that nothing in it can move the cursor or hide: control characters are shown as such."""
    lines = [f"{name}: {value if isinstance(value, str) else json.dumps(value)}" for name, value in given.items()]
    text = safe("\n".join(lines))
    hidden = len(text) - _SHOWN
    if hidden > 0:
        text = f"{text[:_SHOWN]}\n… and {hidden} characters more, which are not shown"
    indented = text.replace("\n", "\n  ")
    return f"\nMay {safe(call.name)} run?\n  {indented}\n[y]es, [a]lways, or [n]o or why not: "


async def _answer(terminal: str | os.PathLike[str], question: str) -> str:
    """Write the question and wait for a line. Cancellable. Raises `OSError`."""
    with _opened(terminal) as descriptor:
        _forget_typed_ahead(descriptor)
        left = question.encode(errors="replace")
        while left:
            await trio.lowlevel.wait_writable(descriptor)
            left = left[os.write(descriptor, left) :]
        line = b""
        while b"\n" not in line:
            await trio.lowlevel.wait_readable(descriptor)
            piece = os.read(descriptor, 1024)
            if not piece:
                raise OSError("the terminal was closed")
            line += piece
        return line.split(b"\n")[0].decode(errors="replace").strip()


@contextlib.contextmanager
def _opened(terminal: str | os.PathLike[str]) -> Generator[int]:
    descriptor = os.open(terminal, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not os.isatty(descriptor):
            raise OSError(f"{os.fspath(terminal)} is no terminal")
        yield descriptor
    finally:
        os.close(descriptor)


def _forget_typed_ahead(descriptor: int) -> None:
    """What was typed before the question is no answer to it."""
    import termios

    termios.tcflush(descriptor, termios.TCIFLUSH)
