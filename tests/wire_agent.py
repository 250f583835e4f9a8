"""A whole agent whose model is a service that plays bodies, for the cases that others have met.

Here live the service, the tools and the agent over them. No API is known here.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs
import httpx
import trio

from tests.wire_files import Pieces
from trio_agent import Agent, RetryPolicy, tool

Body = Sequence[bytes | Exception]
RETRY = RetryPolicy(max_attempts=2, base_delay=1.0, jitter=False)


@attrs.define
class Service:
    """Answers request after request with these bodies, and keeps what it was asked."""

    bodies: list[Body]
    requests: list[dict[str, Any]] = attrs.field(factory=list)

    async def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(json.loads(request.content))
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Pieces(self.bodies.pop(0)))


@attrs.define
class Ran:
    """What the tools were called with, and how many seconds each call of `f` shall take."""

    calls: list[dict[str, Any]] = attrs.field(factory=list)
    delays: dict[int, float] = attrs.field(factory=dict)

    def tools(self) -> list[Any]:
        @tool
        async def f(n: int = 0) -> str:
            """Do."""
            self.calls.append({"n": n})
            await trio.sleep(self.delays.get(n, 0.0))
            return f"result {n}"

        @tool
        async def w(p: str = "") -> str:
            """Write."""
            self.calls.append({"p": p})
            return " "

        return [f, w]


@asynccontextmanager
async def agent_over(provider: Any, *bodies: Body, **options: Any) -> AsyncIterator[tuple[Agent, Service, Ran]]:
    """An agent with two tools over a provider, made here, whose service sends these bodies."""
    service, ran = Service(list(bodies)), Ran()
    async with httpx.AsyncClient(transport=httpx.MockTransport(service.answer)) as client:
        made = provider(base_url="http://service.test/v1", client=client)
        options = {"retry": RetryPolicy(max_attempts=1), "model": "m", **options}
        yield Agent(made, tools=ran.tools(), **options), service, ran
