"""Which records a body has, and what the query and the headers say of them."""

from __future__ import annotations

import json

import pytest
from harness.depth import deep
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.gateway.http.bodies import Options, options_of, records_of, timestamp_ms, values_of
from moldau.gateway.ports import NewRecord
from moldau.web.failures import ApiError

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


def refused(message: str, status: int = 400) -> pytest.RaisesExc[ApiError]:
    return pytest.raises(ApiError, match=message, check=lambda error: error.status == status)


@pytest.mark.parametrize(
    ("content_type", "body", "values"),
    [
        ("application/json", b'{"t": 21.50}', [b'{"t": 21.50}']),
        ("application/json", b' \n"text" ', [b'"text"']),
        ("application/json", b"[1, [2, 3] ,{}]", [b"1", b"[2, 3]", b"{}"]),
        ("application/json", b" [] ", []),
        ("application/senml+json", b'[{"n":"a"}]', [b'{"n":"a"}']),
        ("application/x-ndjson", b'{"a":1}\r\n\n  \n [2]\n', [b'{"a":1}', b"[2]"]),
        ("application/jsonl", b"", []),
        ("text/plain", b"[1, 2]", [b"[1, 2]"]),
        ("", b"", [b""]),
    ],
)
def test_the_values_of_a_body(content_type: str, body: bytes, values: list[bytes]) -> None:
    assert values_of(content_type, body) == values


@settings(max_examples=deep(100), deadline=None)
@given(st.lists(JSON), st.sampled_from([None, 1]))
def test_json_is_cut_into_the_values_that_python_finds(elements: list[object], indent: int | None) -> None:
    body = json.dumps(elements, indent=indent, ensure_ascii=False).encode()
    assert [json.loads(value) for value in values_of("application/json", body)] == elements
    lines = "\n".join(json.dumps(element) for element in elements).encode()
    assert [json.loads(value) for value in values_of("application/x-ndjson", lines)] == elements


@pytest.mark.parametrize(
    "body",
    [b"", b"[1,", b"{'a': 1}", b"nul", b"[1] 2", b'"\xff"', b"[NaN]", b"[" * 100_000, b'"\\ud800"', b"\xef\xbb\xbf1"],
)
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with refused("the body is not JSON"):
        values_of("application/json", body)


def test_a_line_has_one_value() -> None:
    with refused("the body is not JSON"):
        values_of("application/x-ndjson", b"1 2\n")
    with refused("the body is not JSON"):
        values_of("application/x-ndjson", b"[1,\n2]\n")


def test_a_request_has_not_too_many_records() -> None:
    with refused("at most 50000 records", 413):
        values_of("application/json", b"[" + b"1," * 50_000 + b"1]")


def test_the_query_and_the_headers_are_of_all_records() -> None:
    query = b"key=a%20b&partition=3&timestamp=2026-11-19T09:00:00%2B01:00"
    options = options_of(query, [(b"kafka-header-site", b"Prague"), (b"host", b"x")])
    time = 1795075200000
    assert records_of([b"1", b"2"], options) == [
        NewRecord(b"1", b"a b", (("site", b"Prague"),), time, 3),
        NewRecord(b"2", b"a b", (("site", b"Prague"),), time, 3),
    ]


def test_without_any_the_records_are_values_alone() -> None:
    assert options_of(b"", [(b"host", b"x")]).is_plain
    assert not options_of(b"key=", []).is_plain
    assert options_of(b"key=", []).key == b""


@pytest.mark.parametrize(
    ("field", "value", "key"),
    [
        ("id", b'{"id": "a\\u00e9\\n"}', "aé\n".encode()),
        ("id", b'{"x": {"id": 1}, "id": 2.50}', b"2.50"),
        ("id", b'{"id": {"a": 1}}', b'{"a": 1}'),
        ("id", b'{"id": null}', None),
        ("teplota °C", '{"teplota °C": 4}'.encode(), b"4"),
        ('"', b'{"\\"": 5}', b"5"),
    ],
)
def test_a_field_is_the_key(field: str, value: bytes, key: bytes | None) -> None:
    assert records_of([value], Options(key_field=field)) == [NewRecord(value, key)]


@pytest.mark.parametrize("value", [b"{}", b"[]", b'"id"', b"7", b'{"ID": 1}', b"no json", b'{"id": "\\ud800"}'])
def test_a_record_without_the_field_is_refused(value: bytes) -> None:
    with refused("record 1 is no JSON object with a field 'id', its key"):
        records_of([b'{"id":1}', value], Options(key_field="id"))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (b"kye=a", "unknown parameter 'kye'; known are key, key_field, partition, timestamp"),
        (b"key=a&key=b", "a parameter is given twice"),
        (b"key=a&key_field=b", "key or key_field, not both"),
        (b"partition=-1", "partition '-1' is not a number"),
        (b"partition=1e3", "is not a number"),
        (b"partition=\xd9\xa1", "is not a number"),
        (b"timestamp=yesterday", "'yesterday' is not a time"),
        (b"timestamp=2026-11-19T08:00:00", "has no time zone"),
        (b"timestamp=1900-01-01T00:00:00Z", "is before 1970"),
        (b"key=%ff", "the query cannot be read"),
        (b"&".join([b"key=a"] * 30), "the query cannot be read"),
    ],
)
def test_a_query_that_cannot_be_is_refused(query: bytes, message: str) -> None:
    with refused(message):
        options_of(query, [])


def test_a_time() -> None:
    assert timestamp_ms("0") == 0
    assert timestamp_ms("2026-11-19T08:00:00.5Z") == timestamp_ms("2026-11-19T09:00:00.500+01:00") == 1795075200500
