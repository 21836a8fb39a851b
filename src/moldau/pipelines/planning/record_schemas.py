"""The schema of a topic's records, from DDL or an Avro schema file, and the conditions for a parsed row.

Spark's parsers make every column nullable and change some numbers that overflow. A Spark expression checks what they do
not check: NOT NULL, infinity by overflow, years beyond 9999.
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
    """A schema file that cannot be read or is invalid. The message is one line and names the file."""


def record_schema(source: TopicSource) -> StructType:
    """Return the schema of a topic's records, with NOT NULL as it is in the file.

    Raises ParseException for DDL that Spark does not understand, and UnusableSchema for an unusable Avro file.
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
    """Return an Avro schema as JSON, with only the logical types that Spark has. Raises UnusableSchema."""
    try:
        avro = json.loads(path.read_bytes())
        fastavro.parse_schema(avro)
    except OSError as error:
        raise UnusableSchema(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
        raise UnusableSchema(f"{path} is not an Avro schema: {error}") from error
    return plain_logical_types(avro)


def nullable(of: StructType) -> StructType:
    """Return the type with all fields nullable, as Spark's parsers treat it."""
    copy: StructType = _rebuild(of, lambda leaf: leaf)
    return copy


def without_bytes(of: StructType) -> StructType:
    """Return the type with smallint for tinyint, because Spark's JSON parser reads 200 as the tinyint -56."""
    copy: StructType = _rebuild(of, lambda leaf: ShortType() if isinstance(leaf, ByteType) else leaf)
    return copy


def _rebuild(of: DataType, leaf: Callable[[DataType], DataType]) -> Any:
    if isinstance(of, StructType):
        return StructType([StructField(field.name, _rebuild(field.dataType, leaf), True) for field in of.fields])
    if isinstance(of, ArrayType):
        return ArrayType(_rebuild(of.elementType, leaf), True)
    if isinstance(of, MapType):
        return MapType(of.keyType, _rebuild(of.valueType, leaf), True)
    return leaf(of)


def is_rejected(row: Column, schema: StructType, infinity_allowed: bool) -> Column | None:
    """Return a condition for parsed rows that lack a NOT NULL value or have an overflow; None if no row can."""
    return _Rejections(infinity_allowed).of_struct(row, schema)


class _Rejections:
    """Builds the condition under which a value of some type is rejected; None where nothing can be."""

    def __init__(self, infinity_allowed: bool) -> None:
        self._infinity_allowed = infinity_allowed

    def of_struct(self, row: Column, schema: StructType) -> Column | None:
        conditions = [
            condition
            for field in schema.fields
            if (condition := self._of_field(row.getField(field.name), field.dataType, field.nullable)) is not None
        ]
        return _any(conditions)

    def _of_field(self, value: Column, of: DataType, is_nullable: bool) -> Column | None:
        inside = self._of_value(value, of)
        if is_nullable:
            return None if inside is None else F.coalesce(inside, F.lit(False))
        return value.isNull() if inside is None else F.coalesce(inside, F.lit(True))

    def _of_value(self, value: Column, of: DataType) -> Column | None:
        """Return the condition for a value that is not null; it is null where the value is."""
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
            condition = self._of_field(element, of, may_be_null)
            assert condition is not None
            return condition

        if self._of_field(F.lit(None), of, may_be_null) is None:
            return None
        check: Callable[[Column], Column] = inside
        return F.exists(values, check)


def _micros() -> tuple[int, int]:
    return SECONDS[0] * 1_000_000, SECONDS[1] * 1_000_000 - 1


def _any(conditions: list[Column]) -> Column | None:
    if not conditions:
        return None
    result = conditions[0]
    for each in conditions[1:]:
        result = result | each
    return result
