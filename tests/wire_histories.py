"""Random histories, of every shape and from every provider, and what no request may hold whatever its API.

Here live Hypothesis strategies that the tests of the wires' requests draw from. No API is known here.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from hypothesis import strategies as st

from trio_agent import (
    AssistantMessage,
    CustomMessage,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from trio_agent._request import ModelSettings, ToolSpec

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16
OBJECT = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0}}, "required": ["a"]}
UNION = {"anyOf": [OBJECT, {"type": "object", "properties": {"b": {"type": "string"}}}]}
NESTED = {
    "type": "object",
    "properties": {"t": {"$ref": "#/$defs/Tree"}, "c": {"enum": ["x", "y"]}},
    "$defs": {"Tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/Tree"}}}},
}

TEXTS = st.one_of(st.text(max_size=20), st.sampled_from(["", " ", "\n", "\ud800", "a\0b", "hello", "\ud83d\ude00"]))
RAWS = st.one_of(
    st.sampled_from(
        ["", "null", "{}", "[]", "3", "{", '{"a": 1}', '{"a":"\ud800"}', "[" * 50, '{"a":"\\ud800\\u0000"}', "NaN"]
    ),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=3).map(json.dumps),
)
IDS = st.one_of(st.sampled_from(["", "k1", "k2", "call_1", "toolu_01", "a" * 70, "é/ü", "call:1"]), st.text(max_size=8))
NAMES = st.one_of(st.sampled_from(["f", "files.read", "mcp__x__" + "y" * 80, "ü"]), st.text(min_size=1, max_size=8))
IMAGES = st.builds(Image, st.binary(max_size=9), st.sampled_from(["image/png", "image/jpeg", "image/tiff", ""]))
BLOCKS = st.one_of(st.builds(Text, TEXTS), IMAGES)
SIGNATURES = st.one_of(
    st.sampled_from(["a\0b", "\ud800", '{"id":"a\\u0000b","encrypted_content":"x"}']),
    st.binary(min_size=1, max_size=9).map(lambda data: base64.b64encode(data).decode()),
    st.text(max_size=5),
    st.builds(
        lambda call_id, text: json.dumps({"id": call_id, "encrypted_content": text}),
        st.text(max_size=5),
        st.none() | st.text(max_size=5),
    ),
)
SIGNED = st.none() | SIGNATURES
THOUGHTS = st.builds(Thinking, TEXTS, SIGNED, st.none() | st.text(max_size=5))
CALLS = st.builds(
    lambda call_id, name, raw, signature: ToolCall(call_id, name, raw=raw, signature=signature),
    IDS,
    NAMES,
    RAWS,
    SIGNED,
)
MODELS = st.sampled_from([None, "some-model", "claude-sonnet-4-6", "gpt-5", "gemini-3-pro"])
PROVIDERS = st.sampled_from([None, "openai-chat", "openai-responses", "anthropic", "gemini"])
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(UserMessage, st.lists(BLOCKS, max_size=3)),
    st.builds(
        AssistantMessage,
        st.lists(st.one_of(st.builds(Text, TEXTS, SIGNED), THOUGHTS, CALLS), max_size=4),
        st.sampled_from(["stop", "length", "tool_use", "error", "aborted"]),
        model=MODELS,
        provider=PROVIDERS,
        response_id=st.sampled_from([None, "r1", "r2"]),
    ),
    st.builds(ToolResultMessage, IDS, NAMES, st.lists(BLOCKS, max_size=2), st.booleans()),
    st.builds(CustomMessage, st.just("note"), st.just(None)),
)
TOOLS = st.lists(
    st.builds(
        ToolSpec,
        NAMES,
        TEXTS,
        st.sampled_from([OBJECT, {}, {"type": "object"}, UNION, NESTED]),
        st.sampled_from([None, True, False]),
    ),
    max_size=3,
    unique_by=lambda tool: tool.name,
).map(tuple)
SETTINGS = st.builds(
    ModelSettings,
    temperature=st.sampled_from([None, 0.0, 0.7]),
    top_p=st.sampled_from([None, 0.9]),
    max_output_tokens=st.sampled_from([None, 1, 2000, 50_000]),
    stop=st.sampled_from([(), ("END",), (" ", "x")]),
    seed=st.sampled_from([None, 7]),
    tool_choice=st.sampled_from([None, "auto", "none", "required"]),
    parallel_tool_calls=st.sampled_from([None, True, False]),
)
REASONING: Any = st.sampled_from(["off", "minimal", "low", "medium", "high", "max"])


def requests() -> st.SearchStrategy[dict[str, Any]]:
    """The fields of a request, with a history of any shape (there is always one message to answer)."""
    return st.fixed_dictionaries(
        {
            "model": MODELS.map(lambda model: model or "some-model"),
            "messages": st.lists(MESSAGES, max_size=8).map(lambda messages: [*messages, UserMessage("go")])
            | st.lists(MESSAGES, max_size=8).map(lambda messages: [UserMessage("go"), *messages]),
            "tools": TOOLS,
            "settings": SETTINGS,
            "reasoning": REASONING,
            "system_prompt": TEXTS,
        }
    )


def assert_no_unsafe_text(value: Any) -> None:
    """No NUL and no half of a character in any text."""
    if isinstance(value, str):
        assert "\0" not in value
        value.encode()
    elif isinstance(value, dict):
        for key, item in value.items():
            assert_no_unsafe_text(key)
            assert_no_unsafe_text(item)
    elif isinstance(value, list):
        for item in value:
            assert_no_unsafe_text(item)
