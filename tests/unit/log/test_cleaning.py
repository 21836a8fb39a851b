"""Log compaction, one rule per test, and the map of keys that it uses."""

from __future__ import annotations

import random
import struct
from dataclasses import replace

import numpy as np
import pytest
from harness.cleaning_histories import CONFIG, RETENTION_MS, History
from harness.making_logs import NOW_MS, PARTITION, load_store, read_batches, read_values

from moldau.base.errors import MalformedData
from moldau.log import compaction, layout
from moldau.log.cleaning.clean import CleaningJob, clean
from moldau.log.cleaning.decompression import BUFFER_BYTES
from moldau.log.cleaning.key_map import KeyMap, Keys
from moldau.log.config import LogConfig
from moldau.log.reading import aborted_between
from moldau.log.validate import Origin
from moldau.wire.batch import (
    BATCH_HEADER,
    BATCH_HEADER_BYTES,
    DELETE_HORIZON_BIT,
    LENGTH_PREFIX,
    has_valid_crc,
    read_header,
    stamp_crc,
)
from moldau.wire.compression import Compression
from moldau.wire.records import NEXT_OFFSET, Record, build_batch

Pair = tuple[bytes, bytes | None]


def put(history: History, *pairs: Pair, codec: Compression = Compression.NONE, is_rolled: bool = True) -> int:
    """Append one batch, roll the segment if `is_rolled`, and return the base offset."""
    records = [Record(NEXT_OFFSET, history.now_ms + index, key, value) for index, (key, value) in enumerate(pairs)]
    batch = memoryview(build_batch(records, compression=codec))
    appended = history.log.append(batch, leader_epoch=history.leader_epoch, now_ms=history.now_ms, origin=Origin.CLIENT)
    if is_rolled:
        history.log.roll(history.now_ms)
    return appended.first_offset


def job_of(history: History, **changes: int) -> CleaningJob:
    log = history.log
    job = compaction.cleaning_job(
        log,
        log.cleaned_up_to,
        history.cleanable_up_to(),
        history.now_ms,
        map_bytes_max=1 << 20,
        io_buffer_bytes=1 << 16,
    )
    return job._replace(**changes)


@pytest.mark.parametrize("codec", list(Compression))
def test_a_batch_that_loses_records_keeps_its_offsets_and_codec(codec: Compression) -> None:
    history = History("codec")
    pairs = [(b"a", b"1"), (b"b", b"2" * 100), (b"a", b"3"), (b"c", b"4"), (b"c", b"5")]
    first = put(history, *pairs, codec=codec)
    (before, _), *_ = read_batches(history.log, first)
    history.clean()
    (after, batch), *_ = read_batches(history.log, first)
    assert read_values(history.log) == {1: b"2" * 100, 2: b"3", 4: b"5"}
    assert has_valid_crc(memoryview(batch))
    same = ("base_offset", "last_offset_delta", "leader_epoch", "attributes", "base_timestamp", "base_sequence")
    assert all(getattr(after, name) == getattr(before, name) for name in same)
    assert after.record_count == 3
    assert after.max_timestamp == history.now_ms + 4


def test_a_batch_may_expand_up_to_the_limit_of_the_job() -> None:
    history = History("expands")
    put(history, (b"a", bytes(BUFFER_BYTES)), codec=Compression.ZSTD)
    put(history, (b"b", b"1"))
    job = job_of(history, decompressed_bytes_max=BUFFER_BYTES)
    with pytest.raises(MalformedData):
        clean(history.files, job, lambda _: None)
    cleaned = clean(history.files, job._replace(decompressed_bytes_max=2 * BUFFER_BYTES), lambda _: None)
    assert cleaned.records_kept == 2


@pytest.mark.parametrize(("setting", "limit"), [(1 << 20, 128 << 20), (256 << 20, 256 << 20)])
def test_a_job_accepts_every_batch_that_the_log_accepted(setting: int, limit: int) -> None:
    history = History("setting")
    put(history, (b"a", b"1"))
    history.log.update_config(replace(history.log.config, moldau_max_decompressed_bytes=setting))
    assert job_of(history).decompressed_bytes_max == limit


def test_a_batch_that_loses_nothing_is_copied_byte_for_byte() -> None:
    history = History("copied")
    put(history, (b"a", b"1"), (b"b", b"2"), codec=Compression.ZSTD)
    put(history, (b"c", b"3"), codec=Compression.GZIP)
    before = read_batches(history.log)
    history.clean()
    assert read_batches(history.log) == before


def test_a_tombstone_is_kept_for_delete_retention_ms_after_its_first_cleaning() -> None:
    history = History("tombstone")
    put(history, (b"a", b"1"), (b"b", b"1"))
    put(history, (b"a", None))
    put(history, (b"z", b"1"))
    history.now_ms += 10 * RETENTION_MS  # however old the tombstone is
    first_round_ms = history.now_ms
    history.clean()
    assert read_values(history.log) == {1: b"1", 2: None, 3: b"1"}
    header = read_batches(history.log, 2)[0][0]
    assert header.attributes & DELETE_HORIZON_BIT
    assert header.base_timestamp == first_round_ms + RETENTION_MS
    for wait_ms, is_there in ((RETENTION_MS // 2, True), (RETENTION_MS // 2 - 1, True), (1, False)):
        history.now_ms += wait_ms
        put(history, (b"z", b"%d" % wait_ms))
        history.clean()
        assert (2 in read_values(history.log)) is is_there


def rounds_with_markers(history: History, rounds: int) -> list[list[tuple[int, bool]]]:
    """After each cleaning: the producer of each remaining marker, and whether the marker has a delete horizon."""
    markers = []
    for _ in range(rounds):
        put(history, (b"z", b"1"))
        history.clean()
        kept = [header for header, _ in read_batches(history.log) if header.is_control and header.record_count]
        markers.append([(header.producer_id, bool(header.attributes & DELETE_HORIZON_BIT)) for header in kept])
        history.now_ms += RETENTION_MS
    return markers


def test_a_marker_is_kept_for_delete_retention_ms_after_its_records() -> None:
    history = History("marker")
    history._append(11)
    history.end_transaction(11, is_commit=False)
    history.log.producers.expire(history.now_ms + 1, 0)
    assert rounds_with_markers(history, 3) == [[(11, False)], [(11, True)], []]


def test_an_expired_marker_is_kept_while_replicas_are_out_of_sync() -> None:
    history = History("away")
    history._append(11)
    history.end_transaction(11, is_commit=False)
    history.log.producers.expire(history.now_ms + 1, 0)
    history.may_remove_expired = False
    assert rounds_with_markers(history, 4) == [[(11, False)], [(11, True)], [(11, True)], [(11, True)]]
    history.may_remove_expired = True
    assert rounds_with_markers(history, 1) == [[]]


def test_a_marker_is_kept_while_only_it_has_the_epoch_of_its_producer() -> None:
    history = History("epoch")
    history._append(12)
    history.end_transaction(12, is_commit=False)
    before = history.producers()
    assert rounds_with_markers(history, 4)[-1] == [(12, True)]
    history.reopen(without_snapshots=True)
    assert history.producers() == before


def test_a_marker_that_kafka_emptied_is_kept() -> None:
    """Kafka removes the record of the last marker of a producer and keeps the header, which has the epoch."""
    history = History("kafka's last word")
    history.open[12] = 1
    history.end_transaction(12, is_commit=True)
    put(history, (b"z", b"1"))
    history.store.close()
    file = history.files.open(history.log.segments.first.log_path)
    header = read_header(file.pread(BATCH_HEADER_BYTES, 0))
    empty = header._replace(batch_length=BATCH_HEADER_BYTES - LENGTH_PREFIX.size, base_timestamp=-1, record_count=0)
    batch = bytearray(BATCH_HEADER.pack(*empty))
    stamp_crc(memoryview(batch))
    rest = file.pread(file.size(), header.size_in_bytes)
    file.truncate(0)
    file.pwrite(batch + rest, 0)
    history.store, _ = load_store(history.files, CONFIG)
    history.adopt(history.store.get(PARTITION))
    rounds_with_markers(history, 3)
    assert read_batches(history.log)[0][1] == bytes(batch)


def test_aborted_transactions_stay_in_the_index_after_cleaning() -> None:
    history = History("index")
    history._append(11)
    history.end_transaction(11, is_commit=False)
    put(history, (b"z", b"1"))
    (known,) = aborted_between(history.log.segments, 0, history.log.end_offset)
    history.clean()
    assert aborted_between(history.log.segments, 0, history.log.end_offset) == [known]
    history.reopen()
    assert aborted_between(history.log.segments, 0, history.log.end_offset) == [known]


def test_small_segments_are_merged() -> None:
    history = History("merged")
    for number in range(5):
        put(history, (b"key %d" % (number % 3), b"%d" % number * 40))
    bases = [segment.base_offset for segment in history.log.segments]
    history.clean()
    assert [segment.base_offset for segment in history.log.segments] == [bases[0], bases[-1]]
    assert sorted(read_values(history.log)) == [2, 3, 4]
    assert all(segment.size <= CONFIG.segment_bytes for segment in history.log.segments)


def test_records_without_a_key_are_removed() -> None:
    """They were accepted before the topic was compacted."""
    history = History("keyless")
    history.log.update_config(LogConfig(segment_bytes=900))
    put(history, (b"a", b"1"))
    batch = memoryview(build_batch([Record(NEXT_OFFSET, NOW_MS, None, b"?"), Record(NEXT_OFFSET, NOW_MS, b"b", b"2")]))
    history.log.append(batch, leader_epoch=0, now_ms=NOW_MS)
    history.log.roll(NOW_MS)
    history.clean()
    assert read_values(history.log) == {0: b"1", 2: b"2"}


def test_an_emptied_last_batch_of_a_segment_keeps_its_header() -> None:
    history = History("header")
    put(history, (b"a", b"1"), (b"a", b"2"))
    put(history, (b"x" * 500, b"1" * 300))
    put(history, (b"a", b"3"))
    history.clean()
    (header, batch), *_ = read_batches(history.log)
    assert (header.base_offset, header.last_offset, header.record_count) == (0, 1, 0)
    assert len(batch) == BATCH_HEADER_BYTES


def test_duplicates_are_recognised_after_cleanings_and_restarts() -> None:
    """A producer may repeat its batches in flight, even if their records have been cleaned away."""
    history = History("in flight")

    def send(sequence: int) -> tuple[int, bool]:
        record = Record(NEXT_OFFSET, history.now_ms, b"a", b"%d" % sequence)
        batch = build_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence)
        appended = history.log.append(memoryview(batch), leader_epoch=0, now_ms=history.now_ms)
        return appended.first_offset, appended.duplicate

    assert [send(sequence) for sequence in range(5)] == [(offset, False) for offset in range(5)]
    history.log.roll(history.now_ms)
    put(history, (b"a", b"last"))
    for _ in range(2):
        history.reopen()
        history.clean()
        put(history, (b"b", b"more"))
    history.reopen()
    assert [send(sequence) for sequence in range(5)] == [(offset, True) for offset in range(5)]


@pytest.mark.parametrize("seed", range(4))
def test_a_cleaned_log_can_be_recovered_from_its_first_byte(seed: int) -> None:
    """Gaps between batches do not count as lost data, and the epochs of removed batches stay known."""
    history = History(f"first byte {seed}")
    for _ in range(4):
        history.write(12)
        history.leader_epoch += 1
        history.write(1)
        history.leader_epoch += 1
        history.clean()
        history.now_ms += RETENTION_MS
    history.log.flush()
    epochs, end_offset, producers = history.log.epochs.entries, history.log.end_offset, history.producers()
    files = history.files.restart()
    for name in files.names("data"):
        if name.endswith("-checkpoint"):
            files.unlink(f"data/{name}")
    for name in files.names(history.log.directory):
        if name.endswith((layout.SNAPSHOT, *layout.INDEX_FILES)):
            files.unlink(f"{history.log.directory}/{name}")
    history.store, report = load_store(files, CONFIG)
    assert not any(each.set_aside or each.bytes_cut for each in report.recovered)
    history.adopt(history.store.get(PARTITION))
    assert (history.log.end_offset, history.producers()) == (end_offset, producers)
    assert history.log.epochs.entries == epochs
    history.check()


def test_truncation_inside_a_gap_ends_the_log_before_the_gap() -> None:
    history = History("hole")
    for number in range(6):
        put(history, (b"a", b"%d" % number), is_rolled=False)
    put(history, (b"b", b"1"))
    put(history, (b"c", b"1"))
    history.clean()
    assert sorted(read_values(history.log)) == [5, 6, 7]
    assert history.log.end_after_truncation(3) == 0
    history.store.truncate(PARTITION, 3)
    assert history.log.end_offset == 0
    assert put(history, (b"d", b"1")) == 0


def test_a_corrupt_batch_fails_the_cleaning_and_leaves_the_log_unchanged() -> None:
    history = History("broken")
    put(history, (b"a", b"1" * 50))
    put(history, (b"a", b"2" * 50))
    path = history.log.segments.first.log_path
    history.files.open(path).pwrite(b"?", 90)
    before = history.files.read(path)
    with pytest.raises(MalformedData, match="CRC"):
        clean(history.files, job_of(history), lambda _: None)
    compaction.discard_cleaned(history.log, job_of(history))
    assert history.files.read(path) == before
    assert not [name for name in history.files.names(history.log.directory) if name.endswith(layout.CLEANED)]


def test_a_corrupt_batch_that_would_keep_only_its_header_fails_the_cleaning() -> None:
    """In the part that was cleaned before, where nothing else checks its CRC."""
    history = History("broken-header")
    records = [Record(NEXT_OFFSET, history.now_ms, b"a", b"1" * 50)]
    batch = memoryview(build_batch(records, producer_id=5, producer_epoch=0, base_sequence=0))
    history.log.append(batch, leader_epoch=history.leader_epoch, now_ms=history.now_ms, origin=Origin.CLIENT)
    history.log.roll(history.now_ms)
    history.clean()
    history.files.open(history.log.segments.first.log_path).pwrite(b"?", 90)
    put(history, (b"a", b"2"))
    assert history.log.cleaned_up_to == 1
    with pytest.raises(MalformedData, match="the batch at offset 0 does not match its CRC"):
        clean(history.files, job_of(history), lambda _: None)


def test_the_key_map_equals_a_dict_and_keeps_to_its_memory_limit() -> None:
    rng = random.Random(5)
    lengths = (0, 1, 7, 8, 9, 16, 17, 63, 64, 65, 200)
    keys_map, model = KeyMap(1 << 18, 1 << 20), dict[bytes, int]()
    offset = 0
    while True:
        keys = [bytes(rng.choices(b"ab", k=rng.choice(lengths))) for _ in range(300)]
        fit = keys_map.count_fitting(columns(keys))
        keys_map.put(columns(keys[:fit]), np.arange(offset, offset + fit))
        model |= {key: offset + index for index, key in enumerate(keys[:fit])}
        offset += fit
        assert keys_map.bytes_used <= 1 << 18
        if fit < len(keys):
            break
    asked = [*model, b"c", b"ab" * 99, bytes(8)]
    assert keys_map.last_offsets(columns(asked)).tolist() == [model.get(key, -1) for key in asked]
    assert len(keys_map) == len(model) > 1000


@pytest.mark.parametrize("attempt", range(5))
def test_chosen_keys_do_not_collide_in_the_key_map(attempt: int) -> None:
    """Each map draws its own random numbers. Here the second words cancel what a multiplication and a shift by half a
    word make of the first ones: a chain of such steps has 128 hashes for these 16,384 keys."""
    tops = [top << 57 for top in range(128)]
    firsts, seconds = [0x0123456789ABCDEF ^ top for top in tops], [top ^ top >> 32 for top in tops]
    keys = columns([struct.pack("<QQ", first, second) for first in firsts for second in seconds])
    hashes = KeyMap(1 << 20, 1 << 20)._hash(keys.lengths, keys.words())
    assert np.unique(hashes).size > 0.99 * hashes.size


def test_the_hash_of_a_key_does_not_depend_on_the_keys_beside_it() -> None:
    keys = [b"", b"\0", bytes(2), b"a", b"abcdefgh", b"abcdefgh\0", b"x" * 64]
    key_map = KeyMap(1 << 20, 1 << 20)
    together = key_map._hash(columns(keys).lengths, columns(keys).words()).tolist()
    assert together == [key_map._hash(columns([key]).lengths, columns([key]).words())[0] for key in keys]
    assert len(set(together)) == len(keys)


def test_sequential_keys_are_spread_evenly_with_any_random_factors() -> None:
    keys = columns([struct.pack("<q", number) for number in range(4096)])
    key_map = KeyMap(1 << 20, 1 << 20)
    key_map._factors[:] = 1 << 32
    quarters = np.bincount((key_map._hash(keys.lengths, keys.words()) >> np.uint64(30)).astype(np.int64))
    assert quarters.size == 4
    assert quarters.min() > 900


def columns(keys: list[bytes]) -> Keys:
    lengths = np.array([len(key) for key in keys], np.int64)
    return Keys(np.frombuffer(b"".join(keys) + bytes(8), np.uint8), np.cumsum(lengths) - lengths, lengths)


def test_compaction_configs_have_their_types() -> None:
    config = LogConfig.from_properties({"min.cleanable.dirty.ratio": "0.25", "delete.retention.ms": "7"})
    assert (config.min_cleanable_dirty_ratio, config.delete_retention_ms) == (0.25, 7)


def test_a_compacted_log_rolls_after_max_compaction_lag_ms() -> None:
    history = History("roll")
    history.log.update_config(LogConfig(cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=1000))
    put(history, (b"a", b"1"), is_rolled=False)
    history.now_ms += 1001
    put(history, (b"a", b"2"), is_rolled=False)
    assert len(history.log.segments) == 2
