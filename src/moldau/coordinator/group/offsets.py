"""Committed offsets of one shard's groups: OffsetCommit, TxnOffsetCommit, OffsetFetch. `offset_removal` removes them.

Both kinds of groups use this. A commit without a member to an unknown group creates a so-called simple group. Offsets
of a transaction stay in `transactional_offsets` until it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import ZERO_UUID, Uuid
from moldau.base.steps import Steps, TurnItems
from moldau.coordinator.group import offset_fetch, offset_removal
from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.commit_draft import CommitDraft, T
from moldau.coordinator.group.offset_fetch import TOPIC_ID_MIN_VERSION
from moldau.coordinator.group.offset_removal import DeletionDraft
from moldau.coordinator.group.serde import (
    EMPTY_METADATA_LENGTH,
    VALUE_VERSION,
    key_prefix,
    pack_partition,
    pack_value,
    value_tags,
)
from moldau.coordinator.group.state import GroupState
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
from moldau.wire.log_records.offsets import OffsetCommitKey, OffsetCommitValue
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from moldau.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

GROUP_NOT_FOUND_MIN_VERSION: Final = 9
"""Before this version, OffsetCommit responds with ILLEGAL_GENERATION instead of GROUP_ID_NOT_FOUND."""
NO_RETENTION: Final = -1
NO_TIME: Final = -1
_UNUSABLE: Final = frozenset(
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
)
"""The error codes of partitions that do not exist or that the client may not use, whatever its group."""
_CODES_FOR_PRODUCERS: Final = {ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION}
"""Producers do not know member epochs and get another error code instead."""


class Offsets:
    def __init__(self, state: GroupState, extend_session: Callable[[ClassicGroup, str], None]) -> None:
        self._state = state
        self._extend_session = extend_session
        """Called after a commit, which counts like a heartbeat."""

    # --- commit -------------------------------------------------------------------------------------------------

    def commit(
        self,
        request: OffsetCommitRequest,
        client: Client,
        may_read: MayUseTopic = any_topic,
        draft: CommitDraft[OffsetCommitResponseTopic] | None = None,
    ) -> Outcome[OffsetCommitResponse]:
        """Commit offsets, all or nothing; a long request was drafted before. The member is checked only if it may read
        at least one of the partitions and that exists."""
        if draft is None:
            draft = CommitDraft()
            for topic in request.topics:
                self.draft_topic(draft, request, topic, topic.partitions, client, may_read)
        if draft.has_usable_partition:
            try:
                self._check_committer(request, client, draft.partitions)
            except KafkaError as error:
                return Outcome(OffsetCommitResponse(topics=_with_error(draft.topics, error.code)))
        return Outcome(OffsetCommitResponse(topics=draft.topics), draft.records, encoded=draft.encoded)

    def draft_topic(
        self,
        draft: CommitDraft[OffsetCommitResponseTopic],
        request: OffsetCommitRequest,
        topic: OffsetCommitRequestTopic,
        partitions: Sequence[OffsetCommitRequestPartition],
        client: Client,
        may_read: MayUseTopic,
    ) -> None:
        """Add some partitions of a topic to the draft of a commit."""
        now_ms = self._state.clock.now_ms()
        expire_ms = NO_TIME if request.retention_time_ms == NO_RETENTION else now_ms + request.retention_time_ms
        group_id, topic_id = request.group_id, topic.topic_id
        if client.version < TOPIC_ID_MIN_VERSION:
            image, missing_code = self._find_by_name(topic.name, may_read)
        else:
            image, missing_code = self._find_by_id(topic_id, may_read)
        count = 0 if image is None else len(image.partitions)
        results: list[OffsetCommitResponsePartition] = []
        records, known, encoded = draft.records, draft.partitions, draft.encoded
        prefix, tags = key_prefix(group_id, "" if image is None else image.name), value_tags(topic_id)
        for partition in partitions:
            index, metadata = partition.partition_index, partition.committed_metadata or ""
            if image is None or metadata or not 0 <= index < count:
                code = self._error_code(partition, image, missing_code)
                results.append(OffsetCommitResponsePartition(index, code))
                draft.has_usable_partition = draft.has_usable_partition or code not in _UNUSABLE
                if image is None or code:
                    continue
            else:
                draft.has_usable_partition = True
                results.append(OffsetCommitResponsePartition(index))
            known.append((image.id, index))
            offset, epoch = partition.committed_offset, partition.committed_leader_epoch
            value = OffsetCommitValue(offset, epoch, metadata, now_ms, expire_ms, topic_id)
            records.append(new_coordinator_record((OffsetCommitKey(group_id, image.name, index), value)))
            if encoded is not None and not metadata and expire_ms == NO_TIME:
                value_bytes = pack_value(VALUE_VERSION, offset, epoch, EMPTY_METADATA_LENGTH, now_ms) + tags
                encoded.append((prefix + pack_partition(index), value_bytes))
            else:
                draft.encode_new()
        draft.topics.append(OffsetCommitResponseTopic(topic_id, topic.name, results))

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
        self,
        request: TxnOffsetCommitRequest,
        client: Client,
        may_read: MayUseTopic = any_topic,
        draft: CommitDraft[TxnOffsetCommitResponseTopic] | None = None,
    ) -> Outcome[TxnOffsetCommitResponse]:
        """Like `commit`, but the offsets take effect when the transaction commits. The log checks on append whether the
        producer is fenced."""
        if draft is None:
            draft = CommitDraft()
            for topic in request.topics:
                self.draft_transactional_topic(draft, request, topic, topic.partitions, may_read)
        if draft.has_usable_partition:
            try:
                self._check_sender(request, client, draft.partitions)
            except KafkaError as error:
                code = _CODES_FOR_PRODUCERS.get(error.code, error.code)
                return Outcome(TxnOffsetCommitResponse(topics=_with_error(draft.topics, code)))
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        response = TxnOffsetCommitResponse(topics=draft.topics)
        return Outcome(response, draft.records, producer=producer, encoded=draft.encoded)

    def draft_transactional_topic(
        self,
        draft: CommitDraft[TxnOffsetCommitResponseTopic],
        request: TxnOffsetCommitRequest,
        topic: TxnOffsetCommitRequestTopic,
        partitions: Sequence[TxnOffsetCommitRequestPartition],
        may_read: MayUseTopic,
    ) -> None:
        """Add some partitions of a topic to the draft of a commit."""
        now_ms = self._state.clock.now_ms()
        image, missing_code = self._find_by_name(topic.name, may_read)
        results = []
        for partition in partitions:
            index = partition.partition_index
            code = self._error_code(partition, image, missing_code)
            results.append(TxnOffsetCommitResponsePartition(index, code))
            draft.has_usable_partition = draft.has_usable_partition or code not in _UNUSABLE
            if image is not None and not code:
                draft.partitions.append((image.id, index))
                value = _value(partition, ZERO_UUID, now_ms, NO_TIME)
                draft.records.append(CoordinatorRecord(OffsetCommitKey(request.group_id, topic.name, index), value))
        draft.encode_new()
        draft.topics.append(TxnOffsetCommitResponseTopic(topic.name, results))

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

    def _find_by_id(self, topic_id: Uuid, may_read: MayUseTopic) -> tuple[TopicImage | None, ErrorCode]:
        """Return the topic, if the client may read it and it exists, and the error code for the case that not. A topic
        id is no secret: unlike with names, unknown and forbidden ids have different codes."""
        topic = self._state.current.image.topic_by_id(topic_id)
        if topic is None or may_read(topic.name):
            return topic, ErrorCode.UNKNOWN_TOPIC_ID
        return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def _find_by_name(self, name: str, may_read: MayUseTopic) -> tuple[TopicImage | None, ErrorCode]:
        if may_read is not any_topic and not may_read(name):
            return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return self._state.current.image.topics.get(name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    # --- fetch --------------------------------------------------------------------------------------------------

    def fetch(
        self,
        request: OffsetFetchRequestGroup,
        client: Client,
        turn: TurnItems,
        require_stable: bool = False,
        may_describe: MayUseTopic = any_topic,
    ) -> Steps[OffsetFetchResponseGroup]:
        return offset_fetch.fetch(self._state, request, client, require_stable, may_describe, turn)

    # --- removal ------------------------------------------------------------------------------------------------

    def draft_deletion(
        self, request: OffsetDeleteRequest, turn: TurnItems, may_read: MayUseTopic = any_topic
    ) -> Steps[DeletionDraft]:
        return offset_removal.draft_deletion(self._state, request, may_read, turn)

    def delete(self, draft: DeletionDraft) -> Outcome[OffsetDeleteResponse]:
        return offset_removal.delete(self._state, draft)

    # --- the log ------------------------------------------------------------------------------------------------

    def apply_commit(self, records: Iterable[tuple[OffsetCommitKey, OffsetCommitValue]]) -> None:
        """Apply the records of a commit. Neighbours have the same group and topic, so their map is looked up once."""
        group_id = topic = None
        partitions: dict[int, OffsetCommitValue] = {}
        transactional = self._state.transactional_offsets
        for key, value in records:
            if key.group is not group_id or key.topic is not topic:
                group_id, topic = key.group, key.topic
                partitions = self._partitions(group_id, topic)
            partitions[key.partition] = value
            if transactional.groups:
                transactional.overtake(key)

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        if value is None:
            self._remove(key)
            self._state.transactional_offsets.forget(key)
        else:
            self.apply_commit(((key, value),))

    def apply_transactional(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        self._ensure_group(key.group)
        self._state.transactional_offsets.add(producer_id, key, value)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        for key, value in self._state.transactional_offsets.end(producer_id, committed):
            self._partitions(key.group, key.topic)[key.partition] = value

    def loaded(self) -> None:
        """Create simple groups for offsets whose group is not in the log: a classic group that replaces an empty
        consumer group has no record before its first rebalance ends."""
        for group_id in (*self._state.offsets, *self._state.transactional_offsets.groups):
            self._ensure_group(group_id)

    def _ensure_group(self, group_id: str) -> None:
        if group_id not in self._state.groups:
            self._state.groups[group_id] = ClassicGroup(group_id)

    def _partitions(self, group_id: str, topic: str) -> dict[int, OffsetCommitValue]:
        """Return the group's offsets of the topic, to be changed. An unknown group becomes a simple group."""
        self._ensure_group(group_id)
        return self._state.offsets.setdefault(group_id, {}).setdefault(topic, {})

    def _remove(self, key: OffsetCommitKey) -> None:
        offsets = self._state.offsets
        topics = offsets.get(key.group, {})
        partitions = topics.get(key.topic, {})
        partitions.pop(key.partition, None)
        if not partitions:
            topics.pop(key.topic, None)
        if not topics:
            offsets.pop(key.group, None)


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
