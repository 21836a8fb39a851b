"""DescribeQuorum: the log end offset and the last fetch of every replica, as the leader knows them."""

from __future__ import annotations

from typing import Final

from moldau.base.errors import ErrorCode
from moldau.base.topic_names import METADATA_TOPIC
from moldau.raft.core import Core
from moldau.raft.parsing import single
from moldau.raft.progress import ReplicaProgress
from moldau.raft.responses import PARTITION, UNKNOWN_HIGH_WATERMARK
from moldau.raft.roles import Leader
from moldau.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)

UNKNOWN: Final = "The quorum has no such partition."


def answer_describe(core: Core, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    if single(request.topics, METADATA_TOPIC) is None:
        topics = [
            ResponseTopicData(
                topic.topic_name,
                [
                    _partition_error(each.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return DescribeQuorumResponse(topics=topics)
    leader = core.role
    if not isinstance(leader, Leader):
        refusal = _partition_error(PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, "This node does not lead the quorum.")
        return DescribeQuorumResponse(topics=[ResponseTopicData(METADATA_TOPIC, [refusal])])
    topic_data = ResponseTopicData(METADATA_TOPIC, [_describe_partition(core, leader)])
    nodes = [Node(voter.key.id, [Listener(*each) for each in voter.endpoints]) for voter in core.voters]
    return DescribeQuorumResponse(topics=[topic_data], nodes=nodes)


def _partition_error(partition: int, code: ErrorCode, message: str) -> ResponsePartitionData:
    return ResponsePartitionData(partition, code, message)


def _describe_partition(core: Core, leader: Leader) -> ResponsePartitionData:
    progress = leader.progress
    progress.forget_silent_observers(core.now_ms)
    high_watermark = progress.high_watermark
    return ResponsePartitionData(
        PARTITION,
        ErrorCode.NONE,
        "",
        leader.leader_id,
        leader.epoch,
        UNKNOWN_HIGH_WATERMARK if high_watermark is None else high_watermark,
        [_replica_state(core, replica) for replica in progress.voters.values()],
        [_replica_state(core, replica) for replica in progress.observers.values()],
    )


def _replica_state(core: Core, replica: ReplicaProgress) -> ReplicaState:
    key = replica.key
    if key.id == core.me.node_id:
        now_ms = core.clock.now_ms()
        return ReplicaState(key.id, key.directory_id, core.log.end_offset, now_ms, now_ms)
    return ReplicaState(
        key.id, key.directory_id, replica.end_offset, replica.fetched_wall_ms, replica.caught_up_wall_ms
    )
