"""Mutants on trial: each in a forked child of its own, where tests run until one fails.

Most mutants change one function that nothing has run yet when the tests are collected: their children come from a
process that has imported and collected everything, and only get that function's new code. All others (tables,
defaults, what runs at import) import the whole package, with the mutated source in place of the real one.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import hypothesis
import pytest

from tests.mutation._mutants import Mutant
from tests.mutation._sources import Overlay, code_of, function_at

PRELOADED = ("attrs", "docstring_parser", "httpx", "httpx_sse", "hypothesis.stateful", "jsonschema_rs", "trio.testing")
EXAMPLES = 15  # of a property
MEMORY = 3 << 30  # bytes of address space: a mutant may grow without end
_ALIVE, _KILLED = 0, 1  # what a child ends with
_NO_MUTANT = -1  # the original code, treated as if it were one
_OPTIONS = ("-x", "-q", "-s", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")


class NoVerdictError(Exception):
    """The tests fail without a mutant, so that they cannot tell one."""


@dataclass
class Trial:
    """The mutants of one module, and the tests that should kill them."""

    module: str
    path: Path
    mutants: Sequence[Mutant]
    tests: Sequence[str]
    jobs: int
    durations: dict[str, float] = field(default_factory=dict)  # seconds of each test without a mutant

    def verdicts(self) -> Iterator[tuple[Mutant, bool]]:
        """Each mutant, and whether it was killed. Raises `NoVerdictError`."""
        for name in PRELOADED:
            importlib.import_module(name)
        assert "trio_agent" not in sys.modules
        self.durations = self._measure()
        waiting = set(range(len(self.mutants)))
        for number, killed in self._try_by_patching():
            waiting.remove(number)
            yield self.mutants[number], killed
        for number, killed in in_children(sorted(waiting), self._import_anew, self.jobs):
            yield self.mutants[number], killed

    @property
    def limit(self) -> float:
        """Seconds after which a mutant is taken for one that never ends."""
        return 10 + 5 * sum(self.durations.values())

    def _measure(self) -> dict[str, float]:
        """The duration of each test on the source as it is."""

        def run(tell: Callable[[object], None]) -> int:
            quick = _Quick({})
            status = _run_tests(self.tests, self._original(), quick)
            tell(quick.durations)
            return status

        said = list(_told(run))
        if not said or not said[0]:
            raise NoVerdictError(f"no test could be run: pytest {' '.join(self.tests)}")
        durations: dict[str, float] = said[0]
        return durations

    def _original(self) -> Overlay:
        return Overlay(self.module, self.path, self.path.read_text(encoding="utf-8"))

    def _try_by_patching(self) -> Iterator[tuple[int, bool]]:
        def run(tell: Callable[[object], None]) -> int:
            be_silent()
            return int(pytest.main([*_OPTIONS, *self.tests], plugins=[_Collected(self, tell)]) != pytest.ExitCode.OK)

        yield from _told(run)

    def _import_anew(self, number: int) -> int:
        confine(self.limit)
        overlay = Overlay(self.module, self.path, self.mutants[number].source)
        return _run_tests(self.tests, overlay, _Quick(self.durations))


class _Quick:
    """Quick tests first; few examples, the same in each run, and none made smaller: only whether one fails is asked."""

    def __init__(self, durations: dict[str, float]) -> None:
        self.durations = durations

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:  # behind the conftest, which loads a profile of its own
        hypothesis.settings.register_profile(
            "mutation",
            hypothesis.settings.get_profile("here"),
            max_examples=EXAMPLES,
            derandomize=True,
            phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
            report_multiple_bugs=False,
        )
        hypothesis.settings.load_profile("mutation")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            test = getattr(item, "obj", None)
            own = getattr(test, "_hypothesis_internal_use_settings", None)  # of a test that asks for more examples
            if own is not None and own.max_examples > EXAMPLES:
                test._hypothesis_internal_use_settings = hypothesis.settings(own, max_examples=EXAMPLES)
        items.sort(key=lambda item: self.durations.get(item.nodeid, 0.0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.durations[report.nodeid] = self.durations.get(report.nodeid, 0.0) + report.duration


class _Collected(_Quick):
    """In the process that has collected the tests. It runs none; its children do, each with one function changed."""

    def __init__(self, trial: Trial, tell: Callable[[object], None]) -> None:
        super().__init__(dict(trial.durations))
        self._trial = trial
        self._tell = tell
        self._in_child = False
        self._ran: set[str] = set()  # qualified names of the module's functions that ran before the tests
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _arg: object) -> None:
        if event == "call" and frame.f_code.co_filename == str(self._trial.path):
            self._ran.add(frame.f_code.co_qualname.partition(".<locals>")[0])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if self._in_child:
            return None  # let pytest run the tests
        sys.setprofile(None)
        module = sys.modules[self._trial.module]

        original = self._trial.path.read_text(encoding="utf-8")
        numbers = [
            number
            for number, mutant in enumerate(self._trial.mutants)
            if mutant.target not in self._ran and function_at(module, mutant.target) is not None
        ]

        def put_in_place(source: str, target: str | None) -> None:
            function = function_at(module, target)
            assert function is not None
            function.__code__ = code_of(source, self._trial.path, target)

        def patched(number: int) -> int:
            confine(self._trial.limit)
            self._in_child = True
            if number == _NO_MUTANT:
                for target in {self._trial.mutants[number].target for number in numbers}:
                    put_in_place(original, target)
            else:
                put_in_place(self._trial.mutants[number].source, self._trial.mutants[number].target)
            try:
                session.config.hook.pytest_runtestloop(session=session)
            except (session.Failed, session.Interrupted):
                return _KILLED
            return _KILLED if session.testsfailed else _ALIVE

        if any(killed for _, killed in in_children([_NO_MUTANT], patched, 1)):
            raise NoVerdictError("the tests do not pass with the same code put in place")
        for verdict in in_children(numbers, patched, self._trial.jobs):
            self._tell(verdict)
        return True


def in_children(numbers: Sequence[int], run: Callable[[int], int], jobs: int) -> Iterator[tuple[int, bool]]:
    """Run a function in a child for each number. Gives the number, and whether the child ended as killed."""
    running: dict[int, int] = {}
    waiting = iter(numbers)
    while True:
        while len(running) < jobs and (number := next(waiting, None)) is not None:
            running[_fork(run, number)] = number
        if not running:
            return
        pid, status = os.wait()
        yield running.pop(pid), os.waitstatus_to_exitcode(status) != _ALIVE


def confine(seconds: float) -> None:
    """Bound the time and the memory of this process, and silence it."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    be_silent()


def be_silent() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)


def _run_tests(tests: Sequence[str], overlay: Overlay, quick: _Quick) -> int:
    sys.meta_path.insert(0, overlay)
    importlib.import_module(overlay.name)  # what cannot be imported is found out before pytest starts
    return int(pytest.main([*_OPTIONS, *tests], plugins=[quick]) != pytest.ExitCode.OK)


def _fork(run: Callable[..., int], *args: object) -> int:
    pid = os.fork()
    if pid == 0:
        status = _KILLED
        try:
            status = run(*args)
        finally:
            os._exit(status)
    return pid


def _told(run: Callable[[Callable[[object], None]], int]) -> Iterator[Any]:
    """What a child tells, as it comes. Raises `NoVerdictError` if it does not end well."""
    reader, writer = os.pipe()
    pid = _fork(run, lambda said: os.write(writer, json.dumps(said).encode() + b"\n"))
    os.close(writer)
    with open(reader, encoding="utf-8") as pipe:
        for line in pipe:
            yield json.loads(line)
    if os.waitpid(pid, 0)[1] != 0:
        raise NoVerdictError("the tests do not pass without a mutant")
