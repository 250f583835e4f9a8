"""The terminal of a conversation: the input line at the bottom, what still changes above it, what stays above that.

Here lives the use of prompt_toolkit, in a thread with an event loop of its own, so that keys are heard and the screen
is right whatever Trio is doing. What is shown is decided in `_chat_view.py`, what keys mean in `_chat_keys.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import trio
from prompt_toolkit.application import Application, in_terminal
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import create_input
from prompt_toolkit.layout import Dimension, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.output import create_output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.utils import get_cwidth
from prompt_toolkit.widgets import TextArea

from ._chat_keys import HINTS, Keys, bindings
from ._chat_paint import Painter
from ._chat_view import View

Change: TypeAlias = Callable[[View], object]
_FRAME: Final = 0.05  # seconds between two pictures
_SHARE: Final = 3  # a picture that took long to paint is followed by so many times that, for others to work in
_INPUT_ROWS: Final = 8


class Screen:
    """The screen. `run` is for a thread; everything else may be called from any, and returns at once."""

    def __init__(self, view: View, keys: Keys) -> None:
        self._view = view
        self._painter = Painter()
        self._keys = keys
        self._changes: deque[Change] = deque()
        self._status = ""
        self._live: list[str] = []
        self._closing = False
        self._lent_to = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._awake = asyncio.Event()
        self._app: Application[None] | None = None
        self._terminal = _terminal_state()
        self._input = TextArea(
            prompt=self._prompt,
            multiline=True,
            wrap_lines=True,
            height=Dimension(min=1, max=_INPUT_ROWS),
            dont_extend_height=True,
            history=InMemoryHistory(),
        )

    # From any thread

    def change(self, change: Change) -> None:
        """Change what is shown; in order."""
        self._changes.append(change)
        self._call(self._awake.set)

    def status(self, text: str) -> None:
        """What stands below the input: the model, tokens, cost."""
        self._status = text
        self._call(self._awake.set)

    def draft(self, text: str) -> None:
        """Put a text before what is being typed."""
        self._call(lambda: self._input.buffer.insert_text(text))

    def close(self) -> None:
        """Show what is left, and let `run` return."""
        self._closing = True
        self._call(self._awake.set)

    @asynccontextmanager
    async def lent(self) -> AsyncGenerator[None]:
        """The terminal as it was before, for a question; for Trio. Nothing is shown or heard meanwhile."""
        ready, over = trio.Event(), asyncio.Event()
        token = trio.lowlevel.current_trio_token()

        async def lend() -> None:
            self._lent_to += 1
            try:
                async with in_terminal():
                    # What led to the question stands above it: test_edits_are_asked_about_and_shown_as_a_diff
                    self._write(self._above())
                    _in_trio(token, ready.set)
                    await over.wait()
            finally:
                self._lent_to -= 1
                self._awake.set()

        self._call(lambda: self._app and self._app.create_background_task(lend()))
        try:
            await ready.wait()
            yield
        finally:
            self._call(over.set)

    def _call(self, function: Callable[[], object]) -> None:
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed: there is no screen any more
                loop.call_soon_threadsafe(function)

    # In its own thread

    def run(self) -> None:
        """Show the screen until `close`. Raises `EOFError` when the terminal is gone, and what painting failed with."""
        try:
            asyncio.run(self._main())
        except Exception as error:  # a terminal that is gone fails each of the calls above in another way
            if os.isatty(0):
                raise
            raise EOFError("the terminal was closed") from error

    def leave_at_once(self, code: int) -> None:
        """End the process, whatever it is doing, with the terminal as it was before. For the screen's own thread."""
        assert self._app is not None, "it is what hears the key that asks for this"
        output = self._app.output
        self._app.renderer.erase()
        output.disable_bracketed_paste()
        output.show_cursor()
        output.flush()
        if self._terminal is not None:  # pragma: no branch - Windows has no termios
            import termios

            termios.tcsetattr(0, termios.TCSANOW, self._terminal)
        os._exit(code)

    async def _main(self) -> None:
        output = create_output(sys.__stdout__)  # `sys.stdout` is what we show above
        if isinstance(output, Vt100_Output):  # pragma: no branch - Windows has outputs of its own
            output.enable_cpr = False  # an answer that comes late would be taken for keys
        app: Application[None] = Application(
            layout=Layout(self._container(), focused_element=self._input),
            key_bindings=bindings(self._keys, self._input.buffer),
            input=create_input(),
            output=output,
            erase_when_done=True,
            mouse_support=False,
        )
        self._app = app
        app.ttimeoutlen = 0.05
        self._loop = asyncio.get_running_loop()

        def begin() -> None:
            app.create_background_task(self._paint(app))

        await app.run_async(pre_run=begin, handle_sigint=False)

    def _container(self) -> HSplit:
        live = Window(FormattedTextControl(lambda: ANSI("\n".join(self._live))), dont_extend_height=True)
        hints = Window(FormattedTextControl(self._bottom), dont_extend_height=True)
        return HSplit([live, self._input, hints])

    def _prompt(self) -> StyleAndTextTuples:
        return [("ansimagenta bold", "» " if self._keys.talking else "› ")]

    def _bottom(self) -> StyleAndTextTuples:
        columns = self._columns()
        hints = HINTS[self._keys.talking]
        fitting = next((hint for hint in hints if get_cwidth(hint) < columns), "")
        status = self._status if get_cwidth(self._status) < columns else ""
        one_line = f"{status} · {fitting}" if status and fitting else status or fitting
        if get_cwidth(one_line) < columns:
            return [("ansibrightblack", one_line)]
        return [("ansibrightblack", f"{status}\n{fitting}")]

    def _columns(self) -> int:
        assert self._app is not None
        return self._app.output.get_size().columns

    async def _paint(self, app: Application[None]) -> None:
        """Paint until the end, and end the screen with whatever that failed with: it would never end otherwise."""
        try:
            await self._pump(app)
        except Exception as error:  # it goes to whoever called `run`
            app.exit(exception=error)

    async def _pump(self, app: Application[None]) -> None:
        """Take what is to be shown, in pictures that leave time for keys and for Trio."""
        while True:
            began = time.monotonic()
            finished = self._closing and not self._lent_to
            if not self._lent_to:  # pragma: no branch - whether a moment falls into a lending is chance
                self._picture(app)
            if finished and not self._changes:
                app.exit()
                return
            await asyncio.sleep(max(_FRAME, _SHARE * (time.monotonic() - began)))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._awake.wait(), 2 * _FRAME if self._view.busy else None)
            self._awake.clear()

    def _picture(self, app: Application[None]) -> None:
        above = self._above()
        size = app.output.get_size()
        height = max(3, size.rows - min(_INPUT_ROWS, self._input.buffer.document.line_count) - 4)
        live = self._view.below(self._painter, size.columns, height, time.monotonic())
        if above or len(live) < len(self._live):  # the area below never gets lower by itself
            app.renderer.erase()
        self._write(above)
        self._live = live
        app.invalidate()

    def _above(self) -> list[str]:
        """Take the changes, and give the lines that have come to stay."""
        while self._changes:
            self._changes.popleft()(self._view)
        return self._view.above(self._painter, self._columns())

    def _write(self, lines: Sequence[str]) -> None:
        """Write lines where the area below was erased."""
        assert self._app is not None
        if lines:
            self._app.output.write_raw("\n".join(lines) + "\n")
            self._app.output.flush()


def _terminal_state() -> list[Any] | None:
    """How the terminal is set, where systems have that."""
    try:
        import termios
    except ModuleNotFoundError:  # pragma: no cover - Windows has no termios
        return None
    return termios.tcgetattr(0)


def _in_trio(token: trio.lowlevel.TrioToken, function: Callable[[], Any]) -> None:
    with contextlib.suppress(trio.RunFinishedError):
        token.run_sync_soon(function)
