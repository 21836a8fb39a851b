"""OffsetForLeaderEpoch v2–4. The end offset of an epoch, by which a client detects that its log diverged (KIP-320)."""

from __future__ import annotations

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import PARTITIONS_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.turns import ITEMS_A_TURN
from moldau.log.epochs import UNDEFINED_EPOCH
from moldau.replica.partitions import Partitions
from moldau.security.acls.requirements import CLUSTER_ACTION, TOPIC_DESCRIBE
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.replies import item_count, partitions_in_turns
from moldau.wire.apis import ApiKey
from moldau.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


class OffsetForLeaderEpoch(Handler):
    api = ApiKey.OFFSET_FOR_LEADER_EPOCH
    versions = (2, 4)
    needs = (CLUSTER_ACTION, TOPIC_DESCRIBE)
    request_bytes_max = PARTITIONS_REQUEST_BYTES_MAX

    def __init__(self, partitions: Partitions, timers: Timers) -> None:
        self._partitions = partitions
        self._timers = timers

    def answer(
        self, request: OffsetForLeaderEpochRequest, caller: Caller
    ) -> OffsetForLeaderEpochResponse | Promise[OffsetForLeaderEpochResponse]:
        access = caller.access
        is_node = access.allows_quietly(CLUSTER_ACTION)
        return partitions_in_turns(
            self._timers,
            request.topics,
            lambda topic: (
                topic.topic if is_node or access.allows(TOPIC_DESCRIBE, topic.topic) else None,
                topic.partitions,
            ),
            self._epoch_end_offset,
            lambda results: OffsetForLeaderEpochResponse(
                topics=[
                    OffsetForLeaderTopicResult(topic.topic, each)
                    for topic, each in zip(request.topics, results, strict=True)
                ]
            ),
            ITEMS_A_TURN,
            item_count(topic.partitions for topic in request.topics),
        )

    def _epoch_end_offset(self, topic: str | None, requested: OffsetForLeaderPartition) -> EpochEndOffset:
        """`topic` is None if the client may not describe it."""
        if topic is None:
            return EpochEndOffset(ErrorCode.TOPIC_AUTHORIZATION_FAILED, requested.partition)
        try:
            partition = self._partitions.get_readable(topic, requested.partition)
            partition.check_leader_epoch(requested.current_leader_epoch)
            epoch, end_offset = partition.log.epochs.end_offset_for(requested.leader_epoch, partition.log.end_offset)
            if epoch == UNDEFINED_EPOCH:
                partition.check_certain()
        except KafkaError as error:
            return EpochEndOffset(error.code, requested.partition)
        return EpochEndOffset(0, requested.partition, epoch, end_offset)
