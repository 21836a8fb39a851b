"""A swap begins with the oldest segments: wherever it stops, no value is left whose tombstone is removed."""

from __future__ import annotations

import pytest
from harness.making_logs import NOW_MS, PARTITION, TOPIC_ID, batch_of, load_store, read_batches, swap_in

from moldau.log import compaction
from moldau.log.cleaning.clean import clean
from moldau.log.cleaning.job import CleaningJob, CleaningResult
from moldau.log.cleaning.swap import SwapWork
from moldau.log.config import LogConfig
from moldau.log.log import Log
from moldau.log.store import LogStore
from moldau.log.validate import Origin
from moldau.testing.files import MemoryFiles
from moldau.wire.records import decode_records

RETENTION_MS = 10_000
CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    delete_retention_ms=RETENTION_MS,
    segment_index_bytes=12,
    index_interval_bytes=1,
)
"""No segments are merged."""
VALUE_AT, TOMBSTONE_AT = 0, 1


def cleaning(files: MemoryFiles, log: Log, now_ms: int) -> tuple[CleaningJob, CleaningResult]:
    log.flush()
    up_to = log.segments.active.base_offset
    job = compaction.cleaning_job(log, log.cleaned_up_to, up_to, now_ms, map_bytes_max=1 << 20, io_buffer_bytes=1 << 16)
    return job, clean(files, job, lambda _: None)


def expired_tombstone() -> bytes:
    """A tombstone batch that was cleaned on the leader, and so has a delete horizon."""
    files = MemoryFiles()
    log = LogStore(files, "data").create(PARTITION, TOPIC_ID, CONFIG, NOW_MS)
    for value in (b"value", None, b"other"):
        log.append(batch_of([value], key=b"row" if value != b"other" else b"another"), leader_epoch=0, now_ms=NOW_MS)
        log.roll(NOW_MS)
    job, cleaned = cleaning(files, log, NOW_MS)
    swap_in(log, job, cleaned, NOW_MS)
    return next(bytes(batch) for header, batch in read_batches(log) if header.base_offset == TOMBSTONE_AT)


def follower() -> tuple[MemoryFiles, Log]:
    """A log that has the value, and a tombstone whose delete horizon has passed."""
    files = MemoryFiles()
    log = LogStore(files, "data").create(PARTITION, TOPIC_ID, CONFIG, NOW_MS)
    log.append(batch_of([b"value"], key=b"row"), leader_epoch=0, now_ms=NOW_MS)
    log.roll(NOW_MS)
    log.append(memoryview(bytearray(expired_tombstone())), leader_epoch=0, now_ms=NOW_MS, origin=Origin.REPLICATION)
    log.roll(NOW_MS)
    log.append(batch_of([b"other"], key=b"another"), leader_epoch=0, now_ms=NOW_MS)
    log.roll(NOW_MS)
    return files, log


def offsets_of_row(log: Log) -> set[int]:
    return {
        record.offset
        for header, batch in read_batches(log)
        for record in decode_records(batch, header)
        if record.key == b"row"
    }


@pytest.mark.parametrize(("named", "replaced"), [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1), (3, 2), (3, 3)])
def test_a_value_is_removed_before_its_tombstone(named: int, replaced: int) -> None:
    files, log = follower()
    job, cleaned = cleaning(files, log, NOW_MS + 2 * RETENTION_MS)
    assert len(cleaned.groups) == 3, "each segment by itself"
    work = compaction.begin_swap(log, job, cleaned)
    assert isinstance(work, SwapWork)
    for _ in range(named):
        work.rename_next()
    work.sync()
    for _ in range(replaced):
        compaction.replace_next(log, work, NOW_MS)
    assert offsets_of_row(log) in ({VALUE_AT, TOMBSTONE_AT}, {TOMBSTONE_AT}, set())
    store, _ = load_store(files.restart(), CONFIG)
    found = store.get(PARTITION)
    assert found is not None
    assert offsets_of_row(found) == ({VALUE_AT, TOMBSTONE_AT}, {TOMBSTONE_AT}, set(), set())[named]
