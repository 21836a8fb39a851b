"""What group coordinators are asked: which groups there are, what is in them, what they committed, and to change it.

A coordinator that is loading, or has moved, is asked again until the time is over. Errors of a group are values or
KafkaErrors; whose words they are told in is each tool's. Brokers since Kafka 3.0 are spoken to: older ones answer one
group at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.client.cluster import Cluster, by_topic
from moldau.client.group_values import (
    CLASSIC,
    CONSUMER,
    CONSUMER_PROTOCOL,
    Committed,
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
from moldau.wire.apis import ApiKey
from moldau.wire.messages import consumer_group_describe, describe_groups
from moldau.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from moldau.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from moldau.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse

T = TypeVar("T")

TRANSIENT: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
GROUPS_AT_ONCE: Final = 500
MANY_COORDINATORS: Final = (4, 6)
"""FindCoordinator with several keys in one request."""
MANY_GROUPS_BY_NAME: Final = (8, 9)
"""OffsetFetch with several groups in one request, and with topics by name: offsets outlive the ids of topics."""
BY_NAME: Final = (2, 9)


class Groups:
    """The groups of a cluster. Every call ends within `timeout_ms`, or raises."""

    def __init__(self, cluster: Cluster, timeout_ms: int) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms

    def listed(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[ListedGroup]:
        """All groups of all brokers, as each knows those it coordinates. Old brokers know of no filters."""

        def ask() -> list[ListedGroup]:
            found: list[ListedGroup] = []
            request = ListGroupsRequest(states_filter=states, types_filter=types)
            for node_id in list(self._cluster.nodes()):
                answer = self._cluster.channel(node_id).ask(ApiKey.LIST_GROUPS, request, ListGroupsResponse)
                _raise(answer.error_code)
                found += [
                    ListedGroup(
                        group.group_id,
                        type_name(group.group_type) if group.group_type else "",
                        group.protocol_type,
                        state_name(group.group_state) if group.group_state else "",
                    )
                    for group in answer.groups
                ]
            return found

        return self._patiently(ask)

    def described(self, group_ids: Iterable[str]) -> Described:
        """Each group, or why not: in the new protocol's words where it speaks that, else in the classic one's."""
        found: Described = {}
        for some in _chunks(list(dict.fromkeys(group_ids))):
            found |= self._patiently(partial(self._describe, some))
        return found

    def _describe(self, group_ids: Sequence[str]) -> Described:
        found: Described = {}
        for coordinator, ids in self._by_coordinator(group_ids):
            new = self._describe_consumer_groups(coordinator, ids)
            classic_ids = [
                each for each in ids if isinstance(said := new[each], KafkaError) and said.code in _NOT_OF_THE_NEW_KIND
            ]
            classic = self._describe_classic_groups(coordinator, classic_ids) if classic_ids else {}
            for each, said in classic.items():
                # The new protocol's answer names the group; the classic one's does not.
                if isinstance(said, KafkaError) and said.code is ErrorCode.GROUP_ID_NOT_FOUND:
                    classic[each] = new[each] if _says_it_is_unknown(new[each]) else said
            found |= new | classic
        return found

    def _describe_consumer_groups(self, coordinator: Node, ids: Sequence[str]) -> Described:
        channel = self._cluster.channel(coordinator.node_id)
        if not channel.offers(ApiKey.CONSUMER_GROUP_DESCRIBE):
            return {each: KafkaError(ErrorCode.UNSUPPORTED_VERSION) for each in ids}
        request = consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=ids)
        answer = channel.ask(
            ApiKey.CONSUMER_GROUP_DESCRIBE, request, consumer_group_describe.ConsumerGroupDescribeResponse
        )
        return {group.group_id: _consumer_group(group, coordinator) for group in answer.groups}

    def _describe_classic_groups(self, coordinator: Node, ids: Sequence[str]) -> Described:
        answer = self._cluster.channel(coordinator.node_id).ask(
            ApiKey.DESCRIBE_GROUPS,
            describe_groups.DescribeGroupsRequest(groups=ids),
            describe_groups.DescribeGroupsResponse,
        )
        return {group.group_id: _classic_group(group, coordinator) for group in answer.groups}

    def committed(self, group_ids: Iterable[str]) -> dict[str, CommittedOffsets]:
        """The offsets of groups. A group that is unknown has none."""
        found: dict[str, CommittedOffsets] = {}
        for some in _chunks(list(dict.fromkeys(group_ids))):
            found |= self._patiently(partial(self._fetch_offsets, some))
        return found

    def _fetch_offsets(self, group_ids: Sequence[str]) -> dict[str, CommittedOffsets]:
        found: dict[str, CommittedOffsets] = {}
        for coordinator, ids in self._by_coordinator(group_ids):
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=each, topics=None) for each in ids])
            answer = self._cluster.channel(coordinator.node_id).ask(
                ApiKey.OFFSET_FETCH, request, OffsetFetchResponse, MANY_GROUPS_BY_NAME
            )
            for group in answer.groups:
                _raise(group.error_code)
                found[group.group_id] = {
                    TopicPartition(topic.name, each.partition_index): Committed(
                        each.committed_offset,
                        None if each.committed_leader_epoch < 0 else each.committed_leader_epoch,
                        each.metadata or "",
                    )
                    for topic in group.topics
                    for each in topic.partitions
                    if not each.error_code and each.committed_offset >= 0
                }
        return found

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Sets the offsets of a group that has no members; raises the first refusal."""
        topics = [
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(index, offsets[TopicPartition(name, index)]) for index in indexes
                ],
            )
            for name, indexes in by_topic(offsets).items()
        ]

        def ask() -> None:
            ((coordinator, _),) = self._by_coordinator([group_id])
            request = OffsetCommitRequest(group_id=group_id, topics=topics)
            answer = self._cluster.channel(coordinator.node_id).ask(
                ApiKey.OFFSET_COMMIT, request, OffsetCommitResponse, BY_NAME
            )
            for topic in answer.topics:
                for partition in topic.partitions:
                    _raise(partition.error_code)

        if topics:
            self._patiently(ask)

    def delete(self, group_ids: Iterable[str]) -> dict[str, ErrorCode]:
        """What came of deleting each group; NONE where it is gone."""

        found: dict[str, ErrorCode] = {}
        # One by one: what is deleted must not be deleted again because its neighbour's coordinator was loading.
        for group_id in dict.fromkeys(group_ids):
            try:
                found[group_id] = self._patiently(partial(self._delete, group_id))
            except KafkaError as error:
                found[group_id] = error.code
        return found

    def _delete(self, group_id: str) -> ErrorCode:
        ((coordinator, _),) = self._by_coordinator([group_id])
        answer = self._cluster.channel(coordinator.node_id).ask(
            ApiKey.DELETE_GROUPS, DeleteGroupsRequest(groups_names=[group_id]), DeleteGroupsResponse
        )
        return _settled(answer.results[0].error_code)

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """What came of deleting the offset of each partition; raises what is wrong with the group itself."""
        topics = [
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(each) for each in indexes])
            for name, indexes in by_topic(partitions).items()
        ]

        def ask() -> dict[TopicPartition, ErrorCode]:
            ((coordinator, _),) = self._by_coordinator([group_id])
            request = OffsetDeleteRequest(group_id=group_id, topics=topics)
            answer = self._cluster.channel(coordinator.node_id).ask(ApiKey.OFFSET_DELETE, request, OffsetDeleteResponse)
            _raise(answer.error_code)
            return {
                TopicPartition(topic.name, each.partition_index): ErrorCode(each.error_code)
                for topic in answer.topics
                for each in topic.partitions
            }

        return self._patiently(ask)

    def _by_coordinator(self, group_ids: Sequence[str]) -> Iterator[tuple[Node, list[str]]]:
        """Who coordinates which of these groups."""
        self._cluster.nodes()
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=group_ids)
        answer = self._cluster.ask_any(ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse, MANY_COORDINATORS)
        led: dict[Node, list[str]] = {}
        for found in answer.coordinators:
            _raise(found.error_code, found.error_message)
            led.setdefault(Node(found.node_id, found.host, found.port), []).append(found.key)
        yield from led.items()

    def _patiently(self, action: Callable[[], T]) -> T:
        return self._cluster.retry(action, self._timeout_ms, TRANSIENT)


_NOT_OF_THE_NEW_KIND: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


def _says_it_is_unknown(said: DescribedGroup | KafkaError) -> bool:
    return isinstance(said, KafkaError) and said.code is ErrorCode.GROUP_ID_NOT_FOUND


def _raise(error_code: int, message: str | None = None) -> None:
    if error_code:
        raise KafkaError(ErrorCode(error_code), message)


def _settled(error_code: int) -> ErrorCode:
    """The code, if it will not pass by itself; raises what will, to be asked again."""
    code = ErrorCode(error_code)
    if code in TRANSIENT:
        raise KafkaError(code)
    return code


def _chunks(group_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for begin in range(0, len(group_ids), GROUPS_AT_ONCE):
        yield group_ids[begin : begin + GROUPS_AT_ONCE]


def _consumer_group(group: consumer_group_describe.DescribedGroup, coordinator: Node) -> DescribedGroup | KafkaError:
    if code := _settled(group.error_code):
        return KafkaError(code, group.error_message)
    return DescribedGroup(
        group.group_id,
        CONSUMER,
        CONSUMER_PROTOCOL,
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
    if code := _settled(group.error_code):
        return KafkaError(code, group.error_message)
    is_consumer = group.protocol_type in (CONSUMER_PROTOCOL, "")
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
