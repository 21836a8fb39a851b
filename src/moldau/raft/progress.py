"""How far the replicas are, as their leader sees it: what a majority of the voters has on disk is committed.

A replica has what lies below the offset it fetches from, since nobody fetches on before what came is on disk. The
leader itself counts by its own disk, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moldau.raft.voters import ReplicaKey, Voter, VoterSet

OBSERVER_SESSION_MS: Final = 300_000
OBSERVERS_MAX: Final = 1_000
"""Anybody can fetch under any name: of more than these nothing is remembered."""
CAUGHT_UP_RECENTLY_MS: Final = 3_600_000
NOT_KNOWN: Final = -1
NEVER_MS: Final = 1 << 62


@dataclass(slots=True)
class ReplicaProgress:
    key: ReplicaKey
    end_offset: int = NOT_KNOWN
    fetched_ms: int | None = None
    """By the clock that never goes back."""
    fetched_wall_ms: int = NOT_KNOWN
    caught_up_wall_ms: int = NOT_KNOWN
    leader_end_at_fetch: int = NOT_KNOWN

    def fetched(self, offset: int, leader_end: int, elapsed_ms: int, now_ms: int) -> None:
        if offset >= leader_end:
            self.caught_up_wall_ms = max(self.caught_up_wall_ms, now_ms)
        elif 0 < self.leader_end_at_fetch <= offset:
            # It had all that there was when it asked before.
            self.caught_up_wall_ms = max(self.caught_up_wall_ms, self.fetched_wall_ms)
        self.leader_end_at_fetch = leader_end
        self.fetched_ms = elapsed_ms
        self.fetched_wall_ms = max(self.fetched_wall_ms, now_ms)
        self.end_offset = offset


class Progress:
    def __init__(
        self, own: ReplicaKey, voters: VoterSet, epoch_start_offset: int, check_quorum_ms: int, elapsed_ms: int
    ) -> None:
        self._own = own
        self._epoch_start_offset = epoch_start_offset
        self._check_quorum_ms = check_quorum_ms
        self._checked_ms = elapsed_ms
        self._fetched_since: set[int] = set()
        """Voters that fetched since a majority of them had last done so."""
        self.voters: dict[int, ReplicaProgress] = {}
        self.observers: dict[ReplicaKey, ReplicaProgress] = {}
        self.high_watermark: int | None = None
        """None until something of this leader's own epoch is committed."""
        self.update_voters(voters)

    # --- who there is -------------------------------------------------------------------------------------------

    def update_voters(self, voters: VoterSet) -> None:
        """Another set of voters: who was known in the one role is known in the other."""
        old = self.voters
        self.voters = {voter.key.id: self._take_over(voter) for voter in voters}
        for node_id, replica in old.items():
            if self.voters.get(node_id) is not replica:
                self.observers[replica.key] = replica
        self._fetched_since &= self.voters.keys()

    def _take_over(self, voter: Voter) -> ReplicaProgress:
        known = self.voters.get(voter.key.id)
        if known is None or not voter.is_replica(known.key):
            known = self.observers.pop(voter.key, None) or ReplicaProgress(voter.key)
        known.key = voter.key
        return known

    def replica(self, key: ReplicaKey) -> ReplicaProgress:
        voter = self.voters.get(key.id)
        if voter is not None and Voter(voter.key).is_replica(key):
            return voter
        known = self.observers.get(key)
        if known is None:
            known = ReplicaProgress(key)
            if len(self.observers) < OBSERVERS_MAX or key == self._own:
                self.observers[key] = known
        return known

    def forget_silent_observers(self, elapsed_ms: int) -> None:
        silent = [
            key
            for key, replica in self.observers.items()
            if key != self._own and elapsed_ms - (replica.fetched_ms or 0) >= OBSERVER_SESSION_MS
        ]
        for key in silent:
            del self.observers[key]

    def is_caught_up(self, key: ReplicaKey, elapsed_ms: int) -> bool:
        """Whether an observer is fit to vote: it was level with the log once, and fetched lately."""
        replica = self.observers.get(key)
        if replica is None or replica.fetched_ms is None or replica.caught_up_wall_ms == NOT_KNOWN:
            return False
        return elapsed_ms - replica.fetched_ms < CAUGHT_UP_RECENTLY_MS

    # --- how far they are ---------------------------------------------------------------------------------------

    def own_flushed(self, offset: int) -> bool:
        self.replica(self._own).end_offset = offset
        return self._advance()

    def fetched(self, key: ReplicaKey, offset: int, leader_end: int, elapsed_ms: int, now_ms: int) -> bool:
        """Whether the high watermark moved."""
        if len(self.observers) >= OBSERVERS_MAX:
            self.forget_silent_observers(elapsed_ms)
        self.replica(key).fetched(offset, leader_end, elapsed_ms, now_ms)
        self.heard_from(key, elapsed_ms)
        return self._advance()

    def _advance(self) -> bool:
        offsets = sorted((replica.end_offset for replica in self.voters.values()), reverse=True)
        majority = offsets[len(offsets) // 2]
        # What earlier leaders wrote is committed only together with something of this one's: a majority that has it
        # could still be outvoted by a longer log of an epoch in between (the Raft paper, 5.4.2).
        if majority <= self._epoch_start_offset or majority <= (self.high_watermark or NOT_KNOWN):
            return False
        self.high_watermark = majority
        return True

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters, those who have most first."""
        others = [replica for replica in self.voters.values() if replica.key.id != self._own.id]
        return tuple(replica.key for replica in sorted(others, key=lambda each: (-each.end_offset, each.key.id)))

    # --- whether they are there ---------------------------------------------------------------------------------

    @property
    def check_quorum_at_ms(self) -> int:
        """When a leader that hears of no majority until then is to resign."""
        is_alone = self.voters.keys() <= {self._own.id}
        return NEVER_MS if is_alone else self._checked_ms + self._check_quorum_ms

    def heard_from(self, key: ReplicaKey, elapsed_ms: int) -> None:
        voter = self.voters.get(key.id)
        if voter is not None and Voter(voter.key).is_replica(key):
            self._fetched_since.add(key.id)
        majority = len(self.voters) // 2 + 1 - (self._own.id in self.voters)
        if len(self._fetched_since) >= majority:
            self._fetched_since.clear()
            self._checked_ms = elapsed_ms

    def silent_voters(self, elapsed_ms: int, for_ms: int) -> list[int]:
        return [
            node_id
            for node_id, replica in self.voters.items()
            if node_id != self._own.id and (replica.fetched_ms is None or elapsed_ms - replica.fetched_ms >= for_ms)
        ]
