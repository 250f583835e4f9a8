"""Runs one turn's calls: prepared in order, executed in parallel, reported as they finish (T1 to T8).

Here lives the order of a turn's tools. One call's own life is in `_tool_call.py`; nothing in here touches
history, the provider or the queues, and what is told goes through the run's `emit`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import trio

from . import _results as words  # pyright: ignore[reportPrivateUsage]  # private to the package
from ._ancestry import Origin
from ._errors import ArgumentError
from ._events import (
    Event,
    ToolExecutionUpdate,
    message_end,
    message_start,
    tool_execution_end,
    tool_execution_start,
)
from ._failures import describe
from ._file_locks import FileLocks
from ._hooks import Block, HookContext, Hooks, Replace
from ._jobs import Jobs
from ._mailbox import Mailbox
from ._messages import AssistantMessage, ToolCall, ToolResultMessage
from ._state import AgentState, Conversation
from ._tool_call import CallRecord, Update
from ._tools import Tool

Report: TypeAlias = CallRecord | Update


class Host(Protocol):
    """The run, as its tools' phase sees it."""

    conversation: Conversation
    jobs: Jobs
    mailbox: Mailbox[Report]
    locks: FileLocks
    slots: trio.CapacityLimiter | None
    origin: Origin

    @property
    def stopping(self) -> bool: ...
    @property
    def aborting(self) -> bool: ...
    @property
    def hooks(self) -> Hooks: ...
    def emit(self, event: Event) -> Awaitable[None]: ...
    async def look(self) -> None: ...
    async def in_job(self, name: str, call: Callable[[], Any]) -> Any: ...
    @property
    def is_cancelled_outside(self) -> bool: ...
    def cancelled_outside(self) -> None: ...
    def later_failure(self, what: str, failure: Exception) -> None: ...
    def snapshot(self) -> AgentState: ...
    def time(self) -> float: ...


class ToolPhase:
    """The calls of one standing message."""

    def __init__(
        self, host: Host, message: AssistantMessage, calls: Sequence[ToolCall], tools: Mapping[str, Tool]
    ) -> None:
        self._host = host
        self._cut_short = message.stop_reason == "length"
        self._tools = tools
        self.records = {call.id: CallRecord(host, call) for call in calls}
        self._waiting: list[CallRecord] = []
        self._running = 0
        self._serial_runs = False

    async def run(self) -> tuple[ToolResultMessage, ...]:
        """From the first start to the last result message. Gives the results in the order of the calls."""
        for record in self.records.values():
            await self._prepare(record)
        self._start_ready()
        while self._running:
            if not self._host.mailbox.items:
                await self._host.look()
            for report in self._host.mailbox.take():
                await self._tell(report)
        return await self._tell_results()

    def result_now(self, call: ToolCall) -> ToolResultMessage:
        """The result of a call that is cut off now: what was recorded, or words that say how far it came (A2)."""
        record = self.records[call.id]
        return record.outcome or record.cut_off()

    def let_go(self) -> None:
        """Give back what calls hold that were never begun."""
        for record in self.records.values():
            record.let_go()

    async def _prepare(self, record: CallRecord) -> None:
        await self._host.emit(tool_execution_start(record.call, time=self._host.time()))
        refusal = words.cut_short() if self._cut_short else self._refusal(record)
        if refusal is None and self._host.hooks.before_tool_call is not None:
            refusal = await self._ask_hook(record)
        if refusal is None:
            self._waiting.append(record)
        else:
            record.settle(record.error(refusal))
            await self._tell_end(record)

    def _refusal(self, record: CallRecord) -> str | None:
        """Look up and validate. Gives the words for a call that is not to run (T5)."""
        call = record.call
        tool = self._tools.get(call.name)
        if tool is None:
            return words.unknown_tool(call.name, list(self._tools))
        try:
            record.take(tool, tool.prepare(call))
        except ArgumentError as exc:
            return words.invalid_arguments(call.name, str(exc))
        except Exception as exc:  # a `writes` callable, or a type that the application wrote, may raise anything
            return words.raised(call.name, describe(exc))
        return None

    async def _ask_hook(self, record: CallRecord) -> str | None:
        host, call, tool = self._host, record.call, self._tools[record.call.name]
        bound = host.hooks.bind("before_tool_call", HookContext(host.snapshot, self._is_aborting, call), call)
        assert bound is not None
        try:
            verdict = await host.in_job("before_tool_call", bound)
            if isinstance(verdict, Block):
                return words.blocked(call.name, verdict.reason)
            if isinstance(verdict, Replace):
                record.take(tool, tool.prepare_value(verdict.arguments))
            elif verdict is not None:
                raise TypeError(f"before_tool_call gives None, Block or Replace, not {type(verdict).__name__}")
        except Exception as exc:  # F5: whatever the hook raises, it fails closed
            host.later_failure("the hook before_tool_call failed", exc)
            return words.blocked(call.name, f"its check failed: {describe(exc)}")
        return None

    def _is_aborting(self) -> bool:
        return self._host.aborting

    def _start_ready(self) -> None:
        """Start what may run now: up to the next serial call, which runs alone (T2)."""
        while self._waiting and not self._serial_runs:
            record = self._waiting[0]
            if record.serial and self._running:
                return
            del self._waiting[0]
            self._serial_runs = record.serial
            self._running += 1
            record.start()

    async def _tell(self, report: Report) -> None:
        if isinstance(report, CallRecord):
            self._running -= 1
            self._serial_runs = False
            await self._tell_end(report)
            self._start_ready()
        elif report.record.outcome is None:  # looked at again here: the outcome may have been recorded since (T3)
            call = report.record.call
            await self._host.emit(ToolExecutionUpdate(call.id, call.name, report.partial, time=self._host.time()))
            report.handled.set()
        else:
            report.handled.set()

    async def _tell_end(self, record: CallRecord) -> None:
        await self._host.emit(tool_execution_end(record.recorded(), time=self._host.time()))

    async def _tell_results(self) -> tuple[ToolResultMessage, ...]:
        host = self._host
        results = tuple([record.recorded() for record in self.records.values()])
        for result in results:
            await host.emit(message_start(result, time=host.time()))
            await host.emit(message_end(result, time=host.time()))
        return results
