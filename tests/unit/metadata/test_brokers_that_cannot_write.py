"""What the controller decides about a broker whose disk refuses writes; more is in `scripts/brokers/full_disks.txt`."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from harness.controlled_cluster import ControlledCluster

from moldau.base.errors import ErrorCode as E
from moldau.base.steps import finish
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.elections import decide_balance
from moldau.metadata.controller.placement import place
from moldau.metadata.image import BrokerImage
from moldau.metadata.records import CAN_WRITE, CANNOT_WRITE, ConfigResource
from moldau.wire.log_records.metadata import BrokerRegistrationChangeRecord, ConfigRecord, PartitionChangeRecord


def three_brokers() -> ControlledCluster:
    cluster = ControlledCluster([1, 2, 3])
    cluster.create("a", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    return cluster


def test_one_decision_notes_the_full_disk_and_moves_everything() -> None:
    cluster = three_brokers()
    assert not cluster.beat(1, cannot_write=True).is_fenced
    change, *moved = cluster.records
    assert isinstance(change, BrokerRegistrationChangeRecord)
    assert (change.broker_id, change.cannot_write, change.fenced) == (1, CANNOT_WRITE, 0)
    assert all(isinstance(each, PartitionChangeRecord) for each in moved)
    assert [cluster.summary("a", index) for index in range(3)] == [
        "2:2,3 of 1,2,3 @1",
        "2:2,3 of 2,3,1 @0",
        "3:3,2 of 3,1,2 @0",
    ]
    cluster.beat(1, cannot_write=True)
    assert cluster.records == ()


def test_space_is_back_and_leaderships_return_by_balancing() -> None:
    cluster = three_brokers()
    cluster.beat(1, cannot_write=True)
    assert cluster.alter("a", [2, 3, 1]).error_code == E.INELIGIBLE_REPLICA
    cluster.beat(1, cannot_write=False)
    (change,) = cluster.records
    assert isinstance(change, BrokerRegistrationChangeRecord)
    assert change.cannot_write == CAN_WRITE
    assert cluster.alter("a", [2, 3, 1]).error_code == 0
    cluster.do(finish(decide_balance(cluster.image)))
    assert cluster.summary("a") == "1:2,3,1 of 1,2,3 @2"


def test_a_member_that_cannot_write_may_stay_while_nobody_can() -> None:
    """The leader proposes to remove a third replica that lags; its own ISR is all that there is."""
    cluster = three_brokers()
    for broker_id in (1, 2, 3):
        cluster.beat(broker_id, cannot_write=True)
    assert cluster.summary("a", 2) == "3:3 of 3,1,2 @0"
    assert cluster.alter("a", [3], 2).error_code == 0


def test_a_single_broker_keeps_everything() -> None:
    cluster = ControlledCluster([1])
    cluster.create("a", [1])
    cluster.beat(1, cannot_write=True)
    assert cluster.records == ()
    cluster.join(2)
    cluster.beat(1, cannot_write=True)
    assert cluster.image.brokers[1].cannot_write
    assert cluster.summary("a") == "1:1 of 1 @0"
    cluster.die(2)
    cluster.beat(1, cannot_write=False)
    assert not cluster.image.brokers[1].cannot_write


def test_a_broker_in_sync_that_is_not_active_does_not_count_as_one_that_can_write() -> None:
    cluster = ControlledCluster([1, 2])
    cluster.create("a", [1, 2])
    cluster.create("b", [2])
    cluster.beat(2, want_shut_down=True)
    assert cluster.summary("a") == "1:1 of 1,2 @0"
    cluster.beat(1, cannot_write=True)
    assert cluster.summary("a") == "1:1 of 1,2 @0"


def test_a_failover_to_a_full_broker_happens_only_without_another() -> None:
    cluster = three_brokers()
    cluster.beat(2, cannot_write=True)
    cluster.die(1)
    assert cluster.summary("a") == "3:3 of 1,2,3 @1"
    cluster.die(3)
    assert cluster.summary("a") == "-1:3 of 1,2,3 @2", "the full broker lacks records since"


def test_a_broker_that_is_fenced_says_so_when_it_is_unfenced() -> None:
    cluster = three_brokers()
    cluster.die(1)
    cluster.beat(1, cannot_write=True)
    assert not cluster.image.brokers[1].cannot_write
    cluster.beat(1, cannot_write=True)
    assert cluster.image.brokers[1].cannot_write


def test_the_same_process_registers_again_and_a_new_one_begins_anew() -> None:
    cluster = three_brokers()
    cluster.beat(1, cannot_write=True)
    cluster.register(1)
    assert cluster.image.brokers[1].cannot_write
    cluster.die(1)
    cluster.register(1, 2)
    assert not cluster.image.brokers[1].cannot_write


def test_a_full_leader_stays_if_too_few_others_can_write() -> None:
    """acks=all would be refused by another leader too, and it could not commit the last records of its log."""
    cluster = ControlledCluster([1, 2, 3])
    cluster.create("a", [1, 2, 3], configs={"min.insync.replicas": "2"})
    cluster.beat(1, cannot_write=True)
    assert cluster.summary("a") == "2:2,3 of 1,2,3 @1"
    cluster.beat(2, cannot_write=True)
    assert cluster.summary("a") == "2:2,3 of 1,2,3 @1"
    cluster.beat(3, cannot_write=True)
    assert cluster.summary("a") == "2:2,3 of 1,2,3 @1"
    cluster.beat(3, cannot_write=False)
    assert cluster.summary("a") == "2:2,3 of 1,2,3 @1"
    cluster.beat(1, cannot_write=False)
    assert cluster.alter("a", [2, 3, 1]).error_code == E.NEW_LEADER_ELECTED
    assert cluster.summary("a") == "1:3,1 of 1,2,3 @2"


def test_a_full_follower_leaves_even_if_too_few_remain() -> None:
    """The leader then refuses records before it appends them, instead of waiting for the follower."""
    cluster = ControlledCluster([1, 2, 3])
    cluster.create("a", [1, 2, 3], configs={"min.insync.replicas": "2"})
    for broker_id in (3, 2):
        cluster.beat(broker_id, cannot_write=True)
    assert cluster.summary("a") == "1:1 of 1,2,3 @0"
    cluster.beat(1, cannot_write=True)
    assert cluster.summary("a") == "1:1 of 1,2,3 @0"


def test_min_insync_replicas_of_the_brokers_counts_as_well() -> None:
    cluster = ControlledCluster([1, 2])
    cluster.do(Decision(None, (ConfigRecord(ConfigResource.BROKER, "", "min.insync.replicas", "2"),)))
    cluster.create("a", [1, 2])
    cluster.create("b", [1, 2], configs={"min.insync.replicas": "1"})
    cluster.create("c", [1])
    cluster.beat(1, cannot_write=True)
    assert cluster.summary("a") == "1:1,2 of 1,2 @0"
    assert cluster.summary("b") == "2:2 of 1,2 @1"


def test_a_dead_leader_is_replaced_by_a_member_that_can_write() -> None:
    cluster = ControlledCluster([1, 2, 3])
    cluster.create("a", [1, 2, 3], configs={"min.insync.replicas": "3"})
    cluster.beat(1, cannot_write=True)
    cluster.beat(2, cannot_write=True)
    assert cluster.summary("a") == "1:1,2,3 of 1,2,3 @0"
    cluster.die(1)
    assert cluster.summary("a") == "3:2,3 of 1,2,3 @1"


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_new_replicas_are_placed_on_full_brokers_only_if_there_are_no_others(factor: int) -> None:
    image = three_brokers().image
    brokers = [replace(image.brokers[1], cannot_write=True), image.brokers[2], image.brokers[3]]
    for seed in range(5):
        for replicas in place(brokers, 3, factor, Random(seed)):
            assert replicas[0] != 1
            assert (1 in replicas) == (factor == 3)


def test_if_all_disks_are_full_new_replicas_are_placed_as_usual() -> None:
    image = three_brokers().image
    full: list[BrokerImage] = [replace(broker, cannot_write=True) for broker in image.brokers.values()]
    placed = place(full, 3, 2, Random(1))
    assert sorted(replicas[0] for replicas in placed) == [1, 2, 3]


def test_a_fenced_broker_is_placed_after_a_full_one() -> None:
    image = three_brokers().image
    brokers = [replace(image.brokers[1], fenced=True), replace(image.brokers[2], cannot_write=True), image.brokers[3]]
    assert place(brokers, 1, 2, Random(1)) == [(3, 2)]
