"""A request in the words of the Responses API.

Here lives the writing alone, and for the stateful way of speaking the knowledge of what the service remembers.
Pairing and names are in `_conversation.py`. Each message is written once and kept (`_fragments.py`). Nothing waits.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias

import attrs
import msgspec

from .._errors import ProviderError
from .._json import arguments_text, loads_or_none
from .._messages import AssistantMessage, Image, Text, Thinking, ToolCall, ToolResultMessage, UserMessage
from .._request import ModelRequest, ModelSettings, Reasoning, ToolSpec
from ._conversation import (
    Alphabet,
    Sendable,
    ToolNames,
    is_blank,
    is_safe,
    object_arguments,
    paired,
    safe_json,
    safe_text,
    same_model,
)
from ._fragments import Fragments, encode_json
from ._json_values import object_of, objects_of, text_of
from ._objects import chosen, root_schema, shown_image
from ._openai_chat_dialect import ChatDialect
from ._openai_responses_reader import Told

Summary: TypeAlias = Literal["auto", "concise", "detailed"]

CALL_IDS: Final = Alphabet.of("a-zA-Z0-9_-", 64)
_ANY_NAME: Final = ToolNames.of(())
_THINKS: Final = re.compile(r"(?:o\d|gpt-(?:[5-9]|\d\d)(?!.*chat)|codex|gpt-oss|computer-use)")
_LINKS: Final = 1000  # answers of the service that are known to be remembered


@attrs.frozen
class Request:
    """A request, ready to be sent. `prefix` stands for everything that was said up to it."""

    body: bytes
    names: ToolNames
    prefix: bytes


class ResponsesWriter:
    """Writes requests for one provider. What it writes of a message never changes while the message lives."""

    def __init__(self, dialect: ChatDialect, provider: str, *, store: bool, summary: Summary | None) -> None:
        self._dialect = dialect
        self._provider = provider
        self._store = store
        self._summary = summary
        self._fragments: Fragments[bytes] = Fragments(self._message)
        self._links: dict[str, tuple[bytes, Told]] = {}

    def write(self, request: ModelRequest) -> Request:
        """Raises `ProviderError` for what cannot be said."""
        settings = request.settings
        messages = paired(request.messages)
        items = [self._fragments.of(message, request.model) for message in messages]
        if not any(items):
            raise ProviderError("invalid_request", "the request holds no message; give it a prompt")
        names = ToolNames.of([tool.name for tool in request.tools])
        tools = [_tool(tool, names, strict=self._dialect.strict_tools) for tool in request.tools]
        thinks = request.reasoning != "off" or _THINKS.match(request.model.rpartition("/")[2].lower()) is not None
        link, start = self._link(request.model, messages, items)
        body: dict[str, Any] = {"model": request.model, "stream": True, "store": self._store}
        if not is_blank(request.system_prompt):
            body["instructions"] = safe_text(request.system_prompt)
        body["input"] = msgspec.Raw(b"[" + b",".join(filter(None, items[start:])) + b"]")
        if link:
            body["previous_response_id"] = link
        if tools:
            body["tools"] = tools
            body |= _tool_settings(settings, names, request.tools)
        body |= self._reasoning(request.reasoning, thinks)
        if self._dialect.cache_key:
            body["prompt_cache_key"] = _cache_key(request.system_prompt, tools)
        body |= _settings(settings, sampling=not thinks)
        prefix = _digest(request.model, items) if self._store else b""
        return Request(encode_json(body | safe_json(settings.extra_body)), names, prefix)

    @property
    def has_links(self) -> bool:
        return bool(self._links)

    def remember(self, request: Request, told: Told) -> None:
        """The service has given this answer to that request, and stored both if it was told to."""
        if not self._store:
            return
        self._links[told.response_id] = (request.prefix, told)
        while len(self._links) > _LINKS:
            del self._links[next(iter(self._links))]

    def forget(self) -> None:
        """The service has forgotten something that we relied on."""
        self._links.clear()

    def _link(self, model: str, messages: Sequence[Sendable], items: list[bytes]) -> tuple[str, int]:
        """The latest answer that the service remembers just as history has it, and where what is new begins."""
        for at in range(len(messages) - 1, -1, -1) if self._links else ():
            message = messages[at]
            if not isinstance(message, AssistantMessage) or not any(items[at + 1 :]):
                continue
            prefix, told = self._links.get(message.response_id or "", (b"", None))
            if told is not None and _is_as_told(message, told) and prefix == _digest(model, items[:at]):
                return told.response_id, at + 1
        return "", 0

    def _reasoning(self, level: Reasoning, thinks: bool) -> dict[str, Any]:
        found: dict[str, Any] = {"include": ["reasoning.encrypted_content"]} if thinks else {}
        dial = self._dialect.reasoning(level)
        effort = dial.get("reasoning_effort") or object_of(dial.get("reasoning")).get("effort")
        if effort:
            summary = {"summary": self._summary} if self._summary else {}
            found["reasoning"] = {"effort": effort, **summary}
        return found

    def _message(self, message: Sendable, model: str) -> bytes:
        """The message's items, joined by commas; empty where nothing of it can be said."""
        if isinstance(message, UserMessage):
            parts = self._parts(message.content)
            return encode_json({"role": "user", "content": _content(parts) or "(no text)"})
        if isinstance(message, ToolResultMessage):
            output = _content(self._parts(message.content)) or "(no output)"
            call_id = CALL_IDS.fit(message.tool_call_id)
            return encode_json({"type": "function_call_output", "call_id": call_id, "output": output})
        return b",".join(self._answer(message, model))

    def _parts(self, blocks: Iterable[Text | Image]) -> list[dict[str, Any]]:
        return [part for block in blocks if (part := self._part(block)) is not None]

    def _part(self, block: Text | Image) -> dict[str, Any] | None:
        if isinstance(block, Text):
            return None if is_blank(block.text) else {"type": "input_text", "text": safe_text(block.text)}
        shown = shown_image(block)
        if isinstance(shown, str) or not self._dialect.images:
            text = shown if isinstance(shown, str) else f"[an image ({shown[0]}) that this model cannot be shown]"
            return {"type": "input_text", "text": text}
        return {"type": "input_image", "image_url": f"data:{shown[0]};base64,{shown[1]}", "detail": "auto"}

    def _answer(self, message: AssistantMessage, model: str) -> list[bytes]:
        own = message.provider == self._provider and same_model(model, message.model)
        items: list[bytes] = []
        thoughts: list[bytes] = []  # an item of reasoning is refused where nothing follows that it led to (B093)
        for block in message.content:
            if isinstance(block, Thinking):
                thoughts += _thought(block) if own else ()
                continue
            said = _call(block) if isinstance(block, ToolCall) else _text(block, own)
            if said is not None:
                items += [*thoughts, encode_json(said)]
                thoughts = []
        return items


def _content(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Text alone is plain text, which every server understands."""
    if all(part["type"] == "input_text" for part in parts):
        return "\n".join([part["text"] for part in parts])
    return parts


def _text(block: Text, own: bool) -> dict[str, Any] | None:
    if is_blank(block.text):
        return None
    # llama.cpp knows an answer by its type alone: test_an_answer_says_that_it_is_a_message.
    message: dict[str, Any] = {"type": "message", "role": "assistant", "content": safe_text(block.text)}
    phase = object_of(loads_or_none(block.signature or "")).get("phase") if own else None
    return message | ({"phase": phase} if phase in ("commentary", "final_answer") else {})


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": CALL_IDS.fit(call.id),
        "name": _ANY_NAME.wire(call.name),
        "arguments": object_arguments(call),
    }


def _thought(block: Thinking) -> list[bytes]:
    """The item of reasoning as it came; one that the service could not make sense of does not go back."""
    item = object_of(loads_or_none(block.signature or ""))
    item_id, secret = text_of(item.get("id")), text_of(item.get("encrypted_content"))
    content = _reasoning_parts(item.get("content"), "reasoning_text")
    if not item_id or not (secret or content) or not is_safe(item_id + secret):
        return []
    summary = _reasoning_parts(item.get("summary"), "summary_text")
    kept: dict[str, Any] = {"type": "reasoning", "id": item_id, "summary": summary}
    if content:
        kept["content"] = content
    if secret:
        kept["encrypted_content"] = secret
    return [encode_json(kept)]


def _reasoning_parts(parts: Any, kind: str) -> list[dict[str, str]]:
    return [{"type": kind, "text": safe_text(text_of(part.get("text")))} for part in objects_of(parts)]


def _tool(tool: ToolSpec, names: ToolNames, *, strict: bool) -> dict[str, Any]:
    schema, is_strict = root_schema(tool, strict=strict)
    written: dict[str, Any] = {"type": "function", "name": names.wire(tool.name), "parameters": safe_json(schema)}
    if not is_blank(tool.description):
        written["description"] = safe_text(tool.description)
    # This API takes a schema for strict unless it is told otherwise.
    return written | {"strict": is_strict}


def _tool_settings(settings: ModelSettings, names: ToolNames, tools: tuple[ToolSpec, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    choice = settings.tool_choice
    if choice in ("auto", "none", "required"):
        found["tool_choice"] = choice
    elif choice is not None:
        found["tool_choice"] = {"type": "function", "name": chosen(choice, names, tools)}
    if settings.parallel_tool_calls is not None:
        found["parallel_tool_calls"] = settings.parallel_tool_calls
    return found


def _settings(settings: ModelSettings, *, sampling: bool) -> dict[str, Any]:
    """Models that think refuse to be told how to draw their words."""
    wanted: dict[str, Any] = {"max_output_tokens": settings.max_output_tokens}
    if sampling:
        wanted |= {"temperature": settings.temperature, "top_p": settings.top_p}
    return {key: value for key, value in wanted.items() if value is not None}


def _cache_key(system_prompt: str, tools: list[dict[str, Any]]) -> str:
    """The same for all turns of a conversation, so that they meet the same cache."""
    return hashlib.sha256(encode_json([system_prompt, tools])).hexdigest()[:32]


def _digest(model: str, items: Iterable[bytes]) -> bytes:
    digest = hashlib.sha256(safe_text(model).encode())
    for item in items:
        digest.update(b"\0" + item)
    return digest.digest()


def _is_as_told(message: AssistantMessage, told: Told) -> bool:
    """Whether history has the answer as the service gave it: nobody changed it, and no call's id was replaced."""
    calls = tuple([(call.id, call.raw) for call in message.tool_calls])
    return message.text == told.text and calls == tuple(
        [(call_id, arguments_text(None, raw)) for call_id, raw in told.calls]
    )
