"""Elections: granting votes, requesting votes, and counting them.

A pre-vote (KIP-996) asks whether a vote would be granted; it commits nobody and does not change the epoch of the
asker, so that a node that was only disconnected does not depose a leader. A voter grants one vote per epoch, to a log
that is not behind its own.
"""

from __future__ import annotations

from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.topic_names import METADATA_TOPIC
from moldau.raft import requests, responses
from moldau.raft.core import Core
from moldau.raft.election import lost_election_backoff_ms
from moldau.raft.parsing import leader_endpoint, learn_from, single
from moldau.raft.quorum_state import NOBODY
from moldau.raft.roles import Candidate, OutgoingRequest, Prospective
from moldau.raft.voters import ReplicaKey
from moldau.wire.apis import ApiKey
from moldau.wire.messages.vote import RequestPartitionData, VoteRequest, VoteResponse

PRE_VOTE_VERSION = 2
PLAUSIBLE_EPOCH_MAX: Final = 1 << 30
"""Half of the possible epochs. A single request that named the last epoch would leave none for another election."""
EPOCH_LEAP_MAX: Final = 1_000
"""Above `PLAUSIBLE_EPOCH_MAX`, a request may raise the epoch only by this much, more than missed elections need."""

# --- granting votes -----------------------------------------------------------------------------------------------


def answer_vote(core: Core, request: VoteRequest) -> VoteResponse:
    if request.cluster_id not in (None, core.me.cluster_id):
        return VoteResponse(ErrorCode.INCONSISTENT_CLUSTER_ID)
    partition: RequestPartitionData | None = single(request.topics, METADATA_TOPIC)
    if partition is None:
        return VoteResponse(ErrorCode.INVALID_REQUEST)
    refusal = _refusal(core, partition)
    if refusal is not None:
        return responses.vote_response(core.current_leader, refusal)
    if partition.replica_epoch > core.role.epoch:
        core.become_unattached(partition.replica_epoch)
    if not is_addressee(core, request.voter_id, bytes(partition.voter_directory_id)):
        return responses.vote_response(core.current_leader, ErrorCode.INVALID_VOTER_KEY)
    candidate = ReplicaKey(partition.replica_id, bytes(partition.replica_directory_id))
    is_up_to_date = (partition.last_offset_epoch, partition.last_offset) >= (core.log.last_epoch, core.log.end_offset)
    is_granted = core.role.may_grant(candidate, is_up_to_date, partition.pre_vote)
    if is_granted and not partition.pre_vote:
        core.vote_for(candidate)
    return responses.vote_response(core.current_leader, ErrorCode.NONE, is_granted=is_granted)


def _refusal(core: Core, partition: RequestPartitionData) -> ErrorCode | None:
    """Return why the request may not even raise this node's epoch; None if it may."""
    # A candidate's epoch is above the last one of its log. A pre-vote has not raised the epoch yet.
    is_illegal = partition.last_offset_epoch > partition.replica_epoch - (0 if partition.pre_vote else 1)
    if partition.last_offset < 0 or partition.last_offset_epoch < 0 or is_illegal:
        return ErrorCode.INVALID_REQUEST
    if partition.replica_epoch < core.role.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if (
        partition.replica_id < 0
        or partition.replica_id == core.me.node_id
        or not is_plausible_epoch(core, partition.replica_epoch)
    ):
        return ErrorCode.INVALID_REQUEST
    if not may_be_voter(core, partition.replica_id):
        return ErrorCode.INCONSISTENT_VOTER_SET
    return None


def is_plausible_epoch(core: Core, epoch: int) -> bool:
    """Whether a request alone may raise this node's epoch to `epoch`."""
    return epoch <= max(PLAUSIBLE_EPOCH_MAX, core.role.epoch + EPOCH_LEAP_MAX)


def may_be_voter(core: Core, node_id: int) -> bool:
    """Whether that node can lead or be elected: with static voters, only those; otherwise our log may be behind."""
    return core.history.can_change or core.voters.get(node_id) is not None


def is_addressee(core: Core, voter_id: int, directory_id: bytes) -> bool:
    """Whether a request is addressed to this voter, or names none."""
    return voter_id < 0 or (voter_id == core.me.node_id and directory_id in (bytes(16), core.me.directory_id))


# --- requesting votes ---------------------------------------------------------------------------------------------


def request_votes(core: Core) -> None:
    role = core.role
    assert isinstance(role, Prospective | Candidate)
    is_pre_vote = isinstance(role, Prospective)
    # A voter that refused a pre-vote may not have noticed yet that the leader is gone: ask it again.
    voter_ids = [*role.tally.silent, *role.tally.refusing] if is_pre_vote else role.tally.silent
    for voter_id in voter_ids:
        voter = role.tally.voters.get(voter_id)
        if voter is not None and core.may_send(voter_id):
            request = requests.vote_request(core.me, voter.key, role.epoch, core.log, is_pre_vote=is_pre_vote)
            version = PRE_VOTE_VERSION if is_pre_vote else None
            core.send(voter_id, voter.endpoint(core.me.listener), ApiKey.VOTE, request, version)


def on_vote_response(core: Core, sent: OutgoingRequest, response: VoteResponse) -> bool:
    """Count the vote. Return False if the request should be sent again later."""
    partition = single(response.topics, METADATA_TOPIC)
    if response.error_code or partition is None:
        return False
    endpoint = leader_endpoint(core, partition.leader_id, response.node_endpoints)
    handled = learn_from(core, partition.error_code, partition.leader_id, partition.leader_epoch, endpoint)
    role = core.role
    if handled is not None or not isinstance(role, Prospective | Candidate):
        return handled is not False
    if partition.error_code:
        return False
    role.tally.record(sent.node_id, bool(partition.vote_granted))
    if not partition.vote_granted:
        core.retry_after(sent, core.settings.pre_vote_retry_ms)
    _count_votes(core, role)
    return True


def _count_votes(core: Core, role: Prospective | Candidate) -> None:
    if role.tally.is_won:
        if isinstance(role, Prospective):
            core.become_candidate()
        else:
            core.become_leader()
    elif isinstance(role, Prospective):
        if role.tally.is_lost:
            give_up(core, role)
    elif role.tally.is_hopeless and not role.counted_as_loss:
        role.counted_as_loss = True
        core.losses += 1
        backoff_ms = lost_election_backoff_ms(core.settings, core.rng, core.losses)
        role.give_up_at_ms = min(role.give_up_at_ms, core.now_ms + backoff_ms)


def on_vote_failed(core: Core, sent: OutgoingRequest, failure: KafkaError) -> None:
    role = core.role
    core.retry_after(sent, core.settings.retry_backoff_ms)
    if failure.code is ErrorCode.UNSUPPORTED_VERSION and isinstance(role, Prospective):
        # A voter that does not support pre-votes can only be asked for a real vote.
        core.become_candidate()
    elif failure.code is ErrorCode.NETWORK_EXCEPTION and isinstance(role, Candidate):
        role.tally.unreachable.add(sent.node_id)
        _count_votes(core, role)


def give_up(core: Core, role: Prospective) -> None:
    """End the pre-vote without an election: follow the previous leader again, or wait for one."""
    if role.leader_id not in (NOBODY, core.me.node_id) and role.leader_endpoint is not None:
        core.become_follower(role.epoch, role.leader_id, role.leader_endpoint)
    else:
        core.become_unattached(role.epoch, role.leader_id)
