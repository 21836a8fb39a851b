"""How much topics take on disk: DescribeLogDirs, which librdkafka does not offer, asked of every broker in turn.

The size is a help, not a must: a broker that does not say leaves it unknown, and so do connections that need more
than an address (TLS, SASL).
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from moldau.base.errors import KafkaError, MalformedData
from moldau.cli.connect import Broker, ClusterMetadata
from moldau.client.channel import Channel
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

TIMEOUT_SECONDS: Final = 2.0


def sizes(broker: Broker, metadata: ClusterMetadata) -> dict[str, int] | None:
    """Bytes on disk by topic, all replicas together; None if not every broker told."""
    if broker.client_config:
        return None
    found: Counter[str] = Counter()
    for node in metadata.brokers.values():
        try:
            with Channel(node.host, node.port, timeout_seconds=TIMEOUT_SECONDS) as channel:
                _add(
                    found, channel.ask(ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(None), DescribeLogDirsResponse)
                )
        except (OSError, KafkaError, MalformedData):
            return None
    return found


def _add(found: Counter[str], answer: DescribeLogDirsResponse) -> None:
    for directory in answer.results:
        for topic in directory.topics:
            found[topic.name] += sum(partition.partition_size for partition in topic.partitions)
