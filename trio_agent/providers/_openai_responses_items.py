"""The output items of a Responses answer, from whatever a server says of them.

Here lives one item's life: opened, told bit by bit, completed. Servers leave out deltas, starts or ends; what a later,
more complete event says of an item is told then, as far as it is new. Nothing in here waits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from .._errors import ProviderError
from ._blocks import Block, Blocks
from ._fragments import encode_json
from ._json_values import objects_of, text_of


class Item(ABC):
    """An item of the output. A block of the message comes to be with the first that there is to tell."""

    kind = ""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._block: Block | None = None
        self._told: list[str] = []
        self.ended = False

    @property
    def told(self) -> str:
        return "".join(self._told)

    def more(self, text: str) -> None:
        if text and not self.ended:
            self._told.append(text)
            self._tell(text)

    def fill(self, text: str) -> None:
        """The whole text, as an event at the end gives it: what was not told of it yet is told."""
        told = self.told
        if len(text) > len(told) and text.startswith(told):
            self.more(text[len(told) :])

    def end(self) -> None:
        if not self.ended and self._block is not None:
            self._block.end()
        self.ended = True

    def complete(self, item: dict[str, Any]) -> None:
        """The item as it is at its end."""
        if not self.ended:
            self._take_rest(item)
            self.end()

    @abstractmethod
    def _take_rest(self, item: dict[str, Any]) -> None:
        """Tell what is new in the item as it is at its end."""

    @abstractmethod
    def _tell(self, text: str) -> None: ...


class SpokenItem(Item):
    """An item that is a block from its first text on."""

    def _tell(self, text: str) -> None:
        if self._block is None:
            self._block = self._open()
        self._block.more(text)

    @abstractmethod
    def _open(self) -> Block: ...

    def _sign(self, value: dict[str, Any]) -> None:
        if self._block is None:
            self._block = self._open()
        self._block.signature = encode_json(value).decode()


class MessageItem(SpokenItem):
    """What the model says. Its phase, where it has one, goes back with it."""

    kind = "message"

    def _take_rest(self, item: dict[str, Any]) -> None:
        self.fill("".join([text_of(part.get("text")) for part in objects_of(item.get("content"))]))
        if self._told and (phase := text_of(item.get("phase"))):
            self._sign({"phase": phase})

    def _open(self) -> Block:
        return self._blocks.text()


class ReasoningItem(SpokenItem):
    """The model's reasoning: summaries, the text itself, or nothing to see. What must go back is its signature."""

    kind = "reasoning"

    def __init__(self, blocks: Blocks) -> None:
        super().__init__(blocks)
        self._part: Any = None

    def think(self, part: Any, text: str) -> None:
        """More of one of its parts. Parts are paragraphs."""
        if text and self._told and part != self._part:
            text = f"\n\n{text}"
        self._part = part
        self.more(text)

    def _take_rest(self, item: dict[str, Any]) -> None:
        summary = [text_of(part.get("text")) for part in objects_of(item.get("summary"))]
        content = [text_of(part.get("text")) for part in objects_of(item.get("content"))]
        if not self._told:
            self.more("\n\n".join(filter(None, summary or content)))
        if text_of(item.get("encrypted_content")) or any(content):
            kept = ("id", "summary", "content", "encrypted_content")
            self._sign({"type": "reasoning", **{key: item[key] for key in kept if item.get(key)}})

    def _open(self) -> Block:
        return self._blocks.thinking()


class CallItem(Item):
    """A function call. It is told of when its name is known; until then its arguments wait."""

    kind = "function_call"

    def __init__(self, blocks: Blocks, item: dict[str, Any]) -> None:
        super().__init__(blocks)
        self.call_id = ""
        self._name = ""
        self._given = ""
        self._waiting = 0
        self._note(item)

    @property
    def has_begun(self) -> bool:
        return self._block is not None

    def _take_rest(self, item: dict[str, Any]) -> None:
        self._note(item)
        if not self._told:
            self.more(self._given)
        else:
            self.fill(self._given)

    def end(self) -> None:
        if not self.ended and not self._told:
            self.more(self._given)
        super().end()

    def _note(self, item: dict[str, Any]) -> None:
        self.call_id = self.call_id or text_of(item.get("call_id"))
        self._given = text_of(item.get("arguments")) or self._given
        name = text_of(item.get("name"))
        if name and not self._name:
            self._name = name
            self._block = self._blocks.call(self.call_id, name)
            if self._told:
                self._block.more(self.told)

    def _tell(self, text: str) -> None:
        if self._block is not None:
            self._block.more(text)
            return
        self._waiting += len(text)
        if self._waiting > self._blocks.bounds.arguments:
            limit = self._blocks.bounds.arguments
            raise ProviderError("protocol", f"the arguments of a tool call exceed {limit} characters")


class PassedItem(Item):
    """An item of a kind that the kernel has no word for."""

    def __init__(self, blocks: Blocks, kind: str) -> None:
        super().__init__(blocks)
        self.kind = kind

    def _take_rest(self, item: dict[str, Any]) -> None:
        """Nothing of it is told."""

    def _tell(self, text: str) -> None:
        """Nothing of it is told."""


def item_of(blocks: Blocks, item: dict[str, Any]) -> Item:
    """The item that begins with this."""
    kind = text_of(item.get("type"))
    if kind == "message":
        return MessageItem(blocks)
    if kind == "reasoning":
        return ReasoningItem(blocks)
    if kind == "function_call":
        return CallItem(blocks, item)
    return PassedItem(blocks, kind)
