"""The table of the wires counts what it says, and its fast part is without a blemish."""

from __future__ import annotations

import copy
from typing import Any

import attrs
import pytest

from tests.wire_cases import apis_of
from tests.wire_files import recorded
from tests.wire_table import WIRES, Cases, Score, Table, Wire, reading_of, written_by
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

    def through_another() -> None:
        _speaks_to_gemini()

    assert apis_of(_speaks_to_gemini) == {"Gemini"}
    assert apis_of(through_another) == {"Gemini"}
    assert apis_of(by_name, Anthropic) == {"Anthropic"}
    assert apis_of(by_name) == set()


def _speaks_to_gemini() -> object:
    return Gemini
