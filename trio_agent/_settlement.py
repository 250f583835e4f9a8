"""The time that settling may take: one absolute deadline, armed by the first abort or outside cancellation.

Here lives the arithmetic of A3 and the scope that protects a wait. What is waited for, and what is told
about a cut, is the business of whoever opens the scope.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager

import trio


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

    @contextmanager
    def protected(self, share: float = 0.5) -> Generator[trio.CancelScope]:
        """A scope that no cancellation from outside reaches into, bounded by that share of what is left."""
        with trio.CancelScope(shield=True, deadline=self._cut_time(share)) as scope:
            self._scopes[scope] = share
            try:
                yield scope
            finally:
                del self._scopes[scope]

    def _cut_time(self, share: float) -> float:
        if self.deadline == math.inf:
            return math.inf
        now = trio.current_time()
        return now + max(0.0, self.deadline - now) * share
