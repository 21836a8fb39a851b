"""Runs a view's query over the records of some batches. Only workers import this module: it loads DuckDB.

The engine can read nothing but the table that it is given: no files, no network, no extensions, and its settings are
locked.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from moldau.columns.varints import Mask, Numbers
from moldau.log.cleaning.pieces import Piece
from moldau.views.definition import ViewDefinition
from moldau.views.expressions import Column, walk
from moldau.views.field_ranges import FieldKey, Ranges, Value, constraints_of, indexed_fields
from moldau.views.prepared import PreparedQueries
from moldau.views.records import Records, header_column, text_column, timestamps, unchecked_texts
from moldau.views.sql import Query, compile_queries

T = TypeVar("T")
MEMORY_MAX: Final = "512MB"
FIELD_CHARACTERS_MAX: Final = 2**31 - 1
"""Of a quoted CSV field: no value is longer. Python's own limit would make long fields unreadable."""
LONG_VALUE_BYTES: Final = 4 << 20
"""To parse a value may take many times its bytes. Longer ones count as unreadable where that is too much: one such
value must not keep all others from being shown."""
QUERIES_MAX: Final = 100
"""Compiled queries that are kept: views are deleted, and nobody tells a worker."""
VALIDITY: Final = Query("coalesce(json_valid(value), TRUE)", "", ("value",), ())
"""Whether a value is JSON."""
NOT_FINITE_HINT: Final = r"(?i)[:,\[]-?(?:nan|inf)"
NOT_FINITE: Final = re.compile(r'"(?:[^"\\]|\\.)*"|-?(?:nan|inf(?:inity)?)', re.IGNORECASE | re.DOTALL)
"""A string, whatever is in it, or a number that JSON does not have."""
_SETTINGS: Final = {
    "threads": "1",
    "memory_limit": MEMORY_MAX,
    "max_temp_directory_size": "0KB",
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "ieee_floating_point_ops": "false",
    "error_on_division_by_zero": "false",
    "lock_configuration": "true",
}


class EngineFailed(Exception):
    """The view cannot be evaluated, though the records are right: memory, a result that is too large, or a bug."""


class Shown(NamedTuple):
    """The rows that a view shows, in order, and their new values, if it selects fields."""

    rows: Numbers
    values: pa.Array | None
    unreadable: int
    ranges: Mapping[FieldKey, tuple[Value, Value] | None] = {}
    """Least and greatest value of each indexed field, over all rows, shown or not."""


class Engine:
    """One connection for all views; queries are compiled once."""

    def __init__(self) -> None:
        import duckdb

        csv.field_size_limit(FIELD_CHARACTERS_MAX)
        self._duckdb: Any = duckdb
        self._queries = PreparedQueries(duckdb.connect(config=dict(_SETTINGS)))
        self._compile = lru_cache(QUERIES_MAX)(compile_queries)
        self.is_fresh = True
        """True until the first piece of work is done. Only then does running out of memory prove that a value is too
        long; later it may be due to what earlier work left."""

    def run(self, definition: ViewDefinition, piece: Piece, records: Records, partition: int) -> Shown:
        queries = self._compile(definition)
        source = _Source(definition, piece, records, partition)
        rows = source.rows
        ranges: Ranges = {}
        if queries.mask is not None:
            is_shown, ranges = self._mask(queries.mask, source, indexed_fields(constraints_of(definition.where)))
            rows = np.flatnonzero(is_shown)
        values = None
        if queries.values is not None:
            values = self._result(queries.values, source, rows, self._queries.table).column(0).combine_chunks()
            values = _with_finite_numbers(values).cast(pa.binary())
        if source.is_unreadable is None:
            return Shown(rows, values, 0, ranges)
        return _with_unreadable(rows, values, source.is_unreadable, definition, records)._replace(ranges=ranges)

    def _mask(self, query: Query, source: _Source, keys: tuple[FieldKey, ...]) -> tuple[Mask, Ranges]:
        """Which rows are shown, and the least and greatest value of these fields over all rows."""
        if any(key.is_text for key in keys):
            table = self._result(query, source, source.rows, self._queries.table)
            return table.column("m").to_numpy(), {key: _range(table.column(f"x{n}")) for n, key in enumerate(keys)}
        arrays = self._result(query, source, source.rows, self._queries.arrays)
        return arrays["m"], {key: _range_of_numbers(arrays[f"x{n}"]) for n, key in enumerate(keys)}

    def _result(self, query: Query, source: _Source, rows: Numbers, execute: Callable[[Query, pa.Table], T]) -> T:
        """The query's columns for these rows, with null as the value where it cannot be read."""
        try:
            try:
                return self._read_result(query, source, rows, execute)
            except self._duckdb.OutOfMemoryException:
                unreadable = self._unreadable_long_values(source, query, rows) if self.is_fresh else rows[:0]
                if not unreadable.size:
                    raise
                source.add_unreadable(unreadable)
                return self._read_result(query, source, rows, execute)
        except self._duckdb.Error as failed:
            # Its text may quote values, which not everybody who sees the message may read.
            raise EngineFailed(f"the query of the view failed with {type(failed).__name__}") from None

    def _read_result(self, query: Query, source: _Source, rows: Numbers, execute: Callable[[Query, pa.Table], T]) -> T:
        table = source.table(query, rows)
        try:
            return execute(query, table)
        except (self._duckdb.InvalidInputException, UnicodeDecodeError):  # the latter if it quotes what is wrong
            source.add_unreadable(rows[self._is_unreadable(table)])
            return execute(query, source.table(query, rows))

    def _unreadable_long_values(self, source: _Source, query: Query, rows: Numbers) -> Numbers:
        """The rows whose values need more memory than there is only to be parsed, whatever the view does with them."""
        found = []
        for row in source.long_values(query, rows).tolist():
            try:
                self._is_unreadable(source.table(query, np.array([row])))
            except self._duckdb.OutOfMemoryException:
                found.append(row)
        return np.array(found, rows.dtype)

    def _is_unreadable(self, table: pa.Table) -> Mask:
        """Which values are no JSON."""
        if "value" not in table.column_names:
            return np.zeros(table.num_rows, np.bool_)
        is_valid = self._queries.table(VALIDITY, table).column(0)
        is_unreadable: Mask = ~is_valid.to_numpy()
        return is_unreadable


def _with_finite_numbers(values: pa.Array) -> pa.Array:
    """Null instead of NaN and infinities: the engine takes them for JSON and copies them with a field, but others do
    not."""
    may_be = pc.fill_null(pc.match_substring_regex(values, NOT_FINITE_HINT), False)
    rows = np.flatnonzero(may_be.to_numpy(zero_copy_only=False))
    if not rows.size:
        return values
    texts = values.to_pylist()
    for row in rows.tolist():
        texts[row] = NOT_FINITE.sub(lambda found: found[0] if found[0][0] == '"' else "null", texts[row])
    return pa.array(texts, values.type)


def _range(column: pa.ChunkedArray) -> tuple[Value, Value] | None:
    bounds = pc.min_max(column).as_py()
    return None if bounds["min"] is None else (bounds["min"], bounds["max"])


def _range_of_numbers(column: npt.NDArray[Any]) -> tuple[Value, Value] | None:
    numbers = column.compressed() if isinstance(column, np.ma.MaskedArray) else column
    return (float(numbers.min()), float(numbers.max())) if numbers.size else None


class _Source:
    """The columns of some records, each read when a query first uses it."""

    def __init__(self, definition: ViewDefinition, piece: Piece, records: Records, partition: int) -> None:
        self.rows: Numbers = np.arange(records.offsets.size)
        """All of them."""
        self._piece = piece
        self._records = records
        self._partition = partition
        self._columns: dict[str, pa.Array] = {}
        # A parser of JSON checks the values that it reads; all other uses need texts that are checked.
        self._checks_values = definition.csv_columns is not None or any(
            part == Column("value") for expression in definition.expressions for part in walk(expression)
        )
        self.is_unreadable: Mask | None = None
        """Which values cannot be read; None as long as all can."""

    def table(self, query: Query, rows: Numbers) -> pa.Table:
        columns = {"i": pa.array(rows.astype(np.int32))}
        for name in query.columns:
            columns[name] = self._rows_of(name, None, rows)
        for index, header in enumerate(query.headers):
            columns[f"h{index}"] = self._rows_of(f"h{index}", header, rows)
        return pa.table(columns)

    def long_values(self, query: Query, rows: Numbers) -> Numbers:
        """Which of these rows have a value that may need more memory than there is, if the query parses values."""
        if "value" not in query.columns:
            return rows[:0]
        values = self._records.values
        return rows[(values.ends - values.starts)[rows] > LONG_VALUE_BYTES]

    def add_unreadable(self, rows: Numbers) -> None:
        """These values cannot be read: they are null from now on."""
        is_unreadable = np.zeros(self._records.offsets.size, np.bool_)
        if self.is_unreadable is not None:
            is_unreadable |= self.is_unreadable
        is_unreadable[rows] = True
        self.is_unreadable = is_unreadable
        values = self._columns.get("value")
        if values is not None:
            self._columns["value"] = pc.if_else(pa.array(is_unreadable), pa.scalar(None, pa.string()), values)

    def _rows_of(self, name: str, header: str | None, rows: Numbers) -> pa.Array:
        records = self._records
        if name == "value" and not self._checks_values:
            is_null = records.values.is_null
            if self.is_unreadable is not None:
                is_null = is_null | self.is_unreadable
            return unchecked_texts(records.data, records.values, rows, is_null)
        column = self._column(name, header)
        return column if rows.size == records.offsets.size else column.take(pa.array(rows))

    def _column(self, name: str, header: str | None) -> pa.Array:
        key = name if header is None else f"header {header}"
        if key not in self._columns:
            self._columns[key] = self._read(name) if header is None else header_column(self._records, header)
        return self._columns[key]

    def _read(self, name: str) -> pa.Array:
        records = self._records
        match name:
            case "key":
                return text_column(records.data, records.keys)[0]
            case "offset":
                return pa.array(records.offsets)
            case "timestamp":
                return pa.array(timestamps(self._piece, records))
            case "partition":
                return pa.repeat(self._partition, records.offsets.size)
            case "fields":
                fields, self.is_unreadable = _csv_fields(self._column("value", None), self.is_unreadable)
                return fields
        assert name == "value", "there are no other columns"
        values, is_unreadable = text_column(records.data, records.values)
        self.is_unreadable = is_unreadable
        return values


def _with_unreadable(
    rows: Numbers, values: pa.Array | None, is_unreadable: Mask, definition: ViewDefinition, records: Records
) -> Shown:
    """Leave out the rows that cannot be read, or show them as they are."""
    unreadable = np.flatnonzero(is_unreadable)
    is_readable = ~is_unreadable[rows]
    rows = rows[is_readable]
    if values is not None:
        values = values.filter(pa.array(is_readable))
    if not definition.passes_unreadable or not unreadable.size:
        return Shown(rows, values, unreadable.size)
    every = np.concatenate([rows, unreadable])
    order = np.argsort(every, kind="stable")
    if values is not None:
        starts, ends = records.values.starts, records.values.ends
        raw = [records.data[starts[row] : ends[row]].tobytes() for row in unreadable.tolist()]
        values = pa.concat_arrays([values, pa.array(raw, pa.binary())]).take(pa.array(order))
    return Shown(every[order], values, unreadable.size)


def _csv_fields(values: pa.Array, is_unreadable: Mask | None) -> tuple[pa.Array, Mask | None]:
    """The fields of each line. Only lines with quotes or line breaks inside need Python's parser."""
    lines = pc.utf8_rtrim(values, "\r\n")
    fields = pc.split_pattern(lines, ",")
    is_special = pc.fill_null(pc.match_substring_regex(lines, '["\r\n]'), False).to_numpy(zero_copy_only=False)
    if not is_special.any():
        return fields, is_unreadable
    parsed = fields.to_pylist()
    is_unreadable = np.zeros(len(values), np.bool_) if is_unreadable is None else is_unreadable.copy()
    for row in np.flatnonzero(is_special).tolist():
        try:
            (parsed[row],) = list(csv.reader([lines[row].as_py()], strict=True))
        except (csv.Error, ValueError):
            parsed[row], is_unreadable[row] = None, True
    return pa.array(parsed, pa.list_(pa.string())), is_unreadable
