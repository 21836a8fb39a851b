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

A lookup by time opens a batch, in a thread. If that would take too long, or headers of batches promise timestamps that
no record has, it answers with a batch's base offset and largest timestamp (`log/time_search`).
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError, MalformedData, StorageFault
from moldau.base.limits import PARTITIONS_REQUEST_BYTES_MAX
from moldau.base.ports import RunInThread
from moldau.base.promise import Promise
from moldau.base.steps import TurnItems, WaitingSteps, checking
from moldau.base.turns import ITEMS_A_TURN
from moldau.log.time_index import TimestampOffset
from moldau.replica.partitions import Partitions
from moldau.runtime.thread_work import in_thread
from moldau.security.acls.requirements import TOPIC_DESCRIBE
from moldau.server.handler import LONG_ELEMENTS_MAX, Caller, Handler
from moldau.server.handlers.replies import run_steps
from moldau.wire.apis import ApiKey
from moldau.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from moldau.replica.view_partition import ReadablePartition

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
TIME_ITEMS: Final = 10
"""A partition counts as so many if a record is searched for, which reads indexes and headers."""


class ListOffsets(Handler):
    api = ApiKey.LIST_OFFSETS
    versions = (1, 11)
    needs = (TOPIC_DESCRIBE,)
    elements_max = LONG_ELEMENTS_MAX
    request_bytes_max = PARTITIONS_REQUEST_BYTES_MAX

    def __init__(self, partitions: Partitions, timers: Timers, run_in_thread: RunInThread) -> None:
        self._partitions = partitions
        self._timers = timers
        self._run_in_thread = run_in_thread

    def answer(self, request: ListOffsetsRequest, caller: Caller) -> ListOffsetsResponse | Promise[ListOffsetsResponse]:
        return run_steps(self._timers, self._steps(request, caller))

    def _steps(self, request: ListOffsetsRequest, caller: Caller) -> WaitingSteps[ListOffsetsResponse]:
        turn = TurnItems(ITEMS_A_TURN)
        topics = []
        for topic in request.topics:
            name, partitions = topic.name, topic.partitions
            is_allowed = caller.access.allows(TOPIC_DESCRIBE, name)
            counts: Counter[int] = Counter()
            if is_allowed:
                counts.update([requested.partition_index for requested in partitions])
                partitions = list({requested.partition_index: requested for requested in partitions}.values())
            results = []
            for requested in partitions:
                index = requested.partition_index
                if not is_allowed:
                    results.append(ListOffsetsPartitionResponse(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                elif counts[index] > 1:
                    results.append(ListOffsetsPartitionResponse(index, ErrorCode.INVALID_REQUEST))
                else:
                    results.append((yield from self._list_offset(name, requested, request, caller)))
                if turn.ends_after(TIME_ITEMS if _is_time(requested.timestamp) else 1):
                    yield None
            if not partitions and turn.ends_after(1):
                yield None
            topics.append(ListOffsetsTopicResponse(name, results))
        return ListOffsetsResponse(topics=topics)

    def _list_offset(
        self, topic: str, requested: ListOffsetsPartition, request: ListOffsetsRequest, caller: Caller
    ) -> WaitingSteps[ListOffsetsPartitionResponse]:
        index = requested.partition_index
        try:
            if requested.timestamp < 0 and caller.version < MIN_VERSION.get(requested.timestamp, 0):
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            partition = self._partitions.get_readable(topic, index)
            partition.check_leader_epoch(requested.current_leader_epoch, leader_only=request.replica_id != DEBUGGER_ID)
            if _is_time(requested.timestamp):
                record = yield from self._search(partition, requested.timestamp)
                timestamp, offset = _readable(record, partition, request)
            else:
                timestamp, offset = NO_TIMESTAMP, _named_offset(partition, requested.timestamp, request)
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

    def _search(self, partition: ReadablePartition, timestamp: int) -> WaitingSteps[TimestampOffset | None]:
        """Search for a record by its time. The partition may be closed meanwhile."""
        target_ms = None if timestamp == MAX_TIMESTAMP else timestamp
        search = partition.log.search_time(target_ms, partial(in_thread, self._run_in_thread))

        def check() -> None:
            if partition.is_closed:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

        try:
            return (yield from checking(search, check))
        except MalformedData as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def _is_time(timestamp: int) -> bool:
    """Return whether a record is searched for."""
    return timestamp >= 0 or timestamp == MAX_TIMESTAMP


def _named_offset(partition: ReadablePartition, timestamp: int, request: ListOffsetsRequest) -> int:
    """Return the offset that a negative timestamp stands for."""
    if timestamp == LATEST:
        end = _readable_end(partition, request)
        _check_high_watermark_is_current(partition, request)
        return end
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return partition.log.start_offset
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NO_OFFSET
    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _readable(
    record: TimestampOffset | None, partition: ReadablePartition, request: ListOffsetsRequest
) -> tuple[int, int]:
    """Return the timestamp and the offset of a record, both -1 if there is none that the client may read."""
    if record is not None and record.offset < _readable_end(partition, request):
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
