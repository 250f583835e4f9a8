"""`python -m tests.wire_table`: what the wires have been held against, API by API, counted by doing it again.

Every recorded body is read through its provider, whole and cut; random histories are written by it and judged by the
official types; the cases of topics 4 to 8 are run; and with `--counterparts` so are the services of `counterparts.py`.
Here lives the counting alone: what is right is said by the tests that this borrows its checks from.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import attrs
import hypothesis
import trio
import trio.testing
from pydantic import ValidationError

from tests import test_anthropic, test_gemini, test_http_errors, test_openai_chat, test_openai_responses
from tests.anthropic_types import validate_messages_request
from tests.counterparts import ROOT
from tests.counterparts_runs import APIS, faults_survived, loops_run
from tests.google_types import validate_generate_request
from tests.openai_types import validate_chat_request, validate_responses_request
from tests.wire_cases import REPORT, SHARED
from tests.wire_files import Recorded, a_request, cut, played, recorded, single_bytes
from tests.wire_histories import requests
from tests.wire_reading import cut_once_everywhere
from trio_agent import ProviderError

CASES: Final = Path(__file__).parent / "cases"
_MOST_CUTS: Final = 12


@attrs.frozen
class Wire:
    """One API: its provider, the tests of its reading, and the judge of its requests."""

    name: str
    folder: str
    tests: ModuleType
    validate: Callable[[dict[str, Any]], None]

    @property
    def provider(self) -> Any:
        return APIS[self.name]


WIRES: Final = [
    Wire("OpenAIChat", "openai_chat", test_openai_chat, validate_chat_request),
    Wire("OpenAIResponses", "openai_responses", test_openai_responses, validate_responses_request),
    Wire("Anthropic", "anthropic_messages", test_anthropic, validate_messages_request),
    Wire("Gemini", "gemini", test_gemini, validate_generate_request),
]


@attrs.define
class Score:
    """How many of how many were right, and what was wrong with the first few others."""

    right: int = 0
    total: int = 0
    wrong: list[str] = attrs.field(factory=list)

    @property
    def perfect(self) -> bool:
        return self.right == self.total > 0

    def add(self, name: str, failure: BaseException | str | None) -> None:
        self.total += 1
        if failure is None:
            self.right += 1
        elif len(self.wrong) < 5:
            text = str(failure) or repr(failure)
            self.wrong.append(f"{name}: {text.splitlines()[0]}")

    def __str__(self) -> str:
        return f"{self.right}/{self.total}"


@attrs.frozen
class Reading:
    """The recorded bodies of an API: read whole, all at once cut at every byte, cut at one byte, cut at random."""

    whole: Score = attrs.field(factory=Score)
    bytewise: Score = attrs.field(factory=Score)
    single_cuts: Score = attrs.field(factory=Score)
    random_cuts: Score = attrs.field(factory=Score)
    errors: Score = attrs.field(factory=Score)


async def failure_of(check: Callable[[], Awaitable[None]]) -> Exception | None:
    """What a check has to complain of. Any exception is one: that a body crashes its reader is what is looked for."""
    try:
        await check()
    except Exception as error:
        return error
    return None


async def read_file(wire: Wire, file: Recorded, cuttings: int, found: Reading) -> None:
    """Read one body in all ways, and count how it went."""
    headers = {"content-type": file.meta["headers"]["content-type"]}

    async def read(pieces: Iterable[bytes]) -> None:
        wire.tests.check(file, await played(wire.provider, pieces, headers=headers))

    found.whole.add(file.name, await failure_of(lambda: read([file.body])))
    found.bytewise.add(file.name, await failure_of(lambda: read(single_bytes(file.body))))
    chance = random.Random(file.name)
    for _ in range(cuttings):
        places = sorted(chance.sample(range(1, len(file.body)), chance.randint(1, _MOST_CUTS)))
        failure = await failure_of(lambda places=places: read(cut(file.body, places)))  # type: ignore[misc]
        found.random_cuts.add(f"{file.name} cut at {places}", failure)
    if file.meta["stream"]:
        cut_everywhere(file, found.single_cuts)


def cut_everywhere(file: Recorded, score: Score) -> None:
    try:
        count = cut_once_everywhere(file)
    except AssertionError as error:
        score.add(file.name, error)
    else:
        score.right += count
        score.total += count


async def read_error(wire: Wire, file: Recorded, score: Score) -> None:
    """Read the body of an HTTP error through the provider."""

    async def read() -> None:
        meta = file.meta
        answer = await played(wire.provider, [file.body], status=meta["status"], headers=meta["headers"])
        assert test_http_errors.seen(answer.failed()) == test_http_errors.WANTED[file.name]

    score.add(file.name, await failure_of(read))


def reading_of(wire: Wire, cuttings: int, files: list[Recorded] | None = None) -> Reading:
    """All recorded bodies of an API, and the errors of which the sidecar says that this provider would meet them."""
    found = Reading()

    async def main() -> None:
        for file in files if files is not None else recorded(wire.folder):
            await read_file(wire, file, cuttings, found)
        for file in recorded("errors"):
            if file.meta["api"] == wire.folder:
                await read_error(wire, file, found.errors)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return found


def written_by(wire: Wire, examples: int, validate: Callable[[dict[str, Any]], None] | None = None) -> Score:
    """Random histories, from whatever provider, as requests of this API: how many its official types accept."""
    score = Score()
    provider = wire.provider(api_key="not-a-key")
    judge = validate or wire.validate

    @hypothesis.settings(max_examples=examples, database=None, deadline=None, derandomize=True)
    @hypothesis.given(fields=requests())
    def write(fields: dict[str, Any]) -> None:
        try:
            _, body, _ = provider._write(a_request(**fields))
            judge(json.loads(body))
        except (ValidationError, AssertionError, KeyError, UnicodeError, ProviderError) as error:
            score.add(repr(fields["messages"])[:200], error)
        else:
            score.add("", None)

    write()
    return score


# --- cases -----------------------------------------------------------------------------------------------------------


@attrs.define
class Cases:
    """The cases of some API: how many have a number, and the tests that they became."""

    numbers: int = 0
    tests: Score = attrs.field(factory=Score)

    def __str__(self) -> str:
        return f"{self.numbers} ({self.tests} tests)"


def cases_by_api(cases: Path) -> dict[str, Cases]:
    """Run the cases of topics 4 to 8 in this folder, in a process of their own, which `wire_cases.py` watches."""
    files = [str(path) for topic in range(4, 9) for path in sorted(cases.glob(f"test_topic{topic:02}_*.py"))]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "cases.json"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.wire_cases", "-p", "no:cacheprovider", *files]
        run = subprocess.run(
            command, cwd=ROOT, env={**os.environ, REPORT: str(report)}, capture_output=True, text=True, check=False
        )
        if not report.exists():
            raise RuntimeError(
                f"the cases did not run (status {run.returncode}):\n{run.stdout[-4000:]}{run.stderr[-4000:]}"
            )
        outcomes = json.loads(report.read_text())
    found: dict[str, Cases] = {}
    for api in {api for outcome in outcomes for api in outcome["apis"]}:
        own = [outcome for outcome in outcomes if api in outcome["apis"]]
        found[api] = Cases(len({number for outcome in own for number in outcome["numbers"]}))
        for outcome in own:
            found[api].tests.add(outcome["test"], None if outcome["outcome"] == "passed" else outcome["outcome"])
    return {name: found.get(name, Cases()) for name in HEADINGS[1:]}


def score_of(outcomes: Iterable[tuple[str, str | None]]) -> Score:
    """Names, each with what was wrong."""
    score = Score()
    for name, failure in outcomes:
        score.add(name, failure)
    return score


# --- the table -------------------------------------------------------------------------------------------------------

HEADINGS: Final = ["", *[wire.name for wire in WIRES], SHARED]


@attrs.define
class Table:
    """Rows of cells, one for each API and one for what belongs to all of them; and what was wrong."""

    rows: list[list[str]] = attrs.field(factory=list)
    wrong: list[str] = attrs.field(factory=list)

    def add(self, label: str, cells: dict[str, Any]) -> None:
        self.rows.append([label, *[str(cells.get(name, "")) for name in HEADINGS[1:]]])
        for name, cell in cells.items():
            score = cell.tests if isinstance(cell, Cases) else cell
            if isinstance(score, Score) and not score.perfect:
                self.wrong += [f"{label}, {name}: {text}" for text in score.wrong or ["nothing was tried"]]

    def __str__(self) -> str:
        rows = [HEADINGS, *self.rows]
        widths = [max([len(row[at]) for row in rows]) for at in range(len(HEADINGS))]
        lines = [
            "| " + " | ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=True)]) + " |"
            for row in rows
        ]
        return "\n".join(
            [lines[0], "|" + "|".join(["-" * (width + 2) for width in widths]) + "|", *lines[1:], *self.wrong]
        )


def wires_table(wires: Iterable[Wire], cuttings: int, examples: int) -> Table:
    """What needs no other process and no service: reading and writing."""
    table = Table()
    readings = {wire: reading_of(wire, cuttings) for wire in wires}
    for label, field in (
        ("bodies read right, whole", "whole"),
        ("bodies read right, byte by byte", "bytewise"),
        ("one cut, at each byte of each stream", "single_cuts"),
        ("random cuttings", "random_cuts"),
        ("error bodies read right", "errors"),
    ):
        table.add(label, {wire.name: getattr(reading, field) for wire, reading in readings.items()})
    table.add("requests valid by the official types", {wire.name: written_by(wire, examples) for wire in readings})
    return table


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.wire_table", description="Count what the wires can do.")
    parser.add_argument("--counterparts", action="store_true", help="run llmock and aimock too; installs them")
    parser.add_argument("--cuttings", type=int, default=25, metavar="N", help="random cuttings of each body (25)")
    parser.add_argument("--examples", type=int, default=400, metavar="N", help="random requests of each API (400)")
    parser.add_argument("--api", choices=[*APIS], action="append", help="this one alone; may be repeated")
    parser.add_argument("--cases", type=Path, default=CASES, metavar="FOLDER", help="where the cases are")
    options = parser.parse_args(arguments)
    wires = [wire for wire in WIRES if wire.name in (options.api or APIS)]
    names = [wire.name for wire in wires]
    table = wires_table(wires, options.cuttings, options.examples)
    cases = cases_by_api(options.cases)
    table.add("cases of topics 4 to 8", {name: cases[name] for name in (*names, SHARED)})
    faults = faults_survived(names) if options.counterparts else {}
    loops = loops_run(names) if options.counterparts else {}
    not_run = dict.fromkeys(names, "not run")
    table.add("llmock: faults survived", {name: score_of(went) for name, (went, _) in faults.items()} or not_run)
    table.add("llmock: verdict", {name: verdict for name, (_, verdict) in faults.items()} or not_run)
    table.add("aimock: loop of parallel calls", loops or not_run)
    table.wrong += [f"llmock, {name}: {verdict}" for name, (_, verdict) in faults.items() if verdict != "clean"]
    table.wrong += [
        f"aimock, {name}: {went}" for name, went in loops.items() if not went.startswith("completed: 5 calls")
    ]
    print(table)
    return 1 if table.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
