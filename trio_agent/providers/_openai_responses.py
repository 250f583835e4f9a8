"""The Responses API: OpenAI's newer one, and that of the servers which copy it.

Here lives the provider's class. How a request is written is in `_openai_responses_request.py`, how an answer is read in
`_openai_responses_reader.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from .._errors import ProviderError
from .._provider import Send
from .._request import ModelRequest
from ._answer import AnswerReader
from ._base_url import BaseURL
from ._bounds import DEFAULT_BOUNDS, DEFAULT_TIMEOUTS, Bounds, Timeouts
from ._keys import Secret
from ._openai_chat_dialect import ChatDialect, dialect_of
from ._openai_responses_reader import ResponsesReader
from ._openai_responses_request import ResponsesWriter, Summary
from ._pool import HTTPClient
from ._service import HTTPProvider


class OpenAIResponses(HTTPProvider):
    """Speaks the Responses API to OpenAI, Azure, xAI, OpenRouter, llama.cpp, LM Studio and others.

    `base_url` None is `OPENAI_BASE_URL` from the environment, else OpenAI's own address. `store` false sends the whole
    conversation with each request, with the reasoning in it encrypted; with `store` true the service keeps it, and gets
    only what is new as long as history is as the service knows it. `summary` is how reasoning is to be summed up, None
    for not at all. For models that think, `temperature` and `top_p` are left out; this API knows neither `stop` nor
    `seed`. `dialect` None takes the one of the host. See `HTTPProvider` for keys, clients and bounds.
    """

    default_base_url = "https://api.openai.com/v1"
    default_name = "openai-responses"

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | Secret | None = None,
        client: HTTPClient | None = None,
        name: str | None = None,
        store: bool = False,
        summary: Summary | None = "auto",
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
        self._writer = ResponsesWriter(self.dialect, self.name, store=store, summary=summary)

    async def __call__(self, request: ModelRequest, send: Send, /) -> None:
        try:
            await super().__call__(request, send)
            return
        except ProviderError as error:
            if not (error.status in (400, 404) and _names_the_previous(error) and self._writer.has_links):
                raise
        # The service has forgotten the conversation. Nothing of an answer has come: all of it is sent once more.
        self._writer.forget()
        await super().__call__(request, send)

    def _key_variables(self) -> tuple[str, ...]:
        return self._variables

    def _key_headers(self, key: Secret) -> dict[str, str]:
        if self.dialect.key_header.lower() == "authorization":
            return {"authorization": f"Bearer {key.reveal()}"}
        return {self.dialect.key_header: key.reveal()}

    def _write(self, request: ModelRequest) -> tuple[str, bytes, AnswerReader]:
        written = self._writer.write(request)
        reader = ResponsesReader(
            self.bounds, written.names, self._secrets, lambda told: self._writer.remember(written, told)
        )
        return "responses", written.body, reader


def _names_the_previous(error: ProviderError) -> bool:
    return "previous response" in error.message.lower().replace("_", " ")
