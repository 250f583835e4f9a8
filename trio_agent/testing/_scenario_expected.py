"""What must come of a scenario in which nothing depends on the schedule: a sequential reading of it, without tasks.

Here lives the prediction, made from the specification and the scenario alone: history, queues, outcomes, and how often
the model was asked. Whatever the kernel does at once, it must come to what this does one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from .._messages import AssistantMessage, Message, ToolResultMessage
from ._scenario import Call, Hook, HookName, Response, Scenario

_RETRYABLE: Final = {"rate_limit", "overloaded", "server", "network", "timeout"}
_SUCCEEDS: Final = {"returns", "nursery", "updates", "late", "serial", "writes", "locks", "agent", "steers"}
_FAILS: Final = {"raises", "unusable", "times_out", "unknown", "invalid"}
_HARMLESS: Final = {"waits", "subscribes", "unsubscribes", "observer_raises", "prompts", "configures"}
_PLAIN: Final = Response(("ok",))
_USAGE: Final = 11  # of every request that came as far as its report


@attrs.frozen
class Expected:
    """`history` as the lines that `told` makes; `outcomes` of each run with its reason."""

    history: list[str]
    outcomes: list[tuple[str, str | None]]
    steering: list[str]
    follow_up: list[str]
    requests: int
    written: int  # lines in the file


def told(messages: Sequence[Message]) -> list[str]:
    """Messages as lines: who says what, and how it ended."""
    lines: list[str] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            calls = 0 if message.stop_reason == "error" else len(message.tool_calls)
            lines.append(_answer(message.stop_reason or "", message.text, calls))
        elif isinstance(message, ToolResultMessage):
            lines.append("result error" if message.is_error else f"result {message.text}")
        else:
            lines.append(f"user {getattr(message, 'text', '')}")
    return lines


def _answer(stop_reason: str, text: str, calls: int) -> str:
    return f"assistant {stop_reason} {text!r} with {calls} calls"


def expected(scenario: Scenario) -> Expected | None:
    """The prediction, or None where the schedule or the clock decides."""
    return _Reading(scenario).read() if _is_sequential(scenario) else None


def _is_sequential(scenario: Scenario) -> bool:
    calls = [call for response in scenario.replies for call in response.calls]
    return (
        all(call.does in _SUCCEEDS | _FAILS for call in calls)
        and all(sum(call.does == "steers" for call in response.calls) < 2 for response in scenario.replies)
        and all(moment.does in _HARMLESS for moment in scenario.moments)
        and all(response.fails not in ("stall", "swallow", "hurt") for response in scenario.replies)
        and not any(hook.does == "hangs" and scenario.hook_timeout is None for hook in scenario.hooks)
        and not (scenario.compaction or scenario.entry == "leave_stream")
        and scenario.abort_after is scenario.cancel_after is None
    )


class _Reading:
    """One after the other."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.history: list[str] = []
        self.steering = list(scenario.steered)
        self.follow_up = list(scenario.followed_up)
        self.requests = 0
        self.keys = 0
        self.written = 0
        self.run_calls = self.run_tokens = 0
        self.hooks: dict[HookName, Hook] = {hook.name: hook for hook in scenario.hooks}

    def read(self) -> Expected:
        outcomes = [self._run(number) for number in range(self.scenario.prompts)]
        return Expected(self.history, outcomes, self.steering, self.follow_up, self.requests, self.written)

    def _does(self, name: HookName) -> str:
        hook = self.hooks.get(name)
        does = "" if hook is None else hook.does
        return "raises" if does == "hangs" else does  # being out of time counts as raising

    def _run(self, number: int) -> tuple[str, str | None]:
        text = "go" if number == 0 else f"go {number + 1}"
        self.run_calls = self.run_tokens = 0
        if self.scenario.entry == "resume" and number == 0:
            self.steering.append(text)
            batch, self.steering = self.steering, []
        else:
            batch, self.steering = [*self.steering, text], []
        turn = 0
        while True:
            turn += 1
            self.history += [f"user {said}" for said in batch]
            calls, end, reason = self._turn()
            if end == "error":
                return end, reason
            end, reason = self._end(turn, calls, end)
            if end:
                return end, reason
            batch = self._next_batch(calls)

    def _end(self, turn: int, calls: int, end: str) -> tuple[str, str | None]:
        """Whether the run ends behind this turn, and how."""
        stops = self._does("should_stop_after_turn")
        if stops == "stops":
            return "stopped", "should_stop_after_turn"
        if stops == "raises":
            self.history.append(_answer("error", "", 0))
            return "error", None
        if not (calls or self.steering or self.follow_up):
            return "completed", "length" if end == "length" else None
        scenario = self.scenario
        for name, value, limit in (
            ("max_turns", turn, scenario.max_turns),
            ("max_tool_calls", self.run_calls, scenario.max_tool_calls),
            ("max_total_tokens", self.run_tokens, scenario.max_total_tokens),
        ):
            if limit is not None and value >= limit:
                return "stopped", name
        return "", None

    def _next_batch(self, calls: int) -> list[str]:
        queue, mode = self.steering, self.scenario.steering_mode
        if not queue and not calls:
            queue, mode = self.follow_up, self.scenario.follow_up_mode
        count = 1 if mode == "one_at_a_time" else len(queue)
        batch = queue[:count]
        del queue[:count]
        return batch

    def _turn(self) -> tuple[int, str, str | None]:
        """Gives how many calls the answer had, and its stop reason or `error` with the reason of the run's end."""
        if self.scenario.projection_failure == "fail" and "raises" in (
            self._does("transform_context"),
            self._does("convert_to_llm"),
        ):
            self.history.append(_answer("error", "", 0))
            return 0, "error", None
        failed = 0
        while True:
            response = self._next_response()
            failure = _failure(response)
            if failure is None:
                break
            failed += 1
            if failure not in _RETRYABLE or failed >= self.scenario.max_attempts:
                self.history.append(_answer("error", _text(response), 0))
                return 0, "error", None if failure == "bug" else failure
        end = response.ends or ("tool_use" if response.calls else "stop")
        self.history.append(_answer(end, _text(response), len(response.calls)))
        self.history += [self._result(call, end) for call in response.calls]
        self.run_calls += len(response.calls)
        return len(response.calls), end, None

    def _next_response(self) -> Response:
        replies, number = self.scenario.replies, self.requests
        self.requests += 1
        response = replies[number] if number < len(replies) else _PLAIN
        if _came_to_its_calls(response):
            self.first_key = self.keys
            self.keys += len(response.calls)
            self.run_tokens += _USAGE
        return response

    def _result(self, call: Call, end: str) -> str:
        self.first_key += 1
        if (
            end == "length"
            or call.does in ("unknown", "invalid")
            or self._does("before_tool_call") in ("blocks", "raises")
        ):
            return "result error"
        after = self._does("after_tool_result")
        if call.does in ("writes", "locks"):
            self.written += 1
        if call.does == "steers":
            self.steering.append(f"steered by k{self.first_key}")
        if after == "raises" or (call.does not in _SUCCEEDS and after != "replaces"):
            return "result error"
        if after == "replaces":
            return "result error" if call.does not in _SUCCEEDS else "result replaced"
        return f"result answer of k{self.first_key}"


def _failure(response: Response) -> str | None:
    """The kind of failure that the kernel must make of it; None if the message stands."""
    fails, where = response.fails, response.where
    if fails == "bug":
        return None if where == "after" and _is_known(response.ends) else "bug" if where != "after" else "protocol"
    if fails == "more" or (fails == "nothing" and where == "after"):
        return "protocol"
    if fails and fails != "nothing":
        return fails
    return None if _is_known(response.ends) else "protocol"


def _is_known(ends: str) -> bool:
    return ends in ("", "stop", "length", "tool_use")


def _came_to_its_calls(response: Response) -> bool:
    return response.where == "after" or response.fails in ("", "nothing")


def _text(response: Response) -> str:
    """What text had come when it failed or ended."""
    if response.where == "before" and response.fails not in ("", "nothing"):
        return ""
    if response.where == "in" and not (response.text or response.thinking):
        return "so" + "".join(response.text)
    return "".join(response.text)
