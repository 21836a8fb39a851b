"""Offsets of many partitions: parsed from and written as Spark's JSON, limited, and divided among tasks. Pure.

Spark keeps a stream's position as `{"topic": {"0": 12, "1": 7}}`, the form that its own Kafka connector writes into
checkpoints too. In options the numbers -2 and -1 stand for the earliest and the latest offset.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import ceil
from typing import Any, Final, NamedTuple

from moldau.base.ids import TopicPartition
from moldau.client.cluster import EARLIEST, Offsets

OFFSET_MAX: Final = 2**63 - 1
EXAMPLE: Final = '{"orders": {"0": 23, "1": 7}}'


class Range(NamedTuple):
    """Records of one partition: from `start` on, before `end`."""

    where: TopicPartition
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


def from_json(given: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in given.items()
        for partition, offset in partitions.items()
    }


def offsets_in(value: Any) -> dict[TopicPartition, int]:
    """Parse a source's offset, text or parsed JSON: {"topic": {"0": 123}}. Empty for sources that are no topics."""
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


def parse_offsets(text: str, lowest: int = EARLIEST) -> Offsets:
    """Parse offsets or timestamps from an option's JSON. ValueError says what is wrong."""
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{_shown(text)} is not JSON such as {EXAMPLE}: {error}") from None
    if not isinstance(given, dict):
        raise ValueError(f"{_shown(text)} is not of the form {EXAMPLE}")
    offsets: Offsets = {}
    for topic, partitions in given.items():
        if not isinstance(partitions, dict):
            raise ValueError(f'topic {topic} has {_shown(partitions)}, not offsets such as {{"0": 23}}')
        for partition, offset in partitions.items():
            number = isinstance(offset, int) and not isinstance(offset, bool) and lowest <= offset <= OFFSET_MAX
            if not (partition.isdecimal() and int(partition) < 2**31 and number):
                raise ValueError(
                    f"partition {_shown(partition)} of {topic} cannot be at {_shown(offset)}: partitions are texts such"
                    f' as "0", and what they are at is a number from {lowest} on'
                )
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def parse_assignment(text: str) -> tuple[TopicPartition, ...]:
    """Parse the partitions of the option `assign`: `{"topic": [0, 1]}`."""
    try:
        given = json.loads(text)
        chosen = [
            TopicPartition(topic, partition)
            for topic, partitions in given.items()
            for partition in map(int, partitions)
        ]
    except (ValueError, AttributeError, TypeError):
        raise ValueError(f'{_shown(text)} is not of the form {{"orders": [0, 1]}}') from None
    if not chosen or any(not 0 <= where.partition < 2**31 for where in chosen):
        raise ValueError(f'{_shown(text)} names no partitions as {{"orders": [0, 1]}} does, or impossible ones')
    return tuple(sorted(set(chosen)))


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else text[:59] + "…"


def limited(start: Offsets, latest: Offsets, rows_max: int) -> Offsets:
    """Return end offsets such that about `rows_max` offsets are read, in proportion to each partition's backlog.

    A partition with a small backlog still moves by one, so a busy one cannot starve it.
    """
    waiting = {where: latest[where] - start.get(where, 0) for where in latest}
    total = sum(size for size in waiting.values() if size > 0)
    if total <= rows_max:
        return dict(latest)
    ends: Offsets = {}
    for where, size in waiting.items():
        begin = start.get(where, 0)
        share = rows_max * size / total
        ends[where] = min(latest[where], begin + (ceil(share) if share < 1 else int(share))) if size > 0 else begin
    return ends


RECORDS_PER_TASK: Final = 20_000
"""A Python task takes some milliseconds to start; fewer records than this are not worth a task."""


def tasks(
    ranges: Iterable[Range],
    partitions_min: int = 0,
    records_max: int | None = None,
    records_per_task: int = RECORDS_PER_TASK,
) -> list[list[Range]]:
    """Divide ranges among tasks. Small ranges share a task, large ones have their own.

    Ranges are split to get at least `partitions_min` tasks, and none with more than `records_max` offsets.
    """
    nonempty = [one for one in ranges if one.size > 0]
    total = sum(one.size for one in nonempty)
    if not total:
        return []
    if partitions_min > len(nonempty) or records_max is not None:
        counts = [
            max(round(partitions_min * one.size / total), ceil(one.size / (records_max or total))) for one in nonempty
        ]
        return [[piece] for one, count in zip(nonempty, counts, strict=True) for piece in _cut(one, max(1, count))]
    return _packed(nonempty, max(partitions_min, min(len(nonempty), ceil(total / records_per_task))))


def _packed(ranges: Iterable[Range], count: int) -> list[list[Range]]:
    """Assign the largest ranges first, each to the task with the fewest offsets."""
    packed: list[list[Range]] = [[] for _ in range(count)]
    loads = [(0, index) for index in range(count)]
    for one in sorted(ranges, key=lambda each: (-each.size, each.where)):
        load, lightest = heapq.heappop(loads)
        packed[lightest].append(one)
        heapq.heappush(loads, (load + one.size, lightest))
    return [sorted(some) for some in packed if some]


def _cut(one: Range, count: int) -> Iterator[Range]:
    step = ceil(one.size / min(count, one.size))
    for start in range(one.start, one.end, step):
        yield Range(one.where, start, min(one.end, start + step))


def described(where: Iterable[TopicPartition], most: int = 5) -> str:
    """List some partitions for a message, with the number of the rest."""
    names: Sequence[str] = [str(one) for one in sorted(where)]
    shown = ", ".join(islice(names, most))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
