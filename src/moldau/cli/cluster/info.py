"""`moldau cluster info`: the brokers of a cluster, and its active controller."""

from __future__ import annotations

import click

from moldau.base.listeners import host_and_port
from moldau.cli.cluster.connect import admin_failures
from moldau.cli.cluster.describe import find_quorum
from moldau.cli.connect import Broker, broker_options, is_internal
from moldau.cli.output import Table, format_option, show


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


@click.command(short_help="Show the brokers and their controller.")
@format_option
@broker_options
def info(broker: Broker, output_format: str) -> None:
    """Show the cluster's id, its brokers, which of them is the active controller, and how many partitions each leads.

    \b
    moldau cluster info
    moldau cluster info --format json -b other-host:9092
    """
    metadata = broker.metadata()
    topics = [topic for name, topic in metadata.topics.items() if not is_internal(name)]
    leaders = [p.leader for topic in topics for p in topic.partitions.values()]
    controller_id = _active_controller(broker, metadata.controller_id)
    rows = [
        (
            node.node_id,
            host_and_port(node.host, node.port),
            node.node_id == controller_id,
            leaders.count(node.node_id),
        )
        for _, node in sorted(metadata.nodes.items())
    ]
    partitions = sum(len(topic.partitions) for topic in topics)
    title = f"cluster {metadata.cluster_id}: {_count(len(rows), 'broker')}, {_count(len(topics), 'topic')}, "
    title += _count(partitions, "partition")
    brokers = Table(("ID", "ADDRESS", "CONTROLLER", "LEADS"), rows, title)
    data = {"cluster_id": metadata.cluster_id, "topics": len(topics), "partitions": partitions}
    show(output_format, brokers, data=data | {"brokers": brokers.records()})


def _active_controller(broker: Broker, controller_id: int) -> int:
    """Return the leader of the controller quorum. Metadata names any broker as controller (KRaft): its `controller_id`
    is right only where there is no quorum, and a guess where this user may not see it."""
    with admin_failures():
        quorum = find_quorum(broker.admin)
    return controller_id if quorum is None else quorum.leader_id
