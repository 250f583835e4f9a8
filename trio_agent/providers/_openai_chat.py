"""Chat Completions: OpenAI's API, and that of the many servers which copy it.

Here lives the provider's class. How a request is written is in `_openai_chat_request.py`, how an answer is
read in `_openai_chat_reader.py`, and what servers want said differently in `_openai_chat_dialect.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from .._request import ModelRequest
from ._answer import AnswerReader
from ._base_url import BaseURL
from ._bounds import DEFAULT_BOUNDS, DEFAULT_TIMEOUTS, Bounds, Timeouts
from ._keys import Secret
from ._openai_chat_dialect import ChatDialect, dialect_of
from ._openai_chat_reader import ChatReader
from ._openai_chat_request import ChatRequestWriter
from ._pool import HTTPClient
from ._service import HTTPProvider


class OpenAIChat(HTTPProvider):
    """Speaks Chat Completions to OpenAI, OpenRouter, Groq, DeepSeek, Mistral, vLLM, llama.cpp, Ollama and others.

    `base_url` None is `OPENAI_BASE_URL` from the environment, else OpenAI's own address. `dialect` None takes the one
    of the host. See `HTTPProvider` for keys, clients and bounds.
    """

    default_base_url = "https://api.openai.com/v1"
    default_name = "openai-chat"

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | Secret | None = None,
        client: HTTPClient | None = None,
        name: str | None = None,
        dialect: ChatDialect | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        bounds: Bounds = DEFAULT_BOUNDS,
        max_connections: int = 100,
    ) -> None:
        configured = os.environ.get("OPENAI_BASE_URL", "").strip() if base_url is None else ""
        base_url = base_url or configured or self.default_base_url
        self.dialect = dialect or dialect_of(BaseURL.parse(base_url))
        # The environment's address and key belong together, whatever host the address names.
        self._variables = ("OPENAI_API_KEY",) if configured else self.dialect.key_variables
        super().__init__(
            base_url=base_url,
            api_key=api_key,
            client=client,
            name=name,
            headers=headers,
            timeouts=timeouts,
            bounds=bounds,
            max_connections=max_connections,
        )
        self._writer = ChatRequestWriter(self.dialect, self.name)

    def _key_variables(self) -> tuple[str, ...]:
        return self._variables

    def _key_headers(self, key: Secret) -> dict[str, str]:
        if self.dialect.key_header.lower() == "authorization":
            return {"authorization": f"Bearer {key.reveal()}"}
        return {self.dialect.key_header: key.reveal()}

    def _write(self, request: ModelRequest) -> tuple[str, bytes, AnswerReader]:
        body, names = self._writer.write(request)
        return "chat/completions", body, ChatReader(self.bounds, names, self._secrets)
