"""Schemas and arguments of tools: what hardly ever comes, and has to be right all the same."""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated, Any, NotRequired, TypedDict

import attrs
import pytest

from trio_agent import Tool, ToolCall
from trio_agent._errors import ArgumentError
from trio_agent._schema_strict import resolved
from trio_agent._tools import FunctionTool
from trio_agent._validation import shown


def tool_of(annotation: Any, **default: Any) -> FunctionTool[..., Any]:
    """A tool with one parameter `v` of the type."""

    def takes(v: Any) -> None: ...

    takes.__annotations__["v"] = annotation
    takes.__defaults__ = tuple(default.values())
    return FunctionTool(takes, name="t")


def foreign(parameters: Any, *, strict: bool | None = None) -> Tool:
    return Tool(name="t", parameters=parameters, execute=print, strict=strict)


def call_with(raw: str) -> ToolCall:
    return ToolCall("1", "t", raw=raw)


# Typed functions


@attrs.frozen
class Counted:
    n: int
    double: int = attrs.field(init=False)


@dataclasses.dataclass
class Summed:
    n: int
    double: int = dataclasses.field(init=False)


@pytest.mark.parametrize("made", [Counted, Summed])
def test_a_field_that_a_class_fills_by_itself_is_not_asked_for(made: Any) -> None:
    """What cannot be given to `__init__` is not in the schema, and whoever gives it is told so."""
    assert list(tool_of(made).spec.parameters["$defs"][made.__name__]["properties"]) == ["n"]
    assert tool_of(made).prepare(call_with('{"v":{"n":1}}')).arguments["v"].n == 1
    with pytest.raises(ArgumentError, match=r'^\$\.v: unknown key "double", the keys are "n"$'):
        tool_of(made).prepare(call_with('{"v":{"n":1,"double":2}}'))


def test_qualifiers_count_wherever_they_stand() -> None:
    """`NotRequired` inside of `Annotated`, or around it, leaves the key optional, and the text is told."""

    class Draft(TypedDict):
        inside: Annotated[NotRequired[int], "how many"]
        around: NotRequired[Annotated[int, "how many"]]
        plain: Annotated[int, "how many"]

    described = tool_of(Draft).spec.parameters["$defs"]["Draft"]
    assert described["required"] == ["plain"]
    assert list(described["properties"].values()) == [{"type": "integer", "description": "how many"}] * 3


# Schemas from elsewhere


@pytest.mark.parametrize("raw", ["", " \n", "null", "\xa0", "\u3000\n"])
def test_blank_arguments_are_none(raw: str) -> None:
    """A call whose arguments are blank, in whatever kind of space, gives nothing: what is not required may run."""
    assert foreign({}).prepare(call_with(raw)).arguments == {}
    assert tool_of(int, default=3).prepare(call_with(raw)).arguments == {}
    with pytest.raises(ArgumentError, match='the key "a" is missing'):
        foreign({"required": ["a"]}).prepare(call_with(raw))


def test_a_tool_of_a_schema_may_lack_a_description() -> None:
    """Those who hand on what another program says of its tools may have none to give."""
    no_description: Any = None
    made = Tool(name="t", description=no_description, parameters={}, execute=print)
    assert (made.description, made.spec.description) == ("", "")


def test_references_that_lead_to_each_other_lead_nowhere() -> None:
    """A circle of references has no end, and so there is no schema at it."""
    circle = {"$defs": {"b": {"$ref": "#/$defs/c"}, "c": {"$ref": "#/$defs/b"}}}
    assert resolved({"$ref": "#/$defs/b"}, circle) == {}


def test_a_null_for_what_lies_behind_an_anchor_means_the_default() -> None:
    """Strictness follows no anchor, so it forces a null for an optional key, and takes that out again."""
    schema = {
        "type": "object",
        "properties": {"p": {"$ref": "#point"}},
        "$defs": {"P": {"$anchor": "point", "type": "object", "properties": {"x": {"type": "integer"}}}},
    }
    tool = foreign(schema, strict=True)
    assert tool.spec.parameters["properties"]["p"] == {"anyOf": [{"$ref": "#point"}, {"type": "null"}]}
    assert tool.prepare(ToolCall("1", "t", {"p": None})).arguments == {}
    assert tool.prepare(ToolCall("1", "t", {"p": {"x": 1}})).arguments == {"p": {"x": 1}}


def test_what_could_just_be_decoded_is_no_crash() -> None:
    """Around the depth at which Python itself gives up, arguments are refused, whichever step it is that gives up."""
    made = foreign({})
    for depth in range(sys.getrecursionlimit() - 150, sys.getrecursionlimit()):
        with pytest.raises(ArgumentError, match=r"\$"):
            made.prepare(call_with('{"a":' + "[" * depth + "]" * depth + "}"))


def test_a_value_that_is_nested_too_deeply_to_be_shown_is_named() -> None:
    """What cannot be written again is told by its kind, and no RecursionError leaves the refusal."""
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    assert shown(value) == "a deeply nested array"
