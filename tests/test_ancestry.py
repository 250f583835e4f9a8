"""Who waits for whom in Trio's task tree (A6, T8; rule 3.10 of the architecture)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import Context

import pytest
import trio
import trio.testing

from trio_agent._ancestry import Origin, enclosing, mark_thread_call, snapshot, waits_for


async def test_the_task_itself_is_inside() -> None:
    """What a task waits for includes what it does itself."""
    assert waits_for(snapshot())


async def test_a_nested_child_is_inside() -> None:
    """Children and grandchildren of nurseries opened since are waited for, at any depth."""
    origin = snapshot()
    seen: list[bool] = []

    async def descend(levels: int) -> None:
        seen.append(waits_for(origin))
        if levels:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(descend, levels - 1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(descend, 4)
    assert seen == [True] * 5


async def test_a_sibling_in_a_nursery_around_the_origin_is_outside() -> None:
    """A nursery that was open before keeps its children outside, although its task is the origin's."""
    asked = trio.Event()
    answers: list[bool] = []

    async def sibling(origin: Origin) -> None:
        answers.append(waits_for(origin))
        asked.set()

    async with trio.open_nursery() as around:
        origin = snapshot()
        around.start_soon(sibling, origin)
        async with trio.open_nursery() as within:
            within.start_soon(sibling, origin)
            await trio.testing.wait_all_tasks_blocked()
            await asked.wait()
    assert sorted(answers) == [False, True]


async def test_a_background_task_started_from_inside_is_outside() -> None:
    """Where a task was started from does not matter, only the nursery that waits for it."""
    answers: list[bool] = []

    async def background(origin: Origin) -> None:
        answers.append(waits_for(origin))

    async def inside(application: trio.Nursery, origin: Origin) -> None:
        application.start_soon(background, origin)

    async with trio.open_nursery() as application:
        origin = snapshot()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(inside, application, origin)
    assert answers == [False]


async def test_a_task_that_is_being_started_is_inside_until_it_has_started() -> None:
    """`nursery.start` waits for the child until `started()`, and the child's new nursery decides from then on."""
    answers: list[bool] = []

    async def service(origin: Origin, *, task_status: trio.TaskStatus[None]) -> None:
        answers.append(waits_for(origin))
        task_status.started()
        await trio.lowlevel.checkpoint()
        answers.append(waits_for(origin))

    async with trio.open_nursery() as application:
        origin = snapshot()
        await application.start(service, origin)
    assert answers == [True, False]


async def test_a_parent_is_not_waited_for_by_its_child() -> None:
    """The question has a direction: an origin in a child does not wait for the task above it."""
    origins: list[Origin] = []

    async def child() -> None:
        origins.append(snapshot())
        await trio.testing.wait_all_tasks_blocked()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(child)
        await trio.testing.wait_all_tasks_blocked(0.1)
        assert not waits_for(origins[0])


async def test_another_task_can_be_asked_about() -> None:
    """`task` need not be the current one, neither for the snapshot nor for the question."""
    me = trio.lowlevel.current_task()
    children: list[trio.lowlevel.Task] = []

    async def child() -> None:
        children.append(trio.lowlevel.current_task())
        await trio.sleep_forever()

    before = snapshot(me)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(child)
        await trio.testing.wait_all_tasks_blocked()
        assert waits_for(before, children[0])
        assert not waits_for(snapshot(me), children[0])
        assert not waits_for(snapshot(children[0]), me)
        nursery.cancel_scope.cancel()


async def test_a_system_task_is_outside() -> None:
    """A system task without a mark belongs to nobody, also when it was spawned from inside."""
    origin = snapshot()
    answers: list[bool] = []

    async def system() -> None:
        answers.append(waits_for(origin))
        answers.append(bool(enclosing(trio.lowlevel.current_task(), [origin])))

    trio.lowlevel.spawn_system_task(system)
    await trio.testing.wait_all_tasks_blocked()
    assert answers == [False, False]


async def _from_a_marked_thread(origin: Origin, ask: Callable[[], Awaitable[bool]]) -> bool:
    with mark_thread_call(origin):
        return await trio.to_thread.run_sync(trio.from_thread.run, ask, abandon_on_cancel=True)


@pytest.mark.real_time
async def test_a_marked_call_from_a_thread_is_inside() -> None:
    """`trio.from_thread` in a thread that may be abandoned lands in a system task; the mark says whose it is."""
    run = snapshot()
    answers: list[bool] = []

    async def ask() -> bool:
        return waits_for(run)

    async def tool() -> None:
        answers.append(await _from_a_marked_thread(snapshot(), ask))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tool)
    assert answers == [True]


@pytest.mark.real_time
async def test_a_marked_sync_call_from_a_thread_is_inside() -> None:
    """`trio.from_thread.run_sync` runs in a context that is not its task's own, and is found all the same."""
    origin = snapshot()
    with mark_thread_call(origin):
        assert await trio.to_thread.run_sync(
            lambda: trio.from_thread.run_sync(waits_for, origin), abandon_on_cancel=True
        )


@pytest.mark.real_time
async def test_an_unmarked_call_from_a_thread_is_outside() -> None:
    """Without the mark nothing is known of a call that came through a thread that may be abandoned."""
    origin = snapshot()

    async def ask() -> bool:
        return waits_for(origin)

    assert not await trio.to_thread.run_sync(trio.from_thread.run, ask, abandon_on_cancel=True)


@pytest.mark.real_time
async def test_a_task_below_a_marked_call_is_inside() -> None:
    """The mark holds for children of the system task, which inherit it."""
    run = snapshot()
    answers: list[bool] = []

    async def child() -> None:
        answers.append(waits_for(run))

    async def ask() -> bool:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)
        return True

    assert await _from_a_marked_thread(run, ask)
    assert answers == [True]


async def test_a_background_task_that_inherits_the_mark_is_outside() -> None:
    """A task that carries the mark but has its place in the tree is judged by its place."""
    answers: list[bool] = []

    async def background(origin: Origin) -> None:
        answers.append(waits_for(origin))
        answers.append(bool(enclosing(trio.lowlevel.current_task(), [origin])))

    async with trio.open_nursery() as application:
        origin = snapshot()
        with mark_thread_call(origin):
            application.start_soon(background, origin)
    assert answers == [False, False]


@pytest.mark.real_time
async def test_the_mark_ends_with_its_block() -> None:
    """What is started after the block is no longer marked."""
    origin = snapshot()
    with mark_thread_call(origin):
        pass

    async def ask() -> bool:
        return waits_for(origin)

    assert not await trio.to_thread.run_sync(trio.from_thread.run, ask, abandon_on_cancel=True)


@pytest.mark.real_time
async def test_a_thread_within_a_thread_is_inside_both_calls() -> None:
    """Marks nest: the innermost is looked at first, and each leads on to what is around its own call."""
    outer = snapshot()
    found: list[list[Origin]] = []
    inner: list[Origin] = []

    async def innermost() -> bool:
        found.append(enclosing(trio.lowlevel.current_task(), [outer, *inner]))
        return waits_for(outer)

    async def middle() -> bool:
        async def call() -> None:
            inner.append(snapshot())
            await _from_a_marked_thread(inner[0], innermost)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
        return True

    await _from_a_marked_thread(outer, middle)
    assert found == [[inner[0], outer]]


async def test_a_thread_left_behind_is_inside_its_call_only() -> None:
    """Once the call has ended, its thread is waited for by nobody around it; what the call held still counts."""
    run = snapshot()
    calls: list[Origin] = []
    contexts: list[Context] = []
    tasks: list[trio.lowlevel.Task] = []

    async def call() -> None:
        calls.append(snapshot())
        with mark_thread_call(calls[0]):
            contexts.append(trio.lowlevel.current_task().context.copy())

    async def late() -> None:
        tasks.append(trio.lowlevel.current_task())
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
    trio.lowlevel.spawn_system_task(late, context=contexts[0])
    await trio.testing.wait_all_tasks_blocked()
    assert waits_for(calls[0], tasks[0])
    assert not waits_for(run, tasks[0])
    assert enclosing(tasks[0], [run, *calls]) == calls


async def test_enclosing_lists_the_innermost_first() -> None:
    """Of several origins those that wait for the task come out from the inside outwards; the others do not."""
    here = trio.lowlevel.current_task()
    found: list[list[str]] = []

    async def below(origins: dict[Origin, str]) -> None:
        own = snapshot()
        origins = {**origins, own: "own"}
        found.append([origins[origin] for origin in enclosing(trio.lowlevel.current_task(), origins)])

    async with trio.open_nursery() as around:
        outer, later = snapshot(), snapshot()
        names = {outer: "outer", later: "later in the same task"}
        async with trio.open_nursery() as nursery:
            names[snapshot()] = "has the nursery already"
            nursery.start_soon(below, names)
        around.start_soon(below, names)
    assert found == [["own", "later in the same task", "outer"], ["own"]]
    assert enclosing(here, []) == []
