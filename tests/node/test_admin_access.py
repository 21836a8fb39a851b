"""Authorization of administrative and controller APIs. Denied requests get the errors of Apache Kafka 4.3.1.

Requests go through the router, from the frame to the response. A denied request must not write to the metadata log.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest
from harness.attacked_cluster import AttackedCluster
from harness.declared_versions import FORWARDED, QUORUM_VERSIONS
from harness.guarded_node import ALICE, HOST, SUPER_USER, GuardedNode
from harness.in_memory_node import InMemoryNode

from moldau.base.acl_operations import (
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    OPERATIONS_OMITTED,
    TOPIC_OPERATIONS,
    AclOperation,
    bits,
)
from moldau.base.errors import ErrorCode, MalformedData
from moldau.base.ids import ZERO_UUID
from moldau.base.persistent_map import PersistentMap
from moldau.base.promise import Promise
from moldau.base.steps import finish
from moldau.base.topic_names import METADATA_TOPIC
from moldau.base.view_configs import VIEW_FROM
from moldau.security.acls.access import UNRESTRICTED, Unrestricted
from moldau.security.acls.allowed_operations import allowed_bits
from moldau.security.acls.bindings import Permission, ResourceType
from moldau.security.acls.requirements import TOPIC_READ, TOPIC_WRITE
from moldau.security.authorizer_settings import STANDARD_AUTHORIZER
from moldau.security.principals import Principal, parse_principal
from moldau.server.apis import requirements
from moldau.server.handlers.forwarded import ForwardedHandler
from moldau.server.handlers.forwarded.delete_topics import DeleteTopics
from moldau.wire.apis import ApiKey, request_class
from moldau.wire.frames import read_response, request_frame
from moldau.wire.messages import alter_configs, incremental_alter_configs
from moldau.wire.messages.add_raft_voter import AddRaftVoterRequest
from moldau.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from moldau.wire.messages.alter_partition import AlterPartitionRequest
from moldau.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from moldau.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.wire.messages.broker_registration import BrokerRegistrationRequest
from moldau.wire.messages.create_acls import AclCreation, CreateAclsRequest
from moldau.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from moldau.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from moldau.wire.messages.describe_acls import DescribeAclsRequest
from moldau.wire.messages.describe_cluster import DescribeClusterRequest
from moldau.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from moldau.wire.messages.describe_quorum import DescribeQuorumRequest
from moldau.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from moldau.wire.messages.envelope import EnvelopeRequest
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from moldau.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from moldau.wire.messages.unregister_broker import UnregisterBrokerRequest
from moldau.wire.messages.update_features import UpdateFeaturesRequest
from moldau.wire.messages.update_raft_voter import KRaftVersionFeature, UpdateRaftVoterRequest
from moldau.wire.schema import Message

E, Op, On = ErrorCode, AclOperation, ResourceType
TOPIC_TEXT = "Topic authorization failed."
GROUP_TEXT = "Group authorization failed."
CLUSTER_TEXT = "Cluster authorization failed."
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.fixture
def guarded() -> GuardedNode:
    return GuardedNode()


@pytest.fixture(params=[False, True], ids=["broker", "controller"])
def of_controller(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


# --- CreateTopics -------------------------------------------------------------------------------------------------


def create(*names: str) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(name, 2, 1) for name in names])


@pytest.mark.parametrize("version", [2, 5, 7])
def test_denied_topics_are_listed_after_the_created_ones(
    guarded: GuardedNode, of_controller: bool, version: int
) -> None:
    guarded.allow_topic(Op.CREATE, "mine")
    guarded.allow_topic(Op.DESCRIBE_CONFIGS, "mine")
    request = create("theirs", "mine", "not a name")
    response = guarded.ask(ApiKey.CREATE_TOPICS, request, version, of_controller=of_controller)
    mine, *denied = response.topics
    assert (mine.name, mine.error_code, mine.error_message) == ("mine", 0, None)
    if version >= 5:
        assert (mine.topic_config_error_code, mine.num_partitions, mine.replication_factor) == (0, 2, 1)
        assert len(mine.configs) > 20
    for result, name in zip(denied, ["theirs", "not a name"], strict=True):
        assert (result.name, result.error_code) == (name, E.TOPIC_AUTHORIZATION_FAILED)
        assert (result.error_message, result.topic_id) == ("Authorization failed.", ZERO_UUID)
        assert (result.num_partitions, result.replication_factor, result.topic_config_error_code) == (-1, -1, 0)
        assert list(result.configs) == []
    assert guarded.topics == {"mine"}


def test_a_wholly_denied_creation_writes_no_metadata(guarded: GuardedNode, of_controller: bool) -> None:
    before = guarded.end_offset
    response = guarded.ask(ApiKey.CREATE_TOPICS, create("a", "b"), 7, of_controller=of_controller)
    assert [each.error_code for each in response.topics] == [E.TOPIC_AUTHORIZATION_FAILED] * 2
    assert (guarded.end_offset, guarded.topics) == (before, set())


def test_a_denied_creation_does_not_reveal_whether_the_topic_exists(guarded: GuardedNode) -> None:
    guarded.node.create_topic("theirs")
    results = guarded.ask(ApiKey.CREATE_TOPICS, create("theirs", "nobodys"), 7).topics
    assert [(each.error_code, each.error_message) for each in results] == [(29, "Authorization failed.")] * 2


def test_create_on_the_cluster_allows_every_topic(guarded: GuardedNode) -> None:
    guarded.allow_cluster(Op.CREATE)
    guarded.node.create_topic("old")
    results = guarded.ask(ApiKey.CREATE_TOPICS, create("new", "old"), 7).topics
    assert [(each.name, each.error_code) for each in results] == [("new", 0), ("old", E.TOPIC_ALREADY_EXISTS)]


@pytest.mark.parametrize("version", [2, 5, 7])
def test_configs_of_a_new_topic_are_hidden_without_describe_configs(guarded: GuardedNode, version: int) -> None:
    guarded.allow_cluster(Op.CREATE)
    guarded.allow_topic(Op.ALTER_CONFIGS, "open")
    shown, hidden = guarded.ask(ApiKey.CREATE_TOPICS, create("open", "hidden"), version).topics
    assert [shown.error_code, hidden.error_code, hidden.error_message] == [0, 0, None]
    if version >= 5:
        assert (shown.topic_config_error_code, shown.num_partitions, len(shown.configs) > 20) == (0, 2, True)
        assert hidden.topic_config_error_code == E.TOPIC_AUTHORIZATION_FAILED
        assert (hidden.num_partitions, hidden.replication_factor, list(hidden.configs)) == (-1, -1, [])
    if version >= 7:
        assert hidden.topic_id == guarded.node.current.image.topics["hidden"].id
    assert guarded.topics == {"open", "hidden"}


def test_duplicates_and_the_metadata_topic_are_refused_before_authorization(guarded: GuardedNode) -> None:
    results = guarded.ask(ApiKey.CREATE_TOPICS, create("twice", METADATA_TOPIC, "twice", "once"), 7).topics
    assert [(each.name, each.error_code) for each in results] == [
        ("twice", E.INVALID_REQUEST),
        (METADATA_TOPIC, E.INVALID_REQUEST),
        ("once", E.TOPIC_AUTHORIZATION_FAILED),
    ]
    assert guarded.topics == set()


def test_a_duplicate_name_is_refused_even_if_one_of_the_two_is_a_denied_view(
    guarded: GuardedNode,
) -> None:
    """Otherwise the other one would be created without permission."""
    guarded.node.create_topic("secret")
    request = create("twice", "twice")
    request.topics[1].configs = [CreatableTopicConfig(VIEW_FROM, "secret")]
    results = guarded.ask(ApiKey.CREATE_TOPICS, request, 7).topics
    assert [(each.name, each.error_code) for each in results] == [("twice", E.INVALID_REQUEST)]
    assert guarded.topics == {"secret"}


def test_validate_only_is_kept_when_denied_topics_are_removed(guarded: GuardedNode) -> None:
    guarded.allow_topic(Op.CREATE, "mine")
    request = create("mine", "theirs")
    request.validate_only = True
    results = guarded.ask(ApiKey.CREATE_TOPICS, request, 7).topics
    assert ([each.error_code for each in results], guarded.topics) == ([0, 29], set())


# --- DeleteTopics -------------------------------------------------------------------------------------------------


def delete_results(response: Any) -> dict[tuple[str | None, bytes], tuple[int, str | None]]:
    return {(each.name, each.topic_id): (each.error_code, each.error_message) for each in response.responses}


@pytest.mark.parametrize("version", [1, 4, 5, 6])
def test_deleting_topics_by_name_needs_delete(guarded: GuardedNode, of_controller: bool, version: int) -> None:
    for name in ("hidden", "seen", "mine"):
        guarded.node.create_topic(name)
    for name in ("seen", "seen-missing"):
        guarded.allow_topic(Op.DESCRIBE, name)
    for name in ("mine", "mine-missing"):
        guarded.allow_topic(Op.DELETE, name)
    names = ["hidden", "hidden-missing", "seen", "seen-missing", "mine-missing", "mine"]
    request = DeleteTopicsRequest([DeleteTopicState(name) for name in names], names)
    mine_id = guarded.node.current.image.topics["mine"].id if version >= 6 else ZERO_UUID
    results = delete_results(guarded.ask(ApiKey.DELETE_TOPICS, request, version, of_controller=of_controller))
    denied, unknown = E.TOPIC_AUTHORIZATION_FAILED, E.UNKNOWN_TOPIC_OR_PARTITION
    assert {key: code for key, (code, _) in results.items()} == {
        ("hidden", ZERO_UUID): denied,
        ("hidden-missing", ZERO_UUID): denied,
        ("seen", ZERO_UUID): denied,
        ("seen-missing", ZERO_UUID): unknown,
        ("mine-missing", ZERO_UUID): unknown,
        ("mine", mine_id): 0,
    }
    messages = {message for code, message in results.values() if code == denied}
    assert messages == {TOPIC_TEXT if version >= 5 else None}
    texts = {message for code, message in results.values() if code == unknown}
    assert len(texts) == 1, "the broker and the controller use the same text for a missing topic"
    assert guarded.topics == {"hidden", "seen"}


def test_deleting_topics_by_id_needs_delete(guarded: GuardedNode, of_controller: bool) -> None:
    ids = {name: guarded.node.create_topic(name) for name in ("hidden", "seen", "mine")}
    unknown = bytes([1]) * 16
    guarded.allow_topic(Op.DESCRIBE, "seen")
    guarded.allow_topic(Op.DELETE, "mine")
    request = DeleteTopicsRequest([DeleteTopicState(None, id) for id in [unknown, *ids.values()]])
    results = delete_results(guarded.ask(ApiKey.DELETE_TOPICS, request, 6, of_controller=of_controller))
    assert results == {
        (None, unknown): (E.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."),
        (None, ids["hidden"]): (E.TOPIC_AUTHORIZATION_FAILED, TOPIC_TEXT),
        ("seen", ids["seen"]): (E.TOPIC_AUTHORIZATION_FAILED, TOPIC_TEXT),
        ("mine", ids["mine"]): (0, None),
    }
    assert guarded.topics == {"hidden", "seen"}


def test_a_client_denied_describe_can_delete_a_topic_only_by_id(guarded: GuardedNode) -> None:
    topic_id = guarded.node.create_topic("odd")
    guarded.allow_topic(Op.DELETE, "odd")
    guarded.allow(Op.DESCRIBE, On.TOPIC, "odd", permission=Permission.DENY)
    by_name = guarded.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest([DeleteTopicState("odd")]), 6)
    assert delete_results(by_name) == {("odd", ZERO_UUID): (E.TOPIC_AUTHORIZATION_FAILED, TOPIC_TEXT)}
    guarded.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest([DeleteTopicState(None, topic_id)]), 6)
    assert guarded.topics == set()


def test_invalid_delete_topics_entries_are_refused_before_authorization(guarded: GuardedNode) -> None:
    topic_id = guarded.node.create_topic("theirs")
    entries = [
        DeleteTopicState("theirs", topic_id),
        DeleteTopicState(None, ZERO_UUID),
        DeleteTopicState("twice"),
        DeleteTopicState("twice"),
        DeleteTopicState("theirs"),
    ]
    results = guarded.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(entries), 6).responses
    assert sorted(each.error_code for each in results) == [29, 42, 42, 42, 42]
    assert guarded.topics == {"theirs"}


def test_delete_on_the_cluster_allows_every_topic_and_keeps_the_order(guarded: GuardedNode) -> None:
    guarded.allow_cluster(Op.ALL)
    guarded.node.create_topic("a")
    names = ["missing", "a", *map(str, range(20))]
    response = guarded.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topic_names=names), 5)
    assert [each.name for each in response.responses] == names
    assert guarded.topics == set()


def test_delete_topics_results_are_shuffled_if_a_topic_was_denied(guarded: GuardedNode) -> None:
    names = [str(number) for number in range(50)]
    guarded.allow(Op.DELETE, On.TOPIC, "0")
    results = guarded.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topic_names=names), 5).responses
    order = [each.name for each in results]
    assert (sorted(order), order == names, order[1:] + order[:1] == names) == (sorted(names), False, False)


def unexpected_call(*_: object) -> Promise[Any]:
    raise AssertionError("nothing is forwarded")


def test_the_shuffled_order_depends_only_on_the_random_seed(guarded: GuardedNode) -> None:
    request = DeleteTopicsRequest(topic_names=[str(number) for number in range(50)])
    access = guarded.node.assembly.access(UNRESTRICTED.principal, "h")
    orders = []
    for seed in (1, 1, 2):
        handler = DeleteTopics(unexpected_call, guarded.node.timers, guarded.node.current, Random(seed))
        allowed, complete = finish(handler.authorize(request, access))
        assert allowed is None
        response: Any = finish(complete(DeleteTopicsResponse()))
        orders.append([each.name for each in response.responses])
    assert (orders[0] == orders[1], orders[0] == orders[2]) == (True, False)


def test_a_broker_does_not_forward_a_deletion_that_it_cannot_authorize(guarded: GuardedNode) -> None:
    """The controller may know a topic that is not in the broker's metadata image yet."""
    node = InMemoryNode()
    authorize = DeleteTopics(unexpected_call, node.timers, node.current, Random(1)).authorize
    access = guarded.node.assembly.access(parse_principal(ALICE), HOST)
    topic_id = guarded.node.create_topic("new")
    guarded.allow_topic(Op.DESCRIBE, "new")

    def allowed(topic: DeleteTopicState) -> Message | None:
        return finish(authorize(DeleteTopicsRequest([topic]), access)).request

    assert allowed(DeleteTopicState("new")) is None
    guarded.allow_topic(Op.DELETE, "new")
    assert allowed(DeleteTopicState(None, topic_id)) is None
    assert allowed(DeleteTopicState("new")) is not None


# --- CreatePartitions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 3])
def test_create_partitions_needs_alter_on_the_topic(guarded: GuardedNode, of_controller: bool, version: int) -> None:
    for name in ("mine", "theirs"):
        guarded.node.create_topic(name)
    guarded.allow_topic(Op.ALTER, "mine")
    names = ["theirs", "missing", "mine", "twice", "twice"]
    request = CreatePartitionsRequest([CreatePartitionsTopic(name, 3, None) for name in names])
    results = guarded.ask(ApiKey.CREATE_PARTITIONS, request, version, of_controller=of_controller).results
    assert [(each.name, each.error_code, each.error_message) for each in results] == [
        ("mine", 0, None),
        ("twice", E.INVALID_REQUEST, "Duplicate topic name."),
        ("theirs", E.TOPIC_AUTHORIZATION_FAILED, None),
        ("missing", E.TOPIC_AUTHORIZATION_FAILED, None),
    ]
    topics = guarded.node.current.image.topics
    assert [len(topics[name].partitions) for name in ("mine", "theirs")] == [3, 1]


# --- configs ------------------------------------------------------------------------------------------------------

CONFIG_RESOURCES = [
    (TOPIC, "theirs"),
    (TOPIC, "missing"),
    (GROUP, "g"),
    (BROKER, "1"),
    (BROKER, ""),
    (BROKER_LOGGER, "1"),
    (CLIENT_METRICS, "m"),
    (TOPIC, "mine"),
    (99, "x"),
]
CONFIG_ERRORS = [
    (E.TOPIC_AUTHORIZATION_FAILED, TOPIC_TEXT, TOPIC, "theirs"),
    (E.TOPIC_AUTHORIZATION_FAILED, TOPIC_TEXT, TOPIC, "missing"),
    (E.GROUP_AUTHORIZATION_FAILED, GROUP_TEXT, GROUP, "g"),
    (E.CLUSTER_AUTHORIZATION_FAILED, CLUSTER_TEXT, BROKER, "1"),
    (E.CLUSTER_AUTHORIZATION_FAILED, CLUSTER_TEXT, BROKER, ""),
    (E.CLUSTER_AUTHORIZATION_FAILED, CLUSTER_TEXT, BROKER_LOGGER, "1"),
    (E.CLUSTER_AUTHORIZATION_FAILED, CLUSTER_TEXT, CLIENT_METRICS, "m"),
]


def alter_request(api: ApiKey, resources: list[tuple[int, str]]) -> Message:
    if api is ApiKey.ALTER_CONFIGS:
        config = alter_configs.AlterableConfig("retention.ms", "5")
        return alter_configs.AlterConfigsRequest(
            [alter_configs.AlterConfigsResource(*key, [config]) for key in resources]
        )
    change = incremental_alter_configs.AlterableConfig("retention.ms", 0, "5")
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        [incremental_alter_configs.AlterConfigsResource(*key, [change]) for key in resources]
    )


@pytest.mark.parametrize("api", [ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS], ids=lambda api: api.name)
@pytest.mark.parametrize("version", [0, 1])
def test_altering_configs_needs_alter_configs(
    guarded: GuardedNode, of_controller: bool, api: ApiKey, version: int
) -> None:
    for name in ("mine", "theirs"):
        guarded.node.create_topic(name)
    guarded.allow_topic(Op.ALTER_CONFIGS, "mine")
    request = alter_request(api, [*CONFIG_RESOURCES, (TOPIC, "twice"), (TOPIC, "twice")])
    mine, unknown, twice, again, *denied = guarded.ask(api, request, version, of_controller=of_controller).responses
    assert (mine.error_code, mine.resource_name) == (0, "mine")
    assert [each.error_code for each in (unknown, twice, again)] == [E.INVALID_REQUEST] * 3
    found = [(each.error_code, each.error_message, each.resource_type, each.resource_name) for each in denied]
    assert found == CONFIG_ERRORS
    assert dict(guarded.node.current.image.configs) == {(TOPIC, "mine"): {"retention.ms": "5"}}


@pytest.mark.parametrize("api", [ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS], ids=lambda api: api.name)
def test_altering_broker_configs_needs_alter_configs_on_the_cluster(guarded: GuardedNode, api: ApiKey) -> None:
    guarded.allow_cluster(Op.ALTER_CONFIGS)
    (altered,) = guarded.ask(api, alter_request(api, [(BROKER, "")]), 1).responses
    assert altered.error_code == E.NONE
    (denied,) = guarded.ask(api, alter_request(api, [(TOPIC, "t")]), 1).responses
    assert denied.error_code == E.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", [1, 4])
def test_describing_configs_needs_describe_configs(guarded: GuardedNode, of_controller: bool, version: int) -> None:
    for name in ("mine", "theirs"):
        guarded.node.create_topic(name)
    guarded.allow_topic(Op.DESCRIBE_CONFIGS, "mine")
    guarded.allow_topic(Op.DESCRIBE, "theirs")
    *known, unknown = CONFIG_RESOURCES
    request = DescribeConfigsRequest([DescribeConfigsResource(*key, None) for key in known])
    ask = partial(guarded.ask, ApiKey.DESCRIBE_CONFIGS, version=version, of_controller=of_controller)
    *denied, mine = ask(request).results
    assert (mine.error_code, len(mine.configs) > 20) == (0, True)
    refused = DescribeConfigsRequest([DescribeConfigsResource(*unknown, None)])
    assert ask(refused).results[0].error_code == E.INVALID_REQUEST
    found = [(each.error_code, each.error_message, each.resource_type, each.resource_name) for each in denied]
    assert found == CONFIG_ERRORS
    assert not any(each.configs for each in denied)
    guarded.allow_cluster(Op.DESCRIBE_CONFIGS)
    brokers = DescribeConfigsRequest([DescribeConfigsResource(BROKER, "1", None)])
    assert ask(brokers).results[0].error_code == E.NONE


# --- requests that need one permission on the cluster -------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_denied_election_reports_every_partition(guarded: GuardedNode, of_controller: bool, version: int) -> None:
    request = ElectLeadersRequest(0, [TopicPartitions("a", [0, 7]), TopicPartitions("b", [1])])
    response = guarded.ask(ApiKey.ELECT_LEADERS, request, version, of_controller=of_controller)
    assert response.error_code == (E.CLUSTER_AUTHORIZATION_FAILED if version >= 1 else 0)
    found = [
        (topic.topic, each.partition_id, each.error_code, each.error_message)
        for topic in response.replica_election_results
        for each in topic.partition_result
    ]
    assert found == [(name, index, 31, CLUSTER_TEXT) for name, index in [("a", 0), ("a", 7), ("b", 1)]]
    of_all = guarded.ask(ApiKey.ELECT_LEADERS, ElectLeadersRequest(0, None), version, of_controller=of_controller)
    assert list(of_all.replica_election_results) == []


@pytest.mark.parametrize("version", [0, 1])
def test_a_denied_reassignment_reports_every_partition(guarded: GuardedNode, of_controller: bool, version: int) -> None:
    topics = [ReassignableTopic("a", [ReassignablePartition(0, [1]), ReassignablePartition(5, None)])]
    request = AlterPartitionReassignmentsRequest(topics=topics)
    response = guarded.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request, version, of_controller=of_controller)
    assert (response.error_code, response.error_message) == (31, CLUSTER_TEXT)
    found = [(each.partition_index, each.error_code, each.error_message) for each in response.responses[0].partitions]
    assert (response.responses[0].name, found) == ("a", [(0, 31, CLUSTER_TEXT), (5, 31, CLUSTER_TEXT)])


def test_a_denied_list_of_reassignments_has_empty_replicas(guarded: GuardedNode, of_controller: bool) -> None:
    request = ListPartitionReassignmentsRequest(topics=[ListPartitionReassignmentsTopics("a", [0, 5])])
    response = guarded.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, request, 0, of_controller=of_controller)
    assert (response.error_code, response.error_message, response.topics[0].name) == (31, CLUSTER_TEXT, "a")
    assert [(each.partition_index, list(each.replicas)) for each in response.topics[0].partitions] == [(0, []), (5, [])]


CLUSTER_ADMIN_REQUESTS: list[tuple[ApiKey, int, Message, Op, bool]] = [
    (ApiKey.UPDATE_FEATURES, 0, UpdateFeaturesRequest(), Op.ALTER, True),
    (ApiKey.UPDATE_FEATURES, 2, UpdateFeaturesRequest(), Op.ALTER, True),
    (ApiKey.UNREGISTER_BROKER, 0, UnregisterBrokerRequest(77), Op.ALTER, True),
    (ApiKey.ADD_RAFT_VOTER, 0, AddRaftVoterRequest("x"), Op.ALTER, True),
    (ApiKey.ADD_RAFT_VOTER, 1, AddRaftVoterRequest("x"), Op.ALTER, True),
    (ApiKey.REMOVE_RAFT_VOTER, 0, RemoveRaftVoterRequest("x"), Op.ALTER, True),
    (ApiKey.DESCRIBE_QUORUM, 0, DescribeQuorumRequest(), Op.DESCRIBE, False),
    (ApiKey.DESCRIBE_QUORUM, 2, DescribeQuorumRequest(), Op.DESCRIBE, True),
]


@pytest.mark.parametrize(
    ("api", "version", "request_", "operation", "has_message"),
    CLUSTER_ADMIN_REQUESTS,
    ids=[f"{e[0].name}-{e[1]}" for e in CLUSTER_ADMIN_REQUESTS],
)
def test_cluster_admin_requests_need_a_permission_on_the_cluster(
    guarded: GuardedNode,
    of_controller: bool,
    api: ApiKey,
    version: int,
    request_: Message,
    operation: Op,
    has_message: bool,
) -> None:
    before = guarded.end_offset
    response = guarded.ask(api, request_, version, of_controller=of_controller)
    assert response.error_code == E.CLUSTER_AUTHORIZATION_FAILED
    assert not has_message or response.error_message == CLUSTER_TEXT
    for field in ("results", "topics", "nodes"):
        assert not getattr(response, field, ())
    assert guarded.end_offset == before
    guarded.allow_cluster(operation)
    allowed = guarded.ask(api, request_, version, of_controller=of_controller)
    assert allowed.error_code != E.CLUSTER_AUTHORIZATION_FAILED


def apis_between_nodes() -> list[tuple[ApiKey, int]]:
    quorum = {ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.FETCH_SNAPSHOT}
    versions = {api: QUORUM_VERSIONS[api] for api in (*sorted(quorum), ApiKey.UPDATE_RAFT_VOTER)}
    versions |= {
        ApiKey.BROKER_REGISTRATION: (0, 4),
        ApiKey.BROKER_HEARTBEAT: (0, 2),
        ApiKey.ALTER_PARTITION: (2, 3),
        ApiKey.ALLOCATE_PRODUCER_IDS: (0, 0),
    }
    return [(api, version) for api, bounds in versions.items() for version in sorted(set(bounds))]


def node_request(api: ApiKey) -> Message:
    made: dict[ApiKey, Message] = {
        ApiKey.UPDATE_RAFT_VOTER: UpdateRaftVoterRequest("x", k_raft_version_feature=KRaftVersionFeature()),
        ApiKey.BROKER_REGISTRATION: BrokerRegistrationRequest(5, "x"),
        ApiKey.BROKER_HEARTBEAT: BrokerHeartbeatRequest(5, -1),
        ApiKey.ALTER_PARTITION: AlterPartitionRequest(5, -1),
        ApiKey.ALLOCATE_PRODUCER_IDS: AllocateProducerIdsRequest(5, -1),
    }
    return made.get(api) or request_class(api)()


@pytest.mark.parametrize(("api", "version"), apis_between_nodes(), ids=lambda value: getattr(value, "name", str(value)))
def test_requests_between_nodes_need_cluster_action(guarded: GuardedNode, api: ApiKey, version: int) -> None:
    guarded.allow_cluster(Op.ALTER)
    before = guarded.end_offset
    response = guarded.ask(api, node_request(api), version, of_controller=True)
    assert response.error_code == E.CLUSTER_AUTHORIZATION_FAILED
    empty = type(response)(error_code=response.error_code)
    for field in type(response).__slots__:
        value, default = getattr(response, field), getattr(empty, field)
        assert value == default or (not value and not default), field
    assert guarded.end_offset == before
    guarded.allow_cluster(Op.CLUSTER_ACTION)
    allowed = guarded.ask(api, node_request(api), version, of_controller=True)
    assert allowed.error_code != E.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", [4, 7, 12, 13, 18])
def test_a_fetch_of_the_metadata_log_needs_cluster_action(guarded: GuardedNode, version: int) -> None:
    topic = FetchTopic(bytes(15) + b"\1", METADATA_TOPIC, [FetchPartition(0)])
    request = FetchRequest(session_id=55, topics=[topic])
    response = guarded.ask(ApiKey.FETCH, request, version, of_controller=True)
    if version >= 7:
        assert (response.error_code, response.session_id) == (E.CLUSTER_AUTHORIZATION_FAILED, 55)
    if version >= 13:
        assert list(response.responses) == []
    else:
        (partition,) = response.responses[0].partitions
        assert (response.responses[0].topic, partition.partition_index) == (METADATA_TOPIC, 0)
        assert (partition.error_code, partition.high_watermark) == (E.CLUSTER_AUTHORIZATION_FAILED, -1)
    guarded.allow_cluster(Op.CLUSTER_ACTION)
    assert guarded.ask(ApiKey.FETCH, request, version, of_controller=True).error_code != 31


def test_a_denied_heartbeat_does_not_tie_the_broker_to_its_connection(guarded: GuardedNode) -> None:
    """Otherwise any client could shorten the session of a broker: send a heartbeat with its id and disconnect."""
    side = guarded.node.assembly.controller_side
    assert side is not None
    duties, epoch = side.duties, guarded.node.current.image.brokers[1].epoch
    before_ms = duties._sessions.next_deadline_ms()

    def beat_and_disconnect() -> Any:
        response = guarded.ask(ApiKey.BROKER_HEARTBEAT, BrokerHeartbeatRequest(1, epoch), 1, of_controller=True)
        duties.connection_gone(f"{HOST}:5555")
        return response

    denied = beat_and_disconnect()
    assert (denied.error_code, denied.is_fenced, denied.should_shut_down) == (31, True, False)
    assert duties._sessions.next_deadline_ms() == before_ms
    guarded.allow_cluster(Op.CLUSTER_ACTION)
    assert beat_and_disconnect().error_code == E.NONE
    assert duties._sessions.next_deadline_ms() != before_ms, "an accepted heartbeat ties the broker to its connection"


# --- envelopes ----------------------------------------------------------------------------------------------------


def test_an_envelope_needs_cluster_action(guarded: GuardedNode) -> None:
    inner = bytes(request_frame(ApiKey.CREATE_TOPICS, 7, 3, "client", create("forwarded")))[4:]
    before = guarded.end_offset
    denied = guarded.ask(ApiKey.ENVELOPE, EnvelopeRequest(inner, None), 0, of_controller=True)
    assert (denied.error_code, denied.response_data) == (E.CLUSTER_AUTHORIZATION_FAILED, None)
    assert (guarded.end_offset, guarded.topics) == (before, set())
    guarded.allow_cluster(Op.CLUSTER_ACTION)
    opened = guarded.ask(ApiKey.ENVELOPE, EnvelopeRequest(inner, None), 0, of_controller=True)
    assert opened.error_code == E.NONE
    _, response = read_response(CreateTopicsResponse, opened.response_data, ApiKey.CREATE_TOPICS, 7)
    assert response.topics[0].error_code == E.NONE
    assert guarded.topics == {"forwarded"}


# --- the cluster and its directories ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        ((), 0),
        ((Op.CLUSTER_ACTION,), 0),
        ((Op.DESCRIBE,), bits([Op.DESCRIBE])),
        ((Op.ALTER, Op.CREATE), bits([Op.ALTER, Op.DESCRIBE, Op.CREATE])),
        ((Op.ALL,), CLUSTER_OPERATIONS),
    ],
)
def test_describe_cluster_of_a_broker_shows_the_allowed_operations(
    guarded: GuardedNode, allowed: tuple[Op, ...], expected: int
) -> None:
    for operation in allowed:
        guarded.allow_cluster(operation)
    response = guarded.ask(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(True), 0)
    assert (response.error_code, len(response.brokers)) == (0, 1), "brokers are listed for every client"
    assert response.cluster_authorized_operations == expected
    unasked = guarded.ask(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(False), 0)
    assert unasked.cluster_authorized_operations == OPERATIONS_OMITTED


def test_describe_cluster_names_an_active_broker_as_the_controller(guarded: GuardedNode) -> None:
    current = guarded.node.current
    (broker,) = current.image.brokers.values()
    others = {0: replace(broker, id=0, fenced=True), broker.id: broker}
    current.image = replace(current.image, brokers=PersistentMap(others))
    response = guarded.ask(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(include_fenced_brokers=True), 2)
    assert ([each.broker_id for each in response.brokers], response.controller_id) == ([0, broker.id], broker.id)


def test_describe_cluster_of_a_controller_needs_alter(guarded: GuardedNode) -> None:
    request = DescribeClusterRequest(True, 2)
    guarded.allow_cluster(Op.DESCRIBE)
    response = guarded.ask(ApiKey.DESCRIBE_CLUSTER, request, 1, of_controller=True)
    assert (response.error_code, response.error_message) == (E.CLUSTER_AUTHORIZATION_FAILED, CLUSTER_TEXT)
    assert (list(response.brokers), response.cluster_id) == ([], "")
    guarded.allow_cluster(Op.ALTER)
    response = guarded.ask(ApiKey.DESCRIBE_CLUSTER, request, 1, of_controller=True)
    assert (response.error_code, len(response.brokers)) == (0, 1)
    assert response.cluster_authorized_operations == bits([Op.ALTER, Op.DESCRIBE])


def test_an_unrestricted_client_has_all_operations() -> None:
    for access in (UNRESTRICTED, Unrestricted()):
        assert allowed_bits(access, On.CLUSTER) == CLUSTER_OPERATIONS
        assert allowed_bits(access, On.TOPIC, "t") == TOPIC_OPERATIONS
        assert allowed_bits(access, On.GROUP, "g") == GROUP_OPERATIONS


@pytest.mark.parametrize("version", [1, 2, 3, 5])
def test_describe_log_dirs_needs_describe_on_the_cluster(guarded: GuardedNode, version: int) -> None:
    request = DescribeLogDirsRequest(None)
    response = guarded.ask(ApiKey.DESCRIBE_LOG_DIRS, request, version)
    assert list(response.results) == []
    assert response.error_code == (E.CLUSTER_AUTHORIZATION_FAILED if version >= 3 else 0)
    guarded.allow_cluster(Op.DESCRIBE)
    assert len(guarded.ask(ApiKey.DESCRIBE_LOG_DIRS, request, version).results) == 1


@pytest.mark.parametrize("version", [1, 2])
def test_moving_replicas_needs_alter_on_the_cluster(guarded: GuardedNode, version: int) -> None:
    guarded.node.create_topic("a")
    topics = [AlterReplicaLogDirTopic("a", [0, 1]), AlterReplicaLogDirTopic("missing", [0])]
    request = AlterReplicaLogDirsRequest([AlterReplicaLogDir(os.path.abspath("data"), topics)])

    def codes() -> list[tuple[str, int, int]]:
        results = guarded.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, request, version).results
        return [
            (topic.topic_name, each.partition_index, each.error_code) for topic in results for each in topic.partitions
        ]

    assert codes() == [("a", 0, 31), ("a", 1, 31), ("missing", 0, 31)]
    guarded.allow_cluster(Op.ALTER)
    assert codes() == [("a", 0, 0), ("a", 1, E.REPLICA_NOT_AVAILABLE), ("missing", 0, E.REPLICA_NOT_AVAILABLE)]


# --- the ACL APIs -------------------------------------------------------------------------------------------------

ANY = 1


def an_acl(name: str, **fields: object) -> AclCreation:
    made = AclCreation(On.TOPIC, name, 3, ALICE, "*", Op.READ, Permission.ALLOW)
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def an_acl_filter(**fields: object) -> DeleteAclsFilter:
    made = DeleteAclsFilter(On.TOPIC, None, ANY, None, None, ANY, ANY)
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def describe_acls_request(**fields: object) -> DescribeAclsRequest:
    made = DescribeAclsRequest(On.TOPIC, None, ANY, None, None, ANY, ANY)
    for field, value in fields.items():
        setattr(made, field, value)
    return made


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls_are_created_described_enforced_and_deleted(
    guarded: GuardedNode, of_controller: bool, version: int
) -> None:
    def ask(api: ApiKey, request: Message) -> Any:
        return guarded.ask(api, request, version, SUPER_USER, of_controller=of_controller)

    creations = [an_acl("b", operation=Op.CREATE), an_acl("a", host="h"), an_acl("a"), an_acl("")]
    results = ask(ApiKey.CREATE_ACLS, CreateAclsRequest(creations)).results
    assert [(each.error_code, each.error_message) for each in results] == [
        *[(0, "")] * 3,
        (E.INVALID_REQUEST, "Invalid empty resource name"),
    ]
    described = ask(ApiKey.DESCRIBE_ACLS, describe_acls_request())
    assert (described.error_code, described.error_message) == (0, "")
    assert [(each.resource_type, each.resource_name, each.pattern_type) for each in described.resources] == [
        (2, "a", 3),
        (2, "b", 3),
    ]
    assert [
        [(acl.principal, acl.host, acl.operation, acl.permission_type) for acl in each.acls]
        for each in described.resources
    ] == [[(ALICE, "*", 3, 3), (ALICE, "h", 3, 3)], [(ALICE, "*", 5, 3)]]
    assert guarded.ask(ApiKey.CREATE_TOPICS, create("b"), 7).topics[0].error_code == E.NONE
    (deleted,) = ask(ApiKey.DELETE_ACLS, DeleteAclsRequest([an_acl_filter(operation=Op.CREATE)])).filter_results
    assert (deleted.error_code, deleted.error_message) == (0, None)
    assert [each.resource_name for each in deleted.matching_acls] == ["b"]
    assert guarded.ask(ApiKey.CREATE_TOPICS, create("b"), 7).topics[0].error_code == 29
    assert [each.resource_name for each in ask(ApiKey.DESCRIBE_ACLS, describe_acls_request()).resources] == ["a"]


@pytest.mark.parametrize("version", [1, 3])
def test_acl_requests_need_permissions_on_the_cluster(guarded: GuardedNode, of_controller: bool, version: int) -> None:
    def ask(api: ApiKey, request: Message) -> Any:
        return guarded.ask(api, request, version, of_controller=of_controller)

    before = guarded.end_offset
    created = ask(ApiKey.CREATE_ACLS, CreateAclsRequest([an_acl("a"), an_acl("")]))
    assert [(each.error_code, each.error_message) for each in created.results] == [(31, CLUSTER_TEXT)] * 2
    deleted = ask(ApiKey.DELETE_ACLS, DeleteAclsRequest([an_acl_filter()] * 2)).filter_results
    assert [(each.error_code, each.error_message) for each in deleted] == [(31, CLUSTER_TEXT)] * 2
    assert [list(each.matching_acls) for each in deleted] == [[], []]
    described = ask(ApiKey.DESCRIBE_ACLS, describe_acls_request())
    assert (described.error_code, described.error_message) == (31, CLUSTER_TEXT)
    assert (list(described.resources), guarded.end_offset) == ([], before)
    guarded.allow_cluster(Op.DESCRIBE)
    assert ask(ApiKey.DESCRIBE_ACLS, describe_acls_request()).error_code == E.NONE
    assert ask(ApiKey.CREATE_ACLS, CreateAclsRequest([an_acl("a")])).results[0].error_code == 31
    guarded.allow_cluster(Op.ALTER)
    assert ask(ApiKey.CREATE_ACLS, CreateAclsRequest([an_acl("a")])).results[0].error_code == E.NONE


def test_acls_are_forwarded_and_reach_every_node() -> None:
    cluster = AttackedCluster(3, authorizer_class_name=STANDARD_AUTHORIZER)
    for node in cluster.nodes:
        request = CreateAclsRequest([an_acl(f"from-{node}"), an_acl("from-all")])
        results = cluster.ask(request, ApiKey.CREATE_ACLS, 3, node, to_controller=False).results
        assert [each.error_code for each in results] == [0, 0]
    accesses = [each.access(parse_principal(ALICE), HOST) for each in cluster.nodes.values()]
    names = ["from-all", *(f"from-{node}" for node in cluster.nodes)]
    cluster.until(lambda: all(each.allows(TOPIC_READ, name) for each in accesses for name in names), "ACLs are applied")
    assert not any(each.allows(TOPIC_WRITE, name) for each in accesses for name in names)
    assert {len(each.current.image.acls) for each in cluster.nodes.values()} == {4}, "an ACL exists once"
    deletion = DeleteAclsRequest([an_acl_filter(resource_name_filter="from-all")])
    (deleted,) = cluster.ask(deletion, ApiKey.DELETE_ACLS, 3, 2, to_controller=False).filter_results
    assert [each.resource_name for each in deleted.matching_acls] == ["from-all"]
    cluster.until(lambda: not any(each.allows(TOPIC_READ, "from-all") for each in accesses), "the deletion is applied")


def test_describe_acls_with_unknown_codes_finds_nothing(guarded: GuardedNode) -> None:
    guarded.allow_topic(Op.READ, "a")
    for field in ("resource_type_filter", "pattern_type_filter", "operation", "permission_type"):
        response = guarded.ask(ApiKey.DESCRIBE_ACLS, describe_acls_request(**{field: 99}), 3, SUPER_USER)
        assert (response.error_code, list(response.resources)) == (0, [])


@pytest.mark.parametrize("who", [ALICE, SUPER_USER])
def test_an_acl_request_with_code_0_closes_the_connection(guarded: GuardedNode, of_controller: bool, who: str) -> None:
    creating = ("resource_type", "resource_pattern_type", "operation", "permission_type")
    filtering = ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")
    requests: list[tuple[ApiKey, Message]] = [
        *((ApiKey.CREATE_ACLS, CreateAclsRequest([an_acl("a"), an_acl("b", **{field: 0})])) for field in creating),
        *((ApiKey.DELETE_ACLS, DeleteAclsRequest([an_acl_filter(**{field: 0})])) for field in filtering),
        *((ApiKey.DESCRIBE_ACLS, describe_acls_request(**{field: 0})) for field in filtering),
    ]
    for api, request in requests:
        with pytest.raises(MalformedData, match="code 0"):
            guarded.ask(api, request, 3, who, of_controller=of_controller)
    assert not guarded.node.current.image.acls


def test_acl_apis_are_disabled_without_an_authorizer(guarded: GuardedNode, of_controller: bool) -> None:
    guarded.node = InMemoryNode().start()

    def ask(api: ApiKey, request: Message) -> Any:
        return guarded.ask(api, request, 3, of_controller=of_controller)

    created = ask(ApiKey.CREATE_ACLS, CreateAclsRequest([an_acl("a"), an_acl("")])).results
    deleted = ask(ApiKey.DELETE_ACLS, DeleteAclsRequest([an_acl_filter()])).filter_results
    for result in [*created, *deleted]:
        assert (result.error_code, result.error_message) == (E.SECURITY_DISABLED, "No Authorizer is configured.")
    assert (len(created), len(deleted)) == (2, 1)
    described = ask(ApiKey.DESCRIBE_ACLS, describe_acls_request())
    message = "No Authorizer is configured on the broker"
    assert (described.error_code, described.error_message) == (E.SECURITY_DISABLED, message)
    assert not guarded.node.current.image.acls


# --- every API ----------------------------------------------------------------------------------------------------


def test_every_forwarded_api_is_authorized(guarded: GuardedNode) -> None:
    of_owners = {ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN}
    assert FORWARDED.keys() - of_owners <= requirements().keys()


@pytest.mark.parametrize("api", FORWARDED, ids=lambda api: api.name)
def test_an_allowed_request_is_not_copied(guarded: GuardedNode, api: ApiKey) -> None:
    filled: dict[ApiKey, Message] = {
        ApiKey.CREATE_TOPICS: create("a", "b"),
        ApiKey.DELETE_TOPICS: DeleteTopicsRequest(topic_names=["a", "b"]),
        ApiKey.CREATE_PARTITIONS: CreatePartitionsRequest([CreatePartitionsTopic("a", 2)]),
        ApiKey.ALTER_CONFIGS: alter_request(ApiKey.ALTER_CONFIGS, CONFIG_RESOURCES),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: alter_request(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            [each for each in CONFIG_RESOURCES if each[0] != BROKER_LOGGER],  # this node itself changes log levels
        ),
    }
    request, response = filled.get(api) or request_class(api)(), CreateTopicsResponse()
    broker = guarded.node.assembly.broker_side
    assert broker is not None
    handler = next(each for each in broker.handlers if each.api == api)
    assert isinstance(handler, ForwardedHandler)
    allowed, complete = finish(handler.authorize(request, Unrestricted(Principal("User", "alice"))))
    assert allowed is request
    assert finish(complete(response)) is response
