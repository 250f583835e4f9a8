"""What a run tells: one frozen class per event, and their union.

Here live the fields of each event. When an event is lawful is decided in `_lifecycle.py`, what it
changes in `_state.py`, and how it looks as JSON in `_codec.py`. `time` is seconds on the run's own
clock since `agent_start`; two events that differ in it alone are equal.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias

import attrs

from ._chunks import TextDelta, ThinkingDelta
from ._json import JSONValue, loads_or_none
from ._messages import NO_USAGE, AssistantMessage, Message, ToolCall, ToolResultMessage, Usage, UserBlock
from ._quick import quick

Outcome: TypeAlias = Literal["completed", "stopped", "aborted", "error"]
_time = attrs.field(default=0.0, eq=False, kw_only=True)


@attrs.frozen
class ToolCallFragment:
    """More of the JSON text of a call's arguments; empty for the call's first sign of life."""

    index: int
    id: str
    name: str
    json: str


Delta: TypeAlias = TextDelta | ThinkingDelta | ToolCallFragment


@attrs.frozen
class AgentStart:
    """A run has begun (L1)."""

    type: ClassVar[Literal["agent_start"]] = "agent_start"
    time: float = _time


@attrs.frozen
class TurnStart:
    """Turn number `turn` of the run has begun, counted from 1 (L2)."""

    type: ClassVar[Literal["turn_start"]] = "turn_start"
    turn: int
    time: float = _time


@attrs.frozen
class MessageStart:
    """A message begins (L3). An assistant message is empty yet; any other is whole already."""

    type: ClassVar[Literal["message_start"]] = "message_start"
    message: Message
    time: float = _time


@attrs.frozen
class MessageUpdate:
    """More of the assistant message that is streaming (L3, L4).

    `message` is that message as it was at this event. It is put together when it is looked at, and kept
    nowhere: looking costs time in proportion to the text, not looking costs nothing. None for an event
    that was read from JSON, which carries the delta alone.
    """

    type: ClassVar[Literal["message_update"]] = "message_update"
    delta: Delta
    time: float = _time
    _view: Any = attrs.field(default=None, eq=False, repr=False, kw_only=True)
    _length: int = attrs.field(default=0, eq=False, repr=False, kw_only=True)

    @property
    def message(self) -> AssistantMessage | None:
        message: AssistantMessage | None = None if self._view is None else self._view.message_at(self._length)
        return message


@attrs.frozen
class MessageEnd:
    """The message is complete and part of history (L3, L6)."""

    type: ClassVar[Literal["message_end"]] = "message_end"
    message: Message
    time: float = _time


@attrs.frozen
class ToolExecutionStart:
    """A call is being prepared (T1). The arguments are the model's own."""

    type: ClassVar[Literal["tool_execution_start"]] = "tool_execution_start"
    call: ToolCall
    time: float = _time

    @property
    def tool_call_id(self) -> str:
        return self.call.id

    @property
    def tool_name(self) -> str:
        return self.call.name

    @property
    def arguments(self) -> JSONValue:
        return loads_or_none(self.call.raw)


@attrs.frozen
class ToolExecutionUpdate:
    """What a running tool reported (T3)."""

    type: ClassVar[Literal["tool_execution_update"]] = "tool_execution_update"
    tool_call_id: str
    tool_name: str
    partial: tuple[UserBlock, ...]
    time: float = _time


@attrs.frozen
class ToolExecutionEnd:
    """A call is over (T3). `result` is the message that history will hold (T4)."""

    type: ClassVar[Literal["tool_execution_end"]] = "tool_execution_end"
    result: ToolResultMessage
    time: float = _time

    @property
    def tool_call_id(self) -> str:
        return self.result.tool_call_id

    @property
    def tool_name(self) -> str:
        return self.result.tool_name

    @property
    def is_error(self) -> bool:
        return self.result.is_error


@attrs.frozen
class TurnEnd:
    """The turn is over: its standing message, and the results of its calls in their order (L2, T4)."""

    type: ClassVar[Literal["turn_end"]] = "turn_end"
    turn: int
    message: AssistantMessage
    tool_results: tuple[ToolResultMessage, ...] = ()
    time: float = _time


@attrs.frozen
class ErrorInfo:
    """A provider's failure, as an event tells it."""

    kind: str
    message: str
    status: int | None = None


@attrs.frozen
class RetryStart:
    """The request failed and will be sent again after `delay` seconds (F8).

    `attempt` counts the failed attempts of this turn, from 1; at most `max_attempts` requests are sent.
    """

    type: ClassVar[Literal["retry_start"]] = "retry_start"
    attempt: int
    max_attempts: int
    delay: float
    error: ErrorInfo
    time: float = _time


@attrs.frozen
class RetryEnd:
    """The wait is over: the request is `resumed`, or the run was `aborted` or `failed` in between."""

    type: ClassVar[Literal["retry_end"]] = "retry_end"
    attempt: int
    outcome: Literal["resumed", "aborted", "failed"]
    time: float = _time


@attrs.frozen
class CompactionStart:
    """History is about to be shortened (F9). `tokens` is its size, where known."""

    type: ClassVar[Literal["compaction_start"]] = "compaction_start"
    reason: Literal["threshold", "overflow"]
    tokens: int | None = None
    time: float = _time


@attrs.frozen
class CompactionEnd:
    """History is now `summary`, then the old history from index `first_kept` on; or nothing changed (F9)."""

    type: ClassVar[Literal["compaction_end"]] = "compaction_end"
    outcome: Literal["compacted", "aborted", "failed"]
    summary: Message | None = None
    first_kept: int | None = None
    tokens: int | None = None
    error: str | None = None
    time: float = _time


@attrs.frozen
class AgentEnd:
    """The run is over (L1). `turns` and `usage` are the run's own; `error` says what failed it."""

    type: ClassVar[Literal["agent_end"]] = "agent_end"
    outcome: Outcome
    reason: str | None = None
    turns: int = 0
    usage: Usage = NO_USAGE
    error: str | None = None
    time: float = _time


Event: TypeAlias = (
    AgentStart
    | TurnStart
    | MessageStart
    | MessageUpdate
    | MessageEnd
    | ToolExecutionStart
    | ToolExecutionUpdate
    | ToolExecutionEnd
    | TurnEnd
    | RetryStart
    | RetryEnd
    | CompactionStart
    | CompactionEnd
    | AgentEnd
)

# The events of every turn, in the kernel's own quick way of making them.
tool_call_fragment = quick(ToolCallFragment)
turn_start = quick(TurnStart)
message_start = quick(MessageStart)
message_update = quick(MessageUpdate)
message_end = quick(MessageEnd)
tool_execution_start = quick(ToolExecutionStart)
tool_execution_end = quick(ToolExecutionEnd)
turn_end = quick(TurnEnd)
