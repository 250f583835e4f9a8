"""Topic 4: quirks of servers that speak Chat Completions, as others have met them, through the whole agent."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs
import httpx
import pytest

from tests.wire_files import DONE, Pieces, a_request, asked, call_delta, data, delta, played, sent
from trio_agent import Agent, Image, RetryPolicy, RunResult, Text, ToolCall, ToolResultMessage, tool
from trio_agent._messages import AssistantMessage, UserMessage
from trio_agent.providers import ChatDialect, OpenAIChat

BYE = [delta({"content": "bye"}, "stop"), DONE]
Body = Sequence[bytes | Exception] | httpx.Response


@attrs.define
class Wire:
    """A service that answers request after request with these bodies, and a client that reaches it."""

    bodies: list[Body]
    requests: list[dict[str, Any]] = attrs.field(factory=list)

    async def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(json.loads(request.content))
        body = self.bodies.pop(0)
        if isinstance(body, httpx.Response):
            return body
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Pieces(body))


class Ran:
    """What the tools were called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def tools(self) -> list[Any]:
        def note(name: str, **arguments: Any) -> str:
            self.calls.append((name, arguments))
            return f"{name} done"

        @tool
        async def now() -> str:
            """Tell the time."""
            return note("now")

        @tool
        async def add(a: int, b: int = 0) -> str:
            """Add."""
            return note("add", a=a, b=b)

        @tool
        async def find(q: str) -> str:
            """Find."""
            return note("find", q=q)

        @tool
        async def write(path: str, content: str = "") -> str:
            """Write a file."""
            raise AssertionError("each call of it is cut short")

        return [now, add, find, write]


@asynccontextmanager
async def agent_over(*bodies: Body, **options: Any) -> AsyncIterator[tuple[Agent, Wire, Ran]]:
    """An agent with four tools whose model is a service that sends these bodies."""
    wire, ran = Wire(list(bodies)), Ran()
    async with httpx.AsyncClient(transport=httpx.MockTransport(wire.answer)) as client:
        provider = OpenAIChat(base_url="http://service.test/v1", client=client)
        options = {"retry": RetryPolicy(max_attempts=1), **options}
        yield Agent(provider, model="m", tools=ran.tools(), **options), wire, ran


async def run_of(*bodies: Body, **options: Any) -> tuple[RunResult, Wire, Ran]:
    """One prompt to such an agent. Asserts that every request was paired (I1)."""
    async with agent_over(*bodies, **options) as (agent, wire, ran):
        result = await agent.prompt("go")
    for request in wire.requests:
        assert_paired(request["messages"])
    return result, wire, ran


def assert_paired(messages: Iterable[dict[str, Any]]) -> None:
    awaited: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == awaited.pop(0)
        else:
            assert awaited == []
            awaited = [call["id"] for call in message.get("tool_calls", ())]
    assert awaited == []


def sent_arguments(request: dict[str, Any]) -> list[str]:
    return [call["function"]["arguments"] for message in request["messages"] for call in message.get("tool_calls", ())]


def call(name: str, arguments: Any = "", at: int | None = 0, call_id: str | None = "k1", **more: Any) -> dict[str, Any]:
    entry = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}
    if at is not None:
        entry["index"] = at
    return {key: value for key, value in entry.items() if value is not None}


def more(arguments: str, **fields: Any) -> dict[str, Any]:
    return {"function": {"arguments": arguments}, **fields}


END = [delta({}, "tool_calls"), DONE]


async def calls_of(*chunks: bytes) -> list[tuple[str, str, str]]:
    return (await played(OpenAIChat, [*chunks, *END])).calls


async def test_b046_an_index_is_missing_on_the_only_call() -> None:
    """B046: fragments without an index, or with null, belong to the call that is being sent."""
    first = call("add", at=None)
    assert await calls_of(call_delta(first), call_delta(more('{"a":1')), call_delta(more("}", index=None))) == [
        ("k1", "add", '{"a":1}')
    ]


@pytest.mark.parametrize("mark", [{"id": "k1"}, {"index": 0}, {"index": 7}, {}], ids=repr)
async def test_b046_a_call_that_began_without_an_index_goes_on(mark: dict[str, Any]) -> None:
    """B046: whatever marks the later fragments, while only one call is open they are its own."""
    first = call("add", '{"a"', at=None)
    assert await calls_of(call_delta(first), call_delta(more(":1}", **mark))) == [("k1", "add", '{"a":1}')]


async def test_calls_without_indices_are_told_apart_by_their_ids() -> None:
    """Parallel calls without an index, one after the other or interleaved, are kept apart by id."""
    chunks = [
        call_delta(call("add", '{"a":', at=None, call_id="x")),
        call_delta(call("find", '{"q":', at=None, call_id="y")),
        call_delta(more("1}", id="x")),
        call_delta(more('"z"}', id="y")),
    ]
    assert await calls_of(*chunks) == [("x", "add", '{"a":1}'), ("y", "find", '{"q":"z"}')]


async def test_calls_that_all_have_index_zero_are_told_apart() -> None:
    """Servers that give every call the index 0 are understood by the ids, and without ids by the names."""
    chunks = [call_delta(call("add", '{"a":1}', call_id="x")), call_delta(call("find", '{"q":"z"}', call_id="y"))]
    assert [found[1] for found in await calls_of(*chunks)] == ["add", "find"]
    without = [call_delta(call("add", '{"a":1}', call_id="")), call_delta(call("find", '{"q":"z"}', call_id=""))]
    assert [found[1:] for found in await calls_of(*without)] == [("add", '{"a":1}'), ("find", '{"q":"z"}')]


async def test_calls_without_index_and_id_are_told_apart_by_names() -> None:
    """With neither index nor id a name begins a call; the same name again does so when the last one is complete."""
    chunks = [
        call_delta(call("add", '{"a":1}', at=None, call_id=None)),
        call_delta(call("add", '{"a":2}', at=None, call_id=None)),
        call_delta(call("now", at=None, call_id=None)),
    ]
    found = [(name, raw) for _, name, raw in await calls_of(*chunks)]
    assert found == [("add", '{"a":1}'), ("add", '{"a":2}'), ("now", "{}")]


async def test_a_name_repeated_on_every_fragment_begins_no_call() -> None:
    """A server that repeats name and id, or the name alone, on every fragment sends one call."""
    with_id = [call_delta(call("find", part)) for part in ('{"q"', ':"h', 'i"}')]
    assert await calls_of(*with_id) == [("k1", "find", '{"q":"hi"}')]
    name_only = [call_delta(call("find", part, at=None, call_id=None)) for part in ('{"q"', ':"h', 'i"}')]
    assert [raw for _, _, raw in await calls_of(*name_only)] == ['{"q":"hi"}']


async def test_a_name_may_come_after_the_id() -> None:
    """A call whose name comes in a later fragment than its id, or its arguments, is told of when it has come."""
    chunks = [
        call_delta({"index": 0, "id": "k1", "function": {"arguments": '{"a"'}}),
        call_delta({"index": 0, "function": {"name": "add", "arguments": ":1}"}}),
    ]
    assert await calls_of(*chunks) == [("k1", "add", '{"a":1}')]


async def test_a_call_that_never_gets_a_name_is_an_error() -> None:
    """A call without a name cannot be run, and an answer that holds one is broken."""
    answer = await played(OpenAIChat, [call_delta({"index": 0, "id": "k1", "function": {"arguments": "{}"}}), *END])
    assert answer.failed().kind == "protocol"


async def test_the_old_form_of_a_call_is_understood() -> None:
    """`function_call`, as it was before there were several, is a call."""
    chunks = [
        delta({"function_call": {"name": "add", "arguments": '{"a"'}}),
        delta({"function_call": {"arguments": ":1}"}}),
    ]
    answer = await played(OpenAIChat, [*chunks, delta({}, "function_call"), DONE])
    assert [(name, raw) for _, name, raw in answer.calls] == [("add", '{"a":1}')]
    assert answer.clean().stop_reason == "tool_use"


@pytest.mark.parametrize(
    "summary",
    [r'{"q":"hi"}', r'"{\"q\":\"hi\"}"', '{"q":"hi","more":1}'],
    ids=["same", "doubly encoded", "different"],
)
async def test_b049_the_whole_call_once_more_at_the_end_is_dropped(summary: str) -> None:
    """B049: an id on every fragment is one call, and a closing chunk that repeats the call is not added to it."""
    chunks = [call_delta(call("find", part)) for part in ('{"q', '":"hi', '"}', summary)]
    result, _, ran = await run_of([*chunks, *END], BYE)
    assert result.outcome == "completed"
    assert ran.calls == [("find", {"q": "hi"})]


@pytest.mark.parametrize("arguments", ["", " ", None, ..., "null", "{}"], ids=repr)
async def test_b051_no_arguments_in_any_form(arguments: Any) -> None:
    """B051: a tool without parameters runs however "no arguments" is spelled, and `{}` goes back."""
    entry = call("now", arguments)
    if arguments is ...:
        del entry["function"]["arguments"]
    result, wire, ran = await run_of([call_delta(entry), *END], BYE)
    assert result.text == "bye"
    assert ran.calls == [("now", {})]
    assert sent_arguments(wire.requests[1]) == ["{}"]


@pytest.mark.parametrize("arguments", ["[]", "3", '"x"', "{", "nonsense"])
async def test_b051_arguments_that_are_no_object_are_an_error_result(arguments: str) -> None:
    """B051: arguments that are no object give an error result, and what goes back is valid JSON that shows them."""
    result, wire, ran = await run_of([call_delta(call("now", arguments)), *END], BYE)
    assert result.text == "bye"
    assert ran.calls == []
    [back] = sent_arguments(wire.requests[1])
    assert json.loads(back) == {"invalid_arguments": arguments}


async def test_b052_the_call_after_one_without_arguments() -> None:
    """B052: three calls and a text in one delta all arrive, in order, with their own arguments."""
    entries = [call("now", "", 0, "a"), call("add", '{"a":1}', 1, "b"), call("now", "", 2, "c")]
    result, _, ran = await run_of([delta({"content": "Working", "tool_calls": entries}), *END], BYE)
    first = result.messages[1]
    assert isinstance(first, AssistantMessage)
    assert first.text == "Working"
    assert [found.raw for found in first.tool_calls] == ["{}", '{"a":1}', "{}"]
    assert sorted(name for name, _ in ran.calls) == ["add", "now", "now"]


@pytest.mark.parametrize("finish", ["stop", "function_call", "eos", None])
async def test_b053_calls_run_whatever_the_finish_reason_says(finish: str | None) -> None:
    """B053: with a complete call in it, an answer that says it stopped means tool use."""
    result, _, ran = await run_of([call_delta(call("add", '{"a":1}')), delta({}, finish), DONE], BYE)
    assert ran.calls == [("add", {"a": 1, "b": 0})]
    assert isinstance(result.messages[1], AssistantMessage)
    assert result.messages[1].stop_reason == "tool_use"


async def test_b053_an_early_finish_reason_does_not_end_the_reading() -> None:
    """B053: what comes behind a finish reason still belongs to the answer."""
    pieces = [delta({"content": "a"}, "stop"), delta({"content": "b"}), call_delta(call("now")), DONE]
    answer = await played(OpenAIChat, pieces)
    assert (answer.clean().text, answer.message.stop_reason, len(answer.calls)) == ("ab", "tool_use", 1)


@pytest.mark.parametrize("empty", [{"choices": []}, {}, {"choices": None}], ids=repr)
async def test_b054_a_chunk_without_choices(empty: dict[str, Any]) -> None:
    """B054: a preamble and a usage chunk without choices are no error, and the usage is told apart."""
    usage = {
        "prompt_tokens": 11,
        "completion_tokens": 3,
        "total_tokens": 14,
        "prompt_tokens_details": {"cached_tokens": 8},
    }
    preamble = data({"id": "c1", "prompt_filter_results": [{}], **empty})
    pieces = [preamble, delta({"content": "a"}), delta({}, "stop"), data({"id": "c1", **empty, "usage": usage}), DONE]
    used = (await played(OpenAIChat, pieces)).clean().usage
    assert (used.input, used.cache_read, used.output, used.total) == (3, 8, 3, 14)


@pytest.mark.parametrize(
    ("error", "words", "kind"),
    [
        ({"error": {"message": "model crashed", "type": "server_error", "code": 500}}, "model crashed", "server"),
        ({"error": "plain string"}, "plain string", "server"),
        (
            {"choices": None, "error_type": "BadRequestError", "error_message": "maximum context length exceeded"},
            "maximum context length",
            "context_overflow",
        ),
    ],
    ids=["object", "string", "vllm"],
)
async def test_b056_an_error_inside_a_stream_keeps_what_came_before(error: Any, words: str, kind: str) -> None:
    """B056: an error object behind some text ends the message with that text and the server's words."""
    result, _, _ = await run_of([delta({"content": "Par"}), data(error)])
    last = result.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.stop_reason, last.text) == ("error", "Par")
    assert words in (last.error_message or "")
    assert result.error is not None
    assert result.error.kind == kind  # type: ignore[attr-defined]


async def test_b056_an_error_as_the_first_event_is_retried_by_its_code() -> None:
    """B056: an in-stream 429 is retried like one of HTTP, and so is a JSON body with an error and status 200."""
    limited = {"error": {"message": "slow down", "code": 429}}
    document = httpx.Response(200, headers={"content-type": "application/json"}, content=data(limited)[6:])
    result, wire, _ = await run_of([data(limited)], document, BYE, retry=RetryPolicy())
    assert result.text == "bye"
    assert len(wire.requests) == 3


@pytest.mark.parametrize("body", [[], [DONE], [b": hi\n\n"], [data({"id": "c1", "choices": []})]], ids=repr)
async def test_b057_no_answer_at_all_is_not_an_empty_one(body: list[bytes]) -> None:
    """B057: a stream without a usable chunk is an error that is retried, never an empty message in history."""
    result, wire, _ = await run_of(body, BYE, retry=RetryPolicy())
    assert result.text == "bye"
    assert len(wire.requests) == 2
    assert [message["role"] for message in wire.requests[1]["messages"]] == ["user"]


@pytest.mark.parametrize(
    "body",
    [
        [delta({"content": "Par"})],
        [delta({"content": "Par"}), call_delta(call("add", '{"a":'))],
        [delta({"content": "Par"}), httpx.RemoteProtocolError("peer closed connection")],
    ],
    ids=["a", "c", "d"],
)
async def test_b058_a_stream_that_breaks_off_is_an_error(body: list[bytes]) -> None:
    """B058: closed without an end marker, or in the middle of a call or of the transfer: text kept, no tool run."""
    result, _, ran = await run_of(body)
    last = result.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (result.outcome, last.stop_reason, last.text) == ("error", "error", "Par")
    assert ran.calls == []


async def test_b058_a_finish_reason_is_an_end_without_done() -> None:
    """B058: a stream that closes behind its finish reason has ended well."""
    result, _, _ = await run_of([delta({"content": "Par"}), delta({}, "stop")])
    assert (result.outcome, result.text) == ("completed", "Par")


@pytest.mark.parametrize("before", [[], [delta({"content": "half"})]], ids=["empty", "partial"])
async def test_b059_a_filtered_answer_is_seen_and_not_asked_for_again(before: list[bytes]) -> None:
    """B059: a content filter ends the run after one request, says so, keeps the text, leaves nothing empty."""
    blocked = [delta({"role": "assistant"}), *before, delta({}, "content_filter"), DONE]
    async with agent_over(blocked, BYE, retry=RetryPolicy()) as (agent, wire, _):
        result = await agent.prompt("go")
        assert (result.outcome, len(wire.requests)) == ("error", 1)
        last = result.messages[-1]
        assert isinstance(last, AssistantMessage)
        assert "filter" in (last.error_message or "")
        assert last.text == ("half" if before else "")
        assert (await agent.prompt("again")).text == "bye"
        assert all(message["content"] for message in wire.requests[1]["messages"])


@pytest.mark.parametrize(
    "arguments", ['{"path":"a.txt","content":"lin', '{"path":"a.txt"}'], ids=["cut", "complete by chance"]
)
async def test_b061_calls_of_a_cut_answer_do_not_run(arguments: str) -> None:
    """B061: at the output limit no call runs, also one whose prefix is complete; the replay is valid JSON."""
    pieces = [call_delta(call("write", arguments)), delta({}, "length"), DONE]
    result, wire, ran = await run_of(pieces, BYE)
    assert ran.calls == []
    [outcome] = [message for message in result.messages if isinstance(message, ToolResultMessage)]
    assert outcome.is_error
    assert "cut" in outcome.text or "limit" in outcome.text
    [back] = sent_arguments(wire.requests[1])
    json.loads(back)


HISTORY = (
    UserMessage("go"),
    AssistantMessage([ToolCall("k1", "now", {})], "tool_use"),
    ToolResultMessage("k1", "now", "12"),
)


@pytest.mark.parametrize("empty", [None, ""])
async def test_b063_no_text_beside_calls_is_always_said_alike(empty: Any) -> None:
    """B063: without text the content beside calls is null, or by choice an empty string, the same in every request."""
    dialect = ChatDialect(empty_content=empty)
    bodies = [
        await sent(OpenAIChat, a_request([*HISTORY, *extra]), BYE, dialect=dialect)
        for extra in ([], [AssistantMessage("ok"), UserMessage("more")])
    ]
    assert [body["messages"][1]["content"] for body in bodies] == [empty, empty]
    assert bodies[0]["messages"] == bodies[1]["messages"][:3]


async def test_b063_a_400_is_not_retried() -> None:
    """B063: a request that is refused as invalid is sent once."""
    refused = httpx.Response(400, json={"error": {"message": "content must not be null"}})
    result, wire, _ = await run_of(refused, BYE, retry=RetryPolicy())
    assert (result.outcome, len(wire.requests)) == ("error", 1)


PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40


async def test_b064_images_of_results_do_not_part_the_group() -> None:
    """B064: two results with images become tool, tool, and one user message with both images, labelled."""
    history = (
        UserMessage("go"),
        AssistantMessage([ToolCall("a", "shot", {}), ToolCall("b", "shot", {})], "tool_use"),
        ToolResultMessage("a", "shot", [Text("left"), Image(PNG, "image/png")]),
        ToolResultMessage("b", "shot", [Image(PNG + b"2", "image/png")]),
    )
    for messages in (history, (*history, UserMessage("and?"))):
        body = await sent(OpenAIChat, a_request(messages), BYE)
        roles = [message["role"] for message in body["messages"]]
        assert roles == ["user", "assistant", "tool", "tool", "user", "user"][: len(messages) + 1]
        assert [message["content"] for message in body["messages"][2:4]] == [
            "left",
            "(the images are in the user message below)",
        ]
        parts = body["messages"][4]["content"]
        assert [part["type"] for part in parts] == ["text", "image_url", "text", "image_url"]
        assert ["call a" in parts[0]["text"], "call b" in parts[2]["text"]] == [True, True]
        encoded = base64.b64encode(PNG + b"2").decode()
        assert parts[3]["image_url"]["url"] == f"data:image/png;base64,{encoded}"


async def test_b064_where_images_cannot_be_sent_a_text_says_so() -> None:
    """B064: for a server without images a text stands in their place, in user messages and in results."""
    history = (
        UserMessage([Text("look"), Image(PNG, "image/png")]),
        *HISTORY[1:2],
        ToolResultMessage("k1", "now", Image(PNG, "image/png")),
    )
    body = await sent(OpenAIChat, a_request(history), BYE, dialect=ChatDialect(images=False))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool"]
    assert all("image/png" in body["messages"][at]["content"] for at in (0, 2))


async def test_every_variant_of_a_call_through_an_agent_and_back() -> None:
    """What a server may call one tool call, in any of these forms, runs once and is answered once."""
    forms: list[Callable[[], list[bytes]]] = [
        lambda: [call_delta(call("add", {"a": 1}))],
        lambda: [call_delta(call("add", '{"a":1}', at=None, call_id=None))],
        lambda: [call_delta(call("add", '{"a":1}', call_id=""))],
        lambda: [call_delta(call("add", '{"a":1}', at=3))],
        lambda: [delta({"content": None, "tool_calls": [call("add", '{"a":1}')], "refusal": None})],
        lambda: [data({"choices": [{"message": {"content": "", "tool_calls": [call("add", '{"a":1}')]}}]})],
    ]
    for form in forms:
        result, wire, ran = await run_of([*form(), *END], BYE)
        assert result.text == "bye"
        assert ran.calls == [("add", {"a": 1, "b": 0})]
        assert sent_arguments(wire.requests[1]) == ['{"a":1}']


async def test_the_same_answer_twice_gets_two_ids() -> None:
    """A server that gives every call the id "0" is answered without two calls of one id (T7)."""
    one = [call_delta(call("now", call_id="0")), *END]
    _, wire, ran = await run_of(one, one, BYE)
    assert len(ran.calls) == 2
    ids = [entry["id"] for message in wire.requests[2]["messages"] for entry in message.get("tool_calls", ())]
    assert len(set(ids)) == 2


async def test_a_provider_without_an_agent_sees_the_same() -> None:
    """The provider alone gives what the agent saw: nothing of this is the kernel's doing."""
    async with httpx.AsyncClient(transport=httpx.MockTransport(Wire([BYE]).answer)) as client:
        assert (await asked(OpenAIChat(base_url="http://h/v1", client=client))).clean().text == "bye"
