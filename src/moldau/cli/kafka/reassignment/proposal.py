"""What --generate proposes: replicas as if the topics were created again on the named brokers. Pure: the random
generator is an argument.

Replicas are placed as by Kafka's controller. Racks take turns, and so do brokers within each rack, from random starts.
Each partition starts one rack further and, in every rack that the one before has used, one broker further, so leaders
and replicas spread evenly. After as many partitions as there are brokers, the order is shuffled, so that the same
neighbours do not share all their partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from random import Random
from typing import TypeVar

from moldau.base.ids import TopicPartition
from moldau.cli.kafka.reassignment.plan import Replicas
from moldau.cli.kafka.tool import ToolFailed
from moldau.client.admin.cluster_values import BrokerNode

T = TypeVar("T")


def chosen_racks(nodes: Mapping[int, BrokerNode], brokers: Sequence[int], rack_aware: bool) -> dict[int, str | None]:
    """Return those of the brokers that are registered, with their racks if `rack_aware`."""
    racks = {broker: node.rack if rack_aware else None for broker, node in nodes.items() if broker in brokers}
    rackless = sum(rack is None for rack in racks.values())
    if rack_aware and rackless not in (0, len(racks)):
        raise ToolFailed(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica assignment"
            " without rack information."
        )
    return racks


def propose(current: Replicas, racks: Mapping[int, str | None], rng: Random) -> dict[TopicPartition, list[int]]:
    """Place each topic as if it were new, with the replication factor of its first partition."""
    counts: dict[str, list[int]] = {}
    for partition in sorted(current):
        counts.setdefault(partition.topic, []).append(len(current[partition]))
    proposed = {}
    for topic, replication_factors in counts.items():
        for index, replicas in enumerate(place_replicas(racks, len(replication_factors), replication_factors[0], rng)):
            proposed[TopicPartition(topic, index)] = replicas
    return proposed


def place_replicas(
    brokers: Mapping[int, str | None], partitions: int, replication_factor: int, rng: Random
) -> list[list[int]]:
    """Return the replicas of each partition, preferred leader first. `brokers` are ids with their racks."""
    if not brokers:
        raise ToolFailed("All brokers are currently fenced, or have all their log directories cordoned.")
    if replication_factor > len(brokers):
        raise ToolFailed(
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
