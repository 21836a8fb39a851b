"""Messages and logs of the quorum, each on one line for a script."""

from __future__ import annotations

from typing import Any

from harness.memory_raft_log import MemoryRaftLog

from moldau.base.errors import ErrorCode, KafkaError
from moldau.wire.messages import (
    add_raft_voter,
    api_versions,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)


def request_line(request: Any) -> str:
    """Return a request on one line."""
    match request:
        case vote.VoteRequest(topics=[topic]):
            found = topic.partitions[0]
            kind = "PreVote" if found.pre_vote else "Vote"
            return f"{kind} epoch={found.replica_epoch} last={found.last_offset}@{found.last_offset_epoch}"
        case begin_quorum_epoch.BeginQuorumEpochRequest(topics=[topic]):
            return f"BeginQuorumEpoch epoch={topic.partitions[0].leader_epoch}"
        case end_quorum_epoch.EndQuorumEpochRequest(topics=[topic]):
            found = topic.partitions[0]
            return f"EndQuorumEpoch epoch={found.leader_epoch} successors={list(found.preferred_successors)}"
        case fetch.FetchRequest(topics=[topic]):
            found = topic.partitions[0]
            last = f"{found.fetch_offset}@{found.last_fetched_epoch}"
            return f"Fetch epoch={found.current_leader_epoch} from={last} hw={found.high_watermark}"
        case fetch_snapshot.FetchSnapshotRequest(topics=[topic]):
            found = topic.partitions[0]
            return f"FetchSnapshot {found.snapshot_id.end_offset}-{found.snapshot_id.epoch} position={found.position}"
        case _:
            return type(request).__name__.removesuffix("Request")


def response_line(response: Any) -> str:
    """Return a response, or the error instead of it, on one line."""
    if isinstance(response, KafkaError):
        return response.code.name
    name = type(response).__name__.removesuffix("Response")
    if response.error_code:
        return f"{name} refused: {ErrorCode(response.error_code).name}"
    match response:
        case vote.VoteResponse(topics=[topic]):
            found = topic.partitions[0]
            outcome = "granted" if found.vote_granted else "not granted"
            return _outcome(name, found, outcome, found.leader_id, found.leader_epoch)
        case (
            begin_quorum_epoch.BeginQuorumEpochResponse(topics=[topic])
            | end_quorum_epoch.EndQuorumEpochResponse(topics=[topic])
        ):
            found = topic.partitions[0]
            return _outcome(name, found, "ok", found.leader_id, found.leader_epoch)
        case fetch.FetchResponse(responses=[topic]):
            found = topic.partitions[0]
            return _outcome(
                name, found, _fetched(found), found.current_leader.leader_id, found.current_leader.leader_epoch
            )
        case fetch_snapshot.FetchSnapshotResponse(topics=[topic]):
            found = topic.partitions[0]
            piece = f"{len(found.unaligned_records)} bytes at {found.position} of {found.size}"
            return _outcome(name, found, piece, found.current_leader.leader_id, found.current_leader.leader_epoch)
        case add_raft_voter.AddRaftVoterResponse() | remove_raft_voter.RemoveRaftVoterResponse():
            return f"{name} ok"
        case api_versions.ApiVersionsResponse() | update_raft_voter.UpdateRaftVoterResponse():
            return f"{name} ok"
        case _:
            raise AssertionError(f"{name} has no line")


def _outcome(name: str, found: Any, outcome: str, leader_id: int, epoch: int) -> str:
    if found.error_code:
        outcome = ErrorCode(found.error_code).name
    return f"{name}: {outcome} (leader {leader_id} in {epoch})"


def _fetched(found: Any) -> str:
    if found.diverging_epoch is not None:
        return f"diverging at {found.diverging_epoch.end_offset}@{found.diverging_epoch.epoch}"
    if found.snapshot_id is not None:
        return f"snapshot {found.snapshot_id.end_offset}-{found.snapshot_id.epoch}"
    log = MemoryRaftLog()
    if found.records:
        first = int.from_bytes(found.records[:8], "big")
        log.start_offset = log.end_offset = log.flushed_offset = first
        log.append_from_leader(memoryview(found.records), 0)
        log.flush(log.end_offset)
    return f"{log_line(log)}, committed {found.high_watermark}"


def log_line(log: MemoryRaftLog) -> str:
    """Return the epochs with their offsets; batches that are not on disk follow after a bar."""
    parts = [f"{each.end_offset}-{each.epoch}:" for each in sorted(log.snapshots) if each.end_offset]
    is_flushed = True
    spans: list[list[Any]] = []
    for header in log.headers:
        if is_flushed and header.base_offset >= log.flushed_offset:
            is_flushed = False
            spans.append(["|", 0, 0])
        if spans and spans[-1][0] == header.leader_epoch:
            spans[-1][2] = header.last_offset
        else:
            spans.append([header.leader_epoch, header.base_offset, header.last_offset])
    parts += ["|" if epoch == "|" else f"{epoch}[{first}-{last}]" for epoch, first, last in spans]
    return "".join(parts) or "empty"
