"""F4 and F5, sentence by sentence: hooks that raise, that give what is no answer, and that never answer."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from scenes import assert_settled, make_agent, said
from tour import TOUR, At, Tour, assert_sendable, at_each_kind

from trio_agent import (
    AssistantMessage,
    Block,
    CustomMessage,
    Hooks,
    Message,
    Replace,
    RunResult,
    ToolResultMessage,
    UserMessage,
    tool,
)
from trio_agent.testing import ScriptedProvider, call, finish

sync_and_async = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
HISTORY: list[Message] = [UserMessage("a"), CustomMessage("note", {"k": 1}), AssistantMessage("b")]
BOOM = ValueError("boom")


@tool
async def answers() -> str:
    """Answer at once."""
    return "the answer"


@tool
async def breaks() -> str:
    """Fail."""
    raise RuntimeError("the tool's own trouble")


def raising_hook(is_async: bool) -> Any:
    async def later(*_: Any) -> Any:
        await trio.lowlevel.checkpoint()
        raise BOOM

    def now(*_: Any) -> Any:
        raise BOOM

    return later if is_async else now


async def never_answers(*_: Any) -> Any:
    await trio.sleep_forever()


def sent(provider: ScriptedProvider, at: int = 0) -> list[str]:
    return said(provider.requests[at].messages)


def assert_reported(result: RunResult, caplog: pytest.LogCaptureFixture, hook: str, times: int = 1) -> None:
    """It is logged, and recorded on the result."""
    assert len(result.suppressed) == times
    assert sum(hook in record.message for record in caplog.records) == times


# F4


@sync_and_async
async def test_F4_transform_context_that_raises_is_passed_over(
    is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """If `transform_context` raises, the kernel goes on with the hook's own input, logs it and records it."""
    provider = ScriptedProvider(["ok", finish()])
    agent, recorder = make_agent(provider, messages=HISTORY, hooks=Hooks(transform_context=raising_hook(is_async)))
    result = await agent.prompt("hi")
    assert (result.outcome, result.suppressed) == ("completed", (BOOM,))
    assert sent(provider) == ['user "a"', 'assistant stop "b"', 'user "hi"']
    assert_reported(result, caplog, "transform_context")
    assert_settled(recorder)


@sync_and_async
async def test_F4_convert_to_llm_that_raises_gives_way_to_the_default_conversion_of_its_input(
    is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """If `convert_to_llm` raises, the kernel goes on with the default conversion of what the hook was given."""
    provider = ScriptedProvider(["ok", finish()])
    hooks = Hooks(transform_context=lambda messages: messages[1:], convert_to_llm=raising_hook(is_async))
    agent, recorder = make_agent(provider, messages=HISTORY, hooks=hooks)
    result = await agent.prompt("hi")
    assert (result.outcome, result.suppressed) == ("completed", (BOOM,))
    assert sent(provider) == ['assistant stop "b"', 'user "hi"']
    assert_reported(result, caplog, "convert_to_llm")
    assert_settled(recorder)


async def test_F4_both_projection_hooks_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    """If both raise, each is logged and recorded, and the request is the default conversion of history."""
    provider = ScriptedProvider(["ok", finish()])
    hooks = Hooks(transform_context=raising_hook(True), convert_to_llm=raising_hook(False))
    agent, recorder = make_agent(provider, messages=HISTORY, hooks=hooks)
    result = await agent.prompt("hi")
    assert sent(provider) == ['user "a"', 'assistant stop "b"', 'user "hi"']
    assert_reported(result, caplog, "hook", times=2)
    assert_settled(recorder)


@pytest.mark.parametrize("hook", ["transform_context", "convert_to_llm"])
@pytest.mark.parametrize("value", [None, "text", 7, [UserMessage("x"), "y"], {"role": "user"}], ids=repr)
async def test_F4_what_is_no_sequence_of_messages_counts_as_raising(
    hook: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A projection hook that gives anything but messages is passed over like one that raises."""
    provider = ScriptedProvider(["ok", finish()])
    agent, recorder = make_agent(provider, messages=HISTORY, hooks=Hooks(**{hook: lambda messages: value}))
    result = await agent.prompt("hi")
    assert result.outcome == "completed"
    assert sent(provider) == ['user "a"', 'assistant stop "b"', 'user "hi"']
    assert_reported(result, caplog, hook)
    assert_settled(recorder)


@pytest.mark.parametrize("hook", ["transform_context", "convert_to_llm"])
async def test_F4_a_projection_hook_that_is_out_of_time_is_passed_over(
    hook: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A projection hook that does not answer within the hooks' time-out is passed over like one that raises."""
    provider = ScriptedProvider(["ok", finish()])
    agent, recorder = make_agent(provider, messages=HISTORY, hooks=Hooks(**{hook: never_answers}, timeout=3))
    result = await agent.prompt("hi")
    assert result.outcome == "completed"
    assert isinstance(result.suppressed[0], TimeoutError)
    assert recorder.events[-1].time == pytest.approx(3)
    assert_reported(result, caplog, hook)
    assert_settled(recorder)


@pytest.mark.parametrize("hook", ["transform_context", "convert_to_llm"])
@sync_and_async
async def test_F4_with_projection_failure_fail_the_run_fails_instead(hook: str, is_async: bool) -> None:
    """With `projection_failure="fail"` the run fails, and nothing at all is sent to the provider."""
    provider = ScriptedProvider()
    hooks = Hooks(**{hook: raising_hook(is_async)})
    agent, recorder = make_agent(provider, messages=HISTORY, hooks=hooks, projection_failure="fail")
    result = await agent.prompt("hi")
    assert (result.outcome, result.error, result.suppressed) == ("error", BOOM, ())
    assert provider.requests == []
    assert recorder.lines[-3].startswith(f"message_end assistant error !the hook {hook} failed")
    assert_settled(recorder)


@pytest.mark.parametrize("hook", ["transform_context", "convert_to_llm"])
async def test_F4_with_fail_an_unusable_answer_and_a_time_out_fail_the_run_too(hook: str) -> None:
    """With `projection_failure="fail"` an unusable answer and a hook out of time fail the run, and nothing is sent."""
    for failing in (lambda messages: "text", never_answers):
        provider = ScriptedProvider()
        hooks = Hooks(**{hook: failing}, timeout=3)
        agent, recorder = make_agent(provider, hooks=hooks, projection_failure="fail")
        result = await agent.prompt("hi")
        assert result.outcome == "error"
        assert provider.requests == []
        assert_settled(recorder)


@pytest.mark.parametrize("hook", ["transform_context", "convert_to_llm"])
@pytest.mark.parametrize("fails", [False, True], ids=["and returns", "and raises"])
async def test_F4_hooks_get_copies_that_they_may_change_freely(hook: str, fails: bool) -> None:
    """What a projection hook does to the list that it is given reaches neither history nor the next request."""

    def wild(messages: list[Message]) -> list[Message]:
        messages.clear()
        messages.append(UserMessage("only this"))
        if fails:
            raise BOOM
        return messages

    provider = ScriptedProvider(["ok", finish()])
    agent, recorder = make_agent(provider, messages=HISTORY, hooks=Hooks(**{hook: wild}))
    await agent.prompt("hi")
    assert said(agent.state.messages)[:3] == said(HISTORY)
    untouched = ['user "a"', 'assistant stop "b"', 'user "hi"']
    assert sent(provider) == (untouched if fails else ['user "only this"'])
    assert_settled(recorder)


@at_each_kind
@pytest.mark.parametrize("hook", ["transform_context", "convert_to_llm"])
async def test_F4_projection_hooks_that_fail_from_any_event_on_change_no_event(k: int, hook: str) -> None:
    """A projection hook that begins to raise at any event of a run changes nothing of what the run tells."""
    tour = Tour()
    tour.agent.subscribe(At(k, lambda: tour.trip(f"hook {hook}", BOOM)))
    result = await tour.agent.prompt("go")
    assert tour.lines == TOUR
    asked = [at for at in (3, 30) if at >= k]  # the events before the two requests
    assert result.suppressed == (BOOM,) * len(asked)
    assert_settled(tour.recorder)


# F5


@sync_and_async
async def test_F5_before_tool_call_that_raises_blocks_its_call(
    is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """`before_tool_call` that raises blocks its call, and no other: the tool never runs, the model is told why."""
    ran: list[int] = []

    @tool
    async def counts(n: int) -> str:
        """Count."""
        ran.append(n)
        return f"counted {n}"

    def sync(call: Any, context: Any) -> None:
        if call.id == "c1":
            raise BOOM

    async def later(call: Any, context: Any) -> None:
        sync(call, context)

    provider = ScriptedProvider(
        [call("c1", "counts", {"n": 1}), call("c2", "counts", {"n": 2}), finish("tool_use")], ["ok", finish()]
    )
    agent, recorder = make_agent(provider, tools=[counts], hooks=Hooks(before_tool_call=later if is_async else sync))
    result = await agent.prompt("hi")
    assert ran == [2]
    assert result.outcome == "completed"
    results = {message.tool_call_id: message for message in result.messages if isinstance(message, ToolResultMessage)}
    assert results["c1"].is_error
    assert "blocked" in results["c1"].text
    assert "boom" in results["c1"].text
    assert not results["c2"].is_error
    assert_reported(result, caplog, "before_tool_call")
    assert_settled(recorder)


async def test_F5_before_tool_call_that_is_out_of_time_blocks_its_call() -> None:
    """`before_tool_call` that does not answer within the hooks' time-out blocks its call: it fails closed."""
    provider = ScriptedProvider([call("c1", "answers"), finish("tool_use")], ["ok", finish()])
    agent, recorder = make_agent(provider, tools=[answers], hooks=Hooks(before_tool_call=never_answers, timeout=3))
    result = await agent.prompt("hi")
    end = recorder.lines_of("tool_execution_end")[0]
    assert end.startswith('tool_execution_end c1 error "answers was not run, because it was blocked')
    assert isinstance(result.suppressed[0], TimeoutError)
    assert_settled(recorder)


@pytest.mark.parametrize("verdict", [True, False, "no", 0, {"n": 1}], ids=repr)
async def test_F5_a_verdict_of_another_kind_blocks_too(verdict: Any) -> None:
    """A `before_tool_call` that gives neither None, `Block` nor `Replace` blocks its call: it fails closed."""
    provider = ScriptedProvider([call("c1", "answers"), finish("tool_use")], ["ok", finish()])
    agent, recorder = make_agent(provider, tools=[answers], hooks=Hooks(before_tool_call=lambda call, context: verdict))
    await agent.prompt("hi")
    assert recorder.lines_of("tool_execution_end")[0].startswith("tool_execution_end c1 error")
    assert_settled(recorder)


async def test_F5_a_replacement_that_does_not_fit_blocks_too() -> None:
    """`Replace` with arguments that the tool does not take: the tool does not run."""
    provider = ScriptedProvider([call("c1", "answers"), finish("tool_use")], ["ok", finish()])
    hooks = Hooks(before_tool_call=lambda call, context: Replace({"unknown": 1}))
    agent, recorder = make_agent(provider, tools=[answers], hooks=hooks)
    await agent.prompt("hi")
    assert recorder.lines_of("tool_execution_end")[0].startswith("tool_execution_end c1 error")
    assert_settled(recorder)


@sync_and_async
@pytest.mark.parametrize(("name", "answer"), [("answers", "the answer"), ("breaks", "the tool's own trouble")])
async def test_F5_after_tool_result_that_raises_still_says_what_the_tool_had_answered(
    is_async: bool, name: str, answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    """`after_tool_result` that raises turns the result into an error that still says what the tool had answered."""
    provider = ScriptedProvider([call("c1", name), finish("tool_use")], ["ok", finish()])
    agent, recorder = make_agent(
        provider, tools=[answers, breaks], hooks=Hooks(after_tool_result=raising_hook(is_async))
    )
    result = await agent.prompt("hi")
    message = next(message for message in result.messages if isinstance(message, ToolResultMessage))
    assert message.is_error
    assert answer in message.text
    assert "boom" in message.text
    assert result.outcome == "completed"
    assert_reported(result, caplog, "after_tool_result")
    assert_settled(recorder)


async def test_F5_after_tool_result_that_is_out_of_time_still_says_what_the_tool_had_answered() -> None:
    """`after_tool_result` that does not answer in time gives an error result with the tool's answer in it."""
    provider = ScriptedProvider([call("c1", "answers"), finish("tool_use")], ["ok", finish()])
    agent, recorder = make_agent(provider, tools=[answers], hooks=Hooks(after_tool_result=never_answers, timeout=3))
    result = await agent.prompt("hi")
    message = next(message for message in result.messages if isinstance(message, ToolResultMessage))
    assert message.is_error
    assert "the answer" in message.text
    assert_settled(recorder)


async def test_F5_after_tool_result_that_gives_what_is_no_result_still_says_what_the_tool_had_answered() -> None:
    """`after_tool_result` with an unusable replacement gives an error result with the tool's answer in it."""
    provider = ScriptedProvider([call("c1", "answers"), finish("tool_use")], ["ok", finish()])
    agent, recorder = make_agent(provider, tools=[answers], hooks=Hooks(after_tool_result=lambda result: object()))
    result = await agent.prompt("hi")
    message = next(message for message in result.messages if isinstance(message, ToolResultMessage))
    assert message.is_error
    assert "the answer" in message.text
    assert_settled(recorder)


@sync_and_async
async def test_F5_should_stop_after_turn_that_raises_fails_the_run(is_async: bool) -> None:
    """`should_stop_after_turn` that raises fails the run, behind the turn that it was asked about."""
    agent, recorder = make_agent(
        ScriptedProvider(["done", finish()]), hooks=Hooks(should_stop_after_turn=raising_hook(is_async))
    )
    result = await agent.prompt("hi")
    assert (result.outcome, result.error, result.suppressed) == ("error", BOOM, ())
    assert [line.partition(" !")[0] for line in recorder.lines[-6:]] == [
        "turn_end 1",
        "turn_start 2",
        "message_start assistant",
        "message_end assistant error",
        "turn_end 2",
        "agent_end error",
    ]
    assert_settled(recorder)


async def test_F5_should_stop_after_turn_that_is_out_of_time_fails_the_run() -> None:
    """`should_stop_after_turn` that does not answer in time fails the run as well."""
    agent, recorder = make_agent(
        ScriptedProvider(["done", finish()]), hooks=Hooks(should_stop_after_turn=never_answers, timeout=3)
    )
    result = await agent.prompt("hi")
    assert isinstance(result.error, TimeoutError)
    assert recorder.lines[-1] == "agent_end error"
    assert_settled(recorder)


@at_each_kind
@pytest.mark.parametrize("hook", ["before_tool_call", "after_tool_result", "should_stop_after_turn"])
async def test_F5_hooks_that_fail_from_any_event_on_end_lawfully(k: int, hook: str) -> None:
    """A hook that begins to raise at any event: calls are blocked or their results marked, only the stop hook fails
    the run.
    """
    tour = Tour()
    tour.agent.subscribe(At(k, lambda: tour.trip(f"hook {hook}", BOOM)))
    result = await tour.agent.prompt("go")
    ends = sorted(tour.recorder.lines_of("tool_execution_end"))
    if hook == "should_stop_after_turn":
        assert result.error is (BOOM if k < 35 else None)
    else:
        assert result.outcome == "completed"
        last = (18, 19) if hook == "before_tool_call" else (20, 21)
        assert [" error " in end for end in ends] == [k <= at for at in last]
    assert_settled(tour.recorder)
    assert_sendable(tour.agent.state.messages)


async def test_F5_a_block_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    """A hook that blocks with a reason is neither logged nor kept: it did what it is for."""
    provider = ScriptedProvider([call("c1", "answers"), finish("tool_use")], ["ok", finish()])
    agent, recorder = make_agent(
        provider, tools=[answers], hooks=Hooks(before_tool_call=lambda call, context: Block("not on Sundays"))
    )
    result = await agent.prompt("hi")
    assert result.suppressed == ()
    assert caplog.records == []
    message = next(message for message in result.messages if isinstance(message, ToolResultMessage))
    assert "not on Sundays" in message.text
    assert_settled(recorder)
