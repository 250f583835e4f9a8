"""pydantic-ai-slim: `Agent.run(event_stream_handler=...)` over a model of our own.

`FunctionModel` would count the tokens of each delta by a regular expression; this one does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta, ToolReturnPart
from pydantic_ai.models import Model, StreamedResponse
from pydantic_ai.usage import UsageLimits

from ._work import DELTA, Script, peer_main


async def noop() -> str:
    """Do nothing."""
    await asyncio.sleep(0)
    return "done"


@dataclass
class Stream(StreamedResponse):
    deltas: int = 0
    calls: tuple[str, ...] = ()

    async def _get_event_iterator(self) -> AsyncIterator[Any]:
        for _ in range(self.deltas):
            for event in self._parts_manager.handle_text_delta(vendor_part_id="text", content=DELTA):
                yield event
        for call in self.calls:
            yield self._parts_manager.handle_tool_call_part(
                vendor_part_id=call, tool_name="noop", args="{}", tool_call_id=call
            )

    @property
    def model_name(self) -> str:
        return "fake"

    @property
    def provider_name(self) -> str:
        return "fake"

    @property
    def provider_url(self) -> str:
        return ""

    @property
    def timestamp(self) -> datetime:
        return datetime.now(tz=timezone.utc)  # noqa: UP017  # as its own providers do


class Fake(Model):
    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script

    async def request(self, *_args: Any, **_kwargs: Any) -> Any:
        raise AssertionError("only streaming is measured")

    @asynccontextmanager
    async def request_stream(
        self, messages: list[Any], model_settings: Any, model_request_parameters: Any, _run_context: Any = None
    ) -> AsyncIterator[StreamedResponse]:
        model_settings, model_request_parameters = self.prepare_request(model_settings, model_request_parameters)
        results = sum(isinstance(part, ToolReturnPart) for part in messages[-1].parts)
        deltas, calls = self.script.answer(results)
        yield Stream(model_request_parameters=model_request_parameters, deltas=deltas, calls=tuple(calls))

    @property
    def model_name(self) -> str:
        return "fake"

    @property
    def system(self) -> str:
        return "fake"

    @property
    def base_url(self) -> str:
        return ""


def make(script: Script) -> Agent[None, str]:
    return Agent(Fake(script), tools=[noop])


async def run(script: Script) -> str:
    async def subscriber(event: Any) -> None:
        script.event()
        if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
            script.told(event.delta.content_delta)
        elif isinstance(event, PartStartEvent) and isinstance(event.part, TextPart) and event.part.content:
            script.told(event.part.content)

    async def handler(_context: Any, events: Any) -> None:
        async for event in events:
            await subscriber(event)

    limits = UsageLimits(request_limit=None)
    return (await make(script).run("go", event_stream_handler=handler, usage_limits=limits)).output


if __name__ == "__main__":
    peer_main(run, make)
