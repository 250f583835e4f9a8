"""openai-agents: `Runner.run_streamed` over a model of our own, tracing off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.models.interface import Model
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

from ._work import DELTA, Script, peer_main

set_tracing_disabled(True)


@function_tool
async def noop() -> str:
    """Do nothing."""
    await asyncio.sleep(0)
    return "done"


class Fake(Model):
    def __init__(self, script: Script) -> None:
        self.script = script

    async def get_response(self, *_args: Any, **_kwargs: Any) -> Any:
        raise AssertionError("only streaming is measured")

    async def stream_response(self, _instructions: Any, input: Any, *_args: Any, **_kwargs: Any) -> AsyncIterator[Any]:
        deltas, calls = self.script.answer(trailing(input))
        number = 0
        for number in range(deltas):
            yield ResponseTextDeltaEvent(
                content_index=0,
                delta=DELTA,
                item_id="m",
                logprobs=[],
                output_index=0,
                sequence_number=number,
                type="response.output_text.delta",
            )
        output: list[Any] = []
        if deltas:
            text = ResponseOutputText(annotations=[], text=DELTA * deltas, type="output_text")
            output.append(
                ResponseOutputMessage(
                    id=f"m{self.script.asked}", content=[text], role="assistant", status="completed", type="message"
                )
            )
        output += [
            ResponseFunctionToolCall(arguments="{}", call_id=call, name="noop", type="function_call") for call in calls
        ]
        response = Response(
            id=f"r{self.script.asked}",
            created_at=0,
            model="fake",
            object="response",
            output=output,
            parallel_tool_calls=True,
            tool_choice="auto",
            tools=[],
        )
        yield ResponseCompletedEvent(response=response, sequence_number=number + 1, type="response.completed")


def trailing(items: Any) -> int:
    count = 0
    for item in reversed(items if isinstance(items, list) else []):
        if item.get("type") != "function_call_output":
            break
        count += 1
    return count


def make(script: Script) -> Agent[Any]:
    return Agent(name="a", model=Fake(script), tools=[noop])


async def run(script: Script) -> str:
    async def subscriber(event: Any) -> None:
        script.event()
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            script.told(event.data.delta)

    result = Runner.run_streamed(make(script), "go", max_turns=1_000_000)
    async for event in result.stream_events():
        await subscriber(event)
    return str(result.final_output)


if __name__ == "__main__":
    peer_main(run, make)
