"""What the tests of every wire's reading share: a body cut in all ways, and streams that break off.

Here lives how a body arrives. What is in it is checked by the function that is passed. No API is known here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import strategies as st

from tests.wire_files import Answer, Recorded, cut, played
from trio_agent.providers._sse import EventDecoder

Check = Callable[[Recorded, Answer], None]


def read_in_random_pieces(provider: Any, file: Recorded, source: st.DataObject, check: Check) -> None:
    """Read the body cut at places that are drawn."""
    places = source.draw(st.lists(st.integers(1, len(file.body) - 1), max_size=12))

    async def main() -> None:
        check(file, await played(provider, cut(file.body, places)))

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def events_of(body: bytes) -> list[tuple[str, str]]:
    return [(event.event, event.data) for event in EventDecoder(1 << 20).feed(body)]


def borders_of(body: bytes) -> list[int]:
    """The places behind each event."""
    return [at for at in range(1, len(body) + 1) if body[:at].endswith((b"\n\n", b"\r\n\r\n"))]


def cut_once_everywhere(file: Recorded) -> int:
    """Cut a stream once, at each byte in turn: its events stay the same. Gives the number of cuts.

    Between two events the decoder remembers nothing, so each event's own bytes are enough to cut.
    """
    count = 0
    events = events_of(file.body)
    for start, end in itertools.pairwise([0, *borders_of(file.body)]):
        piece = file.body[start:end]
        alone = events_of(piece)
        for at in range(1, len(piece)):
            decoder = EventDecoder(1 << 20)
            found = [*decoder.feed(piece[:at]), *decoder.feed(piece[at:])]
            assert [(event.event, event.data) for event in found] == alone
            count += 1
        assert events[: len(alone)] == alone
        del events[: len(alone)]
    assert events == []
    return count


def with_line_ends(body: bytes, ending: bytes) -> bytes:
    return body.replace(b"\r\n", b"\n").replace(b"\n", ending)


def beginnings_of(file: Recorded) -> Iterator[bytes]:
    """The stream cut off behind each of its events but the last, and before the first."""
    for at in [0, *borders_of(file.body)[:-1]]:
        yield file.body[:at]


async def check_cut_off_at(
    provider: Any, file: Recorded, at: int, calls: Callable[[Recorded], list[tuple[Any, str, str]]]
) -> None:
    """Cut off at this byte, a stream gives the beginning of the answer and an error, or the whole answer."""
    answer = await played(provider, [file.body[:at]])
    assert file.expected["text"].startswith(answer.message.text)
    assert file.expected.get("thinking", "").startswith(answer.thinking)
    if answer.error is None:
        assert answer.message.text == file.expected["text"]
        assert answer.calls == calls(file)


def stopped_early(answer: Answer) -> None:
    """The answer broke off: an error that may be tried again, or the service's own."""
    if answer.failed().kind not in ("network", "rate_limit", "overloaded", "server", "content_filter"):
        pytest.fail(answer.failed().message)
