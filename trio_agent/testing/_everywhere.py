"""An application's own agent, disturbed at every checkpoint of a prompt: the storm in one call.

Here lives the run and what must hold behind it, for an agent about which nothing is known. What is known of drawn
scenarios is checked by `_scenario_checks.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from .._agent import Agent
from .._events import Event
from .._lifecycle import Phase
from ._checkpoints import CheckpointExploration, Checkpoints, Kind, every_checkpoint
from ._judge import check_trace
from ._scenario_clock import run_virtually


def disturb_everywhere(
    make: Callable[[], Agent],
    prompt: str = "go",
    *,
    kinds: Sequence[Kind] = ("abort", "cancel", "ctrl_c"),
    sample: int | None = None,
    seed: int = 0,
) -> CheckpointExploration:
    """Prompt the agent that `make` gives, undisturbed and then once for each checkpoint and kind of disturbance.

    Checkpoints are the provider's, the tools', the hooks' and the subscribers' as well as the kernel's. After each run
    the events must be lawful and the agent idle, with nothing pending. `make` is called for each run, inside of Trio,
    on a clock that jumps; what it makes must do the same each time. Raises `AssertionError`, or whatever the run
    raises, with a note that says which disturbance it was. With `sample` only so many places of each kind are drawn.
    """

    def run_once(checkpoints: Checkpoints) -> None:
        run_virtually(lambda: _disturbed(make, prompt, checkpoints), instruments=[checkpoints])

    return every_checkpoint(run_once, kinds=kinds, sample=sample, seed=seed)


async def _disturbed(make: Callable[[], Agent], prompt: str, checkpoints: Checkpoints) -> None:
    agent, events = make(), list[Event]()
    agent.subscribe(events.append)
    try:
        with trio.CancelScope() as scope, checkpoints.watching(abort=agent.abort, cancel=scope.cancel):
            await agent.prompt(prompt)
    except KeyboardInterrupt:
        if not checkpoints.struck:
            raise
    violations = check_trace(events, complete=True)
    assert not violations, "\n".join([str(violation) for violation in violations])
    state = agent.state
    assert state.phase is Phase.IDLE, f"the agent is in phase {state.phase.value} behind its run"
    held = (*state.pending_tool_calls, *state.pending_file_writes)
    assert not held, f"behind the run these are still pending: {', '.join(held)}"
