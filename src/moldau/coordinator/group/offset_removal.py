"""Removes committed offsets from the log: OffsetDelete, a deleted group or topic, and expiration.

A tombstone also removes what open transactions would have committed. Only expiration keeps such partitions and their
groups: the open transaction shows that the group is still in use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.records import OffsetCommitKey, OffsetCommitValue
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.group.transactional_offsets import TopicAndPartition
from moldau.coordinator.machine import CoordinatorRecord, MayUseTopic, Outcome, any_topic
from moldau.metadata.image import MetadataImage, TopicImage
from moldau.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def delete(
    state: GroupState, request: OffsetDeleteRequest, may_read: MayUseTopic = any_topic
) -> Outcome[OffsetDeleteResponse]:
    """Delete offsets. If the client may read none of the topics, it does not learn whether the group exists."""
    allowed = {topic.name for topic in request.topics if may_read(topic.name)}
    if request.topics and not allowed:
        return Outcome(OffsetDeleteResponse(topics=[_denied(topic) for topic in request.topics]))
    group = state.groups.get(request.group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    if isinstance(group, ClassicGroup) and not group.is_empty and not group.is_of_consumers:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    records: list[CoordinatorRecord] = []
    topics = [
        _delete(state, group, topic, records) if topic.name in allowed else _denied(topic) for topic in request.topics
    ]
    return Outcome(OffsetDeleteResponse(topics=topics), records)


def _delete(
    state: GroupState, group: Group, topic: OffsetDeleteRequestTopic, records: list[CoordinatorRecord]
) -> OffsetDeleteResponseTopic:
    image = state.current.image.topics.get(topic.name)
    existing = range(len(image.partitions)) if image is not None else range(0)
    is_read = group.is_subscribed_to(topic.name)
    committed = state.offsets.get(group.group_id, {}).get(topic.name, {})
    unstable = state.transactional_offsets.open_of(group.group_id)
    results = []
    for index in (partition.partition_index for partition in topic.partitions):
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else ErrorCode.NONE
        if index not in existing:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif not is_read and (index in committed or (topic.name, index) in unstable):
            records += _tombstones(group.group_id, [(topic.name, index)])
        results.append(OffsetDeleteResponsePartition(index, code))
    return OffsetDeleteResponseTopic(topic.name, results)


def _denied(topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return OffsetDeleteResponseTopic(
        topic.name, [OffsetDeleteResponsePartition(each.partition_index, code) for each in topic.partitions]
    )


def of_deleted_group(state: GroupState, group_id: str) -> list[CoordinatorRecord]:
    """Return tombstones for all offsets that the group committed, also those in open transactions."""
    committed = state.offsets.get(group_id, {})
    partitions = {(topic, index): None for topic, indexes in committed.items() for index in indexes}
    partitions |= dict.fromkeys(state.transactional_offsets.open_of(group_id))
    return _tombstones(group_id, partitions)


def of_deleted_topics(
    state: GroupState, removed: Sequence[TopicImage], image: MetadataImage
) -> list[CoordinatorRecord]:
    """Return tombstones for the offsets of deleted topics. By now a new topic may have the same name, for example when
    many changes are read at once: then only offsets with the old topic's id are removed."""
    ids: dict[str, set[Uuid]] = {}
    for topic in removed:
        ids.setdefault(topic.name, set()).add(topic.id)

    def is_deleted(name: str, value: OffsetCommitValue | None) -> bool:
        return name not in image.topics or (value is not None and value.topic_id in ids[name])

    removals: dict[str, dict[TopicAndPartition, None]] = {}
    for group_id, committed in state.offsets.items():
        for name in [name for name in committed if name in ids]:
            deleted = [(name, index) for index, value in committed[name].items() if is_deleted(name, value)]
            removals.setdefault(group_id, {}).update(dict.fromkeys(deleted))
    for group_id, partition, value in state.transactional_offsets:
        if partition[0] in ids and is_deleted(partition[0], value):
            removals.setdefault(group_id, {})[partition] = None
    return [tombstone for group_id, partitions in removals.items() for tombstone in _tombstones(group_id, partitions)]


def of_expired(state: GroupState, group: Group, now_ms: int) -> tuple[list[CoordinatorRecord], bool]:
    """Return tombstones for the expired offsets of a group, and whether no offset will remain. Offsets of topics that
    were deleted while no coordinator was loaded are removed as well."""
    topics = state.current.image.topics
    unstable = state.transactional_offsets.open_of(group.group_id)
    remaining = [partition for partition in unstable if partition[0] in topics]
    expired = {partition: None for partition in unstable if partition[0] not in topics}
    for topic, partitions in state.offsets.get(group.group_id, {}).items():
        is_deleted, is_read = topic not in topics, group.is_subscribed_to(topic)
        for index, value in partitions.items():
            is_in_use = is_read or (topic, index) in unstable
            if is_deleted or (not is_in_use and _is_expired(state, group, value, now_ms)):
                expired[topic, index] = None
            else:
                remaining.append((topic, index))
    return _tombstones(group.group_id, expired), not remaining


def _is_expired(state: GroupState, group: Group, value: OffsetCommitValue, now_ms: int) -> bool:
    since_ms = group.offsets_expire_after_ms(value.commit_timestamp)
    if since_ms is None:
        return False
    if value.expire_timestamp >= 0:
        return now_ms >= value.expire_timestamp
    return now_ms - since_ms >= state.settings.offsets_retention_ms


def _tombstones(group_id: str, partitions: Iterable[TopicAndPartition]) -> list[CoordinatorRecord]:
    return [CoordinatorRecord(OffsetCommitKey(group_id, topic, index), None) for topic, index in partitions]
