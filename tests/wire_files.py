"""What the wires' tests share: the recorded bodies, a transport that plays bytes, and one question to a provider.

Here lives no expectation about any API. The bodies and where they come from are in `wire/`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import httpx
import trio

from trio_agent._assembly import Assembly
from trio_agent._chunks import Chunk
from trio_agent._errors import ProviderError
from trio_agent._messages import AssistantMessage, Message, Thinking, UserMessage
from trio_agent._request import ModelRequest

WIRE = Path(__file__).parent / "wire"


@attrs.frozen(repr=False)
class Recorded:
    """A recorded body, and what a right reader gets out of it."""

    name: str
    body: bytes
    meta: dict[str, Any]

    @property
    def expected(self) -> dict[str, Any]:
        return self.meta["expected"]

    def __repr__(self) -> str:
        return self.name


def recorded(folder: str) -> list[Recorded]:
    """All bodies of an API, or of `errors`."""
    found: list[Recorded] = []
    for sidecar in sorted((WIRE / folder).glob("*.meta.json")):
        meta = json.loads(sidecar.read_text())
        found.append(Recorded(meta["file"], (sidecar.parent / meta["file"]).read_bytes(), meta))
    assert found, folder
    return found


class Pieces(httpx.AsyncByteStream):
    """A body that arrives in these pieces. An exception among them breaks it off."""

    def __init__(self, pieces: Iterable[bytes | Exception]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            await trio.lowlevel.checkpoint()
            if isinstance(piece, Exception):
                raise piece
            yield piece


class PlayingTransport(httpx.AsyncBaseTransport):
    """Answers every request with the same pieces, and keeps what it was asked."""

    def __init__(
        self, pieces: Iterable[bytes | Exception], status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        self._pieces = pieces
        self._status = status
        self._headers = headers or {"content-type": "text/event-stream"}
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        self.requests.append(request)
        return httpx.Response(self._status, headers=self._headers, stream=Pieces(self._pieces))


@attrs.frozen
class Answer:
    """What came of one request: the chunks, the message that they make, and the error if it failed."""

    chunks: list[Chunk]
    message: AssistantMessage
    error: ProviderError | None

    @property
    def thinking(self) -> str:
        return "".join([block.text for block in self.message.content if isinstance(block, Thinking)])

    @property
    def signatures(self) -> list[str]:
        return [block.signature for block in self.message.content if isinstance(block, Thinking) and block.signature]

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        return [(call.id, call.name, call.raw) for call in self.message.tool_calls]

    def clean(self) -> AssistantMessage:
        """The message of an answer that did not fail."""
        assert self.error is None, self.error
        return self.message

    def failed(self) -> ProviderError:
        assert self.error is not None, self.message
        return self.error


HELLO = (UserMessage("hello"),)


def a_request(messages: Iterable[Message] = HELLO, **fields: Any) -> ModelRequest:
    return ModelRequest(model=fields.pop("model", "some-model"), messages=tuple(messages), **fields)


async def asked(provider: Any, request: ModelRequest | None = None) -> Answer:
    """Ask, and fold what came as the kernel does: what no answer may contain fails here."""
    chunks: list[Chunk] = []
    assembly = Assembly(set(), model="some-model", provider=provider.name)

    async def send(chunk: Chunk) -> None:
        await trio.lowlevel.checkpoint()
        chunks.append(chunk)
        assembly.fold(chunk)

    try:
        await provider(request or a_request(), send)
        return Answer(chunks, assembly.finish(), None)
    except ProviderError as error:
        return Answer(chunks, assembly.message_at(len(assembly), "error", error.message), error)


async def played(
    make_provider: Any,
    pieces: Iterable[bytes | Exception],
    request: ModelRequest | None = None,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **options: Any,
) -> Answer:
    """Ask a provider, made here, whose service answers with these pieces."""
    transport = PlayingTransport(pieces, status, headers)
    async with httpx.AsyncClient(transport=transport) as client:
        provider = make_provider(client=client, **{"base_url": "http://service.test/v1", **options})
        return await asked(provider, request)


async def sent(make_provider: Any, request: ModelRequest, pieces: Iterable[bytes], **options: Any) -> Any:
    """The JSON body that a provider sends for a request; the answer is played and does not matter."""
    transport = PlayingTransport(pieces)
    async with httpx.AsyncClient(transport=transport) as client:
        await asked(make_provider(client=client, **{"base_url": "http://service.test/v1", **options}), request)
    return json.loads(transport.requests[0].content)


def cut(body: bytes, places: Iterable[int]) -> list[bytes]:
    """The body in pieces, cut at these places."""
    borders = [0, *sorted({place for place in places if 0 < place < len(body)}), len(body)]
    return [body[start:end] for start, end in itertools.pairwise(borders) if end > start]


def single_bytes(body: bytes) -> Iterator[bytes]:
    return (body[at : at + 1] for at in range(len(body)))


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def data(value: Any) -> bytes:
    """`D(x)` of the cases: an event that carries this JSON value."""
    return b"data: " + compact(value) + b"\n\n"


def named(event: str, fields: Mapping[str, Any]) -> bytes:
    """`A(t, x)` of the cases: an event with a name, whose object also has it as its type."""
    return b"event: " + event.encode() + b"\ndata: " + compact({"type": event, **fields}) + b"\n\n"


DONE = b"data: [DONE]\n\n"


def delta(fields: Any, finish: str | None = None, **more: Any) -> bytes:
    """`CH(delta, fr)` of the cases: a chunk of Chat Completions."""
    choice = {"index": 0, "delta": fields, "finish_reason": finish}
    return data({"id": "c1", "object": "chat.completion.chunk", "choices": [choice], **more})


def call_delta(*entries: Mapping[str, Any]) -> bytes:
    """A chunk with these entries of `tool_calls`."""
    return delta({"tool_calls": list(entries)})
