"""Gemini's API: `streamGenerateContent`, as the Gemini API and Vertex AI have it.

Here lives the provider's class. How a request is written is in `_gemini_request.py`, how an answer is read in
`_gemini_reader.py`, and what single models want in `_gemini_models.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final
from urllib.parse import quote

from .._request import ModelRequest
from ._answer import AnswerReader
from ._base_url import BaseURL
from ._bounds import DEFAULT_BOUNDS, DEFAULT_TIMEOUTS, Bounds, Timeouts
from ._gemini_reader import GenerateContentReader
from ._gemini_request import GenerateContentWriter
from ._json_values import text_of
from ._keys import Secret
from ._pool import HTTPClient
from ._service import HTTPProvider

_VERSIONED: Final = re.compile(r"/v\d+[a-z0-9]*(/|$)")


class Gemini(HTTPProvider):
    """Speaks to Google's Gemini API, and with a base URL down to its publisher to Vertex AI.

    `base_url` None is `GOOGLE_GEMINI_BASE_URL` from the environment, else the Gemini API's own address; an address
    without a version gets `/v1beta`, as the official clients do. This API cannot be told whether calls may be parallel,
    nor to hold a model to a schema strictly. See `HTTPProvider` for keys, clients and bounds.
    """

    default_base_url = "https://generativelanguage.googleapis.com/v1beta"
    default_name = "gemini"
    _first_page: ClassVar[Mapping[str, str]] = {"pageSize": "1000"}

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | Secret | None = None,
        client: HTTPClient | None = None,
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        bounds: Bounds = DEFAULT_BOUNDS,
        max_connections: int = 100,
    ) -> None:
        configured = os.environ.get("GOOGLE_GEMINI_BASE_URL", "").strip() if base_url is None else ""
        given = base_url or configured or self.default_base_url
        address = BaseURL.parse(given)
        own = bool(configured) or address.is_under("generativelanguage.googleapis.com")
        self._variables = ("GEMINI_API_KEY", "GOOGLE_API_KEY") if own else ()
        super().__init__(
            base_url=given if _VERSIONED.search(address.path) else address.join("v1beta"),
            api_key=api_key,
            client=client,
            name=name,
            headers=headers,
            timeouts=timeouts,
            bounds=bounds,
            max_connections=max_connections,
        )
        self._writer = GenerateContentWriter(self.name)

    def _key_variables(self) -> tuple[str, ...]:
        return self._variables

    def _key_headers(self, key: Secret) -> dict[str, str]:
        return {"x-goog-api-key": key.reveal()}

    def _next_page(self, document: Mapping[str, Any], /) -> Mapping[str, str] | None:
        token = text_of(document.get("nextPageToken"))
        return {**self._first_page, "pageToken": token} if token else None

    def _write(self, request: ModelRequest) -> tuple[str, bytes, AnswerReader]:
        body, names = self._writer.write(request)
        model = request.model if "/" in request.model else f"models/{request.model}"
        path = f"{quote(model, safe='/@.:-_')}:streamGenerateContent?alt=sse"
        return path, body, GenerateContentReader(self.bounds, names, self._secrets)
