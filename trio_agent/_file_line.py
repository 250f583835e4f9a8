"""The line of those who want to write: who came before whom, who may go on, who would wait for ever.

Here lives the order among claims to files and the way out of it for tasks inside a call that holds some. Which keys
a path has is in `_file_keys.py`; taking, awaiting and giving back a claim is in `_file_locks.py`.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from operator import attrgetter
from typing import Protocol

import attrs
import trio
from trio.lowlevel import Abort, Task

from ._ancestry import Origin, enclosing, waits_for
from ._file_keys import FileKeys, Key


class Holder(Protocol):
    """Who wants to write: one object for each call, whose `origin` is set by the time that its ticket is acquired."""

    @property
    def name(self) -> str: ...
    @property
    def origin(self) -> Origin | None: ...


class HeldByAncestor(RuntimeError):  # noqa: N818 - the name says what is the matter, as trio's `WouldBlock` does
    """The file is locked by a call that waits for this one: waiting for the lock would never end (T8)."""

    def __init__(self, path: str, holder_name: str, awaited_name: str) -> None:
        link = "" if awaited_name == holder_name else f", which waits for {awaited_name!r}"
        super().__init__(
            f"{path!r} is locked by {holder_name!r}{link}, which waits for this call to end, so the lock would never "
            "come free; write another file here, or leave this one to the call that has locked it"
        )
        self.path = path
        self.holder_name = holder_name
        self.awaited_name = awaited_name


@attrs.define(eq=False)
class Claim:
    """What one ticket wants, whether it has it, and the task that waits for it.

    `paths` gives for each absolute path how the caller spelled it. Without a `task` the claim keeps its place but
    is not granted.
    """

    place: int
    paths: Mapping[str, str]
    holder: Holder | None
    keys: Mapping[Key, str] = attrs.field(factory=dict[Key, str])
    held: bool = False
    task: Task | None = None
    refusal: RuntimeError | None = None
    _asleep: bool = False

    @property
    def origin(self) -> Origin | None:
        return None if self.holder is None else self.holder.origin

    @property
    def name(self) -> str:
        return "another task" if self.holder is None else self.holder.name

    async def sleep(self) -> None:
        """Wait for `wake`. If cancelled, the claim must still be taken out of the line, or given back."""

        def stop(_: object) -> Abort:
            self._asleep = False
            return Abort.SUCCEEDED

        self._asleep = True
        await trio.lowlevel.wait_task_rescheduled(stop)

    def wake(self) -> None:
        if self._asleep and self.task is not None:
            self._asleep = False
            trio.lowlevel.reschedule(self.task)

    def abandon(self) -> None:
        """Never wake the task, and let nobody acquire this later."""
        self._asleep = False
        self.refusal = RuntimeError("the trio.run in which this ticket was taken has ended; take a new ticket")


class Line:
    """Everybody's claims, in line or granted."""

    def __init__(self, file_keys: FileKeys) -> None:
        self._file_keys = file_keys
        # Invariant: a claim in line is in the line of each of its keys, a granted one holds each of its keys.
        # Lines are in the order of places, and none is empty.
        self._lines: dict[Key, list[Claim]] = {}
        self._holders: dict[Key, Claim] = {}
        self._waiting: dict[Claim, None] = {}
        self._held: dict[Claim, None] = {}

    @property
    def waiting(self) -> Collection[Claim]:
        return self._waiting.keys()

    @property
    def held(self) -> Collection[Claim]:
        return self._held.keys()

    @property
    def keys(self) -> Collection[Key]:
        return self._lines.keys() | self._holders.keys()

    def join(self, claim: Claim) -> None:
        self._queue(claim, self._file_keys.of(claim.paths).by_path)
        self._waiting[claim] = None

    def arrive(self, claim: Claim, task: Task) -> None:
        """`task` waits for the claim from now on: grant or refuse it, if that can be said already."""
        claim.task = task
        # Others, too, may have come to wait for ever, or to be overtaken, by this one's waiting.
        self._advance(self._review(claim))

    def leave(self, claim: Claim) -> None:
        """Take the claim out, wherever it is, and let others go on. Does nothing the second time."""
        self._take_out(claim)
        self._advance(claim.keys)

    # Whose turn it is

    def _advance(self, keys: Iterable[Key]) -> None:
        """Let everyone go on, or be refused, for whom that is due now that the lines of these keys have moved."""
        moved: set[Key] = set(keys)
        while True:
            while firsts := {key: line[0] for key in moved if (line := self._lines.get(key))}:
                # In the order of places, not of keys: the earlier one's path may have come to mean the later one's file
                # (`test_t8_who_came_first_is_looked_at_first`). Whoever is not first in a line waits for its first.
                claim = min(firsts.values(), key=attrgetter("place"))
                moved = {key for key, first in firsts.items() if first is not claim}
                moved.update(self._review(claim))
            moved.clear()
            for claim in tuple(self._waiting):  # but for those who may overtake
                if self._ancestors(claim):
                    moved.update(self._review(claim))
            if not moved:
                return

    def _review(self, claim: Claim) -> Set[Key]:
        """Bring this claim up to date, grant or refuse it if that is due. Gives the keys whose lines have moved."""
        if claim not in self._waiting:
            return frozenset()
        moved = self._look_again(claim)
        obstacle = self._obstacle(claim)
        if isinstance(obstacle, Claim) or claim.task is None:
            return moved
        self._take_out(claim)
        if obstacle is None:
            self._grant(claim)
        claim.refusal = obstacle
        claim.wake()
        return moved | claim.keys.keys()

    def _look_again(self, claim: Claim) -> Set[Key]:
        """Ask the disk what the paths mean now, and put the claim where that belongs. Gives the keys that moved."""
        fresh = self._file_keys.of(claim.paths)
        if fresh.linked:
            # A holder may have made its file since, or put another in its place, and it is that one that is linked.
            for holder in self._held:
                self._extend(holder)
        if fresh.by_path.keys() == claim.keys.keys():
            return frozenset()
        moved = claim.keys.keys() | fresh.by_path.keys()
        self._unqueue(claim)
        self._queue(claim, fresh.by_path)
        return moved

    def _obstacle(self, claim: Claim) -> Claim | HeldByAncestor | None:
        if next(self._ahead(claim), None) is None:
            return None
        ancestors = self._ancestors(claim)
        obstacle: Claim | None = None
        for key, other in self._ahead(claim):
            awaited = self._leads_to(other, ancestors, claim) if ancestors else None
            if awaited is None:
                obstacle = other
            elif other.held:
                return HeldByAncestor(claim.paths[claim.keys[key]], other.name, awaited.name)
            # Else the other one waits, and for what waits for us: behind it we would wait for ever.
        return obstacle

    def _ahead(self, claim: Claim) -> Iterator[tuple[Key, Claim]]:
        """Who goes before this claim, by the order alone."""
        for key in claim.keys:
            if key in self._holders:
                yield key, self._holders[key]
            line = self._lines[key]
            for other in line[: line.index(claim)]:
                yield key, other

    def _ancestors(self, claim: Claim) -> Collection[Claim]:
        """The holders that wait for the task of this claim."""
        origins = [origin for holder in self._held if (origin := holder.origin) is not None]
        if claim.task is None or not origins:
            return ()
        waiting_for_it = set(enclosing(claim.task, origins))
        return [holder for holder in self._held if holder.origin in waiting_for_it]

    def _leads_to(self, start: Claim, ends: Collection[Claim], without: Claim) -> Claim | None:
        """One of `ends` that must end before `start` can.

        Places in line count only if `start` itself is in line. From a holder they lead nowhere, since whoever waits
        inside it overtakes.
        """
        seen = {without}
        ahead = [start]
        while ahead:
            claim = ahead.pop()
            if claim in ends:
                return claim
            if claim not in seen:
                seen.add(claim)
                ahead += self._awaited_by(claim, places_count=not start.held)
        return None

    def _awaited_by(self, claim: Claim, *, places_count: bool) -> list[Claim]:
        if not claim.held:
            return [other for _, other in self._ahead(claim) if places_count or other.held]
        origin = claim.origin
        if origin is None:
            return []
        return [other for other in self._waiting if other.task is not None and waits_for(origin, other.task)]

    # The books

    def _queue(self, claim: Claim, keys: Mapping[Key, str]) -> None:
        claim.keys = keys
        for key in keys:
            insort(self._lines.setdefault(key, []), claim, key=attrgetter("place"))

    def _unqueue(self, claim: Claim) -> None:
        for key in claim.keys:
            self._lines[key].remove(claim)
            if not self._lines[key]:
                del self._lines[key]

    def _grant(self, claim: Claim) -> None:
        claim.held = True
        self._held[claim] = None
        self._holders.update(dict.fromkeys(claim.keys, claim))

    def _extend(self, holder: Claim) -> None:
        """Give a holder what its paths have come to mean, unless someone else has it."""
        fresh = self._file_keys.of(holder.paths).by_path
        added = {key: path for key, path in fresh.items() if key not in self._holders}
        holder.keys = {**holder.keys, **added}
        self._holders.update(dict.fromkeys(added, holder))

    def _take_out(self, claim: Claim) -> None:
        if claim in self._waiting:
            del self._waiting[claim]
            self._unqueue(claim)
        elif claim in self._held:
            del self._held[claim]
            claim.held = False
            for key in claim.keys:
                del self._holders[key]
