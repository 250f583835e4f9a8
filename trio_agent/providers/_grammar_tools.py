"""Tools for models whose chat template knows none: told in words, and called through a grammar.

Here lives the adapter around a chat provider. The words are in `_grammar_prompt.py`, the schema that a server
makes its grammar of in `_grammar_schema.py`, and the reading of a reply in `_grammar_reply.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from .._chunks import Chunk, Finish, TextDelta
from .._messages import AssistantMessage, Message, UserMessage
from .._provider import Provider, Send
from .._request import ModelRequest, ModelSettings, ToolSpec
from ._grammar_prompt import as_text, tools_prompt, with_reminder
from ._grammar_reply import Reply
from ._grammar_schema import named_choices, reply_schema


class GrammarTools:
    """A provider that gives tools to the model behind `provider`, which need not have heard of any.

    Each request tells the tools in the system prompt and asks the server, by `response_format` with a JSON schema, to
    hold the reply to one well-formed call or an answer; a server that ignores it still works as far as its model keeps
    to the words. Calls and results of before go out as text. One call per message; answers stream.

    After `max_rounds` rounds of calls since the last user message (None: any number) only an answer is possible, and
    that is asked for in plain text, so that a run ends also with a model that would call the same tool for ever.

    `small` helps a model of some hundred million parameters to a sensible call. Arguments that are not required are
    left out. Where the last user message names one of a tool's choices (`enum`), or a tool itself, the reply is
    held to a call of such a tool, with what was named.

    `tool_choice` of a request's settings is obeyed. Raises what `provider` raises, and `ProviderError` of kind
    `protocol` for a reply that begins as the JSON that was asked for and does not go on as such.
    """

    def __init__(self, provider: Provider, *, max_rounds: int | None = 1, small: bool = False) -> None:
        if max_rounds is not None and max_rounds < 0:
            raise ValueError(f"max_rounds is {max_rounds}; give 0 or more, or None for any number")
        self._provider = provider
        self._max_rounds = max_rounds
        self._small = small
        self.name: str | None = getattr(provider, "name", None)

    async def __call__(self, request: ModelRequest, send: Send, /) -> None:
        tools, must_call = self._allowed(request)
        if tools:
            relay = _Relay(send)
            await self._provider(self._constrained(request, tools, must_call), relay.take)
        else:
            await self._provider(self._plain(request), send)

    def _allowed(self, request: ModelRequest) -> tuple[tuple[ToolSpec, ...], bool]:
        """The tools that may be called now, and whether one must be."""
        choice = request.settings.tool_choice
        if choice == "none" or (self._max_rounds is not None and rounds(request.messages) >= self._max_rounds):
            return (), False
        if choice not in (None, "auto", "required"):
            return tuple([tool for tool in request.tools if tool.name == choice]), True
        if self._small and (named := named_choices(request.tools, question(request.messages))):
            return named, True
        return request.tools, choice == "required"

    def _constrained(self, request: ModelRequest, tools: tuple[ToolSpec, ...], must_call: bool) -> ModelRequest:
        told = tools_prompt(tools, answer=not must_call)
        schema = reply_schema(tools, answer=not must_call, required_only=self._small)
        return attrs.evolve(
            _without_tools(request),
            system_prompt=f"{request.system_prompt}\n\n{told}" if request.system_prompt else told,
            messages=as_text(request.messages, json=True),
            settings=_with_schema(request.settings, schema),
        )

    def _plain(self, request: ModelRequest) -> ModelRequest:
        messages = as_text(request.messages, json=False)
        if rounds(request.messages):
            messages = with_reminder(messages, question(request.messages))
        return attrs.evolve(_without_tools(request), messages=messages)


def _without_tools(request: ModelRequest) -> ModelRequest:
    settings = attrs.evolve(request.settings, tool_choice=None, parallel_tool_calls=None)
    return attrs.evolve(request, tools=(), settings=settings)


def _with_schema(settings: ModelSettings, schema: dict[str, Any]) -> ModelSettings:
    form = {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": schema}}
    settings = attrs.evolve(settings, tool_choice=None, parallel_tool_calls=None)
    return attrs.evolve(settings, extra_body={**settings.extra_body, "response_format": form})


def _since_last_question(messages: Sequence[Message]) -> int:
    """The index of the last message that a person said, or -1."""
    return max([at for at, message in enumerate(messages) if isinstance(message, UserMessage)], default=-1)


def rounds(messages: Sequence[Message]) -> int:
    """How many messages with calls there are since a person last said something."""
    since = messages[_since_last_question(messages) + 1 :]
    return len([message for message in since if isinstance(message, AssistantMessage) and message.tool_calls])


def question(messages: Sequence[Message]) -> str:
    """What a person last said."""
    at = _since_last_question(messages)
    last = messages[at] if at >= 0 else None
    return last.text if isinstance(last, UserMessage) else ""


class _Relay:
    """Hands on the chunks of a constrained reply: its text as what it means, the others as they are."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._reply: Reply | None = None

    async def take(self, chunk: Chunk) -> None:
        if isinstance(chunk, TextDelta):
            self._reply = self._reply or Reply(chunk.index)
            for told in self._reply.feed(chunk.text):
                await self._send(told)
        elif isinstance(chunk, Finish):
            await self._finish(chunk)
        else:
            await self._send(chunk)

    async def _finish(self, chunk: Finish) -> None:
        if self._reply is not None:
            for told in self._reply.end():
                await self._send(told)
        called = self._reply is not None and self._reply.has_call
        await self._send(Finish("tool_use") if called and chunk.stop_reason == "stop" else chunk)
