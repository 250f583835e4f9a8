"""Return values as content, and the sentences that a model reads about its calls."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import math
import pathlib
import uuid
from decimal import Decimal
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_agent import _results as words
from trio_agent._messages import Image, Text, ToolCall, ToolResultMessage
from trio_agent._results import ToolResult, UnusableResult, partial_blocks, to_blocks

PICTURE = Image(b"\x89PNG", "image/png")
CALL = ToolCall("c1", "look", {})


@dataclasses.dataclass
class Place:
    name: str
    at: pathlib.Path


@attrs.frozen
class Pair:
    left: int
    right: Any = None


class Row(msgspec.Struct):
    cells: list[int]


class Color(enum.Enum):
    RED = "red"


class Word(str, enum.Enum):  # noqa: UP042  # unlike StrEnum, its str() is not its value
    YES = "yes"


class Level(enum.IntEnum):
    HIGH = 3


def texts(value: object) -> list[str | Image]:
    return [block.text if isinstance(block, Text) else block for block in to_blocks(value, "look").content]


@pytest.mark.parametrize("value", [None, "", "  \n", [Text(""), Text(" ")], ToolResult(), ToolResult(" "), Text("")])
def test_nothing_is_said_to_be_nothing(value: object) -> None:
    """What is empty or blank becomes a text that is neither, for services that refuse both (B040)."""
    assert texts(value) == ["(no output)"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (False, "false"),
        ([], "[]"),
        ({}, "{}"),
        (1.5, "1.5"),
        ("as it is\n", "as it is\n"),
        ({"a": [1, None]}, '{"a": [1, null]}'),
        (["a", "b"], '["a", "b"]'),
        ((1, 2), "[1, 2]"),
        ({2, 1}, "[1, 2]"),
        (frozenset({"b", "a"}), '["a", "b"]'),
        (range(3), "[0, 1, 2]"),
        (Place("x", pathlib.Path("a/b")), '{"name": "x", "at": "a/b"}'),
        (Pair(1, Pair(2)), '{"left": 1, "right": {"left": 2, "right": null}}'),
        (Row([1]), '{"cells": [1]}'),
        (collections.OrderedDict(a=1), '{"a": 1}'),
        (collections.ChainMap({"a": 1}), '{"a": 1}'),
        ({1: 2, None: 3}, '{"1": 2, "null": 3}'),
        (dt.datetime(2031, 2, 3, 4, 5), "2031-02-03T04:05:00"),
        (dt.date(2031, 2, 3), "2031-02-03"),
        ([dt.time(4, 5)], '["04:05:00"]'),
        (dt.timedelta(hours=1), "1:00:00"),
        (pathlib.Path("a/b"), "a/b"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Decimal("1.50"), "1.50"),
        (Color.RED, "red"),
        (Word.YES, "yes"),
        (Level.HIGH, "3"),
        ({"c": [Color.RED, Word.YES, Level.HIGH]}, '{"c": ["red", "yes", 3]}'),
        ("ü ☃ \U0001f600", "ü ☃ \U0001f600"),
        (["ü"], '["ü"]'),
        (10**30, "1" + "0" * 30),
    ],
)
def test_data_becomes_json_or_readable_text(value: object, text: str) -> None:
    """Any value that JSON can say is said, and a value that JSON has as a string is said without quotes (B041)."""
    assert texts(value) == [text]


def test_a_set_that_has_no_order_is_said_in_any() -> None:
    """Members that cannot be compared are all there."""
    (text,) = texts({1, "a"})
    assert text in ('[1, "a"]', '["a", 1]')


def test_content_stays_content() -> None:
    """Blocks, and sequences with a block among them, are what the model gets; blank text among them is left out."""
    assert texts(PICTURE) == [PICTURE]
    assert texts([Text("a"), PICTURE]) == ["a", PICTURE]
    assert texts((PICTURE, "b", Text(" "), "")) == [PICTURE, "b"]
    assert texts([PICTURE, {"width": 3}, None]) == [PICTURE, '{"width": 3}']
    assert to_blocks(Text("a", "signed"), "look").content == (Text("a", "signed"),)


class Unspeakable:
    def __repr__(self) -> str:
        raise AssertionError("nobody asks for words")

    __str__ = __repr__


class Trap(collections.UserDict[str, int]):
    def keys(self) -> Any:
        raise KeyError("sprung")


def circular() -> list[Any]:
    values: list[Any] = [1]
    values.append({"again": values})
    return values


def deep() -> list[Any]:
    values: list[Any] = []
    for _ in range(100_000):
        values = [values]
    return values


async def unawaited() -> None: ...


@pytest.mark.parametrize(
    ("value", "kind", "why"),
    [
        (b"\xff\x00", "bytes", "decode them, or return an Image"),
        ({"a": bytearray(b"a")}, "dict", "bytes are neither text nor JSON"),
        (math.nan, "float", "JSON has no NaN and no infinity"),
        ([1, -math.inf], "list", "JSON has no NaN and no infinity"),
        (circular(), "list", "contains itself"),
        (deep(), "list", "nested too deeply"),
        (Unspeakable(), "Unspeakable", "neither content nor JSON"),
        ([Unspeakable()], "list", "type Unspeakable is neither content nor JSON"),
        ({(1, 2): 3}, "dict", "TypeError: keys must be"),
        (Trap(a=1), "Trap", "KeyError: 'sprung'"),
        (object, "type", "neither content nor JSON"),
        ((n for n in range(3)), "generator", "neither content nor JSON"),
        ([PICTURE, math.nan], "float", "JSON has no NaN"),
    ],
)
def test_what_cannot_be_said_is_an_error_with_tool_and_type(value: object, kind: str, why: str) -> None:
    """The error names the tool, the type and the reason, and warns against repeating the call (B041)."""
    with pytest.raises(UnusableResult) as caught:
        to_blocks(value, "look")
    text = str(caught.value)
    assert text.startswith(f"look ran, but its result cannot be used: it returned a value of type {kind}, ")
    assert why in text
    assert "do not just repeat the call" in text


def test_a_coroutine_that_nobody_awaited_is_named_and_closed() -> None:
    """A tool that forgot to be async gets told so, and Python has nothing to warn about."""
    with pytest.raises(UnusableResult, match="declare the tool's function `async def`"):
        to_blocks(unawaited(), "look")


def test_a_result_of_a_tool_is_frozen() -> None:
    """`ToolResult` holds blocks and JSON that nobody can change through it."""
    details = {"n": [1]}
    content: list[str | Text | Image] = ["a", PICTURE]
    result = ToolResult(content, details, is_error=True)
    details["n"].append(2)
    content.clear()
    result.details["n"].append(3)
    assert (result.content, result.details, result.is_error) == ((Text("a"), PICTURE), {"n": [1]}, True)
    assert result == ToolResult(["a", PICTURE], {"n": [1]}, True)
    with pytest.raises(TypeError, match="not a value of type dict"):
        ToolResult({"a": 1})  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        ToolResult("a", details=object())


def test_an_error_without_text_says_so() -> None:
    """A tool that only says that it failed is not told to the model as having no output."""
    result = to_blocks(ToolResult(is_error=True, details=1), "look")
    assert result == ToolResult("(the tool reported an error and gave no text)", 1, True)


def test_a_result_message_has_the_calls_id_and_name() -> None:
    """What a tool returned, as history will hold it."""
    assert words.message_of(CALL, None) == ToolResultMessage("c1", "look", "(no output)")
    assert words.message_of(CALL, ToolResult("a", {"d": 1}, True)) == ToolResultMessage(
        "c1", "look", "a", True, {"d": 1}
    )


def test_partial_results_may_be_blank() -> None:
    """An update is converted like a result, but nothing is put in place of nothing."""
    assert partial_blocks("50%", "look") == (Text("50%"),)
    assert partial_blocks({"done": 5}, "look") == (Text('{"done": 5}'),)
    assert partial_blocks([Text("a"), PICTURE], "look") == (Text("a"), PICTURE)
    assert partial_blocks(ToolResult("a"), "look") == (Text("a"),)
    assert partial_blocks(None, "look") == ()
    assert partial_blocks("", "look") == (Text(""),)
    with pytest.raises(TypeError, match="an update cannot be a value of type bytes"):
        partial_blocks(b"", "look")


def test_a_hook_replaces_all_or_only_the_content() -> None:
    """A result replaces everything; a bare value is new content of a result that fails or succeeds as before."""
    error = ToolResultMessage("c1", "look", "no", True, {"d": 1})
    assert words.replacement(error, "secret removed") == ToolResultMessage(
        "c1", "look", "secret removed", True, {"d": 1}
    )
    assert words.replacement(error, ToolResult("fine")) == ToolResultMessage("c1", "look", "fine")
    other = ToolResultMessage("c9", "else", "fine", details=2)
    assert words.replacement(error, other) == ToolResultMessage("c1", "look", "fine", False, 2)
    assert words.replacement(error, ToolResultMessage("c1", "look")).text == "(no output)"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(json_values)
def test_every_json_value_becomes_text_that_is_not_blank(value: Any) -> None:
    """Whatever a tool returns of JSON's own, the model gets one text block with something in it."""
    (block,) = to_blocks(value, "look").content
    assert isinstance(block, Text)
    assert block.text.strip()


# Sentences


def test_an_unknown_tool_is_answered_with_the_names_of_the_others() -> None:
    """The model learns which tools there are (B039)."""
    assert words.unknown_tool("no_such", ["echo", "read"]) == (
        'There is no tool called "no_such". The tools are: echo, read.'
    )
    assert words.unknown_tool("x", []) == 'There is no tool called "x". There are no tools.'
    assert words.unknown_tool("", ["echo"]).startswith('There is no tool called "".')


@pytest.mark.parametrize("name", [" echo ", "Echo", "ECHO\n", "echoo"])
def test_a_near_miss_is_suggested(name: str) -> None:
    """A name that differs in case, blanks or a letter is answered with the one that was probably meant (B039)."""
    assert ' Did you mean "echo"?' in words.unknown_tool(name, ["read", "echo"])


def test_a_long_name_is_shortened() -> None:
    """A made-up name of 300 characters does not fill the answer, nor do hundreds of tools (B039)."""
    assert len(words.unknown_tool("n" * 300, ["echo"])) < 200
    assert len(words.unknown_tool("x", [f"tool_{n}" for n in range(1000)])) < 600


def test_each_refusal_says_what_happened_and_what_to_do() -> None:
    """The sentences of T5 and T6, whole."""
    assert words.invalid_arguments("read", "$.n: expected an integer, got null") == (
        "read was not run, because its arguments do not fit: $.n: expected an integer, got null. "
        "Correct them and call it again."
    )
    assert words.blocked("push", "ask first") == "push was not run, because it was blocked: ask first"
    assert words.blocked("push", " ") == "push was not run, because it was blocked"
    assert words.raised("read", "FileNotFoundError: a.txt") == "read failed: FileNotFoundError: a.txt"
    assert words.cut_short().startswith("Not run: the output limit was reached")
    assert "cut off" in words.cut_short()


def test_running_out_of_time_says_how_long_and_what_was_last_heard() -> None:
    """A time-out names the seconds, and quotes the last update."""
    assert words.timed_out("wait", 5.0) == "wait timed out after 5 s. It may have partly run."
    assert words.timed_out("wait", 0.25, (Text("half"), PICTURE, Text(" done"))) == (
        "wait timed out after 0.25 s. It may have partly run. Its last update was: half done"
    )


def test_what_an_abort_cut_off_says_whether_it_ran() -> None:
    """The model learns of each call without a result whether it was begun, and what it said last (A2, B011)."""
    assert words.cut_off(begun=False, aborted=True) == "Not run, because the run was aborted before this call began."
    assert words.cut_off(begun=False, aborted=False) == "Not run, because the run failed before this call began."
    assert words.cut_off(begun=True, aborted=True, update=(Text("wrote 1"),)) == (
        "Cut off, because the run was aborted while the tool was running. It may have partly run. "
        "Its last update was: wrote 1"
    )
    assert words.cut_off(begun=True, aborted=False, update=(PICTURE,)).endswith("It may have partly run.")
    assert "The tool had answered: done" in words.cut_off(begun=True, aborted=True, answered="done")
    assert len(words.cut_off(begun=True, aborted=True, update=(Text("x" * 100_000),))) < 3000


def test_a_failed_check_of_a_result_keeps_what_the_tool_answered() -> None:
    """`after_tool_result` that raises makes an error that still holds the tool's own answer (F5)."""
    result = ToolResultMessage("c1", "look", [Text("found"), PICTURE], False, {"d": 1})
    failed = words.after_hook_failed(result, "ValueError: no")
    assert (failed.tool_call_id, failed.is_error, failed.details) == ("c1", True, {"d": 1})
    assert failed.content == (
        Text("look ran, but the check of its result failed: ValueError: no. The tool had answered:"),
        Text("found"),
        PICTURE,
    )
