"""From rich's renderables to lines for a terminal, in a width of one's choice.

Here lives the use of rich for the conversation. Whatever a text holds, no control character leaves this module.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable
from typing import ClassVar, Final

from rich.color import ColorSystem
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.segment import Segment
from rich.style import Style
from rich.theme import Theme

from ._chat_text import shown

_SYSTEMS: Final = {
    "standard": ColorSystem.STANDARD,
    "256": ColorSystem.EIGHT_BIT,
    "truecolor": ColorSystem.TRUECOLOR,
}
# The sixteen colours, which a terminal has in a light and a dark form, and no background but its own.
_THEME: Final = Theme({"markdown.code": "cyan", "markdown.code_block": "cyan", "markdown.h1": "bold underline"})
_NARROWEST: Final = 10


class _Heading(Heading):
    """A heading where a reader's eye is: at the left."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Markdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": _Heading}


def markdown(text: str) -> Markdown:
    """Markdown that a model wrote. Links show where they lead, instead of hiding it."""
    light = os.environ.get("COLORFGBG", "").endswith((";15", ";7"))
    return _Markdown(text, code_theme="ansi_light" if light else "ansi_dark", hyperlinks=False)


class Painter:
    """Paints for the terminal that stdout is."""

    def __init__(self) -> None:
        real = Console(file=sys.__stdout__)
        self._system = None if real.no_color else _SYSTEMS.get(real.color_system or "")
        self._console = Console(
            file=io.StringIO(), force_terminal=True, color_system="truecolor", theme=_THEME, highlight=False
        )

    def lines(self, renderable: RenderableType, width: int) -> list[str]:
        """The lines, each at most `width` cells wide, without blank ones at the top and the bottom."""
        options = self._console.options.update(width=max(width, _NARROWEST), height=None)
        painted = [self._line(line) for line in self._console.render_lines(renderable, options, pad=False)]
        while painted and not painted[-1]:
            painted.pop()
        first = next((index for index, line in enumerate(painted) if line), 0)
        return painted[first:]

    def _line(self, segments: Iterable[Segment]) -> str:
        kept = [segment for segment in Segment.strip_links(segments) if not segment.control]
        while kept and kept[-1].text.isspace() and _is_invisible(kept[-1].style):
            kept.pop()
        if kept and _is_invisible(kept[-1].style):
            kept[-1] = Segment(kept[-1].text.rstrip(), kept[-1].style)
        return "".join([self._styled(segment) for segment in kept])

    def _styled(self, segment: Segment) -> str:
        text = shown(segment.text).replace("\n", " ")
        if segment.style is None or self._system is None:
            return text
        return segment.style.render(text, color_system=self._system)


def _is_invisible(style: Style | None) -> bool:
    """Whether blanks in this style look like nothing: they would only wrap when the window gets narrower."""
    if style is None:
        return True
    background = style.bgcolor is not None and not style.bgcolor.is_default
    return not background and not style.underline and not style.reverse
