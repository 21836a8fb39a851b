"""The connector's columns, and checks of the user's schema.

If the user's schema has only some of the columns, only those are read.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
SOURCE_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}
SINK_TYPES: Final[dict[str, tuple[DataType, ...]]] = {
    "key": (BinaryType(), StringType()),
    "value": (BinaryType(), StringType()),
    "headers": (HEADERS,),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "timestamp": (TimestampType(),),
}


def source_schema(include_headers: bool) -> StructType:
    names = [name for name in SOURCE_TYPES if name != "headers" or include_headers]
    return StructType([StructField(name, SOURCE_TYPES[name]) for name in names])


def checked_arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of some of the connector's columns. Raise ValueError for a wrong name or type."""
    from pyspark.sql.pandas.types import to_arrow_schema

    for field in schema.fields:
        if field.name not in SOURCE_TYPES:
            raise ValueError(f"The connector has no column {field.name}; it has {', '.join(SOURCE_TYPES)}")
        if not _same(field.dataType, SOURCE_TYPES[field.name]):
            expected = SOURCE_TYPES[field.name].simpleString()
            raise ValueError(f"The column {field.name} is {expected}, not {field.dataType.simpleString()}")
    return to_arrow_schema(schema, timezone="UTC")


def check_sink(schema: StructType, topic: str | None, include_timestamp: bool) -> None:
    """Raise ValueError if rows of this schema cannot become records: what is missing, double or of a wrong type.
    Columns that are not written do not matter."""
    columns = {field.name.lower(): field.dataType for field in schema.fields}
    if "value" not in columns:
        raise ValueError("A record needs a column value; the rows have " + (", ".join(schema.names) or "no columns"))
    if topic is None and "topic" not in columns:
        raise ValueError("Where to? Give the option topic, or a column topic that names one for each row")
    for name, allowed in SINK_TYPES.items():
        if (name == "timestamp" and not include_timestamp) or (name == "topic" and topic is not None):
            continue
        if len(same := [each for each in schema.names if each.lower() == name]) > 1:
            raise ValueError(
                f"Which column is the {name}? The rows have {' and '.join(same)}; rename or drop all but one"
            )
        if name in columns and not any(_same(columns[name], one) for one in allowed):
            expected = " or ".join(one.simpleString() for one in allowed)
            raise ValueError(f"The column {name} must be {expected}, not {columns[name].simpleString()}")


def _same(one: DataType, other: DataType) -> bool:
    """Return whether two types are equal, except for nullability and collation, which do not matter here."""
    if isinstance(one, StringType) and isinstance(other, StringType):
        return True
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return _same(one.elementType, other.elementType)
    if isinstance(one, StructType) and isinstance(other, StructType):
        pairs: Any = zip(one.fields, other.fields, strict=False)
        return one.names == other.names and all(_same(a.dataType, b.dataType) for a, b in pairs)
    return one == other
