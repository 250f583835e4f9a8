"""Topic 11: tool schemas from Python functions, as others have met them (B127, B128, B130)."""
# ruff: noqa: UP007, UP045  # the older spellings of unions are annotations too

from __future__ import annotations

import dataclasses
import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, Union

import pytest

from trio_agent._errors import ToolDefinitionError
from trio_agent._messages import ToolCall
from trio_agent._tools import FunctionTool, Tool, tool

if TYPE_CHECKING:
    from fractions import Fraction


# B127: string annotations, and names defined later


@tool
def later(p: Later | None = None, q: Annotated[int, "count"] = 1) -> Any:
    return p, q


@tool
def for_checkers_only(amount: Fraction, n: int = 1) -> None: ...


EARLY = later.is_async, for_checkers_only.is_async  # both exist before their types do


@dataclasses.dataclass
class Later:
    x: int


def test_b127_a_class_defined_further_down_is_found_at_first_use() -> None:
    """The tool was made before its class existed; schema, description and decoding are as if it had been there."""
    assert later.spec.parameters["properties"] == {
        "p": {"anyOf": [{"$ref": "#/$defs/Later"}, {"type": "null"}], "default": None},
        "q": {"description": "count", "type": "integer", "default": 1},
    }
    prepared = later.prepare(ToolCall("1", "later", {"p": {"x": 2}}))
    assert later.invoke(prepared, None) == (Later(2), 1)  # type: ignore[arg-type]


def test_b127_a_class_of_a_functions_own_is_named_in_the_error() -> None:
    """A local class cannot be found from outside: the error names tool, parameter and class, and is no NameError."""

    @dataclasses.dataclass
    class Local:
        x: int

    @tool
    def takes_local(one: int, thing: Local) -> None: ...

    with pytest.raises(ToolDefinitionError, match=r"tool 'takes_local': parameter 'thing': .*'Local' is not defined"):
        _ = takes_local.spec


def test_b127_a_type_for_type_checkers_only_is_named_in_the_error() -> None:
    """A name imported under TYPE_CHECKING is not there at run time: the error names tool and parameter."""
    with pytest.raises(ToolDefinitionError, match=r"tool 'for_checkers_only': parameter 'amount': .*'Fraction'"):
        _ = for_checkers_only.spec
    with pytest.raises(ToolDefinitionError, match="not under TYPE_CHECKING"):
        for_checkers_only.prepare(ToolCall("1", "for_checkers_only", {"amount": 1}))


# B128: optional parameters under strict rules


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


def f(
    a: int,
    b: Optional[str] = None,
    c: Literal["x", "y"] = "x",
    d: list[Point] = [],  # noqa: B006  # as in the report
    e: Union[int, str, None] = None,
) -> None: ...


def subschemas(schema: Any) -> list[dict[str, Any]]:
    """Every mapping in a schema, itself included."""
    if isinstance(schema, dict):
        return [schema, *[found for inner in schema.values() for found in subschemas(inner)]]
    return [found for inner in schema for found in subschemas(inner)] if isinstance(schema, list) else []


def test_b128_strict() -> None:
    """No default, every key required, optionals nullable, and every object closed, wherever it lies."""
    parameters = FunctionTool(f, strict=True).spec.parameters
    for schema in subschemas(parameters):
        assert "default" not in schema
        if schema.get("type") == "object":
            assert schema["additionalProperties"] is False
            assert schema["required"] == list(schema["properties"])
    properties = parameters["properties"]
    assert list(properties) == ["a", "b", "c", "d", "e"]
    assert properties["a"] == {"type": "integer"}
    assert properties["c"] == {"type": ["string", "null"], "enum": ["x", "y", None]}
    assert properties["d"]["type"] == ["array", "null"]
    for name in ("b", "e"):
        assert {"type": "null"} in properties[name]["anyOf"]
    assert parameters["$defs"]["Point"]["properties"]["y"] == {"type": ["integer", "null"]}


def test_b128_null_where_strictness_forced_it() -> None:
    """A null for `c`, which takes none, means Python's default; for `b`, which takes one, it is a value."""
    prepared = FunctionTool(f, strict=True).prepare(
        ToolCall("1", "f", {"a": 1, "b": None, "c": None, "d": [{"x": 1, "y": None}], "e": None})
    )
    assert prepared.arguments == {"a": 1, "b": None, "d": [Point(1, 0)], "e": None}


def test_b128_not_strict() -> None:
    """Without strictness only what has no default is required."""
    assert FunctionTool(f).spec.parameters["required"] == ["a"]


def test_b128_a_schema_from_elsewhere_is_not_changed_in_place() -> None:
    """A strict variant of a given schema is a copy, also of its innermost parts."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "object", "properties": {"b": {"type": "string", "default": "x"}}}},
        "$defs": {"c": {"type": "object", "properties": {}}},
    }
    before = json.dumps(schema)
    made = Tool(name="t", parameters=schema, execute=lambda arguments: arguments, strict=True)
    strict = made.spec.parameters
    assert strict["properties"]["a"]["additionalProperties"] is False
    assert strict["$defs"]["c"]["additionalProperties"] is False
    assert made.prepare(ToolCall("1", "t", {"a": {"b": None}})).arguments == {"a": {}}
    assert json.dumps(schema) == before


# B130: what a docstring says


def google(query: str, limit: Annotated[int, "from the annotation"] = 5) -> str:
    """Search the notes for a phrase,
    in the order they were written.

    Case does not matter: `Tea` finds `tea`.

    Args:
        query: what to look for: a word
            or a phrase in "quotes"
        limit (int, optional): from the docstring

    Returns:
        The notes, one a line.

    Raises:
        ValueError: if the query is blank

    Examples:
        >>> google("tea")
    """
    raise AssertionError("only read")


def rest(query: str, limit: Annotated[int, "from the annotation"] = 5) -> str:
    """Search the notes for a phrase,
    in the order they were written.

    Case does not matter: `Tea` finds `tea`.

    :param query: what to look for: a word
        or a phrase in "quotes"
    :param int limit: from the docstring
    :returns: The notes, one a line.
    :raises ValueError: if the query is blank
    """
    raise AssertionError("only read")


def numpy(query: str, limit: Annotated[int, "from the annotation"] = 5) -> str:
    """Search the notes for a phrase,
    in the order they were written.

    Case does not matter: `Tea` finds `tea`.

    Parameters
    ----------
    query : str
        what to look for: a word
        or a phrase in "quotes"
    limit : int, optional
        from the docstring

    Returns
    -------
    str
        The notes, one a line.

    Examples
    --------
    >>> numpy("tea")
    """
    raise AssertionError("only read")


DESCRIPTION = """Search the notes for a phrase,
in the order they were written.

Case does not matter: `Tea` finds `tea`."""


@pytest.mark.parametrize("function", [google, rest, numpy])
def test_b130_all_that_describes_and_nothing_else(function: Callable[..., str]) -> None:
    """The description is the summary and its paragraphs; each parameter has its whole text, once."""
    spec = FunctionTool(function).spec
    assert spec.description == DESCRIPTION
    assert spec.parameters["properties"] == {
        "query": {"type": "string", "description": 'what to look for: a word\nor a phrase in "quotes"'},
        "limit": {"type": "integer", "description": "from the annotation", "default": 5},
    }
    assert json.dumps(spec.parameters).count("what to look for") == 1


def test_b130_no_docstring() -> None:
    """A function without a docstring has an empty description, and what is annotated is still told."""

    @tool
    def plain(n: Annotated[int, "n"]) -> None: ...

    assert plain.spec.description == ""
    assert plain.spec.parameters["properties"]["n"]["description"] == "n"


@pytest.mark.parametrize(
    ("docstring", "description", "texts"),
    [
        ("One line.", "One line.", {}),
        ("Args:\n        n: only this\n    ", "", {"n": "only this"}),
        ("\n    Do it.\n\n    Args:\n        n: how: often\n", "Do it.", {"n": "how: often"}),
        ("Do it. Use `a: b`.\n\nKey: value pairs are read.", "Do it. Use `a: b`.\n\nKey: value pairs are read.", {}),
        ("Do it.\n\n:param n:\n:type n: int", "Do it.", {}),
        ("Do it.\n\n:param", "Do it.", {}),
        ("Do it.\n\nParameters\n----------\nn, m : int\n    both\n", "Do it.", {"n": "both"}),
        ("Parameters\n----------\nn : int\n    how often\n", "", {"n": "how often"}),
        ("", "", {}),
        ("\n\n", "", {}),
    ],
)
def test_b130_odd_docstrings(docstring: str, description: str, texts: dict[str, str]) -> None:
    """Whatever stands in a docstring, it is read as far as it goes and never an error."""

    def odd(n: int) -> None: ...

    odd.__doc__ = docstring
    spec = FunctionTool(odd).spec
    assert spec.description.startswith(description)
    assert spec.parameters["properties"]["n"].get("description") == texts.get("n")


def test_b130_without_docstrings_at_all() -> None:
    """Under `python -OO` the tool of this case has no description, and works."""
    source = "from trio_agent._tools import tool\n" + inspect.getsource(google).replace("Annotated[int, ", "A[int, ")
    source = f"from typing import Annotated as A\n{source}\nprint(repr(tool(google).spec.description))"
    found = subprocess.run(
        [sys.executable, "-OO", "-c", source], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout == "''\n"
