"""A session file on the command line: opened, read, and what is wrong with it told.

Here lives the way from the option `--session` to messages and a log. What a session is lives in `trio_agent.session`.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from .._agent import Agent
from .._messages import Message
from ._usage import UsageError, complain

if TYPE_CHECKING:
    from ..session import Session, SessionLog

_TOLD: Final = 20  # problems of a file that are told one by one


@attrs.frozen
class OpenSession:
    """What an agent begins with, and where it writes. Without a file: with nothing, nowhere."""

    messages: tuple[Message, ...] = ()
    unfinished: bool = False
    interrupted: int = 0  # calls whose results are lost
    log: SessionLog | None = None

    def attend(self, agent: Agent) -> None:
        """Write down what this agent does, before anyone else hears of it."""
        if self.log is not None:
            agent.subscribe(self.log)


def add_session_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--session",
        metavar="FILE",
        type=Path,
        default=None,
        help="go on with the conversation in this file, or begin one; each message is in it at once",
    )
    parser.add_argument(
        "--trace",
        action="store_true",
        help="write every event to the session, also those that only a timeline or a replay needs",
    )


@contextmanager
def open_session(path: Path | None, *, trace: bool) -> Generator[OpenSession]:
    """Open or begin a session, and with `trace` write every event to it. Its problems go to stderr, one per line.

    Raises `UsageError` for a file that cannot be opened, and `trio_agent.session.SessionError`.
    """
    if path is None:
        if trace:
            raise UsageError("--trace writes to a session; add --session FILE")
        yield OpenSession()
        return
    from ..session import SessionError, SessionLog

    try:
        log = SessionLog(path, trace=trace)
    except SessionError:
        raise
    except (OSError, ValueError) as error:  # ValueError: what is no name of a file, such as /
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"the session {str(path)!r} cannot be opened: {reason}") from error
    with log:
        session = _load(log)
        yield OpenSession(session.messages, session.unfinished, len(session.interrupted), log)


def _load(log: SessionLog) -> Session:
    """Read it. The log record that sums its problems up is left out: here they are told each."""
    records = logging.getLogger("trio_agent.session")
    records.addFilter(_nothing)
    try:
        session = log.load()
    finally:
        records.removeFilter(_nothing)
    for problem in session.problems[:_TOLD]:
        complain("warning", f"{log.path}: {problem}")
    if len(session.problems) > _TOLD:
        complain("warning", f"{log.path}: {len(session.problems) - _TOLD} more lines that cannot be used as they are")
    return session


def _nothing(_record: logging.LogRecord) -> bool:
    return False
