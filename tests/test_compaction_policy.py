"""The summarising compaction policy, on its own: when, where it cuts, what it asks, and what it refuses."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from trio_agent._chunks import Chunk, Finish, TextDelta, ThinkingDelta, UsageReport
from trio_agent._compaction import CompactionError, SummarizingCompaction
from trio_agent._errors import ProviderError
from trio_agent._history import History
from trio_agent._messages import (
    NO_USAGE,
    AssistantMessage,
    CustomMessage,
    Image,
    Message,
    Text,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from trio_agent._policies import Compaction
from trio_agent._provider import Send
from trio_agent._request import ModelRequest
from trio_agent._state import AgentState, Phase
from trio_agent._tokens import estimate_message, estimate_text, shorten
from trio_agent._tools import Tool

USAGE = Usage(input=70, output=7, total=77)
Step = str | Exception | Sequence[Chunk] | Callable[[ModelRequest, Send], Awaitable[None]]


class Summariser:
    """A fake model: plays its steps one after the other, the last one for ever, and keeps the requests."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.requests: list[ModelRequest] = []

    async def __call__(self, request: ModelRequest, send: Send) -> None:
        self.requests.append(request)
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if isinstance(step, Exception):
            await send(UsageReport(USAGE))
            raise step
        if callable(step):
            await step(request, send)
            return
        for chunk in (TextDelta(0, step), UsageReport(USAGE), Finish("stop")) if isinstance(step, str) else step:
            await send(chunk)

    @property
    def questions(self) -> list[str]:
        return [
            message.text
            for request in self.requests
            for message in request.messages
            if isinstance(message, UserMessage)
        ]


def policy(model: Summariser | None = None, window: int = 1000, **options: int) -> SummarizingCompaction:
    return SummarizingCompaction(model or Summariser("S"), model="small", window=window, **options)


def compact(
    messages: Sequence[Message], model: Summariser, reason: str = "threshold", window: int = 1000, **options: int
) -> Compaction:
    async def main() -> Compaction:
        with trio.fail_after(60):
            return await policy(model, window, **options).compact(messages, reason)

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def after(messages: Sequence[Message], compaction: Compaction) -> list[Message]:
    """The history as the run makes it of a compaction."""
    return [compaction.summary, *messages[compaction.first_kept :]]


def state(messages: Sequence[Message], system_prompt: str = "", tools: Sequence[Tool] = ()) -> AgentState:
    return AgentState(
        phase=Phase.TURN, messages=messages, system_prompt=system_prompt, tools=tuple(tools), model="m", reasoning="off"
    )


def asks(*ids: str, usage: Usage = NO_USAGE, path: str = "a") -> AssistantMessage:
    return AssistantMessage([ToolCall(call_id, "read", {"path": path}) for call_id in ids], "tool_use", usage)


def answers(call_id: str, text: str = "done") -> ToolResultMessage:
    return ToolResultMessage(call_id, "read", text)


def talk(turns: int, size: int = 40) -> list[Message]:
    """Turns of a question and an answer, each of `size` tokens or so."""
    messages: list[Message] = []
    for turn in range(turns):
        messages.append(UserMessage(f"q{turn} " + "ask " * size))
        messages.append(AssistantMessage(f"a{turn} " + "say " * size))
    return messages


# -- the size of the context ---------------------------------------------------------------------------------------


def test_reported_tokens_count_and_only_what_came_later_is_estimated() -> None:
    """The context is what the last answer reported (input, cache and output), plus an estimate of what follows it."""
    usage = Usage(input=100, cache_read=300, cache_write=50, output=25, reasoning=5, total=9999)
    later = answers("c1", "x" * 400)
    messages = [UserMessage("y" * 4000), asks("c1", usage=usage), later]
    assert policy().tokens(state(messages, system_prompt="z" * 4000)) == 475 + estimate_message(later)


def test_the_last_report_wins() -> None:
    """An earlier report, of a shorter context, plays no part."""
    messages = [AssistantMessage("a", usage=Usage(input=900)), AssistantMessage("b", usage=Usage(input=10, output=2))]
    assert policy().tokens(state(messages)) == 12


def test_without_a_report_all_is_estimated() -> None:
    """Where no answer reported anything, system prompt, tools and messages are estimated."""
    tool = Tool(name="read", description="Read a file.", parameters={"type": "object"}, execute=print)
    alone = policy().tokens(state([UserMessage("x" * 400)]))
    assert alone == estimate_message(UserMessage("x" * 400))
    whole = policy().tokens(state([UserMessage("x" * 400)], system_prompt="p" * 80, tools=[tool]))
    assert whole > alone + 20 + 10


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (AssistantMessage("a" * 40, usage=Usage(input=500, output=None)), 500 + 14),
        (AssistantMessage("a" * 40, usage=Usage(total=700)), 700),
        (AssistantMessage("a" * 40, usage=Usage(input=0, output=12, total=12)), 14),
        (AssistantMessage("a" * 40, usage=Usage(input=0, cache_read=400, output=12)), 412),
        (AssistantMessage("a" * 40, "error", Usage(input=500, output=1), error_message="cut"), 14),
        (AssistantMessage("a" * 40, "aborted", Usage(input=500, output=1), error_message="cut"), 14),
    ],
)
def test_half_a_report_is_not_taken_for_a_whole_one(message: AssistantMessage, tokens: int) -> None:
    """A missing output is estimated, a total serves for a missing input; 0 and the count of a failure do not count."""
    assert policy().tokens(state([message])) == tokens


def test_custom_messages_take_no_room() -> None:
    """What the model does not see does not count."""
    assert policy().tokens(state([CustomMessage("note", "x" * 10_000)])) == 0


class _CountingList(list[Message]):
    """A history that counts how often a message is looked at."""

    looks = 0

    def __getitem__(self, index):  # type: ignore[no-untyped-def, override]
        self.looks += 1
        return super().__getitem__(index)


def test_a_look_at_the_threshold_costs_constant_time() -> None:
    """However long the history, a look reads the new messages and a fixed number of others."""
    messages = _CountingList([UserMessage("go")])
    looking = policy(window=100_000)
    looking.tokens(state(messages))
    looks = []
    for turn in range(200):
        messages.append(AssistantMessage(f"answer {turn}"))
        before = messages.looks
        looking.tokens(state(messages))
        looks.append(messages.looks - before)
    assert len(set(looks)) == 1


@given(st.lists(st.tuples(st.sampled_from(["append", "pop", "other"]), st.integers(0, 3)), max_size=12))
def test_the_tally_of_one_policy_equals_a_fresh_count(steps: list[tuple[str, int]]) -> None:
    """Whatever histories a policy is shown one after the other, it counts as one that sees each for the first time."""
    kinds: list[Message] = [
        UserMessage("hello there"),
        AssistantMessage("yes", usage=Usage(input=50, output=5)),
        AssistantMessage("no usage"),
        answers("c1", "some result"),
    ]
    looking = policy()
    history: History[Message] = History()
    for step, kind in steps:
        if step == "append":
            history.append(attrs.evolve(kinds[kind]) if kind < 3 else answers("c1", "some result"))
        elif step == "pop":
            history.replace(history.view()[:-1])
        else:
            history = History([kinds[kind]])
        assert looking.tokens(state(history.view())) == policy().tokens(state(history.view()))


def test_another_history_is_counted_anew() -> None:
    """A history that shares its first or last message with the one before, and its length, is not taken for it."""
    first, other = UserMessage("first"), UserMessage("x" * 4000)
    last = UserMessage("last")
    looking = policy()
    for messages in ([first, last], [first, other], [first, last], [other, last]):
        assert looking.tokens(state(messages)) == policy().tokens(state(messages))


# -- after a compaction --------------------------------------------------------------------------------------------


def test_what_was_reported_before_a_compaction_does_not_count_after_it() -> None:
    """The kept answers' old reports are of the longer history; only an answer given after the summary counts again."""
    old = [*talk(3), UserMessage("go"), asks("c1", usage=Usage(input=840, output=10)), answers("c1")]
    looking = policy(Summariser("short"))
    assert looking.threshold(state(old))
    new = after(old, compact(old, Summariser("short"), keep_recent=60))
    assert any(isinstance(message, AssistantMessage) and message.usage.input == 840 for message in new)
    assert not looking.threshold(state(new))
    assert looking.tokens(state(new)) == sum(map(estimate_message, new))
    new.append(AssistantMessage("well", usage=Usage(input=333, output=3)))
    assert looking.tokens(state(new)) == 336


def test_a_policy_that_never_saw_the_compaction_knows_too() -> None:
    """The summary itself says how many messages are older than it, so a history read from a log counts the same."""
    old = [*talk(4), asks("c1", usage=Usage(input=840, output=10)), answers("c1")]
    new = after(old, compact(old, Summariser("short"), keep_recent=60))
    assert not policy().threshold(state(new))


def test_a_summary_is_folded_into_the_next_one() -> None:
    """A second compaction gives the first summary to the model as such, and replaces it."""
    first = after(talk(4), compact(talk(4), Summariser("the first summary")))
    longer = [*first, *talk(4)]
    model = Summariser("the second summary")
    second = compact(longer, model)
    assert "<summary>\nthe first summary\n</summary>" in model.questions[0]
    assert "[user]\nThis is a summary" not in model.questions[0]
    assert second.first_kept > 1
    assert "the second summary" in second.summary.text  # type: ignore[union-attr]


def test_a_giant_summary_is_shortened_for_the_next_one() -> None:
    """A summary that was made for a larger window does not make the next request too long for this one."""
    large = after(talk(60), compact(talk(60), Summariser("word " * 1000), window=100_000, keep_recent=100))
    model = Summariser("S")
    compact([*large, *talk(2)], model)
    assert all(estimate_text(question) < 1000 for question in model.questions)
    assert "characters left out here" in model.questions[0]


def test_the_summary_says_what_it_is() -> None:
    """The summary is a user message which says that it replaces what went before, and how much follows unchanged."""
    compaction = compact(talk(4), Summariser("  they talked \n"), keep_recent=100)
    kept = 8 - compaction.first_kept
    assert compaction.summary == UserMessage(
        "This is a summary of what went before: the conversation had grown too long.\n"
        f"Of its latest part, {kept} messages follow word for word.\n\nthey talked"
    )
    assert compaction.usage == USAGE


# -- where it cuts -------------------------------------------------------------------------------------------------


def test_the_newest_part_is_kept_by_budget() -> None:
    """As many of the newest messages are kept as fit into `keep_recent`, but never more than half."""
    messages = talk(10)
    size = estimate_message(messages[0])
    assert compact(messages, Summariser("S"), window=10_000, keep_recent=size * 4 + 10).first_kept == 16
    assert compact(messages, Summariser("S"), window=10_000, keep_recent=size * 19).first_kept == 10


def test_a_long_turn_is_cut_at_an_answer() -> None:
    """A turn of tool calls alone is cut between a result and the next answer."""
    messages: list[Message] = [UserMessage("go")]
    for number in range(10):
        messages += [asks(f"c{number}"), answers(f"c{number}", "x" * 200)]
    compaction = compact(messages, Summariser("S"))
    assert 1 < compaction.first_kept < len(messages)
    assert isinstance(messages[compaction.first_kept], AssistantMessage)


def test_the_newest_message_is_kept_though_it_exceeds_the_budget() -> None:
    """A result that no model has seen yet is kept with its call, if it fits into the window at all."""
    messages = [*talk(2), asks("c1"), answers("c1", "x" * 2400)]
    assert compact(messages, Summariser("S"), keep_recent=50).first_kept == 4


def test_at_the_threshold_nothing_unseen_is_summarised() -> None:
    """If the newest message alone nearly fills the window, nothing is asked or compacted: a model reads it first."""
    model = Summariser("S")
    with pytest.raises(CompactionError, match="nothing to summarise before the newest messages"):
        compact([UserMessage("go"), asks("c1"), answers("c1", "x" * 3600)], model)
    assert model.requests == []


def test_what_does_not_fit_the_window_is_summarised_with_a_note() -> None:
    """A single gigantic result is shortened in the request, with a note; history still holds all of it."""
    giant = answers("c1", "head " + "x" * 100_000 + " tail")
    messages = [UserMessage("go"), asks("c1"), giant]
    model = Summariser("S")
    compaction = compact(messages, model, reason="overflow")
    assert compaction.first_kept == 3
    assert len(model.requests) == 1
    assert "head xxx" in model.questions[0]
    assert "xxx tail" in model.questions[0]
    assert "characters left out here" in model.questions[0]
    assert estimate_text(model.questions[0]) < 1000
    assert messages[2] is giant
    assert len(giant.text) == 100_010


def test_an_overflow_keeps_at_most_half() -> None:
    """An overflow below the configured window shrinks all the same: at most half of the estimate is kept."""
    messages = talk(4, size=10)
    total = sum(map(estimate_message, messages))
    compaction = compact(messages, Summariser("S"), reason="overflow", window=100_000)
    assert 0 < sum(map(estimate_message, messages[compaction.first_kept :])) <= total // 2


def test_an_overflow_does_not_keep_a_giant() -> None:
    """After an overflow the newest message is summarised too if it is more than half of all."""
    messages = [UserMessage("ask " * 20), UserMessage("paste " * 200)]
    assert compact(messages, Summariser("S"), reason="overflow", window=100_000).first_kept == 2
    assert compact(messages, Summariser("S"), reason="threshold", window=100_000).first_kept == 1


def test_what_exceeds_the_window_is_summarised_at_the_threshold_too() -> None:
    """A newest message that no model could be sent is summarised, not waited for."""
    messages = [UserMessage("go"), asks("c1"), answers("c1", "x" * 40_000)]
    assert compact(messages, Summariser("S"), reason="threshold").first_kept == 3


def test_custom_messages_do_not_pass_for_the_newest_part() -> None:
    """What is kept holds a message that the model sees, whatever the application has put behind it."""
    messages = [*talk(2), UserMessage("ask " * 100), CustomMessage("note"), CustomMessage("note")]
    assert compact(messages, Summariser("S"), keep_recent=10).first_kept == 4


def test_ids_that_repeat_do_not_forbid_a_cut() -> None:
    """A loaded history that uses one call id in every turn is cut between the turns."""
    messages: list[Message] = []
    for _ in range(10):
        messages += [UserMessage("go " * 20), asks("c0"), answers("c0", "x" * 80)]
    cut = compact(messages, Summariser("S"), keep_recent=100).first_kept
    assert 20 < cut < len(messages)


def test_overflow_after_overflow_halves_what_is_kept() -> None:
    """Each compaction that only led to the next overflow keeps at most half of the last one's, till nothing is left."""
    messages: list[Message] = talk(8)
    kept = [sum(map(estimate_message, messages))]
    while len(messages) > 1:
        compaction = compact(messages, Summariser("S"), reason="overflow", window=100_000)
        kept.append(sum(map(estimate_message, messages[compaction.first_kept :])))
        messages = after(messages, compaction)
        assert len(kept) < 10
    assert all(new <= old // 2 for old, new in itertools.pairwise(kept))
    with pytest.raises(CompactionError, match="nothing to summarise"):
        compact(messages, Summariser("S"), reason="overflow", window=100_000)


blocks = st.lists(
    st.sampled_from(["user", "answer", "calls", "custom", "lost call", "lost result", "early result", "failed"]),
    min_size=1,
    max_size=10,
)


@given(blocks, st.integers(0, 600), st.sampled_from(["threshold", "overflow"]))
def test_a_cut_never_parts_a_call_from_its_result(kinds: list[str], keep: int, reason: str) -> None:
    """Whatever the history and the budget: no call before the cut has its result behind it, and something is cut."""
    messages: list[Message] = []
    for number, kind in enumerate(kinds):
        first, second = f"c{number}", f"d{number}"
        messages += {
            "user": [UserMessage("u" * 80)],
            "answer": [AssistantMessage("a" * 80)],
            "calls": [asks(first, second), answers(first, "r" * 80), answers(second, "r" * 80)],
            "custom": [CustomMessage("note")],
            "lost call": [asks(first)],
            "lost result": [answers(first)],
            "early result": [answers(first), UserMessage("u" * 80), asks(first)],
            "failed": [AssistantMessage([Text("t"), ToolCall(first, "read")], "error")],
        }[kind]
    try:
        compaction = compact(messages, Summariser("S"), reason=reason, keep_recent=keep)
    except CompactionError:
        return
    cut = compaction.first_kept
    assert 0 < cut <= len(messages)
    for one, other in ((messages[:cut], messages[cut:]), (messages[cut:], messages[:cut])):
        called = {c.id for m in one if isinstance(m, AssistantMessage) for c in m.tool_calls}
        assert not [m for m in other if isinstance(m, ToolResultMessage) and m.tool_call_id in called]


# -- what it asks --------------------------------------------------------------------------------------------------


def test_the_request_is_text_alone() -> None:
    """Calls, results and images are told as text in one user message; no tools are offered."""
    messages = [
        UserMessage([Text("look"), Image(b"x", "image/png")]),
        AssistantMessage([Text("I read"), ToolCall("c1", "read", {"path": "notes"})], "tool_use"),
        ToolResultMessage("c1", "read", "no such file", is_error=True),
        CustomMessage("note", "hidden"),
        *talk(3),
    ]
    model = Summariser("S")
    compact(messages, model)
    (request,) = model.requests
    assert request.tools == ()
    assert request.model == "small"
    assert request.settings.max_output_tokens == 125
    (message,) = request.messages
    assert isinstance(message, UserMessage)
    for said in (
        "[user]\nlook\n[an image, image/png]",
        "[assistant]\nI read",
        '[assistant calls read]\n{"path":"notes"}',
        "[error of read]\nno such file",
    ):
        assert said in message.text
    assert "hidden" not in message.text


def test_a_long_head_is_summarised_in_pieces() -> None:
    """A head longer than the window goes in several requests, each within the window and with the summary so far."""
    messages = talk(60)
    model = Summariser("part 1", "part 2", "part")
    compaction = compact(messages, model)
    assert len(model.requests) > 3
    assert "<summary>" not in model.questions[0]
    assert "<summary>\npart 1\n</summary>" in model.questions[1]
    assert "<summary>\npart 2\n</summary>" in model.questions[2]
    assert all(estimate_text(question) < 1000 for question in model.questions)
    for turn in range(compaction.first_kept // 2):
        assert sum(f"q{turn} " in question for question in model.questions) == 1
    assert compaction.usage.total == 77 * len(model.requests)


def test_a_window_that_is_smaller_than_configured_means_smaller_pieces() -> None:
    """If the summary request itself overflows, it is sent again with half as much, and nothing of the head is lost."""

    async def overflow_above_300(request: ModelRequest, send: Send) -> None:
        (message,) = request.messages
        assert isinstance(message, UserMessage)
        if estimate_text(message.text) > 300:
            raise ProviderError("context_overflow", "too long")
        for chunk in (TextDelta(0, "S"), UsageReport(USAGE), Finish("stop")):
            await send(chunk)

    messages = talk(12)
    model = Summariser(overflow_above_300)
    compaction = compact(messages, model, window=100_000)
    fitting = [question for question in model.questions if estimate_text(question) <= 300]
    for turn in range(compaction.first_kept // 2):
        assert any(f"q{turn} " in question for question in fitting)
    assert compaction.usage.total == 77 * len(fitting)


def test_a_model_that_always_overflows_ends_the_attempt() -> None:
    """A summary request that overflows however short it is fails, after a bounded number of requests."""
    model = Summariser(ProviderError("context_overflow", "too long"))
    with pytest.raises(CompactionError, match="too long") as failure:
        compact(talk(12), model, window=100_000)
    assert 2 < len(model.requests) < 20
    assert failure.value.usage.total == 77 * len(model.requests)


def test_the_applications_projection_goes_first() -> None:
    """What `convert_to_llm` removes is not told to the model that summarises."""
    model = Summariser("S")

    def censor(messages: Sequence[Message]) -> list[Message]:
        return [UserMessage(m.text.replace("hunter2", "***")) if isinstance(m, UserMessage) else m for m in messages]

    async def main() -> None:
        with trio.fail_after(60):
            censoring = SummarizingCompaction(model, model="small", window=1000, convert_to_llm=censor)
            await censoring.compact([UserMessage("it is hunter2"), *talk(3)], "threshold")

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert "it is ***" in model.questions[0]
    assert "hunter2" not in model.questions[0]


# -- what it refuses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "text"),
    [
        ("  \n", "the summary is empty"),
        ([ThinkingDelta(0, "hm"), Finish("length")], r"empty \(stop reason length\).*raise max_summary_tokens"),
        ("word " * 2000, "the summary takes about 2500 tokens, what it would replace only"),
        (
            ProviderError("server", "the model has left"),
            "the request for the summary failed: .*the model has left",
        ),
        (KeyError("x"), "the request for the summary failed: KeyError: 'x'"),
        (ExceptionGroup("two", [OSError("a"), ValueError("b")]), "failed: 2 failures: OSError: a; ValueError: b"),
        ([TextDelta(0, "S")], "the stream ended without its end marker"),
        ([TextDelta(0, "S"), Finish("done")], "'done' is not an end marker"),
        ([TextDelta(0, "S"), Finish("stop"), TextDelta(0, "more")], "a TextDelta came behind the end marker"),
    ],
)
def test_no_usable_summary_means_no_compaction(step: Step, text: str) -> None:
    """An empty summary, one that is longer than what it replaces and a failing provider raise, and say so."""
    with pytest.raises(CompactionError, match=text):
        compact(talk(4), Summariser(step))


def test_a_failed_attempt_tells_what_it_cost() -> None:
    """The error carries the usage of all requests made so far."""
    with pytest.raises(CompactionError) as failure:
        compact(talk(60), Summariser("part 1", ProviderError("server", "gone")))
    assert failure.value.usage == USAGE + USAGE
    with pytest.raises(CompactionError) as failure:
        compact(talk(4), Summariser("word " * 2000))
    assert failure.value.usage == USAGE


def test_a_failure_behind_the_end_marker_does_not_undo_the_summary(caplog: pytest.LogCaptureFixture) -> None:
    """What goes wrong once the answer has ended is logged (F6)."""

    async def answer_and_fail(request: ModelRequest, send: Send) -> None:
        await send(TextDelta(0, "S"))
        await send(Finish("stop"))
        raise OSError("closing failed")

    assert compact(talk(4), Summariser(answer_and_fail)).summary.text.endswith("\n\nS")  # type: ignore[union-attr]
    assert "closing failed" in caplog.text


def test_a_summary_that_was_cut_says_so() -> None:
    """A summary that ended at the length limit is used, with a mark where it was cut off."""
    compaction = compact(talk(4), Summariser([TextDelta(0, "half a sen"), Finish("length")]))
    assert compaction.summary.text.endswith("half a sen\n[cut off here]")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [CustomMessage("note")],
        [UserMessage("go")],
        [asks("c1"), answers("c1")],
        [AssistantMessage(""), CustomMessage("note"), AssistantMessage("", "error"), UserMessage("go")],
    ],
)
def test_nothing_to_summarise_asks_nobody(messages: list[Message]) -> None:
    """Where nothing is older than the newest messages, or only what has no text, no request is made."""
    model = Summariser("S")
    with pytest.raises(CompactionError, match="nothing to summarise"):
        compact(messages, model)
    assert model.requests == []


@pytest.mark.parametrize(
    "options",
    [
        {"window": 1000, "reserve": 1000},
        {"window": 1000, "keep_recent": 900},
        {"window": 100, "max_summary_tokens": 90},
    ],
)
def test_sizes_that_cannot_work_are_refused(options: dict[str, int]) -> None:
    """A reserve, a summary and a kept part which together exceed the window are an error when the policy is made."""
    with pytest.raises(ValueError, match=f"a window of {options['window']} tokens does not hold"):
        policy(**options)


@pytest.mark.parametrize("window", [4, 50, 1000, 8_192, 200_000, 1_000_000])
def test_the_defaults_suit_any_window(window: int) -> None:
    """A policy of a window alone leaves most of it to the conversation."""
    made = policy(window=window)
    assert made.window - made.reserve >= made.window // 2
    assert made.keep_recent + made.max_summary_tokens <= made.window - made.reserve


# -- cancellation --------------------------------------------------------------------------------------------------


async def test_cancellation_passes_through_a_waiting_provider() -> None:
    """A compaction whose model does not answer ends at once when its scope is cancelled, with no error of its own."""

    async def stall(request: ModelRequest, send: Send) -> None:
        await send(TextDelta(0, "S"))
        await trio.sleep_forever()

    begun = trio.current_time()
    with trio.fail_after(60):
        with trio.move_on_after(5) as scope:
            await policy(Summariser(stall)).compact(talk(4), "threshold")
        assert scope.cancelled_caught
        assert trio.current_time() - begun == 5


async def test_cancellation_reaches_a_provider_that_never_waits() -> None:
    """Handing over a chunk is a place where a compaction can be cancelled."""
    scope = trio.CancelScope()
    sent = []

    async def chatter(request: ModelRequest, send: Send) -> None:
        for number in range(100):
            sent.append(number)
            if number == 10:
                scope.cancel()
            await send(TextDelta(0, "word "))
        raise AssertionError("it was not cancelled")

    with trio.fail_after(60), scope:
        await policy(Summariser(chatter)).compact(talk(4), "threshold")
    assert scope.cancelled_caught
    assert len(sent) == 11


async def test_a_cancelled_scope_asks_nobody() -> None:
    """In a scope that is cancelled already no request is made."""
    model = Summariser("S")
    with trio.fail_after(60), trio.CancelScope() as scope:
        scope.cancel()
        await policy(model).compact(talk(4), "threshold")
    assert scope.cancelled_caught
    assert model.requests == []


# -- estimates -----------------------------------------------------------------------------------------------------


@given(st.text(st.characters(), max_size=300), st.integers(0, 3))
def test_text_within_the_bound_stays_as_it_is(text: str, more: int) -> None:
    """Nothing is left out of a text that takes as much as it may, or less."""
    assert shorten(text, estimate_text(text) + more) == text


@given(*[st.text(st.characters(), min_size=1, max_size=5).map(lambda text: text * 150)] * 2, st.integers(30, 60))
def test_shortened_text_fits_and_keeps_both_ends(first: str, second: str, tokens: int) -> None:
    """A text beyond the bound comes to at most that much, and keeps its beginning and end."""
    text = first + second
    short = shorten(text, tokens)
    assert estimate_text(short) <= tokens
    beginning, _, end = short.partition("\n[… ")
    assert beginning
    assert text.startswith(beginning)
    note, _, end = end.partition(" …]\n")
    assert end
    assert text.endswith(end)
    left_out = len(text) - len(beginning) - len(end)
    assert note == f"{left_out} characters left out here, because the text is too long"


def test_text_of_two_alphabets_is_shortened_enough() -> None:
    """Where the beginning takes more tokens a character than the rest, it is cut more."""
    assert estimate_text(shorten("漢" * 100 + "a" * 1000, 50)) <= 50


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("", 0, 0),
        ("a", 1, 1),
        ("the quick brown fox jumps " * 4, 20, 30),
        ("天地玄黄宇宙洪荒", 8, 8),
        ("\ud800", 1, 1),
        ("é" * 30, 15, 25),
    ],
)
def test_estimates_are_near(text: str, least: int, most: int) -> None:
    """About four letters of ASCII, and about one character of Chinese, are a token; lone surrogates count too."""
    assert least <= estimate_text(text) <= most
