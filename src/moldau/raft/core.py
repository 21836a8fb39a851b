"""What all roles of a replica share: its log and memory, its voters, the passage from role to role, and its questions.

Nothing here speaks to anyone. Questions to other nodes, late answers and news are laid down, and whoever drives the
quorum takes them away; the epoch and the vote are on disk before anything that rests on them is laid down.
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
from moldau.raft.ports import QuorumStateStore, RaftLog
from moldau.raft.progress import Progress
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
from moldau.raft.states import NOBODY, QuorumState
from moldau.raft.voters import Endpoint, ReplicaKey, VoterSet
from moldau.wire.apis import ApiKey
from moldau.wire.batch import read_header
from moldau.wire.records import Record, build_batch
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
        self.bootstrap = [each for each in bootstrap if each[1:] not in [own[1:] for own in me.endpoints]]
        self.role: Role = Unattached(0)
        self.high_watermark = 0
        self.is_stopping = False
        """On the way out: answers and votes, but no longer stands for election."""
        self.losses = 0
        """Elections lost since there was last a leader."""
        self.news: list[News] = []
        self.outgoing: list[OutgoingRequest] = []
        self.replies: list[tuple[Promise[Any], Message]] = []
        self._store = store

    @property
    def now_ms(self) -> int:
        """The clock by which everything here is due."""
        return self.clock.elapsed_ms()

    @property
    def voters(self) -> VoterSet:
        return self.history.voters

    @property
    def is_voter(self) -> bool:
        return self.me.key in self.voters

    @property
    def may_stand(self) -> bool:
        """Whether this replica may be elected. One whose removal may not be committed yet still may: the others could
        be unable to elect anyone without the end of its log."""
        if self.is_stopping:
            return False
        offset = self.history.voters_offset
        is_removal_open = offset is not None and offset >= self.high_watermark
        return self.is_voter or (is_removal_open and self.me.key in (self.history.voters_before or ()))

    @property
    def leader_id(self) -> int:
        """As the rest of the node should see it: a leader that resigned leads no more."""
        return NOBODY if isinstance(self.role, Resigned) else self.role.leader_id

    @property
    def standing(self) -> responses.Standing:
        return responses.Standing(self.role.leader_id, self.role.epoch, self.role.leader_endpoint)

    def endpoint_of(self, node_id: int, told: Endpoint | None = None) -> Endpoint | None:
        return told or self.voters.endpoint(node_id, self.me.listener)

    # --- at the start -------------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Takes up the role in which the last life ended, as far as it may be taken up."""
        self.history.load(self.log)
        snapshot = self.log.latest_snapshot()
        self.high_watermark = max(self.log.start_offset, snapshot.end_offset if snapshot else 0)
        known = self._store.read() or QuorumState(self.me.cluster_id, NOBODY, 0, NOBODY, ())
        election_at_ms = self.election_at_ms()
        self.role = Unattached(self.log.last_epoch, election_at_ms=election_at_ms)
        # Either may have lost something: an epoch that one of them knows has been used.
        if known.leader_epoch >= self.log.last_epoch:
            self.role = self._remembered(known, election_at_ms)
        self._remember(self.role)
        if self.role.leader_id != NOBODY:
            self.news.append(LeaderChanged(self.leader_id, self.role.epoch))
        if self.high_watermark:
            self.news.append(Committed(self.high_watermark))

    def _remembered(self, known: QuorumState, election_at_ms: int) -> Role:
        epoch, leader_id = known.leader_epoch, known.leader_id
        voted = None
        if known.voted_id != NOBODY:
            voted = ReplicaKey(known.voted_id, known.voted_directory_id)
        if leader_id == self.me.node_id:
            # The end of the log may be lost. To write on in this epoch could give an offset away twice.
            others = set(self.voters.ids) - {leader_id}
            return Resigned(epoch, leader_id, self.me.endpoint, unaware=others, leave_at_ms=self._timeout_ms())
        endpoint = self.endpoint_of(leader_id)
        if leader_id != NOBODY and endpoint is not None:
            return self._follower(epoch, leader_id, endpoint, voted)
        # Also if it was a candidate: with the end of its log lost, it must not gather votes given for the whole.
        return Unattached(epoch, leader_id, voted=voted, election_at_ms=election_at_ms)

    # --- from role to role --------------------------------------------------------------------------------------

    def become_unattached(self, epoch: int, leader_id: int = NOBODY) -> None:
        old = self.role
        voted = old.voted if epoch == old.epoch else None
        self._enter(Unattached(epoch, leader_id, voted=voted, election_at_ms=self._remaining_election_ms()))

    def become_follower(self, epoch: int, leader_id: int, endpoint: Endpoint) -> None:
        assert leader_id != self.me.node_id, "nobody follows itself"
        assert epoch > self.role.epoch or not isinstance(self.role, Leader), "an epoch has one leader"
        self.losses = 0
        self._enter(self._follower(epoch, leader_id, endpoint, self.role.voted if epoch == self.role.epoch else None))

    def become_prospective(self) -> None:
        assert self.may_stand, "observers are not elected"
        old = self.role
        tally = Tally(self.voters, self.me.node_id)
        self._enter(
            Prospective(
                old.epoch, old.leader_id, old.leader_endpoint, old.voted, tally=tally, give_up_at_ms=self._timeout_ms()
            ),
            is_durable=False,
        )
        if tally.is_won:
            self.become_candidate()

    def become_candidate(self) -> None:
        assert isinstance(self.role, Prospective), "a pre-vote goes before a vote"
        tally = Tally(self.voters, self.me.node_id)
        epoch = self.role.epoch + 1
        self._enter(Candidate(epoch, voted=self.me.key, tally=tally, give_up_at_ms=self._timeout_ms()))
        if tally.is_won:
            self.become_leader()

    def become_leader(self) -> None:
        candidate = self.role
        assert isinstance(candidate, Candidate), "only candidates are elected"
        assert candidate.tally.is_won, "only the elected lead"
        start_offset = self.log.end_offset
        progress = Progress(self.me.key, self.voters, start_offset, self.settings.check_quorum_ms, self.now_ms)
        self.losses = 0
        self._enter(
            Leader(
                candidate.epoch, self.me.node_id, self.me.endpoint, epoch_start_offset=start_offset, progress=progress,
                introduce_at_ms=self.now_ms,
            )
        )  # fmt: skip
        self.append(self._first_records(candidate.tally.granting), is_control=True)
        self.news.append(Leading(candidate.epoch))

    def become_resigned(self) -> None:
        leader = self.role
        assert isinstance(leader, Leader), "only a leader resigns"
        others = set(self.voters.ids) - {self.me.node_id}
        self._enter(
            Resigned(
                leader.epoch, leader.leader_id, leader.leader_endpoint,
                unaware=others, successors=leader.progress.successors(), leave_at_ms=self._timeout_ms(),
            ),
            is_durable=False,
        )  # fmt: skip

    def learn(self, leader_id: int, epoch: int, endpoint: Endpoint | None) -> bool:
        """Somebody names an epoch and perhaps its leader. False if that contradicts what is known."""
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
        """Remembers the vote before it is given."""
        assert isinstance(self.role, Unattached | Prospective), "the others have voted or follow"
        if self.role.voted is None:
            # First on disk: a vote that could not be written down was not given.
            self._remember(replace(self.role, voted=candidate))
            self.role.voted = candidate
            if isinstance(self.role, Unattached):
                self.role.election_at_ms = self.election_at_ms()

    def _enter(self, role: Role, *, is_durable: bool = True) -> None:
        old, told = self.role, (self.leader_id, self.role.epoch)
        if is_durable:
            self._remember(role)
        self.role = role
        if isinstance(old, Follower) and old.download is not None:
            old.download.abandon()
        if isinstance(old, Leader):
            self.news.append(NoLongerLeading())
            self._let_go(old)
        if (self.leader_id, role.epoch) != told:
            self.news.append(LeaderChanged(self.leader_id, role.epoch))

    def _let_go(self, leader: Leader) -> None:
        """Those who still wait for something of this leader are told to look for another."""
        standing = self.standing
        for fetch in leader.parked:
            refusal = responses.fetch_response(standing, ErrorCode.NOT_LEADER_OR_FOLLOWER, self.log.start_offset)
            self.replies.append((fetch.answer, refusal))
        for change in (leader.adding, leader.removing):
            if change is not None and not change.answer.done:
                self.replies.append((change.answer, change.outcome(ErrorCode.NOT_LEADER_OR_FOLLOWER)))

    def _remember(self, role: Role) -> None:
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

    # --- times --------------------------------------------------------------------------------------------------

    def _timeout_ms(self) -> int:
        return self.now_ms + election_timeout_ms(self.settings, self.rng)

    def election_at_ms(self) -> int:
        return self._timeout_ms() if self.may_stand else NEVER_MS

    def _remaining_election_ms(self) -> int:
        """A candidate that hears of another epoch keeps its time: it should not have to wait from the beginning."""
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
                return self._timeout_ms()

    # --- questions ----------------------------------------------------------------------------------------------

    def may_ask(self, node_id: int, *, fetches: bool = False) -> bool:
        """Whether nothing is under way to that node, and no failure is too fresh."""
        line = node_id, fetches
        return line not in self.role.asked and self.role.retry_at_ms.get(line, 0) <= self.now_ms

    def ask(self, node_id: int, to: Endpoint | None, api: ApiKey, request: Message, version: int | None = None) -> None:
        if to is not None:
            asked = OutgoingRequest(node_id, to, api, request, self.settings.request_timeout_ms, version)
            self.role.asked[asked.line] = asked
            self.role.retry_at_ms.pop(asked.line, None)
            self.outgoing.append(asked)

    def forget_past_retries(self) -> None:
        self.role.retry_at_ms = {line: at_ms for line, at_ms in self.role.retry_at_ms.items() if at_ms > self.now_ms}

    def ask_again_after(self, asked: OutgoingRequest, delay_ms: int) -> None:
        self.role.retry_at_ms[asked.line] = self.now_ms + delay_ms

    # --- the log ------------------------------------------------------------------------------------------------

    def append(self, records: Sequence[Record], *, is_control: bool = False) -> int:
        """One batch of this leader's; the offset behind it."""
        leader = self.role
        assert isinstance(leader, Leader), "only the leader writes"
        batch = build_batch(records, leader_epoch=leader.epoch, is_control=is_control)
        self.log.append(batch, leader.epoch, self.clock.now_ms())
        if is_control:
            self.history.learn(read_header(batch), memoryview(batch))
            leader.progress.update_voters(self.voters)
        return self.log.end_offset

    def _first_records(self, granting: Sequence[int]) -> list[Record]:
        """A term begins with its leader's name, and with the voters if what the log says of them is behind."""
        now_ms, history = self.clock.now_ms(), self.history
        records = [leader_change(self.me.node_id, self.voters.ids, granting, now_ms)]
        is_from_bootstrap = history.voters_offset == -1
        voters = self.voters.update(self.me.voter)
        if history.can_change and voters is not None and (is_from_bootstrap or voters != self.voters):
            records += [kraft_version_record(history.kraft_version, now_ms), voters_record(voters, now_ms)]
        return records

    def commit(self, high_watermark: int) -> bool:
        """Whether that is news. It never goes back."""
        if high_watermark <= self.high_watermark:
            return False
        assert high_watermark <= self.log.end_offset, "what is committed is in the log"
        self.high_watermark = high_watermark
        self.news.append(Committed(high_watermark))
        return True
