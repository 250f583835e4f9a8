"""The kernel's shape with nothing in it: what its tasks and its events cost by themselves.

A run's task in a scope that nothing cancels, a child that waits for an outside cancellation, provider and tools in
children that are used again, eleven events a turn for one awaited subscriber. No event is judged, none changes a state,
nothing is validated, retried, closed or bounded. What the kernel costs beyond this is its own code.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import attrs
import trio

from trio_agent import Finish, TextDelta, ToolCallDelta, ToolCallStart
from trio_agent._mailbox import Bell
from trio_agent._quick import quick

from . import floor_trio
from ._work import main


@attrs.frozen
class Event:
    type: str
    what: object
    time: float


make_event = quick(Event)


class Child:
    """A task that does one thing after the other."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.bell = Bell()
        self.job: Callable[[], Awaitable[object]] | None = None

    async def live(self) -> None:
        while self.job is not None:
            await self.job()
            self.shape.running -= 1
            self.job = None
            self.shape.idle.append(self)
            self.shape.bell.wake()
            await self.bell.wait()


class Shape:
    def __init__(self, provider: Callable[..., Awaitable[None]], subscriber: floor_trio.Subscriber) -> None:
        self.provider = provider
        self.subscriber = subscriber
        self.history: list[Any] = []
        self.bell = Bell()
        self.running = 0
        self.idle: list[Child] = []
        self.chunks: list[Any] = []
        self.nursery: trio.Nursery

    async def prompt(self, text: str) -> str:
        self.now = trio.lowlevel.current_clock().current_time
        self.began = self.now()
        end = Bell()
        async with trio.open_nursery() as outer:
            outer.start_soon(end.wait)
            async with trio.open_nursery() as self.nursery:
                with trio.CancelScope(shield=True):
                    await self.emit("agent_start", None)
                    while await self.turn(text):
                        text = ""
                    await self.emit("agent_end", None)
                for child in self.idle:
                    child.bell.wake()
            end.wake()
        return str(self.history[-1][1])

    async def emit(self, kind: str, what: object) -> None:
        event = make_event(kind, what, self.now() - self.began)
        await self.subscriber((event.type, event.what))

    def start(self, job: Callable[[], Awaitable[object]]) -> None:
        self.running += 1
        if self.idle:
            child = self.idle.pop()
            child.job = job
            child.bell.wake()
        else:
            child = Child(self)
            child.job = job
            self.nursery.start_soon(child.live)

    async def send(self, chunk: Any) -> None:
        self.chunks.append(chunk)
        if len(self.chunks) == 1:
            self.bell.wake()

    async def turn(self, text: str) -> bool:
        await self.emit("turn_start", None)
        if text:
            await self.emit("message_start", text)
            self.history.append(("user", text))
            await self.emit("message_end", text)
        calls = await self.answer()
        for call_id, _ in calls:
            await self.emit("tool_execution_start", call_id)
        await self.execute([call_id for call_id, _ in calls])
        await self.emit("turn_end", None)
        return bool(calls)

    async def answer(self) -> list[tuple[str, str]]:
        parts: list[str] = []
        calls: list[tuple[str, str]] = []
        self.start(partial(self.provider, self.history, self.send))
        await self.bell.wait()
        await self.emit("message_start", None)
        while self.running or self.chunks:
            if not self.chunks:
                await self.bell.wait()
            chunks, self.chunks = self.chunks, []
            for chunk in chunks:
                if type(chunk) is TextDelta:
                    parts.append(chunk.text)
                    await self.emit("delta", chunk)
                elif type(chunk) is ToolCallStart:
                    calls.append((chunk.id or "", chunk.name))
                    await self.emit("start", chunk)
                elif type(chunk) is ToolCallDelta:
                    await self.emit("arguments", chunk)
                else:
                    assert type(chunk) is Finish
        self.history.append(("assistant", "".join(parts), calls))
        await self.emit("message_end", self.history[-1])
        return calls

    async def execute(self, call_ids: list[str]) -> None:
        results: dict[str, str] = {}
        done: list[str] = []

        async def run(call_id: str) -> None:
            results[call_id] = await floor_trio.noop()
            done.append(call_id)

        for call_id in call_ids:
            self.start(partial(run, call_id))
        while self.running or done:
            if not done:
                await self.bell.wait()
            ended, done[:] = done[:], []
            for call_id in ended:
                await self.emit("tool_execution_end", call_id)
        for call_id in call_ids:
            await self.emit("result", call_id)
            self.history.append(("result", call_id, results[call_id]))
            await self.emit("message_end", call_id)


if __name__ == "__main__":
    workloads = ("turns", "deltas", "parallel", "fanout", "idle")
    main({name: partial(getattr(floor_trio, name), make=Shape) for name in workloads}, trio.run)
