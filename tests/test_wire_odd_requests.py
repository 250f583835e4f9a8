"""Requests that hardly anybody makes and that every wire must write: schemas, names, reasoning and keys of odd shapes.

Here live the odd requests. What is usually asked is in each wire's own module.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.wire_files import a_request
from tests.wire_histories import OBJECT
from trio_agent import (
    AssistantMessage,
    Message,
    ProviderError,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from trio_agent._request import ToolSpec
from trio_agent.providers import Secret
from trio_agent.providers._conversation import ToolNames
from trio_agent.providers._fragments import Fragments
from trio_agent.providers._keys import HeaderSecrets
from trio_agent.providers._objects import root_schema
from trio_agent.providers._openai_chat_dialect import ChatDialect
from trio_agent.providers._openai_chat_request import ChatRequestWriter
from trio_agent.providers._openai_responses_reader import Told
from trio_agent.providers._openai_responses_request import Request, ResponsesWriter


def test_two_tools_cannot_have_one_name_on_the_wire() -> None:
    """A tool that is called what another one's name becomes: refused, for its calls could not be told apart."""
    made = ToolNames.of(["read file"]).wire("read file")
    assert ToolNames.of(["read file", "read_file"]).own(made) == "read file"
    with pytest.raises(ProviderError, match=f"two tools would be called '{made}' on the wire") as raised:
        ToolNames.of(["read file", made])
    assert raised.value.kind == "invalid_request"


# The schema of a tool, for the APIs that want one object at its root


def root_of(schema: dict[str, Any]) -> dict[str, Any]:
    found, is_strict = root_schema(ToolSpec("t", "d", schema), strict=True)
    assert not is_strict
    return found


def test_a_reference_at_the_root_is_followed() -> None:
    """What it refers to is the object that is sent, with what stands beside it."""
    found = root_of({"$ref": "#/$defs/A", "properties": {"b": {"type": "string"}}, "$defs": {"A": OBJECT}})
    assert found["properties"] == {**OBJECT["properties"], "b": {"type": "string"}}
    assert (found["required"], found["type"], found["$defs"]) == (["a"], "object", {"A": OBJECT})


@pytest.mark.parametrize("key", ["anyOf", "oneOf", "allOf"])
def test_alternatives_at_the_root_that_refer_to_it_come_to_an_end(key: str) -> None:
    """A schema that is an alternative of itself has the properties that it has."""
    assert root_of({key: [{"$ref": "#"}, OBJECT]})["properties"] == OBJECT["properties"]
    assert root_of({"$ref": "#"})["properties"] == {}
    assert root_of({key: [{"$ref": "#"}] * 500 + [OBJECT]})["properties"] == OBJECT["properties"]


def test_alternatives_that_refer_to_each_other_are_looked_at_once() -> None:
    """A hundred of them, each of which may be any other: their properties together, and at once."""
    names = [f"n{number}" for number in range(100)]
    others = [{"$ref": f"#/$defs/{name}"} for name in names]
    defs = {name: {"properties": {name: {"type": "string"}}, "anyOf": others} for name in names}
    assert set(root_of({"anyOf": others, "$defs": defs})["properties"]) == set(names)


def test_alternatives_nested_too_deeply_are_left_out() -> None:
    """What lies deeper than eight alternatives is not promised; the schema itself is still checked against."""
    schema: dict[str, Any] = {"properties": {"deep": {}}}
    for depth in range(12):
        schema = {"properties": {f"p{depth}": {}}, "allOf": [schema]}
    assert set(root_of(schema)["properties"]) == {f"p{depth}" for depth in range(3, 12)}


# What was written, and for how long it is kept


def test_what_was_written_anew_is_forgotten_with_its_message_too() -> None:
    """Another variant takes the place of the first, and goes when the message does."""
    written: Fragments[str] = Fragments(lambda message, variant: f"{message.text} {variant}")
    message = UserMessage("hi")
    assert [written.of(message, variant) for variant in ("a", "b", "b")] == ["hi a", "hi b", "hi b"]
    assert len(written) == 1
    del message
    assert len(written) == 0


def test_the_oldest_of_many_stored_answers_is_forgotten() -> None:
    """The writer knows the last thousand that the service has; an older conversation is sent whole."""
    writer = ResponsesWriter(ChatDialect(), "p", store=True, summary=None)
    history: list[Message] = [UserMessage("go")]
    first = writer.write(a_request(history))
    others = [Request(b"", ToolNames.of(()), str(number).encode()) for number in range(1000)]
    answered = [*history, AssistantMessage("a", model="some-model", provider="p", response_id="r"), UserMessage("on")]

    def named() -> str | None:
        found: str | None = json.loads(writer.write(a_request(answered)).body).get("previous_response_id")
        return found

    writer.remember(first, Told("r", "a", ()))
    for number, other in enumerate(others[:-1]):
        writer.remember(other, Told(f"r{number}", "", ()))
    assert named() == "r"
    writer.remember(others[-1], Told("one more", "", ()))
    assert named() is None
    assert writer.has_links


# Reasoning that goes back


def test_a_thought_without_a_signature_goes_back_as_a_bare_detail() -> None:
    """OpenRouter's detail of a text that nothing proves says nothing of a format."""
    writer = ChatRequestWriter(ChatDialect(reasoning_field="reasoning_details"), "p")
    thought = [Thinking("hm"), ToolCall("k", "f", {})]
    answer = AssistantMessage(thought, "tool_use", model="some-model", provider="p")
    body, _ = writer.write(a_request([UserMessage("go"), answer, ToolResultMessage("k", "f", "x")]))
    assert json.loads(body)["messages"][1]["reasoning_details"] == [{"type": "reasoning.text", "text": "hm"}]


def test_reasoning_whose_text_is_open_needs_no_secret() -> None:
    """An item with content alone, as servers of open models give it, goes back with that."""
    kept = {"type": "reasoning", "id": "rs1", "content": [{"type": "reasoning_text", "text": "hm"}]}
    answer = AssistantMessage([Thinking("hm", json.dumps(kept)), Text("a")], model="some-model", provider="p")
    writer = ResponsesWriter(ChatDialect(), "p", store=False, summary=None)
    body = json.loads(writer.write(a_request([UserMessage("go"), answer, UserMessage("on")])).body)
    assert body["input"][1] == {**kept, "summary": []}


# Keys


def test_nothing_shows_a_secret_or_counts_wrong() -> None:
    """Text made of a secret hides it; headers are a mapping that shows names only."""
    secret = Secret("sk-test-1")
    assert (str(secret), str(Secret("x"))) == ("[key hidden]", "[key hidden]")
    headers = HeaderSecrets({"a": "sk-test-1", "b": "2"})
    assert (len(headers), dict(headers)) == (2, {"a": "sk-test-1", "b": "2"})
    assert repr(headers) == "<headers a, b>"
