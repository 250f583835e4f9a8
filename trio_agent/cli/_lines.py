"""The events as JSON lines, for programs.

Here lives one subscriber. How an event looks as JSON is decided in `trio_agent._codec`.
"""

from __future__ import annotations

from .._codec import encode_line
from .._events import Event
from ._output import Output


class Lines:
    """Writes each event as one line of JSON, at once."""

    def __init__(self, output: Output) -> None:
        self._output = output

    async def __call__(self, event: Event) -> None:
        await self._output.write(f"{encode_line(event)}\n".encode())
