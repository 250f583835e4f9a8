"""`trio-agent run --session FILE` as a real program: a conversation that goes on from one process to the next."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer, call, chat_server, text

from trio_agent.session import PROCESS_ENDED, SessionLog, load_session
from trio_agent.testing import check_trace

ROOT = Path(__file__).parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "notes.txt").write_text("one\n")
    return tmp_path


def command(server: ChatServer, prompt: str, *arguments: str) -> list[str]:
    service = ["--provider", "openai-chat", "--base-url", server.url, "--model", "m"]
    return [sys.executable, "-m", "trio_agent", "run", prompt, "--session", "talk.jsonl", *service, *arguments]


def run(folder: Path, server: ChatServer, prompt: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(server, prompt, *arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=folder,
        env=ENVIRONMENT,
        timeout=60,
        check=False,
    )


def roles(body: Any) -> list[str]:
    return [message["role"] for message in body["messages"]]


def test_a_session_is_begun_and_gone_on_with(folder: Path) -> None:
    """The second process knows what the first one said and did, and the file has both."""
    answers = [call("read_file", path="notes.txt"), text("It says one."), text("As I said: one.")]
    with chat_server(*answers) as server:
        first = run(folder, server, "What do my notes say?")
        second = run(folder, server, "Say it again", "--json")
    assert (first.returncode, first.stdout) == (0, "It says one.\n")
    assert second.returncode == 0
    assert roles(server.bodies[2]) == ["user", "assistant", "tool", "assistant", "user"]
    session = load_session(folder / "talk.jsonl")
    assert [message.role for message in session.messages] == [
        *["user", "assistant", "tool_result", "assistant"],
        *["user", "assistant"],
    ]
    assert (session.problems, session.unfinished) == ((), False)
    assert first.stderr.startswith("→ read_file")
    assert second.stderr == ""


def test_a_run_that_was_killed_is_gone_on_with(folder: Path) -> None:
    """A call that had no result yet gets one that says so, and the model is asked again."""
    (folder / "mytools.py").write_text(
        "import trio\nasync def wait() -> str:\n    'Wait.'\n    print('begun', flush=True)\n    await trio.sleep(60)\n"
    )
    with chat_server(call("wait"), text("Let us go on.")) as server:
        with subprocess.Popen(
            command(server, "Wait", "--tool", "mytools:wait"),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=ENVIRONMENT,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"begun\n"
            process.kill()
        done = run(folder, server, "And?")
    assert (done.returncode, done.stdout) == (0, "Let us go on.\n")
    assert roles(server.bodies[1]) == ["user", "assistant", "tool", "user"]
    assert PROCESS_ENDED in server.bodies[1]["messages"][2]["content"]


def test_what_is_wrong_with_a_session_is_told_line_by_line(folder: Path) -> None:
    """Damaged lines are passed over, each is named on stderr with its number, and the file keeps them."""
    with chat_server(text("Hi."), text("Hello again.")) as server:
        run(folder, server, "hello")
        file = folder / "talk.jsonl"
        lines = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join([*lines[:2], b"{damaged\x1b[2J\n", *lines[2:], b'{"type":"torn']))
        done = run(folder, server, "again")
    assert (done.returncode, done.stdout) == (0, "Hello again.\n")
    warnings = [line for line in done.stderr.splitlines() if line.startswith("trio-agent: warning:")]
    assert len(warnings) == 2
    assert "talk.jsonl: line 3: " in warnings[0]
    assert "torn off" in warnings[1]
    assert "\x1b" not in done.stderr
    assert [message.role for message in load_session(file).messages] == ["user", "assistant"] * 2
    assert b"{damaged" in file.read_bytes()


def test_very_many_problems_are_counted(folder: Path) -> None:
    """Twenty are told, the rest in one line."""
    with chat_server(text("Hi."), text("Hello again.")) as server:
        run(folder, server, "hello")
        with (folder / "talk.jsonl").open("ab") as file:
            file.write(b"nonsense\n" * 30)
        done = run(folder, server, "again")
    assert done.returncode == 0
    assert done.stderr.count("trio-agent: warning:") == 21
    assert "10 more lines that cannot be used" in done.stderr


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (b"a shopping list\n", 1, "is no session, and will not be written to"),
        (b'{"type":"session","version":99,"created":"x"}\n', 1, "99"),
        (None, 2, "the session 'talk.jsonl' cannot be opened"),
    ],
)
def test_a_file_that_is_no_session_of_ours_is_left_alone(
    folder: Path, content: bytes | None, code: int, words: str
) -> None:
    """One line says why, nothing is asked, and the file stays as it was."""
    file = folder / "talk.jsonl"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    with chat_server() as server:
        done = run(folder, server, "hello")
    assert done.returncode == code
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert server.bodies == []
    assert content is None or file.read_bytes() == content


def test_two_processes_do_not_write_one_session(folder: Path) -> None:
    """The second one says who has it, and ends."""
    with chat_server() as server, SessionLog(folder / "talk.jsonl"):
        done = run(folder, server, "hello")
    assert done.returncode == 1
    assert f"is being written by process {os.getpid()}" in done.stderr
    assert server.bodies == []


def test_each_message_is_in_the_file_at_once(folder: Path) -> None:
    """While the model is being asked, the prompt is there already."""
    gate = threading.Event()
    with (
        chat_server([{"content": "Wait\n"}, gate, "stop"]) as server,
        subprocess.Popen(
            command(server, "hello"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder, env=ENVIRONMENT
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == b"Wait\n"
        lines = [json.loads(line) for line in (folder / "talk.jsonl").read_text().splitlines()]
        assert lines[-1]["message"]["content"] == [{"type": "text", "text": "hello"}]
        gate.set()
        assert process.wait(30) == 0


def test_a_session_may_be_a_whole_trace(folder: Path) -> None:
    """With --trace every event is in the file, in lawful order; without a session to write to it is wrong usage."""
    with chat_server(call("read_file", path="notes.txt"), text("Hi.")) as server:
        assert run(folder, server, "hello", "--trace").returncode == 0
        done = subprocess.run(
            [sys.executable, "-m", "trio_agent", "chat", "--trace"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (
        2,
        "trio-agent: usage: --trace writes to a session; add --session FILE\n",
    )
    header, *lines = (folder / "talk.jsonl").read_text().splitlines()
    assert json.loads(header)["type"] == "session"
    assert check_trace(lines, complete=True) == []
    assert {json.loads(line)["type"] for line in lines} >= {"message_update", "message_start", "turn_end"}
    assert len(load_session(folder / "talk.jsonl").messages) == 4
