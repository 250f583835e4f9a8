"""File locks: two writers of one file never overlap, and go in the order of their tickets (T8, B035)."""

from __future__ import annotations

import os
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from trio_agent._ancestry import Origin
from trio_agent._file_locks import FileLocks, FileLockStatistics, Ticket

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


async def test_t8_writers_of_one_file_go_one_by_one_in_ticket_order(tmp_path: Path) -> None:
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


async def test_t8_other_letter_case_excludes_where_the_file_system_ignores_case(
    tmp_path: Path,
) -> None:
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
    async with table.hold(
        [path, path, str(path), tmp_path / "link", tmp_path / "hard", f"{tmp_path}/./file"]
    ) as ticket:
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


async def test_t8_who_came_first_is_looked_at_first(tmp_path: Path, nursery: trio.Nursery) -> None:
    """Two files have become one while both were waited for: the earlier ticket gets it, whatever its path was."""
    for at in range(8):
        writers = Writers(nursery)
        a, b = tmp_path / f"a{at}", tmp_path / f"b{at}"
        a.write_text("x")
        b.write_text("x")
        await writers.start("both", a, b)
        await writers.start("a", a)
        os.link(b, tmp_path / "temporary")
        (tmp_path / "temporary").replace(a)
        await writers.start("b", b)
        await writers.finish("both")
        assert writers.log == ["both has it", "both is done", "a has it"]
        await writers.finish_all()


async def test_t8_two_holders_whose_files_have_become_one_keep_what_they_hold(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    """What is held stays held, even if the disk says otherwise by now, and a third waits for both."""
    writers = Writers(nursery)
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_text("x")
    await writers.start("a", a)
    await writers.start("b", b)
    os.link(a, b)
    os.link(a, tmp_path / "c")
    await writers.start("impatient", tmp_path / "c")
    await writers.cancel("impatient")
    await writers.start("c", tmp_path / "c")
    assert writers.log == ["a has it", "b has it", "impatient is done"]
    await writers.finish("a")
    await writers.finish("b")
    assert writers.log[-1] == "c has it"
    await writers.finish_all()


async def test_t8_two_holders_of_one_file_give_back_what_each_had(tmp_path: Path, nursery: trio.Nursery) -> None:
    """One of them got it first, and with the last of them it is free."""
    writers = Writers(nursery)
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_text("x")
    await writers.start("a", a)
    await writers.start("b", b)
    os.link(a, b)
    await writers.start("impatient", a)
    await writers.cancel("impatient")
    await writers.finish_all()


async def test_t8_who_cannot_go_on_yet_is_kept_up_to_date(tmp_path: Path, nursery: trio.Nursery) -> None:
    """A ticket that still waits for another file is not overtaken at the one that its path has come to mean."""
    writers = Writers(nursery)
    link, c = tmp_path / "link", tmp_path / "c"
    link.symlink_to("old")
    await writers.start("c", c)
    await writers.start("first", link, tmp_path / "young")
    await writers.start("link and c", link, c)
    retarget(link, "young")
    await writers.start("young", tmp_path / "young")
    await writers.finish("first")
    assert writers.log == ["c has it", "first has it", "first is done"]
    await writers.finish("c")
    assert writers.log[-1] == "link and c has it"
    await writers.finish_all()


async def test_t8_a_path_that_changes_between_ticket_and_turn_is_checked_without_waiting(
    tmp_path: Path,
) -> None:
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
    assert len(protected) == 5  # twice in `ticket`, twice in `acquire`, once in `release` for who is next
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
