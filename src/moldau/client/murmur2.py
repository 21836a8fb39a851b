"""The hash by which Kafka's clients choose the partition of a key."""

from __future__ import annotations

from typing import Final

SEED: Final = 0x9747B28C
MULTIPLIER: Final = 0x5BD1E995
MASK: Final = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Return the hash as Java's client computes it, but unsigned."""
    whole = len(key) & ~3
    mixed = SEED ^ len(key)
    for start in range(0, whole, 4):
        part = int.from_bytes(key[start : start + 4], "little") * MULTIPLIER & MASK
        part = (part ^ part >> 24) * MULTIPLIER & MASK
        mixed = mixed * MULTIPLIER & MASK ^ part
    if whole < len(key):
        mixed = (mixed ^ int.from_bytes(key[whole:], "little")) * MULTIPLIER & MASK
    mixed = (mixed ^ mixed >> 13) * MULTIPLIER & MASK
    return mixed ^ mixed >> 15


def partition_of(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions
