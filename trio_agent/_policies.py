"""What an application may decide about a run beforehand: retries, limits, and the seam for compaction.

Here live frozen values and one protocol. The waiting, counting and calling happen in the run.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import attrs

from ._errors import ProviderError
from ._messages import NO_USAGE, Message, Usage

if TYPE_CHECKING:
    from ._state import AgentState

CompactionReason: TypeAlias = Literal["threshold", "overflow"]
_whole: Any = attrs.validators.instance_of(int)
_positive: Any = attrs.validators.and_(_whole, attrs.validators.ge(1))
_count: Any = attrs.validators.and_(_whole, attrs.validators.ge(0))
_not_negative: Any = attrs.validators.ge(0)


@attrs.frozen
class RetryPolicy:
    """When a retryable failure of a provider is tried again (F8). All times in seconds.

    The n-th wait is at most `base_delay` doubled n-1 times, and at most `max_delay`; with `jitter` it is drawn
    evenly between 0 and that. A service's own `Retry-After` is waited for exactly; if it is longer than
    `max_retry_after`, the run fails at once instead. `max_attempts` counts the first request too.
    """

    max_attempts: int = attrs.field(default=4, validator=_positive)
    base_delay: float = attrs.field(default=1.0, validator=_not_negative)
    max_delay: float = attrs.field(default=60.0, validator=_not_negative)
    jitter: bool = True
    max_retry_after: float = attrs.field(default=120.0, validator=_not_negative)

    def delay(self, failed_attempts: int, error: ProviderError) -> float | None:
        """Seconds to wait after so many failed attempts of a turn, or None to give up."""
        if not error.retryable or failed_attempts >= self.max_attempts:
            return None
        if error.retry_after is not None:
            return max(0.0, error.retry_after) if error.retry_after <= self.max_retry_after else None
        # 2**60 seconds is beyond any cap; a larger power would overflow the float.
        ceiling = min(self.max_delay, self.base_delay * 2.0 ** min(failed_attempts - 1, 60))
        return random.uniform(0, ceiling) if self.jitter else ceiling


@attrs.frozen
class Limits:
    """Bounds of one run, looked at before each turn but the first (A8). None is no bound.

    Reaching one ends the run `stopped`, with the limit's name as the reason. A deadline is Trio's own:
    `with trio.move_on_after(60): await agent.prompt(...)`.
    """

    max_turns: int | None = attrs.field(default=None, validator=attrs.validators.optional(_positive))
    max_tool_calls: int | None = attrs.field(default=None, validator=attrs.validators.optional(_count))
    max_total_tokens: int | None = attrs.field(default=None, validator=attrs.validators.optional(_count))

    def reached(self, *, turns: int, tool_calls: int, total_tokens: int | None) -> str | None:
        """The name of the first limit that has been reached, if one has."""
        if self.max_turns is not None and turns >= self.max_turns:
            return "max_turns"
        if self.max_tool_calls is not None and tool_calls >= self.max_tool_calls:
            return "max_tool_calls"
        if self.max_total_tokens is not None and (total_tokens or 0) >= self.max_total_tokens:
            return "max_total_tokens"
        return None


@attrs.frozen
class Compaction:
    """What a compaction came to: `summary` replaces the messages before index `first_kept`.

    `usage` is what the compaction's own requests cost; it counts in the run's usage.
    """

    summary: Message
    first_kept: int
    usage: Usage = NO_USAGE


class CompactionPolicy(Protocol):
    """When history is shortened, and to what (F9).

    A policy may also have `tokens(state) -> int | None`, the size of the context in tokens, which
    the compaction events then tell.
    """

    def threshold(self, state: AgentState) -> bool:
        """Whether the context is near the window. Called before each request."""
        ...

    def compact(self, messages: Sequence[Message], reason: CompactionReason) -> Awaitable[Compaction]:
        """Make a summary and say which message is the first kept. May be cancelled at any checkpoint.

        An exception means that nothing was compacted; its `usage: Usage`, if it has one, counts. A `first_kept` that
        would part a call from its result is refused.
        """
        ...
