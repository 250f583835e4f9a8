"""One turn of tool calls, run by a real agent; what the tests of `trio_agent.tools` talk in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scenes import Recorder, assert_settled, make_agent

from trio_agent import Tool, ToolResultMessage
from trio_agent.testing import ScriptedProvider, call, finish


async def run_calls(
    tools: Iterable[Tool], *calls: tuple[str, dict[str, Any]], **options: Any
) -> list[ToolResultMessage]:
    """The results of these calls in one message, in order."""
    steps = [call(f"c{number}", name, arguments) for number, (name, arguments) in enumerate(calls)]
    agent, recorder = make_agent(
        ScriptedProvider([*steps, finish("tool_use")], ["ok", finish()]), tools=list(tools), **options
    )
    result = await agent.prompt("go")
    assert result.outcome == "completed", result.error
    assert_settled(recorder)
    return results_of(recorder)


def results_of(recorder: Recorder) -> list[ToolResultMessage]:
    return [message for message in recorder.agent.state.messages if isinstance(message, ToolResultMessage)]


async def run_call(tools: Iterable[Tool], name: str, **arguments: Any) -> ToolResultMessage:
    """The result of one call."""
    return (await run_calls(tools, (name, arguments)))[0]


async def fails(tools: Iterable[Tool], name: str, **arguments: Any) -> str:
    """The words of a call that must fail."""
    result = await run_call(tools, name, **arguments)
    assert result.is_error, result.text
    return result.text


async def works(tools: Iterable[Tool], name: str, **arguments: Any) -> str:
    """The words of a call that must work."""
    result = await run_call(tools, name, **arguments)
    assert not result.is_error, result.text
    return result.text
