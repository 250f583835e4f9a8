"""Tells a cancellation that must go on from a failure that looks like one.

Here lives what an exception means in the task that caught it, given the scopes around it. What is done about
a failure is decided by whoever asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

from ._failures import leaves, split
from ._interrupts import exposed

T = TypeVar("T")


def part(exc: BaseException) -> tuple[Exception | None, BaseException | None]:
    """What went wrong, and what must go on. A stray `Cancelled` went wrong (F7)."""
    failure, rest = split(exc)
    if rest is not None and _is_stray(rest):
        return failure or _stray_failure(rest), None
    return failure, rest


@exposed
def plainly(call: Callable[[], T]) -> T:
    """Call, and raise a stray `Cancelled` as the ordinary failure that it is, so that `except Exception` meets it."""
    try:
        return call()
    except Exception:
        raise
    except BaseException as exc:
        failure, rest = part(exc)
        if rest is None and failure is not None:
            raise failure from exc  # noqa: ASYNC104  # a stray one belongs to no scope
        raise


def _is_stray(rest: BaseException) -> bool:
    """Whether this is nothing but `Cancelled` although no scope around is cancelled: saved, and raised again."""
    if any(not isinstance(leaf, trio.Cancelled) for leaf in leaves(rest)):
        return False
    return trio.current_effective_deadline() > -float("inf")


def _stray_failure(rest: BaseException) -> Exception:
    failure = RuntimeError("raised a trio.Cancelled although no scope was cancelled; never keep one to raise it later")
    failure.__cause__ = rest
    return failure
