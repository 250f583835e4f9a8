"""What was measured, as text: a line for each figure, the table of all, and what became of our goals."""

from __future__ import annotations

import statistics
from typing import Any, Final

Row = dict[str, Any]
Pair = tuple[Row, Row]  # the floor's row and the contestant's

COLUMNS: Final = f"{'floor µs':>9} {'CPU µs':>11} {'× floor':>8} {'goal':>5} {'KB':>8} {'peak MB':>8}"
HEADER: Final = f"{'workload':14} {'size':>7}  {'contestant':16} {COLUMNS}"
# Multiples of the floor, in CPU time.
GOALS: Final = {("turns", 200): 3.0, ("deltas", 20_000): 3.0, ("parallel", 100): 4.0, ("fanout", 500): 3.0}
FLAT: Final = {"turns": (200, 2000), "deltas": (20_000, 100_000)}
FLATNESS: Final = 1.15
IDLE_KB, IDLE_MICROSECONDS = 3.0, 15.0
IMPORT_SECONDS, DISTRIBUTIONS, MEGABYTES = 0.15, 16, 25
WIRE: Final = 0.6
# Whoever is not on Python, and who is no peer at all.
NOT_PYTHON: Final = frozenset({"pi", "floor_node", "floor_asyncio", "shape_trio", "trio_agent"})


class Figure:
    """Medians over the pairs of one contestant, workload and size."""

    def __init__(self, measured: list[Pair]) -> None:
        first = measured[0][1]
        self.contestant: str = first["contestant"]
        self.workload: str = first["workload"]
        self.size: int = first["size"]
        self.failed = next((own["failed"] for _, own in measured if "failed" in own), None)
        if self.failed is None:
            self.floor = statistics.median([floor["cpu"] for floor, _ in measured]) * 1e6
            self.own = statistics.median([own["cpu"] for _, own in measured]) * 1e6
            self.ratio = statistics.median([own["cpu"] / floor["cpu"] for floor, own in measured])
            self.memory = statistics.median([own["memory"] for _, own in measured])
            self.peak = max(own["peak"] for _, own in measured)

    @property
    def goal(self) -> float | None:
        if self.workload.startswith("wire-"):
            return 1 / WIRE
        return GOALS.get((self.workload, self.size))

    def shown(self) -> str:
        """The cell of the table."""
        if self.failed is not None:
            return "–"
        if self.workload == "idle":
            return f"{_number(self.own)}, {self.memory:.1f} KB"
        if self.workload.startswith("wire-"):
            return f"{1e6 / self.own:.0f} of {1e6 / self.floor:.0f} MB/s ({1 / self.ratio:.0%})"
        return f"{_number(self.own)} ({_number(self.ratio)})"


def figures_of(paired: list[list[Pair]]) -> list[Figure]:
    return [Figure(measured) for measured in paired]


def line(measured: list[Pair]) -> str:
    figure = Figure(measured)
    start = f"{figure.workload:14} {figure.size:7}  {figure.contestant:16}"
    if figure.failed is not None:
        return f"{start} {figure.failed}"
    goal = "" if figure.goal is None else f"{figure.goal:.2g}"
    numbers = f"{figure.floor:9.2f} {figure.own:11.2f} {figure.ratio:8.2f} {goal:>5}"
    once = " measured once" if len(measured) == 1 else ""
    return f"{start} {numbers} {figure.memory:8.2f} {figure.peak:8.0f}{once}"


def import_line(row: Row) -> str:
    start = f"{'import':14} {'':7}  {row['contestant']:16}"
    if "failed" in row:
        return f"{start} {row['failed']}"
    return f"{start} {row['seconds']:.3f} s, {row['distributions']} distributions, {row['megabytes']:.0f} MB"


def summary(paired: list[list[Pair]], rows: list[Row]) -> str:
    """All of it as one Markdown table: µs of CPU, in brackets the multiple of the floor beside it."""
    figures = figures_of(paired)
    cells: dict[tuple[str, int], dict[str, str]] = {}
    goals: dict[tuple[str, int], str] = {}
    for figure in figures:
        place = (figure.workload, figure.size)
        cells.setdefault(place, {})[figure.contestant] = figure.shown()
        goals[place] = "" if figure.goal is None else f"{figure.goal:g}"
        if figure.workload.startswith("wire-"):
            goals[place] = f"{WIRE:.0%}"
        elif figure.workload == "idle":
            goals[place] = f"{IDLE_MICROSECONDS:g}, {IDLE_KB:g} KB"
    for row in rows:
        if row["workload"] == "import" and "failed" not in row:
            found = f"{row['seconds']:.2f} s, {row['distributions']}, {row['megabytes']:.0f} MB"
            cells.setdefault(("import", 1), {})[row["contestant"]] = found
            goals["import", 1] = f"Trio + {IMPORT_SECONDS} s, {DISTRIBUTIONS}, {MEGABYTES} MB"
    names = list(dict.fromkeys([name for found in cells.values() for name in found]))
    head = ["workload", "size", "goal", *names]
    table = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for (workload, size), found in cells.items():
        shown = [workload, f"{size:,}", goals[workload, size], *[found.get(name, "") for name in names]]
        table.append(f"| {' | '.join(shown)} |")
    return "\n".join(table)


def verdicts(paired: list[list[Pair]], rows: list[Row]) -> str:
    """A line for each of our goals: what it is, what we have, and who else is above it."""
    figures = [figure for figure in figures_of(paired) if figure.failed is None]
    lines = ["Goals:"]
    for (workload, size), goal in GOALS.items():
        lines += _against_all(
            [figure for figure in figures if (figure.workload, figure.size) == (workload, size)], goal
        )
    ours = [figure for figure in figures if figure.contestant == "trio_agent"]
    for figure in ours:
        if figure.workload.startswith("wire-"):
            share = f"{1 / figure.ratio:.0%} of the parse-only rate"
            lines.append(_verdict(f"{figure.workload}, at least {WIRE:.0%}", share, 1 / figure.ratio >= WIRE))
        elif figure.workload == "idle":
            shown = f"{figure.memory:.1f} KB, {figure.own:.1f} µs"
            fits = figure.memory <= IDLE_KB and figure.own <= IDLE_MICROSECONDS
            lines.append(_verdict(f"idle, {IDLE_KB:g} KB and {IDLE_MICROSECONDS:g} µs", shown, fits))
    lines += _flatness(ours) + _imports(rows) + _history(rows)
    return "\n".join(lines)


def _against_all(figures: list[Figure], goal: float) -> list[str]:
    own = next((figure for figure in figures if figure.contestant == "trio_agent"), None)
    if own is None:
        return []
    what = f"{own.workload} {own.size:,}, {goal:g} × floor"
    above = [
        f"{figure.contestant} {figure.ratio:.1f}" for figure in figures if figure.ratio > goal and figure is not own
    ]
    lines = [
        _verdict(what, f"{own.ratio:.2f}", own.ratio <= goal) + (f"; above it: {', '.join(above)}" if above else "")
    ]
    pi = next((figure for figure in figures if figure.contestant == "pi"), None)
    if pi is not None:
        times = pi.ratio / own.ratio
        lines.append(_verdict(f"{own.workload} {own.size:,}, twice as fast as pi", f"{times:.1f} times", times >= 2))
    python = [figure for figure in figures if figure.contestant not in NOT_PYTHON]
    if python:
        best = min(python, key=lambda figure: figure.ratio)
        times = best.ratio / own.ratio
        what = f"{own.workload} {own.size:,}, three times as fast as the best on Python ({best.contestant})"
        lines.append(_verdict(what, f"{times:.1f} times", times >= 3))
    return lines


def _flatness(ours: list[Figure]) -> list[str]:
    lines: list[str] = []
    for workload, sizes in FLAT.items():
        found = {figure.size: figure.ratio for figure in ours if figure.workload == workload}
        if all(size in found for size in sizes):
            growth = found[sizes[1]] / found[sizes[0]]
            what = f"{workload}, the same within {FLATNESS - 1:.0%} at {sizes[1]:,} as at {sizes[0]:,}"
            lines.append(_verdict(what, f"{growth:.2f} times the ratio", growth <= FLATNESS))
    return lines


def _imports(rows: list[Row]) -> list[str]:
    found = {row["contestant"]: row for row in rows if row["workload"] == "import" and "failed" not in row}
    if "trio_agent" not in found or "floor_trio" not in found:
        return []
    own = found["trio_agent"]
    more = own["seconds"] - found["floor_trio"]["seconds"]
    size = f"{own['distributions']} distributions, {own['megabytes']:.0f} MB"
    fits = own["distributions"] <= DISTRIBUTIONS and own["megabytes"] <= MEGABYTES
    return [
        _verdict(f"import, {IMPORT_SECONDS} s beyond Trio", f"{more:.3f} s", more <= IMPORT_SECONDS),
        _verdict(f"installed, at most {DISTRIBUTIONS} distributions and {MEGABYTES} MB", size, fits),
    ]


def _history(rows: list[Row]) -> list[str]:
    found = [row for row in rows if row["workload"] == "history"]
    if len(found) < 2:
        return []
    short, long = found[0], found[-1]
    lines: list[str] = []
    for name in ("state", "snapshot", "run", "append"):
        growth = long[name] / short[name]
        shown = f"{short[name]:.1f} and {long[name]:.1f} µs"
        what = f"history, {name} the same at {long['size']:,} turns as at {short['size']:,}"
        # A microsecond more or less is the clock's.
        lines.append(_verdict(what, shown, growth <= 1.25 or long[name] - short[name] < 1))
    for name in ("first_request", "next_request", "load"):
        each = [row[name] / row["size"] for row in (short, long)]
        what = f"history, {name} linear in the turns"
        lines.append(_verdict(what, f"{each[0]:.2f} and {each[1]:.2f} µs a turn", each[1] <= each[0] * 1.25))
    return lines


def _verdict(what: str, shown: str, met: bool) -> str:
    return f"  {'met   ' if met else 'MISSED'} {what}: {shown}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"
