"""A `trio.run` of its own for one example: virtual time, a drawn schedule, and no hang without a name.

Here lives how an example is run, whatever it does. Trio is seeded in private, as its own tests do it: there is no other
way to make a schedule come again.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import trio
import trio.testing

T = TypeVar("T")


class Hang(AssertionError):  # noqa: N818  # named for what it is
    """The virtual deadline has come. The text lists the tasks that were blocked, and where."""


def run_virtually(
    main: Callable[[], Awaitable[T]],
    *,
    seed: int = 0,
    seconds: float = 10_000,
    instruments: Sequence[trio.abc.Instrument] = (),
) -> T:
    """Run `main` as `trio.run` does, on a clock that jumps, with the schedule that belongs to `seed`.

    Raises what `main` raises, bare, and `Hang` after so many virtual seconds, whatever shields there are.
    """

    async def bounded() -> T:
        hang: list[Hang] = []
        result: list[T] = []
        failure: list[BaseException] = []
        async with trio.open_nursery() as nursery:
            # Started and waiting before anything else is, so that none of its steps is taken for the program's.
            await nursery.start(_watch, seconds, hang, nursery.cancel_scope, name="virtual deadline")
            try:
                result.append(await main())
            except BaseException as exc:  # noqa: ASYNC103  # raised below, outside of the nursery: no group hides it
                failure.append(exc)
            nursery.cancel_scope.cancel()
        for reason in (*hang, *failure):
            raise reason
        return result[0]

    with deterministic(seed), _interruptible():
        clock = trio.testing.MockClock(autojump_threshold=0)
        return trio.run(bounded, clock=clock, instruments=instruments)


@contextmanager
def _interruptible() -> Generator[None]:
    """A Ctrl-C arrives also in a process that a shell has started in the background, with the signal ignored."""
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if not ignored or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def deterministic(seed: int = 0) -> Generator[None]:
    """One seed, one schedule, for every `trio.run` in this block."""
    run: Any = trio._core._run  # pyright: ignore
    allowed, run._ALLOW_DETERMINISTIC_SCHEDULING = run._ALLOW_DETERMINISTIC_SCHEDULING, True
    state = run._r.getstate()
    run._r.seed(seed)
    try:
        yield
    finally:
        run._ALLOW_DETERMINISTIC_SCHEDULING = allowed
        run._r.setstate(state)


async def _watch(  # noqa: ASYNC114  # started once, right below
    seconds: float, hang: list[Hang], scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]
) -> None:
    task_status.started()
    await trio.sleep(seconds)
    tasks = list(_tasks_below(trio.lowlevel.current_task()))
    blocked = "\n  ".join([_blocked_at(task) for task in tasks])
    hang.append(Hang(f"nothing moved for up to {seconds:g} virtual seconds; blocked were:\n  {blocked}"))
    scope.cancel()
    for task in tasks:
        _lift_shields(task)


def _tasks_below(me: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    assert me.parent_nursery is not None
    waiting = [me.parent_nursery.parent_task]
    while waiting:
        task = waiting.pop()
        if task is not me:
            yield task
        waiting += [child for nursery in task.child_nurseries for child in nursery.child_tasks]


def _blocked_at(task: trio.lowlevel.Task) -> str:
    frames = [
        f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{line} {frame.f_code.co_name}"
        for frame, line in task.iter_await_frames()
        if not str(frame.f_globals.get("__name__", "")).startswith("trio.")
    ]
    return f"{task.name}: {' > '.join(frames[-4:]) or '(in functions of Trio alone)'}"


def _lift_shields(task: trio.lowlevel.Task) -> None:
    """Nothing else ends an example that hangs behind a shield."""
    status: Any = task._cancel_status  # pyright: ignore
    while status is not None:
        status._scope.shield = False
        status = status._parent
