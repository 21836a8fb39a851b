"""The log of a follower. It appends the leader's records, truncates the log where it diverges from the leader's log,
and restarts the log if the leader's log begins after its end.

Logs are compared by leader epochs, never by high watermarks (KIP-101, KIP-279). A follower truncates below its high
watermark only after an unclean leader election. It reports this, because acknowledged records are lost.
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
    """`report` is called with a line about data loss."""

    def __init__(self, store: LogStore, report: Callable[[str], None]) -> None:
        self._store = store
        self._report = report

    def append_from_leader(self, partition: Partition, records: memoryview, now_ms: int) -> None:
        """Append the leader's records. Raise KafkaError if they do not continue the log, or the disk fails."""
        log = partition.log
        batches = drop_newer_epochs(records, partition.state.leader_epoch)
        try:
            if len(batches) >= BATCH_HEADER_BYTES:
                self._move_empty_log(log, batches)
                log.append(batches, leader_epoch=partition.state.leader_epoch, now_ms=now_ms, origin=Origin.REPLICATION)
                partition.traffic.replication_bytes_in += len(batches)
        except StorageFault as fault:
            partition.report_fault(f"{partition.name}: the leader's records cannot be appended", fault)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(fault)) from fault
        except MalformedData as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        if log.end_offset - log.recovery_point >= log.config.flush_messages:
            partition.request_flush()

    def _move_empty_log(self, log: Log, batches: memoryview) -> None:
        """Restart an empty log at the base offset of the first batch. DeleteRecords can move the leader's log start
        offset into the middle of a batch, but the leader sends that batch whole."""
        header = read_header(batches, 0)
        if log.start_offset == log.end_offset and header.base_offset < log.end_offset <= header.last_offset:
            self._store.truncate_fully(log.partition, header.base_offset)

    def drop_incomplete(self, partition: Partition) -> None:
        """Truncate a log whose disk lost records in the middle or at the beginning to where they are missing: they are
        fetched again, with all that follow. Raise KafkaError if the disk fails or the log is broken."""
        offset = partition.log.whole_below
        if offset is not None:
            self._report(
                f"{partition.name}: records are missing from offset {offset} on; truncated to it, to fetch them from "
                f"leader {partition.state.leader}"
            )
            self._truncate(partition, offset)

    def truncate_to_divergence(self, partition: Partition, epoch: int, end_offset: int) -> None:
        """Truncate the log to the offset where it may diverge from the leader's log. `epoch` is the largest epoch
        of the leader's log that is not above this log's last epoch; there, `epoch` ends at `end_offset`."""
        log = partition.log
        local_epoch, truncate_to = log.epochs.end_offset_for(epoch, log.end_offset)
        if local_epoch == epoch:
            # Both logs have the epoch: they are equal up to where it ends first.
            truncate_to = min(truncate_to, end_offset)
        elif truncate_to < 0:
            # This log has no epochs to compare: only the leader's offset is known.
            truncate_to = end_offset
        # Otherwise this log lacks `epoch`: keep the earlier epochs. The next fetch compares the logs again from there.
        self.truncate(partition, truncate_to)

    def truncate(self, partition: Partition, offset: int) -> None:
        """Delete the records from `offset` on. Raise KafkaError if the disk fails or the log is broken."""
        offset = min(offset, partition.log.end_offset)
        self._report_loss(partition, offset)
        self._truncate(partition, offset)

    def _truncate(self, partition: Partition, offset: int) -> None:
        try:
            self._store.truncate(partition.name, offset)
        except StorageFault as fault:
            partition.report_fault(f"{partition.name}: the log cannot be truncated to offset {offset}", fault)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(fault)) from fault
        except MalformedData as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        finally:
            partition.on_truncated()  # also after a fault: the log is shorter, only its sync failed

    def restart_at(self, partition: Partition, offset: int) -> None:
        """Delete all records and continue the empty log at `offset`, the leader's log start offset: the leader has
        deleted all records that this log has. Raise KafkaError if the disk fails."""
        try:
            self._store.truncate_fully(partition.name, offset)
        except StorageFault as fault:
            partition.report_fault(f"{partition.name}: the log cannot be restarted at offset {offset}", fault)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(fault)) from fault
        finally:
            partition.on_truncated()  # as in `truncate`

    def _report_loss(self, partition: Partition, offset: int) -> None:
        if offset < partition.high_watermark:
            self._report(
                f"{partition.name}: data loss after an unclean leader election: truncated to offset {offset}, below "
                f"the high watermark {partition.high_watermark}; "
                f"leader {partition.state.leader} lacks acknowledged records"
            )


def drop_newer_epochs(batches: memoryview, leader_epoch: int) -> memoryview:
    """Return the batches before the first one with an epoch above `leader_epoch`. The leader of that later epoch may
    have truncated earlier records of the same response."""
    position = 0
    while len(batches) - position >= BATCH_HEADER_BYTES:
        length, epoch = _LENGTH_AND_EPOCH.unpack_from(batches, position)
        if epoch > leader_epoch:
            return batches[:position]
        if length < 0:
            break
        position += LENGTH_PREFIX.size + length
    return batches
