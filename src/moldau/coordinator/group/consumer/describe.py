"""ConsumerGroupDescribe: a consumer group as administrators see it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from moldau.base.ids import Uuid
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember
from moldau.coordinator.group.consumer.target import preferred_assignor
from moldau.metadata.image import MetadataImage
from moldau.wire.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


def describe_group(group: ConsumerGroup, image: MetadataImage, assignors: Sequence[str]) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=preferred_assignor(group.assignor_counts, assignors),
        members=[_describe_member(group, member, image) for member in group.members.values()],
    )


def _describe_member(group: ConsumerGroup, member: ConsumerMember, image: MetadataImage) -> Member:
    """Describe a member. Its assignment includes the partitions that it still has to revoke: it owns them until then.
    Older versions of Kafka leave them out."""
    owned = {topic_id: set(partitions) for topic_id, partitions in member.assigned.items()}
    for topic_id, partitions in member.pending_revocation.items():
        owned.setdefault(topic_id, set()).update(partitions)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.pattern,
        assignment=_assignment(owned.items(), image),
        target_assignment=_assignment(group.target_of(member.member_id).items(), image),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _assignment(by_topic: Iterable[tuple[Uuid, Iterable[int]]], image: MetadataImage) -> Assignment:
    """Return the assignment without deleted topics, which have no name any more."""
    return Assignment(
        [
            TopicPartitions(topic_id, image.topic_names[topic_id], sorted(partitions))
            for topic_id, partitions in sorted(by_topic, key=lambda item: item[0])
            if topic_id in image.topic_names
        ]
    )
