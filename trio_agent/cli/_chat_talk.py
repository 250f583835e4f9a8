"""A conversation with an agent: what is said while it is idle starts a run, what is said during one is queued.

Here lives the order of things, over the agent's public face alone. What it looks like is the business of a `Face`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol, TypeAlias

import attrs
import trio

from .._agent import Agent
from .._errors import NothingToResumeError
from .._events import Event, MessageEnd, MessageStart, Outcome, TurnStart
from .._messages import UserMessage
from .._result import RunResult
from ._interrupt import ABORTED

_EXIT_CODES: Final[dict[Outcome, int]] = {"completed": 0, "stopped": 0, "error": 1, "aborted": ABORTED}
QueueName: TypeAlias = Literal["steering", "follow-up"]
LATER: Final = ">>"


class Face(Protocol):
    """Where a conversation is shown. No method waits, and none fails."""

    def note(self, text: str, style: str = "dim") -> None: ...
    def waiting(self, queue: Sequence[tuple[QueueName, str]]) -> None:
        """What is queued now, in the order in which it will be said."""
        ...

    def got_in(self, queue: QueueName, text: str, turn: int) -> None:
        """What was queued is about to be said, in this turn of the run."""
        ...

    def begun(self) -> None: ...
    def ended(self, result: RunResult) -> None: ...
    def idle(self) -> None: ...


@attrs.frozen
class _Queued:
    id: str
    queue: QueueName
    message: UserMessage


class Talk:
    """Holds a conversation. All but `hold` is sync, and is called in the same `trio.run`."""

    def __init__(self, agent: Agent, face: Face) -> None:
        self._agent = agent
        self._face = face
        self._queued: list[_Queued] = []
        self._early: list[tuple[str, bool]] = []  # said after the run was asked for, and before it began
        self._listening = False
        self._order: str | None = None  # what the next run begins with; empty to go on without new words
        self._awake = trio.Event()
        self._running = False
        self._aborting = False
        self._leaving: int | None = None
        self._finishing = False
        self._code = 0
        self._turn = 0
        agent.subscribe(self._listen)

    # What the user does

    def say(self, text: str, *, later: bool = False) -> None:
        """Say it: at once while idle, else as steering, or with `later` (or a leading `>>`) as a follow-up."""
        if text.startswith(LATER):
            text, later = text[len(LATER) :].lstrip(), True
        if self._running and text.strip():
            # What is queued while an agent is idle would come before the prompt:
            # test_lines_that_come_at_once_are_said_in_their_order
            if self._listening:
                self._queue(text, later)
            else:
                self._early.append((text, later))
        elif not self._running:
            self._running = True
            self._order = text
            self._awake.set()

    def _queue(self, text: str, later: bool) -> None:
        message = UserMessage(text)
        id = (self._agent.follow_up if later else self._agent.steer)(message)
        self._queued.append(_Queued(id, "follow-up" if later else "steering", message))
        self._show_queue()

    def _begin_listening(self) -> None:
        self._listening = True
        early, self._early = self._early, []
        for text, later in early:
            self._queue(text, later)

    def interrupt(self, *, again: bool) -> None:
        """Ctrl-C: abort the run; `again`, right behind another one, leave."""
        if self._running and not self._aborting:
            self._aborting = True
            self._agent.abort("interrupted by Ctrl-C")
        elif again:
            if self._running:
                self._face.note("leaving once the run has settled; Ctrl-C again leaves at once", "yellow")
            self.leave(ABORTED)
        else:
            self._face.note("Ctrl-C again, or Ctrl-D, leaves")

    def leave(self, code: int = 0) -> None:
        """Abort the run, if there is one, and end the conversation with this exit code."""
        if self._leaving is None:
            self._leaving = code
        self._agent.abort("the conversation was left")
        self._awake.set()

    def finish(self) -> None:
        """Nothing more will be said: end when all that was said has been answered."""
        self._finishing = True
        self._awake.set()

    def take_back(self) -> str | None:
        """Withdraw what was queued last, and give it."""
        while self._queued:
            last = self._queued.pop()
            if self._agent.withdraw(last.id):
                self._show_queue()
                return last.message.text
        return None

    # What comes of it

    async def hold(self) -> int:
        """Talk until the user leaves. Gives the exit code: of leaving, or after `finish` of the last run."""
        while self._leaving is None:
            if self._order is not None:
                order, self._order = self._order, None
                await self._answer(order)
            elif self._finishing:
                if self._queued:
                    self._face.note(f"never said, as the run before failed: {len(self._queued)} messages", "yellow")
                return self._code
            else:
                await self._awake.wait()
                self._awake = trio.Event()
        return self._leaving

    async def _answer(self, order: str) -> None:
        """One run, and further ones for what was queued too late for it."""
        self._face.begun()
        try:
            result = await self._run(order)
            self._begin_listening()
            while self._queued and (result is None or result.outcome == "completed") and self._leaving is None:
                result = await self._run("")
        finally:
            self._running = self._aborting = self._listening = False
            self._face.idle()
        if self._queued and self._leaving is None and not self._finishing:
            self._face.note("what is queued waits for what you say next; Enter alone sends it", "magenta")

    async def _run(self, order: str) -> RunResult | None:
        try:
            result = await (self._agent.prompt(order) if order.strip() else self._agent.resume())
        except NothingToResumeError:
            return None
        self._code = _EXIT_CODES[result.outcome]
        self._face.ended(result)
        return result

    def _listen(self, event: Event) -> None:
        if isinstance(event, TurnStart):
            self._turn = event.turn
        elif isinstance(event, MessageEnd):
            if not self._listening:
                self._begin_listening()
        elif isinstance(event, MessageStart) and isinstance(event.message, UserMessage):
            for index, one in enumerate(self._queued):
                if one.message is event.message:
                    del self._queued[index]
                    self._face.got_in(one.queue, one.message.text, self._turn)
                    self._show_queue()
                    return

    def _show_queue(self) -> None:
        steering = [one for one in self._queued if one.queue == "steering"]
        later = [one for one in self._queued if one.queue != "steering"]
        self._face.waiting([(one.queue, one.message.text) for one in (*steering, *later)])
