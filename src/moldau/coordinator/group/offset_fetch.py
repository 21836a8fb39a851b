"""Reads committed offsets: OffsetFetch."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from moldau.base.errors import ErrorCode
from moldau.base.ids import ZERO_UUID, Uuid
from moldau.coordinator.group.records import OffsetCommitValue
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.group.transactional_offsets import TopicAndPartition
from moldau.coordinator.machine import Client, MayUseTopic
from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

TOPIC_ID_MIN_VERSION: Final = 10
"""From this version on, OffsetCommit and OffsetFetch use topic ids."""
NO_OFFSET: Final = -1
Committed = dict[str, dict[int, OffsetCommitValue]]
"""The offsets of one group, by topic and partition."""


def fetch(
    state: GroupState,
    request: OffsetFetchRequestGroup,
    client: Client,
    require_stable: bool,
    may_describe: MayUseTopic,
) -> OffsetFetchResponseGroup:
    """Return committed offsets. With `require_stable`, a partition whose offset an open transaction may change gets
    UNSTABLE_OFFSET_COMMIT instead of its last committed offset."""
    group = state.groups.get(request.group_id)
    if group is not None:
        group.check_fetch(request.member_id, request.member_epoch)
    committed = state.offsets.get(request.group_id, {})
    unstable = state.transactional_offsets.open_of(request.group_id) if require_stable else ()
    if request.topics is None:
        topics = list(_fetch_all(state, committed, unstable, client, may_describe))
    else:
        topics = [_fetch_topic(state, topic, committed, unstable, client, may_describe) for topic in request.topics]
    return OffsetFetchResponseGroup(request.group_id, topics)


def _fetch_all(
    state: GroupState,
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
        topic = state.current.image.topics.get(name)
        if client.version >= TOPIC_ID_MIN_VERSION and topic is None:
            continue  # the topic is deleted, so there is no topic id for the response
        topic_id = topic.id if topic is not None else ZERO_UUID
        results = [
            _unstable(index) if (name, index) in unstable else _fetched(index, value)
            for index, value in partitions.items()
        ]
        yield OffsetFetchResponseTopics(topic_id, name, results)


def _fetch_topic(
    state: GroupState,
    topic: OffsetFetchRequestTopics,
    committed: Committed,
    unstable: Collection[TopicAndPartition],
    client: Client,
    may_describe: MayUseTopic,
) -> OffsetFetchResponseTopics:
    name = topic.name
    if client.version >= TOPIC_ID_MIN_VERSION:
        image = state.current.image.topic_by_id(topic.topic_id)
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
