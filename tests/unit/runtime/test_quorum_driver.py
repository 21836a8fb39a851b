"""The quorum's driver over real logs: elections, replication and voter changes end to end, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from harness.depth import deep
from harness.quorum_nodes import CLUSTER_ID, LISTENER, Cluster, QuorumNode

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.raft.snapshots import bootstrap_snapshot
from moldau.raft.voters import SUPPORTED_KRAFT_VERSIONS, Endpoint, ReplicaKey, Voter, VoterSet
from moldau.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from moldau.wire.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from moldau.wire.messages.fetch_snapshot import FetchSnapshotRequest
from moldau.wire.messages.remove_raft_voter import RemoveRaftVoterRequest

DESCRIBE = DescribeQuorumRequest([RequestTopicData("__cluster_metadata", [RequestPartitionData(0)])])


def fill(cluster: Cluster, batches: int, size: int = 100) -> list[bytes]:
    """Append that many batches with distinct values, and wait until all nodes have committed them."""
    leader = cluster.elect()
    assert leader.driver is not None
    values = [f"{number:06d}".encode() * (size // 6) for number in range(batches)]
    for value in values:
        leader.driver.append([value])
        cluster.run(3)
    cluster.until(cluster.is_caught_up)
    return values


def test_a_quorum_of_one_leads_when_start_returns_and_commits_what_is_on_disk() -> None:
    cluster = Cluster(1).start()
    node = cluster.nodes[1]
    driver = node.driver
    assert driver is not None
    assert (driver.is_leader, driver.leader_id, driver.leader_epoch) == (True, 1, 1)
    assert node.events == ["leader -1 in 1", "leader 1 in 1", "leads 1"]
    assert driver.append([b"a", b"b"]) == 3
    assert driver.high_watermark == 0, "nothing is on disk yet"
    cluster.run(1)
    assert node.events[-1] == "committed 3"
    assert cluster.asked == []


def test_a_quorum_of_one_leads_again_in_a_new_epoch_after_a_crash() -> None:
    cluster = Cluster(1).start()
    values = fill(cluster, 5)
    cluster.nodes[1].crash()
    driver = cluster.nodes[1].start()
    assert (driver.is_leader, driver.leader_epoch) == (True, 2)
    cluster.run(5)
    assert cluster.nodes[1].values() == values


def test_three_voters_and_an_observer_get_the_same_log() -> None:
    cluster = Cluster(3, 1).start()
    values = fill(cluster, 100)
    leader = cluster.leader
    assert leader is not None
    for node in cluster.nodes.values():
        assert node.values() == values
        assert node.driver is not None
        assert node.driver.leader_id == leader.id
        assert node.driver.leader_address() == (f"node{leader.id}", 9093)
    assert len(leader.metadata_log.log.segments) > 2, "the log was long enough to be read over several segments"


def test_a_commit_reaches_followers_without_waiting_for_a_poll_to_time_out() -> None:
    cluster = Cluster(3).start()
    fill(cluster, 1)
    assert cluster.leader is not None
    assert cluster.leader.driver is not None
    cluster.leader.driver.append([b"now"])
    assert cluster.until(cluster.is_caught_up) < 20


@pytest.mark.parametrize("seed", range(deep(2, quick=6)))
def test_a_leader_that_dies_is_replaced_long_before_the_fetch_timeout(seed: int) -> None:
    cluster = Cluster(3, seed=seed).start()
    values = fill(cluster, 3)
    dead = cluster.elect()
    dead.crash()
    took_ms = cluster.until(lambda: cluster.leader is not None)
    assert took_ms < 250
    assert cluster.leader is not None
    assert cluster.leader.driver is not None
    cluster.leader.driver.append([b"after"])
    cluster.until(cluster.is_caught_up)
    dead.start()
    cluster.until(cluster.is_caught_up)
    assert [node.values() for node in cluster.nodes.values()] == [[*values, b"after"]] * 3


def test_an_isolated_leader_resigns_and_rejoins() -> None:
    cluster = Cluster(3).start()
    fill(cluster, 3)
    old = cluster.elect()
    assert old.driver is not None
    cluster.isolated = {old.id}
    old.driver.append([b"never committed"])
    cluster.until(lambda: "resigned" in old.events)
    cluster.until(lambda: cluster.leader is not None and cluster.leader is not old)
    with pytest.raises(KafkaError) as refused:
        old.driver.append([b"x"])
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert cluster.leader is not None
    assert cluster.leader.driver is not None
    cluster.leader.driver.append([b"committed"])
    cluster.isolated = set()
    cluster.until(cluster.is_caught_up)
    assert b"never committed" not in old.values()
    assert old.values()[-1] == b"committed"


def test_a_leader_that_resigns_is_replaced_at_once() -> None:
    cluster = Cluster(3).start()
    fill(cluster, 3)
    old = cluster.elect()
    assert old.driver is not None
    done = old.driver.resign()
    took_ms = cluster.until(lambda: done.done)
    assert took_ms < 50
    assert cluster.leader is not None
    assert cluster.leader is not old
    old.driver.stop()
    cluster.run(5_000)
    assert old.driver.is_leader is False


def test_an_observer_far_behind_loads_a_snapshot_and_continues_from_it() -> None:
    cluster = Cluster(3, 1).start()
    fill(cluster, 10)
    late = cluster.nodes[4]
    late.crash()
    late.files = type(late.files)()
    for _ in range(3):
        fill(cluster, 40, 300)
        for node in cluster.nodes.values():
            if node.driver is not None:
                assert node.snapshot()
    values = cluster.nodes[1].values()
    assert cluster.nodes[1].metadata_log.start_offset > 0, "the beginning of the log is deleted"
    late.start()
    cluster.until(cluster.is_caught_up)
    assert late.values() == values
    assert "FETCH_SNAPSHOT" in {api for who, _, api in cluster.asked if who == 4}
    fill(cluster, 1)
    late.crash()
    late.start()
    cluster.until(cluster.is_caught_up)
    assert late.values()[: len(values)] == values


def dynamic_cluster(voters: int, others: int = 0) -> Cluster:
    cluster = Cluster(voters, others, is_dynamic=True)
    first = VoterSet(
        Voter(
            ReplicaKey(each, each.to_bytes(16, "big")),
            (Endpoint(LISTENER, f"node{each}", 9093),),
            SUPPORTED_KRAFT_VERSIONS,
        )
        for each in cluster.voter_ids
    )
    for each in cluster.voter_ids:
        cluster.nodes[each].prepare(bootstrap_snapshot([], first, 0))
    return cluster.start()


def ask(cluster: Cluster, request: Any) -> Any:
    leader = cluster.elect()
    assert leader.driver is not None
    answer = leader.driver.answer(request, version=0)
    if isinstance(answer, Promise):
        cluster.until(lambda: answer.done)
        return answer.value()
    return answer


def add(cluster: Cluster, node_id: int) -> Any:
    endpoint = Listener(LISTENER, f"node{node_id}", 9093)
    return ask(cluster, AddRaftVoterRequest(CLUSTER_ID, 1_000, node_id, node_id.to_bytes(16, "big"), [endpoint]))


def remove(cluster: Cluster, node_id: int) -> Any:
    return ask(cluster, RemoveRaftVoterRequest(CLUSTER_ID, node_id, node_id.to_bytes(16, "big")))


def voters_of(cluster: Cluster) -> list[tuple[int, ...]]:
    return [node.driver.quorum.voters.ids for node in cluster.nodes.values() if node.driver is not None]


def test_voters_are_added_and_removed_at_run_time() -> None:
    cluster = dynamic_cluster(1, 3)
    values = fill(cluster, 5)
    for node_id in (2, 3):
        assert add(cluster, node_id).error_code == ErrorCode.NONE
        cluster.until(cluster.is_caught_up)
    assert voters_of(cluster) == [(1, 2, 3)] * 4
    assert add(cluster, 3).error_code == ErrorCode.DUPLICATE_VOTER
    assert remove(cluster, 4).error_code == ErrorCode.VOTER_NOT_FOUND
    assert remove(cluster, 1).error_code == ErrorCode.NONE, "the leader itself"
    cluster.until(lambda: cluster.leader is not None and cluster.leader.id != 1)
    cluster.until(cluster.is_caught_up)
    assert voters_of(cluster) == [(2, 3)] * 4
    assert [node.values() for node in cluster.nodes.values()] == [values] * 4
    for node in cluster.nodes.values():
        node.crash()
    for node in cluster.nodes.values():
        node.start()
    cluster.until(cluster.is_caught_up)
    assert voters_of(cluster) == [(2, 3)] * 4, "the voters come from the log, not from the settings"


def test_voters_survive_in_a_snapshot() -> None:
    cluster = dynamic_cluster(1, 1)
    fill(cluster, 3)
    assert add(cluster, 2).error_code == ErrorCode.NONE
    for _ in range(2):
        fill(cluster, 20, 400)
        for node in cluster.nodes.values():
            assert node.snapshot()
    assert cluster.nodes[1].metadata_log.start_offset > 10
    for node in cluster.nodes.values():
        node.crash()
        node.start()
    cluster.until(cluster.is_caught_up)
    assert voters_of(cluster) == [(1, 2)] * 2
    cluster.nodes[3] = QuorumNode(cluster, 3)
    cluster.nodes[3].start()
    cluster.until(cluster.is_caught_up)
    assert voters_of(cluster) == [(1, 2)] * 3, "a node that loaded the snapshot has the same voters"


def test_a_voter_that_cannot_be_reached_is_not_added() -> None:
    cluster = dynamic_cluster(1, 1)
    fill(cluster, 3)
    cluster.nodes[2].crash()
    answer = add(cluster, 2)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "cannot be reached" in answer.error_message
    assert voters_of(cluster) == [(1,)]


def test_a_voter_that_lags_is_not_added() -> None:
    cluster = dynamic_cluster(1)
    fill(cluster, 3)
    cluster.nodes[2] = late = QuorumNode(cluster, 2)
    late.flush_delay_ms = 60_000  # what it has fetched is not on disk, so it does not fetch again
    late.start()
    cluster.until(lambda: late.metadata_log.end_offset == cluster.nodes[1].metadata_log.end_offset)
    answer = add(cluster, 2)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "lags behind the log" in answer.error_message
    assert voters_of(cluster) == [(1,), (1,)]
    late.flush_delay_ms = 1
    cluster.run(60_000)
    assert add(cluster, 2).error_code == ErrorCode.NONE


def test_static_voters_cannot_be_changed() -> None:
    cluster = Cluster(3, 1).start()
    fill(cluster, 1)
    assert add(cluster, 4).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert remove(cluster, 2).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_only_the_leader_describes_the_quorum() -> None:
    cluster = Cluster(3, 1).start()
    fill(cluster, 10)
    leader = cluster.elect()
    described = ask(cluster, DESCRIBE).topics[0].partitions[0]
    assert (described.error_code, described.leader_id, described.high_watermark) == (0, leader.id, 11)
    assert [each.replica_id for each in described.current_voters] == [1, 2, 3]
    assert [each.replica_id for each in described.observers] == [4]
    assert {each.log_end_offset for each in (*described.current_voters, *described.observers)} == {11}
    now_ms = cluster.timers.clock.now_ms()
    assert all(now_ms - each.last_caught_up_timestamp < 1_000 for each in described.current_voters)
    other = next(node for node in cluster.nodes.values() if node is not leader)
    assert other.driver is not None
    refused = other.driver.answer(DESCRIBE, version=2)
    assert not isinstance(refused, Promise)
    assert refused.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER  # type: ignore[attr-defined]


def test_a_snapshot_request_without_topics_is_refused() -> None:
    cluster = Cluster(3).start()
    fill(cluster, 1)
    for node in cluster.nodes.values():
        assert node.driver is not None
        answer = node.driver.answer(FetchSnapshotRequest(CLUSTER_ID, 2), version=1)
        assert not isinstance(answer, Promise)
        assert answer.error_code == ErrorCode.INVALID_REQUEST  # type: ignore[attr-defined]
    fill(cluster, 1)


def test_unflushed_records_of_followers_do_not_count() -> None:
    cluster = Cluster(3).start()
    fill(cluster, 1)
    leader = cluster.elect()
    assert leader.driver is not None
    followers = [node for node in cluster.nodes.values() if node is not leader]
    for node in followers:
        node.flush_delay_ms = 700
    before = leader.driver.high_watermark
    leader.driver.append([b"slow"])
    cluster.run(500)
    assert all(node.metadata_log.end_offset == before + 1 for node in followers), (
        "the followers have the record in memory"
    )
    assert leader.driver.high_watermark == before
    cluster.until(cluster.is_caught_up)


def test_a_leader_with_a_slow_disk_commits_with_its_followers() -> None:
    cluster = Cluster(3).start()
    fill(cluster, 1)
    leader = cluster.elect()
    assert leader.driver is not None
    leader.flush_delay_ms = 5_000
    leader.driver.append([b"a"])
    assert cluster.until(cluster.is_caught_up) < 100
    assert leader.metadata_log.flushed_offset < leader.metadata_log.end_offset


def test_a_stopped_driver_leaves_no_timer() -> None:
    cluster = Cluster(3).start()
    fill(cluster, 1)
    for node in cluster.nodes.values():
        assert node.driver is not None
        node.driver.stop()
    cluster.run(10_000)
    asked = len(cluster.asked)
    cluster.run(10_000)
    assert len(cluster.asked) == asked
    assert cluster.timers.pending == 0
