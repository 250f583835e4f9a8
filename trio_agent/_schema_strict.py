"""JSON Schemas rewritten: the strict variant, and what the nulls of a strict answer stand for.

Here live plain functions from a schema to a new one; no schema is changed in place. Where a schema comes from is in
`_schema.py` and `_validation.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeGuard

from ._errors import ToolDefinitionError

# A JSON Schema, or part of one: a mapping, or a bool where the dialect allows it.
Schema: TypeAlias = Any

_NAMED: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
_LISTED: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SINGLE: Final = frozenset(
    {"items", "additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "contains"}
    | {"propertyNames", "not", "if", "then", "else"}
)
_NULL: Final = {"type": "null"}
_JSON_TYPES: Final[dict[type, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    list: "array",
    dict: "object",
}
_MAX_HOPS: Final = 8  # references and alternatives that lead straight to the next; more are taken for a circle


def is_object(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def is_array(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, list | tuple)


def rewrite(schema: Schema, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Schema:
    """A copy in which every schema, from the innermost to the outermost, is what `change` made of it."""
    if not is_object(schema):
        return schema
    return change({key: _rewrite_below(key, value, change) for key, value in schema.items()})


def _rewrite_below(key: str, value: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    if key in _NAMED and is_object(value):
        return {name: rewrite(inner, change) for name, inner in value.items()}
    if (key in _LISTED or key in _SINGLE) and is_array(value):
        return [rewrite(inner, change) for inner in value]
    return rewrite(value, change) if key in _SINGLE else value


def with_enum_types(schema: Schema) -> Schema:
    """A copy in which every `enum` has a `type` beside it, which some services ask for."""
    return rewrite(schema, _with_enum_type)


def _with_enum_type(schema: dict[str, Any]) -> dict[str, Any]:
    if "enum" not in schema or "type" in schema:
        return schema
    types = list(dict.fromkeys([json_type(value) for value in schema["enum"]]))
    return {"type": types[0] if len(types) == 1 else types, **schema}


def json_type(value: object) -> str:
    """What JSON calls a value of this kind."""
    return next((_JSON_TYPES[kind] for kind in type(value).__mro__ if kind in _JSON_TYPES), "value")


def strict_schema(schema: Schema) -> dict[str, Any]:
    """The variant that services accept under strict rules: closed objects, every key required, no defaults.

    A key that was optional becomes nullable. Whatever fits the variant fits the schema, once `without_nulls` has
    taken out the nulls. Raises `ToolDefinitionError` for an object whose keys are not known beforehand.
    """
    strict: dict[str, Any] = rewrite(schema, _strict)
    return strict


def _strict(schema: dict[str, Any]) -> dict[str, Any]:
    changed = {key: value for key, value in schema.items() if key != "default"}
    if "$ref" in changed and len(changed) > 1 and "$defs" not in changed:
        # Services refuse a reference that has neighbours.
        changed = {"anyOf": [{"$ref": changed.pop("$ref")}], **changed}
    if "properties" in changed:
        properties: Mapping[str, Any] = schema["properties"]
        required: Sequence[str] = schema.get("required", ())
        changed["properties"] = {
            name: inner if name in required else _nullable(inner) for name, inner in properties.items()
        }
        changed["required"] = list(properties)
        changed["additionalProperties"] = False
    elif "object" in _types(changed) and changed.get("additionalProperties") is not False:
        raise ToolDefinitionError(
            "strict=True cannot express an object whose keys are not known beforehand (such as dict[str, int]); "
            "name its keys, or leave out strict=True"
        )
    return changed


def _types(schema: Mapping[str, Any]) -> list[Any]:
    declared: Any = schema.get("type", [])
    return list(declared) if is_array(declared) else [declared]


def _nullable(schema: Schema) -> Schema:
    """The schema, with null allowed as well."""
    if accepts_null(schema, {}):
        return schema
    if not is_object(schema):
        return {"anyOf": [schema, _NULL]}
    keys = set(schema)
    if "anyOf" in keys and not keys & {"$ref", "type", "enum", "const", "oneOf", "allOf", "not"}:
        return {**schema, "anyOf": [*schema["anyOf"], _NULL]}
    if "type" in keys and not keys & {"$ref", "const", "anyOf", "oneOf", "allOf", "not"}:
        enum: dict[str, Any] = {"enum": [*schema["enum"], None]} if "enum" in keys else {}
        return {**schema, "type": [*_types(schema), "null"], **enum}
    described = {key: value for key, value in schema.items() if key in ("title", "description")}
    return {"anyOf": [{key: value for key, value in schema.items() if key not in described}, _NULL], **described}


def resolved(schema: Schema, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a schema that is only a local reference refers to; an empty schema where that leads nowhere."""
    for _ in range(_MAX_HOPS):
        if not is_object(schema):
            return {}
        reference: Any = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        schema = at_pointer(root, reference)
    return {}


def at_pointer(root: Mapping[str, Any], reference: str) -> Schema:
    """The part of a schema that a reference such as `#/$defs/Point` names, or None: anchors are not followed."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    found: Any = root
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if not is_object(found) or name not in found:
            return None
        found = found[name]
    return found


def accepts_null(schema: Schema, root: Mapping[str, Any], hops: int = _MAX_HOPS) -> bool:
    """Whether null fits, as far as type, enum, const and alternatives say; with no root, no reference is followed."""
    if not is_object(schema) or not hops:
        return schema is True

    def accepts(inner: Schema) -> bool:
        return accepts_null(inner, root, hops - 1)

    if "$ref" in schema:
        target = resolved(schema, root)
        return bool(target) and accepts(target)
    return (
        ("type" not in schema or "null" in _types(schema))
        and ("enum" not in schema or None in schema["enum"])
        and ("const" not in schema or schema["const"] is None)
        and all(any(map(accepts, schema[key])) for key in ("anyOf", "oneOf") if key in schema)
        and all(map(accepts, schema.get("allOf", ())))
    )


def without_nulls(value: Any, schema: Schema, root: Mapping[str, Any]) -> Any:
    """The value less each null that a strict variant forced: given for an optional key that takes no null.

    Leaving the key out makes the default apply.
    """
    fitting = _fitting(value, schema, root)
    if is_array(value):
        items: Schema = fitting.get("items")
        return [without_nulls(item, items, root) for item in value]
    if not is_object(value):
        return value
    properties: Mapping[str, Any] = fitting.get("properties", {})
    required: Sequence[str] = fitting.get("required", ())
    return {
        key: without_nulls(item, properties.get(key), root)
        for key, item in value.items()
        if item is not None or key not in properties or key in required or accepts_null(properties[key], root)
    }


def _fitting(value: Any, schema: Schema, root: Mapping[str, Any], hops: int = _MAX_HOPS) -> Mapping[str, Any]:
    """The schema, or the first of its alternatives, that a list or object is likely meant for."""
    found = resolved(schema, root)
    for inner in [*found.get("anyOf", ()), *found.get("oneOf", ())] if hops else ():
        alternative = _fitting(value, inner, root, hops - 1)
        if is_array(value) and "array" in _types(alternative):
            return alternative
        if is_object(value) and _has_keys(alternative, value):
            return alternative
    return found


def _has_keys(schema: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    properties: Mapping[str, Any] = schema.get("properties", {})
    return bool(properties) and all(key in properties and _admits(properties[key], value[key]) for key in value)


def _admits(schema: Schema, value: Any) -> bool:
    """Whether enum and const, which tell alternatives apart, allow the value, or it is null, which may be forced."""
    if value is None or not is_object(schema):
        return True
    allowed: Sequence[Any] = schema.get("enum", (value,))
    return value in allowed and bool(value == schema.get("const", value))
