"""The file tools: what they show, what they refuse, and that a file is changed whole, once, and nowhere else."""

from __future__ import annotations

import base64
import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from scenes import assert_settled, make_agent
from tool_calls import fails, results_of, run_call, run_calls, works

from trio_agent import Image, Tool, ToolCall
from trio_agent.testing import ScriptedProvider, call, finish
from trio_agent.tools import EditError, Workspace, coding_tools, read_file
from trio_agent.tools._edits import Edit, apply_edits
from trio_agent.tools._search import translated
from trio_agent.tools._text import lf

pytestmark = pytest.mark.real_time

VICTIMS = Path(__file__).with_name("tools_victims.py")
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "w").mkdir()
    return tmp_path / "w"


@pytest.fixture
def tools(root: Path) -> tuple[Tool, ...]:
    return coding_tools(root)


# Reading


async def test_a_long_file_is_read_in_pieces(root: Path, tools: tuple[Tool, ...]) -> None:
    """A part says how much is left and how to go on; put together, the parts are the file."""
    whole = "".join(f"line {n}\n" for n in range(1, 5001))
    (root / "a").write_text(whole)
    offset, pieces = 1, []
    for left in (3000, 1000, None):
        text = await works(tools, "read_file", path="a", offset=offset)
        shown, _, note = text.partition("[lines")
        pieces.append(shown)
        offset += 2000
        assert (f"{left} lines are left; go on with offset {offset}" in note) == (left is not None)
    assert "".join(pieces) == whole


async def test_a_long_line_is_read_in_pieces(root: Path, tools: tuple[Tool, ...]) -> None:
    """A line beyond what is shown at once is gone on with by its column, also one of megabytes."""
    line = "".join(str(n % 10) for n in range(2_100_000))
    (root / "a").write_text(f"short\n{line}\nend")
    assert "go on with offset 2" in await works(tools, "read_file", path="a")
    for column in (1, 50_001, 1_000_001, 1_980_001, 2_050_001):
        text = await works(tools, "read_file", path="a", offset=2, column=column)
        shown = text.split("\n")[0]
        assert shown == line[column - 1 :][: len(shown)]
        assert len(shown) == 50_000 or text.endswith("end")


async def test_a_file_too_large_to_hold_is_read_too(root: Path, tools: tuple[Tool, ...]) -> None:
    """Of a file of 40 MB a part is shown."""
    with (root / "a").open("wb") as file:
        file.writelines(b"%07d\n" % n for n in range(5_000_000))
    text = await works(tools, "read_file", path="a", offset=4_999_000, limit=3)
    assert text == "4998999\n4999000\n4999001\n[lines 4999000 to 4999002; go on with offset 4999003]"


async def test_beyond_the_end_is_an_error(root: Path, tools: tuple[Tool, ...]) -> None:
    """An offset that the file does not have is said; an empty file is not an error."""
    (root / "a").write_text("x\n")
    (root / "e").write_text("")
    assert "fewer than 7 lines" in await fails(tools, "read_file", path="a", offset=7)
    assert await works(tools, "read_file", path="e") == "(the file is empty)"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-16-be-bom", "cp1252", "cp1251", "euc_jp"])
async def test_encodings_are_found_and_kept(root: Path, tools: tuple[Tool, ...], encoding: str) -> None:
    """Text in another encoding is read as text, and an edit leaves each byte that it does not touch."""
    texts = {
        "cp1251": "Привет, как дела? Это обычный текст на русском языке.\n" * 4,
        "euc_jp": "これは日本語の文章です。\n" * 9,
    }
    text = texts.get(encoding, "Größe und Länge, naïve Café — für alle Fälle übermäßig.\n" * 4) + "end\n"
    data = b"\xfe\xff" + text.encode("utf-16-be") if encoding == "utf-16-be-bom" else text.encode(encoding)
    (root / "a").write_bytes(data)
    shown = await works(tools, "read_file", path="a")
    if encoding != "cp1252":  # which is also other encodings of western Europe
        assert text.rstrip() in shown
    await works(tools, "edit_file", path="a", edits=[{"old_text": "end", "new_text": "END"}])
    end, new = ("end", "END")
    codec = {"utf-8-sig": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le", "utf-16-be-bom": "utf-16-be"}.get(
        encoding, encoding
    )
    assert (root / "a").read_bytes() == data.replace(end.encode(codec), new.encode(codec))


async def test_what_an_encoding_cannot_say_is_refused(root: Path, tools: tuple[Tool, ...]) -> None:
    """New text with a character that the file's encoding lacks is an error, and the file stays."""
    data = "Größe und Länge, für alle Fälle übermäßig.\n".encode("latin-1") * 5
    (root / "a").write_bytes(data + b"end")
    said = await fails(tools, "edit_file", path="a", edits=[{"old_text": "end", "new_text": "日本"}])
    assert "has no '日本'" in said
    assert (root / "a").read_bytes() == data + b"end"


async def test_images_are_images_and_binary_is_said(root: Path, tools: tuple[Tool, ...]) -> None:
    """A PNG comes as an image block, whatever it is called; other bytes are refused for reading and editing."""
    (root / "picture.txt").write_bytes(PNG)
    (root / "blob").write_bytes(bytes(range(256)) * 20)
    result = await run_call(tools, "read_file", path="picture.txt")
    assert Image(PNG, "image/png") in result.content
    assert "no text: it holds NUL bytes" in await fails(tools, "read_file", path="blob")
    assert "cannot be edited as text" in await fails(
        tools, "edit_file", path="blob", edits=[{"old_text": "a", "new_text": "b"}]
    )


async def test_devices_pipes_and_folders_are_refused(root: Path, tools: tuple[Tool, ...]) -> None:
    """What is no file is neither opened nor replaced: a named pipe does not block, a folder is explained."""
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(root / "socket"))
        for path, kind in (("pipe", "named pipe"), ("socket", "socket"), ("folder", "folder"), (".", "folder")):
            for name, more in (("read_file", {}), ("write_file", {"content": "x"})):
                assert f"is a {kind}" in await fails(tools, name, path=path, **more)
    devices = coding_tools("/dev", allow_write=False)
    assert "is a device" in await fails(devices, "read_file", path="zero")
    assert "is a device" in await fails(devices, "grep", path="zero", pattern="x")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "is empty"),
        ("x" * 300, "longer than 255 bytes"),
        ("é" * 200, "longer than 255 bytes"),
        ("a/" * 3000 + "b", "4096 is the most"),
        ("a\udc80\ud800", "no file name can"),
        ("missing.txt", "there is no file 'missing.txt'"),
        ("missing/x", "there is no 'missing' in '.'"),
        ("file/x", "'file' is no folder"),
        ("file/", "'file' is no folder"),
    ],
)
async def test_unusable_paths_are_explained(root: Path, tools: tuple[Tool, ...], path: str, why: str) -> None:
    """Absurd lengths, impossible characters, missing folders: each gets its sentence, from readers and from writers."""
    (root / "file").write_text("x")
    assert why in await fails(tools, "read_file", path=path)
    await fails(tools, "edit_file", path=path, edits=[{"old_text": "a", "new_text": "b"}])


async def test_the_workspace_may_be_called_by_its_path(root: Path, tools: tuple[Tool, ...]) -> None:
    """An absolute path into the workspace is taken, also when the workspace was given through a link."""
    (root / "a").write_text("x")
    (root.parent / "link").symlink_to(root)
    assert await works(tools, "read_file", path=str(root / "a")) == "x"
    assert await works([read_file(root.parent / "link")], "read_file", path=str(root.parent / "link/a")) == "x"
    assert "outside" in await fails(tools, "read_file", path=f"{root}x/a")


async def test_the_working_directory_does_not_matter(
    root: Path, tools: tuple[Tool, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Paths, and the locks on them, are relative to the workspace wherever the process is."""
    monkeypatch.chdir(tmp_path)
    seen: list[tuple[str, ...]] = []
    agent, recorder = make_agent(
        ScriptedProvider(
            [call("c", "write_file", {"path": "n/a", "content": "x"}), finish("tool_use")], ["x", finish()]
        ),
        tools=tools,
    )
    locked = next(tool for tool in tools if tool.name == "write_file")
    seen.append(locked.prepare(ToolCall("1", "write_file", {"path": "n/a", "content": "x"})).paths)
    await agent.prompt("x")
    assert seen == [(str(root / "n/a"),)]
    assert (root / "n/a").read_text() == "x"
    assert_settled(recorder)


# Editing


async def test_edits_are_all_or_nothing(root: Path, tools: tuple[Tool, ...]) -> None:
    """One edit that cannot be made leaves the file as it is, and says which and why."""
    (root / "a").write_text("one\ntwo\nthree\n")
    good = {"old_text": "one", "new_text": "1"}
    for bad, why in (
        ({"old_text": "fourr", "new_text": "x"}, "edit 2: old_text was not found"),
        ({"old_text": "thre", "new_text": "thre"}, "are the same"),
        ({"old_text": "", "new_text": "x"}, "old_text is empty"),
        ({"old_text": "e\ntw", "new_text": "x"}, "edits 1 and 2 overlap in line 1"),
        ({"old_text": "t", "new_text": "x"}, "found 2 times, in lines 2, 3"),
    ):
        assert why in await fails(tools, "edit_file", path="a", edits=[good, bad])
        assert (root / "a").read_text() == "one\ntwo\nthree\n"
    assert "'three'" in await fails(tools, "edit_file", path="a", edits=[{"old_text": "threee", "new_text": "x"}])
    assert "line 3" in await fails(tools, "edit_file", path="a", edits=[{"old_text": "threee", "new_text": "x"}])


async def test_a_result_carries_a_diff(root: Path, tools: tuple[Tool, ...]) -> None:
    """What changed is in the details, for people."""
    (root / "a").write_text("one\ntwo")
    result = await run_call(tools, "edit_file", path="a", edits=[{"old_text": "two", "new_text": "2"}])
    assert result.details["path"] == "a"
    assert result.details["diff"].splitlines()[3:] == [
        " one", "-two", "\\ No newline at end of file", "+2", "\\ No newline at end of file"
    ]  # fmt: skip


def test_mixed_line_ends_stay_as_they_are() -> None:
    """Lines that an edit covers and does not change keep their own ends, and so do all others."""
    text = "a\r\nb\nc\r\nd\n"
    assert apply_edits(text, [{"old_text": "a\nb\nc\nd", "new_text": "a\nB\nc\nD"}]) == "a\r\nB\nc\r\nD\n"
    assert apply_edits(text, [{"old_text": "c", "new_text": "c1\nc2"}]) == "a\r\nb\nc1\r\nc2\r\nd\n"
    assert apply_edits(text, [{"old_text": "d\n", "new_text": "d\nlast"}]) == "a\r\nb\nc\r\nd\nlast"


_lines = st.lists(st.text("abc é", max_size=4), min_size=1, max_size=8)


@given(data=st.data(), lines=_lines)
def test_an_edit_changes_what_it_names_and_nothing_else(data: st.DataObject, lines: list[str]) -> None:
    """For any text of mixed line ends: but for its line ends the result is as `str.replace` has it, and lines outside
    of the edit are the same bytes."""
    ends = [data.draw(st.sampled_from(["\n", "\r\n"])) for _ in lines]
    text = "".join(line + end for line, end in zip(lines, ends, strict=True))
    plain = lf(text)
    start = data.draw(st.integers(0, len(plain) - 1))
    old = plain[start : data.draw(st.integers(start + 1, len(plain)))]
    new = data.draw(st.text("abx\n", max_size=6).filter(lambda new: new != old))
    edit: Edit = {"old_text": old, "new_text": new}
    if plain.count(old) != 1 or plain.find(old) != plain.rfind(old):
        with pytest.raises(EditError):
            apply_edits(text, [edit])
        return
    result = apply_edits(text, [edit])
    assert lf(result) == plain.replace(old, new)
    untouched = plain.count("\n", 0, plain.index(old))
    assert result.split("\n")[:untouched] == text.split("\n")[:untouched]
    behind = plain.count("\n", plain.index(old) + len(old)) - 1
    if behind > 0:
        assert result.split("\n")[-1 - behind :] == text.split("\n")[-1 - behind :]


# Looking around


async def test_a_folder_is_listed(root: Path, tools: tuple[Tool, ...]) -> None:
    """Folders, sizes, links and odd names, in order; a long list goes on at an offset."""
    (root / "b").mkdir()
    (root / "a").write_text("xyz")
    (root / "c").symlink_to("a")
    (root / "new\nline").write_text("")
    assert await works(tools, "list_dir") == "a (3 bytes)\nb/\nc -> a\nnew\\nline (0 bytes)"
    assert await works(tools, "list_dir", path="b") == "(the folder is empty)"
    assert "is no folder; read_file reads it" in await fails(tools, "list_dir", path="a")
    assert "no folder 'd'" in await fails(tools, "list_dir", path="d")
    for n in range(600):
        (root / f"b/{n:03}").touch()
    assert "[100 entries are left; go on with offset 501]" in await works(tools, "list_dir", path="b")
    assert (await works(tools, "list_dir", path="b", offset=501)).startswith("500 (0 bytes)")


async def test_files_are_found_by_name(root: Path, tools: tuple[Tool, ...]) -> None:
    """Patterns with and without folders; version control and links to folders are left out."""
    for path in ("a.py", "src/b.py", "src/deep/c.py", ".git/d.py", "src/e.txt"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    (root / "again").symlink_to("src")
    assert await works(tools, "find_files", pattern="*.py") == "a.py\nsrc/b.py\nsrc/deep/c.py"
    assert await works(tools, "find_files", pattern="src/*.py") == "src/b.py"
    assert await works(tools, "find_files", pattern="**/deep/*") == "src/deep/c.py"
    assert await works(tools, "find_files", pattern="[bc].p?", path="src") == "src/b.py\nsrc/deep/c.py"
    assert await works(tools, "find_files", pattern="*.rs") == "(no file has such a name)"


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [("a[!b]c", "axc", True), ("a[!b]c", "abc", False), ("a[", "a[", True), ("a.c", "abc", False), ("**", "x/y", True)],
)
def test_patterns(pattern: str, path: str, matches: bool) -> None:
    """Classes, their opposite, and what only looks like a pattern."""
    import re

    assert bool(re.fullmatch(translated(pattern), path)) == matches


needs_ripgrep = pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is not installed")


@pytest.fixture(params=[pytest.param("rg", marks=needs_ripgrep), "re"])
def searching(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "re":
        monkeypatch.setattr(shutil, "which", lambda _name: None)
    return str(request.param)


async def test_lines_are_found_by_what_is_in_them(root: Path, tools: tuple[Tool, ...], searching: str) -> None:
    """Ripgrep or Python's own: the same lines, with file and number; binary files and links are left out."""
    (root / "src").mkdir()
    (root / "src/a.py").write_text("def one():\n    return 'ü'\ndef two(): ...\n")
    (root / "b.txt").write_bytes(b"def \xff\n")
    (root / "blob").write_bytes(b"def \0")
    (root / "link").symlink_to("/etc/passwd")
    expected = ["b.txt:1: def \\xff", "src/a.py:1: def one():", "src/a.py:3: def two(): ..."]
    assert sorted((await works(tools, "grep", pattern="def ")).split("\n")) == expected
    assert await works(tools, "grep", pattern="ONE", ignore_case=True, glob="*.py") == expected[1]
    assert await works(tools, "grep", pattern="two", path="src/a.py") == expected[2]
    assert await works(tools, "grep", pattern="zzz") == "(no line matches)"
    assert await works(tools, "grep", pattern="root", path=".") == "(no line matches)"
    await fails(tools, "grep", pattern="(")


async def test_a_search_is_bounded_and_ends_with_its_run(root: Path, tools: tuple[Tool, ...], searching: str) -> None:
    """Of very many matches the first are shown; abort ends a search that would take for ever."""
    (root / "a").write_text("match\n" * 100_000)
    text = await works(tools, "grep", pattern="match")
    assert len(text.split("\n")) == 201
    assert "only the first 200 are shown" in text
    if searching == "re":
        (root / "a").write_text("a" * 60 + "!")
        agent, recorder = make_agent(
            ScriptedProvider([call("c", "grep", {"pattern": "(a+)+$"}), finish("tool_use")]), tools=tools
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.prompt, "x")
            await trio.sleep(0.5)
            began = trio.current_time()
            agent.abort()
            await agent.wait_for_idle()
        assert trio.current_time() - began < 3
        assert_settled(recorder)


# Stress, races, kills


@pytest.mark.parametrize("rounds", [3, pytest.param(20, marks=pytest.mark.exhaustive)])
async def test_stress_of_parallel_edits(tmp_path: Path, rounds: int) -> None:
    """200 parallel edits of 5 files under 4 spellings, cut off by an abort at some moment: every edit that reported
    success is in its file, none that reported another outcome is, and no file is torn."""
    chance = random.Random(5)
    done = cut = 0
    for number in range(rounds):
        root = tmp_path / f"w{number}"
        (root / "sub").mkdir(parents=True)
        (root / "again").symlink_to("sub")
        for file in range(5):
            (root / f"sub/f{file}").write_text("".join(f"row {row} old\r\n" for row in range(40)))
            (root / f"link{file}").symlink_to(root / f"sub/f{file}")
        spellings = ["sub/f{}", "again/../sub/./f{}", "link{}", f"{root}/again/f{{}}"]
        work = [(row, file) for row in range(40) for file in range(5)]
        chance.shuffle(work)
        calls = [
            call(
                f"{row}-{file}",
                "edit_file",
                {
                    "path": chance.choice(spellings).format(file),
                    "edits": [{"old_text": f"row {row} old\n", "new_text": f"row {row} new\n"}],
                },
            )
            for row, file in work
        ]
        agent, recorder = make_agent(
            ScriptedProvider([*calls, finish("tool_use")], ["ok", finish()]), tools=coding_tools(root)
        )
        left = 10**6 if number == 0 else chance.randrange(1, 200)

        def abort(event: Any, agent: Any = agent, left: int = left) -> None:
            if event.type == "tool_execution_end" and len(agent.state.pending_tool_calls) <= 200 - left:
                agent.abort("enough")

        agent.subscribe(abort)
        with trio.move_on_after(chance.random() * 1.5 if number % 3 == 2 else 60):
            await agent.prompt("go")
        assert_settled(recorder)
        outcomes = {result.tool_call_id: result for result in results_of(recorder)}
        assert len(outcomes) == 200
        for file in range(5):
            lines = (root / f"sub/f{file}").read_bytes().decode().split("\r\n")
            for row in range(40):
                reported = not outcomes[f"{row}-{file}"].is_error
                assert lines[row] == f"row {row} {'new' if reported else 'old'}", outcomes[f"{row}-{file}"].text
                done += reported
                cut += not reported
            assert lines[40:] == [""]
        assert sorted(os.listdir(root / "sub")) == [f"f{file}" for file in range(5)]
    assert done > 200
    assert cut > 0


@pytest.fixture
def swapping(root: Path) -> Iterator[Path]:
    """A folder in the workspace that is a link to the outside half of the time, and a file likewise."""
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("secret")
    (root / "inside").mkdir()
    (root / "inside/file").write_text("public")
    (root / "leaf").write_text("public")
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            os.symlink("../outside/file", root / "leaf.link")
            os.rename(root / "leaf.link", root / "leaf")
            (root / "leaf.file").write_text("public")
            os.rename(root / "leaf.file", root / "leaf")
            os.rename(root / "inside", root / "inside.kept")
            with contextlib.suppress(FileExistsError):  # a writer has made the folder meanwhile
                os.symlink("../outside", root / "inside")
                os.unlink(root / "inside")
            shutil.rmtree(root / "inside", ignore_errors=True)
            with contextlib.suppress(OSError):  # and again
                os.rename(root / "inside.kept", root / "inside")
            shutil.rmtree(root / "inside.kept", ignore_errors=True)

    thread = threading.Thread(target=swap)
    thread.start()
    yield outside
    over.set()
    thread.join()


async def test_races_between_check_and_use_lead_nowhere(root: Path, tools: tuple[Tool, ...], swapping: Path) -> None:
    """While a folder and a file are swapped for links to the outside all the time: nothing outside is read, listed,
    searched, changed or made."""
    read = 0
    for _ in range(25):
        results = await run_calls(
            tools,
            *[
                each
                for path in ("inside/file", "leaf")
                for each in (
                    ("read_file", {"path": path}),
                    ("edit_file", {"path": path, "edits": [{"old_text": "secret", "new_text": "broken"}]}),
                    ("grep", {"path": ".", "pattern": "secret|public"}),
                    ("write_file", {"path": f"inside/{path[:2]}", "content": "made"}),
                )
            ],
        )
        for result in results:
            assert "secret" not in result.text.replace("secret|public", "").replace("'secret'", ""), result.text
        read += sum(result.text == "public" for result in results)
    assert read > 0
    assert os.listdir(swapping) == ["file"]
    assert (swapping / "file").read_text() == "secret"


@pytest.mark.parametrize("look", ["readlink", "stat"])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read_file", {"path": "inside/file"}),
        ("edit_file", {"path": "inside/file", "edits": [{"old_text": "secret", "new_text": "broken"}]}),
        ("write_file", {"path": "inside/new", "content": "made"}),
        ("list_dir", {"path": "inside/deep"}),
        ("find_files", {"path": "inside/deep", "pattern": "*"}),
        ("grep", {"path": "inside/file", "pattern": "secret"}),
        ("grep", {"path": "inside/deep", "pattern": "secret"}),
    ],
)
async def test_a_swap_right_after_the_look_leads_nowhere(
    root: Path,
    tools: tuple[Tool, ...],
    look: str,
    name: str,
    arguments: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the worst moment, between the look at a step and its use, the step becomes a link to the outside: no tool
    reads, lists, changes or makes anything there. Fails without O_NOFOLLOW, for each step."""
    outside = root.parent / "outside"
    (outside / "deep").mkdir(parents=True)
    (root / "inside/deep").mkdir(parents=True)
    for place in (outside / "file", outside / "deep/treasure"):
        place.write_text("secret")
    (root / "inside/file").write_text("public")
    step = "inside" if look == "readlink" else Path(arguments["path"]).name
    victim = root / "inside" if look == "readlink" else root / arguments["path"]
    target = outside if look == "readlink" else outside / step
    original = getattr(os, look)
    swapped: list[str] = []

    def look_then_swap(path: Any, *args: Any, **more: Any) -> Any:
        try:
            return original(path, *args, **more)
        finally:
            if path == step and "dir_fd" in more and not swapped:
                swapped.append(path)
                if victim.exists():
                    os.rename(victim, root / "kept")
                os.symlink(target, victim)

    monkeypatch.setattr(os, look, look_then_swap)
    result = await run_call(tools, name, **arguments)
    monkeypatch.undo()
    assert "secret" not in result.text.replace("'secret'", "")
    assert "treasure" not in result.text
    assert sorted(os.listdir(outside)) == ["deep", "file"]
    assert (outside / "file").read_text() == (outside / "deep/treasure").read_text() == "secret"


def kill_in_a_loop(folder: Path, rounds: int) -> str:
    done = subprocess.run(
        [sys.executable, str(VICTIMS), str(folder), str(rounds), "3"],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(VICTIMS.parent.parent)},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_a_kill_leaves_the_old_file_or_the_new_one(root: Path) -> None:
    """Thirty kills at random moments: no torn file, and no litter after the next start."""
    assert "no torn file" in kill_in_a_loop(root, 30)


@pytest.mark.exhaustive
def test_a_thousand_kills_leave_whole_files(root: Path) -> None:
    """A thousand kills at random moments: no torn file, and no litter after the next start."""
    assert "1000 kills" in kill_in_a_loop(root, 1000)


async def test_litter_of_the_living_is_left(root: Path) -> None:
    """A new start takes away what a killed writer left, and not what another writes just now."""
    from trio_agent.tools._writing import Replacement

    (root / ".trio-agent-0123456789abcdef.tmp").write_text("left")
    space = Workspace(root)
    with space.place("a") as place, Replacement(place, b"new") as replacement:
        coding_tools(root)
        assert len(os.listdir(root)) == 1
        replacement.commit()
    assert (root / "a").read_bytes() == b"new"
    assert os.listdir(root) == ["a"]


async def test_a_file_that_changes_during_an_edit_is_not_overwritten(root: Path) -> None:
    """What somebody else wrote between reading and replacing is not lost."""
    from trio_agent.tools._writing import ChangedError, Replacement

    (root / "a").write_text("old")
    space = Workspace(root)
    with space.place("a") as place, Replacement(place, b"new") as replacement:
        (root / "a").write_text("foreign")
        with pytest.raises(ChangedError, match="changed by somebody else"):
            replacement.commit()
    assert (root / "a").read_text() == "foreign"
    assert os.listdir(root) == ["a"]


# The set


def test_writers_are_left_out_where_they_are_not_wanted(root: Path) -> None:
    """Without `allow_write` nothing that changes a file is offered."""
    reading = {tool.name for tool in coding_tools(root, allow_write=False)}
    assert reading == {"read_file", "list_dir", "find_files", "grep"}
    assert {tool.name for tool in coding_tools(root)} - reading == {"write_file", "edit_file"}


def test_a_workspace_is_a_folder(root: Path) -> None:
    """A workspace that is not there, or no folder, is an error when the tools are made."""
    (root / "a").write_text("")
    with pytest.raises(NotADirectoryError):
        coding_tools(root / "a")
    with pytest.raises(FileNotFoundError):
        coding_tools(root / "b")


def test_descriptors_are_given_back(root: Path) -> None:
    """Making and dropping tools, and walks that fail, keep no descriptor."""
    (root / "a/b").mkdir(parents=True)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        space = Workspace(root)
        with pytest.raises(ValueError), space.place("a/b/../../../x"):
            pytest.fail("it leads outside")
        del space
    assert len(os.listdir("/proc/self/fd")) == before
