"""`python -m tests.seeded_bugs [--jobs N] [--wide] [NAME…]`: which test notices each mistake.

Here lives the command alone; a trial is in `trial.py`. Exit code 1 if a bug lives, 2 if one could not be tried or its
tests fail without it as well.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from time import monotonic

from .catalog import SeededBug, load
from .trial import Verdict, try_all, unpatched_failures


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    bugs = _chosen(arguments.names)
    if arguments.list:
        for bug in bugs:
            print(f"{bug.name} [{' '.join(bug.rules)}] {bug.why}")
        return 0
    began = monotonic()
    verdicts: list[Verdict] = []
    for verdict in try_all(bugs, jobs=arguments.jobs, wide=arguments.wide):
        print(verdict, flush=True)
        if arguments.verbose and verdict.said:
            print(f"    {verdict.said}", flush=True)
        verdicts.append(verdict)
    unproven = unpatched_failures(verdicts, jobs=arguments.jobs)
    for failure in unproven:
        print(f"fails without any bug as well: {failure}")
    return _summary(verdicts, unproven, monotonic() - began)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.seeded_bugs", description="Try the tests with seeded bugs.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="bugs, rules or areas (default: all)")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes at once (default: 2)")
    parser.add_argument("--wide", action="store_true", help="run the whole rules suite for what its own tests let live")
    parser.add_argument("--list", action="store_true", help="say what there is, and try nothing")
    parser.add_argument("-v", "--verbose", action="store_true", help="say how each test failed")
    return parser


def _chosen(names: Sequence[str]) -> list[SeededBug]:
    bugs = load()
    known = {name for bug in bugs for name in (bug.name, bug.area, *bug.rules)}
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"there is no seeded bug, rule or area called {', '.join(unknown)}; see --list")
    return [bug for bug in bugs if not names or {bug.name, bug.area, *bug.rules} & set(names)]


def _summary(verdicts: Sequence[Verdict], unproven: Sequence[str], seconds: float) -> int:
    living = [verdict.bug.name for verdict in verdicts if verdict.how == "lives"]
    broken = [verdict.bug.name for verdict in verdicts if verdict.how == "broken"]
    killed = sum(verdict.killed for verdict in verdicts)
    print(f"{killed} of {len(verdicts)} killed in {seconds:.0f} s")
    if living:
        print(f"alive: {', '.join(living)}")
    if broken:
        print(f"not tried: {', '.join(broken)}")
    return 2 if broken or unproven else 1 if living else 0


if __name__ == "__main__":
    sys.exit(main())
