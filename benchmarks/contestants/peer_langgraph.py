"""langgraph: the graph of `langchain.agents.create_agent`, stream modes messages and updates, without a checkpointer.

LangSmith's tracing is switched off; it is off by default, but an environment variable could switch it on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, ToolMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.tools import tool

from ._work import DELTA, Script, peer_main

os.environ["LANGSMITH_TRACING"] = "false"


@tool
async def noop() -> str:
    """Do nothing."""
    await asyncio.sleep(0)
    return "done"


class Fake(BaseChatModel):
    script: Any

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, *_args: Any, **_kwargs: Any) -> Any:  # the script knows its tools
        return self

    def _generate(self, messages: Any, *_args: Any, **_kwargs: Any) -> ChatResult:  # noqa: ARG002  # the base class names it
        raise AssertionError("only streaming is measured")

    async def _astream(self, messages: list[Any], *_args: Any, **_kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        deltas, calls = self.script.answer(trailing(messages))
        for _ in range(deltas):
            yield ChatGenerationChunk(message=AIMessageChunk(content=DELTA))
        if calls:
            chunks: list[Any] = [
                {"name": "noop", "args": "{}", "id": call, "index": at, "type": "tool_call_chunk"}
                for at, call in enumerate(calls)
            ]
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=chunks))


def trailing(messages: list[Any]) -> int:
    count = 0
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            break
        count += 1
    return count


def make(script: Script) -> Any:
    return create_agent(Fake(script=script), [noop])


async def run(script: Script) -> str:
    last = ""

    async def subscriber(mode: str, event: Any) -> None:
        nonlocal last
        script.event()
        if mode == "messages":
            if isinstance(event[0], AIMessageChunk) and event[0].content:
                script.told(event[0].content)
        elif "model" in event:
            last = event["model"]["messages"][-1].content

    given = {"messages": [{"role": "user", "content": "go"}]}
    config = {"recursion_limit": 1_000_000}
    async for mode, event in make(script).astream(given, config, stream_mode=["messages", "updates"]):
        await subscriber(mode, event)
    return last


if __name__ == "__main__":
    peer_main(run, make)
