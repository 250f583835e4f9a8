"""What the updates of one assistant message said, in constant memory per block.

Here lives the comparison of rule L4. Text is kept as a digest, its length and its beginning, so that a message of any
length costs the judge the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final, TypeAlias

from .._chunks import TextDelta, ThinkingDelta
from .._events import Delta, MessageUpdate, ToolCallFragment
from .._messages import AssistantBlock, AssistantMessage, Text, ToolCall

_BATCH: Final = 256  # so many deltas are joined before they are digested
_SHOWN: Final = 30

_Spoken: TypeAlias = type[TextDelta] | type[ThinkingDelta] | type[ToolCallFragment]
_WORDS: Final[dict[type, str]] = {TextDelta: "text", ThinkingDelta: "thinking", ToolCallFragment: "arguments"}


class _Words:
    """A text that grows: its digest, its length, its beginning."""

    __slots__ = ("_digest", "_parts", "beginning", "length", "squeezed")

    def __init__(self, text: str = "") -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self._parts = [text]
        self.length = 0
        self.beginning = ""
        self.squeezed = ""  # the first characters that are not blank

    def add(self, text: str) -> None:
        parts = self._parts
        parts.append(text)
        if len(parts) >= _BATCH:
            self.fold()

    def fold(self) -> tuple[int, bytes]:
        """Digest what has come. UTF-16, because two deltas may part a pair of surrogates, which JSON puts together."""
        text = "".join(self._parts)
        self._parts.clear()
        if text:
            written = text.encode("utf-16-le", "surrogatepass")
            self._digest.update(written)
            self.length += len(written) // 2
            self.beginning = (self.beginning + text)[:_SHOWN]
            if len(self.squeezed) < 8:
                self.squeezed = (self.squeezed + "".join(text.split()))[:8]
        return self.length, self._digest.digest()

    def __str__(self) -> str:
        self.fold()
        return f'"{self.beginning}"' if self.length <= _SHOWN else f'"{self.beginning}…" ({self.length} characters)'


class _SaidBlock:
    """One block as the updates told it."""

    __slots__ = ("cls", "id", "name", "words")

    def __init__(self, delta: Delta) -> None:
        self.cls: _Spoken = type(delta)
        self.id = delta.id if isinstance(delta, ToolCallFragment) else None
        self.name = delta.name if isinstance(delta, ToolCallFragment) else None
        self.words = _Words()

    def says_something(self) -> bool:
        return self.cls is ToolCallFragment or self.words.fold()[0] > 0


class Said:
    """What the updates of a message said, block by block, in the order of their first updates."""

    __slots__ = ("_blocks", "first")

    def __init__(self) -> None:
        self._blocks: dict[object, _SaidBlock] = {}
        self.first: MessageUpdate | None = None  # kept, to be looked at again when the message has ended

    def add(self, delta: Delta) -> None:
        block = self._blocks.get(delta.index)
        if block is None or block.cls is not type(delta):
            # A second kind under one index is a block of its own here, which no message can match.
            key = delta.index if block is None else (delta.index, type(delta))
            block = self._blocks.setdefault(key, _SaidBlock(delta))
        block.words.add(delta.json if type(delta) is ToolCallFragment else delta.text)  # type: ignore[union-attr]

    def differs_from(self, content: Iterable[AssistantBlock]) -> str | None:
        """In which way the content is not what the updates said, or None. Empty text and thinking count for nothing."""
        said = [block for block in self._blocks.values() if block.says_something()]
        held = [block for block in content if isinstance(block, ToolCall) or block.text]
        for at, (told, kept) in enumerate(zip(said, held, strict=False)):
            difference = _difference(told, kept)
            if difference is not None:
                return f"block {at}: {difference}"
        if len(said) == len(held):
            return None
        return f"the updates told {_count(len(said))}, the message has {len(held)}"


def _count(blocks: int) -> str:
    return f"{blocks} block" if blocks == 1 else f"{blocks} blocks"


def _difference(told: _SaidBlock, kept: AssistantBlock) -> str | None:
    cls, text = _spoken(kept)
    if cls is not told.cls:
        return f"the updates told {_WORDS[told.cls]}, the message has {_WORDS[cls]}"
    if isinstance(kept, ToolCall):
        if (told.id, told.name) != (kept.id, kept.name):
            return f"the updates told call {told.id} of {told.name}, the message has {kept.id} of {kept.name}"
        if text == "{}" and told.words.fold() and told.words.squeezed in ("", "null"):
            return None  # blank arguments and null are kept as {}
    held = _Words(text)
    if held.fold() == told.words.fold():
        return None
    return f"the updates told {_WORDS[cls]} {told.words}, the message has {held}"


def _spoken(block: AssistantBlock) -> tuple[_Spoken, str]:
    if isinstance(block, ToolCall):
        return ToolCallFragment, block.raw
    return (TextDelta if isinstance(block, Text) else ThinkingDelta), block.text


def shows_later(delta: Delta, message: AssistantMessage) -> bool:
    """Whether the message of a first update, read later, shows more than that update had told."""
    text = delta.json if isinstance(delta, ToolCallFragment) else delta.text
    shown = "".join([_spoken(block)[1] for block in message.content])
    return shown != text and not (shown == "{}" and text.strip() in ("", "null"))
