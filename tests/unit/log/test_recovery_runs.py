"""Recovery reads runs of small batches at once; the result must be that of reading them one by one."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from harness.depth import deep
from harness.making_logs import NOW_MS, PARTITION

from moldau.log import layout, recovery, verified_batches
from moldau.log.config import LogConfig
from moldau.log.recovery import open_log
from moldau.log.segment import INDEX_INTERVAL_BYTES, RELATIVE_OFFSET_MAX, Segment
from moldau.log.verified_batches import VerifiedBatches
from moldau.testing.files import MemoryFiles
from moldau.wire import batch as wire_batch
from moldau.wire.batch import BATCH_HEADER, BATCH_HEADER_BYTES, CRC_START, MAGIC, BatchHeader
from moldau.wire.crc import crc32c
from moldau.wire.records import NEXT_OFFSET, EndTxnMarker, Record, build_batch, end_txn_batch

DIRECTORY = "data/orders-0"
SEEDS = deep(15, quick=40)


# --- recovery one batch at a time, to compare with --------------------------------------------------------------


def batches_one_by_one(content: bytes) -> Iterator[tuple[int, BatchHeader]]:
    position = 0
    while len(content) - position >= BATCH_HEADER_BYTES:
        header = BatchHeader._make(BATCH_HEADER.unpack_from(content, position))
        size = header.size_in_bytes
        if header.magic != MAGIC or not BATCH_HEADER_BYTES <= size <= len(content) - position:
            return
        if crc32c(content[position + CRC_START : position + size]) != header.crc:
            return
        yield position, header
        position += size


def recover_one_by_one(self: Any, segment: Segment) -> tuple[int, bool]:
    size, file = segment.size, segment.file
    segment.forget()
    next_offset = segment.base_offset
    aborted = []
    for position, header in batches_one_by_one(file.pread(size, 0)):
        base_offset, last_offset, epoch = header.base_offset, header.last_offset, header.leader_epoch
        is_in_range = next_offset <= base_offset <= last_offset <= segment.base_offset + RELATIVE_OFFSET_MAX
        if epoch < self._epochs.latest_epoch or not is_in_range:
            break
        segment.record_batch(
            base_offset, last_offset, header.max_timestamp, header.size_in_bytes, position, INDEX_INTERVAL_BYTES
        )
        if epoch != self._epochs.latest_epoch:
            self._assign(epoch, next_offset, base_offset)
        if header.producer_id >= 0:
            aborted += self._replay(segment, position, header)
        next_offset = last_offset + 1
    segment.txn_index.replace(aborted)
    if segment.size == size:
        return next_offset, True
    self._report.bytes_cut += size - segment.size
    if recovery._whole_batches_follow(file, segment.size, size):
        self._copy_aside(file, segment, size)
    file.truncate(segment.size)
    return next_offset, False


# --- logs -------------------------------------------------------------------------------------------------------


class Writer:
    """Writes batches of all kinds, most of them small and like the one before."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.offset = 0
        self.epoch = 0
        self.timestamp = NOW_MS
        self.sequences = [0, 0, 0]
        self.producer_epochs = [0, 0, 0]
        self.has_producers = rng.random() < 0.6
        self.is_transactional = rng.random() < 0.5

    def batch(self) -> bytearray:
        rng = self.rng
        self.timestamp += rng.choice((0, 0, 1, 5, -3))
        if rng.random() < 0.02:
            self.epoch += rng.choice((1, 1, 2, -1))
        if rng.random() < 0.02:
            self.offset += rng.choice((1, 7, 50, RELATIVE_OFFSET_MAX))  # compaction left a gap
        timestamp = -1 if rng.random() < 0.02 else self.timestamp
        producer = rng.randrange(3) if self.has_producers and rng.random() < 0.9 else None
        if producer is not None and rng.random() < 0.03:
            self.producer_epochs[producer] += rng.choice((1, -1)) if self.producer_epochs[producer] else 1
        if producer is not None and self.is_transactional and rng.random() < 0.1:
            marker = EndTxnMarker(rng.random() < 0.5, 1)
            return self._placed(end_txn_batch(marker, timestamp, producer, self.producer_epochs[producer]), 1)
        values = [bytes(rng.randint(0, 150)) for _ in range(rng.choice((1, 1, 1, 2, 4)))]
        if rng.random() < 0.01:
            values = [bytes(3_000)]
        made = build_batch(
            [Record(NEXT_OFFSET, timestamp, None, value) for value in values],
            producer_id=-1 if producer is None else producer,
            producer_epoch=-1 if producer is None else self.producer_epochs[producer],
            base_sequence=-1 if producer is None else self.sequences[producer],
            is_transactional=producer is not None and self.is_transactional and rng.random() < 0.9,
        )
        if producer is not None:
            self.sequences[producer] += len(values)
        return self._placed(made, len(values))

    def _placed(self, batch: bytearray, records: int) -> bytearray:
        wire_batch.stamp(memoryview(batch), self.offset, self.epoch)
        self.offset += records
        return batch


def damaged(rng: Random, content: bytes) -> bytes:
    spoiled = bytearray(content)
    place = rng.randrange(len(spoiled))
    match rng.randrange(7):
        case 0:
            del spoiled[place:]
        case 1:
            spoiled[place] ^= 1 << rng.randrange(8)
        case 2:
            spoiled[place : place + 600] = bytes(600)
        case 3:
            spoiled += bytes(rng.randrange(200))
        case 4:
            spoiled[place:place] = bytes(rng.randrange(1, 40))
        case 5:
            starts = [position for position, _ in batches_one_by_one(content)]
            start = rng.choice(starts)
            length = rng.choice((-12, -1, 0, 5, 48, 49, 2**31 - 1))
            spoiled[start + 8 : start + 12] = length.to_bytes(4, "big", signed=True)
            if length > 0:
                # A CRC that matches the wrong length: only the length can give it away.
                crc = crc32c(bytes(spoiled[start + CRC_START : start + 12 + length]))
                spoiled[start + CRC_START - 4 : start + CRC_START] = crc.to_bytes(4, "big")
    return bytes(spoiled)


def disk_with(segments: dict[int, bytes]) -> MemoryFiles:
    files = MemoryFiles()
    files.mkdir("data")
    files.mkdir(DIRECTORY)
    for base_offset, content in segments.items():
        files.open(f"{DIRECTORY}/{layout.offset_name(base_offset)}{layout.LOG}", create=True).pwrite(content, 0)
    return files


def written_segments(rng: Random) -> dict[int, bytes]:
    writer, segments = Writer(rng), {}
    for _ in range(rng.randint(1, 2)):
        base_offset = writer.offset
        segments[base_offset] = b"".join(bytes(writer.batch()) for _ in range(rng.randint(1, 150)))
    if rng.random() < 0.7:
        spoiled = rng.choice(list(segments))
        segments[spoiled] = damaged(rng, segments[spoiled])
    return segments


def left_behind(segments: dict[int, bytes]) -> dict[str, Any]:
    """Recover the log and return everything that is known about it and on disk afterwards."""
    files = disk_with(segments)
    log, report = open_log(
        files, DIRECTORY, PARTITION, LogConfig(), start_offset=0, recovery_point=0, is_clean=False, now_ms=NOW_MS
    )
    return {
        "report": report,
        "epochs": log.epochs.entries,
        "producers": log.producers.active(),
        "ongoing": list(log.producers.ongoing.items()),
        "ended": list(log.producers.unreplicated),
        "sizes": [(each.base_offset, each.size, each.largest_timestamp, each.first_timestamp) for each in log.segments],
        "next index entry": [each._bytes_since_index for each in log.segments],
        "files": {name: files.read(f"{DIRECTORY}/{name}") for name in files.names(DIRECTORY)},
    }


@pytest.mark.parametrize("piece_bytes", [200, 1_000, 1 << 20])
def test_runs_leave_the_same_log_as_batches_one_by_one(monkeypatch: pytest.MonkeyPatch, piece_bytes: int) -> None:
    monkeypatch.setattr(verified_batches, "PIECE_BYTES", piece_bytes)
    for seed in range(SEEDS):
        segments = written_segments(Random(seed))
        found = left_behind(segments)
        with monkeypatch.context() as patched:
            patched.setattr(recovery._Recovery, "_recover_segment", recover_one_by_one)
            expected = left_behind(segments)
        assert found == expected, f"seed {seed}"


@pytest.mark.parametrize("piece_bytes", [200, 1_000, 1 << 20])
def test_verified_batches_equal_batches_read_one_by_one(monkeypatch: pytest.MonkeyPatch, piece_bytes: int) -> None:
    monkeypatch.setattr(verified_batches, "PIECE_BYTES", piece_bytes)
    for seed in range(SEEDS):
        for content in written_segments(Random(seed)).values():
            file = disk_with({0: content}).open(f"{DIRECTORY}/{layout.offset_name(0)}{layout.LOG}")
            assert list(VerifiedBatches(file, 0, len(content))) == list(batches_one_by_one(content)), f"seed {seed}"


def test_small_batches_are_read_without_objects_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch after another made a header and half a dozen calls each, which took three times as long."""
    content = bytearray()
    for offset in range(10_000):
        batch = build_batch([Record(NEXT_OFFSET, NOW_MS + offset, None, bytes(100))])
        wire_batch.stamp(memoryview(batch), offset, 1)
        content += batch
    recorded: list[int] = []
    record_batch = Segment.record_batch

    def counted(segment: Segment, *arguments: int) -> None:
        recorded.append(arguments[0])
        record_batch(segment, *arguments)

    monkeypatch.setattr(Segment, "record_batch", counted)
    log, _ = open_log(
        disk_with({0: bytes(content)}), DIRECTORY, PARTITION, LogConfig(),
        start_offset=0, recovery_point=0, is_clean=False, now_ms=NOW_MS,
    )  # fmt: skip
    assert log.end_offset == 10_000
    assert len(recorded) <= 2 * (len(content) // verified_batches.PIECE_BYTES + 1)
