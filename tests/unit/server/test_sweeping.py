"""Which connections are closed: idle ones, slow senders, slow readers, and the least active of too many."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from moldau.base.connection_settings import ConnectionLimits
from moldau.base.counters import CLOSED_EVICTED, CLOSED_IDLE, CLOSED_SLOW_READER, CLOSED_SLOW_REQUEST
from moldau.base.limits import REQUEST_GRACE_S
from moldau.server.sweeping import Sweeper

IDLE_S = 600.0
LIMITS = ConnectionLimits()


@dataclass(eq=False)
class Connection:
    last_active: float = 0.0
    blocked_since: float | None = None
    sent_since: int = 0
    is_waiting_for_us: bool = False
    received: int | None = None
    """How much of a request has arrived; None if there is no incomplete request."""
    number: int = 1
    reading_since: float | None = 0.0

    @property
    def is_idle(self) -> bool:
        return self.received is None

    @property
    def arriving(self) -> tuple[int, int] | None:
        return None if self.received is None else (self.number, self.received)

    def close(self, reason: str = "", closed_by: str = "") -> None:
        raise AssertionError("the listener closes")


def closed_by(sweeper: Sweeper, now_s: float, *connections: Connection, excess: int = 0) -> list[str]:
    for each in connections:
        each.last_active = max(each.last_active, now_s - 1)
    return [each.closed_by for each in sweeper.to_close(connections, now_s, excess)]


def test_idle_connections_are_closed_with_a_reason_only_if_something_is_incomplete() -> None:
    silent, half, waiting = Connection(), Connection(received=3), Connection(is_waiting_for_us=True)
    closing = Sweeper(LIMITS, IDLE_S).to_close([silent, half, waiting], IDLE_S + 1, 0)
    assert {each.connection: (each.reason, each.closed_by) for each in closing} == {
        silent: ("", CLOSED_IDLE),
        half: ("idle for too long", CLOSED_IDLE),
    }


def test_a_request_that_arrives_at_a_byte_per_second_is_closed() -> None:
    sweeper, slow = Sweeper(LIMITS, IDLE_S), Connection(received=1)
    assert closed_by(sweeper, 0.0, slow) == []
    for second in range(5, int(REQUEST_GRACE_S), 5):
        slow.received = second
        assert closed_by(sweeper, second, slow) == []
    slow.received = int(REQUEST_GRACE_S)
    assert closed_by(sweeper, REQUEST_GRACE_S, slow) == [CLOSED_SLOW_REQUEST]


def test_a_large_request_on_a_slow_network_may_take_long() -> None:
    sweeper, slow = Sweeper(LIMITS, IDLE_S), Connection(received=0)
    for turn in range(100):
        slow.received = int(turn * 10 * LIMITS.request_bytes_per_s_min)
        assert closed_by(sweeper, turn * 10.0, slow) == []


def test_a_request_that_stalls_after_a_fast_start_is_closed() -> None:
    sweeper, stalled = Sweeper(LIMITS, IDLE_S), Connection(received=0)
    assert closed_by(sweeper, 0.0, stalled) == []
    stalled.received = 50 << 20
    assert closed_by(sweeper, REQUEST_GRACE_S, stalled) == []
    assert closed_by(sweeper, 2 * REQUEST_GRACE_S, stalled) == [CLOSED_SLOW_REQUEST]


def test_many_small_requests_are_not_one_slow_request() -> None:
    sweeper, busy = Sweeper(LIMITS, IDLE_S), Connection(received=7)
    for turn in range(20):
        busy.number += 1
        assert closed_by(sweeper, turn * 10.0, busy) == []


def test_time_while_reading_is_paused_does_not_count() -> None:
    sweeper, muted = Sweeper(LIMITS, IDLE_S), Connection(received=1)
    assert closed_by(sweeper, 0.0, muted) == []
    muted.reading_since = None
    for turn in range(1, 10):
        assert closed_by(sweeper, turn * 10.0, muted) == []
    muted.reading_since = 95.0
    assert closed_by(sweeper, 100.0, muted) == [], "the measurement starts again"
    assert closed_by(sweeper, 100.0 + REQUEST_GRACE_S - 1, muted) == []
    assert closed_by(sweeper, 100.0 + REQUEST_GRACE_S, muted) == [CLOSED_SLOW_REQUEST]


def test_a_pause_between_two_sweeps_restarts_the_measurement() -> None:
    sweeper, muted = Sweeper(LIMITS, IDLE_S), Connection(received=1)
    assert closed_by(sweeper, 0.0, muted) == []
    muted.reading_since = REQUEST_GRACE_S - 1
    assert closed_by(sweeper, REQUEST_GRACE_S, muted) == []


def test_without_an_idle_limit_idle_connections_stay_and_slow_readers_are_closed() -> None:
    sweeper = Sweeper(LIMITS, inf)
    assert sweeper.to_close([Connection()], 1e9, 0) == []
    slow = Connection(blocked_since=0.0)
    assert closed_by(sweeper, 599.0, slow) == []
    assert closed_by(sweeper, 600.0, slow) == [CLOSED_SLOW_READER]


def test_a_rate_of_zero_means_no_limit() -> None:
    limits = ConnectionLimits(request_bytes_per_s_min=0, response_bytes_per_s_min=0)
    sweeper, slow = Sweeper(limits, IDLE_S), Connection(received=1, blocked_since=0.0)
    assert closed_by(sweeper, 0.0, slow) == []
    assert closed_by(sweeper, 10 * IDLE_S, slow) == []


def test_a_reader_has_the_idle_time_before_its_rate_counts() -> None:
    sweeper = Sweeper(LIMITS, IDLE_S)
    slow = Connection(blocked_since=0.0, sent_since=1000)
    fast = Connection(blocked_since=0.0, sent_since=LIMITS.response_bytes_per_s_min * int(IDLE_S))
    assert closed_by(sweeper, IDLE_S - 1, slow, fast) == [], "a consumer may be busy for minutes"
    assert closed_by(sweeper, IDLE_S, slow, fast) == [CLOSED_SLOW_READER]
    assert (fast.blocked_since, fast.sent_since) == (IDLE_S, 0), "the measurement starts again"


def test_the_least_active_connections_are_evicted() -> None:
    connections = [Connection(last_active=float(number)) for number in (5, 3, 9, 1)]
    closing = Sweeper(LIMITS, IDLE_S).to_close(connections, 10.0, 2)
    assert [(each.connection.last_active, each.closed_by) for each in closing] == [
        (1.0, CLOSED_EVICTED),
        (3.0, CLOSED_EVICTED),
    ]


def test_a_closed_idle_connection_counts_towards_the_excess() -> None:
    old, new = Connection(), Connection(last_active=IDLE_S)
    closing = Sweeper(LIMITS, IDLE_S).to_close([old, new], IDLE_S + 1, 1)
    assert [each.connection for each in closing] == [old]
