"""A log with a damaged batch or a wrong index: last stable offset, truncation, duplicates."""

from __future__ import annotations

from dataclasses import replace

import pytest
from harness.making_logs import NOW_MS, PARTITION, TOPIC_ID, load_store
from writing_producers import end, refused, send

from moldau.base.errors import ErrorCode, KafkaError, MalformedData, StorageFault
from moldau.log import layout, rebuild
from moldau.log.config import LogConfig
from moldau.log.log import Log
from moldau.log.offset_index import ENTRY, ENTRY_BYTES
from moldau.log.store import LogStore
from moldau.testing.files import MemoryFiles

CONFIG = LogConfig(index_interval_bytes=1)
"""Every batch has an index entry."""
BATCHES = 10


def open_again(files: MemoryFiles, high_watermark: int) -> tuple[LogStore, Log]:
    """The log after a clean stop with this high watermark. The snapshot is that of its end."""
    load_store(files)[0].close({PARTITION: high_watermark})
    store, report = load_store(files, CONFIG)
    assert report.was_clean
    log = store.get(PARTITION)
    assert log is not None
    return store, log


@pytest.fixture
def files() -> MemoryFiles:
    """A log with the offsets 0 to 9 of one transaction and its marker at 10."""
    files = MemoryFiles()
    store, _ = load_store(files)
    log = store.create(PARTITION, TOPIC_ID, CONFIG, NOW_MS)
    for sequence in range(BATCHES):
        send(log, sequence, is_transactional=True)
    end(log, commit=True)
    store.close({PARTITION: 8})
    return files


def path_of(log: Log, suffix: str) -> str:
    return f"{log.directory}/{layout.offset_name(0)}{suffix}"


def damage_batch(files: MemoryFiles, log: Log, offset: int) -> None:
    position = log.segments.active.position_of(offset)
    assert position is not None
    files.open(path_of(log, layout.LOG)).pwrite(bytes(30), position)


def damage_index(files: MemoryFiles, log: Log) -> None:
    """Let every entry but the first and the last, which are checked, point into the middle of a batch."""
    file = files.open(path_of(log, layout.OFFSET_INDEX))
    for place in range(1, file.size() // ENTRY_BYTES - 1):
        relative, position = ENTRY.unpack(file.pread(ENTRY_BYTES, place * ENTRY_BYTES))
        file.pwrite(ENTRY.pack(relative, position + 7), place * ENTRY_BYTES)


def test_the_last_stable_offset_of_a_damaged_log_is_reported_as_corrupt(files: MemoryFiles) -> None:
    _, log = open_again(files, 8)
    damage_batch(files, log, 5)
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            log.last_stable_offset(8)
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert log.last_stable_offset(11) == 11, "all markers are replicated: nothing is read"


def test_a_wrong_index_is_rebuilt_to_find_the_last_stable_offset(files: MemoryFiles) -> None:
    _, log = open_again(files, 8)
    damage_index(files, log)
    assert [log.last_stable_offset(high_watermark) for high_watermark in (8, 10, 11)] == [0, 0, 11]


def test_the_search_for_ended_transactions_takes_several_calls(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call reads a bounded part of the log; until all is read, no record counts as decided."""
    monkeypatch.setattr(rebuild, "LISTED_A_TURN", 3)
    store, log = open_again(files, 2)
    for sequence in range(4):
        send(log, sequence, producer_id=9)
    store.close({PARTITION: 2})
    store, log = open_again(files, 2)
    assert not log.producers.unreplicated
    calls = 0
    while log.producers.ended_known_from > 2:
        assert log.last_stable_offset(2 + calls) == 0
        calls += 1
    assert calls > 3
    assert [(txn.first_offset, txn.marker_offset) for txn in log.producers.unreplicated] == [(0, 10)]
    assert (log.last_stable_offset(10), log.last_stable_offset(11)) == (0, 11)


def test_the_search_for_ended_transactions_starts_again_below_a_lower_high_watermark(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild, "LISTED_A_TURN", 1)
    _, log = open_again(files, 8)
    assert log.last_stable_offset(8) == 0
    while log.producers.ended_known_from > 2:
        log.last_stable_offset(2)
    assert [(txn.first_offset, txn.marker_offset) for txn in log.producers.unreplicated] == [(0, 10)]


def test_snapshots_above_the_high_watermark_are_not_read(files: MemoryFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    _, log = open_again(files, 8)
    read: list[str] = []
    original = files.read

    def note_and_read(path: str) -> bytes | None:
        read.append(path)
        return original(path)

    monkeypatch.setattr(files, "read", note_and_read)
    assert log.last_stable_offset(8) == 0
    assert not [path for path in read if path.endswith(layout.SNAPSHOT)]


def test_a_truncated_log_whose_producers_cannot_be_restored_refuses_writes(files: MemoryFiles) -> None:
    store, log = open_again(files, 11)
    damage_batch(files, log, 5)
    with pytest.raises(StorageFault, match="no batch at"):
        store.truncate(PARTITION, 8)
    assert log.end_offset == 8
    with pytest.raises(StorageFault):
        send(log, 8, is_transactional=True)


def test_a_repeated_batch_that_cannot_be_searched_for_is_refused(files: MemoryFiles) -> None:
    """The connection with batches for other partitions must not be closed."""
    _, log = open_again(files, 11)
    damage_batch(files, log, 5)
    assert refused(log, 7, is_transactional=True) == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("config", [LogConfig(index_interval_bytes=250), LogConfig(index_interval_bytes=1)])
@pytest.mark.parametrize("offset", range(2, 20))
@pytest.mark.parametrize("damaged", [1, 7, 8, 13])
def test_a_truncation_never_leaves_a_gap(config: LogConfig, offset: int, damaged: int) -> None:
    """Whatever batch is damaged: the log is truncated to the offset, or refuses further records."""
    files = MemoryFiles()
    store, _ = load_store(files)
    log = store.create(PARTITION, TOPIC_ID, replace(config, segment_bytes=500), NOW_MS)
    for sequence in range(20):
        send(log, sequence)
    assert len(log.segments) > 2
    segment = log.segments.at(log.segments.floor(damaged))
    located = segment.locate(damaged)
    assert located is not None
    segment.file.pwrite(bytes(30), located[0])
    size = log.size_bytes
    try:
        store.truncate(PARTITION, offset)
    except MalformedData:
        assert (log.end_offset, log.size_bytes) == (20, size), "nothing was truncated"
    except StorageFault:
        with pytest.raises(StorageFault):
            send(log, 20, producer_id=-1)
    else:
        assert log.end_offset == offset
