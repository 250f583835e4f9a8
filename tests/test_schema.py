"""Annotations as JSON: the schema that a model is shown, and what its arguments are decoded to."""
# ruff: noqa: UP007, UP045  # the older spellings of unions are annotations too

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import enum
import pathlib
import re
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    TypeVar,
    Union,
)

import attrs
import hypothesis
import msgspec
import pytest
import trio
from hypothesis import strategies as st

from trio_agent._errors import ArgumentError, ToolDefinitionError
from trio_agent._messages import ToolCall
from trio_agent._tools import FunctionTool, Tool

if sys.version_info >= (3, 12):  # pragma: no cover - by Python's version
    from typing import TypeAliasType
else:  # pragma: no cover - by Python's version
    from typing_extensions import TypeAliasType

T = TypeVar("T")
Ids = TypeAliasType("Ids", list[int])


class Color(enum.Enum):
    """What it is painted in."""

    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Point:
    """A place.

    Attributes:
        x: how far to the right
    """

    x: int
    y: Annotated[int, "how far up"] = 0
    tags: list[str] = dataclasses.field(default_factory=list)


@attrs.frozen
class Tree:
    value: int = attrs.field(validator=attrs.validators.ge(0))
    children: list[Tree] = attrs.field(factory=list)
    _secret: str = "s"


@attrs.frozen
class Circle:
    kind: Literal["circle"]
    radius: float


@attrs.frozen
class Square:
    kind: Literal["square"]
    side: float


@attrs.frozen
class Cat:
    meows: int


@attrs.frozen
class Dog:
    barks: int


class Options(TypedDict, total=False):
    mode: str
    depth: NotRequired[int]


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Record(msgspec.Struct):
    name: str
    size: int = 0


@dataclasses.dataclass
class Box(Generic[T]):
    content: T
    spare: T | None = None


@attrs.frozen
class Gt:
    """A bound as `annotated_types` writes it; it is known by its attribute."""

    gt: float


@attrs.frozen
class Len:
    min_length: int = 0
    max_length: int | None = None


@attrs.frozen
class Doc:
    documentation: str


UserId = NewType("UserId", int)


def tool_of(annotation: Any, *, strict: bool | None = None, **default: Any) -> FunctionTool[..., Any]:
    """A tool with one parameter `v` of the type."""

    def takes(v: Any) -> None: ...

    takes.__annotations__["v"] = annotation
    if default:
        takes.__defaults__ = (default["default"],)
    return FunctionTool(takes, name="t", strict=strict)


def schema_of(annotation: Any, **default: Any) -> Any:
    return tool_of(annotation, **default).spec.parameters["properties"]["v"]


def decoded(annotation: Any, raw: str) -> Any:
    return tool_of(annotation).prepare(ToolCall("1", "t", raw=f'{{"v":{raw}}}')).arguments["v"]


def problem(annotation: Any, raw: str) -> str:
    with pytest.raises(ArgumentError) as caught:
        decoded(annotation, raw)
    return str(caught.value)


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (float, {"type": "number"}),
        (None, {"type": "null"}),
        (Any, {}),
        (object, {}),
        (list, {"type": "array"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
        (Mapping[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (dict, {"type": "object"}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a", 1], {"type": ["integer", "string"], "enum": [1, "a"]}),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Union[bool, list, None], {"anyOf": [{"type": "boolean"}, {"type": "array"}, {"type": "null"}]}),
        (pathlib.Path, {"type": "string"}),
        (trio.Path, {"type": "string"}),
        (dt.datetime, {"type": "string", "format": "date-time"}),
        (dt.date, {"type": "string", "format": "date"}),
        (UserId, {"type": "integer"}),
        (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
        (Annotated[int, msgspec.Meta(ge=1, le=9)], {"type": "integer", "minimum": 1, "maximum": 9}),
        (Annotated[float, Gt(0), "ratio"], {"type": "number", "exclusiveMinimum": 0, "description": "ratio"}),
        (Annotated[str, Len(1, 5)], {"type": "string", "minLength": 1, "maxLength": 5}),
        (Annotated[list[int], Len(2)], {"type": "array", "items": {"type": "integer"}, "minItems": 2}),
        (Annotated[str, Doc("a name"), object(), int], {"type": "string", "description": "a name"}),
        (Annotated[int | None, Gt(3)], {"anyOf": [{"type": "integer", "exclusiveMinimum": 3}, {"type": "null"}]}),
        (
            Annotated[int | str, Gt(3), Len(2), "d"],
            {
                "description": "d",
                "anyOf": [{"type": "integer", "exclusiveMinimum": 3}, {"type": "string", "minLength": 2}],
            },
        ),
    ],
)
def test_each_annotation_has_its_schema(annotation: Any, schema: Any) -> None:
    """What Python's types allow is what the schema says, in its shortest form."""
    assert schema_of(annotation) == schema


def test_classes_are_described_once_under_their_names() -> None:
    """A class is a closed object under `$defs`, described by its docstring and its annotations, and referred to."""
    parameters = tool_of(list[Point] | None).spec.parameters
    assert parameters["properties"]["v"] == {
        "anyOf": [{"type": "array", "items": {"$ref": "#/$defs/Point"}}, {"type": "null"}]
    }
    assert parameters["$defs"] == {
        "Point": {
            "description": "A place.",
            "type": "object",
            "properties": {
                "x": {"type": "integer", "description": "how far to the right"},
                "y": {"type": "integer", "description": "how far up", "default": 0},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["x"],
            "additionalProperties": False,
        }
    }


def test_an_enum_is_described_with_its_values() -> None:
    """An enum's schema has its type, its values in their order, and its docstring."""
    assert tool_of(Color).spec.parameters["$defs"]["Color"] == {
        "type": "string",
        "description": "What it is painted in.",
        "enum": ["red", "blue"],
    }


def test_a_class_that_contains_itself_refers_to_itself() -> None:
    """A recursive class is a `$ref` inside its own definition, and is decoded as deep as the value goes."""
    tree = tool_of(Tree).spec.parameters["$defs"]["Tree"]
    assert tree["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    assert decoded(Tree, '{"value":1,"children":[{"value":2,"children":[{"value":3}]}]}') == Tree(
        1, [Tree(2, [Tree(3)])]
    )


def test_two_classes_of_one_name_are_told_apart() -> None:
    """Distinct classes that share a name have distinct definitions."""
    other = dataclasses.make_dataclass("Point", [("z", int)])

    def both(a: Any, b: Any) -> None: ...

    both.__annotations__.update(a=Point, b=other)
    definitions = FunctionTool(both).spec.parameters["$defs"]
    assert list(definitions) == ["Point", "Point_2"]
    assert list(definitions["Point_2"]["properties"]) == ["z"]


@pytest.mark.parametrize(
    ("annotation", "raw", "value"),
    [
        (Point, '{"x":1}', Point(1)),
        (Circle | Square, '{"kind":"square","side":2}', Square("square", 2.0)),
        (Cat | Dog | None, '{"barks":1}', Dog(1)),
        (Cat | Dog | None, "null", None),
        (list[Cat | Dog], '[{"meows":1},{"barks":2}]', [Cat(1), Dog(2)]),
        (Cat | str, '"a cat"', "a cat"),
        (list[int] | set[str], '["a"]', {"a"}),
        (dict[str, Point], '{"a":{"x":1,"y":2}}', {"a": Point(1, 2)}),
        (tuple[int, Point], '[1,{"x":2}]', (1, Point(2))),
        (tuple[int, ...], "[1,2]", (1, 2)),
        (tuple[()], "[]", ()),
        (Options, '{"depth":3}', {"depth": 3}),
        (Movie, '{"title":"x"}', {"title": "x"}),
        (Pair, '{"left":1}', Pair(1, "r")),
        (Record, '{"name":"a","size":2}', Record("a", 2)),
        (Box[Point], '{"content":{"x":1}}', Box(Point(1))),
        (Box[int] | Box[str], '{"content":"a","spare":"b"}', Box("a", "b")),
        (Color, '"blue"', Color.BLUE),
        (Level, "2", Level.HIGH),
        (dict[str, Color], '{"a":"red"}', {"a": Color.RED}),
        (pathlib.Path, '"a/b"', pathlib.Path("a/b")),
        (trio.Path, '"a/b"', trio.Path("a/b")),
        (dt.datetime, '"2031-02-03T04:05:06Z"', dt.datetime(2031, 2, 3, 4, 5, 6, tzinfo=dt.UTC)),
        (Decimal, '"1.50"', Decimal("1.50")),
        (bytes, '"aGk="', b"hi"),
        (dict[int, str], '{"1":"a"}', {1: "a"}),
        (frozenset[int], "[1,1]", frozenset({1})),
        (int | None, "null", None),
        (Any, '{"a":[1,null]}', {"a": [1, None]}),
        (object, "1.5", 1.5),
    ],
)
def test_arguments_become_what_is_annotated(annotation: Any, raw: str, value: Any) -> None:
    """A value that fits arrives as an instance of its annotation."""
    result = decoded(annotation, raw)
    assert result == value
    assert type(result) is type(value)


def test_a_class_is_decoded_to_itself() -> None:
    """An attrs class goes through its own constructor: its aliases, converters, factories and validators count."""
    assert decoded(Tree, '{"value":1,"secret":"x"}') == Tree(1, [], "x")
    assert "$.v.children[0]: ValueError" in problem(Tree, '{"value":1,"children":[{"value":-1}]}')


def test_numbers_are_taken_as_json_has_them() -> None:
    """1.0 is an integer and 1 a number; text is no number, and a number is no boolean."""
    assert decoded(int, "1.0") == 1
    assert type(decoded(int, "1.0")) is int
    assert type(decoded(float, "1")) is float
    assert decoded(list[int] | None, "[1, 2.0]") == [1, 2]
    assert decoded(int, "10000000000000000000000000000000000000") == 10**37
    for annotation, raw in ((int, '"42"'), (int, "1.5"), (int, "true"), (bool, "1"), (str, "1"), (Level, "3.0")):
        problem(annotation, raw)


@pytest.mark.parametrize(
    ("annotation", "raw", "text"),
    [
        (int, '"ten"', '$.v: expected an integer, got the string "ten"'),
        (list[int], '[1,"2"]', '$.v[1]: expected an integer, got the string "2"'),
        (dict[str, list[int]], '{"k":[null]}', "$.v.k[0]: expected an integer, got null"),
        (int | None, "[]", "$.v: expected an integer or null, got the array []"),
        (Literal["a", "b"], '"c"', '$.v: expected one of "a", "b", got the string "c"'),
        (Color, '"green"', '$.v: expected one of "red", "blue", got the string "green"'),
        (Annotated[int, msgspec.Meta(ge=1)], "0", "$.v: expected at least 1, got the integer 0"),
        (Annotated[str, Len(2)], '"a"', '$.v: expected at least 2 characters, got the string "a"'),
        (
            Annotated[str, msgspec.Meta(pattern="^a")],
            '"b"',
            '$.v: expected text that matches the regular expression "^a", got the string "b"',
        ),
        (Point, '{"x":1,"tag":2}', '$.v: unknown key "tag" (did you mean "tags"?), the keys are "x", "y", "tags"'),
        (dict[int, int], '{"a":1}', '$.v: expected int, got str, as a key, got the object {"a":1}'),
        (Point, "{}", '$.v: the key "x" is missing'),
        (
            Circle | Square,
            '{"kind":"square","radius":1}',
            '$.v: the key "side" is missing; $.v: unknown key "radius", the keys are "kind", "side"',
        ),
        (Cat | Dog, "3", "$.v: expected an object, got the integer 3"),
        (dt.date, '"soon"', '$.v: invalid RFC3339 encoded date, got the string "soon"'),
        (dict[str, dt.date], '{"a":"soon"}', "$.v[...]: invalid RFC3339 encoded date"),
        (list[dt.date], '["soon"]', '$.v[0]: invalid RFC3339 encoded date, got the string "soon"'),
        (Box[dt.date], '{"content":"soon"}', '$.v.content: invalid RFC3339 encoded date, got the string "soon"'),
    ],
)
def test_a_misfit_is_named_with_its_path_what_was_expected_and_what_came(annotation: Any, raw: str, text: str) -> None:
    """The model reads where in its arguments something is wrong, what belongs there, and what it gave."""
    assert problem(annotation, raw) == text


def test_several_problems_are_named_at_once() -> None:
    """One answer names every problem, so that the model need not find them one call after the other."""

    def move(x: int, y: int, name: str = "") -> None: ...

    with pytest.raises(ArgumentError) as caught:
        FunctionTool(move).prepare(ToolCall("1", "move", {"x": "1", "nmae": "a"}))
    assert sorted(str(caught.value).split("; ")) == [
        '$.x: expected an integer, got the string "1"',
        '$: the key "y" is missing',
        '$: unknown key "nmae" (did you mean "name"?), the keys are "x", "y", "name"',
    ]


def test_long_values_and_many_problems_are_cut() -> None:
    """However large the arguments are, what is said about them stays short."""
    assert len(problem(int, '"' + "x" * 100_000 + '"')) < 200
    assert problem(list[int], "[" + ",".join(['"a"'] * 1000) + "]").endswith("; and 992 more")


@pytest.mark.parametrize(
    "default",
    [
        pytest.param(5, id="int"),
        pytest.param("a", id="str"),
        pytest.param([1], id="list"),
    ],
)
def test_a_default_is_told(default: Any) -> None:
    """The model is told a default that JSON has a word for."""
    assert schema_of(Any, default=default) == {"default": default}


def test_defaults_that_json_cannot_say_are_not_told() -> None:
    """Sentinels, NaN, and a None that the type does not allow are left out of the schema; the rest is translated."""
    assert schema_of(Any, default=object()) == {}
    assert schema_of(float, default=float("nan")) == {"type": "number"}
    assert schema_of(int, default=None) == {"type": "integer"}
    assert schema_of(pathlib.Path, default=pathlib.Path("a")) == {"type": "string", "default": "a"}
    assert schema_of(Color, default=Color.RED) == {"$ref": "#/$defs/Color", "default": "red"}
    assert schema_of(Optional[Color], default=None)["default"] is None


def test_what_is_left_out_is_left_to_the_function() -> None:
    """An argument that the model did not give is not passed, so that Python's own default applies."""

    def search(words: str, limit: int = 10, sort: Color = Color.RED) -> None: ...

    assert FunctionTool(search).prepare(ToolCall("1", "search", {"words": "a"})).arguments == {"words": "a"}


class Mixed(enum.Enum):
    ONE = 1
    HALF = 0.5


@dataclasses.dataclass
class Late:
    when: dataclasses.InitVar[int]


class Plain:
    pass


@attrs.define
class Untyped:
    x = attrs.field()


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (Plain, "Plain cannot be made from JSON"),
        (list[Plain], "Plain cannot be made from JSON"),
        (Mixed, "the members of the enum Mixed must be strings or integers"),
        (Late, "Late.when is an InitVar"),
        (Untyped, "Untyped.x has no annotation"),
        (Box, "the type variable"),
        (Annotated[str, Gt(3)], "Can only set `gt` on a numeric type"),
        (Annotated[int, Gt("a")], "`gt` must be an int or float"),  # type: ignore[arg-type]
        (dict[Color, int], "the keys of a JSON object are text, not Color"),
        (dict[Point, int], "the keys of a JSON object are text, not Point"),
        (Annotated[Point | None, Gt(3)], "bounds none of the types"),
        (complex, "complex cannot be made from JSON"),
        ([int], "cannot be made from JSON"),
    ],
)
def test_what_no_model_could_give_is_refused_at_once(annotation: Any, text: str) -> None:
    """An annotation that JSON cannot be made into is an error at decoration, with the tool's and parameter's name."""
    with pytest.raises(ToolDefinitionError) as caught:
        tool_of(annotation)
    assert str(caught.value).startswith("tool 't': parameter 'v': ")
    assert text in str(caught.value)


@attrs.frozen
class Several:
    """Extras in one, as pydantic's `Field` holds them."""

    metadata: tuple[Any, ...]
    description: str


class Word(msgspec.Struct, tag="word"):
    text: str


class Number(msgspec.Struct, tag="number"):
    n: int


def test_extras_of_annotated_come_in_many_forms() -> None:
    """Bounds with a description, several in one, and patterns, compiled or not, all count."""
    assert schema_of(Annotated[int | None, msgspec.Meta(ge=1, description="n")])["description"] == "n"
    assert schema_of(Annotated[int, Several((Gt(1),), "n")]) == {
        "type": "integer",
        "exclusiveMinimum": 1,
        "description": "n",
    }
    assert schema_of(Annotated[str, Pattern(re.compile("^a"))]) == {"type": "string", "pattern": "^a"}
    assert schema_of(Annotated[str, Pattern("^a")]) == {"type": "string", "pattern": "^a"}


@attrs.frozen
class Pattern:
    pattern: Any


def test_tagged_structs_are_msgspecs_own() -> None:
    """Structs with tags are told apart by msgspec; two of one name cannot both be referred to."""
    assert decoded(Word | Number, '{"type":"number","n":1}') == Number(1)
    assert schema_of(Word | Number)["anyOf"] == [{"$ref": "#/$defs/Word"}, {"$ref": "#/$defs/Number"}]
    other = msgspec.defstruct("Word", [("letters", int)], tag="other")

    def both(a: Any, b: Any) -> None: ...

    both.__annotations__.update(a=Word, b=other)
    with pytest.raises(ToolDefinitionError, match="tool 'both': two types are called Word"):
        _ = FunctionTool(both).spec


def test_an_alias_has_a_definition() -> None:
    """What a `type` statement names is defined once under its name."""

    def both(a: Any, b: Any) -> None: ...

    both.__annotations__.update(a=Ids, b=Ids | None)
    made = FunctionTool(both)
    assert made.spec.parameters["$defs"] == {"Ids": {"type": "array", "items": {"type": "integer"}}}
    assert made.spec.parameters["properties"]["a"] == {"$ref": "#/$defs/Ids"}
    assert made.prepare(ToolCall("1", "both", {"a": [1], "b": None})).arguments == {"a": [1], "b": None}


def test_a_type_that_is_used_twice_is_defined_once() -> None:
    """An enum or class that several parameters share has one definition."""

    def paint(first: Color, second: Color, at: Point, to: Point) -> None: ...

    assert list(FunctionTool(paint).spec.parameters["$defs"]) == ["Color", "Point"]


def test_a_third_class_of_one_name_is_told_apart_too() -> None:
    """Numbers are given as long as names clash."""

    def many(a: Any, b: Any, c: Any) -> None: ...

    made = [dataclasses.make_dataclass("Point", [(name, int)]) for name in "abc"]
    many.__annotations__.update(zip("abc", made, strict=True))
    assert list(FunctionTool(many).spec.parameters["$defs"]) == ["Point", "Point_2", "Point_3"]


def test_an_annotation_that_is_nested_too_deeply_is_refused() -> None:
    """A type of a thousand lists is an error like any other."""
    annotation: Any = int
    for _ in range(1_000):
        annotation = list[annotation]
    with pytest.raises(ToolDefinitionError, match="nested too deeply"):
        tool_of(annotation)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type statements came with Python 3.12")  # pragma: no cover
def test_a_recursive_alias_refers_to_itself() -> None:
    """An alias of a `type` statement that contains itself has a definition, and is decoded as deep as it goes."""
    namespace: dict[str, Any] = {}
    exec("type Json = str | list[Json] | dict[str, Json]", namespace)  # a syntax error before 3.12
    tool = tool_of(namespace["Json"])
    assert tool.spec.parameters["$defs"]["Json"]["anyOf"][1] == {"type": "array", "items": {"$ref": "#/$defs/Json"}}
    assert decoded(namespace["Json"], '["a",{"b":["c"]}]') == ["a", {"b": ["c"]}]
    text = "$.v[1].b[0]: expected a string or an array or an object, got the integer 1"
    assert problem(namespace["Json"], '["a",{"b":[1]}]') == text


# Schemas from elsewhere


def foreign(parameters: Any, *, strict: bool | None = None) -> Tool:
    return Tool(name="t", parameters=parameters, execute=lambda arguments: arguments, strict=strict)


def foreign_problem(parameters: Any, arguments: Any) -> str:
    with pytest.raises(ArgumentError) as caught:
        foreign(parameters).prepare(ToolCall("1", "t", arguments))
    return str(caught.value)


def test_a_schema_from_elsewhere_is_checked_whole() -> None:
    """References, alternatives and the newest keywords count, and what does not fit is named as for typed tools."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "at": {"$ref": "#/$defs/point"},
            "span": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "integer"}], "items": False},
            "mode": {"oneOf": [{"const": "fast"}, {"const": "slow"}]},
        },
        "required": ["at"],
        "additionalProperties": False,
        "$defs": {"point": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}},
    }
    tool = foreign(schema)
    fitting = {"at": {"x": 1, "free": None}, "span": [1, 2], "mode": "slow"}
    assert tool.prepare(ToolCall("1", "t", fitting)).arguments == fitting
    assert foreign_problem(schema, {"at": {"x": "1"}}) == '$.at.x: expected an integer, got the string "1"'
    assert (
        foreign_problem(schema, {"at": {"x": 1}, "to": 1}) == '$: unknown key "to", the keys are "at", "span", "mode"'
    )
    assert foreign_problem(schema, {}) == '$: the key "at" is missing'
    assert "$.mode: fits none of 2 alternatives" in foreign_problem(schema, {"at": {"x": 1}, "mode": "odd"})
    assert foreign_problem(schema, {"at": {"x": 1}, "span": [1, 2, 3]})


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"type": "array"}, 'of "type": "object"'),
        ({"type": "object", "properties": {"a": {"type": "text"}}}, "not a usable JSON Schema"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}, "not a usable JSON Schema"),
        ({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/a.json"}}}, "are not followed"),
        ({"type": "object", "properties": {"a": {"$ref": "file:///etc/hosts"}}}, "are not followed"),
        ({"type": "object", "default": float("nan")}, "not a JSON Schema"),
        ({"type": "object", "default": {1, 2}}, "not a JSON Schema"),
    ],
)
def test_what_is_no_schema_is_refused_at_once(parameters: Any, text: str) -> None:
    """A schema that cannot be used is an error where the tool is made, and nothing is fetched for it."""
    with pytest.raises(ToolDefinitionError, match="tool 't': ") as caught:
        foreign(parameters)
    assert text in str(caught.value)


def test_an_old_dialect_is_read_as_what_it_says_it_is() -> None:
    """`$schema` decides: in draft 7 a list of `items` describes a tuple."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"pair": {"items": [{"type": "integer"}, {"type": "string"}]}},
    }
    assert foreign(schema).prepare(ToolCall("1", "t", {"pair": [1, "a"]})).arguments == {"pair": [1, "a"]}
    assert foreign_problem(schema, {"pair": [1, 2]}) == "$.pair[1]: expected a string, got the integer 2"


def test_anchors_are_followed_by_the_check_alone() -> None:
    """What lies behind an anchor is checked; where it cannot be found again, the words are the library's."""
    schema = {
        "type": "object",
        "properties": {"p": {"$ref": "#point"}},
        "$defs": {"P": {"$anchor": "point", "type": "object", "properties": {"x": {"type": "integer"}}}},
    }
    assert foreign(schema).prepare(ToolCall("1", "t", {"p": {"x": 1}})).arguments == {"p": {"x": 1}}
    assert foreign_problem(schema, {"p": {"x": "1"}}).startswith("$.p.x: ")
    assert '"1"' in foreign_problem(schema, {"p": {"x": "1"}})
    closed = {"$anchor": "point", "type": "object", "properties": {"x": True}, "additionalProperties": False}
    assert '$.p: unknown key "y"' in foreign_problem({**schema, "$defs": {"P": closed}}, {"p": {"y": 1}})


def test_every_keyword_has_its_words() -> None:
    """Limits, sizes, names and alternatives are said in words; what has none is said as the library says it."""
    for inner, value, words in [
        ({"uniqueItems": True}, [1, 1], "expected no item twice, got the array [1,1]"),
        ({"maxItems": 1}, [1, 2], "expected at most 1 items"),
        ({"multipleOf": 3}, 4, "expected a multiple of 3, got the integer 4"),
        ({"exclusiveMaximum": 3}, 3, "expected less than 3"),
        ({"const": {"a": 1}}, 3, 'expected {"a":1}, got the integer 3'),
        ({"type": ["array", "null"]}, 3, "expected an array or null"),
        ({"not": {"type": "integer"}}, 3, "got the integer 3"),
        ({"anyOf": [{"minimum": 5}, {"multipleOf": 2}]}, 3, "fits none of 2 alternatives"),
        ({"oneOf": [{"type": "integer"}, {"minimum": 1}]}, 3, "fits several of 2 alternatives"),
        ({"type": "string"}, {"deep": ["x"]}, 'expected a string, got the object {"deep":["x"]}'),
    ]:
        assert words in foreign_problem({"properties": {"a b": inner}}, {"a b": value})
        assert foreign_problem({"properties": {"a b": inner}}, {"a b": value}).startswith('$["a b"]: ')
    assert foreign_problem({"additionalProperties": False}, {"a": 1}) == '$: unknown key "a"'


def test_depth_is_no_crash() -> None:
    """However deep arguments are nested, they are taken or refused."""
    for depth in [200, 300, 2_000, *range(900, 1_000, 7)]:
        for text in ("[" * depth + "]" * depth, '{"a":' + "[" * depth + "]" * depth + "}"):
            for made in (tool_of(int), tool_of(Any), foreign({}), foreign({"properties": {"a": {"type": "string"}}})):
                with contextlib.suppress(ArgumentError):
                    made.prepare(ToolCall("1", "t", raw=text))


def test_an_expression_that_backtracks_for_ever_does_not() -> None:
    """A pattern of a stranger's does not hang the program."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    assert "regular expression" in foreign_problem(schema, {"a": "a" * 60 + "b"})


# The strict variant


def test_strict_schemas_close_every_object_and_require_every_key() -> None:
    """Also under `$defs`, in alternatives and lists: closed, all required, nullable where optional, no default."""

    def plan(steps: list[Point], shape: Cat | Dog | None = None, opts: Options | None = None, n: int = 3) -> None: ...

    parameters = FunctionTool(plan, strict=True).spec.parameters
    assert_strict(parameters)
    assert parameters["properties"]["n"] == {"type": ["integer", "null"]}
    assert parameters["$defs"]["Point"]["properties"]["y"] == {
        "type": ["integer", "null"],
        "description": "how far up",
    }
    assert parameters["$defs"]["Options"]["required"] == ["mode", "depth"]


def assert_strict(schema: Any) -> None:
    if isinstance(schema, dict):
        assert "default" not in schema or isinstance(schema["default"], dict)
        if "properties" in schema:
            assert schema["required"] == list(schema["properties"])
            assert schema["additionalProperties"] is False
        if "$ref" in schema:
            assert set(schema) == {"$ref"}
        for inner in schema.values():
            assert_strict(inner)
    elif isinstance(schema, list):
        for inner in schema:
            assert_strict(inner)


def test_a_null_that_strictness_forced_means_the_default() -> None:
    """Where null is no value of an optional key's type, it is taken as left out, however deep the key lies."""

    def plan(
        steps: list[Point],
        mode: Literal["x", "y"] = "x",
        note: str | None = "n",
        pet: Cat | Box[int] | None = None,
    ) -> None: ...

    tool = FunctionTool(plan, strict=True)
    given = {
        "steps": [{"x": 1, "y": None, "tags": None}],
        "mode": None,
        "note": None,
        "pet": {"content": 1, "spare": None},
    }
    assert tool.prepare(ToolCall("1", "plan", given)).arguments == {
        "steps": [Point(1)],
        "note": None,
        "pet": Box(1),
    }
    with pytest.raises(ArgumentError, match="expected an integer, got null"):
        tool.prepare(ToolCall("1", "plan", {"steps": [{"x": None}]}))
    with pytest.raises(ArgumentError, match="got null"):
        FunctionTool(plan).prepare(ToolCall("1", "plan", {"steps": [], "mode": None}))


def test_strictness_of_a_schema_from_elsewhere() -> None:
    """It is rewritten in a copy, and the nulls that the copy forces never reach `execute`."""
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "default": "z"},
            "b": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "c": {"enum": ["x", "y"], "type": "string"},
            "d": {"$ref": "#/$defs/d", "description": "the d"},
            "e": {"type": "array", "items": {"$ref": "#/$defs/d"}},
            "f": {"const": 1},
            "g": True,
            "h": False,
            "i": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/d"}}]},
            "j": {"anyOf": [{"type": "object", "properties": {"x": True, "k": {"const": 1}}}, {"$ref": "#/$defs/d"}]},
        },
        "required": ["e", "i"],
        "$defs": {"d": {"type": "object", "properties": {"x": {"type": "integer"}}}},
    }
    before = repr(schema)
    tool = foreign(schema, strict=True)
    parameters = tool.spec.parameters
    assert_strict(parameters)
    assert parameters["properties"]["c"] == {"enum": ["x", "y", None], "type": ["string", "null"]}
    assert parameters["properties"]["d"]["description"] == "the d"
    assert parameters["properties"]["h"] == {"anyOf": [False, {"type": "null"}]}
    given = {"a": None, "b": None, "c": None, "d": {"x": None}, "e": [{"x": None}, {"x": 1}], "f": None, "g": None}
    given |= {"h": None, "i": [{"x": None}], "j": {"x": 2, "k": None}}
    assert tool.prepare(ToolCall("1", "t", given)).arguments == {
        "b": None,
        "d": {},
        "e": [{}, {"x": 1}],
        "g": None,
        "i": [{}],
        "j": {"x": 2},
    }
    assert repr(schema) == before
    assert foreign({"type": "object"}, strict=True).spec.parameters["properties"] == {}


def test_strictness_cannot_express_free_keys() -> None:
    """An object whose keys nobody knows beforehand is an error, rather than an object that must stay empty."""
    with pytest.raises(ToolDefinitionError, match="strict=True cannot express"):
        foreign({"type": "object", "properties": {"a": {"type": "object"}}}, strict=True)
    with pytest.raises(ToolDefinitionError, match="tool 't': strict=True cannot express"):
        _ = tool_of(dict[str, int], strict=True).spec


def test_a_schema_that_goes_round_in_circles_ends() -> None:
    """References that lead back to themselves are no reason to hang, neither for strictness nor for nulls."""
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}},
    }
    tool = foreign(schema, strict=True)
    assert tool.prepare(ToolCall("1", "t", {"a": {"b": None}})).arguments == {"a": {"b": None}}


# Whatever comes

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.sampled_from(["", "a", "red", "\ud83d"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["x", "y", "value", "children", "content", "kind", "radius"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)
ANNOTATIONS = [
    int,
    float | None,
    bool | int | str,
    list[int | None],
    dict[str, list[float]],
    Color | Level,
    Point,
    Circle | Square | Literal["a", 1],
    Box[Any] | list[Point] | None,
    Annotated[int | list[int], Gt(-1)],
    tuple[int, str | None],
    Movie | Options,
    Any,
]


@pytest.mark.parametrize("annotation", ANNOTATIONS)
def test_decoding_and_schema_agree(annotation: Any) -> None:
    """What the schema allows is decoded, and what it does not allow is refused with a text that can be sent."""
    made = tool_of(annotation)
    checked = foreign(made.spec.parameters)

    @hypothesis.given(json_values)
    def whatever_comes(value: Any) -> None:
        call = ToolCall("1", "t", {"v": value})
        problems = []
        for tool in (made, checked):
            try:
                assert set(tool.prepare(call).arguments) == {"v"}
            except ArgumentError as error:
                problems.append(str(error))
        assert len(problems) in (0, 2), value
        for text in problems:
            assert text.startswith("$")
            text.encode()

    whatever_comes()


LEAVES = [
    True,
    {"type": "integer", "default": 3},
    {"type": ["string", "null"], "minLength": 1},
    {"enum": ["a", "red", None]},
    {"const": 1},
    {"$ref": "#/$defs/a", "description": "a"},
    {"$ref": "#"},
    {"type": "object"},
    {"type": "text"},
    "no schema",
]
odd_schemas = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: (
        st.dictionaries(st.sampled_from(["x", "y"]), inner).map(lambda p: {"type": "object", "properties": p})
        | st.builds(lambda key, parts: {key: parts}, st.sampled_from(["anyOf", "oneOf"]), st.lists(inner, min_size=1))
        | st.builds(lambda key, part: {key: part}, st.sampled_from(["items", "not", "additionalProperties"]), inner)
    ),
    max_leaves=6,
)


@hypothesis.given(odd_schemas, odd_schemas, json_values, st.booleans())
def test_any_schema_makes_a_tool_or_a_definition_error(inner: Any, other: Any, value: Any, strict: bool) -> None:
    """However odd a schema from elsewhere is, making a tool of it and calling that fail in the two ways they may."""
    try:
        made = foreign({"properties": {"a": inner}, "$defs": {"a": other}}, strict=strict)
        assert made.spec.parameters["type"] == "object"
    except ToolDefinitionError:
        return
    with contextlib.suppress(ArgumentError):
        assert "a" in made.prepare(ToolCall("1", "t", {"a": value})).arguments or value is None
