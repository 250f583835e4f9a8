"""The storm: every named scenario disturbed at its checkpoints, and drawn ones disturbed anywhere.

By default each named scenario is disturbed at a few places that are drawn; under the marker `exhaustive` at all.
"""

from __future__ import annotations

import signal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storm_scenarios import SCENARIOS

from trio_agent.testing import Disturbance, Response, Scenario, play, sweep
from trio_agent.testing.strategies import disturbances, scenarios, seeds

by_name = pytest.mark.parametrize("name", SCENARIOS)


def test_there_are_scenarios_enough() -> None:
    """At least 40 named scenarios, no two of them alike."""
    assert len(SCENARIOS) >= 40
    assert len(set(SCENARIOS.values())) == len(SCENARIOS)


@by_name
def test_a_scenario_is_clean_where_it_is_disturbed(name: str) -> None:
    """At two drawn checkpoints for each kind of disturbance every invariant holds, and the next prompt works."""
    assert sum(sweep(SCENARIOS[name], sample=2, seed=len(name)).runs.values()) > 6


@pytest.mark.exhaustive
@by_name
def test_a_scenario_is_clean_at_every_checkpoint(name: str, record_property: pytest.RecordProperty) -> None:
    """At every checkpoint, for each kind of disturbance that is possible there, every invariant holds."""
    found = sweep(SCENARIOS[name])
    print(f"{name}: {found}")
    record_property("runs", sum(found.runs.values()))
    assert found.runs["abort"] == found.runs["cancel"] == found.runs["ctrl_c"] == found.checkpoints


@pytest.mark.parametrize(
    "name", ["writers of one file under aliases", "writers that lock at run time", "writers with one slot"]
)
def test_P4_no_abort_leaves_a_file_lock_behind(name: str) -> None:
    """Also where a call has its place in line and its task has not run a line yet."""
    assert sweep(SCENARIOS[name], kinds=["abort"]).checkpoints > 50


def test_A2_no_tool_begins_behind_an_abort_because_it_has_just_been_given_its_slot() -> None:
    """A call that was handed a slot in the same tick in which the run was aborted does not run a line."""
    assert sweep(SCENARIOS["max_parallel_tools"], kinds=["abort"]).checkpoints > 50


@by_name
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_scenario_is_clean_in_other_schedules(name: str, seed: int) -> None:
    """Undisturbed, in another order of the tasks, a scenario comes to what its sequential reading says."""
    play(SCENARIOS[name], seed=seed)


@settings(max_examples=200, derandomize=True)  # the long run has fresh seeds
@given(scenario=scenarios(), seed=seeds, disturbance=st.one_of(st.none(), disturbances()))
def test_whatever_happens_every_rule_is_kept(scenario: Scenario, seed: int, disturbance: Disturbance | None) -> None:
    """Any mixture of turns, failures, hooks, subscribers, queue traffic and limits, disturbed anywhere, is lawful."""
    play(scenario, seed=seed, disturbance=disturbance)


@pytest.mark.real_time
def test_F7_a_ctrl_c_arrives_where_a_shell_has_the_signal_ignored() -> None:
    """A storm that runs in the background, where shells ignore the signal, sends its Ctrl-C all the same."""
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        play(Scenario(), disturbance=Disturbance(kind="ctrl_c", place=0))
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, ignored)


@pytest.mark.parametrize("place", range(32, 38))
def test_F7_an_interrupt_leaves_a_stream_that_is_being_cancelled(place: int) -> None:
    """A Ctrl-C while the run behind a cancelled block settles leaves the block, whatever the cancellation does."""
    scenario = Scenario(replies=(Response(fails="rate_limit", where="in"),), entry="stream", cancel_after=0.5)
    play(scenario, disturbance=Disturbance(kind="ctrl_c", place=place))
