"""SQLite by Python's sqlite3. What SQLite has no type for is stored as text that sorts like the values.

A database has one writer at a time: others wait for it, for BUSY_S at most. Times in a zone are stored in UTC.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from moldau.databases import sql
from moldau.databases.columns import Column, Family, TableColumn
from moldau.databases.database import BadValue, Failure
from moldau.databases.dialects import SQLITE
from moldau.databases.errors import DatabaseRefused, DatabaseUnavailable, RowRefused, one_line
from moldau.databases.urls import DatabaseUrl

BUSY_S: Final = 60.0
_TEMPORARY: Final = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_NOMEM", "SQLITE_INTERRUPT")


def connect(url: DatabaseUrl) -> SqliteDatabase:
    folder = os.path.dirname(os.path.abspath(url.path))
    if not os.path.isdir(folder):
        raise DatabaseRefused(f"{url.shown}: the directory {folder} does not exist")
    connection = sqlite3.connect(url.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    return SqliteDatabase(connection)


def failure(error: Exception) -> Failure | None:
    if isinstance(error, sqlite3.IntegrityError | sqlite3.DataError | OverflowError | BadValue | UnicodeDecodeError):
        return Failure(RowRefused, one_line(str(error)))
    if not isinstance(error, sqlite3.Error):
        return None
    name = str(getattr(error, "sqlite_errorname", ""))
    if name == "SQLITE_TOOBIG":
        return Failure(RowRefused, one_line(str(error)))
    return Failure(DatabaseUnavailable if name.startswith(_TEMPORARY) else DatabaseRefused, one_line(str(error)))


class SqliteDatabase:
    dialect = SQLITE

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, parameters).fetchall()

    def columns(self, table: sql.TableName) -> list[TableColumn]:
        rows = self.execute(f"PRAGMA {_schema(table)}table_xinfo({sql.quoted(table.name)})")
        collations = self._collations(table)
        return [
            TableColumn(
                name, kind, bool(required or key) and not _is_rowid(kind, key, rows), default is not None or hidden > 0,
                joins=f"{kind} COLLATE {collations[name]}" if name in collations else None,
            )
            for _, name, kind, required, default, key, hidden in rows
        ]  # fmt: skip

    def _collations(self, table: sql.TableName) -> dict[str, str]:
        """Return the collations of columns in unique indexes that take different texts for the same."""
        found = {}
        for _, index, unique, *_ in self.execute(f"PRAGMA {_schema(table)}index_list({sql.quoted(table.name)})"):
            for row in self.execute(f"PRAGMA {_schema(table)}index_xinfo({sql.quoted(index)})") if unique else ():
                name, collation, is_key = row[2], row[4], row[5]
                if name is not None and is_key and collation.upper() != "BINARY":
                    found[name] = collation
        return found

    def unique_keys(self, table: sql.TableName) -> list[frozenset[str]]:
        columns = self.execute(f"PRAGMA {_schema(table)}table_info({sql.quoted(table.name)})")
        found = [frozenset(name for _, name, _, _, _, key in columns if key)]
        for _, index, unique, _, partial in self.execute(
            f"PRAGMA {_schema(table)}index_list({sql.quoted(table.name)})"
        ):
            if unique and not partial:
                parts = self.execute(f"PRAGMA {_schema(table)}index_info({sql.quoted(index)})")
                found.append(frozenset(name for _, _, name in parts))
        return [each for each in found if each]

    def stage(self, columns: Sequence[tuple[str, str]]) -> None:
        self.execute(sql.create_staged(columns, "CREATE TEMP TABLE"))

    def load(self, table: str, columns: Sequence[Column], rows: pa.RecordBatch) -> None:
        values = [values_of(column, array) for column, array in zip(columns, rows.columns, strict=True)]
        self._connection.executemany(sql.insert(table, [column.name for column in columns]), zip(*values, strict=True))

    def begin(self) -> None:
        self.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self.execute("COMMIT")

    def rollback(self) -> None:
        if self._connection.in_transaction:
            self.execute("ROLLBACK")

    def close(self) -> None:
        self._connection.close()


def _schema(table: sql.TableName) -> str:
    return f"{sql.quoted(table.schema)}." if table.schema else ""


def _is_rowid(kind: str, key: int, rows: Sequence[tuple[Any, ...]]) -> bool:
    """Return whether the column is the row id, which SQLite makes itself."""
    return bool(key) and kind.upper() == "INTEGER" and sum(1 for row in rows if row[5]) == 1


def _floats(array: pa.Array) -> list[Any]:
    if pc.any(pc.is_nan(array)).as_py():
        raise BadValue("a number is NaN, which SQLite would store as NULL")
    return _plain(array)


def _plain(array: pa.Array) -> list[Any]:
    values: list[Any] = array.to_pylist()
    return values


def _texts(array: pa.Array) -> list[Any]:
    return _plain(array.cast(pa.string()))


_CONVERSIONS: Final[Mapping[Family, Callable[[pa.Array], list[Any]]]] = {
    "float": _floats, "decimal": _texts, "date": _texts, "time zone": _texts, "no zone": _texts,
}  # fmt: skip


def values_of(column: Column, array: pa.Array) -> list[Any]:
    assert column.family is not None, "the columns of a write are checked before"
    return _CONVERSIONS.get(column.family, _plain)(array)
