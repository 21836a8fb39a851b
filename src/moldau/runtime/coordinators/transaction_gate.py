"""Verifies that a partition is part of a transaction before records of it are appended (KIP-890).

All partitions of one produce request are verified by one request to the coordinator. Older clients add the partitions
before they write, and this is verified here. Newer clients (transaction version 2) add a partition by writing to it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from moldau.base.clock import Clock, Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.promise import Promise
from moldau.replica.partition import Partition
from moldau.replica.verification import Guard, Verifications
from moldau.runtime.coordinators.transaction_verifier import Codes, InTransaction, TransactionVerifier
from moldau.runtime.internal_errors import complete_alone

log = logging.getLogger("moldau.coordinator")
UNKNOWN_PRODUCER_CODES = frozenset(
    {ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_REQUEST}
)
FIRST_RETRY_MS = 1
"""The first retries come faster than `retry_ms`, because most markers are written sooner than that."""


@dataclass(slots=True, eq=False)
class TransactionalWrite:
    """Records, or offsets, of one transaction for some partitions, from the request to the append."""

    transaction: InTransaction
    sequences: Mapping[Partition, int]
    """The first sequence number that is to be appended, by partition."""
    knows_abortable: bool
    """The client supports TRANSACTION_ABORTABLE."""
    guards: Mapping[TopicPartition, Guard] = field(default_factory=dict)
    """By partition that may be appended to, unless a marker invalidates the guard meanwhile."""
    errors: Mapping[TopicPartition, KafkaError] = field(default_factory=dict)
    """By partition that must not be appended to."""

    @property
    def transaction_version(self) -> int:
        return 2 if self.transaction.adds else 1

    def refuse(self, partitions: Iterable[Partition], error: KafkaError) -> None:
        self.errors = {**self.errors, **{partition.name: error for partition in partitions}}


@dataclass(slots=True, eq=False)
class _Pending:
    """A write that waits until its partitions are verified, and the writes before it."""

    write: TransactionalWrite
    give_up_ms: int
    wait_ms: int
    """The delay before the next request, if one is needed."""
    promise: Promise[None] = field(default_factory=Promise)
    is_verified: bool = False


class Patience(NamedTuple):
    """How often a write retries, and how long it waits, until the previous transaction has ended."""

    retry_ms: int
    retry_max_ms: int


class TransactionGate:
    """The handlers of Produce and TxnOffsetCommit call `verify` with all that a request writes, `check` right before
    each append and `appended` after it.

    `verifies` returns whether partitions that clients have added beforehand are verified at all.
    """

    def __init__(
        self,
        verifications: Verifications,
        verifier: TransactionVerifier,
        clock: Clock,
        timers: Timers,
        patience: Patience,
        verifies: Callable[[], bool],
    ) -> None:
        self._verifications = verifications
        self._verifier = verifier
        self._clock = clock
        self._timers = timers
        self._patience = patience
        self._verifies = verifies
        self._queues: dict[InTransaction, deque[_Pending]] = {}
        """Waiting writes by transaction, in order: what a producer sends first must be appended first."""

    def verify(self, write: TransactionalWrite) -> Promise[None] | None:
        """Set `guards` and `errors` of a write. Return None if this is done, else a promise that is completed then."""
        transaction = write.transaction
        if not self._is_checked(transaction):
            return None
        write.guards, fenced = self._guards(write)
        write.errors = {**write.errors, **fenced}
        if not write.guards and transaction not in self._queues:
            return None
        patience = self._patience
        give_up_ms = self._clock.monotonic_ms() + patience.retry_max_ms
        pending = _Pending(write, give_up_ms, min(FIRST_RETRY_MS, patience.retry_ms))
        self._queues.setdefault(transaction, deque()).append(pending)
        self._ask_coordinator(pending)
        return pending.promise

    def _is_checked(self, transaction: InTransaction) -> bool:
        return transaction.adds or self._verifies()

    def _ask_coordinator(self, pending: _Pending) -> None:
        write = pending.write
        if write.guards:
            self._verifier.verify(write.transaction, write.guards).then(partial(self._on_response, pending))
        else:
            self._finish(pending)

    def _ask_again(self, pending: _Pending) -> None:
        write = pending.write
        write.guards, fenced = self._guards(write)
        write.errors = {**write.errors, **fenced}
        self._ask_coordinator(pending)

    def _on_response(self, pending: _Pending, codes: Codes) -> None:
        write = pending.write
        # The marker of the previous transaction may not be here yet; clients of version 2 do not see that, so retry.
        # A marker invalidates the guards: get new ones, also if it came between the request and the response.
        is_early = (
            ErrorCode.CONCURRENT_TRANSACTIONS in codes.values() and self._clock.monotonic_ms() < pending.give_up_ms
        )
        is_invalid = not codes and self._has_invalid_guards(write)
        if write.transaction.adds and (is_early or is_invalid):
            self._timers.after_ms(pending.wait_ms, partial(self._ask_again, pending))
            pending.wait_ms = min(2 * pending.wait_ms, self._patience.retry_ms)
            return
        self._note_failures(write, codes)
        errors = {name: KafkaError(_error_for_client(code, write.knows_abortable)) for name, code in codes.items()}
        write.errors = {**write.errors, **errors}
        self._finish(pending)

    def _finish(self, pending: _Pending) -> None:
        pending.is_verified = True
        transaction = pending.write.transaction
        queue = self._queues[transaction]
        while queue and queue[0].is_verified:
            first = queue.popleft()
            if not queue:
                del self._queues[transaction]
            complete_alone(first.promise, None, log, "its coordinator")

    def _note_failures(self, write: TransactionalWrite, codes: Codes) -> None:
        """Keep no state of producers that the coordinator does not know, and little of others that it did not confirm:
        clients can invent any number of them."""
        transaction = write.transaction
        for partition in write.sequences:
            code = codes.get(partition.name)
            if code in UNKNOWN_PRODUCER_CODES:
                self._verifications.forget(partition, transaction.producer_id, transaction.transactional_id)
            elif code is not None:
                self._verifications.fail(partition, transaction.producer_id, transaction.transactional_id)

    def _has_invalid_guards(self, write: TransactionalWrite) -> bool:
        """Whether a marker came to a partition that has no records of the transaction yet."""
        current, _ = self._guards(write)
        return any(write.guards.get(name) is not guard for name, guard in current.items())

    def _guards(
        self, write: TransactionalWrite
    ) -> tuple[dict[TopicPartition, Guard], dict[TopicPartition, KafkaError]]:
        """Return the guards of the partitions, and the errors of those whose producer is fenced. A partition that has
        records of the transaction already needs no guard."""
        guards: dict[TopicPartition, Guard] = {}
        errors: dict[TopicPartition, KafkaError] = {}
        transaction, now_ms = write.transaction, self._clock.monotonic_ms()
        for partition, sequence in write.sequences.items():
            try:
                guard = self._verifications.begin(
                    partition,
                    transaction.producer_id,
                    transaction.producer_epoch,
                    sequence,
                    now_ms,
                    transaction.transactional_id,
                )
            except KafkaError as error:
                errors[partition.name] = error
                continue
            if guard is not None:
                guards[partition.name] = guard
        return guards, errors

    def check(self, write: TransactionalWrite, partition: Partition) -> None:
        """Check right before the append. Raise KafkaError if it is not allowed."""
        error = write.errors.get(partition.name)
        if error is not None:
            raise error
        sequence = write.sequences.get(partition)
        if sequence is None:
            # The partition came to this node, or was replaced by one of the same name, while the coordinator was asked.
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        transaction = write.transaction
        if self._is_checked(transaction):
            guard = write.guards.get(partition.name)
            self._verifications.check(partition, transaction.producer_id, transaction.producer_epoch, sequence, guard)

    def appended(self, write: TransactionalWrite, partition: Partition) -> None:
        self._verifications.finish(partition, write.transaction.producer_id)


def _error_for_client(code: ErrorCode, knows_abortable: bool) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code
