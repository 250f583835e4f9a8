"""`Gemini` reads what services really send in any pieces, and writes what Google's own types accept."""

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

from tests.google_types import validate_generate_request
from tests.wire_files import Answer, Recorded, a_request, asked, compact, data, played, recorded, sent, single_bytes
from tests.wire_histories import NESTED, OBJECT, PNG, UNION, assert_no_unsafe_text, requests
from tests.wire_reading import (
    beginnings_of,
    borders_of,
    check_cut_off_at,
    cut_once_everywhere,
    read_in_random_pieces,
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
from trio_agent.providers import Bounds, Gemini
from trio_agent.providers._gemini_request import GenerateContentWriter

FILES = recorded("gemini")
STREAMS = [file for file in FILES if file.meta["stream"]]


def chunk(*parts: dict[str, Any], finish: Any = None, **fields: Any) -> bytes:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return data({"candidates": [candidate], "responseId": "r1", "modelVersion": "m", **fields})


def call(name: str = "f", signature: str | None = None, **fields: Any) -> dict[str, Any]:
    part: dict[str, Any] = {"functionCall": {"name": name, "args": {}, **fields}}
    return part | ({"thoughtSignature": signature} if signature else {})


BYE = [chunk({"text": "bye"}, finish="STOP")]


def expected_calls(file: Recorded) -> list[tuple[Any, str, Any]]:
    return [(call["name"], call["args"]) for call in file.expected["tool_calls"]]


def calls_of(answer: Answer) -> list[tuple[Any, str, Any]]:
    return [(call.name, call.arguments) for call in answer.message.tool_calls]


def signatures_of(answer: Answer) -> list[str]:
    return [block.signature for block in answer.message.content if block.signature]


def check(file: Recorded, answer: Answer) -> None:
    """The answer is what the sidecar says."""
    expected = file.expected
    assert answer.message.text == expected["text"]
    assert answer.thinking == expected.get("thinking", "")
    assert calls_of(answer) == expected_calls(file)
    ids = [call.id for call in answer.message.tool_calls]
    assert ids == [call["id"] or f"call_{at}" for at, call in enumerate(expected["tool_calls"], 1)]
    assert signatures_of(answer) == expected.get("signatures", [])
    assert answer.message.response_id == expected.get("response_id")
    assert answer.message.model == expected.get("model", "some-model")
    if usage := expected["usage"]:
        thought = usage.get("thoughtsTokenCount")
        output = usage.get("candidatesTokenCount", 0) + (thought or 0)
        total = usage["totalTokenCount"]
        assert answer.message.usage == Usage(usage["promptTokenCount"], output, None, None, thought, total)
    check_end(file, answer)


def check_end(file: Recorded, answer: Answer) -> None:
    expected = file.expected
    reason = expected["stop_reason"]
    if expected["error"] is not None:
        assert expected["error"]["message"] in answer.failed().message
        assert answer.failed().status == expected["error"]["code"]
    elif "blockReason" in expected.get("prompt_feedback", {}):
        assert answer.failed().kind == "content_filter"
        assert expected["prompt_feedback"]["blockReason"] in answer.failed().message
    elif reason is None:  # this one never says that it is over
        assert (answer.failed().kind, answer.failed().retryable) == ("network", True)
    elif reason == "RECITATION":
        assert answer.failed().kind == "content_filter"
    else:
        wanted = {"STOP": "tool_use" if expected["tool_calls"] else "stop", "MAX_TOKENS": "length"}[reason]
        assert answer.clean().stop_reason == wanted


@pytest.mark.parametrize("file", FILES, ids=repr)
async def test_a_recorded_body_is_read_right_whole(file: Recorded) -> None:
    """Text, thinking, signatures, calls, usage, id, model and end of each recorded body are what its sidecar says."""
    check(file, await played(Gemini, [file.body], headers={"content-type": file.meta["headers"]["content-type"]}))


@pytest.mark.parametrize("file", FILES, ids=repr)
async def test_a_recorded_body_is_read_right_byte_by_byte(file: Recorded) -> None:
    """Cut at every byte at once, each recorded body gives the same answer."""
    check(file, await played(Gemini, single_bytes(file.body)))


@pytest.mark.parametrize("file", FILES, ids=repr)
@settings(max_examples=15)
@given(source=st.data())
def test_a_recorded_body_is_read_right_in_random_pieces(file: Recorded, source: st.DataObject) -> None:
    """However a recorded body is cut into pieces, it gives the same answer."""
    read_in_random_pieces(Gemini, file, source, check)


@pytest.mark.parametrize("file", STREAMS, ids=repr)
def test_one_cut_anywhere_changes_no_event(file: Recorded) -> None:
    """A single cut, at each byte of each recorded stream in turn, changes none of its events."""
    assert cut_once_everywhere(file) > len(file.body) // 2


@pytest.mark.parametrize("ending", [b"\r\n", b"\r", b"\n"], ids=["crlf", "cr", "lf"])
@pytest.mark.parametrize("file", STREAMS, ids=repr)
async def test_line_ends_make_no_difference(file: Recorded, ending: bytes) -> None:
    """A recorded stream whose lines end in CRLF, CR or LF gives the same answer, whole and byte by byte."""
    body = with_line_ends(file.body, ending)
    check(file, await played(Gemini, [body]))
    check(file, await played(Gemini, single_bytes(body)))


@pytest.mark.parametrize("file", STREAMS, ids=repr)
async def test_a_stream_cut_short_ends_well_only_behind_its_reason(file: Recorded) -> None:
    """Cut off behind any of its events, a recorded stream is an error unless a finish reason had come (F6)."""
    for body in beginnings_of(file):
        answer = await played(Gemini, [body])
        assert file.expected["text"].startswith(answer.message.text)
        if b"finishReason" not in body:
            assert answer.failed().kind == "network"


@pytest.mark.parametrize("file", [file for file in STREAMS if file.expected["error"] is None], ids=repr)
@settings(max_examples=20)
@example(cut=None)
@given(cut=st.integers(0, 1_000_000))
def test_a_stream_cut_anywhere_is_whole_or_an_error(file: Recorded, cut: int | None) -> None:
    """Cut off at any byte, a stream gives a prefix of the answer and an error, or the whole answer."""
    at = len(file.body) if cut is None else cut % (len(file.body) + 1)

    def calls(file: Recorded) -> list[tuple[Any, str, str]]:
        return [
            (f"call_{at}", call["name"], compact(call["args"]).decode())
            for at, call in enumerate(file.expected["tool_calls"], 1)
        ]

    trio.run(check_cut_off_at, Gemini, file, at, calls, clock=trio.testing.MockClock(autojump_threshold=0))


async def test_an_error_written_into_the_stream_is_found_wherever_it_is_cut() -> None:
    """An error as bare JSON behind the events is an error as soon as it is whole, and never a good end before."""
    [file] = [file for file in STREAMS if file.expected["error"] is not None]
    for at in range(borders_of(file.body)[-1], len(file.body) + 1):
        answer = await played(Gemini, [file.body[:at]])
        whole = file.body[:at].rstrip().endswith(b"}\n}")
        assert (answer.error is not None) is whole


class TestReading:
    """What chunks mean, and what they may not do."""

    async def test_each_part_is_one_chunk(self) -> None:
        """One `send` per part: nothing is batched, split or held back."""
        counts = {"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7}
        pieces = [chunk({"text": "a"}), chunk({"text": "b"}, finish="STOP", usageMetadata=counts)]
        assert (await played(Gemini, pieces)).chunks == [
            ResponseInfo("r1", "m"),
            TextDelta(0, "a"),
            UsageReport(Usage(5, 2, total=7)),
            TextDelta(0, "b"),
            Finish("stop"),
        ]

    async def test_parts_of_a_kind_in_a_row_are_a_block(self) -> None:
        """Text and thoughts become blocks in the order in which they came; calls and signatures end them."""
        parts = [
            {"text": "hm", "thought": True},
            {"text": "a"},
            {"text": "b", "thoughtSignature": "c2ln"},
            {"text": "c"},
        ]
        parts += [call("f", "c2lo"), {"text": "d"}, {"text": "e", "thought": True, "thoughtSignature": "c2lp"}]
        answer = await played(Gemini, [*[chunk(part) for part in parts], chunk(finish="STOP")])
        assert answer.clean().content == (
            Thinking("hm"),
            Text("ab", "c2ln"),
            Text("c"),
            ToolCall("call_1", "f", {}, signature="c2lo"),
            Text("d"),
            Thinking("e", "c2lp"),
        )

    async def test_a_signature_alone_belongs_to_what_was_said(self) -> None:
        """An empty part with a signature signs the text before it; where there is none it is kept all the same."""
        alone = {"text": "", "thoughtSignature": "c2ln"}
        answer = await played(Gemini, [chunk({"text": "a"}), chunk(alone, finish="STOP")])
        assert answer.clean().content == (Text("a", "c2ln"),)
        answer = await played(Gemini, [chunk(alone), chunk(call(), finish="STOP")])
        assert answer.clean().content == (Thinking("", "c2ln"), ToolCall("call_1", "f", {}))
        assert BlockEnd(0, "c2ln") in answer.chunks

    async def test_parts_that_the_kernel_has_no_word_for(self) -> None:
        """Code that the service ran, files and whatever comes next are passed over."""
        odd = [
            {"executableCode": {"code": "1"}},
            {"codeExecutionResult": {"output": "1"}},
            {"inlineData": {"data": ""}},
        ]
        answer = await played(Gemini, [chunk({"text": "a"}, *odd, {"newPart": {}}, {"text": "b"}, finish="STOP")])
        assert answer.clean().content == (Text("ab"),)

    @pytest.mark.parametrize(
        ("pieces", "wanted"),
        [
            ([("$.a", {"stringValue": "x", "willContinue": True}), ("$.a", {"stringValue": "y"})], {"a": "xy"}),
            ([("$.a.b", {"numberValue": 1.5}), ("$.a.c", {"boolValue": False})], {"a": {"b": 1.5, "c": False}}),
            ([("$.l[0]", {"numberValue": 1}), ("$.l[1].x", {"nullValue": "NULL_VALUE"})], {"l": [1, {"x": None}]}),
            ([("$['a.b'][\"c d\"]", {"stringValue": "x"})], {"a.b": {"c d": "x"}}),
            ([("a", {"stringValue": ""})], {"a": ""}),
            ([], {}),
        ],
        ids=repr,
    )
    async def test_arguments_in_pieces(self, pieces: list[tuple[str, dict[str, Any]]], wanted: Any) -> None:
        """Values and pieces of texts are put where their paths say."""
        parts = [
            {"functionCall": {"partialArgs": [{"jsonPath": path, **value}], "willContinue": True}}
            for path, value in pieces
        ]
        start = {"functionCall": {"name": "f", "willContinue": True}}
        answer = await played(
            Gemini, [chunk(part) for part in (start, *parts, {"functionCall": {}})] + [chunk(finish="STOP")]
        )
        assert calls_of(answer) == [("f", wanted)]
        assert answer.clean().stop_reason == "tool_use"

    @pytest.mark.parametrize(
        "paths",
        [["$.l[5]"], ["$"], [""], [None], ["$.a[", "$.a"], ["$.a", "$.a.b"], ["$.a.b", "$.a[0]"], ["$" + ".a" * 200]],
    )
    async def test_a_path_that_leads_nowhere_is_an_error(self, paths: list[Any]) -> None:
        """Paths that are none, or do not fit what is there, or make a list jump, are errors; memory stays small."""
        parts = [
            {"functionCall": {"partialArgs": [{"jsonPath": path, "stringValue": "x"}], "willContinue": True}}
            for path in paths
        ]
        start = {"functionCall": {"name": "f", "willContinue": True}}
        answer = await played(Gemini, [chunk(start, *parts), chunk(finish="STOP")])
        assert answer.failed().kind == "protocol"

    async def test_a_call_that_is_cut_is_told(self) -> None:
        """A call whose arguments were still coming when the limit was reached is part of a cut answer."""
        start = {"functionCall": {"name": "f", "willContinue": True}}
        piece = {"functionCall": {"partialArgs": [{"jsonPath": "$.a", "stringValue": "x"}], "willContinue": True}}
        answer = await played(Gemini, [chunk(start), chunk(piece), chunk(finish="MAX_TOKENS")])
        assert (answer.clean().stop_reason, calls_of(answer)) == ("length", [("f", {"a": "x"})])

    @pytest.mark.parametrize("kind", ["text", "thought"])
    async def test_a_character_cut_between_two_parts_is_joined(self, kind: str) -> None:
        """The two halves of a surrogate pair, escaped in two parts, become the one character that they are."""
        flag = b"true" if kind == "thought" else b"false"
        halves = [
            b'data: {"candidates":[{"content":{"parts":[{"text":"%s","thought":%s}]}}]}\n\n' % (half, flag)
            for half in (b"a\\ud83d", b"\\ude00b")
        ]
        answer = await played(Gemini, [*halves, chunk(finish="STOP")])
        assert answer.message.text + answer.thinking == "a\U0001f600b"

    async def test_a_mapped_name_comes_back_as_the_tools_own(self) -> None:
        """A call by a mapped name is a call of the tool whose name was mapped."""
        tool = ToolSpec("files.read", "", OBJECT)
        wire_name = body_of([UserMessage("go")], tools=(tool,))["tools"][0]["functionDeclarations"][0]["name"]
        assert wire_name != "files.read"
        request = a_request([UserMessage("go")], tools=(tool,))
        answer = await played(Gemini, [chunk(call(wire_name), finish="STOP")], request)
        assert answer.clean().tool_calls[0].name == "files.read"

    async def test_an_id_of_the_services_own_is_kept(self) -> None:
        """A call that comes with an id has it; one that comes without gets one of the kernel's."""
        answer = await played(Gemini, [chunk(call(id="fc-1"), call(), finish="STOP")])
        assert [made.id for made in answer.clean().tool_calls] == ["fc-1", "call_2"]

    @pytest.mark.parametrize(
        ("reason", "kind", "again"),
        [
            ("SAFETY", "content_filter", False),
            ("PROHIBITED_CONTENT", "content_filter", False),
            ("SPII", "content_filter", False),
            ("MALFORMED_FUNCTION_CALL", "protocol", True),
            ("UNEXPECTED_TOOL_CALL", "protocol", True),
            ("OTHER", "server", True),
            ("MALFORMED_RESPONSE", "server", True),
            ("MOONLIGHT", "protocol", False),
            (7, "protocol", False),
            ({"x": 1}, "protocol", False),
        ],
        ids=repr,
    )
    async def test_an_end_that_is_no_answer_is_an_error(self, reason: Any, kind: str, again: bool) -> None:
        """Filtered, malformed and unknown ends are errors of their kind, with the text before them kept."""
        answer = await played(Gemini, [chunk({"text": "a"}), chunk(finish=reason)])
        assert (answer.failed().kind, answer.failed().retryable, answer.message.text) == (kind, again, "a")

    async def test_a_stop_by_another_name(self) -> None:
        """A server that copies the API and ends an answer with calls as FUNCTION_CALL is understood."""
        answer = await played(Gemini, [chunk({"text": "a"}), chunk(call(id="k1"), finish="FUNCTION_CALL")])
        assert (answer.clean().stop_reason, answer.calls) == ("tool_use", [("k1", "f", "{}")])

    @pytest.mark.parametrize("later", ["STOP", "OTHER", None])
    async def test_a_cut_answer_stays_cut(self, later: str | None) -> None:
        """A limit that was reached is not taken back by what a later chunk says."""
        answer = await played(Gemini, [chunk({"text": "a"}, finish="MAX_TOKENS"), chunk(finish=later)])
        assert answer.clean().stop_reason == "length"

    @pytest.mark.parametrize(
        ("error", "kind", "again"),
        [
            ({"code": 503, "message": "busy", "status": "UNAVAILABLE"}, "overloaded", True),
            ({"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED"}, "rate_limit", True),
            ({"code": 500, "message": "oops", "status": "INTERNAL"}, "server", True),
            ({"code": 400, "message": "no", "status": "INVALID_ARGUMENT"}, "invalid_request", False),
            (
                {
                    "code": 400,
                    "message": "The input token count (9) exceeds the maximum number of tokens allowed (8).",
                    "status": "INVALID_ARGUMENT",
                },
                "context_overflow",
                False,
            ),
        ],
        ids=lambda value: value["status"] if isinstance(value, dict) else "",
    )
    @pytest.mark.parametrize("form", ["event", "named", "stray", "pretty", "whole", "list"])
    async def test_errors_in_a_good_answer(self, error: dict[str, Any], kind: str, again: bool, form: str) -> None:
        """An error in an answer with status 200 has the kind of the HTTP error that it stands for, in every form."""
        text = {"text": "a"}
        pretty = json.dumps({"error": error}, indent=2).encode()
        pieces = {
            "event": [chunk(text, finish="STOP"), data({"error": error})],
            "named": [chunk(text), b"event: error\n" + data(error)],
            "stray": [chunk(text, finish="STOP"), compact({"error": error})],
            "pretty": [chunk(text, finish="STOP"), pretty + b"\n\n"],
            "whole": [pretty],
            "list": [b"[" + chunk(text)[6:] + b"," + pretty + b"]"],
        }[form]
        failure = (await played(Gemini, pieces)).failed()
        assert (failure.kind, failure.retryable) == (kind, again)
        assert error["message"] in failure.message

    async def test_the_time_to_wait_is_in_the_error(self) -> None:
        """What a service says in the stream about when to come back is kept."""
        info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17.5s"}
        error = {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED", "details": [info]}
        assert (await played(Gemini, [data({"error": error})])).failed().retry_after == 17.5

    async def test_json_that_is_no_error_between_events_is_passed_over(self) -> None:
        """Other lines between the events mean nothing."""
        for junk in (b"{\n", b"[]\n\n", b'{"a": 1}\n\n', b'  "x"\n\n'):
            answer = await played(Gemini, [chunk({"text": "a"}), junk, *BYE])
            assert answer.clean().text == "abye"

    async def test_chunks_in_a_list(self) -> None:
        """A service that streams a list of chunks instead of events is understood."""
        body = b"[" + chunk({"text": "a"})[6:] + b",\n" + chunk({"text": "b"}, finish="STOP")[6:] + b"]"
        answer = await played(Gemini, single_bytes(body), headers={"content-type": "application/json"})
        assert answer.clean().content == (Text("ab"),)

    @pytest.mark.parametrize(
        "odd",
        [
            {},
            {"candidates": None},
            {"candidates": []},
            {"candidates": [None, 3]},
            {"candidates": [{}]},
            {"candidates": [{"content": None}]},
            {"candidates": [{"content": {"parts": None}}]},
            {"candidates": [{"content": {"parts": [None, {}, {"text": None}, {"text": ""}, {"functionCall": None}]}}]},
            {"candidates": [{"index": 1, "content": {"parts": [{"text": "other"}]}}]},
            {"usageMetadata": None},
            {"usageMetadata": {"promptTokenCount": "5"}},
            {"promptFeedback": {"safetyRatings": []}},
            {"responseId": None, "modelVersion": 3},
        ],
        ids=repr,
    )
    async def test_empty_and_null_everything_is_passed_over(self, odd: dict[str, Any]) -> None:
        """Chunks whose parts are missing, null or of another kind change nothing in the answer around them."""
        answer = await played(Gemini, [chunk({"text": "a"}), data(odd), chunk({"text": "b"}, finish="STOP")])
        assert answer.clean().content == (Text("ab"),)

    @pytest.mark.parametrize("body", [b"", b": ping\n\n", b"data: [DONE]\n\n", b"[]", data({})])
    async def test_no_answer_at_all(self, body: bytes) -> None:
        """A body without any chunk of an answer is an error that may be tried again."""
        error = (await played(Gemini, [body])).failed()
        assert (error.kind, error.retryable) == ("network", True)

    async def test_a_call_without_a_name_is_an_error(self) -> None:
        """A call that names no tool cannot be run."""
        answer = await played(Gemini, [chunk({"functionCall": {"args": {"a": 1}}}, finish="STOP")])
        assert answer.failed().kind == "protocol"

    async def test_bounds(self) -> None:
        """More blocks, calls, or arguments than allowed fail, in size and in depth, in pieces or whole."""
        bounds = Bounds(blocks=4, calls=2, arguments=100, nesting=10)

        async def failure(*parts: dict[str, Any]) -> str:
            error = (await played(Gemini, [chunk(*parts)], bounds=bounds)).failed()
            assert (error.kind, error.retryable) == ("protocol", False)
            return error.message

        deep: Any = 1
        for _ in range(30):
            deep = [deep]
        start = {"functionCall": {"name": "f", "willContinue": True}}
        piece = {"jsonPath": "$.a", "stringValue": "x" * 30}
        more = {"functionCall": {"partialArgs": [piece], "willContinue": True}}
        assert "blocks" in await failure(*[{"text": "a", "thoughtSignature": "c2ln"}] * 9)
        assert "tool calls" in await failure(*[call()] * 9)
        assert "exceed" in await failure(call(args={"a": "x" * 200}))
        assert "nested" in await failure(call(args={"a": deep}))
        assert "exceed" in await failure(start, *[more] * 9)


def body_of(messages: Iterable[Message] = (), provider: str = "gemini", **fields: Any) -> dict[str, Any]:
    """The body that is written for these messages, checked against Google's types."""
    text, _ = GenerateContentWriter(provider).write(a_request(messages, **fields))
    body: dict[str, Any] = json.loads(text)
    validate_generate_request(body)
    return body


def contents_of(*messages: Message, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body_of(messages, **options)["contents"]
    return found


GOOD_BODY: dict[str, Any] = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}


@pytest.mark.parametrize(
    "change",
    [
        {"unknown": 1},
        {"contents": [{"role": "user", "parts": [{"text": "hi", "unknown": 1}]}]},
        {"contents": [{"role": "user", "parts": [{"text": 3}]}]},
        {"contents": [{"role": "user", "parts": [{"thoughtSignature": "x"}]}]},
        {"contents": [{"role": "user", "parts": [{"function_call": {"name": "f"}}]}]},
        {"contents": [{"role": "user", "parts": [{"functionCall": {"name": "f", "args": "{}"}}]}]},
        {"generationConfig": {"temperature": "hot"}},
        {"generationConfig": {"thinkingConfig": {"thinkingBudget": "much"}}},
        {"toolConfig": {"mode": "AUTO"}},
        {"tools": [{"functionDeclarations": {"name": "f"}}]},
    ],
    ids=repr,
)
def test_the_judge_refuses_what_is_wrong(change: dict[str, Any]) -> None:
    """The types that judge our requests refuse unknown keys, other spellings, and values of another kind."""
    validate_generate_request(GOOD_BODY)
    with pytest.raises((ValidationError, AssertionError, KeyError)):
        validate_generate_request({**GOOD_BODY, **change})


class TestMessages:
    """What people, models and tools said arrives as they said it, in the order and the form that the API wants."""

    def test_a_plain_conversation(self) -> None:
        """System instruction, contents of users and model, calls and results."""
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
        assert body == {
            "systemInstruction": {"parts": [{"text": "be brief"}]},
            "contents": [
                {"role": "user", "parts": [{"text": "hi"}]},
                {"role": "model", "parts": [{"text": "let me see"}, {"functionCall": {"name": "f", "args": {"a": 1}}}]},
                {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"output": "2"}}}]},
                {"role": "model", "parts": [{"text": "two"}]},
                {"role": "user", "parts": [{"text": "thanks"}]},
            ],
        }

    def test_a_user_has_the_first_and_the_last_word(self) -> None:
        """A history that begins or ends with the model gets a user's words around it; rows are one content."""
        found = contents_of(AssistantMessage("a"), AssistantMessage("b"))
        assert [content["role"] for content in found] == ["user", "model", "user"]
        assert [part["text"] for part in found[1]["parts"]] == ["a", "b"]
        [found_users] = contents_of(UserMessage("a"), AssistantMessage(()), UserMessage("b"))
        assert [part["text"] for part in found_users["parts"]] == ["a", "b"]

    def test_images_of_results(self) -> None:
        """Newer models get images inside the result; older ones behind all results, and before what follows."""
        history = [
            UserMessage([Text("look"), Image(PNG, "image/png"), Image(PNG, "image/tiff")]),
            AssistantMessage([ToolCall("k1", "f", {}), ToolCall("k2", "g", {})], "tool_use"),
            ToolResultMessage("k1", "f", [Image(PNG, "image/png")]),
            ToolResultMessage("k2", "g", [Text("two"), Image(PNG, "image/tiff")], True),
            UserMessage("and?"),
        ]
        look, _, results = contents_of(*history, model="gemini-2.5-pro")
        assert [list(part) for part in look["parts"]] == [["text"], ["inlineData"], ["text"]]
        assert [next(iter(part)) for part in results["parts"]] == (
            ["functionResponse", "functionResponse", "text", "inlineData", "text"]
        )
        assert "two" in results["parts"][1]["functionResponse"]["response"]["error"]
        assert "image/tiff" in results["parts"][1]["functionResponse"]["response"]["error"]
        _, _, results = contents_of(*history, model="gemini-3-pro")
        assert [next(iter(part)) for part in results["parts"]] == ["functionResponse", "functionResponse", "text"]
        assert results["parts"][0]["functionResponse"]["parts"][0]["inlineData"]["mimeType"] == "image/png"

    def test_nothing_blank_is_sent(self) -> None:
        """Blank prompts, blocks, results and answers are left out, or stand as words where something must stand."""
        body = body_of(
            [
                UserMessage([Text(""), Text("hi"), Text(" \n")]),
                AssistantMessage([Text(" "), Thinking("hm")]),
                UserMessage(" "),
                AssistantMessage([Text("\n"), ToolCall("k1", "f", {})], "tool_use"),
                ToolResultMessage("k1", "f", " "),
            ],
            system_prompt=" ",
        )
        assert "systemInstruction" not in body
        first, second, third = body["contents"]
        assert [part["text"] for part in first["parts"]] == ["hi", "(no text)"]
        assert [list(part) for part in second["parts"]] == [["functionCall"]]
        assert third["parts"][0]["functionResponse"]["response"] == {"output": "(no output)"}

    @pytest.mark.parametrize("raw", ['{ "a" :1.0}', '{"a":1e2,"a":2}', '{\n\n"x": [ ]\n}'])
    def test_arguments_go_back_as_they_came(self, raw: str) -> None:
        """Valid arguments stand in the request byte for byte."""
        history = [AssistantMessage([ToolCall("k1", "f", raw=raw)], "tool_use"), ToolResultMessage("k1", "f", "x")]
        text, _ = GenerateContentWriter("gemini").write(a_request(history))
        assert raw.encode() in text

    @pytest.mark.parametrize("raw", ["[]", "{", '{"a":"\\ud800\\u0000"}', '{"a":"\ud800"}'])
    def test_arguments_that_cannot_be_sent_are_shown(self, raw: str) -> None:
        """What is no object, or holds what breaks servers, becomes an object that the API takes."""
        history = [AssistantMessage([ToolCall("k1", "f", raw=raw)], "tool_use"), ToolResultMessage("k1", "f", "x")]
        assert_no_unsafe_text(found := contents_of(*history))
        assert isinstance(found[1]["parts"][0]["functionCall"]["args"], dict)

    @pytest.mark.parametrize("name", ["1tool", "-x", "files.read", "ü", "a" * 80, "read"])
    def test_names_begin_with_a_letter(self, name: str) -> None:
        """Every name becomes one that the API takes, the same for tool, call and result."""
        history = [AssistantMessage([ToolCall("k1", name, {})], "tool_use"), ToolResultMessage("k1", name, "x")]
        body = body_of([UserMessage("go"), *history], tools=(ToolSpec(name, "", OBJECT),))
        found = {
            body["tools"][0]["functionDeclarations"][0]["name"],
            body["contents"][1]["parts"][0]["functionCall"]["name"],
            body["contents"][2]["parts"][0]["functionResponse"]["name"],
        }
        assert len(found) == 1
        assert NAME.fullmatch(found.pop())

    def test_a_request_without_any_message_is_refused(self) -> None:
        """Nothing to send is the caller's mistake, in plain words."""
        with pytest.raises(Exception, match="no message"):
            body_of([CustomMessage("note", None)])


class TestSignatures:
    """Signatures go back in the very part in which they came, to their own model, or not at all."""

    def parts(self, *blocks: Any, asked_of: str = "gemini-2.5-pro", **fields: Any) -> list[dict[str, Any]]:
        message = AssistantMessage(blocks, "stop", **{"model": "gemini-2.5-pro", "provider": "gemini", **fields})
        results = [ToolResultMessage(made.id, made.name, "x") for made in message.tool_calls]
        found: list[dict[str, Any]] = contents_of(UserMessage("go"), message, *results, model=asked_of)[1]["parts"]
        return found

    def test_each_in_its_part(self) -> None:
        """On thoughts, texts, calls, and alone."""
        blocks = [
            Thinking("hm", "c2ln"),
            Thinking("", "c2lo"),
            Text("a", "c2lp"),
            ToolCall("k1", "f", {}, signature="c2lq"),
        ]
        assert self.parts(*blocks) == [
            {"text": "hm", "thought": True, "thoughtSignature": "c2ln"},
            {"text": "", "thoughtSignature": "c2lo"},
            {"text": "a", "thoughtSignature": "c2lp"},
            {"functionCall": {"name": "f", "args": {}, "id": "k1"}, "thoughtSignature": "c2lq"},
        ]

    def test_thoughts_that_nothing_proves_stay_here(self) -> None:
        """Unsigned thoughts, and signatures that are none of this service's, are not sent."""
        assert self.parts(Thinking("hm"), Thinking("x", "{}"), Thinking("x", "abc"), Text("a", "ü")) == [{"text": "a"}]

    @pytest.mark.parametrize(
        "fields", [{"model": "gemini-3-pro"}, {"model": None}, {"provider": "anthropic"}, {"provider": None}]
    )
    def test_another_models_stay_here(self, fields: dict[str, Any]) -> None:
        """A signature of another model or provider is not sent."""
        found = self.parts(
            Thinking("hm", "c2ln"), Text("a", "c2lp"), ToolCall("k1", "f", {}, signature="c2lq"), **fields
        )
        assert [list(part) for part in found] == [["text"], ["functionCall"]]

    def test_calls_of_another_model_where_they_must_be_signed(self) -> None:
        """Only the first call of another model's answer says that it is unsigned; in one's own nothing is invented."""
        calls = [ToolCall("k1", "f", {}), ToolCall("k2", "f", {})]
        foreign = self.parts(*calls, asked_of="gemini-3-pro", provider="anthropic", model="claude-x")
        assert ["thoughtSignature" in part for part in foreign] == [True, False]
        own = self.parts(*calls, asked_of="gemini-3-pro", model="gemini-3-pro")
        assert ["thoughtSignature" in part for part in own] == [False, False]
        old = self.parts(*calls, asked_of="gemini-2.5-pro", provider="anthropic", model="claude-x")
        assert ["thoughtSignature" in part for part in old] == [False, False]

    def test_ids_go_back_where_they_came_from(self) -> None:
        """Calls and results carry the ids that the service gave, and none that it did not."""
        for provider, call_id, goes in (
            ("gemini", "fc-1", True),
            ("gemini", "call_1", False),
            ("anthropic", "t1", False),
        ):
            answer = AssistantMessage([ToolCall(call_id, "f", {})], "tool_use", provider=provider, model="m")
            _, called, result = contents_of(UserMessage("go"), answer, ToolResultMessage(call_id, "f", "x"))
            assert called["parts"][0]["functionCall"].get("id") == (call_id if goes else None)
            assert result["parts"][0]["functionResponse"].get("id") == (call_id if goes else None)

    def test_a_result_written_for_one_history_is_written_anew_for_another(self) -> None:
        """The same result behind a call of another provider loses its id, and finds it again."""
        writer = GenerateContentWriter("gemini")
        result = ToolResultMessage("fc-1", "f", "x")
        for provider, goes in (("gemini", True), ("anthropic", False), ("gemini", True)):
            answer = AssistantMessage([ToolCall("fc-1", "f", {})], "tool_use", provider=provider, model="m")
            body = json.loads(writer.write(a_request([UserMessage("go"), answer, result]))[0])
            assert ("id" in body["contents"][2]["parts"][0]["functionResponse"]) is goes


class TestDial:
    """How hard to think, in the words of each model, and the other options."""

    @pytest.mark.parametrize(
        ("model", "level", "wanted"),
        [
            ("gemini-2.5-flash", "off", {"thinkingBudget": 0}),
            ("gemini-2.5-pro", "off", None),
            ("gemini-2.5-pro", "high", {"thinkingBudget": 16384, "includeThoughts": True}),
            ("gemini-3-pro-preview", "medium", {"thinkingLevel": "HIGH", "includeThoughts": True}),
            ("gemini-3-pro-preview", "minimal", {"thinkingLevel": "LOW", "includeThoughts": True}),
            ("gemini-3.1-pro-preview", "medium", {"thinkingLevel": "MEDIUM", "includeThoughts": True}),
            ("models/gemini-3-flash", "minimal", {"thinkingLevel": "MINIMAL", "includeThoughts": True}),
            ("gemini-flash-latest", "max", {"thinkingLevel": "HIGH", "includeThoughts": True}),
            ("gemini-3-pro", "off", None),
            ("gemini-2.0-flash", "high", None),
            ("gemma-3-27b-it", "high", None),
        ],
    )
    def test_each_models_words(self, model: str, level: Any, wanted: Any) -> None:
        """Older models get a budget, newer ones a level; those that do not think get neither."""
        body = body_of([UserMessage("go")], model=model, reasoning=level)
        assert body.get("generationConfig", {}).get("thinkingConfig") == wanted

    def test_every_option_has_its_place(self) -> None:
        """Options in their fields, extras last, and nothing that is not set."""
        extra = {"toolConfig": {"functionCallingConfig": {"mode": "NONE"}}}
        set_all = ModelSettings(temperature=0.0, top_p=0.5, max_output_tokens=9, stop=("x",), seed=7, extra_body=extra)
        body = body_of([UserMessage("go")], settings=set_all)
        assert body["generationConfig"] == (
            {"temperature": 0.0, "topP": 0.5, "maxOutputTokens": 9, "stopSequences": ["x"], "seed": 7}
        )
        assert body["toolConfig"] == extra["toolConfig"]
        assert set(body_of([UserMessage("go")])) == {"contents"}

    @pytest.mark.parametrize(
        ("choice", "wanted"),
        [
            (None, None),
            ("auto", {"mode": "AUTO"}),
            ("none", {"mode": "NONE"}),
            ("required", {"mode": "ANY"}),
            ("f", {"mode": "ANY", "allowedFunctionNames": ["f"]}),
        ],
    )
    def test_tool_choice(self, choice: str | None, wanted: Any) -> None:
        """The words become modes, and a tool's name the only one allowed. Without tools nothing is said of them."""
        settings_ = ModelSettings(tool_choice=choice, parallel_tool_calls=False)
        body = body_of([UserMessage("go")], tools=(ToolSpec("f", "", OBJECT),), settings=settings_)
        assert body.get("toolConfig", {}).get("functionCallingConfig") == wanted
        assert "toolConfig" not in body_of([UserMessage("go")], settings=settings_)

    def test_a_choice_that_is_no_tool_is_refused(self) -> None:
        """A tool choice that names no tool of the request is the caller's mistake."""
        with pytest.raises(Exception, match="none of the request's tools"):
            body_of([UserMessage("go")], tools=(ToolSpec("f", "", OBJECT),), settings=ModelSettings(tool_choice="g"))

    def test_a_tool_as_it_is_sent(self) -> None:
        """Name, description, one object's schema, in the part of JSON Schema that the API knows."""
        odd = {
            "type": "object",
            "properties": {"a": {"const": 1}, "b": {"type": "string", "pattern": "x", "description": "b"}},
        }
        tools = (
            ToolSpec("f", "does f", OBJECT, True),
            ToolSpec("g", " ", UNION),
            ToolSpec("h", "", odd),
            ToolSpec("i", "", NESTED),
        )
        [listed] = body_of([UserMessage("go")], tools=tools)["tools"]
        f, g, h, i = listed["functionDeclarations"]
        assert f == {"name": "f", "description": "does f", "parametersJsonSchema": OBJECT}
        assert set(g["parametersJsonSchema"]["properties"]) == {"a", "b"}
        assert h["parametersJsonSchema"]["properties"] == {
            "a": {"type": "integer", "enum": [1]},
            "b": {"type": "string", "description": 'b (pattern: "x")'},
        }
        assert i["parametersJsonSchema"]["$defs"] == NESTED["$defs"]
        assert i["parametersJsonSchema"]["properties"]["c"] == {"type": "string", "enum": ["x", "y"]}


NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")


def assert_acceptable(body: dict[str, Any]) -> None:
    """What no type says: alternation, results directly behind their calls and first, nothing blank, names."""
    contents = body["contents"]
    assert [content["role"] for content in contents] == ["user", "model"] * (len(contents) // 2) + ["user"]
    awaited: list[str] = []
    for content in contents:
        results = [part["functionResponse"]["name"] for part in content["parts"] if "functionResponse" in part]
        assert len(results) == len(awaited)
        assert all("functionResponse" in part for part in content["parts"][: len(results)])
        awaited = [part["functionCall"]["name"] for part in content["parts"] if "functionCall" in part]
        assert content["parts"]
        for part in content["parts"]:
            assert part.get("text", "x").strip() or part["thoughtSignature"]
            if "functionCall" in part:
                assert isinstance(part["functionCall"]["args"], dict)
            assert NAME.fullmatch(part.get("functionCall", part.get("functionResponse", {"name": "x"}))["name"])
    assert awaited == []
    assert_no_unsafe_text(body)


@settings(max_examples=400)
@given(fields=requests())
def test_any_history_becomes_a_request_that_googles_types_accept(fields: dict[str, Any]) -> None:
    """Whatever is in a history, from whatever provider: valid by Google's own types, paired, nothing blank."""
    text, _ = GenerateContentWriter("gemini").write(a_request(**fields))
    body = json.loads(text.decode("utf-8", "strict"))
    assert_acceptable(body)
    validate_generate_request(body)


@settings(max_examples=100)
@given(fields=requests())
def test_what_was_written_once_is_written_alike_ever_after(fields: dict[str, Any]) -> None:
    """A writer that has written a history before writes it as one that has not."""
    writer = GenerateContentWriter("gemini")
    messages = fields.pop("messages")
    for length in range(1, len(messages) + 1):
        request = a_request([*messages[:length], UserMessage("on")], **fields)
        assert writer.write(request)[0] == GenerateContentWriter("gemini").write(request)[0]


@pytest.mark.parametrize(
    ("base_url", "model", "wanted"),
    [
        ("http://h.test", "gemini-x", "http://h.test/v1beta/models/gemini-x:streamGenerateContent?alt=sse"),
        ("http://h.test/v1/", "gemini-x", "http://h.test/v1/models/gemini-x:streamGenerateContent?alt=sse"),
        (
            "http://h.test/v1/projects/p/locations/l/publishers/google",
            "models/gemini-x",
            "http://h.test/v1/projects/p/locations/l/publishers/google/models/gemini-x:streamGenerateContent?alt=sse",
        ),
        (
            "http://h.test",
            "tunedModels/a b?#",
            "http://h.test/v1beta/tunedModels/a%20b%3F%23:streamGenerateContent?alt=sse",
        ),
    ],
)
async def test_the_request_goes_to_its_path(base_url: str, model: str, wanted: str) -> None:
    """POST to the model's path below the address and its version, as events, with the key in its header."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, content=b"".join(BYE))

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        await asked(Gemini(base_url=base_url, client=client, api_key="k"), a_request(model=model))
    [request] = seen
    assert (request.method, str(request.url)) == ("POST", wanted)
    assert request.headers["x-goog-api-key"] == "k"
    assert "key=" not in str(request.url)


async def test_the_key_goes_where_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's key goes to Google's own address and to the environment's, and nowhere else."""
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("x-goog-api-key"))
        return httpx.Response(200, content=b"".join(BYE))

    monkeypatch.setenv("GOOGLE_API_KEY", "from-env")
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        await asked(Gemini(client=client))
        await asked(Gemini(client=client, base_url="http://elsewhere.test"))
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", "http://gateway.test")
        await asked(Gemini(client=client))
    assert seen == ["from-env", None, "from-env"]


async def test_a_conversation_moves_between_providers() -> None:
    """A history of Anthropic's words is sent without anything that is only its own."""
    history = (
        UserMessage("go"),
        AssistantMessage(
            [
                Thinking("hm", "c2ln"),
                Thinking("", redacted="x"),
                Text("ok", "s"),
                ToolCall("toolu_01", "f", signature="s"),
            ],
            "tool_use",
            provider="anthropic",
            model="claude-x",
        ),
        ToolResultMessage("toolu_01", "f", "x"),
    )
    body = await sent(Gemini, a_request(history), BYE)
    validate_generate_request(body)
    assert body["contents"][1]["parts"] == [{"text": "ok"}, {"functionCall": {"name": "f", "args": {}}}]
