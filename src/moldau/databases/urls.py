"""The address of a database: parsed, and shown without the password.

    postgresql://user:password@host:5432/database?sslmode=require
    mysql://user:password@host:3306/database
    sqlite:///relative/file.db      sqlite:////absolute/file.db      duckdb:///file.duckdb

No driver is imported here, because every reader of a pipeline file imports this module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import parse_qsl, quote, unquote

Kind = Literal["postgresql", "mysql", "sqlite", "duckdb"]

KINDS: Final[Mapping[str, Kind]] = {
    "postgresql": "postgresql", "postgres": "postgresql", "mysql": "mysql", "mariadb": "mysql", "sqlite": "sqlite",
    "duckdb": "duckdb",
}  # fmt: skip
FILES: Final[frozenset[Kind]] = frozenset({"sqlite", "duckdb"})
DEFAULT_PORTS: Final[Mapping[Kind, int]] = {"postgresql": 5432, "mysql": 3306}
_URL: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)
_SERVER: Final = re.compile(
    r"(?:(?P<user>[^:@/?#]*)(?::(?P<password>[^/?#]*))?@)?"
    r"(?P<host>\[[0-9A-Fa-f:.%]+\]|(?:[^:@/?#\[\],]*(?::\d{1,5})?,)*[^:@/?#\[\],]*)(?::(?P<port>\d{1,5}))?"
    r"(?:/(?P<database>[^?#/]*))?(?:\?(?P<parameters>[^#]*))?"
)
_SECRET_PARAMETER: Final = re.compile(r"pass|secret|token", re.IGNORECASE)


class BadUrl(ValueError):
    """The message does not repeat the URL, which may hold a password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseUrl:
    kind: Kind
    text: str = field(repr=False)
    path: str = ""
    """Of a database in a file."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    host: str = ""
    port: int = 0
    database: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def is_file(self) -> bool:
        return self.kind in FILES

    @property
    def shown(self) -> str:
        """The address without user, password and parameters: for messages, and to tell whether two are the same."""
        if self.is_file:
            return f"{self.kind}:///{self.path}"
        return f"{self.kind}://{self.host}:{self.port}/{self.database}"

    def at(self, path: str) -> DatabaseUrl:
        """Return the same kind of database in another file."""
        return parse_url(f"{self.kind}:///{path}")


def parse_url(text: str) -> DatabaseUrl:
    """Raises BadUrl with a sentence for the user."""
    found = _URL.fullmatch(text.strip())
    if found is None:
        raise BadUrl("it is not a URL, such as postgresql://user@host/database or sqlite:///file.db")
    kind = KINDS.get(found["scheme"].lower().partition("+")[0])
    if kind is None:
        raise BadUrl(
            f"{found['scheme']} is not a known kind of database: there are {', '.join(dict.fromkeys(KINDS.values()))}"
        )
    return _file(kind, text.strip(), found["rest"]) if kind in FILES else _server(kind, text.strip(), found["rest"])


def _file(kind: Kind, text: str, rest: str) -> DatabaseUrl:
    path = rest.removeprefix("/")
    if not rest.startswith("/") or not path or path == ":memory:":
        raise BadUrl(f"it needs a file: {kind}:///relative/file or {kind}:////absolute/file")
    return DatabaseUrl(kind=kind, text=text, path=path)


def _server(kind: Kind, text: str, rest: str) -> DatabaseUrl:
    found = _SERVER.fullmatch(rest)
    if found is None or int(found["port"] or 1) not in range(1, 65536):
        raise BadUrl(
            f"it is not {kind}://user:password@host:port/database; write special characters of a password as %XX"
            " (/ is %2F, ? is %3F, # is %23, @ is %40)"
        )
    parameters = dict(parse_qsl(found["parameters"] or "", keep_blank_values=True))
    user, password = found["user"], found["password"]
    return DatabaseUrl(
        kind=kind,
        text=text,
        user=unquote(user) if user else None,
        password=unquote(password) if password is not None else None,
        host=(found["host"] or "localhost").strip("[]"),
        port=int(found["port"] or DEFAULT_PORTS[kind]),
        database=unquote(found["database"] or ""),
        parameters=parameters,
    )


def secrets_of(text: str) -> frozenset[str]:
    """Return what of a database's URL may not be shown, as it is written and as it is meant."""
    try:
        url = parse_url(text)
    except BadUrl:
        return frozenset({text})  # nobody knows which part of it is the password
    secrets = {url.password} | {value for name, value in url.parameters.items() if _SECRET_PARAMETER.search(name)}
    known = {each for each in secrets if each}
    raw = _SERVER.fullmatch(text.partition("://")[2].strip()) if not url.is_file else None
    written = {raw["password"]} if raw and raw["password"] else set()
    return frozenset(known | written | {quote(each, safe="") for each in known})
