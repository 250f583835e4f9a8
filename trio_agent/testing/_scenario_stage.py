"""What is known of one example while it is played, and afterwards.

Here live the stage that the fakes of a scenario share, and the subscriber that only listens. Nothing in here acts by
itself: the fakes are in `_scenario_fakes.py` and `_scenario_moments.py`, the whole in `_scenario_play.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

import attrs
import trio

from .._agent import Agent
from .._events import Event
from .._messages import UserMessage
from .._result import RunResult
from ._checkpoints import Kind
from ._model import Model
from ._scenario import Scenario
from ._scenario_bench import Bench

MEANT: Final = "this failure is part of the scenario"


@attrs.define
class Listener:
    """A subscriber that only listens."""

    is_async: bool
    events: list[Event] = attrs.field(factory=list[Event])
    phases: list[str] = attrs.field(factory=list[str])
    agent: Agent | None = None

    def __call__(self, event: Event) -> Awaitable[None] | None:
        self.events.append(event)
        if self.agent is not None:
            self.phases.append(self.agent.state.phase.value)
        return trio.lowlevel.checkpoint() if self.is_async else None  # noqa: ASYNC105  # the kernel awaits it


@attrs.define(eq=False)
class Stage:
    """One example while it is played, and what is known of it afterwards."""

    scenario: Scenario
    agent: Agent
    model: Model
    bench: Bench
    scope: trio.CancelScope
    listeners: list[Listener]
    calm: bool = False  # from here on nothing goes wrong any more
    requests: int = 0
    keys: int = 0
    prompts: list[UserMessage] = attrs.field(factory=list[UserMessage])
    results: list[RunResult] = attrs.field(factory=list[RunResult])
    raised: list[BaseException] = attrs.field(factory=list[BaseException])
    queued_ids: list[str] = attrs.field(factory=list[str])
    late_listeners: list[Listener] = attrs.field(factory=list[Listener])
    struck_by: Kind | None = None
    struck_at: int | None = None  # how many events there were at the disturbance
    struck_idle: bool = False
    struck_decided: bool = False  # something had stopped the run already
    any_cancelled: bool = False
    interrupts: int = 0
    interrupts_of_run: int = 0
    is_cut_short: bool = False  # F7: a second interrupt of a run skips all that is left, but the reset of P4

    @property
    def events(self) -> list[Event]:
        return self.listeners[0].events

    def interrupt(self) -> None:
        """A moment says so."""
        self._count_interrupt(True)
        raise KeyboardInterrupt

    def _count_interrupt(self, is_one: bool) -> None:
        self.interrupts += is_one
        self.interrupts_of_run += is_one
        if self.interrupts_of_run > 1:
            self.is_cut_short = True
            self.model.leave()

    def on_strike(self, kind: Kind) -> None:
        self.struck_by, self.struck_at = kind, len(self.events)
        self.struck_idle = self.agent.state.phase.value == "idle"
        run: Any = self.agent._run  # pyright: ignore[reportPrivateUsage]  # there is no public way to see it so early
        self._count_interrupt(kind in ("ctrl_c", "interrupt"))
        self.struck_decided = run is not None and run.stopping

    def abort(self) -> None:
        """From outside. No tool may begin behind this."""
        self.agent.abort("from outside")
        if not self.struck_idle:
            self.bench.closed = True
