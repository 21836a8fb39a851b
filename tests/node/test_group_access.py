"""Authorization of the group APIs: each with and without the ACLs that it needs. Denied responses are Kafka's."""

from __future__ import annotations

from typing import Any

import pytest
from harness.coordinator_node import PUBLIC, SECRET, CoordinatorNode

from moldau.base.acl_operations import GROUP_OPERATIONS, OPERATIONS_OMITTED, AclOperation, bits
from moldau.base.errors import ErrorCode
from moldau.base.ids import ZERO_UUID
from moldau.base.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from moldau.base.turns import ITEMS_A_TURN
from moldau.security.acls.bindings import ResourceType
from moldau.wire.apis import ApiKey
from moldau.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from moldau.wire.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from moldau.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest
from moldau.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from moldau.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest
from moldau.wire.messages.heartbeat import HeartbeatRequest
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from moldau.wire.messages.list_groups import ListGroupsRequest
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

NONE = ErrorCode.NONE
TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
MISSING = "missing"
"""A topic that does not exist."""


@pytest.fixture
def node() -> CoordinatorNode:
    return CoordinatorNode()


def allow_group(node: CoordinatorNode, operation: AclOperation, group_id: str = "g") -> None:
    node.allow(operation, ResourceType.GROUP, group_id)


def allow_topic(node: CoordinatorNode, operation: AclOperation, name: str = PUBLIC) -> None:
    node.allow(operation, ResourceType.TOPIC, name)


# --- FindCoordinator --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key_type", "resource", "code", "message"),
    [
        (0, ResourceType.GROUP, GROUP_DENIED, "Group authorization failed."),
        (
            1,
            ResourceType.TRANSACTIONAL_ID,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "Transactional Id authorization failed.",
        ),
    ],
)
def test_a_coordinator_is_found_only_for_keys_that_the_client_may_describe(
    key_type: int, resource: ResourceType, code: ErrorCode, message: str
) -> None:
    node = CoordinatorNode(has_coordinators=False)
    several = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["mine", "other"])
    denied = [Coordinator(key, -1, "", -1, code, "") for key in ("mine", "other")]
    assert node.ask(ApiKey.FIND_COORDINATOR, several).coordinators == denied
    response = node.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest("mine", key_type), 3)
    assert (response.error_code, response.error_message) == (code, message)
    assert (response.node_id, response.host, response.port) == (-1, "", -1)
    assert not node.topics() & {CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC}, "a denied client created the topic"
    node.allow(AclOperation.DESCRIBE, resource, "mine")
    mine, other = node.ask(ApiKey.FIND_COORDINATOR, several).coordinators
    assert (mine.key, mine.node_id, mine.error_code, other) == ("mine", 1, NONE, denied[1])
    assert node.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest("mine", key_type), 3).node_id == 1


def test_finding_a_share_coordinator_needs_cluster_action(node: CoordinatorNode) -> None:
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=["a", "b"])
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    expected = [Coordinator(key, -1, "", -1, code, "Cluster authorization failed.") for key in ("a", "b")]
    assert node.ask(ApiKey.FIND_COORDINATOR, request).coordinators == expected
    node.allow(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    response = node.ask(ApiKey.FIND_COORDINATOR, request)
    assert [each.error_code for each in response.coordinators] == [ErrorCode.INVALID_REQUEST] * 2


# --- classic members --------------------------------------------------------------------------------------------


def join_request(member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest("g", 10_000, 10_000, member_id, None, "consumer", [JoinGroupRequestProtocol("range", b"")])


def join(node: CoordinatorNode) -> JoinGroupResponse:
    """Join as an administrator, and become stable."""
    joined = node.ask_as_admin(ApiKey.JOIN_GROUP, join_request(), 3)
    sync = SyncGroupRequest("g", joined.generation_id, joined.member_id)
    assert node.ask_as_admin(ApiKey.SYNC_GROUP, sync, 3).error_code == NONE
    assert isinstance(joined, JoinGroupResponse)
    return joined


def group_states(node: CoordinatorNode) -> dict[str, str]:
    response = node.ask_as_admin(ApiKey.LIST_GROUPS, ListGroupsRequest())
    return {each.group_id: each.group_state for each in response.groups}


@pytest.mark.parametrize(("version", "protocol_name"), [(0, ""), (3, ""), (6, ""), (7, None), (9, None)])
def test_join_group_needs_read(node: CoordinatorNode, version: int, protocol_name: str | None) -> None:
    allow_group(node, AclOperation.DESCRIBE)
    denied = node.ask_refused(ApiKey.JOIN_GROUP, join_request("m"), version)
    assert denied == JoinGroupResponse(
        error_code=GROUP_DENIED,
        generation_id=-1,
        protocol_type=None,
        protocol_name=protocol_name,
        leader="",
        member_id="",
        members=(),
    )
    assert group_states(node) == {}
    allow_group(node, AclOperation.READ)
    allowed = node.ask(ApiKey.JOIN_GROUP, join_request(), version)
    assert allowed.error_code in (NONE, ErrorCode.MEMBER_ID_REQUIRED)
    assert allowed.member_id


def test_sync_group_needs_read(node: CoordinatorNode) -> None:
    joined = join(node)
    allow_group(node, AclOperation.DESCRIBE)
    named = SyncGroupRequest("g", joined.generation_id, joined.member_id, None, "consumer", "range")
    unnamed = SyncGroupRequest("g", joined.generation_id, joined.member_id)
    denied = SyncGroupResponse(error_code=GROUP_DENIED, protocol_type=None, protocol_name=None, assignment=b"")
    for version in (0, 4):
        assert node.ask_refused(ApiKey.SYNC_GROUP, unnamed, version) == denied
    assert node.ask_refused(ApiKey.SYNC_GROUP, named, 5) == denied
    response = node.ask_refused(ApiKey.SYNC_GROUP, unnamed, 5)
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL, (
        "as in Kafka, this is checked before authorization"
    )
    allow_group(node, AclOperation.READ)
    assert node.ask(ApiKey.SYNC_GROUP, named, 5).error_code == NONE


def test_heartbeat_needs_read(node: CoordinatorNode) -> None:
    joined = join(node)
    allow_group(node, AclOperation.DESCRIBE)
    request = HeartbeatRequest("g", joined.generation_id, joined.member_id)
    assert node.ask_refused(ApiKey.HEARTBEAT, request).error_code == GROUP_DENIED
    allow_group(node, AclOperation.READ)
    assert node.ask(ApiKey.HEARTBEAT, request).error_code == NONE


@pytest.mark.parametrize("version", [2, 5])
def test_leave_group_needs_read(node: CoordinatorNode, version: int) -> None:
    joined = join(node)
    allow_group(node, AclOperation.DESCRIBE)
    request = LeaveGroupRequest("g", [MemberIdentity(joined.member_id)], joined.member_id)
    denied = LeaveGroupResponse(error_code=GROUP_DENIED, members=[])
    assert node.ask_refused(ApiKey.LEAVE_GROUP, request, version) == denied
    assert group_states(node) == {"g": "Stable"}
    allow_group(node, AclOperation.READ)
    assert node.ask(ApiKey.LEAVE_GROUP, request, version).error_code == NONE
    assert group_states(node) == {"g": "Empty"}


# --- offsets ----------------------------------------------------------------------------------------------------


def commit_request(node: CoordinatorNode, *names: str, offset: int = 7, **fields: Any) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(index, offset) for index in (0, 1)]
    topics = [OffsetCommitRequestTopic(node.ids.get(name, b"?" * 16), name, partitions) for name in names]
    return OffsetCommitRequest("g", topics=topics, **fields)


def codes(topics: Any) -> list[list[int]]:
    return [[each.error_code for each in topic.partitions] for topic in topics]


@pytest.mark.parametrize("version", [2, 9, 10])
def test_offset_commit_needs_read_of_the_group(node: CoordinatorNode, version: int) -> None:
    allow_group(node, AclOperation.DESCRIBE)
    allow_topic(node, AclOperation.READ)
    request = commit_request(node, PUBLIC, MISSING)
    response = node.ask_refused(ApiKey.OFFSET_COMMIT, request, version)
    assert codes(response.topics) == [[GROUP_DENIED] * 2] * 2
    assert (node.committed_offsets(), group_states(node)) == ({}, {})
    allow_group(node, AclOperation.READ)
    assert codes(node.ask(ApiKey.OFFSET_COMMIT, request, version).topics)[0] == [NONE] * 2
    assert node.committed_offsets() == {PUBLIC: [7, 7]}


@pytest.mark.parametrize(("version", "unknown"), [(2, TOPIC_DENIED), (9, TOPIC_DENIED), (10, 100)])
def test_offset_commit_needs_read_of_each_topic(node: CoordinatorNode, version: int, unknown: int) -> None:
    """A topic id that does not exist is reported as such; a name that does not exist looks like a forbidden one."""
    allow_group(node, AclOperation.READ)
    allow_topic(node, AclOperation.READ)
    allow_topic(node, AclOperation.DESCRIBE, SECRET)
    response = node.ask(ApiKey.OFFSET_COMMIT, commit_request(node, SECRET, PUBLIC, MISSING), version)
    assert codes(response.topics) == [[TOPIC_DENIED] * 2, [NONE] * 2, [unknown] * 2]
    assert node.committed_offsets() == {PUBLIC: [7, 7]}


@pytest.mark.parametrize("version", [9, 10])
def test_the_member_is_not_checked_if_all_topics_are_denied(node: CoordinatorNode, version: int) -> None:
    allow_group(node, AclOperation.READ)
    fields = {"generation_id_or_member_epoch": 5, "member_id": "nobody"}
    response = node.ask_refused(ApiKey.OFFSET_COMMIT, commit_request(node, SECRET, **fields), version)
    assert codes(response.topics) == [[TOPIC_DENIED] * 2]
    allow_topic(node, AclOperation.READ)
    response = node.ask_refused(ApiKey.OFFSET_COMMIT, commit_request(node, SECRET, PUBLIC, **fields), version)
    assert codes(response.topics) == [[TOPIC_DENIED] * 2, [ErrorCode.GROUP_ID_NOT_FOUND] * 2]


def commit_both(node: CoordinatorNode) -> None:
    node.ask_as_admin(ApiKey.OFFSET_COMMIT, commit_request(node, PUBLIC, SECRET), 9)
    assert node.committed_offsets() == {PUBLIC: [7, 7], SECRET: [7, 7]}


@pytest.mark.parametrize("version", [8, 10])
def test_offset_fetch_needs_describe_of_each_group(node: CoordinatorNode, version: int) -> None:
    commit_both(node)
    allow_topic(node, AclOperation.DESCRIBE)
    allow_group(node, AclOperation.DESCRIBE, "mine")
    for names in ([PUBLIC], None):
        topics = None if names is None else [OffsetFetchRequestTopics(node.ids[PUBLIC], PUBLIC, [0])]
        groups = [OffsetFetchRequestGroup(group_id, topics=topics) for group_id in ("g", "mine")]
        denied, mine = node.ask_refused(ApiKey.OFFSET_FETCH, OffsetFetchRequest(groups=groups), version).groups
        assert denied == OffsetFetchResponseGroup("g", [], GROUP_DENIED)
        assert (mine.group_id, mine.error_code) == ("mine", NONE)


@pytest.mark.parametrize("version", [1, 2, 7])
def test_offset_fetch_of_one_group_needs_describe(node: CoordinatorNode, version: int) -> None:
    commit_both(node)
    allow_topic(node, AclOperation.DESCRIBE)
    request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(PUBLIC, [0, 1])])
    response = node.ask_refused(ApiKey.OFFSET_FETCH, request, version)
    if version == 1:
        assert fetched(response.topics) == {PUBLIC: [(-1, -1, "", GROUP_DENIED)] * 2}
    else:
        assert (response.error_code, response.topics) == (GROUP_DENIED, [])
    allow_group(node, AclOperation.DESCRIBE)
    response = node.ask(ApiKey.OFFSET_FETCH, request, version)
    assert (response.error_code, fetched(response.topics)) == (NONE, {PUBLIC: [(7, -1, "", NONE)] * 2})


def fetched(topics: Any) -> dict[str, list[tuple[int, int, str, int]]]:
    return {
        topic.name: [
            (each.committed_offset, each.committed_leader_epoch, each.metadata, each.error_code)
            for each in topic.partitions
        ]
        for topic in topics
    }


@pytest.mark.parametrize(("version", "unknown"), [(1, TOPIC_DENIED), (8, TOPIC_DENIED), (10, 100)])
def test_offset_fetch_needs_describe_of_each_topic(node: CoordinatorNode, version: int, unknown: int) -> None:
    commit_both(node)
    allow_group(node, AclOperation.DESCRIBE)
    allow_topic(node, AclOperation.DESCRIBE)
    names = (SECRET, PUBLIC, MISSING)
    request = OffsetFetchRequest(
        group_id="g",
        topics=[OffsetFetchRequestTopic(name, [0]) for name in names],
        groups=[
            OffsetFetchRequestGroup(
                "g", topics=[OffsetFetchRequestTopics(node.ids.get(name, b"?" * 16), name, [0]) for name in names]
            )
        ],
    )
    response = node.ask(ApiKey.OFFSET_FETCH, request, version)
    topics = response.groups[0].topics if version >= 8 else response.topics
    assert [fetched([topic])[topic.name] for topic in topics] == [
        [(-1, -1, "", TOPIC_DENIED)],
        [(7, -1, "", NONE)],
        [(-1, -1, "", unknown)],
    ]


@pytest.mark.parametrize("version", [2, 8, 10])
def test_offset_fetch_of_all_topics_leaves_out_those_that_the_client_may_not_describe(
    node: CoordinatorNode, version: int
) -> None:
    commit_both(node)
    allow_group(node, AclOperation.DESCRIBE)
    allow_topic(node, AclOperation.DESCRIBE)
    request = OffsetFetchRequest(group_id="g", topics=None, groups=[OffsetFetchRequestGroup("g", topics=None)])
    response = node.ask(ApiKey.OFFSET_FETCH, request, version)
    topics = response.groups[0].topics if version >= 8 else response.topics
    assert fetched(topics) == {PUBLIC: [(7, -1, "", NONE)] * 2}


def delete_request(*names: str, group_id: str = "g") -> OffsetDeleteRequest:
    partitions = [OffsetDeleteRequestPartition(index) for index in (0, 1)]
    return OffsetDeleteRequest(group_id, [OffsetDeleteRequestTopic(name, partitions) for name in names])


def test_offset_delete_needs_delete_of_the_group_and_read_of_each_topic(node: CoordinatorNode) -> None:
    commit_both(node)
    allow_topic(node, AclOperation.READ)
    allow_topic(node, AclOperation.DESCRIBE, SECRET)
    allow_group(node, AclOperation.READ)
    denied = node.ask_refused(ApiKey.OFFSET_DELETE, delete_request(PUBLIC))
    assert denied == OffsetDeleteResponse(error_code=GROUP_DENIED, topics=[])
    allow_group(node, AclOperation.DELETE)
    response = node.ask_refused(ApiKey.OFFSET_DELETE, delete_request(SECRET, MISSING))
    assert (response.error_code, codes(response.topics)) == (NONE, [[TOPIC_DENIED] * 2] * 2)
    response = node.ask(ApiKey.OFFSET_DELETE, delete_request(SECRET, PUBLIC))
    assert (response.error_code, codes(response.topics)) == (NONE, [[TOPIC_DENIED] * 2, [NONE] * 2])
    assert node.committed_offsets() == {SECRET: [7, 7]}


def test_offset_delete_does_not_reveal_the_group_if_all_topics_are_denied(node: CoordinatorNode) -> None:
    allow_group(node, AclOperation.DELETE, "nowhere")
    response = node.ask_refused(ApiKey.OFFSET_DELETE, delete_request(SECRET, group_id="nowhere"))
    assert (response.error_code, codes(response.topics)) == (NONE, [[TOPIC_DENIED] * 2])
    allow_topic(node, AclOperation.READ)
    response = node.ask_refused(ApiKey.OFFSET_DELETE, delete_request(SECRET, PUBLIC, group_id="nowhere"))
    assert (response.error_code, response.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, ())


# --- administration ---------------------------------------------------------------------------------------------


def commit_groups(node: CoordinatorNode, *group_ids: str) -> None:
    for group_id in group_ids:
        request = commit_request(node, PUBLIC)
        request.group_id = group_id
        node.ask_as_admin(ApiKey.OFFSET_COMMIT, request, 9)


@pytest.mark.parametrize("version", [0, 5])
def test_list_groups_returns_groups_that_the_client_may_describe(node: CoordinatorNode, version: int) -> None:
    commit_groups(node, "a", "b", "c")

    def listed() -> list[str]:
        response = node.ask(ApiKey.LIST_GROUPS, ListGroupsRequest(), version)
        assert response.error_code == NONE
        return sorted(each.group_id for each in response.groups)

    assert listed() == []
    allow_group(node, AclOperation.DESCRIBE, "a")
    allow_group(node, AclOperation.READ, "b")
    assert listed() == ["a", "b"]
    node.allow(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    assert listed() == ["a", "b", "c"]


@pytest.mark.parametrize("version", [0, 3, 6])
def test_describe_groups_needs_describe_of_each(node: CoordinatorNode, version: int) -> None:
    commit_groups(node, "g", "h", "secret")
    allow_group(node, AclOperation.READ)
    allow_group(node, AclOperation.DESCRIBE, "h")
    request = DescribeGroupsRequest(["secret", "g", "nowhere", "h"], include_authorized_operations=True)
    secret, mine, nowhere, described = node.ask(ApiKey.DESCRIBE_GROUPS, request, version).groups
    assert (described.error_code, described.authorized_operations) == (NONE, bits([AclOperation.DESCRIBE]))
    assert [secret, nowhere] == [
        DescribedGroup(GROUP_DENIED, None, group_id, "", "", "", [], OPERATIONS_OMITTED)
        for group_id in ("secret", "nowhere")
    ]
    expected = bits([AclOperation.READ, AclOperation.DESCRIBE])
    assert (mine.error_code, mine.group_state, mine.authorized_operations) == (NONE, "Empty", expected)
    all_bits = node.ask_as_admin(ApiKey.DESCRIBE_GROUPS, request, version).groups[1].authorized_operations
    assert all_bits == GROUP_OPERATIONS
    unasked = node.ask(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(["g"]), version).groups[0]
    assert unasked.authorized_operations == OPERATIONS_OMITTED


def test_delete_groups_needs_delete_of_each(node: CoordinatorNode) -> None:
    commit_groups(node, "g", "secret")
    allow_group(node, AclOperation.DELETE)
    allow_group(node, AclOperation.READ, "secret")
    results = node.ask(ApiKey.DELETE_GROUPS, DeleteGroupsRequest(["secret", "g", "nowhere", "secret"])).results
    assert results == [
        DeletableGroupResult("secret", GROUP_DENIED),
        DeletableGroupResult("g", NONE),
        DeletableGroupResult("nowhere", GROUP_DENIED),
    ]
    assert group_states(node) == {"secret": "Empty"}


# --- consumer groups --------------------------------------------------------------------------------------------


def heartbeat_request(
    *names: str, regex: str | None = None, member: str = "m", epoch: int = 0
) -> ConsumerGroupHeartbeatRequest:
    subscription = names or None if regex is not None else names
    return ConsumerGroupHeartbeatRequest(
        "g",
        member,
        epoch,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=subscription,
        subscribed_topic_regex=regex,
        topic_partitions=[],
    )


def assigned(node: CoordinatorNode, response: ConsumerGroupHeartbeatResponse) -> set[str]:
    names = {topic_id: name for name, topic_id in node.ids.items()}
    assert response.error_code == NONE, response.error_message
    assert response.assignment is not None
    return {names.get(each.topic_id, "?") for each in response.assignment.topic_partitions}


@pytest.mark.parametrize("count", [ITEMS_A_TURN, 3 * ITEMS_A_TURN + 1])
def test_each_of_many_subscribed_topics_must_be_allowed(node: CoordinatorNode, count: int) -> None:
    allow_group(node, AclOperation.READ)
    allow_topic(node, AclOperation.DESCRIBE)
    names = [PUBLIC] * (count - 1)
    denied = node.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, heartbeat_request(*names, SECRET), 1)
    assert denied.error_code == TOPIC_DENIED
    joined = node.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, heartbeat_request(*names, PUBLIC), 1)
    assert assigned(node, joined) == {PUBLIC}


@pytest.mark.parametrize("version", [0, 1])
def test_consumer_group_heartbeat_needs_read_of_the_group(node: CoordinatorNode, version: int) -> None:
    allow_group(node, AclOperation.DESCRIBE)
    allow_topic(node, AclOperation.DESCRIBE)
    denied = node.ask_refused(ApiKey.CONSUMER_GROUP_HEARTBEAT, heartbeat_request(PUBLIC), version)
    assert denied == ConsumerGroupHeartbeatResponse(0, GROUP_DENIED, None, None, 0, 0, None)
    assert group_states(node) == {}
    allow_group(node, AclOperation.READ)
    response = node.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, heartbeat_request(PUBLIC), version)
    assert assigned(node, response) == {PUBLIC}
    node.withdraw(AclOperation.READ, ResourceType.GROUP, "g")
    leave = ConsumerGroupHeartbeatRequest("g", "m", -1)
    assert node.ask_refused(ApiKey.CONSUMER_GROUP_HEARTBEAT, leave, version).error_code == GROUP_DENIED
    assert group_states(node) == {"g": "Stable"}


def test_consumer_group_heartbeat_needs_describe_of_all_topics(node: CoordinatorNode) -> None:
    allow_group(node, AclOperation.READ)
    allow_topic(node, AclOperation.DESCRIBE)
    for name in (SECRET, MISSING):
        denied = node.ask_refused(ApiKey.CONSUMER_GROUP_HEARTBEAT, heartbeat_request(PUBLIC, name))
        assert denied == ConsumerGroupHeartbeatResponse(0, TOPIC_DENIED, None, None, 0, 0, None)
    assert group_states(node) == {}
    assert node.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, heartbeat_request()).error_code == NONE


@pytest.mark.needs_re2
def test_a_pattern_matches_only_topics_that_the_member_may_describe(node: CoordinatorNode) -> None:
    allow_group(node, AclOperation.READ)
    allow_topic(node, AclOperation.DESCRIBE)
    response = node.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, heartbeat_request(regex="public|secret"))
    assert assigned(node, response) == {PUBLIC}
    allow_topic(node, AclOperation.DESCRIBE, SECRET)
    response = node.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, heartbeat_request(regex="publi.|secre."))
    assert assigned(node, response) == {PUBLIC, SECRET}


@pytest.mark.needs_re2
def test_a_classic_member_resolves_patterns_with_its_own_access(node: CoordinatorNode) -> None:
    """It joins a consumer group after a topic was created."""
    admins = node.ask_as_admin(ApiKey.CONSUMER_GROUP_HEARTBEAT, heartbeat_request(regex=".*(public|secret).*"))
    assert assigned(node, admins) == {PUBLIC, SECRET}
    allow_group(node, AclOperation.READ)
    allow_topic(node, AclOperation.DESCRIBE)
    node.in_memory.create_topic("secret2")
    node.run_until_idle()
    subscription = JoinGroupRequestProtocol("range", b"\x00\x00" + b"\x00\x00\x00\x00" + b"\xff\xff\xff\xff")
    join = JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", [subscription])
    assert node.ask(ApiKey.JOIN_GROUP, join, 3).error_code == NONE
    described = node.ask_as_admin(ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest(["g"])).groups[0]
    targets = [each.topic_name for member in described.members for each in member.target_assignment.topic_partitions]
    assert targets == [PUBLIC]


def test_consumer_group_describe_needs_describe_of_the_group_and_of_assigned_topics(
    node: CoordinatorNode,
) -> None:
    node.ask_as_admin(ApiKey.CONSUMER_GROUP_HEARTBEAT, heartbeat_request(PUBLIC, SECRET))
    request = ConsumerGroupDescribeRequest(["g", "nowhere"], include_authorized_operations=True)
    assert node.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, request).groups == [
        DescribedConsumerGroup(GROUP_DENIED, None, group_id, "", 0, 0, "", [], OPERATIONS_OMITTED)
        for group_id in ("g", "nowhere")
    ]
    allow_group(node, AclOperation.DESCRIBE)
    allow_topic(node, AclOperation.DESCRIBE)
    message = "The group has described topic(s) that the client is not authorized to describe."
    expected = DescribedConsumerGroup(TOPIC_DENIED, message, "g", "", 0, 0, "", [], OPERATIONS_OMITTED)
    assert node.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, request).groups[0] == expected
    allow_topic(node, AclOperation.DESCRIBE, SECRET)
    described = node.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, request).groups[0]
    assert (described.error_code, len(described.members)) == (NONE, 1)
    assert described.authorized_operations == bits([AclOperation.DESCRIBE])
    admins = node.ask_as_admin(ApiKey.CONSUMER_GROUP_DESCRIBE, request).groups[0]
    assert admins.authorized_operations == GROUP_OPERATIONS


def test_a_topic_that_a_member_only_subscribes_to_does_not_hide_the_group(node: CoordinatorNode) -> None:
    node.ask_as_admin(ApiKey.CONSUMER_GROUP_HEARTBEAT, heartbeat_request(PUBLIC, MISSING))
    allow_group(node, AclOperation.DESCRIBE)
    allow_topic(node, AclOperation.DESCRIBE)
    described = node.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest(["g"])).groups[0]
    assert (described.error_code, described.members[0].subscribed_topic_names) == (NONE, [MISSING, PUBLIC])


def test_a_topic_id_of_zero_is_unknown_and_not_forbidden(node: CoordinatorNode) -> None:
    allow_group(node, AclOperation.READ)
    topic = OffsetCommitRequestTopic(ZERO_UUID, "", [OffsetCommitRequestPartition(0, 1)])
    response = node.ask_refused(ApiKey.OFFSET_COMMIT, OffsetCommitRequest("g", topics=[topic]), 10)
    assert codes(response.topics) == [[ErrorCode.UNKNOWN_TOPIC_ID]]
