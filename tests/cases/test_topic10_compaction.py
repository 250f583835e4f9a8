"""Cases of topic 10, compaction and context overflow, at the kernel; the policy's are in `test_topic10_policy.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from scenes import assert_paired, assert_settled, make_agent

from trio_agent import (
    AssistantMessage,
    Compaction,
    Hooks,
    ProviderError,
    RetryPolicy,
    SummarizingCompaction,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    tool,
)
from trio_agent.testing import ScriptedProvider, call, finish, stall, text, usage

OVERFLOW = ProviderError("context_overflow", "the context is too long: 2000 of 1000 tokens", status=400)
NO_WAIT = RetryPolicy(base_delay=0, jitter=False)


@tool
async def step(n: int) -> str:
    """Take a step."""
    return f"step {n} taken, and here is a long report about it: " + "and so on, " * 20


async def summarizer(request: Any, send: Any) -> None:
    """A model that summarises in a few words."""
    from trio_agent import Finish, TextDelta

    assert_paired(request.messages)
    await send(TextDelta(0, "They took steps."))
    await send(Finish("stop"))


def policy(**options: Any) -> SummarizingCompaction:
    return SummarizingCompaction(summarizer, model="small", **{"window": 1000, "reserve": 200, **options})


class CutAt:
    """A policy that keeps from a given index on, once, on overflow."""

    def __init__(self, first_kept: int) -> None:
        self.first_kept = first_kept

    def threshold(self, state: Any) -> bool:
        return False

    async def compact(self, messages: Sequence[Any], reason: str) -> Compaction:
        return Compaction(UserMessage("summary"), self.first_kept)


HISTORY = [
    UserMessage("u1"),
    AssistantMessage([ToolCall("c1", "t"), ToolCall("c2", "t")], "tool_use"),
    ToolResultMessage("c1", "t", "r1"),
    ToolResultMessage("c2", "t", "r2"),
    AssistantMessage([ToolCall("c3", "t")], "tool_use"),
    ToolResultMessage("c3", "t", "r3"),
    UserMessage("u2"),
    AssistantMessage("a2"),
]


@pytest.mark.parametrize("first_kept", range(1, 10))
async def test_B121_the_cut_never_separates_a_call_from_its_result(first_kept: int) -> None:
    """Wherever a policy cuts, the next request is paired; a cut that parts a call from its result is refused."""
    provider = ScriptedProvider([OVERFLOW], [text("ok"), finish()])
    agent, recorder = make_agent(provider, messages=HISTORY, compaction=CutAt(first_kept))
    result = await agent.prompt("go")
    parts = first_kept in (2, 3, 5)
    assert result.outcome == ("error" if parts else "completed")
    for request in provider.requests:
        assert_paired(request.messages)
    ends = recorder.lines_of("compaction_end")
    assert len(ends) == 1
    assert ends[0].startswith("compaction_end failed" if parts else "compaction_end compacted")
    assert_settled(recorder)


async def test_B124_compacting_does_not_go_on_for_ever() -> None:
    """A provider that overflows at every request is compacted for at most once a turn; then the run fails with it."""
    requests = 0

    async def provider(request: Any, send: Any) -> None:
        nonlocal requests
        requests += 1
        raise OVERFLOW

    messages = [UserMessage("old " * 50), AssistantMessage("answer " * 50)] * 4
    agent, recorder = make_agent(provider, messages=messages, compaction=policy(), retry=NO_WAIT)
    result = await agent.prompt("go")
    assert result.outcome == "error"
    assert isinstance(result.error, ProviderError)
    assert result.error.kind == "context_overflow"
    assert requests <= 3
    assert len(recorder.lines_of("compaction_start")) <= 2
    assert_settled(recorder)


async def test_B124_five_compactions_spread_over_five_good_turns_are_fine() -> None:
    """The count starts anew with each turn that succeeds."""
    replies: list[list[Any]] = []
    for n in range(5):
        replies += [[OVERFLOW], [call(f"c{n}", "step", {"n": n}), finish("tool_use")]]
    provider = ScriptedProvider(*replies, [text("done"), finish()])
    agent, recorder = make_agent(provider, compaction=policy(), tools=[step], messages=HISTORY * 1)
    assert (await agent.prompt("go " * 100)).outcome == "completed"
    assert len(recorder.lines_of("compaction_start")) == 5
    for request in provider.requests:
        assert_paired(request.messages)
    assert_settled(recorder)


async def test_B125_an_abort_stops_the_compaction_that_runs() -> None:
    """An overflow's compaction that hangs in a hook or in its own request is ended by abort; nothing is left of it."""

    class Hangs(CutAt):
        async def compact(self, messages: Sequence[Any], reason: str) -> Compaction:
            await trio.sleep_forever()
            raise AssertionError

    agent, recorder = make_agent(ScriptedProvider([OVERFLOW]), messages=HISTORY, compaction=Hangs(1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.sleep(1)
        assert agent.state.phase.value == "compaction"
        agent.abort()
    assert recorder.events[-1].outcome == "aborted"
    assert recorder.lines_of("compaction_end")[0].startswith("compaction_end aborted")
    assert list(agent.state.messages)[: len(HISTORY)] == HISTORY
    assert_settled(recorder)


async def test_B125_an_abort_in_the_hook_behind_a_compaction_ends_the_run() -> None:
    """The request that follows a compaction waits in transform_context; abort ends it there."""
    calls = 0

    async def hook(messages: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            await trio.sleep_forever()
        return messages

    agent, recorder = make_agent(
        ScriptedProvider([OVERFLOW]), messages=HISTORY, compaction=CutAt(1), hooks=Hooks(transform_context=hook)
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.sleep(1)
        agent.abort()
    assert recorder.events[-1].outcome == "aborted"
    assert_settled(recorder)


async def test_B126_the_threshold_is_crossed_in_the_middle_of_a_tool_loop() -> None:
    """With usage 300, 600, 850 of a window of 1000 and a reserve of 200, compaction comes before turn 4."""
    provider = ScriptedProvider(
        *[
            [call(f"c{n}", "step", {"n": n}), usage(input=tokens, output=0), finish("tool_use")]
            for n, tokens in enumerate((300, 600, 850))
        ],
        [text("done"), finish()],
    )
    agent, recorder = make_agent(provider, compaction=policy(), tools=[step])
    phases = [
        (event.type, state.phase.value)
        for event, state in zip(recorder.events, recorder.states, strict=True)
        if event.type.startswith("compaction")
    ]
    assert phases == []
    assert (await agent.prompt("go")).outcome == "completed"
    order = [line for line in recorder.lines if line.startswith(("turn_start", "compaction"))]
    assert order[:3] == ["turn_start 1", "turn_start 2", "turn_start 3"]
    assert order[3] == "turn_start 4"
    assert order[4].startswith("compaction_start threshold")
    assert order[5].startswith("compaction_end compacted")
    shown = {
        state.phase.value
        for event, state in zip(recorder.events, recorder.states, strict=True)
        if event.type.startswith("compaction")
    }
    assert shown == {"compaction"}
    assert_settled(recorder)


async def test_B126_an_overflow_in_the_middle_of_a_tool_loop_is_sent_again() -> None:
    """A turn that overflows is compacted and sent again; the run does not end early."""
    provider = ScriptedProvider(
        *[[call(f"c{n}", "step", {"n": n}), finish("tool_use")] for n in range(3)],
        [OVERFLOW],
        [text("done"), finish()],
    )
    agent, recorder = make_agent(provider, compaction=policy(), tools=[step])
    result = await agent.prompt("go")
    assert (result.outcome, result.text) == ("completed", "done")
    assert [line for line in recorder.lines if line.startswith("compaction_start")] == ["compaction_start overflow"]
    assert recorder.events[-1].turns == 4
    assert_settled(recorder)


async def test_B126_a_compaction_that_is_told_late_still_ends_with_the_run() -> None:
    """Usage of the compaction's own requests counts in the run's usage."""

    class Costly(CutAt):
        async def compact(self, messages: Sequence[Any], reason: str) -> Compaction:
            from trio_agent import Usage

            return Compaction(UserMessage("summary"), 1, Usage(input=70, output=7))

    provider = ScriptedProvider([OVERFLOW], [text("ok"), usage(input=30, output=3), finish()])
    agent, recorder = make_agent(provider, messages=HISTORY, compaction=Costly(1))
    result = await agent.prompt("go")
    assert (result.usage.input, result.usage.output) == (100, 10)
    assert_settled(recorder)


async def test_B125_a_hanging_provider_behind_a_compaction_is_aborted_like_any_other() -> None:
    """Behind a compaction the request is an ordinary one."""
    agent, recorder = make_agent(
        ScriptedProvider([OVERFLOW], [text("he"), stall()]), messages=HISTORY, compaction=CutAt(1)
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.sleep(1)
        agent.abort()
    assert recorder.lines[-3] == 'message_end assistant aborted "he" !aborted'
    assert_settled(recorder)
