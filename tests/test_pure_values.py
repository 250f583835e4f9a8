"""What keeps and writes values, by itself: views of history, JSON text, the fields of the codec.

What becomes of them in a run is in the tests of the rules; here are their edges and their exact words.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_agent import (
    AgentEnd,
    AssistantMessage,
    CompactionEnd,
    ErrorInfo,
    RetryStart,
    ToolCall,
    ToolResultMessage,
    TurnEnd,
    UserMessage,
)
from trio_agent._codec import decode, decode_line, encode, encode_line
from trio_agent._history import EMPTY, History, View
from trio_agent._json import arguments_text, dumps, is_canonical, loads, loads_or_none

# -- history -----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers()), st.integers(min_value=0, max_value=4), st.data())
def test_a_view_is_the_sequence_that_its_items_make(items: list[int], behind: int, data: st.DataObject) -> None:
    """A view of the first items of a longer list is read, sliced, compared, hashed and shown like a tuple of them."""
    seen = tuple(items)
    view = View(items + [0] * behind, len(items))
    part = data.draw(st.slices(len(items)))
    assert (len(view), tuple(view), view[part], repr(view), hash(view)) == (
        *(len(seen), seen, seen[part], repr(seen)),
        hash(seen),
    )
    assert view == seen
    assert view == items
    assert view == View(items, len(items))
    assert view != [*items, 0]
    assert view != [*items[:-1], -1 if not items else items[-1] + 1]
    assert (*view, 5) == view.__add__([5]) == (*seen, 5)
    for at in range(-len(items), len(items)):
        assert view[at] == seen[at]


@pytest.mark.parametrize("at", [2, 3, -3, -4])
def test_a_view_ends_where_it_ended(at: int) -> None:
    """An index outside of the view is an `IndexError`, also where the list behind it has gone on."""
    view = View([1, 2, 3, 4, 5], 2)
    with pytest.raises(IndexError, match=r"^index out of range$"):
        view[at]


def test_a_view_is_not_equal_to_what_is_no_sequence_of_its_kind() -> None:
    """Compared with anything but views, tuples and lists, a view leaves the answer to the other side."""
    assert View([1], 1) != {1}
    assert View([1], 1).__eq__("1") is NotImplemented
    assert len(EMPTY) == 0
    assert EMPTY == ()


def test_history_is_appended_to_and_replaced() -> None:
    """Appending keeps the epoch, replacing counts it up; both show in the views taken after, and in none before."""
    history: History[str] = History(["a"])
    before = history.view()
    history.append("b")
    assert (history.epoch, len(history), history.view(), before) == (0, 2, ["a", "b"], ["a"])
    assert history.since(0) == ["a", "b"]
    assert history.since(1) == ["b"]
    assert history.since(2) == []
    old = history.view()
    history.replace(["c"])
    assert (history.epoch, len(history), history.view(), old) == (1, 1, ["c"], ["a", "b"])
    history.replace([])
    assert (history.epoch, len(history), History().view()) == (2, 0, EMPTY)


# -- JSON --------------------------------------------------------------------------------------------------------


def test_canonical_text_has_no_white_space_and_leaves_characters_as_they_are() -> None:
    """The canonical text is the shortest, with characters of every alphabet as themselves."""
    assert dumps({"ключ": [1, 2.5, None, True]}) == '{"ключ":[1,2.5,null,true]}'


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_JSON_are_refused_both_ways(number: float) -> None:
    """NaN and the infinities are neither written nor read, and reading says which one it was."""
    with pytest.raises(ValueError):
        dumps(number)
    with pytest.raises(ValueError) as refused:
        loads(json.dumps(number))
    assert str(refused.value) == f"{json.dumps(number)} is not JSON"


def test_endless_nesting_is_no_JSON() -> None:
    """Text nested more deeply than can be read is an error of the text, not of the reader."""
    deep = "[" * 200_000
    with pytest.raises(ValueError, match=r"^the JSON is nested too deeply$") as refused:
        loads(deep)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__
    assert loads_or_none(deep) is None
    assert is_canonical(deep) is False


def test_text_that_is_no_JSON_gives_nothing_or_is_not_canonical() -> None:
    """`loads_or_none` gives None for what is no JSON; only what `dumps` would write is canonical."""
    assert loads_or_none("{") is None
    assert loads_or_none("[1]") == [1]
    assert is_canonical("{") is False
    assert is_canonical("[1, 2]") is False
    assert is_canonical("[1,2]") is True


@pytest.mark.parametrize("raw", ["", " ", "\t\r\n", "null", " null\n"])
def test_blank_and_null_arguments_are_none(raw: str) -> None:
    """Arguments of white space or `null` are an empty object."""
    assert arguments_text(None, raw) == "{}"


def test_arguments_keep_their_text() -> None:
    """Arguments that came as text keep it to the letter, also text that is no JSON; others are written canonically."""
    assert arguments_text(None, ' {"a": 1} ') == ' {"a": 1} '
    assert arguments_text({"b": 2}, "X") == "X"
    assert arguments_text(None, "\x0b") == "\x0b"
    assert arguments_text({"a": 1}, None) == '{"a":1}'
    assert arguments_text(None, None) == "{}"


# -- the fields of the codec -------------------------------------------------------------------------------------


def refusal(data: Any) -> str:
    with pytest.raises(ValueError) as refused:
        decode(data)
    return str(refused.value)


RETRY = encode(RetryStart(1, 4, 1.5, ErrorInfo("overloaded", "busy")))
CALL = {"type": "tool_call", "id": "c", "name": "n", "arguments": {}}
RESULT = encode(ToolResultMessage("c", "n"))


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("attempt", 1.0, "attempt: expected an integer, got 1.0"),
        ("attempt", {}, "attempt: expected an integer, got an object"),
        ("attempt", [], "attempt: expected an integer, got an array"),
        ("attempt", None, "attempt: expected an integer, got null"),
        ("attempt", "x" * 40, f"attempt: expected an integer, got '{'x' * 40}'"),
        ("attempt", "x" * 41, "attempt: expected an integer, got a string of 41 characters"),
        ("attempt", b"x" * 50, f"attempt: expected an integer, got b'{'x' * 38}"),
        ("delay", "1", "delay: expected a number, got '1'"),
        ("delay", True, "delay: expected a number, got True"),
        ("delay", -(10**400), "delay: expected a number that a float can hold, got 'int'"),
        ("error", "busy", "error: expected an object, got 'busy'"),
        ("error", {"kind": "overloaded"}, "error.message: is missing"),
        ("error", {"kind": 1, "message": ""}, "error.kind: expected a string, got 1"),
        ("error", {"kind": "", "message": "", "status": "5"}, "error.status: expected an integer, got '5'"),
    ],
)
def test_a_wrong_value_is_told_in_the_words_of_its_field(field: str, value: object, words: str) -> None:
    """The error says where the value is, what belongs there, and what came, cut to 40 characters."""
    assert refusal({**RETRY, field: value}) == words


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"type": "retry_end", "attempt": 1, "outcome": "gone"}, "outcome: expected one of resumed, aborted, failed"),
        ({"type": "retry_end", "attempt": 1, "outcome": 7}, "outcome: expected one of resumed, aborted, failed"),
        ({"type": "compaction_start", "reason": "?"}, "reason: expected one of threshold, overflow"),
        ({"type": "compaction_end", "outcome": "?"}, "outcome: expected one of compacted, aborted, failed"),
        ({"type": "agent_end", "outcome": "?"}, "outcome: expected one of completed, stopped, aborted, error"),
        (
            {"role": "assistant", "content": [], "stop_reason": "?"},
            "stop_reason: expected one of stop, length, tool_use, error, aborted",
        ),
        ({**RESULT, "is_error": 0}, "is_error: expected true or false, got 0"),
        ({**RESULT, "content": {}}, "content: expected an array, got an object"),
        ({**RESULT, "content": [CALL]}, "content[0]: expected one of text, image, got 'tool_call'"),
        (
            {"role": "assistant", "content": [{"type": "image", "data": "", "media_type": ""}], "stop_reason": None},
            "content[0]: expected one of text, thinking, tool_call, got 'image'",
        ),
        (
            {"type": "message_update", "delta": {"type": "text", "text": ""}},
            "delta: expected one of text_delta, thinking_delta, tool_call_delta, got 'text'",
        ),
        (
            {"type": "message_start", "message": {"type": "text"}},
            "message.role: is missing",
        ),
        (
            {"type": "turn_end", "turn": 1, "message": {"role": "user", "content": []}},
            "message: expected one of assistant, got 'user'",
        ),
        ({"type": "message_start", "message": {"role": "?"}}, "message.role: expected a known role, got '?'"),
        ({"role": "user", "content": [{"type": []}]}, "content[0].type: expected a known type, got an array"),
        ({"type": "user", "content": []}, "type: expected a known type, got 'user'"),
        ({"role": "text", "text": ""}, "role: expected a known role, got 'text'"),
        ({"role": "user", "type": "nothing", "content": []}, "type: expected a known type, got 'nothing'"),
        (
            {"role": "user", "content": [{"type": "image", "data": "AA A=", "media_type": ""}]},
            "content[0].data: expected base64, got 'AA A='",
        ),
        (
            {"role": "user", "content": [{"type": "image", "data": 5, "media_type": ""}]},
            "content[0].data: expected a string, got 5",
        ),
        (
            {"type": "tool_execution_end", "tool_call_id": "c", "tool_name": "m", "is_error": False, "result": RESULT},
            "tool_name: expected 'n' as in the result, got 'm'",
        ),
        (
            {"type": "tool_execution_end", "tool_call_id": "c", "tool_name": "n", "is_error": True, "result": RESULT},
            "is_error: expected False as in the result, got True",
        ),
    ],
)
def test_a_value_that_is_none_of_the_known_ones_is_told_beside_them(data: dict[str, Any], words: str) -> None:
    """A word, a class or a repetition that does not fit is told with what could have been there."""
    assert refusal(data).startswith(words)


def test_what_may_be_missing_has_a_value_of_its_own() -> None:
    """Usage is all unknown where it is missing or null, turns and results are none, time is 0, and the rest is null."""
    assert decode({"role": "assistant", "content": [], "stop_reason": None}) == AssistantMessage((), None)
    assert decode({"role": "assistant", "content": [], "stop_reason": "stop", "usage": None}) == AssistantMessage(())
    assert decode({"type": "agent_end", "outcome": "stopped"}) == AgentEnd("stopped", turns=0)
    assert decode({"type": "compaction_end", "outcome": "failed"}) == CompactionEnd("failed")
    turn = {"type": "turn_end", "turn": 1, "message": encode(AssistantMessage("ok"))}
    assert decode(turn) == TurnEnd(1, AssistantMessage("ok"), ())
    assert decode({"type": "agent_start"}).time == 0.0  # type: ignore[union-attr]
    assert decode(CALL) == ToolCall("c", "n", {})


def test_what_is_missing_has_a_path_from_the_outermost_object() -> None:
    """Only for a whole value does the error say what has a type and what a role."""
    assert refusal({}) == "type: is missing; an event or a block has a type, a message a role"
    assert refusal({"role": "user", "content": [{}]}) == "content[0].type: is missing"


@pytest.mark.parametrize("code", [0x85, 0x2028, 0x2029, 0xD800, 0xDFFF])
def test_what_other_readers_take_for_the_end_of_a_line_is_escaped(code: int) -> None:
    """Lone surrogates and the line ends of Unicode are written as escapes, in four digits; their neighbours are not."""
    line = encode_line(UserMessage(f"é{chr(code)}é"))
    assert f"é\\u{code:04x}é" in line
    assert decode_line(line) == UserMessage(f"é{chr(code)}é")
    assert "é\x84\x86\u2027\u202a\ud7ff\ue000" in encode_line(UserMessage("é\x84\x86\u2027\u202a\ud7ff\ue000"))
