"""The log's own part in its compaction: it gives the job for a round, and takes the result in place of old segments.

Which records remain is decided in cleaning/clean.py, how files are named on the way in cleaning/swap.py, and when a log
is cleaned in runtime/cleaning.
"""

from __future__ import annotations

from moldau.log import layout
from moldau.log.cleaning import swap
from moldau.log.cleaning.job import Cleaned, CleanedGroup, CleaningJob, LastOfProducer, SourceSegment
from moldau.log.log import SEGMENT_AND_SNAPSHOT, Log
from moldau.log.producers import ProducerEntry
from moldau.log.rebuild import batches_before
from moldau.log.segment import Segment


def cleaning_job(
    log: Log,
    first_dirty_offset: int,
    up_to: int,
    now_ms: int,
    *,
    map_bytes_max: int,
    io_buffer_bytes: int,
    may_forget: bool = True,
) -> CleaningJob:
    """A round over everything below `up_to`, where a segment begins and no transaction is open any more."""
    old = [segment for segment in log.segments if segment.base_offset < up_to]
    assert up_to <= log.segments.active.base_offset, "the active segment is never cleaned"
    aborted = [txn for segment in log.segments for txn in segment.txn_index.overlapping(0, up_to)]
    producers = {entry.producer_id: _last_of(log, entry) for entry in log.producers.active()}
    config = log.config
    return CleaningJob(
        log.directory, log.generation, tuple(SourceSegment(each.base_offset, each.size) for each in old),
        first_dirty_offset, up_to, tuple(sorted(aborted, key=lambda txn: txn.first_offset)), producers, now_ms,
        config.delete_retention_ms, config.segment_bytes, config.segment_index_bytes, config.index_interval_bytes,
        map_bytes_max, io_buffer_bytes, may_forget,
    )  # fmt: skip


def _last_of(log: Log, entry: ProducerEntry) -> LastOfProducer:
    """Batches that a restart has forgotten are looked up first: nobody can once they are cleaned away."""
    if entry.is_from_snapshot and entry.batches:
        first_offset = entry.batches[0].first_offset
        earlier = batches_before(log.segments, entry.producer_id, entry.epoch, first_offset)
        log.producers.recall(entry.producer_id, earlier)
    offsets = [batch.last_offset for batch in entry.batches]
    return LastOfProducer(offsets[-1] if offsets else -1, entry.epoch, tuple(offsets[:-1]))


def swap_cleaned(log: Log, job: CleaningJob, cleaned: Cleaned, now_ms: int) -> bool:
    """Put the new segments in place of the old ones. False, and nothing is changed, if the log has changed."""
    work = begin_swap(log, job, cleaned)
    if work is None:
        return False
    while not work.is_named:
        work.name_next()
    work.sync()
    while not work.is_over:
        replace_next(log, work, now_ms)
    finish_swap(log, work)
    return True


def begin_swap(log: Log, job: CleaningJob, cleaned: Cleaned) -> swap.SwapWork | None:
    """Begin a swap that is carried out step by step while the log `is_swapping` it, so that others can write meanwhile.

    None, and the files of the round are removed, if the log has changed.
    """
    places = [_place_of(log, group) for group in cleaned.groups]
    if log.fault is not None or job.generation != log.generation or None in places:
        discard_cleaned(log, job)
        return None
    if log.epochs.is_dirty or log.recovery_point < job.up_to:
        # Once all records of an epoch are gone, only the checkpoint knows of it.
        log.flush()
    log.swapping = swap.SwapWork(log.files, log.directory, cleaned)
    return log.swapping


def is_swapping(log: Log, work: swap.SwapWork) -> bool:
    """False if the log was truncated, closed or deleted since."""
    return log.swapping is work and log.fault is None


def _place_of(log: Log, group: CleanedGroup) -> int | None:
    """Where the segments are that the group replaces, None if they are not there as they were."""
    place = log.segments.floor(group.base_offset)
    current = list(log.segments)[place : place + len(group.old)]
    return place if [(each.base_offset, each.size) for each in current] == list(group.old) else None


def replace_next(log: Log, work: swap.SwapWork, now_ms: int) -> None:
    """Put the next of the new segments in its place."""
    assert is_swapping(log, work), "a swap that was taken back"
    assert work.is_synced, "a swap that a crash could undo"
    _replace(log, work.cleaned.groups[work.replaced], now_ms + log.config.file_delete_delay_ms)
    work.replaced += 1


def finish_swap(log: Log, work: swap.SwapWork) -> None:
    assert is_swapping(log, work), "a swap that was taken back"
    assert work.is_over, "a swap half done"
    log.swapping = None
    log.cleaned_up_to = work.cleaned.cleaned_up_to
    log.flushing.directory_changed = True


def _replace(log: Log, group: CleanedGroup, due_ms: int) -> None:
    place = _place_of(log, group)
    assert place is not None, "nothing takes segments away while a swap is under way"
    created_ms = log.segments.at(place + len(group.old) - 1).created_ms
    fresh = Segment(log.files, log.directory, group.base_offset, group.size, created_ms)
    for segment in reversed(log.segments.swap(place, len(group.old), fresh)):
        keeps_snapshot = segment.base_offset == group.base_offset
        log.mark_for_deletion(segment, due_ms, layout.SEGMENT_FILES if keeps_snapshot else SEGMENT_AND_SNAPSHOT)
    swap.rename_all(log.files, fresh.path, layout.SWAP, "")


def discard_cleaned(log: Log, job: CleaningJob) -> None:
    """Remove what was written for a job that is not wanted any more."""
    log.take_back_swap()
    if log.files.exists(log.directory):
        swap.discard(log.files, job)
