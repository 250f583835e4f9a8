"""`python -m benchmarks`: every contestant in its own process, interleaved with the floor, as ratios to it.

A pair is the floor and a contestant, one right behind the other, so that a noisy machine slows both; the table shows
the median of the pairs' ratios, in CPU time. Peers that `python -m benchmarks.install` has installed take part.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .contestant import ALL, FLOOR, OURS, Contestant
from .contestants._work import APIS
from .plot import growth_curves
from .report import HEADER, Pair, Row, import_line, line, summary, verdicts

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
QUICK = SIZES | {"turns": [50, 200], "deltas": [20_000], "fanout": [50], "idle": [1_000]}
SECONDS = 120  # what takes longer is noted as such
SLOW = 8  # seconds: who takes longer for one run is measured once


def measure(contestant: Contestant, workload: str, size: int) -> Row:
    """One row, or one with `failed` in it."""
    row: Row = {"contestant": contestant.name, "workload": workload, "size": size}
    return row | _answer(contestant.command(workload, size))


def _answer(command: list[str]) -> Row:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {"failed": f"more than {SECONDS} s"}
    except OSError as error:
        return {"failed": str(error)}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no words"])[-1]}
    measured: Row = json.loads(done.stdout.splitlines()[-1])
    return measured


def pairs(contestant: Contestant, workload: str, size: int, rounds: int) -> list[Pair]:
    """So many pairs; one where the contestant fails or is slow."""
    measured: list[Pair] = []
    if (most := contestant.most.get(workload, size)) < size:
        row: Row = {"contestant": contestant.name, "workload": workload, "size": size}
        return [({}, row | {"failed": f"not run: more than {most:,} would take minutes"})]
    for _ in range(rounds):
        floor = measure(FLOOR, workload, size)
        if "failed" in floor:
            raise SystemExit(f"the floor failed: {floor}")
        began = time.monotonic()
        own = measure(contestant, workload, size)
        measured.append((floor, own))
        if "failed" in own or time.monotonic() - began > SLOW:
            break
    return measured


def imports(contestants: Iterable[Contestant], rounds: int) -> list[Row]:
    """Cold starts: the processor time of a process that imports the package, and what its installation consists of."""
    rows: list[Row] = []
    for contestant in contestants:
        if (command := contestant.cold_start()) is not None:
            measured = [_answer(command) for _ in range(rounds)]
            row = min(measured, key=lambda row: row.get("seconds", 0))
            rows.append({"contestant": contestant.name, "workload": "import", "size": 1} | row)
            print(import_line(rows[-1]), flush=True)
    return rows


def history(sizes: list[int], rounds: int) -> list[Row]:
    """What a long history costs us, in microseconds: the least of some rounds."""
    rows: list[Row] = []
    for size in sizes:
        command = [sys.executable, "-m", "benchmarks.contestants.history", "history", str(size)]
        found = [_answer(command) for _ in range(rounds)]
        rows.append({name: min(row[name] for row in found) if name != "workload" else value
                     for name, value in found[0].items()})  # fmt: skip
        print("history", *[f"{name} {value:,.1f}" for name, value in rows[-1].items() if name != "workload"], "(µs)")
    return rows


def chosen(names: list[str] | None) -> list[Contestant]:
    """Those who are named, or all; who is not there is named as such."""
    known = {contestant.name: contestant for contestant in ALL}
    unknown = sorted(set(names or ()) - set(known))
    if unknown:
        raise SystemExit(f"{', '.join(unknown)}: not among {', '.join(known)}")
    wanted = [known[name] for name in names or known]
    missing = [contestant.name for contestant in wanted if not contestant.is_there()]
    if missing:
        print(f"not installed, and left out: {', '.join(missing)}; see python -m benchmarks.install", file=sys.stderr)
    return [contestant for contestant in wanted if contestant.is_there()]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workload", action="append", choices=sorted(SIZES), help="repeatable; default: all")
    parser.add_argument("--contestant", action="append", metavar="NAME", help="repeatable; default: all that are there")
    parser.add_argument("--rounds", type=int, default=3, help="pairs for each figure; default: 3")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round unless --rounds says another")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the raw rows, one JSON object a line")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw how the costs grow, as SVG")
    parser.set_defaults(rounds=None)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    began = time.monotonic()
    sizes, rounds = (QUICK, options.rounds or 1) if options.quick else (SIZES, options.rounds or 3)
    contestants = chosen(options.contestant)
    rows: list[Row] = []
    paired: list[list[Pair]] = []
    print(HEADER)
    for workload in options.workload or SIZES:
        if workload == "import":
            rows += imports([FLOOR, *contestants], rounds)
        elif workload == "history":
            rows += history(sizes[workload], rounds) if OURS in contestants else []
        else:
            for own_workload in [f"wire-{api}" for api in APIS] if workload == "wire" else [workload]:
                for size in sizes[workload]:
                    for contestant in [OURS] * (OURS in contestants) if workload == "wire" else contestants:
                        paired.append(pairs(contestant, own_workload, size, rounds))
                        print(line(paired[-1]), flush=True)
    rows += [row for measured in paired for pair in measured for row in pair if row]
    print(summary(paired, rows), verdicts(paired, rows), f"{time.monotonic() - began:.0f} s in all", sep="\n\n")
    _keep(options, rows, paired)


def _keep(options: Any, rows: list[Row], paired: list[list[Pair]]) -> None:
    if options.json:
        options.json.write_text("".join([json.dumps(row) + "\n" for row in rows]), "utf-8")
    if options.plot:
        options.plot.write_text(growth_curves(paired), "utf-8")


if __name__ == "__main__":
    main()
