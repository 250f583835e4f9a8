"""The quick way of making values gives the same values as the classes do."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from trio_agent import _events, _messages, _request, _tools
from trio_agent._messages import AssistantMessage, Text, ToolCall, ToolResultMessage, UserMessage

USER = UserMessage("hi")
CALL = ToolCall("c1", "read", {"path": "a"})
RESULT = ToolResultMessage("c1", "read", "text", details={"n": 1})
ANSWER = AssistantMessage([Text("yes"), CALL], "tool_use")
PAIRS: list[tuple[Any, Any]] = [
    (_events.tool_call_fragment(0, "c1", "read", "{"), _events.ToolCallFragment(0, "c1", "read", "{")),
    (_events.turn_start(3), _events.TurnStart(3)),
    (_events.message_start(USER, time=1.5), _events.MessageStart(USER, time=1.5)),
    (_events.message_update(_events.TextDelta(0, "a")), _events.MessageUpdate(_events.TextDelta(0, "a"))),
    (_events.message_end(ANSWER), _events.MessageEnd(ANSWER)),
    (_events.tool_execution_start(CALL), _events.ToolExecutionStart(CALL)),
    (_events.tool_execution_end(RESULT), _events.ToolExecutionEnd(RESULT)),
    (_events.turn_end(1, ANSWER, (RESULT,)), _events.TurnEnd(1, ANSWER, (RESULT,))),
    (_messages.quick_text("a"), Text("a")),
    (_messages.assistant_message((Text("yes"), CALL), "tool_use"), ANSWER),
    (_messages.tool_call("c1", "read", '{"path":"a"}', None), CALL),
    (_messages.tool_result_message("c1", "read", (Text("text"),), False, '{"n":1}'), RESULT),
    (_request.model_request(model="m", messages=(USER,)), _request.ModelRequest(model="m", messages=(USER,))),
    (_tools.prepared_call({"a": 1}), _tools.PreparedCall({"a": 1})),
]


@pytest.mark.parametrize(("made", "wanted"), PAIRS, ids=lambda value: type(value).__name__)
def test_a_quick_value_equals_a_slow_one(made: Any, wanted: Any) -> None:
    """It is of the same class, equal in every field, and prints alike."""
    assert type(made) is type(wanted)
    assert made == wanted
    assert [getattr(made, field.name) for field in attrs.fields(type(made))] == [
        getattr(wanted, field.name) for field in attrs.fields(type(wanted))
    ]
    assert repr(made) == repr(wanted)


@pytest.mark.parametrize("made", [made for made, _ in PAIRS], ids=lambda value: type(value).__name__)
def test_a_quick_value_cannot_be_changed(made: Any) -> None:
    """Once made it is as frozen as any other."""
    name = attrs.fields(type(made))[0].name
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        setattr(made, name, None)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        delattr(made, name)
    assert attrs.evolve(USER) == USER
