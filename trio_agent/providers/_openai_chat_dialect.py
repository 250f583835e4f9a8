"""What the many servers of Chat Completions want said differently.

Here live frozen values and the table of known hosts. A server that is not in the table gets the plain form,
which most understand; a dialect can be passed for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from .._request import Reasoning
from ._base_url import BaseURL
from ._conversation import Alphabet

ReasoningDial: TypeAlias = Callable[[Reasoning], Mapping[str, Any]]
ReasoningField: TypeAlias = Literal["reasoning_content", "reasoning", "reasoning_details"]

_CALL_IDS: Final = Alphabet.of("a-zA-Z0-9_-", 40)
_MISTRAL_CALL_IDS: Final = Alphabet.of("a-zA-Z0-9", 9, exact=True)


def reasoning_effort(level: Reasoning) -> Mapping[str, Any]:
    """`reasoning_effort`, as OpenAI and most who copy it have it. `off` sends nothing."""
    return {} if level == "off" else {"reasoning_effort": "high" if level == "max" else level}


def _openai_effort(level: Reasoning) -> Mapping[str, Any]:
    return {} if level == "off" else {"reasoning_effort": "xhigh" if level == "max" else level}


def _low_to_high(level: Reasoning) -> Mapping[str, Any]:
    """For those who refuse every other word."""
    return {} if level == "off" else {"reasoning_effort": {"minimal": "low", "max": "high"}.get(level, level)}


def _openrouter_effort(level: Reasoning) -> Mapping[str, Any]:
    return {} if level == "off" else {"reasoning": {"effort": "xhigh" if level == "max" else level}}


def _nothing(_level: Reasoning) -> Mapping[str, Any]:
    return {}


@attrs.frozen(kw_only=True)
class ChatDialect:
    """How a server of Chat Completions is spoken to.

    `empty_content` is what stands beside tool calls where there is no text: null or an empty string.
    `stream_usage` asks for usage in the stream; `strict_tools` passes the wish for strict schemas on.
    `reasoning` maps the dial to fields of the body; `reasoning_field` is where the reasoning of earlier
    answers of the same model goes back, beside their tool calls, or None where it must not. `images` false puts
    a text in the place of every image. `merge_users` makes one message of user messages in a row, for chat templates
    that insist on user and assistant taking turns, as some models have them. `cache_key` sends a `prompt_cache_key`
    made of system prompt and tools, so that the turns of a conversation meet the same cache.
    """

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    system_role: Literal["system", "developer"] = "system"
    empty_content: Literal[""] | None = None
    stream_usage: bool = True
    strict_tools: bool = True
    reasoning: ReasoningDial = reasoning_effort
    reasoning_field: ReasoningField | None = None
    images: bool = True
    merge_users: bool = False
    cache_key: bool = False
    call_ids: Alphabet = _CALL_IDS
    key_header: str = "authorization"
    key_variables: tuple[str, ...] = ()


PLAIN: Final = ChatDialect()

_OPENAI: Final = ChatDialect(
    max_tokens_field="max_completion_tokens",
    reasoning=_openai_effort,
    cache_key=True,
    key_variables=("OPENAI_API_KEY",),
)
_KNOWN: Final[tuple[tuple[tuple[str, ...], ChatDialect], ...]] = (
    (("api.openai.com",), _OPENAI),
    (
        ("openai.azure.com", "services.ai.azure.com", "cognitiveservices.azure.com"),
        attrs.evolve(_OPENAI, cache_key=False, key_header="api-key", key_variables=("AZURE_OPENAI_API_KEY",)),
    ),
    (
        ("openrouter.ai",),
        ChatDialect(
            reasoning=_openrouter_effort, reasoning_field="reasoning_details", key_variables=("OPENROUTER_API_KEY",)
        ),
    ),
    (
        ("api.mistral.ai",),
        ChatDialect(
            call_ids=_MISTRAL_CALL_IDS,
            stream_usage=False,
            strict_tools=False,
            reasoning=_nothing,
            key_variables=("MISTRAL_API_KEY",),
        ),
    ),
    (
        ("api.deepseek.com",),
        ChatDialect(
            reasoning=_nothing,
            reasoning_field="reasoning_content",
            strict_tools=False,
            images=False,
            key_variables=("DEEPSEEK_API_KEY",),
        ),
    ),
    (("api.groq.com",), ChatDialect(reasoning=_low_to_high, key_variables=("GROQ_API_KEY",))),
    (("api.x.ai",), ChatDialect(reasoning=_low_to_high, key_variables=("XAI_API_KEY",))),
    (("api.together.xyz", "api.together.ai"), ChatDialect(key_variables=("TOGETHER_API_KEY",))),
    (("api.cerebras.ai",), ChatDialect(images=False, key_variables=("CEREBRAS_API_KEY",))),
    (("api.perplexity.ai",), ChatDialect(key_variables=("PERPLEXITY_API_KEY", "PPLX_API_KEY"))),
    (("api.fireworks.ai",), ChatDialect(key_variables=("FIREWORKS_API_KEY",))),
    (
        ("api.moonshot.ai", "api.moonshot.cn"),
        ChatDialect(reasoning=_nothing, reasoning_field="reasoning_content", key_variables=("MOONSHOT_API_KEY",)),
    ),
)


def dialect_of(base_url: BaseURL) -> ChatDialect:
    """The dialect of a known host, or the plain one."""
    return next((dialect for hosts, dialect in _KNOWN if base_url.is_under(*hosts)), PLAIN)
