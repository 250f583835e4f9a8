"""autogen-agentchat: an `AssistantAgent` with streaming on and room for any number of tool iterations.

Its loggers are as they come: without a handler. Its tracing does nothing as long as no OpenTelemetry SDK is set up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import ModelClientStreamingChunkEvent, ToolCallExecutionEvent
from autogen_core import FunctionCall
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResultMessage,
    ModelInfo,
    RequestUsage,
)

from ._work import DELTA, Script, peer_main

NOTHING = RequestUsage(prompt_tokens=0, completion_tokens=0)


async def noop() -> str:
    """Do nothing."""
    await asyncio.sleep(0)
    return "done"


class Fake(ChatCompletionClient):
    component_config_schema = None  # type: ignore[assignment]

    def __init__(self, script: Script) -> None:
        self.script = script

    async def create(self, *_args: Any, **_kwargs: Any) -> CreateResult:
        raise AssertionError("only streaming is measured")

    async def create_stream(self, messages: Sequence[Any], **_kwargs: Any) -> AsyncGenerator[str | CreateResult, None]:
        last = messages[-1]
        results = len(last.content) if isinstance(last, FunctionExecutionResultMessage) else 0
        deltas, calls = self.script.answer(results)
        for _ in range(deltas):
            yield DELTA
        text = DELTA * deltas
        if calls:
            wanted = [FunctionCall(id=call, name="noop", arguments="{}") for call in calls]
            yield CreateResult(
                finish_reason="function_calls", content=wanted, usage=NOTHING, cached=False, thought=text or None
            )
        else:
            yield CreateResult(finish_reason="stop", content=text, usage=NOTHING, cached=False)

    async def close(self) -> None:
        pass

    def actual_usage(self) -> RequestUsage:
        return NOTHING

    def total_usage(self) -> RequestUsage:
        return NOTHING

    def count_tokens(self, *_args: Any, **_kwargs: Any) -> int:
        return 0

    def remaining_tokens(self, *_args: Any, **_kwargs: Any) -> int:
        return 1_000_000

    @property
    def capabilities(self) -> Any:
        return self.model_info

    @property
    def model_info(self) -> ModelInfo:
        return ModelInfo(
            vision=False, function_calling=True, json_output=False, family="unknown", structured_output=False
        )


def make(script: Script) -> AssistantAgent:
    return AssistantAgent(
        "a",
        Fake(script),
        tools=[noop],
        model_client_stream=True,
        reflect_on_tool_use=False,
        max_tool_iterations=1_000_000,
    )


async def run(script: Script) -> str:
    last = ""

    async def subscriber(event: Any) -> None:
        nonlocal last
        for _ in event.content if isinstance(event, ToolCallExecutionEvent) else "1":  # it has all results of a turn
            script.event()
        if isinstance(event, ModelClientStreamingChunkEvent):
            script.told(event.content)
        elif isinstance(event, TaskResult):
            last = event.messages[-1].content  # type: ignore[attr-defined,union-attr]

    async for event in make(script).run_stream(task="go"):
        await subscriber(event)
    return last


if __name__ == "__main__":
    peer_main(run, make)
