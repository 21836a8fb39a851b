"""A leader whose broker has not reached the controller for its session timeout answers as if it did not lead, where
another node may lead by now; it goes on where nobody else can."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from harness.in_memory_node import batch, error_of
from harness.raised_faults import own_work
from harness.replica_world import TOPIC_ID, Call, Node, ReplicaWorld

from moldau.base.errors import ErrorCode, KafkaError
from moldau.replica.partition import ACKS_ALL
from moldau.runtime.broker import leader_lease
from moldau.runtime.broker.leader_lease import CHECK_INTERVAL_MS, LeaderLease
from moldau.testing.clock import START_MS

SESSION_MS = 3_000
LEASE_MS = 2_700
WAIT_MS = 500


class LeaseSetup:
    """Node 1 leads one partition, 2 and 3 follow it. A test says when its heartbeats are answered."""

    def __init__(self, **configs: str) -> None:
        self.world = ReplicaWorld(fetch_settings={"wait_max_ms": WAIT_MS}, lag_time_max_ms=600_000, **configs)
        self.node: Node = self.world.nodes[1]
        self.changes = 0
        self.lease = LeaderLease(
            self.node.partitions, self.node.replication, WAIT_MS, own_work(self.node), self._on_changed
        )
        self.lease.renew(self.world.clock.monotonic_ms(), SESSION_MS)
        self.world.run(100)
        self.partition = self.node.partition()

    def _on_changed(self) -> None:
        self.changes += 1

    def beat(self) -> None:
        """A heartbeat is sent and answered now."""
        self.lease.renew(self.world.clock.monotonic_ms(), SESSION_MS)
        self.world.run(1)

    def cut_off(self) -> None:
        self.world.cuts = {frozenset({1, 2}), frozenset({1, 3})}

    def append(self) -> ErrorCode:
        try:
            self.partition.append(batch(1), ACKS_ALL, START_MS)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE


@pytest.fixture
def leader() -> LeaseSetup:
    return LeaseSetup()


def test_a_leader_that_is_cut_off_answers_until_its_lease_is_over(leader: LeaseSetup) -> None:
    leader.cut_off()
    leader.world.run(LEASE_MS - 110)
    assert leader.append() is ErrorCode.NONE
    leader.world.run(20)
    assert leader.append() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_of(lambda: leader.partition.check_leader_epoch(-1)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_of(lambda: leader.partition.check_leader_epoch(0, leader_only=False)), "nor as a replica in a rack"
    assert leader.node.partitions.withheld == {(TOPIC_ID, 0)}


def test_an_answered_heartbeat_ends_it_and_the_lease_counts_from_when_it_was_sent(leader: LeaseSetup) -> None:
    leader.cut_off()
    leader.world.run(SESSION_MS)
    assert leader.append() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader.lease.renew(leader.world.clock.monotonic_ms() - LEASE_MS, SESSION_MS)
    leader.world.run(CHECK_INTERVAL_MS)
    assert leader.append() is ErrorCode.NOT_LEADER_OR_FOLLOWER, "it was sent too long ago"
    leader.beat()
    assert leader.append() is ErrorCode.NONE
    assert not leader.node.partitions.withheld


def test_a_leader_whose_followers_all_fetch_goes_on_without_a_controller(leader: LeaseSetup) -> None:
    leader.world.run(10 * SESSION_MS)
    assert leader.append() is ErrorCode.NONE
    leader.world.cuts = {frozenset({1, 2})}
    leader.world.run(2 * SESSION_MS)
    assert leader.append() is ErrorCode.NOT_LEADER_OR_FOLLOWER, "2 may have been elected"
    leader.world.cuts = set()
    leader.world.run(SESSION_MS)
    assert leader.append() is ErrorCode.NONE, "2 fetches again, so it does not lead"


def test_the_only_in_sync_replica_goes_on(leader: LeaseSetup) -> None:
    for broker_id in (2, 3):
        leader.world.kill(broker_id)
        leader.world.controller.fence(broker_id)
    leader.world.run(10 * SESSION_MS)
    assert leader.append() is ErrorCode.NONE


def test_a_proposed_member_of_the_in_sync_set_may_have_been_elected(leader: LeaseSetup) -> None:
    leader.world.cuts = {frozenset({1, 2}), frozenset({1, 3})}
    leader.world.controller.change(0, isr=(1,))
    leader.world.controller.publish()
    leader.world.run(10)
    leader.world.controller.is_reachable = False
    leader.world.cuts = set()
    leader.world.run(2_000)
    assert leader.partition.leadership is not None
    assert leader.partition.leadership.rivals, "it has proposed the followers, and does not know the answer"
    leader.cut_off()
    leader.world.run(2 * SESSION_MS)
    assert leader.append() is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_who_waits_is_told_at_the_second_check_and_followers_are_served(leader: LeaseSetup) -> None:
    leader.cut_off()
    leader.world.run(1)
    last = leader.partition.append(batch(1), ACKS_ALL, START_MS).last_offset
    waiting = leader.partition.acknowledged(last)
    assert waiting is not None
    leader.world.run(LEASE_MS - 90)
    assert leader.partition.is_withheld
    assert not waiting.done, "after a pause of this node, the next heartbeat is answered soon"
    assert leader.changes == 0
    leader.world.run(CHECK_INTERVAL_MS)
    assert waiting.value() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.changes == 1
    leader.world.cuts = {frozenset({1, 2})}
    leader.world.run(SESSION_MS)
    assert leader.partition.is_withheld
    assert leader.world.nodes[3].partition().log.end_offset == last + 1, "its epoch protects a follower"
    leader.beat()
    assert leader.changes > 1, "coordinators load their state again"


def test_a_new_leader_epoch_and_the_end_of_a_leadership_release_a_partition(leader: LeaseSetup) -> None:
    leader.cut_off()
    leader.world.run(SESSION_MS)
    assert leader.partition.is_withheld
    leader.world.controller.change(0, leader=1)
    leader.world.controller.publish()
    leader.world.run(1)
    assert leader.append() is ErrorCode.NONE, "this node has heard from the controller"
    leader.world.run(CHECK_INTERVAL_MS)
    assert leader.partition.is_withheld
    leader.world.controller.change(0, leader=2)
    leader.world.controller.publish()
    leader.world.run(CHECK_INTERVAL_MS)
    assert not leader.partition.is_withheld
    assert not leader.node.partitions.withheld


def test_a_leader_that_may_just_have_been_replaced_does_not_say_that_an_offset_is_missing(leader: LeaseSetup) -> None:
    leader.node.replication.certain_ms = 1_000
    leader.world.run(800)
    leader.partition.check_certain()
    leader.world.run(200)
    assert error_of(leader.partition.check_certain) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.append() is ErrorCode.NONE, "its lease is not over"
    leader.beat()
    leader.partition.check_certain()


def test_the_only_in_sync_replica_is_certain_for_ever(leader: LeaseSetup) -> None:
    leader.node.replication.certain_ms = 4_000
    for broker_id in (2, 3):
        leader.world.kill(broker_id)
        leader.world.controller.fence(broker_id)
    leader.world.run(10 * SESSION_MS)
    leader.partition.check_certain()


def test_a_check_of_many_partitions_ends_before_the_next_begins() -> None:
    world = ReplicaWorld(partitions=6, fetch_settings={"wait_max_ms": WAIT_MS}, lag_time_max_ms=600_000)
    node = world.nodes[1]
    timers = SlowTurns(node)
    with patch.object(leader_lease, "ITEMS_A_TURN", 1):
        lease = LeaderLease(node.partitions, node.replication, WAIT_MS, own_work(timers), lambda: None)
        lease.renew(world.clock.monotonic_ms(), SESSION_MS)
        world.run(100)
        world.cuts = {frozenset({1, 2}), frozenset({1, 3})}
        world.run(LEASE_MS + 8 * CHECK_INTERVAL_MS)
    assert len(node.partitions.withheld) == 2, "those that it leads"


class SlowTurns:
    """Timers whose turns are as long as the interval between two checks."""

    def __init__(self, node: Node) -> None:
        self.after_ms = node.after_ms

    def soon(self, call: Call) -> None:
        self.after_ms(CHECK_INTERVAL_MS, call)


def test_coordinators_look_again_when_a_lease_was_over_for_less_than_a_check(leader: LeaseSetup) -> None:
    leader.cut_off()
    leader.world.run(LEASE_MS - 99)
    assert leader.partition.is_withheld
    leader.beat()
    assert not leader.partition.is_withheld
    assert leader.changes == 1, "an image may have closed a shard meanwhile"
