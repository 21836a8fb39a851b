"""Requests to the transaction coordinator: FindCoordinator, InitProducerId, AddPartitionsToTxn, EndTxn.

Every version of each request, in the right order and in others. The responses are those of Apache Kafka.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from batches import headers_of
from kio.schema.errors import ErrorCode
from protocol_requests import fetch
from transaction_requests import (
    ELSEWHERE,
    TRANSACTION_KEY,
    Batched,
    TransactionalProducer,
    add_batched,
    add_partitions,
    await_state,
    describe,
    end,
    init,
    new_transactional_producer,
    next_epoch,
    open_transaction,
    send,
    until,
    verify,
)
from wire_client import Wire, message

CreateTopic = Callable[..., str]
TIMEOUT_MAX_MS = 900_000
UNKNOWN_PRODUCER_ID = 1 << 40
"""A producer id that no broker has assigned yet."""


@pytest.fixture(scope="module")
def name(create_topic: CreateTopic) -> str:
    """One topic of two partitions for all tests: most of the requests here never reach a log."""
    return create_topic(partitions=2)


@pytest.fixture
def transactional_id() -> str:
    return f"tx-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def producer(wire: Wire, transactional_id: str) -> TransactionalProducer:
    return new_transactional_producer(wire, transactional_id)


# --- FindCoordinator ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 7))
def test_every_version_finds_the_coordinator_of_a_transactional_id(wire: Wire, version: int) -> None:
    """Even that of the empty id, which no producer may use."""

    def ask() -> Sequence[Any]:
        if version < 4:
            return [wire.ask(message("find_coordinator", version, key="some", key_type=TRANSACTION_KEY))]
        return wire.ask(
            message("find_coordinator", version, key_type=TRANSACTION_KEY, coordinator_keys=("some", ""))
        ).coordinators  # type: ignore[no-any-return]

    found = until(ask, lambda answers: all(each.error_code not in ELSEWHERE for each in answers), "it is found")
    host, port = wire.socket.getpeername()
    assert {(each.error_code, each.host, each.port) for each in found} == {(ErrorCode.none, host, port)}


# --- InitProducerId -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_a_transactional_id_keeps_its_producer_id_and_gets_a_new_epoch_each_time(
    wire: Wire, transactional_id: str, version: int
) -> None:
    first, second = init(wire, transactional_id, version), init(wire, transactional_id, version)
    assert (first.error_code, first.producer_epoch) == (ErrorCode.none, 0)
    assert first.producer_id >= 0
    assert (second.error_code, second.producer_id, second.producer_epoch) == (ErrorCode.none, first.producer_id, 1)


@pytest.mark.parametrize("version", range(3, 6))
def test_init_with_the_current_producer_gets_the_next_epoch_and_may_be_repeated(
    wire: Wire, transactional_id: str, version: int
) -> None:
    first = init(wire, transactional_id, version)
    identity = {"producer_id": first.producer_id, "producer_epoch": first.producer_epoch}
    assert init(wire, transactional_id, version, **identity).producer_epoch == 1
    again = init(wire, transactional_id, version, **identity)
    assert (again.error_code, again.producer_epoch) == (ErrorCode.none, 1), "a repeated request gets the same epoch"


@pytest.mark.parametrize("version", range(3, 6))
@pytest.mark.parametrize(("id_off", "epoch_off"), [(0, -2), (0, 50), (1 << 40, 0)], ids=["late", "early", "other id"])
def test_init_with_another_producer_is_fenced(
    wire: Wire, transactional_id: str, version: int, id_off: int, epoch_off: int
) -> None:
    for _ in range(3):
        now = init(wire, transactional_id, version)
    identity = {"producer_id": now.producer_id + id_off, "producer_epoch": now.producer_epoch + epoch_off}
    answer = init(wire, transactional_id, version, **identity)
    fenced = ErrorCode.producer_fenced if version >= 4 else ErrorCode.invalid_producer_epoch
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (fenced, -1, -1)


def test_init_with_only_a_producer_id_or_only_an_epoch_is_refused(wire: Wire, producer: TransactionalProducer) -> None:
    for identity in ({"producer_id": producer.id}, {"producer_epoch": producer.epoch}):
        assert init(wire, producer.transactional_id, **identity).error_code == ErrorCode.invalid_request


def test_init_with_an_unknown_producer_starts_at_epoch_0(wire: Wire, transactional_id: str) -> None:
    answer = init(wire, transactional_id, producer_id=UNKNOWN_PRODUCER_ID, producer_epoch=7)
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.none, 0)
    assert answer.producer_id != UNKNOWN_PRODUCER_ID


@pytest.mark.parametrize("version", range(6))
def test_invalid_timeouts_are_refused(wire: Wire, transactional_id: str, version: int) -> None:
    for timeout_ms in (0, -1, TIMEOUT_MAX_MS + 1, (1 << 31) - 1):
        answer = init(wire, transactional_id, version, transaction_timeout=timeout_ms)
        refused = (ErrorCode.invalid_transaction_timeout, -1, -1)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == refused, timeout_ms
    for timeout_ms in (1, TIMEOUT_MAX_MS):
        assert init(wire, transactional_id, version, transaction_timeout=timeout_ms).error_code == 0, timeout_ms
        assert describe(wire, transactional_id).timeout_ms == timeout_ms


@pytest.mark.parametrize("version", range(6))
def test_an_empty_transactional_id_is_refused(wire: Wire, version: int) -> None:
    answer = init(wire, "", version)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.invalid_request, -1, -1)


def test_init_aborts_the_open_transaction_of_the_id(
    wire: Wire, create_topic: CreateTopic, producer: TransactionalProducer
) -> None:
    topic = create_topic()
    open_transaction(wire, producer, topic)
    at_first = init(wire, producer.transactional_id, at_once=True)
    assert (at_first.error_code, at_first.producer_id) == (ErrorCode.concurrent_transactions, -1)
    then = init(wire, producer.transactional_id)
    assert (then.error_code, then.producer_id) == (ErrorCode.none, producer.id)
    assert then.producer_epoch == producer.epoch + 2, (
        "one epoch fences the previous producer, one is the new producer's"
    )
    assert end(wire, producer, committed=True).error_code == ErrorCode.producer_fenced
    answer = fetch(wire, topic, 0, isolation_level=1)
    assert [each.first_offset for each in answer.aborted_transactions] == [0]
    assert (answer.high_watermark, answer.last_stable_offset) == (2, 2)


# --- AddPartitionsToTxn -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
def test_a_partition_may_be_added_twice(wire: Wire, name: str, producer: TransactionalProducer, version: int) -> None:
    assert add_partitions(wire, producer, {name: [0]}, version) == {(name, 0): ErrorCode.none}
    both = {(name, 0): ErrorCode.none, (name, 1): ErrorCode.none}
    for _ in range(2):
        assert add_partitions(wire, producer, {name: [0, 1]}, version) == both
    shown = describe(wire, producer.transactional_id)
    assert (shown.state, shown.partitions) == ("Ongoing", frozenset(both))


@pytest.mark.parametrize("version", range(4))
def test_if_one_partition_does_not_exist_none_is_added(
    wire: Wire, name: str, producer: TransactionalProducer, version: int
) -> None:
    assert add_partitions(wire, producer, {name: [0, 7], "nowhere": [0]}, version) == {
        (name, 0): ErrorCode.operation_not_attempted,
        (name, 7): ErrorCode.unknown_topic_or_partition,
        ("nowhere", 0): ErrorCode.unknown_topic_or_partition,
    }
    shown = describe(wire, producer.transactional_id)
    assert (shown.state, shown.partitions) == ("Empty", frozenset())


@pytest.mark.parametrize("version", range(4))
def test_only_the_current_producer_adds_partitions(
    wire: Wire, name: str, producer: TransactionalProducer, version: int
) -> None:
    fenced = ErrorCode.producer_fenced if version >= 2 else ErrorCode.invalid_producer_epoch
    for other, expected in (
        (producer._replace(epoch=producer.epoch + 1), fenced),
        (producer._replace(epoch=producer.epoch - 1), fenced),
        (producer._replace(id=UNKNOWN_PRODUCER_ID), ErrorCode.invalid_producer_id_mapping),
        (producer._replace(transactional_id="nobody"), ErrorCode.invalid_producer_id_mapping),
        (producer._replace(transactional_id=""), ErrorCode.invalid_request),
    ):
        assert add_partitions(wire, other, {name: [0]}, version) == {(name, 0): expected}, other
    assert describe(wire, producer.transactional_id).state == "Empty"


def test_internal_topics_cannot_be_added_by_clients(wire: Wire, name: str, producer: TransactionalProducer) -> None:
    assert add_partitions(wire, producer, {name: [0], "__transaction_state": [0]}) == {
        (name, 0): ErrorCode.operation_not_attempted,
        ("__transaction_state", 0): ErrorCode.topic_authorization_failed,
    }


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_verify_and_add_many_transactions_in_one_request(wire: Wire, name: str, version: int) -> None:
    verified, added_to = (new_transactional_producer(wire, f"tx-{uuid.uuid4().hex[:8]}") for _ in range(2))
    add_partitions(wire, verified, {name: [0]})
    requested = [Batched(verified, {name: [0, 1]}), Batched(added_to, {name: [1]}, verify_only=False)]
    assert add_batched(wire, requested, version) == {
        verified.transactional_id: {(name, 0): ErrorCode.none, (name, 1): ErrorCode.transaction_abortable},
        added_to.transactional_id: {(name, 1): ErrorCode.none},
    }
    assert describe(wire, verified.transactional_id).partitions == {(name, 0)}, "verifying adds nothing"
    assert describe(wire, added_to.transactional_id).partitions == {(name, 1)}


@pytest.mark.parametrize("verify_only", [True, False])
@pytest.mark.parametrize("version", [4, 5])
def test_broker_requests_with_another_producer_are_refused(
    wire: Wire, name: str, producer: TransactionalProducer, version: int, verify_only: bool
) -> None:
    for other, expected in (
        (producer._replace(epoch=producer.epoch + 1), ErrorCode.producer_fenced),
        (producer._replace(id=UNKNOWN_PRODUCER_ID), ErrorCode.invalid_producer_id_mapping),
        (producer._replace(transactional_id="nobody"), ErrorCode.invalid_producer_id_mapping),
        (producer._replace(transactional_id=""), ErrorCode.invalid_request),
    ):
        answer = add_batched(wire, [Batched(other, {name: [0]}, verify_only)], version)
        assert answer == {other.transactional_id: {(name, 0): expected}}, other
    answer = add_batched(wire, [Batched(producer, {name: [0, 7]}, verify_only)], version)
    assert answer[producer.transactional_id] == {
        (name, 0): ErrorCode.operation_not_attempted,
        (name, 7): ErrorCode.unknown_topic_or_partition,
    }


def test_a_transaction_that_ended_has_no_partitions(wire: Wire, name: str, producer: TransactionalProducer) -> None:
    add_partitions(wire, producer, {name: [0]})
    assert verify(wire, producer, {name: [0]}) == {(name, 0): ErrorCode.none}
    end(wire, producer, committed=True)
    await_state(wire, producer.transactional_id, "CompleteCommit")
    assert verify(wire, producer, {name: [0]}) == {(name, 0): ErrorCode.transaction_abortable}


# --- EndTxn up to version 4: the epoch stays ----------------------------------------------------------------------


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", range(5))
def test_an_end_may_be_repeated_but_not_reversed(
    wire: Wire, name: str, producer: TransactionalProducer, version: int, committed: bool
) -> None:
    add_partitions(wire, producer, {name: [0]})
    for _ in range(3):
        assert end(wire, producer, committed, version).error_code == ErrorCode.none
    assert end(wire, producer, not committed, version).error_code == ErrorCode.invalid_txn_state
    shown = describe(wire, producer.transactional_id)
    assert shown.state == ("CompleteCommit" if committed else "CompleteAbort")
    assert (shown.producer_epoch, shown.partitions) == (producer.epoch, frozenset())


@pytest.mark.parametrize("version", range(5))
def test_ending_a_transaction_that_never_began_is_refused(
    wire: Wire, producer: TransactionalProducer, version: int
) -> None:
    for committed in (True, False):
        assert end(wire, producer, committed, version).error_code == ErrorCode.invalid_txn_state


@pytest.mark.parametrize("version", range(6))
def test_only_the_current_producer_ends_its_transaction(
    wire: Wire, name: str, producer: TransactionalProducer, version: int
) -> None:
    add_partitions(wire, producer, {name: [0]})
    fenced = ErrorCode.producer_fenced if version >= 2 else ErrorCode.invalid_producer_epoch
    for other, expected in (
        (producer._replace(epoch=producer.epoch + 1), fenced),
        (producer._replace(epoch=producer.epoch - 1), fenced),
        (producer._replace(id=UNKNOWN_PRODUCER_ID), ErrorCode.invalid_producer_id_mapping),
        (producer._replace(transactional_id="nobody"), ErrorCode.invalid_producer_id_mapping),
        (producer._replace(transactional_id=""), ErrorCode.invalid_request),
    ):
        assert end(wire, other, True, version).error_code == expected, other
    assert describe(wire, producer.transactional_id).state == "Ongoing"


# --- EndTxn from version 5 on: each end raises the epoch ----------------------------------------------------------


@pytest.mark.parametrize("committed", [True, False])
def test_each_end_raises_the_epoch(wire: Wire, name: str, producer: TransactionalProducer, committed: bool) -> None:
    send(wire, producer, name, version=12)
    for _ in range(3):
        answer = end(wire, producer, committed, version=5)
        result = (answer.error_code, answer.producer_id, answer.producer_epoch)
        assert result == (ErrorCode.none, producer.id, producer.epoch + 1), "a repeated end gets the same response"
    turned = end(wire, producer, not committed, version=5)
    assert (turned.error_code, turned.producer_id) == (ErrorCode.invalid_txn_state, -1)
    assert describe(wire, producer.transactional_id).producer_epoch == producer.epoch + 1


def test_an_empty_transaction_can_be_aborted_but_not_committed(wire: Wire, producer: TransactionalProducer) -> None:
    assert end(wire, producer, committed=True, version=5).error_code == ErrorCode.invalid_txn_state
    now = next_epoch(wire, producer, committed=False)
    assert now == producer._replace(epoch=producer.epoch + 1)
    assert end(wire, now, committed=True, version=5).error_code == ErrorCode.invalid_txn_state
    assert next_epoch(wire, now, committed=False).epoch == now.epoch + 1


@pytest.mark.parametrize("committed", [True, False])
def test_a_late_end_does_not_end_the_next_transaction(
    wire: Wire, create_topic: CreateTopic, producer: TransactionalProducer, committed: bool
) -> None:
    """Requests on several connections may overtake each other: the next epoch distinguishes them."""
    topic = create_topic()
    send(wire, producer, topic, [b"first"], version=12)
    now = next_epoch(wire, producer, committed=True)
    assert send(wire, now, topic, [b"second"], version=12).error_code == ErrorCode.none
    assert end(wire, producer, committed, version=5).error_code == ErrorCode.producer_fenced
    late = send(wire, producer, topic, [b"late"], seq=1, version=12)
    assert late.error_code == ErrorCode.invalid_producer_epoch
    assert describe(wire, producer.transactional_id).state == "Ongoing"
    next_epoch(wire, now, committed=False)
    await_state(wire, producer.transactional_id, "CompleteAbort")
    answer = fetch(wire, topic, 0, isolation_level=1)
    assert [(each.producer_id, each.first_offset) for each in answer.aborted_transactions] == [(producer.id, 2)]
    assert [(each.base_offset, each.producer_epoch) for each in headers_of(answer.records)] == [
        (0, producer.epoch),
        (1, now.epoch),
        (2, now.epoch),
        (3, now.epoch + 1),
    ], "each marker has the next epoch"


def test_an_epoch_before_the_last_one_is_refused(wire: Wire, name: str, producer: TransactionalProducer) -> None:
    send(wire, producer, name, version=12)
    now = next_epoch(wire, next_epoch(wire, producer, committed=True), committed=False)
    assert end(wire, producer, committed=True, version=5).error_code == ErrorCode.producer_fenced
    assert end(wire, now._replace(epoch=now.epoch + 1), committed=False, version=5).error_code == (
        ErrorCode.producer_fenced
    )
