"""Topic 12: session logs as others have met them (B132, B133, B136, B137, B139)."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from scenes import assert_idle, assert_paired, assert_settled, make_agent, said

from trio_agent import (
    AgentEnd,
    AgentStart,
    AssistantMessage,
    Message,
    MessageEnd,
    ToolCall,
    ToolResultMessage,
    TurnStart,
    UserMessage,
    encode,
    tool,
)
from trio_agent.session import PROCESS_ENDED, SessionLockedError, SessionLog, load_session
from trio_agent.testing import ScriptedProvider, finish

ROOT = Path(__file__).resolve().parent.parent.parent
HEADER = b'{"type":"session","version":1}\n'


def line(event: Any) -> bytes:
    return json.dumps(encode(event)).encode() + b"\n"


def end(message: Message) -> bytes:
    return line(MessageEnd(message))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.jsonl"


def append(path: Path, message: Message) -> None:
    with SessionLog(path) as log:
        log(MessageEnd(message))


# B132


def test_b132_a_torn_line_costs_itself_alone(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Behind a torn last line the next record is whole: four messages, and a warning about the torn one."""
    good = HEADER + b"".join(end(UserMessage(str(n))) for n in range(3))
    path.write_bytes(good + b'{"type":"message","te')
    append(path, UserMessage("3"))
    session = load_session(path)
    assert said(session.messages) == ['user "0"', 'user "1"', 'user "2"', 'user "3"']
    assert [problem.line for problem in session.problems] == [5]
    assert "line 5" in caplog.text
    assert path.read_bytes().startswith(good)


def test_b132_a_record_that_lacks_its_newline_is_kept(path: Path) -> None:
    """A last record without its newline is whole; the next is on a line of its own."""
    path.write_bytes(HEADER + end(UserMessage("a")).rstrip())
    assert load_session(path).problems == ()
    append(path, UserMessage("b"))
    session = load_session(path)
    assert said(session.messages) == ['user "a"', 'user "b"']
    assert session.problems == ()


@pytest.mark.parametrize("tail", [b"", b'{"type":"mess', b"\0\0\0", b'{"type":"message_end","message":{"role":"u\xc3'])
def test_b132_reading_changes_no_byte(path: Path, tail: bytes) -> None:
    """Loading leaves the file as it is, and nothing beside it."""
    data = HEADER + end(UserMessage("a")) + tail
    path.write_bytes(data)
    path.chmod(0o444)
    load_session(path)
    assert path.read_bytes() == data
    assert [entry.name for entry in path.parent.iterdir()] == ["s.jsonl"]


# B133


def test_b133_a_tail_cut_inside_a_character(path: Path) -> None:
    """Half a character at the end neither stops the reader nor the writer."""
    path.write_bytes(HEADER + end(UserMessage("a")) + b'{"type":"message_end","message":{"role":"user","text":"caf\xc3')
    before = path.stat().st_size
    assert "not UTF-8" in str(load_session(path).problems[0])
    append(path, UserMessage("b"))
    assert path.stat().st_size > before
    assert said(load_session(path).messages) == ['user "a"', 'user "b"']


async def test_b133_a_full_disk_is_an_error_that_is_seen(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be written fails the run with the `OSError`, lawfully."""

    def full(_fd: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")

    log = SessionLog(path)
    agent, recorder = make_agent(ScriptedProvider(["x", finish()]))
    agent.subscribe(log)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        result = await agent.prompt("hi")
        with pytest.raises(OSError, match="no space left"):
            log.close()
    assert result.outcome == "error"
    assert isinstance(result.error, OSError)
    assert_settled(recorder)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
async def test_b133_a_device_that_is_full_is_an_error_that_is_seen(path: Path) -> None:
    """The same with the system's own error, from a file that takes nothing."""
    log = SessionLog(path)
    agent, recorder = make_agent(ScriptedProvider(["x", finish()]))
    agent.subscribe(log)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, log._descriptor)
    os.close(full)
    result = await agent.prompt("hi")
    assert isinstance(result.error, OSError)
    assert result.error.errno == errno.ENOSPC
    with pytest.raises(OSError, match="No space left"):
        log.close()
    assert_settled(recorder)


def test_b133_a_file_that_may_not_be_written_is_refused(path: Path) -> None:
    """A folder in the file's place: the error comes when the log is opened, and names the path."""
    path.mkdir()
    with pytest.raises(IsADirectoryError, match=r"s\.jsonl"):
        SessionLog(path)


# B136


@pytest.mark.real_time
async def test_b136_a_second_writer_is_refused(path: Path) -> None:
    """The second opener in this process is refused and told who writes; the first one's records are whole."""
    with SessionLog(path) as log:

        async def write() -> None:
            for number in range(200):
                log(MessageEnd(UserMessage(f"{number:04}" * 5000)))
                await trio.lowlevel.checkpoint()

        async def intrude() -> None:
            for _ in range(50):
                with pytest.raises(SessionLockedError, match=f"process {os.getpid()}"):
                    SessionLog(path)
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            nursery.start_soon(intrude)
    session = load_session(path)
    assert session.problems == ()
    assert [m.text[:4] for m in session.messages] == [f"{n:04}" for n in range(200)]  # type: ignore[union-attr]


_WRITER = """
import sys
from trio_agent import MessageEnd, UserMessage
from trio_agent.session import SessionLog, SessionLockedError
name, path = sys.argv[1:]
written = 0
while written < 200:
    try:
        with SessionLog(path) as log:
            for _ in range(10):
                log(MessageEnd(UserMessage(name * 20_000)))
                written += 1
    except SessionLockedError:
        pass
"""


@pytest.mark.real_time
def test_b136_two_processes_never_interleave(path: Path) -> None:
    """Two processes that open the file in turns, refused while the other has it: 400 whole records."""
    writers = [
        subprocess.Popen([sys.executable, "-c", _WRITER, name, str(path)], cwd=ROOT, stderr=subprocess.PIPE)
        for name in "ab"
    ]
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert writer.returncode == 0, errors.decode()
    session = load_session(path)
    assert session.problems == ()
    texts = [message.text for message in session.messages]  # type: ignore[union-attr]
    assert sorted(texts) == ["a" * 20_000] * 200 + ["b" * 20_000] * 200


# B137


CALLS = AssistantMessage([ToolCall("c1", "look", {}), ToolCall("c2", "look", {})], "tool_use")


async def test_b137_a_turn_cut_off_among_its_calls(path: Path) -> None:
    """The agent is idle; the call without a result gets one that says so before the next request; none runs again."""

    @tool
    def look() -> str:
        """Look."""
        raise AssertionError("it runs again")

    start = HEADER + line(AgentStart()) + line(TurnStart(1)) + end(UserMessage("go")) + end(CALLS)
    path.write_bytes(start + end(ToolResultMessage("c1", "look", "real")))
    provider = ScriptedProvider(["ok", finish()])
    with SessionLog(path) as log:
        agent, recorder = make_agent(provider, tools=[look], messages=log.load().messages)
        assert_idle(agent)
        agent.subscribe(log)
        await agent.prompt("on")
    sent = provider.requests[0].messages
    assert_paired(sent)
    assert [m.text for m in sent if isinstance(m, ToolResultMessage)] == ["real", PROCESS_ENDED]
    assert "tool_execution_start" not in [event.type for event in recorder.events]
    assert_settled(recorder)
    assert list(load_session(path).messages) == list(agent.state.messages)


@pytest.mark.parametrize("tail", [b"", line(TurnStart(2))])
async def test_b137_a_turn_cut_off_at_its_start(path: Path, tail: bytes) -> None:
    """A log that ends after a user message, or after `turn_start`, loses nothing that was said."""
    path.write_bytes(HEADER + line(AgentStart()) + line(TurnStart(1)) + end(UserMessage("go")) + tail)
    provider = ScriptedProvider(["ok", finish()])
    agent, recorder = make_agent(provider, messages=load_session(path).messages)
    assert_idle(agent)
    assert provider.requests == []
    await agent.prompt("on")
    assert said(provider.requests[0].messages) == ['user "go"', 'user "on"']
    assert_settled(recorder)


# B139


async def test_b139_an_old_failure_is_not_a_new_one(path: Path) -> None:
    """A session whose last run failed opens without an event or an error, and the next prompt works."""
    failed = AssistantMessage((), "error", error_message="529 overloaded")
    run = [line(AgentStart()), line(TurnStart(1)), end(UserMessage("go")), end(failed)]
    path.write_bytes(HEADER + b"".join(run) + line(AgentEnd("error", error="529 overloaded", turns=1)))
    with SessionLog(path) as log:
        agent, recorder = make_agent(ScriptedProvider(["fine", finish()]), messages=log.load().messages)
        agent.subscribe(log)
        assert recorder.events == []
        assert agent.state.error_message is None
        result = await agent.prompt("again")
    assert result.outcome == "completed"
    assert agent.state.error_message is None
    assert_settled(recorder)


def test_b139_what_is_unknown_is_skipped_and_kept(path: Path) -> None:
    """Unknown records are skipped with a warning, unknown fields passed over; all of it is still in the file."""
    known = json.loads(end(UserMessage("b")))
    strange = b'{"type":"mood","value":"good"}\n' + json.dumps({**known, "mood": "good"}).encode() + b"\n"
    path.write_bytes(HEADER + end(UserMessage("a")) + strange)
    session = load_session(path)
    assert said(session.messages) == ['user "a"', 'user "b"']
    assert [problem.line for problem in session.problems] == [3]
    append(path, UserMessage("c"))
    assert strange in path.read_bytes()
    assert len(load_session(path).messages) == 3
