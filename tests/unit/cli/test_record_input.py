"""Lines and envelopes as records."""

from __future__ import annotations

import pytest

from moldau.cli.records.input import BadRecord, InputRecord, envelope_parser, line_parser


def test_a_line_is_the_value() -> None:
    assert line_parser(None, None, False, None)(b"hello") == InputRecord(b"hello")
    assert line_parser(b"k", None, False, [("a", b"1")])(b"") == InputRecord(b"", b"k", [("a", b"1")])
    assert line_parser(None, None, True, None)(b"") == InputRecord(None)


def test_a_separator_splits_at_its_first_occurrence() -> None:
    parse = line_parser(None, b"::", True, None)
    assert parse(b"k::v::w") == InputRecord(b"v::w", b"k")
    assert parse(b"k::") == InputRecord(None, b"k")
    with pytest.raises(BadRecord, match="no key separator '::'"):
        parse(b"k:v")


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (b"{}", InputRecord(None)),
        (b'{"value": "v"}', InputRecord(b"v")),
        (b'{"key": "k", "value": {"n": [1, "\xc3\xbc"]}}', InputRecord('{"n":[1,"ü"]}'.encode(), b"k")),
        (b'{"key": 7, "value": false}', InputRecord(b"false", b"7")),
        (b'{"value_base64": "//8=", "key": null}', InputRecord(b"\xff\xff")),
        (b'{"headers": {"a": "1", "b": null}}', InputRecord(None, None, [("a", b"1"), ("b", None)])),
        (
            b'{"headers": [{"key": "a", "value": "1"}, {"key": "a", "value_base64": "AA=="}]}',
            InputRecord(None, None, [("a", b"1"), ("a", b"\0")]),
        ),
        (b'{"partition": 2, "timestamp": 5}', InputRecord(None, None, None, 2, 5)),
    ],
)
def test_envelopes(line: bytes, record: InputRecord) -> None:
    assert envelope_parser(None)(line) == record


def test_headers_for_all_come_first() -> None:
    parse = envelope_parser([("all", b"x")])
    assert parse(b'{"headers": {"own": "y"}}').headers == [("all", b"x"), ("own", b"y")]
    assert parse(b"{}").headers == [("all", b"x")]


@pytest.mark.parametrize(
    "line",
    [
        b"", b"nonsense", b"[]", b'"text"', b'{"value_base64": "?"}', b'{"value_base64": 5}', b'{"headers": "a=1"}',
        b'{"headers": [{"value": "1"}]}', b'{"partition": "0"}', b'{"partition": -1}', b'{"timestamp": true}', b"\xff",
    ],
)  # fmt: skip
def test_invalid_envelopes(line: bytes) -> None:
    with pytest.raises(BadRecord):
        envelope_parser(None)(line)
