"""Runs pieces of work in child tasks that never raise: each records what it came to and wakes the run's task.

Here lives what every child of a run has in common, whatever it does: it never begins once the run is stopping
(A2), its failure is a value (no exception group can reach a caller), and an interrupt is reported, not raised.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

import trio

from ._cancellation import part
from ._failures import interrupt_in
from ._mailbox import Mailbox

T = TypeVar("T")


class Host(Protocol):
    """The run, as its children see it."""

    @property
    def stopping(self) -> bool: ...
    def interrupted(self, exc: BaseException) -> None: ...
    def later_failure(self, what: str, failure: Exception) -> None: ...
    def cancelled_outside(self) -> None: ...


class Job(Generic[T]):
    """A piece of work: `done` once its task is about to end, with a value if `begun` and no `failure`."""

    __slots__ = ("begun", "done", "failure", "name", "scope", "value")

    def __init__(self, name: str, scope: trio.CancelScope | None) -> None:
        self.name = name
        self.scope = scope
        self.begun = False
        self.done = False
        self.failure: Exception | None = None
        self.value: T | None = None


class Jobs:
    """The work under way in a run. `running` is empty when nothing of it is left.

    A task does one job and ends. Using it again would save 9 us a turn, and hand whatever scope a tool left open on to
    the next call: test_A5_a_scope_that_a_tool_left_open_reaches_no_later_call.
    """

    __slots__ = ("_host", "_mailbox", "_nursery", "running")

    def __init__(self, nursery: trio.Nursery, host: Host, mailbox: Mailbox[Any]) -> None:
        self._nursery = nursery
        self._host = host
        self._mailbox = mailbox
        self.running: dict[Job[Any], None] = {}

    def start(
        self, name: str, fn: Callable[..., Awaitable[T]], *args: Any, scope: trio.CancelScope | None = None
    ) -> Job[T]:
        """Run `await fn(*args)` in a child task, in `scope` if given. Sync: children begin later, in any order."""
        job: Job[T] = Job(name, scope)
        self.running[job] = None
        self._nursery.start_soon(self._run, job, fn, args, name=name)
        return job

    async def _run(self, job: Job[T], fn: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> None:
        try:
            if self._host.stopping:
                _discard(args)
            else:
                job.begun = True
                if job.scope is None:
                    job.value = await fn(*args)
                else:
                    with job.scope:
                        job.value = await fn(*args)
        except BaseException as exc:  # noqa: ASYNC103  # _caught raises what must go on
            self._caught(job, exc)
        finally:
            job.done = True
            del self.running[job]
            self._mailbox.wake()

    def _caught(self, job: Job[Any], exc: BaseException) -> None:
        """Record what went wrong; only cancellation goes on, to the scope that asked for it."""
        job.failure, rest = part(exc)
        if job.failure is not None and self._host.stopping:
            self._host.later_failure(f"{job.name} failed while it was being stopped", job.failure)
        if rest is None:
            return
        interrupt = interrupt_in(rest, trio.Cancelled)
        if interrupt is not None:
            self._host.interrupted(interrupt)
            return
        if not self._host.stopping:  # not the run's own abort, and a job's own scope has kept its own: from outside
            self._host.cancelled_outside()
        if rest is exc:
            raise exc
        raise rest from None


def _discard(args: tuple[Any, ...]) -> None:
    """Close coroutines that will not be awaited, so that Python does not warn of them."""
    for arg in args:
        if isinstance(arg, Coroutine):
            arg.close()


async def within(work: Any, seconds: float | None) -> Any:
    """Await under a time-out, in seconds; None is none. Raises `TimeoutError`, even where it was swallowed inside."""
    if seconds is None:
        return await work
    value: Any = None
    with trio.move_on_after(seconds) as scope:
        value = await work
    if scope.cancel_called:
        raise TimeoutError(f"did not answer within {seconds:g} s")
    return value
