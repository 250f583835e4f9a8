"""A request in the words of Gemini's API.

Here lives the writing alone; pairing is in `_conversation.py`, what single models want in `_gemini_models.py`. Each
message is written once and kept (`_fragments.py`). Nothing here waits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import attrs
import msgspec

from .._errors import ProviderError
from .._messages import AssistantMessage, Image, Text, Thinking, ToolCall, ToolResultMessage, UserMessage, joined_text
from .._request import ModelRequest, ModelSettings, ToolSpec
from .._schema_strict import rewrite, with_enum_types
from ._conversation import Alphabet, Sendable, ToolNames, is_blank, paired, safe_json, safe_text, same_model
from ._fragments import Fragments, encode_json
from ._gemini_models import GeminiModel
from ._objects import chosen, embedded_arguments, root_schema, shown_image, without

_MADE_BY_US: Final = re.compile(r"call_\d+")  # as the kernel names a call to which the service gave no id
_SIGNATURE: Final = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")
# What the service's own manual gives for calls that another model made and that therefore nothing can sign.
_UNSIGNED: Final = "skip_thought_signature_validator"
_NO_TEXT: Final = b'{"text":"(no text)"}'
_GO_ON: Final = b'{"text":"(go on)"}'
_BEGIN: Final = b'{"text":"(what came before is not shown)"}'
_NOT_KNOWN: Final = (
    *("$schema", "$id", "$comment", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "pattern", "minLength"),
    *("maxLength", "uniqueItems", "contains", "minContains", "maxContains", "patternProperties", "propertyNames"),
    *("not", "if", "then", "else", "allOf", "dependentRequired", "dependentSchemas", "default", "examples"),
    *("unevaluatedItems", "unevaluatedProperties", "minProperties", "maxProperties", "contentMediaType"),
)


@attrs.frozen
class _Names(Alphabet):
    """Names here begin with a letter or an underscore."""

    def fit(self, text: str) -> str:
        return text if self.pattern.fullmatch(text) else f"t_{_REST.fit(text)}"


_REST: Final = Alphabet.of("a-zA-Z0-9_-", 62)
_NAMES: Final = _Names(re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}"), 64)


@attrs.frozen
class _Written:
    """A message on the wire: its parts, and what must stand behind the results of its group."""

    role: Literal["user", "model"]
    parts: tuple[bytes, ...]
    behind: tuple[bytes, ...] = ()


@attrs.define
class _Turn:
    """Messages of one role in a row, which are one content for this API."""

    role: str
    parts: list[bytes] = attrs.field(factory=list[bytes])
    behind: list[bytes] = attrs.field(factory=list[bytes])

    def json(self) -> bytes:
        parts = b",".join(self.parts + self.behind)
        return b'{"role":"' + self.role.encode() + b'","parts":[' + parts + b"]}"


class GenerateContentWriter:
    """Writes requests for one provider. What it writes of a message never changes while the message lives."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._fragments: Fragments[_Written] = Fragments(self._message)

    def write(self, request: ModelRequest) -> tuple[bytes, ToolNames]:
        """The body, and what the tools are called in it. Raises `ProviderError` for what cannot be said."""
        model, settings = GeminiModel.named(request.model), request.settings
        turns = _turns(self._written(request, model))
        if not turns:
            raise ProviderError("invalid_request", "the request holds no message; give it a prompt")
        names = ToolNames.of([tool.name for tool in request.tools], _NAMES)
        body: dict[str, Any] = {}
        if not is_blank(request.system_prompt):
            body["systemInstruction"] = {"parts": [{"text": safe_text(request.system_prompt)}]}
        body["contents"] = msgspec.Raw(b"[" + b",".join([turn.json() for turn in turns]) + b"]")
        if request.tools:
            body["tools"] = [{"functionDeclarations": [_tool(tool, names) for tool in request.tools]}]
            body |= _tool_choice(settings, names, request.tools)
        if config := _settings(settings) | _nested("thinkingConfig", model.thinking(request.reasoning)):
            body["generationConfig"] = config
        return encode_json(body | safe_json(settings.extra_body)), names

    def _written(self, request: ModelRequest, model: GeminiModel) -> list[_Written]:
        """The messages as they are written. Whether a result names its call depends on whose the call was."""
        found: list[_Written] = []
        own = False
        for message in paired(request.messages):
            if isinstance(message, AssistantMessage):
                own = message.provider == self._provider
            found.append(self._fragments.of(message, (request.model, model, own)))
        return found

    def _message(self, message: Sendable, variant: tuple[str, GeminiModel, bool]) -> _Written:
        name, model, own = variant
        if isinstance(message, UserMessage):
            return _Written("user", tuple(_parts(message.content)) or (_NO_TEXT,))
        if isinstance(message, ToolResultMessage):
            return _result(message, model, own)
        signed = own and same_model(name, message.model)
        return _Written("model", tuple(_answer(message, own, signed, model)))


def _turns(written: Sequence[_Written]) -> list[_Turn]:
    """Messages of one role in a row joined, a user's words first and last."""
    turns: list[_Turn] = []
    for message in written:
        if not message.parts:
            continue
        if not turns or turns[-1].role != message.role:
            turns.append(_Turn(message.role))
        turn = turns[-1]
        if turn.behind and not message.parts[0].startswith(b'{"functionResponse"'):
            turn.parts += turn.behind
            turn.behind = []
        turn.parts += message.parts
        turn.behind += message.behind
    if turns and turns[0].role == "model":
        turns.insert(0, _Turn("user", [_BEGIN]))
    if turns and turns[-1].role == "model":
        turns.append(_Turn("user", [_GO_ON]))
    return turns


def _answer(message: AssistantMessage, own: bool, signed: bool, model: GeminiModel) -> list[bytes]:
    parts: list[bytes] = []
    first = True
    for block in message.content:
        signature = _signature(block.signature) if signed else ""
        if isinstance(block, Thinking):
            if signature:
                parts.append(encode_json(_thought(block.text) | {"thoughtSignature": signature}))
        elif isinstance(block, ToolCall):
            if first and not signed and model.levels:
                signature = _UNSIGNED
            first = False
            call: dict[str, Any] = {"name": _NAMES.fit(block.name), "args": embedded_arguments(block)}
            part = {"functionCall": call | _call_id(block.id, own)}
            parts.append(encode_json(part | _nested("thoughtSignature", signature)))
        elif not is_blank(block.text) or signature:
            parts.append(encode_json({"text": safe_text(block.text)} | _nested("thoughtSignature", signature)))
    return parts


def _thought(text: str) -> dict[str, Any]:
    # A signature without a text is no thought for this API, but a part of its own.
    return {"text": safe_text(text), "thought": True} if text else {"text": ""}


def _signature(signature: str | None) -> str:
    """The signature, if it is one of this service's: bytes in base64."""
    return signature if signature and _SIGNATURE.fullmatch(signature) and len(signature) % 4 == 0 else ""


def _nested(key: str, value: Any) -> dict[str, Any]:
    return {key: value} if value else {}


def _call_id(call_id: str, own: bool) -> dict[str, str]:
    """The id of a call, where the service had given it one (B097)."""
    return {"id": safe_text(call_id)} if own and call_id and not _MADE_BY_US.fullmatch(call_id) else {}


def _parts(content: Iterable[Text | Image]) -> list[bytes]:
    return [encode_json(part) for block in content if (part := _part(block)) is not None]


def _part(block: Text | Image) -> dict[str, Any] | None:
    if isinstance(block, Text):
        return None if is_blank(block.text) else {"text": safe_text(block.text)}
    shown = shown_image(block)
    return {"text": shown} if isinstance(shown, str) else _inline(shown)


def _inline(shown: tuple[str, str]) -> dict[str, Any]:
    return {"inlineData": {"mimeType": shown[0], "data": shown[1]}}


def _result(message: ToolResultMessage, model: GeminiModel, own: bool) -> _Written:
    """Images go into the result where the model knows them there, else behind the results of the group."""
    images = [shown_image(block) for block in message.content if isinstance(block, Image)]
    words = [joined_text([block]) for block in message.content if isinstance(block, Text)]
    words += [shown for shown in images if isinstance(shown, str)]
    shown = [_inline(image) for image in images if not isinstance(image, str)]
    text = "\n".join([safe_text(word) for word in words if not is_blank(word)])
    if not text:
        text = "(no output)" if not shown else "(see the images)" if model.nested_images else "(the images are below)"
    response: dict[str, Any] = {"name": _NAMES.fit(message.tool_name)}
    response["response"] = {"error" if message.is_error else "output": text}
    response |= _call_id(message.tool_call_id, own)
    if model.nested_images:
        response |= _nested("parts", shown)
        shown = []
    label = [{"text": f"[images of the result of {safe_text(message.tool_name)}]"}] if shown else []
    behind = tuple([encode_json(part) for part in [*label, *shown]])
    return _Written("user", (encode_json({"functionResponse": response}),), behind)


def _tool(tool: ToolSpec, names: ToolNames) -> dict[str, Any]:
    schema = without(_with_enums(root_schema(tool, strict=False)[0]), _NOT_KNOWN)
    written: dict[str, Any] = {"name": names.wire(tool.name)}
    if not is_blank(tool.description):
        written["description"] = safe_text(tool.description)
    return written | {"parametersJsonSchema": safe_json(schema)}


def _with_enums(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with each constant as the only value of an enum, and each enum with its type."""

    def change(part: dict[str, Any]) -> dict[str, Any]:
        if "const" not in part:
            return part
        return {**{key: value for key, value in part.items() if key != "const"}, "enum": [part["const"]]}

    changed: dict[str, Any] = with_enum_types(rewrite(schema, change))
    return changed


def _tool_choice(settings: ModelSettings, names: ToolNames, tools: tuple[ToolSpec, ...]) -> dict[str, Any]:
    """Whether calls may be parallel cannot be said to this API."""
    choice = settings.tool_choice
    if choice is None:
        return {}
    modes = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
    config: dict[str, Any] = {"mode": modes.get(choice, "ANY")}
    if choice not in modes:
        config["allowedFunctionNames"] = [chosen(choice, names, tools)]
    return {"toolConfig": {"functionCallingConfig": config}}


def _settings(settings: ModelSettings) -> dict[str, Any]:
    wanted = {
        "temperature": settings.temperature,
        "topP": settings.top_p,
        "maxOutputTokens": settings.max_output_tokens,
        "stopSequences": [safe_text(stop) for stop in settings.stop if stop] or None,
        "seed": settings.seed,
    }
    return {key: value for key, value in wanted.items() if value is not None}
