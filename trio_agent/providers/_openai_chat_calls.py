"""Tool calls out of the fragments in which servers of Chat Completions send them.

Here lives the one question that is hard: to which call does a fragment belong? Indices may be missing,
null, or the same for all; ids may be missing, or repeated on every fragment; and some gateways send each call
once more at the end, as a whole. No rule names a server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._chunks import Chunk, ToolCallDelta, ToolCallStart
from .._errors import ProviderError
from ._answer import HalfCharacters
from ._bounds import Bounds
from ._conversation import ToolNames
from ._fragments import encode_json
from ._json_progress import JSONProgress
from ._json_values import object_of, objects_of, text_of


class _Call:
    __slots__ = ("block", "held", "id", "name", "progress", "size", "texts")

    def __init__(self, call_id: str) -> None:
        self.id = call_id
        self.name = ""
        self.block = -1  # not told of yet: the name has not come
        self.held: list[str] = []
        self.size = 0
        self.progress = JSONProgress()
        self.texts = HalfCharacters()


class CallFragments:
    """Puts fragments together and tells of them as chunks. `open_block` gives the next block's index."""

    def __init__(self, bounds: Bounds, names: ToolNames, chunks: list[Chunk], open_block: Callable[[], int]) -> None:
        self._bounds = bounds
        self._names = names
        self._chunks = chunks
        self._open_block = open_block
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def take(self, entries: Any) -> None:
        """The `tool_calls` of a delta or a message. What has not the shape of one is left out."""
        for entry in objects_of(entries):
            self._take(entry)

    def close(self) -> None:
        """The answer is over. Raises `ProviderError` for a call that never got a name."""
        for call in self._calls:
            if call.block < 0:
                raise ProviderError("protocol", "the server sent a tool call without a name")
            if rest := call.texts.flush():
                self._chunks.append(ToolCallDelta(call.block, rest))

    def _take(self, entry: dict[str, Any]) -> None:
        function = object_of(entry.get("function")) or entry
        name = text_of(function.get("name"))
        call_id = entry.get("id")
        call_id = str(call_id) if isinstance(call_id, str | int) and call_id != "" else ""
        index = entry.get("index")
        index = index if isinstance(index, int) and not isinstance(index, bool) else None
        arguments = _arguments_text(function.get("arguments"))
        call = self._belongs_to(index, call_id, name, arguments)
        if call is None:
            call = self._open(index, call_id)
        elif index is not None:
            self._by_index.setdefault(index, call)
        if name and not call.name:
            call.name = name
            self._start(call)
        self._extend(call, arguments)

    def _belongs_to(self, index: int | None, call_id: str, name: str, arguments: str) -> _Call | None:
        """The call that the fragment continues, or None where it begins one."""
        if not self._calls:
            return None
        if call_id:
            known = next((call for call in reversed(self._calls) if call.id == call_id), None)
            if known is not None and (index is None or self._by_index.get(index, known) is known):
                return known
        at_index = self._by_index.get(index) if index is not None else None
        if at_index is not None:
            begins = name and call_id and at_index.id and call_id != at_index.id
            return None if begins or (name and name != at_index.name and at_index.name) else at_index
        if index is not None and (name or call_id):
            return None
        last = self._calls[-1]
        if not name:
            return None if call_id and last.id and last.progress.complete else last
        if call_id and last.id != call_id:
            return None
        # Neither index nor id: a name begins a call, unless it is only repeated on every fragment.
        begins = not last.name or (
            name == last.name and not last.progress.complete and not _opens_object(last, arguments)
        )
        return last if begins else None

    def _open(self, index: int | None, call_id: str) -> _Call:
        if len(self._calls) >= self._bounds.calls:
            raise ProviderError("protocol", f"the server sent more than {self._bounds.calls} tool calls in one answer")
        call = _Call(call_id)
        self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        return call

    def _start(self, call: _Call) -> None:
        call.block = self._open_block()
        self._chunks.append(ToolCallStart(call.block, call.id or None, self._names.own(call.name)))
        if call.held:
            self._chunks.append(ToolCallDelta(call.block, "".join(call.held)))
            call.held.clear()

    def _extend(self, call: _Call, text: str) -> None:
        if not text:
            return
        if call.progress.complete and not text.isspace():
            # The whole call once more, or a closing summary: what is complete is not added to (B049).
            return
        call.size += len(text)
        call.progress.feed(text)
        if call.size > self._bounds.arguments:
            raise ProviderError("protocol", f"the arguments of a tool call exceed {self._bounds.arguments} characters")
        if call.progress.deepest > self._bounds.nesting:
            raise ProviderError(
                "protocol", f"the arguments of a tool call are nested deeper than {self._bounds.nesting}"
            )
        if text := call.texts.join(text):
            if call.block < 0:
                call.held.append(text)
            else:
                self._chunks.append(ToolCallDelta(call.block, text))


def _opens_object(call: _Call, arguments: str) -> bool:
    """Whether the fragment would begin arguments although the call has some already."""
    return call.size > 0 and arguments.lstrip().startswith("{")


def _arguments_text(arguments: Any) -> str:
    """The fragment of arguments: text, nothing, or for some servers the finished object."""
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else encode_json(arguments).decode()
