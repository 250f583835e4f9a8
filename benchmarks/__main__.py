"""`python -m benchmarks`: every contestant in its own process, interleaved with the floor, as ratios to it.

A pair is the floor and a contestant, one right behind the other, so that a noisy machine slows both; the table shows
the median of the pairs' ratios, in CPU time. Peers that `python -m benchmarks.install` has installed take part.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .contestant import ALL, FLOOR, Contestant
from .plot import growth_curves

Row = dict[str, Any]
Pair = tuple[Row, Row]

SIZES = {
    "turns": [50, 200, 800, 2000],
    "deltas": [2_000, 20_000, 100_000],
    "parallel": [100],
    "fanout": [500],
    "idle": [10_000],
    "wire": [1],
    "import": [1],
    "history": [50, 2000],
}
QUICK = {
    "turns": [50, 200],
    "deltas": [20_000],
    "parallel": [100],
    "fanout": [100],
    "idle": [1_000],
    "wire": [1],
    "import": [1],
    "history": [50, 2000],
}
OURS_ALONE = ("wire", "history")
SECONDS = 120  # what takes longer is noted as such
COLUMNS = f"{'floor µs':>9} {'CPU µs':>11} {'× floor':>8} {'KB':>8} {'peak MB':>8}"
HEADER = f"{'workload':9} {'size':>7}  {'contestant':18} {COLUMNS}"


def measure(contestant: Contestant, workload: str, size: int) -> Row:
    """One row, or one with `failed` in it."""
    row: Row = {"contestant": contestant.name, "workload": workload, "size": size}
    command = contestant.command(workload, size)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return row | {"failed": f"more than {SECONDS} s"}
    if done.returncode:
        return row | {"failed": (done.stderr.strip().splitlines() or ["no words"])[-1]}
    measured: Row = json.loads(done.stdout.splitlines()[-1])
    return row | measured


def pairs(contestant: Contestant, workload: str, size: int, rounds: int) -> list[Pair]:
    """So many pairs; one where the contestant fails."""
    measured: list[Pair] = []
    for _ in range(rounds):
        floor = measure(FLOOR, workload, size)
        if "failed" in floor:
            raise SystemExit(f"the floor failed: {floor}")
        own = measure(contestant, workload, size)
        measured.append((floor, own))
        if "failed" in own:
            break
    return measured


def line(measured: list[Pair]) -> str:
    first = measured[0][1]
    start = f"{first['workload']:9} {first['size']:7}  {first['contestant']:18}"
    failed = [own["failed"] for _, own in measured if "failed" in own]
    if failed:
        return f"{start} {failed[0]}"
    floor, own, ratio = (
        statistics.median([floor["cpu"] for floor, _ in measured]) * 1e6,
        statistics.median([own["cpu"] for _, own in measured]) * 1e6,
        statistics.median([own["cpu"] / floor["cpu"] for floor, own in measured]),
    )
    memory = statistics.median([own["memory"] for _, own in measured])
    peak = max(own["peak"] for _, own in measured)
    return f"{start} {floor:9.2f} {own:11.2f} {ratio:8.2f} {memory:8.2f} {peak:8.0f}"


def imports(contestants: Iterable[Contestant], rounds: int) -> list[Row]:
    """Cold starts: the processor time of a process that imports the package, and what its installation consists of."""
    rows: list[Row] = []
    for contestant in contestants:
        if contestant.imports:
            code = (Path(__file__).parent / "cold_start.py").read_text("utf-8")
            command = [contestant.interpreter, "-c", code, contestant.imports, *contestant.distributions]
            measured = [
                json.loads(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(rounds)
            ]
            row = min(measured, key=lambda row: row["seconds"])
            rows.append({"contestant": contestant.name, "workload": "import", "size": 1} | row)
    return rows


def history(sizes: list[int]) -> list[Row]:
    rows: list[Row] = []
    for size in sizes:
        command = [sys.executable, "-m", "benchmarks.contestants.history", "history", str(size)]
        rows.append(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))
    return rows


def chosen(names: list[str] | None) -> list[Contestant]:
    if names is None:
        return [contestant for contestant in ALL if contestant.is_there()]
    known = {contestant.name: contestant for contestant in ALL}
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise SystemExit(f"{', '.join(unknown)}: not among {', '.join(known)}")
    missing = [name for name in names if not known[name].is_there()]
    if missing:
        raise SystemExit(f"{', '.join(missing)}: not installed; see python -m benchmarks.install")
    return [known[name] for name in names]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workload", action="append", choices=sorted(SIZES), help="repeatable; default: all")
    parser.add_argument("--contestant", action="append", metavar="NAME", help="repeatable; default: all that are there")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small sizes, three rounds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the raw rows, one JSON object a line")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw how the costs grow, as SVG")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    sizes, rounds = (QUICK, 3) if options.quick else (SIZES, options.rounds)
    contestants = chosen(options.contestant)
    rows: list[Row] = []
    paired: list[list[Pair]] = []
    workloads: list[str] = options.workload or list(SIZES)
    if set(workloads) - {"import", "history"}:
        print(HEADER)
    for workload in workloads:
        if workload == "import":
            rows += (found := imports([FLOOR, *contestants], rounds))
            for row in found:
                print(
                    f"import {row['contestant']:18} {row['seconds']:.3f} s, "
                    f"{row['distributions']} distributions, {row['megabytes']:.0f} MB"
                )
        elif workload == "history":
            rows += (found := history(sizes[workload]))
            for row in found:
                print("history", *[f"{name} {value:.1f}" for name, value in row.items() if name != "workload"], "(µs)")
        else:
            for size in sizes[workload]:
                for contestant in contestants:
                    if workload not in OURS_ALONE or contestant.name == "trio_agent":
                        measured = pairs(contestant, workload, size, rounds)
                        paired.append(measured)
                        rows += [row for pair in measured for row in pair]
                        print(line(measured), flush=True)
    if options.json:
        options.json.write_text("".join([json.dumps(row) + "\n" for row in rows]), "utf-8")
    if options.plot:
        options.plot.write_text(growth_curves(paired), "utf-8")


if __name__ == "__main__":
    main()
