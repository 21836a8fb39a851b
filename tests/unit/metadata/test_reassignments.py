"""Reassignments: new replicas are added first, then get in sync, and only then the old ones are removed.

A summary "1:1,2,3 of 4,5,3,1,2 @0 +4,5 -1,2" is leader 1, in-sync replicas 1, 2, 3 of these replicas, leader epoch 0,
adding 4 and 5, removing 1 and 2.
"""

from __future__ import annotations

from harness.controlled_cluster import ControlledCluster

from moldau.base.errors import ErrorCode as E
from moldau.base.steps import finish
from moldau.base.turns import LISTED_A_TURN
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.elections import ElectionType
from moldau.metadata.controller.reassignments import decide_alter_reassignments, decide_list_reassignments
from moldau.metadata.records import ConfigResource
from moldau.wire.log_records.metadata import ConfigRecord
from moldau.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)


def five_brokers() -> ControlledCluster:
    cluster = ControlledCluster([1, 2, 3, 4, 5])
    cluster.create("a", [1, 2, 3])
    return cluster


def list_reassignments(
    cluster: ControlledCluster, request: list[ListPartitionReassignmentsTopics] | None
) -> list[object]:
    response = finish(decide_list_reassignments(cluster.image, ListPartitionReassignmentsRequest(0, request))).response
    return [
        (topic.name, each.partition_index, each.replicas, each.adding_replicas, each.removing_replicas)
        for topic in response.topics
        for each in topic.partitions
    ]


def test_a_reassignment_is_completed_when_all_new_replicas_are_in_sync() -> None:
    cluster = five_brokers()
    assert cluster.reassign("a", [4, 5, 3]) == 0
    assert cluster.summary("a") == "1:1,2,3 of 4,5,3,1,2 @0 +4,5 -1,2"
    assert cluster.state("a").directories == tuple(bytes([each]) * 16 for each in (4, 5, 3, 1, 2))
    assert cluster.alter("a", [1, 2, 3, 4]).error_code == 0
    assert cluster.summary("a") == "1:1,2,3,4 of 4,5,3,1,2 @0 +4,5 -1,2"
    assert cluster.alter("a", [1, 2, 3, 4, 5]).error_code == E.NEW_LEADER_ELECTED
    assert cluster.summary("a") == "4:3,4,5 of 4,5,3 @1"
    assert cluster.state("a").directories == tuple(bytes([each]) * 16 for each in (4, 5, 3))


def test_a_leader_that_stays_gets_a_new_epoch() -> None:
    cluster = five_brokers()
    cluster.reassign("a", [1, 2, 4])
    response = cluster.alter("a", [1, 2, 3, 4])
    assert (response.error_code, response.leader_epoch, list(response.isr)) == (0, 1, [1, 2, 4])
    assert cluster.summary("a") == "1:1,2,4 of 1,2,4 @1"


def test_another_order_of_replicas_takes_effect_at_once_and_keeps_the_leader() -> None:
    cluster = five_brokers()
    assert cluster.reassign("a", [3, 1, 2]) == 0
    assert cluster.summary("a") == "1:1,2,3 of 3,1,2 @0"
    assert cluster.elect(ElectionType.PREFERRED, "a", 0) == [0]
    assert cluster.reassign("a", [3, 1, 2]) == 0
    assert cluster.records == ()


def test_replicas_are_removed_only_when_all_remaining_ones_are_in_sync() -> None:
    cluster = five_brokers()
    cluster.alter("a", [1, 3])
    cluster.reassign("a", [1, 2])
    assert cluster.summary("a") == "1:1,3 of 1,2,3 @0 -3"
    cluster.alter("a", [1, 3, 2])
    assert cluster.summary("a") == "1:1,2 of 1,2 @1"
    cluster.reassign("a", [2])
    assert cluster.summary("a") == "2:2 of 2 @2"


def test_the_replication_factor_changes_only_if_allowed() -> None:
    """KIP-860: an ongoing reassignment counts as completed."""
    cluster = five_brokers()
    assert cluster.reassign("a", [1, 2], free_factor=False) == E.INVALID_REPLICATION_FACTOR
    assert cluster.reassign("a", [1, 2, 3, 4], free_factor=False) == E.INVALID_REPLICATION_FACTOR
    assert cluster.reassign("a", [1, 2, 3, 4, 5]) == 0
    assert cluster.reassign("a", [1, 2, 3], free_factor=False) == E.INVALID_REPLICATION_FACTOR
    assert cluster.reassign("a", [1, 2, 3]) == 0


def test_cancelling_removes_the_added_replicas() -> None:
    cluster = five_brokers()
    assert cluster.reassign("a", None) == E.NO_REASSIGNMENT_IN_PROGRESS
    cluster.reassign("a", [4, 5, 3])
    cluster.alter("a", [1, 2, 3, 4])
    assert cluster.reassign("a", None) == 0
    assert cluster.summary("a") == "1:1,2,3 of 3,1,2 @1"
    assert not cluster.state("a").is_reassigning


def test_cancelling_is_refused_while_only_new_replicas_are_in_sync() -> None:
    cluster = five_brokers()
    cluster.create("b", [1])
    cluster.reassign("b", [4, 5])
    cluster.alter("b", [1, 4])
    cluster.die(1)
    assert cluster.summary("b") == "4:4 of 4,5,1 @1 +4,5 -1"
    assert cluster.reassign("b", None) == E.INVALID_REPLICA_ASSIGNMENT
    cluster.do(Decision(None, (ConfigRecord(ConfigResource.TOPIC, "b", "unclean.leader.election.enable", "true"),)))
    cluster.beat(1)
    assert cluster.reassign("b", None) == 0
    assert cluster.summary("b") == "1:1 of 1 @2"


def test_a_new_target_replaces_the_old_one() -> None:
    cluster = five_brokers()
    cluster.reassign("a", [1, 2, 4])
    cluster.alter("a", [1, 2, 3, 4])
    assert cluster.summary("a") == "1:1,2,4 of 1,2,4 @1"
    cluster.reassign("a", [1, 5, 3])
    assert cluster.summary("a") == "1:1,2,4 of 1,5,3,2,4 @1 +3,5 -2,4"
    cluster.reassign("a", [1, 2, 3])
    assert cluster.summary("a") == "1:1,2,4 of 1,2,3,4 @2 +3 -4", "5 was only being added"
    cluster.alter("a", [1, 2, 4, 3])
    assert cluster.summary("a") == "1:1,2,3 of 1,2,3 @3"


def test_a_new_target_keeps_the_only_in_sync_replica_until_others_are_in_sync() -> None:
    cluster = five_brokers()
    cluster.create("b", [1])
    cluster.reassign("b", [4, 5])
    cluster.alter("b", [1, 4])
    cluster.die(1)
    cluster.reassign("b", [2])
    assert cluster.summary("b") == "4:4 of 2,1,4,5 @1 +2 -1,4,5"
    cluster.alter("b", [4, 2])
    assert cluster.summary("b") == "2:2 of 2 @2"


def test_a_replica_that_is_being_removed_may_fail_first() -> None:
    cluster = five_brokers()
    cluster.reassign("a", [1, 2, 4])
    cluster.die(3)
    assert cluster.summary("a") == "1:1,2 of 1,2,4,3 @0 +4 -3"
    cluster.alter("a", [1, 2, 4])
    assert cluster.summary("a") == "1:1,2,4 of 1,2,4 @1"


def test_invalid_reassignments_are_refused() -> None:
    cluster = five_brokers()
    assert cluster.reassign("nowhere", [1]) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.reassign("a", [1], 7) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.reassign("a", []) == E.INVALID_REPLICA_ASSIGNMENT
    assert cluster.reassign("a", [1, 1, 2]) == E.INVALID_REPLICA_ASSIGNMENT
    assert cluster.reassign("a", [1, 2, 9]) == E.INVALID_REPLICA_ASSIGNMENT
    assert cluster.summary("a") == "1:1,2,3 of 1,2,3 @0"


def test_ongoing_reassignments_are_listed() -> None:
    cluster = five_brokers()
    cluster.create("b", [1, 2], [2, 1])
    cluster.reassign("b", [3, 2], 1)
    moving = ("b", 1, (3, 2, 1), (3,), (1,))
    assert list_reassignments(cluster, None) == [moving]
    assert list_reassignments(cluster, [ListPartitionReassignmentsTopics("b", [0, 1, 5])]) == [moving]
    assert list_reassignments(cluster, [ListPartitionReassignmentsTopics("a", [0])]) == []
    assert list_reassignments(cluster, [ListPartitionReassignmentsTopics("nowhere", [0])]) == []


def test_partitions_with_many_replicas_are_decided_in_steps() -> None:
    cluster = five_brokers()
    targets = [ReassignablePartition(index, range(100)) for index in range(3 * LISTED_A_TURN // 100)]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic("a", targets)])
    assert sum(1 for _ in decide_alter_reassignments(cluster.image, request, cluster.layers)) == 3
