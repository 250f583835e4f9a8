"""One run that tells every kind of event, so that a test can do something at each of them.

Here live the tour, what it says line by line, and the shortest lawful way from each of its events to the end, as the
specification has it; a kernel that goes another way fails the tests that use it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio
from scenes import Recorder, assert_paired

from trio_agent import (
    Agent,
    AssistantMessage,
    Compaction,
    Event,
    Hooks,
    Message,
    ModelRequest,
    ProviderError,
    RetryPolicy,
    Send,
    ToolContext,
    UserMessage,
    project,
    tool,
)
from trio_agent.testing import ScriptedProvider, call, do, finish, render, text, thinking

TOUR = [
    "agent_start",
    "turn_start 1",
    "message_start user",
    'message_end user "go"',
    "message_start assistant",
    'message_update "he"',
    'message_end assistant error "he" !overloaded: busy',
    "retry_start 1/4 overloaded",
    "retry_end 1 resumed",
    "message_start assistant",
    'message_update thinking "hm"',
    'message_update "hel"',
    'message_update "lo"',
    'message_update call c1 work ""',
    'message_update call c1 work "{\\"n\\":1}"',
    'message_update call c2 rest ""',
    'message_update call c2 rest "{}"',
    'message_end assistant tool_use thinking "hm" "hello" c1:work c2:rest',
    'tool_execution_start c1 work {"n":1}',
    "tool_execution_start c2 rest {}",
    'tool_execution_update c1 "half"',
    'tool_execution_end c1 ok "worked"',
    'tool_execution_end c2 ok "rested"',
    "message_start tool_result c1",
    'message_end tool_result c1 ok "worked"',
    "message_start tool_result c2",
    'message_end tool_result c2 ok "rested"',
    "turn_end 1",
    "turn_start 2",
    "compaction_start threshold",
    "compaction_end compacted",
    "message_start assistant",
    'message_update "done"',
    'message_end assistant stop "done"',
    "turn_end 2",
    "agent_end completed",
]
LAST = len(TOUR) - 1
STREAMED = {
    4: "",
    5: ' "he"',
    9: "",
    10: ' thinking "hm"',
    11: ' thinking "hm" "hel"',
    12: ' thinking "hm" "hello"',
    13: ' thinking "hm" "hello" c1:work',
    14: ' thinking "hm" "hello" c1:work',
    15: ' thinking "hm" "hello" c1:work c2:rest',
    16: ' thinking "hm" "hello" c1:work c2:rest',
    31: "",
    32: ' "done"',
}

# Moments inside each piece of work, in seconds since the start: nothing else happens at the same time.
MOMENTS = {
    "streaming": 0.5,
    "waiting before a retry": 3.0,
    "waiting for the first chunk": 5.5,
    "streaming again": 6.5,
    "two tools": 7.5,
    "two tools, one has reported": 8.5,
    "one tool, one is over": 10.5,
    "compacting": 13.5,
    "waiting for the second answer": 14.5,
    "streaming the last answer": 15.5,
}
# The last event of the tour that has been told by then.
TOLD_BY = dict(zip(MOMENTS, (5, 7, 8, 10, 19, 20, 21, 29, 30, 32), strict=True))

at_each_event = pytest.mark.parametrize(
    "k", range(len(TOUR)), ids=[f"{k}-{line.replace(' ', '_')[:28]}" for k, line in enumerate(TOUR)]
)
# The first of each kind of event, and the standing message with calls.
KINDS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 17, 18, 20, 21, 23, 24, 27, 29, 30, 33, 35]
at_each_kind = pytest.mark.parametrize("k", KINDS, ids=[f"{k}-{TOUR[k].replace(' ', '_')[:28]}" for k in KINDS])
before_the_end = pytest.mark.parametrize(
    "k", range(LAST), ids=[f"{k}-{line.replace(' ', '_')[:28]}" for k, line in enumerate(TOUR[:LAST])]
)
at_each_moment = pytest.mark.parametrize("moment", MOMENTS)


def closing(k: int, word: str) -> list[str]:
    """What still comes after event `k` when the run is cut off there; `word` is `error` or `aborted`."""
    if k == LAST:
        return []
    made = ["message_start assistant", f"message_end assistant {word} !why"]
    end = f"agent_end {word}"
    turn = 1 if k < 28 else 2
    if k <= 3:
        return [*TOUR[k + 1 : 4], *made, "turn_end 1", end]
    if k in STREAMED:
        return [f"message_end assistant {word}{STREAMED[k]} !why", f"turn_end {turn}", end]
    if k in (7, 29):
        cut = "failed" if word == "error" else "aborted"
        return [f"retry_end 1 {cut}" if k == 7 else f"compaction_end {cut}", *made, f"turn_end {turn}", end]
    if k in (8, 28, 30):
        return [*made, f"turn_end {turn}", end]
    rest = _rest_of_tools(k) if 17 <= k <= 26 else []
    turn_end = [] if k in (27, 34) else [f"turn_end {turn}"]
    return [*rest, *turn_end, f"turn_start {turn + 1}", *made, f"turn_end {turn + 1}", end]


def _rest_of_tools(k: int) -> list[str]:
    first = 'ok "worked"' if k >= 21 else "error"
    second = 'ok "rested"' if k >= 22 else "error"
    results = [
        "message_start tool_result c1",
        f"message_end tool_result c1 {first}",
        "message_start tool_result c2",
        f"message_end tool_result c2 {second}",
    ]
    ends = [f"tool_execution_end c1 {first}", f"tool_execution_end c2 {second}"]
    return [*TOUR[k + 1 : 20], *ends[max(0, k - 20) :], *results[max(0, k - 22) :]]


def wordless(line: str) -> str:
    """A line of the closing without the words that say why."""
    if line.startswith("agent_end"):
        return " ".join(line.split()[:2])
    if line.startswith(("tool_execution_end", "message_end tool_result")) and " error " in line:
        return line[: line.index(" error ") + len(" error")]
    return line[: line.index(" !") + 2] + "why" if " !" in line else line


class CompactAtTurnTwo:
    """A policy that compacts once, before the second turn's request, and takes two seconds."""

    def __init__(self, tour: Tour) -> None:
        self.tour = tour
        self.due = True

    def threshold(self, state: Any) -> bool:
        return self.due and state.turn == 2

    async def compact(self, messages: Sequence[Message], reason: str) -> Compaction:
        self.tour.begin("compaction")
        self.due = False
        await self.tour.pause("compaction", 2)
        return Compaction(UserMessage("summary"), 1)


class Tour:
    """The agent, its recorder, and what has begun: requests, tools, hooks, compaction."""

    def __init__(self, **options: Any) -> None:
        self.begun: list[str] = []
        self._failures: dict[str, BaseException] = {}
        self._tripped: defaultdict[str, trio.Event] = defaultdict(trio.Event)
        second = do(lambda: self.pause("provider", 1))
        self.script = ScriptedProvider(
            [text("he"), second, ProviderError("overloaded", "busy")],
            [
                second,
                thinking("hm"),
                second,
                text("hel", "lo"),
                call("c1", "work", {"n": 1}),
                call("c2", "rest"),
                finish("tool_use"),
            ],
            [second, text("done"), second, finish()],
        )

        @tool
        async def work(n: int, context: ToolContext) -> str:
            """Report once."""
            self.begin("tool work")
            await self.pause("tool work", 1)
            await context.update("half")
            await self.pause("tool work", 1)
            return "worked"

        @tool
        async def rest() -> str:
            """Take five seconds."""
            self.begin("tool rest")
            await self.pause("tool rest", 5)
            return "rested"

        given: dict[str, Any] = {
            "tools": [work, rest],
            "hooks": self.hooks(),
            "retry": RetryPolicy(base_delay=4, jitter=False),
            "compaction": CompactAtTurnTwo(self),
            **options,
        }
        self.agent = Agent(self.provide, model="m", **given)
        self.recorder = Recorder(self.agent)

    def begin(self, what: str) -> None:
        self.begun.append(what)
        if what.startswith("hook"):
            self._look(what)

    def trip(self, who: str, exc: BaseException) -> None:
        """From now on `who` raises: in the pause that it is in, or at its next one; a hook when it is called."""
        self._failures[who] = exc
        self._tripped[who].set()

    def _look(self, who: str) -> None:
        if who in self._failures:
            raise self._failures[who]

    async def pause(self, who: str, seconds: float) -> None:
        """Sleep, or raise as soon as `who` is tripped."""
        with trio.move_on_after(seconds):
            await self._tripped[who].wait()
        self._look(who)

    async def provide(self, request: ModelRequest, send: Send, /) -> None:
        self.begin("request")
        await self.script(request, send)

    def hooks(self) -> Hooks:
        async def transform_context(messages: Any) -> Any:
            self.begin("hook transform_context")
            await trio.lowlevel.checkpoint()
            return messages

        def convert_to_llm(messages: Any) -> Any:
            self.begin("hook convert_to_llm")
            return project(messages)

        async def before_tool_call(call: Any, context: Any) -> None:
            self.begin("hook before_tool_call")
            await trio.lowlevel.checkpoint()

        async def after_tool_result(result: Any) -> None:
            self.begin("hook after_tool_result")
            await trio.lowlevel.checkpoint()

        async def should_stop_after_turn(state: Any) -> bool:
            self.begin("hook should_stop_after_turn")
            await trio.lowlevel.checkpoint()
            return False

        return Hooks(
            transform_context=transform_context,
            convert_to_llm=convert_to_llm,
            before_tool_call=before_tool_call,
            after_tool_result=after_tool_result,
            should_stop_after_turn=should_stop_after_turn,
        )

    @property
    def lines(self) -> list[str]:
        return self.recorder.lines

    def cut_lines(self, k: int) -> list[str]:
        """The lines, those behind event `k` without the words that say why."""
        return [line if at <= k else wordless(line) for at, line in enumerate(self.lines)]


class At:
    """A subscriber, sync or async, that does something at one event of the tour, or from it on."""

    def __init__(self, k: int, do: Callable[[], object], *, is_async: bool = False, onwards: bool = False) -> None:
        self.k = k
        self.do = do
        self.is_async = is_async
        self.onwards = onwards
        self.seen: list[str] = []
        self.done = 0

    def __call__(self, event: Event) -> object:
        return self._later(event) if self.is_async else self._now(event)

    async def _later(self, event: Event) -> None:
        await trio.lowlevel.checkpoint()
        value = self._now(event)
        if hasattr(value, "__await__"):
            await value

    def _now(self, event: Event) -> object:
        self.seen.append(render([event])[0])
        at = len(self.seen) - 1
        if at == self.k or (self.onwards and at > self.k):
            self.done += 1
            return self.do()
        return None


def raising(exc: BaseException | type[BaseException]) -> Callable[[], object]:
    def do() -> object:
        raise exc

    return do


def assert_sendable(messages: Sequence[Message]) -> None:
    """F2: each call of a message that stands has its one result directly behind it, in history and as it is sent."""
    assert_paired(
        [m for m in messages if not (isinstance(m, AssistantMessage) and m.stop_reason in ("error", "aborted"))]
    )
    assert_paired(project(messages))


def tasks() -> int:
    """How many tasks there are in this `trio.run`."""
    return trio.lowlevel.current_statistics().tasks_living
