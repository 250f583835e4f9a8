"""Bytes of an event stream to events, whatever the borders at which they arrive.

Here lives the splitting into events and lines, which must know CRLF, CR and LF and nothing else, and the bounds
on size. What a line means is httpx-sse's business, but for the events that a reader knows at sight: those it may have
as raw bytes. Nothing in here waits.
"""

from __future__ import annotations

from httpx_sse import ServerSentEvent
from httpx_sse._decoders import SSEDecoder

from .._errors import ProviderError

_BOM = b"\xef\xbb\xbf"
_JSON_STARTS = frozenset(b'{}[]" \t')  # no field of an event begins so
_MOST_STRAY_BYTES = 65536


class EventDecoder:
    """Feed it the body as it comes; it gives the events that are complete and carry data.

    `split` gives those raw that came in one piece or two, and `read` makes an event of such bytes.

    Lines are split in bytes, where neither a character nor U+2028 can be mistaken for a line end, and
    decoded one by one; what is not UTF-8 becomes U+FFFD. Events without data (heartbeats, `retry`, `id`) are
    left out. Lines that look like JSON and belong to no event are kept in `strays`, as far as there is room: some
    servers break a stream off by writing their error into it. Raises `ProviderError("protocol", …)` for an event
    beyond `max_event` bytes.
    """

    __slots__ = (
        "_after_cr",
        "_decode",
        "_first",
        "_max_event",
        "_partial",
        "_pending",
        "_room",
        "_size",
        "_tail",
        "strays",
    )

    def __init__(self, max_event: int) -> None:
        self._decode = SSEDecoder().decode
        self._max_event = max_event
        self._partial: list[bytes] = []
        self._pending = 0  # bytes in `_partial`
        self._size = 0  # bytes of the complete lines of an event that is not complete
        self._tail = b""  # what came behind the last event that `split` gave raw
        self._after_cr = False
        self._first = True
        self.strays: list[bytes] = []
        self._room = _MOST_STRAY_BYTES  # for strays

    def split(self, data: bytes) -> tuple[list[ServerSentEvent], list[bytes]]:
        """The events that had to be read line by line, and behind them those that are all there, each in raw bytes.

        An event that comes in many small pieces is read by lines, so that no byte is looked at over and over.
        """
        if self._after_cr or b"\r" in data:
            data = self._without_cr(data)
        events: list[ServerSentEvent] = []
        if self._tail:
            data, self._tail = self._tail + data, b""
        elif self._partial or self._size:  # in the middle of an event that is read by lines
            border = data.find(b"\n\n") + 2
            if border < 2:
                return self._feed(data), []
            events, data = self._feed(data[:border]), data[border:]
        end = data.rfind(b"\n\n")
        if end < 0 or len(data) > self._max_event or (self._first and data.startswith(_BOM[:1])):
            return events + self._feed(data), []
        self._first = False
        self._tail = data[end + 2 :]
        return events, data[:end].split(b"\n\n")

    def read(self, raw: bytes) -> list[ServerSentEvent]:
        """What one of the raw events says: it is the only one here, or there is none in it."""
        return self._events([*raw.split(b"\n"), b""])

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """All events that are complete by now, read line by line. Not to be mixed with `split`."""
        return self._feed(self._without_cr(data) if self._after_cr or b"\r" in data else data)

    def _feed(self, data: bytes) -> list[ServerSentEvent]:
        lines = data.split(b"\n")
        rest = lines.pop()
        if lines:
            if self._partial:
                lines[0] = b"".join((*self._partial, lines[0]))
                self._partial.clear()
                self._pending = 0
            if self._first:
                self._first = False
                lines[0] = lines[0].removeprefix(_BOM)
        if rest:
            self._partial.append(rest)
            self._pending += len(rest)
            if self._size + self._pending > self._max_event:
                raise self._too_large()
        return self._events(lines)

    def _without_cr(self, data: bytes) -> bytes:
        # A CR at the end of a chunk ends its line at once, so that the LF of a CRLF may come in the next:
        # test_every_event_arrives_whatever_ends_its_lines.
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if data.endswith(b"\r"):
            self._after_cr = True
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def close(self) -> ServerSentEvent | None:
        """The event that lacks its blank line, if the body ended in one. It may be cut."""
        lines = b"".join((self._tail, *self._partial)).split(b"\n")
        self._tail = b""
        self._partial.clear()
        if self._first:
            lines[0] = lines[0].removeprefix(_BOM)
        events = self._events([*lines, b""])
        return events[0] if events else None

    def _events(self, lines: list[bytes]) -> list[ServerSentEvent]:
        events: list[ServerSentEvent] = []
        decode, size, max_event = self._decode, self._size, self._max_event
        for line in lines:
            if not line:
                size = 0
                event = decode("")
                if event is not None and (text := event.data) and not text.isspace():
                    events.append(event)
            elif line[0] != 58:  # a comment begins with a colon and takes no room
                size += len(line)
                if size > max_event:
                    raise self._too_large()
                decode(line.decode("utf-8", "replace"))
                if line[0] in _JSON_STARTS and self._room > 0:
                    self.strays.append(line)
                    self._room -= len(line)
        self._size = size
        return events

    def _too_large(self) -> ProviderError:
        return ProviderError("protocol", f"the server sent an event of more than {self._max_event} bytes")
