"""File locks of calls inside calls: nobody waits for a call that waits for them (T8)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from trio_agent._ancestry import Origin, mark_thread_call, snapshot
from trio_agent._file_locks import FileLocks, FileLockStatistics, HeldByAncestor, Ticket

IDLE = FileLockStatistics(held=0, waiting=0, keys=0)


@attrs.define(eq=False)
class Call:
    """A holder of locks, as the kernel's record of a tool call is one."""

    name: str
    origin: Origin | None = None


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
        with pytest.raises(RuntimeError, match=r"'write' locks '.*' already; lock all its files together"):
            async with table.hold([tmp_path / "h"], call):
                pytest.fail("was let in")
        async with table.hold([tmp_path / "h"], other), table.hold([tmp_path / "i"]), table.hold([tmp_path / "j"]):
            pass
        first.release()
    async with table.hold([tmp_path / "h"], call):
        pass


async def test_t8_a_lock_that_an_ancestor_gets_while_one_is_queued_is_an_error(
    tmp_path: Path,
) -> None:
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


async def test_t8_a_task_inside_a_call_does_not_queue_behind_what_waits_for_that_call(
    tmp_path: Path,
) -> None:
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


async def test_t8_a_task_inside_a_call_queues_behind_what_does_not_wait_for_that_call(
    tmp_path: Path,
) -> None:
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


async def test_t8_an_inner_call_that_waits_already_overtakes_when_its_ancestor_comes_to_hold(
    tmp_path: Path,
) -> None:
    """The way past opens with the grant that would have made the wait endless."""
    calls = Calls()
    x, y = tmp_path / "x", tmp_path / "y"
    outer, both = Call("outer"), Call("both")
    stranger = calls.table.ticket([x])
    outer_ticket, both_ticket = calls.table.ticket([x], outer), calls.table.ticket([x, y], both)

    async def outer_call() -> None:
        outer.origin = snapshot()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(calls.call, "inner", [y])
            await outer_ticket.acquire()
            calls.log.append("outer")
        outer_ticket.release()

    await stranger.acquire()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(calls.begun, "both", both_ticket, both)
        nursery.start_soon(outer_call)
        await trio.sleep(1)
        assert calls.log == []
        stranger.release()
    assert sorted(calls.log[:2]) == ["inner", "outer"]
    assert calls.log[2:] == ["both"]
    assert calls.table.statistics() == IDLE


async def test_t8_two_calls_whose_insides_want_each_others_locks_do_not_deadlock(
    tmp_path: Path,
) -> None:
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


async def test_t8_a_detour_over_oneself_is_no_reason_to_overtake(tmp_path: Path) -> None:
    """w may pass "ax", which waits for its ancestor, but not "ck": that x waits behind w for now concerns only x."""
    calls = Calls()
    a, k, q, w, x, y = (tmp_path / name for name in "akqwxy")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(calls.call, "stranger", [q], lambda: trio.sleep(20))
        nursery.start_soon(calls.call, "a", [a], calls.inside(("w", [w, x, y]), after=5))
        nursery.start_soon(calls.call, "k", [k], calls.inside(("x", [w, q]), after=7))
        await trio.sleep(1)
        nursery.start_soon(calls.call, "ax", [a, x])
        await trio.sleep(1)
        nursery.start_soon(calls.call, "ck", [k, y])
    assert calls.log[3:] == ["x", "ck", "w", "ax"]
    assert calls.refused == []


async def test_t8_a_ticket_that_nobody_waits_for_yet_is_inside_nothing(tmp_path: Path) -> None:
    """Whoever looks at the line while it is so must not take the ticket for his own."""
    calls = Calls()
    x, y, z = (tmp_path / name for name in "xyz")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(calls.call, "left", [x], calls.inside(("left inner", [y]), after=1))
        nursery.start_soon(calls.call, "right", [y], calls.inside(("right inner", [z]), after=5))
        await trio.sleep(2)
        unused = calls.table.ticket([x])
        await trio.sleep(10)
        unused.release()
    assert calls.refused == []
    assert calls.log[2:] == ["right inner", "left inner"]


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


async def test_t8_an_inner_call_waits_for_a_holder_of_no_call(tmp_path: Path) -> None:
    """Who locks without being a call waits for nobody's task: the inner call gets the file when that one is done."""
    calls = Calls()

    async def stranger() -> None:
        async with calls.table.hold([tmp_path / "g"]):
            await trio.sleep(5)
            calls.log.append("stranger")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stranger)
        await trio.sleep(1)
        await calls.call("outer", [tmp_path / "f"], calls.inside(("inner", [tmp_path / "g"])))
    assert calls.log == ["outer", "stranger", "inner"]
    assert calls.refused == []


async def test_t8_an_inner_call_waits_in_line_behind_a_holder_of_no_call(tmp_path: Path) -> None:
    """Who is next in line waits for a stranger, who waits for nobody: so the inner call can wait for both."""
    calls = Calls()
    f, g, h = (tmp_path / name for name in "fgh")

    async def stranger() -> None:
        async with calls.table.hold([g]):
            await trio.sleep(5)
            calls.log.append("stranger")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stranger)
        await trio.sleep(1)
        nursery.start_soon(calls.call, "first", [g, h])
        await trio.sleep(1)
        await calls.call("outer", [f], calls.inside(("inner", [h])))
    assert calls.log == ["outer", "stranger", "first", "inner"]
    assert calls.refused == []


@pytest.mark.real_time
async def test_t8_a_call_from_the_holders_thread_is_an_error(tmp_path: Path) -> None:
    """A thread that may be left behind would wait for its own call's lock in a system task."""
    table = FileLocks()
    call = Call("write", snapshot())

    async def again() -> str:
        try:
            async with table.hold([tmp_path / "f"]):
                pytest.fail("was let in")
        except HeldByAncestor as refusal:
            return refusal.holder_name

    async with table.hold([tmp_path / "f"], call):
        with mark_thread_call(snapshot() if call.origin is None else call.origin):
            answer = await trio.to_thread.run_sync(trio.from_thread.run, again, abandon_on_cancel=True)
    assert answer == "write"
