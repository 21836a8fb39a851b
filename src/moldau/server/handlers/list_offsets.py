"""ListOffsets v1–11. The first and last offset of a log, and the offset for a timestamp.

-1 latest (the last stable offset for readers of committed data), -2 earliest, -3 the record with the largest
timestamp (v7), -4 earliest local (v8), -5 latest tiered (v9), -6 earliest pending upload (v11). A timestamp finds the
first record that is not older, or -1. There is no tiered storage: all data is local, nothing was ever uploaded.

Only the leader answers consumers, up to the high watermark. A leader whose high watermark has not yet reached the start
of its epoch does not know the latest offset (KIP-207). Followers and debuggers get the log end offset.
"""

from __future__ import annotations

from collections import Counter

from moldau.base.errors import ErrorCode, KafkaError, StorageFault
from moldau.replica.partition import Partition
from moldau.replica.partitions import Partitions
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
NEEDS_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
READ_COMMITTED = 1
NOT_AVAILABLE_FROM_VERSION = 5
CONSUMER_ID = -1
DEBUGGER_ID = -2
"""A debugger may ask any replica."""


class ListOffsets:
    api = ApiKey.LIST_OFFSETS
    versions = (1, 11)

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def answer(self, request: ListOffsetsRequest, caller: Caller) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            counts = Counter(requested.partition_index for requested in topic.partitions)
            by_index = {requested.partition_index: requested for requested in topic.partitions}
            results = [
                self._offset(topic.name, requested, request, caller)
                if counts[index] == 1
                else ListOffsetsPartitionResponse(index, ErrorCode.INVALID_REQUEST)
                for index, requested in by_index.items()
            ]
            topics.append(ListOffsetsTopicResponse(topic.name, results))
        return ListOffsetsResponse(topics=topics)

    def _offset(
        self, topic: str, requested: ListOffsetsPartition, request: ListOffsetsRequest, caller: Caller
    ) -> ListOffsetsPartitionResponse:
        index = requested.partition_index
        try:
            partition = self._partitions.get(topic, index)
            partition.fence(requested.current_leader_epoch, leader_only=request.replica_id != DEBUGGER_ID)
            if requested.timestamp < 0 and caller.version < NEEDS_VERSION.get(requested.timestamp, 0):
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            timestamp, offset = _look_up(partition, requested.timestamp, request)
            epoch = _epoch(partition, requested.timestamp, offset)
        except KafkaError as error:
            code = error.code
            if code is ErrorCode.OFFSET_NOT_AVAILABLE and caller.version < NOT_AVAILABLE_FROM_VERSION:
                code = ErrorCode.LEADER_NOT_AVAILABLE
            return ListOffsetsPartitionResponse(index, code)
        except StorageFault as fault:
            partition.report_fault(f"{partition.name}: offsets cannot be looked up", fault)
            return ListOffsetsPartitionResponse(index, ErrorCode.KAFKA_STORAGE_ERROR)
        return ListOffsetsPartitionResponse(index, 0, timestamp, offset, epoch)


def _look_up(partition: Partition, timestamp: int, request: ListOffsetsRequest) -> tuple[int, int]:
    """Return (timestamp, offset), each -1 if there is none."""
    log = partition.log
    end = _readable_end(partition, request)
    match timestamp:
        case -1:
            _refuse_before_commit(partition, request)
            return -1, end
        case -2 | -4:
            return -1, log.start_offset
        case -3:
            record = log.max_timestamp_offset()
        case -5 | -6:
            return -1, -1
        case _ if timestamp < 0:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        case _:
            record = log.offset_for_time(timestamp, log.end_offset)
    if record is not None and record.offset < end:
        return record.timestamp, record.offset
    _refuse_before_commit(partition, request)
    return -1, -1


def _epoch(partition: Partition, timestamp: int, offset: int) -> int:
    """Return the epoch of the record, or the leader epoch for LATEST, because the leader writes the next record."""
    if timestamp == LATEST:
        return partition.state.leader_epoch
    return partition.log.epochs.epoch_for_offset(offset) if offset >= 0 else -1


def _readable_end(partition: Partition, request: ListOffsetsRequest) -> int:
    if request.replica_id != CONSUMER_ID:
        return partition.log.end_offset
    return partition.last_stable_offset if request.isolation_level == READ_COMMITTED else partition.high_watermark


def _refuse_before_commit(partition: Partition, request: ListOffsetsRequest) -> None:
    """Raise OFFSET_NOT_AVAILABLE while a new leader knows only an old high watermark: the offset might be lower than
    one that another consumer has read."""
    if request.replica_id == CONSUMER_ID and partition.epoch_start_offset > partition.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
