"""Rules L1 to L6 and P1 to P4 of the specification: the order of events, and the phases. Sentence by sentence."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import pytest
import trio
from scenes import Recorder, assert_idle, assert_settled, make_agent, on, said

from trio_agent import (
    Agent,
    AssistantMessage,
    BlockEnd,
    Compaction,
    Event,
    FileLocks,
    Finish,
    Hooks,
    Limits,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ModelRequest,
    ProviderError,
    RetryPolicy,
    Send,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallFragment,
    ToolCallStart,
    ToolContext,
    ToolResultMessage,
    TurnEnd,
    UserMessage,
    tool,
)
from trio_agent.testing import ScriptedProvider, call, finish, render, sleep, stall, text, thinking, usage

BUSY = ProviderError("overloaded", "busy")
PATIENT = RetryPolicy(max_attempts=3, base_delay=1.0, jitter=False)


@tool
async def echo(v: str) -> str:
    """Say it again."""
    await trio.lowlevel.checkpoint()
    return v


@tool
async def progress(steps: int, ctx: ToolContext) -> str:
    """Report a few times."""
    for step in range(steps):
        await ctx.update(f"{ctx.call_id} {step}")
        await trio.sleep(0.1)
    return "done"


class Shorten:
    """Compacts all but the last message away, so many times."""

    def __init__(self, times: int = 1, seconds: float = 0.0) -> None:
        self.times = times
        self.seconds = seconds

    def threshold(self, state: Any) -> bool:
        return self.times > 0 and len(state.messages) > 1

    async def compact(self, messages: Sequence[Any], reason: str) -> Compaction:
        await trio.sleep(self.seconds)
        self.times -= 1
        return Compaction(UserMessage("summary"), len(messages) - 1)


async def rich_run(*, also: Callable[[Agent], object] = lambda agent: None) -> tuple[Agent, Recorder, ScriptedProvider]:
    """A run of everything: compaction, a retry behind a half answer, tools, steering, a follow-up."""
    provider = ScriptedProvider(
        [text("ha", "lf"), BUSY],
        [
            thinking("let me ", "see"),
            text("I ", "look"),
            call("c1", "echo", {"v": "x"}, cut=3),
            call("c2", "progress", {"steps": 2}),
            usage(10, 5),
            finish("tool_use"),
        ],
        [text("aha"), finish()],
        [text("and more"), finish()],
    )
    agent, recorder = make_agent(
        provider,
        tools=[echo, progress],
        retry=PATIENT,
        compaction=Shorten(),
        messages=[UserMessage("old"), AssistantMessage("older")],
    )
    on(agent, "tool_execution_start", lambda event: agent.steer("hurry"))
    on(agent, "tool_execution_end", lambda event: agent.follow_up("and then?"))
    also(agent)
    with provider:
        result = await agent.prompt("go")
    assert result.outcome == "completed"
    assert_settled(recorder)
    return agent, recorder, provider


async def run_to_an_end(how: str) -> Recorder:
    """A run that comes to this outcome, or is hit by this mishap."""

    @tool
    async def hang() -> str:
        """Abort the run, and never come back."""
        agent.abort()
        await trio.sleep_forever()
        raise AssertionError("nobody wakes it")

    replies: dict[str, list[Any]] = {
        "error": [text("ha"), ProviderError("authentication", "no key")],
        "error before anything": [ProviderError("authentication", "no key")],
        "aborted": [text("ha"), stall()],
        "aborted while a tool runs": [call("c1", "hang"), finish("tool_use")],
        "stopped": [call("c1", "echo", {"v": "x"}), finish("tool_use")],
    }
    agent, recorder = make_agent(
        ScriptedProvider(replies.get(how, [text("hi"), finish()])), tools=[echo, hang], limits=Limits(max_turns=1)
    )

    def fail(event: Event) -> None:
        raise ValueError("oops")

    if how == "aborted":
        on(agent, "message_update", lambda event: agent.abort())
    elif how.startswith("subscriber fails at "):
        on(agent, how.removeprefix("subscriber fails at "), fail)
    result = await agent.prompt("hello")
    words = how.split()[0]
    expected = {"subscriber": "error"}.get(words, words)
    if how == "subscriber fails at agent_end":
        expected = "completed"
    assert result.outcome == expected
    assert_settled(recorder)
    return recorder


ENDS = [
    "completed",
    "stopped",
    "error",
    "error before anything",
    "aborted",
    "aborted while a tool runs",
    "subscriber fails at agent_start",
    "subscriber fails at turn_start",
    "subscriber fails at message_start",
    "subscriber fails at message_update",
    "subscriber fails at message_end",
    "subscriber fails at turn_end",
    "subscriber fails at agent_end",
]

# -- L1 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ENDS)
async def test_L1_agent_start_is_first_and_agent_end_last_and_each_comes_once(how: str) -> None:
    """`agent_start` is a run's first event, `agent_end` its last; each comes once."""
    recorder = await run_to_an_end(how)
    assert recorder.types[0] == "agent_start"
    assert recorder.types[-1] == "agent_end"
    assert recorder.types.count("agent_start") == recorder.types.count("agent_end") == 1


async def test_L1_the_whole_of_a_plain_run() -> None:
    """A prompt that the model answers at once is told in nine lines."""
    agent, recorder = make_agent(ScriptedProvider([text("he", "llo"), finish()]))
    await agent.prompt("hi")
    assert recorder.lines == [
        "agent_start",
        "turn_start 1",
        "message_start user",
        'message_end user "hi"',
        "message_start assistant",
        'message_update "he"',
        'message_update "llo"',
        'message_end assistant stop "hello"',
        "turn_end 1",
        "agent_end completed",
    ]
    assert_settled(recorder)


@pytest.mark.parametrize("what", ["raise", "abort", "steer", "follow_up", "configure", "cancel"])
async def test_L1_nothing_is_emitted_behind_agent_end_whatever_its_subscribers_do(what: str) -> None:
    """What a subscriber of `agent_end` does causes no event of that run any more, and changes no outcome."""
    agent, recorder = make_agent(ScriptedProvider([text("hi"), finish()]))
    scope = trio.CancelScope()

    def do(event: Event) -> None:
        if what == "raise":
            raise ValueError("oops")
        if what == "cancel":
            scope.cancel()
        elif what == "configure":
            agent.configure(model="other")
        elif what == "abort":
            agent.abort()
        else:
            getattr(agent, what)("more")

    on(agent, "agent_end", do)
    with scope:
        await agent.prompt("hello")
    await trio.testing.wait_all_tasks_blocked()
    assert recorder.lines[-1] == "agent_end completed"
    assert_settled(recorder)


async def test_L1_a_tool_that_reports_after_the_run_is_not_heard() -> None:
    """Nothing of a run is emitted after its `agent_end`, by anyone: not by what a tool has left running elsewhere."""
    async with trio.open_nursery() as elsewhere:
        reports: list[str] = []

        @tool
        async def leave_something_behind(ctx: ToolContext) -> str:
            """Start a task that outlives the run."""

            async def later() -> None:
                await trio.sleep(60)
                await ctx.update("late")
                reports.append("returned")

            elsewhere.start_soon(later)
            return "done"

        provider = ScriptedProvider([call("c1", "leave_something_behind"), finish("tool_use")], [text("ok"), finish()])
        agent, recorder = make_agent(provider, tools=[leave_something_behind])
        await agent.prompt("go")
        before = list(recorder.types)
    assert reports == ["returned"]
    assert recorder.types == before
    assert "tool_execution_update" not in before
    assert_settled(recorder)


# -- L2 ---------------------------------------------------------------------------------------------------------------


async def test_L2_turn_start_and_turn_end_bracket_each_turn_and_count_from_one() -> None:
    """`turn_start` and `turn_end` bracket each turn: no turn lies in another, and nothing of a run lies between two."""
    _, recorder, _ = await rich_run()
    open_turn, numbers = False, list[int]()
    for event in recorder.events[1:-1]:
        if event.type == "turn_start":
            assert not open_turn
            open_turn = True
            numbers.append(event.turn)
        assert open_turn, f"{event.type} lies outside of the turns"
        if event.type == "turn_end":
            assert event.turn == numbers[-1]
            open_turn = False
    assert not open_turn
    assert numbers == [1, 2, 3]


async def test_L2_each_turn_has_exactly_one_standing_message() -> None:
    """An attempt that was retried does not stand: one message per turn is left, the one that `turn_end` carries."""
    agent, recorder, _ = await rich_run()
    standing = [event.message for event in recorder.events if isinstance(event, TurnEnd)]
    kept = [message for message in agent.state.messages if isinstance(message, AssistantMessage)]
    assert kept == standing
    assert [message.stop_reason for message in kept] == ["tool_use", "stop", "stop"]
    ended = [line for line in recorder.lines_of("message_end") if "assistant" in line]
    assert ended[0] == 'message_end assistant error "half" !overloaded: busy'
    assert len(ended) == 4


@pytest.mark.parametrize("how", ENDS)
async def test_L2_a_run_has_at_least_one_turn_and_each_of_them_a_message(how: str) -> None:
    """A run has at least one turn, however it ends, and a turn has its standing message also when nothing came."""
    recorder = await run_to_an_end(how)
    turns = [event for event in recorder.events if isinstance(event, TurnEnd)]
    assert turns
    assert all(isinstance(event.message, AssistantMessage) for event in turns)
    assert [event.turn for event in turns] == list(range(1, len(turns) + 1))


# -- L3 ---------------------------------------------------------------------------------------------------------------


def assert_messages_are_bracketed(events: Sequence[Event]) -> None:
    """Message events come as start, updates, end, with nothing in between."""
    open_role: str | None = None
    for event in events:
        if isinstance(event, MessageStart):
            assert open_role is None, "messages overlap"
            open_role = event.message.role
        elif isinstance(event, MessageUpdate):
            assert open_role == "assistant"
        elif isinstance(event, MessageEnd):
            assert event.message.role == open_role
            open_role = None
        else:
            assert open_role is None, f"{event.type} lies inside a message"
    assert open_role is None


async def test_L3_no_other_event_lies_inside_a_message_and_messages_never_overlap() -> None:
    """A message is `message_start`, `message_update`*, `message_end`, and nothing else comes in between."""
    _, recorder, _ = await rich_run()
    assert_messages_are_bracketed(recorder.events)


async def test_L3_only_assistant_messages_have_updates() -> None:
    """User messages and tool results are whole at their start, and their end shows the same message."""
    _, recorder, _ = await rich_run()
    for start, after in zip(recorder.events, recorder.events[1:], strict=False):
        if isinstance(start, MessageStart) and start.message.role != "assistant":
            assert isinstance(after, MessageEnd)
            assert after.message is start.message


@pytest.mark.parametrize("how", ENDS)
async def test_L3_every_message_that_starts_also_ends(how: str) -> None:
    """A start always gets its end, also when the stream breaks, a subscriber raises or the run is aborted."""
    assert_messages_are_bracketed((await run_to_an_end(how)).events)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("the stream breaks", "error"),
        ("the stream just ends", "error"),
        ("a subscriber raises", "error"),
        ("abort", "aborted"),
    ],
)
async def test_L3_the_end_of_a_broken_message_carries_what_had_arrived(how: str, reason: str) -> None:
    """The end then carries what had arrived: all that was told of the message, and the reason."""
    after: list[Any] = {"the stream breaks": [BUSY], "the stream just ends": []}.get(how, [stall()])
    pieces = [thinking("hm"), text("Hel", "lo"), call("c1", "echo", '{"v":')]
    agent, recorder = make_agent(ScriptedProvider([*pieces, *after]), tools=[echo], retry=RetryPolicy(max_attempts=1))

    def at_the_last(event: Any) -> None:
        if isinstance(event, MessageUpdate) and isinstance(event.delta, ToolCallFragment) and event.delta.json:
            if how == "abort":
                agent.abort("enough")
            elif how == "a subscriber raises":
                raise ValueError("oops")

    agent.subscribe(at_the_last)
    await agent.prompt("go")
    [message] = [m for m in agent.state.messages if isinstance(m, AssistantMessage)]
    assert message.stop_reason == reason
    assert message.text == "Hello"
    assert [block.raw for block in message.tool_calls] == ['{"v":']
    assert message.error_message
    assert_settled(recorder)


@pytest.mark.parametrize("type", ["message_start", "message_end"])
@pytest.mark.parametrize("role", ["user", "assistant", "tool_result"])
@pytest.mark.parametrize("how", ["raise", "abort"])
async def test_L3_a_message_of_any_kind_is_completed(type: str, role: str, how: str) -> None:
    """A failure or an abort at any message's start or end leaves no message open."""
    provider = ScriptedProvider([call("c1", "echo", {"v": "x"}), finish("tool_use")], [text("ok"), finish()])
    agent, recorder = make_agent(provider, tools=[echo])
    done = False

    def listener(event: Any) -> None:
        nonlocal done
        if event.type == type and event.message.role == role and not done:
            done = True
            if how == "abort":
                agent.abort()
            else:
                raise ValueError("oops")

    agent.subscribe(listener)
    result = await agent.prompt("go")
    assert done
    assert result.outcome == ("aborted" if how == "abort" else "error")
    assert_messages_are_bracketed(recorder.events)
    assert_settled(recorder)


# -- L4 ---------------------------------------------------------------------------------------------------------------


def concatenations(events: Sequence[Event]) -> dict[int, str]:
    """What the updates of one message said, block by block."""
    said_of: dict[int, str] = {}
    for event in events:
        if isinstance(event, MessageUpdate):
            delta = event.delta
            piece = delta.json if isinstance(delta, ToolCallFragment) else delta.text
            said_of[delta.index] = said_of.get(delta.index, "") + piece
    return said_of


@pytest.mark.parametrize("ending", ["stop", "break", "abort"])
async def test_L4_what_the_updates_said_is_what_the_message_says(ending: str) -> None:
    """Text, thinking and arguments of `message_end` are their updates' concatenation, also of interleaved blocks."""

    async def provider(request: ModelRequest, send: Send) -> None:
        for chunk in (
            TextDelta(0, "a"),
            ThinkingDelta(1, "hm"),
            ToolCallStart(2, "c1", "hang"),
            TextDelta(0, "b"),
            ToolCallDelta(2, '{"x"'),
            ThinkingDelta(1, "!"),
            TextDelta(0, ""),
            ToolCallDelta(2, ":1}"),
            BlockEnd(1, "signed"),
        ):
            await send(chunk)
            await trio.sleep(1)
        if ending == "break":
            raise ProviderError("network", "gone", retryable=False)
        await send(Finish("length"))

    agent, recorder = make_agent(provider, limits=Limits(max_turns=1))
    if ending == "abort":
        on(agent, "message_update", lambda event: agent.abort(), nth=6)
    await agent.prompt("go")
    message = next(m for m in agent.state.messages if isinstance(m, AssistantMessage))
    told = concatenations(recorder.events)
    assert told[0] == message.text == "ab"
    assert [block.text for block in message.content if not hasattr(block, "raw")] == [told[0], told[1]]
    assert [block.raw for block in message.tool_calls] == [told[2]]
    assert told[2] == ('{"x"' if ending == "abort" else '{"x":1}')
    assert_settled(recorder)


async def test_L4_an_event_that_was_kept_shows_the_message_as_it_was_then() -> None:
    """Kept and read later, `message_update` shows the message as it was at that event, not as it became."""
    agent, recorder = make_agent(ScriptedProvider([text("a", "b"), text("c"), finish()]))
    then: list[str] = []

    def listener(event: Event) -> None:
        if isinstance(event, MessageUpdate):
            assert event.message is not None
            then.append(event.message.text)

    agent.subscribe(listener)
    await agent.prompt("go")
    kept = [event.message.text for event in recorder.events if isinstance(event, MessageUpdate) and event.message]
    assert kept == then == ["a", "ab", "abc"]
    [start] = [e for e in recorder.events if isinstance(e, MessageStart) and e.message.role == "assistant"]
    assert start.message == AssistantMessage((), None, model="m", provider="scripted")


async def test_L4_a_state_that_was_kept_shows_the_message_as_it_was_then() -> None:
    """The same holds of a snapshot: its streaming message and its history do not grow behind the reader's back."""
    agent, recorder = make_agent(ScriptedProvider([text("a", "b"), finish()]))
    await agent.prompt("go")
    pictures = list(zip(recorder.types, recorder.states, strict=True))
    streaming = [state.streaming_message.text for _, state in pictures if state.streaming_message is not None]
    assert streaming == ["", "a", "ab"]
    assert [len(state.messages) for _, state in pictures] == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2]


async def test_L4_no_event_can_be_changed() -> None:
    """An event never changes after it was emitted: it is frozen, and so is what it holds."""
    _, recorder, _ = await rich_run()
    lines = recorder.lines
    for event in recorder.events:
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            event.time = 99.0  # type: ignore[misc]
        if isinstance(event, MessageEnd):
            with pytest.raises(attrs.exceptions.FrozenInstanceError):
                event.message.content = ()  # type: ignore[misc, union-attr]
            if isinstance(event.message, AssistantMessage) and event.message.tool_calls:
                event.message.tool_calls[0].arguments["v"] = "changed"
    assert render(recorder.events) == lines


# -- L5 ---------------------------------------------------------------------------------------------------------------


async def test_L5_every_subscriber_sees_the_same_events_in_the_same_order() -> None:
    """The order is one: a sync subscriber, a slow one and one of a class see the very same events."""
    slow: list[Event] = []
    quick: list[Event] = []

    class Kept:
        async def __call__(self, event: Event) -> None:
            await trio.lowlevel.checkpoint()
            quick.append(event)

    async def listener(event: Event) -> None:
        await trio.sleep(1)
        slow.append(event)

    def also(agent: Agent) -> None:
        agent.subscribe(listener)
        agent.subscribe(Kept())

    _, recorder, _ = await rich_run(also=also)
    assert [id(event) for event in slow] == [id(event) for event in quick] == [id(event) for event in recorder.events]


async def test_L5_a_subscriber_has_handled_an_event_before_it_gets_the_next() -> None:
    """A subscriber has handled an event before it gets the next, also when tools report all at once."""
    log: list[str] = []

    async def listener(event: Event) -> None:
        log.append(f"> {event.type}")
        await trio.sleep(0.5)
        log.append(f"< {event.type}")

    _, recorder, _ = await rich_run(also=lambda agent: agent.subscribe(listener))
    assert log == [f"{mark} {type}" for type in recorder.types for mark in "><"]


async def test_L5_two_subscribers_see_ends_of_parallel_tools_in_one_order() -> None:
    """A slow subscriber of one tool's end does not let another subscriber see the other tool's end first."""
    provider = ScriptedProvider(
        [call("c1", "echo", {"v": "x"}), call("c2", "echo", {"v": "y"}), finish("tool_use")], [text("ok"), finish()]
    )
    agent, _ = make_agent(provider, tools=[echo])
    seen: dict[str, list[str]] = {"slow": [], "other": []}

    async def slow(event: Any) -> None:
        if event.type == "tool_execution_end":
            await trio.sleep(10 if not seen["slow"] else 0)
            seen["slow"].append(event.tool_call_id)

    agent.subscribe(slow)
    agent.subscribe(
        lambda event: seen["other"].append(event.tool_call_id) if event.type == "tool_execution_end" else None
    )
    await agent.prompt("go")
    assert seen["slow"] == seen["other"]
    assert sorted(seen["slow"]) == ["c1", "c2"]


async def test_L5_state_has_changed_before_subscribers_see_the_event() -> None:
    """Whoever is told of something finds it in `state` already."""
    _, recorder, _ = await rich_run()
    for event, state in zip(recorder.events, recorder.states, strict=True):
        if event.type == "agent_start":
            assert state.phase.value == "turn"
        elif event.type == "turn_start":
            assert state.turn == event.turn
        elif isinstance(event, MessageUpdate):
            assert state.streaming_message == event.message
        elif isinstance(event, MessageEnd):
            assert state.messages[-1] is event.message
        elif event.type == "tool_execution_start":
            assert event.tool_call_id in state.pending_tool_calls
        elif event.type == "tool_execution_end":
            assert event.tool_call_id not in state.pending_tool_calls
        elif event.type == "compaction_end":
            assert state.messages[0] == UserMessage("summary")
        elif event.type == "agent_end":
            assert state.usage == event.usage


async def test_L5_a_subscription_begins_with_the_next_event_and_ends_at_once() -> None:
    """In the middle of a delivery: who subscribes waits for the next event, who unsubscribes is called no more."""
    agent, _ = make_agent(ScriptedProvider([text("hi"), finish()]))
    late: list[str] = []
    gone: list[str] = []

    def first(event: Event) -> None:
        if event.type == "turn_start":
            agent.subscribe(lambda event: late.append(event.type))
            leave()

    agent.subscribe(first)
    leave = agent.subscribe(lambda event: gone.append(event.type))
    await agent.prompt("go")
    assert gone == ["agent_start"]
    assert late[:2] == ["message_start", "message_end"]
    assert late[-1] == "agent_end"


# -- L6 ---------------------------------------------------------------------------------------------------------------


async def test_L6_history_grows_at_message_end() -> None:
    """History grows when a message has ended, not when it starts, whosoever it is."""
    _, recorder, _ = await rich_run()
    before = 2
    for event, state in zip(recorder.events, recorder.states, strict=True):
        now = len(state.messages)
        if isinstance(event, MessageEnd):
            assert now == before + 1
        elif event.type not in ("retry_start", "compaction_end"):
            assert now == before
        before = now


async def test_L6_a_queue_shrinks_at_its_messages_start() -> None:
    """A queued message is in its queue until its `message_start` is told, and not any more then."""
    provider = ScriptedProvider([text("a"), finish()], [text("b"), finish()], [text("c"), finish()])
    agent, recorder = make_agent(provider)
    on(agent, "turn_end", lambda event: (agent.steer("s1"), agent.follow_up("f1")))
    await agent.prompt("go")
    for event, state in zip(recorder.events, recorder.states, strict=True):
        queued = said([*state.steering_queue, *state.follow_up_queue])
        if isinstance(event, MessageStart) and event.message.role == "user":
            assert said([event.message])[0] not in queued
    steps = [
        (event.type, said(state.steering_queue), said(state.follow_up_queue))
        for event, state in zip(recorder.events, recorder.states, strict=True)
        if event.type in ("turn_start", "agent_end")
    ]
    assert steps == [
        ("turn_start", [], []),
        ("turn_start", ['user "s1"'], ['user "f1"']),
        ("turn_start", [], ['user "f1"']),
        ("agent_end", [], []),
    ]
    assert_settled(recorder)


@pytest.mark.parametrize("how", ["retry", "compaction"])
async def test_L6_an_attempt_that_is_tried_again_leaves_history(how: str) -> None:
    """It is in history from its `message_end` on, and has left it at `retry_start` or `compaction_start`."""
    failure = BUSY if how == "retry" else ProviderError("context_overflow", "too long")
    agent, recorder = make_agent(
        ScriptedProvider([text("half"), failure], [text("whole"), finish()]),
        retry=PATIENT,
        compaction=None if how == "retry" else Quiet(),
        messages=[UserMessage("old")],
    )
    result = await agent.prompt("go")
    shown = {
        line: [m.text for m in state.messages if isinstance(m, AssistantMessage)]
        for line, state in zip(recorder.lines, recorder.states, strict=True)
    }
    assert shown[f'message_end assistant error "half" !{failure.kind}: {failure.message}'] == ["half"]
    assert shown["retry_start 1/3 overloaded" if how == "retry" else "compaction_start overflow"] == []
    assert [m.text for m in agent.state.messages if isinstance(m, AssistantMessage)] == ["whole"]
    assert "half" not in [m.text for m in result.messages if isinstance(m, AssistantMessage)]
    assert_settled(recorder)


class Quiet(Shorten):
    """Compacts only when the provider says that the context is too long."""

    def threshold(self, state: Any) -> bool:
        return False


async def test_L6_streaming_is_over_from_message_end_on() -> None:
    """From `message_end` on `is_streaming` is false and there is no `streaming_message`."""
    _, recorder, _ = await rich_run()
    for event, state in zip(recorder.events, recorder.states, strict=True):
        assistant = isinstance(event, MessageStart | MessageEnd) and event.message.role == "assistant"
        streams = isinstance(event, MessageUpdate) or (assistant and event.type == "message_start")
        assert state.is_streaming is streams
        assert (state.streaming_message is not None) is streams


async def test_L6_streaming_begins_with_the_request() -> None:
    """`is_streaming` is true from the start of a request, when no chunk has come; there is no message then yet."""
    seen: list[tuple[bool, bool]] = []

    async def provider(request: ModelRequest, send: Send) -> None:

        seen.append((agent.state.is_streaming, agent.state.streaming_message is None))
        await trio.sleep(5)
        await send(Finish("stop"))

    agent, recorder = make_agent(provider)
    await agent.prompt("go")
    assert seen == [(True, True)]
    assert_settled(recorder)


async def test_L6_nothing_streams_while_a_retry_waits() -> None:
    """A request that failed before its first chunk has ended: in the wait for the next one nothing streams."""
    agent, recorder = make_agent(ScriptedProvider([BUSY], [text("hi"), finish()]), retry=PATIENT)
    await agent.prompt("go")
    [state] = [s for s, t in zip(recorder.states, recorder.types, strict=True) if t == "retry_start"]
    assert not state.is_streaming
    assert_settled(recorder)


async def test_L6_error_message_is_cleared_at_agent_start() -> None:
    """What failed the last run is shown until the next one begins."""
    agent, recorder = make_agent(ScriptedProvider([ProviderError("authentication", "no key")], [text("hi"), finish()]))
    await agent.prompt("go")
    assert agent.state.error_message == "the provider failed: authentication: no key"
    await agent.prompt("again")
    starts = [s.error_message for s, t in zip(recorder.states, recorder.types, strict=True) if t == "agent_start"]
    assert starts == [None, None]
    assert agent.state.error_message is None
    assert_settled(recorder)


async def test_L6_configure_shows_at_the_next_turn_start() -> None:
    """What is configured during a turn leaves that turn alone and holds from the next `turn_start` on, all of it."""
    provider = ScriptedProvider([call("c1", "echo", {"v": "x"}), finish("tool_use")], [text("ok"), finish()])
    agent, recorder = make_agent(provider, tools=[echo], system_prompt="old")
    asked: list[str] = []
    hooks = Hooks(transform_context=lambda messages: asked.append("hook") or messages)  # type: ignore[func-returns-value]
    on(
        agent,
        "turn_start",
        lambda event: agent.configure(model="m2", system_prompt="new", tools=[], reasoning="high", hooks=hooks),
    )
    await agent.prompt("go")
    shown = [
        (state.turn, state.model, state.system_prompt, len(state.tools), state.reasoning)
        for state, event in zip(recorder.states, recorder.events, strict=True)
        if event.type in ("message_end", "turn_start")
    ]
    assert set(shown) == {(1, "m", "old", 1, "off"), (2, "m2", "new", 0, "high")}
    assert [(r.model, r.system_prompt, len(r.tools)) for r in provider.requests] == [("m", "old", 1), ("m2", "new", 0)]
    assert asked == ["hook"]
    assert 'tool_execution_end c1 ok "x"' in recorder.lines
    assert_settled(recorder)


@pytest.mark.parametrize("when", ["turn_end", "agent_end"])
async def test_L6_what_was_configured_in_the_last_turn_shows_once_idle(when: str) -> None:
    """With no turn left to begin, it shows once the agent is idle; the run's own events still have the old one."""
    agent, recorder = make_agent(ScriptedProvider([text("hi"), finish()]))
    on(agent, when, lambda event: agent.configure(model="m2"))
    await agent.prompt("go")
    assert {state.model for state in recorder.states} == {"m"}
    assert agent.state.model == "m2"
    assert_settled(recorder)


def test_L6_configure_shows_at_once_when_idle() -> None:
    """When idle, what is configured shows at once, and what was not named stays."""
    agent, _ = make_agent(ScriptedProvider(), system_prompt="old")
    agent.configure(model="m2")
    assert (agent.state.model, agent.state.system_prompt) == ("m2", "old")


# -- P1 to P3 ---------------------------------------------------------------------------------------------------------


async def test_P1_the_phases_of_a_run_of_everything() -> None:
    """idle, turn, and from turn into compaction or retry and back: no other step is ever seen."""
    agent, recorder, _ = await rich_run()
    phases = ["idle"]
    for state in recorder.states:
        if state.phase.value != phases[-1]:
            phases.append(state.phase.value)
    phases.append(agent.state.phase.value)
    assert phases == ["idle", "turn", "compaction", "turn", "retry", "turn", "idle"]


async def test_P2_turn_begins_before_agent_start_and_ends_after_the_last_subscriber_of_agent_end() -> None:
    """In each subscriber of `agent_start` and `agent_end` the phase is `turn`; then, when the last returned, idle."""
    agent, _ = make_agent(ScriptedProvider([text("hi"), finish()]))
    phases: list[str] = []

    async def last(event: Event) -> None:
        if event.type in ("agent_start", "agent_end"):
            phases.append(f"{event.type} {agent.state.phase.value}")
            await trio.sleep(100)
            phases.append(f"{event.type} {agent.state.phase.value}")

    agent.subscribe(last)
    await agent.prompt("go")
    phases.append(agent.state.phase.value)
    assert phases == ["agent_start turn", "agent_start turn", "agent_end turn", "agent_end turn", "idle"]


async def test_P2_wait_for_idle_returns_only_when_the_phase_is_idle() -> None:
    """`wait_for_idle()` returns behind the last subscriber of `agent_end`, and finds the agent idle."""
    agent, recorder = make_agent(ScriptedProvider([text("hi"), finish()]))
    log: list[str] = []

    async def slow(event: Event) -> None:
        if event.type == "agent_end":
            await trio.sleep(100)
            log.append("handled")

    agent.subscribe(slow)

    async def wait() -> None:
        await agent.wait_for_idle()
        log.append(agent.state.phase.value)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.testing.wait_all_tasks_blocked()
        assert agent.state.phase.value == "turn"
        nursery.start_soon(wait)
    assert log == ["handled", "idle"]
    assert_settled(recorder)


async def test_P2_wait_for_idle_of_an_idle_agent_is_a_checkpoint() -> None:
    """With no run in progress `wait_for_idle()` returns at once, after a checkpoint."""
    agent, _ = make_agent(ScriptedProvider())
    with trio.testing.assert_checkpoints():
        await agent.wait_for_idle()


@pytest.mark.parametrize("phase", ["retry", "compaction"])
async def test_P3_a_phase_lies_between_its_events_inclusive_of_their_delivery(phase: str) -> None:
    """In every subscriber of its start and its end the phase is the wait's; by the next event it is `turn` again."""
    if phase == "retry":
        agent, recorder = make_agent(ScriptedProvider([BUSY], [text("hi"), finish()]), retry=PATIENT)
    else:
        agent, recorder = make_agent(
            ScriptedProvider([text("hi"), finish()]), compaction=Shorten(seconds=1), messages=[UserMessage("old")]
        )
    seen: list[str] = []

    async def last(event: Event) -> None:
        seen.append(agent.state.phase.value)
        await trio.sleep(0.1)
        seen.append(agent.state.phase.value)

    agent.subscribe(last)
    await agent.prompt("go")
    by_event = [(type, *seen[2 * at : 2 * at + 2]) for at, type in enumerate(recorder.types)]
    for type, first, then in by_event:
        assert first == then == (phase if type in (f"{phase}_start", f"{phase}_end") else "turn"), type
    assert_settled(recorder)


async def test_P3_the_sending_again_is_no_retry_but_work() -> None:
    """The phase is the wait: when the request is sent again it is `turn`, so that the two can be told apart."""
    phases: list[str] = []

    async def provider(request: ModelRequest, send: Send) -> None:

        phases.append(agent.state.phase.value)
        if len(phases) == 1:
            raise BUSY
        await send(Finish("stop"))

    agent, recorder = make_agent(provider, retry=PATIENT)
    await agent.prompt("go")
    assert phases == ["turn", "turn"]
    assert_settled(recorder)


@pytest.mark.parametrize("fails", [False, True])
async def test_P3_the_request_behind_a_compaction_is_made_in_phase_turn(fails: bool) -> None:
    """Done or failed, a compaction is over with its end: hooks and provider find the phase `turn`."""
    phases: list[str] = []

    class Policy(Shorten):
        async def compact(self, messages: Sequence[Any], reason: str) -> Compaction:
            phases.append(agent.state.phase.value)
            if fails:
                raise ValueError("no summary")
            return await super().compact(messages, reason)

    async def provider(request: ModelRequest, send: Send) -> None:
        phases.append(agent.state.phase.value)
        await send(Finish("stop"))

    def hook(messages: list[Any]) -> list[Any]:
        phases.append(agent.state.phase.value)
        return messages

    agent, recorder = make_agent(
        provider, compaction=Policy(), hooks=Hooks(transform_context=hook), messages=[UserMessage("old")]
    )
    await agent.prompt("go")
    assert phases == ["compaction", "turn", "turn"]
    assert_settled(recorder)


@pytest.mark.parametrize("way", ["done", "abort", "cancel", "raise at its start", "raise at its end", "fails"])
@pytest.mark.parametrize("phase", ["retry", "compaction"])
async def test_P3_leaving_a_wait_by_whatever_way_leads_to_turn(phase: str, way: str) -> None:
    """Leaving retry or compaction, by whatever way, leads to `turn`; each start gets its end."""
    if way == "fails" and phase == "retry":
        replies: list[list[Any]] = [[BUSY], [BUSY], [BUSY]]
    else:
        replies = [[BUSY], [text("hi"), finish()]] if phase == "retry" else [[text("hi"), finish()]]

    class Failing(Shorten):
        async def compact(self, messages: Sequence[Any], reason: str) -> Compaction:
            raise ValueError("no summary")

    policy = (Failing if way == "fails" else Shorten)(seconds=10)
    agent, recorder = make_agent(
        ScriptedProvider(*replies),
        retry=PATIENT,
        compaction=policy if phase == "compaction" else None,
        messages=[UserMessage("old")],
    )

    def fail(event: Event) -> None:
        raise ValueError("oops")

    if way.startswith("raise"):
        on(agent, f"{phase}_{way.rsplit(' ', maxsplit=1)[1]}", fail)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.prompt, "go")
            await trio.sleep(0.5)
            if way == "abort":
                agent.abort()
            if way == "cancel":
                scope.cancel()
    last = len(recorder.types) - 1 - recorder.types[::-1].index(f"{phase}_end")
    assert recorder.states[last + 1].phase.value == "turn"
    assert recorder.types.count(f"{phase}_start") == recorder.types.count(f"{phase}_end")
    assert_settled(recorder)


@pytest.mark.parametrize("phase", ["turn", "retry", "compaction"])
async def test_P3_abort_works_in_every_phase(phase: str) -> None:
    """An abort ends the run at once in every phase: nobody waits for the retry or the summary."""
    replies: dict[str, list[Any]] = {"turn": [stall()], "retry": [BUSY], "compaction": [text("hi"), finish()]}
    agent, recorder = make_agent(
        ScriptedProvider(replies[phase]),
        retry=RetryPolicy(base_delay=60, jitter=False),
        compaction=Shorten(seconds=60) if phase == "compaction" else None,
        messages=[UserMessage("old")],
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.sleep(1)
        assert agent.state.phase.value == phase
        agent.abort()
        await agent.wait_for_idle()
    assert recorder.lines[-1] == "agent_end aborted"
    assert recorder.events[-1].time == pytest.approx(1)
    assert_settled(recorder)


# -- P4 ---------------------------------------------------------------------------------------------------------------


@contextmanager
def nothing_left() -> Any:
    """No task and no nursery more than before."""
    here = trio.lowlevel.current_task()
    before = (trio.lowlevel.current_statistics().tasks_living, list(here.child_nurseries))
    yield
    assert (trio.lowlevel.current_statistics().tasks_living, list(here.child_nurseries)) == before
    assert trio.current_effective_deadline() < float("inf")  # the test's own, and no scope that hides it


@pytest.mark.parametrize("when", ["provider", "tool", "hook", "update", "never", "cancel"])
async def test_P4_nothing_of_a_run_is_left_when_it_is_over(when: str) -> None:
    """Back in idle: not streaming, nothing pending, no scope, task, file lock or open response of the run is left."""
    locks = FileLocks()
    opened: list[str] = []

    async def provider(request: ModelRequest, send: Send) -> None:

        opened.append("response")
        try:
            if len(request.messages) == 1:
                await send(ToolCallStart(0, "c1", "write"))
                await send(ToolCallDelta(0, '{"path":"x.txt"}'))
                if when == "provider":
                    await trio.sleep_forever()
                await send(Finish("tool_use"))
            else:
                await send(Finish("stop"))
        finally:
            opened.remove("response")

    @tool(writes=("path",))
    async def write(path: str, ctx: ToolContext) -> str:
        """Write a file, with a nursery of its own."""
        opened.append("file")
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep, 1)
                await ctx.update("half")
                if when in ("tool", "cancel"):
                    await trio.sleep_forever()
        finally:
            opened.remove("file")
        return "written"

    async def hook(call: Any) -> None:
        if when == "hook":
            await trio.sleep_forever()

    agent, recorder = make_agent(provider, tools=[write], file_locks=locks, hooks=Hooks(before_tool_call=hook))
    if when == "update":
        on(agent, "tool_execution_update", lambda event: agent.abort())

    async def stop(scope: trio.CancelScope) -> None:
        await trio.sleep(5)
        if when == "cancel":
            scope.cancel()
        else:
            agent.abort()

    with nothing_left():
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as scope:
                nursery.start_soon(stop, scope)
                await agent.prompt("go")
            assert_settled(recorder)
            assert opened == []
            statistics = locks.statistics()
            assert (statistics.held, statistics.waiting, statistics.keys) == (0, 0, 0)
    expected = "completed" if when == "never" else "aborted"
    assert recorder.events[-1].outcome == expected  # type: ignore[union-attr]


async def test_P4_what_calls_write_is_shown_while_they_run() -> None:
    """`pending_file_writes` shows the paths that calls hold or wait for, and nothing once they have ended."""

    @tool(writes=("path",))
    async def write(path: str, ctx: ToolContext) -> str:
        """Write a file."""
        await ctx.update("half")
        return "written"

    provider = ScriptedProvider(
        [call("c1", "write", {"path": "x.txt"}), call("c2", "write", {"path": "./x.txt"}), finish("tool_use")],
        [text("ok"), finish()],
    )
    agent, recorder = make_agent(provider, tools=[write])
    await agent.prompt("go")
    shown = {line: state.pending_file_writes for line, state in zip(recorder.lines, recorder.states, strict=True)}
    assert sorted(shown['tool_execution_update c1 "half"']) == ["./x.txt", "x.txt"]
    assert shown['tool_execution_update c2 "half"'] == ("./x.txt",)
    assert shown['tool_execution_end c2 ok "written"'] == ()
    assert_settled(recorder)


@pytest.mark.real_time
async def test_P4_no_child_process_of_the_run_is_left() -> None:
    """A process that a tool runs in Trio's own way is gone when the aborted run has returned."""
    processes: list[trio.Process] = []

    @tool
    async def shell(ctx: ToolContext) -> str:
        """Run something that takes long."""
        sleep_long = [sys.executable, "-c", "import time; time.sleep(100)"]
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(
                lambda task_status: trio.run_process(sleep_long, task_status=task_status)
            )
            processes.append(process)
            await ctx.update("up")
        raise AssertionError("the process ended by itself")

    agent, recorder = make_agent(ScriptedProvider([call("c1", "shell"), finish("tool_use")]), tools=[shell])
    on(agent, "tool_execution_update", lambda event: agent.abort())
    result = await agent.prompt("go")
    assert result.outcome == "aborted"
    assert [process.returncode is not None for process in processes] == [True]
    assert_settled(recorder)


async def test_P4_the_state_is_reset_even_if_settling_is_interrupted() -> None:
    """A second interrupt skips what is left to settle, but not the reset: it is sync code in a `finally`."""
    provider = ScriptedProvider([text("hi"), call("c1", "echo", {"v": "x"}), finish("tool_use")])
    agent, _ = make_agent(provider, tools=[echo])

    def interrupt(event: Event) -> None:
        raise KeyboardInterrupt

    on(agent, "tool_execution_start", interrupt)
    on(agent, "tool_execution_end", interrupt)
    with pytest.raises(KeyboardInterrupt):
        await agent.prompt("go")
    assert_idle(agent)
    await agent.wait_for_idle()


async def test_P4_an_agent_is_as_good_as_new_after_every_end() -> None:
    """After an aborted, a failed and a finished run the same agent takes the next prompt."""
    provider = ScriptedProvider([stall()], [BUSY], [text("hi"), finish()], [text("ho"), finish()])
    agent, recorder = make_agent(provider, retry=RetryPolicy(max_attempts=1))
    with trio.move_on_after(1):
        await agent.prompt("one")
    assert (await agent.prompt("two")).outcome == "error"
    assert (await agent.prompt("three")).text == "hi"
    assert (await agent.prompt("four")).text == "ho"
    assert [m.role for m in agent.state.messages] == ["user", "assistant"] * 4
    assert not [m for m in agent.state.messages if isinstance(m, ToolResultMessage)]
    assert_settled(recorder)


async def test_P4_a_snapshot_of_a_run_says_the_same_when_it_is_over() -> None:
    """A state that was kept during a run is not changed by the reset at its end."""
    agent, recorder = make_agent(ScriptedProvider([text("hi"), sleep(1), finish()]))
    await agent.prompt("go")
    [state] = [s for s, t in zip(recorder.states, recorder.types, strict=True) if t == "message_update"]
    assert state.phase.value == "turn"
    assert state.is_streaming
    assert state.streaming_message is not None
    assert state.streaming_message.text == "hi"
