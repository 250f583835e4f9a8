"""Five things that an outsider can observe of the kernel, each a test worded like this."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
from scenes import assert_settled, make_agent, on

from trio_agent import Agent, AssistantMessage, Event, Hooks, ToolResultMessage, tool
from trio_agent.testing import ScriptedProvider, call, finish, sleep, stall, text


@tool
async def slow(v: str, seconds: float) -> str:
    """Answer after a while."""
    await trio.sleep(seconds)
    return v


@tool
async def fails() -> str:
    """Fail."""
    raise RuntimeError("no luck")


async def test_the_outside_can_drive_the_kernel_only_through_its_methods() -> None:
    """The outside can drive the kernel only through its methods: no attribute of an agent or its state can be set."""
    agent, _ = make_agent(ScriptedProvider([text("hi"), finish()]))
    await agent.prompt("go")
    for name in ("state", "messages", "phase", "anything"):
        with pytest.raises(AttributeError):
            setattr(agent, name, None)
    state = agent.state
    for field in attrs.fields(type(state)):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(state, field.name, None)
    public = {name for name in dir(Agent) if not name.startswith("_")}
    assert public >= {"prompt", "resume", "stream", "steer", "follow_up", "withdraw", "abort", "wait_for_idle"}
    assert not hasattr(state.messages, "append")


async def test_subscribers_cannot_modify_messages_and_what_they_await_counts_into_completion() -> None:
    """Subscribers cannot modify messages, and what they await counts into completion."""
    refused: list[BaseException] = []
    written: list[str] = []

    async def meddles(event: Event) -> None:
        if event.type == "message_end":
            for target, name in ((event, "message"), (event.message, "content"), (event.message.content[0], "text")):
                try:
                    setattr(target, name, "changed")
                except attrs.exceptions.FrozenInstanceError as exc:
                    refused.append(exc)
        await trio.sleep(1)
        written.append(event.type)

    agent, recorder = make_agent(ScriptedProvider([text("hi"), finish()]))
    agent.subscribe(meddles)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.sleep(0.5)
        await agent.wait_for_idle()
        assert written == recorder.types, "idle means that the log has been written"
    assert len(refused) == 6
    assert [m.text for m in agent.state.messages] == ["go", "hi"]
    assert_settled(recorder)


class _Broken:
    """Raises at every place that one can be put into."""

    @staticmethod
    async def provider(request: Any, send: Any) -> None:
        raise RuntimeError("broken provider")

    @staticmethod
    def subscriber(event: Event) -> None:
        raise RuntimeError("broken subscriber")

    @staticmethod
    def hook(state: Any) -> bool:
        raise RuntimeError("broken hook")


@pytest.mark.parametrize("broken", ["provider", "subscriber", "hook"])
async def test_any_internal_exception_becomes_an_assistant_message_and_wait_for_idle_returns(broken: str) -> None:
    """Any internal exception becomes an assistant message with stop reason `error`, and `wait_for_idle` returns."""
    provider = _Broken.provider if broken == "provider" else ScriptedProvider([text("hi"), finish()])
    hooks = Hooks(should_stop_after_turn=_Broken.hook) if broken == "hook" else None
    agent, recorder = make_agent(provider, hooks=hooks)
    if broken == "subscriber":
        agent.subscribe(_Broken.subscriber)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.sleep(0)
        await agent.wait_for_idle()
    last = agent.state.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert last.stop_reason == "error"
    assert f"broken {broken}" in (last.error_message or "")
    assert_settled(recorder)


async def test_a_scripted_provider_asserts_the_whole_event_sequence() -> None:
    """A scripted provider asserts the whole event sequence, with a stable order of tool results in parallel runs."""
    with ScriptedProvider(
        [
            text("let me"),
            call("c1", "slow", {"v": "one", "seconds": 2}),
            call("c2", "slow", {"v": "two", "seconds": 1}),
            finish("tool_use"),
        ],
        [text("done"), finish()],
    ) as provider:
        agent, recorder = make_agent(provider, tools=[slow])
        await agent.prompt("go")
    assert recorder.lines == [
        "agent_start",
        "turn_start 1",
        "message_start user",
        'message_end user "go"',
        "message_start assistant",
        'message_update "let me"',
        'message_update call c1 slow ""',
        'message_update call c1 slow "{\\"v\\":\\"one\\",\\"seconds\\":2}"',
        'message_update call c2 slow ""',
        'message_update call c2 slow "{\\"v\\":\\"two\\",\\"seconds\\":1}"',
        'message_end assistant tool_use "let me" c1:slow c2:slow',
        'tool_execution_start c1 slow {"v":"one","seconds":2}',
        'tool_execution_start c2 slow {"v":"two","seconds":1}',
        'tool_execution_end c2 ok "two"',
        'tool_execution_end c1 ok "one"',
        "message_start tool_result c1",
        'message_end tool_result c1 ok "one"',
        "message_start tool_result c2",
        'message_end tool_result c2 ok "two"',
        "turn_end 1",
        "turn_start 2",
        "message_start assistant",
        'message_update "done"',
        'message_end assistant stop "done"',
        "turn_end 2",
        "agent_end completed",
    ]
    assert_settled(recorder)


async def test_unknown_tools_tool_errors_and_user_aborts_emit_explicit_events() -> None:
    """Unknown tools, tool errors and user aborts emit explicit events."""
    provider = ScriptedProvider(
        [call("c1", "no_such"), call("c2", "fails"), finish("tool_use")], [text("so"), sleep(1), stall()]
    )
    agent, recorder = make_agent(provider, tools=[fails])
    on(agent, "message_update", lambda event: agent.abort("by the user"), nth=5)
    await agent.prompt("go")
    ends = recorder.lines_of("tool_execution_end")
    assert ends[0].startswith("tool_execution_end c1 error")
    assert "no_such" in ends[0]
    assert ends[1].startswith("tool_execution_end c2 error")
    assert [m.is_error for m in agent.state.messages if isinstance(m, ToolResultMessage)] == [True, True]
    assert recorder.lines[-3:] == [
        'message_end assistant aborted "so" !aborted: by the user',
        "turn_end 2",
        "agent_end aborted by the user",
    ]
    assert_settled(recorder)
