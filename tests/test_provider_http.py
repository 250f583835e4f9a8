"""The base of all HTTP providers: whatever is cancelled, refused or silent, nothing is left and no key is told."""

from __future__ import annotations

import gc
import gzip
import logging
import pickle
import ssl
import traceback
import warnings
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import httpx
import httpx2
import pytest
import trio
import trio.testing

from tests.wire_files import DONE, PlayingTransport, a_request, asked, data, delta, played
from tests.wire_server import STALL, Pause, Reply, Request, WireServer, memory_server, tcp_server
from trio_agent._chunks import Chunk, Finish, TextDelta
from trio_agent._errors import ProviderError
from trio_agent.providers import Bounds, OpenAIChat, Secret, Timeouts
from trio_agent.providers._pool import Handshake

KEY = "sk-test-0123456789"
GOOD = Reply([delta({"content": "a"}), delta({}, "stop"), DONE])
HALF = [delta({"content": "a"}), STALL]
CLIENTS = [httpx.AsyncClient, httpx2.AsyncClient]


def memory_provider(client: Any, **options: Any) -> OpenAIChat:
    return OpenAIChat(base_url="http://memory.test/v1", client=client, **options)


class TestCancelling:
    """Cancelled anywhere, a request leaves no connection, slot, task, generator or warning behind."""

    @pytest.mark.parametrize(
        ("reply", "at"),
        [
            (Reply(raw=True, parts=[STALL]), "headers"),
            (Reply([STALL]), "first byte"),
            (Reply(HALF), "body"),
            (Reply([STALL], status=429), "error body"),
            (Reply([b'{"choices":', STALL]), "document"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    async def test_cancelled_while_waiting(self, reply: Reply, at: str) -> None:
        """Cancelled while it waits for headers, first byte, body or error body, it hangs up and can be used again."""
        replies = iter([reply, GOOD])
        async with memory_server(lambda request: next(replies)) as (server, client):
            provider = memory_provider(client)
            with trio.move_on_after(1) as scope:
                await asked(provider)
            assert scope.cancelled_caught
            await trio.testing.wait_all_tasks_blocked()
            assert (server.disconnects, server.active) == (1, 0)
            assert (await asked(provider)).clean().text == "a"

    async def test_cancelled_while_connecting(self) -> None:
        """Cancelled during connect, the slot is free again."""
        async with memory_server(lambda request: GOOD, connect_delay=5) as (server, client):
            provider = memory_provider(client, max_connections=1)
            for _ in range(3):
                with trio.move_on_after(1):
                    await asked(provider)
            assert server.connections == 0
            assert (await asked(provider)).clean().text == "a"

    @pytest.mark.real_time
    @pytest.mark.parametrize("make_client", CLIENTS, ids=["httpx", "httpx2"])
    async def test_cancelled_while_tls_is_agreed_on(self, make_client: Any) -> None:
        """Cancelled during the TLS handshake, it hangs up, and the slot is free again."""
        gone = 0

        async def say_nothing(stream: trio.SocketStream) -> None:
            nonlocal gone
            async with stream:
                while await stream.receive_some(4096):
                    pass
                gone += 1

        async with trio.open_nursery() as nursery, make_client() as client:
            listeners = await nursery.start(partial(trio.serve_tcp, say_nothing, 0, host="127.0.0.1"))
            url = f"https://127.0.0.1:{listeners[0].socket.getsockname()[1]}/v1"
            provider = OpenAIChat(base_url=url, client=client, max_connections=1)
            for _ in range(3):
                with trio.move_on_after(0.02) as scope:
                    await asked(provider)
                assert scope.cancelled_caught
            while gone < 3:
                await trio.sleep(0.001)
            nursery.cancel_scope.cancel()

    async def test_no_generator_is_left_behind_by_a_cancelled_send(self) -> None:
        """Cancelled inside `send`, the stream is unwound there and then: no generator is finalised later."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            async with memory_server(lambda request: Reply(HALF)) as (server, client):

                async def send(chunk: Chunk) -> None:
                    await trio.sleep_forever()

                with trio.move_on_after(1):
                    await memory_provider(client)(a_request(), send)
                await trio.testing.wait_all_tasks_blocked()
                assert server.disconnects == 1
            gc.collect()
            await trio.testing.wait_all_tasks_blocked()
        assert [str(warning.message) for warning in caught] == []

    async def test_an_exception_of_send_passes_and_closes_the_connection(self) -> None:
        """What `send` raises leaves the provider as it is, and the server sees the client go."""
        async with memory_server(lambda request: Reply(HALF)) as (server, client):

            async def send(chunk: Chunk) -> None:
                raise KeyError("mine")

            with pytest.raises(KeyError, match="mine"):
                await memory_provider(client)(a_request(), send)
            await trio.testing.wait_all_tasks_blocked()
            assert server.disconnects == 1
            gc.collect()

    async def test_a_second_cancel_during_the_close_changes_nothing(self) -> None:
        """An outer cancellation that arrives while an inner one closes the stream finds the same end."""
        async with memory_server(lambda request: Reply(HALF)) as (server, client):
            with trio.CancelScope() as outer:
                async with trio.open_nursery() as nursery:

                    async def ask() -> None:
                        with trio.move_on_after(1):
                            await asked(memory_provider(client))

                    nursery.start_soon(ask)
                    await trio.sleep(1)
                    outer.cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert (server.disconnects, server.active) == (1, 0)

    async def test_a_scope_of_ours_does_not_reach_into_send(self) -> None:
        """However slow `send` is, no time-out of the provider's fires in it."""
        times = Timeouts(first_byte=5, idle=5, after_end=1)
        async with memory_server([GOOD]) as (_, client):

            async def send(chunk: Chunk) -> None:
                await trio.sleep(1000)

            await memory_provider(client, timeouts=times)(a_request(), send)

    @pytest.mark.real_time
    @pytest.mark.parametrize("make_client", CLIENTS, ids=["httpx", "httpx2"])
    async def test_all_pools_serve_after_a_storm_of_cancelled_requests(self, make_client: Any) -> None:
        """Forty pools of two connections, 960 requests cancelled at odd moments: every pool serves on.

        Without the limiter in front, httpx 0.28 is left with 6 to 11 pools that never serve again.
        """
        async with tcp_server(lambda request: Reply(HALF if b"hang" in request.body else GOOD.parts)) as (server, url):
            for pool in range(40):
                client = make_client(limits=_limits(make_client, 2))
                async with client:
                    provider = OpenAIChat(base_url=url, client=client, max_connections=2)
                    await _storm(provider, seed=pool)
                    with trio.fail_after(10):
                        async with trio.open_nursery() as nursery:
                            for _ in range(3):
                                nursery.start_soon(_ask_well, provider)
            with trio.fail_after(10):
                for _ in server.requests:
                    await server.over.receive()
            assert server.active == 0
        gc.collect()

    @pytest.mark.real_time
    @pytest.mark.parametrize("make_client", CLIENTS, ids=["httpx", "httpx2"])
    async def test_the_limiter_is_of_the_pools_size(self, make_client: Any) -> None:
        """No more requests than the client's pool has connections are under way at once; the others wait."""
        most = 0

        def answer(request: Request) -> Reply:
            nonlocal most
            most = max(most, server.active)
            return GOOD

        async with tcp_server(answer) as (server, url), make_client(limits=_limits(make_client, 3)) as client:
            provider, other = OpenAIChat(base_url=url, client=client), OpenAIChat(base_url=url, client=client)
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(_ask_well, provider)
                    nursery.start_soon(_ask_well, other)
            assert most == 3
            assert server.connections == 3


def _limits(make_client: Any, size: int) -> Any:
    library = httpx if make_client is httpx.AsyncClient else httpx2
    return library.Limits(max_connections=size, max_keepalive_connections=size)


async def _ask_well(provider: OpenAIChat) -> None:
    assert (await asked(provider)).clean().text == "a"


async def _storm(provider: OpenAIChat, seed: int) -> None:
    """Waves of requests cancelled in one moment: one frees a connection for another that ends just then."""

    async def ask(scope: trio.CancelScope, prompt: str) -> None:
        with scope:
            await asked(provider, a_request(system_prompt=prompt))

    for wave in range(4):
        scopes = [trio.CancelScope() for _ in range(6)]
        async with trio.open_nursery() as nursery:
            for number, scope in enumerate(scopes):
                nursery.start_soon(ask, scope, "hang" if number % 2 else "quick")
            await trio.sleep(0.0007 * (seed % 9) + 0.0002 * wave)
            for scope in scopes:
                scope.cancel()
                if (seed + wave) % 3 == 0:
                    await trio.lowlevel.checkpoint()


class TestTimeouts:
    """Each kind of silence has its own bound; there is none on the whole."""

    TIMES = Timeouts(connect=3, first_byte=20, idle=7, error_body=4, after_end=1)

    async def failure(self, reply: Reply, **server: Any) -> tuple[ProviderError, float]:
        async with memory_server([reply], **server) as (_, client):
            start = trio.current_time()
            answer = await asked(memory_provider(client, timeouts=self.TIMES))
            return answer.failed(), trio.current_time() - start

    async def test_connecting(self) -> None:
        """A connection that does not come is given up after `connect`."""
        error, seconds = await self.failure(GOOD, connect_delay=60)
        assert (error.kind, error.retryable, seconds) == ("timeout", True, 3)

    @pytest.mark.parametrize("reply", [Reply(raw=True, parts=[STALL]), Reply([STALL])], ids=["headers", "body"])
    async def test_first_byte(self, reply: Reply) -> None:
        """An answer that does not begin is given up after `first_byte`, with headers or without."""
        error, seconds = await self.failure(reply)
        assert (error.kind, error.retryable, seconds) == ("timeout", True, 20)

    async def test_idle(self) -> None:
        """An answer that falls silent is given up after `idle`, and what had come is kept."""
        async with memory_server([Reply(HALF)]) as (_, client):
            start = trio.current_time()
            answer = await asked(memory_provider(client, timeouts=self.TIMES))
            assert (answer.failed().kind, trio.current_time() - start) == ("timeout", 7)
            assert answer.message.text == "a"

    async def test_none_on_the_whole(self) -> None:
        """An answer that keeps coming, if only by comments, may take for ever."""
        slow = [part for _ in range(50) for part in (Pause(6), b": ping\n\n")]
        async with memory_server([Reply([*slow, *GOOD.parts])]) as (_, client):
            assert (await asked(memory_provider(client, timeouts=self.TIMES))).clean().text == "a"
            assert trio.current_time() >= 300

    async def test_an_error_body_that_does_not_end(self) -> None:
        """The text of an HTTP error is waited for only so long; the status says enough."""
        error, seconds = await self.failure(Reply([b'{"error":', *[Pause(1), b" "] * 99], status=503))
        assert (error.kind, error.status, seconds) == ("overloaded", 503, 4)

    async def test_a_connection_kept_open_behind_the_end_marker(self) -> None:
        """A server that says nothing more but stays does not hold the answer up for longer than `after_end`."""
        async with memory_server([Reply([*GOOD.parts, STALL])]) as (server, client):
            start = trio.current_time()
            assert (await asked(memory_provider(client, timeouts=self.TIMES))).clean().text == "a"
            assert trio.current_time() - start == 1
            await trio.testing.wait_all_tasks_blocked()
            assert server.disconnects == 1

    async def test_the_end_is_told_before_the_connection_is_cared_for(self) -> None:
        """`Finish` is sent at the end marker, not when the connection has closed."""
        async with memory_server([Reply([*GOOD.parts, STALL])]) as (_, client):
            times: list[float] = []

            async def send(chunk: Chunk) -> None:
                if isinstance(chunk, Finish):
                    times.append(trio.current_time())

            start = trio.current_time()
            await memory_provider(client, timeouts=self.TIMES)(a_request(), send)
            assert times == [start]


class TestConnections:
    """Connections are used again where that is possible, and closed where it is not."""

    async def test_an_answer_that_ended_leaves_its_connection_usable(self) -> None:
        """Ten answers, ended by `[DONE]` or by the body's end, need one connection."""
        plain = Reply([delta({"content": "a"}, "stop")])
        async with memory_server([GOOD, plain] * 5) as (server, client):
            for _ in range(10):
                assert (await asked(memory_provider(client))).clean().text == "a"
            assert server.connections == 1

    async def test_deltas_are_passed_on_as_they_come(self) -> None:
        """A delta is sent before the next one has left the server."""
        gate = trio.Event()
        async with memory_server([Reply([delta({"content": "a"}), gate, delta({}, "stop"), DONE])]) as (_, client):

            async def send(chunk: Chunk) -> None:
                if isinstance(chunk, TextDelta):
                    gate.set()

            await memory_provider(client)(a_request(), send)

    @pytest.mark.parametrize("framing", ["chunked", "length", "close"])
    async def test_every_framing_is_read(self, framing: Any) -> None:
        """A body in chunks, of a known length, or ended by closing is the same body."""
        async with memory_server([Reply(GOOD.parts, framing=framing)]) as (_, client):
            assert (await asked(memory_provider(client))).clean().text == "a"

    async def test_a_body_broken_off_is_a_network_error(self) -> None:
        """A connection closed in the middle of a body is an error that may be tried again, with the text kept."""
        async with memory_server([Reply([delta({"content": "a"})], cut=True)]) as (_, client):
            answer = await asked(memory_provider(client))
            assert (answer.failed().kind, answer.failed().retryable) == ("network", True)
            assert answer.message.text == "a"

    async def test_nonsense_instead_of_http_is_a_network_error(self) -> None:
        """A peer that does not speak HTTP is an error, not a crash."""
        async with memory_server([Reply([b"SSH-2.0-OpenSSH\r\n"], raw=True)]) as (_, client):
            assert (await asked(memory_provider(client))).failed().kind == "network"

    @pytest.mark.real_time
    async def test_nobody_listens(self) -> None:
        """A refused connection is a network error that names the host and may be tried again."""
        async with tcp_server([]) as (_, url):
            pass
        async with OpenAIChat(base_url=url) as provider:
            error = (await asked(provider)).failed()
        assert (error.kind, error.retryable) == ("network", True)
        assert "127.0.0.1" in error.message

    @pytest.mark.real_time
    @pytest.mark.parametrize("make_client", CLIENTS, ids=["httpx", "httpx2"])
    async def test_either_library_is_spoken_to_alike(self, make_client: Any) -> None:
        """With httpx and with httpx2: an answer, an HTTP error, a broken body and a refused connection."""
        replies = [GOOD, Reply([b"{}"], status=401), Reply([delta({"content": "a"})], cut=True)]
        async with make_client() as client:
            async with tcp_server(replies) as (_, url):
                provider = OpenAIChat(base_url=url, client=client)
                assert (await asked(provider)).clean().text == "a"
                assert (await asked(provider)).failed().kind == "authentication"
                assert (await asked(provider)).failed().kind == "network"
            assert (await asked(provider)).failed().kind == "network"

    @pytest.mark.real_time
    async def test_a_certificate_that_is_not_trusted_is_refused(self) -> None:
        """TLS is verified, and a failure there is not tried again."""
        async with _tls_server([GOOD]) as (_, url, _), OpenAIChat(base_url=url, api_key=KEY) as provider:
            error = (await asked(provider)).failed()
        assert (error.kind, error.retryable) == ("network", False)
        assert "certificate" in error.message

    @pytest.mark.real_time
    @pytest.mark.parametrize("make_client", CLIENTS, ids=["httpx", "httpx2"])
    async def test_a_connection_whose_tls_was_agreed_on_is_kept(self, make_client: Any) -> None:
        """One handshake serves two answers; a third request, cancelled in its answer, closes it."""
        replies = [GOOD, GOOD, Reply(HALF)]
        async with _tls_server(replies) as (server, url, trusted), make_client(verify=trusted) as client:
            provider = OpenAIChat(base_url=url, client=client)
            for _ in range(2):
                assert (await asked(provider)).clean().text == "a"
            with trio.CancelScope() as scope:

                async def cancel(chunk: Chunk) -> None:
                    scope.cancel()
                    await trio.lowlevel.checkpoint()

                await provider(a_request(), cancel)
            for _ in replies:
                await server.over.receive()
            assert scope.cancelled_caught
        assert (server.connections, server.disconnects) == (1, 1)

    @pytest.mark.parametrize("agreed", [False, True])
    async def test_only_a_handshake_that_did_not_end_is_closed(self, agreed: bool) -> None:
        """From then on the connection is its pool's, and may carry the requests of others."""
        ours, theirs = trio.testing.memory_stream_pair()
        handshake = Handshake()
        await handshake("connection.connect_tcp.started", {})
        await handshake("connection.connect_tcp.complete", {"return_value": ours})
        await handshake("connection.start_tls.started", {})
        if agreed:
            await handshake("connection.start_tls.complete", {"return_value": ours})
        await handshake.close()
        with trio.move_on_after(1) as scope:
            assert await theirs.receive_some(1) == b""
        assert scope.cancelled_caught == agreed


@asynccontextmanager
async def _tls_server(replies: list[Reply]) -> AsyncIterator[tuple[WireServer, str, ssl.SSLContext]]:
    """A server behind TLS, its address, and what a client that trusts it verifies with."""
    trustme = pytest.importorskip("trustme")
    server, authority = WireServer(replies), trustme.CA()
    context, trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(trusted)

    async def serve(stream: trio.SSLStream[trio.SocketStream]) -> None:
        with suppress(trio.BrokenResourceError):  # a handshake that is refused
            await server.serve(stream)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_ssl_over_tcp, serve, 0, context, host="127.0.0.1"))
        yield server, f"https://127.0.0.1:{listeners[0].transport_listener.socket.getsockname()[1]}/v1", trusted
        nursery.cancel_scope.cancel()


class TestBodies:
    """Compression is not asked for, and cannot be used against us."""

    async def test_compression_is_not_asked_for(self) -> None:
        """The request accepts no encoding, also where the client would."""
        transport = PlayingTransport(GOOD.parts)
        async with httpx.AsyncClient(transport=transport, headers={"accept-encoding": "gzip, br"}) as client:
            await asked(memory_provider(client))
        assert transport.requests[0].headers["accept-encoding"] == "identity"

    @pytest.mark.parametrize(("encoding", "squeeze"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
    async def test_a_compressed_answer_is_read_all_the_same(self, encoding: str, squeeze: Any) -> None:
        """A server that compresses without being asked is understood, in any pieces."""
        body = squeeze(b"".join(GOOD.parts))  # type: ignore[arg-type]
        headers = {"content-encoding": encoding}
        assert (await played(OpenAIChat, [body], headers=headers)).clean().text == "a"
        assert (await played(OpenAIChat, [bytes([byte]) for byte in body], headers=headers)).clean().text == "a"

    async def test_a_small_body_does_not_become_a_huge_one(self) -> None:
        """A gzip bomb is an error at the bound, streamed, as a document and as an HTTP error."""
        bounds = Bounds(answer=100_000)
        for start in (b"data: ", b"{"):
            bomb = gzip.compress(start + b" " * 50_000_000)
            answer = await played(OpenAIChat, [bomb], headers={"content-encoding": "gzip"}, bounds=bounds)
            assert answer.failed().kind == "protocol"
        answer = await played(OpenAIChat, [bomb], headers={"content-encoding": "gzip"}, bounds=bounds, status=500)
        assert (answer.failed().kind, answer.failed().status) == ("server", 500)

    @pytest.mark.parametrize(("encoding", "body"), [("br", b"xx"), ("gzip", b"not gzip at all")])
    async def test_what_cannot_be_decompressed_is_an_error(self, encoding: str, body: bytes) -> None:
        """An unknown encoding, or data that is not in it, is a protocol error; of an HTTP error the status counts."""
        headers = {"content-encoding": encoding}
        assert (await played(OpenAIChat, [body], headers=headers)).failed().kind == "protocol"
        assert (await played(OpenAIChat, [body], headers=headers, status=429)).failed().kind == "rate_limit"

    async def test_what_is_at_hand_behind_an_error_is_left_in_order(self) -> None:
        """A body that never waits is read to its end, so that its generator does not hang half-way, and closed."""
        log: list[str] = []

        class AtOnce(httpx.AsyncByteStream):
            async def __aiter__(self) -> AsyncIterator[bytes]:
                for piece in (data({"error": {"message": "no", "code": 500}}), *GOOD.parts):
                    yield piece
                log.append("ended")

            async def aclose(self) -> None:
                log.append("closed")

        headers = {"content-type": "text/event-stream"}
        transport = httpx.MockTransport(lambda request: httpx.Response(200, headers=headers, stream=AtOnce()))
        async with httpx.AsyncClient(transport=transport) as client:
            assert (await asked(memory_provider(client))).failed().kind == "server"
        assert log == ["ended", "closed"]

    async def test_an_error_body_is_bounded(self) -> None:
        """An HTTP error of any length is read only as far as its bound."""
        async with memory_server([Reply([b"x" * 4096] * 500, status=500)]) as (_, client):
            error = (await asked(memory_provider(client))).failed()
        assert (error.kind, error.status) == ("server", 500)
        assert len(error.message) < 300


class TestKeys:
    """A key goes to its host in its header, and nowhere else."""

    async def test_the_key_is_sent_in_its_header(self) -> None:
        """The key goes out as a bearer token."""
        async with memory_server([GOOD]) as (server, client):
            await asked(memory_provider(client, api_key=Secret(KEY)))
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"

    async def test_no_key_no_header(self) -> None:
        """Without a key there is no header."""
        async with memory_server([GOOD]) as (server, client):
            await asked(memory_provider(client, api_key=" "))
        assert "authorization" not in server.requests[0].headers

    @pytest.mark.parametrize(
        "kind", ["echo", "refused header", "cut", "silent", "redirect", "page", "not JSON", "event", "odd event"]
    )
    async def test_no_error_tells_the_key(self, kind: str, caplog: pytest.LogCaptureFixture) -> None:
        """Whatever goes wrong, neither the error, nor its traceback with locals, nor the log holds the key."""
        caplog.set_level(logging.DEBUG)
        replies = {
            "echo": Reply([b'{"error":{"message":"Incorrect API key: %s"}}' % KEY.encode()], status=401),
            "refused header": GOOD,
            "cut": Reply([delta({"content": "a"})], cut=True),
            "silent": Reply([STALL]),
            "redirect": Reply(status=302, headers={"location": "http://evil.test/"}),
            "page": Reply([f"<html>{KEY}</html>".encode()], status=500),
            "not JSON": Reply([f"who is {KEY}?".encode()], headers={"content-type": "application/json"}),
            "event": Reply([b'data: {"error":{"message":"Incorrect API key: %s"}}\n\n' % KEY.encode()]),
            "odd event": Reply([f"data: {KEY}\n\n".encode()]),
        }
        async with memory_server([replies[kind]]) as (_, client):
            if kind == "refused header":

                def refuse(request: httpx.Request) -> httpx.Response:
                    raise httpx.LocalProtocolError(f"Illegal header value b'Bearer {KEY}'", request=request)

                client = httpx.AsyncClient(transport=httpx.MockTransport(refuse))
            provider = memory_provider(client, api_key=KEY)
            error = (await asked(provider)).failed()
            told = "".join(traceback.TracebackException.from_exception(error).format())
            assert KEY not in told + repr(error) + str(error.args)
            assert error.__cause__ is None
            assert error.__context__ is None
            assert KEY not in repr(provider) + str(vars(provider)) + caplog.text
            await client.aclose()

    async def test_a_redirect_is_not_followed(self) -> None:
        """A redirect is an error that says so, also with a client that follows them, and no second request goes out."""
        transport = httpx.MockTransport(
            lambda request: httpx.Response(307, headers={"location": "http://evil.test/v1/chat/completions"})
        )
        async with httpx.AsyncClient(transport=transport, follow_redirects=True) as client:
            error = (await asked(memory_provider(client, api_key=KEY))).failed()
        assert (error.kind, error.retryable, error.status) == ("invalid_request", False, 307)
        assert "redirect" in error.message

    @pytest.mark.parametrize(
        "url",
        [
            "http://user:pw@h/v1",
            "http://user@h",
            "http://h/v1#x",
            "http://h/#",
            "ftp://h",
            "h/v1",
            "",
            "http://",
            "http:///v1",
            "http://h:port/",
            "http://h\n/v1",
            "http://h/a b",
            "http://[::1",
            "javascript:alert(1)",
        ],
    )
    def test_a_base_url_that_is_none_is_refused(self, url: str) -> None:
        """Credentials, a fragment, another scheme, no host or odd characters are refused at once, unquoted."""
        with pytest.raises(ValueError, match="base URL") as caught:
            OpenAIChat(base_url=url or " ")
        assert "pw" not in str(caught.value)

    def test_a_query_is_kept_and_not_shown(self) -> None:
        """Azure's API version stays in the address; no query is shown."""
        provider = OpenAIChat(base_url="https://x.openai.azure.com/openai/v1/?api-version=2024&sig=secret")
        assert provider.base_url.join("chat/completions") == (
            "https://x.openai.azure.com/openai/v1/chat/completions?api-version=2024&sig=secret"
        )
        assert "secret" not in repr(provider) + str(provider.base_url) + repr(provider.base_url)

    def test_a_secret_is_not_shown(self) -> None:
        """Neither repr, str, format nor pickle give a secret away; two of the same value are equal."""
        secret = Secret(f" {KEY}\n")
        assert secret.reveal() == KEY
        assert KEY not in f"{secret!r} {secret} {secret:>30} {[secret]}"
        assert secret == Secret(KEY) != Secret("other")
        assert len({secret, Secret(KEY)}) == 1
        with pytest.raises(TypeError, match="not pickled"):
            pickle.dumps(secret)

    @pytest.mark.parametrize("value", ["", "  ", "sk-a\nb", "sk-ü", "sk-\x00"])
    def test_a_key_that_no_header_can_carry_is_refused(self, value: str) -> None:
        """An empty key, a line break or a character beyond ASCII is refused when it is given, unquoted."""
        with pytest.raises(ValueError, match="the key") as caught:
            Secret(value)
        assert "sk-" not in str(caught.value)

    @pytest.mark.parametrize("headers", [{"x-a": "b\r\nc: d"}, {"x a": "b"}, {"": "b"}, {"x-a": "ü"}])
    def test_a_header_that_is_none_is_refused(self, headers: dict[str, str]) -> None:
        """Header names and values that would break the request are refused when they are given."""
        with pytest.raises(ValueError, match="header"):
            OpenAIChat(base_url="http://h/v1", headers=headers)

    def test_the_environments_key_goes_to_its_own_host_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """`OPENAI_API_KEY` is for OpenAI's host; another host has another variable, or none."""
        for name in ("OPENAI_API_KEY", "GROQ_API_KEY", "OPENAI_BASE_URL"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("GROQ_API_KEY", "gsk-other")
        sent = {
            url: OpenAIChat(base_url=url)._headers.get("authorization")
            for url in (
                None,
                "https://api.groq.com/openai/v1",
                "http://127.0.0.1:8080/v1",
                "https://api.openai.com.evil.test/v1",
            )
        }
        assert list(sent.values()) == [f"Bearer {KEY}", "Bearer gsk-other", None, None]
        monkeypatch.setenv("OPENAI_BASE_URL", "http://gateway.test/v1")
        gateway = OpenAIChat()
        assert str(gateway.base_url) == "http://gateway.test/v1"
        assert gateway._headers["authorization"] == f"Bearer {KEY}"

    async def test_extra_headers_replace_ours_whatever_their_case(self) -> None:
        """A header of the user's replaces ours of the same name, and one of a request replaces both."""
        from trio_agent._request import ModelSettings

        settings = ModelSettings(extra_headers={"X-Trace": "t2"})
        async with memory_server([GOOD]) as (server, client):
            provider = memory_provider(client, api_key=KEY, headers={"Authorization": "Basic abc", "x-trace": "t1"})
            await asked(provider, a_request(settings=settings))
        headers = server.requests[0].headers
        assert (headers["authorization"], headers["x-trace"]) == ("Basic abc", "t2")


class TestOpening:
    """A provider is opened once and closed once; a client of the user's stays the user's."""

    async def test_a_provider_that_is_not_open_says_so(self) -> None:
        """Without `async with` and without a client there is a clear error and nothing to leak."""
        with pytest.raises(RuntimeError, match="async with"):
            await asked(OpenAIChat(base_url="http://h/v1"))

    async def test_a_provider_is_not_opened_twice(self) -> None:
        """Opening it twice is refused; opening it again after it was closed is not."""
        provider = OpenAIChat(base_url="http://h/v1")
        async with provider:
            with pytest.raises(RuntimeError, match="open already"):
                await provider.__aenter__()
        async with provider:
            pass
        with pytest.raises(RuntimeError, match="async with"):
            await asked(provider)

    async def test_the_users_client_stays_open(self) -> None:
        """Leaving the block does not close a client that was passed."""
        async with httpx.AsyncClient(transport=PlayingTransport(GOOD.parts)) as client:
            async with memory_provider(client) as provider:
                pass
            assert (await asked(provider)).clean().text == "a"

    def test_a_provider_serves_one_run_after_the_other(self) -> None:
        """A provider made outside may be opened in one `trio.run` and then in another."""
        provider = OpenAIChat(base_url="http://h/v1", client=httpx.AsyncClient(transport=PlayingTransport(GOOD.parts)))

        async def main() -> None:
            async with provider:
                assert (await asked(provider)).clean().text == "a"

        trio.run(main)
        trio.run(main)

    @pytest.mark.parametrize("client", [httpx.Client, object, 3])
    def test_a_client_that_is_none_is_refused(self, client: Any) -> None:
        """Anything but an async client of httpx or httpx2 is refused at once."""
        with pytest.raises(TypeError, match=r"httpx\.AsyncClient"):
            OpenAIChat(client=client() if isinstance(client, type) else client)

    def test_a_subclass_of_a_client_is_one(self) -> None:
        """A client class of the user's own is taken for what it extends."""

        class Mine(httpx2.AsyncClient):
            pass

        OpenAIChat(base_url="http://h", client=Mine())

    def test_no_slots_are_refused(self) -> None:
        """A pool of no connections is a mistake."""
        with pytest.raises(ValueError, match="max_connections"):
            OpenAIChat(base_url="http://h", max_connections=0)

    @pytest.mark.parametrize("field", ["connect", "first_byte", "idle"])
    def test_a_timeout_of_nothing_is_refused(self, field: str) -> None:
        """Time-outs are above zero."""
        with pytest.raises(ValueError, match=field):
            Timeouts(**{field: 0})
