"""The rules of the lifecycle, each with its name, its title and its text.

Here live the words alone, in the order of the specification. What the judge does about them is data in the modules
`_judge_*.py`; the examples, and how a rule is shown, are in `_rule_examples.py`.
"""

from __future__ import annotations

from typing import Final

import attrs


@attrs.frozen
class Rule:
    """A rule of the specification. `name` is what tests, errors and the judge quote."""

    name: str
    title: str
    text: str


RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "L1",
        "A run has one beginning and one end",
        "agent_start is the first event of a run and agent_end its last, and each comes once. Nobody emits anything "
        "of a run once its agent_end has come: no tool, no timer, no thread.",
    ),
    Rule(
        "L2",
        "A run is made of turns",
        "turn_start and turn_end enclose each turn, and a run has at least one. A turn has exactly one assistant "
        "message that stands; attempts that failed and were tried again do not stand.",
    ),
    Rule(
        "L3",
        "Messages are whole and never overlap",
        "A message is message_start, any number of message_update, message_end, with no other event in between. Only "
        "assistant messages have updates. Every start gets its end, also when the stream breaks, a subscriber raises "
        "or the run is aborted: the end then holds what had arrived.",
    ),
    Rule(
        "L4",
        "What the updates said is what the message says",
        "Text, thinking and tool-call arguments of message_end are what its updates add up to, block by block. An "
        "event never changes once it was emitted: an update that is kept and read later shows the message as it was "
        "then.",
    ),
    Rule(
        "L5",
        "There is one order",
        "All subscribers see the same events in the same order, and each has handled an event before it gets the "
        "next. The state has changed before anybody sees the event that changed it.",
    ),
    Rule(
        "L6",
        "State follows the events",
        "A message is in history from its message_end on, and out of its queue from its message_start on. An attempt "
        "that is tried again leaves history at retry_start or compaction_start. From message_end on nothing streams. "
        "error_message is cleared at agent_start. What configure changed shows at the next turn_start, or at once "
        "while idle.",
    ),
    Rule(
        "T1",
        "Calls are prepared one by one, in their order",
        "Look-up, validation and before_tool_call go call by call, in the order of the message. tool_execution_start "
        "comes before a call's preparation and shows the arguments as the model gave them. Nothing is executed until "
        "every call has been prepared; a call that was refused ends at once, before the next one starts.",
    ),
    Rule(
        "T2",
        "Calls run side by side, serial ones alone",
        "Calls of a message are executed in parallel. A tool that declares itself serial is a barrier: it begins "
        "when all earlier calls of the message have ended, and later ones begin when it has ended.",
    ),
    Rule(
        "T3",
        "Each start has one end",
        "tool_execution_end comes in the order of completion, exactly once for each start. Updates lie between the "
        "two; what is reported later, from wherever, is dropped without a word.",
    ),
    Rule(
        "T4",
        "Results come in the order of the calls",
        "Behind the last end follows one tool-result message for each call, in the order of the calls, each the very "
        "message that the end event carried. All of it comes before turn_end.",
    ),
    Rule(
        "T5",
        "What goes wrong with a call is a result",
        "An unknown tool, unfit arguments, a block or an exception of before_tool_call, a time-out, an exception or "
        "an unusable return value of the tool: each becomes an error result in words that the model can act on. None "
        "ends the run, none touches another call.",
    ),
    Rule(
        "T6",
        "Calls that may be cut are not executed",
        "When a message ended with length, each of its calls gets start, end and an error result that says why, "
        "without hooks, and the run goes on. Calls of a message that ended error or aborted stay in it, have no "
        "events and no results, and are left out of what the model is sent. Calls under stop run all the same; "
        "tool_use without calls ends the run.",
    ),
    Rule(
        "T7",
        "Call ids are unique",
        "No two calls in history share an id. Ids of a provider that are missing, empty or used before are replaced "
        "before anybody sees them.",
    ),
    Rule(
        "T8",
        "One writer for each file",
        "Calls that write the same file never overlap, and take effect in the order of their message, however the "
        "file is spelled: relative, through .. or links, in another letter case where that is the same, or not there "
        "yet. Locks hold across all agents of one trio.run, several files for one call cannot deadlock, and a lock "
        "that the calling tool's own ancestor holds gives an error result. A thread that was left behind keeps its "
        "lock until it ends.",
    ),
    Rule(
        "Q1",
        "Messages enter at turn boundaries",
        "What was steered enters at the next turn boundary, before any follow-up; running tools are not skipped for "
        "it. A follow-up enters only when the run would end.",
    ),
    Rule(
        "Q2",
        "A queued message comes once",
        "It is delivered exactly once, or is still in its queue: none is lost to an abort, an error or the end of a "
        "run, and none enters a run that was aborted. What was taken out but not emitted goes back to its place. "
        "Queues are looked at behind the subscribers of turn_end.",
    ),
    Rule(
        "Q3",
        "Queues keep their order",
        "Each queue gives one message at a time, or all at once, as configured; either way in the order in which "
        "they were queued.",
    ),
    Rule(
        "Q4",
        "What was steered while idle comes first",
        "Messages that were steered while nothing ran enter the first turn of the next run, all of them, before its "
        "prompt.",
    ),
    Rule(
        "Q5",
        "Stopping leaves the queues alone",
        "should_stop_after_turn and limits take nothing out of a queue. What is queued during agent_end waits for "
        "the next prompt or resume.",
    ),
    Rule(
        "P1",
        "There are four phases",
        "idle to turn and back, turn to compaction and back, turn to retry and back: no other transition exists. An "
        "attempt at one raises and changes nothing.",
    ),
    Rule(
        "P2",
        "Idle means settled",
        "The phase is turn before agent_start is delivered, and until the last subscriber of agent_end has returned. "
        "Only then it is idle, and only then wait_for_idle returns.",
    ),
    Rule(
        "P3",
        "Waiting and shortening have phases of their own",
        "The phase is retry from retry_start to retry_end and compaction from compaction_start to compaction_end, "
        "the delivery of these events included. Either leads back to turn, however it ends, and an abort works in "
        "every phase.",
    ),
    Rule(
        "P4",
        "Idle leaves nothing behind",
        "In phase idle nothing streams, no call or file write is pending, and no scope, task, lock, response or "
        "child process of the run is left, threads under A4 excepted. Whoever opens a resource closes it; the state "
        "itself is reset by code that does not wait.",
    ),
    Rule(
        "F1",
        "A failed run ends in a closing message",
        "No exception of a provider, tool, hook or subscriber leaves prompt. The run ends in an assistant message "
        "with stop reason error or aborted and an error_message, which goes the way of every message. The open "
        "assistant message becomes it; else it is made in the open turn, or in a turn of its own if that one has its "
        "message already. A prompt that has not been emitted yet comes before it.",
    ),
    Rule(
        "F2",
        "History can always be sent",
        "Before a run ends, each call of a message that ended stop, length or tool_use has its end and exactly one "
        "result, directly behind the message, in order. What cannot be sent is left out by the default conversion.",
    ),
    Rule(
        "F3",
        "A subscriber that raises fails the run",
        "Once, after all others got that event; it keeps getting events, and what it raises later is logged and "
        "kept. An observer never fails the run. A failure at agent_end is logged and kept, since no event may "
        "follow.",
    ),
    Rule(
        "F4",
        "A failing projection falls back",
        "If transform_context or convert_to_llm raises, the run goes on with what the hook had been given (for "
        'convert_to_llm: its default conversion), and records it; with projection_failure="fail" the run fails. '
        "Hooks work on copies; history is never theirs.",
    ),
    Rule(
        "F5",
        "Hooks around a tool fail closed",
        "before_tool_call that raises or takes too long blocks its call. after_tool_result that raises makes an "
        "error result which still says what the tool had answered. should_stop_after_turn that raises fails the run.",
    ),
    Rule(
        "F6",
        "A stream needs its end marker",
        "A stream without one has failed, and so has one with an unknown marker, or with anything but a usage report "
        "behind it. An exception behind the marker does not undo the message: it is kept as a later failure.",
    ),
    Rule(
        "F7",
        "KeyboardInterrupt and its like leave bare",
        "What is no Exception and rises in a task of the run settles it as an abort would, and then leaves prompt "
        "unwrapped. A second Ctrl-C skips all but the reset of the state. A stray Cancelled that no scope asked for "
        "is an ordinary failure.",
    ),
    Rule(
        "F8",
        "Retries stay in their turn",
        "A failure that the provider marks retryable is tried again in the same turn with the same request, after a "
        "wait that doubles, with full jitter, and honours Retry-After; at most so many attempts, counted per turn. A "
        "failed attempt that had begun to stream ends with error and leaves history; its calls never run. A failure "
        "or an abort at its message_end ends the retrying, and the attempt stands.",
    ),
    Rule(
        "F9",
        "Compaction shortens history whole",
        "It comes when the context nears the window, or once per turn when the provider says that it overflowed, "
        "from phase turn and before transform_context. It never parts a call from its result, emits no messages, and "
        "says which summary replaced everything before which message. One that fails at the threshold is reported, "
        "and not tried again until a turn has succeeded; one that fails after an overflow fails the run. An abort "
        "ends it at once.",
    ),
    Rule(
        "F10",
        "The first cause decides",
        "The outcome is that of whatever failed or aborted the run first, at once and for good. What goes wrong "
        "later is logged and kept on the result.",
    ),
    Rule(
        "A1",
        "Abort is for one run, from anywhere",
        "abort is a plain call, may come from anywhere in the run's own trio.run, any number of times, and does "
        "nothing while idle. No later run remembers it.",
    ),
    Rule(
        "A2",
        "Nothing begins after an abort",
        "No request, tool, hook or compaction. What runs is cancelled; a message half streamed ends aborted; calls "
        "under way or not begun get error results that say so and quote their last update. A call that had its "
        "outcome keeps it. Then come the closing message and agent_end. During the delivery of agent_end an abort "
        "changes nothing.",
    ),
    Rule(
        "A3",
        "Subscribers finish, within the grace period",
        "An abort does not cancel a subscriber. There is one deadline, counted from the first abort or outside "
        "cancellation. One that hangs is cut after half of what is left, and reported; behind the deadline each is "
        "still called, but its first wait raises.",
    ),
    Rule(
        "A4",
        "What cannot be stopped is left behind",
        "A thread is left behind at an abort or time-out, counted, and what it returns later is dropped. Code that "
        "swallows Cancelled changes nothing, since the run asks its own state. Async code that refuses to end is "
        "logged by name when the grace period is over.",
    ),
    Rule(
        "A5",
        "Outside cancellation goes on",
        "Cancelling the scope around prompt does what abort does; behind the settlement Cancelled goes on to the "
        "scope that asked for it, bare. In a scope that is cancelled already prompt raises it without an event. If "
        "both happen, the outer scope wins.",
    ),
    Rule(
        "A6",
        "Misuse is refused at the call",
        "prompt and resume during a run raise AgentBusyError, from inside that run ReentrantCallError, and name "
        "steer and follow_up. wait_for_idle from inside raises too. Calls from another thread or another trio.run "
        "raise while a run goes on, and name the way to do it.",
    ),
    Rule(
        "A7",
        "An agent may run inside a tool",
        "Aborting the outer run aborts the inner one through cancellation, and the inner trace is lawful too. The "
        "inner grace period is at most half of what is left of the outer.",
    ),
    Rule(
        "A8",
        "The edges are settled",
        "An empty prompt is a ValueError and an answer as a prompt a TypeError, before any event. Limits are looked "
        "at before each turn but the first. A run completes when the model stopped and no message waited; a hook "
        "that stops then makes it stopped. length without calls completes, with reason length. resume looks through "
        "an empty closing message.",
    ),
)

BY_NAME: Final = {rule.name: rule for rule in RULES}
