"""The address of a service, checked when it is given and not when it is used.

Here lives the parsing alone. A query is kept, since Azure puts its API version there, and never shown.
"""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

import attrs


@attrs.frozen
class BaseURL:
    """An `http` or `https` address that paths can be joined to. `str` shows neither query nor port's default."""

    scheme: str
    netloc: str
    host: str
    path: str
    _query: str = attrs.field(repr=False)

    @classmethod
    def parse(cls, text: str) -> BaseURL:
        """Raises `ValueError`, without quoting what might be a password, for what cannot be a base URL."""
        if any(ord(character) <= 32 or ord(character) == 127 for character in text.strip()):
            raise ValueError("the base URL holds a blank or a control character")
        try:
            parts = urlsplit(text.strip())
            host = parts.hostname or ""
            parts.port  # noqa: B018  # raises for a port that is none
        except ValueError:
            raise ValueError("the base URL is malformed; it looks like https://host/v1") from None
        if "@" in parts.netloc:
            raise ValueError("the base URL holds credentials; pass the key as api_key instead")
        if parts.scheme.lower() not in ("http", "https") or not host:
            raise ValueError("the base URL must begin with http:// or https:// and name a host")
        if parts.fragment or "#" in text:
            raise ValueError("the base URL holds a fragment (#…), which no request can carry")
        return cls(parts.scheme.lower(), parts.netloc, host.lower(), parts.path.rstrip("/"), parts.query)

    def join(self, path: str, query: str = "") -> str:
        """The address of an operation, with the base URL's own query kept."""
        both = "&".join([part for part in (self._query, query) if part])
        return urlunsplit((self.scheme, self.netloc, f"{self.path}/{path.lstrip('/')}", both, ""))

    def is_under(self, *domains: str) -> bool:
        """Whether the host is one of these domains or below one."""
        return any(self.host == domain or self.host.endswith(f".{domain}") for domain in domains)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc}{self.path}"
