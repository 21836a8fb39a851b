"""Arrow schemas of queries and of tables: which types a lake holds, what may change, and rows brought into line.

Every column is nullable in a lake table, as with Spark's own file sinks: a NOT NULL that a query happens to promise
would bind all queries to come. Pure: no files, no Spark.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as kinds

from moldau.spark.lake.tables import LakeError

_PARTITION = frozenset((pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.date32(), pa.string()))
_FLAT = _PARTITION | {pa.float32(), pa.float64(), pa.binary()}


def lake_schema(schema: pa.Schema, table: str, widen_small_ints: bool = False) -> pa.Schema:
    """The schema with the types that a table stores; field ids, if there are any, stay."""
    seen: set[str] = set()
    for field in schema:
        if field.name.casefold() in seen:
            raise LakeError(f"{table}: the query has two columns named {field.name}")
        seen.add(field.name.casefold())
    return pa.schema([_field(field, field.name, table, widen_small_ints) for field in schema])


def _field(field: pa.Field, column: str, table: str, widen: bool, nullable: bool = True) -> pa.Field:
    return pa.field(field.name, _type(field.type, column, table, widen), nullable, field.metadata)


def _type(given: pa.DataType, column: str, table: str, widen: bool) -> pa.DataType:
    if kinds.is_struct(given):
        return pa.struct([_field(field, column, table, widen) for field in given])
    if kinds.is_list(given) or kinds.is_large_list(given):
        return pa.list_(_field(given.value_field, column, table, widen).with_name("element"))
    if kinds.is_map(given):
        key = _field(given.key_field, column, table, widen, nullable=False).with_name("key")
        return pa.map_(key, _field(given.item_field, column, table, widen).with_name("value"))
    if kinds.is_timestamp(given) and given.unit == "us":
        # Spark names the zone of the session, often Etc/UTC; the instant is the same, and Delta knows UTC alone.
        return pa.timestamp("us", "UTC" if given.tz else None)
    if kinds.is_large_string(given) or kinds.is_string_view(given):
        return pa.string()
    if kinds.is_large_binary(given) or kinds.is_binary_view(given):
        return pa.binary()
    if widen and given in (pa.int8(), pa.int16()):
        return pa.int32()
    if given in _FLAT or kinds.is_decimal128(given):
        return given
    raise LakeError(f"{table}: column {column} has the type {given}, which a lake table does not hold; cast it")


def new_columns(table: str, there: pa.Schema, asked: pa.Schema) -> list[pa.Field]:
    """The columns that the query has and the table has not. Both schemas must have come through `lake_schema`."""
    names = {field.name.casefold(): field for field in there}
    added = []
    for field in asked:
        known = names.get(field.name.casefold())
        if known is None:
            added.append(field)
        elif known.name != field.name:
            raise LakeError(f"{table}: the query's column {field.name} is called {known.name} in the table; rename it")
        elif known.type != field.type:
            raise LakeError(
                f"{table}: column {field.name} is {known.type} in the table and {field.type} in the query; "
                "cast it in the query or write to another table"
            )
    return added


def checked_partitions(table: str, schema: pa.Schema, partition_by: Sequence[str]) -> tuple[str, ...]:
    for name in partition_by:
        if name not in schema.names:
            raise LakeError(f"{table}: there is no column {name} to partition by; there are {', '.join(schema.names)}")
        kind = schema.field(name).type
        if kind not in _PARTITION:
            raise LakeError(
                f"{table}: column {name} is {kind}; a table is partitioned by texts, whole numbers, dates or "
                "booleans, so partition by an expression of it, such as date(ts)"
            )
    if len(partition_by) >= len(schema):
        raise LakeError(f"{table}: a table needs a column that it is not partitioned by")
    return tuple(partition_by)


def same_partitions(table: str, there: Sequence[str], asked: Sequence[str]) -> tuple[str, ...]:
    """The table's own partitioning; the query may leave it out, but not ask for another one."""
    if asked and tuple(asked) != tuple(there):
        told = f"partitioned by {', '.join(there)}" if there else "not partitioned"
        raise LakeError(f"{table} is {told}; the query asks for {', '.join(asked)}")
    return tuple(there)


def aligned(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in the table's columns, order and types; a column that the query has no longer is null."""
    columns = []
    for field in schema:
        at = batch.schema.get_field_index(field.name)
        columns.append(batch.column(at).cast(field.type) if at >= 0 else pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
