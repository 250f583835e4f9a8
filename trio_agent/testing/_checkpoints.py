"""Runs a scenario once for each of its checkpoints, with something going wrong exactly there.

Here live the counting of checkpoints, what may go wrong at one, and the search over all of them. What runs, and what
has to hold behind it, is the caller's. A place is a step of a task: a checkpoint that is over,
with the task about to go on.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs
import outcome
import trio

Kind: TypeAlias = Literal["abort", "cancel", "ctrl_c", "interrupt", "error"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

# What an application waits in. Throwing there is as if the awaited thing had raised; elsewhere (a nursery's exit, a
# lock that was just handed over) no exception can come from, and throwing one would break Trio's own promises.
_OPEN_TO_ERRORS: Final = {"checkpoint", "cancel_shielded_checkpoint", "sleep", "sleep_until", "sleep_forever", "wait"}
# The kernel's own waits in the run's task, where a Ctrl-C may arrive.
_OPEN_TO_INTERRUPTS: Final = {"_mailbox.py"}


class Planted(Exception):  # noqa: N818  # it is no error of anybody's
    """What the explorer raises in the place of a checkpoint."""


@attrs.frozen
class Disturbance:
    """Something that goes wrong at one place, counted from 0.

    `abort` and `cancel` call what `Checkpoints.watching` was given, before the task goes on. `ctrl_c` is a signal as
    Trio delivers it, to the main task. `interrupt` (`KeyboardInterrupt`) and `error` (`Planted`) are raised in the
    place itself, if that is possible there.
    """

    kind: Kind
    place: int


@attrs.frozen
class Place:
    """One checkpoint: which task waits where. `task` is its name, `where` the innermost frame outside of Trio."""

    task: str
    where: str
    open_to_errors: bool
    open_to_interrupts: bool

    def allows(self, kind: Kind) -> bool:
        """Whether that can happen here in a real program."""
        if kind == "error":
            return self.open_to_errors
        return kind != "interrupt" or self.open_to_interrupts


@attrs.frozen
class _Watch:
    """What is watched, and what disturbs it."""

    owner: trio.lowlevel.Task
    abort: Callable[[], object]
    cancel: Callable[[], object]
    on_strike: Callable[[Kind], object]


class Checkpoints(trio.abc.Instrument):
    """An instrument for `trio.run` that counts checkpoints, and disturbs at most one.

    `places` holds those that were passed inside of `watching`. `struck` says whether the disturbance has happened.
    """

    def __init__(self, disturbance: Disturbance | None = None) -> None:
        self.disturbance = disturbance
        self.places: list[Place] = []
        self.count = 0
        self.struck = False
        self._watch: _Watch | None = None

    @contextmanager
    def watching(
        self,
        *,
        abort: Callable[[], object],
        cancel: Callable[[], object],
        on_strike: Callable[[Kind], object] = lambda _kind: None,
    ) -> Generator[None]:
        """Count, and disturb, only inside of this block, in the task that enters it and all below.

        `on_strike` is called just before the disturbance.
        """
        self._watch = _Watch(trio.lowlevel.current_task(), abort, cancel, on_strike)
        try:
            yield
        finally:
            self._watch = None

    @trio.lowlevel.enable_ki_protection
    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        watch = self._watch
        if watch is None or not _is_below(task, watch.owner):
            return
        at, self.count = self.count, self.count + 1
        if self.disturbance is None:
            self.places.append(_place_of(task))
        elif at == self.disturbance.place and _place_of(task).allows(self.disturbance.kind):
            self.struck = True
            watch.on_strike(self.disturbance.kind)
            _disturb(self.disturbance.kind, watch, task)


def _disturb(kind: Kind, watch: _Watch, task: trio.lowlevel.Task) -> None:
    if kind == "abort":
        watch.abort()
    elif kind == "cancel":
        watch.cancel()
    elif kind == "ctrl_c":
        signal.raise_signal(signal.SIGINT)
    elif kind == "interrupt":
        _throw(task, KeyboardInterrupt())
    else:
        _throw(task, Planted("raised in the place of a checkpoint"))


def _throw(task: trio.lowlevel.Task, exc: BaseException) -> None:
    """Let the task's wait raise. Trio has no public way to put this in the place of a result."""
    task._next_send = outcome.Error(exc)  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]


def _is_below(task: trio.lowlevel.Task | None, owner: trio.lowlevel.Task | None) -> bool:
    while task is not None and task is not owner:
        task = task.parent_nursery.parent_task if task.parent_nursery is not None else None
    return task is not None


def _place_of(task: trio.lowlevel.Task) -> Place:
    frames = list(task.iter_await_frames())
    modules = [str(frame.f_globals.get("__name__", "")) for frame, _ in frames]
    outside = [at for at, module in enumerate(modules) if not _is_trios(module)]
    if not outside:
        return Place(task.name, "(in functions of Trio alone)", False, False)
    innermost = outside[-1]
    frame, line = frames[innermost]
    file = frame.f_code.co_filename.rsplit("/", 1)[-1]
    waits_in = frames[innermost + 1][0].f_code.co_name if innermost + 1 < len(frames) else ""
    pending: Any = task._next_send  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage, reportUnknownMemberType]
    is_plain = isinstance(pending, outcome.Value)  # else it raises already
    is_theirs = not modules[innermost].startswith("trio_agent.") or modules[innermost].startswith("trio_agent.testing.")
    may_fail = is_plain and is_theirs and waits_in in _OPEN_TO_ERRORS
    may_interrupt = may_fail or (is_plain and file in _OPEN_TO_INTERRUPTS)
    return Place(task.name, f"{file}:{line} {frame.f_code.co_name}", may_fail, may_interrupt)


def _is_trios(module: str) -> bool:
    return module == "trio" or module.startswith("trio.") or module == "contextlib"


@attrs.frozen
class CheckpointExploration:
    """What `every_checkpoint` did: how many checkpoints the scenario has, and how many runs of each kind there were."""

    checkpoints: int
    runs: dict[Kind, int]

    def __str__(self) -> str:
        kinds = ", ".join([f"{count} {kind}" for kind, count in self.runs.items()])
        return f"{self.checkpoints} checkpoints, {sum(self.runs.values())} runs ({kinds})"


def every_checkpoint(
    run_once: Callable[[Checkpoints], object],
    *,
    kinds: Sequence[Kind] = KINDS,
    sample: int | None = None,
    seed: int = 0,
) -> CheckpointExploration:
    """Run a scenario undisturbed, then once for each checkpoint and each kind of disturbance that is possible there.

    `run_once` gives the instrument to a `trio.run` of its own (`run_virtually` makes it deterministic), puts the part
    to be watched into `watching`, and checks what has to hold. With `sample` only so many places of each kind are
    drawn, by `seed`. What `run_once` raises carries a note that says which disturbance it was.
    """
    plain = Checkpoints()
    run_once(plain)
    runs: dict[Kind, int] = {}
    draw = random.Random(seed)
    for kind in kinds:
        places = [at for at, place in enumerate(plain.places) if place.allows(kind)]
        if sample is not None and len(places) > sample:
            places = sorted(draw.sample(places, sample))
        for at in places:
            _run_disturbed(run_once, Disturbance(kind, at), plain.places[at])
        runs[kind] = len(places)
    return CheckpointExploration(len(plain.places), runs)


def _run_disturbed(run_once: Callable[[Checkpoints], object], disturbance: Disturbance, place: Place) -> None:
    checkpoints = Checkpoints(disturbance)
    try:
        run_once(checkpoints)
        assert checkpoints.struck, "the scenario is not deterministic: it did not come to this place again"
    except BaseException as exc:
        exc.add_note(f"{disturbance} in task {place.task!r} at {place.where}")
        raise
