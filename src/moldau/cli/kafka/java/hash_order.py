"""The iteration order of Java's HashMap, in which Kafka's tools print many of their rows.

It has no meaning of its own: with it, the output of these tools and of Kafka's can be compared line by line. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from moldau.base.ids import TopicPartition

K = TypeVar("K")

TABLE_MIN: Final = 16
_INT: Final = 0xFFFFFFFF


def string_hash(text: str) -> int:
    """Return String.hashCode(), over UTF-16 units, as an unsigned number."""
    units = text.encode("utf-16-be", "surrogatepass")
    hash_code = 0
    for position in range(0, len(units), 2):
        hash_code = (31 * hash_code + (units[position] << 8 | units[position + 1])) & _INT
    return hash_code


def partition_hash(partition: TopicPartition) -> int:
    """Return TopicPartition.hashCode() of Kafka's clients."""
    return (31 * (31 + partition.partition) + string_hash(partition.topic)) & _INT


def strings(keys: Iterable[str]) -> list[str]:
    return _ordered(keys, string_hash, TABLE_MIN)


def strings_presized(keys: Iterable[str]) -> list[str]:
    """The order in a `new HashMap<>(n)` for n keys: its table is no larger than needed."""
    return _ordered(keys, string_hash, 1)


def integers(keys: Iterable[int]) -> list[int]:
    return _ordered(keys, lambda key: key & _INT, TABLE_MIN)


def longs(keys: Iterable[int]) -> list[int]:
    return _ordered(keys, lambda key: (key ^ key >> 32) & _INT, TABLE_MIN)


def partitions(keys: Iterable[TopicPartition]) -> list[TopicPartition]:
    return _ordered(keys, partition_hash, TABLE_MIN)


def partitions_presized(keys: Iterable[TopicPartition]) -> list[TopicPartition]:
    return _ordered(keys, partition_hash, 1)


def _ordered(keys: Iterable[K], hash_of: Callable[[K], int], table_min: int) -> list[K]:
    """Sort by bucket, and inside a bucket by insertion. The table doubles when it is three quarters full."""
    distinct = list(dict.fromkeys(keys))
    size = table_min
    while len(distinct) > size * 3 // 4:
        size *= 2
    return sorted(distinct, key=lambda key: (hash_of(key) ^ hash_of(key) >> 16) & (size - 1))
