"""Requests from a tool's thread at the moment when its call ends."""

from __future__ import annotations

import queue
from typing import Any

import outcome
import pytest
import trio

from trio_agent._threads import CallOverError, ThreadCall, _Request, current_pool


@pytest.mark.real_time
async def test_A4_a_request_between_the_end_of_the_thread_and_that_of_the_wait_is_refused() -> None:
    """The thread is over and its task has not noticed yet: who asks then is told, and is not left to wait for ever."""
    call = ThreadCall(current_pool(), lambda: pytest.fail("nothing was left behind"))
    await call.acquire_slot()
    replies: queue.SimpleQueue[outcome.Outcome[Any]] = queue.SimpleQueue()
    closing = call._requests.close

    def close_and_ask() -> None:
        closing()
        call._post(_Request(trio.lowlevel.checkpoint, (), False, replies))

    call._requests.close = close_and_ask  # type: ignore[method-assign]
    assert await call.run(lambda: "given") == "given"
    with pytest.raises(CallOverError, match="the call is over"):
        replies.get_nowait().unwrap()


@pytest.mark.real_time
async def test_A4_a_call_that_is_cancelled_before_its_thread_began_leaves_nothing_behind() -> None:
    """Its place among the threads is free again, and none of it has run."""
    pool = current_pool()
    call = ThreadCall(pool, lambda: pytest.fail("nothing was left behind"))
    await call.acquire_slot()
    assert pool.slots.borrowed_tokens == 1
    with trio.CancelScope() as scope:
        scope.cancel()
        await call.run(lambda: pytest.fail("it ran"))
    assert scope.cancelled_caught
    assert not call.was_left_behind
    assert (pool.slots.borrowed_tokens, pool.left_behind) == (0, 0)
