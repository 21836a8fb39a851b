"""Where the replicas of a topic are placed, as if it were created now. Pure: the random generator is an argument.

Replicas are placed as by Kafka's controller. Racks take turns, and so do brokers within each rack, from random starts.
Each partition starts one rack further and, in every rack that the one before has used, one broker further, so leaders
and replicas spread evenly. After as many partitions as there are brokers, the order is shuffled, so that the same
neighbours do not share all their partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from random import Random
from typing import TypeVar

from moldau.operations.failures import InvalidChoice

T = TypeVar("T")


def place_replicas(
    brokers: Mapping[int, str | None], partitions: int, replication_factor: int, rng: Random
) -> list[list[int]]:
    """Return the replicas of each partition, preferred leader first. `brokers` are ids with their racks."""
    if not brokers:
        raise InvalidChoice("All brokers are currently fenced, or have all their log directories cordoned.")
    if replication_factor > len(brokers):
        raise InvalidChoice(
            f"The target replication factor of {replication_factor} cannot be reached because only {len(brokers)}"
            " broker(s) are registered or some brokers have all their log directories cordoned."
        )
    rack_orders = _rack_orders(brokers, replication_factor, rng)
    return [_replicas(next(rack_orders), replication_factor) for _ in range(partitions)]


def _rack_orders(brokers: Mapping[int, str | None], replication_factor: int, rng: Random) -> Iterator[list[list[int]]]:
    """Yield for each partition the racks in the order of placement, each with its brokers in theirs."""
    racks: dict[str | None, list[int]] = {}
    for broker in sorted(brokers):
        racks.setdefault(brokers[broker], []).append(broker)
    by_name = [racks[name] for name in sorted(racks, key=lambda name: name or "")]
    ring = [_rotated(rack, rng.randrange(len(rack))) for rack in by_name]
    ring = _rotated(ring, rng.randrange(len(ring)))
    turn = 0
    while True:
        yield ring
        used, unused = ring[:replication_factor], ring[replication_factor:]
        ring = _rotated([_rotated(rack, 1) for rack in used] + unused, 1)
        turn += 1
        if turn % len(brokers) == 0:
            for rack in ring:
                rng.shuffle(rack)
            rng.shuffle(ring)


def _rotated(items: list[T], by: int) -> list[T]:
    return items[by % len(items) :] + items[: by % len(items)]


def _replicas(racks: list[list[int]], count: int) -> list[int]:
    """Take one broker of each rack in turn; skip a rack that has no more."""
    rounds = range(max(map(len, racks)))
    return list(chain.from_iterable([rack[nth] for rack in racks if nth < len(rack)] for nth in rounds))[:count]
