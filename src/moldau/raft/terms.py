"""The beginning and the end of a leader's term: BeginQuorumEpoch to voters that do not fetch, and EndQuorumEpoch."""

from __future__ import annotations

from typing import Any

from moldau.base.errors import ErrorCode
from moldau.base.topic_names import METADATA_TOPIC
from moldau.raft import requests, responses
from moldau.raft.core import Core
from moldau.raft.election import successor_delay_ms
from moldau.raft.parsing import leader_endpoint, learn_from, single
from moldau.raft.roles import Follower, Leader, OutgoingRequest, Prospective, Resigned
from moldau.raft.voters import Endpoint, ReplicaKey, endpoint_of
from moldau.raft.voting import give_up, is_addressee, is_plausible_epoch, may_be_voter
from moldau.wire.apis import ApiKey
from moldau.wire.messages import begin_quorum_epoch as begins
from moldau.wire.messages import end_quorum_epoch as ends

# --- the beginning ------------------------------------------------------------------------------------------------


def send_begin_epoch(core: Core, leader: Leader) -> None:
    """Send BeginQuorumEpoch to the voters that have not fetched recently, or never."""
    if core.now_ms < leader.send_begin_epoch_at_ms:
        return
    interval_ms = core.settings.begin_epoch_ms
    for voter_id in leader.progress.silent_voters(core.now_ms, interval_ms):
        voter = core.voters.get(voter_id)
        if voter is not None and core.may_send(voter_id):
            request = requests.begin_epoch_request(core.me, voter.key, leader.epoch)
            core.send(voter_id, voter.endpoint(core.me.listener), ApiKey.BEGIN_QUORUM_EPOCH, request)
    leader.send_begin_epoch_at_ms = core.now_ms + interval_ms


def answer_begin(core: Core, request: begins.BeginQuorumEpochRequest) -> begins.BeginQuorumEpochResponse:
    if request.cluster_id not in (None, core.me.cluster_id):
        return begins.BeginQuorumEpochResponse(ErrorCode.INCONSISTENT_CLUSTER_ID)
    partition: begins.RequestPartitionData | None = single(request.topics, METADATA_TOPIC)
    if partition is None:
        return begins.BeginQuorumEpochResponse(ErrorCode.INVALID_REQUEST)
    refusal = _learn_leader(core, partition.leader_id, partition.leader_epoch, request.leader_endpoints)
    role = core.role
    if isinstance(role, Prospective) and role.leader_id == partition.leader_id and role.epoch == partition.leader_epoch:
        # The leader was suspected to be gone, but is there.
        give_up(core, role)
    if refusal is None and not is_addressee(core, request.voter_id, bytes(partition.voter_directory_id)):
        refusal = ErrorCode.INVALID_VOTER_KEY
    return responses.begin_epoch_response(core.current_leader, refusal or ErrorCode.NONE)


def _learn_leader(core: Core, leader_id: int, epoch: int, endpoints: Any) -> ErrorCode | None:
    """Take over the leader that sent a request; return the error if it cannot be the leader."""
    if epoch < core.role.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if leader_id < 0 or not is_plausible_epoch(core, epoch):
        return ErrorCode.INVALID_REQUEST
    if not may_be_voter(core, leader_id):
        return ErrorCode.INCONSISTENT_VOTER_SET
    endpoint = endpoint_of((Endpoint(each.name, each.host, each.port) for each in endpoints), core.me.listener)
    if not core.history.can_change:
        # Static voters have their endpoints in the settings. Do not trust those of a request.
        endpoint = core.endpoint_of(leader_id)
    if not core.learn_leader(leader_id, epoch, endpoint):
        return ErrorCode.INVALID_REQUEST
    return None


def on_begin_response(core: Core, sent: OutgoingRequest, response: begins.BeginQuorumEpochResponse) -> bool:
    partition = single(response.topics, METADATA_TOPIC)
    if response.error_code or partition is None:
        return False
    endpoint = leader_endpoint(core, partition.leader_id, response.node_endpoints)
    handled = learn_from(core, partition.error_code, partition.leader_id, partition.leader_epoch, endpoint)
    return handled is None or handled


# --- the end ------------------------------------------------------------------------------------------------------


def send_end_epoch(core: Core, role: Resigned) -> None:
    for voter_id in sorted(role.unconfirmed):
        if core.may_send(voter_id):
            request = requests.end_epoch_request(core.me, role.epoch, role.successors)
            core.send(voter_id, core.endpoint_of(voter_id), ApiKey.END_QUORUM_EPOCH, request)


def answer_end(core: Core, request: ends.EndQuorumEpochRequest) -> ends.EndQuorumEpochResponse:
    if request.cluster_id not in (None, core.me.cluster_id):
        return ends.EndQuorumEpochResponse(ErrorCode.INCONSISTENT_CLUSTER_ID)
    partition: ends.RequestPartitionData | None = single(request.topics, METADATA_TOPIC)
    if partition is None:
        return ends.EndQuorumEpochResponse(ErrorCode.INVALID_REQUEST)
    refusal = _learn_leader(core, partition.leader_id, partition.leader_epoch, request.leader_endpoints)
    if refusal is not None:
        return responses.end_epoch_response(core.current_leader, refusal)
    role = core.role
    if isinstance(role, Follower) and role.leader_id == partition.leader_id:
        delay_ms = successor_delay_ms(core.settings, *_position_among(core, _preferred_successors(partition)))
        role.fetch_by_ms = core.now_ms + delay_ms
        # The leader itself says that it is gone, so pre-votes of its successors may be granted.
        role.has_fetched = False
    return responses.end_epoch_response(core.current_leader, ErrorCode.NONE)


def _preferred_successors(partition: ends.RequestPartitionData) -> list[ReplicaKey]:
    """The preferred successors: with their directory ids from version 1 on."""
    if partition.preferred_candidates:
        return [
            ReplicaKey(each.candidate_id, bytes(each.candidate_directory_id)) for each in partition.preferred_candidates
        ]
    return [ReplicaKey(node_id) for node_id in partition.preferred_successors]


def _position_among(core: Core, preferred: list[ReplicaKey]) -> tuple[int, int]:
    for position, key in enumerate(preferred):
        if key.id == core.me.node_id and key.directory_id in (bytes(16), core.me.directory_id):
            return position, len(preferred)
    return len(preferred) or 1, len(preferred)


def on_end_response(core: Core, sent: OutgoingRequest, response: ends.EndQuorumEpochResponse) -> bool:
    partition = single(response.topics, METADATA_TOPIC)
    if response.error_code or partition is None:
        return False
    endpoint = leader_endpoint(core, partition.leader_id, response.node_endpoints)
    handled = learn_from(core, partition.error_code, partition.leader_id, partition.leader_epoch, endpoint)
    if handled is None and isinstance(core.role, Resigned):
        core.role.unconfirmed.discard(sent.node_id)
    return handled is None or handled
