"""Random writes to a compacted log, cleanings of it, and a model of the records that must be left."""

from __future__ import annotations

import random
from copy import copy
from typing import NamedTuple

from harness.making_logs import NOW_MS, PARTITION, TOPIC_ID, load_store, read_batches, swap_in
from harness.reading_committed import read_committed
from moldau.log import compaction
from moldau.log.cleaning.clean import CleaningResult, clean
from moldau.log.config import LogConfig
from moldau.log.log import Log
from moldau.log.validate import Origin
from moldau.testing.files import MemoryFiles
from moldau.wire.batch import BatchHeader, has_valid_crc
from moldau.wire.compression import Compression
from moldau.wire.records import (
    NEXT_OFFSET,
    EndTxnMarker,
    Record,
    build_batch,
    decode_records,
    end_txn_marker,
)

MAP_BYTES = 1 << 20
RETENTION_MS = 10_000
CONFIG = LogConfig(
    segment_bytes=900,
    index_interval_bytes=150,
    cleanup_policy=frozenset({"compact"}),
    delete_retention_ms=RETENTION_MS,
    file_delete_delay_ms=0,
)
PLAIN, OPEN, COMMITTED, ABORTED = "plain", "open", "committed", "aborted"


class Put(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp: int
    transaction: int
    """0 for none."""


class History:
    """A log, and a record of everything that was written to it."""

    def __init__(self, seed: object, files: MemoryFiles | None = None) -> None:
        self.rng = random.Random(str(seed))
        self.files = files or MemoryFiles()
        self.store, _ = load_store(self.files, CONFIG)
        self.log: Log = self.store.create(PARTITION, TOPIC_ID, CONFIG, NOW_MS)
        self.now_ms = NOW_MS
        self.puts: dict[int, Put] = {}
        self.headers: dict[int, BatchHeader] = {}
        self.fates: dict[int, str] = {0: PLAIN}
        self.sequences = dict.fromkeys((1, 2, 11, 12), 0)
        self.epochs = dict.fromkeys((1, 2, 11, 12), 0)
        self.open: dict[int, int] = {}
        """Producer -> its transaction."""
        self.leader_epoch = 0
        self.first_cleaned_ms: dict[int, int] = {}
        """Offset of a tombstone -> time of the first cleaning that included it."""
        self.touched_up_to = 0
        self.may_remove_expired = True

    # --- operations ---------------------------------------------------------------------------------------------

    def write(self, batches: int) -> None:
        for _ in range(batches):
            self.now_ms += self.rng.choice((0, 1, 7, 1000))
            kind = self.rng.random()
            if kind < 0.45:
                self._append(-1)
            elif kind < 0.6:
                self._append(self.rng.choice((1, 2)))
            elif kind < 0.85 or not self.open:
                self._append(self.rng.choice((11, 12)))
            else:
                self.end_transaction(self.rng.choice(sorted(self.open)), self.rng.random() < 0.5)
            if self.rng.random() < 0.05:
                self.leader_epoch += 1

    def _append(self, producer_id: int) -> None:
        rng = self.rng
        transaction = 0
        if producer_id > 10:
            transaction = self.open.setdefault(producer_id, len(self.fates))
            self.fates.setdefault(transaction, OPEN)
        count = rng.choice((1, 1, 2, 5, 9))
        records = [self._record() for _ in range(count)]
        batch = build_batch(
            records,
            compression=rng.choice(list(Compression)),
            producer_id=producer_id,
            producer_epoch=self.epochs.get(producer_id, -1),
            base_sequence=self.sequences.get(producer_id, -1),
            is_transactional=producer_id > 10,
        )
        if producer_id > 0:
            self.sequences[producer_id] += count
        first = self.log.end_offset
        for offset, record in enumerate(records, first):
            self.puts[offset] = Put(record.key, record.value, record.timestamp, transaction)
        self._store(memoryview(batch), Origin.CLIENT)

    def _record(self) -> Record:
        rng = self.rng
        key = b"key %d" % rng.randrange(12) + b"." * rng.choice((0, 0, 0, 9, 70))
        value = None if rng.random() < 0.25 else b"%d " % rng.randrange(10**9) * rng.choice((1, 1, 6))
        headers = (("h", b"x"),) if rng.random() < 0.1 else ()
        return Record(NEXT_OFFSET, self.now_ms - rng.choice((0, 0, 5, 300)), key, value, headers)

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        """The second of the two producers gets a new epoch with every end (KIP-890)."""
        self.fates[self.open.pop(producer_id)] = COMMITTED if is_commit else ABORTED
        if producer_id == 12:
            self.epochs[producer_id] += 1
            self.sequences[producer_id] = 0
        marker = build_batch(
            [end_txn_marker(EndTxnMarker(is_commit, 0), self.now_ms)],
            is_control=True,
            is_transactional=True,
            producer_id=producer_id,
            producer_epoch=self.epochs[producer_id],
        )
        self._store(memoryview(marker), Origin.COORDINATOR)

    def _store(self, batch: memoryview, origin: Origin) -> None:
        self.log.append(batch, leader_epoch=self.leader_epoch, now_ms=self.now_ms, origin=origin)
        (header, _) = read_batches(self.log, self.log.end_offset - 1)[-1]
        self.headers[header.base_offset] = header

    @property
    def stable_offset(self) -> int:
        return self.log.last_stable_offset(self.log.end_offset)

    def cleanable_up_to(self) -> int:
        stable = self.stable_offset
        segments = self.log.segments
        if stable >= segments.active.base_offset:
            return segments.active.base_offset
        return max((each.base_offset for each in segments if each.base_offset <= stable), default=0)

    def clean(self, map_bytes_max: int = MAP_BYTES, io_buffer_bytes: int = 1 << 16) -> CleaningResult | None:
        """Clean once; None if there is nothing to clean."""
        log, up_to = self.log, self.cleanable_up_to()
        if up_to <= log.segments.first.base_offset:
            return None
        dirty = min(log.cleaned_up_to, up_to)
        job = compaction.cleaning_job(
            log,
            dirty,
            up_to,
            self.now_ms,
            map_bytes_max=map_bytes_max,
            io_buffer_bytes=io_buffer_bytes,
            may_remove_expired=self.may_remove_expired,
        )
        self.touched_up_to = max(self.touched_up_to, up_to)
        for offset, put in self.puts.items():
            if offset < up_to and put.value is None:
                self.first_cleaned_ms.setdefault(offset, self.now_ms)
        cleaned = clean(self.files, job, lambda _: None)
        swap_in(log, job, cleaned, self.now_ms)
        return cleaned

    def reopen(self, *, without_snapshots: bool = False) -> None:
        cleaned_up_to = self.log.cleaned_up_to
        self.store.close({PARTITION: self.log.end_offset})
        if without_snapshots:
            for name in self.files.names(self.log.directory):
                if name.endswith(".snapshot"):
                    self.files.unlink(f"{self.log.directory}/{name}")
        self.store, report = load_store(self.files, CONFIG)
        assert report.was_clean
        assert report.recovered == []
        self.adopt(self.store.get(PARTITION))
        self.log.cleaned_up_to = cleaned_up_to

    def stopped(self) -> History:
        """Close the log with all of it on disk. `reopened_copy` can then be called any number of times."""
        self.store.close({PARTITION: self.log.end_offset})
        self.files = self.files.crash(random.Random(0))
        return self

    def reopened_copy(self) -> History:
        """A copy of a stopped history, with its log opened again."""
        other = copy(self)
        other.files = self.files.crash(random.Random(0))
        other.rng = random.Random(self.rng.random())
        for name in ("puts", "headers", "fates", "sequences", "epochs", "open", "first_cleaned_ms"):
            setattr(other, name, dict(getattr(self, name)))
        other.store, _ = load_store(other.files, CONFIG)
        other.adopt(other.store.get(PARTITION))
        other.log.cleaned_up_to = self.log.cleaned_up_to
        return other

    def adopt(self, log: Log | None) -> None:
        assert log is not None
        self.log = log

    # --- checks -------------------------------------------------------------------------------------------------

    def fate(self, offset: int) -> str:
        return self.fates[self.puts[offset].transaction]

    def check(self) -> None:
        batches = read_batches(self.log)
        self._check_batches(batches)
        survivors = {
            record.offset: record
            for header, batch in batches
            if not header.is_control
            for record in decode_records(batch)
        }
        for offset, record in survivors.items():
            put = self.puts[offset]
            assert (record.key, record.value, record.timestamp) == (put.key, put.value, put.timestamp), offset
        for offset in self.puts:
            if offset >= self.touched_up_to:
                assert offset in survivors, f"offset {offset} is missing, although it was never cleaned"
        self._check_last_values(survivors)
        committed = {at for at in survivors if self.fate(at) in (PLAIN, COMMITTED) and at < self.stable_offset}
        assert {record.offset for record in read_committed(self.log, self.log.end_offset)} == committed

    def _check_batches(self, batches: list[tuple[BatchHeader, bytes]]) -> None:
        end = 0
        for header, batch in batches:
            assert has_valid_crc(memoryview(batch))
            assert header.base_offset >= end
            end = header.next_offset
            was = self.headers[header.base_offset]
            assert _identity(header) == _identity(was)
            assert self.log.epochs.epoch_for_offset(header.base_offset) == header.leader_epoch
            piece = self.log.read(header.last_offset, 1, self.log.end_offset)
            assert piece is not None
            assert piece.read() == batch
        assert end == self.log.end_offset

    def _check_last_values(self, survivors: dict[int, Record]) -> None:
        """A reader gets the last value of every key; tombstones are removed only after their retention."""
        decided = [at for at in sorted(self.puts) if self.fate(at) in (PLAIN, COMMITTED)]
        last = {self.puts[at].key: at for at in decided}
        left = {survivors[at].key: at for at in decided if at in survivors}
        for key, at in last.items():
            if at in survivors:
                assert left[key] == at
                continue
            assert self.puts[at].value is None, f"the last value of {key!r}, at {at}, is missing"
            assert key not in left, f"an old value of {key!r} is left without its tombstone"
            assert self.now_ms >= self.first_cleaned_ms[at] + RETENTION_MS, f"the tombstone at {at} is missing too soon"

    def check_clean(self, cleaned: CleaningResult) -> None:
        """The cleaned part has no key twice and no record of an aborted transaction."""
        seen = set()
        for header, batch in reversed(read_batches(self.log, up_to=cleaned.cleaned_up_to)):
            for record in reversed(decode_records(batch)):
                if header.is_control or record.offset >= cleaned.cleaned_up_to:
                    continue
                assert self.fate(record.offset) != ABORTED
                assert record.key not in seen, f"{record.key!r} is there twice"
                seen.add(record.key)

    def producers(self) -> dict[int, tuple[int, int, int]]:
        """The producer state that must be the same however the log is opened."""
        return {
            entry.producer_id: (entry.epoch, entry.last_sequence, entry.transaction_start)
            for entry in self.log.producers.active()
        }


def _identity(header: BatchHeader) -> tuple[int, ...]:
    kind = header.attributes & 0x38
    return (
        header.base_offset, header.last_offset_delta, header.leader_epoch, kind,
        header.producer_id, header.producer_epoch, header.base_sequence,
    )  # fmt: skip
