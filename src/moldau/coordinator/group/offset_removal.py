"""What takes committed offsets back out of the log: OffsetDelete, a group or a topic that is deleted, and time.

A tombstone takes what open transactions would have committed as well. Only time spares those partitions, and their
groups: the transaction may be the sign of life that was missing.
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
from moldau.coordinator.machine import CoordinatorRecord, Outcome
from moldau.metadata.image import MetadataImage, TopicImage
from moldau.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def delete(state: GroupState, request: OffsetDeleteRequest) -> Outcome[OffsetDeleteResponse]:
    group = state.groups.get(request.group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    if isinstance(group, ClassicGroup) and not group.is_empty and not group.is_of_consumers:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    records: list[CoordinatorRecord] = []
    topics = [_delete(state, group, topic, records) for topic in request.topics]
    return Outcome(OffsetDeleteResponse(topics=topics), records)


def _delete(
    state: GroupState, group: Group, topic: OffsetDeleteRequestTopic, records: list[CoordinatorRecord]
) -> OffsetDeleteResponseTopic:
    image = state.current.image.topics.get(topic.name)
    there = range(len(image.partitions)) if image is not None else range(0)
    is_read = group.is_subscribed_to(topic.name)
    committed = state.offsets.get(group.group_id, {}).get(topic.name, {})
    unstable = state.transactional_offsets.open_of(group.group_id)
    done = []
    for index in (each.partition_index for each in topic.partitions):
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else ErrorCode.NONE
        if index not in there:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif not is_read and (index in committed or (topic.name, index) in unstable):
            records += _tombstones(group.group_id, [(topic.name, index)])
        done.append(OffsetDeleteResponsePartition(index, code))
    return OffsetDeleteResponseTopic(topic.name, done)


def of_deleted_group(state: GroupState, group_id: str) -> list[CoordinatorRecord]:
    """All that it ever committed, or would have."""
    committed = state.offsets.get(group_id, {})
    found = {(topic, index): None for topic, partitions in committed.items() for index in partitions}
    found |= dict.fromkeys(state.transactional_offsets.open_of(group_id))
    return _tombstones(group_id, found)


def of_deleted_topics(
    state: GroupState, removed: Sequence[TopicImage], image: MetadataImage
) -> list[CoordinatorRecord]:
    """What was committed of topics that are no more. A name may be another topic's by now, as when all that ever
    befell the topics is read at once: then those go of which it is known that they were the old one's."""
    ids: dict[str, set[Uuid]] = {}
    for topic in removed:
        ids.setdefault(topic.name, set()).add(topic.id)

    def is_gone(name: str, value: OffsetCommitValue | None) -> bool:
        return name not in image.topics or (value is not None and value.topic_id in ids[name])

    found: dict[str, dict[TopicAndPartition, None]] = {}
    for group_id, committed in state.offsets.items():
        for name in [name for name in committed if name in ids]:
            gone = [(name, index) for index, value in committed[name].items() if is_gone(name, value)]
            found.setdefault(group_id, {}).update(dict.fromkeys(gone))
    for group_id, partition, value in state.transactional_offsets:
        if partition[0] in ids and is_gone(partition[0], value):
            found.setdefault(group_id, {})[partition] = None
    return [tombstone for group_id, partitions in found.items() for tombstone in _tombstones(group_id, partitions)]


def expired(state: GroupState, group: Group, now_ms: int) -> tuple[list[CoordinatorRecord], bool]:
    """The offsets of a group whose time has come, and whether none will be left. Those of a topic that went while
    nobody was here to hear of it go as well."""
    topics = state.current.image.topics
    unstable = state.transactional_offsets.open_of(group.group_id)
    kept = [partition for partition in unstable if partition[0] in topics]
    over = {partition: None for partition in unstable if partition[0] not in topics}
    for topic, partitions in state.offsets.get(group.group_id, {}).items():
        is_gone, is_read = topic not in topics, group.is_subscribed_to(topic)
        for index, value in partitions.items():
            is_held = is_read or (topic, index) in unstable
            if is_gone or (not is_held and _is_over(state, group, value, now_ms)):
                over[topic, index] = None
            else:
                kept.append((topic, index))
    return _tombstones(group.group_id, over), not kept


def _is_over(state: GroupState, group: Group, value: OffsetCommitValue, now_ms: int) -> bool:
    since_ms = group.offsets_expire_after_ms(value.commit_timestamp)
    if since_ms is None:
        return False
    if value.expire_timestamp >= 0:
        return now_ms >= value.expire_timestamp
    return now_ms - since_ms >= state.settings.offsets_retention_ms


def _tombstones(group_id: str, partitions: Iterable[TopicAndPartition]) -> list[CoordinatorRecord]:
    return [CoordinatorRecord(OffsetCommitKey(group_id, topic, index), None) for topic, index in partitions]
