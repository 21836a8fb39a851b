"""Elections: giving a vote, asking for votes, and counting what comes back.

A pre-vote (KIP-996) asks whether a vote would be given; it binds nobody and leaves the epoch alone, so that a node that
was merely cut off does not unseat a leader. A vote is given once an epoch, to a log that is not behind the voter's.
"""

from __future__ import annotations

from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.names import METADATA_TOPIC
from moldau.raft import requests, responses
from moldau.raft.core import Core
from moldau.raft.election import lost_election_backoff_ms
from moldau.raft.parsing import leader_endpoint, learn_from, single
from moldau.raft.roles import Candidate, OutgoingRequest, Prospective
from moldau.raft.states import NOBODY
from moldau.raft.voters import ReplicaKey
from moldau.wire.apis import ApiKey
from moldau.wire.messages.vote import RequestPartitionData, VoteRequest, VoteResponse

PRE_VOTE_VERSION = 2
EPOCH_BELIEVED_MAX: Final = 1 << 30
"""Half of all epochs there are. One request that named the last of them would leave none for another election."""
EPOCH_LEAP_MAX: Final = 1_000
"""Beyond that half, a node goes on only by as much as elections could have come to while it looked away."""

# --- giving -------------------------------------------------------------------------------------------------------


def answer_vote(core: Core, request: VoteRequest) -> VoteResponse:
    if request.cluster_id not in (None, core.me.cluster_id):
        return VoteResponse(ErrorCode.INCONSISTENT_CLUSTER_ID)
    wanted: RequestPartitionData | None = single(request.topics, METADATA_TOPIC)
    if wanted is None:
        return VoteResponse(ErrorCode.INVALID_REQUEST)
    refusal = _refusal(core, request, wanted)
    if refusal is not None:
        return responses.vote_response(core.standing, refusal)
    candidate = ReplicaKey(wanted.replica_id, bytes(wanted.replica_directory_id))
    is_up_to_date = (wanted.last_offset_epoch, wanted.last_offset) >= (core.log.last_epoch, core.log.end_offset)
    is_granted = core.role.may_grant(candidate, is_up_to_date, wanted.pre_vote)
    if is_granted and not wanted.pre_vote:
        core.vote_for(candidate)
    return responses.vote_response(core.standing, ErrorCode.NONE, is_granted=is_granted)


def _refusal(core: Core, request: VoteRequest, wanted: RequestPartitionData) -> ErrorCode | None:
    # A candidate has left the epoch of its log behind it; one that only asks has not yet.
    is_illegal = wanted.last_offset_epoch > wanted.replica_epoch - (0 if wanted.pre_vote else 1)
    if wanted.last_offset < 0 or wanted.last_offset_epoch < 0 or is_illegal:
        return ErrorCode.INVALID_REQUEST
    if wanted.replica_epoch < core.role.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if wanted.replica_id < 0 or wanted.replica_id == core.me.node_id or not is_believed(core, wanted.replica_epoch):
        return ErrorCode.INVALID_REQUEST
    if not may_be_voter(core, wanted.replica_id):
        return ErrorCode.INCONSISTENT_VOTER_SET
    if wanted.replica_epoch > core.role.epoch:
        core.become_unattached(wanted.replica_epoch)
    if not is_meant(core, request.voter_id, bytes(wanted.voter_directory_id)):
        return ErrorCode.INVALID_VOTER_KEY
    return None


def is_believed(core: Core, epoch: int) -> bool:
    """Whether a node may be brought to that epoch by a mere request."""
    return epoch <= max(EPOCH_BELIEVED_MAX, core.role.epoch + EPOCH_LEAP_MAX)


def may_be_voter(core: Core, node_id: int) -> bool:
    """Where the settings say who votes, nobody else leads or is elected. Otherwise our log may be behind."""
    return core.history.can_change or core.voters.get(node_id) is not None


def is_meant(core: Core, voter_id: int, directory_id: bytes) -> bool:
    """Whether a request that names its voter means this one."""
    return voter_id < 0 or (voter_id == core.me.node_id and directory_id in (bytes(16), core.me.directory_id))


# --- asking -------------------------------------------------------------------------------------------------------


def ask_for_votes(core: Core) -> None:
    role = core.role
    assert isinstance(role, Prospective | Candidate)
    is_pre_vote = isinstance(role, Prospective)
    # Who refused a pre-vote may only not have noticed yet that the leader is gone.
    unsure = [*role.tally.silent, *role.tally.refusing] if is_pre_vote else role.tally.silent
    for voter_id in unsure:
        voter = role.tally.voters.get(voter_id)
        if voter is not None and core.may_ask(voter_id):
            request = requests.vote_request(core.me, voter.key, role.epoch, core.log, is_pre_vote=is_pre_vote)
            version = PRE_VOTE_VERSION if is_pre_vote else None
            core.ask(voter_id, voter.endpoint(core.me.listener), ApiKey.VOTE, request, version)


def on_vote_response(core: Core, asked: OutgoingRequest, response: VoteResponse) -> bool:
    found = single(response.topics, METADATA_TOPIC)
    if response.error_code or found is None:
        return False
    endpoint = leader_endpoint(core, found.leader_id, response.node_endpoints)
    handled = learn_from(core, found.error_code, found.leader_id, found.leader_epoch, endpoint)
    role = core.role
    if handled is not None or not isinstance(role, Prospective | Candidate):
        return handled is not False
    if found.error_code:
        return False
    role.tally.record(asked.node_id, bool(found.vote_granted))
    if not found.vote_granted:
        core.ask_again_after(asked, core.settings.ask_again_ms)
    _count(core, role)
    return True


def _count(core: Core, role: Prospective | Candidate) -> None:
    if role.tally.is_won:
        if isinstance(role, Prospective):
            core.become_candidate()
        else:
            core.become_leader()
    elif isinstance(role, Prospective):
        if role.tally.is_lost:
            give_up(core, role)
    elif role.tally.is_hopeless and not role.is_lost:
        role.is_lost = True
        core.losses += 1
        backoff_ms = lost_election_backoff_ms(core.settings, core.rng, core.losses)
        role.give_up_at_ms = min(role.give_up_at_ms, core.now_ms + backoff_ms)


def on_vote_failed(core: Core, asked: OutgoingRequest, failure: KafkaError) -> None:
    role = core.role
    core.ask_again_after(asked, core.settings.retry_backoff_ms)
    if failure.code is ErrorCode.UNSUPPORTED_VERSION and isinstance(role, Prospective):
        # A voter older than pre-votes can only be asked in earnest.
        core.become_candidate()
    elif failure.code is ErrorCode.NETWORK_EXCEPTION and isinstance(role, Candidate):
        role.tally.unreachable.add(asked.node_id)
        _count(core, role)


def give_up(core: Core, role: Prospective) -> None:
    """Nobody wants another leader: back to the one there was, or to waiting."""
    if role.leader_id not in (NOBODY, core.me.node_id) and role.leader_endpoint is not None:
        core.become_follower(role.epoch, role.leader_id, role.leader_endpoint)
    else:
        core.become_unattached(role.epoch, role.leader_id)
