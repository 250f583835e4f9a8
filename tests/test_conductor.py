"""The conductor itself: it chooses, it explores, it notices the end."""

from __future__ import annotations

import pytest
import trio
from scenes import trio_run

from trio_agent.testing import Choose, Conductor, explore


def three_tasks_of_two_gates(orders: set[tuple[str, ...]]):
    def run_once(choose: Choose) -> None:
        async def main() -> None:
            conductor = Conductor(choose)
            record: list[str] = []

            async def task(name: str) -> None:
                for step in ("1", "2"):
                    await conductor.gate(f"{name}{step}")
                    record.append(name + step)

            async def all_three() -> None:
                async with trio.open_nursery() as nursery:
                    for name in "abc":
                        nursery.start_soon(task, name)

            await conductor.conduct(all_three)
            orders.add(tuple(record))

        trio_run(main)

    return run_once


def test_every_interleaving_is_found_and_the_search_says_so() -> None:
    """Three tasks of two gates have 6!/(2!2!2!) = 90 interleavings; all of them are run, once each."""
    orders: set[tuple[str, ...]] = set()
    found = explore(three_tasks_of_two_gates(orders))
    assert (found.schedules, found.exhausted, len(orders)) == (90, True, 90)
    assert str(found) == "90 schedules, exhausted"


def test_a_bounded_search_says_that_it_was_bounded() -> None:
    """A search that stops at its limit does not claim to be exhausted."""
    found = explore(three_tasks_of_two_gates(set()), limit=10)
    assert (found.schedules, found.exhausted) == (10, False)


def test_a_failure_names_its_schedule() -> None:
    """What a schedule raises carries the choices that lead there."""

    def run_once(choose: Choose) -> None:
        if choose(["a", "b"]) == "b":
            raise ValueError("b is bad")

    with pytest.raises(ValueError, match="b is bad") as caught:
        explore(run_once)
    assert caught.value.__notes__ == ["schedule 2: choices [1]"]


def test_what_main_raises_is_bare() -> None:
    """A failure of the conducted function leaves `conduct` without a group around it."""

    async def main() -> None:
        async def fails() -> None:
            raise KeyError("k")

        await Conductor(lambda names: names[0]).conduct(fails)

    with pytest.raises(KeyError):
        trio_run(main)


def test_an_action_happens_at_most_as_often_as_it_may() -> None:
    """Actions from outside compete with the gates, and are used up."""
    done: list[str] = []

    async def main() -> None:
        conductor = Conductor(lambda names: names[0])
        conductor.action("act", lambda: done.append("act"), times=2)

        async def body() -> None:
            for _ in range(3):
                await conductor.gate("gate")

        await conductor.conduct(body)
        assert conductor.schedule == ["act", "act", "gate", "gate", "gate"]

    trio_run(main)
    assert done == ["act", "act"]


def test_time_passes_where_nothing_waits_at_a_gate() -> None:
    """A sleeping task does not stop the conductor: the clock goes on."""

    async def main() -> None:
        conductor = Conductor(lambda names: names[0])

        async def body() -> float:
            await trio.sleep(5)
            await conductor.gate("late")
            return trio.current_time()

        began = trio.current_time()
        assert await conductor.conduct(body) - began == pytest.approx(5)
        assert conductor.schedule == ["(time)", "late"]

    trio_run(main)


def test_of_several_at_one_gate_one_passes_at_a_time() -> None:
    """Three tasks may wait at the same gate: each choice of its name lets one of them through."""
    passed: list[int] = []

    async def main() -> None:
        conductor = Conductor(lambda names: names[0])

        async def task() -> None:
            await conductor.gate("gate")
            passed.append(len(conductor.schedule))

        async def body() -> None:
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(task)

        await conductor.conduct(body)

    trio_run(main)
    assert passed == [1, 2, 3]
