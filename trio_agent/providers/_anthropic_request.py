"""A request in the words of Anthropic's Messages API.

Here lives the writing alone; pairing and names are in `_conversation.py`, what single models want in
`_anthropic_models.py`. Each message is written once and kept (`_fragments.py`). Nothing here waits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias

import attrs
import msgspec

from .._errors import ProviderError
from .._messages import AssistantMessage, Image, Text, Thinking, ToolCall, ToolResultMessage, UserMessage
from .._request import ModelRequest, ModelSettings, ToolSpec
from ._anthropic_models import ClaudeModel
from ._conversation import Alphabet, Sendable, ToolNames, is_blank, is_safe, paired, safe_json, safe_text, same_model
from ._fragments import Fragments, encode_json
from ._json_values import object_of
from ._objects import chosen, embedded_arguments, is_recursive, root_schema, shown_image, without

CacheTime: TypeAlias = Literal["5m", "1h"]

CALL_IDS: Final = Alphabet.of("a-zA-Z0-9_-", 64)
_ANY_NAME: Final = ToolNames.of(())
_NO_TEXT: Final = b'{"type":"text","text":"(no text)"}'
_GO_ON: Final = b'{"type":"text","text":"(go on)"}'
_BEGIN: Final = b'{"type":"text","text":"(what came before is not shown)"}'
_NOT_FOR_STRICT: Final = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
    *("minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "contains", "patternProperties"),
)


@attrs.frozen
class _Written:
    """A message on the wire: its blocks, what must stand behind the results of its group, and what it calls."""

    role: Literal["user", "assistant"]
    blocks: tuple[bytes, ...]
    behind: tuple[bytes, ...] = ()
    calls: tuple[str, ...] = ()
    thinks_first: bool = False


@attrs.define
class _Turn:
    """Messages of one role in a row, which are one message for this API."""

    role: str
    blocks: list[bytes] = attrs.field(factory=list[bytes])
    behind: list[bytes] = attrs.field(factory=list[bytes])
    thinks_first: bool = False
    has_results: bool = False

    def json(self, cache: bytes = b"") -> bytes:
        blocks = self.blocks + self.behind
        if cache:
            blocks[-1] = blocks[-1][:-1] + b"," + cache + b"}"
        return b'{"role":"' + self.role.encode() + b'","content":[' + b",".join(blocks) + b"]}"


class MessagesWriter:
    """Writes requests for one provider. What it writes of a message never changes while the message lives."""

    def __init__(self, provider: str, cache: CacheTime | None) -> None:
        self._provider = provider
        self._fragments: Fragments[_Written] = Fragments(self._message)
        ttl = ',"ttl":"1h"' if cache == "1h" else ""
        self._cache = b'"cache_control":{"type":"ephemeral"%s}' % ttl.encode() if cache else b""

    def write(self, request: ModelRequest) -> tuple[bytes, ToolNames]:
        """The body, and what the tools are called in it. Raises `ProviderError` for what cannot be said."""
        model, settings = ClaudeModel.named(request.model), request.settings
        written = [self._fragments.of(message, request.model) for message in paired(request.messages)]
        turns = _turns(written)
        if not turns:
            raise ProviderError("invalid_request", "the request holds no message; give it a prompt")
        max_tokens = settings.max_output_tokens or model.max_tokens
        names = ToolNames.of([tool.name for tool in request.tools])
        body: dict[str, Any] = {"model": request.model, "max_tokens": max_tokens, "stream": True}
        if not is_blank(request.system_prompt):
            body["system"] = msgspec.Raw(b"[" + self._marked(_text(request.system_prompt)) + b"]")
        body["messages"] = msgspec.Raw(self._conversation(turns))
        body |= self._tools(request, names, model, written)
        thinking = self._thinking(request, model, max_tokens, body, turns)
        body |= thinking
        body |= _settings(settings, model.sampling and "thinking" not in thinking)
        return encode_json(body | safe_json(settings.extra_body)), names

    def _conversation(self, turns: list[_Turn]) -> bytes:
        """The messages, with the marks up to which they are to be cached.

        They stand at the end of the last two user messages: the earlier one is where the request before this one had
        its last mark, so that what that had cached is found again however much has been added since.
        """
        users = [at for at, turn in enumerate(turns) if turn.role == "user"]
        marked = set(users[-2:]) if self._cache else ()
        found = [turn.json(self._cache if at in marked else b"") for at, turn in enumerate(turns)]
        return b"[" + b",".join(found) + b"]"

    def _marked(self, block: bytes) -> bytes:
        return block[:-1] + b"," + self._cache + b"}" if self._cache else block

    def _tools(
        self, request: ModelRequest, names: ToolNames, model: ClaudeModel, written: Sequence[_Written]
    ) -> dict[str, Any]:
        if not request.tools:
            # Calls in the conversation without any tool are refused, as when one is summed up without tools.
            called = dict.fromkeys(itertools.chain.from_iterable([message.calls for message in written]))
            schema = root_schema(ToolSpec("", "", {}), strict=False)[0]
            gone = [{"name": name, "input_schema": schema} for name in called]
            return {"tools": gone, "tool_choice": {"type": "none"}} if gone else {}
        tools = [encode_json(_tool(tool, names, model)) for tool in request.tools]
        tools[-1] = self._marked(tools[-1])
        return {"tools": msgspec.Raw(b"[" + b",".join(tools) + b"]"), **_tool_choice(request, names)}

    def _thinking(
        self, request: ModelRequest, model: ClaudeModel, max_tokens: int, body: dict[str, Any], turns: list[_Turn]
    ) -> dict[str, Any]:
        """The dial, except where the API would refuse to think: under a forced call, and in a turn begun without."""
        if object_of(body.get("tool_choice")).get("type") in ("any", "tool"):
            return {}
        if not model.adaptive and not _thought_before(turns):
            return {}
        return model.thinking(request.reasoning, max_tokens)

    def _message(self, message: Sendable, model: str) -> _Written:
        if isinstance(message, UserMessage):
            return _Written("user", tuple(_parts(message.content)) or (_NO_TEXT,))
        if isinstance(message, ToolResultMessage):
            return _result(message)
        return self._assistant(message, model)

    def _assistant(self, message: AssistantMessage, model: str) -> _Written:
        own = message.provider == self._provider and same_model(model, message.model)
        blocks: list[bytes] = []
        thoughts: list[bytes] = []  # not the last word: an answer that ends in them is refused
        for block in message.content:
            if isinstance(block, Thinking):
                thoughts += _thought(block) if own else ()
                continue
            shown = _call(block) if isinstance(block, ToolCall) else _parts([block])
            if shown:
                blocks += [*thoughts, *shown]
                thoughts = []
        names = tuple([_ANY_NAME.wire(call.name) for call in message.tool_calls])
        thinks_first = bool(blocks) and blocks[0].startswith((b'{"type":"thinking"', b'{"type":"redacted'))
        return _Written("assistant", tuple(blocks), calls=names, thinks_first=thinks_first)


def _turns(written: Iterable[_Written]) -> list[_Turn]:
    """Messages of one role in a row joined, a user's words first and last. Results stand first in their message."""
    turns: list[_Turn] = []
    for message in written:
        if not message.blocks:
            continue
        if not turns or turns[-1].role != message.role:
            turns.append(_Turn(message.role, thinks_first=message.thinks_first))
        turn = turns[-1]
        is_result = message.blocks[0].startswith(b'{"type":"tool_result"')
        turn.has_results = turn.has_results or is_result
        if not is_result and turn.behind:
            turn.blocks += turn.behind
            turn.behind = []
        turn.blocks += message.blocks
        turn.behind += message.behind
    if turns and turns[0].role == "assistant":
        turns.insert(0, _Turn("user", [_BEGIN]))
    if turns and turns[-1].role == "assistant":
        turns.append(_Turn("user", [_GO_ON]))
    return turns


def _thought_before(turns: list[_Turn]) -> bool:
    """Whether the answer whose calls have their results at the end began with thinking. Without such calls, it may.

    It has not where another model or another setting began it. An answer goes on through all its results.
    """
    began: _Turn | None = None
    for user, assistant in zip(turns[::-2], turns[-2::-2], strict=False):
        if not user.has_results:
            break
        began = assistant
    return began is None or began.thinks_first


def _text(text: str) -> bytes:
    return encode_json({"type": "text", "text": safe_text(text)})


def _parts(content: Iterable[Text | Image]) -> list[bytes]:
    return [part for block in content for part in _part(block)]


def _part(block: Text | Image) -> tuple[bytes, ...]:
    if isinstance(block, Text):
        return () if is_blank(block.text) else (_text(block.text),)
    shown = shown_image(block)
    if isinstance(shown, str):
        return (_text(shown),)
    source = {"type": "base64", "media_type": shown[0], "data": shown[1]}
    return (encode_json({"type": "image", "source": source}),)


def _result(message: ToolResultMessage) -> _Written:
    """Errors may hold text only; their images stand behind the results."""
    texts = _parts([block for block in message.content if isinstance(block, Text)])
    images = _parts([block for block in message.content if isinstance(block, Image)])
    call_id = CALL_IDS.fit(message.tool_call_id)
    content = texts if message.is_error else _parts(message.content)
    if not content:
        content = [_text("(the images are below)" if images else "(no output)")]
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id}
    result["content"] = msgspec.Raw(b"[" + b",".join(content) + b"]")
    if not message.is_error:
        return _Written("user", (encode_json(result),))
    result["is_error"] = True
    label = [_text(f"[images of the result of {message.tool_name}, call {call_id}]")] if images else []
    return _Written("user", (encode_json(result),), tuple(label + images))


def _thought(block: Thinking) -> tuple[bytes, ...]:
    """Thinking as it came; what nothing proves does not go back."""
    if not is_safe(block.text + (block.signature or "") + (block.redacted or "")):
        return ()
    if block.redacted is not None:
        return (encode_json({"type": "redacted_thinking", "data": block.redacted}),) if block.redacted else ()
    if not block.signature:
        return ()
    return (encode_json({"type": "thinking", "thinking": block.text, "signature": block.signature}),)


def _call(call: ToolCall) -> list[bytes]:
    name, call_id = _ANY_NAME.wire(call.name), CALL_IDS.fit(call.id)
    return [encode_json({"type": "tool_use", "id": call_id, "name": name, "input": embedded_arguments(call)})]


def _tool(tool: ToolSpec, names: ToolNames, model: ClaudeModel) -> dict[str, Any]:
    schema, strict = root_schema(tool, strict=model.strict)
    if strict and is_recursive(schema):
        schema, strict = root_schema(tool, strict=False)
    if strict:
        schema = without(schema, _NOT_FOR_STRICT)
    written: dict[str, Any] = {"name": names.wire(tool.name)}
    if not is_blank(tool.description):
        written["description"] = safe_text(tool.description)
    written["input_schema"] = safe_json(schema)
    return written | ({"strict": True} if strict else {})


def _tool_choice(request: ModelRequest, names: ToolNames) -> dict[str, Any]:
    choice, parallel = request.settings.tool_choice, request.settings.parallel_tool_calls
    if choice is None and parallel is None:
        return {}
    kinds = {None: "auto", "auto": "auto", "none": "none", "required": "any"}
    if choice in kinds:
        found: dict[str, Any] = {"type": kinds[choice]}
    else:
        found = {"type": "tool", "name": chosen(choice or "", names, request.tools)}
    if parallel is not None and choice != "none":
        found["disable_parallel_tool_use"] = not parallel
    return {"tool_choice": found}


def _settings(settings: ModelSettings, sampling: bool) -> dict[str, Any]:
    """Models that think, and all newer ones, refuse to be told how to draw their words."""
    stops = [safe_text(stop) for stop in settings.stop if not is_blank(stop)]
    wanted: dict[str, Any] = {"stop_sequences": stops or None}
    if sampling:
        wanted |= {"temperature": settings.temperature, "top_p": settings.top_p}
    return {key: value for key, value in wanted.items() if value is not None}
