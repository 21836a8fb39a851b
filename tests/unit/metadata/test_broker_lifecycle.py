"""The states of a broker: registered, unfenced, leading, fenced, in controlled shutdown, unregistered."""

from __future__ import annotations

import pytest
from harness.controlled_cluster import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS, ControlledCluster

from moldau.base.errors import ErrorCode as E
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.features import SUPPORTED
from moldau.metadata.records import ConfigResource
from moldau.wire.log_records.metadata import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)


def three_brokers() -> ControlledCluster:
    cluster = ControlledCluster([1, 2, 3])
    cluster.create("a", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    return cluster


def leaders(cluster: ControlledCluster, name: str = "a") -> list[int]:
    return [state.leader for state in cluster.image.topics[name].partitions]


# --- registration -----------------------------------------------------------------------------------------------


def test_a_new_broker_is_fenced_and_its_epoch_is_the_offset_of_its_record() -> None:
    cluster = ControlledCluster()
    response = cluster.register(1)
    broker = cluster.image.brokers[1]
    assert (response.error_code, response.broker_epoch) == (0, cluster.image.offset)
    assert (broker.epoch, broker.fenced, broker.in_controlled_shutdown) == (cluster.image.offset, True, False)
    assert broker.features == SUPPORTED
    assert cluster.changes.brokers == {1}
    assert cluster.image.live_brokers() == []


def test_a_broker_is_unfenced_once_it_has_read_its_registration() -> None:
    cluster = ControlledCluster()
    epoch = cluster.register(1).broker_epoch
    early = cluster.beat(1, offset=epoch - 1)
    assert (early.is_fenced, early.is_caught_up, cluster.records) == (True, False, ())
    assert cluster.beat(1, offset=epoch, want_fence=True).is_fenced
    in_time = cluster.beat(1, offset=epoch)
    assert (in_time.is_fenced, in_time.is_caught_up, in_time.should_shut_down) == (False, True, False)
    assert [broker.id for broker in cluster.image.live_brokers()] == [1]
    assert cluster.changes.brokers == {1}
    cluster.beat(1)
    assert cluster.records == ()


def test_the_response_names_the_end_of_the_metadata_with_its_own_changes() -> None:
    cluster = ControlledCluster()
    epoch = cluster.register(1).broker_epoch
    unfenced = cluster.beat(1, offset=epoch)
    assert cluster.records
    assert unfenced.metadata_offset == cluster.image.offset == epoch + len(cluster.records)
    assert unfenced.session_timeout_ms == SESSION_TIMEOUT_MS
    assert cluster.beat(1).metadata_offset == cluster.image.offset


def test_the_same_process_keeps_its_epoch_and_its_state() -> None:
    cluster = three_brokers()
    before = cluster.image.brokers[1]
    again = cluster.register(1, port=9999)
    assert (again.error_code, again.broker_epoch) == (0, before.epoch)
    after = cluster.image.brokers[1]
    assert (after.fenced, after.endpoints[0].port) == (False, 9999)
    assert [record.__class__ for record in cluster.records] == [RegisterBrokerRecord]
    assert leaders(cluster) == [1, 2, 3]


def test_a_new_incarnation_is_refused_until_the_session_of_the_old_one_expires() -> None:
    cluster = three_brokers()
    assert cluster.register(1, incarnation=2).error_code == E.DUPLICATE_BROKER_REGISTRATION
    assert cluster.records == ()
    cluster.now_ms += SESSION_TIMEOUT_MS
    assert cluster.register(1, incarnation=2).error_code == 0


def test_a_new_incarnation_leaves_every_isr_and_leads_nothing() -> None:
    """It may have lost records that were only in memory, and must fetch them again before it is in sync."""
    cluster = three_brokers()
    cluster.create("alone", [1])
    cluster.now_ms += SESSION_TIMEOUT_MS
    cluster.register(1, incarnation=2)
    assert [cluster.summary("a", index) for index in range(3)] == [
        "2:2,3 of 1,2,3 @1",
        "2:2,3 of 2,3,1 @0",
        "3:3,2 of 3,1,2 @0",
    ]
    assert cluster.summary("alone") == "-1:1 of 1 @1"
    epoch = cluster.image.brokers[1].epoch
    assert epoch == cluster.image.offset, "the registration is the last record of its batch"
    assert isinstance(cluster.records[-1], RegisterBrokerRecord)
    cluster.beat(1)
    assert cluster.summary("alone") == "1:1 of 1 @2"
    assert leaders(cluster) == [2, 2, 3]


def test_a_new_incarnation_that_names_the_previous_epoch_stays_in_sync() -> None:
    """The process was killed, but its machine kept running, so that no record was lost."""
    cluster = three_brokers()
    epoch = cluster.image.brokers[1].epoch
    cluster.now_ms += SESSION_TIMEOUT_MS
    cluster.register(1, incarnation=2, previous_broker_epoch=epoch)
    assert [cluster.summary("a", index) for index in range(3)] == [
        "2:1,2,3 of 1,2,3 @1",
        "2:2,3,1 of 2,3,1 @0",
        "3:3,1,2 of 3,1,2 @0",
    ]
    cluster.beat(1)
    assert leaders(cluster) == [2, 2, 3]


def test_two_of_three_killed_brokers_continue_without_the_third() -> None:
    cluster = three_brokers()
    epochs = [cluster.image.brokers[broker_id].epoch for broker_id in (1, 2)]
    cluster.take_over()
    cluster.now_ms += SESSION_TIMEOUT_MS
    for broker_id, epoch in zip((1, 2), epochs, strict=True):
        cluster.register(broker_id, incarnation=2, previous_broker_epoch=epoch)
        cluster.beat(broker_id)
    cluster.fence_stale()
    assert [set(state.isr) for state in cluster.image.topics["a"].partitions] == [{1, 2}] * 3
    assert set(leaders(cluster)) <= {1, 2}


def test_a_controller_that_has_heard_from_nobody_leaves_the_in_sync_sets_as_they_are() -> None:
    """All were killed. The session of the previous controller's node ends first; the others may be the damaged ones."""
    cluster = three_brokers()
    cluster.take_over(suspect=3)
    cluster.now_ms += SESSION_TIMEOUT_MS - 1
    assert cluster.fence_stale() == [3]
    assert [set(state.isr) for state in cluster.image.topics["a"].partitions] == [{1, 2, 3}] * 3
    assert leaders(cluster) == [1, 2, 1]
    cluster.now_ms += 1
    cluster.register(1, incarnation=2)  # without the epoch of the previous incarnation: its logs are not complete
    cluster.fence_stale()
    assert [set(state.isr) for state in cluster.image.topics["a"].partitions] == [{2, 3}] * 3
    cluster.register(3, incarnation=2, previous_broker_epoch=cluster.image.brokers[3].epoch)
    cluster.beat(3)
    assert leaders(cluster) == [3, 3, 3]


def test_a_leader_of_which_a_new_controller_hears_does_not_wait_for_those_that_are_fenced() -> None:
    cluster = three_brokers()
    cluster.take_over(suspect=3)
    cluster.now_ms += SESSION_TIMEOUT_MS - 1
    cluster.fence_stale()
    cluster.beat(1)
    assert [set(state.isr) for state in cluster.image.topics["a"].partitions] == [{1, 2}, {1, 2, 3}, {1, 2}]
    cluster.beat(1)
    assert cluster.records == ()
    cluster.beat(2)
    assert [set(state.isr) for state in cluster.image.topics["a"].partitions] == [{1, 2}] * 3


def test_an_epoch_older_than_the_previous_one_does_not_keep_a_broker_in_sync() -> None:
    cluster = three_brokers()
    earlier = cluster.image.brokers[1].epoch
    cluster.now_ms += SESSION_TIMEOUT_MS
    cluster.register(1, incarnation=2, previous_broker_epoch=earlier)
    cluster.beat(1)
    cluster.now_ms += SESSION_TIMEOUT_MS
    cluster.register(1, incarnation=3, previous_broker_epoch=earlier)
    assert all(1 not in state.isr for state in cluster.image.topics["a"].partitions)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"cluster_id": "another"}, E.INCONSISTENT_CLUSTER_ID),
        ({"features": {}}, E.INVALID_REGISTRATION),
        ({"features": {"metadata.version": (1, 29), "group.version": (0, 1)}}, E.UNSUPPORTED_VERSION),
        ({"features": {"metadata.version": (30, 31)}}, E.UNSUPPORTED_VERSION),
        ({"features": {**SUPPORTED, "new.version": (1, 2)}}, E.UNSUPPORTED_VERSION),
        ({"log_dirs": []}, E.INVALID_REGISTRATION),
        ({"log_dirs": [bytes(16)]}, E.INVALID_REGISTRATION),
        ({"log_dirs": [b"x" * 16, b"x" * 16]}, E.INVALID_REGISTRATION),
        ({"log_dirs": [bytes([1]) * 16]}, E.INVALID_REGISTRATION),
    ],
)
def test_a_refused_registration_changes_nothing(wrong: dict[str, object], code: E) -> None:
    cluster = three_brokers()
    before = cluster.image
    assert cluster.register(4, **wrong).error_code == code  # type: ignore[arg-type]
    assert cluster.image is before


def test_a_broker_may_support_features_that_the_cluster_does_not_have() -> None:
    cluster = three_brokers()
    assert cluster.register(4, features={**SUPPORTED, "new.version": (0, 2)}).error_code == 0


# --- heartbeats and fencing -------------------------------------------------------------------------------------


def test_heartbeats_of_unknown_brokers_and_old_epochs_are_stale() -> None:
    cluster = three_brokers()
    assert cluster.beat(9).error_code == E.STALE_BROKER_EPOCH
    assert cluster.beat(1, epoch=cluster.image.brokers[1].epoch - 1).error_code == E.STALE_BROKER_EPOCH
    assert cluster.sessions.is_live(1, cluster.image.brokers[1].epoch, cluster.now_ms)


def test_a_broker_without_heartbeats_is_fenced_and_the_next_in_sync_replicas_lead() -> None:
    cluster = three_brokers()
    cluster.die(1)
    assert [cluster.summary("a", index) for index in range(3)] == [
        "2:2,3 of 1,2,3 @1",
        "2:2,3 of 2,3,1 @0",
        "3:3,2 of 3,1,2 @0",
    ]
    assert cluster.image.brokers[1].fenced
    assert cluster.changes.brokers == {1}
    assert isinstance(cluster.records[-1], BrokerRegistrationChangeRecord), "the broker's record is last"
    assert cluster.fence_stale() == []


def test_the_last_in_sync_replica_stays_in_the_isr_and_leads_again_when_it_returns() -> None:
    cluster = three_brokers()
    cluster.die(1)
    cluster.die(2)
    assert cluster.summary("a") == "3:3 of 1,2,3 @2"
    cluster.die(3)
    assert cluster.summary("a") == "-1:3 of 1,2,3 @3"
    cluster.beat(1)
    assert cluster.summary("a") == "-1:3 of 1,2,3 @3", "it is alive, but lacks acknowledged records"
    cluster.beat(3)
    assert cluster.summary("a") == "3:3 of 1,2,3 @4"


def test_if_all_brokers_stop_their_heartbeats_together_all_stay_in_the_isr() -> None:
    """Each of them has every acknowledged record, whoever led."""
    cluster = three_brokers()
    cluster.die(1, 2, 3)
    assert [cluster.summary("a", index) for index in range(3)] == [
        "-1:1,2,3 of 1,2,3 @1",
        "-1:2,3,1 of 2,3,1 @1",
        "-1:3,1,2 of 3,1,2 @1",
    ]


def test_the_first_of_them_that_returns_leads_and_does_not_wait_for_the_others() -> None:
    cluster = three_brokers()
    cluster.die(1, 2, 3)
    cluster.beat(3)
    assert [cluster.summary("a", index) for index in range(3)] == [
        "3:3 of 1,2,3 @2",
        "3:3 of 2,3,1 @2",
        "3:3 of 3,1,2 @2",
    ]


def test_a_damaged_leader_that_returns_first_waits_for_another_in_sync_replica() -> None:
    cluster = three_brokers()
    epoch = cluster.image.brokers[2].epoch
    cluster.die(1, 2, 3)
    cluster.register(1, incarnation=2)
    cluster.beat(1)
    assert cluster.summary("a") == "-1:2,3 of 1,2,3 @1"
    cluster.register(2, incarnation=2, previous_broker_epoch=epoch)
    cluster.beat(2)
    assert cluster.summary("a") == "2:2 of 1,2,3 @2"


def test_a_broker_with_an_empty_disk_is_not_left_alone_in_the_isr() -> None:
    cluster = three_brokers()
    epoch = cluster.image.brokers[1].epoch
    cluster.die(1, 2, 3)
    cluster.register(1, incarnation=2, previous_broker_epoch=epoch, log_dirs=[b"another directory"[:16]])
    cluster.beat(1)
    assert cluster.summary("a") == "-1:1,2,3 of 1,2,3 @1"


def test_brokers_that_stop_their_heartbeats_together_are_not_elected() -> None:
    cluster = three_brokers()
    cluster.die(1, 2)
    assert [cluster.summary("a", index) for index in range(3)] == [
        "3:3 of 1,2,3 @1",
        "3:3 of 2,3,1 @1",
        "3:3 of 3,1,2 @0",
    ]


@pytest.mark.parametrize("resource", [(ConfigResource.TOPIC, "a"), (ConfigResource.BROKER, "")])
def test_a_replica_outside_of_the_isr_leads_only_if_unclean_elections_are_allowed(resource: tuple[int, str]) -> None:
    cluster = three_brokers()
    cluster.alter("a", [1])
    cluster.do(Decision(None, (ConfigRecord(*resource, "unclean.leader.election.enable", "true"),)))
    cluster.die(1)
    state = cluster.state("a")
    assert cluster.summary("a") == "2:2 of 1,2,3 @1"
    assert state.leader_recovery_state == 1
    assert cluster.alter("a", [2, 3], recovery_state=1).error_code == E.INVALID_REQUEST
    assert cluster.alter("a", [2]).error_code == 0
    assert cluster.state("a").leader_recovery_state == 0


def test_a_topic_may_forbid_unclean_elections_that_the_cluster_allows() -> None:
    cluster = three_brokers()
    cluster.create("b", [1, 2, 3])
    cluster.alter("a", [1])
    cluster.alter("b", [1])
    key = "unclean.leader.election.enable"
    records = (
        ConfigRecord(ConfigResource.BROKER, "", key, "true"),
        ConfigRecord(ConfigResource.TOPIC, "a", key, "false"),
    )
    cluster.do(Decision(None, records))
    cluster.die(1)
    assert (cluster.summary("a"), cluster.summary("b")) == ("-1:1 of 1,2,3 @1", "2:2 of 1,2,3 @1")


def test_an_expired_session_of_an_old_epoch_fences_no_broker() -> None:
    cluster = three_brokers()
    cluster.sessions.touch(1, cluster.image.brokers[1].epoch - 1, cluster.now_ms - SESSION_TIMEOUT_MS)
    assert cluster.fence_stale() == []
    assert not cluster.image.brokers[1].fenced
    assert cluster.sessions.stale(cluster.now_ms) == []


def test_a_broker_that_returns_with_an_empty_disk_does_not_lead_its_lost_partitions() -> None:
    cluster = ControlledCluster([1, 2])
    cluster.create("alone", [1])
    cluster.create("both", [1, 2])
    cluster.now_ms += SESSION_TIMEOUT_MS
    cluster.register(1, incarnation=2, log_dirs=[b"n" * 16])
    cluster.beat(1)
    assert cluster.summary("alone") == "-1:1 of 1 @1"
    assert cluster.summary("both") == "2:2 of 1,2 @1"
    assert cluster.alter("both", [2, 1]).error_code == 0
    assert cluster.state("both").directories[0] == b"n" * 16, "it fetched the replica to the new disk"
    cluster.beat(1)
    cluster.die(2)
    assert cluster.summary("both") == "1:1 of 1,2 @2"
    assert cluster.elect(1, "alone", 0) == [0]
    assert (cluster.summary("alone"), cluster.state("alone").directories) == ("1:1 of 1 @2", (b"n" * 16,))


def test_replicas_on_a_directory_that_went_offline_leave_the_isr() -> None:
    cluster = ControlledCluster([1, 2])
    cluster.register(3, log_dirs=[b"x" * 16, b"y" * 16])
    cluster.beat(3)
    cluster.create("a", [3, 1])
    cluster.beat(3, offline=[b"y" * 16])
    assert cluster.summary("a") == "3:3,1 of 3,1 @0", "its directory is not known yet"
    assert cluster.image.brokers[3].log_dirs == (b"x" * 16,)
    topic_id = cluster.image.topics["a"].id
    cluster.do(Decision(None, (PartitionChangeRecord(0, topic_id, directories=[b"x" * 16, bytes([1]) * 16]),)))
    cluster.register(3, log_dirs=[b"x" * 16, b"z" * 16])
    cluster.beat(3, offline=[b"x" * 16])
    assert cluster.summary("a") == "1:1 of 3,1 @1"
    assert not cluster.image.brokers[3].fenced


def test_a_broker_is_fenced_on_its_own_request() -> None:
    cluster = three_brokers()
    response = cluster.beat(1, want_fence=True)
    assert (response.is_fenced, response.should_shut_down) == (True, False)
    assert cluster.summary("a") == "2:2,3 of 1,2,3 @1"
    assert cluster.beat(1, want_fence=True).is_fenced
    assert cluster.records == ()


# --- controlled shutdown ----------------------------------------------------------------------------------------


def test_a_controlled_shutdown_moves_leaders_and_waits_for_the_other_brokers() -> None:
    cluster = three_brokers()
    before = cluster.image.offset
    first = cluster.beat(1, want_shut_down=True)
    assert (first.should_shut_down, first.is_fenced) == (False, False)
    moved = cluster.image.offset
    assert cluster.summary("a") == "2:2,3 of 1,2,3 @1"
    assert cluster.image.brokers[1].in_controlled_shutdown
    assert [broker.id for broker in cluster.image.live_brokers()] == [1, 2, 3], "clients may still send requests to it"
    assert not cluster.beat(1, want_shut_down=True).should_shut_down
    cluster.beat(2, offset=moved)
    cluster.beat(3, offset=before)
    assert not cluster.beat(1, want_shut_down=True).should_shut_down, "3 has not applied it"
    cluster.beat(3, offset=moved)
    last = cluster.beat(1, want_shut_down=True)
    assert (last.should_shut_down, last.is_fenced) == (True, True)
    assert cluster.image.brokers[1].fenced
    assert cluster.register(1, incarnation=2).error_code == 0, "a broker that was shut down may register again at once"
    assert not cluster.image.brokers[1].in_controlled_shutdown


def test_a_broker_in_controlled_shutdown_gets_no_leadership_and_joins_no_isr() -> None:
    cluster = three_brokers()
    cluster.beat(1, want_shut_down=True)
    assert cluster.alter("a", [2, 3, 1], sender=2).error_code == E.INELIGIBLE_REPLICA
    assert cluster.elect(0, "a", 0) == [E.PREFERRED_LEADER_NOT_AVAILABLE]
    cluster.create("b", [1, 2])
    assert cluster.summary("b") == "2:2 of 1,2 @0"


def test_a_broker_that_leads_nothing_is_shut_down_at_once() -> None:
    cluster = three_brokers()
    cluster.join(4)
    response = cluster.beat(4, want_shut_down=True)
    assert (response.should_shut_down, response.is_fenced) == (True, True)
    assert cluster.beat(4, want_shut_down=True).should_shut_down
    assert cluster.records == (), "it is fenced already"


def test_the_only_broker_stops_and_leads_again_when_it_returns() -> None:
    cluster = ControlledCluster([1])
    cluster.create("a", [1])
    assert not cluster.beat(1, want_shut_down=True).should_shut_down
    assert cluster.summary("a") == "-1:1 of 1 @1"
    assert cluster.beat(1, want_shut_down=True).should_shut_down
    cluster.join(1, incarnation=2)
    assert cluster.summary("a") == "1:1 of 1 @2"


def test_under_a_new_controller_a_stopping_broker_waits_for_the_others_again() -> None:
    cluster = three_brokers()
    cluster.beat(1, want_shut_down=True)
    cluster.take_over()
    assert not cluster.beat(1, want_shut_down=True).should_shut_down
    cluster.beat(2)
    assert not cluster.beat(1, want_shut_down=True).should_shut_down
    cluster.beat(3)
    assert cluster.beat(1, want_shut_down=True).should_shut_down


def test_a_broker_that_does_not_find_the_new_controller_in_time_is_fenced() -> None:
    cluster = three_brokers()
    cluster.take_over()
    cluster.now_ms += HEARTBEAT_INTERVAL_MS
    cluster.beat(1)
    cluster.beat(2)
    cluster.now_ms += SESSION_TIMEOUT_MS - HEARTBEAT_INTERVAL_MS - 1
    assert cluster.fence_stale() == []
    cluster.now_ms += 1
    assert cluster.fence_stale() == [3]


def test_brokers_that_have_not_found_the_new_controller_yet_stay_in_sync() -> None:
    """The previous controller hangs, and others learn that only from a timeout. Fenced with it, they would leave the
    sets of in-sync replicas, and partitions that it led would have no leader until it comes back."""
    cluster = three_brokers()
    cluster.take_over(suspect=3)
    cluster.now_ms += 3 * HEARTBEAT_INTERVAL_MS
    assert cluster.fence_stale() == [3]
    cluster.beat(1)
    cluster.beat(2)
    cluster.now_ms += SESSION_TIMEOUT_MS - 1
    assert cluster.fence_stale() == []


# --- unregistering ----------------------------------------------------------------------------------------------


def test_an_unregistered_broker_leaves_every_isr_and_may_register_again() -> None:
    cluster = three_brokers()
    assert cluster.unregister(9) == E.BROKER_ID_NOT_REGISTERED
    assert cluster.unregister(1) == 0
    assert 1 not in cluster.image.brokers
    assert cluster.changes.brokers == {1}
    assert cluster.summary("a") == "2:2,3 of 1,2,3 @1"
    assert cluster.beat(1).error_code == E.STALE_BROKER_EPOCH
    assert cluster.unregister(1) == E.BROKER_ID_NOT_REGISTERED
    assert cluster.register(1, incarnation=2).error_code == 0
