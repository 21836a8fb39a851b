"""Controller requests with thousands of elements are handled in many short turns of the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from harness.attacked_cluster import AttackedCluster
from harness.turns_of_requests import turns_of

from moldau.base.errors import ErrorCode
from moldau.security.acls.access import Access
from moldau.security.principals import ANONYMOUS, Principal
from moldau.wire.apis import ApiKey, response_class
from moldau.wire.frames import read_response, request_frame
from moldau.wire.messages import alter_configs, incremental_alter_configs
from moldau.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from moldau.wire.messages.alter_configs import AlterConfigsRequest
from moldau.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from moldau.wire.messages.create_acls import AclCreation, CreateAclsRequest
from moldau.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from moldau.wire.messages.describe_acls import DescribeAclsRequest
from moldau.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from moldau.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from moldau.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from moldau.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from moldau.wire.schema import Message

TURN_OPERATIONS_MAX: Final = 150_000
"""Lines of Python: about 10 ms. The longest turn appends, or publishes, ten thousand records as one batch."""
TOPIC, CLUSTER_WIDE, LITERAL, ANY = 2, 4, 3, 1
READ, ALLOW = 3, 3
STRANGER: Final = Principal("User", "stranger")


@pytest.fixture(scope="module")
def cluster() -> AttackedCluster:
    cluster = AttackedCluster(
        1,
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:ANONYMOUS",
    )
    cluster.create("many", 3_000)
    return cluster


def long_request(cluster: AttackedCluster, api: ApiKey, request: Message, principal: Principal = ANONYMOUS) -> Any:
    """Send a request and check each turn until it is answered; return the response."""
    router = cluster.routers[9001]
    _, version = router.served()[api]
    access: Access = cluster.nodes[1].access(principal, "198.51.100.7")
    frame = request_frame(api, version, 7, "client", request)
    turns, reply = turns_of(router, cluster.timers, frame, access=access)
    assert max(turns) < TURN_OPERATIONS_MAX, (api.name, max(turns), turns.index(max(turns)), len(turns))
    assert len(turns) > 5
    _, response = read_response(response_class(api), memoryview(bytes(reply))[4:], api, version)
    return response


def creations(count: int) -> list[AclCreation]:
    return [AclCreation(TOPIC, f"{number}", LITERAL, "U:a", "*", READ, ALLOW) for number in range(count)]


def filters(count: int) -> list[DeleteAclsFilter]:
    return [DeleteAclsFilter(TOPIC, f"{number}", LITERAL, "U:a", "*", READ, ALLOW) for number in range(count)]


def test_thousands_of_acls_are_created_described_and_deleted(cluster: AttackedCluster) -> None:
    created = long_request(cluster, ApiKey.CREATE_ACLS, CreateAclsRequest(creations(4_000)))
    assert {each.error_code for each in created.results} == {0}
    node = cluster.nodes[1]
    assert len(node.current.image.acls) == 4_000
    again = long_request(cluster, ApiKey.CREATE_ACLS, CreateAclsRequest(creations(4_000)))
    assert len(again.results) == 4_000
    assert len(node.current.image.acls) == 4_000
    described = long_request(cluster, ApiKey.DESCRIBE_ACLS, DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY))
    assert [each.resource_name for each in described.resources] == sorted(str(number) for number in range(4_000))
    assert {len(each.acls) for each in described.resources} == {1}
    one_by_one = long_request(cluster, ApiKey.DELETE_ACLS, DeleteAclsRequest(filters(2_500)))
    assert [len(each.matching_acls) for each in one_by_one.filter_results] == [1] * 2_500
    everything = DeleteAclsFilter(ANY, None, ANY, None, None, ANY, ANY)
    deleted = long_request(cluster, ApiKey.DELETE_ACLS, DeleteAclsRequest([everything]))
    names = [each.resource_name for each in deleted.filter_results[0].matching_acls]
    assert names == sorted(str(number) for number in range(2_500, 4_000))
    assert not node.current.image.acls


ALTERED: Final[dict[ApiKey, Callable[[int], Message]]] = {
    ApiKey.ALTER_CONFIGS: lambda kind: AlterConfigsRequest(
        [
            alter_configs.AlterConfigsResource(
                kind, f"{number}", [alter_configs.AlterableConfig("retention.ms", "1000")]
            )
            for number in range(2_500)
        ]
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda kind: IncrementalAlterConfigsRequest(
        [
            incremental_alter_configs.AlterConfigsResource(
                kind, f"{number}", [incremental_alter_configs.AlterableConfig("retention.ms", 0, "1000")]
            )
            for number in range(2_500)
        ]
    ),
}


@pytest.mark.parametrize("api", ALTERED, ids=lambda api: api.name)
def test_configs_of_thousands_of_resources_are_checked(cluster: AttackedCluster, api: ApiKey) -> None:
    checked = long_request(cluster, api, ALTERED[api](TOPIC))
    assert {each.error_code for each in checked.responses} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    denied = long_request(cluster, api, ALTERED[api](TOPIC), STRANGER)
    assert {each.error_code for each in denied.responses} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    denied = long_request(cluster, api, ALTERED[api](CLUSTER_WIDE), STRANGER)
    assert {each.error_code for each in denied.responses} == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    assert [each.resource_name for each in denied.responses] == [f"{number}" for number in range(2_500)]


def test_elections_and_reassignments_of_thousands_of_partitions_are_answered(cluster: AttackedCluster) -> None:
    elections = ElectLeadersRequest(0, [TopicPartitions("many", list(range(3_000))) for _ in range(6)])
    elected = long_request(cluster, ApiKey.ELECT_LEADERS, elections)
    results = [each for topic in elected.replica_election_results for each in topic.partition_result]
    assert [each.partition_id for each in results] == [*range(3_000)] * 6
    assert {each.error_code for each in results} == {ErrorCode.ELECTION_NOT_NEEDED}
    denied = long_request(cluster, ApiKey.ELECT_LEADERS, elections, STRANGER)
    assert denied.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    targets = [ReassignablePartition(index, [1]) for index in range(3_000)]
    reassigned = long_request(
        cluster,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        AlterPartitionReassignmentsRequest(topics=[ReassignableTopic("many", targets) for _ in range(5)]),
    )
    assert {each.error_code for topic in reassigned.responses for each in topic.partitions} == {0}
    listed = long_request(
        cluster,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ListPartitionReassignmentsRequest(
            topics=[ListPartitionReassignmentsTopics("many", list(range(3_000))) for _ in range(6)]
        ),
    )
    assert listed.topics == []


def test_quotas_of_thousands_of_users_are_changed(cluster: AttackedCluster) -> None:
    request = AlterClientQuotasRequest(
        [
            RequestEntryData([RequestEntityData("user", f"{number}")], [OpData("producer_byte_rate", 1000.0)])
            for number in range(3_000)
        ]
    )
    changed = long_request(cluster, ApiKey.ALTER_CLIENT_QUOTAS, request)
    assert [each.entity[0].entity_name for each in changed.entries] == [f"{number}" for number in range(3_000)]
    assert {each.error_code for each in changed.entries} == {0}
    assert len(cluster.nodes[1].current.image.client_quotas) == 3_000
    described = long_request(cluster, ApiKey.DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest([], False))
    names = {each.entity[0].entity_name for each in described.entries}
    assert (len(described.entries), names) == (3_000, {f"{number}" for number in range(3_000)})


def test_credentials_of_thousands_of_users_are_changed(cluster: AttackedCluster) -> None:
    request = AlterUserScramCredentialsRequest(
        upsertions=[ScramCredentialUpsertion(f"{number}", 1, 4096, b"salt", bytes(32)) for number in range(5_000)]
    )
    changed = long_request(cluster, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request)
    assert {each.error_code for each in changed.results} == {0}
    assert len(cluster.nodes[1].current.image.scram_credentials) == 5_000
    denied = long_request(cluster, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request, STRANGER)
    assert {each.error_code for each in denied.results} == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
