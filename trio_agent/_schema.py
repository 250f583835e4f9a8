"""Annotations as JSON: what each accepts, as a JSON Schema and as a type that msgspec decodes.

Here lives the translation of types. Which keys a class has is in `_schema_classes.py`, how stand-ins decode in
`_stand_ins.py`, how a call's arguments are decoded in `_decoding.py`.
"""

from __future__ import annotations

import collections.abc
import datetime as dt
import decimal
import enum
import os
import pathlib
import re
import types
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from ._annotated import bounded, is_bound, metas
from ._docstrings import NO_DOCS, Docs, class_docs
from ._failures import describe
from ._json import dumps
from ._schema_classes import NO_DEFAULT, Member, is_object_class, is_subclass, members
from ._schema_strict import accepts_null, with_enum_types
from ._stand_ins import (
    Field,
    JSONSchema,
    MisfitError,
    ObjectShape,
    StandIn,
    Wire,
    check,
    convert,
    convert_inside,
    make_stand_in,
)

_NATIVE: Final = frozenset(
    {bool, int, float, str, bytes, bytearray, type(None), decimal.Decimal, uuid.UUID}
    | {dt.datetime, dt.date, dt.time, dt.timedelta}
)
# What msgspec makes for each kind of container.
_CONTAINERS: Final[dict[Any, Any]] = {
    **dict.fromkeys((list, collections.abc.Sequence, collections.abc.MutableSequence), list),
    **dict.fromkeys((collections.abc.Collection, collections.abc.Iterable), list),
    **dict.fromkeys((set, collections.abc.Set, collections.abc.MutableSet), set),
    **dict.fromkeys((dict, collections.abc.Mapping, collections.abc.MutableMapping), dict),
    frozenset: frozenset,
    tuple: tuple,
}


class Translation:
    """The types of one tool. Names of classes are unique within it; a class that contains itself is a `$ref`.

    Everything raises `TypeError` for what cannot be expressed, and `NameError` for a name that is not there (yet).
    """

    def __init__(self) -> None:
        self._definitions: dict[str, JSONSchema] = {}
        self._named: dict[Any, StandIn] = {}
        self._names: set[str] = set()
        self._unfinished: list[Callable[[], None]] = []

    def wire(self, annotation: Any) -> Wire:
        """The type that msgspec decodes for an annotation, with everything that it refers to checked."""
        wire = check(self._wire(annotation))
        while self._unfinished:
            self._unfinished.pop()()
        return wire

    # Schemas

    def object_schema(self, fields: list[Field], docs: Docs = NO_DOCS) -> JSONSchema:
        """The schema of an object; what an annotation says of a key goes before what a docstring says."""
        properties: dict[str, JSONSchema] = {}
        for field in fields:
            schema = self._schema(field.wire)
            if field.target in docs.parameters:
                schema.setdefault("description", docs.parameters[field.target])
            properties[field.key] = {**schema, **self._default(field, schema)}
        return {
            **({"description": docs.description} if docs.description else {}),
            "type": "object",
            "properties": properties,
            "required": [field.key for field in fields if field.required],
            "additionalProperties": False,
        }

    def complete(self, schema: JSONSchema) -> JSONSchema:
        """A schema together with the definitions that it refers to."""
        whole = {**schema, "$defs": self._definitions} if self._definitions else schema
        typed: JSONSchema = with_enum_types(whole)
        return typed

    def _schema(self, wire: Wire) -> JSONSchema:
        (schema,), components = msgspec.json.schema_components((wire,), schema_hook=_schema_of)
        for name, component in components.items():  # tagged Structs, which msgspec sees to by itself
            if self._definitions.setdefault(name, component) != component:
                raise TypeError(f"two types are called {name}; rename one of them")
        return schema

    def _default(self, field: Field, schema: JSONSchema) -> JSONSchema:
        """What to tell of a default: nothing where JSON has no word for it, or where the type does not allow it."""
        if field.default is None and not accepts_null(schema, {"$defs": self._definitions}):
            return {}
        try:
            default = msgspec.to_builtins(_plain(field.default), str_keys=True)
            dumps(default)
        except (TypeError, ValueError, RecursionError):
            return {}
        return {"default": default}

    # One kind of annotation after the other

    def _wire(self, annotation: Any) -> Wire:
        origin = get_origin(annotation)
        base = annotation if origin is None else origin
        arguments = get_args(annotation)
        if origin is Annotated:
            return self._annotated(arguments[0], [meta for extra in arguments[1:] for meta in metas(extra)])
        if origin in (Union, types.UnionType):
            return self._union(arguments)
        if origin is Literal or annotation in (Any, object):
            return Any if annotation is object else annotation
        if hasattr(annotation, "__supertype__"):  # a NewType
            return self._wire(annotation.__supertype__)
        if hasattr(base, "__value__"):  # what a `type` statement makes
            return self._alias(annotation, base.__value__[arguments] if arguments else base.__value__)
        if isinstance(base, collections.abc.Hashable) and base in _CONTAINERS:
            return self._container(base, annotation, arguments)
        return self._class(annotation, base)

    def _annotated(self, annotation: Any, found: list[msgspec.Meta]) -> Wire:
        if get_origin(annotation) in (Union, types.UnionType):
            # msgspec takes bounds for one type only, so they go inside, to the alternatives that have such bounds.
            bounds = [meta for meta in found if is_bound(meta)]
            found = [meta for meta in found if not is_bound(meta)]
            wire = self._union(get_args(annotation), bounds)
        else:
            wire = self._wire(annotation)
        return Annotated[(wire, *found)] if found else wire

    def _container(self, base: Any, annotation: Any, arguments: tuple[Any, ...]) -> Wire:
        concrete = _CONTAINERS[base]
        if not arguments and annotation != tuple[()]:
            return concrete
        items = [argument if argument is Ellipsis else self._wire(argument) for argument in arguments]
        if issubclass(base, collections.abc.Mapping) and isinstance(items[0], StandIn):
            raise TypeError(f"the keys of a JSON object are text, not {_name(arguments[0])}; use dict[str, ...]")
        return concrete[tuple(items)]

    def _class(self, annotation: Any, base: Any) -> Wire:
        if is_object_class(base):
            return self._object(annotation, base)
        if is_subclass(base, enum.Enum):
            return self._enum(base)
        if is_subclass(base, os.PathLike):
            return _path(base)
        if annotation in (dt.datetime, dt.time):  # msgspec names their formats only where a time zone is asked for
            hint = {"format": "date-time" if annotation is dt.datetime else "time"}
            return Annotated[annotation, msgspec.Meta(extra_json_schema=hint)]
        if isinstance(base, type) and (base in _NATIVE or hasattr(base, "__struct_config__")):
            return annotation
        if isinstance(annotation, TypeVar):
            raise TypeError(f"the type variable {annotation} stands for no type here")
        raise TypeError(
            f"{_name(annotation)} cannot be made from JSON; use a dataclass, an attrs class, a TypedDict, "
            "or types such as str, int, list[...] and dict[str, ...]"
        )

    def _union(self, alternatives: tuple[Any, ...], bounds: Sequence[msgspec.Meta] = ()) -> Wire:
        """A union as it is where msgspec can tell the alternatives apart, else the first alternative that fits."""
        wires = bounded([self._wire(alternative) for alternative in alternatives], bounds)
        try:
            return check(_union_of(wires))
        except TypeError:
            names = [_name(alternative) for alternative in alternatives]
            return self._first_fit(names, [check(wire) for wire in wires])

    def _first_fit(self, names: list[str], wires: list[Wire]) -> StandIn:
        def decode(value: Any) -> Any:
            for wire in wires:
                try:
                    return convert(value, wire)
                except msgspec.ValidationError:
                    continue
            raise MisfitError("", f"fits none of {', '.join(names)}")

        return make_stand_in(" | ".join(names), decode, lambda: {"anyOf": [self._schema(wire) for wire in wires]})

    def _alias(self, alias: Any, value: Any) -> StandIn:
        """An alias that may contain itself."""
        if alias in self._named:
            return self._named[alias]
        wires: list[Wire] = []
        self._unfinished.append(lambda: wires.append(self._checked(value, _name(alias))))
        return self._define(alias, lambda value: convert_inside(value, wires[0]), lambda: self._schema(wires[0]))

    def _object(self, cls: Any, base: Any) -> StandIn:
        if cls in self._named:
            return self._named[cls]
        shapes: list[ObjectShape] = []

        def decode(value: Any) -> Any:
            given = shapes[0].given(convert_inside(value, shapes[0].struct))
            try:
                return base(**given)
            except Exception as error:  # validators and __post_init__ are the author's code and may raise anything
                raise MisfitError("", describe(error)) from error

        self._unfinished.append(lambda: shapes.append(ObjectShape([self._field(cls, m) for m in members(cls)])))
        return self._define(cls, decode, lambda: self.object_schema(shapes[0].fields, class_docs(base)))

    def _field(self, cls: Any, member: Member) -> Field:
        wire = self._checked(member.annotation, f"{_name(cls)}.{member.key}")
        return Field(member.key, member.target, wire, member.required, member.default)

    def _enum(self, cls: type[enum.Enum]) -> StandIn:
        if cls in self._named:
            return self._named[cls]
        values = [member.value for member in cls]
        if not values or not all(type(value) in (str, int) for value in values):
            raise TypeError(f"the members of the enum {cls.__name__} must be strings or integers")
        # Keyed by type as well: True and 1.0 are equal to 1, but not what the schema offers.
        known = {(type(member.value).__name__, member.value): member for member in cls}

        def decode(value: Any) -> Any:
            try:
                return known[type(value).__name__, value]
            except (KeyError, TypeError):
                raise MisfitError("", f"expected one of {', '.join(map(dumps, values))}") from None

        docs = class_docs(cls)
        described = {"description": docs.description} if docs.description else {}
        return self._define(cls, decode, lambda: {**described, "enum": values})

    def _checked(self, annotation: Any, where: str) -> Wire:
        """The type for an annotation inside another. Raises `TypeError` with the place in front."""
        try:
            return check(self._wire(annotation))
        except (TypeError, ValueError) as error:
            raise TypeError(f"{where}: {error}") from None

    def _define(self, key: Any, decode: Callable[[Any], Any], schema: Callable[[], JSONSchema]) -> StandIn:
        """A stand-in with a name of its own under `$defs`; its schema is made when it is first referred to."""
        plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", _name(key)).strip("_")
        name = next(candidate for candidate in _numbered(plain) if candidate not in self._names)
        self._names.add(name)

        def reference() -> JSONSchema:
            if name not in self._definitions:
                self._definitions[name] = {}  # so that a class that contains itself is not described for ever
                self._definitions[name] = schema()
            return {"$ref": f"#/$defs/{name}"}

        self._named[key] = stand_in = make_stand_in(_name(key), decode, reference)
        return stand_in


def _schema_of(stand_in: Any) -> JSONSchema:
    schema: JSONSchema = stand_in.schema()
    return schema


def _union_of(wires: list[Wire]) -> Wire:
    union: Any = Union
    return union[tuple(wires)]


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}_{number}"
        number += 1


def _path(cls: Any) -> StandIn:
    concrete: Callable[[str], Any] = cls if is_subclass(cls, pathlib.PurePath) else pathlib.Path
    return make_stand_in(cls.__name__, lambda value: concrete(convert_inside(value, str)), lambda: {"type": "string"})


def _name(annotation: Any) -> str:
    origin = get_origin(annotation)
    if isinstance(origin, type) and origin is not types.UnionType:
        return f"{origin.__name__}[{', '.join([_name(argument) for argument in get_args(annotation)])}]"
    return str(getattr(annotation, "__name__", annotation))


def _plain(default: Any) -> Any:
    if default is NO_DEFAULT:
        raise TypeError("there is no default")
    return str(default) if isinstance(default, pathlib.PurePath) else default
