"""Share groups on an in-memory node: heartbeats, what administrators see and change, and crashes."""

from __future__ import annotations

from typing import Any

import pytest
from harness.fake_share_states import FakeShareStates
from harness.raised_faults import own_work
from harness.share_group_node import ORDERS, ShareGroupNode, alter_offsets, delete_offsets, describe_offsets
from harness.share_state_node import write_data

from moldau.base.acl_operations import AclOperation as Op
from moldau.base.errors import ErrorCode
from moldau.base.ids import ZERO_UUID
from moldau.metadata.controller.features import SHARE_VERSION
from moldau.runtime.coordinators.share_group_states import ShareGroupStates
from moldau.security.acls.bindings import ResourceType
from moldau.wire.apis import ApiKey
from moldau.wire.messages.delete_groups import DeleteGroupsRequest
from moldau.wire.messages.share_group_describe import ShareGroupDescribeRequest
from moldau.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from moldau.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

NONE = ErrorCode.NONE
UNKNOWN_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
ALL = {ORDERS: [0, 1, 2]}


@pytest.fixture
def node() -> ShareGroupNode:
    return ShareGroupNode()


# --- members ----------------------------------------------------------------------------------------------------


def test_a_member_gets_its_partitions_when_their_states_are_made(node: ShareGroupNode) -> None:
    assert node.assigned(node.heartbeat(0, ORDERS)) == {}
    response = node.heartbeat(2)
    assert (response.error_code, response.member_id, response.member_epoch) == (NONE, "m", 3)
    assert node.assigned(response) == ALL
    assert node.result(node.states.read(node.key(2), 0)).start_offset == -1
    described = node.describe()
    assert (described.group_state, described.assignor_name, described.group_epoch) == ("Stable", "simple", 3)
    assert [each.member_id for each in described.members] == ["m"]
    assert node.listed() == [("g", "share", "Stable", "share")]
    assert node.listed(types=["Share"], states=["stable"]) == node.listed()
    assert node.listed(types=["consumer"]) == node.listed(states=["Empty"]) == []


def test_a_group_goes_on_after_a_crash(node: ShareGroupNode) -> None:
    node.join(ORDERS)
    other = node.crash()
    response = other.heartbeat(3)
    assert (response.error_code, response.assignment) == (NONE, None)
    assert other.assigned(other.heartbeat(3, ORDERS)) == ALL
    assert other.leave().member_epoch == -1
    assert other.listed() == [("g", "share", "Empty", "share")]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (ShareGroupHeartbeatRequest("", "m", 0, None, [ORDERS]), ErrorCode.INVALID_REQUEST),
        (ShareGroupHeartbeatRequest("g", "", 0, None, [ORDERS]), ErrorCode.INVALID_REQUEST),
        (ShareGroupHeartbeatRequest("g", " ", 0, None, [ORDERS]), ErrorCode.INVALID_REQUEST),
        (ShareGroupHeartbeatRequest("g", "m" * 37, 0, None, [ORDERS]), ErrorCode.INVALID_REQUEST),
        (ShareGroupHeartbeatRequest("g", "m", 0, None, []), ErrorCode.INVALID_REQUEST),
        (ShareGroupHeartbeatRequest("g", "m", 0, None, None), ErrorCode.INVALID_REQUEST),
        (ShareGroupHeartbeatRequest("g", "m", -2, None, None), ErrorCode.INVALID_REQUEST),
        (ShareGroupHeartbeatRequest("g", "m", 1, None, None), ErrorCode.GROUP_ID_NOT_FOUND),
        (ShareGroupHeartbeatRequest("g", "m", -1, None, None), ErrorCode.GROUP_ID_NOT_FOUND),
        (ShareGroupHeartbeatRequest("g" * 40_000, "m", 0, None, [ORDERS]), ErrorCode.INVALID_REQUEST),
        (ShareGroupHeartbeatRequest("g", "m", 0, "", [ORDERS]), ErrorCode.INVALID_REQUEST),
        (ShareGroupHeartbeatRequest("g", "m", 0, None, ["n" * 250] * 9_000), ErrorCode.NONE),
        (ShareGroupHeartbeatRequest("g", "m", 0, None, ["", "/", "\0"]), ErrorCode.NONE),
    ],
)
def test_bad_heartbeats(node: ShareGroupNode, request_: ShareGroupHeartbeatRequest, code: ErrorCode) -> None:
    assert node.ask(ApiKey.SHARE_GROUP_HEARTBEAT, request_).error_code == code
    assert node.assigned(node.join(ORDERS, member="other")) == ALL


# --- offsets ----------------------------------------------------------------------------------------------------


def test_offsets_and_lags(node: ShareGroupNode) -> None:
    node.in_memory.append(ORDERS, 1, count=10)
    node.join(ORDERS)
    assert node.offsets() == {ORDERS: {0: (-1, -1), 1: (-1, -1), 2: (-1, -1)}}
    data = write_data(partition=1, state_epoch=2, start_offset=4, delivery_complete_count=3)
    assert node.result(node.states.write(node.key(1), data)) is NONE
    assert node.offsets()[ORDERS][1] == (4, 10 - 4 - 3)
    request = describe_offsets(topics={ORDERS: [1, 7], "missing": [0]})
    topics = node.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, request).groups[0].topics
    found = {
        (topic.topic_name, each.partition_index): (each.start_offset, each.lag, each.error_code)
        for topic in topics
        for each in topic.partitions
    }
    assert found == {(ORDERS, 1): (4, 3, NONE), (ORDERS, 7): (-1, -1, NONE), ("missing", 0): (-1, -1, NONE)}
    assert [topic.topic_id for topic in topics] == [node.topic_id, ZERO_UUID]
    assert node.offsets("unknown") == {}


def test_offsets_of_an_empty_group_can_be_set(node: ShareGroupNode) -> None:
    node.join(ORDERS)
    request = alter_offsets({ORDERS: {0: 5, 3: 1, -1: 1, 1: -2}, "missing": {0: 1}})
    response = node.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, request)
    assert response.error_code == ErrorCode.NON_EMPTY_GROUP
    node.leave()
    response = node.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, request)
    assert response.error_code == NONE
    codes = [[(p.partition_index, p.error_code) for p in topic.partitions] for topic in response.responses]
    invalid = ErrorCode.INVALID_REQUEST
    assert codes == [[(0, NONE), (3, UNKNOWN_TOPIC), (-1, UNKNOWN_TOPIC), (1, invalid)], [(0, UNKNOWN_TOPIC)]]
    assert node.result(node.states.read(node.key(0), 0)).start_offset == 5
    assert node.offsets()[ORDERS][0][0] == 5
    assert node.assigned(node.heartbeat(0, ORDERS)) == ALL


def test_setting_offsets_creates_a_group(node: ShareGroupNode) -> None:
    assert node.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, alter_offsets({ORDERS: {1: 5}}, "new")).error_code == NONE
    assert node.listed() == [("new", "share", "Empty", "share")]
    assert node.crash().offsets("new").keys() == {ORDERS}
    refused = node.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, alter_offsets({ORDERS: {1: 5}}, ""))
    assert refused.error_code == ErrorCode.INVALID_GROUP_ID


def test_offsets_of_an_empty_group_can_be_deleted(node: ShareGroupNode) -> None:
    refused = node.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, delete_offsets(ORDERS))
    assert (refused.error_code, refused.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found.")
    node.join(ORDERS)
    refused = node.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, delete_offsets(ORDERS))
    assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
    node.leave()
    response = node.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, delete_offsets(ORDERS, "missing"))
    results = {each.topic_name: (each.topic_id, each.error_code) for each in response.responses}
    assert results == {ORDERS: (node.topic_id, NONE), "missing": (ZERO_UUID, UNKNOWN_TOPIC)}
    assert node.offsets() == {}
    assert node.result(node.states.read(node.key(0), 0)).error_code == ErrorCode.INVALID_REQUEST
    (again,) = node.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, delete_offsets(ORDERS)).responses
    assert (again.error_code, again.error_message) == (UNKNOWN_TOPIC, "There is no offset information to delete.")


def test_deleting_a_group_deletes_its_states(node: ShareGroupNode) -> None:
    node.join(ORDERS)
    assert node.delete_group() == ErrorCode.NON_EMPTY_GROUP
    node.leave()
    assert node.delete_group() == NONE
    assert node.listed() == []
    assert node.result(node.states.read(node.key(0), 0)).error_code == ErrorCode.INVALID_REQUEST
    assert node.delete_group() == ErrorCode.GROUP_ID_NOT_FOUND
    assert node.crash().listed() == []


def test_a_group_whose_states_cannot_be_deleted_stays(node: ShareGroupNode) -> None:
    node.join(ORDERS)
    node.leave()
    broker = node.in_memory.assembly.broker_side
    assert broker is not None
    states, real = FakeShareStates(), broker.groups.share_states
    states.errors["delete", 1] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.groups.share_states = ShareGroupStates(states, broker.groups.submit, own_work(node.in_memory.timers))
    assert node.delete_group() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert node.listed() == [("g", "share", "Empty", "share")]
    broker.groups.share_states = real
    assert node.delete_group() == NONE
    assert node.listed() == []


# --- without the feature ----------------------------------------------------------------------------------------

HEARTBEAT = ShareGroupHeartbeatRequest("g", "m", 0, None, [ORDERS])


def test_without_the_feature_all_are_refused(node: ShareGroupNode) -> None:
    update = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(SHARE_VERSION, 0, upgrade_type=2)])
    node.in_memory.committed(node.in_memory.ask_controller(ApiKey.UPDATE_FEATURES, update))
    assert SHARE_VERSION not in node.in_memory.current.image.features
    unsupported = ErrorCode.UNSUPPORTED_VERSION
    assert node.ask(ApiKey.SHARE_GROUP_HEARTBEAT, HEARTBEAT).error_code == unsupported
    assert node.describe().error_code == unsupported
    assert node.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, describe_offsets()).groups[0].error_code == unsupported
    assert node.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, alter_offsets({ORDERS: {0: 1}})).error_code == unsupported
    assert node.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, delete_offsets(ORDERS)).error_code == unsupported


# --- access -----------------------------------------------------------------------------------------------------

GROUP_DENIED, TOPIC_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_heartbeat_needs_read_of_the_group_and_describe_of_its_topics(node: ShareGroupNode) -> None:
    def heartbeat(request: ShareGroupHeartbeatRequest = HEARTBEAT) -> int:
        return int(node.ask_restricted(ApiKey.SHARE_GROUP_HEARTBEAT, request).error_code)

    assert heartbeat() == GROUP_DENIED
    node.allow(Op.READ, ResourceType.GROUP, "g")
    assert heartbeat(ShareGroupHeartbeatRequest("g", "", 0, None, [ORDERS])) == ErrorCode.INVALID_REQUEST
    assert heartbeat() == TOPIC_DENIED
    assert heartbeat(ShareGroupHeartbeatRequest("g", "m", 0, None, [ORDERS] * 2_000)) == TOPIC_DENIED
    node.allow(Op.DESCRIBE, ResourceType.TOPIC, ORDERS)
    assert heartbeat() == NONE
    assert heartbeat(ShareGroupHeartbeatRequest("g", "m", 0, None, [ORDERS] * 2_000)) == NONE


def test_descriptions_need_describe_of_the_group_and_of_its_topics(node: ShareGroupNode) -> None:
    node.join(ORDERS)

    def describe() -> int:
        response = node.ask_restricted(ApiKey.SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest(["g"]))
        return int(response.groups[0].error_code)

    def offsets(topics: dict[str, list[int]] | None) -> Any:
        return node.ask_restricted(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, describe_offsets(topics=topics)).groups[0]

    assert describe() == offsets(None).error_code == offsets({ORDERS: [0]}).error_code == GROUP_DENIED
    node.allow(Op.DESCRIBE, ResourceType.GROUP, "g")
    assert describe() == TOPIC_DENIED
    assert (offsets(None).error_code, offsets(None).topics) == (NONE, [])
    (denied,) = offsets({ORDERS: [0]}).topics
    assert (denied.topic_id, denied.partitions[0].error_code) == (ZERO_UUID, TOPIC_DENIED)
    node.allow(Op.DESCRIBE, ResourceType.TOPIC, ORDERS)
    assert describe() == NONE
    assert [topic.topic_name for topic in offsets(None).topics] == [ORDERS]
    assert offsets({ORDERS: [0]}).topics[0].partitions[0].error_code == NONE


def test_setting_offsets_needs_read_of_the_group_and_of_each_topic(node: ShareGroupNode) -> None:
    def alter() -> Any:
        return node.ask_restricted(ApiKey.ALTER_SHARE_GROUP_OFFSETS, alter_offsets({ORDERS: {0: 1}}))

    assert alter().error_code == GROUP_DENIED
    node.allow(Op.READ, ResourceType.GROUP, "g")
    assert alter().responses[0].partitions[0].error_code == TOPIC_DENIED
    assert node.listed() == []
    node.allow(Op.READ, ResourceType.TOPIC, ORDERS)
    assert alter().responses[0].partitions[0].error_code == NONE


def test_deleting_offsets_needs_delete_of_the_group_and_read_of_each_topic(node: ShareGroupNode) -> None:
    node.join(ORDERS)
    node.leave()

    def delete() -> Any:
        return node.ask_restricted(ApiKey.DELETE_SHARE_GROUP_OFFSETS, delete_offsets(ORDERS))

    assert delete().error_code == GROUP_DENIED
    node.allow(Op.DELETE, ResourceType.GROUP, "g")
    assert delete().responses[0].error_code == TOPIC_DENIED
    assert node.offsets() != {}
    node.allow(Op.READ, ResourceType.TOPIC, ORDERS)
    assert delete().responses[0].error_code == NONE
    assert node.offsets() == {}
    deleted = node.ask_restricted(ApiKey.DELETE_GROUPS, DeleteGroupsRequest(["g"]))
    assert deleted.results[0].error_code == NONE
