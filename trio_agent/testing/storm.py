"""The long run: `python -m trio_agent.testing.storm --minutes 60` draws scenarios and writes what fails as tests.

Here live the command's arguments, the clock and the files. What is drawn is in `strategies.py`, what has to hold in
`_scenario_checks.py`. Needs Hypothesis.
"""

from __future__ import annotations

import argparse
import re
import secrets
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from time import monotonic as now

import attrs

from ._checkpoints import Disturbance
from ._scenario import Scenario, script
from ._scenario_play import play
from .strategies import Failed, search

_ROUND = 200  # examples that are drawn from one seed


@attrs.define
class Storm:
    """One long run, and what came of it so far."""

    folder: Path
    until: float
    examples: int = 0
    failures: dict[str, Path] = attrs.field(factory=dict[str, Path])

    def blow(self, seed: int) -> None:
        """Go on until the time is over, one round after the other."""
        while now() < self.until:
            found = search(self._play, seed=seed, examples=_ROUND)
            if found is not None:
                self._keep(found, seed)
            seed += 1

    def _play(self, scenario: Scenario, seed: int, disturbance: Disturbance | None) -> None:
        self.examples += 1
        play(scenario, seed=seed, disturbance=disturbance)

    def _keep(self, found: Failed, seed: int) -> None:
        """Write a failure down, unless the same has been written already."""
        kind = re.sub(r"[0-9]+", "#", f"{type(found.exception).__name__} {found.exception}".split("\n")[0])[:100]
        if kind in self.failures:
            return
        path = self.folder / f"test_storm_{seed}.py"
        self.folder.mkdir(parents=True, exist_ok=True)
        path.write_text(_test_of(found), "utf-8")
        self.failures[kind] = path
        print(f"{path}: {found.exception}".split("\n")[0], flush=True)  # noqa: T201  # a command


def _test_of(found: Failed) -> str:
    trace = "".join(traceback.format_exception(found.exception, chain=False))
    comment = "\n".join([f"# {line}".rstrip() for line in trace.splitlines()])
    return f"{script(found.scenario, seed=found.seed, disturbance=found.disturbance)}\n\n{comment}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Gives its exit code: 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m trio_agent.testing.storm", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long (default: 1)")
    parser.add_argument("--seed", type=int, default=None, help="of the first round (default: a fresh one)")
    parser.add_argument("--out", type=Path, default=Path("storm"), help="folder for what fails (default: storm)")
    told = parser.parse_args(arguments)
    began = now()
    storm = Storm(told.out, began + told.minutes * 60)
    seed = secrets.randbelow(10**6) * 1000 if told.seed is None else told.seed
    print(f"first seed {seed}", flush=True)  # noqa: T201  # a command
    storm.blow(seed)
    seconds = now() - began
    rate = storm.examples / seconds if seconds else 0.0
    print(  # noqa: T201  # a command
        f"{storm.examples} examples in {seconds:.0f} s, {rate:.0f} a second; {len(storm.failures)} different failures"
    )
    return 1 if storm.failures else 0


if __name__ == "__main__":
    sys.exit(main())
