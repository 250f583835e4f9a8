"""The small pure modules by themselves: failures, queues, policies, projection.

What they do inside of a run is in the tests of the rules; here are their edges and their exact words.
"""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest

from trio_agent import (
    AssistantMessage,
    Compaction,
    CustomMessage,
    Image,
    Limits,
    Message,
    ProviderError,
    RetryPolicy,
    Text,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from trio_agent._failures import describe, interrupt_in, leaves, shorten, split
from trio_agent._history import History
from trio_agent._projection import IncrementalProjection, project
from trio_agent._queues import Queue, Queued, as_message, as_messages

# -- failures ----------------------------------------------------------------------------------------------------


class Stopped(BaseException):
    """Stands for Trio's `Cancelled`, which only Trio can make."""


def test_a_failure_is_wrong_and_a_cancellation_must_go_on() -> None:
    """What is no group is one of the two: an `Exception` went wrong, anything else goes on."""
    wrong, stopped = ValueError("x"), Stopped()
    assert split(wrong) == (wrong, None)
    assert split(stopped) == (None, stopped)


def test_a_group_is_parted_into_what_went_wrong_and_what_must_go_on() -> None:
    """Of a mixed group the failures are one part, the cancellations the other; a group of failures is one failure."""
    wrong, stopped = ValueError("x"), Stopped()
    failure, rest = split(BaseExceptionGroup("both", [wrong, BaseExceptionGroup("inner", [stopped])]))
    assert failure is not None
    assert rest is not None
    assert list(leaves(failure)) == [wrong]
    assert list(leaves(rest)) == [stopped]
    alone = ExceptionGroup("failures", [wrong])
    assert split(alone) == (alone, None)


def test_F7_an_interrupt_is_found_among_the_leaves() -> None:
    """A Ctrl-C is preferred to other exits, an exit is found behind anything else, and neither is made up."""
    wrong, stopped, left, ctrl_c = ValueError("x"), Stopped(), SystemExit(3), KeyboardInterrupt()
    group = BaseExceptionGroup("all", [wrong, stopped, left, BaseExceptionGroup("inner", [ctrl_c])])
    assert interrupt_in(group, Stopped) is ctrl_c
    assert interrupt_in(BaseExceptionGroup("some", [wrong, stopped, left]), Stopped) is left
    assert interrupt_in(BaseExceptionGroup("two", [left, GeneratorExit()]), Stopped) is left
    assert interrupt_in(BaseExceptionGroup("none", [wrong, stopped]), Stopped) is None


def test_a_failure_is_told_by_its_type_and_text() -> None:
    """A failure is told as its type and text, without a text as its type, and a provider's by its kind."""
    assert describe(ValueError("no such city")) == "ValueError: no such city"
    assert describe(ValueError()) == "ValueError"
    assert describe(ProviderError("overloaded", "try later")) == "overloaded: try later"


def test_a_group_is_told_leaf_by_leaf() -> None:
    """A group says how many failures it holds and then each one; a group of one is told as that one."""
    one, two = ValueError("a"), ExceptionGroup("inner", [KeyError("b")])
    assert describe(ExceptionGroup("both", [one, two])) == "2 failures: ValueError: a; KeyError: 'b'"
    assert describe(two) == "KeyError: 'b'"


def test_a_text_that_cannot_be_read_is_told_as_that() -> None:
    """An exception whose `__str__` raises is told by its type."""

    class UnspeakableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert describe(UnspeakableError()) == "UnspeakableError (its text cannot be read)"


def test_a_long_text_is_cut_and_says_so() -> None:
    """Text of up to 2,000 characters stays whole; of a longer one the beginning is kept, with its length."""
    assert shorten("x" * 2_000) == "x" * 2_000
    assert shorten("ab" * 1_001) == "ab" * 990 + " … (2002 characters)"
    assert describe(ValueError("y" * 3_000)) == "ValueError: " + "y" * 1_968 + " … (3012 characters)"
    assert describe(ExceptionGroup("many", [ValueError("z" * 1_500)] * 2)).endswith(" … (3038 characters)")


# -- queues ------------------------------------------------------------------------------------------------------


def queue_of(*texts: str, mode: Any = "one_at_a_time") -> Queue:
    queue = Queue(mode)
    queue.items = [Queued(f"q{number}", UserMessage(text)) for number, text in enumerate(texts)]
    return queue


def test_a_mode_that_is_none_is_refused() -> None:
    """A queue has one of the two modes, and the error names them."""
    with pytest.raises(ValueError) as refused:
        Queue("some")  # type: ignore[arg-type]
    assert str(refused.value) == "'some' is not a queue mode; use 'one_at_a_time' or 'all'"


@pytest.mark.parametrize(("mode", "taken"), [("one_at_a_time", 1), ("all", 2)])
def test_Q3_a_boundary_takes_one_message_or_all_and_leaves_them_queued(mode: str, taken: int) -> None:
    """By its mode a queue gives its first message or all; they stay in it until they are said."""
    queue = queue_of("a", "b", mode=mode)
    batch = queue.next_batch()
    assert batch == queue.items[:taken]
    batch.clear()
    assert queue.messages() == (UserMessage("a"), UserMessage("b"))


def test_a_new_queue_is_empty() -> None:
    """A queue has its mode from the start, and no message."""
    queue = Queue("all")
    assert (queue.mode, queue.items, queue.next_batch(), queue.messages()) == ("all", [], [], ())


def test_a_message_is_removed_and_withdrawn_once() -> None:
    """Removing and withdrawing say whether the message was there, and leave the others in order."""
    queue = queue_of("a", "b", "c")
    first, second, third = queue.items
    assert queue.remove(second) is True
    assert queue.remove(second) is False
    assert queue.withdraw("q1") is False
    assert queue.withdraw("q2") is True
    assert queue.items == [first]
    assert third not in queue.items


def test_clearing_gives_what_was_queued() -> None:
    """A queue that is cleared gives its messages in order, and is empty."""
    queue = queue_of("a", "b")
    assert queue.clear() == (UserMessage("a"), UserMessage("b"))
    assert queue.items == []
    assert queue.clear() == ()


OTHERS = "only user and custom messages can be said to a model, others belong into Agent(messages=...)"


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (" \n", ValueError, "steer() was given a blank text; give it something to say"),
        (AssistantMessage("x"), TypeError, f"steer() was given a message of role assistant; {OTHERS}"),
        (ToolResultMessage("c", "t"), TypeError, f"steer() was given a message of role tool_result; {OTHERS}"),
        (7, TypeError, "steer() takes a str, a UserMessage or a CustomMessage, not int"),
    ],
)
def test_what_cannot_be_said_is_refused(value: object, error: type[Exception], words: str) -> None:
    """Blank texts, messages of other roles and other values are refused, in the name of the function that got them."""
    with pytest.raises(error) as refused:
        as_message(value, caller="steer")
    assert str(refused.value) == words


def test_a_text_or_a_message_can_be_said() -> None:
    """A text becomes a user message; user and custom messages are taken as they are."""
    user, custom = UserMessage("hi"), CustomMessage("note", {"a": 1})
    assert as_message(" hi ", caller="steer") == UserMessage(" hi ")
    assert as_message(user, caller="steer") is user
    assert as_message(custom, caller="steer") is custom


PNG = Image(data=b"\x89PNG", media_type="image/png")


def test_A8_a_prompt_is_one_message_or_several_with_images_in_the_last() -> None:
    """Texts and messages become the prompt's messages; images follow the words of the last one, or stand alone."""
    hi, custom = UserMessage("hi"), CustomMessage("note")
    assert as_messages("hi", ()) == (hi,)
    assert as_messages(custom, ()) == (custom,)
    assert as_messages([custom, "hi"], ()) == (custom, hi)
    assert as_messages((hi, hi), ()) == (hi, hi)
    assert as_messages("hi", [PNG]) == (UserMessage([Text("hi"), PNG]),)
    assert as_messages(" ", [PNG, PNG]) == (UserMessage([PNG, PNG]),)
    assert as_messages([custom, hi, "hi"], [PNG]) == (custom, hi, UserMessage([Text("hi"), PNG]))


@pytest.mark.parametrize(
    ("value", "images", "error", "words"),
    [
        ("", (), ValueError, "prompt() was given a blank text; give it something to say"),
        (["a", " "], (), ValueError, "prompt() was given a blank text; give it something to say"),
        (None, (), TypeError, "prompt() takes a str, a UserMessage or a CustomMessage, not NoneType"),
        ([], (), ValueError, "prompt([]) has nothing to say; give it a message, or call resume()"),
        (
            "hi",
            ["a.png"],
            TypeError,
            "prompt(images=...) takes Image objects: Image(data=..., media_type='image/png')",
        ),
        (
            CustomMessage("note"),
            [PNG],
            TypeError,
            "prompt(images=...) needs a text or a user message to put the images into",
        ),
    ],
)
def test_A8_a_prompt_that_cannot_be_said_is_refused(
    value: object, images: list[object], error: type[Exception], words: str
) -> None:
    """A prompt without words or of a wrong type is refused, and so are images with nowhere to go."""
    with pytest.raises(error) as refused:
        as_messages(value, images)
    assert str(refused.value) == words


# -- policies ----------------------------------------------------------------------------------------------------

BUSY = ProviderError("overloaded", "busy")


def test_F8_waits_double_from_the_base_up_to_the_cap() -> None:
    """Without jitter the n-th wait is the base doubled n-1 times, and never more than the cap."""
    policy = RetryPolicy(max_attempts=100, base_delay=0.5, max_delay=7.0, jitter=False)
    assert [policy.delay(failed, BUSY) for failed in (1, 2, 3, 4, 5, 99)] == [0.5, 1.0, 2.0, 4.0, 7.0, 7.0]


def test_F8_no_number_of_attempts_overflows() -> None:
    """However many attempts have failed, the wait is a number: the doubling stops at the sixtieth."""
    policy = RetryPolicy(max_attempts=10_000, max_delay=float("inf"), jitter=False)
    assert policy.delay(61, BUSY) == 2.0**60
    assert policy.delay(62, BUSY) == 2.0**60
    assert policy.delay(5_000, BUSY) == 2.0**60


def test_F8_jitter_draws_evenly_between_nothing_and_the_wait() -> None:
    """By default a wait is drawn evenly between 0 and what it would be."""
    random.seed(7)
    drawn = RetryPolicy().delay(3, BUSY)
    random.seed(7)
    assert drawn == random.uniform(0, 4.0)


def test_F8_what_is_asked_for_is_waited_for_exactly_or_not_at_all() -> None:
    """A service's own delay is taken as it is, up to the longest that one waits for; longer ones end the attempts."""
    policy = RetryPolicy(max_retry_after=5.0)
    asked = [ProviderError("rate_limit", "later", retry_after=seconds) for seconds in (0.0, 0.25, 3.25, 5.0, 5.5, -1)]
    assert [policy.delay(1, error) for error in asked] == [0.0, 0.25, 3.25, 5.0, None, 0.0]


def test_F8_attempts_end_with_their_number_or_with_a_failure_that_no_repetition_mends() -> None:
    """There is no wait behind the last attempt, nor for an error that is not retryable."""
    policy = RetryPolicy(max_attempts=3, jitter=False)
    assert [policy.delay(failed, BUSY) for failed in (1, 2, 3, 4)] == [1.0, 2.0, None, None]
    assert policy.delay(1, ProviderError("authentication", "no")) is None


def test_policies_have_these_defaults() -> None:
    """Four attempts, waits of a second doubled up to a minute, two minutes at a service's wish; no limits."""
    assert RetryPolicy() == RetryPolicy(4, 1.0, 60.0, True, 120.0)
    assert RetryPolicy().jitter is True
    assert Limits() == Limits(None, None, None)
    assert Limits().reached(turns=10**9, tool_calls=10**9, total_tokens=10**9) is None
    assert Compaction(UserMessage("s"), 1).usage == Usage()


@pytest.mark.parametrize(
    ("make", "least"),
    [
        (lambda n: RetryPolicy(max_attempts=n), 1),
        (lambda n: RetryPolicy(base_delay=n), 0),
        (lambda n: RetryPolicy(max_delay=n), 0),
        (lambda n: RetryPolicy(max_retry_after=n), 0),
        (lambda n: Limits(max_turns=n), 1),
        (lambda n: Limits(max_tool_calls=n), 0),
        (lambda n: Limits(max_total_tokens=n), 0),
    ],
)
def test_settings_below_their_least_value_are_refused(make: Any, least: int) -> None:
    """Each number has a least value, which is taken; one less is refused."""
    make(least)
    with pytest.raises(ValueError):
        make(least - 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: RetryPolicy(max_attempts=n),
        lambda n: Limits(max_turns=n),
        lambda n: Limits(max_tool_calls=n),
        lambda n: Limits(max_total_tokens=n),
    ],
)
def test_what_is_counted_is_a_whole_number(make: Any) -> None:
    """A number of attempts, turns, calls or tokens that is no `int` is refused."""
    with pytest.raises(TypeError):
        make(2.0)


def test_A8_the_first_limit_reached_is_named() -> None:
    """A limit is reached at its number, and the first of them in order is the one that is named."""
    limits = Limits(max_turns=3, max_tool_calls=5, max_total_tokens=100)
    assert limits.reached(turns=2, tool_calls=4, total_tokens=99) is None
    assert limits.reached(turns=3, tool_calls=5, total_tokens=100) == "max_turns"
    assert limits.reached(turns=2, tool_calls=5, total_tokens=100) == "max_tool_calls"
    assert limits.reached(turns=2, tool_calls=4, total_tokens=100) == "max_total_tokens"
    assert limits.reached(turns=2, tool_calls=4, total_tokens=None) is None
    assert Limits(max_total_tokens=1).reached(turns=0, tool_calls=0, total_tokens=None) is None
    assert Limits(max_total_tokens=0).reached(turns=0, tool_calls=0, total_tokens=None) == "max_total_tokens"


# -- projection --------------------------------------------------------------------------------------------------


def asks(*ids: str) -> AssistantMessage:
    return AssistantMessage([ToolCall(id, "read") for id in ids], "tool_use")


def answers(id: str, text: str = "ok") -> ToolResultMessage:
    return ToolResultMessage(id, "read", text)


UNSENDABLE = "history was not sendable as it is: "


def test_each_repair_of_a_history_is_logged_in_these_words(caplog: pytest.LogCaptureFixture) -> None:
    """The log of the package tells every repair: what was left out, added or renamed, and of which call."""
    caplog.set_level(logging.DEBUG, "trio_agent")
    project(
        [
            *[asks("c1"), answers("c1"), answers("c1"), asks("c1"), answers("c9")],
            *[AssistantMessage("", "stop"), AssistantMessage([ToolCall("c3", "read")], "aborted")],
        ]
    )
    assert {record.name for record in caplog.records} == {"trio_agent"}
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"{UNSENDABLE}left out a result of the call 'c1', which has one already or was cut off"),
        ("WARNING", f"{UNSENDABLE}sent a call with the id 'c1' of an earlier one under an id of its own"),
        ("DEBUG", "left out an assistant message without text (stop reason stop)"),
        ("DEBUG", "left out the tool calls of an assistant message that ended aborted"),
        ("DEBUG", "left out an assistant message without text (stop reason aborted)"),
        ("WARNING", f"{UNSENDABLE}added a result for the call 'c1_2', which has none"),
        ("WARNING", f"{UNSENDABLE}left out the result of the call 'c9', which is not there"),
    ]


def test_the_model_reads_that_an_interrupted_call_may_have_run() -> None:
    """B011: the words in place of a missing result take the work neither for done nor for undone."""
    sent = project([asks("c1")])[1]
    assert sent == ToolResultMessage("c1", "read", "no result: the call was interrupted and may have partly run", True)


@pytest.mark.parametrize(
    ("ids", "sent"),
    [
        ("a b a a", "a b a_2 a_3"),
        ("a a_2 a a", "a a_2 a_3 a_4"),
        ("a a_2 a_3 a", "a a_2 a_3 a_4"),
        ("- call_1 - -", "call_1 call_1_2 call_2 call_3"),
    ],
)
def test_made_ids_are_counted_on_until_one_is_free(ids: str, sent: str) -> None:
    """A repeated or empty id gets the next number, or the one behind it where a call has that very name."""
    made = project([asks(*ids.replace("-", "").split(" "))])
    assert [message.tool_call_id for message in made if isinstance(message, ToolResultMessage)] == sent.split()


def test_several_late_results_come_in_one_look() -> None:
    """Results that come late take the places of their placeholders, two at once, and earlier views keep those."""
    history: History[Message] = History([UserMessage("go"), asks("c1", "c2")])
    projection = IncrementalProjection()
    before = projection.update(history)
    history.append(answers("c1"))
    history.append(answers("c2"))
    assert projection.update(history)[2:] == (answers("c1"), answers("c2"))
    assert [message.is_error for message in before[2:] if isinstance(message, ToolResultMessage)] == [True, True]
