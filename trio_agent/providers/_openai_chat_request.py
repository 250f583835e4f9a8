"""A request in the words of Chat Completions.

Here lives the writing alone; pairing and names are in `_conversation.py`, the servers' differences in
`_openai_chat_dialect.py`. Each message is written once and kept (`_fragments.py`). Nothing here waits.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from itertools import groupby
from typing import Any

import attrs
import msgspec

from .._errors import ProviderError
from .._messages import AssistantMessage, Image, Text, Thinking, ToolCall, ToolResultMessage, UserBlock, UserMessage
from .._request import ModelRequest, ModelSettings, ToolSpec
from ._conversation import (
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
from ._openai_chat_dialect import ChatDialect
from ._schemas import wire_schema

_NO_TEXT = "(no text)"
_NO_OUTPUT = "(no output)"
_SEE_BELOW = "(the images are in the user message below)"
_USER = b'{"role":"user","content":'  # how every user message of ours begins


@attrs.frozen
class _Written:
    """A message on the wire: its own JSON, and the content parts that must go into a user message behind its group."""

    json: bytes
    image_parts: tuple[bytes, ...] = ()


_NOTHING = _Written(b"")


class ChatRequestWriter:
    """Writes requests for one provider. What it writes of a message never changes while the message lives."""

    def __init__(self, dialect: ChatDialect, provider: str) -> None:
        self._dialect = dialect
        self._provider = provider
        self._fragments: Fragments[_Written] = Fragments(self._message)
        self._tools: tuple[tuple[ToolSpec, ...], bytes, ToolNames] = ((), b"", ToolNames.of(()))

    def write(self, request: ModelRequest) -> tuple[bytes, ToolNames]:
        """The body, and what the tools are called in it. Raises `ProviderError` for what cannot be said."""
        tools, names = self._write_tools(request.tools)
        settings = request.settings
        body: dict[str, Any] = {
            "model": request.model,
            "messages": msgspec.Raw(self._messages(request)),
            "stream": True,
        }
        if self._dialect.stream_usage:
            body["stream_options"] = {"include_usage": True}
        if tools:
            body["tools"] = msgspec.Raw(tools)
            body |= _tool_settings(settings, names, request.tools)
        if self._dialect.cache_key:
            body["prompt_cache_key"] = _cache_key(request.system_prompt, tools)
        body |= self._settings(settings)
        body |= self._dialect.reasoning(request.reasoning)
        return encode_json(body | safe_json(settings.extra_body)), names

    def _settings(self, settings: ModelSettings) -> dict[str, Any]:
        wanted = {
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            self._dialect.max_tokens_field: settings.max_output_tokens,
            "stop": list(settings.stop) or None,
            "seed": settings.seed,
        }
        return {key: value for key, value in wanted.items() if value is not None}

    def _write_tools(self, tools: tuple[ToolSpec, ...]) -> tuple[bytes, ToolNames]:
        known, written, names = self._tools
        if tools is not known and tools != known:
            names = ToolNames.of([tool.name for tool in tools])
            written = encode_json([self._tool(tool, names) for tool in tools])
            self._tools = (tools, written, names)
        return (written, names) if tools else (b"", names)

    def _tool(self, tool: ToolSpec, names: ToolNames) -> dict[str, Any]:
        schema, strict = wire_schema(tool, strict=self._dialect.strict_tools)
        function: dict[str, Any] = {"name": names.wire(tool.name), "parameters": safe_json(schema)}
        if not is_blank(tool.description):
            function["description"] = safe_text(tool.description)
        if strict:
            function["strict"] = True
        return {"type": "function", "function": function}

    def _messages(self, request: ModelRequest) -> bytes:
        written: list[bytes] = []
        if not is_blank(request.system_prompt):
            written.append(
                encode_json({"role": self._dialect.system_role, "content": safe_text(request.system_prompt)})
            )
        images: list[bytes] = []
        of = self._fragments.of
        model = request.model
        for message in paired(request.messages):
            if images and type(message) is not ToolResultMessage:
                written.append(_user_message(images))
                images = []
            fragment = of(message, model)
            if fragment.json:
                written.append(fragment.json)
            if fragment.image_parts:
                images += fragment.image_parts
        if images:
            written.append(_user_message(images))
        if not written:
            raise ProviderError("invalid_request", "the request holds no message; give it a prompt")
        if self._dialect.merge_users:
            written = _with_users_merged(written)
        return b"[" + b",".join(written) + b"]"

    def _message(self, message: Sendable, model: str) -> _Written:
        if isinstance(message, UserMessage):
            return _Written(encode_json({"role": "user", "content": self._user_content(message.content)}))
        if isinstance(message, ToolResultMessage):
            return self._result(message)
        return self._assistant(message, model)

    def _user_content(self, blocks: Iterable[UserBlock]) -> Any:
        parts = [part for part in map(self._part, blocks) if part is not None]
        if not parts:
            return _NO_TEXT
        if all("text" in part for part in parts):
            # Plain text is what every server understands, also those that know no parts.
            return "\n".join([part["text"] for part in parts])
        return parts

    def _part(self, block: UserBlock) -> dict[str, Any] | None:
        if isinstance(block, Text):
            return None if is_blank(block.text) else {"type": "text", "text": safe_text(block.text)}
        if not self._dialect.images:
            return {
                "type": "text",
                "text": f"[an image ({safe_text(block.media_type)}) that this model cannot be shown]",
            }
        data = base64.b64encode(block.data).decode("ascii")
        return {"type": "image_url", "image_url": {"url": f"data:{block.media_type};base64,{data}"}}

    def _result(self, message: ToolResultMessage) -> _Written:
        texts = [
            safe_text(block.text) for block in message.content if isinstance(block, Text) and not is_blank(block.text)
        ]
        images = [block for block in message.content if isinstance(block, Image)]
        parts = [part for part in map(self._part, images) if part is not None]
        if not self._dialect.images:
            texts += [part["text"] for part in parts]
            parts = []
        text = "\n".join(texts) or (_SEE_BELOW if parts else _NO_OUTPUT)
        call_id = self._dialect.call_ids.fit(message.tool_call_id)
        json = encode_json({"role": "tool", "tool_call_id": call_id, "content": text})
        if not parts:
            return _Written(json)
        label = {"type": "text", "text": f"[images of the result of {safe_text(message.tool_name)}, call {call_id}]"}
        return _Written(json, tuple([encode_json(part) for part in (label, *parts)]))

    def _assistant(self, message: AssistantMessage, model: str) -> _Written:
        text = "".join([block.text for block in message.content if isinstance(block, Text)])
        calls = message.tool_calls
        if is_blank(text) and not calls:
            return _NOTHING
        body: dict[str, Any] = {"role": "assistant"}
        body["content"] = self._dialect.empty_content if is_blank(text) else safe_text(text)
        if calls:
            body["tool_calls"] = [self._call(call) for call in calls]
            if message.provider == self._provider and same_model(model, message.model):
                body |= self._reasoning(message)
        return _Written(encode_json(body))

    def _call(self, call: ToolCall) -> dict[str, Any]:
        function = {"name": ToolNames.of(()).wire(call.name), "arguments": object_arguments(call)}
        return {"id": self._dialect.call_ids.fit(call.id), "type": "function", "function": function}

    def _reasoning(self, message: AssistantMessage) -> dict[str, Any]:
        field = self._dialect.reasoning_field
        thoughts = [block for block in message.content if isinstance(block, Thinking)]
        if field is None or not thoughts:
            return {}
        if field == "reasoning_details":
            return {field: [detail for block in thoughts for detail in _details(block)]}
        return {field: safe_text("".join([block.text for block in thoughts]))}


def _details(block: Thinking) -> list[dict[str, Any]]:
    """OpenRouter's details: opaque ones as they came, text with the signature that proves it."""
    if block.redacted is not None:
        try:
            value = msgspec.json.decode(block.redacted)
        except msgspec.DecodeError:
            return []
        return [safe_json(value)] if isinstance(value, dict) else []
    detail: dict[str, Any] = {"type": "reasoning.text", "text": safe_text(block.text)}
    if block.signature is not None and is_safe(block.text + block.signature):
        # Among the formats only Anthropic's signs text.
        detail |= {"signature": block.signature, "format": "anthropic-claude-v1", "index": 0}
    return [detail]


def _cache_key(system_prompt: str, tools: bytes) -> str:
    return hashlib.sha256(safe_text(system_prompt).encode() + b"\0" + tools).hexdigest()[:32]


def _user_message(parts: list[bytes]) -> bytes:
    return _USER + b"[" + b",".join(parts) + b"]}"


def _with_users_merged(written: list[bytes]) -> list[bytes]:
    """One user message for each row of them."""
    merged: list[bytes] = []
    for is_user, row in groupby(written, key=lambda message: message.startswith(_USER)):
        messages = list(row)
        if is_user and len(messages) > 1:
            messages = [_merged([message.removeprefix(_USER)[:-1] for message in messages])]
        merged += messages
    return merged


def _merged(contents: list[bytes]) -> bytes:
    """A user message of several contents. Texts stay plain text as long as there is nothing else."""
    if any(not content.startswith(b'"') for content in contents):
        return _user_message([_as_parts(content) for content in contents])
    text = "\n\n".join([msgspec.json.decode(content, type=str) for content in contents])
    return _USER + encode_json(text) + b"}"


def _as_parts(content: bytes) -> bytes:
    """The content parts, without the brackets around them."""
    return b'{"type":"text","text":' + content + b"}" if content.startswith(b'"') else content[1:-1]


def _tool_settings(settings: ModelSettings, names: ToolNames, tools: tuple[ToolSpec, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    choice = settings.tool_choice
    if choice in ("auto", "none", "required"):
        found["tool_choice"] = choice
    elif choice is not None:
        if all(tool.name != choice for tool in tools):
            raise ProviderError(
                "invalid_request", f"tool_choice names {choice!r}, which is none of the request's tools"
            )
        found["tool_choice"] = {"type": "function", "function": {"name": names.wire(choice)}}
    if settings.parallel_tool_calls is not None:
        found["parallel_tool_calls"] = settings.parallel_tool_calls
    return found
