"""A conversation on a terminal: the screen in its thread, the conversation in Trio, and the way between the two.

Here lives that way. The screen is in `_chat_screen.py`, the conversation in `_chat_talk.py`.
"""

from __future__ import annotations

import io
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, redirect_stderr, redirect_stdout, suppress
from typing import Any, Final

import trio

from .._agent import Agent
from .._events import AgentEnd, Event, MessageEnd
from .._messages import Message
from .._result import RunResult
from ._chat_blocks import history_blocks
from ._chat_keys import HELP, Keys
from ._chat_screen import Screen
from ._chat_talk import QueueName, Talk
from ._chat_tally import Tally
from ._chat_text import shown
from ._chat_view import View
from ._interrupt import ABORTED

_GONE: Final = 129  # as the shell has it for a process that ended because its terminal was closed
_STYLES: Final = {"completed": "green", "stopped": "bold", "aborted": "yellow", "error": "red"}


class Terminal:
    """A face with a screen. It also subscribes to the agent."""

    def __init__(self) -> None:
        self._view = View()
        self._keys = Keys(say=_no, interrupt=_no, leave=_no, take_back=_no, leave_at_once=self._leave_at_once)
        self._screen = Screen(self._view, self._keys)
        self._tally = Tally(None)
        self._model = ""
        self._end: AgentEnd | None = None

    def starting(self, give_up: Callable[[], object]) -> None:
        """Nothing: until there is a screen, Ctrl-C is Python's."""

    def attend(self, agent: Agent, tally: Tally) -> None:
        """Show what this agent does."""
        self._tally, self._model = tally, agent.state.model
        agent.subscribe(self._take)
        self._show_status()

    def lent(self) -> AbstractAsyncContextManager[None]:
        """The terminal itself, for somebody who asks a question on it."""
        return self._screen.lent()

    def earlier(self, messages: Sequence[Message]) -> None:
        """Show the end of what was said in an earlier process."""
        for kind, block in history_blocks(messages):
            self._screen.change(lambda view, kind=kind, block=block: view.add(kind, block))  # type: ignore[misc]

    async def hold(self, talk: Talk) -> int:
        """Hold the conversation until the user leaves. Gives the exit code; raises what the screen failed with."""
        self._wire(talk, trio.lowlevel.current_trio_token())
        above = _Above(self.note)
        with redirect_stdout(above), redirect_stderr(above):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._show, talk)
                nursery.start_soon(_heed_signals, talk)
                try:
                    code = await talk.hold()
                finally:
                    self._screen.close()
                    nursery.cancel_scope.cancel()
        return code

    async def _show(self, talk: Talk) -> None:
        try:
            await trio.to_thread.run_sync(self._screen.run)  # `close` ends it, so it is never left behind
        except EOFError:
            talk.leave(_GONE)

    def _wire(self, talk: Talk, token: trio.lowlevel.TrioToken) -> None:
        def call(function: Callable[..., object], *arguments: Any) -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(lambda: function(*arguments))

        self._keys.say = lambda text, later: call(self._say, talk, text, later)
        self._keys.interrupt = lambda again: call(lambda: talk.interrupt(again=again))
        self._keys.leave = lambda: call(talk.leave)
        self._keys.take_back = lambda: call(self._take_back, talk)

    def _say(self, talk: Talk, text: str, later: bool) -> None:
        match text.strip():
            case "/help":
                self.note(HELP)
            case "/quit" | "/exit":
                talk.leave()
            case _:
                talk.say(text, later=later)

    def _take_back(self, talk: Talk) -> None:
        text = talk.take_back()
        if text is not None:
            self._screen.draft(text)

    def _leave_at_once(self) -> None:
        self._screen.leave_at_once(ABORTED)

    # The face

    def note(self, text: str, style: str = "dim") -> None:
        self._screen.change(lambda view: view.note(text, style))

    def waiting(self, queue: Sequence[tuple[QueueName, str]]) -> None:
        self._screen.change(lambda view: setattr(view, "queue", tuple(queue)))

    def got_in(self, queue: QueueName, text: str, turn: int) -> None:
        del text  # it is shown as a message of the user's
        self._screen.change(lambda view: view.label(f"{queue}, turn {turn}"))

    def begun(self) -> None:
        now = time.monotonic()

        def change(view: View) -> None:
            self._keys.talking = True
            view.working("starting", now)

        self._screen.change(change)

    def ended(self, result: RunResult) -> None:
        assert self._end is not None, "a run with a result has told its end"
        self.note(self._tally.of_run(self._end), _STYLES[result.outcome])

    def idle(self) -> None:
        def change(view: View) -> None:
            self._keys.talking = False
            view.idle()

        self._screen.change(change)

    def _take(self, event: Event) -> None:
        now = time.monotonic()
        self._screen.change(lambda view: view.take(event, now))
        if isinstance(event, AgentEnd):
            self._end = event
        if isinstance(event, AgentEnd | MessageEnd):
            self._show_status()

    def _show_status(self) -> None:
        self._screen.status(" · ".join([part for part in (shown(self._model), self._tally.now()) if part]))


def _no(*_arguments: object) -> None:
    """What keys do before there is a conversation."""


class _Above(io.TextIOBase):
    """Where everything else that is printed goes: above the input, line by line."""

    def __init__(self, note: Callable[[str], object]) -> None:
        self._note = note
        self._line = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._note(line)
        return len(text)


async def _heed_signals(talk: Talk) -> None:
    """Ctrl-C where keys are not ours, and what ends programs in order."""
    wanted = [signal.SIGINT, signal.SIGTERM]
    if sys.platform != "win32":  # pragma: no branch - Windows has no hang-up
        wanted.append(signal.SIGHUP)
    heeded = [one for one in wanted if signal.getsignal(one) != signal.SIG_IGN]
    if not heeded:
        return
    with trio.open_signal_receiver(*heeded) as received:
        async for number in received:
            if number == signal.SIGINT:
                talk.interrupt(again=True)
            else:
                talk.leave(128 + number)
