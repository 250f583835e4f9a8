"""An httpx client, and as many slots as its pool has connections.

Here lives what httpx's pool needs around it under Trio. httpx 0.28 loses a slot when a request is cancelled
that waits in the pool's own queue; a limiter of the pool's size in front means that none ever waits there.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Protocol, TypeAlias
from weakref import WeakKeyDictionary

import trio

from ._body import BytesAtHand

_Limiters: TypeAlias = "WeakKeyDictionary[HTTPClient, trio.CapacityLimiter]"
_limiters: trio.lowlevel.RunVar[_Limiters] = trio.lowlevel.RunVar("limiters")


class HTTPClient(Protocol):
    """What is used of `httpx.AsyncClient`, and of `httpx2.AsyncClient`, which has the same API."""

    def build_request(
        self,
        method: str,
        url: Any,
        *,
        content: Any = ...,
        headers: Any = ...,
        timeout: Any = ...,
        extensions: Any = ...,
    ) -> Any: ...

    async def send(self, request: Any, *, stream: bool = ..., follow_redirects: Any = ...) -> Any: ...

    async def aclose(self) -> None: ...


class Pool:
    """A client of ours, opened and closed with the provider, or one that the user passed and keeps.

    The slots are those of the client, shared by all who use it in one `trio.run`.
    """

    def __init__(self, client: HTTPClient | None, max_connections: int) -> None:
        self._given = client
        self._client = client
        self._max_connections = max_connections

    def open(self) -> None:
        """Make the client, unless one was given. Does not block."""
        if self._client is None:
            library = importlib.import_module("httpx")
            limits = library.Limits(
                max_connections=self._max_connections, max_keepalive_connections=self._max_connections
            )
            self._client = library.AsyncClient(limits=limits)

    async def close(self) -> None:
        """Close the client if it is ours. To be called under a shield with a deadline."""
        client, self._client = self._client, self._given
        if client is not None and client is not self._given:
            await client.aclose()

    def client(self) -> HTTPClient:
        if self._client is None:
            raise RuntimeError("the provider is not open; use it inside `async with provider:`, or give it a client")
        return self._client

    def library(self) -> ModuleType:
        """The module whose exceptions and values the client speaks: httpx or httpx2."""
        return library_of(self.client())

    def limiter(self) -> trio.CapacityLimiter:
        """The slots of the client in this `trio.run`. Made at first use: Trio objects do not outlive a run."""
        client = self.client()
        known: _Limiters
        try:
            known = _limiters.get()
        except LookupError:
            known = WeakKeyDictionary()
            _limiters.set(known)
        limiter = known.get(client)
        if limiter is None:
            limiter = known[client] = trio.CapacityLimiter(_pool_size(client, self._max_connections))
        return limiter


def library_of(client: HTTPClient) -> ModuleType:
    """Raises `TypeError` for what is no async client of httpx or httpx2."""
    for cls in type(client).__mro__:
        root = cls.__module__.partition(".")[0]
        if cls.__name__ == "AsyncClient" and root in ("httpx", "httpx2"):
            return importlib.import_module(root)
    raise TypeError(f"client must be an httpx.AsyncClient or an httpx2.AsyncClient, not {type(client).__name__}")


class Handshake:
    """Watches a request open its connection, so that one whose TLS was not agreed on in the end can be closed.

    httpcore forgets such a connection when the request is cancelled: the server never hears of it, and the socket
    is closed by the garbage collector, with a warning: test_cancelled_while_tls_is_agreed_on. It is called as
    httpcore's `trace`, and never waits.
    """

    __slots__ = ("_agreeing", "_stream")

    def __init__(self) -> None:
        self._stream: Any = None
        self._agreeing = False

    async def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        if event.endswith("connect_tcp.complete"):
            self._stream = info["return_value"]
        elif event.endswith("start_tls.started"):
            self._agreeing = True
        elif event.endswith("start_tls.complete"):
            self._agreeing = False

    async def close(self) -> None:
        """Close what the request left half-open. To be called under a shield with a deadline."""
        if self._agreeing and self._stream is not None:
            await self._stream.aclose()


def content_stream(library: Any, content: bytes) -> Any:
    """A request's body as the library wants it, without the generator that the library would make of it.

    A request cancelled while it is sent leaves that generator suspended, to be finalised later with a warning:
    test_all_pools_serve_after_a_storm_of_cancelled_requests.
    """

    class Content(library.AsyncByteStream):  # type: ignore[misc]  # the base is known at run time only
        def __aiter__(self) -> BytesAtHand:
            return BytesAtHand(content)

    return Content()


def _pool_size(client: Any, wanted: int) -> int:
    """The pool's size if the client tells it (it has no public attribute for that), and never more than wanted."""
    pool = getattr(getattr(client, "_transport", None), "_pool", None)
    size = getattr(pool, "_max_connections", None)
    return min(size, wanted) if isinstance(size, int) and size > 0 else wanted
