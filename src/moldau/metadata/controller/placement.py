"""Which brokers hold the replicas of a new partition.

Brokers are taken in turn, racks interleaved, each partition starting one broker further on, so leaders and followers
spread evenly; the first broker is drawn by chance, so that many small topics do not pile up on the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from random import Random

from moldau.base.errors import ErrorCode, KafkaError
from moldau.metadata.image import BrokerImage


def place(
    brokers: Sequence[BrokerImage], partitions: int, replication_factor: int, rng: Random
) -> list[tuple[int, ...]]:
    """The replicas of each partition, preferred leader first."""
    if replication_factor > len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(brokers)} broker(s) are registered.",
        )
    ring = interleaved(brokers)
    first = rng.randrange(len(ring))
    return [tuple(ring[(first + p + r) % len(ring)] for r in range(replication_factor)) for p in range(partitions)]


def interleaved(brokers: Sequence[BrokerImage]) -> list[int]:
    """Broker ids ordered so that neighbours are in different racks as far as that is possible."""
    racks: dict[str | None, list[int]] = {}
    for broker in sorted(brokers, key=lambda b: b.id):
        racks.setdefault(broker.rack, []).append(broker.id)
    rounds = zip_longest(*(racks[rack] for rack in sorted(racks, key=lambda r: r or "")))
    return [broker for one_of_each in rounds for broker in one_of_each if broker is not None]
