"""OpenAI's own request types, closed: a body that the official client would not type-check is refused.

Here lives the use of the official SDK as a judge. Two traps are avoided: its TypedDicts let unknown keys pass,
and pydantic looks into an `Iterable` only when somebody goes through it.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, TypeAdapter
from typing_extensions import is_typeddict

openai = pytest.importorskip("openai")


def close_types(package: str, without: str = "-") -> None:
    """Forbid unknown keys in every TypedDict below the package, but for its parts of the name `without`."""
    root = importlib.import_module(package)
    for info in pkgutil.walk_packages(root.__path__, f"{package}."):
        if f".{without}" in info.name:
            continue
        for value in vars(importlib.import_module(info.name)).values():
            if isinstance(value, type) and is_typeddict(value) and value.__module__.startswith(package.split(".")[0]):
                value.__pydantic_config__ = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)  # type: ignore[attr-defined]


@functools.cache
def chat_adapter() -> TypeAdapter[Any]:
    close_types("openai.types")
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

    return TypeAdapter(CompletionCreateParamsStreaming)


@functools.cache
def responses_adapter() -> TypeAdapter[Any]:
    close_types("openai.types")
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

    return TypeAdapter(ResponseCreateParamsStreaming)


def exhaust(value: Any) -> None:
    """Go through everything, so that what is validated lazily is validated.

    A model among it is a class for answers, which some SDKs allow in requests too; those let every key pass.
    """
    assert not isinstance(value, BaseModel), f"no type for requests fits: {value!r}"
    if isinstance(value, Mapping):
        for item in value.values():
            exhaust(item)
    elif isinstance(value, list | tuple | Iterator):
        for item in value:
            exhaust(item)


def validate_chat_request(body: dict[str, Any]) -> None:
    """Raises `ValidationError` for what OpenAI's types do not allow."""
    # `strict` in the body's own sense: what came from JSON is of JSON's types; `max_tokens` is deprecated, not gone.
    exhaust(chat_adapter().validate_python(body))


def validate_responses_request(body: dict[str, Any]) -> None:
    """Raises `ValidationError` for what OpenAI's types do not allow."""
    exhaust(responses_adapter().validate_python(body))
