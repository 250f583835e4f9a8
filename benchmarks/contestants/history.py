"""What a long history costs: looking at the state, at its messages from a subscriber, asking, appending, loading.

`python -m benchmarks.contestants.history history TURNS` prints one JSON row, in microseconds each; `load` and the
requests are for the whole history.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import trio

from trio_agent import (
    Agent,
    AssistantMessage,
    Event,
    Finish,
    Message,
    MessageEnd,
    ModelRequest,
    TextDelta,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from trio_agent.session import SessionLog, load_session

REPEATS = 50


def of_turns(turns: int) -> list[Message]:
    messages: list[Message] = [UserMessage("go")]
    for at in range(turns):
        messages.append(AssistantMessage([ToolCall(f"c{at}", "noop", {})], "tool_use"))
        messages.append(ToolResultMessage(f"c{at}", "noop", "done"))
    return [*messages, AssistantMessage("done")]


def micros(fn: Callable[[], object]) -> float:
    began = time.process_time()
    for _ in range(REPEATS):
        fn()
    return (time.process_time() - began) / REPEATS * 1e6


async def _provider(_request: ModelRequest, send: Callable[[Any], Awaitable[None]]) -> None:
    await send(TextDelta(0, "abcd"))
    await send(Finish("stop"))


def requests(messages: list[Message]) -> tuple[float, float]:
    """The body for Chat Completions: when all of it is new to the writer, and when two messages are."""
    from trio_agent.providers._openai_chat_dialect import ChatDialect
    from trio_agent.providers._openai_chat_request import ChatRequestWriter

    writer = ChatRequestWriter(ChatDialect(), "openai-chat")

    def write() -> float:
        began = time.process_time()
        writer.write(ModelRequest(model="m", messages=tuple(messages)))
        return (time.process_time() - began) * 1e6

    first, following = write(), []
    for _ in range(REPEATS):
        messages += [UserMessage("more"), AssistantMessage("done")]
        following.append(write())
    return first, sorted(following)[REPEATS // 2]


async def measure(turns: int) -> dict[str, Any]:
    agent = Agent(_provider, model="m", messages=of_turns(turns))
    row: dict[str, Any] = {"workload": "history", "size": turns}
    row["state"] = micros(lambda: agent.state)
    looks: list[float] = []

    def look(event: Event) -> None:
        if isinstance(event, MessageEnd):
            looks.append(micros(lambda: agent.state.messages[-1]))

    with agent.subscribe(look):
        await agent.prompt("go")
    row["snapshot"] = min(looks)
    began = time.process_time()
    for _ in range(REPEATS):  # each run asks once: all of it, without what it does beside building the request
        await agent.prompt("go")
    row["run"] = (time.process_time() - began) / REPEATS * 1e6
    row["first_request"], row["next_request"] = requests(of_turns(turns))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session.jsonl"
        with SessionLog(path) as log:
            for message in of_turns(turns):
                log(MessageEnd(message))
            row["append"] = micros(lambda: log(MessageEnd(UserMessage("more"))))
        began = time.process_time()
        session = load_session(path)
        row["load"] = (time.process_time() - began) * 1e6
    assert len(session.messages) == 2 * turns + 2 + REPEATS, len(session.messages)
    return row


if __name__ == "__main__":
    print(json.dumps(trio.run(measure, int(sys.argv[2]))))
