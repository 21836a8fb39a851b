"""Makes records of rows: the value by the sink's format; key, headers, topic and partition by SQL expressions.

- json: an object of the row's columns, timestamps in ISO 8601 with all six digits; csv, avro: the columns in order.
- text, raw: the row's one column. A source's metadata columns (_key, _offset …) are not part of a value unless the
  sink's `value` names them.
- key, headers: texts and bytes as they are; structs, arrays, maps and variants as JSON; other types as text.
- topic: the sink's `topic` for all rows, or its `route`, an SQL expression that gives the topic of each row.

This module makes and checks columns; sinks.py knows their place in the pipeline's file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType, VariantType

from moldau.base.limits import TOPIC_NAME_LENGTH_MAX
from moldau.databases.changes.rows import CHANGE_COLUMNS
from moldau.pipelines.planning.avro_records import write_column
from moldau.pipelines.planning.avro_types import Avro
from moldau.pipelines.planning.sources import METADATA
from moldau.pipelines.spec import RecordFormat
from moldau.spark.quoting import quoted_name

TIME_FORMATS: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Spark's own formats would cut times to milliseconds."""
HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"
LEGAL_TOPIC: Final = rf"\A(?!\.{{1,2}}\z)[a-zA-Z0-9._-]{{1,{TOPIC_NAME_LENGTH_MAX}}}\z"


class UnwritableRows(ValueError):
    """The rows cannot be written in this format. The message is one line."""


def row_value(frame: DataFrame, format_: RecordFormat, options: Mapping[str, str], avro: Avro | None) -> Column:
    """Return the value of a record that is made of a whole row."""
    of_changes = CHANGE_COLUMNS if set(CHANGE_COLUMNS) <= set(frame.columns) else ()
    names = [name for name in frame.columns if name not in METADATA and name not in of_changes]
    if format_ in ("text", "raw"):
        return _single_column(frame, names, format_)
    if not names:
        raise UnwritableRows("the rows have no columns to write")
    row = F.struct(*(F.col(quoted_name(name)) for name in names))
    if format_ == "json":
        return F.to_json(row, TIME_FORMATS | dict(options))
    if format_ == "csv":
        return F.to_csv(row, TIME_FORMATS | dict(options))
    assert avro is not None, "loading gives every avro sink a schema"
    return write_column(row, avro)


def _single_column(frame: DataFrame, names: list[str], format_: RecordFormat) -> Column:
    type_name = "string" if format_ == "text" else "binary"
    if len(names) == 1 and isinstance(frame.schema[names[0]].dataType, (StringType, BinaryType)):
        return F.col(quoted_name(names[0])).cast(type_name)
    columns = ", ".join(f"{name} {frame.schema[name].dataType.simpleString()}" for name in names)
    raise UnwritableRows(
        f"format {format_} needs rows with one column, of type string or binary, but they have {columns or 'no column'}"
    )


def as_string_or_binary(column: Column, data_type: DataType) -> Column:
    """Return a key, value or header as a string or binary column: Kafka has only bytes, and a string becomes UTF-8."""
    if isinstance(data_type, (StringType, BinaryType)):
        return column
    if isinstance(data_type, (StructType, ArrayType, MapType, VariantType)):
        return F.to_json(column, TIME_FORMATS)
    return column.cast("string")


def headers_of(values: Mapping[str, Column]) -> Column:
    """Return headers as the array that the sink takes: never null, because null arrays are slow to move to Python."""
    pairs = [F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value")) for name, value in values.items()]
    return F.array(*pairs).cast(HEADERS_TYPE)


def checked_topic(route: Column, sink: str, expression: str, is_read: Column) -> Column:
    """Return the topic of each row, which the sink's `route` computes. A row without a legal name fails the query, as
    does a topic that the pipeline reads (`is_read`): it would feed itself for ever.

    `expression` is the text of `route`, for the error message.
    """
    gave = F.concat(
        F.lit(f"sink {sink}: route {expression} gave "),
        F.coalesce(F.concat(F.lit("'"), route, F.lit("'")), F.lit("null")),
    )
    loop = F.raise_error(F.concat(gave, F.lit(", which the pipeline reads: it would feed itself")))
    illegal = F.raise_error(F.concat(gave, F.lit(", which is not a legal topic name")))
    return F.when(is_read, loop).when(route.rlike(LEGAL_TOPIC), route).otherwise(illegal)


def checked_partition(partition: Column, sink: str, expression: str) -> Column:
    """Return the partition of each row, which the sink's `partition` computes. For null the partitioner chooses.

    A negative partition fails the query. `expression` is the text of `partition`, for the error message.
    """
    message = F.concat(
        F.lit(f"sink {sink}: partition {expression} gave "),
        partition.cast("string"),
        F.lit("; a partition must be 0 or more (use pmod(a, n) instead of a % n)"),
    )
    return F.when(partition < 0, F.raise_error(message).cast("int")).otherwise(partition.cast("int"))
