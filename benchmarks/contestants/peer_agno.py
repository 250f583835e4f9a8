"""agno: `Agent.arun(stream=True, stream_events=True)` without a database, over a model of our own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from agno.agent import Agent
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.run.agent import RunContentEvent

from ._work import DELTA, Script, peer_main


async def noop() -> str:
    """Do nothing."""
    await asyncio.sleep(0)
    return "done"


class Fake(Model):
    """Streams what the script says; tool calls come whole, as agno's own providers give them in the end."""

    def __init__(self, script: Script) -> None:
        super().__init__(id="fake", name="fake", provider="fake")
        self.script = script

    async def ainvoke_stream(self, messages: list[Any], **_kwargs: Any) -> AsyncIterator[ModelResponse]:
        deltas, calls = self.script.answer(trailing(messages))
        for _ in range(deltas):
            yield ModelResponse(role="assistant", content=DELTA)
        if calls:
            yield ModelResponse(
                tool_calls=[
                    {"id": call, "type": "function", "function": {"name": "noop", "arguments": "{}"}} for call in calls
                ]
            )

    def invoke(self, *_args: Any, **_kwargs: Any) -> ModelResponse:
        raise AssertionError("only streaming is measured")

    async def ainvoke(self, *_args: Any, **_kwargs: Any) -> ModelResponse:
        raise AssertionError("only streaming is measured")

    def invoke_stream(self, *_args: Any, **_kwargs: Any) -> Any:
        raise AssertionError("only streaming is measured")

    def _parse_provider_response(self, response: Any, **_kwargs: Any) -> ModelResponse:
        return response

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        return response


def trailing(messages: list[Any]) -> int:
    count = 0
    for message in reversed(messages):
        if message.role != "tool":
            break
        count += 1
    return count


def make(script: Script) -> Agent:
    return Agent(model=Fake(script), tools=[noop], telemetry=False)


async def run(script: Script) -> str:
    last = ""
    asked = 0

    async def subscriber(event: Any) -> None:
        nonlocal last, asked
        script.event()
        if isinstance(event, RunContentEvent) and event.content:
            script.told(event.content)
            last = last + event.content if asked == script.asked else event.content
            asked = script.asked

    async for event in make(script).arun("go", stream=True, stream_events=True):
        await subscriber(event)
    return last


if __name__ == "__main__":
    peer_main(run, make)
