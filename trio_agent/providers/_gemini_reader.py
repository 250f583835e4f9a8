"""An answer of Gemini's API, streamed or whole, to chunks.

Here lives the meaning of its chunks. This API numbers no blocks: parts of one kind in a row are one block, until a
signature ends it. Nothing waits, and no rule names a server.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from .._chunks import Finish, ResponseInfo, UsageReport
from .._errors import ProviderError
from .._messages import Usage
from ._answer import AnswerReader, decode_json, event_object, excerpt
from ._blocks import Block, Blocks, CallBlock, arguments_of
from ._bounds import Bounds
from ._conversation import ToolNames
from ._gemini_arguments import PathArguments
from ._http_errors import find_error, stream_error
from ._json_values import count_of, list_of, object_of, objects_of, text_of
from ._keys import Secret

_FILTERED: Final = frozenset(
    {"SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"}
    | {"IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "ESCALATION"}
)
# The second is no word of the API's own, but of servers that copy it.
_STOPPED: Final = frozenset({"STOP", "FUNCTION_CALL"})
# The model made a mess of a call, which it may well not do again.
_MALFORMED: Final = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"})
_MALFORMED_TOO: Final = frozenset({"MALFORMED_RESPONSE", "NO_IMAGE", "IMAGE_OTHER"})
_SERVER: Final = frozenset({"OTHER", "FINISH_REASON_UNSPECIFIED"})

_LF: Final = 10
_NOTHING: Final = msgspec.Raw(b"{}")
_Absent = Annotated[int, msgspec.Meta(gt=0, lt=0)]  # a field that nothing fits


class _PlainPart(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    text: str
    thought: bool = False


class _PlainContent(msgspec.Struct, gc=False):
    parts: tuple[_PlainPart]


class _PlainCandidate(msgspec.Struct, gc=False, rename="camel"):
    content: _PlainContent
    index: Literal[0] | None = 0
    finish_reason: None = None


class _PlainChunk(msgspec.Struct, gc=False):
    """A chunk that holds more text, and nothing else that the long way would look at. Decoding another one fails."""

    candidates: tuple[_PlainCandidate]
    usage: msgspec.Raw = msgspec.field(name="usageMetadata", default=_NOTHING)
    model: str | None = msgspec.field(name="modelVersion", default=None)
    id: str | None = msgspec.field(name="responseId", default=None)
    feedback: None = msgspec.field(name="promptFeedback", default=None)
    response: None = None
    error: None = None
    error_message: None = None
    object: None = None
    type: None = None
    detail: _Absent = 0
    message: _Absent = 0


_decode_plain: Final = msgspec.json.Decoder(_PlainChunk).decode


class GenerateContentReader(AnswerReader):
    """Reads one answer. Its end is the body's end behind a finish reason (F6)."""

    def __init__(self, bounds: Bounds, names: ToolNames, secrets: tuple[Secret, ...] = ()) -> None:
        super().__init__(bounds)
        self._secrets = secrets
        self._blocks = Blocks(bounds, names, self.chunks)
        self._text: Block | None = None  # the open block, if it is one of text
        self._thinking: Block | None = None  # or of thinking
        self._call: _StreamedCall | None = None
        self._info = ResponseInfo()
        self._counts: dict[str, Any] = {}
        self._raw_counts = _NOTHING  # the same, as the short way saw them
        self._usage: Usage | None = None
        self._finish = ""
        self._finish_message = ""
        self._blocked = ""
        self._seen = False

    def event(self, name: str, data: str) -> None:
        if data.strip() == "[DONE]":  # some gateways add it to every stream; here it ends nothing
            return
        event = event_object(data)
        if name == "error":
            raise stream_error(event, secrets=self._secrets)
        self._take(event)

    def take_common(self, raw: list[bytes], at: int) -> int:
        """More text or thinking from who is known to answer."""
        try:
            while at < len(raw):
                event = raw[at]
                if event[:6] != b"data: " or _LF in event:
                    break
                chunk = _decode_plain(event[6:])
                if chunk.id != self._info.id or chunk.model != self._info.model:
                    break
                if chunk.usage != self._raw_counts:
                    self._take_usage(object_of(decode_json(bytes(chunk.usage))))
                    self._raw_counts = chunk.usage
                part = chunk.candidates[0].content.parts[0]
                block = self._thinking if part.thought else self._text
                if block is None:
                    self._take_text(part.text, part.thought, "")
                else:
                    block.more(part.text)
                self._seen = True
                at += 1
        except (ValueError, RecursionError):  # it is another chunk, or no JSON
            pass
        return at

    def whole(self, document: Any) -> None:
        """One answer, or the chunks of one in a list, as this API streams them where nobody asks for events."""
        for chunk in list_of(document) or [document]:
            self._take(object_of(chunk))

    def stray(self, text: str) -> None:
        """This API breaks a stream off by writing its error between the events, and not as one of them."""
        try:
            error = find_error(object_of(decode_json(text)))
        except ValueError:
            return
        if error is not None:
            raise stream_error(error, secrets=self._secrets)

    def close(self) -> None:
        self._end_texts()
        self._end_call()
        self.chunks.append(Finish(self._stop_reason()))

    def _take(self, chunk: dict[str, Any]) -> None:
        chunk = object_of(chunk.get("response")) or chunk  # some gateways wrap it
        if (error := find_error(chunk)) is not None:
            raise stream_error(error, secrets=self._secrets)
        self._note(chunk)
        self._take_usage(object_of(chunk.get("usageMetadata")))
        feedback = object_of(chunk.get("promptFeedback"))
        if reason := text_of(feedback.get("blockReason")):
            self._blocked = " ".join(filter(None, (reason, text_of(feedback.get("blockReasonMessage")))))
        candidate = next((found for found in objects_of(chunk.get("candidates")) if not found.get("index")), None)
        if candidate is None:
            return
        self._seen = True
        for part in objects_of(object_of(candidate.get("content")).get("parts")):
            self._take_part(part)
        if (finish := candidate.get("finishReason")) is not None:
            self._take_finish(finish, text_of(candidate.get("finishMessage")))

    def _take_part(self, part: dict[str, Any]) -> None:
        signature = text_of(part.get("thoughtSignature"))
        if isinstance(call := part.get("functionCall"), dict):
            self._take_call(object_of(call), signature)
        elif "text" in part:
            self._take_text(text_of(part.get("text")), part.get("thought") is True, signature)

    def _take_text(self, text: str, thought: bool, signature: str) -> None:
        block = self._thinking if thought else self._text
        if not text and not signature:
            return
        if block is None:
            if text:
                self._end_texts()
                block = self._blocks.thinking() if thought else self._blocks.text()
            else:
                # A signature alone belongs to what was said before it, or stands for thinking that is not shown.
                block = self._thinking or self._blocks.thinking()
            self._thinking, self._text = (block, None) if thought or not text else (None, block)
        if text:
            block.more(text)
        if signature:
            block.signature = signature
            self._end_texts()

    def _end_texts(self) -> None:
        for block in (self._text, self._thinking):
            if block is not None:
                block.end()
        self._text = self._thinking = None

    def _take_call(self, call: dict[str, Any], signature: str) -> None:
        self._end_texts()
        name = text_of(call.get("name"))
        if name or self._call is None:
            self._end_call()
            if not name and not call:  # the end of a call that has ended already
                return
            block = self._blocks.call(text_of(call.get("id")), name)
            self._call = _StreamedCall(block, self.bounds)
        self._call.take(call, signature)
        if call.get("willContinue") is not True:
            self._end_call()

    def _end_call(self) -> None:
        if self._call is not None:
            self._call.end()
            self._call = None

    def _note(self, chunk: dict[str, Any]) -> None:
        found_id = text_of(chunk.get("responseId")) or self._info.id
        model = text_of(chunk.get("modelVersion")) or self._info.model
        if found_id != self._info.id or model != self._info.model:
            self._info = ResponseInfo(found_id, model)
            self.chunks.append(self._info)

    def _take_usage(self, counts: dict[str, Any]) -> None:
        """Each chunk carries the counts so far; they are told where they have changed."""
        if counts and counts != self._counts:
            self._counts, self._raw_counts = counts, _NOTHING
            usage = read_usage(counts)
            if usage not in (Usage(), self._usage):
                self._usage = usage
                self.chunks.append(UsageReport(usage))

    def _take_finish(self, finish: Any, message: str) -> None:
        reason = finish if isinstance(finish, str) else repr(finish)
        # A cut or filtered answer stays one, also if a later chunk says that it ended well.
        if self._finish == "" or self._finish in _STOPPED:
            self._finish, self._finish_message = reason, message

    def _stop_reason(self) -> str:
        """`stop`, `length` or `tool_use`, or the error that the end is."""
        reason = self._finish
        about = f": {excerpt(self._finish_message, 500)}" if self._finish_message else ""
        if self._blocked and (not reason or reason in _STOPPED):
            raise ProviderError("content_filter", f"the service refused the prompt ({excerpt(self._blocked, 500)})")
        if not reason:
            text = "the stream ended without its end marker; the answer may be cut"
            raise ProviderError("network", text if self._seen else "the server sent no answer at all")
        if reason in _STOPPED:
            return "tool_use" if self._blocks.calls else "stop"
        if reason == "MAX_TOKENS":
            return "length"
        if reason in _FILTERED:
            raise ProviderError("content_filter", f"the service filtered the answer (finishReason {reason}){about}")
        if reason in _MALFORMED:
            raise ProviderError(
                "protocol", f"the model's tool call cannot be used (finishReason {reason}){about}", True
            )
        if reason in _SERVER or reason in _MALFORMED_TOO:
            raise ProviderError("server", f"the service gave up on the answer (finishReason {reason}){about}")
        text = f"the server ended the answer with an unknown finishReason, {excerpt(reason)!r}{about}"
        raise ProviderError("protocol", text)


class _StreamedCall:
    """A call whose arguments may come in pieces, in any order. They are told when they are complete."""

    def __init__(self, block: CallBlock, bounds: Bounds) -> None:
        self._block = block
        self._given: Any = None
        self._pieces: PathArguments | None = None
        self._bounds = bounds

    def take(self, call: dict[str, Any], signature: str) -> None:
        if call.get("args") is not None:
            self._given = call["args"]
        if pieces := objects_of(call.get("partialArgs")):
            self._pieces = self._pieces or PathArguments(self._bounds)
            self._pieces.take(pieces)
        self._block.signature = signature or self._block.signature

    def end(self) -> None:
        if self._pieces is not None:
            self._block.more(self._pieces.json(object_of(self._given)))
        else:
            self._block.more(arguments_of(self._given))
        self._block.end()


def read_usage(counts: dict[str, Any]) -> Usage:
    """Input includes here what came from the cache, and output leaves out what was thought."""
    prompt, tools = count_of(counts, "promptTokenCount"), count_of(counts, "toolUsePromptTokenCount")
    said, thought = (
        count_of(counts, "candidatesTokenCount", "responseTokenCount"),
        count_of(counts, "thoughtsTokenCount"),
    )
    cached, total = count_of(counts, "cachedContentTokenCount"), count_of(counts, "totalTokenCount")
    fresh = None if prompt is None else max(0, prompt + (tools or 0) - (cached or 0))
    output = None if said is None and thought is None else (said or 0) + (thought or 0)
    return Usage(fresh, output, cached, None, thought, total)
