"""What all roles of a replica share: its log, its durable state, its voters, role transitions and outgoing requests.

Nothing here does I/O with other nodes. Requests to them, late responses and news are queued here, and the driver of
the quorum takes them. The epoch and the vote are on disk before anything that depends on them is queued.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from moldau.base.clock import Clock
from moldau.base.errors import ErrorCode
from moldau.base.promise import Promise
from moldau.raft import responses
from moldau.raft.control_records import kraft_version_record, leader_change, voters_record
from moldau.raft.election import Tally, election_timeout_ms
from moldau.raft.history import VoterHistory
from moldau.raft.member import Member, RaftSettings
from moldau.raft.news import Committed, LeaderChanged, Leading, News, NoLongerLeading
from moldau.raft.ports import QuorumStateStore, RaftLog, SnapshotDownload
from moldau.raft.progress import Progress
from moldau.raft.quorum_state import NOBODY, QuorumState
from moldau.raft.roles import (
    NEVER_MS,
    Candidate,
    Follower,
    Leader,
    OutgoingRequest,
    Prospective,
    Resigned,
    Role,
    Unattached,
)
from moldau.raft.voters import Endpoint, ReplicaKey, VoterSet
from moldau.wire.apis import ApiKey
from moldau.wire.batch import read_header
from moldau.wire.records import Record, build_batch, build_value_batch
from moldau.wire.schema import Message


class Core:
    def __init__(
        self,
        me: Member,
        voters: VoterSet,
        bootstrap: Sequence[Endpoint],
        log: RaftLog,
        store: QuorumStateStore,
        rng: Random,
        clock: Clock,
        settings: RaftSettings,
    ) -> None:
        self.me = me
        self.settings = settings
        self.log = log
        self.rng = rng
        self.clock = clock
        self.history = VoterHistory(voters)
        own = {(each.host, each.port) for each in me.endpoints}
        self.bootstrap = [each for each in bootstrap if (each.host, each.port) not in own]
        self.role: Role = Unattached(0)
        self.high_watermark = 0
        self.is_stopping = False
        """True while the node shuts down: it answers and votes, but does not stand for election."""
        self.losses = 0
        """Elections lost in a row, since a leader was last known."""
        self.news: list[News] = []
        self.outgoing: list[OutgoingRequest] = []
        self.replies: list[tuple[Promise[Any], Message]] = []
        self.received: list[SnapshotDownload] = []
        self.checking: SnapshotDownload | None = None
        """The snapshot that is complete and being checked beside the loop. Nothing is fetched meanwhile: the next
        download must not write to the same files."""
        self._store = store

    @property
    def now_ms(self) -> int:
        """The monotonic clock that all deadlines here refer to."""
        return self.clock.monotonic_ms()

    @property
    def voters(self) -> VoterSet:
        return self.history.voters

    @property
    def is_voter(self) -> bool:
        return self.me.key in self.voters

    @property
    def may_stand(self) -> bool:
        """Whether this replica may be elected. It still may while it does not know that its removal is committed: the
        other voters may need the end of its log to elect a leader."""
        if self.is_stopping:
            return False
        offset = self.history.voters_offset
        is_removal_open = offset is not None and offset >= self.high_watermark
        return self.is_voter or (is_removal_open and self.me.key in (self.history.voters_before or ()))

    @property
    def leader_id(self) -> int:
        """The leader as the rest of the node sees it: a leader that resigned no longer counts."""
        has_resigned = self.role.leader_id == self.me.node_id and not isinstance(self.role, Leader)
        return NOBODY if has_resigned else self.role.leader_id

    @property
    def current_leader(self) -> responses.CurrentLeader:
        """The leader as responses to other replicas name it. Unlike `leader_id`, it may be this node after it resigned:
        it stays the leader of its epoch."""
        return responses.CurrentLeader(self.role.leader_id, self.role.epoch, self.role.leader_endpoint)

    def endpoint_of(self, node_id: int, reported: Endpoint | None = None) -> Endpoint | None:
        return reported or self.voters.endpoint(node_id, self.me.listener)

    # --- starting -----------------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Restore the voters, the high watermark and the role of the previous run, where it is safe to resume it."""
        self.history.load(self.log)
        snapshot = self.log.latest_snapshot()
        self.high_watermark = max(self.log.start_offset, snapshot.end_offset if snapshot else 0)
        state = self._store.read() or QuorumState(self.me.cluster_id, NOBODY, 0, NOBODY, ())
        election_at_ms = self.election_at_ms()
        self.role = Unattached(self.log.last_epoch, election_at_ms=election_at_ms)
        # The file or the log may have lost its end. An epoch that either of them knows has been used.
        if state.leader_epoch >= self.log.last_epoch:
            self.role = self._role_after_restart(state, election_at_ms)
        self._write_state(self.role)
        if self.leader_id != NOBODY:
            self.news.append(LeaderChanged(self.leader_id, self.role.epoch))
        if self.high_watermark:
            self.news.append(Committed(self.high_watermark))

    def _role_after_restart(self, state: QuorumState, election_at_ms: int) -> Role:
        epoch, leader_id = state.leader_epoch, state.leader_id
        voted = None
        if state.voted_id != NOBODY:
            voted = ReplicaKey(state.voted_id, state.voted_directory_id)
        if leader_id == self.me.node_id:
            # The end of the log may be lost. Writing on in this epoch could assign an offset twice.
            others = set(self.voters.ids) - {leader_id}
            return Resigned(epoch, leader_id, self.me.endpoint, unconfirmed=others, leave_at_ms=self._timeout_at_ms())
        endpoint = self.endpoint_of(leader_id)
        if leader_id != NOBODY and endpoint is not None:
            return self._follower(epoch, leader_id, endpoint, voted)
        # Also if it was a candidate: the end of its log may be lost, so votes granted for the longer log do not count.
        return Unattached(epoch, leader_id, voted=voted, election_at_ms=election_at_ms)

    # --- role transitions ---------------------------------------------------------------------------------------

    def become_unattached(self, epoch: int, leader_id: int = NOBODY) -> None:
        old = self.role
        voted = old.voted if epoch == old.epoch else None
        self._enter(Unattached(epoch, leader_id, voted=voted, election_at_ms=self._next_election_at_ms()))

    def become_follower(self, epoch: int, leader_id: int, endpoint: Endpoint) -> None:
        assert leader_id != self.me.node_id, "a node cannot follow itself"
        assert epoch > self.role.epoch or not isinstance(self.role, Leader), "an epoch has one leader"
        self.losses = 0
        self._enter(self._follower(epoch, leader_id, endpoint, self.role.voted if epoch == self.role.epoch else None))

    def become_prospective(self) -> None:
        assert self.may_stand, "only a voter that is not stopping stands for election"
        old = self.role
        tally = Tally(self.voters, self.me.node_id)
        self._enter(
            Prospective(
                old.epoch,
                old.leader_id,
                old.leader_endpoint,
                old.voted,
                tally=tally,
                give_up_at_ms=self._timeout_at_ms(),
            ),
            is_durable=False,
        )
        if tally.is_won:
            self.become_candidate()

    def become_candidate(self) -> None:
        assert isinstance(self.role, Prospective), "a candidate must win the pre-vote first"
        tally = Tally(self.voters, self.me.node_id)
        epoch = self.role.epoch + 1
        self._enter(Candidate(epoch, voted=self.me.key, tally=tally, give_up_at_ms=self._timeout_at_ms()))
        if tally.is_won:
            self.become_leader()

    def become_leader(self) -> None:
        candidate = self.role
        assert isinstance(candidate, Candidate), "only candidates are elected"
        assert candidate.tally.is_won, "only a candidate with a majority becomes the leader"
        start_offset = self.log.end_offset
        progress = Progress(self.me.key, self.voters, start_offset, self.settings.check_quorum_ms, self.now_ms)
        self.losses = 0
        self._enter(
            Leader(
                candidate.epoch, self.me.node_id, self.me.endpoint, epoch_start_offset=start_offset, progress=progress,
                send_begin_epoch_at_ms=self.now_ms,
            )
        )  # fmt: skip
        self.append_control(self._first_records(candidate.tally.granting))
        self.news.append(Leading(candidate.epoch))

    def become_resigned(self) -> None:
        leader = self.role
        assert isinstance(leader, Leader), "only a leader resigns"
        others = set(self.voters.ids) - {self.me.node_id}
        self._enter(
            Resigned(
                leader.epoch, leader.leader_id, leader.leader_endpoint,
                unconfirmed=others, successors=leader.progress.successors(), leave_at_ms=self._timeout_at_ms(),
            ),
            is_durable=False,
        )  # fmt: skip

    def learn_leader(self, leader_id: int, epoch: int, endpoint: Endpoint | None) -> bool:
        """Take over an epoch, and its leader if one is named. Return False if that contradicts the known leader."""
        role = self.role
        if epoch < role.epoch:
            return True
        if leader_id == self.me.node_id:
            return epoch == role.epoch and role.leader_id == leader_id
        if epoch == role.epoch and NOBODY not in (leader_id, role.leader_id) and leader_id != role.leader_id:
            return False
        endpoint = None if leader_id == NOBODY else self.endpoint_of(leader_id, endpoint)
        if endpoint is not None and (epoch > role.epoch or isinstance(role, Unattached) or role.leader_id == NOBODY):
            self.become_follower(epoch, leader_id, endpoint)
        elif epoch > role.epoch:
            self.become_unattached(epoch, leader_id)
        return True

    def vote_for(self, candidate: ReplicaKey) -> None:
        """Vote for a candidate, unless this epoch's vote is given already. The vote is on disk before it counts."""
        assert isinstance(self.role, Unattached | Prospective), "other roles have voted already or follow a leader"
        if self.role.voted is None:
            self._write_state(replace(self.role, voted=candidate))
            self.role.voted = candidate
            if isinstance(self.role, Unattached):
                self.role.election_at_ms = self.election_at_ms()

    def _enter(self, role: Role, *, is_durable: bool = True) -> None:
        """`is_durable` is False if epoch, leader and vote stay the same: nothing is written."""
        old, previous_leader = self.role, (self.leader_id, self.role.epoch)
        if is_durable:
            self._write_state(role)
        self.role = role
        if isinstance(old, Follower) and old.download is not None and old.download is not self.checking:
            old.download.abandon()
        if isinstance(old, Leader):
            self.news.append(NoLongerLeading())
            self._refuse_parked(old)
        if (self.leader_id, role.epoch) != previous_leader:
            self.news.append(LeaderChanged(self.leader_id, role.epoch))

    def _refuse_parked(self, leader: Leader) -> None:
        """Answer all parked requests of this former leader with NOT_LEADER_OR_FOLLOWER."""
        current_leader = self.current_leader
        for fetch in leader.parked:
            refusal = responses.fetch_response(current_leader, ErrorCode.NOT_LEADER_OR_FOLLOWER, self.log.start_offset)
            self.replies.append((fetch.promise, refusal))
        for change in (leader.adding, leader.removing):
            if change is not None and not change.promise.done:
                self.replies.append((change.promise, change.build_response(ErrorCode.NOT_LEADER_OR_FOLLOWER)))

    def _write_state(self, role: Role) -> None:
        voted = role.voted
        self._store.write(
            QuorumState(
                self.me.cluster_id,
                role.leader_id,
                role.epoch,
                voted.id if voted else NOBODY,
                self.voters.ids,
                voted.directory_id if voted else bytes(16),
                data_version=min(self.history.kraft_version, 1),
            )
        )

    def _follower(self, epoch: int, leader_id: int, endpoint: Endpoint, voted: ReplicaKey | None) -> Follower:
        fetch_by_ms = self.now_ms + self.settings.fetch_timeout_ms
        return Follower(epoch, leader_id, endpoint, voted, fetch_by_ms=fetch_by_ms, update_voter_at_ms=fetch_by_ms)

    # --- deadlines ----------------------------------------------------------------------------------------------

    def _timeout_at_ms(self) -> int:
        return self.now_ms + election_timeout_ms(self.settings, self.rng)

    def election_at_ms(self) -> int:
        return self._timeout_at_ms() if self.may_stand else NEVER_MS

    def _next_election_at_ms(self) -> int:
        """When to start the next election: a role that waited already keeps its deadline instead of starting again."""
        match self.role:
            case _ if not self.may_stand:
                return NEVER_MS
            case Unattached(election_at_ms=at_ms) if at_ms != NEVER_MS:
                return at_ms
            case Candidate(give_up_at_ms=at_ms) | Resigned(leave_at_ms=at_ms):
                return at_ms
            case Prospective(tally=tally, give_up_at_ms=at_ms) if not tally.is_lost:
                return at_ms
            case _:
                return self._timeout_at_ms()

    # --- outgoing requests --------------------------------------------------------------------------------------

    def may_send(self, node_id: int, *, fetches: bool = False) -> bool:
        """Whether no request of that kind (fetches, or all others) to that node is in flight, and the backoff after
        its last failure is over."""
        key = node_id, fetches
        return key not in self.role.in_flight and self.role.retry_at_ms.get(key, 0) <= self.now_ms

    def send(
        self, node_id: int, to: Endpoint | None, api: ApiKey, request: Message, version: int | None = None
    ) -> None:
        """Queue a request; do nothing if the endpoint of the node is unknown."""
        if to is not None:
            outgoing = OutgoingRequest(node_id, to, api, request, self.settings.request_timeout_ms, version)
            self.role.in_flight[outgoing.key] = outgoing
            self.role.retry_at_ms.pop(outgoing.key, None)
            self.outgoing.append(outgoing)

    def forget_expired_backoffs(self) -> None:
        self.role.retry_at_ms = {key: at_ms for key, at_ms in self.role.retry_at_ms.items() if at_ms > self.now_ms}

    def retry_after(self, outgoing: OutgoingRequest, delay_ms: int) -> None:
        self.role.retry_at_ms[outgoing.key] = self.now_ms + delay_ms

    # --- the log ------------------------------------------------------------------------------------------------

    def append_control(self, records: Sequence[Record]) -> int:
        """Append one batch of control records as the leader; return the offset behind it."""
        leader = self.role
        assert isinstance(leader, Leader), "only the leader writes"
        batch = build_batch(records, leader_epoch=leader.epoch, is_control=True)
        self.log.append(batch, leader.epoch, self.clock.now_ms())
        self.history.read_batch(read_header(batch), memoryview(batch))
        leader.progress.update_voters(self.voters)
        return self.log.end_offset

    def append_values(self, values: Sequence[bytes]) -> int:
        """Append one batch of metadata records as the leader; return the offset behind it."""
        leader = self.role
        assert isinstance(leader, Leader), "only the leader writes"
        now_ms = self.clock.now_ms()
        self.log.append(build_value_batch(values, now_ms, leader.epoch), leader.epoch, now_ms)
        return self.log.end_offset

    def _first_records(self, granting: Sequence[int]) -> list[Record]:
        """The first records of an epoch: LeaderChange; also KRaftVersion and Voters, if the voters come from the
        bootstrap snapshot or the entry of this leader is out of date."""
        now_ms, history = self.clock.now_ms(), self.history
        records = [leader_change(self.me.node_id, self.voters.ids, granting, now_ms)]
        is_from_bootstrap = history.voters_offset == -1
        voters = self.voters.update(self.me.voter)
        if history.can_change and voters is not None and (is_from_bootstrap or voters != self.voters):
            records += [kraft_version_record(history.kraft_version, now_ms), voters_record(voters, now_ms)]
        return records

    def commit(self, high_watermark: int) -> bool:
        """Advance the high watermark; return False if it is not higher than before."""
        if high_watermark <= self.high_watermark:
            return False
        assert high_watermark <= self.log.end_offset, "the high watermark is beyond the end of the log"
        self.high_watermark = high_watermark
        self.news.append(Committed(high_watermark))
        return True
