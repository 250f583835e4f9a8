"""Topic 1, abort and cancellation, as others have met them (B001 to B017): the kernel's part of each case."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from scenes import assert_idle, assert_paired, assert_settled, make_agent, on, said

from trio_agent import (
    Agent,
    AssistantMessage,
    Compaction,
    Event,
    Hooks,
    Image,
    MessageEnd,
    ProviderError,
    RetryPolicy,
    ToolContext,
    ToolResultMessage,
    UserMessage,
    decode,
    encode,
    tool,
)
from trio_agent._codec import encode_line
from trio_agent.testing import ScriptedProvider, call, check_trace, finish, stall, text

DONE: list[Any] = [text("ok"), finish()]


@tool
async def wait() -> str:
    """Sleep for ever."""
    await trio.sleep_forever()
    raise AssertionError("nobody wakes it")


@tool
async def echo(v: str) -> str:
    """Say it again."""
    return v


def results(agent: Agent) -> dict[str, ToolResultMessage]:
    return {m.tool_call_id: m for m in agent.state.messages if isinstance(m, ToolResultMessage)}


# -- B001, B002 -------------------------------------------------------------------------------------------------------


async def test_B001_a_call_that_was_interrupted_has_its_result_in_the_next_request() -> None:
    """An abort while a tool runs leaves an error result that says so, and the next request is one a service takes."""
    provider = ScriptedProvider([call("c1", "wait"), finish("tool_use")], DONE)
    agent, recorder = make_agent(provider, tools=[wait])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.testing.wait_all_tasks_blocked()
        agent.abort()
        await agent.wait_for_idle()
    assert results(agent)["c1"].is_error
    assert "abort" in results(agent)["c1"].text
    assert (await agent.prompt("next")).outcome == "completed"
    assert_paired(provider.requests[1].messages)
    assert [m.role for m in provider.requests[1].messages] == ["user", "assistant", "tool_result", "user"]
    assert_settled(recorder)


async def test_B002_abort_with_one_tool_done_one_running_and_one_not_started() -> None:
    """Three results in call order: the one that was done keeps its answer, the other two say that they were aborted."""

    @tool(serial=True)
    async def behind() -> str:
        """Wait behind the others."""
        raise AssertionError("it began")

    provider = ScriptedProvider(
        [call("a", "echo", {"v": "A"}), call("b", "wait"), call("c", "behind"), finish("tool_use")], DONE
    )
    agent, recorder = make_agent(provider, tools=[echo, wait, behind])
    on(agent, "tool_execution_end", lambda event: agent.abort())
    await agent.prompt("go")
    found = results(agent)
    assert list(found) == ["a", "b", "c"]
    assert (found["a"].text, found["a"].is_error) == ("A", False)
    assert "while the tool was running" in found["b"].text
    assert "Not run" in found["c"].text
    assert [found[id].is_error for id in "bc"] == [True, True]
    starts = [e.tool_call_id for e in recorder.events if e.type == "tool_execution_start"]
    ends = [e.tool_call_id for e in recorder.events if e.type == "tool_execution_end"]
    assert sorted(starts) == sorted(ends) == ["a", "b", "c"]
    await agent.prompt("next")
    assert_paired(provider.requests[1].messages)
    assert_settled(recorder)


# -- B004 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["agent_start", "transform_context"])
async def test_B004_an_abort_before_the_first_request_lets_no_request_be_sent(where: str) -> None:
    """Aborted by the first subscriber or the first hook, a run ends aborted without a request."""
    provider = ScriptedProvider(DONE)
    agent, recorder = make_agent(provider)

    def hook(messages: Any) -> Any:
        agent.abort()
        return messages

    if where == "agent_start":
        on(agent, "agent_start", lambda event: agent.abort())
    else:
        agent.configure(hooks=Hooks(transform_context=hook))
    assert (await agent.prompt("go")).outcome == "aborted"
    assert provider.requests == []
    assert said(agent.state.messages) == ['user "go"', "assistant aborted !aborted"]
    assert_settled(recorder)


@pytest.mark.parametrize("checkpoints", [0, 1, 2, 3, 4])
async def test_B004_an_abort_so_soon_after_the_start_either_finds_a_run_or_does_nothing(checkpoints: int) -> None:
    """Called before the prompt's task has run, it is a no-op; once the phase is not idle, the run ends aborted."""
    agent, recorder = make_agent(ScriptedProvider([text("x"), finish()]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        for _ in range(checkpoints):
            await trio.lowlevel.checkpoint()
        was_idle = agent.state.phase.value == "idle"
        was_over = bool(recorder.types) and recorder.types[-1] == "agent_end"
        agent.abort()
    assert was_idle or checkpoints
    expected = "completed" if was_idle or was_over else "aborted"
    assert recorder.events[-1].outcome == expected  # type: ignore[union-attr]
    assert recorder.types.count("agent_end") == 1
    assert_settled(recorder)


# -- B006 -------------------------------------------------------------------------------------------------------------


async def test_B006_a_question_to_the_user_does_not_survive_the_abort() -> None:
    """A hook that waits for an answer is cancelled at once, its call has an aborted result, and its tool never ran."""
    log: list[str] = []

    async def ask(call: Any) -> None:
        try:
            await trio.Event().wait()
        except trio.Cancelled:
            log.append("cancelled")
            raise

    @tool
    async def act() -> str:
        """Act."""
        raise AssertionError("it ran")

    agent, recorder = make_agent(
        ScriptedProvider([call("c1", "act"), finish("tool_use")]), tools=[act], hooks=Hooks(before_tool_call=ask)
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.testing.wait_all_tasks_blocked()
        before = trio.current_time()
        agent.abort()
        await agent.wait_for_idle()
        assert trio.current_time() == before
    assert log == ["cancelled"]
    assert results(agent)["c1"].is_error
    assert "aborted" in results(agent)["c1"].text
    assert_settled(recorder)


# -- B007 -------------------------------------------------------------------------------------------------------------

STUBBORN = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(30)
"""


async def kill(process: trio.Process) -> None:
    """What Trio does to a process whose task is cancelled, without the patience."""
    process.kill()


@pytest.mark.real_time
async def test_B007_abort_does_not_wait_for_the_process_to_end_by_itself() -> None:
    """A process that ignores polite signals is gone within moments, and the result says what it had printed."""
    processes: list[trio.Process] = []

    @tool
    async def shell(ctx: ToolContext) -> str:
        """Run a program and report what it prints."""
        async with trio.open_nursery() as nursery:

            async def start(task_status: Any) -> None:
                with suppress(OSError):
                    await trio.run_process(
                        [sys.executable, "-c", STUBBORN],
                        stdout=-1,
                        task_status=task_status,
                        deliver_cancel=kill,
                        check=False,
                    )

            process: trio.Process = await nursery.start(start)
            processes.append(process)
            assert process.stdout is not None
            async for chunk in process.stdout:
                await ctx.update(chunk.decode())
        raise AssertionError("the process ended by itself")

    agent, recorder = make_agent(ScriptedProvider([call("c1", "shell"), finish("tool_use")]), tools=[shell])
    seen = trio.Event()
    on(agent, "tool_execution_update", lambda event: seen.set())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await seen.wait()
        began = trio.current_time()
        agent.abort()
        await agent.wait_for_idle()
        assert trio.current_time() - began < 3
    assert results(agent)["c1"].is_error
    assert "Its last update was: up" in results(agent)["c1"].text
    assert "aborted" in results(agent)["c1"].text
    assert [process.returncode is not None for process in processes] == [True]
    assert_settled(recorder)


# -- B009 -------------------------------------------------------------------------------------------------------------


class Summary:
    """Compacts before the first request, and takes its time."""

    def threshold(self, state: Any) -> bool:
        return True

    async def compact(self, messages: Sequence[Any], reason: str) -> Compaction:
        await trio.sleep_forever()
        raise AssertionError("nobody waits for that")


WHERE: dict[str, list[list[Any]]] = {
    "before the first token": [[stall()]],
    "in the middle of a text": [[text("Hel"), stall()]],
    "in the middle of a call's arguments": [[text("I look"), call("c1", "echo", '{"v": "x'), stall()]],
    "while a tool runs": [[call("c1", "wait"), finish("tool_use")]],
    "between two turns": [[call("c1", "echo", {"v": "x"}), finish("tool_use")]],
    "in the wait before a retry": [[ProviderError("overloaded", "busy")]],
    "in a compaction": [],
}


@pytest.mark.parametrize("where", WHERE)
async def test_B009_an_abort_is_told_wherever_it_comes(where: str) -> None:
    """Exactly one `agent_end`, which says aborted, in whatever phase that was; and the next prompt is answered."""
    provider = ScriptedProvider(*WHERE[where], DONE)
    handled: list[str] = []

    async def slow(event: Event) -> None:
        await trio.sleep(0.01)
        handled.append(event.type)

    agent, recorder = make_agent(
        provider,
        tools=[wait, echo],
        retry=RetryPolicy(base_delay=60, jitter=False),
        compaction=Summary() if where == "in a compaction" else None,
    )
    agent.subscribe(slow)
    if where == "between two turns":
        on(agent, "turn_end", lambda event: agent.abort())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.sleep(5)
        agent.abort("enough")
        await agent.wait_for_idle()
        assert handled == recorder.types
    assert recorder.types.count("agent_end") == 1
    assert recorder.events[-1].outcome == "aborted"  # type: ignore[union-attr]
    assert_settled(recorder)
    if where != "in a compaction":
        assert (await agent.prompt("next")).outcome == "completed"
        assert_paired(provider.requests[-1].messages)
        assert_settled(recorder)


# -- B010 -------------------------------------------------------------------------------------------------------------


@pytest.mark.real_time
async def test_B010_the_partial_answer_is_kept_told_and_sent(tmp_path: Path) -> None:
    """What had arrived is in `message_end`, in a log that a subscriber writes, in history, and in the next request."""
    log = trio.Path(tmp_path / "log.jsonl")

    async def write(event: Event) -> None:
        if isinstance(event, MessageEnd):
            async with await log.open("a", encoding="utf-8") as file:
                await file.write(encode_line(event.message) + "\n")

    provider = ScriptedProvider([text("Hel"), text("lo"), stall()])
    agent, recorder = make_agent(provider)
    agent.subscribe(write)
    on(agent, "message_update", lambda event: agent.abort(), nth=2)
    await agent.prompt("go")
    [ended] = [e.message for e in recorder.events if isinstance(e, MessageEnd) and e.message.role == "assistant"]
    assert (ended.text, ended.stop_reason) == ("Hello", "aborted")

    logged = [decode(json.loads(line)) for line in (await log.read_text("utf-8")).splitlines()]
    assert logged == list(agent.state.messages)
    assert logged[-1] == ended
    again = ScriptedProvider(DONE)
    reopened, _ = make_agent(again, messages=logged)
    await reopened.prompt("more")
    assert [(m.role, m.text) for m in again.requests[0].messages] == [  # type: ignore[union-attr]
        ("user", "go"),
        ("assistant", "Hello"),
        ("user", "more"),
    ]
    assert_settled(recorder)


# -- B011 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interrupted", [True, False])
async def test_B011_the_model_is_told_that_work_was_interrupted_and_may_be_half_done(
    interrupted: bool, tmp_path: Path
) -> None:
    """After an abort the next request says of the call that it may have partly run; after an ordinary end not."""
    counter = tmp_path / "counter"

    @tool
    async def push() -> str:
        """Do something that cannot be undone, then take long."""
        counter.write_text("1")
        if interrupted:
            await trio.sleep_forever()
        return "pushed"

    replies = [[call("c1", "push"), finish("tool_use")], DONE, DONE]
    provider = ScriptedProvider(*replies)
    agent, recorder = make_agent(provider, tools=[push])
    with trio.move_on_after(5):
        await agent.prompt("push it")
    await agent.prompt("do something else")
    said_of_it = " ".join(said(provider.requests[-1].messages))
    assert counter.read_text() == "1"
    [result] = [m for m in provider.requests[-1].messages if isinstance(m, ToolResultMessage)]
    assert ("may have partly run" in result.text) is interrupted
    assert ("abort" in said_of_it) is interrupted
    assert_settled(recorder)


# -- B015 -------------------------------------------------------------------------------------------------------------


@pytest.mark.real_time
@pytest.mark.parametrize("how", ["abort", "cancel"])
async def test_B015_a_cancelled_run_is_filed_as_aborted_and_the_filing_itself_happens(how: str, tmp_path: Path) -> None:
    """Event, result and log all say aborted; a subscriber that awaits real writes is not cut off."""
    log = trio.Path(tmp_path / "log.jsonl")

    async def write(event: Event) -> None:
        await trio.sleep(0.005)
        async with await log.open("a", encoding="utf-8") as file:
            await file.write(encode_line(event) + "\n")
        await trio.sleep(0.005)

    started = trio.Event()

    @tool
    async def work() -> str:
        """Start and never end."""
        started.set()
        await trio.sleep_forever()
        raise AssertionError("nobody wakes it")

    agent, recorder = make_agent(ScriptedProvider([call("c1", "work"), finish("tool_use")]), tools=[work])
    agent.subscribe(write)
    result = None
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def stop() -> None:
                await started.wait()
                if how == "abort":
                    agent.abort()
                else:
                    scope.cancel()

            nursery.start_soon(stop)
            result = await agent.prompt("go")
    assert scope.cancelled_caught is (how == "cancel")
    if how == "abort":
        assert result is not None
        assert result.outcome == "aborted"
    lines = (await log.read_text("utf-8")).splitlines()
    assert len(lines) == len(recorder.events)
    assert '"outcome":"aborted"' in lines[-1]
    assert check_trace(lines) == []
    assert_settled(recorder)


# -- B016 -------------------------------------------------------------------------------------------------------------


async def test_B016_abort_ends_the_wait_before_a_retry() -> None:
    """Idle at once, one request in all, phases turn, retry, turn, idle; the failure was not told as a final error."""
    provider = ScriptedProvider([ProviderError("server", "unavailable", status=503)])
    agent, recorder = make_agent(provider, retry=RetryPolicy(base_delay=60, jitter=False))
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.sleep(1)
        agent.abort()
        await agent.wait_for_idle()
        assert trio.current_time() - began == pytest.approx(1)
    phases: list[str] = []
    for state in (*recorder.states, agent.state):
        if phases[-1:] != [state.phase.value]:
            phases.append(state.phase.value)
    assert phases == ["turn", "retry", "turn", "idle"]
    assert len(provider.requests) == 1
    assert recorder.lines[-1] == "agent_end aborted"
    assert [m.stop_reason for m in agent.state.messages if isinstance(m, AssistantMessage)] == ["aborted"]
    assert_settled(recorder)


# -- B017 -------------------------------------------------------------------------------------------------------------


async def test_B017_aborting_again_and_again_takes_no_other_path() -> None:
    """A second abort amid cleaning up, a third from a subscriber, a fourth when idle: one result, one end, no error."""

    @tool
    async def slow_to_leave() -> str:
        """Need a moment to clean up."""
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
        raise AssertionError("nobody wakes it")

    provider = ScriptedProvider([call("c1", "slow_to_leave"), call("c2", "wait"), finish("tool_use")])
    agent, recorder = make_agent(provider, tools=[slow_to_leave, wait])

    def at_the_result(event: Any) -> None:
        if event.message.role == "tool_result":
            agent.abort("third")

    agent.subscribe(lambda event: at_the_result(event) if event.type == "message_end" else None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.sleep(5)
        agent.abort("first")
        await trio.sleep(0.5)
        agent.abort("second")
        await agent.wait_for_idle()
    agent.abort("fourth")
    assert list(results(agent)) == ["c1", "c2"]
    assert recorder.types.count("agent_end") == 1
    assert recorder.lines[-1] == "agent_end aborted first"
    assert_settled(recorder)


async def test_B017_a_result_that_is_only_an_image_is_a_result() -> None:
    """A tool that returns nothing but an image has answered its call: the result carries the image."""

    @tool
    async def screenshot() -> Image:
        """Take a picture."""
        return Image(b"png", "image/png")

    provider = ScriptedProvider([call("c1", "screenshot"), finish("tool_use")], DONE)
    agent, recorder = make_agent(provider, tools=[screenshot])
    await agent.prompt("go")
    assert results(agent)["c1"].content == (Image(b"png", "image/png"),)
    assert_paired(provider.requests[1].messages)
    assert_settled(recorder)


async def test_B017_an_abort_of_an_idle_agent_is_not_remembered() -> None:
    """An abort belongs to one run: the next prompt is answered as if nothing had been."""
    agent, recorder = make_agent(ScriptedProvider(DONE), messages=[UserMessage("old"), AssistantMessage("older")])
    agent.abort()
    assert (await agent.prompt("go")).outcome == "completed"
    assert_idle(agent)
    assert encode(recorder.events[-1])["outcome"] == "completed"
    assert_settled(recorder)
