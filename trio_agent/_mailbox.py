"""A mailbox with one reader: what the tasks of a run use to tell its own task that something happened.

Here lives one Trio trick: a plain list and one wake-up, in place of a channel. Putting is sync and never
blocks; whoever needs to know that an item was handled waits for that by other means.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import trio

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Items in the order in which they were put. One task may wait at a time."""

    __slots__ = ("_reader", "items")

    def __init__(self) -> None:
        self.items: list[T] = []
        self._reader: trio.lowlevel.Task | None = None

    def put(self, item: T) -> None:
        self.items.append(item)
        self.wake()

    def wake(self) -> None:
        """Let the reader look around, whether there is an item or not."""
        reader, self._reader = self._reader, None
        if reader is not None:
            trio.lowlevel.reschedule(reader)

    def take(self) -> list[T]:
        """All items there are, oldest first."""
        items, self.items = self.items, []
        return items

    async def wait(self) -> None:
        """Wait for the next `put` or `wake`. A checkpoint; what was put before is not noticed: look first."""
        self._reader = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _abort(self, _raise_cancel: Any) -> trio.lowlevel.Abort:
        self._reader = None
        return trio.lowlevel.Abort.SUCCEEDED
