"""One tool call, from its preparation to the outcome that is recorded once and for all.

Here lives what a call holds (its files, its slot, its thread), its time-out, and what cuts it off. The order among
calls is in `_tool_phase.py`; the sentences for the model are in `_results.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import trio

from . import _results as words  # pyright: ignore[reportPrivateUsage]  # private to the package
from ._ancestry import Origin, mark_thread_call
from ._cancellation import part, plainly
from ._failures import describe, interrupt_in
from ._file_locks import Ticket
from ._hooks import HookContext
from ._interrupts import exposed, protected
from ._jobs import within
from ._messages import ToolCall, ToolResultMessage, UserBlock
from ._state import AgentState
from ._threads import ThreadCall, current_pool
from ._tool_context import ToolContext
from ._tools import PreparedCall, Tool

if TYPE_CHECKING:
    from ._tool_phase import Host


@attrs.define(eq=False)
class Update:
    """Something that a tool reported while it ran; `handled` once every subscriber has."""

    record: CallRecord
    partial: tuple[UserBlock, ...]
    handled: trio.Event

    def drop(self) -> None:
        """Let its sender go on, without telling anybody."""
        self.handled.set()


class CallRecord:
    """One call. `outcome` is set synchronously, once; from then on updates are dropped (T3)."""

    __slots__ = (
        "_answered",
        "_has_slot",
        "_host",
        "_late",
        "_origin",
        "_prepared",
        "_task",
        "_thread",
        "_ticket",
        "_tickets",
        "_tool",
        "_update",
        "begun",
        "call",
        "outcome",
        "over",
    )

    def __init__(self, host: Host, call: ToolCall) -> None:
        self._host = host
        self.call = call
        self.outcome: ToolResultMessage | None = None
        self.begun = False
        self.over = False
        self._task: trio.lowlevel.Task | None = None
        self._origin: Origin | None = None
        self._tool: Tool | None = None
        self._prepared: PreparedCall | None = None
        self._ticket: Ticket | None = None
        self._tickets: list[Ticket] = []
        self._thread: ThreadCall | None = None
        self._has_slot = False
        self._update: tuple[UserBlock, ...] | None = None
        self._answered: str | None = None
        self._late = 0

    # What the phase asks

    @property
    def name(self) -> str:
        """Who holds a lock, in a message."""
        return f"{self.call.name} ({self.call.id})"

    @property
    def origin(self) -> Origin | None:
        """Where the call began, once it has: in its own task, with no nursery open. Made when a lock asks for it."""
        if self._origin is None and self._task is not None:
            self._origin = Origin(self._task, ())
        return self._origin

    @property
    def serial(self) -> bool:
        return self._tool is not None and self._tool.serial

    def take(self, tool: Tool, prepared: PreparedCall) -> None:
        self._tool = tool
        self._prepared = prepared

    def settle(self, outcome: ToolResultMessage) -> None:
        self.outcome = outcome

    def drop(self) -> None:
        """A report that comes too late to be told; the outcome is kept all the same."""

    def recorded(self) -> ToolResultMessage:
        assert self.outcome is not None, "asked for the outcome of a call that has none"
        return self.outcome

    def error(self, text: str) -> ToolResultMessage:
        return ToolResultMessage(self.call.id, self.call.name, text, True)

    def cut_off(self) -> ToolResultMessage:
        """What to say of a call that the end of its run cut off (A2, F2)."""
        text = words.cut_off(
            begun=self.begun, aborted=self._host.aborting, update=self._update, answered=self._answered
        )
        return self.error(text)

    def start(self) -> None:
        """Take the places in line for the call's files, now, in call order (T8), and run it in a child task."""
        host = self._host
        paths = self._prepared.paths if self._prepared is not None else ()
        try:
            if paths:
                self._ticket = self.lock(paths)
        except ValueError as exc:
            self.settle(self.error(words.raised(self.call.name, str(exc))))
            host.mailbox.put(self)
            return
        host.jobs.start(f"tool {self.call.name}", self._live)

    # The call's own task

    async def _live(self) -> None:
        self.begun = True
        self._task = trio.lowlevel.current_task()
        try:
            outcome = await self._outcome()
        finally:
            self.over = True
            if self._tickets:
                self._release()
        if not self._host.stopping and self._host.is_cancelled_outside:
            self._host.cancelled_outside()  # the tool has swallowed what came from outside, before the run noticed (A4)
        # No checkpoint lies between the tool's return and this line: test_a_late_update_is_dropped.
        if not self._host.stopping:
            self.settle(outcome)
            self._host.mailbox.put(self)

    async def _outcome(self) -> ToolResultMessage:
        assert self._tool is not None
        try:
            if self._is_plain:  # as most are; the layers of `_with_locks` would be a tenth of what a call costs
                value = await self._invoke()
            else:
                value = await self._with_locks()
            result = words.message_of(self.call, value)
        except BaseException as exc:  # noqa: ASYNC103  # part() says what must go on, and that is raised
            result = self.error(self._words_for(exc))
        if self._host.hooks.after_tool_result is not None and not self._host.stopping:
            self._answered = result.text
            result = await self._after(result)
        return result

    def _words_for(self, exc: BaseException) -> str:
        """What the model is told of a failure. Raises what must go on."""
        failure, rest = part(exc)
        if rest is not None and failure is None and self._is_cancelled_by_itself(rest):
            return words.raised(self.call.name, "a cancel scope that the tool had left open was cancelled")
        if rest is not None:
            if failure is not None:
                self._host.later_failure(f"tool {self.call.name} failed while it was being stopped", failure)
            raise rest from None
        assert failure is not None
        if self._host.stopping:
            self._host.later_failure(f"tool {self.call.name} failed while it was being stopped", failure)
        if isinstance(failure, _OutOfTimeError):
            return words.timed_out(self.call.name, failure.seconds, self._update)
        if isinstance(failure, words.UnusableResult):
            return str(failure)
        return words.raised(self.call.name, describe(failure))

    def _is_cancelled_by_itself(self, rest: BaseException) -> bool:
        """Whether this is the cancellation of neither the run nor the scope around it: no run ends by that (T5).

        test_T5_a_scope_that_a_tool_left_open_ends_no_run
        """
        host = self._host
        return not (host.stopping or host.is_cancelled_outside) and interrupt_in(rest, trio.Cancelled) is None

    async def _with_locks(self) -> object:
        """Locks first, then a slot, so that a call that waits for a file keeps nobody from running."""
        if self._ticket is not None:
            await self._ticket.acquire()
        if self._host.slots is None:
            return await self._body()
        await self._take_slot(self._host.slots)
        try:
            return await self._body()
        finally:
            self._give_slot_back(self._host.slots)

    async def _take_slot(self, slots: trio.CapacityLimiter) -> None:
        await slots.acquire_on_behalf_of(self)
        self._has_slot = True

    def _give_slot_back(self, slots: trio.CapacityLimiter) -> None:
        if self._has_slot:
            self._has_slot = False
            slots.release_on_behalf_of(self)

    async def _body(self) -> object:
        assert self._tool is not None
        assert self._prepared is not None
        if self._host.stopping:  # given its files or its slot in the same tick in which the run was stopped (A2)
            await trio.lowlevel.checkpoint()  # raises: the abort scope is cancelled
        if self._tool.is_async:
            return await self._timed(self._invoke())
        self._thread = thread = ThreadCall(current_pool(), self._release_late)
        await thread.acquire_slot()
        tool, prepared, context = self._tool, self._prepared, ToolContext(self, thread)
        assert self.origin is not None
        with mark_thread_call(self.origin):
            return await self._timed(thread.run(lambda: tool.invoke(prepared, context)))

    @property
    def _is_plain(self) -> bool:
        """Whether the call is of an async tool and holds nothing: no files, no slot, no time-out."""
        tool = self._tool
        return tool is not None and tool.is_async and tool.timeout is None and not (self._ticket or self._host.slots)

    @exposed
    async def _invoke(self) -> object:
        tool: Any = self._tool
        return await tool.invoke(self._prepared, ToolContext(self))

    async def _timed(self, work: Any) -> object:
        """Await the body under the tool's time-out, in seconds. Raises `_OutOfTimeError`, whatever it made of that."""
        assert self._tool is not None
        seconds = self._tool.timeout
        if seconds is None:
            return await work
        scope = trio.CancelScope(deadline=trio.current_time() + seconds)
        value: object = None
        try:
            with scope:
                value = await work
        except Exception as exc:  # what the body made of its cancellation is told as the time-out that it was
            if scope.cancel_called:
                raise _OutOfTimeError(seconds) from exc
            raise
        if scope.cancel_called:
            raise _OutOfTimeError(seconds)
        return value

    async def _after(self, result: ToolResultMessage) -> ToolResultMessage:
        """Let `after_tool_result` replace the result, in this task (F5)."""
        host = self._host
        context = HookContext(host.snapshot, lambda: host.aborting, self.call)
        bound = host.hooks.bind("after_tool_result", context, result)
        assert bound is not None
        try:
            value = plainly(bound)
            if hasattr(value, "__await__"):
                value = await within(value, host.hooks.timeout)
            return result if value is None else words.replacement(result, value)
        except BaseException as exc:  # noqa: ASYNC103  # part() says what must go on, and that is raised
            failure, rest = part(exc)
            if rest is not None:
                raise rest from None  # noqa: ASYNC104  # part() says what must go on, and that is raised
            assert failure is not None
            host.later_failure("the hook after_tool_result failed", failure)
            return words.after_hook_failed(result, describe(failure))  # noqa: ASYNC104  # part() says what must go on, and that is raised

    # What the tool's context asks

    @property
    def state(self) -> AgentState:
        return self._host.snapshot()

    @property
    def aborting(self) -> bool:
        return self._host.aborting

    @protected
    async def update(self, partial: object) -> None:
        """Report, and wait until it has been handled; dropped once the outcome is recorded or the run stops (T3)."""
        if self.outcome is not None or self.over or self._host.stopping:
            self._late += 1
            await trio.lowlevel.checkpoint()
            return
        self._update = words.partial_blocks(partial, self.call.name)
        update = Update(self, self._update, trio.Event())
        self._host.mailbox.put(update)
        if trio.lowlevel.current_task() is self._host.origin.task:
            return  # a subscriber calls this: the run would wait for itself
        await update.handled.wait()

    @protected
    def lock(self, paths: tuple[str, ...]) -> Ticket:
        """Take a place in line, once for each call (T8). A call that is over gets none (P4)."""
        if self.over:
            raise RuntimeError(f"{self.call.name} has ended; a call that is over cannot lock files")
        if self._tickets:
            raise RuntimeError(
                f"{self.call.name} holds or waits for files already: {', '.join(self._tickets[0].paths)}; "
                "lock all of them in one call of lock_files()"
            )
        ticket = self._host.locks.ticket(paths, self)
        self._tickets.append(ticket)
        self._host.conversation.writes[self.call.id] = ticket.paths
        return ticket

    @protected
    async def acquire(self, ticket: Ticket) -> None:
        """Wait for files at run time. The call's slot is others' meanwhile: whoever has one never waits for a file
        (T8).

        test_T8_a_call_that_waits_for_a_file_at_run_time_gives_its_slot_to_others
        """
        slots = self._host.slots
        if slots is None or not self._has_slot:
            await ticket.acquire()
            return
        self._give_slot_back(slots)
        try:
            await ticket.acquire()
        except Exception:  # a refusal: the tool may go on without the lock
            await self._take_slot(slots)  # noqa: ASYNC120  # cancelled here, the refusal matters no more
            raise
        await self._take_slot(slots)

    @protected
    def unlock(self, ticket: Ticket) -> None:
        ticket.release()
        if ticket in self._tickets:
            self._tickets.remove(ticket)
        self._host.conversation.writes.pop(self.call.id, None)

    def _release(self) -> None:
        """Give back every lock, before anything is reported; a thread left behind keeps its own until it ends (T8)."""
        if self._thread is None or not self._thread.was_left_behind:
            self._release_all()

    def let_go(self) -> None:
        """Give back what a call holds that was never begun: its task, which would have, did not run a line (P4)."""
        if not self.begun:
            self._release_all()

    def _release_late(self) -> None:
        """Give back what a thread left behind has kept; called when it ends, perhaps after the `trio.run`."""
        for ticket in self._tickets:
            ticket.release_soon()
        self._host.conversation.writes.pop(self.call.id, None)

    def _release_all(self) -> None:
        for ticket in self._tickets[:]:
            self.unlock(ticket)


class _OutOfTimeError(Exception):
    """The body's time was up."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"timed out after {seconds:g} s")
        self.seconds = seconds
