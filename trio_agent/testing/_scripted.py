"""A provider that follows a script, strict in both directions.

Here live the steps of a script and the fake that plays them. It opens no socket and reads no clock: what it waits
for is named by the test. Judging traces is in `_judge.py`, drawing interleavings in `_conductor.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeAlias

import attrs
import trio

from .._chunks import (
    BlockEnd,
    Chunk,
    Finish,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)
from .._json import dumps
from .._messages import Usage
from .._provider import Send
from .._request import ModelRequest


@attrs.frozen
class Step:
    """One thing that a scripted provider does; made by the functions below. `index` is the next free block's."""

    words: str
    play: Callable[[Send, int], Awaitable[int]] = attrs.field(repr=False)


Scripted: TypeAlias = Step | Chunk | str | BaseException
Reply: TypeAlias = Sequence[Scripted]


def _sending(words: str, chunks: Callable[[int], Iterable[Chunk]], blocks: int = 1) -> Step:
    async def play(send: Send, index: int) -> int:
        for chunk in chunks(index):
            await send(chunk)
        return blocks

    return Step(words, play)


def _doing(words: str, do: Callable[[], Awaitable[object]]) -> Step:
    async def play(_send: Send, _index: int) -> int:
        await do()
        return 0

    return Step(words, play)


def text(*pieces: str) -> Step:
    """A text block, in these deltas. A bare str in a script is one of one delta."""
    return _sending(f"text{pieces}", lambda index: [TextDelta(index, piece) for piece in pieces])


def thinking(*pieces: str, signature: str | None = None) -> Step:
    """A thinking block, in these deltas."""
    return _sending(
        f"thinking{pieces}",
        lambda index: [*[ThinkingDelta(index, piece) for piece in pieces], BlockEnd(index, signature)],
    )


def call(id: str | None, name: str, arguments: Mapping[str, Any] | str | None = None, *, cut: int = 0) -> Step:
    """A tool call; `arguments` as a mapping or as JSON text, in deltas of `cut` characters (0: in one)."""
    raw = arguments if isinstance(arguments, str) else dumps(dict(arguments or {}))
    size = cut or max(1, len(raw))
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    return _sending(
        f"call({id!r}, {name!r})",
        lambda index: [ToolCallStart(index, id, name), *[ToolCallDelta(index, piece) for piece in pieces]],
    )


def usage(input: int | None = None, output: int | None = None, **others: int | None) -> Step:
    """A usage report."""
    return _sending("usage", lambda _index: [UsageReport(Usage(input=input, output=output, **others))], 0)


def finish(stop_reason: str = "stop") -> Step:
    """The end marker."""
    return _sending(f"finish({stop_reason!r})", lambda _index: [Finish(stop_reason)], 0)


def wait(event: trio.Event) -> Step:
    """Wait until the test sets the event."""
    return _doing("wait", event.wait)


def sleep(seconds: float) -> Step:
    """Take that long, on Trio's clock."""
    return _doing(f"sleep({seconds})", lambda: trio.sleep(seconds))  # noqa: ASYNC105  # _doing awaits it


def stall() -> Step:
    """Wait for ever, until cancelled."""
    return _doing("stall", trio.sleep_forever)


def do(fn: Callable[[], Awaitable[object]]) -> Step:
    """Await something of the test's, such as a conductor's gate."""
    return _doing("do", fn)


class ScriptedProvider:
    """Plays one reply per request, in order; a reply that just ends breaks off without an end marker.

    Fails a request that the script does not expect. As a context manager, or by `assert_done()`, it also fails the test
    for that, and for replies and steps left over. `requests` holds what was asked. With `checkpoints=False` it never
    reaches a checkpoint of its own.
    """

    name = "scripted"

    def __init__(self, *replies: Reply, checkpoints: bool = True) -> None:
        self.requests: list[ModelRequest] = []
        self._replies = [list(reply) for reply in replies]
        self._checkpoints = checkpoints
        self._unexpected = 0
        self._unplayed: list[str] = []

    async def __call__(self, request: ModelRequest, send: Send, /) -> None:
        self.requests.append(request)
        if len(self.requests) > len(self._replies):
            self._unexpected += 1
            raise AssertionError(f"request {len(self.requests)} is not in the script, which has {len(self._replies)}")
        steps = self._replies[len(self.requests) - 1]
        index = 0
        for place, step in enumerate(steps):
            try:
                if self._checkpoints:
                    await trio.lowlevel.checkpoint()
                index += await self._play(step, send, index)
            except BaseException:
                self._unplayed += [f"request {len(self.requests)}: {_words(left)}" for left in steps[place + 1 :]]
                raise

    async def _play(self, step: Scripted, send: Send, index: int) -> int:
        if isinstance(step, BaseException):
            raise step
        if isinstance(step, str):
            step = text(step)
        if isinstance(step, Step):
            return await step.play(send, index)
        await send(step)
        return 0

    def assert_done(self, *, partly: bool = False) -> None:
        """Raise `AssertionError` unless exactly the script was asked for; `partly`: replies may have been cut off."""
        problems: list[str] = []
        if self._unexpected:
            problems.append(f"{self._unexpected} requests more than the script has")
        left = len(self._replies) - len(self.requests)
        if left > 0:
            problems.append(f"{left} replies were never asked for")
        if not partly:
            problems += [f"never played, {step}" for step in self._unplayed]
        if problems:
            raise AssertionError("the script and the run differ: " + "; ".join(problems))

    def __enter__(self) -> ScriptedProvider:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc is None:
            self.assert_done(partly=True)


def _words(step: Scripted) -> str:
    return step.words if isinstance(step, Step) else repr(step)
