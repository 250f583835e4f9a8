"""What a callable is under its wrappings: partials, decorators, bound methods, objects with `__call__`.

Here lives the looking-through, for tools. What a signature means to a model is in `_decoding.py`.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from ._errors import ToolDefinitionError


@contextmanager
def defining(name: str) -> Generator[None]:
    """Put the tool's name in front of the `ToolDefinitionError`s that are raised inside."""
    try:
        yield
    except ToolDefinitionError as error:
        error.args = (f"tool {name!r}: {error}",)
        raise


def layers(function: Any, *, decorators: bool = True) -> Iterator[Any]:
    """The callable, and what each layer of wrapping leads to, down to the function that was written out.

    Without `decorators` it stops at one that used `functools.wraps`: what that one wraps may be of another kind.
    """
    while True:
        yield function
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            if not decorators:
                return
            function = function.__wrapped__
        elif isinstance(function, types.MethodType):
            function = function.__func__
        elif not isinstance(function, types.FunctionType) and hasattr(type(function).__call__, "__globals__"):
            function = type(function).__call__
        else:
            return


def innermost(function: Any) -> Any:
    """The function that was written out: its annotations, docstring and name are the tool's."""
    *_, found = layers(function)
    return found


def is_async(function: Any) -> bool:
    """Whether calling it gives something to await, as far as any layer tells."""
    return any(inspect.iscoroutinefunction(layer) for layer in layers(function))


def called_as(function: Any) -> str:
    """The name that a callable goes by; that of its class for an object with `__call__`."""
    named = next(layer for layer in layers(function) if not isinstance(layer, functools.partial))
    return str(getattr(named, "__name__", type(named).__name__))


def refuse_what_cannot_run(function: Any) -> None:
    """Raise `ToolDefinitionError` for what cannot be called for a value."""
    if not callable(function):
        raise ToolDefinitionError(f"a tool is made of a function, not of {type(function).__name__}")
    if inspect.isclass(function):
        raise ToolDefinitionError("a tool is made of a function, not of a class; wrap its call in a function")
    for layer in layers(function, decorators=False):
        if inspect.isasyncgenfunction(layer) or inspect.isgeneratorfunction(layer):
            raise ToolDefinitionError(
                "a generator function cannot be a tool: return the whole result, and report progress with "
                "ToolContext.update"
            )


def positional(function: Callable[..., object], most: int) -> int:
    """With how many positional values a callable is to be called: as many as it takes, at most `most`, at least one.

    Raises `ToolDefinitionError` where it takes none, or requires more.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return most
    taking = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in taking if p.default is p.empty]
    required += [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    count = most if any(p.kind is p.VAR_POSITIONAL for p in parameters) else min(len(taking), most)
    if not count or len(required) > count:
        raise ToolDefinitionError("execute is called as execute(arguments, context) or execute(arguments)")
    return count
