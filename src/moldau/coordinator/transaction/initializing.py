"""InitProducerId: gives a transactional id to a producer. The new epoch fences the producer that had it before.

A producer that sends its id and epoch wants to continue after an error (KIP-360). It must be the latest one, and may
retry if it did not get the response.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from moldau.base.errors import ErrorCode, KafkaError
from moldau.coordinator.machine import ProducerIdAndEpoch
from moldau.coordinator.transaction.ending import fence_and_abort
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
    """Return the producer id and epoch that the request wants to continue with, if any. Raise KafkaError for a request
    that is invalid in any state. Two-phase commit is disabled, which is also Kafka's default."""
    expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    names_id, names_epoch = request.producer_id != NO_PRODUCER_ID, request.producer_epoch != NO_PRODUCER_EPOCH
    if not request.transactional_id or names_id != names_epoch:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.enable2_pc:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.keep_prepared_txn:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if not 0 < request.transaction_timeout_ms <= settings.timeout_max_ms:
        raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    return None if expected == NO_PRODUCER else expected


def create(transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    return Transaction(transactional_id, producer_id, 0, timeout_ms, now_ms, previous_producer_id=producer_id)


def initialize(
    transaction: Transaction,
    expected: ProducerIdAndEpoch | None,
    timeout_ms: int,
    now_ms: int,
    transaction_version: int,
    take_producer_id: Callable[[], int],
) -> Transaction:
    """Return the transaction with a new epoch, or with its present one for a retry, and without partitions. An open
    transaction is aborted first: the result is then the prepared abort, and the client must retry. Raise KafkaError if
    the producer is fenced, or if the end of the last transaction is still being written."""
    if transaction.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.state is State.ONGOING:
        if expected is not None and expected != transaction.producer:
            # An old producer. Kafka aborts its successor's transaction before it answers with this error.
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return fence_and_abort(transaction, now_ms, transaction_version, take_producer_id)
    empty = replace(
        transaction,
        state=State.EMPTY,
        partitions=frozenset(),
        start_ms=NO_TIME,
        timeout_ms=timeout_ms,
        last_update_ms=now_ms,
    )
    if expected is not None and _is_retry(transaction, expected):
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


def _is_retry(transaction: Transaction, expected: ProducerIdAndEpoch) -> bool:
    """Whether the present id and epoch were given to the producer `expected`, which may have missed the response. After
    the initialization of a new producer there is no last epoch."""
    if expected.producer_epoch != transaction.last_producer_epoch:
        return False
    if expected.producer_id == transaction.producer_id:
        return True
    return expected.producer_id == transaction.previous_producer_id and is_exhausted(expected.producer_epoch)
