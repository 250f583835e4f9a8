"""What Anthropic's models want said differently, told from their names.

Here lives the reading of versions and the dial for thinking. A name that says no version is spoken to as the
first models that think are, which is what other servers of this API understand.
"""

from __future__ import annotations

import re
from typing import Any, Final

import attrs

from .._request import Reasoning

_NUMBERS: Final = re.compile(r"(?<![\dv])\d{1,2}(?!\d)")
_BUDGETS: Final[dict[Reasoning, int]] = {"minimal": 1024, "low": 4096, "medium": 8192, "high": 16384, "max": 24576}
_SMALLEST_BUDGET: Final = 1024


@attrs.frozen
class ClaudeModel:
    """What a model accepts. `max_tokens` is what to ask for where nobody says: this API has no default of its own."""

    max_tokens: int = 32_000
    thinks: bool = True
    adaptive: bool = False  # it decides itself how long to think, and is only told how hard to try
    sampling: bool = True  # it takes temperature and top_p
    strict: bool = False

    @classmethod
    def named(cls, name: str) -> ClaudeModel:
        """`claude-sonnet-4-6`, `claude-3-5-haiku-20241022`, `anthropic.claude-opus-4-1-20250805-v1:0`, …"""
        _, claude, rest = name.lower().rpartition("claude-")
        if not claude:
            return cls()
        numbers = [int(number) for number in _NUMBERS.findall(re.sub(r"\d{4,}.*", "", rest))]
        version = (*numbers, 0, 0)[:2]
        if not numbers:
            # The first of a family has no number: it came after those that have one.
            return cls(adaptive="mythos" in rest, sampling="mythos" not in rest)
        return cls(
            max_tokens=4096 if version < (3, 5) else 8192 if version < (3, 7) else 32_000,
            thinks=version >= (3, 7),
            adaptive=version >= (4, 6),
            sampling=version < (4, 7),
            strict=version >= (4, 5),
        )

    def thinking(self, level: Reasoning, max_tokens: int) -> dict[str, Any]:
        """The fields of the body for this position of the dial; none for `off`, or where there is no room for it."""
        if level == "off" or not self.thinks:
            return {}
        if self.adaptive:
            effort = "low" if level == "minimal" else level
            return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": effort}}
        budget = _BUDGETS[level]
        if budget >= max_tokens:
            budget = max_tokens // 2
        if budget < _SMALLEST_BUDGET:
            return {}
        return {"thinking": {"type": "enabled", "budget_tokens": budget}}
