"""The format language of `-f` and the JSON envelope, with a fake record."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cli.records.format_language import BadFormat, compile_format, json_envelope
from moldau.cli.records.input import parse_envelope


@dataclass
class FakeRecord:
    """A record with the methods of confluent_kafka's messages."""

    k: bytes | None = b"key"
    v: bytes | None = b"value"
    h: list[tuple[str, bytes | None]] | None = field(default_factory=lambda: [("a", b"1"), ("b", None)])
    t: tuple[int, int] = (1, 1_700_000_000_123)

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 42

    def leader_epoch(self) -> int | None:
        return 7

    def timestamp(self) -> tuple[int, int]:
        return self.t

    def key(self) -> bytes | None:
        return self.k

    def value(self) -> bytes | None:
        return self.v

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.h


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("", b""),
        ("plain", b"plain"),
        ("%v", b"value"),
        ("%t/%p/%o/%e/%i", b"orders/3/42/7/1"),
        ("%k=%v %K %V\\n", b"key=value 3 5\n"),
        ("%v{hex}", b"76616c7565"),
        ("%k{base64}", b"a2V5"),
        ("%T", b"1700000000123"),
        ("%d", b"1700000000123"),
        ("%d{iso}", b"2023-11-14T22:13:20.123Z"),
        ("%d{strftime[%F %T]}", b"2023-11-14 22:13:20"),
        ("%h", b"a=1,b="),
        ("%h{%k:%v{hex};}%H", b"a:31;b:;2"),
        ("%h{%K-%V }", b"1-1 1--1 "),
        ("100%%", b"100%"),
        ("\\t\\r\\0\\\\\\x41\\xff", b"\t\r\0\\A\xff"),
        ("{%v}", b"{value}"),
        ("ü%v", "üvalue".encode()),
    ],
)
def test_valid_formats(text: str, printed: bytes) -> None:
    assert compile_format(text)(FakeRecord(), 1) == printed


def test_null_prints_as_nothing_and_its_length_as_minus_one() -> None:
    assert compile_format("[%k|%v|%h|%K|%V|%H|%v{hex}]")(FakeRecord(None, None, None), 1) == b"[|||-1|-1|0|]"


@pytest.mark.parametrize("timestamp", [-1, -(10**14), 253_402_300_800_000, 1_700_000_000_123_456, 2**63 - 1])
def test_a_timestamp_that_is_not_a_date_is_printed_as_a_number(timestamp: int) -> None:
    text = "%d|%d{iso}|%d{strftime[%F]}"
    assert compile_format(text)(FakeRecord(t=(1, timestamp)), 1) == b"|".join([b"%d" % timestamp] * 3)


def test_the_first_and_the_last_date() -> None:
    iso = compile_format("%d{iso}")
    assert iso(FakeRecord(t=(1, 0)), 1) == b"1970-01-01T00:00:00.000Z"
    assert iso(FakeRecord(t=(1, 253_402_300_799_999)), 1) == b"9999-12-31T23:59:59.999Z"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ab%", "single % at column 3"),
        ("%z", "%z at column 1 is unknown"),
        ("ab%q", "column 3"),
        ("%t %v{rot13}", "%v{rot13} at column 4 is unknown; use {hex} or {base64}"),
        ("%v{hex", "never closed"),
        ("%t %d{julian}", "%d{julian} at column 4 is unknown; use %d, %d{iso}"),
        ("%t %h{%o}", "%o at column 7 is unknown inside %h{...}; a header has"),
        ("%t %h{%z}", "%z at column 7 is unknown"),
        ("%t %h{ %v{rot13}}", "%v{rot13} at column 8"),
        ("%t %h{%k%}", "single % at column 9"),
        ("%t %h{\\q}", "\\q at column 7 is not an escape"),
        ("\\q", "not an escape"),
        ("\\", "not an escape"),
        ("\\xZZ", "two hexadecimal digits"),
        ("%v\\x", "\\x at column 3 needs two hexadecimal digits"),
        ("\\x  %v", "\\x at column 1 needs two hexadecimal digits"),
        ("\\x4", "two hexadecimal digits"),
    ],
)
def test_invalid_formats_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(BadFormat, match=re.escape(complaint)):
        compile_format(text)


@given(st.text(alphabet="%tpoeikvKVTdhH{}[]hexstrf\\nx0a ", max_size=20))
def test_any_text_is_a_format_or_raises_bad_format(text: str) -> None:
    try:
        render = compile_format(text)
    except BadFormat:
        return
    assert isinstance(render(FakeRecord(), 1), bytes)


def test_the_envelope() -> None:
    envelope = json.loads(json_envelope(FakeRecord(), 1))
    assert envelope == {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "timestamp": 1_700_000_000_123,
        "timestamp_type": "CreateTime",
        "headers": [{"key": "a", "value": "1"}, {"key": "b", "value": None}],
        "key": "key",
        "value": "value",
    }


payloads = st.none() | st.binary(max_size=40)


@given(payloads, payloads, st.lists(st.tuples(st.text(max_size=5), payloads), max_size=3))
def test_an_envelope_printed_by_consume_is_read_back_by_produce(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = json_envelope(FakeRecord(key, value, headers), 1)
    assert line.count(b"\n") == 1
    read = parse_envelope(line.rstrip(b"\n"), [])
    assert (read.key, read.value, read.headers or []) == (key, value, headers)
    assert (read.partition, read.timestamp) == (3, 1_700_000_000_123)
