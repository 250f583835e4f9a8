"""`trio-agent check FILE…`: hold traces to the rules.

Here lives the command. What is lawful is data in `trio_agent.testing`, how a file is read in its `_dialects.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence

import attrs

from .._events import Event
from ..testing._dialects import DIALECTS
from ..testing._judge import check_trace
from ..testing._judge_walk import Violation
from ._usage import complain, one_line


@attrs.frozen
class _Report:
    """What was found in one file. `lines` has the number of the line of each event."""

    file: str
    lines: Sequence[int]
    violations: Sequence[Violation]

    def line_of(self, violation: Violation) -> int:
        """Where to look; behind the last event, its line."""
        return self.lines[min(violation.index, len(self.lines) - 1)] if self.lines else 0


def check(argv: Sequence[str]) -> int:
    """Print one line per violation and a summary. Gives 0; 1 if a rule is broken; 2 if a file cannot be read."""
    options = _parser().parse_args(argv)
    unreadable = False
    reports: list[_Report] = []
    for file in options.files:
        try:
            reports.append(_judge(file, options))
        except (OSError, ValueError) as error:
            complain("error", f"{file}: {getattr(error, 'strerror', None) or error}")
            unreadable = True
    _print(reports, as_json=options.json)
    if unreadable:
        return 2
    return 1 if any(report.violations for report in reports) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trio-agent check",
        description="Hold traces to the rules of the lifecycle. Exit codes: 0 lawful, 1 not, 2 a file cannot be read.",
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help="a trace of JSON lines; - reads stdin")
    parser.add_argument("--dialect", choices=sorted(DIALECTS), default="native", help="whose events these are")
    parser.add_argument("--complete", action="store_true", help="a run that is left open at the end is a fault too")
    parser.add_argument(
        "--separate-runs",
        action="store_true",
        help="each run has a history of its own, so call ids may come again (always so in the dialect pi)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per violation, and nothing else")
    return parser


def _judge(file: str, options: argparse.Namespace) -> _Report:
    if file == "-":
        return _judge_lines(file, sys.stdin, options)
    # A byte order mark is no fault. Lines end at a newline and nowhere else, as JSON may hold other ends of lines.
    with open(file, encoding="utf-8-sig", newline="\n") as lines:
        return _judge_lines(file, lines, options)


def _judge_lines(file: str, lines: Iterable[str], options: argparse.Namespace) -> _Report:
    numbers = array("Q")

    def events() -> Iterator[Event]:
        for number, event in DIALECTS[options.dialect](lines):
            numbers.append(number)
            yield event

    # Recorded scenarios of another kernel begin with agents of their own; a file of ours is one conversation.
    one_history = options.dialect == "native" and not options.separate_runs
    return _Report(file, numbers, check_trace(events(), complete=options.complete, one_history=one_history))


def _print(reports: Sequence[_Report], *, as_json: bool) -> None:
    for report in reports:
        for violation in report.violations:
            sys.stdout.write((_as_json if as_json else _as_line)(report, violation) + "\n")
    if not as_json and reports:
        events = sum(len(report.lines) for report in reports)
        violations = sum(len(report.violations) for report in reports)
        broken = sorted({violation.rule for report in reports for violation in report.violations})
        rules = f" ({', '.join(broken)})" if broken else ""
        counts = (_count(len(reports), "file"), _count(events, "event"), _count(violations, "violation"))
        sys.stdout.write(f"{', '.join(counts)}{rules}\n")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _as_line(report: _Report, violation: Violation) -> str:
    return one_line(f"{report.file}:{report.line_of(violation)}: {violation}")


def _as_json(report: _Report, violation: Violation) -> str:
    return json.dumps(
        {"file": report.file, "line": report.line_of(violation), **attrs.asdict(violation)}, ensure_ascii=True
    )
