"""Where Kafka's controller would put the replicas of a new topic: what --generate proposes. Pure but for the chance
it is given.

Racks are taken in turn, and brokers in turn within each rack; where both begin is drawn. Each partition begins one rack
and, in every rack, one broker further on, so leaders and replicas spread evenly. When every broker has led once the
order is shuffled, lest the same neighbours share all their partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from random import Random
from typing import TypeVar

from moldau.cli.kafka.tool import ToolFailed

T = TypeVar("T")


def place(brokers: Mapping[int, str | None], partitions: int, replication_factor: int, rng: Random) -> list[list[int]]:
    """The replicas of each partition, preferred leader first. `brokers` are ids with their racks."""
    if not brokers:
        raise ToolFailed("All brokers are currently fenced, or have all their log directories cordoned.")
    if replication_factor > len(brokers):
        raise ToolFailed(
            f"The target replication factor of {replication_factor} cannot be reached because only {len(brokers)}"
            " broker(s) are registered or some brokers have all their log directories cordoned."
        )
    turns = _write_order(brokers, rng)
    return [_replicas(next(turns), replication_factor) for _ in range(partitions)]


def _write_order(brokers: Mapping[int, str | None], rng: Random) -> Iterator[list[list[int]]]:
    """For each partition the racks in the order in which they are asked, each with its brokers in theirs."""
    racks: dict[str | None, list[int]] = {}
    for broker in sorted(brokers):
        racks.setdefault(brokers[broker], []).append(broker)
    ring = [racks[name] for name in sorted(racks, key=lambda name: name or "")]
    begins = [rng.randrange(len(rack)) for rack in ring]
    first = rng.randrange(len(ring))
    turn = 0
    while True:
        turned = [_rotated(rack, begin + turn) for rack, begin in zip(ring, begins, strict=True)]
        yield _rotated(turned, first + turn)
        turn += 1
        if turn % len(brokers) == 0:
            for rack in ring:
                rng.shuffle(rack)
            rng.shuffle(ring)


def _rotated(items: list[T], by: int) -> list[T]:
    return items[by % len(items) :] + items[: by % len(items)]


def _replicas(racks: list[list[int]], count: int) -> list[int]:
    """One of each rack in turn; a rack that has no more is passed over."""
    rounds = range(max(map(len, racks)))
    return list(chain.from_iterable([rack[nth] for rack in racks if nth < len(rack)] for nth in rounds))[:count]
