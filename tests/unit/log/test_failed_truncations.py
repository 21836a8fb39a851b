"""The disk fails at any operation of a truncation or of a roll over a gap: a restart loses no accepted record."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest
from harness.making_logs import NOW_MS, PARTITION, TOPIC_ID, batch_of, load_store, read_values

from moldau.base.errors import StorageFault
from moldau.log.config import LogConfig
from moldau.log.log import Log
from moldau.log.segment import RELATIVE_OFFSET_MAX
from moldau.log.store import LogStore
from moldau.log.txn_index import AbortedTxn, TxnIndex
from moldau.log.validate import Origin
from moldau.testing.files import MemoryFiles

CONFIG = LogConfig(segment_bytes=2 * len(batch_of()))
FAR = RELATIVE_OFFSET_MAX + 100


class FailingFiles(MemoryFiles):
    """Fails the write operation number `fails_at`, and no other."""

    fails_at: int | None = None
    error = errno.EIO

    def step(self) -> None:
        super().step()
        if self.operations == self.fails_at:
            raise StorageFault("data", OSError(self.error, os.strerror(self.error)))


def filled_log(files: MemoryFiles, batches: int = 6) -> tuple[LogStore, Log]:
    store = LogStore(files, "data")
    log = store.create(PARTITION, TOPIC_ID, CONFIG, NOW_MS)
    append(log, batches)
    log.flush()
    store.write_checkpoints()
    return store, log


def append(log: Log, batches: int) -> None:
    for _ in range(batches):
        log.append(batch_of(), leader_epoch=log.end_offset // 2, now_ms=NOW_MS)


def faults_of(change: Callable[[Log], None], error: int) -> list[tuple[FailingFiles, LogStore, Log]]:
    """One log for each operation of `change`, in which that operation failed."""
    failed = []
    for step in range(1, 100):
        files = FailingFiles()
        store, log = filled_log(files)
        files.error, files.fails_at = error, files.operations + step
        try:
            change(log)
        except StorageFault:
            failed.append((files, store, log))
        else:
            assert step > 3, "a truncation has several operations"
            return failed
    raise AssertionError("it fails at every step")


@pytest.mark.parametrize("error", [errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("offset", [1, 2, 3, 5])
def test_a_failed_truncation_refuses_writes(offset: int, error: int) -> None:
    for files, _, log in faults_of(lambda log: log.truncate_to(offset), error):
        assert sorted(read_values(log)) == list(range(log.end_offset))
        assert log.end_offset >= offset
        assert all(files.exists(segment.log_path) for segment in log.segments)
        assert all(entry.start_offset < log.end_offset for entry in log.epochs.entries)
        end_offset = log.end_offset
        if error == errno.EMFILE:
            append(log, 1)  # completes the truncation
            assert sorted(read_values(log)) == list(range(end_offset + 1))
            log.truncate_to(offset)
            append(log, 1)
            assert sorted(read_values(log)) == list(range(offset + 1))
            log.flush()
        else:
            with pytest.raises(StorageFault):
                append(log, 1)
        check_after_restart(files, offset)


def test_a_lasting_lack_of_file_descriptors_refuses_writes() -> None:
    for files, _, log in faults_of(lambda log: log.truncate_to(3), errno.EMFILE):
        files.fails_at = files.operations + 1
        with pytest.raises(StorageFault):
            append(log, 1)
        append(log, 1)


@pytest.mark.parametrize("error", [errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("offset", [0, 2, 77])
def test_a_failed_full_truncation_refuses_writes(offset: int, error: int) -> None:
    for files, _, log in faults_of(lambda log: log.truncate_fully(offset), error):
        if error == errno.EIO:
            with pytest.raises(StorageFault):
                append(log, 1)
        else:
            append(log, 1)  # completes the truncation
            assert sorted(read_values(log)) == [offset]
            log.flush()
        check_after_restart(files, offset)


def check_after_restart(files: MemoryFiles, offset: int) -> None:
    """The log has records without a gap between them, and accepts more."""
    store, report = load_store(files.restart(), CONFIG)
    log = store.get(PARTITION)
    assert log is not None, report.unreadable
    assert sorted(read_values(log)) == list(range(log.start_offset, log.end_offset))
    store.truncate_fully(PARTITION, offset)
    append(log, 3)
    assert sorted(read_values(log)) == list(range(offset, offset + 3))


@pytest.mark.parametrize("offset", [20, 30])
def test_a_failed_truncation_of_the_transaction_index_leaves_it_whole(offset: int) -> None:
    """Lack of space lets the log go on: the next aborted transaction must not follow a hole."""
    for step in range(1, 20):
        files = FailingFiles()
        files.mkdir("d")
        index = TxnIndex(files, "d/0.txnindex")
        for last_offset in (20, 30, 40):
            index.append(AbortedTxn(1, last_offset - 5, last_offset, last_offset + 1))
        files.fails_at, files.error = files.operations + step, errno.ENOSPC
        try:
            index.truncate(offset)
        except StorageFault:
            index.append(AbortedTxn(2, 45, 50, 51))
            assert [txn.last_offset for txn in index.transactions()] == [20, 30, 40, 50]
            assert TxnIndex(files, index.path).transactions() == index.transactions()
        else:
            assert [txn.last_offset for txn in index.transactions()] == [end for end in (20, 30, 40) if end < offset]
            assert TxnIndex(files, index.path).transactions() == index.transactions()
            return
    raise AssertionError("it fails at every step")


def test_a_truncated_transaction_index_keeps_what_is_not_written_yet() -> None:
    files = FailingFiles()
    files.mkdir("d")
    index = TxnIndex(files, "d/0.txnindex")
    index.append(AbortedTxn(1, 15, 20, 21))
    files.error = errno.ENOSPC
    for last_offset in (30, 40):
        files.fails_at = files.operations + 1
        with pytest.raises(StorageFault):
            index.append(AbortedTxn(1, last_offset - 5, last_offset, last_offset + 1))
    index.truncate(40)
    index.write()
    assert [txn.last_offset for txn in TxnIndex(files, index.path).transactions()] == [20, 30]


@pytest.mark.parametrize("batches", [0, 1, 2])
def test_a_failed_append_of_a_batch_after_a_wide_gap_can_be_repeated(batches: int) -> None:
    """A follower rolls first: the log then ends where its last segment begins."""
    for step in range(1, 20):
        files = FailingFiles()
        _, log = filled_log(files, batches)
        files.fails_at, files.error = files.operations + step, errno.ENOSPC
        batch = batch_of()
        batch[:8] = FAR.to_bytes(8, "big")
        try:
            log.append(batch, leader_epoch=0, now_ms=NOW_MS, origin=Origin.REPLICATION)
        except StorageFault:
            assert log.start_offset <= log.end_offset
            assert log.segments.active.base_offset <= log.end_offset
            log.append(batch, leader_epoch=0, now_ms=NOW_MS, origin=Origin.REPLICATION)
            assert sorted(read_values(log)) == [*range(batches), FAR]
        else:
            assert step > 3
            return
    raise AssertionError("it fails at every step")
