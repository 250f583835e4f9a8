"""Chunks of the wrong type are the provider's protocol error, whole and lawful; they never become an event."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from scenes import assert_settled, make_agent

from trio_agent import (
    Agent,
    AssistantMessage,
    BlockEnd,
    Compaction,
    Finish,
    Hooks,
    ProviderError,
    RedactedThinking,
    ResponseInfo,
    TextDelta,
    ThinkingDelta,
    ToolCallStart,
    Usage,
    UsageReport,
    UserMessage,
    decode,
    encode,
    tool,
)
from trio_agent.testing import ScriptedProvider, call, finish, text

BROKEN: list[Any] = [
    UsageReport(None),
    UsageReport({"input": 3}),
    UsageReport(Usage(input="x")),
    UsageReport(Usage(input=1.5)),
    UsageReport(Usage(output=True)),
    TextDelta("q", "a"),
    TextDelta(True, "a"),
    TextDelta([], "a"),
    TextDelta(0, None),
    ToolCallStart("q", "a", "t"),
    ResponseInfo(3),
    ResponseInfo("r", []),
    BlockEnd(0, 7),
    RedactedThinking(1, 5),
    ThinkingDelta(1.0, "x"),
    object(),
    None,
]


@pytest.mark.parametrize("chunk", BROKEN, ids=repr)
async def test_F1_a_chunk_of_the_wrong_type_fails_the_run_as_a_protocol_error(chunk: Any) -> None:
    """What had arrived stays, the run ends `error`, the trace is lawful, and each event goes to JSON and back."""
    agent, recorder = make_agent(ScriptedProvider([text("so far"), chunk, finish()]))
    result = await agent.prompt("go")
    assert isinstance(result.error, ProviderError)
    assert result.error.kind == "protocol"
    assert agent.state.messages[-1].text == "so far"
    for event in recorder.events:
        assert decode(encode(event)) == event
    assert_settled(recorder)


@pytest.mark.parametrize("hook", ["before_tool_call", "after_tool_result", "should_stop_after_turn"])
async def test_F5_a_hook_that_swallows_its_time_out_has_timed_out_all_the_same(hook: str) -> None:
    """A check that swallows its cancellation and returns does not let the call through."""
    ran: list[str] = []

    @tool
    async def act() -> str:
        """Note that it ran."""
        ran.append("act")
        return "done"

    async def swallows(*args: Any) -> None:
        try:
            await trio.sleep(100)
        except trio.Cancelled:
            return

    provider = ScriptedProvider([call("c1", "act"), finish("tool_use")], [text("ok"), Finish("stop")])
    agent, recorder = make_agent(provider, tools=[act], hooks=Hooks(**{hook: swallows}, timeout=2))
    result = await agent.prompt("go")
    if hook == "should_stop_after_turn":
        assert result.outcome == "error"
    else:
        assert recorder.lines_of("tool_execution_end")[0].startswith("tool_execution_end c1 error")
        assert (ran == []) == (hook == "before_tool_call")
    assert any("2 s" in str(exc) for exc in [result.error, *result.suppressed])
    assert_settled(recorder)


@pytest.mark.parametrize(("first_kept", "usage"), [(1, None), (1, Usage(input="x")), (True, Usage())])
async def test_F9_a_compaction_of_wrong_types_is_a_failed_compaction(first_kept: Any, usage: Any) -> None:
    """A policy that gives values of a wrong type has failed: the run goes on uncompacted, and says so."""

    class Wrong:
        def threshold(self, state: Any) -> bool:
            return len(state.messages) > 1

        async def compact(self, messages: Any, reason: str) -> Compaction:
            return Compaction(UserMessage("summary"), first_kept, usage)

    history = [UserMessage("a"), AssistantMessage("b")]
    agent, recorder = make_agent(ScriptedProvider([text("ok"), finish()]), compaction=Wrong(), messages=history)
    assert (await agent.prompt("go")).outcome == "completed"
    assert recorder.lines_of("compaction_end")[0].startswith("compaction_end failed")
    assert_settled(recorder)


@pytest.mark.parametrize(
    "options",
    [{"model": 5}, {"system_prompt": None}, {"retry": 3}, {"limits": None}, {"hooks": 5}, {"max_parallel_tools": 1.5}],
    ids=repr,
)
def test_an_agent_of_wrong_types_is_refused_when_it_is_made(options: dict[str, Any]) -> None:
    """What would fail in the middle of a run is a TypeError of the constructor."""
    with pytest.raises(TypeError, match=next(iter(options))):
        Agent(ScriptedProvider(), **{"model": "m", **options})


def test_a_retry_after_that_is_no_number_is_refused() -> None:
    """A provider's mistake shows where it is made."""
    with pytest.raises(TypeError, match="retry_after"):
        ProviderError("server", "x", retry_after="10")
