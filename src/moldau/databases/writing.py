"""Writes a batch of rows to a table in one transaction, together with the batch's number.

    write(Destination(url=parse_url("sqlite:///out.db"), table=TableName("last_trip"), …), rows, Batch("q", 7, "run"))

The steps: look whether the table has the batch already; create the table or check it; then, in one transaction, lock
the query's row in `moldau_batches` and check it again, send the rows, merge them, change the row. All rows are computed
before the transaction begins, so it is open only while they are sent. MySQL ends a transaction with each change of a
table, which is why tables are prepared before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from moldau.databases import sql
from moldau.databases.batches import Batch, State, next_state
from moldau.databases.columns import Column
from moldau.databases.database import Database, connected, driver_of, sentences
from moldau.databases.destinations import (
    Destination,
    Layout,
    layout_of,
    matching,
    merge_of,
    missing_columns,
    new_table,
    table_problem,
)
from moldau.databases.errors import DatabaseError, DatabaseRefused, RowRefused
from moldau.databases.last_rows import LastRows
from moldau.databases.rows import Rows

VALUE_LENGTH_MAX: Final = 40
"""Of a value that an error shows."""
_STATE: Final = ("query", "target", "batch", "epoch", "run", "former_runs")
_TYPES: Final = ("VARCHAR(200)", "VARCHAR(200)", "BIGINT", "BIGINT", "VARCHAR(200)", "TEXT")


def write(destination: Destination, rows: Rows, batch: Batch) -> bool:
    """Write the rows; return False if the table already has the batch. Raises DatabaseError."""
    layout = layout_of(destination, rows.schema)
    with connected(destination.url, destination.shown) as database:
        return _Write(database, destination, layout, rows, batch).run()


def check(destination: Destination, schema: pa.Schema) -> str | None:
    """Return why rows of this schema cannot be written; None if they can. Changes nothing. Raises DatabaseError if the
    database cannot be asked."""
    layout = layout_of(destination, schema)
    with connected(destination.url, destination.shown) as database:
        existing = database.columns(destination.table)
        unique = database.unique_keys(destination.table)
        return table_problem(destination, layout, existing, unique) if existing else None


def is_empty(destination: Destination) -> bool:
    """Return whether the table has no rows, or does not exist."""
    with connected(destination.url, destination.shown) as database:
        if not database.columns(destination.table):
            return True
        return not database.execute(f"SELECT 1 FROM {destination.table.sql} LIMIT 1")


def rename(destination: Destination, name: str) -> None:
    with connected(destination.url, destination.shown) as database:
        database.execute(sql.rename_table(destination.table, name))


def typed_content(destination: Destination) -> list[dict[str, tuple[Any, str]]]:
    """Return all rows, with the value and the type of each column; none if there is no table."""
    with connected(destination.url, destination.shown) as database:
        columns = database.columns(destination.table)
        names = sql.names([column.name for column in columns])
        rows = database.execute(f"SELECT {names} FROM {destination.table.sql}") if columns else []
        return [{column.name: (value, column.type) for column, value in zip(columns, row, strict=True)} for row in rows]


def content(destination: Destination) -> list[dict[str, Any]]:
    """Return all rows, as the driver returns them."""
    return [{name: value for name, (value, _) in row.items()} for row in typed_content(destination)]


class _States:
    """The row about a query's batches in a table."""

    def __init__(self, database: Database, destination: Destination, batch: Batch) -> None:
        self._database, self._table = database, destination.table.beside(sql.BATCHES)
        self._key = [batch.query_id, destination.table.name]

    def exist(self) -> bool:
        return bool(self._database.columns(self._table))

    def create(self) -> None:
        columns = list(zip(_STATE, _TYPES, strict=True))
        self._database.execute(sql.create_table(self._table, columns, _STATE[:2], _STATE[2:]))

    def read(self, lock: str = "") -> State:
        where = " AND ".join(f"{sql.quoted(name)} = ?" for name in _STATE[:2])
        rows = self._database.execute(
            f"SELECT {sql.names(_STATE[2:])} FROM {self._table.sql} WHERE {where}{lock}", self._key
        )
        if not rows:
            return State()
        number, epoch, run_id, former_runs = rows[0]
        return State(number, epoch, run_id, tuple(former_runs.split()))

    def lock(self) -> State:
        """Make the row if it is missing, and keep others from changing it until the transaction ends."""
        statement = self._database.dialect.claim.format(
            table=self._table.sql, columns=sql.names(_STATE), values=", ".join("?" for _ in _STATE)
        )
        self._database.execute(statement, [*self._key, *_values(State())])
        return self.read(self._database.dialect.lock)

    def change(self, state: State) -> None:
        changes = ", ".join(f"{sql.quoted(name)} = ?" for name in _STATE[2:])
        where = " AND ".join(f"{sql.quoted(name)} = ?" for name in _STATE[:2])
        self._database.execute(f"UPDATE {self._table.sql} SET {changes} WHERE {where}", [*_values(state), *self._key])


def _values(state: State) -> list[object]:
    return [state.batch, state.epoch, state.run_id, " ".join(state.former_runs)]


class _Write:
    def __init__(self, database: Database, destination: Destination, layout: Layout, rows: Rows, batch: Batch) -> None:
        self._database, self._destination, self._layout = database, destination, layout
        self._rows, self._batch = rows, batch
        self._subject = destination.shown
        self._states = _States(database, destination, batch)

    def run(self) -> bool:
        if self._states.exist():
            if next_state(self._subject, self._states.read(), self._batch) is None:
                return False
        else:
            self._created(self._states.create, self._states.exist)
        self._prepare()
        parts = self._parts()
        try:
            return self._transaction(parts)
        except Exception as error:
            self._explain(error, parts)

    # --- tables -----------------------------------------------------------------------------------------------------

    def _created(self, create: Callable[[], object], exists: Callable[[], object]) -> None:
        """Create a table, unless another process does it at the same time."""
        try:
            with sentences(self._destination.url.kind, self._subject):
                create()
        except DatabaseError:
            if not exists():
                raise

    def _prepare(self) -> None:
        database, table, dialect = self._database, self._destination.table, self._destination.dialect
        existing = database.columns(table)
        if not existing:
            statement = sql.create_table(table, new_table(self._layout, dialect), self._layout.keys)
            self._created(lambda: database.execute(statement), lambda: database.columns(table))
            existing = database.columns(table)
        problem = table_problem(self._destination, self._layout, existing, database.unique_keys(table))
        if problem is not None:
            raise DatabaseRefused(f"{self._subject}: {problem}")
        for column in missing_columns(self._layout, existing):
            self._add(column)
        self._existing = database.columns(table)
        self._merge = merge_of(self._destination, self._layout, self._existing)
        self._types = {each.name: each.type for each in self._existing}

    def _add(self, column: Column) -> None:
        table = self._destination.table
        statement = sql.add_column(table, column.name, self._destination.dialect.sql_type(column))
        self._created(
            lambda: self._database.execute(statement), lambda: matching(column.name, self._database.columns(table))
        )

    # --- rows -------------------------------------------------------------------------------------------------------

    def _parts(self) -> LastRows | _AllRows:
        """Return the rows to send, with their positions in the batch."""
        if not self._layout.keys:
            return _AllRows(self._rows)
        keys = self._destination.keys
        if self._layout.is_history:
            assert self._layout.order_by is not None, "a history is ordered"
            keys = (*keys, self._layout.order_by)
        return LastRows(self._rows, list(dict.fromkeys(keys)), self._layout.order_by)

    def _transaction(self, parts: LastRows | _AllRows) -> bool:
        self._database.begin()
        try:
            after = next_state(self._subject, self._states.lock(), self._batch)
            if after is not None:
                self._send((self._checked(part, positions) for part, positions in parts.parts()))
                self._states.change(after)
                self._database.commit()
                return True
        except Exception:
            with suppress(Exception):  # the connection may be gone, and the transaction with it
                self._database.rollback()
            raise
        self._database.rollback()
        return False

    def _send(self, parts: Iterator[pa.RecordBatch]) -> None:
        """Store the rows within the open transaction."""
        merge, dialect = self._merge, self._destination.dialect
        columns = [replace(column, name=name) for column, name in zip(self._layout.columns, merge.columns, strict=True)]
        if not self._layout.keys:
            for part in parts:
                self._database.load(merge.table.sql, columns, part)
            return
        staged = [(name, self._types[name]) for name in merge.columns]
        if merge.deletes:
            columns.append(Column(sql.MARK, pa.bool_()))
            staged.append((sql.MARK, dialect.types["boolean"]))
        self._database.stage(staged)
        for part in parts:
            self._database.load(sql.quoted(sql.STAGED), columns, part)
        if dialect.forget_older is not None and merge.order_by is not None:
            self._database.execute(dialect.forget_older(merge))
        if merge.deletes:
            self._database.execute(dialect.delete_marked(merge))
        self._database.execute(dialect.upsert(merge))
        if self._layout.is_history:
            self._database.execute(dialect.close_versions(merge))

    def _checked(self, rows: pa.RecordBatch, positions: pa.Array) -> pa.RecordBatch:
        """Return the rows to send. Raises RowRefused for a null in a column that is NOT NULL."""
        part = self._layout.part(rows)
        for column in self._layout.columns:
            found = matching(column.name, self._existing)
            is_key = column.name in self._layout.keys
            nulls = part.column(column.name)
            if is_key and found is not None and found.ignores_last_spaces and column.family == "text":
                self._check_last_spaces(column.name, rows, nulls, positions)
            if not (is_key or (found and found.is_required)) or not nulls.null_count:
                continue
            is_wrong = pc.is_null(nulls)
            if self._layout.marks and not is_key:
                is_wrong = pc.and_(is_wrong, pc.invert(part.column(sql.MARK)))
            wrong = pc.indices_nonzero(is_wrong)
            if len(wrong):
                index = wrong[0].as_py()
                role = "a key" if is_key else "NOT NULL"
                raise self._refusal(
                    rows, index, positions[index].as_py(), f"column {column.name}, which is {role}, is null"
                )
        return part

    def _check_last_spaces(self, key: str, rows: pa.RecordBatch, values: pa.Array, positions: pa.Array) -> None:
        wrong = pc.indices_nonzero(pc.ends_with(values, " "))
        if len(wrong):
            index = wrong[0].as_py()
            reason = f"column {key}, which is a key, ends with a space, which the table's collation ignores"
            raise self._refusal(rows, index, positions[index].as_py(), reason)

    # --- a row that is refused --------------------------------------------------------------------------------------

    def _explain(self, error: Exception, parts: LastRows | _AllRows) -> NoReturn:
        """Raise the error; if the database refused a row, with its position. The row is found by sending parts of the
        batch again, in transactions that are rolled back."""
        failure = driver_of(self._destination.url.kind).failure(error)
        if failure is None or not issubclass(failure.kind, RowRefused):
            raise error
        found = None
        with suppress(Exception):  # the reason is known; only the position is missing
            found = self._find(parts)
        if found is None:
            raise RowRefused(f"{self._subject}: a row of the batch is refused: {failure.reason}") from error
        raise self._refusal(*found, failure.reason) from error

    def _find(self, parts: LastRows | _AllRows) -> tuple[pa.RecordBatch, int, int] | None:
        for part, positions in parts.parts():
            if self._is_accepted(part):
                continue
            low, high = 0, part.num_rows
            while high - low > 1:
                middle = (low + high) // 2
                if not self._is_accepted(part.slice(low, middle - low)):
                    high = middle
                elif not self._is_accepted(part.slice(middle, high - middle)):
                    low = middle
                else:
                    return None  # only together they are refused
            return part, low, positions[low].as_py()
        return None

    def _is_accepted(self, rows: pa.RecordBatch) -> bool:
        self._database.begin()
        try:
            self._send(iter([self._layout.part(rows)]))
        except Exception as error:
            failure = driver_of(self._destination.url.kind).failure(error)
            if failure is None or not issubclass(failure.kind, RowRefused):
                raise
            return False
        finally:
            self._database.rollback()
        return True

    def _refusal(self, rows: pa.RecordBatch, index: int, position: int, reason: str) -> RowRefused:
        shown = [f"{key} {_shown(rows.column(key)[index])}" for key in self._destination.keys]
        which = f" ({', '.join(shown)})" if shown else ""
        return RowRefused(f"{self._subject}: row {position + 1} of the batch{which} is refused: {reason}")


class _AllRows:
    """All rows, with their positions."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def parts(self) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        begin = 0
        for part in self._rows.parts():
            yield part, pa.array(range(begin, begin + part.num_rows), pa.int64())
            begin += part.num_rows


def _shown(value: Any) -> str:
    text = str(value.as_py())
    return text if len(text) <= VALUE_LENGTH_MAX else f"{text[:VALUE_LENGTH_MAX]}…"
