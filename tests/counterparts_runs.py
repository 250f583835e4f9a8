"""Whole agent runs against services that this project did not write, for the tests and for the table of the wires.

Here live the agents, the faults and what a run came to. What it should come to is asserted by who asks; the services
are started in `counterparts.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import attrs
import httpx
import trio

from tests.counterparts import Counterpart, aimock, llmock, no_node
from trio_agent import Agent, Event, ProviderError, RetryPolicy, RetryStart, RunResult, tool
from trio_agent.providers import Anthropic, Gemini, OpenAIChat, OpenAIResponses, Timeouts
from trio_agent.testing import check_trace

APIS: Final[dict[str, Any]] = {
    "OpenAIChat": OpenAIChat,
    "OpenAIResponses": OpenAIResponses,
    "Anthropic": Anthropic,
    "Gemini": Gemini,
}
LLMOCK_PATHS: Final = {
    "OpenAIChat": "/v1",
    "OpenAIResponses": "/v1",
    "Anthropic": "/anthropic/v1",
    "Gemini": "/gemini/v1beta",
}
AIMOCK_PATHS: Final = {"OpenAIChat": "/v1", "OpenAIResponses": "/v1", "Anthropic": "/v1", "Gemini": "/v1beta"}
QUICK: Final = Timeouts(connect=5.0, first_byte=5.0, idle=0.3, error_body=1.0, after_end=0.2, close=0.5)
# The waits double, without jitter: so that the judge can see that they do.
RETRY: Final = RetryPolicy(max_attempts=4, base_delay=0.06, jitter=False)


@attrs.frozen(kw_only=True)
class Ran:
    """A run that is over: its result, its events, and what its tools were called with."""

    result: RunResult
    events: list[Event]
    called: list[str] = attrs.field(factory=list)

    @property
    def retried(self) -> list[str]:
        """The kinds of the errors after which a request was sent again."""
        return [event.error.kind for event in self.events if isinstance(event, RetryStart)]

    @property
    def error(self) -> ProviderError:
        """The service's failure that ended the run."""
        assert isinstance(self.result.error, ProviderError), self.result
        return self.result.error

    def lawful(self) -> Ran:
        """Itself, if its trace keeps every rule of the lifecycle."""
        assert check_trace(self.events, complete=True) == []
        return self


async def watched(agent: Agent, prompt: str) -> Ran:
    """A run, with its events."""
    events: list[Event] = []
    with agent.subscribe(events.append):
        result = await agent.prompt(prompt)
    return Ran(result=result, events=events)


async def run_over(
    url: str,
    api: str,
    prompt: str,
    *,
    model: str = "mock-model",
    at_call: Callable[[], Awaitable[None]] | None = None,
    timeouts: Timeouts = QUICK,
    retry: RetryPolicy = RETRY,
    **options: Any,
) -> Ran:
    """A whole run of an agent with two tools over this API at this address. `at_call` is awaited by every call."""
    called: list[str] = []

    @tool
    async def get_weather(city: str) -> str:
        """Get the current weather of a city."""
        called.append(f"get_weather {city}")
        if at_call is not None:
            await at_call()
        return f"21 degrees and sunny in {city}"

    @tool
    async def get_time(zone: str) -> str:
        """Get the local time of a zone."""
        called.append(f"get_time {zone}")
        if at_call is not None:
            await at_call()
        return f"twelve o'clock in {zone}"

    async with httpx.AsyncClient(trust_env=False, timeout=None) as client:
        provider = APIS[api](base_url=url, api_key="not-a-key", client=client, timeouts=timeouts)
        agent = Agent(provider, model=model, tools=[get_weather, get_time], retry=retry, **options)
        ran = await watched(agent, prompt)
    return attrs.evolve(ran, called=called)


# --- llmock: faults --------------------------------------------------------------------------------------------------

FAULTS: Final[dict[str, dict[str, Any]]] = {
    "429": {"type": "fail", "status": 429, "retry_after": 0.25},
    "529": {"type": "fail", "status": 529, "retry_after": 0},
    "truncate": {"type": "stream_fault", "kind": "truncate", "after_chunks": 2},
    "disconnect": {"type": "stream_fault", "kind": "disconnect", "after_chunks": 2},
    "malformed": {"type": "stream_fault", "kind": "malformed", "after_chunks": 2},
    "stall": {"type": "stream_fault", "kind": "stall", "after_chunks": 2, "stall_seconds": 30},
}
# An answer of several chunks on every API, so that a fault strikes in its middle.
CALL: Final = {
    "type": "reply",
    "text": "Let me look at the weather there.",
    "tool_calls": [{"name": "get_weather", "arguments": {"city": "Paris"}}],
}


async def script(service: Counterpart, *behaviours: dict[str, Any]) -> None:
    """What llmock does with the requests that come next."""
    await _ask(service, "POST", "/_llmock/scenario", {"behaviors": list(behaviours)})


async def verdict(service: Counterpart) -> dict[str, Any]:
    """What llmock thinks of our client since the last reset. It waits for answers that are still under way."""
    found: dict[str, Any] = await _ask(service, "GET", "/_llmock/verdict")
    return found


async def requests(service: Counterpart) -> list[dict[str, Any]]:
    """What llmock was asked since the last reset."""
    found: list[dict[str, Any]] = (await _ask(service, "GET", "/_llmock/requests"))["requests"]
    return found


async def reset(service: Counterpart) -> None:
    await _ask(service, "POST", "/_llmock/reset")


async def survive(service: Counterpart, api: str, fault: str, place: str) -> tuple[Ran, dict[str, Any]]:
    """A run whose first request, or whose request behind the tool's result, meets the fault; and the verdict on it."""
    await reset(service)

    async def break_the_answer() -> None:
        await script(service, FAULTS[fault])

    if place == "call":
        await script(service, FAULTS[fault], CALL)
    at_call = break_the_answer if place == "answer" else None
    ran = await run_over(service.url + LLMOCK_PATHS[api], api, "What is the weather in Paris?", at_call=at_call)
    return ran, await verdict(service)


def faults_survived(apis: Iterable[str]) -> dict[str, tuple[list[tuple[str, str | None]], str]]:
    """By API: each fault, with what went wrong in its run or None, and what llmock says of our client."""
    found: dict[str, tuple[list[tuple[str, str | None]], str]] = {}

    async def main() -> None:
        with llmock() as service:
            for api in apis:
                went: list[tuple[str, str | None]] = []
                findings: set[str] = set()
                for fault in FAULTS:
                    for place in ("call", "answer"):
                        ran, said = await survive(service, api, fault, place)
                        survived = ran.lawful().result.outcome == "completed" and said["faults_injected"] == 1
                        went.append((f"{fault} in the {place}", None if survived else str(ran.result.error)))
                        findings |= {finding["code"] for finding in said["findings"]}
                found[api] = went, ", ".join(sorted(findings)) or "clean"

    trio.run(main)
    return found


async def _ask(service: Counterpart, method: str, path: str, body: Any = None) -> Any:
    return await trio.to_thread.run_sync(service.ask, method, path, body)


# --- aimock: loops with parallel calls -------------------------------------------------------------------------------


def _calls(*calls: tuple[str, str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "arguments": {key: value}} for name, key, value in calls]


FIRST: Final = [("get_weather", "city", "Paris"), ("get_weather", "city", "Rome"), ("get_time", "zone", "CET")]
SECOND: Final = [("get_time", "zone", "EET"), ("get_weather", "city", "Oslo")]
ANSWER: Final = "It is noon and sunny everywhere."
# First match first. Turns are told apart by the result that comes last, which is that of the last call. Both answers
# with calls think: aimock refuses calls that no thought leads, which is stricter than the API that it stands for, where
# one thought leads all calls up to the user's next word.
LOOP: Final[list[dict[str, Any]]] = [
    {"match": {"toolResultContains": "Oslo"}, "response": {"content": ANSWER}},
    {
        "match": {"toolResultContains": "CET", "sequenceIndex": 0},
        "response": {"error": {"message": "busy just now", "type": "server_error"}, "status": 503},
    },
    {
        "match": {"toolResultContains": "CET"},
        "response": {"reasoning": "One of each is left.", "toolCalls": _calls(*SECOND)},
    },
    {
        "match": {"userMessage": "Compare"},
        "response": {
            "reasoning": "Two cities and a zone to look up.",
            "content": "Let me look that up.",
            "toolCalls": _calls(*FIRST),
        },
    },
]


async def loop_over(service: Counterpart, api: str) -> Ran:
    """A run of three turns against aimock: three calls at once, a failure, two calls at once, and an answer."""
    return await run_over(service.url + AIMOCK_PATHS[api], api, "Compare the weather and the time.", reasoning="low")


async def journal(service: Counterpart) -> list[dict[str, Any]]:
    """What aimock was asked, as it understood it: every API in the words of Chat Completions."""
    found: list[dict[str, Any]] = await _ask(service, "GET", "/__aimock/journal")
    return found


def loops_run(apis: Iterable[str]) -> dict[str, str]:
    """By API: how aimock's loop of parallel calls went, and how many requests its journal has."""
    if reason := no_node():
        return dict.fromkeys(apis, reason)
    found: dict[str, str] = {}

    async def main() -> None:
        for api in apis:
            with aimock(LOOP) as service:
                ran = (await loop_over(service, api)).lawful()
                entries = await journal(service)
            found[api] = f"{ran.result.outcome}: {len(ran.called)} calls, {len(entries)} requests"

    trio.run(main)
    return found
