"""What an answer cost, by the price lists of genai-prices (extra `prices`).

Here lives the mapping of our counts and names to that package's. Nothing here waits or asks the network.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any, Final, TypeAlias, cast

from .._messages import AssistantMessage, Usage
from ._anthropic_request import CacheTime
from ._extras import needs
from ._service import HTTPProvider

Provider: TypeAlias = str | HTTPProvider

# Our names of the APIs, as far as their makers' price lists have others.
_MAKERS: Final = {"openai-chat": "openai", "openai-responses": "openai", "gemini": "google", "xai": "x-ai"}


def price(
    of: AssistantMessage | Usage,
    *,
    model: str | None = None,
    provider: Provider | None = None,
    cache: CacheTime = "5m",
    at: dt.datetime | None = None,
) -> Decimal | None:
    """US dollars for the tokens of one answer, or None where they are not known: never a guess.

    `model` and `provider` are by default the message's. A provider is named as in genai-prices, or as the classes here
    are by default, which then means the maker of the API; the provider itself says more, as its address tells who is
    paid. `cache` is how long an `Anthropic` keeps what is written to its cache, `at` the time of the request (default:
    now).

    None: no model or no provider is given; either is not in the lists; input or output was not counted; the list has no
    price for one that was, or has one for each request. A cache count that is None counts as nothing, for services
    leave it out where there was none. What a service charges for tools of its own is not in it. Prices may depend on
    the size of a request, so ask for each message and add, rather than for a sum of usages.

    Raises `ModuleNotFoundError` without the extra `prices`.
    """
    if not isinstance(of, AssistantMessage | Usage):
        raise TypeError(f"price() takes one answer's message or its usage, not {type(of).__name__}")
    if not isinstance(provider, str | HTTPProvider | None):
        raise TypeError(f"a provider is named, or is one of a service; {type(provider).__name__} is neither")
    lists = needs("genai_prices", "prices")
    usage = of if isinstance(of, Usage) else of.usage
    if isinstance(of, AssistantMessage):
        model, provider = model or of.model, provider or of.provider
    if not model or not provider or usage.input is None or usage.output is None:
        return None
    found = _calculated(lists, usage, cache, model, provider, at)
    if found is None or not _is_complete(found.model_price, usage):
        return None
    return cast("Decimal", found.total_price)


def _calculated(
    lists: Any, usage: Usage, cache: CacheTime, model: str, provider: Provider, at: dt.datetime | None
) -> Any:
    try:
        counts = _counts(lists, usage, cache)
        if isinstance(provider, HTTPProvider):
            return lists.calc_price(counts, model, provider_api_url=str(provider.base_url), genai_request_timestamp=at)
        name = _MAKERS.get(provider, provider)
        found = lists.calc_price(counts, model, provider_id=name, genai_request_timestamp=at)
    except (LookupError, ValueError):  # not in the lists, or counts that contradict each other
        return None
    # The package also takes a name for a provider's that merely contains it.
    return found if found.provider.id == name else None


def _counts(lists: Any, usage: Usage, cache: CacheTime) -> Any:
    """The counts as genai-prices has them: input with all that came from the cache and went into it."""
    read, written = usage.cache_read or 0, usage.cache_write or 0
    kept_long = {"cache_write_1h_tokens": written} if cache == "1h" else {}
    return lists.Usage(
        input_tokens=(usage.input or 0) + read + written,
        cache_read_tokens=read,
        cache_write_tokens=written,
        **kept_long,
        output_tokens=usage.output,
        output_reasoning_tokens=usage.reasoning,
    )


def _is_complete(prices: Any, usage: Usage) -> bool:
    """Whether there is a price for all that was counted, and none for what was not: some want one for the request."""
    read = (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)
    missing = (read and prices.input_mtok is None) or (usage.output and prices.output_mtok is None)
    return not missing and prices.requests_kcount is None
