"""`moldau cluster info`: who is in the cluster, and who its controller is."""

from __future__ import annotations

import click

from moldau.cli.connect import Broker, broker_options, is_internal
from moldau.cli.output import Table, format_option, show


@click.group()
def cluster() -> None:
    """Show the brokers of a cluster and their controller."""


@cluster.command()
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
    led = [p.leader for topic in metadata.topics.values() for p in topic.partitions.values()]
    rows = [
        (node.id, f"{node.host}:{node.port}", node.id == metadata.controller_id, led.count(node.id))
        for _, node in sorted(metadata.brokers.items())
    ]
    partitions = sum(len(topic.partitions) for topic in topics)
    title = f"cluster {metadata.cluster_id}: {len(rows)} brokers, {len(topics)} topics, {partitions} partitions"
    brokers = Table(("ID", "ADDRESS", "CONTROLLER", "LEADS"), rows, title)
    data = {"cluster_id": metadata.cluster_id, "topics": len(topics), "partitions": partitions}
    show(output_format, brokers, data=data | {"brokers": brokers.records()})
