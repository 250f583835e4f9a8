"""What a running tool can see of its run, and say to it.

Here lives the one object that a tool is given. It reaches the run through the `Port` alone, so that a tool
cannot touch the provider, history or other calls. From the thread of a sync tool everything hops into the tool's own
task (A6).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Protocol, TypeAlias

from ._file_locks import Ticket
from ._interrupts import protected
from ._messages import ToolCall, UserBlock
from ._state import AgentState
from ._threads import CallOverError, ThreadCall

Path: TypeAlias = str | os.PathLike[str]


class Port(Protocol):
    """One call's way into its run."""

    call: ToolCall

    @property
    def state(self) -> AgentState: ...
    @property
    def aborting(self) -> bool: ...
    async def update(self, partial: object) -> None: ...
    def lock(self, paths: tuple[str, ...]) -> Ticket: ...
    async def acquire(self, ticket: Ticket) -> None: ...
    def unlock(self, ticket: Ticket) -> None: ...


class _Done:
    """An awaitable that has nothing to wait for: what a sync tool gets, which cannot await."""

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield


class ToolContext:
    """A tool's view of its run; a parameter annotated with it is the kernel's and no part of the schema."""

    __slots__ = ("_port", "_thread")

    def __init__(self, port: Port, thread: ThreadCall | None = None) -> None:
        self._port = port
        self._thread = thread

    @property
    def call_id(self) -> str:
        return self._port.call.id

    @property
    def tool_name(self) -> str:
        return self._port.call.name

    @property
    def state(self) -> AgentState:
        """A frozen picture of the agent."""
        return self._port.state

    @property
    def aborting(self) -> bool:
        """Whether the run is being aborted. A sync tool, which cannot be cancelled, should look at it."""
        return self._port.aborting

    def update(self, partial: str | UserBlock | list[UserBlock] | tuple[UserBlock, ...]) -> Awaitable[None]:
        """Tell subscribers how far the tool is. Awaiting it waits until every subscriber has handled it.

        From a sync tool it has been told when this returns, and there is nothing to await. Once the call has ended, an
        update is dropped, silently, from wherever it comes (T3).
        """
        if self._thread is None:
            return self._port.update(partial)
        with contextlib.suppress(CallOverError):  # T3: late updates are dropped, silently
            self._thread.call(self._port.update, partial)
        return _Done()

    def lock_files(self, *paths: Path) -> FileLock:
        """Lock files that are known only now: `async with context.lock_files(path):` (`with` in a sync tool).

        Promises exclusion, not the order of the calls (T8). Raises `RuntimeError` when this call holds a lock already,
        and when a call holds it that waits for this one; `ValueError` for an unusable path.
        """
        return FileLock(self._port, tuple([os.fspath(path) for path in paths]), self._thread)

    def run_in_task(self, fn: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """From a sync tool: run an async function in the tool's own task, such as another agent's `prompt`.

        Aborting the run cancels it there; this then raises `RuntimeError`, as it does once the call is over.
        """
        if self._thread is None:
            raise RuntimeError("run_in_task() is for sync tools; an async tool awaits the function itself")
        return self._thread.call_yielding(fn, *args)


class FileLock:
    """Locks of one call, taken at run time. A context manager; awaiting it takes them, `release` gives them back."""

    __slots__ = ("_paths", "_port", "_thread", "_ticket")

    def __init__(self, port: Port, paths: tuple[str, ...], thread: ThreadCall | None) -> None:
        self._port = port
        self._paths = paths
        self._thread = thread
        self._ticket: Ticket | None = None

    @protected
    async def _take(self) -> FileLock:
        ticket = self._port.lock(self._paths)
        try:
            await self._port.acquire(ticket)
        except BaseException:
            self._port.unlock(ticket)
            raise
        self._ticket = ticket
        return self

    async def _give_back(self) -> None:
        self.release()

    @protected
    def release(self) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            self._port.unlock(ticket)

    def __await__(self) -> Generator[Any, Any, FileLock]:
        return self._take().__await__()

    async def __aenter__(self) -> FileLock:
        return await self._take()

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def __enter__(self) -> FileLock:
        if self._thread is not None:
            self._thread.call_yielding(self._take)
        elif self._ticket is None:
            raise RuntimeError("in an async tool, use `async with context.lock_files(...)`")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._thread is None:
            self.release()
            return
        with contextlib.suppress(CallOverError):  # left behind: its locks are given back when it ends (T8)
            self._thread.call(self._give_back)
