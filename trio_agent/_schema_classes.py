"""The classes that stand for JSON objects: which keys each has, of what types, and what may be left out.

Here lives what is known of dataclasses, attrs classes, TypedDicts, NamedTuples and msgspec Structs. What their
annotations mean in JSON is in `_schema.py`.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar, get_args, get_origin

import attrs

_QUALIFIERS: Final = frozenset({"Required", "NotRequired", "ReadOnly", "Final"})

# What stands for "no default is known": attrs takes its own NOTHING for a field without one.
NO_DEFAULT: Final = inspect.Parameter.empty


@attrs.frozen
class Member:
    """One key of an object. `target` is the keyword that its class is made with."""

    key: str
    target: str
    annotation: Any
    required: bool
    default: Any = NO_DEFAULT


def is_object_class(cls: Any) -> bool:
    """Whether a class, or a generic one with arguments, stands for a JSON object with known keys."""
    base = get_origin(cls) or cls
    if not isinstance(base, type):
        return False
    known: list[Callable[[Any], bool]] = [dataclasses.is_dataclass, attrs.has, _is_typed_dict, _is_named_tuple]
    return any(knows(base) for knows in [*known, _is_plain_struct])


def is_subclass(cls: Any, base: type) -> bool:
    return isinstance(cls, type) and issubclass(cls, base)


def members(cls: Any) -> list[Member]:
    """The keys of an object class, in order.

    Raises `NameError` where an annotation names what is not there (yet), `TypeError` for what cannot be supported.
    """
    base = get_origin(cls) or cls
    # A class of a function's own is not among the globals, yet it may name itself.
    hints = typing.get_type_hints(base, include_extras=True, localns={base.__name__: base})
    arguments = dict(zip(getattr(base, "__parameters__", ()), get_args(cls), strict=False))
    for name, hint in hints.items():
        if isinstance(hint, dataclasses.InitVar):
            raise TypeError(f"{base.__name__}.{name} is an InitVar, which is not supported")
    return [
        attrs.evolve(member, annotation=_with_arguments(_unqualified(member.annotation), arguments))
        for member in _members(base, hints)
    ]


def _members(base: Any, hints: Mapping[str, Any]) -> Iterator[Member]:
    if _is_typed_dict(base):
        yield from _of_typed_dict(base, hints)
    elif _is_named_tuple(base):
        for name in base._fields:
            default = base._field_defaults.get(name, NO_DEFAULT)
            yield Member(name, name, _hint(base, name, hints), default is NO_DEFAULT, default)
    elif attrs.has(base):
        for field in attrs.fields(base):
            if field.init:
                made = field.default is attrs.NOTHING or isinstance(field.default, attrs.Factory)  # type: ignore[arg-type]
                default = NO_DEFAULT if made else field.default
                annotation = hints.get(field.name, field.type) or _hint(base, field.name, hints)
                yield Member(field.alias, field.alias, annotation, field.default is attrs.NOTHING, default)
    elif dataclasses.is_dataclass(base):
        for entry in dataclasses.fields(base):
            if entry.init:
                required = entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING
                default = NO_DEFAULT if entry.default is dataclasses.MISSING else entry.default
                yield Member(entry.name, entry.name, _hint(base, entry.name, hints), required, default)
    else:
        yield from _of_struct(base, hints)


def _of_typed_dict(base: Any, hints: Mapping[str, Any]) -> Iterator[Member]:
    for name, hint in hints.items():
        # With postponed annotations `__required_keys__` has not seen the qualifiers, so they come first.
        qualifiers = set(_qualifiers(hint))
        required = "Required" in qualifiers or ("NotRequired" not in qualifiers and name in base.__required_keys__)
        yield Member(name, name, hint, required)


def _of_struct(base: Any, hints: Mapping[str, Any]) -> Iterator[Member]:
    import msgspec

    for field in msgspec.structs.fields(base):
        default = NO_DEFAULT if field.default is msgspec.NODEFAULT else field.default
        yield Member(field.encode_name, field.name, _hint(base, field.name, hints), field.required, default)


def _hint(base: Any, name: str, hints: Mapping[str, Any]) -> Any:
    if name not in hints:
        raise TypeError(f"{base.__name__}.{name} has no annotation")
    return hints[name]


def _is_typed_dict(base: Any) -> bool:
    # `typing.is_typeddict` does not know those of typing_extensions.
    return is_subclass(base, dict) and hasattr(base, "__total__")


def _is_named_tuple(base: Any) -> bool:
    return is_subclass(base, tuple) and hasattr(base, "_fields") and hasattr(base, "_field_defaults")


def _is_plain_struct(base: Any) -> bool:
    """A Struct that is neither an array nor told apart by a tag, which msgspec itself sees to."""
    config = getattr(base, "__struct_config__", None)
    return config is not None and not config.array_like and config.tag is None


def _qualifiers(annotation: Any) -> Iterator[str]:
    """The names of the qualifiers around a type: Required, NotRequired, ReadOnly, Final."""
    while True:
        origin = get_origin(annotation)
        name = getattr(origin, "_name", None) or getattr(origin, "__name__", "")
        if origin is not typing.Annotated and name not in _QUALIFIERS:
            return
        if name in _QUALIFIERS:
            yield str(name)
        annotation = get_args(annotation)[0]


def _unqualified(annotation: Any) -> Any:
    origin = get_origin(annotation)
    name = getattr(origin, "_name", None) or getattr(origin, "__name__", "")
    if origin is typing.Annotated:
        base, *extras = get_args(annotation)
        return typing.Annotated[(_unqualified(base), *extras)]
    return _unqualified(get_args(annotation)[0]) if name in _QUALIFIERS else annotation


def _with_arguments(annotation: Any, arguments: Mapping[Any, Any]) -> Any:
    """An annotation of a generic class, with the class's type variables replaced by what they stand for."""
    if isinstance(annotation, TypeVar):
        return arguments.get(annotation, annotation)
    variables = getattr(annotation, "__parameters__", ())
    if not variables or isinstance(annotation, type):
        return annotation
    return annotation[tuple([arguments.get(variable, variable) for variable in variables])]
