"""What goes wrong with a database, each as one sentence that names it. A pipeline retries the first kind only."""

from __future__ import annotations


class DatabaseError(Exception):
    """An error for the user; the text has no password."""


class DatabaseUnavailable(DatabaseError):
    """Probably temporary: no connection, a deadlock, a full disk."""


class DatabaseRefused(DatabaseError):
    """A retry would fail in the same way: a wrong password, a missing column, no permission."""


class RowRefused(DatabaseRefused):
    """The database does not accept the values of a row."""


class DriverFenced(DatabaseError):
    """This driver has lost its query to another one."""


def one_line(text: str) -> str:
    """Return the first line of a database's message, which may go on with hints and a part of the statement."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return " ".join(lines[0].split()).rstrip(".") if lines else "no reason given"
