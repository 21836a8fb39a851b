"""Records as JSON."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.gateway.http.record_json import record_json
from moldau.gateway.ports import FoundRecord

DEEP = b"[" * 100_000


def told(value: bytes | None, key: bytes | None = None, headers: Any = ()) -> Any:
    line = record_json(FoundRecord(2, 7, 1_700, key, value, headers))
    assert b"\n" not in line
    assert b"\r" not in line
    return json.loads(line)


def test_a_record_has_its_place_and_time() -> None:
    assert told(b"1") == {"partition": 2, "offset": 7, "timestamp": 1_700, "key": None, "value": 1}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (b'{"t": 21.50}', {"t": 21.5}),
        (b'{\r\n  "t": 1\n}', {"t": 1}),
        (b'"\xc3\xa9"', "é"),
        (b"21.5 C", "21.5 C"),
        (b"two\nlines", "two\nlines"),
        (b"", ""),
        (b"\xff\x00", {"base64": "/wA="}),
        (b'"\xff"', {"base64": "Iv8i"}),
        (b'{"a":1} {', '{"a":1} {'),
        (DEEP, DEEP.decode()),
    ],
)
def test_json_stays_json_and_other_values_are_told_apart(value: bytes | None, expected: Any) -> None:
    assert told(value)["value"] == expected


def test_a_value_that_is_json_keeps_its_bytes() -> None:
    assert b'"value":{"t": 21.50}' in record_json(FoundRecord(0, 0, 0, None, b'{"t": 21.50}'))


def test_keys_are_text_and_headers_are_pairs() -> None:
    record = told(b"1", b"12", (("a", b"1"), ("a", None), ("é", b"\xff")))
    assert record["key"] == "12"
    assert record["headers"] == [["a", "1"], ["a", None], ["é", {"base64": "/w=="}]]


@given(st.binary(max_size=200))
def test_no_value_breaks_the_line_or_is_lost(value: bytes) -> None:
    found = told(value)["value"]
    if isinstance(found, dict) and found.keys() == {"base64"}:
        assert base64.b64decode(found["base64"]) == value
    elif found != value.decode():
        assert json.loads(value) == found or str(found) == "nan"
