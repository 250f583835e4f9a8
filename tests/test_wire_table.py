"""The table of the wires counts what it says, and its fast part is without a blemish."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.wire_cases import apis_of
from tests.wire_files import recorded
from tests.wire_table import (
    WIRES,
    Cases,
    Score,
    Table,
    Wire,
    cases_by_api,
    main,
    reading_of,
    score_of,
    written_by,
)
from trio_agent.providers import Anthropic, Gemini


def by_name(wire: Wire) -> str:
    return wire.name


@pytest.mark.parametrize("wire", WIRES, ids=by_name)
def test_every_recorded_body_is_read_right(wire: Wire) -> None:
    """Whole, byte by byte and at random, and the errors too: as many are right as there are."""
    reading = reading_of(wire, cuttings=1)
    bodies, errors = recorded(wire.folder), [file for file in recorded("errors") if file.meta["api"] == wire.folder]
    assert (reading.whole.right, reading.whole.total) == (len(bodies), len(bodies))
    assert (reading.bytewise.right, reading.bytewise.total) == (len(bodies), len(bodies))
    assert (reading.random_cuts.right, reading.random_cuts.total) == (len(bodies), len(bodies))
    assert (reading.errors.right, reading.errors.total) == (len(errors), len(errors))
    assert reading.single_cuts.right == reading.single_cuts.total > 10_000


def test_every_file_is_in_the_table() -> None:
    """The four APIs and their errors are all that was recorded: 84 bodies."""
    errors = recorded("errors")
    bodies = [file for wire in WIRES for file in recorded(wire.folder)]
    assert len(bodies) + len(errors) == 84
    assert {file.meta["api"] for file in errors} <= {wire.folder for wire in WIRES}


@pytest.mark.parametrize("wire", WIRES, ids=by_name)
def test_random_requests_are_accepted(wire: Wire) -> None:
    """As many are accepted by the official types as were written."""
    score = written_by(wire, 25)
    assert score.perfect, score.wrong
    assert score.total >= 20


def test_what_is_wrong_is_counted_as_wrong() -> None:
    """A body of which its sidecar says something else, and a request that is refused: less than all, with a reason."""
    wire = WIRES[0]
    file, other = recorded(wire.folder)[:2]
    meta = copy.deepcopy(file.meta)
    meta["expected"]["text"] += "!"
    reading = reading_of(wire, 2, [attrs.evolve(file, meta=meta), other])
    assert (str(reading.whole), str(reading.bytewise), str(reading.random_cuts)) == ("1/2", "1/2", "2/4")
    assert reading.whole.wrong[0].startswith(file.name)

    def refuse(body: dict[str, Any]) -> None:
        assert not body["messages"], "refused"

    score = written_by(wire, 3, refuse)
    assert (score.right, score.perfect) == (0, False)
    assert "refused" in score.wrong[0]


def test_of_many_faults_the_first_few_are_shown() -> None:
    """All of them are counted."""
    score = score_of([("fine", None), *[(f"case {number}", f"no\nand why {number}") for number in range(9)]])
    assert (str(score), score.wrong) == ("1/10", [f"case {number}: no" for number in range(5)])


def test_a_stream_whose_events_cannot_be_told_apart_is_counted_as_wrong() -> None:
    """Single cuts are made between blank lines, which a body of bare carriage returns has none of."""
    (file, *_) = [file for file in recorded("gemini") if file.meta["stream"]]
    odd = attrs.evolve(file, body=file.body.replace(b"\r\n", b"\n").replace(b"\n", b"\r"))
    reading = reading_of(WIRES[-1], 0, [odd])
    assert (str(reading.whole), str(reading.bytewise), str(reading.single_cuts)) == ("1/1", "1/1", "0/1")


def test_the_table_shows_what_it_was_given() -> None:
    """A column for each API, dashes under the headings, and below what was wrong; nothing tried is wrong too."""
    table = Table()
    table.add("read", {"OpenAIChat": Score(2, 3, ["x.sse: no"]), "Gemini": Score(3, 3)})
    table.add("cases", {"Anthropic": Cases(2, Score(4, 4)), "shared": Cases()})
    assert table.wrong == ["read, OpenAIChat: x.sse: no", "cases, shared: nothing was tried"]
    lines = str(table).splitlines()
    assert lines[2].split() == ["|", "read", "|", "2/3", "|", "|", "|", "3/3", "|", "|"]
    assert lines[3].split("|")[4].strip() == "2 (4/4 tests)"
    assert lines[4:] == table.wrong
    assert len({len(line) for line in lines[:4]}) == 1


def test_a_case_counts_for_the_apis_that_it_names() -> None:
    """By itself, through what it calls, or as its parameter; a case that names none belongs to all of them."""

    def through_another() -> object:
        return _speaks_to_gemini()

    assert through_another() is Gemini
    assert apis_of(_speaks_to_gemini) == {"Gemini"}
    assert apis_of(through_another) == {"Gemini"}
    assert apis_of(by_name, Anthropic) == {"Anthropic"}
    assert apis_of(by_name) == set()


def _speaks_to_gemini() -> object:
    return Gemini


CASES = """
import pytest
from trio_agent.providers import Anthropic, Gemini, OpenAIChat
from trio_agent.testing import check_trace

NOTHING = []

def spoken():
    assert Gemini is not Anthropic

def test_b001_read():
    spoken()
    spoken()

@pytest.mark.parametrize("provider", [Gemini, OpenAIChat])
def test_written(provider):
    '''B002: and B003.'''
    assert provider.__name__ == "Gemini", "another"

@pytest.mark.skip
def test_b004_nothing():
    assert spoken()

def test_b005_trace():
    assert check_trace(NOTHING) == NOTHING
"""


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """A folder of cases: of Gemini a read, a written and a skipped one, and one that belongs to no API."""
    folder = tmp_path / "tests" / "cases"
    folder.mkdir(parents=True)
    (folder / "test_topic04_gemini.py").write_text(CASES)
    (folder / "test_topic09_other.py").write_text("raise SystemExit('not one of the topics')")
    return folder


@pytest.mark.real_time
def test_the_whole_table_is_made_by_one_command(cases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was read, written, and tried in another process; the status says that something was wrong."""
    assert main(["--api", "Gemini", "--cases", str(cases), "--cuttings", "1", "--examples", "3"]) == 1
    lines = capsys.readouterr().out.splitlines()
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    rows = {label: cells for label, *cells in table}
    assert rows["bodies read right, whole"][3].split("/")[0] == str(len(recorded("gemini")))
    assert rows["cases of topics 4 to 8"] == ["", "", "", "4 (2/3 tests)", "1 (1/1 tests)"]
    assert rows["llmock: verdict"] == ["", "", "", "not run", ""]
    (wrong,) = [line for line in lines if not line.startswith("|")]
    assert wrong.endswith("::test_b004_nothing: skipped")


@pytest.mark.real_time
def test_cases_that_do_not_run_are_an_error(cases: Path) -> None:
    """With what their process said."""
    (cases / "conftest.py").write_text("raise RuntimeError('no cases today')")
    with pytest.raises(RuntimeError, match=r"(?s)the cases did not run \(status \d\):.*no cases today"):
        cases_by_api(cases)
