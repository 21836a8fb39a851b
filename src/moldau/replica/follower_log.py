"""What a follower does to its log: takes what its leader has, cuts off where the two have parted, begins anew where the
leader has nothing as old.

Logs are compared by leader epochs, never by high watermarks (KIP-101, KIP-279). Below its high watermark a follower has
to cut only if a replica that was not in sync was made leader: that is told, since what was acknowledged is lost.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError, MalformedData, StorageFault
from moldau.log.log import Log
from moldau.log.store import LogStore
from moldau.log.validate import Origin
from moldau.replica.partition import Partition
from moldau.wire.batch import BATCH_HEADER_BYTES, LENGTH_PREFIX, read_header

_LENGTH_AND_EPOCH: Final = struct.Struct(">8xii")


class FollowerLog:
    def __init__(self, store: LogStore, report: Callable[[str], None]) -> None:
        self._store = store
        self._report = report

    def take(self, partition: Partition, records: memoryview, now_ms: int) -> None:
        """Appends what the leader sent. KafkaError for what is not a log's continuation or what the disk refuses."""
        log = partition.log
        batches = up_to_epoch(records, partition.state.leader_epoch)
        try:
            if len(batches) >= BATCH_HEADER_BYTES:
                self._make_room_before(log, batches)
                log.append(batches, leader_epoch=partition.state.leader_epoch, now_ms=now_ms, origin=Origin.REPLICATION)
        except StorageFault as fault:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(fault)) from fault
        except MalformedData as broken:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(broken)) from broken
        if log.end_offset - log.recovery_point >= log.config.flush_messages:
            partition.request_flush()

    def _make_room_before(self, log: Log, batches: memoryview) -> None:
        """A leader's log may begin in the middle of a batch, which then comes whole."""
        header = read_header(batches, 0)
        if log.start_offset == log.end_offset and header.base_offset < log.end_offset <= header.last_offset:
            self._store.truncate_fully(log.partition, header.base_offset)

    def truncate_to_divergence(self, partition: Partition, epoch: int, end_offset: int) -> None:
        """The leader's last epoch not above this log's own last one, and where it ended there."""
        log = partition.log
        own_epoch, own_end_offset = log.epochs.end_offset_for(epoch, log.end_offset)
        if own_epoch == epoch:
            own_end_offset = min(own_end_offset, end_offset)
        elif own_end_offset < 0:
            own_end_offset = end_offset
        self.truncate(partition, own_end_offset)

    def truncate(self, partition: Partition, offset: int) -> None:
        offset = min(offset, partition.log.end_offset)
        self._tell_loss(partition, offset)
        try:
            self._store.truncate(partition.name, offset)
        except StorageFault as fault:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(fault)) from fault
        finally:
            partition.truncated()

    def truncate_fully(self, partition: Partition, offset: int) -> None:
        """All that this log holds is older than what the leader has."""
        try:
            self._store.truncate_fully(partition.name, offset)
        except StorageFault as fault:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(fault)) from fault
        finally:
            partition.truncated()

    def _tell_loss(self, partition: Partition, offset: int) -> None:
        if offset < partition.high_watermark:
            self._report(
                f"{partition.name} is cut at offset {offset}, below its high watermark {partition.high_watermark}: its "
                f"leader {partition.state.leader} lacks records that were acknowledged"
            )


def up_to_epoch(batches: memoryview, leader_epoch: int) -> memoryview:
    """Without what a later leader wrote: it may have cut off records before it that came with the same answer."""
    position = 0
    while len(batches) - position >= BATCH_HEADER_BYTES:
        length, epoch = _LENGTH_AND_EPOCH.unpack_from(batches, position)
        if epoch > leader_epoch:
            return batches[:position]
        if length < 0:
            break
        position += LENGTH_PREFIX.size + length
    return batches
