"""Conversations and replies that `GrammarTools` meets now and then: what its model is told, and what it tells."""

from __future__ import annotations

from collections.abc import Sequence

from trio_agent import AssistantMessage, CustomMessage, Finish, Image, Message, ToolCall, ToolResultMessage, UserMessage
from trio_agent._chunks import Chunk
from trio_agent._provider import Send
from trio_agent._request import ModelRequest, ToolSpec
from trio_agent.providers._grammar_prompt import as_text
from trio_agent.providers._grammar_tools import GrammarTools

ADD = ToolSpec("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}})


def test_answers_in_a_row_become_one() -> None:
    """Many templates demand that roles alternate: an answer behind an aborted one joins it."""
    found = as_text([UserMessage("go"), AssistantMessage("a"), AssistantMessage(""), AssistantMessage("b")], json=False)
    assert found == [UserMessage("go"), AssistantMessage("a\nb")]


def test_what_is_the_applications_own_is_not_told() -> None:
    """A custom message is no word of anybody's; what stands around it meets."""
    messages: list[Message] = [UserMessage("go"), CustomMessage("note", {"x": 1}), UserMessage("on")]
    for json in (True, False):
        assert as_text(messages, json=json) == [UserMessage("go\n\non")]


class Silent:
    """A provider that ends each answer without a word, and keeps what it was asked."""

    name = "silent"

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    async def __call__(self, request: ModelRequest, send: Send, /) -> None:
        self.requests.append(request)
        await send(Finish("stop"))


async def asked(model: Silent, messages: Sequence[Message]) -> list[Chunk]:
    chunks: list[Chunk] = []

    async def send(chunk: Chunk) -> None:
        chunks.append(chunk)

    await GrammarTools(model)(ModelRequest(model="m", messages=messages, tools=(ADD,)), send)
    return chunks


async def test_a_reply_without_a_word_ends_as_it_ended() -> None:
    """Nothing is made of nothing: neither a text nor a call."""
    assert await asked(Silent(), [UserMessage("go")]) == [Finish("stop")]


async def test_a_question_without_words_is_not_repeated() -> None:
    """Behind the results of a call the model is reminded of what was asked; of an image it cannot be."""
    model = Silent()
    call = ToolCall("c1", "add", {"a": 1})
    results = [AssistantMessage([call], "tool_use"), ToolResultMessage("c1", "add", "1")]
    await asked(model, [UserMessage([Image(b"x", "image/png")]), *results])
    assert "my question" not in str(model.requests[0].messages)
    await asked(model, [UserMessage("add 1"), *results])
    assert str(model.requests[1].messages).count("Now answer my question: add 1") == 1
