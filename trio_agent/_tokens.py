"""How many tokens something takes: what a provider reported, and estimates for what it has not seen yet.

Here live plain functions, and the tally of one history. Estimates know no tokenizer: they are meant to be near
for prose and code in any alphabet. What follows from a count is decided in `_compaction.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ._messages import AssistantMessage, Block, CustomMessage, Image, Message, Text, Thinking
from ._request import ToolSpec

_MESSAGE: Final = 4  # the role and the marks around a message or a tool
_IMAGE: Final = 1_500  # what services charge for an image of usual size
_ASCII_BYTES: Final = 4  # for one token
_OTHER_BYTES: Final = 3  # for one token; about a character of Chinese, half a word of Russian


def estimate_text(text: str) -> int:
    """Tokens of a text, rounded up."""
    if text.isascii():
        return -(-len(text) // _ASCII_BYTES)
    ascii_bytes = len(text.encode("ascii", "ignore"))
    other_bytes = len(text.encode("utf-8", "surrogatepass")) - ascii_bytes
    return -(-ascii_bytes // _ASCII_BYTES) - (-other_bytes // _OTHER_BYTES)


def estimate_message(message: Message) -> int:
    """Tokens of a message; none for an application's own, which the model does not see."""
    if isinstance(message, CustomMessage):
        return 0
    return _MESSAGE + sum([_estimate_block(block) for block in message.content])


def estimate_tools(tools: Iterable[ToolSpec]) -> int:
    return sum(
        [_MESSAGE + sum(map(estimate_text, (tool.name, tool.description, tool.parameters_json))) for tool in tools]
    )


def _estimate_block(block: Block) -> int:
    if isinstance(block, Text):
        return estimate_text(block.text)
    if isinstance(block, Image):
        return _IMAGE
    if isinstance(block, Thinking):
        return estimate_text(block.redacted or block.text)
    return _MESSAGE + estimate_text(block.name) + estimate_text(block.raw)


def reported_context(message: Message) -> int | None:
    """Tokens of the context up to and with an answer, as its provider counted them, if it did.

    An answer that failed or was cut off does not count: what it reports may be half a count.
    """
    if not isinstance(message, AssistantMessage) or message.stop_reason in ("error", "aborted", None):
        return None
    usage = message.usage
    read = (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)
    if read == 0:  # an empty prompt does not exist: some services say 0 for what they did not count
        return (usage.total or None) if usage.input is None else None
    return read + (estimate_message(message) if usage.output is None else usage.output)


def shorten(text: str, tokens: int) -> str:
    """The text if it takes at most so many tokens by estimate; else its beginning and end, and a note between."""
    estimate = estimate_text(text)
    if estimate <= tokens:
        return text
    kept = len(text) * tokens // estimate
    while True:
        note = f"\n[… {len(text) - kept} characters left out here, because the text is too long …]\n"
        short = text[: kept - kept // 3] + note + text[len(text) - kept // 3 :]
        if kept == 0 or estimate_text(short) <= tokens:
            return short
        kept = kept * 3 // 4


class ContextTally:
    """Tokens of the context of a history that is looked at before each request.

    A look costs time in proportion to the messages that are new. What was counted before is known by its length and
    its first and last message, as the very same objects; for any other history the count starts anew.
    """

    __slots__ = ("_estimate", "_first", "_last", "_length", "_reported")

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._length = 0
        self._first: Message | None = None
        self._last: Message | None = None
        self._reported: int | None = None
        self._estimate = 0  # of the messages behind the one that reported, or of all

    def count(self, messages: Sequence[Message], stale: int) -> tuple[int, bool]:
        """The tokens, and whether a report is part of them: then they hold the system prompt and tools too.

        What the first `stale` messages report is of another history and does not count.
        """
        if not self._continues(messages):
            self._forget()
        for at in range(self._length, len(messages)):
            self._add(messages[at], fresh=at >= stale)
        if messages:
            self._length, self._first, self._last = len(messages), messages[0], messages[-1]
        return (self._reported or 0) + self._estimate, self._reported is not None

    def _continues(self, messages: Sequence[Message]) -> bool:
        known = self._length
        return known <= len(messages) and (
            known == 0 or (messages[0] is self._first and messages[known - 1] is self._last)
        )

    def _add(self, message: Message, fresh: bool) -> None:
        reported = reported_context(message) if fresh else None
        if reported is None:
            self._estimate += estimate_message(message)
        else:
            self._reported, self._estimate = reported, 0
