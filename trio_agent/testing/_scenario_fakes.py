"""The provider, the hooks and the compaction policy of a scenario, which do what it says.

Here live fakes that the kernel calls. Tools are in `_scenario_tools.py`, subscribers in `_scenario_moments.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs
import trio

from .._chunks import Finish, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallStart, UsageReport
from .._errors import ProviderError
from .._hooks import Block, Hooks, Replace
from .._json import dumps
from .._messages import Message, Usage, UserMessage
from .._policies import Compaction
from .._provider import Send
from .._state import AgentState
from ._scenario import Call, Hook, Response, Scenario
from ._scenario_bench import spelled, work
from ._scenario_stage import MEANT, Stage

_PLAIN: Final = Response(("ok",))


async def reply(stage: Stage, send: Send) -> None:
    """Answer one request as the scenario says."""
    if stage.bench.closed:
        stage.bench.faults.append("A2: a request began after the abort")
    number, stage.requests = stage.requests, stage.requests + 1
    replies = stage.scenario.replies
    response = replies[number] if number < len(replies) and not stage.calm else _PLAIN
    await work(response.seconds)
    if response.where == "before":
        await _fail(response, send)
    if response.where == "in" and not (response.text or response.thinking):
        await _pause(response)
        await send(TextDelta(0, "so"))
    for piece in response.thinking:
        await _pause(response)
        await send(ThinkingDelta(0, piece))
    for piece in response.text:
        await _pause(response)
        await send(TextDelta(1 if response.thinking else 0, piece))
    if response.where == "in":
        await _fail(response, send)
    for at, call in enumerate(response.calls):
        await _call(stage, response, call, at + 2, send)
    await send(UsageReport(Usage(input=10, output=1)))
    behind_the_end = response.fails in ("bug", "more")
    if response.where == "after" and not behind_the_end:
        await _fail(response, send)
        if response.fails == "nothing":
            return
    await _pause(response)
    await send(Finish(response.ends or ("tool_use" if response.calls else "stop")))
    if response.where == "after":
        await _fail(response, send)


async def _pause(response: Response) -> None:
    if response.checkpoints:
        await trio.lowlevel.checkpoint()


async def _fail(response: Response, send: Send) -> None:
    kind: Any = response.fails
    if kind == "bug":
        raise RuntimeError(MEANT)
    if kind == "more":
        await send(Finish("stop"))
        await send(TextDelta(0, "more"))
    elif kind == "stall":
        await trio.sleep_forever()
    elif kind == "swallow":
        try:
            await trio.sleep_forever()
        except trio.Cancelled:  # noqa: ASYNC103  # this is what the example is about
            await send(TextDelta(0, "never mind"))  # noqa: ASYNC102
    elif kind == "hurt":
        try:
            await trio.sleep_forever()
        finally:
            raise RuntimeError(MEANT)
    elif kind and kind != "nothing":
        raise ProviderError(kind, MEANT)


async def _call(stage: Stage, response: Response, call: Call, index: int, send: Send) -> None:
    stage.keys += 1
    key = f"k{stage.keys}"
    arguments: dict[str, Any] = {"key": key}
    if call.does in ("writes", "locks"):
        arguments["path"] = spelled(stage.bench.file, call.spelling)
        if call.does == "writes":
            stage.bench.asked.append(key)
    if call.does in ("returns", "raises", "nursery", "updates", "late", "serial", "writes", "locks", "agent"):
        arguments["seconds"] = call.seconds
    if call.does == "invalid":
        arguments["number"] = "many"
    id = {"given": f"c{stage.keys}", "missing": None, "repeated": "c1"}[response.ids]
    raw = dumps(arguments)
    await _pause(response)
    await send(ToolCallStart(index, id, call.does))
    await send(ToolCallDelta(index, raw[:7]))
    await _pause(response)
    await send(ToolCallDelta(index, raw[7:]))


def make_hooks(scenario: Scenario, made: list[Stage]) -> Hooks | None:
    if not scenario.hooks:
        return None
    return Hooks(timeout=scenario.hook_timeout, **{hook.name: _hook(hook, made) for hook in scenario.hooks})


def _hook(hook: Hook, made: list[Stage]) -> Callable[..., Any]:
    given_back = hook.name in ("transform_context", "convert_to_llm")

    def value(given: Any) -> Any:
        if hook.does == "blocks" and hook.name == "before_tool_call":
            return Block("not today")
        if hook.does == "replaces" and hook.name == "before_tool_call":
            return Replace({**given.arguments, "seconds": 1.0})
        if hook.does == "replaces" and hook.name == "after_tool_result":
            return "replaced"
        if hook.does == "stops" and hook.name == "should_stop_after_turn":
            return True
        if hook.name == "convert_to_llm":
            return [message for message in given if message.role != "custom"]
        return given if given_back else None

    async def wait(given: Any) -> Any:
        if not made[0].calm and hook.does == "hangs":
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        return value(given)

    def run(given: Any) -> Any:
        stage = made[0]
        if stage.bench.closed:
            stage.bench.faults.append(f"A2: the hook {hook.name} began after the abort")
        if hook.does in ("waits", "hangs"):
            return wait(given)
        if hook.does == "raises" and not stage.calm:
            raise RuntimeError(MEANT)
        return value(given)

    return run


@attrs.define
class KeepLast:
    """Keeps the last message, and what it must not part from it."""

    made: list[Stage]
    scenario: Scenario

    def threshold(self, state: AgentState) -> bool:
        at = self.scenario.compacts_at
        return at is not None and len(state.messages) >= at and not self.made[0].calm

    async def compact(self, messages: Sequence[Message], reason: str) -> Compaction:  # noqa: ARG002  # the protocol names it
        stage = self.made[0]
        if stage.bench.closed:
            stage.bench.faults.append("A2: a compaction began after the abort")
        await trio.lowlevel.checkpoint()
        if self.scenario.compaction == "hangs":
            await trio.sleep_forever()
        if self.scenario.compaction == "raises":
            raise RuntimeError(MEANT)
        kept = len(messages) - 1
        while kept > 1 and messages[kept].role != "user":
            kept -= 1
        kept = 1 if self.scenario.compaction == "useless" else max(1, kept)
        return Compaction(UserMessage("summary"), kept)
