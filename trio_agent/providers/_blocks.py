"""The blocks of an answer as chunks: numbered, within bounds, and no character cut in two.

Here lives what the wires share whose APIs name their blocks. Which event belongs to which block is each wire's own
business. Nothing in here waits.
"""

from __future__ import annotations

from collections.abc import Callable

from .._chunks import BlockEnd, Chunk, RedactedThinking, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallStart
from .._errors import ProviderError
from .._quick import quick
from ._answer import HalfCharacters
from ._bounds import Bounds
from ._conversation import ToolNames
from ._fragments import encode_json
from ._json_progress import JSONProgress

# Once per event of most answers.
text_delta = quick(TextDelta)
thinking_delta = quick(ThinkingDelta)
tool_call_delta = quick(ToolCallDelta)


class Block:
    """An open block. What is told of it never changes; `told` says how many characters that is.

    A block of which nothing was told does not come to be in the message.
    """

    __slots__ = ("_chunks", "_halves", "_make", "index", "signature", "told")

    def __init__(self, index: int, chunks: list[Chunk], make: Callable[[int, str], Chunk]) -> None:
        self.index = index
        self.signature = ""
        self.told = 0
        self._chunks = chunks
        self._halves = HalfCharacters()
        self._make = make

    def more(self, text: str) -> None:
        self.told += len(text)
        # Most text needs no joining, which is seen at its last character.
        if self._halves.held or text[-1:] > "\ud7ff":
            text = self._halves.join(text)
        if text:
            self._chunks.append(self._make(self.index, text))

    def end(self) -> None:
        """Tell what was held back, and the signature if there is one."""
        if rest := self._halves.flush():
            self._chunks.append(self._make(self.index, rest))
        if self.signature:
            self._chunks.append(BlockEnd(self.index, self.signature))
            self.signature = ""


class CallBlock(Block):
    """A tool call. Raises `ProviderError("protocol", …)` where its arguments go beyond the bounds."""

    __slots__ = ("_bounds", "_progress")

    def __init__(self, index: int, chunks: list[Chunk], bounds: Bounds) -> None:
        super().__init__(index, chunks, tool_call_delta)
        self._bounds = bounds
        self._progress = JSONProgress()

    def more(self, text: str) -> None:
        self._progress.feed(text)
        if self.told + len(text) > self._bounds.arguments:
            limit = self._bounds.arguments
            raise ProviderError("protocol", f"the arguments of a tool call exceed {limit} characters")
        if self._progress.deepest > self._bounds.nesting:
            limit = self._bounds.nesting
            raise ProviderError("protocol", f"the arguments of a tool call are nested deeper than {limit}")
        super().more(text)


class Blocks:
    """Opens the blocks of one answer. Raises `ProviderError("protocol", …)` for more than the bounds allow."""

    def __init__(self, bounds: Bounds, names: ToolNames, chunks: list[Chunk]) -> None:
        self.bounds = bounds
        self._names = names
        self._chunks = chunks
        self.count = 0
        self.calls = 0

    def text(self) -> Block:
        return Block(self._next(), self._chunks, text_delta)

    def thinking(self) -> Block:
        return Block(self._next(), self._chunks, thinking_delta)

    def redacted(self, data: str) -> None:
        self._chunks.append(RedactedThinking(self._next(), data))

    def call(self, call_id: str, name: str) -> CallBlock:
        """A call of the tool that has this name on the wire. An empty id is replaced by the kernel."""
        if not name:
            raise ProviderError("protocol", "the server sent a tool call without a name")
        if self.calls >= self.bounds.calls:
            raise ProviderError("protocol", f"the server sent more than {self.bounds.calls} tool calls in one answer")
        self.calls += 1
        block = CallBlock(self._next(), self._chunks, self.bounds)
        self._chunks.append(ToolCallStart(block.index, call_id or None, self._names.own(name)))
        return block

    def _next(self) -> int:
        if self.count >= self.bounds.blocks:
            raise ProviderError("protocol", f"the server sent more than {self.bounds.blocks} blocks in one answer")
        self.count += 1
        return self.count - 1


def arguments_of(value: object) -> str:
    """The JSON text of arguments that came as a value; text is taken as it is, and null is none."""
    if isinstance(value, str):
        return value
    return "" if value is None else encode_json(value).decode()
