"""Rules T1 to T8 of the specification: tools. Sentence by sentence; T8 at the level of agents and real files."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import trio
from scenes import Recorder, assert_paired, assert_settled, executions, make_agent, on, said

from trio_agent import (
    AssistantMessage,
    Block,
    Event,
    FileLocks,
    Hooks,
    Image,
    MessageUpdate,
    ProviderError,
    Replace,
    RetryPolicy,
    Text,
    Tool,
    ToolCall,
    ToolCallFragment,
    ToolContext,
    ToolExecutionStart,
    ToolResult,
    ToolResultMessage,
    TurnEnd,
    UserMessage,
    tool,
)
from trio_agent.testing import ScriptedProvider, Step, call, finish, stall, text

DONE: list[Any] = [text("done"), finish()]


def asks(*calls: Step, reason: str = "tool_use") -> list[Any]:
    """The reply of a model that wants these calls run."""
    return [*calls, finish(reason)]


@tool
async def echo(v: str) -> str:
    """Say it again."""
    return v


@tool
async def nap(seconds: float) -> str:
    """Sleep."""
    await trio.sleep(seconds)
    return f"slept {seconds:g}"


async def run(*calls: Step, tools: list[Tool], reason: str = "tool_use", **options: Any) -> Recorder:
    """One turn of these calls and one without, to its end."""
    provider = ScriptedProvider(asks(*calls, reason=reason), DONE)
    agent, recorder = make_agent(provider, tools=tools, **options)
    with provider:
        result = await agent.prompt("go")
    assert result.outcome == "completed"
    assert_settled(recorder)
    assert_paired(provider.requests[1].messages)
    return recorder


def results(recorder: Recorder) -> dict[str, ToolResultMessage]:
    return {m.tool_call_id: m for m in recorder.agent.state.messages if isinstance(m, ToolResultMessage)}


# -- T1 ---------------------------------------------------------------------------------------------------------------


async def test_T1_preparation_is_serial_in_call_order_and_execution_begins_behind_it() -> None:
    """Start a, hook a, start b, hook b, and only then execution; the hook is never at work twice at once."""
    log: list[str] = []
    at_work = 0

    async def check(call: ToolCall) -> None:
        nonlocal at_work
        at_work += 1
        assert at_work == 1
        log.append(f"hook {call.id}")
        await trio.sleep({"a": 3, "b": 2, "c": 1}[call.id])
        log.append(f"checked {call.id}")
        at_work -= 1

    @tool
    async def work(ctx: ToolContext) -> str:
        """Work."""
        log.append("run")
        return ""

    provider = ScriptedProvider(asks(call("a", "work"), call("b", "work"), call("c", "work")), DONE)
    agent, recorder = make_agent(provider, tools=[work], hooks=Hooks(before_tool_call=check))
    agent.subscribe(
        lambda event: log.append(f"start {event.call.id}") if isinstance(event, ToolExecutionStart) else None
    )
    await agent.prompt("go")
    assert log == [
        *["start a", "hook a", "checked a"],
        *["start b", "hook b", "checked b"],
        *["start c", "hook c", "checked c"],
        *["run", "run", "run"],
    ]
    assert_settled(recorder)


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (call("a", "nope", {"v": "x"}), "There is no tool called"),
        (call("a", "echo", {"w": "x"}), "do not fit"),
        (call("a", "echo", {"v": "blocked"}), "blocked: not that"),
        (call("a", "echo", {"v": "raises"}), "its check failed: ValueError: oops"),
    ],
)
async def test_T1_a_call_that_preparation_refused_has_its_end_at_once(refused: Step, words: str) -> None:
    """The end of a refused call comes before the start of the next one."""

    def check(call: ToolCall) -> Block | None:
        if call.arguments["v"] == "raises":
            raise ValueError("oops")
        return Block("not that") if call.arguments["v"] == "blocked" else None

    recorder = await run(refused, call("b", "echo", {"v": "y"}), tools=[echo], hooks=Hooks(before_tool_call=check))
    order = [line.split(" ")[:3] for line in recorder.lines_of("tool_execution_start", "tool_execution_end")]
    assert [f"{type.removeprefix('tool_execution_')} {id}" for type, id, _ in order] == [
        "start a",
        "end a",
        "start b",
        "end b",
    ]
    assert words in results(recorder)["a"].text
    assert results(recorder)["a"].is_error
    assert results(recorder)["b"].text == "y"


async def test_T1_a_refusal_in_the_middle_lets_the_calls_before_it_wait_for_the_preparation_of_all() -> None:
    """Execution begins when all calls have been prepared, also those behind a refused one."""
    recorder = await run(call("a", "echo", {"v": "x"}), call("b", "nope"), call("c", "echo", {"v": "z"}), tools=[echo])
    kinds = executions(recorder.events)
    assert kinds[:4] == ["start a", "start b", "end b", "start c"]
    assert sorted(kinds[4:]) == ["end a", "end c"]


async def test_T1_the_start_shows_the_arguments_as_the_model_gave_them() -> None:
    """Neither decoding nor a hook's replacement shows in `tool_execution_start` or in history."""
    got: list[int] = []

    @tool
    async def double(n: int) -> str:
        """Double it."""
        got.append(n)
        return str(2 * n)

    raw = '{ "n" : 3 }'
    recorder = await run(
        call("a", "double", raw), tools=[double], hooks=Hooks(before_tool_call=lambda call: Replace({"n": 21}))
    )
    [start] = [event for event in recorder.events if isinstance(event, ToolExecutionStart)]
    assert (start.call.raw, start.arguments) == (raw, {"n": 3})
    assert got == [21]
    [message] = [m for m in recorder.agent.state.messages if isinstance(m, AssistantMessage) and m.tool_calls]
    assert message.tool_calls[0].raw == raw
    assert results(recorder)["a"].text == "42"


async def test_T1_what_a_hook_puts_in_place_of_the_arguments_is_validated_again() -> None:
    """A replacement that does not fit the tool is refused like the model's own arguments would be."""
    recorder = await run(
        call("a", "nap", {"seconds": 1}),
        tools=[nap],
        hooks=Hooks(before_tool_call=lambda call: Replace({"seconds": "long"})),
    )
    assert results(recorder)["a"].is_error
    assert "seconds" in results(recorder)["a"].text


# -- T2 ---------------------------------------------------------------------------------------------------------------


async def test_T2_calls_run_in_parallel() -> None:
    """Calls of one message run at the same time: each can wait for what another one does."""
    met = [trio.Event() for _ in range(3)]

    @tool
    async def meet(n: int) -> str:
        """Wait for the others."""
        met[n].set()
        for other in met:
            await other.wait()
        return "met"

    recorder = await run(*[call(f"c{n}", "meet", {"n": n}) for n in range(3)], tools=[meet])
    assert {result.text for result in results(recorder).values()} == {"met"}


class Spans:
    """Tools that note when each call begins and ends."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.ended: list[str] = []
        self.ended_at_begin: dict[str, list[str]] = {}

    def tools(self) -> list[Tool]:
        async def work(id: str, seconds: float) -> str:
            """Work for a while."""
            self.log.append(f"begin {id}")
            self.ended_at_begin[id] = list(self.ended)
            await trio.sleep(seconds)
            self.log.append(f"end {id}")
            return id

        return [tool(name="free")(work), tool(name="alone", serial=True)(work)]


def spans_of(ids: str, names: dict[str, str], seconds: dict[str, float]) -> list[Step]:
    return [call(id, names.get(id, "free"), {"id": id, "seconds": seconds[id]}) for id in ids]


async def test_T2_a_serial_tool_is_a_barrier() -> None:
    """It starts when all earlier calls of the message have ended, and later calls start when it has ended."""
    spans = Spans()
    calls = spans_of("abcde", {"c": "alone"}, {"a": 2, "b": 1, "c": 1, "d": 2, "e": 1})
    await run(*calls, tools=spans.tools())
    order = [line for line in spans.log if line[-1] in "abc" and "begin c" not in line][:4]
    assert sorted(order[:2]) == ["begin a", "begin b"]
    assert spans.log[2:6] == ["end b", "end a", "begin c", "end c"]
    assert sorted(spans.log[6:8]) == ["begin d", "begin e"]
    assert spans.log[8:] == ["end e", "end d"]


async def test_T2_serial_calls_run_one_after_the_other_in_call_order() -> None:
    """Two serial calls in a row do not overlap, and the first of the message runs first."""
    spans = Spans()
    calls = spans_of("abc", dict.fromkeys("abc", "alone"), {"a": 3, "b": 2, "c": 1})
    await run(*calls, tools=spans.tools())
    assert spans.log == ["begin a", "end a", "begin b", "end b", "begin c", "end c"]


async def test_T2_the_end_of_earlier_calls_has_been_told_when_a_serial_one_starts() -> None:
    """A call has ended when its end has been told: a slow subscriber of an end holds the barrier."""
    spans = Spans()
    provider = ScriptedProvider(asks(*spans_of("abc", {"b": "alone"}, dict.fromkeys("abc", 1.0))), DONE)
    agent, recorder = make_agent(provider, tools=spans.tools())

    async def slow(event: Event) -> None:
        if event.type == "tool_execution_end":
            await trio.sleep(10)
            spans.ended.append(event.tool_call_id)

    agent.subscribe(slow)
    await agent.prompt("go")
    assert spans.ended_at_begin == {"a": [], "b": ["a"], "c": ["a", "b"]}
    assert_settled(recorder)


async def test_T2_a_serial_call_that_is_refused_is_no_barrier() -> None:
    """What preparation refused has ended: it holds up nobody."""
    spans = Spans()
    steps = [
        call("a", "free", {"id": "a", "seconds": 1}),
        call("b", "alone", {"id": "b"}),
        call("c", "free", {"id": "c", "seconds": 1}),
    ]
    await run(*steps, tools=spans.tools())
    assert sorted(spans.log[:2]) == ["begin a", "begin c"]


async def test_T2_at_most_so_many_calls_run_at_once() -> None:
    """`max_parallel_tools` bounds how many calls run at a time; the others wait and run too."""
    running = most = 0

    @tool
    async def work() -> str:
        """Work for a while."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.sleep(1)
        running -= 1
        return "ok"

    recorder = await run(*[call(f"c{n}", "work") for n in range(7)], tools=[work], max_parallel_tools=3)
    assert most == 3
    assert len(results(recorder)) == 7


# -- T3 ---------------------------------------------------------------------------------------------------------------


async def test_T3_ends_come_in_completion_order_and_once_for_each_start() -> None:
    """`tool_execution_end` comes when its call has ended, not in call order, exactly once for each start."""
    recorder = await run(*[call(f"c{n}", "nap", {"seconds": n}) for n in (3, 1, 2)], tools=[nap])
    assert [line.split(" ")[1] for line in recorder.lines_of("tool_execution_start")] == ["c3", "c1", "c2"]
    assert [line.split(" ")[1] for line in recorder.lines_of("tool_execution_end")] == ["c1", "c2", "c3"]


async def test_T3_ends_that_came_during_a_slow_delivery_keep_their_order() -> None:
    """What ended while a subscriber was still busy is told in the order in which it ended, reports included."""

    @tool
    async def late(seconds: float, ctx: ToolContext) -> str:
        """Report, then end."""
        await trio.sleep(seconds)
        await ctx.update(f"{seconds:g}")
        return "done"

    provider = ScriptedProvider(
        asks(call("a", "late", {"seconds": 1}), call("c", "nap", {"seconds": 4}), call("b", "nap", {"seconds": 3})),
        DONE,
    )
    agent, recorder = make_agent(provider, tools=[late, nap])
    on(agent, "tool_execution_update", lambda event: trio.sleep(100))
    await agent.prompt("go")
    assert [line.split(" ")[1] for line in recorder.lines_of("tool_execution_end")] == ["b", "c", "a"]
    assert_settled(recorder)


async def test_T3_updates_lie_between_start_and_end() -> None:
    """What a tool reports is told while it runs, each report before the tool goes on."""
    log: list[str] = []

    @tool
    async def report(ctx: ToolContext) -> str:
        """Report twice."""
        await ctx.update("one")
        log.append("after one")
        await ctx.update([Text("two"), Image(b"png", "image/png")])
        log.append("after two")
        return "done"

    provider = ScriptedProvider(asks(call("a", "report")), DONE)
    agent, recorder = make_agent(provider, tools=[report])

    async def slow(event: Event) -> None:
        if event.type == "tool_execution_update":
            await trio.sleep(5)
            log.append("handled")

    agent.subscribe(slow)
    await agent.prompt("go")
    assert [line for line in recorder.lines if "tool_execution" in line] == [
        "tool_execution_start a report {}",
        'tool_execution_update a "one"',
        'tool_execution_update a "two" [image/png 3 bytes]',
        'tool_execution_end a ok "done"',
    ]
    assert log == ["handled", "after one", "handled", "after two"]
    assert_settled(recorder)


async def test_T3_a_report_whose_sender_was_cut_off_is_told_before_the_end_or_never() -> None:
    """A tool that does not wait for its own report may lose it, but it is never told behind the call's end."""

    @tool
    async def hasty(ctx: ToolContext) -> str:
        """Report in a child task, and cancel that."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ctx.update, ctx.call_id)
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        return "done"

    provider = ScriptedProvider(asks(*[call(id, "hasty") for id in "abc"]), DONE)
    agent, recorder = make_agent(provider, tools=[hasty])
    on(agent, "tool_execution_update", lambda event: trio.sleep(5))
    assert (await agent.prompt("go")).outcome == "completed"
    told = executions(recorder.events)
    assert sorted(line for line in told if "end" in line) == ["end a", "end b", "end c"]
    assert all(told.index(f"update {id}") < told.index(f"end {id}") for id in "abc" if f"update {id}" in told)
    assert_settled(recorder)


async def test_a_late_update_is_dropped() -> None:
    """T3: an update behind the end is dropped, silently, while the run goes on and when it is over."""
    kept: list[ToolContext] = []

    @tool
    async def leave(ctx: ToolContext) -> str:
        """Keep the context."""
        kept.append(ctx)
        return "done"

    provider = ScriptedProvider(asks(call("a", "leave"), call("b", "nap", {"seconds": 10})), DONE)
    agent, recorder = make_agent(provider, tools=[leave, nap])

    async def report_late() -> None:
        await trio.sleep(5)
        await kept[0].update("late")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(report_late)
        await agent.prompt("go")
    await kept[0].update("later still")
    assert recorder.lines_of("tool_execution_update") == []
    assert_settled(recorder)


@pytest.mark.parametrize("where", ["end", "turn_end", "agent_end"])
async def test_T3_an_update_from_a_subscriber_behind_the_end_is_dropped(where: str) -> None:
    """Within the delivery of the very end, or of a later event, an update is too late already and waits for nobody."""
    kept: list[ToolContext] = []

    @tool
    async def leave(ctx: ToolContext) -> str:
        """Keep the context."""
        kept.append(ctx)
        return "done"

    agent, recorder = make_agent(ScriptedProvider(asks(call("a", "leave")), DONE), tools=[leave])
    type = "tool_execution_end" if where == "end" else where
    on(agent, type, lambda event: kept[0].update("late"))
    assert (await agent.prompt("go")).outcome == "completed"
    assert recorder.lines_of("tool_execution_update") == []
    assert_settled(recorder)


async def test_T3_an_update_from_a_system_task_behind_the_end_is_dropped() -> None:
    """Wherever it comes from: a timer that Trio itself runs is no exception."""
    over = trio.Event()

    @tool
    async def leave(ctx: ToolContext) -> str:
        """Start a timer."""

        async def timer() -> None:
            for _ in range(5):
                await trio.sleep(1)
                await ctx.update("tick")
            over.set()

        trio.lowlevel.spawn_system_task(timer)
        await trio.sleep(2.5)
        return "done"

    recorder = await run(call("a", "leave"), call("b", "nap", {"seconds": 10}), tools=[leave, nap])
    await over.wait()
    assert recorder.lines_of("tool_execution_update") == ['tool_execution_update a "tick"'] * 2
    ends = [at for at, line in enumerate(recorder.lines) if line.startswith("tool_execution_end a")]
    assert max(at for at, line in enumerate(recorder.lines) if "update a" in line) < ends[0]


@pytest.mark.real_time
async def test_T3_an_update_from_a_thread_behind_the_end_is_dropped() -> None:
    """A thread that a sync tool started and that reports when the call is over is not heard, and gets no exception."""
    go, reported = threading.Event(), threading.Event()

    @tool
    def leave(ctx: ToolContext) -> str:
        """Start a thread."""
        ctx.update("in time")

        def later() -> None:
            go.wait(10)
            ctx.update("late")
            reported.set()

        threading.Thread(target=later, daemon=True).start()
        return "done"

    provider = ScriptedProvider(asks(call("a", "leave")), DONE)
    agent, recorder = make_agent(provider, tools=[leave])
    on(agent, "tool_execution_end", lambda event: go.set())

    async def wait_for_the_thread(event: Event) -> None:
        with trio.fail_after(10):
            while not reported.is_set():
                await trio.sleep(0.01)

    on(agent, "turn_end", wait_for_the_thread)
    result = await agent.prompt("go")
    result.raise_for_error()
    assert recorder.lines_of("tool_execution_update") == ['tool_execution_update a "in time"']
    assert_settled(recorder)


# -- T4 ---------------------------------------------------------------------------------------------------------------


async def test_T4_results_come_behind_the_last_end_in_call_order() -> None:
    """After the last end, one tool-result message per call, in the order of the calls, all of it before `turn_end`."""
    recorder = await run(
        call("a", "nap", {"seconds": 3}), call("b", "nope"), call("c", "nap", {"seconds": 1}), tools=[nap]
    )
    behind = recorder.lines[recorder.lines.index('tool_execution_end a ok "slept 3"') + 1 :]
    assert [line.split(' "')[0] for line in behind[:7]] == [
        "message_start tool_result a",
        "message_end tool_result a ok",
        "message_start tool_result b",
        "message_end tool_result b error",
        "message_start tool_result c",
        "message_end tool_result c ok",
        "turn_end 1",
    ]


async def test_T4_the_message_is_the_one_that_the_end_event_carried() -> None:
    """The very same message: in the end event, in both message events, in history, in `turn_end`."""
    recorder = await run(*[call(f"c{n}", "nap", {"seconds": n}) for n in (2, 1)], tools=[nap])
    carried = {e.tool_call_id: e.result for e in recorder.events if e.type == "tool_execution_end"}
    told = [e.message for e in recorder.events if e.type == "message_end" and e.message.role == "tool_result"]
    [turn_end] = [e for e in recorder.events if isinstance(e, TurnEnd) and e.turn == 1]
    in_order = [carried["c2"], carried["c1"]]
    for found in (told, list(turn_end.tool_results), list(results(recorder).values())):
        assert len(found) == 2
        assert all(one is other for one, other in zip(found, in_order, strict=True))


# -- T5 ---------------------------------------------------------------------------------------------------------------


@tool
async def broken(how: str) -> object:
    """Fail in one way or another."""
    if how == "group":
        async with trio.open_nursery() as nursery:
            nursery.start_soon(failing, "one")
            nursery.start_soon(failing, "two")
    if how == "raises":
        raise RuntimeError("the disk is on fire")
    if how == "assert":
        raise AssertionError
    return object()


@tool(writes=lambda arguments: [str(1 // 0)])
async def nowhere() -> str:
    """Fail to say which files it writes."""
    raise AssertionError("it ran")


async def failing(what: str) -> None:
    raise ValueError(what)


@tool(timeout=5)
async def endless() -> str:
    """Take too long."""
    await trio.sleep_forever()
    raise AssertionError("nobody wakes it")


def guard(call: ToolCall) -> Block | None:
    if call.id == "blocked":
        return Block("not on a Sunday")
    if call.id == "answers nonsense":
        return "yes"  # type: ignore[return-value]
    if call.id == "raises in the hook":
        raise LookupError("no such permission")
    return None


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (call("a", "no_such", {"v": "x"}), ['There is no tool called "no_such"', "echo", "broken", "endless"]),
        (call("a", "echo", {"v": 3}), ["echo", "$.v", "str"]),
        (call("a", "echo", {}), ["echo", "v", "missing"]),
        (call("a", "echo", {"v": "x", "w": 1}), ["echo", "w"]),
        (call("a", "echo", '{"v": "x'), ["echo", "JSON"]),
        (call("a", "echo", "[1]"), ["echo", "object"]),
        (call("blocked", "echo", {"v": "x"}), ["echo", "blocked", "not on a Sunday"]),
        (call("raises in the hook", "echo", {"v": "x"}), ["echo", "blocked", "LookupError", "no such permission"]),
        (call("answers nonsense", "echo", {"v": "x"}), ["echo", "blocked", "TypeError", "str"]),
        (call("a", "nowhere"), ["nowhere", "ZeroDivisionError"]),
        (call("a", "endless"), ["endless", "timed out after 5 s"]),
        (call("a", "broken", {"how": "raises"}), ["broken", "RuntimeError", "the disk is on fire"]),
        (call("a", "broken", {"how": "assert"}), ["broken", "AssertionError"]),
        (call("a", "broken", {"how": "group"}), ["broken", "ValueError: one", "ValueError: two"]),
        (call("a", "broken", {"how": "unusable"}), ["broken", "object"]),
    ],
)
async def test_T5_what_goes_wrong_with_a_call_is_an_error_result_that_says_so(bad: Step, words: list[str]) -> None:
    """Each is an error result in words the model can act on; none ends the run or touches a sibling."""
    recorder = await run(
        call("s1", "echo", {"v": "first"}),
        bad,
        call("s2", "nap", {"seconds": 60}),
        tools=[echo, broken, endless, nap, nowhere],
        hooks=Hooks(before_tool_call=guard),
    )
    found = results(recorder)
    assert (found["s1"].text, found["s1"].is_error) == ("first", False)
    assert (found["s2"].text, found["s2"].is_error) == ("slept 60", False)
    [result] = [found[id] for id in found if id not in ("s1", "s2")]
    assert result.is_error
    for word in words:
        assert word in result.text


async def test_T5_a_tool_may_say_itself_that_it_failed() -> None:
    """A result that a tool marks as an error is one, and keeps its text and details."""

    @tool
    async def careful() -> ToolResult:
        """Fail politely."""
        return ToolResult("nothing found", details={"looked": 3}, is_error=True)

    recorder = await run(call("a", "careful"), tools=[careful])
    result = results(recorder)["a"]
    assert (result.text, result.is_error, result.details) == ("nothing found", True, {"looked": 3})


async def test_T5_a_timeout_covers_the_body_and_not_the_wait_for_a_slot() -> None:
    """The time-out covers the body: a call that waited longer than that for its turn is not timed out."""

    @tool(timeout=2)
    async def quick() -> str:
        """Take a second."""
        await trio.sleep(1)
        return "ok"

    recorder = await run(*[call(f"c{n}", "quick") for n in range(5)], tools=[quick], max_parallel_tools=1)
    assert [result.text for result in results(recorder).values()] == ["ok"] * 5


async def test_T5_a_timeout_quotes_the_last_update() -> None:
    """What the tool had reported before its time was up is not lost to the model."""

    @tool(timeout=5)
    async def slow(ctx: ToolContext) -> str:
        """Report, then hang."""
        await ctx.update("3 of 9 done")
        await trio.sleep_forever()
        raise AssertionError("nobody wakes it")

    recorder = await run(call("a", "slow"), tools=[slow])
    assert "timed out after 5 s" in results(recorder)["a"].text
    assert "3 of 9 done" in results(recorder)["a"].text


# -- T6 ---------------------------------------------------------------------------------------------------------------


async def test_T6_calls_of_a_message_that_ended_with_length_are_not_executed() -> None:
    """Each gets start and end, no hook, an error result that says why, and the run goes on."""
    asked: list[str] = []
    recorder = await run(
        call("a", "echo", {"v": "x"}),
        call("b", "echo", '{"v": "cut o'),
        tools=[echo],
        reason="length",
        hooks=Hooks(before_tool_call=lambda call: asked.append(call.id), after_tool_result=asked.append),
    )
    assert asked == []
    assert executions(recorder.events) == ["start a", "end a", "start b", "end b"]
    for result in results(recorder).values():
        assert result.is_error
        assert "limit" in result.text
        assert "cut off" in result.text


@pytest.mark.parametrize("how", ["error", "aborted"])
async def test_T6_calls_of_a_message_that_ended_error_or_aborted_stay_in_it_and_nothing_else(how: str) -> None:
    """They stay in the message, get no tool events and no results, and the default `convert_to_llm` leaves them out."""
    ending = stall() if how == "aborted" else ProviderError("network", "gone")
    provider = ScriptedProvider([text("I look"), call("a", "echo", {"v": "x"}), ending], DONE)
    agent, recorder = make_agent(provider, tools=[echo], retry=RetryPolicy(max_attempts=1))
    if how == "aborted":
        on(agent, "message_update", lambda event: agent.abort(), nth=3)
    await agent.prompt("go")
    assert said(agent.state.messages)[1].startswith(f'assistant {how} "I look" a:echo !')
    assert not [type for type in recorder.types if type.startswith("tool")]
    assert results(recorder) == {}
    await agent.prompt("and now?")
    sent = provider.requests[1].messages
    assert [m.tool_calls for m in sent if isinstance(m, AssistantMessage)] == [()]
    assert said(sent)[0] == 'user "go"'
    assert said(sent)[1].startswith(f'assistant {how} "I look"')
    assert_paired(sent)
    assert_settled(recorder)


async def test_T6_calls_under_stop_run() -> None:
    """Calls of a message whose end marker said `stop` run all the same, and the run goes on."""
    recorder = await run(call("a", "echo", {"v": "x"}), tools=[echo], reason="stop")
    assert results(recorder)["a"].text == "x"
    assert recorder.events[-1].turns == 2  # type: ignore[union-attr]


async def test_T6_tool_use_without_calls_ends_the_run() -> None:
    """A message that says `tool_use` and asks for nothing is the last one."""
    provider = ScriptedProvider([text("hm"), finish("tool_use")])
    agent, recorder = make_agent(provider, tools=[echo])
    result = await agent.prompt("go")
    assert (result.outcome, result.reason, len(provider.requests)) == ("completed", None, 1)
    assert_settled(recorder)


# -- T7 ---------------------------------------------------------------------------------------------------------------


def ids_everywhere(recorder: Recorder) -> dict[str, list[str]]:
    """The call ids, wherever they are told, in order of appearance."""
    agent, events = recorder.agent, recorder.events
    deltas = [e.delta for e in events if isinstance(e, MessageUpdate)]
    return {
        "updates": list(dict.fromkeys([d.id for d in deltas if isinstance(d, ToolCallFragment)])),
        "calls": [c.id for m in agent.state.messages if isinstance(m, AssistantMessage) for c in m.tool_calls],
        "starts": [e.tool_call_id for e in events if e.type == "tool_execution_start"],
        "results": [m.tool_call_id for m in agent.state.messages if isinstance(m, ToolResultMessage)],
    }


@pytest.mark.parametrize("id", ["same", "", None, " "])
async def test_T7_missing_empty_or_repeated_ids_are_replaced_before_anyone_sees_them(id: str | None) -> None:
    """Updates, events, results and requests all have the same ids, unique and not empty, also across turns and runs."""
    replies = [asks(call(id, "echo", {"v": "x"}), call(id, "echo", {"v": "y"})) for _ in range(2)]
    provider = ScriptedProvider(*replies, DONE, *replies[:1], DONE)
    agent, recorder = make_agent(provider, tools=[echo])
    await agent.prompt("go")
    await agent.prompt("again")
    told = ids_everywhere(recorder)
    assert len(told["calls"]) == 6 == len(set(told["calls"]))
    assert all(made.strip() for made in told["calls"])
    assert told["updates"] == told["calls"] == told["starts"] == told["results"]
    assert [result.text for result in results(recorder).values()] == ["x", "y"] * 3
    for request in provider.requests:
        assert_paired(request.messages)
        sent = [c.id for m in request.messages if isinstance(m, AssistantMessage) for c in m.tool_calls]
        assert sent == told["calls"][: len(sent)]
    assert_settled(recorder)


async def test_T7_ids_are_unique_within_a_history_that_was_given() -> None:
    """A call id that the given history has already is replaced; another one stays as it came."""
    history = [
        UserMessage("old"),
        AssistantMessage([ToolCall("c1", "echo", {"v": "x"})], "tool_use"),
        ToolResultMessage("c1", "echo", "x"),
        AssistantMessage("ok"),
    ]
    provider = ScriptedProvider(asks(call("c1", "echo", {"v": "y"}), call("c2", "echo", {"v": "z"})), DONE)
    agent, recorder = make_agent(provider, tools=[echo], messages=history)
    await agent.prompt("go")
    old, new, other = ids_everywhere(recorder)["calls"]
    assert old == "c1" != new
    assert other == "c2"
    assert_settled(recorder)


async def test_T7_an_id_of_an_answer_that_was_cut_off_is_taken() -> None:
    """Calls of an aborted answer stay in history, and so do their ids: the next call with one of them gets another."""
    provider = ScriptedProvider([call("c1", "echo", {"v": "x"}), stall()], asks(call("c1", "echo", {"v": "y"})), DONE)
    agent, recorder = make_agent(provider, tools=[echo])
    on(agent, "message_update", lambda event: agent.abort())
    await agent.prompt("go")
    await agent.prompt("again")
    cut, whole = ids_everywhere(recorder)["calls"]
    assert cut == "c1" != whole
    assert list(results(recorder)) == [whole]
    assert_settled(recorder)


async def test_T7_the_id_of_an_attempt_that_left_history_is_free_again() -> None:
    """Ids are unique within the history: what a retried attempt had called a call is not in it any more."""
    provider = ScriptedProvider(
        [call("c1", "echo", {"v": "x"}), ProviderError("overloaded", "busy")],
        asks(call("c1", "echo", {"v": "x"})),
        DONE,
    )
    agent, recorder = make_agent(provider, tools=[echo], retry=RetryPolicy(base_delay=1, jitter=False))
    await agent.prompt("go")
    assert list(results(recorder)) == ["c1"]
    assert_settled(recorder)


# -- T8, at the level of agents ---------------------------------------------------------------------------------------


class Writers:
    """Tools that write real files slowly, and a book of who was in which file at once."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.inside: dict[tuple[int, int], int] = {}
        self.most = 0

    def append_tool(self, *, seconds: float = 1.0, serial: bool = False) -> Tool:
        @tool(writes=("path",), serial=serial)
        async def append(path: str, word: str) -> str:
            """Read a file, think, and write it back with a word more."""
            self.log.append(f"begin {word}")
            old = Path(path).read_text() if Path(path).exists() else ""
            await trio.sleep(seconds)
            Path(path).write_text(f"{old}{word} ")
            self.log.append(f"end {word}")
            return old

        return append


def one_by_one(log: list[str], words: str) -> bool:
    return log == [f"{what} {word}" for word in words for what in ("begin", "end")]


def spelled(tmp_path: Path, how: str) -> tuple[str, str]:
    """Two spellings of one file below `tmp_path`, which is the working directory."""
    (tmp_path / "dir" / "sub").mkdir(parents=True)
    target = tmp_path / "dir" / "notes.txt"
    if how != "not there yet":
        target.write_text("")
    if how == "symbolic link":
        (tmp_path / "link.txt").symlink_to(target)
        return str(target), str(tmp_path / "link.txt")
    if how == "linked directory":
        (tmp_path / "linked").symlink_to(tmp_path / "dir")
        return str(target), str(tmp_path / "linked" / "notes.txt")
    if how == "hard link":
        os.link(target, tmp_path / "hard.txt")
        return str(target), str(tmp_path / "hard.txt")
    if how == "letter case":
        return str(target), str(tmp_path / "dir" / "NOTES.txt")
    relative = {
        "relative": "dir/notes.txt",
        "through ..": "dir/sub/../notes.txt",
        "with a dot": "./dir/./notes.txt",
        "not there yet": "dir//notes.txt",
    }
    return str(target), relative[how]


@pytest.mark.parametrize(
    "how",
    [
        "relative",
        "through ..",
        "with a dot",
        "symbolic link",
        "linked directory",
        "hard link",
        "letter case",
        "not there yet",
    ],
)
async def test_T8_two_calls_that_write_the_same_file_do_not_overlap_however_it_is_spelled(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same file means same file; the calls take effect in the order of their message."""
    monkeypatch.chdir(tmp_path)
    one, other = spelled(tmp_path, how)
    writers = Writers()
    locks = FileLocks(ignores_case=lambda directory, status: True) if how == "letter case" else FileLocks()
    paths = {"a": one, "b": other, "c": one}
    recorder = await run(
        *[call(word, "append", {"path": path, "word": word}) for word, path in paths.items()],
        tools=[writers.append_tool()],
        file_locks=locks,
    )
    assert one_by_one(writers.log, "abc")
    if how != "letter case":  # on this disk these are two files
        assert Path(one).read_text() == "a b c "
    assert locks.statistics().keys == 0
    assert [result.is_error for result in results(recorder).values()] == [False] * 3


async def test_T8_the_file_of_replaced_arguments_is_the_one_that_counts(tmp_path: Path) -> None:
    """A hook that sends a call to another file sends its lock there as well; a default path counts like a given one."""
    writers = Writers()
    write: Any = writers.append_tool()
    x = str(tmp_path / "x")

    @tool(writes=("path",))
    async def default(word: str, path: str = x) -> str:
        """Write to where it always writes."""
        return str(await write(path, word))

    def redirect(call: ToolCall) -> Replace | None:
        return Replace({"path": x, "word": "b"}) if call.id == "b" else None

    steps = [
        call("a", "append", {"path": x, "word": "a"}),
        call("b", "append", {"path": str(tmp_path / "y"), "word": "b"}),
        call("c", "default", {"word": "c"}),
    ]
    await run(*steps, tools=[writers.append_tool(), default], hooks=Hooks(before_tool_call=redirect))
    assert one_by_one(writers.log, "abc")
    assert (tmp_path / "x").read_text() == "a b c "


async def test_T8_calls_that_write_different_files_run_in_parallel(tmp_path: Path) -> None:
    """The lock is one for each file, not one for all."""
    writers = Writers()
    await run(
        *[call(word, "append", {"path": str(tmp_path / word), "word": word}) for word in "abc"],
        tools=[writers.append_tool()],
    )
    assert sorted(writers.log[:3]) == ["begin a", "begin b", "begin c"]


@pytest.mark.parametrize("seconds", [(3, 2, 1), (1, 2, 3), (0, 0, 0)])
async def test_T8_they_take_effect_in_the_order_of_their_message(tmp_path: Path, seconds: tuple[float, ...]) -> None:
    """However long each takes, the file holds what running the calls one by one would have made of it."""
    path = tmp_path / "x.txt"

    @tool(writes=("path",))
    async def append(path: str, word: str, seconds: float) -> str:
        """Append a word."""
        old = Path(path).read_text() if Path(path).exists() else ""
        await trio.sleep(seconds)
        Path(path).write_text(old + word)
        return old

    await run(
        *[
            call(word, "append", {"path": str(path), "word": word, "seconds": time})
            for word, time in zip("abc", seconds, strict=True)
        ],
        tools=[append],
    )
    assert path.read_text() == "abc"


async def test_T8_several_files_for_one_call_cannot_deadlock(tmp_path: Path) -> None:
    """Calls that name the same files in opposite orders, one twice or under an alias, all come to their end."""
    moves: list[tuple[str, str]] = []

    @tool(writes=("old", "new"))
    async def move(old: str, new: str) -> str:
        """Move a file."""
        await trio.sleep(1)
        moves.append((os.path.basename(old), os.path.basename(new)))
        return "moved"

    a, b, c = (str(tmp_path / name) for name in "abc")
    pairs = [(a, b), (b, a), (b, c), (c, a), (a, a), (a, f"{tmp_path}/./a")]
    recorder = await run(*[call(f"c{n}", "move", {"old": x, "new": y}) for n, (x, y) in enumerate(pairs)], tools=[move])
    assert [result.text for result in results(recorder).values()] == ["moved"] * 6
    assert moves == [(os.path.basename(x), os.path.basename(y)) for x, y in pairs]


async def test_T8_the_locks_hold_across_all_agents_of_one_trio_run(tmp_path: Path) -> None:
    """Two agents at work at the same time do not overlap in one file."""
    writers = Writers()
    path = str(tmp_path / "x.txt")
    agents = [
        make_agent(
            ScriptedProvider(asks(call("c1", "append", {"path": path, "word": word})), DONE),
            tools=[writers.append_tool(seconds=10)],
        )
        for word in "ab"
    ]
    async with trio.open_nursery() as nursery:
        for agent, _ in agents:
            nursery.start_soon(agent.prompt, "go")
    assert writers.log in (["begin a", "end a", "begin b", "end b"], ["begin b", "end b", "begin a", "end a"])
    for _, recorder in agents:
        assert_settled(recorder)


async def test_T8_a_slot_is_taken_only_after_the_locks(tmp_path: Path) -> None:
    """A call that waits for a file keeps nobody from running, not even with room for one call only."""
    writers = Writers()
    path = str(tmp_path / "x.txt")
    holder, holding = make_agent(
        ScriptedProvider(asks(call("c1", "append", {"path": path, "word": "a"})), DONE),
        tools=[writers.append_tool(seconds=100)],
    )
    provider = ScriptedProvider(
        asks(call("w", "append", {"path": path, "word": "b"}), call("n", "nap", {"seconds": 1})), DONE
    )
    waiter, waiting = make_agent(provider, tools=[writers.append_tool(), nap], max_parallel_tools=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(holder.prompt, "go")
        await trio.sleep(1)
        nursery.start_soon(waiter.prompt, "go")
        await trio.sleep(5)
        assert waiting.lines_of("tool_execution_end") == ['tool_execution_end n ok "slept 1"']
    assert one_by_one(writers.log, "ab")
    assert_settled(holding)
    assert_settled(waiting)


async def test_T8_a_call_that_waits_for_a_file_at_run_time_gives_its_slot_to_others(tmp_path: Path) -> None:
    """With room for one call: one asks for a file while it runs, which another one holds that waits for that room."""
    path = str(tmp_path / "x")
    writers = Writers()

    @tool
    async def late(path: str, ctx: ToolContext) -> str:
        """Lock a file late."""
        await trio.sleep(1)
        async with ctx.lock_files(path):
            return "locked"

    steps = [call("a", "late", {"path": path}), call("b", "append", {"path": path, "word": "b"})]
    began = trio.current_time()
    recorder = await run(*steps, tools=[late, writers.append_tool()], max_parallel_tools=1)
    assert trio.current_time() - began < 10
    assert [result.is_error for result in results(recorder).values()] == [False, False]


@pytest.mark.real_time
async def test_T8_threads_that_wait_for_a_file_do_not_keep_its_holder_from_a_thread(tmp_path: Path) -> None:
    """As many threads as there are wait for a file whose holder waits for a thread: all of them come to their end."""

    @tool
    def late(path: str, ctx: ToolContext) -> str:
        """Lock a file late."""
        time.sleep(0.02)
        with ctx.lock_files(path):
            return "locked"

    @tool(writes=("path",))
    def declared(path: str) -> str:
        """Write a file."""
        return "written"

    path = {"path": str(tmp_path / "x")}
    steps = [*[call(f"c{n}", "late", path) for n in range(45)], call("d", "declared", path)]
    provider = ScriptedProvider(asks(*steps), DONE)
    agent, recorder = make_agent(provider, tools=[late, declared])
    with trio.move_on_after(5) as scope:
        await agent.prompt("go")
    assert not scope.cancelled_caught
    assert {result.text for result in results(recorder).values()} == {"locked", "written"}
    assert_settled(recorder)


async def test_T8_the_wait_for_a_lock_is_not_counted_by_the_timeout(tmp_path: Path) -> None:
    """The time-out covers the body, not the wait for locks."""

    @tool(writes=("path",), timeout=3)
    async def write(path: str) -> str:
        """Take two seconds."""
        await trio.sleep(2)
        return "ok"

    recorder = await run(*[call(f"c{n}", "write", {"path": str(tmp_path / "x")}) for n in range(4)], tools=[write])
    assert [result.text for result in results(recorder).values()] == ["ok"] * 4


async def test_T8_a_ticket_that_must_be_checked_again_keeps_its_place(tmp_path: Path) -> None:
    """A call whose link was turned to another file while it waited gets that file before those who came later."""
    x, y, link = tmp_path / "x", tmp_path / "y", tmp_path / "link"
    for file in (x, y):
        file.write_text("")
    link.symlink_to(x)
    gates = {word: trio.Event() for word in "xybc"}
    log: list[str] = []

    @tool(writes=("path",))
    async def write(path: str, word: str) -> str:
        """Write when the test says so."""
        log.append(f"begin {word}")
        await gates[word].wait()
        log.append(f"end {word}")
        return "ok"

    steps = [
        call(word, "write", {"path": str(path), "word": word})
        for word, path in (("x", x), ("y", y), ("b", link), ("c", y))
    ]
    provider = ScriptedProvider(asks(*steps), DONE)
    agent, recorder = make_agent(provider, tools=[write])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.testing.wait_all_tasks_blocked()
        link.unlink()
        link.symlink_to(y)
        for word in "xybc":
            gates[word].set()
            await trio.testing.wait_all_tasks_blocked()
    assert sorted(log[:2]) == ["begin x", "begin y"]
    assert log[2:] == ["end x", "end y", "begin b", "end b", "begin c", "end c"]
    assert_settled(recorder)


async def test_T8_tickets_are_taken_in_call_order_by_the_runs_task(tmp_path: Path) -> None:
    """Although child tasks begin in any order, the first call of the message is the first in line: many times over."""
    path = str(tmp_path / "x")
    for _ in range(20):
        writers = Writers()
        await run(
            *[call(word, "append", {"path": path, "word": word}) for word in "abcd"],
            tools=[writers.append_tool(seconds=0)],
        )
        assert one_by_one(writers.log, "abcd")


async def test_T8_a_serial_writer_waits_for_its_turn_and_for_its_file(tmp_path: Path) -> None:
    """Barrier and lock hold together: a serial call behind writers of its file runs when they have ended."""
    writers = Writers()
    path = str(tmp_path / "x")
    alone = tool(name="alone", serial=True, writes=("path",))(writers.append_tool().__wrapped__)  # type: ignore[attr-defined]
    await run(
        call("a", "append", {"path": path, "word": "a"}),
        call("b", "alone", {"path": path, "word": "b"}),
        call("c", "append", {"path": path, "word": "c"}),
        tools=[writers.append_tool(), alone],
    )
    assert one_by_one(writers.log, "abc")


@tool
async def lock_and_write(path: str, word: str, ctx: ToolContext) -> str:
    """Lock a file that is known only now, and append to it."""
    async with ctx.lock_files(path):
        old = Path(path).read_text() if Path(path).exists() else ""
        await trio.sleep(1)
        Path(path).write_text(f"{old}{word} ")
    return "ok"


async def test_T8_locks_taken_at_run_time_promise_exclusion(tmp_path: Path) -> None:
    """Calls that lock one file while they run do not lose each other's work, whatever the order."""
    path = tmp_path / "x"
    await run(
        *[call(word, "lock_and_write", {"path": str(path), "word": word}) for word in "abc"], tools=[lock_and_write]
    )
    assert sorted(path.read_text().split()) == ["a", "b", "c"]


@pytest.mark.real_time
async def test_T8_sync_tools_hold_the_same_locks(tmp_path: Path) -> None:
    """A function in a thread excludes other writers too, by its declared files and by those it locks while it runs."""
    path = tmp_path / "x"

    @tool(writes=("path",))
    def declared(path: str, word: str) -> str:
        """Append a word."""
        old = Path(path).read_text() if Path(path).exists() else ""
        time.sleep(0.02)
        Path(path).write_text(f"{old}{word} ")
        return "ok"

    @tool
    def taken(path: str, word: str, ctx: ToolContext) -> str:
        """Lock a file, then append a word."""
        with ctx.lock_files(path):
            return declared(path, word)

    names = {"a": "declared", "b": "taken", "c": "declared", "d": "taken"}
    recorder = await run(
        *[call(word, name, {"path": str(path), "word": word}) for word, name in names.items()], tools=[declared, taken]
    )
    assert sorted(path.read_text().split()) == ["a", "b", "c", "d"]
    assert [result.text for result in results(recorder).values()] == ["ok"] * 4


@pytest.mark.parametrize("first", ["declared", "taken"])
async def test_T8_locks_taken_at_run_time_are_refused_to_a_call_that_holds_one(tmp_path: Path, first: str) -> None:
    """A call that holds files already cannot take more: it gets an error that says what to do instead, at once."""

    async def greedy(path: str, ctx: ToolContext) -> str:
        """Lock one file after the other."""
        if first == "declared":
            async with ctx.lock_files(tmp_path / "other"):
                raise AssertionError("it holds both")
        async with ctx.lock_files(path), ctx.lock_files(tmp_path / "other"):
            raise AssertionError("it holds both")

    made = tool(writes=("path",))(greedy) if first == "declared" else tool(greedy)
    recorder = await run(call("a", "greedy", {"path": str(tmp_path / "x")}), tools=[made])
    result = results(recorder)["a"]
    assert result.is_error
    assert "lock all of them in one call of lock_files()" in result.text


async def test_T8_one_lock_after_the_other_is_no_nesting(tmp_path: Path) -> None:
    """A call that has given a lock back may take another one."""

    @tool
    async def in_turn(ctx: ToolContext) -> str:
        """Lock one file, then another."""
        async with ctx.lock_files(tmp_path / "x"):
            pass
        async with ctx.lock_files(tmp_path / "y", tmp_path / "z"):
            return f"holds {len(ctx.state.pending_file_writes)}"

    recorder = await run(call("a", "in_turn"), tools=[in_turn])
    assert results(recorder)["a"].text == "holds 2"


async def test_T8_a_lock_that_an_ancestor_holds_is_an_error_and_no_wait(tmp_path: Path) -> None:
    """An agent inside a tool that writes the tool's own file gets an error result instead of waiting for itself."""
    path = str(tmp_path / "x")
    writers = Writers()
    inner_recorders: list[Recorder] = []

    @tool(writes=("path",))
    async def delegate(path: str) -> str:
        """Let another agent do it."""
        provider = ScriptedProvider(asks(call("i1", "append", {"path": path, "word": "inner"})), DONE)
        inner, recorder = make_agent(provider, tools=[writers.append_tool()])
        inner_recorders.append(recorder)
        return (await inner.prompt("do it")).text

    recorder = await run(call("a", "delegate", {"path": path}), tools=[delegate])
    assert results(recorder)["a"].text == "done"
    [inner] = inner_recorders
    assert results(inner)["i1"].is_error
    assert path in results(inner)["i1"].text
    assert writers.log == []
    assert_settled(inner)


async def test_T8_an_agent_inside_a_tool_may_write_other_files(tmp_path: Path) -> None:
    """The ancestor's lock is on its own file only."""
    writers = Writers()

    @tool(writes=("path",))
    async def delegate(path: str) -> str:
        """Let another agent do it, in another file."""
        provider = ScriptedProvider(asks(call("i1", "append", {"path": f"{path}.log", "word": "inner"})), DONE)
        inner, _ = make_agent(provider, tools=[writers.append_tool()])
        return (await inner.prompt("do it")).text

    recorder = await run(call("a", "delegate", {"path": str(tmp_path / "x")}), tools=[delegate])
    assert one_by_one(writers.log, ["inner"])  # type: ignore[arg-type]
    assert not results(recorder)["a"].is_error


@pytest.mark.real_time
async def test_T8_a_thread_left_behind_keeps_its_lock_until_it_ends(tmp_path: Path) -> None:
    """A sync tool that was timed out may still write: nobody else gets its file before its thread is over."""
    leave = threading.Event()
    log: list[str] = []

    @tool(writes=("path",), timeout=0.05)
    def stubborn(path: str) -> str:
        """Cannot be stopped."""
        leave.wait(10)
        log.append("thread over")
        return "late"

    @tool(writes=("path",))
    async def write(path: str) -> str:
        """Write."""
        log.append("write")
        return "written"

    locks = FileLocks()
    path = str(tmp_path / "x")
    provider = ScriptedProvider(asks(call("a", "stubborn", {"path": path}), call("b", "write", {"path": path})), DONE)
    agent, recorder = make_agent(provider, tools=[stubborn, write], file_locks=locks)

    async def later(event: Any) -> None:
        if event.type == "tool_execution_end" and event.tool_call_id == "a":
            await trio.sleep(0.1)
            assert log == []
            assert locks.statistics().held == 1
            leave.set()

    agent.subscribe(later)
    result = await agent.prompt("go")
    result.raise_for_error()
    assert log == ["thread over", "write"]
    assert "timed out" in results(recorder)["a"].text
    assert results(recorder)["b"].text == "written"
    assert_settled(recorder)


async def test_T8_a_call_that_is_cancelled_while_it_waits_leaves_the_line(tmp_path: Path) -> None:
    """An aborted run's calls give their places back, and the next run gets the file."""
    locks = FileLocks()
    path = str(tmp_path / "x")

    @tool(writes=("path",))
    async def hold(path: str) -> str:
        """Hold the file."""
        await trio.sleep_forever()
        raise AssertionError("nobody wakes it")

    writers = Writers()
    provider = ScriptedProvider(
        asks(call("a", "hold", {"path": path}), call("b", "append", {"path": path, "word": "b"})),
        asks(call("c", "append", {"path": path, "word": "c"})),
        DONE,
    )
    agent, recorder = make_agent(provider, tools=[hold, writers.append_tool()], file_locks=locks)
    with trio.move_on_after(1):
        await agent.prompt("go")
    assert locks.statistics().keys == 0
    await agent.prompt("again")
    assert one_by_one(writers.log, "c")
    assert_settled(recorder)


@pytest.mark.parametrize("path", ["", "a\0b"])
async def test_T8_a_path_that_can_name_no_file_is_an_error_result(path: str) -> None:
    """What is no path is told to the model in words, and the run goes on."""
    writers = Writers()
    recorder = await run(call("a", "append", {"path": path, "word": "a"}), tools=[writers.append_tool()])
    result = results(recorder)["a"]
    assert result.is_error
    assert "path" in result.text
    assert writers.log == []


async def test_T8_locks_are_given_back_before_the_end_is_told(tmp_path: Path) -> None:
    """A slow subscriber of one call's end does not hold up the next writer of the file."""
    writers = Writers()
    path = str(tmp_path / "x")
    provider = ScriptedProvider(asks(*[call(word, "append", {"path": path, "word": word}) for word in "ab"]), DONE)
    agent, recorder = make_agent(provider, tools=[writers.append_tool()])

    async def slow(event: Event) -> None:
        if event.type == "tool_execution_end":
            await trio.sleep(100)
            assert "end b" in writers.log

    agent.subscribe(slow)
    assert (await agent.prompt("go")).outcome == "completed"
    assert_settled(recorder)
