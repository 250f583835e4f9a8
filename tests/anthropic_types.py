"""Anthropic's own request types, closed: a body that the official client would not type-check is refused.

Here lives the use of the official SDK as a judge; see `openai_types.py` for the two traps that are avoided.
"""

from __future__ import annotations

import functools
from typing import Any

from pydantic import TypeAdapter

from tests.openai_types import close_types, exhaust

# The newest version of the API has taken these back; the version that we ask for has them.
_OLDER = frozenset({"temperature", "top_p"})


@functools.cache
def messages_adapter() -> TypeAdapter[Any]:
    close_types("anthropic.types", without="beta")
    from anthropic.types.message_create_params import MessageCreateParamsStreaming

    return TypeAdapter(MessageCreateParamsStreaming)


def validate_messages_request(body: dict[str, Any]) -> None:
    """Raises `ValidationError` for what Anthropic's types do not allow."""
    exhaust(messages_adapter().validate_python({key: body[key] for key in body if key not in _OLDER}))
