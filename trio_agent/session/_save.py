"""New session files made of messages: a history saved whole, and a fork of another session.

Here lives what makes a file in one step, so that it is there whole or not at all. Appending is in `_log.py`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from .. import Message, MessageEnd, ToolResultMessage
from ._load import load_session
from ._rebuild import Session
from ._records import header_line, line_of


def save_session(path: str | os.PathLike[str], messages: Iterable[Message], **header: object) -> None:
    """Make a new session file that holds these messages, durably. `header`: more fields for its first line.

    Blocks. Raises `FileExistsError` rather than replacing anything, and `OSError`.
    """
    place = Path(path)
    descriptor, name = tempfile.mkstemp(prefix=f".{place.name}.", suffix=".new", dir=place.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(header_line(**header))
            file.writelines(line_of(MessageEnd(message)) for message in messages)
            file.flush()
            os.fsync(file.fileno())
        os.link(name, place)
    finally:
        os.unlink(name)


def fork(source: str | os.PathLike[str], target: str | os.PathLike[str], *, messages: int | None = None) -> Session:
    """Make a new session of the first so many messages of another; of all where `messages` is None.

    The results of a message's calls belong to it: a fork behind one of them, or behind the message, has them all.
    The source is only read, also while it is being written. Blocks. Gives the new session.

    Raises `ValueError` for a number of messages that the source does not have, `FileExistsError` where the target
    exists, and what `load_session` raises.
    """
    session = load_session(source)
    end = _whole(session.messages, len(session.messages) if messages is None else messages)
    save_session(target, session.messages[:end], parent=str(session.path), parent_messages=end)
    return load_session(target)


def _whole(messages: Sequence[Message], end: int) -> int:
    if not 0 <= end <= len(messages):
        raise ValueError(f"cannot fork behind message {end}; the session has {len(messages)} messages")
    while 0 < end < len(messages) and isinstance(messages[end], ToolResultMessage):
        end += 1
    return end
