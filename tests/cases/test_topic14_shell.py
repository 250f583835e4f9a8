"""Topic 14: shell tools as others have met them (B149, B152, B153, B155, B157, B158, B159; and B007, B029)."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from scenes import assert_settled, make_agent
from tool_calls import results_of, run_call, run_calls

from trio_agent import ToolExecutionUpdate, ToolResultMessage
from trio_agent.testing import ScriptedProvider, call, finish
from trio_agent.tools import bash, coding_tools, shell_environment

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds descendants as Linux has them"),
]


# Seconds that nobody else's sleep has, so that other test runs on this machine are not counted.
MARK = f"1{os.getpid():08}"


def marked(command: str) -> str:
    return command.replace("@", MARK)


def running(command: str) -> list[str]:
    """The command lines of living processes that are this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended since
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                state = (entry / "stat").read_text().rpartition(") ")[2][:1]
                if state not in "ZX" and line == marked(command):
                    found.append(line)
    return found


def wait_until(condition: Callable[[], bool], until: float) -> None:
    """Look again and again, at the latest until this time of the monotonic clock; whether it is so is not said."""
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)


async def run(root: Path, command: str, **more: Any) -> ToolResultMessage:
    return await run_call([bash(root)], "bash", command=marked(command), **more)


# B149


@pytest.mark.parametrize(
    "command",
    [
        "echo up; sleep 57.@ & echo fin",
        "echo up; sleep 57.@ >/dev/null & echo fin",
        "echo up; setsid sleep 57.@ & echo fin",
        "echo up; (setsid sh -c 'sleep 57.@; :' &) ; echo fin",
        "echo up; nohup sleep 57.@ >/dev/null 2>&1 & disown; echo fin",
    ],
)
async def test_b149_a_background_child_holds_nobody_up(tmp_path: Path, command: str) -> None:
    """The command's end is the end, whoever holds the pipe; what it left running is ended, and said."""
    began = time.monotonic()
    result = await run(tmp_path, command)
    assert time.monotonic() - began < 2
    assert result.text.startswith("up\nfin\n[exit code 0; ")
    assert "left running were ended" in result.text
    assert running("sleep 57.@") == []


async def test_b149_what_was_said_before_the_end_is_whole(tmp_path: Path) -> None:
    """Output written just before the exit is there to its last line."""
    result = await run(tmp_path, "seq 1 20000 & wait; sleep 57.@ &")
    assert "\n20000\n[exit code 0" in result.text
    assert result.details["size"] == sum(len(str(n)) + 1 for n in range(1, 20001))
    assert Path(result.details["file"]).read_text().split() == [str(n) for n in range(1, 20001)]


# B152, B153, B007


async def test_b152_a_time_out_ends_grandchildren(tmp_path: Path) -> None:
    """The whole pipeline is gone when the result comes, which says so and has the output so far."""
    began = time.monotonic()
    result = await run(tmp_path, "echo begun; bash -c 'bash -c \"sleep 61.@; echo x\" | cat'", timeout=1)
    assert time.monotonic() - began < 3
    assert result.is_error
    assert result.text.startswith("begun\n[timed out after 1 s")
    assert running("sleep 61.@") == []


STUBBORN = (
    "trap '' TERM; (trap '' TERM; sleep 62.@; sleep 62.@) & "
    "(setsid sh -c \"trap '' TERM; sleep 62.@; :\" &); sleep 62.@"
).replace("@", MARK)


async def test_b153_a_time_out_ends_who_ignores_it(tmp_path: Path) -> None:
    """Descendants that ignore TERM, or left the group, are dead before the result is given."""
    began = time.monotonic()
    result = await run_call([bash(tmp_path, grace=0.5)], "bash", command=STUBBORN, timeout=1)
    assert result.is_error
    assert running("sleep 62.@") == []
    assert time.monotonic() - began < 1 + 0.5 + 1


async def test_b153_an_abort_ends_who_ignores_it(tmp_path: Path) -> None:
    """Abort comes back within the grace period with nothing left; a stopped process hears it too."""
    command = f"kill -STOP $$ & {STUBBORN}"
    for each in (STUBBORN, command):
        steps = [call("c", "bash", {"command": f"echo begun; {each}"}), finish("tool_use")]
        agent, recorder = make_agent(ScriptedProvider(steps), tools=[bash(tmp_path, grace=0.5)])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.prompt, "x")
            await trio.sleep(0.8)
            began = trio.current_time()
            agent.abort("enough")
            await agent.wait_for_idle()
        assert trio.current_time() - began < 0.5 + 1
        assert running("sleep 62.@") == []
        assert "begun" in results_of(recorder)[0].text
        assert_settled(recorder)


_DYING = """
import sys, trio
from trio_agent import Agent
from trio_agent.testing import ScriptedProvider, call, finish
from trio_agent.tools import bash
command = "setsid sleep 63.@ & sleep 63.@"
script = ScriptedProvider([call("c", "bash", {"command": command}), finish("tool_use")])
agent = Agent(script, model="m", tools=[bash(".")])
trio.run(agent.prompt, "x")
"""


def test_b153_a_killed_kernel_takes_its_commands_along(tmp_path: Path) -> None:
    """When the process of the agent is killed, what its commands had started ends too."""
    root = Path(__file__).resolve().parent.parent.parent
    env = {**os.environ, "PYTHONPATH": str(root), "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", marked(_DYING)], cwd=tmp_path, env=env) as dying:
        until = time.monotonic() + 20
        wait_until(lambda: len(running("sleep 63.@")) == 2, until)
        count = len(running("sleep 63.@"))
        dying.kill()
    assert count == 2
    wait_until(lambda: not running("sleep 63.@"), until)
    assert running("sleep 63.@") == []


# B155


@pytest.mark.parametrize(("command", "said"), [("cat", "(no output)"), ('read x; echo "[$x]"', "[]"), ("wc -c", "0")])
async def test_b155_there_is_nothing_to_read(tmp_path: Path, command: str, said: str) -> None:
    """Standard input is at its end at once."""
    began = time.monotonic()
    assert (await run(tmp_path, command)).text == f"{said}\n[exit code 0]"
    assert time.monotonic() - began < 2


# B157


_FLOOD = """
import resource, sys, trio
from trio_agent import Agent
from trio_agent.testing import ScriptedProvider, call, finish
from trio_agent.tools import bash
updates = []
async def main():
    flood = call("c", "bash", {"command": sys.argv[1], "timeout": 3})
    script = ScriptedProvider([flood, finish("tool_use")], ["x", finish()])
    agent = Agent(script, model="m", tools=[bash(".")])
    agent.subscribe(lambda e: updates.append(len(e.partial[0].text)) if e.type == "tool_execution_update" else None)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await agent.prompt("x")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(__import__("json").dumps([grown, updates, agent.state.messages[2].text]))
trio.run(main)
"""


@pytest.mark.parametrize("command", ["yes", "head -c 200000000 /dev/zero | tr '\\0' x; echo end"])
def test_b157_a_flood_is_bounded(tmp_path: Path, command: str) -> None:
    """Memory, result and updates stay small whatever a command says, and the end of it is kept."""
    root = Path(__file__).resolve().parent.parent.parent
    env = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", _FLOOD, command], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    grown, updates, text = json.loads(done.stdout)
    assert grown < 50_000  # kilobytes
    assert len(text) < 50_000
    assert re.search(r"\d+ of \d+ bytes are left out here; the first 67108864 are in /", text)
    assert len(updates) <= 12
    assert all(size <= 2000 for size in updates)
    assert "xend\n[exit code 0]" in text or text.endswith(
        "y\n[timed out after 3 s; everything it had started was ended]"
    )


async def test_b157_a_flood_is_aborted_promptly(tmp_path: Path) -> None:
    """Abort in the middle of a flood comes back at once."""
    agent, recorder = make_agent(
        ScriptedProvider([call("c", "bash", {"command": marked("yes @")}), finish("tool_use")]), tools=[bash(tmp_path)]
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "x")
        await trio.sleep(0.6)
        began = trio.current_time()
        agent.abort()
        await agent.wait_for_idle()
    assert trio.current_time() - began < 1
    assert_settled(recorder)
    assert running("yes @") == []


# B158


async def test_b158_bytes_are_made_text(tmp_path: Path) -> None:
    """Invalid UTF-8, NULs and terminal sequences become safe text; random bytes are bounded."""
    result = await run(tmp_path, r"printf 'a\377\000b\033[31mc\033]0;title\007d\033[2Je\rf\r\ng\xe2\x80\xaeh'")
    assert result.text == "a\ufffd\u2400bcde\nf\ng\ufffdh\n[exit code 0]"
    result = await run(tmp_path, "head -c 100000 /dev/urandom")
    result.text.encode()
    assert len(result.text) < 60_000
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", result.text)


async def test_b158_a_character_in_two_parts_is_whole(tmp_path: Path) -> None:
    """A three-byte character that comes in two parts is never shown in halves: not in updates, not in the result."""
    updates: list[str] = []
    steps = [
        call("c", "bash", {"command": r"printf 'x\342'; sleep 0.6; printf '\202\254y'; sleep 0.6"}),
        finish("tool_use"),
    ]
    agent, recorder = make_agent(ScriptedProvider(steps, ["x", finish()]), tools=[bash(tmp_path)])

    def listen(event: Any) -> None:
        if isinstance(event, ToolExecutionUpdate):
            updates.append("".join(block.text for block in event.partial if hasattr(block, "text")))

    agent.subscribe(listen)
    await agent.prompt("x")
    assert updates == ["x", "x€y"]
    assert results_of(recorder)[0].text == "x€y\n[exit code 0]"


# B159, B029


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("true", "(no output)\n[exit code 0]"),
        ("false", "(no output)\n[exit code 1]"),
        ("exit 3", "(no output)\n[exit code 3]"),
        ("kill -9 $$", "(no output)\n[ended by signal 9 (SIGKILL)]"),
        ("kill -TERM $$", "(no output)\n[ended by signal 15 (SIGTERM)]"),
        ("(", "exit code 2]"),
        ("nonexistent-command", "exit code 127]"),
    ],
)
async def test_b159_a_silent_command_says_how_it_ended(tmp_path: Path, command: str, said: str) -> None:
    """Exit codes and signals are told apart, and there is always text."""
    began = time.monotonic()
    result = await run(tmp_path, command)
    assert result.text.endswith(said)
    assert not result.is_error
    assert time.monotonic() - began < 2


async def test_b029_an_exit_code_is_its_own_commands_alone(tmp_path: Path) -> None:
    """A grep that finds nothing is told as that, and its siblings run."""
    commands = ["printf one", "grep zz /dev/null", "printf two", "sleep 0.3; printf three"]
    results = await run_calls([bash(tmp_path)], *[("bash", {"command": command}) for command in commands])
    said = [result.text for result in results]
    assert said == ["one\n[exit code 0]", "(no output)\n[exit code 1]", "two\n[exit code 0]", "three\n[exit code 0]"]


# And besides


async def test_the_command_runs_in_the_workspace_without_the_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The working directory is the workspace; variables named like keys are not in the environment, others are."""
    for name in ("OPENAI_API_KEY", "MY_TOKEN", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "hidden")
    monkeypatch.setenv("PLAIN", "shown")
    result = await run(tmp_path, "pwd; env")
    assert result.text.startswith(str(tmp_path.resolve()))
    assert "hidden" not in result.text
    assert "PLAIN=shown" in result.text
    assert shell_environment({"SSH_AUTH_SOCK": "s", "X_KEY": "k", "PATH": "p"}) == {"SSH_AUTH_SOCK": "s", "PATH": "p"}
    own = await run_call([bash(tmp_path, environment={"ONLY": "this"})], "bash", command="echo $ONLY$PLAIN")
    assert own.text.startswith("this\n")


async def test_commands_and_edits_of_one_message_are_in_order(tmp_path: Path) -> None:
    """A command sees what the edit before it wrote, and the edit behind it what it wrote."""
    results = await run_calls(
        coding_tools(tmp_path, allow_shell=True),
        ("write_file", {"path": "a", "content": "one\n"}),
        ("bash", {"command": "cat a; sleep 0.2; echo two > a"}),
        ("edit_file", {"path": "a", "edits": [{"old_text": "two", "new_text": "three"}]}),
    )
    assert results[1].text == "one\n[exit code 0]"
    assert "has changed since it was read" in results[2].text
    assert (tmp_path / "a").read_text() == "two\n"


async def test_the_shell_is_off_unless_asked_for(tmp_path: Path) -> None:
    """Without `allow_shell` there is no bash; a time-out beyond the bound is cut to it; nonsense is refused."""
    assert "bash" not in {tool.name for tool in coding_tools(tmp_path)}
    short = bash(tmp_path, longest_timeout=0.5, grace=0.2)
    assert "timed out after 0.5 s" in (await run_call([short], "bash", command=marked("sleep 64.@"), timeout=1000)).text
    assert (await run_call([short], "bash", command="true", timeout=-1)).is_error
    assert (await run_call([short], "bash", command="a\0b")).is_error
    assert running("sleep 64.@") == []


async def test_a_lost_supervisor_is_said(tmp_path: Path) -> None:
    """Where somebody kills the supervisor the result says that the command was lost, and does not claim an end."""
    result = await run(tmp_path, "kill -9 $PPID; sleep 0.1")
    assert result.is_error
    assert "it was lost" in result.text


async def test_the_file_of_a_long_output_goes_with_the_tool(tmp_path: Path) -> None:
    """Output files are there as long as the tool."""
    tool = bash(tmp_path)
    path = Path((await run_call([tool], "bash", command="seq 100000")).details["file"])
    assert path.exists()
    del tool
    gc.collect()
    assert not path.exists()
