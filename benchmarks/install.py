"""`python -m benchmarks.install`: the peers, pinned, each in an environment of its own under `.venv-peers/`.

Needs the network and, for the Node peers, `node` and `npm`. Nothing of it touches the environment that runs it.
The distributions that a Python peer shares with the harness (the standard library) are all that it imports.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parent.parent / ".venv-peers"

PYTHON_PEERS: Final[dict[str, list[str]]] = {
    "agno": ["agno==3.1.10"],
    "agent_framework": ["agent-framework-core==1.23.0"],
    "autogen": ["autogen-agentchat==0.7.5"],
    "pydantic_ai": ["pydantic-ai-slim==2.68.0"],
    "openai_agents": ["openai-agents==0.24.0"],
    "langgraph": ["langgraph==1.2.24", "langchain==1.5.2"],
    "inspect_ai": ["inspect-ai==0.3.285", "trio==0.35.0"],
}
NOT_COUNTED: Final = frozenset({"trio"})  # beside a peer for its driver, and nothing that it needs
NODE_PEERS: Final[dict[str, dict[str, str]]] = {
    "pi": {"@earendil-works/pi-agent-core": "1.6.0", "@earendil-works/pi-ai": "1.6.0"},
}


def python_of(peer: str) -> Path:
    """The interpreter of a Python peer's environment, whether or not it is installed."""
    return FOLDER / peer / "bin" / "python"


def installed(peer: str) -> bool:
    return (FOLDER / peer / "installed").exists()


def install_python(peer: str) -> None:
    venv.create(FOLDER / peer, with_pip=True, clear=True)
    pip = [str(python_of(peer)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *PYTHON_PEERS[peer]], check=True)


def install_node(peer: str) -> None:
    folder = FOLDER / peer
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {"private": True, "type": "module", "dependencies": NODE_PEERS[peer]}
    (folder / "package.json").write_text(json.dumps(manifest, indent=2), "utf-8")
    subprocess.run(
        ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=folder, check=True
    )


def main() -> None:
    known = [*PYTHON_PEERS, *NODE_PEERS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.install", description="Install the peers.")
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"default: all of {', '.join(known)}")
    wanted: list[str] = parser.parse_args().peers or known
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        parser.error(f"{', '.join(unknown)}: not among {', '.join(known)}")
    failed: list[str] = []
    for peer in wanted:
        print(f"{peer} ...", flush=True)
        try:
            (install_python if peer in PYTHON_PEERS else install_node)(peer)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{peer} could not be installed: {error}", file=sys.stderr)
            failed.append(peer)
        else:
            (FOLDER / peer / "installed").touch()
    if failed:
        raise SystemExit(f"not installed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
