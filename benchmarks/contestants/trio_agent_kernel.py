"""Ourselves: the kernel as an application uses it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from trio_agent import (
    Agent,
    Event,
    Finish,
    MessageUpdate,
    ModelRequest,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    ToolResultMessage,
    tool,
)

from ._work import AGENTS_TURNS, APIS, DELTA, Proof, Workload, add, main

Send = Callable[[Any], Awaitable[None]]


@tool
async def noop() -> str:
    """Do nothing, with a checkpoint."""
    await trio.lowlevel.checkpoint()
    return "done"


class _Counting:
    """The async subscriber that every contestant has."""

    def __init__(self) -> None:
        self.proof = Proof()

    async def __call__(self, event: Event) -> None:
        self.proof.events += 1
        if type(event) is MessageUpdate and type(event.delta) is TextDelta:
            self.proof.deltas += 1
            self.proof.characters += len(event.delta.text)


def _agent(provider: Any, subscriber: Any, **options: Any) -> Agent:
    agent = Agent(provider, model="m", **options)
    agent.subscribe(subscriber)
    return agent


def _tool_turns(turns: int, proof: Proof) -> Callable[[ModelRequest, Send], Awaitable[None]]:
    asked = 0

    async def provider(request: ModelRequest, send: Send) -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            proof.results_seen += isinstance(request.messages[-1], ToolResultMessage)
        await send(TextDelta(0, DELTA))
        if asked < turns:
            await send(ToolCallStart(1, f"c{asked}", "noop"))
            await send(ToolCallDelta(1, "{}"))
        await send(Finish("tool_use" if asked < turns else "stop"))

    return provider


async def turns(size: int) -> Proof:
    subscriber = _Counting()
    agent = _agent(_tool_turns(size, subscriber.proof), subscriber, tools=[noop])
    result = await agent.prompt("go")
    assert result.outcome == "completed", result
    subscriber.proof.units = size
    return subscriber.proof


async def deltas(size: int) -> Proof:
    subscriber = _Counting()
    chunks = [TextDelta(0, DELTA) for _ in range(size)]

    async def provider(_request: ModelRequest, send: Send) -> None:
        for chunk in chunks:
            await send(chunk)
        await send(Finish("stop"))

    result = await _agent(provider, subscriber).prompt("go")
    assert len(result.text) == 4 * size, result
    subscriber.proof.units = size
    return subscriber.proof


async def parallel(size: int) -> Proof:
    subscriber = _Counting()
    proof = subscriber.proof
    asked = 0

    async def provider(request: ModelRequest, send: Send) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            for n in range(size):
                await send(ToolCallStart(n, f"c{n}", "noop"))
                await send(ToolCallDelta(n, "{}"))
            await send(Finish("tool_use"))
        else:
            proof.results_seen += sum(1 for message in request.messages if isinstance(message, ToolResultMessage))
            await send(TextDelta(0, DELTA))
            await send(Finish("stop"))

    await _agent(provider, subscriber, tools=[noop]).prompt("go")
    proof.units = size
    return proof


async def fanout(size: int) -> Proof:
    total = Proof(units=size)

    async def one() -> None:
        add(total, await turns(AGENTS_TURNS))

    async with trio.open_nursery() as nursery:
        for _ in range(size):
            nursery.start_soon(one)
    return total


_kept: list[Any] = []


async def idle(size: int) -> Proof:
    subscriber = _Counting()
    provider = _tool_turns(1, subscriber.proof)
    _kept.extend([_agent(provider, subscriber, tools=[noop]) for _ in range(size)])
    await trio.lowlevel.checkpoint()
    return Proof(units=size)


def wire(api: str) -> Workload:
    """A recorded stream through the adapter, the kernel and the subscriber."""

    async def read(size: int) -> Proof:
        from trio_agent.providers import Anthropic, Gemini, OpenAIChat, OpenAIResponses

        from ._wire import client, stream

        makers: dict[str, Any] = {
            "chat": OpenAIChat,
            "responses": OpenAIResponses,
            "anthropic": Anthropic,
            "gemini": Gemini,
        }
        body = stream(api, size)
        subscriber = _Counting()
        async with client(body) as http, makers[api](client=http, api_key="none") as provider:
            result = await _agent(provider, subscriber).prompt("go")
        assert result.outcome == "completed", result
        assert len(result.text) == subscriber.proof.characters, result
        subscriber.proof.units = len(body) / 1e6
        return subscriber.proof

    return read


if __name__ == "__main__":
    wires = {f"wire-{api}": wire(api) for api in APIS}
    workloads = {"turns": turns, "deltas": deltas, "parallel": parallel, "fanout": fanout, "idle": idle}
    main({**workloads, **wires}, trio.run)
