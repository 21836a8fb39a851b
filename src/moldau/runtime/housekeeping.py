"""What must be done now and then: retention, flushing by time, checkpoints, forgetting idle producers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from moldau.base.clock import Clock
from moldau.base.errors import StorageFault
from moldau.base.ids import TopicPartition
from moldau.base.promise import Promise
from moldau.log.store import LogStore
from moldau.replica.flushing import Flusher
from moldau.replica.partition import Partition

log = logging.getLogger("moldau.housekeeping")

RunInThread = Callable[[Callable[[], None]], Promise[StorageFault | None]]
"""Does work that waits for the disk while everything else goes on; comes to the fault that ended it, if one did."""


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
        """`is_cleaning` tells of a partition whose segments are spoken for."""
        self._partitions = partitions
        self._store = store
        self._flusher = flusher
        self._clock = clock
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._is_cleaning = is_cleaning
        self._writing: Promise[StorageFault | None] | None = None

    def write_checkpoints(self, run_in_thread: RunInThread, on_fault: Callable[[StorageFault], None]) -> None:
        """Writes how far the logs are safe, where they begin and how far consumers may read."""
        if self._writing is not None and not self._writing.done:
            return  # the disk is slow: the next turn has newer things to write
        try:
            contents = self._store.checkpoints(self.high_watermarks())
        except StorageFault as fault:
            _report_fault(fault, on_fault)
            return

        def write() -> None:
            for each in contents:
                self._store.write_checkpoint(each)

        self._writing = run_in_thread(write).map(lambda fault: _report_fault(fault, on_fault))

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return {partition.name: partition.high_watermark for partition in self._partitions}

    def retain(self, run_in_thread: RunInThread, on_fault: Callable[[StorageFault], None]) -> None:
        """Takes out segments whose time has come, and removes the files of those taken out before."""
        now_ms = self._clock.now_ms()
        for partition in list(self._partitions):
            dropped = 0 if self._is_cleaning(partition) else partition.delete_expired(now_ms)
            if dropped:
                log.info("%s: %d segments deleted by retention", partition.name, dropped)
        self.purge(run_in_thread, on_fault)

    def purge(self, run_in_thread: RunInThread, on_fault: Callable[[StorageFault], None]) -> None:
        """Removes files that were deleted long enough ago."""
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
    """A full disk or too many open files are no reason to stop: the checkpoint that is there stays true, and those who
    read are served."""
    if fault is not None and fault.is_shortage:
        log.warning("checkpoints stay as they were: %s", fault)
    elif fault is not None:
        on_fault(fault)
    return fault
