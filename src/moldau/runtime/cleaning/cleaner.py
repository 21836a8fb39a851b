"""Keeps compacted logs clean: it periodically chooses the dirtiest log that is due, has it cleaned outside the loop,
and swaps the result in on the loop.

It cleans one log at a time, of leaders and followers alike: every replica cleans its own. A log that cannot be cleaned
does not hold up others; a disk error while segments are deleted or swapped stops the node, unless only room or file
descriptors ran out: then the log is cleaned later. `log/cleaning` has the
cleaning itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.base.clock import Clock, Timer
from moldau.base.errors import KafkaError, MalformedData, StorageFault
from moldau.base.ids import TopicPartition
from moldau.base.long_work import LongWork, Soon
from moldau.base.ports import RunInThread
from moldau.base.steps import Steps, TurnItems
from moldau.base.turns import SEGMENTS_READ_A_TURN, SLOW_ITEMS_A_TURN
from moldau.log import compaction
from moldau.log.log import Log
from moldau.replica.partition import Partition
from moldau.replica.partitions import Partitions
from moldau.runtime.cleaning.choice import DirtyLog, dirty_log, read_some
from moldau.runtime.cleaning.ports import CleaningFailed, SegmentCleaner, failure
from moldau.runtime.cleaning.settings import CleanerSettings
from moldau.runtime.fault_log import FaultLog
from moldau.runtime.own_work import OwnWork

if TYPE_CHECKING:
    from moldau.log.cleaning.job import CleaningJob, CleaningResult
    from moldau.log.cleaning.swap import SwapWork

log = logging.getLogger("moldau.cleaner")
FAILURES_MAX: Final = 3
"""After this many failures in a row, a log is not cleaned until the next start."""
WATCH_MS: Final = 1_000
"""How often the cleaner checks whether the log that is being cleaned still needs it."""
MIB: Final = 1 << 20
LOG_CHANGED: Final = "the log changed while it was being cleaned"


class Round(NamedTuple):
    """One cleaning of one log: its job and when it began."""

    partition: Partition
    job: CleaningJob
    begun_ms: int

    @property
    def log(self) -> Log:
        return self.partition.log

    @property
    def is_wanted(self) -> bool:
        """False if the partition was deleted, its log truncated, or the topic is no longer compacted."""
        is_same = self.log.generation == self.job.generation and self.log.fault is None
        return is_same and not self.partition.is_closed and self.log.config.is_compacted


class Swap(NamedTuple):
    """The replacement of segments by their cleaned ones."""

    ended: Round
    cleaned: CleaningResult
    work: SwapWork

    @property
    def is_wanted(self) -> bool:
        """Whether the log still expects this swap. A change of the topic does not stop a swap that has begun."""
        return compaction.is_swapping(self.ended.log, self.work)


def _is_compacted(partition: Partition) -> bool:
    return partition.log.config.is_compacted and partition.log.fault is None and not partition.is_closed


class LogCleaner:
    def __init__(
        self,
        partitions: Partitions,
        worker: SegmentCleaner,
        settings: CleanerSettings,
        clock: Clock,
        own_work: OwnWork,
        run_in_thread: RunInThread,
        delete_expired: Callable[[Partition], int],
        write_checkpoints: Callable[[], None],
        purge: Callable[[], None],
    ) -> None:
        """`delete_expired`, `write_checkpoints`, which writes how far logs are clean, and `purge`, which removes files
        whose deletion delay is over, are those of `Housekeeping`."""
        self._partitions = partitions
        self._worker = worker
        self._settings = settings
        self._clock = clock
        self._own_work = own_work
        self._run_in_thread = run_in_thread
        self._delete_expired = delete_expired
        self._write_checkpoints = write_checkpoints
        self._purge = purge
        self._round: Round | None = None
        self._timer: Timer | None = None
        self._work: LongWork[None] | None = None
        """The last work of several turns: to choose a log, or to swap in what was cleaned."""
        self._failures: dict[Log, int] = {}
        self._shortages = FaultLog(log.warning, clock)
        self._is_stopped = False
        self.cleanings = self.failures = 0
        self.bytes_read = self.bytes_written = self.records_removed = 0
        """Since the start, for metrics."""

    # --- interface ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._look_later()

    def reconfigure(self, settings: CleanerSettings) -> None:
        """Take over the broker's settings, which may have changed."""
        if settings == self._settings:
            return
        self._settings = settings
        self._worker.set_rate(settings.bytes_per_second)
        if self._timer is not None and self._round is None:
            self._timer.cancel()
            self._look_later()

    def is_cleaning(self, partition: Partition) -> bool:
        """Whether the partition is being cleaned: then nothing else may delete segments of its log."""
        return self._round is not None and self._round.partition is partition

    @property
    def uncleanable(self) -> list[TopicPartition]:
        """The logs that are not cleaned until the next start."""
        return sorted(each.partition for each, count in self._failures.items() if count >= FAILURES_MAX)

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._work is not None:
            self._work.cancel()
        self._worker.close()

    # --- choosing a log ---------------------------------------------------------------------------------------------

    def _look_later(self) -> None:
        self._timer = self._own_work.after_ms(max(self._settings.backoff_ms, 1), self._look)

    def _look(self) -> None:
        self._timer = None
        self._run(self._clean_dirtiest())

    def _run(self, steps: Steps[None], soon: Soon | None = None) -> None:
        if not self._is_stopped:
            self._work = self._own_work.long_work(steps, soon=soon)
            self._work()

    def _after_timers(self, call: Callable[[], None]) -> None:
        """Make the next turn of a swap after the timers that are due too. So simulations meet logs that are truncated,
        or the end of a node, between any two steps of it."""
        self._own_work.timers.after_ms(0, call)

    def _clean_dirtiest(self) -> Steps[None]:
        """Choose a log, and let it be cleaned if it is still due: it may have changed since it was looked at."""
        self._failures = {each: count for each, count in self._failures.items() if each.fault is None}
        dirtiest = yield from self._dirtiest()
        self._purge()
        if dirtiest is None or not (yield from self._recall_producers(dirtiest.partition)):
            self._look_later()
            return
        now_ms = self._clock.now_ms()
        dirty, _ = self._if_due(dirtiest.partition, now_ms, SEGMENTS_READ_A_TURN)
        if dirty is None:
            self._look_later()
        else:
            self._begin(dirty, now_ms)

    def _dirtiest(self) -> Steps[DirtyLog | None]:
        """Return the dirtiest of all logs that are due. Some are looked at in each turn of the loop, fewer if many
        segments of them must be read, or have expired and are deleted."""
        dirtiest: DirtyLog | None = None
        now_ms = self._clock.now_ms()
        turn, reads_left = TurnItems(SLOW_ITEMS_A_TURN), SEGMENTS_READ_A_TURN
        for partition in self._partitions.all():
            is_read = False
            while not is_read:
                turn.count(self._delete_expired(partition) if _is_compacted(partition) else 0)
                due, reads = self._if_due(partition, now_ms, reads_left)
                reads_left -= reads
                if due is not None and (dirtiest is None or due.dirty_ratio > dirtiest.dirty_ratio):
                    dirtiest = due
                is_read = reads_left > 0  # else more of it may have to be read
                if turn.is_over() or not is_read:
                    yield
                    now_ms = self._clock.now_ms()
                    turn, reads_left = TurnItems(SLOW_ITEMS_A_TURN), SEGMENTS_READ_A_TURN
        return dirtiest

    def _if_due(self, partition: Partition, now_ms: int, reads_max: int) -> tuple[DirtyLog | None, int]:
        """Return the log if it must be cleaned, and how many segments were read: after `reads_max` it is not known yet.
        Give it up if it cannot be read."""
        is_given_up = self._failures.get(partition.log, 0) >= FAILURES_MAX
        is_cleanable = _is_compacted(partition) and len(partition.log.segments) > 1 and not is_given_up
        if not self._settings.is_enabled or not is_cleanable:
            return None, 0
        try:
            reads = read_some(partition, now_ms, reads_max)
            dirty = dirty_log(partition, now_ms) if reads < reads_max else None
        except (StorageFault, MalformedData, KafkaError) as fault:
            self._on_unreadable(partition.log, fault)
            return None, 0
        return dirty if dirty is not None and dirty.is_due else None, reads

    def _on_unreadable(self, unreadable: Log, fault: StorageFault | MalformedData | KafkaError) -> None:
        if isinstance(fault, StorageFault) and fault.is_shortage:
            name = unreadable.partition
            self._shortages(
                f"{name}: not cleaned for lack of disk space, open files or processes, retried later", fault
            )
        else:
            self._give_up(unreadable, str(fault))

    # --- cleaning ---------------------------------------------------------------------------------------------------

    def _recall_producers(self, partition: Partition) -> Steps[bool]:
        """Read what the state of the log's producers lost in a restart, for one producer in each turn of the loop.
        Return False if it cannot be read."""
        try:
            for _ in compaction.recall_producers(partition.log) if _is_compacted(partition) else ():
                yield
                if not _is_compacted(partition):
                    break
        except (StorageFault, MalformedData) as fault:
            self._on_unreadable(partition.log, fault)
            return False
        return True

    def _begin(self, dirty: DirtyLog, now_ms: int) -> None:
        settings = self._settings
        try:
            job = compaction.cleaning_job(
                dirty.partition.log,
                dirty.first_dirty_offset,
                dirty.up_to,
                now_ms,
                map_bytes_max=settings.map_bytes_max,
                io_buffer_bytes=settings.io_buffer_bytes,
                may_remove_expired=dirty.are_all_in_sync,
            )
        except (StorageFault, MalformedData) as fault:
            self._on_unreadable(dirty.partition.log, fault)
            self._look_later()
            return
        if dirty.partition.log.epochs.is_dirty:
            dirty.partition.request_flush()  # in a thread, meanwhile: `begin_swap` would flush them on the loop
        self._round = Round(dirty.partition, job, self._clock.monotonic_ms())
        self._watch()
        self._worker.clean(job, settings.bytes_per_second).then(self._own_work.guard(self._on_cleaned))

    def _watch(self) -> None:
        if self._round is not None and not self._round.is_wanted:
            self._worker.abandon()
        self._timer = self._own_work.after_ms(WATCH_MS, self._watch)

    def _on_cleaned(self, outcome: CleaningResult | CleaningFailed) -> None:
        """Handle the end of a job: the cleaned segments are complete and on disk, or the job has failed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_stopped:
            return
        ended = self._round
        assert ended is not None, "a job ended that was not started"
        if isinstance(outcome, CleaningFailed):
            self._on_failed(ended, outcome)
        elif outcome.cleaned_up_to <= ended.job.first_dirty_offset:
            self._on_failed(
                ended, CleaningFailed("log.cleaner.dedupe.buffer.size is too small for one more key; increase it")
            )
        elif not ended.is_wanted:
            self._on_failed(ended, CleaningFailed(LOG_CHANGED))
        else:
            self._swap(ended, outcome)

    def _swap(self, ended: Round, cleaned: CleaningResult) -> None:
        try:
            work = compaction.begin_swap(ended.log, ended.job, cleaned)
        except StorageFault as fault:
            if not fault.is_shortage:
                raise
            self._on_failed(ended, failure(fault))
            return
        if work is None:
            self._on_failed(ended, CleaningFailed(LOG_CHANGED))
        else:
            self._run(self._name_segments(Swap(ended, cleaned, work)), self._after_timers)

    def _name_segments(self, swap: Swap) -> Steps[None]:
        """Rename the new segments to mark the swap as decided. When that is on disk, `_replace` swaps them in. Each
        segment is renamed in a turn of its own, so that other work can run in between."""
        while swap.is_wanted and not swap.work.is_renamed:
            try:
                swap.work.rename_next()
            except StorageFault as fault:
                if not fault.is_shortage:
                    raise
                self._on_failed(swap.ended, failure(fault))
                return
            yield
        if swap.is_wanted:
            on_named = self._own_work.guard(partial(self._on_named, swap))
            self._run_in_thread(swap.work.sync).then(on_named)
        else:
            self._on_failed(swap.ended, CleaningFailed(LOG_CHANGED))

    def _on_named(self, swap: Swap, fault: StorageFault | None) -> None:
        if fault is None or not swap.is_wanted:  # not wanted: the directory was renamed while it was synced
            self._run(self._replace(swap), self._after_timers)  # not after a stop: the next start completes the swap
        elif fault.is_shortage:
            self._on_failed(swap.ended, failure(fault))
        else:
            raise fault

    def _replace(self, swap: Swap) -> Steps[None]:
        ended, work = swap.ended, swap.work
        while swap.is_wanted and not work.is_done:
            try:
                compaction.replace_next(ended.log, work, self._clock.now_ms())
            except StorageFault as fault:
                if not fault.is_shortage:
                    raise
                self._on_failed(ended, failure(fault))  # what is replaced stays: it is cleaned again, with the rest
                return
            yield
        is_wanted = swap.is_wanted
        self._round = None
        if is_wanted:
            compaction.finish_swap(ended.log, work)
            self._failures.pop(ended.log, None)
            self._count(swap.cleaned)
            self._log_result(ended, swap.cleaned)
            self._write_checkpoints()
        self._look_again()

    def _count(self, cleaned: CleaningResult) -> None:
        self.cleanings += 1
        self.bytes_read += cleaned.bytes_read
        self.bytes_written += cleaned.bytes_written
        self.records_removed += cleaned.records_read - cleaned.records_kept

    def _look_again(self) -> None:
        """Choose the next log without a delay: other logs may be due, or the same log again if the map was too small
        for all of its keys."""
        self._timer = self._own_work.after_ms(0, self._look)

    def _on_failed(self, ended: Round, failed: CleaningFailed) -> None:
        self._round = None
        self.failures += 1
        name, failures = ended.partition.name, self._failures.get(ended.log, 0) + 1
        with suppress(StorageFault):  # other parts will report a disk that cannot even unlink
            compaction.discard_cleaned(ended.log, ended.job)
        if not ended.is_wanted:
            log.info("%s: no longer cleaned: it was deleted, truncated, or is no longer compacted", name)
        elif failed.is_shortage:
            log.warning(
                "%s: not cleaned for lack of disk space, open files or processes, retried later: %s", name, failed.why
            )
        elif failed.is_corrupt or failures >= FAILURES_MAX:
            self._give_up(ended.log, failed.why)
        else:
            self._failures[ended.log] = failures
            log.warning("%s: not cleaned, retried later: %s", name, failed.why)
        self._look_later()

    def _give_up(self, uncleanable: Log, reason: str) -> None:
        self._failures[uncleanable] = FAILURES_MAX
        log.error("%s: cannot be cleaned, not retried until the next start: %s", uncleanable.partition, reason)

    def _log_result(self, ended: Round, cleaned: CleaningResult) -> None:
        seconds = max(self._clock.monotonic_ms() - ended.begun_ms, 1) / 1000
        before = sum(segment.size for segment in ended.job.segments)
        log.info(
            "%s: cleaned from offset %d to %d in %.1f s: %.1f MiB became %.1f (%.1f MiB/s); %d of %d records kept; "
            "%d keys in %.1f MiB; %.1f MiB read, %.1f written",
            ended.partition.name,
            ended.job.first_dirty_offset,
            cleaned.cleaned_up_to,
            seconds,
            before / MIB,
            sum(group.size for group in cleaned.groups) / MIB,
            before / MIB / seconds,
            cleaned.records_kept,
            cleaned.records_read,
            cleaned.keys,
            cleaned.map_bytes / MIB,
            cleaned.bytes_read / MIB,
            cleaned.bytes_written / MIB,
        )
