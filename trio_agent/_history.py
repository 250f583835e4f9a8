"""The messages of a conversation, as a sequence that can be looked at but not changed.

Here lives the one growing list of messages and the frozen views of it. A view costs constant time
however long the history is: it shares the list and remembers its own length, and the list is only ever
appended to; what must shorten it (a retry, a compaction, a reset) starts a new list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast, overload

T = TypeVar("T")


class View(Sequence[T], Generic[T]):
    """The first so many items of a list that only grows. Equal to any sequence of equal items."""

    __slots__ = ("_items", "_length")

    def __init__(self, items: list[T], length: int) -> None:
        self._items = items
        self._length = length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple([self._items[i] for i in range(*index.indices(self._length))])
        at = index + self._length if index < 0 else index
        if not 0 <= at < self._length:
            raise IndexError("index out of range")
        return self._items[at]

    def __iter__(self) -> Iterator[T]:
        items = self._items
        for at in range(self._length):
            yield items[at]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, View | tuple | list):
            others = cast("Sequence[object]", other)
            return len(self) == len(others) and all(a == b for a, b in zip(self, others, strict=True))
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __add__(self, other: Iterable[T]) -> tuple[T, ...]:
        return (*self, *other)

    def __repr__(self) -> str:
        return repr(tuple(self))


EMPTY: View[Any] = View([], 0)


class History(Generic[T]):
    """An append-only list with frozen views. `epoch` counts how often it was not merely appended to."""

    __slots__ = ("_items", "epoch")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items = list(items)
        self.epoch = 0

    def __len__(self) -> int:
        return len(self._items)

    def append(self, item: T) -> None:
        self._items.append(item)

    def replace(self, items: Iterable[T]) -> None:
        """Start a new list. Views of the old one keep showing it."""
        self._items = list(items)
        self.epoch += 1

    def view(self) -> View[T]:
        return View(self._items, len(self._items))

    def since(self, at: int) -> list[T]:
        """The items from an index on. Costs time in proportion to them alone."""
        return self._items[at:]
