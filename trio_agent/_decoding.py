"""A function's parameters as the arguments of a tool: found, described, and decoded from JSON.

Here lives what a signature means to a model. What a type means is in `_schema.py`; what does not fit is put into
words in `_validation.py`.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, get_args, get_origin

import attrs
import msgspec

from ._callables import defining, innermost
from ._docstrings import Docs, read_docstring
from ._errors import ArgumentError, ToolDefinitionError
from ._json import dumps
from ._schema import Translation
from ._schema_strict import is_array, is_object, without_nulls
from ._stand_ins import Field, ObjectShape, convert, decode_stand_in, located
from ._validation import SchemaValidator, argument_error, parse_object, shown

_LARGEST_EXACT: Final = 2**53  # floats beyond it do not tell one integer from the next
_REFUSED: Final = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only, but arguments come by name; remove the `/`",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of values, which no schema can name; use a list instead",
    inspect.Parameter.VAR_KEYWORD: "takes any names, which no schema can list; name the parameters",
}


class UnresolvedNameError(ToolDefinitionError):
    """An annotation names what is not there yet. It may be there at the tool's first use."""


@attrs.frozen
class _Compiled:
    """What the types of the parameters come to. `context_names` are the kernel's own parameters."""

    translation: Translation
    shape: ObjectShape
    decoder: msgspec.json.Decoder[Any]
    context_names: tuple[str, ...]


class TypedArguments:
    """The arguments of a function. Annotations that cannot be resolved yet are tried again at first use.

    Raises `ToolDefinitionError`, from here on or at first use, for a signature that no model could call.
    """

    def __init__(self, function: Callable[..., Any], tool_name: str, strict: bool) -> None:
        self._function = function
        self._tool_name = tool_name
        self._strict = strict
        self._compiled: _Compiled | None = None
        with defining(tool_name):
            self._parameters = _parameters(function)
        with suppress(UnresolvedNameError):  # the name may be defined further down
            self._ready()

    # What the function says

    @functools.cached_property
    def _docs(self) -> Docs:
        return read_docstring(innermost(self._function).__doc__)

    @property
    def description(self) -> str:
        return self._docs.description

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._parameters)

    def defaults(self) -> dict[str, Any]:
        return {name: p.default for name, p in self._parameters.items() if p.default is not p.empty}

    @property
    def context_names(self) -> tuple[str, ...]:
        """The parameters that the kernel fills in with the `ToolContext`."""
        return self._ready().context_names

    def schema(self) -> dict[str, Any]:
        return self._schema

    @functools.cached_property
    def _schema(self) -> dict[str, Any]:
        compiled = self._ready()
        docs = Docs(parameters=self._docs.parameters)
        try:
            return compiled.translation.complete(compiled.translation.object_schema(compiled.shape.fields, docs))
        except TypeError as error:
            raise ToolDefinitionError(f"tool {self._tool_name!r}: {error}") from None

    @functools.cached_property
    def _validator(self) -> SchemaValidator:
        return SchemaValidator(self._schema)

    # Types

    def _ready(self) -> _Compiled:
        if self._compiled is None:
            with defining(self._tool_name):
                self._compiled = self._compile()
        return self._compiled

    def _compile(self) -> _Compiled:
        translation = Translation()
        fields: list[Field] = []
        context_names: list[str] = []
        namespace = getattr(innermost(self._function), "__globals__", {})
        for name, parameter in self._parameters.items():
            annotation = _within(name, functools.partial(_evaluated, parameter, namespace))
            if _is_context(annotation):
                context_names.append(name)
                continue
            wire = _within(name, functools.partial(translation.wire, annotation))
            fields.append(Field(name, name, wire, parameter.default is parameter.empty, parameter.default))
        shape = ObjectShape(fields)
        decoder = msgspec.json.Decoder(shape.struct, dec_hook=decode_stand_in)
        return _Compiled(translation, shape, decoder, tuple(context_names))

    # Arguments

    def decode(self, text: str) -> dict[str, Any]:
        """The arguments, decoded, without those that were left out. Raises `ArgumentError`.

        Types are taken as JSON has them: `"42"` is no integer and 1 is no boolean, but 1.0 is an integer and 1 a
        number.
        """
        compiled = self._ready()
        try:
            return compiled.shape.given(compiled.decoder.decode(text))
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            # Not necessarily wrong: msgspec knows no lone surrogates, and nulls may stand for defaults.
            return self._decoded(parse_object(text))

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._decoded(parse_object(dumps(dict(arguments))))
        except (TypeError, RecursionError) as error:
            raise ArgumentError(f"$: the arguments are not JSON: {error}") from None

    def _decoded(self, value: dict[str, Any]) -> dict[str, Any]:
        shape = self._ready().shape
        if self._strict:
            value = without_nulls(value, self._schema, self._schema)
        try:
            return shape.given(convert(value, shape.struct))
        except (msgspec.ValidationError, RecursionError) as error:
            try:
                return shape.given(convert(_with_integers(value), shape.struct))
            except (msgspec.ValidationError, RecursionError):
                raise self._error(value, error) from None

    def _error(self, value: dict[str, Any], error: Exception) -> ArgumentError:
        """All that the schema finds, or else what the decoder stumbled over first."""
        problems = self._validator.problems(value)
        if problems:
            return argument_error(problems)
        path, text = located(error)
        culprit = _at(value, path)
        came = "" if culprit is None else f", got {shown(culprit)}"
        return ArgumentError(f"${path}: {text}{came}")


def _at(value: Any, path: str) -> Any:
    """What lies at a path such as `.points[0].x`, or None where the path does not say it exactly."""
    for key, index in re.findall(r"\.([^.\[\]]+)|\[([^\]]*)\]", path):
        try:
            value = value[key] if key else value[int(index)]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    return value


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters that a call has to fill: those that a `partial` has bound by name are its author's own."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError(f"its signature cannot be read ({error}); wrap it in a function") from None
    bound = function.keywords if isinstance(function, functools.partial) else {}
    parameters = {name: p for name, p in signature.parameters.items() if name not in bound}
    for name, parameter in parameters.items():
        if parameter.kind in _REFUSED:
            raise ToolDefinitionError(f"parameter {name!r} {_REFUSED[parameter.kind]}")
        if parameter.annotation is parameter.empty:
            hint = "; make a tool of the bound method instead" if name in ("self", "cls") else ""
            raise ToolDefinitionError(f"parameter {name!r} has no annotation{hint or '; typing.Any takes any JSON'}")
    return parameters


def _evaluated(parameter: inspect.Parameter, namespace: dict[str, Any]) -> Any:
    """A parameter's annotation, with every name in it looked up."""
    holder = types.FunctionType(_nothing.__code__, namespace)
    holder.__annotations__ = {"it": parameter.annotation}
    try:
        return typing.get_type_hints(holder, include_extras=True)["it"]
    except NameError as error:
        if error.name != "ToolContext":
            raise
        # The one name that is worth knowing where it is imported for type checkers alone.
        return typing.get_type_hints(holder, localns={"ToolContext": _context_class()}, include_extras=True)["it"]


def _nothing() -> None: ...


def _within(name: str, step: Callable[[], Any]) -> Any:
    """Do a step of reading parameter `name`. What it raises becomes a `ToolDefinitionError` that names it."""
    try:
        return step()
    except NameError as error:
        raise UnresolvedNameError(
            f"parameter {name!r}: its annotation cannot be resolved: {error}; define or import the name at the top "
            "level of the module, not in a function and not under TYPE_CHECKING"
        ) from None
    except RecursionError:
        raise ToolDefinitionError(f"parameter {name!r}: its annotation is nested too deeply") from None
    except Exception as error:  # an annotation is an expression of the author's, which may raise anything
        raise ToolDefinitionError(f"parameter {name!r}: {error}") from None


def _context_class() -> type:
    from ._tool_context import ToolContext

    return ToolContext


def _is_context(annotation: Any) -> bool:
    """Whether a parameter is the kernel's: `ToolContext`, or that or None."""
    if get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        return any(_is_context(argument) for argument in get_args(annotation))
    # Asked by name first, so that most tools never import the class.
    return getattr(annotation, "__name__", "") == "ToolContext" and annotation is _context_class()


def _with_integers(value: Any) -> Any:
    """The value with 1 for 1.0: JSON does not tell them apart."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= _LARGEST_EXACT:
        return int(value)
    if is_array(value):
        return [_with_integers(item) for item in value]
    if is_object(value):
        return {key: _with_integers(item) for key, item in value.items()}
    return value
