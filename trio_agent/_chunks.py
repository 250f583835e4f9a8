"""What a provider streams: chunks, each about one block of the answer, named by its index.

Here live the chunk classes alone. How chunks become a message is in `_assembly.py`, what a provider
is in `_provider.py`. Blocks may interleave; their order in the message is that of their first chunks.
"""

from __future__ import annotations

from typing import TypeAlias

import attrs

from ._messages import Usage


@attrs.frozen
class TextDelta:
    """More text of a text block. The first one opens the block."""

    index: int
    text: str


@attrs.frozen
class ThinkingDelta:
    """More text of a thinking block. The first one opens the block."""

    index: int
    text: str


@attrs.frozen
class ToolCallStart:
    """Opens a tool call. A missing, empty or repeated id is replaced before anyone sees it (T7)."""

    index: int
    id: str | None
    name: str


@attrs.frozen
class ToolCallDelta:
    """More of the JSON text of a call's arguments."""

    index: int
    json: str


@attrs.frozen
class BlockEnd:
    """The block is complete. `signature` belongs to it and goes back to the provider unchanged."""

    index: int
    signature: str | None = None


@attrs.frozen
class RedactedThinking:
    """A whole thinking block that the provider shows as opaque data only."""

    index: int
    data: str


@attrs.frozen
class ResponseInfo:
    """What the provider says about the answer: its id, and the model that really gave it.

    `provider` is for one that asks others, such as `FallbackProvider`: which of them answered.
    """

    id: str | None = None
    model: str | None = None
    provider: str | None = None


@attrs.frozen
class UsageReport:
    """Tokens so far. A later report replaces an earlier one; it may come after `Finish`."""

    usage: Usage


@attrs.frozen
class Finish:
    """The end marker: `stop`, `length` or `tool_use`. Anything else is a protocol error (F6)."""

    stop_reason: str


Chunk: TypeAlias = (
    TextDelta
    | ThinkingDelta
    | ToolCallStart
    | ToolCallDelta
    | BlockEnd
    | RedactedThinking
    | ResponseInfo
    | UsageReport
    | Finish
)
