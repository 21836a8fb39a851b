"""The address of a database as a URL, kept apart from its password, which is never shown or stored."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

Kind = Literal["postgresql", "sqlite"]
SCHEMES: Final[dict[str, Kind]] = {"postgresql": "postgresql", "postgres": "postgresql", "sqlite": "sqlite"}
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
SECRET_PARAMETERS: Final = frozenset({"password", "sslpassword"})


@dataclass(frozen=True, slots=True)
class Address:
    kind: Kind
    url: str
    """Without the password."""
    password: str | None = field(default=None, repr=False)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    """The password as it is, and as it is written in the URL: neither may be shown."""

    @property
    def shown(self) -> str:
        """The place of the database: without user and parameters."""
        parts = urlsplit(self.url)
        if self.kind == "sqlite":
            return parts.path
        return f"{parts.netloc.rpartition('@')[2] or 'localhost'}{parts.path}"

    @property
    def path(self) -> str:
        """The file of a SQLite database."""
        return unquote(urlsplit(self.url).path.removeprefix("/"))


def parse_address(text: str) -> Address:
    """Parse a URL. Raises ValueError, without the password."""
    scheme = _SCHEME.match(text)
    if scheme is None:
        raise ValueError("a database is a URL such as postgresql://user@host:5432/shop or sqlite:///shop.db")
    kind = SCHEMES.get(scheme[1].lower())
    if kind is None:
        raise ValueError(f"changes of {scheme[1]} databases cannot be read: only of postgresql and sqlite")
    try:
        parts = urlsplit(text)
        _ = parts.port if "," not in parts.netloc else None
    except ValueError:
        raise ValueError("the URL of the database is not valid: look at its port and its brackets") from None
    if kind == "sqlite":
        if parts.netloc or not parts.path.strip("/"):
            raise ValueError("the URL of a SQLite database is sqlite:///relative.db or sqlite:////absolute.db")
        return Address(kind, text)
    if not parts.path.strip("/"):
        raise ValueError("the URL names no database: postgresql://user@host:5432/DATABASE")
    login, at, hosts = parts.netloc.rpartition("@")
    user, colon, written = login.partition(":")
    parameters = parse_qsl(parts.query, keep_blank_values=True)
    hidden = {name: value for name, value in parameters if name in SECRET_PARAMETERS}
    password = unquote(written) if colon else hidden.get("password")
    query = urlencode([(name, value) for name, value in parameters if name not in SECRET_PARAMETERS], quote_via=quote)
    url = urlunsplit(("postgresql", f"{user}{at}{hosts}", parts.path, query, ""))
    secrets = {written, password or "", *hidden.values(), *(quote(value) for value in hidden.values())}
    return Address(kind, url, password, frozenset(secrets - {""}))
