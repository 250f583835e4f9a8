"""Where each thing of a recording goes in a picture: rows of boxes, marks, and a scale.

Here live the numbers, in pixels. What they look like is in `_timeline_svg.py`. Pure. However long a recording is, a row
has no more boxes than it has pixels: neighbours that would be too thin to see become one, which says how many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, cast

import attrs

from .._json import loads_or_none
from ._spans import Mark, Recording, Span, in_lanes
from ._timeline_words import as_events, fitted, spoken, ticks_of

LANE: Final = 22
GAP: Final = 8
RULER: Final = 26
_NARROWEST, _WIDEST, _TURN = 1_000, 6_000, 40
_THIN: Final = 3.0
_LEAST: Final = 1.5
_WIDEST_GROUP: Final = 40.0  # so that pointing at it still says where
_SEAMS_APART: Final = 40.0
_GROUPS: Final = 12  # of tools; those that are called least often share a row
_LANES: Final = 10  # of one tool; calls beyond share the last
_HUES: Final = 6
_MARKS_APART: Final = 12.0
_LONGEST_TEXT: Final = 400.0
_TOLD: Final = 8  # marks that a title tells one by one


@attrs.frozen(kw_only=True)
class Box:
    """A bar from `x` on. `style` is words for the style sheet; `ticks` are where something was reported."""

    x: float
    width: float
    style: str
    text: str = ""
    title: str = ""
    token: float | None = None
    ticks: tuple[float, ...] = ()


@attrs.frozen(kw_only=True)
class Row:
    """A name, and lanes below each other."""

    name: str
    y: float
    lanes: tuple[tuple[Box, ...], ...]

    @property
    def height(self) -> float:
        return LANE * len(self.lanes)


@attrs.frozen(kw_only=True)
class Flag:
    """Something at one moment: in the row of messages, or from top to bottom."""

    x: float
    style: str
    text: str
    title: str
    tall: bool


@attrs.frozen(kw_only=True)
class Layout:
    width: float
    height: float
    rows: tuple[Row, ...]
    flags: tuple[Flag, ...]
    ticks: tuple[tuple[float, str], ...]
    seams: tuple[float, ...]  # where one run follows another


def layout_of(recording: Recording) -> Layout:
    turns = len(recording.of("turn"))
    width = float(min(max(_NARROWEST, _TURN * turns), _WIDEST))
    scale = width / (recording.duration or 1.0)
    length: Callable[[float], str] = spoken if recording.timed else as_events
    draw = _Drawing(scale, length)
    rows: list[Row] = []
    y: float = RULER + LANE + GAP  # below the scale and the messages
    for name, lanes in _named_lanes(recording, draw):
        row = Row(name=name, y=y, lanes=tuple([tuple(lane) for lane in lanes]))
        rows.append(row)
        y += row.height + GAP
    return Layout(
        width=width,
        height=y,
        rows=tuple(rows),
        flags=tuple(_flags(recording.marks, scale, length, width)),
        ticks=tuple(ticks_of(recording, width)),
        seams=tuple(_apart([span.start * scale for span in recording.of("run")[1:]], _SEAMS_APART)),
    )


def _named_lanes(recording: Recording, draw: _Drawing) -> Iterator[tuple[str, list[list[Box]]]]:
    yield "runs", [draw.lane(recording.of("run"), "run")]
    yield "turns", [draw.lane(recording.of("turn"), "turn")]
    yield "model", [draw.lane(recording.of("request"), "request")]
    if waits := recording.of("retry", "compaction"):
        yield "waits", [draw.lane(waits, "wait")]
    for number, (name, spans) in enumerate(_tools(recording)):
        lanes = in_lanes(spans)
        if len(lanes) > _LANES:
            rest = sorted([span for lane in lanes[_LANES - 1 :] for span in lane], key=lambda span: span.first)
            lanes = [*lanes[: _LANES - 1], rest]
        yield name, [draw.lane(lane, f"tool hue{number % _HUES}") for lane in lanes]


def _tools(recording: Recording) -> list[tuple[str, list[Span]]]:
    """The calls of each tool, in the order of their first calls; the least often called ones together."""
    groups: dict[str, list[Span]] = {}
    for span in recording.of("tool"):
        groups.setdefault(span.name, []).append(span)
    if len(groups) <= _GROUPS:
        return list(groups.items())
    often = set(sorted(groups, key=lambda name: -len(groups[name]))[: _GROUPS - 1])
    rest = [span for name, spans in groups.items() if name not in often for span in spans]
    kept = [(name, spans) for name, spans in groups.items() if name in often]
    return [*kept, (f"{len(groups) - len(often)} others", sorted(rest, key=lambda span: span.first))]


@attrs.frozen
class _Drawing:
    """Makes boxes. `length` says a duration in words."""

    scale: float
    length: Callable[[float], str]

    def lane(self, spans: Sequence[Span], style: str) -> list[Box]:
        boxes: list[Box] = []
        thin: list[Span] = []
        for span in spans:
            is_thin = span.duration * self.scale < _THIN
            if thin and not (is_thin and self._joins(thin, span)):
                boxes.append(self._group(thin, style))
                thin = []
            if is_thin:
                thin.append(span)
            else:
                boxes.append(self._box(span, style))
        if thin:
            boxes.append(self._group(thin, style))
        return boxes

    def _joins(self, thin: Sequence[Span], span: Span) -> bool:
        end = self._end(thin)
        return span.start * self.scale < end + 1 and end - thin[0].start * self.scale < _WIDEST_GROUP

    def _end(self, thin: Sequence[Span]) -> float:
        return max(thin[0].start * self.scale + _LEAST, thin[-1].end * self.scale)

    def _group(self, spans: Sequence[Span], style: str) -> Box:
        if len(spans) == 1:
            return self._box(spans[0], style)
        x = spans[0].start * self.scale
        failed = sum(span.failed for span in spans)
        names = sorted({span.name for span in spans})
        what = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} other{'s' if len(names) > 2 else ''}"
        title = f"{len(spans)} × {what}\n{self._when(spans[0].start, spans[-1].end)}"
        title += f"\n{failed} failed" if failed else ""
        style = f"{style} many{' failed' if failed else ''}"
        width = max(_LEAST, self._end(spans) - x)
        return Box(x=x, width=width, style=style, text=fitted(f"×{len(spans)}", width), title=title)

    def _box(self, span: Span, style: str) -> Box:
        x, width = span.start * self.scale, max(_LEAST, span.duration * self.scale)
        token = None if span.token is None else span.token * self.scale
        words = [style, *(word for word, so in (("failed", span.failed), ("cut", span.cut)) if so)]
        if span.inferred:
            words.append("inferred")
        if span.kind == "compaction":
            words.append("compaction")
        room = width if token is None else x + width - token
        return Box(
            x=x,
            width=width,
            style=" ".join(words),
            text=_name(span, room),
            title=self._title(span),
            token=token,
            ticks=tuple(_apart([at * self.scale for at in span.updates], 3.0)),
        )

    def _when(self, start: float, end: float) -> str:
        return f"{self.length(end - start)}, from {self.length(start)} on"

    def _title(self, span: Span) -> str:
        outcome = "cut off: its end is not in the log" if span.outcome is None else span.outcome
        lines = [f"{span.name}: {outcome}", self._when(span.start, span.end)]
        if span.token is not None and not span.inferred:
            lines.append(f"first token after {self.length(span.token - span.start)}")
        if span.inferred:
            lines.append("its start is not in the log")
        return "\n".join([*lines, *[f"{name}: {text}" for name, text in span.notes]])


def _name(span: Span, room: float) -> str:
    """What there is room for: of a tool, whose name the row has, its arguments; of what is numbered, its number."""
    mark = "✗ " if span.failed else ""
    if span.kind == "tool":
        return fitted(mark + (_arguments(dict(span.notes).get("arguments", "")) or span.name), room)
    short = span.name.partition(" ")[2] if span.kind in ("turn", "run", "retry") else ""
    return fitted(mark + span.name, room, least=99) or fitted(mark + (short or span.name), room)


def _arguments(raw: str) -> str:
    """The only argument, or all of them as they came."""
    found = loads_or_none(raw)
    if isinstance(found, dict):
        values: list[object] = list(cast("dict[str, object]", found).values())
        if len(values) == 1 and isinstance(values[0], str):
            return values[0]
    return raw.removeprefix("{").removesuffix("}")


def _apart(places: Iterable[float], least: float) -> Iterator[float]:
    last = -math.inf
    for place in places:
        if place - last >= least:
            yield place
            last = place


def _flags(marks: Sequence[Mark], scale: float, length: Callable[[float], str], width: float) -> list[Flag]:
    """Aborts each for itself; of the rest those that would cover each other together. Texts go as far as the next."""
    flags: list[Flag] = []
    together: list[Mark] = []
    for mark in marks:
        if mark.kind == "abort":
            title = f"abort at {length(mark.at)}" + (f"\n{mark.text}" if mark.text else "")
            flags.append(Flag(x=mark.at * scale, style="abort", text="✗ abort", title=title, tall=True))
            continue
        if together and (mark.at - together[0].at) * scale >= _MARKS_APART:
            flags.append(_flag(together, scale, length))
            together = []
        together.append(mark)
    if together:
        flags.append(_flag(together, scale, length))
    flags.sort(key=lambda flag: flag.x)
    ends = [flag.x for flag in flags[1:]] + [width] * bool(flags)
    return [
        flag if flag.tall else attrs.evolve(flag, text=fitted(flag.text, min(end - flag.x - 6, _LONGEST_TEXT)))
        for flag, end in zip(flags, ends, strict=True)
    ]


def _flag(marks: Sequence[Mark], scale: float, length: Callable[[float], str]) -> Flag:
    shown = [f"{mark.kind} at {length(mark.at)}: {mark.text}" for mark in marks[:_TOLD]]
    more = [f"and {len(marks) - _TOLD} more"] if len(marks) > _TOLD else []
    kinds = {mark.kind for mark in marks}
    style = "late" if "late update" in kinds else "prompt" if "prompt" in kinds else "queued"
    text = marks[0].text if len(marks) == 1 else f"{len(marks)} messages"
    return Flag(x=marks[0].at * scale, style=style, text=text, title="\n".join([*shown, *more]), tall=False)
