"""What can go wrong with a session file as a whole. What is wrong with one line of it is a `Problem`, not an error."""

from __future__ import annotations


class SessionError(ValueError):
    """A session file cannot be used as it is."""


class NotASessionError(SessionError):
    """The file holds something, and nothing in it is a session's."""


class SessionVersionError(SessionError):
    """A later version of this package wrote the file, in a format that this one does not know."""


class SessionLockedError(SessionError):
    """Another log writes this file. The text names the holder, as far as it is known."""
