"""Random lawful traces, as data: every shape of run that the specification allows, and what may be changed unseen.

Here lives a generator that knows the rules by heart and runs no kernel, so that judge and kernel can both be held to
it. The properties themselves are in `test_judge_traces.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import attrs
from hypothesis import strategies as st

from trio_agent import (
    AgentEnd,
    AgentStart,
    AssistantMessage,
    CompactionEnd,
    CompactionStart,
    CustomMessage,
    Event,
    Message,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    RetryEnd,
    RetryStart,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResultMessage,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from trio_agent._events import Delta, ErrorInfo, Outcome, ToolCallFragment
from trio_agent._messages import AssistantBlock, StopReason

FAILURES = ("error", "aborted")


@attrs.define
class _Writer:
    """Writes one trace; what it decides comes from `draw`."""

    draw: st.DrawFn
    events: list[Event] = attrs.Factory(list[Event])
    numbers: Iterator[int] = attrs.Factory(lambda: itertools.count(1))
    turn: int = 0
    length: int = 0  # of history

    def yes(self, likely: int = 1, unlikely: int = 1) -> bool:
        return self.draw(st.integers(1, likely + unlikely)) <= likely

    def pick(self, *options: str) -> str:
        return self.draw(st.sampled_from(options))

    # -- a run

    def run(self) -> None:
        self.events.append(AgentStart())
        self.turn = 0
        fate = self.pick("completed", "completed", "stopped", "failed", "cut", "closed")
        turns = self.draw(st.integers(1, 3))
        behind_calls = True
        for at in range(1, turns + 1):
            self.begin_turn(least=0 if behind_calls else 1)
            last = at == turns
            if last and fate == "failed":
                self.fail(self.closing(), streams=True)
                return
            if last and fate == "cut":
                self.cut_calls()
                return
            wants_calls = self.yes() if (not last or fate != "completed") else False
            message = self.answer(wants_calls)
            behind_calls = bool(message.tool_calls)
            self.end_turn(message, self.run_calls(message))
        if fate == "closed":
            self.begin_turn(least=0, most=0)
            self.fail(self.closing(), streams=False)
            return
        outcome: Outcome = "completed" if fate == "completed" and not behind_calls else "stopped"
        stopped_short = outcome == "completed" and message.stop_reason == "length"
        self.events.append(AgentEnd(outcome, "length" if stopped_short else None, self.turn))

    def closing(self) -> StopReason:
        return self.draw(st.sampled_from(["error", "aborted"]))

    def fail(self, why: StopReason, *, streams: bool) -> None:
        """The closing message, its turn's end, and the run's."""
        if streams:
            self.attempts()
            if self.yes(1, 3):
                why = self.give_up() or why
        message = self.message(why, streams=streams and self.yes())
        self.end_turn(message, ())
        outcome: Outcome = "aborted" if why == "aborted" else "error"
        self.events.append(AgentEnd(outcome, None, self.turn, error=message.error_message))

    def give_up(self) -> StopReason | None:
        """A wait or a compaction that ends with the run."""
        how = self.pick("retry aborted", "retry failed", "compaction aborted", "overflow failed")
        if how == "retry aborted":
            return self.retry("aborted")
        if how == "retry failed":
            return self.retry("failed")
        if how == "overflow failed" and not self.overflowed():
            self.events += [CompactionStart("overflow"), CompactionEnd("failed", error="too long")]
            return "error"
        if how == "compaction aborted" and not self.shortened():
            self.events += [CompactionStart("threshold"), CompactionEnd("aborted")]
            return "aborted"
        return None

    # -- a turn

    def begin_turn(self, *, least: int, most: int = 2) -> None:
        self.turn += 1
        self.events.append(TurnStart(self.turn))
        for _ in range(self.draw(st.integers(least, max(least, most)))):
            number = next(self.numbers)
            said: Message = UserMessage(f"say {number}") if self.yes(3) else CustomMessage("note", number)
            self.whole(said)

    def end_turn(self, message: AssistantMessage, results: Sequence[ToolResultMessage]) -> None:
        self.events.append(TurnEnd(self.turn, message, tuple(results)))

    def whole(self, message: Message) -> None:
        self.events += [MessageStart(message), MessageEnd(message)]
        self.length += 1

    def this_turn(self) -> list[Event]:
        starts = [at for at, event in enumerate(self.events) if isinstance(event, TurnStart)]
        return self.events[starts[-1] :]

    def retries(self) -> int:
        return sum(isinstance(event, RetryStart) for event in self.this_turn())

    def overflowed(self) -> bool:
        return any(isinstance(event, CompactionStart) and event.reason == "overflow" for event in self.this_turn())

    def shortened(self) -> bool:
        return any(isinstance(event, CompactionStart | RetryStart) for event in self.this_turn())

    def attempts(self) -> None:
        """What came before the attempt that stands: a compaction at the threshold, retries, an overflow."""
        if self.yes(1, 5):
            self.events += [CompactionStart("threshold", 90_000), self.compacted()]
        for _ in range(self.draw(st.sampled_from([0, 0, 0, 1, 2]))):
            if self.yes():
                self.message("error", streams=self.yes())
                self.length -= 1
            if self.yes(3) or self.overflowed():
                self.retry("resumed")
            else:
                self.events += [CompactionStart("overflow"), self.compacted()]

    def compacted(self) -> CompactionEnd:
        """All of history becomes the summary: that parts nothing, and leaves no call behind."""
        kept, self.length = self.length, 1
        return CompactionEnd("compacted", UserMessage("so far"), kept, 900)

    def retry(self, outcome: str) -> StopReason | None:
        attempt = self.retries() + 1
        self.events.append(RetryStart(attempt, 9, 0.5, ErrorInfo("overloaded", "busy", 529)))
        self.events.append(RetryEnd(attempt, outcome))  # type: ignore[arg-type]
        return {"aborted": "aborted", "failed": "error"}.get(outcome)  # type: ignore[return-value]

    # -- an answer

    def answer(self, wants_calls: bool) -> AssistantMessage:
        self.attempts()
        stop = (
            self.pick("tool_use", "tool_use", "stop", "length") if wants_calls else self.pick("stop", "stop", "length")
        )
        return self.message(stop, calls=self.draw(st.integers(1, 4)) if wants_calls else 0)  # type: ignore[arg-type]

    def message(self, stop: StopReason, *, calls: int = 0, streams: bool = True) -> AssistantMessage:
        """Stream a message. `calls` are its calls; a failed one may have some of its own, which never run."""
        blocks: list[AssistantBlock] = []
        if streams:
            for _ in range(self.draw(st.integers(0, 2))):
                words = f"word {next(self.numbers)}"
                blocks.append(Text(words) if self.yes() else Thinking(words))
            wanted = calls if stop not in FAILURES else self.draw(st.integers(0, 1))
            blocks += [self.call() for _ in range(wanted)]
        self.events.append(MessageStart(AssistantMessage((), None)))
        self.stream(blocks)
        error = f"failed {next(self.numbers)}" if stop in FAILURES else None
        message = AssistantMessage(blocks, stop, error_message=error)
        self.events.append(MessageEnd(message))
        self.length += 1
        return message

    def call(self) -> ToolCall:
        number = next(self.numbers)
        return ToolCall(f"c{number}", self.pick("read", "write"), {"n": number})

    def stream(self, blocks: Sequence[AssistantBlock]) -> None:
        """The blocks in pieces, interleaved, each block begun behind the one before it."""
        left = [self.pieces(index, block) for index, block in enumerate(blocks)]
        begun = 0
        while any(left[:begun]) or begun < len(left):
            open_blocks = [at for at in range(begun) if left[at]]
            at = self.draw(st.sampled_from([*open_blocks, *([begun] if begun < len(left) else [])]))
            begun = max(begun, at + 1)
            self.events.append(MessageUpdate(left[at].pop(0)))

    def pieces(self, index: int, block: AssistantBlock) -> list[Delta]:
        text = block.raw if isinstance(block, ToolCall) else block.text
        cuts = sorted(self.draw(st.sets(st.integers(1, len(text) - 1), max_size=2)))
        parts = [text[left:right] for left, right in itertools.pairwise([0, *cuts, len(text)])]
        if isinstance(block, ToolCall):
            return [ToolCallFragment(index, block.id, block.name, part) for part in ["", *parts]]
        if isinstance(block, Text):
            return [TextDelta(index, part) for part in parts]
        return [ThinkingDelta(index, part) for part in parts]

    # -- calls

    def run_calls(self, message: AssistantMessage) -> list[ToolResultMessage]:
        """Preparation in order, some refused; execution in any order; results in order."""
        ended: dict[str, ToolResultMessage] = {}
        cut = message.stop_reason == "length"
        for call in message.tool_calls:
            self.events.append(ToolExecutionStart(call))
            if self.yes(1, 2):
                self.end(call, ended, error=True)
        self.execute([call for call in message.tool_calls if call.id not in ended], ended, cut=cut)
        return self.tell_results(message, ended)

    def execute(self, running: list[ToolCall], ended: dict[str, ToolResultMessage], *, cut: bool = False) -> None:
        while running:
            call = self.draw(st.sampled_from(running))
            if not cut and self.yes(1, 2):
                self.events.append(ToolExecutionUpdate(call.id, call.name, (Text(f"at {next(self.numbers)}"),)))
            else:
                running.remove(call)
                self.end(call, ended, error=cut or self.yes(1, 2))

    def end(self, call: ToolCall, ended: dict[str, ToolResultMessage], *, error: bool) -> None:
        result = ToolResultMessage(call.id, call.name, f"found {next(self.numbers)}", error)
        ended[call.id] = result
        self.events.append(ToolExecutionEnd(result))

    def tell_results(self, message: AssistantMessage, ended: dict[str, ToolResultMessage]) -> list[ToolResultMessage]:
        results = [ended[call.id] for call in message.tool_calls]
        for result in results:
            self.whole(result)
        return results

    def cut_calls(self) -> None:
        """The run is aborted, or fails, while calls are prepared or under way: errors for all that are left."""
        self.attempts()
        message = self.message("tool_use", calls=self.draw(st.integers(1, 4)))
        ended: dict[str, ToolResultMessage] = {}
        started = list(message.tool_calls[: self.draw(st.integers(0, len(message.tool_calls)))])
        self.events += [ToolExecutionStart(call) for call in started]
        if len(started) == len(message.tool_calls) and self.yes():
            self.execute(started[:1], ended)
        early = [call for call in started if call.id not in ended and self.yes(1, 2)]
        for call in early:
            self.end(call, ended, error=True)
        self.events += [ToolExecutionStart(call) for call in message.tool_calls[len(started) :]]
        for call in message.tool_calls:
            if call.id not in ended:
                self.end(call, ended, error=True)
        self.end_turn(message, self.tell_results(message, ended))
        self.begin_turn(least=0, most=0)
        self.fail(self.closing(), streams=False)


@st.composite
def lawful_traces(draw: st.DrawFn) -> list[Event]:
    """Complete lawful traces of one or two runs of one agent, whose history was empty."""
    writer = _Writer(draw)
    for _ in range(draw(st.integers(1, 2))):
        writer.run()
    return writer.events


# -- what may be changed and nobody can see it --------------------------------------------------------------------


def swapped(events: Sequence[Event], at: int) -> list[Event]:
    return [*events[:at], events[at + 1], events[at], *events[at + 2 :]]


def dropped(events: Sequence[Event], at: int) -> list[Event]:
    return [*events[:at], *events[at + 1 :]]


def repeated(events: Sequence[Event], at: int) -> list[Event]:
    return [*events[: at + 1], *events[at:]]


def harmless(events: Sequence[Event], mutated: Sequence[Event], how: str, at: int) -> str | None:
    """Why a mutated trace is lawful too, or None if it is not. All the reasons there are:

    - `nothing changed`: two equal events were swapped
    - `same words`: the updates of each message still add up to the same blocks in the same order
    - `a report`: what a running tool reports is nobody's to check; reports may come again, be missing, or change places
    - `independent calls`: events of two calls that run side by side
    - `refused or failed`: a call that ends in an error before the next start was refused, behind it it failed
    - `aborted`: in a run that failed, calls end in errors at any moment of the preparation
    """
    event = events[at]
    if list(events) == list(mutated):
        return "nothing changed"
    if isinstance(event, MessageUpdate) and _words(events) == _words(mutated):
        return "same words"
    if how != "swap":
        return "a report" if isinstance(event, ToolExecutionUpdate) else None
    one, other = event, events[at + 1]
    if isinstance(one, ToolExecutionUpdate | ToolExecutionEnd) and isinstance(
        other, ToolExecutionUpdate | ToolExecutionEnd
    ):
        if one.tool_call_id != other.tool_call_id:
            return "independent calls"
        return "a report" if isinstance(one, ToolExecutionUpdate) and isinstance(other, ToolExecutionUpdate) else None
    return _end_beside_a_start(events, at)


def _end_beside_a_start(events: Sequence[Event], at: int) -> str | None:
    pair = events[at : at + 2]
    end = next((event for event in pair if isinstance(event, ToolExecutionEnd)), None)
    start = next((event for event in pair if isinstance(event, ToolExecutionStart)), None)
    if end is None or start is None or not end.is_error or end.tool_call_id == start.tool_call_id:
        return None
    message = next(
        event.message
        for event in reversed(events[:at])
        if isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage)
    )
    calls = [call.id for call in message.tool_calls]
    neighbours = calls.index(end.tool_call_id) == calls.index(start.tool_call_id) - 1
    start_first = pair[0] is end  # after the swap
    if message.stop_reason == "length":
        return "refused or failed"
    if start_first and calls[-1] == start.tool_call_id:
        return "refused or failed"
    if not start_first and neighbours:
        return "refused or failed"
    ends = [event for event in events[at:] if isinstance(event, AgentEnd)]
    return "aborted" if ends[0].outcome in FAILURES else None


def _words(events: Sequence[Event]) -> list[object]:
    """Each message's blocks, in the order of their first updates, and what the updates of each add up to."""
    told: list[object] = []
    blocks: dict[int, str] = {}
    for event in events:
        if isinstance(event, MessageUpdate):
            delta = event.delta
            more = delta.json if isinstance(delta, ToolCallFragment) else delta.text
            blocks[delta.index] = blocks.get(delta.index, "") + more
        else:
            told.append(list(blocks.items()))
            told.append(event)
            blocks = {}
    return told
