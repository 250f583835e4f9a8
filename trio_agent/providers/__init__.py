"""Model services: one class per API, each importable from here.

Here lives the lazy re-export alone: the module behind a name, and with it httpx, is imported when the
name is first used, so that `import trio_agent.providers` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._anthropic import Anthropic as Anthropic
    from ._bounds import Bounds as Bounds
    from ._bounds import Timeouts as Timeouts
    from ._fallback import FallbackProvider as FallbackProvider
    from ._gemini import Gemini as Gemini
    from ._grammar_tools import GrammarTools as GrammarTools
    from ._keys import Secret as Secret
    from ._local import Local as Local
    from ._local_model import LocalModelError as LocalModelError
    from ._openai_chat import OpenAIChat as OpenAIChat
    from ._openai_chat_dialect import ChatDialect as ChatDialect
    from ._openai_responses import OpenAIResponses as OpenAIResponses
    from ._prices import price as price
    from ._recording import RecordingProvider as RecordingProvider
    from ._recording import ReplayError as ReplayError
    from ._recording import ReplayProvider as ReplayProvider
    from ._recording_format import RecordingError as RecordingError

_HOMES = {
    "Anthropic": "_anthropic",
    "Bounds": "_bounds",
    "ChatDialect": "_openai_chat_dialect",
    "FallbackProvider": "_fallback",
    "Gemini": "_gemini",
    "GrammarTools": "_grammar_tools",
    "Local": "_local",
    "LocalModelError": "_local_model",
    "OpenAIChat": "_openai_chat",
    "OpenAIResponses": "_openai_responses",
    "RecordingError": "_recording_format",
    "RecordingProvider": "_recording",
    "ReplayError": "_recording",
    "ReplayProvider": "_recording",
    "Secret": "_keys",
    "Timeouts": "_bounds",
    "price": "_prices",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
