"""The subscribers of a scenario: each does one thing at one event.

Here lives what may happen at a moment, from inside the run. What happens from outside is in `_scenario_play.py` and
`_checkpoints.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from .._errors import AgentBusyError
from .._events import Event
from ._scenario import Moment
from ._scenario_stage import MEANT, Listener, Stage


def subscribe(stage: Stage, moment: Moment) -> None:
    seen = 0
    unsubscribe: list[Callable[[], None]] = []

    def listener(event: Event) -> Any:
        nonlocal seen
        if event.type != moment.event or stage.calm:
            return None
        seen += 1
        if seen != moment.nth:
            return None
        if moment.is_async or moment.does in ("waits", "hangs", "prompts"):
            return later()
        _do(stage, moment, unsubscribe[0])
        return None

    async def later() -> None:
        await trio.lowlevel.checkpoint()
        if moment.does == "waits":
            await trio.sleep(3)
        elif moment.does == "hangs":
            stage.agent.abort("a subscriber hangs")
            await trio.sleep_forever()
        elif moment.does == "prompts":
            await _prompt_inside(stage)
        else:
            _do(stage, moment, unsubscribe[0])

    unsubscribe.append(stage.agent.subscribe(listener, observer=moment.does == "observer_raises"))


def _do(stage: Stage, moment: Moment, unsubscribe: Callable[[], None]) -> None:
    model = stage.model
    if moment.does in ("raises", "observer_raises"):
        raise RuntimeError(f"{MEANT}, at {moment.event}")
    if moment.does == "interrupts":
        stage.interrupt()
    if moment.does == "aborts":
        stage.agent.abort("said a subscriber")
        stage.bench.closed = True
    elif moment.does == "cancels":
        stage.scope.cancel()
    elif moment.does == "steers":
        stage.queued_ids.append(model.steer(f"{len(model.queued) + 1}: steered at {moment.event}"))
    elif moment.does == "follows_up":
        stage.queued_ids.append(model.follow_up_with(f"{len(model.queued) + 1}: followed up at {moment.event}"))
    elif moment.does == "withdraws":
        if stage.queued_ids:
            model.withdraw(stage.queued_ids[-1])
    elif moment.does == "clears":
        model.clear_queues()
    elif moment.does == "configures":
        stage.agent.configure(model="m2", system_prompt="changed")
    elif moment.does == "subscribes":
        late = Listener(True)
        stage.late_listeners.append(late)
        stage.agent.subscribe(late)
    else:
        unsubscribe()


async def _prompt_inside(stage: Stage) -> None:
    try:
        await stage.agent.prompt("inside")
    except AgentBusyError:
        return
    stage.bench.faults.append("A6: a prompt inside the run was not refused")
