"""Committed offsets of one shard's groups: OffsetCommit, OffsetFetch, OffsetDelete, and what becomes of old ones.

Offsets are shared by both kinds of groups. A commit from nobody in particular makes a group of its own, called simple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import ZERO_UUID
from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.records import OffsetCommitKey, OffsetCommitValue
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.machine import Client, CoordinatorRecord, Outcome
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
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
CheckPartition = Callable[[str, int], None]


class Offsets:
    def __init__(self, state: GroupState, heard_of: Callable[[ClassicGroup, str], None]) -> None:
        self._state = state
        self._heard_of = heard_of
        """A commit is a sign of life."""

    # --- commit -------------------------------------------------------------------------------------------------

    def commit(self, ask: OffsetCommitRequest, client: Client) -> Outcome[OffsetCommitResponse]:
        check = self._check_commit(ask, client)
        now_ms = self._state.clock.now_ms()
        expire_ms = NO_OFFSET if ask.retention_time_ms == NO_RETENTION else now_ms + ask.retention_time_ms
        records: list[CoordinatorRecord] = []
        topics = [self._commit(ask.group_id, topic, client, now_ms, expire_ms, check, records) for topic in ask.topics]
        return Outcome(OffsetCommitResponse(topics=topics), records)

    def _check_commit(self, ask: OffsetCommitRequest, client: Client) -> CheckPartition | None:
        epoch = ask.generation_id_or_member_epoch
        group = self._state.groups.get(ask.group_id)
        if group is None:
            if epoch < 0:
                return None
            missing = client.version >= GROUP_NOT_FOUND_FROM
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if missing else ErrorCode.ILLEGAL_GENERATION)
        check = group.check_commit(ask.member_id, ask.group_instance_id, epoch, client.version)
        if isinstance(group, ClassicGroup) and ask.member_id in group.members:
            self._heard_of(group, ask.member_id)
        return check

    def _commit(
        self,
        group_id: str,
        topic: OffsetCommitRequestTopic,
        client: Client,
        now_ms: int,
        expire_ms: int,
        check: CheckPartition | None,
        records: list[CoordinatorRecord],
    ) -> OffsetCommitResponseTopic:
        answer = OffsetCommitResponseTopic(topic.topic_id, topic.name)
        try:
            name = self._name(topic.topic_id, topic.name, client)
        except KafkaError as unknown:
            answer.partitions = [
                OffsetCommitResponsePartition(each.partition_index, unknown.code) for each in topic.partitions
            ]
            return answer
        done = []
        for partition in topic.partitions:
            if self._is_too_long(partition.committed_metadata):
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                code = ErrorCode.NONE
                if check is not None:
                    check(name, partition.partition_index)
                key = OffsetCommitKey(group_id, name, partition.partition_index)
                records.append(CoordinatorRecord(key, _value(partition, topic.topic_id, now_ms, expire_ms)))
            done.append(OffsetCommitResponsePartition(partition.partition_index, code))
        answer.partitions = done
        return answer

    def _is_too_long(self, metadata: str | None) -> bool:
        return metadata is not None and len(metadata) > self._state.settings.offset_metadata_bytes_max

    def _name(self, topic_id: bytes, name: str, client: Client) -> str:
        image = self._state.current.image
        if client.version >= BY_TOPIC_ID_FROM:
            topic = image.topic_by_id(topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            return topic.name
        if name not in image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return name

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
        found = [_fetched(index, partitions.get(index)) for index in topic.partition_indexes]
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
        code = ErrorCode.NONE
        if topic.name not in self._state.current.image.topics:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif group.is_subscribed_to(topic.name):
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        else:
            known = self._state.offsets.get(group.group_id, {}).get(topic.name, {})
            indexes = [each.partition_index for each in topic.partitions if each.partition_index in known]
            records += _tombstones(group.group_id, topic.name, indexes)
        done = [OffsetDeleteResponsePartition(each.partition_index, code) for each in topic.partitions]
        return OffsetDeleteResponseTopic(topic.name, done)

    def tombstones(self, group_id: str) -> list[CoordinatorRecord]:
        """All that a group ever committed."""
        committed = self._state.offsets.get(group_id, {})
        return [each for topic, partitions in committed.items() for each in _tombstones(group_id, topic, partitions)]

    def of_deleted_topics(self, topics: Sequence[str]) -> list[CoordinatorRecord]:
        return [
            tombstone
            for group_id, committed in self._state.offsets.items()
            for topic in topics
            if topic in committed
            for tombstone in _tombstones(group_id, topic, committed[topic])
        ]

    def expired(self, group: Group, now_ms: int) -> tuple[list[CoordinatorRecord], bool]:
        """The offsets of a group whose time has come, and whether none will be left."""
        records: list[CoordinatorRecord] = []
        are_all = True
        for topic, partitions in self._state.offsets.get(group.group_id, {}).items():
            over: list[int] = []
            if not group.is_subscribed_to(topic):
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


def _fetched(
    index: int, value: OffsetCommitValue | None, code: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartitions:
    if value is None:
        return OffsetFetchResponsePartitions(index, NO_OFFSET, -1, "", code)
    return OffsetFetchResponsePartitions(index, value.offset, value.leader_epoch, value.metadata)


def _tombstones(group_id: str, topic: str, partitions: Iterable[int]) -> list[CoordinatorRecord]:
    return [CoordinatorRecord(OffsetCommitKey(group_id, topic, index), None) for index in partitions]
