"""Periodic work on the logs: retention, flushing by time, checkpoints, expiration of idle producers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from moldau.base.clock import Clock, Timers
from moldau.base.errors import StorageFault
from moldau.base.ids import TopicPartition
from moldau.base.ports import RunInThread
from moldau.base.promise import Promise
from moldau.log.store import LogStore
from moldau.replica.flushing import Flusher
from moldau.replica.partition import Partition

log = logging.getLogger("moldau.housekeeping")
PARTITIONS_A_TURN: Final = 100
"""Partitions that retention looks at in one turn of the loop: the first pass after a start reads their indexes."""


class Housekeeping:
    def __init__(
        self,
        partitions: Iterable[Partition],
        store: LogStore,
        flusher: Flusher,
        clock: Clock,
        producer_id_expiration_ms: int,
        is_cleaning: Callable[[Partition], bool] = lambda _: False,
    ) -> None:
        """`is_cleaning` returns whether the log cleaner uses the segments of a partition now."""
        self._partitions = partitions
        self._store = store
        self._flusher = flusher
        self._clock = clock
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._is_cleaning = is_cleaning
        self._is_retaining = False
        self._writing: Promise[StorageFault | None] | None = None

    def write_checkpoints(self, run_in_thread: RunInThread, on_fault: Callable[[StorageFault], None]) -> None:
        """Write recovery points, log start offsets and high watermarks."""
        if self._writing is not None and not self._writing.done:
            return  # the disk is slow; the next call writes newer values
        contents = self._store.checkpoints(self.high_watermarks())

        def write() -> None:
            for each in contents:
                self._store.write_checkpoint(each)

        self._writing = run_in_thread(write).map(lambda fault: _report_fault(fault, on_fault))

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return {partition.name: partition.high_watermark for partition in self._partitions}

    def retain(self, timers: Timers, run_in_thread: RunInThread, on_fault: Callable[[StorageFault], None]) -> None:
        """Delete expired segments, some partitions in each turn of the loop; then remove the files of segments that
        were deleted before."""
        if not self._is_retaining:
            self._is_retaining = True
            self._retain_next(iter(list(self._partitions)), timers, run_in_thread, on_fault)

    def _retain_next(
        self,
        partitions: Iterator[Partition],
        timers: Timers,
        run_in_thread: RunInThread,
        on_fault: Callable[[StorageFault], None],
    ) -> None:
        some = list(islice(partitions, PARTITIONS_A_TURN))
        try:
            for partition in some:
                self._delete_expired(partition)
        except StorageFault as fault:
            self._is_retaining = False
            on_fault(fault)
            return
        if some:
            timers.soon(lambda: self._retain_next(partitions, timers, run_in_thread, on_fault))
            return
        self._is_retaining = False
        self.purge(run_in_thread, on_fault)

    def _delete_expired(self, partition: Partition) -> None:
        if partition.is_closed or self._is_cleaning(partition):
            return  # it may have been deleted since the pass began
        deleted = partition.delete_expired(self._clock.now_ms())
        if deleted:
            log.info("%s: %d segments deleted by retention", partition.name, deleted)

    def purge(self, run_in_thread: RunInThread, on_fault: Callable[[StorageFault], None]) -> None:
        """Remove the files whose deletion delay is over."""
        remove = self._store.take_deletable(self._clock.now_ms())
        if remove is not None:
            run_in_thread(remove).then(lambda fault: None if fault is None else on_fault(fault))

    def flush_by_time(self) -> None:
        now_ms = self._clock.now_ms()
        for partition in self._partitions:
            log = partition.log
            if log.end_offset != log.recovery_point and log.flush_due(now_ms):
                self._flusher.request(partition)

    def expire_producers(self) -> None:
        now_ms = self._clock.now_ms()
        for partition in self._partitions:
            partition.log.producers.expire(now_ms, self._producer_id_expiration_ms)


def _report_fault(fault: StorageFault | None, on_fault: Callable[[StorageFault], None]) -> StorageFault | None:
    """Report a fault of writing checkpoints. A full disk or too many open files do not stop the node: the old
    checkpoints stay valid, and consumers can still read."""
    if fault is not None and fault.is_shortage:
        log.warning("checkpoints were not written, the old ones stay valid: %s", fault)
    elif fault is not None:
        on_fault(fault)
    return fault
