"""Every service's way of saying what went wrong becomes the same few kinds, waits and short messages."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wire_files import Recorded, compact, recorded
from trio_agent._errors import ProviderError
from trio_agent.providers._http_errors import find_error, http_error, stream_error
from trio_agent.providers._keys import Secret
from trio_agent.providers._retry_after import retry_after_seconds

# kind, retryable, seconds to wait
WANTED: dict[str, tuple[str, bool, float | None]] = {
    "anthropic-400-context.json": ("context_overflow", False, None),
    "anthropic-401.json": ("authentication", False, None),
    "anthropic-413-too-large.json": ("context_overflow", False, None),
    "anthropic-529-overloaded.json": ("overloaded", True, None),
    "azure-401.json": ("authentication", False, None),
    "azure-429.json": ("rate_limit", True, 1.0),
    "deepseek-400-context.json": ("context_overflow", False, None),
    "deepseek-401.json": ("authentication", False, None),
    "gemini-400-bad-key.json": ("authentication", False, None),
    "gemini-404-model.json": ("invalid_request", False, None),
    "gemini-429-quota-retryinfo.json": ("rate_limit", True, 48.0),
    "groq-400-tool-use-failed.json": ("invalid_request", False, None),
    "groq-404.json": ("invalid_request", False, None),
    "llamacpp-400-context.json": ("context_overflow", False, None),
    "mistral-401.json": ("authentication", False, None),
    "ollama-400-context.json": ("context_overflow", False, None),
    "openai-400-context.json": ("context_overflow", False, None),
    "openai-401.json": ("authentication", False, None),
    "openai-404-model.json": ("invalid_request", False, None),
    "openai-429-tpm.json": ("rate_limit", True, 26.604),
    "openrouter-400-context.json": ("context_overflow", False, None),
    "openrouter-429.json": ("rate_limit", True, None),
    "perplexity-401.json": ("authentication", False, None),
    "xai-400-bad-key.json": ("authentication", False, None),
}


def message_of(body: Any) -> str:
    """What the service said, wherever it said it."""
    if isinstance(body, dict):
        return next(filter(None, [message_of(body.get(key)) for key in ("message", "error", "detail")]))
    return body if isinstance(body, str) else ""


def seen(error: ProviderError) -> tuple[str, bool, float | None]:
    return error.kind, error.retryable, error.retry_after


@pytest.mark.parametrize("file", recorded("errors"), ids=repr)
def test_a_recorded_error_is_understood(file: Recorded) -> None:
    """Kind, whether to retry and how long to wait of each recorded error body, and its message in the error."""
    error = http_error(file.meta["status"], file.meta["headers"], file.body, now=0.0)
    assert seen(error) == WANTED[file.name]
    assert error.status == file.meta["status"]
    first_words = " ".join(message_of(file.expected["error_body"]).split())[:60]
    assert first_words
    assert first_words in error.message
    assert len(error.message) < 600


def test_every_recorded_error_has_an_expectation() -> None:
    """The table above names every recorded body, and no other."""
    assert {file.name for file in recorded("errors")} == set(WANTED)


OVERFLOWS = [
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Please reduce the length of the messages or completion.",
    "tokens in request more than max tokens allowed",
    "`inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens",
    "Input is too long for requested model.",
    "Prompt contains 43000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "the request exceeds the available context size. try increasing the context size or enable context shift",
    "Your request exceeded model token limit: 131072",
    "Trying to keep the first 5000 tokens when context the overflows. context window exceeds limit",
    "This model's maximum sequence length is 4096",
]


@pytest.mark.parametrize("words", OVERFLOWS)
def test_context_overflow_is_recognised_by_its_words(words: str) -> None:
    """However a service words it, a prompt that is too long is an overflow, as an HTTP error and in a stream."""
    body = {"error": {"message": words, "type": "invalid_request_error"}}
    assert seen(http_error(400, {}, compact(body), now=0)) == ("context_overflow", False, None)
    assert stream_error(body).kind == "context_overflow"


@pytest.mark.parametrize(
    "words",
    [
        "Rate limit reached: maximum context tokens per minute",
        "max_tokens is too large: this model supports at most 4096",
        "image too large",
        "tool name is too long",
        "Invalid 'messages': the list is too long to read",
    ],
)
def test_other_limits_are_no_overflow(words: str) -> None:
    """Rate limits and other things that are too long are not taken for the context."""
    assert http_error(400, {}, compact({"error": {"message": words, "code": "rate_limit_exceeded"}}), now=0).kind != (
        "context_overflow"
    )
    assert http_error(429, {}, compact({"error": {"message": words}}), now=0).kind == "rate_limit"


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "invalid_request", False),
        (401, "authentication", False),
        (402, "rate_limit", False),
        (403, "authentication", False),
        (404, "invalid_request", False),
        (405, "invalid_request", False),
        (408, "timeout", True),
        (409, "server", True),
        (413, "context_overflow", False),
        (418, "invalid_request", False),
        (422, "invalid_request", False),
        (425, "server", True),
        (429, "rate_limit", True),
        (498, "overloaded", True),
        (500, "server", True),
        (501, "server", True),
        (502, "server", True),
        (503, "overloaded", True),
        (504, "server", True),
        (524, "server", True),
        (529, "overloaded", True),
        (599, "server", True),
    ],
)
@pytest.mark.parametrize(
    "body", [b"", b"<html><body><h1>Odd</h1></body></html>", b"\xff\xfe", b"null", b"[]", b"{}", b"3"]
)
def test_the_status_alone_says_enough(status: int, kind: str, retryable: bool, body: bytes) -> None:
    """Where the body says nothing, or is a page, the status decides."""
    error = http_error(status, {}, body, now=0)
    assert (error.kind, error.retryable, error.status) == (kind, retryable, status)
    assert str(status) in error.message
    assert len(error.message) < 300


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": "insufficient_quota", "type": "insufficient_quota", "message": "You have no credit"}},
        {"error": {"message": "You exceeded your current quota, please check your plan and billing details."}},
        {"error": {"message": "Insufficient Balance", "code": "invalid_request_error"}},
        {"error": {"type": "billing_error", "message": "no"}},
        {
            "error": {
                "details": [{"violations": [{"quotaId": "GenerateRequestsPerDayPerProject"}]}, {"retryDelay": "9s"}]
            }
        },
    ],
    ids=repr,
)
def test_an_empty_account_is_told_from_a_rate_limit(body: dict[str, Any]) -> None:
    """A 429 that no waiting cures is not retried."""
    error = http_error(429, {}, compact(body), now=0)
    assert (error.kind, error.retryable) == ("rate_limit", False)


def test_more_in_one_request_than_a_minute_allows_is_an_overflow() -> None:
    """A request larger than the limit per minute never gets through, however long one waits; a shorter one does."""
    words = "Request too large for gpt-4 on tokens per min (TPM): Limit 10000, Requested 20000."
    body = compact({"error": {"message": words, "type": "tokens", "code": "rate_limit_exceeded"}})
    assert http_error(429, {}, body, now=0).kind == "context_overflow"


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        ({"error": {"message": "x", "type": "overloaded_error"}}, "overloaded"),
        ({"error": {"message": "x", "type": "server_error", "code": 500}}, "server"),
        ({"error": {"message": "x", "code": 429}}, "rate_limit"),
        ({"error": {"message": "x", "code": "429"}}, "rate_limit"),
        ({"error": {"message": "x", "type": "rate_limit_error"}}, "rate_limit"),
        ({"error": {"message": "x", "status": "RESOURCE_EXHAUSTED"}}, "rate_limit"),
        ({"error": {"message": "x", "status": "UNAVAILABLE"}}, "overloaded"),
        ({"error": {"message": "x", "status": "DEADLINE_EXCEEDED"}}, "timeout"),
        ({"error": {"message": "x", "type": "invalid_request_error"}}, "invalid_request"),
        ({"error": {"message": "x", "type": "authentication_error"}}, "authentication"),
        ({"error": {"message": "x", "code": "content_filter"}}, "content_filter"),
        ({"error": {"message": "x", "innererror": {"code": "ResponsibleAIPolicyViolation"}}}, "content_filter"),
        ({"error": "x"}, "server"),
        ({"error_type": "BadRequestError", "error_message": "x"}, "invalid_request"),
        ({"object": "error", "message": "x", "code": 400}, "invalid_request"),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "x"}}, "overloaded"),
        ({"code": "invalid-argument", "error": "x"}, "invalid_request"),
        ({"detail": [{"loc": ["body"], "msg": "x"}]}, "server"),
        ({"message": "x", "code": "no_such_thing"}, "server"),
    ],
    ids=repr,
)
def test_an_error_object_in_a_stream_is_understood(payload: dict[str, Any], kind: str) -> None:
    """Types, codes and statuses inside an answer with status 200 give the kind; the message says why."""
    assert find_error(payload) is payload
    error = stream_error(payload)
    assert error.kind == kind
    assert error.message.endswith("x")


@pytest.mark.parametrize(
    "payload", [{}, {"error": None}, {"error": ""}, {"id": "c1", "message": "hi"}, {"choices": [], "detail": "x"}]
)
def test_what_is_no_error_is_none(payload: dict[str, Any]) -> None:
    """Empty error fields, and fields that only look like one, are no error."""
    assert find_error(payload) is None


ODD = [
    None,
    True,
    3,
    1.5,
    "x",
    "",
    [],
    {},
    [None],
    [[]],
    {"code": []},
    {"message": {}},
    {"details": [3, {"violations": 3}]},
]


@pytest.mark.parametrize("inner", ODD, ids=repr)
@pytest.mark.parametrize(
    "key", ["error", "message", "detail", "details", "metadata", "code", "status", "type", "innererror"]
)
def test_no_shape_of_an_error_body_is_a_crash(key: str, inner: Any) -> None:
    """Whatever is where a message or a code should be, the error is an error."""
    for body in ({key: inner}, {"error": {key: inner}}, [{key: inner}]):
        assert http_error(500, {}, compact(body), now=0).kind in ("server", "authentication")
        stream_error(body)


@pytest.mark.parametrize(("advice", "retryable"), [("true", True), ("false", False), ("", True), ("maybe", True)])
def test_a_services_own_advice_is_followed(advice: str, retryable: bool) -> None:
    """`x-should-retry` decides where the status alone would retry."""
    assert http_error(503, {"x-should-retry": advice}, b"", now=0).retryable is retryable


def test_advice_does_not_bring_an_overflow_back() -> None:
    """What can only fail again is not retried, whatever the service advises."""
    body = compact({"error": {"message": "prompt is too long"}})
    assert http_error(400, {"x-should-retry": "true"}, body, now=0).retryable is False


def test_a_page_becomes_its_title() -> None:
    """Of a page only its title or heading is shown, or its text without mark-up and scripts."""
    assert http_error(502, {}, b"<html><title>Bad\n gateway</title><p>much", now=0).message == (
        "HTTP 502 Bad Gateway: Bad gateway"
    )
    plain = http_error(502, {}, b"<html><script>var a = 1</script><p>Try <b>later</b></p>" + b"<p>x</p>" * 9999, now=0)
    assert "Try later" in plain.message
    assert "script" not in plain.message
    assert len(plain.message) < 300


def test_latin_1_is_read() -> None:
    """A body that is no UTF-8 is read as Latin-1."""
    assert (
        "Zugriff verweigert für Sie"
        in http_error(403, {}, "Zugriff verweigert für Sie".encode("latin-1"), now=0).message
    )


def test_an_error_in_the_form_of_a_stream_is_read() -> None:
    """A 400 whose body is an event is understood."""
    body = b'event: error\ndata: {"error":{"message":"prompt is too long"}}\n\n'
    error = http_error(400, {"content-type": "text/event-stream"}, body, now=0)
    assert error.kind == "context_overflow"


def test_a_413_says_what_helps() -> None:
    """The advice for a request that is too large is in the message, whatever the body says."""
    for body in (b"", b"<html>", b'{"error":{"message":"Too big"}}'):
        assert "shorten the conversation" in http_error(413, {}, body, now=0).message


def test_the_key_is_taken_out_of_what_a_service_says() -> None:
    """A service that quotes the key does not get it into our message."""
    body = compact({"error": {"message": "bad key sk-secret-1, really sk-secret-1"}})
    for error in (
        http_error(401, {}, body, now=0, secrets=[Secret("sk-secret-1")]),
        stream_error({"error": "sk-secret-1"}, secrets=[Secret("sk-secret-1")]),
    ):
        assert "sk-secret-1" not in error.message
        assert "[key hidden]" in error.message


THE_DATE = 1767225605.0  # Thu, 01 Jan 2026 00:00:05 GMT


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:05 GMT"}, 5.0),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:05 -0000"}, 5.0),
        ({"retry-after": "Thu, 01 Jan 2026 01:00:05 +0100"}, 5.0),
        ({"retry-after": "Thursday, 01-Jan-26 00:00:05 GMT"}, 5.0),
        ({"retry-after": "Thu, 01 Jan 2020 00:00:05 GMT"}, None),
        ({"retry-after": "abc"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "0"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": "Thu, 99 Foo 99999 77:00:05 GMT"}, None),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "0", "retry-after": "1"}, 1.0),
        ({"retry-after-ms": "x", "retry-after": "7"}, 7.0),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after-ms": "1360", "retry-after": "1"}, 1.36),
        ({}, None),
    ],
    ids=repr,
)
def test_retry_after_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    """Seconds, dates in every spelling and milliseconds; what is none, or over, asks for nothing."""
    assert retry_after_seconds(headers, None, "", THE_DATE - 5) == seconds


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Please try again in 26.604s.", 26.604),
        ("Please try again in 1m30s. Visit", 90.0),
        ("try again in 350ms", 0.35),
        ("Please retry in 48.939935699s.", 48.939935699),
        ("Try again in 2 minutes", 120.0),
        ("retry after 1 hour, 5 seconds", 3605.0),
        ("Please try again later in 5 days", None),
        ("try again in a moment", None),
    ],
)
def test_a_wait_in_words_is_read(words: str, seconds: float | None) -> None:
    """A wait that only the message tells is understood."""
    assert retry_after_seconds({}, None, words, 0) == (None if seconds is None else pytest.approx(seconds))
    assert retry_after_seconds({"retry-after": "3"}, None, words, 0) == 3.0


def test_googles_retry_info_is_read() -> None:
    """RetryInfo in the details counts, before what the message says."""
    body = {"error": {"code": 429, "message": "retry in 48.9s", "details": [{"@type": "x", "retryDelay": "48s"}]}}
    assert http_error(429, {}, compact(body), now=0).retry_after == 48.0
    assert http_error(429, {}, compact([body]), now=0).retry_after == 48.0
