"""The readers' short way for the events of which there are thousands: it tells what the long way tells.

Each stream is read twice, once with the short way shut. How a body arrives is drawn or cut here; what is in it is the
recordings' business, and for one event after the other that of a change made to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.wire_files import Answer, Recorded, compact, cut, played, recorded
from trio_agent._chunks import TextDelta, UsageReport
from trio_agent._request import ModelRequest
from trio_agent.providers import Anthropic, Gemini, OpenAIChat, OpenAIResponses
from trio_agent.providers._answer import AnswerReader

PROVIDERS: dict[str, Any] = {
    "openai_chat": OpenAIChat,
    "openai_responses": OpenAIResponses,
    "anthropic_messages": Anthropic,
    "gemini": Gemini,
}
# A recording of text, and what marks an event that goes the short way.
TEXTS = {
    "openai_chat": ("openai-text-usage.sse", b'"delta":{"content":"'),
    "openai_responses": ("openai-text.sse", b'"response.output_text.delta"'),
    "anthropic_messages": ("text.sse", b'"text_delta"'),
    "gemini": ("text.sse", b"capital"),
}
COUNTS = {"prompt_tokens": 1, "promptTokenCount": 1, "input_tokens": 1}
VALUES: list[Any] = [
    *(None, True, 0, 1, "", "x", "error", [], {}, [{}]),
    *("response.function_call_arguments.delta", "thinking_delta", "input_json_delta"),
    *({"message": "no", "code": 500}, {"usage": COUNTS, **COUNTS}),
]
KEYS = (
    *("error", "error_message", "usage", "x_groq", "usageMetadata", "response", "object", "type", "index", "refusal"),
    *("detail", "message", "promptFeedback", "thought", "thoughtSignature"),
)
STREAMS = [(api, file) for api in PROVIDERS for file in recorded(api) if file.name.endswith(".sse")]


def make(api: str, *, short: bool) -> Any:
    """The provider, with a count of the events that went the short way, or with that shut."""

    class Provider(PROVIDERS[api]):  # type: ignore[misc]
        taken = 0

        def _write(self, request: ModelRequest) -> tuple[str, bytes, AnswerReader]:
            path, body, reader = super()._write(request)
            take = reader.take_common

            def counted(raw: list[bytes], at: int) -> int:
                if not short:
                    return at
                end = take(raw, at)
                Provider.taken += end - at
                return end

            reader.take_common = counted
            return path, body, reader

    return Provider


async def both_ways(api: str, pieces: list[bytes]) -> tuple[Answer, int]:
    """What the two ways tell is the same. Gives it, and how many events went the short way."""
    short, long = make(api, short=True), make(api, short=False)
    found, wanted = await played(short, pieces, api_key="none"), await played(long, pieces, api_key="none")
    assert found.chunks == wanted.chunks
    assert (str(found.error), found.message) == (str(wanted.error), wanted.message)
    return found, short.taken


@pytest.mark.parametrize(("api", "file"), STREAMS, ids=lambda found: found if isinstance(found, str) else found.name)
async def test_the_short_way_tells_of_every_recording_what_the_long_way_tells(api: str, file: Recorded) -> None:
    """In one piece, in single lines, and in small pieces."""
    for pieces in ([file.body], file.body.splitlines(keepends=True), cut(file.body, range(7, len(file.body), 7))):
        await both_ways(api, pieces)


@given(st.data())
def test_the_short_way_does_not_care_where_a_stream_is_cut(source: st.DataObject) -> None:
    """A recording cut at places that are drawn."""
    api, file = source.draw(st.sampled_from(STREAMS))
    places = source.draw(st.lists(st.integers(1, len(file.body) - 1), max_size=12))
    trio.run(both_ways, api, cut(file.body, places), clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize("api", PROVIDERS)
async def test_most_of_a_long_text_goes_the_short_way(api: str) -> None:
    """Of a hundred deltas, all but those that open and close the text."""
    events, place = text_of(api)
    repeated = [*events[:place], *[events[place]] * 100, *events[place + 1 :]]
    answer, taken = await both_ways(api, [b"".join(repeated)])
    assert answer.error is None
    assert sum(isinstance(chunk, TextDelta) for chunk in answer.chunks) >= 100
    assert taken >= 98


@pytest.mark.parametrize("api", PROVIDERS)
async def test_an_event_that_is_not_plain_is_read_the_long_way(api: str) -> None:
    """Whatever is changed in one event, between two that are plain, is told as the long way tells it."""
    events, place = text_of(api)
    head, _, data = events[place].rpartition(b"data: ")
    count = 0
    for changed in changes(json.loads(data)):
        body = b"".join([*events[: place + 1], head + b"data: " + compact(changed) + b"\n\n", *events[place:]])
        await both_ways(api, [body])
        count += 1
    assert count > 100


ODD_FRAMES = [
    b"data: %s\n",
    b"data:%s\n",
    b"event: error\ndata: %s\n",
    b"id: 1\nretry: 10\ndata: %s\n",
    b": comment\ndata: %s\n",
    b"data: %s\ndata: \n",
    b"data: %s\n%s\n",
    b"%s\ndata: %s\n",
    b"\n\ndata: %s\n\n",
    b"data: %s\r\n",
    b"datas: %s\n",
    b'{"error":{"message":"no","code":500}}\ndata: %s\n',
    b'data: %s\n{"error":{"message":"no","code":500}}\n',
    b'data: %s\n\n{"error":{"message":"no","code":500}}\n',
    b"data: [DONE]\n\ndata: %s\n",
    b"data: null\n\ndata: %s\n",
    b"data: [1]\n\ndata: %s\n",
    b"data: %s}\n",
    b"data: %h\n}\n",
    b"data: \xff%s\n",
]


@pytest.mark.parametrize("frame", ODD_FRAMES)
@pytest.mark.parametrize("api", PROVIDERS)
async def test_an_oddly_framed_event_is_read_the_long_way(api: str, frame: bytes) -> None:
    """Lines that mean something else, or nothing, around an event that could be plain."""
    events, place = text_of(api)
    named, _, data = events[place].strip().rpartition(b"data: ")
    odd = frame.replace(b"%s", data).replace(b"%h", data[:-1]) + b"\n"
    for event in (odd, named + odd):
        await both_ways(api, [b"".join([*events[: place + 1], event, *events[place:]])])


@pytest.mark.parametrize("text", ["\\ud83d\\ude00", "\\ud83d", "\\ude00", "ä", "\\u0000", "\\u2028", "\U0001f600"])
@pytest.mark.parametrize("api", PROVIDERS)
async def test_any_character_arrives_by_the_short_way(api: str, text: str) -> None:
    """Also halves of one, of which two in a row are one character."""
    events, place = text_of(api)
    head, _, data = events[place].rpartition(b"data: ")
    said = next(iter(texts_in(json.loads(data))))
    changed = head + b"data: " + data.replace(json.dumps(said).encode(), b'"' + text.encode() + b'"')
    for more in ([changed], [changed, changed], [changed, events[place], changed]):
        told = [*events[: place + 1], *more, *events[place:]]
        answer, _ = await both_ways(api, [b"".join(told)])
        found = "".join([chunk.text for chunk in answer.chunks if isinstance(chunk, TextDelta)])
        wanted = "".join([said for event in told for said in said_by(event)])
        assert joined(found) == joined(wanted)


async def test_counts_that_go_back_are_told_the_short_way_too() -> None:
    """A chunk that is read the long way may have told other counts in between."""
    events, place = text_of("gemini")
    other = events[place].replace(b'"text":', b'"extra":0,"text":').replace(b": 15", b": 16")
    answer, taken = await both_ways("gemini", [b"".join([*events[: place + 1], other, *events[place:]])])
    counts = [chunk.usage.input for chunk in answer.chunks if isinstance(chunk, UsageReport)]
    assert (counts[:3], taken) == ([15, 16, 15], 2)


def said_by(event: bytes) -> Iterator[str]:
    """The text of an event that says some."""
    data = event.rpartition(b"data: ")[2]
    if b'"candidates"' in data or any(mark in data for _, mark in TEXTS.values()):
        yield from texts_in(json.loads(data))


def joined(text: str) -> str:
    """The text with halves of one character made one."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def text_of(api: str) -> tuple[list[bytes], int]:
    """The events of a recording of text, each with its blank line, and the place of one that goes the short way."""
    name, mark = TEXTS[api]
    body = next(file.body for file in recorded(api) if file.name == name).replace(b"\r\n", b"\n")
    events = [event + b"\n\n" for event in body.removesuffix(b"\n\n").split(b"\n\n")]
    return events, next(place for place, event in enumerate(events) if mark in event)


def changes(value: Any) -> Iterator[Any]:
    """The value with each part of it replaced, left out or added to, one at a time."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield {name: kept for name, kept in value.items() if name != key}
            yield from ({**value, key: other} for other in VALUES)
            yield from ({**value, key: changed} for changed in changes(part))
        yield from ({**value, key: other} for key in KEYS if key not in value for other in VALUES)
        yield {**value, "message": None, "code": None}
    elif isinstance(value, list):
        yield from (value + value, [*value, None])
        for at, part in enumerate(value):
            yield from ([*value[:at], changed, *value[at + 1 :]] for changed in changes(part))


def texts_in(value: Any) -> Iterator[str]:
    """What a delta says, wherever it says it."""
    if isinstance(value, dict):
        for key, part in value.items():
            if key in ("content", "text", "delta") and isinstance(part, str):
                yield part
            else:
                yield from texts_in(part)
    elif isinstance(value, list):
        for part in value:
            yield from texts_in(part)
