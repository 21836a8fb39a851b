"""The end of a transaction: EndTxn, an abort because its time is up or another producer comes, and the last word when
all markers are written.

Up to version 1 of transactions an end leaves the epoch as it is: a request that comes late may meet the next
transaction. From version 2 on (KIP-890) every end has the next epoch, with which the producer goes on; markers have it
already. When there is none left, another producer id takes over when the markers are written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.coordinator.machine import ProducerIdAndEpoch
from moldau.coordinator.transaction.transaction import (
    COMPLETED,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    PRODUCER_EPOCH_MAX,
    State,
    Transaction,
    bumps_epochs,
    check_producer,
)

_V2: Final = 2
"""The transaction.version from which on ends have an epoch of their own."""


def ended(transaction: Transaction, producer: ProducerIdAndEpoch, committed: bool, now_ms: int) -> Transaction:
    """EndTxn up to version 4; the very same transaction if it has ended so before."""
    check_producer(transaction, producer)
    if transaction.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.state is State.ONGOING:
        return _prepared(transaction, committed, now_ms)
    if transaction.state is _completed(committed):
        return transaction
    raise KafkaError(ErrorCode.INVALID_TXN_STATE)


def ended_with_bump(
    transaction: Transaction,
    producer: ProducerIdAndEpoch,
    committed: bool,
    now_ms: int,
    take_producer_id: Callable[[], int],
) -> Transaction:
    """EndTxn from version 5 on; the very same transaction if it has ended so before and this is said again.

    A producer that does not know whether anything of its transaction came to be aborts it to be sure: that is an end
    like any other, with an epoch of its own."""
    if transaction.state in PREPARED:
        # Before the producer is looked at: it may have been promised the id that takes over.
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    is_again = _is_said_again(transaction, producer)
    if not is_again:
        if _has_been_followed(transaction, producer):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        check_producer(transaction, producer)
    if is_again and transaction.state is _completed(committed):
        return transaction
    if is_again or (committed and transaction.state is not State.ONGOING):
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    return _prepared_with_bump(transaction, committed, now_ms, take_producer_id)


def _is_said_again(transaction: Transaction, producer: ProducerIdAndEpoch) -> bool:
    """The end that this producer asks for has happened, and gave it the epoch that is now. An end that gave none, as
    those of earlier versions, cannot have been this producer's: it is one that was fenced."""
    if transaction.state not in COMPLETED or not bumps_epochs(transaction.client_version):
        return False
    is_next = transaction.producer == (producer.producer_id, producer.producer_epoch + 1)
    return is_next or _has_been_followed(transaction, producer)


def _has_been_followed(transaction: Transaction, producer: ProducerIdAndEpoch) -> bool:
    """The producer had the last epoch of its id, and the present id took over from it."""
    last = ProducerIdAndEpoch(transaction.previous_producer_id, PRODUCER_EPOCH_MAX - 1)
    return producer == last and transaction.producer_epoch == 0 and transaction.producer_id != producer.producer_id


def fenced_and_aborted(
    transaction: Transaction, now_ms: int, version: int, take_producer_id: Callable[[], int]
) -> Transaction:
    """An open transaction is aborted by us, with an epoch above that of its producer; `version` is the cluster's."""
    if bumps_epochs(version):
        return _prepared_with_bump(transaction, False, now_ms, take_producer_id)
    epoch = min(transaction.producer_epoch + 1, PRODUCER_EPOCH_MAX)
    fenced = replace(transaction, producer_epoch=epoch, last_producer_epoch=NO_PRODUCER_EPOCH)
    return _prepared(fenced, False, now_ms)


def completed(transaction: Transaction, now_ms: int) -> Transaction:
    """All markers are written."""
    assert transaction.state in PREPARED
    following = following_producer(transaction)
    return replace(
        transaction,
        state=_completed(transaction.state is State.PREPARE_COMMIT),
        producer_id=following.producer_id,
        producer_epoch=following.producer_epoch,
        partitions=frozenset(),
        last_update_ms=now_ms,
        previous_producer_id=transaction.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


def following_producer(transaction: Transaction) -> ProducerIdAndEpoch:
    """Who the producer is after an end that was decided; it is told before the markers are written."""
    if bumps_epochs(transaction.client_version) and transaction.next_producer_id != NO_PRODUCER_ID:
        return ProducerIdAndEpoch(transaction.next_producer_id, 0)
    return transaction.producer


def _prepared(transaction: Transaction, committed: bool, now_ms: int) -> Transaction:
    """In the way of the versions before 2."""
    return replace(
        transaction,
        state=_decided(committed),
        last_update_ms=now_ms,
        previous_producer_id=transaction.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        client_version=0,
    )


def _prepared_with_bump(
    transaction: Transaction, committed: bool, now_ms: int, take_producer_id: Callable[[], int]
) -> Transaction:
    return replace(
        transaction,
        state=_decided(committed),
        producer_epoch=min(transaction.producer_epoch + 1, PRODUCER_EPOCH_MAX),
        last_producer_epoch=transaction.producer_epoch,
        start_ms=transaction.start_ms if transaction.state is State.ONGOING else now_ms,
        last_update_ms=now_ms,
        previous_producer_id=transaction.producer_id,
        next_producer_id=take_producer_id() if transaction.is_exhausted else NO_PRODUCER_ID,
        client_version=_V2,
    )


def _decided(committed: bool) -> State:
    return State.PREPARE_COMMIT if committed else State.PREPARE_ABORT


def _completed(committed: bool) -> State:
    return State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT
