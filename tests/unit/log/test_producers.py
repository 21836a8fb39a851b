"""Idempotent and transactional producers: repeats, gaps, epochs, the wrap, expiry, snapshots."""

from __future__ import annotations

import pytest
from making_logs import NOW_MS, PARTITION, TOPIC_ID, batch_of, load_store, new_log

from moldau.base.errors import ErrorCode, KafkaError, MalformedData, StorageFault
from moldau.log.config import LogConfig
from moldau.log.log import Appended, Log
from moldau.log.producer_snapshot import decode_snapshot, encode_snapshot
from moldau.log.producers import BatchMemory, ProducerEntry, Producers
from moldau.log.validate import Origin
from moldau.testing.files import MemoryFiles
from moldau.wire.records import EndTxnMarker, build_batch, end_txn_marker

SEQUENCE_MAX = 2**31 - 1


def send(
    log: Log, sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 7, is_transactional: bool = False
) -> Appended:
    batch = batch_of(
        [b"v"] * count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    return log.append(batch, leader_epoch=0, now_ms=NOW_MS)


def end(log: Log, *, commit: bool, epoch: int = 0, producer_id: int = 7, coordinator_epoch: int = 0) -> Appended:
    marker = end_txn_marker(EndTxnMarker(commit, coordinator_epoch), NOW_MS)
    batch = build_batch([marker], is_control=True, is_transactional=True, producer_id=producer_id, producer_epoch=epoch)
    return log.append(memoryview(batch), leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)


def refused(log: Log, sequence: int, count: int = 1, **kwargs: int) -> ErrorCode:
    before = log.end_offset
    with pytest.raises(KafkaError) as caught:
        send(log, sequence, count, **kwargs)
    assert log.end_offset == before
    return caught.value.code


def test_the_last_five_batches_are_known_again() -> None:
    log = new_log()
    sent = {sequence: send(log, sequence, 2) for sequence in range(0, 14, 2)}
    for sequence in (4, 6, 8, 10, 12):
        again = send(log, sequence, 2)
        assert again.duplicate
        assert (again.first_offset, again.last_offset) == (sent[sequence].first_offset, sent[sequence].last_offset)
    assert refused(log, 2, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.end_offset == 14


def test_gaps_and_other_borders_are_out_of_order() -> None:
    log = new_log()
    send(log, 0, 3)
    assert refused(log, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(log, 0, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(log, 1, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 3)


def test_an_unknown_producer_may_begin_anywhere() -> None:
    log = new_log()
    assert send(log, 500).first_offset == 0
    assert refused(log, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_epochs() -> None:
    log = new_log()
    send(log, 0, epoch=3)
    assert refused(log, 1, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, 1, epoch=4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 0, epoch=4)
    assert refused(log, 0, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(log, 0, epoch=4).duplicate


def test_batches_of_an_older_epoch_are_no_repeats() -> None:
    log = new_log()
    for sequence in range(3):
        send(log, sequence, epoch=3)
    send(log, 0, epoch=4)
    assert send(log, 1, epoch=4) == (4, 4, -1, False)
    assert send(log, 2, epoch=4) == (5, 5, -1, False)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_sequences_wrap_to_zero(count: int) -> None:
    log = new_log()
    send(log, SEQUENCE_MAX - 1, count)
    following = (count - 2) if count > 1 else SEQUENCE_MAX
    assert send(log, SEQUENCE_MAX - 1, count).duplicate
    wrong = following + 1 if following < SEQUENCE_MAX else 5
    assert refused(log, wrong) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not send(log, following).duplicate


def test_expiry() -> None:
    log = new_log()
    send(log, 5)
    send(log, 0, producer_id=8, is_transactional=True)
    assert log.producers.expire(NOW_MS + 999, 1000) == 0
    assert log.producers.expire(NOW_MS + 1000, 1000) == 1
    assert [entry.producer_id for entry in log.producers.active()] == [8], "an open transaction is kept"
    send(log, 77)


def test_active_producers_as_described() -> None:
    log = new_log()
    send(log, 0, 3, epoch=2, producer_id=70, is_transactional=True)
    (entry,) = log.producers.active()
    assert (entry.producer_id, entry.epoch, entry.last_sequence, entry.last_timestamp) == (70, 2, 2, NOW_MS)
    assert (entry.coordinator_epoch, entry.transaction_start) == (-1, 0)
    end(log, commit=True, epoch=2, producer_id=70, coordinator_epoch=9)
    (entry,) = log.producers.active()
    assert (entry.coordinator_epoch, entry.transaction_start) == (9, -1)


# --- transactions -----------------------------------------------------------------------------------------------


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
    assert log.aborted_transactions(0, 7) == [(3, 3, 6, 7)]
    assert log.aborted_transactions(0, 3) == []


def test_a_plain_batch_within_a_transaction_is_refused() -> None:
    log = new_log()
    send(log, 0, is_transactional=True)
    assert refused(log, 1) is ErrorCode.INVALID_TXN_STATE


def test_markers_of_the_fenced_are_refused() -> None:
    log = new_log()
    send(log, 0, epoch=5, is_transactional=True)
    end(log, commit=True, epoch=5, coordinator_epoch=4)
    for kwargs, code in (
        ({"epoch": 4, "coordinator_epoch": 4}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({"epoch": 5, "coordinator_epoch": 3}, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    ):
        with pytest.raises(KafkaError) as caught:
            end(log, commit=True, **kwargs)
        assert caught.value.code is code


def test_a_marker_with_a_new_epoch_starts_the_count_anew() -> None:
    log = new_log()
    send(log, 0, 3, is_transactional=True)
    end(log, commit=False, epoch=1)
    assert refused(log, 3, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(log, 3, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    send(log, 0, epoch=1)


def test_aborted_transactions_survive_every_kind_of_restart() -> None:
    config = LogConfig(segment_bytes=300)
    files = MemoryFiles()
    store, _ = load_store(files, config)
    log = store.create(PARTITION, TOPIC_ID, config, NOW_MS)
    for sequence in range(6):
        send(log, sequence, is_transactional=True)
        end(log, commit=sequence % 2 == 0)
    send(log, 6, is_transactional=True)
    expected = log.aborted_transactions(0, 100)
    assert len(expected) == 3
    stable = log.last_stable_offset(log.end_offset)
    crashed, _ = load_store(files.restart(), config)
    for reopened in (crashed.get(PARTITION),):
        assert reopened is not None
        assert reopened.aborted_transactions(0, 100) == expected
        assert reopened.last_stable_offset(log.end_offset) == stable
    crashed.close()
    closed = load_store(files.restart(), config)[0].get(PARTITION)
    assert closed is not None
    assert closed.aborted_transactions(0, 100) == expected
    assert closed.last_stable_offset(log.end_offset) == stable


def test_an_abort_that_the_index_would_not_take_ends_the_log_until_recovery() -> None:
    files = MemoryFiles()
    store, _ = load_store(files)
    log = store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    send(log, 0, is_transactional=True)
    files.bytes_left = 78 + 10
    with pytest.raises(StorageFault):
        end(log, commit=False)
    assert log.fault is not None
    files = files.restart()
    recovered = load_store(files)[0].get(PARTITION)
    assert recovered is not None
    assert recovered.aborted_transactions(0, 9) == [(7, 0, 1, 2)]


# --- snapshots --------------------------------------------------------------------------------------------------


def test_snapshots_come_back_and_are_checked() -> None:
    plain = ProducerEntry(7, 2, NOW_MS, coordinator_epoch=3, transaction_start=40)
    plain.batches.append(BatchMemory(SEQUENCE_MAX, 1, 40, 42, NOW_MS))
    never_wrote = ProducerEntry(8, 0, NOW_MS)
    content = encode_snapshot([plain, never_wrote])
    assert decode_snapshot(content) == [plain, never_wrote]
    assert len(content) == 10 + 2 * 46
    for position in range(len(content)):
        broken = bytearray(content)
        broken[position] ^= 1
        with pytest.raises(MalformedData):
            decode_snapshot(bytes(broken))
        with pytest.raises(MalformedData):
            decode_snapshot(content[:position])


def test_loading_finds_open_transactions_in_order() -> None:
    producers = Producers()
    late, early = ProducerEntry(1, 0, 0, transaction_start=90), ProducerEntry(2, 0, 0, transaction_start=30)
    producers.load([late, early, ProducerEntry(3, 0, 0)])
    assert producers.oldest_open_transaction == 30
    assert producers.first_unstable_offset(100) == 30


def test_a_restart_does_not_forget_batches_that_may_be_repeated() -> None:
    """Kafka's snapshots hold the last batch alone; a producer with five in flight repeats all of them."""
    files = MemoryFiles()
    store, _ = load_store(files)
    log = store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    sent = {}
    for sequence in range(0, 12, 2):
        sent[sequence] = send(log, sequence, 2)
        send(log, sequence, 2, producer_id=8)
    store.close()
    log = load_store(files.restart())[0].get(PARTITION)
    assert log is not None
    for sequence in (2, 4, 6, 8, 10):
        again = send(log, sequence, 2)
        assert again.duplicate
        assert (again.first_offset, again.last_offset) == (sent[sequence].first_offset, sent[sequence].last_offset)
    assert refused(log, 0, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not send(log, 12, 2).duplicate
