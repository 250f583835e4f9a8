"""What an event changes: the state of a conversation, and the frozen snapshot of it.

Here lives every change of state that an event causes. Whether the event is lawful was decided before
(`_lifecycle.py`), and who hears of it comes after (`_delivery.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

import attrs

from ._messages import NO_USAGE, AssistantMessage, Message, Usage
from ._request import Reasoning

if TYPE_CHECKING:
    from ._tools import Tool


class Phase(Enum):
    """What an agent is doing (P1). RETRY is the wait before a request is sent again, not the sending."""

    IDLE = "idle"
    TURN = "turn"
    COMPACTION = "compaction"
    RETRY = "retry"


@attrs.frozen(kw_only=True)
class AgentState:
    """A frozen picture of an agent, taken in constant time however long the history is.

    `pending_tool_calls` are the ids of calls that have started and not ended; `pending_file_writes` the paths
    that running calls hold or wait for. `is_streaming` is true from the start of a model request until its
    answer has ended. `turn` counts the turns of the current or last run; `usage` sums the agent's requests
    since it was made or reset.
    """

    phase: Phase
    messages: Sequence[Message]
    system_prompt: str
    tools: tuple[Tool, ...]
    model: str
    reasoning: Reasoning
    is_streaming: bool = False
    pending_tool_calls: tuple[str, ...] = ()
    pending_file_writes: tuple[str, ...] = ()
    error_message: str | None = None
    steering_queue: tuple[Message, ...] = ()
    follow_up_queue: tuple[Message, ...] = ()
    turn: int = 0
    usage: Usage = NO_USAGE
    _view: Any = attrs.field(default=None, repr=False, eq=False)
    _length: int = attrs.field(default=0, repr=False, eq=False)

    @property
    def streaming_message(self) -> AssistantMessage | None:
        """The assistant message that is streaming, as it was when this picture was taken."""
        message: AssistantMessage | None = None if self._view is None else self._view.message_at(self._length)
        return message
