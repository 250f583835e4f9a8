"""A sequential model of an agent: what its state must be behind each event.

Here lives a second, plain account of history, queues, pending calls and the streaming message, made of nothing but
the events and of what was queued. It is a subscriber, and compares at every event. The order of events is for the
judge.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .._agent import Agent, Input
from .._events import Event, ToolCallFragment
from .._messages import NO_USAGE, AssistantMessage, Message, Text, Thinking, ToolCall, UserMessage


class ModelMismatch(AssertionError):  # noqa: N818  # named for what it is
    """The agent shows something else than follows from its trace."""


class Model:
    """Subscribe it first, to an idle agent, and queue through it: `model.steer("…")` in place of `agent.steer("…")`."""

    def __init__(self, agent: Agent) -> None:
        state = agent.state
        self._agent = agent
        self.history: list[Message] = list(state.messages)
        self.steering: list[Message] = list(state.steering_queue)
        self.follow_up: list[Message] = list(state.follow_up_queue)
        self.queued: list[tuple[str, Message]] = []  # whatever was queued, once for each time
        self.said: list[Message] = []  # user and application messages, as they came
        self.taken_back: list[Message] = []
        self.usage = state.usage
        self.error_message = state.error_message
        self.pending: list[str] = []
        self.parts: dict[int, str] = {}  # of the streaming message: what its updates said, by block
        self.streaming = False
        self.closing = False
        self._has_left = False
        self._calls: set[int] = set()  # the blocks of it that are tool calls
        self.turn = 0
        self.phase = "idle"
        self.compacted = False
        self.mismatch: ModelMismatch | None = None  # the first, also if the run made something else of it
        self._ids: dict[str, Message] = {}
        self._failed_attempt = False

    # What is done from outside

    def steer(self, input: Input) -> str:
        return self._queue("steer", input, self.steering)

    def follow_up_with(self, input: Input) -> str:
        return self._queue("follow_up", input, self.follow_up)

    def _queue(self, name: str, input: Input, queue: list[Message]) -> str:
        message = UserMessage(input) if isinstance(input, str) else input
        id: str = getattr(self._agent, name)(message)
        queue.append(message)
        self.queued.append((name, message))
        self._ids[id] = message
        return id

    def withdraw(self, id: str) -> None:
        """Take a message back; the agent says whether that was still possible, and so does the model."""
        message = self._ids[id]
        place = next((queue for queue in (self.steering, self.follow_up) if _has(queue, message)), None)
        done = self._agent.withdraw(id)
        self._compare("withdraw", done, place is not None)
        if place is not None:
            _remove(place, message)
            self.taken_back.append(message)

    def clear_queues(self) -> None:
        taken = self._agent.clear_queues()
        self._compare("clear_queues", list(taken), [*self.steering, *self.follow_up])
        self.taken_back += taken
        self.steering.clear()
        self.follow_up.clear()

    # What is told

    def leave(self) -> None:
        """Compare no more: the trace is about to be cut short, as a second Ctrl-C does (F7)."""
        self._has_left = True

    def __call__(self, event: Event) -> None:
        change = getattr(self, f"_{event.type}", None)
        if event.type not in ("retry_start", "retry_end", "compaction_start", "compaction_end"):
            self.phase = "turn"
        if change is not None:
            change(event)
        self.compare(event.type)

    def compare(self, at: str) -> None:
        """Hold the agent's state against the model's."""
        state = self._agent.state
        self._compare(f"{at}: phase", state.phase.value, self.phase)
        self._compare(f"{at}: messages", list(state.messages), self.history)
        self._compare(f"{at}: steering_queue", list(state.steering_queue), self.steering)
        self._compare(f"{at}: follow_up_queue", list(state.follow_up_queue), self.follow_up)
        self._compare(f"{at}: pending_tool_calls", list(state.pending_tool_calls), self.pending)
        self._compare(f"{at}: error_message", state.error_message, self.error_message)
        self._compare(f"{at}: turn", state.turn, self.turn)
        if not self.compacted:  # what a compaction's own requests cost is told by no event
            self._compare(f"{at}: usage", state.usage, self.usage)
        self._compare(f"{at}: is_streaming", state.is_streaming, self.streaming)
        self._compare(f"{at}: streaming_message", _parts(state.streaming_message), self._shown())

    def idle(self) -> None:
        """Say that the run is over, and compare."""
        self.phase = "idle"
        self.pending.clear()
        self.compare("idle")

    def _shown(self) -> list[str] | None:
        if not self.streaming or self.closing:
            return None
        return ["{}" if part == "" and at in self._calls else part for at, part in self.parts.items()]

    def _agent_start(self, _event: Any) -> None:
        self.error_message = None
        self.turn = 0

    def _turn_start(self, event: Any) -> None:
        self._compare("the turn's number", event.turn, self.turn + 1)
        self.turn = event.turn
        self._failed_attempt = False

    def _message_start(self, event: Any) -> None:
        message = event.message
        if isinstance(message, AssistantMessage):
            self.streaming = message.stop_reason is None
            if not self.streaming:  # a closing message, instead of an answer that may have been on its way
                self.streaming = self._agent.state.is_streaming
                self.closing = True
            self.parts = {}
            self._calls = set()
        elif message.role != "tool_result":
            self.said.append(message)
            for queue in (self.steering, self.follow_up):
                if _has(queue, message):
                    self._compare(f"Q3: what comes first of {len(queue)}", message, queue[0])
                    _remove(queue, message)

    def _message_update(self, event: Any) -> None:
        delta = event.delta
        if isinstance(delta, ToolCallFragment):
            self._calls.add(delta.index)
        piece = delta.json if isinstance(delta, ToolCallFragment) else delta.text
        self.parts[delta.index] = self.parts.get(delta.index, "") + piece
        self._compare("L4: the update's message", _parts(event.message), self._shown())

    def _message_end(self, event: Any) -> None:
        message = event.message
        if isinstance(message, AssistantMessage):
            if self.streaming and not self.closing:
                self._compare("L4: the message's content", _parts(message), self._shown())
            self.streaming = self.closing = False
            self.usage += message.usage
            if message.stop_reason in ("error", "aborted"):
                self.error_message = message.error_message
                self._failed_attempt = True
        self.history.append(message)

    def _tool_execution_start(self, event: Any) -> None:
        self.pending.append(event.tool_call_id)

    def _tool_execution_end(self, event: Any) -> None:
        self._compare("T3: the end of a call that was started", event.tool_call_id in self.pending, True)
        self.pending.remove(event.tool_call_id)

    def _retry_start(self, _event: Any) -> None:
        self.phase = "retry"
        self._retract()

    def _compaction_start(self, _event: Any) -> None:
        self.phase = "compaction"
        self.compacted = True
        self._retract()

    def _retract(self) -> None:
        """L6: an attempt that is retried leaves history."""
        if self._failed_attempt and self.history:
            self.history.pop()
            self.error_message = None
            self._failed_attempt = False

    def _compaction_end(self, event: Any) -> None:
        if event.outcome == "compacted":
            self.history = [event.summary, *self.history[event.first_kept :]]

    def _agent_end(self, event: Any) -> None:
        self._compare("agent_end's turns", event.turns, self.turn)
        if not self.compacted and event.usage != NO_USAGE:
            self._compare("L3: nothing streams", self.streaming, False)

    def _compare(self, what: str, shown: object, expected: object) -> None:
        if self._has_left:
            return
        if shown != expected and self.mismatch is None:
            self.mismatch = ModelMismatch(f"{what}: the agent has {shown!r}, and from the trace follows {expected!r}")
        if self.mismatch is not None:
            raise self.mismatch


def _parts(message: AssistantMessage | None) -> list[str] | None:
    """The text of each block, in order."""
    if message is None:
        return None
    texts = {Text: "text", Thinking: "text", ToolCall: "raw"}
    return [str(getattr(block, texts[type(block)])) for block in message.content]


def _has(queue: Iterable[Message], message: Message) -> bool:
    return any(other is message for other in queue)


def _remove(queue: list[Message], message: Message) -> None:
    del queue[next(at for at, other in enumerate(queue) if other is message)]
