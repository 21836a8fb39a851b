"""Random operations on a log, compared with a list of records."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from harness.depth import deep
from harness.making_logs import NOW_MS, PARTITION, TOPIC_ID, batch_of, load_store, offset_for_time, read_records
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from moldau.base.errors import ErrorCode, KafkaError
from moldau.log.config import LogConfig
from moldau.log.log import Log
from moldau.log.store import LogStore
from moldau.testing.files import MemoryFiles
from moldau.wire.batch import split_batches
from moldau.wire.records import Record, decode_records

CONFIG = LogConfig(
    segment_bytes=1200, index_interval_bytes=200, retention_ms=50_000, retention_bytes=5000, file_delete_delay_ms=0
)


class LogMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.files = MemoryFiles()
        self.store: LogStore
        self.store, _ = load_store(self.files, CONFIG)
        self.log: Log = self.store.create(PARTITION, TOPIC_ID, CONFIG, NOW_MS)
        self.records: list[Record] = []
        """All records that should be in the files; also those below the log's start, until their segment is deleted."""
        self.start = 0
        self.end = 0
        self.epoch = 0
        self.epoch_of: dict[int, int] = {}
        self.now_ms = NOW_MS
        self.serial = 0

    @rule(sizes=st.lists(st.integers(0, 120), min_size=1, max_size=5), skew=st.integers(-2000, 2000))
    def append(self, sizes: list[int], skew: int) -> None:
        self.serial += 1
        values = [b"%d." % self.serial + b"x" * size for size in sizes]
        batch = batch_of(values, timestamp=self.now_ms + skew)
        appended = self.log.append(batch, leader_epoch=self.epoch, now_ms=self.now_ms)
        assert appended.first_offset == self.end
        assert appended.last_offset == self.end + len(values) - 1
        for value in values:
            self.records.append(Record(self.end, self.now_ms + skew, b"key", value))
            self.epoch_of[self.end] = self.epoch
            self.end += 1

    @rule(ms=st.integers(0, 20_000))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = self.start + int((self.end - self.start) * share)
        self.log.delete_records(offset)
        self.log.flush()  # a partition requests that: a checkpoint has a start only up to the recovery point
        self.start = max(self.start, offset)

    @rule(share=st.floats(0, 1))
    def retain(self, share: float) -> None:
        high_watermark = self.start + int((self.end - self.start) * share)
        before = {segment.base_offset: segment.largest_timestamp.timestamp for segment in self.log.segments}
        size_before, old_start = self.log.size_bytes, self.start
        dropped = self.log.delete_expired(self.now_ms, high_watermark)
        self.log.purge(self.now_ms)
        first = self.log.segments.first.base_offset
        assert first <= max(high_watermark, min(before))
        for segment in dropped:
            is_too_old = before[segment.base_offset] < self.now_ms - CONFIG.retention_ms
            assert is_too_old or size_before > CONFIG.retention_bytes or first <= old_start
        self.start = max(self.start, first)
        self.records = [record for record in self.records if record.offset >= first]

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        offset = self.start + int((self.end - self.start) * share)
        self.store.truncate(PARTITION, offset)
        assert self.log.end_offset <= offset
        self.end = self.log.end_offset
        self.records = [record for record in self.records if record.offset < self.end]
        self.start = min(self.start, self.end)
        # Only a new leader makes a replica cut its log.
        self.epoch += 1

    @precondition(lambda self: self.end > self.start)
    @rule(share=st.floats(0, 1), limit=st.integers(0, 2000), max_bytes=st.integers(1, 3000))
    def read(self, share: float, limit: int, max_bytes: int) -> None:
        offset = self.start + int((self.end - self.start - 1) * share)
        up_to = min(offset + limit, self.end + 5)
        piece = self.log.read(offset, max_bytes, up_to)
        expected = self.batch_with(offset)
        if piece is None:
            assert up_to <= expected[-1].offset or up_to <= offset
            return
        content = piece.read()
        assert len(content) == piece.length
        whole = int.from_bytes(content[8:12], "big") + 12
        assert len(content) >= whole
        assert len(content) <= max(max_bytes, whole)
        first = decode_records(content[:whole])
        assert first[0].offset <= offset <= first[-1].offset
        assert all(record in self.records for record in first)
        position = 0
        while len(content) - position >= 61:
            length = int.from_bytes(content[position + 8 : position + 12], "big") + 12
            if position + length > len(content):
                break
            for header, _ in split_batches(memoryview(content)[position : position + length]):
                assert header.last_offset < up_to
            position += length

    def batch_with(self, offset: int) -> list[Record]:
        """The records that came in with the one at `offset`, by the serial number they carry."""
        serial = next(r.value for r in self.records if r.offset == offset and r.value).partition(b".")[0]
        return [r for r in self.records if r.value and r.value.partition(b".")[0] == serial]

    @rule(ago_ms=st.integers(-3000, 60_000))
    def look_up_time(self, ago_ms: int) -> None:
        target = self.now_ms - ago_ms
        found = offset_for_time(self.log, target)
        fitting = [r for r in self.records if r.offset >= self.start and r.timestamp >= target]
        if not fitting:
            assert found is None
        else:
            assert found == (fitting[0].timestamp, fitting[0].offset, self.epoch_of[fitting[0].offset])

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        if clean:
            self.store.close({PARTITION: self.end})
        else:
            self.store.write_checkpoints()
            self.files = self.files.restart()
        self.store, report = load_store(self.files, CONFIG)
        assert report.was_clean is clean
        assert report.recovered == []  # recovery found nothing wrong
        reopened = self.store.get(PARTITION)
        assert reopened is not None
        self.log = reopened

    @rule()
    def out_of_range(self) -> None:
        for offset in (self.start - 1, self.end + 1):
            with pytest.raises(KafkaError) as caught:
                self.log.read(offset, 1, self.end)
            assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    @invariant()
    def log_equals_the_list(self) -> None:
        assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)
        kept = [record for record in read_records(self.log) if record.offset >= self.start]
        assert kept == [record for record in self.records if record.offset >= self.start]
        for record in kept:
            assert self.log.epochs.epoch_for_offset(record.offset) == self.epoch_of[record.offset]


LogMachine.TestCase.settings = settings(
    max_examples=deep(20, quick=10), stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestLogMachine = LogMachine.TestCase
