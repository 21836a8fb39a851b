"""Periodic work on the logs: retention, flushing by time, checkpoints, expiration of idle producers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from moldau.base.clock import Clock
from moldau.base.errors import StorageFault
from moldau.base.ids import TopicPartition
from moldau.base.long_work import LongWork
from moldau.base.loop_watch import name_of
from moldau.base.ports import RunInThread
from moldau.base.promise import Promise
from moldau.base.steps import Steps
from moldau.base.turns import DELETED_A_TURN, DISK_TURN_MS, LISTED_A_TURN, SLOW_ITEMS_A_TURN
from moldau.log.checkpoint_files import Checkpoint
from moldau.log.store import LogStore
from moldau.replica.flushing import Flusher
from moldau.replica.partition import Partition
from moldau.replica.partitions import Partitions
from moldau.runtime.fault_log import FaultLog
from moldau.runtime.own_work import OwnWork

log = logging.getLogger("moldau.housekeeping")


class Housekeeping:
    def __init__(
        self,
        partitions: Partitions,
        store: LogStore,
        flusher: Flusher,
        clock: Clock,
        own_work: OwnWork,
        producer_id_expiration_ms: Callable[[], int],
        is_cleaning: Callable[[Partition], bool] = lambda _: False,
    ) -> None:
        """`producer_id_expiration_ms` returns what is set now, `is_cleaning` whether the log cleaner uses the segments
        of a partition now."""
        self._partitions = partitions
        self._store = store
        self._flusher = flusher
        self._clock = clock
        self._own_work = own_work
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._is_cleaning = is_cleaning
        self._passes: dict[str, LongWork[None]] = {}
        """The last pass over all partitions, or the one that goes on, by what it is for."""
        self._is_stopped = False
        self._shortages = FaultLog(log.warning, clock)
        self._unremoved: list[Callable[[], None]] = []
        """Removals of files that failed for a shortage: the next purge tries them again."""
        self._writing: Promise[StorageFault | None] | None = None

    def stop(self) -> None:
        """End all passes that are under way: the logs are about to be closed."""
        self._is_stopped = True
        for each in self._passes.values():
            each.cancel()

    def write_checkpoints(self, run_in_thread: RunInThread, on_fault: Callable[[StorageFault], None]) -> None:
        """Write recovery points, log start offsets and high watermarks."""
        if self._writing is not None and not self._writing.done:
            return  # the disk is slow; the next call writes newer values
        contents: list[Checkpoint] = []

        def write() -> None:
            for each in contents:
                self._store.write_checkpoint(each)

        def steps() -> Steps[None]:
            yield from self._store.collect_checkpoints(self._high_watermark, contents)
            self._writing = run_in_thread(write).map(lambda fault: _report_fault(fault, on_fault))

        self._run("checkpoints", steps())

    def _high_watermark(self, name: TopicPartition) -> int | None:
        partition = self._partitions.find(*name)
        return None if partition is None else partition.high_watermark

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return {partition.name: partition.high_watermark for partition in self._partitions}

    def retain(self, run_in_thread: RunInThread, on_fault: Callable[[StorageFault], None]) -> None:
        """Delete expired segments; then remove the files of segments that were deleted before."""
        self._visit(self.delete_expired, SLOW_ITEMS_A_TURN, lambda: self.purge(run_in_thread, on_fault))

    def _visit(
        self,
        visit: Callable[[Partition], int | None],
        count: int,
        then: Callable[[], None] | None = None,
    ) -> None:
        """Call `visit` for all partitions, `count` in each turn of the loop, fewer if it returns that a partition took
        as long as several, or if the turn has taken long. Do nothing if an earlier call for the same purpose has not
        ended yet."""
        now_ms = self._clock.monotonic_ms

        def steps() -> Steps[None]:
            left, end_ms = count, now_ms() + DISK_TURN_MS
            for partition in self._partitions.all():
                cost = count
                while cost >= count:  # a visit that takes a whole turn may have left some for the next one
                    if left <= 0 or now_ms() >= end_ms:
                        yield
                        left, end_ms = count, now_ms() + DISK_TURN_MS
                    # The partition may have been deleted since the pass began.
                    cost = (None if partition.is_closed else visit(partition)) or 1
                    left -= cost
            if then is not None:
                then()

        steps.__qualname__ = name_of(visit)
        self._run(visit.__name__, steps())

    def _run(self, name: str, steps: Steps[None]) -> None:
        last = self._passes.get(name)
        if not self._is_stopped and (last is None or not last.is_running):
            self._passes[name] = self._own_work.long_work(steps)
            self._passes[name]()

    def delete_expired(self, partition: Partition) -> int:
        """Delete the expired segments of a partition, as many as fit in a turn. Return as how many of the
        `SLOW_ITEMS_A_TURN` it counts; 0 is one.

        A full disk or too many open files do not stop the node: the segments are still expired at the next call.
        """
        if self._is_cleaning(partition):
            return 0
        deleted, end_ms = 0, self._clock.monotonic_ms() + DISK_TURN_MS
        is_over = False
        try:
            while not is_over and partition.delete_expired(self._clock.now_ms(), at_most=1):
                deleted += 1
                is_over = deleted >= DELETED_A_TURN or self._clock.monotonic_ms() >= end_ms
        except StorageFault as fault:
            if not fault.is_shortage:
                raise
            self._shortages(f"{partition.name}: expired segments are not deleted, retried later", fault)
        if deleted:
            log.info("%s: %d segments deleted by retention", partition.name, deleted)
        return SLOW_ITEMS_A_TURN if is_over else deleted * SLOW_ITEMS_A_TURN // DELETED_A_TURN

    def purge(self, run_in_thread: RunInThread, on_fault: Callable[[StorageFault], None]) -> None:
        """Remove the files whose deletion delay is over."""

        def steps() -> Steps[None]:
            remove = yield from self._store.collect_deletable(self._clock.now_ms())
            removals, self._unremoved = self._unremoved, []
            for each in removals if remove is None else [*removals, remove]:
                run_in_thread(each).then(partial(self._on_removed, each, on_fault))

        self._run("purge", steps())

    def _on_removed(
        self, removal: Callable[[], None], on_fault: Callable[[StorageFault], None], fault: StorageFault | None
    ) -> None:
        if fault is not None and fault.is_shortage:
            self._unremoved.append(removal)
            self._shortages("deleted files are not removed, retried later", fault)
        elif fault is not None:
            on_fault(fault)

    def flush_by_time(self) -> None:
        now_ms = self._clock.now_ms()

        def flush_if_due(partition: Partition) -> None:
            log = partition.log
            if log.end_offset != log.recovery_point and log.flush_due(now_ms):
                self._flusher.request(partition)

        self._visit(flush_if_due, LISTED_A_TURN)

    def expire_producers(self) -> None:
        now_ms, expiration_ms = self._clock.now_ms(), self._producer_id_expiration_ms()

        def expire(partition: Partition) -> None:
            partition.log.producers.expire(now_ms, expiration_ms)

        self._visit(expire, LISTED_A_TURN)


def _report_fault(fault: StorageFault | None, on_fault: Callable[[StorageFault], None]) -> StorageFault | None:
    """Report a fault of writing checkpoints. A full disk or too many open files do not stop the node: the old
    checkpoints stay valid, and consumers can still read."""
    if fault is not None and fault.is_shortage:
        log.warning("checkpoints were not written, the old ones stay valid: %s", fault)
    elif fault is not None:
        on_fault(fault)
    return fault
