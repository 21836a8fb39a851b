"""The start offsets of a share group as administrators set and delete them. They are in the states that the share
coordinators keep: here it is decided which states are made again or deleted, and written down that they were.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.coordinator.group.share import records
from moldau.coordinator.group.share.group import ShareGroup
from moldau.coordinator.group.share.heartbeat import find_share_group
from moldau.coordinator.group.share.initializing import BY_OFFSET_RESET, Initialization
from moldau.coordinator.group.share.member import PartitionsByTopicId
from moldau.coordinator.group.share.states import StatePartitions, TopicStates
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.machine import NOTHING, Outcome
from moldau.metadata.image import MetadataImage
from moldau.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from moldau.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsResponseTopic

UNKNOWN_TOPIC: Final = "This server does not host this topic-partition."
"""Kafka's words."""


class Deletion(NamedTuple):
    """States to delete, which the log has as deleting."""

    group_id: str
    partitions: PartitionsByTopicId


class Alteration(NamedTuple):
    topics: list[AlterShareGroupOffsetsResponseTopic]
    initialization: Initialization


class OffsetDeletion(NamedTuple):
    errors: list[DeleteShareGroupOffsetsResponseTopic]
    """The topics of which nothing can be deleted."""
    names: Mapping[Uuid, str]
    deletion: Deletion


def check_empty(group: ShareGroup) -> None:
    if not group.is_empty:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")


# --- the whole group ----------------------------------------------------------------------------------------------


def begin_group_deletion(state: GroupState, group: ShareGroup) -> Outcome[Deletion]:
    """Write down that all states of an empty group are deleted. Those that an earlier deletion could not delete are
    deleted, too."""
    check_empty(group)
    states, topics = group.states, {**group.states.initializing, **group.states.initialized}
    partitions = {
        topic_id: found.partitions | states.initializing[topic_id].partitions
        if topic_id in states.initializing
        else found.partitions
        for topic_id, found in topics.items()
    }
    for topic_id in states.deleting:
        topic = state.current.image.topic_by_id(topic_id)
        if topic is not None:
            partitions[topic_id] = frozenset(range(len(topic.partitions)))
    names = {topic_id: topic.name for topic_id, topic in topics.items()}
    left = {topic_id: name for topic_id, name in states.deleting.items() if topic_id in partitions}
    written = records.state_partitions(group.group_id, StatePartitions(deleting={**left, **names}))
    return Outcome(Deletion(group.group_id, partitions), [written])


# --- other offsets ------------------------------------------------------------------------------------------------


def alter(
    state: GroupState, group_id: str, topics: Sequence[AlterShareGroupOffsetsRequestTopic]
) -> Outcome[Alteration]:
    """Write down that states are made again, with the start offsets of the request. An unknown group is created."""
    known = state.groups.get(group_id)
    group = ShareGroup(group_id) if known is None else find_share_group(state, group_id)
    check_empty(group)
    results: list[AlterShareGroupOffsetsResponseTopic] = []
    start_offsets: dict[Uuid, dict[int, int]] = {}
    names: dict[Uuid, str] = {}
    for each in topics:
        topic = state.current.image.topics.get(each.topic_name)
        count = 0 if topic is None else len(topic.partitions)
        partitions = []
        for partition in each.partitions:
            error = _alteration_error(partition.partition_index, partition.start_offset, count)
            partitions.append(AlterShareGroupOffsetsResponsePartition(partition.partition_index, *error))
            if topic is not None and not error[0]:
                start_offsets.setdefault(topic.id, {})[partition.partition_index] = partition.start_offset
                names[topic.id] = topic.name
        results.append(
            AlterShareGroupOffsetsResponseTopic(each.topic_name, partitions=partitions)
            if topic is None
            else AlterShareGroupOffsetsResponseTopic(each.topic_name, topic.id, partitions)
        )
    now_ms = state.clock.monotonic_ms()
    altered = {
        topic_id: TopicStates(names[topic_id], frozenset(offsets), now_ms)
        for topic_id, offsets in start_offsets.items()
    }
    written = [records.state_partitions(group_id, group.states.with_initializing(altered))] if altered else []
    return Outcome(Alteration(results, Initialization(group_id, group.epoch, start_offsets)), written)


def _alteration_error(index: int, start_offset: int, count: int) -> tuple[ErrorCode, str | None]:
    if not 0 <= index < count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC
    if start_offset < BY_OFFSET_RESET:
        return ErrorCode.INVALID_REQUEST, f"start offset {start_offset}: expected 0 or more, or {BY_OFFSET_RESET}"
    return ErrorCode.NONE, None


def begin_offset_deletion(state: GroupState, group_id: str, names: Iterable[str]) -> Outcome[OffsetDeletion]:
    """Write down that the states of these topics are deleted."""
    group = find_share_group(state, group_id)
    check_empty(group)
    errors: list[DeleteShareGroupOffsetsResponseTopic] = []
    deleted: dict[Uuid, str] = {}
    partitions: dict[Uuid, frozenset[int]] = {}
    for name in dict.fromkeys(names):
        found = _states_of(group, name, state.current.image)
        if isinstance(found, str):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            errors.append(DeleteShareGroupOffsetsResponseTopic(name, error_code=code, error_message=found))
        else:
            topic_id, partitions[found[0]] = found
            deleted[topic_id] = name
    states = group.states.without_initialized(deleted).with_deleting(deleted)
    written = [records.state_partitions(group_id, states)] if deleted else []
    return Outcome(OffsetDeletion(errors, deleted, Deletion(group_id, partitions)), written)


def _states_of(group: ShareGroup, name: str, image: MetadataImage) -> tuple[Uuid, frozenset[int]] | str:
    """Return a topic's id with the partitions that have states, or why there are none."""
    topic = image.topics.get(name)
    if topic is None:
        return UNKNOWN_TOPIC
    if topic.id in group.states.initialized:
        return topic.id, group.states.initialized[topic.id].partitions
    if topic.id in group.states.deleting:
        return topic.id, frozenset(range(len(topic.partitions)))
    return "There is no offset information to delete."


def on_deleted(state: GroupState, group_id: str, topic_ids: Collection[Uuid]) -> Outcome[None]:
    """Write down that the states of topics are deleted."""
    group = state.groups.get(group_id)
    if not isinstance(group, ShareGroup) or not any(each in group.states.deleting for each in topic_ids):
        return NOTHING
    return Outcome(None, [records.state_partitions(group_id, group.states.without_deleting(topic_ids))])


def initialized_partitions(state: GroupState, group_id: str) -> dict[Uuid, frozenset[int]]:
    """Return the partitions that have a start offset; none for an unknown group, as in Kafka."""
    group = state.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        return {}
    return {topic_id: topic.partitions for topic_id, topic in group.states.initialized.items()}
