"""The log's own part in its compaction: it gives the job for a round, and takes the result in place of old segments.

Which records remain is decided in cleaning/clean.py, how files are named on the way in cleaning/swap.py, and when a log
is cleaned in runtime/cleaning.
"""

from __future__ import annotations

from moldau.base.limits import DECOMPRESSED_BYTES_MAX
from moldau.base.steps import Steps, finish
from moldau.log import layout
from moldau.log.cleaning import swap
from moldau.log.cleaning.job import CleanedGroup, CleaningJob, CleaningResult, LastProducerBatches, SourceSegment
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
    may_remove_expired: bool = True,
) -> CleaningJob:
    """Return the job of a round over everything below `up_to`, where a segment begins and no transaction is open any
    more. `recall_producers` should have run before: what it has left is done here at once."""
    old = [segment for segment in log.segments if segment.base_offset < up_to]
    assert up_to <= log.segments.active.base_offset, "the active segment is never cleaned"
    aborted = [txn for segment in log.segments for txn in segment.txn_index.overlapping(0, up_to)]
    finish(recall_producers(log))
    producers = {entry.producer_id: _last_producer_batches(entry) for entry in log.producers.active()}
    config = log.config
    # If the setting is lowered, the log may still have batches that were accepted before, at least with the default.
    decompressed_bytes_max = max(config.moldau_max_decompressed_bytes, DECOMPRESSED_BYTES_MAX)
    return CleaningJob(
        log.directory, log.generation, tuple(SourceSegment(each.base_offset, each.size) for each in old),
        first_dirty_offset, up_to, tuple(sorted(aborted, key=lambda txn: txn.first_offset)), producers, now_ms,
        config.delete_retention_ms, config.segment_bytes, config.segment_index_bytes, config.index_interval_bytes,
        map_bytes_max, io_buffer_bytes, decompressed_bytes_max, may_remove_expired,
    )  # fmt: skip


def recall_producers(log: Log) -> Steps[None]:
    """Read the last batches of each producer that the producer state lost in a restart: compaction may remove them. A
    step ends after each producer, because thousands of batches may be read for it; the log may change between steps."""
    for producer_id in [entry.producer_id for entry in log.producers.active() if _lacks_batches(entry)]:
        entry = log.producers.find(producer_id)
        if entry is not None and _lacks_batches(entry):
            earlier = batches_before(log.segments, producer_id, entry.epoch, entry.batches[0].first_offset)
            log.producers.recall(producer_id, earlier)
            yield


def _lacks_batches(entry: ProducerEntry) -> bool:
    return entry.is_from_snapshot and bool(entry.batches)


def _last_producer_batches(entry: ProducerEntry) -> LastProducerBatches:
    offsets = [batch.last_offset for batch in entry.batches]
    return LastProducerBatches(offsets[-1] if offsets else -1, entry.epoch, tuple(offsets[:-1]))


def begin_swap(log: Log, job: CleaningJob, cleaned: CleaningResult) -> swap.SwapWork | None:
    """Begin a swap that is carried out step by step while the log `is_swapping` it, so that others can write meanwhile.

    Return None and delete the files of the round if the log has changed.
    """
    indexes = [_index_of(log, group) for group in cleaned.groups]
    if log.fault is not None or job.generation != log.generation or None in indexes:
        discard_cleaned(log, job)
        return None
    if log.epochs.is_dirty or log.recovery_point < job.up_to:
        # Once all records of an epoch are gone, only the checkpoint knows of it.
        log.flush()
    log.swapping = swap.SwapWork(log.files, log.directory, cleaned)
    return log.swapping


def is_swapping(log: Log, work: swap.SwapWork) -> bool:
    """Whether the swap is still valid: not if the log was truncated, closed or deleted since."""
    return log.swapping is work and log.fault is None


def _index_of(log: Log, group: CleanedGroup) -> int | None:
    """Return the index of the first segment that the group replaces; None if the segments have changed."""
    index = log.segments.floor(group.base_offset)
    current = list(log.segments)[index : index + len(group.old)]
    return index if [(each.base_offset, each.size) for each in current] == list(group.old) else None


def replace_next(log: Log, work: swap.SwapWork, now_ms: int) -> None:
    """Replace the next old segments by their new one. For lack of room nothing changes, and StorageFault is raised."""
    assert is_swapping(log, work), "the swap was rolled back"
    assert work.is_synced, "a crash could undo the swap"
    _replace(log, work.cleaned.groups[work.replaced], now_ms + log.config.file_delete_delay_ms)
    work.replaced += 1


def finish_swap(log: Log, work: swap.SwapWork) -> None:
    assert is_swapping(log, work), "the swap was rolled back"
    assert work.is_done, "not every segment is replaced"
    log.swapping = None
    log.cleaned_up_to = work.cleaned.cleaned_up_to
    log.flushing.directory_changed = True


def _replace(log: Log, group: CleanedGroup, due_ms: int) -> None:
    index = _index_of(log, group)
    assert index is not None, "no segment is removed during a swap"
    created_ms = log.segments.at(index + len(group.old) - 1).created_ms
    replacement = Segment(log.files, log.directory, group.base_offset, group.size, created_ms)
    marked: list[tuple[str, str]] = []
    for segment in reversed(list(log.segments)[index : index + len(group.old)]):
        keeps_snapshot = segment.base_offset == group.base_offset
        suffixes = layout.SEGMENT_FILES if keeps_snapshot else SEGMENT_AND_SNAPSHOT
        marked += swap.existing(log.files, segment.path, suffixes, "", layout.DELETED)
    placed = swap.existing(log.files, replacement.path, swap.LOG_LAST, layout.SWAP, "")
    swap.rename_all(log.files, marked + placed)
    log.note_marked((path for _, path in marked), due_ms)
    log.segments.swap(index, len(group.old), replacement)


def discard_cleaned(log: Log, job: CleaningJob) -> None:
    """Delete the files of a job whose result is not used."""
    log.roll_back_swap()
    if log.files.exists(log.directory):
        swap.delete_cleaned_files(log.files, job)
