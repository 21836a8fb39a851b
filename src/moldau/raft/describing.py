"""DescribeQuorum: how far every replica is, as the leader knows it."""

from __future__ import annotations

from typing import Final

from moldau.base.errors import ErrorCode
from moldau.base.names import METADATA_TOPIC
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

UNKNOWN: Final = "The quorum keeps no such partition."


def answer_describe(core: Core, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    if single(request.topics, METADATA_TOPIC) is None:
        topics = [
            ResponseTopicData(
                topic.topic_name,
                [
                    _refused(each.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return DescribeQuorumResponse(topics=topics)
    leader = core.role
    if not isinstance(leader, Leader):
        refused = _refused(PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, "This node does not lead the quorum.")
        return DescribeQuorumResponse(topics=[ResponseTopicData(METADATA_TOPIC, [refused])])
    described = ResponseTopicData(METADATA_TOPIC, [_describe_partition(core, leader)])
    nodes = [Node(voter.key.id, [Listener(*each) for each in voter.endpoints]) for voter in core.voters]
    return DescribeQuorumResponse(topics=[described], nodes=nodes)


def _refused(partition: int, code: ErrorCode, message: str) -> ResponsePartitionData:
    return ResponsePartitionData(partition, code, message)


def _describe_partition(core: Core, leader: Leader) -> ResponsePartitionData:
    progress = leader.progress
    progress.forget_silent_observers(core.now_ms)
    known = progress.high_watermark
    return ResponsePartitionData(
        PARTITION,
        ErrorCode.NONE,
        "",
        leader.leader_id,
        leader.epoch,
        UNKNOWN_HIGH_WATERMARK if known is None else known,
        [_state(core, replica) for replica in progress.voters.values()],
        [_state(core, replica) for replica in progress.observers.values()],
    )


def _state(core: Core, replica: ReplicaProgress) -> ReplicaState:
    key = replica.key
    if key.id == core.me.node_id:
        now_ms = core.clock.now_ms()
        return ReplicaState(key.id, key.directory_id, core.log.end_offset, now_ms, now_ms)
    return ReplicaState(
        key.id, key.directory_id, replica.end_offset, replica.fetched_wall_ms, replica.caught_up_wall_ms
    )
