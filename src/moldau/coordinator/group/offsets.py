"""Committed offsets of one shard's groups: OffsetCommit, TxnOffsetCommit, OffsetFetch. What removes them is in
`offset_removal`.

Offsets are shared by both kinds of groups. A commit from nobody in particular makes a group of its own, called simple.
What is committed in a transaction waits in `transactional_offsets` for its end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, TypeVar

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import ZERO_UUID, Uuid
from moldau.coordinator.group import offset_removal
from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.records import OffsetCommitKey, OffsetCommitValue
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.group.transactional_offsets import TopicAndPartition
from moldau.coordinator.machine import Client, CoordinatorRecord, Outcome, ProducerIdAndEpoch
from moldau.metadata.image import TopicImage
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from moldau.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

BY_TOPIC_ID_FROM: Final = 10
"""From this version on, OffsetCommit and OffsetFetch name topics by their id."""
GROUP_NOT_FOUND_FROM: Final = 9
NO_OFFSET: Final = -1
NO_RETENTION: Final = -1
NO_TIME: Final = -1
_UNKNOWN: Final = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID))
_TOLD_TO_PRODUCERS: Final = {ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION}
"""What producers, who know nothing of epochs of members, are told instead."""
Committed = dict[str, dict[int, OffsetCommitValue]]
"""By a group, by topic and partition."""
T = TypeVar("T", OffsetCommitResponseTopic, TxnOffsetCommitResponseTopic)


class Offsets:
    def __init__(self, state: GroupState, heard_of: Callable[[ClassicGroup, str], None]) -> None:
        self._state = state
        self._heard_of = heard_of
        """A commit is a sign of life."""

    # --- commit -------------------------------------------------------------------------------------------------

    def commit(self, request: OffsetCommitRequest, client: Client) -> Outcome[OffsetCommitResponse]:
        """Who commits matters only for what there is: that a partition does not exist is told to anybody."""
        now_ms = self._state.clock.now_ms()
        expire_ms = NO_TIME if request.retention_time_ms == NO_RETENTION else now_ms + request.retention_time_ms
        taken: list[CoordinatorRecord] = []
        partitions: list[tuple[Uuid, int]] = []
        topics = []
        for topic in request.topics:
            found, unknown = self._find(topic.topic_id, topic.name, client)
            done = []
            for partition in topic.partitions:
                index = partition.partition_index
                code = self._judged(partition, found, unknown)
                done.append(OffsetCommitResponsePartition(index, code))
                if found is not None and not code:
                    partitions.append((found.id, index))
                    value = _value(partition, topic.topic_id, now_ms, expire_ms)
                    taken.append(CoordinatorRecord(OffsetCommitKey(request.group_id, found.name, index), value))
            topics.append(OffsetCommitResponseTopic(topic.topic_id, topic.name, done))
        if _is_any_known(topics):
            try:
                self._check_committer(request, client, partitions)
            except KafkaError as refused:
                return Outcome(OffsetCommitResponse(topics=_refused(topics, refused.code)))
        return Outcome(OffsetCommitResponse(topics=topics), taken)

    def _judged(
        self,
        partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
        topic: TopicImage | None,
        unknown: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ) -> ErrorCode:
        if topic is None:
            return unknown
        if not 0 <= partition.partition_index < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        metadata = partition.committed_metadata
        if metadata and len(metadata) > self._state.settings.offset_metadata_bytes_max:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    def _check_committer(
        self, request: OffsetCommitRequest, client: Client, partitions: list[tuple[Uuid, int]]
    ) -> None:
        epoch = request.generation_id_or_member_epoch
        group = self._state.groups.get(request.group_id)
        if group is None:
            if epoch < 0:
                return
            missing = client.version >= GROUP_NOT_FOUND_FROM
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if missing else ErrorCode.ILLEGAL_GENERATION)
        check = group.check_commit(request.member_id, request.group_instance_id, epoch, client.version)
        if check is not None:
            for topic_id, index in partitions:
                check(topic_id, index)
        if isinstance(group, ClassicGroup) and request.member_id in group.members:
            self._heard_of(group, request.member_id)

    def transactional_commit(self, request: TxnOffsetCommitRequest, client: Client) -> Outcome[TxnOffsetCommitResponse]:
        """As `commit`, but nothing is committed until the transaction is. Whether the producer may still write is for
        the log to say."""
        now_ms = self._state.clock.now_ms()
        taken: list[CoordinatorRecord] = []
        partitions: list[tuple[Uuid, int]] = []
        topics = []
        for topic in request.topics:
            found = self._state.current.image.topics.get(topic.name)
            done = []
            for partition in topic.partitions:
                index = partition.partition_index
                code = self._judged(partition, found)
                done.append(TxnOffsetCommitResponsePartition(index, code))
                if found is not None and not code:
                    partitions.append((found.id, index))
                    value = _value(partition, ZERO_UUID, now_ms, NO_TIME)
                    taken.append(CoordinatorRecord(OffsetCommitKey(request.group_id, topic.name, index), value))
            topics.append(TxnOffsetCommitResponseTopic(topic.name, done))
        if _is_any_known(topics):
            try:
                self._check_sender(request, client, partitions)
            except KafkaError as refused:
                code = _TOLD_TO_PRODUCERS.get(refused.code, refused.code)
                return Outcome(TxnOffsetCommitResponse(topics=_refused(topics, code)))
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        return Outcome(TxnOffsetCommitResponse(topics=topics), taken, producer=producer)

    def _check_sender(
        self, request: TxnOffsetCommitRequest, client: Client, partitions: list[tuple[Uuid, int]]
    ) -> None:
        """Unlike a commit of the member's own, this is no sign of its life."""
        group = self._state.groups.get(request.group_id)
        if group is None:
            if request.generation_id < 0:
                return
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        who = (request.member_id, request.group_instance_id, request.generation_id)
        check = group.check_commit(*who, client.version, in_transaction=True)
        if check is not None:
            for topic_id, index in partitions:
                check(topic_id, index)

    def _find(self, topic_id: Uuid, name: str, client: Client) -> tuple[TopicImage | None, ErrorCode]:
        """The topic, and what to say if there is none."""
        image = self._state.current.image
        if client.version >= BY_TOPIC_ID_FROM:
            return image.topic_by_id(topic_id), ErrorCode.UNKNOWN_TOPIC_ID
        return image.topics.get(name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    # --- fetch --------------------------------------------------------------------------------------------------

    def fetch(
        self, request: OffsetFetchRequestGroup, client: Client, require_stable: bool = False
    ) -> Outcome[OffsetFetchResponseGroup]:
        """Whoever requires stable offsets is not told what an open transaction may change; others are told what was
        committed last."""
        group = self._state.groups.get(request.group_id)
        if group is not None:
            group.check_fetch(request.member_id, request.member_epoch)
        committed = self._state.offsets.get(request.group_id, {})
        unstable = self._state.transactional_offsets.open_of(request.group_id) if require_stable else ()
        if request.topics is None:
            topics = list(self._all(committed, unstable, client))
        else:
            topics = [self._named(topic, committed, unstable, client) for topic in request.topics]
        return Outcome(OffsetFetchResponseGroup(request.group_id, topics))

    def _all(
        self, committed: Committed, unstable: Collection[TopicAndPartition], client: Client
    ) -> Iterator[OffsetFetchResponseTopics]:
        """Also of what is unstable only that is told of which something is committed."""
        for name, partitions in committed.items():
            topic = self._state.current.image.topics.get(name)
            if client.version >= BY_TOPIC_ID_FROM and topic is None:
                continue  # there is no id to tell it by
            topic_id = topic.id if topic is not None else ZERO_UUID
            found = [
                _unstable(index) if (name, index) in unstable else _fetched(index, value)
                for index, value in partitions.items()
            ]
            yield OffsetFetchResponseTopics(topic_id, name, found)

    def _named(
        self,
        topic: OffsetFetchRequestTopics,
        committed: Committed,
        unstable: Collection[TopicAndPartition],
        client: Client,
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
        found = [
            _unstable(index) if (name, index) in unstable else _fetched(index, _of_topic(partitions.get(index), meant))
            for index in topic.partition_indexes
        ]
        return OffsetFetchResponseTopics(topic.topic_id, name, found)

    # --- removal ------------------------------------------------------------------------------------------------

    def delete(self, request: OffsetDeleteRequest) -> Outcome[OffsetDeleteResponse]:
        return offset_removal.delete(self._state, request)

    # --- the log ------------------------------------------------------------------------------------------------

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        if value is None:
            self._remove(key)
            self._state.transactional_offsets.forget(key)
        else:
            self._put(key, value)
            self._state.transactional_offsets.overtake(key)

    def apply_transactional(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        self._ensure_group(key.group)
        self._state.transactional_offsets.add(producer_id, key, value)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        for key, value in self._state.transactional_offsets.end(producer_id, committed):
            self._put(key, value)

    def _ensure_group(self, group_id: str) -> None:
        if group_id not in self._state.groups:
            self._state.groups[group_id] = ClassicGroup(group_id)

    def _put(self, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        self._ensure_group(key.group)
        offsets = self._state.offsets
        of_group = offsets.get(key.group)
        if of_group is None:
            of_group = offsets[key.group] = {}
        of_topic = of_group.get(key.topic)
        if of_topic is None:
            of_topic = of_group[key.topic] = {}
        of_topic[key.partition] = value

    def _remove(self, key: OffsetCommitKey) -> None:
        offsets = self._state.offsets
        of_group = offsets.get(key.group, {})
        of_topic = of_group.get(key.topic, {})
        of_topic.pop(key.partition, None)
        if not of_topic:
            of_group.pop(key.topic, None)
        if not of_group:
            offsets.pop(key.group, None)


def _is_any_known(topics: Sequence[OffsetCommitResponseTopic] | Sequence[TxnOffsetCommitResponseTopic]) -> bool:
    return any(each.error_code not in _UNKNOWN for topic in topics for each in topic.partitions)


def _refused(topics: list[T], code: ErrorCode) -> list[T]:
    """For all partitions that there are."""
    for topic in topics:
        for each in topic.partitions:
            if each.error_code not in _UNKNOWN:
                each.error_code = code
    return topics


def _value(
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    topic_id: bytes,
    now_ms: int,
    expire_ms: int,
) -> OffsetCommitValue:
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


def _unstable(index: int) -> OffsetFetchResponsePartitions:
    return _fetched(index, None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
