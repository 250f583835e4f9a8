"""The hooks: where an application may look into a run and change its course.

Here lives what each hook is given and may give back. When each runs, and what its failure means, is in
`_run.py`, `_asking.py` and `_tool_phase.py`. An async hook runs in a task of its own under the abort scope, so context variable
tokens do not cross hooks; a sync one runs in the run's task and cannot be interrupted.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import attrs

from ._json import dumps, loads
from ._messages import ToolCall
from ._state import AgentState

Hook: TypeAlias = Callable[..., Any]

# How many values each hook is given before the context, and whether the context is part of its usual call.
_GIVEN: Final[dict[str, tuple[int, bool]]] = {
    "transform_context": (1, False),
    "convert_to_llm": (1, False),
    "before_tool_call": (1, True),
    "after_tool_result": (1, False),
    "should_stop_after_turn": (1, False),
}


@attrs.frozen
class Block:
    """`before_tool_call`: do not run the call. The model is told the reason."""

    reason: str = ""


@attrs.frozen(init=False)
class Replace:
    """`before_tool_call`: run the call with these arguments, once they have been validated."""

    _arguments: str

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.__attrs_init__(dumps(dict(arguments)))  # type: ignore[attr-defined]  # made by attrs

    @property
    def arguments(self) -> dict[str, Any]:
        value: dict[str, Any] = loads(self._arguments)
        return value


@attrs.frozen
class HookContext:
    """What a hook can look at. `call` is the tool call that the hook is about, where there is one."""

    _snapshot: Callable[[], AgentState] = attrs.field(repr=False)
    _is_aborting: Callable[[], bool] = attrs.field(repr=False)
    call: ToolCall | None = None

    @property
    def state(self) -> AgentState:
        return self._snapshot()

    @property
    def aborting(self) -> bool:
        """Whether the run is being aborted. A sync hook, which cannot be cancelled, should look at it."""
        return self._is_aborting()


def _takes_context(name: str, hook: Hook) -> bool:
    """Whether a hook takes the context behind what it is given.

    Yes if it requires one positional parameter more, or has a parameter called `context`. A hook whose signature
    cannot be read gets what its kind usually gets.
    """
    given, usual = _GIVEN[name]
    try:
        parameters = list(inspect.signature(hook).parameters.values())
    except (TypeError, ValueError):
        return usual
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return usual
    required = [p for p in positional if p.default is p.empty]
    if len(required) > given + 1 or len(positional) < given:
        raise TypeError(f"the hook {name} is called with {given} or {given + 1} arguments, which this one cannot take")
    return len(required) == given + 1 or (len(positional) > given and (usual or positional[given].name == "context"))


@attrs.frozen(kw_only=True)
class Hooks:
    """An application's hooks, each sync or async. `timeout` bounds each call of an async one, in seconds.

    | hook | when | gets -> gives | raising, or out of time |
    | --- | --- | --- | --- |
    | `transform_context` | once per turn, before the request; again after a compaction | a list of messages -> messages | its input is used instead, logged (F4) |
    | `convert_to_llm` | after it | a list of messages -> user, assistant and tool-result messages | the default is used instead, logged (F4) |
    | `before_tool_call` | in preparation, one after the other | call, context -> None, `Block` or `Replace` | the call is blocked (F5) |
    | `after_tool_result` | in the tool's task, before `tool_execution_end` | result -> None or a replacement | an error result that quotes the tool's (F5) |
    | `should_stop_after_turn` | after `turn_end` | state -> bool | the run fails |

    Each may take one more parameter, the `HookContext`.
    """

    transform_context: Hook | None = None
    convert_to_llm: Hook | None = None
    before_tool_call: Hook | None = None
    after_tool_result: Hook | None = None
    should_stop_after_turn: Hook | None = None
    timeout: float | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.gt(0)))
    _with_context: frozenset[str] = attrs.field(init=False, repr=False, eq=False)

    @_with_context.default
    def _find_those_with_context(self) -> frozenset[str]:
        hooks = {name: getattr(self, name) for name in _GIVEN}
        for name, hook in hooks.items():
            if hook is not None and not callable(hook):
                raise TypeError(f"the hook {name} is {type(hook).__name__}, which cannot be called")
        return frozenset([name for name, hook in hooks.items() if hook is not None and _takes_context(name, hook)])

    def bind(self, name: str, context: HookContext, *given: object) -> Callable[[], Any] | None:
        """The call of a hook, ready to be made, or None where there is no such hook."""
        hook: Hook | None = getattr(self, name)
        if hook is None:
            return None
        arguments = (*given, context) if name in self._with_context else given
        return lambda: hook(*arguments)


NO_HOOKS: Final = Hooks()
