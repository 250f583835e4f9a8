"""What of a history a model is sent: the default `convert_to_llm`.

Here lives the repair that makes any sequence of messages sendable: each call has exactly one result, directly
behind its message, in call order. What one service in particular cannot take is its provider's business.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs

from ._history import History, View
from ._messages import AssistantMessage, Message, Text, ToolCall, ToolResultMessage

_log = logging.getLogger("trio_agent")

# What a model reads where a result is missing. It must not take the work for undone, nor for done (B011).
INTERRUPTED: Final = "no result: the call was interrupted and may have partly run"

_CUT: Final = ("error", "aborted", None)  # None: still streaming, so what it asks for may be cut as well
_HOLE: Final = ToolResultMessage("", "")  # where a result belongs that has not been met yet
_NO_HOLES: Final[tuple[int, ...]] = ()


def project(messages: Iterable[Message], *, told: set[str] | None = None) -> tuple[Message, ...]:
    """The messages that a model can be sent, in their order. Never raises; the input is left alone.

    Custom messages are left out, and so are the calls of answers that ended `error` or `aborted`, answers
    without a word (of those two kinds also answers of thinking alone), and results that no call asked for or
    that another result came before. Results move to directly behind the message of their call, in call order. A
    call without a result gets one that says it was interrupted. An id that an earlier call has already is
    replaced, in the call and its result. A result belongs to the last message before it with a call of its id,
    or else to the first one behind it. What needs none of that comes out as the same object.

    What is repaired is logged, once for each entry of `told` if the caller keeps that set.
    """
    repair = _Repair(set() if told is None else told)
    for message in messages:
        repair.add(message)
    return tuple(repair.view())


class IncrementalProjection:
    """`project` of a history that is looked at again and again.

    An update costs time in proportion to the messages that are new, however long the history is. Only a new
    epoch, or a result that comes for a call that was shown as interrupted, costs time in proportion to all of it.
    """

    __slots__ = ("_epoch", "_history", "_read", "_repair", "_told")

    def __init__(self) -> None:
        self._told: set[str] | None = None  # made at first use, as is the repair: an idle agent needs neither
        self._history: History[Message] | None = None
        self._epoch = 0
        self._read = 0
        self._repair: _Repair | None = None

    @property
    def told(self) -> set[str]:
        """What has been logged, for `project` too."""
        if self._told is None:
            self._told = set()
        return self._told

    def update(self, history: History[Message]) -> View[Message]:
        """What `project` makes of the history as it is now. Views given out before stay as they were."""
        repair = self._repair
        if repair is None or history is not self._history or history.epoch != self._epoch:
            self._history, self._epoch, self._read = history, history.epoch, 0
            self._repair = repair = _Repair(self.told)
        for message in history.since(self._read):
            repair.add(message)
        self._read = len(history)
        return repair.view()


class _Repair:
    """Takes messages one by one and keeps the sendable sequence of those so far.

    A call makes room for its result at once, so that a result never moves what is behind it: it fills its hole,
    or takes the place of a placeholder. Views share the list, hence what one has shown is not written over but
    copied first (test_a_late_result_leaves_earlier_views_alone).
    """

    __slots__ = ("_early", "_holes", "_ids", "_missing", "_sent", "_shown", "_told", "_unclaimed")

    def __init__(self, told: set[str]) -> None:
        self._told = told
        self._sent: list[Message] = []
        self._shown = 0  # so many items of the list are part of a view
        self._ids: dict[str, int] = {}  # of the calls that are sent, and how often a name was sought for each
        self._holes: dict[str, Sequence[int]] = {}  # id of a call as it came -> where its results are awaited
        self._missing: dict[int, ToolCall] = {}  # place -> the call whose result is awaited there; places ascend
        self._early: dict[str, list[ToolResultMessage]] = {}  # results that came before any call of their id
        self._unclaimed: list[str] = []  # the ids of those that came since the last view

    def add(self, message: Message) -> None:
        if message.role == "tool_result":
            self._add_result(message)
        elif message.role == "assistant":
            self._add_answer(message)
        elif message.role == "user":
            self._sent.append(message)
        # Anything else is the application's own and not for the model.

    def view(self) -> View[Message]:
        """The sequence so far, with a placeholder for each result that is missing."""
        if self._missing or self._unclaimed:
            self._fill_holes()
        self._shown = len(self._sent)
        return View(self._sent, self._shown)

    def _fill_holes(self) -> None:
        for at in reversed(self._missing):
            if self._sent[at] is not _HOLE:
                break
            call = self._missing[at]
            self._sent[at] = ToolResultMessage(call.id, call.name, INTERRUPTED, is_error=True)
            self._tell("added a result for the call %r, which has none", call.id)
        for call_id in self._unclaimed:
            if call_id in self._early:
                self._tell("left out the result of the call %r, which is not there", call_id)
        self._unclaimed.clear()

    def _add_answer(self, message: AssistantMessage) -> None:
        calls = message.tool_calls
        if message.stop_reason in _CUT:
            if calls:
                self._await_results({call.id: _NO_HOLES for call in calls})
                message = _without_calls(message)
            keep = _has_words(message)
        elif calls:
            self._add_calls(message, calls)
            return
        else:
            keep = any(not isinstance(block, Text) for block in message.content) or _has_words(message)
        if keep:
            self._sent.append(message)
        else:
            _log.debug("left out an assistant message without text (stop reason %s)", message.stop_reason)

    def _add_calls(self, message: AssistantMessage, calls: tuple[ToolCall, ...]) -> None:
        if len(calls) == 1 and calls[0].id and calls[0].id not in self._ids and not self._early:
            self._add_call(message, calls[0])
            return
        named = tuple([self._uniquely_named(call) for call in calls])
        if named != calls:
            renamed = iter(named)
            blocks = [next(renamed) if type(block) is ToolCall else block for block in message.content]
            message = attrs.evolve(message, content=blocks)
        self._sent.append(message)
        holes: dict[str, list[int]] = {}
        for call, sent in zip(calls, named, strict=True):
            at = len(self._sent)
            self._sent.append(_HOLE)
            self._missing[at] = sent
            holes.setdefault(call.id, []).append(at)
        self._await_results(holes)

    def _add_call(self, message: AssistantMessage, call: ToolCall) -> None:
        """What `_add_calls` does, for one call of an id that nobody has met: as most are."""
        self._ids[call.id] = 1
        self._sent.append(message)
        at = len(self._sent)
        self._sent.append(_HOLE)
        self._missing[at] = call
        self._holes[call.id] = (at,)

    def _await_results(self, holes: Mapping[str, Sequence[int]]) -> None:
        self._holes.update(holes)
        for call_id in holes:
            for result in self._early.pop(call_id, ()):
                self._add_result(result)

    def _add_result(self, result: ToolResultMessage) -> None:
        holes = self._holes.get(result.tool_call_id)
        if holes is None:
            self._early.setdefault(result.tool_call_id, []).append(result)
            self._unclaimed.append(result.tool_call_id)
        elif holes:
            self._holes[result.tool_call_id] = holes[1:] or _NO_HOLES
            self._fill(holes[0], result)
        else:
            self._tell("left out a result of the call %r, which has one already or was cut off", result.tool_call_id)

    def _fill(self, at: int, result: ToolResultMessage) -> None:
        call = self._missing.pop(at)
        if call.id != result.tool_call_id:
            result = ToolResultMessage(call.id, result.tool_name, result.content, result.is_error, result.details)
        if at < self._shown:
            self._sent = self._sent.copy()
            self._shown = 0
        self._sent[at] = result

    def _uniquely_named(self, call: ToolCall) -> ToolCall:
        if call.id and call.id not in self._ids:
            self._ids[call.id] = 1
            return call
        # Counting on from the last name keeps a history whose ids repeat in every turn linear.
        number = self._ids.get(call.id, 0) + 1
        while (call_id := f"{call.id or 'call'}_{number}") in self._ids:
            number += 1
        self._ids[call.id] = number
        self._ids[call_id] = 1
        self._tell("sent a call with the id %r of an earlier one under an id of its own", call.id)
        return ToolCall(call_id, call.name, raw=call.raw, signature=call.signature)

    def _tell(self, text: str, call_id: str) -> None:
        """Log a repair, unless it was before."""
        line = text % (call_id,)
        if line not in self._told:
            self._told.add(line)
            _log.warning("history was not sendable as it is: %s", line)


def _without_calls(message: AssistantMessage) -> AssistantMessage:
    _log.debug("left out the tool calls of an assistant message that ended %s", message.stop_reason)
    return attrs.evolve(message, content=[block for block in message.content if type(block) is not ToolCall])


def _has_words(message: AssistantMessage) -> bool:
    return any(isinstance(block, Text) and not _is_blank(block.text) for block in message.content)


def _is_blank(text: str) -> bool:
    return not text or text.isspace()
