"""Committed offsets of one shard's groups: OffsetCommit, TxnOffsetCommit, OffsetFetch. `offset_removal` removes them.

Both kinds of groups use this. A commit without a member to an unknown group creates a so-called simple group. Offsets
of a transaction stay in `transactional_offsets` until it ends.
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
from moldau.coordinator.machine import (
    Client,
    CoordinatorRecord,
    MayUseTopic,
    Outcome,
    ProducerIdAndEpoch,
    any_topic,
    new_coordinator_record,
)
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

TOPIC_ID_MIN_VERSION: Final = 10
"""From this version on, OffsetCommit and OffsetFetch use topic ids."""
GROUP_NOT_FOUND_MIN_VERSION: Final = 9
"""Before this version, OffsetCommit responds with ILLEGAL_GENERATION instead of GROUP_ID_NOT_FOUND."""
NO_OFFSET: Final = -1
NO_RETENTION: Final = -1
NO_TIME: Final = -1
_UNUSABLE: Final = frozenset(
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
)
"""The error codes of partitions that do not exist or that the client may not use, whatever its group."""
_CODES_FOR_PRODUCERS: Final = {ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION}
"""Producers do not know member epochs and get another error code instead."""
Committed = dict[str, dict[int, OffsetCommitValue]]
"""The offsets of one group, by topic and partition."""
T = TypeVar("T", OffsetCommitResponseTopic, TxnOffsetCommitResponseTopic)


class Offsets:
    def __init__(self, state: GroupState, extend_session: Callable[[ClassicGroup, str], None]) -> None:
        self._state = state
        self._extend_session = extend_session
        """Called after a commit, which counts like a heartbeat."""

    # --- commit -------------------------------------------------------------------------------------------------

    def commit(
        self, request: OffsetCommitRequest, client: Client, may_read: MayUseTopic = any_topic
    ) -> Outcome[OffsetCommitResponse]:
        """Commit offsets. The member is checked only if it may read at least one of the partitions and that exists."""
        now_ms = self._state.clock.now_ms()
        expire_ms = NO_TIME if request.retention_time_ms == NO_RETENTION else now_ms + request.retention_time_ms
        records: list[CoordinatorRecord] = []
        partitions: list[tuple[Uuid, int]] = []
        topics = []
        group_id, is_usable = request.group_id, False
        for topic in request.topics:
            topic_id = topic.topic_id
            image, missing_code = self._find(topic_id, topic.name, client, may_read)
            count = 0 if image is None else len(image.partitions)
            results = []
            for partition in topic.partitions:
                index, metadata = partition.partition_index, partition.committed_metadata or ""
                if image is None or metadata or not 0 <= index < count:
                    code = self._error_code(partition, image, missing_code)
                    results.append(OffsetCommitResponsePartition(index, code))
                    is_usable = is_usable or code not in _UNUSABLE
                    if image is None or code:
                        continue
                else:
                    is_usable = True
                    results.append(OffsetCommitResponsePartition(index))
                partitions.append((image.id, index))
                value = OffsetCommitValue(
                    partition.committed_offset, partition.committed_leader_epoch, metadata, now_ms, expire_ms, topic_id
                )
                records.append(new_coordinator_record((OffsetCommitKey(group_id, image.name, index), value)))
            topics.append(OffsetCommitResponseTopic(topic_id, topic.name, results))
        if is_usable:
            try:
                self._check_committer(request, client, partitions)
            except KafkaError as error:
                return Outcome(OffsetCommitResponse(topics=_with_error(topics, error.code)))
        return Outcome(OffsetCommitResponse(topics=topics), records)

    def _error_code(
        self,
        partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
        topic: TopicImage | None,
        missing_code: ErrorCode,
    ) -> ErrorCode:
        if topic is None:
            return missing_code
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
            is_recent = client.version >= GROUP_NOT_FOUND_MIN_VERSION
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if is_recent else ErrorCode.ILLEGAL_GENERATION)
        check = group.check_commit(request.member_id, request.group_instance_id, epoch, client.version)
        if check is not None:
            for topic_id, index in partitions:
                check(topic_id, index)
        if isinstance(group, ClassicGroup) and request.member_id in group.members:
            self._extend_session(group, request.member_id)

    def transactional_commit(
        self, request: TxnOffsetCommitRequest, client: Client, may_read: MayUseTopic = any_topic
    ) -> Outcome[TxnOffsetCommitResponse]:
        """Like `commit`, but the offsets take effect when the transaction commits. The log checks on append whether the
        producer is fenced."""
        now_ms = self._state.clock.now_ms()
        records: list[CoordinatorRecord] = []
        partitions: list[tuple[Uuid, int]] = []
        topics = []
        for topic in request.topics:
            image, missing_code = self._find_by_name(topic.name, may_read)
            results = []
            for partition in topic.partitions:
                index = partition.partition_index
                code = self._error_code(partition, image, missing_code)
                results.append(TxnOffsetCommitResponsePartition(index, code))
                if image is not None and not code:
                    partitions.append((image.id, index))
                    value = _value(partition, ZERO_UUID, now_ms, NO_TIME)
                    records.append(CoordinatorRecord(OffsetCommitKey(request.group_id, topic.name, index), value))
            topics.append(TxnOffsetCommitResponseTopic(topic.name, results))
        if _is_any_usable(topics):
            try:
                self._check_sender(request, client, partitions)
            except KafkaError as error:
                code = _CODES_FOR_PRODUCERS.get(error.code, error.code)
                return Outcome(TxnOffsetCommitResponse(topics=_with_error(topics, code)))
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        return Outcome(TxnOffsetCommitResponse(topics=topics), records, producer=producer)

    def _check_sender(
        self, request: TxnOffsetCommitRequest, client: Client, partitions: list[tuple[Uuid, int]]
    ) -> None:
        """Check the member. Unlike OffsetCommit, this does not extend its session."""
        group = self._state.groups.get(request.group_id)
        if group is None:
            if request.generation_id < 0:
                return
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        member = (request.member_id, request.group_instance_id, request.generation_id)
        check = group.check_commit(*member, client.version, in_transaction=True)
        if check is not None:
            for topic_id, index in partitions:
                check(topic_id, index)

    def _find(
        self, topic_id: Uuid, name: str, client: Client, may_read: MayUseTopic
    ) -> tuple[TopicImage | None, ErrorCode]:
        """Return the topic, if the client may read it and it exists, and the error code for the case that not. A topic
        id is no secret: unlike with names, unknown and forbidden ids have different codes."""
        if client.version < TOPIC_ID_MIN_VERSION:
            return self._find_by_name(name, may_read)
        topic = self._state.current.image.topic_by_id(topic_id)
        if topic is None or may_read(topic.name):
            return topic, ErrorCode.UNKNOWN_TOPIC_ID
        return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def _find_by_name(self, name: str, may_read: MayUseTopic) -> tuple[TopicImage | None, ErrorCode]:
        if not may_read(name):
            return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return self._state.current.image.topics.get(name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    # --- fetch --------------------------------------------------------------------------------------------------

    def fetch(
        self,
        request: OffsetFetchRequestGroup,
        client: Client,
        require_stable: bool = False,
        may_describe: MayUseTopic = any_topic,
    ) -> Outcome[OffsetFetchResponseGroup]:
        """Return committed offsets. With `require_stable`, a partition whose offset an open transaction may change gets
        UNSTABLE_OFFSET_COMMIT instead of its last committed offset."""
        group = self._state.groups.get(request.group_id)
        if group is not None:
            group.check_fetch(request.member_id, request.member_epoch)
        committed = self._state.offsets.get(request.group_id, {})
        unstable = self._state.transactional_offsets.open_of(request.group_id) if require_stable else ()
        if request.topics is None:
            topics = list(self._fetch_all(committed, unstable, client, may_describe))
        else:
            topics = [self._fetch_topic(topic, committed, unstable, client, may_describe) for topic in request.topics]
        return Outcome(OffsetFetchResponseGroup(request.group_id, topics))

    def _fetch_all(
        self,
        committed: Committed,
        unstable: Collection[TopicAndPartition],
        client: Client,
        may_describe: MayUseTopic,
    ) -> Iterator[OffsetFetchResponseTopics]:
        """Yield all topics with committed offsets that the client may describe. A partition whose only commit is in an
        open transaction is left out."""
        for name, partitions in committed.items():
            if not may_describe(name):
                continue
            topic = self._state.current.image.topics.get(name)
            if client.version >= TOPIC_ID_MIN_VERSION and topic is None:
                continue  # the topic is deleted, so there is no topic id for the response
            topic_id = topic.id if topic is not None else ZERO_UUID
            results = [
                _unstable(index) if (name, index) in unstable else _fetched(index, value)
                for index, value in partitions.items()
            ]
            yield OffsetFetchResponseTopics(topic_id, name, results)

    def _fetch_topic(
        self,
        topic: OffsetFetchRequestTopics,
        committed: Committed,
        unstable: Collection[TopicAndPartition],
        client: Client,
        may_describe: MayUseTopic,
    ) -> OffsetFetchResponseTopics:
        name = topic.name
        if client.version >= TOPIC_ID_MIN_VERSION:
            image = self._state.current.image.topic_by_id(topic.topic_id)
            if image is None:
                return _fetch_error(topic, ErrorCode.UNKNOWN_TOPIC_ID)
            name = image.name
        if not may_describe(name):
            return _fetch_error(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partitions = committed.get(name, {})
        ids = (ZERO_UUID, topic.topic_id) if topic.topic_id != ZERO_UUID else None
        results = [
            _unstable(index) if (name, index) in unstable else _fetched(index, _of_topic(partitions.get(index), ids))
            for index in topic.partition_indexes
        ]
        return OffsetFetchResponseTopics(topic.topic_id, name, results)

    # --- removal ------------------------------------------------------------------------------------------------

    def delete(self, request: OffsetDeleteRequest, may_read: MayUseTopic = any_topic) -> Outcome[OffsetDeleteResponse]:
        return offset_removal.delete(self._state, request, may_read)

    # --- the log ------------------------------------------------------------------------------------------------

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        if value is None:
            self._remove(key)
            self._state.transactional_offsets.forget(key)
        else:
            self._put(key, value)
            if self._state.transactional_offsets.groups:
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
        group_id, state = key.group, self._state
        if group_id not in state.groups:
            state.groups[group_id] = ClassicGroup(group_id)
        topics = state.offsets.get(group_id)
        if topics is None:
            topics = state.offsets[group_id] = {}
        partitions = topics.get(key.topic)
        if partitions is None:
            partitions = topics[key.topic] = {}
        partitions[key.partition] = value

    def _remove(self, key: OffsetCommitKey) -> None:
        offsets = self._state.offsets
        topics = offsets.get(key.group, {})
        partitions = topics.get(key.topic, {})
        partitions.pop(key.partition, None)
        if not partitions:
            topics.pop(key.topic, None)
        if not topics:
            offsets.pop(key.group, None)


def _is_any_usable(topics: Sequence[OffsetCommitResponseTopic] | Sequence[TxnOffsetCommitResponseTopic]) -> bool:
    return any(each.error_code not in _UNUSABLE for topic in topics for each in topic.partitions)


def _with_error(topics: list[T], code: ErrorCode) -> list[T]:
    """Return the topics with `code` for all partitions that exist and that the client may use."""
    for topic in topics:
        for each in topic.partitions:
            if each.error_code not in _UNUSABLE:
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
    """Return the committed value, or None if it belongs to an earlier topic of the same name."""
    return None if value is not None and ids is not None and value.topic_id not in ids else value


def _fetched(
    index: int, value: OffsetCommitValue | None, code: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartitions:
    if value is None:
        return OffsetFetchResponsePartitions(index, NO_OFFSET, -1, "", code)
    return OffsetFetchResponsePartitions(index, value.offset, value.leader_epoch, value.metadata)


def _fetch_error(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    partitions = [_fetched(index, None, code) for index in topic.partition_indexes]
    return OffsetFetchResponseTopics(topic.topic_id, topic.name, partitions)


def _unstable(index: int) -> OffsetFetchResponsePartitions:
    return _fetched(index, None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
