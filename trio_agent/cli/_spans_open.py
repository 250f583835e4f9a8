"""Spans while they are being made: what is open, how it closes, and what it comes to.

Here lives the bookkeeping, which keeps spans nested whatever it is told. What each event opens and closes is in
`_spans_walk.py`, the values in `_spans.py`. Pure: no files.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from typing import Final

import attrs

from .._messages import NO_USAGE, AssistantMessage, Usage
from ._spans import Kind, Mark, MarkKind, Recording, Span
from ._spans_words import cut_short

FAILURES: Final = ("error", "aborted")
_DEPTH: Final[dict[Kind, int]] = {"run": 0, "turn": 1}


@attrs.define(eq=False)
class OpenSpan:
    """A span that is being made. `last` is -1 while it is open."""

    kind: Kind
    name: str
    first: int
    parent: OpenSpan | None
    inferred: bool = False
    events: int = 0
    last: int = -1
    outcome: str | None = None
    failed: bool = False
    token: int | None = None
    updates: list[int] = attrs.Factory(list[int])
    usage: Usage = NO_USAGE
    notes: list[tuple[str, str]] = attrs.Factory(list[tuple[str, str]])

    def close(self, last: int, outcome: str | None, *, failed: bool = False) -> None:
        self.last, self.outcome, self.failed = max(last, self.first), outcome, failed


class Bench:
    """What is open at the moment, and all that was. Subclasses say what each event does."""

    def __init__(self) -> None:
        self.at = array("d")
        self.base = 0.0
        self.now = 0.0
        self.timed = False
        self.history = 0
        self.runs = 0
        self.spans: list[OpenSpan] = []
        self.marks: list[tuple[MarkKind, int, str]] = []
        self.run: OpenSpan | None = None
        self.turn: OpenSpan | None = None
        self.wait: OpenSpan | None = None  # a retry or a compaction
        self.request: OpenSpan | None = None  # an answer that streams
        self.asking: int | None = None  # the event behind which the request of this turn was sent
        self.tools: dict[str, OpenSpan] = {}
        self.ended: set[str] = set()  # the calls of this turn that are over
        self.called: dict[
            str, tuple[int, str]
        ] = {}  # the calls of the last message: where it ended, and their arguments
        self.turns = 0
        self.abort: int | None = None  # the mark of this run's abort
        self.standing: AssistantMessage | None = None

    def tell_time(self, time: float) -> None:
        self.timed = self.timed or time != 0
        then = self.base + time
        if math.isfinite(then) and then > self.now:
            self.now = then
        self.at.append(self.now)

    def begin_run(self, at: int, time: float, *, inferred: bool) -> None:
        self.close_run(at - 1, None)
        self.base = self.now - time if math.isfinite(time) else self.now
        self.runs += 1
        self.run = self.open("run", f"run {self.runs}", at)
        self.run.inferred = inferred
        self.turns = 0
        self.abort = None

    def open(self, kind: Kind, name: str, first: int) -> OpenSpan:
        span = OpenSpan(kind, name, first, None if kind == "run" else self.turn or self.run)
        self.spans.append(span)
        return span

    def tell(self, span: OpenSpan | None = None) -> None:
        """Count the event to this, or to the turn or the run."""
        whose = span or self.turn or self.run
        assert whose is not None, "outside of runs there is nothing but history"
        whose.events += 1

    def cut_wait(self, last: int) -> None:
        if self.wait is not None:
            self.wait.close(last, None)
        self.wait = None

    def cut_tool(self, call_id: str, last: int) -> None:
        if (tool := self.tools.pop(call_id, None)) is not None:
            tool.close(last, None)

    def mark_abort(self, at: int, reason: str | None) -> None:
        """Mark where the run first said that it was aborted; the reason may come later."""
        if self.abort is None:
            self.abort = len(self.marks)
            self.marks.append(("abort", at, ""))
        if reason:
            kind, first, _ = self.marks[self.abort]
            self.marks[self.abort] = (kind, first, cut_short(reason))

    def close_turn(self, last: int, *, cut: bool = False) -> None:
        """Close the turn and what is open in it. A session log has no turn ends: a standing message will do."""
        for call_id in list(self.tools):
            self.cut_tool(call_id, last)
        self.cut_wait(last)
        if self.request is not None:
            self.request.close(last, None)
        if self.turn is not None:
            stop = None if cut or self.standing is None else self.standing.stop_reason
            self.turn.close(last, stop, failed=stop in FAILURES)
        self.request = self.turn = self.standing = self.asking = None
        self.called = {}
        self.ended = set()

    def close_run(self, last: int, outcome: str | None) -> None:
        self.close_turn(last, cut=outcome is None)
        if self.run is not None:
            self.run.close(last, outcome, failed=outcome in FAILURES)
        self.run = None

    def finish(self) -> Recording:
        self.close_run(len(self.at) - 1, None)
        when: Callable[[int], float] = self.at.__getitem__ if self.timed else float
        order = sorted(self.spans, key=lambda span: (span.first, _DEPTH.get(span.kind, 2)))
        places = {id(span): place for place, span in enumerate(order)}
        spans = tuple([_span(span, when, places) for span in order])
        marks = tuple([Mark(kind=kind, at=when(at), index=at, text=text) for kind, at, text in self.marks])
        count = len(self.at)
        return Recording(
            spans=spans,
            marks=marks,
            duration=when(count - 1) if count else 0.0,
            timed=self.timed,
            events=count,
            history=self.history,
        )


def _span(span: OpenSpan, when: Callable[[int], float], places: dict[int, int]) -> Span:
    return Span(
        kind=span.kind,
        name=span.name,
        start=when(span.first),
        end=when(span.last),
        first=span.first,
        last=span.last,
        parent=None if span.parent is None else places[id(span.parent)],
        outcome=span.outcome,
        failed=span.failed,
        cut=span.outcome is None,
        inferred=span.inferred,
        events=span.events,
        token=None if span.token is None else when(span.token),
        updates=tuple([when(at) for at in span.updates]),
        usage=span.usage,
        notes=tuple(span.notes),
    )
