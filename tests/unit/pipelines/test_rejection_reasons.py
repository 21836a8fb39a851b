"""The reasons for bad records. Spark decides whether a record is bad: tests/spark compares both."""

from __future__ import annotations

import logging

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

from moldau.pipelines.planning.csv_rejection_reasons import csv_rejection
from moldau.pipelines.planning.rejection_reasons import GENERAL, json_rejection, reason_or_general, utf8_rejection

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
        StructField("wei", DecimalType(38, 0)),
        StructField("amounts", ArrayType(DecimalType(6, 2))),
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
        (b'{"id":"a","amount":1e-9999}', "field amount: 1e-9999 has an exponent of more than three digits"),
        (
            b'{"id":"a","amounts":["1","1e-9999"]}',
            'field amounts[1]: "1e-9999" has an exponent of more than three digits',
        ),
        (b'{"id":"a","amounts":["1\\u002c5"]}', 'field amounts[0]: "1,5" is not a decimal(6,2)'),
        (b'{"id":"a","wei":123456789012345678901234567890,"qty":"x"}', 'field qty: "x" is not an int'),
        (b'{"id":"a","wei":' + b"9" * 38 + b".5}", "field wei: " + "9" * 38 + ".5 is out of range for decimal(38,0)"),
        (
            b'{"id":"a","amount":1e-999999,"qty":"x"}',
            "field amount: 1e-999999 has an exponent of more than three digits",
        ),
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
        (b'{"id":"a","sizes":{"\\ud800":"x"}}', 'field sizes["\ufffd"]: "x" is not an int'),
        (b'{"id":"a","sizes":{"' + b"k" * 10**6 + b'":"x"}}', 'field sizes["' + "k" * 38 + '…]: "x" is not an int'),
        (b'{"id":"a","qty":"' + b"x" * 100 + b'"}', 'field qty: "' + "x" * 38 + "… is not an int"),
        (b'{"id":"a","qty":"a\\nb\\u0007"}', 'field qty: "a\\nb\\u0007" is not an int'),
    ],
)
def test_the_reason_for_a_bad_json_text(value: bytes, reason: str) -> None:
    assert json_rejection(value, SCHEMA, {}) == reason


@pytest.mark.parametrize(
    "value",
    [
        b'{"id":"a"}',
        b' {"id":5,"qty":-1,"price":1,"ratio":3.4e38,"amount":9999.994,"ok":false,"other":{"deep":[[]]}}\n',
        b'{"id":"a","ts":"2026-01-31T08:00:00.5Z","day":"2026-01-31","blob":"aGVsbG8=","who":null}',
        b'{"id":"a","ts":0,"people":[null,{"age":1}],"sizes":{"a":null}}',
        b'{"id":"12e34567","amount":"1e3"}',
        b'{"id":"a","note":"commit 7e12345","other":{"amount":"1,000","of":[1e5000]}}',
    ],
)
def test_a_good_json_text_has_no_reason(value: bytes) -> None:
    assert json_rejection(value, SCHEMA, {}) is None


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "not JSON: expecting property name enclosed in double quotes at character 1"),
        ({"allowSingleQuotes": "false"}, "not JSON: expecting property name enclosed in double quotes at character 1"),
        ({"allowSingleQuotes": "true"}, None),
        ({"ALLOWCOMMENTS": "true"}, None),
    ],
)
def test_options_that_relax_json_give_no_reason_but_an_empty_value(options: dict[str, str], reason: str | None) -> None:
    assert json_rejection(b"{'id':'a','qty':'x'}", SCHEMA, options) == reason
    assert json_rejection(b"", SCHEMA, options) == "the value is empty"


def test_dates_with_a_format_in_the_options_are_never_the_reason() -> None:
    value = b'{"id":"a","day":"31.1.2026","ts":"noon","qty":"x"}'
    formats = {"dateFormat": "d.M.yyyy", "timestampFormat": "a", "timeZone": "UTC"}
    assert json_rejection(value, SCHEMA, {}) == 'field day: "31.1.2026" is not a date'
    assert json_rejection(value, SCHEMA, formats) == 'field qty: "x" is not an int'
    assert csv_rejection(b"a,x,true,noon", LINE, formats) == 'field qty: "x" is not an int'
    assert csv_rejection(b"a,1,no,noon", LINE, formats) == 'field ok: "no" is not a boolean'
    assert csv_rejection(b"a,1,true,noon", LINE, formats) is None


class OddError(Exception):
    pass


def test_an_unexpected_error_gives_the_general_reason_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def fail(value: bytes) -> str | None:
        raise OddError(f"at {value!r}")

    with caplog.at_level(logging.ERROR):
        assert [reason_or_general(fail, value) for value in (b"1", b"2")] == [GENERAL, GENERAL]
    (record,) = caplog.records
    assert "OddError: at b'1'" in caplog.text
    assert record.getMessage().startswith("the reason for a bad record was not found")


def test_a_reason_that_is_not_utf8_becomes_the_general_reason() -> None:
    assert reason_or_general(lambda value: "field \ud800", b"") == GENERAL
    assert reason_or_general(lambda value: None, b"") == GENERAL
    assert reason_or_general(utf8_rejection, b"\xff") == "not UTF-8: byte 0xff at position 0"


LINE = StructType(SCHEMA.fields[:2] + SCHEMA.fields[5:7])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b" \n", "the value is empty"),
        (b"a\xff,1", "not UTF-8: byte 0xff at position 1"),
        ("a\uffff,1".encode(), "the character U+FFFF, which Spark cannot read"),
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


def test_a_good_line_of_csv_has_no_reason() -> None:
    assert csv_rejection(b"a;-;true;2026-01-31", LINE, {"Sep": ";", "nullValue": "-"}) is None
    assert csv_rejection(b'"a, b",1,TRUE,2026-01-31 08:00:00\n', LINE, {}) is None


PAIR = StructType([StructField("id", StringType()), StructField("qty", IntegerType())])
NOT_AN_INT = 'field qty: "x" is not an int'


@pytest.mark.parametrize(
    ("value", "options", "reason"),
    [
        (b'"a",x', {"escape": '"'}, NOT_AN_INT),
        (b'"a "",b""",x', {"escape": '"'}, NOT_AN_INT),
        (b'"a\\",x', {"escape": '"'}, NOT_AN_INT),
        (b'"a\\",b",x', {}, NOT_AN_INT),
        (b'"a\\\\",x', {}, NOT_AN_INT),
        (b"C:\\,x", {}, NOT_AN_INT),
        (b"'a,b',x", {"quote": "'"}, NOT_AN_INT),
        (b'"a,x', {"quote": "", "escape": ""}, NOT_AN_INT),
        (b"a\tx", {"sep": "\t"}, NOT_AN_INT),
        (b"a\tx", {"sep": "\\t"}, NOT_AN_INT),
        (b"a||x", {"delimiter": "||"}, NOT_AN_INT),
        (b"a|b||x||", {"sep": "||"}, "3 fields, and the schema has 2"),
        ("a\u2028b\x85\x0c,x".encode(), {}, NOT_AN_INT),
        (b"a" * 200_000 + b",x", {}, NOT_AN_INT),
        (b'"a\nb",x\r\n', {}, NOT_AN_INT),
        (b"a,1\r\nb,x\n", {}, "2 lines; a record is one line of CSV"),
        (b'"a"b,x', {}, None),
        (b'"a,x', {}, None),
        (b"a,x", {"sep": "\\u0001"}, None),
        (b"a,x", {"comment": "#"}, NOT_AN_INT),
        (b"#a,x", {"comment": "#"}, "a comment; each record is to be a row"),
        (b"a,x", {"ignoreLeadingWhiteSpace": "true"}, None),
        (b'"",1', {}, None),
        (b"'a '',b',1", {"quote": "'"}, "a doubled quote inside of quotes; set the option escape to '"),
        (b"a,x", {"quote": "''"}, None),
    ],
)
def test_csv_is_split_as_the_options_say(value: bytes, options: dict[str, str], reason: str | None) -> None:
    assert csv_rejection(value, PAIR, options) == reason


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"NaN,1,x", NOT_AN_INT),
        (b"1,123456789012345678901234567890,x", NOT_AN_INT),
        (b"1e400,1,1", 'field price: "1e400" is out of range for double'),
        (b'1,"1,5",1', 'field wei: "1,5" is not a decimal(38,0)'),
        (b" 1.5 ,1, 2", 'field qty: " 2" is not an int'),
        (b"1,1,2\t", 'field qty: "2\\t" is not an int'),
        (b"1,1,1_000", 'field qty: "1_000" is not an int'),
        (b"1, 2,1", 'field wei: " 2" is not a decimal(38,0)'),
        (b"1,1_000,1", 'field wei: "1_000" is not a decimal(38,0)'),
        (b"1_000,1,1", 'field price: "1_000" is not a double'),
    ],
)
def test_the_reason_for_a_bad_number_in_csv(value: bytes, reason: str) -> None:
    numbers = StructType([StructField("price", DoubleType()), StructField("wei", DecimalType(38, 0)), PAIR.fields[1]])
    assert csv_rejection(value, numbers, {}) == reason


def test_the_reason_for_invalid_utf8() -> None:
    assert utf8_rejection("žluť".encode()) is None
    assert utf8_rejection(b"ok\xed\xa0\x80") == "not UTF-8: byte 0xed at position 2"
