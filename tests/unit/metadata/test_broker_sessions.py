"""When a broker counts as gone: by silence, by a broken connection, and not before."""

from __future__ import annotations

from controlled_cluster import ControlledCluster

from moldau.metadata.controller.broker_sessions import BrokerSessions
from moldau.metadata.image import MetadataImage

TIMEOUT_MS, INTERVAL_MS = 1500, 200


def sessions() -> BrokerSessions:
    return BrokerSessions(TIMEOUT_MS, INTERVAL_MS)


def test_silence_ends_a_session_after_the_timeout_and_not_a_moment_before() -> None:
    those = sessions()
    assert those.next_deadline_ms() is None
    those.contact(1, 7, 1000)
    those.contact(2, 8, 1400)
    assert those.next_deadline_ms() == 1000 + TIMEOUT_MS
    assert those.stale(1000 + TIMEOUT_MS - 1) == []
    assert those.stale(1000 + TIMEOUT_MS) == [(1, 7)]
    assert those.stale(1400 + TIMEOUT_MS) == [(1, 7), (2, 8)]
    assert those.is_live(1, 7, 1000 + TIMEOUT_MS - 1)
    assert not those.is_live(1, 7, 1000 + TIMEOUT_MS)
    assert not those.is_live(1, 6, 1001), "another epoch is another process"


def test_a_broken_connection_ends_it_sooner_unless_the_broker_is_heard_of_again() -> None:
    those = sessions()
    those.contact(1, 7, 1000)
    those.connection_lost(1, 1100)
    assert those.next_deadline_ms() == 1100 + 2 * INTERVAL_MS
    those.contact(1, 7, 1200)
    assert those.next_deadline_ms() == 1200 + TIMEOUT_MS
    those.connection_lost(1, 1200 + TIMEOUT_MS - 10)
    assert those.next_deadline_ms() == 1200 + TIMEOUT_MS, "it does not lengthen a session"
    those.connection_lost(9, 1200)
    assert those.stale(10**6) == [(1, 7)]


def test_a_new_controller_gives_the_unfenced_some_time_to_find_it() -> None:
    cluster = ControlledCluster([1, 2])
    cluster.register(3)
    those = sessions()
    those.begin(cluster.image, 5000)
    assert those.next_deadline_ms() == 5000 + 3 * INTERVAL_MS
    assert [broker_id for broker_id, _ in those.stale(5000 + 3 * INTERVAL_MS)] == [1, 2]
    short = BrokerSessions(300, INTERVAL_MS)
    short.begin(cluster.image, 5000)
    assert short.next_deadline_ms() == 5300
    short.begin(MetadataImage(), 6000)
    assert short.next_deadline_ms() is None


def test_an_end_is_an_end() -> None:
    those = sessions()
    those.contact(1, 7, 1000)
    those.end(1)
    those.end(1)
    assert those.next_deadline_ms() is None
    assert those.shutdown_offset(1) is None
