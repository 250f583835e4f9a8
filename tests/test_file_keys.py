"""Which paths mean the same file (T8), on a real disk."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from trio_agent._file_keys import CaseProbe, FileKeys, IgnoresCase, absolute_path


def _case_is_ignored() -> bool:
    with tempfile.TemporaryDirectory(prefix="case-") as folder:
        return os.path.exists(os.path.join(os.path.dirname(folder), os.path.basename(folder).swapcase()))


CASE_IS_IGNORED = _case_is_ignored()
needs_case = pytest.mark.skipif(CASE_IS_IGNORED, reason="needs a file system that heeds case")


def sensitive(directory: str, status: os.stat_result) -> bool:
    return False


def ignoring(directory: str, status: os.stat_result) -> bool:
    return True


def share(one: str | Path, other: str | Path, keys: FileKeys | None = None) -> bool:
    """Whether the two paths have a key in common."""
    look_up = keys or FileKeys(sensitive)
    return not look_up.of([absolute_path(one)]).by_path.keys().isdisjoint(look_up.of([absolute_path(other)]).by_path)


Place = Callable[[Path], tuple[str | Path, str | Path]]


def _file(folder: Path) -> Path:
    path = folder / "file.txt"
    path.write_text("x")
    return path


def _dot(folder: Path) -> tuple[str, Path]:
    return f"{folder}/./file.txt", _file(folder)


def _doubled_slash(folder: Path) -> tuple[str, Path]:
    return f"{folder}//file.txt", _file(folder)


def _dot_dot(folder: Path) -> tuple[str, Path]:
    (folder / "sub").mkdir()
    return f"{folder}/sub/../file.txt", _file(folder)


def _dot_dot_through_a_linked_directory(folder: Path) -> tuple[str, Path]:
    (folder / "far" / "deep").mkdir(parents=True)
    (folder / "link").symlink_to(folder / "far" / "deep")
    return f"{folder}/link/../file.txt", _file(folder / "far")


def _relative(folder: Path) -> tuple[str, Path]:
    return os.path.relpath(_file(folder)), folder / "file.txt"


def _link_to_the_file(folder: Path) -> tuple[Path, Path]:
    (folder / "link").symlink_to("file.txt")
    return folder / "link", _file(folder)


def _link_to_a_link(folder: Path) -> tuple[Path, Path]:
    (folder / "first").symlink_to("second")
    (folder / "second").symlink_to(_file(folder))
    return folder / "first", folder / "file.txt"


def _link_to_a_directory_on_the_way(folder: Path) -> tuple[Path, Path]:
    (folder / "real").mkdir()
    (folder / "link").symlink_to("real")
    return folder / "link" / "file.txt", _file(folder / "real")


def _missing_below_a_linked_directory(folder: Path) -> tuple[Path, Path]:
    (folder / "real").mkdir()
    (folder / "link").symlink_to("real")
    return folder / "link" / "new", folder / "real" / "new"


def _missing_below_missing_directories(folder: Path) -> tuple[Path, Path]:
    (folder / "real").mkdir()
    (folder / "link").symlink_to("real")
    return folder / "link" / "a" / "b" / "new", folder / "real" / "a" / "b" / "new"


def _dangling_link(folder: Path) -> tuple[Path, Path]:
    (folder / "dangling").symlink_to("new")
    return folder / "dangling", folder / "new"


def _hard_link(folder: Path) -> tuple[Path, Path]:
    os.link(_file(folder), folder / "hard")
    return folder / "hard", folder / "file.txt"


def _hard_link_behind_a_link(folder: Path) -> tuple[Path, Path]:
    os.link(_file(folder), folder / "hard")
    (folder / "link").symlink_to("hard")
    return folder / "link", folder / "file.txt"


def _unicode_normalisation(folder: Path) -> tuple[Path, Path]:
    return folder / "caf\u00e9", folder / "cafe\u0301"


def _a_directory_and_its_dot(folder: Path) -> tuple[str, Path]:
    return f"{folder}/.", folder


def _trailing_slash(folder: Path) -> tuple[str, Path]:
    return f"{folder}/new/", folder / "new"


SAME: list[Place] = [
    _dot,
    _doubled_slash,
    _dot_dot,
    _dot_dot_through_a_linked_directory,
    _relative,
    _link_to_the_file,
    _link_to_a_link,
    _link_to_a_directory_on_the_way,
    _missing_below_a_linked_directory,
    _missing_below_missing_directories,
    _dangling_link,
    _hard_link,
    _hard_link_behind_a_link,
    _unicode_normalisation,
    _a_directory_and_its_dot,
    _trailing_slash,
]


@pytest.mark.parametrize("place", SAME, ids=lambda place: place.__name__.strip("_"))
def test_t8_two_spellings_of_one_file_share_a_key(place: Place, tmp_path: Path) -> None:
    """However a file is spelled and linked, there or not there yet, two paths to it have a key in common."""
    one, other = place(tmp_path)
    assert share(one, other)
    assert share(other, one)


def test_t8_other_files_share_no_key(tmp_path: Path) -> None:
    """Files that merely lie beside each other, or have the same name elsewhere, have nothing in common."""
    (tmp_path / "sub").mkdir()
    _file(tmp_path)
    _file(tmp_path / "sub")
    names = ["file.txt", "sub/file.txt", "new", "sub/new", "newer", "sub", ".", "x/new", "x/y/new"]
    names += [] if CASE_IS_IGNORED else ["File.txt", "NEW"]
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            assert not share(tmp_path / one, tmp_path / other), (one, other)


def test_t8_dot_dot_behind_a_link_is_not_taken_by_its_spelling(tmp_path: Path) -> None:
    """`link/../x` lies beside the directory that the link leads to, not beside the link."""
    (tmp_path / "far" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "deep")
    assert not share(f"{tmp_path}/link/../new", tmp_path / "new")
    assert share(f"{tmp_path}/link/../new", tmp_path / "far" / "new")


def test_t8_a_link_is_also_a_file_of_its_own(tmp_path: Path) -> None:
    """A writer that replaces the link itself is kept from another that comes when the link is a file already."""
    _file(tmp_path)
    link = tmp_path / "link"
    link.symlink_to("file.txt")
    keys = FileKeys(sensitive)
    before = keys.of([absolute_path(link)]).by_path.keys()
    link.unlink()
    link.write_text("now a file")
    assert not before.isdisjoint(keys.of([absolute_path(link)]).by_path)


def test_t8_a_file_that_comes_to_be_keeps_a_key(tmp_path: Path) -> None:
    """Made, replaced, removed, below directories that are made on the way: each state shares a key with the last."""
    path = tmp_path / "a" / "b" / "new"
    keys = FileKeys(sensitive)

    def look() -> set[object]:
        return set(keys.of([absolute_path(path)]).by_path)

    states = [look()]
    path.parent.mkdir(parents=True)
    states.append(look())
    path.write_text("1")
    states.append(look())
    (tmp_path / "other").write_text("2")
    (tmp_path / "other").replace(path)
    states.append(look())
    path.unlink()
    states.append(look())
    for at, one in enumerate(states):
        for other in states[at + 1 :]:
            assert one & other


def test_t8_a_directory_that_was_retargeted_is_seen(tmp_path: Path) -> None:
    """What is remembered of a directory is dropped as soon as its path leads elsewhere."""
    for name in ("old", "young"):
        (tmp_path / name).mkdir()
    link = tmp_path / "link"
    link.symlink_to("old")
    keys = FileKeys(sensitive)
    assert share(link / "new", tmp_path / "old" / "new", keys)
    link.unlink()
    link.symlink_to("young")
    assert share(link / "new", tmp_path / "young" / "new", keys)
    assert not share(link / "new", tmp_path / "old" / "new", keys)


@pytest.mark.parametrize("spelling", ["new/", "new/.", "new/sub/.."])
def test_t8_a_directory_that_comes_to_be_keeps_a_key(spelling: str, tmp_path: Path) -> None:
    """A last component that names nothing of its own is resolved, before and after the directory is there."""
    keys = FileKeys(sensitive)
    before = keys.of([absolute_path(f"{tmp_path}/{spelling}")]).by_path.keys()
    (tmp_path / "new" / "sub").mkdir(parents=True)
    assert not before.isdisjoint(keys.of([absolute_path(f"{tmp_path}/{spelling}")]).by_path)


@pytest.mark.parametrize(("case", "ignores_case"), [("new", sensitive), ("NEW", ignoring)])
def test_t8_a_directory_that_was_renamed_is_known_by_its_inode(
    case: str, ignores_case: IgnoresCase, tmp_path: Path
) -> None:
    """What is remembered of its path is old then, and a file in it that is not there yet is recognised all the same."""
    (tmp_path / "old").mkdir()
    link = tmp_path / "link"
    link.symlink_to("old")
    keys = FileKeys(ignores_case)
    assert keys.of([absolute_path(link / "new")]).by_path
    (tmp_path / "old").rename(tmp_path / "young")
    link.unlink()
    link.symlink_to("young")
    assert share(link / "new", tmp_path / "young" / case, keys)


def test_several_paths_have_the_keys_of_each(tmp_path: Path) -> None:
    """Every key names the path that it came from, and hard links are told."""
    one, two = absolute_path(_file(tmp_path)), absolute_path(tmp_path / "two")
    found = FileKeys(sensitive).of([one, two])
    assert set(found.by_path.values()) == {one, two}
    assert not found.linked
    os.link(one, tmp_path / "hard")
    assert FileKeys(sensitive).of([two, one]).linked


def test_a_directory_is_not_taken_for_hard_linked(tmp_path: Path) -> None:
    """The link count of a directory speaks of its subdirectories."""
    (tmp_path / "sub").mkdir()
    assert not FileKeys(sensitive).of([absolute_path(tmp_path)]).linked


def test_paths_that_lead_nowhere_still_have_keys(tmp_path: Path) -> None:
    """A loop, a file in the place of a directory, a name too long, a chain of a thousand links: never an exception."""
    (tmp_path / "loop").symlink_to("loop")
    _file(tmp_path)
    for at in range(1200):
        (tmp_path / f"chain{at}").symlink_to(f"chain{at + 1}")
    for path in ("loop", "loop/new", "file.txt/new", "n" * 300, "chain0", "chain0/new"):
        found = FileKeys().of([absolute_path(tmp_path / path)]).by_path
        assert found
        assert found.keys() == FileKeys().of([absolute_path(tmp_path / path)]).by_path.keys()
    assert share("/", "/..")


@pytest.mark.skipif(not os.path.islink("/proc/2/exe"), reason="needs a link that cannot be read")
def test_a_link_that_cannot_be_read_has_keys() -> None:
    """A kernel thread's `exe` is a link, and reading it fails."""
    assert FileKeys().of(["/proc/2/exe", "/proc/2/exe/new"]).by_path


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("", "the path is empty"),
        ("a\0b", "contains a NUL character"),
        ("x" * 40_000, "is 40000 characters long"),
        ("a\ud800b", "contains characters that no file name can"),
    ],
)
def test_a_path_that_can_name_no_file_is_a_clear_error(path: str, words: str) -> None:
    """Bad input of a model is told in words, and none of them is thousands of characters long."""
    with pytest.raises(ValueError, match=words) as caught:
        absolute_path(path)
    assert len(str(caught.value)) < 400


def test_a_relative_path_is_taken_from_the_working_directory_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later change of the working directory does not change what was asked for."""
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    path = absolute_path("new")
    monkeypatch.chdir(tmp_path / "sub")
    assert share(path, tmp_path / "new")


# -- letter case ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("new", "NEW"),
        ("Sub/new", "sub/New"),
        ("straße", "STRASSE"),
        ("caf\u00e9", "CAFE\u0301"),
        ("made/later/new", "Made/LATER/New"),
    ],
)
def test_t8_other_letter_case_is_the_same_file_where_the_directory_ignores_case(
    one: str, other: str, tmp_path: Path
) -> None:
    """Where case is ignored a file that is not there yet is found under any case, and only there."""
    assert share(tmp_path / one, tmp_path / other, FileKeys(ignoring))
    assert not share(tmp_path / one, tmp_path / other, FileKeys(sensitive))


def test_t8_directories_made_in_between_do_not_hide_another_case(tmp_path: Path) -> None:
    """Who asked before the directory was made and who asks after it share a key."""
    keys = FileKeys(ignoring)
    before = keys.of([absolute_path(tmp_path / "made" / "new")]).by_path.keys()
    (tmp_path / "made").mkdir()
    assert not before.isdisjoint(keys.of([absolute_path(tmp_path / "made" / "NEW")]).by_path)


def test_the_probe_agrees_with_this_file_system(tmp_path: Path) -> None:
    """What the probe says of a directory is what the file system does in it, with and without entries."""
    (tmp_path / "Probe").mkdir()
    truth = (tmp_path / "pROBE").exists()
    probe = CaseProbe()
    for directory in (tmp_path, tmp_path / "Probe"):
        assert probe(str(directory), directory.stat()) is truth
    assert share(tmp_path / "new", tmp_path / "NEW", FileKeys()) is truth


class Folding:
    """`os.lstat` of a file system that ignores case, over one that does not; counts the questions."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, path: str) -> os.stat_result:
        self.asked += 1
        directory, leaf = os.path.split(path)
        name = next(name for name in os.listdir(directory) if name.casefold() == leaf.casefold())
        return os.lstat(os.path.join(directory, name))


def test_the_probe_finds_an_entry_under_another_case(tmp_path: Path) -> None:
    """One entry that is there under another case, too, tells; the answer is kept, and nothing is created."""
    _file(tmp_path)
    (tmp_path / "123").touch()
    before = sorted(tmp_path.iterdir())
    lstat = Folding()
    probe = CaseProbe(lstat)
    assert probe(str(tmp_path), tmp_path.stat())
    asked = lstat.asked
    assert probe(str(tmp_path), tmp_path.stat())
    assert lstat.asked == asked
    assert sorted(tmp_path.iterdir()) == before


def test_the_probe_takes_an_empty_directory_to_be_like_the_one_it_lies_in(tmp_path: Path) -> None:
    """Without an entry to look up, the directory's own name is; and that is not kept."""
    empty = tmp_path / "empty"
    empty.mkdir()
    assert CaseProbe(Folding())(str(empty), empty.stat())
    probe = CaseProbe()
    truth = (tmp_path / "EMPTY").exists()
    assert probe(str(empty), empty.stat()) is truth
    (empty / "Entry").touch()
    assert probe(str(empty), empty.stat()) is truth


@needs_case
def test_the_probe_is_not_deceived_by_hard_links(tmp_path: Path) -> None:
    """Two hard links whose names differ in case prove nothing."""
    folder = tmp_path / "links"
    folder.mkdir()
    os.link(_file(folder), folder / "FILE.TXT")
    assert not CaseProbe()(str(folder), folder.stat())


@needs_case
def test_the_probe_knows_two_entries_that_differ_in_case(tmp_path: Path) -> None:
    """Two files of their own under both cases: case is heeded."""
    folder = tmp_path / "both"
    folder.mkdir()
    (folder / "a").touch()
    (folder / "A").touch()
    assert not CaseProbe()(str(folder), folder.stat())


def test_the_probe_of_a_file_system_without_names_to_look_up(tmp_path: Path) -> None:
    """At the root of a file system, with nothing to look up, the operating system's usual holds."""

    def nothing(path: str) -> os.stat_result:
        raise FileNotFoundError(2, "no such file", path)

    probe = CaseProbe(nothing)
    assert probe("/", os.stat("/")) is (sys.platform in ("darwin", "win32"))


def test_the_probe_does_not_ask_the_directory_around_a_mount_point(tmp_path: Path) -> None:
    """An empty directory on another device than the one it lies in is not taken to be like that."""
    empty = tmp_path / "empty"
    empty.mkdir()
    here = empty.stat()
    mounted = os.stat_result((here.st_mode, here.st_ino, here.st_dev + 1, *here[3:10]))
    assert CaseProbe(Folding())(str(empty), mounted) is (sys.platform in ("darwin", "win32"))


def test_what_is_kept_of_directories_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many directories are looked at, no more than so many are remembered."""
    monkeypatch.setattr("trio_agent._file_keys._DIRECTORIES_KEPT", 3)
    keys = FileKeys(probe := CaseProbe())
    for at in range(10):
        (tmp_path / f"d{at}").mkdir()
        _file(tmp_path / f"d{at}")
        assert keys.of([absolute_path(tmp_path / f"d{at}" / "new")]).by_path
    assert 1 <= len(keys._resolved) <= 3
    assert 1 <= len(probe._known) <= 3
