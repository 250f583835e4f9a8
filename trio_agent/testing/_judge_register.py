"""How the judge's sentences are filed: each clause under the rule that it states and the events that it is about.

Here lives the filing alone. The clauses are in `_judge_messages.py`, `_judge_calls.py` and `_judge_attempts.py`; the
order of events is data in `_judge_order.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import attrs

from ._judge_memory import Memory


@attrs.frozen
class OnlyIfAborted:
    """What is wrong with an event unless the run turns out to have failed or to have been aborted."""

    text: str


# A clause looks at an event that came in lawful order, before the memory takes it in, and says what is wrong with it.
Clause: TypeAlias = Callable[[Memory, Any], str | OnlyIfAborted | None]
_C = TypeVar("_C", bound=Clause)


class Register:
    """Clauses by the class of the event that they are about."""

    def __init__(self, *others: Register) -> None:
        self._filed: dict[type, list[tuple[str, Clause]]] = {}
        for other in others:
            for event, clauses in other._filed.items():
                self._filed.setdefault(event, []).extend(clauses)

    def on(self, rule: str, *events: type) -> Callable[[_C], _C]:
        """File a clause under its rule."""

        def file(clause: _C) -> _C:
            for event in events:
                self._filed.setdefault(event, []).append((rule, clause))
            return clause

        return file

    def about(self, event: type) -> list[tuple[str, Clause]]:
        return self._filed.get(event, [])

    def rules(self) -> set[str]:
        """The rules that have a clause."""
        return {rule for clauses in self._filed.values() for rule, _ in clauses}
