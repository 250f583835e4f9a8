"""The scale of a picture, times in words, and how much text there is room for.

Here live numbers that become words. Where things go is decided in `_timeline_layout.py`. Pure.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator
from typing import Final

from ._spans import Recording

_CLOCK: Final = (15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400)  # seconds


def ticks_of(recording: Recording, width: float) -> Iterator[tuple[float, str]]:
    duration = recording.duration or 1.0
    step = _step(duration * 100 / width, timed=recording.timed)
    for number in range(int(duration / step * (1 + 1e-9)) + 1):
        at = number * step
        yield at * width / duration, spoken(at, step) if recording.timed else f"{at:,.0f}"


def _step(least: float, *, timed: bool) -> float:
    """The next round number: 1, 2 or 5 of a decimal place; of minutes and hours what a clock has."""
    if timed and least > 10 and (on_a_clock := [step for step in _CLOCK if least <= step]):
        return on_a_clock[0]
    power = 10.0 ** math.floor(math.log10(least))
    step = next(factor * power for factor in (1, 2, 5, 10) if least <= factor * power * (1 + 1e-9))
    return step if timed else max(1.0, step)


def spoken(seconds: float, step: float = 0.0) -> str:
    """A time as people read it."""
    if seconds == 0:
        return "0 s"
    if step >= 60 or seconds >= 60:
        whole = round(seconds)
        hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
        return f"{hours:,} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
    if step >= 1:
        return f"{seconds:.0f} s"
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.2f} s"


def as_events(number: float) -> str:
    return f"{number:,.0f} event{'' if number == 1 else 's'}"


def fitted(text: str, width: float, least: int = 4) -> str:
    """As much of a text as there is room for in 11 pixel letters, wide ones counted as two; none rather than a scrap
    of less than so many."""
    room = width - 8
    taken = 0.0
    for place, char in enumerate(text):
        taken += 13.0 if unicodedata.east_asian_width(char) in "WF" else 6.6
        if taken > room:
            cut = text[: max(0, place - 1)].rstrip()
            return f"{cut}…" if len(cut) >= least else ""
    return text
