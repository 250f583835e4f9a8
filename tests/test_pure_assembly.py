"""The assembly of an answer by itself: the message at each moment, and the exact words of each refusal."""

from __future__ import annotations

from typing import Any

import pytest

from trio_agent import (
    AssistantMessage,
    BlockEnd,
    Finish,
    ProviderError,
    RedactedThinking,
    ResponseInfo,
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
)
from trio_agent._assembly import Assembly


def fold(*chunks: Any, used_ids: Any = (), **origin: Any) -> Assembly:
    assembly = Assembly(set(used_ids), **origin)
    for chunk in chunks:
        assembly.fold(chunk)
    return assembly


DONE = Finish("stop")
CALL = ToolCallStart(0, "c1", "echo")


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        ([DONE, TextDelta(0, "a")], "a TextDelta came behind the end marker"),
        ([TextDelta(0, "a"), DONE, TextDelta(0, "b")], "a TextDelta came behind the end marker"),
        ([DONE, ToolCallStart(0, "c", "t")], "a ToolCallStart came behind the end marker"),
        ([Finish("end")], "'end' is not an end marker; the known ones are stop, length, tool_use"),
        ([Finish(3)], "3 is not an end marker; the known ones are stop, length, tool_use"),
        ([Finish(["stop"])], "['stop'] is not an end marker; the known ones are stop, length, tool_use"),
        ([TextDelta("0", "a")], "a block is named by its index, an int, not by '0'"),
        ([TextDelta(1, "a"), TextDelta(True, "a")], "a block is named by its index, an int, not by True"),
        ([TextDelta(0, 5)], "a TextDelta carries int where text belongs"),
        ([CALL, TextDelta(0, "a")], "block 0 was opened by ToolCallStart and cannot take TextDelta"),
        (
            [ThinkingDelta(0, "a"), RedactedThinking(0, "b")],
            "block 0 was opened by ThinkingDelta and cannot take Redacted",
        ),
        ([TextDelta(0, "a"), ToolCallDelta(0, "{")], "arguments came for block 0, which is no tool call"),
        ([CALL, ToolCallDelta(0, None)], "a ToolCallDelta carries NoneType where JSON text belongs"),
        ([BlockEnd(0, "s"), TextDelta(0, "a")], "block 0 was opened by ThinkingDelta and cannot take TextDelta"),
        ([BlockEnd(0, 7)], "a chunk's signature is text, not int"),
        ([RedactedThinking(0, None)], "a chunk's data is text, not NoneType"),
        ([ResponseInfo(7)], "a chunk's id is text, not int"),
        ([ResponseInfo("r", 7)], "a chunk's model is text, not int"),
        ([ResponseInfo("r", "m", 7)], "a chunk's provider is text, not int"),
        ([5], "int is no chunk; see trio_agent's chunk classes"),
    ],
)
def test_F6_each_refusal_of_a_chunk_says_what_is_wrong_with_it(chunks: list[Any], words: str) -> None:
    """A chunk that no answer may contain is a protocol error in these words, and changes nothing."""
    assembly = fold(*chunks[:-1])
    length, before = len(assembly), assembly.message_at(len(assembly))
    with pytest.raises(ProviderError) as refused:
        assembly.fold(chunks[-1])
    assert refused.value.kind == "protocol"
    assert str(refused.value).startswith(words)
    assert (len(assembly), assembly.message_at(length)) == (length, before)


def test_F6_an_answer_that_has_not_ended_is_none() -> None:
    """Without the end marker the answer has not finished, and asking for it says so."""
    assembly = fold(TextDelta(0, "a"))
    assert assembly.finished is False
    with pytest.raises(ProviderError) as refused:
        assembly.finish()
    assert str(refused.value) == "the stream ended without its end marker; the answer may be cut"
    assembly.fold(DONE)
    assert assembly.finished is True


def test_an_answer_has_the_origin_that_is_known_of_it() -> None:
    """The service's model and id are taken where it tells them, at first or later; else those that were asked for."""
    origin = {"model": "asked", "provider": "p"}
    assert fold(TextDelta(0, "a"), DONE, **origin).finish() == AssistantMessage(
        "a", "stop", model="asked", provider="p"
    )
    told = fold(TextDelta(0, "a"), ResponseInfo("r1"), ResponseInfo(None, "m2"), DONE, **origin)
    assert told.finish() == AssistantMessage("a", "stop", model="m2", provider="p", response_id="r1")
    assert told.message_at(1) == AssistantMessage("a", None, model="asked", provider="p")
    assert told.message_at(2) == AssistantMessage("a", None, model="asked", provider="p", response_id="r1")
    again = fold(ResponseInfo("r1", "m1", "p1"), ResponseInfo("r2", "m2", "p2"), ResponseInfo(None), DONE)
    assert again.finish() == AssistantMessage((), "stop", model="m2", provider="p2", response_id="r2")
    assert fold(ResponseInfo(None), DONE, **origin).finish() == fold(DONE, **origin).finish()


@pytest.mark.parametrize("kind", [TextDelta, ThinkingDelta])
def test_a_character_that_two_deltas_parted_is_whole_again(kind: Any) -> None:
    """Two halves of a surrogate pair become their character, also among other characters; a half alone stays."""
    parted = fold(kind(0, "é\ud83d"), kind(0, "\ude00\ud800"), DONE).finish().content[0]
    assert parted in (Text("é😀\ud800"), Thinking("é😀\ud800"))
    plain = fold(kind(0, "é"), kind(0, "a"), DONE).finish().content[0]
    assert plain in (Text("éa"), Thinking("éa"))


def test_an_answer_is_cut_at_any_moment_with_what_it_cost() -> None:
    """Cut off, it has its reason, its error and its usage; while it streams it has none of them, and is made once."""
    assembly = fold(TextDelta(0, "a"), UsageReport(Usage(output=2)), TextDelta(0, "b"))
    cut = AssistantMessage("a", "aborted", Usage(output=2), error_message="why")
    assert assembly.message_at(1) == AssistantMessage("a", None)
    assert assembly.message_at(1) is assembly.message_at(1)
    assert assembly.message_at(1, "aborted", "why") == cut
    assert assembly.message_at(1, "aborted") == AssistantMessage("a", "aborted", Usage(output=2))
    assert assembly.message_at(2) == AssistantMessage("ab", None)
    assert assembly.message_at(0) == AssistantMessage((), None)


def test_an_answer_has_a_block_for_each_index_in_the_order_of_their_beginnings() -> None:
    """Text, thinking, signatures, hidden thinking and calls each make their block of what came for it."""
    assembly = fold(
        *[ThinkingDelta(3, "h"), TextDelta(1, "t"), ThinkingDelta(3, "m"), BlockEnd(3, "s3"), BlockEnd(1)],
        *[RedactedThinking(5, "xyz"), BlockEnd(6, "s6"), ToolCallStart(0, "c1", "echo")],
        *[ToolCallDelta(0, '{"a"'), ToolCallDelta(0, ":1}"), BlockEnd(0, "s0"), TextDelta(1, "!"), BlockEnd(1, "s1")],
    )
    assert assembly.fold(Finish("length")) is None
    assert assembly.finish() == AssistantMessage(
        [
            *[Thinking("hm", "s3"), Text("t!", "s1"), Thinking("", redacted="xyz"), Thinking("", "s6")],
            ToolCall("c1", "echo", {"a": 1}, signature="s0"),
        ],
        "length",
    )


def test_what_is_told_of_each_chunk() -> None:
    """Text is told as it is, a call with its id and name; what has no text is not told."""
    assembly = fold()
    text, thinking = TextDelta(0, "a"), ThinkingDelta(1, "b")
    assert assembly.fold(text) is text
    assert assembly.fold(thinking) is thinking
    assert assembly.fold(ToolCallStart(2, "c1", None)) == ToolCallFragment(2, "c1", "", "")  # type: ignore[arg-type]
    assert assembly.fold(ToolCallDelta(2, "{}")) == ToolCallFragment(2, "c1", "", "{}")
    silent = [TextDelta(0, ""), ToolCallDelta(2, ""), BlockEnd(0), BlockEnd(0, "s"), RedactedThinking(3, "x")]
    silent += [ResponseInfo("r"), UsageReport(Usage()), Finish("stop")]
    assert [assembly.fold(chunk) for chunk in silent] == [None] * 8


def test_T7_a_made_id_counts_on_from_those_that_are_taken() -> None:
    """An id of ours has the next number behind all ids of history and message, or the next one that is free."""
    assert [call.id for call in fold(ToolCallStart(0, None, "echo"), used_ids="ab").message_at(1).tool_calls] == [
        "call_3"
    ]
    starts = [ToolCallStart(at, wanted, "echo") for at, wanted in enumerate(["c1", "", " ", None, 7, "c1", "call_9"])]  # type: ignore[arg-type]
    message = fold(*starts, DONE, used_ids={"call_4", "x"}).finish()
    assert [call.id for call in message.tool_calls] == [
        "c1",
        "call_5",
        "call_6",
        "call_7",
        "call_8",
        "call_9",
        "call_10",
    ]


def test_a_failed_answer_says_who_answered_and_what_went_wrong() -> None:
    """The closing of an answer whose provider has said who it is keeps both: that, and the error."""
    assembly = fold(ResponseInfo("r1", "other", "elsewhere"), TextDelta(0, "a"), model="m", provider="p")
    message = assembly.message_at(len(assembly), "error", "cut off")
    assert message == AssistantMessage(
        "a", "error", model="other", provider="elsewhere", error_message="cut off", response_id="r1"
    )
