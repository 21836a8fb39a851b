"""What kafka-consumer-groups and kafka-share-groups ask of a cluster to reset offsets: which partitions there are, and
the offsets at their starts, their ends, or a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from moldau.base.errors import KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli.kafka.group_offsets.choice import split_topics
from moldau.cli.kafka.java.exceptions import WRAPPED, default_text, exception_text, without_message
from moldau.cli.kafka.tool import ToolFailed
from moldau.client.cluster import LATEST, Cluster

Offsets = dict[TopicPartition, int]

NO_OFFSET: Final = -1
"""A broker's answer if all records are older than the timestamp."""


def named_partitions(cluster: Cluster, topic_arguments: Iterable[str]) -> list[TopicPartition]:
    """Return the partitions that `topic:0,1` and `topic` name; those of a whole topic come last."""
    partitions, topics = split_topics(topic_arguments)
    try:
        return [
            *partitions,
            *(partition for topic in sorted(set(topics)) for partition in partitions_of(cluster, topic)),
        ]
    except KafkaError as error:
        raise ToolFailed(default_text(error)) from error


def partitions_of(cluster: Cluster, topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in sorted(cluster.topic(topic).leaders)]


def check_partitions(cluster: Cluster, partitions: Sequence[TopicPartition]) -> None:
    try:
        leaders = {topic: cluster.topic(topic).leaders for topic in {partition.topic for partition in partitions}}
    except KafkaError as error:
        raise ToolFailed(WRAPPED + exception_text(without_message(error))) from error
    nodes = cluster.nodes()
    absent = [str(partition) for partition in partitions if partition.partition not in leaders[partition.topic]]
    if absent:
        raise ToolFailed(f'The partitions "{",".join(absent)}" do not exist')
    leaderless = [
        str(partition) for partition in partitions if leaders[partition.topic][partition.partition] not in nodes
    ]
    if leaderless:
        raise ToolFailed(f'The partitions "{",".join(leaderless)}" have no leader')


def list_offsets(cluster: Cluster, partitions: Collection[TopicPartition], timestamp: int) -> Offsets:
    """Return the leaders' offsets for a timestamp, or for EARLIEST or LATEST. A leader may just be moving."""
    offsets = cluster.retry(lambda: cluster.list_offsets(dict.fromkeys(partitions, timestamp)), cluster.timeout_ms)
    return {partition: offsets[partition] for partition in partitions}


def offsets_at_time(cluster: Cluster, partitions: Sequence[TopicPartition], moment_ms: int) -> Offsets:
    offsets = list_offsets(cluster, partitions, moment_ms)
    without_offset = [partition for partition in sorted(set(partitions)) if offsets[partition] == NO_OFFSET]
    for topic, index in without_offset:
        print(f"\nWarn: Partition {index} from topic {topic} is empty. Falling back to latest known offset.")
    return offsets | list_offsets(cluster, without_offset, LATEST)
