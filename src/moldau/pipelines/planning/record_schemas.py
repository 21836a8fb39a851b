"""The columns that a topic's records are to have: from DDL or an Avro schema file, and what a parsed row must satisfy.

Spark's parsers make every column nullable and let some numbers through that no longer are what was written. What
they do not check (NOT NULL, infinity by overflow, years beyond 9999) is said here as one Spark expression.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import fastavro
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from moldau.pipelines.planning.avro_types import plain_logical_types, spark_schema
from moldau.pipelines.planning.rejection_reasons import SECONDS
from moldau.pipelines.spec import FileSource, TopicSource

VALUE: Final = "value"
"""The one column of a text or raw topic."""


class UnusableSchema(ValueError):
    """A schema file that cannot be read or means nothing. The message is one line and names the file."""


def record_schema(source: TopicSource) -> StructType:
    """What the records of a topic are to be, with NOT NULL as it was written.

    ParseException is raised for DDL that Spark does not understand, UnusableSchema for an Avro file likewise.
    """
    if source.format == "text":
        return StructType([StructField(VALUE, StringType())])
    if source.format == "raw":
        return StructType([StructField(VALUE, BinaryType())])
    if source.format == "avro":
        assert source.schema_file is not None, "loading gives every avro source a schema file"
        return spark_schema(avro_file(source.schema_file))
    schema = StructType.fromDDL(ddl_of(source))
    if not isinstance(schema, StructType):
        raise UnusableSchema("a schema is a list of columns, such as: id string not null, amount double")
    return schema


def ddl_of(source: TopicSource | FileSource) -> str:
    if source.schema is not None:
        return source.schema
    assert source.schema_file is not None, "loading gives every json and csv source a schema"
    try:
        return source.schema_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableSchema(f"{source.schema_file} cannot be read: {error}") from error


def avro_file(path: Path) -> Any:
    """An Avro schema as JSON, with the logical types that Spark knows. ValueError for what is none."""
    try:
        read = json.loads(path.read_bytes())
        fastavro.parse_schema(read)
    except OSError as error:
        raise UnusableSchema(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
        raise UnusableSchema(f"{path} is not an Avro schema: {error}") from error
    return plain_logical_types(read)


def nullable(of: StructType) -> StructType:
    """The same type with nothing required, as Spark's parsers see it."""
    made: StructType = _rebuilt(of, lambda leaf: leaf)
    return made


def without_bytes(of: StructType) -> StructType:
    """With smallint for tinyint: Spark's JSON parser reads 200 as the tinyint -56."""
    made: StructType = _rebuilt(of, lambda leaf: ShortType() if isinstance(leaf, ByteType) else leaf)
    return made


def _rebuilt(of: DataType, leaf: Callable[[DataType], DataType]) -> Any:
    if isinstance(of, StructType):
        return StructType([StructField(field.name, _rebuilt(field.dataType, leaf), True) for field in of.fields])
    if isinstance(of, ArrayType):
        return ArrayType(_rebuilt(of.elementType, leaf), True)
    if isinstance(of, MapType):
        return MapType(of.keyType, _rebuilt(of.valueType, leaf), True)
    return leaf(of)


def is_rejected(row: Column, schema: StructType, infinity_allowed: bool) -> Column | None:
    """True where a parsed row lacks what is NOT NULL or holds what overflowed; None if no row can."""
    return _Misfits(infinity_allowed).of_struct(row, schema)


class _Misfits:
    def __init__(self, infinity_allowed: bool) -> None:
        self._infinity_allowed = infinity_allowed

    def of_struct(self, row: Column, schema: StructType) -> Column | None:
        found = [
            said
            for field in schema.fields
            if (said := self._of_field(row.getField(field.name), field.dataType, field.nullable)) is not None
        ]
        return _any(found)

    def _of_field(self, value: Column, of: DataType, is_nullable: bool) -> Column | None:
        inside = self._of_value(value, of)
        if is_nullable:
            return None if inside is None else F.coalesce(inside, F.lit(False))
        return value.isNull() if inside is None else F.coalesce(inside, F.lit(True))

    def _of_value(self, value: Column, of: DataType) -> Column | None:
        """For a value that is there; null where there is none."""
        if isinstance(of, (FloatType, DoubleType)) and not self._infinity_allowed:
            return F.abs(value) == F.lit(float("inf"))
        if isinstance(of, ByteType):
            return ~value.between(-128, 127)
        if isinstance(of, TimestampType):
            return ~value.between(*(F.timestamp_micros(F.lit(micros)) for micros in _micros()))
        if isinstance(of, StructType):
            inside = self.of_struct(value, of)
            return None if inside is None else F.when(value.isNotNull(), inside)
        if isinstance(of, ArrayType):
            return self._of_elements(value, of.elementType, of.containsNull)
        if isinstance(of, MapType):
            return self._of_elements(F.map_values(value), of.valueType, of.valueContainsNull)
        return None

    def _of_elements(self, values: Column, of: DataType, may_be_null: bool) -> Column | None:
        def inside(element: Column) -> Column:
            found = self._of_field(element, of, may_be_null)
            assert found is not None
            return found

        if self._of_field(F.lit(None), of, may_be_null) is None:
            return None
        check: Callable[[Column], Column] = inside
        return F.exists(values, check)


def _micros() -> tuple[int, int]:
    return SECONDS[0] * 1_000_000, SECONDS[1] * 1_000_000 - 1


def _any(conditions: list[Column]) -> Column | None:
    if not conditions:
        return None
    found = conditions[0]
    for each in conditions[1:]:
        found = found | each
    return found
