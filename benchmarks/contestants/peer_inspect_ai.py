"""inspect-ai, on Trio: `Model.generate_loop(on_stream=)` outside of an evaluation, over a model API of our own.

It tells of text and of calls, not of results. Its `mockllm` does not stream. What an evaluation adds (a
log, a display, limits) is not running; the record that it keeps of each call is as it comes.
"""

from __future__ import annotations

from typing import Any

import trio
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessageAssistant,
    GenerateConfig,
    Model,
    ModelAPI,
    ModelOutput,
    modelapi,
)
from inspect_ai.model._stream import StreamTextEvent, StreamToolCallEvent, report_model_stream_delta
from inspect_ai.tool import ToolCall, tool

from ._work import DELTA, Script, peer_workloads
from ._work import main as measure


@tool
def noop() -> Any:
    async def execute() -> str:
        """Do nothing."""
        await trio.lowlevel.checkpoint()
        return "done"

    return execute


@modelapi("fake")
class Fake(ModelAPI):
    def __init__(self, script: Script) -> None:
        super().__init__("fake")
        self.script = script

    async def generate(self, input: list[Any], **_others: Any) -> ModelOutput:
        deltas, calls = self.script.answer(trailing(input))
        for _ in range(deltas):
            await report_model_stream_delta(StreamTextEvent(text=DELTA))
        for call in calls:
            await report_model_stream_delta(StreamToolCallEvent(id=call, function="noop", arguments="{}"))
        wanted = [ToolCall(id=call, function="noop", arguments={}) for call in calls]
        message = ChatMessageAssistant(content=DELTA * deltas, tool_calls=wanted or None, model="fake")
        stop = "tool_calls" if calls else "stop"
        return ModelOutput(model="fake", choices=[ChatCompletionChoice(message=message, stop_reason=stop)])

    def max_connections(self) -> int:
        return 1_000_000

    def connection_key(self) -> str:
        return str(id(self))


def trailing(messages: list[Any]) -> int:
    count = 0
    for message in reversed(messages):
        if message.role != "tool":
            break
        count += 1
    return count


def make(script: Script) -> tuple[Model, list[Any]]:
    return Model(Fake(script), GenerateConfig()), [noop()]


async def run(script: Script) -> str:
    model, tools = make(script)

    async def subscriber(event: Any) -> None:
        script.event()
        if event.type == "text":
            script.told(event.text)

    _, output = await model.generate_loop("go", tools=tools, on_stream=subscriber)
    return output.completion


async def at_once(fns: Any) -> list[Any]:
    found: list[Any] = []

    async def one(fn: Any) -> None:
        found.append(await fn())

    async with trio.open_nursery() as nursery:
        for fn in fns:
            nursery.start_soon(one, fn)
    return found


if __name__ == "__main__":
    measure(peer_workloads(run, make, at_once), trio.run)
