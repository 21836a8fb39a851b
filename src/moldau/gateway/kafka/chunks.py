"""Divides the records of one call among partitions, in pieces that fit into a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.client import murmur2
from moldau.gateway.ports import NewRecord, Place

BATCH_BYTES: Final = 512 << 10
"""The approximate size of a batch: below the message.max.bytes of any ordinary broker."""
BATCH_RECORDS: Final = 4_000
"""To build a batch of so many takes two milliseconds."""
RECORD_BYTES: Final = 21
"""The largest size of the lengths and deltas of a record without headers."""
KEYS_REMEMBERED: Final = 1 << 16
Outcome = Place | KafkaError

partition_of: Final = lru_cache(KEYS_REMEMBERED)(murmur2.partition_of)
"""The partition of a key: devices send the same ones again and again."""


class Call:
    """What becomes of the records of one call."""

    __slots__ = ("_missing", "_on_end", "deadline", "outcomes")

    def __init__(self, count: int, deadline: float, on_end: Callable[[], None]) -> None:
        """`on_end` is called when it is known of all records what became of them."""
        self.outcomes: list[Outcome | None] = [None] * count
        self.deadline = deadline
        self._missing, self._on_end = count, on_end

    def settle(self, indexes: Sequence[int], outcomes: Sequence[Outcome]) -> None:
        """Note what became of these records."""
        if isinstance(indexes, range):
            self.outcomes[indexes.start : indexes.stop] = outcomes
        else:
            for index, outcome in zip(indexes, outcomes, strict=True):
                self.outcomes[index] = outcome
        self._missing -= len(indexes)
        if not self._missing:
            self._on_end()

    def fail(self, indexes: Sequence[int], error: KafkaError) -> None:
        self.settle(indexes, [error] * len(indexes))


class Chunk(NamedTuple):
    """Records of one call for one partition: values alone, or whole records."""

    call: Call
    indexes: Sequence[int]
    """Their places in the call."""
    values: Sequence[bytes] | None
    records: Sequence[NewRecord]
    size: int

    def halves(self) -> tuple[Chunk, Chunk]:
        middle = len(self.indexes) // 2
        return self._part(0, middle), self._part(middle, len(self.indexes))

    def _part(self, begin: int, end: int) -> Chunk:
        values = None if self.values is None else self.values[begin:end]
        records = self.records[begin:end]
        size = sum(map(size_of, records)) if values is None else size_of_values(values)
        return Chunk(self.call, self.indexes[begin:end], values, records, size)


def size_of(record: NewRecord) -> int:
    """Return the size of a record in a batch, or slightly more."""
    size = RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += 10 + 4 * len(name) + len(value or b"")
    return size


def size_of_values(values: Sequence[bytes]) -> int:
    return sum(map(len, values)) + RECORD_BYTES * len(values)


def chunks_of_values(call: Call, values: Sequence[bytes]) -> Iterator[Chunk]:
    """Yield values without keys, which all go to one partition."""
    begin, end = 0, len(values)
    while begin < end:
        stop = min(end, begin + BATCH_RECORDS)
        while stop - begin > 1 and size_of_values(values[begin:stop]) > BATCH_BYTES:
            stop = begin + (stop - begin) // 2
        part = values[begin:stop]
        yield Chunk(call, range(begin, stop), part, (), size_of_values(part))
        begin = stop


def chunks_by_partition(
    call: Call, records: Sequence[NewRecord], partitions: int, without_key: int
) -> dict[int, list[Chunk]]:
    """Return the records by partition: the given one, that of the key, or `without_key`. A partition that does not
    exist is the outcome of its record."""
    chosen: dict[int, list[int]] = {}
    for index, record in enumerate(records):
        partition = record.partition
        if partition is None:
            partition = without_key if record.key is None else partition_of(record.key, partitions)
        chosen.setdefault(partition, []).append(index)
    chunks: dict[int, list[Chunk]] = {}
    for partition, indexes in chosen.items():
        if 0 <= partition < partitions:
            chunks[partition] = list(_cut(call, records, indexes))
        else:
            text = f"there is no partition {partition}: the topic has {partitions}"
            call.fail(indexes, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text))
    return chunks


def _cut(call: Call, records: Sequence[NewRecord], indexes: Sequence[int]) -> Iterator[Chunk]:
    """Yield these records in pieces that fit into a batch."""
    part: list[int] = []
    total = 0
    for index in indexes:
        size = size_of(records[index])
        if part and (total + size > BATCH_BYTES or len(part) == BATCH_RECORDS):
            yield Chunk(call, part, None, [records[each] for each in part], total)
            part, total = [], 0
        part.append(index)
        total += size
    yield Chunk(call, part, None, [records[each] for each in part], total)
