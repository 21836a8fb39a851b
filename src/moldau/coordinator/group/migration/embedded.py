"""What classic consumers wrap into bytes, and the partitions by topic id that a consumer group knows them by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from moldau.base.errors import MalformedData
from moldau.base.ids import Uuid
from moldau.metadata.image import MetadataImage
from moldau.wire.consumer_protocol import Assignment, Subscription, TopicPartitions, read, write
from moldau.wire.schema import Buffer

STICKY: Final = ("sticky", "cooperative-sticky")
"""What their assignments carry besides is no more than what the member had before: librdkafka's leaders hand it back.
Apache Kafka takes that for an assignor of its own kind, and does not let such groups change."""
Shares = Mapping[Uuid, Iterable[int]]


def by_topic_id(topics: Iterable[TopicPartitions], image: MetadataImage) -> dict[Uuid, frozenset[int]]:
    """Topics that are not there any more are left out."""
    found: dict[Uuid, frozenset[int]] = {}
    for each in topics:
        topic = image.topics.get(each.topic)
        if topic is not None and each.partitions:
            found[topic.id] = found.get(topic.id, frozenset()).union(each.partitions)
    return found


def read_assignment(data: Buffer, protocol: str | None, image: MetadataImage) -> dict[Uuid, frozenset[int]]:
    """Raises MalformedData for what is none, or is more than partitions: what a leader of its own kind has to say to
    its followers would be lost. A member that has not asked for its share yet has nothing."""
    if not data:
        return {}
    assignment, _ = read(Assignment, data)
    if assignment.user_data and protocol not in STICKY:
        raise MalformedData("the assignment carries data of an assignor of its own kind")
    return by_topic_id(assignment.assigned_partitions, image)


def write_assignment(shares: Shares, image: MetadataImage, subscription: Buffer) -> bytes:
    """In the version that the member itself writes."""
    named = sorted(
        (image.topic_names[topic_id], sorted(shares[topic_id])) for topic_id in shares if topic_id in image.topic_names
    )
    assignment = Assignment([TopicPartitions(name, partitions) for name, partitions in named])
    return write(assignment, _version(subscription))


def _version(subscription: Buffer) -> int:
    """Only the first of a member's protocols is known to be readable; one that is not is answered in the oldest way."""
    try:
        _, version = read(Subscription, subscription)
    except MalformedData:
        return Assignment.VERSIONS[0]
    return min(version, Assignment.VERSIONS[1])
