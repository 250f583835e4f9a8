"""What went wrong at a service, in the words of all of them, to `ProviderError`.

Here live the vocabularies: HTTP statuses, error types, codes and phrases of messages. Pure: no I/O, no clock
but the one that is passed. When an answer is an error at all is the business of `_http.py` and the readers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

import attrs

from .._errors import ProviderError, ProviderErrorKind
from ._answer import decode_json, excerpt
from ._json_values import list_of, object_of, objects_of, text_of
from ._keys import Secret, redacted
from ._retry_after import retry_after_seconds

_MESSAGE_LIMIT: Final = 500
_PAGE_LIMIT: Final = 4000  # characters of a page or a message that are looked at

_OVERFLOW_CODES: Final = frozenset(
    {
        "context_length_exceeded",
        "context_window_exceeded",
        "exceed_context_size_error",
        "model_context_window_exceeded",
        "request_too_large",
        "prompt_too_long",
    }
)
_OVERFLOW_WORDS: Final = re.compile(
    r"maximum context|max(imum)? (model|prompt|input|sequence) length|context[ _-](length|window|size|limit|overflow)"
    r"|(prompt|input|request|conversation|message)s? (is |are )?too (long|large)|exceeded max context"
    r"|token count .{0,40}exceeds|exceeds? .{0,40}(number of (input )?tokens|token limit)|exceeded model token limit"
    r"|reduce the length of|too many (input )?tokens|max_new_tokens.{0,20}must be <=|more than max tokens allowed",
    re.IGNORECASE,
)
_QUOTA_CODES: Final = frozenset(
    {
        "insufficient_quota",
        "billing_error",
        "billing_hard_limit_reached",
        "billing_not_active",
        "insufficient_balance",
        "insufficient_credits",
        "insufficient_user_quota",
        "exceeded_current_quota_error",
        "credit_limit_exceeded",
        "quota_exceeded",
    }
)
_QUOTA_WORDS: Final = re.compile(
    r"insufficient (account )?(quota|balance|credit|fund)|(no|not enough|out of|run out of|used all .{0,20}) credit"
    r"|exceeded your (current|monthly) (quota|usage)|credit balance is too low|check your plan and billing"
    r"|spend(ing)? limit|requires more credits|account is (not active|suspended)",
    re.IGNORECASE,
)
_AUTHENTICATION_CODES: Final = frozenset(
    {
        "api_key_invalid",
        "authentication_error",
        "invalid_api_key",
        "invalid_authentication",
        "invalid_authentication_error",
        "permission_denied",
        "permission_error",
        "unauthenticated",
        "unauthorized",
    }
)
_AUTHENTICATION_WORDS: Final = re.compile(
    r"(invalid|incorrect|missing|expired|wrong) (x-)?api[ _-]?key|api key (not valid|not found|expired|is invalid)",
    re.IGNORECASE,
)
_FILTER_CODES: Final = frozenset(
    {"content_filter", "content_policy_violation", "moderation", "responsibleaipolicyviolation", "prohibited_content"}
)
_OVERLOADED_CODES: Final = frozenset(
    {"engine_overloaded", "engine_overloaded_error", "overloaded", "overloaded_error", "server_overloaded", "slow_down"}
    | {"unavailable", "service_unavailable", "server_is_overloaded", "capacity_exceeded"}
)
_RATE_CODES: Final = frozenset(
    {"rate_limit", "rate_limit_error", "rate_limit_exceeded", "ratelimitreached", "resource_exhausted"}
    | {"too_many_requests", "rate_limit_reached_error", "tokens", "requests"}
)
_REQUEST_CODES: Final = frozenset(
    {"badrequesterror", "invalid_argument", "invalid-argument", "invalid_request", "invalid_request_error"}
    | {"model_not_found", "not_found", "not_found_error", "tool_use_failed", "failed_precondition"}
)
_TIMEOUT_CODES: Final = frozenset({"deadline_exceeded", "timeout", "timeout_error", "request_timeout"})

_BY_STATUS: Final[dict[int, ProviderErrorKind]] = {
    401: "authentication",
    402: "rate_limit",
    403: "authentication",
    407: "authentication",
    408: "timeout",
    409: "server",  # somebody else holds the lock; the services' own clients try again
    425: "server",
    429: "rate_limit",
    498: "overloaded",
    503: "overloaded",
    529: "overloaded",
}
_BY_CODE: Final[tuple[tuple[frozenset[str], ProviderErrorKind], ...]] = (
    (_OVERLOADED_CODES, "overloaded"),
    (_RATE_CODES, "rate_limit"),
    (_TIMEOUT_CODES, "timeout"),
    (_REQUEST_CODES, "invalid_request"),
)


@attrs.frozen
class Complaint:
    """What an error body says: its text, its codes in lower case, and the status that it names itself."""

    message: str = ""
    codes: frozenset[str] = frozenset()
    status: int | None = None
    payload: dict[str, Any] = attrs.field(factory=dict[str, Any])


def http_error(
    status: int, headers: Mapping[str, str], body: bytes, *, now: float, secrets: Iterable[Secret] = ()
) -> ProviderError:
    """The error of an answer whose status is not a success. Header names in lower case, or a mapping that ignores case.

    `now` is what the clock says, in seconds since 1970: `Retry-After` may be a date.
    """
    complaint = read_complaint(_body_value(body))
    delay = retry_after_seconds(headers, complaint.payload, complaint.message, now)
    kind = _kind(status, complaint)
    retryable = _retryable(kind, complaint, status, delay, headers.get("x-should-retry", ""))
    message = f"HTTP {_status_text(status)}"
    if complaint.message:
        message += f": {excerpt(redacted(complaint.message, secrets), _MESSAGE_LIMIT)}"
    if status == 413:
        message += "; the request is too large for this server: shorten the conversation, or send smaller images"
    return ProviderError(kind, message, retryable, delay, status)


def stream_error(payload: Any, *, secrets: Iterable[Secret] = ()) -> ProviderError:
    """The error that an error object inside an answer with status 200 stands for."""
    complaint = read_complaint(payload)
    status = complaint.status
    delay = retry_after_seconds({}, payload, complaint.message, 0.0)
    kind = _kind(status, complaint)
    retryable = _retryable(kind, complaint, status, delay)
    message = excerpt(redacted(complaint.message, secrets), _MESSAGE_LIMIT) or "no reason given"
    return ProviderError(kind, f"the service reported an error: {message}", retryable, delay, status)


def find_error(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The document itself if it carries an error, in whatever shape, or None."""
    if (
        document.get("error")
        or document.get("error_message")
        or "error" in (document.get("object"), document.get("type"))
    ):
        return document
    if "choices" in document:
        return None
    is_bare = "detail" in document or ("message" in document and ("code" in document or "status" in document))
    return document if is_bare else None


def read_complaint(payload: Any) -> Complaint:
    """Text, codes and status of an error body, whoever wrote it."""
    if isinstance(payload, str):
        return Complaint(payload[:_PAGE_LIMIT])
    outer = object_of(payload) or next(iter([*objects_of(payload), object_of(None)]))
    details = object_of(outer.get("error")) or outer
    sources = (outer, details, object_of(details.get("innererror")))
    codes = {str(source.get(key)).lower() for source in sources for key in ("code", "type", "status", "error_type")}
    codes.update(_google_reasons(details.get("details")))
    status = _named_status(details) or _named_status(outer)
    return Complaint(_message(outer, details)[:_PAGE_LIMIT], frozenset(codes), status, outer)


def _message(outer: dict[str, Any], details: dict[str, Any]) -> str:
    candidates = (
        details.get("message"),
        outer.get("error"),
        outer.get("error_message"),
        outer.get("detail"),
        outer.get("message"),
        details.get("error_description"),
    )
    message = next((text for text in map(_plain, candidates) if text), "")
    # OpenRouter wraps what the upstream service said, and says itself only that there was an error.
    raw = text_of(object_of(details.get("metadata")).get("raw")).strip()
    return f"{message}: {raw}" if raw else message


def _plain(value: Any) -> str:
    """Text as it is, or the texts of a list of complaints about single fields, as FastAPI gives them."""
    found = [text_of(item) or text_of(object_of(item).get("msg")) for item in list_of(value)[:5]]
    return text_of(value).strip() or "; ".join(filter(None, found))


def _google_reasons(details: Any) -> Iterator[str]:
    """Google's reasons, and the names of its quotas: only they tell a daily one from one per minute."""
    for detail in objects_of(details):
        yield text_of(detail.get("reason")).lower()
        for violation in objects_of(detail.get("violations")):
            yield text_of(violation.get("quotaId")).lower()


def _named_status(source: dict[str, Any]) -> int | None:
    for key in ("status_code", "code", "status", "http_status"):
        value = source.get(key)
        if isinstance(value, str) and value.isdecimal() and len(value) == 3:
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599:
            return value
    return None


def _kind(status: int | None, complaint: Complaint) -> ProviderErrorKind:
    codes = complaint.codes
    if codes & _OVERFLOW_CODES or status == 413:
        return "context_overflow"
    if status == 429 and complaint.message.lower().startswith("request too large"):
        # More than the limit per minute in one request: no waiting cures that, a shorter one does.
        return "context_overflow"
    if status in (None, 400, 422, 500) and not codes & _RATE_CODES and _OVERFLOW_WORDS.search(complaint.message):
        return "context_overflow"
    if codes & _FILTER_CODES:
        return "content_filter"
    if codes & _QUOTA_CODES:
        return "rate_limit"
    if status in (None, 400) and (codes & _AUTHENTICATION_CODES or _AUTHENTICATION_WORDS.search(complaint.message)):
        return "authentication"
    if status is not None:
        return _kind_of_status(status, complaint)
    for known, kind in _BY_CODE:
        if codes & known:
            return kind
    return "server"


def _kind_of_status(status: int, complaint: Complaint) -> ProviderErrorKind:
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500:
        return "overloaded" if complaint.codes & _OVERLOADED_CODES else "server"
    return "invalid_request"


def _retryable(
    kind: ProviderErrorKind, complaint: Complaint, status: int | None, delay: float | None, advice: str = ""
) -> bool | None:
    """Whether to try again where the kind alone does not say it. None leaves it to the kind."""
    if kind == "rate_limit" and _is_spent(complaint, status, delay):
        return False
    if kind in ("context_overflow", "content_filter", "authentication", "protocol"):
        return False
    return {"true": True, "false": False}.get(advice.strip().lower())


def _is_spent(complaint: Complaint, status: int | None, delay: float | None) -> bool:
    """Whether waiting cures nothing: the account is empty, or the quota is for the day."""
    if status == 402 or complaint.codes & _QUOTA_CODES or any("perday" in code for code in complaint.codes):
        return True
    return delay is None and bool(_QUOTA_WORDS.search(complaint.message))


def _status_text(status: int) -> str:
    if status == 529:
        return "529 Overloaded"
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


_MARKUP: Final = re.compile(r"<(script|style)\b.*?</\1>|<!--.*?-->|<[^>]{0,1000}>", re.IGNORECASE | re.DOTALL)
_TITLE: Final = re.compile(r"<(title|h1)[^>]{0,200}>(.{1,300}?)</\1>", re.IGNORECASE | re.DOTALL)


def _body_value(body: bytes) -> Any:
    """The body as JSON, or as short text where it is a page or anything else."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = body.decode("latin-1")
    text = text.strip()
    if text.startswith(("data:", "event:")):  # an error in the form of a stream
        text = text[text.find("{") :].strip()
    try:
        return decode_json(text)
    except ValueError:
        pass
    if text.startswith("<"):
        title = _TITLE.search(text[:_PAGE_LIMIT])
        return excerpt(title.group(2) if title else _MARKUP.sub(" ", text[:_PAGE_LIMIT]), 200)
    return excerpt(text, 200)
