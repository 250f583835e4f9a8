"""A scenario in all of its checkpoints.

Here lives the meeting of `_checkpoints.py`, which knows no scenario, and `_scenario_play.py`, which disturbs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from .._events import AgentEnd
from ._checkpoints import KINDS, CheckpointExploration, Checkpoints, Kind, every_checkpoint
from ._scenario import Scenario
from ._scenario_play import play
from ._scenario_stage import Stage


def sweep(
    scenario: Scenario,
    *,
    kinds: Sequence[Kind] = KINDS,
    sample: int | None = None,
    seed: int = 0,
) -> CheckpointExploration:
    """Play a scenario undisturbed and then once for each of its checkpoints and each kind of disturbance.

    Every run is checked as `play` checks it. With `sample` only so many places
    of each kind are drawn. Raises what the first bad run raises, with a test that shows it again as a note.
    """

    plain: set[str] = {"aborted"}

    def check_outcomes(stage: Stage) -> None:
        """F10: whoever is stopped from outside ends aborted, or as without it, never as something else."""
        outcomes = {event.outcome for event in stage.events if isinstance(event, AgentEnd)}
        if stage.struck_by is None:
            plain.update(outcomes)
        elif stage.struck_by != "error" and not stage.is_cut_short:
            assert outcomes <= plain, f"{stage.struck_by}: a run ended {outcomes - plain}"

    def run_once(checkpoints: Checkpoints) -> None:
        play(scenario, seed=seed, checkpoints=checkpoints, checks=[check_outcomes])

    return every_checkpoint(run_once, kinds=kinds, sample=sample, seed=seed)
