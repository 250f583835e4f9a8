"""Topic 15, the part of HTTP: what cancelled requests leave behind, with real sockets (B164, B166)."""

from __future__ import annotations

import gc
import socket
import warnings
from typing import Any

import httpx
import httpx2
import pytest
import trio

from tests.wire_files import DONE, delta
from tests.wire_server import STALL, Reply, WireServer, tcp_server
from trio_agent import Agent, MessageUpdate
from trio_agent.providers import OpenAIChat

pytestmark = pytest.mark.real_time
CLIENTS = pytest.mark.parametrize("make_client", [httpx.AsyncClient, httpx2.AsyncClient], ids=["httpx", "httpx2"])
GOOD = Reply([delta({"content": "a"}, "stop"), DONE])


def limited(make_client: Any, size: int = 2) -> Any:
    library = httpx if make_client is httpx.AsyncClient else httpx2
    return make_client(limits=library.Limits(max_connections=size))


@CLIENTS
async def test_b164_a_read_that_is_cancelled_closes_its_response(make_client: Any) -> None:
    """B164: thirty runs aborted in the middle of an answer, two connections: the server sees thirty go."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with tcp_server(lambda request: Reply([delta({"content": "a"}), STALL])) as (server, url):
            for _ in range(30):
                async with limited(make_client) as client:
                    agent = Agent(OpenAIChat(base_url=url, client=client), model="m")

                    def stop(event: object, agent: Agent = agent) -> None:
                        if isinstance(event, MessageUpdate):
                            agent.abort()

                    agent.subscribe(stop)
                    assert (await agent.prompt("go")).outcome == "aborted"
            with trio.fail_after(10):
                for _ in range(30):
                    await server.over.receive()
            assert server.disconnects == 30
        gc.collect()
        await trio.sleep(0)
    assert [str(warning.message) for warning in caught] == []


async def test_b164_the_providers_own_client_too() -> None:
    """B164: the same over the provider's own pool of two connections, which is used again and again."""
    async with tcp_server(lambda request: Reply([delta({"content": "a"}), STALL])) as (server, url):
        async with OpenAIChat(base_url=url, max_connections=2) as provider:
            for _ in range(30):
                agent = Agent(provider, model="m")
                agent.subscribe(lambda event, agent=agent: isinstance(event, MessageUpdate) and agent.abort())
                assert (await agent.prompt("go")).outcome == "aborted"
        with trio.fail_after(10):
            for _ in range(30):
                await server.over.receive()
        assert server.disconnects == 30
    gc.collect()


@CLIENTS
async def test_b166_cancelled_while_connecting(make_client: Any) -> None:
    """B166: five prompts aborted while connect hangs; when the server is healthy again, the next one succeeds."""
    with trio.socket.socket() as listener:
        await listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        fillers = [_started_connect(address) for _ in range(4)]  # a full backlog: connect hangs
        async with limited(make_client) as client, trio.open_nursery() as nursery:
            agent = Agent(OpenAIChat(base_url=f"http://127.0.0.1:{address[1]}/v1", client=client), model="m")
            for _ in range(5):
                async with trio.open_nursery() as prompting:
                    prompting.start_soon(_aborted_prompt, agent)
                    await trio.sleep(0.02)
                    agent.abort()
            for filler in fillers:
                filler.close()
            stream_listener = trio.SocketListener(listener)
            nursery.start_soon(trio.serve_listeners, _serve_quietly, [stream_listener])
            with trio.fail_after(20):
                assert (await agent.prompt("go")).text == "a"
            nursery.cancel_scope.cancel()


async def _aborted_prompt(agent: Agent) -> None:
    assert (await agent.prompt("go")).outcome == "aborted"


def _started_connect(address: Any) -> socket.socket:
    filler = socket.socket()
    filler.setblocking(False)
    filler.connect_ex(address)
    return filler


async def _serve_quietly(stream: trio.SocketStream) -> None:
    await WireServer(lambda request: GOOD).serve(stream)
