"""What a model is asked: the request, its settings, and what it is told about tools.

Here live frozen values that a provider reads. Calling a provider is the run's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import attrs

from ._json import dumps, loads
from ._messages import Message
from ._quick import quick

# How hard a model shall think. Each provider maps the word to its own dial.
Reasoning: TypeAlias = Literal["off", "minimal", "low", "medium", "high", "max"]


def _frozen_mapping(value: Mapping[str, Any] | str | None) -> str:
    # Frozen already: `attrs.evolve` hands on what is there.
    return value if isinstance(value, str) else dumps(dict(value or {}))


@attrs.frozen(init=False)
class ToolSpec:
    """What a model is told about a tool. `parameters` is a JSON Schema; each look decodes a fresh one.

    `strict` asks the provider to hold the model to the schema, where it can.
    """

    name: str
    description: str
    _parameters: str
    strict: bool | None

    def __init__(self, name: str, description: str, parameters: Mapping[str, Any], strict: bool | None = None) -> None:
        self.__attrs_init__(  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # made by attrs
            name, description, dumps(dict(parameters)), strict
        )

    @property
    def parameters(self) -> dict[str, Any]:
        schema: dict[str, Any] = loads(self._parameters)
        return schema

    @property
    def parameters_json(self) -> str:
        """The schema as JSON text, for who only passes it on."""
        return self._parameters


@attrs.frozen(kw_only=True)
class ModelSettings:
    """Options of a request that most services know; None leaves the service its default.

    `tool_choice` is `auto`, `none`, `required` or a tool's name. `extra_body` is merged into the request's
    JSON and `extra_headers` into its headers, after everything else.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    stop: tuple[str, ...] = attrs.field(default=(), converter=tuple)
    seed: int | None = None
    tool_choice: str | None = None
    parallel_tool_calls: bool | None = None
    _extra_body: str = attrs.field(default=None, converter=_frozen_mapping, alias="extra_body")
    _extra_headers: str = attrs.field(default=None, converter=_frozen_mapping, alias="extra_headers", repr=False)

    @property
    def extra_body(self) -> dict[str, Any]:
        body: dict[str, Any] = loads(self._extra_body)
        return body

    @property
    def extra_headers(self) -> dict[str, str]:
        headers: dict[str, str] = loads(self._extra_headers)
        return headers


DEFAULT_SETTINGS = ModelSettings()


@attrs.frozen(kw_only=True)
class ModelRequest:
    """One request to a model: everything a provider needs, and nothing it could change.

    `messages` is what `convert_to_llm` made of history: user, assistant and tool-result messages.
    """

    model: str
    system_prompt: str = ""
    messages: Sequence[Message] = ()
    tools: tuple[ToolSpec, ...] = ()
    reasoning: Reasoning = "off"
    settings: ModelSettings = DEFAULT_SETTINGS


model_request = quick(ModelRequest)
