"""Records as kafka-console-consumer prints them: the formatter's properties, and Kafka's deserializers.

The columns of a record come in Kafka's order, with key.separator between them and line.separator at the end:

    CreateTime:1700000000000  Partition:0  Offset:5  Delivery:1  Epoch:NOT_PRESENT  h1:v1,h2:v2  key  value

The common case is the value alone, which is printed as it is. Import no client here.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from moldau.cli.kafka.java.numbers import double_text, float_text
from moldau.cli.kafka.tool import ToolFailed, print_to_stderr

Column = Callable[[Any], bytes]
Deserializer = Callable[[bytes], bytes]

NO_TIMESTAMP, CREATE_TIME, LOG_APPEND_TIME = 0, 1, 2
"""librdkafka's timestamp types."""


def _number(layout: str, name: str, to_text: Callable[[Any], str] = str) -> Deserializer:
    shape = struct.Struct(layout)

    def read(data: bytes) -> bytes:
        if len(data) != shape.size:
            raise ToolFailed(f"Size of data received by {name} is not {shape.size}")
        return to_text(shape.unpack(data)[0]).encode()

    return read


def _boolean(data: bytes) -> bytes:
    if data not in (b"\0", b"\1"):
        raise ToolFailed("Unexpected byte received by BooleanDeserializer")
    return b"true" if data == b"\1" else b"false"


def _uuid(data: bytes) -> bytes:
    try:
        return str(uuid.UUID(data.decode())).encode()
    except ValueError as error:  # also of bytes that are not UTF-8
        raise ToolFailed("Error parsing data into UUID") from error


DESERIALIZERS: Final[Mapping[str, Deserializer | None]] = {
    "StringDeserializer": None,
    "ByteArrayDeserializer": None,
    "BytesDeserializer": None,
    "ByteBufferDeserializer": None,
    "LongDeserializer": _number(">q", "LongDeserializer"),
    "IntegerDeserializer": _number(">i", "IntegerDeserializer"),
    "ShortDeserializer": _number(">h", "ShortDeserializer"),
    "DoubleDeserializer": _number(">d", "DoubleDeserializer", double_text),
    "FloatDeserializer": _number(">f", "FloatDeserializer", float_text),
    "BooleanDeserializer": _boolean,
    "UUIDDeserializer": _uuid,
}
"""Deserializers by the last part of the class name. None means that the bytes are printed as they are."""


def deserializer(name: str | None) -> Deserializer | None:
    if not name:
        return None
    short = name.rpartition(".")[2]
    if short not in DESERIALIZERS:
        print_to_stderr(f"WARNING: {name} is not available here; the bytes are printed as they are.")
    return DESERIALIZERS.get(short)


class Formatter:
    """Turns records into the bytes to print."""

    def __init__(self, props: Mapping[str, str]) -> None:
        def is_enabled(name: str, default: str = "false") -> bool:
            return props.get(name, default).strip().lower() == "true"

        self._null = props.get("null.literal", "null").encode()
        self._separator = props.get("key.separator", "\t").encode()
        self._line_end = props.get("line.separator", "\n").encode()
        self._headers_separator = props.get("headers.separator", ",").encode()
        self._header_reader = deserializer(props.get("headers.deserializer"))
        key_reader = deserializer(props.get("key.deserializer"))
        self._value_reader = deserializer(props.get("value.deserializer"))
        columns: list[tuple[bool, Column]] = [
            (is_enabled("print.timestamp"), _timestamp),
            (is_enabled("print.partition"), lambda record: b"Partition:%d" % record.partition()),
            (is_enabled("print.offset"), lambda record: b"Offset:%d" % record.offset()),
            (is_enabled("print.delivery"), _delivery),
            # Kafka's console consumer does not pass the epoch to its formatter either.
            (is_enabled("print.epoch"), lambda record: b"Epoch:NOT_PRESENT"),
            (is_enabled("print.headers"), self._headers),
            (is_enabled("print.key"), lambda record: self._text(record.key(), key_reader)),
            (is_enabled("print.value", "true"), lambda record: self._text(record.value(), self._value_reader)),
        ]
        self._columns = [column for enabled, column in columns if enabled]
        self._value_alone = len(self._columns) == 1 and is_enabled("print.value", "true") and self._value_reader is None

    def lines(self, records: Iterable[Any]) -> bytes:
        """Return the lines of all records, including line ends."""
        end = self._line_end
        if self._value_alone:
            null = self._null
            values = (record.value() for record in records)
            return b"".join([(null if value is None else value) + end for value in values])
        if not self._columns:
            return b""
        join, columns = self._separator.join, self._columns
        return b"".join([join([column(record) for column in columns]) + end for record in records])

    def _text(self, data: bytes | None, read: Deserializer | None) -> bytes:
        if data is None:
            return self._null
        return data if read is None else read(data)

    def _headers(self, record: Any) -> bytes:
        headers = record.headers()
        if not headers:
            return b"NO_HEADERS"
        parts = [name.encode() + b":" + self._text(value, self._header_reader) for name, value in headers]
        return self._headers_separator.join(parts)


def _delivery(record: Any) -> bytes:
    """How often the record was delivered in its share group; other consumers do not count."""
    count = record.delivery_count() if hasattr(record, "delivery_count") else None
    return b"Delivery:NOT_PRESENT" if count is None else b"Delivery:%d" % count


def _timestamp(record: Any) -> bytes:
    kind: int
    time_ms: int
    kind, time_ms = record.timestamp()
    if kind == NO_TIMESTAMP:
        return b"NO_TIMESTAMP"
    return (b"LogAppendTime:%d" if kind == LOG_APPEND_TIME else b"CreateTime:%d") % time_ms
