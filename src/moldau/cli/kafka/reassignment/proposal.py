"""What --generate proposes: replicas as if the topics were created again on the named brokers. Pure: the random
generator is an argument.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from moldau.base.ids import TopicPartition
from moldau.cli.kafka.reassignment.plan import Replicas
from moldau.cli.kafka.reassignment.replica_placer import place
from moldau.cli.kafka.tool import ToolFailed
from moldau.client.cluster_values import BrokerNode


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


def propose(current: Replicas, racks: Mapping[int, str | None], rng: random.Random) -> dict[TopicPartition, list[int]]:
    """Place each topic as if it were new, with the replication factor of its first partition."""
    counts: dict[str, list[int]] = {}
    for where in sorted(current):
        counts.setdefault(where.topic, []).append(len(current[where]))
    proposed = {}
    for topic, replication_factors in counts.items():
        for index, replicas in enumerate(place(racks, len(replication_factors), replication_factors[0], rng)):
            proposed[TopicPartition(topic, index)] = replicas
    return proposed
