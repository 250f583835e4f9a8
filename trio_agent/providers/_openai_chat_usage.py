"""Token counts of Chat Completions to `Usage`.

Here lives the arithmetic alone: services disagree about what a count includes, and the totals tell.
"""

from __future__ import annotations

from typing import Any

from .._messages import Usage
from ._json_values import count_of, object_of


def read_usage(usage: dict[str, Any]) -> Usage:
    """Counts that are not whole numbers count as not given."""
    prompt = count_of(usage, "prompt_tokens")
    output = count_of(usage, "completion_tokens")
    total = count_of(usage, "total_tokens")
    given, made = object_of(usage.get("prompt_tokens_details")), object_of(usage.get("completion_tokens_details"))
    cached = _first(count_of(given, "cached_tokens"), count_of(usage, "prompt_cache_hit_tokens", "cached_tokens"))
    written = count_of(given, "cache_write_tokens", "cache_creation_tokens")
    reasoning = _first(count_of(made, "reasoning_tokens"), count_of(usage, "reasoning_tokens"))
    if prompt is not None and output is not None:
        if reasoning and prompt + output + reasoning == total:
            # Some leave reasoning out of the completion; here `output` includes it.
            output += reasoning
        total = prompt + output if total is None else total
    fresh = None if prompt is None else max(0, prompt - (cached or 0) - (written or 0))
    return Usage(fresh, output, cached, written, reasoning, total)


def _first(left: int | None, right: int | None) -> int | None:
    return right if left is None else left
