"""How long a leader's word holds: a broker that has not reached the controller for about its session timeout may have
been fenced, and others may lead its partitions. From then on it does not answer for them, as a leader or a coordinator,
so that clients look for the new leaders.

It goes on with those that nobody else can lead: the in-sync set has no other member (only its members are elected, and
only the leader adds one), or all others have fetched from this leader just now. So partitions are served although all
controllers are gone. Decision 034 says what this costs.

A heartbeat counts only when this broker has the metadata that the controller had when it answered: without it, it does
not know who leads.

The lease goes by a clock that does not stand still while this node does not run, and begins when the answered heartbeat
was sent: the controller counts from a later time. Its clock may be a little faster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from moldau.base.clock import Timer
from moldau.base.ids import Uuid
from moldau.base.long_work import LongWork
from moldau.base.steps import Steps, split
from moldau.base.turns import ITEMS_A_TURN
from moldau.replica.partition import Partition
from moldau.replica.partitions import Partitions
from moldau.replica.replication import Replication
from moldau.replica.sessions import FetchSession
from moldau.runtime.own_work import OwnWork

log = logging.getLogger("moldau.lifecycle")
CLOCK_ERROR_SHARE: Final = 10
"""The lease is shorter than the session by a tenth: clocks of machines differ by less."""
CHECK_INTERVAL_MS: Final = 250
"""How often partitions are checked when the lease is over."""
FETCH_GRACE_MS: Final = 500
"""A follower's fetch is followed by the next one after `replica.fetch.wait.max.ms`, and this time for the way."""


class LeaderLease:
    """`on_changed` is called when partitions were released, or have been withheld for a while: coordinators then drop
    or load their state."""

    def __init__(
        self,
        partitions: Partitions,
        replication: Replication,
        follower_wait_ms: int,
        own_work: OwnWork,
        on_changed: Callable[[], None],
    ) -> None:
        self._partitions = partitions
        self._duration_ms = 0
        self._fetched_within_ms = follower_wait_ms + FETCH_GRACE_MS
        self._replication = replication
        self._clock = replication.lease_clock
        self._own_work = own_work
        self._on_changed = on_changed
        self._ends_ms: int | None = None
        """None before the first heartbeat was answered: this broker leads nothing yet."""
        self._checks = 0
        """How often partitions were checked since the lease was over."""
        self._walk: LongWork[None] | None = None
        """The last walk over all partitions: a later one replaces an earlier one."""
        self._timer: Timer | None = None
        self._is_closed = False

    def renew(self, contact_ms: int, session_timeout_ms: int) -> None:
        """The controller knew this broker as unfenced at `contact_ms`, and replaces it after that timeout."""
        self._duration_ms = session_timeout_ms - session_timeout_ms // CLOCK_ERROR_SHARE
        self._replication.contact_ms = max(self._replication.contact_ms, contact_ms)
        is_first = self._ends_ms is None
        self._ends_ms = max(self._ends_ms or 0, contact_ms + self._duration_ms)
        if is_first:
            self._check_later()
        elif self._checks and not self._is_over:
            self._check()

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._walk is not None:
            self._walk.cancel()

    @property
    def _is_over(self) -> bool:
        return self._ends_ms is not None and self._clock.monotonic_ms() >= self._ends_ms

    def _check_later(self) -> None:
        """Check when the lease ends; if it is over, soon again."""
        assert self._ends_ms is not None, "the lease has begun"
        if self._timer is not None:
            self._timer.cancel()
        delay_ms = CHECK_INTERVAL_MS if self._is_over else max(self._ends_ms - self._clock.monotonic_ms(), 1)
        self._timer = self._own_work.after_ms(delay_ms, self._check)

    def _check(self) -> None:
        self._partitions.is_cut_off = self._is_over
        if not self._checks and not self._partitions.is_cut_off:
            self._check_later()
            return
        self._checks = self._checks + 1 if self._partitions.is_cut_off else 0
        if self._walk is not None:
            self._walk.cancel()
        if not self._is_closed:
            self._walk = self._own_work.long_work(self._check_all())
            self._walk()

    def _check_all(self) -> Steps[None]:
        withheld: set[tuple[Uuid, int]] = set()
        for some in split(self._partitions.all(), ITEMS_A_TURN):
            for partition in some:
                if partition.leads:
                    self._check_partition(partition)
                    if partition.is_withheld:
                        withheld.add((partition.topic_id, partition.name.partition))
            yield
        self._end_check(frozenset(withheld))

    def _check_partition(self, partition: Partition) -> None:
        since_ms = self._clock.monotonic_ms() - self._fetched_within_ms
        if not self._checks or not may_be_replaced(partition, since_ms):
            partition.release()
        elif not partition.is_withheld:
            partition.withhold()
        else:  # not at once: after a pause of this node, the next heartbeat is answered soon
            partition.fail_waiting()

    def _end_check(self, withheld: frozenset[tuple[Uuid, int]]) -> None:
        before = self._partitions.withheld
        self._partitions.withheld = withheld
        if withheld and not before:
            log.warning(
                "no heartbeat was answered for %d ms, or what the controller decided did not arrive: %d partitions may "
                "have other leaders by now, and are not served",
                self._duration_ms,
                len(withheld),
            )
        elif before and not withheld:
            log.info("%d partitions are served again", len(before))
        # Also if nothing is withheld any more: an image that came meanwhile may have closed a coordinator.
        if self._checks != 1:
            self._on_changed()
        self._check_later()


def may_be_replaced(partition: Partition, since_ms: int) -> bool:
    """Return whether another node may lead the partition: it is in the in-sync set, and has not fetched from this
    leader since `since_ms`. Who leads a partition does not fetch it."""
    leadership = partition.leadership
    if leadership is None:
        return False
    fetching = {
        watcher.replica_id
        for watcher in partition.watchers.followers
        if isinstance(watcher, FetchSession) and watcher.fetched_ms >= since_ms
    }
    return not leadership.rivals <= fetching
