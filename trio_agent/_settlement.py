"""The time that settling may take: one absolute deadline, armed by the first abort or outside cancellation.

Here lives the arithmetic of A3 and the scope that protects a wait. What is waited for, and what is told
about a cut, is the business of whoever opens the scope.
"""

from __future__ import annotations

import math
from types import TracebackType

import trio

from ._interrupts import protected


class _Protected:
    """A scope that its budget knows while it is open. A class, as this is half of what a generator would cost."""

    __slots__ = ("_scope", "_scopes", "_share")

    def __init__(self, scopes: dict[trio.CancelScope, float], scope: trio.CancelScope, share: float) -> None:
        self._scopes = scopes
        self._scope = scope
        self._share = share

    @protected
    def __enter__(self) -> trio.CancelScope:
        self._scope.__enter__()
        self._scopes[self._scope] = self._share
        return self._scope

    @protected
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        del self._scopes[self._scope]
        return self._scope.__exit__(kind, exc, traceback)


class Budget:
    """The grace period of one run, in seconds of Trio's clock.

    Until `arm` is called nothing is bounded. Afterwards every protected wait gets half of what is left, so that
    those behind a wait that hangs can still do their work, and nothing extends the deadline.
    """

    __slots__ = ("_scopes", "deadline")

    def __init__(self) -> None:
        self.deadline = math.inf
        self._scopes: dict[trio.CancelScope, float] = {}

    @property
    def armed(self) -> bool:
        return self.deadline != math.inf

    def left(self) -> float:
        return max(0.0, self.deadline - trio.current_time())

    def arm(self, grace: float) -> None:
        """Start the clock, or shorten what an earlier call allowed. Protected waits under way are bounded too."""
        self.deadline = min(self.deadline, trio.current_time() + grace)
        for scope, share in self._scopes.items():
            scope.deadline = min(scope.deadline, self._cut_time(share))

    def protected(self, share: float = 0.5) -> _Protected:
        """A scope that no cancellation from outside reaches into, bounded by that share of what is left."""
        return _Protected(self._scopes, trio.CancelScope(shield=True, deadline=self._cut_time(share)), share)

    def _cut_time(self, share: float) -> float:
        if self.deadline == math.inf:
            return math.inf
        now = trio.current_time()
        return now + max(0.0, self.deadline - now) * share
