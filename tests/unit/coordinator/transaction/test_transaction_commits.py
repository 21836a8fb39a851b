"""What waits for the commit, what deadlines do, and what another coordinator finds in the log."""

from __future__ import annotations

from dataclasses import replace

import pytest
from transaction_rooms import FIRST_PRODUCER_ID, T0, T1, TransactionRooms

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.coordinator.machine import Client
from moldau.coordinator.transaction.settings import TransactionSettings
from moldau.coordinator.transaction.transaction import PRODUCER_EPOCH_MAX, State, Transaction, record_of
from moldau.coordinator.transaction.transactions import ABORT_RETRY_MS
from moldau.wire.messages.end_txn import EndTxnRequest

MINUTE_MS = 60_000


def begun(version: int = 2, rooms: TransactionRooms | None = None) -> TransactionRooms:
    """A transaction in two partitions."""
    rooms = rooms or TransactionRooms(version)
    producer = rooms.producer()
    rooms.add(producer, [T1, T0], client_version=version // 2 * 2)
    return rooms


# --- commits ------------------------------------------------------------------------------------------------------


def test_markers_are_sent_when_the_end_is_committed_and_not_before() -> None:
    rooms = begun()
    rooms.is_committing = False
    answer = rooms.end(rooms["x"].producer)
    assert rooms["x"].state is State.PREPARE_COMMIT
    assert not answer.done
    assert rooms.sent == []
    rooms.commit()
    assert answer.value().error_code == ErrorCode.NONE
    assert [each.partitions for each in rooms.sent] == [(T0, T1)]


@pytest.mark.parametrize("kept", [0, 1])
def test_an_uncommitted_end_is_resumed_only_if_the_next_coordinator_finds_it(kept: int) -> None:
    rooms = begun()
    rooms.is_committing = False
    answer = rooms.end(rooms["x"].producer)
    rooms.fail(kept)
    assert isinstance(answer.value(), KafkaError)
    assert len(rooms.sent) == kept
    assert rooms["x"].state is (State.PREPARE_COMMIT if kept else State.ONGOING)


def test_a_refusal_too_waits_for_the_records_it_depends_on() -> None:
    rooms = begun()
    old = rooms["x"].producer
    rooms.is_committing = False
    rooms.init()
    refusal = rooms.add(old)
    assert not refusal.done
    rooms.commit()
    assert refusal.value() == ErrorCode.CONCURRENT_TRANSACTIONS


def test_markers_of_an_earlier_end_complete_nothing() -> None:
    """Before version 2, all markers of a producer are equal."""
    rooms = begun(version=1)
    producer = rooms["x"].producer
    rooms.end(producer, version=4)
    rooms.written()
    rooms.add(producer, [T0, T1], client_version=0)
    rooms.end(producer, version=4)
    first, second = rooms.sent
    assert first == second
    rooms.written(first)
    assert rooms["x"].state is State.PREPARE_COMMIT
    rooms.written(second)
    assert rooms["x"].state is State.COMPLETE_COMMIT
    records = len(rooms.log)
    rooms.written(second)
    assert len(rooms.log) == records


def test_markers_that_an_earlier_coordinator_sent_complete_nothing() -> None:
    rooms = begun()
    rooms.end(rooms["x"].producer)
    rooms.reload()
    first, second = rooms.sent
    assert first == second
    rooms.written(first)
    assert rooms["x"].state is State.PREPARE_COMMIT
    rooms.written(second)
    assert rooms["x"].state is State.COMPLETE_COMMIT


def test_another_coordinator_sends_markers_with_its_own_epoch() -> None:
    rooms = begun()
    rooms.end(rooms["x"].producer, committed=False)
    rooms.fail()
    assert [each.coordinator_epoch for each in rooms.sent] == [1, 2]
    assert rooms.sent[1]._replace(coordinator_epoch=1) == rooms.sent[0]


def test_a_prepared_end_without_partitions_in_the_log_is_completed() -> None:
    """Apache Kafka writes the two records of such an end one after the other."""
    rooms = TransactionRooms()
    now_ms = rooms.clock.now_ms()
    prepared = Transaction(
        "x", 5, PRODUCER_EPOCH_MAX, 9_000, now_ms, State.PREPARE_ABORT,
        start_ms=now_ms, previous_producer_id=5, next_producer_id=6, client_version=2,
    )  # fmt: skip
    rooms.log.append(rooms.machine.encode(record_of(prepared)))
    rooms.reload()
    rooms.advance(0)
    assert (rooms["x"].state, rooms["x"].producer) == (State.COMPLETE_ABORT, (6, 0))
    assert rooms.sent == []


def test_a_record_that_the_log_refuses_changes_nothing() -> None:
    rooms = begun()
    before = rooms["x"]
    rooms.machine.end(EndTxnRequest("x", *before.producer, True), Client("c", "/h", 5))
    assert rooms["x"] == before
    assert rooms.end(before.producer).error_code == ErrorCode.NONE


# --- time ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_expired_transaction_is_aborted_and_its_producer_fenced(version: int) -> None:
    rooms = begun(version)
    old = rooms["x"].producer
    rooms.advance(MINUTE_MS - 1)
    assert rooms["x"].state is State.ONGOING
    rooms.advance(1)
    assert rooms["x"].state is State.PREPARE_ABORT
    assert rooms.sent[-1].producer_epoch == old.producer_epoch + 1
    rooms.written()
    assert rooms["x"].state is State.COMPLETE_ABORT
    assert rooms.add(old) == ErrorCode.PRODUCER_FENCED
    assert rooms.end(old, True, version=4).error_code == ErrorCode.PRODUCER_FENCED
    rooms.advance(10 * MINUTE_MS)
    assert len(rooms.sent) == 1


def test_the_timeout_starts_with_the_first_partition() -> None:
    rooms = TransactionRooms()
    producer = rooms.producer()
    rooms.advance(MINUTE_MS)
    rooms.add(producer, [T0])
    rooms.advance(MINUTE_MS // 2)
    rooms.add(producer, [T1])
    rooms.advance(MINUTE_MS // 2 - 1)
    assert rooms["x"].state is State.ONGOING
    rooms.advance(1)
    assert rooms["x"].state is State.PREPARE_ABORT


def test_every_transaction_has_its_own_timeout() -> None:
    rooms = begun()
    producer = rooms["x"].producer
    rooms.advance(MINUTE_MS - 1)
    answer = rooms.end(producer)
    rooms.written()
    producer = producer._replace(producer_epoch=answer.producer_epoch)
    rooms.add(producer)
    rooms.advance(MINUTE_MS - 1)
    assert rooms["x"].state is State.ONGOING
    rooms.advance(1)
    assert rooms["x"].state is State.PREPARE_ABORT


def test_another_coordinator_continues_the_timeout() -> None:
    rooms = begun()
    rooms.advance(MINUTE_MS - 10)
    rooms.reload()
    rooms.advance(9)
    assert rooms["x"].state is State.ONGOING
    rooms.advance(1)
    assert rooms["x"].state is State.PREPARE_ABORT


@pytest.mark.parametrize("jump_ms", [-MINUTE_MS, 100 * MINUTE_MS])
def test_setting_the_wall_clock_does_not_change_the_timeout(jump_ms: int) -> None:
    rooms = begun()
    rooms.clock.jump(jump_ms)
    rooms.add(rooms["x"].producer, [TopicPartition("later", 0)])
    rooms.advance(MINUTE_MS - 1)
    assert rooms["x"].state is State.ONGOING
    rooms.advance(1)
    assert rooms["x"].state is State.PREPARE_ABORT


def test_a_transaction_that_began_in_the_future_has_at_most_its_timeout() -> None:
    rooms = begun()
    rooms.clock.jump(-10 * MINUTE_MS)
    rooms.reload()
    rooms.advance(MINUTE_MS)
    assert rooms["x"].state is State.PREPARE_ABORT


def test_an_abort_without_an_available_producer_id_is_retried() -> None:
    rooms = begun()
    rooms.machine.transactions["x"] = replace(rooms["x"], producer_epoch=PRODUCER_EPOCH_MAX - 1)
    rooms.has_producer_ids = False
    rooms.advance(MINUTE_MS + 2 * ABORT_RETRY_MS)
    assert rooms["x"].state is State.ONGOING
    rooms.has_producer_ids = True
    rooms.advance(ABORT_RETRY_MS)
    assert rooms["x"].state is State.PREPARE_ABORT
    assert rooms["x"].next_producer_id == FIRST_PRODUCER_ID + 1


def test_an_abort_that_the_log_refuses_is_retried() -> None:
    rooms = begun()
    rooms.clock.move(MINUTE_MS)
    (action,) = rooms.machine.due(rooms.clock.elapsed_ms())
    refused = action().on_refused
    assert refused is not None
    assert refused(KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE)).records == ()
    rooms.advance(ABORT_RETRY_MS)
    assert rooms["x"].state is State.PREPARE_ABORT


# --- transactional ids --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT])
def test_an_unused_transactional_id_expires(state: State) -> None:
    rooms = TransactionRooms(settings=TransactionSettings(id_expiration_ms=1_000))
    producer = rooms.producer()
    if state is not State.EMPTY:
        rooms.add(producer)
        rooms.end(producer, state is State.COMPLETE_COMMIT)
        rooms.written()
    rooms.advance(999)
    rooms.expire()
    assert rooms["x"].state is state
    rooms.advance(1)
    rooms.expire()
    assert rooms.machine.transactions == {}
    rooms.reload()
    assert rooms.machine.transactions == {}
    assert rooms.add(producer) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert rooms.producer() == (FIRST_PRODUCER_ID + 1, 0), "the id now has another producer id"


@pytest.mark.parametrize("is_ended", [False, True])
def test_an_id_with_an_open_or_ending_transaction_does_not_expire(is_ended: bool) -> None:
    rooms = begun(rooms=TransactionRooms(settings=TransactionSettings(id_expiration_ms=1_000)))
    if is_ended:
        rooms.end(rooms["x"].producer)
    rooms.advance(5_000)
    rooms.expire()
    assert "x" in rooms.machine.transactions


# --- the log ------------------------------------------------------------------------------------------------------


def test_records_of_unknown_types_are_skipped() -> None:
    rooms = TransactionRooms()
    rooms.machine.replay(b"\0\7whatever", b"")
    assert rooms.machine.transactions == {}


def test_a_tombstone_of_an_unknown_id_does_nothing() -> None:
    rooms = TransactionRooms()
    rooms.machine.replay(b"\0\0\0\1x", None)
    assert rooms.machine.transactions == {}


@pytest.mark.parametrize(("version", "written"), [(0, b"\0\0"), (1, b"\0\1"), (2, b"\0\1")])
def test_the_record_version_follows_the_finalized_transaction_version(version: int, written: bytes) -> None:
    rooms = TransactionRooms(version)
    rooms.producer()
    (_, value), *_ = rooms.log
    assert value is not None
    assert value[:2] == written
