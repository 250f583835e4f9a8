"""What was caught, taken apart: what went wrong, what must go on, and how to say it.

Here live plain functions over exceptions, groups included. No Trio: the caller says which exceptions are
cancellations. The sentences that a model reads about its tools are in `_results.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

from ._errors import ProviderError

_LONGEST: Final = 2_000  # characters of an error text; it goes into history and to the model


def split(exc: BaseException) -> tuple[Exception | None, BaseException | None]:
    """Part an exception into what went wrong and what must go on (`Cancelled`, `KeyboardInterrupt`, …).

    A task that is cancelled while its child fails raises both in one group, which `except Exception` does not
    see. Only the second part may be raised again, or the failure would leave the run.
    """
    if isinstance(exc, Exception):
        return exc, None
    if isinstance(exc, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", exc)
        return group.split(Exception)
    return None, exc


def leaves(exc: BaseException) -> Iterator[BaseException]:
    """The exceptions inside a group, however deeply nested; an exception that is no group is its own leaf."""
    if isinstance(exc, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", exc).exceptions:
            yield from leaves(inner)
    else:
        yield exc


def interrupt_in(exc: BaseException, cancelled: type[BaseException]) -> BaseException | None:
    """The `KeyboardInterrupt`, `SystemExit` or the like among the leaves, if there is one (F7)."""
    others = [leaf for leaf in leaves(exc) if not isinstance(leaf, Exception | cancelled)]
    for leaf in others:
        if isinstance(leaf, KeyboardInterrupt):
            return leaf
    return others[0] if others else None


def describe(exc: BaseException) -> str:
    """One line about a failure: its type (a provider's: its kind) and text; for a group that of each leaf."""
    found = list(leaves(exc))
    if len(found) == 1:
        return _describe_one(found[0])
    return shorten(f"{len(found)} failures: " + "; ".join(map(_describe_one, found)))


def _describe_one(exc: BaseException) -> str:
    name = exc.kind if isinstance(exc, ProviderError) else type(exc).__name__
    try:
        text = str(exc)
    except Exception:  # a __str__ of the application's may raise anything
        return f"{name} (its text cannot be read)"
    return shorten(f"{name}: {text}" if text else name)


def shorten(text: str) -> str:
    """Text of bounded length; it says so where something was left out."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 20]} … ({len(text)} characters)"
