"""What a leader does for those who fetch from it: batches, where their log parts from its own, snapshots, and how far
everyone is.
"""

from __future__ import annotations

from typing import Final

from moldau.base.errors import ErrorCode
from moldau.base.ids import METADATA_TOPIC_UUID
from moldau.base.names import METADATA_TOPIC
from moldau.base.promise import Promise
from moldau.raft import responses
from moldau.raft.core import Core
from moldau.raft.ports import EpochEnd
from moldau.raft.responses import PARTITION, UNKNOWN_HIGH_WATERMARK
from moldau.raft.roles import Leader, ParkedFetch
from moldau.raft.snapshots import BOOTSTRAP, SnapshotId
from moldau.raft.voters import ReplicaKey
from moldau.wire.codec import size_of
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse
from moldau.wire.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RequestPartitionSnapshot,
)

PARKED_MAX: Final = 10_000
"""Fetches that wait at a time; more are answered at once with what there is."""


def why_not_leader(core: Core, epoch: int) -> ErrorCode | None:
    """Why a request for the leader of that epoch cannot be served here."""
    if epoch < core.role.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > core.role.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not isinstance(core.role, Leader):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.BROKER_NOT_AVAILABLE if core.is_stopping else None


# --- batches ------------------------------------------------------------------------------------------------------


def answer_fetch(core: Core, request: FetchRequest) -> FetchResponse | Promise[FetchResponse]:
    if request.cluster_id not in (None, core.me.cluster_id):
        return FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    wanted = _wanted(request)
    if wanted is None:
        return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    key = ReplicaKey(_replica_id(request), bytes(wanted.replica_directory_id))
    refusal = _refusal(core, request, wanted, key)
    if refusal is not None:
        return responses.fetch_response(core.standing, refusal, core.log.start_offset)
    leader = core.role
    assert isinstance(leader, Leader)
    response = _fetched(core, leader, wanted, request.max_bytes, key)
    if request.max_wait_ms == 0 or _is_worth_sending(response, wanted) or len(leader.parked) >= PARKED_MAX:
        return response
    answer: Promise[FetchResponse] = Promise()
    # Nobody waits longer than it may before it looks for another leader: one who says so has gone by then.
    due_ms = core.now_ms + min(request.max_wait_ms, core.settings.fetch_timeout_ms)
    leader.parked.append(ParkedFetch(wanted, request.max_bytes, due_ms, answer))
    return answer


def _wanted(request: FetchRequest) -> FetchPartition | None:
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    topic = request.topics[0]
    is_ours = bytes(topic.topic_id) == METADATA_TOPIC_UUID or topic.topic == METADATA_TOPIC
    return topic.partitions[0] if is_ours and topic.partitions[0].partition == PARTITION else None


def _replica_id(request: FetchRequest) -> int:
    """It moved into a struct of its own with version 15."""
    if request.replica_state is not None and request.replica_state.replica_id >= 0:
        return request.replica_state.replica_id
    return request.replica_id


def _refusal(core: Core, request: FetchRequest, wanted: FetchPartition, key: ReplicaKey) -> ErrorCode | None:
    if request.max_wait_ms < 0 or wanted.fetch_offset < 0 or key.id == core.me.node_id:
        return ErrorCode.INVALID_REQUEST
    if not 0 <= wanted.last_fetched_epoch <= wanted.current_leader_epoch:
        return ErrorCode.INVALID_REQUEST
    return why_not_leader(core, wanted.current_leader_epoch)


def _fetched(
    core: Core, leader: Leader, wanted: FetchPartition, bytes_max: int, key: ReplicaKey | None
) -> FetchResponse:
    """What there is from the asked offset on. `key` is who asks, None if that was noted when it asked."""
    log = core.log
    parting = compare(core, wanted.fetch_offset, wanted.last_fetched_epoch)
    if parting is not None:
        diverging = parting if isinstance(parting, EpochEnd) else None
        snapshot = parting if isinstance(parting, SnapshotId) else None
        return responses.fetch_response(
            core.standing, ErrorCode.NONE, log.start_offset, _known_high_watermark(leader),
            diverging=diverging, snapshot=snapshot,
        )  # fmt: skip
    if key is not None and key.id >= 0:
        end_offset, now_ms = log.end_offset, core.clock.now_ms()
        if leader.progress.fetched(key, wanted.fetch_offset, end_offset, core.now_ms, now_ms):
            core.commit(leader.progress.high_watermark or 0)
    records = log.read(wanted.fetch_offset, max(0, min(bytes_max, core.settings.fetch_bytes_max)))
    return responses.fetch_response(
        core.standing, ErrorCode.NONE, log.start_offset, _known_high_watermark(leader), records or b""
    )


def _known_high_watermark(leader: Leader) -> int:
    found = leader.progress.high_watermark
    return UNKNOWN_HIGH_WATERMARK if found is None else found


def compare(core: Core, offset: int, epoch: int) -> EpochEnd | SnapshotId | None:
    """Where a log that ends at `offset`, its last batch of `epoch`, parts from ours: None if it is part of ours."""
    log = core.log
    latest, earliest = log.latest_snapshot(), log.earliest_snapshot()
    if offset == 0:
        return latest if latest not in (None, BOOTSTRAP) or log.start_offset > 0 else None
    if latest is not None and earliest is not None:
        is_before = offset < log.start_offset or (offset == log.start_offset and (offset, epoch) != earliest)
        if is_before or epoch < earliest.epoch:
            return latest
    ends = log.end_of_epoch(epoch)
    return ends if ends.epoch != epoch or ends.end_offset < offset else None


def _is_worth_sending(response: FetchResponse, wanted: FetchPartition) -> bool:
    partition = response.responses[0].partitions[0]
    return (
        size_of(partition.records or b"") > 0
        or partition.diverging_epoch is not None
        or partition.snapshot_id is not None
        or wanted.high_watermark < partition.high_watermark
    )


def release_fetches(core: Core, leader: Leader) -> None:
    """Answers those who wait for what has come, or whose time is over."""
    if not leader.parked:
        return
    end_offset, known = core.log.end_offset, _known_high_watermark(leader)
    for fetch in list(leader.parked):
        wanted = fetch.wanted
        if end_offset > wanted.fetch_offset or known > wanted.high_watermark or core.now_ms >= fetch.due_ms:
            leader.parked.remove(fetch)
            core.replies.append((fetch.answer, _fetched(core, leader, wanted, fetch.bytes_max, None)))


# --- snapshots ----------------------------------------------------------------------------------------------------


def answer_fetch_snapshot(core: Core, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    if request.cluster_id not in (None, core.me.cluster_id):
        return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    # Nothing is taken for granted of the arrays: a request without topics once stopped whole quorums (CVE-2026-83525).
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
    topic, wanted = request.topics[0], request.topics[0].partitions[0]
    if topic.name != METADATA_TOPIC or wanted.partition != PARTITION:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return responses.fetch_snapshot_response(core.standing, code, topic=topic.name, partition=wanted.partition)
    refusal = why_not_leader(core, wanted.current_leader_epoch)
    if refusal is not None:
        return responses.fetch_snapshot_response(core.standing, refusal)
    return _piece(core, request, wanted)


def _piece(core: Core, request: FetchSnapshotRequest, wanted: RequestPartitionSnapshot) -> FetchSnapshotResponse:
    named = wanted.snapshot_id
    snapshot = SnapshotId(named.end_offset, named.epoch) if named is not None else BOOTSTRAP
    size = None if snapshot == BOOTSTRAP else core.log.snapshot_size(snapshot)
    if size is None:
        return responses.fetch_snapshot_response(core.standing, ErrorCode.SNAPSHOT_NOT_FOUND)
    if not 0 <= wanted.position < size:
        return responses.fetch_snapshot_response(core.standing, ErrorCode.POSITION_OUT_OF_RANGE)
    leader = core.role
    assert isinstance(leader, Leader)
    leader.progress.heard_from(ReplicaKey(request.replica_id, bytes(wanted.replica_directory_id)), core.now_ms)
    length = max(1, min(request.max_bytes, core.settings.snapshot_piece_bytes_max, size - wanted.position))
    records = core.log.snapshot_bytes(snapshot, wanted.position, length)
    return responses.fetch_snapshot_response(core.standing, ErrorCode.NONE, snapshot, size, wanted.position, records)


# --- the leader's own part ----------------------------------------------------------------------------------------


def count_own_flush(core: Core, leader: Leader) -> None:
    if leader.progress.own_flushed(core.log.flushed_offset):
        core.commit(leader.progress.high_watermark or 0)
