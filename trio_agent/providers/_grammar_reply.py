"""Reads a reply that is held to `reply_schema` while it streams: JSON text in, chunks out.

Here lives the reader of one reply, without I/O. Where its text comes from and where its chunks go is in
`_grammar_tools.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, Literal, cast

from .._chunks import Chunk, TextDelta, ToolCallDelta, ToolCallStart
from .._errors import ProviderError
from .._json import dumps, loads
from ._extras import needs

_OPENING: Final = " \t\r\n"


class Reply:
    """One reply, read piece by piece. `index` names its block; `has_call` says whether it calls a tool.

    An answer is told as it grows, a call when its name is known and again when its arguments are complete. Text that is
    not such JSON (a server that knows no schemas) is told as it is, unless part of it was told as something else
    already: then `ProviderError` of kind `protocol`. Chatter behind a call is dropped.
    """

    def __init__(self, index: int) -> None:
        self._index = index
        self._text = ""
        self._kind: Literal["unknown", "plain", "answer", "call"] = "unknown"
        self._told = ""
        self._parse = needs("jiter", "local").from_json

    @property
    def has_call(self) -> bool:
        return self._kind == "call"

    def feed(self, text: str) -> Iterator[Chunk]:
        """Take more text and give the chunks that follow from it."""
        self._text += text
        if self._kind == "unknown":
            yield from self._recognise()
        elif self._kind == "plain":
            yield TextDelta(self._index, text)
        elif self._kind == "answer":
            yield from self._tell_answer(self._partial())

    def end(self) -> Iterator[Chunk]:
        """The text is over, complete or cut: give what has not been told."""
        if self._kind == "call":
            yield ToolCallDelta(self._index, dumps(self._arguments()))
        elif self._kind == "answer":
            if chatter := self._behind().strip():
                yield TextDelta(self._index, f"\n{chatter}")
        elif self._kind == "unknown" and self._text:
            yield TextDelta(self._index, self._text)

    def _recognise(self) -> Iterator[Chunk]:
        begun = self._text.lstrip(_OPENING)
        value = self._partial() if begun.startswith("{") else None
        if begun and value is None:
            self._kind = "plain"
            yield TextDelta(self._index, self._text)
        elif value is not None and isinstance(value.get("answer"), str):
            self._kind = "answer"
            yield from self._tell_answer(value)
        # The name is complete once the arguments have begun.
        elif value is not None and isinstance(value.get("tool"), str) and "arguments" in value:
            self._kind = "call"
            yield ToolCallStart(self._index, None, value["tool"])

    def _tell_answer(self, value: dict[str, Any] | None) -> Iterator[Chunk]:
        answer = None if value is None else value.get("answer")
        if not isinstance(answer, str) or not answer.startswith(self._told):
            raise self._broken()
        if more := answer[len(self._told) :]:
            self._told = answer
            yield TextDelta(self._index, more)

    def _partial(self) -> dict[str, Any] | None:
        """The object as far as it has come, or None where the text is no JSON object."""
        try:
            value = self._parse(self._text.encode("utf-8", "surrogatepass"), partial_mode="trailing-strings")
        except ValueError:
            return None
        return cast(dict[str, Any], value) if isinstance(value, dict) else None

    def _behind(self) -> str:
        """What follows the object; nothing, where it was cut."""
        try:
            _, end = json.JSONDecoder().raw_decode(self._text.lstrip(_OPENING))
        except ValueError:
            return ""
        return self._text.lstrip(_OPENING)[end:]

    def _arguments(self) -> Any:
        """A call's arguments. Those of a text that was cut are what had come: such a call is not run (T6)."""
        try:
            value = loads(self._text)
        except ValueError:
            value = self._partial()
        try:
            arguments = cast(dict[str, Any], value)["arguments"]
            dumps(arguments)
        except (KeyError, TypeError, ValueError):
            raise self._broken() from None
        return arguments

    def _broken(self) -> ProviderError:
        begun = self._text[:80]
        return ProviderError("protocol", f"the model's reply is not the JSON that was asked for: {begun!r}")
