"""Chunks of the wrong type are the provider's protocol error, whole and lawful; they never become an event."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from scenes import assert_settled, make_agent

from trio_agent import (
    BlockEnd,
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
