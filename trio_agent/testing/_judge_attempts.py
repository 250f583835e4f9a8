"""What retries and compactions may say.

Here live clauses about F8 and F9: counts, bounds, and what replaced what. What must follow an attempt that was given up
is judged where that message ends, in `_judge_messages.py`.
"""

from __future__ import annotations

from typing import Final

from .._events import (
    CompactionEnd,
    CompactionStart,
    RetryEnd,
    RetryStart,
)
from ._judge_memory import Memory
from ._judge_register import Register

REGISTER: Final = Register()

# -- retries and compactions --------------------------------------------------------------------------------------


@REGISTER.on("F8", RetryStart)
def _attempts_are_counted(memory: Memory, event: RetryStart) -> str | None:
    # An attempt that a compaction followed may count among the failed ones or not: the rule does not say.
    wanted = {memory.retries + 1, memory.retries + memory.overflows + 1}
    return None if event.attempt in wanted else f"this is failed attempt {min(wanted)} of the turn, not {event.attempt}"


@REGISTER.on("F8", RetryStart)
def _attempts_are_bounded(_memory: Memory, event: RetryStart) -> str | None:
    if event.attempt < event.max_attempts:
        return None
    return f"attempt {event.attempt} of at most {event.max_attempts} failed, so no other may follow"


@REGISTER.on("F8", RetryStart)
def _a_wait_is_a_time(_memory: Memory, event: RetryStart) -> str | None:
    return None if event.delay >= 0 else f"nobody can wait {event.delay} seconds"


@REGISTER.on("F8", RetryEnd)
def _a_wait_ends_that_began(memory: Memory, event: RetryEnd) -> str | None:
    return None if event.attempt == memory.waiting else f"the wait is that of attempt {memory.waiting}"


@REGISTER.on("F9", CompactionStart)
def _compactions_are_bounded(memory: Memory, event: CompactionStart) -> str | None:
    if event.reason == "overflow":
        return "the turn has had a compaction after an overflow" if memory.overflows else None
    if memory.thresholds:
        return "the turn has had a compaction at the threshold"
    return "one at the threshold failed, and no turn has succeeded since" if memory.barren else None


@REGISTER.on("F9", CompactionEnd)
def _a_compaction_says_what_replaced_what(_memory: Memory, event: CompactionEnd) -> str | None:
    given = (event.summary is not None, event.first_kept is not None)
    if event.outcome == "compacted":
        return None if all(given) else "it does not say what replaced what"
    return "nothing was replaced, yet it says what by" if any(given) else None


@REGISTER.on("F9", CompactionEnd)
def _a_compaction_parts_no_call_from_its_result(memory: Memory, event: CompactionEnd) -> str | None:
    kept = event.first_kept
    if kept is None or event.outcome != "compacted":
        return None
    if kept < 0 or (memory.length is not None and kept > memory.length):
        return f"history has no message {kept}"
    if memory.length is None:
        return None
    parted = [
        call_id
        for call_id, used in memory.used.items()
        if used.answered_at is not None and used.at < kept <= used.answered_at
    ]
    return f"it parts call {parted[0]} from its result" if parted else None
