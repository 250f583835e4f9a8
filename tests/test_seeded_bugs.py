"""Who tests the tests: each seeded bug is a real change at one place, every rule has one, and the tests kill it.

All are tried under the marker `exhaustive`; `python -m tests.seeded_bugs` says which test killed which.
"""

from __future__ import annotations

import json
import runpy
import signal
import subprocess
from pathlib import Path
from typing import Any

import attrs
import pytest
from seeded_bugs import PACKAGE, TESTS, SeededBug, Verdict, load, trial, try_all, unpatched_failures
from seeded_bugs import __main__ as command
from seeded_bugs.__main__ import main
from seeded_bugs.catalog import DoesNotApplyError, compiled_form

from trio_agent.testing._rules import RULES

BUGS = load()
# Fast ones of three areas; the rest takes minutes.
SAMPLE = ("modes-the-wrong-way-round", "turn-number-may-jump", "judge-idle-is-an-ordinary-phase")

by_name = pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])


@by_name
def test_a_bug_is_a_change_of_what_the_module_does_at_exactly_one_place(bug: SeededBug) -> None:
    """The snippet occurs once, and what it becomes compiles to something else than it was."""
    source = (PACKAGE / bug.file).read_text(encoding="utf-8")
    assert compiled_form(bug.patched(source)) != compiled_form(source)


@by_name
def test_a_bug_names_tests_that_are_there(bug: SeededBug) -> None:
    """Each target is a file of tests, or a function in one."""
    assert bug.tests
    for target in bug.tests:
        file, _, function = target.partition("::")
        text = (TESTS / file).read_text(encoding="utf-8")
        assert not function or f"def {function}(" in text, target


def test_there_are_bugs_for_every_rule() -> None:
    """At least 60 in all, one for each rule of the specification at least, none for a rule that is not there."""
    assert len(BUGS) >= 60
    assert len({bug.name for bug in BUGS}) == len({(bug.file, bug.old, bug.new) for bug in BUGS}) == len(BUGS)
    assert {rule for bug in BUGS for rule in bug.rules} == {rule.name for rule in RULES}


def test_what_changes_nothing_is_told_from_what_does() -> None:
    """Comments, docstrings, assertions and blank lines are no change; a constant is one, also in a function."""
    source = 'def f() -> int:\n    """One."""\n    assert f\n    return 1\n'
    same = 'def f() -> int:\n\n    """Another."""\n    return 1  # one\n'
    assert compiled_form(source) == compiled_form(same)
    assert compiled_form(source) != compiled_form(source.replace("return 1", "return True"))


def test_a_snippet_that_is_not_there_once_is_refused() -> None:
    """A patch that would change nothing, or several places, does not apply."""
    bug = SeededBug("b", ["L1"], "f.py", "x = 1", "x = 2", "a mistake", ["test_x.py"], "lifecycle")
    assert bug.patched("x = 1\n") == "x = 2\n"
    for source in ("", "x = 1\nx = 1\n"):
        with pytest.raises(DoesNotApplyError, match="not once"):
            bug.patched(source)


@pytest.mark.real_time
def test_a_sample_of_the_bugs_is_killed(capsys: pytest.CaptureFixture[str]) -> None:
    """Three fast ones, by the command itself; the tree is as it was."""
    before = _sources()
    assert main([*SAMPLE, "--jobs", "2"]) == 0
    said = capsys.readouterr().out
    assert said.count("killed by tests/test_") == len(SAMPLE)
    assert "3 of 3 killed" in said
    assert _sources() == before


KINDER = SeededBug(
    name="kinder",
    rules=["A8"],
    file="_policies.py",
    old="turns >= self.max_turns:",
    new="turns > self.max_turns:",
    why="a mistake",
    tests=["test_clock.py"],
    area="queues",
)


@pytest.mark.real_time
def test_a_bug_that_lives_is_said_to_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no test notices lives, also where all are asked; lost tests, or a copy that does not import, are no kill."""
    monkeypatch.setattr(trial, "WIDE", ("test_clock.py",))
    broken = SeededBug("broken", ["L1"], "_queues.py", "class Queue:", "raise ValueError", "none", ["test_x.py"], "x")
    lost = SeededBug("lost", ["L1"], "_queues.py", "self.items[:1]", "self.items[:2]", "none", ["test_no.py"], "x")
    verdicts = list(try_all([KINDER, broken, lost], wide=True))
    assert [verdict.how for verdict in verdicts] == ["lives", "broken", "broken"]
    assert "cannot be imported" in verdicts[1].said
    assert not any(verdict.killed for verdict in verdicts)


@pytest.mark.real_time
def test_a_bug_that_ends_the_process_of_the_tests_is_killed() -> None:
    """A crash is a kill; a patch of a file that is not there is not tried."""
    killed = "__import__('os').kill(__import__('os').getpid(), 9):"
    deadly = attrs.evolve(KINDER, new=killed, tests=["test_rules_queues.py::test_Q5_a_stop_leaves_queues_as_they_are"])
    nowhere = attrs.evolve(KINDER, file="no_such_file.py")
    verdicts = list(try_all([deadly, nowhere]))
    assert [verdict.how for verdict in verdicts] == ["crashed", "broken"]
    assert [verdict.killed for verdict in verdicts] == [True, False]
    assert "ended early" in str(verdicts[0])
    assert "no_such_file.py" in verdicts[1].said


@pytest.mark.real_time
def test_tests_that_hang_are_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are ended, with all that they have started, when their time is over."""
    monkeypatch.setattr(trial, "SECONDS", 0.1)
    (verdict,) = try_all([KINDER])
    assert (verdict.how, verdict.killed, verdict.said) == ("hung", True, "after 0.1 s")
    assert "the tests hung (test_clock.py)" in str(verdict)


@pytest.mark.real_time
def test_ctrl_c_ends_the_tests_of_a_trial_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process goes on when the command is left."""
    started: list[subprocess.Popen[bytes]] = []

    class Left(subprocess.Popen[bytes]):
        def communicate(self, *_arguments: Any, **_options: Any) -> Any:
            started.append(self)
            raise KeyboardInterrupt

    monkeypatch.setattr(trial.subprocess, "Popen", Left)
    with trial._copy() as copy, pytest.raises(KeyboardInterrupt):
        trial._run_tests(copy, ["tests/test_clock.py"], 30)
    assert [process.returncode for process in started] == [-signal.SIGKILL]


@pytest.mark.parametrize(
    ("hows", "unproven", "code", "told"),
    [
        (["failed", "lives"], [], 1, ["1 of 2 killed in 0 s", "alive: kinder"]),
        (["broken"], [], 2, ["0 of 1 killed in 0 s", "not tried: kinder"]),
        (["failed"], ["it fails"], 2, ["fails without any bug as well: it fails", "1 of 1 killed in 0 s"]),
    ],
)
def test_the_command_sums_up(
    hows: list[Any],
    unproven: list[str],
    code: int,
    told: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What lives, what could not be tried and what fails anyway is named at the end, and is an exit code of its own."""
    monkeypatch.setattr(
        command, "try_all", lambda bugs, **_: [Verdict(KINDER, how, said="how it went") for how in hows]
    )
    monkeypatch.setattr(command, "unpatched_failures", lambda verdicts, **_: unproven)
    assert main(["-v"]) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[-len(told) :] == told
    assert lines.count("    how it went") == len(hows)


def test_the_witness_tests_the_copy_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes down that it began and the first failure with its words, and refuses a package from elsewhere."""
    report = tmp_path / "report.json"
    monkeypatch.setenv("SEEDED_BUG_REPORT", str(report))
    witness = runpy.run_path(str(TESTS / "seeded_bugs" / "witness.py"))
    begin, log, finish = (witness[f"pytest_{name}"] for name in ("configure", "runtest_logreport", "sessionfinish"))
    with pytest.raises(pytest.exit.Exception, match="not in the copy"):
        begin()
    with pytest.raises(pytest.exit.Exception, match="not from the copy"):
        finish()
    begin.__globals__["_COPY"] = PACKAGE.parent
    begin()
    assert json.loads(report.read_text()) == {"began": True}
    for name, outcome in (("good", "passed"), ("bad", "failed"), ("worse", "failed")):
        words = f"x\n E   ValueError: {name}\n{name}.py:1"
        log(pytest.TestReport(name, ("f", 1, "d"), {}, outcome, words, "call"))  # type: ignore[arg-type]
    assert json.loads(report.read_text()) == {"began": True, "failed": "bad", "said": "ValueError: bad"}
    finish()


def test_a_name_that_is_none_is_refused() -> None:
    """The command names what it does not know, and where the names are."""
    with pytest.raises(SystemExit, match="no seeded bug, rule or area called L77; see --list"):
        main(["L77"])


def test_the_list_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    """A rule, an area and a name choose; nothing is tried."""
    assert main(["--list", "A1", "judge", SAMPLE[0]]) == 0
    lines = capsys.readouterr().out.splitlines()
    chosen = [bug for bug in BUGS if "A1" in bug.rules or bug.area == "judge" or bug.name == SAMPLE[0]]
    assert lines == [f"{bug.name} [{' '.join(bug.rules)}] {bug.why}" for bug in chosen]


@pytest.mark.exhaustive
@pytest.mark.real_time
def test_every_bug_is_killed() -> None:
    """All of them, by tests that pass without them."""
    verdicts = []
    for verdict in try_all(BUGS):
        print(verdict)
        verdicts.append(verdict)
    assert not [str(verdict) for verdict in verdicts if not verdict.killed]
    assert not unpatched_failures(verdicts)


def _sources() -> list[str]:
    """What a patch of the sample would have changed, had it been applied to the tree."""
    return [(PACKAGE / bug.file).read_text(encoding="utf-8") for bug in BUGS if bug.name in SAMPLE]
