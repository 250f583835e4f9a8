"""What a run came to.

Here lives the value that `prompt()` and `resume()` give. State stays the source of truth.
"""

from __future__ import annotations

import attrs

from ._events import Outcome
from ._messages import AssistantMessage, Message, Usage


@attrs.frozen(kw_only=True)
class RunResult:
    """The end of one run.

    `messages` are those that this run added to history, failed attempts that were retried left out. `error` is the
    exception that failed the run, with its traceback; `suppressed` holds what went wrong later, or without failing it
    (F10).
    """

    outcome: Outcome
    reason: str | None
    messages: tuple[Message, ...]
    usage: Usage
    error: BaseException | None = None
    suppressed: tuple[BaseException, ...] = ()

    @property
    def text(self) -> str:
        """The text of the last assistant message; empty if there is none."""
        for message in reversed(self.messages):
            if isinstance(message, AssistantMessage):
                return message.text
        return ""

    def raise_for_error(self) -> RunResult:
        """Raise the exception that failed the run; give the result itself if none did."""
        if self.error is not None:
            raise self.error
        return self
