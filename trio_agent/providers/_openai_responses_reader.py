"""An answer of the Responses API, streamed or whole, to chunks.

Here lives the meaning of its events; what becomes of one output item is in `_openai_responses_items.py`. Items are told
apart by their place in the output, and by their id only where a server gives no place. Nothing waits, and no rule
names a server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

import attrs
import msgspec

from .._chunks import Finish, ResponseInfo, UsageReport
from .._errors import ProviderError
from .._messages import Usage
from ._answer import AnswerReader, event_object, excerpt
from ._blocks import Blocks, arguments_of
from ._bounds import Bounds
from ._conversation import ToolNames
from ._http_errors import find_error, stream_error
from ._json_values import count_of, object_of, objects_of, text_of
from ._keys import Secret
from ._openai_responses_items import CallItem, Item, MessageItem, PassedItem, ReasoningItem, item_of

_ENDS: Final = {
    "response.completed": "completed",
    "response.done": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
_LENGTH: Final = frozenset({"max_output_tokens", "max_tokens", "length"})

_LF: Final = 10
_TEXT: Final = b"event: response.output_text.delta\ndata: "
_ARGUMENTS: Final = b"event: response.function_call_arguments.delta\ndata: "


class _TextDelta(msgspec.Struct, gc=False, tag_field="type", tag="response.output_text.delta"):
    kind: ClassVar[str] = "message"
    output_index: int
    delta: str
    error: None = None


class _ArgumentsDelta(msgspec.Struct, gc=False, tag_field="type", tag="response.function_call_arguments.delta"):
    kind: ClassVar[str] = "function_call"
    output_index: int
    delta: str
    error: None = None


_decode_delta: Final = msgspec.json.Decoder(_TextDelta | _ArgumentsDelta).decode


@attrs.frozen
class Told:
    """An answer that has ended well: its id, its text, and each call's id and arguments."""

    response_id: str
    text: str
    calls: tuple[tuple[str, str], ...]


class ResponsesReader(AnswerReader):
    """Reads one answer. `ended_well` is called when all of it has been read and nothing is wrong with it."""

    def __init__(
        self,
        bounds: Bounds,
        names: ToolNames,
        secrets: tuple[Secret, ...] = (),
        ended_well: Callable[[Told], None] | None = None,
    ) -> None:
        super().__init__(bounds)
        self._secrets = secrets
        self._ended_well = ended_well
        self._blocks = Blocks(bounds, names, self.chunks)
        self._items: dict[Any, Item] = {}  # by place in the output, or else by id
        self._last: Item | None = None
        self._info = ResponseInfo()
        self._usage: Usage | None = None
        self._refusal: list[str] = []
        self._status = ""
        self._incomplete: Any = None
        self._seen = False

    def event(self, name: str, data: str) -> None:
        if data.strip() == "[DONE]":  # some servers add it to every stream; here it ends nothing
            return
        event = event_object(data)
        kind = text_of(event.get("type")) or name
        if kind == "error" or name == "error" or event.get("error") or ("type" not in event and find_error(event)):
            raise stream_error(event, secrets=self._secrets)
        if not kind.startswith("response."):
            return
        self._seen = True
        if kind in _ENDS:
            self._take_end(_ENDS[kind], object_of(event.get("response")))
        elif kind in ("response.created", "response.in_progress", "response.queued"):
            self._note(object_of(event.get("response")))
        else:
            self._take(kind.removeprefix("response."), event)

    def take_common(self, raw: list[bytes], at: int) -> int:
        """More of an item that has begun, where its place is given."""
        start = len(_TEXT)
        try:
            while at < len(raw):
                event = raw[at]
                if event[:start] == _TEXT:
                    data = event[start:]
                elif event.startswith(_ARGUMENTS):
                    data = event[len(_ARGUMENTS) :]
                else:
                    break
                if _LF in data:
                    break
                more = _decode_delta(data)
                item = self._items.get(more.output_index)
                if item is None or item.kind != more.kind:
                    break
                item.more(more.delta)
                at += 1
        except (ValueError, RecursionError):  # it is another event, or no JSON
            pass
        return at

    def whole(self, document: Any) -> None:
        answer = object_of(document)
        if "output" not in answer and answer.get("object") != "response":
            if (error := find_error(answer)) is not None:
                raise stream_error(error, secrets=self._secrets)
            raise ProviderError("protocol", "the server's answer is no response")
        self._take_end("completed", answer)

    def close(self) -> None:
        for item in self._items.values():
            item.end()
        if not self.ended:
            text = "the stream ended without its end marker; the answer may be cut"
            raise ProviderError("network", text if self._seen else "the server sent no answer at all")
        calls = [item for item in self._items.values() if isinstance(item, CallItem)]
        reason = self._stop_reason()
        if not all(call.has_begun for call in calls):
            raise ProviderError("protocol", "the server sent a tool call without a name")
        text = "".join([item.told for item in self._items.values() if isinstance(item, MessageItem)])
        if self._ended_well is not None and self._info.id is not None and reason != "length":
            self._ended_well(Told(self._info.id, text, tuple([(call.call_id, call.told) for call in calls])))
        self.chunks.append(Finish(reason))

    def _take(self, kind: str, event: dict[str, Any]) -> None:
        delta = text_of(event.get("delta"))
        if kind == "output_text.delta":
            self._at(event, "message").more(delta)
        elif kind == "function_call_arguments.delta":
            self._at(event, "function_call").more(arguments_of(event.get("delta")))
        elif kind in ("reasoning_summary_text.delta", "reasoning_text.delta"):
            item = self._at(event, "reasoning")
            if isinstance(item, ReasoningItem):
                item.think((kind, event.get("summary_index"), event.get("content_index")), delta)
        elif kind == "refusal.delta":
            self._refusal.append(delta)
        elif kind == "refusal.done" and not self._refusal:
            self._refusal.append(text_of(event.get("refusal")))
        elif kind == "output_item.added":
            self._begin(event)
        elif kind == "output_item.done":
            self._begin(event).complete(object_of(event.get("item")))
            self._take_refusal(object_of(event.get("item")))

    def _begin(self, event: dict[str, Any]) -> Item:
        found = object_of(event.get("item"))
        key = _key_of(event, found)
        item = self._items.get(key)
        if item is not None and _is_another(item, found, event, key):
            item.end()
            self._items[object()] = self._items.pop(key)  # no event can mean it any more
            item = None
        if item is None:
            item = self._items[key] = item_of(self._blocks, found)
        self._last = item
        return item

    def _at(self, event: dict[str, Any], kind: str) -> Item:
        """The item that an event speaks of. One that was never begun begins with it."""
        key = _key_of(event, {})
        item = self._last if key is None else self._items.get(key)
        if item is None or (item.kind != kind and (key is None or not isinstance(item, PassedItem))):
            item = self._begin({**event, "item": {"type": kind}})
        return item

    def _take_end(self, status: str, response: dict[str, Any]) -> None:
        self._note(response)
        self._take_usage(object_of(response.get("usage")))
        self._take_output(objects_of(response.get("output")))
        self._status = text_of(response.get("status")) or status
        self.ended = True
        self._seen = True
        if self._status == "failed" or response.get("error"):
            raise stream_error({"error": response.get("error") or "no reason given"}, secrets=self._secrets)
        self._incomplete = object_of(response.get("incomplete_details")).get("reason")

    def _take_output(self, output: list[dict[str, Any]]) -> None:
        """The whole output, once more: it completes what was told, and brings what was not told at all."""
        told = [item.kind for item in self._items.values()]
        kinds = [text_of(found.get("type")) for found in output]
        new_calls = kinds.count("function_call") - told.count("function_call")
        for place, (found, kind) in enumerate(zip(output, kinds, strict=True)):
            item = self._named(found)
            if item is None and (kind not in told or (kind == "function_call" and new_calls > 0)):
                new_calls -= kind == "function_call"
                item = self._items[object()] = item_of(self._blocks, found)
            elif item is None:
                item = self._unnamed(place, kind)
            if item is not None and item.kind == kind:
                item.complete(found)
            self._take_refusal(found)

    def _named(self, found: dict[str, Any]) -> Item | None:
        """The item that the output at the end means, by its id or its call's."""
        call_id = text_of(found.get("call_id"))
        for item in self._items.values():
            if call_id and isinstance(item, CallItem) and item.call_id == call_id:
                return item
        return self._items.get(text_of(found.get("id")))

    def _unnamed(self, place: int, kind: str) -> Item | None:
        """The item in this place; where that is of another kind, the first of the kind that has not ended."""
        item = self._items.get(place)
        if item is not None and item.kind == kind:
            return item
        return next((known for known in self._items.values() if known.kind == kind and not known.ended), None)

    def _take_refusal(self, item: dict[str, Any]) -> None:
        if not self._refusal:
            self._refusal += [text_of(part.get("refusal")) for part in objects_of(item.get("content"))]
            self._refusal = list(filter(None, self._refusal))

    def _note(self, response: dict[str, Any]) -> None:
        """Who answered. Some servers change the id on the way: the last one is the answer's."""
        info = ResponseInfo(
            text_of(response.get("id")) or self._info.id, text_of(response.get("model")) or self._info.model
        )
        if info != self._info:
            self._info = info
            self.chunks.append(info)

    def _take_usage(self, counts: dict[str, Any]) -> None:
        if counts:
            self._usage = read_usage(counts)
            self.chunks.append(UsageReport(self._usage))

    def _stop_reason(self) -> str:
        """`stop`, `length` or `tool_use`, or the error that the end is."""
        refusal = excerpt("".join(self._refusal), 500)
        if refusal:
            raise ProviderError("content_filter", f"the model refused: {refusal}")
        if self._status == "completed":
            return "tool_use" if self._blocks.calls else "stop"
        if self._status == "cancelled":
            raise ProviderError("server", "the service cancelled the answer")
        reason = self._incomplete
        if self._status == "incomplete" and isinstance(reason, str):
            if reason in _LENGTH:
                return "length"
            if reason == "content_filter":
                raise ProviderError("content_filter", "the service filtered the answer (content_filter)")
        shown = excerpt(f"{self._status} {reason or ''}".strip())
        raise ProviderError("protocol", f"the server ended the answer with an unknown status, {shown!r}")


def _is_another(item: Item, found: dict[str, Any], event: dict[str, Any], key: Any) -> bool:
    """Whether an item begins here although there is one with its key: not all servers number or name them."""
    if item.kind != text_of(found.get("type")):
        return True
    if isinstance(key, int):
        return False
    begins = event.get("type") == "response.output_item.added"
    call_id = text_of(found.get("call_id"))
    return (begins and item.ended) or (isinstance(item, CallItem) and "" != item.call_id != call_id != "")


def _key_of(event: dict[str, Any], item: dict[str, Any]) -> Any:
    place = event.get("output_index")
    if isinstance(place, int):
        return place
    return text_of(event.get("item_id")) or text_of(item.get("id")) or None


def read_usage(counts: dict[str, Any]) -> Usage:
    """Input includes here what came from the cache or went into it, and output what was thought."""
    given, made = object_of(counts.get("input_tokens_details")), object_of(counts.get("output_tokens_details"))
    prompt, output = count_of(counts, "input_tokens"), count_of(counts, "output_tokens")
    cached, written = count_of(given, "cached_tokens"), count_of(given, "cache_write_tokens")
    total = count_of(counts, "total_tokens")
    if total is None and prompt is not None and output is not None:
        total = prompt + output
    fresh = None if prompt is None else max(0, prompt - (cached or 0) - (written or 0))
    return Usage(fresh, output, cached, written, count_of(made, "reasoning_tokens"), total)
