"""An httpx client, and as many slots as its pool has connections.

Here lives what httpx's pool needs around it under Trio. httpx 0.28 loses a slot when a request is cancelled
that waits in the pool's own queue; a limiter of the pool's size in front means that none ever waits there.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Protocol, TypeAlias
from weakref import WeakKeyDictionary

import trio

_Limiters: TypeAlias = "WeakKeyDictionary[HTTPClient, trio.CapacityLimiter]"
_limiters: trio.lowlevel.RunVar[_Limiters] = trio.lowlevel.RunVar("limiters")


class HTTPClient(Protocol):
    """What is used of `httpx.AsyncClient`, and of `httpx2.AsyncClient`, which has the same API."""

    def build_request(
        self, method: str, url: Any, *, content: Any = ..., headers: Any = ..., timeout: Any = ...
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

    @property
    def is_open(self) -> bool:
        return self._client is not None

    def open(self) -> None:
        """Make the client, unless one was given. Does not block."""
        if self._client is None:
            import httpx

            limits = httpx.Limits(
                max_connections=self._max_connections, max_keepalive_connections=self._max_connections
            )
            self._client = httpx.AsyncClient(limits=limits)

    async def close(self, timeout: float) -> None:
        """Close the client if it is ours, whatever cancellation says, for at most so many seconds."""
        client, self._client = self._client, self._given
        if client is not None and client is not self._given:
            with trio.move_on_after(timeout, shield=True):
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
    import importlib

    for cls in type(client).__mro__:
        root = cls.__module__.partition(".")[0]
        if cls.__name__ == "AsyncClient" and root in ("httpx", "httpx2"):
            return importlib.import_module(root)
    raise TypeError(f"client must be an httpx.AsyncClient or an httpx2.AsyncClient, not {type(client).__name__}")


def content_stream(library: Any, content: bytes) -> Any:
    """A request's body as the library wants it, without the generator that the library would make of it.

    A request cancelled while it is sent leaves that generator suspended, to be finalised later with a warning:
    test_all_pools_serve_after_a_storm_of_cancelled_requests.
    """

    class Content(library.AsyncByteStream):  # type: ignore[misc]  # the base is known at run time only
        def __aiter__(self) -> _Once:
            return _Once(content)

    return Content()


class _Once:
    """Gives one piece, and no other."""

    def __init__(self, piece: bytes) -> None:
        self._pieces = [piece]

    def __aiter__(self) -> _Once:
        return self

    async def __anext__(self) -> bytes:
        if not self._pieces:
            raise StopAsyncIteration
        return self._pieces.pop()


def _pool_size(client: Any, wanted: int) -> int:
    """The pool's size if the client tells it (it has no public attribute for that), and never more than wanted."""
    pool = getattr(getattr(client, "_transport", None), "_pool", None)
    size = getattr(pool, "_max_connections", None)
    return min(size, wanted) if isinstance(size, int) and size > 0 else wanted
