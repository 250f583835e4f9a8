"""The order of events as data: what may come where, which rule is broken otherwise, and where the judge goes on.

Here live tables and the one function that names an event for them. They state section 2 of the specification a second
time, on purpose without a look at the kernel's own tables. What an event *says* is judged by clauses, which
`_judge_register.py` files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from .._events import (
    CompactionEnd,
    CompactionStart,
    Event,
    MessageEnd,
    MessageStart,
    RetryEnd,
    ToolExecutionEnd,
)
from .._messages import AssistantMessage, Message, ToolResultMessage
from ._judge_memory import FAILURES, Memory

Place: TypeAlias = str
Kind: TypeAlias = str

# Where a trace can be. The words are those of the judge's sentences: "turn_end 1 came <place>".
IDLE: Final = "outside of any run"
RUN: Final = "before the first turn"
TURN: Final = "at the beginning of a turn"
INJECTING: Final = "inside a user message"
ANSWERING: Final = "inside an assistant message"
ANSWERED: Final = "behind an answer without calls"
CALLED: Final = "behind an answer with calls"
TOOLS: Final = "while calls are under way"
ENDED: Final = "behind the end of all calls"
RESULTING: Final = "inside a tool-result message"
RESULTED: Final = "behind the last tool-result message"
FAILED: Final = "behind an answer that failed"
ABORTED: Final = "behind an answer that was aborted"
RETRY: Final = "in the wait before a retry"
SHORTENING: Final = "in a compaction"
OVERFLOWING: Final = "in a compaction after an overflow"
ASKING: Final = "before the answer to a new attempt"
CLOSING: Final = "before the closing message"
BETWEEN: Final = "between two turns"
CLOSED: Final = "behind a turn that failed"
DONE: Final = "behind a turn that was aborted"
ADRIFT: Final = "in a turn whose order is lost"

_END: Final = "message_end assistant"
_ANSWERS: Final[Mapping[Kind, Place]] = {
    f"{_END} without calls": ANSWERED,
    f"{_END} with calls": CALLED,
    f"{_END} error": FAILED,
    f"{_END} aborted": ABORTED,
}
_WITHIN_A_TURN: Final = (
    "message_start user",
    "message_end user",
    "message_start assistant",
    "message_update",
    *_ANSWERS,
    "message_start tool_result",
    "message_end tool_result",
    "message_end tool_result, the last",
    "tool_execution_start",
    "tool_execution_update",
    "tool_execution_end",
    "tool_execution_end, the last",
)

# place -> kind of event that may come there -> the place it leads to. "user" is any message that is put in: a user's or
# an application's. ", the last" says that no call of the message is left to end, or to be answered.
ORDER: Final[Mapping[Place, Mapping[Kind, Place]]] = {
    IDLE: {"agent_start": RUN},
    RUN: {"turn_start": TURN},
    TURN: {
        "message_start user": INJECTING,
        "message_start assistant": ANSWERING,
        "retry_start": RETRY,
        "compaction_start threshold": SHORTENING,
        "compaction_start overflow": OVERFLOWING,
    },
    INJECTING: {"message_end user": TURN},
    ANSWERING: {"message_update": ANSWERING, **_ANSWERS},
    ANSWERED: {"turn_end": BETWEEN},
    CALLED: {"tool_execution_start": TOOLS},
    TOOLS: {
        "tool_execution_start": TOOLS,
        "tool_execution_update": TOOLS,
        "tool_execution_end": TOOLS,
        "tool_execution_end, the last": ENDED,
    },
    ENDED: {"message_start tool_result": RESULTING},
    RESULTING: {"message_end tool_result": ENDED, "message_end tool_result, the last": RESULTED},
    RESULTED: {"turn_end": BETWEEN},
    FAILED: {"retry_start": RETRY, "compaction_start overflow": OVERFLOWING, "turn_end": CLOSED},
    ABORTED: {"turn_end": DONE},
    RETRY: {"retry_end resumed": ASKING, "retry_end aborted": CLOSING, "retry_end failed": CLOSING},
    SHORTENING: {
        "compaction_end compacted": ASKING,
        "compaction_end failed": ASKING,
        "compaction_end aborted": CLOSING,
    },
    OVERFLOWING: {
        "compaction_end compacted": ASKING,
        "compaction_end failed": CLOSING,
        "compaction_end aborted": CLOSING,
    },
    ASKING: {
        "message_start assistant": ANSWERING,
        "retry_start": RETRY,
        "compaction_start threshold": SHORTENING,
        "compaction_start overflow": OVERFLOWING,
    },
    CLOSING: {"message_start assistant": ANSWERING},
    BETWEEN: {"turn_start": TURN, "agent_end": IDLE},
    # An attempt that stands, since the run failed or was aborted at its end, may have a closing message behind it.
    CLOSED: {"turn_start": CLOSING, "agent_end": IDLE},
    DONE: {"agent_end": IDLE},
    ADRIFT: {"turn_end": BETWEEN, **dict.fromkeys(_WITHIN_A_TURN, ADRIFT)},
}

ANY: Final = ("",)
_TOOL: Final = ("tool_execution",)
_OPEN: Final = (INJECTING, ANSWERING, RESULTING)
_OPENS: Final = ("message_start user", "message_start assistant")
_LEAVES: Final = ("turn_start", "turn_end", "agent_end")

# Which rule an event breaks that may not come: the first row that fits. A row fits where the place is one of its places
# (none: anywhere) and the kind begins with one of its words.
BREACHES: Final[tuple[tuple[tuple[Place, ...], tuple[str, ...], str], ...]] = (
    ((), ("agent_start",), "L1"),
    ((IDLE,), ANY, "L1"),
    (_OPEN, ANY, "L3"),
    ((), ("message_update", "message_end"), "L3"),
    ((RETRY,), ANY, "F8"),
    ((SHORTENING, OVERFLOWING), ANY, "F9"),
    ((CLOSED, DONE, CLOSING), ANY, "F1"),
    ((FAILED, ABORTED), ("tool_execution", "message_start tool_result"), "T6"),
    ((), ("retry",), "F8"),
    ((), ("compaction",), "F9"),
    ((), ("tool_execution_start",), "T1"),
    ((), _TOOL, "T3"),
    ((), ("message_start tool_result",), "T4"),
    ((CALLED, TOOLS, ENDED), _OPENS, "F2"),
    ((CALLED,), _LEAVES, "F2"),
    ((TOOLS,), _LEAVES, "T3"),
    ((ENDED,), _LEAVES, "T4"),
    ((RUN, BETWEEN), ANY, "L2"),
    ((), ("message_start user",), "Q1"),
    ((), ANY, "L2"),
)

# Where the judge goes on behind an event that may not come. What is not here changes no place.
RECOVERY: Final[Mapping[Kind, Place]] = {
    "agent_start": RUN,
    "turn_start": TURN,
    "message_start user": INJECTING,
    "message_start assistant": ANSWERING,
    "message_start tool_result": RESULTING,
    **_ANSWERS,
    "turn_end": BETWEEN,
    "retry_start": RETRY,
    "compaction_start threshold": SHORTENING,
    "compaction_start overflow": OVERFLOWING,
    "retry_end resumed": ASKING,
    "compaction_end compacted": ASKING,
    "compaction_end failed": ASKING,
    "agent_end": IDLE,
}


def broken_rule(place: Place, kind: Kind) -> str:
    """The rule that an event of this kind breaks at this place."""
    return next(
        rule
        for places, words, rule in BREACHES
        if (not places or place in places) and any(kind.startswith(word) for word in words)
    )


def may_come(place: Place) -> tuple[str, ...]:
    """What may come at a place, in words short enough for a sentence."""
    return tuple(dict.fromkeys([" ".join(kind.split(",")[0].split(" ")[:2]) for kind in ORDER[place]]))


def kind_of(event: Event, memory: Memory) -> Kind:
    """The name of an event in the tables."""
    if isinstance(event, MessageStart):
        return f"message_start {_said_by(event.message)}"
    if isinstance(event, MessageEnd):
        return _ending(event.message, memory)
    if isinstance(event, ToolExecutionEnd):
        return "tool_execution_end, the last" if memory.ends_last(event.tool_call_id) else "tool_execution_end"
    if isinstance(event, RetryEnd | CompactionEnd):
        return f"{event.type} {event.outcome}"
    return f"{event.type} {event.reason}" if isinstance(event, CompactionStart) else event.type


def _said_by(message: Message) -> str:
    return "user" if message.role == "custom" else message.role


def _ending(message: Message, memory: Memory) -> Kind:
    if isinstance(message, ToolResultMessage):
        return "message_end tool_result, the last" if memory.answers_last() else "message_end tool_result"
    if not isinstance(message, AssistantMessage):
        return "message_end user"
    if message.stop_reason in FAILURES:
        return f"{_END} {message.stop_reason}"
    return f"{_END} with calls" if message.tool_calls else f"{_END} without calls"
