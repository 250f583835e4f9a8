"""What becomes of a bug in the kernel itself: it is told as one, and the agent is idle behind it (P4).

Each test breaks one part of the kernel from inside, as a bug would. So they name its modules, which no other test of
the rules does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from scenes import Recorder, assert_idle, assert_settled, make_agent, on, said

from trio_agent import Agent, AgentEnd, AssistantMessage, Event, ProviderError, TextDelta, _agent, _asking, _run
from trio_agent._assembly import Assembly
from trio_agent._codec import encode
from trio_agent._delivery import Halt
from trio_agent._errors import AgentInternalError, LifecycleError
from trio_agent._events import Delta, message_update
from trio_agent._stream import EventStream
from trio_agent.testing import ScriptedProvider, call, finish, stall, text, thinking

BUG = ZeroDivisionError("a bug")


def raising(exc: BaseException) -> Callable[..., Any]:
    def broken(*_args: Any, **_options: Any) -> Any:
        raise exc

    return broken


async def assert_works(agent: Agent, recorder: Recorder) -> None:
    """The agent runs again as if nothing had been."""
    recorder.events.clear()
    result = await agent.prompt("again")
    assert (result.outcome, result.text) == ("completed", "well")
    assert_settled(recorder)


@pytest.mark.parametrize("part", ["turn_start", "message_start", "Answer", "turn_end"])
async def test_F1_a_bug_in_a_turn_ends_the_run_as_an_internal_error(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """The run fails and settles lawfully, and the result holds the bug with its traceback."""
    agent, recorder = make_agent(ScriptedProvider(["well", finish()], ["well", finish()]))
    with monkeypatch.context() as broken:
        broken.setattr(_run, part, raising(BUG))
        result = await agent.prompt("hi")
    words = "the kernel failed: ZeroDivisionError: a bug; please report this"
    assert (result.outcome, str(result.error)) == ("error", words)
    assert isinstance(result.error, AgentInternalError)
    assert result.error.__cause__ is BUG
    assert recorder.types[-1] == "agent_end"
    assert agent.state.error_message == words
    assert_settled(recorder)
    await assert_works(agent, recorder)


async def test_F1_a_bug_at_the_end_of_an_attempt_closes_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer that was streaming ends as the internal error, with all that has been told of it."""
    busy = ProviderError("overloaded", "busy")
    agent, recorder = make_agent(ScriptedProvider(["half", busy], ["well", finish()]))
    with monkeypatch.context() as broken:
        broken.setattr(_asking, "message_end", raising(BUG))
        result = await agent.prompt("hi")
    assert isinstance(result.error, AgentInternalError)
    message = agent.state.messages[-1]
    assert isinstance(message, AssistantMessage)
    assert (message.text, message.stop_reason, message.error_message) == ("half", "error", str(result.error))
    assert_settled(recorder)
    await assert_works(agent, recorder)


@pytest.mark.parametrize("part", ["turn_start", "message_start", "Answer", "turn_end"])
async def test_F1_a_run_that_halts_for_no_reason_says_that_this_is_a_bug(
    monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Whoever leaves a run has to say why; if nobody did, the run ends as an internal error."""
    agent, recorder = make_agent(ScriptedProvider(["well", finish()], ["well", finish()]))
    with monkeypatch.context() as broken:
        broken.setattr(_run, part, raising(Halt()))
        result = await agent.prompt("hi")
    assert isinstance(result.error, AgentInternalError)
    assert str(result.error) == "a run is being closed without a cause; please report this"
    assert (result.outcome, agent.state.error_message) == ("error", str(result.error))
    assert_settled(recorder)
    await assert_works(agent, recorder)


async def test_P4_a_bug_while_the_run_settles_leaves_prompt_and_the_agent_is_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing lawful can be told any more, so the bug is raised, in one piece and not in a group."""
    agent, recorder = make_agent(ScriptedProvider(["half", stall()], ["well", finish()]))
    on(agent, "message_update", lambda _: agent.abort())
    with monkeypatch.context() as broken:
        broken.setattr(_run, "closing_events", raising(BUG))
        with pytest.raises(AgentInternalError) as failed:
            await agent.prompt("hi")
    assert str(failed.value) == "the run failed inside the kernel: ZeroDivisionError: a bug; please report this"
    assert_idle(agent)
    await assert_works(agent, recorder)


async def test_F7_an_interrupt_beside_a_bug_while_the_run_settles_leaves_bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ctrl-C wants to be obeyed, whatever else went wrong."""
    agent, recorder = make_agent(ScriptedProvider(["half", stall()], ["well", finish()]))
    interrupt = KeyboardInterrupt()
    on(agent, "message_update", lambda _: agent.abort())
    ways = iter([KeyboardInterrupt(), BaseExceptionGroup("both", [BUG, interrupt])])

    def closing(*_: Any) -> Any:
        raise next(ways)

    with monkeypatch.context() as broken:
        broken.setattr(_run, "closing_events", closing)
        with pytest.raises(KeyboardInterrupt) as left:
            await agent.prompt("hi")
    assert left.value is interrupt
    assert_idle(agent)
    await assert_works(agent, recorder)


@pytest.mark.parametrize("at", ["message_start", "agent_end"])
async def test_F7_a_subscribers_failure_beside_an_interrupt_is_told(at: str) -> None:
    """Of a group that holds both, the interrupt leaves `prompt()` bare, and the failure fails the run or is logged."""
    agent, recorder = make_agent(ScriptedProvider(["well", finish()], ["well", finish()]))
    interrupt, failure = KeyboardInterrupt(), ValueError("beside it")
    on(agent, at, lambda _: raising(BaseExceptionGroup("both", [failure, interrupt]))())
    with pytest.raises(KeyboardInterrupt) as left:
        await agent.prompt("hi")
    assert left.value is interrupt
    end = recorder.events[-1]
    assert isinstance(end, AgentEnd)
    assert (end.outcome, end.error is not None and "beside it" in end.error) == (
        ("completed", False) if at == "agent_end" else ("error", True)
    )
    assert_settled(recorder)
    await assert_works(agent, recorder)


class Beginning(dict[Any, Any]):
    """The runs under way in this `trio.run`, with something that happens while one is entered among them."""

    def __init__(self, do: Callable[[], object]) -> None:
        super().__init__()
        self.do = do

    def setdefault(self, key: Any, default: Any = None) -> Any:
        self.do()
        return super().setdefault(key, default)


async def test_P4_an_interrupt_in_a_runs_first_moment_leaves_the_agent_idle() -> None:
    """Before the run is known to those inside it, too."""
    agent, recorder = make_agent(ScriptedProvider(["well", finish()]))
    runs = Beginning(raising(KeyboardInterrupt()))
    _agent._runs.set(runs)
    with pytest.raises(KeyboardInterrupt):
        await agent.prompt("hi")
    assert (recorder.events, runs) == ([], {})
    runs.do = lambda: None
    assert_idle(agent)
    await assert_works(agent, recorder)


async def test_A1_an_abort_in_a_runs_first_moment_is_heeded() -> None:
    """A signal's callback may come before the run has a nursery: nothing is asked."""
    agent, recorder = make_agent(ScriptedProvider(["well", finish()]))
    runs = Beginning(lambda: agent.abort("a signal"))
    _agent._runs.set(runs)
    result = await agent.prompt("hi")
    assert (result.outcome, result.reason) == ("aborted", "a signal")
    assert said(agent.state.messages)[0] == 'user "hi"'
    assert_settled(recorder)
    runs.do = lambda: None
    await assert_works(agent, recorder)


async def test_F7_a_stream_that_is_left_before_its_run_began_asks_nothing() -> None:
    """A Ctrl-C that comes to whoever enters it first: there is nobody to hear a run."""

    class Interrupted:
        """The event that says that there is something to read."""

        def set(self) -> None:
            """Nobody waits."""

        async def wait(self) -> None:
            raise KeyboardInterrupt

    agent, recorder = make_agent(ScriptedProvider(["well", finish()]))
    stream: EventStream = agent.stream("hi")
    stream._offered = Interrupted()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        async with stream:
            raise AssertionError("it was entered")
    assert recorder.events == []
    await assert_works(agent, recorder)


# The short way of updates


async def traced(monkeypatch: pytest.MonkeyPatch, *, short: bool) -> list[object]:
    """What two subscribers see of a run: the events, and the state at each."""
    if not short:

        def update(run: _run.Run, delta: Delta, assembly: Assembly, length: int) -> Awaitable[None]:
            return run.emit(message_update(delta, time=run.time(), view=assembly, length=length))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # attrs drops the underscore

        monkeypatch.setattr(_run.Run, "update", update)
    provider = ScriptedProvider(
        [text("a", "b"), thinking("c"), call("c1", "nobody"), finish("tool_use")], ["d", finish()]
    )
    agent = Agent(provider, model="m")
    seen: list[object] = []
    agent.subscribe(lambda event: seen.append((encode(event), agent.state)))
    await agent.prompt("go")
    return seen


async def test_an_update_is_emitted_as_any_event_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The short way of a `MessageUpdate` tells and changes what the way of all events does."""
    short = await traced(monkeypatch, short=True)
    assert len(short) > 15
    assert short == await traced(monkeypatch, short=False)


async def test_L3_an_update_outside_of_a_message_is_refused() -> None:
    """The short way judges too, and changes nothing then."""
    agent = Agent(ScriptedProvider(["well", finish()]), model="m")
    refused: list[LifecycleError] = []

    def early(event: Event) -> None:
        run = agent._run  # pyright: ignore[reportPrivateUsage]
        assert run is not None
        if event.type == "turn_start":
            with pytest.raises(LifecycleError, match="message_update") as caught:
                run.update(TextDelta(0, "a"), Assembly(()), 1)
            refused.append(caught.value)

    agent.subscribe(early)
    assert (await agent.prompt("go")).outcome == "completed"
    assert [error.rule for error in refused] == ["L3"]
