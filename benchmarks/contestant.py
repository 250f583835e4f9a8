"""Who takes part: how each is started, and whether it is there."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .install import FOLDER, PYTHON_PEERS, installed, python_of

HERE: Final = Path(__file__).resolve().parent / "contestants"


@dataclass(frozen=True)
class Contestant:
    """`module` is a Python module or a Node script in `contestants`; `peer` the installation that it needs."""

    name: str
    module: str
    peer: str | None = None
    imports: str | None = None
    distributions: tuple[str, ...] = ()

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


def _peer(name: str, imports: str) -> Contestant:
    distributions = tuple([pin.split("==")[0] for pin in PYTHON_PEERS[name]])
    return Contestant(name, f"peer_{name}", name, imports, distributions)


FLOOR: Final = Contestant("floor_trio", "floor_trio", imports="trio", distributions=("trio",))
ALL: Final = [
    Contestant("trio_agent", "trio_agent_kernel", imports="trio_agent", distributions=("trio-agent",)),
    Contestant("floor_asyncio", "floor_asyncio"),
    Contestant("floor_node", "floor_node.mjs"),
    Contestant("pi", "peer_pi.mjs", "pi"),
    _peer("agno", "agno.agent"),
    _peer("pydantic_ai", "pydantic_ai"),
    _peer("openai_agents", "agents"),
]

__all__ = ["ALL", "FLOOR", "FOLDER", "Contestant"]
