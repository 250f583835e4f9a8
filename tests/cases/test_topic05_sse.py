"""Topic 5: the framing of event streams, as others have met it, each in one piece, byte by byte and as shown.

What B071 says of events and blocks that Responses and Messages do not know yet is in those wires' own tests.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.wire_files import DONE, Answer, data, delta, played, single_bytes
from trio_agent.providers import OpenAIChat
from trio_agent.providers._sse import EventDecoder

STOP = delta({}, "stop")


async def in_every_split(*shown: bytes) -> Answer:
    """The answer, which is the same however the bytes arrive."""
    whole = b"".join(shown)
    answers = [await played(OpenAIChat, pieces) for pieces in ([whole], list(single_bytes(whole)), list(shown))]
    first = answers[0]
    for other in answers[1:]:
        assert other.message == first.message
        assert (other.error and other.error.kind) == (first.error and first.error.kind)
    return first


def events_of(*pieces: bytes) -> list[tuple[str, str]]:
    """Names and data of the events, which are the same however the bytes arrive; the unfinished last one too."""
    whole = b"".join(pieces)
    found: list[list[tuple[str, str]]] = []
    for split in ([whole], list(single_bytes(whole)), list(pieces)):
        decoder = EventDecoder(10_000)
        events = [event for piece in split for event in decoder.feed(piece)]
        last = decoder.close()
        found.append([(event.event, event.data) for event in ([*events, last] if last else events)])
    assert found[0] == found[1] == found[2]
    return found[0]


async def test_b065_line_separators_inside_a_string() -> None:
    """B065: U+2028, U+2029, U+0085 and the other characters at which Python ends a line are text."""
    odd = "a\u2028b\u2029c\u0085d\x1ce\x1df\x1eg\x0bh\x0ci"
    shown = b'data: {"choices":[{"index":0,"delta":{"content":"a\xe2\x80\xa8b\xe2\x80\xa9c\xc2\x85d"}}]}\n\n'
    assert (await in_every_split(shown, STOP, DONE)).clean().text == "a\u2028b\u2029c\u0085d"
    assert events_of(f"data: {odd}\n\n".encode()) == [("message", odd)]


async def test_b067_crlf_and_lf_mixed() -> None:
    """B067: line ends of both kinds in one event, and a stream of CRLF only, give all events."""
    assert events_of(b'data: {"x":\r\ndata: 2}\n\n') == [("message", '{"x":\n2}')]
    crlf = [piece.replace(b"\n", b"\r\n") for piece in (delta({"content": "a"}), delta({"content": "b"}), STOP, DONE)]
    assert (await in_every_split(*crlf)).clean().text == "ab"


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_every_event_arrives_whatever_ends_its_lines(ending: bytes) -> None:
    """An event is there with the line end that completes it, not with the byte behind it."""
    decoder = EventDecoder(1000)
    found = [event.data for byte in single_bytes(b"data: a" + ending * 2) for event in decoder.feed(byte)]
    assert found == ["a"]
    assert [event.data for event in decoder.feed(b"data: b" + ending * 2)] == ["b"]


def test_a_cr_and_its_lf_in_two_pieces_are_one_line_end() -> None:
    """A CR at the end of one piece and the LF at the start of the next end one line, not two."""
    assert events_of(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == [("message", "a\nb")]
    assert events_of(b"data: a\r", b"", b"\n", b"data: b\n\n") == [("message", "a\nb")]


async def test_b068_a_character_cut_between_chunks_and_data_without_a_space() -> None:
    """B068: characters are decoded across chunks; the space behind the colon is optional; one is taken away."""
    shown = (
        b'data:{"choices":[{"index":0,"delta":{"content":"\xf0\x9f',
        b"\x98\x80 \xe4\xb8",
        b'\xad"}}]}\n\n',
        STOP,
        DONE,
    )
    assert (await in_every_split(*shown)).clean().text == "\U0001f600 \u4e2d"
    assert events_of(b"data:  x\n\n") == [("message", " x")]


async def test_b068_invalid_utf_8_becomes_a_replacement_character() -> None:
    """B068: a byte that is no UTF-8 becomes U+FFFD, and the stream goes on."""
    shown = b'data: {"choices":[{"index":0,"delta":{"content":"a\xffb"}}]}\n\n'
    assert (await in_every_split(shown, STOP, DONE)).clean().text == "a\ufffdb"


async def test_b069_events_without_data() -> None:
    """B069: ids, retry times, named and blank events and comments are no events of the answer."""
    shown = (
        b"id: 7\n" + delta({"content": "a"}),
        b": ping\n\n",
        b"retry: 2500\n\n",
        b"event: keepalive\n\n",
        b"data:\n\n",
        b"data: \n\n",
        delta({"content": "b"}, "stop"),
        DONE,
    )
    assert (await in_every_split(*shown)).clean().text == "ab"


@pytest.mark.parametrize(
    "frame",
    [
        data({"type": "keepalive", "sequence_number": 12}),
        b"event: ping\ndata: {}\n\n",
        b"data: null\n\n",
        b"foo: bar\n\n",
    ],
    ids=repr,
)
async def test_b071_a_frame_of_an_unknown_kind_is_passed_over(frame: bytes) -> None:
    """B071: a heartbeat in a form that the wire does not know changes nothing."""
    assert (await in_every_split(frame, delta({"content": "a"}), frame, STOP, DONE)).clean().text == "a"


async def test_b072_one_document_in_several_data_lines() -> None:
    """B072: data lines of one event are one document, and the event keeps its name."""
    shown = b'event: error\ndata: {"error":\ndata: {"message":"no","type":"server_error"}}\n\n'
    error = (await in_every_split(delta({"content": "a"}), shown)).failed()
    assert (error.kind, error.message.endswith("no")) == ("server", True)


FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'


@pytest.mark.parametrize("tail", [FINISH, FINISH + b"\n", b"data: [DONE]", b"data: [DONE]\r"])
async def test_b073_a_last_event_without_its_blank_line_counts(tail: bytes) -> None:
    """B073: a body that ends behind complete data, or the end mark, has ended."""
    assert (await in_every_split(delta({"content": "a"}), tail)).clean().text == "a"


@pytest.mark.parametrize("tail", [b'data: {"choices":[{"ind', b"data: [DON", b"dat", b'data: {"choices":[]}\ndata: {'])
async def test_b073_a_last_event_that_was_cut_does_not(tail: bytes) -> None:
    """B073: a tail that is not complete was cut, and the stream with it."""
    answer = await in_every_split(delta({"content": "a"}), tail)
    assert (answer.failed().kind, answer.message.text) == ("network", "a")


async def test_b073_a_cut_tail_behind_the_finish_reason_does_no_harm() -> None:
    """B073: what is cut off behind the finish reason is no reason to refuse the answer."""
    assert (await in_every_split(delta({"content": "a"}, "stop"), b'data: {"usage":{"pro')).clean().text == "a"


async def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    """A byte order mark at the very beginning is taken away, there only."""
    assert events_of(b"\xef\xbb\xbfdata: a\n\n") == [("message", "a")]
    assert events_of(b"\xef\xbb\xbfdata: a") == [("message", "a")]
    assert events_of(b"data: a\n\n\xef\xbb\xbfdata: b\n\n") == [("message", "a")]
    assert (await in_every_split(b"\xef\xbb\xbf" + delta({"content": "a"}), STOP, DONE)).clean().text == "a"


def test_the_fields_of_the_specification() -> None:
    """Fields without a colon, unknown fields, comments and names are read as the HTML standard says."""
    stream = b"data\n\n: c\nevent: x\nevent: y\ndata: 1\ndata\ndata: 3\nfoo: z\n\nid: \0\nretry: soon\ndata: 4\n\n"
    assert events_of(stream) == [("y", "1\n\n3"), ("message", "4")]


@pytest.mark.parametrize("junk", [b"\x00", b"\xff" * 30, b"\r\n" * 5, b":" * 50 + b"\n", b"data" * 9 + b"\n\n"])
async def test_junk_before_the_first_event_is_passed_over(junk: Any) -> None:
    """Lines that mean nothing do not keep the events behind them from being read."""
    assert (await in_every_split(junk + b"\n", delta({"content": "a"}), STOP, DONE)).clean().text == "a"
