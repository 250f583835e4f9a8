"""What answers cost: held against the price lists' own reading of what services sent, and against services' bills."""

from __future__ import annotations

import datetime as dt
import importlib.util
from decimal import Decimal
from functools import partial
from typing import Any

import genai_prices
import pytest

from tests.wire_files import Recorded, asked, played, recorded
from trio_agent import AssistantMessage, Usage
from trio_agent.providers import Anthropic, FallbackProvider, Gemini, OpenAIChat, OpenAIResponses, price
from trio_agent.testing import ScriptedProvider, finish, text

AT = dt.datetime(2026, 12, 1, 12, tzinfo=dt.UTC)
APIS: dict[str, Any] = {
    "anthropic_messages": Anthropic,
    "gemini": Gemini,
    "openai_chat": OpenAIChat,
    "openai_responses": OpenAIResponses,
}
# Whose answers the recordings are, where it is not the maker of the API, and how the lists call it.
SERVICES = {
    "azure": "azure",
    "cerebras": "cerebras",
    "deepseek": "deepseek",
    "mistral": "mistral",
    "openrouter": "openrouter",
    "together": "together",
    "xai": "x-ai",
}
MAKERS = {
    "anthropic_messages": ("anthropic", "default"),
    "gemini": ("google", "default"),
    "openai_chat": ("openai", "chat"),
    "openai_responses": ("openai", "responses"),
}
UNKNOWN = ("llamacpp", "lmstudio", "ollama", "bedrock", "crusoe", "snowflake", "perplexity")
# Whose form of counting it is for the lists, where they do not have it under the service's own name.
FORMS = {"mistral": ("mistral", "default"), "together": ("openai", "chat")}
priced = partial(price, at=AT)


def counted(api: str) -> list[Recorded]:
    return [file for file in recorded(api) if file.expected.get("usage") and "must_fail" not in file.expected]


ALL = [(api, file) for api in APIS for file in counted(api)]


async def message_of(api: str, file: Recorded, **options: Any) -> AssistantMessage:
    """The answer, as far as it came: some of the recorded ones failed behind their counts."""
    return (await played(APIS[api], [file.body], **options)).message


def service_of(api: str, file: Recorded) -> str | None:
    """Whose the recorded answer is, as the lists call it."""
    first = file.name.split("-")[0]
    return None if first in UNKNOWN else SERVICES.get(first, MAKERS[api][0])


def theirs(api: str, file: Recorded, service: str, model: str) -> Decimal | None:
    """What the answer costs by what the lists themselves read of the service's counts."""
    usage = {key: value for key, value in file.expected["usage"].items() if key != "server_tool_use"}
    provider, flavor = FORMS.get(service, (service, MAKERS[api][1]))
    document = {"usageMetadata" if api == "gemini" else "usage": usage}
    counts = genai_prices.extract_usage(document, provider_id=provider, api_flavor=flavor).usage
    try:
        found = genai_prices.calc_price(counts, model, provider_id=service, genai_request_timestamp=AT)
    except LookupError:
        return None
    # Some models are in the lists without any price, which makes their answers free.
    return None if found.model_price.input_mtok is None else found.total_price


@pytest.mark.parametrize(("api", "file"), ALL, ids=[f"{api}/{file.name}" for api, file in ALL])
async def test_our_counts_cost_what_the_services_own_do(api: str, file: Recorded) -> None:
    """The price of what we read is that of what the lists read from the same bytes, for every recorded answer."""
    message = await message_of(api, file)
    service = service_of(api, file)
    if service is None:
        assert priced(message, provider=file.name.split("-")[0]) is None
    else:
        assert priced(message, provider=service) == theirs(api, file, service, message.model or "")


def bill_of(api: str, name: str) -> tuple[Recorded, Decimal]:
    (file,) = [file for file in recorded(api) if file.name.startswith(name)]
    usage = file.expected["usage"]
    # xAI counts ten thousand millionths of a dollar.
    ticks = usage.get("cost_in_usd_ticks")
    return file, Decimal(ticks) / 10**10 if ticks is not None else Decimal(str(usage["cost"]))


@pytest.mark.parametrize(
    ("api", "name", "service"),
    [
        ("openai_chat", "xai-tool", "x-ai"),
        ("openai_responses", "xai-noarg-tool", "x-ai"),
        ("openai_chat", "openrouter-reasoning-details-tool", "openrouter"),
        ("openai_chat", "openrouter-kimi-noarg", "openrouter"),
    ],
)
async def test_it_is_what_the_service_charged(api: str, name: str, service: str) -> None:
    """Where a service sends its bill along, with cached input and reasoning in it, the price is the same."""
    file, charged = bill_of(api, name)
    assert priced(await message_of(api, file), provider=service) == charged


async def test_cached_input_is_cheaper_and_counted_once() -> None:
    """Of 496 tokens DeepSeek read 384 from its cache."""
    (file,) = [file for file in recorded("openai_chat") if file.name.startswith("deepseek-noarg-tool-cached")]
    message = await message_of("openai_chat", file, name="deepseek")
    assert (message.usage.input, message.usage.cache_read) == (112, 384)
    cached = priced(message)
    fresh = priced(Usage(input=496, output=31), model=message.model, provider="deepseek")
    assert cached is not None
    assert fresh is not None
    assert 0 < cached < fresh


async def test_what_goes_into_the_cache_costs_more() -> None:
    """Anthropic takes a quarter more for five minutes, and double for an hour."""
    usage = Usage(input=4, output=201, cache_write=1165, cache_read=0)
    by = partial(priced, usage, model="claude-3-5-sonnet-20240620", provider="anthropic")
    once, kept = Decimal(4 * 3 + 201 * 15) / 10**6, Decimal(1165 * 3) / 10**6
    assert by() == once + kept * Decimal("1.25")
    assert by(cache="1h") == once + kept * 2


# Who and what is meant


async def test_the_message_says_whose_and_which() -> None:
    """Model and provider of the message hold, and can be replaced."""
    message = AssistantMessage("hi", usage=Usage(input=1000, output=0), model="gpt-4o", provider="openai-responses")
    assert priced(message) == Decimal("0.0025")
    assert priced(message, model="gpt-4o-mini") == Decimal("0.00015")
    assert priced(message, model="claude-haiku-4-5", provider="anthropic") == Decimal("0.001")
    assert priced(message.usage, model="gpt-4o", provider="openai") == Decimal("0.0025")


async def test_behind_a_fallback_the_one_who_answered_is_paid() -> None:
    """The message of a FallbackProvider has the member's name and model."""
    script = ScriptedProvider([text("hi"), finish()])
    script.name = "anthropic"  # type: ignore[misc]  # as a provider's name= does
    message = (await asked(FallbackProvider((script, "claude-haiku-4-5")))).clean()
    assert priced(message) is None
    assert (message.provider, message.model) == ("anthropic", "claude-haiku-4-5")
    assert priced(Usage(input=10**6, output=0), model=message.model, provider=message.provider) == 1


@pytest.mark.parametrize(
    ("url", "model", "dollars"),
    [
        ("https://openrouter.ai/api/v1", "anthropic/claude-haiku-4.5", 1),
        ("https://api.deepseek.com", "claude-haiku-4.5", None),
        ("http://127.0.0.1:8080/v1", "gpt-4o", None),
    ],
)
async def test_a_providers_address_says_who_is_paid(url: str, model: str, dollars: int | None) -> None:
    """A server on this machine costs nothing that is known, whatever it calls its model."""
    provider = OpenAIChat(base_url=url, api_key="")
    assert priced(Usage(input=10**6, output=0), model=model, provider=provider) == dollars


# Never a guess

ONE = Usage(input=1, output=1)


@pytest.mark.parametrize(
    ("usage", "model", "provider"),
    [
        (ONE, "no-such-model", "openai"),
        (ONE, "gpt-4o", "no-such-service"),
        (ONE, "gpt-4o", "my-openai-proxy"),  # the lists would take it for OpenAI
        (ONE, "gpt-4o", "anthropic"),
        (ONE, "gpt-4o", None),  # the lists would guess
        (ONE, None, "openai"),
        (ONE, "local", "local"),
        (Usage(), "gpt-4o", "openai"),
        (Usage(input=1), "gpt-4o", "openai"),
        (Usage(output=1), "gpt-4o", "openai"),
        (Usage(input=-1, output=1), "gpt-4o", "openai"),
        (ONE, "text-embedding-3-small", "openai"),  # has no price for output
        (ONE, "sonar", "perplexity"),  # is paid by the request too, by how much the counts do not tell
    ],
)
async def test_what_is_not_known_is_none(usage: Usage, model: str | None, provider: str | None) -> None:
    """No price for part of it, none of another model's, none of another provider's."""
    assert priced(usage, model=model, provider=provider) is None


async def test_a_count_that_was_not_given_counts_as_nothing_only_in_caches() -> None:
    """Services leave out what was not cached, never what was read or written."""
    assert priced(Usage(input=1000, output=0), model="gpt-4o", provider="openai") == priced(
        Usage(input=1000, output=0, cache_read=0, cache_write=0, reasoning=0), model="gpt-4o", provider="openai"
    )


@pytest.mark.parametrize(
    ("of", "provider", "words"),
    [
        (None, "openai", "one answer's message or its usage, not NoneType"),
        ([ONE], "openai", "one answer's message or its usage, not list"),
        (ONE, ScriptedProvider(), "ScriptedProvider is neither"),
    ],
)
async def test_what_cannot_be_priced_is_refused(of: Any, provider: Any, words: str) -> None:
    """A mistake of the caller's does not look like an unknown price."""
    with pytest.raises(TypeError, match=words):
        price(of, model="gpt-4o", provider=provider)


async def test_prices_have_their_time() -> None:
    """`at` is when the request was made; the lists know when prices changed."""
    usage = Usage(input=10**6, output=0)
    by = partial(price, usage, model="o3", provider="openai")
    assert by(at=dt.datetime(2025, 5, 1, tzinfo=dt.UTC)) == 10
    assert by(at=AT) == 2


async def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ImportError that names the extra, and no None that looks like an unknown price."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "genai_prices" else find(name))
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'trio-agent\[prices\]'"):
        price(ONE, model="gpt-4o", provider="openai")
