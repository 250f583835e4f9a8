"""Text as the file tools take it: what is an image, which encoding, where in a long line, what an edit may say."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path
from typing import Any

import pytest
from tool_calls import fails, run_call, works

from trio_agent import Image, Tool
from trio_agent.tools import EditError, coding_tools
from trio_agent.tools._edits import apply_edits
from trio_agent.tools._text import BinaryError, detect, image_type

pytestmark = pytest.mark.real_time


@pytest.fixture
def tools(tmp_path: Path) -> tuple[Tool, ...]:
    return coding_tools(tmp_path)


# Reading


@pytest.mark.parametrize("where", ["offset", "limit", "column"])
async def test_places_count_from_one(tmp_path: Path, tools: tuple[Tool, ...], where: str) -> None:
    """Line 0, column 0 and no lines at all are errors that say so."""
    (tmp_path / "a").write_text("x\n")
    assert "count from 1" in await fails(tools, "read_file", path="a", **{where: 0})


@pytest.mark.parametrize(
    "data", [b"RIFF\x24\0\0\0WEBPVP8 ", b"\xff\xd8\xff\xe0", b"GIF89a\x01\0\x01\0", b"RIFF\x24\0\0\0WAVE"]
)
def test_images_are_known_by_their_first_bytes(data: bytes) -> None:
    """WebP, JPEG and GIF are images; a sound file that begins like WebP is none."""
    kinds = {b"RIFF": "image/webp", b"\xff\xd8\xff\xe0": "image/jpeg", b"GIF8": "image/gif"}
    assert image_type(data) == (None if b"WAVE" in data else kinds[data[:4]])


async def test_an_image_that_services_refuse_is_not_sent(tmp_path: Path, tools: tuple[Tool, ...]) -> None:
    """An image of more than 5 MB is an error with its size; one of just 5 MB is shown."""
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n".ljust(5 * 1024 * 1024, b"\0"))
    shown = await run_call(tools, "read_file", path="a.png")
    assert any(isinstance(block, Image) for block in shown.content)
    with (tmp_path / "a.png").open("ab") as file:
        file.write(b"\0")
    assert "an image of 5242881 bytes" in await fails(tools, "read_file", path="a.png")


async def test_a_line_behind_a_line_of_megabytes_is_found(tmp_path: Path, tools: tuple[Tool, ...]) -> None:
    """Lines are counted by their ends, however many pieces one is read in."""
    (tmp_path / "a").write_text("x" * 2_500_000 + "\nsecond\nthird\n")
    assert await works(tools, "read_file", path="a", offset=2) == "second\nthird\n"
    assert "fewer than 4 lines" in await fails(tools, "read_file", path="a", offset=4)


async def test_the_rest_of_a_long_line_says_how_to_go_on(tmp_path: Path, tools: tuple[Tool, ...]) -> None:
    """The end of a long line names the next one, if there is one; behind the end there is nothing, and that is said."""
    (tmp_path / "a").write_text("x" * 1_100_000 + "\nsecond\n")
    rest = await works(tools, "read_file", path="a", column=1_099_998)
    assert rest == "xxx\n[go on with offset 2]"
    assert "fewer than 1200001 characters" in await works(tools, "read_file", path="a", column=1_200_001)
    (tmp_path / "b").write_text("x" * 1_100_000)
    assert await works(tools, "read_file", path="b", column=1_099_998) == "xxx"


async def test_behind_the_end_of_a_short_line_there_is_nothing(tmp_path: Path, tools: tuple[Tool, ...]) -> None:
    """A column that a line does not have is said, and is no reason to show more of the file than at other times."""
    (tmp_path / "a").write_text("short\n" + "y" * 70 + "\n" + ("z" * 99 + "\n") * 1000)
    assert await works(tools, "read_file", path="a", column=900_000) == "(line 1 has fewer than 900000 characters)"
    assert (await works(tools, "read_file", path="a", column=5, limit=1)).startswith("t\n[lines 1 to 1, ")


# Encodings


def test_bytes_in_no_encoding_are_no_text() -> None:
    """What no encoding explains is refused rather than shown as something else."""
    with pytest.raises(BinaryError, match="no encoding that is known"):
        detect(bytes(range(1, 256)))


def test_what_is_not_utf8_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library that guesses, the error names the extra; UTF-8 and what has a mark work without."""
    monkeypatch.setitem(sys.modules, "charset_normalizer", None)
    with pytest.raises(BinaryError, match=r"trio-agent\[tools\]"):
        detect("Größe".encode("latin-1"))
    assert detect("Größe".encode()).name == "utf-8"
    assert detect("Größe".encode("utf-16")).name == "utf-16-le with a byte order mark"


def test_a_library_that_is_broken_is_not_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the library is there and something that it needs is not, its own error says what."""
    importing = builtins.__import__

    def broken(name: str, *rest: Any) -> Any:
        return importing("no_such_part" if name == "charset_normalizer" else name, *rest)

    monkeypatch.setattr(builtins, "__import__", broken)
    with pytest.raises(ModuleNotFoundError, match="no_such_part"):
        detect("Größe".encode("latin-1"))


async def test_a_file_that_its_encoding_would_not_give_back_is_not_edited(
    tmp_path: Path, tools: tuple[Tool, ...]
) -> None:
    """Of two byte sequences for one character an edit would keep only one: the file is left alone."""
    data = "これは日本語の文章です。漢字とかなを含みます。\n".encode("cp932") * 9 + b"\xee\xf9 end\n"
    (tmp_path / "a").write_bytes(data)
    said = await fails(tools, "edit_file", path="a", edits=[{"old_text": "end", "new_text": "END"}])
    assert "cannot be edited as cp932: bytes that are not touched would change" in said
    assert (tmp_path / "a").read_bytes() == data


async def test_what_is_no_text_may_be_replaced_by_text(tmp_path: Path, tools: tuple[Tool, ...]) -> None:
    """A whole new text takes the place of binary content, as UTF-8."""
    (tmp_path / "a").write_bytes(b"\0\1\2\r\n")
    await works(tools, "write_file", path="a", content="Größe\n")
    assert (tmp_path / "a").read_bytes() == "Größe\n".encode()


# Edits


def test_no_edits_are_an_error() -> None:
    """An empty list would report success for nothing."""
    with pytest.raises(EditError, match="there are no edits"):
        apply_edits("x", [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [("old", "a\nb"), ("x\r\nold", "x\r\na\r\nb"), ("x\nold", "x\na\nb"), ("old\r\n", "a\r\nb\r\n")],
)
def test_new_lines_end_like_those_around(text: str, expected: str) -> None:
    """A line end that is new is like the one behind, else the one before; in a text without any it is LF."""
    assert apply_edits(text, [{"old_text": "old", "new_text": "a\nb"}]) == expected
