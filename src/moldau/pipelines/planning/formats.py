"""Parses topic records into rows or bad records: one Spark expression decides which of the two each record is.

How each format is parsed, and what Spark alone would accept:

- json: RFC 8259 in UTF-8, one object. Spark reads the first value of a text and ignores the rest, so the text is
  wrapped as {"record":[text,null]}: anything after the object makes that invalid (except text that closes the bracket,
  such as `,null]}`, which nobody writes by mistake). Single quotes, NaN and leading zeros are refused (options allow
  the first two), as are numbers that overflow (to infinity, to another tinyint, beyond the year 9999) and decimals that
  Spark would misread. If a name occurs twice, its last value is used and all its values must fit. A string column
  accepts any JSON as its text, a timestamp column also seconds since 1970.
- csv: one line with as many fields as the schema has columns, and perhaps a line break at its end. Refused are a second
  line, also behind a quote that is not closed, a comment, and what the parser would throw for (see csv_lines.py).
- avro: the bare encoding (or framed, see avro_records.py) without extra bytes.
- debezium: JSON in Debezium's envelope (debezium.py).
- text: UTF-8. raw: anything.

A null value (tombstone) is a row of nulls in all formats, or, if a column is NOT NULL, a bad record; the source's
`tombstone` may say otherwise. An empty value is a bad record, except in text and raw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from moldau.pipelines.planning import avro_records, csv_lines, debezium, misread_decimals, rejection_reasons
from moldau.pipelines.planning.arrow_functions import arrow_function
from moldau.pipelines.planning.computed_once import once
from moldau.pipelines.planning.csv_rejection_reasons import csv_rejection
from moldau.pipelines.planning.record_schemas import (
    VALUE,
    nullable,
    read_avro_schema,
    rejection_condition,
    tinyint_as_smallint,
)
from moldau.pipelines.spec import TopicSource

PARSED: Final = "_moldau_parsed"
CORRUPT: Final = "_moldau_corrupt"
RECORD: Final = "record"
JSON_DEFAULTS: Final = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}


@dataclass(frozen=True, slots=True)
class Parsed:
    frame: DataFrame
    """The records and one more column."""
    is_good: Column
    """Never null."""
    row: Column
    """A struct of the schema's columns; null for tombstones, undefined for bad records."""
    schema: StructType
    reason: Callable[[Column], Column]
    """Returns the reason for the value of a bad record; undefined for a good one. Slow, because it is Python."""


def parse(records: DataFrame, source: TopicSource, schema: StructType, options: Mapping[str, str]) -> Parsed:
    """Parse the records of a source; `options` are for Spark's json and csv parsers."""
    if source.tombstone == "drop" or (source.format == "debezium" and source.tombstone is None):
        records = records.filter(F.col(VALUE).isNotNull())
    parsed = _parse_values(records, source, schema, options)
    not_null = next((field.name for field in schema.fields if not field.nullable), None)
    if source.tombstone != "bad" and (source.tombstone is not None or not_null is None):
        return parsed
    reason = F.lit(rejection_reasons.tombstone_rejection(not_null))
    return replace(
        parsed,
        is_good=F.col(VALUE).isNotNull() & parsed.is_good,
        reason=lambda value: F.coalesce(parsed.reason(value), reason),
    )


def _parse_values(records: DataFrame, source: TopicSource, schema: StructType, options: Mapping[str, str]) -> Parsed:
    if source.format == "json":
        return _json(records, schema, options)
    if source.format == "debezium":
        return _debezium(records, schema, options, has_tombstones=source.tombstone == "row")
    if source.format == "csv":
        return _csv(records, schema, options)
    if source.format == "avro":
        return _avro(records, source, schema)
    return _plain(records, schema, is_text=source.format == "text")


def _json(records: DataFrame, schema: StructType, options: Mapping[str, str]) -> Parsed:
    merged = _merge(JSON_DEFAULTS, options, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT})
    read_as = nullable(tinyint_as_smallint(schema))
    text = _wrap(_without_misread_decimals(schema, merged))
    frame = records.withColumn(PARSED, once(F.from_json(text, _wrapped(read_as), merged)))
    parsed = F.col(PARSED)
    elements = parsed.getField(RECORD)
    row = F.get(elements, 0)
    conditions = [
        parsed.getField(CORRUPT).isNull(),
        F.size(elements) == 2,
        row.isNotNull(),
        F.get(elements, 1).isNull(),
        F.is_valid_utf8(_text()),
    ]
    is_infinity_allowed = merged["allownonnumericnumbers"].lower() == "true"
    return Parsed(
        frame,
        _good(conditions, rejection_condition(row, schema, is_infinity_allowed)),
        row if read_as == nullable(schema) else row.cast(nullable(schema)),
        schema,
        _reasons(lambda value: rejection_reasons.json_rejection(value, schema, merged)),
    )


def _debezium(records: DataFrame, row: StructType, options: Mapping[str, str], has_tombstones: bool) -> Parsed:
    parsed = _json(records, debezium.envelope_schema(row), debezium.json_options(options))
    reason = _reasons(lambda value: debezium.rejection(value, row, options))
    is_deletion = F.col(VALUE).isNotNull() | debezium.is_deletion(row)
    return Parsed(
        debezium.with_envelope(parsed.frame, parsed.row, row, options, has_tombstones),
        parsed.is_good & _good(debezium.is_change(_text(), row), None) & is_deletion,
        debezium.change(row),
        debezium.view_schema(row),
        lambda value: F.coalesce(reason(value), F.lit(debezium.NO_KEY)),
    )


def _wrapped(record: StructType) -> StructType:
    return StructType([StructField(RECORD, ArrayType(record)), StructField(CORRUPT, StringType())])


def _wrap(text: Column) -> Column:
    # The line break ends a comment at the end of the text, which may be allowed.
    return F.concat(F.lit(f'{{"{RECORD}":['), text, F.lit("\n,null]}"))


def _without_misread_decimals(schema: StructType, options: Mapping[str, str]) -> Column:
    """Return the text, but null if Spark would misread decimals in it."""
    decimals = misread_decimals.decimals_only(schema)
    if decimals is None:
        return _text()
    is_suspect = misread_decimals.may_be_misread(_text(), options)
    replaced = F.when(is_suspect, _wrap(misread_decimals.without_misread(_text(), options)))
    is_corrupt = F.from_json(replaced, _wrapped(decimals), dict(options)).getField(CORRUPT).isNotNull()
    return F.when(~is_suspect | ~is_corrupt, _text())


def _csv(records: DataFrame, schema: StructType, options: Mapping[str, str]) -> Parsed:
    merged = _merge(options, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT})
    columns = StructType([*nullable(schema).fields, StructField(CORRUPT, StringType())])
    for_parser = csv_lines.parser_options(merged)
    line = csv_lines.parsable(_text(), merged)
    is_misread = misread_decimals.is_misread_csv(line, schema, for_parser)
    # A null text is parsed to null, which `_good` counts as bad.
    text = line if is_misread is None else F.when(~F.coalesce(is_misread, F.lit(False)), line)
    frame = records.withColumn(PARSED, once(F.from_csv(text, columns.toDDL(), for_parser)))
    parsed = F.col(PARSED)
    conditions = [
        parsed.isNotNull(),
        parsed.getField(CORRUPT).isNull(),
        F.length(F.trim(line)) > 0,
        F.is_valid_utf8(_text()),
        csv_lines.is_one_line(line, len(schema.fields), for_parser, CORRUPT),
    ]
    if (is_short := csv_lines.has_short_fields(line, len(schema.fields), merged)) is not None:
        conditions.append(is_short)
    names_infinity = bool({"positiveinf", "negativeinf"} & set(merged))
    return Parsed(
        frame,
        _good(conditions, rejection_condition(parsed, schema, names_infinity)),
        parsed,
        schema,
        _reasons(lambda value: csv_rejection(value, schema, merged)),
    )


def _avro(records: DataFrame, source: TopicSource, schema: StructType) -> Parsed:
    assert source.schema_file is not None
    avro = read_avro_schema(source.schema_file)
    read = avro_records.read_column(F.col(VALUE), avro, nullable(schema), source.framing == "confluent")
    frame = records.withColumn(PARSED, read)
    error = F.col(PARSED).getField(avro_records.ERROR)
    row = F.col(PARSED).getField(avro_records.ROW)
    good = _good([error.isNull(), row.isNotNull()], rejection_condition(row, schema, infinity_allowed=True))
    general = F.lit(rejection_reasons.GENERAL)
    return Parsed(frame, good, row, schema, lambda value: F.when(value.isNotNull(), F.coalesce(error, general)))


def _plain(records: DataFrame, schema: StructType, is_text: bool) -> Parsed:
    column = _text() if is_text else F.col(VALUE)
    frame = records.withColumn(PARSED, F.struct(column.alias(VALUE)))
    good = F.coalesce(F.is_valid_utf8(_text()), F.lit(True)) if is_text else F.lit(True)
    return Parsed(frame, good, F.col(PARSED), schema, _reasons(rejection_reasons.utf8_rejection))


def _text() -> Column:
    return F.col(VALUE).cast("string")


def _good(conditions: list[Column], is_rejected: Column | None) -> Column:
    """Return a condition that is never null: a tombstone is good, and so is a value that meets all conditions.

    A condition is null if the parser returned null; such a value is bad.
    """
    all_hold = conditions[0]
    for condition in conditions[1:]:
        all_hold = all_hold & condition
    if is_rejected is not None:
        all_hold = all_hold & ~is_rejected
    return F.col(VALUE).isNull() | F.coalesce(all_hold, F.lit(False))


def _merge(*options: Mapping[str, str]) -> dict[str, str]:
    """Return all options with names in lower case, because Spark ignores their case. Later ones override."""
    return {name.lower(): value for each in options for name, value in each.items()}


def _reasons(reason_of: Callable[[bytes], str | None]) -> Callable[[Column], Column]:
    def reasons(values: pa.Array) -> pa.Array:
        texts = (
            None if value is None else rejection_reasons.reason_or_general(reason_of, value)
            for value in values.to_pylist()
        )
        return pa.array(texts, pa.string())

    return arrow_function(reasons, "string")
