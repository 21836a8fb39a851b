"""Which JSON texts are parsed twice, and what replaces numbers that Spark would misread. tests/spark parses them."""

from __future__ import annotations

import re

import pytest
from pyspark.sql.types import ArrayType, DecimalType, IntegerType, MapType, StringType, StructField, StructType

from moldau.pipelines.planning.misread_decimals import PATTERNS, Patterns, decimals_only, patterns_for

AMOUNT = DecimalType(6, 2)


def replaced(text: str, patterns: Patterns = PATTERNS) -> str:
    """Replace misread numbers as Java does: Python's `re` has neither \\G nor \\p."""
    pattern = re.compile(_for_python(patterns.replaced).replace(r"\G", ""))
    result, position = "", 0
    while (found := pattern.match(text, position)) is not None:
        result += found[1] + '"x"'
        position = found.end()
    return result + text[position:]


def is_suspect(text: str, patterns: Patterns = PATTERNS) -> bool:
    return re.search(_for_python(patterns.found), text) is not None


def _for_python(pattern: str) -> str:
    return pattern.replace(r"\p{Nd}", r"\d")


@pytest.mark.parametrize(
    "text",
    [
        '{"id":"a","amount":12.5,"amounts":["1.5",-1e3,"1e-999"]}',
        '{"note":"commit 7e12345","hex":"a4e12345"}',
        '{"note":"Smith, John","list":"1, 2","date":"31. 1. 2026, 12:00"}',
        '{"1,5":1,"7e12345" : "x"}',
        r'{"note":"\u041f\u0440, \u043c","quote":"\"1,5\""}',
        '{"amount":"1e0","other":["a","b",1,"c"]}',
    ],
)
def test_texts_without_misread_decimals_are_parsed_once(text: str) -> None:
    assert not is_suspect(text)
    assert replaced(text) == text


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ('{"amount":"1,5"}', '{"amount":"x"}'),
        ('{"amount": "-1,000.5" }', '{"amount": "x" }'),
        ('{"amount":1e999999999,"b":2}', '{"amount":"x","b":2}'),
        ('{"amount":-1.5E+9999}', '{"amount":"x"}'),
        ('{"amounts":["1",\n"1e-999999999",1]}', '{"amounts":["1",\n"x",1]}'),
        ('{"rates":{"1,5":"1,5"}}', '{"rates":{"1,5":"x"}}'),
        (r'{"amount":"1\u002c5"}', '{"amount":"x"}'),
        (r'{"amount":"1\u00659999"}', '{"amount":"x"}'),
        (r'{"amount":"1e\u0039999"}', '{"amount":"x"}'),
        (r'{"amount":"1\,5"}', '{"amount":"x"}'),
        ('{"amount":"1e٩٩٩٩٩٩٩٩٩"}', '{"amount":"x"}'),
        ("{'amount':'1,5'}", """{'amount':"x"}"""),
        ('{"amount":"1e999999999","amount":"1"}', '{"amount":"x","amount":"1"}'),
        ('{"id":"7e12345","amount":"1"}', '{"id":"x","amount":"1"}'),
        ('["abc:",1,"1,5",\'"\',"1,5"]', '["abc:",1,"x",\'"\',"x"]'),
        ('["it\'s","1,5"]', '["it\'s","x"]'),
    ],
)
def test_texts_with_misread_decimals_are_parsed_twice(text: str, result: str) -> None:
    assert is_suspect(text)
    assert replaced(text) == result


@pytest.mark.parametrize("locale", ["en-US", "en-us", None])
def test_a_comma_is_suspect_in_the_locale_in_which_it_is_dropped(locale: str | None) -> None:
    assert patterns_for({} if locale is None else {"locale": locale}) is PATTERNS


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ('{"amount":"1,5","note":"1\\u002c5"}', '{"amount":"1,5","note":"1\\u002c5"}'),
        ('{"amount":"1,5E9999"}', '{"amount":"x"}'),
        ('{"amount":1e999999999,"b":"1,5"}', '{"amount":"x","b":"1,5"}'),
    ],
)
def test_in_another_locale_only_long_exponents_are_suspect(text: str, result: str) -> None:
    patterns = patterns_for({"locale": "de-DE"})
    assert is_suspect(text, patterns) == (text != result)
    assert replaced(text, patterns) == result


@pytest.mark.parametrize(
    ("field", "is_misread", "is_misread_in_german"),
    [
        ("1,5", True, False),
        ("12.5\n1,5", True, False),
        ("1,5\n1,234.5", True, False),
        ("12,34", True, False),
        ("-1,234,567.89", False, False),
        ("1,234", False, False),
        ("1e9999", True, True),
        ("-1.5E+٩٩٩٩", True, True),
        ("12.5", False, False),
        ("1e999", False, False),
    ],
)
def test_csv_fields_that_spark_misreads(field: str, is_misread: bool, is_misread_in_german: bool) -> None:
    found = [
        re.search(_for_python(patterns_for(options).csv_field), field) is not None
        for options in ({}, {"locale": "de-DE"})
    ]
    assert found == [is_misread, is_misread_in_german]


def test_comments_are_skipped() -> None:
    assert replaced('{"amount":/* " */"1,5","b":// \'\n"1,5"}') == '{"amount":/* " */"x","b":// \'\n"x"}'


def test_only_decimals_are_read_the_first_time() -> None:
    plain = StructField("id", StringType(), False)
    inner = StructType([plain, StructField("amount", AMOUNT, False)])
    schema = StructType(
        [
            plain,
            StructField("amount", AMOUNT),
            StructField("lines", ArrayType(inner)),
            StructField("rates", MapType(StringType(), ArrayType(AMOUNT))),
            StructField("sizes", MapType(StringType(), IntegerType())),
            StructField("tags", ArrayType(StringType())),
        ]
    )
    decimals = decimals_only(schema)
    assert decimals is not None
    assert decimals.simpleString() == (
        "struct<amount:decimal(6,2),lines:array<struct<amount:decimal(6,2)>>,rates:map<string,array<decimal(6,2)>>>"
    )
    assert decimals_only(StructType([plain])) is None
