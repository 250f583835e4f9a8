"""Bytes as text and back, without changing what nobody asked to change: encoding, byte order mark, line ends.

Here live plain functions. Files are in `_workspace.py` and `_writing.py`, finding and replacing in `_edits.py`.
"""

from __future__ import annotations

import codecs
from typing import Any, Final

import attrs

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark its own begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LOOKED_AT: Final = 65_536
_IMAGES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


class BinaryError(ValueError):
    """Bytes that are no text."""


class EncodingError(ValueError):
    """Text that the encoding of its file cannot say."""


@attrs.frozen
class Format:
    """How a file holds its text."""

    encoding: str = "utf-8"
    mark: bytes = b""

    @property
    def name(self) -> str:
        return f"{self.encoding} with a byte order mark" if self.mark else self.encoding

    def decode(self, data: bytes) -> str:
        """The text behind the mark, line ends as they are. Raises `UnicodeDecodeError`."""
        return data[len(self.mark) :].decode(self.encoding)

    def encode(self, text: str) -> bytes:
        """The bytes of a text, mark included. Raises `EncodingError`."""
        try:
            return self.mark + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            bad = error.object[error.start : error.end][:20]
            raise EncodingError(f"the file is {self.encoding}, which has no {bad!r}") from None


UTF8: Final = Format()


def image_type(data: bytes) -> str | None:
    """The media type of an image that models can be shown; None for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES if data.startswith(magic)), None)


def detect(data: bytes) -> Format:
    """How these bytes hold text: by their mark, else UTF-8, else as a library guesses. Raises `BinaryError`.

    May be given the beginning of a file alone, which may end inside a character.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return Format(encoding, mark)
    if b"\0" in data:
        raise BinaryError("it holds NUL bytes")
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return Format(_guessed(data))
    return UTF8


def _guessed(data: bytes) -> str:
    try:
        from charset_normalizer import from_bytes
    except ModuleNotFoundError as error:
        if error.name != "charset_normalizer":
            raise
        raise BinaryError(
            "it is not UTF-8, and to find out what it is takes the extra `tools`: pip install 'trio-agent[tools]'"
        ) from None
    sample: Any = data[:_LOOKED_AT]
    best = from_bytes(sample).best()
    if best is None:
        raise BinaryError("it is text in no encoding that is known")
    return best.encoding


def is_all_crlf(text: str) -> bool:
    """Whether each line end is CR LF, and there is one."""
    count = text.count("\r\n")
    return count > 0 and count == text.count("\n")


def lf(text: str) -> str:
    """The same text with LF as line ends."""
    return text.replace("\r\n", "\n")
