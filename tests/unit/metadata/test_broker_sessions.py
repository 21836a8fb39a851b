"""When a broker's session expires: after silence, and sooner after a broken connection."""

from __future__ import annotations

from harness.controlled_cluster import ControlledCluster

from moldau.metadata.controller.broker_sessions import BrokerSessions
from moldau.metadata.image import MetadataImage

TIMEOUT_MS, INTERVAL_MS = 1500, 200


def new_sessions() -> BrokerSessions:
    return BrokerSessions(TIMEOUT_MS, INTERVAL_MS)


def test_a_session_expires_exactly_after_the_timeout() -> None:
    sessions = new_sessions()
    assert sessions.next_deadline_ms() is None
    sessions.touch(1, 7, 1000)
    sessions.touch(2, 8, 1400)
    assert sessions.next_deadline_ms() == 1000 + TIMEOUT_MS
    assert sessions.stale(1000 + TIMEOUT_MS - 1) == []
    assert sessions.stale(1000 + TIMEOUT_MS) == [(1, 7)]
    assert sessions.stale(1400 + TIMEOUT_MS) == [(1, 7), (2, 8)]
    assert sessions.is_live(1, 7, 1000 + TIMEOUT_MS - 1)
    assert not sessions.is_live(1, 7, 1000 + TIMEOUT_MS)
    assert not sessions.is_live(1, 6, 1001), "another epoch is another process"


def test_a_broken_connection_shortens_a_session_until_the_next_heartbeat() -> None:
    sessions = new_sessions()
    sessions.touch(1, 7, 1000)
    sessions.connection_lost(1, 1100)
    assert sessions.next_deadline_ms() == 1100 + 2 * INTERVAL_MS
    sessions.touch(1, 7, 1200)
    assert sessions.next_deadline_ms() == 1200 + TIMEOUT_MS
    sessions.connection_lost(1, 1200 + TIMEOUT_MS - 10)
    assert sessions.next_deadline_ms() == 1200 + TIMEOUT_MS, "a broken connection does not lengthen a session"
    sessions.connection_lost(9, 1200)
    assert sessions.stale(10**6) == [(1, 7)]


def test_a_new_controller_gives_unfenced_brokers_some_time_to_find_it() -> None:
    cluster = ControlledCluster([1, 2])
    cluster.register(3)
    sessions = new_sessions()
    sessions.begin_all(cluster.image, 5000)
    assert sessions.next_deadline_ms() == 5000 + TIMEOUT_MS
    assert [broker_id for broker_id, _ in sessions.stale(5000 + TIMEOUT_MS)] == [1, 2]
    sessions.begin_all(cluster.image, 5000, suspect=2)
    assert sessions.next_deadline_ms() == 5000 + 3 * INTERVAL_MS, "the session of the previous controller is shorter"
    assert [broker_id for broker_id, _ in sessions.stale(5000 + 3 * INTERVAL_MS)] == [2]
    short = BrokerSessions(300, INTERVAL_MS)
    short.begin_all(cluster.image, 5000, suspect=2)
    assert short.next_deadline_ms() == 5300
    short.begin_all(MetadataImage(), 6000)
    assert short.next_deadline_ms() is None


def test_an_ended_session_is_forgotten() -> None:
    sessions = new_sessions()
    sessions.touch(1, 7, 1000)
    sessions.end(1)
    sessions.end(1)
    assert sessions.next_deadline_ms() is None
    assert sessions.shutdown_offset(1) is None


def test_a_fenced_broker_is_unfenced_when_it_knows_that_it_was_fenced() -> None:
    cluster = ControlledCluster((1, 2, 3))
    cluster.create("a", (1, 2, 3))
    before = cluster.image.offset
    cluster.die(1)
    assert cluster.beat(1, offset=before).is_fenced, "it does not know yet that 2 leads its partition"
    assert not cluster.beat(1).is_fenced


def test_a_new_controller_unfences_a_broker_that_has_all_metadata_of_the_previous_ones() -> None:
    cluster = ControlledCluster((1, 2, 3))
    before = cluster.image.offset
    cluster.die(1)
    cluster.take_over()
    assert cluster.beat(1, offset=before).is_fenced
    assert not cluster.beat(1, offset=cluster.image.offset).is_fenced


def test_a_session_that_expires_before_its_broker_is_unfenced_does_not_keep_it_fenced() -> None:
    cluster = ControlledCluster((1, 2))
    cluster.register(3)
    assert cluster.beat(3, offset=0).is_fenced, "it has not read its registration"
    cluster.now_ms += 10 * TIMEOUT_MS
    cluster.sessions.touch(1, cluster.image.brokers[1].epoch, cluster.now_ms)
    cluster.sessions.touch(2, cluster.image.brokers[2].epoch, cluster.now_ms)
    assert cluster.fence_stale() == []
    assert not cluster.beat(3).is_fenced, "nothing was written that it would have to read"
