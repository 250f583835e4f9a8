"""Topic 2, event order and settlement, as others have met them (B019 to B027): the kernel's part of each case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from scenes import assert_settled, make_agent, on

from trio_agent import (
    Agent,
    AssistantMessage,
    Compaction,
    Event,
    ModelRequest,
    ProviderError,
    ReentrantCallError,
    RetryPolicy,
    Send,
    TextDelta,
    ToolContext,
    ToolExecutionUpdate,
    UserMessage,
    tool,
)
from trio_agent.testing import ScriptedProvider, call, finish, text

DONE: list[Any] = [text("ok"), finish()]


# -- B019 -------------------------------------------------------------------------------------------------------------


async def test_B019_no_progress_is_told_behind_the_end_of_the_tool() -> None:
    """A background task that reports every few milliseconds, also when the tool is over, is heard only until then."""
    reports = 0

    async with trio.open_nursery() as background:

        @tool
        async def shell(ctx: ToolContext) -> str:
            """Return while something else still reports."""

            async def tick() -> None:
                nonlocal reports
                for _ in range(40):
                    await trio.sleep(0.005)
                    await ctx.update("tick")
                    reports += 1

            background.start_soon(tick)
            await trio.sleep(0.1)
            return "done"

        @tool
        async def nap() -> str:
            """Sleep longer than the ticking."""
            await trio.sleep(1)
            return "slept"

        provider = ScriptedProvider([call("a", "shell"), call("b", "nap"), finish("tool_use")], DONE)
        agent, recorder = make_agent(provider, tools=[shell, nap])
        on(agent, "tool_execution_update", lambda event: agent.steer("hurry"))
        result = await agent.prompt("go")
        result.raise_for_error()
    assert reports == 40
    lines = [line for line in recorder.lines if " a " in line]
    assert lines[-1] == 'tool_execution_end a ok "done"' or lines[-1].startswith("message_end tool_result a")
    end = recorder.lines.index('tool_execution_end a ok "done"')
    updates = [at for at, line in enumerate(recorder.lines) if line.startswith("tool_execution_update a")]
    assert 10 < len(updates) < 40
    assert max(updates) < end
    assert_settled(recorder)


@pytest.mark.real_time
async def test_B019_no_progress_from_a_worker_thread_behind_the_end() -> None:
    """The call from a worker thread behind the end does nothing and does not raise."""
    kept: list[ToolContext] = []

    @tool
    async def leave(ctx: ToolContext) -> str:
        """Keep the context."""
        kept.append(ctx)
        return "done"

    provider = ScriptedProvider([call("a", "leave"), finish("tool_use")], DONE)
    agent, recorder = make_agent(provider, tools=[leave])

    async def late(event: Event) -> None:
        await trio.to_thread.run_sync(lambda: trio.from_thread.run(kept[0].update, "late"))

    on(agent, "tool_execution_end", late)
    on(agent, "turn_end", late)
    result = await agent.prompt("go")
    result.raise_for_error()
    await late(recorder.events[-1])
    assert recorder.lines_of("tool_execution_update") == []
    assert_settled(recorder)


# -- B020 -------------------------------------------------------------------------------------------------------------


async def test_B020_progress_is_told_while_the_tool_works() -> None:
    """A subscriber sees the first report while the tool still waits for what comes behind it."""
    gates = [trio.Event(), trio.Event()]

    @tool
    async def work(ctx: ToolContext) -> str:
        """Report, wait, report, wait."""
        for number, gate in enumerate(gates, start=1):
            await ctx.update(str(number))
            await gate.wait()
        return "done"

    agent, recorder = make_agent(ScriptedProvider([call("a", "work"), finish("tool_use")], DONE), tools=[work])

    def listener(event: Event) -> None:
        if isinstance(event, ToolExecutionUpdate):
            gates[int(event.partial[0].text) - 1].set()  # type: ignore[union-attr]  # only now may the tool go on

    agent.subscribe(listener)
    await agent.prompt("go")
    assert recorder.lines_of("tool_execution_update") == ['tool_execution_update a "1"', 'tool_execution_update a "2"']
    assert_settled(recorder)


# -- B021 -------------------------------------------------------------------------------------------------------------


async def test_B021_wait_for_idle_returns_when_the_handlers_are_done() -> None:
    """A slow subscriber has handled every event, also the retry's and the last one, when `wait_for_idle()` returns."""
    provider = ScriptedProvider([text("ha"), ProviderError("server", "unavailable", status=503)], DONE)
    agent, recorder = make_agent(provider, retry=RetryPolicy(base_delay=1, jitter=False))
    handled: list[str] = []

    async def slow(event: Event) -> None:
        if event.type in ("message_end", "retry_end", "agent_end"):
            await trio.sleep(1)
        handled.append(event.type)

    unsubscribe = agent.subscribe(slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.sleep(0.5)
        await agent.wait_for_idle()
        unsubscribe()
        assert handled == recorder.types
    assert handled.count("message_end") == 3
    assert "retry_end" in handled
    assert handled[-1] == "agent_end"
    assert_settled(recorder)


@pytest.mark.parametrize("catch", [True, False])
async def test_B021_wait_for_idle_from_inside_a_subscriber_is_an_error_and_no_deadlock(catch: bool) -> None:
    """It would wait for itself: it raises at once, and the run goes on if the subscriber catches that."""
    agent, recorder = make_agent(ScriptedProvider(DONE))

    async def listener(event: Event) -> None:
        if catch:
            with pytest.raises(ReentrantCallError, match="wait_for_idle"):
                await agent.wait_for_idle()
        else:
            await agent.wait_for_idle()

    on(agent, "message_end", listener)
    result = await agent.prompt("go")
    assert result.outcome == ("completed" if catch else "error")
    assert isinstance(result.error, ReentrantCallError) is not catch
    assert recorder.events[-1].time == 0
    assert_settled(recorder)


# -- B022 -------------------------------------------------------------------------------------------------------------


class Once:
    """Compacts before the second turn."""

    def __init__(self) -> None:
        self.done = False

    def threshold(self, state: Any) -> bool:
        return not self.done and state.turn == 2

    async def compact(self, messages: Sequence[Any], reason: str) -> Compaction:
        self.done = True
        return Compaction(UserMessage("summary"), len(messages))


async def test_B022_agent_end_is_the_end() -> None:
    """One start and one end for a retry, a tool turn, a compaction and a follow-up; idle is first seen behind it."""

    @tool
    async def echo(v: str) -> str:
        """Say it again."""
        return v

    provider = ScriptedProvider(
        [ProviderError("overloaded", "busy")], [call("c1", "echo", {"v": "x"}), finish("tool_use")], DONE, DONE
    )
    agent, recorder = make_agent(
        provider, tools=[echo], retry=RetryPolicy(base_delay=1, jitter=False), compaction=Once()
    )
    agent.follow_up("and then?")
    phases: set[str] = set()

    async def slow(event: Event) -> None:
        await trio.sleep(1)
        phases.add(agent.state.phase.value)

    agent.subscribe(slow)
    await agent.prompt("go")
    assert {"retry_start", "compaction_start", "tool_execution_end"} <= set(recorder.types)
    assert recorder.lines.count('message_end user "and then?"') == 1
    assert (recorder.types.count("agent_start"), recorder.types.count("agent_end")) == (1, 1)
    assert recorder.types[-1] == "agent_end"
    assert phases == {"turn", "retry", "compaction"}
    assert {state.phase.value for state in recorder.states} == {"turn", "retry", "compaction"}
    assert agent.state.phase.value == "idle"
    assert_settled(recorder)


# -- B025 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["an error in the stream", "the stream ends", "the provider's own bug"])
async def test_B025_a_message_that_fails_in_the_middle_has_its_end(how: str) -> None:
    """Half an answer ends with `error`, its text and the kind of failure; then the turn and the run end."""

    async def provider(request: ModelRequest, send: Send) -> None:
        await send(TextDelta(0, "Half"))
        if how == "an error in the stream":
            raise ProviderError("overloaded", "busy")
        if how == "the provider's own bug":
            raise KeyError("choices")

    agent, recorder = make_agent(provider, retry=RetryPolicy(max_attempts=1))
    result = await agent.prompt("go")
    words = {
        "an error in the stream": ("overloaded", "overloaded: busy"),
        "the stream ends": ("protocol", "without an end marker"),
        "the provider's own bug": (None, "KeyError"),
    }
    reason, text_of_it = words[how]
    [message] = [m for m in agent.state.messages if isinstance(m, AssistantMessage)]
    assert recorder.types[4:] == ["message_start", "message_update", "message_end", "turn_end", "agent_end"]
    assert (message.text, message.stop_reason) == ("Half", "error")
    assert text_of_it in (message.error_message or "")
    assert (result.outcome, result.reason) == ("error", reason)
    assert_settled(recorder)


# -- B027 -------------------------------------------------------------------------------------------------------------


async def test_B027_what_a_slow_handler_of_turn_end_queues_is_in_the_same_run() -> None:
    """The queues are looked at when every handler of `turn_end` is done: a message queued by a slow one is not lost."""
    agent, recorder = make_agent(ScriptedProvider(DONE, DONE))
    quick: list[str] = []
    agent.subscribe(lambda event: quick.append(event.type))

    async def slow(event: Event) -> None:
        await trio.sleep(0.5)
        agent.follow_up("more")

    on(agent, "turn_end", slow)
    await agent.prompt("go")
    at = recorder.lines.index('message_end user "more"')
    assert recorder.types.index("agent_end") > at
    assert recorder.types.count("agent_end") == 1
    assert quick == recorder.types
    assert_settled(recorder)


async def test_B027_a_fast_subscriber_waits_for_a_slow_one_and_loses_nothing() -> None:
    """Both see the same events; none is handed the next one before both have handled this one."""
    log: list[str] = []

    async def logger(event: Event) -> None:
        await trio.sleep(0.5)
        log.append(f"logger {event.type}")

    agent: Agent
    agent, recorder = make_agent(ScriptedProvider(DONE))
    agent.subscribe(logger)
    agent.subscribe(lambda event: log.append(f"screen {event.type}"))
    await agent.prompt("go")
    assert log == [f"{who} {type}" for type in recorder.types for who in ("logger", "screen")]
    assert_settled(recorder)
