"""Folds stream chunks into an assistant message.

Here lives what a provider may send in which order (F6), the replacing of call ids (T7), and the message
as it was at any moment. Chunks are kept in one log that only grows: a moment is a length of it, and text is
joined when somebody reads it. Who is told is the run's business.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, TypeAlias

from ._chunks import (
    BlockEnd,
    Chunk,
    Finish,
    RedactedThinking,
    ResponseInfo,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)
from ._errors import ProviderError
from ._events import Delta, ToolCallFragment, tool_call_fragment
from ._json import arguments_text
from ._messages import (
    NO_USAGE,
    AssistantBlock,
    AssistantMessage,
    StopReason,
    Thinking,
    assistant_message,
    checked_usage,
    quick_text,
    tool_call,
)

_Kind: TypeAlias = type[TextDelta] | type[ThinkingDelta] | type[ToolCallStart] | type[RedactedThinking]
_Logged: TypeAlias = Delta | RedactedThinking | BlockEnd
_Entry: TypeAlias = _Logged | ResponseInfo
_TEXT: Final = (TextDelta, ThinkingDelta)
_STOP_REASONS: Final[dict[str, StopReason]] = {"stop": "stop", "length": "length", "tool_use": "tool_use"}


class _Block:
    """One content block, as far as it has come."""

    __slots__ = ("call", "kind", "redacted", "signature", "texts")

    def __init__(self, kind: _Kind, call: tuple[str, str] | None = None) -> None:
        self.kind = kind
        self.call = call  # id and name
        self.texts: list[str] = []
        self.signature: str | None = None
        self.redacted: str | None = None

    def take(self, entry: _Logged) -> None:
        if isinstance(entry, _TEXT):
            self.texts.append(entry.text)
        elif isinstance(entry, ToolCallFragment):
            self.texts.append(entry.json)
        elif isinstance(entry, BlockEnd):
            self.signature = entry.signature
        else:
            self.redacted = entry.data

    def made(self) -> AssistantBlock:
        if self.redacted is not None:
            return Thinking("", redacted=self.redacted)
        text = _whole("".join(self.texts))
        if self.call is not None:
            return tool_call(self.call[0], self.call[1], arguments_text(None, text), self.signature)
        return quick_text(text, self.signature) if self.kind is TextDelta else Thinking(text, self.signature)


class Assembly:
    """One answer, as far as it has come.

    `fold` raises `ProviderError("protocol", …)` for what no answer may contain, and changes nothing then.
    """

    __slots__ = (
        "_blocks",
        "_info",
        "_known",
        "_last",
        "_open",
        "_taken",
        "_used_ids",
        "log",
        "model",
        "provider",
        "stop_reason",
        "usage",
    )

    def __init__(self, used_ids: Collection[str], *, model: str | None = None, provider: str | None = None) -> None:
        self._used_ids = used_ids
        self.log: list[_Entry] = []  # only grows; its length is a moment
        self._blocks: dict[int, _Block] = {}  # those that the log speaks of, in its order
        self._info: ResponseInfo | None = None
        self._known: dict[int, _Block] = {}  # also those that nothing has come of
        self._open = self._known  # the same until the end marker, empty behind it
        self._taken: set[str] = set()
        self._last: tuple[int, AssistantMessage] | None = None
        self.model = model
        self.provider = provider
        self.usage = NO_USAGE
        self.stop_reason: StopReason | None = None

    def __len__(self) -> int:
        return len(self.log)

    @property
    def finished(self) -> bool:
        """Whether the end marker has come."""
        return self.stop_reason is not None

    def fold(self, chunk: Chunk) -> Delta | None:
        """Take a chunk. Gives what is to be told of it, or None."""
        if isinstance(chunk, _TEXT):
            kind = type(chunk)
            # One look-up also notices a chunk behind the end marker: test_a_chunk_behind_the_end_marker_is_an_error.
            block = self._open.get(chunk.index)
            if block is None or block.kind is not kind or type(chunk.index) is not int:
                block = self._opened(chunk.index, kind)
            text: object = chunk.text
            if type(text) is not str:
                raise _broken(f"a {kind.__name__} carries {type(text).__name__} where text belongs")
            if not text:
                return None
            texts = block.texts
            if not texts:
                self._blocks[chunk.index] = block
            texts.append(text)
            self.log.append(chunk)
            return chunk
        return self._fold_other(chunk)

    def message_at(
        self, length: int, stop_reason: StopReason | None = None, error: str | None = None
    ) -> AssistantMessage:
        """The message as it was when the log had that length. Costs time in proportion to its text."""
        if stop_reason is None and self._last is not None and self._last[0] == length:
            return self._last[1]
        blocks, info = (self._blocks, self._info) if length == len(self.log) else self._replayed(length)
        content = tuple([block.made() for block in blocks.values()])
        usage = NO_USAGE if stop_reason is None else self.usage
        if info is None:
            message = assistant_message(content, stop_reason, usage, self.model, self.provider, error)
        else:
            message = assistant_message(content, stop_reason, usage, info.model, info.provider, error, info.id)
        if stop_reason is None:
            self._last = (length, message)
        return message

    def finish(self) -> AssistantMessage:
        """The whole message. Raises `ProviderError` if the end marker has not come (F6)."""
        if self.stop_reason is None:
            raise _broken("the stream ended without its end marker; the answer may be cut")
        return self.message_at(len(self.log), self.stop_reason)

    def _fold_other(self, chunk: Chunk) -> Delta | None:
        if self.stop_reason is not None and not isinstance(chunk, UsageReport):
            raise _broken(f"a {type(chunk).__name__} came behind the end marker")
        if isinstance(chunk, ToolCallDelta):
            return self._more_arguments(chunk)
        if isinstance(chunk, ToolCallStart):
            return self._start_call(chunk)
        if isinstance(chunk, Finish):
            self._finish(chunk.stop_reason)
        elif isinstance(chunk, UsageReport):
            self.usage = checked_usage(chunk.usage)
        elif isinstance(chunk, BlockEnd):
            if chunk.signature is not None:
                _require_text("signature", chunk.signature)
                self._log(chunk, self._known.get(chunk.index))
        elif isinstance(chunk, RedactedThinking):
            _require_text("data", chunk.data)
            self._log(chunk, self._opened(chunk.index, RedactedThinking))
        elif isinstance(chunk, ResponseInfo):
            for name, value in (("id", chunk.id), ("model", chunk.model), ("provider", chunk.provider)):
                if value is not None:
                    _require_text(name, value)
            self._info = self._more_info(self._info, chunk)
            self.log.append(chunk)
        else:
            raise _broken(f"{type(chunk).__name__} is no chunk; see trio_agent's chunk classes")
        return None

    def _finish(self, reason: str) -> None:
        stop_reason = _STOP_REASONS.get(reason) if isinstance(reason, str) else None
        if stop_reason is None:
            raise _broken(f"{reason!r} is not an end marker; the known ones are {', '.join(_STOP_REASONS)}")
        self.stop_reason = stop_reason
        self._open = {}

    def _opened(self, index: int, kind: _Kind, call: tuple[str, str] | None = None) -> _Block:
        if self.stop_reason is not None:
            raise _broken(f"a {kind.__name__} came behind the end marker")
        if type(index) is not int:
            raise _broken(f"a block is named by its index, an int, not by {index!r}")
        known = self._known.get(index)
        if known is not None:
            raise _broken(f"block {index} was opened by {known.kind.__name__} and cannot take {kind.__name__}")
        block = self._known[index] = _Block(kind, call)
        return block

    def _log(self, entry: _Logged, block: _Block | None) -> None:
        if block is None:  # a signature of thinking whose text its provider does not show
            block = self._opened(entry.index, ThinkingDelta)
        self._blocks[entry.index] = block
        block.take(entry)
        self.log.append(entry)

    def _start_call(self, chunk: ToolCallStart) -> Delta:
        name = chunk.name if isinstance(chunk.name, str) else ""
        block = self._opened(chunk.index, ToolCallStart)
        block.call = call_id, _ = self._unique_id(chunk.id), name
        self._blocks[chunk.index] = block
        fragment = tool_call_fragment(chunk.index, call_id, name, "")
        self.log.append(fragment)
        return fragment

    def _more_arguments(self, chunk: ToolCallDelta) -> Delta | None:
        block = self._known.get(chunk.index)
        if block is None or block.call is None:
            raise _broken(f"arguments came for block {chunk.index}, which is no tool call")
        if type(chunk.json) is not str:
            raise _broken(f"a ToolCallDelta carries {type(chunk.json).__name__} where JSON text belongs")
        if not chunk.json:
            return None
        fragment = tool_call_fragment(chunk.index, block.call[0], block.call[1], chunk.json)
        block.texts.append(chunk.json)
        self.log.append(fragment)
        return fragment

    def _unique_id(self, wanted: object) -> str:
        """The provider's id, or one of ours where it is missing, empty or taken (T7)."""
        if isinstance(wanted, str) and wanted.strip() and not self._is_taken(wanted):
            made = wanted
        else:
            number = len(self._used_ids) + len(self._taken) + 1
            while self._is_taken(made := f"call_{number}"):
                number += 1
        self._taken.add(made)
        return made

    def _is_taken(self, call_id: str) -> bool:
        return call_id in self._taken or call_id in self._used_ids

    def _replayed(self, length: int) -> tuple[dict[int, _Block], ResponseInfo | None]:
        """The blocks, and what the provider had said about the answer, by then."""
        blocks: dict[int, _Block] = {}
        info: ResponseInfo | None = None
        for entry in self.log[:length]:
            if isinstance(entry, ResponseInfo):
                info = self._more_info(info, entry)
            else:
                block = blocks.get(entry.index)
                if block is None:
                    known = self._known[entry.index]
                    block = blocks[entry.index] = _Block(known.kind, known.call)
                block.take(entry)
        return blocks, info

    def _more_info(self, known: ResponseInfo | None, new: ResponseInfo) -> ResponseInfo:
        known = known or ResponseInfo(None, self.model, self.provider)
        return ResponseInfo(new.id or known.id, new.model or known.model, new.provider or known.provider)


def _whole(text: str) -> str:
    """The text with the two halves of a surrogate pair as one character, where two deltas have parted them."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


def _require_text(name: str, value: object) -> None:
    if type(value) is not str:
        raise _broken(f"a chunk's {name} is text, not {type(value).__name__}")


def _broken(text: str) -> ProviderError:
    return ProviderError("protocol", text)
