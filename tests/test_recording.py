"""Recordings of runs: what is written, what plays again, and where a run differs from its recording."""

from __future__ import annotations

import json
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire_files import DONE, PlayingTransport, a_request, asked, call_delta, delta
from trio_agent import (
    Agent,
    AssistantMessage,
    BlockEnd,
    Event,
    Finish,
    Image,
    MessageUpdate,
    ModelRequest,
    ModelSettings,
    ProviderError,
    RedactedThinking,
    ResponseInfo,
    RetryPolicy,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
    ToolResultMessage,
    ToolSpec,
    Usage,
    UsageReport,
    UserMessage,
    tool,
)
from trio_agent._json import dumps, loads
from trio_agent.providers import (
    FallbackProvider,
    OpenAIChat,
    RecordingError,
    RecordingProvider,
    ReplayError,
    ReplayProvider,
)
from trio_agent.providers._recording_format import decode_chunk, encode_chunk
from trio_agent.testing import ScriptedProvider, TraceChecker, call, finish, render, sleep, stall, text, thinking, usage

KEY = 'sk-"very\\secret-0123456789'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


@tool(serial=True)  # the order in which parallel calls end is Trio's to choose, and no recording's
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def run_of(provider: Any, *prompts: str, **options: Any) -> tuple[list[str], Any]:
    """The events of a run of so many prompts as lines, and the last result."""
    agent = Agent(provider, **{"model": "m", "tools": [add], **options})
    events: list[Event] = []
    agent.subscribe(TraceChecker())
    agent.subscribe(events.append)
    result = None
    with trio.fail_after(3600):
        for prompt in prompts:
            result = await agent.prompt(prompt)
    return render(events), result


async def recorded(path: Path, provider: Any, *prompts: str, **options: Any) -> tuple[list[str], Any]:
    async with RecordingProvider(provider, path) as recording:
        return await run_of(recording, *prompts, **options)


async def replayed(path: Path, *prompts: str, **options: Any) -> tuple[list[str], Any]:
    async with ReplayProvider(path) as replay:
        return await run_of(replay, *prompts, **options)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def a_turn() -> ScriptedProvider:
    return ScriptedProvider(
        [
            ResponseInfo("r1", "m-1"),
            thinking("hm", signature="sig"),
            call("c1", "add", {"a": 1, "b": 2}, cut=3),
            usage(5, 6),
            finish("tool_use"),
        ],
        [text("th", "ree \ud83d"), finish()],
        [text("bye"), finish()],
    )


# A run, and the same run again


async def test_a_run_plays_again_without_its_provider(path: Path) -> None:
    """The same events in the same order, over several prompts, with tools and thinking, and the provider's name."""
    first, result = await recorded(path, a_turn(), "1 + 2?", "bye")
    second, again = await replayed(path, "1 + 2?", "bye")
    assert first == second
    assert result.messages == again.messages
    assert [message.provider for message in again.messages if isinstance(message, AssistantMessage)] == ["scripted"]


async def test_the_file_says_what_was_asked_and_what_came(path: Path) -> None:
    """A header with a version, then request, chunks with their times, and end; readable by its owner alone."""
    provider = ScriptedProvider([sleep(0.5), text("hi"), sleep(1), finish()])
    await recorded(path, provider, "hello", tools=())
    head, request, *rest = lines_of(path)
    assert head == {"type": "recording", "version": 1, "provider": "scripted"}
    assert request["asked"]["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
    assert rest == [
        {"type": "chunk", "request": 1, "time": 0.5, "chunk": {"type": "text_delta", "index": 0, "text": "hi"}},
        {"type": "chunk", "request": 1, "time": 1.5, "chunk": {"type": "finish", "stop_reason": "stop"}},
        {"type": "end", "request": 1, "time": 1.5, "outcome": "done"},
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(("speed", "seconds"), [(0, 0.0), (1, 1.5), (2, 0.75), (0.5, 3.0)])
async def test_time_passes_as_wanted(path: Path, speed: float, seconds: float) -> None:
    """Not at all, as recorded, or by a factor."""
    await recorded(path, ScriptedProvider([sleep(0.5), text("hi"), finish(), sleep(1)]), "hello")
    began = trio.current_time()
    async with ReplayProvider(path, speed=speed) as replay:
        await run_of(replay, "hello")
    assert trio.current_time() - began == pytest.approx(seconds)


async def test_failures_fail_again(path: Path) -> None:
    """A ProviderError with all its fields, so that the run retries and fails as it did."""
    limited = ProviderError("rate_limit", "slow down", True, 7.5, 429)
    fatal = ProviderError("invalid_request", "no such model", status=404)
    retry = RetryPolicy(max_attempts=2)
    first, _ = await recorded(path, ScriptedProvider([limited], [text("a"), fatal]), "hi", retry=retry)
    began = trio.current_time()
    second, result = await replayed(path, "hi", retry=retry)
    assert first == second
    assert trio.current_time() - began == 7.5
    error = result.error
    assert (error.kind, error.message, error.retryable, error.retry_after, error.status) == (
        *("invalid_request", "no such model", False),
        *(None, 404),
    )


async def test_an_exception_of_another_kind_fails_again(path: Path) -> None:
    """What was no ProviderError is told by its type and text."""
    await recorded(path, ScriptedProvider([ZeroDivisionError("a bug")]), "hi")
    _, result = await replayed(path, "hi")
    assert result.outcome == "error"
    assert str(result.error) == "ZeroDivisionError: a bug"


async def test_a_request_that_was_cancelled_is_cut_short(path: Path) -> None:
    """It plays as far as it came, and then waits to be cancelled again."""

    async def aborted(provider: Any) -> Any:
        agent = Agent(provider, model="m")
        agent.subscribe(lambda event: agent.abort("enough") if isinstance(event, MessageUpdate) else None)
        with trio.fail_after(60):
            return await agent.prompt("hi")

    async with RecordingProvider(ScriptedProvider([text("He"), stall()]), path) as recording:
        first = await aborted(recording)
    assert lines_of(path)[-1] == {"type": "end", "request": 1, "time": 0.0, "outcome": "cut_short"}
    async with ReplayProvider(path) as replay:
        second = await aborted(replay)
    assert (first.outcome, first.messages) == (second.outcome, second.messages)
    assert second.outcome == "aborted"


async def test_a_cut_request_that_nobody_cancels_fails(path: Path) -> None:
    """After five seconds it says so, instead of waiting for ever."""
    with trio.move_on_after(1):
        await recorded(path, ScriptedProvider([text("He"), stall()]), "hi")
    began = trio.current_time()
    with pytest.raises(ReplayError, match="request 1 was cancelled here when it was recorded"):
        await replayed(path, "hi")
    assert trio.current_time() - began == pytest.approx(5)


async def test_requests_at_the_same_time_are_told_apart(path: Path) -> None:
    """Several agents may share a recording; each request is played in the order in which they began."""

    async def all_of(provider: Any) -> dict[str, str]:
        found: dict[str, str] = {}

        async def ask(name: str, later: float) -> None:
            await trio.sleep(later)
            found[name] = (await asked(provider, a_request([UserMessage(name)]))).clean().text

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, "a", 0.25)
                nursery.start_soon(ask, "b", 0.5)
        return found

    script = ScriptedProvider(
        [text("1"), sleep(3), text("2"), finish()], [sleep(1), text("x"), sleep(1), text("y"), finish()]
    )
    async with RecordingProvider(script, path) as recording:
        first = await all_of(recording)
    assert [line.get("request") for line in lines_of(path)][1:5] == [1, 1, 2, 2]
    async with ReplayProvider(path) as replay:
        assert await all_of(replay) == first == {"a": "12", "b": "xy"}


# Strictness


async def test_a_request_that_differs_says_where(path: Path) -> None:
    """The path of the first difference, what was recorded and what came; the run fails, and leaving fails too."""
    await recorded(path, a_turn(), "1 + 2?", "bye")
    words = (
        r'request 1 is not as it was recorded, at messages\[0\].content\[0\].text: recorded "1 \+ 2\?", came "1 \+ 3\?"'
    )
    replay = ReplayProvider(path)
    with pytest.raises(ReplayError, match=f"{words}; 2 recorded requests were never asked for"):
        async with replay:
            _, result = await run_of(replay, "1 + 3?")
            assert result.outcome == "error"
            assert isinstance(result.error, ReplayError)


DIFFERENT: list[tuple[str, Callable[[ModelRequest], ModelRequest]]] = [
    ('model: recorded "some-model", came "other"', lambda it: attrs.evolve(it, model="other")),
    ('reasoning: recorded "off", came "low"', lambda it: attrs.evolve(it, reasoning="low")),
    ("messages[1]: recorded nothing, came {", lambda it: attrs.evolve(it, messages=(*it.messages, *it.messages))),
    ('messages[0]: recorded {"role":"user"', lambda it: attrs.evolve(it, messages=())),
    ('system_prompt: recorded "", came "Be', lambda it: attrs.evolve(it, system_prompt="Be brief.")),
    (
        "tools[0].parameters.properties: recorded {}, came nothing",
        lambda it: attrs.evolve(it, tools=(ToolSpec("f", "", {"type": "object"}),)),
    ),
    ("settings.seed: recorded null, came 1", lambda it: attrs.evolve(it, settings=ModelSettings(seed=1))),
    (
        "settings.extra_body.a: recorded nothing, came true",
        lambda it: attrs.evolve(it, settings=ModelSettings(extra_body={"a": True})),
    ),
    (
        'settings.extra_headers[0]: recorded nothing, came "X-A"',
        lambda it: attrs.evolve(it, settings=ModelSettings(extra_headers={"X-A": "1"})),
    ),
]


@pytest.mark.parametrize(("words", "change"), DIFFERENT, ids=[words.split(":")[0] for words, _ in DIFFERENT])
async def test_nothing_of_a_request_is_passed_over(
    path: Path, words: str, change: Callable[[ModelRequest], ModelRequest]
) -> None:
    """Each part of a request is compared."""
    spec = ToolSpec("f", "", {"type": "object", "properties": {}})
    request = a_request([UserMessage("hi")], tools=(spec,))
    async with RecordingProvider(ScriptedProvider([text("hi"), finish()]), path) as recording:
        await asked(recording, request)
    with pytest.raises(ReplayError) as raised:
        await asked(ReplayProvider(path), change(request))
    assert words in str(raised.value)


async def test_in_a_long_text_the_place_is_shown(path: Path) -> None:
    """Not its beginning, which is the same."""
    before = "all the same " * 30
    async with RecordingProvider(ScriptedProvider([text("hi"), finish()]), path) as recording:
        await asked(recording, a_request([UserMessage(before + "morning" + "!" * 99)]))
    with pytest.raises(ReplayError) as raised:
        await asked(ReplayProvider(path), a_request([UserMessage(before + "evening" + "!" * 99)]))
    assert 'recorded …"e same all the same morning!!' in str(raised.value)
    assert 'came …"e same all the same evening!!' in str(raised.value)
    assert len(str(raised.value)) < 300


async def test_true_is_not_one(path: Path) -> None:
    """Though Python says so."""

    def with_body(value: object) -> ModelRequest:
        return a_request(settings=ModelSettings(extra_body={"a": [value]}))

    async with RecordingProvider(ScriptedProvider([text("hi"), finish()]), path) as recording:
        await asked(recording, with_body(True))
    with pytest.raises(ReplayError, match=r"settings.extra_body.a\[0\]: recorded true, came 1"):
        await asked(ReplayProvider(path), with_body(1))


async def test_what_no_model_sees_may_differ(path: Path) -> None:
    """Details of tool results are the application's, and values of extra headers may be keys."""

    def request(detail: str) -> ModelRequest:
        history = (
            UserMessage("hi"),
            AssistantMessage([ToolCall("c1", "f", {})], "tool_use"),
            ToolResultMessage("c1", "f", "ok", details={"took": detail}),
        )
        return a_request(history, settings=ModelSettings(extra_headers={"x-token": detail}))

    async with RecordingProvider(ScriptedProvider([text("hi"), finish()]), path) as recording:
        await asked(recording, request("0.123 s"))
    assert "0.123 s" not in path.read_text()
    async with ReplayProvider(path) as replay:
        assert (await asked(replay, request("0.456 s"))).clean().text == "hi"


async def test_more_requests_than_recorded_are_an_error(path: Path) -> None:
    """Said by the request, and again on leaving."""
    await recorded(path, ScriptedProvider([text("hi"), finish()]), "hi")
    with pytest.raises(ReplayError, match=r"^request 2 is not in the recording, which has 1$"):
        await replayed(path, "hi", "again")


async def test_an_exception_of_the_block_is_not_replaced(path: Path) -> None:
    """Requests left over are told on a clean exit alone."""
    await recorded(path, ScriptedProvider([text("hi"), finish()]), "hi")
    with pytest.raises(ZeroDivisionError):
        async with ReplayProvider(path):
            raise ZeroDivisionError
    with pytest.raises(ReplayError, match="1 recorded requests were never asked for"):
        async with ReplayProvider(path):
            pass


# The file


async def test_keys_are_not_in_it(path: Path) -> None:
    """Neither the provider's key, wherever it turns up, nor extra headers; what a service quotes is hidden already."""
    body = call_delta({"index": 0, "id": "c1", "function": {"name": "add", "arguments": "{}"}})
    transport = PlayingTransport([body, delta({"content": f"your key is {KEY}"}, "tool_calls"), DONE])
    async with httpx.AsyncClient(transport=transport) as client:
        service = OpenAIChat(base_url="http://h.test/v1", client=client, api_key=KEY)
        settings = ModelSettings(extra_headers={"x-other": "another-secret"})
        async with RecordingProvider(FallbackProvider(service), path) as recording:
            await asked(recording, a_request([UserMessage(f"it was {KEY}")], settings=settings))
    written = path.read_text()
    assert "secret" not in written.replace("very\\secret", "secret")
    assert "it was [key hidden]" in written
    assert "your key is [key hidden]" in written
    assert json.loads(written.splitlines()[1])["asked"]["settings"]["extra_headers"] == ["x-other"]


async def test_what_is_there_is_not_written_over(path: Path) -> None:
    """Unless that is asked for; the provider is closed again."""
    path.write_text("mine")
    inner = FallbackProvider(ScriptedProvider([text("hi"), finish()]))
    with pytest.raises(FileExistsError, match="overwrite=True"):
        async with RecordingProvider(inner, path):
            pytest.fail("entered")
    assert path.read_text() == "mine"
    async with RecordingProvider(inner, path, overwrite=True) as recording:
        await asked(recording)
        with pytest.raises(RuntimeError, match="open already"):
            await recording.__aenter__()
    assert [line["type"] for line in lines_of(path)] == ["recording", "request", "chunk", "chunk", "chunk", "end"]
    with pytest.raises(RuntimeError, match="not open"):
        await asked(recording)


async def test_a_torn_last_line_is_passed_over(path: Path) -> None:
    """Cut anywhere behind its header, a recording plays as far as it goes."""
    async with RecordingProvider(ScriptedProvider([text("a", "b", "c"), finish()]), path) as recording:
        await asked(recording)
    whole = path.read_bytes()
    header = whole.index(b"\n") + 1
    for at in range(header, len(whole) - 1):
        path.write_bytes(whole[:at])
        replay = ReplayProvider(path)
        with pytest.raises(ReplayError), trio.fail_after(60):
            await asked(replay)
    path.write_bytes(whole[:-1])
    assert (await asked(ReplayProvider(path))).clean().text == "abc"


HEAD = '{"type":"recording","version":1,"provider":null}\n'


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        (
            HEAD
            + '{"type":"request","request":1,"asked":{}}\n'
            + '{"type":"end","request":1,"time":0,"outcome":"odd"}\n',
            "line 3: 'odd' is no outcome",
        ),
        (
            HEAD
            + '{"type":"request","request":1,"asked":{}}\n'
            + '{"type":"end","request":1,"time":0,"outcome":"failed"}\n',
            "line 3: 'error' is missing",
        ),
        ("hello", "line 1: not JSON; is this a recording?"),
        ("[]\n", "line 1: not a JSON object"),
        ('{"type":"session","version":1}\n', "line 1: the file does not begin as a recording does"),
        ('{"type":"recording"}\n', "line 1: 'version' is missing"),
        (
            '{"type":"recording","version":2}\n',
            "line 1: the recording has version 2, and this trio_agent reads up to 1",
        ),
        (HEAD + "{\n{}\n", "line 2: not JSON"),
        (HEAD + '{"type":"chunk","request":1}\n', "line 2: request 1 goes on without having begun"),
        (HEAD + '{"type":"request","request":1,"asked":{}}\n' * 2, "line 3: request 1 begins a second time"),
        (
            HEAD + '{"type":"request","request":1,"asked":{}}\n{"type":"what","request":1}\n',
            "line 3: 'what' is no type",
        ),
        (
            HEAD
            + '{"type":"request","request":1,"asked":{}}\n'
            + '{"type":"chunk","request":1,"time":0,"chunk":{"type":"x"}}\n',
            "line 3: 'x' is no type of chunk",
        ),
        (
            HEAD
            + '{"type":"request","request":1,"asked":{}}\n'
            + '{"type":"chunk","request":1,"time":0,"chunk":{"type":"finish"}}\n',
            "line 3: .*stop_reason",
        ),
    ],
)
async def test_what_is_no_recording_is_refused(path: Path, content: str, words: str) -> None:
    """With the number of the line and the reason."""
    path.write_text(content)
    with pytest.raises(RecordingError, match=words) as raised:
        ReplayProvider(path)
    assert str(raised.value).startswith(f"{path}: ")


async def test_a_file_that_is_not_there_is_an_os_error(path: Path) -> None:
    """As of any file. A speed that is none is refused too."""
    with pytest.raises(FileNotFoundError):
        ReplayProvider(path)
    with pytest.raises(ValueError, match="speed is -1"):
        ReplayProvider(path, speed=-1)


async def test_what_is_no_chunk_fails_the_request(path: Path) -> None:
    """It cannot be recorded, and no run could use it either."""

    async def odd(request: ModelRequest, send: Any) -> None:
        await send("text")

    _, result = await recorded(path, odd, "hi")
    assert "str is no chunk" in str(result.error)


async def test_every_kind_of_message_is_recorded(path: Path) -> None:
    """Images, calls whose arguments are no JSON, opaque thinking, lone surrogates: compared as they are."""
    history = (
        UserMessage([Text("a\ud83d"), Image(b"\x00\xff", "image/png")]),
        AssistantMessage([Thinking("", redacted="xyz"), ToolCall("c1", "f", raw='{"a": 1e999')], "tool_use"),
        ToolResultMessage("c1", "f", [Image(b"1", "image/png")], is_error=True),
    )
    async with RecordingProvider(ScriptedProvider([text("hi"), finish()]), path) as recording:
        await asked(recording, a_request(history))
    async with ReplayProvider(path) as replay:
        assert (await asked(replay, a_request(history))).clean().text == "hi"


any_text = st.text(st.one_of(st.characters(exclude_categories=()), st.sampled_from('\ud83d\ude00\x00\u2028"\\')))
maybe = st.one_of(st.none(), any_text)
counts = st.one_of(st.none(), st.integers(0, 2**70))
chunks = st.one_of(
    st.builds(TextDelta, st.integers(), any_text),
    st.builds(ThinkingDelta, st.integers(), any_text),
    st.builds(ToolCallStart, st.integers(), maybe, any_text),
    st.builds(ToolCallDelta, st.integers(), any_text),
    st.builds(BlockEnd, st.integers(), maybe),
    st.builds(RedactedThinking, st.integers(), any_text),
    st.builds(ResponseInfo, maybe, maybe, maybe),
    st.builds(UsageReport, st.builds(Usage, counts, counts, counts, counts, counts, counts)),
    st.builds(Finish, any_text),
)


@given(chunks)
def test_chunks_lose_nothing(chunk: Any) -> None:
    """Any chunk is the same after it was written and read, whatever text it holds."""
    from trio_agent._codec import escape

    line = escape(dumps(encode_chunk(chunk)))
    assert decode_chunk(loads(line.encode().decode())) == chunk


failures = st.builds(
    ProviderError,
    st.sampled_from(["rate_limit", "server", "protocol", "invalid_request"]),
    any_text,
    st.sampled_from([None, True, False]),
    st.sampled_from([None, 0, 2.5]),
    st.sampled_from([None, 500]),
)
steps = st.one_of(
    any_text,
    st.builds(text, any_text, any_text),
    st.builds(thinking, any_text, signature=maybe),
    st.builds(
        call, maybe, st.sampled_from(["add", "unknown"]), st.sampled_from(['{"a":1,"b":2}', "{", "", '{"a":"x"}'])
    ),
    st.builds(usage, st.integers(0, 9), st.integers(0, 9)),
    st.builds(ResponseInfo, maybe, maybe, maybe),
    failures,
)
replies = st.lists(
    st.builds(lambda begun, end: [*begun, finish(end)], st.lists(steps, max_size=4), st.sampled_from(["stop", "odd"])),
    max_size=4,
)


@settings(max_examples=100)
@given(replies, st.integers(1, 2))
def test_any_run_plays_again(script: list[Any], attempts: int) -> None:
    """Whatever a provider does, the replayed run tells the same events and ends with the same history."""

    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run.jsonl"
            options: dict[str, Any] = {"retry": RetryPolicy(max_attempts=attempts, jitter=False)}
            provider = ScriptedProvider(*script, *[["end", finish()]] * 12)
            first, result = await recorded(path, provider, "one", "two", **options)
            second, again = await replayed(path, "one", "two", **options)
        assert first == second
        assert result.outcome == again.outcome
        assert result.messages == again.messages

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
