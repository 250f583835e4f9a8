"""The default projection: whatever the history, what comes out can be sent."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_agent._history import History
from trio_agent._messages import (
    AssistantMessage,
    CustomMessage,
    Image,
    Message,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from trio_agent._projection import INTERRUPTED, IncrementalProjection, project


def assert_paired(messages: Sequence[Message]) -> None:
    """I1: each call has exactly one result, directly behind its message, in call order; no result lacks a call."""
    awaited: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if isinstance(message, ToolResultMessage):
            assert awaited, f"the result of {message.tool_call_id} has no call in front of it"
            assert message.tool_call_id == awaited.pop(0)
            continue
        assert not awaited, f"no results for {awaited}"
        if isinstance(message, AssistantMessage):
            awaited = [call.id for call in message.tool_calls]
            assert not seen.intersection(awaited)
            assert len(set(awaited)) == len(awaited)
            assert all(awaited)
            seen.update(awaited)
    assert not awaited, f"no results for {awaited}"


def call(call_id: str, name: str = "read") -> ToolCall:
    return ToolCall(call_id, name, {"path": "a"})


def asks(*call_ids: str, text: str = "") -> AssistantMessage:
    return AssistantMessage(([Text(text)] if text else []) + [call(call_id) for call_id in call_ids], "tool_use")


def answers(call_id: str, text: str = "done") -> ToolResultMessage:
    return ToolResultMessage(call_id, "read", text)


def shown(messages: Sequence[Message]) -> list[str]:
    """Messages as short lines, to be compared at a glance."""
    lines: list[str] = []
    for message in messages:
        if isinstance(message, UserMessage):
            lines.append(f"user {message.text}")
        elif isinstance(message, ToolResultMessage):
            lines.append(f"result {message.tool_call_id} {message.text}")
        else:
            assert isinstance(message, AssistantMessage)
            lines.append(
                " ".join(["assistant", *([message.text] if message.text else []), *[c.id for c in message.tool_calls]])
            )
    return lines


ids = st.sampled_from(["c1", "c2", "c3", "c1_2", ""])
texts = st.sampled_from(["", " \n", "word", "é"])
assistant_blocks = st.one_of(
    texts.map(Text),
    texts.map(Thinking),
    st.just(Thinking("", redacted="x")),
    ids.map(call),
    ids.map(lambda i: call(i, "write")),
)
any_message: st.SearchStrategy[Message] = st.one_of(
    st.builds(UserMessage, st.one_of(texts, st.just([Image(b"x", "image/png")]))),
    st.builds(
        AssistantMessage,
        st.lists(assistant_blocks, max_size=4),
        st.sampled_from(["stop", "length", "tool_use", "error", "aborted", None]),
    ),
    st.builds(ToolResultMessage, ids, st.just("read"), texts, st.booleans()),
    st.builds(CustomMessage, st.just("note"), st.integers()),
)
any_history = st.lists(any_message, max_size=14)


@st.composite
def sendable_histories(draw: st.DrawFn) -> list[Message]:
    messages: list[Message] = []
    number = 0
    for kind in draw(st.lists(st.sampled_from(["user", "answer", "calls", "failed"]), max_size=8)):
        if kind == "user":
            messages.append(UserMessage("hi"))
        elif kind == "answer":
            messages.append(AssistantMessage([Thinking("hm"), Text("well")], draw(st.sampled_from(["stop", "length"]))))
        elif kind == "failed":
            messages.append(AssistantMessage("so far", "error", error_message="broken"))
        else:
            made = [f"c{number + at}" for at in range(draw(st.integers(1, 3)))]
            number += len(made)
            messages += [asks(*made), *map(answers, made)]
    return messages


@given(any_history)
def test_whatever_comes_in_can_be_sent(history: list[Message]) -> None:
    """The output of any sequence of messages satisfies I1 and holds no custom message and no wordless answer."""
    sent = project(history)
    assert_paired(sent)
    assert not any(isinstance(message, CustomMessage) for message in sent)
    assert not any(isinstance(m, AssistantMessage) and not m.tool_calls and not m.content for m in sent)


@given(any_history)
def test_projecting_twice_changes_nothing(history: list[Message]) -> None:
    """What came out of the projection goes through it as the same objects."""
    once = project(history)
    twice = project(once)
    assert len(twice) == len(once)
    assert all(a is b for a, b in zip(once, twice, strict=True))


@given(sendable_histories())
def test_a_sendable_history_is_left_alone(history: list[Message]) -> None:
    """A history that needs no repair comes out as the very same objects in the same order."""
    sent = project(history)
    assert len(sent) == len(history)
    assert all(a is b for a, b in zip(history, sent, strict=True))


@given(any_history)
def test_order_and_words_are_kept(history: list[Message]) -> None:
    """Users' messages stay as they are, and every word of an answer is sent, in the order of history."""
    sent = project(history)
    assert [m for m in sent if isinstance(m, UserMessage)] == [m for m in history if isinstance(m, UserMessage)]

    def words(messages: Sequence[Message]) -> list[str]:
        found = [m.text for m in messages if isinstance(m, AssistantMessage)]
        return [text for text in found if text.strip()]

    assert words(sent) == words(history)


@given(any_history)
def test_no_call_of_a_standing_answer_is_lost(history: list[Message]) -> None:
    """Each call of an answer that did not fail is sent, with its name and arguments, in the order of history."""

    def calls(messages: Sequence[Message]) -> list[tuple[str, str]]:
        standing = [
            m for m in messages if isinstance(m, AssistantMessage) and m.stop_reason not in ("error", "aborted", None)
        ]
        return [(c.name, c.raw) for m in standing for c in m.tool_calls]

    assert calls(project(history)) == calls(history)


@given(
    st.permutations([asks("c1", "c2"), answers("c1", "one"), answers("c2", "two"), asks("c3"), answers("c3", "three")])
)
def test_results_find_their_calls_in_any_order(history: list[Message]) -> None:
    """However messages with unique ids are shuffled, each result is sent, behind its call and not as a placeholder."""
    sent = project(history)
    assert_paired(sent)
    assert {m.text for m in sent if isinstance(m, ToolResultMessage)} == {"one", "two", "three"}


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    """A missing result is replaced by an error saying that the call was interrupted and may have partly run (B011)."""
    sent = project([UserMessage("go"), asks("c1", "c2"), answers("c2"), UserMessage("next")])
    assert shown(sent) == ["user go", "assistant c1 c2", f"result c1 {INTERRUPTED}", "result c2 done", "user next"]
    placeholder = sent[2]
    assert isinstance(placeholder, ToolResultMessage)
    assert placeholder.is_error
    assert placeholder.tool_name == "read"
    assert "interrupted" in placeholder.text
    assert "partly run" in placeholder.text


def test_results_move_to_their_message_in_call_order() -> None:
    """Results in the wrong order, or behind a later message, are sent directly behind their message."""
    sent = project([asks("c1", "c2"), UserMessage("between"), answers("c2"), answers("c1")])
    assert shown(sent) == ["assistant c1 c2", "result c1 done", "result c2 done", "user between"]


def test_a_result_before_its_call_moves_behind_it() -> None:
    """A hook that reorders does not lose a result."""
    assert shown(project([answers("c1", "early"), asks("c1")])) == ["assistant c1", "result c1 early"]


def test_a_second_result_is_left_out() -> None:
    """Of several results of a call the first is sent."""
    assert shown(project([asks("c1"), answers("c1", "one"), answers("c1", "two")])) == ["assistant c1", "result c1 one"]


def test_a_result_without_its_call_is_left_out() -> None:
    """B088: a hook that removed the assistant message leaves no orphan behind."""
    assert shown(project([UserMessage("go"), answers("c1"), UserMessage("next")])) == ["user go", "user next"]


def test_calls_of_a_failed_answer_are_left_out() -> None:
    """An answer that ended `error` or `aborted`, or not at all, keeps text and thinking and loses its calls (T6)."""
    reasons: list[StopReason | None] = ["error", "aborted", None]
    for reason in reasons:
        failed = AssistantMessage([Thinking("hm"), Text("I will"), call("c1")], reason, error_message="cut")
        sent = project([failed, answers("c1"), UserMessage("next")])
        assert shown(sent) == ["assistant I will", "user next"]
        assert sent[0] == AssistantMessage([Thinking("hm"), Text("I will")], reason, error_message="cut")


@pytest.mark.parametrize("early", [True, False])
def test_a_result_of_a_cut_call_does_not_go_to_a_later_one(early: bool) -> None:
    """A result that stands by a call which is left out is left out too, though a later call has the same id."""
    cut = AssistantMessage([Text("I will"), call("c1")], "aborted")
    history = [answers("c1"), cut, asks("c1")] if early else [cut, answers("c1"), asks("c1")]
    assert shown(project(history)) == ["assistant I will", "assistant c1", f"result c1 {INTERRUPTED}"]


@pytest.mark.parametrize(
    "message",
    [
        AssistantMessage((), "stop"),
        AssistantMessage(" \n", "stop"),
        AssistantMessage([Text(""), Text("\t")], "length"),
        AssistantMessage((), "error", error_message="no answer"),
        AssistantMessage([Thinking("hm")], "aborted"),
        AssistantMessage([Thinking("hm"), call("c1")], "error"),
        AssistantMessage([Text(" "), call("c1")], "aborted"),
    ],
)
def test_an_answer_without_words_is_left_out(message: AssistantMessage) -> None:
    """An empty or blank answer is not sent, nor a failed one of which only thinking or calls arrived (B093)."""
    assert project([UserMessage("go"), message]) == (UserMessage("go"),)


def test_thinking_of_a_standing_answer_is_kept() -> None:
    """An answer that the model ended itself is sent also if it is thinking alone: its provider decides."""
    message = AssistantMessage([Thinking("hm", signature="s")], "stop")
    assert project([message]) == (message,)


def test_a_repeated_id_is_replaced_in_call_and_result() -> None:
    """Where a loaded history uses an id in every turn, each call keeps its own result under an id of its own."""
    history = [asks("c0"), answers("c0", "one"), asks("c0"), answers("c0", "two"), asks("c0", "c0")]
    history += [answers("c0", "three"), answers("c0", "four")]
    assert shown(project(history)) == [
        "assistant c0",
        "result c0 one",
        "assistant c0_2",
        "result c0_2 two",
        "assistant c0_3 c0_4",
        "result c0_3 three",
        "result c0_4 four",
    ]


def test_a_made_id_is_taken_too() -> None:
    """A later call whose own id equals one that was made for an earlier call gets another."""
    history = [
        asks("c1"),
        answers("c1"),
        asks("c1"),
        answers("c1"),
        asks("c1_2"),
        answers("c1_2"),
        asks(""),
        answers(""),
    ]
    assert [line.split()[1] for line in shown(project(history))][::2] == ["c1", "c1_2", "c1_2_2", "call_1"]


def test_a_renamed_call_keeps_all_else() -> None:
    """An id that is replaced changes neither arguments nor signature, neither details nor the error flag."""
    again = AssistantMessage([Text("x"), ToolCall("c1", "run", raw='{ "a": 1}', signature="s")], "tool_use", model="m")
    result = ToolResultMessage("c1", "run", [Image(b"x", "image/png")], True, {"exit": 1})
    sent = project([asks("c1"), answers("c1"), again, result])
    assert sent[2:] == (
        AssistantMessage([Text("x"), ToolCall("c1_2", "run", raw='{ "a": 1}', signature="s")], "tool_use", model="m"),
        ToolResultMessage("c1_2", "run", [Image(b"x", "image/png")], True, {"exit": 1}),
    )


def test_the_input_is_left_alone() -> None:
    """Projection neither changes the list nor the messages it is given."""
    history: list[Message] = [answers("c9"), asks("c1"), CustomMessage("note", {"a": 1}), UserMessage("x")]
    before = list(history)
    project(history)
    assert history == before


def test_repairs_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Each repair is a warning that names the call; the second look at the same history is silent."""
    caplog.set_level(logging.WARNING, "trio_agent")
    told: set[str] = set()
    history = [answers("c9"), asks("c1"), AssistantMessage("", "stop"), CustomMessage("note")]
    project(history, told=told)
    first = [record.getMessage() for record in caplog.records]
    assert len(first) == 2
    assert "'c1'" in first[0]
    assert "'c9'" in first[1]
    project(history, told=told)
    assert len(caplog.records) == 2


def test_an_epoch_does_not_repeat_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """After a retry or a compaction the projection is made anew, and only new repairs are logged."""
    caplog.set_level(logging.WARNING, "trio_agent")
    history: History[Message] = History([asks("c1"), UserMessage("x")])
    projection = IncrementalProjection()
    projection.update(history)
    history.replace([UserMessage("summary"), *history.view()])
    projection.update(history)
    assert len(caplog.records) == 1


changes = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(any_message, max_size=4)),
        st.tuples(st.just("replace"), st.lists(any_message, max_size=4)),
        st.tuples(st.just("restart"), st.lists(any_message, max_size=4)),
    ),
    max_size=8,
)


@given(changes)
def test_the_incremental_projection_equals_the_whole_one(steps: list[tuple[str, list[Message]]]) -> None:
    """After any appends and replacements an update shows what `project` shows, and earlier views stay as they were."""
    history: History[Message] = History()
    projection = IncrementalProjection()
    handed_out = []
    for step, messages in steps:
        if step == "append":
            for message in messages:
                history.append(message)
        elif step == "replace":
            history.replace(messages)
        else:
            history = History(messages)
        view = projection.update(history)
        assert view == project(history.view())
        handed_out.append((view, tuple(view)))
    assert all(tuple(view) == copy for view, copy in handed_out)


def test_a_late_result_leaves_earlier_views_alone() -> None:
    """A result that comes for a call shown as interrupted takes the placeholder's place, in later views only."""
    history: History[Message] = History([asks("c1"), UserMessage("next")])
    projection = IncrementalProjection()
    before = projection.update(history)
    history.append(answers("c1"))
    after = projection.update(history)
    assert shown(before) == ["assistant c1", f"result c1 {INTERRUPTED}", "user next"]
    assert shown(after) == ["assistant c1", "result c1 done", "user next"]


class _CountingHistory(History[Message]):
    """A history that counts how often a message is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        counting = self

        class Items(list[Message]):
            def __getitem__(self, index):  # type: ignore[no-untyped-def, override]
                counting.looks += len(range(*index.indices(len(self)))) if isinstance(index, slice) else 1
                return super().__getitem__(index)

        self._items = Items()


def test_an_update_looks_at_new_messages_only() -> None:
    """Over a history of any length each message is looked at once, also behind an old call without a result."""
    history = _CountingHistory()
    projection = IncrementalProjection()
    history.append(asks("lost"))
    for turn in range(300):
        for message in (UserMessage("go"), asks(f"c{turn}"), answers(f"c{turn}")):
            history.append(message)
        projection.update(history)
    assert history.looks == 901


def test_a_placeholder_stays_the_same_object() -> None:
    """What was added for a call without a result is made once, however often the history is looked at."""
    history: History[Message] = History([asks("c1"), UserMessage("next")])
    projection = IncrementalProjection()
    placeholder = projection.update(history)[1]
    history.append(UserMessage("more"))
    assert projection.update(history)[1] is placeholder


def test_an_update_copies_nothing_that_it_has_shown() -> None:
    """Views of one epoch share one list, so that an update costs no copy of the history."""
    history: History[Message] = History()
    projection = IncrementalProjection()
    views = []
    for turn in range(20):
        for message in (UserMessage("go"), asks(f"c{turn}"), answers(f"c{turn}")):
            history.append(message)
        views.append(projection.update(history))
    assert len({id(view._items) for view in views}) == 1
