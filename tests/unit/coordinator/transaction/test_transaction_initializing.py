"""InitProducerId: which producer owns a transactional id, and which producers are fenced."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from harness.in_memory_transaction_shard import FIRST_PRODUCER_ID, NO_PRODUCER, T0, InMemoryTransactionShard

from moldau.base.errors import ErrorCode
from moldau.coordinator.machine import ProducerIdAndEpoch
from moldau.coordinator.transaction.settings import TransactionSettings
from moldau.coordinator.transaction.transaction import PRODUCER_EPOCH_MAX, State

LAST_EPOCH = PRODUCER_EPOCH_MAX - 1
Pair = ProducerIdAndEpoch


def at_epoch(shard: InMemoryTransactionShard, epoch: int) -> ProducerIdAndEpoch:
    """Return a producer with a high epoch."""
    shard.producer()
    shard.machine.transactions["x"] = replace(shard["x"], producer_epoch=epoch)
    return shard["x"].producer


def result(answer: Any) -> tuple[int, int, int]:
    return answer.error_code, answer.producer_id, answer.producer_epoch


def test_the_first_producer_has_epoch_zero_and_each_later_one_the_next() -> None:
    shard = InMemoryTransactionShard()
    assert shard.producer() == Pair(FIRST_PRODUCER_ID, 0)
    assert shard.producer() == Pair(FIRST_PRODUCER_ID, 1)
    assert shard.producer("y") == Pair(FIRST_PRODUCER_ID + 1, 0)


@pytest.mark.parametrize("timeout_ms", [-1, 0, 900_001])
def test_an_invalid_or_too_large_timeout_is_refused(timeout_ms: int) -> None:
    shard = InMemoryTransactionShard()
    assert result(shard.init(timeout_ms=timeout_ms)) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1, -1)
    assert result(shard.init(timeout_ms=900_000))[0] == ErrorCode.NONE


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None}, ErrorCode.INVALID_REQUEST),
        ({"expected": Pair(5, -1)}, ErrorCode.INVALID_REQUEST),
        ({"expected": Pair(-1, 5)}, ErrorCode.INVALID_REQUEST),
        ({"enable2_pc": True}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"keep_prepared_txn": True}, ErrorCode.UNSUPPORTED_VERSION),
        ({"enable2_pc": True, "keep_prepared_txn": True}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_an_invalid_request_leaves_no_state(arguments: dict[str, Any], code: ErrorCode) -> None:
    shard = InMemoryTransactionShard()
    assert result(shard.init(**arguments)) == (code, -1, -1)
    assert shard.log == []


def test_without_an_available_producer_id_the_client_must_retry() -> None:
    shard = InMemoryTransactionShard()
    shard.has_producer_ids = False
    assert result(shard.init()) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    assert shard.log == []


def test_an_unknown_transactional_id_is_created_also_for_a_producer_with_an_epoch() -> None:
    shard = InMemoryTransactionShard()
    assert result(shard.init(expected=Pair(7, 7))) == (0, FIRST_PRODUCER_ID, 0)


def test_a_producer_that_continues_gets_the_next_epoch_and_may_retry() -> None:
    shard = InMemoryTransactionShard()
    first = shard.producer()
    for _ in range(3):
        assert result(shard.init(expected=first)) == (0, FIRST_PRODUCER_ID, 1)
    second = Pair(FIRST_PRODUCER_ID, 1)
    assert result(shard.init(expected=second)) == (0, FIRST_PRODUCER_ID, 2)
    assert result(shard.init(expected=first)) == (ErrorCode.PRODUCER_FENCED, -1, -1)


def test_a_fenced_producer_cannot_continue() -> None:
    shard = InMemoryTransactionShard()
    first = shard.producer()
    shard.producer()
    assert result(shard.init(expected=first)) == (ErrorCode.PRODUCER_FENCED, -1, -1)
    assert result(shard.init(expected=first, version=3)) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1, -1)
    assert result(shard.init(expected=Pair(first.producer_id, 9)))[0] == ErrorCode.PRODUCER_FENCED
    assert result(shard.init(expected=Pair(5, 1)))[0] == ErrorCode.PRODUCER_FENCED


def test_the_timeout_is_that_of_the_latest_request() -> None:
    shard = InMemoryTransactionShard()
    shard.init(timeout_ms=1_000)
    shard.init(timeout_ms=2_000)
    assert shard["x"].timeout_ms == 2_000


@pytest.mark.parametrize("version", [0, 1, 2])
def test_init_aborts_an_open_transaction_first(version: int) -> None:
    shard = InMemoryTransactionShard(version)
    old = shard.producer()
    shard.add(old, client_transaction_version=version // 2 * 2)
    assert result(shard.init()) == (ErrorCode.CONCURRENT_TRANSACTIONS, -1, -1)
    assert shard["x"].state is State.PREPARE_ABORT
    (markers,) = shard.sent
    assert (markers.producer_epoch, markers.committed, markers.partitions) == (1, False, (T0,))
    assert markers.transaction_version == version // 2 * 2
    assert result(shard.init())[0] == ErrorCode.CONCURRENT_TRANSACTIONS, "until the markers are written"
    assert len(shard.sent) == 1
    shard.written()
    assert result(shard.init()) == (0, old.producer_id, 2)
    assert shard.add(old) == ErrorCode.PRODUCER_FENCED


def test_a_fenced_producer_cannot_abort_the_transaction_of_its_successor() -> None:
    """Apache Kafka aborts it, and refuses the fenced producer when that retries."""
    shard = InMemoryTransactionShard()
    old = shard.producer()
    new = shard.producer()
    shard.add(new)
    assert result(shard.init(expected=old))[0] == ErrorCode.PRODUCER_FENCED
    assert shard["x"].state is State.ONGOING
    assert result(shard.init(expected=new))[0] == ErrorCode.CONCURRENT_TRANSACTIONS, "the successor itself may"


def test_when_the_epochs_are_used_up_another_producer_id_is_given() -> None:
    shard = InMemoryTransactionShard()
    last = at_epoch(shard, LAST_EPOCH - 1)
    assert shard.producer() == Pair(last.producer_id, LAST_EPOCH)
    assert shard.producer() == Pair(FIRST_PRODUCER_ID + 1, 0)
    assert shard["x"].previous_producer_id == last.producer_id


def test_a_producer_whose_epochs_are_used_up_may_retry_for_its_new_id() -> None:
    shard = InMemoryTransactionShard()
    last = at_epoch(shard, LAST_EPOCH)
    for _ in range(3):
        assert result(shard.init(expected=last)) == (0, FIRST_PRODUCER_ID + 1, 0)
    shard.producer()
    assert result(shard.init(expected=last))[0] == ErrorCode.PRODUCER_FENCED, "a newer producer has the id now"


def test_a_producer_that_got_the_last_epoch_of_its_id_may_retry() -> None:
    """Apache Kafka answers UNKNOWN_SERVER_ERROR here."""
    shard = InMemoryTransactionShard()
    before = at_epoch(shard, LAST_EPOCH - 1)
    for _ in range(2):
        assert result(shard.init(expected=before)) == (0, before.producer_id, LAST_EPOCH)
    assert result(shard.init(expected=Pair(before.producer_id, 5)))[0] == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("version", [1, 2])
def test_fencing_the_last_epoch_leads_to_another_producer_id(version: int) -> None:
    shard = InMemoryTransactionShard(version)
    last = at_epoch(shard, LAST_EPOCH)
    shard.add(last)
    assert result(shard.init())[0] == ErrorCode.CONCURRENT_TRANSACTIONS
    assert shard.sent[-1][1:3] == (last.producer_id, PRODUCER_EPOCH_MAX)
    shard.written()
    new = shard.producer()
    assert new.producer_id == FIRST_PRODUCER_ID + 1
    assert new.producer_epoch == version - 1, "with version 2 the abort itself has changed the id"
    assert shard.add(last) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_init_without_a_producer_id_gives_a_new_one() -> None:
    shard = InMemoryTransactionShard()
    assert result(shard.init(expected=NO_PRODUCER)) == (0, FIRST_PRODUCER_ID, 0)


def test_the_number_of_transactional_ids_is_limited() -> None:
    shard = InMemoryTransactionShard(settings=TransactionSettings(ids_max=2, id_expiration_ms=1000))
    shard.producer("a")
    shard.producer("b")
    logged = len(shard.log)
    assert result(shard.init("c")) == (ErrorCode.POLICY_VIOLATION, -1, -1)
    assert len(shard.log) == logged, "a refused id leaves no record"
    assert shard.producer("a").producer_epoch == 1, "ids that exist are served"
    shard.advance(1001)
    shard.expire()
    assert shard.producer("c").producer_epoch == 0, "expired ids no longer count"
