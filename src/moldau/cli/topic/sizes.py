"""Bytes on disk by topic: DescribeLogDirs, sent to every broker in turn.

Sizes are optional: they are unknown if a broker does not answer, or if the user may not read them.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from moldau.base.errors import KafkaError, MalformedData
from moldau.cli.connect import Broker
from moldau.client.admin.cluster_values import ClusterMetadata
from moldau.client.channel import Channel
from moldau.client.properties import security
from moldau.client.requests.partitions import describe_log_dirs
from moldau.wire.messages.describe_log_dirs import DescribeLogDirsResponse

TIMEOUT_SECONDS: Final = 2.0


def topic_sizes(broker: Broker, metadata: ClusterMetadata) -> dict[str, int] | None:
    """Return the bytes on disk of each topic, the sum of all its replicas. Return None if a broker did not answer."""
    bytes_by_topic: Counter[str] = Counter()
    how = security(broker.client_config)
    for node in metadata.nodes.values():
        try:
            with Channel(node.host, node.port, how, TIMEOUT_SECONDS) as channel:
                response = describe_log_dirs(channel.ask)
                if response.error_code:  # the user may not describe the cluster
                    return None
                _add(bytes_by_topic, response)
        except (OSError, KafkaError, MalformedData):
            return None
    return bytes_by_topic


def _add(bytes_by_topic: Counter[str], response: DescribeLogDirsResponse) -> None:
    for directory in response.results:
        for topic in directory.topics:
            bytes_by_topic[topic.name] += sum(partition.partition_size for partition in topic.partitions)
