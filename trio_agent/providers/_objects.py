"""Objects for the APIs that take them: a call's arguments, and the schema of a tool's.

Here lives what Anthropic, Responses and Gemini need beyond `_conversation.py` and `_schemas.py`. Pure.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import msgspec

from .._errors import ProviderError
from .._json import loads
from .._messages import Image, ToolCall
from .._request import ToolSpec
from .._schema_strict import resolved, rewrite
from ._conversation import ToolNames, object_arguments, safe_json, safe_text
from ._fragments import encode_json
from ._json_values import list_of, object_of, objects_of, text_of
from ._schemas import object_schema, wire_schema

# NUL and halves of surrogate pairs, as JSON escapes them.
_UNSAFE_ESCAPE: Final = re.compile(r"\\u(0000|[dD][89a-fA-F][0-9a-fA-F]{2})")
_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_Fields: TypeAlias = tuple[dict[str, Any], set[str]]
_JOINED: Final = ("anyOf", "oneOf", "allOf")


def embedded_arguments(call: ToolCall) -> msgspec.Raw:
    """The arguments as a JSON object inside a request: byte for byte, unless they escape what breaks servers."""
    text = object_arguments(call)
    if _UNSAFE_ESCAPE.search(text):
        return msgspec.Raw(encode_json(safe_json(loads(text))))
    return msgspec.Raw(text.encode())


def shown_image(image: Image) -> tuple[str, str] | str:
    """Media type and base64 of an image in one of the formats that all three APIs know, else a text in its place."""
    media_type = image.media_type.strip().lower().replace("image/jpg", "image/jpeg")
    if media_type not in _IMAGES or not image.data:
        return f"[an image ({safe_text(image.media_type) or 'of no type'}) that this model cannot be shown]"
    return media_type, base64.b64encode(image.data).decode("ascii")


def root_schema(tool: ToolSpec, *, strict: bool) -> tuple[dict[str, Any], bool]:
    """The schema to send, and whether strictness may be asked for. At its root there is one object, and no alternative.

    Alternatives at the root, which these APIs refuse, become one object with the properties of all of them, of
    which those are required that each of them requires. That allows more than the schema; the kernel still checks
    against the schema itself.
    """
    root = object_schema(tool.parameters)
    if any(key in root for key in (*_JOINED, "$ref")):
        merged = _one_object(root, root, {}, 8)
        defs: dict[str, Any] = {key: root[key] for key in ("$defs", "definitions", "description") if key in root}
        return {**defs, "type": "object", "properties": merged[0], "required": sorted(merged[1])}, False
    return wire_schema(tool, strict=strict)


def _one_object(schema: dict[str, Any], root: dict[str, Any], known: dict[str, _Fields], hops: int) -> _Fields:
    """Properties, and those that are required whatever the alternative. `known` has the references looked at so far."""
    properties: dict[str, Any] = dict(object_of(schema.get("properties")))
    required = {name for name in schema.get("required") or () if isinstance(name, str)}
    if not hops:
        return properties, required
    for key in _JOINED:
        needed: set[str] = set()
        parts = [_one_object(part, root, known, hops - 1) for part in objects_of(schema.get(key))]
        if key == "allOf" and "$ref" in schema:
            parts.append(_referred(schema["$ref"], root, known, hops - 1))
        for found, _ in parts:
            properties = {**found, **properties}
        for at, (_, names) in enumerate(parts):
            needed = names if at == 0 else needed | names if key == "allOf" else needed & names
        required |= needed
    return properties, required


def _referred(reference: Any, root: dict[str, Any], known: dict[str, _Fields], hops: int) -> _Fields:
    """The fields of what is referred to. Looked at once: alternatives that refer to each other are many ways round."""
    name = str(reference)
    if name not in known:
        known[name] = {}, set()  # inside of itself it adds nothing
        known[name] = _one_object(dict(resolved({"$ref": reference}, root)), root, known, hops)
    return known[name]


def without(schema: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """The schema without these keywords, which go into the description, so that the model still knows of them."""
    unwanted = set(keys)

    def change(part: dict[str, Any]) -> dict[str, Any]:
        lost = {key: part[key] for key in part if key in unwanted}
        if not lost:
            return part
        words = ", ".join([f"{key}: {encode_json(value).decode()}" for key, value in lost.items()])
        kept = {key: value for key, value in part.items() if key not in unwanted}
        return {**kept, "description": " ".join(filter(None, (text_of(part.get("description")), f"({words})")))}

    changed: dict[str, Any] = rewrite(schema, change)
    return changed


def is_recursive(schema: dict[str, Any]) -> bool:
    """Whether some part of the schema refers, by whatever way, to what it is a part of."""
    names: dict[str, set[str]] = {}

    def references(part: Any) -> set[str]:
        if isinstance(part, list):
            return {name for item in list_of(part) for name in references(item)}
        fields = object_of(part)
        below = {
            name for key, item in fields.items() if key not in ("$defs", "definitions") for name in references(item)
        }
        return below | ({fields["$ref"]} if isinstance(fields.get("$ref"), str) else set())

    for key in ("$defs", "definitions"):
        for name, part in object_of(schema.get(key)).items():
            names[f"#/{key}/{name}"] = references(part)
    names["#"] = references(schema)
    for name in names:
        reached: set[str] = set()
        ahead = set(names[name])
        while ahead:
            reached |= ahead
            ahead = {further for one in ahead for further in names.get(one, ())} - reached
        if name in reached:
            return True
    return False


def chosen(choice: str, names: ToolNames, tools: Iterable[ToolSpec]) -> str:
    """The wire's name of the tool that `tool_choice` names. Raises `ProviderError` where it is none of these."""
    if all(tool.name != choice for tool in tools):
        raise ProviderError("invalid_request", f"tool_choice names {choice!r}, which is none of the request's tools")
    return names.wire(choice)
