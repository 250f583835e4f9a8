"""F7 at every instruction: a Ctrl-C wherever CPython may run a signal handler in the kernel or in the log of a session.

Here lives the search: it counts the places of a scene (the entry of a function, the return from one written in C),
then plays it once for each, with the signal there. `test_rules_interrupts.py` has the rule, sentence by sentence;
the storm has interrupts at checkpoints.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import json
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType, FunctionType
from typing import Any, ClassVar

import attrs
import pytest
import trio
import trio.testing

import trio_agent
from trio_agent import (
    Agent,
    AgentState,
    Compaction,
    Event,
    Finish,
    Hooks,
    Message,
    ModelRequest,
    Provider,
    ProviderError,
    RetryPolicy,
    Send,
    Text,
    TextDelta,
    Tool,
    ToolCallDelta,
    ToolCallStart,
    ToolContext,
    ToolExecutionEnd,
    UserMessage,
    tool,
)
from trio_agent._delivery import Subscribers
from trio_agent._file_locks import FileLockStatistics, current_file_locks
from trio_agent.session import SessionLog
from trio_agent.testing import TraceChecker, check_trace
from trio_agent.tools import coding_tools

HERE = Path(trio_agent.__file__).parent
WATCHED = (str(HERE / "_"), str(HERE / "session"))
STRIDE = 17  # every so many places; under the marker `exhaustive` all


@functools.cache
def entry_of(code: CodeType) -> int:  # pragma: no cover - runs untraced
    """Where the body of a function begins. A coroutine that goes on behind an `await` looks at no signals there."""
    return next(step.offset for step in dis.get_instructions(code) if step.opname == "RESUME")


@attrs.define
class CtrlC:
    """A profile function that counts the places in the kernel, and sends the signal at some of them."""

    places: tuple[int, ...]
    count: int = 0
    where: str = ""
    raised: bool = False
    has_hung: bool = False
    watched: tuple[str, ...] = WATCHED

    def __call__(self, frame: FrameType, event: str, _arg: Any) -> None:  # pragma: no cover - runs untraced
        code = frame.f_code
        if not code.co_filename.startswith(self.watched) or event not in ("call", "c_return"):
            return
        if event == "call" and frame.f_lasti > entry_of(code):
            return
        self.count += 1
        if self.count - 1 in self.places:
            self.where += f" {event} {code.co_qualname}:{frame.f_lineno}"
            self._send(frame)

    def _send(self, frame: FrameType) -> None:  # pragma: no cover - runs untraced
        deliver: Any = signal.getsignal(signal.SIGINT)  # Trio's, which looks at the frame
        try:
            deliver(signal.SIGINT, frame)
        except KeyboardInterrupt:
            self.raised = True
            sys.setprofile(self)  # what raises is taken out
            raise


# Scenes


@tool
async def writes(path: str, context: ToolContext) -> str:
    """Write, and say so."""
    async with context.lock_files(path):
        await context.update("writing")
    return "written"


@tool(writes=("path",), timeout=5)
async def edits(path: str) -> str:
    """Edit."""
    await trio.lowlevel.checkpoint()
    return "edited"


def calls(*wanted: tuple[str, str, str]) -> list[Any]:
    """An answer with these calls: id, name and path."""
    chunks: list[Any] = [TextDelta(0, "a")]
    for at, (call_id, name, path) in enumerate(wanted, 1):
        chunks += [ToolCallStart(at, call_id, name), ToolCallDelta(at, json.dumps({"path": path}))]
    return [*chunks, Finish("tool_use")]


def answering(*answers: list[Any]) -> Provider:
    """These answers, one for each request, then a text."""
    left = list(answers)

    async def provider(_request: ModelRequest, send: Send) -> None:
        for chunk in left.pop(0) if left else [TextDelta(0, "done"), Finish("stop")]:
            await trio.lowlevel.checkpoint()
            if isinstance(chunk, Exception):
                raise chunk
            await send(chunk)

    return provider


def plain() -> Agent:
    return Agent(answering(calls(("c1", "edits", "x"), ("c2", "edits", "./x"))), model="m", tools=[edits])


SUMMARY = (Text("so far"),)


class Policy:
    """Sums up before the second turn."""

    def threshold(self, state: AgentState) -> bool:
        return state.turn == 2

    async def compact(self, messages: Sequence[Message], _reason: str) -> Compaction:
        await trio.lowlevel.checkpoint()
        return Compaction(UserMessage(SUMMARY), len(messages))


def busy() -> Agent:
    """Hooks, a lock taken at run time, a slot, a retry and a compaction."""

    async def hook(*_given: object) -> None:
        await trio.lowlevel.checkpoint()

    failed = [TextDelta(0, "a"), ProviderError("overloaded", "later")]
    return Agent(
        answering(failed, calls(("c1", "writes", "x"), ("c2", "nobody", "x"))),
        model="m",
        tools=[writes],
        hooks=Hooks(before_tool_call=hook, after_tool_result=hook, should_stop_after_turn=lambda _: False),
        retry=RetryPolicy(base_delay=1),
        compaction=Policy(),
        max_parallel_tools=1,
    )


@tool
async def delegates(path: str) -> str:
    """Run another agent."""
    return (await plain().prompt(path)).text


def nested() -> Agent:
    return Agent(answering(calls(("c1", "delegates", "x"), ("c2", "edits", "x"))), model="m", tools=[delegates, edits])


@tool(writes=("path",))
def blocks(path: str, context: ToolContext) -> str:
    """Work in a thread, and report from there."""
    context.update("working")
    return path


def threaded() -> Agent:
    return Agent(answering(calls(("c1", "blocks", "x"), ("c2", "blocks", "./x"))), model="m", tools=[blocks])


async def prompted(agent: Agent) -> None:
    await agent.prompt("hi")


async def streamed(agent: Agent) -> None:
    async with agent.stream("hi") as events:
        async for _ in events:
            pass


async def aborted(agent: Agent) -> None:
    with agent.subscribe(lambda event: agent.abort("enough") if event.type == "tool_execution_end" else None):
        await agent.prompt("hi")


async def in_a_child(agent: Agent) -> None:
    """The interrupt is the main task's, and reaches the run as a cancellation from outside, or out of a task of it."""
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.prompt, "hi")
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


Way = Callable[[Agent], Awaitable[None]]
SCENES: dict[str, tuple[Callable[[], Agent], Way]] = {
    "prompt": (plain, prompted),
    "abort": (plain, aborted),
    "stream": (plain, streamed),
    "busy": (busy, prompted),
    "child": (plain, in_a_child),
    "nested": (nested, prompted),
    "thread": (threaded, prompted),
}


# One play, and what has to hold behind it


def play(make: Callable[[], Agent], way: Way, *places: int) -> CtrlC:
    """Play a scene with Ctrl-C at some places, and look at what it has left."""
    ctrl_c = CtrlC(places)
    # A clock that jumps would jump while a thread works.
    clock = None if make is threaded else trio.testing.MockClock(autojump_threshold=0)
    try:
        trio.run(_play, ctrl_c, make(), way, clock=clock)
    except KeyboardInterrupt:
        assert not ctrl_c.raised or len(places) > 1, "the interrupt was raised twice"
    except AssertionError as fault:
        fault.add_note(f"Ctrl-C at {places}:{ctrl_c.where}")
        raise
    return ctrl_c


class Keeping:
    """An async subscriber that is an object."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    @trio.lowlevel.enable_ki_protection
    async def __call__(self, event: Event) -> None:
        self.events.append(event)


async def _play(ctrl_c: CtrlC, agent: Agent, way: Way) -> None:
    first: list[Event] = []
    second: list[Event] = []
    third = Keeping()

    async def listener(event: Event) -> None:
        first.append(event)

    agent.steer("queued")
    with TemporaryDirectory() as folder, SessionLog(Path(folder, "log")) as log:
        for subscriber in (listener, second.append, third, log):
            agent.subscribe(subscriber)
        await _disturbed(ctrl_c, agent, way)
        assert check_trace(first) == []
        if len(ctrl_c.places) < 2:  # a second one skips what is left to tell
            assert [id(event) for event in first] == [id(event) for event in second]
            assert [id(event) for event in first] == [id(event) for event in third.events]
            assert [event.type for event in first[-1:]] in ([], ["agent_end"])
            assert log.load().messages == agent.state.messages
        _nothing_said_is_lost(agent, first)
        await _is_idle(agent)


async def _disturbed(ctrl_c: CtrlC, agent: Agent, way: Way) -> None:
    left: BaseException | None = None
    trio.lowlevel.spawn_system_task(_end_a_hang, ctrl_c)
    checker = agent.subscribe(TraceChecker())
    sys.setprofile(ctrl_c)
    try:
        await way(agent)
    except BaseException as exc:  # looked at below
        left = exc
    finally:
        sys.setprofile(None)
    checker()
    assert not ctrl_c.has_hung
    if left is None and ctrl_c.where and not ctrl_c.raised:  # it came at the very end, and waits for a checkpoint
        with pytest.raises(KeyboardInterrupt):
            await trio.lowlevel.checkpoint()
    else:
        assert type(left) is (KeyboardInterrupt if ctrl_c.where else type(None))


async def _end_a_hang(ctrl_c: CtrlC) -> None:
    """All tasks wait for nothing: more Ctrl-C end that, as they end any wait of the main task."""
    while True:
        await trio.sleep(20)
        ctrl_c.has_hung = True
        signal.raise_signal(signal.SIGINT)


def _nothing_said_is_lost(agent: Agent, told: Sequence[Event]) -> None:
    """The queued message is in history or in its queue, once; so is the prompt, in history, once a run has begun."""
    state = agent.state
    said = [message.content for message in (*state.messages, *state.steering_queue) if isinstance(message, UserMessage)]
    if SUMMARY not in said:
        assert said.count((Text("queued"),)) == 1
        assert said.count((Text("hi"),)) == bool(told)


async def _is_idle(agent: Agent) -> None:
    """The agent is idle, holds nothing, and can be used."""
    state = agent.state
    assert state.phase.value == "idle"
    assert not state.is_streaming
    assert state.pending_tool_calls == state.pending_file_writes == ()
    locks = current_file_locks()
    with trio.move_on_after(2):  # a thread left behind keeps its lock until it ends (T8)
        while locks.statistics().held:
            await trio.sleep(0.001)
    assert locks.statistics() == FileLockStatistics(0, 0, 0)
    assert (await agent.prompt("again")).outcome == "completed"


each_scene = pytest.mark.parametrize(("make", "way"), SCENES.values(), ids=SCENES)


@each_scene
def test_F7_a_ctrl_c_at_any_instruction_leaves_nothing_half_done(make: Callable[[], Agent], way: Way) -> None:
    """Every subscriber has a lawful trace to its end, nothing said is lost or held, one interrupt leaves, bare."""
    for place in range(0, play(make, way).count, STRIDE):
        play(make, way, place)


@pytest.mark.exhaustive
@each_scene
def test_F7_a_ctrl_c_at_every_single_instruction_leaves_nothing_half_done(make: Callable[[], Agent], way: Way) -> None:
    """The same at all places, not at some."""
    count = play(make, way).count
    assert count > 500
    for place in range(count):
        play(make, way, place)


@each_scene
def test_F7_a_second_ctrl_c_at_any_instruction_leaves_the_agent_idle(make: Callable[[], Agent], way: Way) -> None:
    """What is left to tell is skipped: no more. Nothing queued is lost, nothing held, and the next run works."""
    count = play(make, way).count
    for first in range(0, count, 97):
        for later in range(1, 300, 29):
            play(make, way, first, first + later)


async def twice(agent: Agent) -> None:
    await agent.prompt("hi")
    await agent.prompt("hi")


async def for_ever(_agent: Agent) -> None:
    await trio.sleep_forever()


@pytest.mark.parametrize("way", [twice, for_ever])
def test_what_is_wrong_is_noticed(way: Way) -> None:
    """A message that is in history twice, and a run that hangs, are faults."""
    with pytest.raises(AssertionError):
        play(plain, way)


def test_an_object_that_can_be_called_is_called_by_its_method() -> None:
    """Behind a function CPython looks for no signal, behind an object it does, before the coroutine is awaited."""
    keeping, found = Keeping(), list[Event]()
    subscribers: Subscribers[Event] = Subscribers()
    agent = plain()
    assert subscribers.add(keeping, False, agent).call == keeping.__call__
    assert subscribers.add(found.append, False, agent).call == found.append
    assert subscribers.add(calls, False, agent).call is calls


def test_a_partial_of_an_async_function_is_called_by_a_function() -> None:
    """So is what leaves a stream: behind a function no signal is looked for."""
    subscribers: Subscribers[Event] = Subscribers()
    agent, partly = plain(), functools.partial(async_loop, 1)
    assert type(subscribers.add(partly, False, agent).call) is FunctionType
    assert type(agent.stream("hi").__aexit__) is FunctionType


class Static:
    seen: ClassVar[list[Event]] = []

    @staticmethod
    def __call__(event: Event) -> None:
        Static.seen.append(event)


class Classwide:
    seen: ClassVar[list[Event]] = []

    @classmethod
    async def __call__(cls, event: Event) -> None:
        cls.seen.append(event)


@pytest.mark.parametrize("kind", [Static, Classwide])
async def test_L5_whatever_can_be_called_hears_every_event(kind: Any) -> None:
    """Also an object whose `__call__` takes no self."""
    kind.seen.clear()
    agent = Agent(answering(), model="m")
    agent.subscribe(kind())
    agent.subscribe(functools.partial(async_append, kind.seen))
    assert (await agent.prompt("hi")).outcome == "completed"
    assert len(kind.seen) == 2 * len(set(map(id, kind.seen))) > 10


async def async_append(seen: list[Event], event: Event) -> None:
    seen.append(event)


# The package's own tools


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("write_file", {"path": "f", "content": "new"}),
        ("edit_file", {"path": "f", "edits": [{"old_text": "old", "new_text": "new"}]}),
    ],
)
def test_F7_a_ctrl_c_leaves_a_file_as_the_result_says(tmp_path: Path, name: str, arguments: dict[str, Any]) -> None:
    """At any instruction of the tools that write: what is reported as cut off has changed nothing, nothing is left."""
    count = change(tmp_path, name, arguments).count
    assert count > 100
    for place in range(0, count, 3):
        change(tmp_path, name, arguments, place)


def change(folder: Path, name: str, arguments: dict[str, Any], *places: int) -> CtrlC:
    ctrl_c = CtrlC(places, watched=(str(HERE / "_"), str(HERE / "tools")))
    file = folder / "f"
    file.write_text("old")
    ends: list[ToolExecutionEnd] = []

    async def main() -> None:
        chunks = [ToolCallStart(0, "c", name), ToolCallDelta(0, json.dumps(arguments)), Finish("tool_use")]
        agent = Agent(answering(chunks), model="m", tools=coding_tools(folder, allow_shell=False))
        agent.subscribe(lambda event: ends.append(event) if isinstance(event, ToolExecutionEnd) else None)
        sys.setprofile(ctrl_c)
        try:
            await agent.prompt("hi")
        finally:
            sys.setprofile(None)

    with contextlib.suppress(KeyboardInterrupt):
        trio.run(main)
    assert [entry.name for entry in folder.iterdir()] == ["f"]
    told = any(not end.result.is_error for end in ends)
    assert file.read_text() == ("new" if told else "old"), (ctrl_c.where, ends)
    return ctrl_c


# What an application wrote can be interrupted


def loop(*_given: object) -> Any:
    """An endless loop, as far as it comes."""
    signal.raise_signal(signal.SIGINT)
    raise AssertionError("the interrupt did not arrive")


async def async_loop(*_given: object) -> Any:
    loop()


@tool
async def loops(path: str) -> str:
    """Loop."""
    return str(loop())


@tool(timeout=5)
async def loops_in_time(path: str) -> str:
    """Loop, under a time-out."""
    return str(loop())


@tool(writes=loop)
async def loops_before(path: str) -> str:
    """Loop when it is asked what it writes."""
    raise AssertionError("it is never called")


@tool
def loops_from_a_thread(path: str, context: ToolContext) -> str:
    """Loop in the tool's task."""
    return str(context.run_in_task(async_loop))


class Threshold(Policy):
    threshold = loop


class Compacting(Policy):
    compact = async_loop


LOOPS: dict[str, Callable[[], Agent]] = {
    "provider": lambda: Agent(async_loop, model="m"),
    "tool": lambda: calling(loops),
    "tool in time": lambda: calling(loops_in_time),
    "what a tool writes": lambda: calling(loops_before),
    "run_in_task": lambda: calling(loops_from_a_thread),
    "sync hook": lambda: calling(edits, before_tool_call=loop),
    "async hook": lambda: calling(edits, before_tool_call=async_loop),
    "hook in the tool's task": lambda: calling(edits, after_tool_result=loop),
    "async hook in the tool's task": lambda: calling(edits, after_tool_result=async_loop),
    "projection": lambda: calling(edits, transform_context=loop),
    "should_stop_after_turn": lambda: calling(edits, should_stop_after_turn=loop),
    "threshold": lambda: Agent(answering(), model="m", compaction=Threshold()),
    "compaction": lambda: Agent(answering(calls(("c1", "edits", "x"))), model="m", compaction=Compacting()),
    "subscriber": lambda: heard(loop),
    "async subscriber": lambda: heard(async_loop),
    "async subscriber of an end": lambda: heard(lambda event: async_loop() if event.type == "agent_end" else None),
}


def calling(called: Tool, **hooks: Any) -> Agent:
    return Agent(answering(calls(("c1", called.name, "x"))), model="m", tools=[called], hooks=Hooks(**hooks))


def heard(listener: Callable[[Event], object]) -> Agent:
    agent = Agent(answering(), model="m")
    agent.subscribe(listener)
    return agent


@pytest.mark.parametrize("where", LOOPS)
def test_F7_what_an_application_wrote_is_interrupted_where_it_is(where: str) -> None:
    """A loop that never ends, in whatever an application gives to an agent, ends with Ctrl-C: it is raised there."""
    raised: list[object] = []

    async def main() -> None:
        try:
            await LOOPS[where]().prompt("hi")
        except KeyboardInterrupt as exc:
            traceback = exc.__traceback__
            while traceback is not None:
                raised.append(traceback.tb_frame.f_code)
                traceback = traceback.tb_next
            raise

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert loop.__code__ in raised
