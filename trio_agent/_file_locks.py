"""One writer per file, within one `trio.run`.

Here lives what is done with a claim to files: taking a ticket, waiting for it, giving it back, from a thread too, and
the one table of a run. The order among claims is in `_file_line.py`. What the locks are for is not known here.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from itertools import count

import attrs
import trio
from trio.lowlevel import RunVar, TrioToken

from ._file_keys import FileKeys, IgnoresCase, StrPath, absolute_path
from ._file_line import Claim, HeldByAncestor, Holder, Line
from ._interrupts import protected

__all__ = ["FileLockStatistics", "FileLocks", "HeldByAncestor", "Holder", "Ticket", "current_file_locks"]


@attrs.frozen
class FileLockStatistics:
    """`held` and `waiting` count tickets that name files, `keys` what they lock or want to lock."""

    held: int
    waiting: int
    keys: int


class Ticket:
    """A place in line for some files, from `FileLocks.ticket`. Good for one `acquire` and one `release`."""

    __slots__ = ("_claim", "_is_over", "_is_used", "_table", "paths")

    def __init__(self, paths: tuple[str, ...], table: _Table, claim: Claim | None) -> None:
        self.paths = paths
        self._table = table
        self._claim = claim
        self._is_used = False
        self._is_over = False

    @property
    def held(self) -> bool:
        return self._is_used and not self._is_over if self._claim is None else self._claim.held

    @protected
    async def acquire(self) -> None:
        """Wait until every file is this ticket's own: all of them at once, or none.

        A checkpoint, except for a ticket without paths, which returns at once. If it raises, cancelled or not, the
        ticket has left the line and holds nothing.

        Raises:
            HeldByAncestor: a file is locked by a call that waits for this task, or becomes so during the wait
            RuntimeError: the ticket has been acquired or released before
        """
        if self._is_used or self._is_over:
            raise RuntimeError("this ticket has been used already; take a new one for each acquire()")
        self._is_used = True
        if self._claim is None:
            return
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
            self._table.arrive(self._claim)
            if self._claim.held:
                await trio.lowlevel.cancel_shielded_checkpoint()
            elif self._claim.refusal is None:
                await self._claim.sleep()
            if self._claim.refusal is not None:
                raise self._claim.refusal
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give up the files, or the place in line. Does nothing the second time.

        Only in the Trio thread; elsewhere use `release_soon`.
        """
        if self._claim is not None and not self._is_over:
            self._table.leave(self._claim)
        self._is_over = True

    def release_soon(self) -> None:
        """Release from any thread, also from one that was left behind by a `trio.run` that has ended."""
        if self._claim is not None:
            self._table.leave_soon(self.release)


class FileLocks:
    """Locks on files, by what the paths mean and not by how they are spelled.

    Tickets that have a file in common are granted in the order in which they were taken; others do not wait for
    each other. All files of a ticket are granted at once, so no two tickets wait for each other. A file that was
    created, replaced or linked elsewhere in the meantime is noticed when the ticket's turn comes; the ticket goes on
    with what its paths mean now, at its old place in line. What is held stays held.

    The one exception from the order: a task inside a call that holds locks does not queue behind a ticket that itself
    waits for that call.

    Made anywhere, used by one `trio.run` at a time. Excludes nobody in another process or another `trio.run`, and
    nobody who writes without a lock.
    """

    def __init__(self, *, ignores_case: IgnoresCase | None = None) -> None:
        self._table = _Table(Line(FileKeys(ignores_case)))

    def ticket(self, paths: Iterable[StrPath], holder: Holder | None = None) -> Ticket:
        """Take the last place in line, for all of `paths` (relative to the working directory of now).

        Whoever takes a ticket must acquire it without waiting for what queues behind it, or release it. A ticket
        without a holder is never taken for one that waits for somebody's task.

        Raises:
            ValueError: a path can name no file; no place has been taken
        """
        if isinstance(paths, str | bytes | os.PathLike):
            raise TypeError(f"paths is the one path {paths!r}; give a list of paths")
        spelled = tuple([os.fsdecode(path) for path in paths])
        return Ticket(spelled, self._table, self._table.claim(spelled, holder) if spelled else None)

    @asynccontextmanager
    @protected
    async def hold(self, paths: Iterable[StrPath], holder: Holder | None = None) -> AsyncGenerator[Ticket]:
        """Take a ticket and acquire it, for the length of the block.

        Raises:
            RuntimeError: the holder has another ticket already; taken one by one, locks could wait for each other
        """
        for other in (*self._table.line.held, *self._table.line.waiting):
            if holder is not None and other.holder is holder:
                path = next(iter(other.paths.values()))
                raise RuntimeError(f"{holder.name!r} locks {path!r} already; lock all its files together, in one call")
        ticket = self.ticket(paths, holder)
        await ticket.acquire()
        try:
            yield ticket
        finally:
            ticket.release()

    def statistics(self) -> FileLockStatistics:
        line = self._table.line
        return FileLockStatistics(held=len(line.held), waiting=len(line.waiting), keys=len(line.keys))


class _Table:
    """The line, as used by one `trio.run` after the other, with what threads give back from outside."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self._places = count()
        self._run: TrioToken | None = None
        self._given_back: deque[Callable[[], None]] = deque()

    # Ctrl-C inside one of these would leave the line half changed.

    @protected
    def claim(self, paths: tuple[str, ...], holder: Holder | None) -> Claim:
        self._enter_run()
        claim = Claim(next(self._places), {absolute_path(path): path for path in paths}, holder)
        self.line.join(claim)
        return claim

    @protected
    def arrive(self, claim: Claim) -> None:
        self._enter_run()
        self.line.arrive(claim, trio.lowlevel.current_task())

    @protected
    def leave(self, claim: Claim) -> None:
        self._enter_run()
        self.line.leave(claim)
        if claim.task is not None:
            claim.refusal = RuntimeError("this ticket was released while it was being waited for")
            claim.wake()

    def leave_soon(self, release: Callable[[], None]) -> None:
        self._given_back.append(release)
        assert self._run is not None  # since the claim was made
        # A next run looks there after its token has come here, so one of the two will notice.
        with suppress(trio.RunFinishedError):
            self._run.run_sync_soon(self._take_back)

    @protected
    def _take_back(self) -> None:
        while self._given_back:
            self._given_back.popleft()()

    def _enter_run(self) -> None:
        try:
            run = trio.lowlevel.current_trio_token()
        except RuntimeError:
            raise RuntimeError("file locks belong to the Trio thread; from another thread use release_soon()") from None
        if run is self._run:
            return
        if self._run is not None and _is_running(self._run):
            raise RuntimeError("these file locks are in use in another trio.run; make each its own FileLocks()")
        self._run = run
        for claim in tuple(self.line.waiting):
            claim.abandon()
            self.line.leave(claim)
        self._take_back()


def _is_running(run: TrioToken) -> bool:
    try:
        run.run_sync_soon(_do_nothing, idempotent=True)
    except trio.RunFinishedError:
        return False
    return True


def _do_nothing() -> None:
    pass


_of_this_run: RunVar[FileLocks] = RunVar("trio_agent.file_locks")


def current_file_locks() -> FileLocks:
    """The file locks that everything in this `trio.run` shares, unless told otherwise."""
    try:
        return _of_this_run.get()
    except LookupError:
        locks = FileLocks()
        _of_this_run.set(locks)
        return locks
