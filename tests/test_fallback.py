"""Several providers as one: who is asked when, what stands, and the error that tells of all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import httpx
import pytest
import trio

from tests.wire_files import DONE, PlayingTransport, a_request, asked, compact, delta, recorded
from trio_agent import (
    Agent,
    AssistantMessage,
    Finish,
    ModelRequest,
    ProviderError,
    ResponseInfo,
    RetryPolicy,
    TextDelta,
    Usage,
    UsageReport,
    UserMessage,
)
from trio_agent.providers import Anthropic, FallbackProvider, OpenAIChat, Secret
from trio_agent.testing import ScriptedProvider, TraceChecker, finish, stall, text

BUSY = ProviderError("overloaded", "too many people", status=529)
LIMITED = ProviderError("rate_limit", "slow down", retry_after=30, status=429)


class Named(ScriptedProvider):
    """A scripted provider with a name of its own, which counts how often it is entered and left."""

    def __init__(self, name: str, *replies: Any) -> None:
        super().__init__(*replies)
        self.name = name
        self.log: list[str] = []

    async def __aenter__(self) -> Named:
        self.log.append("in")
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self.log.append("out")


def says(words: str) -> list[Any]:
    return [text(words), finish()]


def fails(error: Exception) -> list[Any]:
    return [error]


async def failure_of(provider: FallbackProvider, request: ModelRequest | None = None) -> ProviderError:
    with trio.fail_after(60):
        return (await asked(provider, request)).failed()


async def answer_of(provider: FallbackProvider, request: ModelRequest | None = None) -> AssistantMessage:
    with trio.fail_after(60):
        return (await asked(provider, request)).clean()


# Who is asked


@pytest.mark.parametrize("kind", ["rate_limit", "overloaded", "server", "network", "timeout", "protocol"])
async def test_the_next_is_asked_where_the_service_is_to_blame(kind: Any) -> None:
    """Each kind of the default set, retryable or not, leads on to the next provider."""
    first, second = Named("a", fails(ProviderError(kind, "no", False))), Named("b", says("hi"))
    message = await answer_of(FallbackProvider(first, second))
    assert (message.text, message.provider) == ("hi", "b")
    assert first.requests == second.requests


@pytest.mark.parametrize("kind", ["authentication", "invalid_request", "context_overflow", "content_filter"])
async def test_what_others_must_put_right_stands(kind: Any) -> None:
    """A key, a request, a context or a filter: the error itself, and nobody else is asked."""
    error = ProviderError(kind, "no")
    first, second = Named("a", fails(error)), Named("b", says("hi"))
    assert await failure_of(FallbackProvider(first, second)) is error
    assert second.requests == []


async def test_a_single_providers_error_is_its_own() -> None:
    """With nobody else to ask it leaves as it came, and still says what caused it."""
    error, cause = ProviderError("network", "no"), OSError("unplugged")
    error.__cause__ = cause
    assert await failure_of(FallbackProvider(Named("a", fails(error)))) is error
    assert (error.__cause__, error.message) == (cause, "no")


async def test_kinds_can_be_chosen() -> None:
    """`on` replaces the default set."""
    refused = ProviderError("authentication", "who are you")
    chosen = FallbackProvider(Named("a", fails(refused)), Named("b", says("hi")), on=["authentication"])
    assert (await answer_of(chosen)).text == "hi"
    narrow = FallbackProvider(Named("a", fails(BUSY)), Named("b", says("hi")), on={"authentication"})
    assert await failure_of(narrow) is BUSY


async def test_another_exception_is_nobodys_kind() -> None:
    """A bug of a provider leaves as it is."""
    bug = ZeroDivisionError("a bug")
    second = Named("b", says("hi"))
    with trio.fail_after(60), pytest.raises(ZeroDivisionError) as raised:
        await asked(FallbackProvider(Named("a", fails(bug)), second))
    assert raised.value is bug
    assert second.requests == []


async def test_what_was_said_is_not_taken_back() -> None:
    """After the first piece of an answer its error stands."""
    first, second = Named("a", [TextDelta(0, "He"), BUSY]), Named("b", says("hi"))
    with trio.fail_after(60):
        answer = await asked(FallbackProvider(first, second))
    assert answer.error is BUSY
    assert (answer.message.text, answer.message.provider) == ("He", "a")
    assert second.requests == []


async def test_what_is_told_about_an_answer_is_not_an_answer() -> None:
    """A service that names its answer and counts its tokens, and is then overloaded, has said nothing yet."""
    opening = [ResponseInfo("r1", "m1"), UsageReport(Usage(input=9)), BUSY]
    message = await answer_of(FallbackProvider(Named("a", opening), Named("b", says("hi"))))
    assert (message.text, message.provider, message.response_id, message.usage) == ("hi", "b", None, Usage())


async def test_what_is_held_back_comes_in_its_place() -> None:
    """Chunks arrive in the order in which the provider gave them, behind the word on who answers."""
    given = [ResponseInfo("r1", "m1"), UsageReport(Usage(input=9)), TextDelta(0, "a"), UsageReport(Usage(input=10))]
    with trio.fail_after(60):
        answer = await asked(FallbackProvider(Named("a", [*given, Finish("stop")])))
    assert answer.chunks == [ResponseInfo(None, "some-model", "a"), *given, Finish("stop")]
    assert (answer.message.model, answer.message.response_id) == ("m1", "r1")


async def test_each_may_have_its_own_model() -> None:
    """A pair asks its provider for its model, and the message says it; a bare provider gets the request's."""
    first, second, third = Named("a", fails(BUSY)), Named("b", fails(BUSY)), Named("c", says("hi"))
    message = await answer_of(FallbackProvider(first, (second, "small"), (third, "large")), a_request(model="m"))
    assert [provider.requests[0].model for provider in (first, second, third)] == ["m", "small", "large"]
    assert (message.provider, message.model) == ("c", "large")


async def test_a_message_says_who_answered() -> None:
    """In a whole run: history holds provider and model of the one that answered, turn by turn."""
    first, second = Named("a", fails(BUSY), says("one")), Named("b", says("two"))
    agent = Agent(FallbackProvider(first, (second, "m2")), model="m1")
    agent.subscribe(TraceChecker())
    with trio.fail_after(60):
        await agent.prompt("hi")
        await agent.prompt("again")
    found = [message for message in agent.state.messages if isinstance(message, AssistantMessage)]
    assert [(message.provider, message.model, message.text) for message in found] == [
        ("b", "m2", "two"),
        ("a", "m1", "one"),
    ]


async def test_inside_another_it_tells_who_answered() -> None:
    """A FallbackProvider may be a member: the innermost name is told."""
    inner = FallbackProvider(Named("b", fails(BUSY)), (Named("c", says("hi")), "m3"))
    message = await answer_of(FallbackProvider(Named("a", fails(BUSY)), inner))
    assert (message.provider, message.model) == ("c", "m3")


async def test_a_plain_function_is_a_member() -> None:
    """What has no name leaves the name of the whole."""

    async def plain(request: ModelRequest, send: Callable[[Any], Any]) -> None:
        await send(TextDelta(0, request.model))
        await send(Finish("stop"))

    message = await answer_of(FallbackProvider(Named("a", fails(BUSY)), plain, name="both"))
    assert (message.text, message.provider) == ("some-model", "both")


# What leaves when all failed


async def test_the_error_tells_of_every_attempt() -> None:
    """Names, models, kinds and texts in the message, the errors themselves in the cause."""
    refused = ProviderError("authentication", "who are you")
    provider = FallbackProvider(Named("a", fails(LIMITED)), (Named("b", fails(BUSY)), "m2"), Named("c", fails(refused)))
    error = await failure_of(provider)
    assert str(error) == (
        "all 3 providers that were asked failed: a: rate_limit: slow down; b m2: overloaded: too many people; "
        "c: authentication: who are you"
    )
    assert isinstance(error.__cause__, ExceptionGroup)
    assert error.__cause__.exceptions == (LIMITED, BUSY, refused)


def error(kind: Any, retry_after: float | None = None, retryable: bool | None = None, status: int = 1) -> ProviderError:
    return ProviderError(kind, "no", retryable, retry_after, status)


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        # the first that may be asked again decides when
        ([error("rate_limit", 30), error("rate_limit", 5, status=2)], ("rate_limit", True, 5, 2)),
        # one that names no time may be asked after the run's own wait
        ([error("rate_limit", 30), error("server", status=2)], ("server", True, None, 2)),
        # a quota that is spent is not waited for while another may serve
        ([error("rate_limit", None, False), error("overloaded", 7, status=2)], ("overloaded", True, 7, 2)),
        ([error("rate_limit", None, False), error("protocol", None, False, 2)], ("protocol", False, None, 2)),
        # who stopped the asking has no say in whether the others may be asked again
        ([error("server", 3), error("authentication", status=2)], ("server", True, 3, 1)),
        # the run can cure an overflow
        ([error("server", 3), error("context_overflow", status=2)], ("context_overflow", True, 3, 2)),
    ],
)
async def test_what_the_run_is_told_to_do(errors: Iterable[ProviderError], expected: tuple[Any, ...]) -> None:
    """Kind, whether to try again, when, and the status, from those of all attempts."""
    found = await failure_of(FallbackProvider(*[Named(f"p{at}", fails(one)) for at, one in enumerate(errors)]))
    assert (found.kind, found.retryable, found.retry_after, found.status) == expected


async def test_a_retry_asks_everybody_again() -> None:
    """The run waits as long as the soonest needs, then begins with the first."""
    first = Named("a", fails(LIMITED), says("hi"))
    second = Named("b", fails(ProviderError("rate_limit", "no", retry_after=50)))
    agent = Agent(FallbackProvider(first, second), model="m", retry=RetryPolicy(max_attempts=2))
    began = trio.current_time()
    with trio.fail_after(60):
        result = await agent.prompt("hi")
    assert (result.outcome, result.text, trio.current_time() - began) == ("completed", "hi", 30)
    assert len(second.requests) == 1


# Cancellation, opening and closing


async def test_cancellation_passes_through() -> None:
    """A cancelled request is nobody's failure: the next provider is not asked."""
    second = Named("b", says("hi"))
    with trio.fail_after(60), trio.move_on_after(1) as scope:
        await asked(FallbackProvider(Named("a", [stall()]), second))
    assert scope.cancelled_caught
    assert second.requests == []


async def test_members_are_entered_once_and_left() -> None:
    """One that is listed with two models is opened once; what cannot be opened is passed over."""
    first, second = Named("a"), Named("b")

    async def plain(request: ModelRequest, send: Any) -> None: ...

    provider = FallbackProvider((first, "m1"), (first, "m2"), second, plain)
    async with provider:
        assert (first.log, second.log) == (["in"], ["in"])
        with pytest.raises(RuntimeError, match="open already"):
            await provider.__aenter__()
    assert (first.log, second.log) == (["in", "out"], ["in", "out"])
    async with provider:
        assert first.log == ["in", "out", "in"]


async def test_a_member_that_does_not_open_closes_the_others() -> None:
    """What was entered before is left again."""

    class Broken(Named):
        async def __aenter__(self) -> Broken:
            raise OSError("not today")

    first = Named("a")
    with pytest.raises(OSError, match="not today"):
        async with FallbackProvider(first, Broken("b")):
            pytest.fail("entered")
    assert first.log == ["in", "out"]


async def test_an_overload_in_the_stream() -> None:
    """As Anthropic sends it in a 200: before the first word the next one is asked, behind it the error stands."""
    (file,) = [file for file in recorded("anthropic_messages") if file.name == "instream-overloaded.sse"]
    events = file.body.split(b"\n\n")
    silent = b"\n\n".join([event for event in events if b"content_block_delta" not in event])
    assert len(silent) < len(file.body)
    for body, provider, words in ((silent, "b", "hi"), (file.body, "anthropic", "1\n2\n3")):
        async with httpx.AsyncClient(transport=PlayingTransport([body])) as client:
            first = Anthropic(base_url="http://h.test/v1", client=client)
            answer = await asked(FallbackProvider(first, Named("b", says("hi"))))
        assert (answer.message.provider, answer.message.text) == (provider, words)
        assert (answer.error is None) == (provider == "b")


async def test_over_real_services() -> None:
    """Two services over HTTP: one that is overloaded, one that answers with reasoning that is its own."""
    bad = PlayingTransport([compact({"error": {"message": "overloaded"}})], 503, {"content-type": "application/json"})
    good = PlayingTransport([delta({"content": "hi"}, "stop") + DONE])
    async with httpx.AsyncClient(transport=bad) as one, httpx.AsyncClient(transport=good) as other:
        first = OpenAIChat(base_url="http://one.test/v1", client=one, name="one", api_key="key-one")
        second = OpenAIChat(base_url="http://other.test/v1", client=other, name="other")
        async with FallbackProvider(first, (second, "m2")) as provider:
            message = await answer_of(provider, a_request([UserMessage("hi")], model="m1"))
            assert provider.secrets == (Secret("key-one"),)
            assert "key-one" not in repr(provider)
    assert (message.provider, message.model, message.text) == ("other", "m2", "hi")


# What it refuses


@pytest.mark.parametrize(
    ("members", "options", "problem"),
    [
        ((), {}, "needs at least one provider"),
        (("openai",), {}, "a member is a provider or a pair"),
        ((Named,), {}, "a member is a provider or a pair"),
        (((Named("a"), ""),), {}, "the name of the model, not ''"),
        (((Named("a"), "m", "n"),), {}, "a member is a provider or a pair"),
        ((Named("a"),), {"on": ["overload"]}, "'overload': no kind of provider error"),
    ],
)
async def test_what_is_no_member_is_refused(members: Any, options: Any, problem: str) -> None:
    """At construction, in words that say what to give."""
    with pytest.raises((TypeError, ValueError), match=problem):
        FallbackProvider(*members, **options)
