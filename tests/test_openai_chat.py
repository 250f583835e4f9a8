"""`OpenAIChat` reads what services really send, whole and in any pieces, and says what ended badly."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

import trio_agent.providers
from tests.wire_files import (
    DONE,
    Answer,
    Recorded,
    asked,
    call_delta,
    cut,
    data,
    delta,
    played,
    recorded,
    single_bytes,
)
from trio_agent._chunks import Finish, ResponseInfo, TextDelta, ThinkingDelta, UsageReport
from trio_agent._messages import Text, Thinking, Usage
from trio_agent.providers import Bounds, OpenAIChat
from trio_agent.providers._sse import EventDecoder

FILES = recorded("openai_chat")
STREAMS = [file for file in FILES if file.meta["stream"]]
STOP_REASONS = {"stop": "stop", "length": "length", "tool_calls": "tool_use"}


def expected_calls(file: Recorded) -> list[tuple[str, str, str]]:
    return [(call["id"], call["name"], call["arguments"] or "{}") for call in file.expected["tool_calls"]]


def expected_usage(file: Recorded) -> Usage | None:
    given = file.expected["usage"]
    if given is None:
        return None
    details = given.get("prompt_tokens_details") or {}
    cached = next((place["cached_tokens"] for place in (details, given) if "cached_tokens" in place), None)
    reasoning = (given.get("completion_tokens_details") or {}).get("reasoning_tokens")
    written = details.get("cache_write_tokens")
    output = given["total_tokens"] - given["prompt_tokens"]
    return Usage(
        input=given["prompt_tokens"] - (cached or 0) - (written or 0),
        output=output,
        cache_read=cached,
        cache_write=written,
        reasoning=reasoning,
        total=given["total_tokens"],
    )


def check(file: Recorded, answer: Answer) -> None:
    """The answer is what the sidecar says."""
    expected = file.expected
    assert answer.message.text == expected["text"]
    assert answer.thinking == expected.get("thinking", "")
    assert answer.calls == expected_calls(file)
    assert answer.signatures == expected.get("signatures", [])
    assert answer.message.response_id == expected.get("response_id")
    assert answer.message.model == expected["model"]
    if (usage := expected_usage(file)) is not None:
        assert answer.message.usage == usage
    if expected["error"] is not None:
        assert expected["error"]["message"] in answer.failed().message
        assert answer.failed().kind == "invalid_request"
    elif "refusal" in expected:
        assert answer.failed().kind == "content_filter"
        assert expected["refusal"] in answer.failed().message
    else:
        without_reason = "tool_use" if expected["tool_calls"] else "stop"
        wanted = STOP_REASONS[expected["stop_reason"]] if expected["stop_reason"] else without_reason
        assert answer.clean().stop_reason == wanted


@pytest.mark.parametrize("file", FILES, ids=repr)
async def test_a_recorded_body_is_read_right_whole(file: Recorded) -> None:
    """Text, thinking, signatures, calls, usage, id, model and end of each recorded body are what its sidecar says."""
    check(file, await played(OpenAIChat, [file.body], headers={"content-type": file.meta["headers"]["content-type"]}))


@pytest.mark.parametrize("file", FILES, ids=repr)
async def test_a_recorded_body_is_read_right_byte_by_byte(file: Recorded) -> None:
    """Cut at every byte at once, each recorded body gives the same answer."""
    check(file, await played(OpenAIChat, single_bytes(file.body)))


@pytest.mark.parametrize("file", FILES, ids=repr)
@settings(max_examples=15)
@given(source=st.data())
def test_a_recorded_body_is_read_right_in_random_pieces(file: Recorded, source: st.DataObject) -> None:
    """However a recorded body is cut into pieces, it gives the same answer."""
    places = source.draw(st.lists(st.integers(1, len(file.body) - 1), max_size=12))

    async def main() -> None:
        check(file, await played(OpenAIChat, cut(file.body, places)))

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("file", STREAMS, ids=repr)
def test_one_cut_anywhere_changes_no_event(file: Recorded) -> None:
    """A single cut, at each byte of each recorded stream in turn, changes none of its events."""
    whole = EventDecoder(1 << 20)
    events = [(event.event, event.data) for event in whole.feed(file.body)]
    borders = [at for at in range(1, len(file.body)) if file.body[:at].endswith((b"\n\n", b"\r\n\r\n"))]
    for start, end in zip([0, *borders], [*borders, len(file.body)], strict=True):
        # Between two events the decoder remembers nothing, so each event's own bytes are enough to cut.
        piece = file.body[start:end]
        alone = [(event.event, event.data) for event in EventDecoder(1 << 20).feed(piece)]
        for at in range(1, len(piece)):
            decoder = EventDecoder(1 << 20)
            found = [*decoder.feed(piece[:at]), *decoder.feed(piece[at:])]
            assert [(event.event, event.data) for event in found] == alone
        events = events[len(alone) :] if events[: len(alone)] == alone else pytest.fail("an event changed")
    assert events == []


@pytest.mark.parametrize("ending", [b"\r\n", b"\r"], ids=["crlf", "cr"])
@pytest.mark.parametrize("file", STREAMS, ids=repr)
async def test_line_ends_make_no_difference(file: Recorded, ending: bytes) -> None:
    """A recorded stream whose lines end in CRLF or CR gives the same answer, whole and byte by byte."""
    body = file.body.replace(b"\r\n", b"\n").replace(b"\n", ending)
    check(file, await played(OpenAIChat, [body]))
    check(file, await played(OpenAIChat, single_bytes(body)))


@pytest.mark.parametrize("file", STREAMS, ids=repr)
async def test_a_stream_cut_short_never_ends_well_by_accident(file: Recorded) -> None:
    """Cut off behind any of its events, a recorded stream is an error unless its finish reason had come."""
    borders = [at for at in range(1, len(file.body)) if file.body[:at].endswith((b"\n\n", b"\r\n\r\n"))]
    for at in [0, *borders[:-1]]:
        body = file.body[:at]
        answer = await played(OpenAIChat, [body])
        assert file.expected["text"].startswith(answer.message.text)
        if b"finish_reason" not in body or all(
            reason not in body for reason in (b'"stop"', b'"length"', b'"tool_calls","', b'"tool_calls"}')
        ):
            assert answer.failed().kind in ("network", "invalid_request")


@pytest.mark.parametrize("file", STREAMS, ids=repr)
@settings(max_examples=20)
@given(source=st.data())
def test_a_stream_cut_anywhere_is_whole_or_an_error(file: Recorded, source: st.DataObject) -> None:
    """Cut off at any byte, a stream gives a prefix of the answer and an error, or the whole answer."""
    at = source.draw(st.integers(0, len(file.body)))

    async def main() -> None:
        answer = await played(OpenAIChat, [file.body[:at]])
        assert file.expected["text"].startswith(answer.message.text)
        assert file.expected.get("thinking", "").startswith(answer.thinking)
        if answer.error is None:
            assert answer.message.text == file.expected["text"]
            assert answer.calls == expected_calls(file)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


async def test_each_delta_is_one_chunk() -> None:
    """One `send` per delta: nothing is batched, split or held back."""
    answer = await played(OpenAIChat, [delta({"content": "a"}) + delta({"content": "b"}), delta({}, "stop"), DONE])
    assert answer.chunks == [ResponseInfo("c1", None), TextDelta(0, "a"), TextDelta(0, "b"), Finish("stop")]


async def test_thinking_between_texts_keeps_its_place() -> None:
    """Reasoning before, between and after texts becomes blocks in the order in which they came."""
    parts = [{"reasoning": "why"}, {"content": "a"}, {"content": "b"}, {"reasoning_content": "but"}, {"content": "c"}]
    answer = await played(OpenAIChat, [*map(delta, parts), delta({}, "stop"), DONE])
    assert answer.clean().content == (Thinking("why"), Text("ab"), Thinking("but"), Text("c"))


async def test_a_calls_place_does_not_split_the_text() -> None:
    """Text behind a tool call goes on with the text before it: on this wire the content is one field."""
    call = {"index": 0, "id": "k1", "function": {"name": "f", "arguments": "{}"}}
    pieces = [delta({"content": "a"}), call_delta(call), delta({"content": "b"}), delta({}, "tool_calls"), DONE]
    answer = await played(OpenAIChat, pieces)
    assert answer.clean().text == "ab"
    assert [type(block).__name__ for block in answer.message.content] == ["Text", "ToolCall"]


@pytest.mark.parametrize("field", ["content", "reasoning"])
async def test_a_character_cut_between_two_deltas_is_joined(field: str) -> None:
    """The two halves of a surrogate pair, escaped in two deltas, become the one character that they are."""
    halves = [b'{"choices":[{"delta":{"%s":"a\\ud83d"}}]}', b'{"choices":[{"delta":{"%s":"\\ude00b"}}]}']
    pieces = [b"data: " + half % field.encode() + b"\n\n" for half in halves]
    answer = await played(OpenAIChat, [*pieces, delta({}, "stop"), DONE])
    assert answer.message.text + answer.thinking == "a\U0001f600b"


async def test_a_character_cut_in_arguments_is_joined() -> None:
    """The same in the arguments of a call, whose text stays the JSON that was sent."""
    entry = b'{"index":0,"id":"k","function":{"name":"f","arguments":"{\\"a\\":\\"\\ud83d"}}'
    start = b'data: {"choices":[{"delta":{"tool_calls":[' + entry + b"]}}]}\n\n"
    rest = b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\\ude00\\"}"}}]}}]}\n\n'
    answer = await played(OpenAIChat, [start, rest, delta({}, "tool_calls"), DONE])
    assert answer.clean().tool_calls[0].arguments == {"a": "\U0001f600"}


async def test_half_a_character_is_not_lost() -> None:
    """A half whose other half never comes is told at the end of its block."""
    half = b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n'
    answer = await played(OpenAIChat, [half, delta({}, "stop"), DONE])
    assert answer.clean().text == "a\ud83d"


async def test_a_whole_completion_is_read_like_a_stream() -> None:
    """A service that does not stream although it was asked to is understood all the same."""
    message = {"role": "assistant", "content": "hi", "reasoning": "hm", "tool_calls": None}
    document = {"id": "x", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    answer = await played(OpenAIChat, [data(document)[6:]], headers={"content-type": "application/json"})
    assert answer.clean().content == (Thinking("hm"), Text("hi"))
    streamed = await played(OpenAIChat, [data(document), DONE])
    assert streamed.clean().content == answer.message.content


async def test_a_second_choice_is_left_out() -> None:
    """Where a service gives several choices, the answer is the one with index 0."""
    choices = [
        {"index": 1, "delta": {"content": "b"}},
        {"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"},
    ]
    assert (await played(OpenAIChat, [data({"choices": choices}), DONE])).clean().text == "a"


async def test_reasoning_that_is_opaque_goes_back_as_it_came() -> None:
    """An encrypted detail of OpenRouter becomes redacted thinking that holds the whole detail."""
    detail = {"type": "reasoning.encrypted", "data": "xyz", "format": "openai-responses-v1", "id": "r1", "index": 0}
    pieces = [delta({"reasoning": "s"}), delta({"content": "", "reasoning_details": [detail]}), delta({"content": "a"})]
    answer = await played(OpenAIChat, [*pieces, delta({}, "stop"), DONE])
    thought, opaque, text = answer.clean().content
    assert (thought, text) == (Thinking("s"), Text("a"))
    assert isinstance(opaque, Thinking)
    assert opaque.redacted == data(detail)[6:-2].decode()


@pytest.mark.parametrize(
    ("usage", "wanted"),
    [
        ({"prompt_tokens": 11, "completion_tokens": 3}, Usage(11, 3, total=14)),
        (
            {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6, "prompt_cache_hit_tokens": 2},
            Usage(3, 1, 2, total=6),
        ),
        ({"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 9}}, Usage(0, None, 9)),
        ({"prompt_tokens": -1, "completion_tokens": "3", "total_tokens": True}, Usage()),
        ({"prompt_tokens": 1.5, "prompt_tokens_details": [], "completion_tokens_details": None}, Usage()),
        ({}, Usage()),
    ],
    ids=repr,
)
async def test_usage_is_counted_alike(usage: dict[str, Any], wanted: Usage) -> None:
    """Cached tokens are taken out of the input, and a count that is none counts as not given."""
    answer = await played(OpenAIChat, [delta({"content": "a"}, "stop"), data({"choices": [], "usage": usage}), DONE])
    assert answer.clean().usage == wanted


@pytest.mark.parametrize("place", ["chunk", "choice", "x_groq", "every"])
async def test_usage_is_found_wherever_it_is(place: str) -> None:
    """Usage beside the choices, in a choice, in Groq's field or on every chunk is reported."""
    usage = {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}
    choice: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": "stop"}
    chunk: dict[str, Any] = {"choices": [choice]}
    if place == "choice":
        choice["usage"] = usage
    elif place == "x_groq":
        chunk["x_groq"] = {"id": "r", "usage": usage}
    else:
        chunk["usage"] = usage
    first = {"usage": {**usage, "completion_tokens": 1, "total_tokens": 5}} if place == "every" else {}
    answer = await played(
        OpenAIChat, [delta({"content": "a"}, **first), delta({"content": "b"}, **first), data(chunk), DONE]
    )
    assert answer.clean().usage == Usage(4, 2, total=6)
    assert len([chunk for chunk in answer.chunks if isinstance(chunk, UsageReport)]) == (2 if place == "every" else 1)


async def test_usage_of_an_answer_that_failed_is_kept() -> None:
    """What an answer had cost when it broke off is reported before the error."""
    usage = {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}
    answer = await played(OpenAIChat, [delta({"content": "a"}), data({"error": {"message": "no"}, "usage": usage})])
    assert answer.failed().kind == "server"
    assert answer.message.usage == Usage(4, 2, total=6)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("content_filter", "content_filter"),
        ("SAFETY", "content_filter"),
        ("error", "server"),
        ("abort", "server"),
        ("moonlight", "protocol"),
        (7, "protocol"),
        ({"x": 1}, "protocol"),
    ],
)
async def test_an_end_that_is_no_answer_is_an_error(reason: Any, kind: str) -> None:
    """Filtered, failed and unknown ends are errors of their kind, with the text before them kept."""
    answer = await played(OpenAIChat, [delta({"content": "a"}), delta({}, reason), DONE])
    assert answer.failed().kind == kind
    assert answer.message.text == "a"


async def test_an_error_in_a_choice_is_an_error() -> None:
    """An error object inside a choice says more than the finish reason beside it."""
    choice = {"delta": {"content": ""}, "finish_reason": "error", "error": {"code": 429, "message": "upstream is busy"}}
    answer = await played(OpenAIChat, [delta({"content": "a"}), data({"choices": [choice]}), DONE])
    assert (answer.failed().kind, answer.message.text) == ("rate_limit", "a")
    assert "upstream is busy" in answer.failed().message


@pytest.mark.parametrize("later", ["stop", "tool_calls", "", None])
async def test_a_cut_answer_stays_cut(later: str | None) -> None:
    """A `length` is not taken back by what a later chunk says, so that cut arguments never run."""
    answer = await played(OpenAIChat, [delta({"content": "a"}, "length"), delta({}, later), DONE])
    assert answer.clean().stop_reason == "length"


async def test_nothing_is_read_behind_the_end_marker() -> None:
    """What a server sends behind `[DONE]` is no part of the answer."""
    answer = await played(OpenAIChat, [delta({"content": "a"}, "stop") + DONE + b"data: nonsense\n\n", b"<html>"])
    assert answer.clean().text == "a"


@pytest.mark.parametrize(
    ("body", "again"),
    [
        (b"data: nonsense\n\n", True),
        (b'data: {"choices": [}\n\n', True),
        (b"data: " + b"[" * 9999 + b"\n\n", True),
        (b"{nonsense}", True),
        (b'{"choices": [{"mess', True),
        (b"data: 3\n\n", False),
        (b'data: ["a"]\n\n', False),
        (b"<!doctype html><title>Sign in</title>", False),
        (b"[1]", False),
    ],
    ids=lambda value: repr(value[:30]) if isinstance(value, bytes) else "",
)
async def test_an_answer_that_cannot_be_read_is_a_protocol_error(body: bytes, again: bool) -> None:
    """Garbled JSON may be tried again; pages and JSON of the wrong kind may not. All is said in plain words."""
    error = (await played(OpenAIChat, [body])).failed()
    assert (error.kind, error.retryable) == ("protocol", again)
    assert len(error.message) < 300


@pytest.mark.parametrize(
    "fields", [{}, {"choices": None}, {"choices": {}}, {"choices": [None, 3, "x"]}, {"choices": [{}]}]
)
@pytest.mark.parametrize(
    "inner", [None, {"delta": None}, {"delta": []}, {"delta": {"content": None, "tool_calls": [None, 1]}}]
)
async def test_empty_and_null_everything_is_passed_over(fields: dict[str, Any], inner: dict[str, Any] | None) -> None:
    """Chunks whose parts are missing, null or of another kind change nothing in the answer around them."""
    odd = {**fields, **({"choices": [inner]} if inner else {})}
    answer = await played(OpenAIChat, [delta({"content": "a"}), data(odd), delta({"content": "b"}, "stop"), DONE])
    assert answer.clean().text == "ab"


class TestBounds:
    """Whatever a server sends, there is an end to it."""

    BOUNDS = Bounds(event=2000, answer=20_000, blocks=4, calls=3, arguments=500, nesting=10)

    async def failure(self, pieces: Any) -> str:
        error = (await played(OpenAIChat, pieces, bounds=self.BOUNDS)).failed()
        assert (error.kind, error.retryable) == ("protocol", False)
        return error.message

    async def test_an_event_has_a_bound(self) -> None:
        """An event beyond its bound fails, in one line, in many, and while it is still growing."""
        assert "event" in await self.failure([b"data: " + b"x" * 3000])
        assert "event" in await self.failure([b"data: x\n"] * 400)
        assert "event" in await self.failure(b"y" for _ in range(3000))

    async def test_comments_take_no_room(self) -> None:
        """Keep-alive comments, with or without blank lines, count for no event."""
        pieces = [b": still here\n"] * 400 + [delta({"content": "a"}, "stop"), DONE]
        assert (await played(OpenAIChat, pieces, bounds=self.BOUNDS)).clean().text == "a"

    async def test_an_answer_has_a_bound(self) -> None:
        """An answer beyond its bound fails, streamed and whole, and the rest is not read."""
        endless = (delta({"content": "x" * 100}) for _ in iter(int, 1))
        assert "20000 bytes" in await self.failure(endless)
        assert "20000 bytes" in await self.failure(b'{"a": ' if at == 0 else b"   " * 50 for at in range(10**9))

    async def test_blocks_have_a_bound(self) -> None:
        """More blocks than allowed fail."""
        assert "blocks" in await self.failure([delta({"content": "a", "reasoning": "b"})] * 9)

    async def test_calls_have_a_bound(self) -> None:
        """More calls than allowed fail."""
        entries = [{"index": at, "id": f"k{at}", "function": {"name": "f"}} for at in range(9)]
        assert "tool calls" in await self.failure([call_delta(*entries)])

    async def test_arguments_have_a_bound(self) -> None:
        """Arguments beyond their bound in size or depth fail."""
        start = {"index": 0, "id": "k", "function": {"name": "f", "arguments": '{"a":"'}}
        more = {"index": 0, "function": {"arguments": "x" * 99}}
        deep = {"index": 0, "function": {"name": "f", "arguments": "[" * 30}}
        assert "exceed" in await self.failure([call_delta(start), *[call_delta(more)] * 9])
        assert "nested" in await self.failure([call_delta(deep)])


async def test_memory_stays_flat_while_keep_alives_come() -> None:
    """A hundred thousand comments leave nothing behind in the decoder."""
    decoder = EventDecoder(1000)
    for _ in range(100_000):
        assert decoder.feed(b": OPENROUTER PROCESSING\n\n") == []
    assert decoder.feed(b"data: 1\n\n")[0].data == "1"


async def test_the_module_is_importable_without_httpx() -> None:
    """`from trio_agent.providers import …` finds the class; the package alone does not import httpx."""
    script = "import sys, trio_agent.providers as p; assert 'httpx' not in sys.modules; p.OpenAIChat; p.Secret; dir(p)"
    import subprocess
    import sys

    subprocess.run([sys.executable, "-c", script], check=True)
    with pytest.raises(AttributeError):
        getattr(trio_agent.providers, "Nothing")  # noqa: B009  # as a mistaken import does


async def test_thinking_is_told_as_such() -> None:
    """Reasoning in a list of parts is thinking, and text in it is text."""
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "a"},
        "b",
        None,
    ]
    answer = await played(OpenAIChat, [delta({"content": parts}, "stop"), DONE])
    assert [type(chunk) for chunk in answer.chunks[1:4]] == [ThinkingDelta, TextDelta, TextDelta]
    assert answer.clean().text == "ab"


async def test_models_are_listed() -> None:
    """`models()` gives the names that a service lists, in each of the forms in which services list them."""
    for body in (
        b'{"data":[{"id":"a"},{"id":"b"}]}',
        b'{"models":[{"name":"models/a"},{"name":"b"}]}',
        b'["a","b",null,3]',
    ):
        transport = httpx.MockTransport(lambda request, body=body: httpx.Response(200, content=body))
        async with httpx.AsyncClient(transport=transport) as client:
            assert await OpenAIChat(base_url="http://h/v1", client=client).models() == ("a", "b")


async def test_a_provider_answers_again_and_again() -> None:
    """Nothing of an answer lives on in the next."""
    body = delta({"content": "a"}, "stop") + DONE
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=body))
    async with httpx.AsyncClient(transport=transport) as client:
        provider = OpenAIChat(base_url="http://h/v1", client=client)
        for _ in range(3):
            assert (await asked(provider)).clean().text == "a"
