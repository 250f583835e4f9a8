"""Hypothesis strategies for scenarios: everything that may happen in one, drawn so that it shrinks to something short.

Here live the strategies, and nothing else imports Hypothesis. What is drawn prints as Python, and
`trio_agent.testing.script` makes a test of it. Usage: `@given(scenarios(), seeds)` over `play(scenario, seed=seed)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar, get_args

import attrs
import hypothesis
from hypothesis import strategies as st

from ._checkpoints import KINDS, Disturbance
from ._scenario import (
    Call,
    EventType,
    Failing,
    Hook,
    HookDoes,
    HookName,
    Moment,
    MomentDoes,
    Response,
    Scenario,
    Spelling,
    ToolDoes,
)

T = TypeVar("T")

_HANGING_TOOLS: Final = {"hangs", "swallows", "wraps", "torn"}
_TIMELESS: Final = {*_HANGING_TOOLS, "unusable", "times_out", "aborts", "steers", "unknown", "invalid"}
_HANGING_PROVIDERS: Final = {"stall", "swallow", "hurt"}
_NO_HEALTH_CHECKS: Final = (hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large)
_HOOKS: Final[dict[str, tuple[HookDoes, ...]]] = {
    "before_tool_call": ("passes", "waits", "raises", "hangs", "blocks", "replaces"),
    "after_tool_result": ("passes", "waits", "raises", "hangs", "replaces"),
    "should_stop_after_turn": ("passes", "waits", "raises", "hangs", "stops"),
}
_ANY_HOOK: Final[tuple[HookDoes, ...]] = ("passes", "waits", "raises", "hangs")

seeds: Final = st.integers(0, 2**16)
"""For `play(seed=...)`: which of the tasks that could go on does so first, all through the run."""

# Draws are what shrinking costs, so each of these is one draw, and what is odd about an example a short list.
_TEXTS: Final = ((), ("a",), ("he", "llo"), ("\N{SNOWMAN}", " ", "b"))
_FAILURES: Final = [(fails, where) for fails in get_args(Failing) if fails for where in ("before", "in", "after")]
_ODD_RESPONSES: Final[tuple[tuple[str, Any], ...]] = (
    ("thinking", ("hm",)),
    *[("ends", ends) for ends in ("stop", "length", "tool_use", "because")],
    ("checkpoints", False),
    ("seconds", 2.0),
    ("ids", "missing"),
    ("ids", "repeated"),
)
_ODD_SCENARIOS: Final[tuple[tuple[str, Any], ...]] = (
    *[("entry", entry) for entry in ("resume", "stream", "leave_stream")],
    ("prompts", 2),
    ("steered", ("a",)),
    ("steered", ("a", "b")),
    ("steering_mode", "all"),
    ("followed_up", ("x",)),
    ("followed_up", ("x", "y")),
    ("follow_up_mode", "all"),
    *[("max_attempts", count) for count in (1, 2)],
    *[("compaction", does) for does in ("works", "raises", "hangs", "useless")],
    *[("compacts_at", count) for count in (3, 5)],
    *[("max_turns", count) for count in (1, 2)],
    *[("max_tool_calls", count) for count in (0, 2)],
    *[("max_total_tokens", count) for count in (0, 30)],
    *[("max_parallel_tools", count) for count in (1, 2)],
    ("hook_timeout", 2.0),
    ("projection_failure", "fail"),
    *[("abort_after", seconds) for seconds in (0.5, 1.5, 4.0)],
    *[("cancel_after", seconds) for seconds in (0.5, 1.5, 4.0)],
)


def calls() -> st.SearchStrategy[Call]:
    """A tool call that does any of the things a tool can do."""
    seconds = st.sampled_from([0.0, 0.0, 1.0, 3.0])
    return st.builds(Call, st.sampled_from(get_args(ToolDoes)), seconds, st.sampled_from(get_args(Spelling))).map(
        _plain
    )


def responses() -> st.SearchStrategy[Response]:
    """What a provider does for one request: mostly it answers as it should."""
    good = st.builds(Response, st.sampled_from(_TEXTS), calls=st.lists(calls(), max_size=4).map(tuple))
    failing = st.builds(_fail, good, st.sampled_from(_FAILURES))
    odd = st.builds(_evolved, st.one_of(good, failing), _some(_ODD_RESPONSES, 2))
    return st.one_of(good, odd, failing)


def moments() -> st.SearchStrategy[Moment]:
    """Something that a subscriber does at some event."""
    return st.builds(
        Moment,
        st.sampled_from(get_args(EventType)),
        st.sampled_from(get_args(MomentDoes)),
        st.integers(1, 4),
        st.booleans(),
    )


def hooks() -> st.SearchStrategy[Hook]:
    """A hook, and what it does."""
    names: tuple[HookName, ...] = get_args(HookName)
    return st.sampled_from([Hook(name, does) for name in names for does in _HOOKS.get(name, _ANY_HOOK)])


def scenarios() -> st.SearchStrategy[Scenario]:
    """Turns, calls, failures, hooks, subscribers, queue traffic, retries, compactions and limits, in any mixture.

    One that would never end by itself is given the moment of an abort.
    """
    plain = st.builds(
        Scenario,
        replies=st.lists(responses(), max_size=4).map(tuple),
        moments=st.lists(moments(), max_size=3).map(tuple),
        hooks=st.lists(hooks(), max_size=2, unique_by=lambda hook: hook.name).map(tuple),
    )
    return st.builds(_evolved, plain, _some(_ODD_SCENARIOS, 4)).map(_ending)


def _some(odd: tuple[tuple[str, Any], ...], most: int) -> st.SearchStrategy[list[tuple[str, Any]]]:
    return st.lists(st.sampled_from(odd), max_size=most, unique_by=lambda field: field[0])


def _plain(call: Call) -> Call:
    """Without what makes no difference to this call."""
    spelling: Spelling = call.spelling if call.does in ("writes", "locks") else "plain"
    return Call(call.does, 0.0 if call.does in _TIMELESS else call.seconds, spelling)


def _evolved(value: T, fields: list[tuple[str, Any]]) -> T:
    changed: Any = value
    evolved: T = attrs.evolve(changed, **dict(fields))
    return evolved


def _fail(response: Response, failure: tuple[Failing, Any]) -> Response:
    return attrs.evolve(response, fails=failure[0], where=failure[1])


def disturbances(places: int = 200) -> st.SearchStrategy[Disturbance]:
    """Something that goes wrong at one of the first so many checkpoints; nothing, if the scenario has fewer."""
    return st.builds(Disturbance, st.sampled_from(KINDS), st.integers(0, places - 1))


@attrs.frozen
class Failed:
    """The smallest example that was found to fail, and how."""

    scenario: Scenario
    seed: int
    disturbance: Disturbance | None
    exception: BaseException


Test: TypeAlias = Callable[[Scenario, int, Disturbance | None], object]


def search(test: Test, *, seed: int, examples: int) -> Failed | None:
    """Run a test on so many examples, drawn by `seed`; give the smallest that fails, or None."""
    last: list[Failed] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        report_multiple_bugs=False,
        print_blob=False,
        suppress_health_check=_NO_HEALTH_CHECKS,
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.given(scenarios(), seeds, st.one_of(st.none(), disturbances()))
    def run(scenario: Scenario, schedule: int, disturbance: Disturbance | None) -> None:
        try:
            test(scenario, schedule, disturbance)
        except BaseException as exc:
            last[:] = [Failed(scenario, schedule, disturbance, exc)]
            raise

    try:
        run()
    except Exception:  # what the examples raise; the last one is the smallest
        return last[0] if last else None
    return None


def _ending(scenario: Scenario) -> Scenario:
    if scenario.compaction == "":
        scenario = attrs.evolve(scenario, compacts_at=None)
    if not (never_ends(scenario) and scenario.abort_after is scenario.cancel_after is None):
        return scenario
    return attrs.evolve(scenario, abort_after=4.0)


def never_ends(scenario: Scenario) -> bool:
    """Whether something in it waits until it is cancelled."""
    return (
        any(call.does in _HANGING_TOOLS for response in scenario.replies for call in response.calls)
        or any(response.fails in _HANGING_PROVIDERS for response in scenario.replies)
        or any(hook.does == "hangs" for hook in scenario.hooks)
        or scenario.compaction == "hangs"
    )
