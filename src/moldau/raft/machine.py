"""One replica of the metadata log in its quorum: KRaft (KIP-595, 853, 996) as plain calls, without a wire or a clock.

What happens to it comes in by `answer`, `on_response`, `flushed`, `append` and `poll`; what it wants to be done lies in
`take_outgoing`, `take_replies` and `take_news` afterwards, and `deadline_ms` tells when to poll it at the latest.
A quorum of one elects itself within `start`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from moldau.base.clock import Clock
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.raft import describing, following, leading, membership, terms, voting
from moldau.raft.core import Core
from moldau.raft.member import Member, RaftSettings
from moldau.raft.news import News
from moldau.raft.ports import QuorumStateStore, RaftLog
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
from moldau.raft.snapshots import SnapshotId
from moldau.raft.voters import Endpoint, VoterSet
from moldau.wire.apis import ApiKey
from moldau.wire.messages.add_raft_voter import AddRaftVoterRequest
from moldau.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from moldau.wire.messages.describe_quorum import DescribeQuorumRequest
from moldau.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from moldau.wire.messages.fetch import FetchRequest
from moldau.wire.messages.fetch_snapshot import FetchSnapshotRequest
from moldau.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from moldau.wire.messages.update_raft_voter import UpdateRaftVoterRequest
from moldau.wire.messages.vote import VoteRequest
from moldau.wire.records import Record
from moldau.wire.schema import Message

_ANSWERS: Final[dict[type[Message], Callable[[Core, Any], Any]]] = {
    VoteRequest: voting.answer_vote,
    BeginQuorumEpochRequest: terms.answer_begin,
    EndQuorumEpochRequest: terms.answer_end,
    FetchRequest: leading.answer_fetch,
    FetchSnapshotRequest: leading.answer_fetch_snapshot,
    DescribeQuorumRequest: describing.answer_describe,
    AddRaftVoterRequest: membership.answer_add,
    RemoveRaftVoterRequest: membership.answer_remove,
    UpdateRaftVoterRequest: membership.answer_update,
}
_HEEDED: Final[dict[ApiKey, Callable[[Core, OutgoingRequest, Any], bool]]] = {
    ApiKey.VOTE: voting.on_vote_response,
    ApiKey.BEGIN_QUORUM_EPOCH: terms.on_begin_response,
    ApiKey.END_QUORUM_EPOCH: terms.on_end_response,
    ApiKey.FETCH: following.on_fetch_response,
    ApiKey.FETCH_SNAPSHOT: following.on_snapshot_response,
    ApiKey.API_VERSIONS: membership.on_api_versions_response,
    ApiKey.UPDATE_RAFT_VOTER: following.on_update_voter_response,
}
_HEEDED_FAILURES: Final[dict[ApiKey, Callable[[Core, OutgoingRequest, KafkaError], None]]] = {
    ApiKey.VOTE: voting.on_vote_failed,
    ApiKey.FETCH: following.on_fetch_failed,
    ApiKey.FETCH_SNAPSHOT: following.on_fetch_failed,
    ApiKey.API_VERSIONS: membership.on_api_versions_failed,
}
_PASSAGES_MAX: Final = 16
"""Roles that one poll may pass through; more would be a circle."""


class Quorum:
    def __init__(
        self,
        me: Member,
        voters: VoterSet,
        bootstrap: Sequence[Endpoint],
        log: RaftLog,
        store: QuorumStateStore,
        rng: Random,
        clock: Clock,
        settings: RaftSettings | None = None,
    ) -> None:
        """`voters` are the static ones, empty if the log names them; `bootstrap` is whom to ask for the leader."""
        self._core = Core(me, voters, bootstrap, log, store, rng, clock, settings or RaftSettings())

    # --- what is known ------------------------------------------------------------------------------------------

    @property
    def log(self) -> RaftLog:
        return self._core.log

    @property
    def settings(self) -> RaftSettings:
        return self._core.settings

    @property
    def role(self) -> Role:
        return self._core.role

    @property
    def leader_id(self) -> int:
        """-1 while nobody is known."""
        return self._core.leader_id

    @property
    def leader_epoch(self) -> int:
        return self._core.role.epoch

    @property
    def leader_endpoint(self) -> Endpoint | None:
        return self._core.role.leader_endpoint if self.leader_id >= 0 else None

    @property
    def is_leader(self) -> bool:
        return isinstance(self._core.role, Leader)

    @property
    def epoch_start_offset(self) -> int | None:
        """Where this leader's term begins in the log; None if this node does not lead."""
        role = self._core.role
        return role.epoch_start_offset if isinstance(role, Leader) else None

    @property
    def high_watermark(self) -> int:
        return self._core.high_watermark

    @property
    def voters(self) -> VoterSet:
        return self._core.voters

    @property
    def kraft_version(self) -> int:
        """1 if the log names the voters, 0 if the settings do."""
        return self._core.history.kraft_version

    @property
    def is_voter(self) -> bool:
        return self._core.is_voter

    def voters_at(self, snapshot: SnapshotId) -> tuple[int, VoterSet | None]:
        """(kraft.version, voters) as a snapshot of that name has to tell them."""
        history, offset = self._core.history, snapshot.end_offset - 1
        version = history.kraft_version_at(offset)
        return version, history.voters_at(offset) if version > 0 else None

    # --- what happens -------------------------------------------------------------------------------------------

    def start(self) -> None:
        core = self._core
        core.restore()
        if core.voters.is_only(core.me.key):
            core.become_prospective()
        self.poll()

    def answer(self, request: Message) -> Message | Promise[Any]:
        """To any of the quorum's requests. A fetch with nothing to bring, or a change of voters, is answered later."""
        answered: Message | Promise[Any] = _ANSWERS[type(request)](self._core, request)
        self.poll()
        return answered

    def on_response(self, asked: OutgoingRequest, outcome: Message | KafkaError) -> None:
        """The outcome of a question that was taken from `take_outgoing`."""
        core, role = self._core, self._core.role
        if role.asked.get(asked.line) is not asked:
            return
        del role.asked[asked.line]
        if isinstance(outcome, KafkaError):
            _HEEDED_FAILURES.get(asked.api, _ask_again)(core, asked, outcome)
        elif not _HEEDED[asked.api](core, asked, outcome) and core.role is role:
            core.ask_again_after(asked, core.settings.retry_backoff_ms)
        self.poll()

    def append(self, values: Sequence[bytes]) -> int:
        """Writes one batch, all of it or nothing; the offset behind it, at which it is committed."""
        core = self._core
        if not isinstance(core.role, Leader) or core.is_stopping:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"Node {core.me.node_id} does not lead the quorum.")
        now_ms = core.clock.now_ms()
        end_offset = core.append([Record(offset, now_ms, None, value) for offset, value in enumerate(values)])
        self.poll()
        return end_offset

    def flushed(self) -> None:
        """More of the log is on disk."""
        self.poll()

    def resign(self) -> None:
        """Gives the lead away, and does not stand for election again."""
        core = self._core
        core.is_stopping = True
        if isinstance(core.role, Leader):
            core.become_resigned()
        self.poll()

    def step_down(self) -> None:
        """Lets another lead, where there is one, and may stand again later."""
        core = self._core
        if isinstance(core.role, Leader) and not core.voters.is_only(core.me.key):
            core.become_resigned()
        self.poll()

    # --- what is due --------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Does what is due by now and asks what is to be asked, until there is nothing more of either."""
        for _ in range(_PASSAGES_MAX):
            role = self._core.role
            _POLLS[type(role)](self._core, role)
            if self._core.role is role:
                self._core.forget_past_retries()
                return
        raise AssertionError("a circle of roles")

    @property
    def deadline_ms(self) -> int:
        """By the clock that never goes back; far in the future if nothing happens by itself."""
        role = self._core.role
        return min([role.deadline_ms, *role.retry_at_ms.values()])

    def take_outgoing(self) -> list[OutgoingRequest]:
        core = self._core
        taken, core.outgoing = core.outgoing, []
        return taken

    def take_replies(self) -> list[tuple[Promise[Any], Message]]:
        core = self._core
        taken, core.replies = core.replies, []
        return taken

    def take_news(self) -> list[News]:
        core = self._core
        taken, core.news = core.news, []
        return taken


def _ask_again(core: Core, asked: OutgoingRequest, failure: KafkaError) -> None:
    core.ask_again_after(asked, core.settings.retry_backoff_ms)


def _poll_unattached(core: Core, role: Unattached) -> None:
    if not core.may_stand:
        role.election_at_ms = NEVER_MS
    elif role.election_at_ms == NEVER_MS:
        role.election_at_ms = core.election_at_ms()
    elif core.now_ms >= role.election_at_ms:
        core.become_prospective()
        return
    following.fetch(core)


def _poll_prospective(core: Core, role: Prospective) -> None:
    if core.now_ms >= role.give_up_at_ms or not core.may_stand:
        voting.give_up(core, role)
    else:
        voting.ask_for_votes(core)


def _poll_candidate(core: Core, role: Candidate) -> None:
    if not core.may_stand:
        core.become_unattached(role.epoch)
    elif core.now_ms >= role.give_up_at_ms:
        core.become_prospective()
    else:
        voting.ask_for_votes(core)


def _poll_leader(core: Core, role: Leader) -> None:
    leading.count_own_flush(core, role)
    membership.finish_changes(core, role)
    if role.wants_to_resign or core.now_ms >= role.progress.check_quorum_at_ms:
        core.become_resigned()
        return
    leading.release_fetches(core, role)
    terms.send_begin_epoch(core, role)


def _poll_follower(core: Core, role: Follower) -> None:
    if not core.may_stand:
        role.fetch_by_ms = NEVER_MS
    elif role.fetch_by_ms == NEVER_MS:
        role.fetch_by_ms = core.now_ms + core.settings.fetch_timeout_ms
    elif core.now_ms >= role.fetch_by_ms:
        core.become_prospective()
        return
    following.update_voter(core, role)
    following.fetch(core)


def _poll_resigned(core: Core, role: Resigned) -> None:
    terms.send_end_epoch(core, role)
    if core.is_stopping:
        role.leave_at_ms = NEVER_MS
    elif core.now_ms >= role.leave_at_ms:
        core.become_unattached(role.epoch + 1)


_POLLS: Final[dict[type[Role], Callable[[Core, Any], None]]] = {
    Unattached: _poll_unattached,
    Prospective: _poll_prospective,
    Candidate: _poll_candidate,
    Leader: _poll_leader,
    Follower: _poll_follower,
    Resigned: _poll_resigned,
}
