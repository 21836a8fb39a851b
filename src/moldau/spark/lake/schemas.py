"""Arrow schemas of queries and tables: supported types, allowed changes, and the conversion of rows.

Every column of a lake table is nullable, as with Spark's own file sinks: a NOT NULL of one query would bind all later
queries. Pure: no files, no Spark.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as kinds

from moldau.spark.lake.tables import LakeError

_PARTITION = frozenset((pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.date32(), pa.string()))
_FLAT = _PARTITION | {pa.float32(), pa.float64(), pa.binary()}


def lake_schema(schema: pa.Schema, table: str, widen_small_ints: bool = False) -> pa.Schema:
    """Convert a schema to the types that a table stores; field ids are kept."""
    seen: set[str] = set()
    for field in schema:
        if field.name.casefold() in seen:
            raise LakeError(f"{table}: the query has two columns named {field.name}")
        seen.add(field.name.casefold())
    return pa.schema([_field(field, field.name, table, widen_small_ints) for field in schema])


def _field(field: pa.Field, column: str, table: str, widen: bool, nullable: bool = True) -> pa.Field:
    return pa.field(field.name, _type(field.type, column, table, widen), nullable, field.metadata)


def _type(arrow_type: pa.DataType, column: str, table: str, widen: bool) -> pa.DataType:
    if kinds.is_struct(arrow_type):
        return pa.struct([_field(field, column, table, widen) for field in arrow_type])
    if kinds.is_list(arrow_type) or kinds.is_large_list(arrow_type):
        return pa.list_(_field(arrow_type.value_field, column, table, widen).with_name("element"))
    if kinds.is_map(arrow_type):
        key = _field(arrow_type.key_field, column, table, widen, nullable=False).with_name("key")
        return pa.map_(key, _field(arrow_type.item_field, column, table, widen).with_name("value"))
    if kinds.is_timestamp(arrow_type) and arrow_type.unit == "us":
        # Spark uses the session's time zone, often Etc/UTC; the instant is the same, and Delta supports only UTC.
        return pa.timestamp("us", "UTC" if arrow_type.tz else None)
    if kinds.is_large_string(arrow_type) or kinds.is_string_view(arrow_type):
        return pa.string()
    if kinds.is_large_binary(arrow_type) or kinds.is_binary_view(arrow_type):
        return pa.binary()
    if widen and arrow_type in (pa.int8(), pa.int16()):
        return pa.int32()
    if arrow_type in _FLAT or kinds.is_decimal128(arrow_type):
        return arrow_type
    raise LakeError(f"{table}: column {column} has the type {arrow_type}, which a lake table does not hold; cast it")


def new_columns(table: str, table_schema: pa.Schema, query_schema: pa.Schema) -> list[pa.Field]:
    """Return the query's columns that the table lacks. Both schemas must come from `lake_schema`."""
    names = {field.name.casefold(): field for field in table_schema}
    added = []
    for field in query_schema:
        existing = names.get(field.name.casefold())
        if existing is None:
            added.append(field)
        elif existing.name != field.name:
            raise LakeError(
                f"{table}: the query's column {field.name} is called {existing.name} in the table; rename it"
            )
        elif existing.type != field.type:
            raise LakeError(
                f"{table}: column {field.name} is {existing.type} in the table and {field.type} in the query; "
                "cast it in the query or write to another table"
            )
    return added


def column_named(columns: Sequence[str], name: str) -> str | None:
    """Return the column of that name, else the one whose name differs only in case, as Spark finds it; or None."""
    if name in columns:
        return name
    return next((column for column in columns if column.casefold() == name.casefold()), None)


def checked_partitions(table: str, schema: pa.Schema, partition_by: Sequence[str]) -> tuple[str, ...]:
    """Return the columns to partition by with their names in the schema."""
    partitions = []
    for asked in partition_by:
        name = column_named(schema.names, asked)
        if name is None:
            raise LakeError(f"{table}: there is no column {asked} to partition by; there are {', '.join(schema.names)}")
        partitions.append(name)
        kind = schema.field(name).type
        if kind not in _PARTITION:
            raise LakeError(
                f"{table}: column {name} is {kind}; a table is partitioned by string, integer, date or boolean "
                "columns, so partition by an expression of it, such as date(ts)"
            )
    if len(partitions) >= len(schema):
        raise LakeError(f"{table}: a table needs a column that it is not partitioned by")
    return tuple(partitions)


def check_partitioning(table: str, there: Sequence[str], asked: Sequence[str]) -> tuple[str, ...]:
    """Return the table's partitioning; the query may omit it, but not request another one."""
    if asked and [name.casefold() for name in asked] != [name.casefold() for name in there]:
        partitioning = f"partitioned by {', '.join(there)}" if there else "not partitioned"
        raise LakeError(f"{table} is {partitioning}; the query asks for {', '.join(asked)}")
    return tuple(there)


def aligned(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a batch to the table's columns, order and types; columns that the query lacks are null."""
    columns = []
    for field in schema:
        at = batch.schema.get_field_index(field.name)
        columns.append(batch.column(at).cast(field.type) if at >= 0 else pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
