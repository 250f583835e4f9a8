"""The state diagram of the README, drawn from the kernel's own tables.

Here lives the drawing alone: what may follow what is in `_lifecycle.py`. `python -m trio_agent.testing._diagram`
prints it, and a test holds the README to it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from .._lifecycle import PHASES, TABLE, Position


def state_diagram() -> str:
    """A Mermaid state diagram: positions of a run and the events between them, then the phases."""
    return "\n".join(["stateDiagram-v2", *_edges()])


def phase_diagram() -> str:
    """A Mermaid state diagram of the phases."""
    edges = sorted(f"    {old.value} --> {new.value}" for old, new in PHASES)
    return "\n".join(["stateDiagram-v2", *edges])


def _edges() -> Iterator[str]:
    yield f"    [*] --> {_id(Position.STARTED)}: agent_start"
    for position, ways in TABLE.items():
        if position is Position.IDLE:
            continue
        targets: dict[Position, list[str]] = {}
        for kind, target in ways.items():
            targets.setdefault(target, []).append(kind)
        for target, kinds in targets.items():
            end = "[*]" if target is Position.ENDED else _id(target)
            yield f"    {_id(position)} --> {end}: {', '.join(kinds)}"


def _id(position: Position) -> str:
    return position.value.replace(" ", "_")


if __name__ == "__main__":
    sys.stdout.write(state_diagram() + "\n")
