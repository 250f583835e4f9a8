"""The floor: the smallest Trio code that does the same work, with no kernel and no guarantee."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from trio_agent import Finish, TextDelta, ToolCallDelta, ToolCallStart

from ._work import AGENTS_TURNS, APIS, DELTA, Proof, Workload, add, main

Subscriber = Callable[[tuple[str, Any]], Awaitable[None]]


async def noop() -> str:
    await trio.lowlevel.checkpoint()
    return "done"


class Loop:
    """An agent without a kernel: chunks in, one awaited subscriber per event, tools in a nursery, history in a list."""

    def __init__(self, provider: Callable[..., Awaitable[None]], subscriber: Subscriber) -> None:
        self.provider = provider
        self.subscriber = subscriber
        self.history: list[Any] = []

    async def prompt(self, text: str) -> str:
        self.history.append(("user", text))
        while True:
            parts: list[str] = []
            calls: list[tuple[str, str]] = []

            async def send(chunk: Any) -> None:
                if type(chunk) is TextDelta:
                    parts.append(chunk.text)  # noqa: B023  # used within this turn only
                    await self.subscriber(("delta", chunk))
                elif type(chunk) is ToolCallStart:
                    calls.append((chunk.id or "", chunk.name))  # noqa: B023

            await self.provider(self.history, send)
            self.history.append(("assistant", "".join(parts), calls))
            if not calls:
                return self.history[-1][1]
            results: dict[str, str] = {}

            async def run(call_id: str) -> None:
                results[call_id] = await noop()  # noqa: B023
                await self.subscriber(("result", call_id))

            async with trio.open_nursery() as nursery:
                for call_id, _ in calls:
                    nursery.start_soon(run, call_id)
            self.history.extend([("result", call_id, results[call_id]) for call_id, _ in calls])


class _Counting:
    """The async subscriber that every contestant has."""

    def __init__(self) -> None:
        self.proof = Proof()

    async def __call__(self, event: tuple[str, Any]) -> None:
        self.proof.events += 1
        if event[0] == "delta":
            self.proof.deltas += 1
            self.proof.characters += len(event[1].text)


def _tool_turns(turns: int, proof: Proof) -> Callable[..., Awaitable[None]]:
    asked = 0

    async def provider(history: list[Any], send: Callable[[Any], Awaitable[None]]) -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            proof.results_seen += history[-1][0] == "result"
        await send(TextDelta(0, DELTA))
        if asked < turns:
            await send(ToolCallStart(1, f"c{asked}", "noop"))
            await send(ToolCallDelta(1, "{}"))
        await send(Finish("tool_use" if asked < turns else "stop"))

    return provider


async def turns(size: int, make: Any = Loop) -> Proof:
    subscriber = _Counting()
    await make(_tool_turns(size, subscriber.proof), subscriber).prompt("go")
    subscriber.proof.units = size
    return subscriber.proof


async def deltas(size: int, make: Any = Loop) -> Proof:
    subscriber = _Counting()
    chunks = [TextDelta(0, DELTA) for _ in range(size)]

    async def provider(_history: list[Any], send: Callable[[Any], Awaitable[None]]) -> None:
        for chunk in chunks:
            await send(chunk)
        await send(Finish("stop"))

    text = await make(provider, subscriber).prompt("go")
    assert len(text) == 4 * size
    subscriber.proof.units = size
    return subscriber.proof


async def parallel(size: int, make: Any = Loop) -> Proof:
    subscriber = _Counting()
    proof = subscriber.proof
    asked = 0

    async def provider(history: list[Any], send: Callable[[Any], Awaitable[None]]) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            for n in range(size):
                await send(ToolCallStart(n, f"c{n}", "noop"))
                await send(ToolCallDelta(n, "{}"))
            await send(Finish("tool_use"))
        else:
            proof.results_seen += sum(1 for message in history if message[0] == "result")
            await send(TextDelta(0, DELTA))
            await send(Finish("stop"))

    await make(provider, subscriber).prompt("go")
    proof.units = size
    return proof


async def fanout(size: int, make: Any = Loop) -> Proof:
    total = Proof(units=size)

    async def one() -> None:
        add(total, await turns(AGENTS_TURNS, make))

    async with trio.open_nursery() as nursery:
        for _ in range(size):
            nursery.start_soon(one)
    return total


_kept: list[Any] = []


async def idle(size: int, make: Any = Loop) -> Proof:
    subscriber = _Counting()
    provider = _tool_turns(1, subscriber.proof)
    _kept.extend([make(provider, subscriber) for _ in range(size)])
    await trio.lowlevel.checkpoint()
    return Proof(units=size)


def wire(api: str) -> Workload:
    """Parsing alone: events by httpx-sse, JSON by msgspec. Only the first run, which warms up, looks for the text."""
    found: dict[int, Proof] = {}

    async def parse(size: int) -> Proof:
        import httpx_sse
        import msgspec

        from ._wire import URLS, client, stream, text_of

        decode = msgspec.json.Decoder().decode
        proof, body, looks = Proof(), stream(api, size), size not in found
        async with client(body) as http, httpx_sse.aconnect_sse(http, "POST", URLS[api]) as source:
            async for event in source.aiter_sse():
                proof.events += 1
                if event.data != "[DONE]":
                    value = decode(event.data)
                    if looks and (text := text_of(api, value)):
                        proof.deltas += 1
                        proof.characters += len(text)
        first = found.setdefault(size, proof)
        assert proof.events == first.events
        return Proof(proof.events, first.deltas, first.characters, units=len(body) / 1e6)

    return parse


if __name__ == "__main__":
    wires = {f"wire-{api}": wire(api) for api in APIS}
    workloads = {"turns": turns, "deltas": deltas, "parallel": parallel, "fanout": fanout, "idle": idle}
    main({**workloads, **wires}, trio.run)
