"""DuckDB, in a file that one process at a time can open for writing. Rows go from Arrow to it without copies."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import duckdb
import pyarrow as pa

from moldau.databases import sql
from moldau.databases.columns import Column, TableColumn
from moldau.databases.database import Failure
from moldau.databases.dialects import DUCKDB
from moldau.databases.errors import DatabaseRefused, DatabaseUnavailable, RowRefused, one_line
from moldau.databases.urls import DatabaseUrl

_ARRIVING: Final = "moldau_arriving"
_TEMPORARY: Final = ("set lock", "No space left", "write-write", "Could not write", "Could not read")


def connect(url: DatabaseUrl) -> DuckDatabase:
    folder = os.path.dirname(os.path.abspath(url.path))
    if not os.path.isdir(folder):
        raise DatabaseRefused(f"{url.shown}: the directory {folder} does not exist")
    return DuckDatabase(duckdb.connect(url.path))


def failure(error: Exception) -> Failure | None:
    if not isinstance(error, duckdb.Error):
        return None
    reason = one_line(str(error))
    if isinstance(error, duckdb.ConstraintException | duckdb.DataError | duckdb.InvalidInputException):
        return Failure(RowRefused, reason)
    is_conflict = isinstance(error, duckdb.TransactionException | duckdb.OutOfMemoryException)
    is_temporary = is_conflict or any(each in str(error) for each in _TEMPORARY)
    return Failure(DatabaseUnavailable if is_temporary else DatabaseRefused, reason)


class DuckDatabase:
    dialect = DUCKDB

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._is_open = False

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        result = self._connection.sql(statement, params=list(parameters) or None)
        if result is None:
            return []
        rows = result.to_arrow_table()  # DuckDB's own objects need pytz for times
        return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))

    def columns(self, table: sql.TableName) -> list[TableColumn]:
        rows = self.execute(
            "SELECT column_name, data_type, NOT is_nullable, column_default IS NOT NULL FROM duckdb_columns()"
            " WHERE database_name = current_database() AND schema_name = ? AND lower(table_name) = lower(?)"
            " ORDER BY column_index",
            [table.schema or "main", table.name],
        )
        joining = self._joining(table, [name for name, kind, *_ in rows if kind == "VARCHAR"])
        return [
            TableColumn(name, kind, required, default, "VARCHAR with a collation" if name in joining else None)
            for name, kind, required, default in rows
        ]

    def _joining(self, table: sql.TableName, texts: Sequence[str]) -> set[str]:
        """Return the text columns whose collation takes different texts for the same. DuckDB's catalog does not say."""
        if not texts:
            return set()
        probes = ", ".join(f"{name} = 'A' OR {name} = 'ä'" for name in map(sql.quoted, texts))
        values = ", ".join("'a'" for _ in texts)
        [found] = self.execute(
            f"SELECT {probes} FROM (SELECT {sql.names(texts)} FROM {table.sql} WHERE false UNION ALL SELECT {values})"
        )
        return {name for name, is_joining in zip(texts, found, strict=True) if is_joining}

    def unique_keys(self, table: sql.TableName) -> list[frozenset[str]]:
        rows = self.execute(
            "SELECT constraint_column_names FROM duckdb_constraints() WHERE database_name = current_database()"
            " AND schema_name = ? AND lower(table_name) = lower(?) AND constraint_type IN ('PRIMARY KEY', 'UNIQUE')",
            [table.schema or "main", table.name],
        )
        indexes = self.execute(
            "SELECT expressions FROM duckdb_indexes() WHERE database_name = current_database()"
            " AND schema_name = ? AND lower(table_name) = lower(?) AND is_unique",
            [table.schema or "main", table.name],
        )
        names = {column.name for column in self.columns(table)}
        found = [frozenset(_expressions(text)) for (text,) in indexes]
        return [*(frozenset(each) for (each,) in rows), *(each for each in found if each <= names)]

    def stage(self, columns: Sequence[tuple[str, str]]) -> None:
        self.execute(sql.create_staged(columns, "CREATE TEMP TABLE"))

    def load(self, table: str, columns: Sequence[Column], rows: pa.RecordBatch) -> None:
        names = [column.name for column in columns]
        arriving = [f"c{index}" for index in range(len(names))]
        self._connection.register(_ARRIVING, pa.Table.from_arrays(rows.columns, arriving))
        self.execute(f"INSERT INTO {table} ({sql.names(names)}) SELECT {sql.names(arriving)} FROM {_ARRIVING}")

    def begin(self) -> None:
        self.execute("BEGIN")
        self._is_open = True

    def commit(self) -> None:
        self.execute("COMMIT")
        self._is_open = False

    def rollback(self) -> None:
        if self._is_open:
            self._is_open = False
            self.execute("ROLLBACK")

    def close(self) -> None:
        self._connection.close()


def _expressions(text: str) -> list[str]:
    """Return the columns of an index, which DuckDB describes as a text such as [id, '"A b"']."""
    parts = [part.strip("'") for part in text.strip("[]").split(", ")]
    return [part[1:-1].replace('""', '"') if part.startswith('"') else part for part in parts]
