"""agent-framework-core: an `Agent` over a chat client of our own with the layer that calls functions.

Its instrumentation, which is on by itself, is switched off.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    tool,
)
from agent_framework.observability import disable_instrumentation

from ._work import DELTA, Script, peer_main

disable_instrumentation()


@tool(approval_mode="never_require")
async def noop() -> str:
    """Do nothing."""
    await asyncio.sleep(0)
    return "done"


class Fake(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    def __init__(self, script: Script) -> None:
        super().__init__(function_invocation_configuration={"max_iterations": 1_000_000})
        self.script = script

    def _inner_get_response(self, *, messages: Sequence[Any], stream: bool, **_kwargs: Any) -> Any:
        assert stream, "only streaming is measured"

        async def updates() -> AsyncIterator[ChatResponseUpdate]:
            deltas, calls = self.script.answer(trailing(messages))
            name = f"m{self.script.asked}"
            for _ in range(deltas):
                yield ChatResponseUpdate(contents=[Content.from_text(DELTA)], role="assistant", message_id=name)
            if calls:
                wanted = [Content.from_function_call(call, "noop", arguments="{}") for call in calls]
                yield ChatResponseUpdate(contents=wanted, role="assistant", message_id=name)

        return self._build_response_stream(updates())


def trailing(messages: Sequence[Any]) -> int:
    count = 0
    for message in reversed(messages):
        results = sum(content.type == "function_result" for content in message.contents)
        if not results:
            break
        count += results
    return count


def make(script: Script) -> Agent[Any]:
    return Agent(Fake(script), tools=[noop])


async def run(script: Script) -> str:
    async def subscriber(update: Any) -> None:
        for content in update.contents:  # the results of a turn come in one update
            script.event()
            if content.type == "text":
                script.told(content.text)

    stream = make(script).run("go", stream=True)
    async for update in stream:
        await subscriber(update)
    return str((await stream.get_final_response()).messages[-1].text)


if __name__ == "__main__":
    peer_main(run, make)
