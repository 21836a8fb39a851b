"""Requests to group coordinators: list and describe groups, read and change their offsets, delete groups.

Requests to a coordinator that is loading or has moved are retried until the timeout. Errors of a group are values or
KafkaErrors; each tool words them itself. Brokers since Kafka 3.0 are supported: older ones answer one group at a time.
What only share groups have is in share_groups.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition, by_topic
from moldau.client.admin.group_coordinators import GroupCoordinators, NotAnswered, final_code, group_error
from moldau.client.admin.group_values import (
    CLASSIC,
    CONSUMER,
    CONSUMER_PROTOCOL_TYPE,
    CommittedOffsets,
    Described,
    DescribedGroup,
    ListedGroup,
    Member,
    Node,
    decode_assignment,
    state_name,
    type_name,
)
from moldau.client.cluster import Cluster
from moldau.client.requests.ask import raise_error
from moldau.client.requests.groups import (
    OFFSET_COMMIT_VERSIONS,
    OFFSET_FETCH_VERSIONS,
    fetched_offsets,
    offset_commit_request,
    offset_fetch_request,
    raise_commit_error,
)
from moldau.wire.apis import ApiKey
from moldau.wire.messages import consumer_group_describe, describe_groups
from moldau.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from moldau.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from moldau.wire.messages.offset_commit import OffsetCommitResponse
from moldau.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from moldau.wire.messages.offset_fetch import OffsetFetchResponse


class Groups:
    """The groups of a cluster. Requests are repeated until `timeout_ms` has passed; each part of a call that is sent by
    itself (500 groups, or one group to delete) has that time."""

    def __init__(self, cluster: Cluster, timeout_ms: int) -> None:
        self._cluster = cluster
        self._coordinators = GroupCoordinators(cluster, timeout_ms)

    def listed(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[ListedGroup]:
        """Return all groups of all brokers; each broker lists those it coordinates. Old brokers ignore the filters."""

        def attempt() -> list[ListedGroup]:
            groups: list[ListedGroup] = []
            request = ListGroupsRequest(states_filter=states, types_filter=types)
            for node_id in list(self._cluster.nodes()):
                response = self._cluster.channel(node_id).ask(ApiKey.LIST_GROUPS, request, ListGroupsResponse)
                raise_error(response.error_code)
                groups += [
                    ListedGroup(
                        group.group_id,
                        type_name(group.group_type) if group.group_type else "",
                        group.protocol_type,
                        state_name(group.group_state) if group.group_state else "",
                    )
                    for group in response.groups
                ]
            return groups

        return self._coordinators.retry(attempt)

    def described(self, group_ids: Iterable[str]) -> Described:
        """Return each group or its error. Raise an error of its coordinator.

        The API of the consumer protocol is tried first, and that of the classic protocol for groups it does not find.
        """
        groups = self.each_described(group_ids)
        for group in groups.values():
            if isinstance(group, NotAnswered):
                raise group
        return groups

    def each_described(self, group_ids: Iterable[str]) -> Described:
        """Return each group or its error, also that of its coordinator: one group hides no other."""
        return self._coordinators.each(group_ids, self._describe)

    def _describe(self, coordinator: Node, ids: Sequence[str]) -> Described:
        groups = self._describe_consumer_groups(coordinator, ids)
        classic_ids = [
            group_id
            for group_id, group in groups.items()
            if isinstance(group, KafkaError) and group.code in _NOT_A_CONSUMER_GROUP
        ]
        classic = self._describe_classic_groups(coordinator, classic_ids) if classic_ids else {}
        for group_id, group in classic.items():
            # The error message of the consumer protocol's API names the group; the classic one's does not.
            if not (_is_not_found(group) and _is_not_found(groups[group_id])):
                groups[group_id] = group
        return groups

    def _describe_consumer_groups(self, coordinator: Node, ids: Sequence[str]) -> Described:
        channel = self._cluster.channel(coordinator.node_id)
        if not channel.offers(ApiKey.CONSUMER_GROUP_DESCRIBE):
            return {each: KafkaError(ErrorCode.UNSUPPORTED_VERSION) for each in ids}
        request = consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=ids)
        response = channel.ask(
            ApiKey.CONSUMER_GROUP_DESCRIBE, request, consumer_group_describe.ConsumerGroupDescribeResponse
        )
        return {group.group_id: _consumer_group(group, coordinator) for group in response.groups}

    def _describe_classic_groups(self, coordinator: Node, ids: Sequence[str]) -> Described:
        response = self._cluster.channel(coordinator.node_id).ask(
            ApiKey.DESCRIBE_GROUPS,
            describe_groups.DescribeGroupsRequest(groups=ids),
            describe_groups.DescribeGroupsResponse,
        )
        return {group.group_id: _classic_group(group, coordinator) for group in response.groups}

    def committed(self, group_ids: Iterable[str]) -> dict[str, CommittedOffsets]:
        """Return the committed offsets of groups. An unknown group has no offsets. Raise the first error."""
        offsets: dict[str, CommittedOffsets] = {}
        for group_id, committed in self.each_committed(group_ids).items():
            if isinstance(committed, KafkaError):
                raise committed
            offsets[group_id] = committed
        return offsets

    def each_committed(self, group_ids: Iterable[str]) -> dict[str, CommittedOffsets | KafkaError]:
        """Return the committed offsets of each group or its error: one group hides no other."""
        return self._coordinators.each(group_ids, self._fetch_offsets)

    def _fetch_offsets(self, coordinator: Node, group_ids: Sequence[str]) -> dict[str, CommittedOffsets | KafkaError]:
        response = self._cluster.channel(coordinator.node_id).ask(
            ApiKey.OFFSET_FETCH, offset_fetch_request(group_ids), OffsetFetchResponse, OFFSET_FETCH_VERSIONS
        )
        return {
            group_id: group_error(found.code) if isinstance(found, KafkaError) else found
            for group_id, found in fetched_offsets(response).items()
        }

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the offsets of a group without members; raise the first error."""
        request = offset_commit_request(group_id, offsets)

        def attempt() -> None:
            coordinator = self._coordinators.of(group_id)
            response = self._cluster.channel(coordinator.node_id).ask(
                ApiKey.OFFSET_COMMIT, request, OffsetCommitResponse, OFFSET_COMMIT_VERSIONS
            )
            raise_commit_error(response)

        if offsets:
            self._coordinators.retry(attempt)

    def delete(self, group_ids: Iterable[str]) -> dict[str, ErrorCode]:
        """Delete groups; return the error code of each, NONE on success."""

        results: dict[str, ErrorCode] = {}
        # One request per group: a retry because of one loading coordinator must not delete the other groups again.
        for group_id in dict.fromkeys(group_ids):
            try:
                results[group_id] = self._coordinators.retry(partial(self._delete, group_id))
            except KafkaError as error:
                results[group_id] = error.code
        return results

    def _delete(self, group_id: str) -> ErrorCode:
        coordinator = self._coordinators.of(group_id)
        response = self._cluster.channel(coordinator.node_id).ask(
            ApiKey.DELETE_GROUPS, DeleteGroupsRequest(groups_names=[group_id]), DeleteGroupsResponse
        )
        return final_code(response.results[0].error_code)

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """Delete the offsets of partitions; return the error code of each. Errors of the group itself are raised."""
        topics = [
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(each) for each in indexes])
            for name, indexes in by_topic(partitions).items()
        ]

        def attempt() -> dict[TopicPartition, ErrorCode]:
            coordinator = self._coordinators.of(group_id)
            request = OffsetDeleteRequest(group_id=group_id, topics=topics)
            response = self._cluster.channel(coordinator.node_id).ask(
                ApiKey.OFFSET_DELETE, request, OffsetDeleteResponse
            )
            raise_error(response.error_code)
            return {
                TopicPartition(topic.name, each.partition_index): ErrorCode(each.error_code)
                for topic in response.topics
                for each in topic.partitions
            }

        return self._coordinators.retry(attempt)


_NOT_A_CONSUMER_GROUP: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


def _is_not_found(group: DescribedGroup | KafkaError) -> bool:
    return isinstance(group, KafkaError) and group.code is ErrorCode.GROUP_ID_NOT_FOUND


def _consumer_group(group: consumer_group_describe.DescribedGroup, coordinator: Node) -> DescribedGroup | KafkaError:
    if group.error_code:
        return group_error(group.error_code, group.error_message)
    return DescribedGroup(
        group.group_id,
        CONSUMER,
        CONSUMER_PROTOCOL_TYPE,
        state_name(group.group_state),
        group.assignor_name,
        coordinator,
        tuple(_consumer_member(member) for member in group.members),
        group.group_epoch,
        group.assignment_epoch,
    )


def _consumer_member(member: consumer_group_describe.Member) -> Member:
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        _partitions(member.assignment),
        _partitions(member.target_assignment),
        member.member_epoch,
        None if member.member_type < 0 else member.member_type == 1,
    )


def _partitions(assignment: consumer_group_describe.Assignment | None) -> frozenset[TopicPartition]:
    topics = () if assignment is None else assignment.topic_partitions
    return frozenset(TopicPartition(topic.topic_name, index) for topic in topics for index in topic.partitions)


def _classic_group(group: describe_groups.DescribedGroup, coordinator: Node) -> DescribedGroup | KafkaError:
    if group.error_code:
        return group_error(group.error_code, group.error_message)
    is_consumer = group.protocol_type in (CONSUMER_PROTOCOL_TYPE, "")
    return DescribedGroup(
        group.group_id,
        CLASSIC,
        group.protocol_type,
        state_name(group.group_state),
        group.protocol_data,
        coordinator,
        tuple(
            Member(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                decode_assignment(member.member_assignment) if is_consumer else frozenset(),
            )
            for member in group.members
        ),
    )
