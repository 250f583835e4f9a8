"""Estimates of how many tokens a message takes. What follows from them is in `test_compaction_policy.py`."""

from __future__ import annotations

import pytest

from trio_agent import AssistantMessage, CustomMessage, Image, Message, Text, Thinking, ToolCall, UserMessage
from trio_agent._tokens import estimate_message


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (UserMessage("x" * 40), 4 + 10),
        (UserMessage([Text("x" * 40), Image(b"x", "image/png")]), 4 + 10 + 1_500),
        (AssistantMessage((Thinking("x" * 40, "a signature"),), "stop"), 4 + 10),
        (AssistantMessage((Thinking("", redacted="x" * 80),), "stop"), 4 + 20),
        (AssistantMessage((ToolCall("c1", "look", raw='{"a": 1}'),), "tool_use"), 4 + 4 + 1 + 2),
        (CustomMessage("note", "x" * 40), 0),
    ],
    ids=["text", "image", "thinking", "thinking that is not shown", "call", "custom"],
)
def test_a_message_is_estimated_by_what_its_provider_is_sent(message: Message, tokens: int) -> None:
    """Four characters of ASCII are a token, a message and a call a few more, and an application's own none."""
    assert estimate_message(message) == tokens
