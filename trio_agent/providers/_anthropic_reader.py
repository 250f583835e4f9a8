"""An answer of Anthropic's Messages API, streamed or whole, to chunks.

Here lives the meaning of its events. Blocks of kinds that the kernel has no word for (tools that the server runs,
their results, whatever comes next) are passed over, deltas and all. Nothing waits, and no rule names a server.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import msgspec

from .._chunks import Finish, ResponseInfo, UsageReport
from .._errors import ProviderError
from .._messages import Usage
from ._answer import AnswerReader, event_object, excerpt
from ._blocks import Block, Blocks, arguments_of
from ._bounds import Bounds
from ._conversation import ToolNames
from ._http_errors import find_error, stream_error
from ._json_values import count_of, object_of, objects_of, text_of
from ._keys import Secret

_STOP: Final = frozenset({"end_turn", "stop_sequence"})
_LENGTH: Final = frozenset({"max_tokens", "model_context_window_exceeded"})
_TEXTS: Final = {"text_delta": ("text", "text"), "thinking_delta": ("thinking", "thinking")}

_LF: Final = 10
_MORE: Final = b"event: content_block_delta\ndata: "


class _TextDelta(msgspec.Struct, gc=False, tag_field="type", tag="text_delta"):
    kind: ClassVar[str] = "text"
    text: str


class _ThinkingDelta(msgspec.Struct, gc=False, tag_field="type", tag="thinking_delta"):
    kind: ClassVar[str] = "thinking"
    text: str = msgspec.field(name="thinking")


class _ArgumentsDelta(msgspec.Struct, gc=False, tag_field="type", tag="input_json_delta"):
    kind: ClassVar[str] = "tool_use"
    text: str = msgspec.field(name="partial_json")


class _BlockDelta(msgspec.Struct, gc=False, tag_field="type", tag="content_block_delta"):
    index: int
    delta: _TextDelta | _ThinkingDelta | _ArgumentsDelta


_decode_delta: Final = msgspec.json.Decoder(_BlockDelta).decode


class MessagesReader(AnswerReader):
    """Reads one answer. Its end is `message_stop` (F6)."""

    def __init__(self, bounds: Bounds, names: ToolNames, secrets: tuple[Secret, ...] = ()) -> None:
        super().__init__(bounds)
        self._secrets = secrets
        self._blocks = Blocks(bounds, names, self.chunks)
        self._open: dict[int | None, _Open] = {}  # by the index on the wire
        self._info = ResponseInfo()
        self._counts: dict[str, Any] = {}
        self._usage: Usage | None = None
        self._stop_reason: Any = None
        self._refusal = ""
        self._seen = False

    def event(self, name: str, data: str) -> None:
        if data.strip() == "[DONE]":  # some gateways add it to every stream; here it ends nothing
            return
        event = event_object(data)
        kind = text_of(event.get("type")) or name
        if kind == "content_block_delta":
            self._more(_index_of(event), object_of(event.get("delta")))
        elif kind == "content_block_start":
            self._start(_index_of(event), object_of(event.get("content_block")))
        elif kind == "content_block_stop":
            if (block := self._open.pop(_index_of(event), None)) is not None:
                block.end()
        elif kind == "message_start":
            self._begin(object_of(event.get("message")))
        elif kind == "message_delta":
            self._take_end(object_of(event.get("delta")))
            self._take_usage(object_of(event.get("usage")))
        elif kind == "message_stop":
            self.ended = True
        elif kind == "error" or name == "error" or event.get("error") or ("type" not in event and find_error(event)):
            raise stream_error(event, secrets=self._secrets)

    def take_common(self, raw: list[bytes], at: int) -> int:
        """More of a block that is open."""
        start, blocks = len(_MORE), self._open
        try:
            while at < len(raw):
                event = raw[at]
                data = event[start:]
                if event[:start] != _MORE or _LF in data:
                    break
                more = _decode_delta(data)
                block, delta = blocks.get(more.index), more.delta
                if block is None:
                    break
                block.more(delta.kind, delta.text)
                at += 1
        except (ValueError, RecursionError):  # it is another event, or no JSON
            pass
        return at

    def whole(self, document: Any) -> None:
        answer = object_of(document)
        if answer.get("type") == "error" or find_error(answer) is not None:
            raise stream_error(answer, secrets=self._secrets)
        if "content" not in answer:
            raise ProviderError("protocol", "the server's answer is no message")
        self._begin(answer)
        for index, block in enumerate(objects_of(answer.get("content"))):
            self._start(index, block)
            self._open.pop(index).end()
        self._take_end(answer)
        self.ended = True

    def close(self) -> None:
        for block in self._open.values():
            block.end()
        if not self.ended:
            text = "the stream ended without its end marker; the answer may be cut"
            raise ProviderError("network", text if self._seen else "the server sent no answer at all")
        self.chunks.append(Finish(self._finish()))

    def _begin(self, message: dict[str, Any]) -> None:
        """The message's head. Some gateways send it twice; it says the same then."""
        self._seen = True
        info = ResponseInfo(text_of(message.get("id")) or None, text_of(message.get("model")) or None)
        if info != self._info:
            self._info = info
            self.chunks.append(info)
        self._take_usage(object_of(message.get("usage")))

    def _start(self, index: int | None, content: dict[str, Any]) -> None:
        known = self._open.get(index)
        if known is not None and known.is_start_of(content):
            return
        if known is not None:
            known.end()
        self._seen = True
        self._open[index] = self._opened(content)

    def _opened(self, content: dict[str, Any]) -> _Open:
        kind = text_of(content.get("type"))
        if kind == "text":
            return _Open(kind, self._blocks.text, text_of(content.get("text")))
        if kind == "thinking":
            opened = _Open(kind, self._blocks.thinking, text_of(content.get("thinking")))
            opened.signature = text_of(content.get("signature"))
            return opened
        if kind == "tool_use":
            block = self._blocks.call(text_of(content.get("id")), text_of(content.get("name")))
            return _Open(kind, lambda: block, given=content.get("input"), call_id=text_of(content.get("id")))
        if kind == "redacted_thinking":
            self._blocks.redacted(text_of(content.get("data")))
        return _Open(kind)

    def _more(self, index: int | None, delta: dict[str, Any]) -> None:
        kind = text_of(delta.get("type"))
        block = self._open.get(index)
        if kind in _TEXTS:
            of, field = _TEXTS[kind]
            if block is None:
                block = self._open[index] = self._opened({"type": of})
            block.more(of, text_of(delta.get(field)))
        elif kind == "input_json_delta":
            if block is None:
                raise ProviderError("protocol", "the server sent arguments for a tool call that it had not begun")
            block.more("tool_use", arguments_of(delta.get("partial_json")))
        elif kind == "signature_delta" and block is not None and block.kind == "thinking":
            block.signature = text_of(delta.get("signature"))

    def _take_end(self, delta: dict[str, Any]) -> None:
        if (reason := delta.get("stop_reason")) is not None:
            self._stop_reason = reason
        details = object_of(delta.get("stop_details"))
        self._refusal = text_of(details.get("explanation")) or text_of(details.get("category")) or self._refusal

    def _take_usage(self, counts: dict[str, Any]) -> None:
        """Later counts include the earlier ones (B086); what is null in them stays as it was."""
        self._counts |= {key: value for key, value in counts.items() if value is not None}
        usage = read_usage(self._counts)
        if usage != (self._usage or Usage()):
            self._usage = usage
            self.chunks.append(UsageReport(usage))

    def _finish(self) -> str:
        reason = self._stop_reason if isinstance(self._stop_reason, str) else repr(self._stop_reason)
        if reason == "refusal":
            about = f": {excerpt(self._refusal, 500)}" if self._refusal else ""
            raise ProviderError("content_filter", f"the model refused{about}")
        if reason == "pause_turn":
            text = "the service paused to go on with its own tools (pause_turn), which this provider cannot continue"
            raise ProviderError("protocol", text)
        if reason in _LENGTH:
            return "length"
        if reason == "tool_use" or (reason in _STOP and self._blocks.calls):
            return "tool_use"
        if reason in _STOP:
            return "stop"
        raise ProviderError("protocol", f"the server ended the answer with an unknown stop_reason, {excerpt(reason)!r}")


class _Open:
    """A block on the wire. The kernel's block behind it is opened by the first thing to tell, or there is none."""

    __slots__ = ("_block", "_given", "_make", "call_id", "kind", "signature")

    def __init__(self, kind: str, make: Any = None, text: str = "", given: Any = None, call_id: str = "") -> None:
        self.kind = kind
        self.signature = ""
        self.call_id = call_id
        self._make = make
        self._given = object_of(given)  # arguments that came with the start of a call: they count if no others follow
        self._block: Block | None = None
        if text:
            self.more(kind, text)

    def is_start_of(self, content: dict[str, Any]) -> bool:
        """Whether this is the block of which `content` is the start, sent once more."""
        return bool(self.call_id) and (self.kind, self.call_id) == (content.get("type"), content.get("id"))

    def more(self, kind: str, text: str) -> None:
        if self._make is None:  # a kind that is passed over
            return
        if kind != self.kind:
            raise ProviderError("protocol", f"the server sent {kind} for a block that it had begun as {self.kind}")
        if text:
            (self._block or self._opened()).more(text)

    def end(self) -> None:
        if self._given and (self._block is None or not self._block.told):
            self.more(self.kind, arguments_of(self._given))
        if self.signature:
            self._opened().signature = self.signature
            self.signature = ""
        if self._block is not None:
            self._block.end()

    def _opened(self) -> Block:
        if self._block is None:
            self._block = self._make()
        assert isinstance(self._block, Block)
        return self._block


def _index_of(event: dict[str, Any]) -> int | None:
    index = event.get("index")
    return index if isinstance(index, int) else None


def read_usage(counts: dict[str, Any]) -> Usage:
    """Input is told here without what was read from the cache or written to it, as `Usage` has it."""
    fresh, output = count_of(counts, "input_tokens"), count_of(counts, "output_tokens")
    read, written = count_of(counts, "cache_read_input_tokens"), count_of(counts, "cache_creation_input_tokens")
    thinking = count_of(object_of(counts.get("output_tokens_details")), "thinking_tokens")
    total = None if fresh is None or output is None else fresh + output + (read or 0) + (written or 0)
    return Usage(fresh, output, read, written, thinking, total)
