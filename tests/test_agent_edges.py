"""What is refused before a run can begin, and what small objects say of themselves."""

from __future__ import annotations

import inspect
import math
import pickle
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from scenes import assert_settled, make_agent, on, trio_run

from trio_agent import (
    Agent,
    CustomMessage,
    Event,
    HookContext,
    Hooks,
    ModelRequest,
    ProviderError,
    RunResult,
    Send,
    UserMessage,
    tool,
)
from trio_agent._messages import NO_USAGE
from trio_agent.testing import ScriptedProvider, call, finish


@tool
async def echo(v: str) -> str:
    """Say it again."""
    return v


class Echo:
    """A provider, whose class is none."""

    async def __call__(self, request: ModelRequest, send: Send) -> None:
        raise AssertionError("nothing is asked here")


async def yielding(request: ModelRequest, send: Send) -> AsyncIterator[str]:
    raise AssertionError("nothing is asked here")
    yield ""


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"projection_failure": "x"}, ValueError, "projection_failure is 'fall_back' or 'fail', not 'x'"),
        ({"max_parallel_tools": 0}, ValueError, "max_parallel_tools is at least 1, or None for no bound"),
        ({"max_parallel_tools": -1}, ValueError, "max_parallel_tools is at least 1, or None for no bound"),
        ({"max_parallel_tools": 1.5}, TypeError, "max_parallel_tools is a int, not float"),
        ({"grace": -1}, ValueError, "grace is a number of seconds, not -1"),
        ({"grace": math.nan}, ValueError, "grace is a number of seconds, not nan"),
        ({"tools": [print]}, TypeError, f"a tool is made with @tool or Tool(...), {print!r} is not one"),
        ({"tools": [echo, echo]}, ValueError, "two tools are called 'echo'; give one of them another name"),
        ({"messages": ["hi"]}, TypeError, "a history consists of messages, not str"),
        ({"model": 3}, TypeError, "model is a str, not int"),
        ({"hooks": 3}, TypeError, "hooks is a Hooks, not int"),
    ],
)
def test_an_agent_of_bad_settings_is_refused_when_it_is_made(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    """What would fail in the middle of a run is refused at once, and the error says what belongs there."""
    with pytest.raises(error) as refused:
        Agent(Echo(), **{"model": "m", **options})
    assert str(refused.value) == words


@pytest.mark.parametrize(
    ("provider", "words"),
    [
        (None, "a provider is an async callable (request, send), not NoneType"),
        (Echo, "a provider is an object, not a class: Echo(...)"),
        (yielding, "a provider sends its chunks: `await send(chunk)` in an async function, not `yield chunk`"),
    ],
)
def test_what_is_no_provider_is_refused_when_the_agent_is_made(provider: Any, words: str) -> None:
    """A class in place of its object, a generator and what cannot be called at all: each has its own words."""
    with pytest.raises(TypeError) as refused:
        Agent(provider, model="m")
    assert str(refused.value) == words


def test_a_subscriber_that_cannot_be_called_is_refused() -> None:
    """It would fail the next run at its first event."""
    agent = Agent(Echo(), model="m")
    with pytest.raises(TypeError) as refused:
        agent.subscribe(3)  # type: ignore[arg-type]
    assert str(refused.value) == "subscribe() takes a callable, not int"


async def test_a_subscription_ends_with_its_block() -> None:
    """Behind the `with` the listener is not called any more; before, it is, and the subscription names it."""
    agent, recorder = make_agent(ScriptedProvider(["one", finish()], ["two", finish()]))
    heard: list[Event] = []

    def listener(event: Event) -> None:
        heard.append(event)

    with agent.subscribe(listener) as subscription:
        assert repr(subscription) == f"<subscription of {listener.__qualname__}>"
        await agent.prompt("hi")
    so_far = len(heard)
    assert so_far == len(recorder.events)
    await agent.prompt("again")
    assert len(heard) == so_far
    assert_settled(recorder)


async def test_an_agent_says_its_model_its_phase_and_how_long_its_history_is() -> None:
    """The repr is short, and tells a running agent from an idle one."""
    agent, _ = make_agent(ScriptedProvider(["hello", finish()]))
    shown: list[str] = []
    on(agent, "message_update", lambda _: shown.append(repr(agent)))
    assert repr(agent) == "<Agent 'm' idle, 0 messages>"
    await agent.prompt("hi")
    assert shown == ["<Agent 'm' turn, 1 messages>"]
    assert repr(agent) == "<Agent 'm' idle, 2 messages>"


def test_what_configure_leaves_alone_is_called_unchanged() -> None:
    """The signature, as help() shows it, says so."""
    assert "model: 'str | _Unset' = <unchanged>" in str(inspect.signature(Agent.configure))


@pytest.mark.parametrize(
    ("messages", "text"),
    [((), ""), ((UserMessage("hi"),), ""), ((UserMessage("hi"), CustomMessage("note", {"a": 1})), "")],
)
def test_the_text_of_a_run_without_an_answer_is_empty(messages: tuple[Any, ...], text: str) -> None:
    """A run that was cut before its answer has a text all the same."""
    assert RunResult(outcome="aborted", reason=None, messages=messages, usage=NO_USAGE).text == text


def test_the_text_of_a_run_is_its_last_answers() -> None:
    """What came behind the answer does not hide it."""

    async def main() -> RunResult:
        agent, _ = make_agent(ScriptedProvider(["one", finish()], ["two", finish()]))
        on(agent, "turn_end", lambda _: agent.follow_up("more"))
        return await agent.prompt("hi")

    result = trio_run(main)
    assert result.text == "two"
    behind = RunResult(
        outcome="completed", reason=None, messages=(*result.messages, UserMessage("late")), usage=NO_USAGE
    )
    assert behind.text == "two"


async def test_A5_a_stream_that_is_cancelled_while_it_is_entered_settles_its_run() -> None:
    """Another subscriber keeps the first event from the block; that costs no more than the grace period."""
    agent, recorder = make_agent(ScriptedProvider(["never", finish()]), grace=2.0)
    on(agent, "agent_start", lambda _: trio.sleep_forever())
    began = trio.current_time()
    with trio.move_on_after(10) as scope:
        async with agent.stream("hi"):
            raise AssertionError("it was entered")
    assert scope.cancelled_caught
    assert 10 <= trio.current_time() - began <= 12
    assert recorder.events[-1].type == "agent_end"
    assert_settled(recorder)


# Errors of providers


def test_a_provider_error_of_no_kind_is_refused() -> None:
    """The kernel acts on the kind, so a made-up one is an error at once, and the known ones are named."""
    with pytest.raises(
        ValueError, match=r"^'nonsense' is not a kind of provider error; use one of \['authentication', "
    ):
        ProviderError("nonsense", "x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error",
    [ProviderError("server", "down"), ProviderError("rate_limit", "slow down", False, 2.5, 429)],
    ids=["little is known", "all is known"],
)
def test_a_provider_error_survives_pickling(error: ProviderError) -> None:
    """Out of another process it says all that it said there."""
    copy: ProviderError = pickle.loads(pickle.dumps(error))
    assert type(copy) is ProviderError
    assert (str(copy), vars(copy)) == (str(error), vars(error))


# Hooks


@pytest.mark.parametrize("name", ["before_tool_call", "transform_context"])
def test_a_hook_that_cannot_be_called_is_refused(name: str) -> None:
    """At once, and not when its time has come."""
    with pytest.raises(TypeError) as refused:
        Hooks(**{name: 3})  # type: ignore[arg-type]
    assert str(refused.value) == f"the hook {name} is int, which cannot be called"


@pytest.mark.parametrize("hook", [lambda: None, lambda _call, _context, _more: None], ids=["none", "three"])
def test_a_hook_of_other_arguments_is_refused(hook: Any) -> None:
    """One that takes too few or wants too many could only fail in a run."""
    with pytest.raises(TypeError) as refused:
        Hooks(before_tool_call=hook)
    assert str(refused.value) == (
        "the hook before_tool_call is called with 1 or 2 arguments, which this one cannot take"
    )


class Unreadable:
    """A callable that hides its signature, as some that are written in C do."""

    __signature__ = "none"

    def __init__(self) -> None:
        self.given: list[tuple[Any, ...]] = []

    def __call__(self, *given: Any) -> None:
        self.given.append(given)


async def test_a_hook_of_an_unreadable_signature_is_called_as_its_kind_usually_is() -> None:
    """`before_tool_call` gets the context too, `after_tool_result` does not."""
    with pytest.raises((TypeError, ValueError)):  # the one before Python 3.13, the other since
        inspect.signature(Unreadable())
    before, after = Unreadable(), Unreadable()
    provider = ScriptedProvider([call("c1", "echo", {"v": "x"}), finish()], ["done", finish()])
    agent, recorder = make_agent(provider, tools=[echo], hooks=Hooks(before_tool_call=before, after_tool_result=after))
    result = await agent.prompt("go")
    assert result.outcome == "completed", result.error
    assert [list(map(type, given))[1:] for given in before.given] == [[HookContext]]
    assert [len(given) for given in after.given] == [1]
    assert_settled(recorder)


@pytest.mark.parametrize("name", ["before_tool_call", "after_tool_result"])
async def test_a_hook_sees_the_state_its_call_and_whether_the_run_is_being_aborted(name: str) -> None:
    """In its context, as it is at that moment."""
    seen: list[Any] = []

    def hook(_given: object, context: HookContext) -> None:
        assert context.call is not None
        before = context.aborting
        agent.abort("enough")
        seen.append((context.state.turn, context.state.pending_tool_calls, context.call.id, before, context.aborting))

    provider = ScriptedProvider([call("c1", "echo", {"v": "x"}), finish()])
    hooks = Hooks(**{name: hook})  # type: ignore[arg-type]
    agent, recorder = make_agent(provider, tools=[echo], hooks=hooks)
    result = await agent.prompt("go")
    assert seen == [(1, ("c1",), "c1", False, True)]
    assert (result.outcome, result.reason) == ("aborted", "enough")
    assert_settled(recorder)
