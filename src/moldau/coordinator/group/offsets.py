"""Committed offsets of one shard's groups: OffsetCommit, OffsetFetch, OffsetDelete, and what becomes of old ones.

Offsets are shared by both kinds of groups. A commit from nobody in particular makes a group of its own, called simple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import ZERO_UUID, Uuid
from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.records import OffsetCommitKey, OffsetCommitValue
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.machine import Client, CoordinatorRecord, Outcome
from moldau.metadata.image import MetadataImage, TopicImage
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from moldau.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

BY_TOPIC_ID_FROM: Final = 10
"""From this version on, OffsetCommit and OffsetFetch name topics by their id."""
GROUP_NOT_FOUND_FROM: Final = 9
NO_OFFSET: Final = -1
NO_RETENTION: Final = -1


class Offsets:
    def __init__(self, state: GroupState, heard_of: Callable[[ClassicGroup, str], None]) -> None:
        self._state = state
        self._heard_of = heard_of
        """A commit is a sign of life."""

    # --- commit -------------------------------------------------------------------------------------------------

    def commit(self, ask: OffsetCommitRequest, client: Client) -> Outcome[OffsetCommitResponse]:
        """Who commits matters only if there is something to commit: what does not exist is told so to anybody."""
        now_ms = self._state.clock.now_ms()
        expire_ms = NO_OFFSET if ask.retention_time_ms == NO_RETENTION else now_ms + ask.retention_time_ms
        taken: list[CoordinatorRecord] = []
        known: list[tuple[Uuid, int]] = []
        topics = []
        for topic in ask.topics:
            found, unknown = self._find(topic.topic_id, topic.name, client)
            done = []
            for partition in topic.partitions:
                index = partition.partition_index
                code = self._judged(partition, found, unknown)
                done.append(OffsetCommitResponsePartition(index, code))
                if found is not None and 0 <= index < len(found.partitions):
                    known.append((found.id, index))
                if found is not None and not code:
                    value = _value(partition, topic.topic_id, now_ms, expire_ms)
                    taken.append(CoordinatorRecord(OffsetCommitKey(ask.group_id, found.name, index), value))
            topics.append(OffsetCommitResponseTopic(topic.topic_id, topic.name, done))
        if known:
            self._check_committer(ask, client, known)
        return Outcome(OffsetCommitResponse(topics=topics), taken)

    def _judged(
        self, partition: OffsetCommitRequestPartition, topic: TopicImage | None, unknown: ErrorCode
    ) -> ErrorCode:
        if topic is None:
            return unknown
        if not 0 <= partition.partition_index < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        metadata = partition.committed_metadata
        if metadata and len(metadata) > self._state.settings.offset_metadata_bytes_max:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    def _check_committer(self, ask: OffsetCommitRequest, client: Client, partitions: list[tuple[Uuid, int]]) -> None:
        epoch = ask.generation_id_or_member_epoch
        group = self._state.groups.get(ask.group_id)
        if group is None:
            if epoch < 0:
                return
            missing = client.version >= GROUP_NOT_FOUND_FROM
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if missing else ErrorCode.ILLEGAL_GENERATION)
        check = group.check_commit(ask.member_id, ask.group_instance_id, epoch, client.version)
        if check is not None:
            for topic_id, index in partitions:
                check(topic_id, index)
        if isinstance(group, ClassicGroup) and ask.member_id in group.members:
            self._heard_of(group, ask.member_id)

    def _find(self, topic_id: Uuid, name: str, client: Client) -> tuple[TopicImage | None, ErrorCode]:
        """The topic, and what to say if there is none."""
        image = self._state.current.image
        if client.version >= BY_TOPIC_ID_FROM:
            return image.topic_by_id(topic_id), ErrorCode.UNKNOWN_TOPIC_ID
        return image.topics.get(name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    # --- fetch --------------------------------------------------------------------------------------------------

    def fetch(self, ask: OffsetFetchRequestGroup, client: Client) -> Outcome[OffsetFetchResponseGroup]:
        group = self._state.groups.get(ask.group_id)
        if group is not None:
            group.check_fetch(ask.member_id, ask.member_epoch)
        committed = self._state.offsets.get(ask.group_id, {})
        if ask.topics is None:
            topics = list(self._all(committed, client))
        else:
            topics = [self._named(topic, committed, client) for topic in ask.topics]
        return Outcome(OffsetFetchResponseGroup(ask.group_id, topics))

    def _all(
        self, committed: dict[str, dict[int, OffsetCommitValue]], client: Client
    ) -> Iterator[OffsetFetchResponseTopics]:
        for name, partitions in committed.items():
            topic = self._state.current.image.topics.get(name)
            if client.version >= BY_TOPIC_ID_FROM and topic is None:
                continue  # there is no id to tell it by
            topic_id = topic.id if topic is not None else ZERO_UUID
            found = [_fetched(index, value) for index, value in partitions.items()]
            yield OffsetFetchResponseTopics(topic_id, name, found)

    def _named(
        self, topic: OffsetFetchRequestTopics, committed: dict[str, dict[int, OffsetCommitValue]], client: Client
    ) -> OffsetFetchResponseTopics:
        name = topic.name
        if client.version >= BY_TOPIC_ID_FROM:
            known = self._state.current.image.topic_by_id(topic.topic_id)
            if known is None:
                unknown = [_fetched(index, None, ErrorCode.UNKNOWN_TOPIC_ID) for index in topic.partition_indexes]
                return OffsetFetchResponseTopics(topic.topic_id, "", unknown)
            name = known.name
        partitions = committed.get(name, {})
        meant = (ZERO_UUID, topic.topic_id) if topic.topic_id != ZERO_UUID else None
        found = [_fetched(index, _of_topic(partitions.get(index), meant)) for index in topic.partition_indexes]
        return OffsetFetchResponseTopics(topic.topic_id, name, found)

    # --- removal ------------------------------------------------------------------------------------------------

    def delete(self, ask: OffsetDeleteRequest) -> Outcome[OffsetDeleteResponse]:
        group = self._state.groups.get(ask.group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if isinstance(group, ClassicGroup) and not group.is_empty and not group.is_of_consumers:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        records: list[CoordinatorRecord] = []
        topics = [self._delete(group, topic, records) for topic in ask.topics]
        return Outcome(OffsetDeleteResponse(topics=topics), records)

    def _delete(
        self, group: Group, topic: OffsetDeleteRequestTopic, records: list[CoordinatorRecord]
    ) -> OffsetDeleteResponseTopic:
        image = self._state.current.image.topics.get(topic.name)
        there = range(len(image.partitions)) if image is not None else range(0)
        is_read = group.is_subscribed_to(topic.name)
        committed = self._state.offsets.get(group.group_id, {}).get(topic.name, {})
        done = []
        for index in (each.partition_index for each in topic.partitions):
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else ErrorCode.NONE
            if index not in there:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif index in committed and not is_read:
                records += _tombstones(group.group_id, topic.name, [index])
            done.append(OffsetDeleteResponsePartition(index, code))
        return OffsetDeleteResponseTopic(topic.name, done)

    def tombstones(self, group_id: str) -> list[CoordinatorRecord]:
        """All that a group ever committed."""
        committed = self._state.offsets.get(group_id, {})
        return [each for topic, partitions in committed.items() for each in _tombstones(group_id, topic, partitions)]

    def of_deleted_topics(self, removed: Sequence[TopicImage], image: MetadataImage) -> list[CoordinatorRecord]:
        """What was committed of topics that are no more. A name may be another topic's by now, as when all that ever
        befell the topics is read at once: then those go of which it is known that they were the old one's."""
        ids: dict[str, set[Uuid]] = {}
        for topic in removed:
            ids.setdefault(topic.name, set()).add(topic.id)
        return [
            tombstone
            for group_id, committed in self._state.offsets.items()
            for name in committed
            if name in ids
            for tombstone in _tombstones(
                group_id,
                name,
                [
                    index
                    for index, value in committed[name].items()
                    if name not in image.topics or value.topic_id in ids[name]
                ],
            )
        ]

    def expired(self, group: Group, now_ms: int) -> tuple[list[CoordinatorRecord], bool]:
        """The offsets of a group whose time has come, and whether none will be left. Those of a topic that went while
        nobody was here to hear of it go as well."""
        records: list[CoordinatorRecord] = []
        are_all = True
        for topic, partitions in self._state.offsets.get(group.group_id, {}).items():
            over: list[int] = []
            if topic not in self._state.current.image.topics:
                over = list(partitions)
            elif not group.is_subscribed_to(topic):
                over = [index for index, value in partitions.items() if self._is_over(group, value, now_ms)]
            records += _tombstones(group.group_id, topic, over)
            are_all = are_all and len(over) == len(partitions)
        return records, are_all

    def _is_over(self, group: Group, value: OffsetCommitValue, now_ms: int) -> bool:
        since_ms = group.offsets_expire_after_ms(value.commit_timestamp)
        if since_ms is None:
            return False
        if value.expire_timestamp >= 0:
            return now_ms >= value.expire_timestamp
        return now_ms - since_ms >= self._state.settings.offsets_retention_ms

    # --- the log ------------------------------------------------------------------------------------------------

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        groups, offsets = self._state.groups, self._state.offsets
        if value is not None:
            if key.group not in groups:
                groups[key.group] = ClassicGroup(key.group)
            of_group = offsets.get(key.group)
            if of_group is None:
                of_group = offsets[key.group] = {}
            of_topic = of_group.get(key.topic)
            if of_topic is None:
                of_topic = of_group[key.topic] = {}
            of_topic[key.partition] = value
            return
        of_group = offsets.get(key.group, {})
        of_topic = of_group.get(key.topic, {})
        of_topic.pop(key.partition, None)
        if not of_topic:
            of_group.pop(key.topic, None)
        if not of_group:
            offsets.pop(key.group, None)


def _value(partition: OffsetCommitRequestPartition, topic_id: bytes, now_ms: int, expire_ms: int) -> OffsetCommitValue:
    metadata = partition.committed_metadata or ""
    epoch = partition.committed_leader_epoch
    return OffsetCommitValue(partition.committed_offset, epoch, metadata, now_ms, expire_ms, topic_id)


def _of_topic(value: OffsetCommitValue | None, ids: tuple[Uuid, Uuid] | None) -> OffsetCommitValue | None:
    """What was committed, unless it was of an earlier topic of the same name."""
    return None if value is not None and ids is not None and value.topic_id not in ids else value


def _fetched(
    index: int, value: OffsetCommitValue | None, code: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartitions:
    if value is None:
        return OffsetFetchResponsePartitions(index, NO_OFFSET, -1, "", code)
    return OffsetFetchResponsePartitions(index, value.offset, value.leader_epoch, value.metadata)


def _tombstones(group_id: str, topic: str, partitions: Iterable[int]) -> list[CoordinatorRecord]:
    return [CoordinatorRecord(OffsetCommitKey(group_id, topic, index), None) for index in partitions]
