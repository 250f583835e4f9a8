"""The policies for `before_tool_call`: what they let through, what they block, and how a person is asked."""

from __future__ import annotations

import os
import pty
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from scenes import Recorder, assert_settled, make_agent
from tool_calls import results_of

from trio_agent import Hooks, Tool
from trio_agent.testing import ScriptedProvider, call, finish
from trio_agent.tools import allow, ask, coding_tools, read_only

pytestmark = pytest.mark.real_time


def agent_with(policy: Any, tools: tuple[Tool, ...], *calls: tuple[str, dict[str, Any]]) -> Recorder:
    steps = [call(f"c{number}", name, arguments) for number, (name, arguments) in enumerate(calls)]
    provider = ScriptedProvider([*steps, finish("tool_use")], ["ok", finish()])
    _, recorder = make_agent(provider, tools=tools, hooks=Hooks(before_tool_call=policy))
    return recorder


async def blocked(policy: Any, root: Path, *calls: tuple[str, dict[str, Any]]) -> list[bool]:
    """Which of these calls the policy blocks."""
    recorder = agent_with(policy, coding_tools(root, allow_shell=True), *calls)
    await recorder.agent.prompt("go")
    assert_settled(recorder)
    return ["it was blocked" in result.text for result in results_of(recorder)]


async def test_read_only_lets_nothing_change(tmp_path: Path) -> None:
    """Readers run, writers and the shell are blocked, and so is what the policy does not know."""
    write = ("write_file", {"path": "a", "content": "x"})
    calls = [("list_dir", {}), write, ("bash", {"command": "touch a"})]
    assert await blocked(read_only(), tmp_path, *calls) == [False, True, True]
    assert os.listdir(tmp_path) == []
    assert await blocked(read_only("write_file"), tmp_path, *calls) == [False, False, True]


@pytest.mark.parametrize(
    ("rule", "arguments", "fits"),
    [
        ("write_file", {"path": "a"}, True),
        ("*", {"path": "a"}, True),
        ("*(src/**)", {"path": "src/x/y"}, True),
        ("edit_file", {"path": "a"}, False),
        ("write_file(src/**)", {"path": "src/x/y"}, True),
        ("write_file(src/**)", {"path": "./src//x"}, True),
        ("write_file(src/**)", {"path": "src/../x"}, False),
        ("write_file(**)", {"path": "../x"}, False),
        ("write_file(**)", {"path": "/etc/passwd"}, False),
        ("write_file(*.md)", {"path": "docs/a.md"}, True),
        ("write_file(docs/*.md)", {"path": "docs/deep/a.md"}, False),
        ("write_file(git *)", {"command": "git status"}, True),
        ("write_file(git status)", {"command": "git status -s"}, False),
        ("write_file(git *)", {"command": "git status; rm -rf ."}, False),
        ("write_file(git *)", {"command": "git $(rm x)"}, False),
        ("write_file(git *)", {"command": "git log\nrm x"}, False),
        ("write_file(git *)", {"command": "git log > ~/.bashrc"}, False),
        ("write_file(git *)", {"command": "git `rm x`"}, False),
        ("write_file(a | b)", {"command": "a | b"}, True),
        ("write_file(a | *)", {"command": "a | b"}, False),
        ("write_file(x)", {"other": "x"}, False),
        ("write_file(x)", None, False),
    ],
)
async def test_rules(rule: str, arguments: dict[str, Any] | None, fits: bool) -> None:
    """A rule lets through what it names, and no more: not by another spelling, not with a second command."""
    ran: list[object] = []
    tool = Tool(name="write_file", parameters={"type": "object"}, execute=lambda given: ran.append(given))
    recorder = agent_with(allow([rule]), (tool,), ("write_file", arguments or {}))
    await recorder.agent.prompt("go")
    assert bool(ran) == fits
    assert ("no rule of the application allows this call" in results_of(recorder)[0].text) == (not fits)


def test_what_is_no_rule_is_said() -> None:
    """A rule that could never fit is an error when the policy is made."""
    for bad in ("", "write file", "bash(", "(x)", "git_*"):
        with pytest.raises(ValueError, match="is no rule"):
            allow([bad])


async def test_the_rest_may_be_asked_elsewhere(tmp_path: Path) -> None:
    """What no rule allows goes to `otherwise`."""
    policy = allow(["bash(true)"], otherwise=read_only())
    calls = [("bash", {"command": "true"}), ("bash", {"command": "false"}), ("list_dir", {})]
    assert await blocked(policy, tmp_path, *calls) == [False, True, False]


class Person:
    """Somebody at a terminal."""

    def __init__(self) -> None:
        self.hand, self._kept = pty.openpty()
        self.terminal = os.ttyname(self._kept)
        os.set_blocking(self.hand, False)
        self.seen = ""

    def close(self) -> None:
        for descriptor in (self.hand, self._kept):
            if descriptor >= 0:
                os.close(descriptor)
        self.hand = self._kept = -1

    def type(self, text: str) -> None:
        os.write(self.hand, text.encode())

    async def waits_for(self, words: str, seconds: float = 5) -> None:
        until = time.monotonic() + seconds
        while words not in self.seen:
            assert time.monotonic() < until, self.seen
            try:
                self.seen += os.read(self.hand, 65536).decode()
            except BlockingIOError:
                await trio.sleep(0.01)

    async def answers(self, *answers: str) -> None:
        for answer in answers:
            await self.waits_for("why not: ")
            self.seen = ""
            self.type(answer + "\n")


@pytest.fixture
def person() -> Iterator[Person]:
    somebody = Person()
    yield somebody
    somebody.close()


async def asked(person: Person, root: Path, answers: list[str], *calls: tuple[str, dict[str, Any]]) -> list[str]:
    recorder = agent_with(ask(terminal=person.terminal), coding_tools(root, allow_shell=True), *calls)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(person.answers, *answers)
        await recorder.agent.prompt("go")
    assert_settled(recorder)
    return [result.text for result in results_of(recorder)]


async def test_a_person_is_asked(person: Person, tmp_path: Path) -> None:
    """Yes runs the call, no blocks it, and a reason reaches the model."""
    command = ("bash", {"command": "echo ran"})
    results = await asked(person, tmp_path, ["y", "no", "use make instead", "YES"], *[command] * 4)
    assert [result.startswith("ran") for result in results] == [True, False, False, True]
    assert results[1].endswith("it was blocked: the user said no")
    assert results[2].endswith("the user said no: use make instead")


async def test_always_is_for_the_tool_or_the_very_command(person: Person, tmp_path: Path) -> None:
    """After `always` the same command, or the same tool, is not asked about; another command is."""
    echo, other = ("bash", {"command": "echo ran"}), ("bash", {"command": "echo other"})
    write = [("write_file", {"path": name, "content": "x"}) for name in "ab"]
    results = await asked(person, tmp_path, ["a", "n", "always"], echo, echo, other, *write)
    assert ["was blocked" in result for result in results] == [False, False, True, False, False]


async def test_a_question_shows_what_would_run(person: Person, tmp_path: Path) -> None:
    """Nothing that a model writes moves the cursor or hides a part of the command."""
    recorder = agent_with(
        ask(terminal=person.terminal),
        coding_tools(tmp_path, allow_shell=True),
        ("bash", {"command": "rm x\r\x1b[2Kls\b"}),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(recorder.agent.prompt, "go")
        await person.waits_for("why not: ")
        assert "command: rm x" in person.seen
        assert "\x1b" not in person.seen
        assert "\b" not in person.seen
        person.type("n\n")


async def test_a_long_question_says_what_it_does_not_show(person: Person, tmp_path: Path) -> None:
    """Of a very long command the beginning is shown, and how much more there is."""
    recorder = agent_with(
        ask(terminal=person.terminal), coding_tools(tmp_path, allow_shell=True), ("bash", {"command": ": " * 3000})
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(recorder.agent.prompt, "go")
        await person.waits_for("why not: ")
        shown = person.seen.split("command: ")[1].split("\r\n")[0]
        assert shown == (": " * 3000)[: len(shown)]
        assert f"… and {6000 - len(shown)} characters more, which are not shown" in person.seen
        person.type("n\n")


async def test_an_abort_ends_the_question(person: Person, tmp_path: Path) -> None:
    """Abort while a person thinks comes back at once; what they type later is no answer to the next question."""
    policy = ask(terminal=person.terminal)
    tools = coding_tools(tmp_path, allow_shell=True)
    recorder = agent_with(policy, tools, ("bash", {"command": "touch made"}))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(recorder.agent.prompt, "go")
        await person.waits_for("why not: ")
        began = trio.current_time()
        recorder.agent.abort()
        await recorder.agent.wait_for_idle()
    assert trio.current_time() - began < 1
    assert_settled(recorder)
    person.type("y\n")
    person.seen = ""
    await trio.sleep(0.05)
    second = agent_with(policy, tools, ("bash", {"command": "touch made"}))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.agent.prompt, "go")
        await person.answers("n")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["missing", "file", "closed"])
async def test_nobody_to_ask_blocks(person: Person, tmp_path: Path, kind: str) -> None:
    """Without a terminal, or when it is closed, the call does not run."""
    place = tmp_path / "place"
    terminal = str(place)
    if kind == "file":
        place.write_text("y\n")
    elif kind == "closed":
        terminal = person.terminal
    (tmp_path / "w").mkdir()
    recorder = agent_with(
        ask(terminal=terminal), coding_tools(tmp_path / "w", allow_shell=True), ("bash", {"command": "touch x"})
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(recorder.agent.prompt, "go")
        if kind == "closed":
            await person.waits_for("why not: ")
            person.close()
    assert "nobody can be asked" in results_of(recorder)[0].text
    assert os.listdir(tmp_path / "w") == []
    assert_settled(recorder)
