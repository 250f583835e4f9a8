"""File locks: two writers of one file never overlap, and go in the order of their tickets (T8, B035)."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from trio_agent._ancestry import Origin, mark_thread_call, snapshot
from trio_agent._file_locks import FileLocks, FileLockStatistics, HeldByAncestor, Ticket, current_file_locks

IDLE = FileLockStatistics(held=0, waiting=0, keys=0)


@attrs.define(eq=False)
class Call:
    """A holder of locks, as the kernel's record of a tool call is one."""

    name: str
    origin: Origin | None = None


class Writers:
    """Tasks that write the files of their tickets; `log` says who got them when, and who gave them back."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.table = FileLocks()
        self.log: list[str] = []
        self._nursery = nursery
        self._done: dict[str, trio.Event] = {}
        self._scopes: dict[str, trio.CancelScope] = {}

    async def start(self, name: str, *paths: str | Path) -> None:
        """Take a ticket now, and wait for it in a task of its own."""
        ticket = self.table.ticket(paths, Call(name))
        self._done[name], self._scopes[name] = trio.Event(), trio.CancelScope()
        self._nursery.start_soon(self._write, name, ticket)
        await wait_all_tasks_blocked()

    async def finish(self, name: str) -> None:
        self._done[name].set()
        await wait_all_tasks_blocked()

    async def cancel(self, name: str) -> None:
        self._scopes[name].cancel()
        await wait_all_tasks_blocked()

    async def finish_all(self) -> None:
        for done in self._done.values():
            done.set()
            await wait_all_tasks_blocked()
        assert self.table.statistics() == IDLE

    async def _write(self, name: str, ticket: Ticket) -> None:
        with self._scopes[name]:
            try:
                await ticket.acquire()
                self.log.append(f"{name} has it")
                await self._done[name].wait()
            finally:
                self.log.append(f"{name} is done")
                ticket.release()


def replace(path: Path, text: str) -> None:
    """Write as editors do: another file is put in the place of this one."""
    (path.parent / "temporary").write_text(text)
    (path.parent / "temporary").replace(path)


def retarget(link: Path, target: str) -> None:
    (link.parent / "temporary").symlink_to(target)
    (link.parent / "temporary").replace(link)


# -- one file, one writer ---------------------------------------------------------------------------------------


async def test_t8_writers_of_one_file_go_one_by_one_in_ticket_order(tmp_path: Path, nursery: trio.Nursery) -> None:
    """The ticket decides the order, whichever task begins to wait first."""
    table = FileLocks()
    tickets = [table.ticket([tmp_path / "f"]) for _ in range(4)]
    log: list[int] = []

    async def write(at: int) -> None:
        await trio.sleep(4 - at)
        await tickets[at].acquire()
        log.append(at)
        await trio.sleep(10)
        log.append(at)
        tickets[at].release()

    async with trio.open_nursery() as writers:
        for at in range(4):
            writers.start_soon(write, at)
    assert log == [0, 0, 1, 1, 2, 2, 3, 3]
    assert table.statistics() == IDLE


def _two_names(kind: str, folder: Path) -> tuple[Path | str, Path | str]:
    file = folder / "file"
    if kind not in ("missing", "dangling link"):
        file.write_text("x")
    (folder / "sub").mkdir()
    other: Path | str = folder / "other"
    match kind:
        case "dots" | "missing":
            other = f"{folder}/sub/.././file"
        case "relative":
            other = os.path.relpath(file)
        case "link" | "dangling link":
            (folder / "other").symlink_to("file")
        case "directory link":
            (folder / "here").symlink_to(".")
            other = folder / "here" / "file"
        case "hard link":
            os.link(file, folder / "other")
        case _:
            raise AssertionError(kind)
    return file, other


@pytest.mark.parametrize(
    "kind", ["dots", "missing", "relative", "link", "dangling link", "directory link", "hard link"]
)
async def test_t8_two_names_of_one_file_exclude_each_other(kind: str, tmp_path: Path, nursery: trio.Nursery) -> None:
    """A lock is on the file, not on its name."""
    one, other = _two_names(kind, tmp_path)
    writers = Writers(nursery)
    await writers.start("first", one)
    await writers.start("second", other)
    assert writers.log == ["first has it"]
    await writers.finish("first")
    assert writers.log == ["first has it", "first is done", "second has it"]
    await writers.finish_all()


async def test_t8_other_letter_case_excludes_where_the_file_system_ignores_case(tmp_path: Path) -> None:
    """A new file under two cases is one file there."""
    table = FileLocks(ignores_case=lambda directory, status: True)
    async with table.hold([tmp_path / "New"]):
        other = table.ticket([tmp_path / "NEW"])
        with trio.move_on_after(1) as scope:
            await other.acquire()
        assert scope.cancelled_caught
    assert table.statistics() == IDLE


async def test_t8_other_files_do_not_wait(tmp_path: Path, nursery: trio.Nursery) -> None:
    """Tickets without a common file are held at the same time."""
    writers = Writers(nursery)
    await writers.start("a", tmp_path / "a")
    await writers.start("b", tmp_path / "b")
    await writers.start("none")
    assert writers.log == ["a has it", "b has it", "none has it"]
    assert writers.table.statistics().held == 2
    await writers.finish_all()


async def test_t8_whoever_waits_for_one_file_holds_none(tmp_path: Path, nursery: trio.Nursery) -> None:
    """All or nothing; but nobody who came later gets past, not even to a file that is free."""
    writers = Writers(nursery)
    a, b, c = (tmp_path / name for name in "abc")
    await writers.start("a", a)
    await writers.start("ab", a, b)
    assert writers.table.statistics().held == 1
    await writers.start("b", b)
    await writers.start("c", c)
    assert writers.log == ["a has it", "c has it"]
    await writers.finish("a")
    await writers.finish("ab")
    assert writers.log[2:] == ["a is done", "ab has it", "ab is done", "b has it"]
    await writers.finish_all()


async def test_b035_opposite_orders_do_not_deadlock(tmp_path: Path) -> None:
    """`mv(a, b)` and `mv(b, a)` of one turn both finish, the first one first."""
    table = FileLocks()
    a, b = tmp_path / "a", tmp_path / "b"
    log: list[str] = []

    async def move(name: str, ticket: Ticket) -> None:
        await trio.lowlevel.checkpoint()
        await ticket.acquire()
        log.append(name)
        await trio.sleep(1)
        ticket.release()

    async with trio.open_nursery() as nursery:
        for name, paths in (("mv(a,b)", [a, b]), ("mv(b,a)", [b, a])):
            nursery.start_soon(move, name, table.ticket(paths))
    assert log == ["mv(a,b)", "mv(b,a)"]
    assert table.statistics() == IDLE


async def test_b035_one_file_named_twice_does_not_block_itself(tmp_path: Path) -> None:
    """The same path twice, and a path with its own aliases, is one file for one ticket."""
    path = tmp_path / "file"
    path.write_text("x")
    (tmp_path / "link").symlink_to("file")
    os.link(path, tmp_path / "hard")
    table = FileLocks()
    async with table.hold([path, path, str(path), tmp_path / "link", tmp_path / "hard", f"{tmp_path}/./file"]) as ticket:
        assert ticket.held
        assert len(ticket.paths) == 6
    assert table.statistics() == IDLE


@pytest.mark.parametrize("where", ["only one", "in front", "in the middle"])
async def test_b035_a_cancelled_waiter_lets_the_next_in(where: str, tmp_path: Path, nursery: trio.Nursery) -> None:
    """Who is cancelled while waiting leaves the line, and holds up nobody behind."""
    writers = Writers(nursery)
    a, b = tmp_path / "a", tmp_path / "b"
    await writers.start("holder", a)
    if where == "in the middle":
        await writers.start("before", a)
    await writers.start("cancelled", a, b)
    if where != "only one":
        await writers.start("behind", b)
    await writers.cancel("cancelled")
    expected = ["holder has it", "cancelled is done"] + ["behind has it"] * (where != "only one")
    assert writers.log == expected
    await writers.finish("holder")
    assert writers.table.statistics().waiting == 0
    await writers.finish_all()


async def test_a_ticket_given_back_before_its_turn_lets_the_next_in(tmp_path: Path, nursery: trio.Nursery) -> None:
    """A place in line holds the others up until it is used or released."""
    writers = Writers(nursery)
    early = writers.table.ticket([tmp_path / "f"])
    await writers.start("next", tmp_path / "f")
    assert writers.log == []
    early.release()
    await wait_all_tasks_blocked()
    assert writers.log == ["next has it"]
    await writers.finish_all()


# -- files that change while others wait --------------------------------------------------------------------------


async def test_t8_a_file_created_while_another_waits_stays_one_file(tmp_path: Path, nursery: trio.Nursery) -> None:
    """Those who came before the file was there, and a third who comes after, exclude each other."""
    writers = Writers(nursery)
    path = tmp_path / "new"
    await writers.start("first", path)
    await writers.start("second", path)
    path.write_text("x")
    os.link(path, tmp_path / "hard")
    await writers.finish("first")
    await writers.start("third", tmp_path / "hard")
    assert writers.log[-1] == "second has it"
    await writers.finish("second")
    assert writers.log[-1] == "third has it"
    await writers.finish_all()


async def test_t8_a_file_replaced_by_rename_stays_one_file(tmp_path: Path, nursery: trio.Nursery) -> None:
    """Whoever waited for the old one gets the new one, against those who know only that."""
    writers = Writers(nursery)
    path = tmp_path / "file"
    path.write_text("old")
    await writers.start("first", path)
    await writers.start("second", path)
    replace(path, "new")
    os.link(path, tmp_path / "hard")
    await writers.finish("first")
    await writers.start("third", tmp_path / "hard")
    assert writers.log[-1] == "second has it"
    await writers.finish_all()


async def test_t8_a_file_linked_by_its_writer_is_locked_under_the_new_name(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    """What a holder makes of its file is its own, also where the file was not there when the lock was taken."""
    writers = Writers(nursery)
    path = tmp_path / "new"
    await writers.start("first", path)
    path.write_text("x")
    os.link(path, tmp_path / "hard")
    await writers.start("second", tmp_path / "hard")
    assert writers.log == ["first has it"]
    await writers.finish("first")
    assert writers.log[-1] == "second has it"
    await writers.finish_all()


async def test_t8_a_link_retargeted_while_one_waited_is_followed(tmp_path: Path, nursery: trio.Nursery) -> None:
    """The lock is on what the path means when its turn has come, and no longer on what it meant."""
    writers = Writers(nursery)
    link = tmp_path / "link"
    link.symlink_to("old")
    await writers.start("first", tmp_path / "old")
    await writers.start("second", link)
    retarget(link, "young")
    await writers.finish("first")
    await writers.start("old", tmp_path / "old")
    await writers.start("young", tmp_path / "young")
    assert writers.log == ["first has it", "first is done", "second has it", "old has it"]
    await writers.finish("second")
    assert writers.log[-1] == "young has it"
    await writers.finish_all()


async def test_t8_a_ticket_that_must_be_checked_again_keeps_its_place(tmp_path: Path, nursery: trio.Nursery) -> None:
    """With new keys it goes before all that took their tickets later, but a holder keeps what it holds."""
    writers = Writers(nursery)
    link = tmp_path / "link"
    link.symlink_to("old")
    await writers.start("first", tmp_path / "old")
    await writers.start("second", link)
    await writers.start("third", tmp_path / "young")
    await writers.start("fourth", tmp_path / "young")
    await writers.start("behind the old", tmp_path / "old")
    retarget(link, "young")
    await writers.finish("first")
    assert writers.log == ["first has it", "third has it", "first is done", "behind the old has it"]
    await writers.finish("third")
    assert writers.log[-1] == "second has it"
    await writers.finish("second")
    assert writers.log[-1] == "fourth has it"
    await writers.finish_all()


async def test_t8_a_path_that_changes_between_ticket_and_turn_is_checked_without_waiting(tmp_path: Path) -> None:
    """Also a ticket that need not wait is looked at again."""
    table = FileLocks()
    link = tmp_path / "link"
    link.symlink_to("old")
    ticket = table.ticket([link])
    retarget(link, "young")
    await ticket.acquire()
    with trio.move_on_after(1) as scope:
        await table.ticket([tmp_path / "young"]).acquire()
    assert scope.cancelled_caught
    ticket.release()
    assert table.statistics() == IDLE


# -- who would wait for ever --------------------------------------------------------------------------------------


Body = Callable[[], Awaitable[None]]


class Calls:
    """Tool calls that hold locks while they run others inside, as an agent inside a tool does."""

    def __init__(self) -> None:
        self.table = FileLocks()
        self.log: list[str] = []
        self.refused: list[HeldByAncestor] = []

    async def call(self, name: str, paths: Sequence[Path], body: Body | None = None) -> None:
        """One call, from its ticket to its end."""
        await self.begun(name, self.table.ticket(paths, call := Call(name)), call, body)

    async def begun(self, name: str, ticket: Ticket, call: Call, body: Body | None = None) -> None:
        call.origin = snapshot()
        try:
            await ticket.acquire()
            self.log.append(name)
            if body is not None:
                await body()
        except HeldByAncestor as refusal:
            self.refused.append(refusal)
        finally:
            ticket.release()

    def inside(self, *calls: tuple[Any, ...], after: float = 0) -> Body:
        """A body that runs these calls in tasks of its own, one second apart."""

        async def body() -> None:
            async with trio.open_nursery() as nursery:
                for arguments in calls:
                    await trio.sleep(after)
                    nursery.start_soon(self.call, *arguments)
                    await trio.sleep(1)

        return body


async def test_t8_a_lock_that_an_ancestor_holds_is_an_error(tmp_path: Path) -> None:
    """The inner call is told so at once, with the path as it gave it and the name of who holds it."""
    calls = Calls()
    path = tmp_path / "f"
    link = tmp_path / "link"
    link.symlink_to("f")
    await calls.call("delegate", [path], calls.inside(("write", [link]), ("other", [tmp_path / "g"])))
    assert calls.log == ["delegate", "other"]
    (refusal,) = calls.refused
    assert (refusal.path, refusal.holder_name) == (str(link), "delegate")
    assert str(refusal) == (
        f"{str(link)!r} is locked by 'delegate', which waits for this call to end, so the lock would never "
        "come free; write another file here, or leave this one to the call that has locked it"
    )
    assert calls.table.statistics() == IDLE


async def test_t8_an_ancestor_further_out_counts_too(tmp_path: Path) -> None:
    """However many calls lie between."""
    calls = Calls()
    path = tmp_path / "f"
    innermost = calls.inside(("innermost", [tmp_path / "g", path]))
    await calls.call("outer", [path], calls.inside(("middle", [tmp_path / "h"], innermost)))
    assert calls.log == ["outer", "middle"]
    assert [refusal.holder_name for refusal in calls.refused] == ["outer"]


async def test_t8_a_call_does_not_wait_for_its_own_lock(tmp_path: Path) -> None:
    """A second ticket of the same call, for a file that the first one holds, is an error as well."""
    table = FileLocks()
    call = Call("write", snapshot())
    ticket = table.ticket([tmp_path / "f"], call)
    await ticket.acquire()
    with pytest.raises(HeldByAncestor, match="locked by 'write'"):
        await table.ticket([tmp_path / "f"], call).acquire()
    ticket.release()


async def test_t8_locks_at_run_time_are_refused_to_a_call_that_has_some(tmp_path: Path) -> None:
    """Whether it holds them or waits for them: one by one, two calls could wait for each other."""
    table = FileLocks()
    call, other = Call("write"), Call("other")
    for first in (table.ticket([tmp_path / "f"], call), table.ticket([tmp_path / "g"], call)):
        with pytest.raises(RuntimeError, match="'write' locks '.*' already; lock all its files together"):
            async with table.hold([tmp_path / "h"], call):
                pytest.fail("was let in")
        async with table.hold([tmp_path / "h"], other), table.hold([tmp_path / "i"]), table.hold([tmp_path / "j"]):
            pass
        first.release()
    async with table.hold([tmp_path / "h"], call):
        pass


async def test_t8_a_lock_that_an_ancestor_gets_while_one_is_queued_is_an_error(tmp_path: Path) -> None:
    """Behind others in line it may become so, and is told then."""
    calls = Calls()
    path = tmp_path / "f"
    outer = Call("outer")

    async def outer_call(ticket: Ticket) -> None:
        origin = snapshot()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(calls.call, "inner", [path])
            await trio.sleep(1)
            assert calls.refused == []
            outer.origin = origin
            await ticket.acquire()
            await trio.sleep(10)
            calls.log.append(f"refused {len(calls.refused)}")
        ticket.release()

    async with trio.open_nursery() as nursery:
        stranger = calls.table.ticket([path])
        ticket = calls.table.ticket([path], outer)
        await stranger.acquire()
        nursery.start_soon(outer_call, ticket)
        await trio.sleep(5)
        assert calls.refused == []
        stranger.release()
    assert calls.log == ["refused 1"]
    assert [refusal.holder_name for refusal in calls.refused] == ["outer"]
    assert calls.table.statistics() == IDLE


async def test_t8_a_task_inside_a_call_does_not_queue_behind_what_waits_for_that_call(tmp_path: Path) -> None:
    """x is held by the outer call; who wants x and y waits for it; the inner call gets y without waiting for them."""
    calls = Calls()
    x, y = tmp_path / "x", tmp_path / "y"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(calls.call, "outer", [x], calls.inside(("inner", [y]), after=5))
        await trio.sleep(1)
        nursery.start_soon(calls.call, "both", [x, y])
        await trio.sleep(1)
        nursery.start_soon(calls.call, "y", [y])
    assert calls.log == ["outer", "inner", "both", "y"]
    assert calls.refused == []


async def test_t8_a_task_inside_a_call_queues_behind_what_does_not_wait_for_that_call(tmp_path: Path) -> None:
    """Being inside another call is no privilege as such."""
    calls = Calls()
    x, y = tmp_path / "x", tmp_path / "y"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(calls.call, "outer", [x], calls.inside(("inner", [y]), after=5))
        nursery.start_soon(calls.call, "long", [y], lambda: trio.sleep(10))
        await trio.sleep(1)
        nursery.start_soon(calls.call, "y", [y])
    assert sorted(calls.log[:2]) == ["long", "outer"]
    assert calls.log[2:] == ["y", "inner"]


async def test_t8_an_inner_call_that_waits_already_overtakes_when_its_ancestor_comes_to_hold(tmp_path: Path) -> None:
    """The way past opens with the grant that would have made the wait endless."""
    calls = Calls()
    x, y, z = (tmp_path / name for name in "xyz")
    outer = Call("outer")

    async def outer_call(ticket: Ticket) -> None:
        async def body() -> None:
            await trio.sleep(3)

        async def with_child() -> None:
            outer.origin = snapshot()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(calls.call, "inner", [y])
                await calls.begun("outer", ticket, outer, body)

        await with_child()

    async with trio.open_nursery() as nursery:
        outer_ticket = calls.table.ticket([x], outer)
        both = calls.table.ticket([x, y, z], Call("both"))
        nursery.start_soon(outer_call, outer_ticket)
        await trio.sleep(1)
        assert calls.log == ["outer"]
        nursery.start_soon(calls.begun, "both", both, Call("both"))
    assert calls.log == ["outer", "both", "inner"]


async def test_t8_two_calls_whose_insides_want_each_others_locks_do_not_deadlock(tmp_path: Path) -> None:
    """The one that would close the circle is told, and by whom; the other one then gets its turn."""
    calls = Calls()
    x, y = tmp_path / "x", tmp_path / "y"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(calls.call, "left", [x], calls.inside(("left inner", [y]), after=1))
        nursery.start_soon(calls.call, "right", [y], calls.inside(("right inner", [x]), after=2))
    assert calls.log[2:] == ["left inner"]
    (refusal,) = calls.refused
    assert (refusal.path, refusal.holder_name) == (str(x), "left")
    assert "is locked by 'left', which waits for 'right', which waits for this call to end" in str(refusal)
    assert calls.table.statistics() == IDLE


async def test_t8_a_circle_that_someone_can_step_out_of_is_no_error(tmp_path: Path) -> None:
    """Where an inner call can overtake, nobody is refused: right's inner gets z past who waits for left."""
    calls = Calls()
    x, y, z = (tmp_path / name for name in "xyz")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(calls.call, "left", [x], calls.inside(("left inner", [y]), after=4))
        nursery.start_soon(calls.call, "right", [y], calls.inside(("right inner", [z]), after=2))
        await trio.sleep(1)
        nursery.start_soon(calls.call, "both", [x, z])
    assert calls.refused == []
    assert calls.log[2:] == ["right inner", "left inner", "both"]


async def test_t8_a_sibling_of_the_holder_waits_as_usual(tmp_path: Path) -> None:
    """A task beside the holder, and one started from inside it into a nursery around it, are no insiders."""
    calls = Calls()
    path = tmp_path / "f"
    async with trio.open_nursery() as application:

        async def body() -> None:
            application.start_soon(calls.call, "background", [path])
            await trio.sleep(1)

        await calls.call("holder", [path], body)
    assert calls.log == ["holder", "background"]
    assert calls.refused == []


@pytest.mark.real_time
async def test_t8_a_call_from_the_holders_thread_is_an_error(tmp_path: Path) -> None:
    """A thread that may be left behind would wait for its own call's lock in a system task."""
    table = FileLocks()
    call = Call("write", snapshot())

    async def again() -> str:
        try:
            async with table.hold([tmp_path / "f"]):
                return "got it"
        except HeldByAncestor as refusal:
            return refusal.holder_name

    async with table.hold([tmp_path / "f"], call):
        with mark_thread_call(snapshot() if call.origin is None else call.origin):
            answer = await trio.to_thread.run_sync(trio.from_thread.run, again, abandon_on_cancel=True)
    assert answer == "write"


# -- the ticket's contract ------------------------------------------------------------------------------------------


async def test_acquire_is_a_checkpoint_except_for_no_paths(tmp_path: Path) -> None:
    """With a path it always is one; without, it never is, and asks nothing of the disk or of Trio's run."""
    table = FileLocks(ignores_case=lambda directory, status: pytest.fail("asked the disk"))
    ticket = table.ticket(())
    with trio.testing.assert_no_checkpoints():
        await ticket.acquire()
    assert ticket.held
    ticket.release()
    assert not ticket.held
    assert table.statistics() == IDLE
    with trio.testing.assert_checkpoints():
        async with FileLocks().hold([tmp_path / "f"]) as held:
            assert held.held
            assert held.paths == (str(tmp_path / "f"),)


async def test_acquire_in_a_cancelled_scope_takes_nothing(tmp_path: Path) -> None:
    """Cancelled before it began, it raises, and its place is free."""
    table = FileLocks()
    ticket = table.ticket([tmp_path / "f"])
    with trio.CancelScope() as scope:
        scope.cancel()
        await ticket.acquire()
    assert scope.cancelled_caught
    assert not ticket.held
    assert table.statistics() == IDLE


async def test_a_lock_granted_in_the_moment_of_the_cancellation_is_not_lost(tmp_path: Path) -> None:
    """Released and cancelled at once, in either order: the waiter holds it and gives it back, or never had it."""
    for cancel_first in (True, False):
        table = FileLocks()
        first, second = table.ticket([tmp_path / "f"]), table.ticket([tmp_path / "f"])
        third = table.ticket([tmp_path / "f"])
        await first.acquire()
        scope = trio.CancelScope()

        async def wait(ticket: Ticket, scope: trio.CancelScope) -> None:
            with scope:
                await ticket.acquire()
                ticket.release()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, second, scope)
            nursery.start_soon(wait, third, trio.CancelScope())
            await wait_all_tasks_blocked()
            for step in (scope.cancel, first.release) if cancel_first else (first.release, scope.cancel):
                step()
        assert table.statistics() == IDLE


async def test_release_can_be_called_again(tmp_path: Path) -> None:
    """The second time nothing happens, also when someone else holds the file by then."""
    table = FileLocks()
    first, second = table.ticket([tmp_path / "f"]), table.ticket([tmp_path / "f"])
    await first.acquire()
    first.release()
    await second.acquire()
    first.release()
    assert second.held
    second.release()
    second.release()
    assert table.statistics() == IDLE


async def test_a_ticket_is_good_for_one_acquire(tmp_path: Path) -> None:
    """Acquired, waiting, or released: the next acquire is an error and changes nothing."""
    table = FileLocks()
    for paths in ([], [tmp_path / "f"]):
        ticket = table.ticket(paths)
        await ticket.acquire()
        with pytest.raises(RuntimeError, match="take a new one for each acquire"):
            await ticket.acquire()
        assert ticket.held
        ticket.release()
        with pytest.raises(RuntimeError, match="take a new one for each acquire"):
            await ticket.acquire()
        unused = table.ticket(paths)
        unused.release()
        with pytest.raises(RuntimeError, match="take a new one for each acquire"):
            await unused.acquire()
    assert table.statistics() == IDLE


async def test_releasing_a_ticket_that_is_waited_for_ends_the_wait(tmp_path: Path) -> None:
    """Whoever waits with it is told, rather than waiting for ever."""
    table = FileLocks()
    async with table.hold([tmp_path / "f"]):
        ticket = table.ticket([tmp_path / "f"])

        async def wait() -> None:
            with pytest.raises(RuntimeError, match="released while it was being waited for"):
                await ticket.acquire()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            ticket.release()
    assert table.statistics() == IDLE


@pytest.mark.parametrize("bad", ["", "a\0b"])
async def test_unusable_paths_take_no_place(bad: str, tmp_path: Path) -> None:
    """One bad path among good ones: a ValueError, and nothing is left in the table."""
    table = FileLocks()
    with pytest.raises(ValueError, match="the path"):
        table.ticket([tmp_path / "f", bad])
    assert table.statistics() == IDLE


async def test_one_path_instead_of_a_list_is_refused(tmp_path: Path) -> None:
    """A string is a sequence of letters, which nobody wants to lock."""
    for path in ("file", b"file", tmp_path):
        with pytest.raises(TypeError, match="give a list of paths"):
            FileLocks().ticket(path)  # type: ignore[arg-type]  # the mistake in question


async def test_ctrl_c_cannot_tear_the_table(tmp_path: Path, nursery: trio.Nursery) -> None:
    """Tickets are taken, granted and given back under Trio's protection from KeyboardInterrupt."""
    protected: list[bool] = []

    def probe(directory: str, status: os.stat_result) -> bool:
        protected.append(trio.lowlevel.currently_ki_protected())
        return False

    writers = Writers(nursery)
    writers.table = FileLocks(ignores_case=probe)
    await writers.start("first", tmp_path / "f")
    await writers.start("second", tmp_path / "f")
    await writers.finish_all()
    assert len(protected) == 4  # for each once in `ticket`, once when it was granted: in `acquire`, in `release`
    assert all(protected)
    assert not trio.lowlevel.currently_ki_protected()


async def test_statistics_count_who_holds_and_who_waits(tmp_path: Path, nursery: trio.Nursery) -> None:
    """They are a record that does not change, and all zero when nobody is left."""
    writers = Writers(nursery)
    await writers.start("first", tmp_path / "f")
    await writers.start("second", tmp_path / "f")
    before = writers.table.statistics()
    assert (before.held, before.waiting) == (1, 1)
    assert before.keys > 0
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        before.held = 2  # type: ignore[misc]  # what must not work
    await writers.finish_all()
    assert before.held == 1


# -- runs and threads -----------------------------------------------------------------------------------------------


async def test_all_of_one_run_share_one_table() -> None:
    """Each task of a `trio.run` finds the same one."""
    found: list[FileLocks] = []

    async def child() -> None:
        found.append(current_file_locks())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(child)
        nursery.start_soon(child)
    assert found == [current_file_locks()] * 2


def test_a_table_serves_several_runs_one_after_the_other(tmp_path: Path) -> None:
    """Made outside of Trio, used in one run, used again in the next; tickets that the first forgot are dropped."""
    table = FileLocks()

    async def main() -> Ticket:
        forgotten = table.ticket([tmp_path / "f"])
        forgotten.release()
        async with table.hold([tmp_path / "f"]):
            return table.ticket([tmp_path / "f"])

    forgotten = trio.run(main)

    async def after() -> None:
        with pytest.raises(RuntimeError, match="take a new ticket"):
            await forgotten.acquire()
        with trio.fail_after(1):
            async with table.hold([tmp_path / "f"]):
                pass

    trio.run(after)
    trio.run(main)
    trio.run(main)
    assert table.statistics().held == 0


def test_each_run_has_a_table_of_its_own() -> None:
    """What one `trio.run` locks does not concern the next."""

    async def main() -> FileLocks:
        return current_file_locks()

    assert trio.run(main) is not trio.run(main)


@pytest.mark.real_time
async def test_a_table_is_refused_to_a_second_run_at_the_same_time(tmp_path: Path) -> None:
    """Two runs in two threads would tear it; the second is told so, and the first goes on."""
    table = FileLocks()

    async def elsewhere() -> None:
        with pytest.raises(RuntimeError, match="in use in another trio.run; make each its own FileLocks"):
            table.ticket([tmp_path / "g"])

    async with table.hold([tmp_path / "f"]) as ticket:
        await trio.to_thread.run_sync(trio.run, elsewhere)
        assert ticket.held
    assert table.statistics() == IDLE


@pytest.mark.real_time
async def test_release_in_another_thread_is_refused(tmp_path: Path) -> None:
    """It names what to call there, and the lock is still held."""
    table = FileLocks()
    async with table.hold([tmp_path / "f"]) as ticket:
        with pytest.raises(RuntimeError, match=r"from another thread use release_soon\(\)"):
            await trio.to_thread.run_sync(ticket.release)
        assert ticket.held


@pytest.mark.real_time
@pytest.mark.parametrize("way", ["release_soon", "run_sync_soon"])
async def test_t8_a_thread_left_behind_keeps_its_lock_until_it_ends(way: str, tmp_path: Path) -> None:
    """The task is gone, the thread writes on; when it gives the lock back, the next in line gets it."""
    table = FileLocks()
    go_on = threading.Event()
    token = trio.lowlevel.current_trio_token()
    ticket = table.ticket([tmp_path / "f"])

    def write() -> None:
        go_on.wait()
        if way == "release_soon":
            ticket.release_soon()
        else:
            token.run_sync_soon(ticket.release)

    await ticket.acquire()
    with trio.move_on_after(0.01):
        await trio.to_thread.run_sync(write, abandon_on_cancel=True)
    following = table.ticket([tmp_path / "f"])
    with trio.move_on_after(0.01) as scope:
        await table.ticket([tmp_path / "f"]).acquire()
    assert scope.cancelled_caught
    go_on.set()
    await following.acquire()
    assert not ticket.held
    following.release()
    assert table.statistics() == IDLE


@pytest.mark.parametrize("ends", ["before the next run", "while the next run waits"])
def test_t8_a_thread_left_behind_by_a_run_keeps_its_lock_into_the_next(ends: str, tmp_path: Path) -> None:
    """Where a table outlives its run, so does the lock, until the thread gives it back."""
    table = FileLocks()
    go_on = threading.Event()
    threads: list[threading.Thread] = []

    async def first() -> None:
        ticket = table.ticket([tmp_path / "f"])
        await ticket.acquire()

        def write() -> None:
            go_on.wait()
            ticket.release_soon()

        threads.append(threading.Thread(target=write))
        threads[0].start()

    async def second() -> None:
        with trio.fail_after(60):
            ticket = table.ticket([tmp_path / "f"])
            if ends == "while the next run waits":
                trio.lowlevel.current_trio_token().run_sync_soon(go_on.set)
                assert table.statistics().held == 1
            await ticket.acquire()
            ticket.release()

    trio.run(first)
    assert table.statistics().held == 1
    if ends == "before the next run":
        go_on.set()
        threads[0].join()
    trio.run(second)
    threads[0].join()
    assert table.statistics() == IDLE


def test_a_ticket_for_no_paths_needs_no_run() -> None:
    """It is ready anywhere, and giving it back from anywhere does nothing."""
    ticket = FileLocks().ticket(())
    ticket.release_soon()
    ticket.release()
    assert not ticket.held
