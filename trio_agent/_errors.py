"""What can go wrong at the API: the exceptions that callers meet, and what a provider raises.

Here live exception classes and their wording. How a caught exception is taken apart is in
`_failures.py`. Texts are lower case, say what the caller did and what to call instead.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

ProviderErrorKind: TypeAlias = Literal[
    "rate_limit",
    "overloaded",
    "server",
    "network",
    "timeout",
    "context_overflow",
    "authentication",
    "invalid_request",
    "content_filter",
    "protocol",
]
PROVIDER_ERROR_KINDS: frozenset[str] = frozenset(get_args(ProviderErrorKind))
_RETRYABLE: frozenset[str] = frozenset({"rate_limit", "overloaded", "server", "network", "timeout"})


class AgentBusyError(RuntimeError):
    """`prompt()` or `resume()` was called while a run is in progress (A6)."""


class ReentrantCallError(AgentBusyError):
    """The call came from inside the run that it would have to wait for (A6)."""


class ForeignRunError(RuntimeError):
    """A running agent was called from another thread or another `trio.run` (A6)."""


class NothingToResumeError(RuntimeError):
    """`resume()` found no message that a model could answer."""


class ToolDefinitionError(TypeError):
    """A tool cannot be made of this function or schema."""


class ArgumentError(ValueError):
    """A call's arguments do not fit its tool. The text names each problem in words for the model (T5)."""


class LifecycleError(RuntimeError):
    """An event is not lawful here. Nothing has changed. `rule` names the rule of the specification."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class AgentInternalError(RuntimeError):
    """A bug in trio_agent itself. Please report it, with the traceback."""


class ProviderError(Exception):
    """A model service failed, in words that the kernel can act on.

    `retryable` defaults to what the kind implies (`rate_limit`, `overloaded`, `server`, `network` and
    `timeout` are). `retry_after` is in seconds, as the service asked for. `status` is the HTTP status.
    The message must hold no key or token: it goes into history, logs and traces.
    """

    def __init__(
        self,
        kind: ProviderErrorKind,
        message: str,
        retryable: bool | None = None,
        retry_after: float | None = None,
        status: int | None = None,
    ) -> None:
        if kind not in PROVIDER_ERROR_KINDS:
            raise ValueError(f"{kind!r} is not a kind of provider error; use one of {sorted(PROVIDER_ERROR_KINDS)}")
        if retry_after is not None and not isinstance(retry_after, int | float):
            raise TypeError(f"retry_after is a number of seconds or None, not {retry_after!r}")
        super().__init__(message)
        self.kind: ProviderErrorKind = kind
        self.message = message
        self.retryable = kind in _RETRYABLE if retryable is None else retryable
        self.retry_after = retry_after
        self.status = status

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.kind, self.message, self.retryable, self.retry_after, self.status)
