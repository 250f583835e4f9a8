"""How long a service may be silent, and how much it may say.

Here live frozen values only; `_http.py`, `_sse.py` and the readers enforce them. Beyond a bound the answer
fails with a `protocol` error, and beyond a time-out with `timeout`.
"""

from __future__ import annotations

from typing import Any

import attrs

_MIB = 1024 * 1024
_positive: Any = attrs.validators.gt(0)


@attrs.frozen(kw_only=True)
class Timeouts:
    """Seconds. There is none on the whole answer: for that, `with trio.fail_after(...)` around the run.

    `connect` covers the TCP and the TLS handshake, each. `first_byte` runs from sending the request to the
    first byte of the answer's body, `idle` from byte to byte after that; keep-alive comments count as life.
    Time in which the run, and not the service, is behind counts for neither. `error_body` is how long the
    text of an HTTP error is waited for, `after_end` how long the connection is read on behind the end marker
    so that it can be used again.
    """

    connect: float = attrs.field(default=15.0, validator=_positive)
    first_byte: float = attrs.field(default=300.0, validator=_positive)
    idle: float = attrs.field(default=120.0, validator=_positive)
    error_body: float = attrs.field(default=10.0, validator=_positive)
    after_end: float = attrs.field(default=0.25, validator=_positive)
    close: float = attrs.field(default=2.0, validator=_positive)


@attrs.frozen(kw_only=True)
class Bounds:
    """What one answer may hold. Sizes in bytes, of what comes out of decompression."""

    event: int = attrs.field(default=8 * _MIB, validator=_positive)
    answer: int = attrs.field(default=64 * _MIB, validator=_positive)
    error_body: int = attrs.field(default=64 * 1024, validator=_positive)
    blocks: int = attrs.field(default=1024, validator=_positive)
    calls: int = attrs.field(default=128, validator=_positive)
    arguments: int = attrs.field(default=8 * _MIB, validator=_positive)
    nesting: int = attrs.field(default=100, validator=_positive)


DEFAULT_TIMEOUTS = Timeouts()
DEFAULT_BOUNDS = Bounds()
