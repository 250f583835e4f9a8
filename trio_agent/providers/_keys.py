"""API keys: held so that nothing shows them by accident, and found in the environment.

Here lives the secret type alone. Which header carries a key is each wire's business. `reveal` is the only
way to the value, and only the code that builds a request's headers calls it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import NoReturn

_HIDDEN = "[key hidden]"


class Secret:
    """A key or token. Its `repr`, `str` and format never show it, and it cannot be pickled.

    White space around the value is dropped: keys read from files end in a newline. Raises `ValueError`
    for characters that no HTTP header may carry, without quoting them.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        value = value.strip()
        if not value:
            raise ValueError("the key is empty; pass None where the service needs no key")
        if not (value.isascii() and value.isprintable()):
            raise ValueError("the key holds a character that no HTTP header may carry; check how it was copied")
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return f"Secret({_HIDDEN!r})"

    def __str__(self) -> str:
        return _HIDDEN

    def __format__(self, form: str) -> str:
        return format(_HIDDEN, form)

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not pickled; pass the key to the process that needs it by other means")


def as_secret(key: str | Secret | None) -> Secret | None:
    """The key as a secret; None and blank text mean that there is none."""
    if key is None or isinstance(key, Secret):
        return key
    return Secret(key) if key.strip() else None


def secret_from_environment(*names: str) -> Secret | None:
    """The first of these environment variables that is set and not blank."""
    for name in names:
        if value := os.environ.get(name, "").strip():
            return Secret(value)
    return None


def redacted(text: str, secrets: Iterable[Secret]) -> str:
    """The text with every one of the secrets taken out: servers quote the key that they refuse."""
    for secret in secrets:
        text = text.replace(secret.reveal(), _HIDDEN)
    return text


class HeaderSecrets(Mapping[str, str]):
    """Headers of a request, whose `repr` shows names only."""

    __slots__ = ("_headers",)

    def __init__(self, headers: Mapping[str, str]) -> None:
        for name, value in headers.items():
            if not (name and name.isascii() and name.isprintable() and not set(name) & set(' ":;,()')):
                raise ValueError(f"{name!r} is not the name of an HTTP header")
            if not (value.isascii() and value.isprintable()):
                raise ValueError(f"the value of header {name!r} holds a character that no HTTP header may carry")
        self._headers = dict(headers)

    def __getitem__(self, name: str) -> str:
        return self._headers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._headers)

    def __len__(self) -> int:
        return len(self._headers)

    def __repr__(self) -> str:
        return f"<headers {', '.join(self._headers)}>"
