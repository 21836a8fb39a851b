"""Which columns a sink accepts: those that are written are checked, and no others."""

from __future__ import annotations

import re

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from moldau.spark.columns import check_sink

STRING, LONG, TIME = StringType(), LongType(), TimestampType()


def schema(**columns: StringType | LongType | TimestampType) -> StructType:
    return StructType([StructField(name, data_type) for name, data_type in columns.items()])


@pytest.mark.parametrize(
    ("columns", "topic", "include_timestamp"),
    [
        (schema(value=STRING, timestamp=LONG), "orders", False),
        (schema(value=STRING, timestamp=TIME), "orders", True),
        (schema(Value=STRING, topic=LONG, Topic=LONG), "orders", False),
        (schema(value=STRING, TOPIC=STRING), None, False),
        (schema(value=STRING, other=LONG, Other=LONG), "orders", True),
    ],
)
def test_valid_sink_columns_are_accepted(columns: StructType, topic: str | None, include_timestamp: bool) -> None:
    check_sink(columns, topic, include_timestamp)


@pytest.mark.parametrize(
    ("columns", "topic", "problem"),
    [
        (schema(key=STRING), "orders", "A record needs a column value; the rows have key"),
        (schema(value=STRING), None, "Where to?"),
        (schema(value=STRING, topic=LONG), None, "The column topic must be string, not bigint"),
        (schema(value=STRING, timestamp=LONG), "orders", "The column timestamp must be timestamp, not bigint"),
        (
            schema(value=STRING, Value=STRING),
            "orders",
            "Which column is the value? The rows have value and Value; rename",
        ),
        (
            schema(value=STRING, topic=STRING, Topic=STRING),
            None,
            "Which column is the topic? The rows have topic and To",
        ),
    ],
)
def test_invalid_sink_columns_are_refused(columns: StructType, topic: str | None, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        check_sink(columns, topic, include_timestamp=True)
