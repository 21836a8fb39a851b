"""Keeps compacted logs clean: now and then it looks for the dirtiest log that is due, has it cleaned apart from the
loop, and swaps the result in on the loop.

One log at a time, leaders' and followers' alike: every replica cleans its own. Whatever goes wrong with one log, the
others are cleaned, and the broker goes on. How a log is cleaned is `log/cleaning`'s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.base.clock import Clock, Timer, Timers
from moldau.base.errors import MalformedData, StorageFault
from moldau.base.ids import TopicPartition
from moldau.log import compaction
from moldau.log.log import Log
from moldau.replica.partition import Partition
from moldau.replica.partitions import Partitions
from moldau.runtime.cleaning.choice import DirtyLog, dirty_log
from moldau.runtime.cleaning.ports import CleaningFailed, Cleans, failure
from moldau.runtime.cleaning.settings import CleanerSettings
from moldau.runtime.housekeeping import RunInThread

if TYPE_CHECKING:
    from moldau.log.cleaning.job import Cleaned, CleaningJob
    from moldau.log.cleaning.swap import SwapWork

log = logging.getLogger("moldau.cleaner")
FAILURES_MAX: Final = 3
"""In a row, of one log: then it is left alone until the next start."""
WATCH_MS: Final = 1_000
"""How often the cleaner looks whether the log that is being cleaned is still wanted."""
MIB: Final = 1 << 20


LOG_CHANGED: Final = "the log changed while it was cleaned"


class Round(NamedTuple):
    """A log that is being cleaned."""

    partition: Partition
    job: CleaningJob
    begun_ms: int

    @property
    def log(self) -> Log:
        return self.partition.log

    @property
    def is_wanted(self) -> bool:
        """Not when the partition was deleted, the log cut, or the topic is not to be compacted any more."""
        is_same = self.log.generation == self.job.generation and self.log.fault is None
        return is_same and not self.partition.is_closed and self.log.config.is_compacted


class Swap(NamedTuple):
    """What was cleaned, on its way to the place of what was not."""

    ended: Round
    cleaned: Cleaned
    work: SwapWork

    @property
    def is_wanted(self) -> bool:
        """The log itself says so, whatever has become of its topic: what was decided is to be done."""
        return compaction.is_swapping(self.ended.log, self.work)


class LogCleaner:
    def __init__(
        self,
        partitions: Partitions,
        cleans: Cleans,
        settings: CleanerSettings,
        clock: Clock,
        timers: Timers,
        run_in_thread: RunInThread,
        write_checkpoints: Callable[[], None],
        purge: Callable[[], None],
        on_fault: Callable[[Exception], None],
    ) -> None:
        """`write_checkpoints` brings to disk how far logs are clean, `purge` removes files deleted long enough ago."""
        self._partitions = partitions
        self._cleans = cleans
        self._settings = settings
        self._clock = clock
        self._timers = timers
        self._run_in_thread = run_in_thread
        self._write_checkpoints = write_checkpoints
        self._purge = purge
        self._on_fault = on_fault
        self._round: Round | None = None
        self._waiting: Timer | None = None
        self._failures: dict[Log, int] = {}
        self._is_over = False

    # --- what others ask ------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._wait()

    def reconfigure(self, settings: CleanerSettings) -> None:
        """What was set on the broker may have changed."""
        if settings == self._settings:
            return
        self._settings = settings
        self._cleans.set_rate(settings.bytes_per_second)
        if self._waiting is not None and self._round is None:
            self._waiting.cancel()
            self._wait()

    def is_cleaning(self, partition: Partition) -> bool:
        """Nobody else takes segments out of its log meanwhile."""
        return self._round is not None and self._round.partition is partition

    @property
    def uncleanable(self) -> list[TopicPartition]:
        """Those given up until the next start."""
        return sorted(each.partition for each, count in self._failures.items() if count >= FAILURES_MAX)

    def stop(self) -> None:
        self._is_over = True
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        self._cleans.close()

    # --- looking ----------------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        self._waiting = self._timers.after_ms(max(self._settings.backoff_ms, 1), self._stopping_on_fault(self._look))

    def _stopping_on_fault(self, call: Callable[[], None]) -> Callable[[], None]:
        """A fault of the cleaner's own ends the cleaning, and whoever runs the node is told."""

        def guarded() -> None:
            self._waiting = None
            try:
                call()
            except Exception as fault:
                self._is_over = True
                self._on_fault(fault)

        return guarded

    def _look(self) -> None:
        now_ms = self._clock.now_ms()
        self._failures = {each: count for each, count in self._failures.items() if each.fault is None}
        compacted = [each for each in self._partitions if each.log.config.is_compacted and each.log.fault is None]
        self._delete_expired(compacted, now_ms)
        self._purge()
        due = self._due(compacted, now_ms) if self._settings.is_enabled else []
        if due:
            self._begin(max(due, key=lambda each: each.dirty_ratio), now_ms)
        else:
            self._wait()

    def _due(self, compacted: Iterable[Partition], now_ms: int) -> list[DirtyLog]:
        """The logs dirty enough to be cleaned. One that cannot even be looked at is given up."""
        due = []
        for partition in compacted:
            if len(partition.log.segments) == 1 or self._failures.get(partition.log, 0) >= FAILURES_MAX:
                continue
            try:
                dirty = dirty_log(partition, now_ms)
            except (StorageFault, MalformedData) as fault:
                self._give_up(partition.log, str(fault))
                continue
            if dirty.is_due:
                due.append(dirty)
        return due

    def _delete_expired(self, compacted: Iterable[Partition], now_ms: int) -> None:
        """What lies below the start of a compacted log goes; where `delete` is also its policy, what has expired."""
        for partition in compacted:
            dropped = partition.delete_expired(now_ms)
            if dropped:
                log.info("%s: %d segments deleted", partition.name, dropped)

    # --- cleaning ---------------------------------------------------------------------------------------------------

    def _begin(self, dirty: DirtyLog, now_ms: int) -> None:
        settings, each = self._settings, dirty.partition.log
        try:
            job = compaction.cleaning_job(
                each,
                dirty.first_dirty_offset,
                dirty.up_to,
                now_ms,
                map_bytes_max=settings.map_bytes_max,
                io_buffer_bytes=settings.io_buffer_bytes,
                may_forget=dirty.is_no_replica_away,
            )
        except (StorageFault, MalformedData) as fault:
            self._give_up(each, str(fault))
            self._look_on()
            return
        self._round = Round(dirty.partition, job, self._clock.elapsed_ms())
        self._watch()
        self._cleans.clean(job, settings.bytes_per_second).then(self._cleaned)

    def _watch(self) -> None:
        if self._round is not None and not self._round.is_wanted:
            self._cleans.abandon()
        self._waiting = self._timers.after_ms(WATCH_MS, self._stopping_on_fault(self._watch))

    def _cleaned(self, outcome: Cleaned | CleaningFailed) -> None:
        """What was written beside the log is whole and on disk, or it never will be."""
        if self._waiting is not None:
            self._waiting.cancel()
        if self._is_over:
            return
        ended = self._round
        assert ended is not None, "what ends has begun"
        self._stopping_on_fault(lambda: self._conclude(ended, outcome))()

    def _conclude(self, ended: Round, outcome: Cleaned | CleaningFailed) -> None:
        if isinstance(outcome, CleaningFailed):
            self._failed(ended, outcome)
        elif outcome.cleaned_up_to <= ended.job.first_dirty_offset:
            self._failed(ended, CleaningFailed("not one more key fits into log.cleaner.dedupe.buffer.size"))
        elif not ended.is_wanted:
            self._failed(ended, CleaningFailed(LOG_CHANGED))
        else:
            self._swap(ended, outcome)

    def _swap(self, ended: Round, cleaned: Cleaned) -> None:
        try:
            work = compaction.begin_swap(ended.log, ended.job, cleaned)
        except StorageFault as fault:
            if not fault.is_shortage:
                raise
            self._failed(ended, failure(fault))
            return
        if work is None:
            self._failed(ended, CleaningFailed(LOG_CHANGED))
        else:
            self._name(Swap(ended, cleaned, work))

    def _name(self, swap: Swap) -> None:
        """First the new segments get names that say they are decided on; once that is on disk they take their place.
        Between any two of them others have their turn."""
        if not swap.is_wanted:
            self._failed(swap.ended, CleaningFailed(LOG_CHANGED))
        elif swap.work.is_named:
            self._run_in_thread(swap.work.sync).then(lambda fault: self._named(swap, fault))
        else:
            try:
                swap.work.name_next()
            except StorageFault as fault:
                if not fault.is_shortage:
                    raise
                self._failed(swap.ended, failure(fault))
                return
            self._soon(lambda: self._name(swap))

    def _named(self, swap: Swap, fault: StorageFault | None) -> None:
        if fault is not None:
            self._on_fault(fault)
        elif not self._is_over:  # else the next start does it
            self._stopping_on_fault(lambda: self._replace(swap))()

    def _replace(self, swap: Swap) -> None:
        ended, work = swap.ended, swap.work
        if not swap.is_wanted:
            self._round = None
            self._look_on()
        elif not work.is_over:
            compaction.replace_next(ended.log, work, self._clock.now_ms())
            self._soon(lambda: self._replace(swap))
        else:
            self._round = None
            compaction.finish_swap(ended.log, work)
            self._failures.pop(ended.log, None)
            self._tell(ended, swap.cleaned)
            self._write_checkpoints()
            self._look_on()

    def _soon(self, call: Callable[[], None]) -> None:
        """When others have had their turn."""
        self._waiting = self._timers.after_ms(0, self._stopping_on_fault(call))

    def _look_on(self) -> None:
        """At once: others may be due, and so may this one if its keys did not all fit into the map."""
        self._soon(self._look)

    def _failed(self, ended: Round, failed: CleaningFailed) -> None:
        self._round = None
        name, each, failures = ended.partition.name, ended.log, self._failures.get(ended.log, 0) + 1
        with suppress(StorageFault):  # a disk that cannot even unlink is noticed by others
            compaction.discard_cleaned(each, ended.job)
        if not ended.is_wanted:
            log.info("%s: no longer cleaned: it was deleted, cut, or is not to be compacted any more", name)
        elif failed.is_shortage:
            log.warning("%s: not cleaned now: %s", name, failed.why)
        elif failed.is_corrupt or failures >= FAILURES_MAX:
            self._give_up(each, failed.why)
        else:
            self._failures[each] = failures
            log.warning("%s: not cleaned, to be tried again: %s", name, failed.why)
        self._wait()

    def _give_up(self, each: Log, why: str) -> None:
        self._failures[each] = FAILURES_MAX
        log.error("%s cannot be cleaned and is left as it is until the next start: %s", each.partition, why)

    def _tell(self, ended: Round, cleaned: Cleaned) -> None:
        seconds = max(self._clock.elapsed_ms() - ended.begun_ms, 1) / 1000
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
