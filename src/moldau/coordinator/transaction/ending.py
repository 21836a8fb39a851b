"""Ends a transaction: EndTxn, the abort after a timeout or for a new producer, and the completion when all markers are
written.

Up to transaction.version 1 an end keeps the producer epoch, so a late request may hit the next transaction. From
transaction.version 2 on (KIP-890) every end bumps the epoch; the markers and the producer's next transaction use the
new one. When the epochs of a producer id are used up, another producer id takes over once the markers are written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from moldau.base.errors import ErrorCode, KafkaError
from moldau.coordinator.machine import ProducerIdAndEpoch
from moldau.coordinator.transaction.transaction import (
    COMPLETED,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    PRODUCER_EPOCH_MAX,
    TV_0,
    TV_2,
    State,
    Transaction,
    bumps_epochs,
    check_producer,
)


def end(transaction: Transaction, producer: ProducerIdAndEpoch, committed: bool, now_ms: int) -> Transaction:
    """EndTxn v0–4. Return the same object if the transaction already ended in this way."""
    check_producer(transaction, producer)
    if transaction.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.state is State.ONGOING:
        return _prepare(transaction, committed, now_ms)
    if transaction.state is _complete_state(committed):
        return transaction
    raise KafkaError(ErrorCode.INVALID_TXN_STATE)


def end_with_bump(
    transaction: Transaction,
    producer: ProducerIdAndEpoch,
    committed: bool,
    now_ms: int,
    take_producer_id: Callable[[], int],
) -> Transaction:
    """EndTxn v5. Return the same object if this request is a retry of the last end.

    A producer that does not know whether its transaction reached the coordinator aborts it to be sure: such an abort of
    an empty transaction bumps the epoch too."""
    if transaction.state in PREPARED:
        # Check this before the producer: it may already use the producer id that takes over.
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    is_retry = _is_retry(transaction, producer)
    if not is_retry:
        if _is_previous_producer(transaction, producer):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        check_producer(transaction, producer)
    if is_retry and transaction.state is _complete_state(committed):
        return transaction
    if is_retry or (committed and transaction.state is not State.ONGOING):
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    return _prepare_with_bump(transaction, committed, now_ms, take_producer_id)


def _is_retry(transaction: Transaction, producer: ProducerIdAndEpoch) -> bool:
    """Whether the last end was this producer's and gave it the present epoch. An end without an epoch bump, by
    EndTxn v0–4, cannot have been its own: the producer was fenced."""
    if transaction.state not in COMPLETED or not bumps_epochs(transaction.client_transaction_version):
        return False
    is_next = transaction.producer == (producer.producer_id, producer.producer_epoch + 1)
    return is_next or _is_previous_producer(transaction, producer)


def _is_previous_producer(transaction: Transaction, producer: ProducerIdAndEpoch) -> bool:
    """Whether `producer` has the last epoch of its producer id, and the transaction has another producer id since."""
    last = ProducerIdAndEpoch(transaction.previous_producer_id, PRODUCER_EPOCH_MAX - 1)
    return producer == last and transaction.producer_epoch == 0 and transaction.producer_id != producer.producer_id


def fence_and_abort(
    transaction: Transaction, now_ms: int, transaction_version: int, take_producer_id: Callable[[], int]
) -> Transaction:
    """Abort an open transaction on the coordinator's side, with an epoch above its producer's. `transaction_version` is
    that of the cluster."""
    if bumps_epochs(transaction_version):
        return _prepare_with_bump(transaction, False, now_ms, take_producer_id)
    epoch = min(transaction.producer_epoch + 1, PRODUCER_EPOCH_MAX)
    fenced = replace(transaction, producer_epoch=epoch, last_producer_epoch=NO_PRODUCER_EPOCH)
    return _prepare(fenced, False, now_ms)


def complete(transaction: Transaction, now_ms: int) -> Transaction:
    """Return the completed transaction, once all markers are written."""
    assert transaction.state in PREPARED
    following = following_producer(transaction)
    return replace(
        transaction,
        state=_complete_state(transaction.state is State.PREPARE_COMMIT),
        producer_id=following.producer_id,
        producer_epoch=following.producer_epoch,
        partitions=frozenset(),
        last_update_ms=now_ms,
        previous_producer_id=transaction.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


def following_producer(transaction: Transaction) -> ProducerIdAndEpoch:
    """Return the producer id and epoch after a prepared end. The client gets them before the markers are written."""
    if bumps_epochs(transaction.client_transaction_version) and transaction.next_producer_id != NO_PRODUCER_ID:
        return ProducerIdAndEpoch(transaction.next_producer_id, 0)
    return transaction.producer


def _prepare(transaction: Transaction, committed: bool, now_ms: int) -> Transaction:
    """Prepare an end without an epoch bump, as by transaction.version 0 and 1."""
    return replace(
        transaction,
        state=_prepare_state(committed),
        last_update_ms=now_ms,
        previous_producer_id=transaction.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        client_transaction_version=TV_0,
    )


def _prepare_with_bump(
    transaction: Transaction, committed: bool, now_ms: int, take_producer_id: Callable[[], int]
) -> Transaction:
    return replace(
        transaction,
        state=_prepare_state(committed),
        producer_epoch=min(transaction.producer_epoch + 1, PRODUCER_EPOCH_MAX),
        last_producer_epoch=transaction.producer_epoch,
        start_ms=transaction.start_ms if transaction.state is State.ONGOING else now_ms,
        last_update_ms=now_ms,
        previous_producer_id=transaction.producer_id,
        next_producer_id=take_producer_id() if transaction.is_exhausted else NO_PRODUCER_ID,
        client_transaction_version=TV_2,
    )


def _prepare_state(committed: bool) -> State:
    return State.PREPARE_COMMIT if committed else State.PREPARE_ABORT


def _complete_state(committed: bool) -> State:
    return State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT
