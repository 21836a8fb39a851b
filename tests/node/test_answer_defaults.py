"""Default values in responses (null or empty, -1 or 0, authorized operations) are those of Apache Kafka 4.3.1.

`tests/interop/test_answers_beside_apache.py` compares all of them with a running Kafka.
"""

from __future__ import annotations

from typing import Any

import pytest
from harness.guarded_node import ALICE, SUPER_USER, GuardedNode

from moldau.base.acl_operations import OPERATIONS_OMITTED
from moldau.base.errors import ErrorCode
from moldau.wire.apis import ApiKey
from moldau.wire.messages import describe_configs, describe_producers, incremental_alter_configs, list_offsets
from moldau.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.wire.messages.describe_groups import DescribeGroupsRequest
from moldau.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from moldau.wire.schema import Message

TOPIC, UNKNOWN = "orders", "nowhere"
GROUP_OPERATIONS, TOPIC_OPERATIONS = 3400, 3576
"""All operations on a group and on a topic, as bits."""


@pytest.fixture(scope="module")
def node() -> GuardedNode:
    made = GuardedNode()
    made.node.create_topic(TOPIC)
    made.node.append(TOPIC)
    return made


def ask(node: GuardedNode, api: ApiKey, request: Message, version: int, who: str = SUPER_USER) -> Any:
    return node.ask(api, request, version, who)


@pytest.mark.parametrize("name", [UNKNOWN, "a b"])
def test_metadata_has_the_operations_of_a_missing_topic(node: GuardedNode, name: str) -> None:
    def topic(who: str, wanted: bool) -> Any:
        asked = [MetadataRequestTopic(name=name)]
        request = MetadataRequest(asked, False, include_topic_authorized_operations=wanted)
        return ask(node, ApiKey.METADATA, request, 9, who).topics[0]

    assert topic(SUPER_USER, True).topic_authorized_operations == TOPIC_OPERATIONS
    assert topic(SUPER_USER, False).topic_authorized_operations == OPERATIONS_OMITTED
    assert topic(ALICE, True).topic_authorized_operations == OPERATIONS_OMITTED


def test_a_dead_group_has_authorized_operations_before_version_6(node: GuardedNode) -> None:
    ask(node, ApiKey.FIND_COORDINATOR, FindCoordinatorRequest("g", 0), 3)
    node.node.timers.run_soon()  # until all partitions of the coordinator's topic are laid out
    for version, operations in ((3, GROUP_OPERATIONS), (5, GROUP_OPERATIONS), (6, OPERATIONS_OMITTED)):
        request = DescribeGroupsRequest([UNKNOWN], include_authorized_operations=True)
        group = ask(node, ApiKey.DESCRIBE_GROUPS, request, version).groups[0]
        assert (group.group_state, group.authorized_operations) == ("Dead", operations)


def test_error_messages_of_find_coordinator(node: GuardedNode) -> None:
    assert ask(node, ApiKey.FIND_COORDINATOR, FindCoordinatorRequest("g", 0), 3).error_message == "NONE"
    assert ask(node, ApiKey.FIND_COORDINATOR, FindCoordinatorRequest("g", 9), 3).error_message
    several = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    assert ask(node, ApiKey.FIND_COORDINATOR, several, 6).coordinators[0].error_message == ""


def test_error_messages_for_missing_topics(node: GuardedNode) -> None:
    create = CreatePartitionsRequest([CreatePartitionsTopic(UNKNOWN, 3, None)])
    assert ask(node, ApiKey.CREATE_PARTITIONS, create, 3).results[0].error_message is None
    asked = describe_producers.DescribeProducersRequest([describe_producers.TopicRequest(UNKNOWN, [0])])
    assert ask(node, ApiKey.DESCRIBE_PRODUCERS, asked, 0).topics[0].partitions[0].error_message
    configs = describe_configs.DescribeConfigsRequest([describe_configs.DescribeConfigsResource(2, UNKNOWN, None)])
    assert ask(node, ApiKey.DESCRIBE_CONFIGS, configs, 4).results[0].error_message == ""


def test_an_unknown_resource_type_fails_all_of_describe_configs(node: GuardedNode) -> None:
    resources = [describe_configs.DescribeConfigsResource(kind, TOPIC, None) for kind in (2, 99)]
    request = describe_configs.DescribeConfigsRequest(resources)
    results = ask(node, ApiKey.DESCRIBE_CONFIGS, request, 4).results
    assert [(each.error_code, each.configs) for each in results] == [(ErrorCode.INVALID_REQUEST, [])] * 2


def test_error_messages_for_scram_users(node: GuardedNode) -> None:
    all_users = DescribeUserScramCredentialsRequest(None)
    assert ask(node, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, all_users, 0).error_message == ""
    some = DescribeUserScramCredentialsRequest([UserName("ann"), UserName("bob")])
    denied = ask(node, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, some, 0, ALICE)
    errors = [(each.user, each.error_code) for each in denied.results]
    assert errors == [("", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)] * 2


def test_an_unknown_feature_is_refused_even_at_level_0(node: GuardedNode) -> None:
    for name, code in (("nothing", ErrorCode.INVALID_UPDATE_VERSION), ("streams.version", ErrorCode.NONE)):
        request = UpdateFeaturesRequest(1000, [FeatureUpdateKey(name, 0)], validate_only=True)
        assert ask(node, ApiKey.UPDATE_FEATURES, request, 2).error_code == code


def test_a_fetch_out_of_range_has_null_aborted_transactions(node: GuardedNode) -> None:
    topics = [FetchTopic(topic=name, partitions=[FetchPartition(0, fetch_offset=99)]) for name in (TOPIC, UNKNOWN)]
    request = FetchRequest(replica_id=-1, max_bytes=1000, session_epoch=-1, topics=topics)
    there, missing = (each.partitions[0] for each in ask(node, ApiKey.FETCH, request, 12).responses)
    assert (there.error_code, there.aborted_transactions) == (ErrorCode.OFFSET_OUT_OF_RANGE, None)
    assert (missing.error_code, missing.aborted_transactions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


def test_list_offsets_v6_refuses_max_timestamp_even_for_missing_topics(node: GuardedNode) -> None:
    for name in (TOPIC, UNKNOWN):
        asked = list_offsets.ListOffsetsTopic(name, [list_offsets.ListOffsetsPartition(0, timestamp=-3)])
        request = list_offsets.ListOffsetsRequest(-1, topics=[asked])
        found = ask(node, ApiKey.LIST_OFFSETS, request, 6).topics[0].partitions[0]
        assert found.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_an_invalid_config_is_reported_before_a_missing_topic(node: GuardedNode) -> None:
    def code(value: str) -> int:
        config = incremental_alter_configs.AlterableConfig("retention.ms", 0, value)
        resource = incremental_alter_configs.AlterConfigsResource(2, UNKNOWN, [config])
        request = incremental_alter_configs.IncrementalAlterConfigsRequest([resource])
        answered = ask(node, ApiKey.INCREMENTAL_ALTER_CONFIGS, request, 1)
        return int(answered.responses[0].error_code)

    assert (code("x"), code("1")) == (ErrorCode.INVALID_CONFIG, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
