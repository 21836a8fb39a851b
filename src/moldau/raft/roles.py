"""The roles of a replica in an epoch, one class each, and the rules by which each of them grants a vote.

A role belongs to one epoch; a transition makes a new object. Requests belong to the role that sent them: a response
that arrives after a transition is ignored.
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
from moldau.raft.quorum_state import NOBODY
from moldau.raft.snapshots import SnapshotId
from moldau.raft.voters import Endpoint, ReplicaKey, Voter
from moldau.wire.apis import ApiKey
from moldau.wire.messages.add_raft_voter import AddRaftVoterResponse
from moldau.wire.messages.fetch import FetchPartition
from moldau.wire.messages.remove_raft_voter import RemoveRaftVoterResponse
from moldau.wire.schema import Message

NEVER_MS = 1 << 62


@dataclass(slots=True, eq=False)
class OutgoingRequest:
    """A request to another node."""

    node_id: int
    """Below -1 for a bootstrap server, whose id is unknown."""
    to: Endpoint
    api: ApiKey
    request: Message
    timeout_ms: int
    version: int | None = None

    @property
    def key(self) -> tuple[int, bool]:
        """One request per key is in flight. Fetches have a key of their own, since the leader may park them."""
        return self.node_id, self.api in (ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT)


@dataclass(slots=True)
class Role:
    epoch: int
    leader_id: int = NOBODY
    leader_endpoint: Endpoint | None = None
    voted: ReplicaKey | None = None
    in_flight: dict[tuple[int, bool], OutgoingRequest] = field(default_factory=dict)
    retry_at_ms: dict[tuple[int, bool], int] = field(default_factory=dict)

    @property
    def deadline_ms(self) -> int:
        """When the role must be polled at the latest."""
        return NEVER_MS

    def may_grant(self, candidate: ReplicaKey, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        return is_pre_vote and is_up_to_date

    def _may_grant_without_leader(self, candidate: ReplicaKey, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        """The rule of roles that follow no leader: a pre-vote for every candidate that is up to date, but one vote per
        epoch, and none once the leader of the epoch is known."""
        if is_pre_vote:
            return is_up_to_date
        if self.voted is not None:
            return Voter(self.voted).is_replica(candidate)
        return self.leader_id == NOBODY and is_up_to_date


@dataclass(slots=True)
class Unattached(Role):
    """Knows the epoch, but no leader that it could follow."""

    election_at_ms: int = NEVER_MS

    @property
    def deadline_ms(self) -> int:
        return self.election_at_ms

    def may_grant(self, candidate: ReplicaKey, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        return self._may_grant_without_leader(candidate, is_up_to_date, is_pre_vote)


@dataclass(slots=True, kw_only=True)
class Prospective(Role):
    """Sends pre-votes: it asks whether it would be elected, before it starts a new epoch (KIP-996)."""

    tally: Tally
    give_up_at_ms: int

    @property
    def deadline_ms(self) -> int:
        return self.give_up_at_ms

    def may_grant(self, candidate: ReplicaKey, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        return self._may_grant_without_leader(candidate, is_up_to_date, is_pre_vote)


@dataclass(slots=True, kw_only=True)
class Candidate(Role):
    """Has voted for itself and asks for the votes of the others."""

    tally: Tally
    give_up_at_ms: int
    counted_as_loss: bool = False
    """The reachable voters did not elect it: it waits for the backoff and tries again."""

    @property
    def deadline_ms(self) -> int:
        return self.give_up_at_ms


@dataclass(slots=True, eq=False)
class ParkedFetch:
    """A fetch that waits for data, for a higher high watermark or for its deadline."""

    partition: FetchPartition
    bytes_max: int
    deadline_ms: int
    promise: Promise[Any]


@dataclass(slots=True, eq=False)
class VoterChange:
    """A voter that is being added or removed; only one change runs at a time."""

    voter: Voter
    deadline_ms: int
    promise: Promise[Any]
    ack_when_committed: bool = True
    commit_offset: int | None = None
    """The offset behind the record of the change, once it is in the log."""
    response_class: type[AddRaftVoterResponse | RemoveRaftVoterResponse] = AddRaftVoterResponse

    def build_response(self, code: ErrorCode, message: str | None = None) -> Message:
        return self.response_class(
            error_code=code, error_message=message or (None if code is ErrorCode.NONE else code.name)
        )


@dataclass(slots=True, kw_only=True)
class Leader(Role):
    epoch_start_offset: int
    progress: Progress
    send_begin_epoch_at_ms: int = 0
    wants_to_resign: bool = False
    adding: VoterChange | None = None
    removing: VoterChange | None = None
    parked: deque[ParkedFetch] = field(default_factory=deque)

    @property
    def deadline_ms(self) -> int:
        times = [self.send_begin_epoch_at_ms, self.progress.check_quorum_at_ms]
        times += [fetch.deadline_ms for fetch in self.parked]
        times += [change.deadline_ms for change in (self.adding, self.removing) if change is not None]
        return min(times)

    def may_grant(self, candidate: ReplicaKey, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        return False


@dataclass(slots=True, kw_only=True)
class Follower(Role):
    fetch_by_ms: int
    """When a voter starts an election, unless a fetch succeeds before."""
    has_fetched: bool = False
    """A fetch from this leader succeeded in this epoch, and there is no sign since then that the leader is gone."""
    update_voter_at_ms: int = NEVER_MS
    download: SnapshotDownload | None = None
    download_id: SnapshotId | None = None
    """The snapshot that `download` is of."""

    @property
    def deadline_ms(self) -> int:
        return min(self.fetch_by_ms, self.update_voter_at_ms)

    def may_grant(self, candidate: ReplicaKey, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        return is_pre_vote and is_up_to_date and not self.has_fetched


@dataclass(slots=True, kw_only=True)
class Resigned(Role):
    """Led this epoch and resigned: it sends EndQuorumEpoch to the other voters and lets them elect first."""

    unconfirmed: set[int]
    """Voters that have not answered EndQuorumEpoch yet."""
    successors: tuple[ReplicaKey, ...] = ()
    leave_at_ms: int = NEVER_MS
    """When it becomes unattached, in the next epoch. Never if the node is being stopped."""

    @property
    def deadline_ms(self) -> int:
        return self.leave_at_ms
