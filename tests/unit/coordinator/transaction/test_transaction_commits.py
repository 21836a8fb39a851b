"""Transactions and their log: responses and markers wait for the commit, timeouts and expiration write records, and
another coordinator continues from the log."""

from __future__ import annotations

from dataclasses import replace

import pytest
from harness.in_memory_transaction_shard import FIRST_PRODUCER_ID, T0, T1, InMemoryTransactionShard

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.coordinator.machine import Client
from moldau.coordinator.transaction.settings import TransactionSettings
from moldau.coordinator.transaction.transaction import PRODUCER_EPOCH_MAX, State, Transaction, record_of
from moldau.coordinator.transaction.transactions import ABORT_RETRY_MS
from moldau.wire.messages.end_txn import EndTxnRequest

MINUTE_MS = 60_000


def with_open_transaction(version: int = 2, shard: InMemoryTransactionShard | None = None) -> InMemoryTransactionShard:
    """Return a shard with an open transaction in two partitions."""
    shard = shard or InMemoryTransactionShard(version)
    producer = shard.producer()
    shard.add(producer, [T1, T0], client_transaction_version=version // 2 * 2)
    return shard


# --- commits ------------------------------------------------------------------------------------------------------


def test_markers_are_sent_when_the_end_is_committed_and_not_before() -> None:
    shard = with_open_transaction()
    shard.is_committing = False
    answer = shard.end(shard["x"].producer)
    assert shard["x"].state is State.PREPARE_COMMIT
    assert not answer.done
    assert shard.sent == []
    shard.commit()
    assert answer.value().error_code == ErrorCode.NONE
    assert [each.partitions for each in shard.sent] == [(T0, T1)]


@pytest.mark.parametrize("kept", [0, 1])
def test_an_uncommitted_end_is_resumed_only_if_the_next_coordinator_finds_it(kept: int) -> None:
    shard = with_open_transaction()
    shard.is_committing = False
    answer = shard.end(shard["x"].producer)
    shard.fail(kept)
    assert isinstance(answer.value(), KafkaError)
    assert len(shard.sent) == kept
    assert shard["x"].state is (State.PREPARE_COMMIT if kept else State.ONGOING)


def test_an_error_response_waits_for_the_records_it_depends_on() -> None:
    shard = with_open_transaction()
    old = shard["x"].producer
    shard.is_committing = False
    shard.init()
    refusal = shard.add(old)
    assert not refusal.done
    shard.commit()
    assert refusal.value() == ErrorCode.CONCURRENT_TRANSACTIONS


def test_markers_of_an_earlier_end_do_not_complete_a_later_one() -> None:
    """Before version 2, all markers of a producer are equal."""
    shard = with_open_transaction(version=1)
    producer = shard["x"].producer
    shard.end(producer, version=4)
    shard.written()
    shard.add(producer, [T0, T1], client_transaction_version=0)
    shard.end(producer, version=4)
    first, second = shard.sent
    assert first == second
    shard.written(first)
    assert shard["x"].state is State.PREPARE_COMMIT
    shard.written(second)
    assert shard["x"].state is State.COMPLETE_COMMIT
    records = len(shard.log)
    shard.written(second)
    assert len(shard.log) == records


def test_markers_of_an_earlier_coordinator_do_not_complete_a_transaction() -> None:
    shard = with_open_transaction()
    shard.end(shard["x"].producer)
    shard.reload()
    first, second = shard.sent
    assert first == second
    shard.written(first)
    assert shard["x"].state is State.PREPARE_COMMIT
    shard.written(second)
    assert shard["x"].state is State.COMPLETE_COMMIT


def test_another_coordinator_sends_markers_with_its_own_epoch() -> None:
    shard = with_open_transaction()
    shard.end(shard["x"].producer, committed=False)
    shard.fail()
    assert [each.coordinator_epoch for each in shard.sent] == [1, 2]
    assert shard.sent[1]._replace(coordinator_epoch=1) == shard.sent[0]


def test_a_prepared_end_without_partitions_in_the_log_is_completed() -> None:
    """Apache Kafka writes the two records of such an end one after the other."""
    shard = InMemoryTransactionShard()
    now_ms = shard.clock.now_ms()
    prepared = Transaction(
        "x", 5, PRODUCER_EPOCH_MAX, 9_000, now_ms, State.PREPARE_ABORT,
        start_ms=now_ms, previous_producer_id=5, next_producer_id=6, client_transaction_version=2,
    )  # fmt: skip
    shard.log.append(shard.machine.encode(record_of(prepared)))
    shard.reload()
    shard.advance(0)
    assert (shard["x"].state, shard["x"].producer) == (State.COMPLETE_ABORT, (6, 0))
    assert shard.sent == []


def test_a_record_that_the_log_refuses_changes_nothing() -> None:
    shard = with_open_transaction()
    before = shard["x"]
    shard.machine.end(EndTxnRequest("x", *before.producer, True), Client("c", "/h", 5))
    assert shard["x"] == before
    assert shard.end(before.producer).error_code == ErrorCode.NONE


# --- time ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_expired_transaction_is_aborted_and_its_producer_fenced(version: int) -> None:
    shard = with_open_transaction(version)
    old = shard["x"].producer
    shard.advance(MINUTE_MS - 1)
    assert shard["x"].state is State.ONGOING
    shard.advance(1)
    assert shard["x"].state is State.PREPARE_ABORT
    assert shard.sent[-1].producer_epoch == old.producer_epoch + 1
    shard.written()
    assert shard["x"].state is State.COMPLETE_ABORT
    assert shard.add(old) == ErrorCode.PRODUCER_FENCED
    assert shard.end(old, True, version=4).error_code == ErrorCode.PRODUCER_FENCED
    shard.advance(10 * MINUTE_MS)
    assert len(shard.sent) == 1


def test_the_timeout_starts_with_the_first_partition() -> None:
    shard = InMemoryTransactionShard()
    producer = shard.producer()
    shard.advance(MINUTE_MS)
    shard.add(producer, [T0])
    shard.advance(MINUTE_MS // 2)
    shard.add(producer, [T1])
    shard.advance(MINUTE_MS // 2 - 1)
    assert shard["x"].state is State.ONGOING
    shard.advance(1)
    assert shard["x"].state is State.PREPARE_ABORT


def test_every_transaction_has_its_own_timeout() -> None:
    shard = with_open_transaction()
    producer = shard["x"].producer
    shard.advance(MINUTE_MS - 1)
    answer = shard.end(producer)
    shard.written()
    producer = producer._replace(producer_epoch=answer.producer_epoch)
    shard.add(producer)
    shard.advance(MINUTE_MS - 1)
    assert shard["x"].state is State.ONGOING
    shard.advance(1)
    assert shard["x"].state is State.PREPARE_ABORT


def test_another_coordinator_continues_the_timeout() -> None:
    shard = with_open_transaction()
    shard.advance(MINUTE_MS - 10)
    shard.reload()
    shard.advance(9)
    assert shard["x"].state is State.ONGOING
    shard.advance(1)
    assert shard["x"].state is State.PREPARE_ABORT


@pytest.mark.parametrize("jump_ms", [-MINUTE_MS, 100 * MINUTE_MS])
def test_setting_the_wall_clock_does_not_change_the_timeout(jump_ms: int) -> None:
    shard = with_open_transaction()
    shard.clock.jump(jump_ms)
    shard.add(shard["x"].producer, [TopicPartition("later", 0)])
    shard.advance(MINUTE_MS - 1)
    assert shard["x"].state is State.ONGOING
    shard.advance(1)
    assert shard["x"].state is State.PREPARE_ABORT


def test_a_transaction_with_a_start_in_the_future_has_at_most_its_timeout() -> None:
    shard = with_open_transaction()
    shard.clock.jump(-10 * MINUTE_MS)
    shard.reload()
    shard.advance(MINUTE_MS)
    assert shard["x"].state is State.PREPARE_ABORT


def test_an_abort_without_an_available_producer_id_is_retried() -> None:
    shard = with_open_transaction()
    shard.machine.transactions["x"] = replace(shard["x"], producer_epoch=PRODUCER_EPOCH_MAX - 1)
    shard.has_producer_ids = False
    shard.advance(MINUTE_MS + 2 * ABORT_RETRY_MS)
    assert shard["x"].state is State.ONGOING
    shard.has_producer_ids = True
    shard.advance(ABORT_RETRY_MS)
    assert shard["x"].state is State.PREPARE_ABORT
    assert shard["x"].next_producer_id == FIRST_PRODUCER_ID + 1


def test_an_abort_that_the_log_refuses_is_retried() -> None:
    shard = with_open_transaction()
    shard.clock.move(MINUTE_MS)
    (action,) = shard.machine.deadlines.due(shard.clock.monotonic_ms())
    refused = action().on_refused
    assert refused is not None
    assert refused(KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE)).records == ()
    shard.advance(ABORT_RETRY_MS)
    assert shard["x"].state is State.PREPARE_ABORT


# --- transactional ids --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT])
def test_an_unused_transactional_id_expires(state: State) -> None:
    shard = InMemoryTransactionShard(settings=TransactionSettings(id_expiration_ms=1_000))
    producer = shard.producer()
    if state is not State.EMPTY:
        shard.add(producer)
        shard.end(producer, state is State.COMPLETE_COMMIT)
        shard.written()
    shard.advance(999)
    shard.expire()
    assert shard["x"].state is state
    shard.advance(1)
    shard.expire()
    assert shard.machine.transactions == {}
    shard.reload()
    assert shard.machine.transactions == {}
    assert shard.add(producer) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert shard.producer() == (FIRST_PRODUCER_ID + 1, 0), "the id now has another producer id"


@pytest.mark.parametrize("is_ended", [False, True])
def test_an_id_with_an_open_or_ending_transaction_does_not_expire(is_ended: bool) -> None:
    shard = with_open_transaction(shard=InMemoryTransactionShard(settings=TransactionSettings(id_expiration_ms=1_000)))
    if is_ended:
        shard.end(shard["x"].producer)
    shard.advance(5_000)
    shard.expire()
    assert "x" in shard.machine.transactions


# --- the log ------------------------------------------------------------------------------------------------------


def test_records_of_unknown_types_are_skipped() -> None:
    shard = InMemoryTransactionShard()
    shard.machine.replay(b"\0\7whatever", b"")
    assert shard.machine.transactions == {}


def test_a_tombstone_of_an_unknown_id_does_nothing() -> None:
    shard = InMemoryTransactionShard()
    shard.machine.replay(b"\0\0\0\1x", None)
    assert shard.machine.transactions == {}


@pytest.mark.parametrize(("version", "written"), [(0, b"\0\0"), (1, b"\0\1"), (2, b"\0\1")])
def test_the_record_version_follows_the_finalized_transaction_version(version: int, written: bytes) -> None:
    shard = InMemoryTransactionShard(version)
    shard.producer()
    (_, value), *_ = shard.log
    assert value is not None
    assert value[:2] == written
