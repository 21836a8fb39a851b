"""Reads the envelopes that Debezium and `format: debezium` of a sink write, as rows of a stream of changes.

The view has the columns of the source's schema and CHANGE_COLUMNS, as that of a database (database_changes.py), so that
all sinks treat both alike. With Debezium's schemas the envelope is the field `payload`, without them it is the value.

How values are written that JSON has no type for (Debezium's defaults, and what `format: debezium` writes):

- date: the number of days since 1970, or a text
- timestamp, timestamp_ntz: the number of microseconds since 1970, or a text; by `options: {times: millis}` milliseconds
- binary: base64
- decimal: a number or a text. Debezium's default is base64 of bytes, which may look like a number: such a record is
  refused where the schema beside it says so; `decimal.handling.mode=string` writes texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from moldau.databases.changes.rows import CHANGE_COLUMNS
from moldau.pipelines.planning.computed_once import once
from moldau.pipelines.planning.record_schemas import VALUE
from moldau.pipelines.planning.rejection_reasons import (
    TIMESTAMP_SECONDS_END,
    TIMESTAMP_SECONDS_MIN,
    json_rejection,
    quote,
    scalar_checks,
)
from moldau.pipelines.spec import TIME_UNITS

ENVELOPE: Final = "_moldau_envelope"
BEFORE: Final = "_moldau_before"
AFTER: Final = "_moldau_after"
PARTS: Final = {BEFORE: "before", AFTER: "after"}
"""Columns with the two rows of an envelope, and the field that each is made of."""
TIMES: Final = "times"
"""The option that says what a number in a time column counts, one of TIME_UNITS."""
BASE64_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
WITH_AFTER: Final = ("r", "c", "u")
WITH_BEFORE: Final = ("d",)
WITHOUT_ROW: Final = ("t",)
NO_KEY: Final = "a tombstone whose key has no column of the schema"
_NUMBER: Final = r"^-?\d{1,18}$"
_TIME_TYPES: Final = (DateType, TimestampType, TimestampNTZType)
SECONDS_MAX: Final = 300_000_000_000
"""More than there are until the year 9999."""
DAYS_MAX: Final = 3_000_000
SECONDS_OF_DAY: Final = 86_400
_EPOCHS: Final[Mapping[type[DataType], str]] = {
    TimestampType: "1970-01-01T00:00:00Z",
    TimestampNTZType: "1970-01-01T00:00:00",
}
_ENDS: Final[Mapping[type[DataType], tuple[str, str]]] = {
    DateType: ("0001-01-01", "9999-12-31"),
    TimestampType: ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"),
    TimestampNTZType: ("0001-01-01T00:00:00", "9999-12-31T23:59:59.999999"),
}


def envelope_schema(row: StructType) -> StructType:
    """Return what is parsed: the envelope, or an object with it."""
    envelope = _envelope(row)
    return StructType([*envelope.fields, StructField("payload", envelope)])


def _envelope(row: StructType) -> StructType:
    """Return the envelope. NOT NULL holds for `after` only: of a deleted row there may be no more than its key."""
    after = StructType([StructField(each.name, _parsed_as(each.dataType), each.nullable) for each in row.fields])
    before = StructType([StructField(each.name, each.dataType) for each in after.fields])
    return StructType(
        [
            StructField("op", StringType()),
            StructField("ts_ms", LongType()),
            StructField("before", before),
            StructField("after", after),
            StructField("source", StructType([StructField("lsn", LongType()), StructField("txId", LongType())])),
        ]
    )


def view_schema(row: StructType) -> StructType:
    """Return the columns of the view."""
    columns = StructType([StructField(each.name, each.dataType) for each in row.fields])
    own = {"_op": StringType(), "_before": columns}
    return StructType([*columns.fields, *(StructField(name, own.get(name, LongType())) for name in CHANGE_COLUMNS)])


def _parsed_as(data_type: DataType) -> DataType:
    return StringType() if isinstance(data_type, _TIME_TYPES) else data_type


def with_envelope(
    frame: DataFrame, parsed: Column, row: StructType, options: Mapping[str, str], has_tombstones: bool
) -> DataFrame:
    """Add the columns that `change` and `is_change` read: each is computed once, however often it is used. A tombstone
    is the deletion of the row that its key names."""
    flat = F.struct(*(parsed.getField(name).alias(name) for name in _envelope(row).names))
    frame = frame.withColumn(ENVELOPE, once(F.coalesce(parsed.getField("payload"), flat)))
    for name, part in PARTS.items():
        given = F.col(ENVELOPE).getField(part)
        if has_tombstones and name == BEFORE:
            given = F.when(F.col(VALUE).isNull(), _key(row, options)).otherwise(given)
        frame = frame.withColumn(name, once(_converted(given, row, options)))
    return frame


def _key(row: StructType, options: Mapping[str, str]) -> Column:
    """Return the columns of the record's key."""
    before = next(field.dataType for field in _envelope(row).fields if field.name == "before")
    assert isinstance(before, StructType)
    with_payload = StructType([*before.fields, StructField("payload", before)])
    parsed = F.from_json(F.col("key").cast("string"), with_payload, json_options(options))
    return F.coalesce(
        parsed.getField("payload"), F.struct(*(parsed.getField(name).alias(name) for name in before.names))
    )


def is_deletion(row: StructType) -> Column:
    """Return whether a tombstone names a row."""
    return F.coalesce(*(F.col(BEFORE).getField(name).cast("string") for name in row.names)).isNotNull()


def change(row: StructType) -> Column:
    """Return the row of the view that an envelope makes."""
    envelope = F.col(ENVELOPE)
    op = F.when(F.col(VALUE).isNotNull(), envelope.getField("op")).otherwise("d")
    source, is_deleted = envelope.getField("source"), op.isin(*WITH_BEFORE)
    now = {
        name: F.when(is_deleted, F.col(BEFORE).getField(name)).otherwise(F.col(AFTER).getField(name))
        for name in row.names
    }
    return F.struct(
        *(value.alias(name) for name, value in now.items()),
        op.alias("_op"),
        F.col(BEFORE).alias("_before"),
        source.getField("lsn").alias("_lsn"),
        F.lit(None).cast(LongType()).alias("_index"),
        envelope.getField("ts_ms").alias("_ts_ms"),
        source.getField("txId").alias("_xid"),
    )


def is_change(text: Column, row: StructType) -> list[Column]:
    """Return the conditions of a good record, besides those of the schema."""
    op = F.col(ENVELOPE).getField("op")
    conditions = [
        (op.isin(*WITH_AFTER) & F.col(AFTER).isNotNull())
        | (op.isin(*WITH_BEFORE) & F.col(BEFORE).isNotNull())
        | op.isin(*WITHOUT_ROW)
    ]
    for name, part in PARTS.items():
        for field in row.fields:
            if isinstance(field.dataType, _TIME_TYPES):
                given = F.col(ENVELOPE).getField(part).getField(field.name)
                conditions.append(given.isNull() | F.col(name).getField(field.name).isNotNull())
    if any(isinstance(field.dataType, DecimalType) for field in row.fields):
        conditions.append(F.instr(text, BASE64_DECIMAL) == 0)
    return conditions


def _converted(part: Column, row: StructType, options: Mapping[str, str]) -> Column:
    """Return `before` or `after` with its times."""
    fields = [
        (_time(value, field.dataType, options) if isinstance(field.dataType, _TIME_TYPES) else value).alias(field.name)
        for field in row.fields
        for value in [part.getField(field.name)]
    ]
    return F.when(part.isNotNull(), F.struct(*fields))


def _time(value: Column, data_type: DataType, options: Mapping[str, str]) -> Column:
    """Return the time; null for a text or number that is none in the years 1 to 9999."""
    number = F.when(value.rlike(_NUMBER), value.cast("bigint"))
    first, last = (F.lit(text).cast(data_type) for text in _ENDS[type(data_type)])
    if isinstance(data_type, DateType):
        from_number = F.expr("date '1970-01-01'") + F.when(F.abs(number) < DAYS_MAX, number).cast("int")
    else:
        seconds = number.cast("decimal(18,0)") / F.lit(Decimal(_per_second(options)))
        since = F.when(F.abs(seconds) < SECONDS_MAX, seconds.cast("decimal(18,6)"))
        from_number = F.lit(_EPOCHS[type(data_type)]).cast(data_type) + F.make_dt_interval(secs=since)
    time = F.when(number.isNotNull(), from_number).otherwise(value.try_cast(data_type))
    return F.when(time.between(first, last), time)


def _per_second(options: Mapping[str, str]) -> int:
    return TIME_UNITS[next((value for name, value in options.items() if name.lower() == TIMES), "micros")]


def json_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of Spark's parser."""
    return {name: value for name, value in options.items() if name.lower() != TIMES}


# --- reasons --------------------------------------------------------------------------------------------------------


def rejection(value: bytes, row: StructType, options: Mapping[str, str]) -> str | None:
    """Return why a text is no change of a row, or None if nothing is found."""
    if reason := json_rejection(value, envelope_schema(row), json_options(options)):
        return reason
    content = json.loads(value)
    envelope = content.get("payload") or content
    if reason := _missing_row(envelope):
        return reason
    if BASE64_DECIMAL in value.decode():
        return "its decimals are bytes in base64: set decimal.handling.mode=string in Debezium"
    return _wrong_time(envelope, row, _per_second(options))


def _missing_row(envelope: Mapping[str, Any]) -> str | None:
    op = envelope.get("op")
    if op not in (*WITH_AFTER, *WITH_BEFORE, *WITHOUT_ROW):
        return "no change of a row: field op is missing" if op is None else f"no change of a row: op is {quote(op)}"
    part = "after" if op in WITH_AFTER else "before"
    if op in WITHOUT_ROW or envelope.get(part) is not None:
        return None
    return f"op is {quote(op)}, but field {part} is missing"


def _wrong_time(envelope: Mapping[str, Any], row: StructType, per_second: int) -> str | None:
    for part in PARTS.values():
        for field in row.fields:
            value = (envelope.get(part) or {}).get(field.name)
            is_time = value is not None and isinstance(field.dataType, _TIME_TYPES)
            if is_time and (reason := _time_mismatch(value, field.dataType, per_second)):
                return f"field {part}.{field.name}: {quote(value)} {reason}"
    return None


def _time_mismatch(value: Any, data_type: DataType, per_second: int) -> str | None:
    if isinstance(value, bool) or not re.fullmatch(_NUMBER, str(value)):
        return scalar_checks({})[type(data_type)](value, data_type)
    seconds = int(value) * SECONDS_OF_DAY if isinstance(data_type, DateType) else int(value) // per_second
    is_time = TIMESTAMP_SECONDS_MIN <= seconds < TIMESTAMP_SECONDS_END
    return None if is_time else "is not in the years 1 to 9999"
