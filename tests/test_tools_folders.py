"""Folders as the tools see them: what they list, where they walk, and what is gone or changed on the way."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from tool_calls import fails, works

from trio_agent import Tool
from trio_agent.tools import Workspace, coding_tools
from trio_agent.tools import _search as search
from trio_agent.tools._walk import walk
from trio_agent.tools._workspace import PathError, Place, kind_of, open_file

pytestmark = pytest.mark.real_time


@pytest.fixture
def tools(tmp_path: Path) -> tuple[Tool, ...]:
    return coding_tools(tmp_path)


def names(space: Workspace) -> list[str]:
    return [found.path for found in walk(Place(space.descriptor, ".", "."))]


# The workspace


def test_a_workspace_says_where_it_is(tmp_path: Path) -> None:
    """Its representation is its folder, links resolved."""
    (tmp_path / "w").mkdir()
    (tmp_path / "link").symlink_to("w")
    assert repr(Workspace(tmp_path / "link")) == f"Workspace({os.path.realpath(tmp_path / 'w')!r})"


def test_a_system_that_cannot_hold_a_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where files cannot be opened relative to a folder, nothing could keep the tools inside: no workspace is made."""
    monkeypatch.setattr(os, "supports_dir_fd", frozenset())
    with pytest.raises(RuntimeError, match="opens files relative to a folder"):
        Workspace(tmp_path)


async def test_the_workspace_may_be_named_by_its_own_path(tmp_path: Path, tools: tuple[Tool, ...]) -> None:
    """Its absolute path is the workspace itself."""
    (tmp_path / "a").write_text("xyz")
    assert await works(tools, "list_dir", path=str(tmp_path)) == "a (3 bytes)"


def test_a_file_swapped_for_a_pipe_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has become no file between the look and the opening is refused, and its descriptor given back."""
    (tmp_path / "a").write_text("x")
    space = Workspace(tmp_path)
    opening = os.open
    opened: list[int] = []

    def swapped(path: Any, *rest: Any, **more: Any) -> int:
        os.unlink(tmp_path / "a")
        os.mkfifo(tmp_path / "a")
        opened.append(opening(path, *rest, **more))
        return opened[0]

    with space.place("a") as place:
        monkeypatch.setattr(os, "open", swapped)
        with pytest.raises(PathError, match="is a named pipe"):
            open_file(place)
        monkeypatch.undo()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


def test_what_no_word_is_known_for_is_special() -> None:
    """A kind of file that this system alone has is still named."""
    assert kind_of(0) == "special file"


# Listing


async def test_a_listing_says_what_each_entry_is(tmp_path: Path, tools: tuple[Tool, ...]) -> None:
    """Pipes and the like are named; of an entry that is gone meanwhile the name is left."""
    os.mkfifo(tmp_path / "p")
    assert await works(tools, "list_dir") == "p (named pipe)"
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert search._entry(folder, "gone") == "gone"
    finally:
        os.close(folder)


async def test_a_long_listing_is_gone_on_with(tmp_path: Path, tools: tuple[Tool, ...]) -> None:
    """Parts of a listing are the whole of it; an offset that it does not have is an error, not an empty folder."""
    for number in range(502):
        (tmp_path / f"{number:03}").touch()
    first = await works(tools, "list_dir")
    assert first.endswith("499 (0 bytes)\n[2 entries are left; go on with offset 501]")
    assert await works(tools, "list_dir", offset=501) == "500 (0 bytes)\n501 (0 bytes)"
    assert "fewer than 503 entries" in await fails(tools, "list_dir", offset=503)
    assert "offset counts from 1" in await fails(tools, "list_dir", offset=0)


# Walking


def test_a_folder_that_is_gone_meanwhile_is_passed_over(tmp_path: Path) -> None:
    """A walk sees a folder and then finds nothing there: the rest is found."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    space = Workspace(tmp_path)
    steps = walk(Place(space.descriptor, ".", "."))
    found = [next(steps).path, next(steps).path]
    (tmp_path / "a/file").unlink()
    (tmp_path / "a").rmdir()
    assert [*found, *[step.path for step in steps]] == ["a", "b", "b/file"]


def test_a_folder_that_cannot_be_listed_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails at one folder costs what is in that folder."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    scanning = os.scandir
    bad = (tmp_path / "a").stat().st_ino

    def failing(descriptor: int) -> Any:
        if os.fstat(descriptor).st_ino == bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return scanning(descriptor)

    monkeypatch.setattr(os, "scandir", failing)
    assert names(Workspace(tmp_path)) == ["a", "b", "b/file"]


def test_a_walk_that_is_left_gives_its_descriptors_back(tmp_path: Path) -> None:
    """Whoever has seen enough, at whatever depth, keeps nothing open."""
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/c").touch()
    space = Workspace(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    steps = walk(Place(space.descriptor, ".", "."))
    assert [next(steps).path for _ in range(3)] == ["a", "a/b", "a/b/c"]
    steps.close()  # type: ignore[attr-defined]
    assert len(os.listdir("/proc/self/fd")) == before


async def test_more_names_than_are_shown_are_said(tmp_path: Path, tools: tuple[Tool, ...]) -> None:
    """Of very many files the first five hundred are named, with the advice to look more closely."""
    for number in range(501):
        (tmp_path / f"{number:03}.py").touch()
    found = await works(tools, "find_files", pattern="*.py")
    assert found.count(".py") == 500
    assert found.endswith("[there are more; give a narrower pattern or path]")
    assert "there are more" not in await works(tools, "find_files", pattern="[1-4]*.py")


async def test_searching_what_is_not_there_is_an_error(tools: tuple[Tool, ...]) -> None:
    """A path that leads to nothing is said, and is not taken for a search without a result."""
    assert "there is nothing at 'gone'" in await fails(tools, "grep", path="gone", pattern="x")


def test_a_line_is_shown_only_if_it_is_there(tmp_path: Path) -> None:
    """What a search says it found in a file that has changed, or is gone, since is not passed on."""
    (tmp_path / "a").write_text("one\ntwo\n")
    space = Workspace(tmp_path)
    assert search._is_there(space, "a", b"two\n", 4)
    assert search._is_there(space, "a", b"two\n", 99)  # of another encoding the offset may be another
    assert not search._is_there(space, "a", b"three\n", 4)
    assert not search._is_there(space, "gone", b"two\n", 4)
