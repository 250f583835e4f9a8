"""How long a service asks us to wait, wherever it says so.

Here live the headers, Google's RetryInfo and the phrases in messages. Pure: the clock is passed. How long
anybody is willing to wait is the retry policy's business.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Final

from ._json_values import object_of, objects_of, text_of

_PHRASE: Final = re.compile(
    r"(?:try again|retry) (?:in|after) ((?:\d{1,9}(?:\.\d{1,9})?\s?(?:ms|s|m|h|d)[a-z]{0,10},? ?)+)", re.IGNORECASE
)
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s?(ms|s|m|h|d)", re.IGNORECASE)
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def retry_after_seconds(headers: Mapping[str, str], payload: Any, message: str, now: float) -> float | None:
    """The wait that is asked for, in seconds, or None where none is or it is over already.

    Headers count before the body, and the body's fields before its words; the longest of one kind. Milliseconds count
    before whole seconds, to which services round them: as their own clients read it.
    """
    sources = (_from_milliseconds(headers), _from_header(headers, now), _from_details(payload), _from_message(message))
    for source in sources:
        waits = [wait for wait in source if wait is not None and math.isfinite(wait) and wait > 0]
        if waits:
            return max(waits)
    return None


def _from_milliseconds(headers: Mapping[str, str]) -> Iterator[float | None]:
    milliseconds = _number(headers.get("retry-after-ms"))
    yield None if milliseconds is None else milliseconds / 1000


def _from_header(headers: Mapping[str, str], now: float) -> Iterator[float | None]:
    text = headers.get("retry-after")
    seconds = _number(text)
    yield _until(text, now) if seconds is None else seconds


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _until(date: str | None, now: float) -> float | None:
    try:
        moment = parsedate_to_datetime(date or "")
        # "-0000" gives a date without a zone; by RFC 5322 it is in UTC all the same.
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _from_details(payload: Any) -> Iterator[float | None]:
    for detail in objects_of(object_of(object_of(payload).get("error")).get("details")):
        yield _number(text_of(detail.get("retryDelay")).removesuffix("s"))


def _from_message(message: str) -> Iterator[float | None]:
    for phrase in _PHRASE.finditer(message):
        yield sum(float(number) * _UNITS[unit.lower()] for number, unit in _PART.findall(phrase.group(1)))
