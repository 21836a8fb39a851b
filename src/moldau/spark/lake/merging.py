"""Rows to merge into a table by their keys: checked, and reduced to one row per key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from moldau.spark.lake.schemas import column_named
from moldau.spark.lake.tables import BatchTag, LakeError

_ROW = "__moldau_row"


@dataclass(frozen=True, slots=True)
class Merge:
    rows: pa.Table
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    """The stored columns: all but the one that marks deletions."""
    delete_column: str | None
    """A boolean column without nulls: these rows delete their key."""
    order_by: str | None = None
    """A row is ignored if the table's row with the same key has a larger value in this column."""

    def join_condition(self, target: str, source: str) -> str:
        """Return the SQL condition under which two rows have one key. Null keys match null keys; without null keys,
        plain equality is faster."""
        terms = []
        for key in self.keys:
            same = "IS NOT DISTINCT FROM" if self.rows.column(key).null_count else "="
            terms.append(f"{target}.{quoted(key)} {same} {source}.{quoted(key)}")
        return " AND ".join(terms)

    def newer_condition(self, target: str, source: str) -> str | None:
        """Return the SQL condition under which a row replaces the existing row; None if it always does."""
        if self.order_by is None:
            return None
        column = quoted(self.order_by)
        return f"({target}.{column} IS NULL OR {source}.{column} >= {target}.{column})"

    def cast_to(self, schema: pa.Schema) -> Merge:
        """Cast the rows to the types of the table."""
        fields = [pa.field(name, schema.field(name).type) for name in self.columns]
        if self.delete_column is not None:
            fields.append(pa.field(self.delete_column, pa.bool_()))
        target_schema = pa.schema(fields)
        return replace(self, rows=self.rows.select(target_schema.names).cast(target_schema))


@runtime_checkable
class Mergeable(Protocol):
    def merge(self, merge: Merge, tag: BatchTag) -> bool:
        """Update, insert and delete by keys in one transaction. Return False if the table already has the batch."""


def merge_of(table: str, rows: pa.Table, keys: Sequence[str], delete_when: str | None, order_by: str | None) -> Merge:
    """Return the merge of these rows. Columns are named in any case, as in Spark."""
    if not keys:
        raise LakeError(f"{table}: an upsert needs the columns that are its keys")
    keys = [_column(table, rows, key) for key in keys]
    delete_column = None if delete_when is None else _column(table, rows, delete_when)
    order_by = None if order_by is None else _column(table, rows, order_by)
    for name, role in (*((key, "a key") for key in keys), *([(order_by, "order_by")] if order_by else [])):
        _check_role(table, rows, name, role, delete_column)
    if delete_column is not None:
        if rows.schema.field(delete_column).type != pa.bool_():
            raise LakeError(f"{table}: the column {delete_column} tells which rows delete, so it must be a boolean")
        index = rows.column_names.index(delete_column)
        rows = rows.set_column(index, delete_column, pc.fill_null(rows.column(delete_column), False))
    columns = tuple(name for name in rows.column_names if name != delete_column)
    return Merge(_last_of_each_key(rows, keys, order_by), tuple(keys), columns, delete_column, order_by)


def _column(table: str, rows: pa.Table, name: str) -> str:
    column = column_named(rows.column_names, name)
    if column is None:
        raise LakeError(f"{table}: the rows to upsert have no column {name}")
    return column


def _check_role(table: str, rows: pa.Table, name: str, role: str, delete_column: str | None) -> None:
    """Check that a column can be a key or `order_by`: it is stored, and its values can be compared."""
    if name == delete_column:
        raise LakeError(f"{table}: column {name} marks the rows that delete and is not stored: it cannot be {role}")
    kind = rows.schema.field(name).type
    if kinds.is_nested(kind):
        raise LakeError(f"{table}: column {name} is {kind}, and {role} must be a single value, not several in one")


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _last_of_each_key(rows: pa.Table, keys: Sequence[str], order_by: str | None) -> pa.Table:
    """Return one row per key: the row with the highest `order_by` (nulls are lowest); of equal rows the last."""
    if order_by is not None:
        column = rows.column(order_by)
        ranks = pa.table({"valid": pc.is_valid(column), "order": column, "row": _numbers(rows)})
        rows = rows.take(pc.sort_indices(ranks, sort_keys=[(name, "ascending") for name in ranks.column_names]))
    numbered = rows.append_column(_ROW, _numbers(rows))
    last = numbered.group_by(list(keys)).aggregate([(_ROW, "max")]).column(f"{_ROW}_max")
    return rows.take(last.combine_chunks().sort())


def _numbers(rows: pa.Table) -> pa.Array:
    return pa.array(range(rows.num_rows), pa.int64())
