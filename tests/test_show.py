"""`trio-agent show`: everything of a log, readable, in order, safe for a terminal, and streamed."""

from __future__ import annotations

import errno
import io
import os
import pty
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_files import NASTY, a_run, timed_traces, write_trace

from trio_agent import (
    AgentStart,
    AssistantMessage,
    CompactionEnd,
    CustomMessage,
    Event,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    RetryEnd,
    Text,
    TextDelta,
    ToolCall,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolResultMessage,
    UserMessage,
)
from trio_agent.__main__ import main
from trio_agent._codec import encode_line
from trio_agent.cli._log import BadLine, read_log, visible
from trio_agent.cli._show import Reader
from trio_agent.cli._show_words import Words
from trio_agent.cli._usage import UsageError
from trio_agent.session import save_session

ROOT = Path(__file__).parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}


def shown(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> list[str]:
    assert main(["show", str(path), *options]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    return [line.rstrip() for line in told.out.splitlines() if line.strip()]


def test_a_trace_is_shown_in_order_with_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Messages, the retry and the compaction, calls with results in the order they came, how it ended, and counts."""
    log = write_trace(tmp_path / "run.jsonl", a_run())
    nasty = "\\x1b[31mred\\x1b[0m \\x07\\u202e <script>alert('x')</script> & \\ud800 ]]>"
    raw = next(e.call.raw for e in a_run() if e.type == "tool_execution_start" and e.tool_call_id == "c2")
    assert shown(log, capsys) == [
        "== run 1 ==",
        "    0.00  -- turn 1 --",
        f"    0.00  user: hello {nasty}",
        f"    1.00  … overloaded: {nasty}; attempt 1 of 4, again in 2 s",
        "    3.50  … shortening the conversation (overflow, 9000 tokens)",
        "    4.00  … shortened: message 1 and later are kept, 100 tokens now",
        "          summary: so far",
        "    6.00  thinking: hm",
        "    6.00  assistant: looking",
        '    6.00  → read {"path":"a.txt"}',
        f"    6.00  → {nasty} {visible(raw)}",
        "          15 tokens (10 in, 5 out), demo",
        f"    7.00  ✗ {nasty} [c2] (1.00 s): {nasty}",
        "    8.00  ✓ read (2.00 s): line one",
        "            line two",
        "            [image/png, 4 bytes]",
        "    8.00  -- turn 2 --",
        "    8.00  user: and b",
        "   10.00  assistant: half",
        "   10.00  ✗ the answer ended with aborted: enough",
        "   10.00  aborted (enough) · 2 turns · 15 tokens (10 in, 5 out)",
        "1 run, 4 messages, 2 tool calls, 1 failed call, 1 retry, 1 compaction",
    ]


def test_a_session_of_messages_is_shown_without_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Calls and results are told from the messages alone, each once; what has no result is said."""
    messages = [event.message for event in a_run() if isinstance(event, MessageEnd)]
    save_session(tmp_path / "fork.session", messages[:-3])  # without the result of c2, and what followed
    lines = shown(tmp_path / "fork.session", capsys)
    assert lines[0] == "session, format 1"
    assert sum("✓ read" in line for line in lines) == 1
    assert sum("[c2] has no result in the log" in line for line in lines) == 1
    assert lines[-1] == "0 runs, 2 messages, 2 tool calls"


def test_updates_of_tools_and_whole_texts_are_shown_when_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else a long text says how much of it was left out."""
    long = UserMessage("".join([f"line {n}\n" for n in range(100)]))
    log = write_trace(tmp_path / "run.jsonl", [*a_run(), MessageEnd(long)])
    short, full = shown(log, capsys), shown(log, capsys, "--full")
    assert not [line for line in short if "half way" in line or "line 50" in line]
    assert [line for line in short if "more characters; --full shows them" in line]
    assert [line for line in full if "half way" in line]
    assert [line for line in full if "line 99" in line]


def test_bad_lines_are_shown_where_they_are_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The log that is damaged in the middle and torn at its end is shown as far as it goes."""
    log = write_trace(tmp_path / "run.jsonl", a_run()[:12])
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:4], b"\0\0\n", b"garbage\x1b[2J\n", *lines[4:]]) + b'{"type":"messa')
    told = shown(log, capsys)
    bad = [line.strip() for line in told if "! line" in line]
    assert bad[0] == "! line 5: 2 NUL bytes, as a crash of the machine leaves them"
    assert bad[1].startswith("! line 6: not JSON")
    assert bad[2].startswith("! line 15: torn off, not JSON")
    assert "          ! an answer was cut off behind: looking" in told
    assert "          ! the run has no end in the log" in told
    assert told[-1].endswith("3 bad lines, the first is line 5")


@settings(max_examples=60)
@given(timed_traces(), st.data())
def test_any_trace_cut_anywhere_is_shown_and_every_result_once(events: list[Event], data: st.DataObject) -> None:
    """Nothing of a message is shown twice, nothing fails."""
    events = events[: data.draw(st.integers(1, len(events)))]
    file = io.BytesIO("".join([f"{encode_line(event)}\n" for event in events]).encode())
    lines = [text for text, _ in Reader(Words(full=True)).read(read_log(file, "log"))]
    results = [event.result.text for event in events if event.type == "tool_execution_end"]
    for text in results:
        assert sum(line.endswith(f": {text}") for line in lines) == 1
    answers = [e.message for e in events if isinstance(e, MessageEnd) and isinstance(e.message, AssistantMessage)]
    for block in [block for answer in answers for block in answer.content if isinstance(block, Text)]:
        assert sum(line.endswith(f"assistant: {block.text}") for line in lines) == 1


@given(st.text())
def test_visible_text_has_nothing_that_steers_a_terminal(text: str) -> None:
    """Only line breaks, tabs and joiners are left of what does not print."""
    assert all(char.isprintable() or char in "\n\t\u200c\u200d" for char in visible(text))
    assert visible(text) == text or not text.isprintable()


def test_visible_text_keeps_what_people_write() -> None:
    """Emoji that are joined, words of other scripts, and line ends of other systems."""
    assert visible("👩\u200d🚀 می\u200cخواهم\r\nzwei") == "👩\u200d🚀 می\u200cخواهم\nzwei"
    assert visible("\x1b]0;title\x07\x9b2J\u2066\u2028") == "\\x1b]0;title\\x07\\x9b2J\\u2066\\u2028"


def test_a_huge_log_takes_the_memory_of_one_turn() -> None:
    """100,000 updates and thousands of messages go by without being kept."""

    def lines() -> Iterator[bytes]:
        message = MessageEnd(AssistantMessage("x" * 1_000, "stop"))
        update = f"{encode_line(MessageUpdate(TextDelta(0, 'x' * 10)))}\n".encode()
        for _ in range(2_000):
            yield f"{encode_line(MessageStart(AssistantMessage((), None)))}\n".encode()
            yield from [update] * 10
            yield f"{encode_line(message)}\n".encode()

    class Pipe(io.RawIOBase):
        source = lines()

        def readline(self, size: int | None = -1, /) -> bytes:
            return next(self.source, b"")

    reader = Reader(Words(full=False)).read(read_log(Pipe(), "log"))  # type: ignore[arg-type]
    next(reader)
    tracemalloc.start()
    try:
        assert sum(1 for _ in reader) == 2_000
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [5_000, 3_000_000])
def test_a_line_that_is_too_long_is_passed_over_in_bounded_memory(size: int) -> None:
    """It is told with its size, and the next line is read."""
    file = io.BytesIO(b'{"type":"agent_start"}\n' + b"x" * size + b"\n" + b'{"type":"turn_start","turn":1}\n')
    entries = list(read_log(file, "log", longest_line=1_000))
    assert [(entry.line, type(entry.value).__name__) for entry in entries] == [
        (1, "AgentStart"),
        (2, "BadLine"),
        (3, "TurnStart"),
    ]
    assert entries[1].value == BadLine(f"{size} bytes, which is too long for a record")


@pytest.mark.real_time
def test_a_log_comes_from_stdin_and_a_reader_that_has_seen_enough_is_no_failure(tmp_path: Path) -> None:
    """`-` reads stdin; `head` may close the pipe."""
    log = write_trace(tmp_path / "run.jsonl", a_run() * 300)
    command = f"{sys.executable} -m trio_agent show - < {log} | head -n 3"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], env=ENVIRONMENT, capture_output=True, timeout=60
    )
    assert done.returncode == 0
    assert done.stderr == b""
    assert b"== run 1 ==" in done.stdout


@pytest.mark.real_time
def test_a_terminal_gets_colours_and_nothing_that_the_log_would_have_it_do(tmp_path: Path) -> None:
    """The only control sequences are rich's own styles."""
    pytest.importorskip("rich")
    log = write_trace(tmp_path / "run.jsonl", a_run())
    leader, follower = pty.openpty()
    environment = {**ENVIRONMENT, "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [sys.executable, "-m", "trio_agent", "show", str(log)], stdout=follower, stderr=follower, env=environment
    )
    os.close(follower)
    output = b""
    with suppress(OSError):  # the other end is closed
        while True:
            output += os.read(leader, 65_536)
    os.close(leader)
    assert process.wait(60) == 0
    text = output.decode()
    assert "\x1b[1;32m" in text or "\x1b[36m" in text
    assert "\x1b[31mred" not in text
    assert "\\x1b[31mred" in text
    assert "\x07" not in text
    assert NASTY not in text


@pytest.mark.parametrize("full", [False, True])
def test_what_is_cut_off_at_its_beginning_is_shown_from_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], full: bool
) -> None:
    """A log may begin inside an answer, or with a call whose message is gone; each call and result is shown once."""
    call = ToolCall("c1", "read", {"path": "a.txt"})
    log = write_trace(
        tmp_path / "run.jsonl",
        [
            MessageUpdate(TextDelta(0, "half an answer")),
            ToolExecutionStart(call, time=1.0),
            ToolExecutionEnd(ToolResultMessage("c1", "read", "one"), time=2.5),
        ],
    )
    assert shown(log, capsys, *["--full"] * full) == [
        '    1.00  → read {"path":"a.txt"}',
        "    2.50  ✓ read (1.50 s): one",
        "          ! an answer was cut off behind: half an answer",
        "0 runs, 0 messages, 1 tool call",
    ]


def test_messages_alone_are_shown_as_others_write_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines that hold a message each, with no event around it."""
    messages = [UserMessage("hi"), AssistantMessage([ToolCall("c1", "read")], "tool_use"), CustomMessage("mark", 1)]
    log = tmp_path / "messages.jsonl"
    log.write_text("".join([f"{encode_line(message)}\n" for message in messages]))
    assert shown(log, capsys) == [
        "          user: hi",
        "          → read {}",
        "          ! read [c1] has no result in the log",
        "          mark: 1",
        "0 runs, 3 messages, 1 tool call",
    ]


def test_waits_that_came_to_nothing_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A retry that was aborted, compactions that failed or were aborted, and one whose summary is the application's."""
    log = write_trace(
        tmp_path / "run.jsonl",
        [
            RetryEnd(1, "aborted", time=1.0),
            RetryEnd(2, "resumed", time=1.5),
            CompactionEnd("failed", error="no model", time=2.0),
            CompactionEnd("aborted", time=3.0),
            CompactionEnd("compacted", CustomMessage("summary", {}), 2, time=4.0),
        ],
    )
    assert shown(log, capsys) == [
        "    1.00  … the wait was aborted",
        "    2.00  … that failed: no model",
        "    3.00  … that was aborted",
        "    4.00  … shortened: message 2 and later are kept",
        "0 runs, 0 messages, 0 tool calls",
    ]


def test_a_log_that_cannot_be_read_on_is_named() -> None:
    """A disk that fails in the middle is one line, and what had been read is shown."""

    class Failing(io.BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            line = super().readline(size)
            if not line:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return line

    entries = read_log(Failing(b'{"type":"agent_start"}\n'), "a.jsonl")
    assert isinstance(next(entries).value, AgentStart)
    with pytest.raises(UsageError, match=r"^a\.jsonl: Input/output error$"):
        next(entries)
