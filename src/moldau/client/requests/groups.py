"""OffsetFetch, and OffsetCommit of groups without members, which the coordinator of a group answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition, by_topic
from moldau.client.admin.group_values import Committed, CommittedOffsets
from moldau.client.requests.ask import raise_error
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from moldau.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse

OFFSET_FETCH_VERSIONS: Final = (8, 9)
"""OffsetFetch has several groups in one request from version 8 on, and topic ids instead of names from version 10 on.
Names are needed, because committed offsets outlive the ids of topics."""
OFFSET_COMMIT_VERSIONS: Final = (2, 9)
"""OffsetCommit has topic ids instead of names from version 10 on."""


def find_coordinator_request(key_type: int, keys: Sequence[str]) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)


def offset_fetch_request(group_ids: Sequence[str]) -> OffsetFetchRequest:
    """All committed offsets of these groups."""
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=each, topics=None) for each in group_ids])


def fetched_offsets(response: OffsetFetchResponse) -> dict[str, CommittedOffsets | KafkaError]:
    """Return the committed offsets of each group, or its error."""
    offsets: dict[str, CommittedOffsets | KafkaError] = {}
    for group in response.groups:
        if group.error_code:
            offsets[group.group_id] = KafkaError(ErrorCode(group.error_code))
            continue
        offsets[group.group_id] = {
            TopicPartition(topic.name, each.partition_index): Committed(
                each.committed_offset,
                None if each.committed_leader_epoch < 0 else each.committed_leader_epoch,
                each.metadata or "",
            )
            for topic in group.topics
            for each in topic.partitions
            if not each.error_code and each.committed_offset >= 0
        }
    return offsets


def offset_commit_request(group_id: str, offsets: Mapping[TopicPartition, int]) -> OffsetCommitRequest:
    """Set the offsets of a group without members."""
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[OffsetCommitRequestPartition(index, offsets[TopicPartition(name, index)]) for index in indexes],
        )
        for name, indexes in by_topic(offsets).items()
    ]
    return OffsetCommitRequest(group_id=group_id, topics=topics)


def raise_commit_error(response: OffsetCommitResponse) -> None:
    """Raise the first error of a partition."""
    for topic in response.topics:
        for partition in topic.partitions:
            raise_error(partition.error_code)
