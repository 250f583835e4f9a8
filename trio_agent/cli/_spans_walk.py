"""From events to spans, whatever the events: whole traces, session logs, torn, damaged or unlawful ones.

Here lives the walk. It judges nothing and never fails: what is open at the end is closed there and marked as cut, what
has no beginning begins where it must have. The values are in `_spans.py`. Pure: no files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from .._events import (
    AgentEnd,
    AgentStart,
    CompactionEnd,
    CompactionStart,
    Event,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    RetryEnd,
    RetryStart,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnStart,
)
from .._messages import AssistantMessage, ToolResultMessage
from ._spans import Kind, Recording
from ._spans_open import FAILURES, Bench, OpenSpan
from ._spans_words import answer_notes, cut_short, message_text, run_notes, tool_notes


def recording_of(events: Iterable[Event]) -> Recording:
    """What these events tell. Memory in proportion to the spans, and a number for each event."""
    walk = _Walk()
    for event in events:
        walk.add(event)
    return walk.finish()


class _Walk(Bench):
    # -- events

    def add(self, event: Event) -> None:
        at = len(self.at)
        if isinstance(event, AgentStart):
            self.begin_run(at, event.time, inferred=False)
        elif self.run is None:
            if isinstance(event, MessageEnd):
                self.history += 1
                self.at.append(self.now)
                return
            self.begin_run(at, event.time, inferred=True)
        self.tell_time(event.time)
        _STEPS[type(event)](self, at, event)

    def agent_start(self, _at: int, _event: AgentStart) -> None:
        self.tell(self.run)

    def turn_start(self, at: int, event: TurnStart) -> None:
        self.close_turn(at - 1)
        self.turn = self.open("turn", f"turn {event.turn}", at)
        self.turns += 1
        self.asking = at
        self.tell(self.turn)

    def message_start(self, at: int, event: MessageStart) -> None:
        if isinstance(event.message, AssistantMessage):
            self._begin_answer(at)
            self.tell(self.request)
        else:
            self.tell()

    def message_update(self, at: int, _event: MessageUpdate) -> None:
        request = self.request or self._begin_answer(at)
        if request.token is None:
            request.token = at
        self.tell(request)

    def message_end(self, at: int, event: MessageEnd) -> None:
        message = event.message
        if isinstance(message, AssistantMessage):
            self._end_answer(at, message)
            return
        self.tell()
        if not isinstance(message, ToolResultMessage):
            self.marks.append(("prompt" if self.turns <= 1 else "queued", at, message_text(message)))
            self.asking = at
        elif (tool := self.tools.pop(message.tool_call_id, None)) is not None:  # its end is not in the log
            self._end_tool(tool, at, message)

    def tool_start(self, at: int, event: ToolExecutionStart) -> None:
        self.cut_tool(event.tool_call_id, at - 1)
        self.tools[event.tool_call_id] = tool = self.open("tool", event.tool_name, at)
        tool.notes.append(("arguments", cut_short(event.call.raw)))
        self.tell(tool)

    def tool_update(self, at: int, event: ToolExecutionUpdate) -> None:
        tool = self.tools.get(event.tool_call_id)
        if tool is None and event.tool_call_id in self.ended:
            # This kernel drops late updates, and no event tells of them: the trace is another's.
            self.marks.append(("late update", at, cut_short(f"{event.tool_name} {event.tool_call_id}")))
            self.tell()
            return
        if tool is None:
            tool = self.tools[event.tool_call_id] = self.open("tool", event.tool_name, at)
            tool.inferred = True
        tool.updates.append(at)
        self.tell(tool)

    def tool_end(self, at: int, event: ToolExecutionEnd) -> None:
        tool = self.tools.pop(event.tool_call_id, None)
        if tool is None:  # a session log has no starts
            asked, arguments = self.called.get(event.tool_call_id, (at, None))
            tool = self.open("tool", event.tool_name, asked)
            tool.inferred = True
            if arguments is not None:
                tool.notes.append(("arguments", arguments))
        self._end_tool(tool, at, event.result)
        self.tell(tool)

    def turn_end(self, at: int, event: TurnEnd) -> None:
        if self.turn is None:
            self.turn = self.open("turn", f"turn {event.turn}", at)
            self.turn.inferred = True
        self.tell(self.turn)
        self.standing = event.message
        self.close_turn(at)
        self.turns = event.turn

    def retry_start(self, at: int, event: RetryStart) -> None:
        told = f"{event.error.kind}: {cut_short(event.error.message)}"
        self._fail_request(at, event.error.kind, told)
        self.cut_wait(at - 1)
        self.wait = self.open("retry", f"retry {event.attempt} of {event.max_attempts}", at)
        self.wait.notes += [("error", told), ("delay", f"{event.delay:.3g} s")]
        self.tell(self.wait)

    def retry_end(self, at: int, event: RetryEnd) -> None:
        self._end_wait(at, "retry", event.outcome, ok="resumed")

    def compaction_start(self, at: int, event: CompactionStart) -> None:
        if event.reason == "overflow":
            self._fail_request(at, "context_overflow", "the context overflowed")
        self.cut_wait(at - 1)
        self.wait = self.open("compaction", f"compaction ({event.reason})", at)
        if event.tokens is not None:
            self.wait.notes.append(("tokens before", str(event.tokens)))
        self.tell(self.wait)

    def compaction_end(self, at: int, event: CompactionEnd) -> None:
        wait = self._end_wait(at, "compaction", event.outcome, ok="compacted")
        told = (("tokens after", event.tokens), ("error", event.error))
        wait.notes += [(name, cut_short(str(value))) for name, value in told if value is not None]

    def agent_end(self, at: int, event: AgentEnd) -> None:
        self.tell(self.run)
        if event.outcome == "aborted":
            self.mark_abort(at, event.reason or event.error)
        assert self.run is not None
        self.run.notes += run_notes(event)
        self.run.usage = event.usage
        self.close_run(at, event.outcome)

    # -- what they open and close

    def _begin_answer(self, at: int) -> OpenSpan:
        first = at if self.asking is None else self.asking
        if self.request is not None:  # its end is not in the log
            self.request.close(min(at - 1, first), None)
        self.request = self.open("request", "request", first)
        self.asking = None
        return self.request

    def _end_answer(self, at: int, message: AssistantMessage) -> None:
        request = self.request or self._begin_answer(at)
        self.tell(request)
        stop = message.stop_reason
        request.close(at, stop, failed=stop in FAILURES)
        request.name = message.model or request.name
        request.usage = message.usage
        request.notes += answer_notes(message)
        self.request = self.asking = None
        self.standing = message
        self.called = {call.id: (at, cut_short(call.raw)) for call in message.tool_calls}
        if stop == "aborted":
            self.mark_abort(at, message.error_message)

    def _fail_request(self, at: int, outcome: str, told: str) -> None:
        """The request failed before its answer began, if it had not been told already by its message."""
        if self.request is None and self.asking is not None:
            request = self._begin_answer(at)
            request.notes.append(("error", told))
            request.close(at, outcome, failed=True)
        elif self.request is not None:
            self.request.close(at, outcome, failed=True)
        self.request = None
        self.asking = None

    def _end_tool(self, tool: OpenSpan, at: int, result: ToolResultMessage) -> None:
        self.ended.add(result.tool_call_id)
        tool.close(at, "error" if result.is_error else "ok", failed=result.is_error)
        tool.notes += tool_notes(result, len(tool.updates))

    def _end_wait(self, at: int, kind: Kind, outcome: str, *, ok: str) -> OpenSpan:
        wait = self.wait
        if wait is None or wait.kind != kind:
            self.cut_wait(at - 1)
            wait = self.open(kind, kind, at)
            wait.inferred = True
        wait.close(at, outcome, failed=outcome != ok)
        self.wait = None
        self.asking = at if outcome != "aborted" else None
        if outcome == "aborted":
            self.mark_abort(at, None)
        self.tell(wait)
        return wait


_STEPS: Final[dict[type, Callable[[_Walk, int, Any], None]]] = {
    AgentStart: _Walk.agent_start,
    TurnStart: _Walk.turn_start,
    MessageStart: _Walk.message_start,
    MessageUpdate: _Walk.message_update,
    MessageEnd: _Walk.message_end,
    ToolExecutionStart: _Walk.tool_start,
    ToolExecutionUpdate: _Walk.tool_update,
    ToolExecutionEnd: _Walk.tool_end,
    TurnEnd: _Walk.turn_end,
    RetryStart: _Walk.retry_start,
    RetryEnd: _Walk.retry_end,
    CompactionStart: _Walk.compaction_start,
    CompactionEnd: _Walk.compaction_end,
    AgentEnd: _Walk.agent_end,
}
