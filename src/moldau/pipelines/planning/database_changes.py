"""Views of database tables as streams of changes, and the records that are made of changes.

The view has the columns of the table and CHANGE_COLUMNS (moldau.databases.changes.rows), and if there is a key `_key`,
a JSON object of its columns. A sink to a topic that gets all of these writes the row under its key, a tombstone for a
deleted row; with Debezium's envelope the change, and a tombstone after a deletion.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from moldau import __version__
from moldau.databases.changes import columns as column_types
from moldau.databases.changes.errors import ChangesError
from moldau.databases.changes.growing import sqlite_columns
from moldau.databases.changes.rows import CHANGE_COLUMNS
from moldau.databases.changes.source import FORMAT, ChangesSource, spark_schema
from moldau.databases.changes.tables import look_up_columns
from moldau.pipelines.database_changes import address_of, change_options, files_of, table_of
from moldau.pipelines.planning.problem_collection import InvalidSetting
from moldau.pipelines.planning.record_values import TIME_FORMATS
from moldau.pipelines.spec import DatabaseSource, Pipeline
from moldau.spark.quoting import quoted_name

KEY: Final = "_key"
DELETED: Final = "d"
TRUNCATED: Final = "t"


def changes_view(
    session: SparkSession, pipeline: Pipeline, source: DatabaseSource, state: Path | None, is_stream: bool,
    limit: int | None = None,
) -> DataFrame:  # fmt: skip
    """Return the changes as a stream, or the present rows as a batch."""
    session.dataSource.register(ChangesSource)
    path = f"sources.{source.name}"
    options = replace(change_options(pipeline, source, _columns(source, path, state), state), limit=limit)
    reader = session.readStream if is_stream else session.read
    frame = reader.format(FORMAT).options(**options.to_spark()).schema(spark_schema(options)).load()
    keys = [column.name for column in options.columns if column.is_key]
    return frame.withColumn(KEY, F.to_json(F.struct(*map(quoted_name, keys)), TIME_FORMATS)) if keys else frame


def _columns(source: DatabaseSource, path: str, state: Path | None) -> tuple[column_types.Column, ...]:
    """Return the columns of the stream: those of the schema, or the database is asked for them."""
    declared = declared_columns(source, path)
    if declared and source.key:
        return declared
    try:
        if source.growing is not None:
            return declared or sqlite_columns(address_of(source), table_of(source)[1], source.key)
        directory = None if state is None else files_of(source, state)
        return look_up_columns(address_of(source), table_of(source), directory, declared)
    except (ChangesError, ConnectionError) as error:
        hint = "with `schema` and `key` the pipeline can be checked and tested without the database"
        raise InvalidSetting(f"{path}.database", str(error), hint) from error


def declared_columns(source: DatabaseSource, path: str) -> tuple[column_types.Column, ...]:
    """Return the columns of the source's schema; none without one. Raises InvalidSetting."""
    if source.schema is None:
        return ()
    schema = StructType.fromDDL(source.schema)
    if not isinstance(schema, StructType):
        raise InvalidSetting(f"{path}.schema", "a schema is a list of columns, such as: id bigint, name string")
    return tuple(_declared(field, source, path) for field in schema.fields) + _missing_key(schema, source, path)


def _declared(field: StructField, source: DatabaseSource, path: str) -> column_types.Column:
    type_ = field.dataType.simpleString()
    try:
        column_types.arrow_type(type_)
    except ValueError as error:
        raise InvalidSetting(f"{path}.schema", f"column {field.name}: {error}", column=field.name) from error
    if field.name in (*CHANGE_COLUMNS, KEY):
        raise InvalidSetting(f"{path}.schema", f"the stream itself has a column {field.name}", column=field.name)
    return column_types.Column(field.name, type_, 0, field.name in source.key)


def _missing_key(schema: StructType, source: DatabaseSource, path: str) -> tuple[()]:
    if missing := [name for name in source.key if name not in schema.names]:
        raise InvalidSetting(f"{path}.key", f"the schema has no column {missing[0]}")
    return ()


# --- records --------------------------------------------------------------------------------------------------------


def has_changes(frame: DataFrame) -> bool:
    """Return whether the rows are changes of a database, with all that the stream says of them."""
    return set(CHANGE_COLUMNS) <= set(frame.columns)


def without_truncations(frame: DataFrame) -> DataFrame:
    return frame.where(F.col("_op") != TRUNCATED)


def or_tombstone(value: Column) -> Column:
    """Return null for a deleted row, else the value."""
    return F.when(F.col("_op") != DELETED, value)


def debezium_values(frame: DataFrame, source: DatabaseSource | None) -> Column:
    """Return the values of the records of each change: the envelope, and a tombstone after a deletion."""
    names = [name for name in frame.columns if name not in (*CHANGE_COLUMNS, KEY)]
    after = F.when(F.col("_op").isin("r", "c", "u"), F.struct(*(F.col(quoted_name(name)) for name in names)))
    schema, table = (None, None) if source is None else table_of(source)
    origin = F.struct(
        F.lit(__version__).alias("version"),
        F.lit("postgresql" if source is None or source.growing is None else "sqlite").alias("connector"),
        F.lit(None if source is None else source.name).cast("string").alias("name"),
        F.col("_ts_ms").alias("ts_ms"),
        F.when(F.col("_op") == "r", "true").otherwise("false").alias("snapshot"),
        F.lit(None if source is None else address_of(source).shown.rpartition("/")[2]).cast("string").alias("db"),
        F.lit(schema).cast("string").alias("schema"),
        F.lit(table).cast("string").alias("table"),
        F.col("_xid").alias("txId"),
        F.col("_lsn").alias("lsn"),
    )
    envelope = F.to_json(
        F.struct(
            F.col("_before").alias("before"), after.alias("after"), origin.alias("source"), F.col("_op").alias("op"),
            F.col("_ts_ms").alias("ts_ms"),
        ),
        TIME_FORMATS | {"ignoreNullFields": "false"},
    )  # fmt: skip
    tombstone = F.lit(None).cast("string")
    # Without a key there is nothing that a tombstone could delete.
    has_tombstone = (F.col("_op") == DELETED) if KEY in frame.columns else F.lit(False)
    return F.explode(F.when(has_tombstone, F.array(envelope, tombstone)).otherwise(F.array(envelope)))
