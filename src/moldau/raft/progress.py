"""The replicas' log end offsets as the leader knows them: what a majority of the voters has on disk is committed.

A replica has on disk everything below its fetch offset, since it flushes before it fetches again. The leader counts
what it has flushed itself, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moldau.raft.voters import ReplicaKey, Voter, VoterSet

OBSERVER_SESSION_MS: Final = 300_000
OBSERVERS_MAX: Final = 1_000
"""Anybody can fetch under any id: the progress of further observers is not kept."""
FETCHED_RECENTLY_MS: Final = 3_600_000
UNKNOWN: Final = -1
NEVER_MS: Final = 1 << 62


@dataclass(slots=True)
class ReplicaProgress:
    key: ReplicaKey
    end_offset: int = UNKNOWN
    fetched_ms: int | None = None
    """By the monotonic clock."""
    fetched_wall_ms: int = UNKNOWN
    caught_up_wall_ms: int = UNKNOWN
    leader_end_at_fetch: int = UNKNOWN

    def on_fetch(self, offset: int, leader_end: int, monotonic_ms: int, now_ms: int) -> None:
        if offset >= leader_end:
            self.caught_up_wall_ms = max(self.caught_up_wall_ms, now_ms)
        elif 0 < self.leader_end_at_fetch <= offset:
            # It has now everything that the log had at its previous fetch.
            self.caught_up_wall_ms = max(self.caught_up_wall_ms, self.fetched_wall_ms)
        self.leader_end_at_fetch = leader_end
        self.fetched_ms = monotonic_ms
        self.fetched_wall_ms = max(self.fetched_wall_ms, now_ms)
        self.end_offset = offset


class Progress:
    def __init__(
        self, own: ReplicaKey, voters: VoterSet, epoch_start_offset: int, check_quorum_ms: int, monotonic_ms: int
    ) -> None:
        self._own = own
        self._epoch_start_offset = epoch_start_offset
        self._check_quorum_ms = check_quorum_ms
        self._checked_ms = monotonic_ms
        self._heard_from: set[int] = set()
        """Voters that were heard from since a majority was complete the last time."""
        self.voters: dict[int, ReplicaProgress] = {}
        self.observers: dict[ReplicaKey, ReplicaProgress] = {}
        self.high_watermark: int | None = None
        """None until a record of this leader's own epoch is committed."""
        self.update_voters(voters)

    # --- voters and observers -----------------------------------------------------------------------------------

    def update_voters(self, voters: VoterSet) -> None:
        """Take over a new set of voters. Replicas that become voter or observer keep their progress."""
        old = self.voters
        self.voters = {voter.key.id: self._progress_of(voter) for voter in voters}
        for node_id, replica in old.items():
            if self.voters.get(node_id) is not replica:
                self.observers[replica.key] = replica
        self._heard_from &= self.voters.keys()

    def _progress_of(self, voter: Voter) -> ReplicaProgress:
        progress = self.voters.get(voter.key.id)
        if progress is None or not voter.is_replica(progress.key):
            progress = self.observers.pop(voter.key, None) or ReplicaProgress(voter.key)
        progress.key = voter.key
        return progress

    def replica(self, key: ReplicaKey) -> ReplicaProgress:
        voter = self.voters.get(key.id)
        if voter is not None and Voter(voter.key).is_replica(key):
            return voter
        observer = self.observers.get(key)
        if observer is None:
            observer = ReplicaProgress(key)
            if len(self.observers) < OBSERVERS_MAX or key == self._own:
                self.observers[key] = observer
        return observer

    def forget_silent_observers(self, monotonic_ms: int) -> None:
        silent = [
            key
            for key, replica in self.observers.items()
            if key != self._own and monotonic_ms - (replica.fetched_ms or 0) >= OBSERVER_SESSION_MS
        ]
        for key in silent:
            del self.observers[key]

    def is_caught_up(self, key: ReplicaKey, monotonic_ms: int) -> bool:
        """Whether an observer may become a voter: it reached the end of the log once, and fetched recently."""
        replica = self.observers.get(key)
        if replica is None or replica.fetched_ms is None or replica.caught_up_wall_ms == UNKNOWN:
            return False
        return monotonic_ms - replica.fetched_ms < FETCHED_RECENTLY_MS

    # --- offsets ------------------------------------------------------------------------------------------------

    def on_own_flush(self, offset: int) -> bool:
        """Note that this leader's log is on disk up to `offset`; return whether the high watermark moved."""
        self.replica(self._own).end_offset = offset
        return self._advance()

    def on_fetch(self, key: ReplicaKey, offset: int, leader_end: int, monotonic_ms: int, now_ms: int) -> bool:
        """Note a fetch of a replica; return whether the high watermark moved."""
        if len(self.observers) >= OBSERVERS_MAX:
            self.forget_silent_observers(monotonic_ms)
        self.replica(key).on_fetch(offset, leader_end, monotonic_ms, now_ms)
        self.on_contact(key, monotonic_ms)
        return self._advance()

    def _advance(self) -> bool:
        offsets = sorted((replica.end_offset for replica in self.voters.values()), reverse=True)
        majority = offsets[len(offsets) // 2]
        # Records of earlier epochs are committed only together with one of this epoch: a candidate with a later epoch
        # in its log could still win against the majority that has them (the Raft paper, 5.4.2).
        if majority <= self._epoch_start_offset or majority <= (self.high_watermark or UNKNOWN):
            return False
        self.high_watermark = majority
        return True

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters, those with the highest end offset first."""
        others = [replica for replica in self.voters.values() if replica.key.id != self._own.id]
        return tuple(replica.key for replica in sorted(others, key=lambda each: (-each.end_offset, each.key.id)))

    # --- check quorum -------------------------------------------------------------------------------------------

    @property
    def is_alone(self) -> bool:
        """Whether this leader is the only voter."""
        return self.voters.keys() <= {self._own.id}

    @property
    def check_quorum_at_ms(self) -> int:
        """When the leader resigns, unless it hears from a majority of the voters before."""
        return NEVER_MS if self.is_alone else self._checked_ms + self._check_quorum_ms

    def silent_ms(self, monotonic_ms: int) -> int:
        """Return for how long the leader has not heard from a majority of the voters."""
        return 0 if self.is_alone else monotonic_ms - self._checked_ms

    def on_contact(self, key: ReplicaKey, monotonic_ms: int) -> None:
        """Note any request of a replica that shows that it is alive."""
        voter = self.voters.get(key.id)
        if voter is not None and Voter(voter.key).is_replica(key):
            self._heard_from.add(key.id)
        majority = len(self.voters) // 2 + 1 - (self._own.id in self.voters)
        if len(self._heard_from) >= majority:
            self._heard_from.clear()
            self._checked_ms = monotonic_ms

    def silent_voters(self, monotonic_ms: int, for_ms: int) -> list[int]:
        return [
            node_id
            for node_id, replica in self.voters.items()
            if node_id != self._own.id and (replica.fetched_ms is None or monotonic_ms - replica.fetched_ms >= for_ms)
        ]
