"""What Gemini's models want said differently, told from their names.

Here lives the reading of versions and the dial for thinking. A model that is not known to think is told nothing of it.
"""

from __future__ import annotations

import re
from typing import Any, Final

import attrs

from .._request import Reasoning

_VERSION: Final = re.compile(r"gemini-(\d+)(?:\.(\d+))?")
_LATEST: Final = re.compile(r"gemini-(pro|flash|flash-lite)-latest")
_BUDGETS: Final[dict[Reasoning, int]] = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "max": 24576}


@attrs.frozen
class GeminiModel:
    """What a model accepts.

    `levels`: it is told how hard to think in words, and its calls of functions must be signed. `budgets`: it is told in
    tokens. `nested_images`: what a function gives back may hold images.
    """

    levels: bool = False
    budgets: bool = False
    can_stop_thinking: bool = False
    has_minimal: bool = False
    has_medium: bool = True
    nested_images: bool = False

    @classmethod
    def named(cls, name: str) -> GeminiModel:
        """`gemini-2.5-flash`, `models/gemini-3.1-pro-preview`, `gemini-flash-latest`, …"""
        name = name.lower()
        version = _version_of(name)
        flash = "flash" in name
        return cls(
            levels=version >= (3, 0),
            budgets=(2, 5) <= version < (3, 0),
            can_stop_thinking=version == (2, 5) and flash,
            has_minimal=flash,
            has_medium=flash or version > (3, 0),
            nested_images=version >= (3, 0),
        )

    def thinking(self, level: Reasoning) -> dict[str, Any]:
        """`thinkingConfig` for this position of the dial; empty where there is nothing to say."""
        if level == "off":
            return {"thinkingBudget": 0} if self.can_stop_thinking else {}
        if self.levels:
            word = "high" if level == "max" or (level == "medium" and not self.has_medium) else level
            if word == "minimal" and not self.has_minimal:
                word = "low"
            return {"thinkingLevel": word.upper(), "includeThoughts": True}
        return {"thinkingBudget": _BUDGETS[level], "includeThoughts": True} if self.budgets else {}


def _version_of(name: str) -> tuple[int, int]:
    found = _VERSION.search(name)
    if found is not None:
        return int(found[1]), int(found[2] or 0)
    return (3, 9) if _LATEST.search(name) else (0, 0)
