"""Runs a sync function in a thread that can be left behind.

Here lives what Trio's threads need so that a tool in one can be given up (A4): a limited number of them, the
count of those left behind, and a way for the thread to run something in the task that waits for it. Knows
nothing of agents.
"""

from __future__ import annotations

import math
import queue
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import attrs
import outcome
import trio

from ._interrupts import awaited

T = TypeVar("T")

THREADS: Final = 40  # as many as Trio's own default


class TooManyThreadsLeftBehindError(RuntimeError):
    """Every thread that tools may use has been left behind and is still running."""


class CallOverError(RuntimeError):
    """A thread that was left behind tried to reach the task that had waited for it."""


class ThreadPool:
    """The threads that the tools of one `trio.run` share."""

    __slots__ = ("left_behind", "slots", "waiting")

    def __init__(self) -> None:
        self.slots = trio.CapacityLimiter(THREADS)
        self.left_behind = 0
        self.waiting: set[trio.CancelScope] = set()  # of those who wait for a slot

    def leave_behind(self) -> None:
        """Count a thread that goes on by itself; tell those who wait for one when it was the last."""
        self.left_behind += 1
        if self.left_behind >= self.slots.total_tokens:
            for scope in self.waiting:
                scope.cancel()


_pool: trio.lowlevel.RunVar[ThreadPool] = trio.lowlevel.RunVar("trio_agent thread pool")


def current_pool() -> ThreadPool:
    """The pool of this `trio.run`."""
    try:
        return _pool.get()
    except LookupError:
        pool = ThreadPool()
        _pool.set(pool)
        return pool


@attrs.define
class _Request:
    """Something that the thread wants done in the task."""

    fn: Callable[..., Awaitable[Any]]
    args: tuple[Any, ...]
    yields: bool
    reply: queue.SimpleQueue[outcome.Outcome[Any]]


class ThreadCall:
    """One function in one thread, and the task that waits for it."""

    def __init__(self, pool: ThreadPool, on_left_behind_end: Callable[[], None]) -> None:
        """`on_left_behind_end` is called when a thread that was left behind ends: perhaps in that thread."""
        self._pool = pool
        self._on_end = on_left_behind_end
        self._token = trio.lowlevel.current_trio_token()
        # No bound: each request has a thread that waits for its reply.
        self._requests, self._inbox = trio.open_memory_channel[_Request](math.inf)
        self._over = False
        self._has_slot = False
        self._own = trio.CapacityLimiter(1)  # borrowed exactly while the thread runs, which Trio keeps count of
        self.was_left_behind = False
        self._done = False

    async def acquire_slot(self) -> None:
        """Wait for a thread. Raises at once when all of them have been left behind, also while it waits."""
        pool = self._pool
        if pool.left_behind < pool.slots.total_tokens:
            with trio.CancelScope() as scope:
                pool.waiting.add(scope)
                try:
                    await self._take_slot()
                finally:
                    pool.waiting.discard(scope)
            if not scope.cancelled_caught:
                return
        raise TooManyThreadsLeftBehindError(
            f"all {int(pool.slots.total_tokens)} threads for tools were left behind and still run"
        )

    async def _take_slot(self) -> None:
        await self._pool.slots.acquire_on_behalf_of(self)
        self._has_slot = True

    def _give_slot_back(self) -> None:
        if self._has_slot:
            self._has_slot = False
            self._pool.slots.release_on_behalf_of(self)

    async def run(self, fn: Callable[[], T]) -> T:
        """Run `fn` in the thread whose slot was acquired, serving its requests in this task.

        When cancelled, the thread is left behind: it keeps its slot until it ends, and what it gives is dropped.
        """
        result: list[outcome.Outcome[T]] = []

        async def wait() -> None:
            try:
                result.append(
                    await trio.to_thread.run_sync(
                        outcome.capture, self._in_thread(fn), abandon_on_cancel=True, limiter=self._own
                    )
                )
            finally:
                self._requests.close()

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                async for request in self._inbox:
                    await self._serve(request)
        finally:
            self._close()
        return result[0].unwrap()

    def call(self, fn: Callable[..., Awaitable[T]], *args: Any) -> T:
        """From the thread: run an async function in the task that waits, and give what it gives.

        Raises `CallOverError` once the thread has been left behind.
        """
        value: T = self._call(_Request(fn, args, False, queue.SimpleQueue()))
        return value

    def call_yielding(self, fn: Callable[..., Awaitable[T]], *args: Any) -> T:
        """The same for what may take long: the thread's place in the pool is others' meanwhile.

        Or threads that wait for a file could keep its holder from the last thread:
        test_T8_threads_that_wait_for_a_file_do_not_keep_its_holder_from_a_thread
        """
        value: T = self._call(_Request(fn, args, True, queue.SimpleQueue()))
        return value

    def _call(self, request: _Request) -> Any:
        if _runs_here(self._token):  # the reply could only be given by the thread that would wait for it
            if self._over:
                raise CallOverError("the call is over; nothing can be reported any more")
            raise RuntimeError(
                "the context of a sync tool was used in the Trio thread, which it would block; "
                "use it in the tool's own thread"
            )
        try:
            self._token.run_sync_soon(self._post, request)
        except trio.RunFinishedError:
            raise CallOverError("the call is over; nothing can be reported any more") from None
        return request.reply.get().unwrap()

    def _in_thread(self, fn: Callable[[], T]) -> Callable[[], T]:
        def body() -> T:
            try:
                return fn()
            finally:
                try:
                    self._token.run_sync_soon(self._ended)
                except trio.RunFinishedError:
                    self._on_end()  # the thread outlived the whole `trio.run`

        return body

    def _post(self, request: _Request) -> None:
        if not self._over:
            try:
                self._requests.send_nowait(request)
                return
            except (trio.ClosedResourceError, trio.BrokenResourceError):
                pass
        _refuse(request)

    async def _serve(self, request: _Request) -> None:
        try:
            if request.yields:
                self._give_slot_back()
            try:
                done: outcome.Outcome[Any] = outcome.Value(await awaited(request.fn, *request.args))
            except Exception as exc:  # the thread's to handle
                done = outcome.Error(exc)
            if not self._has_slot:
                await self._take_slot()
        except BaseException:
            _refuse(request)
            raise
        request.reply.put(done)

    def _close(self) -> None:
        """The task waits no more. A thread that still runs is left behind."""
        self._over = True
        while True:
            try:
                _refuse(self._inbox.receive_nowait())
            except (trio.WouldBlock, trio.EndOfChannel, trio.ClosedResourceError):
                break
        self._inbox.close()
        if self._done:
            return
        if self._own.borrowed_tokens == 0:  # cancelled before the thread began
            self._give_slot_back()
        else:
            self.was_left_behind = True
            self._pool.leave_behind()

    def _ended(self) -> None:
        """The thread is over, in Trio's thread."""
        self._done = True
        self._give_slot_back()
        if self.was_left_behind:
            self._pool.left_behind -= 1
            self._on_end()


def _runs_here(token: trio.lowlevel.TrioToken) -> bool:
    """Whether this is the thread of that `trio.run`."""
    try:
        return trio.lowlevel.current_trio_token() is token
    except RuntimeError:
        return False


def _refuse(request: _Request) -> None:
    request.reply.put(outcome.Error(CallOverError("the call is over; nothing can be reported any more")))
