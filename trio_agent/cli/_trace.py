"""`trio-agent trace LOG`: Chrome trace events, as Perfetto and chrome://tracing open them.

Here lives the format: which span is on which track, and what an event of that format has. What happened when is in
`_spans.py`. Timestamps are microseconds; where a log has no times, a millisecond stands for each event.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any, Final

from ._log import LogParser, events_of, opened, read_log, write_output
from ._spans import Mark, Recording, Span, in_lanes
from ._spans_walk import recording_of
from ._usage import UsageError

_PROCESS: Final = 1
_RUNS, _MODEL, _WAITS, _TOOLS = 1, 2, 3, 10
_NAMES: Final = {_RUNS: "runs and turns", _MODEL: "model", _WAITS: "retries and compaction"}
_SCOPES: Final = {"prompt": "t", "queued": "t", "abort": "p", "late update": "t"}
_OUTCOME: Final = "outcome"


def trace(argv: Sequence[str]) -> int:
    """Write the trace events of a log. Raises `UsageError` for a log without a run."""
    parser = LogParser("trace", "Turn a log into Chrome trace events; open the file in ui.perfetto.dev.")
    parser.add_output()
    options = parser.parse_args(argv)
    with opened(options.log) as file:
        recording = recording_of(events_of(read_log(file, options.log), options.log))
    if not recording.spans:
        raise UsageError(f"{options.log} has no run in it; a trace needs one")
    write_output(chrome_json(recording, options.log), options.output, options.log)
    return 0


def chrome_json(recording: Recording, log: str) -> Iterator[str]:
    """The text of the file, one trace event on each line."""
    yield '{"displayTimeUnit":"ms","otherData":'
    yield json.dumps({"log": PurePath(log).name, "timed": recording.timed, "events": recording.events})
    yield ',"traceEvents":[\n'
    comma = ""
    for event in trace_events(recording, log):
        yield comma + json.dumps(event, separators=(",", ":"))
        comma = ",\n"
    yield "\n]}\n"


def trace_events(recording: Recording, log: str) -> Iterator[dict[str, Any]]:
    """The trace events, track by track, each track in the order of time."""
    scale = 1e6 if recording.timed else 1e3
    tools = in_lanes(recording.of("tool"))
    yield from _metadata(f"trio-agent {PurePath(log).name}", len(tools))
    yield from _nested(recording, scale)
    for span in recording.of("request"):
        yield from _request(span, scale)
    for span in recording.of("retry", "compaction"):
        yield _complete(span, _WAITS, scale)
    for lane, spans in enumerate(tools):
        for span in spans:
            yield _complete(span, _TOOLS + lane, scale)
            yield from [_instant("update", "tool", at * scale, _TOOLS + lane, "t", {}) for at in span.updates]
    for mark in recording.marks:
        yield _mark(mark, scale)


def _metadata(process: str, tools: int) -> Iterator[dict[str, Any]]:
    yield {"name": "process_name", "ph": "M", "pid": _PROCESS, "tid": 0, "args": {"name": process}}
    tracks = {**_NAMES, **{_TOOLS + lane: f"tools {lane + 1}" for lane in range(tools)}}
    for order, (track, name) in enumerate(tracks.items()):
        for kind, args in (("thread_name", {"name": name}), ("thread_sort_index", {"sort_index": order})):
            yield {"name": kind, "ph": "M", "pid": _PROCESS, "tid": track, "args": args}


def _nested(recording: Recording, scale: float) -> Iterator[dict[str, Any]]:
    """Runs and the turns in them, as beginnings and ends."""
    around: list[Span] = []
    for span in recording.of("run", "turn"):
        while around and around[-1].last < span.first:
            yield _end(around.pop(), _RUNS, scale)
        around.append(span)
        yield _begin(span.name, span.kind, span.start, _RUNS, scale, _args(span))
    while around:
        yield _end(around.pop(), _RUNS, scale)


def _request(span: Span, scale: float) -> Iterator[dict[str, Any]]:
    """A request, in it the wait for the first token and the streaming, and its tokens as a counter."""
    token = span.end if span.token is None else span.token
    args = _args(span)
    if span.token is not None and not span.inferred:
        args["time to first token (ms)"] = _rounded((token - span.start) * scale / 1000)
    yield _begin(span.name, span.kind, span.start, _MODEL, scale, args)
    phases = [("waiting for the first token", span.start, token)]
    if span.token is not None:
        phases.append(("streaming", token, span.end))
    for name, start, end in phases:
        yield _begin(name, "phase", start, _MODEL, scale, {})
        yield _event("E", name, "phase", end * scale, _MODEL)
    yield _end(span, _MODEL, scale)
    counts = {"in": span.usage.input, "out": span.usage.output}
    known = {name: count for name, count in counts.items() if count is not None}
    if known:
        yield {**_event("C", "tokens", "usage", span.end * scale, _MODEL), "args": known}


def _event(phase: str, name: str, category: str, at: float, track: int) -> dict[str, Any]:
    return {"name": name, "cat": category, "ph": phase, "ts": _rounded(at), "pid": _PROCESS, "tid": track}


def _begin(name: str, category: str, at: float, track: int, scale: float, args: dict[str, Any]) -> dict[str, Any]:
    return {**_event("B", name, category, at * scale, track), "args": args}


def _end(span: Span, track: int, scale: float) -> dict[str, Any]:
    return _event("E", span.name, span.kind, span.end * scale, track)


def _complete(span: Span, track: int, scale: float) -> dict[str, Any]:
    start, end = _rounded(span.start * scale), _rounded(span.end * scale)
    duration = _rounded(end - start)
    return {**_event("X", span.name, span.kind, span.start * scale, track), "dur": duration, "args": _args(span)}


def _instant(name: str, kind: str, at: float, track: int, scope: str, args: dict[str, Any]) -> dict[str, Any]:
    return {**_event("i", name, kind, at, track), "s": scope, "args": args}


def _mark(mark: Mark, scale: float) -> dict[str, Any]:
    name = {"queued": "queued message"}.get(mark.kind, mark.kind)
    return _instant(name, "mark", mark.at * scale, _RUNS, _SCOPES[mark.kind], {"text": mark.text})


def _args(span: Span) -> dict[str, Any]:
    args: dict[str, Any] = {_OUTCOME: "cut off" if span.outcome is None else span.outcome}
    if span.inferred:
        args["start"] = "not in the log"
    return {**args, **dict(span.notes)}


def _rounded(number: float) -> float:
    """To a nanosecond, which is more than a clock has and keeps the text short."""
    return round(number, 3)
