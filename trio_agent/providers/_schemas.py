"""Tool schemas, made fit for what APIs accept of JSON Schema.

Here lives what the wires share; the strict variant itself, and what its nulls mean, is in the kernel's
`_schema_strict.py`.
"""

from __future__ import annotations

from typing import Any

from .._errors import ToolDefinitionError
from .._request import ToolSpec
from .._schema_strict import strict_schema


def object_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a tool's parameters, which every API wants to be an object's, with properties."""
    if schema.get("type") == "object" and "properties" in schema:
        return schema
    return {**schema, "type": "object", "properties": schema.get("properties", {})}


def wire_schema(tool: ToolSpec, *, strict: bool) -> tuple[dict[str, Any], bool]:
    """The schema to send, and whether the API may be asked to hold the model to it.

    A schema that has no strict variant is sent as it is, without that wish.
    """
    schema = object_schema(tool.parameters)
    if tool.strict and strict:
        try:
            return strict_schema(schema), True
        except ToolDefinitionError:
            pass
    return schema, False
