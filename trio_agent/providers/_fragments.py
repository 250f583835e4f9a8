"""Messages as a wire writes them, each written once.

Here lives the cache that makes a request cost what is new in it: messages are frozen, so what one became on
a wire holds as long as it lives. What it becomes is the wire's business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import ref

import msgspec

from .._messages import Message
from ._conversation import safe_json

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode


def encode_json(value: Any) -> bytes:
    """JSON in UTF-8, whatever the text in it: what no UTF-8 can say becomes U+FFFD. `msgspec.Raw` passes as it is."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(safe_json(value))


class Fragments(Generic[T]):
    """What each message became, kept by identity and for as long as the message lives.

    `variant` is everything else that the outcome depends on; a message asked for with another variant is
    written anew. Equality would not do: it compares whole conversations, and an image with an image.
    """

    __slots__ = ("_known", "_write")

    def __init__(self, write: Callable[[Any, Any], T]) -> None:
        self._write = write
        self._known: dict[int, tuple[ref[Any], Any, T]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, message: Message, variant: Any = None) -> T:
        key = id(message)
        entry = self._known.get(key)
        if entry is not None and entry[0]() is message and entry[1] == variant:
            return entry[2]
        written = self._write(message, variant)
        known = self._known

        def forget(_dead: ref[Any]) -> None:
            # Called before another message can have the id; and not for an entry that was written anew.
            known.pop(key, None)

        known[key] = (ref(message, forget), variant, written)
        return written
