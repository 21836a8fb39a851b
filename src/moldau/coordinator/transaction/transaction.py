"""The state of a transactional id: its producer and its current or last transaction.

A Transaction is immutable; `initializing`, `adding` and `ending` return its successors. The log has all its fields but
the last producer epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import TopicPartition
from moldau.coordinator.machine import CoordinatorRecord, ProducerIdAndEpoch
from moldau.wire.log_records.transactions import PartitionsSchema, TransactionLogKey, TransactionLogValue

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_TIME: Final = -1
PRODUCER_EPOCH_MAX: Final = 2**15 - 1
"""Never given to a client: reserved to fence the producer with the epoch before it."""


TV_0: Final = 0
TV_2: Final = 2
"""Versions of the feature transaction.version, with the names that they have in Kafka."""


class State(IntEnum):
    """The states with their numbers in the log. Only Kafka uses the last two: here an id expires in one step, and
    fencing and abort are one step."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The name that admin clients see, such as CompleteCommit."""
        return _TITLES[self]


_TITLES: Final = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in State}
STATES_BY_TITLE: Final = {title: state for state, title in _TITLES.items()}
PREPARED: Final = frozenset((State.PREPARE_COMMIT, State.PREPARE_ABORT))
"""The end is decided; its markers are being written."""
COMPLETED: Final = frozenset((State.COMPLETE_COMMIT, State.COMPLETE_ABORT))
_STATES_IN_LOG: Final = frozenset(State) - {State.DEAD, State.PREPARE_EPOCH_FENCE}


NO_PRODUCER: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@dataclass(frozen=True, slots=True)
class Transaction:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    last_update_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id of the state before this one, often the same."""
    next_producer_id: int = NO_PRODUCER_ID
    """Takes over when the markers are written, because the epochs of this producer id are used up."""
    client_transaction_version: int = 0
    """The transaction.version by which the client added the last partition or ended the transaction: TV_0, or TV_2 if
    it follows KIP-890. Clients may be older than the cluster's transaction.version."""
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before this one, if the same producer moved from it to this one. Not in the log."""

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_exhausted(self) -> bool:
        """Whether this producer id has no epoch left for a client."""
        return is_exhausted(self.producer_epoch)


def is_exhausted(producer_epoch: int) -> bool:
    return producer_epoch >= PRODUCER_EPOCH_MAX - 1


def bumps_epochs(transaction_version: int) -> bool:
    """Whether every end bumps the epoch (KIP-890), so that a late request cannot touch the next transaction."""
    return transaction_version >= TV_2


def check_producer(transaction: Transaction, producer: ProducerIdAndEpoch) -> None:
    """Raise KafkaError unless `producer` is the current producer of the transactional id."""
    if transaction.producer_id != producer.producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    # No client ever gets the maximum epoch, so a request that has it is never valid.
    if transaction.producer_epoch != producer.producer_epoch or producer.producer_epoch == PRODUCER_EPOCH_MAX:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)


# --- the log ----------------------------------------------------------------------------------------------------


def record_of(transaction: Transaction) -> CoordinatorRecord:
    topics = partitions_by_topic(transaction).items()
    partitions = [PartitionsSchema(topic, numbers) for topic, numbers in topics]
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if transaction.state is State.EMPTY else partitions,
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_transaction_version,
    )
    return CoordinatorRecord(TransactionLogKey(transaction.transactional_id), value)


def tombstone_of(transaction: Transaction) -> CoordinatorRecord:
    return CoordinatorRecord(TransactionLogKey(transaction.transactional_id), None)


def transaction_of(transactional_id: str, value: TransactionLogValue) -> Transaction:
    """The inverse of `record_of`, except for the last producer epoch, which is not in the log."""
    if value.transaction_status not in _STATES_IN_LOG:
        raise MalformedData(
            f"transactional id {transactional_id!r}: unknown state {value.transaction_status} in the log"
        )
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        state=State(value.transaction_status),
        partitions=frozenset(
            TopicPartition(each.topic, partition)
            for each in value.transaction_partitions or ()
            for partition in each.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_transaction_version=value.client_transaction_version,
    )


def partitions_by_topic(transaction: Transaction) -> dict[str, list[int]]:
    """Return topics and partitions in order, so that the same transaction always has the same bytes."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(partition)
    return topics
