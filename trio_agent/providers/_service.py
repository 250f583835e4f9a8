"""The base of all HTTP providers: address, key, client, headers, and the two calls that every wire shares.

Here lives what a user of any of them can set. A wire adds how a request is written and how an answer is
read, and nothing else; neither waits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Any, ClassVar, Final, TypeVar
from urllib.parse import urlencode

import trio

from .._errors import ProviderError
from .._provider import Send
from .._request import ModelRequest
from ._answer import AnswerReader, excerpt
from ._base_url import BaseURL
from ._bounds import DEFAULT_BOUNDS, DEFAULT_TIMEOUTS, Bounds, Timeouts
from ._http import Exchange, Outgoing
from ._json_values import list_of, object_of, text_of
from ._keys import HeaderSecrets, Secret, as_secret, redacted, secret_from_environment
from ._pool import HTTPClient, Pool, library_of

Self = TypeVar("Self", bound="HTTPProvider")
_MOST_PAGES: Final = 100
_NO_QUERY: Final[Mapping[str, str]] = {}


class HTTPProvider(ABC):
    """A model service over HTTP. Use it inside `async with provider:`, in one `trio.run` at a time.

    With a `client` of the user's own (httpx or httpx2; it stays open, and its settings for TLS and proxies
    hold) it may be called without `async with`. `api_key` None takes the key from the environment, but only
    where the host is the one that the key is for; text without a key in it means that none is sent. Any number
    of calls may run at once; those beyond `max_connections` wait for a slot.
    """

    default_base_url: ClassVar[str]
    default_name: ClassVar[str]
    _first_page: ClassVar[Mapping[str, str]] = _NO_QUERY  # what is asked of the list of models

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
        if client is not None:
            library_of(client)
        if max_connections < 1:
            raise ValueError("max_connections must be at least 1")
        self.base_url = BaseURL.parse(base_url or self.default_base_url)
        self.name = name or self.default_name
        self.timeouts = timeouts
        self.bounds = bounds
        key = secret_from_environment(*self._key_variables()) if api_key is None else as_secret(api_key)
        self._headers = HeaderSecrets(
            {"content-type": "application/json", **(self._key_headers(key) if key else {}), **(headers or {})}
        )
        self._secrets = (key,) if key else ()
        self._pool = Pool(client, max_connections)
        self._exchange = Exchange(self._pool, self.base_url, timeouts, bounds, self._secrets)
        self._entered = False

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The keys that it holds, so that they can be kept out of what is written."""
        return self._secrets

    @property
    def missing_key(self) -> str | None:
        """The environment variable that should hold the key: where there is none, at the maker's own address."""
        names = self._key_variables()
        return names[0] if names and not self._secrets and str(self.base_url) == self.default_base_url else None

    @abstractmethod
    def _key_variables(self) -> tuple[str, ...]:
        """The environment variables that may hold the key for this base URL's host."""

    @abstractmethod
    def _key_headers(self, key: Secret) -> dict[str, str]: ...

    @abstractmethod
    def _write(self, request: ModelRequest) -> tuple[str, bytes, AnswerReader]:
        """Path and body of the request, and a reader for its answer. Does not wait."""

    async def __call__(self, request: ModelRequest, send: Send, /) -> None:
        path, body, reader = self._write(request)
        headers = {"accept": "text/event-stream, application/json"}
        await self._exchange.stream(self._outgoing("POST", path, body, headers, request), reader, send)

    async def models(self) -> tuple[str, ...]:
        """The names of all models that the service offers, in its order. Raises `ProviderError`."""
        names: list[str] = []
        query = self._first_page
        for _ in range(_MOST_PAGES):
            path = f"models?{urlencode(query)}" if query else "models"
            outgoing = self._outgoing("GET", path, None, {"accept": "application/json"})
            document = await self._exchange.document(outgoing)
            names += _model_names(document, self._secrets)
            following = self._next_page(object_of(document))
            if following is None:
                return tuple(names)
            if following == query:
                break
            query = following
        raise ProviderError("protocol", f"the list of models that {self.base_url.host} sends has no end")

    def _next_page(self, _document: Mapping[str, Any], /) -> Mapping[str, str] | None:
        """The query for the page behind this one of the list of models, None where it was the last."""
        return None

    def _outgoing(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        request: ModelRequest | None = None,
    ) -> Outgoing:
        extra = HeaderSecrets({} if request is None else request.settings.extra_headers)
        path, _, query = path.partition("?")
        # The names are compared as HTTP does, so that a header of the user's replaces ours.
        merged = {name.lower(): value for part in (headers, self._headers, extra) for name, value in part.items()}
        return Outgoing(method=method, url=self.base_url.join(path, query), headers=merged, content=body)

    async def __aenter__(self: Self) -> Self:
        if self._entered:
            raise RuntimeError("the provider is open already; open it once and share it")
        self._entered = True
        self._pool.open()
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered = False
        with trio.move_on_after(self.timeouts.close, shield=True):
            await self._pool.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} at {self.base_url}>"


def _model_names(document: Any, secrets: tuple[Secret, ...]) -> list[str]:
    """Names from the lists that services give: `{"data": [{"id": …}]}`, `{"models": [{"name": …}]}`, or a bare list."""
    given = object_of(document)
    places: tuple[Any, ...] = (given.get("data"), given.get("models"), document)
    listed = next((list_of(found) for found in places if isinstance(found, list)), None)
    if listed is None and document != {}:  # Google leaves out what is empty
        raise ProviderError(
            "protocol", f"the server sent no list of models: {excerpt(redacted(repr(document), secrets))}"
        )
    entries = [(object_of(entry).get("id"), object_of(entry).get("name"), entry) for entry in listed or ()]
    names = [text_of(found) or text_of(name) or text_of(entry) for found, name, entry in entries]
    return [name.removeprefix("models/") for name in names if name]
