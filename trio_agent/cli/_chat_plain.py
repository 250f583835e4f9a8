"""A conversation without a screen: lines in, the answers on stdout, the story on stderr, as `trio-agent run` has it.

Here lives the reading of lines, and the face that writes plain text.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import trio

from .._agent import Agent
from .._events import AgentEnd, Event, ToolExecutionEnd
from .._messages import Message
from .._result import RunResult
from ._chat_talk import QueueName, Talk
from ._chat_tally import Tally
from ._chat_text import diff_of, excerpt, shown
from ._interrupt import Interrupt
from ._output import Output
from ._pen import Pen
from ._story import Story
from ._usage import complain, worded

_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}
_AT_ONCE: Final = 1 << 16


class Plain:
    """A face of plain text. It also subscribes to the agent."""

    def __init__(self, output: Output, pen: Pen, interrupt: Interrupt) -> None:
        self._output = output
        self._pen = pen
        self._interrupt = interrupt
        self._story = Story(output, pen)
        self._tally = Tally(None)
        self._end: AgentEnd | None = None

    def starting(self, give_up: Callable[[], object]) -> None:
        self._interrupt.calls(give_up)

    def attend(self, agent: Agent, tally: Tally) -> None:
        """Show what this agent does."""
        self._tally = tally
        agent.subscribe(self._take)

    @asynccontextmanager
    async def lent(self) -> AsyncGenerator[None]:
        """The terminal, if there is one, is nobody's here."""
        yield

    def earlier(self, messages: Sequence[Message]) -> None:
        """What was said earlier is no news to a program."""

    async def hold(self, talk: Talk) -> int:
        """Say each line of stdin; at its end, leave when all is answered. Gives the exit code."""
        self._interrupt.calls(lambda: talk.interrupt(again=True))
        self._output.when_closed(lambda: talk.leave(1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_read_lines, talk)
            nursery.start_soon(_heed_termination, talk)
            code = await talk.hold()
            nursery.cancel_scope.cancel()
        return code

    def note(self, text: str, style: str = "dim") -> None:
        self._pen.line(shown(text), style)

    def waiting(self, queue: Sequence[tuple[QueueName, str]]) -> None:
        """Nothing: what a program wrote, it knows."""

    def got_in(self, queue: QueueName, text: str, turn: int) -> None:
        self._pen.line(f"↳ {queue}, in turn {turn}: {excerpt(text, 200)}", "magenta")

    def begun(self) -> None:
        """Nothing: the story begins by itself."""

    def ended(self, result: RunResult) -> None:
        if result.outcome == "error":
            complain("error", worded(result.error) if result.error is not None else result.reason or "the run failed")
        assert self._end is not None, "a run with a result has told its end"
        self._pen.line(self._tally.of_run(self._end), "bold")

    def idle(self) -> None:
        self._interrupt.happened = False  # the next Ctrl-C is a first one again

    async def _take(self, event: Event) -> None:
        if isinstance(event, AgentEnd):
            self._end = event  # before anything waits, since behind an abort waiting may fail
        await self._story(event)
        if isinstance(event, ToolExecutionEnd) and (diff := diff_of(event.result)) is not None:
            for line in diff.splitlines():
                self._pen.line(f"  {line}", _STYLES.get(line[:1], "dim"))


async def _read_lines(talk: Talk) -> None:
    rest = b""
    while piece := await _read_stdin():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            _say(talk, line)
    _say(talk, rest)
    talk.finish()


def _say(talk: Talk, line: bytes) -> None:
    text = line.decode("utf-8", "replace").rstrip("\r")
    if text.strip():
        talk.say(text)


async def _read_stdin() -> bytes:
    """What has come on stdin, as soon as there is something; nothing at its end."""
    try:
        await trio.lowlevel.wait_readable(sys.stdin.fileno())
    except (OSError, AttributeError):  # a file, which is always ready; or a system that cannot wait for this
        return await trio.to_thread.run_sync(os.read, sys.stdin.fileno(), _AT_ONCE, abandon_on_cancel=True)
    return os.read(sys.stdin.fileno(), _AT_ONCE)


async def _heed_termination(talk: Talk) -> None:
    with trio.open_signal_receiver(signal.SIGTERM) as received:
        async for number in received:
            talk.leave(128 + number)
