"""The shortest lawful way from anywhere to `agent_end` (F1, F2).

Here lives the order of what a run still has to tell once it has been cut off; what the messages say
comes from the `Material`. Pure, like the tables in `_lifecycle.py` that every event of it passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from ._events import (
    AgentEnd,
    CompactionEnd,
    Event,
    MessageEnd,
    MessageStart,
    RetryEnd,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
)
from ._lifecycle import Lifecycle, Position
from ._messages import AssistantMessage, Message, ToolCall, ToolResultMessage


class Material(Protocol):
    """What the closing events say. Asked anew for each event, so that late outcomes still count."""

    def unsent(self) -> Message | None:
        """The first message of the prompt that has not been told yet."""
        ...

    def partial(self) -> AssistantMessage:
        """The assistant message that was streaming, closed with the reason."""
        ...

    def closing(self) -> AssistantMessage | None:
        """A closing message, or None if an emitted message has carried the reason."""
        ...

    def result(self, call: ToolCall) -> ToolResultMessage:
        """The result of a call that has not ended."""
        ...

    def retry_end(self) -> RetryEnd: ...
    def compaction_end(self) -> CompactionEnd: ...
    def agent_end(self) -> AgentEnd: ...


def next_closing_event(core: Lifecycle, material: Material) -> Event | None:
    """The next event on the shortest lawful way to `agent_end`, or None behind it."""
    step = _STEPS.get(core.position)
    return None if step is None else step(core, material)


def closing_events(core: Lifecycle, material: Material) -> Iterator[Event]:
    """The shortest lawful way from here to `agent_end`; each event has to be fed before the next is asked for."""
    while (event := next_closing_event(core, material)) is not None:
        yield event


def _between_turns(core: Lifecycle, material: Material) -> Event:
    if material.unsent() is not None or material.closing() is not None:
        return TurnStart(core.turn + 1)
    return material.agent_end()


def _in_turn(core: Lifecycle, material: Material) -> Event:
    unsent = material.unsent() if core.position is Position.OPEN else None
    return MessageStart(unsent if unsent is not None else material.closing() or material.partial())


def _in_message(core: Lifecycle, material: Material) -> Event:
    message = core.open_message
    if message is None or (type(message) is AssistantMessage and message.stop_reason is None):
        return MessageEnd(material.partial())
    return MessageEnd(message)


def _in_tools(core: Lifecycle, material: Material) -> Event:
    if core.started < len(core.calls):
        return ToolExecutionStart(core.calls[core.started])
    for call in core.calls:
        if call.id not in core.ended:
            return ToolExecutionEnd(material.result(call))
    if core.results < len(core.calls):
        return MessageStart(core.ended[core.calls[core.results].id])
    return _turn_end(core, material)


def _turn_end(core: Lifecycle, material: Material) -> Event:
    standing = core.standing or material.partial()
    return TurnEnd(core.turn, standing, tuple([core.ended[call.id] for call in core.calls]))


_STEPS: Final[dict[Position, Callable[[Lifecycle, Material], Event]]] = {
    Position.STARTED: _between_turns,
    Position.OPEN: _in_turn,
    Position.INJECTING: _in_message,
    Position.ASKING: _in_turn,
    Position.STREAMING: _in_message,
    Position.FAILED: _turn_end,
    Position.RETRYING: lambda _core, material: material.retry_end(),
    Position.COMPACTING: lambda _core, material: material.compaction_end(),
    Position.TOOLS: _in_tools,
    Position.RESULT: _in_message,
    Position.TURN_OVER: _between_turns,
}
