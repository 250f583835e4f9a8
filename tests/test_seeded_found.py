"""What a seeded bug lived through at first: each test here kills at least one that nothing else had noticed.

The bugs are data in `seeded_bugs/`; rules are those of the specification.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Generator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
import trio
from scenes import Recorder, assert_settled, deterministic, make_agent, on, trio_run

from trio_agent import (
    AgentStart,
    AssistantMessage,
    Event,
    FileLocks,
    Hooks,
    LifecycleError,
    Message,
    MessageEnd,
    MessageStart,
    ModelRequest,
    Send,
    ToolCall,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolResultMessage,
    TurnEnd,
    TurnStart,
    UserMessage,
    tool,
)
from trio_agent._lifecycle import Lifecycle
from trio_agent._threads import current_pool
from trio_agent.testing import ScriptedProvider, call, check_trace, finish, stall, text


@tool
async def nap(seconds: float) -> str:
    """Sleep."""
    await trio.sleep(seconds)
    return f"slept {seconds:g}"


# -- the kernel's own tables: what no run of the kernel would ever try ------------------------------------------------

ASKS = AssistantMessage([ToolCall("a", "x", {}), ToolCall("b", "x", {})], "tool_use")
SAID = AssistantMessage("hello", "stop")


def told(*events: Event) -> Lifecycle:
    """The core behind these events."""
    core = Lifecycle()
    for event in events:
        core.feed(event)
    return core


def answered(message: AssistantMessage) -> list[Event]:
    return [AgentStart(), TurnStart(1), MessageStart(AssistantMessage((), None)), MessageEnd(message)]


def ran(*ids: str) -> list[Event]:
    """The calls of `ASKS`, ended in this order."""
    starts: list[Event] = [ToolExecutionStart(call) for call in ASKS.tool_calls]
    return [*answered(ASKS), *starts, *[ToolExecutionEnd(result(id)) for id in ids]]


RESULTS = {id: ToolResultMessage(id, "x", "fine") for id in "ab"}


def result(id: str) -> ToolResultMessage:
    return RESULTS[id]


def test_L2_the_kernel_counts_turns_one_by_one() -> None:
    """The turn behind turn 1 is turn 2: not 3, and not 1 again."""
    for number in (1, 3):
        core = told(*answered(SAID), TurnEnd(1, SAID, ()))
        with pytest.raises(LifecycleError, match=rf"^L2: turn {number} cannot follow turn 1"):
            core.feed(TurnStart(number))
        core.feed(TurnStart(2))


def test_L3_the_kernel_ends_the_message_that_is_open() -> None:
    """The end of an injected message, and of a tool result, is that of the very message that started."""
    for events in ([AgentStart(), TurnStart(1), MessageStart(UserMessage("hi"))], [*ran("b", "a"), _start("a")]):
        core = told(*events)
        other = UserMessage("hi") if len(events) == 3 else ToolResultMessage("a", "x", "fine")
        with pytest.raises(LifecycleError, match=r"^L3: this is the end of another message"):
            core.feed(MessageEnd(other))
        assert core.open_message is not None


def _start(id: str) -> Event:
    return MessageStart(result(id))


def test_T4_the_kernel_takes_results_in_call_order_and_as_their_ends_carried_them() -> None:
    """Not the result of a later call, not an equal one of the same call, and none before the last end."""
    for wrong in (_start("b"), MessageStart(ToolResultMessage("a", "x", "fine"))):
        core = told(*ran("b", "a"))
        with pytest.raises(LifecycleError, match=r"^T4: results come in the order of the calls"):
            core.feed(wrong)
        core.feed(_start("a"))
    with pytest.raises(LifecycleError, match=r"^T4: results come after the last end"):
        told(*ran("a")).feed(_start("a"))


def test_T4_the_kernel_ends_no_turn_before_all_results() -> None:
    """With one of two results told, the turn cannot end."""
    core = told(*ran("a", "b"), _start("a"), MessageEnd(result("a")))
    with pytest.raises(LifecycleError, match=r"^T4: a turn ends after the results of all its calls"):
        core.feed(TurnEnd(1, ASKS, tuple(RESULTS.values())))


def test_L2_the_judge_finds_a_turn_number_that_comes_again() -> None:
    """Two turns called 1 are one fault, at the start of the second."""
    said = AssistantMessage((), "stop")
    turn: list[Event] = [TurnStart(1), MessageStart(AssistantMessage((), None)), MessageEnd(said), TurnEnd(1, said, ())]
    found = check_trace([AgentStart(), *turn, *turn])
    assert [(violation.rule, violation.index) for violation in found] == [("L2", 5)]


# -- state ------------------------------------------------------------------------------------------------------------


async def test_L6_at_agent_start_the_state_counts_no_turn_yet() -> None:
    """`turn` is that of the run in progress: 0 until its first `turn_start`, whatever the run before came to."""
    agent, recorder = make_agent(ScriptedProvider(*[[text("hi"), finish()]] * 2))
    await agent.prompt("one")
    await agent.prompt("two")
    turns = [state.turn for state, event in zip(recorder.states, recorder.events, strict=True)]
    begins = [at for at, event in enumerate(recorder.events) if event.type == "agent_start"]
    assert [turns[at : at + 2] for at in begins] == [[0, 1], [0, 1]]
    assert_settled(recorder)


class FailingPolicy:
    """A compaction policy that always wants to, and never can."""

    def threshold(self, state: object) -> bool:
        return True

    async def compact(self, messages: object, reason: object) -> Any:
        raise ValueError("no summary")


async def test_P3_the_request_behind_a_compaction_that_failed_is_made_in_phase_turn() -> None:
    """A failed compaction at the threshold leaves its phase as one that succeeded does."""
    phases: list[str] = []

    async def provider(request: ModelRequest, send: Send) -> None:
        phases.append(agent.state.phase.value)
        await text("hi").play(send, 0)
        await finish().play(send, 0)

    agent, recorder = make_agent(provider, compaction=FailingPolicy())
    await agent.prompt("go")
    assert phases == ["turn"]
    assert "compaction_end failed" in recorder.lines
    assert_settled(recorder)


# -- delivery ---------------------------------------------------------------------------------------------------------


class Later:
    """Something to await that is no coroutine."""

    def __init__(self, work: Any) -> None:
        self.work = work

    def __await__(self) -> Generator[Any, Any, None]:
        yield from self.work().__await__()


@pytest.mark.parametrize("aborted", [False, True])
async def test_L5_whatever_a_subscriber_gives_to_await_is_awaited(aborted: bool) -> None:
    """Not coroutines alone: the next event comes when any awaitable is over, in an ordinary run and while closing."""
    order: list[str] = []
    agent, recorder = make_agent(ScriptedProvider([text("hi"), finish()]))

    def slow(event: Event) -> Awaitable[None]:
        async def work() -> None:
            await trio.sleep(0.1)
            order.append(f"handled {event.type}")

        order.append(f"got {event.type}")
        return Later(work)

    agent.subscribe(slow)
    if aborted:
        on(agent, "turn_start", lambda _: agent.abort())
    await agent.prompt("go")
    types = recorder.types
    assert order == [f"{word} {type}" for type in types for word in ("got", "handled")]
    assert_settled(recorder)


async def test_L5_who_unsubscribes_another_while_the_run_is_being_closed_keeps_it_from_being_called() -> None:
    """Also among the closing events, who was unsubscribed during an event does not get that event any more."""
    agent, recorder = make_agent(ScriptedProvider([text("hi"), stall()]))
    on(agent, "message_update", lambda _: agent.abort())
    on(agent, "turn_end", lambda _: leave())
    gone: list[str] = []
    leave = agent.subscribe(lambda event: gone.append(event.type))
    await agent.prompt("go")
    assert gone == recorder.types[: recorder.types.index("turn_end")]
    assert_settled(recorder)


# -- queues -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queue", ["steer", "follow_up"])
async def test_Q5_what_is_queued_during_agent_end_troubles_nobody(queue: str) -> None:
    """The run that has ended does not even try to go on: nothing is logged, nothing is kept on its result."""
    agent, recorder = make_agent(ScriptedProvider([text("hi"), finish()]))
    on(agent, "agent_end", lambda _: getattr(agent, queue)("more"))
    result = await agent.prompt("go")
    assert (result.outcome, result.suppressed) == ("completed", ())
    assert recorder.types.count("turn_start") == 1
    assert_settled(recorder)


def test_Q2_withdrawing_one_of_two_equal_texts_takes_the_one_that_was_meant() -> None:
    """What was queued between the two keeps its place: behind the first, which stays."""
    agent, _ = make_agent(ScriptedProvider())
    _first, _between, second = [agent.steer(words) for words in ("again", "between", "again")]
    assert agent.withdraw(second)
    assert [message.text for message in agent.state.steering_queue] == ["again", "between"]  # type: ignore[union-attr]
    assert not agent.withdraw(second)


# -- tools and abort --------------------------------------------------------------------------------------------------


async def test_T4_the_turn_end_of_a_run_that_is_cut_off_has_its_results_in_call_order() -> None:
    """Also where a later call had ended first, and the earlier one is cut off."""
    calls = [call("slow", "nap", {"seconds": 9}), call("quick", "nap", {"seconds": 1})]
    agent, recorder = make_agent(ScriptedProvider([*calls, finish("tool_use")]), tools=[nap])
    on(agent, "tool_execution_end", lambda _: agent.abort())
    await agent.prompt("go")
    (end,) = [event for event in recorder.events if isinstance(event, TurnEnd) and event.tool_results]
    assert [result.tool_call_id for result in end.tool_results] == ["slow", "quick"]
    assert_settled(recorder)


async def test_T3_who_sent_an_update_that_is_dropped_goes_on() -> None:
    """A task beside the call reports while a slow subscriber holds up the run, and the call ends meanwhile: its update
    is told before the end or never, and it does not wait for ever.
    """
    contexts: list[ToolContext] = []
    went_on: list[str] = []

    @tool
    async def works(context: ToolContext) -> str:
        """Report once, and return while that is being handled."""
        contexts.append(context)
        with trio.move_on_after(1):
            await context.update("half")
        return "done"

    async def beside() -> None:
        await trio.sleep(0.5)
        await contexts[0].update("late")
        went_on.append("beside")

    provider = ScriptedProvider([call("c", "works"), finish("tool_use")], [text("ok"), finish()])
    agent, recorder = make_agent(provider, tools=[works])
    on(agent, "tool_execution_update", lambda _: trio.sleep(2))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(beside)
        await agent.prompt("go")
    assert went_on == ["beside"]
    assert_settled(recorder)


async def test_P4_context_variables_of_one_call_are_not_seen_by_the_next() -> None:
    """Each call has a copy of the context of the run, in whatever task it is run."""
    seen: list[str] = []
    who: ContextVar[str] = ContextVar("who", default="nobody")

    @tool
    async def remembers(name: str) -> str:
        """Look, then set."""
        seen.append(who.get())
        who.set(name)
        return "ok"

    turns = [[call(None, "remembers", {"name": f"call {n}"}), finish("tool_use")] for n in range(3)]
    agent, recorder = make_agent(ScriptedProvider(*turns, [text("ok"), finish()]), tools=[remembers])
    who.set("the caller")
    await agent.prompt("go")
    assert seen == ["the caller"] * 3
    assert_settled(recorder)


def test_T8_a_call_that_waits_for_a_file_has_no_slot_in_whatever_order_the_tasks_run(tmp_path: Path) -> None:
    """With room for one call, and the file held elsewhere: the other call runs, whichever of the two begins first."""
    file = tmp_path / "x.txt"

    @tool(writes=("path",))
    async def write(path: str) -> str:
        """Write."""
        return f"wrote {path}"

    for seed in range(8):
        recorders: list[Recorder] = []

        async def main(recorders: list[Recorder] = recorders) -> None:
            calls = [call("w", "write", {"path": str(file)}), call("n", "nap", {"seconds": 1})]
            provider = ScriptedProvider([*calls, finish("tool_use")], [text("ok"), finish()])
            locks = FileLocks()
            agent, recorder = make_agent(provider, tools=[write, nap], max_parallel_tools=1, file_locks=locks)
            recorders.append(recorder)
            async with trio.open_nursery() as nursery, locks.hold([file]):
                nursery.start_soon(agent.prompt, "go")
                await trio.sleep(5)

        with deterministic(seed):
            trio_run(main)
        (recorder,) = recorders
        assert [end[:20] for end in recorder.lines_of("tool_execution_end")] == [
            "tool_execution_end n",
            "tool_execution_end w",
        ]
        assert_settled(recorder)


def test_T8_a_file_is_free_when_the_end_of_its_call_is_told(tmp_path: Path) -> None:
    """In whatever order the tasks run, no subscriber of the end sees the lock held or the write pending."""
    file = tmp_path / "x.txt"

    @tool(writes=("path",))
    async def write(path: str) -> str:
        """Write."""
        await trio.sleep(1)
        return "wrote"

    for seed in range(8):
        seen: list[tuple[int, tuple[str, ...]]] = []

        async def main(seen: list[tuple[int, tuple[str, ...]]] = seen) -> None:
            locks = FileLocks()
            provider = ScriptedProvider(
                [call("w", "write", {"path": str(file)}), finish("tool_use")], [text("ok"), finish()]
            )
            agent, recorder = make_agent(provider, tools=[write], file_locks=locks)
            for type in ("tool_execution_start", "tool_execution_end"):
                on(agent, type, lambda _: seen.append((locks.statistics().held, agent.state.pending_file_writes)))
            await agent.prompt("go")
            assert_settled(recorder)

        with deterministic(seed):
            trio_run(main)
        assert seen == [(0, ()), (0, ())]


async def test_A5_a_cancellation_that_comes_while_a_stream_is_being_left_goes_on() -> None:
    """The block has ended by itself; what cancels the settlement behind it is no less a cancellation."""
    agent, recorder = make_agent(ScriptedProvider([text("hi"), stall()]))
    on(agent, "agent_end", lambda _: trio.sleep(2))
    with trio.move_on_after(1) as scope:
        async with agent.stream("go") as events:
            async for event in events:
                if event.type == "message_update":
                    break
        raise AssertionError("the cancellation was lost in the block")
    assert scope.cancelled_caught
    assert_settled(recorder)


async def test_A2_no_hook_begins_behind_one_that_aborts_the_run() -> None:
    """`transform_context` aborts and returns without a checkpoint: `convert_to_llm` is not called any more."""
    begun: list[str] = []

    def transform(messages: list[Message]) -> list[Message]:
        begun.append("transform_context")
        agent.abort("enough")
        return messages

    hooks = Hooks(transform_context=transform, convert_to_llm=lambda _messages: begun.append("convert_to_llm"))
    agent, recorder = make_agent(ScriptedProvider(), hooks=hooks)
    result = await agent.prompt("go")
    assert (result.outcome, begun) == ("aborted", ["transform_context"])
    assert_settled(recorder)


def test_A4_a_tool_that_swallows_an_outside_cancellation_changes_nothing_in_whatever_order_the_tasks_run() -> None:
    """Also where the tool hears of it before the run does: the call says that it was cut off, and has no result."""

    @tool
    async def swallows() -> str:
        """Return in spite of all."""
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            return "as if nothing had happened"

    for seed in range(12):
        recorders: list[Recorder] = []

        async def main(recorders: list[Recorder] = recorders) -> None:
            agent, recorder = make_agent(
                ScriptedProvider([call("c", "swallows"), finish("tool_use")]), tools=[swallows]
            )
            recorders.append(recorder)
            with trio.move_on_after(5):
                await agent.prompt("go")

        with deterministic(seed):
            trio_run(main)
        (recorder,) = recorders
        (end,) = [event for event in recorder.events if isinstance(event, ToolExecutionEnd)]
        assert end.result.text.startswith("Cut off, because the run was aborted")
        assert recorder.lines[-1] == "agent_end aborted cancelled"
        assert_settled(recorder)


@pytest.mark.real_time
async def test_A4_a_thread_that_ends_by_itself_counts_for_nothing() -> None:
    """Only threads that were left behind are counted, and only they are counted off."""

    @tool
    def plain() -> str:
        """Return."""
        return "ok"

    provider = ScriptedProvider([call("c", "plain"), finish("tool_use")], [text("ok"), finish()])
    agent, recorder = make_agent(provider, tools=[plain])
    await agent.prompt("go")
    assert current_pool().left_behind == 0
    assert current_pool().slots.borrowed_tokens == 0
    assert_settled(recorder)


@pytest.mark.real_time
async def test_A4_a_request_that_nobody_has_looked_at_is_refused_when_the_thread_is_left_behind() -> None:
    """A thread of the tool's own, whose update waits behind another request at the abort, goes on and ends."""
    went_on = threading.Event()

    @tool
    def busy(context: ToolContext) -> str:
        """Ask for one thing from here and for another from beside."""

        def beside() -> None:
            context.update("never looked at")
            went_on.set()

        async def first() -> None:
            threading.Thread(target=beside, daemon=True).start()
            thread = context._thread
            assert thread is not None
            while not thread._requests.statistics().current_buffer_used:
                await trio.sleep(0)
            agent.abort()
            await trio.sleep_forever()

        context.run_in_task(first)
        raise AssertionError("the thread was left behind in there")

    agent, recorder = make_agent(ScriptedProvider([call("c", "busy"), finish("tool_use")]), tools=[busy])
    await agent.prompt("go")
    assert await trio.to_thread.run_sync(went_on.wait, 5)
    assert "tool_execution_update" not in recorder.types
    assert_settled(recorder)
