"""What every wire's reader has in common: events in, chunks out, and no waiting.

Here live the reader's contract, the decoding of JSON as services send it, and the joining of characters that
were cut in two. What an event means is each wire's own module; reading the bytes is `_http.py`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any

import msgspec

from .._chunks import Chunk
from .._errors import ProviderError
from ._bounds import Bounds
from ._json_values import object_of

# Fast, and strict: raises `ValueError` also for half a surrogate pair, which `decode_json` lets through.
decode_strictly = msgspec.json.Decoder().decode


class AnswerReader(ABC):
    """Reads one answer. What is to be sent piles up in `chunks`; whoever sends it clears the list.

    `event` takes the events of a stream, or `whole` the one document of an answer that is not streamed. `take_common`
    is a short way for those events of which there are thousands; what it does not take goes to `event`. `close`
    is called once, when `ended` has become true or the body is over: it adds `Finish` and what was held
    back, or raises. Each may raise `ProviderError`; what it had added to `chunks` before still counts.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.chunks: list[Chunk] = []
        self.ended = False

    @abstractmethod
    def event(self, name: str, data: str) -> None: ...

    @abstractmethod
    def take_common(self, raw: list[bytes], at: int) -> int:
        """Take events in raw bytes from a place on, as long as they are plain. Gives the place of the first left."""

    @abstractmethod
    def whole(self, document: Any) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def stray(self, text: str) -> None:  # noqa: B027  # not abstract: most readers need not look
        """What stood between the events and looks like JSON, told when the body is over. A reader may ignore it."""


def decode_json(data: str | bytes) -> Any:
    """The JSON value. Lone surrogates are let through; raises `ValueError` for what is not JSON."""
    try:
        return decode_strictly(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # msgspec refuses half a surrogate pair, which some services send at the border of two deltas:
        # test_a_character_cut_between_two_deltas_is_joined.
        if "\\u" not in data if isinstance(data, str) else b"\\u" not in data:
            raise ValueError("it is not JSON") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def event_object(data: str) -> dict[str, Any]:
    """The object that an event carries; `null` counts as an empty one. Anything else is a `protocol` error.

    One that cannot be decoded may be tried again, since what garbled it was most likely on the way.
    """
    try:
        value = decode_json(data)
    except ValueError as error:
        raise unreadable("an event", error, data) from None
    if isinstance(value, dict) or value is None:
        return object_of(value)
    raise ProviderError("protocol", f"the server sent an event that is no object: {excerpt(data)}")


def unreadable(what: str, error: ValueError, text: str) -> ProviderError:
    return ProviderError("protocol", f"the server sent {what} that cannot be read: {error}: {excerpt(text)}", True)


def excerpt(text: str, limit: int = 80) -> str:
    """The beginning of the text, fit for an error message."""
    short = " ".join(text[: limit * 4].split())
    return short if len(short) <= limit else f"{short[:limit]}…"


def is_complete(data: str) -> bool:
    """Whether the data of a last event that lacks its blank line arrived whole (it may be cut)."""
    if data.strip() == "[DONE]":
        return True
    try:
        return isinstance(decode_json(data), dict)
    except ValueError:
        return False


class HalfCharacters:
    """Joins a character beyond U+FFFF whose two halves came in two deltas of one block."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = ""

    def join(self, text: str) -> str:
        """The text that can be told now; a first half at its end waits for the next one."""
        if not text or not (self.held or "\ud800" <= text[-1] <= "\udbff"):
            return text
        text = self.held + text
        self.held = ""
        if "\ud800" <= text[-1] <= "\udbff":
            self.held, text = text[-1], text[:-1]
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")

    def flush(self) -> str:
        held, self.held = self.held, ""
        return held
