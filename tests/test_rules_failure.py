"""F1 to F3, F6 and F10, sentence by sentence: what fails a run, and what of it everybody sees.

Retry is in `test_rules_retry.py`, compaction in `test_rules_compaction.py`, hooks in `test_rules_failing_hooks.py`,
interrupts in `test_rules_interrupts.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from scenes import Recorder, assert_settled, make_agent, on, said
from tour import (
    LAST,
    MOMENTS,
    TOUR,
    At,
    Tour,
    assert_sendable,
    at_each_event,
    at_each_kind,
    at_each_moment,
    before_the_end,
    closing,
    raising,
    tasks,
)

from trio_agent import (
    Agent,
    AssistantMessage,
    BlockEnd,
    Chunk,
    Finish,
    Hooks,
    Image,
    ModelRequest,
    ProviderError,
    RedactedThinking,
    ResponseInfo,
    Send,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
    UsageReport,
    UserMessage,
    tool,
)
from trio_agent.testing import ScriptedProvider, call, finish, stall, text, thinking

sync_and_async = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@tool
async def fails() -> str:
    """Fail."""
    raise AssertionError("it ran")


@tool
async def waits() -> str:
    """Wait for ever."""
    await trio.sleep_forever()
    raise AssertionError("nobody wakes it")


@tool
async def answers() -> str:
    """Answer at once."""
    return "fine"


def error_messages(agent: Agent) -> list[str]:
    messages = [message for message in agent.state.messages if isinstance(message, AssistantMessage)]
    return [message.error_message for message in messages if message.error_message is not None]


async def test_the_tour_tells_every_kind_of_event() -> None:
    """The run that the tests below cut short tells every kind of event, when nothing cuts it short."""
    tour = Tour()
    result = await tour.agent.prompt("go")
    assert tour.lines == TOUR
    assert {event.type for event in tour.recorder.events} == {
        *("agent_start", "agent_end", "turn_start", "turn_end", "message_start", "message_update", "message_end"),
        *("tool_execution_start", "tool_execution_update", "tool_execution_end"),
        *("retry_start", "retry_end", "compaction_start", "compaction_end"),
    }
    assert result.outcome == "completed"
    assert_settled(tour.recorder)
    tour.script.assert_done()


# F1, F3: subscribers


@at_each_event
@sync_and_async
async def test_F1_a_subscriber_that_raises_at_any_event_fails_the_run(k: int, is_async: bool) -> None:
    """No `Exception` of a subscriber leaves `prompt()`, at whatever event; the run closes on the shortest lawful
    way.
    """
    tour, boom = Tour(), ValueError("boom")
    failing = At(k, raising(boom), is_async=is_async)
    tour.agent.subscribe(failing)
    behind = Recorder(tour.agent)
    before = tasks()
    result = await tour.agent.prompt("go")

    assert tour.cut_lines(k) == TOUR[: k + 1] + closing(k, "error")
    assert behind.lines == tour.lines, "after every other subscriber got that event (F3)"
    assert failing.seen == tour.lines, "it keeps getting events (F3)"
    if k == LAST:
        assert (result.outcome, result.error, result.suppressed) == ("completed", None, (boom,))
    else:
        assert (result.outcome, result.error, result.suppressed) == ("error", boom, ())
        reasons = [reason for reason in error_messages(tour.agent) if reason.endswith("ValueError: boom")]
        assert len(reasons) == 1, "the reason is said once"
        assert f"failed at {TOUR[k].split()[0]}" in reasons[0]
    assert_settled(tour.recorder)
    assert_sendable(tour.agent.state.messages)
    assert tasks() == before


@at_each_kind
@sync_and_async
async def test_F3_what_it_raises_later_is_logged_and_kept_and_changes_nothing(
    k: int, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A subscriber that raises from one event on fails the run once; what it raises later is logged and on the
    result.
    """
    tour = Tour()
    failing = At(k, raising(KeyError), is_async=is_async, onwards=True)
    tour.agent.subscribe(failing)
    with caplog.at_level(logging.ERROR, "trio_agent"):
        result = await tour.agent.prompt("go")
    assert tour.cut_lines(k) == TOUR[: k + 1] + closing(k, "error")
    later = len(tour.lines) - k - 1
    assert failing.done == later + 1
    kept = later + (k == LAST)
    assert len(result.suppressed) == kept
    assert [record.name for record in caplog.records if record.exc_info] == ["trio_agent"] * kept
    assert_settled(tour.recorder)


@at_each_kind
@sync_and_async
async def test_F3_an_observer_never_fails_the_run(k: int, is_async: bool, caplog: pytest.LogCaptureFixture) -> None:
    """An observer that raises from any event on fails nothing: the run tells what it would have told, and keeps it."""
    tour = Tour()
    failing = At(k, raising(ValueError("boom")), is_async=is_async, onwards=True)
    tour.agent.subscribe(failing, observer=True)
    with caplog.at_level(logging.ERROR, "trio_agent"):
        result = await tour.agent.prompt("go")
    assert tour.lines == TOUR
    assert failing.seen == TOUR
    assert (result.outcome, result.error) == ("completed", None)
    assert len(result.suppressed) == len(TOUR) - k == len(caplog.records)
    assert_settled(tour.recorder)


async def test_F3_the_failure_comes_after_every_other_subscriber_got_the_event() -> None:
    """Subscribers before and behind the one that raises get that event before anything that follows from the
    failure.
    """
    agent, recorder = make_agent(ScriptedProvider(["hello", finish()]))
    order: list[str] = []
    on(agent, "message_end", raising_at_event("first"))

    async def slow(event: Any) -> None:
        await trio.sleep(1)
        order.append(event.type)

    agent.subscribe(slow)
    result = await agent.prompt("hi")
    assert order == recorder.types
    assert order[:4] == ["agent_start", "turn_start", "message_start", "message_end"]
    assert result.outcome == "error"


def raising_at_event(text: str) -> Callable[[Any], object]:
    def do(event: Any) -> object:
        raise ValueError(text)

    return do


async def test_F3_a_failure_at_agent_end_is_logged_and_kept_and_no_event_follows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A failure at `agent_end` is logged and kept on the result: the outcome stands, and nothing is told any more."""
    agent, recorder = make_agent(ScriptedProvider(["hello", finish()]))
    on(agent, "agent_end", raising_at_event("too late"))
    with caplog.at_level(logging.ERROR, "trio_agent"):
        result = await agent.prompt("hi")
    assert recorder.lines[-1] == "agent_end completed"
    assert result.outcome == "completed"
    assert [str(failure) for failure in result.suppressed] == ["too late"]
    assert "too late" in caplog.text
    assert agent.state.error_message is None
    assert_settled(recorder)


async def test_F3_the_failure_of_a_subscriber_with_a_nursery_is_one_failure() -> None:
    """What a subscriber's own tasks raise arrives as one failure whose text lists them, not as a group that leaves."""
    agent, recorder = make_agent(ScriptedProvider(["hello", finish()]))

    async def fan_out(event: Any) -> None:
        async def one(text: str) -> None:
            raise ValueError(text)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, "left")
            nursery.start_soon(one, "right")

    on(agent, "turn_start", fan_out)
    result = await agent.prompt("hi")
    assert result.outcome == "error"
    assert isinstance(result.error, ExceptionGroup)
    assert "ValueError: left" in error_messages(agent)[0]
    assert "ValueError: right" in error_messages(agent)[0]
    assert_settled(recorder)


# F1: the closing message


async def test_F1_the_closing_message_travels_the_normal_path() -> None:
    """A run that fails ends in a closing message: history, `message_start`, `message_end`, `turn_end`, `agent_end`."""
    agent, recorder = make_agent(ScriptedProvider([ValueError("no model")]))
    result = await agent.prompt("hi")
    assert recorder.lines == [
        "agent_start",
        "turn_start 1",
        "message_start user",
        'message_end user "hi"',
        "message_start assistant",
        "message_end assistant error !the provider failed: ValueError: no model",
        "turn_end 1",
        "agent_end error",
    ]
    closing_message = agent.state.messages[-1]
    assert recorder.events[-2].message is closing_message  # type: ignore[union-attr]
    assert recorder.events[-1].error == agent.state.error_message == closing_message.error_message  # type: ignore[union-attr]
    assert result.messages == tuple(agent.state.messages)
    assert_settled(recorder)


async def test_F1_history_holds_the_closing_message_when_its_end_is_told() -> None:
    """The closing message is in history, and `error_message` is set, when subscribers see its `message_end`."""
    agent, recorder = make_agent(ScriptedProvider([ValueError("no model")]))
    await agent.prompt("hi")
    at = recorder.lines.index("message_end assistant error !the provider failed: ValueError: no model")
    assert recorder.states[at].messages[-1] is recorder.events[at].message  # type: ignore[union-attr]
    assert recorder.states[at].error_message == "the provider failed: ValueError: no model"
    assert len(recorder.states[at - 1].messages) == 1


async def test_F1_an_open_assistant_message_becomes_the_closing_message() -> None:
    """If an assistant message is open it becomes the closing message, with all that had arrived."""
    agent, recorder = make_agent(
        ScriptedProvider([thinking("hm"), text("par", "tial"), call("c1", "fails", {"a": 1}), ValueError("cut")])
    )
    await agent.prompt("hi")
    assert recorder.lines[-3:] == [
        'message_end assistant error thinking "hm" "partial" c1:fails !the provider failed: ValueError: cut',
        "turn_end 1",
        "agent_end error",
    ]
    assert len(agent.state.messages) == 2
    assert_settled(recorder)


async def test_F1_a_failure_behind_a_standing_message_gets_a_turn_of_its_own() -> None:
    """If the open turn has its standing message, that turn is closed first; the closing message gets its own turn."""
    agent, recorder = make_agent(ScriptedProvider(["hello", finish()]))
    on(agent, "message_end", raising_at_event("full"), nth=2)
    await agent.prompt("hi")
    assert [line.partition(" !")[0] for line in recorder.lines[-7:]] == [
        'message_end assistant stop "hello"',
        "turn_end 1",
        "turn_start 2",
        "message_start assistant",
        "message_end assistant error",
        "turn_end 2",
        "agent_end error",
    ]
    assert_settled(recorder)


@pytest.mark.parametrize(
    ("type", "nth"),
    [
        ("agent_start", 1),
        ("turn_start", 1),
        *[("message_start", n) for n in (1, 2, 3)],
        ("message_end", 1),
        ("message_end", 2),
    ],
)
async def test_F1_history_never_loses_what_the_user_said(type: str, nth: int) -> None:
    """A prompt of which not every message had been emitted is emitted whole before the closing message, in order."""
    agent, recorder = make_agent(ScriptedProvider())
    on(agent, type, raising_at_event("early"), nth=nth)
    picture = Image(b"\x89PNG", "image/png")
    await agent.prompt(["one", UserMessage("two"), "three"], images=[picture])
    ends = [line.removeprefix("message_end ").partition(" !")[0] for line in recorder.lines_of("message_end")]
    assert ends == ['user "one"', 'user "two"', 'user "three" [image/png 4 bytes]', "assistant error"]
    assert [line.partition(" !")[0] for line in said(agent.state.messages)] == ends
    assert_settled(recorder)


async def test_F1_what_was_steered_stays_in_its_queue_when_the_run_fails_before_it() -> None:
    """Only the prompt is emitted before the closing message: a queued message stays queued, for the next run."""
    agent, recorder = make_agent(ScriptedProvider(["fine", finish()]))
    agent.steer("earlier")
    unsubscribe = agent.subscribe(raising_at_event("early"))
    await agent.prompt("now")
    unsubscribe()
    assert [message.text for message in agent.state.steering_queue] == ["earlier"]  # type: ignore[union-attr]
    assert said(agent.state.messages)[0] == 'user "now"'
    await agent.prompt("again")
    assert said(agent.state.messages)[2:] == ['user "earlier"', 'user "again"', 'assistant stop "fine"']
    assert_settled(recorder)


# F1, of providers


FAILURES: list[Exception] = [
    ValueError("plain"),
    ProviderError("authentication", "bad key"),
    ExceptionGroup("several", [ValueError("left"), KeyError("right")]),
    UnreadableError(),
    StopAsyncIteration(),
    TimeoutError(),
    trio.BrokenResourceError(),
]
PLACES: dict[str, list[Any]] = {
    "before the first chunk": [],
    "in a text": [text("par")],
    "in thinking": [thinking("hm")],
    "at the start of a call": [ToolCallStart(0, "c1", "fails")],
    "in the arguments of a call": [text("t"), ToolCallStart(1, "c1", "fails"), ToolCallDelta(1, '{"a"')],
    "behind a call": [call("c1", "fails")],
    "behind a usage report": [text("t"), UsageReport(Usage(input=3, output=1))],
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
async def test_F1_no_exception_of_a_provider_leaves_prompt(place: str, failure: Exception) -> None:
    """A provider that raises anything, anywhere in its answer, fails the run: the open message says so, no call
    runs.
    """
    agent, recorder = make_agent(ScriptedProvider([*PLACES[place], failure]), tools=[fails])
    result = await agent.prompt("hi")
    assert (result.outcome, result.error) == ("error", failure)
    assert recorder.lines[-2:] in (["turn_end 1", "agent_end error"], ["turn_end 1", "agent_end error authentication"])
    assert agent.state.messages[-1].stop_reason == "error"  # type: ignore[union-attr]
    assert not recorder.lines_of("tool_execution_start")
    assert_settled(recorder)


@at_each_kind
async def test_F1_a_provider_that_fails_while_any_event_is_told_fails_the_run(k: int) -> None:
    """A provider that fails from any event on, while that is being handled, fails the run at its next chunk or wait."""
    tour, boom = Tour(), ValueError("provider boom")

    async def meanwhile() -> None:
        tour.trip("provider", boom)
        await trio.sleep(0.1)

    tour.agent.subscribe(At(k, meanwhile, is_async=True))
    result = await tour.agent.prompt("go")
    assert tour.lines[: min(k, 33)] == TOUR[: min(k, 33)]
    assert result.error is (boom if k < 33 else None)
    assert tour.lines[-1] == ("agent_end error" if k < 33 else "agent_end completed")
    assert_settled(tour.recorder)
    assert_sendable(tour.agent.state.messages)


async def test_F1_a_provider_that_is_no_async_callable_fails_the_run() -> None:
    """A provider whose call gives nothing to await is a failure of the provider, and leaves nothing open."""
    agent, recorder = make_agent(lambda request, send: None)  # type: ignore[arg-type, return-value]
    result = await agent.prompt("hi")
    assert isinstance(result.error, TypeError)
    assert recorder.lines[-1] == "agent_end error"
    assert_settled(recorder)


# F1, of tools


@at_each_kind
@pytest.mark.parametrize("who", ["tool work", "tool rest"])
async def test_F1_a_tool_that_fails_while_any_event_is_told_does_not_end_the_run(k: int, who: str) -> None:
    """A tool that fails from any event on, while that is being handled, gives an error result; the run completes."""
    tour = Tour()

    async def meanwhile() -> None:
        tour.trip(who, ValueError("tool boom"))
        await trio.sleep(0.1)

    tour.agent.subscribe(At(k, meanwhile, is_async=True))
    result = await tour.agent.prompt("go")
    assert result.outcome == "completed"
    ends = tour.recorder.lines_of("tool_execution_end")
    mine = "c1" if who == "tool work" else "c2"
    failed = k <= (20 if mine == "c1" else 21)
    assert next(line for line in ends if f" {mine} " in line).split()[2] == ("error" if failed else "ok")
    assert ("tool boom" in "".join(ends)) is failed
    assert_settled(tour.recorder)
    assert_sendable(tour.agent.state.messages)


# F2


@pytest.mark.parametrize("reason", ["stop", "length", "tool_use"])
async def test_F2_calls_of_a_standing_message_get_their_end_and_their_result(reason: str) -> None:
    """Cut off right behind a message that ended `stop`, `length` or `tool_use`, each call gets one result, in order."""
    agent, recorder = make_agent(
        ScriptedProvider([call("c1", "answers"), call("c2", "nope"), call("c3", "waits"), finish(reason)]),
        tools=[answers, waits],
    )
    on(agent, "message_end", raising_at_event("full"), nth=2)
    await agent.prompt("hi")
    assert [line.partition(' "')[0] for line in recorder.lines_of("tool_execution_start", "tool_execution_end")] == [
        "tool_execution_start c1 answers {}",
        "tool_execution_start c2 nope {}",
        "tool_execution_start c3 waits {}",
        "tool_execution_end c1 error",
        "tool_execution_end c2 error",
        "tool_execution_end c3 error",
    ]
    results = [message for message in agent.state.messages if message.role == "tool_result"]
    assert [result.tool_call_id for result in results] == ["c1", "c2", "c3"]  # type: ignore[union-attr]
    assert all(result.text.startswith("Not run") for result in results)  # type: ignore[union-attr]
    assert_sendable(agent.state.messages)
    assert_settled(recorder)


@at_each_kind
async def test_F2_after_a_failure_anywhere_the_next_request_is_sendable(k: int) -> None:
    """Whatever failed, the next prompt's request holds each call with exactly one result, directly behind its
    message.
    """
    tour = Tour()
    with tour.agent.subscribe(At(k, raising(ValueError("boom")))):
        await tour.agent.prompt("go")
    requests: list[ModelRequest] = []

    async def next_provider(request: ModelRequest, send: Send) -> None:
        requests.append(request)
        await send(Finish("stop"))

    again, recorder = make_agent(next_provider, messages=tour.agent.state.messages)
    await again.prompt("next")
    assert_sendable(requests[0].messages)
    assert said(requests[0].messages)[-1] == 'user "next"'
    assert_settled(recorder)


async def test_F2_a_finished_call_keeps_its_result_when_the_run_fails() -> None:
    """A call whose outcome was there before the failure keeps its own result; only the others are answered for it."""
    agent, recorder = make_agent(
        ScriptedProvider([call("c1", "waits"), call("c2", "answers"), finish("tool_use")]), tools=[answers, waits]
    )
    on(agent, "tool_execution_end", raising_at_event("full"))
    await agent.prompt("hi")
    assert [line.split(' "')[0] for line in recorder.lines_of("tool_execution_end")] == [
        "tool_execution_end c2 ok",
        "tool_execution_end c1 error",
    ]
    assert_sendable(agent.state.messages)
    assert_settled(recorder)


# F6


async def test_F6_a_stream_that_ends_without_its_end_marker_is_an_error() -> None:
    """A provider that returns without `Finish` fails the run, with what had arrived; it is not taken for a stop."""
    agent, recorder = make_agent(ScriptedProvider(["half"]))
    result = await agent.prompt("hi")
    assert (result.outcome, result.reason) == ("error", "protocol")
    assert isinstance(result.error, ProviderError)
    assert recorder.lines[-3].startswith('message_end assistant error "half" !')
    assert "without an end marker" in error_messages(agent)[0]
    assert_settled(recorder)


async def test_F6_a_stream_without_a_single_chunk_is_an_error() -> None:
    """A provider that returns at once fails the run as well."""
    agent, recorder = make_agent(ScriptedProvider([]))
    result = await agent.prompt("hi")
    assert (result.outcome, result.reason) == ("error", "protocol")
    assert recorder.lines[-4:-2][0] == "message_start assistant"
    assert_settled(recorder)


@pytest.mark.parametrize("marker", ["end_turn", "", "error", "aborted", "STOP"])
async def test_F6_an_unknown_end_marker_is_an_error(marker: str) -> None:
    """An end marker that is none of `stop`, `length` and `tool_use` fails the run."""
    agent, recorder = make_agent(ScriptedProvider(["done", Finish(marker)]))
    result = await agent.prompt("hi")
    assert (result.outcome, result.reason) == ("error", "protocol")
    assert recorder.lines[-3].startswith('message_end assistant error "done" !')
    assert_settled(recorder)


BEHIND: list[Chunk] = [
    TextDelta(0, "more"),
    TextDelta(0, ""),
    TextDelta(9, "new"),
    ThinkingDelta(9, "hm"),
    ToolCallStart(9, "c1", "fails"),
    ToolCallDelta(0, "{}"),
    BlockEnd(0),
    BlockEnd(0, "signature"),
    RedactedThinking(9, "data"),
    ResponseInfo(id="r1"),
    Finish("stop"),
]


@pytest.mark.parametrize("chunk", BEHIND, ids=repr)
async def test_F6_any_chunk_but_a_usage_report_behind_the_end_marker_is_an_error(chunk: Chunk) -> None:
    """Whatever comes behind `Finish`, except for usage, fails the run."""
    agent, recorder = make_agent(ScriptedProvider(["done", finish(), chunk]))
    result = await agent.prompt("hi")
    assert (result.outcome, result.reason) == ("error", "protocol")
    assert recorder.lines[-3].startswith('message_end assistant error "done" !')
    assert_settled(recorder)


async def test_F6_a_usage_report_behind_the_end_marker_counts() -> None:
    """A usage report may come behind `Finish`, and is the message's."""
    agent, recorder = make_agent(ScriptedProvider(["done", finish(), UsageReport(Usage(input=3, output=1))]))
    result = await agent.prompt("hi")
    assert (result.outcome, result.usage.input) == ("completed", 3)
    assert_settled(recorder)


async def test_F6_an_exception_behind_the_end_marker_does_not_undo_the_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An exception after `Finish` is kept as a later failure; the message stands and its calls run."""
    boom = ValueError("closing the connection failed")
    agent, recorder = make_agent(
        ScriptedProvider([call("c1", "answers"), finish("tool_use"), boom], ["done", finish()]), tools=[answers]
    )
    with caplog.at_level(logging.ERROR, "trio_agent"):
        result = await agent.prompt("hi")
    assert (result.outcome, result.error, result.suppressed) == ("completed", None, (boom,))
    assert recorder.lines_of("tool_execution_end") == ['tool_execution_end c1 ok "fine"']
    assert "closing the connection failed" in caplog.text
    assert_settled(recorder)


async def test_F6_what_is_no_chunk_at_all_is_an_error() -> None:
    """An object that is no chunk fails the run, with what had arrived before it."""

    async def provider(request: ModelRequest, send: Send) -> None:
        await send(TextDelta(0, "half"))
        await send("just a string")  # type: ignore[arg-type]
        await trio.sleep_forever()

    agent, recorder = make_agent(provider)
    result = await agent.prompt("hi")
    assert (result.outcome, result.reason) == ("error", "protocol")
    assert_settled(recorder)


async def test_F6_a_provider_with_an_unusable_stream_has_let_go_before_the_closing_message() -> None:
    """A provider whose stream is unusable is cancelled, and has cleaned up when the closing message is told."""
    order: list[str] = []

    async def provider(request: ModelRequest, send: Send) -> None:
        try:
            await send(Finish("nonsense"))
            await trio.sleep_forever()
        finally:
            order.append("provider let go")

    agent, recorder = make_agent(provider)
    on(agent, "message_end", lambda event: order.append(event.message.role), nth=2)
    result = await agent.prompt("hi")
    assert order == ["provider let go", "assistant"]
    assert result.outcome == "error"
    assert_settled(recorder)


# F10


async def test_F10_a_failure_before_an_abort_stays_an_error() -> None:
    """A subscriber that fails, then another that aborts at the same event: the failure was first, and decides."""
    agent, recorder = make_agent(ScriptedProvider(["hello", stall()]))
    on(agent, "message_update", raising_at_event("first"))
    on(agent, "message_update", lambda event: agent.abort("second"))
    result = await agent.prompt("hi")
    assert (result.outcome, str(result.error)) == ("error", "first")
    assert recorder.lines[-1] == "agent_end error"
    assert_settled(recorder)


async def test_F10_an_abort_before_a_failure_stays_an_abort(caplog: pytest.LogCaptureFixture) -> None:
    """One subscriber aborts and then raises: the abort decides, the failure is logged and kept."""
    agent, recorder = make_agent(ScriptedProvider(["hello", stall()]))

    def both(event: Any) -> None:
        agent.abort("first")
        raise ValueError("second")

    on(agent, "message_update", both)
    with caplog.at_level(logging.ERROR, "trio_agent"):
        result = await agent.prompt("hi")
    assert (result.outcome, result.reason, result.error) == ("aborted", "first", None)
    assert [str(failure) for failure in result.suppressed] == ["second"]
    assert "second" in caplog.text
    assert recorder.lines[-1] == "agent_end aborted first"
    assert_settled(recorder)


async def test_F10_of_two_failures_at_one_event_the_first_decides() -> None:
    """Two subscribers fail at the same event: the first is the run's error, the second is kept."""
    agent, recorder = make_agent(ScriptedProvider(["hello", finish()]))
    on(agent, "turn_start", raising_at_event("first"))
    on(agent, "turn_start", raising_at_event("second"))
    result = await agent.prompt("hi")
    assert str(result.error) == "first"
    assert [str(failure) for failure in result.suppressed] == ["second"]
    assert_settled(recorder)


async def test_F10_an_abort_during_the_settlement_of_a_failure_changes_nothing() -> None:
    """Aborting while a failed run is being closed leaves it an error."""
    agent, recorder = make_agent(ScriptedProvider([ValueError("first")]))
    on(agent, "turn_end", lambda event: agent.abort("late"))
    result = await agent.prompt("hi")
    assert (result.outcome, str(result.error)) == ("error", "first")
    assert_settled(recorder)


def cleaning_up_badly(what: str) -> Callable[..., Awaitable[Any]]:
    async def work(*_: Any) -> Any:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError(f"{what} cleaned up badly")

    return work


@pytest.mark.parametrize("who", ["provider", "tool", "transform_context", "before_tool_call", "should_stop_after_turn"])
async def test_F10_what_fails_while_it_is_being_stopped_is_logged_and_kept(
    who: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A provider, tool or hook that raises while an abort cancels it changes no outcome: it is logged and on the
    result.
    """

    @tool
    async def bad() -> str:
        """Clean up badly."""
        await cleaning_up_badly("tool")()
        raise AssertionError("nobody wakes it")

    hooks = {} if who in ("provider", "tool") else {who: cleaning_up_badly(who)}
    calls = [] if who == "should_stop_after_turn" else [call("c1", "bad")]
    provider: Any = ScriptedProvider([*calls, "hello", finish()])
    agent, recorder = make_agent(
        cleaning_up_badly(who) if who == "provider" else provider, tools=[bad], hooks=Hooks(**hooks)
    )
    with caplog.at_level(logging.ERROR, "trio_agent"):
        async with trio.open_nursery() as nursery:
            results: list[Any] = []

            async def run() -> None:
                results.append(await agent.prompt("hi"))

            nursery.start_soon(run)
            await trio.testing.wait_all_tasks_blocked()
            agent.abort("enough")
    assert (results[0].outcome, results[0].reason) == ("aborted", "enough")
    assert [str(failure) for failure in results[0].suppressed] == [f"{who} cleaned up badly"]
    assert "cleaned up badly" in caplog.text
    assert_settled(recorder)


@at_each_event
async def test_F10_everything_at_once(k: int) -> None:
    """Subscribers, provider, tools and hooks fail at one event, with an abort and an outside cancellation: one lawful
    end.
    """
    tour = Tour()
    scope = trio.CancelScope()

    def all_at_once() -> None:
        for who in ("provider", "tool work", "tool rest", "compaction"):
            tour.trip(who, ValueError(f"{who} too"))
        for hook in (
            "transform_context",
            "convert_to_llm",
            "before_tool_call",
            "after_tool_result",
            "should_stop_after_turn",
        ):
            tour.trip(f"hook {hook}", KeyError(hook))
        tour.agent.abort("first")
        scope.cancel()
        raise ValueError("the subscriber too")

    tour.agent.subscribe(At(k, raising(ValueError("an observer too")), onwards=True), observer=True)
    tour.agent.subscribe(At(k, all_at_once, onwards=True))
    before = tasks()
    with scope:
        await tour.agent.prompt("go")
    assert scope.cancelled_caught
    assert tour.cut_lines(k) == TOUR[: k + 1] + closing(k, "aborted")
    assert_settled(tour.recorder)
    assert_sendable(tour.agent.state.messages)
    assert tasks() == before


@before_the_end
async def test_F10_the_first_cause_decides_at_once_and_for_good(k: int) -> None:
    """After an abort at any event, a subscriber that fails at every later one does not make it an error."""
    tour = Tour()
    tour.agent.subscribe(At(k, tour.agent.abort))
    tour.agent.subscribe(At(k, raising(ValueError("later")), onwards=True))
    result = await tour.agent.prompt("go")
    assert tour.cut_lines(k) == TOUR[: k + 1] + closing(k, "aborted")
    assert (result.outcome, result.error) == ("aborted", None)
    assert len(result.suppressed) == len(tour.lines) - k
    assert_settled(tour.recorder)


@at_each_moment
async def test_F10_a_failure_of_the_work_and_an_abort_at_the_same_moment(moment: str) -> None:
    """Work that fails in the very moment of an abort: whichever was first decides, and the trace is lawful either
    way.
    """
    tour = Tour()
    results: list[Any] = []

    async def run() -> None:
        results.append(await tour.agent.prompt("go"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await trio.sleep(MOMENTS[moment])
        for who in ("provider", "tool work", "tool rest", "compaction"):
            tour.trip(who, ValueError("boom"))
        tour.agent.abort("now")
    assert results[0].outcome == "aborted", "the abort was noted at once, the failure is only on its way"
    assert_settled(tour.recorder)
    assert_sendable(tour.agent.state.messages)
