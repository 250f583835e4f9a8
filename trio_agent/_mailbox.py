"""A mailbox with one reader: what the tasks of a run use to tell its own task that something happened.

Here lives one Trio trick: one wake-up and, where there are items, a plain list, in place of a channel. Putting is
sync and never blocks; whoever needs to know that an item was handled waits for that by other means.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import trio

from ._interrupts import protected

T = TypeVar("T")


class Bell:
    """Wakes one task, which may wait again and again."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: trio.lowlevel.Task | None = None

    def wake(self) -> None:
        """Let whoever waits look around."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            trio.lowlevel.reschedule(waiting)

    # A Ctrl-C between the two lines would leave a task that waits for nothing to be woken later.
    @protected
    async def wait(self) -> None:
        """Wait for the next `wake`. A checkpoint; what came before is not noticed: look first."""
        self._waiting = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _abort(self, _raise_cancel: Any) -> trio.lowlevel.Abort:
        self._waiting = None
        return trio.lowlevel.Abort.SUCCEEDED


class Mailbox(Bell, Generic[T]):
    """Items in the order in which they were put. One task may wait at a time."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        super().__init__()
        self.items: list[T] = []

    def put(self, item: T) -> None:
        self.items.append(item)
        self.wake()

    def take(self) -> list[T]:
        """All items there are, oldest first."""
        items, self.items = self.items, []
        return items
