"""The order of a conversation, without a face to see: what is said when, and what is queued too late or taken away."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import pytest
import trio
from scenes import make_agent, on

from trio_agent import Agent, RunResult
from trio_agent.cli._chat_talk import QueueName, Talk
from trio_agent.cli._chat_terminal import _heed_signals
from trio_agent.testing import ScriptedProvider, finish, text


class Face:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.queue: list[str] = []
        self.outcomes: list[str] = []

    def note(self, text: str, style: str = "dim") -> None:
        self.notes.append(text)

    def waiting(self, queue: Sequence[tuple[QueueName, str]]) -> None:
        self.queue = [text for _, text in queue]

    def got_in(self, queue: QueueName, text: str, turn: int) -> None:
        self.notes.append(f"{queue} in turn {turn}: {text}")

    def begun(self) -> None:
        self.notes.append("begun")

    def ended(self, result: RunResult) -> None:
        self.outcomes.append(result.outcome)

    def idle(self) -> None:
        self.notes.append("idle")


def talking(provider: ScriptedProvider) -> tuple[Agent, Face, Talk]:
    agent, _ = make_agent(provider)
    face = Face()
    return agent, face, Talk(agent, face)


async def test_what_is_queued_too_late_for_a_run_begins_the_next() -> None:
    """While the end of a run is told it takes nothing any more: what is said then is answered by a run of its own."""
    agent, face, talk = talking(ScriptedProvider([text("one"), finish()], [text("two"), finish()]))
    on(agent, "agent_end", lambda _event: talk.say("more"))
    talk.say("go")
    talk.finish()
    assert await talk.hold() == 0
    assert face.outcomes == ["completed", "completed"]
    assert face.notes == ["begun", "steering in turn 1: more", "idle"]
    assert agent.state.messages[2].role == "user"
    assert face.queue == []


async def test_nothing_is_taken_back_where_somebody_else_has_taken_it() -> None:
    """What was queued and has been cleared from beside is not given back; neither is anything where nothing waits."""
    agent, face, talk = talking(ScriptedProvider([text("one"), finish()]))
    given: list[str | None] = [talk.take_back()]

    def clear(_event: object) -> None:
        talk.say("first")
        talk.say("second")
        assert face.queue == ["first", "second"]
        given.append(talk.take_back())
        agent.clear_queues()
        given.append(talk.take_back())

    on(agent, "message_update", clear)
    talk.say("go")
    talk.finish()
    assert await talk.hold() == 0
    assert given == [None, "second", None]
    assert agent.state.messages[-1].role == "assistant"


async def test_a_ctrl_c_with_nothing_to_abort_says_how_to_leave() -> None:
    """It may have been meant for a run that had just ended; right behind another one it leaves."""
    _, face, talk = talking(ScriptedProvider())
    talk.interrupt(again=False)
    assert face.notes == ["Ctrl-C again, or Ctrl-D, leaves"]
    talk.interrupt(again=True)
    assert await talk.hold() == 130


async def test_nothing_said_during_a_run_is_nothing() -> None:
    """An empty line steers nothing, and does not begin a run when this one is over."""
    agent, face, talk = talking(ScriptedProvider([text("one"), finish()]))

    def say_nothing(_event: object) -> None:
        talk.say("  ")
        talk.say(">> ")

    on(agent, "message_update", say_nothing)
    talk.say("go")
    talk.finish()
    assert await talk.hold() == 0
    assert face.outcomes == ["completed"]
    assert face.queue == []


@pytest.mark.real_time
async def test_where_every_signal_is_ignored_none_is_waited_for() -> None:
    """As `nohup` and a shell's background have it: the conversation leaves them ignored."""
    _, _, talk = talking(ScriptedProvider())
    before = {one: signal.signal(one, signal.SIG_IGN) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        with trio.fail_after(5):
            await _heed_signals(talk)
        assert {signal.getsignal(one) for one in before} == {signal.SIG_IGN}
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
