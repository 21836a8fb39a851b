"""The order in which Java's HashMap gives its keys, which is the order in which Kafka's tools print many of their rows.

Nobody would choose that order. It is kept so that the output of these tools and of Kafka's can be compared line by
line. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from moldau.base.ids import TopicPartition

K = TypeVar("K")

TABLE_MIN: Final = 16
_INT: Final = 0xFFFFFFFF


def string_hash(text: str) -> int:
    """String.hashCode(), over UTF-16 units, as an unsigned number."""
    units = text.encode("utf-16-be", "surrogatepass")
    found = 0
    for at in range(0, len(units), 2):
        found = (31 * found + (units[at] << 8 | units[at + 1])) & _INT
    return found


def partition_hash(where: TopicPartition) -> int:
    """TopicPartition.hashCode() of Kafka's clients."""
    return (31 * (31 + where.partition) + string_hash(where.topic)) & _INT


def strings(keys: Iterable[str]) -> list[str]:
    return _ordered(keys, string_hash, TABLE_MIN)


def strings_presized(keys: Iterable[str]) -> list[str]:
    """As of a map that was made for so many keys, with a table no larger than they need."""
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
    """By bucket, and inside a bucket as they were put in. The table doubles when it is three quarters full."""
    distinct = list(dict.fromkeys(keys))
    size = table_min
    while len(distinct) > size * 3 // 4:
        size *= 2
    return sorted(distinct, key=lambda key: (hash_of(key) ^ hash_of(key) >> 16) & (size - 1))
