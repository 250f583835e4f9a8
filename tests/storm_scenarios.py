"""The named scenarios that are disturbed at each of their checkpoints. Data only."""

from __future__ import annotations

from trio_agent.testing import Call, Hook, Moment, Response, Scenario

DONE = Response(("done",))
TWO = Response(("he", "llo"), calls=(Call("returns", 1.0), Call("returns")))


def calling(*calls: Call) -> tuple[Response, ...]:
    return (Response(("so",), calls=calls), DONE)


SCENARIOS: dict[str, Scenario] = {
    # Tools
    "text only": Scenario((Response(("he", "llo"), thinking=("hm",)),)),
    "two tools that return": Scenario((TWO, DONE)),
    "two turns of tools": Scenario((TWO, TWO, DONE)),
    "a tool that raises": Scenario(calling(Call("raises"), Call())),
    "a tool that hangs until an abort": Scenario(calling(Call("hangs"), Call()), abort_after=5),
    "a tool that hangs until an outer cancel": Scenario(calling(Call("hangs"), Call()), cancel_after=5),
    "a tool that swallows Cancelled": Scenario(calling(Call("swallows"), Call()), abort_after=5),
    "a tool that swallows an outer cancel": Scenario(calling(Call("swallows"), Call()), cancel_after=5),
    "a tool that makes an error of Cancelled": Scenario(calling(Call("wraps"), Call()), cancel_after=5),
    "a tool that owns a nursery": Scenario(calling(Call("nursery", 1.0), Call("nursery"))),
    "a tool whose children raise when cancelled": Scenario(calling(Call("torn"), Call()), abort_after=5),
    "a tool that reports": Scenario(calling(Call("updates", 1.0), Call("updates"))),
    "a tool that reports too late": Scenario((*calling(Call("late")), DONE), prompts=2),
    "a serial tool among others": Scenario(calling(Call("returns", 1.0), Call("serial"), Call("updates"))),
    "serial tools only": Scenario(calling(Call("serial", 1.0), Call("serial"))),
    "writers of one file under aliases": Scenario(
        calling(Call("writes", 1.0), Call("writes", spelling="dotted"), Call("writes", spelling="link"))
    ),
    "writers that lock at run time": Scenario(
        calling(Call("locks", 1.0), Call("locks", spelling="hard"), Call("writes"))
    ),
    "writers with one slot": Scenario(
        calling(Call("writes", 1.0), Call("writes"), Call("locks", spelling="link"), Call()), max_parallel_tools=1
    ),
    "an agent inside a tool": Scenario(calling(Call("agent", 1.0))),
    "two agents inside tools": Scenario(calling(Call("agent"), Call("agent", 1.0))),
    "a result that cannot be used": Scenario(calling(Call("unusable"), Call())),
    "a tool out of time": Scenario(calling(Call("times_out"), Call("returns", 5.0))),
    "an unknown tool and wrong arguments": Scenario(calling(Call("unknown"), Call("invalid"), Call())),
    "calls cut by the length": Scenario((Response(("so",), calls=(Call(), Call("hangs")), ends="length"), DONE)),
    "length without calls": Scenario((Response(("so",), ends="length"),)),
    "tool_use without calls": Scenario((Response(("so",), ends="tool_use"),)),
    "ids missing": Scenario((Response(calls=(Call(), Call()), ids="missing"), DONE)),
    "ids repeated": Scenario(
        (Response(calls=(Call(), Call()), ids="repeated"), Response(calls=(Call(),), ids="repeated"))
    ),
    "a tool that aborts its run": Scenario(calling(Call("aborts"), Call("returns", 1.0))),
    "a tool that steers": Scenario(calling(Call("steers"), Call("steers"))),
    "max_parallel_tools": Scenario(calling(Call("returns", 1.0), Call("updates"), Call()), max_parallel_tools=1),
    # Provider
    "a failure before the stream": Scenario((Response(fails="authentication"),)),
    "a failure in the stream": Scenario((Response(("he",), fails="invalid_request", where="in"),)),
    "a failure after the stream": Scenario(
        (Response(("he",), calls=(Call(),), fails="content_filter", where="after"),)
    ),
    "a bug of the provider": Scenario((Response(("he",), fails="bug", where="in"),)),
    "a bug behind the end marker": Scenario((Response(("he",), calls=(Call(),), fails="bug", where="after"), DONE)),
    "chunks behind the end marker": Scenario((Response(("he",), fails="more", where="after"),)),
    "no end marker": Scenario((Response(("he",), fails="nothing", where="after"),)),
    "no end marker and no chunk": Scenario((Response(fails="protocol"),)),
    "an unknown end marker": Scenario((Response(("he",), ends="because"),)),
    "a stall before the stream": Scenario((Response(fails="stall"),), abort_after=5),
    "a stall in the stream": Scenario((Response(("he",), fails="stall", where="in"),), cancel_after=5),
    "a provider that swallows Cancelled": Scenario((Response(("he",), fails="swallow", where="in"),), abort_after=5),
    "a provider that swallows an outer cancel": Scenario(
        (Response(("he",), fails="swallow", where="in"),), cancel_after=5
    ),
    "a provider that makes an error of Cancelled": Scenario(
        (Response(("he",), fails="hurt", where="in"),), cancel_after=5
    ),
    "a provider without a checkpoint": Scenario((Response(("a",) * 5, calls=(Call(),), checkpoints=False), DONE)),
    "more chunks than the run takes at once": Scenario((Response(("a",) * 130, checkpoints=False),)),
    # Retries and compactions
    "a retry before the stream": Scenario((Response(fails="overloaded"), Response(fails="rate_limit"), TWO, DONE)),
    "a retry in the stream": Scenario((Response(("he",), calls=(Call(),), fails="network", where="in"), DONE)),
    "a retry of a message with calls": Scenario((Response(calls=(Call(),), fails="server", where="after"), TWO, DONE)),
    "retries used up": Scenario((Response(("he",), fails="timeout", where="in"),) * 3, max_attempts=2),
    "a compaction at the threshold": Scenario((TWO, TWO, DONE), compaction="works", compacts_at=3),
    "a compaction behind an overflow": Scenario((TWO, Response(fails="context_overflow"), DONE), compaction="works"),
    "an overflow in the stream": Scenario(
        (TWO, Response(("he",), fails="context_overflow", where="in")), compaction="works"
    ),
    "a compaction that fails": Scenario((TWO, DONE), compaction="raises", compacts_at=3),
    "an overflow whose compaction fails": Scenario((Response(fails="context_overflow"),), compaction="raises"),
    "a compaction that hangs": Scenario((TWO, DONE), compaction="hangs", compacts_at=3, abort_after=5),
    # Hooks
    "hooks that pass": Scenario(
        (TWO, DONE),
        hooks=(
            Hook("transform_context", "passes"),
            Hook("convert_to_llm", "passes"),
            Hook("before_tool_call", "passes"),
            Hook("after_tool_result", "passes"),
            Hook("should_stop_after_turn", "passes"),
        ),
    ),
    "async hooks": Scenario(
        (TWO, DONE),
        hooks=(
            Hook("transform_context", "waits"),
            Hook("convert_to_llm", "waits"),
            Hook("before_tool_call", "waits"),
            Hook("after_tool_result", "waits"),
            Hook("should_stop_after_turn", "waits"),
        ),
    ),
    "projections that raise": Scenario(
        (TWO, DONE), hooks=(Hook("transform_context", "raises"), Hook("convert_to_llm", "raises"))
    ),
    "a projection that fails the run": Scenario(
        (TWO,), hooks=(Hook("transform_context", "raises"),), projection_failure="fail"
    ),
    "a check that blocks": Scenario((TWO, DONE), hooks=(Hook("before_tool_call", "blocks"),)),
    "a check that replaces": Scenario((TWO, DONE), hooks=(Hook("before_tool_call", "replaces"),)),
    "a check that raises": Scenario((TWO, DONE), hooks=(Hook("before_tool_call", "raises"),)),
    "a check out of time": Scenario((TWO, DONE), hooks=(Hook("before_tool_call", "hangs"),), hook_timeout=2),
    "results replaced": Scenario((TWO, DONE), hooks=(Hook("after_tool_result", "replaces"),)),
    "results whose hook raises": Scenario((TWO, DONE), hooks=(Hook("after_tool_result", "raises"),)),
    "a hook stops the run": Scenario((TWO, DONE), hooks=(Hook("should_stop_after_turn", "stops"),)),
    "a hook stops the run while messages wait": Scenario(
        calling(Call("steers")), hooks=(Hook("should_stop_after_turn", "stops"),), followed_up=("c",)
    ),
    "the stopping hook raises": Scenario((TWO, DONE), hooks=(Hook("should_stop_after_turn", "raises"),)),
    "a hook hangs until an abort": Scenario((TWO, DONE), hooks=(Hook("transform_context", "hangs"),), abort_after=5),
    # Subscribers
    "a subscriber fails at agent_start": Scenario((TWO, DONE), (Moment("agent_start", "raises"),)),
    "a subscriber fails in the prompt": Scenario((TWO, DONE), (Moment("message_start", "raises"),)),
    "a subscriber fails in the stream": Scenario((TWO, DONE), (Moment("message_update", "raises", 2, is_async=True),)),
    "a subscriber fails at the answer": Scenario((TWO, DONE), (Moment("message_end", "raises", 2),)),
    "a subscriber fails at a tool's end": Scenario((TWO, DONE), (Moment("tool_execution_end", "raises"),)),
    "a subscriber fails at turn_end": Scenario((TWO, DONE), (Moment("turn_end", "raises"),)),
    "a subscriber fails at agent_end": Scenario((TWO, DONE), (Moment("agent_end", "raises", is_async=True),)),
    "an observer fails": Scenario((TWO, DONE), (Moment("turn_start", "observer_raises", 2),)),
    "a subscriber hangs in the stream": Scenario((TWO, DONE), (Moment("message_update", "hangs"),)),
    "a subscriber hangs at agent_end": Scenario((TWO, DONE), (Moment("agent_end", "hangs"),)),
    "a slow subscriber": Scenario((TWO, DONE), (Moment("tool_execution_start", "waits"), Moment("turn_end", "waits"))),
    "a subscriber aborts": Scenario((TWO, DONE), (Moment("tool_execution_end", "aborts"),)),
    "a subscriber cancels": Scenario((TWO, DONE), (Moment("message_update", "cancels", is_async=True),)),
    "a subscriber interrupts": Scenario((TWO, DONE), (Moment("tool_execution_start", "interrupts", 2),)),
    "a subscriber fails in a retry": Scenario(
        (Response(("he",), fails="overloaded", where="in"), DONE), (Moment("retry_start", "raises"),)
    ),
    "a subscriber aborts in a retry": Scenario(
        (Response(("he",), fails="overloaded", where="in"), DONE), (Moment("retry_start", "aborts"),)
    ),
    "a subscriber fails in a compaction": Scenario(
        (TWO, DONE), (Moment("compaction_start", "raises"),), compaction="works", compacts_at=3
    ),
    "subscribers come and go": Scenario(
        (TWO, DONE), (Moment("turn_start", "subscribes"), Moment("message_end", "unsubscribes", 2))
    ),
    # Queues
    "queues filled while idle": Scenario((TWO, DONE), steered=("a", "b"), followed_up=("c", "d")),
    "queues that give all": Scenario(
        (TWO, DONE), steered=("a",), followed_up=("c", "d"), follow_up_mode="all", steering_mode="all"
    ),
    "queue traffic": Scenario(
        (TWO, DONE),
        (
            Moment("message_update", "steers"),
            Moment("tool_execution_start", "follows_up"),
            Moment("turn_end", "steers"),
            Moment("agent_end", "follows_up"),
        ),
    ),
    "messages taken back": Scenario(
        (TWO, DONE),
        (Moment("message_update", "steers"), Moment("turn_end", "withdraws"), Moment("turn_start", "clears", 2)),
        followed_up=("c",),
    ),
    "configured in between": Scenario((TWO, DONE), (Moment("message_update", "configures"),)),
    "a prompt inside the run": Scenario((TWO, DONE), (Moment("turn_end", "prompts"),)),
    # Limits and entries
    "max_turns": Scenario((TWO, TWO, DONE), max_turns=1, followed_up=("c",)),
    "max_tool_calls": Scenario((TWO, TWO, DONE), max_tool_calls=2),
    "max_total_tokens": Scenario((TWO, TWO, DONE), max_total_tokens=5),
    "a resume": Scenario((TWO, DONE), entry="resume", followed_up=("c",)),
    "two prompts": Scenario((TWO, DONE, TWO, DONE), prompts=2),
    "a stream": Scenario((TWO, DONE), entry="stream"),
    "a stream that is left": Scenario((TWO, DONE), entry="leave_stream"),
}
