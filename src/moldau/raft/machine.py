"""One replica of the metadata log in its quorum: KRaft (KIP-595, 853, 996) as plain calls, without network or timers.

Input comes by `answer`, `on_response`, `flushed`, `on_snapshot_checked`, `append` and `poll`. After each of them the
caller carries out the output of `take_outgoing`, `take_received`, `take_replies` and `take_news`; `deadline_ms` says
when to call `poll` at the latest.
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
from moldau.raft.ports import QuorumStateStore, RaftLog, SnapshotDownload
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
from moldau.wire.schema import Message

_REQUEST_HANDLERS: Final[dict[type[Message], Callable[[Core, Any], Any]]] = {
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
_RESPONSE_HANDLERS: Final[dict[ApiKey, Callable[[Core, OutgoingRequest, Any], bool]]] = {
    ApiKey.VOTE: voting.on_vote_response,
    ApiKey.BEGIN_QUORUM_EPOCH: terms.on_begin_response,
    ApiKey.END_QUORUM_EPOCH: terms.on_end_response,
    ApiKey.FETCH: following.on_fetch_response,
    ApiKey.FETCH_SNAPSHOT: following.on_snapshot_response,
    ApiKey.API_VERSIONS: membership.on_api_versions_response,
    ApiKey.UPDATE_RAFT_VOTER: following.on_update_voter_response,
}
_FAILURE_HANDLERS: Final[dict[ApiKey, Callable[[Core, OutgoingRequest, KafkaError], None]]] = {
    ApiKey.VOTE: voting.on_vote_failed,
    ApiKey.FETCH: following.on_fetch_failed,
    ApiKey.FETCH_SNAPSHOT: following.on_fetch_failed,
    ApiKey.API_VERSIONS: membership.on_api_versions_failed,
}
_TRANSITIONS_MAX: Final = 16
"""Role transitions in one poll; more would be an endless loop."""


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
        """`voters` is the static set, empty if the log has the voters; `bootstrap` servers are asked for the leader."""
        self._core = Core(me, voters, bootstrap, log, store, rng, clock, settings or RaftSettings())

    # --- state --------------------------------------------------------------------------------------------------

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
        """-1 while no leader is known."""
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
        """1 if the voters are in the log, 0 if they are in the settings."""
        return self._core.history.kraft_version

    @property
    def is_voter(self) -> bool:
        return self._core.is_voter

    def voters_at(self, snapshot: SnapshotId) -> tuple[int, VoterSet | None]:
        """Return the kraft.version and the voters that a snapshot with this id must contain."""
        history, offset = self._core.history, snapshot.end_offset - 1
        version = history.kraft_version_at(offset)
        return version, history.voters_at(offset) if version > 0 else None

    # --- input --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        core = self._core
        core.restore()
        if core.voters.is_only(core.me.key):
            core.become_prospective()
        self.poll()

    def answer(self, request: Message) -> Message | Promise[Any]:
        """Answer any request of the quorum. A fetch without new data, or a change of voters, gets a promise."""
        response: Message | Promise[Any] = _REQUEST_HANDLERS[type(request)](self._core, request)
        self.poll()
        return response

    def on_response(self, sent: OutgoingRequest, outcome: Message | KafkaError) -> None:
        """Handle the response to a request from `take_outgoing`, or its failure. Ignore those of an earlier role."""
        core, role = self._core, self._core.role
        if role.in_flight.get(sent.key) is not sent:
            return
        del role.in_flight[sent.key]
        if isinstance(outcome, KafkaError):
            _FAILURE_HANDLERS.get(sent.api, _retry)(core, sent, outcome)
        elif not _RESPONSE_HANDLERS[sent.api](core, sent, outcome) and core.role is role:
            core.retry_after(sent, core.settings.retry_backoff_ms)
        self.poll()

    def append(self, values: Sequence[bytes]) -> int:
        """Append one batch; return the offset behind it. The batch is committed once the high watermark is there."""
        core = self._core
        if not isinstance(core.role, Leader) or core.is_stopping:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"Node {core.me.node_id} does not lead the quorum.")
        end_offset = core.append_values(values)
        self.poll()
        return end_offset

    def flushed(self) -> None:
        """Note that more of the log is on disk."""
        self.poll()

    def on_snapshot_checked(self, download: SnapshotDownload, is_sound: bool) -> None:
        """Note what the `check` of a snapshot from `take_received` returned."""
        following.on_snapshot_checked(self._core, download, is_sound)
        self.poll()

    def resign(self) -> None:
        """Resign as leader, and do not stand for election again."""
        core = self._core
        core.is_stopping = True
        if isinstance(core.role, Leader):
            core.become_resigned()
        self.poll()

    def step_down(self) -> None:
        """Resign as leader if there are other voters; this node may stand for election again later."""
        core = self._core
        if isinstance(core.role, Leader) and not core.voters.is_only(core.me.key):
            core.become_resigned()
        self.poll()

    # --- output -------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Handle all deadlines that have passed and queue all requests to send, until the role no longer changes."""
        for _ in range(_TRANSITIONS_MAX):
            role = self._core.role
            _POLLS[type(role)](self._core, role)
            if self._core.role is role:
                self._core.forget_expired_backoffs()
                return
        raise AssertionError("the role changed too often in one poll")

    @property
    def deadline_ms(self) -> int:
        """When to poll next, by the monotonic clock; `NEVER_MS` if there is no deadline."""
        role = self._core.role
        return min([role.deadline_ms, *role.retry_at_ms.values()])

    def take_outgoing(self) -> list[OutgoingRequest]:
        core = self._core
        outgoing, core.outgoing = core.outgoing, []
        return outgoing

    def take_received(self) -> list[SnapshotDownload]:
        """Return the snapshots that are to be checked, in a thread: they may be large."""
        core = self._core
        received, core.received = core.received, []
        return received

    def take_replies(self) -> list[tuple[Promise[Any], Message]]:
        core = self._core
        replies, core.replies = core.replies, []
        return replies

    def take_news(self) -> list[News]:
        core = self._core
        news, core.news = core.news, []
        return news


def _retry(core: Core, sent: OutgoingRequest, failure: KafkaError) -> None:
    core.retry_after(sent, core.settings.retry_backoff_ms)


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
        voting.request_votes(core)


def _poll_candidate(core: Core, role: Candidate) -> None:
    if not core.may_stand:
        core.become_unattached(role.epoch)
    elif core.now_ms >= role.give_up_at_ms:
        core.become_prospective()
    else:
        voting.request_votes(core)


def _poll_leader(core: Core, role: Leader) -> None:
    leading.count_own_flush(core, role)
    membership.finish_changes(core, role)
    if role.wants_to_resign or core.now_ms >= role.progress.check_quorum_at_ms:
        core.become_resigned()
        return
    leading.release_fetches(core, role)
    terms.send_begin_epoch(core, role)


def _poll_follower(core: Core, role: Follower) -> None:
    if not core.may_stand or core.checking is not None:
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
