"""One recorded stream of each API, brought to so many megabytes, and a client that answers with it.

The deltas of the recording come again and again in the order in which they were recorded. What speaks of all of them,
the numbers of events and the whole text at the end, is written anew, so that the stream is a lawful one.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx

WIRE = Path(__file__).resolve().parents[2] / "tests" / "wire"
PIECE = 16_384  # bytes, as they come off a socket
# The recording, and what marks one of its deltas of text.
RECORDINGS = {
    "chat": ("openai_chat/openai-text-usage.sse", b'"delta":{"content":"'),
    "responses": ("openai_responses/openai-text.sse", b'"response.output_text.delta"'),
    "anthropic": ("anthropic_messages/text.sse", b'"text_delta"'),
    "gemini": ("gemini/text.sse", b'"role": "model"}}]'),
}
URLS = {
    "chat": "https://api.openai.com/v1/chat/completions",
    "responses": "https://api.openai.com/v1/responses",
    "anthropic": "https://api.anthropic.com/v1/messages",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/models/m:streamGenerateContent?alt=sse",
}


@cache
def stream(api: str, megabytes: int) -> bytes:
    """The events before the deltas, the deltas as often as it takes, then the end."""
    path, mark = RECORDINGS[api]
    recorded = (WIRE / path).read_bytes()
    border = b"\r\n\r\n" if b"\r\n\r\n" in recorded else b"\n\n"
    events = recorded.removesuffix(border).split(border)
    at = [place for place, event in enumerate(events) if mark in event]
    deltas, end = events[at[0] : at[-1] + 1], events[at[-1] + 1 :]
    times = megabytes * 1_000_000 // sum(len(event + border) for event in deltas) + 1
    if api == "responses":
        end = _with_text(end, b"".join(deltas), times)
    body = border.join([*events[: at[0]], *deltas * times, *end, b""])
    if api == "responses":
        numbers = iter(range(len(events) + len(deltas) * times))
        body = re.sub(rb'"sequence_number":\d+', lambda _: b'"sequence_number":%d' % next(numbers), body)
    return body


def _with_text(end: list[bytes], deltas: bytes, times: int) -> list[bytes]:
    """The last events of Responses say once more what was said."""
    said = "".join([json.loads(found) for found in re.findall(rb'"delta":("[^"]*")', deltas)])
    old, new = json.dumps(said), json.dumps(said * times)
    return [event.replace(b'"text":' + old.encode(), b'"text":' + new.encode()) for event in end]


def text_of(api: str, event: Any) -> str:
    """The text in a parsed event: the least that a reader has to find."""
    if api == "chat":
        return "".join([choice["delta"].get("content") or "" for choice in event["choices"]])
    if api == "responses":
        return event["delta"] if event["type"] == "response.output_text.delta" else ""
    if api == "anthropic":
        return event["delta"]["text"] if event["type"] == "content_block_delta" else ""
    return "".join([part["text"] for candidate in event["candidates"] for part in candidate["content"]["parts"]])


def texts_in(api: str, body: bytes) -> list[str]:
    """What a reader has to tell: each text that is not empty."""
    events = [json.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: {")]
    return list(filter(None, [text_of(api, event) for event in events]))


def client(body: bytes) -> httpx.AsyncClient:
    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), PIECE):
            yield body[at : at + PIECE]

    def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=pieces())

    return httpx.AsyncClient(transport=httpx.MockTransport(answer))
