"""Answers that hardly any service sends and that every wire can be sent: read right, or refused with an error.

Here live the odd bodies, API by API. What services usually send is in each wire's own module.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.wire_files import DONE, Answer, call_delta, cut, data, delta, played
from trio_agent import Text, TextDelta, Thinking, ThinkingDelta
from trio_agent.providers import Gemini, OpenAIChat, OpenAIResponses
from trio_agent.providers._answer import decode_json
from trio_agent.providers._json_progress import JSONProgress


@pytest.mark.parametrize("deep", ["[" * 100_000, '["\\ud800",' + "[" * 100_000], ids=["plain", "with half a character"])
def test_json_that_is_nested_too_deeply_is_no_json(deep: str) -> None:
    """Neither of the two decoders overflows: what one of them may not read, the other is not broken by."""
    with pytest.raises(ValueError, match="nested too deeply"):
        decode_json(deep)


# How far the arguments of a call have come


@pytest.mark.parametrize(
    "text",
    [
        r'{"a":"}"}',
        r'{"a":"\"}"}',
        r'{"a":"\\","b":"\\\"]}"}',
        r'{"a":[{"b":"\\"},"}]"]}',
    ],
)
def test_brackets_in_strings_do_not_count_however_they_are_cut(text: str) -> None:
    """The arguments are complete with their last character and not before, escapes and cuts between them included."""
    for at in range(len(text)):
        for pieces in (list(text), [text[:at], text[at:]], [text[:at], "", text[at:]]):
            progress = JSONProgress()
            told: list[bool] = []
            for piece in pieces:
                progress.feed(piece)
                told.append(progress.complete)
            assert told.index(True) == len(pieces) - 1
            assert progress.depth == 0


# Chat Completions


async def chat(*pieces: bytes, finish: str = "stop") -> Answer:
    return await played(OpenAIChat, [*pieces, delta({}, finish), DONE])


async def test_an_escaped_quote_at_a_cut_does_not_end_arguments() -> None:
    """Text behind `\\"` still belongs to the call, and what follows the whole call does not."""
    pieces = ['{"a":"x\\', '"}', '"}', "{}"]
    entries = [{"index": 0, "function": {"arguments": piece}} for piece in pieces]
    begin = {"index": 0, "id": "k", "function": {"name": "f", "arguments": ""}}
    answer = await chat(*map(call_delta, [begin, *entries]), finish="tool_calls")
    assert answer.clean().tool_calls[0].arguments == {"a": 'x"}'}


def arguments_in(text: str) -> bytes:
    """A piece of arguments, as JSON that may hold half a character."""
    entry = '{"index":0,"function":{"arguments":"' + text + '"}}'
    return b'data: {"choices":[{"delta":{"tool_calls":[%s]}}]}\n\n' % entry.encode()


async def test_half_a_character_at_the_end_of_arguments_is_not_lost() -> None:
    """A call that is cut inside a character keeps what came of it, and its other half needs no text of its own."""
    begin = call_delta({"index": 0, "id": "k", "function": {"name": "f", "arguments": '{"a":"'}})
    answer = await chat(begin, arguments_in("\\ud83d"), finish="length")
    assert (answer.clean().stop_reason, answer.calls) == ("length", [("k", "f", '{"a":"\ud83d')])
    answer = await chat(begin, arguments_in("\\ud83d"), arguments_in('\\ude00\\"}'), finish="tool_calls")
    assert answer.clean().tool_calls[0].arguments == {"a": "\U0001f600"}


async def test_half_a_character_of_thinking_is_told_before_the_text() -> None:
    """It belongs to the thinking, which the text that follows closes."""
    half = b'data: {"choices":[{"delta":{"reasoning":"a\\ud83d"}}]}\n\n'
    answer = await chat(half, delta({"content": "b"}))
    assert answer.clean().content == (Thinking("a\ud83d"), Text("b"))
    assert [chunk for chunk in answer.chunks if isinstance(chunk, ThinkingDelta | TextDelta)] == [
        ThinkingDelta(0, "a"),
        ThinkingDelta(0, "\ud83d"),
        TextDelta(1, "b"),
    ]


async def test_a_signature_without_thinking_is_a_block_of_its_own() -> None:
    """What proves reasoning that was not shown is kept, so that it can go back."""
    detail = {"type": "reasoning.text", "signature": "s1"}
    answer = await chat(delta({"content": "a"}), delta({"reasoning_details": [detail]}), delta({"content": "b"}))
    assert answer.signatures == ["s1"]
    assert (answer.clean().text, answer.thinking) == ("ab", "")


# Responses


def event(kind: str, **fields: Any) -> bytes:
    return data({"type": f"response.{kind}", **fields})


def begun(place: int, kind: str, **fields: Any) -> bytes:
    return event("output_item.added", output_index=place, item={"type": kind, **fields})


async def responses(*pieces: bytes, output: Iterable[Any] = ()) -> Answer:
    ended = event("completed", response={"id": "r1", "model": "m", "status": "completed", "output": list(output)})
    return await played(OpenAIResponses, [*pieces, ended])


async def test_what_a_search_says_is_not_the_models_text() -> None:
    """Text, arguments and reasoning in an item of a kind that nobody here knows are passed over; the rest is read."""
    strange = [
        event("output_text.delta", output_index=0, delta="no"),
        event("function_call_arguments.delta", output_index=0, delta="{}"),
        event("reasoning_summary_text.delta", output_index=0, delta="no"),
        event("output_text.delta", output_index=1, delta="yes"),
    ]
    answer = await responses(begun(0, "web_search_call"), *strange)
    assert answer.clean().content == (Text("yes"),)
    assert answer.message.stop_reason == "stop"


async def test_a_refusal_that_only_its_end_tells_is_an_error() -> None:
    """`refusal.done` without any `refusal.delta` says it all; with one it adds nothing."""
    for pieces in (
        [event("refusal.done", output_index=0, refusal="I will not")],
        [event("refusal.delta", output_index=0, delta="I will not"), event("refusal.done", refusal="I will not")],
    ):
        failure = (await responses(begun(0, "message"), *pieces)).failed()
        assert (failure.kind, failure.message) == ("content_filter", "the model refused: I will not")


@pytest.mark.parametrize("ended", [False, True])
async def test_an_output_in_another_order_does_not_mix_items(ended: bool) -> None:
    """The output at the end completes what has no id by its kind, once, where it is not in its place."""
    call = {"type": "function_call", "call_id": "k1", "name": "f", "arguments": '{"n":1}'}
    message = {"type": "message", "content": [{"type": "output_text", "text": "hello"}]}
    pieces = [
        begun(0, "message"),
        event("output_text.delta", output_index=0, delta="hel"),
        begun(1, "function_call", call_id="k1", name="f"),
    ]
    if ended:
        pieces.append(event("output_item.done", output_index=0, item=message))
    answer = await responses(*pieces, output=[call, message])
    assert (answer.clean().text, answer.calls) == ("hello", [("k1", "f", '{"n":1}')])


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
async def test_items_that_are_not_plain_deltas_between_plain_ones(ending: str) -> None:
    """A delta of two lines, of an item never begun, or of an item of another kind: each is told in its place."""
    deltas = [(0, "a"), (0, "b"), (2, "c"), (1, "d"), (0, "e")]
    plain = [
        "event: response.output_text.delta\n"
        f'data: {{"type":"response.output_text.delta","output_index":{place},"delta":"{text}"}}\n\n'
        for place, text in deltas
    ]
    plain.insert(2, plain[0].replace(',"delta"', ',\ndata: "delta"'))
    body = b"".join([begun(0, "message"), begun(1, "reasoning"), "".join(plain).replace("\n", ending).encode()])
    for pieces in ([body], cut(body, range(7, len(body), 7))):
        answer = await responses(*pieces)
        assert "".join([chunk.text for chunk in answer.chunks if isinstance(chunk, TextDelta)]) == "abacde"


# Gemini


async def test_the_end_of_a_call_that_has_ended_is_no_call() -> None:
    """An empty `functionCall` behind a whole one closes what is closed."""
    parts = [{"functionCall": {"name": "f", "args": {"n": 1}}}, {"functionCall": {}}]
    candidate = {"content": {"parts": parts}, "index": 0, "finishReason": "STOP"}
    answer = await played(Gemini, [data({"candidates": [candidate], "responseId": "r", "modelVersion": "m"})])
    assert [(call.name, call.arguments) for call in answer.clean().tool_calls] == [("f", {"n": 1})]
