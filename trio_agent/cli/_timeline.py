"""`trio-agent timeline LOG`: a picture of what a log tells, as swim-lanes in SVG, or in a page with a table.

Here live the command and the page. Where things go is in `_timeline_layout.py`, the drawing in `_timeline_svg.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import PurePath
from typing import Final

from .._messages import NO_USAGE
from ._log import LogParser, events_of, opened, read_log, visible, write_output
from ._spans import Recording, Span
from ._spans_walk import recording_of
from ._timeline_layout import layout_of
from ._timeline_svg import LABELS, STYLE, legend, names, part, plot, svg
from ._timeline_words import spoken
from ._usage import UsageError

_LEFT: Final = 8.0  # room for what is at the very start

_PAGE: Final = """\
body{margin:16px;font:14px system-ui,"Segoe UI","DejaVu Sans",sans-serif;background:#ffffff;color:#1f2328}
h1{font-size:18px;margin:0 0 12px}.scroll{display:flex;overflow-x:auto}.scroll svg{flex:none}
.names{position:sticky;left:0;background:#ffffff;border-right:1px solid #d1d9e0}
table{border-collapse:collapse;margin:16px 0}td,th{padding:3px 14px 3px 0;text-align:right;font-weight:400}
th{color:#59636e;border-bottom:1px solid #d1d9e0}td:first-child,th:first-child{text-align:left}
@media (prefers-color-scheme:dark){body,.names{background:#0d1117;color:#e6edf3}th{color:#9198a1}
th,.names{border-color:#3d444d}}
"""


def timeline(argv: Sequence[str]) -> int:
    """Draw a log. Raises `UsageError` for a log without a run, and for an output that is neither SVG nor HTML."""
    parser = LogParser("timeline", "Draw what a log tells as swim-lanes. The file needs no other, nor a network.")
    parser.add_output()
    options = parser.parse_args(argv)
    suffix = PurePath(options.output or "-.svg").suffix.lower()
    if options.output != "-" and suffix not in (".svg", ".html", ".htm"):
        raise UsageError(f"{options.output} is to be a picture; name it .svg or .html")
    with opened(options.log) as file:
        recording = recording_of(events_of(read_log(file, options.log), options.log))
    if not recording.spans:
        raise UsageError(f"{options.log} has no run in it; a picture needs one")
    draw = page if suffix in (".html", ".htm") else picture
    write_output(draw(recording, options.log), options.output, options.log)
    return 0


def picture(recording: Recording, log: str) -> Iterator[str]:
    """The text of an SVG file."""
    return svg(layout_of(recording), headline(recording, log))


def page(recording: Recording, log: str) -> Iterator[str]:
    """The text of an HTML file: the picture, its names in sight while it is scrolled, and a table of the tools."""
    layout = layout_of(recording)
    head = escape(visible(headline(recording, log)))
    yield f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{head}</title>\n'
    yield '<meta name="color-scheme" content="light dark">\n'
    yield f"<style>\n{_PAGE}{STYLE}</style>\n</head>\n<body>\n<h1>{head}</h1>\n"
    yield '<div class="scroll"><div class="names">\n'
    yield from part(names(layout), LABELS, layout.height)
    yield "</div>\n"
    yield from part(plot(layout), layout.width + 2 * _LEFT + 40, layout.height, left=_LEFT)
    yield "</div>\n"
    yield '<div class="scroll">\n'
    yield from part(legend(), 1_400, 24)
    yield "</div>\n"
    yield from _table(recording)
    yield "</body>\n</html>\n"


def headline(recording: Recording, log: str) -> str:
    """What it is, and how much of it: runs, turns, calls, time, tokens."""
    counts = [_count(len(recording.of("run")), "run"), _count(len(recording.of("turn")), "turn")]
    tools, retries = recording.of("tool"), recording.of("retry")
    if tools:
        failed = sum(span.failed for span in tools)
        counts.append(_count(len(tools), "tool call") + (f" ({failed} failed)" if failed else ""))
    if retries:
        counts.append("1 retry" if len(retries) == 1 else f"{len(retries)} retries")
    counts.append(spoken(recording.duration) if recording.timed else f"{recording.events} events without times")
    if (tokens := _tokens(recording)) is not None:
        counts.append(f"{tokens:,} tokens")
    return f"{PurePath(log).name}: {', '.join(counts)}"


def _tokens(recording: Recording) -> int | None:
    return sum([span.usage for span in recording.of("run")], NO_USAGE).known_total


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _table(recording: Recording) -> Iterator[str]:
    groups: dict[str, list[Span]] = {}
    for span in recording.of("tool"):
        groups.setdefault(span.name, []).append(span)
    if not groups:
        return
    yield "<table>\n<tr><th>tool</th><th>calls</th><th>failed</th><th>in all</th><th>longest</th></tr>\n"
    for name, spans in sorted(groups.items(), key=lambda group: -sum(span.duration for span in group[1])):
        times = [span.duration for span in spans]
        cells = [
            str(len(spans)),
            str(sum(span.failed for span in spans)),
            *map(_length(recording), (sum(times), max(times))),
        ]
        yield f"<tr><td>{escape(visible(name))}</td>{''.join([f'<td>{cell}</td>' for cell in cells])}</tr>\n"
    yield "</table>\n"


def _length(recording: Recording) -> Callable[[float], str]:
    return spoken if recording.timed else lambda number: f"{number:.0f} events"
