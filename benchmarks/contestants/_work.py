"""The work that every contestant does, and the proof that it was done.

A contestant is a module with one async function per workload, each taking the size and giving a `Proof`. The
process measures itself, so that starting Python and importing are not part of the figure. Nothing in here imports more
than the standard library: it also runs in the environments of the peers.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

DELTA = "abcd"
AGENTS_TURNS = 5
APIS = ("chat", "responses", "anthropic", "gemini")


@dataclass
class Proof:
    """Counts that only the real work can make."""

    events: int = 0
    deltas: int = 0
    characters: int = 0
    results_seen: int = 0  # tool results that the next request showed
    units: float = 0  # what the cost is divided by


Workload = Callable[[int], Awaitable[Proof]]
Runner = Callable[[Workload, int], Proof]


class Script:
    """What the fake model of a peer answers: so many deltas of text, and the ids of calls of the tool `noop`.

    Each request says how many tool results stand at its end, which is the proof that the last ones arrived.
    """

    def __init__(self, workload: str, size: int, proof: Proof) -> None:
        self._workload = workload
        self._size = size
        self._proof = proof
        self.asked = 0

    def answer(self, results: int) -> tuple[int, list[str]]:
        self.asked += 1
        self._proof.results_seen += results
        if self._workload == "deltas":
            return self._size, []
        if self._workload == "parallel":
            return (0, [f"c{at}" for at in range(self._size)]) if self.asked == 1 else (1, [])
        return 1, ([f"c{self.asked}"] if self.asked < self._size else [])

    def told(self, text: str) -> None:
        """The subscriber of the peer was told a delta."""
        self._proof.deltas += 1
        self._proof.characters += len(text)

    def event(self) -> None:
        self._proof.events += 1


def peer_main(run: Callable[[Script], Awaitable[str]], make: Callable[[Script], object]) -> None:
    """`main` for a peer on asyncio: one run of a script, giving the final text, and the making of an idle agent."""
    import asyncio

    async def at_once(fns: list[Callable[[], Awaitable[Proof]]]) -> list[Proof]:
        return await asyncio.gather(*[fn() for fn in fns])

    main(peer_workloads(run, make, at_once), run_asyncio)


def peer_workloads(
    run: Callable[[Script], Awaitable[str]],
    make: Callable[[Script], object],
    at_once: Callable[[list[Callable[[], Awaitable[Proof]]]], Awaitable[list[Proof]]],
) -> dict[str, Workload]:
    """The workloads of a peer; `at_once` is how its event loop runs many things side by side."""

    async def once(workload: str, size: int) -> Proof:
        proof = Proof(units=size)
        text = await run(Script(workload, size, proof))
        wanted = DELTA * size if workload == "deltas" else DELTA
        if text != wanted:
            raise SystemExit(f"{workload} {size}: the final text is {text[:40]!r}: the work was not done")
        return proof

    async def fanout(size: int) -> Proof:
        total = Proof(units=size)
        for proof in await at_once([partial(once, "turns", AGENTS_TURNS)] * size):
            add(total, proof)
        return total

    async def idle(size: int) -> Proof:
        kept.extend([make(Script("turns", 1, Proof())) for _ in range(size)])
        return Proof(units=size)

    kept: list[object] = []
    return {
        "turns": partial(once, "turns"),
        "deltas": partial(once, "deltas"),
        "parallel": partial(once, "parallel"),
        "fanout": fanout,
        "idle": idle,
    }


def run_asyncio(workload: Workload, size: int) -> Proof:
    import asyncio

    async def whole() -> Proof:
        return await workload(size)

    return asyncio.run(whole())


def add(total: Proof, proof: Proof) -> None:
    """Add the counts of one run of many."""
    total.events += proof.events
    total.deltas += proof.deltas
    total.characters += proof.characters
    total.results_seen += proof.results_seen


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
        case _ if workload.startswith("wire-"):
            from ._wire import stream, texts_in

            api = workload.removeprefix("wire-")
            body = stream(api, size)
            texts = texts_in(api, body)
            return Proof(len(texts), len(texts), len("".join(texts)), 0, len(body) / 1e6)
        case _:  # `idle` does nothing
            return Proof(units=size)


def check(workload: str, size: int, proof: Proof) -> None:
    wanted = expected(workload, size)
    for name, least in asdict(wanted).items():
        got = getattr(proof, name)
        if got < least or (name != "events" and got != least):
            raise SystemExit(f"{workload} {size}: {name} is {got}, not {least}: the work was not done")


def main(workloads: dict[str, Workload], run: Runner) -> None:
    """`python -m benchmarks.contestants.NAME WORKLOAD SIZE`: do it once, print one JSON row."""
    workload, size = sys.argv[1], int(sys.argv[2])
    fn = workloads[workload]
    run(fn, min(size, 20))  # warm up, so that the first import or cache is nobody's cost
    gc.collect()
    before = _memory()
    wall, cpu = time.perf_counter(), time.process_time()
    proof = run(fn, size)
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
