"""Offsets of many partitions: parsed from and written as Spark's JSON, limited, and divided among tasks. Pure.

Spark keeps a stream's position as `{"topic": {"0": 12, "1": 7}}`, the form that its own Kafka connector writes into
checkpoints too. In options the numbers -2 and -1 stand for the earliest and the latest offset. What limits rows or
records here counts offsets: with gaps in the log there are fewer records.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import ceil
from typing import Any, Final, NamedTuple

from moldau.base.ids import TopicPartition
from moldau.base.limits import OFFSET_MAX
from moldau.client.cluster import EARLIEST, Offsets

EXAMPLE: Final = '{"orders": {"0": 23, "1": 7}}'


class Range(NamedTuple):
    """Records of one partition: from `start` on, before `end`."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets; with gaps in the log there are fewer records."""
        return self.end - self.start


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    out: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        out.setdefault(topic, {})[str(partition)] = offset
    return out


def from_spark_json(content: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Return the offsets that `to_json` gave to Spark."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in content.items()
        for partition, offset in partitions.items()
    }


def offsets_or_empty(value: Any) -> dict[TopicPartition, int]:
    """Parse a source's offset, text or parsed JSON: {"topic": {"0": 123}}. Empty if the source is not a Kafka topic."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    if not isinstance(value, Mapping):
        return {}
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in value.items()
        if isinstance(partitions, Mapping)
        for partition, offset in partitions.items()
        if partition.isdecimal() and isinstance(offset, int)
    }


def parse_offsets_option(text: str, lowest: int = EARLIEST) -> Offsets:
    """Parse offsets or timestamps from an option's JSON. Raises ValueError, which says what is wrong."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{_shown(text)} is not JSON such as {EXAMPLE}: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{_shown(text)} is not of the form {EXAMPLE}")
    offsets: Offsets = {}
    for topic, partitions in content.items():
        if not isinstance(partitions, dict):
            raise ValueError(f'topic {topic} has {_shown(partitions)}, not offsets such as {{"0": 23}}')
        for partition, offset in partitions.items():
            if not (partition.isdecimal() and int(partition) < 2**31):
                raise ValueError(f'topic {topic}: {_shown(partition)} is not a partition such as "0"')
            # In Python a bool is an int, too.
            is_number = isinstance(offset, int) and not isinstance(offset, bool)
            if not (is_number and lowest <= offset <= OFFSET_MAX):
                raise ValueError(
                    f"topic {topic}, partition {partition}: {_shown(json.dumps(offset))} is not a whole number"
                    f" from {lowest} to {OFFSET_MAX}"
                )
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def parse_assignment(text: str) -> tuple[TopicPartition, ...]:
    """Parse the partitions of the option `assign`: `{"topic": [0, 1]}`."""
    try:
        content = json.loads(text)
        lists = dict(content.items())
    except (ValueError, AttributeError):
        raise ValueError(f'{_shown(text)} is not of the form {{"orders": [0, 1]}}') from None
    if not all(isinstance(partitions, list) for partitions in lists.values()) or not all(
        type(partition) is int for partitions in lists.values() for partition in partitions
    ):
        raise ValueError(f'{_shown(text)} is not of the form {{"orders": [0, 1]}}')
    assigned = [TopicPartition(topic, partition) for topic, partitions in lists.items() for partition in partitions]
    if not assigned or any(not 0 <= each.partition < 2**31 for each in assigned):
        raise ValueError(f'{_shown(text)} names no partitions or invalid ones; use the form {{"orders": [0, 1]}}')
    return tuple(sorted(set(assigned)))


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else text[:59] + "…"


def limited_ends(start: Offsets, latest: Offsets, rows_max: int) -> Offsets:
    """Return end offsets such that about `rows_max` offsets are read, in proportion to each partition's backlog.

    A partition with a small backlog still moves by one, so a busy one cannot starve it.
    """
    backlogs = {partition: latest[partition] - start.get(partition, 0) for partition in latest}
    # A backlog is negative if the log was truncated: such a partition goes on from its new end.
    total = sum(backlog for backlog in backlogs.values() if backlog > 0)
    if total <= rows_max:
        return dict(latest)
    ends: Offsets = {}
    for partition, backlog in backlogs.items():
        begin = start.get(partition, 0)
        share = rows_max * backlog / total
        step = ceil(share) if share < 1 else int(share)
        ends[partition] = min(latest[partition], begin + step) if backlog > 0 else latest[partition]
    return ends


RECORDS_PER_TASK: Final = 20_000
"""A Python task takes some milliseconds to start; fewer records than this are not worth a task."""


def divide_among_tasks(
    ranges: Iterable[Range],
    tasks_min: int = 0,
    records_max: int | None = None,
    records_per_task: int = RECORDS_PER_TASK,
) -> list[list[Range]]:
    """Divide ranges among tasks, about `tasks_min` (Spark's minPartitions), none with more than `records_max` offsets.

    If `tasks_min` exceeds the number of ranges, or `records_max` is set, ranges are cut and each piece is a task of its
    own; otherwise small ranges share tasks.
    """
    nonempty = [each for each in ranges if each.size > 0]
    total = sum(each.size for each in nonempty)
    if not total:
        return []
    if tasks_min > len(nonempty) or records_max is not None:
        counts = [
            max(round(tasks_min * each.size / total), ceil(each.size / (records_max or total))) for each in nonempty
        ]
        return [[piece] for whole, count in zip(nonempty, counts, strict=True) for piece in _cut(whole, max(1, count))]
    return _pack(nonempty, max(tasks_min, min(len(nonempty), ceil(total / records_per_task))))


def _pack(ranges: Iterable[Range], task_count: int) -> list[list[Range]]:
    """Assign the largest ranges first, each to the task with the fewest offsets."""
    ranges_by_task: list[list[Range]] = [[] for _ in range(task_count)]
    loads = [(0, task) for task in range(task_count)]
    for largest in sorted(ranges, key=lambda each: (-each.size, each.partition)):
        load, lightest_task = heapq.heappop(loads)
        ranges_by_task[lightest_task].append(largest)
        heapq.heappush(loads, (load + largest.size, lightest_task))
    return [sorted(task_ranges) for task_ranges in ranges_by_task if task_ranges]


def _cut(whole: Range, count: int) -> Iterator[Range]:
    """Cut a range into at most `count` pieces of the same size; the last piece may be smaller."""
    step = ceil(whole.size / min(count, whole.size))
    for start in range(whole.start, whole.end, step):
        yield Range(whole.partition, start, min(whole.end, start + step))


def described(partitions: Iterable[TopicPartition], shown_max: int = 5) -> str:
    """List some partitions for a message, with the number of the others."""
    names: Sequence[str] = [str(partition) for partition in sorted(partitions)]
    shown = ", ".join(islice(names, shown_max))
    return shown if len(names) <= shown_max else f"{shown} and {len(names) - shown_max} more"
