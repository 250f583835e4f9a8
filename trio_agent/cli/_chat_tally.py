"""What a conversation has cost: tokens, and dollars where the prices are known.

Here lives the counting. The prices are those of the extra `prices`.
"""

from __future__ import annotations

from decimal import Decimal
from importlib.util import find_spec
from typing import TYPE_CHECKING

from .._events import AgentEnd, AgentStart, CompactionEnd, Event, MessageEnd
from .._messages import NO_USAGE, AssistantMessage
from ._chat_text import money, seconds, tokens, turns
from ._usage import one_line

if TYPE_CHECKING:
    from .._provider import Provider


class _Sum:
    """Dollars. What is not known counts as nothing, and makes the sum a lower bound."""

    def __init__(self) -> None:
        self._dollars = Decimal()
        self._is_whole = True

    def add(self, price: Decimal | None) -> None:
        self._dollars += price or 0
        self._is_whole = self._is_whole and price is not None

    @property
    def words(self) -> str | None:
        """None where no price is known."""
        if not self._dollars:
            return None
        return ("" if self._is_whole else "over ") + money(self._dollars)


class Tally:
    """A subscriber that counts. `now` is what the status line says, `of_run` what is said of a run that is over."""

    def __init__(self, provider: Provider | None) -> None:
        self._provider = provider
        self._before = NO_USAGE
        self._run = NO_USAGE
        self._cost = _Sum()
        self._run_cost = _Sum()

    def __call__(self, event: Event) -> None:
        if isinstance(event, AgentStart):
            self._run, self._run_cost = NO_USAGE, _Sum()
        elif isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
            self._run += event.message.usage
            self._pay(price_of(event.message, self._provider))
        elif isinstance(event, CompactionEnd):
            self._pay(None)  # what its own request cost is not told
        elif isinstance(event, AgentEnd):
            self._before, self._run = self._before + event.usage, NO_USAGE

    def _pay(self, price: Decimal | None) -> None:
        self._cost.add(price)
        self._run_cost.add(price)

    def now(self) -> str:
        total = (self._before + self._run).known_total
        parts = [f"{total:,} tokens" if total is not None else None, self._cost.words]
        return " · ".join([part for part in parts if part])

    def of_run(self, end: AgentEnd) -> str:
        outcome = end.outcome if end.reason is None else f"{end.outcome} ({one_line(end.reason)})"
        parts = [outcome, turns(end.turns), tokens(end.usage), self._run_cost.words, seconds(end.time)]
        return " · ".join([part for part in parts if part])


def price_of(message: AssistantMessage, provider: Provider | None) -> Decimal | None:
    """In dollars; None where it is not known, or the extra `prices` is not installed."""
    if find_spec("genai_prices") is None:
        return None
    from ..providers._prices import price
    from ..providers._service import HTTPProvider

    # The provider itself says by its address who is paid; what it is called alone says whose API it speaks.
    return price(message, provider=provider if isinstance(provider, HTTPProvider) else None)
