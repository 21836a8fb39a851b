"""Builders of the quorum's responses, each for the one partition of the metadata topic, or for that which was asked for
if it is unknown; all name the leader that this node knows."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from moldau.base.errors import ErrorCode
from moldau.base.ids import METADATA_TOPIC_UUID
from moldau.base.topic_names import METADATA_TOPIC
from moldau.raft.ports import EpochEnd
from moldau.raft.snapshots import SnapshotId
from moldau.raft.voters import Endpoint
from moldau.wire.messages import begin_quorum_epoch, end_quorum_epoch, fetch_snapshot, update_raft_voter, vote
from moldau.wire.messages import fetch as fetches
from moldau.wire.schema import Records

PARTITION: Final = 0
UNKNOWN_HIGH_WATERMARK: Final = -1


class CurrentLeader(NamedTuple):
    """The leader and its epoch, and the endpoint at which it can be reached."""

    leader_id: int
    epoch: int
    endpoint: Endpoint | None

    def endpoints(self, node_endpoint: type[Any]) -> list[Any]:
        """Return the tag NodeEndpoints, as `node_endpoint` objects: each response has its own class for them."""
        if self.leader_id < 0 or self.endpoint is None:
            return []
        return [node_endpoint(self.leader_id, self.endpoint.host, self.endpoint.port)]


def vote_response(current_leader: CurrentLeader, code: ErrorCode, *, is_granted: bool = False) -> vote.VoteResponse:
    partition = vote.ResponsePartitionData(PARTITION, code, current_leader.leader_id, current_leader.epoch, is_granted)
    return vote.VoteResponse(
        ErrorCode.NONE,
        [vote.ResponseTopicData(METADATA_TOPIC, [partition])],
        current_leader.endpoints(vote.NodeEndpoint),
    )


def begin_epoch_response(current_leader: CurrentLeader, code: ErrorCode) -> begin_quorum_epoch.BeginQuorumEpochResponse:
    partition = begin_quorum_epoch.ResponsePartitionData(
        PARTITION, code, current_leader.leader_id, current_leader.epoch
    )
    return begin_quorum_epoch.BeginQuorumEpochResponse(
        ErrorCode.NONE,
        [begin_quorum_epoch.ResponseTopicData(METADATA_TOPIC, [partition])],
        current_leader.endpoints(begin_quorum_epoch.NodeEndpoint),
    )


def end_epoch_response(current_leader: CurrentLeader, code: ErrorCode) -> end_quorum_epoch.EndQuorumEpochResponse:
    partition = end_quorum_epoch.ResponsePartitionData(PARTITION, code, current_leader.leader_id, current_leader.epoch)
    return end_quorum_epoch.EndQuorumEpochResponse(
        ErrorCode.NONE,
        [end_quorum_epoch.ResponseTopicData(METADATA_TOPIC, [partition])],
        current_leader.endpoints(end_quorum_epoch.NodeEndpoint),
    )


def fetch_response(
    current_leader: CurrentLeader,
    code: ErrorCode,
    log_start_offset: int,
    high_watermark: int = UNKNOWN_HIGH_WATERMARK,
    records: Records | None = b"",
    diverging: EpochEnd | None = None,
    snapshot: SnapshotId | None = None,
) -> fetches.FetchResponse:
    partition = fetches.PartitionData(
        PARTITION,
        code,
        high_watermark,
        log_start_offset=log_start_offset,
        diverging_epoch=fetches.EpochEndOffset(*diverging) if diverging else None,
        current_leader=fetches.LeaderIdAndEpoch(current_leader.leader_id, current_leader.epoch),
        snapshot_id=fetches.SnapshotId(*snapshot) if snapshot else None,
        records=records,
    )
    topic = fetches.FetchableTopicResponse(METADATA_TOPIC_UUID, METADATA_TOPIC, [partition])
    return fetches.FetchResponse(responses=[topic], node_endpoints=current_leader.endpoints(fetches.NodeEndpoint))


def fetch_snapshot_response(
    current_leader: CurrentLeader,
    code: ErrorCode,
    snapshot: SnapshotId | None = None,
    size: int = 0,
    position: int = 0,
    records: Records = b"",
    topic: str = METADATA_TOPIC,
    partition: int = PARTITION,
) -> fetch_snapshot.FetchSnapshotResponse:
    piece = fetch_snapshot.ResponsePartitionSnapshot(
        partition,
        code,
        fetch_snapshot.ResponseSnapshotId(*(snapshot or (0, 0))),
        fetch_snapshot.LeaderIdAndEpoch(current_leader.leader_id, current_leader.epoch),
        size,
        position,
        records,
    )
    return fetch_snapshot.FetchSnapshotResponse(
        topics=[fetch_snapshot.ResponseTopicSnapshot(topic, [piece])],
        node_endpoints=current_leader.endpoints(fetch_snapshot.NodeEndpoint),
    )


def update_voter_response(current_leader: CurrentLeader, code: ErrorCode) -> update_raft_voter.UpdateRaftVoterResponse:
    host, port = ("", 0) if current_leader.endpoint is None else current_leader.endpoint[1:]
    return update_raft_voter.UpdateRaftVoterResponse(
        error_code=code,
        current_leader=update_raft_voter.CurrentLeader(current_leader.leader_id, current_leader.epoch, host, port),
    )
