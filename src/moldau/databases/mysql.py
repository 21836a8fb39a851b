"""MySQL and MariaDB by pymysql. Sessions are strict: what does not fit is refused instead of being cut.

Rows are sent by INSERT of many rows each. Times in a zone are stored in UTC, in columns without a zone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pymysql

from moldau.databases import sql
from moldau.databases.columns import Column, Family, TableColumn
from moldau.databases.database import BadValue, Failure
from moldau.databases.dialects import MYSQL
from moldau.databases.errors import DatabaseRefused, DatabaseUnavailable, RowRefused, one_line
from moldau.databases.urls import DatabaseUrl

CONNECT_S: Final = 20
SILENCE_S: Final = 600
"""A server that says nothing for so long is taken for gone."""
IDLE_S: Final = 60
"""A driver that is suspended in a transaction loses it after so long, and with it the lock."""
_SESSION: Final = (
    "SET SESSION sql_mode = 'ANSI_QUOTES,STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,NO_ENGINE_SUBSTITUTION',"
    " SESSION time_zone = '+00:00', SESSION default_storage_engine = InnoDB,"
    f" SESSION wait_timeout = {IDLE_S}, SESSION innodb_lock_wait_timeout = {2 * IDLE_S}"
)
_TEMPORARY: Final = frozenset(
    {1020, 1021, 1037, 1040, 1041, 1053, 1077, 1079, 1114, 1158, 1159, 1160, 1161, 1203, 1205, 1213, 1226, 1317, 1927,
     2002, 2003, 2006, 2013, 2055, 3024, 4031}
)  # fmt: skip
"""Error codes after which a retry may help: no connection, a deadlock, a full disk, a server that stops."""
_BAD_ROW: Final = frozenset({1153, 1264, 1265, 1292, 1366, 1367, 1406, 1411, 3140, 3819, 4025})
"""Error codes for a value, of which pymysql reports some as errors of operation."""
_EXACT: Final = re.compile(r"_bin$|^binary$")
"""Collations that compare all characters, but perhaps not spaces at the end."""
_NO_PAD: Final = re.compile(r"_nopad_|_0900_|^binary$")
"""Collations that compare these too."""
_SSL: Final = re.compile(r"ssl_(ca|cert|key)")


def connect(url: DatabaseUrl) -> MysqlDatabase:
    if not url.database:
        raise DatabaseRefused(f"{url.shown}: the URL names no database")
    ssl = {found[1]: value for name, value in url.parameters.items() if (found := _SSL.fullmatch(name))}
    connection = pymysql.connect(
        host=url.host, port=url.port, user=url.user, password=url.password or "", database=url.database,
        charset="utf8mb4", autocommit=True, init_command=_SESSION, connect_timeout=CONNECT_S, read_timeout=SILENCE_S,
        write_timeout=SILENCE_S, ssl=ssl or None,
    )  # fmt: skip
    return MysqlDatabase(connection)


def failure(error: Exception) -> Failure | None:
    if isinstance(error, BadValue | UnicodeDecodeError):
        return Failure(RowRefused, one_line(str(error)))
    if not isinstance(error, pymysql.err.MySQLError):
        return None
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    reason = one_line(str(error.args[1] if len(error.args) > 1 else error))
    if code in _TEMPORARY:
        return Failure(DatabaseUnavailable, reason)
    if isinstance(error, pymysql.err.InterfaceError):  # the connection is closed
        return Failure(DatabaseUnavailable, reason)
    is_row = isinstance(error, pymysql.err.DataError | pymysql.err.IntegrityError) or code in _BAD_ROW
    return Failure(RowRefused if is_row else DatabaseRefused, reason)


class MysqlDatabase:
    dialect = MYSQL

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql.format_style(statement) if parameters else statement, list(parameters) or None)
            return list(cursor.fetchall())

    def columns(self, table: sql.TableName) -> list[TableColumn]:
        self._check_engine(table)
        rows = self.execute(
            "SELECT column_name, column_type, is_nullable, column_default, extra, generation_expression, collation_name"
            " FROM information_schema.columns"
            " WHERE table_schema = coalesce(?, database()) AND table_name = ? ORDER BY ordinal_position",
            [table.schema, table.name],
        )
        return [
            TableColumn(
                name, _text(kind), nullable == "NO", default is not None or "auto_increment" in extra or bool(made),
                joins=f"{_text(kind)} COLLATE {collation}" if collation and not _EXACT.search(collation) else None,
                ignores_last_spaces=bool(collation) and not _NO_PAD.search(collation),
            )
            for name, kind, nullable, default, extra, made, collation in rows
        ]  # fmt: skip

    def _check_engine(self, table: sql.TableName) -> None:
        """Raise DatabaseRefused for a table whose rows would stay when the transaction is rolled back."""
        found = self.execute(
            "SELECT t.engine FROM information_schema.tables t JOIN information_schema.engines e ON e.engine = t.engine"
            " WHERE t.table_schema = coalesce(?, database()) AND t.table_name = ? AND e.transactions <> 'YES'",
            [table.schema, table.name],
        )
        if found:
            raise DatabaseRefused(
                f"table {table} has the engine {found[0][0]}, which has no transactions: ALTER TABLE {table.name}"
                " ENGINE = InnoDB"
            )

    def unique_keys(self, table: sql.TableName) -> list[frozenset[str]]:
        rows = self.execute(
            "SELECT index_name, column_name, sub_part FROM information_schema.statistics"
            " WHERE table_schema = coalesce(?, database()) AND table_name = ? AND non_unique = 0",
            [table.schema, table.name],
        )
        indexes: dict[str, set[str]] = {}
        for index, column, _ in rows:
            indexes.setdefault(index, set()).add(column)
        of_beginnings = {index for index, _, part in rows if part is not None}
        return [frozenset(columns) for index, columns in indexes.items() if index not in of_beginnings]

    def stage(self, columns: Sequence[tuple[str, str]]) -> None:
        self.execute(f"DROP TEMPORARY TABLE IF EXISTS {sql.quoted(sql.STAGED)}")
        # Keys are compared as in the target, where case matters; the default of the database may be another.
        staged = sql.create_staged(columns, "CREATE TEMPORARY TABLE")
        self.execute(f"{staged} DEFAULT CHARSET utf8mb4 COLLATE utf8mb4_bin")

    def load(self, table: str, columns: Sequence[Column], rows: pa.RecordBatch) -> None:
        values = [_values(column, array) for column, array in zip(columns, rows.columns, strict=True)]
        statement = sql.format_style(sql.insert(table, [column.name for column in columns]))
        with self._connection.cursor() as cursor:
            cursor.executemany(statement, list(zip(*values, strict=True)))

    def begin(self) -> None:
        self._connection.begin()

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        if self._connection.open:
            self._connection.rollback()

    def close(self) -> None:
        if self._connection.open:
            self._connection.close()


def _text(value: Any) -> str:
    """MySQL returns the types of columns as bytes, MariaDB as texts."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _plain(array: pa.Array) -> list[Any]:
    values: list[Any] = array.to_pylist()
    return values


def _floats(array: pa.Array) -> list[Any]:
    if not pc.all(pc.is_finite(array), min_count=0).as_py():
        raise BadValue("a number is NaN or infinite, for which MySQL has no value")
    return _plain(array)


def _utc(array: pa.Array) -> list[Any]:
    return _plain(array.cast(pa.timestamp("us")).cast(pa.string()))


_CONVERSIONS: Final[Mapping[Family, Callable[[pa.Array], list[Any]]]] = {
    "float": _floats, "date": lambda array: _plain(array.cast(pa.string())), "time zone": _utc, "no zone": _utc,
}  # fmt: skip


def _values(column: Column, array: pa.Array) -> list[Any]:
    assert column.family is not None, "the columns of a write are checked before"
    return _CONVERSIONS.get(column.family, _plain)(array)
