"""One request and its answer over HTTP: sent, read within bounds and time-outs, and closed whatever happens.

Here lives everything that waits. The client and its slots are in `_pool.py`, event streams in `_sse.py`,
error bodies in `_http_errors.py`. Nothing here knows an API.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import attrs
import trio
from httpx_sse import ServerSentEvent

from .._errors import ProviderError
from .._provider import Send
from ._answer import AnswerReader, decode_json, excerpt, is_complete, unreadable
from ._base_url import BaseURL
from ._body import BytesAtHand, Inflater
from ._bounds import Bounds, Timeouts
from ._http_errors import http_error
from ._keys import Secret, redacted
from ._pool import Handshake, Pool, content_stream
from ._sse import EventDecoder

_DRAINED_BYTES: Final = 65536  # behind the end marker; a server that says more loses its connection


@attrs.frozen(kw_only=True)
class Outgoing:
    """A request, ready to be sent. Neither headers nor content are shown: they hold keys and people's words."""

    method: str = "POST"
    url: str = attrs.field(repr=False)
    headers: Mapping[str, str] = attrs.field(repr=False)
    content: bytes | None = attrs.field(default=None, repr=False)


class Exchange:
    """Sends requests to one service, each in a slot of the pool."""

    def __init__(
        self, pool: Pool, base_url: BaseURL, timeouts: Timeouts, bounds: Bounds, secrets: tuple[Secret, ...]
    ) -> None:
        self._pool = pool
        self._base_url = base_url
        self.timeouts = timeouts
        self.bounds = bounds
        self.secrets = secrets

    async def stream(self, outgoing: Outgoing, reader: AnswerReader, send: Send) -> None:
        """Send, and pass on the chunks that the reader makes of the answer.

        Returns when the answer has ended and the connection is back in the pool or closed. Raises
        `ProviderError`. Cancelled at any point, it closes the connection and gives the slot back first.
        """

        async def relay(answer: _Answer) -> None:
            await _Relay(answer, reader, send).run()

        await self._run(outgoing, relay)

    async def document(self, outgoing: Outgoing) -> Any:
        """Send, and give the JSON value that comes back. Raises `ProviderError`."""
        found: list[Any] = []

        async def read(answer: _Answer) -> None:
            found.append(_json_document(await answer.rest(b"")))

        await self._run(outgoing, read)
        return found[0]

    async def _run(self, outgoing: Outgoing, read: Callable[[_Answer], Awaitable[None]]) -> None:
        library = self._pool.library()
        failure: ProviderError | None = None
        async with self._pool.limiter():
            with trio.CancelScope(deadline=trio.current_time() + self.timeouts.first_byte) as silence:
                try:
                    response = await self._send(outgoing, library)
                    await _Answer(response, silence, self, library).use(read)
                except (library.HTTPError, library.InvalidURL, library.StreamError) as error:
                    failure = self._translate(error, library)
                except ProviderError as error:
                    failure = self._without_secrets(error)
        if silence.cancelled_caught:
            failure = ProviderError("timeout", f"{self._base_url.host} was silent for too long")
        # Raised out here, where no exception of httpx hangs on as its context: those hold the request, and the key.
        if failure is not None:
            raise failure

    async def _send(self, outgoing: Outgoing, library: Any) -> Any:
        client = self._pool.client()
        timeout = library.Timeout(None, connect=self.timeouts.connect)
        headers = {"accept-encoding": "identity", **outgoing.headers}
        handshake = Handshake()
        request = client.build_request(
            outgoing.method,
            outgoing.url,
            content=outgoing.content,
            headers=headers,
            timeout=timeout,
            extensions={"trace": handshake},
        )
        if outgoing.content:
            request.stream = content_stream(library, outgoing.content)
        try:
            return await client.send(request, stream=True, follow_redirects=False)
        except BaseException:
            with trio.move_on_after(self.timeouts.close, shield=True):
                await handshake.close()
            raise

    def _without_secrets(self, error: ProviderError) -> ProviderError:
        """The error, or where it quotes the key because the server did, one that does not."""
        message = redacted(error.message, self.secrets)
        if message == error.message:
            return error
        return ProviderError(error.kind, message, error.retryable, error.retry_after, error.status)

    def _translate(self, error: Exception, library: Any) -> ProviderError:
        host = self._base_url.host
        if isinstance(error, library.LocalProtocolError | library.InvalidURL | library.UnsupportedProtocol):
            # Its text quotes the header that it refuses.
            return ProviderError("invalid_request", f"the request to {host} cannot be sent ({type(error).__name__})")
        reason = excerpt(redacted(str(error), self.secrets), 200)
        text = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
        if isinstance(error, library.TimeoutException):
            return ProviderError("timeout", f"no connection to {host} in time ({text})")
        if (distrust := _distrust(error)) is not None:
            return ProviderError("network", f"the certificate of {host} is not trusted: {distrust}", False)
        verb = "cannot reach" if isinstance(error, library.ConnectError) else "lost the connection to"
        return ProviderError("network", f"{verb} {host} ({text})")


def _distrust(error: BaseException) -> str | None:
    """What is wrong with the peer's certificate, if that is at the bottom of the error."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return cause.verify_message
        cause = cause.__cause__ or cause.__context__
    return None


class _Answer:
    """A response while it is read. Its body is read to the end or cancelled inside, never left half-way."""

    def __init__(self, response: Any, silence: trio.CancelScope, exchange: Exchange, library: Any) -> None:
        self.response = response
        self.timeouts = exchange.timeouts
        self.bounds = exchange.bounds
        self.secrets = exchange.secrets
        self._silence = silence
        self._library = library
        self._inflater = Inflater("", self.bounds.answer)
        self._body: AsyncIterator[bytes] = BytesAtHand()

    async def use(self, read: Callable[[_Answer], Awaitable[None]]) -> None:
        """Let it be read, and close it, whatever happens."""
        try:
            if not 200 <= self.response.status_code < 300:
                raise await self._error()
            self._open_body()
            await read(self)
        finally:
            # An async generator that is left suspended is finalised later, elsewhere: so it is cancelled where it
            # waits. test_no_generator_is_left_behind_by_a_cancelled_send.
            with trio.move_on_after(0, shield=True), suppress(Exception):  # it only unwinds: the outcome is known
                async for _ in self._body:
                    pass
            with trio.move_on_after(self.timeouts.close, shield=True):
                await self.response.aclose()

    def _open_body(self) -> None:
        if self.response.is_stream_consumed:  # a hook or a fake transport has read it, and decompressed it
            self._body = BytesAtHand(self.response.content)
        else:
            self._inflater = Inflater(self.response.headers.get("content-encoding", ""), self.bounds.answer)
            self._body = self.response.aiter_raw()

    async def next(self) -> bytes | None:
        """More of the body, decompressed, or None at its end. Waits at most as long as silence may last."""
        while (data := await anext(self._body, None)) is not None:
            self._silence.deadline = trio.current_time() + self.timeouts.idle
            if data := self._inflater.feed(data):
                return data
        return None

    def pause(self) -> None:
        """The time until `resume` is ours and not the service's."""
        self._silence.deadline = float("inf")

    def resume(self) -> None:
        self._silence.deadline = trio.current_time() + self.timeouts.idle

    async def rest(self, data: bytes) -> bytes:
        """All of the body, behind what was read of it already."""
        parts = [data]
        while (more := await self.next()) is not None:
            parts.append(more)
        return b"".join(parts)

    async def drain(self) -> None:
        """Read on behind the end marker for a moment: a body that is over leaves its connection usable."""
        self.pause()
        left = _DRAINED_BYTES
        with trio.move_on_after(self.timeouts.after_end):
            while left > 0 and (data := await anext(self._body, None)) is not None:
                left -= len(data)

    async def _error(self) -> ProviderError:
        parts: list[bytes] = []
        size = 0
        # What cannot be read of it must not hide the status: that alone says what went wrong.
        with trio.move_on_after(self.timeouts.error_body), suppress(ProviderError, self._library.HTTPError):
            self._open_body()
            while size < self.bounds.error_body and (data := await self.next()) is not None:
                parts.append(data)
                size += len(data)
        status, headers = self.response.status_code, self.response.headers
        body = b"".join(parts)[: self.bounds.error_body]
        error = http_error(status, headers, body, now=time.time(), secrets=self.secrets)
        if status < 400:
            text = f"{error.message}; redirects are not followed: set base_url to the address that they lead to"
            return ProviderError("invalid_request", text, status=status)
        return error


class _Relay:
    """Passes an answer's bytes through a reader, and the reader's chunks to `send`."""

    def __init__(self, answer: _Answer, reader: AnswerReader, send: Send) -> None:
        self._answer = answer
        self._reader = reader
        self._send = send

    async def run(self) -> None:
        first = await self._first_bytes()
        if first.lstrip()[:1] in (b"{", b"["):
            await self._take_document(await self._answer.rest(first))
        elif first.lstrip()[:1] == b"<":
            raise ProviderError(
                "protocol", f"the server answered with a page instead of a stream: {excerpt(first.decode('latin-1'))}"
            )
        else:
            await self._take_events(first)
        await self._read(self._reader.close)
        await self._answer.drain()

    async def _first_bytes(self) -> bytes:
        """The body up to its first character that is not blank: it says whether this is a stream at all."""
        first = b""
        while not first.strip() and (data := await self._answer.next()) is not None:
            first += data
        return first

    async def _take_document(self, body: bytes) -> None:
        await self._read(lambda: self._reader.whole(_json_document(body)))

    async def _take_events(self, data: bytes | None) -> None:
        decoder = EventDecoder(self._answer.bounds.event)
        reader, chunks = self._reader, self._reader.chunks
        while data is not None:
            failure: ProviderError | None = None
            try:
                events, raw = decoder.split(data)
                if not _take(events, reader):
                    at = reader.take_common(raw, 0)
                    while at < len(raw) and not _take(decoder.read(raw[at]), reader):
                        at = reader.take_common(raw, at + 1)
            except ProviderError as error:
                failure = error
            if chunks or failure is not None:
                await self._pass_on(failure)
            if reader.ended:
                return
            data = await self._answer.next()
        tail = decoder.close()
        if tail is not None and is_complete(tail.data):
            await self._read(lambda: reader.event(tail.event, tail.data))
        if decoder.strays:
            await self._read(lambda: reader.stray(b"\n".join(decoder.strays).decode("utf-8", "replace")))

    async def _read(self, read: Callable[[], None]) -> None:
        failure: ProviderError | None = None
        try:
            read()
        except ProviderError as error:
            failure = error
        await self._pass_on(failure)

    async def _pass_on(self, failure: ProviderError | None) -> None:
        """Send what the reader has made, also if it failed afterwards, and then fail."""
        chunks = self._reader.chunks
        if chunks:
            send = self._send
            self._answer.pause()
            for chunk in chunks:
                await send(chunk)
            chunks.clear()
            self._answer.resume()
        if failure is not None:
            raise failure


def _take(events: list[ServerSentEvent], reader: AnswerReader) -> bool:
    """Let the reader have them. Gives whether the answer has ended."""
    for event in events:
        reader.event(event.event, event.data)
        if reader.ended:
            return True
    return False


def _json_document(body: bytes) -> Any:
    try:
        return decode_json(body)
    except ValueError as error:
        raise unreadable("an answer", error, body[:400].decode("utf-8", "replace")) from None
