"""The work that every contestant does, and the proof that it was done.

A contestant is a module with one async function per workload, each taking the size and giving a `Proof`. The
process measures itself, so that starting Python and importing are not part of the figure.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

import trio

DELTA = "abcd"
AGENTS_TURNS = 5


@dataclass
class Proof:
    """Counts that only the real work can make."""

    events: int = 0
    deltas: int = 0
    characters: int = 0
    results_seen: int = 0  # tool results that the next request showed
    units: int = 0  # what the cost is divided by


Workload = Callable[[int], Awaitable[Proof]]


def expected(workload: str, size: int) -> Proof:
    """What must have been done; `events` is the least that a subscriber must have had."""
    match workload:
        case "turns":
            return Proof(2 * size - 1, size, 4 * size, size - 1, size)
        case "deltas":
            return Proof(size, size, 4 * size, 0, size)
        case "parallel":
            return Proof(size + 1, 1, 4, size, size)
        case "fanout":
            per_run = expected("turns", AGENTS_TURNS)
            return Proof(
                *[size * count for count in (per_run.events, per_run.deltas, per_run.characters, per_run.results_seen)],
                size,
            )
        case _:
            return Proof(units=size)


def check(workload: str, size: int, proof: Proof) -> None:
    wanted = expected(workload, size)
    for name, least in asdict(wanted).items():
        got = getattr(proof, name)
        if got < least or (name != "events" and got != least):
            raise SystemExit(f"{workload} {size}: {name} is {got}, not {least}: the work was not done")


def main(workloads: dict[str, Workload]) -> None:
    """`python -m benchmarks.contestants.NAME WORKLOAD SIZE`: do it once, print one JSON row."""
    workload, size = sys.argv[1], int(sys.argv[2])
    fn = workloads[workload]
    trio.run(fn, min(size, 20))  # warm up, so that the first import or cache is nobody's cost
    gc.collect()
    before = _memory()
    wall, cpu = time.perf_counter(), time.process_time()
    proof = trio.run(fn, size)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    check(workload, size, proof)
    row: dict[str, Any] = {
        "workload": workload,
        "size": size,
        "cpu": cpu / proof.units,
        "wall": wall / proof.units,
        "memory": (_memory() - before) / proof.units,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "events": proof.events,
    }
    print(json.dumps(row))


def _memory() -> float:
    """Resident memory in KB."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1024
