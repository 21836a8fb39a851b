"""The log of a follower: appends the leader's records, truncates where the two logs diverge, starts again where the
leader's log begins after its end.

Logs are compared by leader epochs, never by high watermarks (KIP-101, KIP-279). A follower truncates below its high
watermark only after an unclean leader election: it reports that, because acknowledged records are lost.
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
        """Append the leader's records. KafkaError if they do not continue the log, or the disk fails."""
        log = partition.log
        batches = up_to_epoch(records, partition.state.leader_epoch)
        try:
            if len(batches) >= BATCH_HEADER_BYTES:
                self._move_empty_log(log, batches)
                log.append(batches, leader_epoch=partition.state.leader_epoch, now_ms=now_ms, origin=Origin.REPLICATION)
        except StorageFault as fault:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(fault)) from fault
        except MalformedData as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        if log.end_offset - log.recovery_point >= log.config.flush_messages:
            partition.request_flush()

    def _move_empty_log(self, log: Log, batches: memoryview) -> None:
        """Move an empty log back to the first batch: the leader's log may begin in the middle of a batch, which is sent
        whole."""
        header = read_header(batches, 0)
        if log.start_offset == log.end_offset and header.base_offset < log.end_offset <= header.last_offset:
            self._store.truncate_fully(log.partition, header.base_offset)

    def truncate_to_divergence(self, partition: Partition, epoch: int, end_offset: int) -> None:
        """Truncate to where the leader's log diverges: `epoch` is the leader's largest one not above this log's last
        epoch, and ends there at `end_offset`."""
        log = partition.log
        own_epoch, own_end_offset = log.epochs.end_offset_for(epoch, log.end_offset)
        if own_epoch == epoch:
            own_end_offset = min(own_end_offset, end_offset)
        elif own_end_offset < 0:
            own_end_offset = end_offset
        self.truncate(partition, own_end_offset)

    def truncate(self, partition: Partition, offset: int) -> None:
        offset = min(offset, partition.log.end_offset)
        self._report_loss(partition, offset)
        try:
            self._store.truncate(partition.name, offset)
        except StorageFault as fault:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(fault)) from fault
        finally:
            partition.truncated()

    def truncate_fully(self, partition: Partition, offset: int) -> None:
        """Restart the log at `offset`: all its records are below the leader's log start offset."""
        try:
            self._store.truncate_fully(partition.name, offset)
        except StorageFault as fault:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(fault)) from fault
        finally:
            partition.truncated()

    def _report_loss(self, partition: Partition, offset: int) -> None:
        if offset < partition.high_watermark:
            self._report(
                f"{partition.name} is truncated to offset {offset}, below its high watermark "
                f"{partition.high_watermark}: leader {partition.state.leader} lacks acknowledged records"
            )


def up_to_epoch(batches: memoryview, leader_epoch: int) -> memoryview:
    """Drop batches of a later leader epoch: that leader may have truncated earlier records of the same response."""
    position = 0
    while len(batches) - position >= BATCH_HEADER_BYTES:
        length, epoch = _LENGTH_AND_EPOCH.unpack_from(batches, position)
        if epoch > leader_epoch:
            return batches[:position]
        if length < 0:
            break
        position += LENGTH_PREFIX.size + length
    return batches
