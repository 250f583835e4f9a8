"""`trio-agent replay LOG`: a run told again from its log, in its own time.

Here live the pace, and what a session leaves out and a story needs. How a run is told is decided in `_story.py`.
"""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs
import trio

from .._chunks import TextDelta, ThinkingDelta
from .._events import (
    AgentEnd,
    AgentStart,
    Event,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ToolExecutionStart,
)
from .._messages import AssistantMessage, CustomMessage, Text, Thinking, UserMessage
from .._result import RunResult
from ._interrupt import ABORTED, Interrupt
from ._log import LogParser, events_of, open_log, read_log, visible
from ._output import Output, leave_stdout_alone, stdout
from ._pen import Pen, pen
from ._spans_words import message_text
from ._story import Story
from ._usage import complain

# Where a log has no times, each event takes so long.
UNTIMED: Final = 0.05
_FAILED: Final = ("error", "aborted", None)


@attrs.frozen
class Pace:
    """How time passes: so many times as fast as it did (0: not at all), and no wait longer than so many seconds."""

    speed: float = 1.0
    max_pause: float = math.inf

    def pause(self, seconds: float) -> float:
        """How long to wait for what took so long."""
        if self.speed == 0 or not 0 < seconds < math.inf:
            return 0.0
        return min(seconds / self.speed, self.max_pause)


def replay(argv: Sequence[str]) -> int:
    """Tell the runs of a log again. Gives 130 after Ctrl-C; 1 where stdout cannot be written to."""
    parser = LogParser("replay", "Tell the runs of a log again, as they went: answers on stdout, the rest on stderr.")
    parser.add_argument("--speed", metavar="N", type=_number, default=1.0, help="N times as fast; 0 is at once")
    parser.add_argument("--max-pause", metavar="S", type=_number, default=math.inf, help="wait S seconds at most")
    options = parser.parse_args(argv)
    interrupt = Interrupt()
    file = open_log(options.log)
    output = stdout(exclusive=False)
    teller = Teller(output, _VisiblePen(pen()), Pace(options.speed, options.max_pause))
    try:
        with interrupt.installed():
            events = completed(events_of(read_log(file, options.log), options.log))
            trio.run(_interruptible, teller, events, interrupt, options.log == "-")
    finally:
        if not teller.is_reading:  # else a thread was left behind in it, and closing would wait for that
            file.close()
    if output.failure is not None:
        leave_stdout_alone()
        complain("error", f"stdout cannot be written to ({output.failure.strerror}), so the replay was ended")
        return 1
    return ABORTED if interrupt.happened else 0


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise ArgumentTypeError(f"{text!r} is no number from 0 on")
    return number


async def _interruptible(teller: Teller, events: Iterator[Event], interrupt: Interrupt, slow: bool) -> None:
    with trio.CancelScope() as scope:
        interrupt.calls(scope.cancel)
        teller.output.when_closed(scope.cancel)
        await teller.tell(events, slow=slow)


class _VisiblePen(Pen):
    """Shows control characters rather than letting a terminal obey them: names in a log may be anything."""

    def __init__(self, pen: Pen) -> None:
        self._pen = pen

    def write(self, text: str, style: str = "") -> None:
        self._pen.write(visible(text), style)


class Teller:
    """Tells events to a story, each in its time."""

    def __init__(self, output: Output, pen: Pen, pace: Pace) -> None:
        self.output = output
        self.is_reading = False  # in a thread, which a cancelled replay leaves behind
        self._pen = pen
        self._pace = pace
        self._story = Story(output, pen)
        self._due = 0.0
        self._last = 0.0
        self._held: list[Event] = []  # of a log's start, until it shows whether it has times
        self._timed: bool | None = None

    async def tell(self, events: Iterator[Event], *, slow: bool = False) -> None:
        """Tell them all. Where getting the next may be `slow`, as from a pipe, a thread waits for it."""
        self._due = trio.current_time()
        while (event := await self._next(events, slow=slow)) is not None:
            if self._timed is None:
                self._held.append(event)
                if event.time <= 0:
                    continue
                await self._let_go(timed=True)
            else:
                await self._tell(event)
        await self._let_go(timed=False)

    async def _next(self, events: Iterator[Event], *, slow: bool) -> Event | None:
        if slow:
            self.is_reading = True
            event = await trio.to_thread.run_sync(next, events, None, abandon_on_cancel=True)
            self.is_reading = False
            return event
        return next(events, None)

    async def _let_go(self, *, timed: bool) -> None:
        held, self._held = self._held, []
        self._timed = timed if self._timed is None else self._timed
        for event in held:
            await self._tell(event)

    async def _tell(self, event: Event) -> None:
        if isinstance(event, AgentStart):
            self._last = event.time
            self._story = Story(self.output, self._pen)
        await self._wait(event)
        if isinstance(event, MessageEnd) and isinstance(event.message, UserMessage | CustomMessage):
            self._pen.line(f"» {message_text(event.message)}", "bold")
        await self._story(event)
        if isinstance(event, AgentEnd):
            # The story has told the messages; of the result it wants how it ended.
            self._story.end(
                RunResult(outcome=event.outcome, reason=event.reason or event.error, messages=(), usage=event.usage)
            )

    async def _wait(self, event: Event) -> None:
        """Until it is the event's turn, reckoned from the one before, so that no delay adds up."""
        seconds = event.time - self._last if self._timed else UNTIMED
        self._last = max(self._last, event.time)
        self._due += self._pace.pause(seconds)
        if self._due > trio.current_time():
            await trio.sleep_until(self._due)
        else:
            await trio.lowlevel.checkpoint()


def completed(events: Iterable[Event]) -> Iterator[Event]:
    """The events, with those that a session leaves out: what an answer streamed, and that its calls began.

    A trace, which has them, stays as it is.
    """
    streamed = False
    for event in events:
        if isinstance(event, MessageStart | MessageUpdate):
            streamed = True
        if not isinstance(event, MessageEnd):
            yield event
            continue
        message = event.message
        if isinstance(message, AssistantMessage) and not streamed:
            yield from _stream(message, event.time)
            yield event
            if message.stop_reason not in _FAILED:
                yield from [ToolExecutionStart(call, time=event.time) for call in message.tool_calls]
        else:
            yield event
        streamed = False


def _stream(message: AssistantMessage, time: float) -> Iterator[Event]:
    yield MessageStart(AssistantMessage((), None), time=time)
    for index, block in enumerate(message.content):
        if isinstance(block, Text):
            yield MessageUpdate(TextDelta(index, block.text), time=time)
        elif isinstance(block, Thinking) and block.redacted is None:
            yield MessageUpdate(ThinkingDelta(index, block.text), time=time)
