"""The data of `python -m tests.mutation`, held against the modules that it is about. The mutants are tried there."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PACKAGE = HERE.parent / "trio_agent"


def data(name: str) -> dict[str, Any]:
    return tomllib.loads((HERE / "mutation" / name).read_text(encoding="utf-8"))


def test_every_survivor_is_a_change_of_lines_that_are_there_and_has_a_reason() -> None:
    """A listed survivor names lines of its module, what else they become, and why that is the same."""
    for entry in data("survivors.toml")["survivor"]:
        source = [line.strip() for line in (PACKAGE / entry["file"]).read_text(encoding="utf-8").splitlines()]
        was = entry["was"].splitlines()
        assert any(source[at : at + len(was)] == was for at in range(len(source))), entry
        assert entry["becomes"]
        assert all(becomes != entry["was"] for becomes in entry["becomes"])
        assert entry["reason"].strip()


def test_every_subject_has_its_tests() -> None:
    """Each module that is mutated, and each file of tests that should kill its mutants, is there."""
    for module, arguments in data("subjects.toml").items():
        assert (PACKAGE / module).is_file()
        files = [argument for argument in arguments if not argument.startswith("--")]
        assert files
        assert all((HERE.parent / file).is_file() for file in files)
