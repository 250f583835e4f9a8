"""Messages and events to JSON and back, without loss.

Here lives the public face, and what makes a line of an object. How each class looks as JSON is the table in
`_codec_table.py`; files and sockets are others' business.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from ._codec_fields import json_object
from ._codec_table import read, write
from ._events import Delta, Event
from ._json import dumps, loads
from ._messages import Block, Message

Encodable: TypeAlias = Event | Message | Delta | Block

# Surrogates, which UTF-8 cannot carry, and what other readers than ours may take for the end of a line.
_UNSAFE: Final = re.compile("[\ud800-\udfff\x85\u2028\u2029]")


def encode(value: Encodable) -> dict[str, Any]:
    """The JSON object of an event, a message, a delta or a content block, as section 6 of the specification has it.

    The result belongs to the caller. A string in it may hold lone surrogates, as the value does: `encode_line`
    makes text of it that is valid UTF-8. A call's `arguments` are null where their text is not JSON, or holds a
    number or a nesting that Python cannot; `raw` has the text then. Raises `TypeError` for any other value.
    """
    return write(value)


def encode_line(value: Encodable) -> str:
    """The same as one line of text, without the newline, and always valid as UTF-8.

    Lone surrogates are escaped. Two in a row that make a pair are read back as the character that they mean.
    """
    return escape(dumps(encode(value)))


def escape(json_text: str) -> str:
    """Escape what JSON text may hold and a line of UTF-8 may not, or had better not."""
    return json_text if json_text.isascii() else _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text)


def decode(data: Mapping[str, Any]) -> Encodable:
    """What `encode` made an object of. Fields that this version does not know are passed over.

    Raises `ValueError` that names the JSON path of what is missing or wrong. An event from JSON carries no view of
    its message: `MessageUpdate.message` is None.
    """
    fields = json_object(data, "")
    value: Encodable = read(fields, "", "role" if "role" in fields and "type" not in fields else "type")
    return value


def decode_line(line: str | bytes) -> Encodable:
    """The same from a line of text. Raises `ValueError` for what is not JSON, not UTF-8 or not one of ours."""
    try:
        data = loads(line.decode() if isinstance(line, bytes) else line)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    return decode(data)
