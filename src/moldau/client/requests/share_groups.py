"""ShareGroupDescribe, and the start offsets of share groups: described, altered, deleted.

The group coordinator of a group answers them; each function is given a request's response or builds the request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition, by_topic
from moldau.client.admin.group_values import ShareOffset, ShareOffsets
from moldau.client.requests.ask import error_of, raise_error
from moldau.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from moldau.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from moldau.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
)
from moldau.wire.messages.share_group_describe import ShareGroupDescribeRequest


def share_group_describe_request(group_ids: Sequence[str]) -> ShareGroupDescribeRequest:
    return ShareGroupDescribeRequest(group_ids=group_ids)


def share_offsets_request(group_ids: Iterable[str]) -> DescribeShareGroupOffsetsRequest:
    """Ask for the start offsets of these groups in all partitions they have."""
    return DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(each, None) for each in group_ids])


def described_share_offsets(response: DescribeShareGroupOffsetsResponse) -> dict[str, ShareOffsets | KafkaError]:
    """Return the start offsets of each group, or its error."""
    return {
        group.group_id: error_of(group.error_code, group.error_message) or _share_offsets(group)
        for group in response.groups
    }


def _share_offsets(group: DescribeShareGroupOffsetsResponseGroup) -> ShareOffsets:
    return {
        TopicPartition(topic.topic_name, each.partition_index): _share_offset(each)
        for topic in group.topics
        for each in topic.partitions
    }


def _share_offset(partition: DescribeShareGroupOffsetsResponsePartition) -> ShareOffset | KafkaError | None:
    if partition.error_code:
        return KafkaError(ErrorCode(partition.error_code), partition.error_message)
    if partition.start_offset < 0:
        return None
    return ShareOffset(
        partition.start_offset,
        None if partition.leader_epoch < 0 else partition.leader_epoch,
        None if partition.lag < 0 else partition.lag,
    )


def alter_share_offsets_request(group_id: str, offsets: Mapping[TopicPartition, int]) -> AlterShareGroupOffsetsRequest:
    topics = [
        AlterShareGroupOffsetsRequestTopic(
            name,
            [AlterShareGroupOffsetsRequestPartition(index, offsets[TopicPartition(name, index)]) for index in indexes],
        )
        for name, indexes in by_topic(offsets).items()
    ]
    return AlterShareGroupOffsetsRequest(group_id, topics)


def altered_share_offsets(response: AlterShareGroupOffsetsResponse) -> dict[TopicPartition, KafkaError | None]:
    """Return the error of each partition, None on success. Raise the error of the group."""
    raise_error(response.error_code, response.error_message)
    return {
        TopicPartition(topic.topic_name, each.partition_index): error_of(each.error_code, each.error_message)
        for topic in response.responses
        for each in topic.partitions
    }


def delete_share_offsets_request(group_id: str, topics: Iterable[str]) -> DeleteShareGroupOffsetsRequest:
    return DeleteShareGroupOffsetsRequest(group_id, [DeleteShareGroupOffsetsRequestTopic(each) for each in topics])


def deleted_share_offsets(response: DeleteShareGroupOffsetsResponse) -> dict[str, KafkaError | None]:
    """Return the error of each topic, None on success. Raise the error of the group."""
    raise_error(response.error_code, response.error_message)
    return {topic.topic_name: error_of(topic.error_code, topic.error_message) for topic in response.responses}
