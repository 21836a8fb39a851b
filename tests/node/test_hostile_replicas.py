"""Clients that claim to be replicas (CVE-2018-1288). Only fetches of real followers may move the high watermark, and
only up to the log end offset of the leader.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from harness.attacked_cluster import AttackedCluster, ConnectionClosed, SentRequest
from harness.depth import deep
from harness.hostile_requests import STRANGER, HostileRequests

from moldau.base.errors import ErrorCode
from moldau.replica.partition import Partition
from moldau.replica.sessions import CONSUMER
from moldau.wire.apis import ApiKey
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState

FETCH_VERSIONS = (4, 18)
REPLICA_EPOCH_FROM = 15
RANDOM_REQUESTS = deep(70, quick=35)
REPLICA_APIS = (ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH)


@pytest.fixture
def three_nodes() -> Iterator[AttackedCluster]:
    """A cluster whose topic `victim` has ten records on all replicas."""
    cluster = AttackedCluster(3)
    for _ in range(10):
        cluster.write("victim")
    cluster.until(lambda: high_watermarks(cluster) == [10] * 3, "all replicas have the new high watermark")
    yield cluster
    cluster.heal()
    check_replication(cluster)


def check_replication(cluster: AttackedCluster) -> None:
    """Check that replication continues: a new record is soon committed on all replicas."""
    offset = cluster.write("victim")
    cluster.until(lambda: high_watermarks(cluster) == [offset + 1] * 3, "all replicas have the new high watermark")
    assert not cluster.faults


def partition(cluster: AttackedCluster, node: int, topic: str = "victim") -> Partition:
    side = cluster.nodes[node].broker_side
    assert side is not None
    return side.partitions.get(topic, 0)


def high_watermarks(cluster: AttackedCluster) -> list[int]:
    return [partition(cluster, node).high_watermark for node in cluster.nodes]


def leader_of(cluster: AttackedCluster, topic: str = "victim") -> int:
    return cluster.wait_for_leader().current.image.topics[topic].partitions[0].leader


def fetch(
    cluster: AttackedCluster,
    version: int,
    replica: int,
    replica_epoch: int,
    offset: int,
    *,
    topic: str = "victim",
    session: tuple[int, int] = (0, -1),
    **wanted: int,
) -> Any:
    """Send the leader a fetch that claims to be from a replica, and return the response."""
    topic_id = cluster.wait_for_leader().current.image.topics[topic].id
    topic_data = FetchTopic(
        topic_id, topic, [FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20, **wanted)]
    )
    state = ReplicaState(replica, replica_epoch) if version >= REPLICA_EPOCH_FROM else None
    request = FetchRequest(None, state, replica, 0, max_bytes=1 << 20, topics=[topic_data])
    request.session_id, request.session_epoch = session
    return cluster.ask(request, ApiKey.FETCH, version, leader_of(cluster, topic), to_controller=False)


def error_of(response: Any) -> ErrorCode:
    """Return the error of the response, or of its one partition."""
    if response.error_code or not response.responses:
        return ErrorCode(response.error_code)
    return ErrorCode(response.responses[0].partitions[0].error_code)


def begin_unreplicated_write(cluster: AttackedCluster) -> SentRequest:
    """Write a record that only the leader has, because its followers cannot reach it."""
    cluster.cut_off(leader_of(cluster))
    cluster.timers.advance(50)
    sent = cluster.begin_write("victim")
    cluster.timers.advance(50)
    assert sent.is_waiting
    assert partition(cluster, leader_of(cluster)).high_watermark == 10
    return sent


@pytest.mark.parametrize("version", range(FETCH_VERSIONS[0], FETCH_VERSIONS[1] + 1))
def test_a_fetch_with_a_wrong_replica_epoch_does_not_move_the_high_watermark(
    three_nodes: AttackedCluster, version: int
) -> None:
    held_write = begin_unreplicated_write(three_nodes)
    brokers = three_nodes.wait_for_leader().current.image.brokers
    for broker in brokers.values():
        for epoch in (-1, 0, broker.epoch - 1, broker.epoch + 1, 2**63 - 1):
            for offset in (10, 11):
                response = fetch(three_nodes, version, broker.id, epoch, offset)
                # The oldest versions can report an error only for a partition.
                assert not response.responses or error_of(response) != ErrorCode.NONE
    assert held_write.is_waiting
    assert partition(three_nodes, leader_of(three_nodes)).high_watermark == 10


@pytest.mark.parametrize("replica", [STRANGER, 2**31 - 1, 0])
def test_an_unknown_replica_is_refused(three_nodes: AttackedCluster, replica: int) -> None:
    held_write = begin_unreplicated_write(three_nodes)
    for epoch in (0, 5, 2**63 - 1):
        assert error_of(fetch(three_nodes, 17, replica, epoch, 11)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert held_write.is_waiting


def test_a_broker_that_is_not_a_replica_of_the_partition_is_refused(three_nodes: AttackedCluster) -> None:
    topic_data = CreateTopicsRequest([CreatableTopic("narrow", 1, 1)], timeout_ms=5_000)
    three_nodes.ask(topic_data, ApiKey.CREATE_TOPICS, 7, node=1, to_controller=False)
    three_nodes.until(lambda: "narrow" in three_nodes.wait_for_leader().current.image.topics, "the topic exists")
    three_nodes.timers.advance(100)
    for broker in three_nodes.wait_for_leader().current.image.brokers.values():
        code = error_of(fetch(three_nodes, 17, broker.id, broker.epoch, 0, topic="narrow"))
        assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("offset", [-(2**63), -1, 12, 1 << 40, 2**63 - 1])
@pytest.mark.parametrize("last_epoch", [-1, 0, 2**31 - 1])
def test_a_follower_fetch_beyond_the_leaders_log_is_refused(
    three_nodes: AttackedCluster, offset: int, last_epoch: int
) -> None:
    """Even with the right epoch: the high watermark stays at what all in-sync replicas really fetched."""
    held_write = begin_unreplicated_write(three_nodes)
    leader = leader_of(three_nodes)
    for broker in three_nodes.wait_for_leader().current.image.brokers.values():
        if broker.id != leader:
            response = fetch(three_nodes, 17, broker.id, broker.epoch, offset, last_fetched_epoch=last_epoch)
            partition_data = response.responses[0].partitions[0]
            assert (
                partition_data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE or partition_data.diverging_epoch is not None
            )
    assert held_write.is_waiting
    assert partition(three_nodes, leader).high_watermark == 10


def test_a_follower_that_fetches_from_an_earlier_offset_does_not_lower_the_high_watermark(
    three_nodes: AttackedCluster,
) -> None:
    leader = leader_of(three_nodes)
    for broker in three_nodes.wait_for_leader().current.image.brokers.values():
        if broker.id != leader:
            assert error_of(fetch(three_nodes, 17, broker.id, broker.epoch, 3)) == ErrorCode.NONE
    assert partition(three_nodes, leader).high_watermark == 10


@pytest.mark.parametrize("api", REPLICA_APIS, ids=lambda api: api.name.lower())
def test_random_requests_to_brokers_do_not_move_the_high_watermark(three_nodes: AttackedCluster, api: ApiKey) -> None:
    held_write = begin_unreplicated_write(three_nodes)
    leader, sent = leader_of(three_nodes), []
    served = three_nodes.routers[9001].served()[api]
    for number, (request, version) in enumerate(
        HostileRequests(three_nodes, api, for_quorum=False).requests(api, served, RANDOM_REQUESTS)
    ):
        node = leader if number % 2 else 1 + number % 3
        if hasattr(request, "max_wait_ms"):
            request.max_wait_ms = min(request.max_wait_ms, 100)
        sent.append(three_nodes.send(request, api, version, node, to_controller=False))
        if number % 50 == 0:
            three_nodes.timers.advance(1)
    three_nodes.timers.advance(200)
    assert not [each for each in sent if each.is_waiting]
    assert not [each for each in sent if isinstance(each.outcome, ConnectionClosed)]
    assert partition(three_nodes, leader).high_watermark == 10
    assert held_write.is_waiting


# --- sessions -----------------------------------------------------------------------------------------------------


@pytest.fixture
def crowded_cluster() -> Iterator[AttackedCluster]:
    """A cluster with four fetch session slots, two of which the followers use."""
    cluster = AttackedCluster(3, max_incremental_fetch_session_cache_slots="4")
    cluster.write("victim")
    yield cluster
    check_replication(cluster)


def test_a_pretended_replica_does_not_evict_a_consumers_session(crowded_cluster: AttackedCluster) -> None:
    consumers = [fetch(crowded_cluster, 17, CONSUMER, -1, 0, session=(0, 0)).session_id for _ in range(2)]
    assert all(consumers)
    for replica in range(100, 150):
        assert fetch(crowded_cluster, 17, replica, 5, 0, session=(0, 0)).session_id == 0
    for broker in crowded_cluster.wait_for_leader().current.image.brokers.values():
        assert fetch(crowded_cluster, 17, broker.id, broker.epoch + 1, 0, session=(0, 0)).session_id == 0
    for session_id in consumers:
        assert error_of(fetch(crowded_cluster, 17, CONSUMER, -1, 1, session=(session_id, 1))) == ErrorCode.NONE


def test_consumers_and_followers_cannot_use_each_others_sessions(crowded_cluster: AttackedCluster) -> None:
    side = crowded_cluster.nodes[leader_of(crowded_cluster)].broker_side
    assert side is not None
    followers = [session for session, _ in side.sessions._sessions.values() if session.replica_id != CONSUMER]
    assert len(followers) == 2
    for session in followers:
        for replica, epoch in ((CONSUMER, -1), (STRANGER, 5)):
            response = fetch(crowded_cluster, 17, replica, epoch, 0, session=(session.id, session.epoch))
            assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    consumer_session = fetch(crowded_cluster, 17, CONSUMER, -1, 0, session=(0, 0)).session_id
    for broker in crowded_cluster.wait_for_leader().current.image.brokers.values():
        response = fetch(crowded_cluster, 17, broker.id, broker.epoch, 0, session=(consumer_session, 1))
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
