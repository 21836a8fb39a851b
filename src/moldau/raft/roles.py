"""What a replica is in an epoch: one class for each role, and the rules by which each of them grants a vote.

A role belongs to one epoch and is replaced, never changed into another. The questions it has asked are its own: an
answer that comes after the role is gone means nothing any more.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.base.promise import Promise
from moldau.raft.election import Tally
from moldau.raft.ports import SnapshotDownload
from moldau.raft.progress import Progress
from moldau.raft.snapshots import SnapshotId
from moldau.raft.states import NOBODY
from moldau.raft.voters import Endpoint, ReplicaKey, Voter
from moldau.wire.apis import ApiKey
from moldau.wire.messages.add_raft_voter import AddRaftVoterResponse
from moldau.wire.messages.fetch import FetchPartition
from moldau.wire.messages.remove_raft_voter import RemoveRaftVoterResponse
from moldau.wire.schema import Message

NEVER_MS = 1 << 62


@dataclass(slots=True, eq=False)
class OutgoingRequest:
    """A question on its way to another node."""

    node_id: int
    """Below -1 for a bootstrap server, whose id is not known."""
    to: Endpoint
    api: ApiKey
    request: Message
    timeout_ms: int
    version: int | None = None

    @property
    def line(self) -> tuple[int, bool]:
        """Fetches wait at the leader's: they have a line of their own."""
        return self.node_id, self.api in (ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT)


@dataclass(slots=True)
class Role:
    epoch: int
    leader_id: int = NOBODY
    leader_endpoint: Endpoint | None = None
    voted: ReplicaKey | None = None
    asked: dict[tuple[int, bool], OutgoingRequest] = field(default_factory=dict)
    retry_at_ms: dict[tuple[int, bool], int] = field(default_factory=dict)

    @property
    def deadline_ms(self) -> int:
        """When something happens by itself."""
        return NEVER_MS

    def may_grant(self, candidate: ReplicaKey, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        return is_pre_vote and is_up_to_date

    def _may_grant_freely(self, candidate: ReplicaKey, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        """Of those who follow nobody: one vote an epoch, and none once its leader is known."""
        if is_pre_vote:
            return is_up_to_date
        if self.voted is not None:
            return Voter(self.voted).is_replica(candidate)
        return self.leader_id == NOBODY and is_up_to_date


@dataclass(slots=True)
class Unattached(Role):
    """Knows the epoch and nobody to follow."""

    election_at_ms: int = NEVER_MS

    @property
    def deadline_ms(self) -> int:
        return self.election_at_ms

    def may_grant(self, candidate: ReplicaKey, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        return self._may_grant_freely(candidate, is_up_to_date, is_pre_vote)


@dataclass(slots=True, kw_only=True)
class Prospective(Role):
    """Asks whether it would be elected, before it troubles anyone with a new epoch (KIP-996)."""

    tally: Tally
    give_up_at_ms: int

    @property
    def deadline_ms(self) -> int:
        return self.give_up_at_ms

    def may_grant(self, candidate: ReplicaKey, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        return self._may_grant_freely(candidate, is_up_to_date, is_pre_vote)


@dataclass(slots=True, kw_only=True)
class Candidate(Role):
    """Has voted for itself and asks for the votes of the others."""

    tally: Tally
    give_up_at_ms: int
    is_lost: bool = False
    """As far as those who can be reached have voted: it waits a little and tries again."""

    @property
    def deadline_ms(self) -> int:
        return self.give_up_at_ms


@dataclass(slots=True, eq=False)
class ParkedFetch:
    """A fetch that waits for data, for the high watermark or for its time to be over."""

    wanted: FetchPartition
    bytes_max: int
    due_ms: int
    answer: Promise[Any]


@dataclass(slots=True, eq=False)
class VoterChange:
    """A voter on its way in or out: one at a time."""

    voter: Voter
    due_ms: int
    answer: Promise[Any]
    ack_when_committed: bool = True
    commit_offset: int | None = None
    """Behind the record of the change, once it is in the log."""
    response: type[AddRaftVoterResponse | RemoveRaftVoterResponse] = AddRaftVoterResponse

    def outcome(self, code: ErrorCode, message: str | None = None) -> Message:
        return self.response(error_code=code, error_message=message or (None if code is ErrorCode.NONE else code.name))


@dataclass(slots=True, kw_only=True)
class Leader(Role):
    epoch_start_offset: int
    progress: Progress
    introduce_at_ms: int = 0
    wants_to_resign: bool = False
    adding: VoterChange | None = None
    removing: VoterChange | None = None
    parked: deque[ParkedFetch] = field(default_factory=deque)

    @property
    def deadline_ms(self) -> int:
        times = [self.introduce_at_ms, self.progress.check_quorum_at_ms]
        times += [fetch.due_ms for fetch in self.parked]
        times += [change.due_ms for change in (self.adding, self.removing) if change is not None]
        return min(times)

    def may_grant(self, candidate: ReplicaKey, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        return False


@dataclass(slots=True, kw_only=True)
class Follower(Role):
    fetch_by_ms: int
    """Without a fetch that succeeds until then, a voter asks around whether it should lead."""
    has_fetched: bool = False
    """From this leader in this epoch, and nothing since then tells that it is gone."""
    update_voter_at_ms: int = NEVER_MS
    download: SnapshotDownload | None = None
    downloading: SnapshotId | None = None

    @property
    def deadline_ms(self) -> int:
        return min(self.fetch_by_ms, self.update_voter_at_ms)

    def may_grant(self, candidate: ReplicaKey, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        return is_pre_vote and is_up_to_date and not self.has_fetched


@dataclass(slots=True, kw_only=True)
class Resigned(Role):
    """Led this epoch, and will not again: it tells the others, and lets them elect first."""

    unaware: set[int]
    """Voters that have not confirmed yet."""
    successors: tuple[ReplicaKey, ...] = ()
    leave_at_ms: int = NEVER_MS

    @property
    def deadline_ms(self) -> int:
        return self.leave_at_ms
