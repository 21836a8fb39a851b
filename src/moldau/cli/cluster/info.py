"""`moldau cluster info`: the brokers of a cluster, and its active controller."""

from __future__ import annotations

import click

from moldau.base.listeners import host_and_port
from moldau.cli.connect import Broker, broker_options, is_internal
from moldau.cli.output import Table, format_option, show


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


@click.command(short_help="Show the brokers and their controller.")
@format_option
@broker_options
def info(broker: Broker, output_format: str) -> None:
    """Show the cluster's id, its brokers, its controller, and how much they hold.

    \b
    moldau cluster info
    moldau cluster info --format json -b other-host:9092
    """
    metadata = broker.metadata()
    topics = [topic for name, topic in metadata.topics.items() if not is_internal(name)]
    leaders = [p.leader for topic in metadata.topics.values() for p in topic.partitions.values()]
    rows = [
        (node.id, host_and_port(node.host, node.port), node.id == metadata.controller_id, leaders.count(node.id))
        for _, node in sorted(metadata.brokers.items())
    ]
    partitions = sum(len(topic.partitions) for topic in topics)
    title = f"cluster {metadata.cluster_id}: {_count(len(rows), 'broker')}, {_count(len(topics), 'topic')}, "
    title += _count(partitions, "partition")
    brokers = Table(("ID", "ADDRESS", "CONTROLLER", "LEADS"), rows, title)
    data = {"cluster_id": metadata.cluster_id, "topics": len(topics), "partitions": partitions}
    show(output_format, brokers, data=data | {"brokers": brokers.records()})
