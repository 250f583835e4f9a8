"""The public agent: its configuration, at most one run, and a guard on every entry.

Here lives what an application calls. Nothing in here emits, executes a tool or speaks to a provider: that
is the run's (`_run.py`). An idle agent holds no Trio object and belongs to nobody; a running one belongs to the
`trio.run` and the thread of its run (A6).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from itertools import count
from types import FunctionType
from typing import Final, Literal, TypeAlias, TypeVar

import trio

from ._ancestry import Origin, enclosing, lineage, waits_for
from ._asking import quick_asking
from ._delivery import Listener, Subscribers, Subscription
from ._errors import AgentBusyError, ForeignRunError, NothingToResumeError, ReentrantCallError
from ._events import Event
from ._file_locks import FileLocks, current_file_locks
from ._hooks import NO_HOOKS, Hooks
from ._interrupts import protected
from ._messages import AssistantMessage, CustomMessage, Image, Message, ToolResultMessage, UserMessage
from ._policies import CompactionPolicy, Limits, RetryPolicy
from ._projection import IncrementalProjection
from ._provider import Provider
from ._queues import Queue, Queued, QueueMode, as_message, as_messages
from ._request import DEFAULT_SETTINGS, ModelSettings, Reasoning
from ._result import RunResult
from ._run import Run, can_answer, quick_setting
from ._state import AgentState, Config, Conversation
from ._stream import EventStream
from ._tools import Tool

Input: TypeAlias = str | UserMessage | CustomMessage
T = TypeVar("T")


class _Unset:
    def __repr__(self) -> str:
        return "<unchanged>"


_UNSET: Final = _Unset()
_DEFAULT_RETRY: Final = RetryPolicy()
_DEFAULT_LIMITS: Final = Limits()
_queued_ids: Final = count(1)
_MESSAGES: Final = (UserMessage, AssistantMessage, ToolResultMessage, CustomMessage)

# The runs under way in this `trio.run`, so that one inside another's tool knows whose time it is on (A7). By their
# tasks, so that a run looks at those around it alone: test_a_run_costs_the_same_among_many.
_Runs: TypeAlias = dict[trio.lowlevel.Task, list[Run]]
_runs: Final[trio.lowlevel.RunVar[_Runs]] = trio.lowlevel.RunVar("trio_agent runs")


class Agent:
    """A conversation with a model, and the one run at a time that advances it.

    `grace` is in seconds: how long subscribers and cleaning up may take once a run is aborted. `file_locks` replaces
    the table of file locks that all agents of a `trio.run` share. With `projection_failure="fail"` a failing
    `transform_context` or `convert_to_llm` fails the run instead of being passed over. `settings` go into each request.
    """

    __slots__ = ("__weakref__", "_conversation", "_run", "_setting", "_subscribers")

    def __init__(
        self,
        provider: Provider,
        *,
        model: str,
        system_prompt: str = "",
        tools: Iterable[Tool] = (),
        messages: Iterable[Message] = (),
        hooks: Hooks | None = None,
        retry: RetryPolicy = _DEFAULT_RETRY,
        compaction: CompactionPolicy | None = None,
        limits: Limits = _DEFAULT_LIMITS,
        reasoning: Reasoning = "off",
        steering_mode: QueueMode = "one_at_a_time",
        follow_up_mode: QueueMode = "one_at_a_time",
        max_parallel_tools: int | None = None,
        grace: float = 5.0,
        file_locks: FileLocks | None = None,
        projection_failure: Literal["fall_back", "fail"] = "fall_back",
        settings: ModelSettings = DEFAULT_SETTINGS,
    ) -> None:
        _check_provider(provider)
        _check_type("model", model, str)
        _check_type("system_prompt", system_prompt, str)
        _check_type("retry", retry, RetryPolicy)
        _check_type("limits", limits, Limits)
        _check_type("hooks", hooks or NO_HOOKS, Hooks)
        _check_type("max_parallel_tools", max_parallel_tools or 1, int)
        if projection_failure not in ("fall_back", "fail"):
            raise ValueError(f"projection_failure is 'fall_back' or 'fail', not {projection_failure!r}")
        if max_parallel_tools is not None and max_parallel_tools < 1:
            raise ValueError("max_parallel_tools is at least 1, or None for no bound")
        if not grace >= 0:
            raise ValueError(f"grace is a number of seconds, not {grace!r}")
        config = Config(model, system_prompt, _checked_tools(tools), reasoning, hooks or NO_HOOKS)
        self._conversation = Conversation(
            config, _checked_messages(messages), Queue(steering_mode), Queue(follow_up_mode)
        )
        self._subscribers: Subscribers[Event] = Subscribers()
        name = getattr(provider, "name", None)
        asking = quick_asking(
            provider=provider,
            provider_name=name if isinstance(name, str) else None,
            retry=retry,
            compaction=compaction,
            settings=settings,
            projection=IncrementalProjection(),
            fail_on_projection=projection_failure == "fail",
        )
        self._setting = quick_setting(
            conversation=self._conversation,
            subscribers=self._subscribers,
            asking=asking,
            limits=limits,
            grace=grace,
            max_parallel_tools=max_parallel_tools,
            locks=file_locks,
        )
        self._run: Run | None = None

    def __repr__(self) -> str:
        state = self._conversation
        return f"<Agent {state.config.model!r} {state.core.phase.value}, {len(state.history)} messages>"

    # Running

    async def prompt(self, input: Input | Sequence[Input], *, images: Sequence[Image] = ()) -> RunResult:
        """Start a run in the caller's task; returns when it has settled and every event was handled.

        No failure of a provider, tool, hook or subscriber is raised: it is in the result (F1). Raises `ValueError` for
        nothing to say, `TypeError` for what only a model or a tool can say, `AgentBusyError` while a run is in
        progress. Cancelling the scope around it settles the run within the grace period, then lets `trio.Cancelled`
        go on (A5). So does a Ctrl-C, which is raised in what the application wrote and where the kernel waits (F7).
        """
        return await self._start(as_messages(input, images))

    async def resume(self) -> RunResult:
        """Start a run without new input, from a history that a model can answer or from queued messages.

        Otherwise raises `NothingToResumeError`. In all else like `prompt`.
        """
        self.refuse_while_busy("resume")
        conversation = self._conversation
        queued = conversation.steering.items or conversation.follow_up.items
        if not queued and not can_answer(conversation.history.view()):
            raise NothingToResumeError(
                "resume() needs a history that ends in a user or tool-result message, or a queued message; "
                "call prompt() to say something"
            )
        return await self._start(())

    def stream(self, input: Input | Sequence[Input], *, images: Sequence[Image] = ()) -> EventStream:
        """Run while the caller's own block reads the events.

            async with agent.stream("hi") as events:
                async for event in events:
                    ...
            print(events.result.text)

        Each event is handed over before the run goes on. Leaving the block early detaches the iterator, aborts the
        run and waits until it has settled; an exception of the block leaves it bare. The block counts as inside the
        run (A6).
        """
        messages = as_messages(input, images)
        return EventStream(self, lambda: self._start(messages))

    @protected
    async def _start(self, messages: Sequence[Message]) -> RunResult:
        self.refuse_while_busy("prompt")
        await trio.lowlevel.checkpoint_if_cancelled()  # A5: in a cancelled scope no event is emitted
        locks = self._setting.locks or current_file_locks()
        runs = _current_runs()
        run = Run(self._setting, messages, locks, _outer_runs(runs))
        try:
            self._run = run
            runs.setdefault(run.origin.task, []).append(run)
            await run.execute()
            self._conversation.core.end()  # P2; raises if the run has not ended, which would be a bug of ours
        finally:
            self._reset(run, runs)
        await trio.lowlevel.checkpoint_if_cancelled()  # an outside cancellation goes on to its scope, bare (A5)
        return _result_of(run)

    def _reset(self, run: Run, runs: _Runs) -> None:
        """P4: idle, whatever happened. Sync, so that a second Ctrl-C cannot leave it half done."""
        run.let_go()
        run.forget()
        here = runs.get(run.origin.task, [])
        if run in here:
            here.remove(run)
        if not here:
            runs.pop(run.origin.task, None)
        self._conversation.settle()
        self._run = None
        run.has_settled()

    async def wait_for_idle(self) -> None:
        """Wait until the run that is in progress now has settled. A checkpoint when there is none.

        Raises `ReentrantCallError` from inside that run, which would wait for itself.
        """
        run = self._run
        if run is None:
            await trio.lowlevel.checkpoint()
            return
        self.refuse_foreign("wait_for_idle")
        if _is_inside(run):
            raise ReentrantCallError(
                "wait_for_idle() was called from inside the run that it would wait for; return, and the run goes on"
            )
        await run.wait()

    @protected
    def abort(self, reason: str | None = None) -> None:
        """Stop the run in progress (A1): from anywhere in its `trio.run`, any number of times. Nothing when idle."""
        if self._run is not None:
            self.refuse_foreign("abort")
            self._run.abort(reason if reason is None else str(reason))

    # Saying something

    def steer(self, input: Input) -> str:
        """Queue a message for the next turn boundary, before any follow-up (Q1). Gives an id for `withdraw`."""
        return self._queue(self._conversation.steering, as_message(input, caller="steer"), "steer")

    def follow_up(self, input: Input) -> str:
        """Queue a message for when the run would end (Q1). Gives an id for `withdraw`."""
        return self._queue(self._conversation.follow_up, as_message(input, caller="follow_up"), "follow_up")

    @protected
    def _queue(self, queue: Queue, message: Message, caller: str) -> str:
        self.refuse_foreign(caller)
        item = Queued(f"q{next(_queued_ids)}", message)
        queue.items.append(item)
        return item.id

    @protected
    def withdraw(self, id: str) -> bool:
        """Take a queued message back. False if it has been said, withdrawn or cleared."""
        self.refuse_foreign("withdraw")
        return self._conversation.steering.withdraw(id) or self._conversation.follow_up.withdraw(id)

    @protected
    def clear_queues(self) -> tuple[Message, ...]:
        """Take all queued messages out, and give them: steering first, each in its order."""
        self.refuse_foreign("clear_queues")
        return (*self._conversation.steering.clear(), *self._conversation.follow_up.clear())

    # Looking and changing

    @property
    def state(self) -> AgentState:
        """A frozen picture, in constant time however long the history is."""
        return self._conversation.snapshot()

    @protected
    def subscribe(self, listener: Listener[Event], *, observer: bool = False) -> Subscription[Event]:
        """Call `listener` with every event from the next one on, and await what it gives if that is awaitable.

        The run waits for it (L5), also while it is being aborted, up to the grace period (A3). It may not wait for
        the run's progress. If it raises, the run fails (F3), unless it is an observer. Gives what unsubscribes:
        callable, and a context manager.
        """
        self.refuse_foreign("subscribe")
        if not callable(listener):
            raise TypeError(f"subscribe() takes a callable, not {type(listener).__name__}")
        return self._subscribers.add(listener, observer, self)

    @protected
    def configure(
        self,
        *,
        model: str | _Unset = _UNSET,
        system_prompt: str | _Unset = _UNSET,
        tools: Iterable[Tool] | _Unset = _UNSET,
        reasoning: Reasoning | _Unset = _UNSET,
        hooks: Hooks | _Unset | None = _UNSET,
    ) -> None:
        """Change what is given, at the next turn boundary; at once when idle (L6)."""
        self.refuse_foreign("configure")
        old = self._conversation.next_config
        new = Config(
            _given(model, old.model),
            _given(system_prompt, old.system_prompt),
            old.tools if isinstance(tools, _Unset) else _checked_tools(tools),
            _given(reasoning, old.reasoning),
            old.hooks if isinstance(hooks, _Unset) else hooks or NO_HOOKS,
        )
        self._conversation.next_config = new
        if self._run is None:
            self._conversation.config = new

    @protected
    def reset(self, messages: Iterable[Message] = ()) -> None:
        """Begin anew: history, queues and counts. Raises `AgentBusyError` while a run is in progress."""
        self.refuse_while_busy("reset")
        self._conversation.steering.clear()
        self._conversation.follow_up.clear()
        self._conversation.restart(_checked_messages(messages))

    # Guards

    def read_by(self, reader: Origin) -> None:
        """Count the block that reads a stream of the run in progress as inside it (A6)."""
        if self._run is not None and reader not in self._run.readers:
            self._run.readers += (reader,)

    def forget(self, subscription: Subscription[Event]) -> None:
        """Unsubscribe: what a `Subscription` calls."""
        self.refuse_foreign("unsubscribe")
        self._subscribers.remove(subscription)

    def refuse_foreign(self, caller: str) -> None:
        run = self._run
        if run is None:
            return
        try:
            token = trio.lowlevel.current_trio_token()
        except RuntimeError:
            raise ForeignRunError(
                f"{caller}() was called from outside of Trio while a run is in progress; "
                f"use trio.from_thread.run_sync(agent.{caller}, ..., trio_token=...)"
            ) from None
        if token is not run.token:
            raise ForeignRunError(
                f"{caller}() was called from another trio.run than the one that the agent runs in; "
                f"use trio.from_thread.run_sync(agent.{caller}, ..., trio_token=...)"
            )

    def refuse_while_busy(self, caller: str) -> None:
        """Raise `AgentBusyError` while a run is in progress, and say what to call instead (A6)."""
        run = self._run
        if run is None:
            return
        self.refuse_foreign(caller)
        advice = "use steer() to say something at the next turn boundary, or follow_up() for when the run would end"
        if _is_inside(run):
            raise ReentrantCallError(f"{caller}() was called from inside the run in progress; {advice}")
        raise AgentBusyError(f"{caller}() was called while a run is in progress; {advice}, or wait_for_idle() first")


def _given(value: T | _Unset, old: T) -> T:
    return old if isinstance(value, _Unset) else value


def _is_inside(run: Run) -> bool:
    return waits_for(run.origin) or any(waits_for(origin) for origin in run.readers)


def _current_runs() -> _Runs:
    try:
        return _runs.get()
    except LookupError:
        runs: _Runs = {}
        _runs.set(runs)
        return runs


def _outer_runs(runs: _Runs) -> list[Run]:
    """The runs that wait for this task: it is inside a tool, hook or subscriber of theirs."""
    if not runs:
        return []
    task = trio.lowlevel.current_task()
    by_origin = {run.origin: run for at in lineage(task) for run in runs.get(at, ())}
    return [by_origin[origin] for origin in enclosing(task, by_origin)] if by_origin else []


def _result_of(run: Run) -> RunResult:
    end = run.end
    return RunResult(
        outcome=end.outcome,
        reason=end.reason,
        messages=tuple(run.conversation.run_messages),
        usage=end.usage,
        error=run.cause.error if run.cause is not None else None,
        suppressed=run.suppressed,
    )


def _check_type(name: str, value: object, wanted: type) -> None:
    """Refuse at once what would fail in the middle of a run."""
    if not isinstance(value, wanted):
        raise TypeError(f"{name} is a {wanted.__name__}, not {type(value).__name__}")


def _check_provider(provider: object) -> None:
    call = getattr(provider, "__call__", None)  # noqa: B004  # the bound method is looked at, not whether there is one
    if call is None:
        raise TypeError(f"a provider is an async callable (request, send), not {type(provider).__name__}")
    if _is_generator(provider) or (type(provider) is not FunctionType and _is_generator(call)):
        raise TypeError("a provider sends its chunks: `await send(chunk)` in an async function, not `yield chunk`")
    if inspect.isclass(provider):
        raise TypeError(f"a provider is an object, not a class: {provider.__name__}(...)")


def _is_generator(call: object) -> bool:
    code = getattr(call, "__code__", None)  # as most have: `inspect` takes ten times as long
    return inspect.isasyncgenfunction(call) if code is None else bool(code.co_flags & inspect.CO_ASYNC_GENERATOR)


def _checked_tools(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    checked: dict[str, Tool] = {}
    for tool in tools:
        if not isinstance(tool, Tool):
            raise TypeError(f"a tool is made with @tool or Tool(...), {tool!r} is not one")
        if tool.name in checked:
            raise ValueError(f"two tools are called {tool.name!r}; give one of them another name")
        checked[tool.name] = tool
    return tuple(checked.values())


def _checked_messages(messages: Iterable[Message]) -> list[Message]:
    checked = list(messages)
    for message in checked:
        if not isinstance(message, _MESSAGES):
            raise TypeError(f"a history consists of messages, not {type(message).__name__}")
    return checked


__all__ = ["Agent", "Input"]
