"""What a model is told about its tool calls: return values as content, and the sentences for what went wrong.

Here live plain functions and values: no Trio, no events. When each sentence is used is decided in `_tool_phase.py`
and `_tool_call.py`; how an exception is described is in `_failures.py`.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from enum import Enum
from pathlib import PurePath
from typing import Any, Final, TypeAlias

import attrs

from ._failures import describe, shorten
from ._json import JSONValue, dumps, loads
from ._messages import (
    Image,
    Text,
    ToolCall,
    ToolResultMessage,
    UserBlock,
    joined_text,
    quick_text,
    tool_result_message,
)
from ._schema_strict import is_array
from ._validation import listed, near_miss, quoted

# Services refuse empty and blank text, so a tool that says nothing says this (B040).
NO_OUTPUT: Final = "(no output)"
_NO_ERROR_TEXT: Final = "(the tool reported an error and gave no text)"

Content: TypeAlias = str | UserBlock | Sequence[str | UserBlock]


class UnusableResult(Exception):  # noqa: N818  # it is what the call came to; nobody raises it at a caller
    """A tool returned what cannot be shown to a model. The text is for the model."""

    def __init__(self, tool_name: str, value: object, why: str) -> None:
        self.why = f"{_type_name(value)}, {why}"
        super().__init__(
            f"{tool_name} ran, but its result cannot be used: it returned {self.why}. "
            "It may have had effects; do not just repeat the call."
        )


@attrs.frozen(init=False)
class ToolResult:
    """What a tool may return to say more than a value can.

    `content` is for the model: text, blocks, or a sequence of both. `details` are for the application: a JSON value,
    of which each look decodes a fresh one. `is_error` tells the model that the call failed.
    """

    content: tuple[UserBlock, ...]
    _details: str | None
    is_error: bool

    def __init__(self, content: Content = (), details: JSONValue = None, is_error: bool = False) -> None:
        blocks = _blocks(content)
        self.__attrs_init__(  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # made by attrs
            blocks, None if details is None else dumps(details), is_error
        )

    @property
    def details(self) -> JSONValue:
        return None if self._details is None else loads(self._details)


# Return values


def to_blocks(value: object, tool_name: str) -> ToolResult:
    """What a tool returned, as content that no service refuses: at least one block, none of them blank text.

    Text and blocks, and sequences in which there is a block, are content as they are. Everything else is data and
    becomes JSON: `0`, `False`, `[]` and `{}` keep their value. Raises `UnusableResult`.
    """
    result = value if isinstance(value, ToolResult) else ToolResult(_content(value, tool_name))
    blocks = [block for block in result.content if not (isinstance(block, Text) and not block.text.strip())]
    if not blocks:
        blocks = [Text(_NO_ERROR_TEXT if result.is_error else NO_OUTPUT)]
    return ToolResult(blocks, result.details, result.is_error)


def partial_blocks(value: object, tool_name: str) -> tuple[UserBlock, ...]:
    """The same for what a running tool reports, which may be blank. Raises `TypeError` at the tool that reported it."""
    if isinstance(value, ToolResult):
        return value.content
    try:
        return _content(value, tool_name)
    except UnusableResult as error:
        raise TypeError(f"an update cannot be {error.why}") from None


def message_of(call: ToolCall, value: object) -> ToolResultMessage:
    """The result message for what a call's tool returned. Raises `UnusableResult`."""
    if type(value) is str and value.strip():  # by far the most frequent
        return tool_result_message(call.id, call.name, (quick_text(value),), False, None)
    result = to_blocks(value, call.name)
    return ToolResultMessage(call.id, call.name, result.content, result.is_error, result.details)


def replacement(result: ToolResultMessage, value: object) -> ToolResultMessage:
    """The result that a hook put in place of another, for the same call. Raises `UnusableResult`.

    A message or a `ToolResult` replaces everything; any other value is new content, and an error stays one.
    """
    if isinstance(value, ToolResultMessage):
        value = ToolResult(value.content, value.details, value.is_error)
    elif not isinstance(value, ToolResult):
        value = ToolResult(_content(value, result.tool_name), result.details, result.is_error)
    new = to_blocks(value, result.tool_name)
    return ToolResultMessage(result.tool_call_id, result.tool_name, new.content, new.is_error, new.details)


def _content(value: Any, tool_name: str) -> tuple[UserBlock, ...]:
    if value is None:
        return ()
    if isinstance(value, Text | Image | str) and not isinstance(value, Enum):
        return _blocks(value)
    if is_array(value) and any(isinstance(item, Text | Image) for item in value):
        return tuple([block for item in value for block in _content(item, tool_name)])
    return (Text(_data(value, tool_name)),)


def _blocks(content: Any) -> tuple[UserBlock, ...]:
    items = content if is_array(content) else (content,)
    blocks = [Text(str(item)) if isinstance(item, str) else item for item in items]
    for block in blocks:
        if not isinstance(block, Text | Image):
            raise TypeError(f"content is text, Text and Image blocks, or a list of these, not {_type_name(block)}")
    return tuple(blocks)


def _data(value: object, tool_name: str) -> str:
    """A value as JSON text; one that JSON has as a string, such as a date, is said without quotes."""
    if inspect.iscoroutine(value):
        value.close()  # or Python warns that it was never awaited
        raise UnusableResult(tool_name, value, "which nobody awaited: declare the tool's function `async def`")
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except _NotJSONError as error:
        raise UnusableResult(tool_name, value, str(error)) from None
    except Exception as error:  # properties and iteration of the author's objects may raise anything
        raise UnusableResult(tool_name, value, _why_not(error)) from error
    return str(json.loads(text)) if text.startswith('"') else text


class _NotJSONError(Exception):
    """JSON has no word for a value. The text says why."""


def _plain(value: object) -> Any:
    """A value that JSON does not know, one step nearer to what it knows."""
    for kinds, say in _SAYINGS:
        if isinstance(value, kinds):
            return say(value)
    if (type(value).__module__, type(value).__name__) in _NUMBERS:
        return str(value)
    fields = _fields(value)
    if fields is not None:
        return {name: getattr(value, name) for name in fields}
    if isinstance(value, bytes | bytearray | memoryview):
        raise _NotJSONError("and bytes are neither text nor JSON: decode them, or return an Image")
    raise _NotJSONError(f"and {_type_name(value)} is neither content nor JSON")


def _fields(value: object) -> Iterable[str] | None:
    """The names of the fields of a dataclass, an attrs class or a msgspec Struct."""
    cls = type(value)
    if attrs.has(cls):
        return [field.name for field in attrs.fields(cls)]
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    names: Iterable[str] | None = getattr(cls, "__struct_fields__", None)
    return names


def _sorted_if_possible(values: Set[Any]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:
        return list(values)


_SAYINGS: Final[list[tuple[Any, Callable[[Any], Any]]]] = [
    (Enum, lambda value: value.value),
    ((dt.datetime, dt.date, dt.time), lambda value: value.isoformat()),
    ((PurePath, dt.timedelta), str),
    (Set, _sorted_if_possible),
    (Mapping, dict),
    (range, list),
]

# By name, because importing their modules takes longer than the rest of this one.
_NUMBERS: Final = frozenset({("uuid", "UUID"), ("decimal", "Decimal")})


def _why_not(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "which is nested too deeply"
    if "Circular" in str(error):
        return "which contains itself"
    if "Out of range" in str(error):
        return "and JSON has no NaN and no infinity"
    return f"and making JSON of it failed ({describe(error)})"


def _type_name(value: object) -> str:
    return f"a value of type {type(value).__qualname__}"


# Sentences


def unknown_tool(name: str, available: Sequence[str]) -> str:
    """No tool has the name that the model gave; one that differs in case or blanks alone is named, not run (B039)."""
    meant = near_miss(name, available)
    hint = f" Did you mean {quoted(meant)}?" if meant is not None else ""
    tools = f"The tools are: {listed(available)}." if available else "There are no tools."
    return f"There is no tool called {quoted(name)}.{hint} {tools}"


def invalid_arguments(tool_name: str, problems: str) -> str:
    return f"{tool_name} was not run, because its arguments do not fit: {problems}. Correct them and call it again."


def blocked(tool_name: str, reason: str) -> str:
    why = f": {reason.strip()}" if reason.strip() else ""
    return f"{tool_name} was not run, because it was blocked{why}"


def raised(tool_name: str, failure: str) -> str:
    return f"{tool_name} failed: {failure}"


def timed_out(tool_name: str, seconds: float, update: Iterable[UserBlock] | None = None) -> str:
    return f"{tool_name} timed out after {seconds:g} s. It may have partly run.{_last_update(update)}"


def cut_short() -> str:
    """The message ended at the output limit, so that nobody knows whether the arguments are whole (T6)."""
    return (
        "Not run: the output limit was reached in this message, so the arguments of its calls may be cut off. "
        "Call again with shorter arguments, or divide the work among several calls."
    )


def cut_off(
    *, begun: bool, aborted: bool, update: Iterable[UserBlock] | None = None, answered: str | None = None
) -> str:
    """What to say of a call that has no result of its own because its run ended (A2, F2).

    `update` is the last that the tool reported; `answered` what it returned, where only the look at that was cut off.
    """
    why = "the run was aborted" if aborted else "the run failed"
    if answered is not None:
        return f"Cut off, because {why} while the result was being checked. The tool had answered: {shorten(answered)}"
    if not begun:
        return f"Not run, because {why} before this call began."
    return f"Cut off, because {why} while the tool was running. It may have partly run.{_last_update(update)}"


def after_hook_failed(result: ToolResultMessage, failure: str) -> ToolResultMessage:
    """An error in place of a result that could not be checked; it still says what the tool had answered (F5)."""
    words = Text(f"{result.tool_name} ran, but the check of its result failed: {failure}. The tool had answered:")
    content = (words, *result.content)
    return ToolResultMessage(result.tool_call_id, result.tool_name, content, True, result.details)


def _last_update(update: Iterable[UserBlock] | None) -> str:
    text = joined_text(update or ()).strip()
    return f" Its last update was: {shorten(text)}" if text else ""
