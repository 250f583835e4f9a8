"""What happens in one example, as data: replies, calls, what goes wrong, what is queued, and when.

Here live frozen values that print as Python that makes them again. Playing them is in `_scenario_play.py`, drawing
them in `strategies.py`, and what must come of them in `_scenario_expected.py`.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import attrs

ToolDoes: TypeAlias = Literal[
    "returns",  # an answer
    "raises",
    "hangs",  # until it is cancelled
    "swallows",  # hangs, swallows its cancellation and returns
    "wraps",  # hangs, and turns its cancellation into an error
    "nursery",  # owns two tasks
    "torn",  # owns two tasks, one of which raises when it is cancelled
    "updates",  # reports twice, then returns
    "late",  # leaves a task behind, in a nursery of the application, that reports after the end
    "serial",  # is a barrier
    "writes",  # appends to a file that it declares, under one of several spellings
    "locks",  # the same, with a lock taken at run time
    "agent",  # runs another agent
    "unusable",  # returns what no model can be shown
    "times_out",
    "aborts",  # aborts its own run, and returns
    "steers",  # queues a message
    "unknown",  # is a tool that nobody has
    "invalid",  # has arguments that do not fit
]
Spelling: TypeAlias = Literal["plain", "dotted", "link", "hard"]
Failing: TypeAlias = Literal[
    "",
    "rate_limit",
    "overloaded",
    "server",
    "network",
    "timeout",
    "context_overflow",
    "authentication",
    "invalid_request",
    "content_filter",
    "protocol",
    "bug",  # an exception that is no ProviderError
    "nothing",  # returns without an end marker
    "stall",  # waits until it is cancelled
    "swallow",  # the same, and returns as if nothing had been
    "hurt",  # the same, and raises something else
    "more",  # goes on behind the end marker
]
HookName: TypeAlias = Literal[
    "transform_context", "convert_to_llm", "before_tool_call", "after_tool_result", "should_stop_after_turn"
]
HookDoes: TypeAlias = Literal["passes", "waits", "raises", "hangs", "blocks", "replaces", "stops"]
EventType: TypeAlias = Literal[
    "agent_start",
    "turn_start",
    "message_start",
    "message_update",
    "message_end",
    "tool_execution_start",
    "tool_execution_update",
    "tool_execution_end",
    "turn_end",
    "retry_start",
    "retry_end",
    "compaction_start",
    "compaction_end",
    "agent_end",
]
MomentDoes: TypeAlias = Literal[
    "raises",
    "observer_raises",
    "hangs",  # after it has aborted the run: else nothing would ever end it
    "waits",  # three seconds
    "interrupts",  # raises KeyboardInterrupt
    "aborts",
    "cancels",  # the scope around the prompt
    "steers",
    "follows_up",
    "withdraws",  # what was queued last
    "clears",  # both queues
    "configures",
    "subscribes",
    "unsubscribes",  # itself
    "prompts",  # which is refused
]


class _Script:
    """Prints only what differs from the default, so that a shrunk example is short."""

    def __repr__(self) -> str:
        kind: Any = type(self)
        fields: Any = attrs.fields(kind)
        told = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields
            if getattr(self, field.name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(told)})"


@attrs.frozen(repr=False)
class Call(_Script):
    """A tool call: what the tool does, and for how many virtual seconds it works first (0: one checkpoint)."""

    does: ToolDoes = "returns"
    seconds: float = 0.0
    spelling: Spelling = "plain"  # of the file that `writes` and `locks` append to


@attrs.frozen(repr=False)
class Response(_Script):
    """What the provider does for one request.

    `fails` happens before the first chunk, in the stream (behind the text, before the calls) or after everything but
    the end marker; "bug" and "more" with `where="after"` come behind the end marker. `ends` is the end marker; empty:
    what fits. Without `checkpoints` the provider never waits.
    """

    text: tuple[str, ...] = ()
    thinking: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    ends: str = ""
    fails: Failing = ""
    where: Literal["before", "in", "after"] = "before"
    checkpoints: bool = True
    seconds: float = 0.0
    ids: Literal["given", "missing", "repeated"] = "given"


@attrs.frozen(repr=False)
class Hook(_Script):
    """A hook that does this at each of its calls."""

    name: HookName
    does: HookDoes


@attrs.frozen(repr=False)
class Moment(_Script):
    """At the n-th event of a type, a subscriber does this. `is_async`: behind a checkpoint."""

    event: EventType
    does: MomentDoes
    nth: int = 1
    is_async: bool = False


@attrs.frozen(repr=False)
class Scenario(_Script):
    """One example. Requests beyond `replies` get a plain answer. All times in virtual seconds."""

    replies: tuple[Response, ...] = ()
    moments: tuple[Moment, ...] = ()
    hooks: tuple[Hook, ...] = ()
    steered: tuple[str, ...] = ()  # while idle
    followed_up: tuple[str, ...] = ()  # while idle
    prompts: int = 1
    entry: Literal["prompt", "resume", "stream", "leave_stream"] = "prompt"
    steering_mode: Literal["one_at_a_time", "all"] = "one_at_a_time"
    follow_up_mode: Literal["one_at_a_time", "all"] = "one_at_a_time"
    max_attempts: int = 4
    compaction: Literal["", "works", "raises", "hangs", "useless"] = ""
    compacts_at: int | None = None  # messages in history; None: only after an overflow
    max_turns: int | None = None
    max_tool_calls: int | None = None
    max_total_tokens: int | None = None
    max_parallel_tools: int | None = None
    hook_timeout: float | None = None
    projection_failure: Literal["fall_back", "fail"] = "fall_back"
    abort_after: float | None = None
    cancel_after: float | None = None


def script(scenario: Scenario, *, seed: int = 0, disturbance: object = None) -> str:
    """The lines of a test that plays the scenario again, to be pasted into a file of tests."""
    shown = repr(scenario)
    told = [f"seed={seed}"] if seed else []
    told += [f"disturbance={disturbance!r}"] if disturbance is not None else []
    arguments = ", ".join(["scenario", *told])
    names = [name for name in ("Call", "Hook", "Moment", "Response") if f"{name}(" in shown]
    names += ["Disturbance"] if disturbance is not None else []
    imports = ", ".join(sorted([*names, "Scenario", "play"]))
    return (
        f"from trio_agent.testing import {imports}\n\n\n"
        f"def test_a_scenario_of_the_storm() -> None:\n"
        f"    scenario = {shown}\n"
        f"    play({arguments})\n"
    )
