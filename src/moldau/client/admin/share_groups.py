"""Requests about share groups to their group coordinators: describe them, and read and change their start offsets.

They are listed and deleted as all groups (groups.py). A broker without share groups answers UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.client.admin.group_coordinators import GroupCoordinators, NotAnswered, group_error
from moldau.client.admin.group_values import (
    SHARE,
    SHARE_PROTOCOL_TYPE,
    Described,
    DescribedGroup,
    Member,
    Node,
    ShareOffsets,
    state_name,
)
from moldau.client.cluster import Cluster
from moldau.client.requests.share_groups import (
    alter_share_offsets_request,
    altered_share_offsets,
    delete_share_offsets_request,
    deleted_share_offsets,
    described_share_offsets,
    share_group_describe_request,
    share_offsets_request,
)
from moldau.wire.apis import ApiKey
from moldau.wire.messages import share_group_describe
from moldau.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsResponse
from moldau.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsResponse
from moldau.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsResponse


class ShareGroups:
    """What only share groups have; the timeout is that of `Groups`."""

    def __init__(self, cluster: Cluster, timeout_ms: int) -> None:
        self._cluster = cluster
        self._coordinators = GroupCoordinators(cluster, timeout_ms)

    def described(self, group_ids: Iterable[str]) -> Described:
        """Return each group or its error. Raise an error of its coordinator. Also a group of another type is one that
        is not found."""
        groups = self.each_described(group_ids)
        for group in groups.values():
            if isinstance(group, NotAnswered):
                raise group
        return groups

    def each_described(self, group_ids: Iterable[str]) -> Described:
        """Return each group or its error, also that of its coordinator: one group hides no other."""
        return self._coordinators.each(group_ids, self._describe)

    def _describe(self, coordinator: Node, group_ids: Sequence[str]) -> Described:
        channel = self._cluster.channel(coordinator.node_id)
        if not channel.offers(ApiKey.SHARE_GROUP_DESCRIBE):
            message = "The node does not support SHARE_GROUP_DESCRIBE"
            return {each: KafkaError(ErrorCode.UNSUPPORTED_VERSION, message) for each in group_ids}
        response = channel.ask(
            ApiKey.SHARE_GROUP_DESCRIBE,
            share_group_describe_request(group_ids),
            share_group_describe.ShareGroupDescribeResponse,
        )
        return {group.group_id: _described_group(group, coordinator) for group in response.groups}

    def offsets(self, group_id: str) -> ShareOffsets:
        """Return the start offsets of a group; raise its error."""
        offsets = self.each_offsets([group_id])[group_id]
        if isinstance(offsets, KafkaError):
            raise offsets
        return offsets

    def each_offsets(self, group_ids: Iterable[str]) -> dict[str, ShareOffsets | KafkaError]:
        """Return the start offsets of each group, or its error: one group hides no other."""
        return self._coordinators.each(group_ids, self._describe_offsets)

    def _describe_offsets(self, coordinator: Node, group_ids: Sequence[str]) -> dict[str, ShareOffsets | KafkaError]:
        response = self._cluster.channel(coordinator.node_id).ask(
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, share_offsets_request(group_ids), DescribeShareGroupOffsetsResponse
        )
        return {
            group_id: group_error(found.code, found.message) if isinstance(found, KafkaError) else found
            for group_id, found in described_share_offsets(response).items()
        }

    def alter_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Set the start offsets of a group without members, which is created if there is none; return the error of
        each partition. Errors of the group itself are raised."""
        request = alter_share_offsets_request(group_id, offsets)

        def attempt() -> dict[TopicPartition, KafkaError | None]:
            channel = self._cluster.channel(self._coordinators.of(group_id).node_id)
            response = channel.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, request, AlterShareGroupOffsetsResponse)
            return altered_share_offsets(response)

        return self._coordinators.retry(attempt)

    def delete_offsets(self, group_id: str, topics: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete the start offsets of a group without members in whole topics; return the error of each topic. Errors
        of the group itself are raised."""
        request = delete_share_offsets_request(group_id, topics)

        def attempt() -> dict[str, KafkaError | None]:
            channel = self._cluster.channel(self._coordinators.of(group_id).node_id)
            response = channel.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, request, DeleteShareGroupOffsetsResponse)
            return deleted_share_offsets(response)

        return self._coordinators.retry(attempt)


def _described_group(group: share_group_describe.DescribedGroup, coordinator: Node) -> DescribedGroup | KafkaError:
    if group.error_code:
        return group_error(group.error_code, group.error_message)
    return DescribedGroup(
        group.group_id,
        SHARE,
        SHARE_PROTOCOL_TYPE,
        state_name(group.group_state),
        group.assignor_name,
        coordinator,
        tuple(_member(member) for member in group.members),
        group.group_epoch,
        group.assignment_epoch,
    )


def _member(member: share_group_describe.Member) -> Member:
    topics = () if member.assignment is None else member.assignment.topic_partitions
    assignment = frozenset(TopicPartition(topic.topic_name, index) for topic in topics for index in topic.partitions)
    return Member(member.member_id, None, member.client_id, member.client_host, assignment, epoch=member.member_epoch)
