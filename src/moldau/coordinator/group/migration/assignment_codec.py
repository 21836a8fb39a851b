"""Converts between the assignment bytes of classic consumers, which have topic names, and partitions by topic id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from moldau.base.buffers import Buffer
from moldau.base.errors import MalformedData
from moldau.base.ids import Uuid
from moldau.metadata.image import MetadataImage
from moldau.wire.consumer_protocol import read, write
from moldau.wire.log_records.consumer_protocol import Assignment, Subscription, TopicPartitions

STICKY_PROTOCOLS: Final = ("sticky", "cooperative-sticky")
"""Protocols whose assignments may have user data that can be dropped: librdkafka's leaders send the member's previous
assignment in it. Apache Kafka takes it for data of a custom assignor and does not convert such groups."""
PartitionsByTopic = Mapping[Uuid, Iterable[int]]


def by_topic_id(topics: Iterable[TopicPartitions], image: MetadataImage) -> dict[Uuid, frozenset[int]]:
    """Return the partitions by topic id, without topics that no longer exist."""
    partitions: dict[Uuid, set[int]] = {}
    for each in topics:
        topic = image.topics.get(each.topic)
        if topic is not None and each.partitions:
            partitions.setdefault(topic.id, set()).update(each.partitions)
    return {topic_id: frozenset(indexes) for topic_id, indexes in partitions.items()}


def read_assignment(data: Buffer, protocol: str | None, image: MetadataImage) -> dict[Uuid, frozenset[int]]:
    """Return the partitions of an assignment; none for a member that has not synced yet. Raise MalformedData if it is
    invalid, or has data of a custom assignor, which a conversion would lose."""
    if not data:
        return {}
    assignment, _ = read(Assignment, data)
    if assignment.user_data and protocol not in STICKY_PROTOCOLS:
        raise MalformedData("an assignment has user data of a custom assignor")
    return by_topic_id(assignment.assigned_partitions, image)


def write_assignment(partitions: PartitionsByTopic, image: MetadataImage, subscription: Buffer) -> bytes:
    """Encode the assignment in the version of the member's own subscription."""
    named = sorted(
        (image.topic_names[topic_id], sorted(partitions[topic_id]))
        for topic_id in partitions
        if topic_id in image.topic_names
    )
    assignment = Assignment([TopicPartitions(name, indexes) for name, indexes in named])
    return write(assignment, _assignment_version(subscription))


def _assignment_version(subscription: Buffer) -> int:
    """Return the version for a member's assignment: the oldest if its subscription is unreadable, since only the first
    of its protocols was checked."""
    try:
        _, version = read(Subscription, subscription)
    except MalformedData:
        return Assignment.VERSIONS[0]
    return min(version, Assignment.VERSIONS[1])
