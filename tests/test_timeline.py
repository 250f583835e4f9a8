"""`trio-agent timeline`: well-formed, self-contained, escaped, readable in light and dark, and of bounded size."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_files import a_run, timed_traces, write_trace

from trio_agent import (
    AgentEnd,
    AgentStart,
    Event,
    Text,
    ToolCall,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResultMessage,
)
from trio_agent import TurnStart as Turn
from trio_agent.__main__ import main
from trio_agent.cli._spans_walk import recording_of
from trio_agent.cli._timeline import page, picture
from trio_agent.cli._timeline_layout import layout_of
from trio_agent.cli._timeline_words import fitted, spoken, ticks_of

SVG = "{http://www.w3.org/2000/svg}"


def drawn(events: list[Event]) -> ET.Element:
    return ET.fromstring("".join(picture(recording_of(events), "log.jsonl")))


def texts(root: ET.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def titles(root: ET.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}title")]


@settings(max_examples=60)
@given(timed_traces(), st.data())
def test_any_trace_cut_anywhere_is_a_well_formed_picture(events: list[Event], data: st.DataObject) -> None:
    """Every bar lies within the picture, and every number in it is one."""
    events = events[: data.draw(st.integers(1, len(events)))]
    layout = layout_of(recording_of(events))
    for row in layout.rows:
        assert row.y + row.height <= layout.height
        for lane in row.lanes:
            assert all(box.x >= 0 and box.x + box.width <= layout.width + 2 for box in lane)
    root = drawn(events)
    bars = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") != "bg"]
    assert all(math.isfinite(float(rect.attrib[name])) for rect in bars for name in ("x", "y", "width", "height"))


def test_a_run_has_its_lanes_its_marks_and_titles_to_hover() -> None:
    """Turns, requests with the first token marked, waits, each tool, messages and the abort."""
    root = drawn(a_run())
    told = "\n".join(titles(root))
    for words in (
        "log.jsonl: 1 run, 2 turns, 2 tool calls (1 failed), 1 retry, 10.00 s, 15 tokens",
        "turn 1: tool_use\n8.00 s, from 0 s on",
        "demo: tool_use\n2.00 s, from 4.00 s on\nfirst token after 1.00 s",
        "retry 1 of 4: resumed",
        "compaction (overflow): compacted",
        'read: ok\n2.00 s, from 6.00 s on\narguments: {"path":"a.txt"}',
        "queued at 8.00 s: and b",
        "abort at 10.00 s\nenough",
    ):
        assert words in told
    assert {"runs", "turns", "model", "waits", "read", "a.txt", "✗ abort"} <= set(texts(root))
    assert len(root.findall(f".//{SVG}line[@class='token']")) == 2 + 1  # one of them in the legend


def test_a_page_of_a_run_without_tools_has_no_table() -> None:
    """There would be nothing in it."""
    text = "".join(page(recording_of([AgentStart(), Turn(1), AgentEnd("completed", time=1.0)]), "log.jsonl"))
    assert "<table>" not in text
    assert text.endswith("</body>\n</html>\n")


def test_what_began_before_the_log_says_so() -> None:
    """A call whose start is not in the log is drawn as such, from where it was first heard of."""
    late = ToolExecutionUpdate("c1", "bash", (Text("half"),), time=1.0)
    ended = ToolExecutionEnd(ToolResultMessage("c1", "bash", "x"), time=3.0)
    root = drawn([AgentStart(), late, ended, AgentEnd("completed", time=4.0)])
    assert "bash: ok\n2.00 s, from 1.00 s on\nits start is not in the log" in "\n".join(titles(root))
    assert [
        one for one in root.iter(f"{SVG}rect") if "tool" in one.get("class", "") and "inferred" in one.attrib["class"]
    ]


def test_arguments_are_shown_as_they_came_and_reports_as_far_as_they_can_be_told_apart() -> None:
    """What is no JSON, or no object, is shown too; of reports that lie on top of each other one is drawn."""
    events: list[Event] = [AgentStart()]
    for n, raw in enumerate(("not JSON", "[1]", '{"a":1}')):
        call = ToolCall(f"c{n}", f"tool{n}", raw=raw)
        reports = [ToolExecutionUpdate(call.id, call.name, (Text("x"),), time=n + at) for at in (0.2, 0.2001, 0.6)]
        result = ToolResultMessage(call.id, call.name, "x")
        events += [ToolExecutionStart(call, time=float(n)), *reports, ToolExecutionEnd(result, time=n + 1.0)]
    recording = recording_of([*events, AgentEnd("completed", time=3.0)])
    assert {"not JSON", "[1]", '"a":1'} <= set(texts(drawn([*events, AgentEnd("completed", time=3.0)])))
    boxes = [
        box for row in layout_of(recording).rows if row.name.startswith("tool") for lane in row.lanes for box in lane
    ]
    assert [len(box.ticks) for box in boxes] == [2, 2, 2]


@pytest.mark.parametrize("suffix", ["svg", "html"])
def test_the_file_needs_no_other_and_says_nothing_that_a_browser_would_run(tmp_path: Path, suffix: str) -> None:
    """No resource from outside, no script, no control character, whatever the model, the tools and the user said."""
    log = write_trace(tmp_path / "run.jsonl", a_run())
    out = tmp_path / f"out.{suffix}"
    assert main(["timeline", str(log), "-o", str(out)]) == 0
    text = out.read_text("utf-8")
    outside = text.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|url\(|@import|<script|<link|<img|<iframe|href|src=| on[a-z]+=", outside)
    assert "&lt;script&gt;" in text
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "prefers-color-scheme:dark" in text
    if suffix == "svg":
        ET.fromstring(text)


def test_the_page_is_balanced_and_has_a_table_of_the_tools() -> None:
    """Every element is closed, and each tool has its calls, failures and times."""
    text = "".join(page(recording_of(a_run()), "log.jsonl"))
    depth: list[str] = []

    class Balance(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag != "meta":
                depth.append(tag)

        def handle_startendtag(self, tag: str, attrs: object) -> None:
            pass

        def handle_endtag(self, tag: str) -> None:
            assert depth.pop() == tag

    Balance().feed(text)
    assert depth == []
    assert "<td>read</td><td>1</td><td>0</td><td>2.00 s</td><td>2.00 s</td>" in text


def many(calls: int, *, tools: int = 1) -> list[Event]:
    """One run of so many turns, each with one call of half a millisecond."""
    events: list[Event] = [AgentStart()]
    for n in range(calls):
        call = ToolCall(f"c{n}", f"tool{n % tools}", {"n": n})
        events.append(Turn(n + 1, time=n * 0.001))
        events.append(ToolExecutionStart(call, time=n * 0.001))
        events.append(
            ToolExecutionEnd(ToolResultMessage(call.id, call.name, "x", n % 999 == 0), time=n * 0.001 + 0.0005)
        )
    return [*events, AgentEnd("completed", time=calls * 0.001)]


def test_a_long_run_makes_a_picture_of_bounded_size_in_which_no_call_is_lost() -> None:
    """What is too thin to see alone is drawn together, and says how many it is and how many of them failed."""
    layout = layout_of(recording_of(many(20_000)))
    assert layout.width <= 6_000
    (row,) = [row for row in layout.rows if row.name == "tool0"]
    boxes = [box for lane in row.lanes for box in lane]
    assert len(boxes) < layout.width
    counts = [int(found[1]) if (found := re.match(r"(\d+) × tool0", box.title)) else 1 for box in boxes]
    assert sum(counts) == 20_000
    assert sum("failed" in box.style for box in boxes) >= 1


def test_many_tools_share_a_row_and_many_calls_at_once_share_a_lane() -> None:
    """Eleven tools have rows, the others one together; ten calls of one tool have lanes, the others one together."""
    rows = [row.name for row in layout_of(recording_of(many(100, tools=40))).rows]
    assert rows[:3] == ["runs", "turns", "model"]
    assert len(rows) == 3 + 12
    assert rows[-1] == "29 others"
    starts: list[Event] = [ToolExecutionStart(ToolCall(f"c{n}", "bash", {}), time=float(n)) for n in range(50)]
    layout = layout_of(recording_of([AgentStart(), *starts, AgentEnd("completed", time=60.0)]))
    assert len(layout.rows[-1].lanes) == 10


def test_a_log_without_times_is_drawn_by_its_events() -> None:
    """The scale counts events, and the head says that there are no times."""
    events = [AgentStart(), Turn(1), Turn(2), AgentEnd("completed")]
    assert texts(drawn(events))[0] == "log.jsonl: 1 run, 2 turns, 4 events without times"
    assert [text for _, text in ticks_of(recording_of(events), 1_000)] == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.0004, "0.4 ms"), (0.25, "250 ms"), (3.14159, "3.14 s"), (75, "1 min 15 s"), (7_260, "2 h 01 min")],
)
def test_times_are_told_as_people_read_them(seconds: float, text: str) -> None:
    """The unit follows the size."""
    assert spoken(seconds) == text


def test_text_is_cut_to_the_room_there_is() -> None:
    """Wide letters take the room of two, and a scrap is left out."""
    assert fitted("hello", 100) == "hello"
    assert fitted("hello, world of tools", 60) == "hello,…"
    assert fitted("漢字漢字漢字漢字", 80) == "漢字漢字…"
    assert fitted("hello", 20) == ""


def test_an_output_that_is_no_picture_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is read or written."""
    log = write_trace(tmp_path / "run.jsonl", a_run())
    assert main(["timeline", str(log), "-o", str(tmp_path / "out.png")]) == 2
    assert "name it .svg or .html" in capsys.readouterr().err
    assert not (tmp_path / "out.png").exists()
