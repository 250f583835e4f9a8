"""Who takes part: how each is started, how large it may grow, and whether it is there."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .install import FOLDER, NOT_COUNTED, PYTHON_PEERS, installed, python_of

HERE: Final = Path(__file__).resolve().parent / "contestants"


@dataclass(frozen=True)
class Contestant:
    """`module` is a Python module or a Node script in `contestants`; `peer` the installation that it needs.

    `most` is the largest size that it is given of a workload: what costs it more than a minute is left out.
    """

    name: str
    module: str
    peer: str | None = None
    imports: str | None = None
    distributions: tuple[str, ...] = ()
    most: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def on_node(self) -> bool:
        return self.module.endswith(".mjs")

    @property
    def interpreter(self) -> str:
        if self.on_node:
            return shutil.which("node") or "node"
        return sys.executable if self.peer is None else str(python_of(self.peer))

    def is_there(self) -> bool:
        if self.on_node and shutil.which("node") is None:
            return False
        return self.peer is None or installed(self.peer)

    def command(self, workload: str, size: int) -> list[str]:
        if self.on_node:
            return [self.interpreter, "--expose-gc", str(HERE / self.module), workload, str(size)]
        return [self.interpreter, "-m", f"benchmarks.contestants.{self.module}", workload, str(size)]

    def cold_start(self) -> list[str] | None:
        """A process that imports the package and says what that took and what is installed, or None."""
        if self.imports is None:
            return None
        if self.on_node:
            modules = FOLDER / str(self.peer) / "node_modules"
            return [self.interpreter, str(HERE.parent / "cold_start.mjs"), str(modules / self.imports), str(modules)]
        code = (HERE.parent / "cold_start.py").read_text("utf-8")
        return [self.interpreter, "-c", code, self.imports, *self.distributions]


def _peer(name: str, imports: str, **most: int) -> Contestant:
    distributions = tuple([pin.split("==")[0] for pin in PYTHON_PEERS[name] if pin.split("==")[0] not in NOT_COUNTED])
    return Contestant(name, f"peer_{name}", name, imports, distributions, most)


FLOOR: Final = Contestant("floor_trio", "floor_trio", imports="trio", distributions=("trio",))
OURS: Final = Contestant("trio_agent", "trio_agent_kernel", imports="trio_agent", distributions=("trio-agent",))
ALL: Final = [
    OURS,
    Contestant("shape_trio", "shape_trio"),
    Contestant("floor_asyncio", "floor_asyncio"),
    Contestant("floor_node", "floor_node.mjs"),
    Contestant("pi", "peer_pi.mjs", "pi", "@earendil-works/pi-agent-core/dist/index.js"),
    _peer("agno", "agno.agent"),
    _peer("agent_framework", "agent_framework._agents"),
    _peer("autogen", "autogen_agentchat.agents"),
    _peer("langgraph", "langchain.agents", turns=800, idle=1_000),
    _peer("inspect_ai", "inspect_ai.model", turns=800),
    _peer("pydantic_ai", "pydantic_ai", turns=800),
    _peer("openai_agents", "agents", turns=200),
]

__all__ = ["ALL", "FLOOR", "FOLDER", "OURS", "Contestant"]
