"""`Anthropic` reads what services really send in any pieces, and writes what Anthropic's own types accept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import httpx
import pytest
import trio
import trio.testing
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.anthropic_types import validate_messages_request
from tests.wire_files import Answer, Recorded, a_request, asked, data, named, played, recorded, sent, single_bytes
from tests.wire_histories import NESTED, OBJECT, PNG, UNION, assert_no_unsafe_text, requests
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
from trio_agent._chunks import BlockEnd, Finish, ResponseInfo, TextDelta, UsageReport
from trio_agent._messages import Usage
from trio_agent._request import ModelSettings, ToolSpec
from trio_agent.providers import Anthropic, Bounds
from trio_agent.providers._anthropic_models import ClaudeModel
from trio_agent.providers._anthropic_request import MessagesWriter

FILES = recorded("anthropic_messages")
STREAMS = [file for file in FILES if file.meta["stream"]]
STOP_REASONS = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_use"}

START = named(
    "message_start",
    {"message": {"id": "m1", "model": "x", "content": [], "usage": {"input_tokens": 5, "output_tokens": 1}}},
)
STOP = named("message_stop", {})


def begin(index: int, **block: Any) -> bytes:
    return named("content_block_start", {"index": index, "content_block": block})


def more(index: int, kind: str, **fields: Any) -> bytes:
    return named("content_block_delta", {"index": index, "delta": {"type": kind, **fields}})


def end(index: int) -> bytes:
    return named("content_block_stop", {"index": index})


def ending(reason: Any) -> bytes:
    return named("message_delta", {"delta": {"stop_reason": reason}, "usage": {"output_tokens": 9}}) + STOP


def text_block(index: int, text: str) -> bytes:
    return begin(index, type="text", text="") + more(index, "text_delta", text=text) + end(index)


BYE = [START, text_block(0, "bye"), ending("end_turn")]


def expected_calls(file: Recorded) -> list[tuple[Any, str, str]]:
    return [(call["id"], call["name"], call["arguments"] or "{}") for call in file.expected["tool_calls"]]


def check(file: Recorded, answer: Answer) -> None:
    """The answer is what the sidecar says."""
    expected = file.expected
    assert answer.message.text == expected["text"]
    assert answer.thinking == expected.get("thinking", "")
    assert answer.calls == expected_calls(file)
    assert [call.arguments for call in answer.message.tool_calls] == [call["args"] for call in expected["tool_calls"]]
    assert answer.signatures == expected.get("signatures", [])
    redacted = [block.redacted for block in answer.message.content if isinstance(block, Thinking) and block.redacted]
    assert redacted == expected.get("redacted_thinking", [])
    assert answer.message.response_id == expected["response_id"]
    assert answer.message.model == expected["model"]
    usage = expected["usage"]
    counted = [
        usage.get(key)
        for key in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    ]
    thinking = usage.get("output_tokens_details", {}).get("thinking_tokens")
    assert answer.message.usage == Usage(*counted, thinking, sum(count or 0 for count in counted))
    if expected["error"] is not None:
        assert expected["error"]["message"] in answer.failed().message
        assert (answer.failed().kind, answer.failed().retryable) == ("overloaded", True)
    elif expected["stop_reason"] == "refusal":
        assert answer.failed().kind == "content_filter"
        assert expected["delta_extra"]["stop_details"]["explanation"] in answer.failed().message
    else:
        assert answer.clean().stop_reason == STOP_REASONS[expected["stop_reason"]]


@pytest.mark.parametrize("file", FILES, ids=repr)
async def test_a_recorded_body_is_read_right_whole(file: Recorded) -> None:
    """Text, thinking, signatures, calls, usage, id, model and end of each recorded body are what its sidecar says."""
    check(file, await played(Anthropic, [file.body], headers={"content-type": file.meta["headers"]["content-type"]}))


@pytest.mark.parametrize("file", FILES, ids=repr)
async def test_a_recorded_body_is_read_right_byte_by_byte(file: Recorded) -> None:
    """Cut at every byte at once, each recorded body gives the same answer."""
    check(file, await played(Anthropic, single_bytes(file.body)))


@pytest.mark.parametrize("file", FILES, ids=repr)
@settings(max_examples=15)
@given(source=st.data())
def test_a_recorded_body_is_read_right_in_random_pieces(file: Recorded, source: st.DataObject) -> None:
    """However a recorded body is cut into pieces, it gives the same answer."""
    read_in_random_pieces(Anthropic, file, source, check)


@pytest.mark.parametrize("file", STREAMS, ids=repr)
def test_one_cut_anywhere_changes_no_event(file: Recorded) -> None:
    """A single cut, at each byte of each recorded stream in turn, changes none of its events."""
    assert cut_once_everywhere(file) > len(file.body) // 2


@pytest.mark.parametrize("ending", [b"\r\n", b"\r"], ids=["crlf", "cr"])
@pytest.mark.parametrize("file", STREAMS, ids=repr)
async def test_line_ends_make_no_difference(file: Recorded, ending: bytes) -> None:
    """A recorded stream whose lines end in CRLF or CR gives the same answer, whole and byte by byte."""
    body = with_line_ends(file.body, ending)
    check(file, await played(Anthropic, [body]))
    check(file, await played(Anthropic, single_bytes(body)))


@pytest.mark.parametrize("file", STREAMS, ids=repr)
async def test_a_stream_cut_short_never_ends_well(file: Recorded) -> None:
    """Cut off behind any of its events but the last, a recorded stream is an error (F6)."""
    for body in beginnings_of(file):
        answer = await played(Anthropic, [body])
        assert file.expected["text"].startswith(answer.message.text)
        stopped_early(answer)


@pytest.mark.parametrize("file", STREAMS, ids=repr)
@settings(max_examples=20)
@given(source=st.data())
def test_a_stream_cut_anywhere_is_whole_or_an_error(file: Recorded, source: st.DataObject) -> None:
    """Cut off at any byte, a stream gives a prefix of the answer and an error, or the whole answer."""
    at = source.draw(st.integers(0, len(file.body)))
    trio.run(check_cut_off_at, Anthropic, file, at, expected_calls, clock=trio.testing.MockClock(autojump_threshold=0))


class TestReading:
    """What events mean, and what they may not do."""

    async def test_each_delta_is_one_chunk(self) -> None:
        """One `send` per delta: nothing is batched, split or held back."""
        pieces = [START + begin(0, type="text", text="") + more(0, "text_delta", text="a")]
        pieces += [more(0, "text_delta", text="b") + end(0) + ending("end_turn")]
        assert (await played(Anthropic, pieces)).chunks == [
            ResponseInfo("m1", "x"),
            UsageReport(Usage(5, 1, total=6)),
            TextDelta(0, "a"),
            TextDelta(0, "b"),
            UsageReport(Usage(5, 9, total=14)),
            Finish("stop"),
        ]

    async def test_blocks_keep_their_order(self) -> None:
        """Text, thinking and calls become blocks in the order in which they came; texts are not joined."""
        pieces = [START, text_block(0, "a"), text_block(1, "b"), begin(2, type="tool_use", id="t1", name="f", input={})]
        pieces += [end(2), text_block(3, "c"), ending("end_turn")]
        answer = await played(Anthropic, pieces)
        assert answer.clean().content == (Text("a"), Text("b"), ToolCall("t1", "f", {}), Text("c"))
        assert answer.message.stop_reason == "tool_use"

    async def test_one_index_for_every_block(self) -> None:
        """Where a gateway gives all blocks the same index, or none, each start begins a block."""
        for index in (0, None):
            pieces = [START, text_block(index, "a"), begin(index, type="tool_use", id="t1", name="f")]  # type: ignore[arg-type]
            pieces += [more(index, "input_json_delta", partial_json='{"a":1}'), text_block(index, "b")]  # type: ignore[arg-type]
            answer = await played(Anthropic, [*pieces, ending("tool_use")])
            assert answer.clean().content == (Text("a"), ToolCall("t1", "f", {"a": 1}), Text("b"))

    async def test_a_start_sent_twice_begins_one_call(self) -> None:
        """A call whose start is repeated is one call."""
        start = begin(0, type="tool_use", id="t1", name="f", input={})
        pieces = [START, start, start, more(0, "input_json_delta", partial_json="{}"), end(0), ending("tool_use")]
        assert (await played(Anthropic, pieces)).calls == [("t1", "f", "{}")]

    async def test_arguments_in_the_start_count_if_no_others_come(self) -> None:
        """A server that gives a call's whole input at once, with its start, is understood."""
        start = begin(0, type="tool_use", id="t1", name="f", input={"a": 1})
        assert (await played(Anthropic, [START, start, end(0), ending("tool_use")])).calls == [("t1", "f", '{"a":1}')]
        with_delta = [START, start, more(0, "input_json_delta", partial_json='{"a": 2}'), end(0), ending("tool_use")]
        assert (await played(Anthropic, with_delta)).calls == [("t1", "f", '{"a": 2}')]

    async def test_a_delta_without_a_start_begins_its_block(self) -> None:
        """Text whose start was lost is text all the same; arguments that belong to no call are an error."""
        answer = await played(Anthropic, [START, more(0, "text_delta", text="a"), ending("end_turn")])
        assert answer.clean().text == "a"
        lost = await played(Anthropic, [START, more(0, "input_json_delta", partial_json="{"), ending("tool_use")])
        assert lost.failed().kind == "protocol"

    async def test_a_delta_of_another_kind_is_an_error(self) -> None:
        """Text for a call, or arguments for a text, is no answer that could be trusted."""
        pieces = [START, begin(0, type="text", text=""), more(0, "input_json_delta", partial_json="{}")]
        assert (await played(Anthropic, [*pieces, ending("end_turn")])).failed().kind == "protocol"

    async def test_thinking_whose_text_is_not_shown_keeps_its_signature(self) -> None:
        """A thinking block with a signature and no text is kept, in its place."""
        pieces = [
            START,
            begin(0, type="thinking", thinking="", signature=""),
            more(0, "signature_delta", signature="s"),
        ]
        answer = await played(Anthropic, [*pieces, end(0), text_block(1, "a"), ending("end_turn")])
        assert answer.clean().content == (Thinking("", signature="s"), Text("a"))
        assert BlockEnd(0, "s") in answer.chunks

    async def test_a_text_in_the_start_counts(self) -> None:
        """Text and thinking that come with the start of their block are told."""
        pieces = [START, begin(0, type="thinking", thinking="hm", signature="s"), begin(1, type="text", text="a")]
        answer = await played(Anthropic, [*pieces, more(1, "text_delta", text="b"), ending("end_turn")])
        assert answer.clean().content == (Thinking("hm", signature="s"), Text("ab"))

    @pytest.mark.parametrize(
        ("kind", "field"), [("text", "text"), ("thinking", "thinking"), ("tool_use", "partial_json")]
    )
    async def test_a_character_cut_between_two_deltas_is_joined(self, kind: str, field: str) -> None:
        """The two halves of a surrogate pair, escaped in two deltas, become the one character that they are."""
        names = {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}
        halves = [b"a\\ud83d", b"\\ude00b"]
        parts = [
            b'data: {"type":"content_block_delta","index":0,"delta":{"type":"%s","%s":"%s"}}\n\n'
            % (names[kind].encode(), field.encode(), half)
            for half in halves
        ]
        pieces = [START, begin(0, type=kind, id="t1", name="f"), *parts, end(0), ending("end_turn")]
        answer = await played(Anthropic, pieces)
        raw = "".join(call.raw for call in answer.message.tool_calls)
        assert answer.message.text + answer.thinking + raw == "a\U0001f600b"

    async def test_half_a_character_is_not_lost(self) -> None:
        """A half whose other half never comes is told at the end of its block."""
        half = b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\\ud83d"}}\n\n'
        answer = await played(Anthropic, [START, begin(0, type="text"), half, end(0), ending("end_turn")])
        assert answer.clean().text == "a\ud83d"

    async def test_a_mapped_name_comes_back_as_the_tools_own(self) -> None:
        """A call by a mapped name is a call of the tool whose name was mapped."""
        tool = ToolSpec("files.read", "", OBJECT)
        wire_name = body_of([UserMessage("go")], tools=(tool,))["tools"][0]["name"]
        assert wire_name != "files.read"
        pieces = [START, begin(0, type="tool_use", id="t1", name=wire_name, input={}), end(0), ending("tool_use")]
        answer = await played(Anthropic, pieces, a_request([UserMessage("go")], tools=(tool,)))
        assert answer.clean().tool_calls[0].name == "files.read"

    @pytest.mark.parametrize("reason", ["brand_new_reason", None, 7, {"x": 1}, "pause_turn"])
    async def test_an_end_that_is_no_answer_is_an_error(self, reason: Any) -> None:
        """An end that is missing, unknown or asks us to go on is an error that says so, with the text kept."""
        answer = await played(Anthropic, [START, text_block(0, "a"), ending(reason)])
        assert (answer.failed().kind, answer.message.text) == ("protocol", "a")
        assert "pause_turn" in answer.failed().message or "stop_reason" in answer.failed().message

    async def test_a_full_context_window_is_a_cut_answer(self) -> None:
        """An answer that filled the window was cut, like one that reached its limit."""
        answer = await played(Anthropic, [START, text_block(0, "a"), ending("model_context_window_exceeded")])
        assert answer.clean().stop_reason == "length"

    @pytest.mark.parametrize(
        ("error", "kind", "again"),
        [
            ({"type": "overloaded_error", "message": "busy"}, "overloaded", True),
            ({"type": "rate_limit_error", "message": "slow"}, "rate_limit", True),
            ({"type": "api_error", "message": "oops"}, "server", True),
            ({"type": "timeout_error", "message": "late"}, "timeout", True),
            ({"type": "invalid_request_error", "message": "no"}, "invalid_request", False),
            (
                {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"},
                "context_overflow",
                False,
            ),
            ({"type": "authentication_error", "message": "no"}, "authentication", False),
            ({"type": "billing_error", "message": "pay"}, "rate_limit", False),
        ],
        ids=lambda value: value["message"] if isinstance(value, dict) else "",
    )
    @pytest.mark.parametrize("form", ["named", "bare", "whole", "unnamed"])
    async def test_errors_in_a_good_answer(self, error: dict[str, Any], kind: str, again: bool, form: str) -> None:
        """An error in an answer with status 200 has the kind of the HTTP error that it stands for, in every form."""
        pieces = {
            "named": [START, named("error", {"error": error})],
            "bare": [b"event: error\n" + data({"error": error})],
            "whole": [data({"type": "error", "error": error})[6:]],
            "unnamed": [data({"error": error})],
        }[form]
        failure = (await played(Anthropic, pieces)).failed()
        assert (failure.kind, failure.retryable) == (kind, again)
        assert error["message"] in failure.message

    @pytest.mark.parametrize(
        "event",
        [
            {},
            {"type": None},
            {"type": "content_block_delta"},
            {"type": "content_block_delta", "index": [], "delta": None},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": None}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "new_delta", "text": "x"}},
            {"type": "content_block_start", "index": 5, "content_block": None},
            {"type": "content_block_stop"},
            {"type": "message_delta", "delta": None, "usage": None},
            {"type": "message_delta", "usage": {"output_tokens": None, "input_tokens": None}},
            {"type": "message_start"},
            {"type": "message_start", "message": {"id": None, "model": 3, "usage": []}},
        ],
        ids=repr,
    )
    async def test_empty_and_null_everything_is_passed_over(self, event: dict[str, Any]) -> None:
        """Events whose parts are missing, null or of another kind change nothing in the answer around them."""
        pieces = [START, begin(0, type="text"), more(0, "text_delta", text="a"), data(event)]
        answer = await played(Anthropic, [*pieces, more(0, "text_delta", text="b"), ending("end_turn")])
        assert answer.clean().text == "ab"
        assert answer.message.usage == Usage(5, 9, total=14)

    async def test_a_call_without_a_name_is_an_error(self) -> None:
        """A call that names no tool cannot be run."""
        answer = await played(Anthropic, [START, begin(0, type="tool_use", id="t1", input={}), ending("tool_use")])
        assert answer.failed().kind == "protocol"

    @pytest.mark.parametrize("body", [b"", b": ping\n\n", b"data: [DONE]\n\n", named("ping", {})])
    async def test_no_answer_at_all(self, body: bytes) -> None:
        """A body without any event of an answer is an error that may be tried again."""
        error = (await played(Anthropic, [body])).failed()
        assert (error.kind, error.retryable) == ("network", True)

    @pytest.mark.parametrize("document", [b"[]", b"{}", b'{"a":1}', b"3"])
    async def test_a_document_that_is_no_message(self, document: bytes) -> None:
        """JSON that is no message is an error."""
        answer = await played(Anthropic, [document], headers={"content-type": "application/json"})
        assert answer.failed().kind in ("protocol", "network")

    async def test_bounds(self) -> None:
        """More blocks, calls, or arguments than allowed fail, in size and in depth."""
        bounds = Bounds(blocks=4, calls=2, arguments=100, nesting=10)

        async def failure(*pieces: bytes) -> str:
            error = (await played(Anthropic, [START, *pieces], bounds=bounds)).failed()
            assert (error.kind, error.retryable) == ("protocol", False)
            return error.message

        call = [begin(at, type="tool_use", id=f"t{at}", name="f") for at in range(9)]
        assert "blocks" in await failure(*[text_block(at, "a") for at in range(9)])
        assert "tool calls" in await failure(*call)
        assert "exceed" in await failure(call[0], more(0, "input_json_delta", partial_json='"' + "x" * 200))
        assert "nested" in await failure(call[0], *[more(0, "input_json_delta", partial_json="[[[")] * 9)
        whole = begin(0, type="tool_use", id="t", name="f", input={"a": "x" * 200})
        assert "exceed" in await failure(whole, end(0))


def body_of(
    messages: Iterable[Message] = (), provider: str = "anthropic", cache: Any = None, **fields: Any
) -> dict[str, Any]:
    """The body that is written for these messages, checked against Anthropic's types."""
    text, _ = MessagesWriter(provider, cache).write(a_request(messages, **fields))
    body: dict[str, Any] = json.loads(text)
    validate_messages_request(body)
    return body


def messages_of(*messages: Message, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body_of(messages, **options)["messages"]
    return found


GOOD_BODY: dict[str, Any] = {
    "model": "m",
    "max_tokens": 9,
    "stream": True,
    "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
}


@pytest.mark.parametrize(
    "change",
    [
        {"unknown": 1},
        {"messages": [{"role": "user", "content": "hi", "unknown": 1}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "unknown": 1}]}]},
        {"messages": [{"role": "none", "content": "hi"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": 3}]}]},
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": "{}"}]}]},
        {"messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]}]},
        {"max_tokens": None},
        {"tools": [{"input_schema": {"type": "object"}}]},
        {"tool_choice": "auto"},
        {"stream": False},
    ],
    ids=repr,
)
def test_the_judge_refuses_what_is_wrong(change: dict[str, Any]) -> None:
    """The types that judge our requests refuse unknown keys, and wrong values also where they are read lazily."""
    validate_messages_request(GOOD_BODY)
    with pytest.raises((ValidationError, AssertionError)):
        validate_messages_request({**GOOD_BODY, **change})


class TestMessages:
    """What people, models and tools said arrives as they said it, in the order and the form that the API wants."""

    def test_a_plain_conversation(self) -> None:
        """System prompt, user and assistant messages, calls and results."""
        body = body_of(
            [
                UserMessage("hi"),
                AssistantMessage([Text("let me see"), ToolCall("k1", "f", {"a": 1})], "tool_use"),
                ToolResultMessage("k1", "f", "2"),
                AssistantMessage("two"),
                UserMessage("thanks"),
            ],
            system_prompt="be brief",
        )
        text = {"type": "text", "text": "let me see"}
        assert body["system"] == [{"type": "text", "text": "be brief"}]
        assert body["messages"] == [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {
                "role": "assistant",
                "content": [text, {"type": "tool_use", "id": "k1", "name": "f", "input": {"a": 1}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "k1", "content": [{"type": "text", "text": "2"}]}],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "two"}]},
            {"role": "user", "content": [{"type": "text", "text": "thanks"}]},
        ]

    def test_a_user_has_the_first_and_the_last_word(self) -> None:
        """A history that begins or ends with the model gets a user's words around it."""
        found = messages_of(AssistantMessage("a"), AssistantMessage("b"))
        assert [message["role"] for message in found] == ["user", "assistant", "user"]
        assert [block["text"] for block in found[1]["content"]] == ["a", "b"]

    def test_images(self) -> None:
        """Images that the API knows are shown, also in results; others become words in their place."""
        [message, _, results] = messages_of(
            UserMessage([Text("look"), Image(PNG, "image/png"), Image(PNG, "image/tiff"), Image(b"", "image/png")]),
            AssistantMessage([ToolCall("k1", "f", {})], "tool_use"),
            ToolResultMessage("k1", "f", [Image(PNG, "image/png")]),
        )
        assert [block["type"] for block in message["content"]] == ["text", "image", "text", "text"]
        assert "image/tiff" in message["content"][2]["text"]
        assert [block["type"] for block in results["content"][0]["content"]] == ["image"]

    def test_the_images_of_an_error_stand_behind_the_results(self) -> None:
        """A failed result may hold text only; its images follow all the results, and still come before what follows."""
        calls = [ToolCall("k1", "f", {}), ToolCall("k2", "f", {})]
        [_, _, results] = messages_of(
            UserMessage("go"),
            AssistantMessage(calls, "tool_use"),
            ToolResultMessage("k1", "f", [Image(PNG, "image/png")], True),
            ToolResultMessage("k2", "f", "2"),
            UserMessage("and now?"),
        )
        first, second, label, image, text = results["content"]
        assert (first["is_error"], [block["type"] for block in first["content"]]) == (True, ["text"])
        assert (second["tool_use_id"], "is_error" in second) == ("k2", False)
        assert "k1" in label["text"]
        assert (image["type"], text["text"]) == ("image", "and now?")

    @pytest.mark.parametrize(
        "raw", ['{ "a" :1.0}', '{"a":1e2,"a":2}', '{"é":"\\u00e9 \\ud83d\\udE00"}', '{\n\n"x": [ ]\n}']
    )
    def test_arguments_go_back_as_they_came(self, raw: str) -> None:
        """Valid arguments stand in the request byte for byte; white space, numbers and doubled keys stay."""
        history = [AssistantMessage([ToolCall("k1", "f", raw=raw)], "tool_use"), ToolResultMessage("k1", "f", "x")]
        text, _ = MessagesWriter("anthropic", None).write(a_request(history))
        assert (raw if "ud83d" not in raw else '{"é":"é \U0001f600"}').encode() in text

    @pytest.mark.parametrize("raw", ["[]", "{", '{"a":"\\ud800\\u0000"}', '{"a":"\ud800"}'])
    def test_arguments_that_cannot_be_sent_are_shown(self, raw: str) -> None:
        """What is no object, or holds what breaks servers, becomes an object that the API takes."""
        history = [AssistantMessage([ToolCall("k1", "f", raw=raw)], "tool_use"), ToolResultMessage("k1", "f", "x")]
        assert_no_unsafe_text(found := messages_of(*history))
        assert isinstance(found[1]["content"][0]["input"], dict)

    @pytest.mark.parametrize("unsafe", ["a\0", "a\ud800"])
    @pytest.mark.parametrize("field", ["text", "signature", "redacted"])
    def test_a_thought_that_cannot_go_back_as_it_came_does_not(self, unsafe: str, field: str) -> None:
        """A signature proves the very text: a thought with NUL or half a character in it is left out, not altered."""
        thought = Thinking(**({"text": "hm", "signature": "sig"} | {field: unsafe}))
        found = messages_of(
            UserMessage("go"), AssistantMessage([thought, Text("a")], model="some-model", provider="anthropic")
        )
        assert found[1]["content"] == [{"type": "text", "text": "a"}]

    def test_what_is_unsafe_is_made_safe(self) -> None:
        """Lone surrogates and NUL become U+FFFD wherever they are."""
        text = "a\ud800\0"
        tool = ToolSpec("f", text, {"type": "object", "properties": {"x": {"description": text}}})
        body = body_of(
            [UserMessage(text), AssistantMessage(text), UserMessage(text)],
            system_prompt=text,
            tools=(tool,),
            settings=ModelSettings(extra_body={"metadata": {"user_id": text}}, stop=(text,)),
        )
        assert_no_unsafe_text(body)
        assert body["metadata"]["user_id"] == "a\ufffd\ufffd"

    def test_a_request_without_any_message_is_refused(self) -> None:
        """Nothing to send is the caller's mistake, in plain words."""
        with pytest.raises(Exception, match="no message"):
            body_of([CustomMessage("note", None)])


class TestThinking:
    """Thinking goes back exactly, or not at all."""

    def content(self, *blocks: Any, **fields: Any) -> list[dict[str, Any]]:
        message = AssistantMessage(blocks, "stop", **{"model": "some-model", "provider": "anthropic", **fields})
        found: list[dict[str, Any]] = messages_of(UserMessage("go"), message, UserMessage("on"))[1]["content"]
        return found

    def test_signed_and_redacted_thinking_goes_back_in_its_place(self) -> None:
        """Text, signature, opaque data and order are those that came."""
        found = self.content(Thinking("a\n ", "sa"), Thinking("", redacted="QUJD"), Thinking("", "sb"), Text("hi"))
        assert found == [
            {"type": "thinking", "thinking": "a\n ", "signature": "sa"},
            {"type": "redacted_thinking", "data": "QUJD"},
            {"type": "thinking", "thinking": "", "signature": "sb"},
            {"type": "text", "text": "hi"},
        ]

    @pytest.mark.parametrize(
        ("fields", "goes"),
        [
            ({}, True),
            ({"model": "some-model-20260131"}, True),
            ({"model": "another"}, False),
            ({"model": None}, False),
            ({"provider": "openai-chat"}, False),
            ({"provider": None}, False),
        ],
    )
    def test_it_goes_to_its_own_model_only(self, fields: dict[str, Any], goes: bool) -> None:
        """Another model or provider never sees it."""
        found = self.content(Thinking("a", "s"), Thinking("", redacted="d"), Text("hi"), **fields)
        assert len(found) == (3 if goes else 1)

    def test_what_nothing_proves_stays_here(self) -> None:
        """Thinking without a signature is not sent, and none is sent as the last word of an answer."""
        assert len(self.content(Thinking("a"), Text("hi"), Thinking("b", "s"))) == 1
        found = messages_of(
            UserMessage("go"),
            AssistantMessage([Thinking("b", "s")], "aborted", model="some-model", provider="anthropic"),
            UserMessage("on"),
        )
        assert [message["role"] for message in found] == ["user"]

    def test_a_change_of_model_is_noticed_in_written_messages(self) -> None:
        """A message written for its own model is written anew, without its thinking, for another one, and back."""
        writer = MessagesWriter("anthropic", None)
        message = AssistantMessage([Thinking("a", "s"), Text("b")], model="some-model", provider="anthropic")
        for model, count in (("some-model", 2), ("other", 1), ("some-model", 2)):
            body = json.loads(writer.write(a_request([UserMessage("go"), message], model=model))[0])
            assert len(body["messages"][1]["content"]) == count


class TestDial:
    """How hard to think, in the words of each model."""

    @pytest.mark.parametrize(
        ("model", "level", "wanted"),
        [
            ("claude-sonnet-4-5", "off", {}),
            ("claude-sonnet-4-5", "high", {"thinking": {"type": "enabled", "budget_tokens": 16384}}),
            ("claude-3-7-sonnet-20250219", "minimal", {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
            ("claude-3-5-haiku-20241022", "high", {}),
            ("qwen3", "low", {"thinking": {"type": "enabled", "budget_tokens": 4096}}),
            ("claude-opus-4-6", "minimal", {"output_config": {"effort": "low"}}),
            ("claude-opus-4.7", "max", {"output_config": {"effort": "max"}}),
            ("anthropic/claude-fable-5", "medium", {"output_config": {"effort": "medium"}}),
            ("claude-mythos-preview", "high", {"output_config": {"effort": "high"}}),
        ],
    )
    def test_each_models_words(self, model: str, level: Any, wanted: dict[str, Any]) -> None:
        """Older models get a budget, newer ones an effort; those that cannot think get neither."""
        body = body_of([UserMessage("go")], model=model, reasoning=level)
        found = {key: body[key] for key in ("thinking", "output_config") if key in body}
        if "output_config" in wanted:
            assert found.pop("thinking")["type"] == "adaptive"
        assert found == wanted

    @pytest.mark.parametrize(("limit", "budget"), [(20_000, 16384), (16384, 8192), (2048, 1024), (2000, None)])
    def test_a_budget_leaves_room_for_the_answer(self, limit: int, budget: int | None) -> None:
        """The budget is below the limit of the answer, and where there is no room for one there is no thinking."""
        body = body_of(
            [UserMessage("go")],
            model="claude-haiku-4-5",
            reasoning="high",
            settings=ModelSettings(max_output_tokens=limit),
        )
        assert body["max_tokens"] == limit
        assert body.get("thinking", {}).get("budget_tokens") == budget

    def test_a_forced_call_is_made_without_thinking(self) -> None:
        """The API refuses to think where it must call."""
        tools = (ToolSpec("f", "", OBJECT),)
        for choice, thinks in (("required", False), ("f", False), ("auto", True), ("none", True)):
            settings_ = ModelSettings(tool_choice=choice)
            body = body_of([UserMessage("go")], reasoning="high", tools=tools, settings=settings_)
            assert ("thinking" in body) is thinks

    def test_results_of_another_models_calls_are_answered_without_thinking(self) -> None:
        """A turn that another model began cannot be gone on with in thought; its own can, through several calls."""

        def turn(at: int, *thoughts: Thinking) -> list[Message]:
            call = ToolCall(f"k{at}", "f", {})
            answer = AssistantMessage([*thoughts, call], "tool_use", model="some-model", provider="anthropic")
            return [answer, ToolResultMessage(call.id, "f", "x")]

        def thinks(*messages: Message, **options: Any) -> bool:
            return "thinking" in body_of([UserMessage("go"), *messages], reasoning="high", **options)

        thought = Thinking("hm", "s")
        assert not thinks(*turn(1))
        assert thinks(*turn(1, thought))
        assert thinks(*turn(1, thought), *turn(2))
        assert not thinks(*turn(1), *turn(2, thought))
        assert not thinks(*turn(1), UserMessage("faster"))
        assert thinks(*turn(1), AssistantMessage("done"), UserMessage("next"))
        assert thinks(*turn(1), model="claude-opus-5")

    def test_sampling_is_left_out_where_it_is_refused(self) -> None:
        """Temperature goes to models that take it, and not while they think."""
        for model, level, goes in (
            ("claude-sonnet-4-5", "off", True),
            ("claude-sonnet-4-5", "low", False),
            ("claude-opus-5", "off", False),
            ("qwen3", "off", True),
        ):
            settings_ = ModelSettings(temperature=0.3, top_p=0.9)
            body = body_of([UserMessage("go")], model=model, reasoning=level, settings=settings_)
            assert ("temperature" in body, "top_p" in body) == (goes, goes)

    @pytest.mark.parametrize(
        ("name", "wanted"),
        [
            ("claude-3-opus-20240229", 4096),
            ("claude-3-5-sonnet-latest", 8192),
            ("claude-sonnet-5", 32_000),
            ("x", 32_000),
        ],
    )
    def test_there_is_always_a_limit(self, name: str, wanted: int) -> None:
        """The API wants one in every request; by default it is one that the model allows."""
        assert body_of([UserMessage("go")], model=name)["max_tokens"] == wanted
        assert ClaudeModel.named(name).max_tokens == wanted


class TestTools:
    """Tools and how they may be called."""

    def test_a_tool_as_it_is_sent(self) -> None:
        """Name, description and schema, the schema always that of one object."""
        tools = (
            ToolSpec("f", "does f", OBJECT),
            ToolSpec("g", " ", {"description": "nothing"}),
            ToolSpec("h", "", UNION),
        )
        f, g, h = body_of([UserMessage("go")], tools=tools)["tools"]
        assert f == {"name": "f", "description": "does f", "input_schema": OBJECT}
        assert g == {"name": "g", "input_schema": {"description": "nothing", "type": "object", "properties": {}}}
        both = {"a": {"type": "integer", "minimum": 0}, "b": {"type": "string"}}
        assert h == {"name": "h", "input_schema": {"type": "object", "properties": both, "required": []}}

    def test_strict_is_asked_for_where_it_can_be(self) -> None:
        """A model that can be strict is asked to be, with a schema of what it knows; the rest goes plain."""
        tools = (ToolSpec("f", "", OBJECT, True), ToolSpec("g", "", NESTED, True), ToolSpec("h", "", OBJECT))
        f, g, h = body_of([UserMessage("go")], tools=tools, model="claude-sonnet-5")["tools"]
        assert (f["strict"], f["input_schema"]["additionalProperties"]) == (True, False)
        assert f["input_schema"]["properties"]["a"] == {"type": "integer", "description": "(minimum: 0)"}
        assert "strict" not in g
        assert g["input_schema"] == NESTED
        assert "strict" not in h
        assert not any("strict" in tool for tool in body_of([UserMessage("go")], tools=tools, model="qwen3")["tools"])

    @pytest.mark.parametrize(
        ("choice", "parallel", "wanted"),
        [
            (None, None, None),
            ("auto", None, {"type": "auto"}),
            ("none", False, {"type": "none"}),
            ("required", True, {"type": "any", "disable_parallel_tool_use": False}),
            ("f", False, {"type": "tool", "name": "f", "disable_parallel_tool_use": True}),
            (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        ],
    )
    def test_tool_choice(self, choice: str | None, parallel: bool | None, wanted: Any) -> None:
        """The words become the API's own; whether calls may be parallel stands with them."""
        body = body_of(
            [UserMessage("go")],
            tools=(ToolSpec("f", "", OBJECT),),
            settings=ModelSettings(tool_choice=choice, parallel_tool_calls=parallel),
        )
        assert body.get("tool_choice") == wanted

    def test_a_choice_that_is_no_tool_is_refused(self) -> None:
        """A tool choice that names no tool of the request is the caller's mistake."""
        with pytest.raises(Exception, match="none of the request's tools"):
            body_of([UserMessage("go")], tools=(ToolSpec("f", "", OBJECT),), settings=ModelSettings(tool_choice="g"))

    def test_calls_of_tools_that_are_gone(self) -> None:
        """A history with calls, asked about without tools, names what it called, and allows no call."""
        history = [AssistantMessage([ToolCall("k1", "f.x", {})], "tool_use"), ToolResultMessage("k1", "f.x", "x")]
        body = body_of(history, settings=ModelSettings(tool_choice="auto"))
        assert [tool["name"] for tool in body["tools"]] == [body["messages"][1]["content"][0]["name"]]
        assert body["tool_choice"] == {"type": "none"}
        assert "tools" not in body_of([UserMessage("go")], settings=ModelSettings(tool_choice="auto"))

    def test_extra_body_has_the_last_word(self) -> None:
        """What the user adds to the body replaces what we wrote."""
        settings_ = ModelSettings(max_output_tokens=5, extra_body={"max_tokens": 6, "metadata": {"user_id": "u"}})
        body = body_of([UserMessage("go")], settings=settings_)
        assert (body["max_tokens"], body["metadata"]) == (6, {"user_id": "u"})


class TestCache:
    """A growing conversation keeps hitting the cache."""

    TOOLS = (ToolSpec("f", "", OBJECT), ToolSpec("g", "", OBJECT))

    @staticmethod
    def marks(body: dict[str, Any]) -> list[str]:
        """Where the marks are: paths into the body."""
        found: list[str] = []

        def walk(value: Any, path: str) -> None:
            if isinstance(value, dict):
                if "cache_control" in value:
                    found.append(path)
                for key, item in value.items():
                    walk(item, f"{path}.{key}")
            elif isinstance(value, list):
                for at, item in enumerate(value):
                    walk(item, f"{path}.{at}")

        walk({key: body[key] for key in ("tools", "system", "messages") if key in body}, "")
        return found

    def test_the_marks_and_their_places(self) -> None:
        """At the end of tools and system prompt, and of the last two user messages: four at most."""
        history: list[Message] = []
        before: list[str] = []
        for turn in range(4):
            history += [UserMessage(f"u{turn}")]
            body = body_of(history, cache="5m", tools=self.TOOLS, system_prompt="s")
            marks = self.marks(body)
            assert marks[:2] == [".tools.1", ".system.0"]
            assert len(marks) <= 4
            assert marks[-1] == f".messages.{len(body['messages']) - 1}.content.0"
            # Where the last request had its last mark there is one again: what it had cached is found.
            assert not before or before[-1] in marks
            before = marks
            calls = [ToolCall(f"k{turn}-{at}", "f", {}) for at in range(30)]
            history += [AssistantMessage(calls, "tool_use")]
            history += [ToolResultMessage(call.id, "f", "x") for call in calls]
            body = body_of(history, cache="5m", tools=self.TOOLS, system_prompt="s")
            assert before[-1] in self.marks(body)
            before = self.marks(body)
            history += [AssistantMessage("done")]

    def test_its_time(self) -> None:
        """An hour is asked for where it is wanted, and nothing where there is to be no cache."""
        hour = body_of([UserMessage("go")], cache="1h")["messages"][0]["content"][0]["cache_control"]
        assert hour == {"type": "ephemeral", "ttl": "1h"}
        assert self.marks(body_of([UserMessage("go")], tools=self.TOOLS, system_prompt="s")) == []
        with pytest.raises(ValueError, match="cache"):
            Anthropic(cache="2h")  # type: ignore[arg-type]

    def test_the_beginning_stays_byte_for_byte(self) -> None:
        """What was sent is sent again in the same bytes, but for the marks."""
        writer = MessagesWriter("anthropic", "5m")
        history: list[Message] = []
        sent_before = b""
        for turn in range(5):
            history += [UserMessage(f"u{turn}"), AssistantMessage([ToolCall(f"k{turn}", "f", {"a": turn})], "tool_use")]
            history += [ToolResultMessage(f"k{turn}", "f", "x"), AssistantMessage("a")]
            text = writer.write(a_request([*history, UserMessage("on")], system_prompt="s"))[0]
            mark = b',"cache_control":{"type":"ephemeral"}'
            last = b',{"role":"user","content":[{"type":"text","text":"on"}]}'
            bare = text.replace(mark, b"").split(last)[0]
            assert bare.startswith(sent_before)
            sent_before = bare


IDENTIFIER = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def assert_acceptable(body: dict[str, Any]) -> None:
    """What no type says: alternation, pairing (I1), results first, nothing blank, ids and names in their alphabets."""
    messages = body["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"] * (len(messages) // 2) + ["user"]
    awaited: list[str] = []
    for message in messages:
        results = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
        assert results == awaited
        assert all(block["type"] == "tool_result" for block in message["content"][: len(results)])
        awaited = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        assert message["content"]
        for block in message["content"]:
            assert_block(block)
        assert message["content"][-1]["type"] not in ("thinking", "redacted_thinking")
    assert awaited == []
    assert_no_unsafe_text(body)


def assert_block(block: dict[str, Any]) -> None:
    kind = block["type"]
    if kind == "text":
        assert block["text"].strip()
    elif kind == "tool_use":
        assert IDENTIFIER.fullmatch(block["id"])
        assert IDENTIFIER.fullmatch(block["name"])
        assert isinstance(block["input"], dict)
    elif kind == "tool_result":
        assert block["content"]
        for inner in block["content"]:
            assert_block(inner)
            assert inner["type"] == "text" or not block.get("is_error")
    elif kind == "thinking":
        assert block["signature"]


THOUGHTS = [Thinking("hm", "sig"), Thinking("", redacted="r"), Text("a")]
OWN_THOUGHT = AssistantMessage(THOUGHTS, model="some-model", provider="anthropic")


@settings(max_examples=400)
@example(fields={"messages": [UserMessage("go"), OWN_THOUGHT, UserMessage("on")]}, cache=None)
@given(fields=requests(), cache=st.sampled_from([None, "5m", "1h"]))
def test_any_history_becomes_a_request_that_anthropics_types_accept(fields: dict[str, Any], cache: Any) -> None:
    """Whatever is in a history, from whatever provider: valid by Anthropic's own types, paired, nothing blank."""
    text, _ = MessagesWriter("anthropic", cache).write(a_request(**fields))
    body = json.loads(text.decode("utf-8", "strict"))
    assert_acceptable(body)
    assert len(TestCache.marks(body)) <= 4
    validate_messages_request(body)


@settings(max_examples=100)
@given(fields=requests())
def test_what_was_written_once_is_written_alike_ever_after(fields: dict[str, Any]) -> None:
    """A writer that has written a history before writes it as one that has not."""
    writer = MessagesWriter("anthropic", "5m")
    messages = fields.pop("messages")
    for length in range(1, len(messages) + 1):
        request = a_request([*messages[:length], UserMessage("on")], **fields)
        assert writer.write(request)[0] == MessagesWriter("anthropic", "5m").write(request)[0]


class TestAddress:
    """Where the request goes, and with what."""

    async def request_of(self, **options: Any) -> httpx.Request:
        seen: list[httpx.Request] = []

        def answer(request: httpx.Request) -> httpx.Response:
            seen.append(request)
            return httpx.Response(200, content=b"".join(BYE))

        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            await asked(Anthropic(client=client, **options))
        return seen[0]

    @pytest.mark.parametrize("url", ["http://h.test/api", "http://h.test/api/", "http://h.test/api/v1"])
    async def test_path_and_headers(self, url: str) -> None:
        """POST to v1/messages below the address, key and version in their headers."""
        request = await self.request_of(base_url=url, api_key="k")
        assert (request.method, str(request.url)) == ("POST", "http://h.test/api/v1/messages")
        assert (request.headers["x-api-key"], request.headers["anthropic-version"]) == ("k", "2023-06-01")
        assert "authorization" not in request.headers

    async def test_headers_of_the_users_own(self) -> None:
        """The version can be another, and a gateway's token can take the key's place."""
        headers = {"Anthropic-Version": "2026-10-21", "Authorization": "Bearer t", "anthropic-beta": "x"}
        request = await self.request_of(base_url="http://h.test", api_key="", headers=headers)
        assert request.headers["anthropic-version"] == "2026-10-21"
        assert (request.headers["authorization"], request.headers["anthropic-beta"]) == ("Bearer t", "x")
        assert "x-api-key" not in request.headers

    async def test_address_and_key_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The environment's key goes to Anthropic and to the environment's address, and nowhere else."""
        monkeypatch.setenv("ANTHROPIC_API_KEY", "from-env")
        assert (await self.request_of()).headers["x-api-key"] == "from-env"
        assert "x-api-key" not in (await self.request_of(base_url="http://elsewhere.test")).headers
        monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://gateway.test")
        request = await self.request_of()
        assert str(request.url) == "http://gateway.test/v1/messages"
        assert request.headers["x-api-key"] == "from-env"


async def test_models_are_listed() -> None:
    """`models()` asks below the version's path."""
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(str(request.url))
        return httpx.Response(200, content=b'{"data":[{"type":"model","id":"claude-x"}],"has_more":false}')

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        assert await Anthropic(base_url="http://h.test", client=client).models() == ("claude-x",)
    assert seen == ["http://h.test/v1/models?limit=1000"]


async def test_a_conversation_moves_between_providers() -> None:
    """A history of OpenAI's and Gemini's words is sent without anything that is only theirs."""
    history = (
        UserMessage("go"),
        AssistantMessage(
            [Thinking("hm", signature='{"id":"rs1"}'), Text("ok", "s"), ToolCall("call|1", "f", {}, signature="s")],
            "tool_use",
            provider="openai-responses",
            model="gpt-5",
        ),
        ToolResultMessage("call|1", "f", "x"),
    )
    body = await sent(Anthropic, a_request(history, reasoning="high"), BYE)
    validate_messages_request(body)
    assert [block["type"] for block in body["messages"][1]["content"]] == ["text", "tool_use"]
    assert "thinking" not in body
