"""What --generate proposes: replicas as if the topics were created again on the named brokers. Pure: the random
generator is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from moldau.base.ids import TopicPartition
from moldau.cli.kafka.reassignment.plan import Replicas
from moldau.cli.kafka.tool import ToolFailed
from moldau.client.admin.cluster_values import BrokerNode
from moldau.operations.failures import InvalidChoice
from moldau.operations.replica_placement import place_replicas


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
        try:
            placed = place_replicas(racks, len(replication_factors), replication_factors[0], rng)
        except InvalidChoice as error:
            raise ToolFailed(str(error)) from error
        for index, replicas in enumerate(placed):
            proposed[TopicPartition(topic, index)] = replicas
    return proposed
