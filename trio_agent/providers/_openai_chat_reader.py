"""An answer of Chat Completions, streamed or whole, to chunks.

Here lives the meaning of its fields, as OpenAI and those who copy it send them. Fragments of tool calls are
put together in `_openai_chat_calls.py`, usage in `_openai_chat_usage.py`. Nothing waits, and no rule names a server.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from .._chunks import (
    BlockEnd,
    Finish,
    RedactedThinking,
    ResponseInfo,
    TextDelta,
    ThinkingDelta,
    UsageReport,
)
from .._errors import ProviderError
from .._messages import Usage
from ._answer import AnswerReader, HalfCharacters, event_object, excerpt
from ._blocks import text_delta
from ._bounds import Bounds
from ._conversation import ToolNames
from ._fragments import encode_json
from ._http_errors import find_error, stream_error
from ._json_values import list_of, object_of, objects_of, text_of
from ._keys import Secret
from ._openai_chat_calls import CallFragments
from ._openai_chat_usage import read_usage

_STOP: Final = frozenset(
    {"", "stop", "stop_sequence", "stop_token", "eos", "eos_token", "end_turn"}
    | {"complete", "completed", "finished", "done"}
)
_TOOL_USE: Final = frozenset({"tool_calls", "tool_call", "tool_use", "function_call"})
_LENGTH: Final = frozenset({"length", "max_tokens", "max_output_tokens", "model_length", "token_limit"})
_FILTERED: Final = frozenset({"content_filter", "content_filtered", "safety", "refusal", "recitation", "guardrail"})
_BESIDE: Final = frozenset({"error", "error_message", "x_groq"})  # keys that say something beside the choices
_LF: Final = 10
_SERVER: Final = frozenset({"error", "abort", "aborted", "cancelled", "insufficient_system_resource", "network_error"})


class _PlainDelta(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The rest is what some servers repeat in every delta, or say that it is not there."""

    content: str
    role: str | None = None
    refusal: None = None
    reasoning: None = None
    reasoning_content: None = None
    tool_calls: None = None
    function_call: None = None


class _PlainChoice(msgspec.Struct, gc=False):
    delta: _PlainDelta
    index: Literal[0] | None = 0
    finish_reason: None = None
    usage: None = None
    error: None = None


class _PlainEvent(msgspec.Struct, gc=False):
    """An event that holds more text, and nothing that the long way would look at. Decoding another one fails."""

    choices: tuple[_PlainChoice]
    usage: None = None
    error: None = None
    error_message: None = None
    x_groq: None = None


_decode_plain: Final = msgspec.json.Decoder(_PlainEvent).decode


class ChatReader(AnswerReader):
    """Reads one answer."""

    def __init__(self, bounds: Bounds, names: ToolNames, secrets: tuple[Secret, ...] = ()) -> None:
        super().__init__(bounds)
        self._secrets = secrets
        self._calls = CallFragments(bounds, names, self.chunks, self._open_block)
        self._blocks = 0
        self._text = -1  # the block that more text goes to; thinking in between opens a new one
        self._thinking = -1
        self._texts = HalfCharacters()
        self._thoughts = HalfCharacters()
        self._finish = ""
        self._sealed = False  # the end mark came, whatever the finish reason
        self._refusal: list[str] = []
        self._usage: Usage | None = None
        self._id: str | None = None
        self._model: str | None = None
        self._noted = False
        self._seen = False

    def event(self, name: str, data: str) -> None:
        if data.strip() == "[DONE]":
            self._sealed = self.ended = True
            return
        chunk = event_object(data)
        if name == "error":
            raise stream_error(chunk, secrets=self._secrets)
        self._take(chunk, "delta")

    def take_common(self, raw: list[bytes], at: int) -> int:
        """More of a text that is open, in events that hold nothing else."""
        text, append = self._text, self.chunks.append
        try:
            while at < len(raw) and text >= 0 and not self._texts.held:
                event = raw[at]
                if event[:6] != b"data: " or _LF in event:
                    break
                if content := _decode_plain(event[6:]).choices[0].delta.content:
                    append(text_delta(text, content))
                at += 1
        except (ValueError, RecursionError):  # it is another event, or no JSON
            pass
        return at

    def whole(self, document: Any) -> None:
        answer = object_of(document)
        if not answer:
            raise ProviderError("protocol", "the server's answer is no JSON object")
        self._take(answer, "message")
        self.ended = True

    def close(self) -> None:
        self._flush_texts()
        self._calls.close()
        reason = self._stop_reason()
        if any(self._refusal):
            raise ProviderError("content_filter", f"the model refused{self._refused()}")
        self.chunks.append(Finish(reason))

    def _take(self, chunk: dict[str, Any], part: str) -> None:
        if not self._noted:
            self._note(chunk)
        choice = _first_choice(chunk.get("choices"))
        if choice is None or chunk.get("usage") is not None or "usage" in choice or not _BESIDE.isdisjoint(chunk):
            self._take_usage(chunk, choice or {})
            if (error := find_error(chunk)) is not None:
                raise stream_error(error, secrets=self._secrets)
            if choice is None:
                return
        if error := choice.get("error"):
            raise stream_error({"error": error}, secrets=self._secrets)
        self._seen = True
        delta = object_of(choice.get(part))
        if not delta and self._blocks == 0:
            # A whole message as the only event of a stream, or a delta in a document.
            delta = object_of(choice.get("message" if part == "delta" else "delta"))
        self._take_delta(delta)
        if (finish := choice.get("finish_reason")) is not None:
            self._take_finish(finish)

    def _note(self, chunk: dict[str, Any]) -> None:
        """Who answered. Some servers leave the first chunk's id and model empty."""
        found_id, model = chunk.get("id"), chunk.get("model")
        found_id = found_id if isinstance(found_id, str) and found_id else self._id
        model = model if isinstance(model, str) and model else self._model
        if (found_id, model) != (self._id, self._model):
            self._id, self._model = found_id, model
            self.chunks.append(ResponseInfo(found_id, model))
        self._noted = found_id is not None and model is not None

    def _take_usage(self, chunk: dict[str, Any], choice: dict[str, Any]) -> None:
        for place in (chunk, choice, object_of(chunk.get("x_groq"))):
            if usage := object_of(place.get("usage")):
                counted = read_usage(usage)
                if counted != self._usage:
                    self._usage = counted
                    self.chunks.append(UsageReport(counted))
                return

    def _take_delta(self, delta: dict[str, Any]) -> None:
        self._take_thinking(delta)
        if content := delta.get("content"):
            self._take_parts(content)
        if (calls := delta.get("tool_calls")) is not None:
            self._calls.take(calls)
        elif isinstance(call := delta.get("function_call"), dict):
            self._calls.take([call])
        if isinstance(refusal := delta.get("refusal"), str):
            self._refusal.append(refusal)

    def _take_thinking(self, delta: dict[str, Any]) -> None:
        details = objects_of(delta.get("reasoning_details"))
        text = text_of(delta.get("reasoning_content")) or text_of(delta.get("reasoning"))
        if text:
            self._think(text)
        else:
            for detail in details:
                self._think(text_of(detail.get("text")) or text_of(detail.get("summary")))
        for detail in details:
            self._take_opaque(detail)

    def _take_opaque(self, detail: dict[str, Any]) -> None:
        """What proves or hides reasoning, to go back as it came."""
        if signature := text_of(detail.get("signature")):
            if self._thinking < 0:
                self._thinking = self._open_block()
            self._flush_texts()
            self.chunks.append(BlockEnd(self._thinking, signature))
            self._thinking = -1
        if detail.get("type") == "reasoning.encrypted":
            self.chunks.append(RedactedThinking(self._open_block(), encode_json(detail).decode()))

    def _take_parts(self, parts: Any) -> None:
        for part in list_of(parts) or [parts]:
            fields = object_of(part)
            if fields.get("type") in ("thinking", "reasoning"):
                self._think(_joined(fields.get("thinking") or fields.get("text")))
            else:
                self._say(_joined(fields.get("text") if fields else part))

    def _say(self, text: str) -> None:
        text = self._texts.join(text)
        if text:
            if self._text < 0:
                self._flush_texts()
                self._text, self._thinking = self._open_block(), -1
            self.chunks.append(TextDelta(self._text, text))

    def _think(self, text: str) -> None:
        if text and (text := self._thoughts.join(text)):
            if self._thinking < 0:
                self._flush_texts()
                self._thinking, self._text = self._open_block(), -1
            self.chunks.append(ThinkingDelta(self._thinking, text))

    def _flush_texts(self) -> None:
        """Half a character that never got its other half belongs to the block that is open."""
        if self._thinking >= 0 and (rest := self._thoughts.flush()):
            self.chunks.append(ThinkingDelta(self._thinking, rest))
        if self._text >= 0 and (rest := self._texts.flush()):
            self.chunks.append(TextDelta(self._text, rest))

    def _open_block(self) -> int:
        if self._blocks >= self.bounds.blocks:
            raise ProviderError("protocol", f"the server sent more than {self.bounds.blocks} blocks in one answer")
        self._blocks += 1
        return self._blocks - 1

    def _take_finish(self, finish: Any) -> None:
        reason = finish.lower() if isinstance(finish, str) else repr(finish)
        # A cut or filtered answer stays one, also if a later chunk says that it ended well.
        if self._finish not in _LENGTH and self._finish not in _FILTERED:
            self._finish = reason

    def _stop_reason(self) -> str:
        """`stop`, `length` or `tool_use`, or the error that the end is."""
        reason = self._finish
        if not reason and not (self._sealed and (self._blocks or self._calls)):
            raise ProviderError("network", _broken_off(self._seen))
        if reason in _FILTERED:
            text = f"the service filtered the answer (finish_reason {reason!r}){self._refused()}"
            raise ProviderError("content_filter", text)
        if reason in _SERVER:
            raise ProviderError("server", f"the server gave up on the answer (finish_reason {reason!r})")
        if reason in _LENGTH:
            return "length"
        if reason not in _STOP and reason not in _TOOL_USE:
            raise ProviderError(
                "protocol", f"the server ended the answer with an unknown finish_reason, {excerpt(reason)!r}"
            )
        return "tool_use" if self._calls or reason in _TOOL_USE else "stop"

    def _refused(self) -> str:
        text = excerpt("".join(self._refusal), 500)
        return f": {text}" if text else ""


def _broken_off(seen: bool) -> str:
    return (
        "the stream ended without its end marker; the answer may be cut" if seen else "the server sent no answer at all"
    )


def _first_choice(choices: Any) -> dict[str, Any] | None:
    """The choice with index 0, or without one: more than one answer was not asked for."""
    return next((choice for choice in objects_of(choices) if not choice.get("index")), None)


def _joined(value: Any) -> str:
    """Text, or the texts of a list of parts."""
    parts = [text_of(item) or text_of(object_of(item).get("text")) for item in list_of(value)]
    return text_of(value) or "".join(parts)
