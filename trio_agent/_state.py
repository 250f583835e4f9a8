"""What an event changes: the state of a conversation, and the frozen snapshot of it.

Here lives every change of state that an event causes. Whether the event is lawful was decided before
(`_lifecycle.py`), and who hears of it comes after (`_delivery.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from ._assembly import Assembly
from ._events import (
    AgentStart,
    CompactionEnd,
    CompactionStart,
    Event,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    RetryStart,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnStart,
)
from ._history import History
from ._lifecycle import Lifecycle, Phase
from ._messages import NO_USAGE, AssistantMessage, Message, Usage
from ._queues import Queue, Queued
from ._request import Reasoning

if TYPE_CHECKING:
    from ._hooks import Hooks
    from ._tools import Tool


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
    _view: Assembly | None = attrs.field(default=None, repr=False, eq=False)
    _length: int = attrs.field(default=0, repr=False, eq=False)

    @property
    def streaming_message(self) -> AssistantMessage | None:
        """The assistant message that is streaming, as it was when this picture was taken."""
        return None if self._view is None else self._view.message_at(self._length)


def _by_name(config: Config) -> dict[str, Tool]:
    return {tool.name: tool for tool in config.tools}


@attrs.frozen
class Config:
    """What `configure` may change: taken whole at a turn boundary (L6)."""

    model: str
    system_prompt: str
    tools: tuple[Tool, ...]
    reasoning: Reasoning
    hooks: Hooks
    tools_by_name: dict[str, Tool] = attrs.field(
        default=attrs.Factory(_by_name, takes_self=True), init=False, repr=False, eq=False
    )


class Conversation:
    """The state of one agent. Only `apply` changes it during a run, and only for a lawful event.

    `saying` is the queued message whose `message_start` comes next, with its queue; `next_config` what the next
    `turn_start` shows.
    """

    __slots__ = (
        "_attempt",
        "_view",
        "call_ids",
        "compaction_spent",
        "config",
        "core",
        "error_message",
        "follow_up",
        "history",
        "is_streaming",
        "next_config",
        "pending",
        "run_messages",
        "run_tokens",
        "run_usage",
        "saying",
        "shown",
        "steering",
        "turn",
        "usage",
        "writes",
    )

    def __init__(self, config: Config, messages: Iterable[Message], steering: Queue, follow_up: Queue) -> None:
        self.config = self.next_config = config
        self.core = Lifecycle()
        self.steering = steering
        self.follow_up = follow_up
        self.history: History[Message] = History()
        self.restart(messages)

    def restart(self, messages: Iterable[Message]) -> None:
        """Begin anew from a history, outside of a run."""
        self.history.replace(messages)
        self.call_ids: set[str] = {
            call.id
            for message in self.history.view()
            if isinstance(message, AssistantMessage)
            for call in message.tool_calls
        }
        self.usage = self.run_usage = NO_USAGE
        self.run_tokens = 0
        self.compaction_spent = False  # one did not get below the threshold, and no turn has succeeded since (F9)
        self.error_message: str | None = None
        self.turn = 0
        self.pending: dict[str, None] = {}
        self.writes: dict[str, tuple[str, ...]] = {}
        self.run_messages: list[Message] = []
        self.saying: tuple[Queue, Queued] | None = None
        self._attempt: AssistantMessage | None = None  # a failed one, which a retry would take out of history
        self.stop_streaming()

    def start_streaming(self) -> None:
        """A request is on its way; its answer has not begun."""
        self.is_streaming = True

    def stop_streaming(self) -> None:
        self.is_streaming = False
        self._view: Assembly | None = None
        self.shown = 0  # how much of the streaming message has been told

    def show(self, view: Assembly) -> None:
        """The assembly of the message whose start comes next."""
        self._view = view

    def apply(self, event: Event) -> None:
        """Change what the event changes. The event has passed `Lifecycle.feed`."""
        change = self._CHANGES.get(type(event))
        if change is not None:
            change(self, event)

    def settle(self) -> None:
        """What must hold in phase idle (P4), whatever happened before. Never awaits, never raises."""
        self.config = self.next_config  # what was configured behind the last turn shows at once when idle (L6)
        self.pending.clear()
        self.writes.clear()
        self.saying = None
        self._attempt = None
        self.stop_streaming()
        self.core.abandon()

    def snapshot(self) -> AgentState:
        config = self.config
        return AgentState(
            phase=self.core.phase,
            messages=self.history.view(),
            system_prompt=config.system_prompt,
            tools=config.tools,
            model=config.model,
            reasoning=config.reasoning,
            is_streaming=self.is_streaming,
            pending_tool_calls=tuple(self.pending),
            pending_file_writes=tuple([path for paths in self.writes.values() for path in paths]),
            error_message=self.error_message,
            steering_queue=self.steering.messages(),
            follow_up_queue=self.follow_up.messages(),
            turn=self.turn,
            usage=self.usage,
            view=self._view,  # pyright: ignore[reportCallIssue]  # attrs drops the underscore
            length=self.shown,  # pyright: ignore[reportCallIssue]
        )

    def count(self, usage: Usage) -> None:
        """Add what a request cost, also one that emits no message events (F9)."""
        if usage is NO_USAGE:
            return
        self.usage += usage
        self.run_usage += usage
        self.run_tokens += usage.known_total or 0

    def _agent_start(self, _event: Event) -> None:
        self.error_message = None
        self.turn = 0
        self.run_usage = NO_USAGE
        self.run_tokens = 0
        self.run_messages = []

    def _turn_start(self, event: TurnStart) -> None:
        self.turn = event.turn
        self.config = self.next_config
        self._attempt = None

    def _message_start(self, event: MessageStart) -> None:
        if self.saying is not None:
            queue, item = self.saying
            if item.message is event.message:
                queue.remove(item)
                self.saying = None

    def _message_update(self, event: MessageUpdate) -> None:
        self.shown = event._length  # pyright: ignore[reportPrivateUsage]  # the two ends of one lazy view

    def _message_end(self, event: MessageEnd) -> None:
        message = event.message
        self.history.append(message)
        self.run_messages.append(message)
        if isinstance(message, AssistantMessage):
            self.stop_streaming()
            self.count(message.usage)
            calls = self.core.calls
            if message.stop_reason in ("error", "aborted"):  # its calls stand nowhere, but their ids have been told
                calls = message.tool_calls
                self.error_message = message.error_message
                self._attempt = message
            for call in calls:
                self.call_ids.add(call.id)

    def _tool_start(self, event: ToolExecutionStart) -> None:
        self.pending[event.call.id] = None

    def _tool_end(self, event: ToolExecutionEnd) -> None:
        self.pending.pop(event.result.tool_call_id, None)

    def _retract_attempt(self, _event: Event) -> None:
        """A failed attempt leaves history when it is retried, or when history is compacted for its sake (L6)."""
        if self._attempt is None:
            return
        self.history.replace(self.history.view()[:-1])
        self.run_messages.pop()
        self.call_ids.difference_update([call.id for call in self._attempt.tool_calls])
        self._attempt = None
        self.error_message = None

    def _compaction_end(self, end: CompactionEnd) -> None:
        if end.summary is not None and end.first_kept is not None:
            self.history.replace([end.summary, *self.history.view()[end.first_kept :]])

    _CHANGES: ClassVar[dict[type[Event], Callable[[Conversation, Any], None]]] = {
        AgentStart: _agent_start,
        TurnStart: _turn_start,
        MessageStart: _message_start,
        MessageUpdate: _message_update,
        MessageEnd: _message_end,
        ToolExecutionStart: _tool_start,
        ToolExecutionEnd: _tool_end,
        RetryStart: _retract_attempt,
        CompactionStart: _retract_attempt,
        CompactionEnd: _compaction_end,
    }
