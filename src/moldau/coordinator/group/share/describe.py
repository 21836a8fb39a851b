"""ShareGroupDescribe: a share group as administrators see it."""

from __future__ import annotations

from moldau.coordinator.group.assignors.simple import SIMPLE
from moldau.coordinator.group.share.group import ShareGroup
from moldau.coordinator.group.share.member import ShareMember
from moldau.metadata.image import MetadataImage
from moldau.wire.messages.share_group_describe import Assignment, DescribedGroup, Member, TopicPartitions


def describe_group(group: ShareGroup, image: MetadataImage) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=SIMPLE,
        members=[_describe_member(member, image) for member in group.members.values()],
    )


def _describe_member(member: ShareMember, image: MetadataImage) -> Member:
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        assignment=Assignment(
            [
                TopicPartitions(topic_id, image.topic_names[topic_id], sorted(partitions))
                for topic_id, partitions in sorted(member.assigned.items())
                if topic_id in image.topic_names
            ]
        ),
    )
