"""Traces as files have them: our own JSON lines, and those of another kernel, told in our events.

Here lives the translation, line by line, and nothing that judges. `native` is section 6 of the specification. `pi` is
the format of recorded summaries of the npm package pi-agent-core, of which only what our events have is taken over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias, cast

from .._chunks import TextDelta
from .._codec import decode_line
from .._events import (
    AgentEnd,
    AgentStart,
    Event,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    Outcome,
    ToolCallFragment,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnStart,
)
from .._json import loads, loads_or_none
from .._messages import AssistantMessage, Message, StopReason, Text, ToolCall, ToolResultMessage, UserMessage

Dialect: TypeAlias = Callable[[Iterable[str]], Iterator[tuple[int, Event]]]


def read_native(lines: Iterable[str]) -> Iterator[tuple[int, Event]]:
    """Each event with the number of its line. Blank lines are passed over; raises `ValueError` that names the line."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                event = decode_line(line)
            except ValueError as error:
                if _is_session(line):
                    raise ValueError(
                        "a session, which leaves out what history does not need, and so cannot be judged; "
                        "give the events of a run, as `trio-agent run --json` prints them"
                    ) from None
                raise ValueError(f"line {number}: {error}") from None
            if not isinstance(event, Event):
                raise ValueError(f"line {number}: a {type(event).__name__} is no event")
            yield number, event


def _is_session(line: str) -> bool:
    record: object = loads_or_none(line)
    return isinstance(record, dict) and cast("dict[str, object]", record).get("type") == "session"


def read_pi(lines: Iterable[str]) -> Iterator[tuple[int, Event]]:
    """The events in a recording of pi-agent-core, with their lines. A line may imply updates and so give several."""
    records = [_record(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    events = [(number, record) for number, record in records if record.get("kind") == "event"]
    told = _Pi({str(record["id"]): str(record["tool"]) for _, record in events if "id" in record and "tool" in record})
    for number, record in events:
        try:
            found = told.translate(record)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"line {number}: no event of pi-agent-core: {type(error).__name__} {error}") from None
        for event in found:
            yield number, event


DIALECTS: Final[Mapping[str, Dialect]] = {"native": read_native, "pi": read_pi}


def _record(number: int, line: str) -> tuple[int, dict[str, Any]]:
    try:
        record: object = loads(line)
    except ValueError as error:
        raise ValueError(f"line {number}: not JSON: {error}") from None
    if not isinstance(record, dict) or "kind" not in record:
        raise ValueError(f"line {number}: no record of pi-agent-core; each is an object with a kind")
    return number, cast("dict[str, Any]", record)


_STOPS: Final[Mapping[str, StopReason]] = {
    "stop": "stop",
    "length": "length",
    "toolUse": "tool_use",
    "error": "error",
    "aborted": "aborted",
}
_OUTCOMES: Final[Mapping[StopReason, Outcome]] = {"error": "error", "aborted": "aborted"}


class _Pi:
    """What the summaries leave out and our events have: turn numbers, deltas, results, outcomes.

    A summary has neither the names of tools in messages nor arguments: names are taken from the tool events of the same
    id, arguments are `{}` everywhere. An update has the text so far, so its delta is what is new in it. `agent_end` has
    no outcome: it follows from the last assistant message, and is `stopped` where that one asked for tools.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._turns = 0
        self._in_turn = False
        self._last: AssistantMessage | None = None
        self._results: list[ToolResultMessage] = []
        self._text = ""
        self._calls = 0

    def translate(self, record: Mapping[str, Any]) -> list[Event]:
        translate = _TRANSLATIONS.get(record["type"])
        return [] if translate is None else translate(self, record)

    def agent_start(self, _record: Mapping[str, Any]) -> list[Event]:
        self._turns = 0
        self._in_turn = False
        self._last = None
        return [AgentStart()]

    def turn_start(self, _record: Mapping[str, Any]) -> list[Event]:
        self._turns += 1
        self._in_turn = True
        self._results = []
        return [TurnStart(self._turns)]

    def message_start(self, record: Mapping[str, Any]) -> list[Event]:
        message = self._message(record)
        if not isinstance(message, AssistantMessage):
            return [MessageStart(message)]
        self._text, self._calls = "", 0
        return [MessageStart(AssistantMessage((), None)), *self._news(message)]

    def message_update(self, record: Mapping[str, Any]) -> list[Event]:
        message = self._message(record)
        news = self._news(message) if isinstance(message, AssistantMessage) else []
        return news or [MessageUpdate(TextDelta(0, ""))]

    def message_end(self, record: Mapping[str, Any]) -> list[Event]:
        message = self._message(record)
        if isinstance(message, AssistantMessage):
            self._last = message
        elif isinstance(message, ToolResultMessage):
            self._results.append(message)
        return [MessageEnd(message)]

    def tool_execution_start(self, record: Mapping[str, Any]) -> list[Event]:
        return [ToolExecutionStart(self._call(record["id"]))]

    def tool_execution_update(self, record: Mapping[str, Any]) -> list[Event]:
        text = Text(str(record.get("partial", "")))
        return [ToolExecutionUpdate(record["id"], self._name(record["id"]), (text,))]

    def tool_execution_end(self, record: Mapping[str, Any]) -> list[Event]:
        return [ToolExecutionEnd(self._result(record))]

    def turn_end(self, record: Mapping[str, Any]) -> list[Event]:
        message = self._message(record)
        if not isinstance(message, AssistantMessage):
            raise TypeError("a turn ends with an assistant message")
        left = list(self._results)
        results = tuple([self._taken(call_id, left) for call_id in record["toolResults"]])
        self._turns += not self._in_turn  # a turn that never started counts all the same
        self._in_turn = False
        return [TurnEnd(self._turns, message, results)]

    def agent_end(self, _record: Mapping[str, Any]) -> list[Event]:
        last = self._last
        outcome: Outcome = "completed"
        if last is not None and last.stop_reason is not None:
            outcome = _OUTCOMES.get(last.stop_reason, "stopped" if last.tool_calls else "completed")
        cut = last is not None and last.stop_reason == "length" and outcome == "completed"
        return [AgentEnd(outcome, "length" if cut else None, self._turns)]

    def _taken(self, call_id: str, left: list[ToolResultMessage]) -> ToolResultMessage:
        """The first result of that call that is left; an empty one if the turn had none."""
        for result in left:
            if result.tool_call_id == call_id:
                left.remove(result)
                return result
        return ToolResultMessage(call_id, self._name(call_id))

    def _news(self, message: AssistantMessage) -> list[Event]:
        """What a summary tells that had not been told: more text, further calls."""
        events: list[Event] = []
        text, calls = message.text, message.tool_calls
        new = text.removeprefix(self._text)
        if new:
            events.append(MessageUpdate(TextDelta(0, new)))
        for at, call in enumerate(calls[self._calls :], self._calls):
            events.append(MessageUpdate(ToolCallFragment(1 + at, call.id, call.name, "{}")))
        self._text, self._calls = text, max(self._calls, len(calls))
        return events

    def _message(self, record: Mapping[str, Any]) -> Message:
        summary = record.get("message", {"role": "user"})  # the stream API was recorded without messages
        role, text = summary["role"], str(summary.get("text", ""))
        if role == "toolResult":
            return self._result(summary)
        if role != "assistant":
            return UserMessage(text)
        calls = [self._call(call_id) for call_id in summary.get("calls", ())]
        content = (*((Text(text),) if text else ()), *calls)
        return AssistantMessage(content, _STOPS[summary["stop"]], error_message=summary.get("error"))

    def _result(self, record: Mapping[str, Any]) -> ToolResultMessage:
        call_id = record["id"]
        return ToolResultMessage(call_id, self._name(call_id), str(record.get("text", "")), bool(record["isError"]))

    def _call(self, call_id: str) -> ToolCall:
        return ToolCall(call_id, self._name(call_id))

    def _name(self, call_id: str) -> str:
        return self._names.get(call_id, "unknown")


_TRANSLATIONS: Final[Mapping[str, Callable[[_Pi, Mapping[str, Any]], list[Event]]]] = {
    "agent_start": _Pi.agent_start,
    "turn_start": _Pi.turn_start,
    "message_start": _Pi.message_start,
    "message_update": _Pi.message_update,
    "message_end": _Pi.message_end,
    "tool_execution_start": _Pi.tool_execution_start,
    "tool_execution_update": _Pi.tool_execution_update,
    "tool_execution_end": _Pi.tool_execution_end,
    "turn_end": _Pi.turn_end,
    "agent_end": _Pi.agent_end,
}
