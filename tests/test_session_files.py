"""Session files as others write them, as they are made, and who is said to write to them."""

from __future__ import annotations

import builtins
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from trio_agent import CompactionEnd, MessageEnd, UserMessage, encode
from trio_agent.session import SessionLockedError, SessionLog, load_session

HEADER = b'{"type":"session","version":1}\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.jsonl"


def line(value: Any) -> bytes:
    return json.dumps(encode(value)).encode() + b"\n"


# Reading


@pytest.mark.parametrize("version", [b"0", b'"1"', b"true", b"null"])
def test_a_header_without_a_version_is_a_problem(path: Path, version: bytes) -> None:
    """What is no number from 1 on is said; the messages behind it are there."""
    path.write_bytes(HEADER + b'{"type":"session","version":' + version + b"}\n" + line(UserMessage("a")))
    session = load_session(path)
    (problem,) = session.problems
    assert problem.line == 2
    assert "not a number from 1 on" in str(problem)
    assert session.messages == (UserMessage("a"),)


def test_messages_alone_are_history(path: Path) -> None:
    """A file of messages without events, as others may write it, is a session."""
    path.write_bytes(HEADER + line(UserMessage("a")) + line(UserMessage("b")))
    session = load_session(path)
    assert session.messages == (UserMessage("a"), UserMessage("b"))
    assert session.problems == ()


def test_a_compaction_that_failed_changes_nothing(path: Path) -> None:
    """History stays as it was."""
    path.write_bytes(HEADER + line(MessageEnd(UserMessage("a"))) + line(CompactionEnd("failed", error="no room")))
    assert load_session(path).messages == (UserMessage("a"),)


# Writing


def test_a_new_file_is_on_the_disk_with_its_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `fsync` the folder of a file that was just begun is synced too; that of an older one is not."""
    syncing = os.fsync
    synced: list[str] = []

    def sync(descriptor: int) -> None:
        synced.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        syncing(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    for expected in (["file", "folder", "file"], ["file"]):
        synced.clear()
        SessionLog(path, fsync=True).close()
        assert synced == expected


def test_a_log_says_which_file_it_writes(path: Path) -> None:
    """Its representation names the file, and says when it is closed."""
    with SessionLog(path) as log:
        assert repr(log) == f"<SessionLog {os.path.realpath(path)!r}>"
    assert repr(log).endswith(", closed>")


# The lock


@pytest.mark.parametrize("said", [b"", b"{", b"[1]", b'{"pid": 1}', b"\xff"])
def test_a_holder_that_has_not_signed_is_another_process(path: Path, said: bytes) -> None:
    """Whatever the lock's file says, the second one is refused with what is known."""
    with SessionLog(path):
        path.with_name("s.jsonl.lock").write_bytes(said)
        with pytest.raises(SessionLockedError, match="written by another process; end that one"):
            SessionLog(path)


def test_a_lock_library_that_is_broken_is_not_called_missing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where filelock is there and something that it needs is not, its own error says what."""
    importing = builtins.__import__

    def broken(name: str, *rest: Any) -> Any:
        return importing("no_such_part" if name == "filelock" else name, *rest)

    monkeypatch.setattr(builtins, "__import__", broken)
    with pytest.raises(ModuleNotFoundError, match="no_such_part"):
        SessionLog(path)
