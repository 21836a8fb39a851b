"""`moldau produce`: how lines and JSON envelopes become records, and records that cannot be sent."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from moldau.cli.connect import CommandFailed
from moldau.cli.records.input import BadRecord, InputRecord, envelope_parser, line_parser
from moldau.cli.records.produce import produce, send_lines
from moldau.client.confluent import KafkaError, KafkaException
from moldau.client.stand_in.values import Message


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


def test_headers_for_all_records_come_before_those_of_the_envelope() -> None:
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
def test_invalid_envelopes_are_refused(line: bytes) -> None:
    with pytest.raises(BadRecord):
        envelope_parser(None)(line)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"value": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too many brackets"),
        (rb'{"value": "\ud800"}', "value has a character that is not Unicode"),
        (rb'{"value": {"a": "\ud800"}}', "value has a character that is not Unicode"),
        (rb'{"key": "\ud800"}', "key has a character that is not Unicode"),
        (rb'{"headers": {"\ud800": "1"}}', "headers has a character that is not Unicode"),
        (rb'{"headers": {"a": "\ud800"}}', "headers has a character that is not Unicode"),
        (rb'{"headers": [{"key": "\ud800", "value": "1"}]}', "headers has a character that is not Unicode"),
        (b'{"partition": 2147483648}', "partition is not a whole number from 0 to 2147483647"),
        (b'{"timestamp": 9223372036854775808}', "timestamp is not a whole number from 0 to 9223372036854775807"),
    ],
)
def test_envelopes_that_librdkafka_cannot_send_are_refused(line: bytes, reason: str) -> None:
    with pytest.raises(BadRecord, match=reason):
        envelope_parser(None)(line)


class RefusingProducer:
    """A producer that refuses some values at once, as librdkafka does with those that are too long."""

    def __init__(self, refused: bytes) -> None:
        self._refused = refused
        self._queued: list[tuple[int, Any]] = []
        self.flushes = 0

    def produce(self, topic: str, value: bytes, key: None, partition: int, *, on_delivery: Any) -> None:
        if value == self._refused:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "too large"))
        self._queued.append((len(self._queued), on_delivery))

    def poll(self, seconds: float) -> None:
        pass

    def flush(self) -> None:
        self.flushes += 1
        for offset, report in self._queued:
            report(None, Message("t", 0, offset))
        self._queued.clear()


def test_records_before_one_that_is_refused_are_written() -> None:
    producer = RefusingProducer(b"long")
    deliveries = send_lines(producer, "t", [b"a", b"b", b"long", b"c"], InputRecord, -1, eager=False)
    assert deliveries.summary("t") == "2 records to t: partition 0 offsets 0-1"
    assert (deliveries.failed, deliveries.first_error.str()) == (1, "too large")


def test_a_line_that_is_no_record_is_named_although_the_flush_fails() -> None:
    class FencedProducer(RefusingProducer):
        def flush(self) -> None:
            raise KafkaException(KafkaError(KafkaError._FENCED, "fenced"))

    def parse(line: bytes) -> InputRecord:
        raise BadRecord("no record")

    with pytest.raises(CommandFailed, match="line 1: no record"):
        send_lines(FencedProducer(b""), "t", [b"a"], parse, -1, eager=False)


def test_records_before_an_error_of_the_input_are_written() -> None:
    def broken_file() -> Iterator[bytes]:
        yield b"a"
        raise OSError(errno.EIO, "Input/output error")

    producer = RefusingProducer(b"")
    with pytest.raises(OSError, match="Input/output error"):
        send_lines(producer, "t", broken_file(), InputRecord, -1, eager=False)
    assert producer.flushes == 1


@pytest.mark.parametrize("text", ["\\", "\\x", "\\u2192"])
def test_a_separator_with_an_invalid_escape_is_refused(text: str) -> None:
    result = CliRunner().invoke(produce, ["t", "-K", text, "-b", "localhost:1"])
    assert result.exit_code == 2
    assert "-K" in result.output


def test_a_header_name_that_is_not_unicode_is_refused() -> None:
    result = CliRunner().invoke(produce, ["t", "-H", "\udcff=1", "-b", "localhost:1"])
    assert result.exit_code == 2
    assert "-H" in result.output
