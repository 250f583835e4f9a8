"""Tools: what may become one, how a call of one is prepared, and how it is invoked."""

from __future__ import annotations

import functools
import inspect
import json
import pathlib
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Optional, TypeVar

import pytest
import trio

from trio_agent._errors import ArgumentError, ToolDefinitionError
from trio_agent._messages import ToolCall
from trio_agent._tool_context import ToolContext
from trio_agent._tools import FunctionTool, Tool, tool

if TYPE_CHECKING:
    from fractions import Fraction

R = TypeVar("R")
OBJECT = {"type": "object", "properties": {"path": {"type": "string"}, "n": {"type": "integer"}}}
CONTEXT: Any = object()  # invoke only passes it on


def call(raw: str | None = None, **arguments: Any) -> ToolCall:
    return ToolCall("1", "t", arguments, raw=raw)


async def run(made: Tool, **arguments: Any) -> Any:
    """Prepare and invoke, as a run does it."""
    value: Any = made.invoke(made.prepare(call(**arguments)), CONTEXT)
    if made.is_async:
        return await value
    return value


# Definition


def test_a_function_gives_its_name_description_and_parameters() -> None:
    """`@tool` takes everything from the function; the specification is computed once."""

    @tool
    async def read_file(path: str, limit: int = 2000) -> str:
        """Read a text file.

        Args:
            path: where it is
            limit: how many lines at most
        """
        raise AssertionError("only looked at")

    assert (read_file.name, read_file.description, read_file.strict) == ("read_file", "Read a text file.", None)
    assert (read_file.serial, read_file.timeout, read_file.is_async) == (False, None, True)
    assert read_file.spec.parameters == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "where it is"},
            "limit": {"type": "integer", "description": "how many lines at most", "default": 2000},
        },
        "required": ["path"],
        "additionalProperties": False,
    }
    assert read_file.spec is read_file.spec
    assert repr(read_file) == "FunctionTool(name='read_file')"


def test_options_go_before_what_the_function_says() -> None:
    """`@tool(...)` sets the name, the description and how calls are run."""

    @tool(name="grep", description="Look.", serial=True, timeout=30, strict=True)
    def search(words: str) -> None:
        """Search."""

    assert (search.name, search.description, search.serial, search.timeout) == ("grep", "Look.", True, 30)
    assert (search.spec.name, search.spec.description, search.spec.strict) == ("grep", "Look.", True)


async def test_a_tool_can_still_be_called_as_its_function() -> None:
    """Applications and tests call a tool directly, with Python's own arguments and defaults."""

    @tool
    async def double(n: int, times: int = 2) -> int:
        await trio.lowlevel.checkpoint()
        return n * times

    @tool
    def half(n: int) -> float:
        return n / 2

    assert await double(4) == 8
    assert await double(n=4, times=3) == 12
    assert half(3) == 1.5
    assert list(inspect.signature(double).parameters) == ["n", "times"]


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ü", "x" * 65, "a\n", "<lambda>"])
def test_a_name_that_services_refuse_is_refused(name: str) -> None:
    """A tool's name is 1 to 64 letters, digits, `_` and `-`."""
    with pytest.raises(ToolDefinitionError, match="is no name for a tool"):
        Tool(name=name, parameters=OBJECT, execute=lambda arguments: None)


def test_a_lambda_needs_a_name() -> None:
    """What has no usable name of its own is given one."""
    nameless: Callable[[], None] = lambda: None  # noqa: E731
    with pytest.raises(ToolDefinitionError, match="pass name=") as caught:
        tool(nameless)
    assert "'<lambda>'" in str(caught.value)
    assert tool(name="nothing")(nameless).name == "nothing"


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), True, "5"])
def test_a_timeout_is_a_positive_number_of_seconds(timeout: Any) -> None:
    """Anything else is an error where the tool is defined."""
    with pytest.raises(ToolDefinitionError, match="tool 't': timeout must be a positive number of seconds"):
        Tool(name="t", parameters=OBJECT, execute=lambda arguments: None, timeout=timeout)


async def _agen(n: int) -> AsyncIterator[int]:
    yield n  # pragma: no cover - only looked at


def _gen(n: int) -> Iterator[int]:
    yield n  # pragma: no cover - only looked at


class _Methods:
    def method(self, n: int) -> int:
        return n

    def __call__(self, n: int) -> int:
        return -n


def _positional(n: int, /) -> None: ...
def _star(*n: int) -> None: ...
def _keywords(**n: int) -> None: ...
def _untyped(n) -> None: ...  # type: ignore[no-untyped-def]


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (_agen, "a generator function cannot be a tool"),
        (_gen, "a generator function cannot be a tool"),
        (functools.partial(_agen, 1), "a generator function cannot be a tool"),
        (_positional, "parameter 'n' is positional-only"),
        (_star, "parameter 'n' takes any number of values"),
        (_keywords, "parameter 'n' takes any names"),
        (_untyped, "parameter 'n' has no annotation"),
        (_Methods.method, "make a tool of the bound method instead"),
        (_Methods, "not of a class"),
        (3, "not of int"),
        (max, "its signature cannot be read"),
    ],
)
def test_a_function_that_no_model_could_call_is_refused(function: Any, text: str) -> None:
    """What cannot be described or called by name is an error at decoration that says what to do instead."""
    with pytest.raises(ToolDefinitionError, match="tool '") as caught:
        tool(function)
    assert text in str(caught.value)


def test_execute_takes_one_or_two_values() -> None:
    """`execute` gets the arguments, and the context if it has room for it; anything else is refused."""
    for execute in (lambda: None, lambda a, b, c: None, lambda *, a: None):
        with pytest.raises(ToolDefinitionError, match=r"execute is called as execute\(arguments, context\)"):
            Tool(name="t", parameters=OBJECT, execute=execute)
    for accepted in (lambda a: None, lambda a, b: None, lambda a, b=None: None, lambda *a: None, print, max):
        Tool(name="t", parameters=OBJECT, execute=accepted)


# Async or not


def _passing_on(function: Callable[..., R]) -> Callable[..., R]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> R:
        return function(*args, **kwargs)

    return wrapper


def _made_async(function: Callable[..., R]) -> Callable[..., Awaitable[R]]:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> R:
        return function(*args, **kwargs)

    return wrapper


async def _plus(n: int, more: int = 1) -> int:
    return n + more


def _minus(n: int) -> int:
    return n - 1


class _AsyncCallable:
    async def __call__(self, n: int) -> int:
        return n * 10

    async def method(self, n: int) -> int:
        return n * 20


@pytest.mark.parametrize(
    ("function", "name", "is_async", "result"),
    [
        (_plus, "_plus", True, 5),
        (_minus, "_minus", False, 3),
        (functools.partial(_plus, more=5), "_plus", True, 9),
        (functools.partial(functools.partial(_minus)), "_minus", False, 3),
        (_passing_on(_plus), "_plus", True, 5),
        (_passing_on(functools.partial(_plus, more=2)), "wrapper", True, 6),
        (_made_async(_minus), "_minus", True, 3),
        (_passing_on(_minus), "_minus", False, 3),
        (_AsyncCallable(), "_AsyncCallable", True, 40),
        (_AsyncCallable().method, "method", True, 80),
        (_Methods(), "_Methods", False, -4),
        (_Methods().method, "method", False, 4),
        (functools.partial(_AsyncCallable()), "_AsyncCallable", True, 40),
    ],
)
async def test_whether_a_tool_is_async_shows_through_wrappings(
    function: Any, name: str, is_async: bool, result: int
) -> None:
    """Partials, decorators, bound methods and callable objects are async where what they lead to is."""
    made = tool(function)
    assert (made.name, made.is_async) == (name, is_async)
    assert next(iter(made.spec.parameters["properties"])) == "n"
    assert await run(made, n=4) == result


def test_what_a_partial_binds_is_not_the_models() -> None:
    """A value that the author has bound is no part of the schema and cannot be given."""
    made = tool(functools.partial(_plus, more=5))
    assert list(made.spec.parameters["properties"]) == ["n"]
    with pytest.raises(ArgumentError, match='unknown key "more"'):
        made.prepare(call(n=1, more=2))


async def test_an_async_tool_gives_a_coroutine_whatever_its_decorator_gives() -> None:
    """A decorator that answers by itself, or with another awaitable, is awaited like any async function."""

    @tool
    @functools.wraps(_plus)
    def cached(n: int, more: int = 1) -> Any:
        return 42

    value: Any = cached.invoke(cached.prepare(call(n=1)), CONTEXT)
    assert inspect.iscoroutine(value)
    assert await value == 42


# The context


@pytest.mark.parametrize("annotation", [ToolContext, ToolContext | None, Optional[ToolContext], "ToolContext"])  # noqa: UP045
def test_the_context_is_the_kernels(annotation: Any) -> None:
    """A parameter for the `ToolContext` is no part of the schema, cannot be given, and is filled in."""

    def which(n: int, context: Any = None) -> Any:
        return (n, context)

    which.__annotations__["context"] = annotation
    made = tool(which)
    assert list(made.spec.parameters["properties"]) == ["n"]
    assert made.invoke(made.prepare(call(n=1)), CONTEXT) == (1, CONTEXT)
    with pytest.raises(ArgumentError, match='unknown key "context"'):
        made.prepare(call(n=1, context=None))


def test_the_context_is_known_where_only_type_checkers_import_it() -> None:
    """The one name that is looked up although the module does not have it when it runs."""
    namespace: dict[str, Any] = {"__name__": "elsewhere"}
    source = "from __future__ import annotations\ndef f(n: int, context: ToolContext | None = None): return context"
    exec(source, namespace)  # a module of its own, without the import
    made = tool(namespace["f"])
    assert list(made.spec.parameters["properties"]) == ["n"]
    assert made.invoke(made.prepare(call(n=1)), CONTEXT) is CONTEXT


# Arguments


@pytest.mark.parametrize("raw", ["", " ", "null", " null\n", "{}", "{ }"])
def test_no_arguments_come_in_many_ways(raw: str) -> None:
    """Blank text and null are no arguments (B051)."""

    def ping() -> str:
        return "pong"

    for made in (tool(ping), Tool(name="t", parameters={"type": "object"}, execute=lambda arguments: "pong")):
        prepared = made.prepare(call(raw))
        assert prepared.arguments == {}
        assert made.invoke(prepared, CONTEXT) == "pong"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("[]", "$: expected an object with the parameters as keys, got the array []"),
        ("3", "$: expected an object with the parameters as keys, got the integer 3"),
        ('"{}"', '$: expected an object with the parameters as keys, got the string "{}"'),
        ('{"n":', "$: this is not valid JSON: Expecting value"),
        ('{"n":1} and more', "$: this is not valid JSON: Extra data"),
        ('{"n":NaN}', "$: this is not valid JSON: NaN is not a JSON number"),
        ('{"n":1e999}', "$: this is not valid JSON: 1e999 is out of range"),
        ("[" * 100_000, "$: the JSON is nested too deeply"),
    ],
)
def test_what_is_no_object_is_an_argument_error(raw: str, text: str) -> None:
    """Arguments that are not one JSON object are an error in words, not a crash, for both kinds of tools."""
    for made in (tool(_plus), Tool(name="t", parameters=OBJECT, execute=_plus)):
        with pytest.raises(ArgumentError) as caught:
            made.prepare(call(raw))
        assert str(caught.value).startswith(text)


def test_a_lone_surrogate_is_text() -> None:
    """Half of a surrogate pair, raw or escaped, arrives as it is and can be quoted in an error."""

    def say(text: str, n: int = 0) -> None: ...

    for made in (tool(say), Tool(name="t", parameters={"type": "object"}, execute=say)):
        for raw in ('{"text":"\\ud83d"}', '{"text":"\ud83d"}'):
            assert made.prepare(call(raw)).arguments == {"text": "\ud83d"}
    described = {"type": "object", "properties": {"text": {"enum": ["a"]}, "n": {"type": "integer"}}}
    for made in (tool(say), Tool(name="t", parameters=described, execute=say)):
        with pytest.raises(ArgumentError, match='expected an integer, got the string "\ufffd"') as caught:
            made.prepare(call('{"text":"\ud83d","n":"\\ud83d"}'))
        str(caught.value).encode()


def test_a_schema_is_copied() -> None:
    """Whoever changes the schema that a tool was made of, or one that it gave, does not change the tool."""
    schema: dict[str, Any] = json.loads(json.dumps(OBJECT))
    made = Tool(name="t", parameters=schema, execute=lambda arguments: None)
    schema["properties"].clear()
    made.spec.parameters["properties"].clear()
    assert made.spec.parameters == OBJECT


def test_a_hooks_arguments_are_validated_again() -> None:
    """What a hook puts in place of a call's arguments is decoded and refused like what a model gives."""

    def go(to: pathlib.Path, n: int = 0) -> None: ...

    typed, foreign = tool(go), Tool(name="t", parameters=OBJECT, execute=go)
    assert typed.prepare_value({"to": "a"}).arguments == {"to": pathlib.Path("a")}
    assert foreign.prepare_value({"path": "a"}).arguments == {"path": "a"}
    for made in (typed, foreign):
        with pytest.raises(ArgumentError, match="expected an integer"):
            made.prepare_value({"to": "a", "n": "1"})
        with pytest.raises(ArgumentError, match="the arguments are not JSON"):
            made.prepare_value({"to": object()})


def test_each_preparation_gives_arguments_of_its_own() -> None:
    """A tool that changes its arguments does not change those of the next call."""
    made = Tool(name="t", parameters={"type": "object"}, execute=lambda arguments: arguments["a"].append(1))
    one = call(a=[])
    first = made.prepare(one)
    made.invoke(first, CONTEXT)
    assert first.arguments == {"a": [1]}
    assert made.prepare(one).arguments == {"a": []}


# Files


def test_the_files_of_a_call_are_the_values_of_its_parameters() -> None:
    """Names of parameters give text, paths, sequences of both, and nothing for None; a default counts too."""

    @tool(writes=("path", "others"))
    def write(path: pathlib.Path, others: list[str] | None = None) -> None: ...

    @tool(writes="log")
    def note(log: str = "log.txt") -> None: ...

    assert write.prepare(call(path="a")).paths == ("a",)
    assert write.prepare(call(path="a", others=["b", "c/../d"])).paths == ("a", "b", "c/../d")
    assert note.prepare(call()).paths == ("log.txt",)
    assert note.prepare(call(log="x")).paths == ("x",)
    assert tool(_minus).prepare(call(n=1)).paths == ()


def test_the_files_of_a_call_can_be_computed() -> None:
    """A function of the decoded arguments, defaults included, gives the paths."""

    @tool(writes=lambda arguments: [pathlib.Path(arguments["folder"]) / name for name in arguments["names"]])
    def touch(names: list[str], folder: str = "out") -> None: ...

    assert touch.prepare(call(names=["a", "b"])).paths == ("out/a", "out/b")


def test_the_files_of_a_tool_from_elsewhere() -> None:
    """Its parameters are the properties of its schema, and the defaults are those that the schema tells."""
    schema = {"type": "object", "properties": {"path": {"default": "z"}, "free": True}}
    made = Tool(name="t", parameters=schema, execute=lambda arguments: None, writes=("path", "free"))
    assert made.prepare(call()).paths == ("z",)
    assert made.prepare(call(path="a", free=["b", None])).paths == ("a", "b")
    with pytest.raises(ArgumentError, match="expected the path of a file to write, got int"):
        made.prepare(call(path=3))


def test_an_unknown_parameter_in_writes_is_refused() -> None:
    """A misspelt name would leave a file unprotected, so it is an error where the tool is defined."""
    with pytest.raises(ToolDefinitionError, match="tool '_minus': writes names 'pth', which is no parameter"):
        tool(writes=("n", "pth"))(_minus)
    with pytest.raises(ToolDefinitionError, match="the parameters are: path, n"):
        Tool(name="t", parameters=OBJECT, execute=_minus, writes=("to",))


# What is found out late


def _impossible(n: Fraction) -> None: ...


def test_a_name_that_never_comes_is_named_at_first_use() -> None:
    """An annotation that cannot be resolved is an error with tool, parameter and name, each time it is needed."""
    made = tool(_impossible)
    for _ in range(2):
        with pytest.raises(ToolDefinitionError, match=r"'_impossible': parameter 'n': .*'Fraction' is not defined"):
            _ = made.spec
        with pytest.raises(ToolDefinitionError):
            made.prepare(call(n=1))


def _broken(n: trio.no_such_thing) -> None: ...  # type: ignore[name-defined]


def test_an_annotation_that_raises_is_refused_at_once() -> None:
    """What is wrong with an annotation for good is an error at decoration."""
    with pytest.raises(ToolDefinitionError, match=r"tool '_broken': parameter 'n': .*no_such_thing"):
        tool(_broken)


# Prices


def in_a_fresh_interpreter(source: str, *options: str) -> str:
    command = [sys.executable, *options, "-c", textwrap.dedent(source)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_importing_tools_imports_no_dear_library() -> None:
    """msgspec, docstring_parser and jsonschema_rs are loaded by the first tool that needs them."""
    source = """
        import sys
        import trio_agent._tools, trio_agent._results
        before = {"msgspec", "docstring_parser", "jsonschema_rs"} & set(sys.modules)
        @trio_agent._tools.tool
        def f(n: int) -> None:
            "One line."
        f.spec
        print(sorted(before), {"docstring_parser", "jsonschema_rs"} & set(sys.modules))
    """
    assert in_a_fresh_interpreter(source) == "[] set()\n"


def test_no_docstrings_at_all() -> None:
    """Under `python -OO` tools have no descriptions and are otherwise the same."""
    source = '''
        import dataclasses
        from trio_agent._messages import ToolCall
        from trio_agent._tools import tool
        @dataclasses.dataclass
        class Point:
            """A point."""
            x: int
        @tool
        def f(at: Point, n: int = 1) -> None:
            """Do it.

            Args:
                n: how often
            """
        print(repr(f.description), f.spec.parameters["properties"]["n"])
        print(f.prepare(ToolCall("1", "f", {"at": {"x": 1}})).arguments)
    '''
    assert in_a_fresh_interpreter(source, "-OO").splitlines() == [
        "'' {'type': 'integer', 'default': 1}",
        "{'at': Point(x=1)}",
    ]


def test_tools_are_told_apart_by_identity() -> None:
    """Two tools made alike are two tools, and a tool can be a key."""
    first, second = tool(_minus), tool(_minus)
    assert first != second
    assert len({first, second}) == 2
    with pytest.raises(AttributeError):
        first.name = "other"  # type: ignore[misc]
    assert isinstance(first, FunctionTool)
