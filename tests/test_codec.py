"""Section 6 of the specification: messages and events to JSON and back."""

from __future__ import annotations

import cProfile
import json
import re
from typing import Any, get_args

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trio_agent._chunks import TextDelta, ThinkingDelta
from trio_agent._codec import decode, decode_line, encode, encode_line
from trio_agent._events import (
    AgentEnd,
    AgentStart,
    CompactionEnd,
    CompactionStart,
    Delta,
    ErrorInfo,
    Event,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    RetryEnd,
    RetryStart,
    ToolCallFragment,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnStart,
)
from trio_agent._messages import (
    AssistantMessage,
    Block,
    CustomMessage,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)

# -- strategies: every class, every field ------------------------------------------------------------------------

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
# Lone surrogates included. Two that make a pair are one character to JSON text, which cannot tell the two apart.
texts = st.text(st.characters(exclude_categories=[]), max_size=12).map(
    lambda text: _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)
)
maybe_text = st.none() | texts
finite = st.floats(allow_nan=False, allow_infinity=False)
numbers = st.integers() | finite
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
usages = st.builds(Usage, **{field.name: st.none() | st.integers(0) for field in attrs.fields(Usage)})
# Arguments as models write them: canonical, spaced, escaped, cut off, with numbers that Python spells otherwise.
raws = (
    json_values.map(lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    | json_values.map(json.dumps)
    | st.sampled_from(
        ['{"n":1.10}', '{"n":1E5}', '{"n":1e400}', '{"n":-0}', '{"a":1,"a":2}', '{"pa', "", " null ", "[1"]
    )
    | texts
)
calls = st.builds(
    lambda id, name, raw, signature: ToolCall(id, name, raw=raw, signature=signature), texts, texts, raws, maybe_text
)
text_blocks = st.builds(Text, texts, maybe_text)
user_content = st.lists(text_blocks | st.builds(Image, st.binary(max_size=9), texts), max_size=3)
thinkings = st.builds(Thinking, texts, maybe_text, maybe_text)
answers = st.builds(
    AssistantMessage,
    st.lists(text_blocks | thinkings | calls, max_size=4),
    st.sampled_from(["stop", "length", "tool_use", "error", "aborted", None]),
    usages,
    maybe_text,
    maybe_text,
    maybe_text,
    maybe_text,
)
results = st.builds(ToolResultMessage, texts, texts, user_content, st.booleans(), json_values)
messages = st.builds(UserMessage, user_content) | answers | results | st.builds(CustomMessage, texts, json_values)
text_deltas = st.builds(TextDelta, st.integers(), texts)
thinking_deltas = st.builds(ThinkingDelta, st.integers(), texts)
fragments = st.builds(ToolCallFragment, st.integers(), texts, texts, texts)
deltas = text_deltas | thinking_deltas | fragments
maybe_int = st.none() | st.integers()
times = st.floats(0, allow_nan=False, allow_infinity=False)
errors = st.builds(ErrorInfo, texts, texts, maybe_int)
OF: dict[type, st.SearchStrategy[Any]] = {
    Text: text_blocks,
    Thinking: thinkings,
    Image: st.builds(Image, st.binary(max_size=9), texts),
    ToolCall: calls,
    TextDelta: text_deltas,
    ThinkingDelta: thinking_deltas,
    ToolCallFragment: fragments,
    UserMessage: st.builds(UserMessage, user_content),
    AssistantMessage: answers,
    ToolResultMessage: results,
    CustomMessage: st.builds(CustomMessage, texts, json_values),
    AgentStart: st.builds(AgentStart, time=times),
    TurnStart: st.builds(TurnStart, st.integers(), time=times),
    MessageStart: st.builds(MessageStart, messages, time=times),
    MessageUpdate: st.builds(MessageUpdate, deltas, time=times, view=st.none(), length=st.just(0)),
    MessageEnd: st.builds(MessageEnd, messages, time=times),
    ToolExecutionStart: st.builds(ToolExecutionStart, calls, time=times),
    ToolExecutionUpdate: st.builds(ToolExecutionUpdate, texts, texts, user_content.map(tuple), time=times),
    ToolExecutionEnd: st.builds(ToolExecutionEnd, results, time=times),
    TurnEnd: st.builds(TurnEnd, st.integers(), answers, st.lists(results, max_size=2).map(tuple), time=times),
    RetryStart: st.builds(RetryStart, st.integers(), st.integers(), times, errors, time=times),
    RetryEnd: st.builds(RetryEnd, st.integers(), st.sampled_from(["resumed", "aborted", "failed"]), time=times),
    CompactionStart: st.builds(CompactionStart, st.sampled_from(["threshold", "overflow"]), maybe_int, time=times),
    CompactionEnd: st.builds(
        CompactionEnd,
        st.sampled_from(["compacted", "aborted", "failed"]),
        st.none() | messages,
        maybe_int,
        maybe_int,
        maybe_text,
        time=times,
    ),
    AgentEnd: st.builds(
        AgentEnd,
        st.sampled_from(["completed", "stopped", "aborted", "error"]),
        maybe_text,
        st.integers(),
        usages,
        maybe_text,
        time=times,
    ),
}
CLASSES = list(OF)
class_names = [cls.__name__ for cls in CLASSES]


def assert_same(one: Any, other: Any) -> None:
    assert one == other
    assert type(one) is type(other)
    assert getattr(one, "time", None) == getattr(other, "time", None)  # equality leaves time out


# -- both ways -----------------------------------------------------------------------------------------------------


def test_every_class_of_the_unions_is_tried() -> None:
    """No event, message, delta or block is missing from the property tests below."""
    assert set(CLASSES) == {*get_args(Event), *get_args(Message), *get_args(Delta), *get_args(Block)}


@pytest.mark.parametrize("cls", CLASSES, ids=class_names)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_decode_gives_back_what_encode_took(cls: type, data: st.DataObject) -> None:
    """A value of any class survives the way through a dict, time included."""
    value = data.draw(OF[cls])
    assert_same(decode(encode(value)), value)


@pytest.mark.parametrize("cls", CLASSES, ids=class_names)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_line_is_valid_utf8_on_one_line_and_loses_nothing(cls: type, data: st.DataObject) -> None:
    """A value of any class survives the way through one line of UTF-8, lone surrogates and any number included."""
    value = data.draw(OF[cls])
    line = encode_line(value)
    assert len(line.splitlines()) == 1
    written = line.encode("utf-8")
    assert_same(decode_line(written), value)
    assert_same(decode_line(line), value)
    assert decode(json.loads(written)) == value


@settings(max_examples=200)
@given(raw=raws)
def test_a_call_keeps_its_arguments_text(raw: str) -> None:
    """`raw` is there exactly where the text is not what writing `arguments` gives."""
    call = ToolCall("c1", "read", raw=raw)
    data = encode(call)
    rewritten = json.dumps(data["arguments"], ensure_ascii=False, separators=(",", ":"))
    assert data.get("raw", rewritten) == call.raw
    assert ("raw" in data) == (rewritten != call.raw)
    assert decode(data) == call


@pytest.mark.parametrize(
    "raw", ['{"pa', "NaN", '{"n":1e400}', '{"n":' + "1" * 5000 + "}", "[" * 200_000 + "]" * 200_000]
)
def test_arguments_that_python_cannot_hold_are_null_beside_their_text(raw: str) -> None:
    """Text that is no JSON, an infinite number, endless digits or nesting: `arguments` is null and `raw` has it all."""
    event = ToolExecutionStart(ToolCall("c1", "read", raw=raw))
    data = encode(event)
    assert data["arguments"] is None
    assert data["raw"] == raw
    assert decode_line(encode_line(event)) == event


def _deepest() -> int:
    """How deep JSON may nest before this Python gives up."""
    low, high = 1, 1 << 20
    while high - low > 1:
        middle = (low + high) // 2
        try:
            json.loads("[" * middle + "]" * middle)
            low = middle
        except RecursionError:
            high = middle
    return low


def test_nesting_at_the_edge_of_what_python_can_still_makes_a_line() -> None:
    """However deep a model nests its arguments, the event around them can be written and read."""
    edge = _deepest()
    for depth in range(edge - 60, edge + 5):
        event = MessageEnd(AssistantMessage((ToolCall("c", "t", raw='{"a":' * depth + "1" + "}" * depth),)))
        assert decode_line(encode_line(event)) == event


def test_a_pair_of_surrogates_is_read_back_as_its_character() -> None:
    """Two code points that make a pair are one character in JSON text, and in a dict stay as they are."""
    delta = TextDelta(0, "\ud83d\ude00")
    assert decode(encode(delta)) == delta
    assert decode_line(encode_line(delta)) == TextDelta(0, "😀")


# -- exactly as the specification shows ---------------------------------------------------------------------------

ANSWER = AssistantMessage([Text("hello"), ToolCall("c1", "read", {"path": "a"})], "tool_use", Usage(input=5))
ANSWER_JSON = {
    "role": "assistant",
    "content": [
        {"type": "text", "text": "hello"},
        {"type": "tool_call", "id": "c1", "name": "read", "arguments": {"path": "a"}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input": 5, "output": None, "cache_read": None, "cache_write": None, "reasoning": None, "total": None},
    "error_message": None,
}
RESULT = ToolResultMessage("c1", "read", "text")
RESULT_JSON = {
    "role": "tool_result",
    "tool_call_id": "c1",
    "tool_name": "read",
    "is_error": False,
    "content": [{"type": "text", "text": "text"}],
}
USAGE_JSON = dict.fromkeys(["input", "output", "cache_read", "cache_write", "reasoning", "total"])
EXAMPLES: list[tuple[Any, dict[str, Any]]] = [
    (AgentStart(), {"type": "agent_start"}),
    (TurnStart(1), {"type": "turn_start", "turn": 1}),
    (
        MessageStart(UserMessage("hi")),
        {"type": "message_start", "message": {"role": "user", "content": [{"type": "text", "text": "hi"}]}},
    ),
    (
        MessageUpdate(TextDelta(0, "he")),
        {"type": "message_update", "delta": {"type": "text_delta", "index": 0, "text": "he"}},
    ),
    (
        MessageUpdate(ThinkingDelta(0, "hm")),
        {"type": "message_update", "delta": {"type": "thinking_delta", "index": 0, "text": "hm"}},
    ),
    (
        MessageUpdate(ToolCallFragment(1, "c1", "read", '{"pa')),
        {
            "type": "message_update",
            "delta": {"type": "tool_call_delta", "index": 1, "id": "c1", "name": "read", "json": '{"pa'},
        },
    ),
    (MessageEnd(ANSWER), {"type": "message_end", "message": ANSWER_JSON}),
    (
        ToolExecutionStart(ToolCall("c1", "read", {"path": "a"})),
        {"type": "tool_execution_start", "tool_call_id": "c1", "tool_name": "read", "arguments": {"path": "a"}},
    ),
    (
        ToolExecutionStart(ToolCall("c1", "read", raw='{"path": "a"}', signature="s")),
        {
            "type": "tool_execution_start",
            "tool_call_id": "c1",
            "tool_name": "read",
            "arguments": {"path": "a"},
            "raw": '{"path": "a"}',
            "signature": "s",
        },
    ),
    (
        ToolExecutionUpdate("c1", "read", (Text("x"),)),
        {
            "type": "tool_execution_update",
            "tool_call_id": "c1",
            "tool_name": "read",
            "partial": [{"type": "text", "text": "x"}],
        },
    ),
    (
        ToolExecutionEnd(RESULT),
        {
            "type": "tool_execution_end",
            "tool_call_id": "c1",
            "tool_name": "read",
            "is_error": False,
            "result": RESULT_JSON,
        },
    ),
    (
        TurnEnd(1, ANSWER, (RESULT,)),
        {"type": "turn_end", "turn": 1, "message": ANSWER_JSON, "tool_results": [RESULT_JSON]},
    ),
    (
        RetryStart(1, 4, 1.7, ErrorInfo("overloaded", "busy", 529)),
        {
            "type": "retry_start",
            "attempt": 1,
            "max_attempts": 4,
            "delay": 1.7,
            "error": {"kind": "overloaded", "message": "busy", "status": 529},
        },
    ),
    (RetryEnd(1, "resumed"), {"type": "retry_end", "attempt": 1, "outcome": "resumed"}),
    (
        CompactionStart("threshold", 91000),
        {"type": "compaction_start", "reason": "threshold", "tokens": 91000},
    ),
    (
        CompactionEnd("compacted", UserMessage("sum"), 41, 12000),
        {
            "type": "compaction_end",
            "outcome": "compacted",
            "summary": {"role": "user", "content": [{"type": "text", "text": "sum"}]},
            "first_kept": 41,
            "tokens": 12000,
            "error": None,
        },
    ),
    (
        AgentEnd("completed", turns=3),
        {
            "type": "agent_end",
            "outcome": "completed",
            "reason": None,
            "turns": 3,
            "usage": USAGE_JSON,
            "error": None,
        },
    ),
]


@pytest.mark.parametrize(("value", "shown"), EXAMPLES, ids=[type(value).__name__ for value, _ in EXAMPLES])
def test_events_look_as_the_specification_shows_them(value: Any, shown: dict[str, Any]) -> None:
    """Each event has exactly the fields of section 6, and `time` beside them."""
    assert encode(value) == {**shown, "time": 0.0}
    assert decode(shown) == value


def test_what_is_seldom_there_is_written_only_where_present() -> None:
    """Images are base64; signatures, redacted data, details and a message's origin come only where there are any."""
    assert encode(Image(b"\x00\xff", "image/png")) == {"type": "image", "data": "AP8=", "media_type": "image/png"}
    assert encode(Thinking("", redacted="xyz")) == {"type": "thinking", "text": "", "redacted": "xyz"}
    assert encode(Text("a", "sig")) == {"type": "text", "text": "a", "signature": "sig"}
    assert encode(ToolResultMessage("c", "t", details={"n": 1}))["details"] == {"n": 1}
    assert encode(CustomMessage("note", [1])) == {"role": "custom", "kind": "note", "payload": [1]}
    message = encode(AssistantMessage("a", model="m", provider="p", response_id="r"))
    assert (message["model"], message["provider"], message["response_id"]) == ("m", "p", "r")


def test_ends_stay_proportional_to_their_turn() -> None:
    """`agent_end` and `turn_end` say nothing of earlier turns, so their length does not grow with the run."""
    assert len(encode_line(AgentEnd("completed", turns=100_000))) < 250
    assert set(encode(TurnEnd(9, ANSWER, (RESULT,)))) == {"type", "turn", "message", "tool_results", "time"}


def test_encode_refuses_what_has_no_json_form() -> None:
    """Anything but our own values is a TypeError that says what can be encoded."""
    with pytest.raises(TypeError, match="dict has no JSON form; encode an event"):
        encode({"type": "agent_start"})  # type: ignore[arg-type]


# -- decode: forgiving and clear ----------------------------------------------------------------------------------


def _objects(data: Any, path: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Every object within that decode looks into, with its path."""
    if isinstance(data, list):
        return [found for at, item in enumerate(data) for found in _objects(item, f"{path}[{at}]")]
    if not isinstance(data, dict):
        return []
    found = [(path, data)]
    for key, value in data.items():
        if key not in ("arguments", "payload", "details"):
            found += _objects(value, f"{path}.{key}" if path else key)
    return found


@pytest.mark.parametrize(("value", "shown"), EXAMPLES, ids=[type(value).__name__ for value, _ in EXAMPLES])
def test_unknown_fields_are_passed_over(value: Any, shown: dict[str, Any]) -> None:
    """A field that this version does not know changes nothing, wherever it is."""
    data = json.loads(json.dumps(shown))
    for _, inner in _objects(data):
        inner["from_the_future"] = {"type": "?"}
    assert decode(data) == value


OPTIONAL = {
    "usage",
    "error_message",
    "tokens",
    "error",
    "summary",
    "first_kept",
    "reason",
    "turns",
    "status",
    "raw",
} | {
    "signature",
    "tool_results",
    *USAGE_JSON,
}


@pytest.mark.parametrize(("value", "shown"), EXAMPLES, ids=[type(value).__name__ for value, _ in EXAMPLES])
def test_a_missing_or_wrong_field_is_named_by_its_path(value: Any, shown: dict[str, Any]) -> None:
    """Taking a field away, or putting a value of another kind there, gives a ValueError that begins with its path."""
    tried = 0
    for path, inner in _objects(json.loads(json.dumps(shown))):
        for key in inner:
            where = f"{path}.{key}" if path else key
            data = json.loads(json.dumps(shown))
            target = dict(_objects(data))[path]
            before = target.pop(key)
            optional = key in OPTIONAL and not (key == "error" and shown["type"] == "retry_start")
            optional = optional and not (key == "reason" and shown["type"] == "compaction_start")
            if not optional:
                with pytest.raises(ValueError, match=rf"^{re.escape(where)}: is missing"):
                    decode(data)
                tried += 1
            if key in ("arguments", "payload"):
                continue  # any JSON value is right there
            target[key] = 1.5 if not isinstance(before, float) else "1.5"
            with pytest.raises(ValueError, match=rf"^{re.escape(where)}: expected .*, got '?1\.5"):
                decode(data)
            tried += 1
    assert tried


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([], "the value: expected an object, got an array"),
        (None, "the value: expected an object, got null"),
        ({}, "type: is missing; an event or a block has a type, a message a role"),
        ({"type": "agent_begin"}, "type: expected a known type, got 'agent_begin'"),
        ({"role": ["user"]}, "role: expected a known role, got an array"),
        ({"role": "user", "content": "hi"}, "content: expected an array, got 'hi'"),
        ({"role": "user", "content": ["hi"]}, "content[0]: expected an object, got 'hi'"),
        (
            {"role": "user", "content": [{"type": "thinking", "text": ""}]},
            "content[0]: expected one of text, image, got 'thinking'",
        ),
        (
            {"role": "user", "content": [{"type": "image", "data": "é", "media_type": "image/png"}]},
            "content[0].data: expected base64, got 'é'",
        ),
        (
            {"role": "user", "content": [{"type": "image", "data": "x" * 50, "media_type": "image/png"}]},
            "content[0].data: expected base64, got a string of 50 characters",
        ),
        ({"role": "custom", "kind": "k", "payload": {1, 2}}, "payload: expected a JSON value, got {1, 2}"),
        ({"type": "turn_start", "turn": True}, "turn: expected an integer, got True"),
        (
            {"type": "turn_start", "turn": 1, "time": 10**400},
            "time: expected a number that a float can hold, got 'int'",
        ),
        (
            {**encode(ToolExecutionEnd(RESULT)), "tool_call_id": "c2"},
            "tool_call_id: expected 'c1' as in the result, got 'c2'",
        ),
    ],
    ids=str,
)
def test_decode_says_what_is_wrong(data: Any, text: str) -> None:
    """What no encode could have made is a ValueError in plain words."""
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        decode(data)


@pytest.mark.parametrize("line", ["", "{", '{"type":"turn_start","turn":NaN}', b"\xff", "[1] 2"])
def test_a_line_that_is_no_json_says_so(line: str | bytes) -> None:
    """A torn line, bytes that are no UTF-8, NaN: a ValueError that says that it is not JSON."""
    with pytest.raises(ValueError, match=r"^not JSON: "):
        decode_line(line)


def test_encoding_an_update_is_a_handful_of_calls() -> None:
    """The event that most of a trace consists of is cheap to encode: counted, as a busy machine's clock says little."""
    update = MessageUpdate(TextDelta(0, "word"), time=1.5)
    profile = cProfile.Profile()
    with profile:
        encode(update)
    calls = {str(entry.code): entry.callcount for entry in profile.getstats()}
    assert sum(calls.values()) < 10, calls
