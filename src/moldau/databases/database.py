"""The interface of a connected database, and the function that connects. Each kind is one module behind `Database`.

A module has `connect(url)`, and `failure(error)`: what an exception of its driver means for a write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from moldau.databases.columns import Column, TableColumn
from moldau.databases.dialects import Dialect
from moldau.databases.errors import DatabaseError, DatabaseRefused
from moldau.databases.sql import TableName
from moldau.databases.urls import DatabaseUrl, Kind

PACKAGES: Final[dict[Kind, str]] = {"postgresql": "psycopg", "mysql": "pymysql", "duckdb": "duckdb"}
INSTALL: Final = "pip install 'moldau[databases]'"


class Failure(NamedTuple):
    """What an exception means, and its reason in a few words."""

    kind: type[DatabaseError]
    reason: str


class BadValue(ValueError):
    """A value that cannot be passed to a database, or that it would change silently."""


class Database(Protocol):
    """A connection. It commits each statement outside of `begin` and `commit` at once."""

    dialect: Dialect

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement with `?` for parameters, and return its rows."""

    def columns(self, table: TableName) -> list[TableColumn]:
        """Return the columns of the table; none if there is no such table."""

    def unique_keys(self, table: TableName) -> list[frozenset[str]]:
        """Return the columns of each primary key and unique index without conditions."""

    def stage(self, columns: Sequence[tuple[str, str]]) -> None:
        """Create the empty temporary table for staged rows; within a transaction."""

    def load(self, table: str, columns: Sequence[Column], rows: pa.RecordBatch) -> None:
        """Add rows to a table; `columns` have the names of the table's."""

    def begin(self) -> None: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...


class Driver(Protocol):
    """A module such as moldau.databases.sqlite."""

    def connect(self, url: DatabaseUrl) -> Database: ...

    def failure(self, error: Exception) -> Failure | None:
        """Return None for an exception that is not the driver's."""


def missing_package(kind: Kind) -> str | None:
    """Return the error for a kind whose driver is not installed; None if it is. Imports nothing."""
    package = PACKAGES.get(kind)
    if package is None or find_spec(package) is not None:
        return None
    return f"{kind} needs the package {package}: {INSTALL}"


def driver_of(kind: Kind) -> Driver:
    if (missing := missing_package(kind)) is not None:
        raise DatabaseRefused(missing)
    module: Any = import_module(f"moldau.databases.{kind}")
    driver: Driver = module
    return driver


@contextmanager
def sentences(kind: Kind, subject: str) -> Iterator[None]:
    """Raise a DatabaseError with the subject and a reason instead of an exception of the driver."""
    driver = driver_of(kind)
    try:
        yield
    except DatabaseError:
        raise
    except Exception as error:
        failure = driver.failure(error)
        if failure is None:
            raise
        raise failure.kind(f"{subject}: {failure.reason}") from error


@contextmanager
def connected(url: DatabaseUrl, subject: str) -> Iterator[Database]:
    with sentences(url.kind, subject), closing(driver_of(url.kind).connect(url)) as database:
        yield database
