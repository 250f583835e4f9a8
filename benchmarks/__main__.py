"""`python -m benchmarks`: every contestant in its own process, interleaved with the floor, as ratios to it.

A pair is the floor and a contestant, one right behind the other, so that a noisy machine slows both; the table shows
the median of the pairs' ratios, in CPU time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from typing import Any

FLOOR = "floor_trio"
CONTESTANTS = ["trio_agent_kernel"]
SIZES = {
    "turns": [50, 200, 2000],
    "deltas": [2_000, 20_000, 100_000],
    "parallel": [100],
    "fanout": [500],
    "idle": [10_000],
}
QUICK = {"turns": [50, 200], "deltas": [20_000], "parallel": [100], "fanout": [100], "idle": [1_000]}


def measure(contestant: str, workload: str, size: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.contestants.{contestant}", workload, str(size)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if done.returncode:
        raise SystemExit(f"{contestant} {workload} {size} failed:\n{done.stderr}")
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row | {"contestant": contestant}


def pairs(contestant: str, workload: str, size: int, rounds: int) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [(measure(FLOOR, workload, size), measure(contestant, workload, size)) for _ in range(rounds)]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--workload", action="append", choices=sorted(SIZES), help="repeatable; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small sizes, three rounds")
    parser.add_argument("--json", action="store_true", help="print the raw rows as JSON lines instead of the table")
    options = parser.parse_args()
    sizes, rounds = (QUICK, 3) if options.quick else (SIZES, options.rounds)
    if not options.json:
        print("workload      size   floor µs    ours µs  × floor   ours KB  peak MB")
    for workload in options.workload or list(SIZES):
        for size in sizes[workload]:
            for contestant in CONTESTANTS:
                measured = pairs(contestant, workload, size, rounds)
                if options.json:
                    for pair in measured:
                        print(*[json.dumps(row) for row in pair], sep="\n")
                else:
                    print(line(workload, size, measured), flush=True)


def line(workload: str, size: int, measured: list[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    floor = statistics.median([floor["cpu"] for floor, _ in measured]) * 1e6
    ours = statistics.median([own["cpu"] for _, own in measured]) * 1e6
    ratio = statistics.median([own["cpu"] / floor["cpu"] for floor, own in measured])
    memory = statistics.median([own["memory"] for _, own in measured])
    peak = max(own["peak"] for _, own in measured)
    return f"{workload:10} {size:7}  {floor:9.2f}  {ours:9.2f}  {ratio:7.2f}  {memory:8.2f}  {peak:7.0f}"


if __name__ == "__main__":
    main()
