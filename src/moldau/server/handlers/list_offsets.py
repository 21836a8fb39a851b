"""ListOffsets v1–11. The first and last offset of a log, and the offset for a timestamp.

| timestamp | since | offset in the response |
|---|---|---|
| 0 or more | v1 | of the first record that is not older than the timestamp; -1 if there is none |
| -1 latest | v1 | the high watermark, or the last stable offset for read_committed |
| -2 earliest | v1 | the log start offset |
| -3 max timestamp | v7 | of the record with the largest timestamp; -1 if there is none |
| -4 earliest local | v8 | the log start offset: without tiered storage, all data is local |
| -5 latest tiered | v9 | always -1: without tiered storage, nothing is ever uploaded |
| -6 earliest pending upload | v11 | always -1, for the same reason |

Consumers get an offset only from the leader, and only below the high watermark. A new leader does not know the latest
offset until its high watermark has reached the start of its epoch (KIP-207). For followers and debuggers the log end
offset takes the place of the high watermark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError, StorageFault
from moldau.base.limits import PARTITIONS_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.replica.partitions import Partitions
from moldau.replica.view_partition import ReadablePartition
from moldau.security.acls.requirements import TOPIC_DESCRIBE
from moldau.server.handlers.replies import item_count, partitions_in_turns
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
MIN_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
READ_COMMITTED = 1
OFFSET_NOT_AVAILABLE_MIN_VERSION = 5
"""Before this version, clients get LEADER_NOT_AVAILABLE instead: they do not know the error OFFSET_NOT_AVAILABLE."""
NO_TIMESTAMP = -1
NO_OFFSET = -1
NO_EPOCH = -1
CONSUMER_ID = -1
DEBUGGER_ID = -2
"""The replica id of a debugging tool, which may ask any replica."""
PARTITIONS_A_TURN: Final = 500
"""A partition takes 3 microseconds; a lookup by time may read from a file."""


class _Topic(NamedTuple):
    name: str
    counts: Counter[int] | None
    """How often each partition is named; None if the client may not describe the topic."""


class ListOffsets:
    api = ApiKey.LIST_OFFSETS
    versions = (1, 11)
    request_bytes_max = PARTITIONS_REQUEST_BYTES_MAX

    def __init__(self, partitions: Partitions, timers: Timers) -> None:
        self._partitions = partitions
        self._timers = timers

    def answer(self, request: ListOffsetsRequest, caller: Caller) -> ListOffsetsResponse | Promise[ListOffsetsResponse]:
        def prepare(topic: ListOffsetsTopic) -> tuple[_Topic, Sequence[ListOffsetsPartition]]:
            if not caller.access.allows(TOPIC_DESCRIBE, topic.name):
                return _Topic(topic.name, None), topic.partitions
            counts = Counter([requested.partition_index for requested in topic.partitions])
            by_index = {requested.partition_index: requested for requested in topic.partitions}
            return _Topic(topic.name, counts), list(by_index.values())

        return partitions_in_turns(
            self._timers,
            request.topics,
            prepare,
            lambda topic, requested: self._result(topic, requested, request, caller),
            lambda results: ListOffsetsResponse(
                topics=[
                    ListOffsetsTopicResponse(topic.name, each)
                    for topic, each in zip(request.topics, results, strict=True)
                ]
            ),
            PARTITIONS_A_TURN,
            item_count(topic.partitions for topic in request.topics),
        )

    def _result(
        self, topic: _Topic, requested: ListOffsetsPartition, request: ListOffsetsRequest, caller: Caller
    ) -> ListOffsetsPartitionResponse:
        index = requested.partition_index
        if topic.counts is None:
            return ListOffsetsPartitionResponse(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if topic.counts[index] > 1:
            return ListOffsetsPartitionResponse(index, ErrorCode.INVALID_REQUEST)
        return self._list_offset(topic.name, requested, request, caller)

    def _list_offset(
        self, topic: str, requested: ListOffsetsPartition, request: ListOffsetsRequest, caller: Caller
    ) -> ListOffsetsPartitionResponse:
        index = requested.partition_index
        try:
            if requested.timestamp < 0 and caller.version < MIN_VERSION.get(requested.timestamp, 0):
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            partition = self._partitions.get_readable(topic, index)
            partition.check_leader_epoch(requested.current_leader_epoch, leader_only=request.replica_id != DEBUGGER_ID)
            timestamp, offset = _look_up(partition, requested.timestamp, request)
            epoch = _leader_epoch(partition, requested.timestamp, offset)
        except KafkaError as error:
            code = error.code
            if code is ErrorCode.OFFSET_NOT_AVAILABLE and caller.version < OFFSET_NOT_AVAILABLE_MIN_VERSION:
                code = ErrorCode.LEADER_NOT_AVAILABLE
            return ListOffsetsPartitionResponse(index, code)
        except StorageFault as fault:
            partition.report_fault(f"{partition.name}: offsets cannot be looked up", fault)
            return ListOffsetsPartitionResponse(index, ErrorCode.KAFKA_STORAGE_ERROR)
        return ListOffsetsPartitionResponse(index, 0, timestamp, offset, epoch)


def _look_up(partition: ReadablePartition, timestamp: int, request: ListOffsetsRequest) -> tuple[int, int]:
    """Return (timestamp, offset). The timestamp is -1 if the offset is not that of a record. Both are -1 if there is no
    such record."""
    log = partition.log
    end = _readable_end(partition, request)
    if timestamp == LATEST:
        _check_high_watermark_is_current(partition, request)
        return NO_TIMESTAMP, end
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return NO_TIMESTAMP, log.start_offset
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NO_TIMESTAMP, NO_OFFSET
    if timestamp == MAX_TIMESTAMP:
        record = log.max_timestamp_offset()
    elif timestamp < 0:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    else:
        record = log.offset_for_time(timestamp, log.end_offset)
    if record is not None and record.offset < end:
        return record.timestamp, record.offset
    _check_high_watermark_is_current(partition, request)
    return NO_TIMESTAMP, NO_OFFSET


def _leader_epoch(partition: ReadablePartition, timestamp: int, offset: int) -> int:
    """Return the leader epoch of the record at `offset`. For LATEST, return the current leader epoch, because the next
    record will get it."""
    if timestamp == LATEST:
        return partition.state.leader_epoch
    return partition.log.epochs.epoch_for_offset(offset) if offset >= 0 else NO_EPOCH


def _readable_end(partition: ReadablePartition, request: ListOffsetsRequest) -> int:
    """Return the offset after the last record that the client may read."""
    if request.replica_id != CONSUMER_ID:
        return partition.log.end_offset
    return partition.last_stable_offset if request.isolation_level == READ_COMMITTED else partition.high_watermark


def _check_high_watermark_is_current(partition: ReadablePartition, request: ListOffsetsRequest) -> None:
    """Raise OFFSET_NOT_AVAILABLE for a consumer while a new leader's high watermark is below the start of its epoch:
    the previous leader may have had a higher one, and consumers would see the latest offset go backwards."""
    if request.replica_id == CONSUMER_ID and partition.epoch_start_offset > partition.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
