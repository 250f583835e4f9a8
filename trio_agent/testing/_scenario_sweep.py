"""A scenario in all of its checkpoints.

Here lives the meeting of `_checkpoints.py`, which knows no scenario, and `_scenario_play.py`, which disturbs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from ._checkpoints import KINDS, CheckpointExploration, Checkpoints, Kind, every_checkpoint
from ._scenario import Scenario
from ._scenario_play import play


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

    def run_once(checkpoints: Checkpoints) -> None:
        play(scenario, seed=seed, checkpoints=checkpoints)

    return every_checkpoint(run_once, kinds=kinds, sample=sample, seed=seed)
