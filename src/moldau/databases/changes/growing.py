"""The changes of a SQLite table, by a column that grows with each change: a number, or a time as text.

    {}                  nothing has been read
    {"after": 17}       the rows up to this value have been read

A batch is the rows with start < column <= end. What this cannot see: deletions; a row that gets a value that has been
read already (the same time as another row, or a transaction that commits late); and of several changes of a row between
two batches only the last. A row that changes between a failure and its repetition comes in a later batch.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from moldau.databases.changes.address import Address
from moldau.databases.changes.columns import Column, array
from moldau.databases.changes.errors import ChangesRefused
from moldau.databases.changes.options import ChangeOptions
from moldau.databases.changes.rows import ROWS_MAX, stream_schema

IDLE_S: Final = 0.4
POLL_S: Final = 0.05
BUSY_S: Final = 10.0
OP: Final = "u"
"""Whether a row is new is not known."""
_TYPES: Final = (("INT", "bigint"), ("REAL", "double"), ("FLOA", "double"), ("DOUB", "double"), ("BLOB", "binary"))
"""By a part of the declared type, as SQLite itself decides; everything else is a string."""
_HALF_WRITTEN: Final = ("SQLITE_READONLY_ROLLBACK", "SQLITE_READONLY_RECOVERY")
Value = int | float | str


@dataclass(frozen=True, slots=True)
class GrowingPiece:
    after: Value | None
    upto: Value | None


def sqlite_columns(address: Address, table: str, keys: tuple[str, ...] = ()) -> tuple[Column, ...]:
    """Return the columns of a table. Raises ChangesRefused."""
    with _connected(address) as connection:
        rows = connection.execute(f"PRAGMA table_info({_quoted(table)})").fetchall()
    folded = {key.lower() for key in keys}
    columns = tuple(Column(row[1], _type(row[2]), 0, row[1].lower() in folded) for row in rows)
    _check_names(address, table, [column.name for column in columns], keys)
    return columns


def _check_names(address: Address, table: str, present: Sequence[str], names: Iterable[str]) -> None:
    """Raise ChangesRefused for a column that the table lacks: SQLite takes its name in quotes for a text."""
    if not present:
        raise ChangesRefused(f"database {address.shown} has no table {table}")
    folded = {name.lower() for name in present}
    if missing := [name for name in names if name.lower() not in folded]:
        raise ChangesRefused(
            f"table {table} of database {address.shown} has no column {missing[0]}; it has {', '.join(present)}"
        )


def _check_table(connection: sqlite3.Connection, options: ChangeOptions) -> None:
    rows = connection.execute(f"PRAGMA table_info({_quoted(options.table[1])})").fetchall()
    names = [column.name for column in options.columns]
    _check_names(
        options.address, options.table[1], [row[1] for row in rows], [*names, *filter(None, [options.growing])]
    )


def _type(declared: str) -> str:
    return next((type_ for part, type_ in _TYPES if part in declared.upper()), "string")


class GrowingStream:
    def __init__(self, options: ChangeOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options, self._clock = options, clock
        self._is_bounded = False
        self._target: Value | None = None

    def initial(self) -> dict[str, Any]:
        return {}

    def fix_target(self) -> None:
        """End the stream at the present highest value, for Trigger.AvailableNow."""
        self._is_bounded = True
        with _connected(self._options.address) as connection:
            _check_table(connection, self._options)
            self._target = self._highest(connection)

    def next_end(self, start: Mapping[str, Any], rows_max: int | None = None) -> dict[str, Any]:
        """Return the end of the next batch, or `start`. Rows with one value are never divided."""
        deadline = self._clock() + IDLE_S
        after = start.get("after")
        with _connected(self._options.address) as connection:
            _check_table(connection, self._options)
            while True:
                end = self._next_value(connection, after, rows_max or self._options.rows_max)
                if end is not None:
                    return {"after": end}
                if self._is_bounded or self._clock() >= deadline:
                    return dict(start)
                time.sleep(POLL_S)

    def pieces(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[GrowingPiece]:
        return [GrowingPiece(start.get("after"), end.get("after"))] if start != end else []

    def close(self) -> None:
        """Connections are not kept."""

    def _highest(self, connection: sqlite3.Connection) -> Value | None:
        column, table = _quoted(self._column), _quoted(self._options.table[1])
        return _checked(connection.execute(f"SELECT max({column}) FROM {table}").fetchone()[0], self._column)

    def _next_value(self, connection: sqlite3.Connection, after: Value | None, most: int) -> Value | None:
        condition, values = _between(self._column, after, self._target if self._is_bounded else None)
        if self._is_bounded and self._target is None:
            return None
        column, table = _quoted(self._column), _quoted(self._options.table[1])
        rows = f"SELECT {column} AS value FROM {table} WHERE {condition} ORDER BY {column} LIMIT ?"
        found = connection.execute(f"SELECT max(value) FROM ({rows})", (*values, most)).fetchone()
        return _checked(found[0], self._column)

    @property
    def _column(self) -> str:
        assert self._options.growing is not None, "loading gives every SQLite source a column"
        return self._options.growing


def read_growing(options: ChangeOptions, piece: GrowingPiece) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch in the order of the column."""
    column = options.growing
    assert column is not None, "the stream has one"
    condition, values = _between(column, piece.after, piece.upto)
    names = ", ".join(_quoted(each.name) for each in options.columns)
    order = f"ORDER BY {_quoted(column)}, rowid"
    with _connected(options.address) as connection:
        cursor = connection.execute(
            f"SELECT {names} FROM {_quoted(options.table[1])} WHERE {condition} {order}", values
        )
        while rows := cursor.fetchmany(ROWS_MAX):
            yield _batch(rows, options.columns)


def read_present(options: ChangeOptions) -> Iterator[pa.RecordBatch]:
    """Yield the rows that the table has now."""
    names = ", ".join(_quoted(each.name) for each in options.columns)
    limit = -1 if options.limit is None else options.limit
    with _connected(options.address) as connection:
        _check_table(connection, options)
        cursor = connection.execute(f"SELECT {names} FROM {_quoted(options.table[1])} LIMIT ?", (limit,))
        while rows := cursor.fetchmany(ROWS_MAX):
            yield _batch(rows, options.columns)


def _between(column: str, after: Value | None, upto: Value | None) -> tuple[str, tuple[Value, ...]]:
    name = _quoted(column)
    parts = [(f"{name} > ?", after), (f"{name} <= ?", upto)]
    given = [(part, value) for part, value in parts if value is not None]
    condition = " AND ".join([f"{name} IS NOT NULL", *(part for part, _ in given)])
    return condition, tuple(value for _, value in given)


def _batch(rows: list[tuple[Any, ...]], columns: tuple[Column, ...]) -> pa.RecordBatch:
    schema, count = stream_schema(columns), len(rows)
    own = {
        column.name: array(column, [_text(value, column) for value in values])
        for column, values in zip(columns, zip(*rows, strict=True), strict=True)
    }
    own["_op"] = pa.array([OP] * count, pa.string())
    return pa.record_batch([own.get(each.name, pa.nulls(count, each.type)) for each in schema], schema=schema)


def _text(value: object, column: Column) -> bytes | None:
    """Return the value as PostgreSQL would write it. SQLite's columns hold values of any type."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return b"\\x" + value.hex().encode() if column.type == "binary" else value
    text = (repr(value) if isinstance(value, float) else str(value)).encode()
    return b"\\x" + text.hex().encode() if column.type == "binary" else text


def _checked(value: object, column: str) -> Value | None:
    if value is None or isinstance(value, int | float | str):
        return value
    raise ChangesRefused(f"column {column} holds bytes, and a column that grows has numbers or texts")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _opened(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path))}?mode={mode}", uri=True, timeout=BUSY_S)


def _roll_back(path: Path) -> None:
    """Roll back the transaction of a writer that was killed, as every reader does that may write the file."""
    for mode in ("ro", "rw"):
        with closing(_opened(path, mode)) as connection:
            try:
                connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorname not in _HALF_WRITTEN or mode == "rw":
                    raise


@contextmanager
def _connected(address: Address) -> Iterator[sqlite3.Connection]:
    """Yield a connection that only reads; errors of SQLite are ChangesRefused, but a ConnectionError for a locked file,
    and for one whose writer was killed in a transaction."""
    path = Path(address.path).absolute()
    try:
        _roll_back(path)
        with closing(_opened(path, "ro")) as connection:
            yield connection
    except sqlite3.OperationalError as error:
        sentence = f"database {path}: {error}"
        if "locked" in str(error) or "busy" in str(error):
            raise ConnectionError(sentence) from None
        if error.sqlite_errorname in _HALF_WRITTEN:
            raise ConnectionError(
                f"database {path}: its writer was killed in a transaction, which a process that may write the file must"
                " roll back"
            ) from None
        raise ChangesRefused(sentence) from None
    except sqlite3.Error as error:
        raise ChangesRefused(f"database {path}: {error}") from None
