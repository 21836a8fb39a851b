"""The identity of a client: `User:alice`. Authentication finds it, and ACLs, quotas and audit lines name it."""

from __future__ import annotations

from typing import Final, NamedTuple

USER: Final = "User"
PRINCIPAL_LENGTH_MAX: Final = 1024
"""Of a principal in a request: no certificate's or user's name is longer."""


class Principal(NamedTuple):
    type: str
    name: str
    by_token: bool = False
    """Whether a delegation token authenticated it: with a token nobody may create further tokens."""

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


class Client(NamedTuple):
    """Who sent a request, as quotas count it."""

    principal: Principal
    client_id: str


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""The principal of connections without authentication."""
ANYBODY: Final = Principal(USER, "*")
"""In ACLs only: every user."""


def split_principal(text: str) -> Principal:
    """Return the principal of a record, which was checked before it was written."""
    kind, _, name = text.partition(":")
    return Principal(kind, name)


def parse_principal(text: str) -> Principal:
    """Parse TYPE:NAME. Raise ValueError if one of them is missing."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"{text!r} is not a principal; expected TYPE:NAME, e.g. User:alice")
    return Principal(kind, name)


def parse_super_users(text: str) -> frozenset[Principal]:
    """Parse the value of super.users: principals with semicolons between them. Raise ValueError for anything else."""
    return frozenset(parse_principal(item) for item in filter(None, (part.strip() for part in text.split(";"))))
