"""A process that writes a session until it is killed, and the loop that kills it. Used by test_session_kill.py.

Run as a program: `python session_victims.py FILE ROUNDS SEED`. It forks, so it imports everything once and starts no
thread; it ends with status 0 and a line of figures, or with a traceback.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import trio

from trio_agent import Agent, AssistantMessage, Event, MessageEnd, ToolExecutionEnd, ToolResultMessage, encode, tool
from trio_agent._chunks import Finish, TextDelta, ToolCallDelta, ToolCallStart
from trio_agent._provider import Send
from trio_agent._request import ModelRequest
from trio_agent.session import SessionLog, load_session


@tool
async def look(n: int) -> str:
    """Take a checkpoint or two."""
    for _ in range(n % 3):
        await trio.lowlevel.checkpoint()
    return f"saw {n} " + "é" * (n * 37 % 2000)


async def provider(request: ModelRequest, send: Send) -> None:
    turn = len(request.messages)
    await send(TextDelta(0, f"turn {turn} " + "x" * random.randrange(4000)))
    if turn % 7:
        for index in range(1, 1 + turn % 4):
            await send(ToolCallStart(index, None, "look"))
            await send(ToolCallDelta(index, json.dumps({"n": turn + index})))
        await send(Finish("tool_use" if turn % 4 else "stop"))
    else:
        await send(Finish("stop"))


def victim(path: Path, acknowledge: int, prompts: Iterable[str]) -> None:
    """Go on with the session, prompt by prompt; say what the log has handled."""

    async def main() -> None:
        with SessionLog(path) as log:
            agent = Agent(provider, model="m", tools=[look], messages=log.load().messages)
            agent.subscribe(log)
            agent.subscribe(told)
            for prompt in prompts:
                await agent.prompt(prompt)

    def told(event: Event) -> None:
        if isinstance(event, MessageEnd):
            os.write(acknowledge, json.dumps(encode(event.message)).encode() + b"\n")
        elif isinstance(event, ToolExecutionEnd):
            os.write(acknowledge, json.dumps(encode(event.result)).encode() + b"\n")

    trio.run(main)


def kill_once(path: Path, after: float, *, early: bool) -> list[str]:
    """Start a victim, kill it so many seconds after its first word, and give the messages that it had handled.

    `early`: after its start instead, perhaps while it opens the file.
    """
    ear, mouth = os.pipe()
    pid = os.fork()
    if pid == 0:  # pragma: no cover - it is killed
        try:
            os.close(ear)
            victim(path, mouth, itertools.repeat("on"))
        finally:
            os._exit(70)
    os.close(mouth)
    said = b"" if early else os.read(ear, 65536)
    until = time.monotonic() + after
    os.set_blocking(ear, False)
    while time.monotonic() < until:
        try:
            said += os.read(ear, 1 << 20)
        except BlockingIOError:
            time.sleep(0.0002)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL, f"the victim ended by itself: {status}"
    os.set_blocking(ear, True)
    while more := os.read(ear, 1 << 20):
        said += more
    os.close(ear)
    return [line.decode() for line in said.split(b"\n")[:-1]]


def check(path: Path, before: list[str], handled: list[str]) -> list[str]:
    """Everything handled is there, in order; loading twice gives the same, and the history is paired."""
    session = load_session(path)
    again = load_session(path)
    assert session == again
    lines = [json.dumps(encode(message)) for message in session.messages]
    assert lines[: len(before)] == before, "what an earlier process had left has changed"
    new = lines[len(before) :]
    left = iter(new)
    ordered = [line for line in handled if '"role": "tool_result"' not in line]
    assert all(line in left for line in ordered), "a handled message is lost or out of place"
    assert set(handled) <= set(new), "a handled result is lost"
    open_calls: list[str] = []
    for message in session.messages:
        if isinstance(message, ToolResultMessage):
            assert message.tool_call_id == open_calls.pop(0)
        else:
            assert not open_calls
            open_calls = [call.id for call in message.tool_calls] if isinstance(message, AssistantMessage) else []
    assert not open_calls
    return lines


def main(path: Path, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    handled_in_all = interrupted = known = 0
    before: list[str] = []
    for round_number in range(rounds):
        if round_number % 25 == 0:  # or the last rounds would do nothing but load
            path.unlink(missing_ok=True)
            before, known = [], 0
            path.touch()
        handled = kill_once(path, chance.random() * 0.03, early=chance.random() < 0.2)
        before = check(path, before, handled)
        handled_in_all += len(handled)
        interrupted += len(load_session(path).interrupted) - known
        known = len(load_session(path).interrupted)
    print(f"{rounds} kills, {handled_in_all} messages handled, none lost; {interrupted} calls were cut off")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
