"""Compaction, as far as the log itself takes part: the job for a round, and its outcome in the place of old segments.

What stays of the records is cleaning/clean.py's, the names of files on the way are cleaning/swap.py's; when a log is
cleaned is for others to say.
"""

from __future__ import annotations

from moldau.log import layout
from moldau.log.cleaning import swap
from moldau.log.cleaning.job import Cleaned, CleanedGroup, CleaningJob, LastOfProducer, SourceSegment
from moldau.log.local_log import ALL_FILES, LocalLog
from moldau.log.producers import ProducerEntry
from moldau.log.rebuild import batches_before
from moldau.log.segment import Segment


class CompactedLog(LocalLog):
    def cleaning_job(
        self,
        first_dirty_offset: int,
        up_to: int,
        now_ms: int,
        *,
        map_bytes_max: int,
        io_buffer_bytes: int,
        may_forget: bool = True,
    ) -> CleaningJob:
        """A round over everything below `up_to`, where a segment begins and no transaction is open any more."""
        old = [segment for segment in self.segments if segment.base_offset < up_to]
        assert up_to <= self.segments.active.base_offset, "the active segment is never cleaned"
        aborted = [txn for segment in self.segments for txn in segment.txn_index.overlapping(0, up_to)]
        producers = {entry.producer_id: self._last_of(entry) for entry in self.producers.active()}
        config = self.config
        return CleaningJob(
            self.directory, self._generation, tuple(SourceSegment(each.base_offset, each.size) for each in old),
            first_dirty_offset, up_to, tuple(sorted(aborted, key=lambda txn: txn.first_offset)), producers, now_ms,
            config.delete_retention_ms, config.segment_bytes, config.segment_index_bytes, config.index_interval_bytes,
            map_bytes_max, io_buffer_bytes, may_forget,
        )  # fmt: skip

    def _last_of(self, entry: ProducerEntry) -> LastOfProducer:
        """What a restart has forgotten of the producer is looked up first: once it is cleaned away nobody can."""
        if entry.is_from_snapshot and entry.batches:
            first_offset = entry.batches[0].first_offset
            earlier = batches_before(self.segments, entry.producer_id, entry.epoch, first_offset)
            self.producers.recall(entry.producer_id, earlier)
        offsets = [batch.last_offset for batch in entry.batches]
        return LastOfProducer(offsets[-1] if offsets else -1, entry.epoch, tuple(offsets[:-1]))

    def swap_cleaned(self, job: CleaningJob, cleaned: Cleaned, now_ms: int) -> bool:
        """Puts the new segments in the place of the old ones. False, and nothing is changed, if the log has changed."""
        work = self.begin_swap(job, cleaned)
        if work is None:
            return False
        while not work.is_named:
            work.name_next()
        work.sync()
        while not work.is_over:
            self.replace_next(work, now_ms)
        self.finish_swap(work)
        return True

    def begin_swap(self, job: CleaningJob, cleaned: Cleaned) -> swap.SwapWork | None:
        """The swap that is to be done step by step, as long as this log `is_swapping` it: there may be many segments,
        and others want to write meanwhile. None, and nothing is left of the round, if the log has changed."""
        places = [self._place_of(group) for group in cleaned.groups]
        if self._refusal is not None or job.generation != self._generation or None in places:
            self.discard_cleaned(job)
            return None
        if self.epochs.is_dirty or self.recovery_point < job.up_to:
            # Of an epoch whose records are all gone only the checkpoint tells.
            self.flush()
        self._swapping = swap.SwapWork(self._files, self.directory, cleaned)
        return self._swapping

    def is_swapping(self, work: swap.SwapWork) -> bool:
        """Not if the log was cut, closed or deleted since."""
        return self._swapping is work and self._refusal is None

    def _place_of(self, group: CleanedGroup) -> int | None:
        """Where the segments that the group replaces are, None if they are not there as they were."""
        place = self.segments.floor(group.base_offset)
        there = list(self.segments)[place : place + len(group.old)]
        return place if [(each.base_offset, each.size) for each in there] == list(group.old) else None

    def replace_next(self, work: swap.SwapWork, now_ms: int) -> None:
        """One more of the new segments takes its place."""
        assert self.is_swapping(work), "a swap that was taken back"
        assert work.is_synced, "a swap that a crash could undo"
        self._replace(work.cleaned.groups[work.replaced], now_ms + self.config.file_delete_delay_ms)
        work.replaced += 1

    def finish_swap(self, work: swap.SwapWork) -> None:
        assert self.is_swapping(work), "a swap that was taken back"
        assert work.is_over, "a swap half done"
        self._swapping = None
        self.cleaned_up_to = work.cleaned.cleaned_up_to
        self._directory_changed = True

    def _replace(self, group: CleanedGroup, due_ms: int) -> None:
        place = self._place_of(group)
        assert place is not None, "nothing takes segments away while a swap is under way"
        created_ms = self.segments.at(place + len(group.old) - 1).created_ms
        fresh = Segment(self._files, self.directory, group.base_offset, group.size, created_ms)
        for segment in reversed(self.segments.swap(place, len(group.old), fresh)):
            keeps_snapshot = segment.base_offset == group.base_offset
            self._mark_for_deletion(segment, due_ms, layout.SEGMENT_FILES if keeps_snapshot else ALL_FILES)
        swap.rename_all(self._files, fresh.path, layout.SWAP, "")

    def discard_cleaned(self, job: CleaningJob) -> None:
        """Nobody wants what was written for that job."""
        self._take_back_swap()
        if self._files.exists(self.directory):
            swap.discard(self._files, job)
