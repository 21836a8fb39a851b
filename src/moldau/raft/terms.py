"""The beginning and the end of a leader's term: introducing itself to voters that do not fetch, and saying goodbye."""

from __future__ import annotations

from typing import Any

from moldau.base.errors import ErrorCode
from moldau.base.names import METADATA_TOPIC
from moldau.raft import requests, responses
from moldau.raft.core import Core
from moldau.raft.election import successor_delay_ms
from moldau.raft.parsing import leader_endpoint, learn_from, single
from moldau.raft.roles import Follower, Leader, OutgoingRequest, Prospective, Resigned
from moldau.raft.voters import Endpoint, ReplicaKey, endpoint_of
from moldau.raft.voting import give_up, is_believed, is_meant, may_be_voter
from moldau.wire.apis import ApiKey
from moldau.wire.messages import begin_quorum_epoch as begins
from moldau.wire.messages import end_quorum_epoch as ends

# --- the beginning ------------------------------------------------------------------------------------------------


def send_begin_epoch(core: Core, leader: Leader) -> None:
    """Tells voters that have not fetched for a while, or never, who leads."""
    if core.now_ms < leader.introduce_at_ms:
        return
    interval_ms = core.settings.begin_epoch_ms
    for voter_id in leader.progress.silent_voters(core.now_ms, interval_ms):
        voter = core.voters.get(voter_id)
        if voter is not None and core.may_ask(voter_id):
            request = requests.begin_epoch_request(core.me, voter.key, leader.epoch)
            core.ask(voter_id, voter.endpoint(core.me.listener), ApiKey.BEGIN_QUORUM_EPOCH, request)
    leader.introduce_at_ms = core.now_ms + interval_ms


def answer_begin(core: Core, request: begins.BeginQuorumEpochRequest) -> begins.BeginQuorumEpochResponse:
    if request.cluster_id not in (None, core.me.cluster_id):
        return begins.BeginQuorumEpochResponse(ErrorCode.INCONSISTENT_CLUSTER_ID)
    told: begins.RequestPartitionData | None = single(request.topics, METADATA_TOPIC)
    if told is None:
        return begins.BeginQuorumEpochResponse(ErrorCode.INVALID_REQUEST)
    refusal = _meet(core, told.leader_id, told.leader_epoch, request.leader_endpoints)
    role = core.role
    if isinstance(role, Prospective) and role.leader_id == told.leader_id and role.epoch == told.leader_epoch:
        # The leader that was thought gone is not.
        give_up(core, role)
    if refusal is None and not is_meant(core, request.voter_id, bytes(told.voter_directory_id)):
        refusal = ErrorCode.INVALID_VOTER_KEY
    return responses.begin_epoch_response(core.standing, refusal or ErrorCode.NONE)


def _meet(core: Core, leader_id: int, epoch: int, told: Any) -> ErrorCode | None:
    """A leader speaks for itself; why it is not believed, if so."""
    if epoch < core.role.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if leader_id < 0 or not is_believed(core, epoch):
        return ErrorCode.INVALID_REQUEST
    if not may_be_voter(core, leader_id):
        return ErrorCode.INCONSISTENT_VOTER_SET
    endpoint = endpoint_of((Endpoint(each.name, each.host, each.port) for each in told), core.me.listener)
    if not core.history.can_change:
        # Where voters are is then for the settings to say: a request could send us anywhere.
        endpoint = core.endpoint_of(leader_id)
    if not core.learn(leader_id, epoch, endpoint):
        return ErrorCode.INVALID_REQUEST
    return None


def on_begin_response(core: Core, asked: OutgoingRequest, response: begins.BeginQuorumEpochResponse) -> bool:
    found = single(response.topics, METADATA_TOPIC)
    if response.error_code or found is None:
        return False
    endpoint = leader_endpoint(core, found.leader_id, response.node_endpoints)
    handled = learn_from(core, found.error_code, found.leader_id, found.leader_epoch, endpoint)
    return handled is None or handled


# --- the end ------------------------------------------------------------------------------------------------------


def send_end_epoch(core: Core, role: Resigned) -> None:
    for voter_id in sorted(role.unaware):
        if core.may_ask(voter_id):
            request = requests.end_epoch_request(core.me, role.epoch, role.successors)
            core.ask(voter_id, core.endpoint_of(voter_id), ApiKey.END_QUORUM_EPOCH, request)


def answer_end(core: Core, request: ends.EndQuorumEpochRequest) -> ends.EndQuorumEpochResponse:
    if request.cluster_id not in (None, core.me.cluster_id):
        return ends.EndQuorumEpochResponse(ErrorCode.INCONSISTENT_CLUSTER_ID)
    told: ends.RequestPartitionData | None = single(request.topics, METADATA_TOPIC)
    if told is None:
        return ends.EndQuorumEpochResponse(ErrorCode.INVALID_REQUEST)
    refusal = _meet(core, told.leader_id, told.leader_epoch, request.leader_endpoints)
    if refusal is not None:
        return responses.end_epoch_response(core.standing, refusal)
    role = core.role
    if isinstance(role, Follower) and role.leader_id == told.leader_id:
        delay_ms = successor_delay_ms(core.settings, *_place_among(core, _preferred(told)))
        role.fetch_by_ms = core.now_ms + delay_ms
        # It says itself that it is gone: whoever asks to be its successor may be told yes.
        role.has_fetched = False
    return responses.end_epoch_response(core.standing, ErrorCode.NONE)


def _preferred(told: ends.RequestPartitionData) -> list[ReplicaKey]:
    """From version 1 on the successors are told with their directories."""
    if told.preferred_candidates:
        return [ReplicaKey(each.candidate_id, bytes(each.candidate_directory_id)) for each in told.preferred_candidates]
    return [ReplicaKey(node_id) for node_id in told.preferred_successors]


def _place_among(core: Core, preferred: list[ReplicaKey]) -> tuple[int, int]:
    for place, key in enumerate(preferred):
        if key.id == core.me.node_id and key.directory_id in (bytes(16), core.me.directory_id):
            return place, len(preferred)
    return len(preferred) or 1, len(preferred)


def on_end_response(core: Core, asked: OutgoingRequest, response: ends.EndQuorumEpochResponse) -> bool:
    found = single(response.topics, METADATA_TOPIC)
    if response.error_code or found is None:
        return False
    endpoint = leader_endpoint(core, found.leader_id, response.node_endpoints)
    handled = learn_from(core, found.error_code, found.leader_id, found.leader_epoch, endpoint)
    if handled is None and isinstance(core.role, Resigned):
        core.role.unaware.discard(asked.node_id)
    return handled is None or handled
