"""The language of `where`: what it computes, and that nothing else of Python can be reached."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from moldau.console.failures import ApiError
from moldau.console.records.choosing import choice_of
from moldau.console.records.expression import LENGTH_MAX, compile_expression
from moldau.console.records.shown import FoundRecord
from moldau.wire.records import Record

VALUE = {"amount": 120, "customer": {"city": "Praha", "vip": True}, "items": [{"id": 7}], "none": None}


def found(key: bytes | None = b"anna", value: Any = VALUE, **headers: str) -> FoundRecord:
    data = value if isinstance(value, bytes | None) else json.dumps(value).encode()
    pairs = tuple((name, text.encode()) for name, text in headers.items())
    return FoundRecord(2, Record(17, 1000, key, data, pairs), False)


def wants(record: FoundRecord, **parameters: str) -> bool:
    return choice_of(parameters).wants(record)


@pytest.mark.parametrize(
    "text",
    [
        "value.amount > 100",
        'key == "anna"',
        'value.customer.city == "Praha" and not value.customer.vip == false',
        "value.items[0].id == 7",
        "value.items[-1].id == 7",
        'value["amount"] >= 120',
        "100 < value.amount <= 120",
        'contains(value.customer.city, "rah")',
        '"rah" in value.customer.city',
        'value.amount in [1, 120] or value.amount == "x"',
        'startswith(key, "an") and endswith(lower(key), "na")',
        'matches(key, "^a.*a$")',
        "length(value.items) == 1",
        'headers.trace == "ab"',
        "partition == 2 and offset == 17 and timestamp == 1000",
        "value.missing == null",
        "value.none == null",
        "value.amount > -1",
        'contains(text, "Praha")',
        "size > 10",
    ],
)
def test_expressions_that_match(text: str) -> None:
    assert wants(found(trace="ab"), where=text)


@pytest.mark.parametrize(
    "text",
    [
        "value.amount < 100",
        "value.missing > 0",
        "value.missing.deeper.still == 1",
        'value.amount == "120"',
        "value.customer.vip == 1",
        "value.items[5].id == 7",
        "value.items[-2].id == 7",
        'value.customer > "a"',
        'matches(value.amount, "1")',
        "false",
        "null",
    ],
)
def test_expressions_that_do_not_match(text: str) -> None:
    assert not wants(found(), where=text)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("value.amount >", 14),
        ("  value.amount > ", 16),
        ("value.amount is 5", 14),
        ("(value.amount) not in [1] is 5", 27),
        ("value.amount + 5 > 3", 14),
        ("(key == 'ž' or (value.amount)\n  + 5 > 3)", 33),
        ("value.amount if key else 1", 14),
        ("__import__('os')", 1),
        ("().__class__.__mro__ == 1 + 1", None),
        ("(lambda: 1)()", None),
        ("[each for each in value]", None),
        ("10 ** 10 ** 10 > 1", None),
        ('"a" * 1000000000 == key', None),
        ("key == password", 8),
        ("contains(key)", 1),
        ('contains(*["a", "b"])', 1),
        ('matches(key, "(")', 14),
        ("matches(key, key)", 14),
        ("value[key] == 1", 7),
        ("key is null", 5),
        ('matches(key, "x{900}") or matches(key, "x{900}")', 40),
        (r'matches(key, "(\pL\d){20}")', 14),
        ("  key == password", 10),
        ('text == "žluťoučký" or password', 24),
        (r'matches(text, "\d\d") or password', 26),
        ("(key == 'a' or\r\n password)", 18),
        (r'"\d" == key or )', 16),
        ('  text == "ž" or )', 18),
        ("", 1),
        ("f'{key}' == 1", 1),
        ("key == 'a' or " * 40 + "key", None),
    ],
)
def test_an_invalid_expression_is_refused_with_its_column(text: str, column: int | None) -> None:
    with pytest.raises(ApiError) as refused:
        compile_expression(text)
    assert refused.value.status == 400
    assert refused.value.message.startswith("where")
    if column is not None:
        assert refused.value.extra["column"] == column


@pytest.mark.parametrize("text", ["(" * 150 + "key" + ")" * 150, "not " * 120 + "key", "value" + ".a" * 240])
def test_a_deeply_nested_expression_does_not_crash(text: str) -> None:
    assert len(text) <= LENGTH_MAX
    with suppress(ApiError):  # too deeply nested for the parser, or not
        compile_expression(text)


def test_backslashes_of_regular_expressions_need_not_be_doubled() -> None:
    assert wants(found(key=b"order 17"), where=r'matches(key, "^\w+ \d+$")')
    assert wants(found(key=b"order 17"), where=r'matches(key, "^\\w+ \\d+$")')
    assert wants(found(key=b'say "a\tb"'), where=r'contains(key, "\"") and contains(key, "\t")')


def test_backslashes_of_raw_texts_are_kept() -> None:
    assert wants(found(key=b"order 17"), where=r"""matches(key, r"^\w+ \d+$") or matches(key, R'nothing')""")
    assert wants(found(key=b"order 17"), where=r'''matches(key, r"""\d"17|\d$""") and matches(key, """\d""")''')
    assert wants(found(key=b"order 17"), where=r"""false or"\d" != key and matches(key, "r'\d|\d")""")


def test_a_json_null_is_null() -> None:
    assert wants(found(value=b" null\n"), where='value == null and contains(text, "null")')
    assert not wants(found(value=b'"null"'), where="value == null")
    assert not wants(found(value=b"nothing"), where="value == null")


def test_half_a_surrogate_pair_does_not_stop_a_search() -> None:
    half = found(value=rb'{"city": "\ud800Praha"}')
    assert wants(half, where='matches(value.city, "Praha$")')
    assert not wants(half, where='matches(value.city, "^Praha")')


@pytest.mark.parametrize("depth", [500, 900, 5_000])
def test_a_deeply_nested_value_does_not_stop_a_search(depth: int) -> None:
    nested = "[" * depth + "]" * depth
    record = found(value=f'{{"a": {nested}, "b": {nested}}}'.encode())
    wants(record, where="value.c == 1 or " + "(false or " * 40 + "value.a == value.b" + ")" * 40)


def test_python_attributes_cannot_be_reached() -> None:
    assert wants(found(), where="value.__class__ == null and key.__class__ == null and headers.__dict__ == null")


@pytest.mark.parametrize(
    ("parameters", "matches"),
    [
        ({"key": "nn"}, True),
        ({"key": "=anna"}, True),
        ({"key": "=ann"}, False),
        ({"header": "trace"}, True),
        ({"header": "trace:a"}, True),
        ({"header": "trace:x"}, False),
        ({"header": "other"}, False),
        ({"field": "amount>100"}, True),
        ({"field": "amount>=121"}, False),
        ({"field": "customer.city=Praha"}, True),
        ({"field": "customer.city~rah"}, True),
        ({"field": "customer.vip=true"}, True),
        ({"field": "items[0].id = 7"}, True),
        ({"field": "items[0].id!=7"}, False),
        ({"field": "missing=null"}, True),
        ({"text": "praHA"}, True),
        ({"text": "AB"}, True),
        ({"text": "nowhere"}, False),
        ({"tombstones": "without"}, True),
        ({"tombstones": "only"}, False),
        ({"key": "anna", "field": "amount<1"}, False),
        ({}, True),
    ],
)
def test_simple_filters(parameters: dict[str, str], matches: bool) -> None:
    assert wants(found(trace="ab"), **parameters) is matches


def test_all_headers_of_one_name_are_searched() -> None:
    record = Record(17, 1000, b"anna", b"", (("trace", b"first"), ("trace", None), ("trace", b"last")))
    twice = FoundRecord(2, record, False)
    assert wants(twice, header="trace:first")
    assert wants(twice, header="trace:last")
    assert wants(twice, text="FIRST")
    assert wants(twice, where='headers.trace == "last"')
    assert not wants(twice, header="trace:other")


def test_a_tombstone_and_bytes_have_no_fields() -> None:
    assert wants(found(value=None), tombstones="only")
    assert not wants(found(value=None), field="amount>1")
    assert not wants(found(value=b"\x00\xff"), where="value.amount > 1")
    assert wants(found(key=b"\x00\xff"), key="00ff")


@pytest.mark.parametrize(
    "parameters", [{"field": "amount"}, {"field": "a[b]=1"}, {"tombstones": "x"}, {"text": "a" * 2000}]
)
def test_invalid_filters_are_refused(parameters: dict[str, str]) -> None:
    with pytest.raises(ApiError):
        choice_of(parameters)
