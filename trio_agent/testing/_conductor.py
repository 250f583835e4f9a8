"""Decides which of several waiting tasks moves next, so that a test chooses the interleaving.

Here live the gates, the choice, and the exhaustive search over choices. What runs between the gates, and what has
to hold, is the test's business. Time is the test's too: give `trio.run` a `MockClock(autojump_threshold=0)`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import attrs
import trio
import trio.testing

T = TypeVar("T")
Choose: TypeAlias = Callable[[Sequence[str]], str]


class Conductor:
    """Fakes wait at named gates; one task lets them through, one at a time, whenever nothing else can move.

    `choose` is given the sorted names of what may happen next: gates with somebody waiting, and actions from outside
    that have not been used up. With Hypothesis: `lambda names: data.draw(st.sampled_from(names), label="next")`.
    `schedule` holds what was chosen.
    """

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self._waiting: dict[str, list[trio.Event]] = {}
        self._actions: dict[str, tuple[Callable[[], object], int]] = {}
        self._arrival = trio.Event()
        self.schedule: list[str] = []

    async def gate(self, name: str) -> None:
        """Wait here until chosen."""
        passed = trio.Event()
        self._waiting.setdefault(name, []).append(passed)
        self._arrival.set()
        try:
            await passed.wait()
        finally:
            self._leave(name, passed)

    def action(self, name: str, do: Callable[[], object], *, times: int = 1) -> None:
        """Something from outside that may happen at any moment, so often: `abort`, a scope's `cancel`, `steer`, …"""
        self._actions[name] = (do, times)

    async def conduct(self, main: Callable[[], Awaitable[T]]) -> T:
        """Run `main` to its end, choosing at every standstill; gives or raises what it does.

        Where there is nothing to choose the clock goes on; put a virtual deadline around this.
        """
        result: list[T] = []
        failure: list[BaseException] = []
        over = trio.Event()

        async def play() -> None:
            try:
                result.append(await main())
            except Exception as exc:  # it is raised below, outside of the nursery, so that no group hides it
                failure.append(exc)
            finally:
                over.set()
                self._arrival.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(play)
            await self._until(over)
        if failure:
            raise failure[0]
        return result[0]

    async def _until(self, over: trio.Event) -> None:
        while True:
            await trio.testing.wait_all_tasks_blocked()
            if over.is_set():
                return
            names = sorted([*self._waiting, *[name for name, (_, left) in self._actions.items() if left]])
            if not self._waiting:
                # Only the clock can move what runs; an action may still come first.
                names.append("(time)")
            chosen = self._choose(names)
            self.schedule.append(chosen)
            await self._let(chosen)

    async def _let(self, chosen: str) -> None:
        if chosen == "(time)":
            self._arrival = trio.Event()
            await self._arrival.wait()
        elif chosen in self._waiting:
            self._waiting[chosen][0].set()
            self._leave(chosen, self._waiting[chosen][0])
        else:
            do, left = self._actions[chosen]
            self._actions[chosen] = (do, left - 1)
            do()

    def _leave(self, name: str, passed: trio.Event) -> None:
        waiting = self._waiting.get(name, [])
        if passed in waiting:
            waiting.remove(passed)
        if not waiting:
            self._waiting.pop(name, None)


@attrs.frozen
class Exploration:
    """How many schedules were run, and whether these were all there are."""

    schedules: int
    exhausted: bool

    def __str__(self) -> str:
        return f"{self.schedules} schedules, {'exhausted' if self.exhausted else 'not exhausted'}"


@attrs.define
class _Path(Generic[T]):
    """The choices of one run: those to repeat, then the first of each that is new."""

    repeat: list[int]
    taken: list[tuple[int, int]] = attrs.field(factory=list[Any])  # which of how many

    def choose(self, names: Sequence[str]) -> str:
        at = len(self.taken)
        which = self.repeat[at] if at < len(self.repeat) else 0
        self.taken.append((which, len(names)))
        return names[which]

    def next(self) -> list[int] | None:
        """The path to the next schedule in depth-first order, or None behind the last."""
        taken = self.taken[:]
        while taken and taken[-1][0] + 1 >= taken[-1][1]:
            taken.pop()
        if not taken:
            return None
        return [which for which, _ in taken[:-1]] + [taken[-1][0] + 1]


def explore(run_once: Callable[[Choose], object], *, limit: int = 10_000) -> Exploration:
    """Run a scenario once for each possible sequence of choices, at most `limit` times.

    `run_once` has to be deterministic but for what it chooses. What it raises carries a note with the choices.
    """
    repeat: list[int] | None = []
    count = 0
    while repeat is not None:
        if count == limit:
            return Exploration(count, False)
        path: _Path[Any] = _Path(repeat)
        try:
            run_once(path.choose)
        except BaseException as exc:
            exc.add_note(f"schedule {count + 1}: choices {[which for which, _ in path.taken]}")
            raise
        count += 1
        repeat = path.next()
    return Exploration(count, True)
