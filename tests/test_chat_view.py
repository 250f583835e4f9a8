"""What a conversation looks like, without a terminal: words, markdown that grows, lines that fit, and the counting."""

from __future__ import annotations

import logging
import re
import sys
import unicodedata
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_agent import (
    AgentEnd,
    AgentStart,
    AssistantMessage,
    CompactionEnd,
    CompactionStart,
    CustomMessage,
    ErrorInfo,
    Event,
    Image,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    RetryEnd,
    RetryStart,
    Text,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolCallFragment,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResultMessage,
    TurnStart,
    Usage,
    UserMessage,
)
from trio_agent.cli._chat import _log_as_notes
from trio_agent.cli._chat_blocks import history_blocks
from trio_agent.cli._chat_markdown import Growing
from trio_agent.cli._chat_paint import Painter, markdown
from trio_agent.cli._chat_tally import Tally
from trio_agent.cli._chat_terminal import _Above
from trio_agent.cli._chat_text import call_words, money, seconds, shown, tokens
from trio_agent.cli._chat_view import View

SGR = re.compile(r"\x1b\[[0-9;]*m")
MARKDOWN = st.lists(
    st.one_of(
        st.sampled_from(
            ["\n", "\n\n", "```\n", "# ", "- ", "  ", "1. ", "> ", "**", "`", "|a|b|\n|-|-|\n", "<b>", "---\n", "    x"]
        ),
        st.text(max_size=5),
    ),
    max_size=30,
)


@pytest.fixture
def painter(monkeypatch: pytest.MonkeyPatch) -> Painter:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    return Painter()


def seen(view: View, painter: Painter, now: float = 0.0, *, width: int = 60, height: int = 20) -> tuple[str, str]:
    """What stays, and what still changes, without colours."""
    above = "\n".join(view.above(painter, width))
    below = "\n".join(view.below(painter, width, height, now))
    return SGR.sub("", above), SGR.sub("", below)


def told(*events: Event, now: float = 0.0) -> View:
    view = View()
    for event in events:
        view.take(event, now)
    return view


# Words


@given(st.text())
def test_what_is_shown_cannot_drive_a_terminal(text: str) -> None:
    """No control character but the line's end, no change of direction, and nothing else is lost from plain text."""
    safe = shown(text)
    kept = [char for char in safe if not char.isprintable() and char not in "\n\u200c\u200d"]
    assert {unicodedata.category(char) for char in kept} <= {"Co"}, "for private use, as by fonts with symbols"
    assert shown(safe) == safe
    if text.isprintable():
        assert safe == text


def test_whole_sequences_are_taken_out_not_just_their_first_character() -> None:
    """Colours and titles leave no litter; ends of lines of all kinds, tabs and joiners keep what they mean."""
    assert shown("\x1b[31mred\x1b[0m \x1b]0;title\x07x \x9b2Jy \x1b(Bz") == "red x y z"
    assert shown("a\r\nb\rc\nd\te\u2028f\xa0g") == "a\nb\nc\nd   e\nf g"
    assert shown("\U0001f469\u200d\U0001f467 \u202eabc\ud800") == "\U0001f469\u200d\U0001f467 abc\ufffd"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (ToolCall("1", "t", {"path": "a.py", "edits": []}), "a.py"),
        (ToolCall("1", "t", {"timeout": 3, "command": "ls -l"}), "ls -l"),
        (ToolCall("1", "t", {"name": "Ada"}), "Ada"),
        (ToolCall("1", "t", {"n": [1, 2]}), "[1, 2]"),
        (ToolCall("1", "t", {"a": 1, "b": 2}), '{"a":1,"b":2}'),
        (ToolCall("1", "t", {}), ""),
        (ToolCall("1", "t", raw="no json"), "no json"),
        (ToolCall("1", "t", raw="[1]"), "[1]"),
    ],
)
def test_a_call_is_told_by_what_says_most(call: ToolCall, words: str) -> None:
    """The path, the command or the only argument; else the arguments as they came."""
    assert call_words(call).replace(" ", "") == words.replace(" ", "")


def test_numbers_as_people_read_them() -> None:
    """Tokens as far as they are known, dollars with the places that tell something, times in minutes when long."""
    assert tokens(Usage()) is None
    assert tokens(Usage(input=1000, cache_read=200, output=34)) == "1,234 tokens (1,200 in, 34 out)"
    assert tokens(Usage(total=5)) == "5 tokens"
    assert [seconds(duration) for duration in (0.04, 9.96, 59.6, 61, 185)] == [
        "0.0 s",
        "10.0 s",
        "1 min 0 s",
        "1 min 1 s",
        "3 min 5 s",
    ]
    assert [money(Decimal(cost)) for cost in ("12.346", "0.00123")] == ["$12.35", "$0.0012"]


# Markdown that grows


@given(MARKDOWN)
def test_the_pieces_of_growing_markdown_are_the_whole(pieces: list[str]) -> None:
    """Whatever the pieces, no text is lost, doubled or moved on the way from growing to settled."""
    growing = Growing()
    settled: list[str] = []
    for piece in pieces:
        growing.add(piece)
        if piece := growing.settled():
            settled.append(piece)
    settled.append(growing.finished())

    def words(text: str) -> str:
        return "".join(text.split())

    assert words("\n".join(settled)) == words(shown("".join(pieces)))


def test_a_block_settles_when_the_next_one_begins() -> None:
    """A list, a fence or a table with blank lines in it stays in one piece."""
    growing = Growing()
    growing.add("para\nmore\n\n")
    assert growing.settled() == ""
    growing.add("- a\n\n  still a\n")
    assert growing.settled().strip() == "para\nmore"
    growing.add("- b\n\n```\nx\n\n# no heading\n")
    assert growing.settled().strip() == "- a\n\n  still a\n- b"
    growing.add("```\nend")
    assert growing.settled().strip() == "```\nx\n\n# no heading\n```"
    assert growing.finished() == "end"


@given(MARKDOWN, st.integers(10, 80))
def test_painted_lines_fit_and_hold_nothing_but_text_and_colours(pieces: list[str], width: int) -> None:
    """For any markdown and any width: no line is wider, and the only escape sequences are ours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", "xterm-256color")
        patch.setenv("FORCE_COLOR", "1")
        painter = Painter()
    from rich.cells import cell_len

    for line in painter.lines(markdown(shown("".join(pieces))), width):
        plain = SGR.sub("", line)
        assert shown(plain) == plain
        assert "\n" not in plain
        assert cell_len(plain) <= width


def test_a_link_shows_where_it_leads(painter: Painter) -> None:
    """A text cannot claim to be another address, and no hyperlink reaches the terminal."""
    (line,) = painter.lines(markdown("[https://good.org](https://evil.org)"), 80)
    assert line == "https://good.org (https://evil.org)"


# The view


def test_a_retry_counts_down(painter: Painter) -> None:
    """It says why, which attempt comes next, and in how many seconds, until the wait is over."""
    error = ErrorInfo("overloaded", "come again", 529)
    view = told(TurnStart(1), RetryStart(1, 4, 4.0, error), now=100.0)
    above, below = seen(view, painter, 100.0)
    assert above == "… overloaded: come again"
    assert "retrying (attempt 2 of 4) in 4 s" in below
    assert "in 2 s" in seen(view, painter, 102.1)[1]
    assert "in 0 s" in seen(view, painter, 109.0)[1]
    view.take(RetryEnd(1, "resumed"), 104.0)
    assert "waiting for the model" in seen(view, painter, 104.0)[1]


def test_compaction_is_a_phase_and_leaves_a_line(painter: Painter) -> None:
    """How large the conversation was, that it is being shortened, and what came of it."""
    view = told(CompactionStart("threshold", 91_000))
    assert "compacting the conversation of 91,000 tokens 2.0 s" in seen(view, painter, 2.0)[1]
    view.take(CompactionEnd("compacted", UserMessage("short"), 41, 12_000), 3.0)
    assert seen(view, painter)[0] == "… compaction: compacted; now 12,000 tokens"
    failed = told(CompactionEnd("failed", error="no room"))
    assert seen(failed, painter)[0] == "… compaction: failed: no room"


def test_calls_are_seen_while_they_are_written_and_while_they_run(painter: Painter) -> None:
    """The size of the arguments as they come, then each tool with its last lines, then its result."""
    view = told(
        MessageStart(AssistantMessage(stop_reason=None)),
        MessageUpdate(ToolCallFragment(0, "c1", "write_file", "x" * 1500)),
    )
    assert "… write_file (1,500 characters)" in seen(view, painter)[1]
    call = ToolCall("c1", "bash", {"command": "make"})
    view.take(MessageEnd(AssistantMessage([call], "tool_use")), 0.0)
    view.take(ToolExecutionStart(call), 1.0)
    view.take(ToolExecutionUpdate("c1", "bash", (Text("1\n2\n3\n\n4\n"),)), 2.0)
    below = seen(view, painter, 2.0)[1].split("\n")
    assert [line for line in below if line.startswith("  ")] == ["  2", "  3", "  4"]
    assert "write_file" not in "\n".join(below)
    view.take(ToolExecutionEnd(ToolResultMessage("c1", "bash", "a\nb\nc\nd\ne\nf", is_error=True)), 3.5)
    assert seen(view, painter)[0] == "✗ bash make (2.5 s)\n  a\n  b\n  c\n  d\n  … 2 more lines"


def test_a_diff_is_shown_instead_of_words(painter: Painter) -> None:
    """What a tool says that it changed, cut where it is very long."""
    diff = "--- a\n+++ a\n@@ -1 +1 @@\n-two\n+TWO\n" + " x\n" * 100
    result = ToolResultMessage("c1", "edit_file", "replaced", details={"path": "a", "diff": diff})
    above = seen(told(ToolExecutionEnd(result)), painter)[0]
    assert above.startswith("✓ edit_file\n  @@ -1 +1 @@\n  -two\n  +TWO\n   x\n")
    assert above.endswith("… 44 more lines")


def test_thinking_is_shown_apart_from_the_answer(painter: Painter) -> None:
    """First while it comes, then above the answer, as it was."""
    view = told(MessageStart(AssistantMessage(stop_reason=None)), MessageUpdate(ThinkingDelta(0, "Hm, *so*")))
    assert "Hm, *so*" in seen(view, painter)[1]
    view.take(MessageUpdate(TextDelta(1, "It is **so**.")), 0.0)
    above, below = seen(view, painter)
    assert above == "Hm, *so*"
    assert "It is so." in below


def test_what_is_below_never_fills_more_than_its_room(painter: Painter) -> None:
    """However long a block gets while it is written, and however many tools run: its end is seen."""
    view = told(MessageStart(AssistantMessage(stop_reason=None)))
    view.take(MessageUpdate(TextDelta(0, "```\n" + "line\n" * 150)), 0.0)
    for number in range(1000):
        view.take(MessageUpdate(TextDelta(0, f"line {number}\n")), 0.0)
    _, below = seen(view, painter, height=10)
    assert below.count("\n") < 10
    assert "line 999" in below
    calls = [ToolCall(f"c{number}", "bash", {"command": "x"}) for number in range(50)]
    for call in calls:
        view.take(ToolExecutionStart(call), 0.0)
    assert seen(view, painter, height=10)[1].count("\n") < 10


def test_a_note_does_not_cut_a_block_in_two(painter: Painter) -> None:
    """What is printed while code is being written comes above it; the code stays whole."""
    view = told(MessageStart(AssistantMessage(stop_reason=None)), MessageUpdate(TextDelta(0, "```\nfirst\n")))
    view.note("printed")
    assert seen(view, painter)[0] == "printed"
    view.take(MessageUpdate(TextDelta(0, "second\n```\n")), 0.0)
    view.take(MessageEnd(AssistantMessage("…")), 0.0)
    assert [line.strip() for line in seen(view, painter)[0].split("\n")] == ["", "first", "second"]


def test_how_an_answer_ended_is_said(painter: Painter) -> None:
    """A failure with its words, an answer that was cut off; an abort is told by the run's own line."""
    failed = told(MessageEnd(AssistantMessage("part", "error", error_message="network: gone\x1b[2J")))
    assert seen(failed, painter)[0] == "✗ network: gone"
    cut = told(MessageEnd(AssistantMessage("part", "length")))
    assert seen(cut, painter)[0].startswith("… cut off")
    aborted = told(MessageEnd(AssistantMessage("part", "aborted", error_message="aborted: by you")))
    assert seen(aborted, painter)[0] == ""


def test_a_report_of_a_call_that_was_never_begun_is_not_shown(painter: Painter) -> None:
    """A view that joins in the middle shows what it knows: the result, without its arguments and its time."""
    view = told(ToolExecutionUpdate("c1", "bash", (Text("half"),)))
    assert "half" not in seen(view, painter)[1]
    view.take(ToolExecutionEnd(ToolResultMessage("c1", "bash", "whole")), 1.0)
    assert seen(view, painter)[0] == "✓ bash\n  whole"


def test_an_earlier_conversation_is_shown_from_what_the_user_said_last(painter: Painter) -> None:
    """Answers as markdown, results with the arguments of their calls, diffs whole where they are short, no more."""
    call = ToolCall("c1", "edit_file", {"path": "a.txt", "edits": []})
    diff = "--- a\n+++ a\n@@ -1 +1 @@\n-two\n+TWO\n"
    messages = [
        UserMessage("long ago"),
        AssistantMessage("forgotten", "stop"),
        UserMessage([Text("look"), Image(b"x", "image/png")]),
        AssistantMessage([Text("I **look**."), call], "tool_use"),
        ToolResultMessage("c1", "edit_file", "replaced", details={"diff": diff}),
        AssistantMessage([ToolCall("c2", "bash")], "tool_use"),
        ToolResultMessage("c0", "gone", "of an answer that is not there"),
        CustomMessage("mark", {}),
    ]
    view = View()
    for kind, block in history_blocks(messages):
        view.add(kind, block)
    assert [line for line in seen(view, painter)[0].split("\n") if line] == [
        "› look [1 image]",
        "I look.",
        "✓ edit_file a.txt",
        "  @@ -1 +1 @@",
        "  -two",
        "  +TWO",
        "✓ gone",
        "  of an answer that is not there",
    ]
    assert history_blocks([]) == []


# What else is printed


def test_what_is_printed_comes_as_notes_line_by_line() -> None:
    """A line is told when it has ended, and keeps what was printed of it before."""
    notes: list[str] = []
    above = _Above(notes.append)
    assert above.writable()
    print("one\ntw", end="", file=above)
    assert notes == ["one"]
    print("o", file=above)
    assert notes == ["one", "two"]


@pytest.mark.parametrize("debug", [False, True])
def test_what_is_logged_comes_as_a_note(debug: bool) -> None:
    """One line with its level; with `--debug` the traceback too."""
    notes: list[str] = []

    class Front:
        def note(self, text: str, style: str = "dim") -> None:
            notes.append(text)

    front: Any = Front()
    with _log_as_notes(front, debug=debug):
        logger = logging.getLogger("trio_agent.test")
        logger.warning("without\nan error")
        try:
            raise ValueError("why")
        except ValueError:
            logger.warning("gone wrong", exc_info=True)
    assert notes[:2] == ["warning: without an error", "warning: gone wrong"]
    assert [note.splitlines()[-1] for note in notes[2:]] == ["ValueError: why"] * debug


# The tally


def answer(usage: Usage, model: str = "claude-sonnet-4-5", provider: str = "anthropic") -> MessageEnd:
    return MessageEnd(AssistantMessage("x", usage=usage, model=model, provider=provider))


def test_tokens_and_dollars_add_up_over_runs() -> None:
    """The status has the conversation's, the line at the end of a run its own."""
    tally = Tally(None)
    usage = Usage(input=1000, output=1000, total=2000)
    for _ in range(2):
        tally(AgentStart())
        tally(answer(usage))
        end = AgentEnd("completed", None, 1, usage, time=2.5)
        tally(end)
    assert tally.now() == "4,000 tokens · $0.0360"
    assert tally.of_run(end) == "completed · 1 turn · 2,000 tokens (1,000 in, 1,000 out) · $0.0180 · 2.5 s"


def test_a_cost_that_is_not_known_is_not_invented() -> None:
    """No price: no dollars at all; some prices missing, or a request that is not told of: a lower bound."""
    tally = Tally(None)
    tally(answer(Usage(input=10, output=10, total=20), model="mine", provider="local"))
    assert tally.now() == "20 tokens"
    tally(answer(Usage(input=1000, output=1000, total=2000)))
    assert tally.now() == "2,020 tokens · over $0.0180"
    compacted = Tally(None)
    compacted(answer(Usage(input=1000, output=1000, total=2000)))
    compacted(CompactionEnd("compacted", UserMessage("s"), 1))
    assert compacted.now() == "2,000 tokens · over $0.0180"


def test_without_the_price_list_there_are_tokens_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra `prices` may be missing."""
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    tally = Tally(None)
    tally(answer(Usage(input=1000, output=1000, total=2000)))
    assert tally.now() == "2,000 tokens"
