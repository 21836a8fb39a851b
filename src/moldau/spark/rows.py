"""A sink's rows before they become records: columns by name, topic and partition of each, grouped by partition."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from moldau.base.ids import TopicPartition
from moldau.spark.records.encode import EncodeColumns
from moldau.spark.records.partitioner import partition_of

STICKY_ROWS: Final = 1000
"""Rows without a key go to one partition in runs of at least this many, so that batches stay large."""


class UnusableRow(ValueError):
    """A row has no topic, or a partition that its topic does not have."""


class Rows(NamedTuple):
    keys: pa.Array | None
    values: pa.Array
    headers: pa.Array | None
    topics: pa.Array | str
    """One per row, or one for all."""
    partitions: pa.Array | None
    timestamps: npt.NDArray[np.int64] | int


def rows_of(batch: pa.RecordBatch, topic: str | None, now_ms: int, include_timestamp: bool) -> Rows:
    """Read the columns of a batch. The option topic wins over the column, as in Spark's own sink."""
    columns: dict[str, Any] = {
        name.lower(): column for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    stamps: npt.NDArray[np.int64] | int = now_ms
    if include_timestamp and "timestamp" in columns:
        # Rounded down, as Spark does it, also before 1970; Arrow's `divide` rounds towards zero.
        stamps = np.asarray(columns["timestamp"].cast(pa.int64()).fill_null(now_ms * 1000)) // 1000
    return Rows(
        columns.get("key"),
        columns["value"],
        columns.get("headers"),
        columns["topic"] if topic is None else topic,
        columns.get("partition"),
        stamps,
    )


class Grouped(NamedTuple):
    """Rows sorted by partition."""

    columns: EncodeColumns
    groups: list[tuple[TopicPartition, int]]
    """(partition, its first row), in the order of rows."""


def grouped(rows: Rows, partition_count: Callable[[str], int], random: Random) -> Grouped:
    """Return the rows sorted by partition; rows of a partition keep their order.

    Raises UnusableRow for a row without a topic or with a partition that does not exist.
    """
    columns = EncodeColumns(rows.keys, rows.values, rows.timestamps, rows.headers)
    names, topic_indexes = _topics(rows)
    # One number for topic and partition, by which the rows are sorted: the topic's index in the upper 32 bits.
    sort_keys = np.empty(len(rows.values), dtype=np.int64)
    for topic_index, name in enumerate(names):
        chosen = None if len(names) == 1 else np.flatnonzero(topic_indexes == topic_index)
        partitions = _partitions(rows, chosen, name, partition_count(name), random)
        sort_keys[slice(None) if chosen is None else chosen] = partitions + (topic_index << 32)
    order = np.argsort(sort_keys, kind="stable")
    sort_keys = sort_keys[order]
    starts = np.flatnonzero(np.diff(sort_keys, prepend=-1)).tolist()
    targets = [divmod(int(sort_keys[start]), 1 << 32) for start in starts]
    partitions_of_groups = [TopicPartition(names[topic_index], partition) for topic_index, partition in targets]
    groups = list(zip(partitions_of_groups, starts, strict=True))
    return Grouped(_take(columns, order) if len(starts) > 1 else columns, groups)


def _topics(rows: Rows) -> tuple[list[str], npt.NDArray[np.int32]]:
    """Return the names of the topics and each row's index in them; no indexes if one topic is for all rows."""
    if isinstance(rows.topics, str):
        return [rows.topics], np.zeros(0, dtype=np.int32)
    if rows.topics.null_count:
        row = int(np.flatnonzero(np.asarray(rows.topics.is_null()))[0])
        raise UnusableRow(f"Row {row} of a batch has no topic: its column topic is null")
    encoded = rows.topics.dictionary_encode()
    return encoded.dictionary.to_pylist(), np.asarray(encoded.indices)


def _partitions(
    rows: Rows, chosen: npt.NDArray[np.int64] | None, topic: str, count: int, random: Random
) -> npt.NDArray[np.int64]:
    keys, partition_column = rows.keys, rows.partitions
    if chosen is not None:
        indices = pa.array(chosen)
        keys = None if keys is None else keys.take(indices)
        partition_column = None if partition_column is None else partition_column.take(indices)
    size = len(rows.values) if chosen is None else len(chosen)
    partitions = np.full(size, -1, dtype=np.int64)
    if keys is not None and keys.null_count < size:
        partitions[:] = partition_of(keys, count)
    if partition_column is not None and partition_column.null_count < size:
        explicit = np.asarray(partition_column.fill_null(-1))
        is_explicit = np.asarray(partition_column.is_valid())
        wrong = is_explicit & ((explicit < 0) | (explicit >= count))
        if wrong.any():
            raise UnusableRow(
                f"A row has partition {explicit[wrong][0]}, but {topic} has only the partitions 0 to {count - 1}"
            )
        partitions[is_explicit] = explicit[is_explicit]
    unassigned = np.flatnonzero(partitions < 0)
    partitions[unassigned] = _sticky(len(unassigned), count, random)
    return partitions


def _sticky(rows: int, count: int, random: Random) -> npt.NDArray[np.int64]:
    """Spread runs of rows over partitions, from a random one on: balanced over time, with large batches."""
    runs = max(1, min(count, rows // STICKY_ROWS))
    return (np.arange(rows, dtype=np.int64) * runs // max(rows, 1) + random.randrange(count)) % count


def _take(columns: EncodeColumns, order: npt.NDArray[np.int64]) -> EncodeColumns:
    indices = pa.array(order)
    stamps = columns.timestamps
    return EncodeColumns(
        None if columns.keys is None else columns.keys.take(indices),
        columns.values.take(indices),
        stamps if isinstance(stamps, int) else stamps[order],
        None if columns.headers is None else columns.headers.take(indices),
    )
