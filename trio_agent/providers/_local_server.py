"""The child process behind `Local`: llama.cpp's HTTP server, for as long as its parent lives.

Here lives the program that `_local.py` starts. It imports nothing of this package, so that it can be run by its
path: neither the folder it is started in nor the cost of importing the package gets in its way.

It reads one line of JSON from stdin (`model`, `name`, `context`, `threads`, `key`), and writes one line of JSON to
stdout once it answers requests (`url`, `context`, `tools`), or why it cannot. Its log goes to stderr.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import threading
import time
import urllib.request
from typing import Any

_ERRORS_ONLY = 1
_PARENT_CHECK = 1.0  # seconds


def main() -> None:
    report_to = _take_stdout()
    settings = json.loads(sys.stdin.buffer.readline())
    _die_with_parent()
    try:
        server, report = _serve(settings)
    except Exception as error:  # whatever the library raises is the answer to whether it can serve
        _report(report_to, {"error": str(error) or type(error).__name__})
        os._exit(1)
    _report(report_to, report)
    _stay(server)


def _take_stdout() -> int:
    """Keep stdout for the report, and send what a library prints there to the log."""
    report_to = os.dup(1)
    os.dup2(2, 1)
    return report_to


def _report(report_to: int, report: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(report_to, json.dumps(report).encode() + b"\n")
    os.close(report_to)


def _die_with_parent() -> None:
    """End this process when the other end of stdin is closed, by whatever death of the parent.

    Nothing cleaner than `os._exit` is needed: the model is mapped, and nothing is written.
    """
    threading.Thread(target=_exit_at_end_of_stdin, daemon=True).start()
    if sys.platform == "linux":  # pragma: no branch - the signal is Linux's
        # Loading a model holds the interpreter lock for as long as it takes, and no thread runs. The kernel's own
        # signal ends the process also then: test_the_server_dies_with_a_killed_parent_while_it_loads
        import fcntl

        fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)


def _exit_at_end_of_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def _serve(settings: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    xllamacpp: Any = importlib.import_module("xllamacpp")  # it has no types

    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.model_alias = {settings["name"]}
    params.api_keys = [settings["key"]]
    params.port = 0  # the system's choice, taken and bound in one step; the address is 127.0.0.1 unless one is given
    params.n_ctx = settings["context"] or 0
    params.n_parallel = 1
    params.endpoint_slots = False
    params.verbosity = _ERRORS_ONLY
    for share in (params.cpuparams, params.cpuparams_batch):
        share.n_threads = settings["threads"]
    server = xllamacpp.Server(params)
    url = str(server.listening_address)
    _fetch(url, "/health", settings["key"])
    properties = _fetch(url, "/props", settings["key"])
    report = {
        "url": url,
        "context": properties["default_generation_settings"]["n_ctx"],
        "tools": bool(properties.get("chat_template_caps", {}).get("supports_tools")),
    }
    return server, report


def _fetch(url: str, path: str, key: str) -> dict[str, Any]:
    """What the server says of itself. No proxy that the environment names is asked about this machine."""
    request = urllib.request.Request(url + path, headers={"Authorization": f"Bearer {key}"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def _stay(server: Any) -> None:
    """Keep the server until the parent is gone.

    Its end of the pipe may have been inherited by another process of the parent's, hence the second look.
    """
    parent = os.getppid()
    while server is not None and os.getppid() == parent:
        time.sleep(_PARENT_CHECK)
    os._exit(0)


if __name__ == "__main__":
    main()
