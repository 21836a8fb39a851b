"""Reads the metrics that a client pushes: OpenTelemetry's MetricsData, which is Protobuf.

Only sums and gauges are read; Kafka's clients send no others, histograms are skipped. A payload is hostile until read:
the number of its fields is limited, and whatever is not valid is MalformedData.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from moldau.base.errors import MalformedData

FIELDS_MAX: Final = 50_000
"""Fields in one payload: a client with 100 partitions sends about 10,000. So many take 50 ms in their thread."""
POINTS_MAX: Final = 2_000
LABELS_MAX: Final = 16
TEXT_LENGTH_MAX: Final = 200
CUMULATIVE: Final = 2

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_INTEGER = struct.Struct("<q")
_DOUBLE = struct.Struct("<d")

Labels = tuple[tuple[str, str], ...]


class Point(NamedTuple):
    """The value of one metric with its labels."""

    name: str
    labels: Labels
    value: float
    is_counter: bool
    """Whether it is a sum since the client's start that only grows."""


class _Fields:
    """Reads fields of Protobuf messages and counts them."""

    def __init__(self) -> None:
        self.remaining = FIELDS_MAX

    def of(self, data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
        """Yield the number and the value of each field: an integer, or bytes for fixed sizes, texts and messages."""
        position, end = 0, len(data)
        while position < end:
            self.remaining -= 1
            if self.remaining < 0:
                raise MalformedData(f"more than {FIELDS_MAX} fields in the metrics of a client")
            tag, position = _read_varint(data, position)
            kind = tag & 7
            if kind == _VARINT:
                value, position = _read_varint(data, position)
                yield tag >> 3, value
                continue
            size = {_FIXED64: 8, _FIXED32: 4}.get(kind)
            if kind == _BYTES:
                size, position = _read_varint(data, position)
            if size is None or size > end - position:
                raise MalformedData(f"field {tag >> 3} of the metrics of a client is of unknown type or cut off")
            yield tag >> 3, data[position : position + size]
            position += size

    def messages(self, data: memoryview, number: int) -> Iterator[memoryview]:
        for each, value in self.of(data):
            if each == number and isinstance(value, memoryview):
                yield value


def _read_varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise MalformedData("a number in the metrics of a client is cut off or too long")


def read_points(payload: bytes | bytearray | memoryview) -> list[Point]:
    """Return all sums and gauges of a payload. Raise MalformedData if it is not MetricsData or exceeds a limit."""
    fields, points = _Fields(), list[Point]()
    for resource_metrics in fields.messages(memoryview(payload), 1):
        shared = _first_labels(
            label
            for resource in fields.messages(resource_metrics, 1)
            for label in _read_labels(fields, fields.messages(resource, 1))
        )
        for scope_metrics in fields.messages(resource_metrics, 2):
            for metric in fields.messages(scope_metrics, 2):
                for point in _read_metric(fields, metric, shared):
                    if len(points) >= POINTS_MAX:
                        raise MalformedData(f"more than {POINTS_MAX} values in the metrics of a client")
                    points.append(point)
    return points


def _read_metric(fields: _Fields, metric: memoryview, shared: Labels) -> Iterator[Point]:
    name, points, is_sum = "", list[memoryview](), False
    temporality, is_monotonic = 0, 0
    for number, value in fields.of(metric):
        if number == 1 and isinstance(value, memoryview):
            name = _text(value)
        elif number in (5, 7) and isinstance(value, memoryview):  # gauge, sum
            is_sum = number == 7
            for inner, content in fields.of(value):
                if inner == 1 and isinstance(content, memoryview):
                    points.append(content)
                elif inner == 2 and isinstance(content, int):
                    temporality = content
                elif inner == 3 and isinstance(content, int):
                    is_monotonic = content
    is_counter = is_sum and temporality == CUMULATIVE and bool(is_monotonic)
    for point in points:
        labels, number_read = _read_point(fields, point)
        if name and number_read is not None:
            yield Point(name, _first_labels([*shared, *labels]), number_read, is_counter)


def _first_labels(labels: Iterable[tuple[str, str]]) -> Labels:
    """Return as many labels as are kept. Of those with the same key the last one counts."""
    return tuple(dict(labels).items())[:LABELS_MAX]


def _read_point(fields: _Fields, point: memoryview) -> tuple[list[tuple[str, str]], float | None]:
    attributes, value = list[memoryview](), None
    for number, content in fields.of(point):
        if isinstance(content, int):
            continue
        if number == 7:
            attributes.append(content)
        elif number == 4 and len(content) == 8:
            value = float(_DOUBLE.unpack(content)[0])
        elif number == 6 and len(content) == 8:
            value = float(_INTEGER.unpack(content)[0])
    return _read_labels(fields, iter(attributes)), value


def _read_labels(fields: _Fields, attributes: Iterator[memoryview]) -> list[tuple[str, str]]:
    labels = []
    for attribute in attributes:
        key, value = "", ""
        for number, content in fields.of(attribute):
            if isinstance(content, int):
                continue
            if number == 1:
                key = _text(content)
            elif number == 2:
                value = _read_value(fields, content)
        if key:
            labels.append((key, value))
    return labels


def _read_value(fields: _Fields, any_value: memoryview) -> str:
    for number, content in fields.of(any_value):
        if number == 1 and isinstance(content, memoryview):
            return _text(content)
        if isinstance(content, int):
            return str(bool(content)).lower() if number == 2 else str(_signed(content))
    return ""


def _signed(number: int) -> int:
    """Return an int64, which Protobuf writes as the number without a sign that has the same 64 bits."""
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number


def _text(data: memoryview) -> str:
    return bytes(data[: 4 * TEXT_LENGTH_MAX]).decode(errors="replace")[:TEXT_LENGTH_MAX]
