"""The leader's side of Fetch and FetchSnapshot: batches, diverging logs, snapshots, and the replicas' progress."""

from __future__ import annotations

from typing import Final

from moldau.base.errors import ErrorCode
from moldau.base.ids import METADATA_TOPIC_UUID
from moldau.base.promise import Promise
from moldau.base.topic_names import METADATA_TOPIC
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
"""Fetches parked at a time; further ones are answered at once."""


def why_not_leader(core: Core, epoch: int) -> ErrorCode | None:
    """Return the error for a request to the leader of `epoch`; None if this node is that leader."""
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
    partition = _requested_partition(request)
    if partition is None:
        return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    key = ReplicaKey(_replica_id(request), bytes(partition.replica_directory_id))
    refusal = _refusal(core, request, partition, key)
    if refusal is not None:
        return responses.fetch_response(core.current_leader, refusal, core.log.start_offset)
    leader = core.role
    assert isinstance(leader, Leader)
    response = _build_fetch_response(core, leader, partition, request.max_bytes, key)
    if request.max_wait_ms == 0 or _is_worth_sending(response, partition) or len(leader.parked) >= PARKED_MAX:
        return response
    promise: Promise[FetchResponse] = Promise()
    # After the fetch timeout a follower looks for another leader and no longer waits for this response.
    deadline_ms = core.now_ms + min(request.max_wait_ms, core.settings.fetch_timeout_ms)
    leader.parked.append(ParkedFetch(partition, request.max_bytes, deadline_ms, promise))
    return promise


def _requested_partition(request: FetchRequest) -> FetchPartition | None:
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    topic = request.topics[0]
    is_ours = bytes(topic.topic_id) == METADATA_TOPIC_UUID or topic.topic == METADATA_TOPIC
    return topic.partitions[0] if is_ours and topic.partitions[0].partition == PARTITION else None


def _replica_id(request: FetchRequest) -> int:
    """Version 15 moved the replica id into the struct ReplicaState."""
    if request.replica_state is not None and request.replica_state.replica_id >= 0:
        return request.replica_state.replica_id
    return request.replica_id


def _refusal(core: Core, request: FetchRequest, partition: FetchPartition, key: ReplicaKey) -> ErrorCode | None:
    if request.max_wait_ms < 0 or partition.fetch_offset < 0 or key.id == core.me.node_id:
        return ErrorCode.INVALID_REQUEST
    if not 0 <= partition.last_fetched_epoch <= partition.current_leader_epoch:
        return ErrorCode.INVALID_REQUEST
    return why_not_leader(core, partition.current_leader_epoch)


def _build_fetch_response(
    core: Core, leader: Leader, partition: FetchPartition, bytes_max: int, key: ReplicaKey | None
) -> FetchResponse:
    """Build the response to a fetch. `key` is the replica that fetches, None if its progress is recorded already."""
    log = core.log
    divergence = compare(core, partition.fetch_offset, partition.last_fetched_epoch)
    if divergence is not None:
        diverging = divergence if isinstance(divergence, EpochEnd) else None
        snapshot = divergence if isinstance(divergence, SnapshotId) else None
        return responses.fetch_response(
            core.current_leader, ErrorCode.NONE, log.start_offset, _known_high_watermark(leader),
            diverging=diverging, snapshot=snapshot,
        )  # fmt: skip
    if key is not None and key.id >= 0:
        end_offset, now_ms = log.end_offset, core.clock.now_ms()
        if leader.progress.on_fetch(key, partition.fetch_offset, end_offset, core.now_ms, now_ms):
            core.commit(leader.progress.high_watermark or 0)
    records = log.read(partition.fetch_offset, max(0, min(bytes_max, core.settings.fetch_bytes_max)))
    return responses.fetch_response(
        core.current_leader, ErrorCode.NONE, log.start_offset, _known_high_watermark(leader), records or b""
    )


def _known_high_watermark(leader: Leader) -> int:
    high_watermark = leader.progress.high_watermark
    return UNKNOWN_HIGH_WATERMARK if high_watermark is None else high_watermark


def compare(core: Core, offset: int, epoch: int) -> EpochEnd | SnapshotId | None:
    """Compare ours with a log that ends at `offset` and `epoch`. Return where it diverges, or the snapshot to fetch
    instead; None if it is a prefix of ours."""
    log = core.log
    latest, earliest = log.latest_snapshot(), log.earliest_snapshot()
    if offset == 0:
        return latest if latest not in (None, BOOTSTRAP) or log.start_offset > 0 else None
    if latest is not None and earliest is not None:
        is_before = offset < log.start_offset or (offset == log.start_offset and (offset, epoch) != earliest)
        if is_before or epoch < earliest.epoch:
            return latest
    end = log.end_of_epoch(epoch)
    return end if end.epoch != epoch or end.end_offset < offset else None


def _is_worth_sending(response: FetchResponse, requested: FetchPartition) -> bool:
    partition = response.responses[0].partitions[0]
    return (
        size_of(partition.records or b"") > 0
        or partition.diverging_epoch is not None
        or partition.snapshot_id is not None
        or requested.high_watermark < partition.high_watermark
    )


def release_fetches(core: Core, leader: Leader) -> None:
    """Answer parked fetches that have new data or a higher high watermark, or whose deadline has passed."""
    if not leader.parked:
        return
    end_offset, high_watermark = core.log.end_offset, _known_high_watermark(leader)
    for fetch in list(leader.parked):
        partition = fetch.partition
        has_news = end_offset > partition.fetch_offset or high_watermark > partition.high_watermark
        if has_news or core.now_ms >= fetch.deadline_ms:
            leader.parked.remove(fetch)
            response = _build_fetch_response(core, leader, partition, fetch.bytes_max, None)
            core.replies.append((fetch.promise, response))


# --- snapshots ----------------------------------------------------------------------------------------------------


def answer_fetch_snapshot(core: Core, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    if request.cluster_id not in (None, core.me.cluster_id):
        return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    # Check the arrays first: a request without topics once stopped whole quorums (CVE-2026-83525).
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
    topic, partition = request.topics[0], request.topics[0].partitions[0]
    if topic.name != METADATA_TOPIC or partition.partition != PARTITION:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return responses.fetch_snapshot_response(
            core.current_leader, code, topic=topic.name, partition=partition.partition
        )
    refusal = why_not_leader(core, partition.current_leader_epoch)
    if refusal is not None:
        return responses.fetch_snapshot_response(core.current_leader, refusal)
    return _snapshot_piece(core, request, partition)


def _snapshot_piece(
    core: Core, request: FetchSnapshotRequest, partition: RequestPartitionSnapshot
) -> FetchSnapshotResponse:
    requested = partition.snapshot_id
    snapshot = SnapshotId(requested.end_offset, requested.epoch) if requested is not None else BOOTSTRAP
    size = None if snapshot == BOOTSTRAP else core.log.snapshot_size(snapshot)
    if size is None:
        return responses.fetch_snapshot_response(core.current_leader, ErrorCode.SNAPSHOT_NOT_FOUND)
    if not 0 <= partition.position < size:
        return responses.fetch_snapshot_response(core.current_leader, ErrorCode.POSITION_OUT_OF_RANGE)
    leader = core.role
    assert isinstance(leader, Leader)
    leader.progress.on_contact(ReplicaKey(request.replica_id, bytes(partition.replica_directory_id)), core.now_ms)
    length = max(1, min(request.max_bytes, core.settings.snapshot_piece_bytes_max, size - partition.position))
    records = core.log.snapshot_bytes(snapshot, partition.position, length)
    return responses.fetch_snapshot_response(
        core.current_leader, ErrorCode.NONE, snapshot, size, partition.position, records
    )


# --- the leader's own part ----------------------------------------------------------------------------------------


def count_own_flush(core: Core, leader: Leader) -> None:
    if leader.progress.on_own_flush(core.log.flushed_offset):
        core.commit(leader.progress.high_watermark or 0)
