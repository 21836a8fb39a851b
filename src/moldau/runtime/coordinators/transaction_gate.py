"""Verifies that a partition is part of a transaction before records of it are appended (KIP-890).

All partitions of one produce request are verified by one request. Older clients have added the partitions beforehand,
which is verified here; newer clients add a partition by writing to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
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

PartitionSequences = Sequence[tuple[Partition, int]]
"""Partitions, each with the first sequence number that is to be appended."""


class Passed(NamedTuple):
    """The result: guards for the partitions that may be appended to, if nothing happened meanwhile, and the errors of
    the others."""

    guards: Mapping[TopicPartition, Guard]
    refused: Mapping[TopicPartition, KafkaError]


NOTHING = Passed({}, {})
UNKNOWN_PRODUCER_CODES = frozenset(
    {ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_REQUEST}
)
FIRST_RETRY_MS = 1
"""The first retries come faster than `retry_ms`, because most markers are written sooner than that."""


@dataclass(slots=True, eq=False)
class _PendingWrite:
    """A write that waits until its partitions are verified."""

    transaction: InTransaction
    partitions: PartitionSequences
    knows_abortable: bool
    give_up_ms: int
    wait_ms: int
    """The delay before the next request, if one is needed."""
    answer: Promise[Passed] = field(default_factory=Promise)
    passed: Passed | None = None
    """The result, while earlier writes are still waiting for theirs."""


class Patience(NamedTuple):
    """How often a write retries, and how long it waits, until the previous transaction has ended."""

    retry_ms: int
    retry_max_ms: int


class TransactionGate:
    """`verifies` returns whether partitions that clients have added beforehand are verified at all."""

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
        self._queues: dict[InTransaction, deque[_PendingWrite]] = {}
        """Waiting writes by transaction, in order: what a producer sends first must be appended first."""

    def pass_through(
        self, transaction: InTransaction, partitions: PartitionSequences, knows_abortable: bool
    ) -> Passed | Promise[Passed]:
        """Verify the partitions of a write. `knows_abortable`: the client supports TRANSACTION_ABORTABLE."""
        if not transaction.adds and not self._verifies():
            return NOTHING
        guards, refused = self._begin(transaction, partitions)
        if not guards and transaction not in self._queues:
            return Passed(guards, refused)
        patience = self._patience
        give_up_ms = self._clock.elapsed_ms() + patience.retry_max_ms
        wait_ms = min(FIRST_RETRY_MS, patience.retry_ms)
        write = _PendingWrite(transaction, partitions, knows_abortable, give_up_ms, wait_ms)
        self._queues.setdefault(transaction, deque()).append(write)
        self._verify(write, Passed(guards, refused))
        return write.answer

    def _verify(self, write: _PendingWrite, started: Passed) -> None:
        if started.guards:
            self._verifier.verify(write.transaction, started.guards).then(partial(self._settle, write, started))
        else:
            self._pass(write, started)

    def _verify_again(self, write: _PendingWrite) -> None:
        self._verify(write, Passed(*self._begin(write.transaction, write.partitions)))

    def _settle(self, write: _PendingWrite, started: Passed, codes: Codes) -> None:
        transaction, partitions = write.transaction, write.partitions
        # The marker of the previous transaction may not be here yet; clients of version 2 do not see that, so retry.
        # A marker invalidates the guards: get new ones, also if it came between the request and the response.
        is_early = ErrorCode.CONCURRENT_TRANSACTIONS in codes.values() and self._clock.elapsed_ms() < write.give_up_ms
        is_invalid = not codes and self._are_invalid(transaction, partitions, started.guards)
        if transaction.adds and (is_early or is_invalid):
            self._timers.after_ms(write.wait_ms, partial(self._verify_again, write))
            write.wait_ms = min(2 * write.wait_ms, self._patience.retry_ms)
            return
        self._forget_unknown_producers(transaction, partitions, codes)
        errors = {name: KafkaError(_error_for_client(code, write.knows_abortable)) for name, code in codes.items()}
        self._pass(write, Passed(started.guards, {**started.refused, **errors}))

    def _pass(self, write: _PendingWrite, passed: Passed) -> None:
        write.passed = passed
        transaction = write.transaction
        queue = self._queues[transaction]
        while queue and (first := queue[0]).passed is not None:
            queue.popleft()
            if not queue:
                del self._queues[transaction]
            first.answer.complete(first.passed)

    def _forget_unknown_producers(
        self, transaction: InTransaction, partitions: PartitionSequences, codes: Codes
    ) -> None:
        """Keep no state of producers that the coordinator does not know: clients can invent any number of them."""
        for partition, _ in partitions:
            if codes.get(partition.name) in UNKNOWN_PRODUCER_CODES:
                self._verifications.forget(partition, transaction.producer_id, transaction.transactional_id)

    def _are_invalid(
        self, transaction: InTransaction, partitions: PartitionSequences, guards: Mapping[TopicPartition, Guard]
    ) -> bool:
        """Whether a marker came to a partition that has no records of the transaction yet."""
        new_guards, _ = self._begin(transaction, partitions)
        return any(guards.get(name) is not guard for name, guard in new_guards.items())

    def _begin(
        self, transaction: InTransaction, partitions: PartitionSequences
    ) -> tuple[dict[TopicPartition, Guard], dict[TopicPartition, KafkaError]]:
        guards: dict[TopicPartition, Guard] = {}
        refused: dict[TopicPartition, KafkaError] = {}
        now_ms = self._clock.elapsed_ms()
        for partition, sequence in partitions:
            try:
                guard = self._verifications.begin(
                    partition,
                    transaction.producer_id,
                    transaction.producer_epoch,
                    sequence,
                    now_ms,
                    transaction.transactional_id,
                )
            except KafkaError as fenced:
                refused[partition.name] = fenced
                continue
            if guard is not None:
                guards[partition.name] = guard
        return guards, refused

    def check(self, partition: Partition, transaction: InTransaction, sequence: int, passed: Passed) -> None:
        """Check right before the append. Raise KafkaError if it is not allowed."""
        refused = passed.refused.get(partition.name)
        if refused is not None:
            raise refused
        if not transaction.adds and not self._verifies():
            return
        guard = passed.guards.get(partition.name)
        self._verifications.check(partition, transaction.producer_id, transaction.producer_epoch, sequence, guard)

    def appended(self, partition: Partition, transaction: InTransaction) -> None:
        self._verifications.over(partition, transaction.producer_id)


def _error_for_client(code: ErrorCode, knows_abortable: bool) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code
