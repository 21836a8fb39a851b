"""The reasons for bad records. Spark decides whether a record is bad: tests/spark compares both."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from moldau.pipelines.planning.rejection_reasons import csv_rejection, json_rejection, misread_decimals, utf8_rejection

PERSON = StructType([StructField("age", IntegerType(), False), StructField("name", StringType())])
SCHEMA = StructType(
    [
        StructField("id", StringType(), False),
        StructField("qty", IntegerType()),
        StructField("price", DoubleType()),
        StructField("ratio", FloatType()),
        StructField("amount", DecimalType(6, 2)),
        StructField("ok", BooleanType()),
        StructField("ts", TimestampType()),
        StructField("day", DateType()),
        StructField("blob", BinaryType()),
        StructField("who", PERSON),
        StructField("people", ArrayType(PERSON)),
        StructField("sizes", MapType(StringType(), IntegerType())),
    ]
)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "the value is empty"),
        (b"\xff{}", "not UTF-8: byte 0xff at position 0"),
        (b"hello", "not JSON: expecting value at character 0"),
        (b'{"id":"a"} x', "not JSON: extra data at character 11"),
        (b'{"id":NaN}', "not JSON: NaN is not a JSON number"),
        (b'{"id":' + b"[" * 100_000, "not JSON: nested too deeply"),
        (b"[1]", "not a JSON object but an array"),
        (b"null", "not a JSON object but null"),
        (b"true", "not a JSON object but a boolean"),
        (b"1.5", "not a JSON object but a number"),
        (b'"x"', "not a JSON object but a string"),
        (b"{}", "field id is missing"),
        (b'{"id":null}', "field id is null"),
        (b'{"id":"a","id":null}', "field id is null"),
        (b'{"id":"a","qty":"abc"}', 'field qty: "abc" is not an int'),
        (b'{"id":"a","qty":1.0}', "field qty: 1.0 is not an int"),
        (b'{"id":"a","qty":true}', "field qty: true is not an int"),
        (b'{"id":"a","qty":3000000000}', "field qty: 3000000000 is out of range for int"),
        (b'{"id":"a","qty":"x","qty":1}', 'field qty: "x" is not an int'),
        (b'{"id":"a","price":"5"}', 'field price: "5" is not a double'),
        (b'{"id":"a","price":1e400}', "field price: 1e400 is out of range for double"),
        (b'{"id":"a","ratio":1e39}', "field ratio: 1e39 is out of range for float"),
        (b'{"id":"a","amount":9999.995}', "field amount: 9999.995 is out of range for decimal(6,2)"),
        (b'{"id":"a","amount":"x"}', 'field amount: "x" is not a decimal(6,2)'),
        (b'{"id":"a","amount":1e999999999}', "field amount: 1e999999999 is out of range for decimal(6,2)"),
        (b'{"id":"a","amount":1e-9999}', "a number in it has an exponent of more than three digits"),
        (b'{"id":"a","amount":"1,5"}', 'field amount: "1,5" is not a decimal(6,2)'),
        (b'{"id":"a","ok":1}', "field ok: 1 is not a boolean"),
        (b'{"id":"a","ts":"noon"}', 'field ts: "noon" is not a timestamp'),
        (
            b'{"id":"a","ts":1700000000000}',
            "field ts: 1700000000000 is not in the years 1 to 9999 (a number is read as seconds since 1970)",
        ),
        (b'{"id":"a","day":20260131}', "field day: 20260131 is not a date"),
        (b'{"id":"a","blob":"!"}', 'field blob: "!" is not base64'),
        (b'{"id":"a","who":5}', "field who: 5 is not an object"),
        (b'{"id":"a","who":{"name":"n"}}', "field who.age is missing"),
        (b'{"id":"a","people":[{"age":1},{"age":"x"}]}', 'field people[1].age: "x" is not an int'),
        (b'{"id":"a","people":{}}', "field people: {} is not an array"),
        (b'{"id":"a","sizes":{"k v":"x"}}', 'field sizes["k v"]: "x" is not an int'),
        (b'{"id":"a","qty":"' + b"x" * 100 + b'"}', 'field qty: "' + "x" * 38 + "… is not an int"),
        (b'{"id":"a","qty":"a\\nb\\u0007"}', 'field qty: "a\\nb\\u0007" is not an int'),
    ],
)
def test_the_reason_for_a_bad_json_text(value: bytes, reason: str) -> None:
    assert json_rejection(value, SCHEMA) == reason


@pytest.mark.parametrize(
    "value",
    [
        b'{"id":"a"}',
        b' {"id":5,"qty":-1,"price":1,"ratio":3.4e38,"amount":9999.994,"ok":false,"other":{"deep":[[]]}}\n',
        b'{"id":"a","ts":"2026-01-31T08:00:00.5Z","day":"2026-01-31","blob":"aGVsbG8=","who":null}',
        b'{"id":"a","ts":0,"people":[null,{"age":1}],"sizes":{"a":null}}',
        b'{"id":"12e34567","amount":"1e3"}',
    ],
)
def test_a_good_json_text_has_no_reason(value: bytes) -> None:
    assert json_rejection(value, SCHEMA) is None


def test_schemas_without_decimals_need_no_check_of_exponents() -> None:
    assert misread_decimals(PERSON) is None


LINE = StructType(SCHEMA.fields[:2] + SCHEMA.fields[5:7])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b" \n", "the value is empty"),
        (b"a\xff,1", "not UTF-8: byte 0xff at position 1"),
        (b"a,1", "2 fields, and the schema has 4"),
        (b"a", "1 field, and the schema has 4"),
        (b"a,1,true,2026-01-31\nb,2,true,2026-01-31", "2 lines; a record is one line of CSV"),
        (b",1,true,2026-01-31", "field id is missing"),
        (b"a,x,true,2026-01-31", 'field qty: "x" is not an int'),
        (b"a,3000000000,true,2026-01-31", 'field qty: "3000000000" is out of range for int'),
        (b"a,1,yes,2026-01-31", 'field ok: "yes" is not a boolean'),
        (b"a,1,true,noon", 'field ts: "noon" is not a timestamp'),
    ],
)
def test_the_reason_for_a_bad_line_of_csv(value: bytes, reason: str) -> None:
    assert csv_rejection(value, LINE, {}) == reason


def test_csv_options_are_used() -> None:
    assert csv_rejection(b"a;-;true;2026-01-31", LINE, {"Sep": ";", "nullValue": "-"}) is None
    assert csv_rejection(b'"a, b",1,TRUE,2026-01-31 08:00:00\n', LINE, {}) is None


def test_the_reason_for_invalid_utf8() -> None:
    assert utf8_rejection("žluť".encode()) is None
    assert utf8_rejection(b"ok\xed\xa0\x80") == "not UTF-8: byte 0xed at position 2"
