"""Mutation testing of the modules in `subjects.toml`: `python -m tests.mutation`, with `--help` for what it takes.

Ends with status 1 when a mutant lives that `survivors.toml` does not list, when a listed one dies or is gone, or when
less than 95 % of the mutants of all modules are killed, the listed ones counted as alive. Needs the package `mutmut`,
of which it takes the mutations. The tree is left alone: a mutant is only ever in the memory of the process that tests
it. Alive is what `mutmut` calls survived; killed is also what ran out of time or memory.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.mutation._mutants import Mutant

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1] / "trio_agent"
LEAST = 0.95


def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    if importlib.util.find_spec("mutmut") is None:
        print("mutmut is not installed; it comes with the extra: pip install -e '.[test,mutation]'", file=sys.stderr)
        return 2
    from tests.mutation._mutants import mutants_of  # not before: it imports mutmut

    subjects: dict[str, list[str]] = tomllib.loads((HERE / "subjects.toml").read_text(encoding="utf-8"))
    unknown = set(options.modules) - set(subjects)
    if unknown:
        print(f"not in subjects.toml: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    listed = _listed()
    total = alive = unexpected = 0
    for name in options.modules or subjects:
        mutants = [mutant for mutant in mutants_of(PACKAGE / name) if options.function in (None, mutant.function)]
        may_live = Counter({key: count for key, count in listed.items() if key[0] == name})
        if options.function:
            may_live = Counter({key: count for key, count in may_live.items() if key[1] == options.function})
        found = Counter(mutant.key for mutant in _survivors(name, mutants, subjects[name], options.jobs, may_live))
        for key in (may_live - found).elements():
            print(f"listed as a survivor, but killed or gone: {_said(key)}")
        total += len(mutants)
        alive += found.total()
        unexpected += (found - may_live).total() + (may_live - found).total()
    rate = 1 - alive / total if total else 1.0
    print(f"all: {total} mutants, {total - alive} killed, {rate:.1%}; {unexpected} differences from survivors.toml")
    too_few = rate < LEAST and not options.modules and not options.function
    return 1 if unexpected or too_few else 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description="mutation testing of the pure floor")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="such as _json.py; all of them without any")
    parser.add_argument("--function", help="only mutants of this function, by its qualified name")
    parser.add_argument("--jobs", type=int, default=1, help="how many mutants are tried at once")
    return parser.parse_args(argv)


def _listed() -> Counter[tuple[str, str, str]]:
    """The keys of the mutants that may live: each entry tells lines as they were, and each way that they become."""
    keys: Counter[tuple[str, str, str]] = Counter()
    for entry in tomllib.loads((HERE / "survivors.toml").read_text(encoding="utf-8"))["survivor"]:
        assert entry["reason"]
        for becomes in entry["becomes"]:
            lines = [f"- {line}" for line in entry["was"].splitlines()] + [f"+ {line}" for line in becomes.splitlines()]
            keys[entry["file"], entry["function"], "\n".join(lines)] += 1
    return keys


def _survivors(
    name: str, mutants: Sequence[Mutant], tests: Sequence[str], jobs: int, may_live: Counter[tuple[str, str, str]]
) -> list[Mutant]:
    """The mutants of a module that no test kills; those that are not listed are printed at once."""
    from tests.mutation._trial import Trial

    began = time.perf_counter()
    alive: list[Mutant] = []
    trial = Trial(f"{PACKAGE.name}.{Path(name).stem}", PACKAGE / name, mutants, tests, jobs)
    for mutant, killed in trial.verdicts():
        if not killed:
            alive.append(mutant)
            if mutant.key not in may_live:
                print(f"alive: {_said(mutant.key)}", flush=True)
    took = time.perf_counter() - began
    print(f"{name}: {len(mutants)} mutants, {len(mutants) - len(alive)} killed, {took:.0f} s", flush=True)
    return alive


def _said(key: tuple[str, str, str]) -> str:
    file, function, diff = key
    return f"{file} {function}\n" + "\n".join([f"    {line}" for line in diff.splitlines()])


if __name__ == "__main__":
    sys.exit(main())
