"""A follower's progress as its leader knows it: from the offsets of its fetches."""

from __future__ import annotations

from moldau.replica.replication import UNKNOWN_BROKER_EPOCH

UNKNOWN_OFFSET = -1
NEVER_MS = -(2**62)


class Progress:
    """One follower in one leader epoch. Its offsets are unknown before its first fetch."""

    __slots__ = ("broker_epoch", "caught_up_ms", "end_offset", "fetched_ms", "leader_end_offset", "start_offset")

    def __init__(self, caught_up_ms: int) -> None:
        self.end_offset = UNKNOWN_OFFSET
        self.start_offset = UNKNOWN_OFFSET
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.caught_up_ms = caught_up_ms
        """When it last had all of the leader's records."""
        self.fetched_ms = NEVER_MS
        self.leader_end_offset = UNKNOWN_OFFSET
        """The leader's log end offset at the follower's last fetch."""

    def fetched(
        self, fetch_offset: int, start_offset: int, leader_end_offset: int, broker_epoch: int, now_ms: int
    ) -> bool:
        """Record a fetch; return whether the follower has moved.

        A follower that reaches the leader's log end offset of the previous fetch was caught up at that time. Without
        this rule, no follower of a busy leader would ever count as caught up, however small its lag.
        """
        if fetch_offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif fetch_offset >= self.leader_end_offset != UNKNOWN_OFFSET:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        has_moved = fetch_offset != self.end_offset
        self.end_offset = fetch_offset
        self.start_offset = start_offset
        self.broker_epoch = broker_epoch
        self.fetched_ms = now_ms
        self.leader_end_offset = leader_end_offset
        return has_moved

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """Whether the follower was caught up within `lag_time_max_ms`. If it is now, this is recorded: an idle
        partition is left out of incremental fetches, so nothing else would."""
        if self.end_offset >= leader_end_offset:
            self.caught_up_ms = now_ms
            return True
        return now_ms - self.caught_up_ms <= lag_time_max_ms
