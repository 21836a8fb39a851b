"""OffsetForLeaderEpoch v2–4. The end offset of an epoch, by which a client detects that its log diverged (KIP-320)."""

from __future__ import annotations

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import PARTITIONS_REQUEST_BYTES_MAX
from moldau.replica.partitions import Partitions
from moldau.security.acls.requirements import CLUSTER_ACTION, TOPIC_DESCRIBE
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


class OffsetForLeaderEpoch:
    api = ApiKey.OFFSET_FOR_LEADER_EPOCH
    versions = (2, 4)
    request_bytes_max = PARTITIONS_REQUEST_BYTES_MAX

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def answer(self, request: OffsetForLeaderEpochRequest, caller: Caller) -> OffsetForLeaderEpochResponse:
        access = caller.access
        is_node = access.allows_quietly(CLUSTER_ACTION)
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic.topic,
                    [self._epoch_end_offset(topic.topic, requested) for requested in topic.partitions]
                    if is_node or access.allows(TOPIC_DESCRIBE, topic.topic)
                    else [_denied(requested) for requested in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _epoch_end_offset(self, topic: str, requested: OffsetForLeaderPartition) -> EpochEndOffset:
        try:
            partition = self._partitions.get(topic, requested.partition)
            partition.check_leader_epoch(requested.current_leader_epoch)
        except KafkaError as error:
            return EpochEndOffset(error.code, requested.partition)
        epoch, end_offset = partition.log.epochs.end_offset_for(requested.leader_epoch, partition.log.end_offset)
        return EpochEndOffset(0, requested.partition, epoch, end_offset)


def _denied(requested: OffsetForLeaderPartition) -> EpochEndOffset:
    return EpochEndOffset(ErrorCode.TOPIC_AUTHORIZATION_FAILED, requested.partition)
