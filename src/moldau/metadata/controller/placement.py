"""Which brokers hold the replicas of a new partition.

Brokers are taken in turn, racks interleaved, each partition starting one broker further on, so leaders spread evenly;
its other replicas are the next in turn, from racks that have the fewest of them. The first broker is drawn by chance,
so that many small topics do not pile up on the same one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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
    racks = {broker.id: broker.rack for broker in brokers}
    first = rng.randrange(len(ring))
    turns = [ring[start:] + ring[:start] for start in ((first + turn) % len(ring) for turn in range(len(ring)))]
    placed = [_spread(turn, racks, replication_factor) for turn in turns[:partitions]]
    return [placed[partition % len(ring)] for partition in range(partitions)]


def _spread(turn: Sequence[int], racks: Mapping[int, str | None], replication_factor: int) -> tuple[int, ...]:
    """The first in turn, then each time the next one of a rack that was used least."""
    chosen: list[int] = []
    used: Counter[str | None] = Counter()
    for _ in range(replication_factor):
        broker = min((each for each in turn if each not in chosen), key=lambda each: used[racks[each]])
        chosen.append(broker)
        used[racks[broker]] += 1
    return tuple(chosen)


def interleaved(brokers: Sequence[BrokerImage]) -> list[int]:
    """Broker ids ordered so that neighbours are in different racks as far as that is possible."""
    racks: dict[str | None, list[int]] = {}
    for broker in sorted(brokers, key=lambda b: b.id):
        racks.setdefault(broker.rack, []).append(broker.id)
    rounds = zip_longest(*(racks[rack] for rack in sorted(racks, key=lambda r: r or "")))
    return [broker for one_of_each in rounds for broker in one_of_each if broker is not None]
