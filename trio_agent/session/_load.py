"""Reading a session file, however it ends. Changes no byte, takes no lock.

Here lives the walk over the lines. The format is in `_records.py`, what the records come to in `_rebuild.py`.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

from ._errors import NotASessionError
from ._lines import LONGEST_LINE, Line, lines_of
from ._rebuild import Rebuild, Session
from ._records import BadLineError, Header, read_record

_log = logging.getLogger("trio_agent.session")

_BLANK: Final = b" \t\r\0"


def load_session(path: str | os.PathLike[str], *, longest_line: int = LONGEST_LINE) -> Session:
    """The history that a session file holds, repaired so that it can be sent.

    Torn, damaged, unknown and overlong lines (of more than `longest_line` bytes) are passed over and reported, in
    the result and as one warning. An empty file is an empty session. Time is linear in the file, memory in the
    history and the longest line. Blocks; use `trio.to_thread.run_sync` for large files.

    Raises `SessionVersionError` for a later format, `NotASessionError` for a file that holds nothing of a session's,
    and `OSError`.
    """
    place = Path(path)
    rebuild = Rebuild()
    known = False
    for line in lines_of(place, longest_line):
        known = _take(rebuild, line) or known
    if rebuild.problems and not known and not _may_be_torn(place):
        raise NotASessionError(f"{place} is no session: {rebuild.problems[0]}")
    if rebuild.problems:
        _log.warning("%s: %d lines are damaged or unknown; %s", place, len(rebuild.problems), rebuild.problems[0])
    return rebuild.finish(place)


def check_is_session(path: Path) -> bool:
    """Whether a file has a record already, as far as its first good line. Raises like `load_session`.

    A trace can be read, but not gone on with: what a log leaves out would make an unlawful trace of it.
    """
    problem = ""
    for line in lines_of(path):
        probe = Rebuild()
        if _take(probe, line):
            if not problem and not _is_header(line):
                raise NotASessionError(
                    f"{path} has no session's header: it is a trace, and will not be written to; "
                    "load_session() reads it, and save_session() makes a session of its messages"
                )
            return True
        problem = problem or (str(probe.problems[0]) if probe.problems else "")
    if problem and not _may_be_torn(path):
        raise NotASessionError(f"{path} is no session, and will not be written to: {problem}")
    return False


def _is_header(line: Line) -> bool:
    return line.data is not None and isinstance(read_record(line.data.strip(_BLANK)), Header)


def _take(rebuild: Rebuild, line: Line) -> bool:
    """Add what a line says. False where it says nothing."""
    if line.data is None:
        rebuild.report(line.number, f"{line.size} bytes, which is too long for a record")
        return False
    data = line.data.strip(_BLANK)
    if b"\0" in line.data:
        rebuild.note(line.number, f"{line.data.count(0)} NUL bytes, as a crash of the machine leaves them")
    if not data:
        return False
    try:
        record = read_record(data)
    except BadLineError as error:
        torn = "" if line.ended else "torn off, "
        rebuild.report(line.number, f"{torn}{error}")
        return False
    rebuild.add(line.number, record)
    return True


def _may_be_torn(path: Path) -> bool:
    """Whether a file may be what a crash left of a session that had just begun."""
    with path.open("rb") as file:
        start = file.read(4096)
        rest = file.read(1)
    text = start.strip(_BLANK)
    begun = b'{"type":"session"'
    return not rest and b"\n" not in start and (begun.startswith(text) or text.startswith(begun))
