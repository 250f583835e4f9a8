"""Hypothesis strategies for scenarios: everything that may happen in one, drawn so that it shrinks to something short.

Here live the strategies, and nothing else imports Hypothesis. What is drawn prints as Python, and
`trio_agent.testing.script` makes a test of it. Usage: `@given(scenarios(), seeds)` over `play(scenario, seed=seed)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, get_args

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

_HANGING_TOOLS: Final = {"hangs", "swallows", "wraps", "torn"}
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

_seconds: Final = st.sampled_from([0.0, 0.0, 1.0, 3.0])
_pieces: Final = st.lists(st.sampled_from(["a", "he", "llo", "\N{SNOWMAN}", " "]), max_size=3).map(tuple)


def calls() -> st.SearchStrategy[Call]:
    """A tool call that does any of the things a tool can do."""
    return st.builds(Call, st.sampled_from(get_args(ToolDoes)), _seconds, st.sampled_from(get_args(Spelling))).map(
        _plain_call
    )


def _plain_call(call: Call) -> Call:
    """Without what makes no difference to this call."""
    return call if call.does in ("writes", "locks") else attrs.evolve(call, spelling="plain")


def responses() -> st.SearchStrategy[Response]:
    """What a provider does for one request: half of them answer as they should."""
    good = st.builds(Response, _pieces, calls=st.lists(calls(), max_size=3).map(tuple))
    odd = st.builds(
        Response,
        text=_pieces,
        thinking=_pieces,
        calls=st.lists(calls(), max_size=2).map(tuple),
        ends=st.sampled_from(["", "", "", "stop", "length", "tool_use", "because"]),
        fails=st.sampled_from(get_args(Failing)),
        where=st.sampled_from(["before", "in", "after"]),
        checkpoints=st.booleans(),
        seconds=_seconds,
        ids=st.sampled_from(["given", "given", "missing", "repeated"]),
    ).map(_plain_response)
    return st.one_of(good, odd)


def _plain_response(response: Response) -> Response:
    return response if response.fails else attrs.evolve(response, where="before")


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
    return st.sampled_from(get_args(HookName)).flatmap(
        lambda name: st.builds(Hook, st.just(name), st.sampled_from(_HOOKS.get(name, _ANY_HOOK)))
    )


def scenarios() -> st.SearchStrategy[Scenario]:
    """Turns, calls, failures, hooks, subscribers, queue traffic, retries, compactions and limits, in any mixture.

    One that would never end by itself is given the moment of an abort.
    """
    return st.builds(
        Scenario,
        replies=st.lists(responses(), max_size=4).map(tuple),
        moments=st.lists(moments(), max_size=3).map(tuple),
        hooks=st.lists(hooks(), max_size=2, unique_by=lambda hook: hook.name).map(tuple),
        steered=_words("abc"),
        followed_up=_words("xyz"),
        prompts=st.sampled_from([1, 1, 2]),
        entry=st.sampled_from(["prompt", "prompt", "prompt", "resume", "stream", "leave_stream"]),
        steering_mode=st.sampled_from(["one_at_a_time", "all"]),
        follow_up_mode=st.sampled_from(["one_at_a_time", "all"]),
        max_attempts=st.sampled_from([4, 2, 1]),
        compaction=st.sampled_from(["", "", "works", "raises", "hangs", "useless"]),
        compacts_at=st.sampled_from([None, 3, 5]),
        max_turns=_rarely(st.integers(1, 3)),
        max_tool_calls=_rarely(st.integers(0, 3)),
        max_total_tokens=_rarely(st.integers(0, 30)),
        max_parallel_tools=_rarely(st.integers(1, 2)),
        hook_timeout=_rarely(st.just(2.0)),
        projection_failure=st.sampled_from(["fall_back", "fall_back", "fail"]),
        abort_after=_rarely(st.sampled_from([0.5, 1.5, 4.0])),
        cancel_after=_rarely(st.sampled_from([0.5, 1.5, 4.0])),
    ).map(_ending)


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


def _words(letters: str) -> st.SearchStrategy[tuple[str, ...]]:
    """Never two equal ones: the judge takes equal messages for one another."""
    return st.lists(st.sampled_from(letters), max_size=2, unique=True).map(tuple)


def _rarely(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), st.none(), values)


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
