"""What a model without a tool template is told: its tools in words, and earlier calls and results as text.

Here live pure functions from a request to the messages that are sent. What the model may reply is in
`_grammar_schema.py`, and how a reply is read in `_grammar_reply.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from .._json import dumps, loads_or_none
from .._messages import (
    AssistantMessage,
    Message,
    Text,
    ToolCall,
    ToolResultMessage,
    UserBlock,
    UserMessage,
)
from .._request import ToolSpec
from ._json_values import list_of, object_of, text_of

_CHOICES_SHOWN: Final = 8


def tools_prompt(tools: Sequence[ToolSpec], *, answer: bool) -> str:
    """The tools with their parameters, and how to reply."""
    lines = ["You answer with JSON. You have these tools:"]
    for spec in tools:
        lines += _tool_lines(spec)
    lines.append('To use a tool: {"tool": its name, "arguments": its parameters}.')
    if answer:
        lines.append('Otherwise: {"answer": your text}.')
    return "\n".join(lines)


def _tool_lines(spec: ToolSpec) -> Iterable[str]:
    schema = spec.parameters
    properties = object_of(schema.get("properties"))
    required = list_of(schema.get("required"))
    named = [name if name in required else f"{name}?" for name in properties]
    yield f"- {spec.name}({', '.join(named)}): {_one_line(spec.description)}"
    for name, inner in properties.items():
        if described := _described(inner):
            yield f"    {name}: {described}"


def _described(schema: Any) -> str:
    source = object_of(schema)
    parts = [_kind(source), _one_line(text_of(source.get("description")))]
    return ", ".join([part for part in parts if part])


def _kind(schema: dict[str, Any]) -> str:
    """What a value may be, in few words; plain strings and long lists of choices are left to the grammar."""
    if choices := list_of(schema.get("enum")):
        return "one of " + ", ".join(map(dumps, choices)) if len(choices) <= _CHOICES_SHOWN else ""
    kind = schema.get("type")
    if kind == "string" or not schema:
        return ""
    return kind if isinstance(kind, str) and kind not in ("object", "array") else dumps(schema)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def as_text(messages: Iterable[Message], *, json: bool) -> list[Message]:
    """The conversation with calls and results as text, roles alternating as many templates demand.

    With `json` the model's own messages look as `reply_schema` would have had them. Without, a call is told together
    with its result, in the user's voice: a small model says again what it sees itself saying.
    """
    out: list[Message] = []
    calls: dict[str, ToolCall] = {}
    for message in messages:
        if isinstance(message, AssistantMessage):
            calls.update({call.id: call for call in message.tool_calls})
            if text := _spoken_json(message) if json else message.text:
                _append(out, AssistantMessage(text))
        elif isinstance(message, ToolResultMessage):
            _append(out, UserMessage(_result(message, None if json else calls.get(message.tool_call_id))))
        elif isinstance(message, UserMessage):
            _append(out, message)
    return out


def _append(out: list[Message], message: UserMessage | AssistantMessage) -> None:
    last = out[-1] if out else None
    if isinstance(message, UserMessage) and isinstance(last, UserMessage):
        out[-1] = _joined(last, message.content)
    elif isinstance(message, AssistantMessage) and isinstance(last, AssistantMessage):
        out[-1] = AssistantMessage(f"{last.text}\n{message.text}")
    else:
        out.append(message)


def _joined(first: UserMessage, content: Iterable[UserBlock]) -> UserMessage:
    return UserMessage(_fused([*first.content, Text("\n\n"), *content]))


def _fused(content: Iterable[UserBlock]) -> Iterable[UserBlock]:
    """The blocks with texts that meet made one: not every server takes a list of them."""
    blocks: list[UserBlock] = []
    for block in content:
        if isinstance(block, Text) and blocks and isinstance(last := blocks[-1], Text):
            blocks[-1] = Text(last.text + block.text)
        else:
            blocks.append(block)
    return blocks


def _result(message: ToolResultMessage, call: ToolCall | None) -> Iterable[UserBlock]:
    verb = "failed" if message.is_error else "returned"
    arguments = f" {call.raw}" if call is not None else ""
    return _fused([Text(f"{message.tool_name}{arguments} {verb}:\n"), *message.content])


def _spoken_json(message: AssistantMessage) -> str:
    answer = [dumps({"answer": message.text})] if message.text else []
    return "\n".join([*answer, *map(_call_json, message.tool_calls)])


def _call_json(call: ToolCall) -> str:
    arguments = loads_or_none(call.raw)
    return dumps({"tool": call.name, "arguments": call.raw if arguments is None else arguments})


def with_reminder(messages: Sequence[Message], question: str) -> list[Message]:
    """The messages, the last of them repeating what was asked: by then a small model has lost sight of it."""
    if not question or not messages or not isinstance(last := messages[-1], UserMessage):
        return list(messages)
    return [*messages[:-1], _joined(last, [Text(f"Now answer my question: {question}")])]
