"""Builds the records of a share group from its state."""

from __future__ import annotations

from moldau.coordinator.group.share.member import STABLE, PartitionsByTopicId, ShareMember
from moldau.coordinator.group.share.states import StatePartitions, StatesByTopicId
from moldau.coordinator.machine import CoordinatorRecord
from moldau.wire.log_records.share_groups import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicInfo,
    TopicPartition,
    TopicPartitions,
    TopicPartitionsInfo,
)


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return CoordinatorRecord(ShareGroupMetadataKey(group_id), ShareGroupMetadataValue(epoch, metadata_hash))


def member_metadata(group_id: str, member: ShareMember) -> CoordinatorRecord:
    names = sorted(member.topic_names)
    value = ShareGroupMemberMetadataValue(member.rack_id, member.client_id, member.client_host, names)
    return CoordinatorRecord(ShareGroupMemberMetadataKey(group_id, member.member_id), value)


def target_epoch(group_id: str, epoch: int, now_ms: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareGroupTargetAssignmentMetadataKey(group_id), ShareGroupTargetAssignmentMetadataValue(epoch, now_ms)
    )


def member_target(group_id: str, member_id: str, target: PartitionsByTopicId) -> CoordinatorRecord:
    topics = [TopicPartition(topic_id, sorted(target[topic_id])) for topic_id in sorted(target)]
    return CoordinatorRecord(
        ShareGroupTargetAssignmentMemberKey(group_id, member_id), ShareGroupTargetAssignmentMemberValue(topics)
    )


def member_assignment(group_id: str, member: ShareMember) -> CoordinatorRecord:
    topics = [TopicPartitions(topic_id, sorted(member.assigned[topic_id])) for topic_id in sorted(member.assigned)]
    value = ShareGroupCurrentMemberAssignmentValue(member.member_epoch, member.previous_member_epoch, STABLE, topics)
    return CoordinatorRecord(ShareGroupCurrentMemberAssignmentKey(group_id, member.member_id), value)


def state_partitions(group_id: str, states: StatePartitions) -> CoordinatorRecord:
    value = ShareGroupStatePartitionMetadataValue(
        _topics(states.initializing),
        _topics(states.initialized),
        [TopicInfo(topic_id, states.deleting[topic_id]) for topic_id in sorted(states.deleting)],
    )
    return CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group_id), value)


def _topics(topics: StatesByTopicId) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id, topics[topic_id].name, sorted(topics[topic_id].partitions))
        for topic_id in sorted(topics)
    ]


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    return [
        CoordinatorRecord(ShareGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        CoordinatorRecord(ShareGroupTargetAssignmentMemberKey(group_id, member_id), None),
        CoordinatorRecord(ShareGroupMemberMetadataKey(group_id, member_id), None),
    ]


def group_tombstones(group_id: str) -> list[CoordinatorRecord]:
    """Return the tombstones of a group whose members are already removed."""
    return [
        CoordinatorRecord(ShareGroupTargetAssignmentMetadataKey(group_id), None),
        CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group_id), None),
        CoordinatorRecord(ShareGroupMetadataKey(group_id), None),
    ]
