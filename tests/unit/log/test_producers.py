"""The state of idempotent and transactional producers: duplicates, gaps, epochs, wrap-around, expiry, snapshots."""

from __future__ import annotations

import pytest
from harness.making_logs import NOW_MS, PARTITION, TOPIC_ID, load_store, new_log
from writing_producers import end, refused, send

from moldau.base.errors import ErrorCode, MalformedData
from moldau.log.config import LogConfig
from moldau.log.producer_snapshot import decode_snapshot, encode_snapshot
from moldau.log.producers import BatchMetadata, ProducerEntry, Producers
from moldau.testing.files import MemoryFiles

SEQUENCE_MAX = 2**31 - 1


def test_the_last_five_batches_are_recognised_as_duplicates() -> None:
    log = new_log()
    sent = {sequence: send(log, sequence, 2) for sequence in range(0, 14, 2)}
    for sequence in (4, 6, 8, 10, 12):
        again = send(log, sequence, 2)
        assert again.duplicate
        assert (again.first_offset, again.last_offset) == (sent[sequence].first_offset, sent[sequence].last_offset)
    assert refused(log, 2, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.end_offset == 14


def test_sequence_gaps_and_partial_repeats_are_out_of_order() -> None:
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


def test_producer_epochs() -> None:
    log = new_log()
    send(log, 0, epoch=3)
    assert refused(log, 1, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, 1, epoch=4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 0, epoch=4)
    assert refused(log, 0, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(log, 0, epoch=4).duplicate


def test_batches_of_an_older_epoch_are_not_duplicates() -> None:
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


def test_idle_producers_expire() -> None:
    log = new_log()
    send(log, 5)
    send(log, 0, producer_id=8, is_transactional=True)
    assert log.producers.expire(NOW_MS + 999, 1000) == 0
    assert log.producers.expire(NOW_MS + 1000, 1000) == 1
    assert [entry.producer_id for entry in log.producers.active()] == [8], "an open transaction is kept"
    send(log, 77)


def test_the_state_of_active_producers() -> None:
    log = new_log()
    send(log, 0, 3, epoch=2, producer_id=70, is_transactional=True)
    (entry,) = log.producers.active()
    assert (entry.producer_id, entry.epoch, entry.last_sequence, entry.last_timestamp) == (70, 2, 2, NOW_MS)
    assert (entry.coordinator_epoch, entry.transaction_start) == (-1, 0)
    end(log, commit=True, epoch=2, producer_id=70, coordinator_epoch=9)
    (entry,) = log.producers.active()
    assert (entry.coordinator_epoch, entry.transaction_start) == (9, -1)


# --- snapshots --------------------------------------------------------------------------------------------------


def test_snapshots_are_decoded_and_checked() -> None:
    plain = ProducerEntry(7, 2, NOW_MS, coordinator_epoch=3, transaction_start=40)
    plain.batches.append(BatchMetadata(SEQUENCE_MAX, 1, 40, 42, NOW_MS))
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


def test_the_error_for_a_broken_snapshot_has_the_reason() -> None:
    content = encode_snapshot([ProducerEntry(7, 2, NOW_MS)])
    with pytest.raises(MalformedData, match=r"version 2 is not supported$"):
        decode_snapshot(b"\0\2" + content[2:])
    with pytest.raises(MalformedData, match=r"the CRC does not match$"):
        decode_snapshot(content[:-1] + b"\0")


def test_loading_finds_open_transactions_in_order() -> None:
    producers = Producers()
    late, early = ProducerEntry(1, 0, 0, transaction_start=90), ProducerEntry(2, 0, 0, transaction_start=30)
    producers.load([late, early, ProducerEntry(3, 0, 0)])
    assert producers.oldest_open_transaction == 30
    assert producers.first_unstable_offset(100) == 30


def test_duplicates_are_recognised_after_a_restart() -> None:
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
