"""The judge: is this trace lawful?

Here lives its public face: a function for whole traces and a subscriber for live ones. What is lawful is data in the
modules `_judge_*.py`, stated without a look at the kernel's own tables; the rules in words are in `_rules.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import trio

from .._messages import Message
from ._judge_memory import Memory
from ._judge_outside import PhaseWord
from ._judge_walk import Judge, Told, Violation


class LifecycleViolation(AssertionError):  # noqa: N818  # named for what it carries, not as a bug of the caller
    """A trace is not lawful. `violation` says which rule was broken, where and how."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(str(violation))
        self.violation = violation


class TraceChecker:
    """A subscriber that raises `LifecycleViolation` at the first unlawful event, and at any later one.

    Subscribe it to an agent that is idle: `agent.subscribe(TraceChecker())`. It takes JSON objects and JSON lines too.
    What the keywords give lets it judge more:

    - `history`: the messages that the agent had before, so that call ids and compactions are judged against them
    - `phase`: called at each event, gives the phase that an agent is in (`lambda: agent.state.phase`): P1 to P3
    - `steered`, `followed_up`: what was queued, in its order; may grow meanwhile. Judged in `finish`: Q1 to Q3
    - `serial_tools`: the names of the tools that are barriers: T2
    - `one_history=False`: each run has a history of its own, so call ids may come again in the next

    `violations` keeps what was found.
    """

    def __init__(
        self,
        *,
        history: Iterable[Message] | None = None,
        phase: Callable[[], PhaseWord] | None = None,
        steered: Sequence[Message] | None = None,
        followed_up: Sequence[Message] | None = None,
        serial_tools: Collection[str] = (),
        one_history: bool = True,
    ) -> None:
        keeps_deliveries = steered is not None or followed_up is not None
        memory = _make_memory(history, one_history, serial_tools, keeps_deliveries)
        self._judge = Judge(memory, phase, steered, followed_up)
        self.violations: list[Violation] = []

    # A Ctrl-C in here would make the judge miss an event, and find fault with the next.
    @trio.lowlevel.enable_ki_protection
    def __call__(self, event: Told) -> None:
        found = self._judge.feed(event)
        if found:
            self._raise(found)

    def finish(self, *, waiting: Sequence[Message] = ()) -> None:
        """Say that the trace is over: no run may be open, and what was queued has come or is among `waiting`."""
        found = self._judge.finish(waiting, complete=True)
        if found:
            self._raise(found)

    def _raise(self, found: list[Violation]) -> None:
        self.violations += found
        raise LifecycleViolation(found[0])


def check_trace(
    events: Iterable[Told],
    *,
    complete: bool = False,
    history: Iterable[Message] | None = None,
    phases: Iterable[PhaseWord] | None = None,
    steered: Sequence[Message] | None = None,
    followed_up: Sequence[Message] | None = None,
    waiting: Sequence[Message] = (),
    serial_tools: Collection[str] = (),
    one_history: bool = True,
) -> list[Violation]:
    """Every broken rule in a trace, in the order of the events; an empty list if it is lawful.

    A trace is a sequence of events, their JSON objects or their JSON lines, of one run or of several behind each other,
    whole or any beginning of it. `complete=True` says that it is whole, so that a run left open is a fault. `phases`
    has the phase at each event. `waiting` are the messages that were taken back or are still queued. The other keywords
    are those of `TraceChecker`. Raises `ValueError` or `TypeError` for what is no event.
    """
    keeps_deliveries = steered is not None or followed_up is not None
    memory = _make_memory(history, one_history, serial_tools, keeps_deliveries)
    judge = Judge(memory, None if phases is None else _one_by_one(phases), steered, followed_up)
    found: list[Violation] = []
    feed = judge.feed
    for event in events:
        wrong = feed(event)
        if wrong:
            found += wrong
    found += judge.finish(waiting, complete=complete)
    return sorted(found, key=lambda violation: violation.index)


def _one_by_one(phases: Iterable[PhaseWord]) -> Callable[[], PhaseWord]:
    left = iter(phases)

    def phase() -> PhaseWord:
        for word in left:
            return word
        raise ValueError("there are fewer phases than events; give the phase at each event")

    return phase


def _make_memory(
    history: Iterable[Message] | None, one_history: bool, serial_tools: Collection[str], keeps_deliveries: bool
) -> Memory:
    memory = Memory(None, one_history, frozenset(serial_tools), keeps_deliveries)
    if history is not None:
        memory.take_history(history)
    return memory
