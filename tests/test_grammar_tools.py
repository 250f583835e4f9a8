"""Tools for models whose template knows none: the schema, the words, the reading, and the adapter around a provider."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_agent import (
    Agent,
    AssistantMessage,
    Finish,
    Image,
    Message,
    ProviderError,
    ResponseInfo,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
    ToolResultMessage,
    Usage,
    UsageReport,
    UserMessage,
    tool,
)
from trio_agent._chunks import Chunk
from trio_agent._json import dumps
from trio_agent._provider import Send
from trio_agent._request import ModelRequest, ModelSettings, ToolSpec
from trio_agent.providers._grammar_prompt import as_text, tools_prompt, with_reminder
from trio_agent.providers._grammar_reply import Reply
from trio_agent.providers._grammar_schema import named_choices, reply_schema
from trio_agent.providers._grammar_tools import GrammarTools

READ = ToolSpec(
    "read_file",
    "Read a text file.",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "where it is", "enum": ["a.py", "notes.txt", "lib/a.py"]},
            "limit": {"type": "integer", "minimum": 1},
        },
        "required": ["path"],
    },
)
ADD = ToolSpec("add", "Add numbers.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
CALL = ToolCall("c1", "read_file", {"path": "a.py"})
RESULT = ToolResultMessage("c1", "read_file", "print(1)")


def arguments_of(schema: dict[str, Any], **options: bool) -> dict[str, Any]:
    """What the reply schema says of the arguments of one tool with this schema."""
    whole = reply_schema([ToolSpec("t", "", schema)], answer=False, **{"required_only": False, **options})
    arguments = whole["properties"]["arguments"]
    return whole["$defs"]["tool0"] if "$ref" in arguments else arguments


# The schema


def test_a_reply_is_a_call_of_one_of_the_tools_or_an_answer() -> None:
    """Each tool is one alternative, named and with its own arguments, and an answer is another."""
    schema = reply_schema([READ, ADD], answer=True, required_only=False)
    first, second, answer = schema["anyOf"]
    assert first["properties"]["tool"] == {"enum": ["read_file"]}
    assert set(first["properties"]["arguments"]["properties"]) == {"path", "limit"}
    assert second["properties"]["tool"] == {"enum": ["add"]}
    assert answer["properties"] == {"answer": {"type": "string"}}
    assert all(reply["required"] == list(reply["properties"]) for reply in schema["anyOf"])
    assert all(reply["additionalProperties"] is False for reply in schema["anyOf"])


def test_without_an_answer_a_single_tool_is_the_whole_schema() -> None:
    """Where a call must be made, nothing else fits."""
    schema = reply_schema([ADD], answer=False, required_only=False)
    assert schema["properties"]["tool"] == {"enum": ["add"]}
    assert "anyOf" not in schema


def test_optional_arguments_can_be_left_out_of_the_schema() -> None:
    """`required_only` keeps what a call cannot do without."""
    schema = reply_schema([READ], answer=False, required_only=True)
    assert list(schema["properties"]["arguments"]["properties"]) == ["path"]


def test_words_that_makers_of_grammars_refuse_are_left_out() -> None:
    """A request does not fail over a pattern, a format or a boolean for a schema."""
    arguments = arguments_of(
        {
            "type": "object",
            "title": "T",
            "properties": {
                "a": {"type": "string", "pattern": "[a-z]+", "format": "x", "maxLength": 5, "default": "q"},
                "b": True,
                "c": {"oneOf": [{"type": "null"}, {"const": 3}]},
                "d": {"type": "array", "items": False, "prefixItems": [{"type": "integer"}], "minItems": 1},
                "e": {"type": "nonsense", "enum": []},
                "f": {"type": ["string", "null"]},
            },
            "required": ["a", "nowhere"],
        }
    )
    assert arguments["properties"] == {
        "a": {"type": "string", "maxLength": 5},
        "b": {},
        "c": {"anyOf": [{"type": "null"}, {"const": 3}]},
        "d": {"type": "array", "prefixItems": [{"type": "integer"}], "minItems": 1},
        "e": {},
        "f": {"type": ["string", "null"]},
    }
    assert arguments["required"] == ["a"]


def test_parameters_may_be_called_like_words_of_the_schema_language() -> None:
    """A parameter named `enum`, `$ref` or `properties` is a parameter."""
    properties = {name: {"type": "integer"} for name in ("enum", "$ref", "properties", "type", "const")}
    assert arguments_of({"type": "object", "properties": properties})["properties"] == properties


def test_references_lead_to_their_tools_own_definitions() -> None:
    """Two tools may call different things by the same name, and a tree may hold trees."""
    tree = {
        "type": "object",
        "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/Node"}}, "self": {"$ref": "#"}},
        "$defs": {"Node": {"enum": ["x"]}},
    }
    schema = reply_schema([ADD, ToolSpec("grow", "", tree)], answer=True, required_only=False)
    assert schema["anyOf"][1]["properties"]["arguments"] == {"$ref": "#/$defs/tool1"}
    grown = schema["$defs"]["tool1"]
    assert grown["properties"]["kids"]["items"] == {"$ref": "#/$defs/tool1/$defs/Node"}
    assert grown["properties"]["self"] == {"$ref": "#/$defs/tool1"}
    assert grown["$defs"]["Node"] == {"enum": ["x"]}


def test_a_reference_that_leads_nowhere_allows_anything() -> None:
    """A server would refuse the request for it, and the kernel says what is wrong with the call."""
    properties = {"a": {"$ref": "#/$defs/none"}, "b": {"$ref": "https://example.org/schema"}}
    assert arguments_of({"type": "object", "properties": properties})["properties"] == {"a": {}, "b": {}}


def test_a_tool_without_parameters_takes_an_empty_object() -> None:
    """A schema that says nothing is that of an object without properties."""
    assert arguments_of({}) == {"type": "object", "properties": {}, "additionalProperties": False}


def test_an_object_of_any_keys_stays_one() -> None:
    """Where a schema types the values of keys that it does not name, they may come."""
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    assert arguments_of(schema) == schema


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "properties", "items", "$ref", "enum", "required", "anyOf", "$defs", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["type", "properties", "items", "$ref", "$defs", "anyOf"]), json_values))
def test_no_schema_is_too_strange(schema: dict[str, Any]) -> None:
    """Whatever stands in a tool's schema, a reply schema comes of it, and the prompt can be written."""
    spec = ToolSpec("t", "d", schema)
    assert json.loads(dumps(reply_schema([spec], answer=True, required_only=True)))["anyOf"]
    assert "- t(" in tools_prompt([spec], answer=True)


# What the user named


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("What does notes.txt say?", ["notes.txt"]),
        ("Read a.py.", ["a.py"]),
        ("Compare `a.py` with 'notes.txt'", ["a.py", "notes.txt"]),
        ("Read lib/a.py", ["lib/a.py"]),
        ("Read (lib/a.py)", ["lib/a.py"]),
    ],
)
def test_choices_that_the_user_named_are_the_only_ones(text: str, named: list[str]) -> None:
    """A path in the question narrows the tool's choices to it, and the tools to those that have such a choice."""
    (narrowed,) = named_choices([ADD, READ], text)
    assert narrowed.name == "read_file"
    assert narrowed.parameters["properties"]["path"]["enum"] == named


@pytest.mark.parametrize("text", ["Hello", "Read xa.py", "Read a.pyc", "Read notes.txt.bak", "", "additional"])
def test_nothing_is_narrowed_by_words_that_only_look_alike(text: str) -> None:
    """A choice counts only as a whole word."""
    assert named_choices([ADD, READ], text) == ()


def test_a_tool_may_be_named_itself() -> None:
    """Where no choice is named, the name of a tool narrows to it."""
    assert named_choices([ADD, READ], "Use add with 3") == (ADD,)


def test_an_optional_choice_that_was_named_is_asked_for() -> None:
    """What the user named is not left out for being optional."""
    spec = ToolSpec("go", "", {"type": "object", "properties": {"way": {"enum": ["left", "right"]}}})
    narrowed = named_choices([spec], "go left")
    schema = reply_schema(narrowed, answer=False, required_only=True)
    assert schema["properties"]["arguments"]["properties"] == {"way": {"enum": ["left"]}}


# The words


def test_the_prompt_names_tools_parameters_and_their_meaning() -> None:
    """A model reads names, descriptions, which parameters are optional, and short lists of choices."""
    assert tools_prompt([READ, ADD], answer=True).splitlines() == [
        "You answer with JSON. You have these tools:",
        "- read_file(path, limit?): Read a text file.",
        '    path: one of "a.py", "notes.txt", "lib/a.py", where it is',
        "    limit: integer",
        "- add(a): Add numbers.",
        "    a: integer",
        'To use a tool: {"tool": its name, "arguments": its parameters}.',
        'Otherwise: {"answer": your text}.',
    ]


def test_calls_and_results_go_out_as_text() -> None:
    """A model whose template knows no tools sees its call as the JSON it gave, and the result as what a user said."""
    history: list[Message] = [
        UserMessage("What is in a.py?"),
        AssistantMessage([Thinking("hm"), CALL]),
        RESULT,
        AssistantMessage("It prints."),
        UserMessage("Thanks"),
    ]
    assert as_text(history, json=True) == [
        UserMessage("What is in a.py?"),
        AssistantMessage('{"tool":"read_file","arguments":{"path":"a.py"}}'),
        UserMessage("read_file returned:\nprint(1)"),
        AssistantMessage('{"answer":"It prints."}'),
        UserMessage("Thanks"),
    ]


def test_as_prose_a_call_is_told_with_its_result() -> None:
    """A small model that sees itself calling a tool calls it again: so it does not."""
    history: list[Message] = [UserMessage("What is in a.py?"), AssistantMessage([CALL]), RESULT]
    (message,) = as_text(history, json=False)
    assert isinstance(message, UserMessage)
    assert message.text == 'What is in a.py?\n\nread_file {"path":"a.py"} returned:\nprint(1)'


def test_roles_alternate_and_images_stay() -> None:
    """Results of several calls, and what was steered, become one message; what is no text is kept."""
    image = Image(b"png", "image/png")
    history: list[Message] = [
        AssistantMessage([CALL, ToolCall("c2", "add", raw="{oops")]),
        ToolResultMessage("c1", "read_file", [image]),
        ToolResultMessage("c2", "add", "no", is_error=True),
        UserMessage("Go on"),
    ]
    first, second = as_text(history, json=True)
    assert first == AssistantMessage(
        '{"tool":"read_file","arguments":{"path":"a.py"}}\n{"tool":"add","arguments":"{oops"}'
    )
    assert second == UserMessage([Text("read_file returned:\n"), image, Text("\n\nadd failed:\nno\n\nGo on")])


def test_the_question_is_repeated_behind_the_results() -> None:
    """The last thing a small model reads is what it was asked."""
    (message,) = with_reminder([UserMessage("add returned:\n3")], "What is 1 plus 2?")
    assert message == UserMessage("add returned:\n3\n\nNow answer my question: What is 1 plus 2?")


# The reading


def read(pieces: Sequence[str]) -> tuple[str, str | None, str]:
    """The text that was told, the tool that was called, and the JSON of its arguments."""
    reply = Reply(0)
    chunks = [chunk for piece in pieces for chunk in reply.feed(piece)] + list(reply.end())
    text = "".join([chunk.text for chunk in chunks if isinstance(chunk, TextDelta)])
    names = [chunk.name for chunk in chunks if isinstance(chunk, ToolCallStart)]
    arguments = "".join([chunk.json for chunk in chunks if isinstance(chunk, ToolCallDelta)])
    assert reply.has_call == bool(names)
    return text, (names or [None])[0], arguments


REPLIES = [
    ('{"answer": "Hello\\n\\"you\\" \\ud83d\\ude00 é"}', ('Hello\n"you" 😀 é', None, "")),
    ('{\n  "answer" : ""\n}', ("", None, "")),
    (
        ' {"tool": "read_file", "arguments": {"path": "é\\"", "n": [1.5, null]}}\n',
        ("", "read_file", '{"path":"é\\"","n":[1.5,null]}'),
    ),
    ('{"tool": "x", "arguments": {}}', ("", "x", "{}")),
    ('{"tool": "x", "arguments": {"a": "bc', ("", "x", '{"a":"bc"}')),
    ('{"answer": "cut sho', ("cut sho", None, "")),
    ("Plain text {with} braces", ("Plain text {with} braces", None, "")),
    ("{braces} first", ("{braces} first", None, "")),
    ('{"other": 1}', ('{"other": 1}', None, "")),
    ('{"tool": "x"', ('{"tool": "x"', None, "")),
    ("[1, 2]", ("[1, 2]", None, "")),
    ('{"answer": "yes"}\nAnd more.', ("yes\nAnd more.", None, "")),
    ('{"tool": "x", "arguments": {"a": 1}} And more.', ("", "x", '{"a":1}')),
    ("", ("", None, "")),
    ("  ", ("  ", None, "")),
]


@given(st.sampled_from(REPLIES), st.lists(st.integers(0, 80), max_size=8))
def test_a_reply_reads_the_same_however_it_is_cut(
    reply: tuple[str, tuple[str, str | None, str]], cuts: list[int]
) -> None:
    """Text, call and arguments do not depend on where the stream was cut."""
    text, meaning = reply
    edges = [0, *sorted(cuts), len(text)]
    assert read([text[left:right] for left, right in itertools.pairwise(edges)]) == meaning


def test_an_answer_streams_character_by_character() -> None:
    """What has come of an answer is told at once."""
    reply = Reply(3)
    assert list(reply.feed('{"answer": "He')) == [TextDelta(3, "He")]
    assert list(reply.feed("l")) == [TextDelta(3, "l")]
    assert list(reply.feed("\\")) == []
    assert list(reply.feed('n"}')) == [TextDelta(3, "\n")]
    assert list(reply.end()) == []


def test_a_call_is_told_when_its_name_is_known() -> None:
    """A display can name the tool while its arguments are still to come."""
    reply = Reply(0)
    assert list(reply.feed('{"tool": "rea')) == []
    assert list(reply.feed('d_file", "arguments": {')) == [ToolCallStart(0, None, "read_file")]
    assert list(reply.feed('"a": 1}}')) == []
    assert list(reply.end()) == [ToolCallDelta(0, '{"a":1}')]


@pytest.mark.parametrize(
    ("begun", "broken"),
    [
        ('{"answer": "a"', ', "answer": "b"}'),
        ('{"answer": "a', "\n"),
        ('{"tool": "x", "arguments": {', "oops}}"),
        ('{"tool": "x", "arguments": {', '"a": 1e999}}'),
    ],
)
def test_json_that_breaks_after_it_was_told_is_an_error(begun: str, broken: str) -> None:
    """Nothing that was told can be taken back, so the reply fails as a protocol error that quotes it."""
    reply = Reply(0)
    assert list(reply.feed(begun))
    with pytest.raises(ProviderError, match="not the JSON that was asked for") as caught:
        list(reply.feed(broken)) + list(reply.end())
    assert caught.value.kind == "protocol"


# The adapter


class Model:
    """A provider that says what it is told to, and keeps what it was asked."""

    name = "fake"

    def __init__(self, *replies: str | Sequence[Chunk]) -> None:
        self.requests: list[ModelRequest] = []
        self._replies = list(replies)

    async def __call__(self, request: ModelRequest, send: Send, /) -> None:
        self.requests.append(request)
        reply = self._replies.pop(0)
        chunks = [*[TextDelta(0, char) for char in reply], Finish("stop")] if isinstance(reply, str) else reply
        for chunk in chunks:
            await send(chunk)


async def ask(provider: GrammarTools, *messages: Message, **fields: Any) -> list[Chunk]:
    chunks: list[Chunk] = []

    async def send(chunk: Chunk) -> None:
        chunks.append(chunk)

    given_fields: dict[str, Any] = {"tools": (READ, ADD), **fields}
    await provider(ModelRequest(model="m", messages=messages, **given_fields), send)
    return chunks


def schema_of(request: ModelRequest) -> dict[str, Any] | None:
    form = request.settings.extra_body.get("response_format")
    return None if form is None else form["json_schema"]["schema"]


async def test_a_call_comes_out_as_a_tool_call() -> None:
    """The model's JSON becomes the kernel's chunks, and the stop that of a message with calls."""
    model = Model('{"tool": "add", "arguments": {"a": 1}}')
    chunks = await ask(GrammarTools(model), UserMessage("Add 1"))
    assert chunks == [ToolCallStart(0, None, "add"), ToolCallDelta(0, '{"a":1}'), Finish("tool_use")]


async def test_the_request_tells_the_tools_and_holds_the_reply_to_them() -> None:
    """The provider behind gets no tools, but words and a schema, and the user's own system prompt first."""
    model = Model('{"answer": "no"}')
    await ask(GrammarTools(model), UserMessage("Add 1"), system_prompt="Be brief.")
    (request,) = model.requests
    assert request.tools == ()
    assert request.system_prompt.startswith("Be brief.\n\nYou answer with JSON.")
    assert schema_of(request) == reply_schema([READ, ADD], answer=True, required_only=False)


async def test_after_the_results_of_a_call_only_an_answer_is_possible() -> None:
    """The default of one round: the second request is plain, in prose, and repeats the question."""
    model = Model("It prints.")
    chunks = await ask(
        GrammarTools(model),
        UserMessage("What is in a.py?"),
        AssistantMessage([CALL]),
        RESULT,
        system_prompt="Be brief.",
    )
    (request,) = model.requests
    assert schema_of(request) is None
    assert request.system_prompt == "Be brief."
    (message,) = request.messages
    assert isinstance(message, UserMessage)
    assert message.text.endswith("print(1)\n\nNow answer my question: What is in a.py?")
    assert "".join([chunk.text for chunk in chunks if isinstance(chunk, TextDelta)]) == "It prints."


async def test_a_new_question_begins_a_new_round() -> None:
    """Rounds are counted from the last thing a person said."""
    model = Model('{"answer": "x"}')
    await ask(
        GrammarTools(model), UserMessage("1"), AssistantMessage([CALL]), RESULT, AssistantMessage("x"), UserMessage("2")
    )
    assert schema_of(model.requests[0]) is not None


@pytest.mark.parametrize(("max_rounds", "allowed"), [(0, [False] * 3), (2, [True, True, False]), (None, [True] * 3)])
async def test_the_rounds_of_calls_are_an_option(max_rounds: int | None, allowed: list[bool]) -> None:
    """A larger model may call again after it has seen a result."""
    model = Model(*['{"answer": "x"}'] * 3)
    provider = GrammarTools(model, max_rounds=max_rounds)
    for count in range(3):
        await ask(provider, UserMessage("go"), *[AssistantMessage([CALL]), RESULT] * count)
    assert [schema_of(request) is not None for request in model.requests] == allowed


@pytest.mark.parametrize(
    ("choice", "names", "answers"),
    [("auto", ["read_file", "add"], True), ("required", ["read_file", "add"], False), ("add", ["add"], False)],
)
async def test_tool_choice_is_obeyed(choice: str, names: list[str], answers: bool) -> None:
    """`required` leaves no answer, a tool's name nothing but it."""
    model = Model("{}")
    await ask(GrammarTools(model), UserMessage("x"), settings=ModelSettings(tool_choice=choice, temperature=0.5))
    schema = schema_of(model.requests[0])
    assert schema is not None
    replies = [reply["properties"] for reply in schema.get("anyOf", [schema])]
    assert [reply["tool"]["enum"][0] for reply in replies if "tool" in reply] == names
    assert any("answer" in reply for reply in replies) == answers
    assert model.requests[0].settings.tool_choice is None
    assert model.requests[0].settings.temperature == 0.5


@pytest.mark.parametrize("fields", [{"tools": ()}, {"settings": ModelSettings(tool_choice="none")}])
async def test_without_tools_a_request_is_plain(fields: dict[str, Any]) -> None:
    """With nothing to call the model just talks, and its JSON is its own."""
    model = Model('{"tool": "add", "arguments": {}}')
    chunks = await ask(GrammarTools(model), UserMessage("Show me JSON"), **fields)
    assert schema_of(model.requests[0]) is None
    assert "".join([chunk.text for chunk in chunks if isinstance(chunk, TextDelta)]).startswith('{"tool"')


async def test_a_small_model_must_call_what_the_user_named() -> None:
    """With `small`, naming a file leaves one tool, one path and no way around it."""
    model = Model("{}", "{}")
    provider = GrammarTools(model, small=True)
    await ask(provider, UserMessage("What does notes.txt say?"))
    await ask(provider, UserMessage("Hello"))
    named, free = (schema_of(request) for request in model.requests)
    assert named is not None
    assert named["properties"]["tool"] == {"enum": ["read_file"]}
    assert named["properties"]["arguments"]["properties"] == {"path": {"type": "string", "enum": ["notes.txt"]}}
    assert free == reply_schema([READ, ADD], answer=True, required_only=True)


async def test_what_is_no_text_passes_through() -> None:
    """Reasoning, usage and the answer's id are told as they come; a cut call stays cut (T6)."""
    usage = UsageReport(Usage(input=1, output=2))
    model = Model(
        [
            ResponseInfo("r", "m"),
            ThinkingDelta(0, "hm"),
            TextDelta(1, '{"tool": "add", "arguments": {"a": 1'),
            Finish("length"),
            usage,
        ]
    )
    assert await ask(GrammarTools(model), UserMessage("Add 1")) == [
        ResponseInfo("r", "m"),
        ThinkingDelta(0, "hm"),
        ToolCallStart(1, None, "add"),
        ToolCallDelta(1, '{"a":1}'),
        Finish("length"),
        usage,
    ]


async def test_a_run_with_a_tool_ends_in_an_answer() -> None:
    """An agent on a model that knows no tools calls one, sees its result, and answers."""

    @tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    model = Model('{"tool": "add", "arguments": {"a": 1, "b": 2}}', "It is 3.")
    agent = Agent(GrammarTools(model), model="m", tools=[add])
    result = await agent.prompt("What is 1 plus 2?")
    assert (result.outcome, result.text) == ("completed", "It is 3.")
    roles = [message.role for message in result.messages]
    assert roles == ["user", "assistant", "tool_result", "assistant"]
    assert isinstance(result.messages[1], AssistantMessage)
    assert result.messages[1].provider == "fake"


def test_rounds_below_zero_are_refused() -> None:
    """The number of rounds is checked where it is given."""
    with pytest.raises(ValueError, match="max_rounds is -1; give 0 or more"):
        GrammarTools(Model(), max_rounds=-1)
