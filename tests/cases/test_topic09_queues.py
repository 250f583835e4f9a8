"""Topic 9, steering, follow-ups and a prompt while running, as others have met them (B108 to B119)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from scenes import Recorder, assert_paired, assert_settled, make_agent, on, said

from trio_agent import (
    Agent,
    AgentBusyError,
    AssistantMessage,
    Compaction,
    Event,
    Hooks,
    MessageStart,
    ProviderError,
    ReentrantCallError,
    RetryPolicy,
    UserMessage,
    tool,
)
from trio_agent.testing import ScriptedProvider, call, finish, sleep, stall, text, wait


def answers(*texts: str) -> list[list[Any]]:
    return [[text(words), finish()] for words in texts]


def user_texts(agent: Agent) -> list[str]:
    return [m.text for m in agent.state.messages if isinstance(m, UserMessage)]


def queued(agent: Agent) -> list[str]:
    state = agent.state
    return [m.text for m in (*state.steering_queue, *state.follow_up_queue) if isinstance(m, UserMessage)]


# -- B108 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queue", ["steer", "follow_up"])
async def test_B108_what_is_queued_in_agent_end_is_not_lost_and_starts_nothing(queue: str) -> None:
    """No second run starts by itself: the message waits for the next `prompt()` or `resume()`, and is said once."""
    agent, recorder = make_agent(ScriptedProvider([sleep(1), text("a"), finish()], *answers("b")))
    on(agent, "agent_end", lambda event: getattr(agent, queue)("again"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.testing.wait_all_tasks_blocked(0.01)
        await agent.wait_for_idle()
        assert queued(agent) == ["again"]
    await trio.sleep(100)
    assert recorder.types.count("agent_start") == 1
    await agent.resume()
    assert user_texts(agent) == ["go", "again"]
    assert queued(agent) == []
    assert recorder.types.count("agent_start") == 2
    assert_settled(recorder)


# -- B109 -------------------------------------------------------------------------------------------------------------


async def test_B109_a_message_that_is_steered_while_the_last_answer_streams_is_answered() -> None:
    """It enters behind that answer, in the same run: user, a, wait, b."""
    gate = trio.Event()
    provider = ScriptedProvider([text("a"), wait(gate), finish()], *answers("b"))
    agent, recorder = make_agent(provider)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.testing.wait_all_tasks_blocked()
        agent.steer("wait")
        gate.set()
    assert said(provider.requests[1].messages)[-1] == 'user "wait"'
    assert said(agent.state.messages) == ['user "go"', 'assistant stop "a"', 'user "wait"', 'assistant stop "b"']
    assert recorder.types.count("agent_start") == 1
    assert_settled(recorder)


# -- B112 -------------------------------------------------------------------------------------------------------------


async def test_B112_a_queued_message_is_delivered_once() -> None:
    """The queue is empty from the message's `message_start` on: who drains it at the end of the run finds nothing."""
    agent, recorder = make_agent(ScriptedProvider([call("c1", "nap"), finish("tool_use")], *answers("ok")), tools=[nap])
    on(agent, "tool_execution_start", lambda event: agent.steer("x"))
    left: list[str] = []
    on(agent, "agent_end", lambda event: left.extend(queued(agent)))
    await agent.prompt("go")
    assert user_texts(agent) == ["go", "x"]
    assert left == []
    [state] = [
        state
        for event, state in zip(recorder.events, recorder.states, strict=True)
        if isinstance(event, MessageStart) and event.message == UserMessage("x")
    ]
    assert state.steering_queue == ()
    assert_settled(recorder)


async def test_B112_a_restart_from_agent_end_is_refused_and_harms_nothing() -> None:
    """A subscriber that prompts again at `agent_end` is told to queue; it catches that, and nothing is said twice."""
    agent, recorder = make_agent(ScriptedProvider(*answers("a", "b")))
    on(agent, "turn_end", lambda event: agent.steer("x"))

    async def restart(event: Event) -> None:
        with pytest.raises(ReentrantCallError, match=r"steer\(\).*follow_up\(\)"):
            await agent.prompt("x")

    on(agent, "agent_end", restart)
    assert (await agent.prompt("go")).outcome == "completed"
    assert user_texts(agent) == ["go", "x"]
    assert_settled(recorder)


async def test_B112_two_equal_texts_are_two_messages() -> None:
    """Identity, not text: both arrive."""
    agent, recorder = make_agent(ScriptedProvider(*answers("a", "b", "c")))
    agent.steer("x")
    on(agent, "turn_start", lambda event: (agent.steer("x"), agent.steer("x")))
    await agent.prompt("go")
    assert user_texts(agent) == ["x", "go", "x", "x"]
    assert_settled(recorder)


@tool
async def nap() -> str:
    """Sleep."""
    await trio.sleep(1)
    return "slept"


# -- B114 -------------------------------------------------------------------------------------------------------------


async def test_B114_steering_does_not_skip_work_that_the_model_asked_for() -> None:
    """The running call completes, the serial one behind it runs too, then the message enters."""
    ran: list[str] = []

    @tool(serial=True)
    async def later() -> str:
        """Run behind the others."""
        ran.append("later")
        return "ran"

    provider = ScriptedProvider([call("a", "nap"), call("b", "later"), finish("tool_use")], *answers("ok"))
    agent, recorder = make_agent(provider, tools=[nap, later])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.sleep(0.5)
        assert ran == []
        agent.steer("S")
    assert said(provider.requests[1].messages)[2:] == ['tool_result a ok "slept"', 'tool_result b ok "ran"', 'user "S"']
    assert_paired(provider.requests[1].messages)
    assert_settled(recorder)


# -- B115 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["abort", "error", "timeout"])
async def test_B115_a_run_that_ends_badly_keeps_its_follow_ups(how: str) -> None:
    """F stays in its queue and starts nothing; the next prompt says G, then F when the run would end, each once."""
    first = [ProviderError("overloaded", "busy")] if how == "error" else [stall()]
    retries = [first] * (2 if how == "error" else 1)
    agent, recorder = make_agent(
        ScriptedProvider(*retries, *answers("b", "c")), retry=RetryPolicy(max_attempts=2, base_delay=1, jitter=False)
    )
    on(agent, "turn_start", lambda event: agent.follow_up("F"))
    with trio.move_on_after(10) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.prompt, "go")
            await trio.sleep(5)
            if how == "abort":
                agent.abort()
    assert scope.cancelled_caught is (how == "timeout")
    assert queued(agent) == ["F"]
    await trio.sleep(100)
    assert recorder.types.count("agent_start") == 1
    await agent.prompt("G")
    assert user_texts(agent) == ["go", "G", "F"]
    assert queued(agent) == []
    assert_settled(recorder)


async def test_B115_a_cleared_queue_gives_what_it_dropped() -> None:
    """`clear_queues()` returns the messages that nobody will say now."""
    agent, _ = make_agent(ScriptedProvider())
    agent.follow_up("F")
    agent.steer("S")
    assert [m.text for m in agent.clear_queues() if isinstance(m, UserMessage)] == ["S", "F"]
    assert agent.clear_queues() == ()


# -- B116 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["task", "tool", "subscriber", "hook"])
async def test_B116_a_prompt_while_running_is_refused_and_touches_nothing(where: str) -> None:
    """It raises at once, with the words what to call instead; run 1 is not disturbed, and a later prompt works."""
    refused: list[BaseException] = []
    agent: Agent

    async def second() -> None:
        with pytest.raises(AgentBusyError, match=r"steer\(\)") as caught:
            await agent.prompt("2")
        refused.append(caught.value)
        with pytest.raises(AgentBusyError, match=r"resume\(\)|steer\(\)"):
            await agent.resume()

    @tool
    async def try_it() -> str:
        """Prompt from inside."""
        if where == "tool":
            await second()
        else:
            await trio.sleep(5)
        return "tried"

    async def hook(call: Any) -> None:
        if where == "hook":
            await second()

    provider = ScriptedProvider([call("c1", "try_it"), finish("tool_use")], *answers("1", "3"))
    agent, recorder = make_agent(provider, tools=[try_it], hooks=Hooks(before_tool_call=hook))
    if where == "subscriber":
        on(agent, "message_end", lambda event: second())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "1")
        await trio.sleep(1)
        before = trio.current_time()
        if where == "task":
            await second()
        assert trio.current_time() == before
    assert len(refused) == 1
    assert isinstance(refused[0], ReentrantCallError) is (where != "task")
    assert user_texts(agent) == ["1"]
    assert recorder.lines[-1] == "agent_end completed"
    assert (await agent.prompt("3")).text == "3"
    assert user_texts(agent) == ["1", "3"]
    assert_settled(recorder)


async def test_B116_of_two_prompts_in_the_same_tick_one_runs() -> None:
    """Whichever task is first gets the run; the other one is refused, and nothing of its text is anywhere."""
    agent, recorder = make_agent(ScriptedProvider([sleep(1), text("a"), finish()]))
    outcomes: dict[str, str] = {}

    async def prompt(words: str) -> None:
        try:
            outcomes[words] = (await agent.prompt(words)).outcome
        except AgentBusyError:
            outcomes[words] = "refused"

    async with trio.open_nursery() as nursery:
        for words in ("1", "2"):
            nursery.start_soon(prompt, words)
    assert sorted(outcomes.values()) == ["completed", "refused"]
    assert user_texts(agent) == [words for words, outcome in outcomes.items() if outcome == "completed"]
    assert recorder.types.count("agent_start") == 1
    assert_settled(recorder)


async def test_B116_a_subscriber_that_does_not_catch_the_refusal_fails_the_run_and_no_more() -> None:
    """Its exception is a subscriber's like any other: the run ends with an error, and the agent is usable."""
    agent, recorder = make_agent(ScriptedProvider(*answers("1", "3")))
    on(agent, "message_end", lambda event: agent.prompt("2"))
    result = await agent.prompt("1")
    assert result.outcome == "error"
    assert isinstance(result.error, ReentrantCallError)
    assert (await agent.prompt("3")).outcome == "completed"
    assert user_texts(agent) == ["1", "3"]
    assert_settled(recorder)


# -- B117, B119: while history is compacted ----------------------------------------------------------------------------


class Summary:
    """Compacts once, when told that it may."""

    def __init__(self, gate: trio.Event) -> None:
        self.gate = gate
        self.began = trio.Event()
        self.finished = False

    def threshold(self, state: Any) -> bool:
        return not self.finished and len(state.messages) > 2

    async def compact(self, messages: Sequence[Any], reason: str) -> Compaction:
        self.began.set()
        await self.gate.wait()
        self.finished = True
        return Compaction(UserMessage("summary"), len(messages) - 1)


def long_agent(policy: Summary, *texts: str) -> tuple[Agent, Recorder, ScriptedProvider]:
    provider = ScriptedProvider(*answers(*texts))
    agent, recorder = make_agent(provider, compaction=policy, messages=[UserMessage("old"), AssistantMessage("older")])
    return agent, recorder, provider


async def test_B117_what_is_said_as_compaction_begins_is_not_lost() -> None:
    """The phase is compaction when its start is told; what is queued then arrives once, in order."""
    gate = trio.Event()
    policy = Summary(gate)
    agent, recorder, provider = long_agent(policy, "a", "b", "c")
    phases: list[str] = []

    async def at_the_start(event: Event) -> None:
        phases.append(agent.state.phase.value)
        await trio.sleep(0.5)
        agent.steer("S")
        await trio.sleep(0.5)
        phases.append(agent.state.phase.value)

    on(agent, "compaction_start", at_the_start)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await policy.began.wait()
        assert agent.state.phase.value == "compaction"
        agent.follow_up("F")
        gate.set()
    assert phases == ["compaction", "compaction"]
    assert user_texts(agent) == ["summary", "go", "S", "F"]
    assert said(provider.requests[0].messages) == ['user "summary"', 'user "go"']
    assert_settled(recorder)


async def test_B119_a_message_does_not_kill_the_compaction() -> None:
    """Steered during the summary's request, it cancels nothing: history is shortened, and the message follows."""
    gate = trio.Event()
    policy = Summary(gate)
    agent, recorder, provider = long_agent(policy, "a", "b")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await policy.began.wait()
        agent.steer("S")
        await trio.sleep(5)
        assert agent.state.phase.value == "compaction"
        gate.set()
    assert recorder.lines_of("compaction_end") == ["compaction_end compacted"]
    assert said(provider.requests[1].messages) == [
        'user "summary"',
        'user "go"',
        'assistant stop "a"',
        'user "S"',
    ]
    assert_settled(recorder)
