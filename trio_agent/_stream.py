"""A run whose events the caller's own block reads.

Here lives the hand-over between a run in a child task and the block that iterates. The iterator is a plain
object, no generator, so that leaving it early abandons nothing (B162).
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any

import trio

from ._ancestry import Origin, snapshot
from ._delivery import Subscription
from ._events import Event
from ._failures import describe, interrupt_in, split
from ._interrupts import protected
from ._result import RunResult

if TYPE_CHECKING:
    from ._agent import Agent


class EventStream:
    """`async with agent.stream(...) as events`, then `async for event in events`. Used once."""

    def __init__(self, agent: Agent, run: Callable[[], Awaitable[RunResult]]) -> None:
        self._agent = agent
        self._run = run
        self._result: RunResult | None = None
        self._failure: BaseException | None = None
        self._manager: AbstractAsyncContextManager[trio.Nursery] | None = None
        self._events: list[Event] = []
        self._wanted = trio.Event()  # the reader has come back for the next event
        self._offered = trio.Event()  # there is one, or the run is over
        self._over = False
        self._detached = False
        self._subscription: Subscription[Event] | None = None
        self._entered = False
        self._reader: Origin

    @property
    def result(self) -> RunResult:
        """What the run came to. Raises `RuntimeError` until it is over."""
        if self._result is None:
            raise RuntimeError("the run is not over yet; read `result` behind the block or after the last event")
        return self._result

    @protected
    async def __aenter__(self) -> EventStream:
        if self._entered:
            raise RuntimeError("a stream is entered once; call stream() again for another run")
        self._entered = True
        self._agent.refuse_while_busy("stream")
        await trio.lowlevel.checkpoint_if_cancelled()
        self._reader = snapshot(trio.lowlevel.current_task())
        self._manager = trio.open_nursery()  # not before: a stream may be made outside of Trio
        nursery = await self._manager.__aenter__()
        nursery.start_soon(self._live, name="trio_agent: stream")
        try:
            await self._offered.wait()
        except BaseException:
            await self._exit(sys.exc_info()[1])  # noqa: ASYNC102  # the run inside settles within its own grace period
            raise
        if self._over and not self._events:
            await self._exit(None)
        return self

    def __aiter__(self) -> EventStream:
        return self

    @protected
    async def __anext__(self) -> Event:
        if not self._events and not self._over:
            self._wanted.set()
            self._offered = trio.Event()
            await self._offered.wait()
        else:
            await trio.lowlevel.checkpoint()
        if not self._events:
            raise StopAsyncIteration
        return self._events.pop(0)

    @property
    def __aexit__(self) -> Callable[..., Coroutine[Any, Any, None]]:  # noqa: PLE0302  # it gives what takes the four
        """What leaves the block: a plain function, behind which CPython looks for no signal before it is awaited.

        Behind a method it does, and a Ctrl-C there would leave the run to itself.
        """

        @protected
        async def leave(
            _kind: type[BaseException] | None, exc: BaseException | None, _traceback: TracebackType | None
        ) -> None:
            await self._exit(exc)

        return leave

    async def _exit(self, exc: BaseException | None) -> None:
        self._detach()
        if not self._over:
            self._agent.abort("the stream was left")
        assert self._manager is not None
        interrupt: BaseException | None = None
        try:
            await self._manager.__aexit__(None, None, None)  # noqa: ASYNC102  # the run inside settles within its own grace period
        except BaseException as left:  # noqa: ASYNC103  # what the run raised waits for the end of the block; Cancelled is raised
            _, rest = split(left)
            interrupt = None if rest is None else interrupt_in(rest, trio.Cancelled)
            if rest is not None and interrupt is None and exc is None:
                await trio.lowlevel.checkpoint_if_cancelled()  # noqa: ASYNC102  # the run inside settles within its own grace period
        self._leave(exc, interrupt)  # noqa: ASYNC104  # the block's own exception goes on

    def _leave(self, exc: BaseException | None, interrupt: BaseException | None) -> None:
        """Raise what the run has left behind. What the block raised leaves it bare, and says that with it.

        Its cancellation does not stand in the way of an interrupt, which would be lost (F7):
        test_F7_an_interrupt_leaves_a_stream_that_is_being_cancelled.
        """
        left = interrupt or self._failure
        if left is None:
            return
        if exc is None or (isinstance(exc, trio.Cancelled) and isinstance(left, KeyboardInterrupt | SystemExit)):
            raise left
        exc.add_note(f"the run of the stream was left by {describe(left)}")

    @protected
    async def _hand_over(self, event: Event) -> None:
        """The subscriber: waits until the reader has come back for more, so that the run waits for the block (L5)."""
        self._agent.read_by(self._reader)
        self._events.append(event)
        self._offered.set()
        self._wanted = trio.Event()
        await self._wanted.wait()

    @protected
    async def _live(self) -> None:
        """The run, in its own task. What it raises waits for the end of the block, which nothing may cancel."""
        try:
            if self._detached:  # a Ctrl-C came first: test_F7_a_stream_that_is_left_before_its_run_began_asks_nothing
                return
            # No checkpoint lies between these three: of two streams that begin at once, one never sees the other's run.
            self._agent.refuse_while_busy("stream")
            self._subscription = self._agent.subscribe(self._hand_over)
            self._result = await self._run()
        except BaseException as exc:  # noqa: ASYNC103  # what the run raised waits for the end of the block; Cancelled is raised
            failure, rest = split(exc)
            interrupt = None if rest is None else interrupt_in(rest, trio.Cancelled)
            self._failure = interrupt or failure
            if self._failure is None:
                raise
        finally:
            self._over = True
            self._unsubscribe()  # a later run is not this stream's: the block may start one
            self._offered.set()

    def _detach(self) -> None:
        self._detached = True
        self._wanted.set()
        self._unsubscribe()

    def _unsubscribe(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription()
