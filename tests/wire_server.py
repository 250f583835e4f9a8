"""A small HTTP/1.1 server on Trio that sends exactly the bytes and pauses it is told to.

Here live the server and the two ways to reach it: over TCP on 127.0.0.1, and over streams in memory, where a
virtual clock can be trusted. It records what it was asked and notices who hangs up. It knows no API.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Literal, TypeAlias

import attrs
import h11
import httpcore
import httpx
import trio
import trio.testing


@attrs.frozen
class Request:
    """What a client asked."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@attrs.frozen
class Pause:
    """Send nothing for so many seconds."""

    seconds: float


class Stall:
    """Send nothing more, and keep the connection open until the client hangs up."""


STALL = Stall()
Part: TypeAlias = bytes | Pause | Stall | trio.Event


@attrs.frozen
class Reply:
    """An answer: its parts are sent one by one; an event among them is waited for.

    `framing` says how the body's end is told: by chunks, by its length, or by closing. `cut` closes the
    connection without telling. `raw` parts are sent as they are, status line and headers included.
    """

    parts: Sequence[Part] = attrs.field(default=(), converter=tuple)
    status: int = 200
    headers: Mapping[str, str] = attrs.field(factory=lambda: {"content-type": "text/event-stream"})
    framing: Literal["chunked", "length", "close"] = "chunked"
    cut: bool = False
    raw: bool = False


Answering: TypeAlias = Callable[[Request], Reply]


class WireServer:
    """Answers requests with replies: the next of a list, or what a function says."""

    def __init__(self, replies: Iterable[Reply] | Answering) -> None:
        self.requests: list[Request] = []
        self.disconnects = 0  # clients that hung up while they were being answered
        self.connections = 0
        self.active = 0  # requests that are being answered now
        # One item for each request that is over: answered, or its client gone.
        self._over, self.over = trio.open_memory_channel[None](math.inf)
        self._answer: Answering
        if callable(replies):
            self._answer = replies
        else:
            listed = iter(replies)
            self._answer = lambda request: next(listed)

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Talk HTTP on this connection until it closes."""
        self.connections += 1
        async with stream:
            connection = h11.Connection(h11.SERVER)
            try:
                while (request := await _read_request(connection, stream)) is not None:
                    self.requests.append(request)
                    self.active += 1
                    try:
                        await _send_reply(connection, stream, self._answer(request))
                    finally:
                        self.active -= 1
                        self._over.send_nowait(None)
                    if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                        return
                    connection.start_next_cycle()
            except (_HungUpError, trio.BrokenResourceError, trio.ClosedResourceError):
                self.disconnects += 1
            except h11.RemoteProtocolError:
                return


class _HungUpError(Exception):
    pass


async def _read_request(connection: h11.Connection, stream: trio.abc.Stream) -> Request | None:
    head: h11.Request | None = None
    body = b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some(65536))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
            return Request(head.method.decode(), head.target.decode(), headers, body)
        else:
            return None


async def _send_reply(connection: h11.Connection, stream: trio.abc.Stream, reply: Reply) -> None:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in reply.headers.items()]
    if reply.framing == "length":
        size = sum(len(part) for part in reply.parts if isinstance(part, bytes))
        headers.append((b"content-length", str(size).encode()))
    elif reply.framing == "close":
        headers.append((b"connection", b"close"))
    if not reply.raw:
        data = connection.send(h11.Response(status_code=reply.status, headers=headers, reason=b"As Told"))
        await stream.send_all(data or b"")
    for part in reply.parts:
        if isinstance(part, bytes):
            await stream.send_all(part if reply.raw else connection.send(h11.Data(data=part)) or b"")
        else:
            await _wait(stream, part)
    if not (reply.raw or reply.cut):
        await stream.send_all(connection.send(h11.EndOfMessage()) or b"")


async def _wait(stream: trio.abc.Stream, part: Pause | Stall | trio.Event) -> None:
    """Wait as told, but no longer than the client stays."""
    async with trio.open_nursery() as nursery:

        async def notice() -> None:
            # A client that pipelines would be read from here; none of ours does.
            with suppress(trio.BrokenResourceError):
                assert not await stream.receive_some(1)
            hung_up.append(True)
            nursery.cancel_scope.cancel()

        hung_up: list[bool] = []
        nursery.start_soon(notice)
        if isinstance(part, Pause):
            await trio.sleep(part.seconds)
        elif isinstance(part, trio.Event):
            await part.wait()
        else:
            await trio.sleep_forever()
        nursery.cancel_scope.cancel()
    if hung_up:
        raise _HungUpError


@asynccontextmanager
async def tcp_server(replies: Iterable[Reply] | Answering) -> AsyncIterator[tuple[WireServer, str]]:
    """The server on a free port of 127.0.0.1, and its address."""
    server = WireServer(replies)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, server.serve, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        yield server, f"http://127.0.0.1:{port}/v1"
        nursery.cancel_scope.cancel()


class MemoryBackend(httpcore.AsyncNetworkBackend):
    """Connects every client to the server through a pair of streams in memory."""

    def __init__(self, server: WireServer, nursery: trio.Nursery, connect_delay: float = 0.0) -> None:
        self._server = server
        self._nursery = nursery
        self._delay = connect_delay

    async def connect_tcp(self, host: str, port: int, timeout: float | None = None, **options: Any) -> Any:
        try:
            with trio.fail_after(float("inf") if timeout is None else timeout):
                await trio.sleep(self._delay)
        except trio.TooSlowError:
            raise httpcore.ConnectTimeout from None
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self._server.serve, theirs)
        return _MemoryStream(ours)


class _MemoryStream(httpcore.AsyncNetworkStream):
    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return bytes(await self._stream.receive_some(max_bytes))

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.send_all(buffer)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        return False if info == "is_readable" else None


@asynccontextmanager
async def memory_server(
    replies: Iterable[Reply] | Answering, *, connect_delay: float = 0.0
) -> AsyncIterator[tuple[WireServer, httpx.AsyncClient]]:
    """The server behind streams in memory, and a client that reaches it under any address."""
    server = WireServer(replies)
    async with trio.open_nursery() as nursery:
        transport = httpx.AsyncHTTPTransport()
        transport._pool = httpcore.AsyncConnectionPool(network_backend=MemoryBackend(server, nursery, connect_delay))
        async with httpx.AsyncClient(transport=transport) as client:
            yield server, client
        nursery.cancel_scope.cancel()
