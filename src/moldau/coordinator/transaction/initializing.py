"""InitProducerId: who speaks for a transactional id from now on. Whoever did before is fenced by the new epoch.

A producer that names its id and epoch asks to go on after an error (KIP-360). It must be the latest one, and may ask
again if it never heard the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from moldau.base.errors import ErrorCode, KafkaError
from moldau.coordinator.machine import ProducerIdAndEpoch
from moldau.coordinator.transaction.ending import fenced_and_aborted
from moldau.coordinator.transaction.settings import TransactionSettings
from moldau.coordinator.transaction.transaction import (
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    PREPARED,
    State,
    Transaction,
    is_exhausted,
)
from moldau.wire.messages.init_producer_id import InitProducerIdRequest


def check(request: InitProducerIdRequest, settings: TransactionSettings) -> ProducerIdAndEpoch | None:
    """The producer that it wants to go on as, if any. KafkaError for what is wrong whatever the state; two-phase
    commit is switched off, as it is in Kafka unless somebody asks for it."""
    expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    is_named = request.producer_id != NO_PRODUCER_ID, request.producer_epoch != NO_PRODUCER_EPOCH
    if not request.transactional_id or (any(is_named) and not all(is_named)):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.enable2_pc:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.keep_prepared_txn:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if not 0 < request.transaction_timeout_ms <= settings.timeout_max_ms:
        raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    return None if expected == NO_PRODUCER else expected


def created(transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    return Transaction(transactional_id, producer_id, 0, timeout_ms, now_ms, previous_producer_id=producer_id)


def initialized(
    transaction: Transaction,
    expected: ProducerIdAndEpoch | None,
    timeout_ms: int,
    now_ms: int,
    version: int,
    take_producer_id: Callable[[], int],
) -> Transaction:
    """With a new epoch and nothing in it. If there is an open transaction, that is aborted first: the result is the
    abort that was prepared, and whoever asked must ask again. KafkaError if it may not."""
    if transaction.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.state is State.ONGOING:
        if expected is not None and expected != transaction.producer:
            # A producer of old; Kafka aborts the transaction of its successor before it tells it so.
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return fenced_and_aborted(transaction, now_ms, version, take_producer_id)
    empty = replace(
        transaction,
        state=State.EMPTY,
        partitions=frozenset(),
        start_ms=NO_TIME,
        timeout_ms=timeout_ms,
        last_update_ms=now_ms,
    )
    if expected is not None and _asks_again(transaction, expected):
        return empty
    if expected is not None and expected != transaction.producer:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    last = NO_PRODUCER_EPOCH if expected is None else transaction.producer_epoch
    previous = transaction.producer_id
    if transaction.is_exhausted:
        return replace(
            empty,
            producer_id=take_producer_id(),
            producer_epoch=0,
            last_producer_epoch=last,
            previous_producer_id=previous,
        )
    epoch = transaction.producer_epoch + 1
    return replace(empty, producer_epoch=epoch, last_producer_epoch=last, previous_producer_id=previous)


def _asks_again(transaction: Transaction, expected: ProducerIdAndEpoch) -> bool:
    """The producer was given the present id and epoch in place of those that it names, and may not have heard. A new
    producer would have left no last epoch."""
    if expected.producer_epoch != transaction.last_producer_epoch:
        return False
    if expected.producer_id == transaction.producer_id:
        return True
    return expected.producer_id == transaction.previous_producer_id and is_exhausted(expected.producer_epoch)
