"""The schema of a topic's records, from DDL or an Avro schema file, and the condition that rejects a parsed row.

Spark's parsers make every column nullable and change some numbers that overflow. The rejection condition is a Spark
expression for what the parsers do not check: NOT NULL, infinity by overflow, years beyond 9999.
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

from moldau.pipelines.planning.avro_types import drop_unsupported_logical_types, spark_schema
from moldau.pipelines.planning.rejection_reasons import TIMESTAMP_SECONDS_END, TIMESTAMP_SECONDS_MIN
from moldau.pipelines.spec import BackendSource, FileSource, TopicSource

VALUE: Final = "value"
"""The one column of a text or raw topic."""
TIMESTAMP_MICROS_RANGE: Final = (TIMESTAMP_SECONDS_MIN * 1_000_000, TIMESTAMP_SECONDS_END * 1_000_000 - 1)
"""The first and the last microsecond of the years 1 to 9999."""


class UnusableSchema(ValueError):
    """A schema is not usable. The message is one line and names the schema's file or quotes the DDL."""


def record_schema(source: TopicSource) -> StructType:
    """Return the schema of a topic's records, with NOT NULL as the pipeline's file or the schema file says.

    Raises ParseException for DDL that Spark does not understand, and UnusableSchema for a schema file that cannot be
    read, an Avro schema that is invalid, and DDL that is not a list of columns.
    """
    if source.format == "text":
        return StructType([StructField(VALUE, StringType())])
    if source.format == "raw":
        return StructType([StructField(VALUE, BinaryType())])
    if source.format == "avro":
        assert source.schema_file is not None, "loading gives every avro source a schema file"
        return spark_schema(read_avro_schema(source.schema_file))
    return ddl_schema(source)


def ddl_schema(source: TopicSource | FileSource | BackendSource) -> StructType:
    """Return the schema that is given as DDL; raises as `record_schema` does."""
    ddl = read_ddl(source)
    schema = StructType.fromDDL(ddl)
    # Spark also accepts the DDL of one type, such as "int".
    if not isinstance(schema, StructType):
        origin = repr(ddl) if source.schema is not None else str(source.schema_file)
        raise UnusableSchema(
            f"{origin} is the type {schema.simpleString()}; a schema is a list of columns, such as: "
            "id string not null, amount double"
        )
    return schema


def read_ddl(source: TopicSource | FileSource | BackendSource) -> str:
    """Return the DDL in the pipeline's file, or the contents of the schema file. Raises UnusableSchema."""
    if source.schema is not None:
        return source.schema
    assert source.schema_file is not None, "loading gives every json and csv source a schema"
    try:
        return source.schema_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableSchema(f"{source.schema_file} cannot be read: {error}") from error


def read_avro_schema(path: Path) -> Any:
    """Return an Avro schema as JSON, with only the logical types that Spark has. Raises UnusableSchema."""
    try:
        avro = json.loads(path.read_bytes())
        fastavro.parse_schema(avro)
    except OSError as error:
        raise UnusableSchema(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
        raise UnusableSchema(f"{path} is not an Avro schema: {error}") from error
    return drop_unsupported_logical_types(avro)


def nullable(data_type: StructType) -> StructType:
    """Return the type with all fields nullable, as Spark's parsers treat it."""
    copy: StructType = _rebuild(data_type, lambda leaf: leaf)
    return copy


def tinyint_as_smallint(data_type: StructType) -> StructType:
    """Return the type with smallint for tinyint, because Spark's JSON parser reads 200 as the tinyint -56."""
    copy: StructType = _rebuild(data_type, lambda leaf: ShortType() if isinstance(leaf, ByteType) else leaf)
    return copy


def _rebuild(data_type: DataType, convert_leaf: Callable[[DataType], DataType]) -> Any:
    """Return a copy of the type with everything nullable, and with its types that contain no others converted."""
    if isinstance(data_type, StructType):
        fields = data_type.fields
        return StructType([StructField(each.name, _rebuild(each.dataType, convert_leaf), True) for each in fields])
    if isinstance(data_type, ArrayType):
        return ArrayType(_rebuild(data_type.elementType, convert_leaf), True)
    if isinstance(data_type, MapType):
        return MapType(data_type.keyType, _rebuild(data_type.valueType, convert_leaf), True)
    return convert_leaf(data_type)


def rejection_condition(row: Column, schema: StructType, infinity_allowed: bool) -> Column | None:
    """Return a condition that is true for parsed rows that lack a NOT NULL value or have an overflow.

    Returns None if the schema has nothing to check: then no row can be rejected.
    """
    return _RejectionConditions(infinity_allowed).for_struct(row, schema)


class _RejectionConditions:
    """Builds the condition under which a value of some type is rejected.

    Every method returns None if the type has nothing to check: then no value of the type can be rejected.
    """

    def __init__(self, infinity_allowed: bool) -> None:
        self._infinity_allowed = infinity_allowed

    def for_struct(self, row: Column, schema: StructType) -> Column | None:
        conditions = [
            condition
            for field in schema.fields
            if (condition := self._for_field(row.getField(field.name), field.dataType, field.nullable)) is not None
        ]
        return _any(conditions)

    def _for_field(self, value: Column, data_type: DataType, is_nullable: bool) -> Column | None:
        """Return a condition that is true or false, never null, so that the conditions of fields can be joined by OR.

        The condition for the value is null exactly when the value is null: null then means "accept" for a nullable
        field, and "reject" for a field that is NOT NULL.
        """
        condition = self._for_value(value, data_type)
        if is_nullable:
            return None if condition is None else F.coalesce(condition, F.lit(False))
        return value.isNull() if condition is None else F.coalesce(condition, F.lit(True))

    def _for_value(self, value: Column, data_type: DataType) -> Column | None:
        """Return a condition that is true or false for a value that is not null, and null for a null value."""
        if isinstance(data_type, (FloatType, DoubleType)) and not self._infinity_allowed:
            return F.abs(value) == F.lit(float("inf"))
        if isinstance(data_type, ByteType):
            return ~value.between(-128, 127)
        if isinstance(data_type, TimestampType):
            first, last = (F.timestamp_micros(F.lit(microseconds)) for microseconds in TIMESTAMP_MICROS_RANGE)
            return ~value.between(first, last)
        if isinstance(data_type, StructType):
            condition = self.for_struct(value, data_type)
            # All fields of a null struct are null, and one that is NOT NULL would reject it. WHEN returns null instead.
            return None if condition is None else F.when(value.isNotNull(), condition)
        if isinstance(data_type, ArrayType):
            return self._for_elements(value, data_type.elementType, data_type.containsNull)
        if isinstance(data_type, MapType):
            return self._for_elements(F.map_values(value), data_type.valueType, data_type.valueContainsNull)
        return None

    def _for_elements(self, values: Column, data_type: DataType, may_be_null: bool) -> Column | None:
        def is_rejected(element: Column) -> Column:
            condition = self._for_field(element, data_type, may_be_null)
            assert condition is not None
            return condition

        # Whether there is something to check depends only on the type, so any column will do to find out.
        if self._for_field(F.lit(None), data_type, may_be_null) is None:
            return None
        check: Callable[[Column], Column] = is_rejected
        return F.exists(values, check)


def _any(conditions: list[Column]) -> Column | None:
    """Return the conditions joined by OR, or None if there are no conditions."""
    if not conditions:
        return None
    result = conditions[0]
    for condition in conditions[1:]:
        result = result | condition
    return result
