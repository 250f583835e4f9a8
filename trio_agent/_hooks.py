"""The hooks: where an application may look into a run and change its course.

Here lives what each hook is given and may give back. When each runs, and what its failure means, is in
`_run.py`, `_asking.py` and `_tool_phase.py`. An async hook runs in a task of its own under the abort scope, so
context variable tokens do not cross hooks; a sync one runs in the run's task and cannot be interrupted.
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
    """`before_tool_call`: run the call with these arguments, once they have been validated.

    Events and history go on saying what the model asked for: its call has started by then (T1).
    """

    _arguments: str

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.__attrs_init__(  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # made by attrs
            dumps(dict(arguments))
        )

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


def _those_with_context(hooks: Hooks) -> frozenset[str]:
    """The names of the hooks that take the context too. Raises `TypeError` for what cannot be called so."""
    found: dict[str, Hook | None] = {name: getattr(hooks, name) for name in _GIVEN}
    for name, hook in found.items():
        if hook is not None and not callable(hook):
            raise TypeError(f"the hook {name} is {type(hook).__name__}, which cannot be called")
    return frozenset([name for name, hook in found.items() if hook is not None and _takes_context(name, hook)])


@attrs.frozen(kw_only=True)
class Hooks:
    """An application's hooks, each sync or async. `timeout` bounds each call of an async one, in seconds.

    - `transform_context`: once per turn, before the request, and again after a compaction; gets a list of
      messages, gives messages. Raising: its input is used instead, and it is logged (F4).
    - `convert_to_llm`: after it; gets a list of messages, gives user, assistant and tool-result messages. Raising:
      the default is used instead, and it is logged (F4).
    - `before_tool_call`: in preparation, one call after the other; gets the call and the context, gives None,
      `Block` or `Replace`. Raising: the call is blocked (F5).
    - `after_tool_result`: in the tool's task, before `tool_execution_end`; gets the result, gives None or a
      replacement. Raising: an error result that still says what the tool had answered (F5).
    - `should_stop_after_turn`: after `turn_end`; gets the state, gives a bool. Raising: the run fails.

    Being out of time counts as raising. Each may take one more parameter, the `HookContext`.
    """

    transform_context: Hook | None = None
    convert_to_llm: Hook | None = None
    before_tool_call: Hook | None = None
    after_tool_result: Hook | None = None
    should_stop_after_turn: Hook | None = None
    timeout: float | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.gt(0)))
    _with_context: frozenset[str] = attrs.field(
        default=attrs.Factory(_those_with_context, takes_self=True), init=False, repr=False, eq=False
    )

    def bind(self, name: str, context: HookContext, *given: object) -> Callable[[], Any] | None:
        """The call of a hook, ready to be made, or None where there is no such hook."""
        hook: Hook | None = getattr(self, name)
        if hook is None:
            return None
        arguments = (*given, context) if name in self._with_context else given
        return lambda: hook(*arguments)


NO_HOOKS: Final = Hooks()
