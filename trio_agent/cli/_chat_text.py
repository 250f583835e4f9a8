"""Words for a conversation on a terminal: text made safe to show, and what is told about tools, tokens and time.

Here live plain functions from values to strings. How they look is decided in `_chat_view.py` and `_chat_plain.py`.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, cast

from .._messages import ToolCall, ToolResultMessage, Usage
from ._usage import one_line

_SEQUENCES: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])|\x9b[0-?]*[ -/]*[@-~]"
)
_JOINERS: Final = "\u200c\u200d"  # many scripts, and emoji, are not right without them
_REPLACED: Final = {"Zl": "\n", "Zp": "\n", "Zs": " ", "Cs": "\ufffd", "Cn": "\ufffd", "Cc": "", "Cf": ""}
_FIRST: Final = ("path", "command", "pattern", "query", "url")  # the arguments that say most, where there are several


def shown(text: str) -> str:
    """The text as a terminal may get it: nothing in it moves the cursor, changes colours or hides other text."""
    if text.isprintable():
        return text
    text = _SEQUENCES.sub("", text).replace("\r\n", "\n").replace("\r", "\n").expandtabs(4)
    return "".join([char if char.isprintable() or char == "\n" else _replaced(char) for char in text])


def _replaced(char: str) -> str:
    return char if char in _JOINERS else _REPLACED.get(unicodedata.category(char), char)


def excerpt(text: str, most: int) -> str:
    """One line of at most so many characters."""
    line = one_line(shown(text))
    return line if len(line) <= most else f"{line[: most - 1]}…"


def call_words(call: ToolCall) -> str:
    """A call's arguments as people read them: the telling one alone, or all of them as they came."""
    decoded = call.arguments
    if not isinstance(decoded, dict) or not decoded:
        return "" if call.raw == "{}" else shown(call.raw)
    arguments = cast("dict[str, Any]", decoded)
    for name in _FIRST:
        if isinstance(arguments.get(name), str):
            return shown(arguments[name])
    if len(arguments) == 1:
        (only,) = arguments.values()
        return shown(only if isinstance(only, str) else json.dumps(only, ensure_ascii=False))
    return shown(call.raw)


def diff_of(result: ToolResultMessage) -> str | None:
    """What a tool that writes says that it changed."""
    details: Any = result.details
    if not isinstance(details, Mapping):
        return None
    diff: Any = cast("Mapping[str, Any]", details).get("diff")
    return shown(diff) if isinstance(diff, str) and diff.strip() else None


def tokens(usage: Usage) -> str | None:
    """`1,234 tokens (1,200 in, 34 out)`, or None where nothing is known."""
    total = usage.known_total
    if total is None:
        return None
    read = [part for part in (usage.input, usage.cache_read, usage.cache_write) if part is not None]
    parts = [f"{sum(read):,} in"] if read else []
    if usage.output is not None:
        parts.append(f"{usage.output:,} out")
    return f"{total:,} tokens" + (f" ({', '.join(parts)})" if parts else "")


def money(cost: Decimal) -> str:
    """Dollars, with as many places as tell something."""
    return f"${cost:.2f}" if cost >= 1 else f"${cost:.4f}"


def turns(count: int) -> str:
    return f"{count} turn{'' if count == 1 else 's'}"


def seconds(duration: float) -> str:
    """`0.4 s`, `12 s`, `3 min 5 s`."""
    if duration < 10:
        return f"{duration:.1f} s"
    whole = round(duration)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"
