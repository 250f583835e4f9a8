"""`OpenAIResponses` reads what services really send in any pieces, and writes what OpenAI's own types accept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import attrs
import httpx
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.openai_types import validate_responses_request
from tests.wire_files import Answer, Recorded, a_request, asked, data, played, recorded, sent, single_bytes
from tests.wire_histories import OBJECT, PNG, UNION, assert_no_unsafe_text, requests
from tests.wire_reading import (
    beginnings_of,
    check_cut_off_at,
    cut_once_everywhere,
    read_in_random_pieces,
    stopped_early,
    with_line_ends,
)
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
from trio_agent._chunks import Finish, ResponseInfo, TextDelta, UsageReport
from trio_agent._messages import Usage
from trio_agent._request import ModelSettings, ToolSpec
from trio_agent.providers import Bounds, OpenAIResponses
from trio_agent.providers._base_url import BaseURL
from trio_agent.providers._openai_chat_dialect import PLAIN, ChatDialect, dialect_of
from trio_agent.providers._openai_responses_request import ResponsesWriter

FILES = recorded("openai_responses")
STREAMS = [file for file in FILES if file.meta["stream"]]


def event(kind: str, **fields: Any) -> bytes:
    """`R(t, x)` of the cases."""
    return data({"type": f"response.{kind}", **fields})


CREATED = event("created", response={"id": "r1", "model": "m", "status": "in_progress", "output": []})


def completed(*output: Any, **fields: Any) -> bytes:
    response = {"id": "r1", "model": "m", "status": "completed", "output": list(output), **fields}
    return event("completed", response=response)


def said(text: str, place: int = 0) -> bytes:
    item = {"id": f"msg{place}", "type": "message", "role": "assistant", "content": []}
    done = {**item, "content": [{"type": "output_text", "text": text}]}
    return (
        event("output_item.added", output_index=place, item=item)
        + event("output_text.delta", output_index=place, item_id=item["id"], content_index=0, delta=text)
        + event("output_item.done", output_index=place, item=done)
    )


def call_item(call_id: str, arguments: str = "{}", name: str = "f") -> dict[str, Any]:
    return {"id": f"fc_{call_id}", "type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def called(call_id: str, arguments: str = "{}", place: int = 0, name: str = "f") -> bytes:
    start = call_item(call_id, "", name)
    return (
        event("output_item.added", output_index=place, item=start)
        + event("function_call_arguments.delta", output_index=place, item_id=start["id"], delta=arguments)
        + event("output_item.done", output_index=place, item=call_item(call_id, arguments, name))
    )


def thought(item_id: str, secret: str | None, place: int = 0, text: str = "") -> bytes:
    summary = [{"type": "summary_text", "text": text}] if text else []
    item = {"id": item_id, "type": "reasoning", "summary": summary, "encrypted_content": secret}
    return event("output_item.added", output_index=place, item={**item, "summary": []}) + event(
        "output_item.done", output_index=place, item=item
    )


BYE = [CREATED, said("bye"), completed()]
ANSWERED = {"type": "message", "role": "assistant", "content": "a"}


def expected_calls(file: Recorded) -> list[tuple[Any, str, str]]:
    return [(call["id"], call["name"], call["arguments"] or "{}") for call in file.expected["tool_calls"]]


def secrets_of(answer: Answer) -> list[str]:
    found = [json.loads(signature).get("encrypted_content") for signature in answer.signatures]
    return [secret for secret in found if secret]


def check(file: Recorded, answer: Answer) -> None:
    """The answer is what the sidecar says."""
    expected = file.expected
    assert answer.message.text == expected["text"]
    assert answer.thinking == expected.get("thinking", "")
    assert answer.calls == expected_calls(file)
    assert [call.arguments for call in answer.message.tool_calls] == [call["args"] for call in expected["tool_calls"]]
    assert secrets_of(answer) == expected.get("signatures", [])
    assert answer.message.response_id == expected["response_id"]
    assert answer.message.model == expected["model"]
    if usage := expected["usage"]:
        given, made = usage["input_tokens_details"], usage.get("output_tokens_details", {})
        cached, written = given["cached_tokens"], given.get("cache_write_tokens")
        fresh = usage["input_tokens"] - cached - (written or 0)
        counts = (fresh, usage["output_tokens"], cached, written, made.get("reasoning_tokens"), usage["total_tokens"])
        assert answer.message.usage == Usage(*counts)
    if expected["error"] is not None:
        assert expected["error"]["message"] in answer.failed().message
        assert (answer.failed().kind, answer.failed().retryable) == ("rate_limit", False)
    else:
        assert answer.clean().stop_reason == ("tool_use" if expected["tool_calls"] else "stop")


@pytest.mark.parametrize("file", FILES, ids=repr)
async def test_a_recorded_body_is_read_right_whole(file: Recorded) -> None:
    """Text, thinking, secrets, calls, usage, id, model and end of each recorded body are what its sidecar says."""
    headers = {"content-type": file.meta["headers"]["content-type"]}
    check(file, await played(OpenAIResponses, [file.body], headers=headers))


@pytest.mark.parametrize("file", FILES, ids=repr)
async def test_a_recorded_body_is_read_right_byte_by_byte(file: Recorded) -> None:
    """Cut at every byte at once, each recorded body gives the same answer."""
    check(file, await played(OpenAIResponses, single_bytes(file.body)))


@pytest.mark.parametrize("file", FILES, ids=repr)
@settings(max_examples=15)
@given(source=st.data())
def test_a_recorded_body_is_read_right_in_random_pieces(file: Recorded, source: st.DataObject) -> None:
    """However a recorded body is cut into pieces, it gives the same answer."""
    read_in_random_pieces(OpenAIResponses, file, source, check)


@pytest.mark.parametrize("file", STREAMS, ids=repr)
def test_one_cut_anywhere_changes_no_event(file: Recorded) -> None:
    """A single cut, at each byte of each recorded stream in turn, changes none of its events."""
    assert cut_once_everywhere(file) > len(file.body) // 2


@pytest.mark.parametrize("ending", [b"\r\n", b"\r"], ids=["crlf", "cr"])
@pytest.mark.parametrize("file", STREAMS, ids=repr)
async def test_line_ends_make_no_difference(file: Recorded, ending: bytes) -> None:
    """A recorded stream whose lines end in CRLF or CR gives the same answer, whole and byte by byte."""
    body = with_line_ends(file.body, ending)
    check(file, await played(OpenAIResponses, [body]))
    check(file, await played(OpenAIResponses, single_bytes(body)))


@pytest.mark.parametrize("file", STREAMS, ids=repr)
async def test_a_stream_cut_short_never_ends_well(file: Recorded) -> None:
    """Cut off behind any of its events but the last, a recorded stream is an error (F6)."""
    for body in beginnings_of(file):
        answer = await played(OpenAIResponses, [body])
        assert file.expected["text"].startswith(answer.message.text)
        stopped_early(answer)


@pytest.mark.parametrize("file", STREAMS, ids=repr)
@settings(max_examples=20)
@given(source=st.data())
def test_a_stream_cut_anywhere_is_whole_or_an_error(file: Recorded, source: st.DataObject) -> None:
    """Cut off at any byte, a stream gives a prefix of the answer and an error, or the whole answer."""
    at = source.draw(st.integers(0, len(file.body)))
    clock = trio.testing.MockClock(autojump_threshold=0)
    trio.run(check_cut_off_at, OpenAIResponses, file, at, expected_calls, clock=clock)


class TestReading:
    """What events mean, and what they may not do."""

    async def test_each_delta_is_one_chunk(self) -> None:
        """One `send` per delta: nothing is batched, split or held back."""
        usage = {"input_tokens": 3, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 1}}
        deltas = [event("output_text.delta", output_index=0, delta=text) for text in "ab"]
        answer = await played(OpenAIResponses, [CREATED, deltas[0] + deltas[1], completed(usage=usage)])
        assert answer.chunks == [
            ResponseInfo("r1", "m"),
            TextDelta(0, "a"),
            TextDelta(0, "b"),
            UsageReport(Usage(2, 2, 1, total=5)),
            Finish("stop"),
        ]

    async def test_items_keep_their_order(self) -> None:
        """Reasoning, text and calls become blocks in the order in which they came."""
        pieces = [CREATED, thought("rs1", "E1"), said("a", 1), called("k1", '{"n":1}', 2), called("k2", "{}", 3)]
        answer = await played(OpenAIResponses, [*pieces, completed()])
        kinds = [type(block).__name__ for block in answer.clean().content]
        assert kinds == ["Thinking", "Text", "ToolCall", "ToolCall"]
        assert answer.calls == [("k1", "f", '{"n":1}'), ("k2", "f", "{}")]
        assert json.loads(answer.signatures[0]) == {"type": "reasoning", "id": "rs1", "encrypted_content": "E1"}

    async def test_parts_of_a_summary_are_paragraphs(self) -> None:
        """What is summed up in several parts is told in paragraphs, and goes back in its parts."""
        parts = [
            event("reasoning_summary_text.delta", output_index=0, summary_index=at // 2, delta=text)
            for at, text in enumerate(["one", " more", "two", " more"])
        ]
        summary = [{"type": "summary_text", "text": text} for text in ("one more", "two more")]
        item = {"id": "rs1", "type": "reasoning", "summary": summary, "encrypted_content": "E"}
        pieces = [event("output_item.added", output_index=0, item={"type": "reasoning", "id": "rs1"}), *parts]
        pieces += [event("output_item.done", output_index=0, item=item), said("a", 1), completed()]
        answer = await played(OpenAIResponses, pieces)
        assert answer.thinking == "one more\n\ntwo more"
        assert json.loads(answer.signatures[0])["summary"] == summary

    @pytest.mark.parametrize("left_out", ["deltas", "starts", "ends", "all"])
    async def test_what_is_left_out_is_found_where_it_is(self, left_out: str) -> None:
        """Whether deltas, starts, ends or all events of items are missing, what was said is told once."""
        text = {"id": "msg1", "type": "message", "content": [{"type": "output_text", "text": "hi"}]}
        thinking = {"id": "rs", "type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
        items = [{**thinking, "encrypted_content": "E"}, text, call_item("k1", '{"n":1}')]
        deltas = ["reasoning_summary_text.delta", "output_text.delta", "function_call_arguments.delta"]
        pieces = [CREATED]
        for place, (item, delta, new) in enumerate(zip(items, deltas, ["hm", "hi", '{"n":1}'], strict=True)):
            start = {**item, "arguments": "", "summary": [], "content": []}
            pieces += [event("output_item.added", output_index=place, item=start)] if left_out != "starts" else []
            pieces += [event(delta, output_index=place, delta=new)] if left_out != "deltas" else []
            pieces += [event("output_item.done", output_index=place, item=item)] if left_out != "ends" else []
        answer = await played(OpenAIResponses, [*([CREATED] if left_out == "all" else pieces), completed(*items)])
        assert (answer.thinking, answer.clean().text, answer.calls) == ("hm", "hi", [("k1", "f", '{"n":1}')])
        assert secrets_of(answer) == ["E"]

    @pytest.mark.parametrize("keys", ["place", "id", "none"])
    async def test_items_without_place_or_id(self, keys: str) -> None:
        """Two calls in a row are two, whatever a server leaves out to tell them by."""
        pieces = [CREATED]
        for at, call_id in enumerate(("k1", "k2")):
            key: dict[str, Any] = {"place": {"output_index": at}, "id": {"item_id": f"fc_{call_id}"}, "none": {}}[keys]
            named = {} if keys == "id" else {"id": None}
            pieces += [event("output_item.added", **key, item=call_item(call_id, "") | named)]
            pieces += [event("function_call_arguments.delta", **key, delta=text) for text in ('{"n":', f"{at}}}")]
            pieces += [event("output_item.done", **key, item=call_item(call_id, f'{{"n":{at}}}') | named)]
        for output in ([], [call_item("k1", '{"n":0}'), call_item("k2", '{"n":1}')]):
            answer = await played(OpenAIResponses, [*pieces, completed(*output)])
            assert answer.calls == [("k1", "f", '{"n":0}'), ("k2", "f", '{"n":1}')]

    async def test_calls_that_only_the_end_tells_of(self) -> None:
        """A call that no event told of is in the output at the end; one that was told is not told twice."""
        pieces = [CREATED, said("a"), called("k1", "{}", 1)]
        answer = await played(OpenAIResponses, [*pieces, completed(call_item("k1"), call_item("k2", '{"n":2}'))])
        assert answer.calls == [("k1", "f", "{}"), ("k2", "f", '{"n":2}')]
        assert answer.clean().text == "a"

    async def test_items_of_other_kinds_are_passed_over(self) -> None:
        """Searches and whatever else a server does itself shift nothing and are no block."""
        search = {"id": "ws1", "type": "web_search_call", "status": "completed", "action": {"query": "x"}}
        pieces = [CREATED, event("output_item.added", output_index=0, item=search)]
        pieces += [event("web_search_call.searching", output_index=0, item_id="ws1")]
        pieces += [event("output_item.done", output_index=0, item=search), said("a", 1)]
        answer = await played(OpenAIResponses, [*pieces, completed(search)])
        assert answer.clean().content == (Text("a"),)

    async def test_the_phase_of_a_message_goes_back(self) -> None:
        """Where a message says whether it is commentary, that is kept with its text."""
        item = {"id": "m", "type": "message", "phase": "commentary", "content": [{"type": "output_text", "text": "a"}]}
        pieces = [CREATED, event("output_item.done", output_index=0, item=item), completed()]
        answer = await played(OpenAIResponses, pieces)
        assert answer.clean().content == (Text("a", '{"phase":"commentary"}'),)
        found = ResponsesWriter(PLAIN, "openai-responses", store=False, summary=None).write(
            a_request([UserMessage("go"), answer.message, UserMessage("on")], model="m")
        )
        assert json.loads(found.body)["input"][1] == ANSWERED | {"phase": "commentary"}

    @pytest.mark.parametrize("kind", ["output_text", "reasoning_text", "function_call_arguments"])
    async def test_a_character_cut_between_two_deltas_is_joined(self, kind: str) -> None:
        """The two halves of a surrogate pair, escaped in two deltas, become the one character that they are."""
        types = {"output_text": "message", "reasoning_text": "reasoning", "function_call_arguments": "function_call"}
        start = event("output_item.added", output_index=0, item={"type": types[kind], "call_id": "k", "name": "f"})
        halves = [
            b'data: {"type":"response.%s.delta","output_index":0,"delta":"%s"}\n\n' % (kind.encode(), half)
            for half in (b"a\\ud83d", b"\\ude00b")
        ]
        answer = await played(OpenAIResponses, [CREATED, start, *halves, completed()])
        raw = "".join(call.raw for call in answer.message.tool_calls)
        assert answer.message.text + answer.thinking + raw == "a\U0001f600b"

    async def test_a_mapped_name_comes_back_as_the_tools_own(self) -> None:
        """A call by a mapped name is a call of the tool whose name was mapped."""
        tool = ToolSpec("files.read", "", OBJECT)
        wire_name = body_of([UserMessage("go")], tools=(tool,))["tools"][0]["name"]
        assert wire_name != "files.read"
        request = a_request([UserMessage("go")], tools=(tool,))
        answer = await played(OpenAIResponses, [CREATED, called("k1", name=wire_name), completed()], request)
        assert answer.clean().tool_calls[0].name == "files.read"

    @pytest.mark.parametrize("form", ["delta", "item", "output"])
    async def test_a_refusal_is_an_error(self, form: str) -> None:
        """A refusal, wherever it stands, is no answer, and what it says is in the error."""
        item = {"id": "m", "type": "message", "content": [{"type": "refusal", "refusal": "I will not"}]}
        pieces = {
            "delta": [event("refusal.delta", output_index=0, delta=text) for text in ("I will", " not")],
            "item": [event("output_item.done", output_index=0, item=item)],
            "output": [],
        }[form]
        answer = await played(OpenAIResponses, [CREATED, *pieces, completed(item)])
        assert (answer.failed().kind, "I will not" in answer.failed().message) == ("content_filter", True)

    @pytest.mark.parametrize(
        ("error", "kind", "again"),
        [
            ({"code": "rate_limit_exceeded", "message": "slow"}, "rate_limit", True),
            ({"code": "server_error", "message": "oops"}, "server", True),
            ({"code": "insufficient_quota", "message": "pay"}, "rate_limit", False),
            ({"code": "context_length_exceeded", "message": "long"}, "context_overflow", False),
            ({"code": "invalid_prompt", "message": "no"}, "server", True),
        ],
        ids=lambda value: value["code"] if isinstance(value, dict) else "",
    )
    @pytest.mark.parametrize("form", ["bare", "nested", "failed", "whole", "document"])
    async def test_errors_in_a_good_answer(self, error: dict[str, Any], kind: str, again: bool, form: str) -> None:
        """An error in an answer with status 200 has the kind of the HTTP error that it stands for, in every form."""
        failed = {"id": "r1", "status": "failed", "error": error, "output": []}
        pieces = {
            "bare": [CREATED, data({"type": "error", **error})],
            "nested": [CREATED, data({"type": "error", "error": error})],
            "failed": [CREATED, event("failed", response=failed)],
            "whole": [data(failed)[6:]],
            "document": [data({"error": error})[6:]],
        }[form]
        failure = (await played(OpenAIResponses, pieces)).failed()
        assert (failure.kind, failure.retryable) == (kind, again)
        assert error["message"] in failure.message

    @pytest.mark.parametrize(
        ("response", "wanted"),
        [
            ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
            ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter"),
            ({"status": "incomplete", "incomplete_details": {"reason": "moonlight"}}, "protocol"),
            ({"status": "incomplete", "incomplete_details": None}, "protocol"),
            ({"status": "cancelled"}, "server"),
            ({"status": "failed", "error": None}, "server"),
            ({"status": "queued"}, "protocol"),
            ({"status": None}, "stop"),
            ({}, "stop"),
        ],
        ids=repr,
    )
    async def test_every_status_counts(self, response: dict[str, Any], wanted: str) -> None:
        """Only what is completed, or cut at the limit, is an answer; every other status is an error of its kind."""
        answer = await played(OpenAIResponses, [CREATED, said("a"), event("completed", response=response)])
        assert answer.message.text == "a"
        assert (answer.error.kind if answer.error else answer.message.stop_reason) == wanted

    @pytest.mark.parametrize(
        "odd",
        [
            {},
            {"type": "keepalive"},
            {"type": "response.output_text.delta", "output_index": 0, "delta": None},
            {"type": "response.output_text.delta", "output_index": 0},
            {"type": "response.output_text.annotation.added", "output_index": 0, "annotation": {}},
            {"type": "response.future.event", "output_index": 0, "delta": "x"},
            {"type": "response.output_item.added", "output_index": 7, "item": None},
            {"type": "response.output_item.done", "output_index": 7, "item": {"type": "new_item"}},
            {"type": "response.in_progress", "response": None},
            {"type": "response.in_progress", "response": {"id": None, "model": 3}},
            {"type": "response.reasoning_summary_part.added", "output_index": 7, "part": None},
            {"type": "response.reasoning_text.delta", "output_index": 7, "delta": ""},
        ],
        ids=repr,
    )
    async def test_empty_and_null_everything_is_passed_over(self, odd: dict[str, Any]) -> None:
        """Events whose parts are missing, null or of another kind change nothing in the answer around them."""
        deltas = [event("output_text.delta", output_index=0, delta=text) for text in "ab"]
        answer = await played(OpenAIResponses, [CREATED, deltas[0], data(odd), deltas[1], completed()])
        assert answer.clean().content == (Text("ab"),)

    async def test_a_call_without_a_name_is_an_error(self) -> None:
        """Arguments that belong to no call are an error, and so is a call that names no tool."""
        delta = event("function_call_arguments.delta", output_index=0, delta="{}")
        assert (await played(OpenAIResponses, [CREATED, delta, completed()])).failed().kind == "protocol"
        nameless = called("k1", name="")
        assert (await played(OpenAIResponses, [CREATED, nameless, completed()])).failed().kind == "protocol"

    @pytest.mark.parametrize("body", [b"", b": ping\n\n", b"data: [DONE]\n\n", data({"type": "keepalive"})])
    async def test_no_answer_at_all(self, body: bytes) -> None:
        """A body without any event of an answer is an error that may be tried again."""
        error = (await played(OpenAIResponses, [body])).failed()
        assert (error.kind, error.retryable) == ("network", True)

    async def test_a_done_mark_ends_nothing(self) -> None:
        """The end mark of another API, which some servers send, is passed over."""
        done = b"data: [DONE]\n\n"
        assert (await played(OpenAIResponses, [CREATED, done, said("a"), completed(), done])).clean().text == "a"
        assert (await played(OpenAIResponses, [CREATED, said("a"), done])).failed().kind == "network"

    @pytest.mark.parametrize("document", [b"[]", b"{}", b'{"a":1}', b"3"])
    async def test_a_document_that_is_no_response(self, document: bytes) -> None:
        """JSON that is no response is an error."""
        answer = await played(OpenAIResponses, [document], headers={"content-type": "application/json"})
        assert answer.failed().kind in ("protocol", "network")

    async def test_bounds(self) -> None:
        """More blocks, calls, or arguments than allowed fail, in size and in depth, named or not."""
        bounds = Bounds(blocks=4, calls=2, arguments=100, nesting=10)

        async def failure(*pieces: bytes) -> str:
            error = (await played(OpenAIResponses, [CREATED, *pieces], bounds=bounds)).failed()
            assert (error.kind, error.retryable) == ("protocol", False)
            return error.message

        long = event("function_call_arguments.delta", output_index=0, delta='"' + "x" * 60)
        start = event("output_item.added", output_index=0, item=call_item("k1", ""))
        assert "blocks" in await failure(*[said("a", place) for place in range(9)])
        assert "tool calls" in await failure(*[called(f"k{place}", place=place) for place in range(9)])
        assert "exceed" in await failure(start, long, long)
        assert "exceed" in await failure(long, long)
        assert "nested" in await failure(called("k1", "[" * 30))
        assert "exceed" in await failure(completed(call_item("k1", "x" * 200)))

    async def test_usage_of_an_answer_that_failed_is_kept(self) -> None:
        """What an answer had cost when it failed is reported before the error."""
        counts = {"input_tokens": 4, "output_tokens": 2, "total_tokens": 6}
        failed = {"status": "failed", "error": {"code": "server_error", "message": "x"}, "usage": counts}
        answer = await played(OpenAIResponses, [CREATED, said("a"), event("failed", response=failed)])
        assert (answer.failed().kind, answer.message.usage) == ("server", Usage(4, 2, total=6))


def body_of(
    messages: Iterable[Message] = (), dialect: ChatDialect = PLAIN, summary: Any = None, **fields: Any
) -> dict[str, Any]:
    """The body that is written for these messages, checked against OpenAI's types."""
    written = ResponsesWriter(dialect, "openai-responses", store=False, summary=summary).write(
        a_request(messages, **fields)
    )
    body: dict[str, Any] = json.loads(written.body)
    validate_responses_request(body)
    return body


def items_of(*messages: Message, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body_of(messages, **options)["input"]
    return found


GOOD_BODY: dict[str, Any] = {"model": "m", "stream": True, "input": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    "change",
    [
        {"unknown": 1},
        {"stop": ["x"]},
        {"input": [{"role": "user", "content": "hi", "unknown": 1}]},
        {"input": [{"role": "none", "content": "hi"}]},
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": 3}]}]},
        {"input": [{"type": "function_call", "call_id": "k", "name": "f", "arguments": {}}]},
        {"input": [{"type": "reasoning", "summary": []}]},
        {"tools": [{"type": "function", "name": "f", "parameters": {}}]},
        {"stream": False},
    ],
    ids=repr,
)
def test_the_judge_refuses_what_is_wrong(change: dict[str, Any]) -> None:
    """The types that judge our requests refuse unknown keys, and wrong values also where they are read lazily."""
    validate_responses_request(GOOD_BODY)
    with pytest.raises((ValidationError, AssertionError)):
        validate_responses_request({**GOOD_BODY, **change})


class TestMessages:
    """What people, models and tools said arrives as they said it."""

    def test_a_plain_conversation(self) -> None:
        """Instructions, user and assistant messages, calls and results, each an item."""
        body = body_of(
            [
                UserMessage("hi"),
                AssistantMessage([Text("let me see"), ToolCall("k1", "f", {"a": 1})], "tool_use"),
                ToolResultMessage("k1", "f", "2"),
                AssistantMessage("two"),
            ],
            system_prompt="be brief",
        )
        assert body["instructions"] == "be brief"
        assert (body["store"], "include" in body, "reasoning" in body) == (False, False, False)
        assert body["input"] == [
            {"role": "user", "content": "hi"},
            ANSWERED | {"content": "let me see"},
            {"type": "function_call", "call_id": "k1", "name": "f", "arguments": '{"a":1}'},
            {"type": "function_call_output", "call_id": "k1", "output": "2"},
            ANSWERED | {"content": "two"},
        ]

    def test_an_answer_says_that_it_is_a_message(self) -> None:
        """What the assistant said has its type beside its role: llama.cpp refuses an item of the role alone."""
        assert items_of(UserMessage("hi"), AssistantMessage("a"))[1] == ANSWERED

    def test_images(self) -> None:
        """Images are shown, also in results; where they cannot be, words take their place."""
        history = [
            UserMessage([Text("look"), Image(PNG, "image/png"), Image(PNG, "image/tiff")]),
            AssistantMessage([ToolCall("k1", "f", {})], "tool_use"),
            ToolResultMessage("k1", "f", [Image(PNG, "image/png")]),
        ]
        [look, _, result] = items_of(*history)
        assert [part["type"] for part in look["content"]] == ["input_text", "input_image", "input_text"]
        assert look["content"][1]["image_url"].startswith("data:image/png;base64,")
        assert [part["type"] for part in result["output"]] == ["input_image"]
        [look, _, result] = items_of(*history, dialect=ChatDialect(images=False))
        assert (look["content"].count("[an image"), "image/png" in result["output"]) == (2, True)

    def test_nothing_blank_is_sent(self) -> None:
        """Blank prompts, blocks, results and answers are left out, or stand as words where something must stand."""
        found = items_of(
            UserMessage([Text(""), Text("hi"), Text(" \n")]),
            AssistantMessage([Text(" "), Thinking("hm")]),
            UserMessage(" "),
            AssistantMessage([Text("\n"), ToolCall("k1", "f", {})], "tool_use"),
            ToolResultMessage("k1", "f", " "),
            system_prompt=" ",
        )
        assert [item.get("content", item.get("output", "call")) for item in found] == (
            ["hi", "(no text)", "call", "(no output)"]
        )

    @pytest.mark.parametrize("raw", ['{ "a" :1.0}', '{"a":1e2,"a":2}', '{"é":"\\u00e9\\ud800"}', '{\n\n"x": [ ]\n}'])
    def test_arguments_go_back_byte_for_byte(self, raw: str) -> None:
        """Valid arguments are not written anew: white space, numbers and escapes stay."""
        call = ToolCall("k1", "f", raw=raw)
        assert items_of(AssistantMessage([call], "tool_use"))[0]["arguments"] == raw

    def test_what_is_unsafe_is_made_safe(self) -> None:
        """Lone surrogates and NUL become U+FFFD wherever they are."""
        text = "a\ud800\0"
        tool = ToolSpec("f", text, {"type": "object", "properties": {"x": {"description": text}}})
        calls = AssistantMessage([Text(text), ToolCall("k1", "f", raw=f'{{"a":"{text}"}}')], "tool_use")
        body = body_of([UserMessage(text), calls], system_prompt=text, tools=(tool,))
        assert_no_unsafe_text(body)

    @pytest.mark.parametrize("unsafe", ["a\0", "a\ud800"])
    def test_reasoning_that_cannot_go_back_as_it_came_does_not(self, unsafe: str) -> None:
        """An id or a secret with NUL or half a character in it is left out; a summary is made safe."""

        def sent(**fields: str) -> list[dict[str, Any]]:
            item = (
                {"id": "r", "encrypted_content": "x"} | fields | {"summary": [{"type": "summary_text", "text": unsafe}]}
            )
            thought = Thinking("hm", json.dumps(item))
            answer = AssistantMessage([thought, Text("a")], model="some-model", provider="openai-responses")
            return [item for item in items_of(UserMessage("go"), answer) if item.get("type") == "reasoning"]

        assert sent(id=unsafe) == sent(encrypted_content=unsafe) == []
        assert [item["summary"] for item in sent()] == [[{"type": "summary_text", "text": "a\ufffd"}]]

    def test_a_request_without_any_message_is_refused(self) -> None:
        """Nothing to send is the caller's mistake, in plain words."""
        with pytest.raises(Exception, match="no message"):
            body_of([CustomMessage("note", None), AssistantMessage([Thinking("hm")])])


def secret(item_id: str, text: str = "E", **fields: Any) -> str:
    return json.dumps({"type": "reasoning", "id": item_id, "encrypted_content": text, **fields})


class TestReasoning:
    """Reasoning goes back exactly, or not at all, and only before what it led to."""

    def items(self, *blocks: Any, **fields: Any) -> list[dict[str, Any]]:
        message = AssistantMessage(blocks, "stop", **{"model": "some-model", "provider": "openai-responses", **fields})
        return items_of(UserMessage("go"), message)[1:]

    def test_an_item_goes_back_whole(self) -> None:
        """Id, secret, and each part of its summary and its text."""
        summary = [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]
        content = [{"type": "reasoning_text", "text": "c"}]
        found = self.items(Thinking("a\n\nb", secret("rs1", summary=summary, content=content)), Text("hi"))
        assert found[0] == {
            "type": "reasoning",
            "id": "rs1",
            "summary": summary,
            "content": content,
            "encrypted_content": "E",
        }

    @pytest.mark.parametrize(
        ("fields", "goes"),
        [
            ({}, True),
            ({"model": "some-model-2026-01-31"}, True),
            ({"model": "another"}, False),
            ({"provider": "anthropic"}, False),
            ({"provider": None}, False),
        ],
    )
    def test_it_goes_to_its_own_model_only(self, fields: dict[str, Any], goes: bool) -> None:
        """Another model or provider never sees it."""
        assert len(self.items(Thinking("a", secret("rs1")), Text("hi"), **fields)) == 1 + goes

    @pytest.mark.parametrize(
        "signature", [None, "", "sig", "[]", '{"id":"rs1"}', '{"encrypted_content":"E"}', '{"id":3,"content":[]}']
    )
    def test_what_is_no_item_stays_here(self, signature: str | None) -> None:
        """Thinking without an id, or without anything that the service could read, is not sent."""
        assert len(self.items(Thinking("a", signature), Text("hi"))) == 1

    def test_the_last_thoughts_of_an_answer_stay_here(self) -> None:
        """Reasoning behind which nothing came is left out; that before a call or a text is not."""
        found = self.items(
            Thinking("", secret("rs1")),
            Text("hi"),
            Thinking("", secret("rs2")),
            ToolCall("k1", "f", {}),
            Thinking("", secret("rs3")),
        )
        assert [item.get("id") for item in found if item.get("type") == "reasoning"] == ["rs1", "rs2"]

    def test_a_change_of_model_is_noticed_in_written_messages(self) -> None:
        """A message written for its own model is written anew, without its reasoning, for another one, and back."""
        writer = ResponsesWriter(PLAIN, "openai-responses", store=False, summary=None)
        message = AssistantMessage(
            [Thinking("", secret("rs1")), Text("b")], model="some-model", provider="openai-responses"
        )
        for model, count in (("some-model", 2), ("other", 1), ("some-model", 2)):
            body = json.loads(writer.write(a_request([UserMessage("go"), message], model=model)).body)
            assert len(body["input"]) == 1 + count

    @pytest.mark.parametrize(
        ("model", "level", "asks"),
        [
            ("gpt-5.2", "off", True),
            ("openai/o3-mini", "off", True),
            ("gpt-5-chat-latest", "off", False),
            ("gpt-4o", "off", False),
            ("gpt-4o", "low", True),
            ("qwen3", "high", True),
        ],
    )
    def test_its_secret_is_asked_for_where_there_is_one(self, model: str, level: Any, asks: bool) -> None:
        """Models that think are asked for what can go back; others refuse the question, and take a temperature."""
        body = body_of([UserMessage("go")], model=model, reasoning=level, settings=ModelSettings(temperature=0.5))
        assert (body.get("include") == ["reasoning.encrypted_content"], "temperature" in body) == (asks, not asks)

    @pytest.mark.parametrize(
        ("url", "level", "wanted"),
        [
            ("https://api.openai.com/v1", "max", {"effort": "xhigh", "summary": "auto"}),
            ("https://api.openai.com/v1", "off", None),
            ("https://openrouter.ai/api/v1", "high", {"effort": "high", "summary": "auto"}),
            ("https://api.x.ai/v1", "minimal", {"effort": "low", "summary": "auto"}),
            ("http://127.0.0.1:8080/v1", "medium", {"effort": "medium", "summary": "auto"}),
        ],
    )
    def test_the_dial(self, url: str, level: Any, wanted: Any) -> None:
        """The same word becomes what each host calls it."""
        dialect = dialect_of(BaseURL.parse(url))
        assert body_of([UserMessage("go")], dialect, "auto", reasoning=level).get("reasoning") == wanted
        if wanted:
            plain = body_of([UserMessage("go")], dialect, None, reasoning=level)["reasoning"]
            assert plain == {"effort": wanted["effort"]}


class TestTools:
    """Tools, options, and the key of the cache."""

    def test_a_tool_as_it_is_sent(self) -> None:
        """Name, description, one object's schema, and whether it is strict, which must be said."""
        tools = (ToolSpec("f", "does f", OBJECT), ToolSpec("g", "", OBJECT, True), ToolSpec("h", " ", UNION, True))
        f, g, h = body_of([UserMessage("go")], tools=tools)["tools"]
        assert f == {"type": "function", "name": "f", "description": "does f", "parameters": OBJECT, "strict": False}
        assert (g["strict"], g["parameters"]["additionalProperties"]) == (True, False)
        assert (h["strict"], h["parameters"]["type"], "description" in h) == (False, "object", False)
        assert not body_of([UserMessage("go")], ChatDialect(strict_tools=False), tools=tools)["tools"][1]["strict"]

    @pytest.mark.parametrize(
        ("choice", "wanted"),
        [("auto", "auto"), ("none", "none"), ("required", "required"), ("f", {"type": "function", "name": "f"})],
    )
    def test_tool_choice(self, choice: str, wanted: Any) -> None:
        """The words pass; a tool's name becomes the object that names it. Without tools nothing is said of them."""
        settings_ = ModelSettings(tool_choice=choice, parallel_tool_calls=False)
        body = body_of([UserMessage("go")], tools=(ToolSpec("f", "", OBJECT),), settings=settings_)
        assert (body["tool_choice"], body["parallel_tool_calls"]) == (wanted, False)
        bare = body_of([UserMessage("go")], settings=settings_)
        assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(bare)

    def test_a_choice_that_is_no_tool_is_refused(self) -> None:
        """A tool choice that names no tool of the request is the caller's mistake."""
        with pytest.raises(Exception, match="none of the request's tools"):
            body_of([UserMessage("go")], tools=(ToolSpec("f", "", OBJECT),), settings=ModelSettings(tool_choice="g"))

    def test_every_option_has_its_place(self) -> None:
        """Options that the API knows go to their fields, others nowhere; extras have the last word."""
        extra = {"metadata": {"a": "b"}, "top_p": 0.1}
        set_all = ModelSettings(temperature=0.0, top_p=0.5, max_output_tokens=9, stop=("x",), seed=7, extra_body=extra)
        body = body_of([UserMessage("go")], settings=set_all)
        assert {key: body[key] for key in body if key not in ("model", "stream", "store", "input")} == (
            {"temperature": 0.0, "top_p": 0.1, "max_output_tokens": 9, "metadata": {"a": "b"}}
        )

    def test_the_cache_key_is_that_of_the_conversations_beginning(self) -> None:
        """OpenAI gets a key that stays while system prompt and tools do, and changes with them."""
        openai = dialect_of(BaseURL.parse("https://api.openai.com/v1"))

        def key(text: str = "go", **fields: Any) -> str:
            fields = {"system_prompt": "s", "tools": (ToolSpec("f", "", OBJECT),), **fields}
            found: str = body_of([UserMessage(text)], openai, **fields)["prompt_cache_key"]
            return found

        assert key() == key("go on")
        assert len({key(), key(system_prompt="t"), key(tools=())}) == 3
        assert "prompt_cache_key" not in body_of([UserMessage("go")])


class TestStored:
    """The stateful way: the service keeps the conversation, and gets what is new."""

    FIRST = (CREATED, thought("rs1", "E"), said("ok", 1), called("k1", '{"n":1}', 2), completed())
    BYE = b"".join([said("bye"), completed(id="r2")])
    GONE = httpx.Response(404, json={"error": {"message": "Previous response with id 'r1' not found."}})

    async def talk(
        self, history: list[Message], *bodies: Any, change: Any = lambda message: message, **options: Any
    ) -> list[dict[str, Any]]:
        """What is sent when the first body's answer, perhaps changed, is put into history and gone on from."""
        requests_: list[dict[str, Any]] = []
        left = [b"".join(self.FIRST), *bodies]

        def answer(request: httpx.Request) -> httpx.Response:
            requests_.append(json.loads(request.content))
            validate_responses_request(requests_[-1])
            body = left.pop(0)
            return body if isinstance(body, httpx.Response) else httpx.Response(200, content=body)

        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            provider = OpenAIResponses(base_url="http://h.test/v1", client=client, **{"store": True, **options})
            first = (await asked(provider, a_request(history, model="m"))).clean()
            answered = change(first)
            rest = [*history, answered, ToolResultMessage("k1", "f", "x"), UserMessage("on")]
            await asked(provider, a_request(rest, model="m"))
            await asked(provider, a_request([*rest, AssistantMessage("bye"), UserMessage("again")], model="m"))
        return requests_

    async def test_only_what_is_new_is_sent(self) -> None:
        """What the service knows is named, not sent; what it does not know is all sent."""
        _, second, third = await self.talk([UserMessage("go")], self.BYE, self.BYE)
        assert (second["store"], second["previous_response_id"]) == (True, "r1")
        assert [item.get("output", item.get("content")) for item in second["input"]] == ["x", "on"]
        # The answer to the second did not get into history with its id: the last that did is gone on from.
        assert third["previous_response_id"] == "r1"
        assert [item.get("output", item.get("content")) for item in third["input"]] == ["x", "on", "bye", "again"]

    @pytest.mark.parametrize("changed", ["text", "call", "raw", "before", "id"])
    async def test_a_history_that_is_another_is_sent_whole(self, changed: str) -> None:
        """Whatever was changed since, in the answer or before it, the service gets the history as it is now."""
        history: list[Message] = [UserMessage("go")]

        def change(message: AssistantMessage) -> AssistantMessage:
            content = list(message.content)
            if changed == "text":
                content[1] = Text("no")
            elif changed == "call":
                content[2] = ToolCall("k2", "f", raw='{"n":1}')
            elif changed == "raw":
                content[2] = ToolCall("k1", "f", raw='{"n":2}')
            elif changed == "before":
                history[0] = UserMessage("gone")
            response_id = None if changed == "id" else message.response_id
            return attrs.evolve(message, content=content, response_id=response_id)

        for request in await self.talk(history, self.BYE, self.BYE, change=change):
            assert "previous_response_id" not in request

    async def test_what_the_service_has_forgotten_is_sent_again(self) -> None:
        """A service that no longer knows the conversation gets all of it, at once."""
        _, second, again, third = await self.talk([UserMessage("go")], self.GONE, self.BYE, self.BYE)
        assert second["previous_response_id"] == "r1"
        assert "previous_response_id" not in again
        assert [item.get("role", item.get("type")) for item in again["input"]] == (
            ["user", "reasoning", "assistant", "function_call", "function_call_output", "user"]
        )
        assert "previous_response_id" not in third

    async def test_without_it_nothing_is_remembered(self) -> None:
        """The stateless way names no earlier response, and a refusal that names one is not tried again."""
        requests_ = await self.talk([UserMessage("go")], self.GONE, self.BYE, store=False)
        assert [request["store"] for request in requests_] == [False] * 3
        assert not any("previous_response_id" in request for request in requests_)


IDENTIFIER = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def assert_acceptable(body: dict[str, Any]) -> None:
    """What no type says: pairing (I1), nothing blank, reasoning before what it led to, ids and names in alphabets."""
    awaited: list[str] = []
    thinking = False
    for item in body["input"]:
        kind = item.get("role", item.get("type"))
        if kind == "function_call_output":
            assert item["call_id"] == awaited.pop(0)
        elif kind != "function_call" and kind != "reasoning" and kind != "assistant":
            assert awaited == []
        if kind == "function_call":
            awaited.append(item["call_id"])
            assert isinstance(json.loads(item["arguments"]), dict)
            assert IDENTIFIER.fullmatch(item["call_id"])
            assert IDENTIFIER.fullmatch(item["name"])
        assert not thinking or kind in ("reasoning", "function_call", "assistant")
        thinking = kind == "reasoning"
        content = item.get("content", item.get("output"))
        for text in [content] if isinstance(content, str) else [part.get("text", "x") for part in content or ()]:
            assert text.strip() or kind == "reasoning"
    assert awaited == []
    assert not thinking
    assert_no_unsafe_text(body)


@settings(max_examples=400)
@given(fields=requests(), images=st.booleans(), store=st.booleans())
def test_any_history_becomes_a_request_that_openais_types_accept(
    fields: dict[str, Any], images: bool, store: bool
) -> None:
    """Whatever is in a history, from whatever provider: valid by OpenAI's own types, paired, nothing blank."""
    dialect = ChatDialect(images=images, cache_key=True)
    written = ResponsesWriter(dialect, "openai-responses", store=store, summary="auto").write(a_request(**fields))
    body = json.loads(written.body.decode("utf-8", "strict"))
    assert_acceptable(body)
    validate_responses_request(body)


@settings(max_examples=100)
@given(fields=requests())
def test_what_was_written_once_is_written_alike_ever_after(fields: dict[str, Any]) -> None:
    """A writer that has written a history before writes it as one that has not."""

    def new() -> ResponsesWriter:
        return ResponsesWriter(PLAIN, "openai-responses", store=True, summary=None)

    writer = new()
    messages = fields.pop("messages")
    for length in range(1, len(messages) + 1):
        request = a_request([*messages[:length], UserMessage("on")], **fields)
        assert writer.write(request) == new().write(request)


async def test_the_request_goes_to_its_path_with_its_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    """POST to responses below the base URL; the key goes where it is for, and to Azure in a header of its own."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, content=b"".join(BYE))

    monkeypatch.setenv("OPENAI_API_KEY", "from-env")
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        await asked(OpenAIResponses(client=client))
        await asked(OpenAIResponses(base_url="http://h.test/v1", client=client))
        await asked(OpenAIResponses(base_url="https://me.openai.azure.com/openai/v1", client=client, api_key="k"))
    assert [str(request.url) for request in seen] == [
        "https://api.openai.com/v1/responses",
        "http://h.test/v1/responses",
        "https://me.openai.azure.com/openai/v1/responses",
    ]
    assert [request.headers.get("authorization") for request in seen] == ["Bearer from-env", None, None]
    assert seen[2].headers["api-key"] == "k"


async def test_a_conversation_moves_between_providers() -> None:
    """A history of Anthropic's and Gemini's words is sent without anything that is only theirs."""
    history = (
        UserMessage("go"),
        AssistantMessage(
            [
                Thinking("hm", "sig"),
                Thinking("", redacted="x"),
                Text("ok", "s"),
                ToolCall("toolu_01", "f", {}, signature="s"),
            ],
            "tool_use",
            provider="anthropic",
            model="claude-x",
        ),
        ToolResultMessage("toolu_01", "f", "x"),
    )
    body = await sent(OpenAIResponses, a_request(history), BYE)
    validate_responses_request(body)
    kinds = [item.get("role", item.get("type")) for item in body["input"]]
    assert kinds == ["user", "assistant", "function_call", "function_call_output"]
