"""One run: the only module that emits.

Here lives a run from `agent_start` to idle: the turns, what stops them, and how everything settles. One task,
the caller's, emits; whatever may be cancelled (provider, tools, hooks, compaction) is a child task that reports to
it. The order of events is `_lifecycle.py`'s, one turn's answer `_asking.py`'s and its tools `_tool_phase.py`'s.

The run's task lives in a scope that no cancellation reaches into, so that a subscriber is never cut in the middle
(A3). Outside cancellation arrives at a child that waits for nothing else; from then on one absolute deadline bounds
every wait.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NoReturn

import attrs
import trio

from ._ancestry import Origin, snapshot
from ._asking import Answer, Asking
from ._assembly import Assembly
from ._cancellation import part, plainly
from ._closing import closing_events
from ._delivery import Delivery, Halt, Subscribers, name_of
from ._errors import AgentInternalError, ProviderError
from ._events import (
    AgentEnd,
    AgentStart,
    CompactionEnd,
    Delta,
    Event,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    Outcome,
    RetryEnd,
    message_end,
    message_start,
    message_update,
    turn_end,
    turn_start,
)
from ._failures import describe, interrupt_in, split
from ._file_locks import FileLocks
from ._hooks import HookContext, Hooks
from ._interrupts import protected
from ._jobs import Jobs, within
from ._lifecycle import Position
from ._mailbox import Bell, Mailbox
from ._messages import AssistantMessage, Message, ToolCall, ToolResultMessage
from ._policies import Limits
from ._queues import Queue, Queued
from ._quick import quick
from ._request import ToolSpec
from ._settlement import Budget
from ._state import AgentState, Conversation
from ._tool_phase import Report, ToolPhase
from ._tools import Tool

logger: Final = logging.getLogger("trio_agent")


@attrs.define(eq=False)
class Cause:
    """Why a run is cut off. The first one decides (F10)."""

    outcome: Outcome
    reason: str | None
    message: str
    error: BaseException | None = None
    carried: bool = False  # an emitted message says so already


@attrs.frozen(kw_only=True)
class Setting:
    """What a run is given by its agent."""

    conversation: Conversation
    subscribers: Subscribers[Event]
    asking: Asking
    limits: Limits
    grace: float
    max_parallel_tools: int | None
    locks: FileLocks | None


quick_setting = quick(Setting)


_REFERRING_BACK: Final = ("_delivery", "_answer", "_tool_phase", "jobs", "_work")


class Run:
    """One run in the task that made it."""

    # Above thirty attributes CPython gives each object a dictionary of its own, five times the size of these.
    __slots__ = (
        "_answer",
        "_began",
        "_delivery",
        "_end",
        "_idle",
        "_interrupt",
        "_is_over",
        "_now",
        "_outer",
        "_prompt",
        "_said_earlier",
        "_setting",
        "_specs",
        "_specs_of",
        "_tool_calls",
        "_tool_phase",
        "_watch",
        "_work",
        "assembly",
        "budget",
        "cause",
        "conversation",
        "core",
        "grace",
        "is_idle",
        "jobs",
        "locks",
        "mailbox",
        "origin",
        "readers",
        "slots",
        "stopping",
        "suppressed",
        "token",
    )

    def __init__(self, setting: Setting, prompt: Sequence[Message], locks: FileLocks, outer: Sequence[Run]) -> None:
        self.conversation = setting.conversation
        self._setting = setting
        self._outer = outer
        self.token = trio.lowlevel.current_trio_token()
        self.origin: Origin = snapshot(trio.lowlevel.current_task())
        self.mailbox: Mailbox[Report] = Mailbox()
        self.locks = locks
        limit = setting.max_parallel_tools
        self.slots = None if limit is None else trio.CapacityLimiter(limit)
        self.readers: tuple[Origin, ...] = ()  # who reads a stream of this run, and so is waited for
        self.budget = Budget()
        self.grace = setting.grace
        self.is_idle = False
        self._idle: trio.Event | None = None  # made when somebody waits
        self.cause: Cause | None = None
        self.stopping = False
        self.suppressed: tuple[BaseException, ...] = ()
        self.assembly: Assembly | None = None
        self._prompt = Queue("all")
        self._prompt.items = [Queued("", message) for message in prompt]
        self._said_earlier = tuple(self.conversation.steering.items)
        self._delivery: Delivery[Event] = Delivery(setting.subscribers, self)
        self.core = self.conversation.core
        self._interrupt: BaseException | None = None
        self._work: trio.Nursery | None = None
        self._tool_phase: ToolPhase | None = None
        self._answer: Answer | None = None
        self._tool_calls = 0
        self._end: AgentEnd | None = None
        self._is_over = False  # all has been told; what is cancelled from here on changes nothing
        self._watch = _Watch()
        self._specs: tuple[ToolSpec, ...] = ()
        self._specs_of: tuple[Tool, ...] = ()
        self.jobs: Jobs
        self._now = trio.lowlevel.current_clock().current_time
        self._began = self._now()

    # The whole run

    async def execute(self) -> None:
        """Run until settled. Raises interrupts bare; leaves an outside cancellation to the caller's next checkpoint."""
        try:
            async with trio.open_nursery() as watch:
                watch.start_soon(self._watch_outside, name="trio_agent: outside cancellation")
                async with trio.open_nursery() as work:
                    self._work = work
                    self.jobs = Jobs(work, self, self.mailbox)
                    await self._in_protection()
        except BaseException as exc:  # noqa: ASYNC103  # cancellation goes on at the caller's checkpoint, or is raised by _caught
            self._leaving(exc)
        if self._interrupt is not None:
            raise self._interrupt

    def _leaving(self, exc: BaseException) -> None:
        """What comes out of the nurseries is a group of `Cancelled`, or a second interrupt, or a bug of ours."""
        failure, rest = split(exc)
        interrupt = None if rest is None else interrupt_in(rest, trio.Cancelled)
        if interrupt is not None:
            self._interrupt = interrupt
        elif failure is not None:
            raise AgentInternalError(
                f"the run failed inside the kernel: {describe(failure)}; please report this"
            ) from exc

    @protected
    async def _watch_outside(self) -> None:
        """Wait to be cancelled from outside: we are not told of it in any other way (A5)."""
        try:
            if not self._is_over:
                await self._watch.wait()
        finally:
            if self._work is not None and not self.is_idle and not self._is_over:
                self.cancelled_outside()

    async def _in_protection(self) -> None:
        settled = False
        with self.budget.protected() as guard:
            try:
                await self._turns()
                settled = not self.jobs.running  # all has been told; no need of the three scopes below
            except Halt:
                pass
            except BaseException as exc:  # noqa: ASYNC103  # cancellation goes on at the caller's checkpoint, or is raised by _caught
                self._caught(exc)
        if guard.cancelled_caught:
            self._delivery.report_cut()
        while not settled:
            settled = await self._settled()
        self._is_over = True
        self.jobs.close()
        self._watch.wake()  # both let tasks return: cancelling them would cost an exception each

    def _caught(self, exc: BaseException) -> None:
        """Take an interrupt or a bug as the run's cause; let cancellation go on to the scope that was cut."""
        failure, rest = part(exc)
        if failure is not None:
            error = AgentInternalError(f"the kernel failed: {describe(failure)}; please report this")
            error.__cause__ = failure
            self._stop(Cause("error", None, str(error), error))
        if rest is not None:
            interrupt = interrupt_in(rest, trio.Cancelled)
            if interrupt is None:
                raise rest
            self.interrupted(interrupt)

    # Turns

    async def _turns(self) -> None:
        await self.emit(AgentStart(time=self.time()))
        batch = self._first_batch()
        while True:
            message = await self._turn(batch)
            end = await self._end_after(message)
            if end is not None:
                await self._finish(*end)
                return
            batch = self._next_batch()

    async def _turn(self, batch: Sequence[tuple[Queue, Queued]]) -> AssistantMessage:
        number = self.core.turn + 1
        await self.emit(turn_start(number, time=self.time()))
        for queue, item in batch:
            await self._say(queue, item)
        self._answer = Answer(self, self._setting.asking)
        message = await self._answer.get()
        results: tuple[ToolResultMessage, ...] = ()
        calls = self.core.calls
        if calls:
            tools = self.conversation.config.tools_by_name
            self._tool_phase = ToolPhase(self, message, calls, tools)
            self._tool_calls += len(calls)
            results = await self._tool_phase.run()
            self._tool_phase = None
        await self.emit(turn_end(number, message, results, time=self.time()))
        return message

    async def _say(self, queue: Queue, item: Queued) -> None:
        """Tell an injected message, unless it has been withdrawn since. It leaves its queue at its start (L6)."""
        if item in queue.items:
            self.conversation.saying = (queue, item)
            await self.emit(message_start(item.message, time=self.time()))
            await self.emit(message_end(item.message, time=self.time()))

    def _first_batch(self) -> list[tuple[Queue, Queued]]:
        """What was steered while idle, all of it, then the prompt (Q4); `resume()` may begin with a follow-up."""
        conversation = self.conversation
        batch = [(conversation.steering, item) for item in self._said_earlier]
        batch += [(self._prompt, item) for item in self._prompt.items]
        if not batch and not can_answer(conversation.history.view()):
            batch = [(conversation.follow_up, item) for item in conversation.follow_up.next_batch()]
        return batch

    def _next_batch(self) -> list[tuple[Queue, Queued]]:
        """Steering first; follow-ups only when the run would end (Q1)."""
        conversation = self.conversation
        queue = conversation.steering
        if not queue.items and not conversation.core.calls:
            queue = conversation.follow_up
        return [(queue, item) for item in queue.next_batch()] if queue.items else []

    async def _end_after(self, message: AssistantMessage) -> tuple[Outcome, str | None] | None:
        """Whether the run ends here, and how. Looks at the queues last, so that what subscribers queued counts (Q2)."""
        conversation = self.conversation
        if conversation.config.hooks.should_stop_after_turn is not None and await self._should_stop():
            return "stopped", "should_stop_after_turn"
        if not (conversation.core.calls or conversation.steering.items or conversation.follow_up.items):
            return "completed", "length" if message.stop_reason == "length" else None
        limit = self._setting.limits.reached(
            turns=conversation.core.turn, tool_calls=self._tool_calls, total_tokens=conversation.run_tokens
        )
        return None if limit is None else ("stopped", limit)

    async def _should_stop(self) -> bool:
        bound = self.hooks.bind("should_stop_after_turn", self.context(), self.snapshot())
        assert bound is not None
        try:
            return bool(await self.in_job("should_stop_after_turn", bound))
        except Exception as exc:  # a hook may raise anything
            self.fail("the hook should_stop_after_turn failed", exc)

    async def _finish(self, outcome: Outcome, reason: str | None) -> None:
        conversation = self.conversation
        self._end = AgentEnd(outcome, reason, conversation.core.turn, conversation.run_usage, time=self.time())
        self._advance(self._end)
        await self._delivery.deliver(self._end)

    # Emission

    def time(self) -> float:
        """Seconds since the run began, as every event is told with."""
        return self._now() - self._began

    def emit(self, event: Event) -> Awaitable[None]:
        """Judge the event, change state, deliver it, and see whether the run is to go on. In this order (L5).

        To be awaited at once. No coroutine of its own, and `_advance` written out: a sixth of what a delta costs.
        """
        self.core.feed(event)
        self.conversation.apply(event)
        return self._delivery.deliver(event)

    def update(self, delta: Delta, assembly: Assembly, length: int) -> Awaitable[None]:
        """Emit a `MessageUpdate`: the same as `emit` does, in one step, as it comes by far the most often.

        test_an_update_is_emitted_as_any_event_is
        """
        event: MessageUpdate = message_update(delta, time=self.time(), view=assembly, length=length)  # pyright: ignore[reportCallIssue]  # attrs drops the underscore
        if self.core.position is not Position.STREAMING:
            self.core.feed(event)  # refuses
        self.conversation.shown = length
        return self._delivery.deliver(event)

    def _advance(self, event: Event) -> None:
        """Judge and apply."""
        self.core.feed(event)
        self.conversation.apply(event)

    async def look(self) -> None:
        """Wait until a child has something to report, or leave for settlement."""
        if self.stopping:
            raise Halt
        await self.mailbox.wait()
        if self.stopping:
            raise Halt

    async def after_failure(self) -> None:
        """Let whoever else was cancelled in the same tick say so, before a child's failure is taken for the cause.

        A child may have turned its cancellation from outside into a failure:
        test_A5_an_outside_cancellation_is_known_for_one_in_whatever_order_the_tasks_run.
        """
        await trio.lowlevel.cancel_shielded_checkpoint()
        if self.stopping:
            raise Halt

    async def in_job(self, name: str, call: Callable[[], Any]) -> Any:
        """Call a hook: an async one in a child task under the abort scope and the hooks' time-out, a sync one here."""
        value = plainly(call)
        if inspect.isawaitable(value):
            job = self.jobs.start(name, within, value, self.hooks.timeout if name != "compaction" else None)
            while not job.done:
                await self.look()
            if job.failure is not None:
                await self.after_failure()
                raise job.failure
            value = job.value
        if self.stopping:
            raise Halt
        return value

    # What the parts of the run ask

    @property
    def aborting(self) -> bool:
        return self.cause is not None and self.cause.outcome == "aborted"

    @property
    def hooks(self) -> Hooks:
        return self.conversation.config.hooks

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        tools = self.conversation.config.tools
        if self._specs_of is not tools:
            self._specs = tuple([tool.spec for tool in tools])
            self._specs_of = tools
        return self._specs

    def snapshot(self) -> AgentState:
        return self.conversation.snapshot()

    def context(self) -> HookContext:
        return HookContext(self.snapshot, lambda: self.aborting)

    # Being stopped

    def abort(self, reason: str | None) -> None:
        """Stop the run (A1). Once `agent_end` is being delivered the outcome stands, and only the deadline is armed."""
        self._stop(Cause("aborted", reason, f"aborted: {reason}" if reason else "aborted"))
        self._arm()

    def interrupted(self, exc: BaseException) -> None:
        """Settle as if aborted, then let the interrupt leave `prompt()` (F7)."""
        if self._interrupt is None:
            self._interrupt = exc
        self.abort(type(exc).__name__)

    @property
    def is_cancelled_outside(self) -> bool:
        """Whether the scope around the run is cancelled: known before any of its tasks has been told."""
        return self._watch.is_cancelled

    def cancelled_outside(self) -> None:
        """The scope around the run was cancelled: the first of its tasks that notices says so (A5)."""
        self._stop(Cause("aborted", "cancelled", "aborted: the scope around the run was cancelled"))
        self._arm()

    def _arm(self) -> None:
        """An agent inside a tool gets at most half of what the run around it has left (A7).

        From the outermost inwards, so that it does not matter whose turn it is first.
        """
        grace = math.inf
        for run in (*reversed(self._outer), self):  # `_outer` is innermost first
            own = run.budget.left() if run.budget.armed else run.grace
            grace = min(own, grace / 2)
        self.budget.arm(grace)

    def fail(self, what: str, failure: Exception) -> NoReturn:
        """End the run with an error."""
        self._note_failure(what, failure)
        raise Halt

    def _note_failure(self, what: str, failure: Exception) -> None:
        reason = failure.kind if isinstance(failure, ProviderError) else None
        self._stop(Cause("error", reason, f"{what}: {describe(failure)}", failure))

    def _stop(self, cause: Cause) -> None:
        if self.cause is None and self.core.position is not Position.ENDED:
            self.cause = cause
            self.stopping = True
            if self._work is not None:
                self._work.cancel_scope.cancel()
            self.mailbox.wake()
        elif cause.error is not None and (self.cause is None or cause.error is not self.cause.error):
            self._keep(cause.message, cause.error)

    def later_failure(self, what: str, failure: Exception) -> None:
        """Something went wrong that changes nothing more: it is logged and kept on the result (F10)."""
        self._keep(f"{what}: {describe(failure)}", failure)

    def _keep(self, text: str, failure: BaseException) -> None:
        self.suppressed += (failure,)
        logger.error("%s", text, exc_info=failure)

    def subscriber_failed(self, listener: object, observer: bool, event: Event, failure: Exception) -> None:
        what = f"subscriber {name_of(listener)} failed at {event.type}"
        if observer or event.type == "agent_end":
            self.later_failure(what, failure)
        else:
            self._note_failure(what, failure)

    def subscriber_cut(self, listener: object, event: Event) -> None:
        text = f"subscriber {name_of(listener)} did not return from {event.type} within its share of the grace period"
        self.suppressed += (TimeoutError(text),)
        logger.warning("%s", text)

    # Settlement

    async def _settled(self) -> bool:
        """Settle; False if the first interrupt came meanwhile and it is to go on as if aborted. A second one leaves."""
        try:
            with trio.CancelScope(shield=True):
                await self._delivery.finish(self.budget)
                await self._close()
        except BaseException as exc:  # noqa: ASYNC103  # cancellation goes on at the caller's checkpoint, or is raised by _caught
            _, rest = split(exc)
            interrupt = None if rest is None else interrupt_in(rest, trio.Cancelled)
            if interrupt is None or self._interrupt is not None:
                raise
            self.interrupted(interrupt)
            return False  # noqa: ASYNC104  # an interrupt is kept, and raised once the run has settled
        return True

    async def _close(self) -> None:
        await self._wait_for_jobs(0.5)
        self.let_go()
        core = self.core
        for bare in closing_events(core, self):
            event = attrs.evolve(bare, time=self.time())
            if self._prompt.items and isinstance(event, MessageStart) and event.message is self.unsent():
                self.conversation.saying = (self._prompt, self._prompt.items[0])
            self._advance(event)
            if isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage) and self.cause is not None:
                self.cause.carried = True
            await self._delivery.deliver_bounded(event, self.budget)
        await self._wait_for_jobs(1.0)
        if self.jobs.running:
            names = ", ".join([job.name for job in self.jobs.running])
            logger.warning("the grace period is over and these still refuse to end: %s", names)

    def let_go(self) -> None:
        """Give back the files of calls that were cut off before they began. Sync, for a second Ctrl-C as well (P4)."""
        if self._tool_phase is not None:
            self._tool_phase.let_go()

    def forget(self) -> None:
        """Let go of the parts that refer back to the run, which is over: it is freed at once then, and so is its agent.

        test_an_agent_is_freed_without_the_garbage_collector
        """
        for name in _REFERRING_BACK:
            if hasattr(self, name):
                delattr(self, name)

    async def wait(self) -> None:
        """Wait until the run has settled."""
        if self._idle is None:
            self._idle = trio.Event()
        await self._idle.wait()

    def has_settled(self) -> None:
        """Let whoever waits go on."""
        self.is_idle = True
        if self._idle is not None:
            self._idle.set()

    async def _wait_for_jobs(self, share: float) -> None:
        """Wait until every child has ended, within a share of what is left of the grace period (A4)."""
        with self.budget.protected(share):
            while self.jobs.running:
                for report in self.mailbox.take():
                    report.drop()
                await self.mailbox.wait()

    # What the closing events say (`_closing.Material`)

    def unsent(self) -> Message | None:
        return self._prompt.items[0].message if self._prompt.items else None

    def partial(self) -> AssistantMessage:
        cause = self._required_cause()
        assert self.assembly is not None  # from before the start of an answer until its end has been told
        # What was folded but not told is no part of it (L4): test_L4_what_was_not_told_is_not_in_the_message.
        return self.assembly.message_at(self.conversation.shown, _closing_reason(cause), cause.message)

    def closing(self) -> AssistantMessage | None:
        cause = self._required_cause()
        return None if cause.carried else self._made_closing(cause)

    def _made_closing(self, cause: Cause) -> AssistantMessage:
        return AssistantMessage(
            (),
            _closing_reason(cause),
            model=self.conversation.config.model,
            provider=self._setting.asking.provider_name,
            error_message=cause.message,
        )

    def result(self, call: ToolCall) -> ToolResultMessage:
        if self._tool_phase is None:  # the run was cut off before its calls were looked at
            standing = self.core.standing
            assert standing is not None
            self._tool_phase = ToolPhase(self, standing, self.core.calls, {})
        return self._tool_phase.result_now(call)

    def retry_end(self) -> RetryEnd:
        attempts = self._answer.failed_attempts if self._answer is not None else 0
        return RetryEnd(attempts, "aborted" if self.aborting else "failed")

    def compaction_end(self) -> CompactionEnd:
        if not self.aborting:  # it failed with its run, and is not tried again before a turn has succeeded (F9)
            self.conversation.compaction_spent = True
        return CompactionEnd("aborted" if self.aborting else "failed", error=self._required_cause().message)

    def agent_end(self) -> AgentEnd:
        cause, conversation = self._required_cause(), self.conversation
        error = cause.message if cause.outcome == "error" else None
        self._end = AgentEnd(cause.outcome, cause.reason, conversation.core.turn, conversation.run_usage, error)
        return self._end

    def _required_cause(self) -> Cause:
        if self.cause is None:
            error = AgentInternalError("a run is being closed without a cause; please report this")
            self.cause = Cause("error", None, str(error), error)
        return self.cause

    @property
    def end(self) -> AgentEnd:
        """The run's last event, once it has been told."""
        assert self._end is not None
        return self._end


class _Watch(Bell):
    """Waits for the end of the run, or to be cancelled from outside: Trio asks to leave off waiting at once."""

    __slots__ = ("is_cancelled",)

    def __init__(self) -> None:
        super().__init__()
        self.is_cancelled = False

    def _abort(self, _raise_cancel: Any) -> trio.lowlevel.Abort:
        self.is_cancelled = True
        return super()._abort(_raise_cancel)


def _closing_reason(cause: Cause) -> Any:
    return "aborted" if cause.outcome == "aborted" else "error"


def can_answer(history: Sequence[Message]) -> bool:
    """Whether a model could answer this history: it ends in what a person or a tool said (A8).

    An empty closing message is looked through, and so are an application's own messages.
    """
    for message in reversed(history):
        if isinstance(message, AssistantMessage):
            if message.stop_reason in ("error", "aborted") and not message.content:
                continue
            return False
        if message.role != "custom":
            return True
    return False
