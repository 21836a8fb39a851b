"""Adding, removing and updating voters (KIP-853): one change at a time, each a record in the log.

A change is refused until the previous one and a record of the leader's own epoch are committed: only then do a majority
of the old voters and a majority of the new ones have a voter in common.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import ZERO_UUID
from moldau.base.promise import Promise
from moldau.raft import responses
from moldau.raft.control_records import voters_record
from moldau.raft.core import Core
from moldau.raft.leading import why_not_leader
from moldau.raft.roles import Leader, OutgoingRequest, VoterChange
from moldau.raft.voters import Endpoint, KRaftVersions, ReplicaKey, Voter, VoterSet, endpoint_of
from moldau.wire.apis import ApiKey
from moldau.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from moldau.wire.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse

KRAFT_VERSION_FEATURE = "kraft.version"


# --- adding -------------------------------------------------------------------------------------------------------


def answer_add(core: Core, request: AddRaftVoterRequest) -> AddRaftVoterResponse | Promise[AddRaftVoterResponse]:
    try:
        return _add(core, request)
    except KafkaError as refused:
        return AddRaftVoterResponse(error_code=refused.code, error_message=refused.message or "")


def _add(core: Core, request: AddRaftVoterRequest) -> Promise[AddRaftVoterResponse]:
    _check_request(core, request.cluster_id, request.voter_id, request.voter_directory_id, "Add")
    endpoints = tuple(Endpoint(each.name, each.host, each.port) for each in request.listeners)
    address = endpoint_of(endpoints, core.me.listener)
    if address is None:
        message = f"The request names no endpoint for the listener {core.me.listener}."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    leader = _leader_ready_for_change(core, "adding")
    voter = Voter(ReplicaKey(request.voter_id, bytes(request.voter_directory_id)), endpoints)
    if core.voters.get(request.voter_id) is not None:
        message = f"A voter with the id of {voter.key} is one of the voters {core.voters} already."
        raise KafkaError(ErrorCode.DUPLICATE_VOTER, message)
    if not core.may_send(request.voter_id):
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"The new voter {voter.key} cannot be contacted yet; try again.")
    promise: Promise[AddRaftVoterResponse] = Promise()
    deadline_ms = core.now_ms + core.settings.request_timeout_ms
    leader.adding = VoterChange(voter, deadline_ms, promise, request.ack_when_committed)
    core.send(request.voter_id, address, ApiKey.API_VERSIONS, ApiVersionsRequest("moldau", "1"))
    return promise


def on_api_versions_response(core: Core, sent: OutgoingRequest, response: ApiVersionsResponse) -> bool:
    """Append the new voter's record, if it supports the quorum's kraft.version and has caught up."""
    leader = core.role
    if not isinstance(leader, Leader) or leader.adding is None or leader.adding.voter.key.id != sent.node_id:
        return True
    adding = leader.adding
    # A single voter hears from nobody. With a second one it must hear from a majority, from now on.
    leader.progress.on_contact(adding.voter.key, core.now_ms)
    supported = next((each for each in response.supported_features if each.name == KRAFT_VERSION_FEATURE), None)
    versions = KRaftVersions(supported.min_version, supported.max_version) if supported else KRaftVersions(0, 0)
    if response.error_code:
        _end_add(core, leader, ErrorCode.REQUEST_TIMED_OUT, f"The new voter answered with {response.error_code}.")
    elif core.history.kraft_version not in versions:
        message = f"{adding.voter.key} supports {KRAFT_VERSION_FEATURE} {versions.low} to {versions.high} only."
        _end_add(core, leader, ErrorCode.INVALID_REQUEST, message)
    elif not leader.progress.is_caught_up(adding.voter.key, core.now_ms):
        _end_add(core, leader, ErrorCode.REQUEST_TIMED_OUT, f"{adding.voter.key} lags behind the log.")
    else:
        voters = core.voters.add(Voter(adding.voter.key, adding.voter.endpoints, versions))
        assert voters is not None, (
            "the voter was not in the set when the change began, and only one change runs at a time"
        )
        adding.commit_offset = _append_voters(core, voters)
        if not adding.ack_when_committed:
            core.replies.append((adding.promise, adding.build_response(ErrorCode.NONE)))
    return True


def on_api_versions_failed(core: Core, sent: OutgoingRequest, failure: KafkaError) -> None:
    leader = core.role
    if isinstance(leader, Leader) and leader.adding is not None and leader.adding.voter.key.id == sent.node_id:
        _end_add(core, leader, ErrorCode.REQUEST_TIMED_OUT, f"The new voter cannot be reached: {failure.code.name}.")


def _end_add(core: Core, leader: Leader, code: ErrorCode, message: str | None = None) -> None:
    adding, leader.adding = leader.adding, None
    assert adding is not None
    is_answered = adding.commit_offset is not None and not adding.ack_when_committed
    if not is_answered:
        core.replies.append((adding.promise, adding.build_response(code, message)))


# --- removing -----------------------------------------------------------------------------------------------------


def answer_remove(
    core: Core, request: RemoveRaftVoterRequest
) -> RemoveRaftVoterResponse | Promise[RemoveRaftVoterResponse]:
    try:
        return _remove(core, request)
    except KafkaError as refused:
        return RemoveRaftVoterResponse(error_code=refused.code, error_message=refused.message or "")


def _remove(core: Core, request: RemoveRaftVoterRequest) -> Promise[RemoveRaftVoterResponse]:
    _check_request(core, request.cluster_id, request.voter_id, request.voter_directory_id, "Remove")
    leader = _leader_ready_for_change(core, "removing")
    key = ReplicaKey(request.voter_id, bytes(request.voter_directory_id))
    voters = core.voters.remove(key)
    if voters is None:
        message = f"Cannot remove voter {key} from the voters {core.voters}."
        raise KafkaError(ErrorCode.VOTER_NOT_FOUND, message)
    promise: Promise[RemoveRaftVoterResponse] = Promise()
    deadline_ms = core.now_ms + core.settings.request_timeout_ms
    change = VoterChange(Voter(key), deadline_ms, promise, response_class=RemoveRaftVoterResponse)
    leader.removing = change
    change.commit_offset = _append_voters(core, voters)
    return promise


# --- updating -----------------------------------------------------------------------------------------------------


def answer_update(core: Core, request: UpdateRaftVoterRequest) -> UpdateRaftVoterResponse:
    return responses.update_voter_response(core.current_leader, _update(core, request))


def _update(core: Core, request: UpdateRaftVoterRequest) -> ErrorCode:
    if request.cluster_id not in (None, core.me.cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    refusal = why_not_leader(core, request.current_leader_epoch)
    if refusal is not None:
        return refusal
    feature = request.k_raft_version_feature
    versions = KRaftVersions(*((feature.min_supported_version, feature.max_supported_version) if feature else (0, 0)))
    endpoints = tuple(Endpoint(each.name, each.host, each.port) for each in request.listeners)
    has_key = request.voter_id >= 0 and bytes(request.voter_directory_id) != ZERO_UUID
    if not has_key or endpoint_of(endpoints, core.me.listener) is None or not 0 <= versions.low <= versions.high:
        return ErrorCode.INVALID_REQUEST
    if not core.history.can_change:
        # The static set stays as configured; a voter of it has nothing to update.
        return ErrorCode.NONE if core.voters.get(request.voter_id) is not None else ErrorCode.VOTER_NOT_FOUND
    leader = core.role
    assert isinstance(leader, Leader)
    if _reason_to_wait(core, leader) is not None:
        return ErrorCode.REQUEST_TIMED_OUT
    if core.history.kraft_version not in versions:
        return ErrorCode.INVALID_REQUEST
    key = ReplicaKey(request.voter_id, bytes(request.voter_directory_id))
    voters = core.voters.update(Voter(key, endpoints, versions))
    if voters is None:
        return ErrorCode.VOTER_NOT_FOUND
    _append_voters(core, voters)
    leader.progress.on_contact(key, core.now_ms)
    return ErrorCode.NONE


# --- common to all changes ----------------------------------------------------------------------------------------


def _check_request(core: Core, cluster_id: str | None, voter_id: int, directory_id: bytes, action: str) -> None:
    if cluster_id not in (None, core.me.cluster_id):
        message = f'The given id "{cluster_id}" does not match the cluster id "{core.me.cluster_id}".'
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, message)
    refusal = why_not_leader(core, core.role.epoch)
    if refusal is not None:
        raise KafkaError(refusal)
    if voter_id < 0 or bytes(directory_id) == ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{action} voter request without a voter's id and directory id.")


def _leader_ready_for_change(core: Core, action: str) -> Leader:
    leader = core.role
    assert isinstance(leader, Leader)
    if core.history.can_change:
        reason = _reason_to_wait(core, leader)
        if reason is not None:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, reason)
        return leader
    message = f"The cluster does not support {action} voters: {KRAFT_VERSION_FEATURE} is {core.history.kraft_version}."
    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)


def _reason_to_wait(core: Core, leader: Leader) -> str | None:
    if leader.adding is not None or leader.removing is not None:
        return "Another change of the voters is under way."
    if leader.progress.high_watermark is None:
        return "The leader has not committed anything in its epoch yet."
    offset = core.history.voters_offset
    if offset is None or offset >= leader.progress.high_watermark:
        return "The last change of the voters is not committed yet."
    return None


def _append_voters(core: Core, voters: VoterSet) -> int:
    return core.append_control([voters_record(voters, core.clock.now_ms())])


def finish_changes(core: Core, leader: Leader) -> None:
    """Answer changes that are committed or timed out. A leader whose removal is committed resigns."""
    high_watermark = leader.progress.high_watermark or 0
    adding, removing = leader.adding, leader.removing
    if adding is not None:
        if adding.commit_offset is not None and high_watermark >= adding.commit_offset:
            _end_add(core, leader, ErrorCode.NONE)
        elif core.now_ms >= adding.deadline_ms:
            _end_add(core, leader, ErrorCode.REQUEST_TIMED_OUT)
    if removing is not None:
        if removing.commit_offset is not None and high_watermark >= removing.commit_offset:
            leader.removing = None
            core.replies.append((removing.promise, removing.build_response(ErrorCode.NONE)))
        elif core.now_ms >= removing.deadline_ms:
            leader.removing = None
            core.replies.append((removing.promise, removing.build_response(ErrorCode.REQUEST_TIMED_OUT)))
    offset = core.history.voters_offset
    if not core.is_voter and offset is not None and high_watermark > offset:
        leader.wants_to_resign = True
