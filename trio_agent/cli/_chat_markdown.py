"""Markdown that is still being written: what can no longer change, and what may.

Here lives the cutting at blocks, as the parser that renders them sees them.
"""

from __future__ import annotations

from markdown_it import MarkdownIt

from ._chat_text import shown


class Growing:
    """Takes pieces of text. `settled` gives whole blocks, once; `rest` is the block that is not finished."""

    def __init__(self) -> None:
        self.rest = ""
        self._parser = MarkdownIt().enable("table").enable("strikethrough")
        self._has_new_line = False

    def add(self, piece: str) -> None:
        self.rest += piece
        self._has_new_line = self._has_new_line or "\n" in piece

    def settled(self) -> str:
        """The blocks before the last one, which more text cannot change."""
        if not self._has_new_line:
            return ""
        self._has_new_line = False
        text = shown(self.rest)
        starts = [
            token.map[0] for token in self._parser.parse(text) if token.level == 0 and token.nesting >= 0 and token.map
        ]
        if len(starts) < 2:
            return ""
        lines = text.split("\n")
        self.rest = "\n".join(lines[starts[-1] :])
        return "\n".join(lines[: starts[-1]])

    def finished(self) -> str:
        """What is left, now that no more will come."""
        text, self.rest = shown(self.rest), ""
        return text
