"""The short lines that tests assert and people read."""

from __future__ import annotations

from typing import Any

import pytest

from trio_agent._chunks import TextDelta, ThinkingDelta
from trio_agent._codec import encode
from trio_agent._events import (
    AgentEnd,
    AgentStart,
    CompactionEnd,
    CompactionStart,
    ErrorInfo,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    RetryEnd,
    RetryStart,
    ToolCallFragment,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnStart,
)
from trio_agent._messages import (
    AssistantMessage,
    CustomMessage,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from trio_agent.testing import render

CALL = ToolCall("c1", "read", {"path": "a"})
ANSWER = AssistantMessage([Thinking("hm"), Text("hello"), CALL], "tool_use")
FAILED = AssistantMessage("par", "error", error_message="boom\nbang")
RESULT = ToolResultMessage("c1", "read", "text")
IMAGE = Image(b"123", "image/png")

LINES: list[tuple[Any, str]] = [
    (AgentStart(), "agent_start"),
    (TurnStart(1), "turn_start 1"),
    (MessageStart(UserMessage("hi")), "message_start user"),
    (MessageStart(AssistantMessage((), None)), "message_start assistant"),
    (MessageStart(RESULT), "message_start tool_result c1"),
    (MessageStart(CustomMessage("note", 1)), "message_start custom note"),
    (MessageEnd(UserMessage("hi")), 'message_end user "hi"'),
    (MessageEnd(UserMessage([Text("see"), IMAGE])), 'message_end user "see" [image/png 3 bytes]'),
    (MessageEnd(CustomMessage("note", {"k": 1})), 'message_end custom note {"k":1}'),
    (MessageUpdate(TextDelta(0, "he")), 'message_update "he"'),
    (MessageUpdate(ThinkingDelta(0, "h\nm")), r'message_update thinking "h\nm"'),
    (MessageUpdate(ToolCallFragment(1, "c1", "read", '{"pa')), r'message_update call c1 read "{\"pa"'),
    (MessageEnd(ANSWER), 'message_end assistant tool_use thinking "hm" "hello" c1:read'),
    (MessageEnd(FAILED), r'message_end assistant error "par" !boom\nbang'),
    (MessageEnd(AssistantMessage((), None)), "message_end assistant streaming"),
    (
        MessageEnd(AssistantMessage([Thinking("", redacted="xx")])),
        "message_end assistant stop thinking redacted",
    ),
    (ToolExecutionStart(CALL), 'tool_execution_start c1 read {"path":"a"}'),
    (ToolExecutionStart(ToolCall("c2", "read", raw='{\n"pa')), r"tool_execution_start c2 read {\n\"pa"),
    (ToolExecutionUpdate("c1", "read", (Text("x"),)), 'tool_execution_update c1 "x"'),
    (ToolExecutionEnd(RESULT), 'tool_execution_end c1 ok "text"'),
    (ToolExecutionEnd(ToolResultMessage("c1", "read", "no", True)), 'tool_execution_end c1 error "no"'),
    (MessageEnd(RESULT), 'message_end tool_result c1 ok "text"'),
    (TurnEnd(1, ANSWER, (RESULT,)), "turn_end 1"),
    (RetryStart(1, 4, 0.5, ErrorInfo("overloaded", "busy", 529)), "retry_start 1/4 overloaded"),
    (RetryEnd(1, "resumed"), "retry_end 1 resumed"),
    (CompactionStart("threshold"), "compaction_start threshold"),
    (CompactionEnd("compacted", UserMessage("sum"), 3), "compaction_end compacted"),
    (AgentEnd("completed"), "agent_end completed"),
    (AgentEnd("stopped", "max_turns"), "agent_end stopped max_turns"),
]


def test_each_event_is_one_short_line() -> None:
    """The format, event by event."""
    assert render([event for event, _ in LINES]) == [line for _, line in LINES]


def test_json_objects_give_the_same_lines() -> None:
    """An event and its JSON object look alike."""
    assert render([encode(event) for event, _ in LINES]) == [line for _, line in LINES]


def test_a_long_text_is_cut_where_the_caller_says() -> None:
    """Texts of more than `clip` characters end in an ellipsis; `clip` is 60 unless told."""
    event = MessageEnd(UserMessage("x" * 61))
    assert render([event]) == [f'message_end user "{"x" * 60}…"']
    assert render([event], clip=2) == ['message_end user "xx…"']
    assert render([event], clip=61) == [f'message_end user "{"x" * 61}"']


def test_every_line_is_one_line_of_valid_utf8() -> None:
    """Line ends of any kind and lone surrogates are escaped, also in arguments, ids and names."""
    wild = "a\n\r\x85\u2028\ud800\x1b"
    call = ToolCall(wild, wild, raw=wild)
    events = [
        MessageEnd(UserMessage(wild)),
        MessageUpdate(ToolCallFragment(0, wild, wild, wild)),
        MessageEnd(AssistantMessage((call,), "error", error_message=wild)),
        ToolExecutionStart(call),
        MessageEnd(ToolResultMessage(wild, wild, [Image(b"", wild)])),
        MessageEnd(CustomMessage(wild, wild)),
        AgentEnd("error", wild),
    ]
    for line in render(events):
        assert len(line.splitlines()) == 1
        assert line.encode("utf-8").isascii()


def test_what_is_no_event_is_refused() -> None:
    """A message, a block or a stranger's object is an error that says so."""
    with pytest.raises(TypeError, match="UserMessage is no event; render events or their JSON objects"):
        render([UserMessage("hi")])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="type: expected a known type, got 'start'"):
        render([{"type": "start"}])
