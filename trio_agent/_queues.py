"""Steering and follow-up: what waits to be said, and how much of it enters at a boundary.

Here lives the order within one queue. When a queue is looked at is the run's business; a message leaves
its queue at its `message_start` (L6), so that nothing is ever taken and not said (Q2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias, cast, get_args

import attrs

from ._messages import AssistantMessage, CustomMessage, Image, Message, Text, ToolResultMessage, UserMessage

QueueMode: TypeAlias = Literal["one_at_a_time", "all"]
_MODES: Final = get_args(QueueMode)


@attrs.frozen(eq=False)
class Queued:
    """A message in a queue. Two equal texts are two messages: identity counts."""

    id: str
    message: Message


class Queue:
    """Messages in the order in which they were queued."""

    __slots__ = ("items", "mode")

    def __init__(self, mode: QueueMode) -> None:
        if mode not in _MODES:
            raise ValueError(f"{mode!r} is not a queue mode; use 'one_at_a_time' or 'all'")
        self.mode = mode
        self.items: list[Queued] = []

    def messages(self) -> tuple[Message, ...]:
        return tuple([item.message for item in self.items])

    def next_batch(self) -> list[Queued]:
        """What enters at this boundary (Q3). It stays in the queue until it is said."""
        return self.items[:1] if self.mode == "one_at_a_time" else self.items[:]

    def remove(self, item: Queued) -> bool:
        if item not in self.items:
            return False
        self.items.remove(item)
        return True

    def withdraw(self, id: str) -> bool:
        for item in self.items:
            if item.id == id:
                return self.remove(item)
        return False

    def clear(self) -> tuple[Message, ...]:
        messages = self.messages()
        self.items = []
        return messages


def as_message(value: object, *, caller: str) -> Message:
    """One message of a person or the application. Raises `TypeError` for anything else, `ValueError` if empty."""
    if isinstance(value, str):
        if not value.strip():
            raise ValueError(f"{caller}() was given a blank text; give it something to say")
        return UserMessage(value)
    if isinstance(value, UserMessage | CustomMessage):
        return value
    if isinstance(value, AssistantMessage | ToolResultMessage):
        raise TypeError(
            f"{caller}() was given a message of role {value.role}; only user and custom messages can be said to a "
            "model, others belong into Agent(messages=...)"
        )
    raise TypeError(f"{caller}() takes a str, a UserMessage or a CustomMessage, not {type(value).__name__}")


def as_messages(value: object, images: Sequence[object]) -> tuple[Message, ...]:
    """The messages of a prompt (A8). Raises `TypeError` or `ValueError`, before any event."""
    if any(not isinstance(image, Image) for image in images):
        raise TypeError("prompt(images=...) takes Image objects: Image(data=..., media_type='image/png')")
    pictures = [image for image in images if isinstance(image, Image)]
    if isinstance(value, str) and pictures:
        return (UserMessage([*([Text(value)] if value.strip() else []), *pictures]),)
    if isinstance(value, list | tuple):
        items = cast("list[object] | tuple[object, ...]", value)
        messages = tuple([as_message(item, caller="prompt") for item in items])
        if not messages:
            raise ValueError("prompt([]) has nothing to say; give it a message, or call resume()")
    else:
        messages = (as_message(value, caller="prompt"),)
    return _with_images(messages, pictures)


def _with_images(messages: tuple[Message, ...], pictures: Sequence[Image]) -> tuple[Message, ...]:
    if not pictures:
        return messages
    last = messages[-1]
    if not isinstance(last, UserMessage):
        raise TypeError("prompt(images=...) needs a text or a user message to put the images into")
    return (*messages[:-1], attrs.evolve(last, content=(*last.content, *pictures)))
