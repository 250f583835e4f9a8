"""A picture of a recording as SVG: one file that needs no other, in light and dark as the reader's system has it.

Here live the elements and the style sheet. Where each thing goes is decided in `_timeline_layout.py`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from ._log import visible
from ._timeline_layout import GAP, LANE, RULER, Box, Flag, Layout, Row
from ._timeline_words import fitted

LABELS: Final = 150  # pixels for the names of the rows
_HEAD: Final = 34
_LEGEND: Final = 34
_MARGIN: Final = 16
_BAR: Final = LANE - 4

STYLE: Final = """\
:root{color-scheme:light dark}
.tl{--bg:#ffffff;--fg:#1f2328;--dim:#59636e;--grid:#e3e7eb;--run:#d8dee4;--turn:#bcd7f7;--ask:#ece6fb;--stream:#c5b3f4;
--edge:#6639ba;--retry:#f6d98b;--compaction:#f3c1dd;--bad:#c4232b;--badfill:#f9c4c0;--late:#bc4c00;
--h0:#a6dfb3;--h1:#9ddbe6;--h2:#f8c79b;--h3:#c9cff5;--h4:#d9e39a;--h5:#eebfd0}
@media (prefers-color-scheme:dark){.tl{--bg:#0d1117;--fg:#e6edf3;--dim:#9198a1;--grid:#262c34;--run:#30363d;
--turn:#1b4472;--ask:#29223f;--stream:#553a99;--edge:#c297ff;--retry:#6b5200;--compaction:#702e54;--bad:#ff7b72;--badfill:#6e2126;
--late:#f0883e;--h0:#1f5a32;--h1:#155563;--h2:#6d4114;--h3:#3a4283;--h4:#4c5412;--h5:#6b2f45}}
.tl{font:11px system-ui,"Segoe UI","DejaVu Sans",sans-serif;fill:var(--fg)}
.tl .bg{fill:var(--bg)}.tl .head{font-size:14px;font-weight:600}.tl .dim{fill:var(--dim)}
.tl .grid{stroke:var(--grid)}.tl .seam{stroke:var(--dim);stroke-dasharray:2 3}
.tl .run{fill:var(--run)}.tl .turn{fill:var(--turn)}.tl .request{fill:var(--ask);stroke:var(--stream)}
.tl .stream{fill:var(--stream)}.tl .wait{fill:var(--retry)}.tl .compaction{fill:var(--compaction)}
.tl .hue0{fill:var(--h0)}.tl .hue1{fill:var(--h1)}.tl .hue2{fill:var(--h2)}
.tl .hue3{fill:var(--h3)}.tl .hue4{fill:var(--h4)}.tl .hue5{fill:var(--h5)}
.tl .many{stroke:var(--dim);stroke-dasharray:1 1}
.tl .tool.failed{fill:var(--badfill)}.tl .failed{stroke:var(--bad)}
.tl .inferred{fill-opacity:.6}.tl .cut{stroke:var(--bad);stroke-dasharray:4 3}
.tl .token{stroke:var(--edge);stroke-width:2}.tl .tick{stroke:var(--fg);stroke-opacity:.45}
.tl .prompt{fill:var(--edge)}.tl .queued{fill:var(--dim)}.tl .late{fill:var(--late)}
.tl text.abort{fill:var(--bad);font-weight:600}.tl line.abort{stroke:var(--bad);stroke-width:1.5;stroke-dasharray:5 3}
"""

# What a sample of the legend looks like, and what it means.
_SAMPLES: Final = (
    ("request", "request, before its first token"),
    ("stream", "streaming"),
    ("wait", "waiting to retry"),
    ("compaction", "compaction"),
    ("tool hue0", "tool"),
    ("tool failed", "failed"),
    ("run cut", "cut off"),
    ("tool hue0 inferred", "start not in the log"),
    ("run many", "several together"),
)


def svg(layout: Layout, head: str) -> Iterator[str]:
    """The whole picture as one SVG document."""
    width = LABELS + layout.width + 2 * _MARGIN
    height = _HEAD + layout.height + _LEGEND
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tl" width="{_n(width)}" height="{_n(height)}" '
        f'viewBox="0 0 {_n(width)} {_n(height)}" role="img">\n<title>{_text(head)}</title>\n<style>\n{STYLE}</style>\n'
        f'<rect class="bg" width="100%" height="100%"/>\n'
        f'<text class="head" x="{_MARGIN}" y="22">{_text(head)}</text>\n<g transform="translate({_MARGIN} {_HEAD})">\n'
    )
    yield from names(layout)
    yield f'</g>\n<g transform="translate({LABELS + _MARGIN} {_HEAD})">\n'
    yield from plot(layout)
    yield f'</g>\n<g transform="translate({_MARGIN} {_n(_HEAD + layout.height + 6)})">\n'
    yield from legend()
    yield "</g>\n</svg>\n"


def part(elements: Iterator[str], width: float, height: float, *, left: float = 0.0) -> Iterator[str]:
    """Some of the elements as an SVG of their own, for a page that has the style sheet."""
    size = f'width="{_n(width)}" height="{_n(height)}"'
    yield f'<svg class="tl" {size} viewBox="{_n(-left)} 0 {_n(width)} {_n(height)}">\n'
    yield from elements
    yield "</svg>\n"


def names(layout: Layout) -> Iterator[str]:
    """The names of the rows."""
    yield _label("messages", RULER + LANE / 2)
    for row in layout.rows:
        yield _label(row.name, row.y + LANE / 2)


def plot(layout: Layout) -> Iterator[str]:
    """All that has a time."""
    for x, text in layout.ticks:
        yield f'<line class="grid" x1="{_n(x)}" x2="{_n(x)}" y1="{RULER - 6}" y2="{_n(layout.height - GAP)}"/>'
        yield f'<text class="dim" x="{_n(x)}" y="{RULER - 11}">{_text(text)}</text>\n'
    for x in layout.seams:
        yield f'<line class="seam" x1="{_n(x)}" x2="{_n(x)}" y1="{RULER}" y2="{_n(layout.height - GAP)}">'
        yield "<title>another run; how long the agent was idle before it is not in the log</title></line>\n"
    for row in layout.rows:
        yield from _row(row)
    for flag in layout.flags:
        yield _flag(flag, layout)


def legend() -> Iterator[str]:
    x = 0.0
    for style, text in _SAMPLES:
        yield f'<rect class="{style}" x="{_n(x + 0.5)}" y="4.5" width="16" height="11" rx="2"/>'
        yield f'<text class="dim" x="{_n(x + 22)}" y="14">{_text(text)}</text>\n'
        x += 38 + 5.7 * len(text)
    yield f'<line class="token" x1="{_n(x)}" x2="{_n(x)}" y1="3" y2="17"/>'
    yield f'<text class="dim" x="{_n(x + 8)}" y="14">first token</text>\n'


def _label(name: str, middle: float) -> str:
    return f'<text y="{_n(middle + 4)}">{_text(fitted(name, LABELS - 4))}<title>{_text(name)}</title></text>\n'


def _row(row: Row) -> Iterator[str]:
    for number, lane in enumerate(row.lanes):
        for box in lane:
            yield _box(box, row.y + number * LANE + 2)


def _box(box: Box, y: float) -> str:
    parts = [f"<g><title>{_text(box.title)}</title>", _bar(box.style, box.x, box.width, y)]
    text = box.x
    if box.token is not None:
        text = box.token
        parts.append(_bar("stream" + (" failed" if " failed" in box.style else ""), text, box.x + box.width - text, y))
        parts.append(_line("token", text, y - 1, y + _BAR + 1))
    parts += [_line("tick", x, y + _BAR - 5, y + _BAR - 1) for x in box.ticks]
    if box.text:
        parts.append(f'<text x="{_n(text + 5)}" y="{_n(y + 13)}">{_text(box.text)}</text>')
    return "".join([*parts, "</g>\n"])


def _bar(style: str, x: float, width: float, y: float) -> str:
    return f'<rect class="{style}" x="{_n(x)}" y="{_n(y)}" width="{_n(max(width, 0.5))}" height="{_BAR}" rx="2"/>'


def _line(style: str, x: float, top: float, bottom: float) -> str:
    return f'<line class="{style}" x1="{_n(x)}" x2="{_n(x)}" y1="{_n(top)}" y2="{_n(bottom)}"/>'


def _flag(flag: Flag, layout: Layout) -> str:
    parts = [f"<g><title>{_text(flag.title)}</title>"]
    if flag.tall:
        parts.append(_line(flag.style, flag.x, RULER, layout.height - GAP))
    else:
        points = f"{_n(flag.x - 4)},{RULER + 4} {_n(flag.x + 4)},{RULER + 4} {_n(flag.x)},{RULER + LANE - 4}"
        parts.append(f'<polygon class="{flag.style}" points="{points}"/>')
    if flag.text:
        style = flag.style if flag.tall else "dim"
        left = flag.tall and flag.x > layout.width - 60  # where there is no room on the right
        place = f'x="{_n(flag.x - 6)}" text-anchor="end"' if left else f'x="{_n(flag.x + 6)}"'
        parts.append(f'<text class="{style}" {place} y="{RULER + 15}">{_text(flag.text)}</text>')
    return "".join([*parts, "</g>\n"])


def _text(text: str) -> str:
    return escape(visible(text), quote=True)


def _n(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")
