"""Gets a turn its answer: the request, the attempts, the retries between them, and compaction.

Here lives what happens between the last injected message and the standing one (F4, F6, F8, F9). Whether a failure
ends the run is decided here; how a run is closed is not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NoReturn, Protocol, cast

import attrs
import trio

from ._assembly import Assembly
from ._cancellation import plainly
from ._chunks import Chunk
from ._errors import ProviderError, ToolDefinitionError
from ._events import (
    CompactionEnd,
    CompactionStart,
    Delta,
    ErrorInfo,
    Event,
    RetryEnd,
    RetryStart,
    message_end,
    message_start,
)
from ._failures import describe
from ._hooks import HookContext, Hooks
from ._interrupts import awaited, protected
from ._jobs import Job, Jobs
from ._mailbox import Mailbox
from ._messages import (
    AssistantMessage,
    CustomMessage,
    Message,
    ToolResultMessage,
    Usage,
    UserMessage,
    assistant_message,
    checked_usage,
)
from ._policies import Compaction, CompactionPolicy, CompactionReason, RetryPolicy
from ._projection import IncrementalProjection, project
from ._provider import Provider
from ._quick import quick
from ._request import ModelRequest, ModelSettings, ToolSpec, model_request
from ._state import AgentState, Conversation

_ROOM = 256  # chunks that a provider may be ahead of the subscribers
_MESSAGES = (UserMessage, AssistantMessage, ToolResultMessage, CustomMessage)


@attrs.frozen(kw_only=True)
class Asking:
    """What an agent asks with: settled when it is made, shared by its runs."""

    provider: Provider
    provider_name: str | None
    retry: RetryPolicy
    compaction: CompactionPolicy | None
    settings: ModelSettings
    projection: IncrementalProjection
    fail_on_projection: bool


quick_asking = quick(Asking)


class Host(Protocol):
    """The run, as the asking sees it."""

    conversation: Conversation
    jobs: Jobs
    mailbox: Mailbox[Any]
    assembly: Assembly | None

    @property
    def stopping(self) -> bool: ...
    @property
    def hooks(self) -> Hooks: ...
    @property
    def specs(self) -> tuple[ToolSpec, ...]: ...
    def emit(self, event: Event) -> Awaitable[None]: ...
    def update(self, delta: Delta, assembly: Assembly, length: int) -> Awaitable[None]: ...
    async def look(self) -> None: ...
    async def after_failure(self) -> None: ...
    async def in_job(self, name: str, call: Callable[[], Any]) -> Any: ...
    def fail(self, what: str, failure: Exception) -> NoReturn: ...
    def later_failure(self, what: str, failure: Exception) -> None: ...
    def snapshot(self) -> AgentState: ...
    def context(self) -> HookContext: ...
    def time(self) -> float: ...


class _Stream:
    """Chunks on their way from the provider's task to the run's: a bounded list and one wake-up."""

    __slots__ = ("_host", "_room", "chunks")

    def __init__(self, host: Host) -> None:
        self._host = host
        self._room: trio.Event | None = None
        self.chunks: list[Chunk] = []

    @protected
    async def send(self, chunk: Chunk) -> None:
        """Hand over one chunk; see `Provider`. A checkpoint when the run is behind or is stopping, else none."""
        if self._host.stopping:
            await trio.lowlevel.checkpoint()
            return
        self.chunks.append(chunk)
        ahead = len(self.chunks)
        if ahead == 1:  # behind others the run is awake already
            self._host.mailbox.wake()
        if ahead >= _ROOM:
            self._room = room = trio.Event()
            await room.wait()

    def take(self) -> list[Chunk]:
        chunks, self.chunks = self.chunks, []
        if self._room is not None:
            self._room.set()
            self._room = None
        return chunks


class Answer:
    """One turn's answer."""

    def __init__(self, host: Host, asking: Asking) -> None:
        self._host = host
        self._asking = asking
        self._failed = 0
        self._overflowed = False

    @property
    def failed_attempts(self) -> int:
        return self._failed

    async def get(self) -> AssistantMessage:
        """Ask until a message stands; its end has been told. A failure that nothing cures fails the run."""
        if self._asking.compaction is not None:
            await self._compact_at_threshold()
        request = await self._request()
        while True:
            failure = await self._attempt(request)
            if failure is None:
                return await self._stand()
            await self._host.after_failure()
            if await self._recover(failure):
                request = await self._request()

    async def _stand(self) -> AssistantMessage:
        host = self._host
        assert host.assembly is not None
        message = host.assembly.finish()
        host.conversation.compaction_spent = False
        await host.emit(message_end(message, time=host.time()))
        host.assembly = None
        return message

    # The request

    async def _request(self) -> ModelRequest:
        host = self._host
        config = host.conversation.config
        try:
            specs = host.specs
        except ToolDefinitionError as exc:  # an annotation that could not be resolved before
            host.fail("a tool cannot be described to the model", exc)
        if config.hooks.transform_context is None and config.hooks.convert_to_llm is None:
            # Only what is new since the last request is looked at.
            messages: Sequence[Message] = self._asking.projection.update(host.conversation.history)
        else:
            messages = await self._projected()
        return model_request(
            model=config.model,
            system_prompt=config.system_prompt,
            messages=messages,
            tools=specs,
            reasoning=config.reasoning,
            settings=self._asking.settings,
        )

    async def _projected(self) -> Sequence[Message]:
        """History as the hooks let the model see it."""
        hooks, history = self._host.hooks, self._host.conversation.history
        messages = await self._through_hook("transform_context", list(history.view()), lambda given: given)
        if hooks.convert_to_llm is None:
            return self._project(messages)
        return tuple(await self._through_hook("convert_to_llm", messages, lambda given: list(self._project(given))))

    def _project(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        return project(messages, told=self._asking.projection.told)

    async def _through_hook(
        self, name: str, messages: list[Message], fall_back: Callable[[list[Message]], list[Message]]
    ) -> list[Message]:
        """What the hook makes of the messages, or the fall-back if it fails (F4). The hook gets a copy."""
        host = self._host
        bound = host.hooks.bind(name, host.context(), list(messages))
        if bound is None:
            return messages
        try:
            return _checked_messages(name, await host.in_job(name, bound))
        except Exception as exc:  # a hook may raise anything
            if self._asking.fail_on_projection:
                host.fail(f"the hook {name} failed", exc)
            host.later_failure(f"the hook {name} failed; its input is used instead", exc)
            return fall_back(messages)

    # One attempt

    async def _attempt(self, request: ModelRequest) -> Exception | None:
        """Send the request and tell its answer, all but the end. Gives what went wrong, with the message still open."""
        host, asking = self._host, self._asking
        conversation = host.conversation
        stream = _Stream(host)
        assembly = Assembly(conversation.call_ids, model=request.model, provider=asking.provider_name)
        host.assembly = None
        conversation.start_streaming()
        job = host.jobs.start("provider", awaited, asking.provider, request, stream.send)
        while not (job.done and not stream.chunks):
            if not stream.chunks:
                await host.look()
            unusable = await self._tell(stream.take(), assembly)
            if unusable is not None:
                await host.after_failure()
                self._failed += 1
                host.fail("the provider failed", unusable)  # cancels the provider, and waits for it
        failure = self._verdict(job, assembly)
        if failure is not None and host.assembly is None:
            conversation.stop_streaming()
        return failure

    async def _tell(self, chunks: list[Chunk], assembly: Assembly) -> Exception | None:
        host, fold, log = self._host, assembly.fold, assembly.log
        update = host.update  # looked up once: this loop is most of what a delta costs
        for chunk in chunks:
            try:
                delta = fold(chunk)
            except ProviderError as exc:
                return exc
            except TypeError as exc:
                return ProviderError("protocol", f"a chunk holds values of a wrong type: {exc}")
            if host.assembly is None:
                await self._start(assembly)
            if delta is None:
                host.conversation.shown = len(log)
            else:
                await update(delta, assembly, len(log))
        return None

    async def _start(self, assembly: Assembly) -> None:
        """The first chunk has come: the message begins, empty."""
        host = self._host
        host.assembly = assembly
        host.conversation.show(assembly)
        empty = assistant_message((), None, model=assembly.model, provider=assembly.provider)
        await host.emit(message_start(empty, time=host.time()))

    def _verdict(self, job: Job[None], assembly: Assembly) -> Exception | None:
        """What the provider's return means (F6)."""
        if assembly.finished and self._host.assembly is not None:
            if job.failure is not None:
                self._host.later_failure("the provider failed behind its end marker", job.failure)
            return None
        if job.failure is not None:
            return job.failure
        return ProviderError("protocol", "the provider returned without an end marker; the answer may be cut")

    # After a failure

    async def _recover(self, failure: Exception) -> bool:
        """Wait or compact, so that the request can be sent again; True if it has to be built anew. Or fail the run."""
        host = self._host
        self._failed += 1
        if isinstance(failure, ProviderError):
            if self._may_compact(failure):
                await self._end_attempt(failure)
                self._overflowed = True
                if await self._compact("overflow") is not None:
                    host.fail("the provider failed", failure)
                return True
            delay = self._asking.retry.delay(self._failed, failure)
            if delay is not None:
                await self._end_attempt(failure)
                await self._wait(failure, delay)
                return False
        return host.fail("the provider failed", failure)

    def _may_compact(self, failure: ProviderError) -> bool:
        return (
            failure.kind == "context_overflow"
            and self._asking.compaction is not None
            and not self._overflowed
            and not self._host.conversation.compaction_spent
        )

    async def _end_attempt(self, failure: ProviderError) -> None:
        """End a message that had begun, as the failed attempt that it was (F8)."""
        host = self._host
        if host.assembly is not None:
            message = host.assembly.message_at(host.conversation.shown, "error", describe(failure))
            await host.emit(message_end(message, time=host.time()))
            host.assembly = None

    async def _wait(self, failure: ProviderError, delay: float) -> None:
        host = self._host
        error = ErrorInfo(failure.kind, failure.message, failure.status)
        await host.emit(RetryStart(self._failed, self._asking.retry.max_attempts, delay, error, time=host.time()))
        with trio.move_on_after(delay):
            while True:
                await host.look()
        await host.emit(RetryEnd(self._failed, "resumed", time=host.time()))
        host.conversation.core.enter_turn()

    # Compaction

    async def _compact_at_threshold(self) -> None:
        policy = self._asking.compaction
        if policy is None or self._host.conversation.compaction_spent:
            return
        if self._is_near(policy, self._host.snapshot()):
            await self._compact("threshold")

    def _is_near(self, policy: CompactionPolicy, state: AgentState) -> bool:
        try:
            return bool(plainly(lambda: policy.threshold(state)))
        except Exception as exc:  # an application's policy may raise anything
            self._host.later_failure("the compaction policy's threshold() failed", exc)
            return False

    async def _compact(self, reason: CompactionReason) -> Exception | None:
        """Shorten history, in phase compaction (F9). Gives what went wrong, if anything did."""
        host, policy = self._host, self._asking.compaction
        assert policy is not None
        messages = list(host.conversation.history.view())
        await host.emit(CompactionStart(reason, self._tokens(policy, host.snapshot()), time=host.time()))
        messages = list(host.conversation.history.view())
        try:
            made = await host.in_job("compaction", lambda: policy.compact(messages, reason))
            compaction = checked_compaction(made, host.conversation.history.view())
        except Exception as exc:  # an application's policy may raise anything
            host.conversation.compaction_spent = True
            spent = getattr(exc, "usage", None)  # what a policy's own requests cost before it gave up
            if isinstance(spent, Usage):
                host.conversation.count(spent)
            host.later_failure("compaction failed", exc)
            await host.emit(CompactionEnd("failed", error=describe(exc), time=host.time()))
            host.conversation.core.enter_turn()
            return exc
        await self._apply(policy, compaction)
        return None

    async def _apply(self, policy: CompactionPolicy, compaction: Compaction) -> None:
        host = self._host
        host.conversation.count(compaction.usage)
        kept = host.conversation.history.view()[compaction.first_kept :]
        after = attrs.evolve(host.snapshot(), messages=(compaction.summary, *kept))
        host.conversation.compaction_spent = self._is_near(policy, after)
        await host.emit(
            CompactionEnd(
                "compacted", compaction.summary, compaction.first_kept, self._tokens(policy, after), time=host.time()
            )
        )
        host.conversation.core.enter_turn()

    def _tokens(self, policy: CompactionPolicy, state: AgentState) -> int | None:
        count = getattr(policy, "tokens", None)
        try:
            tokens = None if count is None else plainly(lambda: count(state))
        except Exception as exc:  # an application's policy may raise anything
            self._host.later_failure("the compaction policy's tokens() failed", exc)
            return None
        return tokens if isinstance(tokens, int) else None


def _checked_messages(name: str, value: object) -> list[Message]:
    """What a projection hook gave, if it is messages."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"{name} gives a sequence of messages, not {type(value).__name__}")
    messages = list(cast("Iterable[Any]", value))  # type: ignore[redundant-cast]  # for pyright
    for message in messages:
        if not isinstance(message, _MESSAGES):
            raise TypeError(f"{name} gives a sequence of messages; one of them is {type(message).__name__}")
    return messages


def checked_compaction(made: object, history: Any) -> Compaction:
    """What a policy gave, if it can be done without parting a call from its result (F9)."""
    if not isinstance(made, Compaction):
        raise TypeError(f"compact() gives a Compaction, not {type(made).__name__}")
    if not isinstance(made.summary, UserMessage | CustomMessage):
        raise TypeError("the summary of a compaction is a UserMessage or a CustomMessage")
    checked_usage(made.usage)
    if type(made.first_kept) is not int:
        raise TypeError(f"first_kept is an index, not {made.first_kept!r}")
    if not 0 < made.first_kept <= len(history):
        raise ValueError(f"first_kept is {made.first_kept}; it must be between 1 and {len(history)}")
    kept = history[made.first_kept :]
    asked = {call.id for message in kept if isinstance(message, AssistantMessage) for call in message.tool_calls}
    known = {call.id for message in history if isinstance(message, AssistantMessage) for call in message.tool_calls}
    for message in kept:
        if isinstance(message, ToolResultMessage) and message.tool_call_id in known - asked:
            raise ValueError(f"first_kept {made.first_kept} parts the call {message.tool_call_id!r} from its result")
    return made
