"""How chunks become a message: what may come in which order (F6), call ids (T7), the message at any moment (L4)."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_agent import (
    AssistantMessage,
    BlockEnd,
    Chunk,
    Finish,
    Limits,
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
    ToolCallFragment,
    ToolCallStart,
    Usage,
    UsageReport,
    decode,
    encode,
)
from trio_agent._assembly import Assembly


def fold(*chunks: Any, used_ids: set[str] | None = None) -> Assembly:
    assembly = Assembly(used_ids or set())
    for chunk in chunks:
        assembly.fold(chunk)
    return assembly


def message_of(*chunks: Any, used_ids: set[str] | None = None) -> AssistantMessage:
    return fold(*chunks, Finish("stop"), used_ids=used_ids).finish()


def call_ids(*ids: str | None, used: set[str] | None = None) -> list[str]:
    starts = [ToolCallStart(index, id, "echo") for index, id in enumerate(ids)]
    return [call.id for call in message_of(*starts, used_ids=used).tool_calls]


def test_an_answer_of_every_kind_of_block() -> None:
    """Text, thinking, hidden thinking and calls come out as blocks, in the order of their first chunks."""
    message = message_of(
        ResponseInfo("r1", "m-2026"),
        ThinkingDelta(0, "let me "),
        ThinkingDelta(0, "see"),
        BlockEnd(0, "signed"),
        RedactedThinking(1, "opaque"),
        TextDelta(2, "here"),
        ToolCallStart(3, "c1", "read"),
        ToolCallDelta(3, '{"path":'),
        ToolCallDelta(3, '"a"}'),
        BlockEnd(3),
        UsageReport(Usage(input=3, output=4)),
    )
    assert message.content == (
        Thinking("let me see", "signed"),
        Thinking("", redacted="opaque"),
        Text("here"),
        ToolCall("c1", "read", raw='{"path":"a"}'),
    )
    assert message.tool_calls[0].arguments == {"path": "a"}
    assert (message.response_id, message.model, message.usage) == ("r1", "m-2026", Usage(input=3, output=4))


def test_blocks_may_interleave() -> None:
    """A block is named by its index: pieces of two blocks may come in turns."""
    message = message_of(TextDelta(5, "a"), ToolCallStart(1, "c1", "echo"), TextDelta(5, "b"), ToolCallDelta(1, "{}"))
    assert message.content == (Text("ab"), ToolCall("c1", "echo", {}))


def test_a_signature_opens_a_thinking_block_whose_text_is_not_shown() -> None:
    """A signature for a block that has no text belongs to thinking that its provider keeps to itself."""
    assert message_of(BlockEnd(0, "signed"), TextDelta(1, "hi")).content == (Thinking("", "signed"), Text("hi"))


@pytest.mark.parametrize("chunk", [TextDelta(0, ""), ThinkingDelta(0, ""), BlockEnd(7), ResponseInfo("r")])
def test_what_says_nothing_is_not_told(chunk: Chunk) -> None:
    """Empty text, the end of a block and what is known of the response make no update and no text."""
    assembly = Assembly(set())
    assert assembly.fold(chunk) is None
    assert assembly.message_at(len(assembly)).text == ""


def test_the_first_sign_of_a_call_is_told_with_its_id_and_name() -> None:
    """The start of a call is an update without text; pieces of its arguments carry its id and name as well."""
    assembly = Assembly(set())
    assert assembly.fold(ToolCallStart(0, "c1", "echo")) == ToolCallFragment(0, "c1", "echo", "")
    assert assembly.fold(ToolCallDelta(0, "{")) == ToolCallFragment(0, "c1", "echo", "{")
    assert assembly.fold(ToolCallDelta(0, "")) is None


@pytest.mark.parametrize("reason", ["stop", "length", "tool_use"])
def test_F6_an_end_marker_that_is_known_ends_the_message(reason: str) -> None:
    """`stop`, `length` and `tool_use` are the end markers."""
    assembly = fold(TextDelta(0, "hi"), Finish(reason))
    assert assembly.finished
    assert assembly.finish().stop_reason == reason


@pytest.mark.parametrize("reason", ["eos", "", "error", "aborted", "Stop", None, 3, ["stop"]])
def test_F6_an_unknown_end_marker_is_an_error(reason: Any) -> None:
    """Any other end marker is a protocol error, and the message is not ended by it."""
    assembly = fold(TextDelta(0, "hi"))
    with pytest.raises(ProviderError, match="is not an end marker") as caught:
        assembly.fold(Finish(reason))
    assert caught.value.kind == "protocol"
    assert not assembly.finished


def test_F6_a_stream_without_its_end_marker_is_no_message() -> None:
    """Without an end marker there is no whole message to be had, however much of it has come."""
    with pytest.raises(ProviderError, match="without its end marker"):
        fold(TextDelta(0, "hi")).finish()


@pytest.mark.parametrize(
    "chunk",
    [
        TextDelta(0, "more"),
        TextDelta(9, "more"),
        TextDelta(0, ""),
        ThinkingDelta(9, "more"),
        ToolCallStart(9, "c9", "echo"),
        ToolCallDelta(1, "{}"),
        BlockEnd(0),
        BlockEnd(0, "signed"),
        RedactedThinking(9, "opaque"),
        ResponseInfo("r"),
        Finish("stop"),
    ],
)
def test_a_chunk_behind_the_end_marker_is_an_error(chunk: Chunk) -> None:
    """F6: behind the end marker only a usage report may come, and what has come stays as it is."""
    assembly = fold(TextDelta(0, "hi"), ToolCallStart(1, "c1", "echo"), Finish("tool_use"))
    before = assembly.finish()
    with pytest.raises(ProviderError, match="behind the end marker") as caught:
        assembly.fold(chunk)
    assert caught.value.kind == "protocol"
    assert assembly.finish() == before


def test_F6_a_usage_report_may_come_behind_the_end_marker_and_replaces_an_earlier_one() -> None:
    """The last usage report counts, before or behind the end marker."""
    assembly = fold(UsageReport(Usage(output=1)), Finish("stop"), UsageReport(Usage(output=2)))
    assert assembly.finish().usage == Usage(output=2)


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        ([TextDelta(0, "a"), ThinkingDelta(0, "b")], "block 0 was opened by TextDelta"),
        ([ThinkingDelta(0, "a"), TextDelta(0, "b")], "cannot take TextDelta"),
        ([TextDelta(0, "a"), ToolCallStart(0, "c1", "echo")], "cannot take ToolCallStart"),
        ([ToolCallStart(0, "c1", "echo"), ToolCallStart(0, "c1", "echo")], "block 0 was opened by ToolCallStart"),
        ([RedactedThinking(0, "a"), RedactedThinking(0, "b")], "block 0 was opened by RedactedThinking"),
        ([ToolCallDelta(0, "{}")], "block 0, which is no tool call"),
        ([TextDelta(0, "a"), ToolCallDelta(0, "{}")], "block 0, which is no tool call"),
        ([TextDelta(0, cast("Any", b"a"))], "carries bytes where text belongs"),
        ([ThinkingDelta(0, cast("Any", None))], "carries NoneType where text belongs"),
        (
            [ToolCallStart(0, "c1", "echo"), ToolCallDelta(0, cast("Any", {"a": 1}))],
            "carries dict where JSON text belongs",
        ),
        (["hi"], "str is no chunk"),
        ([None], "NoneType is no chunk"),
    ],
)
def test_F6_what_no_answer_may_contain_is_an_error_that_says_what_came(chunks: list[Any], words: str) -> None:
    """Chunks that contradict each other, or are none, are protocol errors, and change nothing."""
    assembly = fold(*chunks[:-1])
    before = assembly.message_at(len(assembly))
    with pytest.raises(ProviderError, match=words) as caught:
        assembly.fold(chunks[-1])
    assert caught.value.kind == "protocol"
    assert assembly.message_at(len(assembly)) == before


def test_T7_ids_that_are_unique_stay_as_they_are() -> None:
    """A provider's own ids are kept, whatever they look like."""
    assert call_ids("c1", "functions.echo:0", "ä b") == ["c1", "functions.echo:0", "ä b"]


@pytest.mark.parametrize("id", ["", None, " ", "\n", 7])
def test_T7_a_missing_or_empty_id_is_replaced(id: Any) -> None:
    """A call without an id gets one of ours, and two of them get different ones."""
    ids = call_ids(id, id)
    assert all(isinstance(made, str) and made.strip() for made in ids)
    assert len(set(ids)) == 2


def test_T7_a_repeated_id_is_replaced_within_a_message_and_within_history() -> None:
    """The first call with an id keeps it; a later one of the message or of history gets another."""
    first, second = call_ids("c1", "c1")
    assert first == "c1" != second
    [third] = call_ids("c1", used={"c1"})
    assert third not in ("c1", "")


def test_T7_a_made_id_is_not_one_that_history_or_the_message_has() -> None:
    """An id that we make does not collide with one that a provider made to look like ours."""
    used = {f"call_{number}" for number in range(1, 20)}
    ids = call_ids(None, "call_20", None, "call_21", used=used)
    assert len(set(ids) | used) == len(ids) + len(used)


@given(st.lists(st.sampled_from(["a", "b", "", None, "call_1", "call_2", "call_3"]), max_size=8), st.booleans())
def test_T7_ids_are_unique_whatever_comes(ids: list[str | None], some_used: bool) -> None:
    """Whatever ids come, those of the message are unique, not empty, and not in history."""
    used = {"a", "call_2"} if some_used else set[str]()
    made = call_ids(*ids, used=used)
    assert len(made) == len(ids) == len(set(made))
    assert not used & set(made)
    assert all(made)


@pytest.mark.parametrize("pieces", [(), ("",), (" ",), ("null",), ("nu", "ll"), ("\n",)])
def test_a_call_without_arguments_has_an_empty_object(pieces: tuple[str, ...]) -> None:
    """No arguments, blank ones and `null` are kept as `{}`."""
    [call] = message_of(ToolCallStart(0, "c1", "now"), *[ToolCallDelta(0, piece) for piece in pieces]).tool_calls
    assert (call.raw, call.arguments) == ("{}", {})


def test_a_call_without_a_name_has_an_empty_one() -> None:
    """A name that is missing is empty; the tool phase then tells the model that there is no such tool."""
    [call] = message_of(ToolCallStart(0, "c1", None)).tool_calls  # type: ignore[arg-type]
    assert call.name == ""


PIECES = st.one_of(
    st.builds(TextDelta, st.integers(0, 1), st.text(max_size=3)),
    st.builds(ThinkingDelta, st.integers(2, 3), st.text(max_size=3)),
    st.builds(ToolCallDelta, st.integers(4, 5), st.text(max_size=3)),
)


@given(st.lists(PIECES, max_size=12))
def test_L4_the_message_at_a_moment_is_made_of_what_was_told_until_then(pieces: list[Chunk]) -> None:
    """At each moment a block's text is the concatenation of its updates so far, and later chunks do not change it."""
    assembly = fold(ToolCallStart(4, "c4", "echo"), ToolCallStart(5, "c5", "echo"))
    texts: dict[int, str] = {4: "", 5: ""}
    moments: list[tuple[int, dict[int, str]]] = []
    for piece in pieces:
        delta = assembly.fold(piece)
        if delta is not None:
            texts[delta.index] = texts.get(delta.index, "") + (
                delta.json if isinstance(delta, ToolCallFragment) else delta.text
            )
        moments.append((len(assembly), dict(texts)))
    for length, told in moments:
        blocks = dict(zip(told, assembly.message_at(length).content, strict=True))
        for index, text in told.items():
            block = blocks[index]
            shown = block.raw if isinstance(block, ToolCall) else block.text
            assert shown == (ToolCall("", "", raw=text).raw if index in (4, 5) else text)


@given(st.lists(st.one_of(PIECES, st.builds(BlockEnd, st.integers(2, 6), st.sampled_from([None, "s"]))), max_size=12))
def test_L4_the_last_moment_is_what_it_was_once_more_has_come(pieces: list[Chunk]) -> None:
    """A message is the same whether it is looked at when it is the newest or later, and its blocks stand in order."""
    watched, later = [fold(ToolCallStart(4, "c4", "echo"), ToolCallStart(5, "c5", "echo")) for _ in range(2)]
    newest: list[tuple[int, AssistantMessage]] = []
    for piece in pieces:
        watched.fold(piece)
        later.fold(piece)
        newest.append((len(watched), watched.message_at(len(watched))))
    later.fold(TextDelta(9, "more"))
    assert [(length, later.message_at(length)) for length, _ in newest] == newest


def test_a_message_cut_off_keeps_what_had_come_and_says_why() -> None:
    """Closed before its end, a message carries what had arrived, the reason, and what it cost so far."""
    assembly = fold(TextDelta(0, "Hel"), UsageReport(Usage(output=1)), TextDelta(0, "lo"))
    message = assembly.message_at(len(assembly), "aborted", "aborted: enough")
    assert (message.text, message.stop_reason, message.error_message) == ("Hello", "aborted", "aborted: enough")
    assert message.usage == Usage(output=1)


def test_L4_a_pair_of_surrogates_that_two_deltas_part_is_one_character_of_the_message() -> None:
    """Halves that come apart are one character in the message, in history and in a log; a half alone stays a half."""
    message = message_of(TextDelta(0, "a\ud83d"), TextDelta(0, "\ude00\ud83d"))
    assert message.content == (Text("a\U0001f600\ud83d"),)
    assert decode(json.loads(json.dumps(encode(message)))) == message


@pytest.mark.parametrize("wrong", [{"max_attempts": 2.5}, {"max_attempts": "3"}, {"max_attempts": 0}])
def test_F8_a_retry_policy_counts_in_whole_numbers(wrong: dict[str, Any]) -> None:
    """A number of attempts that is none is refused where it is given, not told in an event that nobody can read."""
    with pytest.raises((TypeError, ValueError)):
        RetryPolicy(**wrong)


@pytest.mark.parametrize("limit", ["max_turns", "max_tool_calls", "max_total_tokens"])
def test_A8_limits_count_in_whole_numbers(limit: str) -> None:
    """A limit that is no whole number is refused where it is given."""
    with pytest.raises(TypeError):
        Limits(**{limit: 1.5})
