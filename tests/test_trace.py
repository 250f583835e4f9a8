"""`trio-agent trace`: what it writes is a Chrome trace, by the rules of that format; what goes wrong is one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_files import NASTY, a_run, timed_traces, write_trace

from trio_agent import Event
from trio_agent.__main__ import main
from trio_agent.cli._spans_walk import recording_of
from trio_agent.cli._trace import chrome_json
from trio_agent.testing import check_trace

SCOPES = {"g", "p", "t"}


def written(events: list[Event]) -> list[dict[str, Any]]:
    file = json.loads("".join(chrome_json(recording_of(events), "log")))
    assert set(file) == {"displayTimeUnit", "otherData", "traceEvents"}
    assert file["displayTimeUnit"] in ("ms", "ns")
    return file["traceEvents"]


def validate(events: list[dict[str, Any]]) -> None:
    """The rules of the trace event format that a viewer relies on."""
    named: dict[int, str] = {}
    opened: dict[int, list[dict[str, Any]]] = {}
    busy: dict[int, float] = {}
    for event in events:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        track, phase = event["tid"], event["ph"]
        if phase == "M":
            assert event["name"] in ("process_name", "thread_name", "thread_sort_index")
            assert set(event["args"]) == {"sort_index" if event["name"] == "thread_sort_index" else "name"}
            if event["name"] == "thread_name":
                named[track] = event["args"]["name"]
            continue
        assert isinstance(event["ts"], int | float)
        assert event["ts"] >= 0
        if phase == "B":
            assert not opened.get(track) or event["ts"] >= opened[track][-1]["ts"]
            opened.setdefault(track, []).append(event)
        elif phase == "E":
            begun = opened[track].pop()
            assert begun["name"] == event["name"]
            assert begun["ts"] <= event["ts"]
        elif phase == "X":
            assert event["dur"] >= 0
            assert event["ts"] >= busy.get(track, 0.0), "complete events of one track overlap"
            busy[track] = round(event["ts"] + event["dur"], 3)
        elif phase == "i":
            assert event["s"] in SCOPES
        else:
            assert phase == "C"
            assert all(isinstance(value, int) for value in event["args"].values())
    assert not any(opened.values()), "a beginning has no end"
    assert {event["tid"] for event in events if event["ph"] != "M"} <= set(named)
    assert len(set(named.values())) == len(named)


@settings(max_examples=60)
@given(timed_traces(), st.data())
def test_any_trace_cut_anywhere_makes_a_lawful_file(events: list[Event], data: st.DataObject) -> None:
    """Beginnings and ends are balanced and nested, tracks are named, no two complete events of a track overlap."""
    validate(written(events[: data.draw(st.integers(1, len(events)))]))


def test_the_run_that_these_tests_share_is_lawful() -> None:
    """So what is drawn and shown of it is what a kernel may emit."""
    assert check_trace(a_run(), complete=True) == []


def test_everything_of_a_run_is_on_its_track_in_microseconds() -> None:
    """Runs and turns, requests with the time to first token, waits, tools, and what took no time."""
    events = written(a_run())
    validate(events)
    told = [(e["tid"], e["ph"], e["name"], e["ts"]) for e in events if e["ph"] not in "ME"]
    assert told == [
        (1, "B", "run 1", 0.0),
        (1, "B", "turn 1", 0.0),
        (1, "B", "turn 2", 8e6),
        (2, "B", "request", 0.0),
        (2, "B", "waiting for the first token", 0.0),
        (2, "B", "request", 3e6),
        (2, "B", "waiting for the first token", 3e6),
        (2, "B", "demo", 4e6),
        (2, "B", "waiting for the first token", 4e6),
        (2, "B", "streaming", 5e6),
        (2, "C", "tokens", 6e6),
        (2, "B", "request", 8e6),
        (2, "B", "waiting for the first token", 8e6),
        (2, "B", "streaming", 9e6),
        (3, "X", "retry 1 of 4", 1e6),
        (3, "X", "compaction (overflow)", 3.5e6),
        (10, "X", "read", 6e6),
        (11, "X", NASTY, 6e6),
        (11, "i", "update", 6.5e6),
        (1, "i", "prompt", 0.0),
        (1, "i", "queued message", 8e6),
        (1, "i", "abort", 10e6),
    ]
    demo = next(event for event in events if event["name"] == "demo")
    assert demo["args"]["time to first token (ms)"] == 1000.0
    assert demo["args"]["outcome"] == "tool_use"
    read = next(event for event in events if event["name"] == "read")
    assert read["dur"] == 2e6
    assert read["args"]["arguments"] == '{"path":"a.txt"}'


def test_a_trace_goes_to_the_file_that_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And to stdout where none is; both are the same JSON."""
    log = write_trace(tmp_path / "run.jsonl", a_run())
    assert main(["trace", str(log), "-o", str(tmp_path / "out.json")]) == 0
    assert capsys.readouterr().out == ""
    assert main(["trace", str(log)]) == 0
    assert capsys.readouterr().out == (tmp_path / "out.json").read_text("utf-8")


def test_a_session_makes_a_trace_too(tmp_path: Path) -> None:
    """Its runs, turns and calls are there; the starts that it does not have are said to be missing."""
    log = tmp_path / "talk.session"
    kept = [event for event in a_run() if event.type not in ("message_start", "message_update", "turn_end")]
    kept = [event for event in kept if event.type != "tool_execution_start"]
    write_trace(log, kept)
    log.write_text('{"type":"session","version":1}\n' + log.read_text("utf-8"), "utf-8")
    assert main(["trace", str(log), "-o", str(tmp_path / "out.json")]) == 0
    events = json.loads((tmp_path / "out.json").read_text("utf-8"))["traceEvents"]
    validate(events)
    assert [e["args"].get("start") for e in events if e["ph"] == "X" and e["tid"] >= 10] == ["not in the log"] * 2


def test_a_bad_line_is_told_with_its_number_and_the_rest_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is passed over silently, and nothing good is lost to what is bad."""
    log = write_trace(tmp_path / "run.jsonl", a_run())
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:4], b"{garbage\n", b'"text"\n', *lines[4:]]) + b'{"type":"agent_st')
    assert main(["trace", str(log), "-o", str(tmp_path / "out.json")]) == 0
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(": line ")[2].partition(":")[0] for line in told] == ["5", "6", str(len(lines) + 3)]
    assert "torn off" in told[-1]
    events = json.loads((tmp_path / "out.json").read_text("utf-8"))["traceEvents"]
    assert [event for event in events if event["ph"] != "M"] == [e for e in written(a_run()) if e["ph"] != "M"]


@pytest.mark.parametrize("command", ["trace", "timeline", "show", "replay"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file or directory"),
        (b"", "neither a session nor a trace: it is empty"),
        (b"\n\n", "neither a session nor a trace: it is empty"),
        (b"just words\n" * 5, "neither a session nor a trace: line 1: not JSON"),
        (bytes(range(128, 256)) * 9 + b"\n", "neither a session nor a trace: line 1: not UTF-8"),
        (b'{"a":1}\n' * 5_000, "neither a session nor a trace: line 1: no record that this version knows"),
        (b'{"type":"session","version":9}\n', "the session has format 9, and this version of trio_agent reads up to 1"),
    ],
)
def test_what_is_no_log_is_one_line_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, content: bytes | None, said: str
) -> None:
    """Exit code 2, the name of the file, and what is wrong with it."""
    log = tmp_path / "log"
    if content is not None:
        log.write_bytes(content)
    assert main([command, str(log)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert said in told.err
    assert str(log) in told.err


@pytest.mark.parametrize("command", ["trace", "timeline"])
def test_history_without_a_run_cannot_be_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """A session that was made of messages has no run yet."""
    log = tmp_path / "fork.session"
    log.write_text('{"type":"session","version":1}\n')
    assert main([command, str(log)]) == 2
    assert "has no run in it" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["trace", "timeline"])
def test_the_log_is_never_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    """Not under another name either, such as a symbolic link."""
    log = write_trace(tmp_path / "run.svg", a_run())
    before = log.read_bytes()
    (tmp_path / "link.svg").symlink_to(log)
    for output in (log, tmp_path / "link.svg", tmp_path / "." / "run.svg"):
        assert main([command, str(log), "-o", str(output)]) == 2
        assert "is the log itself" in capsys.readouterr().err
    assert log.read_bytes() == before


@pytest.mark.parametrize("command", ["trace", "timeline"])
def test_an_output_that_cannot_be_written_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """It names the file and the reason."""
    log = write_trace(tmp_path / "run.jsonl", a_run())
    assert main([command, str(log), "-o", str(tmp_path / "no" / "out.svg")]) == 2
    assert "out.svg cannot be written: No such file or directory" in capsys.readouterr().err
