"""The state of a conversation by itself: what each event changes, and what the frozen picture of it shows."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from trio_agent import (
    AgentEnd,
    AgentStart,
    AgentState,
    AssistantMessage,
    CompactionEnd,
    CompactionStart,
    CustomMessage,
    ErrorInfo,
    Event,
    Hooks,
    Message,
    MessageEnd,
    MessageStart,
    Phase,
    RetryEnd,
    RetryStart,
    TextDelta,
    Tool,
    ToolCall,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolResultMessage,
    TurnEnd,
    TurnStart,
    Usage,
    UserMessage,
)
from trio_agent._assembly import Assembly
from trio_agent._queues import Queue, Queued
from trio_agent._state import Config, Conversation

ECHO = Tool(name="echo", description="says it", parameters={"type": "object"}, execute=lambda arguments: "x")
READ = Tool(name="read", description="reads", parameters={"type": "object"}, execute=lambda arguments: "x")
OVERLOADED = ErrorInfo("overloaded", "busy")
USER = UserMessage("hi")
CALLS = (ToolCall("c1", "echo"), ToolCall("c2", "echo"))


def config(**changes: Any) -> Config:
    values = {"model": "m", "system_prompt": "be brief", "tools": (ECHO,), "reasoning": "off", "hooks": Hooks()}
    return Config(**{**values, **changes})


def conversation(*messages: Message) -> Conversation:
    return Conversation(config(), messages, Queue("all"), Queue("all"))


def tell(told: Conversation, *events: Event) -> Conversation:
    for event in events:
        told.core.feed(event)
        told.apply(event)
        if isinstance(event, RetryEnd | CompactionEnd):
            told.core.enter_turn()
    return told


def said(message: Message) -> tuple[Event, Event]:
    start = AssistantMessage((), None) if isinstance(message, AssistantMessage) else message
    return MessageStart(start), MessageEnd(message)


def test_a_new_conversation_shows_its_configuration_and_nothing_else() -> None:
    """Before any run the state is idle, has the given messages, and counts nothing."""
    told = conversation(USER)
    assert told.snapshot() == AgentState(
        phase=Phase.IDLE, messages=(USER,), system_prompt="be brief", tools=(ECHO,), model="m", reasoning="off"
    )
    assert told.snapshot().streaming_message is None
    assert (told.run_messages, told.run_usage, told.run_tokens, told.call_ids) == ([], Usage(), 0, set())
    assert (told.saying, told.pending, told.writes, told.shown) == (None, {}, {}, 0)
    assert told.compaction_spent is False


def test_a_state_has_these_defaults() -> None:
    """What is not given is nothing: not streaming, no call, no write, no error, empty queues, no turn, no usage."""
    state = AgentState(phase=Phase.IDLE, messages=(), system_prompt="", tools=(), model="", reasoning="off")
    assert (state.is_streaming, state.pending_tool_calls, state.pending_file_writes) == (False, (), ())
    assert (state.error_message, state.steering_queue, state.follow_up_queue) == (None, (), ())
    assert (state.turn, state.usage, state.streaming_message) == (0, Usage(), None)
    assert "view" not in repr(state)
    assert "length" not in repr(state)


def test_a_configuration_finds_its_tools_by_name() -> None:
    """Tools are looked up by name; the look-up table is neither compared nor shown."""
    both = config(tools=(ECHO, READ))
    assert both.tools_by_name == {"echo": ECHO, "read": READ}
    assert both == config(tools=(ECHO, READ), hooks=both.hooks)
    assert hash(both) == hash(config(tools=(ECHO, READ), hooks=both.hooks))
    assert "tools_by_name" not in repr(both)
    with pytest.raises(TypeError):
        config(tools_by_name={})


def test_L6_a_configuration_shows_from_the_next_turn_on() -> None:
    """What is configured in a turn shows at the start of the next one, and when the run is over."""
    told = tell(conversation(), AgentStart(), TurnStart(1))
    told.next_config = config(model="other", reasoning="high")
    assert (told.snapshot().model, told.snapshot().turn) == ("m", 1)
    answer = AssistantMessage("ok")
    tell(told, *said(answer), TurnEnd(1, answer), TurnStart(2))
    assert (told.snapshot().model, told.snapshot().turn) == ("other", 2)
    assert told.snapshot().reasoning == "high"
    told.next_config = config(model="third")
    told.settle()
    assert told.snapshot().model == "third"


def test_L6_a_queued_message_leaves_its_queue_at_its_start() -> None:
    """Only the message that is being said leaves the queue, when its own start comes."""
    told = tell(conversation(), AgentStart(), TurnStart(1))
    first, second = Queued("q1", UserMessage("a")), Queued("q2", UserMessage("a"))
    told.steering.items = [first, second]
    told.follow_up.items = [Queued("q3", CustomMessage("k"))]
    assert told.snapshot().steering_queue == (first.message, second.message)
    assert told.snapshot().follow_up_queue == (CustomMessage("k"),)
    told.saying = (told.steering, second)
    tell(told, *said(USER))
    assert told.steering.items == [first, second]
    tell(told, MessageStart(second.message))
    assert told.steering.items == [first]
    assert told.saying is None


def test_messages_enter_history_at_their_end_and_count_what_they_cost() -> None:
    """History and the run's messages grow by each message that ends; usage sums those of answers."""
    told = tell(conversation(UserMessage("before")), AgentStart(), TurnStart(1), *said(USER))
    answer = AssistantMessage("ok", usage=Usage(input=3, output=4, total=7))
    tell(told, *said(answer))
    assert told.history.view() == [UserMessage("before"), USER, answer]
    assert told.run_messages == [USER, answer]
    assert told.snapshot().usage == told.run_usage == Usage(input=3, output=4, total=7)
    assert told.run_tokens == 7
    tell(told, TurnEnd(1, answer), AgentEnd("completed"))
    told.core.end()
    tell(told, AgentStart())
    assert (told.run_messages, told.run_usage, told.run_tokens) == ([], Usage(), 0)
    assert (told.snapshot().turn, told.snapshot().error_message) == (0, None)
    assert told.usage == Usage(input=3, output=4, total=7)
    told.count(Usage(total=5))
    told.count(Usage(total=6))
    told.count(Usage())
    assert (told.run_tokens, told.usage.total) == (11, 18)
    assert told.run_usage == Usage() + Usage(total=5) + Usage(total=6) + Usage()


def test_an_answer_streams_from_its_request_to_its_end() -> None:
    """The streaming message is as much of the assembly as has been told, and there is none behind its end."""
    told = tell(conversation(), AgentStart(), TurnStart(1))
    told.start_streaming()
    assembly = Assembly(set())
    told.show(assembly)
    assert told.snapshot().is_streaming is True
    assembly.fold(TextDelta(0, "he"))
    assembly.fold(TextDelta(0, "llo"))
    told.shown = 1
    shown = told.snapshot()
    assert shown.streaming_message == AssistantMessage("he", None)
    assert shown == attrs.evolve(shown, view=None) == attrs.evolve(shown, length=0)
    assert hash(shown) == hash(attrs.evolve(shown, view=None, length=0))
    tell(told, *said(AssistantMessage("hello")))
    after = told.snapshot()
    assert (after.is_streaming, after.streaming_message, told.shown) == (False, None, 0)
    assert shown.streaming_message == AssistantMessage("he", None)


def test_calls_are_pending_between_their_start_and_their_end() -> None:
    """A call is pending from its start to its end, in the order of the starts."""
    answer = AssistantMessage(CALLS, "tool_use")
    told = tell(conversation(), AgentStart(), TurnStart(1), *said(answer))
    assert told.call_ids == {"c1", "c2"}
    tell(told, *[ToolExecutionStart(call) for call in CALLS])
    told.writes = {"c1": ("/a", "/b"), "c2": ("/c",)}
    assert told.snapshot().pending_tool_calls == ("c1", "c2")
    assert told.snapshot().pending_file_writes == ("/a", "/b", "/c")
    tell(told, ToolExecutionEnd(ToolResultMessage("c1", "echo")))
    assert told.snapshot().pending_tool_calls == ("c2",)
    told.settle()
    assert (told.snapshot().pending_tool_calls, told.snapshot().pending_file_writes) == ((), ())
    assert (told.snapshot().phase, told.core.calls) == (Phase.IDLE, ())


FAILED = AssistantMessage(CALLS, "error", Usage(total=2), error_message="busy")


@pytest.mark.parametrize(
    "wait", [RetryStart(1, 4, 1.0, OVERLOADED), CompactionStart("overflow")], ids=lambda wait: wait.type
)
def test_L6_a_failed_attempt_leaves_history_when_it_is_tried_again(wait: Event) -> None:
    """With the attempt go its call ids and the error; what it cost stays counted, and what came before it stays."""
    told = tell(conversation(AssistantMessage([ToolCall("c0", "echo")], "tool_use")), AgentStart(), TurnStart(1))
    tell(told, *said(USER), *said(FAILED))
    assert told.snapshot().error_message == "busy"
    assert told.call_ids == {"c0", "c1", "c2"}
    epoch = told.history.epoch
    tell(told, wait)
    assert (told.snapshot().error_message, told.call_ids, told.run_messages) == (None, {"c0"}, [USER])
    assert told.history.view()[1:] == (USER,)
    assert told.history.epoch == epoch + 1
    assert told.usage == Usage() + Usage(total=2)
    told.apply(wait)
    assert told.history.view()[1:] == (USER,)


@pytest.mark.parametrize("reason", ["error", "aborted"])
def test_an_attempt_that_is_not_tried_again_stays(reason: Any) -> None:
    """Behind the turn of a failed answer nothing takes it out again; its error shows until the next run begins."""
    failed = AssistantMessage("so far", reason, error_message="why")
    told = tell(conversation(), AgentStart(), TurnStart(1), *said(failed), TurnEnd(1, failed), TurnStart(2))
    tell(told, CompactionStart("threshold"))
    assert told.history.view() == [failed]
    assert told.snapshot().error_message == "why"
    told = tell(conversation(), AgentStart(), TurnStart(1), *said(failed))
    told.settle()
    tell(told, AgentStart(), TurnStart(1), CompactionStart("threshold"))
    assert told.history.view() == [failed]
    assert told.snapshot().error_message is None


def test_outside_of_a_turn_there_is_no_attempt_to_take_back() -> None:
    """Before the first run, and behind one that was settled, a wait takes nothing out of history."""
    told = conversation(USER)
    told.apply(CompactionStart("threshold"))
    assert told.history.view() == [USER]
    tell(told, AgentStart(), TurnStart(1), *said(FAILED))
    told.saying = (told.steering, Queued("q1", USER))
    told.settle()
    told.apply(CompactionStart("threshold"))
    assert told.history.view() == [USER, FAILED]
    assert told.saying is None


def test_F9_a_compaction_puts_its_summary_in_place_of_what_it_sums_up() -> None:
    """The summary replaces the messages before the first kept one; a compaction that failed changes nothing."""
    told = tell(conversation(USER, AssistantMessage("ok"), UserMessage("more")), AgentStart(), TurnStart(1))
    tell(told, CompactionStart("threshold"), CompactionEnd("failed", error="x"))
    tell(told, CompactionStart("threshold"), CompactionEnd("failed", first_kept=1))
    tell(told, CompactionStart("threshold"), CompactionEnd("failed", UserMessage("sum")))
    assert len(told.history) == 3
    tell(told, CompactionStart("threshold"), CompactionEnd("compacted", UserMessage("sum"), 2, 10))
    assert told.history.view() == [UserMessage("sum"), UserMessage("more")]


def test_an_answer_that_asks_for_nothing_adds_no_call_ids() -> None:
    """Ids are taken of all calls that ever stood in history, those of failed and of loaded answers too."""
    told = tell(conversation(), AgentStart(), TurnStart(1), *said(AssistantMessage("ok")))
    assert told.call_ids == set()
    told.restart([AssistantMessage(CALLS, "stop"), USER])
    assert told.call_ids == {"c1", "c2"}
    told.restart([])
    assert told.call_ids == set()
    told = tell(conversation(), AgentStart(), TurnStart(1), *said(AssistantMessage(CALLS, "stop")))
    assert told.call_ids == {"c1", "c2"}


def test_a_restart_forgets_all_but_the_configuration() -> None:
    """A conversation that begins anew is as a new one, with the history that it is given."""
    told = tell(conversation(), AgentStart(), TurnStart(1), *said(FAILED))
    told.compaction_spent = True
    told.settle()
    told.restart([USER])
    assert told.snapshot() == conversation(USER).snapshot()
    assert (told.run_messages, told.run_usage, told.run_tokens) == ([], Usage(), 0)
    assert told.compaction_spent is False
