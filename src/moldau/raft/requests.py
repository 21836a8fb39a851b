"""Builders of the quorum's requests, each for the only partition of the metadata topic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from moldau.base.ids import METADATA_TOPIC_UUID
from moldau.base.topic_names import METADATA_TOPIC
from moldau.raft.member import Member, RaftSettings
from moldau.raft.ports import RaftLog
from moldau.raft.responses import PARTITION
from moldau.raft.snapshots import SnapshotId
from moldau.raft.voters import SUPPORTED_KRAFT_VERSIONS, ReplicaKey
from moldau.wire.messages import begin_quorum_epoch, end_quorum_epoch, fetch_snapshot, update_raft_voter, vote
from moldau.wire.messages import fetch as fetches


def vote_request(me: Member, voter: ReplicaKey, epoch: int, log: RaftLog, *, is_pre_vote: bool) -> vote.VoteRequest:
    partition = vote.RequestPartitionData(
        PARTITION, epoch, me.node_id, me.directory_id, voter.directory_id, log.last_epoch, log.end_offset, is_pre_vote
    )
    return vote.VoteRequest(me.cluster_id, voter.id, [vote.RequestTopicData(METADATA_TOPIC, [partition])])


def begin_epoch_request(me: Member, voter: ReplicaKey, epoch: int) -> begin_quorum_epoch.BeginQuorumEpochRequest:
    partition = begin_quorum_epoch.RequestPartitionData(PARTITION, voter.directory_id, me.node_id, epoch)
    return begin_quorum_epoch.BeginQuorumEpochRequest(
        me.cluster_id,
        voter.id,
        [begin_quorum_epoch.RequestTopicData(METADATA_TOPIC, [partition])],
        [begin_quorum_epoch.LeaderEndpoint(*endpoint) for endpoint in me.endpoints],
    )


def end_epoch_request(
    me: Member, epoch: int, successors: Sequence[ReplicaKey]
) -> end_quorum_epoch.EndQuorumEpochRequest:
    partition = end_quorum_epoch.RequestPartitionData(
        PARTITION,
        me.node_id,
        epoch,
        [end_quorum_epoch.ReplicaInfo(*key) for key in successors],
        [key.id for key in successors],
    )
    return end_quorum_epoch.EndQuorumEpochRequest(
        me.cluster_id,
        [end_quorum_epoch.RequestTopicData(METADATA_TOPIC, [partition])],
        [end_quorum_epoch.LeaderEndpoint(*endpoint) for endpoint in me.endpoints],
    )


def fetch_request(
    me: Member, epoch: int, log: RaftLog, high_watermark: int, settings: RaftSettings
) -> fetches.FetchRequest:
    partition = fetches.FetchPartition(
        PARTITION,
        epoch,
        log.end_offset,
        log.last_epoch,
        partition_max_bytes=settings.fetch_bytes_max,
        replica_directory_id=me.directory_id,
        high_watermark=high_watermark,
    )
    return fetches.FetchRequest(
        me.cluster_id,
        fetches.ReplicaState(me.node_id),
        me.node_id,
        settings.fetch_wait_max_ms,
        max_bytes=settings.fetch_bytes_max,
        topics=[fetches.FetchTopic(METADATA_TOPIC_UUID, METADATA_TOPIC, [partition])],
    )


def fetch_snapshot_request(
    me: Member, epoch: int, snapshot: SnapshotId, position: int, settings: RaftSettings
) -> fetch_snapshot.FetchSnapshotRequest:
    partition = fetch_snapshot.RequestPartitionSnapshot(
        PARTITION, epoch, fetch_snapshot.RequestSnapshotId(*snapshot), position, me.directory_id
    )
    return fetch_snapshot.FetchSnapshotRequest(
        me.cluster_id,
        me.node_id,
        settings.snapshot_piece_bytes_max,
        [fetch_snapshot.RequestTopicSnapshot(METADATA_TOPIC, [partition])],
    )


def update_voter_request(me: Member, epoch: int) -> update_raft_voter.UpdateRaftVoterRequest:
    listeners: Iterable[update_raft_voter.Listener] = (update_raft_voter.Listener(*each) for each in me.endpoints)
    return update_raft_voter.UpdateRaftVoterRequest(
        me.cluster_id,
        epoch,
        me.node_id,
        me.directory_id,
        list(listeners),
        update_raft_voter.KRaftVersionFeature(*SUPPORTED_KRAFT_VERSIONS),
    )
