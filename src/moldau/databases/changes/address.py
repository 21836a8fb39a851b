"""The address of a database whose changes are read, kept apart from its password, which is never shown or stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from moldau.databases.urls import BadUrl, parse_url, secrets_of

Kind = Literal["postgresql", "sqlite"]
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
    """Parse a URL. Raises BadUrl, without the password."""
    url = parse_url(text)
    if url.kind == "sqlite":
        return Address("sqlite", url.text)
    if url.kind != "postgresql":
        raise BadUrl(f"changes of {url.kind} databases cannot be read: only of postgresql and sqlite")
    if not url.database:
        raise BadUrl("the URL names no database: postgresql://user@host:5432/DATABASE")
    try:
        parts = urlsplit(url.text)
    except ValueError:  # its message repeats the password
        raise BadUrl("it has a character that a URL cannot have: write special characters as %XX") from None
    login, at, hosts = parts.netloc.rpartition("@")
    kept = [each for each in parse_qsl(parts.query, keep_blank_values=True) if each[0] not in SECRET_PARAMETERS]
    netloc = f"{login.partition(':')[0]}{at}{hosts}"
    without = urlunsplit(("postgresql", netloc, parts.path, urlencode(kept, quote_via=quote), ""))
    password = url.password if url.password is not None else url.parameters.get("password")
    return Address("postgresql", without, password, secrets_of(url.text))
