"""One trial: a copy of the package with one mistake in it, and the tests that should notice.

Here lives the copy, the process of the tests with its hard time-out, and what its end means. Which mistakes there are
is in `catalog.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Literal

import attrs

from .catalog import HERE, PACKAGE, TESTS, SeededBug

SECONDS = 45.0  # for the tests of one bug; a test that spins is a hang
WIDE_SECONDS = 600.0
WIDE = ("test_rules_*.py", "test_storm.py", "test_interleavings.py", "test_observable.py")

How = Literal["failed", "hung", "crashed", "lives", "broken"]
_SUCCESS, _FAILURE, _INTERRUPTED = 0, 1, 2  # pytest's own exit codes; the others mean that nothing was tried


@attrs.frozen
class Verdict:
    """What became of a bug. `broken` says that nothing was tried, because bug or tests are not usable as they are."""

    bug: SeededBug
    how: How
    test: str = ""  # the id of the first test that failed
    said: str = ""
    seconds: float = 0.0

    @property
    def killed(self) -> bool:
        return self.how in ("failed", "hung", "crashed")

    def __str__(self) -> str:
        by = self.test or " ".join(self.bug.tests)
        text = {
            "failed": f"killed by {by}",
            "hung": f"killed: the tests hung ({by})",
            "crashed": f"killed: the process of the tests ended early in {by}: {self.said}",
            "lives": f"LIVES through {by}",
            "broken": f"NOT TRIED: {self.said}",
        }[self.how]
        return f"{self.bug.name} [{' '.join(self.bug.rules)}] {text} ({self.seconds:.1f} s)"


def try_all(bugs: Sequence[SeededBug], *, jobs: int = 2, wide: bool = False) -> Iterator[Verdict]:
    """The verdicts, each as soon as it is known, in the order of the bugs. At most `jobs` processes at once."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda bug: _try(bug, wide), bugs)


def unpatched_failures(verdicts: Iterable[Verdict], *, jobs: int = 2) -> list[str]:
    """What the tests that killed say of the package as it is: nothing, or their verdicts prove nothing."""
    ids = sorted({test for verdict in verdicts if verdict.killed for test in _witnesses(verdict)})
    # Round-robin, since slow tests lie side by side.
    shares = [share for at in range(jobs) if (share := ids[at::jobs])]
    with ThreadPoolExecutor(jobs) as pool:
        ends = list(pool.map(_run_unpatched, shares))
    return [said for said in ends if said]


def _witnesses(verdict: Verdict) -> tuple[str, ...]:
    return (verdict.test,) if verdict.test else tuple(_target(test) for test in verdict.bug.tests)


def _run_unpatched(ids: Sequence[str]) -> str:
    with _copy() as copy:
        end = _run_tests(copy, ids, WIDE_SECONDS)
    return "" if end.how == "lives" else f"{end.how}: {end.test} {end.said}"


def _try(bug: SeededBug, wide: bool) -> Verdict:
    began = monotonic()
    with _copy() as copy:
        file = copy / "trio_agent" / bug.file
        try:
            file.write_text(bug.patched(file.read_text(encoding="utf-8")), encoding="utf-8")
        except Exception as exc:  # a patch that does not apply, or names no file, is the catalog's fault
            return Verdict(bug, "broken", said=str(exc))
        end = _run_tests(copy, [_target(test) for test in bug.tests], SECONDS)
        if wide and end.how == "lives":
            files = sorted(file.name for pattern in WIDE for file in TESTS.glob(pattern))
            end = _run_tests(copy, [_target(name) for name in files], WIDE_SECONDS)
    return Verdict(bug, end.how, end.test, end.said, monotonic() - began)


@contextlib.contextmanager
def _copy() -> Iterator[Path]:
    """A directory with the package in it, its compiled files too, for they are most of what a start costs."""
    with tempfile.TemporaryDirectory(prefix="seeded-bug-") as directory:
        copy = Path(directory).resolve()
        shutil.copytree(PACKAGE, copy / "trio_agent", copy_function=shutil.copy2)
        shutil.copy(HERE / "witness.py", copy / "seeded_bug_witness.py")
        yield copy


def _target(test: str) -> str:
    return f"{TESTS.name}/{test}"


@attrs.frozen
class _End:
    how: How
    test: str = ""
    said: str = ""


def _run_tests(copy: Path, tests: Sequence[str], seconds: float) -> _End:
    """Run pytest in a process of its own, which cannot outlive its time. `-P`: the directory is not on its path."""
    report = copy / "report.json"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-P", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "seeded_bug_witness"]
    options = ["-o", f"pythonpath={copy}", "--no-header"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(copy),
        "PYTHONDONTWRITEBYTECODE": "1",
        "SEEDED_BUG_REPORT": str(report),
    }
    environment.pop("PYTEST_ADDOPTS", None)
    with subprocess.Popen(
        [*command, *options, *tests],
        cwd=TESTS.parent,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            _kill(process)
            output, _ = process.communicate()
            return _End("hung", said=f"after {seconds:g} s")
        except BaseException:
            _kill(process)
            raise
    return _end_of(process.returncode, report, output.decode(errors="replace"))


def _kill(process: subprocess.Popen[bytes]) -> None:
    """With all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _end_of(code: int, report: Path, output: str) -> _End:
    found = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}
    last = next((line for line in reversed(output.splitlines()) if line.strip()), "")
    if not found:
        return _End("broken", said=f"the copy cannot be imported: {last}")
    if "failed" in found:
        return _End("failed", found["failed"], found["said"])
    if code == _SUCCESS:
        return _End("lives")
    # An interrupt that leaves a test is one that the package should have kept, and a signal is a crash.
    if code == _INTERRUPTED or code < 0:
        return _End("crashed", said=last)
    return _End("broken", said=f"pytest ended with {code}: {last}")
