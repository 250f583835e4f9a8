"""Is this task something that the other one waits for?

Here lives one question about Trio's task tree and the mark for calls that reach Trio from a thread. It is
answered from the tree itself, so that a task in a nursery around the one that waits is no insider, nor a background
task started from inside into a nursery further out. What follows from the answer is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count

import attrs
import trio
from trio.lowlevel import Task

_order = count()
_thread_calls: ContextVar[tuple[Origin, ...]] = ContextVar("trio_agent.thread_calls", default=())


@attrs.frozen(eq=False)
class Origin:
    """Where something long began: a task, and the nurseries that were open in it by then.

    It keeps the task alive in memory; drop it when what it stands for is over.
    """

    task: Task
    nurseries: tuple[trio.Nursery, ...]
    order: int = attrs.field(factory=lambda: next(_order))


def snapshot(task: Task | None = None) -> Origin:
    """The origin of something that begins now in `task`, or else in the current task."""
    owner = trio.lowlevel.current_task() if task is None else task
    return Origin(owner, tuple(owner.child_nurseries))


@contextmanager
def mark_thread_call(origin: Origin) -> Generator[None]:
    """Mark the threads started in this block as work that `origin` waits for.

    `trio.from_thread` in a thread that may be abandoned runs in a system task, whose place in the tree says
    nothing; the mark travels with the context variables and stands in for it.
    """
    token = _thread_calls.set((*_thread_calls.get(), origin))
    try:
        yield
    finally:
        _thread_calls.reset(token)


def waits_for(origin: Origin, task: Task | None = None) -> bool:
    """Whether `origin`'s owner cannot go on before `task` (or else the current task) has ended.

    So it is for the owner itself, and for tasks below a nursery that the owner has opened since.
    """
    start = trio.lowlevel.current_task() if task is None else task
    at: Task = start
    through: trio.Nursery | None = None
    # The same steps as in `_climb`, without a generator: this runs for every entry to an agent.
    while at is not origin.task:
        nursery = at.parent_nursery
        if nursery is None:
            return any(_is_inside(origin, *step) for step in _climb_from_thread(start, through))
        at, through = nursery.parent_task, nursery
    return through not in origin.nurseries


def enclosing(task: Task, origins: Iterable[Origin]) -> list[Origin]:
    """Those of `origins` that wait for `task`, innermost first."""
    newest_first = sorted(origins, key=lambda origin: origin.order, reverse=True)
    found: dict[Origin, None] = {}
    steps = list(_climb(task))
    for step in (*steps, *_climb_from_thread(task, steps[-1][1])):
        found |= dict.fromkeys(origin for origin in newest_first if _is_inside(origin, *step))
    return list(found)


def lineage(task: Task) -> list[Task]:
    """The tasks of which one may wait for `task`: those that `enclosing` meets, whatever the origins are."""
    steps = list(_climb(task))
    return [at for at, _ in (*steps, *_climb_from_thread(task, steps[-1][1]))]


def _is_inside(origin: Origin, at: Task, through: trio.Nursery | None) -> bool:
    return at is origin.task and through not in origin.nurseries


def _climb(task: Task) -> Iterator[tuple[Task, trio.Nursery | None]]:
    """The task and its ancestors, each with the nursery through which it was reached."""
    yield task, None
    while (nursery := task.parent_nursery) is not None:
        task = nursery.parent_task
        yield task, nursery


def _climb_from_thread(task: Task, top: trio.Nursery | None) -> Iterator[tuple[Task, trio.Nursery | None]]:
    """Where the walk from `task`, which left the tree through `top`, goes on: at the calls that began the threads.

    Only a system task has lost its ancestors. Any other task may have inherited the mark without being inside
    (`test_a_background_task_that_inherits_the_mark_is_outside`).
    """
    # A function given to `trio.from_thread.run_sync` runs in a context that is not its task's own.
    is_current = task is trio.lowlevel.current_task()
    marks = _thread_calls.get() if is_current else task.context.get(_thread_calls, ())
    # Trio's first task opens the nursery of the main task last, inside those of the system tasks.
    if not marks or top is None or top is top.parent_task.child_nurseries[-1]:
        return
    for mark in reversed(marks):
        nursery = mark.task.parent_nursery
        if nursery is None or mark.task in nursery.child_tasks:
            yield from _climb(mark.task)
        else:  # The call has ended and left its thread behind: nobody further out waits for that.
            yield mark.task, None
