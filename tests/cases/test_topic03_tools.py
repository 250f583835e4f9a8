"""Topic 3, parallel tools and their results, as others have met them (B028 to B045): the kernel's part of each case."""

from __future__ import annotations

import contextvars
import dataclasses
import datetime as dt
import itertools
import json
import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import trio
from scenes import Recorder, assert_paired, assert_settled, executions, make_agent

from trio_agent import (
    AssistantMessage,
    FileLocks,
    Image,
    MessageUpdate,
    Text,
    Tool,
    ToolCallFragment,
    ToolResultMessage,
    encode,
    tool,
)
from trio_agent.testing import ScriptedProvider, Step, call, finish, text

DONE: list[Any] = [text("ok"), finish()]


async def run(*calls: Step, tools: list[Tool], **options: Any) -> tuple[Recorder, ScriptedProvider]:
    """One turn of these calls and one without, to its end."""
    provider = ScriptedProvider([*calls, finish("tool_use")], DONE)
    agent, recorder = make_agent(provider, tools=tools, **options)
    with provider:
        result = await agent.prompt("go")
    result.raise_for_error()
    assert result.outcome == "completed"
    assert_paired(provider.requests[1].messages)
    assert_settled(recorder)
    return recorder, provider


def results(recorder: Recorder) -> list[ToolResultMessage]:
    return [m for m in recorder.agent.state.messages if isinstance(m, ToolResultMessage)]


def texts(recorder: Recorder) -> list[str]:
    return [result.text for result in results(recorder)]


@tool
async def echo(v: str) -> str:
    """Say it again."""
    return v


# -- B028, B029 -------------------------------------------------------------------------------------------------------


async def test_B028_one_tool_that_raises_leaves_its_siblings_alone() -> None:
    """Ends as they came, results in call order; the siblings ran to their ends, and the run goes on."""
    ran: list[str] = []

    @tool
    async def work(id: str, seconds: float) -> str:
        """Take a while."""
        await trio.sleep(seconds)
        ran.append(id)
        return id.upper()

    @tool
    async def fail() -> str:
        """Fail at once."""
        raise RuntimeError("b")

    recorder, provider = await run(
        call("a", "work", {"id": "a", "seconds": 1}),
        call("b", "fail"),
        call("c", "work", {"id": "c", "seconds": 2}),
        tools=[work, fail],
    )
    assert [e.tool_call_id for e in recorder.events if e.type == "tool_execution_end"] == ["b", "a", "c"]
    assert [(r.tool_call_id, r.is_error) for r in results(recorder)] == [("a", False), ("b", True), ("c", False)]
    assert [texts(recorder)[0], texts(recorder)[2]] == ["A", "C"]
    assert "RuntimeError: b" in texts(recorder)[1]
    assert ran == ["a", "c"]
    assert len(provider.requests) == 2


async def test_B028_a_tool_that_is_cancelled_by_its_own_scope_leaves_its_siblings_alone() -> None:
    """A tool's own cancellation is its own business, also where it leaks out of a nursery as an exception."""

    @tool
    async def gives_up() -> str:
        """Cancel itself."""
        with trio.move_on_after(1):
            await trio.sleep_forever()
        return "gave up"

    @tool
    async def too_slow() -> str:
        """Raise what a time-out of its own raises."""
        with trio.fail_after(1):
            await trio.sleep_forever()
        raise AssertionError("it took as long as it liked")

    recorder, _ = await run(
        call("a", "gives_up"), call("b", "too_slow"), call("c", "echo", {"v": "C"}), tools=[gives_up, too_slow, echo]
    )
    assert texts(recorder)[0] == "gave up"
    assert "TooSlowError" in texts(recorder)[1]
    assert texts(recorder)[2] == "C"


@pytest.mark.real_time
async def test_B029_a_harmless_exit_code_says_what_it_is_and_cancels_nobody() -> None:
    """Four real programs side by side, one with exit code 1: each has its own result, none speaks of others."""

    @tool
    async def shell(command: str) -> str:
        """Run a command."""
        done = await trio.run_process(["sh", "-c", command], capture_stdout=True, check=False)
        printed = done.stdout.decode()
        return printed if done.returncode == 0 else f"{printed}exit code {done.returncode}"

    commands = ["printf one", "grep zz /dev/null", "printf two", "sleep 0.1; printf three"]
    recorder, _ = await run(
        *[call(f"c{n}", "shell", {"command": command}) for n, command in enumerate(commands)], tools=[shell]
    )
    assert texts(recorder) == ["one", "exit code 1", "two", "three"]


# -- B031, B034: edits of one file ------------------------------------------------------------------------------------


def edit_tool(*, log: list[str] | None = None, name: str = "edit") -> Tool:
    @tool(name=name, writes=("path",))
    async def edit(path: str, old: str, new: str) -> str:
        """Replace one line in a file, slowly."""
        lines = Path(path).read_text().splitlines()
        await trio.sleep(1)
        lines[lines.index(old)] = new
        await trio.sleep(1)
        Path(path).write_text("".join([f"{line}\n" for line in lines]))
        if log is not None:
            log.append(new)
        return "edited"

    return edit


@tool(writes=("path",))
async def write(path: str, content: str) -> str:
    """Write a file, slowly."""
    await trio.sleep(1)
    Path(path).write_text(content)
    return "written"


def rows(path: Path) -> Path:
    path.write_text("".join([f"row {n}\n" for n in range(1, 201)]))
    return path


def edits(path: Path, *numbers: int) -> list[Step]:
    return [call(f"c{n}", "edit", {"path": str(path), "old": f"row {n}", "new": f"new {n}"}) for n in numbers]


async def test_B031_two_parallel_edits_of_one_file_both_survive(tmp_path: Path) -> None:
    """Both changes are in the file, and all other lines are as before."""
    path = rows(tmp_path / "rows.txt")
    recorder, _ = await run(*edits(path, 40, 160), tools=[edit_tool()])
    expected = [f"{'new' if n in (40, 160) else 'row'} {n}" for n in range(1, 201)]
    assert path.read_text().splitlines() == expected
    assert texts(recorder) == ["edited", "edited"]


async def test_B031_six_edits_are_applied_in_call_order(tmp_path: Path) -> None:
    """The order of application is the order of the calls."""
    path = rows(tmp_path / "rows.txt")
    log: list[str] = []
    await run(*edits(path, 6, 5, 4, 3, 2, 1), tools=[edit_tool(log=log)])
    assert log == [f"new {n}" for n in (6, 5, 4, 3, 2, 1)]
    assert path.read_text().splitlines()[:7] == [*[f"new {n}" for n in range(1, 7)], "row 7"]


@pytest.mark.parametrize("first", ["edit", "write"])
async def test_B031_an_edit_and_a_write_of_one_path_do_what_running_them_in_order_does(
    first: str, tmp_path: Path
) -> None:
    """Different tools that write one path are in one line: the result equals running them one by one."""
    path = rows(tmp_path / "rows.txt")
    both = [*edits(path, 40), call("w", "write", {"path": str(path), "content": "row 40\n"})]
    recorder, _ = await run(*(both if first == "edit" else both[::-1]), tools=[edit_tool(), write])
    assert path.read_text() == ("row 40\n" if first == "edit" else "new 40\n")
    assert [result.is_error for result in results(recorder)] == [False, False]


async def test_B031_edits_of_different_files_overlap_in_time(tmp_path: Path) -> None:
    """The lock is not one for all files: each of these two waits for the other in the middle of its write."""
    met = {name: trio.Event() for name in "ab"}

    @tool(writes=("path",))
    async def meet(path: str) -> str:
        """Wait for the other one."""
        met[Path(path).name].set()
        for event in met.values():
            await event.wait()
        return "met"

    recorder, _ = await run(*[call(n, "meet", {"path": str(tmp_path / n)}) for n in "ab"], tools=[meet])
    assert texts(recorder) == ["met", "met"]


@pytest.mark.parametrize("touched", [False, True])
async def test_B034_the_second_of_the_agents_own_edits_is_no_foreign_change(touched: bool, tmp_path: Path) -> None:
    """A guard that remembers what the file was lets both edits pass, and refuses somebody else's change."""
    path = rows(tmp_path / "rows.txt")
    seen = {str(path): path.read_text()}

    @tool(writes=("path",))
    async def guarded(path: str, old: str, new: str) -> str:
        """Edit a file that has not been changed since it was read."""
        content = Path(path).read_text()
        if content != seen[path]:
            raise RuntimeError("the file has changed since it was read; read it again")
        await trio.sleep(1)
        seen[path] = content.replace(f"{old}\n", f"{new}\n")
        Path(path).write_text(seen[path])
        return "edited"

    if touched:
        path.write_text("somebody else's\n")
        os.utime(path, (1, 1))
    recorder, _ = await run(
        *[call(f"c{n}", "guarded", {"path": str(path), "old": f"row {n}", "new": f"new {n}"}) for n in (40, 160)],
        tools=[guarded],
    )
    if touched:
        assert path.read_text() == "somebody else's\n"
        assert all("changed since it was read" in words for words in texts(recorder))
    else:
        assert texts(recorder) == ["edited", "edited"]
        assert {"new 40", "new 160"} <= set(path.read_text().splitlines())


# -- B035 -------------------------------------------------------------------------------------------------------------


def move_tool(log: list[str]) -> Tool:
    @tool(writes=("old", "new"))
    async def mv(old: str, new: str) -> str:
        """Swap the contents of two files."""
        log.append(f"begin {Path(old).name}")
        await trio.lowlevel.checkpoint()
        one, other = Path(old).read_text(), Path(new).read_text()
        await trio.sleep(1)
        Path(old).write_text(other)
        Path(new).write_text(one)
        log.append(f"end {Path(old).name}")
        return "moved"

    return mv


async def test_B035_two_calls_that_take_two_paths_in_opposite_order_do_not_deadlock(tmp_path: Path) -> None:
    """`mv(a, b)` and `mv(b, a)` in one turn both finish, one after the other."""
    log: list[str] = []
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_text("A")
    b.write_text("B")
    steps = [call("1", "mv", {"old": str(a), "new": str(b)}), call("2", "mv", {"old": str(b), "new": str(a)})]
    recorder, _ = await run(*steps, tools=[move_tool(log)])
    assert texts(recorder) == ["moved", "moved"]
    assert log == ["begin a", "end a", "begin b", "end b"]
    assert (a.read_text(), b.read_text()) == ("A", "B")


@pytest.mark.parametrize("how", ["twice", "an alias", "a link"])
async def test_B035_a_path_that_is_named_twice_does_not_block_itself(how: str, tmp_path: Path) -> None:
    """A tool that names one path twice, or a path and its own alias, waits for nobody."""
    a = tmp_path / "a"
    a.write_text("A")
    (tmp_path / "link").symlink_to(a)
    other = {"twice": str(a), "an alias": f"{tmp_path}/./a", "a link": str(tmp_path / "link")}[how]
    recorder, _ = await run(call("1", "mv", {"old": str(a), "new": other}), tools=[move_tool([])])
    assert texts(recorder) == ["moved"]


async def test_B035_a_waiter_that_is_cancelled_leaves_the_line_to_the_next_one(tmp_path: Path) -> None:
    """Three agents want one file; the second is cancelled while it waits, and the third gets it."""
    locks = FileLocks()
    path = str(tmp_path / "x")
    agents = [
        make_agent(
            ScriptedProvider([call("c", "write", {"path": path, "content": who}), finish("tool_use")], DONE),
            tools=[write],
            file_locks=locks,
        )
        for who in "abc"
    ]
    async with trio.open_nursery() as nursery:
        for agent, _ in agents:
            nursery.start_soon(agent.prompt, "go")
            await trio.testing.wait_all_tasks_blocked()
        agents[1][0].abort()
    assert (tmp_path / "x").read_text() == "c"
    assert [recorder.events[-1].outcome for _, recorder in agents] == ["completed", "aborted", "completed"]  # type: ignore[union-attr]
    assert locks.statistics().keys == 0
    for _, recorder in agents:
        assert_settled(recorder)


# -- B036, B038: ids --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [("f:1", "f:1"), ("", None), ("", ""), (None, None)])
async def test_B036_B038_one_id_for_two_calls_or_none_at_all(ids: tuple[str | None, str | None]) -> None:
    """Both run; ids in requests are distinct and paired, events tell the two apart, the rewrite is stable."""
    one, other = ids
    provider = ScriptedProvider(
        [call(one, "echo", {"v": "x"}), call(other, "echo", {"v": "y"}), finish("tool_use")],
        [call(one, "echo", {"v": "z"}), finish("tool_use")],
        DONE,
        DONE,
    )
    agent, recorder = make_agent(provider, tools=[echo])
    await agent.prompt("go")
    await agent.prompt("again")
    assert texts(recorder) == ["x", "y", "z"]
    sent = [
        [c.id for m in request.messages if isinstance(m, AssistantMessage) for c in m.tool_calls]
        for request in provider.requests
    ]
    assert [len(made) for made in sent] == [0, 2, 3, 3]
    assert len(set(sent[3])) == 3
    assert all(made.strip() for made in sent[3])
    assert sent[3][: len(sent[1])] == sent[1]
    assert sent[2] == sent[3]
    for request in provider.requests:
        assert_paired(request.messages)
    ends = {e.tool_call_id: e.result.text for e in recorder.events if e.type == "tool_execution_end"}
    assert ends == dict(zip(sent[3], "xyz", strict=True))
    deltas = [e.delta for e in recorder.events if isinstance(e, MessageUpdate)]
    told = {delta.id: delta.json for delta in deltas if isinstance(delta, ToolCallFragment) and delta.json}
    assert told == {made: f'{{"v":"{v}"}}' for made, v in zip(sent[3], "xyz", strict=True)}
    assert_settled(recorder)


# -- B039 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["no_such", "", " echo ", "x" * 300, "Echo", "ECHO", "écho", "echo\n"])
async def test_B039_a_tool_name_that_the_model_made_up(name: str) -> None:
    """An error result that names the tools there are; no other tool is run instead, and the run goes on."""
    ran: list[str] = []

    @tool(name="echo")
    async def noted(v: str) -> str:
        """Say it again."""
        ran.append(v)
        return v

    recorder, _ = await run(
        call("c1", name, {"v": "wrong"}), call("c2", "echo", {"v": "x"}), tools=[noted, edit_tool()]
    )
    assert ran == ["x"]
    bad, good = results(recorder)
    assert (bad.is_error, good.text) == (True, "x")
    assert "echo" in bad.text
    assert "edit" in bad.text
    assert len(bad.text) < 1000
    assert [line for line in executions(recorder.events) if line.endswith("c1")] == ["start c1", "end c1"]


# -- B040, B041: return values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("", None),
        ("  \n", None),
        (0, "0"),
        (False, "false"),
        ([], "[]"),
        ({}, "{}"),
        (0.0, "0.0"),
    ],
)
async def test_B040_a_tool_that_returns_next_to_nothing_has_answered(value: Any, expected: str | None) -> None:
    """Something to read is in every result; `0`, `False` and `[]` keep their value."""

    @tool
    async def give() -> Any:
        """Return something."""
        return value

    recorder, provider = await run(call("c1", "give"), tools=[give])
    [result] = results(recorder)
    assert not result.is_error
    assert result.text.strip()
    if expected is not None:
        assert result.text == expected
    assert provider.requests[1].messages[-1] == result


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Shy:
    def __repr__(self) -> str:
        raise AssertionError("nobody asks for it")


def circular() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": 1}, '"a": ?1'),
        (Point(1, 2), '"x": ?1.*"y": ?2'),
        (dt.datetime(2026, 1, 2, 3, 4), "2026-01-02T03:04"),
        (Path("/tmp/x"), "/tmp/x"),
        ({1, 2}, "1, ?2"),
        ([{"text": "a"}, {"text": "b"}], '"text": ?"a"'),
    ],
)
async def test_B041_data_becomes_readable_text(value: Any, expected: str) -> None:
    """Dicts, dataclasses, dates, paths, sets and lists of data are one text that the model can read."""

    @tool
    async def give() -> Any:
        """Return something."""
        return value

    recorder, _ = await run(call("c1", "give"), tools=[give])
    [result] = results(recorder)
    assert not result.is_error
    assert len(result.content) == 1
    assert re.search(expected, result.text)


@pytest.mark.parametrize(
    ("value", "type_name"),
    [(b"\xff\x00", "bytes"), (float("nan"), "float"), ([float("inf")], "list"), (circular(), "list"), (Shy(), "Shy")],
)
async def test_B041_what_cannot_be_said_is_an_error_result_and_the_tool_is_not_run_again(
    value: Any, type_name: str
) -> None:
    """The result names the tool and the type, the tool ran once, and no NaN is in any request."""
    ran = 0

    @tool
    async def give() -> Any:
        """Return something."""
        nonlocal ran
        ran += 1
        return value

    recorder, provider = await run(call("c1", "give"), tools=[give])
    [result] = results(recorder)
    assert result.is_error
    assert "give" in result.text
    assert type_name in result.text
    assert ran == 1
    for message in provider.requests[1].messages:
        json.dumps(encode(message), allow_nan=False)


async def test_B041_an_image_stays_an_image_beside_its_text() -> None:
    """Lists that are content are not flattened into JSON."""
    picture = Image(b"png", "image/png")

    @tool
    async def look() -> list[Any]:
        """Take a picture."""
        return ["before", picture, Text("behind")]

    recorder, _ = await run(call("c1", "look"), tools=[look])
    assert results(recorder)[0].content == (Text("before"), picture, Text("behind"))


# -- B042 -------------------------------------------------------------------------------------------------------------

who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


@pytest.mark.real_time
async def test_B042_sync_tools_block_nobody() -> None:
    """Two blocking functions run side by side, all else goes on; they see context variables and reach Trio."""
    ticks: list[float] = []

    @tool
    def block(n: int) -> str:
        """Block the thread."""
        time.sleep(0.2)
        trio.from_thread.run(trio.sleep, 0)
        return f"{who.get()} {n}"

    async def heartbeat() -> None:
        while True:
            ticks.append(time.monotonic())
            await trio.sleep(0.02)

    who.set("caller")
    began = time.monotonic()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(heartbeat)
        recorder, _ = await run(*[call(f"c{n}", "block", {"n": n}) for n in (1, 2)], tools=[block])
        nursery.cancel_scope.cancel()
    assert time.monotonic() - began < 0.39
    assert max(after - before for before, after in itertools.pairwise(ticks)) < 0.15
    assert texts(recorder) == ["caller 1", "caller 2"]


# -- B045 -------------------------------------------------------------------------------------------------------------


async def test_B045_a_tool_that_hangs_is_timed_out_and_nobody_else_is_touched() -> None:
    """The error says timed out after 5 s, not aborted; the run goes on; the tool's own scope caught nothing."""
    scopes: list[trio.CancelScope] = []

    @tool(timeout=5)
    async def hang() -> str:
        """Hang in a scope of its own."""
        with trio.CancelScope() as scope:
            scopes.append(scope)
            await trio.sleep_forever()
        raise AssertionError("it got out")

    began = trio.current_time()
    recorder, _ = await run(call("a", "hang"), call("b", "echo", {"v": "B"}), tools=[hang, echo])
    timed_out, sibling = results(recorder)
    assert timed_out.is_error
    assert "timed out after 5 s" in timed_out.text
    assert "abort" not in timed_out.text
    assert sibling.text == "B"
    assert [scope.cancelled_caught for scope in scopes] == [False]
    assert trio.current_time() - began == pytest.approx(5)


@pytest.mark.parametrize("what", ["returns", "raises"])
async def test_B045_what_a_tool_makes_of_its_timeout_changes_nothing(what: str) -> None:
    """A tool that swallows its cancellation and returns, or turns it into an exception, has timed out all the same."""

    @tool(timeout=5)
    async def hang() -> str:
        """Answer a cancellation in its own way."""
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            if what == "raises":
                raise ConnectionError("lost") from None
        return "as if nothing had been"

    recorder, _ = await run(call("a", "hang"), tools=[hang])
    assert "timed out after 5 s" in texts(recorder)[0]


@pytest.mark.real_time
async def test_B045_a_hung_thread_is_given_up_at_its_timeout() -> None:
    """A blocking function whose time is up leaves an error result and does not hold up the run."""
    leave = threading.Event()

    @tool(timeout=0.1)
    def hang() -> str:
        """Block."""
        leave.wait(20)
        return "late"

    began = time.monotonic()
    recorder, _ = await run(call("a", "hang"), call("b", "echo", {"v": "B"}), tools=[hang, echo])
    assert time.monotonic() - began < 2
    leave.set()
    assert "timed out after 0.1 s" in texts(recorder)[0]
    assert texts(recorder)[1] == "B"


@pytest.mark.parametrize("ids", [("", ""), (None, None), ("", None), (" ", "x"), ("x", "x")])
async def test_B038_blank_missing_or_shared_ids_are_replaced_by_distinct_ones(
    ids: tuple[str | None, str | None],
) -> None:
    """Both calls run; the next request has two different non-empty ids, each once in the call and in the result."""
    provider = ScriptedProvider(
        [call(ids[0], "echo", {"v": "one"}), call(ids[1], "echo", {"v": "two"}), finish("tool_use")],
        [text("ok"), finish()],
    )

    @tool
    async def echo(v: str) -> str:
        """Say it again."""
        return v

    agent, recorder = make_agent(provider, tools=[echo])
    assert (await agent.prompt("go")).outcome == "completed"
    messages = list(provider.requests[1].messages)
    assert_paired(messages)
    (asked,) = [message for message in messages if isinstance(message, AssistantMessage)]
    made = [made.id for made in asked.tool_calls]
    assert len({*made}) == 2
    assert all(id.strip() for id in made)
    assert [m.text for m in messages if isinstance(m, ToolResultMessage)] == ["one", "two"]
    assert_settled(recorder)
