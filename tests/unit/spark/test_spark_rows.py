"""Rows grouped by topic and partition: none lost, order kept, keys in the partition of Kafka's default partitioner."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner import murmur2

from moldau.base.ids import TopicPartition
from moldau.spark.rows import Rows, grouped, rows_of

COUNTS = {"a": 1, "b": 3, "c": 7}
ROW = st.tuples(
    st.none() | st.binary(max_size=12),
    st.none() | st.binary(max_size=12),
    st.sampled_from(sorted(COUNTS)),
    st.none() | st.just(0),
)


def records_by_partition(rows: Rows) -> dict[TopicPartition, list[tuple[bytes | None, bytes | None]]]:
    columns, groups = grouped(rows, COUNTS.__getitem__, Random(1))
    keys = [None] * len(columns.values) if columns.keys is None else columns.keys.to_pylist()
    records = list(zip(keys, columns.values.to_pylist(), strict=True))
    assert len({where for where, _ in groups}) == len(groups), "one group for a partition"
    ends = [start for _, start in groups[1:]] + [len(records)]
    return {where: records[start:end] for (where, start), end in zip(groups, ends, strict=False)}


@given(st.lists(ROW, max_size=60))
def test_rows_are_grouped_by_topic_and_partition_in_order(
    given_rows: list[tuple[bytes | None, bytes | None, str, int | None]],
) -> None:
    keys, values, topics, partitions = ([row[index] for row in given_rows] for index in range(4))
    rows = Rows(
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        None,
        pa.array(topics),
        pa.array(partitions, pa.int32()),
        5,
    )
    found = records_by_partition(rows)
    by_topic = defaultdict(list)
    for where, records in found.items():
        assert where.partition < COUNTS[where.topic]
        by_topic[where.topic] += records
    for topic in COUNTS:
        sent = [(key, value) for key, value, name, _ in given_rows if name == topic]
        assert sorted(by_topic[topic], key=repr) == sorted(sent, key=repr)
    for where, records in found.items():
        count = COUNTS[where.topic]
        keyed = [
            (key, value)
            for key, value, name, partition in given_rows
            if name == where.topic
            and key is not None
            and (0 if partition == 0 else (murmur2(key) & 0x7FFFFFFF) % count) == where.partition
        ]
        assert [record for record in records if record[0] is not None] == keyed


def test_rows_without_keys_are_spread_in_runs() -> None:
    rows = Rows(None, pa.array([b"%d" % number for number in range(7000)]), None, "c", None, 5)
    found = records_by_partition(rows)
    assert sorted(len(records) for records in found.values()) == [1000] * 7
    for records in found.values():
        numbers = [int(value) for _, value in records if value is not None]
        assert numbers == list(range(numbers[0], numbers[0] + 1000))


def test_few_rows_without_keys_stay_together() -> None:
    assert len(records_by_partition(Rows(None, pa.array([b"x"] * 500), None, "c", None, 5))) == 1


def test_a_row_with_a_missing_partition_is_refused() -> None:
    rows = Rows(None, pa.array([b"x", b"y"]), None, "b", pa.array([2, 3], pa.int32()), 5)
    with pytest.raises(ValueError, match="has partition 3, but b has only the partitions 0 to 2"):
        records_by_partition(rows)


def test_a_row_without_a_topic_is_refused() -> None:
    rows = Rows(None, pa.array([b"x", b"y"]), None, pa.array(["a", None]), None, 5)
    with pytest.raises(ValueError, match="Row 1 of a batch has no topic"):
        records_by_partition(rows)


class TestColumns:
    def batch(self) -> pa.RecordBatch:
        stamps = pa.array([1_700_000_000_123_456, None], pa.timestamp("us", "UTC"))
        return pa.record_batch({"Value": pa.array(["x", "y"]), "TOPIC": pa.array(["a", "b"]), "timestamp": stamps})

    def test_column_names_are_case_insensitive_and_the_option_topic_wins(self) -> None:
        assert rows_of(self.batch(), None, 5, False).topics.to_pylist() == ["a", "b"]
        assert rows_of(self.batch(), "c", 5, False).topics == "c"

    def test_the_timestamp_is_now_unless_the_column_is_requested(self) -> None:
        assert rows_of(self.batch(), "c", 5, False).timestamps == 5
        assert np.array_equal(rows_of(self.batch(), "c", 5, True).timestamps, [1_700_000_000_123, 5])

    def test_timestamps_are_rounded_down_in_every_time_zone(self) -> None:
        ambiguous_us = 1_698_539_400_000_001  # 2023-10-29 02:30 in Berlin, an hour that comes twice
        stamps = pa.array([-1, ambiguous_us], pa.timestamp("us", "Europe/Berlin"))
        batch = pa.record_batch({"value": pa.array(["x", "y"]), "timestamp": stamps})
        assert np.array_equal(rows_of(batch, "c", 5, True).timestamps, [-1, ambiguous_us // 1000])


def test_without_rows_there_are_no_groups() -> None:
    assert records_by_partition(Rows(None, pa.array([], pa.binary()), None, "a", None, 5)) == {}
