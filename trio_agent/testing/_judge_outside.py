"""What the judge can say when it is told more than events: the phase at each, and what was queued.

Here live rules P1 to P3 and Q1 to Q3, each against a log that the caller kept. What follows from the events alone is in
the clauses that `_judge_register.py` files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final, TypeAlias

from .._events import Event
from .._messages import Message
from ._judge_memory import Delivery

# A phase, or its name.
PhaseWord: TypeAlias = Enum | str

_PHASES: Final = ("idle", "turn", "compaction", "retry")
_OWN_PHASE: Final = {
    "retry_start": "retry",
    "retry_end": "retry",
    "compaction_start": "compaction",
    "compaction_end": "compaction",
}


def judge_phase(event: Event, phase: PhaseWord) -> list[tuple[str, str]]:
    """The rule that the phase at this event breaks, and how."""
    word = str(phase.value) if isinstance(phase, Enum) else phase
    wanted = _OWN_PHASE.get(event.type, "turn")
    if word == wanted:
        return []
    if word not in _PHASES:
        return [("P1", f"{word} is no phase; the phases are {', '.join(_PHASES)}")]
    return [("P2" if word == "idle" else "P3", f"the phase is {word}, not {wanted}")]


_Finding: TypeAlias = tuple[str, Message, int | None, str]


def judge_queues(
    deliveries: Iterable[Delivery],
    steered: Sequence[Message],
    followed_up: Sequence[Message],
    waiting: Sequence[Message],
) -> list[_Finding]:
    """What is wrong with how queued messages came: rule, message, index of the event (None: the end), sentence.

    In the first turn of a run a message that nobody queued is a prompt. Equal messages are taken for one another.
    """
    left = {"steered": list(steered), "followed up": list(followed_up)}
    for message in waiting:
        for queue in left.values():
            if message in queue:
                queue.reverse()  # of two equal ones the later one waits
                queue.remove(message)
                queue.reverse()
                break
    queued = [*steered, *followed_up]
    found: list[_Finding] = []
    for delivery in deliveries:
        name = next((name for name, queue in left.items() if delivery.message in queue), None)
        if name is not None:
            found += _judge_delivery(delivery, name, left[name])
            left[name].remove(delivery.message)
        elif not delivery.first_turn:
            text = "came again, or while it waits" if delivery.message in queued else "came, and nobody had queued it"
            found.append(("Q2", delivery.message, delivery.index, text))
    return found + [
        ("Q2", message, None, f"was {name} and never came, nor does it wait")
        for name, queue in left.items()
        for message in queue
    ]


def _judge_delivery(delivery: Delivery, name: str, queue: Sequence[Message]) -> list[_Finding]:
    found: list[_Finding] = []
    if queue[0] != delivery.message:
        found.append(("Q3", delivery.message, delivery.index, "came before one that had been queued earlier"))
    if name == "followed up" and delivery.behind_calls and not delivery.first_turn:
        text = "is a follow-up, and came while the run had tool results to answer"
        found.append(("Q1", delivery.message, delivery.index, text))
    return found
