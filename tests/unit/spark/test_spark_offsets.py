"""Offsets as JSON, a limit divided among partitions, and ranges divided among tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.base.ids import TopicPartition
from moldau.client.cluster import Offsets
from moldau.spark.offsets import (
    Range,
    described,
    divide_among_tasks,
    from_spark_json,
    limited_ends,
    parse_assignment,
    parse_offsets_option,
    to_json,
)

PLACES = st.builds(TopicPartition, st.sampled_from(["a", "b", "c.d"]), st.integers(0, 40))
POSITIONS = st.dictionaries(PLACES, st.integers(0, 2**62), max_size=30)


@given(POSITIONS)
def test_offsets_are_written_as_json_and_read_back(offsets: Offsets) -> None:
    assert from_spark_json(to_json(offsets)) == offsets


def test_the_json_of_offsets_has_the_form_of_sparks_kafka_connector() -> None:
    assert to_json({TopicPartition("t", 10): 4, TopicPartition("t", 2): 3}) == {"t": {"2": 3, "10": 4}}


class TestOptions:
    def test_offsets_by_partition_are_parsed(self) -> None:
        assert parse_offsets_option('{"t": {"0": 23, "1": -2}}') == {
            TopicPartition("t", 0): 23,
            TopicPartition("t", 1): -2,
        }

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", "is not JSON such as"),
            ("[1]", "not of the form"),
            ('{"t": 3}', "topic t has 3"),
            ('{"t": {"x": 3}}', "topic t: x is not a partition"),
            ('{"t": {"-1": 3}}', "topic t: -1 is not a partition"),
            ('{"t": {"0": "3"}}', 'partition 0: "3" is not a whole number'),
            ('{"t": {"0": -3}}', "partition 0: -3 is not a whole number from -2 to"),
            ('{"t": {"0": true}}', "partition 0: true is not a whole number from -2 to"),
            ('{"t": {"0": 1.5}}', "partition 0: 1.5 is not a whole number from -2 to"),
            ('{"t": {"0": 9223372036854775808}}', "partition 0: 9223372036854775808 is not a whole number from -2 to"),
            ('{"t": {"99999999999": 1}}', "99999999999 is not a partition"),
            ("{" + "x" * 500, "xxx…"),
        ],
    )
    def test_invalid_offsets_are_refused(self, text: str, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            parse_offsets_option(text)

    def test_an_assignment_is_parsed(self) -> None:
        assert parse_assignment('{"b": [1], "a": [2, 0, 2]}') == (("a", 0), ("a", 2), ("b", 1))

    @pytest.mark.parametrize(
        "text",
        ["", "[]", "{}", '{"a": 1}', '{"a": ["x"]}', '{"a": [-1]}', '{"a": null}', '{"a": "12"}', '{"a": [0.7]}',
         '{"a": [1e999]}', '{"a": [true]}', '{"a": {"3": 9}}'],
    )  # fmt: skip
    def test_invalid_assignments_are_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"not of the form|names no partitions"):
            parse_assignment(text)


@given(POSITIONS, st.lists(st.integers(0, 10**6), min_size=30, max_size=30), st.integers(1, 10**6))
def test_a_limit_is_divided_among_the_partitions(start: Offsets, waiting: list[int], rows_max: int) -> None:
    latest = {where: offset + more for (where, offset), more in zip(start.items(), waiting, strict=False)}
    ends = limited_ends(start, latest, rows_max)
    assert ends.keys() == latest.keys()
    assert all(start[where] <= end <= latest[where] for where, end in ends.items())
    taken = sum(ends[where] - start[where] for where in ends)
    total = sum(latest[where] - start[where] for where in latest)
    if total <= rows_max:
        assert ends == latest
    else:
        assert taken <= rows_max + len(latest), "at most one more for each partition, so that none starves"
        assert all(ends[where] > start[where] for where in ends if latest[where] > start[where])


def test_a_truncated_partition_continues_from_its_new_end() -> None:
    truncated, busy = TopicPartition("t", 0), TopicPartition("t", 1)
    for waiting in (10, 10_000):
        ends = limited_ends({truncated: 100, busy: 0}, {truncated: 50, busy: waiting}, 1_000)
        assert ends[truncated] == 50


RANGES = st.lists(st.integers(0, 200_000), max_size=25).map(
    lambda sizes: [Range(TopicPartition("t", index), 7, 7 + size) for index, size in enumerate(sizes)]
)


def covered(planned: list[list[Range]]) -> dict[TopicPartition, list[tuple[int, int]]]:
    pieces: dict[TopicPartition, list[tuple[int, int]]] = {}
    for one in planned:
        for where, start, end in one:
            pieces.setdefault(where, []).append((start, end))
    return pieces


@given(RANGES, st.integers(0, 60), st.none() | st.integers(1000, 50_000))
def test_tasks_cover_every_range_once(ranges: list[Range], at_least: int, at_most: int | None) -> None:
    planned = divide_among_tasks(ranges, at_least, at_most)
    assert all(planned), "no task without work"
    for where, start, end in ranges:
        pieces = sorted(covered(planned).get(where, []))
        assert [piece[0] for piece in pieces] == ([start] + [piece[1] for piece in pieces[:-1]] if end > start else [])
        assert not pieces or pieces[-1][1] == end
    if at_most is not None:
        assert all(sum(piece.size for piece in task) <= at_most for task in planned)
    for task in planned:
        assert len({piece.partition for piece in task}) == len(task), "one range of a partition in a task"


class TestTasks:
    def test_small_ranges_share_one_task(self) -> None:
        assert len(divide_among_tasks([Range(TopicPartition("t", index), 0, 10) for index in range(100)])) == 1

    def test_large_ranges_get_tasks_of_their_own(self) -> None:
        assert len(divide_among_tasks([Range(TopicPartition("t", index), 0, 10**6) for index in range(4)])) == 4

    def test_tasks_get_ranges_of_equal_total_size(self) -> None:
        sizes = [60_000, 50_000, 10_000, 9_000, 8_000, 3_000]
        planned = divide_among_tasks(
            [Range(TopicPartition("t", index), 0, size) for index, size in enumerate(sizes)], 0, None, 70_000
        )
        assert sorted(sum(one.size for one in task) for task in planned) == [69_000, 71_000]

    def test_empty_ranges_need_no_task(self) -> None:
        assert divide_among_tasks([Range(TopicPartition("t", 0), 5, 5), Range(TopicPartition("t", 1), 5, 3)]) == []

    def test_one_partition_is_divided_among_many_tasks(self) -> None:
        assert len(divide_among_tasks([Range(TopicPartition("t", 0), 0, 1000)], 8)) == 8


def test_a_long_list_of_partitions_is_shortened() -> None:
    where = [TopicPartition("t", index) for index in range(9)]
    assert described(where) == "t-0, t-1, t-2, t-3, t-4 and 4 more"
