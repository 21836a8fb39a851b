"""Clients that claim to be a broker: their registrations, heartbeats and in-sync replica sets are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from harness.attacked_cluster import CLUSTER_ID, AttackedCluster
from harness.declared_versions import BROKER_APIS
from harness.depth import sample
from harness.hostile_requests import STRANGER

from moldau.base.errors import ErrorCode
from moldau.metadata.controller.broker_registration import BROKERS_MAX, ENTRIES_MAX
from moldau.wire.apis import ApiKey
from moldau.wire.messages import broker_registration as registrations
from moldau.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from moldau.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from moldau.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.wire.schema import Message


def registration_request(broker: int, **fields: Any) -> registrations.BrokerRegistrationRequest:
    request = registrations.BrokerRegistrationRequest(
        broker_id=broker,
        cluster_id=CLUSTER_ID,
        incarnation_id=(broker % 2**31).to_bytes(16, "little"),
        listeners=[registrations.Listener("PLAINTEXT", "198.51.100.7", 9092, 0)],
        features=[
            registrations.Feature("metadata.version", 1, 30),
            registrations.Feature("group.version", 0, 1),
            registrations.Feature("transaction.version", 0, 2),
            registrations.Feature("share.version", 0, 2),
        ],
        log_dirs=[(1 << 100 | broker % 2**31).to_bytes(16, "big")],
        previous_broker_epoch=-1,
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def register(cluster: AttackedCluster, broker: int, **fields: Any) -> ErrorCode:
    answer = cluster.ask(registration_request(broker, **fields), ApiKey.BROKER_REGISTRATION, 4)
    return ErrorCode(answer.error_code)


REGISTRATIONS: dict[str, tuple[dict[str, Any], ErrorCode]] = {
    "another cluster": ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
    "no features": ({"features": []}, ErrorCode.INVALID_REGISTRATION),
    "future features": (
        {"features": [registrations.Feature("metadata.version", 31, 99)]},
        ErrorCode.UNSUPPORTED_VERSION,
    ),
    "features with min above max": (
        {"features": [registrations.Feature("metadata.version", 99, -1)]},
        ErrorCode.UNSUPPORTED_VERSION,
    ),
    "no directories": ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
    "the zero directory id": ({"log_dirs": [bytes(16)]}, ErrorCode.INVALID_REGISTRATION),
    "the same directory twice": ({"log_dirs": [b"d" * 16] * 2}, ErrorCode.INVALID_REGISTRATION),
    "too many directories": (
        {"log_dirs": [(1 << 99 | each).to_bytes(16, "big") for each in range(ENTRIES_MAX + 1)]},
        ErrorCode.INVALID_REGISTRATION,
    ),
    "a listener without a host": (
        {"listeners": [registrations.Listener("PLAINTEXT", "", 9092, 0)]},
        ErrorCode.INVALID_REGISTRATION,
    ),
    "a host with a line break": (
        {"listeners": [registrations.Listener("PLAINTEXT", "a\nb", 9092, 0)]},
        ErrorCode.INVALID_REGISTRATION,
    ),
    "a host that is too long": (
        {"listeners": [registrations.Listener("PLAINTEXT", "a" * 300, 9092, 0)]},
        ErrorCode.INVALID_REGISTRATION,
    ),
}


@pytest.mark.parametrize(
    ("case", "nodes"),
    [(case, nodes) for number, case in enumerate(REGISTRATIONS) for nodes in sample((1, 3), 2, first=number)],
)
def test_impossible_registrations_are_refused(case: str, nodes: int) -> None:
    """Without more depth by one node or by three, by turns."""
    cluster = AttackedCluster(nodes)
    quorum_state = cluster.quorum_state
    fields, code = REGISTRATIONS[case]
    assert register(cluster, STRANGER, **fields) == code
    assert cluster.quorum_state == quorum_state
    cluster.check_health()


@pytest.mark.parametrize("broker", [-1, -2, -(2**31)])
def test_a_registration_with_a_negative_id_is_refused(cluster: AttackedCluster, broker: int) -> None:
    """As a leader id, -1 means that there is no leader."""
    assert register(cluster, broker) == ErrorCode.INVALID_REGISTRATION


def test_a_registration_with_the_id_of_a_live_broker_is_refused(cluster: AttackedCluster) -> None:
    quorum_state = cluster.quorum_state
    for broker in cluster.nodes:
        assert register(cluster, broker) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert cluster.quorum_state == quorum_state


def test_a_registration_with_the_directory_of_another_broker_is_refused(cluster: AttackedCluster) -> None:
    log_dirs = cluster.wait_for_leader().current.image.brokers[1].log_dirs
    assert register(cluster, STRANGER, log_dirs=list(log_dirs)) == ErrorCode.INVALID_REGISTRATION


def test_registrations_beyond_the_limit_are_refused_and_the_cluster_stays_healthy() -> None:
    cluster = AttackedCluster(1)
    codes = [register(cluster, broker) for broker in range(100, 100 + BROKERS_MAX + 10)]
    assert codes.count(ErrorCode.NONE) == BROKERS_MAX - 1
    assert set(codes[BROKERS_MAX:]) == {ErrorCode.INVALID_REGISTRATION}
    assert register(cluster, 100) == ErrorCode.NONE, "a registered broker may register again"
    cluster.check_health()


@pytest.mark.parametrize(
    "epoch_of",
    [lambda epoch: -1, lambda epoch: epoch - 1, lambda epoch: epoch + 1],
    ids=["none", "previous", "next"],
)
def test_requests_with_a_wrong_broker_epoch_are_refused(
    three_nodes: AttackedCluster, epoch_of: Callable[[int], int]
) -> None:
    quorum_state = three_nodes.quorum_state
    for broker in three_nodes.wait_for_leader().current.image.brokers.values():
        forged = broker.id, epoch_of(broker.epoch)
        beat = BrokerHeartbeatRequest(*forged, current_metadata_offset=1 << 40, want_fence=True, want_shut_down=True)
        requests: list[tuple[ApiKey, Message]] = [
            (ApiKey.BROKER_HEARTBEAT, beat),
            (ApiKey.ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequest(*forged)),
            (ApiKey.ALTER_PARTITION, AlterPartitionRequest(*forged)),
        ]
        for api, request in requests:
            answer = three_nodes.ask(request, api, BROKER_APIS[api][1])
            assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH, api.name
    assert three_nodes.quorum_state == quorum_state


# --- in-sync sets -------------------------------------------------------------------------------------------------

ISRS: dict[str, tuple[list[int], ErrorCode]] = {
    "empty": ([], ErrorCode.INVALID_REQUEST),
    "without the leader": ([], ErrorCode.INVALID_REQUEST),
    "an unknown broker": ([STRANGER], ErrorCode.INVALID_REQUEST),
    "a replica twice": ([1, 1, 2, 3], ErrorCode.INVALID_REQUEST),
    "impossible ids": ([-1, 2**31 - 1], ErrorCode.INVALID_REQUEST),
}


@pytest.mark.parametrize(
    ("case", "version"),
    [(case, version) for number, case in enumerate(ISRS) for version in sample((2, 3), 2, first=number)],
)
def test_impossible_in_sync_sets_are_refused(three_nodes: AttackedCluster, case: str, version: int) -> None:
    """Without more depth in one of both versions, by turns."""
    image = three_nodes.wait_for_leader().current.image
    topic = image.topics["victim"]
    state = topic.partitions[0]
    members, code = ISRS[case]
    if case == "without the leader":
        members = [replica for replica in state.replicas if replica != state.leader]
    elif members and case != "a replica twice":
        members = [state.leader, *members]
    partition = RequestPartitionData(0, state.leader_epoch, partition_epoch=state.partition_epoch)
    partition.new_isr = members
    partition.new_isr_with_epochs = [BrokerState(member, -1) for member in members]
    leader = image.brokers[state.leader]
    topics = [RequestTopicData(topic.id, [partition, partition])]
    answer = three_nodes.ask(AlterPartitionRequest(leader.id, leader.epoch, topics), ApiKey.ALTER_PARTITION, version)
    assert {each.error_code for each in answer.topics[0].partitions} == {code}
    assert three_nodes.wait_for_leader().current.image.topics["victim"].partitions[0] == state


def test_only_the_leader_may_propose_an_in_sync_set(three_nodes: AttackedCluster) -> None:
    image = three_nodes.wait_for_leader().current.image
    topic = image.topics["victim"]
    state = topic.partitions[0]
    for broker in image.brokers.values():
        if broker.id != state.leader:
            partition = RequestPartitionData(0, state.leader_epoch, partition_epoch=state.partition_epoch)
            partition.new_isr_with_epochs = [BrokerState(broker.id, broker.epoch)]
            request = AlterPartitionRequest(broker.id, broker.epoch, [RequestTopicData(topic.id, [partition])])
            answer = three_nodes.ask(request, ApiKey.ALTER_PARTITION, 3)
            assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
    assert three_nodes.wait_for_leader().current.image.topics["victim"].partitions[0] == state
