"""File locks, runs and threads: whose table it is, and who may give a lock back from where (T8, A4)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import trio

from trio_agent._file_locks import FileLocks, FileLockStatistics, Ticket, current_file_locks

IDLE = FileLockStatistics(held=0, waiting=0, keys=0)


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
        with pytest.raises(RuntimeError, match=r"in use in another trio\.run; make each its own FileLocks"):
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
