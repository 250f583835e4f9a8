"""A scenario in all of its checkpoints: what must come of each disturbance, given how the scenario ends without one.

Here lives the meeting of `_checkpoints.py`, which knows no scenario, and `_scenario_play.py`, which disturbs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from .._events import AgentEnd, AgentStart
from ._checkpoints import KINDS, CheckpointExploration, Checkpoints, Disturbance, Kind, every_checkpoint
from ._scenario import Scenario
from ._scenario_play import Stage, play


def sweep(
    scenario: Scenario,
    *,
    kinds: Sequence[Kind] = KINDS,
    sample: int | None = None,
    seed: int = 0,
) -> CheckpointExploration:
    """Play a scenario undisturbed and then once for each of its checkpoints and each kind of disturbance.

    Every run is checked as `play` checks it, and for what its disturbance must come to. With `sample` only so many places
    of each kind are drawn. Raises what the first bad run raises, with a test that shows it again as a note.
    """

    def run_once(checkpoints: Checkpoints) -> None:
        disturbance = checkpoints.disturbance
        checks = [] if disturbance is None else [lambda stage: check_disturbed(stage, disturbance)]
        play(scenario, seed=seed, checkpoints=checkpoints, checks=checks)

    return every_checkpoint(run_once, kinds=kinds, sample=sample, seed=seed)


def check_disturbed(stage: Stage, disturbance: Disturbance) -> None:
    """What the rules say that this disturbance must come to, wherever it happened."""
    if disturbance.kind == "abort":
        _check_abort(stage)
    elif disturbance.kind == "cancel":
        assert stage.any_cancelled, "A5: the scope around prompt() did not get its cancellation"
    elif disturbance.kind in ("ctrl_c", "interrupt"):
        interrupts = [exc for exc in stage.raised if type(exc) is KeyboardInterrupt]
        assert interrupts, "F7: KeyboardInterrupt did not leave prompt()"
    outcome = _outcome_of_struck_run(stage)
    if outcome is not None and disturbance.kind in ("cancel", "ctrl_c", "interrupt"):
        assert outcome != "completed" or _had_ended(stage), f"{disturbance.kind}: the run ended {outcome}"


def _check_abort(stage: Stage) -> None:
    """A1, A2, F10: the run ends aborted, unless something else had decided before, or the run was not under way."""
    outcome = _outcome_of_struck_run(stage)
    if outcome is None or stage.struck_idle or _had_ended(stage) or stage.struck_decided:
        return
    assert outcome == "aborted", f"A2: the run ended {outcome} behind an abort"


def _had_ended(stage: Stage) -> bool:
    """Whether `agent_end` of the struck run had been told by then, or nothing of it yet."""
    assert stage.struck_at is not None
    return bool(stage.struck_at) and isinstance(stage.events[stage.struck_at - 1], AgentEnd)


def _outcome_of_struck_run(stage: Stage) -> str | None:
    """How the run ended in which the disturbance was; None if there was none."""
    assert stage.struck_at is not None
    events = stage.events
    inside = stage.struck_at > 0 and not isinstance(events[stage.struck_at - 1], AgentEnd)
    ends = [event for event in events[max(0, stage.struck_at - 1) :] if isinstance(event, AgentEnd)]
    started = inside or any(isinstance(event, AgentStart) for event in events[stage.struck_at :])
    return ends[0].outcome if started and ends else None
