"""Power is lost at every operation on the disk, one after the other. After the recovery, flushed records are there once
and in order, there are no records that were never written, and the log can be read and written, with duplicates
recognised.
"""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from harness.depth import sample
from harness.making_logs import (
    NOW_MS,
    PARTITION,
    TOPIC_ID,
    batch_of,
    load_store,
    new_log,
    offset_for_time,
    read_batches,
    read_values,
)

from moldau.base.ids import TopicPartition
from moldau.log import layout
from moldau.log.config import LogConfig
from moldau.log.log import Log
from moldau.log.store import LogStore
from moldau.testing.files import MemoryFiles, PowerLoss
from moldau.wire.batch import has_valid_crc
from moldau.wire.records import decode_records

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150, retention_bytes=4000, retention_ms=-1)
HOUR_MS = 3600 * 1000


class History:
    """The values written to a log and flushed: those that a crash may leave, and those that it must leave."""

    def __init__(self) -> None:
        self.written: dict[int, set[bytes]] = {}
        """Every value ever given to an offset."""
        self.promised: dict[int, bytes] = {}
        """Values that were flushed, and not deleted or truncated since."""
        self.current: dict[int, bytes] = {}
        self.sequences = {1: 0, 2: 0}
        self.epoch = 0
        self.serial = 0

    def remove_from(self, offset: int) -> None:
        self.current = {at: value for at, value in self.current.items() if at < offset}
        self.promised = {at: value for at, value in self.promised.items() if at < offset}

    def remove_below(self, offset: int) -> None:
        self.current = {at: value for at, value in self.current.items() if at >= offset}
        self.promised = {at: value for at, value in self.promised.items() if at >= offset}


class Scenario:
    """A fixed sequence of operations on a store, until power is lost."""

    def __init__(self, files: MemoryFiles) -> None:
        self.files = files
        self.history = History()
        self.store: LogStore
        self.log: Log

    def run(self) -> None:
        self.store, _ = load_store(self.files, CONFIG)
        self.log = self.store.create(PARTITION, TOPIC_ID, CONFIG, NOW_MS)
        self.append(6)
        self.flush()
        self.append(5)
        self.new_leader()
        self.append(4)
        self.flush()
        self.store.write_checkpoints({PARTITION: self.log.end_offset})
        self.append(3)
        self.delete_records(5)
        self.retain()
        self.store.write_checkpoints({PARTITION: self.log.end_offset})
        self.append(4)
        self.reopen()
        self.append(5)
        self.flush()
        self.store.write_checkpoints({PARTITION: self.log.end_offset})
        self.truncate(self.log.end_offset - 14)
        self.new_leader()
        self.append(6)
        self.flush()
        self.append(2)
        self.store.write_checkpoints({PARTITION: self.log.end_offset})
        self.append(3)
        self.reopen()

    def append(self, count: int) -> None:
        history = self.history
        for _ in range(count):
            history.serial += 1
            producer_id = 1 + history.serial % 2
            size = 1 + history.serial % 3
            values = [b"%d/%d " % (history.serial, index) * (5 + 20 * index) for index in range(size)]
            batch = batch_of(
                values,
                timestamp=NOW_MS + history.serial,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=history.sequences[producer_id],
            )
            first = self.log.end_offset
            for offset, value in enumerate(values, first):
                history.written.setdefault(offset, set()).add(value)
            self.log.append(batch, leader_epoch=history.epoch, now_ms=NOW_MS)
            history.sequences[producer_id] += size
            history.current.update(enumerate(values, first))

    def flush(self) -> None:
        self.log.flush()
        self.history.promised = dict(self.history.current)

    def new_leader(self) -> None:
        self.history.epoch += 2

    def delete_records(self, offset: int) -> None:
        self.history.remove_below(offset)
        self.log.delete_records(offset)

    def retain(self) -> None:
        # The log decides which segments to delete; it may delete everything below its last segment.
        promised = self.history.promised
        self.history.remove_below(self.log.segments.active.base_offset)
        self.log.delete_expired(NOW_MS, self.log.end_offset)
        self.history.promised = promised
        self.history.current = dict(read_values(self.log))  # type: ignore[arg-type]
        self.history.remove_below(self.log.start_offset)
        self.log.purge(NOW_MS + HOUR_MS)

    def truncate(self, offset: int) -> None:
        self.history.remove_from(self.log.end_after_truncation(offset))
        self.store.truncate(PARTITION, offset)
        for producer in self.log.producers.active():
            self.history.sequences[producer.producer_id] = producer.last_sequence + 1

    def reopen(self) -> None:
        self.store.close({PARTITION: self.log.end_offset})
        self.history.promised = dict(self.history.current)
        self.store, report = load_store(self.files, CONFIG)
        assert report.was_clean
        assert report.recovered == []
        reopened = self.store.get(PARTITION)
        assert reopened is not None
        self.log = reopened


def operations_of_a_whole_run() -> int:
    files = MemoryFiles()
    Scenario(files).run()
    return files.operations


def check_recovered(log: Log, history: History) -> None:
    batches = read_batches(log)
    for (before, _), (after, _) in pairwise(batches):
        assert after.base_offset == before.next_offset, "a gap in the log"
    for header, batch in batches:
        assert has_valid_crc(memoryview(batch))
        assert log.epochs.epoch_for_offset(max(header.base_offset, log.start_offset)) == header.leader_epoch
        for record in decode_records(batch):
            assert record.value in history.written[record.offset], "a record that was never written at this offset"
    values = read_values(log)
    for offset, value in history.promised.items():
        if offset >= log.start_offset:
            assert values.get(offset) == value, f"offset {offset} was flushed and is missing"
    check_indexes(log)
    check_producers(log)


def check_indexes(log: Log) -> None:
    """Every offset is found where a scan of the whole log finds it."""
    for header, batch in read_batches(log):
        for offset in range(max(header.base_offset, log.start_offset), header.next_offset):
            piece = log.read(offset, 1, log.end_offset)
            assert piece is not None
            assert piece.read() == batch
        found = offset_for_time(log, header.max_timestamp)
        assert found is not None
        assert found.timestamp >= header.max_timestamp
        assert found.offset <= header.last_offset
    for segment in log.segments:
        segment.release()


def check_producers(log: Log) -> None:
    """The last batch of each producer is a duplicate when it is repeated, and the next one is accepted."""
    last = {header.producer_id: (header, batch) for header, batch in read_batches(log)}
    known = {entry.producer_id: entry.last_sequence for entry in log.producers.active()}
    for producer_id, (header, batch) in last.items():
        assert known[producer_id] == header.last_sequence
        again = memoryview(bytearray(batch))
        again[:8] = bytes(8)
        appended = log.append(again, leader_epoch=header.leader_epoch, now_ms=NOW_MS)
        assert appended.duplicate
        assert appended.first_offset == header.base_offset
    for producer_id, sequence in known.items():
        following = batch_of(producer_id=producer_id, producer_epoch=0, base_sequence=sequence + 1)
        end_offset = log.end_offset
        assert log.append(following, leader_epoch=100, now_ms=NOW_MS).first_offset == end_offset


def recovered_log(files: MemoryFiles) -> Log | None:
    store, report = load_store(files, CONFIG)
    assert report.unreadable == []
    assert not any(recovered.lost_durable for recovered in report.recovered)
    return store.get(TopicPartition(*PARTITION))


@pytest.mark.parametrize("seed", range(4))
def test_power_lost_at_every_operation(seed: int) -> None:
    total = operations_of_a_whole_run()
    assert total > 150, "the scenario has too few operations for this test"
    for lost_at in sample(range(total), 4, first=seed):
        files = MemoryFiles()
        files.power_lost_at = lost_at
        scenario = Scenario(files)
        with pytest.raises(PowerLoss):
            scenario.run()
        log = recovered_log(files.crash(random.Random(f"{seed} {lost_at}")))
        try:
            if log is not None:
                check_recovered(log, scenario.history)
            else:
                assert not scenario.history.promised
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, power lost at operation {lost_at}: {error}") from error


@pytest.mark.parametrize("seed", range(2))
def test_power_lost_during_recovery(seed: int) -> None:
    """An interrupted recovery must succeed the next time."""
    total = operations_of_a_whole_run()
    for lost_at in range(40, total, 7):
        files = MemoryFiles()
        files.power_lost_at = lost_at
        scenario = Scenario(files)
        with pytest.raises(PowerLoss):
            scenario.run()
        rng = random.Random(f"{seed} {lost_at}")
        files = files.crash(rng)
        for lost_again_at in (1, 3, 7):
            files.power_lost_at = lost_again_at
            try:
                load_store(files, CONFIG)
            except PowerLoss:
                files = files.crash(rng)
            else:
                files = files.restart()
        log = recovered_log(files)
        assert log is not None
        check_recovered(log, scenario.history)


def test_segments_rolled_before_a_truncation_are_synced_by_the_next_flush() -> None:
    """The recovery point moves past them, and recovery does not read them again."""
    for seed in range(20):
        files = MemoryFiles()
        log = new_log(CONFIG, files)
        while len(log.segments) < 3 or log.segments.active.size < CONFIG.segment_bytes // 2:
            log.append(batch_of(), leader_epoch=0, now_ms=NOW_MS)
        log.truncate_to(log.end_offset - 1)
        log.flush()
        end_offset = log.end_offset
        assert log.recovery_point == end_offset
        again = recovered_log(files.crash(random.Random(seed)))
        assert again is not None
        assert [header.base_offset for header, _ in read_batches(again)] == list(range(end_offset))


def test_a_flush_does_not_rely_on_another_in_progress() -> None:
    """Closing or cleaning a log does not wait for the flush of the thread."""
    for seed in range(20):
        files = MemoryFiles()
        log = new_log(CONFIG, files)
        while len(log.segments) < 2:
            log.append(batch_of(), leader_epoch=0, now_ms=NOW_MS)
        log.append(batch_of(), leader_epoch=1, now_ms=NOW_MS)
        assert log.begin_flush() is not None
        log.flush()
        epochs, end_offset = log.epochs.entries, log.end_offset
        again = recovered_log(files.crash(random.Random(seed)))
        assert again is not None
        assert [header.base_offset for header, _ in read_batches(again)] == list(range(end_offset))
        assert again.epochs.entries == epochs
        assert files.read(f"{log.directory}/{layout.LEADER_EPOCH_CHECKPOINT}") == log.epochs.encode()


def test_truncated_segments_do_not_reappear_after_a_crash() -> None:
    """Otherwise they would follow the records that are written next, perhaps by a leader of the same epoch."""
    for seed in range(20):
        files = MemoryFiles()
        scenario = Scenario(files)
        scenario.store, _ = load_store(files, CONFIG)
        scenario.log = scenario.store.create(PARTITION, TOPIC_ID, CONFIG, NOW_MS)
        scenario.append(20)
        scenario.flush()
        (first, second, *_) = scenario.log.segments
        scenario.store.truncate(PARTITION, first.base_offset + 2)
        log = recovered_log(files.crash(random.Random(seed)))
        assert log is not None
        assert log.end_offset <= second.base_offset


def test_a_killed_process_loses_no_acknowledged_record() -> None:
    """kill -9: the page cache survives, so every acknowledged record must."""
    total = operations_of_a_whole_run()
    for lost_at in range(0, total, 3):
        files = MemoryFiles()
        files.power_lost_at = lost_at
        scenario = Scenario(files)
        with pytest.raises(PowerLoss):
            scenario.run()
        log = recovered_log(files.restart())
        if log is None:
            assert not scenario.history.current
            continue
        values = read_values(log)
        for offset, value in scenario.history.current.items():
            if offset >= log.start_offset:
                assert values.get(offset) == value
        check_recovered(log, scenario.history)
