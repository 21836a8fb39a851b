"""PostgreSQL by psycopg. Rows are sent by COPY, as CSV that Arrow makes: no Python object is made for a value."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any, Final

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from moldau.databases import sql
from moldau.databases.columns import Column, TableColumn
from moldau.databases.database import BadValue, Failure
from moldau.databases.dialects import POSTGRESQL
from moldau.databases.errors import DatabaseRefused, DatabaseUnavailable, RowRefused, one_line
from moldau.databases.urls import DatabaseUrl

CONNECT_S: Final = 20
IDLE_S: Final = 60
"""A driver that is suspended in a transaction loses it after so long, and with it the lock."""
_DEFAULTS: Final = {
    "application_name": "moldau", "connect_timeout": CONNECT_S, "keepalives_idle": 60, "keepalives_interval": 20,
    "keepalives_count": 6, "tcp_user_timeout": 180_000,
}  # fmt: skip
"""Parameters of the connection that the URL may override. A server that is gone is noticed within three minutes."""
_TEMPORARY: Final = ("08", "40", "53", "57", "58", "55P03", "55006", "25P03", "XX001")
"""Classes and codes of SQLSTATE after which a retry may help."""
_BAD_ROW: Final = ("22", "23")
_PERMANENT_LOGIN: Final = re.compile(
    r"password authentication failed|no password supplied|(?:role|database|user) .* does not exist|no pg_hba\.conf"
    r"|certificate|SSL|invalid .*(?:option|connection)|not permitted to log in|authentication method"
)
_COPY: Final = pa.csv.WriteOptions(include_header=False, quoting_style="all_valid")
"""Quotes distinguish an empty text from a null."""


def connect(url: DatabaseUrl) -> PostgresDatabase:
    defaults: Any = {name: value for name, value in _DEFAULTS.items() if name not in url.parameters}
    connection = psycopg.connect(f"postgresql://{url.text.partition('://')[2]}", autocommit=True, **defaults)
    connection.execute(  # a batch is done when it is on disk, whatever the database's own default is
        "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';"
        " SET client_encoding = 'UTF8'; SET datestyle = 'ISO'; SET client_min_messages = warning;"
        f" SET idle_in_transaction_session_timeout = '{IDLE_S}s'; SET lock_timeout = '{2 * IDLE_S}s'"
    )
    return PostgresDatabase(connection)


def failure(error: Exception) -> Failure | None:
    if isinstance(error, BadValue | UnicodeDecodeError):
        return Failure(RowRefused, one_line(str(error)))
    if not isinstance(error, psycopg.Error):
        return None
    reason, state = one_line(str(error)), error.sqlstate or ""
    if state.startswith(_BAD_ROW):
        return Failure(RowRefused, reason)
    if not state:
        is_connection = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        is_temporary = is_connection and not _PERMANENT_LOGIN.search(str(error))
        return Failure(DatabaseUnavailable if is_temporary else DatabaseRefused, reason)
    return Failure(DatabaseUnavailable if state.startswith(_TEMPORARY) else DatabaseRefused, reason)


class PostgresDatabase:
    dialect = POSTGRESQL

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._connection = connection

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        text = sql.format_style(statement) if parameters else statement
        cursor = self._connection.execute(text, list(parameters) or None)
        return cursor.fetchall() if cursor.description else []

    def columns(self, table: sql.TableName) -> list[TableColumn]:
        rows = self.execute(
            "SELECT attname, format_type(atttypid, atttypmod), attnotnull,"
            " atthasdef OR attidentity <> '' OR attgenerated <> '',"
            " CASE WHEN NOT collisdeterministic THEN 'COLLATE ' || collname"
            " WHEN coalesce(base.typname, t.typname) IN ('citext', 'bpchar') THEN format_type(atttypid, atttypmod) END"
            " FROM pg_attribute JOIN pg_type t ON t.oid = atttypid LEFT JOIN pg_type base ON base.oid = t.typbasetype"
            " LEFT JOIN pg_collation c ON c.oid = attcollation"
            " WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            [table.sql],
        )
        return [TableColumn(*row) for row in rows]

    def unique_keys(self, table: sql.TableName) -> list[frozenset[str]]:
        rows = self.execute(
            "SELECT array(SELECT attname::text FROM pg_attribute WHERE attrelid = indrelid AND attnum = ANY (indkey))"
            " FROM pg_index WHERE indrelid = to_regclass(?) AND indisunique AND indisvalid AND indimmediate"
            " AND indpred IS NULL AND indexprs IS NULL AND indnkeyatts = indnatts",
            [table.sql],
        )
        return [frozenset(names) for (names,) in rows]

    def stage(self, columns: Sequence[tuple[str, str]]) -> None:
        self.execute(sql.create_staged(columns, "CREATE TEMP TABLE") + " ON COMMIT DROP")

    def load(self, table: str, columns: Sequence[Column], rows: pa.RecordBatch) -> None:
        content = io.BytesIO()
        arrays = [_copied(column, array) for column, array in zip(columns, rows.columns, strict=True)]
        names = [column.name for column in columns]
        pa.csv.write_csv(
            pa.RecordBatch.from_arrays(arrays, [f"c{index}" for index in range(len(names))]), content, _COPY
        )
        statement = f"COPY {table} ({sql.names(names)}) FROM STDIN WITH (FORMAT csv)"
        with self._connection.cursor().copy(statement) as copy:
            copy.write(content.getbuffer())

    def begin(self) -> None:
        self.execute("BEGIN")

    def commit(self) -> None:
        self.execute("COMMIT")

    def rollback(self) -> None:
        if not self._connection.closed:
            self.execute("ROLLBACK")

    def close(self) -> None:
        self._connection.close()


def _copied(column: Column, array: pa.Array) -> pa.Array:
    """Return the values as COPY reads them."""
    if column.family == "bytes":
        texts = [None if value is None else f"\\x{value.hex()}" for value in array.to_pylist()]
        return pa.array(texts, pa.string())
    if column.family in ("date", "time zone", "no zone"):
        _check_years(array)
    return array


def _check_years(array: pa.Array) -> None:
    """Raise BadValue for a time that Arrow writes in another form than COPY reads."""
    years = pc.min_max(pc.year(array)).as_py()
    if years["min"] is not None and (years["min"] < 1 or years["max"] > 9999):
        raise BadValue("a time is before the year 1 or after 9999")
