"""What stands beside a type in `Annotated`: descriptions and bounds, in msgspec's own words.

Here lives the reading of such extras, whichever library they come from: they are known by their attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import msgspec

from ._schema_strict import is_array
from ._stand_ins import Wire, check

_BOUNDS: Final = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length")


def metas(extra: Any) -> Iterator[msgspec.Meta]:
    """What an extra says, be it a description, msgspec's own, or anything with the usual attributes.

    What says nothing of this kind is passed over. Raises `TypeError` or `ValueError` for a bound that is none.
    """
    if isinstance(extra, msgspec.Meta):
        yield extra
        if extra.description is not None and is_bound(extra):
            yield msgspec.Meta(description=extra.description)
    elif isinstance(extra, str):
        yield msgspec.Meta(description=extra)
    elif not isinstance(extra, type):
        yield from _of_attributes(extra)


def is_bound(meta: msgspec.Meta) -> bool:
    """Whether it limits values, rather than only describing them."""
    return any(getattr(meta, name) is not None for name in (*_BOUNDS, "pattern", "tz"))


def bounded(wires: list[Wire], bounds: Sequence[msgspec.Meta]) -> list[Wire]:
    """The alternatives of a union, each with the bounds that its type has. Raises `TypeError` for one of no type's."""
    stray = set(range(len(bounds)))
    for at, bound in enumerate(bounds):
        for index, wire in enumerate(wires):
            try:
                wires[index] = check(Annotated[wire, bound])
            except TypeError:
                continue
            stray.discard(at)
    if stray:
        raise TypeError(f"{', '.join([str(bounds[at]) for at in stray])} bounds none of the types of the union")
    return wires


def _of_attributes(extra: Any) -> Iterator[msgspec.Meta]:
    """The bounds of `annotated_types`, the text of PEP 727's `Doc`, and objects that hold several of these."""
    inner: Any = getattr(extra, "metadata", None)
    for part in inner if is_array(inner) else ():
        yield from metas(part)
    for name in _BOUNDS:
        bound = getattr(extra, name, None)
        if bound is not None:
            yield msgspec.Meta(**{name: bound})
    pattern = getattr(extra, "pattern", None)
    if pattern is not None:
        yield msgspec.Meta(pattern=getattr(pattern, "pattern", pattern))
    text = getattr(extra, "description", None) or getattr(extra, "documentation", None)
    if isinstance(text, str):
        yield msgspec.Meta(description=text)
