"""How msgspec decodes what it does not know: stand-ins for types, and objects with known keys.

Here lives the decoding of JSON values, and where in them an error lies. Which stand-in an annotation gets is in
`_schema.py`, what a misfit is called before a model in `_validation.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias, cast

import attrs
import msgspec

from ._schema_classes import NO_DEFAULT

# Something that msgspec can decode: a type, or an annotation.
Wire: TypeAlias = Any
JSONSchema: TypeAlias = dict[str, Any]

_LOCATED: Final = re.compile(r"(.*?) - at (`key` in )?`\$(.*)`", re.DOTALL)


class MisfitError(ValueError):
    """A value does not fit the type that a stand-in is for. `path` leads to the place, from there."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(text)
        self.path = path
        self.text = text


def located(error: Exception) -> tuple[str, str]:
    """Where in the JSON a decoding error lies, and its text. What msgspec says is `<text> - at `$<path>``."""
    found = _LOCATED.fullmatch(str(error))
    text, of_key, path = found.groups() if found is not None else (str(error), None, "")
    inner = error.__cause__
    if isinstance(inner, MisfitError):
        path, text = path + inner.path, inner.text
    else:
        text = text[:1].lower() + text[1:].replace("`", "")
    return path, f"{text}, as a key" if of_key else text


class StandIn(type):
    """What msgspec is given in place of a type that it does not know: a class made for that type alone."""

    decode: Callable[[Any], Any]
    schema: Callable[[], JSONSchema]

    def __instancecheck__(cls, instance: object) -> bool:
        # msgspec checks that what the hook decoded is an instance of the stand-in; it never is:
        # test_a_class_is_decoded_to_itself.
        return True


def make_stand_in(name: str, decode: Callable[[Any], Any], schema: Callable[[], JSONSchema]) -> StandIn:
    return cast(Any, StandIn)(name, (), {"decode": decode, "schema": schema})  # type: ignore[no-any-return]


def decode_stand_in(stand_in: Any, value: Any) -> Any:
    """The `dec_hook` that msgspec calls for stand-ins."""
    return stand_in.decode(value)


def convert(value: Any, wire: Wire) -> Any:
    """Decode a JSON value that has been parsed already. Raises `msgspec.ValidationError`."""
    try:
        return msgspec.convert(value, wire, dec_hook=decode_stand_in, str_keys=True)
    except UnicodeError:
        # test_a_lone_surrogate_is_text: msgspec takes half of a surrogate pair where it wants text, and nowhere else.
        raise msgspec.ValidationError("half of a surrogate pair, which is no character") from None


def convert_inside(value: Any, wire: Wire) -> Any:
    """The same, for within a stand-in: the path of the error goes on where the outer one ends."""
    try:
        return convert(value, wire)
    except msgspec.ValidationError as error:
        raise MisfitError(*located(error)) from None


@attrs.frozen
class Field:
    """One key of an object: the type on the wire, the keyword it becomes, and the default that the model is told."""

    key: str
    target: str
    wire: Wire
    required: bool
    default: Any = NO_DEFAULT


class ObjectShape:
    """A JSON object with known keys, and what is made of it. Unknown keys are refused."""

    def __init__(self, fields: list[Field]) -> None:
        self.fields = fields
        # Positional names, because a key need not be an identifier.
        names = {f"f{index}": field for index, field in enumerate(fields)}
        self.struct: type[msgspec.Struct] = msgspec.defstruct(
            "Object",
            [(name, f.wire) if f.required else (name, f.wire, msgspec.UNSET) for name, f in names.items()],
            kw_only=True,
            forbid_unknown_fields=True,
            rename={name: field.key for name, field in names.items()},
        )
        self._targets = [names[name].target for name in self.struct.__struct_fields__]

    def given(self, decoded: msgspec.Struct) -> dict[str, Any]:
        """What was given, as keyword arguments; what was left out is not among them."""
        pairs = zip(self._targets, msgspec.structs.astuple(decoded), strict=True)
        return {target: value for target, value in pairs if value is not msgspec.UNSET}


def check(wire: Wire) -> Wire:
    """The type itself, if msgspec takes it. Raises `TypeError`."""
    msgspec.json.Decoder(wire, dec_hook=decode_stand_in)
    return wire
