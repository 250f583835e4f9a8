"""A provider that keeps in a file what another answers, and one that answers from such a file.

Here live the two providers: what writes and what waits. What a line of the file says is in `_recording_format.py`.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar, cast

import trio

from .._chunks import Chunk
from .._json import dumps
from .._provider import Provider, Send
from .._request import ModelRequest
from ._fallback import secrets_of
from ._keys import Secret, redacted
from ._recording_difference import difference
from ._recording_format import (
    Fields,
    RecordingError,
    Take,
    as_line,
    encode_chunk,
    encode_error,
    encode_request,
    header,
    read_recording,
)

Recording = TypeVar("Recording", bound="RecordingProvider")
Replay = TypeVar("Replay", bound="ReplayProvider")
_PATIENCE: Final = 5.0  # seconds in which a request that was cancelled when it was recorded is to be cancelled again


class ReplayError(Exception):
    """A run and the recording that it is replayed from differ. The text says where."""


class RecordingProvider:
    """Passes requests on to a provider, and writes them and what comes of them to a JSONL file.

    `async with` enters the provider and makes the file; one that exists raises `FileExistsError`, unless `overwrite`.
    Each line is with the operating system before its chunk goes on, and outlives the process. The file, readable by its
    owner alone, holds whole conversations, but no key that the provider holds, and no values of extra headers. A
    request that is cancelled is recorded as far as it came. A write that fails raises `OSError` and fails the request.
    """

    def __init__(self, provider: Provider, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        name = getattr(provider, "name", None)
        self.name = name if isinstance(name, str) else None
        self.path = Path(path)
        self._provider = provider
        self._overwrite = overwrite
        self._descriptor = -1
        self._requests = 0
        self._exit = AsyncExitStack()

    @property
    def secrets(self) -> tuple[Secret, ...]:
        return secrets_of(self._provider)

    async def __call__(self, request: ModelRequest, send: Send, /) -> None:
        began = trio.current_time()
        self._requests += 1
        number = self._requests

        def write(kind: str, **more: Any) -> None:
            time = {} if kind == "request" else {"time": round(trio.current_time() - began, 6)}
            self._write({"type": kind, "request": number, **time, **more})

        async def relay(chunk: Chunk) -> None:
            write("chunk", chunk=encode_chunk(chunk))
            await send(chunk)

        write("request", asked=encode_request(request))
        try:
            await self._provider(request, relay)
        except Exception as error:  # a provider is the application's code, so anything can arrive
            write("end", outcome="failed", error=encode_error(error))
            raise
        except BaseException:
            with suppress(OSError, ValueError):  # what goes on must not be replaced
                write("end", outcome="cut_short")
            raise
        write("end", outcome="done")

    async def __aenter__(self: Recording) -> Recording:
        if self._descriptor >= 0:
            raise RuntimeError("the provider is open already; open it once and share it")
        async with AsyncExitStack() as stack:
            if hasattr(self._provider, "__aenter__"):
                await stack.enter_async_context(cast("Any", self._provider))
            self._open()
            stack.callback(self._close)
            self._exit = stack.pop_all()
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._exit.__aexit__(exc_type, exc, traceback)  # noqa: ASYNC102  # the provider shields its own closing

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            self._descriptor = os.open(self.path, flags | (os.O_TRUNC if self._overwrite else os.O_EXCL), 0o600)
        except FileExistsError:
            raise FileExistsError(f"{self.path} is there already; give another path, or overwrite=True") from None
        self._requests = 0
        self._write(header(self.name))

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)

    def _write(self, record: Fields) -> None:
        if self._descriptor < 0:
            raise RuntimeError("the recording is not open; use the provider inside `async with`")
        data = redacted(as_line(record), _as_written(self.secrets)).encode()
        while data:
            data = data[os.write(self._descriptor, data) :]


class ReplayProvider:
    """Answers from a recording, request by request in their order; failures fail again, with all that they said.

    Strict: a request that is not as it was recorded raises `ReplayError`, which says where the first difference is.
    As the run makes a result of that, leaving `async with` without an exception (or `assert_done()`) raises it again,
    and also for recorded requests that were never asked for. What the recording leaves out is not compared: the values
    of extra headers, and `details` of tool results, which no model sees.

    `speed` 0 does not wait; 1 waits as long as was waited when it was recorded, 2 half as long. A request that was cut
    short waits to be cancelled again, for 5 seconds.

    The file is read at once, which blocks. Raises `RecordingError` for what is none, and `OSError`.
    """

    def __init__(self, path: str | os.PathLike[str], *, speed: float = 0.0) -> None:
        if not 0 <= speed < float("inf"):
            raise ValueError(f"speed is {speed!r}; give 0 for no waiting, 1 for the recorded times, 2 for half of them")
        self.path = Path(path)
        self.name, self._takes = _read(self.path)
        self._speed = speed
        self._asked = 0
        self._problems: list[str] = []

    async def __call__(self, request: ModelRequest, send: Send, /) -> None:
        began = trio.current_time()
        take = self._next(request)
        for time, chunk in take.chunks:
            await self._wait(began, time)
            await send(chunk)
        if take.end is None:
            await trio.sleep(_PATIENCE)
            raise self._problem("was cancelled here when it was recorded, and this time nobody did")
        await self._wait(began, take.end.time)
        if take.end.error is not None:
            raise take.end.error

    def assert_done(self) -> None:
        """Raise `ReplayError` unless exactly what was recorded was asked for."""
        left = len(self._takes) - self._asked
        unasked = [f"{left} recorded requests were never asked for"] if left > 0 else []
        if problems := [*self._problems, *unasked]:
            raise ReplayError("; ".join(problems))

    async def __aenter__(self: Replay) -> Replay:
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # No checkpoint: there is nothing to wait for, and whoever leaves may be cancelled.
        if exc is None:
            self.assert_done()

    def _next(self, request: ModelRequest) -> Take:
        self._asked += 1
        if self._asked > len(self._takes):
            raise self._problem(f"is not in the recording, which has {len(self._takes)}")
        take = self._takes[self._asked - 1]
        if (found := difference(take.asked, request)) is not None:
            raise self._problem(f"is not as it was recorded, at {found}")
        return take

    def _problem(self, words: str) -> ReplayError:
        text = f"request {self._asked} {words}"
        self._problems.append(text)
        return ReplayError(text)

    async def _wait(self, began: float, time: float) -> None:
        if self._speed > 0:
            await trio.sleep_until(began + time / self._speed)
        else:
            await trio.lowlevel.checkpoint()


def _as_written(secrets: tuple[Secret, ...]) -> list[Secret]:
    """The secrets as they are, and as a JSON string has them."""
    return [*secrets, *[Secret(dumps(secret.reveal())[1:-1]) for secret in secrets]]


def _read(path: Path) -> tuple[str | None, list[Take]]:
    try:
        return read_recording(path.read_bytes())
    except RecordingError as error:
        raise RecordingError(f"{path}: {error}") from None
