"""One recorded stream of Chat Completions, repeated to so many megabytes, and a client that answers with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx

RECORDED = Path(__file__).resolve().parents[2] / "tests" / "wire" / "openai_chat" / "openai-text-usage.sse"
PIECE = 16_384  # bytes, as they come off a socket


def stream(megabytes: int) -> bytes:
    """The first event, the deltas as often as it takes, then the end as it was recorded."""
    events = RECORDED.read_bytes().split(b"\n\n")
    is_delta = [b'"content":"' in event and b'"role"' not in event for event in events]
    first, last = is_delta.index(True), len(events) - is_delta[::-1].index(True)
    deltas = b"".join([event + b"\n\n" for event in events[first:last]])
    times = megabytes * 1_000_000 // len(deltas) + 1
    return b"\n\n".join(events[:first]) + b"\n\n" + deltas * times + b"\n\n".join(events[last:])


def client(body: bytes) -> httpx.AsyncClient:
    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), PIECE):
            yield body[at : at + PIECE]

    def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=pieces())

    return httpx.AsyncClient(transport=httpx.MockTransport(answer))
