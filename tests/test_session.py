"""The session log and its reader: what is written is the history, and whatever was left of it can be sent."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scenes import assert_paired, make_agent, said, trio_run

from trio_agent import (
    Agent,
    AgentStart,
    AssistantMessage,
    Compaction,
    CompactionEnd,
    CompactionStart,
    CustomMessage,
    Finish,
    Image,
    Message,
    MessageEnd,
    ProviderError,
    RetryPolicy,
    RetryStart,
    Text,
    TextDelta,
    ToolCall,
    ToolExecutionEnd,
    ToolResultMessage,
    TurnStart,
    UserMessage,
    encode,
    project,
    tool,
)
from trio_agent._events import ErrorInfo
from trio_agent.session import (
    PROCESS_ENDED,
    NotASessionError,
    SessionLockedError,
    SessionLog,
    SessionVersionError,
    fork,
    load_session,
    save_session,
)
from trio_agent.testing import ScriptedProvider, call, finish, text

HEADER = b'{"type":"session","version":1}\n'


def end(message: Message) -> bytes:
    return json.dumps(encode(MessageEnd(message))).encode() + b"\n"


def record(event: Any) -> bytes:
    return json.dumps(encode(event)).encode() + b"\n"


def asks(*ids: str) -> AssistantMessage:
    return AssistantMessage([ToolCall(id, "look") for id in ids], "tool_use")


@tool
async def look(n: int = 0) -> str:
    """Look."""
    await trio.sleep(n)
    return f"saw {n}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.jsonl"


# The file is the history


async def test_the_file_is_the_history_once_the_agent_is_idle(path: Path) -> None:
    """A run of tools, text and thinking, read back, is what the agent's state has: whole and in order."""
    provider = ScriptedProvider(
        [
            text("look"),
            call("c1", "look", {"n": 2}),
            call("c2", "look", {"n": 1}),
            call("c3", "no"),
            finish("tool_use"),
        ],
        ["done \ud800 \u2028 é", finish()],
    )
    with SessionLog(path) as log:
        agent, recorder = make_agent(provider, tools=[look])
        agent.subscribe(log)
        await agent.prompt(["hi", CustomMessage("mark", {"a": [1, None]})])
        assert list(load_session(path).messages) == list(agent.state.messages)
    recorder.assert_lawful()
    session = load_session(path)
    assert session.problems == ()
    assert not session.unfinished
    assert path.read_bytes().endswith(b"\n")
    path.read_bytes().decode()  # valid UTF-8


async def test_every_line_is_whole_after_every_event(path: Path) -> None:
    """Whatever event a process dies behind, the file has no torn line, and loading finds no problem."""

    def look_at_file(event: object) -> None:
        assert path.read_bytes().endswith(b"\n")
        assert load_session(path).problems == ()

    with SessionLog(path) as log:
        agent, _ = make_agent(ScriptedProvider([call("c1", "look"), finish("tool_use")], ["x", finish()]), tools=[look])
        agent.subscribe(log)
        agent.subscribe(look_at_file)
        result = await agent.prompt("hi")
    assert result.outcome == "completed"


async def test_a_result_is_in_the_file_before_history_takes_it(path: Path) -> None:
    """A call that ended while its sibling runs has its result in the file: a kill then costs the sibling's alone."""
    seen: list[list[str]] = []

    def look_at_file(event: Any) -> None:
        if event.type == "tool_execution_end":
            seen.append([message.text for message in load_session(path).messages[2:]])

    with SessionLog(path) as log:
        script = [call("c1", "look", {"n": 5}), call("c2", "look", {"n": 1}), finish("tool_use")]
        agent, _ = make_agent(ScriptedProvider(script, ["x", finish()]), tools=[look])
        agent.subscribe(log)
        agent.subscribe(look_at_file)
        await agent.prompt("hi")
    assert seen == [[PROCESS_ENDED, "saw 1"], ["saw 5", "saw 1"]]


async def test_a_retried_attempt_is_not_in_the_history(path: Path) -> None:
    """A failed attempt that a retry took out of history is out of the session as well."""
    failure = ProviderError("overloaded", "busy", retryable=True)
    with SessionLog(path) as log:
        agent, _ = make_agent(ScriptedProvider(["half", failure], [failure], ["whole", finish()]))
        agent.subscribe(log)
        await agent.prompt("hi")
        assert said(load_session(path).messages) == said(agent.state.messages)
    assert len(load_session(path).messages) == 2


async def test_a_failed_run_ends_in_its_closing_message(path: Path) -> None:
    """A run that fails is in the session with the message that says why."""
    with SessionLog(path) as log:
        agent, _ = make_agent(ScriptedProvider(["half", RuntimeError("broke")]), retry=RetryPolicy(max_attempts=1))
        agent.subscribe(log)
        await agent.prompt("hi")
    assert list(load_session(path).messages) == list(agent.state.messages)


async def test_a_compaction_is_followed(path: Path) -> None:
    """Compacted history is what the session has, also when the file is gone on with."""

    class EveryTime:
        def threshold(self, state: Any) -> bool:
            return len(state.messages) > 4

        async def compact(self, messages: Sequence[Message], reason: str) -> Compaction:
            await trio.lowlevel.checkpoint()
            return Compaction(UserMessage("so far"), len(messages) - 2)

    for number in range(6):
        with SessionLog(path) as log:
            agent, _ = make_agent(
                ScriptedProvider([f"answer {number}", finish()]), compaction=EveryTime(), messages=log.load().messages
            )
            agent.subscribe(log)
            await agent.prompt(f"question {number}")
        assert said(load_session(path).messages) == said(agent.state.messages)
    assert any(b"compaction_end" in line for line in path.read_bytes().split(b"\n"))


async def test_a_trace_is_a_session_too(path: Path) -> None:
    """With `trace` every event is in the file, and the history that it gives is the same."""
    script = [text("lo", "ok"), call("c1", "look"), finish("tool_use")]
    with SessionLog(path, trace=True) as log:
        agent, recorder = make_agent(ScriptedProvider(script, ["x", finish()]), tools=[look])
        agent.subscribe(log)
        await agent.prompt("hi")
    types = [json.loads(line)["type"] for line in path.read_bytes().splitlines()]
    assert types == ["session", *recorder.types]
    session = load_session(path)
    assert list(session.messages) == list(agent.state.messages)
    assert session.problems == ()


async def test_with_fsync_the_subscriber_waits_for_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `fsync` each record is synced before the run goes on; without it none is."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_size))
    with SessionLog(path) as log:
        log(MessageEnd(UserMessage("a")))
    assert synced == []
    with SessionLog(path, fsync=True) as log:
        waiting = log(MessageEnd(UserMessage("b")))
        assert waiting is not None
        assert synced == []
        await waiting
        assert synced == [path.stat().st_size]


# Going on


async def test_a_session_is_gone_on_with(path: Path) -> None:
    """Run after run, each by an agent of its own, the history grows by what each says."""
    history: list[Message] = []
    for number in range(3):
        with SessionLog(path) as log:
            assert list(log.load().messages) == history
            agent, _ = make_agent(ScriptedProvider([f"a{number}", finish()]), messages=log.load().messages)
            agent.subscribe(log)
            await agent.prompt(f"q{number}")
            history = list(agent.state.messages)
    assert len(history) == 6
    assert path.read_bytes().count(b'"type":"session"') == 1


async def test_repair_and_going_on_are_idempotent(path: Path) -> None:
    """A session that was cut off gives the same history at each load, and once more after it was gone on with."""
    path.write_bytes(HEADER + record(AgentStart()) + end(UserMessage("go")) + end(asks("c1", "c2")))
    once = load_session(path)
    assert once.interrupted == ("c1", "c2")
    assert once.unfinished
    assert load_session(path) == once
    with SessionLog(path) as log:
        agent, _ = make_agent(ScriptedProvider(["ok", finish()]), messages=log.load().messages)
        agent.subscribe(log)
        await agent.prompt("again")
    assert load_session(path).messages[: len(once.messages)] == once.messages
    assert list(load_session(path).messages) == list(agent.state.messages)
    assert_paired(load_session(path).messages)


async def test_a_session_cut_off_in_a_stream_is_resumed(path: Path) -> None:
    """A process that died before the answer leaves a history that `resume` answers."""
    path.write_bytes(HEADER + record(AgentStart()) + record(TurnStart(1)) + end(UserMessage("go")))
    with SessionLog(path) as log:
        agent, _ = make_agent(ScriptedProvider(["here", finish()]), messages=log.load().messages)
        agent.subscribe(log)
        result = await agent.resume()
    assert result.text == "here"
    assert said(load_session(path).messages) == ['user "go"', 'assistant stop "here"']


# Damage


def test_a_bad_line_in_the_middle_is_reported(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What cannot be read is passed over, said in the result with its line, and logged; the rest is there."""
    bad = [b"{torn", b"[1]", b'"x"', b"\xff\xfe", b'{"type":"new_thing"}', b"NaN", b"[" * 100_000]
    path.write_bytes(HEADER + end(UserMessage("a")) + b"\n".join(bad) + b"\n" + end(UserMessage("b")))
    session = load_session(path)
    assert said(session.messages) == ['user "a"', 'user "b"']
    assert [problem.line for problem in session.problems] == list(range(3, 3 + len(bad)))
    assert "7 lines" in caplog.text


def test_a_stray_part_is_no_message(path: Path) -> None:
    """A content block alone in a line is reported, and not taken for something said."""
    path.write_bytes(HEADER + b'{"type":"text","text":"x"}\n')
    assert load_session(path).messages == ()
    assert "belongs to nothing" in str(load_session(path).problems[0])


@pytest.mark.parametrize("tail", [b"\0" * 5000, b"\0" * 5000 + b"\n", b"\n\n\r\n", b" "])
def test_nuls_and_blanks_cost_nothing(path: Path, tail: bytes) -> None:
    """NULs, which a crash of the machine leaves, hide no record: neither before them nor behind them."""
    path.write_bytes(HEADER + end(UserMessage("a")) + tail + end(UserMessage("b")))
    session = load_session(path)
    assert said(session.messages) == ['user "a"', 'user "b"']
    assert bool(session.problems) == (b"\0" in tail)


def test_an_overlong_line_is_passed_over_in_bounded_memory(path: Path) -> None:
    """A line beyond the bound is never held: it is reported with its size, and the next line is read."""
    for newline in (b"\n", b""):
        path.write_bytes(HEADER + end(UserMessage("a")) + b"x" * 5_000_000 + newline)
        with path.open("ab") as file:
            file.write(end(UserMessage("b")) if newline else b"")
        session = load_session(path, longest_line=1000)
        assert len(session.messages) == (2 if newline else 1)
        assert "5000000 bytes" in str(session.problems[0])


def test_a_huge_line_is_read(path: Path) -> None:
    """A message of 30 MB is a record like any other."""
    image = Image(b"\x00\xff" * 15_000_000, "image/png")
    path.write_bytes(HEADER + end(UserMessage([image])) + end(UserMessage("b")))
    session = load_session(path)
    assert session.messages == (UserMessage([image]), UserMessage("b"))


def test_a_result_without_its_call_is_reported(path: Path) -> None:
    """A result whose call was in a damaged line cannot be sent: it is left out, and said."""
    path.write_bytes(HEADER + end(UserMessage("a")) + b"{damaged\n" + end(ToolResultMessage("c1", "look", "x")))
    session = load_session(path)
    assert said(session.messages) == ['user "a"']
    assert "'c1'" in str(session.problems[1])


def test_a_compaction_behind_damage_keeps_rather_more(path: Path) -> None:
    """Where lines are lost the index of the first kept message is too high: no later message is lost to that."""
    messages = [end(UserMessage(str(n))) for n in range(6)]
    messages[1] = b"{damaged\n"
    kept = CompactionEnd("compacted", summary=UserMessage("sum"), first_kept=4)
    path.write_bytes(HEADER + b"".join(messages) + record(CompactionStart("threshold")) + record(kept))
    assert said(load_session(path).messages) == ['user "sum"', 'user "4"', 'user "5"']


def test_a_compaction_never_parts_a_call_from_its_result(path: Path) -> None:
    """An index that points between a call and its result keeps the call too."""
    history = [UserMessage("a"), asks("c1"), ToolResultMessage("c1", "look", "x")]
    kept = CompactionEnd("compacted", summary=UserMessage("sum"), first_kept=2)
    path.write_bytes(HEADER + b"".join(map(end, history)) + record(kept))
    assert_paired(load_session(path).messages)
    assert len(load_session(path).messages) == 3


def test_an_attempt_is_taken_back_only_by_its_own_retry(path: Path) -> None:
    """A closing message of an earlier run stays, although a retry follows it in the next run."""
    failed = AssistantMessage("half", "error", error_message="broke")
    retry = RetryStart(1, 4, 0.1, ErrorInfo("server", "x"))
    path.write_bytes(HEADER + end(UserMessage("a")) + end(failed) + record(AgentStart()) + record(retry))
    assert load_session(path).messages == (UserMessage("a"), failed)
    path.write_bytes(HEADER + end(UserMessage("a")) + end(failed) + record(retry))
    assert load_session(path).messages == (UserMessage("a"),)


_RECORDS = st.sampled_from(
    [
        record(AgentStart()),
        record(TurnStart(1)),
        end(UserMessage("u")),
        end(AssistantMessage("a")),
        end(AssistantMessage("e", "error")),
        end(asks("c1", "c2")),
        end(asks("c3")),
        end(ToolResultMessage("c1", "look", "x")),
        record(ToolExecutionEnd(ToolResultMessage("c2", "look", "y"))),
        record(RetryStart(1, 4, 0.1, ErrorInfo("server", "x"))),
        record(CompactionEnd("compacted", summary=UserMessage("sum"), first_kept=3)),
        b"{torn\n",
        b"\0\0\0\n",
    ]
)


@given(records=st.lists(_RECORDS, max_size=12), cut=st.integers(0, 300))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
def test_any_file_gives_a_history_that_can_be_sent(tmp_path: Path, records: list[bytes], cut: int) -> None:
    """Whatever the records and wherever the file was cut: paired, the same twice, and it can be gone on with."""
    place = tmp_path / "any.jsonl"
    data = HEADER + b"".join(records)
    place.write_bytes(data[: max(len(HEADER), len(data) - cut)])
    session = load_session(place)
    assert_paired(session.messages)
    assert_paired(project(session.messages))
    with SessionLog(place) as log:
        assert log.load() == session
        log(AgentStart())
        log(MessageEnd(UserMessage("on")))
    assert load_session(place).messages == (*session.messages, UserMessage("on"))


# Files as a whole


def test_a_later_format_is_refused(path: Path) -> None:
    """A header of a later version is a clear error, for reading and for writing, and nothing is written."""
    path.write_bytes(b'{"type":"session","version":2}\n' + end(UserMessage("a")))
    before = path.read_bytes()
    with pytest.raises(SessionVersionError, match="format 2, and this version of trio_agent reads up to 1"):
        load_session(path)
    with pytest.raises(SessionVersionError):
        SessionLog(path)
    assert path.read_bytes() == before


def test_nothing_is_written_into_other_files(path: Path) -> None:
    """A file in which nothing is a session's is refused, and stays as it is."""
    path.write_bytes(b"dear diary\n" * 3)
    with pytest.raises(NotASessionError, match="will not be written to"):
        SessionLog(path)
    with pytest.raises(NotASessionError, match="is no session"):
        load_session(path)
    assert path.read_bytes() == b"dear diary\n" * 3


def test_a_trace_is_read_but_not_gone_on_with(path: Path) -> None:
    """A log leaves out what history does not need: behind the events of a trace that would break its rules."""
    path.write_bytes(end(UserMessage("a")))
    with pytest.raises(NotASessionError, match="it is a trace, and will not be written to"):
        SessionLog(path)
    assert load_session(path).messages == (UserMessage("a"),)
    assert path.read_bytes() == end(UserMessage("a"))


@pytest.mark.parametrize("left", [b"", b'{"type":"sess', b'{"type":"session","version":1}', b"\0" * 40, b"{"])
def test_a_session_that_had_just_begun_is_a_session(path: Path, left: bytes) -> None:
    """Whatever a crash leaves of the first line, the file can be used, and has one good header then."""
    path.write_bytes(left)
    assert load_session(path).messages == ()
    with SessionLog(path) as log:
        log(MessageEnd(UserMessage("a")))
    assert load_session(path).messages == (UserMessage("a"),)
    assert b'"version":1' in path.read_bytes()


def test_a_missing_file_is_an_error_for_reading_only(path: Path) -> None:
    """Nothing to load is an `OSError`; a log makes the file, for its owner's eyes only."""
    with pytest.raises(FileNotFoundError):
        load_session(path)
    SessionLog(path).close()
    assert load_session(path).messages == ()
    assert os.name != "posix" or path.stat().st_mode & 0o777 == 0o600


async def test_a_link_is_the_file_it_leads_to(path: Path, tmp_path: Path) -> None:
    """The lock is on the file, whatever it is called: through a symbolic link it is locked too."""
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    with SessionLog(path), pytest.raises(SessionLockedError):
        SessionLog(link)


def test_a_locked_session_names_its_holder_each_time(path: Path) -> None:
    """The second and the third writer are told who has the file; after it closed, it is free."""
    with SessionLog(path):
        for _ in range(3):
            with pytest.raises(SessionLockedError, match=rf"process {os.getpid()} \(this process\), since 20"):
                SessionLog(path)
        assert load_session(path).messages == ()
    SessionLog(path).close()


def test_a_closed_log_refuses_events(path: Path) -> None:
    """An event after `close` is not lost silently: it raises, and says what to do."""
    log = SessionLog(path)
    log.close()
    log.close()
    with pytest.raises(ValueError, match="is closed; unsubscribe it"):
        log(MessageEnd(UserMessage("a")))


def test_a_log_that_cannot_be_opened_leaves_no_lock(path: Path) -> None:
    """After a refused file the lock is free."""
    path.write_bytes(b"other\n")
    with pytest.raises(NotASessionError):
        SessionLog(path)
    path.write_bytes(b"")
    SessionLog(path).close()


async def test_what_could_not_be_written_is_written_later(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk fails the run with its error; once there is room, what was missing is written first, and whole."""
    room = 30
    write = os.write

    def full(fd: int, data: bytes) -> int:
        nonlocal room
        if room <= 0:
            raise OSError(errno.ENOSPC, "no space left")
        written = write(fd, bytes(data[:room]))
        room -= written
        return written

    with SessionLog(path) as log:
        agent, recorder = make_agent(ScriptedProvider(["never said", finish()], ["said", finish()]))
        agent.subscribe(log)
        monkeypatch.setattr(os, "write", full)
        result = await agent.prompt("hi")
        assert result.outcome == "error"
        assert isinstance(result.error, OSError)
        monkeypatch.setattr(os, "write", write)
        await agent.prompt("again")
    recorder.assert_lawful()
    assert load_session(path).problems == ()
    assert list(load_session(path).messages) == list(agent.state.messages)


# Fork and save


def test_a_fork_has_the_first_messages_and_leaves_the_source(path: Path, tmp_path: Path) -> None:
    """A fork from any message is a session of its own, in which no call is parted from its results."""
    history = [UserMessage("a"), asks("c1", "c2"), *(ToolResultMessage(c, "look", c) for c in ("c1", "c2"))]
    history += [AssistantMessage("b"), UserMessage("c")]
    save_session(path, history)
    before = path.read_bytes()
    lengths = []
    for count in range(len(history) + 1):
        session = fork(path, tmp_path / f"fork{count}.jsonl", messages=count)
        assert_paired(session.messages)
        assert session.problems == session.interrupted == ()
        assert list(session.messages) == history[: len(session.messages)]
        lengths.append(len(session.messages))
    assert lengths == [0, 1, 4, 4, 4, 5, 6]
    assert path.read_bytes() == before


def test_a_fork_replaces_nothing(path: Path, tmp_path: Path) -> None:
    """An existing target is refused and untouched, and no other file is left; a number out of range is refused."""
    save_session(path, [UserMessage("a")])
    with pytest.raises(FileExistsError):
        fork(path, path)
    with pytest.raises(ValueError, match="the session has 1 messages"):
        fork(path, tmp_path / "t.jsonl", messages=2)
    assert [entry.name for entry in tmp_path.iterdir()] == ["s.jsonl"]


async def test_a_fork_is_gone_on_with(path: Path, tmp_path: Path) -> None:
    """A fork taken while the source is open for writing is written to on its own."""
    with SessionLog(path) as log:
        log(MessageEnd(UserMessage("a")))
        fork(path, tmp_path / "f.jsonl")
        with SessionLog(tmp_path / "f.jsonl") as forked:
            forked(MessageEnd(UserMessage("b")))
        log(MessageEnd(UserMessage("c")))
    assert said(load_session(path).messages) == ['user "a"', 'user "c"']
    assert said(load_session(tmp_path / "f.jsonl").messages) == ['user "a"', 'user "b"']


# Any history


_texts = st.text(st.characters(), max_size=20)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=5,
)
_messages = st.one_of(
    st.builds(UserMessage, st.lists(st.builds(Text, _texts) | st.builds(Image, st.binary(max_size=9), _texts))),
    st.builds(AssistantMessage, st.lists(st.builds(Text, _texts), max_size=3)),
    st.builds(CustomMessage, _texts, _json),
)


@given(history=st.lists(_messages, max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_any_history_comes_back(tmp_path: Path, history: list[Message]) -> None:
    """Any text, lone surrogates and line separators too, any payload, any image: saved and loaded it is equal."""
    place = tmp_path / "any.jsonl"
    place.unlink(missing_ok=True)
    save_session(place, history)
    session = load_session(place)
    assert session.problems == ()
    assert _paired_surrogates(session.messages) == _paired_surrogates(history)


def _paired_surrogates(messages: Sequence[Message]) -> str:
    """As JSON means them: two lone surrogates in a row that make a pair are the character."""
    return json.dumps([encode(message) for message in messages])


# Size and time


def _long_session(path: Path, turns: int) -> float:
    """Write a session and load it; seconds of processor time for both."""
    began = time.process_time()
    with SessionLog(path) as log:
        for number in range(turns):
            log(MessageEnd(UserMessage(f"question {number}")))
            log(MessageEnd(asks(f"c{number}")))
            log(ToolExecutionEnd(ToolResultMessage(f"c{number}", "look", f"saw {number} " * 20)))
            log(MessageEnd(AssistantMessage(f"answer {number} " * 20)))
    assert len(load_session(path).messages) == 4 * turns
    return time.process_time() - began


@pytest.mark.real_time
def test_time_is_linear_in_the_messages(tmp_path: Path) -> None:
    """Eight times the messages take about eight times as long to write and to load."""
    _long_session(tmp_path / "warm.jsonl", 200)
    short = min(_long_session(tmp_path / f"short{n}.jsonl", 500) for n in range(3))
    # The least of both: what else the machine does, and the collector among the objects of other tests, is no growth.
    long = min(_long_session(tmp_path / f"long{n}.jsonl", 4000) for n in range(3))
    assert long < 8 * 3 * short


_GROWTH = """
import resource, sys
from trio_agent.session import load_session
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
session = load_session(sys.argv[1])
print(len(session.messages), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.exhaustive
def test_a_hundred_thousand_messages(path: Path) -> None:
    """100,000 messages are written and loaded in less than a minute, and in about the memory that they need."""
    assert _long_session(path, 25_000) < 60
    done = subprocess.run([sys.executable, "-c", _GROWTH, str(path)], capture_output=True, text=True, check=True)
    count, kilobytes = map(int, done.stdout.split())
    assert count == 100_000
    assert kilobytes < 10 * path.stat().st_size / 1024


def test_importing_sessions_needs_no_lock_library() -> None:
    """`load_session` works where the extra is not installed; only a log needs it."""
    code = "import sys; sys.modules['filelock'] = None; import trio_agent.session as s; print(s.load_session)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_log_without_the_extra_says_how_to_get_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where filelock is missing the error names the extra."""
    monkeypatch.setitem(sys.modules, "filelock", None)
    with pytest.raises(ModuleNotFoundError, match=r"trio-agent\[session\]"):
        SessionLog(path)


def test_an_agent_with_a_session_survives_a_provider_of_any_kind(tmp_path: Path) -> None:
    """I8: log and history are equal after aborts at any event."""

    async def main(at: int) -> None:
        place = tmp_path / f"{at}.jsonl"

        async def provider(request: Any, send: Any) -> None:
            await send(TextDelta(0, "a"))
            await send(Finish("stop"))

        with SessionLog(place) as log:
            agent = Agent(provider, model="m", tools=[look])
            agent.subscribe(log)
            count = 0

            def abort(event: object) -> None:
                nonlocal count
                count += 1
                if count == at:
                    agent.abort("now")

            agent.subscribe(abort)
            await agent.prompt("hi")
            assert list(load_session(place).messages) == list(agent.state.messages)

    for at in range(1, 10):
        trio_run(lambda at=at: main(at))  # type: ignore[misc]
