"""Reading the metrics that clients push: sums, gauges, and malformed or hostile payloads."""

from __future__ import annotations

import tracemalloc

import pytest
from harness.operations import operations_of
from hypothesis import given
from hypothesis import strategies as st
from otlp_encoding import block, cumulative_sum, gauge, histogram, payload, point, varint

from moldau.base.errors import MalformedData
from moldau.telemetry.otlp import FIELDS_MAX, LABELS_MAX, POINTS_MAX, TEXT_LENGTH_MAX, Point, read_points


def test_sums_and_gauges_with_labels() -> None:
    data = payload(
        gauge("latency", point(0.5, {"node": "1"}), point(3, {"node": "2", "leader": True})),
        histogram("skipped"),
        cumulative_sum("sent", point(7, {"retries": 2})),
        cumulative_sum("delta", point(1), temporality=1),
        resource={"client_rack": "a"},
    )
    rack = ("client_rack", "a")
    assert read_points(data) == [
        Point("latency", (rack, ("node", "1")), 0.5, False),
        Point("latency", (rack, ("node", "2"), ("leader", "true")), 3.0, False),
        Point("sent", (rack, ("retries", "2")), 7.0, True),
        Point("delta", (rack,), 1.0, False),
    ]


@pytest.mark.parametrize("number", [0, 1, -1, 2**63 - 1, -(2**63)])
def test_whole_numbers_of_labels_are_signed(number: int) -> None:
    """librdkafka calls bootstrap servers node -1."""
    (found,) = read_points(payload(gauge("latency", point(0.5, {"node.id": number}))))
    assert found.labels == (("node.id", str(number)),)


@given(st.dictionaries(st.text(min_size=1, max_size=20), st.floats(allow_nan=False), max_size=20))
def test_every_value_is_read_back(values: dict[str, float]) -> None:
    points = read_points(payload(*(gauge(name, point(value)) for name, value in values.items())))
    assert {each.name: each.value for each in points} == values


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        read_points(data)
    except MalformedData:
        return


@given(st.data())
def test_cut_off_and_changed_payloads_are_read_or_refused(data: st.DataObject) -> None:
    whole = bytearray(payload(gauge("a", point(1.5, {"k": "v"})), cumulative_sum("b", point(2))))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        read_points(whole[: data.draw(st.integers(0, len(whole)))])
    except MalformedData:
        return


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x0a\xff", "cut off or too long"),
        (b"\x0a\x05ab", "cut off"),
        (b"\x0b", "unknown type"),
        (b"\xff" * 11, "cut off or too long"),
        (block(1, b"\x10\x00" * FIELDS_MAX), f"more than {FIELDS_MAX} fields"),
        (payload(gauge("a", *[point(1)] * (POINTS_MAX + 1))), f"more than {POINTS_MAX} values"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_malformed_and_too_large_payloads_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(MalformedData, match=reason):
        read_points(data)


def test_long_texts_and_many_labels_are_cut() -> None:
    labels: dict[str, str | int | bool] = {f"key{number}": "v" * 5_000 for number in range(40)}
    (read,) = read_points(payload(gauge("n" * 5_000, point(1, labels))))
    assert len(read.name) == TEXT_LENGTH_MAX
    assert len(read.labels) == LABELS_MAX
    assert {len(value) for _, value in read.labels} == {TEXT_LENGTH_MAX}


def test_deeply_nested_fields_are_skipped_without_recursion() -> None:
    data = b""
    for _ in range(5_000):
        data = block(2, data)
    assert read_points(block(1, data)) == []
    assert varint(300) == b"\xac\x02"


def peak_bytes(data: bytes) -> int:
    read_points(data)  # fills the lists of free objects, which are not counted
    tracemalloc.start()
    try:
        read_points(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_point_does_not_copy_all_labels_of_its_resource() -> None:
    resource = {f"key{number}": "v" for number in range(10_000)}
    without_points, with_one = payload(resource=resource), payload(gauge("a", point(1, {"k": "v"})), resource=resource)
    assert peak_bytes(with_one) < peak_bytes(without_points) + 200_000
    (read,) = read_points(with_one)
    assert read.labels == tuple((f"key{number}", "v") for number in range(LABELS_MAX))


def test_a_label_of_a_point_replaces_that_of_its_resource() -> None:
    (read,) = read_points(payload(gauge("a", point(1, {"k": "own"})), resource={"k": "shared", "l": "x"}))
    assert read.labels == (("k", "own"), ("l", "x"))


def test_reading_ends_at_the_first_point_too_many() -> None:
    def cost(points: int) -> int:
        data = payload(gauge("a", *[block(7, block(1, b"k")) + b"\x31" + bytes(8)] * points))

        def read() -> None:
            with pytest.raises(MalformedData, match=f"more than {POINTS_MAX} values"):
                read_points(data)

        return operations_of(read)

    assert cost(4 * POINTS_MAX) < 2 * cost(POINTS_MAX + 1)
