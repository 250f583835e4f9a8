"""The bytes of a body as the server meant them: decompressed, and never more than is allowed.

Here lives the one place that counts an answer's bytes. Compression is not asked for; where a server
compresses all the same, a small body may not become a huge one.
"""

from __future__ import annotations

import zlib

from .._errors import ProviderError


class BytesAtHand:
    """An async iterator over pieces that are there already. No generator: nothing is left when it is dropped."""

    __slots__ = ("_pieces",)

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = iter(pieces)

    def __aiter__(self) -> BytesAtHand:
        return self

    async def __anext__(self) -> bytes:
        for piece in self._pieces:
            return piece
        raise StopAsyncIteration


class Inflater:
    """Takes a body as it comes and gives it back decompressed, at most `limit` bytes over all.

    Raises `ProviderError("protocol", …)` beyond that, for an encoding it does not know, and for broken data.
    """

    __slots__ = ("_inflate", "_left", "_limit")

    def __init__(self, encoding: str, limit: int) -> None:
        encoding = encoding.strip().lower()
        self._limit = self._left = limit
        if encoding in ("", "identity"):
            self._inflate = None
        elif encoding in ("gzip", "x-gzip", "deflate"):
            # 32 means: look at the header to tell gzip from zlib.
            self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
        else:
            raise ProviderError(
                "protocol", f"the server compressed its answer as {encoding[:40]!r}, which was not asked for"
            )

    def feed(self, data: bytes) -> bytes:
        if self._inflate is not None:
            try:
                # One byte more than is allowed, so that too much is seen as such.
                data = self._inflate.decompress(data, self._left + 1)
            except zlib.error as error:
                raise ProviderError("protocol", f"the server's compressed answer is broken: {error}") from None
        self._left -= len(data)
        if self._left < 0:
            raise ProviderError("protocol", f"the server sent more than {self._limit} bytes in one answer")
        return data
