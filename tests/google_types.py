"""Google's own request types: a body that the official client would not have sent is refused.

Here lives the use of the official SDK as a judge. Its models forbid unknown keys already; the body as a whole has no
model there, since the SDK puts it together from these parts.
"""

from __future__ import annotations

import functools
import json
from typing import Any

from google.genai import types
from pydantic import TypeAdapter

_PARTS: dict[str, Any] = {
    "contents": list[types.Content],
    "systemInstruction": types.Content,
    "tools": list[types.Tool],
    "toolConfig": types.ToolConfig,
    "generationConfig": types.GenerationConfig,
}


@functools.cache
def adapter_of(key: str) -> TypeAdapter[Any]:
    return TypeAdapter(_PARTS[key])


def validate_generate_request(body: dict[str, Any]) -> None:
    """Raises `ValidationError` for what Google's types do not allow, `KeyError` for a field that they do not have."""
    assert "_" not in "".join(keys_of({key: body[key] for key in body if key != "tools"}))
    for key, value in body.items():
        # As JSON, so that what is bytes there must be base64 here.
        adapter_of(key).validate_json(json.dumps(value), strict=True)


def keys_of(value: Any) -> list[str]:
    """All keys of the API's own (arguments are not): the SDK takes Python's spelling too, the service does not."""
    if isinstance(value, list):
        return [key for item in value for key in keys_of(item)]
    if not isinstance(value, dict):
        return []
    return [*value, *(key for name, item in value.items() if name not in ("args", "response") for key in keys_of(item))]
