"""The keys of a conversation, and what they ask for.

Here lives the table of keys. What is asked for happens in `_chat_talk.py`, on Trio's side.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Final

import attrs
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

# By whether a run is on; the longest that fits is shown.
HINTS: Final[dict[bool, tuple[str, ...]]] = {
    False: ("Enter sends · Ctrl-J new line · Ctrl-D leaves · /help", "Enter sends · ^D leaves · /help", "/help"),
    True: (
        "Enter steers · Tab says it later · Alt-Up takes it back · Ctrl-C aborts",
        "Enter steers · Tab later · Ctrl-C aborts",
        "⏎ steers · ⇥ later · ^C aborts",
        "^C aborts",
    ),
}
HELP: Final = """\
Enter                sends; during a run it steers: said at the next turn
Tab or Alt-Enter     during a run: says it when the run would end
>> text              the same, for pipes
Alt-Up               takes back what was queued last
Ctrl-J               a new line
Enter on nothing     goes on, where there is something to go on with
Ctrl-C               aborts the run; at the prompt, a second one leaves
Ctrl-D, /quit        leaves; Ctrl-Z stops the job until `fg`"""


@attrs.define
class Keys:
    """What keys ask for. Called in the screen's thread; `talking` says whether a run is on."""

    say: Callable[[str, bool], object]
    interrupt: Callable[[bool], object]
    leave: Callable[[], object]
    take_back: Callable[[], object]
    leave_at_once: Callable[[], object]
    talking: bool = False
    interrupts: int = 0  # Ctrl-C so many times, and no other key in between


def _stop() -> None:
    """Stop the job, as Ctrl-Z does elsewhere, and return when it goes on."""
    # The signal to the job stops this process at some moment, which might come after what is next, and that paints. The
    # one to this thread stops it in the last line here at the latest. Both are sent by then, so that the system drops
    # what is left of them when the job goes on: test_ctrl_z_stops_the_job_and_fg_brings_it_back
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})
    signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)
    os.kill(0, signal.SIGTSTP)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def bindings(keys: Keys, buffer: Buffer) -> KeyBindings:
    """The keys, for the buffer that is typed into."""
    table = KeyBindings()
    is_empty = Condition(lambda: not buffer.text)

    def submit(later: bool) -> None:
        keys.interrupts = 0
        text = buffer.text
        buffer.append_to_history()
        buffer.reset()
        keys.say(text, later)

    @table.add("enter")
    def _enter(_event: KeyPressEvent) -> None:
        submit(False)

    @table.add("tab")
    @table.add("escape", "enter")
    def _later(_event: KeyPressEvent) -> None:
        submit(True)

    @table.add("c-j")
    def _new_line(_event: KeyPressEvent) -> None:
        buffer.insert_text("\n")

    @table.add("escape", "up")
    def _take_back(_event: KeyPressEvent) -> None:
        keys.take_back()

    @table.add("c-c")
    def _interrupt(_event: KeyPressEvent) -> None:
        if buffer.text and not keys.talking:
            buffer.reset()
            keys.interrupts = 0
            return
        keys.interrupts += 1
        if keys.interrupts > 2 and keys.talking:
            keys.leave_at_once()
        keys.interrupt(keys.interrupts > 1)

    @table.add("c-d", filter=is_empty)
    def _leave(_event: KeyPressEvent) -> None:
        keys.leave()

    @table.add("c-z", filter=Condition(lambda: hasattr(signal, "SIGTSTP")))
    def _suspend(_event: KeyPressEvent) -> None:
        run_in_terminal(_stop)

    def typed(_buffer: Buffer) -> None:
        keys.interrupts = 0

    buffer.on_text_insert += typed
    return table
