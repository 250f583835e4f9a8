"""Runs pieces of work in child tasks that never raise: each records what it came to and wakes the run's task.

Here lives what every child of a run has in common, whatever it does: it never begins once the run is stopping
(A2), its failure is a value (no exception group can reach a caller), and an interrupt is reported, not raised.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
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
    """A piece of work: `done` once it has ended, with a value if `begun` and no `failure`."""

    __slots__ = ("args", "begun", "done", "failure", "fn", "name", "scope", "value")

    def __init__(self, name: str, fn: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> None:
        self.name = name
        self.fn = fn
        self.args = args
        self.scope: trio.CancelScope | None = None
        self.begun = False
        self.done = False
        self.failure: Exception | None = None
        self.value: T | None = None

    def cancel(self) -> None:
        """End a job of a scoped lane."""
        assert self.scope is not None, f"the job {self.name} has no scope of its own"
        self.scope.cancel()


class Lane:
    """Child tasks that do one job after the other, and the idle ones among them.

    Waking a task costs half of starting one, and with `scoped` jobs that can be cancelled one by one share their
    scope too: together 9 us a turn. A job has its task to itself, and a copy of the context of whoever started it.
    """

    __slots__ = ("idle", "scoped")

    def __init__(self, *, scoped: bool) -> None:
        self.scoped = scoped
        self.idle: list[_Worker] = []


class _Worker:
    __slots__ = ("_lane", "job", "scope", "task")

    def __init__(self, lane: Lane | None, job: Job[Any]) -> None:
        self._lane = lane
        self.job: Job[Any] | None = job
        self.scope: trio.CancelScope | None = None
        self.task: trio.lowlevel.Task | None = None

    def wake(self, job: Job[Any] | None) -> None:
        """Give an idle worker its next job, or none, so that it ends. It has left the lane's idle ones."""
        assert self.task is not None
        if job is not None:
            job.scope = self.scope
            self.task.context = copy_context()
            self.task.name = job.name
        self.job = job
        trio.lowlevel.reschedule(self.task)

    async def next(self) -> Job[Any] | None:
        """Be idle until there is another job. None where the worker's task is to end."""
        lane = self._lane
        self.job = None
        if lane is None or (self.scope is not None and self.scope.cancel_called):
            return None
        self.task = trio.lowlevel.current_task()
        lane.idle.append(self)
        await trio.lowlevel.wait_task_rescheduled(self._abort)
        return self.job

    def _abort(self, _raise_cancel: Any) -> trio.lowlevel.Abort:
        assert self._lane is not None
        self._lane.idle.remove(self)
        return trio.lowlevel.Abort.SUCCEEDED


class Jobs:
    """The work under way in a run. `running` is empty when nothing of it is left.

    Two lanes share tasks among jobs that leave nothing behind in them.
    """

    __slots__ = ("_host", "_mailbox", "_nursery", "running", "scoped", "shared")

    def __init__(self, nursery: trio.Nursery, host: Host, mailbox: Mailbox[Any]) -> None:
        self._nursery = nursery
        self._host = host
        self._mailbox = mailbox
        self.running: dict[Job[Any], None] = {}
        self.shared = Lane(scoped=False)
        self.scoped = Lane(scoped=True)

    def start(self, name: str, fn: Callable[..., Awaitable[T]], *args: Any, lane: Lane | None = None) -> Job[T]:
        """Run `await fn(*args)` in a child task, a new one without a lane. Sync: jobs begin later, in any order."""
        job = Job(name, fn, args)
        self.running[job] = None
        if lane is not None and lane.idle:
            lane.idle.pop().wake(job)
            return job
        worker = _Worker(lane, job)
        if lane is not None and lane.scoped:
            worker.scope = job.scope = trio.CancelScope()
            self._nursery.start_soon(self._work_in, worker.scope, worker, name=name)
        else:
            self._nursery.start_soon(self._work, worker, name=name)
        return job

    def close(self) -> None:
        """Let the idle tasks end; nothing can be started any more."""
        for lane in (self.shared, self.scoped):
            while lane.idle:
                lane.idle.pop().wake(None)

    async def _work_in(self, scope: trio.CancelScope, worker: _Worker) -> None:
        with scope:
            await self._work(worker)

    async def _work(self, worker: _Worker) -> None:
        job = worker.job
        while job is not None:
            try:
                if self._host.stopping:
                    _discard(job.args)
                else:
                    job.begun = True
                    job.value = await job.fn(*job.args)
            except BaseException as exc:  # noqa: ASYNC103  # _caught raises what must go on
                self._caught(job, exc)
            finally:
                job.done = True
                del self.running[job]
                self._mailbox.wake()
            if self._host.stopping:
                return
            job = await worker.next()

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
        own = job.scope is not None and job.scope.cancel_called
        if not own and not self._host.stopping:  # neither the job's own scope nor the run's abort: it is from outside
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
    """Await under a time-out, in seconds; None is none. Raises `TimeoutError`."""
    if seconds is None:
        return await work
    with trio.move_on_after(seconds):
        return await work
    raise TimeoutError(f"did not answer within {seconds:g} s")
