"""Topic 13: file tools as others have met them (B140, B142, B143, B144, B145, B148; and B031, B034 with real tools)."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from tool_calls import fails, run_calls, works

from trio_agent import Tool
from trio_agent.tools import coding_tools

pytestmark = pytest.mark.real_time


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "w").mkdir()
    return tmp_path / "w"


@pytest.fixture
def tools(root: Path) -> tuple[Tool, ...]:
    return coding_tools(root)


def edit(old: str, new: str, **more: Any) -> list[dict[str, Any]]:
    return [{"old_text": old, "new_text": new, **more}]


# B140

MARKED = b"\xef\xbb\xbfa\r\nb\r\nc\r\n"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("b", "B1\nB2", b"\xef\xbb\xbfa\r\nB1\r\nB2\r\nc\r\n"),
        ("a\nb", "x\ny\nz", b"\xef\xbb\xbfx\r\ny\r\nz\r\nc\r\n"),
        ("a\r\nb", "a\r\nB", b"\xef\xbb\xbfa\r\nB\r\nc\r\n"),
        ("a", "first", b"\xef\xbb\xbffirst\r\nb\r\nc\r\n"),
        ("c\n", "c", b"\xef\xbb\xbfa\r\nb\r\nc"),
    ],
)
async def test_b140_an_edit_keeps_mark_and_line_ends(
    root: Path, tools: tuple[Tool, ...], old: str, new: str, expected: bytes
) -> None:
    """The byte order mark and every CR LF stay, and new lines end the same way."""
    (root / "a").write_bytes(MARKED)
    await works(tools, "edit_file", path="a", edits=edit(old, new))
    assert (root / "a").read_bytes() == expected


@pytest.mark.parametrize("content", ["x\ny\n", "x\r\ny\r\n", "\ufeffx\ny\n"])
async def test_b140_a_whole_write_keeps_mark_and_line_ends(root: Path, tools: tuple[Tool, ...], content: str) -> None:
    """A file of CR LF with a mark is that still after it was replaced, with no CR doubled."""
    (root / "a").write_bytes(MARKED)
    await works(tools, "write_file", path="a", content=content)
    assert (root / "a").read_bytes() == b"\xef\xbb\xbfx\r\ny\r\n"


@pytest.mark.parametrize("content", ["x\r\ny\n", "no end", "", "\ufeffmark"])
async def test_b140_a_new_file_is_exactly_what_was_given(root: Path, tools: tuple[Tool, ...], content: str) -> None:
    """Nothing is normalised in a file that was not there."""
    await works(tools, "write_file", path="a", content=content)
    assert (root / "a").read_bytes() == content.encode()


# B142


@pytest.mark.parametrize("mode", [0o755, 0o640, 0o600, 0o4755])
async def test_b142_the_mode_stays(root: Path, tools: tuple[Tool, ...], mode: int) -> None:
    """Edit and write leave the mode as it was."""
    (root / "a").write_text("x")
    (root / "a").chmod(mode)
    await works(tools, "edit_file", path="a", edits=edit("x", "y"))
    assert (root / "a").stat().st_mode & 0o7777 == mode
    await works(tools, "write_file", path="a", content="z")
    assert (root / "a").stat().st_mode & 0o7777 == mode


async def test_b142_a_read_only_file_is_left_alone(root: Path, tools: tuple[Tool, ...]) -> None:
    """Who took the right to write away meant it, also where the system would let us."""
    (root / "a").write_text("x")
    (root / "a").chmod(0o444)
    assert "read-only" in await fails(tools, "write_file", path="a", content="y")
    assert (root / "a").read_text() == "x"
    assert (root / "a").stat().st_mode & 0o777 == 0o444


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give files away")
async def test_b142_the_owner_stays(root: Path, tools: tuple[Tool, ...]) -> None:
    """A file of somebody else's is still theirs."""
    (root / "a").write_text("x")
    os.chown(root / "a", 1234, 2345)
    await works(tools, "edit_file", path="a", edits=edit("x", "y"))
    assert ((root / "a").stat().st_uid, (root / "a").stat().st_gid) == (1234, 2345)


# B143


@pytest.mark.parametrize(("umask", "mode"), [(0o002, 0o664), (0o022, 0o644)])
async def test_b143_a_new_file_is_as_public_as_any(root: Path, tools: tuple[Tool, ...], umask: int, mode: int) -> None:
    """The umask decides over the mode of a new file, as for every program."""
    before = os.umask(umask)
    try:
        await works(tools, "write_file", path="a", content="x")
    finally:
        os.umask(before)
    assert (root / "a").stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
async def test_b143_a_write_that_fails_leaves_the_old_content(
    root: Path, tools: tuple[Tool, ...], call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever step fails for want of room: the old file, an error that says so, nothing left over."""
    (root / "a").write_text("old")

    def full(*_args: object, **_more: object) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    write = os.write
    with monkeypatch.context() as patched:
        # Trio writes to a pipe of its own; a file's content is a memoryview.
        patched.setattr(
            os,
            call,
            full if call != "write" else lambda fd, data: full() if isinstance(data, memoryview) else write(fd, data),
        )
        text = await fails(tools, "write_file", path="a", content="new")
    assert "no space left" in text
    assert (root / "a").read_text() == "old"
    assert os.listdir(root) == ["a"]


# B144


async def test_b144_a_link_stays_a_link(root: Path, tools: tuple[Tool, ...]) -> None:
    """Edit and write through a link, or a link to a link, change the file it leads to."""
    (root / "real").mkdir()
    (root / "real/data.txt").write_text("old")
    (root / "link").symlink_to("real/data.txt")
    (root / "link2").symlink_to(root / "link")
    (root / "folder").symlink_to("real")
    for number, path in enumerate(["link", "link2", "folder/data.txt", "folder/../real/data.txt"]):
        await works(tools, "write_file", path=path, content=f"old {number}")
        await works(tools, "edit_file", path=path, edits=edit("old", "new"))
        assert (root / "real/data.txt").read_text() == f"new {number}"
    assert os.readlink(root / "link") == "real/data.txt"
    assert (root / "link2").is_symlink()


async def test_b144_a_hard_link_is_said(root: Path, tools: tuple[Tool, ...]) -> None:
    """Replacing a file parts it from its other names, and the result says so."""
    (root / "a").write_text("old")
    os.link(root / "a", root / "b")
    assert "1 other names" in await works(tools, "write_file", path="a", content="new")
    assert (root / "b").read_text() == "old"


# B145


OUTSIDE = ["todo.txt", "folder/keep.txt", "../keep.txt", "a/../../keep.txt", "~", "~/keep.txt", "x\0y", "/etc/passwd"]


@pytest.mark.parametrize("path", [*OUTSIDE, "ABSOLUTE", "loop", "folder/../../keep.txt", "new/../../keep.txt"])
async def test_b145_nothing_leads_outside(root: Path, tools: tuple[Tool, ...], path: str) -> None:
    """Whatever the spelling, reading, writing, editing, listing and searching outside are refused."""
    outside = root.parent / "outside"
    outside.mkdir()
    for keep in (outside / "keep.txt", root.parent / "keep.txt"):
        keep.write_text("secret")
    (root / "a").mkdir()
    (root / "todo.txt").symlink_to(outside / "keep.txt")
    (root / "folder").symlink_to("../outside")
    (root / "loop").symlink_to("loop")
    path = str(outside / "keep.txt") if path == "ABSOLUTE" else path
    results = await run_calls(
        tools,
        ("read_file", {"path": path}),
        ("write_file", {"path": path, "content": "x"}),
        ("edit_file", {"path": path, "edits": edit("secret", "x")}),
        ("list_dir", {"path": path}),
        ("find_files", {"path": path, "pattern": "*"}),
        ("grep", {"path": path, "pattern": "secret"}),
    )
    assert [result.is_error for result in results] == [True] * 6
    assert not any("secret" in result.text.replace("'secret'", "") for result in results)
    assert (outside / "keep.txt").read_text() == (root.parent / "keep.txt").read_text() == "secret"
    assert sorted(os.listdir(root.parent)) == ["keep.txt", "outside", "w"]


# B148


@pytest.mark.parametrize(
    ("content", "old", "new", "count", "all_replaced"),
    [("x=1\nx=1\n", "x=1", "x=2", 2, "x=2\nx=2\n"), ("aaaa", "aa", "b", 3, "bb")],
)
async def test_b148_old_text_must_be_unique(
    root: Path, tools: tuple[Tool, ...], content: str, old: str, new: str, count: int, all_replaced: str
) -> None:
    """Text that occurs more than once is refused with the number of places; `replace_all` changes each."""
    (root / "a").write_text(content)
    assert f"found {count} times" in await fails(tools, "edit_file", path="a", edits=edit(old, new))
    assert (root / "a").read_text() == content
    await works(tools, "edit_file", path="a", edits=edit(old, new, replace_all=True))
    assert (root / "a").read_text() == all_replaced


async def test_b148_nothing_is_matched_loosely(root: Path, tools: tuple[Tool, ...]) -> None:
    """Text that differs in white space or letter case is not taken for what was meant; it is shown."""
    (root / "a").write_text("def  f(x):\n    return  x\n")
    said = await fails(tools, "edit_file", path="a", edits=edit("def f(x):", "def g(x):"))
    assert "other white space" in said
    assert "Line 1" in said
    assert (root / "a").read_text().startswith("def  f")


# B031, B034


async def test_b031_parallel_edits_of_one_file_all_survive(root: Path, tools: tuple[Tool, ...]) -> None:
    """Two edits, or six, or an edit and a write of one file in one message take effect in their order."""
    (root / "a").write_text("".join(f"row {n}\n" for n in range(1, 201)))
    rows = [40, 160, 3, 77, 120, 199]
    results = await run_calls(
        tools, *[("edit_file", {"path": "a", "edits": edit(f"row {n}\n", f"ROW {n}\n")}) for n in rows]
    )
    assert not any(result.is_error for result in results)
    expected = [f"{'ROW' if n in rows else 'row'} {n}" for n in range(1, 201)]
    assert (root / "a").read_text().splitlines() == expected
    await run_calls(
        tools,
        ("write_file", {"path": "a", "content": "one"}),
        ("edit_file", {"path": "./a", "edits": edit("one", "two")}),
        ("edit_file", {"path": "a", "edits": edit("two", "three")}),
    )
    assert (root / "a").read_text() == "three"


async def test_b034_ones_own_edits_are_not_foreign(root: Path, tools: tuple[Tool, ...]) -> None:
    """Behind one read several edits are made; a change by somebody else is refused, until it was read."""
    (root / "a").write_text("one two three")
    await works(tools, "read_file", path="a")
    results = await run_calls(
        tools,
        ("edit_file", {"path": "a", "edits": edit("one", "1")}),
        ("edit_file", {"path": "a", "edits": edit("three", "3")}),
    )
    assert not any(result.is_error for result in results)
    (root / "a").write_text("1 two 3 and more")
    for name, more in (("edit_file", {"edits": edit("two", "2")}), ("write_file", {"content": "x"})):
        assert "has changed since it was read" in await fails(tools, name, path="a", **more)
    assert (root / "a").read_text() == "1 two 3 and more"
    await works(tools, "read_file", path="a")
    await works(tools, "edit_file", path="a", edits=edit("two", "2"))
    assert (root / "a").read_text() == "1 2 3 and more"
