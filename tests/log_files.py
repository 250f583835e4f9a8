"""Logs for the commands that look at them: one run with everything in it, random ones with times, and files of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import attrs
from hypothesis import strategies as st
from lawful_traces import lawful_traces

from trio_agent import (
    AgentEnd,
    AgentStart,
    AssistantMessage,
    CompactionEnd,
    CompactionStart,
    ErrorInfo,
    Event,
    Image,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    RetryEnd,
    RetryStart,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolCallFragment,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResultMessage,
    TurnEnd,
    TurnStart,
    Usage,
    UserMessage,
)
from trio_agent._codec import encode_line

EMPTY = AssistantMessage((), None)
NASTY = "\x1b[31mred\x1b[0m \x07\u202e <script>alert('x')</script> & \ud800 ]]>"


def said(text: str, time: float) -> list[Event]:
    message = UserMessage(text)
    return [MessageStart(message, time=time), MessageEnd(message, time=time)]


def a_run() -> list[Event]:
    """A retry, an overflow, two calls side by side, a steered message, an abort; lawful, with texts that attack."""
    calls = (ToolCall("c1", "read", {"path": "a.txt"}), ToolCall("c2", NASTY, {"x": NASTY, "y": 1}))
    first = AssistantMessage([Thinking("hm"), Text("looking"), *calls], "tool_use", Usage(10, 5), "demo")
    good = ToolResultMessage("c1", "read", [Text("line one\nline two"), Image(b"png!", "image/png")])
    bad = ToolResultMessage("c2", NASTY, NASTY, is_error=True)
    closing = AssistantMessage("half", "aborted", error_message="enough")
    return [
        AgentStart(),
        TurnStart(1, time=0.0),
        *said(f"hello {NASTY}", 0.0),
        RetryStart(1, 4, 2.0, ErrorInfo("overloaded", NASTY, 529), time=1.0),
        RetryEnd(1, "resumed", time=3.0),
        CompactionStart("overflow", 9_000, time=3.5),
        CompactionEnd("compacted", UserMessage("so far"), 1, 100, time=4.0),
        MessageStart(EMPTY, time=5.0),
        MessageUpdate(ThinkingDelta(0, "hm"), time=5.0),
        MessageUpdate(TextDelta(1, "looking"), time=5.5),
        *[MessageUpdate(ToolCallFragment(n, c.id, c.name, c.raw), time=5.75) for n, c in enumerate(calls, 2)],
        MessageEnd(first, time=6.0),
        *[ToolExecutionStart(call, time=6.0) for call in calls],
        ToolExecutionUpdate("c2", NASTY, (Text("half way"),), time=6.5),
        ToolExecutionEnd(bad, time=7.0),
        ToolExecutionEnd(good, time=8.0),
        *[kind(result, time=8.0) for result in (good, bad) for kind in (MessageStart, MessageEnd)],
        TurnEnd(1, first, (good, bad), time=8.0),
        TurnStart(2, time=8.0),
        *said("and b", 8.0),
        MessageStart(EMPTY, time=9.0),
        MessageUpdate(TextDelta(0, "half"), time=9.0),
        MessageEnd(closing, time=10.0),
        TurnEnd(2, closing, time=10.0),
        AgentEnd("aborted", "enough", 2, Usage(10, 5), time=10.0),
    ]


def write_trace(path: Path, events: Iterable[Event]) -> Path:
    path.write_text("".join([f"{encode_line(event)}\n" for event in events]), "utf-8")
    return path


@st.composite
def timed_traces(draw: st.DrawFn) -> list[Event]:
    """Lawful traces whose runs have clocks that begin at 0."""
    steps = draw(st.lists(st.sampled_from([0.0, 0.0, 0.001, 0.5, 30.0]), min_size=1, max_size=20))
    events: list[Event] = []
    now = 0.0
    for event, step in zip(draw(lawful_traces()), itertools.cycle(steps), strict=False):
        now = 0.0 if isinstance(event, AgentStart) else now + step
        events.append(attrs.evolve(event, time=now))
    return events
