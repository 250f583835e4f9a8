"""How costs grow with the size: one panel for turns, one for deltas, as an SVG made of text."""

from __future__ import annotations

import math
import statistics
from typing import Any

WIDTH, HEIGHT, MARGIN = 460, 320, 56
COLOURS = [
    "#d62728",
    "#1f77b4",
    "#2ca02c",
    "#9467bd",
    "#8c564b",
    "#e377c2",
    "#7f7f7f",
    "#bcbd22",
    "#17becf",
    "#ff7f0e",
    "#000",
]
Pair = tuple[dict[str, Any], dict[str, Any]]
Curves = dict[str, list[tuple[int, float]]]


def growth_curves(measured: list[list[Pair]]) -> str:
    """CPU per unit as a multiple of the floor beside it, over the size, both axes logarithmic."""
    panels = [panel for workload in ("turns", "deltas") if (panel := curves_of(measured, workload))]
    names = sorted({name for panel in panels for name in panel})
    colours = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(names)}
    parts = [_panel(panel, colours, at * WIDTH) for at, panel in enumerate(panels)]
    width = max(1, len(panels)) * WIDTH
    size = f'width="{width}" height="{HEIGHT}" font-family="sans-serif" font-size="11"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>", ""])


def curves_of(measured: list[list[Pair]], workload: str) -> Curves:
    curves: Curves = {}
    for of_size in measured:
        good = [own["cpu"] / floor["cpu"] for floor, own in of_size if "failed" not in own]
        first = of_size[0][1]
        if good and first["workload"] == workload:
            curves.setdefault(first["contestant"], []).append((first["size"], statistics.median(good)))
    return curves


def _panel(curves: Curves, colours: dict[str, str], left: int) -> str:
    points = [point for curve in curves.values() for point in curve]
    (x0, x1), (y0, y1) = _span([size for size, _ in points]), _span([ratio for _, ratio in points])

    def at(size: float, ratio: float) -> tuple[float, float]:
        x = left + MARGIN + (math.log10(size) - x0) / (x1 - x0) * (WIDTH - 2 * MARGIN - 40)
        y = HEIGHT - MARGIN - (math.log10(ratio) - y0) / (y1 - y0) * (HEIGHT - 2 * MARGIN)
        return round(x, 1), round(y, 1)

    parts: list[str] = []
    for size in sorted({size for size, _ in points}):
        x, y = at(size, 10**y0)
        parts.append(f'<text x="{x}" y="{y + 16}" text-anchor="middle">{size:,}</text>')
    for power in range(math.floor(y0), math.ceil(y1) + 1):
        if y0 <= power <= y1:
            x, y = at(10**x0, 10.0**power)
            parts.append(f'<text x="{x - 8}" y="{y + 4}" text-anchor="end">{10.0**power:g} ×</text>')
            parts.append(f'<line x1="{x}" y1="{y}" x2="{at(10**x1, 1)[0]}" y2="{y}" stroke="#ddd"/>')
    for name, curve in curves.items():
        path = " ".join([f"{x},{y}" for x, y in (at(*point) for point in curve)])
        x, y = at(*curve[-1])
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colours[name]}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 6}" y="{y + 4}" fill="{colours[name]}">{name}</text>')
    return "\n".join(parts)


def _span(values: list[float] | list[int]) -> tuple[float, float]:
    low, high = math.log10(min(values)), math.log10(max(values))
    return (low, high) if high > low else (low - 0.5, high + 0.5)
