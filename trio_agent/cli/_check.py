"""`trio-agent check FILE…`: hold traces to the rules.

Here lives the command. What is lawful is data in `trio_agent.testing`, how a file is read in its `_dialects.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

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
    lines: tuple[int, ...]
    violations: tuple[Violation, ...]

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
            reports.append(_read(file, options.dialect))
        except (OSError, ValueError) as error:
            complain("error", f"{file}: {error}")
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
    parser.add_argument("--json", action="store_true", help="one JSON object per violation, and nothing else")
    return parser


def _read(file: str, dialect: str) -> _Report:
    lines: list[int] = []
    events: list[Event] = []
    text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    for number, event in DIALECTS[dialect](text.split("\n")):
        lines.append(number)
        events.append(event)
    # Scenarios of another kernel begin with agents of their own; a file of ours is one conversation.
    found = check_trace(events, one_history=dialect == "native")
    return _Report(file, tuple(lines), tuple(found))


def _print(reports: Sequence[_Report], *, as_json: bool) -> None:
    for report in reports:
        for violation in report.violations:
            sys.stdout.write((_as_json if as_json else _as_line)(report, violation) + "\n")
    if not as_json and reports:
        events = sum(len(report.lines) for report in reports)
        count = sum(len(report.violations) for report in reports)
        broken = sorted({violation.rule for report in reports for violation in report.violations})
        rules = f" ({', '.join(broken)})" if broken else ""
        sys.stdout.write(f"{len(reports)} files, {events} events, {count} violations{rules}\n")


def _as_line(report: _Report, violation: Violation) -> str:
    return one_line(f"{report.file}:{report.line_of(violation)}: {violation}")


def _as_json(report: _Report, violation: Violation) -> str:
    return json.dumps(
        {"file": report.file, "line": report.line_of(violation), **attrs.asdict(violation)}, ensure_ascii=True
    )
