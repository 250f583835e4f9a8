"""Services that this project did not write, to hold its wires against: llmock and aimock, pinned, on 127.0.0.1.

`python -m tests.counterparts` installs both, each into an environment of its own under `.venv-counterparts/`, and runs
the tests that are marked `counterpart`. Needs the package registries and, for aimock, `node` and `npm`. Here live their
installation and their life as processes; what they are asked is in `test_llmock.py` and `test_aimock.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import httpx

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / ".venv-counterparts"
LLMOCK: Final = "llmock==0.2.2"
AIMOCK: Final = {"@copilotkit/aimock": "1.43.0"}
OLDEST_NODE: Final = (20, 15)
TESTS: Final = ("tests/test_llmock.py", "tests/test_aimock.py")
_STARTUP: Final = 30.0  # seconds
_STOP_GRACE: Final = 5.0  # seconds


@attrs.frozen
class Counterpart:
    """A running service, and the words that its own tests of us are read with."""

    url: str
    admin: httpx.Client

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """What the service's own control API answers."""
        answer = self.admin.request(method, path, json=body)
        answer.raise_for_status()
        return answer.json() if "json" in answer.headers.get("content-type", "") else answer.text


def installed(name: str, version: str) -> bool:
    """Whether exactly this version has been installed to the end."""
    mark = FOLDER / name / "installed"
    return mark.exists() and mark.read_text() == version


def llmock_command() -> list[str]:
    """How to run llmock, which is installed first if need be."""
    folder = FOLDER / "llmock"
    if not installed("llmock", LLMOCK):
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, LLMOCK], check=True)
        (folder / "installed").write_text(LLMOCK)
    return [str(folder / "bin" / "python"), "-m", "llmock.cli"]


def aimock_command() -> list[str]:
    """How to run aimock, which is installed first if need be. No script of any package is run for that."""
    folder, wanted = FOLDER / "aimock", json.dumps(AIMOCK)
    if not installed("aimock", wanted):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "package.json").write_text(json.dumps({"private": True, "type": "module", "dependencies": AIMOCK}))
        npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
        subprocess.run(npm, cwd=folder, check=True)
        (folder / "installed").write_text(wanted)
    return ["node", str(folder / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js")]


def no_node() -> str | None:
    """Why aimock cannot run on this machine, if it cannot."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "aimock needs node and npm, which are not installed"
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    numbers = tuple(int(part) for part in version.lstrip("v").split(".")[:2])
    return None if numbers >= OLDEST_NODE else f"aimock needs node 20.15 or newer, and this is {version}"


@contextmanager
def llmock() -> Generator[Counterpart]:
    """llmock, which breaks its answers on demand and judges how the client took it."""
    port = free_port()
    # Chunks come one by one, as from a model: what is sent all at once has been sent before we can hang up, and then
    # llmock thinks that we read on behind a chunk that is broken.
    options = ["--port", str(port), "--log-level", "warning", "--response-style", "static"]
    options += ["--stream-chunk-delay-ms", "15"]
    with _running([*llmock_command(), "serve", *options], port, "/health") as it:
        yield it


@contextmanager
def aimock(fixtures: list[dict[str, Any]]) -> Generator[Counterpart]:
    """aimock, which plays these answers, first match first, and keeps a journal; what nothing matches is an error."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fixtures.json"
        file.write_text(json.dumps({"fixtures": fixtures}))
        options = ["--port", str(port), "--fixtures", str(file), "--chunk-size", "5", "--strict", "--validate-on-load"]
        command = [*aimock_command(), *options]
        with _running(command, port, "/health") as it:
            yield it


def free_port() -> int:
    """A port that nobody listens on. It may be taken before it is used; then the start fails, and says so."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _running(command: list[str], port: int, health: str) -> Generator[Counterpart]:
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile("w+") as log, httpx.Client(base_url=url, trust_env=False, timeout=30) as admin:
        # A group of its own: a Ctrl-C at the terminal is for the tests, which stop it.
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={key: value for key, value in os.environ.items() if not key.startswith(("LLMOCK_", "AIMOCK_"))},
        )
        try:
            _wait_until_it_answers(process, admin, health, log)
            yield Counterpart(url, admin)
        finally:
            process.terminate()
            try:
                process.wait(_STOP_GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_it_answers(process: subprocess.Popen[bytes], admin: httpx.Client, health: str, log: Any) -> None:
    deadline = time.monotonic() + _STARTUP
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            if admin.get(health).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    log.seek(0)
    raise RuntimeError(f"{process.args!r} does not answer (status {process.poll()}):\n{log.read()[-4000:]}")


def main() -> int:
    """Install what can be, and run the tests against it."""
    argparse.ArgumentParser(
        prog="python -m tests.counterparts",
        description="Install llmock and aimock under .venv-counterparts/ and run the tests against them.",
        epilog="Other arguments are pytest's.",
    ).parse_known_args()
    llmock_command()
    if (reason := no_node()) is None:
        aimock_command()
    else:
        print(reason)
    command = [sys.executable, "-m", "pytest", "-m", "counterpart", *TESTS, *sys.argv[1:]]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
