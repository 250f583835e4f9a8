"""Sessions that survive: a log that is the history, and the reader that makes any log sendable. No code."""

from ._errors import NotASessionError as NotASessionError
from ._errors import SessionError as SessionError
from ._errors import SessionLockedError as SessionLockedError
from ._errors import SessionVersionError as SessionVersionError
from ._load import load_session as load_session
from ._log import SessionLog as SessionLog
from ._rebuild import PROCESS_ENDED as PROCESS_ENDED
from ._rebuild import Problem as Problem
from ._rebuild import Session as Session
from ._save import fork as fork
from ._save import save_session as save_session
