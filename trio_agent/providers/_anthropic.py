"""Anthropic's Messages API, and that of the servers which copy it.

Here lives the provider's class. How a request is written is in `_anthropic_request.py`, how an answer is read in
`_anthropic_reader.py`, and what single models want in `_anthropic_models.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from .._request import ModelRequest
from ._answer import AnswerReader
from ._anthropic_reader import MessagesReader
from ._anthropic_request import CacheTime, MessagesWriter
from ._base_url import BaseURL
from ._bounds import DEFAULT_BOUNDS, DEFAULT_TIMEOUTS, Bounds, Timeouts
from ._json_values import text_of
from ._keys import Secret
from ._openai_chat_dialect import dialect_of
from ._pool import HTTPClient
from ._service import HTTPProvider

_VERSION: Final = "2023-06-01"  # later ones take the same requests, but for temperature and top_p
_VERSIONED: Final = re.compile(r"/v\d+[a-z0-9]*$")


class Anthropic(HTTPProvider):
    """Speaks the Messages API to Anthropic, llama.cpp, DeepSeek and others.

    `base_url` None is `ANTHROPIC_BASE_URL` from the environment, else Anthropic's own address; an address without
    `/v1` at its end gets it, as the official clients do. `cache` is how long what a conversation begins with is kept
    for the next request, None for not at all. While a model thinks, and for models that refuse them, `temperature` and
    `top_p` are left out; this API knows no `seed`. Under a forced tool choice models do not think.
    See `HTTPProvider` for keys, clients and bounds.
    """

    default_base_url = "https://api.anthropic.com/v1"
    default_name = "anthropic"
    _first_page: ClassVar[Mapping[str, str]] = {"limit": "1000"}

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | Secret | None = None,
        client: HTTPClient | None = None,
        name: str | None = None,
        cache: CacheTime | None = "5m",
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        bounds: Bounds = DEFAULT_BOUNDS,
        max_connections: int = 100,
    ) -> None:
        if cache not in ("5m", "1h", None):
            raise ValueError("cache must be '5m', '1h' or None")
        configured = os.environ.get("ANTHROPIC_BASE_URL", "").strip() if base_url is None else ""
        address = BaseURL.parse(base_url or configured or self.default_base_url)
        if configured or address.is_under("anthropic.com"):
            self._variables: tuple[str, ...] = ("ANTHROPIC_API_KEY",)
        else:
            self._variables = dialect_of(address).key_variables
        super().__init__(
            base_url=base_url or configured if _VERSIONED.search(address.path) else address.join("v1"),
            api_key=api_key,
            client=client,
            name=name,
            headers={"anthropic-version": _VERSION, **{key.lower(): text for key, text in (headers or {}).items()}},
            timeouts=timeouts,
            bounds=bounds,
            max_connections=max_connections,
        )
        self._writer = MessagesWriter(self.name, cache)

    def _key_variables(self) -> tuple[str, ...]:
        return self._variables

    def _key_headers(self, key: Secret) -> dict[str, str]:
        return {"x-api-key": key.reveal()}

    def _next_page(self, document: Mapping[str, Any], /) -> Mapping[str, str] | None:
        last = text_of(document.get("last_id"))
        return {**self._first_page, "after_id": last} if document.get("has_more") is True and last else None

    def _write(self, request: ModelRequest) -> tuple[str, bytes, AnswerReader]:
        body, names = self._writer.write(request)
        return "messages", body, MessagesReader(self.bounds, names, self._secrets)
