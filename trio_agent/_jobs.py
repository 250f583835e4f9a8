"""Runs pieces of work in child tasks that never raise: each records what it came to and wakes the run's task.

Here lives what every child of a run has in common, whatever it does: it never begins once the run is stopping
(A2), its failure is a value (no exception group can reach a caller), and an interrupt is reported, not raised.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from operator import attrgetter
from typing import Any, Final, Generic, Protocol, TypeVar

import trio

from ._cancellation import part
from ._failures import interrupt_in
from ._interrupts import openly, protected
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

    __slots__ = ("args", "begun", "done", "failure", "fn", "name", "value")

    def __init__(self, name: str, fn: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> None:
        self.name = name
        self.fn = fn
        self.args = args
        self.begun = False
        self.done = False
        self.failure: Exception | None = None
        self.value: T | None = None


_KEPT: Final = 4  # idle tasks of a run; a hundred calls at once would leave as many, which all have to be ended

# Trio has no public name for the innermost scope that a task is in.
_scope_around: Final = attrgetter("_cancel_status")


class _Worker:
    """One child task, and the job that it is to do next."""

    __slots__ = ("_around", "idle", "job", "task")

    def __init__(self, job: Job[Any] | None, idle: list[_Worker]) -> None:
        self.job = job
        self.idle = idle
        self.task: trio.lowlevel.Task | None = None

    def enter(self) -> None:
        """The task has begun, and no job yet."""
        self.task = trio.lowlevel.current_task()
        self._around: object = _scope_around(self.task)

    def wake(self, job: Job[Any] | None) -> None:
        """Give the idle task its next job, or none, so that it ends."""
        assert self.task is not None
        if job is not None:
            self.task.context = copy_context()
            self.task.name = job.name
        self.job = job
        trio.lowlevel.reschedule(self.task)

    def is_clean(self) -> bool:
        """Whether the job has left nothing behind that would reach into another one: no nursery, no scope.

        test_A5_a_scope_that_a_tool_left_open_reaches_no_later_call
        """
        task = self.task
        return task is not None and not task.child_nurseries and _scope_around(task) is self._around

    async def rest(self) -> None:
        """Be idle until there is another job, or none any more."""
        self.job = None
        if len(self.idle) < _KEPT:
            self.idle.append(self)
            await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _abort(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self.idle.remove(self)
        return trio.lowlevel.Abort.SUCCEEDED


class Jobs:
    """The work under way in a run. `running` is empty when nothing of it is left.

    A job has a task to itself, and a copy of the context of whoever started it. Tasks that have become idle are used
    again, as waking one costs a third of starting one.
    """

    __slots__ = ("_host", "_idle", "_mailbox", "_nursery", "running")

    def __init__(self, nursery: trio.Nursery, host: Host, mailbox: Mailbox[Any]) -> None:
        self._nursery = nursery
        self._host = host
        self._mailbox = mailbox
        self._idle: list[_Worker] = []
        self.running: dict[Job[Any], None] = {}

    def start(self, name: str, fn: Callable[..., Awaitable[T]], *args: Any) -> Job[T]:
        """Run `await fn(*args)` in a child task. Sync: jobs begin later, in any order."""
        job = Job(name, fn, args)
        self.running[job] = None
        if self._idle:
            self._idle.pop().wake(job)
        else:
            self._nursery.start_soon(self._work, _Worker(job, self._idle), name=name)
        return job

    def close(self) -> None:
        """Let the idle tasks end; nothing can be started any more."""
        while self._idle:
            self._idle.pop().wake(None)

    @protected
    async def _work(self, worker: _Worker) -> None:
        worker.enter()
        while (job := worker.job) is not None:
            try:
                if self._host.stopping:
                    _discard(job.args)
                else:
                    job.begun = True
                    job.value = await job.fn(*job.args)
            except BaseException as exc:  # noqa: ASYNC103  # _caught raises what must go on
                self._caught(job, exc)
            finally:
                self._ended(job)
            if self._host.stopping or not worker.is_clean():
                return
            await worker.rest()

    def _ended(self, job: Job[Any]) -> None:
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
        if not self._host.stopping:  # it is not the run's own abort, so it is from outside
            self._host.cancelled_outside()
        if rest is exc:
            raise exc
        raise rest from None


def _discard(args: tuple[Any, ...]) -> None:
    """Close coroutines that will not be awaited, so that Python does not warn of them. Those that are over stay so."""
    for arg in args:
        if isinstance(arg, Coroutine):
            arg.close()


async def within(work: Any, seconds: float | None) -> Any:
    """Await under a time-out, in seconds; None is none. Raises `TimeoutError`, even where it was swallowed inside."""
    value: Any = None
    try:
        if seconds is None:
            return await openly(work)
        with trio.move_on_after(seconds) as scope:
            value = await openly(work)
    except BaseException:
        _discard((work,))  # a Ctrl-C may have come before its first step
        raise
    if scope.cancel_called:
        raise TimeoutError(f"did not answer within {seconds:g} s")
    return value
