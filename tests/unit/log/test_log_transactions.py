"""Transactions in a log: which markers may enter, the last stable offset, the list of aborted transactions."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import nullcontext

import pytest
from harness.making_logs import NOW_MS, PARTITION, TOPIC_ID, batch_of, load_store, new_log
from harness.reading_committed import read_committed
from writing_producers import end, end_refused, refused, send

from moldau.base.errors import ErrorCode, KafkaError, StorageFault
from moldau.log import layout
from moldau.log.config import LogConfig
from moldau.log.log import Log
from moldau.log.producers import EPOCH_MAX
from moldau.log.reading import aborted_between
from moldau.log.txn_index import AbortedTxn, TxnIndex
from moldau.log.validate import Origin
from moldau.testing.files import MemoryFile, MemoryFiles

MARKER_BYTES = 78


def test_last_stable_offset_waits_for_markers_and_for_the_high_watermark() -> None:
    log = new_log()
    send(log, 0, producer_id=1)
    send(log, 0, 2, producer_id=2, is_transactional=True)
    send(log, 0, 2, producer_id=3, is_transactional=True)
    assert log.last_stable_offset(5) == 1
    assert log.last_stable_offset(0) == 0
    end(log, commit=True, producer_id=2)
    assert log.last_stable_offset(5) == 1, "the marker at 5 is not replicated yet"
    assert log.last_stable_offset(6) == 3
    end(log, commit=False, producer_id=3)
    assert log.last_stable_offset(7) == 7
    assert aborted_between(log.segments, 0, 7) == [(3, 3, 6, 7)]
    assert aborted_between(log.segments, 0, 3) == []


@pytest.mark.parametrize("rolls_before", [(), (1,), (3,), (1, 3)])
@pytest.mark.parametrize("is_closed", [True, False])
def test_an_unreplicated_marker_holds_back_the_last_stable_offset_after_a_restart(
    rolls_before: tuple[int, ...], is_closed: bool
) -> None:
    """Snapshots have open transactions only, not those that have just ended."""
    files = MemoryFiles()
    store, _ = load_store(files)
    log = store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    steps = [
        lambda: send(log, 0, producer_id=1),
        lambda: send(log, 0, 2, producer_id=2, is_transactional=True),
        lambda: send(log, 0, producer_id=3, is_transactional=True),
        lambda: end(log, commit=False, producer_id=2),
        lambda: end(log, commit=True, producer_id=3),
    ]
    for number, step in enumerate(steps):
        if number in rolls_before:
            log.roll(NOW_MS)
        step()
    log.roll(NOW_MS)
    log.flush()
    store.write_checkpoints({PARTITION: 4})
    if is_closed:
        store.close({PARTITION: 4})
    again = load_store(files.restart())[0].get(PARTITION)
    assert again is not None
    assert [again.last_stable_offset(high_watermark) for high_watermark in range(7)] == [0, 1, 1, 1, 1, 3, 6]


def test_an_unreplicated_marker_holds_back_the_last_stable_offset_after_a_truncation() -> None:
    log = new_log()
    send(log, 0, producer_id=2, is_transactional=True)
    end(log, commit=True, producer_id=2)
    log.roll(NOW_MS)
    send(log, 0, producer_id=1)
    log.truncate_to(2)
    assert [log.last_stable_offset(high_watermark) for high_watermark in range(3)] == [0, 0, 2]


def test_a_plain_batch_within_a_transaction_is_refused() -> None:
    log = new_log()
    send(log, 0, is_transactional=True)
    assert refused(log, 1) is ErrorCode.INVALID_TXN_STATE


def test_markers_of_fenced_producers_and_coordinators_are_refused() -> None:
    log = new_log()
    send(log, 0, epoch=5, is_transactional=True)
    end(log, commit=True, epoch=5, coordinator_epoch=4)
    assert end_refused(log, epoch=4, coordinator_epoch=4) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end_refused(log, epoch=5, coordinator_epoch=3) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert end_refused(log, epoch=4, coordinator_epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH, "the epoch comes first"
    end(log, commit=True, epoch=5, coordinator_epoch=5)
    assert end_refused(log, epoch=5, coordinator_epoch=4) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


@pytest.mark.parametrize("version", [0, 1])
def test_a_marker_may_have_the_epoch_of_its_records(version: int) -> None:
    log = new_log()
    send(log, 0, epoch=5, is_transactional=True)
    assert end_refused(log, epoch=4, version=version) is ErrorCode.INVALID_PRODUCER_EPOCH
    end(log, commit=True, epoch=5, version=version)
    send(log, 1, epoch=5, is_transactional=True)
    end(log, commit=True, epoch=6, version=version)
    assert not log.producers.has_open_transaction(7, 6)


def test_a_late_marker_of_version_2_does_not_end_the_next_transaction() -> None:
    log = new_log()
    send(log, 0, epoch=5, is_transactional=True, version=2)
    for epoch in (4, 5):
        assert end_refused(log, epoch=epoch, version=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    end(log, commit=True, epoch=6, version=2)
    send(log, 0, epoch=6, is_transactional=True, version=2)
    assert end_refused(log, epoch=6, version=2) is ErrorCode.INVALID_PRODUCER_EPOCH, "it repeats the marker before"
    assert log.producers.has_open_transaction(7, 6)
    end(log, commit=False, epoch=7, version=2)
    assert [each[:3] for each in aborted_between(log.segments, 0, 9)] == [(7, 2, 3)]


def test_a_repeated_marker_of_version_2_is_accepted_if_no_transaction_is_open() -> None:
    log = new_log()
    send(log, 0, epoch=5, is_transactional=True, version=2)
    end(log, commit=False, epoch=6, version=2)
    end(log, commit=False, epoch=6, version=2)
    assert end_refused(log, epoch=5, version=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert [each[:3] for each in aborted_between(log.segments, 0, 9)] == [(7, 0, 1)], "the second ended nothing"
    assert log.last_stable_offset(3) == 3


def test_a_transaction_of_the_largest_epoch_can_be_ended() -> None:
    log = new_log()
    send(log, 0, epoch=EPOCH_MAX, is_transactional=True)
    end(log, commit=True, epoch=EPOCH_MAX, version=2)
    assert log.last_stable_offset(2) == 2


def test_only_the_epoch_that_wrote_has_an_open_transaction() -> None:
    log = new_log()
    assert not log.producers.has_open_transaction(7, 3)
    send(log, 0, epoch=3)
    assert not log.producers.has_open_transaction(7, 3), "the batch is not transactional"
    send(log, 1, epoch=3, is_transactional=True)
    assert [epoch for epoch in range(6) if log.producers.has_open_transaction(7, epoch)] == [3]
    end(log, commit=True, epoch=3)
    assert not log.producers.has_open_transaction(7, 3)


def test_an_unknown_producer_of_version_2_must_begin_at_sequence_0() -> None:
    log = new_log()
    assert refused(log, 5, is_transactional=True, version=2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 5, producer_id=8, is_transactional=True, version=1)
    send(log, 5, producer_id=9, version=2)
    send(log, 0, is_transactional=True, version=2)
    send(log, 1, is_transactional=True, version=2)


def test_a_marker_for_an_unknown_producer_sets_its_epoch() -> None:
    log = new_log()
    end(log, commit=False, epoch=4, coordinator_epoch=2)
    assert log.last_stable_offset(1) == 1
    assert aborted_between(log.segments, 0, 1) == []
    assert refused(log, 0, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, 3, epoch=4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert end_refused(log, epoch=4, coordinator_epoch=1) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    send(log, 0, epoch=4, is_transactional=True)


def test_offsets_committed_by_a_coordinator_are_checked_by_epoch_only() -> None:
    log = new_log()
    send(log, 4, epoch=2, is_transactional=True)

    def commit_offsets(epoch: int, is_transactional: bool = True) -> None:
        batch = batch_of(producer_id=7, producer_epoch=epoch, is_transactional=is_transactional)
        log.append(batch, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)

    commit_offsets(2)
    for epoch, is_transactional, code in (
        (1, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, False, ErrorCode.INVALID_TXN_STATE),
    ):
        with pytest.raises(KafkaError) as caught:
            commit_offsets(epoch, is_transactional)
        assert caught.value.code is code
    assert log.last_stable_offset(2) == 0


def test_transactions_and_plain_batches_of_one_producer_may_alternate() -> None:
    log = new_log()
    send(log, 0)
    send(log, 1, is_transactional=True)
    assert refused(log, 2) is ErrorCode.INVALID_TXN_STATE
    end(log, commit=True)
    send(log, 2)
    assert log.last_stable_offset(4) == 4


def test_a_marker_is_never_too_large() -> None:
    log = new_log(LogConfig(max_message_bytes=75))
    send(log, 0, is_transactional=True)
    end(log, commit=True)
    assert log.last_stable_offset(2) == 2


def test_replicated_ended_transactions_are_forgotten() -> None:
    log = new_log()
    for sequence in range(50):
        send(log, sequence, is_transactional=True)
        end(log, commit=True)
        log.producers.forget_replicated(log.end_offset)
    assert len(log.producers.unreplicated) == 0
    assert log.last_stable_offset(log.end_offset) == 100


# --- deletion and truncation ------------------------------------------------------------------------------------


def test_a_log_may_begin_in_the_middle_of_an_open_transaction() -> None:
    log = new_log()
    for sequence in range(4):
        send(log, sequence, is_transactional=True)
    send(log, 0, producer_id=8)
    log.delete_records(2)
    assert log.last_stable_offset(5) == 2, "never below the start of the log"
    end(log, commit=False)
    assert log.last_stable_offset(6) == 6
    assert aborted_between(log.segments, 2, 6) == [(7, 0, 5, 6)]
    assert [record.offset for record in read_committed(log, 6)] == [4]


def test_truncating_a_marker_reopens_its_transaction() -> None:
    files = MemoryFiles()
    store, _ = load_store(files)
    log = store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    send(log, 0, is_transactional=True)
    end(log, commit=False)
    send(log, 1, is_transactional=True)
    store.truncate(PARTITION, 1)
    assert log.producers.has_open_transaction(7, 0)
    assert aborted_between(log.segments, 0, 9) == []
    assert log.last_stable_offset(1) == 0
    end(log, commit=True)
    assert [record.offset for record in read_committed(log, 2)] == [0], "committed after the truncation of its abort"


def test_truncating_the_first_batch_removes_its_transaction() -> None:
    store, _ = load_store(MemoryFiles())
    log = store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    send(log, 0)
    send(log, 1, is_transactional=True)
    send(log, 2, is_transactional=True)
    store.truncate(PARTITION, 1)
    assert not log.producers.has_open_transaction(7, 0)
    assert log.last_stable_offset(1) == 1
    send(log, 1)


def test_aborted_transactions_over_many_segments() -> None:
    """One that spans all of them and short ones within; only those that a reader needs are returned."""
    log = new_log(LogConfig(segment_bytes=300, index_interval_bytes=1))
    send(log, 0, producer_id=1, is_transactional=True)
    for number in range(10):
        send(log, number, producer_id=2, is_transactional=True)
        end(log, commit=False, producer_id=2)
    end(log, commit=False, producer_id=1)
    assert len(log.segments) > 4
    found = [each[:2] for each in aborted_between(log.segments, 5, 10)]
    assert found == [(1, 0), (2, 5), (2, 7), (2, 9)]
    piece = log.read(5, 150, 22)
    assert piece is not None
    assert [each[:2] for each in log.aborted_in(piece, 5, 22)] == [(1, 0), (2, 5)]
    assert read_committed(log, 22) == []


def test_logs_without_aborted_transactions_read_no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log(LogConfig(segment_bytes=300))
    for sequence in range(12):
        send(log, sequence, is_transactional=True)
        end(log, commit=True)

    def read_piece(log: Log) -> Sequence[AbortedTxn]:
        piece = log.read(0, 100, 24)
        assert piece is not None
        return log.aborted_in(piece, 0, 24)

    assert read_piece(log) == ()
    with monkeypatch.context() as patch:
        patch.setattr(TxnIndex, "transactions", lambda _: pytest.fail("an index was read"))
        assert read_piece(log) == ()
    send(log, 12, is_transactional=True)
    end(log, commit=False)
    piece = log.read(24, 100, 26)
    assert piece is not None
    assert [each[:2] for each in log.aborted_in(piece, 24, 26)] == [(7, 24)]


def test_a_marker_with_a_new_epoch_restarts_sequences_at_0() -> None:
    log = new_log()
    send(log, 0, 3, is_transactional=True)
    end(log, commit=False, epoch=1)
    assert refused(log, 3, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(log, 3, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    send(log, 0, epoch=1)


def test_aborted_transactions_survive_a_crash_and_a_clean_restart() -> None:
    config = LogConfig(segment_bytes=300)
    files = MemoryFiles()
    store, _ = load_store(files, config)
    log = store.create(PARTITION, TOPIC_ID, config, NOW_MS)
    for sequence in range(6):
        send(log, sequence, is_transactional=True)
        end(log, commit=sequence % 2 == 0)
    send(log, 6, is_transactional=True)
    expected = aborted_between(log.segments, 0, 100)
    assert len(expected) == 3
    stable = log.last_stable_offset(log.end_offset)
    for is_clean in (False, True):
        store, report = load_store(files.restart(), config)
        assert report.was_clean is is_clean
        reopened = store.get(PARTITION)
        assert reopened is not None
        assert aborted_between(reopened.segments, 0, 100) == expected
        assert reopened.last_stable_offset(log.end_offset) == stable
        store.close()


class RefusesIndexes(MemoryFiles):
    """Refuses to open transaction indexes with `error`, if that is set; other files are not affected. A lack of file
    descriptors refuses reads too."""

    error = 0

    def read(self, path: str) -> bytes | None:
        if self.error == errno.EMFILE and path.endswith(layout.TXN_INDEX):
            raise StorageFault(path, OSError(self.error, "refused"))
        return super().read(path)

    def open(self, path: str, *, create: bool = False, stays_open: bool = False) -> MemoryFile:
        if self.error and path.endswith(layout.TXN_INDEX):
            raise StorageFault(path, OSError(self.error, "refused"))
        return super().open(path, create=create, stays_open=stays_open)


def test_a_disk_error_on_indexing_an_abort_stops_the_log_until_recovery() -> None:
    files = RefusesIndexes()
    store, _ = load_store(files)
    log = store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    send(log, 0, is_transactional=True)
    files.error = errno.EIO
    with pytest.raises(StorageFault):
        end(log, commit=False)
    assert log.fault is not None
    recovered = load_store(files.restart())[0].get(PARTITION)
    assert recovered is not None
    assert aborted_between(recovered.segments, 0, 9) == [(7, 0, 1, 2)]


@pytest.mark.parametrize("index_bytes", [0, 10])
def test_an_abort_on_a_full_disk_is_indexed_later(index_bytes: int) -> None:
    files = MemoryFiles()
    store, _ = load_store(files)
    log = store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    send(log, 0, is_transactional=True)
    files.bytes_left = MARKER_BYTES + index_bytes
    end(log, commit=False)
    assert log.fault is None
    for left in (0, None):
        files.bytes_left = left
        with pytest.raises(StorageFault) if left == 0 else nullcontext():
            log.flush()
    assert TxnIndex(files, log.segments.active.txn_index.path).transactions() == [(7, 0, 1, 2)]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE])
def test_a_shortage_delays_only_the_index_of_aborted_transactions(error: int) -> None:
    files = RefusesIndexes()
    store, _ = load_store(files)
    log = store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    files.error = error
    for sequence in (0, 1):
        send(log, sequence, is_transactional=True)
        end(log, commit=False)
    with pytest.raises(StorageFault):
        log.flush()
    with pytest.raises(StorageFault):
        log.roll(NOW_MS)
    assert (log.end_offset, len(log.segments), log.fault) == (4, 1, None)
    log.segments.active.txn_index.release()
    aborted = [(7, 0, 1, 2), (7, 2, 3, 4)]
    with pytest.raises(StorageFault) if error == errno.EMFILE else nullcontext():
        assert log.aborted_between(0, 4) == aborted
    files.error = 0
    assert log.aborted_between(0, 4) == aborted
    log.roll(NOW_MS)
    send(log, 2)
    log.segments.first.release()
    assert log.aborted_between(0, 4) == aborted
    store.close()
    loaded = load_store(files)[0].get(PARTITION)
    assert loaded is not None
    assert loaded.aborted_between(0, 4) == aborted
