"""A recording as spans: what happened from when to when, and what happened in an instant.

Here live the values, and the lanes for what runs side by side. How they follow from events is in `_spans_walk.py`,
how they look in `_trace.py` and `_timeline.py`. Pure: no files, no colours.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

import attrs

from .._messages import NO_USAGE, Usage

Kind: TypeAlias = Literal["run", "turn", "request", "retry", "compaction", "tool"]
MarkKind: TypeAlias = Literal["prompt", "queued", "abort", "late update"]


@attrs.frozen(kw_only=True)
class Span:
    """Something that took time. `start` and `end` are in the recording's unit, `first` and `last` indices of events.

    Spans nest: a turn lies in a run, all others in a turn where there is one (`parent` is an index of the recording's
    spans). `outcome` is how it ended, in the words of the event that ended it; None where no event did, and then `cut`
    is true. `token` is when an answer's first token came, None where none did. `inferred`: the start is not in
    the log, and was taken from the message that asked for it. `events` counts the events that tell of this and of
    nothing within it.
    """

    kind: Kind
    name: str
    start: float
    end: float
    first: int
    last: int
    parent: int | None
    outcome: str | None
    failed: bool
    cut: bool
    inferred: bool
    events: int
    token: float | None = None
    updates: tuple[float, ...] = ()
    usage: Usage = NO_USAGE
    notes: tuple[tuple[str, str], ...] = ()

    @property
    def duration(self) -> float:
        return self.end - self.start


@attrs.frozen(kw_only=True)
class Mark:
    """Something that took no time. `index` is that of its event."""

    kind: MarkKind
    at: float
    index: int
    text: str


@attrs.frozen(kw_only=True)
class Recording:
    """What a log tells. `spans` are in the order of their starts, each behind those around it.

    Runs follow each other without a gap: how long the agent was idle between them, no event says. Times are seconds
    since the first event if `timed`; else no event had any, and the number of events stands for them. `history`
    counts messages outside any run, as a session that was made of messages has them.
    """

    spans: tuple[Span, ...]
    marks: tuple[Mark, ...]
    duration: float
    timed: bool
    events: int
    history: int

    def of(self, *kinds: Kind) -> list[Span]:
        return [span for span in self.spans if span.kind in kinds]


def lanes(spans: Iterable[Span]) -> list[int]:
    """A lane for each span, counted from 0, such that no two in one lane overlap, and as few as can be.

    The spans must be in the order of their starts.
    """
    given: list[int] = []
    busy: list[tuple[int, int]] = []  # when, and which lane becomes free
    free: list[int] = []
    count = 0
    for span in spans:
        while busy and busy[0][0] < span.first:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, count = count, count + 1
        heapq.heappush(busy, (span.last, lane))
        given.append(lane)
    return given


def in_lanes(spans: Sequence[Span]) -> list[list[Span]]:
    """The same spans, lane by lane."""
    found: list[list[Span]] = []
    for span, lane in zip(spans, lanes(spans), strict=True):
        if lane == len(found):
            found.append([])
        found[lane].append(span)
    return found
