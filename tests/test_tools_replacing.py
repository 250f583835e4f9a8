"""How a file is replaced: what of the old one is kept, what is refused, and what is left in a folder afterwards."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tool_calls import fails, works
from tools_victims import content, is_whole, victim

from trio_agent import Tool
from trio_agent.tools import Workspace, coding_tools
from trio_agent.tools._workspace import PathError, Place
from trio_agent.tools._writing import Replacement, _is_orphan, remove_litter

pytestmark = pytest.mark.real_time


@pytest.fixture
def tools(tmp_path: Path) -> tuple[Tool, ...]:
    return coding_tools(tmp_path)


async def test_a_file_too_large_to_hold_is_not_replaced(tmp_path: Path, tools: tuple[Tool, ...]) -> None:
    """A file of more than 16 MB is neither edited nor written over, and the error says how much is too much."""
    (tmp_path / "a").touch()
    os.truncate(tmp_path / "a", 16 * 1024 * 1024 + 1)
    for name, more in (
        ("write_file", {"content": "x"}),
        ("edit_file", {"edits": [{"old_text": "a", "new_text": "b"}]}),
    ):
        assert "more than 16777216 bytes" in await fails(tools, name, path="a", **more)
    assert (tmp_path / "a").stat().st_size == 16 * 1024 * 1024 + 1


class Attributes:
    """Extended attributes of a file system that has them, in place of the system's calls for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of: dict[int, dict[str, bytes]] = {}
        for name in ("listxattr", "getxattr", "setxattr"):
            monkeypatch.setattr(os, name, getattr(self, name), raising=False)

    def listxattr(self, file: int) -> list[str]:
        return [*self.of.get(os.fstat(file).st_ino, {})]

    def getxattr(self, file: int, name: str) -> bytes:
        return self.of[os.fstat(file).st_ino][name]

    def setxattr(self, file: int, name: str, value: bytes) -> None:
        if name == "security.capability":
            raise PermissionError(1, "Operation not permitted")
        self.of.setdefault(os.fstat(file).st_ino, {})[name] = value


async def test_extended_attributes_are_kept(
    tmp_path: Path, tools: tuple[Tool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new file has the old one's attributes, but for those that the system refuses to give."""
    attributes = Attributes(monkeypatch)
    (tmp_path / "a").write_text("old")
    old = {"user.first": b"1", "security.capability": b"2", "user.last": b"3"}
    attributes.of[(tmp_path / "a").stat().st_ino] = old
    await works(tools, "write_file", path="a", content="new")
    assert (tmp_path / "a").read_text() == "new"
    assert attributes.of[(tmp_path / "a").stat().st_ino] == {"user.first": b"1", "user.last": b"3"}


async def test_a_system_without_extended_attributes_replaces_files_too(
    tmp_path: Path, tools: tuple[Tool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Python offers none, a file is replaced without them, its mode kept."""
    monkeypatch.delattr(os, "listxattr", raising=False)
    (tmp_path / "a").write_text("old")
    (tmp_path / "a").chmod(0o640)
    await works(tools, "write_file", path="a", content="new")
    assert (tmp_path / "a").read_text() == "new"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


class Foreign(Place):
    """A place whose file is another user's."""

    def status(self) -> os.stat_result:
        own = super().status()
        assert own is not None
        return os.stat_result([*own[:4], own.st_uid + 1, *own[5:]])


def test_a_file_of_another_user_is_left_to_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the new file cannot be given to the old one's owner, nothing is replaced and nothing left behind."""

    def refusing(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", refusing)
    (tmp_path / "a").write_text("theirs")
    space = Workspace(tmp_path)
    with space.place("a") as place, pytest.raises(PathError, match="belongs to another user"):
        Replacement(Foreign(*place), b"mine")
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "theirs"


def test_a_replacement_is_given_up_once(tmp_path: Path) -> None:
    """Closing it again closes no descriptor that is somebody else's by then."""
    space = Workspace(tmp_path)
    with space.place("a") as place, Replacement(place, b"new") as replacement:
        replacement.close()
        others = [os.open(tmp_path, os.O_RDONLY) for _ in range(2)]
    for other in others:
        os.fstat(other)
        os.close(other)
    assert os.listdir(tmp_path) == []


def test_litter_that_somebody_else_took_away_is_no_orphan(tmp_path: Path) -> None:
    """Two that start at once look for the same litter: the slower one finds it gone."""
    space = Workspace(tmp_path)
    assert not _is_orphan(space.descriptor, ".trio-agent-0123456789abcdef.tmp")
    assert remove_litter(space) == 0


def test_a_victim_that_nobody_kills_writes_whole_files(tmp_path: Path, capfdbinary: Any) -> None:
    """What the loop of kills takes for whole is what its victim writes; it says so once, after the first file."""
    (tmp_path / "sub").mkdir()
    victim(tmp_path, [1, 2, 3])
    written = (tmp_path / "sub/file.txt").read_bytes()
    assert written == content(3)
    assert is_whole(written)
    assert not is_whole(written[:-1])
    assert capfdbinary.readouterr().out == b"."
