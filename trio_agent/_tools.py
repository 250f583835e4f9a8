"""Tools: a function or a JSON Schema, made into something that a model can call.

Here lives what a tool is, and how one call of it is prepared and invoked. When that happens, and what becomes of
failures, is the tool phase's business; types are in `_schema.py`, return values in `_results.py`.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePath
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, cast, overload

import attrs

from ._callables import called_as, defining, is_async, positional, refuse_what_cannot_run
from ._errors import ArgumentError, ToolDefinitionError
from ._interrupts import exposed
from ._messages import ToolCall
from ._quick import quick
from ._request import ToolSpec
from ._schema_strict import strict_schema

if TYPE_CHECKING:
    from ._tool_context import ToolContext

P = ParamSpec("P")
R = TypeVar("R")

# Which files a call writes: the names of parameters, or a function of the arguments.
Writes: TypeAlias = str | Iterable[str] | Callable[[dict[str, Any]], "Paths"]
Paths: TypeAlias = str | PurePath | Iterable["Paths"] | None
Execute: TypeAlias = Callable[..., object]

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Arguments(Protocol):
    """What a tool knows of its arguments: `TypedArguments` or `SchemaArguments`."""

    @property
    def description(self) -> str: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    def defaults(self) -> dict[str, Any]: ...
    def schema(self) -> dict[str, Any]: ...
    def decode(self, text: str) -> dict[str, Any]: ...
    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]: ...


@attrs.frozen
class PreparedCall:
    """A call that may run: its arguments, decoded, and the paths of the files that it writes."""

    arguments: dict[str, Any]
    paths: tuple[str, ...] = ()


prepared_call = quick(PreparedCall)


def _check_name(_tool: Tool, _attribute: object, name: Any) -> None:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ToolDefinitionError(
            f"{name!r} is no name for a tool: services take 1 to 64 letters, digits, `_` and `-`; pass name=..."
        )


def _check_timeout(tool: Tool, _attribute: object, timeout: Any) -> None:
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise ToolDefinitionError(f"tool {tool.name!r}: timeout must be a positive number of seconds, not {timeout!r}")


@attrs.frozen(init=False, eq=False, slots=False)
class Tool:
    """Something that a model can call.

    Made of a JSON Schema from elsewhere: `execute(arguments, context)`, or `execute(arguments)`, sync or async, gets
    what the model gave, once it fits `parameters`. The schema is copied. `@tool` makes one of a typed function.

    A `serial` tool runs while no other does. `timeout` is in seconds. `writes` says which files a call writes, so
    that calls that write the same file do not overlap: the names of parameters, or a function of the arguments, whose
    values are paths, sequences of them, or None. `strict` asks the service to hold the model to the schema, which is
    then rewritten to what strict rules allow.

    Raises `ToolDefinitionError`.
    """

    name: str = attrs.field(validator=_check_name)
    serial: bool = attrs.field(repr=False)
    timeout: float | None = attrs.field(repr=False, validator=_check_timeout)
    strict: bool | None = attrs.field(repr=False)
    is_async: bool = attrs.field(repr=False)
    _description: str | None = attrs.field(repr=False)
    _arguments: Arguments = attrs.field(repr=False)
    _call: Callable[[dict[str, Any], Any], object] = attrs.field(repr=False)
    _paths: Callable[[dict[str, Any]], Paths] | None = attrs.field(repr=False)

    def __init__(
        self,
        *,
        name: str,
        description: str = "",
        parameters: Mapping[str, Any],
        execute: Execute,
        serial: bool = False,
        timeout: float | None = None,
        writes: Writes | None = None,
        strict: bool | None = None,
    ) -> None:
        from ._validation import SchemaArguments

        with defining(name):
            refuse_what_cannot_run(execute)
            arguments = SchemaArguments(parameters, strict is True)
            call = _call_with_dict(execute)
            paths = _paths_of(writes, arguments)
        self.__attrs_init__(  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # made by attrs
            name, serial, timeout, strict, is_async(execute), description, arguments, call, paths
        )

    @property
    def description(self) -> str:
        """What the model is told that the tool does."""
        return self._arguments.description if self._description is None else self._description

    @functools.cached_property
    def spec(self) -> ToolSpec:
        """What the model is told of the tool. Raises `ToolDefinitionError` for what could not be known before."""
        schema = self._arguments.schema()
        with defining(self.name):
            return ToolSpec(self.name, self.description, strict_schema(schema) if self.strict else schema, self.strict)

    @exposed
    def prepare(self, call: ToolCall) -> PreparedCall:
        """Decode a call's arguments. Raises `ArgumentError` for what does not fit, in words for the model."""
        return self._prepared(self._arguments.decode(call.raw))

    @exposed
    def prepare_value(self, arguments: Mapping[str, Any]) -> PreparedCall:
        """The same for JSON values that a hook put in place of the call's arguments."""
        return self._prepared(self._arguments.check(arguments))

    @exposed
    def invoke(self, prepared: PreparedCall, context: ToolContext) -> object:
        """Call the function: gives a coroutine where `is_async`, else the value. Raises whatever the function does."""
        value = self._call(prepared.arguments, context)
        kind: type[object] = type(value)  # `inspect.iscoroutine` takes longer, and `_awaiting` takes anything
        return _awaiting(value) if self.is_async and kind is not CoroutineType else value

    def _prepared(self, arguments: dict[str, Any]) -> PreparedCall:
        if self._paths is None:
            return prepared_call(arguments)
        return PreparedCall(arguments, tuple(_flat(self._paths({**self._arguments.defaults(), **arguments}))))


class FunctionTool(Tool, Generic[P, R]):
    """A tool made of a typed function, which can still be called as that. `@tool` makes these."""

    __wrapped__: Callable[P, R]

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        serial: bool = False,
        timeout: float | None = None,
        writes: Writes | None = None,
        strict: bool | None = None,
    ) -> None:
        # Imported at the first typed function: `import trio_agent` alone does without msgspec.
        from ._decoding import TypedArguments

        found = called_as(function) if name is None else name
        with defining(found):
            refuse_what_cannot_run(function)
        arguments = TypedArguments(function, found, strict is True)
        with defining(found):
            paths = _paths_of(writes, arguments)

        by_name = cast("Callable[..., object]", function)

        def call(given: dict[str, Any], context: object) -> object:
            names = arguments.context_names
            return by_name(**given, **dict.fromkeys(names, context)) if names else by_name(**given)

        object.__setattr__(self, "__wrapped__", function)  # frozen
        self.__attrs_init__(  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # made by attrs
            found, serial, timeout, strict, is_async(function), description, arguments, call, paths
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.__wrapped__(*args, **kwargs)


def _call_with_dict(execute: Execute) -> Callable[[dict[str, Any], Any], object]:
    if positional(execute, 2) == 2:
        return execute
    return lambda arguments, _context: execute(arguments)


async def _awaiting(value: Any) -> Any:
    """What a decorator around an async function gave: something to await, or the value already."""
    return await value if inspect.isawaitable(value) else value


def _paths_of(writes: Writes | None, arguments: Arguments) -> Callable[[dict[str, Any]], Paths] | None:
    if writes is None or callable(writes):
        return writes
    names = (writes,) if isinstance(writes, str) else tuple(writes)
    for name in names:
        if name not in arguments.names:
            known = ", ".join(arguments.names) or "none"
            raise ToolDefinitionError(f"writes names {name!r}, which is no parameter; the parameters are: {known}")
    return lambda given: [given.get(name) for name in names]


def _flat(paths: Any) -> Iterator[str]:
    """Each path once more as text. Raises `ArgumentError` for what is no path."""
    if paths is None:
        return
    if isinstance(paths, str):
        yield paths
    elif isinstance(paths, PurePath):
        yield str(paths)
    elif isinstance(paths, list | tuple | set | frozenset):
        for inner in cast("Iterable[Any]", paths):
            yield from _flat(inner)
    else:
        raise ArgumentError(f"expected the path of a file to write, got {type(paths).__name__}")


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    serial: bool = False,
    timeout: float | None = None,
    writes: Writes | None = None,
    strict: bool | None = None,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> object:
    """Make a tool of a typed function, async or sync (which then runs in a thread): `@tool` or `@tool(...)`.

    The model is told the function's name, its docstring, and a JSON Schema made of its annotations; a parameter
    annotated `ToolContext` is the kernel's. The options are those of `Tool`. The tool can still be called as the
    function. Raises `ToolDefinitionError`, at once or, where an annotation names what is defined later, at first use.
    """
    make: Callable[..., object] = FunctionTool
    return functools.partial(make, **options) if function is None else make(function, **options)
